package editor

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/tailscale/hujson"
)

// A jsonFile is a JSON file, perhaps with comments and trailing commas.
type jsonFile struct {
	path string
	b    []byte
	root *hujson.Object // nil where the file is blank
	at   int            // where root begins
	skip int            // the bytes before the text: a byte order mark
}

// A place is an object and the byte where it begins.
type place struct {
	*hujson.Object
	start int
}

// maxDepth is far more than editors nest, and far less than a stack bears.
const maxDepth = 1000

func parseJSON(path string, b []byte, s syntax) (*jsonFile, error) {
	f := &jsonFile{path: path, b: b}
	if hasBOM(b) {
		f.skip = len(bom)
		if s == jsonComments {
			return nil, f.fail(0, "", "begins with a byte order mark, which the editor itself refuses")
		}
	}
	text := b[f.skip:]
	if isBlank(text) {
		return f, nil
	}
	if at := tooDeep(text); at >= 0 {
		return nil, f.fail(f.skip+at, "", fmt.Sprintf("is nested more than %d deep", maxDepth))
	}
	// The parser wants a line comment to have an end.
	v, err := hujson.Parse(append(bytes.Clone(text), '\n'))
	if err != nil {
		return nil, f.unreadable(err)
	}
	if s != jsonLenient {
		if err := f.strict(v, s); err != nil {
			return nil, err
		}
	}
	root, ok := v.Value.(*hujson.Object)
	if !ok {
		return nil, f.fail(f.skip+v.StartOffset, "", "is "+kindOf(v)+" where an object is needed")
	}
	f.root, f.at = root, v.StartOffset
	return f, f.unique(root, "")
}

// tooDeep returns where brackets nest too deep for the parser's stack, or -1.
func tooDeep(b []byte) int {
	depth := 0
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			for i++; i < len(b) && b[i] != '"'; i++ {
				if b[i] == '\\' {
					i++
				}
			}
		case '/':
			end := "\n"
			if bytes.HasPrefix(b[i:], []byte("/*")) {
				end = "*/"
			}
			n := bytes.Index(b[min(i+2, len(b)):], []byte(end))
			if n < 0 {
				return -1 // the parser says what is wrong with that
			}
			i += 2 + n + len(end) - 1
		case '{', '[':
			if depth++; depth > maxDepth {
				return i
			}
		case '}', ']':
			depth--
		}
	}
	return -1
}

func (f *jsonFile) fail(at int, key, reason string) *Error {
	return &Error{Path: f.path, Line: lineOf(f.b, at), Key: key, Reason: reason}
}

var hujsonPosition = regexp.MustCompile(`^hujson: line (\d+), column (\d+): `)

// unreadable says where the parser stopped, and why.
func (f *jsonFile) unreadable(err error) *Error {
	e := &Error{Path: f.path, Reason: "cannot be parsed: " + err.Error(), Err: err}
	if m := hujsonPosition.FindStringSubmatch(err.Error()); m != nil {
		e.Line, _ = strconv.Atoi(m[1]) // ignore error: digits
		e.Line = min(e.Line, lineOf(f.b, len(f.b)))
		e.Reason = "cannot be parsed: " + err.Error()[len(m[0]):]
	}
	return e
}

// strict finds what the editor itself would refuse.
func (f *jsonFile) strict(v hujson.Value, s syntax) error {
	at := f.skip
	extra := func(e hujson.Extra) error {
		if i := bytes.IndexByte(e, '/'); i >= 0 && s == jsonStrict {
			return f.fail(at+i, "", "has a comment, which the editor itself refuses in this file")
		}
		at += len(e)
		return nil
	}
	var walk func(v hujson.Value) error
	list := func(n int, item func(i int) error, last func() hujson.Extra, after hujson.Extra) error {
		at++
		for i := range n {
			if err := item(i); err != nil {
				return err
			}
			if i < n-1 || last() != nil {
				if i == n-1 {
					return f.fail(at, "", "has a comma after the last member, which the editor itself refuses")
				}
				at++
			}
		}
		if err := extra(after); err != nil {
			return err
		}
		at++
		return nil
	}
	walk = func(v hujson.Value) error {
		if err := extra(v.BeforeExtra); err != nil {
			return err
		}
		var err error
		switch x := v.Value.(type) {
		case *hujson.Object:
			err = list(len(x.Members), func(i int) error {
				if err := walk(x.Members[i].Name); err != nil {
					return err
				}
				at++
				return walk(x.Members[i].Value)
			}, func() hujson.Extra { return x.Members[len(x.Members)-1].Value.AfterExtra }, x.AfterExtra)
		case *hujson.Array:
			err = list(len(x.Elements), func(i int) error { return walk(x.Elements[i]) },
				func() hujson.Extra { return x.Elements[len(x.Elements)-1].AfterExtra }, x.AfterExtra)
		default:
			at += v.EndOffset - v.StartOffset
		}
		if err != nil {
			return err
		}
		return extra(v.AfterExtra)
	}
	return walk(v)
}

