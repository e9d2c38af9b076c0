package shell

import (
	"bytes"
	"fmt"
	"strings"
)

// The marks that our lines in a file of somebody else's stand between.
const (
	begin = "# >>> majordomus >>>"
	end   = "# <<< majordomus <<<"
)

// What the line below the first mark says of how the file was before.
const (
	saysMade    = "The file was made for them."
	saysUnended = "The line before them had no end."
)

// A BrokenError says that the marks in a file are not as they were written, so
// that nobody can tell which lines are whose.
type BrokenError struct {
	Line   int // from 1
	Reason string
}

func (e *BrokenError) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Reason) }

// block is where our lines are in a file, with their marks.
type block struct {
	from, to      int // in bytes
	made, unended bool
}

// find looks for our lines. Marks that are not one whole pair are an error.
func find(text []byte) (b block, there bool, err error) {
	opened, at, line := 0, 0, 0
	for l := range bytes.Lines(text) {
		line++
		switch strings.TrimSpace(string(l)) {
		case begin:
			switch {
			case opened > 0:
				return b, false, &BrokenError{line, fmt.Sprintf("%q for the second time; the first is in line %d and has no %q", begin, opened, end)}
			case there:
				return b, false, &BrokenError{line, fmt.Sprintf("%q for the second time", begin)}
			}
			opened, b.from = line, at
		case end:
			if opened == 0 {
				return b, false, &BrokenError{line, fmt.Sprintf("%q without a %q before it", end, begin)}
			}
			opened, there, b.to = 0, true, at+len(l)
		default:
			if opened > 0 && line == opened+1 {
				b.made = bytes.Contains(l, []byte(saysMade))
				b.unended = bytes.Contains(l, []byte(saysUnended))
			}
		}
		at += len(l)
	}
	if opened > 0 {
		return b, false, &BrokenError{opened, fmt.Sprintf("%q without a %q after it", begin, end)}
	}
	return b, there, nil
}

// A Place says where lines are put that are not there yet.
type Place int

const (
	Last       Place = iota // at the end of the file
	BelowFirst              // below its first line, which is the end where there is one line
)

// Put returns text with lines of ours in it: in the place of those that are
// there, else where the place says. A nil text is a file that is not there,
// which begins with first (whole lines). undo is the word that takes them out.
func Put(text []byte, place Place, first, lines, undo string) ([]byte, error) {
	b, there, err := find(text)
	if err != nil {
		return nil, err
	}
	if !there {
		b = block{from: len(text), to: len(text), made: text == nil}
		if text == nil {
			text = []byte(first)
			b.from, b.to = len(text), len(text)
		}
		if i := bytes.IndexByte(text, '\n'); place == BelowFirst && i >= 0 {
			b.from, b.to = i+1, i+1
		}
		b.unended = b.from > 0 && text[b.from-1] != '\n'
	}
	says := []string{fmt.Sprintf("# %q takes these lines out.", undo)}
	if b.made {
		says = append(says, saysMade)
	}
	var ours strings.Builder
	if b.unended {
		says = append(says, saysUnended)
		if !there {
			ours.WriteString("\n")
		}
	}
	ours.WriteString(begin + "\n" + strings.Join(says, " ") + "\n" + strings.TrimSuffix(lines, "\n") + "\n" + end + "\n")
	return bytes.Join([][]byte{text[:b.from], []byte(ours.String()), text[b.to:]}, nil), nil
}

// Has reports whether lines of ours are in text.
func Has(text []byte) (bool, error) {
	_, there, err := find(text)
	return there, err
}

// Take returns text without our lines, as it was before Put where nothing but
// they came to it. Nil is a file that was made for them and has nothing else now
// but first.
func Take(text []byte, first string) ([]byte, error) {
	b, there, err := find(text)
	if err != nil || !there {
		return text, err
	}
	// What came below a line that had no end needs that end.
	if b.unended && b.to == len(text) && b.from > 0 && text[b.from-1] == '\n' {
		b.from--
	}
	left := bytes.Join([][]byte{text[:b.from], text[b.to:]}, []byte{})
	if b.made && string(left) == first {
		return nil, nil
	}
	return left, nil
}
