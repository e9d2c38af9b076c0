package editor

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// A tomlFile is a TOML file. The library says what it means and where its keys
// are; it has no way to write it as it was, so edits are made here.
type tomlFile struct {
	path  string
	b     []byte
	skip  int // the bytes of a byte order mark
	value map[string]any
	items []item
}

// An item is a table's header, or a key with its value.
type item struct {
	key        []string // in full
	start, end int      // of a header: its line's content
	header     bool
	inline     bool   // the value is a table in braces
	value      int    // where the value begins
	inside     []item // of such a table; their keys are in full too
}

func parseTOML(path string, b []byte) (*tomlFile, error) {
	f := &tomlFile{path: path, b: b, value: map[string]any{}}
	if hasBOM(b) {
		f.skip = len(bom)
	}
	text := b[f.skip:]
	if err := toml.Unmarshal(text, &f.value); err != nil {
		e := &Error{Path: path, Reason: "cannot be parsed: " + strings.TrimPrefix(err.Error(), "toml: "), Err: err}
		var at *toml.DecodeError
		if errors.As(err, &at) {
			e.Line, _ = at.Position()
		}
		return nil, e
	}
	var p unstable.Parser
	p.Reset(text)
	var table []string
	for p.NextExpression() {
		n := p.Expression()
		if n.Kind == unstable.KeyValue {
			f.items = append(f.items, f.keyValue(n, table))
			continue
		}
		var first, last int
		table, first, last = f.keyOf(n)
		start := lineStart(f.b, first)
		start += len(f.b[start:first]) - len(bytes.TrimLeft(f.b[start:first], " \t"+bom))
		f.items = append(f.items, item{key: table, start: start, end: lineEnd(f.b, last), header: true})
	}
	if err := p.Error(); err != nil {
		return nil, &Error{Path: path, Reason: "cannot be parsed: " + err.Error(), Err: err}
	}
	return f, nil
}

// keyOf is a key, and its first byte and the one after its last.
func (f *tomlFile) keyOf(n *unstable.Node) (key []string, first, last int) {
	for it := n.Key(); it.Next(); {
		k := it.Node()
		if key == nil {
			first = f.skip + int(k.Raw.Offset)
		}
		last = f.skip + int(k.Raw.Offset+k.Raw.Length)
		key = append(key, string(k.Data))
	}
	return key, first, last
}

func (f *tomlFile) keyValue(n *unstable.Node, under []string) item {
	key, first, _ := f.keyOf(n)
	i := item{key: slices.Concat(under, key), start: first, end: f.skip + int(n.Raw.Offset+n.Raw.Length), inline: n.Value().Kind == unstable.InlineTable}
	if i.inline {
		i.value = f.skip + int(n.Value().Raw.Offset)
		for it := n.Value().Children(); it.Next(); {
			if it.Node().Kind == unstable.KeyValue {
				i.inside = append(i.inside, f.keyValue(it.Node(), i.key))
			}
		}
	}
	return i
}

func under(key, prefix []string) bool {
	return len(key) >= len(prefix) && slices.Equal(key[:len(prefix)], prefix)
}

// lineOfKey is the line in which something is first said about a key.
func (f *tomlFile) lineOfKey(key []string) int {
	for _, i := range f.items {
		if under(i.key, key) {
			return lineOf(f.b, i.start)
		}
		for _, in := range i.inside {
			if under(in.key, key) {
				return lineOf(f.b, in.start)
			}
		}
	}
	return 0
}

func (f *tomlFile) find(key, name string) (value any, text string, line int, err error) {
	servers, ok := f.value[key]
	if !ok {
		return nil, "", 0, nil
	}
	table, ok := servers.(map[string]any)
	if !ok {
		return nil, "", 0, &Error{Path: f.path, Line: f.lineOfKey([]string{key}), Key: key, Reason: "is no table, where one with the servers is needed"}
	}
	value, ok = table[name]
	if !ok {
		return nil, "", 0, nil
	}
	full := []string{key, name}
	var parts []string
	for _, s := range f.spans(full) {
		parts = append(parts, string(f.b[s.start:s.end]))
	}
	return value, strings.Join(parts, eolOf(f.b)), f.lineOfKey(full), nil
}

func (f *tomlFile) tree() (any, error) { return decodeTOML(f.b) }

func decodeTOML(b []byte) (any, error) {
	v := map[string]any{}
	return v, toml.Unmarshal(bytes.TrimPrefix(b, []byte(bom)), &v)
}

// A span is some bytes of the file.
type span struct{ start, end int }

// spans are where something is said about a key: tables with all that is in
// them, keys elsewhere, and keys in braces.
func (f *tomlFile) spans(key []string) []span {
	var list []span
	inTable := false
	for _, i := range f.items {
		switch {
		case i.header && under(i.key, key):
			if inTable {
				list[len(list)-1].end = i.end
			} else {
				list = append(list, span{i.start, i.end})
			}
			inTable = true
		case i.header:
			inTable = false
		case inTable:
			list[len(list)-1].end = lineEnd(f.b, i.end)
		case under(i.key, key):
			list = append(list, span{i.start, lineEnd(f.b, i.end)})
		default:
			for _, in := range i.inside {
				if under(in.key, key) {
					list = append(list, span{in.start, in.end})
				}
			}
		}
	}
	return list
}

// braces finds the item whose value is the servers in braces.
func (f *tomlFile) braces(key string) *item {
	for i := range f.items {
		if it := &f.items[i]; it.inline && slices.Equal(it.key, []string{key}) {
			return it
		}
	}
	return nil
}

