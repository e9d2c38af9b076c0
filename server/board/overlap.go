package board

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// What an overlap is made of.
const (
	KindClaimed = "claimed" // both announced it
	KindTouched = "touched" // one announced it and the other was seen there, or both were and one wrote
)

// An Overlap is two peers that work on the same paths.
type Overlap struct {
	Kind    string  `json:"kind"`
	Between [2]Side `json:"between"`
	// Paths are where they meet, as each has it. There may be more.
	Paths [][2]string `json:"paths"`
}

// Side is one of the two.
type Side struct {
	Peer     string `json:"peer"`
	Client   string `json:"client"`
	Checkout string `json:"checkout"`
	Intent   string `json:"intent,omitempty"` // of the claim that meets first
}

const (
	mostOverlaps = 256
	mostPairs    = 8 // of paths of one overlap
)

// A place is one path of one peer.
type place struct {
	view  int
	path  string // as it is compared
	shown string
	claim int // -1: touched
	wrote bool
	next  int // with the same path, added before; -1: none
}

// places are found by their paths.
type places struct {
	list []place
	last map[string]int
}

func (l *places) add(p place) {
	p.next = -1
	if i, ok := l.last[p.path]; ok {
		p.next = i
	}
	l.last[p.path] = len(l.list)
	l.list = append(l.list, p)
}

// at calls f with all that have this path.
func (l *places) at(path string, f func(*place)) {
	i, ok := l.last[path]
	for ; ok && i >= 0; i = l.list[i].next {
		f(&l.list[i])
	}
}

// Overlaps returns where attached peers meet, in the order of the views, and how
// many overlaps were left out. The views may be of several checkouts of one
// repository: what is changed in two of them meets when it is merged.
func Overlaps(views []View, fold bool) (overlaps []Overlap, left int) {
	var claims, touched int
	for _, v := range views {
		for _, c := range v.Claims {
			claims += len(c.Scope)
		}
		touched += len(v.Touched)
	}
	claimed := places{make([]place, 0, claims), make(map[string]int, claims)}
	seen := places{make([]place, 0, touched), make(map[string]int, touched)}
	var patterns []place
	fresh := time.Now().Add(-freshness)
	m := meeting{views: views, found: map[[3]int]*Overlap{}}
	// Of two names that meet one is at, or above, the other: so each looks
	// upwards, and nobody compares all with all.
	for i, v := range views {
		if !v.Attached {
			continue
		}
		for c, claim := range v.Claims {
			for _, path := range claim.Scope {
				p := place{view: i, path: compared(path, fold), shown: path, claim: c}
				if isPattern(path) {
					patterns = append(patterns, p)
				} else {
					claimed.add(p)
				}
			}
		}
		for _, t := range v.Touched {
			if t.At.After(fresh) {
				seen.add(place{view: i, path: compared(t.Path, fold), shown: t.Path, claim: -1, wrote: t.Wrote})
			}
		}
	}
	for i := range claimed.list {
		p := &claimed.list[i]
		for j := p.next; j >= 0; j = claimed.list[j].next {
			m.add(&claimed.list[j], p)
		}
		for up := p.path; up != "."; {
			up = above(up)
			claimed.at(up, func(q *place) { m.add(q, p) })
		}
	}
	for i := range seen.list {
		p := &seen.list[i]
		for j := p.next; j >= 0; j = seen.list[j].next {
			if q := &seen.list[j]; p.wrote || q.wrote {
				m.add(q, p)
			}
		}
		if claims == 0 {
			continue
		}
		for up := p.path; ; up = above(up) { // whoever looks at a folder is not in all below
			claimed.at(up, func(q *place) { m.add(q, p) })
			if up == "." {
				break
			}
		}
	}
	m.patterns(patterns, claimed.list, seen.list, fold)
	slices.SortFunc(m.order, func(x, y [3]int) int { return cmp.Or(x[2]-y[2], x[0]-y[0], x[1]-y[1]) })
	overlaps = []Overlap{}
	for _, key := range m.order[:min(len(m.order), mostOverlaps)] {
		overlaps = append(overlaps, *m.found[key])
	}
	return overlaps, len(m.order) - len(overlaps)
}

// meeting collects overlaps.
type meeting struct {
	views []View
	found map[[3]int]*Overlap
	order [][3]int
}

func (m *meeting) add(a, b *place) {
	if a.view == b.view {
		return
	}
	if a.view > b.view {
		a, b = b, a
	}
	kind, key := KindClaimed, [3]int{a.view, b.view, 0}
	if a.claim < 0 || b.claim < 0 {
		kind, key[2] = KindTouched, 1
	}
	o := m.found[key]
	if o == nil {
		o = &Overlap{Kind: kind, Between: [2]Side{m.side(a), m.side(b)}}
		m.found[key] = o
		m.order = append(m.order, key)
	}
	if pair := [2]string{a.shown, b.shown}; len(o.Paths) < mostPairs && !slices.Contains(o.Paths, pair) {
		o.Paths = append(o.Paths, pair)
	}
}

