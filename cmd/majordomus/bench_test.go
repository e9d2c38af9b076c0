//go:build unix

package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"majordomus/cmd/majordomus/bench"
)

// The benchmarks take their ratios in pairs within one run, because the speed
// of the machine changes between runs and within them. Their figure is the
// median of the pairs' ratios; the floors are programs in testdata/bench.

func buildFor(b *testing.B, pkg string) string {
	b.Helper()
	out := filepath.Join(b.TempDir(), "program")
	account := "-X main.accountHome=" + filepath.Join(filepath.Dir(out), "account")
	if msg, err := exec.Command("go", "build", "-ldflags", account, "-o", out, pkg).CombinedOutput(); err != nil {
		b.Fatalf("building %s: %v: %s", pkg, err, msg)
	}
	return out
}

// benchCheckout is a fresh git work tree, whose server ends with the benchmark.
func benchCheckout(b *testing.B, majordomus string) string {
	b.Helper()
	dir := b.TempDir()
	if msg, err := exec.Command("git", "init", "-q", dir).CombinedOutput(); err != nil {
		b.Skipf("git: %v: %s", err, msg)
	}
	b.Cleanup(func() { stopServer(b, majordomus, dir) })
	return dir
}

// run is what the program prints, without the end of the line.
func run(b *testing.B, program string, args ...string) string {
	b.Helper()
	out, err := exec.Command(program, args...).Output()
	if err != nil {
		b.Fatalf("%v: %v", args, err)
	}
	return strings.TrimSpace(string(out))
}

func stopServer(b *testing.B, majordomus, dir string) {
	b.Helper()
	if msg, err := exec.Command(majordomus, "serve", "stop", "--force", "--root", dir).CombinedOutput(); err != nil {
		b.Errorf("stopping the server: %v: %s", err, msg)
	}
}

// talker is a process with lines in and out.
type talker struct{ *bench.Talker }

func talk(b *testing.B, dir, program string, args ...string) talker {
	b.Helper()
	t, err := bench.Talk(context.Background(), dir, os.Environ(), append([]string{program}, args...)...)
	if err != nil {
		b.Fatal(err)
	}
	return talker{t}
}

func (t talker) ask(b *testing.B, line string) []byte {
	answer, err := t.Ask(line)
	if err != nil {
		b.Fatal(err)
	}
	return answer
}

// answer is ask where something else may come first.
func (t talker) answer(b *testing.B, line string) []byte {
	answer, err := t.Answer(line)
	if err != nil {
		b.Fatal(err)
	}
	return answer
}

// joined is a part of the benchmark that prints its address, and one that has
// joined it.
func joined(b *testing.B, program, join string, words ...string) (server, client talker) {
	b.Helper()
	server = talk(b, b.TempDir(), program, append([]string{benchPart}, words...)...)
	b.Cleanup(server.End)
	client = talk(b, b.TempDir(), program, benchPart, join, strings.TrimSpace(string(server.ask(b, ""))))
	b.Cleanup(client.End)
	return server, client
}

// BenchmarkStart reports how long an editor waits for the answer to its
// initialize, from the start of the process on, in starts of an empty Go
// program: cold without a server, warm with one.
func BenchmarkStart(b *testing.B) {
	majordomus, empty := buildFor(b, "."), buildFor(b, "./testdata/bench/empty")
	start := func(dir string) time.Duration {
		began := time.Now()
		t := talk(b, dir, majordomus, "mcp")
		if a := t.ask(b, bench.Initialize); !bytes.Contains(a, []byte(`"result"`)) {
			b.Fatalf("initialize: %s", a)
		}
		took := time.Since(began)
		t.End()
		return took
	}
	nothing := func() time.Duration {
		began := time.Now()
		if err := exec.Command(empty).Run(); err != nil {
			b.Fatal(err)
		}
		return time.Since(began)
	}
	run := func(name string, cold bool) {
		b.Run(name, func(b *testing.B) {
			dir := benchCheckout(b, majordomus)
			if !cold {
				start(dir)
			}
			var ratios []float64
			for b.Loop() {
				floor := nothing()
				ratios = append(ratios, float64(start(dir))/float64(floor))
				if cold {
					b.StopTimer()
					stopServer(b, majordomus, dir)
					b.StartTimer()
				}
			}
			b.ReportMetric(bench.Median(ratios), "x-empty-program")
		})
	}
	run("cold", true)
	run("warm", false)
}

