package server

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
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
