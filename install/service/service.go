// Package service has the service manager of an account run the background
// server of a checkout.
//
// Promised: one service for each checkout and account, named for the checkout,
// that is started when somebody logs in or wants it, stays ended when it has
// ended by itself, and is started again soon when it died; an install that fails
// leaves nothing behind, and neither does Uninstall, whether or not the manager
// or the checkout is still there. Not promised: that a service which is installed
// runs, or can be started from here. A sandbox or a container may see its file
// and not its manager, so whoever starts one is ready to do without it.
//
// The files are our own text and the managers are spoken to by their own
// programs, each with an end to its patience. Only on Windows, where there is an
// interface instead, kardianos/service is between. Elsewhere its units restart a
// server that ended because it was idle, wait for a target that an account's
// manager never reaches, leave % and $ in paths to be expanded, and stay behind
// when they cannot be enabled; its commands wait for ever; and merely to be
// imported it looks for service managers whenever a process starts.
package service

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"
)

var (
	// ErrNoManager is wrapped where this account has no service manager that can
	// be reached from here.
	ErrNoManager = errors.New("there is no service manager for this account")

	// ErrNotInstalled is returned for a service that is not.
	ErrNotInstalled = errors.New("no service is installed")
)

// A Spec is the service of one checkout.
type Spec struct {
	ID          string   // of the checkout
	Root        string   // of the checkout
	Executable  string   // that serves it
	Log         string   // a file for what it says, where the manager keeps no log
	Environment []string // what it gets beside what the manager gives; KEY=value
}

// Name is the service's, of a checkout's ID.
func Name(id string) string { return prefix + id[:min(12, len(id))] }

const prefix = "majordomus-"

// ours is what names of services look like.
var ours = regexp.MustCompile(`^majordomus-[0-9a-f]{12}$`)

func (s Spec) name() string { return Name(s.ID) }

// arguments are the words after the executable.
func (s Spec) arguments() []string { return []string{"serve", "--service", "--root", s.Root} }

// check reports what no service manager can be told.
func (s Spec) check() error {
	if !ours.MatchString(s.name()) {
		return fmt.Errorf("a checkout's id is 32 hexadecimal digits, not %q", s.ID)
	}
	for _, path := range []string{s.Root, s.Executable} {
		if !filepath.IsAbs(path) {
			return fmt.Errorf("%q is no whole path", path)
		}
		if !printable(path) {
			return fmt.Errorf("%q cannot be named to a service manager: it has characters that are no text", path)
		}
	}
	return nil
}

// printable reports whether s is text on one line.
func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}

// variables are those of the environment that a manager can be told.
func (s Spec) variables() []string {
	var list []string
	for _, kv := range s.Environment {
		if name, _, ok := strings.Cut(kv, "="); ok && variable.MatchString(name) && printable(kv) {
			list = append(list, kv)
		}
	}
	return list
}

var variable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// A Status is how a service stands.
type Status struct {
	Name string `json:"name"`
	File string `json:"file,omitempty"` // that makes it one
	// State is running, stopped, failed, or unknown when the manager cannot be
	// asked.
	State  string `json:"state"`
	Reason string `json:"reason,omitempty"`
	PID    int    `json:"pid,omitempty"`
}

// Config says whose services a Manager sees to. Home is required.
type Config struct {
	Home string // of the account, as the system has it
	UID  int

	// Password asks for an account's. Only Windows wants to know; nil there
	// means that nothing can be installed.
	Password func(account string) (string, error)

	Log *slog.Logger // nil discards
}

// A Manager sees to the services of an account.
type Manager struct {
	driver driver
	log    *slog.Logger
}

// New returns the manager of what this system is. It asks nobody anything.
func New(cfg Config) *Manager {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Manager{driver: newDriver(cfg), log: cfg.Log}
}

// driver is what differs between systems.
type driver interface {
	// file is where a service is installed, "" where that is no file.
	file(name string) string
	// text is what the file says.
	text(Spec) (string, error)
	// available returns an error that wraps ErrNoManager when the manager cannot
	// be asked from here.
	available(context.Context) error
	// installed reports whether a service is, without asking the manager.
	installed(name string) (bool, error)
	names() ([]string, error)
	install(context.Context, Spec) (changed bool, err error)
	uninstall(ctx context.Context, name string) error
	// start returns once ready reports true, or an error when that will not be.
	start(ctx context.Context, name string, ready func() bool) error
	status(ctx context.Context, name string) Status
}

