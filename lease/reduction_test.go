package lease

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestReductions has small scenes come to the same ends, with all that is left
// out by a reduction, without one of them, and without any.
func TestReductions(t *testing.T) {
	v1, v2 := "v1.0.0", "v2.0.0"
	for _, s := range []scene{
		{name: "two", cast: []*part{serves(v1), serves(v1)}},
		{name: "a kill", cast: []*part{stays(v1), stays(v1)}, kills: 1},
		{name: "a newer release", cast: []*part{returns(v1, 0, false), returns(v2, 0, false)}},
		{name: "two networks", cast: []*part{stays(v1), stays(v1).in(1)}},
		{name: "a stop", cast: []*part{asks(v1), stays(v1)}, stops: 1},
	} {
		t.Run(s.name, func(t *testing.T) {
			want := s.explore(t, reduced)
			if want.wrong != "" {
				t.Fatal(want.wrong)
			}
			for name, r := range map[string]reduction{
				"no symmetry":       {atOnce: true, lateStops: true},
				"nothing at once":   {symmetric: true, lateStops: true},
				"stops at any time": {symmetric: true, atOnce: true},
				"none":              {},
			} {
				if name != "none" && s.stops > 0 && !*deep {
					continue // each takes as long as all the others together
				}
				got := s.explore(t, r)
				t.Logf("%s: %d states instead of %d, %v instead of %v", name, got.states, want.states, got.took, want.took)
				if got.wrong != "" {
					t.Errorf("%s: %s", name, got.wrong)
				}
				a, b := slices.Sorted(maps.Keys(want.outcomes)), slices.Sorted(maps.Keys(got.outcomes))
				if !slices.Equal(a, b) {
					t.Errorf("%s: comes to %q, and with the reductions to %q", name, b, a)
				}
			}
		})
	}
}

// TestMemory plays schedules at random once more, with processes that do all
// that they did, one after the other, instead of what is remembered of others
// that came to the same: at each step they must want the same, and be the same.
func TestMemory(t *testing.T) {
	walks := 20
	if *deep {
		walks = 500
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for _, s := range scenes() {
		if s.deep && s.rms+s.stops == 0 {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			x := newMachine(t, &s)
			first := newMachine(t, &s) // so that what is remembered comes from other ways
			var seen, ends states
			f := found{outcomes: map[string]int{}}
			for range walks {
				first.memories = x.memories
				s.walk(first, rng, &seen, &ends, &f)
			}
			if f.wrong != "" {
				t.Fatal(f.wrong)
			}
			steps := 0
			for range walks {
				var ways [most][]reply
				x.told = func(p int, a reply) { ways[p] = append(ways[p], a) }
				st := s.walk(x, rng, &seen, &ends, &f)
				for p := range s.cast {
					steps += len(ways[p])
					if st.players[p].dead != 0 {
						continue
					}
					stage := x.memories[p].raise()
					got, _ := stage.play(ways[p])
					stage.close()
					want := x.node(&st, p)
					if got.want != want.want || got.knowledge != want.knowledge || got.done != want.done {
						t.Fatalf("%s comes to %v %+v, and is remembered to come to %v %+v", label(p), got.want, got.knowledge, want.want, want.knowledge)
					}
				}
			}
			t.Logf("%d steps", steps)
		})
	}
}
