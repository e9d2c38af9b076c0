//go:build unix

package checkout

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// starve leaves this process without a descriptor to open a file with, until
// the returned function is called. Tests that run at the same time would starve
// too, so the test must not be parallel.
func starve(t *testing.T) (feed func()) {
	t.Helper()
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 0, Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	feed = func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(feed)
	return feed
}

// What could not be looked at is not what is not there: a process without
// descriptors must not take the checkout above for the one that it is in, nor
// another repository for this one's.
func TestUntold(t *testing.T) {
	main := t.TempDir()
	linked := filepath.Join(main, "linked")
	admin := filepath.Join(main, ".git", "worktrees", "linked")
	for _, dir := range []string{filepath.Join(main, ".git"), linked, admin} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for path, text := range map[string]string{
		filepath.Join(linked, ".git"):     "gitdir: " + admin + "\n",
		filepath.Join(admin, "commondir"): "../..\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	// A repository that has all but HEAD in common with another one.
	apart := t.TempDir()
	if err := os.Mkdir(filepath.Join(apart, ".git"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(apart, ".git", "commondir"), []byte(filepath.Join(main, ".git")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	whole, err := Find(linked, "")
	if err != nil || !whole.LinkedWorktree {
		t.Fatal(whole, err)
	}
	feed := starve(t)
	c, err := Find(linked, "")
	_, openErr := Open(apart)
	_, treeErr := findGit(linked)
	_, ok, dirErr := gitDir(linked)
	feed()
	if !errors.Is(err, syscall.EMFILE) {
		t.Errorf("without descriptors it found %+v, %v", c, err)
	}
	if !errors.Is(openErr, syscall.EMFILE) {
		t.Errorf("without descriptors a repository was told: %v", openErr)
	}
	if !errors.Is(treeErr, syscall.EMFILE) {
		t.Errorf("without descriptors it found a repository: %v", treeErr)
	}
	if ok || !errors.Is(dirErr, syscall.EMFILE) {
		t.Errorf("without descriptors: %v, %v", ok, dirErr)
	}
}

// What is certain to be missing, or kept from this account, is passed by.
func TestToldOnTheWay(t *testing.T) {
	for _, err := range []error{syscall.ENOENT, syscall.EACCES, syscall.EPERM, syscall.ENOTDIR, syscall.ELOOP, syscall.ENAMETOOLONG} {
		if untold(&os.PathError{Op: "stat", Path: "x", Err: err}) != nil {
			t.Errorf("%v keeps a checkout from being found", err)
		}
	}
	for _, err := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EIO, syscall.ESTALE} {
		if untold(&os.PathError{Op: "stat", Path: "x", Err: err}) == nil {
			t.Errorf("%v is taken for an answer", err)
		}
	}
}
