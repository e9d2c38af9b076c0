package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"majordomus/cmd/majordomus/bench"
)

// otherWeight is the share of the time for the other command.
const otherWeight = 25

// otherTable is what another command takes, beside ours.
type otherTable struct {
	Command []string       `json:"command"`
	Server  string         `json:"server"`         // what it calls itself
	Tool    string         `json:"tool,omitempty"` // that is called
	Figures []*otherFigure `json:"figures"`
}

type otherFigure struct {
	ID      string   `json:"id"`
	What    string   `json:"what"`
	Unit    string   `json:"unit"`
	Theirs  *float64 `json:"theirs,omitempty"` // the median
	P95     *float64 `json:"theirs_p95,omitempty"`
	Ours    *float64 `json:"ours,omitempty"`
	OursP95 *float64 `json:"ours_p95,omitempty"`
	Ratio   *float64 `json:"ratio,omitempty"` // ours over theirs
	N       int      `json:"n"`
	LeftOut string   `json:"left_out,omitempty"`
}

func otherFigures() []*otherFigure {
	return []*otherFigure{
		{ID: "start", What: "start to the first answer", Unit: "ms"},
		{ID: "initialize", What: "initialize, once it runs", Unit: "ms"},
		{ID: "ping", What: "ping", Unit: "µs"},
		{ID: "list", What: "tools/list", Unit: "µs"},
		{ID: "call", What: "small call of a tool", Unit: "µs"},
		{ID: "in_flight", What: "with 16 in flight", Unit: "/s"},
		{ID: "memory", What: "memory, one editor", Unit: "MiB"},
		{ID: "memory_eight", What: "memory, 8 editors", Unit: "MiB"},
		{ID: "hosted_call", What: "its tool, hosted by majordomus", Unit: "µs"},
		{ID: "hosted_eight", What: "8 editors, it hosted for all", Unit: "MiB"},
	}
}

// measure makes a figure of pairs: ours, and theirs beside it.
func (f *otherFigure) measure(p *pairs) {
	if p.len() == 0 {
		return
	}
	g := figure{Unit: f.Unit}
	if f.Unit == "/s" {
		p.rates(&g)
	} else {
		p.into(&g)
		if p.len() > 1 {
			scale := *g.P95 / bench.Quantile(p.ours, 95)
			p95 := bench.Quantile(p.beside, 95) * scale
			f.P95, f.OursP95 = &p95, g.P95
		}
	}
	f.Ours, f.Theirs, f.Ratio, f.N = g.Value, g.Beside, g.Ratio, g.N
}

func (f *otherFigure) memory(ours, theirs float64) {
	ours, theirs = ours/(1<<20), theirs/(1<<20)
	ratio := ours / theirs
	f.Ours, f.Theirs, f.Ratio, f.N = &ours, &theirs, &ratio, 1
}

// another is a conversation with the other command.
type another struct {
	*bench.Talker
	cancel context.CancelCauseFunc
}

func (o *another) end() {
	o.End()
	o.cancel(nil)
}

// within has the command ended when something takes longer than that.
func (o *another) within(d time.Duration, do func() error) error {
	timer := time.AfterFunc(d, func() { o.cancel(fmt.Errorf("it has not answered within %v", d.Round(100*time.Millisecond))) })
	defer timer.Stop()
	return do()
}

// patience is how long the other command may take for one answer.
func (b *benchmark) patience() time.Duration {
	return min(b.within*6/10, 20*time.Second)
}

