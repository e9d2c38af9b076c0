package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"majordomus/cmd/majordomus/bench"
	"majordomus/lease"
)

// smallCall is one that costs the server next to nothing.
func smallCall() string { return bench.Call("majordomus_wait", `{"seconds":0,"note":"a"}`) }

func (b *benchmark) parts() []part {
	return []part{
		{6, []string{"cold_start", "warm_start", "initialize"}, b.starts},
		{6, []string{"call_mover", "call_straight", "in_flight"}, b.calls},
		{4, []string{"large_answer", "large_bridge", "large_server"}, b.large},
		{1, []string{"memory_bridge", "memory_server", "memory_eight"}, b.memory},
		{4, []string{"memory_session", "memory_left"}, b.sessions},
		{8, []string{"recovery"}, b.recovery},
		{6, []string{"shell_warm", "shell_env", "shell_cold"}, b.entry},
		{3, []string{"peers"}, b.peers},
		{7, []string{"hosted_mover", "hosted_straight", "hosted_eight", "hosted_memory"}, b.hosted},
	}
}

// emptyProgram builds what costs as little to start as any program in Go.
func emptyProgram(ctx context.Context, dir string, environ []string) (string, error) {
	if _, err := exec.LookPath("go"); err != nil {
		return "", errors.New("the empty program, since go is not on the PATH to build it")
	}
	source, program := filepath.Join(dir, "main.go"), filepath.Join(dir, "empty.exe")
	if err := os.WriteFile(source, []byte("package main\n\nfunc main() {}\n"), 0o600); err != nil {
		return "", fmt.Errorf("writing the empty program: %w", err)
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-o", program, source)
	cmd.Dir = dir
	cmd.Env = append(slices.Clip(environ), "GOTOOLCHAIN=local", "GOWORK=off", "GOFLAGS=", "GO111MODULE=auto", "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("the empty program, which go does not build: %w: %.200s", err, out)
	}
	return program, nil
}

// pairs are samples that belong together, of ours and of what is beside it.
type pairs struct{ ours, beside, ratios []float64 }

func (p *pairs) add(ours, beside time.Duration) {
	p.ours = append(p.ours, float64(ours))
	p.beside = append(p.beside, float64(beside))
	p.ratios = append(p.ratios, float64(ours)/float64(beside))
}

// into sets what a figure of durations is, in its unit.
func (p *pairs) into(f *figure) {
	if len(p.ours) == 0 {
		return
	}
	scale := map[string]time.Duration{"ms": time.Millisecond, "µs": time.Microsecond}[f.Unit]
	in := func(x float64) *float64 { x /= float64(scale); return &x }
	f.Value, f.P95, f.N = in(bench.Median(p.ours)), in(bench.Quantile(p.ours, 95)), len(p.ours)
	f.Beside = in(bench.Median(p.beside))
	ratio := bench.Median(p.ratios)
	f.Ratio = &ratio
}

// bare is into without what is beside it, for want of that.
func (p *pairs) bare(f *figure, why error) {
	p.into(f)
	f.Beside, f.Ratio, f.LeftOut = nil, nil, why.Error()
}

// rates sets a figure of things done a second: p has what one takes.
func (p *pairs) rates(f *figure) {
	if len(p.ours) == 0 {
		return
	}
	f.N = len(p.ours)
	value, beside, ratio := float64(time.Second)/bench.Median(p.ours), float64(time.Second)/bench.Median(p.beside), 1/bench.Median(p.ratios)
	f.Value, f.Beside, f.Ratio = &value, &beside, &ratio
}

func elapsed(do func() error) (time.Duration, error) {
	began := time.Now()
	err := do()
	return time.Since(began), err
}

// both times one right after the other.
func (p *pairs) both(ours, beside func() error) error {
	floor, err := elapsed(beside)
	if err != nil {
		return err
	}
	took, err := elapsed(ours)
	if err == nil {
		p.add(took, floor)
	}
	return err
}

// many takes as many pairs as there is time for, once both are warm.
func (p *pairs) many(l *laps, warm, most int, ours, beside func() error) error {
	for range warm {
		if err := new(pairs).both(ours, beside); err != nil {
			return err
		}
	}
	if most >= 1000 {
		l.least *= 40 // of what takes less than a millisecond
	}
	for l.next(most) {
		if err := p.both(ours, beside); err != nil {
			return err
		}
	}
	return nil
}

// scratch gives do a checkout of its own.
func (b *benchmark) scratch(do func(*scratch) error) (err error) {
	quiet := *b.app
	quiet.err = &sink{w: io.Discard}
	s, err := quiet.newScratch("majordomus-bench-")
	if err != nil {
		return err
	}
	defer func() { b.ends = append(b.ends, s.end(err != nil)) }()
	return do(s)
}

// nothing runs the empty program.
func (b *benchmark) nothing(ctx context.Context) func() error {
	if b.noEmpty != nil {
		return func() error { return nil }
	}
	return func() error { return exec.CommandContext(ctx, b.empty).Run() }
}

// overEmpty sets a figure whose pairs are over the empty program.
func (b *benchmark) overEmpty(p *pairs, f *figure) {
	if b.noEmpty != nil {
		p.bare(f, b.noEmpty)
	} else {
		p.into(f)
	}
}

// editor starts a bridge.
func (b *benchmark) editor(ctx context.Context, s *scratch) (*bench.Talker, error) {
	return bench.Talk(ctx, s.dir, b.env, b.started.Path, "mcp", "--root", s.dir)
}

// opened is an editor that has shaken hands.
func (b *benchmark) opened(ctx context.Context, s *scratch) (*bench.Talker, error) {
	t, err := b.editor(ctx, s)
	if err != nil {
		return nil, err
	}
	if _, err := t.Open(); err != nil {
		t.End()
		return nil, err
	}
	_, err = s.serving()
	return t, err
}

// part starts a program of the benchmark.
func (b *benchmark) part(ctx context.Context, words ...string) (*bench.Talker, error) {
	return bench.Talk(ctx, "", b.env, append([]string{b.started.Path, benchPart}, words...)...)
}

// joined starts a part that prints its address, and as many that join it.
func (b *benchmark) joined(ctx context.Context, n int, join string, words ...string) (all []*bench.Talker, err error) {
	server, err := b.part(ctx, words...)
	if err != nil {
		return nil, err
	}
	all = append(all, server)
	addr, err := server.Ask("")
	for range n {
		if err != nil {
			break
		}
		var t *bench.Talker
		if t, err = b.part(ctx, join, strings.TrimSpace(string(addr))); err == nil {
			all = append(all, t)
		}
	}
	if err != nil {
		endAll(all)
		return nil, err
	}
	return all, nil
}

func endAll(all []*bench.Talker) {
	var wg sync.WaitGroup
	for _, t := range all {
		wg.Go(t.End)
	}
	wg.Wait()
}

func ask(t *bench.Talker, request string) func() error {
	return func() error { _, err := t.Answer(request); return err }
}

// start is an editor's wait for its first answer.
func (b *benchmark) start(ctx context.Context, s *scratch) (time.Duration, error) {
	began := time.Now()
	t, err := b.editor(ctx, s)
	if err != nil {
		return 0, err
	}
	defer t.End()
	if _, err := t.Answer(bench.Initialize); err != nil {
		return 0, err
	}
	took := time.Since(began)
	_, err = s.serving()
	return took, err
}

func (s *scratch) stop(ctx context.Context) error {
	_, err := s.app.stop(ctx, s.place, true, 10*time.Second)
	return err
}

// ensure has the checkout served, and returns what a client needs to go straight.
func (s *scratch) ensure(ctx context.Context) (doc lease.Document, url, key string, err error) {
	found, err := s.app.launcher(s.place, quiet(), nil).Find(ctx)
	if err != nil {
		return doc, "", "", err
	}
	if _, err := s.serving(); err != nil {
		return doc, "", "", err
	}
	key, err = s.place.folder.ReadKey()
	return found.Document, address(found.Document), key, err
}

func (b *benchmark) starts(ctx context.Context, s *scratch, l laps, f map[string]*figure) error {
	// over is starts over the empty program.
	over := func(lap *laps, after func(context.Context) error) (p pairs, err error) {
		for lap.next(50) {
			floor, err := elapsed(b.nothing(ctx))
			if err != nil {
				return p, err
			}
			took, err := b.start(ctx, s)
			if err != nil {
				return p, err
			}
			p.add(took, floor)
			if err := after(ctx); err != nil {
				return p, err
			}
		}
		return p, nil
	}
	cold, err := over(l.part(55), s.stop)
	if err != nil {
		return err
	}
	b.overEmpty(&cold, f["cold_start"])
	_, url, key, err := s.ensure(ctx)
	if err != nil {
		return err
	}
	warm, err := over(l.part(25), func(context.Context) error { return nil })
	if err != nil {
		return err
	}
	b.overEmpty(&warm, f["warm_start"])
	straight, err := bench.NewStraight(url, key)
	if err != nil {
		return err
	}
	defer straight.Close() // ignore error: read to the end
	var hello pairs
	for lap := l.part(20); lap.next(50); {
		took, err := b.running(ctx, func() (*bench.Talker, error) { return b.editor(ctx, s) })
		if err != nil {
			return err
		}
		floor, err := elapsed(straight.Open)
		if err != nil {
			return err
		}
		hello.add(took, floor)
	}
	hello.into(f["initialize"])
	return nil
}

// running is how long initialize takes in a process that has answered a ping,
// and so is up.
func (b *benchmark) running(ctx context.Context, start func() (*bench.Talker, error)) (time.Duration, error) {
	t, err := start()
	if err != nil {
		return 0, err
	}
	defer t.End()
	return helloAfterPing(t)
}

func (b *benchmark) calls(ctx context.Context, s *scratch, l laps, f map[string]*figure) error {
	ours, err := b.opened(ctx, s)
	if err != nil {
		return err
	}
	defer ours.End()
	mover, err := b.joined(ctx, 1, "join", "serve")
	if err != nil {
		return err
	}
	defer func() { endAll(mover) }()
	var p pairs
	if err := p.many(l.part(30), 100, 5000, ask(ours, smallCall()), ask(mover[1], bench.Moved)); err != nil {
		return err
	}
	p.into(f["call_mover"])

	_, url, key, err := s.ensure(ctx)
	if err != nil {
		return err
	}
	const width, each = 16, 50
	var direct []*bench.Straight
	for range width {
		d, err := bench.NewStraight(url, key)
		if err != nil {
			return err
		}
		defer d.Close() // ignore error: read to the end
		direct = append(direct, d)
	}
	p = pairs{}
	if err := p.many(l.part(30), 100, 5000, ask(ours, smallCall()), func() error { return direct[0].Ask(smallCall()) }); err != nil {
		return err
	}
	p.into(f["call_straight"])

	p = pairs{}
	through := func() error { return ours.Flight(smallCall(), width, width*each) }
	past := func() error {
		return together(width, func(i int) error {
			for range each {
				if err := direct[i].Ask(smallCall()); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := p.many(l.part(40), 1, 200, through, past); err != nil {
		return err
	}
	p.one(width * each).rates(f["in_flight"])
	return nil
}

// one is what one of n takes that were timed together.
func (p pairs) one(n float64) *pairs {
	one := pairs{ratios: p.ratios}
	for i := range p.ours {
		one.ours, one.beside = append(one.ours, p.ours[i]/n), append(one.beside, p.beside[i]/n)
	}
	return &one
}

// together does all at once.
func together(n int, do func(int) error) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = do(i) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (b *benchmark) large(ctx context.Context, _ *scratch, l laps, f map[string]*figure) error {
	const size = 16 << 20
	ours, err := b.joined(ctx, 1, "take", "give", fmt.Sprint(size))
	if err != nil {
		return err
	}
	defer endAll(ours)
	floor, err := b.joined(ctx, 1, "join", "serve", fmt.Sprint(size))
	if err != nil {
		return err
	}
	defer endAll(floor)
	if _, err := ours[1].Answer(bench.Initialize); err != nil {
		return err
	}
	get := func(t *bench.Talker) func() error {
		return func() error {
			n, err := t.Size(smallCall())
			if err == nil && n < size {
				err = fmt.Errorf("%d bytes came instead of %d", n, size)
			}
			return err
		}
	}
	var p pairs
	if err := p.many(l.part(100), 1, 40, get(ours[1]), get(floor[1])); err != nil {
		return err
	}
	p.into(f["large_answer"])
	// What is answered is kept by the server and counts once.
	for i, own := range []float64{size, 0} {
		most, err := bench.Peak(ours[i].PID())
		if err != nil {
			return err
		}
		f := f[[]string{"large_server", "large_bridge"}[i]]
		f.mib(most-own, p.len())
		ratio, message := (most-own)/size, float64(size>>20)
		f.Ratio, f.Beside = &ratio, &message
	}
	return nil
}

func (p pairs) len() int { return len(p.ours) }

// mib sets a figure of memory.
func (f *figure) mib(bytes float64, n int) {
	bytes /= 1 << 20
	f.Value, f.N = &bytes, n
}

func (b *benchmark) memory(ctx context.Context, s *scratch, l laps, f map[string]*figure) error {
	var bridges []*bench.Talker
	defer func() { endAll(bridges) }()
	for range 8 {
		t, err := b.opened(ctx, s)
		if err != nil {
			return err
		}
		bridges = append(bridges, t)
	}
	doc, err := s.serving()
	if err != nil {
		return err
	}
	server, each, err := resting(doc.PID, bridges)
	if err != nil {
		return err
	}
	most, all := 0., server
	for _, x := range each {
		most, all = max(most, x), all+x
	}
	f["memory_bridge"].mib(most, len(each))
	f["memory_server"].mib(server, 1)
	f["memory_eight"].mib(all, 1)
	return nil
}

// settled is the least of what is measured, for some seconds or until it is below
// enough: memory is given back some time after it was last needed.
func (l laps) settled(ctx context.Context, enough float64, measure func() (float64, error)) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, max(8*time.Second, time.Until(l.until)))
	defer cancel()
	least, failed := math.Inf(1), error(nil)
	err := until(ctx, func() bool {
		var now float64
		if now, failed = measure(); failed == nil {
			least = min(least, now)
		}
		return failed != nil || least < enough
	})
	if errors.Is(err, context.DeadlineExceeded) {
		err = nil
	}
	return least, errors.Join(failed, err)
}

// resting is the proportional memory of a server and of its bridges.
func resting(pid int, bridges []*bench.Talker) (server float64, each []float64, err error) {
	if server, err = bench.Proportional(pid); err != nil {
		return 0, nil, err
	}
	for _, t := range bridges {
		x, err := bench.Proportional(t.PID())
		if err != nil {
			return 0, nil, err
		}
		each = append(each, x)
	}
	return server, each, nil
}

func (b *benchmark) sessions(ctx context.Context, s *scratch, l laps, f map[string]*figure) error {
	n := 1000
	if b.quick {
		n = 250
	}
	doc, url, key, err := s.ensure(ctx)
	if err != nil {
		return err
	}
	before, err := bench.Proportional(doc.PID)
	if err != nil {
		return err
	}
	straight, err := bench.NewStraight(url, key)
	if err != nil {
		return err
	}
	defer straight.Close() // ignore error: read to the end
	leave := []func() error{straight.Session()}
	for i := range n {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := straight.Open(); err != nil {
			return err
		}
		leave = append(leave, straight.Session())
		link, err := bench.DialLink(url, key, i)
		if err != nil {
			return err
		}
		defer link.Close() // ignore error: mostly the second time
		leave = append(leave, link.Close)
	}
	now, err := bench.Proportional(doc.PID)
	if err != nil {
		return err
	}
	added := now - before
	each := added / float64(2*n) / 1024
	f["memory_session"].Value, f["memory_session"].N = &each, 2*n
	if b.quick {
		f["memory_left"].LeftOut = "with --quick, since memory is given back slowly"
		return nil
	}
	for _, l := range leave {
		if err := l(); err != nil {
			return err
		}
	}
	now, err = l.settled(ctx, before+added/10, func() (float64, error) { return bench.Proportional(doc.PID) })
	if err != nil {
		return err
	}
	percent := max(0, 100*min(1, (now-before)/added))
	f["memory_left"].Value, f["memory_left"].N = &percent, 2*n
	return nil
}

func (b *benchmark) recovery(ctx context.Context, s *scratch, l laps, f map[string]*figure) error {
	t, err := b.opened(ctx, s)
	if err != nil {
		return err
	}
	defer t.End()
	var p pairs
	err = b.scratch(func(other *scratch) error {
		for lap := l.part(100); lap.next(50); {
			cold, err := b.start(ctx, other)
			if err != nil {
				return err
			}
			if err := other.stop(ctx); err != nil {
				return err
			}
			doc, err := s.serving()
			if err != nil {
				return err
			}
			if err := kill(doc.PID); err != nil {
				return err
			}
			took, err := elapsed(ask(t, smallCall()))
			if err != nil {
				return err
			}
			p.add(took, cold)
		}
		return nil
	})
	if err != nil {
		return err
	}
	p.into(f["recovery"])
	ratio := bench.Quantile(p.ours, 95) / bench.Median(p.beside)
	f["recovery"].Ratio = &ratio
	return nil
}

func (b *benchmark) entry(ctx context.Context, s *scratch, l laps, f map[string]*figure) error {
	if err := os.Mkdir(filepath.Join(s.dir, ".ai"), 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("making a checkout: %w", err)
	}
	if err := os.WriteFile(filepath.Join(s.dir, ".ai", "manifest.yaml"), nil, 0o644); err != nil {
		return fmt.Errorf("making a checkout: %w", err)
	}
	say := func(words ...string) func() error {
		return func() error {
			cmd := exec.CommandContext(ctx, b.started.Path, words...)
			cmd.Dir, cmd.Env = s.dir, b.env
			if err := cmd.Run(); err != nil {
				return fmt.Errorf("majordomus %s: %w", strings.Join(words, " "), err)
			}
			return nil
		}
	}
	enter := say("env", "enter", "--shell", "bash")
	if _, _, _, err := s.ensure(ctx); err != nil {
		return err
	}
	for _, one := range []struct {
		id string
		do func() error
	}{{"shell_warm", enter}, {"shell_env", say("env")}} {
		var p pairs
		if err := p.many(l.part(25), 1, 50, one.do, b.nothing(ctx)); err != nil {
			return err
		}
		b.overEmpty(&p, f[one.id])
	}
	var p pairs
	for lap := l.part(50); lap.next(50); {
		warm, err := elapsed(enter)
		if err != nil {
			return err
		}
		if err := s.stop(ctx); err != nil {
			return err
		}
		cold, err := elapsed(enter)
		if err != nil {
			return err
		}
		p.add(cold, warm)
		doc, _, _, err := s.ensure(ctx)
		if err != nil {
			return err
		}
		// What looks for a server in the background must not find none after
		// the next stop.
		if err := bench.Alone(ctx, s.place.Root, doc.PID); err != nil {
			return err
		}
	}
	p.into(f["shell_cold"])
	return nil
}

func (b *benchmark) peers(ctx context.Context, s *scratch, l laps, f map[string]*figure) error {
	_, url, key, err := s.ensure(ctx)
	if err != nil {
		return err
	}
	var link *bench.Link
	for i := range 50 {
		if link, err = bench.DialLink(url, key, i); err != nil {
			return err
		}
		defer link.Close() // ignore error: read to the end
		for c := range 4 {
			a, err := link.Ask(bench.Call("majordomus_announce", fmt.Sprintf(`{"intent":"rewrite part %d","scope":["src/p%02d/c%d","docs/%d.md","lib/shared%d"],"claim":"%d"}`, c, i, c, i, i%10, c)))
			if err == nil && !bytes.Contains(a, []byte(`"result"`)) {
				err = fmt.Errorf("announcing: %.200s", a)
			}
			if err != nil {
				return err
			}
		}
	}
	call := func(tool string) func() error {
		line := bench.Call(tool, `{}`)
		return func() error { _, err := link.Ask(line); return err }
	}
	var p pairs
	if err := p.many(l.part(100), 20, 2000, call("majordomus_peers"), call("majordomus_server")); err != nil {
		return err
	}
	p.into(f["peers"])
	return nil
}

// hosting starts a server of s that hosts a command.
func (b *benchmark) hosting(ctx context.Context, s *scratch, dir string, env []string, argv []string) (*bench.Talker, error) {
	t, err := bench.Talk(ctx, s.dir, env, append([]string{b.started.Path, benchPart, "host", s.dir, dir}, argv...)...)
	if err != nil {
		return nil, err
	}
	if _, err = t.Ask(""); err == nil {
		_, err = s.serving()
	}
	if err != nil {
		t.End()
		return nil, err
	}
	return t, nil
}

// listed is an editor that sees a tool.
func (b *benchmark) listed(ctx context.Context, s *scratch, tool string) (*bench.Talker, error) {
	t, err := b.opened(ctx, s)
	if err != nil {
		return nil, err
	}
	if waited := until(ctx, func() bool {
		var a []byte
		a, err = t.Answer(bench.ListTools)
		return err != nil || bytes.Contains(a, []byte(`"`+tool+`"`))
	}); err == nil {
		err = waited
	}
	if err != nil {
		t.End()
		return nil, fmt.Errorf("waiting for a hosted tool: %w", err)
	}
	return t, nil
}

func (b *benchmark) hosted(ctx context.Context, s *scratch, l laps, f map[string]*figure) error {
	const editors, each = 8, 50
	server, err := b.hosting(ctx, s, s.dir, b.env, []string{b.started.Path, benchPart, "upstream"})
	if err != nil {
		return err
	}
	defer server.End()
	past, err := b.part(ctx, "upstream")
	if err != nil {
		return err
	}
	defer past.End()
	if _, err := past.Open(); err != nil {
		return err
	}
	mover, err := b.joined(ctx, 1, "join", "pass")
	if err != nil {
		return err
	}
	defer endAll(mover)
	var ours []*bench.Talker
	defer func() { endAll(ours) }()
	for range editors {
		t, err := b.listed(ctx, s, "up__read")
		if err != nil {
			return err
		}
		ours = append(ours, t)
	}
	direct := ask(past, bench.Call("read", `{"note":"a"}`))
	line := bench.Call("up__read", `{"note":"a"}`)

	var p pairs
	if err := p.many(l.part(30), 100, 5000, ask(ours[0], line), ask(mover[1], bench.Moved)); err != nil {
		return err
	}
	p.into(f["hosted_mover"])
	p = pairs{}
	if err := p.many(l.part(30), 100, 5000, ask(ours[0], line), direct); err != nil {
		return err
	}
	p.into(f["hosted_straight"])

	// One call of eight at once, beside one of one alone.
	p = pairs{}
	for lap := l.part(40); lap.next(100); {
		one, err := elapsed(func() error { return times(each, direct) })
		if err != nil {
			return err
		}
		all, err := elapsed(func() error {
			return together(editors, func(i int) error { return times(each, ask(ours[i], line)) })
		})
		if err != nil {
			return err
		}
		p.add(all/(editors*each), one/each)
	}
	p.rates(f["hosted_eight"])

	least, err := l.settled(ctx, 40<<20, func() (float64, error) {
		sum, all, err := resting(server.PID(), ours)
		for _, x := range all {
			sum += x
		}
		return sum, err
	})
	if err != nil {
		return err
	}
	f["hosted_memory"].mib(least, 1)
	return nil
}

func times(n int, do func() error) error {
	for range n {
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}

func kill(pid int) error {
	p, err := os.FindProcess(pid)
	if err == nil {
		err = p.Kill()
	}
	if err != nil {
		return fmt.Errorf("killing the server: %w", err)
	}
	return nil
}
