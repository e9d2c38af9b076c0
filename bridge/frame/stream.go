package frame

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
)

// DefaultLimit is the largest message of a Reader whose limit is not given.
const DefaultLimit = 64 << 20

// smallBuffer is what a Reader holds at rest. A server has one for each of a
// thousand idle links: at the 64 KiB that a pipe holds they were nine tenths of
// its memory.
const smallBuffer = 8 << 10

// partSize is how large a buffer grows for a line whose length nobody has said.
// What is longer lies in several until its end has come: one that doubles goes on
// until it is up to twice as large as the line, and leaves as much behind.
const partSize = 256 << 10

// largeLine is from where on a Writer writes a line as it is, without its
// newline and what is held.
const largeLine = 64 << 10

// hint begins a line that says how long the next one is. It begins no JSON.
const hint = "!large "

// AppendHint adds to b the line that says that the next one has n bytes, with
// its newline.
func AppendHint(b []byte, n int) []byte {
	return append(strconv.AppendInt(append(b, hint...), int64(n), 10), '\n')
}

// A Reader cuts a stream into lines. It skips blank lines, and strips a byte
// order mark at the beginning and the carriage returns at line ends. Only
// newline ends a line; U+2028 does not. The newline is the byte behind the line
// and within its capacity, where nothing was stripped.
//
// It holds at most one line, of at most limit bytes, and gives the memory of a
// large one back with the next call. It is not safe for concurrent use.
type Reader struct {
	r      io.Reader
	limit  int64
	buf    []byte
	start  int   // the line begins here
	seen   int   // no newline before this
	end    int   // of what was read
	err    error // of r, once everything read is handed out
	begun  bool  // the first line is behind
	capped finder
	cut    bool // within a line past the limit
	full   bool // the last line ended with a newline
	at     int  // where in buf the last line begins
	spare  *Spare
	part   int      // partSize, but in tests
	parts  [][]byte // of a line that buf had no room for, what was read before
	kept   int      // bytes in parts
	whole  []byte   // the line returned last, if it was put together from parts
	hints  bool     // lines may be hints
	expect int      // bytes that the next line is said to have; 0 where nothing is said
}

// NewReader returns a Reader of r. A limit of zero or less means DefaultLimit.
func NewReader(r io.Reader, limit int64) *Reader {
	if limit <= 0 {
		limit = DefaultLimit
	}
	return &Reader{r: r, limit: limit, part: partSize}
}

// A Spare is a place for the buffer of a large line, between one and the next:
// one after the other they would be garbage faster than it is collected. Several
// Readers may share it. What lies in it stays until somebody takes it out.
type Spare struct{ buf atomic.Pointer[[]byte] }

// Drop leaves what lies there to the collector.
func (s *Spare) Drop() { s.buf.Store(nil) }

func (s *Spare) put(buf []byte) {
	if s != nil {
		s.buf.Store(&buf)
	}
}

// take returns what lies there if that is so large, and not larger than most.
func (s *Spare) take(size int, most int64) []byte {
	if s == nil {
		return nil
	}
	if p := s.buf.Swap(nil); p != nil && len(*p) >= size && int64(len(*p)) <= most {
		return *p
	}
	return nil
}

// Reuse has large buffers taken from s and put back there.
func (r *Reader) Reuse(s *Spare) { r.spare = s }

// Hints has the Reader take hints for itself: lines that say how long the next
// one is (AppendHint). Room for that is made at once: a buffer that doubles
// copies a large line about once more, and holds it up to three times meanwhile.
// A hint may be wrong, and none has more room made than the limit is.
func (r *Reader) Hints() { r.hints = true }

// Next returns the next line without its end; it is valid until the next call.
// At the end of the stream it returns the rest, if any, as a line, and then
// io.EOF. When the stream breaks otherwise, it returns what broke it and drops
// the half line. A line past the limit becomes an *Error with the id, wherever
// in the line it stands; the call after that goes on with the line behind it.
func (r *Reader) Next() ([]byte, error) {
	for {
		line, err := r.line()
		if err != nil {
			return nil, err
		}
		if !r.begun {
			r.begun = true
			if mark := []byte("\ufeff"); bytes.HasPrefix(line, mark) {
				line = line[len(mark):]
				r.at += len(mark)
			}
		}
		// One return belongs to the line's end. More of them count as any other
		// space does, or it would matter in which pieces the line came.
		line = bytes.TrimSuffix(line, []byte("\r"))
		if int64(len(line)) > r.limit {
			r.capped = finder{}
			r.capped.write(line)
			return nil, r.tooLong()
		}
		line = bytes.TrimRight(line, "\r")
		if n, ok := r.hinted(line); ok {
			r.expect = n
			continue
		}
		if space(line, 0) < len(line) {
			return line, nil
		}
	}
}

