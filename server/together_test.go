package server

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"majordomus/lease"
)

// Of what one client says without waiting, each stands before the next is looked
// at: of two words on one claim the last, and a board that is asked for behind
// them has it. A bridge tells the next server all claims in one breath.
func TestAnnouncedInOrder(t *testing.T) {
	p := settle(t, nil)
	l := p.peer("1111")
	for round := range 50 {
		var all []string
		for i := range 20 {
			all = append(all, call(fmt.Sprintf(`"a%d"`, i), "majordomus_announce", fmt.Sprintf(`{"intent":"x","claim":"c%d","scope":["r%d/%d"]}`, i%3, round, i)))
		}
		l.say(strings.Join(append(all, call(`"peers"`, "majordomus_peers", `{"checkouts":"this"}`)), "\n"))
		got := l.hear(`"id":"peers"`)
		for i := 17; i < 20; i++ {
			if want := fmt.Sprintf(`["r%d/%d"]`, round, i); !strings.Contains(got, want) {
				t.Fatalf("round %d: the board has no %s: %s", round, want, got)
			}
		}
		for i := range 20 {
			l.hear(fmt.Sprintf(`"id":"a%d"`, i))
		}
	}
}

// While an announcement waits for a server elsewhere that says nothing, what its
// client says next is read, and the claim stands.
func TestAnnouncedWhileOthersAreSilent(t *testing.T) {
	roots := gitWorktrees(t, 2)
	here, there := newPlace(t, roots[0]), newPlace(t, roots[1])
	here.prepare(nil)
	here.run()
	there.prepare(nil)
	if err := there.tenure.Publish(there.url); err != nil { // which it never answers at
		t.Fatal(err)
	}
	l := here.peer("1111")
	l.say(call(`"announce"`, "majordomus_announce", `{"intent":"x","scope":["src"]}`) + "\n" + call(`"peers"`, "majordomus_peers", `{"checkouts":"this"}`))
	if got := l.hear(`"id":"peers"`); !strings.Contains(got, `["src"]`) {
		t.Error(got)
	}
	if slices.ContainsFunc(l.past, func(s string) bool { return strings.Contains(s, `"id":"announce"`) }) {
		t.Error("the announcement did not wait for the others")
	}
	began := time.Now()
	if got := l.hear(`"id":"announce"`); !strings.Contains(got, `"complete":false`) {
		t.Error(got)
	}
	if took := time.Since(began); took > patience {
		t.Error(took)
	}
}

// A lease that a killed server left behind is read once, and the next server's
// is not taken for it.
func TestLeasesLeftBehind(t *testing.T) {
	roots := gitWorktrees(t, 2)
	here, there := newPlace(t, roots[0]), newPlace(t, roots[1])
	for _, p := range []*place{here, there} {
		p.prepare(nil)
		p.run()
	}
	one := here.peer("1111")
	state := func() string {
		t.Helper()
		seen := one.peers(`{}`)
		if !seen.Complete || len(seen.Boards) != 2 {
			t.Fatalf("%+v", seen)
		}
		return seen.Boards[1].State
	}
	if got := state(); got != "served" {
		t.Error(got)
	}
	// What is left of a killed server: its lease, and a file that nobody locks.
	path := filepath.Join(there.checkout.StateDir(), "server.json")
	left, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	alive, err := filepath.Glob(filepath.Join(filepath.Dir(path), "server.*.alive"))
	if err != nil || len(alive) != 1 {
		t.Fatal(alive, err)
	}
	there.server.stop(true)
	there.ended()
	for file, b := range map[string][]byte{path: left, alive[0]: nil} {
		if err := os.WriteFile(file, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if got := state(); got != "none" {
			t.Error(got)
		}
	}
	w := &here.server.worktrees
	info, _ := lease.Kept(there.checkout)
	if !w.isDead(there.checkout, info) {
		t.Error("it is read again and again")
	}
	next := newPlace(t, roots[1])
	next.prepare(nil)
	next.run()
	next.peer("2222")
	if seen := one.peers(`{}`); seen.Boards[1].State != "served" || len(seen.Peers) != 2 {
		t.Errorf("%+v", seen)
	}
}
