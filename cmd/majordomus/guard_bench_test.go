//go:build unix

package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"majordomus/cmd/majordomus/bench"
)

// BenchmarkGuard reports how long a commit waits for the guard, in runs of the
// version word: without a server, with one where nobody announced anything, and
// with a claim that the commit meets, for which git is asked what is staged.
func BenchmarkGuard(b *testing.B) {
	majordomus := buildFor(b, ".")
	time1 := func(dir string, args ...string) float64 {
		cmd := exec.Command(majordomus, args...)
		cmd.Dir = dir
		began := time.Now()
		if err := cmd.Run(); err != nil {
			b.Fatal(err)
		}
		return float64(time.Since(began))
	}
	measure := func(b *testing.B, dir string) {
		var ratios []float64
		for b.Loop() {
			ratios = append(ratios, time1(dir, "guard")/time1(dir, "version"))
		}
		b.ReportMetric(bench.Median(ratios), "x-version")
	}
	b.Run("no-server", func(b *testing.B) { measure(b, benchCheckout(b, majordomus)) })
	for name, scope := range map[string]string{"no-claim": "", "claim": `"src"`} {
		b.Run(name, func(b *testing.B) {
			dir := benchCheckout(b, majordomus)
			if err := os.MkdirAll(filepath.Join(dir, "src"), 0o755); err != nil {
				b.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "src", "a"), nil, 0o644); err != nil {
				b.Fatal(err)
			}
			if msg, err := exec.Command("git", "-C", dir, "add", "src").CombinedOutput(); err != nil {
				b.Fatalf("git add: %v: %s", err, msg)
			}
			editor := talk(b, dir, majordomus, "mcp")
			defer editor.End()
			editor.ask(b, bench.Initialize)
			io.WriteString(editor.In, bench.Initialized)
			if a := editor.ask(b, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"majordomus_announce","arguments":{"intent":"x","scope":[`+scope+`]}}}`+"\n"); !bytes.Contains(a, []byte(`"peer"`)) {
				b.Fatalf("announcing: %s", a)
			}
			measure(b, dir)
		})
	}
}