// hinted is how long line says that the next one is, if that is all it says.
func (r *Reader) hinted(line []byte) (n int, ok bool) {
	if !r.hints || !bytes.HasPrefix(line, []byte(hint)) {
		return 0, false
	}
	n, err := strconv.Atoi(string(bytes.TrimRight(line[len(hint):], "\r")))
	return max(0, int(min(int64(n), r.limit))), err == nil
}

// Keep makes line, the one that Next returned last, the caller's for good: the
// Reader goes on in another buffer.
func (r *Reader) Keep(line []byte) []byte {
	if r.whole != nil {
		r.whole = nil
		behind := len(line)
		if r.full && line[:behind+1][behind] == '\n' {
			behind++
		}
		return line[:len(line):behind]
	}
	end := r.at + len(line)
	behind := end
	if r.full && r.buf[end] == '\n' {
		behind++
	}
	line = r.buf[r.at:end:behind]
	r.move(make([]byte, max(smallBuffer, r.end-r.start)))
	return line
}

// Own makes line, the one that Next returned last, the caller's for good, at the
// least cost: a small one is copied, a large one kept in its buffer.
func (r *Reader) Own(line []byte) []byte {
	if len(line) < largeLine {
		return bytes.Clone(line)
	}
	return r.Keep(line)
}

// Complete reports whether the line returned last was ended by a newline. A
// line that was not may be the torn half of a longer one.
func (r *Reader) Complete() bool { return r.full }

// Ready reports whether another line was read in full already, so that Next
// will not wait. Blank lines are none, nor are hints.
func (r *Reader) Ready() bool {
	for at := r.seen; ; {
		i := bytes.IndexByte(r.buf[at:r.end], '\n')
		if i < 0 {
			return false
		}
		line := r.buf[at : at+i]
		if _, ok := r.hinted(line); r.cut || !ok && space(line, 0) < len(line) {
			return true
		}
		at += i + 1
	}
}

func (r *Reader) tooLong() error {
	e := &Error{Code: CodeInvalidRequest, Message: fmt.Sprintf("message of more than %d bytes", r.limit)}
	e.ID, e.Response = r.capped.result()
	r.capped = finder{}
	return e
}

// line returns what lies before the next newline, whatever it is.
func (r *Reader) line() ([]byte, error) {
	r.release()
	if size := r.expect + 1; size > smallBuffer && size > len(r.buf) && r.err == nil {
		r.grow(size + largeLine) // the one after it may be a little longer
		r.buf = r.buf[:size]     // what is read with it has to be moved
	}
	r.expect = 0
	for {
		if i := bytes.IndexByte(r.buf[r.seen:r.end], '\n'); i >= 0 {
			at := r.seen + i
			line := r.buf[r.start : at : at+1]
			r.at = r.start
			r.start, r.seen, r.full = at+1, at+1, true
			if r.cut {
				r.cut, r.begun = false, true
				r.capped.write(line)
				return nil, r.tooLong()
			}
			return r.together(line), nil
		}
		r.seen = r.end
		// Five bytes more than the limit: a mark before and a return behind
		// the line are not counted.
		if held := r.kept + r.end - r.start; r.cut || int64(held) > r.limit+4 {
			r.cut = true
			for _, part := range append(r.parts, r.buf[r.start:r.end]) {
				r.capped.write(part)
			}
			r.parts, r.kept = nil, 0
			r.start, r.seen, r.end = 0, 0, 0
		}
		if r.err != nil {
			rest := r.buf[r.start:r.end:r.end]
			r.at = r.start
			r.start, r.seen, r.full = r.end, r.end, false
			switch {
			case r.cut:
				r.cut = false
				return nil, r.tooLong()
			case r.kept+len(rest) > 0 && r.err == io.EOF:
				return r.together(rest), nil
			}
			r.parts, r.kept = nil, 0
			return nil, r.err
		}
		r.fill()
	}
}

// together is the line of which the end is given.
func (r *Reader) together(end []byte) []byte {
	if r.kept == 0 {
		return end
	}
	n := r.kept + len(end)
	r.whole = r.spare.take(n+1, r.limit+2*largeLine)
	if r.whole == nil {
		r.whole = make([]byte, n+1)
	}
	at := 0
	for _, part := range append(r.parts, end[:cap(end)]) { // and its newline
		at += copy(r.whole[at:], part)
	}
	r.parts, r.kept = nil, 0
	return r.whole[:n:at]
}

