package session

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"majordomus/bridge/frame"
)

const (
	frontLink  = "link"
	frontStdio = "stdio"
	frontHTTP  = "http"
)

// silence is how long a peer that has no stream may give no sign of life.
const silence = 90 * time.Second

// Session is one connected client.
type Session struct {
	core     *Core
	id       string // Mcp-Session-Id; carries the generation
	peer     string // given when it enters
	bridge   string
	called   string // what the server before called it, if that was no short name
	starter  string // the process that started the bridge, as that names it
	front    string
	control  bool // control lines are understood
	confirms bool // it says when to run what may not run twice
	key      any  // in Core.byPeer; guarded by Core.mu
	attached bool // its client is there; guarded by Core.mu
	since    time.Time
	ctx      context.Context // the session's lifetime; ended by close
	cancel   context.CancelFunc

	greeting sync.Mutex // held while whoever hosts is told of coming and going, in this order

	mu      sync.Mutex
	closed  bool
	seen    time.Time
	active  bool
	shaken  bool // did initialize: it hears what nobody asked for
	greeted bool // ready was called
	info    mcp.Implementation
	caps    mcp.ClientCapabilities
	level   mcp.LoggingLevel
	leveled bool // it said so itself
	version string
	subs    map[string]bool
	pending map[string]chan frame.Message // questions, by raw id
	deaf    chan struct{}                 // closed when no question will be answered any more
	busy    int                           // requests whose answers are not written yet, listens left out
	flight  map[string]*call              // requests, by raw id

	// What is told without being asked goes through notes to the stream that
	// is open at the moment, by one sender at a time: whoever tells never
	// waits for a client that reads slowly.
	outs    []*outlet // open, the one in use last
	notes   [][]byte
	sending bool
	streams int // HTTP streams open
}

// largeMessage is from where on a message leaves much to be collected behind.
const largeMessage = 4 << 20

// mostNotes bounds what waits for a client that is slow or has no stream. What
// is told here says "look again", so losing the oldest loses little.
const mostNotes = 128

func (c *Core) newSession(front, bridge string) *Session {
	now := time.Now()
	s := &Session{
		core: c, id: c.cfg.Generation + "-" + rand.Text(), bridge: bridge, front: front,
		since: now, seen: now, level: mcp.LoggingLevelError,
		deaf: make(chan struct{}), subs: map[string]bool{}, pending: map[string]chan frame.Message{}, flight: map[string]*call{},
	}
	// Of nothing else: who ends all sessions closes each. What a thousand hang on
	// keeps room for a thousand, and makes them wait for each other.
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// close takes s out and cancels what it has in flight.
func (s *Session) close() {
	in := s.core.leave(s)
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	if in {
		s.core.changed()
		s.present()
		if r := s.core.cfg.Hosted; r != nil {
			s.greeting.Lock()
			defer s.greeting.Unlock()
			r.Left(s.id)
		}
	}
}

// ready tells whoever hosts servers, once, that the client is there to stay.
func (s *Session) ready() {
	r := s.core.cfg.Hosted
	s.greeting.Lock()
	defer s.greeting.Unlock()
	s.mu.Lock()
	first := r != nil && !s.greeted && !s.closed
	s.greeted = true
	s.mu.Unlock()
	if first {
		r.Ready(s.id)
	}
}

// ID names the session among all there ever are.
func (s *Session) ID() string { return s.id }

// Attached reports whether the client is there, and has done more than to look
// whether this server runs.
func (s *Session) Attached() bool {
	s.core.mu.Lock()
	there := s.attached
	s.core.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	return there && s.active
}

// present says that there is news of the peer, if it ever was one.
func (s *Session) present() {
	if s.core.cfg.OnPeer == nil {
		return
	}
	s.mu.Lock()
	active := s.active
	s.mu.Unlock()
	if active {
		s.core.cfg.OnPeer(s)
	}
}

// Info describes the peer.
func (s *Session) Info() Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Info{
		Key: cmp.Or(s.bridge, s.id), ID: s.peer, Bridge: s.bridge, Client: s.info.Name, Version: s.info.Version, Era: s.version,
		Starter: s.starter, Front: s.front, Since: s.since, LastSeen: s.seen, InFlight: s.busy, Active: s.active,
	}
}

// silent reports whether the client has been quiet for so long that it has
// departed, and for so long that its session is forgotten.
func (s *Session) silent(now time.Time, idle time.Duration) (departed, forgotten bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.front != frontHTTP || s.streams > 0 || len(s.flight) > 0 {
		return false, false
	}
	departed = now.Sub(s.seen) >= silence
	if !s.shaken && s.version != "" { // no session to come back to
		return departed, departed
	}
	return departed, now.Sub(s.seen) >= idle
}

