package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// rooms is who may import what: imports run downward only. A package that is
// not here must be given its place first.
var rooms = map[string]struct{ ours, others []string }{
	"lease/checkout":            {nil, []string{"gopkg.in/yaml.v3"}},
	"lease":                     {[]string{"lease/checkout"}, []string{"github.com/gofrs/flock", "golang.org/x/mod/", "golang.org/x/sys/"}},
	"lease/launch":              {[]string{"lease", "lease/checkout"}, []string{"golang.org/x/sys/"}},
	"bridge/frame":              {nil, nil},
	"bridge":                    {[]string{"lease", "bridge/frame"}, []string{"github.com/mark3labs/mcp-go/mcp"}},
	"server/board":              {nil, nil},
	"server/cockpit":            {nil, nil},
	"server/hub/child/procstat": {nil, nil},
	"server/hub/child":          {[]string{"server/hub/child/procstat"}, []string{"golang.org/x/sys/"}},
	"server/hub/config":         {nil, nil},
	"server/hub":                {[]string{"lease/checkout", "bridge/frame", "server/hub/child", "server/hub/config", "server/session"}, []string{"github.com/yosida95/uritemplate/v3"}},
	"server/session":            {[]string{"bridge/frame"}, []string{"github.com/mark3labs/mcp-go/"}},
	"server":                    {[]string{"lease", "lease/checkout", "bridge/frame", "server/board", "server/cockpit", "server/hub", "server/hub/config", "server/session"}, []string{"github.com/mark3labs/mcp-go/", "github.com/VictoriaMetrics/metrics"}},
	"install":                   {nil, []string{"github.com/gofrs/flock"}},
	"install/service":           {nil, []string{"github.com/kardianos/service", "golang.org/x/sys/"}},
	"install/shell":             {nil, nil},
	"install/editor":            {nil, []string{"github.com/tailscale/hujson", "github.com/pelletier/go-toml/v2", "github.com/pelletier/go-toml/v2/unstable"}},
	"cmd/majordomus/bench":      {[]string{"bridge/frame", "server/hub/child"}, nil},
	"cmd/majordomus": {[]string{"cmd/majordomus/bench", "install", "install/editor", "install/service", "install/shell", "lease", "lease/checkout", "lease/launch", "bridge", "bridge/frame", "server", "server/board", "server/hub", "server/hub/child/procstat", "server/hub/config", "server/session"},
		[]string{"github.com/spf13/cobra", "github.com/mark3labs/mcp-go/", "golang.org/x/sys/"}},
}

// topLevel is all that lies beside the dotfiles.
var topLevel = []string{"bridge", "server", "lease", "install", "cmd", "go.mod", "go.sum", "README.md", "LICENSE", "LICENSE-third-party", "CHANGELOG.md"}

func TestHouse(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") && e.Name() != "majordomus" && !slices.Contains(topLevel, e.Name()) {
			t.Errorf("%s does not belong to the top level", e.Name())
		}
	}
	documented := map[string]bool{}
	seen := map[string]bool{}
	err = filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() {
			switch name := e.Name(); {
			case name == "testdata", name == "node_modules", name == "internal", name != ".." && strings.HasPrefix(name, "."):
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		pkg := filepath.ToSlash(filepath.Dir(rel))
		seen[pkg] = true
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		if file.Doc != nil {
			if documented[pkg] {
				t.Errorf("%s: a second package comment", rel)
			}
			documented[pkg] = true
		}
		checkImports(t, rel, pkg, file)
		if !strings.HasPrefix(pkg, "cmd/") {
			checkEnvironment(t, rel, file)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for pkg := range seen {
		if !documented[pkg] {
			t.Errorf("%s has no package comment", pkg)
		}
	}
	for pkg := range rooms {
		if !seen[pkg] {
			t.Errorf("%s has a room and no files", pkg)
		}
	}
}

func checkImports(t *testing.T, rel, pkg string, file *ast.File) {
	t.Helper()
	room, ok := rooms[pkg]
	if !ok {
		t.Errorf("%s: package %s has no place in the table", rel, pkg)
		return
	}
	for _, spec := range file.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		if ours, ok := strings.CutPrefix(path, "majordomus/"); ok {
			if !slices.Contains(room.ours, ours) {
				t.Errorf("%s imports %s: not downward", rel, path)
			}
		} else if first, _, _ := strings.Cut(path, "/"); strings.Contains(first, ".") {
			if !slices.ContainsFunc(room.others, func(o string) bool {
				return path == o || strings.HasSuffix(o, "/") && strings.HasPrefix(path, o)
			}) {
				t.Errorf("%s imports %s, which that package has no business with", rel, path)
			}
		}
	}
}

// checkEnvironment finds what only cmd may read.
func checkEnvironment(t *testing.T, rel string, file *ast.File) {
	t.Helper()
	ast.Inspect(file, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := sel.X.(*ast.Ident); ok && x.Name == "os" &&
				slices.Contains([]string{"Getenv", "LookupEnv", "Environ", "Args", "Exit"}, sel.Sel.Name) {
				t.Errorf("%s uses os.%s, which only cmd may", rel, sel.Sel.Name)
			}
		}
		return true
	})
}
