package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// TestLossNothingStays starts and ends bridges, some of them in the middle, and
// looks at what is left: processes, and the server's descriptors and peers.
func TestLossNothingStays(t *testing.T) {
	t.Parallel()
	rounds := lossLong(500, 60)
	c := accFresh(t)
	keep := c.editor()
	keep.mustOpen()
	server := c.mustLease().PID
	descriptors := func() int {
		entries, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(server), "fd"))
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	// Files that it looks at now and then are open for moments: the fewest count.
	flat := func(most int) (least int) {
		accPoll(t, 20*time.Second, "all must be as before", func() error {
			least = descriptors()
			for range 10 {
				time.Sleep(5 * time.Millisecond)
				least = min(least, descriptors())
			}
			if pids := c.pids(); len(pids) != 2 {
				return fmt.Errorf("the processes are %v", pids)
			}
			if s := keep.mustServer(); s.Peers != 1 {
				return fmt.Errorf("%d peers are there", s.Peers)
			}
			if least > most {
				return fmt.Errorf("the server has %d descriptors, and had %d", least, most)
			}
			return nil
		})
		return least
	}
	round := func(i int) {
		e := c.editor()
		switch kill := func() { e.cmd.Process.Kill() }; i % 6 { // ignore error: it is waited for
		case 0:
			kill()
		case 1:
			time.Sleep(rand.N(20 * time.Millisecond))
			kill()
		case 2:
			e.mustOpen()
			kill()
		case 3:
			e.mustOpen()
			if _, err := e.ask("tools/call", map[string]any{"name": "majordomus_wait", "arguments": map[string]any{"seconds": 300}}); err != nil {
				t.Fatal(err)
			}
			e.mustServer()
			kill()
		default:
			e.mustOpen()
			e.close()
		}
		<-e.ended
		e.cmd.Wait() // ignore error: some were killed
	}
	for i := range 6 {
		round(i)
	}
	before := flat(1 << 20)
	for i := range rounds {
		round(i)
	}
	after := flat(before)
	t.Logf("%d bridges came and went: %d descriptors before, %d after", rounds, before, after)
	if c.mustLease().PID != server {
		t.Error("the server is another one")
	}
}
