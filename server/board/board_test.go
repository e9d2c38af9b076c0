package board

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func announce(t testing.TB, b *Board, key, claim string, scope ...string) Announced {
	t.Helper()
	done, err := b.Announce(Peer{Key: key, ID: "p" + key, Client: key}, false, Announcement{claim, "intent", scope})
	if err != nil {
		t.Fatal(err)
	}
	return done
}

// state is who is there and what each claims.
func state(b *Board) string {
	views, _ := b.Views()
	var list []string
	for _, v := range views {
		s := v.ID
		if !v.Attached {
			s += " gone"
		}
		if v.Attached != (v.DepartedAt == nil) {
			s += "?"
		}
		for _, c := range v.Claims {
			s += fmt.Sprintf(" %s%v", c.Name, c.Scope)
		}
		list = append(list, s)
	}
	return strings.Join(list, ", ")
}

// kinds are the events since.
func kinds(t *testing.T, b *Board, after uint64) string {
	t.Helper()
	if b.Newest() == after {
		return ""
	}
	events, _, err := b.Events(t.Context(), after)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for i, e := range events {
		if e.Number != after+uint64(i)+1 {
			t.Errorf("event %d after %d", e.Number, after)
		}
		list = append(list, strings.TrimSpace(e.Kind+" "+e.Peer))
	}
	return strings.Join(list, ", ")
}

// TestComingAndGoing says, step by step, what happens, who is then there, and
// what was told.
func TestComingAndGoing(t *testing.T) {
	at := func(minute int) time.Time { return time.Date(2026, 1, 1, 12, minute, 0, 0, time.UTC) }
	attach := func(session, key string, minute int) func(*Board) {
		return func(b *Board) { b.Attach(session, Peer{Key: key, ID: "p" + key, Since: at(minute)}) }
	}
	detach := func(session string) func(*Board) { return func(b *Board) { b.Detach(session) } }
	say := func(key string, hand bool, claim string, scope ...string) func(*Board) {
		return func(b *Board) {
			if _, err := b.Announce(Peer{Key: key, ID: "p" + key, Since: at(0)}, hand, Announcement{claim, "intent", scope}); err != nil {
				t.Error(err)
			}
		}
	}
	type step struct {
		do    func(*Board)
		state string
		told  string
	}
	for name, steps := range map[string][]step{
		"without claims": {
			{attach("1", "a", 1), "pa", "peer_came pa"},
			{attach("2", "b", 0), "pb, pa", "peer_came pb"},
			{detach("1"), "pb", "peer_went pa"},
			{detach("1"), "pb", ""},
			{detach("unknown"), "pb", ""},
		},
		"with claims": {
			{attach("1", "a", 1), "pa", "peer_came pa"},
			{say("a", false, "", "x"), "pa default[x]", "claimed pa"},
			{detach("1"), "pa gone default[x]", "peer_went pa"},
			{attach("2", "b", 2), "pb, pa gone default[x]", "peer_came pb"},
			{attach("3", "a", 3), "pa default[x], pb", "peer_came pa"},
			{say("a", false, "", "y"), "pa default[y], pb", "claimed pa"},
			{say("a", false, ""), "pa, pb", "withdrawn pa"},
			{detach("3"), "pb", "peer_went pa"},
		},
		"on two sessions at once": {
			{attach("old", "a", 1), "pa", "peer_came pa"},
			{attach("new", "a", 2), "pa", ""},
			{detach("old"), "pa", ""},
			{detach("old"), "pa", ""},
			{attach("new", "a", 2), "pa", ""},
			{detach("new"), "", "peer_went pa"},
		},
		"a session that is another's": {
			{attach("1", "a", 1), "pa", "peer_came pa"},
			{say("a", false, "", "x"), "pa default[x]", "claimed pa"},
			{attach("1", "b", 2), "pb, pa gone default[x]", "peer_went pa, peer_came pb"},
			{detach("1"), "pa gone default[x]", "peer_went pb"},
			{attach("2", "a", 3), "pa default[x]", "peer_came pa"},
		},
		"announced before it came, or after it went": {
			{say("a", false, "", "x"), "pa gone default[x]", "claimed pa"},
			{say("a", false, "more", "y"), "pa gone default[x] more[y]", "claimed pa"},
			{attach("1", "a", 1), "pa default[x] more[y]", "peer_came pa"},
			{detach("1"), "pa gone default[x] more[y]", "peer_went pa"},
			{say("a", false, "more"), "pa gone default[x]", "withdrawn pa"},
			{say("a", false, "default"), "", "withdrawn pa"},
			{say("a", false, "default"), "", ""},
		},
		"by hand": {
			{say("h", true, ""), "", ""},
			{say("h", true, "", "x"), "ph default[x]", "claimed ph"},
			{say("h", true, "two", "y"), "ph default[x] two[y]", "claimed ph"},
			{say("h", true, ""), "ph two[y]", "withdrawn ph"},
			{say("h", true, "none"), "ph two[y]", ""},
			{say("h", true, "two"), "", "withdrawn ph"},
			{say("h", true, "", "x"), "ph default[x]", "claimed ph"},
		},
		// Else a killed editor would be there for ever.
		"by hand for one who is there": {
			{attach("1", "a", 1), "pa", "peer_came pa"},
			{say("a", true, "", "x"), "pa default[x]", "claimed pa"},
			{detach("1"), "pa gone default[x]", "peer_went pa"},
			{say("a", true, "", "y"), "pa default[y]", "claimed pa"},
			{attach("2", "a", 2), "pa default[y]", "peer_came pa"},
			{detach("2"), "pa gone default[y]", "peer_went pa"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := New("shop", "id", false)
			for i, s := range steps {
				before, revision, was := b.Newest(), b.Revision(), state(b)
				s.do(b)
				if got := state(b); got != s.state {
					t.Errorf("step %d: %q, want %q", i, got, s.state)
				}
				if got := kinds(t, b, before); got != s.told {
					t.Errorf("step %d tells %q, want %q", i, got, s.told)
				}
				if s.state != was && b.Revision() == revision {
					t.Errorf("step %d: the revision is the same", i)
				}
			}
		})
	}
}

