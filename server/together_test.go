package server

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"majordomus/lease"
	"majordomus/server/board"
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

// Two bridges whose ids begin the same are told apart, and each keeps its name
// on the next server, whoever comes there first. Nobody chooses a name.
func TestPeersThatWouldHaveOneName(t *testing.T) {
	const one, two = "abcd1111-0000-4000-8000-000000000000", "ABCD2222-0000-4000-8000-000000000000"
	type names struct{ bridge, called, want string }
	for _, all := range [][]names{
		{{one, "", "pabcd"}, {two, "", "pabcd2"}},
		{{two, "pabcd2", "pabcd2"}, {one, "", "pabcd"}},
		{{two, "pabcd1", "pabcd"}, {one, "", "pabcd1"}},      // that is not its to have
		{{two, "p", "pabcd"}, {one, "pabcd", "pabcd1"}},      // nor are these
		{{two, "pabcd2", "pabcd2"}, {two, "", "pabcd"}},      // one bridge that comes again
		{{"../a..b c\"d", "", "pabcd"}, {"é/", "", "p...."}}, // no UUIDs
	} {
		p := settle(t, nil)
		for _, n := range all {
			bridge := n.bridge
			if n.called != "" {
				bridge += "\r\nMajordomus-Peer: " + n.called
			}
			l := p.link(bridge)
			l.shake()
			if len(n.want) > 5 {
				l.hear("!peer " + n.want)
			}
			got := l.peers(`{}`).You
			if got != n.want && !(n.want == "p...." && regexp.MustCompile("^p[a-z0-9]{4}$").MatchString(got)) {
				t.Errorf("%+v: is called %s", n, got)
			}
		}
	}
}

// What others chose to be called commands no terminal and turns no line around,
// wherever it is shown in words.
func TestWordsOfTheBoardArePlain(t *testing.T) {
	const sly = "a\u202eb\x1b[2J\u009b31m\u2066c\x7f"
	view := board.View{Peer: board.Peer{ID: "p1111", Client: sly, Front: "link"}, Attached: true, Checkout: sly, CheckoutID: "1", Claims: []board.Claim{{Name: sly, Intent: sly, Scope: []string{"src"}}}}
	side := board.Side{Peer: "p1111", Client: sly, Checkout: sly, Intent: sly}
	all := Peers{
		Peers: []board.View{view, view}, Overlaps: []board.Overlap{{Kind: board.KindClaimed, Between: [2]board.Side{side, side}, Paths: [][2]string{{"src", "src"}}}},
		Boards: []BoardState{{Checkout: sly, State: "unread", Reason: sly}, {Checkout: "b"}}, Reasons: []string{sly},
	}
	text := all.words()
	if i := strings.IndexFunc(text, func(r rune) bool { return r != '\n' && unseen(r) }); i >= 0 {
		t.Errorf("%q", text[i:])
	}
	if got := shortName("x\u009by"); got != "xy" {
		t.Errorf("%q", got)
	}
}