// unique refuses a key that is there twice: which of them counts, editors do
// not agree on.
func (f *jsonFile) unique(o *hujson.Object, under string) error {
	seen := map[string]int{}
	for _, m := range o.Members {
		name := nameOf(m)
		at := f.skip + m.Name.StartOffset
		if first, ok := seen[name]; ok {
			return f.fail(at, join(under, name), fmt.Sprintf("is there twice, the first time in line %d", first))
		}
		seen[name] = lineOf(f.b, at)
	}
	return nil
}

func join(under, name string) string {
	if under == "" {
		return name
	}
	return under + "." + name
}

func nameOf(m hujson.ObjectMember) string { return m.Name.Value.(hujson.Literal).String() }

func kindOf(v hujson.Value) string {
	switch x := v.Value.(type) {
	case *hujson.Object:
		return "an object"
	case *hujson.Array:
		return "a list"
	case hujson.Literal:
		switch x.Kind() {
		case '"':
			return "a string"
		case 'n':
			return "null"
		case 't', 'f':
			return "a truth value"
		}
	}
	return "a number"
}

func index(o *hujson.Object, name string) int {
	for i, m := range o.Members {
		if nameOf(m) == name {
			return i
		}
	}
	return -1
}

// rootPlace is the file's object.
func (f *jsonFile) rootPlace() place { return place{f.root, f.skip + f.at} }

// servers finds the object that the servers are in; none is no error.
func (f *jsonFile) servers(key string) (p place, ok bool, err error) {
	if f.root == nil {
		return p, false, nil
	}
	i := index(f.root, key)
	if i < 0 {
		return p, false, nil
	}
	v := f.root.Members[i].Value
	o, ok := v.Value.(*hujson.Object)
	if !ok {
		return p, false, f.fail(f.skip+v.StartOffset, key, "is "+kindOf(v)+" where an object with the servers is needed")
	}
	return place{o, f.skip + v.StartOffset}, true, f.unique(o, key)
}

func (f *jsonFile) find(key, name string) (value any, text string, line int, err error) {
	p, ok, err := f.servers(key)
	if !ok || err != nil {
		return nil, "", 0, err
	}
	i := index(p.Object, name)
	if i < 0 {
		return nil, "", 0, nil
	}
	v := p.Members[i].Value
	if o, ok := v.Value.(*hujson.Object); ok {
		if err := f.unique(o, join(key, name)); err != nil {
			return nil, "", 0, err
		}
	}
	text = string(f.b[f.skip+v.StartOffset : f.skip+v.EndOffset])
	value, err = decodeJSON([]byte(text))
	return value, text, lineOf(f.b, f.skip+p.Members[i].Name.StartOffset), err
}

// decodeJSON is what the text means.
func decodeJSON(b []byte) (any, error) {
	b = bytes.TrimPrefix(b, []byte(bom))
	if isBlank(b) {
		return map[string]any{}, nil
	}
	b, err := hujson.Standardize(append(bytes.Clone(b), '\n'))
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber() // all digits count
	var v any
	return v, d.Decode(&v)
}

func (f *jsonFile) tree() (any, error) { return decodeJSON(f.b) }

func quoteJSON(v any) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err) // strings, and lists of them
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// A look is how a file lays out its members.
type look struct {
	eol, unit string
	compact   bool // no blank after colons and commas
	oneLine   bool
}

func (f *jsonFile) look() look {
	l := look{eol: eolOf(f.b), unit: "  "}
	if f.root == nil {
		return l
	}
	if len(f.root.Members) > 0 && !bytes.Contains(bytes.TrimSpace(f.b), []byte("\n")) {
		l.oneLine, l.compact = true, f.root.Members[0].Value.BeforeExtra == nil
		return l
	}
	// What the first member that has a line of its own is indented by.
	var walk func(p place) bool
	walk = func(p place) bool {
		base, _ := indentOf(f.b, p.start)
		for _, m := range p.Members {
			at := f.skip + m.Name.StartOffset
			indent, first := indentOf(f.b, at)
			if unit, ok := strings.CutPrefix(indent, base); ok && first && unit != "" {
				l.unit = unit
				return true
			}
			if o, ok := m.Value.Value.(*hujson.Object); ok && walk(place{o, f.skip + m.Value.StartOffset}) {
				return true
			}
		}
		return false
	}
	walk(f.rootPlace())
	return l
}

