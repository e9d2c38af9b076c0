package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"majordomus/cmd/majordomus/bench"
	"majordomus/lease/launch"
)

func (a *app) benchCommand() *cobra.Command {
	o := benchOptions{tool: "", arguments: "{}"}
	cmd := &cobra.Command{
		Use:   "bench [--quick] [-- COMMAND ARG...]",
		Short: "Measure what majordomus costs here, and another command beside it",
		Long: `Measure on this machine what majordomus costs, with real processes in temporary
checkouts, and print each figure with what was asked of it and whether that is
met here. It takes a minute, --quick a quarter of one, touches nothing outside
its temporary folders and leaves nothing behind.

A figure is mostly a ratio, because the speed of a machine changes: what is
compared is taken in pairs, one right after the other, and the figure is the
median of the pairs' ratios. The floors that it is compared with are a program
in Go that does nothing (which wants go on the PATH to be built, else these
ratios are left out) and a mover of bytes over the same hops, which is a part of
this program.

With the command of another MCP server over standard input and output, as an
editor's file has it, that is measured too, alone and hosted by majordomus,
beside "majordomus mcp" itself. It is started as you are here. Of its tools one
is called that says it only reads and wants no arguments, or the one named with
--tool; without either, no call is measured. The first runs of a command that
has to be downloaded are not its own speed: run it once before.

The exit code says that it could be measured, not that figures are met.`,
		RunE: func(cmd *cobra.Command, words []string) error {
			if at := cmd.ArgsLenAtDash(); len(words) > 0 && at != 0 {
				return wrongWords(errors.New("the other command comes after --"))
			}
			if o.tool != "" && len(words) == 0 {
				return wrongWords(errors.New("--tool names a tool of the other command, and there is none"))
			}
			if cmd.Flags().Changed("arguments") && o.tool == "" {
				return wrongWords(errors.New("--arguments are those of --tool"))
			}
			for _, group := range o.only {
				if !slices.Contains(benchGroups(), group) {
					return wrongWords(fmt.Errorf("--only %q: the groups are %s", group, strings.Join(benchGroups(), ", ")))
				}
			}
			if !json.Valid([]byte(o.arguments)) || !strings.HasPrefix(strings.TrimSpace(o.arguments), "{") {
				return wrongWords(errors.New("--arguments is a JSON object"))
			}
			o.words = words
			return a.bench(cmd.Context(), o)
		},
	}
	cmd.Flags().BoolVar(&o.quick, "quick", false, "take a quarter of the time, and fewer pairs")
	cmd.Flags().StringVar(&o.tool, "tool", "", "the `name` of the other command's tool to call")
	cmd.Flags().StringVar(&o.arguments, "arguments", o.arguments, "its arguments, as a `JSON` object")
	cmd.Flags().StringSliceVar(&o.only, "only", nil, "measure these `groups` only: "+strings.Join(benchGroups(), ", "))
	cmd.Flags().DurationVar(&o.within, "within", 0, "how long it may take altogether")
	cmd.Flags().MarkHidden("within") // ignore error: the flag exists
	return cmd
}

type benchOptions struct {
	quick     bool
	within    time.Duration
	only      []string // of the groups
	words     []string
	tool      string
	arguments string
}

// benchReport is what the benchmark says as JSON.
type benchReport struct {
	Version string      `json:"version"`
	OS      string      `json:"os"`
	Arch    string      `json:"arch"`
	CPUs    int         `json:"cpus"`
	Load    *float64    `json:"load,omitempty"` // of the machine in the minute before
	Quick   bool        `json:"quick"`
	Seconds float64     `json:"seconds"`
	Met     int         `json:"met"` // of the figures with a limit that were taken
	Missed  int         `json:"missed"`
	Figures []*figure   `json:"figures"`
	Other   *otherTable `json:"other,omitempty"`
}

// figure is one row: what majordomus takes, what is beside it, and their ratio.
type figure struct {
	ID      string   `json:"id"`
	Group   string   `json:"group"`
	What    string   `json:"what"`
	Over    string   `json:"over,omitempty"` // what is beside it
	Unit    string   `json:"unit"`
	Value   *float64 `json:"value,omitempty"` // the median
	P95     *float64 `json:"p95,omitempty"`
	Beside  *float64 `json:"beside,omitempty"`
	Ratio   *float64 `json:"ratio,omitempty"`
	Asked   *limit   `json:"asked,omitempty"`
	Met     *bool    `json:"met,omitempty"`
	N       int      `json:"n"`
	LeftOut string   `json:"left_out,omitempty"` // why something is not there
}

