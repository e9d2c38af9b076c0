//go:build unix

package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The benchmarks take their ratios in pairs within one run, because the speed
// of the machine changes between runs and within them. Their figure is the
// median of the pairs' ratios; the floors are programs in testdata/bench.

const hello = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}` + "\n"

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
type talker struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func talk(b *testing.B, dir, program string, args ...string) *talker {
	b.Helper()
	cmd := exec.Command(program, args...)
	cmd.Dir = dir
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	return &talker{cmd, in, bufio.NewReaderSize(out, 64<<10)}
}

func (t *talker) ask(b *testing.B, line string) []byte {
	if _, err := io.WriteString(t.in, line); err != nil {
		b.Fatal(err)
	}
	answer, err := t.out.ReadSlice('\n')
	if err != nil {
		b.Fatalf("reading the answer: %v", err)
	}
	return answer
}

func (t *talker) end() {
	t.in.Close()
	t.cmd.Wait() // ignore error: it did its work
}

func median(x []float64) float64 {
	slices.Sort(x)
	return x[len(x)/2]
}

// BenchmarkStart reports how long an editor waits for the answer to its
// initialize, from the start of the process on, in starts of an empty Go
// program: cold without a server, warm with one.
func BenchmarkStart(b *testing.B) {
	majordomus, empty := buildFor(b, "."), buildFor(b, "./testdata/bench/empty")
	start := func(dir string) time.Duration {
		began := time.Now()
		t := talk(b, dir, majordomus, "mcp")
		if a := t.ask(b, hello); !bytes.Contains(a, []byte(`"result"`)) {
			b.Fatalf("initialize: %s", a)
		}
		took := time.Since(began)
		t.end()
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
			b.ReportMetric(median(ratios), "x-empty-program")
		})
	}
	run("cold", true)
	run("warm", false)
}

// BenchmarkCall reports what one small call costs through bridge, link and
// server, in calls through a byte mover of the same hops: a call of a tool, and
// a request that mcp-go has little to do for, which is what the way itself costs.
func BenchmarkCall(b *testing.B) {
	majordomus, mover := buildFor(b, "."), buildFor(b, "./testdata/bench/mover")
	for name, line := range map[string]string{
		"tool": smallCall + "\n",
		"ping": `{"jsonrpc":"2.0","id":7,"method":"ping"}` + "\n",
	} {
		b.Run(name, func(b *testing.B) { benchCall(b, majordomus, mover, line) })
	}
}

func benchCall(b *testing.B, majordomus, mover, line string) {
	dir := benchCheckout(b, majordomus)
	ours := talk(b, dir, majordomus, "mcp")
	defer ours.end()
	ours.ask(b, hello)
	io.WriteString(ours.in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n")

	serve := talk(b, dir, mover, "serve")
	defer serve.end()
	addr, err := serve.out.ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	floor := talk(b, dir, mover, "join", strings.TrimSpace(addr))
	defer floor.end()

	time1 := func(t *talker) float64 {
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
	b.ReportMetric(median(a)/median(z), "x-byte-mover")
	b.ReportMetric(median(a)/1e3, "µs-p50")
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
		var bridges []*talker
		for range 8 {
			t := talk(b, dir, majordomus, "mcp")
			t.ask(b, hello)
			bridges = append(bridges, t)
		}
		one, all = 0, pss(b, serverPID(b, dir))
		for _, t := range bridges {
			p := pss(b, t.cmd.Process.Pid)
			one, all = max(one, p), all+p
		}
		for _, t := range bridges {
			t.end()
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
	roll, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(roll)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "Pss:" {
			kb, err := strconv.ParseFloat(f[1], 64)
			if err != nil {
				b.Fatal(err)
			}
			return kb / 1024
		}
	}
	b.Fatal("smaps_rollup has no Pss")
	return 0
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

		var sessions []string
		client := &http.Client{}
		for range 1000 {
			req, _ := http.NewRequest("POST", url+"/mcp", strings.NewReader(hello))
			req.Header.Set("Authorization", "Bearer "+key)
			req.Header.Set("Content-Type", "application/json")
			resp, err := client.Do(req)
			if err != nil {
				b.Fatal(err)
			}
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			if resp.StatusCode != 200 {
				b.Fatalf("initialize: %s", resp.Status)
			}
			sessions = append(sessions, resp.Header.Get("Mcp-Session-Id"))
		}
		var links []io.Closer
		for i := range 1000 {
			links = append(links, dialLink(b, url, key, i))
		}
		added = pss(b, pid) - before
		for _, l := range links {
			l.Close()
		}
		for _, id := range sessions {
			req, _ := http.NewRequest("DELETE", url+"/mcp", nil)
			req.Header.Set("Authorization", "Bearer "+key)
			req.Header.Set("Mcp-Session-Id", id)
			resp, err := client.Do(req)
			if err != nil {
				b.Fatal(err)
			}
			resp.Body.Close()
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
