package session

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"majordomus/bridge/frame"
)

// Protocol is what a bridge upgrades a connection to.
const Protocol = "majordomus-frames/1"

// BridgeHeader names the bridge, by a UUID that outlives servers.
const BridgeHeader = "Majordomus-Bridge"

// RejoinsHeader is how a bridge says how many links it had before this one.
const RejoinsHeader = "Majordomus-Rejoins"

// PeerHeader is how a bridge says what the last server called it, where that
// was not the name that all servers would give it.
const PeerHeader = "Majordomus-Peer"

// StarterHeader is how a bridge names the process that started it.
const StarterHeader = "Majordomus-Starter"

// ConfirmHeader is how a bridge says that it answers "!ready" with "!run".
const ConfirmHeader = "Majordomus-Confirm"

// Peer says who is at the other end of a stream.
type Peer struct {
	Bridge string // the bridge's UUID; "" for a client without
	Called string // by the last server, where that was not the usual name
	// Plain says that the other end is a client, not a bridge: it gets no
	// control lines, and what it has in flight when its input ends is still
	// answered.
	Plain bool
	// Confirms says that it answers "!ready" with "!run".
	Confirms bool
}

// ServeStream serves one client on rw until its input ends or ctx does, and
// closes rw. It returns a *Refusal when the client is not let in, and nil at
// the end of the input.
func (c *Core) ServeStream(ctx context.Context, rw io.ReadWriteCloser, p Peer) error {
	defer rw.Close() // ignore error: both sides are done with it
	s := c.newSession(frontLink, p.Bridge)
	s.control = !p.Plain
	s.confirms = s.control && p.Confirms
	s.called = p.Called
	if p.Plain {
		s.front = frontStdio
	}
	if err := c.enter(s, nil); err != nil {
		return err
	}
	return c.serveLink(ctx, s, rw)
}

// WantsLink reports whether r asks for a link, of whatever version. Offers of
// other protocols, such as Java's clients make with each request, mean nothing
// here.
func WantsLink(r *http.Request) bool {
	family, _, _ := strings.Cut(Protocol, "/")
	return r.Method == http.MethodGet && strings.HasPrefix(strings.ToLower(r.Header.Get("Upgrade")), family)
}

// upgrade makes the connection of r a link.
func (c *Core) upgrade(w http.ResponseWriter, r *http.Request) {
	if !strings.EqualFold(r.Header.Get("Upgrade"), Protocol) || !hasToken(r.Header.Get("Connection"), "upgrade") {
		w.Header().Set("Upgrade", Protocol)
		w.Header().Set("Connection", "Upgrade")
		refuse(w, &Refusal{http.StatusUpgradeRequired, "invalid_upgrade", "the only protocol to upgrade to is " + Protocol})
		return
	}
	s := c.newSession(frontLink, r.Header.Get(BridgeHeader))
	s.control = true
	s.confirms = r.Header.Get(ConfirmHeader) == "run"
	s.called = r.Header.Get(PeerHeader)
	if starter := r.Header.Get(StarterHeader); len(starter) <= 64 {
		s.starter = starter
	}
	if err := c.enter(s, nil); err != nil {
		refuse(w, err)
		return
	}
	if n, err := strconv.Atoi(r.Header.Get(RejoinsHeader)); err == nil && n > 0 {
		c.rejoined.Add(1)
	}
	conn, brw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		s.close()
		refuse(w, &Refusal{http.StatusInternalServerError, "no_upgrade", "this connection cannot be upgraded"})
		return
	}
	if g, ok := conn.(*guardedConn); ok {
		conn = g.Conn // stallGuard does the same
	}
	conn.SetDeadline(time.Time{}) // ignore error: a broken connection shows at the first write
	rw := &stallGuard{Conn: conn, in: conn, stall: c.cfg.WriteStall}
	if n := brw.Reader.Buffered(); n > 0 {
		early, _ := brw.Reader.Peek(n) // ignore error: they are there
		rw.in = io.MultiReader(strings.NewReader(string(early)), conn)
	}
	// In a goroutine of our own: returning lets net/http drop its buffers and
	// its stack, which a thousand idle links would keep.
	if !c.spawn(func() {
		defer conn.Close() // ignore error: both sides are done with it
		if _, err := io.WriteString(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+Protocol+"\r\n\r\n"); err != nil {
			s.close()
			return
		}
		c.serveLink(context.Background(), s, rw) // ignore error: it is the end of the link, whichever
	}) {
		s.close()
		conn.Close() // ignore error: nobody was served on it
	}
}

