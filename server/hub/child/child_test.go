package child

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

func TestSpeaksAndEndsWithItsInput(t *testing.T) {
	t.Parallel()
	h := host(t, spec("echo"))
	if h.PID() <= 0 || h.Started().IsZero() {
		t.Errorf("pid %d, started %v", h.PID(), h.Started())
	}
	h.say("one")
	if got := h.line(); got != "one" {
		t.Errorf("got %q", got)
	}
	if err := h.Err(); err != nil {
		t.Errorf("while it runs: %v", err)
	}
	h.Stop(t.Context())
	if got := h.ended(); got != "exited with code 0" {
		t.Errorf("it %s, and had only to be told that there is nothing more", got)
	}
	if got := h.rest(); got != "" {
		t.Errorf("left on stdout: %q", got)
	}
}

func TestPassesABanner(t *testing.T) {
	t.Parallel()
	h := host(t, spec("banner"))
	h.say(`{"jsonrpc":"2.0"}`)
	if a, b := h.line(), h.line(); a != "Welcome! Listening on stdio." || b != `{"jsonrpc":"2.0"}` {
		t.Errorf("got %q, %q", a, b)
	}
}

func TestReadsWhatTheDeadLeft(t *testing.T) {
	t.Parallel()
	s := spec("three")
	var stderr pot
	s.Stderr = &stderr
	h := host(t, s)
	if got := h.ended(); got != "exited with code 3" {
		t.Errorf("it %s", got)
	}
	h.Stop(t.Context())
	if got := stderr.String(); got != "no token given\n" {
		t.Errorf("stderr: %q", got)
	}
	if got := h.rest(); got != "" {
		t.Errorf("stdout: %q", got)
	}
}

func TestSurvivesAClosedStdout(t *testing.T) {
	t.Parallel()
	h := host(t, spec("mute"))
	if got := h.rest(); got != "" {
		t.Errorf("stdout: %q", got)
	}
	select {
	case <-h.Done():
		t.Fatalf("it %v", h.Err())
	default:
	}
	h.Stop(t.Context())
	if got := h.ended(); got != "exited with code 5" {
		t.Errorf("it %s", got)
	}
}

// Everything that is written before the end is there once Stop has returned.
func TestStderrIsComplete(t *testing.T) {
	t.Parallel()
	const size = enough / 2
	s := spec("flood", fmt.Sprint("CHILD_TEST_BYTES=", size))
	var stderr pot
	s.Stderr = &stderr
	h := host(t, s)
	h.Stop(t.Context())
	if got := len(stderr.String()); got != size {
		t.Errorf("%d bytes of %d", got, size)
	}
}

// A writer that takes nothing keeps neither the child nor Stop.
func TestStderrNeverBlocks(t *testing.T) {
	t.Parallel()
	const size = 100 << 20
	s := spec("flood", fmt.Sprint("CHILD_TEST_BYTES=", size))
	stderr := &gate{open: make(chan struct{})}
	s.Stderr = stderr
	h := host(t, s)
	opened := sync.OnceFunc(func() { close(stderr.open) })
	defer func() { <-h.errs.written }()
	defer opened()
	if got := h.line(); got != "flooded" {
		t.Errorf("got %q", got)
	}
	opened()
	h.Stop(t.Context())
	got := stderr.String()
	kept, note, ok := strings.Cut(got, "\n[")
	var left int
	if _, err := fmt.Sscanf(note, "%d bytes of stderr left out", &left); !ok || err != nil {
		t.Fatalf("no note about what is missing, but %.100q", note)
	}
	if len(kept) > 2*enough || len(kept)+left > size {
		t.Errorf("%d bytes kept, %d left out of %d", len(kept), left, size)
	}
}

func TestStopDoesNotWaitForAStuckWriter(t *testing.T) {
	t.Parallel()
	s := spec("three")
	stderr := &gate{open: make(chan struct{})}
	s.Stderr = stderr
	h := host(t, s)
	h.Stop(t.Context())
	close(stderr.open)
	<-h.errs.written
}

// The caller is in a write that the child will never read.
func TestStopFreesTheWriter(t *testing.T) {
	t.Parallel()
	h := host(t, spec("full"))
	h.line()
	written := make(chan error)
	go func() {
		_, err := h.Stdin().Write(make([]byte, 10<<20))
		written <- err
	}()
	stopNow(h.Child)
	if err := <-written; err == nil {
		t.Error("the write succeeded")
	}
}

func TestStopTwiceAndAtOnce(t *testing.T) {
	t.Parallel()
	h := host(t, spec("deaf"))
	h.line()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() { h.Stop(t.Context()) })
	}
	stopNow(h.Child) // hurries the others too
	all.Wait()
	h.Stop(t.Context())
	select {
	case <-h.Done():
	default:
		t.Error("Stop returned before the end")
	}
}

