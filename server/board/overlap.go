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
}

// Overlaps returns where attached peers meet, in the order of the views, and how
// many overlaps were left out. The views may be of several checkouts of one
// repository: what is changed in two of them meets when it is merged.
func Overlaps(views []View, fold bool) (overlaps []Overlap, left int) {
	var plain, patterns []place
	at := map[string][]place{} // plain ones, by path
	fresh := time.Now().Add(-freshness)
	for i, v := range views {
		if !v.Attached {
			continue
		}
		put := func(path string, claim int, wrote bool) {
			p := place{i, path, path, claim, wrote}
			if fold {
				p.path = strings.ToLower(path)
			}
			if claim >= 0 && isPattern(path) {
				patterns = append(patterns, p)
				return
			}
			plain = append(plain, p)
			at[p.path] = append(at[p.path], p)
		}
		for c, claim := range v.Claims {
			for _, path := range claim.Scope {
				put(path, c, false)
			}
		}
		for _, t := range v.Touched {
			if t.At.After(fresh) {
				put(t.Path, -1, t.Wrote)
			}
		}
	}
	found := map[[3]int]*Overlap{}
	var order [][3]int
	meets := func(a, b place) {
		if a.view == b.view || a.claim < 0 && b.claim < 0 && (!a.wrote && !b.wrote || a.path != b.path) {
			return
		}
		if a.view > b.view {
			a, b = b, a
		}
		kind, key := KindClaimed, [3]int{a.view, b.view, 0}
		if a.claim < 0 || b.claim < 0 {
			kind, key[2] = KindTouched, 1
		}
		o := found[key]
		if o == nil {
			side := func(p place) Side {
				v := views[p.view]
				s := Side{Peer: v.ID, Client: v.Client, Checkout: v.Checkout}
				if p.claim >= 0 {
					s.Intent = v.Claims[p.claim].Intent
				}
				return s
			}
			o = &Overlap{Kind: kind, Between: [2]Side{side(a), side(b)}}
			found[key] = o
			order = append(order, key)
		}
		if pair := [2]string{a.shown, b.shown}; len(o.Paths) < mostPairs && !slices.Contains(o.Paths, pair) {
			o.Paths = append(o.Paths, pair)
		}
	}
	// Of two plain paths that meet one is at, or above, the other: so each looks
	// upwards, and nobody compares all with all.
	for _, p := range plain {
		for up := p.path; ; up = above(up) {
			for _, q := range at[up] {
				if up == p.path && q.view < p.view { // equals find each other twice
					continue
				}
				if up != p.path && q.claim < 0 { // whoever looks at a folder is not in all below
					continue
				}
				meets(p, q)
			}
			if up == "." {
				break
			}
		}
	}
	for i, p := range patterns {
		for _, q := range slices.Concat(patterns[i+1:], plain) {
			if p.view == q.view {
				continue
			}
			if q.claim >= 0 && Meet(p.path, q.path, fold) || q.claim < 0 && covers(p.path, q.path, fold) {
				meets(p, q)
			}
		}
	}
	slices.SortFunc(order, func(x, y [3]int) int { return cmp.Or(x[2]-y[2], x[0]-y[0], x[1]-y[1]) })
	overlaps = []Overlap{}
	for _, key := range order[:min(len(order), mostOverlaps)] {
		overlaps = append(overlaps, *found[key])
	}
	return overlaps, len(order) - len(overlaps)
}

func above(p string) string {
	if i := strings.LastIndexByte(p, '/'); i >= 0 {
		return p[:i]
	}
	return "."
}

// Meetings returns whom a scope meets among the views, but for the peer under
// key: also those who have gone, since what they left half done is there.
func Meetings(scope []string, key string, views []View, fold bool) []Meeting {
	list := []Meeting{}
	fresh := time.Now().Add(-freshness)
	any := func(path string, of func(mine, path string, fold bool) bool) bool {
		return slices.ContainsFunc(scope, func(mine string) bool { return of(mine, path, fold) })
	}
	for _, v := range views {
		if v.Key != "" && v.Key == key {
			continue
		}
		m := Meeting{Peer: v.ID, Client: v.Client, Attached: v.Attached, Checkout: v.Checkout}
		for _, c := range v.Claims {
			m := m
			m.Kind, m.Claim, m.Intent, m.Paths = KindClaimed, c.Name, c.Intent, nil
			for _, path := range c.Scope {
				if any(path, Meet) {
					m.Paths = append(m.Paths, path)
				}
			}
			if m.Paths != nil {
				list = append(list, m)
			}
		}
		m.Kind = KindTouched
		for _, t := range v.Touched {
			if v.Attached && t.At.After(fresh) && any(t.Path, covers) && len(m.Paths) < mostPairs {
				m.Paths = append(m.Paths, t.Path)
			}
		}
		if m.Paths != nil {
			list = append(list, m)
		}
	}
	return list
}