func (s *Session) shookHands() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shaken
}

func (s *Session) subscribed(uri string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.subs[uri]
}

// notify tells the client something it did not ask for, in order and without
// waiting for it.
func (s *Session) notify(line []byte) {
	s.mu.Lock()
	if s.notes = append(s.notes, line); len(s.notes) > mostNotes {
		s.notes = s.notes[1:]
	}
	s.sendNotesLocked()
	s.mu.Unlock()
}

// An outlet is a stream for what is told without being asked.
type outlet struct{ write func([]byte) error }

// attach makes out the stream for what is told without being asked, in the
// place of another until what it returns is called.
func (s *Session) attach(out func([]byte) error) (detach func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := &outlet{out}
	s.outs = append(s.outs, o)
	s.sendNotesLocked()
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.outs = slices.DeleteFunc(s.outs, func(x *outlet) bool { return x == o })
		s.sendNotesLocked()
	}
}

func (s *Session) sendNotesLocked() {
	if s.sending || s.closed || len(s.outs) == 0 || len(s.notes) == 0 {
		return
	}
	// spawn takes Core.mu, which is never held while a Session's is taken.
	s.sending = s.core.spawn(s.sendNotes)
}

func (s *Session) sendNotes() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.outs) > 0 && len(s.notes) > 0 {
		out, line := s.outs[len(s.outs)-1], s.notes[0]
		s.notes = s.notes[1:]
		if len(s.notes) == 0 {
			s.notes = nil
		}
		s.mu.Unlock()
		err := out.write(line)
		s.mu.Lock()
		if err != nil { // its reader finds it broken; another may not be
			s.outs = slices.DeleteFunc(s.outs, func(x *outlet) bool { return x == out })
		}
	}
	s.sending = false
}

// heard notes a sign of life, and what a request says about its client.
func (s *Session) heard(m frame.Message) {
	name := m.Name()
	var meta []byte
	if len(m.Params) > 0 {
		meta = frame.Get(m.Params, "_meta")
	}
	if s.noted(m, name, meta) {
		s.present()
	}
}

// noted reports whether others see the peer otherwise than before.
func (s *Session) noted(m frame.Message, name string, meta []byte) (news bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = time.Now()
	switch name {
	case "", "initialize", "ping", "server/discover":
	default:
		news = !s.active && m.IsRequest()
		s.active = s.active || news
	}
	if s.shaken || meta == nil {
		return news
	}
	if v, ok := frame.Text(frame.Get(meta, mcp.MetaKeyProtocolVersion)); ok {
		news = news || s.active && s.version != v
		s.version = v
		if info := frame.Get(meta, mcp.MetaKeyClientInfo); info != nil && s.info.Name == "" {
			s.info.Name, _ = frame.Text(frame.Get(info, "name"))
			s.info.Version, _ = frame.Text(frame.Get(info, "version"))
			news = news || s.active
		}
	}
	return news
}

// answered hands a response of the client to the question it belongs to. What
// nobody asked, or another server did, is dropped.
func (s *Session) answered(m frame.Message) {
	s.mu.Lock()
	ch := s.pending[string(m.ID)]
	delete(s.pending, string(m.ID))
	s.mu.Unlock()
	if ch != nil {
		m.Result, m.Error = clone(m.Result), clone(m.Error)
		ch <- m // one slot, one answer
	}
}

// notified takes a notification of the client. None reaches mcp-go, which
// answers some of them.
func (s *Session) notified(m frame.Message) {
	switch m.Name() {
	case "notifications/initialized":
		s.ready()
		return
	case "notifications/cancelled":
	default:
		return
	}
	id := frame.Get(m.Params, "requestId")
	s.mu.Lock()
	c := s.flight[string(id)]
	if c != nil {
		c.cancelled = true
	}
	s.mu.Unlock()
	if c != nil {
		c.cancel()
	}
}

// inputEnded ends the listens of a client that will say nothing more, and the
// questions it cannot answer: its calls are to be waited for, not those.
func (s *Session) inputEnded() {
	close(s.deaf)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.flight {
		if c.listen {
			c.cancel()
		}
	}
}

