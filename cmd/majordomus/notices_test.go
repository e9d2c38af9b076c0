//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// platforms are the systems that archives are made for.
var platforms = []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64", "windows/amd64", "windows/arm64"}

// TestNotices holds LICENSE-third-party to what is linked into the program on
// any of the platforms: the terms of each module, and of no other. With -update
// it writes the file.
func TestNotices(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"go.mod", "go.sum"} {
		// What a child reads does not make go test run this again; what we read does.
		if _, err := os.ReadFile(filepath.Join("..", "..", name)); err != nil {
			t.Fatal(err)
		}
	}
	linked := map[string]*linkedModule{}
	for _, platform := range platforms {
		if err := linkedModules(platform, linked); err != nil {
			t.Fatal(err)
		}
	}
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	// The Go project has the same terms for all it makes. Not every packager of Go
	// leaves them beside the library.
	terms := strings.TrimSpace(string(goroot))
	if _, err := os.Stat(filepath.Join(terms, "LICENSE")); err != nil {
		terms = linked["golang.org/x/sys"].dir
	}
	linked["The Go standard library"] = &linkedModule{name: "The Go standard library", dir: terms, folders: map[string]bool{terms: true}}

	var b bytes.Buffer
	b.WriteString(`The majordomus executable contains the software listed here, under the terms that
follow. Not every system's executable contains all of it.
`)
	// The standard library first: all else is in the order of its paths.
	for _, key := range slices.Sorted(maps.Keys(linked)) {
		if err := linked[key].notice(&b); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join("..", "..", "LICENSE-third-party")
	if *update {
		if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	kept, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(kept, b.Bytes()) {
		return
	}
	have, want := noticed(kept), noticed(b.Bytes())
	for _, name := range want {
		if !slices.Contains(have, name) {
			t.Errorf("LICENSE-third-party lacks the terms of %s, which is linked in", name)
		}
	}
	for _, name := range have {
		if !slices.Contains(want, name) {
			t.Errorf("LICENSE-third-party has the terms of %s, which is not linked in", name)
		}
	}
	t.Error("LICENSE-third-party is not what go test ./cmd/majordomus -run Notices -update writes")
}

// linkedModule is a module of others, and the folders of its packages that are
// linked in.
type linkedModule struct {
	name    string // path and version
	dir     string
	folders map[string]bool
}

// linkedModules adds to linked what the program has on a platform, by path. What
// go.mod replaces by a folder of this repository is our own.
func linkedModules(platform string, linked map[string]*linkedModule) error {
	system, arch, _ := strings.Cut(platform, "/")
	cmd := exec.Command("go", "list", "-deps", "-json=Dir,Module", ".")
	cmd.Env = append(os.Environ(), "GOOS="+system, "GOARCH="+arch, "CGO_ENABLED=0")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("listing what is linked on %s: %w: %s", platform, err, stderr.Bytes())
	}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			Dir    string
			Module *struct {
				Path, Version, Dir string
				Main               bool
				Replace            *struct{ Version string }
			}
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("reading what is linked on %s: %w", platform, err)
		}
		m := p.Module
		if m == nil || m.Main || m.Replace != nil && m.Replace.Version == "" {
			continue
		}
		if linked[m.Path] == nil {
			linked[m.Path] = &linkedModule{name: m.Path + " " + m.Version, dir: m.Dir, folders: map[string]bool{}}
		}
		linked[m.Path].folders[p.Dir] = true
	}
}

var isTerms = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([-_.].*)?$`)

const noticeRule = "================================================================================"

// notice writes the terms of m: those beside it and beside each linked package.
func (m *linkedModule) notice(b *bytes.Buffer) error {
	found := map[string]bool{}
	for folder := range m.folders {
		for ; ; folder = filepath.Dir(folder) {
			entries, err := os.ReadDir(folder)
			if err != nil {
				return fmt.Errorf("looking for the terms of %s: %w", m.name, err)
			}
			for _, e := range entries {
				if e.Type().IsRegular() && isTerms.MatchString(e.Name()) && filepath.Ext(e.Name()) != ".go" {
					found[filepath.Join(folder, e.Name())] = true
				}
			}
			if folder == m.dir {
				break
			}
		}
	}
	if len(found) == 0 {
		return fmt.Errorf("%s has no terms that could be found in %s", m.name, m.dir)
	}
	fmt.Fprintf(b, "\n%s\n%s\n%s\n", noticeRule, m.name, noticeRule)
	for _, path := range slices.Sorted(maps.Keys(found)) {
		text, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("reading the terms of %s: %w", m.name, err)
		}
		rel, err := filepath.Rel(m.dir, path)
		if err != nil {
			return err
		}
		// Line ends and the blank around a text are no part of it.
		plain := strings.Trim(strings.ReplaceAll(string(text), "\r\n", "\n"), "\n")
		fmt.Fprintf(b, "\n-- %s\n\n%s\n", filepath.ToSlash(rel), plain)
	}
	return nil
}

// noticed are the names in a file of notices.
func noticed(file []byte) []string {
	var names []string
	lines := strings.Split(string(file), "\n")
	for i := 1; i+1 < len(lines); i++ {
		if lines[i-1] == noticeRule && lines[i+1] == noticeRule {
			names = append(names, lines[i])
		}
	}
	return names
}
