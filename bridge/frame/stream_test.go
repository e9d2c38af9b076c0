package frame

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
)

// drain reads everything: lines as they are, errors of single lines as
// "code id response".
func drain(t testing.TB, r *Reader) (lines []string, end error) {
	t.Helper()
	for {
		line, err := r.Next()
		var e *Error
		switch {
		case errors.As(err, &e):
			lines = append(lines, fmt.Sprintf("%d %s %v", e.Code, e.ID, e.Response))
		case err != nil:
			return lines, err
		default:
			lines = append(lines, string(line))
		}
	}
}

type chunks struct {
	data []byte
	size int
}

func (c *chunks) Read(p []byte) (int, error) {
	if len(c.data) == 0 {
		return 0, io.EOF
	}
	n := copy(p, c.data[:min(c.size, len(c.data))])
	c.data = c.data[n:]
	return n, nil
}

func TestReaderCutsLinesWhateverTheChunks(t *testing.T) {
	long := `{"id":1,"x":"` + strings.Repeat("y", 200_000) + `"}`
	for _, c := range []struct {
		name, in string
		want     []string
	}{
		{"three in one", "a\nb\nc\n", []string{"a", "b", "c"}},
		{"crlf", "a\r\nb\r\n", []string{"a", "b"}},
		{"mark", "\ufeffa\nb\n", []string{"a", "b"}},
		{"a mark elsewhere is data", "a\n\ufeffb\n", []string{"a", "\ufeffb"}},
		{"mark alone", "\ufeff\r\n\na\n", []string{"a"}},
		{"blank", "\n\r\n  \n\t\r\na\n\n", []string{"a"}},
		{"no final newline", "a\nb", []string{"a", "b"}},
		{"only separators", "a\u2028b\u2029c\u0085d\n", []string{"a\u2028b\u2029c\u0085d"}},
		{"cr within", "a\rb\n", []string{"a\rb"}},
		{"large between small", "a\n" + long + "\nb\n" + long + "\n" + long + "\nc", []string{"a", long, "b", long, long, "c"}},
		{"empty", "", nil},
	} {
		for _, size := range []int{1, 2, 3, 7, 4096, 1 << 20} {
			lines, end := drain(t, NewReader(&chunks{[]byte(c.in), size}, 0))
			if !reflect.DeepEqual(lines, c.want) || end != io.EOF {
				t.Errorf("%s by %d: %.200q, %v", c.name, size, lines, end)
			}
		}
	}
}

func TestReaderTellsATornLine(t *testing.T) {
	r := NewReader(strings.NewReader("a\nb"), 0)
	for _, want := range []bool{true, false} {
		if _, err := r.Next(); err != nil || r.Complete() != want {
			t.Errorf("complete %v, want %v (%v)", r.Complete(), want, err)
		}
	}
	broken := errors.New("broken")
	lines, end := drain(t, NewReader(io.MultiReader(strings.NewReader("a\nhalf"), iotest.ErrReader(broken)), 0))
	if !reflect.DeepEqual(lines, []string{"a"}) || end != broken {
		t.Errorf("broken stream: %q, %v", lines, end)
	}
}

