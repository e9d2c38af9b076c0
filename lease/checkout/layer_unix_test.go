//go:build unix

package checkout

import (
	"path/filepath"
	"slices"
	"syscall"
	"testing"
)

// A named pipe that nobody writes must not be waited for, wherever it lies.
func TestNamedPipes(t *testing.T) {
	root := tree(t, map[string]string{".ai/repo/a.md": ""})
	for _, name := range []string{".ai/repo/pipe", ".ai/repo/policy.yaml", ".git"} {
		if err := syscall.Mkfifo(filepath.Join(root, name), 0o600); err != nil {
			t.Skip(err)
		}
	}
	c := mustOpen(t, root)
	if c.GitID != "" {
		t.Error("a pipe is a repository")
	}
	if got := paths(layerOf(t, c)); !slices.Equal(got, []string{"a.md"}) {
		t.Errorf("%v", got)
	}
	if _, err := c.ReadLayer("pipe"); err == nil {
		t.Error("read a pipe")
	}
	if _, err := c.Policy(); err == nil {
		t.Error("a pipe is a policy")
	}
	if err := syscall.Mkfifo(filepath.Join(root, ".ai", "manifest.yaml"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(root); err == nil {
		t.Error("a pipe is a manifest")
	}
}
