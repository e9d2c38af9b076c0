package editor

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

var ours = Server{Name: "majordomus", Command: "/opt/majordomus/bin/majordomus", Args: []string{"mcp"}}

// planned is Plan without the file system.
func planned(e Editor, b []byte, past record, s Server) (*Change, error) {
	c := &Change{File: "FILE", was: b, existed: true, record: past}
	return c, e.plan(c, s)
}

func taken(e Editor, b []byte, past record) (*Change, error) {
	c := &Change{File: "FILE", was: b, existed: true, record: past}
	return c, e.removal(c, ours.Name, false)
}

// holds checks what is promised for a file that can be edited at all: b is one
// without the entry.
func holds(t *testing.T, e Editor, b []byte) {
	t.Helper()
	add, err := planned(e, b, record{}, ours)
	if err != nil {
		t.Fatalf("%s: %v in\n%q", e.Name, err, b)
	}
	if add.State != Added {
		return // a file that has the entry
	}
	fail := func(what string, got []byte) {
		t.Helper()
		t.Fatalf("%s: %s\nbefore %q\nadded  %q\ngot    %q", e.Name, what, b, add.is, got)
	}
	// Everything else is byte for byte as it was: only blanks were taken away.
	for _, edit := range add.record.Edits {
		if !isBlank([]byte(edit.Old)) {
			fail("what was in the file has gone", []byte(edit.Old))
		}
	}
	if hasBOM(b) && (!hasBOM(add.is) || bytes.Count(add.is, []byte(bom)) != bytes.Count(b, []byte(bom))) {
		fail("the byte order mark has gone", add.is)
	}
	for _, edit := range add.record.Edits {
		if eolOf(b) == "\r\n" && strings.Count(edit.New, "\n") != strings.Count(edit.New, "\r\n") {
			fail("other line ends", add.is)
		}
	}
	for _, past := range []record{add.record, {}} { // remembered, and not
		again, err := planned(e, add.is, past, ours)
		if err != nil || again.State != Right || !bytes.Equal(again.is, add.is) {
			fail(fmt.Sprintf("a second time is %v, %v", again.State, err), again.is)
		}
	}
	// Another place of the program, and back.
	moved := ours
	moved.Command = "/usr/bin/majordomus"
	other, err := planned(e, add.is, add.record, moved)
	if err != nil || other.State != Replaced || other.Asks {
		fail(fmt.Sprintf("moving it is %v, %v", other.State, err), other.is)
	}
	for _, c := range []*Change{add, other} {
		back, err := taken(e, c.is, c.record)
		if err != nil || back.State != Removed || !bytes.Equal(back.is, b) {
			fail(fmt.Sprintf("taking it out is %v, %v", back.State, err), back.is)
		}
	}
	// When nothing is remembered, or somebody has edited the file since, what
	// is left means what it meant; where there were other servers it is the
	// same to the byte.
	past := add.record
	past.After = "edited since"
	for _, past := range []record{past, {}} {
		back, err := taken(e, add.is, past)
		if err != nil || back.State != Removed {
			fail(fmt.Sprintf("taking it out without knowing is %v, %v", back.State, err), back.is)
		}
		f, err := e.parse("FILE", b)
		if err != nil {
			t.Fatal(err)
		}
		if j, ok := f.(*jsonFile); ok {
			if p, ok, _ := j.servers(e.key); ok && len(p.Members) > 0 && !bytes.Equal(back.is, b) {
				fail("taking it out without knowing leaves other bytes", back.is)
			}
		} else if !bytes.Equal(bytes.TrimRight(back.is, " \t\r\n"), bytes.TrimRight(b, " \t\r\n")) && f.(*tomlFile).braces(e.key) == nil && !isBlank(b) {
			fail("taking it out without knowing leaves other bytes", back.is)
		}
		if gone, err := taken(e, back.is, record{}); err != nil || gone.State != Absent {
			fail(fmt.Sprintf("taking it out twice is %v, %v", gone.State, err), gone.is)
		}
	}
}

// A scribe writes files as nobody would.
type scribe struct {
	*rand.Rand
	eol            string
	comments, last bool // commas after the last
	oneLine        bool
	unit           string
}

func (s *scribe) chance(n int) bool { return s.IntN(n) == 0 }

func (s *scribe) pick(list ...string) string { return list[s.IntN(len(list))] }