func TestReaderGoesOnBehindALineThatIsTooLong(t *testing.T) {
	const limit = 100_000
	fill := func(form string, n int) string {
		return strings.Replace(form, "FILL", strings.Repeat("f", n-len(form)+4), 1)
	}
	for _, id := range ids {
		for _, c := range []struct{ form, want string }{
			{`{"id":ID,"method":"x","p":"FILL"}`, "-32600 ID false"},
			{`{"p":"FILL","method":"x","id":ID}`, "-32600 ID false"},
			{`{"p":"FILL","method":"x" , "id" : ID }`, "-32600 ID false"},
			{`{"p":{"id":7,"q":["FILL",{"id":8}]},"id":ID,"method":"x"}`, "-32600 ID false"},
			{`{"p":"FILL\",\"id\":9,\"","method":"x","id":ID}`, "-32600 ID false"},
			{`{"id":ID,"result":"FILL"}`, "-32600 ID true"},
			{`{"result":"FILL","id":ID}`, "-32600 ID true"},
			{`{"error":{"id":4,"a":"FILL"},"id":ID}`, "-32600 ID true"},
			{`{"id":null,"method":"x","p":"FILL"}`, "-32600  false"},
			{`{"id":{"id":1},"method":"x","p":"FILL"}`, "-32600  false"},
			{`{"method":"x","p":"FILL"}`, "-32600  false"},
			{`[{"id":1,"method":"x","p":"FILL"}]`, "-32600  false"},
			{`{"id":"FILL","method":"x"}`, "-32600  false"},
			{`{"FILL":1,"id":ID,"method":"x"}`, "-32600 ID false"},
		} {
			form := strings.Replace(c.form, "ID", id, 1)
			want := strings.Replace(c.want, "ID", id, 1)
			for _, over := range []int{1, 2, 50_000, 300_000} {
				for _, size := range []int{4096, 1 << 20} {
					in := fill(form, limit) + "\r\n" + fill(form, limit+over) + "\nafter\n"
					lines, end := drain(t, NewReader(&chunks{[]byte(in), size}, limit))
					if len(lines) != 3 || lines[0] != fill(form, limit) || lines[1] != want || lines[2] != "after" || end != io.EOF {
						t.Fatalf("%.60s over by %d in %d: %.80q %v, want %q", form, over, size, lines, end, want)
					}
				}
			}
		}
	}
	// At the very end, without a newline.
	lines, end := drain(t, NewReader(strings.NewReader(fill(`{"id":3,"method":"FILL"}`, 2*limit)), limit))
	if !reflect.DeepEqual(lines, []string{"-32600 3 false"}) || end != io.EOF {
		t.Errorf("at the end: %q %v", lines, end)
	}
}

func TestReaderGivesMemoryBack(t *testing.T) {
	big := strings.Repeat("x", 16<<20)
	r := NewReader(strings.NewReader(big+"\na\n"), 0)
	if line, err := r.Next(); err != nil || len(line) != len(big) {
		t.Fatal(len(line), err)
	}
	if cap(r.whole) != len(big)+1 || cap(r.buf) > partSize || r.parts != nil {
		t.Fatalf("%d bytes are held for the line, and %d", cap(r.whole), cap(r.buf))
	}
	if line, err := r.Next(); err != nil || string(line) != "a" || cap(r.buf) > smallBuffer || r.whole != nil {
		t.Errorf("after a large line: %q %v, %d bytes are held", line, err, cap(r.buf))
	}
	// Past the limit no more than about the limit is ever held.
	r = NewReader(&chunks{[]byte(big), 1 << 20}, 1<<20)
	_, err := r.Next()
	var e *Error
	if !errors.As(err, &e) || cap(r.buf) > 1<<20+2*smallBuffer || r.parts != nil {
		t.Errorf("%v, %d bytes are held", err, cap(r.buf))
	}
	// Nor is half a line, once it is known that its end never comes.
	r = NewReader(io.MultiReader(strings.NewReader(big), fails{}), 0)
	if _, err := r.Next(); err != errBroken || r.parts != nil {
		t.Errorf("half a line: %v, %d parts are held", err, len(r.parts))
	}
}

var errBroken = errors.New("broken")

type fails struct{}

func (fails) Read([]byte) (int, error) { return 0, errBroken }

// A line is the same in one buffer and in many, and so is what is kept of it.
func TestReaderInParts(t *testing.T) {
	for _, part := range []int{1, 2, 16, 17} {
		for n := range 70 {
			for _, end := range []string{"\n", "\r\n", "\r\r\n", ""} {
				line := strings.Repeat("x", n) + "y"
				text := "\ufeff" + line + "\n" + line + end
				for _, keep := range []bool{false, true} {
					var spare Spare
					r := NewReader(strings.NewReader(text), 0)
					r.part, r.buf = part, make([]byte, part)
					r.Reuse(&spare)
					var held [][]byte
					for i := range 2 {
						got, err := r.Next()
						if err != nil || string(got) != line || r.Complete() != (i == 0 || end != "") {
							t.Fatalf("line %d of %q in parts of %d: %q, %v", i, text, part, got, err)
						}
						whole := end == "\n" || i == 0
						if c := cap(got) > len(got) && got[:len(got)+1][len(got)] == '\n'; whole && !c {
							t.Fatalf("line %d of %q in parts of %d has no newline behind it", i, text, part)
						}
						if keep {
							got = r.Keep(got)
							if more := cap(got) - len(got); more > 1 || more == 1 && got[:len(got)+1][len(got)] != '\n' || whole && more != 1 {
								t.Fatalf("line %d of %q in parts of %d is kept with %d bytes more", i, text, part, more)
							}
							held = append(held, got)
						}
					}
					if _, err := r.Next(); err != io.EOF {
						t.Fatal(err)
					}
					for _, got := range held {
						if string(got) != line {
							t.Fatalf("a line of %q in parts of %d that was kept is %q", text, part, got)
						}
					}
				}
			}
		}
	}
}

