package bridge

import (
	"testing"
)

// audit checks after each change what must always hold. It is called under the
// bridge's mutex.
func audit(t *testing.T) func(*bridge) {
	return func(b *bridge) {
		if b.ended {
			return
		}
		owed, held := 0, 0
		waiting := map[*call]bool{}
		for _, w := range b.waiting {
			if w.call == nil {
				held += len(w.line)
			} else if !w.call.gone {
				held += len(w.line)
				if waiting[w.call] {
					t.Errorf("call %s waits twice", w.call.id)
				}
				waiting[w.call] = true
			}
		}
		if held != b.held {
			t.Errorf("%d bytes wait, %d are counted", held, b.held)
		}
		if b.link != nil && b.incoming == nil && len(b.waiting) > 0 {
			t.Errorf("%d lines wait although there is a link", len(b.waiting))
		}
		live := map[*link]bool{}
		onLink := map[*call]bool{}
		for _, l := range b.links {
			live[l] = true
			inflight := 0
			for n, c := range l.calls {
				onLink[c] = true
				if c.link != l || c.n != n || c.gone {
					t.Errorf("call %s is on a link that it does not know", c.id)
				}
				if !c.listen && !c.refused {
					inflight++
				}
			}
			asked := 0
			for _, q := range b.questions {
				if q.link == l {
					asked++
				}
			}
			if inflight != l.inflight || asked != l.asked || l.dead {
				t.Errorf("a link counts %d calls of %d, %d questions of %d, dead %v", l.inflight, inflight, l.asked, asked, l.dead)
			}
			if l.busy() && l.due.IsZero() {
				t.Error("nobody looks after a busy link")
			}
		}
		for id, c := range b.calls {
			if !c.listen {
				owed++
			}
			switch {
			case c.id != id || c.gone:
				t.Errorf("call %s is forgotten but there", id)
			case c.waiting != waiting[c]:
				t.Errorf("call %s waits: %v, and is in the queue: %v", id, c.waiting, waiting[c])
			case onLink[c] != (c.link != nil):
				t.Errorf("call %s is on a link: %v, and thinks so: %v", id, onLink[c], c.link != nil)
			case c.waiting && c.link != nil:
				t.Errorf("call %s waits and is sent", id)
			case !c.waiting && c.link == nil && !c.listen:
				t.Errorf("call %s is nowhere", id)
			case c.link != nil && !c.accepted && c.line == nil:
				t.Errorf("call %s cannot be sent again", id)
			}
		}
		if owed != b.owed {
			t.Errorf("%d answers are owed, %d are counted", owed, b.owed)
		}
		for _, l := range []*link{b.link, b.incoming} {
			if l != nil && !live[l] {
				t.Error("a dead link is in use")
			}
		}
		for _, q := range b.questions {
			if !live[q.link] {
				t.Errorf("question %s has no server", q.id)
			}
		}
		for id, r := range b.replays {
			if !live[r.link] || r.link.calls[r.n] != r {
				t.Errorf("replay %s is nowhere", id)
			}
		}
		if b.owed > 0 && b.link == nil && b.incoming == nil && !b.seeking && len(waiting) > 0 {
			t.Error("calls wait and nobody looks for a server")
		}
	}
}