func TestAttachSaysAnew(t *testing.T) {
	b := New("shop", "id", false)
	since := time.Now()
	who := Peer{Key: "a", ID: "pa", Since: since}
	b.Attach("1", who)
	revision, number := b.Revision(), b.Newest()
	b.Attach("1", who)
	who.Since = since.Add(time.Minute)
	b.Attach("1", who)
	who.Since = time.Time{}
	b.Attach("1", who)
	if b.Revision() != revision {
		t.Error("the same again is a change")
	}
	who.Client, who.Era = strings.Repeat("ä", 1000), "modern"
	b.Attach("1", who)
	views, now := b.Views()
	if v := views[0]; now == revision || b.Newest() != number || v.Era != "modern" || len(v.Client) > mostName+3 || !v.Since.Equal(since) {
		t.Errorf("revision %d of %d, and %+v", now, revision, v)
	}
}

func TestDepartedAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New("shop", "id", false)
		for i := range 100 {
			key := fmt.Sprintf("%03d", i)
			if i%3 > 0 {
				b.Attach(key, Peer{Key: key, ID: key})
			}
			announce(t, b, key, "", "x")
			time.Sleep(time.Second)
			b.Detach(key)
		}
		views, _ := b.Views()
		if len(views) != mostDeparted {
			t.Fatalf("%d have departed", len(views))
		}
		for _, v := range views {
			if v.Key < fmt.Sprintf("%03d", 100-mostDeparted) || v.Attached {
				t.Errorf("there is %s (attached: %v)", v.Key, v.Attached)
			}
		}
		for i := range 100 {
			if i == 40 { // whoever stays is not counted
				announce(t, b, "099", "", "x")
			}
			b.Attach(fmt.Sprint("new", i), Peer{Key: fmt.Sprint("new", i)})
		}
		if views, _ := b.Views(); len(views) != 100+mostDeparted {
			t.Errorf("%d peers", len(views))
		}
	})
}

func TestAnnounceReleases(t *testing.T) {
	for _, fold := range []bool{false, true} {
		b := New("shop", "id", fold)
		b.Attach("1", Peer{Key: "a", ID: "pa"})
		for i, s := range []struct{ scope, released string }{
			{"apps docs", ""},
			{"apps/x docs", "apps"},
			{"apps", "docs"},
			{"apps/*.go **/x", "apps"},
			{"apps *", "**/x"},
			{".", ""},
			{"SRC", "."},
			{"src", map[bool]string{false: "SRC", true: ""}[fold]},
			{"src/**/x", "src"},
			{"src/a/x", "src/**/x"},
			{"src/**/x", ""},
			{"", "src/**/x"},
			{"", ""},
		} {
			scope, err := Scope("/w", strings.Fields(s.scope), fold)
			if err != nil {
				t.Fatal(err)
			}
			got := announce(t, b, "a", "", scope...)
			if strings.Join(got.Released, " ") != s.released || got.Released == nil || got.Overlaps == nil || got.Scope == nil {
				t.Errorf("step %d to %q releases %q, want %q", i, s.scope, got.Released, s.released)
			}
		}
	}
}

