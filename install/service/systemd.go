package service

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// systemd is the manager of an account under systemd. It is reached through its
// own socket in the place that systemd gives it, whatever the environment says:
// editors hand on little of theirs.
type systemd struct {
	home    string
	runtime string   // /run/user/UID
	program []string // where systemctl may be
	log     *slog.Logger
	run     runner
}

func (d *systemd) units() string           { return filepath.Join(d.home, ".config", "systemd", "user") }
func (d *systemd) unit(name string) string { return name + ".service" }
func (d *systemd) file(name string) string { return filepath.Join(d.units(), d.unit(name)) }

// wanted is the link that enabling makes.
func (d *systemd) wanted(name string) string {
	return filepath.Join(d.units(), "default.target.wants", d.unit(name))
}

func (d *systemd) text(s Spec) (string, error) { return Unit(s) }

// systemctl runs it for the account's manager.
func (d *systemd) systemctl(ctx context.Context, args ...string) (string, error) {
	for _, path := range d.program {
		if _, err := os.Stat(path); err == nil {
			env := []string{"HOME=" + d.home, "PATH=/usr/bin:/bin", "LC_ALL=C", "XDG_RUNTIME_DIR=" + d.runtime}
			if bus := filepath.Join(d.runtime, "bus"); exists(bus) {
				env = append(env, "DBUS_SESSION_BUS_ADDRESS=unix:path="+bus)
			}
			out, err := d.run(ctx, env, path, append([]string{"--user", "--no-pager", "--no-ask-password", "--quiet"}, args...)...)
			var failed *commandError
			if errors.As(err, &failed) {
				failed.command = "systemctl --user " + args[0] // as a person would say it
			}
			return out, err
		}
	}
	return "", fmt.Errorf("%w: systemctl is not here", ErrNoManager)
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// here reports whether a manager of this account runs, without asking it
// anything. Its socket outlives it.
func (d *systemd) here() error {
	conn, err := net.DialTimeout("unix", filepath.Join(d.runtime, "systemd", "private"), time.Second)
	if err != nil {
		return fmt.Errorf("%w: systemd runs none for it here: %w", ErrNoManager, err)
	}
	conn.Close() // ignore error: nothing was said
	return nil
}

func (d *systemd) available(ctx context.Context) error {
	if err := d.here(); err != nil {
		return err
	}
	if _, err := d.systemctl(ctx, "show", "--property=Version"); err != nil {
		if errors.Is(err, ErrNoManager) {
			return err
		}
		return fmt.Errorf("%w: systemd's does not answer: %w", ErrNoManager, err)
	}
	return nil
}

func (d *systemd) installed(name string) (bool, error) {
	if exists(d.wanted(name)) {
		return true, nil
	}
	return lies(d.file(name))
}

func (d *systemd) names() ([]string, error) {
	var names []string
	for _, dir := range []string{d.units(), filepath.Dir(d.wanted(""))} {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("looking for services: %w", err)
		}
		for _, e := range entries {
			if name, ok := strings.CutSuffix(e.Name(), ".service"); ok && ours.MatchString(name) && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names, nil
}

func (d *systemd) install(ctx context.Context, s Spec) (changed bool, err error) {
	text, err := Unit(s)
	if err != nil {
		return false, err
	}
	if err := d.available(ctx); err != nil {
		return false, err
	}
	name, path := s.name(), d.file(s.name())
	was, err := os.ReadFile(path)
	switch info, e := os.Lstat(path); {
	case e == nil && info.Mode()&fs.ModeSymlink != 0:
		to, _ := os.Readlink(path) // ignore error: then it says less
		return false, fmt.Errorf("%s is a link to %q that somebody has made; remove it first", path, to)
	case err == nil && string(was) == text && exists(d.wanted(name)):
		return false, nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return false, fmt.Errorf("reading the unit: %w", err)
	}
	existed := err == nil
	defer func() {
		if err == nil {
			return
		}
		// What has failed is undone even if there is no time left for it.
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		if existed {
			err = errors.Join(err, writeWhole(path, was))
			d.systemctl(undo, "daemon-reload") // ignore error: the file is as it was
			return
		}
		if e := d.remove(undo, name, true); e != nil {
			err = errors.Join(err, fmt.Errorf("undoing it: %w", e))
		}
	}()
	if err := os.MkdirAll(d.units(), 0o755); err != nil {
		return false, fmt.Errorf("making the folder of units: %w", err)
	}
	if err := writeWhole(path, []byte(text)); err != nil {
		return false, fmt.Errorf("writing the unit: %w", err)
	}
	if _, err := d.systemctl(ctx, "daemon-reload"); err != nil {
		return false, fmt.Errorf("telling systemd: %w", err)
	}
	// A manager that looks for its units elsewhere would enable nothing of ours.
	show, err := d.show(ctx, name, "LoadState", "FragmentPath")
	if err != nil {
		return false, fmt.Errorf("asking systemd: %w", err)
	}
	if !same(show["FragmentPath"], path) {
		return false, fmt.Errorf("systemd has not taken %s (it is %s there, from %q)", path, show["LoadState"], show["FragmentPath"])
	}
	if _, err := d.systemctl(ctx, "enable", d.unit(name)); err != nil {
		return false, fmt.Errorf("enabling the service: %w", err)
	}
	return true, nil
}

// same reports whether two paths name one file.
func same(a, b string) bool {
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	return errX == nil && errY == nil && os.SameFile(x, y)
}

func (d *systemd) uninstall(ctx context.Context, name string) error {
	manager := d.available(ctx)
	if manager == nil {
		// Also one whose files somebody has removed may run.
		if v, err := d.show(ctx, name, "ActiveState"); err == nil && v["ActiveState"] != "inactive" {
			if _, err := d.systemctl(ctx, "stop", d.unit(name)); err != nil {
				d.log.Warn("stopping the service", "err", err)
			}
		}
	}
	return d.remove(ctx, name, manager == nil)
}

// remove takes the files away, and has the manager forget the unit if it is
// there. Links and folders are removed by hand: where systemctl cannot be run,
// or has never seen the unit, they stay otherwise.
func (d *systemd) remove(ctx context.Context, name string, manager bool) error {
	var errs []error
	for _, path := range []string{d.wanted(name), d.file(name)} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	// ignore errors: a folder that holds something, or is not there, stays
	for _, dir := range []string{filepath.Dir(d.wanted(name)), d.units(), filepath.Dir(d.units()), filepath.Join(d.home, ".config")} {
		os.Remove(dir)
	}
	if manager {
		if _, err := d.systemctl(ctx, "daemon-reload"); err != nil {
			errs = append(errs, fmt.Errorf("telling systemd: %w", err))
		}
		d.systemctl(ctx, "reset-failed", d.unit(name)) // ignore error: it is not loaded unless it has failed
	}
	return errors.Join(errs...)
}

// start has systemd start the unit. Type=notify makes that return when it
// serves, or has ended.
func (d *systemd) start(ctx context.Context, name string, ready func() bool) error {
	if err := d.here(); err != nil {
		return err
	}
	// One that has failed too often is refused until it is forgiven. It is wanted
	// now, and somebody may have mended it.
	d.systemctl(ctx, "reset-failed", d.unit(name)) // ignore error: most have not failed, and the start says the rest
	if _, err := d.systemctl(ctx, "start", d.unit(name)); err != nil {
		return fmt.Errorf("starting the service: %w", err)
	}
	if ready() {
		return nil
	}
	s := d.status(ctx, name)
	return fmt.Errorf("systemd has nothing to start: the service is %s%s", s.State, because(s.Reason))
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return " (" + reason + ")"
}

// show asks for properties of a unit.
func (d *systemd) show(ctx context.Context, name string, properties ...string) (map[string]string, error) {
	out, err := d.systemctl(ctx, "show", "--property="+strings.Join(properties, ","), d.unit(name))
	if err != nil {
		return nil, err
	}
	values := map[string]string{}
	for line := range strings.Lines(out) {
		if key, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "="); ok {
			values[key] = value
		}
	}
	return values, nil
}

func (d *systemd) status(ctx context.Context, name string) Status {
	if err := d.here(); err != nil {
		return Status{State: "unknown", Reason: err.Error()}
	}
	v, err := d.show(ctx, name, "LoadState", "UnitFileState", "ActiveState", "SubState", "Result", "MainPID", "ExecMainStatus", "ConditionResult", "ConditionTimestampMonotonic")
	if err != nil {
		return Status{State: "unknown", Reason: err.Error()}
	}
	s := Status{State: "stopped"}
	s.PID, _ = strconv.Atoi(v["MainPID"]) // ignore error: 0
	switch v["ActiveState"] {
	case "active", "activating", "reloading", "deactivating":
		if s.State = "running"; v["SubState"] == "auto-restart" {
			s.State, s.Reason = "failed", "it is about to be started again"
		}
	case "failed":
		s.State, s.Reason = "failed", v["Result"]
		if v["Result"] == "exit-code" {
			s.Reason = "it ended with " + v["ExecMainStatus"]
		}
	case "inactive":
		switch {
		case v["LoadState"] != "loaded":
			s.Reason = "systemd has not loaded it (" + v["LoadState"] + ")"
		case v["UnitFileState"] != "enabled":
			s.Reason = "it is " + v["UnitFileState"] + ", so it is not started at login"
		case v["ConditionTimestampMonotonic"] != "0" && v["ConditionResult"] == "no":
			s.Reason = "its checkout or its executable is gone"
		}
	default:
		s.State, s.Reason = "unknown", "systemd says "+v["ActiveState"]
	}
	return s
}

// writeWhole writes a file that is there as a whole or not at all. It may name
// proxies with passwords, so it is the account's alone.
func writeWhole(path string, b []byte) error {
	if was, err := os.ReadFile(path); err == nil && bytes.Equal(was, b) {
		return nil
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".majordomus-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // ignore error: it has its name by then
	if _, err = f.Write(b); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