// BenchmarkCall reports what one small call costs through bridge, link and
// server, in calls through a byte mover of the same hops: a call of a tool, and
// a request that mcp-go has little to do for, which is what the way itself costs.
func BenchmarkCall(b *testing.B) {
	majordomus := buildFor(b, ".")
	for name, line := range map[string]string{
		"tool": smallCall(),
		"ping": bench.Ping,
	} {
		b.Run(name, func(b *testing.B) { benchCall(b, majordomus, line) })
	}
}

func benchCall(b *testing.B, majordomus, line string) {
	dir := benchCheckout(b, majordomus)
	ours := talk(b, dir, majordomus, "mcp")
	defer ours.End()
	ours.ask(b, bench.Initialize)
	io.WriteString(ours.In, bench.Initialized)

	_, floor := joined(b, majordomus, "join", "serve")

	time1 := func(t talker) float64 {
		began := time.Now()
		t.ask(b, line)
		return float64(time.Since(began))
	}
	for range 200 { // both warm
		time1(ours)
		time1(floor)
	}
	var a, z []float64
	for b.Loop() {
		a = append(a, time1(ours))
		z = append(z, time1(floor))
	}
	b.ReportMetric(bench.Median(a)/bench.Median(z), "x-byte-mover")
	b.ReportMetric(bench.Median(a)/1e3, "µs-p50")
}

// BenchmarkMemory reports the proportional memory of a bridge at rest, and of
// eight with their server.
func BenchmarkMemory(b *testing.B) {
	if runtime.GOOS != "linux" {
		b.Skip("proportional memory is read from /proc")
	}
	majordomus := buildFor(b, ".")
	var one, all float64
	for b.Loop() {
		dir := benchCheckout(b, majordomus)
		var bridges []talker
		for range 8 {
			t := talk(b, dir, majordomus, "mcp")
			t.ask(b, bench.Initialize)
			bridges = append(bridges, t)
		}
		one, all = 0, pss(b, serverPID(b, dir))
		for _, t := range bridges {
			p := pss(b, t.PID())
			one, all = max(one, p), all+p
		}
		for _, t := range bridges {
			t.End()
		}
	}
	b.ReportMetric(one, "MiB-bridge")
	b.ReportMetric(all, "MiB-8-bridges-and-server")
}

func serverPID(b *testing.B, dir string) int {
	b.Helper()
	lease, err := os.ReadFile(filepath.Join(dir, ".ai/local/state/mcp/server.json"))
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(lease), `"pid":`)
	pid, err := strconv.Atoi(strings.TrimSpace(rest[:strings.IndexAny(rest, ",}")]))
	if err != nil {
		b.Fatal(err)
	}
	return pid
}

// pss is the proportional memory of a process in MiB.
func pss(b *testing.B, pid int) float64 {
	b.Helper()
	n, err := bench.Proportional(pid)
	if err != nil {
		b.Fatal(err)
	}
	return n / (1 << 20)
}

// BenchmarkSessions reports what 1,000 idle HTTP sessions and 1,000 links add
// to the server's memory, and what is left of that when they have gone.
func BenchmarkSessions(b *testing.B) {
	if runtime.GOOS != "linux" {
		b.Skip("proportional memory is read from /proc")
	}
	majordomus := buildFor(b, ".")
	var added, left float64
	for b.Loop() {
		dir := benchCheckout(b, majordomus)
		url, key := credentials(b, majordomus, dir)
		pid := serverPID(b, dir)
		before := pss(b, pid)

		straight := newStraight(b, url, key)
		leave := []func() error{straight.Session()}
		for i := range 1000 {
			if err := straight.Open(); err != nil {
				b.Fatal(err)
			}
			leave = append(leave, straight.Session())
			link, err := bench.DialLink(url, key, i)
			if err != nil {
				b.Fatal(err)
			}
			leave = append(leave, link.Close)
		}
		added = pss(b, pid) - before
		for _, l := range leave {
			if err := l(); err != nil {
				b.Fatal(err)
			}
		}
		// The server frees memory some time after the last has gone: the
		// least of what is seen is what is left.
		left = added
		for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline) && left > added/10; {
			left = min(left, pss(b, pid)-before)
			time.Sleep(100 * time.Millisecond)
		}
	}
	b.ReportMetric(added, "MiB-added")
	b.ReportMetric(100*left/added, "%-left")
}
