//go:build unix

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"majordomus/install"
	"majordomus/server/hub/config"
)

func TestBenchHelp(t *testing.T) {
	t.Parallel()
	c := accFresh(t)
	golden(t, filepath.Join("testdata", "benchmark", "help.txt"), c.mustRun("bench", "--help"))
}

// TestBenchTable has the tables of figures that are what they are.
func TestBenchTable(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	b := &benchmark{app: &app{out: &out, format: "text"}, result: benchReport{Version: "v1.2.3", OS: "linux", Arch: "amd64", CPUs: 2, Seconds: 49.6, Figures: benchFigures()}}
	b.print = func(format string, args ...any) { fmt.Fprintf(&out, format, args...) }
	load := 8.125
	b.result.Load = &load
	b.heading()
	for i, f := range b.result.Figures {
		value, p95, ratio := 1.5*float64(i*i+1), 700*float64(i+1), 0.25*float64(i)
		var err error
		switch {
		case f.ID == "memory_left":
			f.LeftOut = "with --quick"
		case f.Group == "board":
			err = errors.New("first line\nsecond line")
		case f.Over == "":
			f.Value, f.N = &value, 1
		case f.Group == "start" && i > 0:
			f.Value, f.P95, f.N, f.LeftOut = &value, &p95, 7, "the empty program"
		default:
			f.Value, f.P95, f.Beside, f.Ratio, f.N = &value, &p95, &value, &ratio, 1000*(i+1)
		}
		b.settle(f, err)
	}
	b.result.Other = &otherTable{Command: []string{"npx", "-y", "a-server"}, Server: "a 1.0", Tool: "look", Figures: otherFigures()}
	b.otherHeading()
	for i, f := range b.result.Other.Figures {
		if i%4 == 3 {
			f.LeftOut = "with --quick" // as above: one note
		} else {
			f.memory(float64(i+1)*(1<<20), 3<<20)
		}
		b.otherRow(f)
	}
	b.closing()
	golden(t, filepath.Join("testdata", "benchmark", "table.txt"), out.String())
}

// benching is a checkout in whose runs of the benchmark nothing may be left.
func benching(t *testing.T) *accCheckout {
	t.Helper()
	c := accFresh(t)
	temp := filepath.Join(c.home, "tmp")
	if err := os.Mkdir(temp, 0o700); err != nil {
		t.Fatal(err)
	}
	cache, err := exec.Command("go", "env", "GOCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	// The last of two counts.
	c.extra = append(c.extra, "TMPDIR="+temp, "GOCACHE="+strings.TrimSpace(string(cache)))
	t.Cleanup(func() {
		benchLeft(t, temp)
		account := filepath.Join(filepath.Dir(c.program), "account")
		list, err := install.OpenRegister(filepath.Dir(config.TrustDir(account))).List()
		if err != nil {
			t.Error(err)
		}
		for _, s := range list {
			if strings.HasPrefix(s.Root, temp) {
				t.Errorf("the account remembers %s", s.Root)
			}
		}
	})
	return c
}

// benchLeft finds what was left behind: files, and processes, which have the
// folder for temporary files in their environment.
func benchLeft(t *testing.T, temp string) {
	t.Helper()
	left, err := os.ReadDir(temp)
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
	if runtime.GOOS != "linux" {
		return
	}
	accPoll(t, 10*time.Second, "processes are left behind", func() error {
		all, err := filepath.Glob("/proc/[0-9]*/environ")
		if err != nil {
			return err
		}
		for _, path := range all {
			if b, err := os.ReadFile(path); err == nil && bytes.Contains(b, []byte("TMPDIR="+temp)) {
				line, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline")) // ignore error: it may have ended
				return fmt.Errorf("%s: %q", path, line)
			}
		}
		return nil
	})
}

// shapeOf is what a document is made of, a line a member.
func shapeOf(path string, v any, into *[]string) {
	switch v := v.(type) {
	case map[string]any:
		for key, x := range v {
			shapeOf(path+"."+key, x, into)
		}
	case []any:
		for _, x := range v {
			shapeOf(path+"[]", x, into)
		}
	default:
		*into = append(*into, fmt.Sprintf("%s %T", path, v))
	}
}

// TestBenchAll takes every figure, a few times each, and looks at the document:
// no figure is missing that this machine can give, and its members stay what
// they are.
func TestBenchAll(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		accNeed(t, false, "proportional memory is read from /proc")
	}
	c := benching(t)
	upstream, err := hubUpstream()
	if err != nil {
		t.Fatal(err)
	}
	out := c.mustRun("bench", "--format", "json", "--within", "8s", "--quick", "--", upstream, "-banner")
	var report benchReport
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if len(report.Figures) != len(benchFigures()) || report.Other == nil || len(report.Other.Figures) != len(otherFigures()) {
		t.Fatalf("%s", out)
	}
	judged := 0
	for _, f := range report.Figures {
		if f.ID == "memory_left" { // takes longer
			continue
		}
		if f.Value == nil || f.Over != "" && (f.Ratio == nil || *f.Ratio <= 0) || f.N == 0 || f.LeftOut != "" {
			t.Errorf("%s is not all there: %s", f.ID, f.LeftOut)
		}
		if (f.Met != nil) != (f.Asked != nil) {
			t.Errorf("%s is asked for %v and met %v", f.ID, f.Asked, f.Met)
		}
		if f.Met != nil {
			judged++
		}
	}
	if report.Met+report.Missed != judged {
		t.Errorf("%d met, %d missed of %d", report.Met, report.Missed, judged)
	}
	for _, f := range report.Other.Figures {
		if f.Ours == nil || f.Theirs == nil || f.Ratio == nil || f.N == 0 || f.LeftOut != "" {
			t.Errorf("%s of the other is not all there: %s", f.ID, f.LeftOut)
		}
	}
	if report.Other.Tool != "read" || report.Other.Server != "upstream 1" {
		t.Errorf("the other is %q, its tool %q", report.Other.Server, report.Other.Tool)
	}
	var document any
	if err := json.Unmarshal([]byte(out), &document); err != nil {
		t.Fatal(err)
	}
	var shape []string
	shapeOf("", document, &shape)
	slices.Sort(shape)
	golden(t, filepath.Join("testdata", "benchmark", "shape.txt"), strings.Join(slices.Compact(shape), "\n")+"\n")
}

