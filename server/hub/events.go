package hub

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"
)

// events reads a stream of server-sent events.
type events struct {
	r     *bufio.Reader
	limit int64
	begun bool
	cr    bool // the last line ended with a carriage return: a newline behind it is part of that end

	last  string        // the id of the last event that is complete, kept for asking for what comes after it
	retry time.Duration // how long the server wants to be left alone before that; zero: it does not say
}

var errLongEvent = errors.New("more than the largest message")

// over has the same stream read on in another body.
func (e *events) over(body io.Reader) {
	e.r, e.begun, e.cr = bufio.NewReaderSize(body, 16<<10), false, false
}

// next returns the data of the next event that has any and is a message, the
// caller's to keep. An event beyond the limit is errLongEvent, and the next call
// goes on behind it. What the stream ends in the middle of is none.
func (e *events) next() ([]byte, error) {
	var (
		data    []byte
		some    bool // there was a data field
		long    bool
		foreign bool // an event of another name
		id      *string
	)
	for {
		line, cut, err := e.line(e.limit - int64(len(data)))
		if err != nil {
			return nil, err
		}
		if len(line) == 0 && !cut {
			if id != nil {
				e.last = *id
			}
			switch {
			case long && !foreign:
				return nil, fmt.Errorf("an event of %w, which has %d bytes", errLongEvent, e.limit)
			case len(data) > 0 && !foreign:
				return data, nil
			}
			data, some, long, foreign, id = nil, false, false, false, nil
			continue
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "data":
			switch {
			case cut || long:
				data, long = nil, true
			case !some:
				data = value // the line is ours
			default:
				data = append(append(data, '\n'), value...)
			}
			some = true
		case "event":
			foreign = len(value) > 0 && string(value) != "message"
		case "id":
			if s := string(value); !cut && len(s) <= longestID && isHeaderText(s) {
				id = &s
			}
		case "retry":
			if ms, err := strconv.ParseUint(string(value), 10, 31); err == nil {
				e.retry = time.Duration(ms) * time.Millisecond
			}
		}
	}
}

// longestID bounds what a server can have us send back to it.
const longestID = 4 << 10

// line returns the next line without its end: a newline, a carriage return or
// both. Of one with more than room bytes and its field's name, the beginning is
// left and cut is true.
func (e *events) line(room int64) (line []byte, cut bool, err error) {
	room += int64(len("data: "))
	for {
		if e.r.Buffered() == 0 {
			if _, err := e.r.Peek(1); err != nil {
				return nil, false, err
			}
		}
		b, _ := e.r.Peek(e.r.Buffered()) // ignore error: they are there
		if e.cr && b[0] == '\n' {
			e.cr = false
			e.r.Discard(1) // ignore error: it is there
			continue
		}
		e.cr = false
		part := b
		end := bytes.IndexByte(b, '\n')
		if end >= 0 {
			part = b[:end]
		}
		if at := bytes.IndexByte(part, '\r'); at >= 0 {
			end, part, e.cr = at, b[:at], true
		}
		switch {
		case cut:
		case int64(len(line)+len(part)) > room:
			line = append(line, part...)
			line, cut = append([]byte(nil), line[:min(len(line), len("data: "))]...), true
		default:
			line = append(line, part...)
		}
		if end < 0 {
			e.r.Discard(len(part)) // ignore error: they are there
			continue
		}
		e.r.Discard(end + 1) // ignore error: they are there
		if !e.begun {
			e.begun = true
			line = bytes.TrimPrefix(line, []byte("\ufeff"))
		}
		return line, cut, nil
	}
}

// isHeaderText reports whether s may be the value of a header.
func isHeaderText(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' && s[i] != '\t' || s[i] == 0x7f {
			return false
		}
	}
	return true
}
