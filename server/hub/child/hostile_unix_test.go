//go:build unix

package child

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func ignoreAsking() { signal.Ignore(syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT) }

// heldVar names a FIFO. Who reads it sees its end when the last process that
// held it is dead.
const heldVar = "CHILD_TEST_HELD"

func hold() {
	path := os.Getenv(heldVar)
	if path == "" {
		return
	}
	fd, err := syscall.Open(path, syscall.O_WRONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	syscall.Write(fd, []byte("!"))
}

// outside has a relative leave the group.
func outside(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }

// holdToo gives a relative stdout as descriptor 3.
func holdToo(cmd *exec.Cmd) { cmd.ExtraFiles = []*os.File{os.Stdout} }

func bePlatform(mode string, in *bufio.Reader) int {
	switch mode {
	case "kind": // ends when it is asked, not before
		asked := make(chan os.Signal, 1)
		signal.Notify(asked, syscall.SIGTERM)
		fmt.Println("ready")
		go forever()
		<-asked
		return 7
	case "kind father": // as well, and leaves a son who does not mind
		asked := make(chan os.Signal, 1)
		signal.Notify(asked, syscall.SIGTERM)
		if code := family([]string{"in", "leave"}, in); code != 0 {
			return code
		}
		go forever()
		<-asked
		return 7
	case "crash":
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
		forever()
	case "asleep": // stopped, as by a terminal
		fmt.Println("ready")
		syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		forever()
	case "session":
		group, err1 := unix.Getpgid(0)
		session, err2 := unix.Getsid(0)
		fmt.Println(group == os.Getpid(), session == os.Getpid(), err1, err2)
		return 0
	case "terminal": // asks for a password
		_, err := os.Open("/dev/tty")
		fmt.Println(err != nil)
		return 0
	case "bad init":
		return badInit()
	}
	return 2
}

// a fifo says when all who hold it are dead.
type fifo struct {
	t    *testing.T
	path string
	in   *os.File
	dead chan struct{}
}

func newFifo(t *testing.T) *fifo {
	t.Helper()
	path := filepath.Join(t.TempDir(), "held")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	in, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := &fifo{t: t, path: path, in: in, dead: make(chan struct{})}
	t.Cleanup(func() { in.Close() })
	return f
}

// watch is for when somebody holds it.
func (f *fifo) watch() {
	f.t.Helper()
	if _, err := f.in.Read(make([]byte, 1)); err != nil {
		f.t.Fatal(err)
	}
	go func() { // ends with the holders, or with the test
		defer close(f.dead)
		io.Copy(io.Discard, f.in)
	}()
	f.t.Cleanup(func() { f.in.Close(); <-f.dead })
}

// alive reports whether a process exists and is no zombie.
func alive(t *testing.T, pid int) bool {
	t.Helper()
	if err := syscall.Kill(pid, 0); err != nil {
		return false
	}
	b, err := exec.Command("ps", "-o", "stat=", "-p", fmt.Sprint(pid)).Output()
	return err == nil && !strings.HasPrefix(strings.TrimSpace(string(b)), "Z")
}

// endLater ends a process that nobody else does.
func endLater(t *testing.T, pid int) {
	t.Cleanup(func() { syscall.Kill(pid, syscall.SIGKILL) })
}