// piece is how much is written before a client gets new time to read it.
const piece = 256 << 10

// stallGuard bounds how long one write may stand, so that a client which does
// not read loses its own link and no goroutine is kept for ever.
type stallGuard struct {
	net.Conn
	in    io.Reader // what the upgrade had read ahead, then the connection
	stall time.Duration
}

func (g *stallGuard) Write(b []byte) (n int, err error) {
	return writePieces(g.Conn, b, g.SetWriteDeadline, g.stall)
}

// writePieces writes b piece by piece, each with a time of its own: a slow
// reader is given all the time that it goes on reading, a dead one is not.
func writePieces(w io.Writer, b []byte, deadline func(time.Time) error, stall time.Duration) (n int, err error) {
	for {
		deadline(time.Now().Add(stall)) // ignore error: not every writer has one
		m, err := w.Write(b[n:min(len(b), n+piece)])
		if n += m; err != nil || n == len(b) {
			return n, err
		}
	}
}

// Guard returns l with the same bound for each write on its connections. Not
// only what handlers write is bounded by it: an HTTP server has words of its
// own, and a client that asks and asks and reads nothing must not keep a
// connection by them.
func Guard(l net.Listener, stall time.Duration) net.Listener { return &guardedListener{l, stall} }

type guardedListener struct {
	net.Listener
	stall time.Duration
}

func (l *guardedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &guardedConn{conn, l.stall}, nil
}

type guardedConn struct {
	net.Conn
	stall time.Duration
}

func (c *guardedConn) Write(b []byte) (int, error) {
	return writePieces(c.Conn, b, c.SetWriteDeadline, c.stall)
}

// CloseWrite is what net/http does before it closes a connection whose client
// may still be sending.
func (c *guardedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

func (g *stallGuard) Read(b []byte) (int, error) { return g.in.Read(b) }

func hasToken(header, token string) bool {
	for part := range strings.SplitSeq(header, ",") {
		if strings.EqualFold(strings.TrimSpace(part), token) {
			return true
		}
	}
	return false
}

// atOnceBytes is how large a request may be to be answered where it was read:
// decoding a large one takes seconds, in which a bridge would get no sign of life.
const atOnceBytes = 64 << 10

// mostUnread is how many bytes of answers may wait for a client that does not
// read them, before what it asks next is not read either.
const mostUnread = 1 << 20

// link is the lines of one Session.
//
// They are read by one goroutine at a time, which also runs what is known to be
// answered at once: handing each request to a goroutine of its own costs two
// switches of threads, as much as all the rest of a small call. Where such a
// request is going to wait after all, its handler says so (Yield), and a new
// goroutine reads on.
type link struct {
	core     *Core
	s        *Session
	rw       io.ReadWriteCloser
	r        *frame.Reader
	w        *frame.Writer
	requests int            // read so far
	calls    sync.WaitGroup // and readers, but for the first
	ended    chan error     // what ended the reading

	mu     sync.Mutex
	room   *sync.Cond // less is unread
	unread int        // bytes of answers that are being written
	broken bool
	ready  map[int]chan struct{} // requests that wait to be told to run, by number
}

// serveLink reads lines until the stream ends, and returns when every request
// that came over it has ended.
func (c *Core) serveLink(ctx context.Context, s *Session, rw io.ReadWriteCloser) error {
	l := &link{core: c, s: s, rw: rw, r: frame.NewReader(rw, c.cfg.MaxMessage), w: frame.NewWriter(rw), ended: make(chan error, 1)}
	l.room = sync.NewCond(&l.mu)
	if s.control {
		l.r.Hints()
		l.w.Hints()
	}
	defer s.close()
	// Whatever ends the session ends the reading.
	defer context.AfterFunc(s.ctx, l.close)()
	defer context.AfterFunc(ctx, s.close)()
	if s.control && c.cfg.Registry != nil {
		if err := l.write([]byte("!registry " + c.cfg.Registry())); err != nil {
			return err
		}
	}
	if s.control && s.bridge != "" && len(s.peer) > len("p")+shortID {
		if err := l.write([]byte("!peer " + s.peer)); err != nil {
			return err
		}
	}
	defer s.attach(l.write)()
	defer func() {
		s.close() // first: it ends the calls that are waited for
		l.calls.Wait()
	}()
	l.read()
	err := <-l.ended
	if err == io.EOF && !s.control {
		l.calls.Wait() // a client that closed its side still reads
	}
	if err == io.EOF || err == errBye {
		return nil
	}
	return err
}

// end notes what ended the reading, and acts on it at once: serveLink may be
// running a request that waits, for its client among others.
func (l *link) end(err error) {
	if err == io.EOF && !l.s.control {
		l.s.inputEnded()
	} else {
		l.s.close()
	}
	l.ended <- err
}

var errBye = errors.New("the bridge took its leave")

func (l *link) close() {
	l.rw.Close() // ignore error: the reader finds it closed
	l.mu.Lock()
	l.broken = true
	l.mu.Unlock()
	l.room.Broadcast()
}

// sent ends the session when a write failed: nothing can be said any more, and
// the reader may never notice, as a client that does not read need not say
// anything either.
func (l *link) sent(err error) error {
	if err != nil {
		l.s.close()
	}
	return err
}

func (l *link) write(b []byte) error { return l.answer(frame.Line{b}) }

func (l *link) answer(line frame.Line) error {
	size := line.Size()
	l.mu.Lock()
	l.unread += size
	l.mu.Unlock()
	err := l.w.Write(line...)
	l.mu.Lock()
	l.unread -= size
	l.mu.Unlock()
	l.room.Signal()
	return l.sent(err)
}

// hold has b written when the lines that have been read already are dealt with.
func (l *link) hold(b []byte) error { return l.sent(l.w.Hold(b)) }

// waitForRoom keeps a client waiting that asks and asks and does not read. It
// ends: a write to a client that reads nothing is bounded, or else that client
// is the only one there is.
func (l *link) waitForRoom() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.unread > mostUnread && !l.broken {
		l.room.Wait()
	}
}