// Read by 512 bytes a line of 32 MiB is 65,536 reads; looking at it from its
// beginning each time would be a terabyte.
// A line is searched once, however small the pieces in which it comes: what was
// searched is changed to newlines behind the reader's back, and none is found.
// And it is copied once: 32 MiB by pieces of 512 bytes.
func TestReaderIsLinear(t *testing.T) {
	const n, piece = 32 << 20, 512
	r := NewReader(nil, 0)
	given, text := 0, bytes.Repeat([]byte("x"), piece)
	r.r = readerFunc(func(p []byte) (int, error) {
		if given == n {
			return copy(p, "\n"), nil
		}
		if r.end > r.start {
			r.buf[r.end-1] = '\n'
		}
		k := copy(p[:min(len(p), n-given)], text)
		given += k
		return k, nil
	})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	line, err := r.Next()
	runtime.ReadMemStats(&after)
	if err != nil || len(line) != n {
		t.Fatalf("%d bytes of %d, %v", len(line), n, err)
	}
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 5*n/2 {
		t.Errorf("%d bytes were allocated for a line of %d", grown, n)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestReaderKnowsWhatIsReady(t *testing.T) {
	r := NewReader(strings.NewReader("a\n\r\n \nb\n\r\n\nc"), 0)
	for i, want := range []bool{true, false, false} {
		if _, err := r.Next(); err != nil || r.Ready() != want {
			t.Errorf("behind line %d: ready %v, want %v (%v)", i, r.Ready(), want, err)
		}
	}
}

func TestReaderStopsAtAReaderThatGivesNothing(t *testing.T) {
	if _, err := NewReader(nothing{}, 0).Next(); err != io.ErrNoProgress {
		t.Error(err)
	}
}

type nothing struct{}

func (nothing) Read([]byte) (int, error) { return 0, nil }

type recorder struct {
	mu     sync.Mutex
	writes []string
	err    error
}

func (r *recorder) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return 0, r.err
	}
	r.writes = append(r.writes, string(p))
	return len(p), nil
}

