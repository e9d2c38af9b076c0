// Package frame reads and writes newline-delimited JSON-RPC without
// re-encoding it.
//
// A message is looked at in the bytes it came in: what Parse, Get and Members
// hand out are slices of the line, and what Set and AppendTo change is one
// span of it. So ids, numbers, key order, white space and members nobody knows
// reach the other side as they were written. Ids are raw bytes and compare as
// such: 1, "1" and 1.0 are three ids.
//
// Parse takes exactly the texts that encoding/json takes (nesting of at most
// 10,000 included), but keys exactly: "ID" is no "id". Of duplicate keys the
// last one counts, as it does for most of the decoders on the other side.
//
// What it does not promise: that a message makes sense. Nobody looks at
// "jsonrpc", at unknown members, or into params.
package frame

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf8"
)

// The error codes of JSON-RPC 2.0.
const (
	CodeParse          = -32700
	CodeInvalidRequest = -32600
	CodeMethodNotFound = -32601
	CodeInvalidParams  = -32602
	CodeInternal       = -32603
)

// An Error says why a line is no message. It is what the sender is to be
// answered with.
type Error struct {
	Code    int
	Message string
	ID      []byte // raw, as far as it could be told; nil otherwise

	// Response reports that the line was meant as a response: it had no
	// method but a result or an error. Then ID is an id of the reader's side,
	// and the sender must not be answered with it.
	Response bool
}

func (e *Error) Error() string { return e.Message }

// A Message holds the raw members of a JSON-RPC message, each as written and
// nil where absent. All are slices of the line that was parsed.
type Message struct {
	Raw, ID, Method, Params, Result, Error []byte
}

// Parse looks at one line. On failure the error is an *Error: CodeParse for
// what is no JSON, CodeInvalidRequest for JSON that is no message: a batch, a
// scalar, an id that is neither string nor number, a method that is no string,
// or nothing to do. An id of null is accepted in error responses alone, where
// it means "I could not read what you sent"; as the id of a request it would be
// neither request nor notification. The Message is filled as far as it goes
// even then.
func Parse(line []byte) (Message, error) {
	m := Message{Raw: line}
	i := space(line, 0)
	if i < len(line) && line[i] != '{' {
		end, ok := skipValue(line, i)
		switch {
		case !ok || space(line, end) != len(line):
			return m, &Error{Code: CodeParse, Message: "this is not JSON"}
		case line[i] == '[':
			return m, &Error{Code: CodeInvalidRequest, Message: "batches are not supported: send one message per line"}
		default:
			return m, &Error{Code: CodeInvalidRequest, Message: "a message is a JSON object"}
		}
	}
	ok := members(line, func(key []byte, _, from, to int) bool {
		switch string(key) {
		case "id":
			m.ID = line[from:to:to]
		case "method":
			m.Method = line[from:to:to]
		case "params":
			m.Params = line[from:to:to]
		case "result":
			m.Result = line[from:to:to]
		case "error":
			m.Error = line[from:to:to]
		}
		return true
	})
	if !ok {
		return Message{Raw: line}, &Error{Code: CodeParse, Message: "this is not JSON"}
	}
	answer := m.Method == nil && (m.Result != nil || m.Error != nil)
	invalid := func(text string) (Message, error) {
		e := &Error{Code: CodeInvalidRequest, Message: text, ID: m.ID, Response: answer}
		if m.ID != nil && !isID(m.ID) {
			e.ID = nil
		}
		return m, e
	}
	switch {
	case m.ID != nil && !isID(m.ID) && !(answer && m.Error != nil && string(m.ID) == "null"):
		return invalid("an id is a string or a number")
	case m.Method != nil && m.Method[0] != '"':
		return invalid("a method is a string")
	case m.Method == nil && !answer:
		return invalid("a message has a method, a result or an error")
	case answer && m.ID == nil:
		return invalid("a response has an id")
	}
	return m, nil
}

func isID(raw []byte) bool {
	c := raw[0]
	return c == '"' || c == '-' || '0' <= c && c <= '9'
}

// IsRequest reports whether the sender waits for an answer to m.
func (m Message) IsRequest() bool { return m.ID != nil && m.Method != nil }

// IsNotification reports whether m asks for something but no answer.
func (m Message) IsNotification() bool { return m.ID == nil && m.Method != nil }

// IsResponse reports whether m answers a request, with a result or an error.
func (m Message) IsResponse() bool {
	return m.Method == nil && m.ID != nil && (m.Result != nil || m.Error != nil)
}

