package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"majordomus/cmd/majordomus/bench"
)

// TestHealthAsksNoProcess has health, which whoever reaches the port may ask for,
// look at hosted servers without reading what each process of the machine is
// doing: only who wants to know their memory pays for that.
func TestHealthAsksNoProcess(t *testing.T) {
	c := accFresh(t)
	upstream, err := hubUpstream()
	if err != nil {
		t.Fatal(err)
	}
	c.hosts(map[string]hubServer{"a": {Command: upstream}, "b": {Command: upstream}})
	c.mustRun("trust", "--yes")
	e := c.boardEditor("claude-code")
	accPoll(t, 30*time.Second, "both run", func() error {
		if out := c.mustRun("upstream", "list"); strings.Count(out, "ready") != 2 {
			return errors.New(out)
		}
		return nil
	})
	pid := c.mustLease().PID
	reads := func(f func()) (n int) {
		t.Helper()
		count := func() (n int) {
			b, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(string(b)) {
				fmt.Sscanf(line, "syscr: %d", &n) // ignore error: another line
			}
			return n
		}
		before := count()
		for range 3 {
			f()
		}
		return count() - before
	}
	health := reads(func() {
		if _, err := e.tool("majordomus_health", map[string]any{}); err != nil {
			t.Fatal(err)
		}
	})
	list := reads(func() { c.mustRun("upstream", "list") })
	t.Logf("3 looks at health read %d times, 3 at the hosted servers and their memory %d times", health, list)
	if health > list/3 {
		t.Errorf("health reads %d times where the memory of hosted servers takes %d", health, list)
	}
}

// TestServerHoldsALargeAnswer has a server pass on large answers of a hosted one,
// one after the other: at its most it holds as much more as three of them.
func TestServerHoldsALargeAnswer(t *testing.T) {
	t.Parallel() // it waits more than it works
	c := accFresh(t)
	upstream, err := hubUpstream()
	if err != nil {
		t.Fatal(err)
	}
	const size = 16 << 20
	c.hosts(map[string]hubServer{"up": {Command: upstream, Args: []string{"-large", fmt.Sprint(size)}}})
	c.mustRun("trust", "--yes")
	e := c.boardEditor("claude-code")
	accPoll(t, 30*time.Second, "the tool is there", func() error {
		if names := e.tools(); !slices.Contains(names, "up__read") {
			return fmt.Errorf("there are %q", names)
		}
		return nil
	})
	peak := func() float64 {
		t.Helper()
		most, err := bench.Peak(c.mustLease().PID)
		if err != nil {
			t.Fatal(err)
		}
		return most
	}
	before := peak()
	for range 8 {
		if got, err := e.tool("up__read", map[string]any{}); err != nil || len(got) != size {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
	}
	took := (peak() - before) / size
	t.Logf("it took %.1f times the answer", took)
	if took > 3 {
		t.Errorf("it took %.1f times the answer", took)
	}
}

// TestBridgeGivesBackALargeMessage has a bridge, of which there is one in every
// editor, keep nothing of a message that it carried: neither what it read it into,
// nor what was put by for the next.
func TestBridgeGivesBackALargeMessage(t *testing.T) {
	t.Parallel() // it waits more than it works
	c := accFresh(t)
	e := c.boardEditor("claude-code")
	anon := func() (kib float64) {
		t.Helper()
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", e.cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			fmt.Sscanf(line, "RssAnon: %f kB", &kib) // ignore error: another line
		}
		return kib
	}
	const size = 16 << 20
	say := func(n int) {
		t.Helper()
		if _, err := e.tool("majordomus_wait", map[string]any{"seconds": 0, "note": strings.Repeat("x", n)}); err != nil {
			t.Fatal(err)
		}
	}
	say(10)
	before := anon()
	say(size)
	peak := anon()
	accPoll(t, 30*time.Second, "the memory is given back", func() error {
		if now := anon(); now > before+size/1024*3/4 {
			return fmt.Errorf("%.0f KiB, of %.0f before and %.0f at most", now, before, peak)
		}
		return nil
	})
	t.Logf("%.0f KiB before, %.0f with the message, %.0f after it", before, peak, anon())
}
