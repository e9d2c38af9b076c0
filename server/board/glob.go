package board

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A glob is an element of a pattern, as a shell reads it. path.Match would do,
// but for two patterns that meet, for [!a] and for what it calls an error.
type glob []glyph

type glyph struct {
	kind byte // '*', '?', '[' or 'r'
	r    rune // as it is compared
	set  []rune
	not  bool // all but the set
	fold bool
}

func newGlob(element string, fold bool) glob {
	var g glob
	for s := element; s != ""; {
		c := s[0]
		if c == '[' && strings.Contains(s, "]") {
			if class, rest, ok := newClass(s, fold); ok {
				g, s = append(g, class), rest
				continue
			}
		}
		if c == '*' || c == '?' {
			if c == '?' || len(g) == 0 || g[len(g)-1].kind != '*' {
				g = append(g, glyph{kind: c})
			}
			s = s[1:]
			continue
		}
		if c == '\\' && len(s) > 1 {
			s = s[1:]
		}
		r, n := utf8.DecodeRuneInString(s)
		if fold {
			r = foldRune(r)
		}
		g, s = append(g, glyph{kind: 'r', r: r}), s[n:]
	}
	return g
}

// newClass reads brackets; without an end they are letters.
func newClass(s string, fold bool) (class glyph, rest string, ok bool) {
	class = glyph{kind: '[', fold: fold}
	list := []rune(s)[1:]
	at := 0
	take := func() rune {
		if list[at] == '\\' && at+1 < len(list) {
			at++
		}
		at++
		return list[at-1]
	}
	if len(list) > 0 && (list[0] == '!' || list[0] == '^') {
		class.not, at = true, 1
	}
	for first := true; at < len(list); first = false {
		switch {
		case list[at] == ']' && !first:
			return class, string(list[at+1:]), true
		case list[at] == '[' && at+1 < len(list) && strings.ContainsRune(":.=", list[at+1]):
			// [:alpha:] and its like: any, and never surely.
			end := strings.Index(string(list[at+2:]), string(list[at+1])+"]")
			if end >= 0 {
				class.set, class.not = nil, true
				rest := string(list[at+2:])[end+2:]
				_, rest, ok := strings.Cut(rest, "]")
				return class, rest, ok
			}
		}
		from := take()
		to := from
		if at+1 < len(list) && list[at] == '-' && list[at+1] != ']' {
			at++
			to = take()
		}
		class.set = append(class.set, min(from, to), max(from, to))
	}
	return class, "", false
}

// takes reports whether it may stand for that rune.
func (g *glyph) takes(r rune) bool {
	switch g.kind {
	case 'r':
		return g.r == r
	case '?':
		return true
	}
	has := g.has(r)
	if g.fold {
		for o := unicode.SimpleFold(r); o != r && !has; o = unicode.SimpleFold(o) {
			has = g.has(o)
		}
	}
	return has != g.not
}

func (g *glyph) has(r rune) bool {
	for i := 0; i < len(g.set); i += 2 {
		if g.set[i] <= r && r <= g.set[i+1] {
			return true
		}
	}
	return false
}

// sure reports whether all that matches is meant.
func (g glob) sure() bool {
	return !slices.ContainsFunc(g, func(g glyph) bool { return g.not })
}

// matches reports whether it stands for a name.
func (g glob) matches(name string) bool {
	i, star, from := 0, -1, ""
	for name != "" {
		r, n := utf8.DecodeRuneInString(name)
		switch {
		case i < len(g) && g[i].kind == '*':
			star, from = i, name
			i++
		case i < len(g) && g[i].takes(r):
			i, name = i+1, name[n:]
		case star >= 0: // the star takes one more
			_, n := utf8.DecodeRuneInString(from)
			from = from[n:]
			i, name = star+1, from
		default:
			return false
		}
	}
	for i < len(g) && g[i].kind == '*' {
		i++
	}
	return i == len(g)
}

// meets reports whether there may be a name that both stand for.
func (g glob) meets(h glob) bool {
	var few [2][32]bool
	at, next := few[0][:], few[1][:]
	if len(h) >= len(at) {
		at, next = make([]bool, len(h)+1), make([]bool, len(h)+1)
	}
	at[0] = true
	for i := range len(g) + 1 {
		for j := range len(h) + 1 {
			if !at[j] {
				continue
			}
			here, there := i < len(g), j < len(h)
			switch {
			case here && g[i].kind == '*':
				next[j] = true
				if there {
					at[j+1] = true
				}
			case there && h[j].kind == '*':
				at[j+1] = true
				next[j] = next[j] || here
			case here && there && (g[i].kind != 'r' && h[j].kind != 'r' || g[i].kind == 'r' && h[j].takes(g[i].r) || h[j].kind == 'r' && g[i].takes(h[j].r)):
				next[j+1] = true
			}
		}
		if i == len(g) {
			return at[len(h)]
		}
		at, next = next, at
		clear(next)
	}
	return false
}