// Name is the method decoded, "" if there is none.
func (m Message) Name() string {
	name, _ := Text(m.Method)
	return name
}

// Get returns the member that path leads to from the JSON object value, as
// written: a slice of value. It is nil where a step of the path is absent or
// not an object. Without a path it is value.
func Get(value []byte, path ...string) []byte {
	for _, name := range path {
		var found []byte
		ok := members(value, func(key []byte, _, from, to int) bool {
			if string(key) == name {
				found = value[from:to:to]
			}
			return true
		})
		if !ok || found == nil {
			return nil
		}
		value = found
	}
	return value
}

// Members calls f with the decoded key and the raw value of each member of the
// JSON object value, in the order written, until f returns false. The raw
// values are slices of value. An error means that value is no JSON object; f
// may then have seen members that stand before the fault.
func Members(value []byte, f func(key string, raw []byte) bool) error {
	ok := members(value, func(key []byte, _, from, to int) bool {
		return f(string(key), value[from:to:to])
	})
	if !ok {
		return &Error{Code: CodeInvalidRequest, Message: "this is not a JSON object"}
	}
	return nil
}

// Elements calls f with each element of the JSON array value, a slice of it,
// until f returns false. An error means that value is no JSON array; f may then
// have seen elements that stand before the fault.
func Elements(value []byte, f func(raw []byte) bool) error {
	bad := &Error{Code: CodeInvalidRequest, Message: "this is not a JSON array"}
	i := space(value, 0)
	if i >= len(value) || value[i] != '[' {
		return bad
	}
	if i = space(value, i+1); i < len(value) && value[i] == ']' {
		i++
	} else {
		for more := true; more; {
			end, ok := skipNested(value, i, 1)
			if !ok {
				return bad
			}
			if !f(value[i:end:end]) {
				return nil
			}
			i = space(value, end)
			if i >= len(value) || value[i] != ',' && value[i] != ']' {
				return bad
			}
			more = value[i] == ','
			if i++; more {
				i = space(value, i)
			}
		}
	}
	if space(value, i) != len(value) {
		return bad
	}
	return nil
}

// Text decodes a JSON string, and reports whether raw is one. What no string
// can hold (a lone surrogate, invalid UTF-8) becomes U+FFFD.
func Text(raw []byte) (string, bool) {
	if len(raw) < 2 || raw[0] != '"' {
		return "", false
	}
	end, escaped, ok := skipString(raw, 0)
	if !ok || end != len(raw) {
		return "", false
	}
	inner := raw[1 : end-1]
	if !escaped && utf8.Valid(inner) {
		return string(inner), true
	}
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return "", false
	}
	return s, true
}

// Quote encodes s as a JSON string. It escapes what JSON demands, and the two
// line separators that some readers take for a line's end, but not < > &.
func Quote(s string) []byte {
	out := make([]byte, 0, len(s)+2)
	out = append(out, '"')
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == '"' || c == '\\':
			out = append(out, '\\', c)
		case c == '\n':
			out = append(out, '\\', 'n')
		case c == '\t':
			out = append(out, '\\', 't')
		case c == '\r':
			out = append(out, '\\', 'r')
		case c < 0x20:
			out = append(out, `\u00`...)
			out = append(out, "0123456789abcdef"[c>>4], "0123456789abcdef"[c&15])
		case c < utf8.RuneSelf:
			out = append(out, c)
		default:
			r, n := utf8.DecodeRuneInString(s[i:])
			switch r {
			case utf8.RuneError:
				out = append(out, "\ufffd"...)
			case '\u2028', '\u2029':
				out = append(out, `\u202`...)
				out = append(out, "89"[r-'\u2028'])
			default:
				out = append(out, s[i:i+n]...)
			}
			i += n
			continue
		}
		i++
	}
	return append(out, '"')
}

// AppendTo returns object with the raw entries added to the end of the array
// object[key], and every other byte as it was. The array is made where it is
// absent or null. Where object is no object, or object[key] something else,
// object comes back unchanged.
func AppendTo(object []byte, key string, entries [][]byte) []byte {
	if len(entries) == 0 {
		return object
	}
	list := bytes.Join(entries, []byte{','})
	old := Get(object, key)
	if old == nil || string(old) == "null" {
		return Set(object, key, append(append([]byte{'['}, list...), ']'))
	}
	if old[0] != '[' {
		return object
	}
	grown := make([]byte, 0, len(old)+len(list)+1)
	grown = append(grown, old[:len(old)-1]...)
	if old[space(old, 1)] != ']' {
		grown = append(grown, ',')
	}
	grown = append(grown, list...)
	return Set(object, key, append(grown, ']'))
}

