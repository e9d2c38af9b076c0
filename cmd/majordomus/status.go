package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"majordomus/install/service"
	"majordomus/lease"
	"majordomus/lease/checkout"
)

// standing is what can be said of one checkout's server from outside.
type standing struct {
	Root         string `json:"root"`
	RepositoryID string `json:"repository_id"`
	// State is serving, starting, silent, elsewhere, lost, stale, unreadable
	// or none.
	State     string     `json:"state"`
	Reason    string     `json:"reason,omitempty"`
	URL       string     `json:"url,omitempty"`
	PID       int        `json:"pid,omitempty"`
	Version   string     `json:"version,omitempty"`
	StartedAt *time.Time `json:"started_at,omitempty"`
	Peers     *int       `json:"peers,omitempty"`
	Stale     string     `json:"stale,omitempty"`
	// Exposed says what lets other accounts in.
	Exposed string `json:"exposed,omitempty"`

	Service *service.Status `json:"service,omitempty"` // nil when none is installed
}

func (a *app) statusCommand() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show this checkout's server",
		Long: `Show this checkout's server. With --all, those of every worktree of its
repository, and of all other checkouts that are served on this account, from
wherever it is said.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			places, err := a.places(all)
			if err != nil {
				return err
			}
			list := make([]standing, len(places))
			var asked sync.WaitGroup // one that is silent delays no other
			for i, p := range places {
				asked.Go(func() {
					list[i] = look(cmd.Context(), p)
					list[i].Service = a.serviceStatus(cmd.Context(), p.Checkout)
					p.close()
				})
			}
			asked.Wait()
			if !all {
				return a.report(list[0], list[0].print)
			}
			return a.report(list, func(w io.Writer) {
				if len(list) == 0 {
					fmt.Fprintln(w, noneServed)
				}
				for i, s := range list {
					if i > 0 {
						fmt.Fprintln(w)
					}
					s.print(w)
				}
			})
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "every worktree of this repository, and all else that is served on this account")
	return cmd
}

func (a *app) serveStatusCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show this checkout's server; exit 10 when none serves",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			places, err := a.places(false)
			if err != nil {
				return err
			}
			defer places[0].close()
			s := look(cmd.Context(), places[0])
			s.Service = a.serviceStatus(cmd.Context(), places[0].Checkout)
			if err := a.report(s, s.print); err != nil {
				return err
			}
			if s.State != "serving" {
				return &exitError{code: exitNo}
			}
			return nil
		},
	}
}

// places opens this checkout, or every worktree of its repository and whatever
// else is served on this account, without creating anything: a place that was
// never served has no folder.
func (a *app) places(all bool) ([]place, error) {
	var list []*checkout.Checkout
	c, err := a.checkout()
	switch {
	case err == nil && all:
		if list, err = c.Worktrees(); len(list) == 0 {
			return nil, err
		}
		if err != nil {
			a.logger().Warn("some worktrees were left out", "err", err)
		}
	case err == nil:
		list = []*checkout.Checkout{c}
	case !all || !errors.Is(err, checkout.ErrNone):
		return nil, err
	}
	here := len(list)
	if all {
		list = append(list, a.servedElsewhere(list)...)
	}
	var places []place
	for i, c := range list {
		p, err := a.anyway(c, a.logger(), lease.OpenExisting)
		switch {
		case err == nil || errors.Is(err, fs.ErrNotExist):
			places = append(places, p)
		case i >= here:
			a.logger().Warn("a checkout was left out", "root", c.Root, "err", err)
		default:
			for _, q := range places {
				q.close()
			}
			return nil, err
		}
	}
	return places, nil
}

// look says how the server of p stands, and how many are attached to it. It asks
// once and waits for nothing.
func look(ctx context.Context, p place) standing {
	s := glance(ctx, p)
	if s.State == "serving" {
		if key, err := p.folder.ReadKey(); err == nil {
			if n, err := peers(ctx, s.URL, key); err == nil {
				s.Peers = &n
			}
		}
	}
	return s
}

// glance is look but for the peers.
func glance(ctx context.Context, p place) standing {
	s := standing{Root: p.Root, RepositoryID: p.ID, State: "none"}
	if p.folder == nil {
		return s
	}
	s.Exposed = p.folder.Exposed()
	f := p.folder.Read()
	switch f.State {
	case lease.Absent:
		return s
	case lease.Unreadable:
		s.State, s.Reason = "unreadable", f.Err.Error()
		return s
	case lease.Empty, lease.Corrupt:
		s.State, s.Reason = "stale", f.Reason
		return s
	}
	d := f.Document
	s.PID, s.Version, s.StartedAt = d.PID, d.Version, &d.StartedAt
	held, exists := p.folder.AliveHeld(d.Token)
	if d.URL == nil {
		if s.State = "starting"; exists && !held {
			s.State, s.Reason = "stale", "the process that took the lease has ended"
		}
		return s
	}
	s.URL = *d.URL
	reply := p.folder.Probe(ctx, d)
	if reply.Err != nil {
		s.Reason = reply.Err.Error()
	}
	switch reply.Outcome {
	case lease.Ours:
		s.State, s.Reason = "serving", ""
		if reply.Index.Stale != nil {
			s.Stale = *reply.Index.Stale
		} else if why, yes := d.Executable.Replaced(); yes {
			s.Stale = why
		}
	case lease.NotHolder:
		s.State, s.Reason = "lost", "the server at this address says that it no longer holds the lease"
	case lease.Silent:
		s.State = "silent"
	default:
		if s.State = "stale"; held {
			s.State = "elsewhere"
		}
	}
	return s
}

func (s standing) print(w io.Writer) {
	row := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%-10s %s\n", name, fmt.Sprintf(format, args...))
	}
	row("checkout", "%s", s.Root)
	if v := s.Service; v != nil {
		defer func() {
			text := v.State
			if v.PID != 0 {
				text += fmt.Sprintf(" (process %d)", v.PID)
			}
			if v.Reason != "" {
				text += ": " + v.Reason
			}
			row("service", "%s, %s", v.Name, text)
		}()
	}
	switch s.State {
	case "none":
		row("server", "none; the next editor starts one")
		return
	case "serving":
		row("server", "%s", s.URL)
	case "starting":
		row("server", "starting (process %d)", s.PID)
	case "silent":
		row("server", "%s does not answer (process %d); the next editor replaces it", s.URL, s.PID)
	case "elsewhere":
		row("server", "alive, but not to be reached from here at %s", s.URL)
	case "lost", "stale":
		row("server", "gone; the next editor starts one")
	case "unreadable":
		row("server", "unknown: its lease cannot be read")
	}
	if s.Reason != "" {
		row("because", "%s", s.Reason)
	}
	if s.Exposed != "" {
		row("exposed", "%s", s.Exposed)
	}
	if s.State != "serving" {
		return
	}
	row("process", "%d, version %s, since %s", s.PID, s.Version, s.StartedAt.Local().Format(time.DateTime))
	if s.Peers != nil {
		row("editors", "%d", *s.Peers)
	}
	if s.Stale != "" {
		row("stale", "%s; the next editor replaces it", s.Stale)
	}
}