// limit is what was asked of a figure.
type limit struct {
	Of    string  `json:"of"` // ratio or value
	Is    string  `json:"is"` // at most, under or at least
	Limit float64 `json:"limit"`
}

func (l *limit) met(x float64) bool {
	switch l.Is {
	case "under":
		return x < l.Limit
	case "at most":
		return x <= l.Limit
	}
	return x >= l.Limit
}

func (l *limit) String() string {
	if l == nil {
		return "-"
	}
	return map[string]string{"under": "<", "at most": "<=", "at least": ">="}[l.Is] + " " + strconv.FormatFloat(l.Limit, 'g', 3, 64)
}

func atMost(ratio float64) *limit  { return &limit{"ratio", "at most", ratio} }
func atLeast(ratio float64) *limit { return &limit{"ratio", "at least", ratio} }
func under(value float64) *limit   { return &limit{"value", "under", value} }

// benchFigures are all, in the order in which they are taken.
func benchFigures() []*figure {
	const empty, mover, http, message, process = "empty Go program", "byte mover", "straight HTTP", "the message", "ms"
	return []*figure{
		{ID: "cold_start", Group: "start", What: "cold start to the first answer", Over: empty, Unit: process, Asked: atMost(25)},
		{ID: "warm_start", Group: "start", What: "warm start to the first answer", Over: empty, Unit: process, Asked: atMost(8)},
		{ID: "initialize", Group: "start", What: "initialize, bridge running", Over: http, Unit: "µs"},
		{ID: "call_mover", Group: "call", What: "small call", Over: mover, Unit: "µs", Asked: atMost(1.5)},
		{ID: "call_straight", Group: "call", What: "small call", Over: http, Unit: "µs", Asked: atMost(1.2)},
		{ID: "in_flight", Group: "call", What: "calls with 16 in flight", Over: http, Unit: "/s", Asked: atLeast(0.9)},
		{ID: "large_answer", Group: "large", What: "answer of 16 MiB", Over: mover, Unit: "ms", Asked: atMost(1.5)},
		{ID: "large_bridge", Group: "large", What: "most memory of its bridge", Over: message, Unit: "MiB", Asked: atMost(3)},
		{ID: "large_server", Group: "large", What: "most memory of its server", Over: message, Unit: "MiB", Asked: atMost(3)},
		{ID: "memory_bridge", Group: "memory", What: "bridge at rest", Unit: "MiB", Asked: under(10)},
		{ID: "memory_server", Group: "memory", What: "server of 8", Unit: "MiB"},
		{ID: "memory_eight", Group: "memory", What: "8 bridges and their server", Unit: "MiB", Asked: under(36)},
		{ID: "memory_session", Group: "memory", What: "each idle session or link", Unit: "KiB", Asked: under(75 * 1024 / 2000.)},
		{ID: "memory_left", Group: "memory", What: "left when they have gone", Unit: "%", Asked: under(10)},
		{ID: "recovery", Group: "take-over", What: "kill -9 to the next answer, p95", Over: "cold start", Unit: "ms", Asked: atMost(2)},
		{ID: "shell_warm", Group: "entry", What: "shell entry, server up", Over: empty, Unit: process, Asked: atMost(8)},
		{ID: "shell_env", Group: "entry", What: "majordomus env", Over: empty, Unit: process, Asked: atMost(8)},
		{ID: "shell_cold", Group: "entry", What: "shell entry, no server", Over: "server up", Unit: process, Asked: atMost(2)},
		{ID: "peers", Group: "board", What: "peers, 50 with 200 claims", Over: "which server", Unit: "µs", Asked: atMost(3)},
		{ID: "hosted_mover", Group: "hosted", What: "call of a hosted tool", Over: mover, Unit: "µs", Asked: atMost(1.5)},
		{ID: "hosted_straight", Group: "hosted", What: "call of a hosted tool", Over: "straight to it", Unit: "µs", Asked: atMost(3.5)},
		{ID: "hosted_eight", Group: "hosted", What: "calls of 8 editors at once", Over: "one, straight", Unit: "/s", Asked: atLeast(0.6)},
		{ID: "hosted_memory", Group: "hosted", What: "memory of the 8 and the server", Unit: "MiB", Asked: under(40)},
	}
}