// begin puts the request m in flight: on the goroutine that read it, so that a
// cancellation on the next line finds it. m must not share memory with a
// reader's buffer.
func (s *Session) begin(ctx context.Context, m frame.Message, emit func([]byte) error) *call {
	s.heard(m)
	c := &call{Session: s, asked: m, emit: emit, level: mcp.LoggingLevelError, listen: m.Name() == "subscriptions/listen"}
	c.told.core, c.told.write = s.core, emit
	if said, ok := frame.Text(frame.Get(m.Params, "_meta", mcp.MetaKeyProtocolVersion)); ok {
		c.stateless = mcp.IsModernProtocol(said)
	}
	if c.stateless {
		s.ready()
	}
	c.ctx, c.cancel = context.WithCancel(ctx)
	c.key = string(m.ID)
	if s.front == frontHTTP && s.key != nil {
		// Without sessions an id belongs to its own request alone.
		c.key = fmt.Sprintf("%s#%p", c.key, c)
	}
	s.mu.Lock()
	if c.double = s.flight[c.key] != nil; !c.double {
		s.flight[c.key] = c
		if !c.listen {
			s.busy++
		}
	}
	s.mu.Unlock()
	if !c.double && !c.listen {
		s.core.count(1)
	}
	return c
}

// answerTo runs a request that was begun and answers it through write, which it
// does not call when the client took the request back.
//
// The id is free again before the answer is written, since the client may use
// it as soon as it has read that; but the request counts until it is written,
// or whoever waits for the last one to close would cut its answer off.
func (c *call) answerTo(write func(frame.Line) error) {
	s := c.Session
	if c.double {
		c.cancel()
		write(frame.Line{frame.Failure(c.asked.ID, frame.CodeInvalidRequest, "this id is already in flight", nil)}) // ignore error: a broken stream ends its session
		return
	}
	defer func() {
		s.mu.Lock()
		s.seen = time.Now()
		if !c.listen {
			s.busy--
		}
		s.mu.Unlock()
		if !c.listen {
			s.core.count(-1)
		}
	}()
	var reply frame.Line
	if c.may == nil || c.may() {
		done := c.record()
		reply = c.run()
		done(reply)
	}
	s.core.answered.Add(1)
	if len(c.asked.Raw) > largeMessage || reply.Size() > largeMessage {
		s.core.large.Store(true)
	}
	s.mu.Lock()
	delete(s.flight, c.key)
	switch {
	case c.cancelled, s.closed && s.control:
		// Taken back; or cut by the end of its link, which is no answer: the
		// bridge knows better what to do about that.
		reply = nil
	case s.closed && c.ctx.Err() != nil && len(reply) == 1 && frame.Get(reply[0], "error") != nil:
		// Who has no bridge is told the same as it would tell.
		reply = frame.Line{frame.Failure(c.asked.ID, frame.CodeInternal, "the server ended while it ran this request, which may or may not have taken effect", []byte(`{"code":"outcome_unknown"}`))}
	}
	s.mu.Unlock()
	c.cancel()
	if reply != nil {
		write(reply) // ignore error: a broken stream ends its session
	}
}

// record tells whoever records calls that this one begins. What it returns is to
// be called with the answer.
func (c *call) record() func(reply frame.Line) {
	rec := c.core.cfg.Calls
	if rec == nil || c.asked.Name() != "tools/call" {
		return func(frame.Line) {}
	}
	number, began := rec.Began(Request{c}), time.Now()
	return func(reply frame.Line) {
		took := time.Since(began)
		c.mu.Lock()
		cancelled, cut := c.cancelled, c.closed
		c.mu.Unlock()
		outcome := "ok"
		switch {
		case cancelled, c.front == frontHTTP && c.ctx.Err() != nil:
			outcome = "cancelled"
		case cut:
			outcome = "cut"
		case failed(reply):
			outcome = "failed"
		case wrong(reply):
			outcome = "error"
		}
		rec.Ended(number, Request{c}, outcome, took)
	}
}

// lookedThrough is how large an answer is read for what came of its call.
const lookedThrough = 64 << 10

// failed reports whether an answer is an error. A large one is none. Reading an
// answer costs more than all else that recording its call does, so what has the
// word nowhere is not read.
func failed(reply frame.Line) bool {
	return len(reply) == 1 && len(reply[0]) <= lookedThrough && bytes.Contains(reply[0], []byte(`"error"`)) && frame.Get(reply[0], "error") != nil
}

// wrong reports whether a result says of itself that it is an error. In a large
// one these bytes cannot be text, where the quotes would be escaped; that deeper
// down somebody else says so is put up with.
func wrong(reply frame.Line) bool {
	if reply.Size() > lookedThrough {
		return slices.ContainsFunc(reply, func(piece []byte) bool { return bytes.Contains(piece, []byte(`"isError":true`)) })
	}
	whole := reply.Bytes()
	return bytes.Contains(whole, []byte(`"isError"`)) && string(frame.Get(whole, "result", "isError")) == "true"
}

func clone(b []byte) []byte { return append([]byte(nil), b...) }