// release gives a large buffer back, and what is unread a place at the front.
func (r *Reader) release() {
	if r.whole != nil {
		r.spare.put(r.whole[:cap(r.whole)])
		r.whole = nil
	}
	rest := r.end - r.start
	if len(r.buf) > smallBuffer && rest <= smallBuffer/2 {
		large := r.buf[:cap(r.buf)]
		r.move(make([]byte, smallBuffer))
		r.spare.put(large)
	} else if rest == 0 {
		r.start, r.seen, r.end = 0, 0, 0
	}
}

// grow puts what is unread to the front of a buffer of that size, or larger.
func (r *Reader) grow(size int) {
	var grown []byte
	if size > largeLine {
		grown = r.spare.take(size, r.limit+2*largeLine)
	}
	if grown == nil {
		grown = make([]byte, size)
	}
	r.move(grown)
}

// move puts what is unread to the front of buf.
func (r *Reader) move(buf []byte) {
	copy(buf, r.buf[r.start:r.end])
	r.buf, r.start, r.seen, r.end = buf, 0, r.seen-r.start, r.end-r.start
}

// fill reads once, into a buffer that doubles as the line grows.
func (r *Reader) fill() {
	switch {
	case r.end < len(r.buf):
	case r.start > 0 && r.start >= len(r.buf)/2:
		r.move(r.buf)
	case len(r.buf) >= r.part:
		r.parts = append(r.parts, r.buf[r.start:r.end])
		r.kept += r.end - r.start
		r.buf, r.start, r.seen, r.end = make([]byte, r.part), 0, 0, 0
	default:
		// At least double, or a long line would be copied over and over; never
		// much past the limit.
		r.grow(max(smallBuffer, int(min(2*int64(len(r.buf)), r.limit+smallBuffer))))
	}
	for range 100 {
		n, err := r.r.Read(r.buf[r.end:])
		if n < 0 || n > len(r.buf)-r.end {
			panic("frame: a reader returned an impossible count")
		}
		r.end += n
		if err != nil {
			r.err = err
			return
		}
		if n > 0 {
			return
		}
	}
	r.err = io.ErrNoProgress
}

// A finder looks for the id in a line that is too long to be held. It follows
// strings and brackets byte by byte, and keeps the members of the outermost
// object whose keys matter. The line need not be valid.
type finder struct {
	depth   int
	str     bool // within a string
	esc     bool // behind a backslash
	value   bool // behind the colon of an outermost member
	text    []byte
	long    bool // text was more than is kept
	key     string
	id      []byte
	method  bool
	answers bool
}

// maxKept bounds what is kept of one key or id.
const maxKept = 16 << 10

