package bridge

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"majordomus/bridge/frame"
)

// Control lines. They begin with a character that begins no JSON.
var (
	ping = []byte("!ping")
	pong = []byte("!pong")
	bye  = []byte("!bye")
)

const (
	directBytes = 32 << 10  // at most so much may be on its way when the client's reader writes itself
	batchBytes  = 64 << 10  // lines are gathered to this
	chunkBytes  = 256 << 10 // long lines are written in such pieces
)

// A link is one stream to one server. Its fields are the bridge's, under mu,
// unless said otherwise.
type link struct {
	conn io.ReadWriteCloser
	r    io.Reader // of conn, behind the handshake
	fast bool      // a kernel's buffer takes small writes at once
	born time.Time

	cond    *sync.Cond // on the bridge's mutex: queue, writing or dead changed
	queue   [][]byte   // lines to be written; nobody changes them
	queued  int        // bytes in queue
	unread  int        // bytes written since nothing was in flight
	writing bool
	scratch []byte // the writer's

	count    int           // requests sent
	calls    map[int]*call // of them, those in flight, by number
	inflight int           // of those, all but listens
	asked    int           // questions open

	registry string
	leaving  bool
	leaveAt  time.Time // not before, even when idle
	leaveBy  time.Time // even when busy
	closing  bool      // said bye
	dead     bool
	broken   error // it can no longer be written to
	brokenAt time.Time

	since  time.Time // when it last became busy
	pinged time.Time // unanswered; zero for none
	due    time.Time // watch looks then

	heard   atomic.Int64 // when a read last brought something, since the bridge began
	taken   atomic.Int64 // when a write that had to wait last went on
	handing atomic.Bool  // its reader is busy writing to the client
	begin   time.Time
}

func newLink(conn io.ReadWriteCloser, r io.Reader, begin time.Time) *link {
	_, kernel := conn.(syscall.Conn)
	return &link{conn: conn, r: r, fast: kernel, born: time.Now(), begin: begin, calls: map[int]*call{}}
}

// Read is conn's, noting the time.
func (l *link) Read(p []byte) (int, error) {
	n, err := l.r.Read(p)
	if n > 0 {
		l.heard.Store(int64(time.Since(l.begin)))
	}
	return n, err
}

// busy reports whether the server owes a sign of life.
func (l *link) busy() bool { return l.inflight > 0 || l.writing || len(l.queue) > 0 }

// lastSign is when the server was last known to live, or was last owed nothing.
func (l *link) lastSign(begin time.Time) time.Time {
	sign := l.since
	for _, d := range []int64{l.heard.Load(), l.taken.Load()} {
		if t := begin.Add(time.Duration(d)); t.After(sign) {
			sign = t
		}
	}
	return sign
}

// direct reports whether the queue may be written by the client's reader, which
// must not be kept: it is to read a cancellation while a server reads nothing.
// So much fits into any kernel's buffer.
func (l *link) direct() bool { return l.fast && l.queued+l.unread <= directBytes }

func (l *link) take() [][]byte {
	batch := l.queue
	l.queue = nil
	l.unread += l.queued
	l.queued = 0
	return batch
}

// write writes lines, short ones together. Only one writer at a time: writing
// says who.
func (l *link) write(batch [][]byte) error {
	buf := l.scratch[:0]
	for _, line := range batch {
		if len(buf) > 0 && len(buf)+len(line) >= batchBytes {
			if err := l.writeAll(buf); err != nil {
				return err
			}
			buf = buf[:0]
		}
		if len(line) >= batchBytes {
			if err := l.writeAll(frame.AppendHint(buf, len(line))); err != nil {
				return err
			}
			if err := l.writeAll(line); err != nil {
				return err
			}
			buf, line = buf[:0], nil
		}
		buf = append(append(buf, line...), '\n')
	}
	l.scratch = buf[:0]
	return l.writeAll(buf)
}

func (l *link) writeAll(p []byte) error {
	for len(p) > 0 {
		begun := time.Now()
		n, err := l.conn.Write(p[:min(len(p), chunkBytes)])
		if err != nil {
			return err
		}
		if n <= 0 {
			return io.ErrShortWrite
		}
		p = p[n:]
		// What fits into the kernel's buffer proves nothing. A write that
		// had to wait went on because somebody reads.
		if waited := time.Since(begun); waited > 5*time.Millisecond {
			l.taken.Store(int64(time.Since(l.begin)))
		}
	}
	return nil
}

// close ends the stream. A hung server that wakes up again must not be able to
// announce that it runs what was sent elsewhere meanwhile: a reset makes its
// next write fail, where an orderly end would let one through.
func (l *link) close(hung bool) {
	if tcp, ok := l.conn.(*net.TCPConn); ok && hung {
		tcp.SetLinger(0) // ignore error: then it is an orderly end
	}
	l.conn.Close() // ignore error: it is done with
}

// start runs a link's reader and writer.
func (b *bridge) start(l *link) {
	l.cond = sync.NewCond(&b.mu)
	b.links = append(b.links[:len(b.links):len(b.links)], l)
	b.wg.Go(func() { b.readLink(l) })
	b.wg.Go(func() { b.writeLink(l) })
}

// readLink hands on what a server writes until the stream ends.
func (b *bridge) readLink(l *link) {
	r := frame.NewReader(l, b.cfg.MaxMessage)
	r.Reuse(&b.large)
	r.Hints()
	for {
		line, err := r.Next()
		b.mu.Lock()
		var bad *frame.Error
		switch {
		case l.dead:
			b.mu.Unlock()
			b.out.kick() // what was left to be written with a line that does not count any more
			return
		case errors.As(err, &bad):
			b.tooLong(l, bad)
		case err != nil:
			b.lose(l, err)
		case !r.Complete():
			// Half a line, cut off by the death of who wrote it: even where it
			// can be read it is not what was meant.
			b.lose(l, io.ErrUnexpectedEOF)
		case line[0] == '!':
			b.control(l, line)
		default:
			b.fromServer(l, line)
		}
		large := len(line) >= largeLine
		hands := large || !r.Ready()
		l.handing.Store(hands)
		b.unlock(server)
		if hands {
			if !b.out.flush() && large {
				r.Keep(line) // it is being written still, and the end has come
			}
			l.handing.Store(false)
		}
	}
}

// writeLink writes what is queued for l, unless the client's reader did.
func (b *bridge) writeLink(l *link) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		for !l.dead && (l.writing || len(l.queue) == 0) {
			l.cond.Wait()
		}
		if l.dead {
			return
		}
		l.writing = true
		batch := l.take()
		b.mu.Unlock()
		err := l.write(batch)
		b.mu.Lock()
		b.wrote(l, err)
		b.unlock(other)
		b.mu.Lock()
	}
}

// wrote is called when a write to l has ended.
func (b *bridge) wrote(l *link, err error) {
	l.writing = false
	if l.inflight == 0 {
		l.unread = 0
	}
	b.room.Broadcast()
	switch {
	case l.dead:
	case err != nil && l.broken == nil:
		// The answers it wrote before it broke may still be unread, and so
		// may be the word that it took a call: the reader comes to the end
		// of them, and loses the link then.
		l.broken, l.brokenAt = fmt.Errorf("writing to the server: %w", err), time.Now()
		l.queue, l.queued = nil, 0
		b.expect(l, l.brokenAt.Add(b.cfg.ProbeTimeout))
	case len(l.queue) == 0 && l.closing:
		b.lose(l, io.EOF)
	}
}