func (b *benchmark) startOther(ctx context.Context) (*another, error) {
	dir, err := os.Getwd()
	if err != nil {
		return nil, fmt.Errorf("finding the current folder: %w", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	t, err := bench.Talk(ctx, dir, b.environ, b.words...)
	if err != nil {
		cancel(nil)
		return nil, err
	}
	return &another{t, cancel}, nil
}

func (b *benchmark) openOther(ctx context.Context) (o *another, hello []byte, err error) {
	if o, err = b.startOther(ctx); err != nil {
		return nil, nil, err
	}
	if err = o.within(b.patience(), func() error { hello, err = o.Open(); return err }); err != nil {
		o.end()
		return nil, nil, err
	}
	return o, hello, nil
}

// introduce looks whether the command is an MCP server, and picks a tool of it.
func (b *benchmark) introduce(ctx context.Context) error {
	table := &otherTable{Command: b.words, Figures: otherFigures()}
	o, hello, err := b.openOther(ctx)
	if err != nil {
		return b.noServer(fmt.Errorf("it does not answer initialize: %w", err))
	}
	defer o.end()
	var said struct {
		Result struct {
			ProtocolVersion string
			Capabilities    struct{ Tools *struct{} }
			ServerInfo      struct{ Name, Version string }
		}
	}
	if err := json.Unmarshal(hello, &said); err != nil || said.Result.ProtocolVersion == "" {
		return b.noServer(fmt.Errorf("it answers initialize with no version of the protocol: %.200s", bytes.TrimSpace(hello)))
	}
	table.Server = strings.TrimSpace(said.Result.ServerInfo.Name + " " + said.Result.ServerInfo.Version)
	b.result.Other = table
	if said.Result.Capabilities.Tools == nil {
		return nil
	}
	var list struct {
		Result struct {
			Tools []struct {
				Name        string
				InputSchema struct{ Required []string }
				Annotations struct{ ReadOnlyHint bool }
			}
		}
	}
	err = o.within(b.patience(), func() error {
		a, err := o.Answer(bench.ListTools)
		if err == nil {
			err = json.Unmarshal(a, &list)
		}
		return err
	})
	if err != nil {
		return nil // the row of tools/list says so
	}
	for _, t := range list.Result.Tools {
		if t.Name == b.tool || b.tool == "" && t.Annotations.ReadOnlyHint && len(t.InputSchema.Required) == 0 {
			table.Tool = t.Name
			return nil
		}
	}
	if b.tool != "" {
		return fmt.Errorf("%s has no tool %q", b.words[0], b.tool)
	}
	return nil
}

func (b *benchmark) noServer(err error) error {
	return &hintedError{
		fmt.Errorf("%s is not an MCP server over standard input and output: %w", strings.Join(b.words, " "), err),
		"give the command and arguments that an editor's file has for it",
	}
}

func (b *benchmark) other(ctx context.Context) error {
	f := map[string]*otherFigure{}
	for _, one := range b.result.Other.Figures {
		f[one.ID] = one
	}
	b.otherHeading()
	err := b.share(ctx, otherWeight, func(ctx context.Context, l laps) error {
		return b.scratch(func(s *scratch) error { return b.compare(ctx, s, l, f) })
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	for _, one := range b.result.Other.Figures {
		if one.Ours == nil && one.LeftOut == "" {
			one.LeftOut = "it was not taken"
			if err != nil {
				one.LeftOut = err.Error()
			}
		}
		b.otherRow(one)
	}
	return nil
}

// compare takes the figures of the other command. One that fails leaves the
// others alone.
func (b *benchmark) compare(ctx context.Context, s *scratch, l laps, f map[string]*otherFigure) error {
	// A first one: the others find a server.
	ours, err := b.opened(ctx, s)
	if err != nil {
		return err
	}
	defer ours.End()
	f["start"].take(func(p *pairs) error { return b.eightEditors(ctx, s, p, f) })
	f["initialize"].take(func(p *pairs) error {
		for lap := l.part(10); lap.next(20); {
			var theirs time.Duration
			o, err := b.startOther(ctx)
			if err != nil {
				return err
			}
			err = o.within(3*time.Second, func() (err error) { theirs, err = helloAfterPing(o.Talker); return err })
			o.end()
			if err != nil {
				return fmt.Errorf("before initialize it answers no ping: %w", err)
			}
			took, err := b.running(ctx, func() (*bench.Talker, error) { return b.editor(ctx, s) })
			if err != nil {
				return err
			}
			p.add(took, theirs)
		}
		return nil
	})

	var theirs *another
	defer func() {
		if theirs != nil {
			theirs.end()
		}
	}()
	// talk measures in one conversation, and begins another after a failure.
	talk := func(one *otherFigure, percent int, do func(*pairs, *laps) error) {
		one.take(func(p *pairs) (err error) {
			if theirs == nil {
				if theirs, _, err = b.openOther(ctx); err != nil {
					return err
				}
			}
			lap := l.part(percent)
			if err = theirs.within(time.Until(lap.until)+b.patience()/2, func() error { return do(p, lap) }); err != nil {
				theirs.end()
				theirs = nil
			}
			return err
		})
	}
	table := b.result.Other
	line := bench.Call(table.Tool, b.arguments)
	talk(f["ping"], 10, func(p *pairs, lap *laps) error {
		return p.many(lap, 20, 1000, ask(ours, bench.Ping), ask(theirs.Talker, bench.Ping))
	})
	talk(f["list"], 10, func(p *pairs, lap *laps) error {
		return p.many(lap, 5, 1000, ask(ours, bench.ListTools), ask(theirs.Talker, bench.ListTools))
	})
	flown, own := bench.Ping, bench.Ping
	if noTool := "it has no tool that says it only reads and wants no arguments; name one with --tool"; table.Tool == "" {
		f["call"].LeftOut, f["hosted_call"].LeftOut, f["hosted_eight"].LeftOut = noTool, noTool, noTool
	} else {
		talk(f["call"], 10, func(p *pairs, lap *laps) error {
			return p.many(lap, 5, 1000, ask(ours, smallCall()), ask(theirs.Talker, line))
		})
		if why := f["call"].LeftOut; why == "" {
			flown, own = line, smallCall()
		} else {
			f["hosted_call"].LeftOut, f["hosted_eight"].LeftOut = why, why
		}
	}
	talk(f["in_flight"], 10, func(p *pairs, lap *laps) error {
		const width, total = 16, 160
		var all pairs
		err := all.many(lap, 1, 50, func() error { return ours.Flight(own, width, total) }, func() error { return theirs.Flight(flown, width, total) })
		*p = *all.one(total)
		return err
	})
	if f["hosted_call"].LeftOut == "" {
		b.compareHosted(ctx, l, f)
	}
	return nil
}

func helloAfterPing(t *bench.Talker) (time.Duration, error) {
	var refused *bench.RefusedError
	if _, err := t.Answer(bench.Ping); err != nil && !errors.As(err, &refused) {
		return 0, err
	}
	return elapsed(ask(t, bench.Initialize))
}

// take sets a figure of what do takes, or says why it is not there.
func (f *otherFigure) take(do func(*pairs) error) {
	var p pairs
	if err := do(&p); err != nil {
		f.LeftOut = err.Error()
		return
	}
	f.measure(&p)
}

// eightEditors starts as many, beside as many of the other command, and takes the
// memory of the first and of all.
func (b *benchmark) eightEditors(ctx context.Context, s *scratch, p *pairs, f map[string]*otherFigure) error {
	var ours []*bench.Talker
	var theirs []*another
	defer func() {
		endAll(ours)
		together(len(theirs), func(i int) error { theirs[i].end(); return nil })
	}()
	for n := 1; n <= 8; n++ {
		began := time.Now()
		o, _, err := b.openOther(ctx)
		if err != nil {
			return err
		}
		floor := time.Since(began)
		theirs = append(theirs, o)
		began = time.Now()
		t, err := b.opened(ctx, s)
		if err != nil {
			return err
		}
		p.add(time.Since(began), floor)
		ours = append(ours, t)
		one := f[map[int]string{1: "memory", 8: "memory_eight"}[n]]
		if one == nil {
			continue
		}
		own, err := b.all(s, ours)
		sum := 0.
		for _, o := range theirs {
			if err != nil {
				break
			}
			var x float64
			x, err = bench.Tree(o.PID())
			sum += x
		}
		if err != nil {
			one.LeftOut = err.Error()
			continue
		}
		one.memory(own, sum)
		b.eight = sum
	}
	return nil
}

// all is the memory of the server of s, of what it hosts, and of its editors.
func (b *benchmark) all(s *scratch, editors []*bench.Talker) (float64, error) {
	doc, err := s.serving()
	if err != nil {
		return 0, err
	}
	sum, err := bench.Tree(doc.PID)
	for _, t := range editors {
		if err != nil {
			break
		}
		var x float64
		x, err = bench.Proportional(t.PID())
		sum += x
	}
	return sum, err
}

// compareHosted has eight editors use the command through majordomus.
func (b *benchmark) compareHosted(ctx context.Context, l laps, f map[string]*otherFigure) {
	ctx, cancel := context.WithTimeoutCause(ctx, l.share/4+b.patience(), errors.New("it took too long"))
	defer cancel()
	err := b.scratch(func(s *scratch) error {
		dir, err := os.Getwd()
		if err != nil {
			return err
		}
		server, err := b.hosting(ctx, s, dir, b.environ, b.words)
		if err != nil {
			return err
		}
		defer server.End()
		theirs, _, err := b.openOther(ctx)
		if err != nil {
			return err
		}
		defer theirs.end()
		var ours []*bench.Talker
		defer func() { endAll(ours) }()
		name := "up__" + b.result.Other.Tool
		for range 8 {
			t, err := b.listed(ctx, s, name)
			if err != nil {
				return err
			}
			ours = append(ours, t)
		}
		var p pairs
		err = theirs.within(l.share/4+b.patience()/2, func() error {
			return p.many(l.part(15), 5, 1000, ask(ours[0], bench.Call(name, b.arguments)), ask(theirs.Talker, bench.Call(b.result.Other.Tool, b.arguments)))
		})
		if err != nil {
			return err
		}
		f["hosted_call"].measure(&p)
		own, err := b.all(s, ours)
		if err == nil && b.eight == 0 {
			err = bench.ErrNoMemory
		}
		if err != nil {
			return err
		}
		f["hosted_eight"].memory(own, b.eight)
		return nil
	})
	for _, id := range []string{"hosted_call", "hosted_eight"} {
		if f[id].Ours == nil && err != nil {
			f[id].LeftOut = err.Error()
		}
	}
}

const otherRowFormat = "%-32s %12s %12s %12s %12s %7s %5s\n"

func (b *benchmark) otherHeading() {
	t := b.result.Other
	b.print("\nbeside %s (%s)", strings.Join(t.Command, " "), t.Server)
	if t.Tool != "" {
		b.print(", its tool %s", t.Tool)
	}
	b.print("\n\n"+otherRowFormat, "figure", "its own", "p95", "majordomus", "p95", "ratio", "n")
}

func (b *benchmark) otherRow(f *otherFigure) {
	b.print(otherRowFormat, "  "+f.What, quantity(f.Theirs, f.Unit), quantity(f.P95, f.Unit), quantity(f.Ours, f.Unit), quantity(f.OursP95, f.Unit), quantity(f.Ratio, ""), b.note(f.N, f.LeftOut))
}
