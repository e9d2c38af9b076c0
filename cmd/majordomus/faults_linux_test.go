package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// A fault is a system call that fails, or in which the process dies.
type sysFault struct {
	call string
	with string // an error's name; "dies"
	at   int    // which call of that name of a thread it is
}

func (f sysFault) String() string { return fmt.Sprintf("%s %s %d", f.call, f.with, f.at) }

// sysFaults are the errors that each call of a start may meet, and the places at
// which they are tried when there is no time for all.
var sysFaults = []struct {
	call  string
	with  []string
	start []int // in a starter
	serve []int // in a server
}{
	{"openat", []string{"EMFILE", "EACCES", "ENOSPC", "EIO", "dies"}, []int{24, 33}, []int{20, 27}},
	{"newfstatat", []string{"EIO", "EACCES", "dies"}, []int{24, 40}, []int{30, 50}},
	{"fstat", []string{"EIO"}, []int{9}, []int{9}},
	{"read", []string{"EIO", "EINTR", "dies"}, []int{9}, []int{10}},
	{"write", []string{"ENOSPC", "EIO", "dies"}, []int{1}, []int{1, 3}},
	{"fsync", []string{"EIO", "ENOSPC", "dies"}, nil, []int{1, 2}},
	{"renameat", []string{"EIO", "ENOSPC", "EACCES", "dies"}, nil, []int{1, 2}},
	{"unlinkat", []string{"EIO", "EACCES", "dies"}, nil, []int{1, 3}},
	{"linkat", []string{"EPERM", "EIO", "dies"}, nil, []int{1}},
	{"mkdirat", []string{"ENOSPC", "EACCES", "dies"}, []int{1, 3}, nil},
	{"flock", []string{"EINTR", "ENOLCK", "EIO", "dies"}, []int{1}, []int{1, 2, 3}},
	{"getdents64", []string{"EIO", "dies"}, nil, []int{1}},
	{"lseek", []string{"EINVAL", "dies"}, []int{1}, nil},
	{"pipe2", []string{"EMFILE", "dies"}, []int{1}, nil},
	{"close_range", []string{"ENOSYS", "EPERM", "dies"}, []int{1}, nil},
	{"clone", []string{"EAGAIN", "ENOMEM", "dies"}, []int{1, 2}, nil},
	{"setsid", []string{"EPERM", "dies"}, []int{1}, nil},
	{"chdir", []string{"ENOENT", "EACCES", "dies"}, []int{1}, nil},
	{"dup3", []string{"EMFILE", "dies"}, []int{1, 3}, nil},
	{"waitid", []string{"ECHILD", "EINTR", "dies"}, []int{1}, nil},
	{"pidfd_open", []string{"EMFILE", "ENOSYS"}, []int{1}, nil},
	{"socket", []string{"EMFILE", "EACCES", "ENOBUFS", "dies"}, []int{1}, []int{1, 4}},
	{"connect", []string{"ECONNREFUSED", "EADDRNOTAVAIL", "dies"}, []int{1}, nil},
	{"bind", []string{"EADDRINUSE", "EACCES", "dies"}, nil, []int{1, 3}},
	{"listen", []string{"EADDRINUSE", "dies"}, nil, []int{1}},
	{"getsockname", []string{"ENOBUFS"}, nil, []int{1}},
	{"accept4", []string{"EMFILE", "ENOBUFS", "ECONNABORTED", "dies"}, nil, []int{1, 2}},
	{"epoll_ctl", []string{"ENOMEM", "dies"}, []int{4}, []int{4, 8}},
	{"fcntl", []string{"dies"}, []int{9}, []int{20}},
	{"close", []string{"dies"}, []int{14}, []int{20}},
}

// sysScenes are the processes that faults are put into.
var sysScenes = []struct {
	name string
	play func(c *sysCheckout, f sysFault) (fine bool, said string)
}{{"starter", (*sysCheckout).starter}, {"editor", (*sysCheckout).bridge}, {"server", (*sysCheckout).server}}

