//go:build unix

package launch

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Where the kernel cannot mark many descriptors at once, each one is, whether
// they can be listed or not.
func TestCloseOnExecEach(t *testing.T) {
	for name, folder := range map[string]string{"listed": "/dev/fd", "not listed": filepath.Join(t.TempDir(), "none")} {
		t.Run(name, func(t *testing.T) {
			var fds [2]int
			if err := syscall.Pipe(fds[:]); err != nil { // which children inherit
				t.Fatal(err)
			}
			defer syscall.Close(fds[0])
			defer syscall.Close(fds[1])
			low, high := min(fds[0], fds[1]), max(fds[0], fds[1])
			closeOnExecEach(folder, uint(high))
			for fd, want := range map[int]int{low: 0, high: unix.FD_CLOEXEC} {
				if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags != want {
					t.Errorf("descriptor %d from %d: %d, %v", fd, high, flags, err)
				}
			}
		})
	}
}

// A server that ends and says nothing leaves a line in the log.
func TestAServerThatSaysNothing(t *testing.T) {
	l := newLauncher(t, "/bin/sh", "-c", "echo >&3; exit 1")
	l.cfg.Join = time.Hour
	_, err := l.Find(t.Context())
	var failed *StartError
	if !errors.As(err, &failed) || failed.Err != nil || !strings.Contains(err.Error(), "the server ended before it served, and logged nothing") {
		t.Errorf("reported as %v", err)
	}
	if b, err := os.ReadFile(l.cfg.Folder.LogPath(LogName)); err != nil || !strings.Contains(string(b), "logged nothing") {
		t.Errorf("the log: %q, %v", b, err)
	}
}

// What kept a server from being started can be asked for.
func TestStartErrorUnwraps(t *testing.T) {
	l := newLauncher(t, "unused")
	l.cfg.Root = filepath.Join(l.cfg.Root, "gone")
	if _, err := l.Find(t.Context()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("reported as %v", err)
	}
}
