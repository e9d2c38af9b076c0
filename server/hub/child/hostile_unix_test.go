//go:build unix

package child

import (
	"bufio"
	"context"
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

// family starts relatives and prints their pids when they are ready:
//
//	in   in the group, ends with nothing but a kill
//	out  has left the group, ends with nothing but a kill
//	cat  in the group, ends when its stdin does, which is the child's
//
// Then it ends at once ("leave"), or when its stdin ends.
func family(relatives []string, in *bufio.Reader) int {
	self, err := os.Executable()
	if err != nil {
		return 1
	}
	for _, r := range relatives {
		if r == "leave" {
			return 0
		}
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), modeVar+"=deaf")
		if r == "cat" {
			cmd.Env, cmd.Stdin = append(os.Environ(), modeVar+"=echo"), os.Stdin
		}
		// It holds both pipes, stdout as its descriptor 3: its own stdout says
		// when it is ready.
		cmd.Stderr, cmd.ExtraFiles = os.Stderr, []*os.File{os.Stdout}
		ready, err := cmd.StdoutPipe()
		if err != nil {
			return 1
		}
		if r == "cat" {
			cmd.Stdout = os.Stdout
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: r == "out"}
		if err := cmd.Start(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		if r != "cat" {
			if _, err := bufio.NewReader(ready).ReadString('\n'); err != nil {
				return 1
			}
		}
		fmt.Println(r, cmd.Process.Pid)
	}
	io.Copy(io.Discard, in)
	return 0
}

func bePlatform(mode string, in *bufio.Reader) int {
	switch mode {
	case "kind": // ends when it is asked, not before
		asked := make(chan os.Signal, 1)
		signal.Notify(asked, syscall.SIGTERM)
		fmt.Println("ready")
		<-asked
		return 7
	case "kind father": // as well, and leaves a son who does not mind
		asked := make(chan os.Signal, 1)
		signal.Notify(asked, syscall.SIGTERM)
		if code := family([]string{"in", "leave"}, in); code != 0 {
			return code
		}
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
	case "server": // this package's user; its child does not mind its end
		c, err := Start(Spec{
			Name: "hosted", Argv: os.Args[:1], Env: append(os.Environ(), modeVar+"="+os.Getenv("CHILD_TEST_HOSTS")),
			Stderr: os.Stderr, Records: os.Getenv("CHILD_TEST_RECORDS"),
		})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		out := bufio.NewReader(c.Stdout())
		for {
			line, err := out.ReadString('\n')
			if err != nil {
				break
			}
			fmt.Print(line)
		}
		c.Stop(context.Background())
		return 0
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