// TestSystemFaults has real processes run into system calls that fail, or die in
// them: a starter, an editor's bridge and a server. Whatever came of it, the
// next process gets through, an editor is answered unless its process died, and
// nothing is left but what has a name in DESIGN. With MAJORDOMUS_TEST_LONG=1
// every call fails at every place.
func TestSystemFaults(t *testing.T) {
	sysTraces(t)
	long := os.Getenv("MAJORDOMUS_TEST_LONG") == "1"
	var tried, met atomic.Int32
	try := func(t *testing.T, scene func(*sysCheckout, sysFault) (bool, string), f sysFault) bool {
		was := sysTry(t, scene, f)
		tried.Add(1)
		if was {
			met.Add(1)
		}
		return was
	}
	t.Cleanup(func() { // when all have ended
		t.Logf("%d of %d faults were met", met.Load(), tried.Load())
		if tried.Load() > 20 && 2*met.Load() < tried.Load() && !t.Failed() {
			t.Error("most of what was to fail was never called: the places are to be chosen anew")
		}
	})
	for k, scene := range sysScenes {
		for i, s := range sysFaults {
			t.Run(scene.name+"/"+s.call, func(t *testing.T) {
				t.Parallel()
				places, all := s.start, 0
				if scene.name == "server" {
					places = s.serve
				}
				if long {
					places = nil
					all = 150
				}
				for j, with := range s.with {
					for n := 1; n <= all; n++ {
						// Threads share the calls among themselves: one that has
						// fewer than usual is no end.
						met := false
						for again := 0; !met && again < 2; again++ {
							met = try(t, scene.play, sysFault{s.call, with, n})
						}
						if !met {
							break
						}
					}
					if len(places) > 0 && (i+j+k)%len(sysScenes) == 0 { // each error in one of them
						try(t, scene.play, sysFault{s.call, with, places[j%len(places)]})
					}
				}
			})
		}
	}
}

func sysTraces(t *testing.T) {
	t.Helper()
	_, err := exec.LookPath("strace")
	accNeed(t, err == nil, "strace is missing")
	if err := exec.Command("strace", "-o", "/dev/null", "true").Run(); err != nil {
		accNeed(t, false, "processes cannot be traced here")
	}
}

// A sysCheckout is one in which waits are short.
type sysCheckout struct {
	*accCheckout
	trace string
}

// sysTry puts one fault into one process, and reports whether it was met.
func sysTry(t *testing.T, scene func(*sysCheckout, sysFault) (bool, string), f sysFault) (met bool) {
	t.Helper()
	t.Run(fmt.Sprint(f.with, " ", f.at), func(t *testing.T) {
		c := &sysCheckout{accFresh(t), filepath.Join(t.TempDir(), "trace")}
		c.extra = []string{unrecordedVar + "=1"}
		c.policy("  join_timeout_seconds: 4\n  busy_grace_seconds: 1\n  bind_grace_seconds: 3\n")
		begun := time.Now()
		fine, said := scene(c, f)
		took := time.Since(begun)
		met = c.met(f)
		c.through(f)
		if !met {
			t.Log("it had fewer calls than that") // and is the same without a fault
			return
		}
		if !fine {
			t.Errorf("%s: %s", f, said)
		}
		if took > 15*time.Second {
			t.Errorf("%s: it took %v", f, took)
		}
	})
	return met
}

