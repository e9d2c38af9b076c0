package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"unicode/utf8"
)

// A tree is a file of JSON with comments and trailing commas, every value with
// its place in the bytes: what is wrong can be named by its line, and an edit
// can leave all else as it is. The standard library's decoder gives no places,
// takes "COMMAND" for "command", and keeps the last of two members of one name.
type tree struct {
	path string
	b    []byte
	root node  // kind 0 when the file has nothing but comments
	ends []int // where lines end, once a line was asked for
}

// A node is one value.
type node struct {
	kind       byte // its first byte; '0' for a number
	start, end int
	text       string   // of a string, decoded
	members    []member // of an object, as they stand
	elements   []node   // of a list
}

type member struct {
	name, value node
	comma       int // where the comma after it is; -1: there is none
}

// member is the member of an object with that name, the first if there are
// more, or nil.
func (n *node) member(name string) *member {
	for i := range n.members {
		if n.members[i].name.text == name {
			return &n.members[i]
		}
	}
	return nil
}

// what names the kind of a value for people, and never the value.
func (n *node) what() string {
	switch n.kind {
	case '{':
		return "an object"
	case '[':
		return "a list"
	case '"':
		return "a string"
	case '0':
		return "a number"
	case 'n':
		return "null"
	}
	return "true or false"
}

const byteOrderMark = "\ufeff"

// parseTree parses b. Everything that is wrong with it is an *Error that names
// path and line.
func parseTree(path string, b []byte) (*tree, error) {
	t := &tree{path: path, b: b}
	fail := func(line int, reason string) (*tree, error) {
		return nil, &Error{path, Problem{line, "", reason}}
	}
	if !utf8.Valid(b) {
		return fail(0, "is not UTF-8")
	}
	p := &treeParser{b: b}
	if bytes.HasPrefix(b, []byte(byteOrderMark)) {
		p.at = len(byteOrderMark)
	}
	err := p.space()
	if err == nil && p.at < len(b) {
		if t.root, err = p.value(0); err == nil {
			err = p.space()
		}
		if err == nil && p.at < len(b) {
			err = errors.New("something follows the end of the value")
		}
	}
	if err != nil {
		return fail(t.line(p.at), "is not JSON: "+err.Error())
	}
	if t.root.kind != '{' && t.root.kind != 0 {
		return fail(t.line(t.root.start), "must be a JSON object, not "+t.root.what())
	}
	return t, nil
}

// line is the line of an offset, from 1. A file may have a hundred thousand bad
// entries, so the lines are counted once.
func (t *tree) line(at int) int {
	if t.ends == nil {
		t.ends = []int{}
		for i, c := range t.b {
			if c == '\n' {
				t.ends = append(t.ends, i)
			}
		}
	}
	i, _ := slices.BinarySearch(t.ends, at)
	return i + 1
}

// treeParser reads values one after the other. On an error, at is the place.
type treeParser struct {
	b  []byte
	at int
}

// maxDepth bounds the stack that a file of brackets can make us use.
const maxDepth = 200

var (
	errEnds   = errors.New("it ends too early")
	errMember = errors.New("a member's name in double quotes is expected here")
	errColon  = errors.New("a colon is expected here")
	errComma  = errors.New("a comma or the closing bracket is expected here")
	errValue  = errors.New("a value is expected here")
	errString = errors.New("a string has a bad escape or a raw control character, or does not end")
	errDepth  = errors.New("it is nested too deep")
)

// space skips white space and comments.
func (p *treeParser) space() error {
	for p.at < len(p.b) {
		rest := p.b[p.at:]
		switch {
		case rest[0] == ' ', rest[0] == '\t', rest[0] == '\r', rest[0] == '\n':
			p.at++
		case bytes.HasPrefix(rest, []byte("//")):
			n := bytes.IndexByte(rest, '\n')
			if n < 0 {
				n = len(rest)
			}
			p.at += n
		case bytes.HasPrefix(rest, []byte("/*")):
			n := bytes.Index(rest[2:], []byte("*/"))
			if n < 0 {
				return errors.New("a comment does not end")
			}
			p.at += 2 + n + 2
		default:
			return nil
		}
	}
	return nil
}

// next skips white space and comments and returns the byte after them.
func (p *treeParser) next() (byte, error) {
	if err := p.space(); err != nil {
		return 0, err
	}
	if p.at == len(p.b) {
		return 0, errEnds
	}
	return p.b[p.at], nil
}

// value reads the value that begins at p.at.
func (p *treeParser) value(depth int) (n node, err error) {
	if depth > maxDepth {
		return n, errDepth
	}
	n.start = p.at
	n.kind = p.b[p.at]
	switch {
	case n.kind == '{':
		err = p.list('}', func() error {
			m := member{comma: -1}
			if p.b[p.at] != '"' {
				return errMember
			}
			if m.name, err = p.value(depth + 1); err != nil {
				return err
			}
			if c, err := p.next(); err != nil {
				return err
			} else if c != ':' {
				return errColon
			}
			p.at++
			if _, err := p.next(); err != nil {
				return err
			}
			m.value, err = p.value(depth + 1)
			n.members = append(n.members, m)
			return err
		}, func(at int) { n.members[len(n.members)-1].comma = at })
	case n.kind == '[':
		err = p.list(']', func() error {
			e, err := p.value(depth + 1)
			n.elements = append(n.elements, e)
			return err
		}, func(int) {})
	case n.kind == '"':
		n.text, err = p.text()
	default:
		n.kind, err = p.word()
	}
	n.end = p.at
	return n, err
}

// list reads what is between brackets; comma is told where each comma is.
func (p *treeParser) list(closing byte, item func() error, comma func(at int)) error {
	p.at++
	for {
		if c, err := p.next(); err != nil {
			return err
		} else if c == closing {
			p.at++
			return nil
		}
		if err := item(); err != nil {
			return err
		}
		switch c, err := p.next(); {
		case err != nil:
			return err
		case c == ',':
			comma(p.at)
			p.at++
		case c != closing:
			return errComma
		}
	}
}

func (p *treeParser) text() (s string, err error) {
	for i := p.at + 1; i < len(p.b) && p.b[i] >= ' '; i++ {
		switch p.b[i] {
		case '\\':
			i++
		case '"':
			if json.Unmarshal(p.b[p.at:i+1], &s) != nil {
				return "", errString
			}
			p.at = i + 1
			return s, nil
		}
	}
	return "", errString
}

// word reads a number, true, false or null.
func (p *treeParser) word() (kind byte, err error) {
	i := p.at
	for i < len(p.b) && (p.b[i] == '-' || p.b[i] == '+' || p.b[i] == '.' ||
		'a' <= p.b[i] && p.b[i] <= 'z' || 'A' <= p.b[i] && p.b[i] <= 'Z' || '0' <= p.b[i] && p.b[i] <= '9') {
		i++
	}
	w := p.b[p.at:i]
	if !json.Valid(w) {
		return 0, errValue
	}
	p.at = i
	if w[0] == '-' || w[0] <= '9' {
		return '0', nil
	}
	return w[0], nil
}