// read reads lines until the stream ends, or until another goroutine does it.
func (l *link) read() {
	for {
		if !l.r.Ready() {
			if err := l.sent(l.w.Flush()); err != nil {
				l.end(err)
				return
			}
		}
		l.waitForRoom()
		line, err := l.r.Next()
		replaced := false
		if err == nil {
			replaced, err = l.take(line)
		}
		var bad *frame.Error
		if errors.As(err, &bad) {
			err = nil
			if bad.ID != nil && !bad.Response {
				l.requests++ // the bridge may hold longer ones, and counted it
			}
			if !bad.Response { // an answer that is none is dropped
				err = l.write(frame.Failure(bad.ID, bad.Code, bad.Message, nil))
			}
		}
		if replaced {
			return
		}
		if err != nil {
			l.end(err)
			return
		}
	}
}

// take takes one line. It reports whether another goroutine reads on.
func (l *link) take(line []byte) (replaced bool, err error) {
	s := l.s
	if line[0] == '!' {
		if !s.control {
			return false, &frame.Error{Code: frame.CodeParse, Message: "not JSON"}
		}
		switch strings.TrimSpace(string(line)) {
		case "!ping":
			return false, l.write([]byte("!pong"))
		case "!bye":
			return false, errBye
		}
		if n, ok := strings.CutPrefix(string(line), "!run "); ok {
			l.told(strings.TrimSpace(n))
		}
		return false, nil
	}
	if s.control && !l.r.Complete() {
		// Half a line, cut off by the death of the bridge: even where it can be
		// read it is not what was meant.
		return false, io.ErrUnexpectedEOF
	}
	m, err := frame.Parse(l.r.Own(line))
	switch {
	case err != nil:
		return false, err
	case m.IsResponse():
		s.heard(m)
		s.answered(m)
		return false, nil
	case m.IsNotification():
		s.heard(m)
		s.notified(m)
		return false, nil
	}
	l.requests++
	if s.confirms && s.core.draining.Load() {
		// It was on its way when the bridge was told to leave. The next server
		// runs it: here it might be cut in the middle.
		return false, l.write([]byte("!refused " + strconv.Itoa(l.requests)))
	}
	atOnce := len(line) <= atOnceBytes && s.core.atOnce(m)
	harmless, elsewhere := atOnce, false
	if !atOnce {
		harmless, elsewhere = s.core.harmless(m)
	}
	if s.confirms && !harmless {
		// That the word was written does not mean that it arrives, and a bridge
		// that never read it sends the request to the next server.
		return false, l.askToRun(m)
	}
	// What runs in another process and may run twice is sent again with the word
	// or without: it cannot be what this server died of. Without the word the
	// bridge wakes once for it.
	if s.control && !(s.confirms && elsewhere) {
		// Before it runs, so that a bridge whose server dies knows what may
		// have happened and what cannot have. What is answered at once does no
		// harm when it runs twice, so there the word can wait for the answer.
		say, word := l.write, "!accepted "+strconv.Itoa(l.requests)
		if atOnce {
			say = l.hold
		}
		if s.confirms {
			word += " safe" // the bridge need not have seen a list to know
		}
		if err := say([]byte(word)); err != nil {
			return false, err
		}
	}
	c := s.begin(s.ctx, m, l.write)
	if !atOnce {
		l.calls.Go(func() { c.answerTo(l.answer) })
		return false, nil
	}
	c.yield = func() {
		replaced = true
		l.calls.Go(func() {
			// What is held would wait for as long as the handler does.
			if err := l.sent(l.w.Flush()); err != nil {
				l.end(err)
				return
			}
			l.read()
		})
	}
	c.answerTo(func(line frame.Line) error {
		if replaced || len(line) > 1 {
			return l.answer(line)
		}
		return l.hold(line[0])
	})
	return replaced, nil
}

