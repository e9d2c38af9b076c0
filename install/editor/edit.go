package editor

import (
	"bytes"
	"errors"
	"slices"
	"strings"
)

// An edit puts New in the place of Old, which is at a byte of the file as it
// was.
type edit struct {
	At  int    `json:"at"`
	Old string `json:"old,omitempty"`
	New string `json:"new,omitempty"`
}

// apply does edits, which must not overlap.
func apply(b []byte, edits []edit) []byte {
	edits = slices.Clone(edits)
	slices.SortStableFunc(edits, func(a, b edit) int { return a.At - b.At })
	var out []byte
	at := 0
	for _, e := range edits {
		out = append(append(out, b[at:e.At]...), e.New...)
		at = e.At + len(e.Old)
	}
	return append(out, b[at:]...)
}

// revert undoes edits in what they have made.
func revert(b []byte, edits []edit) ([]byte, error) {
	edits = slices.Clone(edits)
	slices.SortStableFunc(edits, func(a, b edit) int { return a.At - b.At })
	var out []byte
	at, moved := 0, 0
	for _, e := range edits {
		start := e.At + moved
		if start < at || start+len(e.New) > len(b) || string(b[start:start+len(e.New)]) != e.New {
			return nil, errors.New("the edits are not in the file")
		}
		out = append(append(out, b[at:start]...), e.Old...)
		at = start + len(e.New)
		moved += len(e.New) - len(e.Old)
	}
	return append(out, b[at:]...), nil
}

// bom is a byte order mark, which some editors on Windows write.
const bom = "\ufeff"

func hasBOM(b []byte) bool { return bytes.HasPrefix(b, []byte(bom)) }

// lineOf is the line, from 1, that a byte is in.
func lineOf(b []byte, at int) int { return 1 + bytes.Count(b[:min(at, len(b))], []byte("\n")) }

// lineStart is the first byte of the line that a byte is in.
func lineStart(b []byte, at int) int { return bytes.LastIndexByte(b[:at], '\n') + 1 }

// lineEnd is the byte after the line's content: its line end, or the end of the
// file.
func lineEnd(b []byte, at int) int {
	i := bytes.IndexByte(b[at:], '\n')
	if i < 0 {
		return len(b)
	}
	if end := at + i; end > 0 && b[end-1] == '\r' {
		return end - 1
	}
	return at + i
}

// eolOf is the line end that a file has.
func eolOf(b []byte) string {
	if i := bytes.IndexByte(b, '\n'); i > 0 && b[i-1] == '\r' {
		return "\r\n"
	}
	return "\n"
}

func isBlank(b []byte) bool { return len(bytes.Trim(b, " \t\r\n")) == 0 }

// indentOf is the blanks with which the line of a byte begins, and whether they
// are all that is before it.
func indentOf(b []byte, at int) (indent string, first bool) {
	start := lineStart(b, at)
	if start == 0 && hasBOM(b) {
		start = len(bom)
	}
	line := string(b[start:at])
	rest := strings.TrimLeft(line, " \t")
	return line[:len(line)-len(rest)], rest == ""
}
