package board

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"path"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// pairwise is Overlaps without a thought for how long it takes.
func pairwise(views []View, fold bool) map[string]map[[2]string]bool {
	type side struct {
		view, claim int
		path        string
		wrote       bool
	}
	var all []side
	for i, v := range views {
		if !v.Attached {
			continue
		}
		for c, claim := range v.Claims {
			for _, p := range claim.Scope {
				all = append(all, side{i, c, p, false})
			}
		}
		for _, t := range v.Touched {
			if time.Since(t.At) < freshness {
				all = append(all, side{i, -1, t.Path, t.Wrote})
			}
		}
	}
	// Whether what was touched lies in a claim: that meets a folder and all in
	// it, but not what is above it.
	lies := func(touched, claimed string) bool {
		return meet(route(claimed, fold), names(compared(touched, fold)), true)
	}
	found := map[string]map[[2]string]bool{}
	for _, a := range all {
		for _, b := range all {
			kind, met := KindTouched, false
			switch {
			case a.view >= b.view:
			case a.claim >= 0 && b.claim >= 0:
				kind, met = KindClaimed, Meet(a.path, b.path, fold)
			case a.claim >= 0:
				met = lies(b.path, a.path)
			case b.claim >= 0:
				met = lies(a.path, b.path)
			default:
				met = same(a.path, b.path, fold) && (a.wrote || b.wrote)
			}
			if met {
				key := fmt.Sprint(kind, " ", views[a.view].ID, " ", views[b.view].ID)
				if found[key] == nil {
					found[key] = map[[2]string]bool{}
				}
				found[key][[2]string{a.path, b.path}] = true
			}
		}
	}
	return found
}

func randomViews(r maker, peers int, fold bool) []View {
	views := make([]View, peers)
	for i := range views {
		v := View{Peer: Peer{Key: fmt.Sprint("key", i), ID: fmt.Sprint("p", i)}, Attached: r.IntN(8) > 0}
		for c := range r.IntN(3) {
			claim := Claim{Name: fmt.Sprint(c), Intent: fmt.Sprint("intent ", c)}
			for range 1 + r.IntN(3) {
				p := path.Join(r.path()...)
				switch r.IntN(12) {
				case 0:
					p = "."
				case 1, 2, 3, 4:
					p = r.pattern(r.path(), fold)
				}
				claim.Scope = append(claim.Scope, p)
			}
			v.Claims = append(v.Claims, claim)
		}
		for range r.IntN(4) {
			v.Touched = append(v.Touched, Touched{path.Join(r.path()...), r.IntN(2) == 0, time.Now().Add(-time.Duration(r.IntN(80)) * time.Minute)})
		}
		views[i] = v
	}
	return views
}