func TestAnnounceIsBounded(t *testing.T) {
	b := New("shop", "id", false)
	b.Attach("1", Peer{Key: "a", ID: "pa"})
	revision := b.Revision()
	many := slices.Repeat([]string{"x"}, mostScope+1)
	for _, tt := range []struct {
		argument string
		a        Announcement
	}{
		{"intent", Announcement{"", strings.Repeat("x", mostIntent+1), []string{"x"}}},
		{"intent", Announcement{"", " \n", []string{"x"}}},
		{"claim", Announcement{strings.Repeat("x", 101), "i", []string{"x"}}},
		{"scope", Announcement{"", "i", many}},
		{"scope", Announcement{"", "i", slices.Repeat([]string{strings.Repeat("x", mostPath)}, 17)}},
	} {
		var limit *LimitError
		if _, err := b.Announce(Peer{Key: "a"}, false, tt.a); !errors.As(err, &limit) || limit.Argument != tt.argument || !strings.HasPrefix(err.Error(), tt.argument+": ") {
			t.Errorf("%s: %v", tt.argument, err)
		}
	}
	if b.Revision() != revision {
		t.Error("what is refused is a change")
	}
	for i := range mostClaims {
		announce(t, b, "a", fmt.Sprint(i), "x")
	}
	if _, err := b.Announce(Peer{Key: "a"}, false, Announcement{"more", "i", []string{"x"}}); err == nil {
		t.Error("one claim too many is taken")
	}
	announce(t, b, "a", "7", "y") // another is not one more
	announce(t, b, "a", "7")
	announce(t, b, "a", "more", "x")

	by := func(i int) error {
		_, err := b.Announce(Peer{Key: fmt.Sprint("hand ", i), ID: "h"}, true, Announcement{"", "i", []string{"x"}})
		return err
	}
	for i := range mostHands {
		if err := by(i); err != nil {
			t.Fatal(err)
		}
	}
	if by(mostHands) == nil {
		t.Error("one too many by hand is taken")
	}
	if views, _ := b.Views(); len(views) != mostHands+1 {
		t.Errorf("%d peers: whoever is refused is there", len(views))
	}
	if err := by(3); err != nil {
		t.Error(err)
	}
	announce(t, b, "hand 3", "")
	if err := by(mostHands); err != nil {
		t.Error(err)
	}
}

// TestSecondIsTold: of ten who announce at once each pair that meets is told to
// at least one of the two.
func TestSecondIsTold(t *testing.T) {
	const peers = 10
	for range 50 {
		b := New("shop", "id", false)
		told := make([][]Meeting, peers)
		var wg sync.WaitGroup
		start := make(chan struct{})
		for i := range peers {
			wg.Go(func() {
				key := fmt.Sprint(i)
				<-start
				b.Attach(key, Peer{Key: key, ID: key})
				done, err := b.Announce(Peer{Key: key}, false, Announcement{"", "intent", []string{[]string{"src", "src/x", "*/x", "lib"}[i%4]}})
				if err != nil {
					t.Error(err)
				}
				told[i] = done.Overlaps
			})
		}
		close(start)
		wg.Wait()
		knows := func(i, j int) bool {
			return slices.ContainsFunc(told[i], func(m Meeting) bool { return m.Peer == fmt.Sprint(j) })
		}
		for i := range peers {
			for j := range i {
				meets := i%4 != 3 && j%4 != 3 || i%4 == j%4 || i%4+j%4 == 5 // lib and */x
				if got := knows(i, j) || knows(j, i); got != meets {
					t.Errorf("%d and %d: told %v, want %v", i, j, got, meets)
				}
			}
		}
	}
}

