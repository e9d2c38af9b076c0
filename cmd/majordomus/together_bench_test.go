//go:build unix

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"majordomus/cmd/majordomus/bench"
)

// benchTrees is a repository with so many work trees, of which some serve; one
// editor is in the first. Dead ones have the lease of a server that was killed.
func benchTrees(b *testing.B, program string, trees, serve int, dead bool) talker {
	b.Helper()
	dir := b.TempDir()
	main := filepath.Join(dir, "main")
	git := func(args ...string) {
		b.Helper()
		cmd := exec.Command("git", append([]string{"-C", main, "-c", "user.name=a", "-c", "user.email=a@example.org"}, args...)...)
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
		if out, err := cmd.CombinedOutput(); err != nil {
			b.Fatalf("git %q: %v: %s", args, err, out)
		}
	}
	if err := os.Mkdir(main, 0o755); err != nil {
		b.Fatal(err)
	}
	git("init", "-q", "-b", "main")
	git("commit", "-q", "--allow-empty", "-m", "first")
	roots := []string{main}
	for i := range trees - 1 {
		root := filepath.Join(dir, fmt.Sprintf("tree%02d", i))
		git("worktree", "add", "-q", "-b", filepath.Base(root), root)
		roots = append(roots, root)
	}
	const announce = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"majordomus_announce","arguments":{"intent":"work","scope":["src/%d"]}}}` + "\n"
	var first talker
	for i, root := range roots[:serve] {
		t := talk(b, root, program, "mcp")
		b.Cleanup(func() { stopServer(b, program, root) })
		b.Cleanup(t.End)
		t.ask(b, bench.Initialize)
		t.answer(b, fmt.Sprintf(announce, i))
		if i == 0 {
			first = t
		}
	}
	if !dead {
		return first
	}
	state := func(root, name string) string { return filepath.Join(root, ".ai", "local", "state", "mcp", name) }
	lease, err := os.ReadFile(state(main, "server.json"))
	if err != nil {
		b.Fatal(err)
	}
	alive, err := filepath.Glob(state(main, "server.*.alive"))
	if err != nil || len(alive) != 1 {
		b.Fatalf("alive files: %q, %v", alive, err)
	}
	for _, root := range roots[serve:] {
		if err := os.MkdirAll(state(root, ""), 0o700); err != nil {
			b.Fatal(err)
		}
		// At a port where nobody is.
		left := bytes.ReplaceAll(lease, []byte(main), []byte(root))
		at := bytes.Index(left, []byte("http://127.0.0.1:"))
		end := at + bytes.IndexByte(left[at:], '"')
		left = slices.Concat(left[:at], []byte("http://127.0.0.1:9"), left[end:])
		for name, content := range map[string][]byte{"server.json": left, filepath.Base(alive[0]): nil, "key": []byte(root), "server.lock": nil} {
			if err := os.WriteFile(state(root, name), content, 0o600); err != nil {
				b.Fatal(err)
			}
		}
	}
	return first
}

// BenchmarkTrees reports what the board of a repository with a hundred work
// trees of which seven serve costs, in times of that of seven which all serve:
// while nobody serves in the others, and while each has the lease of a server
// that was killed.
func BenchmarkTrees(b *testing.B) {
	if _, err := exec.LookPath("git"); err != nil {
		b.Skip(err)
	}
	program := buildFor(b, ".")
	for _, dead := range []bool{false, true} {
		name := "idle"
		if dead {
			name = "dead"
		}
		b.Run(name, func(b *testing.B) {
			few, many := benchTrees(b, program, 7, 7, false), benchTrees(b, program, 100, 7, dead)
			line := bench.Call("majordomus_peers", "{}")
			for i, t := range []talker{few, many} {
				trees := []int{7, 100}[i]
				answer := string(t.answer(b, line))
				if n := strings.Count(answer, `"state":"served"`); n != 7 || strings.Count(answer, `"checkout_id"`) != trees+7 || !strings.Contains(answer, `"complete":true`) {
					b.Fatalf("%d serve of %d: %.2000s", n, trees, answer)
				}
			}
			for range 20 { // both warm
				timed{few, line}.once(b)
				timed{many, line}.once(b)
			}
			var ratios, all []float64
			for b.Loop() {
				floor := timed{few, line}.once(b)
				all = append(all, timed{many, line}.once(b))
				ratios = append(ratios, all[len(all)-1]/floor)
			}
			b.ReportMetric(bench.Median(ratios), "x-seven")
			b.ReportMetric(bench.Median(all)/1e6, "ms-p50")
		})
	}
}