// member is the text of a member whose value is fields, in lines indented by
// indent but for the first.
func (l look) member(name, indent string, value func(indent string) string) string {
	return quoteJSON(name) + l.colon() + value(indent)
}

func (l look) colon() string {
	if l.oneLine && l.compact {
		return ":"
	}
	return ": "
}

func (l look) comma() string {
	if l.oneLine && l.compact {
		return ","
	}
	return ", "
}

// object is the text of an object, in lines indented by indent but for the
// first.
func (l look) object(indent string, members ...string) string {
	if l.oneLine {
		return "{" + strings.Join(members, l.comma()) + "}"
	}
	in := l.eol + indent + l.unit
	return "{" + in + strings.Join(members, ","+in) + l.eol + indent + "}"
}

func (l look) value(v any) string {
	list, ok := v.([]string)
	if !ok {
		return quoteJSON(v)
	}
	quoted := make([]string, len(list))
	for i, s := range list {
		quoted[i] = quoteJSON(s)
	}
	return "[" + strings.Join(quoted, l.comma()) + "]"
}

func (l look) entry(fields []field) func(indent string) string {
	return func(indent string) string {
		members := make([]string, len(fields))
		for i, f := range fields {
			members[i] = quoteJSON(f.key) + l.colon() + l.value(f.value)
		}
		return l.object(indent, members...)
	}
}

func (f *jsonFile) add(key, name string, fields []field) ([]edit, []string, error) {
	p, ok, err := f.servers(key)
	if err != nil {
		return nil, nil, err
	}
	l := f.look()
	if ok {
		return f.insert(p, l, name, func(l look) func(string) string { return l.entry(fields) }), nil, nil
	}
	servers := func(l look) func(indent string) string {
		return func(indent string) string {
			in := indent
			if !l.oneLine {
				in += l.unit
			}
			return l.object(indent, l.member(name, in, l.entry(fields)))
		}
	}
	if f.root == nil {
		text := l.object("", l.member(key, l.unit, servers(l))) + l.eol
		return []edit{{f.skip, string(f.b[f.skip:]), text}}, []string{key}, nil
	}
	return f.insert(f.rootPlace(), l, key, servers), []string{key}, nil
}

// insert puts a member after the last one of p.
func (f *jsonFile) insert(p place, l look, name string, value func(look) func(string) string) []edit {
	if len(p.Members) == 0 {
		open := p.start + 1
		kept, _ := commentsEnd(p.AfterExtra)
		closing := open + len(p.AfterExtra)
		if l.oneLine {
			pad := ""
			if f.root.Members[0].Name.BeforeExtra != nil {
				pad = " "
			}
			return []edit{{open + kept, string(f.b[open+kept : closing]), pad + l.member(name, "", value(l)) + pad}}
		}
		base, _ := indentOf(f.b, p.start)
		in := base + l.unit
		text := l.eol + in + l.member(name, in, value(l))
		// Comments stay where they are; the blanks after them go.
		if kept > 0 && bytes.Contains(p.AfterExtra[kept:], []byte("\n")) {
			return []edit{{open + kept, "", text}}
		}
		return []edit{{open + kept, string(f.b[open+kept : closing]), text + l.eol + base}}
	}
	last := p.Members[len(p.Members)-1]
	end := f.skip + last.Value.EndOffset
	trailing := last.Value.AfterExtra != nil
	indent, first := indentOf(f.b, f.skip+last.Name.StartOffset)
	if !first {
		l.oneLine = true
		l.compact = last.Value.BeforeExtra == nil
		text := l.member(name, "", value(l))
		if trailing {
			at := end + len(last.Value.AfterExtra) + 1
			return []edit{{at, "", strings.TrimPrefix(l.comma(), ",") + text + ","}}
		}
		return []edit{{end, "", l.comma() + text}}
	}
	text := l.eol + indent + l.member(name, indent, value(l))
	if trailing {
		after := end + len(last.Value.AfterExtra) + 1
		return []edit{{f.afterComments(after, p.AfterExtra), "", text + ","}}
	}
	if at := f.afterComments(end, p.AfterExtra); at > end {
		return []edit{{end, "", ","}, {at, "", text}}
	}
	return []edit{{end, "", "," + text}}
}