// askToRun runs m once the bridge says so, and not at all when the link or the
// request ends before.
func (l *link) askToRun(m frame.Message) error {
	number, run := l.requests, make(chan struct{})
	l.mu.Lock()
	if l.ready == nil {
		l.ready = map[int]chan struct{}{}
	}
	l.ready[number] = run
	l.mu.Unlock()
	c := l.s.begin(l.s.ctx, m, l.write)
	c.may = func() bool {
		select {
		case <-run:
		case <-c.ctx.Done():
		}
		l.mu.Lock()
		delete(l.ready, number)
		l.mu.Unlock()
		return c.ctx.Err() == nil
	}
	l.calls.Go(func() { c.answerTo(l.answer) })
	return l.write([]byte("!ready " + strconv.Itoa(number)))
}

// told is told that a request may run.
func (l *link) told(number string) {
	n, err := strconv.Atoi(number)
	l.mu.Lock()
	defer l.mu.Unlock()
	if run := l.ready[n]; err == nil && run != nil {
		delete(l.ready, n) // once
		close(run)
	}
}

// harmless reports whether m may run twice, and whether it is the call of a
// hosted server's tool.
func (c *Core) harmless(m frame.Message) (harmless, elsewhere bool) {
	switch name := m.Name(); name {
	case "tools/call":
		name, _ := frame.Text(frame.Get(m.Params, "name"))
		tool := c.cfg.MCP.GetTool(name)
		if tool == nil {
			return c.cfg.Hosted != nil && c.cfg.Hosted.Harmless(name), true
		}
		a := tool.Tool.Annotations
		return a.ReadOnlyHint != nil && *a.ReadOnlyHint || a.IdempotentHint != nil && *a.IdempotentHint, false
	case "resources/read", "prompts/get", "completion/complete", "subscriptions/listen":
		return true, false
	default:
		return strings.HasSuffix(name, "/list"), false
	}
}

// atOnce reports whether m is answered without waiting for anything, and may
// run twice.
func (c *Core) atOnce(m frame.Message) bool {
	switch m.Name() {
	case "initialize", // in order: what follows meets a session that shook hands
		"ping", "server/discover", "tools/list", "prompts/list", "resources/templates/list",
		"logging/setLevel", "resources/subscribe", "resources/unsubscribe":
		return true
	case "tools/call":
		if c.cfg.AtOnce == nil {
			return false
		}
		name, _ := frame.Text(frame.Get(m.Params, "name"))
		return c.cfg.AtOnce(name)
	}
	return false
}
