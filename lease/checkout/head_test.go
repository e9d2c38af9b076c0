package checkout

import (
	"os"
	"path/filepath"
	"testing"
)

func TestHead(t *testing.T) {
	root := t.TempDir()
	c, err := Open(root)
	if err != nil {
		t.Fatal(err)
	}
	if branch, commit := c.Head(); branch != "" || commit != "" {
		t.Errorf("without git: %q, %q", branch, commit)
	}
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("main/.git/HEAD", "ref: refs/heads/main\n")
	write("main/.git/worktrees/w/HEAD", "ref: refs/heads/feature/x\n")
	write("main/.git/worktrees/w/commondir", "../..\n")
	write("w/.git", "gitdir: ../main/.git/worktrees/w\n")
	write("w/below/x", "")
	for _, test := range []struct{ dir, head, branch, commit string }{
		{"main", "", "main", ""},
		{"w", "", "feature/x", ""},
		{"w/below", "", "feature/x", ""},
		{"main", "0123456789abcdef\n", "", "0123456789abcdef"},
		{"main", "ref: refs/heads/.invalid\n", "", ""},
		{"main", "", "", ""},
	} {
		if test.head != "" {
			write("main/.git/HEAD", test.head)
		} else if test.branch == "" {
			os.Remove(filepath.Join(root, "main/.git/HEAD"))
		}
		c, err := Open(filepath.Join(root, test.dir))
		if err != nil {
			t.Fatal(err)
		}
		if branch, commit := c.Head(); branch != test.branch || commit != test.commit {
			t.Errorf("%s with %q: %q, %q", test.dir, test.head, branch, commit)
		}
	}
}