// groupOther is the other command's.
const groupOther = "other"

// benchGroups are those of the figures, and that of the other command.
func benchGroups() []string {
	var groups []string
	for _, f := range benchFigures() {
		groups = append(groups, f.Group)
	}
	return append(slices.Compact(groups), groupOther)
}

// A benchmark is one run.
type benchmark struct {
	*app
	benchOptions
	result  benchReport
	begun   time.Time
	end     time.Time     // when it should be over
	grace   time.Duration // how much longer it may take
	weight  float64       // of the parts that are still to come
	env     []string      // of our own processes
	empty   string        // the empty program
	noEmpty error         // why there is none
	print   func(string, ...any)
	group   string // that was printed last
	notes   []string
	ends    []error // why something is left behind
	eight   float64 // the memory of eight of the other command
}

// A part takes some figures. What it has not set is left out with its error.
type part struct {
	weight float64 // its share of the time
	ids    []string
	take   func(context.Context, *scratch, laps, map[string]*figure) error
}

func (a *app) bench(ctx context.Context, o benchOptions) (err error) {
	grace := time.Minute
	if o.within == 0 {
		grace = 10 * time.Second
		if o.within = 50 * time.Second; o.quick {
			o.within = 13 * time.Second
		}
		if len(o.words) > 0 {
			o.within += 5 * time.Second
		}
	}
	b := &benchmark{
		app: a, benchOptions: o, begun: time.Now(), grace: grace, env: append(launch.Environ(a.environ), "MAJORDOMUS_ROOT=", unrecordedVar+"=1"),
		result: benchReport{Version: programVersion(), OS: runtime.GOOS, Arch: runtime.GOARCH, CPUs: runtime.NumCPU(), Quick: o.quick, Figures: benchFigures()},
	}
	b.end = b.begun.Add(o.within)
	if load, ok := bench.Load(); ok {
		b.result.Load = &load
	}
	var wrote error
	b.print = func(format string, args ...any) {
		if a.format == "text" && wrote == nil {
			_, wrote = io.WriteString(a.out, plainly(fmt.Sprintf(format, args...)))
		}
	}
	dir, err := os.MkdirTemp("", "majordomus-bench-")
	if err != nil {
		return fmt.Errorf("making a temporary folder: %w", err)
	}
	defer func() { err = errors.Join(append(b.ends, err, os.RemoveAll(dir))...) }()
	wanted := func(group string) bool { return len(o.only) == 0 || slices.Contains(o.only, group) }
	b.result.Figures = slices.DeleteFunc(b.result.Figures, func(f *figure) bool { return !wanted(f.Group) })
	byID := map[string]*figure{}
	for _, f := range b.result.Figures {
		byID[f.ID] = f
	}
	parts := slices.DeleteFunc(b.parts(), func(p part) bool { return byID[p.ids[0]] == nil })
	for _, p := range parts {
		b.weight += p.weight
	}
	other := len(o.words) > 0 && wanted(groupOther)
	if other {
		b.weight += otherWeight
		// First: nobody wants to wait for a minute to hear of a typing error.
		if err := b.introduce(ctx); err != nil {
			return err
		}
	}
	if wanted("start") || wanted("entry") {
		build, cancel := context.WithTimeout(ctx, o.within/2)
		b.empty, b.noEmpty = emptyProgram(build, dir, a.environ)
		cancel()
	}
	b.heading()
	for _, p := range parts {
		err := b.share(ctx, p.weight, func(ctx context.Context, l laps) error {
			return b.scratch(func(s *scratch) error { return p.take(ctx, s, l, byID) })
		})
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		for _, id := range p.ids {
			b.settle(byID[id], err)
		}
	}
	if other {
		if err := b.other(ctx); err != nil {
			return err
		}
	}
	b.result.Seconds = time.Since(b.begun).Seconds()
	b.closing()
	if wrote != nil {
		return fmt.Errorf("writing the output: %w", wrote)
	}
	if a.format == "json" {
		return a.report(b.result, nil)
	}
	return nil
}

