//go:build unix

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"majordomus/cmd/majordomus/bench"
)

// BenchmarkEnv reports how long a prompt waits when a shell enters a checkout
// whose server is up, and how long `env` takes, in runs of an empty Go program;
// and how long it waits when the server has to be started, in such warm entries.
func BenchmarkEnv(b *testing.B) {
	majordomus, empty := buildFor(b, "."), buildFor(b, "./testdata/bench/empty")
	time1 := func(dir, program string, args ...string) float64 {
		cmd := exec.Command(program, args...)
		cmd.Dir = dir
		began := time.Now()
		if err := cmd.Run(); err != nil {
			b.Fatal(err)
		}
		return float64(time.Since(began))
	}
	entrable := func(b *testing.B) string {
		dir := benchCheckout(b, majordomus)
		if err := os.Mkdir(filepath.Join(dir, ".ai"), 0o755); err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, ".ai/manifest.yaml"), nil, 0o644); err != nil {
			b.Fatal(err)
		}
		run(b, majordomus, "serve", "ensure", "--root", dir)
		return dir
	}
	enter := []string{"env", "enter", "--shell", "bash"}
	for name, words := range map[string][]string{"warm": enter, "snapshot": {"env"}} {
		b.Run(name, func(b *testing.B) {
			dir := entrable(b)
			var ratios []float64
			for b.Loop() {
				floor := time1(dir, empty)
				ratios = append(ratios, time1(dir, majordomus, words...)/floor)
			}
			b.ReportMetric(bench.Median(ratios), "x-empty-program")
		})
	}
	b.Run("cold", func(b *testing.B) {
		dir := entrable(b)
		var ratios []float64
		for b.Loop() {
			warm := time1(dir, majordomus, enter...)
			b.StopTimer()
			stopServer(b, majordomus, dir)
			b.StartTimer()
			ratios = append(ratios, time1(dir, majordomus, enter...)/warm)
			b.StopTimer()
			run(b, majordomus, "serve", "ensure", "--root", dir)
			if err := bench.Alone(b.Context(), dir, serverPID(b, dir)); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
		}
		b.ReportMetric(bench.Median(ratios), "x-warm")
	})
}