// patience is how long a manager may take for what is not a start or a stop. It
// answers within milliseconds, or hangs.
const patience = 20 * time.Second

// File is where the service of a checkout is, or would be, installed. It is ""
// where services are no files.
func (m *Manager) File(name string) string { return m.driver.file(name) }

// Text is what Install writes there.
func (m *Manager) Text(s Spec) (string, error) {
	if err := s.check(); err != nil {
		return "", err
	}
	return m.driver.text(s)
}

// Available returns nil when services can be installed, else an error that wraps
// ErrNoManager and says why.
func (m *Manager) Available(ctx context.Context) error { return m.driver.available(ctx) }

// Installed reports whether the service is. It asks the file system only.
func (m *Manager) Installed(name string) (bool, error) { return m.driver.installed(name) }

// Names are those of all our services of this account.
func (m *Manager) Names() ([]string, error) { return m.driver.names() }

// Install installs the service, or brings one that is installed up to date, and
// reports whether there was anything to do. It does not start it.
func (m *Manager) Install(ctx context.Context, s Spec) (changed bool, err error) {
	if err := s.check(); err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return m.driver.install(ctx, s)
}

// Uninstall stops the service and removes it, and reports whether there was one.
// It needs no manager: where none can be asked, the files go.
func (m *Manager) Uninstall(ctx context.Context, name string) (was bool, err error) {
	if !ours.MatchString(name) {
		return false, fmt.Errorf("%q is no service of ours", name)
	}
	if was, err = m.driver.installed(name); err != nil {
		return was, err
	}
	ctx, cancel := context.WithTimeout(ctx, stopLimit+patience)
	defer cancel()
	return was, m.driver.uninstall(ctx, name)
}

// Start starts an installed service and returns once ready reports true. Until
// ctx ends it waits for that, unless the manager says that it cannot be.
func (m *Manager) Start(ctx context.Context, name string, ready func() bool) error {
	switch is, err := m.driver.installed(name); {
	case err != nil:
		return err
	case !is:
		return ErrNotInstalled
	}
	return m.driver.start(ctx, name, ready)
}

// Status says how a service stands, and ErrNotInstalled for none.
func (m *Manager) Status(ctx context.Context, name string) (Status, error) {
	switch is, err := m.driver.installed(name); {
	case err != nil:
		return Status{}, err
	case !is:
		return Status{}, ErrNotInstalled
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	s := m.driver.status(ctx, name)
	s.Name, s.File = name, m.driver.file(name)
	return s, nil
}

// runner runs a program of the system's and returns what it wrote. An error says
// what it complained of.
type runner func(ctx context.Context, env []string, name string, args ...string) (string, error)

// A commandError is a program that ended with another exit code than 0.
type commandError struct {
	command string
	code    int // -1: it did not end by itself
	says    string
	err     error
}

func (e *commandError) Error() string {
	text := e.command + ": " + e.err.Error()
	if e.says != "" {
		text += ": " + e.says
	}
	return text
}

func (e *commandError) Unwrap() error { return e.err }

func command(ctx context.Context, env []string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = env
	cmd.WaitDelay = time.Second
	var out, says strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &says
	err := cmd.Run()
	if err == nil {
		return out.String(), nil
	}
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	failed := &commandError{command: filepath.Base(name), code: -1, err: err, says: strings.Join(strings.Fields(strings.ToValidUTF8(says.String(), "?")), " ")}
	if len(args) > 0 {
		failed.command += " " + strings.Join(args, " ")
	}
	if cmd.ProcessState != nil {
		failed.code = cmd.ProcessState.ExitCode()
	}
	return out.String(), failed
}

// await asks ready until it is true, over says that it will never be, or ctx
// ends.
func await(ctx context.Context, ready func() bool, over func() error) error {
	look := 0
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		if ready() {
			return nil
		}
		if look++; look%8 == 0 {
			if err := over(); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the service: %w", context.Cause(ctx))
		case <-time.After(pause):
		}
	}
}

// lies reports whether a service's file lies there, whatever it is.
func lies(path string) (bool, error) {
	switch _, err := os.Lstat(path); {
	case err == nil:
		return true, nil
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	default:
		return false, fmt.Errorf("looking for the service: %w", err)
	}
}