// afterComments is the end of the comments that follow on the same line.
func (f *jsonFile) afterComments(at int, extra hujson.Extra) int {
	end := at
	for rest := string(extra); ; {
		trimmed := strings.TrimLeft(rest, " \t")
		at += len(rest) - len(trimmed)
		var n int
		switch {
		case strings.HasPrefix(trimmed, "//"):
			n = strings.IndexByte(trimmed, '\n')
			return at + len(strings.TrimRight(trimmed[:n], "\r"))
		case strings.HasPrefix(trimmed, "/*"):
			n = strings.Index(trimmed, "*/") + 2
			if strings.Contains(trimmed[:n], "\n") {
				return end
			}
		default:
			return end
		}
		at += n
		end, rest = at, trimmed[n:]
	}
}

// replace puts another value into an entry that is there: fields, or the text
// of one that was there before.
func (f *jsonFile) replace(key, name string, fields []field, text string) ([]edit, error) {
	p, _, err := f.servers(key)
	if err != nil {
		return nil, err
	}
	m := p.Members[index(p.Object, name)]
	from, to := f.skip+m.Value.StartOffset, f.skip+m.Value.EndOffset
	old := string(f.b[from:to])
	if text == "" {
		l := f.look()
		indent, first := indentOf(f.b, f.skip+m.Name.StartOffset)
		if !first && !strings.Contains(old, "\n") {
			l.oneLine, l.compact = true, m.Value.BeforeExtra == nil
		}
		text = l.entry(fields)(indent)
	}
	return []edit{{from, old, text}}, nil
}

// remove takes the entry out, and the object that it was in if that is one of
// the keys that were made for it and nothing else is in it.
func (f *jsonFile) remove(key, name string, made []string) ([]edit, error) {
	p, ok, err := f.servers(key)
	if err != nil || !ok {
		return nil, err
	}
	i := index(p.Object, name)
	if i < 0 {
		return nil, nil
	}
	if len(p.Members) == 1 && len(made) > 0 && !hasComment(p.AfterExtra) && !hasComment(p.Members[0].Name.BeforeExtra) {
		return f.cut(f.rootPlace(), index(f.root, key)), nil
	}
	return f.cut(p, i), nil
}

func hasComment(e hujson.Extra) bool { return bytes.IndexByte(e, '/') >= 0 }

// commentsEnd is where the last comment ends, and whether it is one to the
// line's end, which is no part of it.
func commentsEnd(e hujson.Extra) (end int, line bool) {
	text := string(e)
	for {
		i := strings.IndexByte(text[end:], '/')
		if i < 0 {
			return end, line
		}
		i += end
		if line = text[i+1] == '/'; line {
			end = i + strings.IndexByte(text[i:], '\n')
			for text[end-1] == '\r' {
				end--
			}
		} else {
			end = i + 2 + strings.Index(text[i+2:], "*/") + 2
		}
	}
}

// cut takes a member out, and the comma that is one too many without it.
func (f *jsonFile) cut(p place, i int) []edit {
	take := func(from, to int) edit { return edit{from, string(f.b[from:to]), ""} }
	m := p.Members[i]
	start, end := f.skip+m.Name.StartOffset, f.skip+m.Value.EndOffset
	last := i == len(p.Members)-1
	comma := -1 // the member's own
	if !last || m.Value.AfterExtra != nil {
		comma = end + len(m.Value.AfterExtra)
		end = comma + 1
	}
	before := m.Name.BeforeExtra
	commented, toLineEnd := commentsEnd(before)
	from := start - len(before) + commented // after a comment, comma or brace
	if toLineEnd {
		if next := lineEnd(f.b, end); !isBlank(f.b[end:next]) || next == len(f.b) {
			from = start
		}
	}
	switch {
	case len(p.Members) == 1:
		if !hasComment(before) && !hasComment(p.AfterExtra) {
			end += len(p.AfterExtra)
		}
		return []edit{take(from, end)}
	case last && comma < 0:
		prev := p.Members[i-1].Value
		at := f.skip + prev.EndOffset + len(prev.AfterExtra)
		if from == at+1 {
			return []edit{take(at, end)}
		}
		return []edit{take(at, at+1), take(from, end)}
	case i == 0 && !bytes.Contains(before, []byte("\n")):
		for end < len(f.b) && (f.b[end] == ' ' || f.b[end] == '\t') {
			end++
		}
		return []edit{take(start, end)}
	}
	return []edit{take(from, end)}
}

// bare reports whether nothing is left in the file but what makes it one.
func (f *jsonFile) bare() bool {
	return f.root == nil || len(f.root.Members) == 0 && !bytes.Contains(f.b, []byte("/"))
}