// Set returns object with object[key] replaced by the raw value, or with the
// member added behind the others, and every other byte as it was. Where object
// is no JSON object it comes back unchanged. object itself is never written to.
func Set(object []byte, key string, value []byte) []byte {
	from, to := -1, -1
	last, count := 0, 0
	ok := members(object, func(k []byte, _, a, z int) bool {
		if string(k) == key {
			from, to = a, z
		}
		last = z
		count++
		return true
	})
	if !ok {
		return object
	}
	if from >= 0 {
		out := make([]byte, 0, len(object)-(to-from)+len(value))
		out = append(out, object[:from]...)
		out = append(out, value...)
		return append(out, object[to:]...)
	}
	if count == 0 {
		last = space(object, 0) + 1
	}
	name := Quote(key)
	out := make([]byte, 0, len(object)+len(name)+len(value)+2)
	out = append(out, object[:last]...)
	if count > 0 {
		out = append(out, ',')
	}
	out = append(out, name...)
	out = append(out, ':')
	out = append(out, value...)
	return append(out, object[last:]...)
}

// Drop returns object without the members whose keys it is told to drop, and
// every other byte as it was, but for the commas that it takes. Where object is
// no JSON object it comes back unchanged. object itself is never written to.
func Drop(object []byte, drop func(key string) bool) []byte {
	out := make([]byte, 0, len(object))
	from, kept, dropped, after := 0, 0, 0, false
	ok := members(object, func(key []byte, at, _, to int) bool {
		if kept+dropped == 0 {
			out = append(out, object[:at]...)
			from = at
		}
		if drop(string(key)) {
			dropped++
			from, after = to, true
			return true
		}
		if after { // what stands between belongs to what was dropped
			from = at
			if kept > 0 {
				out = append(out, ',')
			}
		}
		out = append(out, object[from:to]...)
		kept++
		from, after = to, false
		return true
	})
	if !ok || dropped == 0 {
		return object
	}
	return append(out, object[from:]...)
}

// Result is the line that answers the request id with a raw result.
func Result(id, result []byte) []byte {
	out := make([]byte, 0, len(id)+len(result)+40)
	out = append(out, `{"jsonrpc":"2.0","id":`...)
	out = append(out, id...)
	out = append(out, `,"result":`...)
	out = append(out, result...)
	return append(out, '}')
}

// A Line is one line in pieces, so that what is only passed on need not be copied
// to stand in another line.
type Line [][]byte

// Answer is Result as a Line, of a result in one or more pieces. It shares the
// bytes of a large one.
func Answer(id []byte, result ...[]byte) Line {
	if Line(result).Size() < largeLine {
		return Line{Result(id, Line(result).Bytes())}
	}
	head := Result(id, nil)
	return append(append(Line{head[:len(head)-1]}, result...), []byte{'}'})
}

// Size is how many bytes l has.
func (l Line) Size() (n int) {
	for _, piece := range l {
		n += len(piece)
	}
	return n
}

// Bytes is l in one piece.
func (l Line) Bytes() []byte {
	if len(l) == 1 {
		return l[0]
	}
	return bytes.Join(l, nil)
}

// Failure is the line that answers the request id with an error. An id of nil
// is written as null; data is raw, and left out where nil.
func Failure(id []byte, code int, message string, data []byte) []byte {
	if id == nil {
		id = []byte("null")
	}
	out := make([]byte, 0, len(id)+len(message)+len(data)+80)
	out = append(out, `{"jsonrpc":"2.0","id":`...)
	out = append(out, id...)
	out = append(out, `,"error":{"code":`...)
	out = strconv.AppendInt(out, int64(code), 10)
	out = append(out, `,"message":`...)
	out = append(out, Quote(message)...)
	if data != nil {
		out = append(out, `,"data":`...)
		out = append(out, data...)
	}
	return append(out, "}}"...)
}

// Notification is the line of a notification; raw params are left out where nil.
func Notification(method string, params []byte) []byte {
	out := make([]byte, 0, len(method)+len(params)+48)
	out = append(out, `{"jsonrpc":"2.0","method":`...)
	out = append(out, Quote(method)...)
	if params != nil {
		out = append(out, `,"params":`...)
		out = append(out, params...)
	}
	return append(out, '}')
}
