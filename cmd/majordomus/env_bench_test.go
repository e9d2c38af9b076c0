//go:build unix

package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"
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
			b.ReportMetric(median(ratios), "x-empty-program")
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
			alone(b, dir)
			b.StartTimer()
		}
		b.ReportMetric(median(ratios), "x-warm")
	})
}

// alone waits until only the server is left of what was started in dir: what
// looks for one in the background must not find none after its end.
func alone(b *testing.B, dir string) {
	b.Helper()
	if runtime.GOOS != "linux" {
		time.Sleep(200 * time.Millisecond) // nothing tells
		return
	}
	pid := strconv.Itoa(serverPID(b, dir))
	err := accUntil(10*time.Second, func() error {
		links, err := filepath.Glob("/proc/[0-9]*/cwd")
		if err != nil {
			return err
		}
		for _, l := range links {
			if to, err := os.Readlink(l); err == nil && to == dir && filepath.Base(filepath.Dir(l)) != pid {
				return errors.New(l)
			}
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
}
