//go:build unix

package service

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// fake answers for a manager's program.
type fake struct {
	calls []string
	fail  map[string]error  // by the first words of a call
	out   map[string]string // likewise
}

func (f *fake) run(ctx context.Context, _ []string, name string, args ...string) (string, error) {
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	args = slices.DeleteFunc(slices.Clone(args), func(a string) bool { return strings.HasPrefix(a, "--") && !strings.HasPrefix(a, "--property") })
	call := strings.Join(args, " ")
	f.calls = append(f.calls, call)
	for start, err := range f.fail {
		if strings.HasPrefix(call, start) {
			return "", err
		}
	}
	for start, out := range f.out {
		if strings.HasPrefix(call, start) {
			return out, nil
		}
	}
	return "", nil
}

// tree is every path below dir.
func tree(t *testing.T, dir string) []string {
	t.Helper()
	var paths []string
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if path != dir {
			paths = append(paths, strings.TrimPrefix(path, dir+string(filepath.Separator)))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// newFakeSystemd is one whose manager has taken what is installed.
func newFakeSystemd(t *testing.T) (*Manager, *systemd, *fake) {
	t.Helper()
	d := &systemd{home: t.TempDir(), program: []string{os.Args[0]}, log: slog.New(slog.DiscardHandler)}
	run, err := os.MkdirTemp("", "run") // short: it holds a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(run) })
	d.runtime = run
	if err := os.Mkdir(filepath.Join(run, "systemd"), 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(run, "systemd", "private"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	f := &fake{fail: map[string]error{}, out: map[string]string{
		"show --property=LoadState,FragmentPath": "LoadState=loaded\nFragmentPath=" + d.file(plain.name()) + "\n",
	}}
	d.run = f.run
	return &Manager{driver: d, log: d.log}, d, f
}

// Whatever step of an install fails, nothing is left of it: no file, no folder,
// nothing that the manager knows.
func TestInstallThatFails(t *testing.T) {
	broken := &commandError{command: "systemctl", code: 1, err: errors.New("exit status 1"), says: "no"}
	for _, step := range []string{"show --property=Version", "daemon-reload", "show --property=LoadState", "enable"} {
		t.Run(step, func(t *testing.T) {
			m, d, f := newFakeSystemd(t)
			f.fail[step] = broken
			if _, err := m.Install(t.Context(), plain); !errors.Is(err, broken) || !strings.Contains(err.Error(), "exit status 1: no") {
				t.Errorf("%v", err)
			}
			if left := tree(t, d.home); len(left) > 0 {
				t.Errorf("%q is left", left)
			}
			if step == "enable" && f.calls[len(f.calls)-1] != "reset-failed majordomus-0123456789ab.service" {
				t.Errorf("%q", f.calls)
			}
		})
	}
	t.Run("not taken", func(t *testing.T) {
		m, d, f := newFakeSystemd(t)
		f.out["show --property=LoadState,FragmentPath"] = "LoadState=not-found\nFragmentPath=\n"
		if _, err := m.Install(t.Context(), plain); err == nil || !strings.Contains(err.Error(), "has not taken") {
			t.Errorf("%v", err)
		}
		if left := tree(t, d.home); len(left) > 0 {
			t.Errorf("%q is left", left)
		}
	})
	t.Run("no time left", func(t *testing.T) {
		m, d, f := newFakeSystemd(t)
		ctx, cancel := context.WithCancel(t.Context())
		d.run = func(c context.Context, env []string, name string, args ...string) (string, error) {
			if slices.Contains(args, "enable") {
				cancel()
				return "", c.Err()
			}
			return f.run(c, env, name, args...)
		}
		if _, err := m.Install(ctx, plain); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		if left := tree(t, d.home); len(left) > 0 {
			t.Errorf("%q is left", left)
		}
		if !slices.Contains(f.calls, "reset-failed majordomus-0123456789ab.service") {
			t.Errorf("the manager was not told: %q", f.calls)
		}
	})
	t.Run("over one that is there", func(t *testing.T) {
		m, d, f := newFakeSystemd(t)
		if _, err := m.Install(t.Context(), plain); err != nil {
			t.Fatal(err)
		}
		before, err := os.ReadFile(d.file(plain.name()))
		if err != nil {
			t.Fatal(err)
		}
		f.fail["enable"] = broken
		other := plain
		other.Executable = "/opt/majordomus"
		if _, err := m.Install(t.Context(), other); !errors.Is(err, broken) {
			t.Errorf("%v", err)
		}
		if now, err := os.ReadFile(d.file(plain.name())); err != nil || string(now) != string(before) {
			t.Errorf("what was there is now %q, %v", now, err)
		}
	})
	t.Run("over a mask", func(t *testing.T) {
		m, d, _ := newFakeSystemd(t)
		if err := errors.Join(os.MkdirAll(d.units(), 0o755), os.Symlink("/dev/null", d.file(plain.name()))); err != nil {
			t.Fatal(err)
		}
		if _, err := m.Install(t.Context(), plain); err == nil || !strings.Contains(err.Error(), `is a link to "/dev/null"`) {
			t.Errorf("%v", err)
		}
		if to, err := os.Readlink(d.file(plain.name())); to != "/dev/null" {
			t.Errorf("%q, %v", to, err)
		}
	})
}

func TestInstallTwice(t *testing.T) {
	m, d, f := newFakeSystemd(t)
	for i, want := range []bool{true, true, false} { // enabling is systemd's to make a link for
		changed, err := m.Install(t.Context(), plain)
		if err != nil || changed != want {
			t.Fatalf("%d: %v, %v", i, changed, err)
		}
		if i == 1 {
			if err := errors.Join(os.Mkdir(filepath.Dir(d.wanted("")), 0o755), os.Symlink(d.file(plain.name()), d.wanted(plain.name()))); err != nil {
				t.Fatal(err)
			}
			f.calls = nil
		}
	}
	if !slices.Equal(f.calls, []string{"show --property=Version"}) {
		t.Errorf("the last time did %q", f.calls)
	}
	if info, err := os.Stat(d.file(plain.name())); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("others can read the proxy's password: %v, %v", info.Mode(), err)
	}
	if names, err := m.Names(); err != nil || !slices.Equal(names, []string{plain.name()}) {
		t.Errorf("%q, %v", names, err)
	}
	if was, err := m.Uninstall(t.Context(), plain.name()); err != nil || !was {
		t.Errorf("%v, %v", was, err)
	}
	if left := tree(t, d.home); len(left) > 0 {
		t.Errorf("%q is left", left)
	}
	if was, err := m.Uninstall(t.Context(), plain.name()); err != nil || was {
		t.Errorf("again: %v, %v", was, err)
	}
}

// A folder that holds something else stays, and so does whatever is not ours.
func TestUninstallLeavesOthers(t *testing.T) {
	m, d, _ := newFakeSystemd(t)
	if _, err := m.Install(t.Context(), plain); err != nil {
		t.Fatal(err)
	}
	others := filepath.Join(d.units(), "majordomus-of-somebody.service")
	if err := os.WriteFile(others, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Uninstall(t.Context(), plain.name()); err != nil {
		t.Fatal(err)
	}
	if !exists(others) {
		t.Error("another's unit is gone")
	}
	for _, name := range []string{"", "majordomus-of-somebody", "../x", "ssh"} {
		if _, err := m.Uninstall(t.Context(), name); err == nil {
			t.Errorf("%q was uninstalled", name)
		}
	}
}

func TestWithoutAManager(t *testing.T) {
	home := t.TempDir()
	f := &fake{}
	d := &systemd{home: home, runtime: filepath.Join(home, "nowhere"), log: slog.New(slog.DiscardHandler), run: f.run}
	m := &Manager{driver: d, log: d.log}
	_, err := m.Install(t.Context(), plain)
	if !errors.Is(err, ErrNoManager) || !errors.Is(m.Available(t.Context()), ErrNoManager) {
		t.Errorf("%v", err)
	}
	if left := tree(t, home); len(left) > 0 || len(f.calls) > 0 {
		t.Errorf("%q is left after %q", left, f.calls)
	}
	if err := m.Start(t.Context(), plain.name(), nil); !errors.Is(err, ErrNotInstalled) {
		t.Errorf("%v", err)
	}
	if _, err := m.Status(t.Context(), plain.name()); !errors.Is(err, ErrNotInstalled) {
		t.Errorf("%v", err)
	}
	// One that was installed while there was one.
	if err := errors.Join(os.MkdirAll(d.units(), 0o755), os.WriteFile(d.file(plain.name()), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := m.Start(t.Context(), plain.name(), nil); !errors.Is(err, ErrNoManager) {
		t.Errorf("%v", err)
	}
	if s, err := m.Status(t.Context(), plain.name()); err != nil || s.State != "unknown" || s.Reason == "" {
		t.Errorf("%+v, %v", s, err)
	}
	if was, err := m.Uninstall(t.Context(), plain.name()); err != nil || !was {
		t.Errorf("%v, %v", was, err)
	}
	if left := tree(t, home); len(left) > 0 {
		t.Errorf("%q is left", left)
	}
}

// A manager that says it has started something which does not serve has not.
func TestStartOfNothing(t *testing.T) {
	m, _, f := newFakeSystemd(t)
	if _, err := m.Install(t.Context(), plain); err != nil {
		t.Fatal(err)
	}
	f.out["show --property=LoadState,UnitFileState"] = "LoadState=loaded\nUnitFileState=enabled\nActiveState=inactive\nSubState=dead\nResult=success\nMainPID=0\nConditionResult=no\nConditionTimestampMonotonic=5\n"
	err := m.Start(t.Context(), plain.name(), func() bool { return false })
	if err == nil || !strings.Contains(err.Error(), "nothing to start: the service is stopped (its checkout or its executable is gone)") {
		t.Errorf("%v", err)
	}
	if err := m.Start(t.Context(), plain.name(), func() bool { return true }); err != nil {
		t.Errorf("%v", err)
	}
}

func TestStates(t *testing.T) {
	m, _, f := newFakeSystemd(t)
	if _, err := m.Install(t.Context(), plain); err != nil {
		t.Fatal(err)
	}
	for show, want := range map[string]Status{
		"LoadState=loaded UnitFileState=enabled ActiveState=active SubState=running MainPID=7":                                               {State: "running", PID: 7},
		"LoadState=loaded UnitFileState=enabled ActiveState=activating SubState=auto-restart Result=signal":                                  {State: "failed", Reason: "it is about to be started again"},
		"LoadState=loaded UnitFileState=enabled ActiveState=failed SubState=failed Result=signal":                                            {State: "failed", Reason: "signal"},
		"LoadState=loaded UnitFileState=enabled ActiveState=failed SubState=failed Result=exit-code ExecMainStatus=3":                        {State: "failed", Reason: "it ended with 3"},
		"LoadState=loaded UnitFileState=enabled ActiveState=inactive ConditionTimestampMonotonic=0 ConditionResult=no":                       {State: "stopped"},
		"LoadState=loaded UnitFileState=disabled ActiveState=inactive ConditionTimestampMonotonic=0 ConditionResult=no":                      {State: "stopped", Reason: "it is disabled, so it is not started at login"},
		"LoadState=not-found UnitFileState= ActiveState=inactive":                                                                            {State: "stopped", Reason: "systemd has not loaded it (not-found)"},
		"LoadState=loaded UnitFileState=enabled ActiveState=inactive SubState=dead ConditionTimestampMonotonic=8 ConditionResult=no":         {State: "stopped", Reason: "its checkout or its executable is gone"},
		"LoadState=loaded UnitFileState=enabled ActiveState=inactive SubState=dead ConditionTimestampMonotonic=8 ConditionResult=yes Other=": {State: "stopped"},
	} {
		f.out = map[string]string{"show": strings.ReplaceAll(show, " ", "\n") + "\n"}
		got, err := m.Status(t.Context(), plain.name())
		if want.Name, want.File = plain.name(), m.File(plain.name()); err != nil || got != want {
			t.Errorf("%s: %+v, %v", show, got, err)
		}
	}
}

// newFakeLaunchd is one whose manager remembers what is loaded.
func newFakeLaunchd(t *testing.T) (*Manager, *launchd, *[]string, map[string]error) {
	t.Helper()
	d := &launchd{home: t.TempDir(), domain: "gui/501", log: slog.New(slog.DiscardHandler)}
	var calls []string
	fail := map[string]error{}
	loaded, running := false, false
	d.run = func(ctx context.Context, _ []string, _ string, args ...string) (string, error) {
		calls = append(calls, strings.Join(args, " "))
		if err := fail[args[0]]; err != nil {
			return "", err
		}
		switch unknown := (&commandError{command: "launchctl", code: 113, err: errors.New("exit status 113"), says: "Could not find service"}); args[0] {
		case "bootstrap":
			if _, err := os.Stat(args[2]); err != nil || loaded {
				return "", &commandError{code: 5, err: errors.New("exit status 5"), says: "Input/output error"}
			}
			loaded = true
		case "bootout":
			if !loaded {
				return "", unknown
			}
			loaded, running = false, false
		case "kickstart":
			if !loaded {
				return "", unknown
			}
			running = true
		case "print":
			if args[1] != d.domain && !loaded {
				return "", unknown
			}
			if running {
				return "gui/501/x = {\n\tstate = running\n\tpid = 42\n}\n", nil
			}
			return "gui/501/x = {\n\tstate = not running\n\tlast exit code = 0\n}\n", nil
		}
		return "", nil
	}
	return &Manager{driver: d, log: d.log}, d, &calls, fail
}

func TestLaunchd(t *testing.T) {
	m, d, calls, fail := newFakeLaunchd(t)
	fail["bootstrap"] = &commandError{command: "launchctl", code: 5, err: errors.New("exit status 5")}
	if _, err := m.Install(t.Context(), plain); !errors.Is(err, fail["bootstrap"]) {
		t.Errorf("%v", err)
	}
	if left := tree(t, d.home); !slices.Equal(left, []string{"Library"}) {
		t.Errorf("%q is left", left)
	}
	delete(fail, "bootstrap")
	if changed, err := m.Install(t.Context(), plain); err != nil || !changed {
		t.Fatalf("%v, %v", changed, err)
	}
	*calls = nil
	if changed, err := m.Install(t.Context(), plain); err != nil || changed || slices.ContainsFunc(*calls, func(c string) bool { return !strings.HasPrefix(c, "print ") }) {
		t.Errorf("a second time: %v, %v, %q", changed, err, *calls)
	}
	other := plain
	other.Executable = "/opt/majordomus"
	if changed, err := m.Install(t.Context(), other); err != nil || !changed {
		t.Errorf("another executable: %v, %v", changed, err)
	}
	if b, err := os.ReadFile(d.file(plain.name())); err != nil || !strings.Contains(string(b), "/opt/majordomus") {
		t.Errorf("%s, %v", b, err)
	}
	if s, err := m.Status(t.Context(), plain.name()); err != nil || s.State != "stopped" || s.Reason != "" {
		t.Errorf("%+v, %v", s, err)
	}
	asked := 0
	if err := m.Start(t.Context(), plain.name(), func() bool { asked++; return asked > 3 }); err != nil {
		t.Error(err)
	}
	if s, err := m.Status(t.Context(), plain.name()); err != nil || s.State != "running" || s.PID != 42 {
		t.Errorf("%+v, %v", s, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := m.Start(ctx, plain.name(), func() bool { return false }); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	if was, err := m.Uninstall(t.Context(), plain.name()); err != nil || !was {
		t.Errorf("%v, %v", was, err)
	}
	if left := tree(t, d.home); !slices.Equal(left, []string{"Library"}) {
		t.Errorf("%q is left", left)
	}

	// Over ssh there is no login at the screen.
	fail["print"] = fmt.Errorf("exit status 125: Domain does not support specified action")
	if _, err := m.Install(t.Context(), plain); !errors.Is(err, ErrNoManager) {
		t.Errorf("%v", err)
	}
	if left := tree(t, d.home); !slices.Equal(left, []string{"Library"}) {
		t.Errorf("%q is left", left)
	}
}
