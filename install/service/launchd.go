package service

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// launchd is the manager of an account on macOS. Its agents live in the domain
// of the login at the screen; over ssh there may be none.
type launchd struct {
	home   string
	domain string // gui/UID
	log    *slog.Logger
	run    runner
}

func (d *launchd) agents() string              { return filepath.Join(d.home, "Library", "LaunchAgents") }
func (d *launchd) file(name string) string     { return filepath.Join(d.agents(), name+".plist") }
func (d *launchd) target(name string) string   { return d.domain + "/" + name }
func (d *launchd) text(s Spec) (string, error) { return Plist(s) }

func (d *launchd) launchctl(ctx context.Context, args ...string) (string, error) {
	return d.run(ctx, []string{"HOME=" + d.home, "PATH=/usr/bin:/bin", "LC_ALL=C"}, "/bin/launchctl", args...)
}

func (d *launchd) available(ctx context.Context) error {
	if _, err := d.launchctl(ctx, "print", d.domain); err != nil {
		return fmt.Errorf("%w: launchd has no login of it at the screen: %w", ErrNoManager, err)
	}
	return nil
}

func (d *launchd) installed(name string) (bool, error) {
	return lies(d.file(name))
}

func (d *launchd) names() ([]string, error) {
	entries, err := os.ReadDir(d.agents())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("looking for services: %w", err)
	}
	var names []string
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), ".plist"); ok && ours.MatchString(name) {
			names = append(names, name)
		}
	}
	return names, nil
}

// loaded reports whether launchd knows the agent.
func (d *launchd) loaded(ctx context.Context, name string) (string, bool) {
	out, err := d.launchctl(ctx, "print", d.target(name))
	return out, err == nil
}

func (d *launchd) install(ctx context.Context, s Spec) (changed bool, err error) {
	text, err := Plist(s)
	if err != nil {
		return false, err
	}
	if err := d.available(ctx); err != nil {
		return false, err
	}
	name, path := s.name(), d.file(s.name())
	was, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("reading the agent: %w", err)
	}
	existed := err == nil
	_, loaded := d.loaded(ctx, name)
	if existed && string(was) == text && loaded {
		return false, nil
	}
	defer func() {
		if err == nil {
			return
		}
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		if !existed {
			err = errors.Join(err, d.uninstall(undo, name))
			return
		}
		err = errors.Join(err, writeWhole(path, was))
		d.launchctl(undo, "bootstrap", d.domain, path) // ignore error: it is loaded at the next login
	}()
	if err := os.MkdirAll(d.agents(), 0o755); err != nil {
		return false, fmt.Errorf("making the folder of agents: %w", err)
	}
	if err := writeWhole(path, []byte(text)); err != nil {
		return false, fmt.Errorf("writing the agent: %w", err)
	}
	if loaded { // a changed file is read only then
		if err := d.bootout(ctx, name); err != nil {
			return false, err
		}
	}
	d.launchctl(ctx, "enable", d.target(name)) // ignore error: only one that was disabled needs it
	if _, err := d.launchctl(ctx, "bootstrap", d.domain, path); err != nil {
		return false, fmt.Errorf("loading the agent: %w", err)
	}
	return true, nil
}

// bootout unloads the agent, which stops it, and waits until launchd has
// forgotten it: until then nothing of the same name can be loaded.
func (d *launchd) bootout(ctx context.Context, name string) error {
	_, err := d.launchctl(ctx, "bootout", d.target(name))
	return await(ctx, func() bool { _, still := d.loaded(ctx, name); return !still }, func() error {
		var failed *commandError
		if errors.As(err, &failed) && failed.code != inProgress {
			return fmt.Errorf("unloading the agent: %w", err)
		}
		return nil
	})
}

// inProgress is launchctl's exit code for an unloading that goes on.
const inProgress = 36

func (d *launchd) uninstall(ctx context.Context, name string) error {
	var errs []error
	if _, loaded := d.loaded(ctx, name); loaded {
		errs = append(errs, d.bootout(ctx, name))
	}
	if err := os.Remove(d.file(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, err)
	}
	os.Remove(d.agents()) // ignore error: a folder that holds something stays
	return errors.Join(errs...)
}

func (d *launchd) start(ctx context.Context, name string, ready func() bool) error {
	if _, loaded := d.loaded(ctx, name); !loaded {
		if err := d.available(ctx); err != nil {
			return err
		}
		if _, err := d.launchctl(ctx, "bootstrap", d.domain, d.file(name)); err != nil {
			return fmt.Errorf("loading the agent: %w", err)
		}
	}
	if _, err := d.launchctl(ctx, "kickstart", d.target(name)); err != nil {
		return fmt.Errorf("starting the service: %w", err)
	}
	began := time.Now()
	return await(ctx, ready, func() error {
		if s := d.status(ctx, name); s.State != "running" && time.Since(began) > time.Second {
			return fmt.Errorf("starting the service: it is %s%s", s.State, because(s.Reason))
		}
		return nil
	})
}

var (
	printedPID  = regexp.MustCompile(`(?m)^\s*pid = (\d+)$`)
	printedCode = regexp.MustCompile(`(?m)^\s*last exit code = (\d+)`)
)

func (d *launchd) status(ctx context.Context, name string) Status {
	out, loaded := d.loaded(ctx, name)
	if !loaded {
		if err := d.available(ctx); err != nil {
			return Status{State: "unknown", Reason: err.Error()}
		}
		return Status{State: "stopped", Reason: "launchd has not loaded it"}
	}
	if m := printedPID.FindStringSubmatch(out); m != nil {
		pid, _ := strconv.Atoi(m[1]) // ignore error: these are digits
		return Status{State: "running", PID: pid}
	}
	if m := printedCode.FindStringSubmatch(out); m != nil && m[1] != "0" {
		return Status{State: "failed", Reason: "it ended with " + m[1]}
	}
	return Status{State: "stopped"}
}