// traced is a command under strace, with the fault in it.
func (c *sysCheckout) traced(f sysFault, options []string, args ...string) *exec.Cmd {
	inject := "inject=" + f.call + ":error=" + f.with
	if f.with == "dies" {
		inject = "inject=" + f.call + ":signal=KILL"
	}
	words := append([]string{"-qq", "-f", "-o", c.trace, "-e", "trace=" + f.call, "-e", fmt.Sprintf("%s:when=%d", inject, f.at)}, options...)
	cmd := exec.Command("strace", append(append(words, c.program), args...)...)
	cmd.Dir, cmd.Env = c.root, c.environ()
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

func (c *sysCheckout) met(f sysFault) bool {
	b, err := os.ReadFile(c.trace)
	if err != nil {
		c.t.Error(err)
	}
	return bytes.Contains(b, []byte("(INJECTED)")) || f.with == "dies" && bytes.Contains(b, []byte("killed by SIGKILL"))
}

// sysDied reports whether it was the runtime, or the loader before it, that could
// not do without the call.
func sysDied(f sysFault, log string) bool {
	return f.with == "dies" || strings.Contains(log, "fatal error: ") || strings.Contains(log, "error while loading shared libraries")
}

// starter is `serve ensure`. What it starts is traced no more.
func (c *sysCheckout) starter(f sysFault) (bool, string) {
	cmd := c.traced(f, []string{"-b", "execve"}, "serve", "ensure")
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	err := cmd.Run()
	// It finds a server, or says why not.
	fine := err == nil && strings.HasPrefix(out.String(), "http://127.0.0.1:") ||
		err != nil && (strings.Contains(log.String(), "majordomus: ") || f.call == "write") || sysDied(f, log.String())
	return fine, fmt.Sprintf("%v: %s%s", err, out.String(), log.String())
}

// bridge is an editor's process. Its client is answered, by whomever.
func (c *sysCheckout) bridge(f sysFault) (bool, string) {
	cmd := c.traced(f, []string{"-b", "execve"}, "mcp")
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	cmd.Stdin = strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":2,"method":"tools/list"}
`)
	err := cmd.Run()
	answered := 0
	for line := range strings.Lines(out.String()) {
		var m struct {
			ID     int
			Result json.RawMessage
		}
		if json.Unmarshal([]byte(line), &m) == nil && m.Result != nil && (m.ID == 1 || m.ID == 2) {
			answered++
		}
	}
	// Its own input and output cannot fail and be served. That it says so may fail
	// as well: each thread has a first write.
	trace, traceErr := os.ReadFile(c.trace)
	if traceErr != nil {
		c.t.Error(traceErr)
	}
	stdio := (f.call == "read" || f.call == "write") && sysStdio(string(trace))
	return err == nil && answered == 2 || stdio || sysDied(f, log.String()), fmt.Sprintf("%v, %d answers: %s", err, answered, log.String())
}

// sysStdio reports whether what strace wrote has a fault in a process's own input
// or output. A call that another thread's came between is written in two lines.
func sysStdio(trace string) bool {
	halves := map[string]bool{} // by thread
	for line := range strings.Lines(trace) {
		thread, call, _ := strings.Cut(line, " ")
		call = strings.TrimSpace(call)
		own, rest := strings.HasPrefix(call, "write(1,") || strings.HasPrefix(call, "read(0,"), strings.HasPrefix(call, "<... ")
		if (own || rest && halves[thread]) && strings.Contains(call, "(INJECTED)") {
			return true
		}
		if own || rest {
			halves[thread] = own && strings.HasSuffix(call, "<unfinished ...>")
		}
	}
	return false
}

// server is `serve`, until it serves or has ended.
func (c *sysCheckout) server(f sysFault) (bool, string) {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	cmd := c.traced(f, nil, "serve", "--idle", "60")
	var log accBuffer
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }() // waited for here, or in the cleanup
	c.t.Cleanup(func() {
		c.end() // which ends what is traced, and with it strace
		select {
		case <-ended:
		default:
			<-ended
		}
	})
	for {
		if _, err := c.lease(); err == nil {
			return true, log.String()
		}
		select {
		case err := <-ended:
			ended <- err
			// What accepting one connection fails with is no reason to end.
			return err != nil && f.call != "accept4" || sysDied(f, log.String()), fmt.Sprintf("it served nobody, and says: %v: %s", err, log.String())
		case <-ctx.Done():
			return false, "it neither serves nor ends: " + log.String()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// through has the next process find a server or bring one about, stops that, and
// looks what is left.
func (c *sysCheckout) through(f sysFault) {
	t := c.t
	t.Helper()
	next := func() {
		t.Helper()
		if out, log, err := c.run("serve", "ensure"); err != nil || !strings.HasPrefix(out, "http://127.0.0.1:") {
			t.Errorf("%s: the next process does not get through: %v: %s%s", f, err, out, log)
		}
	}
	next()
	// A server with a fault may meet it only now, and one that a dead starter
	// has begun may serve only now.
	for range 3 {
		c.run("serve", "stop") // ignore error: asked again
		if accUntil(2*time.Second, func() error {
			if pids := c.pids(); len(pids) > 0 {
				return fmt.Errorf("processes %v", pids)
			}
			return nil
		}) == nil {
			break
		}
	}
	state := filepath.Dir(c.leasePath())
	left := func() (names []string) {
		entries, err := os.ReadDir(state)
		if err != nil {
			t.Error(err)
		}
		for _, e := range entries {
			if !slices.Contains([]string{"server.lock", "launch.lock", "key", "server.log"}, e.Name()) {
				names = append(names, e.Name())
			}
		}
		return names
	}
	if names := left(); len(names) > 0 || len(c.pids()) > 0 {
		for _, name := range names { // a minute's age says that nobody is going to rename it
			if then := time.Now().Add(-2 * time.Minute); strings.HasSuffix(name, ".tmp") {
				os.Chtimes(filepath.Join(state, name), then, then) // ignore error: then it stays
			}
		}
		next()
		if _, log, err := c.run("serve", "stop"); err != nil {
			t.Errorf("%s: what the next one started does not stop: %v: %s", f, err, log)
		}
		if err := accUntil(5*time.Second, func() error {
			if pids := c.pids(); len(pids) > 0 {
				return fmt.Errorf("processes are left: %v", pids)
			}
			return nil
		}); err != nil {
			t.Errorf("%s: %v", f, err)
		}
		if names = left(); len(names) > 0 {
			t.Errorf("%s: left are %v", f, names)
		}
	}
	if b, err := os.ReadFile(filepath.Join(c.root, ".ai/local/.gitignore")); err != nil || string(b) != "*\n" {
		t.Errorf("%s: git does not ignore what is local: %q, %v", f, b, err)
	}
}

// The shell between a starter and its server has no place or no memory for
// another process, or cannot run the program: the editor's process serves the
// checkout itself, and says why.
func TestShellFaults(t *testing.T) {
	sysTraces(t)
	for _, test := range []struct{ call, with, of, says string }{
		{"clone", "EAGAIN", "", "exit status 2: "},
		{"execve", "ENOMEM", "", "fork/exec /bin/sh: cannot allocate memory"},
		{"execve", "ENOMEM", "the program", "does not run: "},
		{"execve", "EACCES", "the program", "does not run: "},
		{"execve", "ETXTBSY", "the program", "does not run: "},
		{"execve", "ENOENT", "the program", "does not run: "},
	} {
		t.Run(test.call+" "+test.with+" "+test.of, func(t *testing.T) {
			t.Parallel()
			c := &sysCheckout{accFresh(t), filepath.Join(t.TempDir(), "trace")}
			c.extra = []string{unrecordedVar + "=1"}
			var of []string
			if test.of != "" {
				of = []string{"-P", c.program}
			}
			f := sysFault{test.call, test.with, 1}
			e := c.editorOf(c.traced(f, of, "mcp"))
			e.mustOpen()
			if s := e.mustServer(); s.Alone != "" || s.URL == "" {
				t.Errorf("served by %+v", s)
			}
			if log := e.log.String(); !c.met(f) || !strings.Contains(log, "serving in this process") || !strings.Contains(log, test.says) {
				t.Errorf("the editor's log does not say why: %s", log)
			}
			// Who comes next joins it there.
			if out, log, err := c.run("serve", "ensure"); err != nil || strings.TrimSpace(out) != *c.mustLease().URL {
				t.Errorf("the next one: %v: %s%s", err, out, log)
			}
			e.close()
			c.through(f)
		})
	}
}

// A detached server tells its starter that it runs, and when it serves; not one
// before the other.
func TestReadyPipe(t *testing.T) {
	t.Parallel()
	c := accFresh(t)
	c.extra = []string{unrecordedVar + "=1"}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd := c.command("serve", "--detached")
	cmd.ExtraFiles = []*os.File{w}
	err = cmd.Start()
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.end()
		cmd.Wait() // ignore error: it is killed
	})
	if b, err := io.ReadAll(r); string(b) != "\n" || err != nil {
		t.Errorf("it says %q, %v", b, err)
	}
	if _, err := c.lease(); err != nil {
		t.Errorf("when the pipe ends it does not serve: %v", err)
	}
	// One that ends before it serves has said that it ran.
	if r, w, err = os.Pipe(); err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	c.policy("  idle_seconds: soon\n")
	cmd2 := c.command("serve", "--detached")
	cmd2.ExtraFiles = []*os.File{w}
	err = cmd2.Run()
	w.Close()
	if b, e := io.ReadAll(r); err == nil || string(b) != "\n" || e != nil {
		t.Errorf("one that ends, %v, says %q, %v", err, b, e)
	}
}
