//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"majordomus/cmd/majordomus/bench"
)

// benchHosting is a checkout whose servers file is trusted by an account that
// only the tests have.
type benchHosting struct {
	b        *testing.B
	program  string
	upstream string
	dir      string
}

func newBenchHosting(b *testing.B, servers map[string]hubServer) *benchHosting {
	b.Helper()
	program, err := accProgram()
	if err != nil {
		b.Fatal(err)
	}
	upstream, err := hubUpstream()
	if err != nil {
		b.Fatal(err)
	}
	h := &benchHosting{b: b, program: program, upstream: upstream, dir: benchCheckout(b, program)}
	h.hosts(servers)
	return h
}

// hosts writes the servers file and agrees to it. An entry without a command is
// the upstream of the benchmarks.
func (h *benchHosting) hosts(servers map[string]hubServer) {
	h.b.Helper()
	if len(servers) == 0 {
		return
	}
	for name, s := range servers {
		if s.Command == "" {
			s.Command = h.upstream
			servers[name] = s
		}
	}
	file, err := json.Marshal(map[string]any{"mcpServers": servers})
	if err != nil {
		h.b.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(h.dir, ".ai", "repo"), 0o755); err != nil {
		h.b.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(h.dir, ".ai", "repo", "mcp.json"), file, 0o644); err != nil {
		h.b.Fatal(err)
	}
	run(h.b, h.program, "trust", "--yes", "--root", h.dir)
}

