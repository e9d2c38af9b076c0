package checkout

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func layerOf(t testing.TB, c *Checkout) Layer {
	t.Helper()
	l, err := c.Layer()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func paths(l Layer) []string {
	var out []string
	for _, f := range l.Files {
		out = append(out, f.Path)
	}
	return out
}

func TestLayer(t *testing.T) {
	root := tree(t, map[string]string{
		".ai/repo/b.md":            "b",
		".ai/repo/a.md":            "a",
		".ai/repo/a/x.json":        "{}",
		".ai/repo/a/deep/y.txt":    "é",
		".ai/repo/empty":           "",
		".ai/repo/policy.yaml":     "",
		".ai/repo/mcp.json":        "{}",
		".ai/repo/a/policy.yaml":   "another one",
		".ai/repo/binary":          "\xff\xfe",
		".ai/repo/big":             strings.Repeat("x", maxLayerBytes+1),
		".ai/repo/just":            strings.Repeat("x", maxLayerBytes),
		".ai/repo/vendor/.git/cfg": "secret",
		".ai/repo/sub/.git":        "gitdir: x",
		".ai/local/secret":         "s",
		"outside":                  "o",
	})
	repo := filepath.Join(root, ".ai", "repo")
	links := map[string]string{
		"inside":       "a.md",
		"insider":      filepath.Join("a", "deep", "y.txt"),
		"out":          filepath.Join("..", "..", "outside"),
		"abs":          filepath.Join(root, "outside"),
		"local":        filepath.Join("..", "local", "secret"),
		"dangling":     "nowhere",
		"folder":       "a",
		"disguise.txt": "policy.yaml",
		"git":          filepath.Join("vendor", ".git", "cfg"),
		"loop":         "loop",
	}
	for name, to := range links {
		symlink(t, to, filepath.Join(repo, name))
	}
	c := mustOpen(t, root)
	l := layerOf(t, c)
	want := []string{"a.md", "a/deep/y.txt", "a/policy.yaml", "a/x.json", "b.md", "empty", "inside", "insider", "just"}
	if !slices.Equal(paths(l), want) {
		t.Errorf("%v\nwant %v", paths(l), want)
	}
	var skipped []string
	for _, s := range l.Skipped {
		name, reason, ok := strings.Cut(s, ": ")
		if !ok || reason == "" {
			t.Errorf("no reason: %s", s)
		}
		skipped = append(skipped, name)
	}
	slices.Sort(skipped)
	if want := []string{"abs", "big", "binary", "dangling", "folder", "local", "loop", "out"}; !slices.Equal(skipped, want) {
		t.Errorf("skipped %v\nwant %v", l.Skipped, want)
	}
	for _, f := range l.Files {
		b, err := c.ReadLayer(f.Path)
		if err != nil || int64(len(b)) != f.Size {
			t.Errorf("%s: %d bytes, %v", f.Path, len(b), err)
		}
	}
	for _, f := range l.Files[:1] {
		if f.MIME != "text/markdown" || f.Size != 1 || f.ModTime.IsZero() {
			t.Errorf("%+v", f)
		}
	}
	for _, name := range []string{
		"", ".", "..", "/a.md", "a", "a/../a.md", "./a.md", "../local/secret", "../repo/a.md", "absent", "a/absent", "b.md/x",
		"policy.yaml", "mcp.json", "binary", "big", "out", "abs", "local", "dangling", "folder", "folder/x.json", "disguise.txt", "git",
		"vendor/.git/cfg", "sub/.git", "loop", "a\x00", "\xff", `a\x.json`,
	} {
		if b, err := c.ReadLayer(name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%q: %q, %v", name, b, err)
		}
	}
	if l := layerOf(t, mustOpen(t, tree(t, nil))); len(l.Files)+len(l.Skipped) != 0 {
		t.Errorf("no folder: %+v", l)
	}
}

// A repo folder that holds what is local.
func TestLayerNeverServesWhatIsLocal(t *testing.T) {
	root := tree(t, map[string]string{
		".ai/manifest.yaml":         "repo: {path: ..}\n",
		".ai/local/state/mcp/key":   "secret",
		".ai/local/state/mcp/other": "secret",
		".git/config":               "secret",
		"src/main.go":               "package main",
	})
	symlink(t, filepath.Join(".ai", "local", "state", "mcp", "key"), filepath.Join(root, "innocent"))
	c := mustOpen(t, root)
	if got := paths(layerOf(t, c)); !slices.Equal(got, []string{".ai/manifest.yaml", "src/main.go"}) {
		t.Errorf("%v", got)
	}
	for _, name := range []string{"innocent", ".ai/local/state/mcp/key", ".git/config"} {
		if b, err := c.ReadLayer(name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
}

func TestLayerBounds(t *testing.T) {
	files := map[string]string{".ai/repo/" + strings.Repeat("d/", maxLayerDepth+2) + "deep": ""}
	for i := range maxLayerFiles + 50 {
		files[fmt.Sprintf(".ai/repo/f%05d", i)] = ""
	}
	c := mustOpen(t, tree(t, files))
	l := layerOf(t, c)
	if len(l.Files) != maxLayerFiles || l.Files[maxLayerFiles-1].Path != fmt.Sprintf("f%05d", maxLayerFiles-1) {
		t.Errorf("%d files", len(l.Files))
	}
	if len(l.Skipped) != 2 {
		t.Errorf("%v", l.Skipped)
	}
}

func TestLayerDigest(t *testing.T) {
	c := mustOpen(t, tree(t, map[string]string{".ai/repo/a.md": "one", ".ai/repo/b.md": "two"}))
	at := func(name string) string { return filepath.Join(c.RepoDir, name) }
	last := layerOf(t, c).Digest()
	if again := layerOf(t, c).Digest(); again != last {
		t.Error("changed by itself")
	}
	changed := func(what string, want bool) {
		t.Helper()
		now := layerOf(t, c).Digest()
		if (now != last) != want {
			t.Errorf("%s: changed %v, want %v", what, now != last, want)
		}
		last = now
	}
	write(t, c.RepoDir, map[string]string{"c.md": ""})
	changed("added", true)
	os.Remove(at("c.md"))
	changed("removed", true)
	os.Rename(at("a.md"), at("d.md"))
	changed("renamed", true)
	later := time.Now().Add(time.Hour)
	os.Chtimes(at("b.md"), later, later)
	changed("touched", true)
	write(t, c.RepoDir, map[string]string{"policy.yaml": "server:\n"})
	changed("a policy", false)

	// Text that becomes none is noticed, although it was looked at before.
	write(t, c.RepoDir, map[string]string{"b.md": "\xff\xff\xff\xff"})
	changed("no text any more", true)
	if slices.Contains(paths(layerOf(t, c)), "b.md") {
		t.Error("what is no text any more is served")
	}
}