func TestOverlapsArePairwise(t *testing.T) {
	r := maker{rand.New(rand.NewPCG(3, 4))}
	some := 0
	for range 1500 {
		fold := r.IntN(2) == 0
		views := randomViews(r, 2+r.IntN(6), fold)
		want := pairwise(views, fold)
		got, left := Overlaps(views, fold)
		if len(got) != len(want) || left != 0 {
			t.Fatalf("%d overlaps and %d left out, want %d\n%+v\n%v\nof %+v", len(got), left, len(want), got, want, views)
		}
		for _, o := range got {
			key := fmt.Sprint(o.Kind, " ", o.Between[0].Peer, " ", o.Between[1].Peer)
			if len(o.Paths) != min(len(want[key]), mostPairs) {
				t.Fatalf("%s: %d paths, want %d: %q", key, len(o.Paths), len(want[key]), o.Paths)
			}
			for _, p := range o.Paths {
				if !want[key][p] {
					t.Fatalf("%s: %q do not meet", key, p)
				}
			}
			some++
		}
		if again, _ := Overlaps(views, fold); !reflect.DeepEqual(again, got) {
			t.Fatal("another order the second time")
		}
		if !slices.IsSortedFunc(got, func(x, y Overlap) int {
			return cmp.Or(cmp.Compare(x.Kind, y.Kind), cmp.Compare(x.Between[0].Peer, y.Between[0].Peer), cmp.Compare(x.Between[1].Peer, y.Between[1].Peer))
		}) {
			t.Fatalf("not in the order of the views: %+v", got)
		}

		// Each of them, asked for itself, is told of the same.
		me := r.IntN(len(views))
		if !views[me].Attached {
			continue
		}
		for _, c := range views[me].Claims {
			for _, m := range Meetings(c.Scope, views[me].Key, views, fold) {
				i := slices.IndexFunc(views, func(v View) bool { return v.ID == m.Peer })
				if i == me {
					t.Fatal("met itself")
				}
				a, b := min(i, me), max(i, me)
				key := fmt.Sprint(m.Kind, " ", views[a].ID, " ", views[b].ID)
				if m.Attached && want[key] == nil {
					t.Fatalf("%q meets %+v, which is no overlap", c.Scope, m)
				}
			}
		}
		for key := range want {
			var kind, a, b string
			fmt.Sscan(key, &kind, &a, &b)
			if kind != KindClaimed || a != views[me].ID && b != views[me].ID {
				continue
			}
			told := slices.ContainsFunc(views[me].Claims, func(c Claim) bool {
				return slices.ContainsFunc(Meetings(c.Scope, views[me].Key, views, fold), func(m Meeting) bool {
					return m.Kind == kind && (m.Peer == a || m.Peer == b)
				})
			})
			if !told {
				t.Fatalf("%s is not told of %s", views[me].ID, key)
			}
		}
	}
	if some < 1000 {
		t.Errorf("%d overlaps: this tests nothing", some)
	}
}

func TestOverlapsAreBounded(t *testing.T) {
	var views []View
	for i := range 40 {
		views = append(views, View{Peer: Peer{ID: fmt.Sprintf("p%02d", i)}, Attached: true, Claims: []Claim{{Scope: []string{"."}}}})
	}
	got, left := Overlaps(views, false)
	if len(got) != mostOverlaps || left != 40*39/2-mostOverlaps {
		t.Errorf("%d and %d left out", len(got), left)
	}
	if got, left := Overlaps(nil, true); got == nil || len(got) != 0 || left != 0 {
		t.Errorf("of nobody: %v, %d", got, left)
	}
}

func TestKindsOfMeetings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New("shop", "id", false)
		for _, k := range []string{"a", "b", "gone"} {
			b.Attach(k, Peer{Key: k, ID: "p" + k, Client: "client " + k})
		}
		announce(t, b, "gone", "", "src/x")
		b.Touch("gone", []string{"src/y"}, true)
		b.Detach("gone")
		announce(t, b, "b", "one", "lib", "src/x/y", "docs")
		announce(t, b, "b", "two", "src")
		b.Touch("b", []string{"src/q", "lib/z"}, false)
		b.Touch("b", []string{"src/r"}, true)

		got := announce(t, b, "a", "", "src/*", "docs/**/*.md").Overlaps
		want := []Meeting{
			{Kind: KindClaimed, Peer: "pb", Client: "client b", Attached: true, Checkout: "shop", Claim: "one", Intent: "intent", Paths: []string{"src/x/y", "docs"}},
			{Kind: KindClaimed, Peer: "pb", Client: "client b", Attached: true, Checkout: "shop", Claim: "two", Intent: "intent", Paths: []string{"src"}},
			{Kind: KindTouched, Peer: "pb", Client: "client b", Attached: true, Checkout: "shop", Paths: []string{"src/r", "src/q"}},
			{Kind: KindClaimed, Peer: "pgone", Client: "client gone", Checkout: "shop", Claim: "default", Intent: "intent", Paths: []string{"src/x"}},
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("met\n%+v\nwant\n%+v", got, want)
		}

		// What was touched an hour ago says nothing any more.
		time.Sleep(freshness)
		got = announce(t, b, "a", "", "src/r").Overlaps
		if len(got) != 1 || got[0].Kind != KindClaimed {
			t.Errorf("an hour later met %+v", got)
		}
	})
}

func TestTouchedOverlaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New("shop", "id", true)
		b.Attach("a", Peer{Key: "a", ID: "a"})
		b.Attach("b", Peer{Key: "b", ID: "b"})
		kinds := func() (kinds []string) {
			views, _ := b.Views()
			overlaps, _ := Overlaps(views, true)
			for _, o := range overlaps {
				kinds = append(kinds, o.Kind)
			}
			return kinds
		}
		b.Touch("a", []string{"src/x.go"}, false)
		b.Touch("b", []string{"SRC/X.go", "src"}, false)
		if got := kinds(); got != nil {
			t.Errorf("two who read meet: %q", got)
		}
		b.Touch("b", []string{"src/x.go"}, true)
		if got := kinds(); !slices.Equal(got, []string{KindTouched}) {
			t.Errorf("one wrote, but %q", got)
		}
		time.Sleep(freshness - time.Second)
		if got := kinds(); !slices.Equal(got, []string{KindTouched}) {
			t.Errorf("in the last second of the hour: %q", got)
		}
		time.Sleep(time.Second)
		if got := kinds(); got != nil {
			t.Errorf("an hour later: %q", got)
		}
		// What was written an hour ago and is read now was read.
		b.Touch("a", []string{"src/x.go"}, false)
		b.Touch("b", []string{"src/x.go"}, false)
		if got := kinds(); got != nil {
			t.Errorf("two who read, one of whom wrote an hour ago: %q", got)
		}
		announce(t, b, "a", "", "**/*.GO")
		if got := kinds(); !slices.Equal(got, []string{KindTouched}) {
			t.Errorf("one was seen in what the other claims: %q", got)
		}
		b.Detach("b")
		if got := kinds(); got != nil {
			t.Errorf("with nobody: %q", got)
		}
	})
}

func TestTouchedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New("shop", "id", true)
		b.Attach("a", Peer{Key: "a", ID: "a"})
		touched := func() []Touched {
			views, _ := b.Views()
			return views[0].Touched
		}
		news := func(want bool, paths []string, wrote bool) {
			t.Helper()
			before := b.Revision()
			b.Touch("a", paths, wrote)
			if got := b.Revision() != before; got != want {
				t.Errorf("touching %q (wrote %v) is news: %v", paths, wrote, got)
			}
		}
		news(true, []string{"x"}, false)
		first := touched()[0].At
		time.Sleep(again - time.Second)
		news(false, []string{"x", "X"}, false)
		if at := touched()[0].At; !at.Equal(first) {
			t.Errorf("it is now of %v", at)
		}
		news(true, []string{"x"}, true)
		news(false, []string{"x"}, true)
		news(false, []string{"x"}, false)
		time.Sleep(again)
		news(true, []string{"X"}, false)
		if got := touched(); len(got) != 1 || got[0].Path != "X" || !got[0].Wrote || !got[0].At.Equal(time.Now()) {
			t.Errorf("touched is %+v", got)
		}
		time.Sleep(freshness)
		news(true, []string{"x"}, false)
		if touched()[0].Wrote {
			t.Error("what was written an hour ago still counts")
		}
		news(false, nil, true)
		for i := range 100 {
			b.Touch("a", []string{fmt.Sprint("f", i)}, false)
		}
		got := touched()
		if len(got) != mostTouched || got[0].Path != "f99" || got[mostTouched-1].Path != fmt.Sprint("f", 100-mostTouched) {
			t.Errorf("%d touched, from %q to %q", len(got), got[0].Path, got[len(got)-1].Path)
		}
		before := b.Revision()
		b.Touch("nobody", []string{"x"}, true)
		if b.Revision() != before {
			t.Error("nobody's touch is a change")
		}
	})
}