// share gives a part its share of the time that is left.
func (b *benchmark) share(ctx context.Context, weight float64, take func(context.Context, laps) error) error {
	left := time.Until(b.end)
	share := max(0, time.Duration(float64(left)*weight/b.weight))
	b.weight -= weight
	// The least that a part does takes longer on a slow machine.
	ctx, cancel := context.WithTimeoutCause(ctx, left+b.grace, errors.New("there was no time left for it"))
	defer cancel()
	l := laps{ctx: ctx, until: time.Now().Add(share), share: share, least: 5}
	if b.quick {
		l.least = 3
	}
	return take(ctx, l)
}

// laps says how often something is done.
type laps struct {
	ctx   context.Context // ended when it takes far too long
	until time.Time
	share time.Duration
	least int
	done  int
}

// part is so many hundredths of the whole.
func (l laps) part(percent int) *laps {
	l.until = time.Now().Add(l.share * time.Duration(percent) / 100)
	return &l
}

// next is true as often as there is time for, at most so often.
func (l *laps) next(most int) bool {
	if l.ctx.Err() != nil || l.done >= most || l.done >= l.least && time.Now().After(l.until) {
		return false
	}
	l.done++
	return true
}

// settle judges a figure and prints its row.
func (b *benchmark) settle(f *figure, err error) {
	if f.Value == nil && f.LeftOut == "" {
		f.LeftOut = "it was not taken"
		if err != nil {
			f.LeftOut = err.Error()
		}
	}
	x := f.Value
	if f.Asked != nil && f.Asked.Of == "ratio" {
		x = f.Ratio
	}
	if f.Asked != nil && x != nil {
		met := f.Asked.met(*x)
		f.Met = &met
		if met {
			b.result.Met++
		} else {
			b.result.Missed++
		}
	}
	b.row(f)
}

const benchRow = "%-34s %-16s %10s %10s %10s %6s %7s %-4s %5s\n"

func (b *benchmark) heading() {
	b.print("majordomus %s on %s/%s, %d processors; medians, ratios of pairs\n", b.result.Version, b.result.OS, b.result.Arch, b.result.CPUs)
	if len(b.result.Figures) == 0 {
		return
	}
	b.print("\n"+benchRow, "figure", "over", "here", "p95", "beside", "ratio", "asked", "met", "n")
}

func (b *benchmark) row(f *figure) {
	if f.Group != b.group {
		b.group = f.Group
		b.print("%s\n", f.Group)
	}
	met := "-"
	if f.Met != nil {
		met = map[bool]string{true: "yes", false: "NO"}[*f.Met]
	}
	over := f.Over
	if over == "" {
		over = "-"
	}
	b.print(benchRow, "  "+f.What, over, quantity(f.Value, f.Unit), quantity(f.P95, f.Unit), quantity(f.Beside, f.Unit), quantity(f.Ratio, ""), f.Asked, met, b.note(f.N, f.LeftOut))
}

// note is how many there were, or the number of the note that says why not.
func (b *benchmark) note(n int, leftOut string) string {
	if leftOut == "" {
		return fmt.Sprint(n)
	}
	at := slices.Index(b.notes, leftOut)
	if at < 0 {
		at, b.notes = len(b.notes), append(b.notes, leftOut)
	}
	return fmt.Sprintf("(%d)", at+1)
}

func (b *benchmark) closing() {
	if len(b.notes) > 0 {
		b.print("\n")
	}
	for i, note := range b.notes {
		b.print("(%d) left out: %s\n", i+1, strings.ReplaceAll(note, "\n", "; "))
	}
	b.print("\nmet on this machine: %d, not met: %d; %.0f s\n", b.result.Met, b.result.Missed, b.result.Seconds)
	if load := b.result.Load; load != nil && *load > float64(b.result.CPUs) {
		b.print("It was busy before (load %s): what several processes do in turn suffers most from that.\n", number(*load))
	}
}

func quantity(x *float64, unit string) string {
	if x == nil {
		return "-"
	}
	s := number(*x)
	if unit != "" {
		s += " " + unit
	}
	return s
}

// number is x with three digits that count.
func number(x float64) string {
	switch {
	case x >= 99.95 || x == float64(int(x)):
		return fmt.Sprintf("%.0f", x)
	case x >= 9.995:
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.2f", x)
}

// quiet is a log that nobody reads: what a server says is no part of a table.
func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }
