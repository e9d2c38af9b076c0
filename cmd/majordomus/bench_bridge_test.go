//go:build unix

package main

import (
	"bytes"
	"fmt"
	"runtime"
	"syscall"
	"testing"
	"time"

	"majordomus/cmd/majordomus/bench"
)

func newStraight(b *testing.B, url, key string) *bench.Straight {
	b.Helper()
	s, err := bench.NewStraight(url, key)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	return s
}

func credentials(b *testing.B, majordomus, dir string) (url, key string) {
	b.Helper()
	return run(b, majordomus, "serve", "ensure", "--root", dir), run(b, majordomus, "key", "--root", dir)
}

// BenchmarkBridge compares a call through the bridge with the same call straight
// to /mcp on a kept connection: one at a time, and sixteen in flight.
func BenchmarkBridge(b *testing.B) {
	majordomus := buildFor(b, ".")
	dir := benchCheckout(b, majordomus)
	url, key := credentials(b, majordomus, dir)
	ours := talk(b, dir, majordomus, "mcp")
	defer ours.End()
	ours.ask(b, bench.Initialize)
	b.Run("one", func(b *testing.B) {
		direct := newStraight(b, url, key)
		through := func() float64 {
			began := time.Now()
			ours.ask(b, smallCall())
			return float64(time.Since(began))
		}
		past := func() float64 {
			began := time.Now()
			if err := direct.Ask(smallCall()); err != nil {
				b.Fatal(err)
			}
			return float64(time.Since(began))
		}
		for range 200 { // both warm
			through()
			past()
		}
		var x, y []float64
		for b.Loop() {
			x = append(x, through())
			y = append(y, past())
		}
		b.ReportMetric(bench.Median(x)/bench.Median(y), "x-straight")
	})
	b.Run("sixteen", func(b *testing.B) {
		const width, each = 16, 50
		var direct []*bench.Straight
		for range width {
			direct = append(direct, newStraight(b, url, key))
		}
		// through keeps sixteen calls in flight on the one stream.
		through := func() {
			if err := ours.Flight(smallCall(), width, width*each); err != nil {
				b.Fatal(err)
			}
		}
		past := func() {
			err := together(width, func(i int) error {
				return times(each, func() error { return direct[i].Ask(smallCall()) })
			})
			if err != nil {
				b.Fatal(err)
			}
		}
		through()
		past()
		var ratios []float64
		for b.Loop() {
			began := time.Now()
			past()
			floor := time.Since(began)
			began = time.Now()
			through()
			ratios = append(ratios, float64(floor)/float64(time.Since(began)))
		}
		b.ReportMetric(bench.Median(ratios), "x-straight-throughput")
	})
}

// BenchmarkLarge reports what an answer of 16 MiB costs in times of the byte
// mover, and the most memory that bridge and server had in times of the answer.
// It is one that a server passes on: what is made of JSON by mcp-go costs what
// that takes.
func BenchmarkLarge(b *testing.B) {
	const size = 16 << 20
	program := buildFor(b, ".")
	server, ours := joined(b, program, "take", "give", fmt.Sprint(size))
	_, floor := joined(b, program, "join", "serve", fmt.Sprint(size))
	ours.ask(b, bench.Initialize)
	time1 := func(t talker) float64 {
		began := time.Now()
		n, err := t.Size(smallCall())
		if err != nil {
			b.Fatal(err)
		}
		if n < size {
			b.Fatalf("%d bytes came", n)
		}
		return float64(time.Since(began))
	}
	time1(ours)
	time1(floor)
	var ratios []float64
	for b.Loop() {
		z := time1(floor)
		ratios = append(ratios, time1(ours)/z)
	}
	b.ReportMetric(bench.Median(ratios), "x-byte-mover")
	if runtime.GOOS == "linux" {
		b.ReportMetric(peak(b, ours.PID())/size, "x-message-peak-bridge")
		// The answer itself is kept by the giver and counts once.
		b.ReportMetric(peak(b, server.PID())/size-1, "x-message-peak-server")
	}
}

// peak is the most resident memory that a process had, in bytes.
func peak(b *testing.B, pid int) float64 {
	b.Helper()
	n, err := bench.Peak(pid)
	if err != nil {
		b.Fatal(err)
	}
	return n
}

// BenchmarkRecovery reports how long a client waits for the answer to a call
// that it makes right after its server was killed: the slowest in twenty, in
// cold starts.
func BenchmarkRecovery(b *testing.B) {
	majordomus := buildFor(b, ".")
	dir, cold := benchCheckout(b, majordomus), benchCheckout(b, majordomus)
	ours := talk(b, dir, majordomus, "mcp")
	defer ours.End()
	ours.ask(b, bench.Initialize)
	var starts, recoveries []float64
	for b.Loop() {
		began := time.Now()
		t := talk(b, cold, majordomus, "mcp")
		t.ask(b, bench.Initialize)
		starts = append(starts, float64(time.Since(began)))
		t.End()
		stopServer(b, majordomus, cold)

		if err := syscall.Kill(serverPID(b, dir), syscall.SIGKILL); err != nil {
			b.Fatal(err)
		}
		began = time.Now()
		if a := ours.ask(b, smallCall()); !bytes.Contains(a, []byte(`"result"`)) {
			b.Fatalf("after a kill: %s", a)
		}
		recoveries = append(recoveries, float64(time.Since(began)))
	}
	b.ReportMetric(bench.Quantile(recoveries, 95)/bench.Median(starts), "x-cold-start-p95")
	b.ReportMetric(bench.Median(recoveries)/bench.Median(starts), "x-cold-start-p50")
}
