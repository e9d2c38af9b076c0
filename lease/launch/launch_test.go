package launch

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"majordomus/lease"
	"majordomus/lease/checkout"
)

func TestEnviron(t *testing.T) {
	got := Environ([]string{
		"HOME=/h", "PATH=/bin", "LC_ALL=C", "LANG=C", "XDG_STATE_HOME=/s", "https_proxy=http://p", "SSH_AUTH_SOCK=/a",
		"MAJORDOMUS_LOG=debug", "MAJORDOMUS_LEASE_JUDGED_STALE=0", "MAJORDOMUS_ROOT=/r", "MAJORDOMUS_URL=http://u", "CLAUDE_CODE_SESSION_ID=1", "OPENAI_API_KEY=secret",
		"GIT_DIR=/x", "TERM=xterm", "nonsense", "HOMEX=1",
	})
	want := []string{
		"HOME=/h", "PATH=/bin", "LC_ALL=C", "LANG=C", "XDG_STATE_HOME=/s", "https_proxy=http://p", "SSH_AUTH_SOCK=/a",
		"MAJORDOMUS_LOG=debug",
	}
	if !slices.Equal(got, want) {
		t.Errorf("a server gets %q, not %q", got, want)
	}
}

// newLauncher is a launcher of a fresh checkout whose server is the command.
func newLauncher(t *testing.T, command ...string) *Launcher {
	t.Helper()
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, ".ai"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, ".ai", "manifest.yaml"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	c, err := checkout.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	f, err := lease.Open(lease.Config{Checkout: c, Self: lease.StartedAs()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return New(Config{Folder: f, Root: root, Command: command, Environ: os.Environ()})
}

// A server that ends before it serves is known at once, not when the time to
// join is over, and the end of its log says why.
func TestAServerThatDies(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the server of this test is a shell")
	}
	l := newLauncher(t, "/bin/sh", "-c", "echo >&3; echo no room for me >&2; exit 3")
	l.cfg.Join = time.Hour
	_, err := l.Find(context.Background())
	var failed *StartError
	if !errors.Is(err, ErrNoServer) || !errors.As(err, &failed) || failed.Err != nil || failed.Tail != "no room for me" {
		t.Errorf("a dead server is reported as %v", err)
	}
}

// Where the program cannot be run, the shell between says so in the log, and
// this process serves: nobody is without the others because an executable is
// being replaced, or has gone.
func TestAServerThatDoesNotRun(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a shell starts it elsewhere")
	}
	path := filepath.Join(t.TempDir(), "program")
	write := func(text string, mode os.FileMode) *os.File {
		os.Remove(path) // ignore error: the first time there is none
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
		return f
	}
	var busy *os.File
	for name, lay := range map[string]func(){
		"missing":                   func() {},
		"not executable":            func() { write("", 0o600).Close() },
		"without its interpreter":   func() { write("#!/nowhere/sh\n", 0o700).Close() },
		"a folder":                  func() { os.Mkdir(path, 0o700) },
		"just made, nothing in it":  func() { write("", 0o700).Close() },
		"being written":             func() { busy = write("#!/bin/sh\nkill -9 $$\n", 0o700) },
		"gone before it says hello": func() { write("#!/bin/sh\nkill -9 $$\n", 0o700).Close() },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				busy.Close()    // ignore error: mostly there is none
				os.Remove(path) // ignore error: as above
			}()
			lay()
			l := newLauncher(t, path)
			l.cfg.Join = time.Hour
			_, err := l.Find(t.Context())
			var failed *StartError
			if !errors.Is(err, ErrNoServer) || !errors.As(err, &failed) || failed.Err == nil || !strings.Contains(err.Error(), path+" does not run") || !strings.Contains(err.Error(), failed.Tail) {
				t.Errorf("without one to serve in: %v", err)
			}
			served := 0
			l.cfg.InProcess = func(context.Context, lease.History) (lease.Document, error) { served++; return lease.Document{}, nil }
			if _, err := l.Find(t.Context()); err != nil || served != 1 {
				t.Errorf("served %d times in this process, %v", served, err)
			}
		})
	}
}

// Where no process can be started, this one serves; what it elects is found.
func TestServedInThisProcess(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("it is the missing shell that keeps a process from being started")
	}
	l := newLauncher(t, "unused")
	l.cfg.Root = filepath.Join(l.cfg.Root, "gone") // no process starts in a folder that is not there
	url := "http://127.0.0.1:1"
	var asked lease.History
	l.cfg.InProcess = func(_ context.Context, h lease.History) (lease.Document, error) {
		asked = h
		return lease.Document{URL: &url}, nil
	}
	found, err := l.Find(context.Background())
	if err != nil || !found.Started || *found.Document.URL != url || !asked.InProcess {
		t.Errorf("found %+v, %v; asked with %+v", found, err, asked)
	}
}

// The time to join bounds the search, also while a started server neither
// serves nor ends.
func TestAServerThatNeverServes(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the server of this test is a shell")
	}
	if _, err := exec.LookPath("sleep"); err != nil {
		t.Skip(err)
	}
	l := newLauncher(t, "/bin/sh", "-c", "echo $$ > pid; exec sleep 60")
	l.cfg.Join = 300 * time.Millisecond
	_, err := l.Find(context.Background())
	if !errors.Is(err, ErrNoServer) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a server that never serves is reported as %v", err)
	}
	var pid int
	// A shell that writes a file tells nobody; so it is asked for.
	for end := time.Now().Add(5 * time.Second); pid == 0 && time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if b, err := os.ReadFile(filepath.Join(l.cfg.Root, "pid")); err == nil {
			for _, c := range strings.TrimSpace(string(b)) {
				pid = pid*10 + int(c-'0')
			}
		}
	}
	if pid == 0 {
		t.Fatal("the server was not started")
	}
	p, err := os.FindProcess(pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Kill(); err != nil {
		t.Errorf("the server did not outlive the search: %v", err)
	}
}
