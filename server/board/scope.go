package board

import (
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// A ScopeError says which path of a scope cannot be one.
type ScopeError struct {
	Index  int
	Path   string
	Reason string
}

func (e *ScopeError) Error() string {
	return fmt.Sprintf("scope[%d] %q %s", e.Index, e.Path, e.Reason)
}

// Scope reads what a client calls the paths it works on: relative to root or
// absolute inside it, files, folders (with all that is in them) or patterns,
// where * and ? stand for what they do in a shell and ** for any folders. They
// come back below root, with slashes, each once, without those that another
// covers. "." is all of the checkout. Errors are *ScopeError.
func Scope(root string, raw []string, fold bool) ([]string, error) {
	var scope []string
	for i, r := range raw {
		p, reason := Inside(root, r, fold)
		if reason != "" {
			return nil, &ScopeError{i, brief(r), reason}
		}
		scope = append(scope, p)
	}
	var kept []string
	for i, p := range scope {
		covered := slices.ContainsFunc(scope[:i], func(q string) bool { return covers(q, p, fold) }) ||
			slices.ContainsFunc(scope[i+1:], func(q string) bool { return covers(q, p, fold) && !covers(p, q, fold) })
		if !covered {
			kept = append(kept, p)
		}
	}
	return kept, nil
}

func brief(s string) string {
	if len(s) > 100 {
		return strings.ToValidUTF8(s[:100], "") + "…"
	}
	return s
}

// Inside returns a path as it lies below root, with slashes; or why it does not.
func Inside(root, raw string, fold bool) (below, reason string) {
	p := strings.TrimPrefix(raw, "file://")
	switch {
	case strings.TrimSpace(p) == "":
		return "", `is empty; "." is the whole checkout`
	case len(p) > mostPath:
		return "", fmt.Sprintf("has more than %d bytes", mostPath)
	case strings.ContainsFunc(p, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return "", "has control characters"
	}
	p = filepath.ToSlash(p)
	slash := filepath.ToSlash(root)
	if path.IsAbs(p) || filepath.IsAbs(filepath.FromSlash(p)) {
		p = path.Clean(p)
		n := len(slash)
		switch {
		case same(p, slash, fold):
			return ".", ""
		case len(p) > n && (slash == "/" || p[n] == '/') && same(p[:n], slash, fold):
			p = strings.TrimPrefix(p[n:], "/")
		default:
			return "", "lies outside the checkout"
		}
	}
	if p = path.Clean(p); p == ".." || strings.HasPrefix(p, "../") {
		return "", "lies outside the checkout"
	}
	return p, ""
}

func same(a, b string, fold bool) bool { return a == b || fold && strings.EqualFold(a, b) }

func elements(p string) []string {
	if p == "." {
		return nil
	}
	return strings.Split(p, "/")
}

func isPattern(element string) bool { return strings.ContainsAny(element, "*?[{") }

// Meet reports whether two paths of scopes are equal, or one lies inside the
// other, element by element; of patterns, whether they could be. Where it cannot
// be told (two patterns in one element) they meet: a warning too many is read, a
// missing one is not.
func Meet(a, b string, fold bool) bool {
	return meet(elements(a), elements(b), fold, map[[2]int]bool{})
}

// meet remembers what does not: with many ** it would be asked again and again.
func meet(a, b []string, fold bool, not map[[2]int]bool) bool {
	if len(a) == 0 || len(b) == 0 {
		return true
	}
	at := [2]int{len(a), len(b)}
	if not[at] {
		return false
	}
	var so bool
	switch {
	case a[0] == "**":
		so = meet(a[1:], b, fold, not) || meet(a, b[1:], fold, not)
	case b[0] == "**":
		so = meet(a, b[1:], fold, not) || meet(a[1:], b, fold, not)
	default:
		so = meetElement(a[0], b[0], fold) && meet(a[1:], b[1:], fold, not)
	}
	if !so {
		not[at] = true
	}
	return so
}

func meetElement(a, b string, fold bool) bool {
	if same(a, b, fold) { // app/[id] is also a folder's name
		return true
	}
	pa, pb := isPattern(a), isPattern(b)
	switch {
	case pa && pb:
		return couldMeet(a, b, fold)
	case pa:
		return matches(a, b, fold)
	case pb:
		return matches(b, a, fold)
	}
	return false
}

// couldMeet reports whether nothing in the plain beginnings and ends of two
// patterns keeps them apart.
func couldMeet(a, b string, fold bool) bool {
	begin := func(s string) string { return s[:strings.IndexAny(s, "*?[{")] }
	end := func(s string) string { return s[strings.LastIndexAny(s, "*?]}")+1:] }
	x, y := begin(a), begin(b)
	n := min(len(x), len(y))
	if !same(x[:n], y[:n], fold) {
		return false
	}
	if strings.ContainsAny(a+b, "[{") { // where one ends is not plain
		return true
	}
	x, y = end(a), end(b)
	n = min(len(x), len(y))
	return same(x[len(x)-n:], y[len(y)-n:], fold)
}

func matches(pattern, name string, fold bool) bool {
	if fold {
		pattern, name = strings.ToLower(pattern), strings.ToLower(name)
	}
	if i := strings.IndexByte(pattern, '{'); i >= 0 {
		// Of braces only that they are there: what is in them may nest.
		pattern = pattern[:i] + "*"
	}
	ok, err := path.Match(pattern, name)
	return ok || err != nil && pattern == name
}

// covers reports whether all that inner names lies in outer.
func covers(outer, inner string, fold bool) bool {
	o, i := elements(outer), elements(inner)
	if len(o) > len(i) {
		return false
	}
	for n := range o {
		if !same(o[n], i[n], fold) && (o[n] == "**" || isPattern(i[n]) || !isPattern(o[n]) || strings.Contains(o[n], "{") || !matches(o[n], i[n], fold)) {
			return false
		}
	}
	return true
}
