package checkout

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tree writes files below a new folder: a name that ends in a slash is a
// folder.
func tree(t testing.TB, files map[string]string) string {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	write(t, root, files)
	return root
}

func write(t testing.TB, root string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(root, filepath.FromSlash(name))
		if strings.HasSuffix(name, "/") {
			if err := os.MkdirAll(path, 0o755); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func mustOpen(t testing.TB, root string) *Checkout {
	t.Helper()
	c, err := Open(root)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func symlink(t testing.TB, to, at string) {
	t.Helper()
	if err := os.Symlink(to, at); err != nil {
		t.Skip(err)
	}
}

const manifestText = "schema: ai-repository/v1\n"

func TestFind(t *testing.T) {
	root := tree(t, map[string]string{
		"home/dotfiles": "", "home/.git/": "",
		"home/plain/sub/":                             "",
		"home/repo/.git/":                             "",
		"home/repo/a/b/":                              "",
		"home/repo/nested/.git/":                      "",
		"home/repo/nested/x/":                         "",
		"home/mono/.git/":                             "",
		"home/mono/part/.ai/manifest.yaml":            manifestText,
		"home/mono/part/deep/":                        "",
		"home/outer/.ai/manifest.yaml":                manifestText,
		"home/outer/inner/.git/":                      "",
		"home/outer/inner/x/":                         "",
		"home/linked/.git":                            "gitdir: ../repo/.git/worktrees/linked\n",
		"home/broken/.git":                            "what is this\n",
		"home/onlyai/.ai/":                            "",
		"home2/.ai/manifest.yaml":                     manifestText,
		"home2/x/":                                    "",
		"home/folder-for-manifest/.ai/manifest.yaml/": "",
	})
	home := filepath.Join(root, "home")
	for _, tt := range []struct{ dir, home, want string }{
		{"home/repo", "home", "home/repo"},
		{"home/repo/a/b", "home", "home/repo"},
		{"home/repo/nested/x", "home", "home/repo/nested"},
		{"home/mono/part/deep", "home", "home/mono/part"},
		{"home/mono", "home", "home/mono"},
		{"home/outer/inner/x", "home", "home/outer"}, // a manifest above a work tree draws the border
		{"home/linked", "home", "home/linked"},
		{"home/plain/sub", "home", ""}, // a repository of dotfiles
		{"home", "home", ""},
		{"home/broken", "home", ""},
		{"home/onlyai", "home", ""},
		{"home/folder-for-manifest", "home", ""},
		{"home/plain/sub", "", "home"}, // home unknown
		{"home2/x", "home2", "home2"},  // home with a manifest
		{"home2", "home2", "home2"},
	} {
		h := tt.home
		if h != "" {
			h = filepath.Join(root, h)
		}
		c, err := Find(filepath.Join(root, filepath.FromSlash(tt.dir)), h)
		switch {
		case tt.want == "" && !errors.Is(err, ErrNone):
			t.Errorf("Find(%s): %v, %v; want none", tt.dir, c, err)
		case tt.want != "" && err != nil:
			t.Errorf("Find(%s): %v", tt.dir, err)
		case tt.want != "" && c.Root != filepath.Join(root, filepath.FromSlash(tt.want)):
			t.Errorf("Find(%s) = %s, want %s", tt.dir, c.Root, tt.want)
		}
	}
	if _, err := Find(filepath.Join(root, "absent"), home); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a folder that is not there: %v", err)
	}
}

func TestOpen(t *testing.T) {
	root := tree(t, map[string]string{"x/y/": "", "file": ""})
	c := mustOpen(t, filepath.Join(root, "x"))
	sum := sha256.Sum256([]byte(c.Root))
	if c.Root != filepath.Join(root, "x") || c.Name != "x" || c.ID != hex.EncodeToString(sum[:16]) || len(c.ID) != 32 {
		t.Errorf("%+v", c)
	}
	if c.GitID != "" || c.LinkedWorktree || c.HasManifest {
		t.Errorf("%+v", c)
	}
	at := func(s string) string { return filepath.Join(c.Root, filepath.FromSlash(s)) }
	if c.RepoDir != at(".ai/repo") || c.LocalDir != at(".ai/local") || c.PolicyFile != at(".ai/repo/policy.yaml") ||
		c.ServersFile != at(".ai/repo/mcp.json") || c.StateDir() != at(".ai/local/state/mcp") {
		t.Errorf("%+v", c)
	}
	for _, bad := range []string{"file", "absent"} {
		if _, err := Open(filepath.Join(root, bad)); err == nil {
			t.Errorf("%s opened", bad)
		}
	}
}

func TestEverySpellingIsOneCheckout(t *testing.T) {
	root := tree(t, map[string]string{"real/.git/": "", "real/sub/": ""})
	want := mustOpen(t, filepath.Join(root, "real"))
	symlink(t, "real", filepath.Join(root, "link"))
	symlink(t, filepath.Join(root, "link"), filepath.Join(root, "again"))
	t.Chdir(root)
	for _, spelling := range []string{
		filepath.Join(root, "real") + "/", root + "/real/.", root + "//real", root + "/real/sub/..",
		root + "/link", root + "/link/", root + "/again", "real", "./link",
	} {
		c, err := Open(spelling)
		if err != nil {
			t.Fatal(err)
		}
		if c.ID != want.ID || c.GitID != want.GitID || c.Root != want.Root {
			t.Errorf("%s is %s, want %s", spelling, c.Root, want.Root)
		}
		if c, err := Find(filepath.Join(spelling, "sub"), ""); err != nil || c.ID != want.ID {
			t.Errorf("from %s/sub: %v, %v", spelling, c, err)
		}
	}
}

// A file system that ignores case, as spelled sees it.
func TestSpelled(t *testing.T) {
	folders := map[string][]string{"/": {"Users"}, "/Users": {"Ann", "bob"}, "/Users/Ann": {"Caf\u00e9", "123"}}
	fold := func(p string) string { return strings.ReplaceAll(strings.ToLower(p), "e\u0301", "\u00e9") }
	known := map[string]bool{}
	for dir, names := range folders {
		for _, n := range names {
			known[fold(filepath.Join(dir, n))] = true
		}
	}
	ignoring := disk{
		same:  func(a, b string) bool { return known[fold(a)] && fold(a) == fold(b) },
		names: func(dir string) []string { return folders[dir] },
	}
	telling := disk{
		same:  func(a, b string) bool { return a == b },
		names: func(string) []string { t.Error("listed a folder of a file system that tells case"); return nil },
	}
	if runtime.GOOS == "windows" {
		t.Skip("paths with slashes")
	}
	for in, want := range map[string]string{
		"/Users/Ann":                 "/Users/Ann",
		"/users/ANN":                 "/Users/Ann",
		"/USERS/BOB":                 "/Users/bob",
		"/users/ann/123":             "/Users/Ann/123",
		"/users/ann/cafe\u0301":      "/Users/Ann/Caf\u00e9",
		"/":                          "/",
		"/users/ann/not/there/AtAll": "/Users/Ann/not/there/AtAll",
	} {
		if got := spelled(in, ignoring); got != want {
			t.Errorf("spelled(%s) = %s, want %s", in, got, want)
		}
		if got := spelled(in, telling); got != in {
			t.Errorf("where case counts, spelled(%s) = %s", in, got)
		}
	}
}

func TestManifest(t *testing.T) {
	root := tree(t, map[string]string{".ai/manifest.yaml": `
schema: ai-repository/v1
other: {kept: by others}
repo: {path: shared, owner: x}
local:
  path: private/here
sections:
  policy: shared/rules.yaml
  servers: ../config/mcp.json
  agents: whatever
`})
	c := mustOpen(t, root)
	at := func(s string) string { return filepath.Join(root, filepath.FromSlash(s)) }
	if !c.HasManifest || c.RepoDir != at(".ai/shared") || c.LocalDir != at(".ai/private/here") ||
		c.PolicyFile != at(".ai/shared/rules.yaml") || c.ServersFile != at("config/mcp.json") {
		t.Errorf("%+v", c)
	}
	for _, text := range []string{"", "# nothing\n", "---\n", manifestText, "repo:\n", "sections: {policy: }\n"} {
		write(t, root, map[string]string{".ai/manifest.yaml": text})
		c := mustOpen(t, root)
		if !c.HasManifest || c.RepoDir != at(".ai/repo") {
			t.Errorf("%q: %+v", text, c)
		}
	}
}

func TestManifestErrors(t *testing.T) {
	for _, tt := range []struct {
		text, key string
		line      int
	}{
		{"schema: ai-repository/v9\n", "schema", 1},
		{"repo:\n  path: ../../outside\n", "repo.path", 2},
		{"repo: {path: /etc}\n", "repo.path", 1},
		{"\nlocal: {path: a/../../../x}\n", "local.path", 2},
		{"sections:\n  policy: ../../p.yaml\n", "sections.policy", 2},
		{"sections:\n\n  servers: /etc/mcp.json\n", "sections.servers", 3},
		{"repo: {path: [a]}\n", "repo.path", 1},
		{"repo: {path: 7}\n", "repo.path", 1},
		{"repo: {path: ''}\n", "repo.path", 1},
		{"repo: here\n", "repo", 1},
		{"sections: [policy]\n", "sections", 1},
		{"- a\n", "", 1},
		{"a: b\nc: [\n", "", 3},
		{"a: 1\n---\nb: 2\n", "", 3},
		{"local: {path: .}\n", "local.path", 0},
		{"local: {path: ..}\n", "local.path", 0},
		{"repo: {path: local/repo}\n", "local.path", 0},
		{"repo: {path: local}\n", "local.path", 0},
	} {
		root := tree(t, map[string]string{".ai/manifest.yaml": tt.text})
		_, err := Open(root)
		var e *PolicyError
		if !errors.As(err, &e) {
			t.Errorf("%q: %v", tt.text, err)
			continue
		}
		if e.Key != tt.key || e.File != filepath.Join(root, ".ai", "manifest.yaml") || tt.key != "" && e.Line != tt.line {
			t.Errorf("%q: key %q line %d, want %q line %d (%v)", tt.text, e.Key, e.Line, tt.key, tt.line, err)
		}
		speaksPlainly(t, err)
	}
}

// speaksPlainly checks that an error is for who wrote the file.
func speaksPlainly(t *testing.T, err error) {
	t.Helper()
	var e *PolicyError
	if !errors.As(err, &e) {
		t.Fatal(err)
	}
	for _, word := range []string{"!!", "checkout.", "struct", "time.Duration", "float64", "int64", "unmarshal", "yaml:", "\n"} {
		if strings.Contains(e.Reason, word) {
			t.Errorf("speaks of code (%q): %v", word, err)
		}
	}
}

func TestLinksThatLeave(t *testing.T) {
	out := tree(t, map[string]string{"policy.yaml": "", "mcp.json": ""})
	for _, name := range []string{"repo", "local"} {
		root := tree(t, map[string]string{".ai/": ""})
		symlink(t, out, filepath.Join(root, ".ai", name))
		if c, err := Open(root); err == nil || !strings.Contains(err.Error(), "leaves the checkout") {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
	}
	root := tree(t, map[string]string{"kept/": "", ".ai/": ""})
	symlink(t, filepath.Join("..", "kept"), filepath.Join(root, ".ai", "repo"))
	if c := mustOpen(t, root); c.RepoDir != filepath.Join(root, "kept") || c.PolicyFile != filepath.Join(root, "kept", "policy.yaml") {
		t.Errorf("%+v", c)
	}
	// A second checkout must not share the first one's local folder.
	root = tree(t, nil)
	symlink(t, out, filepath.Join(root, ".ai"))
	if _, err := Open(root); err == nil {
		t.Error("a link .ai that leaves was followed")
	}
}

// run runs git in dir, without the account's settings.
func run(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_SYSTEM="+os.DevNull, "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
}

func needGit(t *testing.T) {
	t.Helper()
	const why = "no git here to make repositories with"
	if _, err := exec.LookPath("git"); err != nil {
		if os.Getenv("MAJORDOMUS_TEST_ALL") == "1" {
			t.Fatal("MAJORDOMUS_TEST_ALL=1, but " + why)
		}
		t.Skip(why)
	}
}

func roots(list []*Checkout, below string) []string {
	var names []string
	for _, c := range list {
		rel, err := filepath.Rel(below, c.Root)
		if err != nil {
			rel = c.Root
		}
		names = append(names, filepath.ToSlash(rel))
	}
	return names
}

func TestWorktrees(t *testing.T) {
	needGit(t)
	dir := tree(t, map[string]string{"main/f": "", "main/part/.ai/manifest.yaml": manifestText})
	main := filepath.Join(dir, "main")
	run(t, main, "init", "-q")
	run(t, main, "add", ".")
	run(t, main, "commit", "-qm", "one")
	run(t, main, "worktree", "add", "-q", "../b", "-b", "b")
	run(t, main, "worktree", "add", "-q", "../a dir", "-b", "a")
	run(t, main, "-c", "worktree.useRelativePaths=true", "worktree", "add", "-q", "../c", "-b", "c")

	m, b := mustOpen(t, main), mustOpen(t, filepath.Join(dir, "b"))
	if m.LinkedWorktree || !b.LinkedWorktree || m.GitID == "" || m.GitID != b.GitID || m.ID == b.ID {
		t.Errorf("main %+v\nb %+v", m, b)
	}
	want := []string{"main", "a dir", "b", "c"}
	for _, c := range []*Checkout{m, b} {
		list, err := c.Worktrees()
		if err != nil || !slices.Equal(roots(list, dir), want) {
			t.Errorf("from %s: %v, %v", c.Name, roots(list, dir), err)
		}
		if !slices.Contains(list, c) {
			t.Error("without itself")
		}
	}
	// A checkout below the top of its work tree: the same folder in the others.
	part := mustOpen(t, filepath.Join(dir, "b", "part"))
	if list, err := part.Worktrees(); err != nil || !slices.Equal(roots(list, dir), []string{"main/part", "a dir/part", "b/part", "c/part"}) {
		t.Errorf("%v, %v", roots(list, dir), err)
	}
	// One that has gone is left out, and said.
	if err := os.RemoveAll(filepath.Join(dir, "a dir")); err != nil {
		t.Fatal(err)
	}
	if list, err := m.Worktrees(); !errors.Is(err, fs.ErrNotExist) || !slices.Equal(roots(list, dir), []string{"main", "b", "c"}) {
		t.Errorf("%v, %v", roots(list, dir), err)
	}
	// Something else took its place.
	run(t, dir, "init", "-q", "a dir")
	if list, err := m.Worktrees(); err == nil || !slices.Equal(roots(list, dir), []string{"main", "b", "c"}) {
		t.Errorf("%v, %v", roots(list, dir), err)
	}
	if list, err := mustOpen(t, tree(t, nil)).Worktrees(); err != nil || len(list) != 1 {
		t.Errorf("without git: %v, %v", list, err)
	}
}

func TestWorktreesOfABareRepository(t *testing.T) {
	needGit(t)
	dir := tree(t, map[string]string{"src/f": ""})
	run(t, filepath.Join(dir, "src"), "init", "-q")
	run(t, filepath.Join(dir, "src"), "add", ".")
	run(t, filepath.Join(dir, "src"), "commit", "-qm", "one")
	for _, bare := range []string{"bare.git", "project/.git"} {
		run(t, dir, "clone", "-q", "--bare", "src", bare)
		wt := filepath.Join(dir, "wt-"+strings.ReplaceAll(bare, "/", "-"))
		run(t, filepath.Join(dir, bare), "worktree", "add", "-q", wt, "-b", "w")
		c := mustOpen(t, wt)
		if list, err := c.Worktrees(); err != nil || !slices.Equal(roots(list, dir), []string{filepath.Base(wt)}) {
			t.Errorf("%s: %v, %v", bare, roots(list, dir), err)
		}
	}
}

func TestSubmodule(t *testing.T) {
	needGit(t)
	dir := tree(t, map[string]string{"sub/f": "", "super/f": ""})
	for _, r := range []string{"sub", "super"} {
		run(t, filepath.Join(dir, r), "init", "-q")
		run(t, filepath.Join(dir, r), "add", ".")
		run(t, filepath.Join(dir, r), "commit", "-qm", "one")
	}
	run(t, filepath.Join(dir, "super"), "-c", "protocol.file.allow=always", "submodule", "add", "-q", filepath.Join(dir, "sub"), "module")
	c, err := Find(filepath.Join(dir, "super", "module"), "")
	if err != nil {
		t.Fatal(err)
	}
	if c.Root != filepath.Join(dir, "super", "module") || c.LinkedWorktree || c.GitID == mustOpen(t, filepath.Join(dir, "super")).GitID {
		t.Errorf("%+v", c)
	}
	if list, err := c.Worktrees(); err != nil || !slices.Equal(roots(list, dir), []string{"super/module"}) {
		t.Errorf("%v, %v", roots(list, dir), err)
	}
}
