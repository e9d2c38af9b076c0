package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"majordomus/install"
	"majordomus/install/service"
	"majordomus/lease/checkout"
	"majordomus/lease/launch"
)

// services are those of this account.
func services(log *slog.Logger) (*service.Manager, error) {
	home := accountHome
	if home == "" {
		var err error
		if home, err = systemHome(); err != nil {
			return nil, fmt.Errorf("finding the account's folder: %w", err)
		}
	}
	return service.New(service.Config{Home: home, UID: os.Getuid(), Password: password, Log: log}), nil
}

// startService is launch.Config.Service for a checkout.
func (a *app) startService(c *checkout.Checkout, log *slog.Logger) func(context.Context, func() bool) (bool, error) {
	return func(ctx context.Context, published func() bool) (bool, error) {
		m, err := services(log)
		if err != nil {
			return false, err
		}
		err = m.Start(ctx, service.Name(c.ID), published)
		if errors.Is(err, service.ErrNotInstalled) {
			return false, nil
		}
		return true, err
	}
}

// serviceStatus is how the service of a checkout stands; nil for none.
func (a *app) serviceStatus(ctx context.Context, c *checkout.Checkout) *service.Status {
	m, err := services(a.logger())
	if err != nil {
		return nil // ignore error: then none can have been installed
	}
	s, err := m.Status(ctx, service.Name(c.ID))
	switch {
	case errors.Is(err, service.ErrNotInstalled):
		return nil
	case err != nil:
		return &service.Status{Name: service.Name(c.ID), State: "unknown", Reason: err.Error()}
	}
	return &s
}

// serviceSpec is the service of a checkout as it would be installed now.
func (a *app) serviceSpec(c *checkout.Checkout) (service.Spec, error) {
	path := a.executable()
	if strings.Contains(filepath.ToSlash(path), "/go-build") {
		return service.Spec{}, &hintedError{
			fmt.Errorf("%s was built to run once and is deleted when it ends", path),
			"build it to stay (go build -o ~/bin/majordomus ./cmd/majordomus) and install with that",
		}
	}
	return service.Spec{
		ID: c.ID, Root: c.Root, Executable: path,
		Log:         filepath.Join(c.StateDir(), launch.LogName),
		Environment: serviceEnviron(a.environ),
	}, nil
}

// serviceEnviron is what a service gets of the environment in which it is
// installed: of what a detached server gets, that which is the same at the next
// login. The account's manager knows the rest, and better.
func serviceEnviron(environ []string) []string {
	steady := []string{"XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_CONFIG_DIRS", "XDG_DATA_DIRS"}
	fleeting := []string{"HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "SSH_AUTH_SOCK", "MAJORDOMUS_ROOT"}
	var list []string
	for _, kv := range launch.Environ(environ) {
		name, _, _ := strings.Cut(kv, "=")
		if slices.Contains(fleeting, name) || strings.HasPrefix(name, "XDG_") && !slices.Contains(steady, name) {
			continue
		}
		list = append(list, kv)
	}
	return list
}

// noManager says what can be done where no service can be.
func noManager(err error) error {
	if !errors.Is(err, service.ErrNoManager) {
		return err
	}
	hint := "nothing was installed, and nothing has to be: editors start the server by themselves"
	switch runtime.GOOS {
	case "windows":
		hint += "; with a prompt of an administrator's it can be, as your account and with its password"
	case "linux":
		hint += "; under systemd, log in as the account itself (not with su or sudo), or `loginctl enable-linger` it"
	}
	return &exitError{exitMissing, &hintedError{err, hint}}
}

// serviceInstalled is what installing and uninstalling report.
type serviceInstalled struct {
	Name    string `json:"name"`
	Root    string `json:"root,omitempty"`
	File    string `json:"file,omitempty"`
	Changed bool   `json:"changed"`
	Text    string `json:"text,omitempty"` // with --dry-run
}

func (a *app) installServiceCommand() *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "service",
		Short: "Have the account's service manager run this checkout's server",
		Long: `Have the service manager of this account (systemd, launchd) run this checkout's
server: started at login and whenever an editor wants it, ended when idle, and
started again at once when it died. Editors work without it too; with it the
server is in the manager's list and journal, and outlives what started it.

Installing twice is installing once: it brings the service up to date with the
executable, PATH and proxies that are used here. Where there is no service
manager nothing is installed, and the exit code is 12.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.checkout()
			if err != nil {
				return err
			}
			return a.installService(cmd.Context(), c, dryRun)
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "show what would be written, and do nothing")
	return cmd
}

func (a *app) installService(ctx context.Context, c *checkout.Checkout, dryRun bool) error {
	m, err := services(a.logger())
	if err != nil {
		return err
	}
	spec, err := a.serviceSpec(c)
	if err != nil {
		return err
	}
	r := serviceInstalled{Name: service.Name(c.ID), Root: c.Root, File: m.File(service.Name(c.ID))}
	what := cmp.Or(r.File, r.Name)
	if dryRun {
		if r.Text, err = m.Text(spec); err != nil {
			return noManager(err)
		}
		return a.report(r, func(w io.Writer) { fmt.Fprintf(w, "%s would be\n\n%s", what, r.Text) })
	}
	if err := m.Available(ctx); err != nil {
		return noManager(err)
	}
	l, err := installed()
	if err != nil {
		return err
	}
	before, err := m.Installed(r.Name)
	if err != nil {
		return err
	}
	// Recorded first: what is recorded and not there can be undone, what is
	// there and not recorded is found by nobody.
	entry := install.Entry{Kind: install.Service, Name: r.Name, File: r.File, Root: c.Root}
	if err := l.Add(entry); err != nil {
		return err
	}
	if r.Changed, err = m.Install(ctx, spec); err != nil {
		if !before {
			err = errors.Join(err, forget(l, entry))
		}
		return noManager(err)
	}
	gone := a.goneServices(l, c.Root)
	when := "when an editor wants it, and at login"
	if runtime.GOOS == "windows" {
		when = "when an editor wants it"
	}
	return a.report(r, func(w io.Writer) {
		if r.Changed {
			fmt.Fprintf(w, "installed %s\nit is started %s\n", what, when)
		} else {
			fmt.Fprintf(w, "%s is installed already\n", what)
		}
		for _, e := range gone {
			fmt.Fprintf(w, "the service of %s is left, a folder that is gone: `majordomus uninstall service --root %s` removes it\n", e.Root, word(e.Root))
		}
	})
}

// forget takes an entry out of the record, and the record's folder away with the
// last one.
func forget(l *install.Ledger, e install.Entry) error {
	err := l.Remove(e)
	os.Remove(l.Dir()) // ignore error: a folder that holds something stays
	return err
}

// serviceEntries are the services that are recorded.
func (a *app) serviceEntries(l *install.Ledger) []install.Entry {
	list, err := l.List()
	if err != nil {
		a.logger().Warn("some of what is installed is not known", "err", err)
	}
	return slices.DeleteFunc(list, func(e install.Entry) bool { return e.Kind != install.Service })
}

// goneServices are those of folders that are no more, other than root.
func (a *app) goneServices(l *install.Ledger, root string) []install.Entry {
	return slices.DeleteFunc(a.serviceEntries(l), func(e install.Entry) bool {
		_, err := os.Stat(e.Root)
		return e.Root == root || !errors.Is(err, fs.ErrNotExist)
	})
}

func (a *app) uninstallServiceCommand() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "service",
		Short: "Stop and remove this checkout's service",
		Long: `Stop this checkout's service and remove it. It need not be there any more: name
the folder that was with --root. --all removes the services of every checkout of
this account.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.uninstallService(cmd.Context(), all) },
	}
	cmd.Flags().BoolVar(&all, "all", false, "those of every checkout of this account")
	return cmd
}

