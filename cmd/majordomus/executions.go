package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"majordomus/server"
	"majordomus/server/board"
)

// mostExecutions is how many a server tells at most.
const mostExecutions = 1000

func (a *app) executionsCommand() *cobra.Command {
	var follow bool
	lines := 50
	cmd := &cobra.Command{
		Use:   "executions",
		Short: "Show which tools were called, by whom, and how long they took",
		Long: `Show the last calls of tools that this checkout's server ran, the newest last,
and those that run now.

--follow goes on with each call that ends, also when another server takes over.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if lines < 0 {
				return wrongWords(errors.New("--lines takes a number from 0"))
			}
			ctx := cmd.Context()
			p, r, err := a.served(ctx)
			if err != nil {
				return err
			}
			defer p.close()
			if follow {
				return a.followExecutions(ctx, p, r, lines)
			}
			all, err := r.executions(ctx, lines)
			if err != nil {
				return err
			}
			return a.report(all, func(w io.Writer) { writeExecutions(w, all, time.Now()) })
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on with each call that ends")
	cmd.Flags().IntVarP(&lines, "lines", "n", lines, "how many of the last `calls`; 0 all that are kept")
	return cmd
}

// executions asks for the last calls; for all when most is 0.
func (r reached) executions(ctx context.Context, most int) (server.Executions, error) {
	if most == 0 || most > mostExecutions {
		most = mostExecutions
	}
	var all server.Executions
	err := r.get(ctx, fmt.Sprintf("/api/v1/executions?limit=%d", most), &all)
	return all, err
}

// followExecutions writes the last calls, then each that ends, until ctx ends.
func (a *app) followExecutions(ctx context.Context, p place, r reached, lines int) error {
	ctx, cancel := context.WithCancel(ctx)
	f := p.follow(ctx, r, a.err)
	defer func() {
		cancel()
		for range f.heard { // until it has ended
		}
	}()
	t := &callTable{now: time.Now()}
	write := func(text string, v any) error {
		if a.format == "json" {
			b, err := encodeJSON(v, "")
			if err != nil {
				return err
			}
			text = string(b)
		}
		if _, err := io.WriteString(a.out, text); err != nil {
			return fmt.Errorf("writing the output: %w", err)
		}
		return nil
	}
	began := false
	// Calls that ended after the stream began may be among the last ones too.
	known := map[uint64]bool{}
	for h := range f.heard {
		switch h.kind {
		case heardHello:
			if began {
				if h.from.token != r.token {
					known = nil // that server's numbers
				}
				break
			}
			all, err := h.from.executions(ctx, lines)
			if err != nil {
				break // it is ending; the next one says hello too
			}
			began, r = true, h.from
			slices.Reverse(all.Ended)
			t.fit(all.Ended)
			text := t.head()
			for _, e := range all.Ended {
				known[e.Number] = true
				if a.format == "json" {
					if err := write("", e); err != nil {
						return err
					}
					continue
				}
				text += t.row(e)
			}
			if a.format != "json" {
				if err := write(text, nil); err != nil {
					return err
				}
			}
		case heardGap:
			var gap struct {
				Missed uint64 `json:"missed"`
			}
			if json.Unmarshal(h.data, &gap) != nil || gap.Missed == 0 {
				break
			}
			// Not all that happens is a call.
			if err := write(fmt.Sprintf("… at most %s not shown\n", count(int(gap.Missed), "call")), gap); err != nil {
				return err
			}
		case board.CallEnded:
			var e board.Event
			if json.Unmarshal(h.data, &e) != nil || e.Execution == nil || known[e.Execution.Number] {
				break
			}
			if err := write(t.row(*e.Execution), e.Execution); err != nil {
				return err
			}
		}
	}
	return f.err
}

func writeExecutions(w io.Writer, all server.Executions, now time.Time) {
	// The newest last, those that have not ended at the very end.
	list := slices.Concat(all.Running, all.Ended)
	slices.Reverse(list)
	if len(list) == 0 {
		fmt.Fprintln(w, "nothing was called yet")
		return
	}
	t := &callTable{now: now}
	t.fit(list)
	io.WriteString(w, t.head()) // ignore error: report keeps it
	for _, e := range list {
		io.WriteString(w, t.row(e)) // ignore error: report keeps it
	}
}

// callTable lays out calls of which more may come: its columns are as wide as
// those that are known want them, and what is wider later pushes the rest aside.
type callTable struct {
	now         time.Time
	when        int
	who, what   int
	outcomeWide int
}

func (t *callTable) fit(list []board.Execution) {
	t.when, t.who, t.what, t.outcomeWide = len("15:04:05"), 20, 20, len("cancelled")
	for _, e := range list {
		t.when = max(t.when, utf8.RuneCountInString(t.clock(e.Started)))
		t.who = max(t.who, utf8.RuneCountInString(peerOf(e.Peer, e.Client, "", false)))
		t.what = max(t.what, utf8.RuneCountInString(shown(e.Tool)))
	}
}

func (t *callTable) head() string { return t.line("TIME", "PEER", "TOOL", "OUTCOME", "TOOK") }

func (t *callTable) row(e board.Execution) string {
	return t.line(t.clock(e.Started), peerOf(e.Peer, e.Client, "", false), shown(e.Tool), shown(e.Outcome), took(e.Millis))
}

func (t *callTable) line(when, who, what, outcome, took string) string {
	return strings.TrimRight(fmt.Sprintf("%-*s  %-*s  %-*s  %-*s  %s", t.when, when, t.who, who, t.what, what, t.outcomeWide, outcome, took), " ") + "\n"
}

func (t *callTable) clock(at time.Time) string {
	at, now := at.Local(), t.now.Local()
	if at.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return at.Format(time.TimeOnly)
	}
	return at.Format("Jan 2 15:04:05")
}

// took is a duration with as many digits as say something.
func took(millis float64) string {
	switch {
	case millis < 10:
		return fmt.Sprintf("%.2f ms", millis)
	case millis < 1000:
		return fmt.Sprintf("%.0f ms", millis)
	case millis < 60_000:
		return fmt.Sprintf("%.1f s", millis/1000)
	}
	return time.Duration(millis * float64(time.Millisecond)).Round(time.Second).String()
}
