package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"majordomus/server"
	"majordomus/server/board"
)

func (a *app) peersCommand() *cobra.Command {
	var watch bool
	checkouts := "repository"
	cmd := &cobra.Command{
		Use:   "peers",
		Short: "Show who works here, on what, and where two meet",
		Long: `Show the editors that are attached to this checkout's server and to those of the
repository's other worktrees, what each announced and was seen to touch, and
where two of them work on the same paths. Those who announced something and
have gone are shown too.

--watch shows it anew after each change until it is interrupted, also when
another server takes over.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if checkouts != "this" && checkouts != "repository" {
				return wrongWords(fmt.Errorf("--checkouts %q: only this and repository are known", checkouts))
			}
			ctx := cmd.Context()
			p, r, err := a.served(ctx)
			if err != nil {
				return err
			}
			defer p.close()
			path := "/api/v1/peers?checkouts=" + checkouts
			if watch {
				period := othersPeriod
				if checkouts == "this" {
					period = peersPeriod
				}
				return a.watchPeers(ctx, p, r, path, period)
			}
			var all server.Peers
			if err := r.get(ctx, path, &all); err != nil {
				return err
			}
			return a.report(all, func(w io.Writer) { writePeers(w, all, time.Now()) })
		},
	}
	cmd.Flags().StringVar(&checkouts, "checkouts", checkouts, "whose peers: `this or repository`")
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "show it anew after each change")
	return cmd
}

// served opens the checkout that the words mean and finds the server that
// serves it now.
func (a *app) served(ctx context.Context) (place, reached, error) {
	p, err := a.existing("")
	if no := (*exitError)(nil); errors.As(err, &no) && no.code == exitNo {
		err = &exitError{exitNo, errUnserved}
	}
	if err != nil {
		return place{}, reached{}, err
	}
	r, err := p.reach(ctx, p.folder.ProbePatiently)
	if err != nil {
		p.close()
		return place{}, reached{}, err
	}
	return p, r, nil
}

// How often the board is asked for: at most, when much happens; and at least,
// since what was touched long ago makes no overlap any more, and where there are
// other checkouts, whose changes this server's events do not tell.
const (
	peersPause   = 200 * time.Millisecond
	peersPeriod  = 10 * time.Second
	othersPeriod = 2 * time.Second
)

// watchPeers shows the board after each change until ctx ends. It asks for it
// after period too.
func (a *app) watchPeers(ctx context.Context, p place, r reached, path string, period time.Duration) error {
	ctx, cancel := context.WithCancel(ctx)
	f := p.follow(ctx, r, a.err)
	defer func() {
		cancel()
		for range f.heard { // until it has ended
		}
	}()
	var shown []byte
	next := time.NewTimer(time.Hour)
	defer next.Stop()
	next.Stop() // nothing is known before the stream says hello
	asked := time.Time{}
	soon := false
	for {
		select {
		case h, ok := <-f.heard:
			if !ok {
				return f.err
			}
			r = h.from
			if !soon && changesPeers(h) {
				next.Reset(max(0, peersPause-time.Since(asked)))
				soon = true
			}
			continue
		case <-next.C:
		}
		soon, asked = false, time.Now()
		var all server.Peers
		if err := r.get(ctx, path, &all); err != nil {
			// It may be ending; the stream tells, and finds the next one.
			next.Reset(period)
			continue
		}
		next.Reset(period)
		picture, err := a.picture(all)
		if err != nil {
			return err
		}
		if bytes.Equal(picture, shown) {
			continue
		}
		if err := a.show(picture, shown == nil); err != nil {
			return err
		}
		shown = picture
	}
}

// changesPeers reports whether the board may be another one after h.
func changesPeers(h heard) bool {
	switch h.kind {
	case heardHello, heardGap, board.PeerCame, board.PeerWent, board.Claimed, board.Withdrawn:
		return true
	case board.CallEnded:
		// Calls of hosted tools touch paths.
		var e board.Event
		return json.Unmarshal(h.data, &e) == nil && e.Execution != nil && e.Execution.Upstream != ""
	}
	return false
}

// picture is one of those that --watch shows.
func (a *app) picture(all server.Peers) ([]byte, error) {
	if a.format == "json" {
		return encodeJSON(all, "")
	}
	var b bytes.Buffer
	writePeers(&b, all, time.Now())
	return b.Bytes(), nil
}

// show shows a picture: on a terminal in the place of the last one, else below
// it.
func (a *app) show(picture []byte, first bool) error {
	before := ""
	switch {
	case a.format == "json":
	case isScreen(a.out):
		before = "\x1b[H\x1b[2J"
	case !first:
		before = "----\n"
	}
	if _, err := a.out.Write(append([]byte(before), picture...)); err != nil {
		return fmt.Errorf("writing the output: %w", err)
	}
	return nil
}

// isScreen reports whether w understands what clears a terminal. Consoles of
// Windows have to be told to first.
func isScreen(w io.Writer) bool {
	r, ok := w.(io.Reader)
	return ok && runtime.GOOS != "windows" && isTerminal(r)
}

func writePeers(w io.Writer, all server.Peers, now time.Time) {
	several := elsewhere(all)
	if len(all.Peers) == 0 {
		fmt.Fprintln(w, "nobody is here")
	} else {
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		row := func(id, client, since, checkout, work string) {
			if several {
				since += "\t" + checkout
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", id, client, since, work)
		}
		row("ID", "CLIENT", "SINCE", "CHECKOUT", "WORKS ON")
		for _, v := range all.Peers {
			client, since := clientOf(v), clock(v.Since, now)
			if !v.Attached {
				since = "gone"
				if v.DepartedAt != nil {
					since += " " + clock(*v.DepartedAt, now)
				}
			}
			work := workOf(v)
			row(shown(v.ID), client, since, shown(v.Checkout), work[0])
			for _, more := range work[1:] {
				row("", "", "", "", more)
			}
		}
		t.Flush() // ignore error: report keeps it
	}
	if len(all.Overlaps) > 0 {
		fmt.Fprintln(w)
	}
	for _, o := range all.Overlaps {
		fmt.Fprintln(w, overlapOf(o, all.Peers, several))
	}
	if all.LeftOut > 0 {
		fmt.Fprintf(w, "%s not shown\n", count(all.LeftOut, "more overlap"))
	}
	unread := []string{}
	for _, b := range all.Boards {
		if b.State == "unread" {
			unread = append(unread, fmt.Sprintf("not read: %s: %s", shown(b.Checkout), shown(b.Reason)))
		}
	}
	for _, why := range all.Reasons {
		unread = append(unread, "not read: "+shown(why))
	}
	if !all.Complete && len(unread) == 0 {
		unread = append(unread, "not all of the repository's checkouts were read")
	}
	if len(unread) > 0 {
		fmt.Fprintf(w, "\n%s\n", strings.Join(unread, "\n"))
	}
}

// elsewhere reports whether some of them are not in this checkout.
func elsewhere(all server.Peers) bool {
	for _, b := range all.Boards {
		if b.This {
			return slices.ContainsFunc(all.Peers, func(v board.View) bool { return v.CheckoutID != b.CheckoutID })
		}
	}
	return false
}

func clientOf(v board.View) string {
	if v.Front == "hand" {
		return named(v.Client) + " (by hand)"
	}
	return named(v.Client)
}

// named is what a client calls itself, and not all of a long one: it stands in a
// column, and in a sentence with others.
func named(client string) string { return shown(firstRunes(client, 40)) }

func firstRunes(s string, most int) string {
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}

// on is what a claim of somebody else covers, in a sentence: src/auth: "intent".
func on(scope []string, intent string) string {
	s := paths(scope, 3)
	if intent != "" {
		s += ": " + quoted(intent)
	}
	return s
}

// workOf says what a peer works on, in lines.
func workOf(v board.View) []string {
	var lines []string
	for _, c := range v.Claims {
		lines = append(lines, claimOf(c.Name, c.Intent)+paths(c.Scope, 6))
	}
	var wrote, read []string
	for _, t := range v.Touched {
		if t.Wrote {
			wrote = append(wrote, t.Path)
		} else {
			read = append(read, t.Path)
		}
	}
	if len(wrote) > 0 {
		lines = append(lines, "touched "+paths(wrote, 4))
	}
	if len(read) > 0 {
		lines = append(lines, "looked at "+paths(read, 4))
	}
	if lines == nil {
		return []string{"-"}
	}
	return lines
}

// claimOf is what comes before a claim's paths.
func claimOf(name, intent string) string {
	var s string
	if intent != "" {
		s = quoted(intent)
	}
	if name != "" && name != "default" {
		s = strings.TrimSpace(s + " (" + shown(name) + ")")
	}
	if s != "" {
		s += ": "
	}
	return s
}

// overlapOf says who meets whom, and where.
func overlapOf(o board.Overlap, views []board.View, several bool) string {
	who := func(s board.Side) string { return peerOf(s.Peer, s.Client, s.Checkout, several) }
	x, y := o.Between[0], o.Between[1]
	if len(o.Paths) == 0 {
		return fmt.Sprintf("%s and %s work on the same paths", who(x), who(y))
	}
	did := func(s board.Side, path string) string {
		if o.Kind == board.KindClaimed {
			return "announced"
		}
		for _, v := range views {
			if v.ID != s.Peer || v.Checkout != s.Checkout {
				continue
			}
			for _, c := range v.Claims {
				if slices.Contains(c.Scope, path) {
					return "announced"
				}
			}
		}
		return "touched"
	}
	at := o.Paths[0]
	more := ""
	if n := len(o.Paths) - 1; n > 0 {
		more = fmt.Sprintf(" (and %d more)", n)
	}
	dx, dy := did(x, at[0]), did(y, at[1])
	if dx == dy && at[0] == at[1] {
		return fmt.Sprintf("%s and %s both %s %s%s", who(x), who(y), dx, path(at[0]), more)
	}
	return fmt.Sprintf("%s %s %s, %s %s %s%s", who(x), dx, path(at[0]), who(y), dy, path(at[1]), more)
}

// peerOf names a peer: p1a2b (claude-code, in tree).
func peerOf(id, client, checkout string, several bool) string {
	s := named(client)
	if several && checkout != "" {
		s += ", in " + shown(checkout)
	}
	return fmt.Sprintf("%s (%s)", shown(id), s)
}

// clock is a moment as people here have it.
func clock(t, now time.Time) string {
	t, now = t.Local(), now.Local()
	if t.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return t.Format("15:04")
	}
	return t.Format("Jan 2 15:04")
}

// shown is what somebody else wrote, so that nothing of it can act on a terminal.
func shown(s string) string {
	if s == "" {
		return "-"
	}
	if !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
}

// path is shown so that it is seen where it begins and ends.
func path(s string) string {
	if s == "" || strings.ContainsAny(s, ` ,;"\`) {
		return strconv.Quote(s)
	}
	return shown(s)
}

// paths are the first of a list, and how many more there are.
func paths(list []string, most int) string {
	names := make([]string, 0, most)
	for _, s := range list[:min(most, len(list))] {
		names = append(names, path(s))
	}
	s := strings.Join(names, ", ")
	if n := len(list) - most; n > 0 {
		s += fmt.Sprintf(" and %d more", n)
	}
	return s
}

// quoted is an intent in one line, and not all of a long one.
func quoted(s string) string {
	const most = 100
	return strconv.Quote(firstRunes(strings.Join(strings.Fields(s), " "), most))
}

// unserved is err, but in other words where there is no server.
func unserved(err error, words string) error {
	if errors.Is(err, errUnserved) {
		return &exitError{exitNo, errors.New(words)}
	}
	return err
}