// TestBenchOdd has commands beside it that are no servers, and servers that die
// and hang.
func TestBenchOdd(t *testing.T) {
	t.Parallel()
	upstream, err := hubUpstream()
	if err != nil {
		t.Fatal(err)
	}
	slow := filepath.Join(t.TempDir(), "slow")
	if err := os.WriteFile(slow, []byte("2m"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, words := range map[string][]string{
		"echoes":      {"cat"},
		"missing":     {"no-such-program"},
		"dies":        {"sh", "-c", "echo no database >&2; exit 3"},
		"prints":      {"sh", "-c", "echo usage: a-server FILE; exit 0"},
		"hangs":       {upstream, "-slow", slow},
		"no-protocol": {"sh", "-c", `read x; echo '{"jsonrpc":"2.0","id":7,"result":{}}'; read x`},
		"refuses":     {"sh", "-c", `read x; echo '{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":"not today"}}'; read x`},
	} {
		t.Run(name, func(t *testing.T) {
			c := benching(t)
			within := "20s" // what is no server says so at once
			if name == "hangs" {
				within = "1s"
			}
			out, log, err := c.run(append([]string{"bench", "--within", within, "--"}, words...)...)
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != exitFailed || out != "" {
				t.Errorf("%v: %s", err, out)
			}
			log = strings.NewReplacer(upstream, "UPSTREAM", slow, "SLOW", os.Getenv("PATH"), "PATH").Replace(log)
			golden(t, filepath.Join("testdata", "benchmark", "odd-"+name+".txt"), log)
		})
	}
	for call, why := range map[string]string{"hang": "it has not answered within", "die": "it has ended: exited with code 4; on its standard error: no more"} {
		t.Run(call, func(t *testing.T) {
			c := benching(t)
			out := c.mustRun("bench", "--only", "other", "--within", "5s", "--format", "json", "--", upstream, "-call", call, "-banner")
			var report benchReport
			if err := json.Unmarshal([]byte(out), &report); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if len(report.Figures) != 0 {
				t.Errorf("other figures were taken")
			}
			for _, f := range report.Other.Figures {
				if called := strings.HasSuffix(f.ID, "call") || f.ID == "hosted_eight"; called && !strings.Contains(f.LeftOut, why) || !called && f.Ratio == nil {
					t.Errorf("%s: %v %q", f.ID, f.Ratio, f.LeftOut)
				}
			}
		})
	}
}

func TestBenchWords(t *testing.T) {
	t.Parallel()
	c := benching(t)
	for _, words := range [][]string{
		{"cat"}, {"--tool", "read"}, {"--arguments", "{}", "--", "cat"}, {"--tool", "a", "--arguments", "[]", "--", "cat"}, {"--only", "starts"},
	} {
		out, log, err := c.run(append([]string{"bench"}, words...)...)
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != exitWords || out != "" || log == "" {
			t.Errorf("%q: %v: %s%s", words, err, out, log)
		}
	}
}

// TestBenchInterrupted ends it in the middle; nothing may be left of it either.
func TestBenchInterrupted(t *testing.T) {
	t.Parallel()
	c := benching(t)
	cmd := c.command("bench", "--only", "memory,hosted", "--within", "1m")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stuck := time.AfterFunc(time.Minute, func() { cmd.Process.Kill() })
	defer stuck.Stop()
	lines := bufio.NewScanner(out)
	for lines.Scan() && !strings.Contains(lines.Text(), "8 bridges") {
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() {
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != exitFailed {
		t.Errorf("interrupted: %v", err)
	}
}

// TestScratchInterrupted interrupts the benchmark, and the demo, at moments in
// which their first server may be on its way.
func TestScratchInterrupted(t *testing.T) {
	t.Parallel()
	c := benching(t)
	var runs sync.WaitGroup
	for _, words := range [][]string{{"bench", "--only", "call"}, {"demo"}} {
		for ms := 10; ms <= 120; ms += 10 {
			runs.Go(func() {
				cmd := c.command(words...)
				if err := cmd.Start(); err != nil {
					t.Error(err)
					return
				}
				stuck := time.AfterFunc(time.Minute, func() { cmd.Process.Kill() })
				defer stuck.Stop()
				time.Sleep(time.Duration(ms) * time.Millisecond) // whatever it is doing then
				cmd.Process.Signal(syscall.SIGINT)               // ignore error: then it has ended
				cmd.Wait()                                       // ignore error: what it leaves counts
			})
		}
	}
	runs.Wait()
}

func TestNumber(t *testing.T) {
	t.Parallel()
	for x, want := range map[float64]string{0: "0", 0.004: "0.00", 1.5: "1.50", 3: "3", 9.994: "9.99", 9.996: "10.0", 99.94: "99.9", 99.96: "100", 1234.5: "1234"} {
		if got := number(x); got != want {
			t.Errorf("%v: %s, want %s", x, got, want)
		}
	}
}
