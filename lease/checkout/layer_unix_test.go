//go:build unix

package checkout

import (
	"errors"
	"io/fs"
	"os"
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
	odd := os.WriteFile(filepath.Join(root, ".ai/repo/\xff.md"), nil, 0o600) == nil // not every file system has such names
	c := mustOpen(t, root)
	if c.GitID != "" {
		t.Error("a pipe is a repository")
	}
	if l := layerOf(t, c); odd && !slices.Contains(l.Skipped, "?.md: its name is not UTF-8") {
		t.Errorf("a name that is no text: %v", l.Skipped)
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

// A process without descriptors cannot tell what is there. The layer is read as
// a whole or not at all, and nothing that could not be told is remembered.
func TestLayerWithoutDescriptors(t *testing.T) {
	want := []string{"a.md", "b/c.md", "b/d/e.md", "link.md"}
	root := tree(t, map[string]string{".ai/repo/a.md": "a", ".ai/repo/b/c.md": "c", ".ai/repo/b/d/e.md": "e"})
	if err := os.Symlink("a.md", filepath.Join(root, ".ai/repo/link.md")); err != nil {
		t.Fatal(err)
	}
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	next, err := syscall.Open(root, syscall.O_RDONLY, 0) // the lowest that is free
	if err != nil {
		t.Fatal(err)
	}
	syscall.Close(next)
	failed := 0
	for left := range 8 {
		c := mustOpen(t, root)
		few := before
		few.Cur = uint64(next + left)
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &few); err != nil {
			t.Fatal(err)
		}
		layer, err := c.Layer()
		read := map[string]error{}
		for _, name := range want {
			_, read[name] = c.ReadLayer(name)
		}
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
			t.Fatal(err)
		}
		if err != nil {
			failed++
		} else if got := paths(layer); !slices.Equal(got, want) {
			t.Errorf("with %d left: %v", left, got)
		}
		for name, err := range read {
			if errors.Is(err, fs.ErrNotExist) {
				t.Errorf("with %d left: %s: %v", left, name, err)
			}
		}
		if got := paths(layerOf(t, c)); !slices.Equal(got, want) {
			t.Errorf("after there were %d left: %v", left, got)
		}
	}
	if failed == 0 || failed == 8 {
		t.Errorf("%d of 8 could not be read: this tries too little", failed)
	}
}