func (f *finder) write(b []byte) {
	for i := 0; i < len(b); {
		// The bulk of a long line: text, or whatever stands deeper.
		if f.str && !f.esc && (f.depth != 1 || f.long || f.value && f.key != "id") {
			n := bytes.IndexAny(b[i:], `"\`)
			if n < 0 {
				return
			}
			i += n
		}
		f.step(b[i])
		i++
	}
}

func (f *finder) step(c byte) {
	switch {
	case f.str:
		f.keep(c)
		switch {
		case f.esc:
			f.esc = false
		case c == '\\':
			f.esc = true
		case c == '"':
			f.str = false
		}
	case c == '"':
		f.str = true
		f.keep(c)
	case c == '{' || c == '[':
		f.keep(c)
		f.depth++
		if f.depth == 1 {
			f.text = f.text[:0]
		}
	case c == '}' || c == ']':
		if f.depth == 1 {
			f.member()
		}
		f.depth--
		f.keep(c)
	case f.depth == 1 && c == ':' && !f.value:
		f.key, _ = Text(f.text)
		f.value = true
		f.text, f.long = f.text[:0], false
	case f.depth == 1 && c == ',':
		f.member()
	case c == ' ' || c == '\t' || c == '\r':
	default:
		f.keep(c)
	}
}

func (f *finder) keep(c byte) {
	if f.depth != 1 || f.long || f.value && f.key != "id" {
		return
	}
	if len(f.text) == maxKept {
		f.text, f.long = f.text[:0], true
		return
	}
	f.text = append(f.text, c)
}

// member is called at the end of an outermost member.
func (f *finder) member() {
	if f.value {
		switch f.key {
		case "id":
			f.id = nil
			if !f.long && len(f.text) > 0 {
				if end, ok := skipScalar(f.text, 0); ok && end == len(f.text) && isID(f.text) {
					f.id = append([]byte(nil), f.text...)
				}
			}
		case "method":
			f.method = true
		case "result", "error":
			f.answers = true
		}
	}
	f.value, f.key = false, ""
	f.text, f.long = f.text[:0], false
}

func (f *finder) result() (id []byte, response bool) {
	return f.id, f.answers && !f.method
}

// A Writer writes lines. It is safe for
// concurrent use: what several have to say while a Write goes on goes out with
// the next.
type Writer struct {
	w     io.Writer
	hints bool

	mu      sync.Mutex
	turn    *sync.Cond
	buf     []byte // to be written
	spare   []byte
	batch   int // the number of the Write that buf goes out with
	done    int // the number of the last Write
	writing bool
	held    bool // some of buf is nobody's to wait for
	err     error
}

// NewWriter returns a Writer to w.
func NewWriter(w io.Writer) *Writer {
	lw := &Writer{w: w, batch: 1}
	lw.turn = sync.NewCond(&lw.mu)
	return lw
}

// Hints has the Writer write a hint before each line that it does not copy. It
// is called before anything is written.
func (w *Writer) Hints() { w.hints = true }

// Write writes what is held, a line in one or more pieces and a newline, and
// returns when that is done: in one Write of the stream, but for lines over
// 64 KiB, which are not copied. A newline within the line, which in JSON can only
// be white space, is written as a space. After the first error every call fails
// with it, because what follows half a line would be read as part of it.
func (w *Writer) Write(line ...[]byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if size := Line(line).Size(); size > largeLine && !slices.ContainsFunc(line, broken) {
		return w.largeLocked(size, line)
	}
	w.addLocked(line...)
	return w.flushLocked()
}

// broken reports whether there is a newline in a piece.
func broken(piece []byte) bool { return bytes.IndexByte(piece, '\n') >= 0 }

// largeLocked writes a line that is not worth a copy.
func (w *Writer) largeLocked(size int, line Line) error {
	for {
		if err := w.flushLocked(); err != nil { // what is held goes before it
			return err
		}
		if !w.writing {
			break
		}
		w.turn.Wait()
	}
	w.writing = true
	w.mu.Unlock()
	var err error
	if w.hints {
		err = writeAll(w.w, AppendHint(nil, size))
	}
	for _, piece := range append(slices.Clip(line), []byte{'\n'}) {
		if err == nil {
			err = writeAll(w.w, piece)
		}
	}
	w.mu.Lock()
	w.err, w.writing = err, false
	w.turn.Broadcast()
	return err
}

func writeAll(w io.Writer, b []byte) error {
	n, err := w.Write(b)
	if err == nil && n < len(b) {
		err = io.ErrShortWrite
	}
	return err
}

// Hold has line written together with the next one, or by Flush. What is held
// beyond a few kilobytes is written at once.
func (w *Writer) Hold(line []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.addLocked(line)
	w.held = true
	if len(w.buf) > smallBuffer {
		return w.flushLocked()
	}
	return w.err
}

// Flush writes what is held, if anything is.
func (w *Writer) Flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.held {
		return w.err
	}
	return w.flushLocked()
}

func (w *Writer) addLocked(line ...[]byte) {
	for w.writing && len(w.buf) > smallBuffer {
		w.turn.Wait()
	}
	at := len(w.buf)
	for _, piece := range line {
		w.buf = append(w.buf, piece...)
	}
	w.buf = append(w.buf, '\n')
	for rest := w.buf[at : len(w.buf)-1]; ; {
		n := bytes.IndexByte(rest, '\n')
		if n < 0 {
			return
		}
		rest[n] = ' '
		rest = rest[n+1:]
	}
}

func (w *Writer) flushLocked() error {
	if len(w.buf) == 0 {
		return w.err
	}
	mine := w.batch
	for w.writing && w.done < mine {
		w.turn.Wait()
	}
	if w.done >= mine {
		return w.err
	}
	buf := w.buf
	w.buf, w.spare, w.batch, w.writing = w.spare, nil, w.batch+1, true
	w.held = false
	err := w.err
	if err == nil {
		w.mu.Unlock()
		err = writeAll(w.w, buf)
		w.mu.Lock()
	}
	if cap(buf) <= smallBuffer {
		w.spare = buf[:0]
	}
	w.err, w.done, w.writing = err, mine, false
	w.turn.Broadcast()
	return err
}
