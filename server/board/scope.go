package board

import (
	"fmt"
	"net/url"
	"path"
	"runtime"
	"slices"
	"strings"
	"unicode"
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

// mostAlternatives is how many paths the braces of one may stand for.
const mostAlternatives = 64

// Scope reads what a client calls the paths it works on: relative to root or
// absolute inside it, files, folders (with all that is in them) or patterns,
// where *, ?, brackets and braces stand for what they do in a shell and ** for
// any folders. They come back below root, with slashes, braces and what is
// needless in a pattern spelled out, each once, without those that another
// covers. "." is all of the checkout. Reading them again changes nothing. Errors
// are *ScopeError.
func Scope(root string, raw []string, fold bool) ([]string, error) {
	return readScope(root, raw, fold, runtime.GOOS == "windows")
}

func readScope(root string, raw []string, fold, windows bool) ([]string, error) {
	var scope []string
	for i, r := range raw {
		refuse := func(reason string) ([]string, error) { return nil, &ScopeError{i, brief(r), reason} }
		text, reason := spelled(r, windows)
		if reason != "" {
			return refuse(reason)
		}
		all := alternatives(text)
		if len(all) > mostAlternatives {
			return refuse(fmt.Sprintf("stands for more than %d paths; name the folder they are in", mostAlternatives))
		}
		for _, one := range all {
			p, reason := below(root, one, fold, windows)
			if reason != "" {
				return refuse(reason)
			}
			p = plainer(p)
			switch {
			case len(p) > mostPath:
				return refuse(tooLong)
			case strings.TrimSpace(p) == "": // of "␣/**"
				return refuse(empty)
			case braces(p) != nil: // by what .. or ** took out
				return refuse("has braces that do not pair up")
			}
			scope = append(scope, p)
		}
	}
	return outermost(scope, fold), nil
}

// outermost leaves out what another covers; of equals the first stays.
func outermost(scope []string, fold bool) []string {
	first := map[string]int{} // by name
	for i, p := range scope {
		if key := compared(p, fold); first[key] == 0 {
			first[key] = i + 1
		}
	}
	// As names: each looks upwards, and nobody compares all with all.
	var kept []string
	var patterns int
	for i, p := range scope {
		up := compared(p, fold)
		alone := first[up] == i+1
		for alone && up != "." {
			up = above(up)
			alone = first[up] == 0
		}
		if alone {
			kept = append(kept, p)
			if isPattern(p) {
				patterns++
			}
		}
	}
	if patterns == 0 || patterns > mostScope { // which no claim may have
		return kept
	}
	routes := make([][]step, len(kept))
	for i, p := range kept {
		routes[i] = route(p, fold)
	}
	scope, kept = kept, nil
	for i, p := range scope {
		needless := false
		for q := range scope {
			needless = needless || q != i && isPattern(scope[q]) && covers(routes[q], routes[i]) && (q < i || !covers(routes[i], routes[q]))
		}
		if !needless {
			kept = append(kept, p)
		}
	}
	return kept
}

// brief cuts what is shown.
func brief(s string) string { return cut(s, 100) }

func cut(s string, most int) string {
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

// Inside returns a path as it lies below root, with slashes; or why it does not.
// It is taken by its letters: root, too, must be spelled as it really is.
func Inside(root, raw string, fold bool) (path, reason string) {
	windows := runtime.GOOS == "windows"
	text, reason := spelled(raw, windows)
	if reason != "" {
		return "", reason
	}
	return below(root, text, fold, windows)
}

const (
	tooLong = "is too long"
	empty   = `is empty; "." is the whole checkout`
	outside = "lies outside the checkout"
)

// spelled returns a path with slashes, also of a file's URI.
func spelled(raw string, windows bool) (p, reason string) {
	if len(raw) > 4*mostPath { // three bytes in a URI are one
		return "", tooLong
	}
	p = raw
	if scheme, rest, ok := strings.Cut(raw, "://"); ok && isScheme(scheme) {
		if !strings.EqualFold(scheme, "file") {
			return "", "is a URI, and not of a file"
		}
		rest, _, _ = strings.Cut(rest, "#") // of an editor: the line
		host, file := rest, ""
		if i := strings.IndexByte(rest, '/'); i >= 0 {
			host, file = rest[:i], rest[i:]
		}
		var err error
		if p, err = url.PathUnescape(file); err != nil {
			return "", "is not a URI: " + err.Error()
		}
		switch {
		case host == "" || strings.EqualFold(host, "localhost"):
			if windows && len(p) > 2 && p[0] == '/' && p[2] == ':' {
				p = p[1:]
			}
		case windows:
			p = "//" + host + p
		default:
			return "", "is a URI of another machine's file"
		}
	}
	if windows {
		p = strings.ReplaceAll(p, `\`, "/")
	}
	return p, ""
}

func isScheme(s string) bool {
	return len(s) > 1 && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("+-.", r)
	})
}

// below finds a path with slashes below root.
func below(root, p string, fold, windows bool) (inside, reason string) {
	switch {
	case strings.TrimSpace(p) == "":
		return "", empty
	case strings.ContainsFunc(p, unicode.IsControl):
		return "", "has control characters"
	case climbs(p):
		return "", `has ".." after a pattern`
	}
	drive := func(p string) bool { return windows && len(p) > 1 && p[1] == ':' }
	if drive(p) && (len(p) == 2 || p[2] != '/') {
		return "", "is relative to a drive"
	}
	absolute := path.IsAbs(p) || drive(p)
	if p = path.Clean(p); absolute {
		if root == "" {
			return "", outside
		}
		if windows {
			root = strings.ReplaceAll(root, `\`, "/")
		}
		// By element: folded, a name may have another length.
		rest := elements(strings.TrimPrefix(p, "/"))
		for _, name := range elements(strings.TrimPrefix(path.Clean(root), "/")) {
			if len(rest) == 0 || !same(rest[0], name, fold || drive(name)) {
				return "", outside
			}
			rest = rest[1:]
		}
		p = path.Join(".", strings.Join(rest, "/"))
	}
	switch {
	case p == ".." || strings.HasPrefix(p, "../") || drive(p):
		return "", outside
	case p == "~" || strings.HasPrefix(p, "~/"):
		return "", "begins in a home folder, which only a shell knows"
	case strings.TrimSpace(p) == "":
		return "", empty
	case len(p) > mostPath:
		return "", tooLong
	}
	return p, ""
}

// climbs reports whether .. leads out of what may be more than one folder.
func climbs(p string) bool {
	if !strings.Contains(p, "..") {
		return false
	}
	many := false
	for e := range strings.SplitSeq(p, "/") {
		if e == ".." && many {
			return true
		}
		many = many || strings.Contains(e, "**") || strings.ContainsRune(e, '{')
	}
	return false
}

// alternatives spells out braces that have a comma, as a shell does; others are
// part of a name. There may be too many: then it ends with more than
// mostAlternatives.
func alternatives(s string) []string {
	list := []string{s}
	for i := 0; i < len(list) && len(list) <= mostAlternatives; {
		marks := braces(list[i])
		if marks == nil {
			i++
			continue
		}
		s, last := list[i], len(marks)-1
		var spelled []string
		for m := range last {
			spelled = append(spelled, s[:marks[0]]+s[marks[m]+1:marks[m+1]]+s[marks[last]+1:])
		}
		list = slices.Replace(list, i, i+1, spelled...)
	}
	return list
}

// braces returns where the first pair that closes around a comma opens, has its
// commas, and closes.
func braces(s string) []int {
	var open [][]int
	for i := range len(s) {
		top := len(open) - 1
		switch {
		case s[i] == '{':
			open = append(open, []int{i})
		case s[i] == ',' && top >= 0:
			open[top] = append(open[top], i)
		case s[i] == '}' && top >= 0:
			if len(open[top]) > 1 {
				return append(open[top], i)
			}
			open = open[:top]
		}
	}
	return nil
}

// plainer writes ** only as an element of its own, and not where it ends a path,
// since a folder is named with all that is in it.
func plainer(p string) string {
	if !strings.Contains(p, "**") {
		return p
	}
	var list []string
	for _, e := range elements(p) {
		i := strings.Index(e, "**")
		if i < 0 {
			list = append(list, e)
			continue
		}
		switch before, after := e[:i], e[strings.LastIndex(e, "**")+2:]; {
		case before != "": // of what follows in this element nothing is asked
			list = append(list, before+"*", "**")
		case after != "":
			list = append(list, "**", "*"+after)
		default:
			list = append(list, "**")
		}
	}
	list = slices.CompactFunc(list, func(a, b string) bool { return a == "**" && b == "**" })
	for n := len(list); n > 0; n = len(list) {
		if list[n-1] == "**" {
			list = list[:n-1]
		} else if n > 1 && list[n-1] == "*" && list[n-2] == "**" {
			list = list[:n-2]
		} else {
			break
		}
	}
	return path.Join(".", strings.Join(list, "/"))
}

func same(a, b string, fold bool) bool { return a == b || fold && strings.EqualFold(a, b) }

func elements(p string) []string {
	if p == "." || p == "" {
		return nil
	}
	return strings.Split(p, "/")
}

func above(p string) string {
	if i := strings.LastIndexByte(p, '/'); i >= 0 {
		return p[:i]
	}
	return "."
}

// compared returns a path so that two are the same if their letters are.
func compared(p string, fold bool) string {
	if !fold {
		return p
	}
	lower := false
	for i := range len(p) {
		if p[i] >= 0x80 {
			return strings.Map(foldRune, p)
		}
		lower = lower || p[i] >= 'a' && p[i] <= 'z'
	}
	if lower {
		return strings.ToUpper(p)
	}
	return p
}

// foldRune returns the first of all runes that are r in another case, as
// strings.EqualFold has them; of a letter of ASCII that is the capital.
func foldRune(r rune) rune {
	first := r
	for o := unicode.SimpleFold(r); o != r; o = unicode.SimpleFold(o) {
		first = min(first, o)
	}
	return first
}

func isPattern(element string) bool { return strings.ContainsAny(element, "*?[") }

// Meet reports whether two paths, as Scope returns them, are equal, or one lies
// inside the other, element by element; of patterns, whether they could be. Where
// it is not told (two brackets) they meet: a warning too many is read, a missing
// one is not.
func Meet(a, b string, fold bool) bool {
	if !isPattern(a) && !isPattern(b) {
		a, b = compared(a, fold), compared(b, fold)
		return lies(a, b) || lies(b, a)
	}
	return meet(route(a, fold), route(b, fold), false)
}

// lies reports whether a is folder or inside it.
func lies(a, folder string) bool {
	n := len(folder)
	return folder == "." || len(a) >= n && a[:n] == folder && (len(a) == n || a[n] == '/')
}

// A step is one element of a path as it is compared.
type step struct {
	name string // brackets may also be a folder's name: app/[id]
	deep bool   // **
	glob glob   // nil of a mere name
}

func route(p string, fold bool) []step {
	names := elements(p)
	steps := make([]step, len(names))
	for i, e := range names {
		steps[i] = step{name: compared(e, fold), deep: e == "**"}
		if isPattern(e) {
			steps[i].glob = newGlob(e, fold)
		}
	}
	return steps
}

// names is the route of what exists: no letter of it stands for another. The
// path is as it is compared.
func names(p string) []step {
	list := elements(p)
	steps := make([]step, len(list))
	for i, e := range list {
		steps[i].name = e
	}
	return steps
}

// meet walks both at once, through all that ** may stand for: at is where b may
// be when a has come to its next step. If inside, b must end at or below what a
// names; else either may.
func meet(a, b []step, inside bool) bool {
	return walk(a, b, inside, func(x, y *step) bool {
		switch {
		case x.name == y.name:
			return true
		case x.glob != nil && y.glob != nil:
			return x.glob.meets(y.glob) || x.glob.matches(y.name) || y.glob.matches(x.name)
		case x.glob != nil:
			return x.glob.matches(y.name)
		case y.glob != nil:
			return y.glob.matches(x.name)
		}
		return false
	})
}

// covers reports whether all that inner names certainly lies in outer.
func covers(outer, inner []step) bool {
	return walk(outer, inner, true, func(o, i *step) bool {
		switch {
		case i.deep:
			return false
		case o.name == i.name || o.name == "*":
			return true
		}
		return o.glob != nil && i.glob == nil && o.glob.sure() && o.glob.matches(i.name)
	})
}

func walk(a, b []step, inside bool, match func(x, y *step) bool) bool {
	var few [2][24]bool
	at, next := few[0][:], few[1][:]
	if len(b) >= len(at) {
		at, next = make([]bool, len(b)+1), make([]bool, len(b)+1)
	}
	at[0] = true
	for i := range a {
		x, some := &a[i], false
		for j := range len(b) + 1 {
			switch {
			case !at[j]:
				continue
			case j == len(b):
				if !inside {
					return true
				}
				next[j] = next[j] || x.deep
			case x.deep:
				next[j], at[j+1] = true, true
			case b[j].deep && !inside:
				at[j+1], next[j] = true, true
			case match(x, &b[j]):
				next[j+1] = true
			}
			some = some || next[j] || j < len(b) && next[j+1]
		}
		if !some {
			return false
		}
		at, next = next, at
		clear(next)
	}
	return true
}