// space is what may be between two tokens of JSON.
func (s *scribe) space(indent string) string {
	var b strings.Builder
	for s.chance(4) {
		switch {
		case s.comments && s.chance(3):
			b.WriteString(s.pick("/**/", "/* { */", "/* \" */", "/*"+s.eol+" * x,"+s.eol+" */"))
		case s.comments && s.chance(3):
			b.WriteString(s.pick("//", "// }", "// it's \"", "// a, b") + s.eol + indent)
		case s.oneLine:
			b.WriteString(s.pick(" ", "  ", "\t"))
		default:
			b.WriteString(s.pick(" ", "\t", s.eol, s.eol+indent))
		}
	}
	return b.String()
}

func (s *scribe) word() string {
	return s.pick("a", "b c", "", "mcpServers", "servers", "mcp", "context_servers", "majordomus", "ключ", "💡", "{", "//", "x,", "#")
}

func (s *scribe) quoted() string {
	q := quoteJSON(s.word())
	if s.chance(5) {
		q = `"\u00e4\n\\\"` + q[1:]
	}
	return q
}

func (s *scribe) json(depth int, indent string) string {
	switch n := s.IntN(9); {
	case n < 3 && depth > 0:
		return s.object(depth, indent, nil)
	case n == 3 && depth > 0:
		return s.list("[", "]", indent, func(i int) string { return s.json(depth-1, indent+s.unit) })
	case n == 4:
		return s.pick("0", "-1.5e+10", "12345678901234567890", "1.0", "1e400")
	case n == 5:
		return s.pick("true", "false", "null")
	}
	return s.quoted()
}

func (s *scribe) list(open, end, indent string, item func(i int) string) string {
	var b strings.Builder
	b.WriteString(open)
	n := s.IntN(4)
	for i := range n {
		if !s.oneLine && !s.chance(6) {
			b.WriteString(s.eol + indent + s.unit)
		}
		b.WriteString(s.space(indent) + item(i) + s.space(indent))
		if i < n-1 || s.last && s.chance(2) {
			b.WriteString(",")
		}
	}
	b.WriteString(s.space(indent))
	if !s.oneLine && !s.chance(4) {
		b.WriteString(s.eol + indent)
	}
	b.WriteString(end)
	return b.String()
}

// object has different keys, and those that are asked for.
func (s *scribe) object(depth int, indent string, want map[string]func(indent string) string) string {
	in := indent + s.unit
	used := map[string]bool{}
	return s.list("{", "}", indent, func(i int) string {
		name := quoteJSON(s.word())
		for key := range want {
			if !used[quoteJSON(key)] && s.chance(2) {
				name = quoteJSON(key)
			}
		}
		for used[name] {
			name = quoteJSON(fmt.Sprintf("%s%d", s.word(), s.IntN(1e6)))
		}
		used[name] = true
		value := s.json
		for key, make := range want {
			if name == quoteJSON(key) {
				value = func(int, string) string { return make(in) }
			}
		}
		return name + s.space(in) + ":" + s.pick("", " ") + s.space(in) + value(depth-1, in)
	})
}

func (s *scribe) jsonFile(e Editor) []byte {
	text := s.space("") + s.object(4, "", map[string]func(string) string{
		e.key: func(indent string) string {
			text := s.object(3, indent, nil)
			return strings.ReplaceAll(text, `"majordomus"`, `"another"`)
		},
	}) + s.space("") + s.pick("", s.eol, " ", s.eol+s.eol)
	if s.comments && s.chance(8) {
		text += "// no line end"
	}
	if e.syntax == jsonComments {
		return []byte(text)
	}
	return []byte(s.pick("", "", "", bom) + text)
}

func newScribe(seed uint64, s syntax) *scribe {
	r := rand.New(rand.NewPCG(seed, 7))
	return &scribe{Rand: r, eol: []string{"\n", "\n", "\r\n"}[r.IntN(3)], comments: s != jsonStrict && r.IntN(2) == 0,
		last: s == jsonLenient && r.IntN(2) == 0, oneLine: r.IntN(5) == 0, unit: []string{"  ", "    ", "\t", "", " "}[r.IntN(5)]}
}

// rounds is how many files are tried: each takes some tens of microseconds.
const rounds = 400

func TestAnyJSON(t *testing.T) {
	for _, e := range Known() {
		if e.syntax == tomlConfig {
			continue
		}
		t.Run(e.Name, func(t *testing.T) {
			edited := 0
			for seed := range uint64(rounds) {
				b := newScribe(seed, e.syntax).jsonFile(e)
				f, err := parseJSON("FILE", b, e.syntax)
				if err != nil {
					t.Fatalf("%v: seed %d is no file:\n%q", err, seed, b)
				}
				if _, _, err := f.servers(e.key); err != nil {
					continue // something else is under the key
				}
				edited++
				holds(t, e, b)
			}
			if edited < rounds/2 {
				t.Errorf("only %d of %d could be edited", edited, rounds)
			}
		})
	}
}