func TestArguments(t *testing.T) {
	t.Parallel()
	want := []string{"", "two words", `a"b`, "50%", `back\`, "ünï", "$HOME", "line\nbreak"}
	s := spec("arguments")
	s.Argv = append(s.Argv, want...)
	h := host(t, s)
	for _, w := range want {
		if got := h.line(); got != fmt.Sprintf("%q", w) {
			t.Errorf("got %s, want %q", got, w)
		}
	}
}

func TestEnvironmentIsExact(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s := spec("environment")
	s.Dir = dir
	s.Env = []string{modeVar + "=echo", "A=1", modeVar + "=environment", "B=2=3"}
	h := host(t, s)
	lines := strings.Split(strings.TrimSpace(strings.ReplaceAll(h.rest(), "\r", "")), "\n")
	if lines[0] != dir+" <nil>" {
		t.Errorf("in %s, not in %s", lines[0], dir)
	}
	got := slices.DeleteFunc(lines[1:], func(kv string) bool { return strings.HasPrefix(strings.ToUpper(kv), "SYSTEMROOT=") })
	slices.Sort(got)
	if want := []string{"A=1", "B=2=3", modeVar + "=environment"}; !slices.Equal(got, want) {
		t.Errorf("environment %q, want %q", got, want)
	}
}

// 200 children leave nothing behind: no goroutine (see TestMain), no
// descriptor, no zombie.
func TestLeavesNothing(t *testing.T) {
	before := open(t)
	for range 200 {
		var stderr pot
		s := spec("three")
		s.Stderr = &stderr
		c, err := Start(s)
		if err != nil {
			t.Fatal(err)
		}
		<-c.Done()
		c.Stop(t.Context())
		if _, err := io.Copy(io.Discard, c.Stdout()); err != nil {
			t.Fatal(err)
		}
		if got := stderr.String(); got != "no token given\n" {
			t.Fatalf("stderr: %q", got)
		}
	}
	text := filepath.Join(t.TempDir(), "text.exe")
	if err := os.WriteFile(text, []byte("no program"), 0o755); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if _, err := Start(Spec{Argv: []string{text}, Stderr: io.Discard}); err == nil {
			t.Fatal("started a text")
		}
	}
	if after := open(t); after > before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
	if n := zombies(t); n > 0 {
		t.Errorf("%d zombies", n)
	}
}

type reasonCase struct {
	name  string
	spec  Spec
	want  string
	cause error
}

func TestStartSaysWhy(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	file := write("plain/tool", "hello\n", 0o644)
	path := "PATH=" + filepath.Join(dir, "nowhere") + string(filepath.ListSeparator) + filepath.Dir(file)
	missing := filepath.Join(dir, "nowhere", "tool")
	self := spec("three").Argv[0]
	cases := []reasonCase{
		{"none", Spec{}, "no command", nil},
		{"not in PATH", Spec{Argv: []string{"frobnicate"}, Env: []string{path}}, "starting frobnicate: not found in PATH (" + path[5:] + ")", fs.ErrNotExist},
		{"no PATH", Spec{Argv: []string{"frobnicate"}}, "starting frobnicate: not found: there is no PATH in its environment", fs.ErrNotExist},
		{"missing", Spec{Argv: []string{missing}}, "starting " + missing + ": " + missing + " does not exist", fs.ErrNotExist},
		{"not executable", Spec{Argv: []string{file}}, "starting " + file + ": " + file + " is not executable", fs.ErrPermission},
		{"not executable in PATH", Spec{Argv: []string{"tool"}, Env: []string{path}}, "starting tool: " + file + " is not executable", fs.ErrPermission},
		{"a folder", Spec{Argv: []string{dir}}, "starting " + dir + ": " + dir + " is a folder", fs.ErrPermission},
		{"no directory", Spec{Argv: []string{self}, Dir: missing}, "starting " + self + ": its working directory " + missing + " does not exist", fs.ErrNotExist},
		{"a file for a directory", Spec{Argv: []string{self}, Dir: file}, "starting " + self + ": its working directory " + file + " is no folder", fs.ErrInvalid},
	}
	for _, c := range append(cases, moreReasons(write)...) {
		t.Run(c.name, func(t *testing.T) {
			child, err := Start(c.spec)
			if err == nil {
				stopNow(child)
				t.Fatal("it started")
			}
			if !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("got  %s\nwant %s", err, c.want)
			}
			if c.cause != nil && !errors.Is(err, c.cause) {
				t.Errorf("%v is not %v", err, c.cause)
			}
		})
	}
}

func TestBatchLine(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want string // after the file; empty: refused
	}{
		{nil, `"`},
		{[]string{"-y", "@scope/server@1.2", `C:\x\y`}, ` -y @scope/server@1.2 C:\x\y"`},
		{[]string{"", "two words"}, ` "" "two words""`},
		{[]string{`C:\dir\`, `a\"b`}, ` "C:\dir\\" "a\\""b""`},
		{[]string{"a&calc", "^|<>()!;,='`~{}[]"}, ` "a&calc" "^|<>()!;,='` + "`" + `~{}[]""`},
		{[]string{`"&calc`}, ` """&calc""`},
		{[]string{"%PATH%"}, ` "%%cd:~,%PATH%%cd:~,%""`},
		{[]string{"a\nb"}, ""},
		{[]string{"a\rb"}, ""},
		{[]string{"a\x00b"}, ""},
	} {
		const before = `"C:\cmd.exe" /e:ON /v:OFF /d /s /c ""C:\npx.cmd"`
		got, err := batchLine(`C:\cmd.exe`, `C:\npx.cmd`, c.args)
		if want := before + c.want; c.want == "" && err == nil || c.want != "" && got != want {
			t.Errorf("%q\ngot  %s, %v\nwant %s", c.args, got, err, want)
		}
	}
	for _, file := range []string{`C:\a"b.cmd`, `C:\%x%.cmd`} {
		if got, err := batchLine(`C:\cmd.exe`, file, nil); err == nil {
			t.Errorf("%s was made into %s", file, got)
		}
	}
}

// What comes through the pipe while the reader is slow is not cut off.
func TestStdoutIsComplete(t *testing.T) {
	t.Parallel()
	h := host(t, spec("echo"))
	sent := bytes.Repeat([]byte("0123456789abcde\n"), 1<<16)
	go func() {
		h.Stdin().Write(sent) // ignore error: what is missing shows
		h.Stdin().Close()
	}()
	if got := h.rest(); got != string(sent) {
		t.Errorf("%d bytes of %d", len(got), len(sent))
	}
	if got := h.ended(); got != "exited with code 0" {
		t.Errorf("it %s", got)
	}
	h.Stop(context.Background())
}