func (m *meeting) side(p *place) Side {
	v := &m.views[p.view]
	s := Side{Peer: v.ID, Client: v.Client, Checkout: v.Checkout}
	if p.claim >= 0 {
		s.Intent = v.Claims[p.claim].Intent
	}
	return s
}

// patterns compares patterns with each other and with all else, which is why
// first is asked what costs least: whether they begin in the same folder.
func (m *meeting) patterns(patterns, claimed, seen []place, fold bool) {
	routes := make([][]step, len(patterns))
	begins := make([]string, len(patterns))
	for i, p := range patterns {
		routes[i], begins[i] = route(p.shown, fold), begin(p.path)
	}
	for i := range patterns {
		p := &patterns[i]
		for j := i + 1; j < len(patterns); j++ {
			q := &patterns[j]
			if p.view != q.view && near(begins[i], begins[j]) && meet(routes[i], routes[j], false) {
				m.add(p, q)
			}
		}
		for j := range claimed {
			q := &claimed[j]
			if p.view != q.view && near(begins[i], q.path) && meet(routes[i], names(q.path), false) {
				m.add(p, q)
			}
		}
		for j := range seen {
			q := &seen[j]
			if p.view != q.view && lies(q.path, begins[i]) && meet(routes[i], names(q.path), true) {
				m.add(p, q)
			}
		}
	}
}

// begin is the folder in which all lies that a pattern stands for.
func begin(pattern string) string {
	if i := strings.IndexAny(pattern, "*?["); i >= 0 {
		pattern = pattern[:i]
	}
	return above(pattern)
}

func near(a, b string) bool { return lies(a, b) || lies(b, a) }

// A finder tells what a scope meets.
type finder struct {
	fold     bool
	names    map[string]bool // in the scope
	folders  map[string]bool // that lead to them
	patterns [][]step
	all      [][]step
}

func newFinder(scope []string, fold bool) *finder {
	f := &finder{fold: fold, names: map[string]bool{}, folders: map[string]bool{}}
	for _, p := range scope {
		key, steps := compared(p, fold), route(p, fold)
		f.names[key] = true
		f.all = append(f.all, steps)
		if isPattern(p) {
			f.patterns = append(f.patterns, steps)
			continue
		}
		for key != "." {
			key = above(key)
			f.folders[key] = true
		}
	}
	return f
}

// meets reports whether a path of another scope does.
func (f *finder) meets(path string) bool {
	routes := f.patterns
	if isPattern(path) {
		routes = f.all
	} else if key := compared(path, f.fold); f.folders[key] || f.named(key) {
		return true
	}
	if len(routes) == 0 {
		return false
	}
	steps := route(path, f.fold)
	return slices.ContainsFunc(routes, func(mine []step) bool { return meet(mine, steps, false) })
}

// holds reports whether what exists lies in the scope.
func (f *finder) holds(path string) bool {
	key := compared(path, f.fold)
	if f.named(key) {
		return true
	}
	if len(f.patterns) == 0 {
		return false
	}
	steps := names(key)
	return slices.ContainsFunc(f.patterns, func(mine []step) bool { return meet(mine, steps, true) })
}

func (f *finder) named(key string) bool {
	for ; ; key = above(key) {
		if f.names[key] {
			return true
		}
		if key == "." {
			return false
		}
	}
}

// Meetings returns whom a scope meets among the views, but for the peer under
// key: also those who have gone, since what they left half done is there.
func Meetings(scope []string, key string, views []View, fold bool) []Meeting {
	list := []Meeting{}
	f := newFinder(scope, fold)
	fresh := time.Now().Add(-freshness)
	for i := range views {
		v := &views[i]
		if v.Key != "" && v.Key == key {
			continue
		}
		with := Meeting{Peer: v.ID, Client: v.Client, Attached: v.Attached, Checkout: v.Checkout}
		for _, c := range v.Claims {
			m := with
			m.Kind, m.Claim, m.Intent = KindClaimed, c.Name, c.Intent
			for _, path := range c.Scope {
				if f.meets(path) {
					m.Paths = append(m.Paths, path)
				}
			}
			if m.Paths != nil {
				list = append(list, m)
			}
		}
		m := with
		m.Kind = KindTouched
		for _, t := range v.Touched {
			if len(m.Paths) == mostPairs || !v.Attached {
				break
			}
			if t.At.After(fresh) && f.holds(t.Path) {
				m.Paths = append(m.Paths, t.Path)
			}
		}
		if m.Paths != nil {
			list = append(list, m)
		}
	}
	return list
}