func TestWriterWritesWholeLines(t *testing.T) {
	rec := &recorder{}
	w := NewWriter(rec)
	var wg sync.WaitGroup
	want := map[string]int{}
	for i := range 50 {
		line := fmt.Sprintf("%d:%s", i, strings.Repeat("x", i*5000))
		want[line+"\n"]++
		wg.Go(func() {
			if err := w.Write([]byte(line)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, s := range rec.writes {
		if len(s) < largeLine && s != "\n" && !strings.HasSuffix(s, "\n") {
			t.Errorf("half a line was written: %.20q", s)
		}
	}
	for line := range strings.Lines(strings.Join(rec.writes, "")) {
		want[line]--
	}
	for s, n := range want {
		if n != 0 {
			t.Errorf("%.10q written %d times too few", s, n)
		}
	}
	_ = w.Write([]byte("{\n\"a\":1\n}")) // ignore error: the recorder has none
	if got := rec.writes[len(rec.writes)-1]; got != "{ \"a\":1 }\n" {
		t.Errorf("newlines within: %q", got)
	}
}

// What is said during a Write goes out with the next, and each Write returns
// when its own line is out.
// A line in pieces is one line, and a large piece is handed on as it is.
func TestWriterOfPieces(t *testing.T) {
	for _, size := range []int{0, 2, largeLine - 1, largeLine, 3 * largeLine} {
		result := []byte(`"` + strings.Repeat("x", max(0, size-2)) + `"`)
		line := Answer([]byte(`"a"`), result)
		want := `{"jsonrpc":"2.0","id":"a","result":` + string(result) + "}"
		if got := string(line.Bytes()); got != want || line.Size() != len(want) {
			t.Errorf("a result of %d bytes: %.60q, %d bytes", size, got, line.Size())
		}
		rec := &recorder{}
		w := NewWriter(rec)
		_ = w.Hold([]byte("held")) // ignore error: the recorder has none
		_ = w.Write(line...)       // as above
		if got := strings.Join(rec.writes, ""); got != "held\n"+want+"\n" {
			t.Errorf("a result of %d bytes is written as %.60q", size, got)
		}
		if size >= largeLine && !slices.Contains(rec.writes, string(result)) {
			t.Errorf("a result of %d bytes was copied", size)
		}
		line = append(line, []byte("\n[\n"), []byte("]"))
		rec.writes = nil
		_ = w.Write(line...) // as above
		if got := strings.Join(rec.writes, ""); got != want+" [ ]\n" {
			t.Errorf("with newlines a result of %d bytes is written as %.60q", size, got)
		}
	}
	var none Line
	if none.Size() != 0 || len(none.Bytes()) != 0 {
		t.Error("nothing is something")
	}
}

func TestWriterGathers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := make(gate)
		w := NewWriter(out)
		done := make(chan string, 10)
		write := func(line string) {
			go func() {
				if err := w.Write([]byte(line)); err != nil {
					t.Error(err)
				}
				done <- line
			}()
			synctest.Wait()
		}
		write("a")
		write("b")
		if err := w.Hold([]byte("c")); err != nil {
			t.Fatal(err)
		}
		write("d")
		if got := <-out; got != "a\n" {
			t.Errorf("first %q", got)
		}
		synctest.Wait()
		if len(done) != 1 || <-done != "a" {
			t.Error("a Write returned before its line was out")
		}
		if got := <-out; got != "b\nc\nd\n" {
			t.Errorf("then %q", got)
		}
		synctest.Wait()
		if len(done) != 2 {
			t.Errorf("%d of 2 have returned", len(done))
		}
		write("e")
		if err := w.Flush(); err != nil { // nothing is held, so nothing is waited for
			t.Error(err)
		}
		<-out
	})
}

func TestWriterHoldsLittle(t *testing.T) {
	rec := &recorder{}
	w := NewWriter(rec)
	held := 0
	for len(rec.writes) == 0 && held < 1<<20 {
		_ = w.Hold(make([]byte, 999)) // ignore error: the recorder has none
		held += 1000
	}
	if held > smallBuffer+1000 {
		t.Errorf("%d bytes were held", held)
	}
}

// A gate lets a Write through for each receive.
type gate chan string

func (g gate) Write(p []byte) (int, error) { g <- string(p); return len(p), nil }

func TestWriterStaysBroken(t *testing.T) {
	rec := &recorder{err: io.ErrClosedPipe}
	w := NewWriter(rec)
	first := w.Write([]byte("a"))
	rec.err = nil
	if second := w.Write([]byte("b")); first != io.ErrClosedPipe || second != first || len(rec.writes) != 0 {
		t.Errorf("%v, %v, %q", first, second, rec.writes)
	}
	if err := NewWriter(short{}).Write([]byte("abc")); err != io.ErrShortWrite {
		t.Error(err)
	}
}

type short struct{}

func (short) Write(p []byte) (int, error) { return 1, nil }

func FuzzReader(f *testing.F) {
	f.Add([]byte("\ufeff{\"id\":1}\r\n\n x\n"), uint8(1), uint16(40))
	f.Add([]byte("{\"id\":1,\"p\":\"0123456789012345678901234567890123456789\"}\nab"), uint8(3), uint16(20))
	f.Add([]byte(strings.Repeat("\r", 16)), uint8(7), uint16(10))
	f.Add([]byte(hint+"70000\r\n{}\n"+hint+"-1\n"+hint+"x\n"), uint8(7), uint16(60000))
	f.Fuzz(func(t *testing.T, in []byte, size uint8, limit uint16) {
		r := NewReader(&chunks{append([]byte(nil), in...), int(size) + 1}, int64(limit)+1)
		hints := size%2 == 1
		if hints {
			r.Hints()
		}
		if size&2 != 0 {
			r.part = 1 + int(size>>4)
			r.buf = make([]byte, r.part)
		}
		lines, end := drain(t, r)
		if end != io.EOF {
			t.Fatal(end)
		}
		var want []string
		for i, line := range bytes.Split(in, []byte("\n")) {
			if i == 0 {
				line = bytes.TrimPrefix(line, []byte("\ufeff"))
			}
			line = bytes.TrimSuffix(line, []byte("\r"))
			long := len(line) > int(limit)+1
			line = bytes.TrimRight(line, "\r")
			said, isHint := bytes.CutPrefix(line, []byte(hint))
			if _, err := strconv.Atoi(string(said)); long {
				want = append(want, "long")
			} else if hints && isHint && err == nil {
				continue
			} else if space(line, 0) < len(line) {
				want = append(want, string(line))
			}
		}
		for i, line := range want {
			if i >= len(lines) || line != "long" && line != lines[i] || line == "long" && lines[i] != line && !strings.HasPrefix(lines[i], "-32600") {
				t.Fatalf("%q: got %q, want %q", in, lines, want)
			}
		}
		if len(lines) != len(want) {
			t.Fatalf("%q: got %q, want %q", in, lines, want)
		}
	})
}

// A large buffer is used for one large line after the other, and a line that
// was kept stays as it is.
func TestReaderReusesLargeBuffers(t *testing.T) {
	var text strings.Builder
	line := func(i int) string { return strings.Repeat(string(rune('a'+i)), 200<<10+i) }
	for i := range 8 {
		text.WriteString(line(i) + "\r\n\n{}\n")
	}
	var spare Spare
	r := NewReader(&chunks{[]byte(text.String()), 1 << 10}, 0)
	r.Reuse(&spare)
	bases := map[*byte]bool{}
	var kept []byte
	for i := range 8 {
		got, err := r.Next()
		if err != nil || string(got) != line(i) {
			t.Fatalf("line %d: %.10q… (%d bytes), %v", i, got, len(got), err)
		}
		bases[&got[0]] = true
		if i == 4 {
			kept = r.Own(got)
		}
		small, err := r.Next()
		if err != nil || string(small) != "{}" {
			t.Fatalf("behind line %d: %q %v", i, small, err)
		}
		if mine := r.Own(small); &mine[0] == &small[0] || string(mine) != "{}" {
			t.Error("a small line is not copied")
		}
	}
	if string(kept) != line(4) {
		t.Errorf("the kept line is %.10q…", kept)
	}
	if len(bases) != 2 { // one was kept
		t.Errorf("8 lines were read into %d buffers", len(bases))
	}
	if spare.buf.Load() == nil {
		t.Error("nothing is spared")
	}
	if spare.Drop(); spare.buf.Load() != nil {
		t.Error("it is spared for ever")
	}
}

// A hint has room made for the next line, once, and is no line itself.
func TestHints(t *testing.T) {
	const limit = 1 << 20
	long := func(n int) string { return strings.Repeat("x", n) }
	for _, hinted := range []string{"200000", "0", "-1", "1", "300000", "1048576", "99999999999", "200000\r"} {
		var text bytes.Buffer
		w := NewWriter(&text)
		w.Hints()
		if err := errors.Join(w.Write([]byte("{}")), w.Write([]byte(long(100_000))), w.Write([]byte("[]"))); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&text, hint+"%s\n%s\n\n{}\n", hinted, long(200_000))
		for _, size := range []int{1, 7, 4096, 1 << 20} {
			r := NewReader(&chunks{text.Bytes(), size}, limit)
			r.Hints()
			for _, want := range []string{"{}", long(100_000), "[]", long(200_000), "{}"} {
				got, err := r.Next()
				if err != nil || string(got) != want || !r.Complete() {
					t.Fatalf("a hint of %s, %d bytes at a time: %.10q… (%d bytes), %v", hinted, size, got, len(got), err)
				}
				if len(want) == 100_000 && len(r.buf) != 100_001 {
					t.Errorf("%d bytes at a time: room for %d bytes was made for 100,000", size, len(r.buf))
				}
				if cap(r.buf) > limit+2*largeLine {
					t.Errorf("a hint of %s has room made for %d bytes", hinted, cap(r.buf))
				}
			}
		}
	}
	// To who did not ask for them they are lines like others, as are those that
	// say nothing.
	for _, text := range []string{hint + "12", hint, hint + "x", hint + "99999999999999999999"} {
		r := NewReader(strings.NewReader(text+"\n"), 0)
		if text != hint+"12" {
			r.Hints()
		}
		if got, err := r.Next(); err != nil || string(got) != text {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
	// Whoever asks whether a line is ready waits for no line that is only announced.
	r := NewReader(strings.NewReader("{}\n"+hint+"12\n"), 0)
	r.Hints()
	if _, err := r.Next(); err != nil || r.Ready() {
		t.Errorf("a hint is ready, %v", err)
	}
	r = NewReader(strings.NewReader("{}\n"+hint+"2\n{}\n"), 0)
	r.Hints()
	if _, err := r.Next(); err != nil || !r.Ready() {
		t.Errorf("the line behind a hint is not ready, %v", err)
	}
}
