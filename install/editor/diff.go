package editor

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	around   = 2   // lines of the file that a diff shows before and after
	maxShown = 120 // of a line, in characters
)

// writeDiff shows what has changed from a to b, as one hunk. The files are
// edited in one place, so that one is enough.
func writeDiff(w io.Writer, a, b string) {
	was, is := lines(a), lines(b)
	n := 0
	for n < len(was) && n < len(is) && was[n] == is[n] {
		n++
	}
	m := 0
	for m < len(was)-n && m < len(is)-n && was[len(was)-1-m] == is[len(is)-1-m] {
		m++
	}
	show := func(mark string, lines []string) {
		for _, l := range lines {
			fmt.Fprintln(w, strings.TrimRight(mark+shown(l), " "))
		}
	}
	gone, come := was[n:len(was)-m], is[n:len(is)-m]
	if len(gone)+len(come) == 0 {
		return
	}
	// A very long line is a file without line ends: only where it changes.
	if len(gone) == 1 && len(come) == 1 {
		gone[0], come[0] = cut(gone[0], come[0])
	}
	show("  ", was[max(0, n-around):n])
	show("- ", gone)
	show("+ ", come)
	show("  ", was[len(was)-m:min(len(was), len(was)-m+around)])
}

func lines(s string) []string {
	var list []string
	for l := range strings.Lines(strings.TrimPrefix(s, bom)) {
		list = append(list, strings.TrimRight(l, "\r\n"))
	}
	return list
}

// cut leaves out what long lines begin and end with alike.
func cut(a, b string) (string, string) {
	if len(a) <= maxShown && len(b) <= maxShown {
		return a, b
	}
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	m := 0
	for m < len(a)-n && m < len(b)-n && a[len(a)-1-m] == b[len(b)-1-m] {
		m++
	}
	const keep = 20
	n, m = max(0, n-keep), max(0, m-keep)
	one := func(s string) string {
		from, to := n, len(s)-m
		for from > 0 && !utf8.RuneStart(s[from]) {
			from--
		}
		for to < len(s) && !utf8.RuneStart(s[to]) {
			to++
		}
		out := s[from:to]
		if from > 0 {
			out = "…" + out
		}
		if to < len(s) {
			out += "…"
		}
		return out
	}
	return one(a), one(b)
}

// shown is a line of a file so that nothing in it moves a terminal's cursor.
func shown(s string) string {
	var b strings.Builder
	n := 0
	for _, r := range s {
		if n++; n > 2*maxShown {
			b.WriteString("…")
			break
		}
		switch {
		case r == '\t':
			b.WriteString("    ")
		case unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}