// TestAllAtOnce is for the race detector.
func TestAllAtOnce(t *testing.T) {
	b := New("shop", "id", true)
	ctx, stop := context.WithCancel(t.Context())
	var listeners, wg sync.WaitGroup
	for range 3 {
		listeners.Go(func() {
			var after uint64
			for {
				events, missed, err := b.Events(ctx, after)
				if err != nil {
					return
				}
				if events[0].Number != after+missed+1 {
					t.Errorf("after %d comes %d, with %d missed", after, events[0].Number, missed)
				}
				for i, e := range events {
					if e.Number != events[0].Number+uint64(i) {
						t.Error("the numbers have holes")
					}
				}
				after = events[len(events)-1].Number
				if _, err := json.Marshal(events); err != nil {
					t.Error(err)
				}
			}
		})
		listeners.Go(func() {
			for revision := uint64(0); b.Changed(ctx, revision) == nil; {
				views, now := b.Views()
				if now == revision {
					t.Error("changed, but the same revision")
				}
				revision = now
				if _, err := json.Marshal(views); err != nil {
					t.Error(err)
				}
				Overlaps(views, true)
			}
		})
	}
	for i := range 8 {
		wg.Go(func() {
			key := fmt.Sprint(i % 5) // some are one peer on two sessions
			for n := range 300 {
				session := fmt.Sprint(i, n%3)
				b.Attach(session, Peer{Key: key, ID: key, Client: session})
				number := b.Began(Execution{Peer: key, Started: time.Now()})
				b.Touch(key, []string{fmt.Sprint("src/", n%7), "SRC/1"}, n%2 == 0)
				announce(t, b, key, fmt.Sprint(n%4), "src", fmt.Sprint("lib/*", n))
				b.Ended(number, "ok", time.Millisecond)
				b.Executions(3)
				announce(t, b, key, fmt.Sprint(n%4))
				b.Note(Event{Kind: UpstreamNow})
				b.Detach(session)
			}
		})
	}
	wg.Wait()
	stop()
	listeners.Wait()
	if got := state(b); got != "" {
		t.Errorf("there is still %q", got)
	}
}

// TestViewsAreKept: they are made once, and what was given out stays as it is.
func TestViewsAreKept(t *testing.T) {
	b := New("shop", "id", false)
	b.Attach("1", Peer{Key: "a", ID: "pa"})
	b.Attach("2", Peer{Key: "b", ID: "pb"})
	announce(t, b, "a", "one", "x")
	announce(t, b, "a", "two", "y")
	b.Touch("a", []string{"x/1", "x/2"}, false)
	views, revision := b.Views()
	if again, _ := b.Views(); &again[0] != &views[0] {
		t.Error("made twice")
	}
	was, err := json.Marshal(views)
	if err != nil {
		t.Fatal(err)
	}
	number := b.Began(Execution{})
	b.Ended(number, "ok", 0)
	if again, now := b.Views(); &again[0] != &views[0] || now != revision {
		t.Error("a call changes the peers")
	}
	announce(t, b, "a", "one", "z")
	announce(t, b, "a", "two")
	b.Touch("a", []string{"x/1"}, true)
	b.Detach("1")
	if now, _ := json.Marshal(views); string(now) != string(was) {
		t.Errorf("what was given out is now %s", now)
	}
	if extended := append(views, View{}); len(extended) == cap(views) {
		t.Error("there is room in what all share")
	}
	want := View{Peer: Peer{Key: "b", ID: "pb"}, Attached: true, Claims: []Claim{}, Touched: []Touched{}, Checkout: "shop", CheckoutID: "id"}
	if views, _ := b.Views(); !reflect.DeepEqual(views[0], want) {
		t.Errorf("%+v, want %+v", views[0], want)
	}
}

// Whatever comes, goes, announces or is told anew, each peer is shown once, and in
// order.
func TestPlaces(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	b := New("work", "id", false)
	sessions := map[string]string{} // whose each is
	for i := range 5000 {
		key := fmt.Sprint("k", r.IntN(300))
		who := Peer{Key: key, ID: fmt.Sprint("p", r.IntN(5)), Front: "link", Since: time.Unix(int64(r.IntN(4)), 0)}
		switch r.IntN(5) {
		case 0, 1:
			session := fmt.Sprint(key, " ", r.IntN(2))
			if r.IntN(10) == 0 {
				session = fmt.Sprint("shared ", r.IntN(3)) // now one's, now another's
			}
			sessions[session] = key
			b.Attach(session, who)
		case 2:
			for session := range sessions { // any
				delete(sessions, session)
				b.Detach(session)
				break
			}
		case 3:
			b.Announce(who, r.IntN(2) == 0, Announcement{Claim: fmt.Sprint(r.IntN(2)), Intent: "x", Scope: []string{"a"}}) // ignore error: too many are refused
		case 4:
			b.Announce(who, false, Announcement{Claim: fmt.Sprint(r.IntN(2))}) // ignore error: as above
		}
		views, _ := b.Views()
		there := map[string]bool{}
		for j, v := range views {
			there[v.Key] = true
			if j == 0 {
				continue
			}
			if was := views[j-1]; !was.Attached && v.Attached || was.Attached == v.Attached && cmp.Or(was.Since.Compare(v.Since), strings.Compare(was.ID, v.ID), strings.Compare(was.Key, v.Key)) >= 0 {
				t.Fatalf("after %d: %+v stands before %+v", i, was, v)
			}
		}
		if len(views) != len(b.peers) || len(there) != len(views) || len(b.order) != len(views) {
			t.Fatalf("after %d: %d peers are shown of %d", i, len(views), len(b.peers))
		}
	}
}