func (s *scribe) tomlKey() string { return fmt.Sprintf("k%d", s.IntN(1e9)) }

func (s *scribe) tomlText(depth int) string {
	switch n := s.IntN(10); {
	case n == 0 && depth > 0:
		return "[" + s.pick("", s.eol) + s.tomlText(depth-1) + s.pick("", " # ]"+s.eol) + s.pick("", ", "+s.tomlText(depth-1)) + " ]"
	case n == 1 && depth > 0:
		return "{" + s.tomlKey() + " = " + s.tomlText(0) + ", " + s.tomlKey() + ".x=" + s.tomlText(0) + "}"
	case n == 2:
		return s.pick(`"""`+s.eol+`[mcp_servers.majordomus]`+s.eol+`"""`, `'''a = 1'''`)
	case n == 3:
		return s.pick("1979-05-27T07:32:00-08:00", "1979-05-27", "07:32:00", "nan", "-inf", "0x1F", "1_000", "3.0")
	case n == 4:
		return s.pick("true", "false")
	}
	return s.pick(`"x"`, `'y#'`, `"\u00e4\t"`, `""`)
}

func (s *scribe) tomlLines(b *strings.Builder, indent string) {
	for range s.IntN(4) {
		if s.chance(4) {
			b.WriteString(indent + "# " + s.pick("c", "[x]", "a = 1") + s.eol)
		}
		b.WriteString(indent + s.tomlKey() + s.pick("", ".x", `."y z"`) + s.pick("=", " = ", "\t=") + s.tomlText(2) + s.pick("", " ", " # c") + s.eol + s.pick("", "", s.eol))
	}
}

func (s *scribe) tomlFile() []byte {
	var b strings.Builder
	b.WriteString(s.pick("", "", "", bom))
	indent := s.pick("", "  ", "\t")
	s.tomlLines(&b, "")
	braces := s.chance(4)
	if braces {
		b.WriteString("mcp_servers" + s.pick("=", " = ") + s.pick("{}", "{ }", `{ x = { command = "y" } }`, `{x.command="y", z = {}}`) + s.pick("", " # c") + s.eol)
	}
	for i := range s.IntN(5) {
		name := s.pick("mcp_servers.x%d", ` mcp_servers . "y%d" `, "other%d", "projects.\"/a%d\"", "mcp_servers.z%d.env")
		if braces {
			name = "other%d"
		}
		head := "[" + fmt.Sprintf(name, i) + "]"
		if !strings.Contains(name, "mcp_servers") && s.chance(3) {
			head = "[" + head + "]"
		}
		b.WriteString(s.pick("", s.eol, "# c"+s.eol) + indent + head + s.pick("", " # [c]") + s.eol)
		s.tomlLines(&b, indent)
	}
	if text := b.String(); s.chance(4) {
		return []byte(strings.TrimRight(text, "\r\n"))
	}
	return []byte(b.String())
}

func TestAnyTOML(t *testing.T) {
	e, err := Find("codex")
	if err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(rounds) {
		b := newScribe(seed, tomlConfig).tomlFile()
		if _, err := parseTOML("FILE", b); err != nil {
			t.Fatalf("%v: seed %d is no file:\n%s", err, seed, b)
		}
		holds(t, e, b)
	}
}

// FuzzJSON and FuzzTOML look for a file that can be read and not be edited as
// is promised.
func FuzzJSON(f *testing.F) {
	for seed := range uint64(50) {
		f.Add(newScribe(seed, jsonLenient).jsonFile(Editor{key: "mcpServers"}), uint8(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte, kind uint8) {
		e := Editor{Name: "any", key: "mcpServers", syntax: syntax(kind % 3), entry: standard}
		if !isEditable(e, b) {
			return
		}
		holds(t, e, b)
	})
}

func FuzzTOML(f *testing.F) {
	for seed := range uint64(50) {
		f.Add(newScribe(seed, tomlConfig).tomlFile())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		e := Editor{Name: "any", key: "mcp_servers", syntax: tomlConfig, entry: standard}
		if !isEditable(e, b) {
			return
		}
		holds(t, e, b)
	})
}

// isEditable reports whether a file may be edited at all. What is refused is
// refused without harm.
func isEditable(e Editor, b []byte) bool {
	f, err := e.parse("FILE", b)
	if err != nil {
		return false
	}
	if _, _, _, err := f.find(e.key, ours.Name); err != nil {
		return false
	}
	_, _, err = f.add(e.key, ours.Name, e.entry(ours))
	return err == nil
}