func quoteTOML(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < 0x20 || r == 0x7f:
			fmt.Fprintf(&b, `\u%04X`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

func tomlValue(v any) string {
	switch v := v.(type) {
	case []string:
		quoted := make([]string, len(v))
		for i, s := range v {
			quoted[i] = quoteTOML(s)
		}
		return "[" + strings.Join(quoted, ", ") + "]"
	case string:
		return quoteTOML(v)
	}
	return fmt.Sprint(v)
}

func tomlLines(fields []field) []string {
	lines := make([]string, len(fields))
	for i, f := range fields {
		lines[i] = f.key + " = " + tomlValue(f.value)
	}
	return lines
}

func inBraces(fields []field) string { return "{ " + strings.Join(tomlLines(fields), ", ") + " }" }

func (f *tomlFile) table(key, name string, fields []field) string {
	eol := eolOf(f.b)
	return "[" + key + "." + name + "]" + eol + strings.Join(tomlLines(fields), eol)
}

func (f *tomlFile) add(key, name string, fields []field) ([]edit, []string, error) {
	if _, _, _, err := f.find(key, name); err != nil {
		return nil, nil, err
	}
	if it := f.braces(key); it != nil {
		text := name + " = " + inBraces(fields)
		if n := len(it.inside); n > 0 {
			return []edit{{it.inside[n-1].end, "", ", " + text}}, nil, nil
		}
		rest := string(f.b[it.value+1 : it.end-1])
		if isBlank([]byte(rest)) {
			return []edit{{it.value + 1, rest, " " + text + " "}}, nil, nil
		}
		return nil, nil, &Error{Path: f.path, Line: lineOf(f.b, it.value), Key: key, Reason: "has only comments in its braces"}
	}
	eol := eolOf(f.b)
	text := f.table(key, name, fields)
	body := f.b[f.skip:]
	switch {
	case isBlank(body):
		return []edit{{f.skip, string(body), text + eol}}, nil, nil
	case !bytes.HasSuffix(body, []byte("\n")):
		return []edit{{len(f.b), "", eol + eol + text}}, nil, nil
	case isBlank(f.b[lineStart(f.b, len(f.b)-1):]):
		return []edit{{len(f.b), "", text + eol}}, nil, nil
	}
	return []edit{{len(f.b), "", eol + text + eol}}, nil, nil
}

func (f *tomlFile) replace(key, name string, fields []field, text string) ([]edit, error) {
	full := []string{key, name}
	spans := f.spans(full)
	first := spans[0]
	if text != "" {
		if len(spans) != 1 {
			return nil, &Error{Path: f.path, Line: lineOf(f.b, first.start), Key: key + "." + name, Reason: "is in several places"}
		}
		return []edit{{first.start, string(f.b[first.start:first.end]), text}}, nil
	}
	edits := make([]edit, len(spans))
	for i, s := range spans {
		edits[i] = edit{s.start, string(f.b[s.start:s.end]), ""}
	}
	for _, i := range f.items {
		switch {
		case i.header && i.start == first.start:
			edits[0].New = f.table(key, name, fields)
			return edits, nil
		case i.inline && slices.Equal(i.key, full) && len(spans) == 1:
			return []edit{{i.value, string(f.b[i.value:i.end]), inBraces(fields)}}, nil
		}
		for _, in := range i.inside {
			if in.inline && slices.Equal(in.key, full) && len(spans) == 1 {
				return []edit{{in.value, string(f.b[in.value:in.end]), inBraces(fields)}}, nil
			}
		}
	}
	return nil, &Error{Path: f.path, Line: lineOf(f.b, first.start), Key: key + "." + name, Reason: "is written in a way that is not replaced here; take it out by hand"}
}

func (f *tomlFile) remove(key, name string, _ []string) ([]edit, error) {
	full := []string{key, name}
	take := func(from, to int) edit { return edit{from, string(f.b[from:to]), ""} }
	if it := f.braces(key); it != nil {
		for n, in := range it.inside {
			switch {
			case !under(in.key, full):
			case n > 0:
				return []edit{take(it.inside[n-1].end, in.end)}, nil
			case len(it.inside) > 1:
				return []edit{take(in.start, it.inside[1].start)}, nil
			default:
				return []edit{take(it.value+1, it.end-1)}, nil
			}
		}
	}
	var edits []edit
	for _, s := range f.spans(full) {
		from, to := s.start, s.end
		if indent, first := indentOf(f.b, from); first {
			from -= len(indent)
		}
		// With its line, and with the empty line that separated it, where
		// nothing follows that it separates still.
		to = f.next(to)
		before := from > f.skip && isBlank(f.b[lineStart(f.b, from-1):from])
		after := isBlank(f.b[to:f.next(to)]) // also at the end
		switch {
		case before && after:
			from = lineStart(f.b, from-1)
			if to == len(f.b) && s.end == to { // without a line end, as the file was
				from = lineEnd(f.b, max(from-1, f.skip))
			}
		case to == len(f.b) && s.end == to && from > f.skip:
			from = lineEnd(f.b, from-1)
		}
		edits = append(edits, take(from, to))
	}
	return edits, nil
}

// next is the byte after the line of a byte.
func (f *tomlFile) next(at int) int {
	if i := bytes.IndexByte(f.b[at:], '\n'); i >= 0 {
		return at + i + 1
	}
	return len(f.b)
}

func (f *tomlFile) bare() bool { return isBlank(f.b[f.skip:]) }
