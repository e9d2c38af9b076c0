package board

import (
	"maps"
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
	claim int    // -1: touched
	path  string // as it is compared; of a pattern where it begins
	shown string
	wrote bool
	steps []step // of a pattern; of a name when somebody asks
	glob  bool
	next  int // with the same path, added before; -1: none
}

func (p *place) route() []step {
	if p.steps == nil {
		p.steps = names(p.path)
	}
	return p.steps
}

// places are found by their paths.
type places struct {
	list []place
	last map[string]int
}

func newPlaces(n int) *places { return &places{make([]place, 0, n), make(map[string]int, n)} }

func (l *places) add(p place) {
	p.next = l.at(p.path)
	l.last[p.path] = len(l.list)
	l.list = append(l.list, p)
}

// at is the last added with that path, or -1.
func (l *places) at(path string) int {
	if i, ok := l.last[path]; ok {
		return i
	}
	return -1
}

// Overlaps returns where attached peers meet, in the order of the views, and how
// many overlaps were left out. The views may be of several checkouts of one
// repository: what is changed in two of them meets when it is merged.
func Overlaps(views []View, fold bool) (overlaps []Overlap, left int) {
	var claims, touched int
	for i := range views {
		for _, c := range views[i].Claims {
			claims += len(c.Scope)
		}
		touched += len(views[i].Touched)
	}
	claimed, seen := newPlaces(claims), newPlaces(touched)
	fresh := time.Now().Add(-freshness)
	for i := range views {
		if !views[i].Attached {
			continue
		}
		for c, claim := range views[i].Claims {
			for _, path := range claim.Scope {
				p := place{view: i, claim: c, path: compared(path, fold), shown: path}
				if isPattern(path) {
					p.path, p.steps, p.glob = begin(p.path), route(path, fold), true
				}
				claimed.add(p)
			}
		}
		for _, t := range views[i].Touched {
			if t.At.After(fresh) {
				seen.add(place{view: i, claim: -1, path: compared(t.Path, fold), shown: t.Path, wrote: t.Wrote})
			}
		}
	}
	// Of two that meet one is, or begins, at or above the other: so each looks
	// upwards, and nobody compares all with all.
	m := meeting{views: views, found: make(map[uint64]int32, 2*len(views))}
	for i := range claimed.list {
		p := &claimed.list[i]
		for j := p.next; j >= 0; j = claimed.list[j].next {
			m.claim(&claimed.list[j], p)
		}
		for up := p.path; up != "."; {
			up = above(up)
			for j := claimed.at(up); j >= 0; j = claimed.list[j].next {
				m.claim(&claimed.list[j], p)
			}
		}
	}
	for i := range seen.list {
		p := &seen.list[i]
		for j := p.next; j >= 0; j = seen.list[j].next {
			if q := &seen.list[j]; q.view != p.view && (p.wrote || q.wrote) {
				m.add(q, p)
			}
		}
		for up := p.path; claims > 0; up = above(up) { // whoever looks at a folder is not in all below
			for j := claimed.at(up); j >= 0; j = claimed.list[j].next {
				m.claim(&claimed.list[j], p)
			}
			if up == "." {
				break
			}
		}
	}
	slices.Sort(m.order)
	overlaps = make([]Overlap, min(len(m.order), mostOverlaps))
	for i := range overlaps {
		overlaps[i] = m.overlap(&m.list[m.found[m.order[i]]])
	}
	return overlaps, len(m.order) - len(overlaps)
}

// meeting collects where two peers meet. Overlaps are made of those that are
// told.
type meeting struct {
	views []View
	list  []pairs
	found map[uint64]int32 // in the list
	order []uint64         // by kind and views
}

type pairs struct {
	n    int
	list [mostPairs][2]*place
}

// claim compares a claim's path with one that is, or begins, there or below.
func (m *meeting) claim(q, p *place) {
	if q.view != p.view && (!q.glob || meet(q.steps, p.route(), p.claim < 0)) {
		m.add(q, p)
	}
}

func (m *meeting) add(a, b *place) {
	if a.view > b.view {
		a, b = b, a
	}
	key := uint64(a.view)<<24 | uint64(b.view)
	if a.claim < 0 || b.claim < 0 {
		key |= 1 << 48
	}
	i, ok := m.found[key]
	if !ok {
		i = int32(len(m.list))
		m.list = append(m.list, pairs{})
		m.found[key] = i
		m.order = append(m.order, key)
	}
	met := &m.list[i]
	if met.n == mostPairs {
		return
	}
	for _, p := range met.list[:met.n] {
		if p[0].shown == a.shown && p[1].shown == b.shown {
			return
		}
	}
	met.list[met.n] = [2]*place{a, b}
	met.n++
}

func (m *meeting) overlap(met *pairs) Overlap {
	a, b := met.list[0][0], met.list[0][1]
	o := Overlap{Kind: KindClaimed, Between: [2]Side{m.side(a), m.side(b)}, Paths: make([][2]string, met.n)}
	if a.claim < 0 || b.claim < 0 {
		o.Kind = KindTouched
	}
	for i, p := range met.list[:met.n] {
		o.Paths[i] = [2]string{p[0].shown, p[1].shown}
	}
	return o
}

func (m *meeting) side(p *place) Side {
	v := &m.views[p.view]
	s := Side{Peer: v.ID, Client: v.Client, Checkout: v.Checkout}
	if p.claim >= 0 {
		s.Intent = v.Claims[p.claim].Intent
	}
	return s
}

// begin is the folder in which all lies that a pattern stands for.
func begin(pattern string) string {
	if i := strings.IndexAny(pattern, "*?["); i >= 0 {
		pattern = pattern[:i]
	}
	return above(pattern)
}

// A finder tells what a scope meets.
type finder struct {
	fold     bool
	few      []string        // the names, if they are
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
	if len(f.names) <= 8 {
		f.few = slices.Collect(maps.Keys(f.names))
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

// named reports whether a name is, or lies in, one of the scope's.
func (f *finder) named(key string) bool {
	if f.few != nil { // then to look at each is quicker
		return slices.ContainsFunc(f.few, func(folder string) bool { return lies(key, folder) })
	}
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
