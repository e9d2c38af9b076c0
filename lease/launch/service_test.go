package launch

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"majordomus/lease"
)

// Without a service, or with one that cannot be started or is never done with
// it, a process is started, and what is wrong is told once.
func TestServiceFailsOver(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the server of this test is a shell")
	}
	for name, test := range map[string]struct {
		service func(context.Context, func() bool) (bool, error)
		told    string
	}{
		"none installed":   {func(context.Context, func() bool) (bool, error) { return false, nil }, ""},
		"refused":          {func(context.Context, func() bool) (bool, error) { return true, errors.New("no bus") }, "no bus"},
		"account unknown":  {func(context.Context, func() bool) (bool, error) { return false, errors.New("no home") }, "no home"},
		"takes for ever":   {func(ctx context.Context, _ func() bool) (bool, error) { <-ctx.Done(); return true, ctx.Err() }, "deadline"},
		"none to be asked": {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			mark := filepath.Join(t.TempDir(), "ran")
			l := newLauncher(t, "/bin/sh", "-c", `echo x >>"$0"; exit 3`, mark)
			var log bytes.Buffer
			l.cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
			l.cfg.Join = 2 * time.Second
			l.cfg.Service = test.service
			for range 2 {
				var failed *StartError
				if _, err := l.Find(t.Context()); !errors.As(err, &failed) {
					t.Fatalf("no process was started: %v", err)
				}
			}
			if b, err := os.ReadFile(mark); err != nil || string(b) != "x\nx\n" {
				t.Errorf("started %q, %v", b, err)
			}
			const words = "the installed service cannot be started; starting a process instead"
			want := min(1, len(test.told))
			if n := strings.Count(log.String(), words); n != want || !strings.Contains(log.String(), test.told) {
				t.Errorf("told %d times, not %d: %s", n, want, log.String())
			}
		})
	}
}

// A holder that lives is taken over from by a process: it is told by its
// environment that the wait is over, and the service may be that very holder.
func TestServiceIsLeftAloneWhereSomebodyLives(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the server of this test is a shell")
	}
	l := newLauncher(t, "/bin/sh", "-c", "exit 3")
	asked := 0
	l.cfg.Service = func(context.Context, func() bool) (bool, error) { asked++; return true, nil }
	e, err := l.cfg.Folder.Elect(t.Context(), lease.Candidate{Listen: func(string) (string, error) { return "", nil }})
	if err != nil || e.Role != lease.Server {
		t.Fatal(e, err)
	}
	lives := lease.Verdict{Action: lease.TakeOver, File: l.cfg.Folder.Read()}
	if l.service(t.Context(), lives) || asked != 0 {
		t.Errorf("asked %d times while the holder lives", asked)
	}
	if err := e.Tenure.Release(); err != nil {
		t.Fatal(err)
	}
	if !l.service(t.Context(), lives) || asked != 1 || !l.history.StartedOwn {
		t.Errorf("asked %d times when it is dead", asked)
	}
}