func (a *app) uninstallService(ctx context.Context, all bool) error {
	m, err := services(a.logger())
	if err != nil {
		return err
	}
	l, err := installed()
	if err != nil {
		return err
	}
	entries, err := a.servicesToRemove(m, l, all)
	if err != nil {
		return err
	}
	results := []serviceInstalled{}
	var errs []error
	for _, e := range entries {
		r := serviceInstalled{Name: e.Name, Root: e.Root, File: m.File(e.Name)}
		if r.Changed, err = m.Uninstall(ctx, e.Name); err != nil {
			errs = append(errs, noManager(fmt.Errorf("removing the service of %s: %w", e.Root, err)))
			continue
		}
		if err := forget(l, e); err != nil {
			errs = append(errs, err)
		}
		results = append(results, r)
	}
	err = a.report(results, func(w io.Writer) {
		removed := false
		for _, r := range results {
			if r.Changed {
				removed = true
				fmt.Fprintf(w, "removed %s\n", cmp.Or(r.File, r.Name))
			}
		}
		if !removed && len(errs) == 0 {
			fmt.Fprintln(w, "no service was installed")
		}
	})
	return errors.Join(append(errs, err)...)
}

// servicesToRemove are those that the words mean. What is not recorded is still
// known by its name, and what is gone by what is recorded.
func (a *app) servicesToRemove(m *service.Manager, l *install.Ledger, all bool) ([]install.Entry, error) {
	entries := a.serviceEntries(l)
	if all {
		names, err := m.Names()
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if !slices.ContainsFunc(entries, func(e install.Entry) bool { return e.Name == name }) {
				entries = append(entries, install.Entry{Kind: install.Service, Name: name, File: m.File(name)})
			}
		}
		return entries, nil
	}
	c, err := a.checkout()
	if err == nil {
		name := service.Name(c.ID)
		for _, e := range entries {
			if e.Name == name {
				return []install.Entry{e}, nil
			}
		}
		return []install.Entry{{Kind: install.Service, Name: name, File: m.File(name), Root: c.Root}}, nil
	}
	if named := a.namedRoot(); named != "" {
		if root, e := filepath.Abs(named); e == nil {
			root = resolved(root)
			if i := slices.IndexFunc(entries, func(e install.Entry) bool { return e.Root == root }); i >= 0 {
				return entries[i : i+1], nil
			}
			if errors.Is(err, fs.ErrNotExist) {
				return nil, nil // a folder that is gone, of which nothing is left
			}
		}
	}
	return nil, err
}
