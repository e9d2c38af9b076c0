package checkout

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// What git has registered and cannot be used is named, and the work trees beside
// it are listed all the same.
func TestWorktreesThatAreDamaged(t *testing.T) {
	dir := tree(t, map[string]string{
		"main/.git/HEAD": "ref: refs/heads/main\n", "main/part/.ai/manifest.yaml": manifestText,
		"main/.git/worktrees/good/commondir": "../..\n", "main/.git/worktrees/empty/gitdir": "\n", "main/.git/worktrees/none/": "",
	})
	write(t, dir, map[string]string{
		"good/.git":                       "gitdir: " + filepath.Join(dir, "main/.git/worktrees/good") + "\n",
		"main/.git/worktrees/good/gitdir": filepath.Join(dir, "good/.git") + "\n",
	})
	list, err := mustOpen(t, filepath.Join(dir, "main")).Worktrees()
	if !slices.Equal(roots(list, dir), []string{"main", "good"}) {
		t.Errorf("listed %v", roots(list, dir))
	}
	if err == nil || !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "empty") || !strings.Contains(err.Error(), "names none") {
		t.Errorf("damaged ones are told as %v", err)
	}
	// A branch without the folder that is worked in is nothing to complain of.
	part := mustOpen(t, filepath.Join(dir, "main", "part"))
	if err := errors.Join(os.RemoveAll(filepath.Join(dir, "main/.git/worktrees/empty")), os.RemoveAll(filepath.Join(dir, "main/.git/worktrees/none"))); err != nil {
		t.Fatal(err)
	}
	if list, err := part.Worktrees(); err != nil || !slices.Equal(roots(list, dir), []string{"main/part"}) {
		t.Errorf("from a part: %v, %v", roots(list, dir), err)
	}
	// Where they cannot be listed, this one is there.
	main := mustOpen(t, filepath.Join(dir, "main"))
	registered := filepath.Join(dir, "main/.git/worktrees")
	if err := errors.Join(os.RemoveAll(registered), os.WriteFile(registered, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if list, err := main.Worktrees(); err == nil || !slices.Equal(roots(list, dir), []string{"main"}) {
		t.Errorf("not listed: %v, %v", roots(list, dir), err)
	}
}

// Agents are told what kind of text a file is by its name, the same wherever it
// is served.
func TestKinds(t *testing.T) {
	want := map[string]string{
		"a.md": "text/markdown", "A.MARKDOWN": "text/markdown", "rule.mdc": "text/markdown", "a.json": "application/json",
		"a.yaml": "application/yaml", "a.yml": "application/yaml", "a.toml": "application/toml", "a.xml": "application/xml",
		"a.html": "text/html", "a.htm": "text/html", "a.css": "text/css", "a.csv": "text/csv",
		"a.js": "text/javascript", "a.mjs": "text/javascript", "a.cjs": "text/javascript", "a.svg": "image/svg+xml",
		"a.go": "text/plain", "a": "text/plain", ".md": "text/markdown", "a.md.txt": "text/plain",
	}
	files := map[string]string{}
	for name := range want {
		files[".ai/repo/"+name] = ""
	}
	for _, f := range layerOf(t, mustOpen(t, tree(t, files))).Files {
		if f.MIME != want[f.Path] {
			t.Errorf("%s is %q, not %q", f.Path, f.MIME, want[f.Path])
		}
		delete(want, f.Path)
	}
	if len(want) != 0 {
		t.Errorf("not listed: %v", want)
	}
}

// A folder of any size is looked at only so far, and what is left out is said.
func TestLayerOfTooMuch(t *testing.T) {
	w, err := mustOpen(t, tree(t, map[string]string{".ai/repo/a.md": "", ".ai/repo/b/": "", ".ai/repo/c.md": ""})).walker()
	if err != nil {
		t.Fatal(err)
	}
	defer w.root.Close()
	w.known, w.found = map[string]text{}, map[string]text{}
	w.seen = maxLayerEntries - 2
	if err := w.walk(".", 0); !errors.Is(err, errBound) || !slices.Equal(paths(w.layer), []string{"a.md"}) ||
		len(w.layer.Skipped) != 1 || !strings.Contains(w.layer.Skipped[0], "c.md: and what follows: more than 20000 entries") {
		t.Errorf("%v, %v, %v", paths(w.layer), w.layer.Skipped, err)
	}
}

// A link that leads out of the checkout, or nowhere, is no place for what is
// written or served: with a manifest the key of that place is named.
func TestPlacesThatAreLinks(t *testing.T) {
	for name, to := range map[string]string{"out": t.TempDir(), "nowhere": filepath.Join(t.TempDir(), "none")} {
		for manifest, key := range map[string]string{"": "", manifestText: "local.path"} {
			files := map[string]string{".ai/": ""}
			if manifest != "" {
				files[".ai/manifest.yaml"] = manifest
			}
			root := tree(t, files)
			symlink(t, to, filepath.Join(root, ".ai", "local"))
			c, err := Open(root)
			var told *PolicyError
			if err == nil || errors.As(err, &told) != (key != "") || told != nil && told.Key != key {
				t.Errorf("%s: %+v, %v", name, c, err)
			}
		}
	}
}

// Where nothing is shared there is nothing to read, which is no error.
func TestLayerOfNothing(t *testing.T) {
	c := mustOpen(t, tree(t, nil))
	if l, err := c.Layer(); err != nil || len(l.Files) != 0 {
		t.Errorf("%v, %v", l, err)
	}
	if b, err := c.ReadLayer("a.md"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%q, %v", b, err)
	}
}
