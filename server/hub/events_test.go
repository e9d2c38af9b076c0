package hub

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// told is what a stream holds, and how it ended.
func told(r io.Reader, limit int64) (data []string, e *events, err error) {
	e = &events{limit: limit}
	e.over(r)
	for {
		b, err := e.next()
		switch {
		case errors.Is(err, errLongEvent):
			data = append(data, "long")
		case err != nil:
			return data, e, err
		default:
			data = append(data, string(b))
		}
	}
}

func TestEvents(t *testing.T) {
	for name, c := range map[string]struct {
		text  string
		want  []string
		last  string
		retry time.Duration
	}{
		"nothing":            {text: ""},
		"blank lines":        {text: "\n\n\r\n\r\r"},
		"one":                {text: "data: a\n\n", want: []string{"a"}},
		"no space":           {text: "data:a\n\n", want: []string{"a"}},
		"one space":          {text: "data:  a \n\n", want: []string{" a "}},
		"lines":              {text: "data: a\ndata\ndata: b\n\n", want: []string{"a\n\nb"}},
		"a mark":             {text: "\ufeffdata: a\n\n", want: []string{"a"}},
		"a second mark":      {text: "data: a\n\n\ufeffdata: b\n\n", want: []string{"a"}},
		"comments":           {text: ":\n: x\ndata: a\n:data: b\n\n", want: []string{"a"}},
		"other fields":       {text: "datax: b\n data: c\nData: d\ndata: a\n\n", want: []string{"a"}},
		"names":              {text: "event: message\ndata: a\n\nevent: other\ndata: b\n\nevent:\ndata: c\n\nevent: other\n\ndata: d\n\n", want: []string{"a", "c", "d"}},
		"empty data":         {text: "id: 1\ndata\n\n", last: "1"},
		"half":               {text: "data: a\n\nid: 2\ndata: b\n", want: []string{"a"}},
		"half a line":        {text: "data: a\n\ndata: b", want: []string{"a"}},
		"an id without data": {text: "id: 1\n\n", last: "1"},
		"no id":              {text: "id: 1\n\nid\ndata: a\n\n", want: []string{"a"}},
		"an id with NUL":     {text: "id: 1\n\nid: \x00\n\n", last: "1"},
		"a huge id":          {text: "id: 1\n\nid: " + strings.Repeat("x", 5000) + "\n\n", last: "1"},
		"retry":              {text: "retry: 12\nretry: x\nretry: -1\nretry: 1e9\n\n", retry: 12 * time.Millisecond},
		"returns":            {text: "id: 1\rdata: a\rdata: b\r\rdata: c\r\r", want: []string{"a\nb", "c"}, last: "1"},
		"both":               {text: "id: 1\r\ndata: a\r\ndata: b\r\n\r\ndata: c\r\n\r\n", want: []string{"a\nb", "c"}, last: "1"},
		"mixed":              {text: "data: a\r\n\rdata: b\n\r\ndata: c\r\r\n", want: []string{"a", "b", "c"}},
		"the limit":          {text: "data: 12345678\n\ndata:12345\ndata:67\n\n", want: []string{"12345678", "12345\n67"}},
		"beyond it":          {text: "data: 1234567890\n\ndata: a\n\ndata: 12345\ndata: 67890\ndata: x\n\ndata: b\n\n", want: []string{"long", "a", "long", "b"}},
		"far beyond it":      {text: "data: " + strings.Repeat("x", 100000) + "\n\ndata: a\n\n", want: []string{"long", "a"}},
		"a foreign one":      {text: "event: x\ndata: 1234567890\n\ndata: a\n\n", want: []string{"a"}},
		"a long comment":     {text: ": " + strings.Repeat("x", 100000) + "\ndata: a\n\n", want: []string{"a"}},
	} {
		for how, r := range map[string]io.Reader{
			"whole": strings.NewReader(c.text), "byte by byte": iotest.OneByteReader(strings.NewReader(c.text)), "with its end": iotest.DataErrReader(strings.NewReader(c.text)),
		} {
			data, e, err := told(r, 8)
			if !slices.Equal(data, c.want) || e.last != c.last || e.retry != c.retry || err != io.EOF {
				t.Errorf("%s, %s: %q, last %q, retry %v, %v", name, how, data, e.last, e.retry, err)
			}
		}
	}
	broken := errors.New("broken")
	data, _, err := told(io.MultiReader(strings.NewReader("data: a\n\ndata: b\n"), iotest.ErrReader(broken)), 8)
	if !slices.Equal(data, []string{"a"}) || err != broken {
		t.Errorf("a broken one: %q, %v", data, err)
	}
}

// An event is handed on before anything comes behind it, even a line end's second
// half.
func TestEventsAreNotWaitedFor(t *testing.T) {
	for _, text := range []string{"data: a\n\n", "data: a\r\r", "data: a\r\n\r"} {
		r, w := io.Pipe()
		e := &events{limit: 8}
		e.over(r)
		go io.WriteString(w, text)
		if b, err := e.next(); string(b) != "a" || err != nil {
			t.Errorf("%q: %q %v", text, b, err)
		}
		r.Close()
	}
}

// What is handed out is the caller's: a later event does not write to it.
func TestEventsAreKept(t *testing.T) {
	var text bytes.Buffer
	for i := range 1000 {
		fmt.Fprintf(&text, "data: %d\ndata: %d\n\n", i, i)
	}
	e := &events{limit: 100}
	e.over(&text)
	var all [][]byte
	for {
		b, err := e.next()
		if err != nil {
			break
		}
		all = append(all, b)
	}
	for i, b := range all {
		if want := fmt.Sprintf("%d\n%d", i, i); string(b) != want {
			t.Fatalf("%q, want %q", b, want)
		}
	}
}

func FuzzEvents(f *testing.F) {
	f.Add([]byte("id: 1\ndata: a\ndata: b\n\n"), uint8(8))
	f.Add([]byte("\ufeffdata: a\r\n\r\r\n"), uint8(1))
	f.Fuzz(func(t *testing.T, text []byte, limit uint8) {
		data, e, err := told(bytes.NewReader(text), int64(limit))
		again, f, _ := told(iotest.OneByteReader(bytes.NewReader(text)), int64(limit))
		if err != io.EOF || !slices.Equal(data, again) || e.last != f.last || e.retry != f.retry {
			t.Fatalf("whole %q, in bytes %q", data, again)
		}
		for _, d := range data {
			if d == "" || strings.Contains(d, "\r") {
				t.Fatalf("an event %q", d)
			}
			if len(d) > int(limit)+8 && d != "long" {
				t.Fatalf("an event of %d bytes, of at most %d", len(d), limit)
			}
		}
	})
}