// editor is one that has shaken hands and sees the tool.
func (h *benchHosting) editor(tool string) talker {
	h.b.Helper()
	t := talk(h.b, h.dir, h.program, "mcp")
	t.ask(h.b, bench.Initialize)
	io.WriteString(t.In, bench.Initialized)
	for end := time.Now().Add(time.Minute); !bytes.Contains(t.answer(h.b, bench.ListTools), []byte(`"`+tool+`"`)); {
		if time.Now().After(end) {
			h.b.Fatalf("%s is not listed", tool)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return t
}

// direct is the same upstream without anything between.
func direct(b *testing.B, dir, command string, args ...string) talker {
	b.Helper()
	t := talk(b, dir, command, args...)
	t.ask(b, bench.Initialize)
	io.WriteString(t.In, bench.Initialized)
	return t
}

// movers are as many byte movers over the hops of a hosted call.
func movers(b *testing.B, dir string, n int) (list []talker) {
	b.Helper()
	program, err := accProgram()
	if err != nil {
		b.Fatal(err)
	}
	pass := talk(b, dir, program, benchPart, "pass")
	b.Cleanup(pass.End)
	addr := strings.TrimSpace(string(pass.ask(b, "")))
	for range n {
		t := talk(b, dir, program, benchPart, "join", addr)
		b.Cleanup(t.End)
		list = append(list, t)
	}
	return list
}

// BenchmarkHostedCall reports what one small call costs from editor through
// bridge, server and hosted server and back: in times of a byte mover of the
// same hops, and of the same call straight to the hosted server. Once for a tool
// that says that it only reads; once for one that does not, which costs one way
// more between bridge and server, since it may not run twice; and once for a
// real server.
func BenchmarkHostedCall(b *testing.B) {
	for _, tool := range []string{"read", "write"} {
		b.Run(tool, func(b *testing.B) {
			h := newBenchHosting(b, map[string]hubServer{"up": {}})
			const arguments = `{"note":"a"}`
			ours, past := h.editor("up__"+tool), direct(b, h.dir, h.upstream)
			defer ours.End()
			defer past.End()
			floor := movers(b, h.dir, 1)[0]
			benchHosted(b, timed{ours, bench.Call("up__"+tool, arguments)}, timed{past, bench.Call(tool, arguments)}, &timed{floor, bench.Moved})
		})
	}
	b.Run("everything", func(b *testing.B) {
		node, script, err := benchNode()
		if err != nil {
			b.Skip(err)
		}
		h := newBenchHosting(b, map[string]hubServer{"everything": {Command: node, Args: []string{script, "stdio"}}})
		ours, past := h.editor("everything__echo"), direct(b, h.dir, node, script, "stdio")
		defer ours.End()
		defer past.End()
		benchHosted(b, timed{ours, bench.Call("everything__echo", `{"message":"a"}`)}, timed{past, bench.Call("echo", `{"message":"a"}`)}, nil)
	})
}

// benchNode is a real server, as testdata/upstreams has it.
func benchNode() (node, script string, err error) {
	clients, err := filepath.Abs(filepath.Join("testdata", "clients"))
	if err != nil {
		return "", "", err
	}
	script = filepath.Join(filepath.Dir(clients), "upstreams", "node_modules", "@modelcontextprotocol", "server-everything", "dist", "index.js")
	if _, err := os.Stat(script); err != nil {
		return "", "", fmt.Errorf("what `npm ci` installs in testdata/upstreams is missing: %w", err)
	}
	for _, node := range []string{filepath.Join(clients, "node_modules", ".bin", "node"), "/usr/bin/node"} {
		if _, err := os.Stat(node); err == nil {
			return node, script, nil
		}
	}
	return "", "", fmt.Errorf("node is missing")
}

type timed struct {
	t    talker
	line string
}

func (x timed) once(b *testing.B) float64 {
	began := time.Now()
	x.t.answer(b, x.line)
	return float64(time.Since(began))
}

func benchHosted(b *testing.B, ours, past timed, floor *timed) {
	for range 200 { // all warm
		ours.once(b)
		past.once(b)
		if floor != nil {
			floor.once(b)
		}
	}
	var a, y, z []float64
	for b.Loop() {
		a = append(a, ours.once(b))
		y = append(y, past.once(b))
		if floor != nil {
			z = append(z, floor.once(b))
		}
	}
	if floor != nil {
		b.ReportMetric(bench.Median(a)/bench.Median(z), "x-byte-mover")
	}
	b.ReportMetric(bench.Median(a)/bench.Median(y), "x-straight")
	b.ReportMetric(bench.Median(a)/1e3, "µs-p50")
}

// BenchmarkHostedEight reports what eight editors with one hosted server cost:
// the proportional memory of all our processes beside it, after 200 calls of
// each editor and after all, when there is more garbage; and how many calls all
// of them together make, one at a time each, in times of one editor straight to
// the hosted server, and what eight byte movers make that share nothing behind
// the server's place.
func BenchmarkHostedEight(b *testing.B) {
	const editors, each = 8, 200
	eight := func(b *testing.B, h *benchHosting, tool, arguments string, past timed) {
		var ours []timed
		for range editors {
			t := h.editor(tool)
			defer t.End()
			ours = append(ours, timed{t, bench.Call(tool, arguments)})
		}
		var floor []timed
		for _, t := range movers(b, h.dir, editors) {
			floor = append(floor, timed{t, bench.Moved})
		}
		together := func(all []timed) float64 {
			began := time.Now()
			var wg sync.WaitGroup
			for _, x := range all {
				wg.Go(func() {
					for range each {
						x.once(b)
					}
				})
			}
			wg.Wait()
			return float64(editors*each) / float64(time.Since(began))
		}
		alone := func() float64 {
			began := time.Now()
			for range each {
				past.once(b)
			}
			return each / float64(time.Since(began))
		}
		together(ours)
		together(floor)
		alone()
		memory := func() float64 {
			if runtime.GOOS != "linux" {
				return 0
			}
			all := pss(b, serverPID(b, h.dir))
			for _, x := range ours {
				all += pss(b, x.t.PID())
			}
			return all
		}
		first := memory()
		var ratios, floors []float64
		for b.Loop() {
			one := alone()
			ratios = append(ratios, together(ours)/one)
			floors = append(floors, together(floor)/one)
		}
		last := memory()
		b.ReportMetric(bench.Median(ratios), "x-straight-throughput")
		b.ReportMetric(bench.Median(floors), "x-straight-byte-movers")
		if last > 0 {
			b.ReportMetric(first, "MiB-after-200-calls-each")
			b.ReportMetric(last, "MiB-after-all-calls")
		}
	}
	for _, tool := range []string{"read", "write"} {
		b.Run(tool, func(b *testing.B) {
			h := newBenchHosting(b, map[string]hubServer{"up": {}})
			past := direct(b, h.dir, h.upstream)
			defer past.End()
			eight(b, h, "up__"+tool, `{"note":"a"}`, timed{past, bench.Call(tool, `{"note":"a"}`)})
		})
	}
	b.Run("everything", func(b *testing.B) {
		node, script, err := benchNode()
		if err != nil {
			b.Skip(err)
		}
		h := newBenchHosting(b, map[string]hubServer{"everything": {Command: node, Args: []string{script, "stdio"}}})
		past := direct(b, h.dir, node, script, "stdio")
		defer past.End()
		eight(b, h, "everything__echo", `{"message":"a"}`, timed{past, bench.Call("echo", `{"message":"a"}`)})
	})
}

// eightUpstreams are those of the start's benchmarks: the first takes as long to
// start as the file says that is returned, once it is there.
func eightUpstreams(b *testing.B) (servers map[string]hubServer, slow string) {
	b.Helper()
	slow = filepath.Join(b.TempDir(), "slow")
	servers = map[string]hubServer{}
	for i := range 8 {
		servers[fmt.Sprintf("up%d", i)] = hubServer{}
	}
	servers["up0"] = hubServer{Args: []string{"-slow", slow}}
	return servers, slow
}

// BenchmarkHostedStart reports what hosting costs an editor that comes first:
// the answer to initialize on a cold checkout with eight hosted servers, one of
// which takes a minute, in times of that with none; and from the second start on
// the first tools/list, while all of them are being started, in times of that
// with all of them up. The first list of a server's life costs more without any
// hosted ones as well: by how much is reported too.
func BenchmarkHostedStart(b *testing.B) {
	b.Run("initialize", func(b *testing.B) {
		servers, slow := eightUpstreams(b)
		if err := os.WriteFile(slow, []byte("60s"), 0o600); err != nil {
			b.Fatal(err)
		}
		with, without := newBenchHosting(b, servers), newBenchHosting(b, nil)
		start := func(h *benchHosting) float64 {
			b.StopTimer()
			if err := os.RemoveAll(filepath.Join(h.dir, ".ai", "local")); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
			began := time.Now()
			t := talk(b, h.dir, h.program, "mcp")
			t.ask(b, bench.Initialize)
			took := float64(time.Since(began))
			b.StopTimer()
			t.End()
			stopServer(b, h.program, h.dir)
			b.StartTimer()
			return took
		}
		start(with)
		start(without)
		var ratios []float64
		for b.Loop() {
			floor := start(without)
			ratios = append(ratios, start(with)/floor)
		}
		b.ReportMetric(bench.Median(ratios), "x-none")
	})
	b.Run("list", func(b *testing.B) {
		servers, slow := eightUpstreams(b)
		with, without := newBenchHosting(b, servers), newBenchHosting(b, nil)
		// list is the time that an editor's first list takes, once it has shaken
		// hands.
		list := func(h *benchHosting) (float64, talker) {
			t := talk(b, h.dir, h.program, "mcp")
			t.ask(b, bench.Initialize)
			began := time.Now()
			io.WriteString(t.In, bench.Initialized)
			answer := t.answer(b, bench.ListTools)
			took := float64(time.Since(began))
			if n := bytes.Count(answer, []byte("__read")); h == with && n != len(servers) {
				b.Fatalf("%d of %d hosted servers are listed", n, len(servers))
			}
			return took, t
		}
		up := func(h *benchHosting, t talker) {
			for name := range servers {
				if h == with && (name != "up0" || !exists(slow)) {
					t.answer(b, bench.Call(name+"__read", `{}`))
				}
			}
		}
		// The first start ever: what is offered is kept.
		t := with.editor("up0__read")
		for name := range servers {
			with.editor(name + "__read").End()
		}
		up(with, t)
		t.End()
		if err := os.WriteFile(slow, []byte("60s"), 0o600); err != nil {
			b.Fatal(err)
		}
		pair := func(h *benchHosting) float64 {
			b.StopTimer()
			stopServer(b, h.program, h.dir)
			b.StartTimer()
			first, one := list(h)
			up(h, one)
			second, two := list(h)
			one.End()
			two.End()
			return first / second
		}
		var ratios, control []float64
		for b.Loop() {
			control = append(control, pair(without))
			ratios = append(ratios, pair(with))
		}
		b.ReportMetric(bench.Median(ratios), "x-up")
		b.ReportMetric(bench.Median(control), "x-second-without")
	})
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
