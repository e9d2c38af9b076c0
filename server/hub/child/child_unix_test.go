//go:build unix

package child

import (
	"bufio"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

func moreReasons(write func(name, text string, mode os.FileMode) string) []reasonCase {
	script := write("script", "#!/no/such/thing -x\n", 0o755)
	text := write("text", "hello\n", 0o755)
	return []reasonCase{
		{"no interpreter", Spec{Argv: []string{script}}, "starting " + script + ": its interpreter /no/such/thing is missing", fs.ErrNotExist},
		{"no program", Spec{Argv: []string{text}}, "starting " + text + ": " + text + " is neither a program for this system nor a script that names its interpreter", syscall.ENOEXEC},
	}
}

// Which command is meant goes by the child's environment and directory.
func TestFindsTheCommandAsTheChildWould(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, d := range []string{"first", "second", "own"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	script := func(name, says string, mode os.FileMode) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\necho "+says+"\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	script("first/tool", "first", 0o644) // not executable
	script("second/tool", "second", 0o755)
	script("own/tool", "own", 0o755)
	first, second := filepath.Join(dir, "first"), filepath.Join(dir, "second")
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	relative, err := filepath.Rel(here, filepath.Join(dir, "own"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ command, path, want string }{
		{"tool", first + ":" + second, "second"},
		{"tool", ".:" + relative + "::" + second, "second"}, // nothing relative
		{"./tool", second, "own"},
		{"../second/tool", "", "second"},
	} {
		h := host(t, Spec{Argv: []string{c.command}, Dir: filepath.Join(dir, "own"), Env: []string{"PATH=/nowhere", "PATH=" + c.path}})
		if got := h.line(); got != c.want {
			t.Errorf("%s with PATH %s is %s, want %s", c.command, c.path, got, c.want)
		}
	}
}

func TestLeadsASession(t *testing.T) {
	t.Parallel()
	if got := host(t, spec("session")).line(); got != "true true <nil> <nil>" {
		t.Errorf("leads its group, its session: %s", got)
	}
	if got := host(t, spec("terminal")).line(); got != "true" {
		t.Error("it has a terminal")
	}
}

func TestIsAskedBeforeItIsKilled(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		mode string
		stop func(*Child)
		want string
	}{
		{"kind", func(c *Child) { c.Stop(context.Background()) }, "exited with code 7"},
		{"kind", stopNow, "killed by SIGKILL"},
		{"deaf", func(c *Child) { c.Stop(context.Background()) }, "killed by SIGKILL"},
		{"asleep", func(c *Child) { c.Stop(context.Background()) }, "killed by SIGTERM"},
		{"crash", func(c *Child) { <-c.Done() }, "killed by SIGKILL"},
	} {
		t.Run(c.mode, func(t *testing.T) {
			t.Parallel()
			h := host(t, spec(c.mode))
			if c.mode != "crash" {
				h.line()
			}
			c.stop(h.Child)
			if got := h.ended(); got != c.want {
				t.Errorf("it %s, want: %s", got, c.want)
			}
		})
	}
}

// A member that minds nothing goes with the group, whether the leader goes by
// itself or is stopped; the one that left it stays, and keeps nobody waiting
// although it holds both pipes.
func TestTheGroupGoes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		mode, ends string
		stop       bool
	}{
		{"family in out", "exited with code 0", true},
		{"family in out leave", "exited with code 0", false},
		{"family cat out", "exited with code 0", true},
		{"kind father", "exited with code 7", true},
	} {
		t.Run(c.mode, func(t *testing.T) {
			t.Parallel()
			s := spec(c.mode)
			var stderr pot
			s.Stderr = &stderr
			h := host(t, s)
			member := h.number()
			stranger := 0
			if strings.Contains(c.mode, "out") {
				stranger = h.number()
				endLater(t, stranger)
			}
			if c.stop {
				h.Stop(t.Context())
			} else if got := h.ended(); got != c.ends {
				t.Errorf("it %s, want: %s", got, c.ends)
			} else {
				// Nobody stops it, and still:
				wait(t, h.stopped, "the end of the group")
			}
			if alive(t, member) {
				t.Error("a member of the group is left")
			}
			if got := h.ended(); got != c.ends {
				t.Errorf("it %s, want: %s", got, c.ends)
			}
			h.rest()
			wait(t, h.errs.read, "the end of stderr")
			if stranger != 0 && !alive(t, stranger) {
				t.Errorf("the one that left the group was ended too; stderr: %s", stderr.String())
			}
		})
	}
}

// The memory is that of all, not of the one who started the others.
func TestMemory(t *testing.T) {
	t.Parallel()
	const eaten = 64 << 20
	h := host(t, spec("family in", fmt.Sprint("CHILD_TEST_EATS=", eaten)))
	h.number()
	if rss, ok := h.Memory(); !ok || rss < eaten {
		t.Errorf("%d bytes, %v", rss, ok)
	}
	stopNow(h.Child)
	if rss, ok := h.Memory(); ok {
		t.Errorf("after its end: %d bytes", rss)
	}
}

// At once means that the group is not asked either.
func TestTheGroupGoesAtOnce(t *testing.T) {
	t.Parallel()
	h := host(t, spec("kind father"))
	member := h.number()
	stopNow(h.Child)
	if alive(t, member) {
		t.Error("a member of the group is left")
	}
	if got := h.ended(); got != "killed by SIGKILL" {
		t.Errorf("it %s", got)
	}
}

// Where nothing reads its stdin, only the kernel can tell a child that this
// process was killed.
func TestDiesWithTheServer(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("no such service of the kernel here")
	}
	held := newFifo(t)
	s := spec("server", "CHILD_TEST_HOSTS=deaf", heldVar+"="+held.path)
	cmd := exec.Command(s.Argv[0])
	cmd.Env, cmd.Stderr = s.Env, os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	held.watch()
	cmd.Process.Kill()
	cmd.Wait() // ignore error: killed
	wait(t, held.dead, "the end of the child")
}

// The thread on which Start was called may end; the child does not.
func TestOutlivesTheThreadThatStartedIt(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("threads are nobody's parents here")
	}
	type result struct {
		c      *Child
		err    error
		thread int
	}
	got := make(chan result)
	onThread := func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with this
		if thread() == os.Getpid() {
			got <- result{} // the first one never ends
			return
		}
		c, err := Start(spec("echo"))
		got <- result{c, err, thread()}
	}
	go onThread()
	r := <-got
	if r.thread == 0 {
		go onThread()
		r = <-got
	}
	if r.err != nil {
		t.Fatal(r.err)
	}
	defer stopNow(r.c)
	threadEnds(t, r.thread)
	if _, err := r.c.Stdin().Write([]byte("still here\n")); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(r.c.Stdout()).ReadString('\n'); line != "still here\n" {
		t.Errorf("got %q, %v; it %v", line, err, r.c.Err())
	}
}

// zombies counts the children of this process that nobody has waited for.
func zombies(t *testing.T) (n int) {
	t.Helper()
	b, err := exec.Command("ps", "-A", "-o", "ppid=", "-o", "stat=").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) == 2 && f[0] == fmt.Sprint(os.Getpid()) && strings.HasPrefix(f[1], "Z") {
			n++
		}
	}
	return n
}

// open counts descriptors.
func open(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/dev/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
