package session

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"majordomus/bridge/frame"
)

const (
	sessionHeader  = "Mcp-Session-Id"
	protocolHeader = "Mcp-Protocol-Version"
)

// aliveEvery is how often a stream without words gets a comment. A peer that
// went without a word shows at a write, and what stands between the two, or a
// client's own patience with an answer that does not begin (5 minutes in Node),
// ends what is silent.
const aliveEvery = 15 * time.Second

type connKey struct{}

// ConnContext is for http.Server.ConnContext: clients of the era without
// sessions are told apart by their connections.
func (c *Core) ConnContext(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, conn)
}

// ConnState is for http.Server.ConnState: with its connection such a client is
// gone.
func (c *Core) ConnState(conn net.Conn, state http.ConnState) {
	if state != http.StateClosed && state != http.StateHijacked {
		return
	}
	c.mu.Lock()
	s := c.byPeer[conn]
	c.mu.Unlock()
	if s != nil {
		s.close()
	}
}

// Known reports whether r is of a client that is already in, judged from its
// headers. A server that has lost its lease goes on for those and no others.
func (c *Core) Known(r *http.Request) bool {
	if WantsLink(r) {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if id := r.Header.Get(sessionHeader); id != "" {
		return c.byID[id] != nil
	}
	return c.byPeer[peerKey(r)] != nil
}

func peerKey(r *http.Request) any {
	if b := r.Header.Get(BridgeHeader); b != "" {
		return b
	}
	return r.Context().Value(connKey{})
}

// Listens reports whether r opens a stream that lasts as long as its client
// likes, and carries no call: what may be cut without a loss.
func Listens(r *http.Request) bool {
	return r.Method == http.MethodGet && !WantsLink(r) || r.Header.Get(mcp.HeaderMethod) == "subscriptions/listen"
}

// ServeHTTP is /mcp behind the gate: Streamable HTTP in both eras, and links.
func (c *Core) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if WantsLink(r) {
		c.upgrade(w, r)
		return
	}
	stateless := mcp.IsModernProtocol(r.Header.Get(protocolHeader))
	switch {
	case r.Method == http.MethodPost:
		c.post(w, r)
	case stateless:
		w.Header().Set("Allow", "POST")
		refuse(w, &Refusal{http.StatusMethodNotAllowed, "method_not_allowed", "this protocol revision knows only POST"})
	case r.Method == http.MethodGet:
		if s := c.session(w, r); s != nil {
			c.get(w, r, s)
		}
	case r.Method == http.MethodDelete:
		if s := c.session(w, r); s != nil {
			s.close()
			w.WriteHeader(http.StatusOK)
		}
	default:
		w.Header().Set("Allow", "GET, POST, DELETE")
		refuse(w, &Refusal{http.StatusMethodNotAllowed, "method_not_allowed", r.Method + " means nothing here"})
	}
}

// session is the session r names; nil when it was refused.
func (c *Core) session(w http.ResponseWriter, r *http.Request) *Session {
	id := r.Header.Get(sessionHeader)
	if id == "" {
		refuse(w, &Refusal{http.StatusBadRequest, "session_required", "the header " + sessionHeader + " is missing; initialize gives one"})
		return nil
	}
	c.mu.Lock()
	s := c.byID[id]
	c.mu.Unlock()
	if s == nil {
		refuse(w, &Refusal{http.StatusNotFound, "session_not_found", "this server does not know that session; initialize again"})
	}
	return s
}

// get is the stream for what the client did not ask for. A second one takes
// the place of the first, which is silent until the second ends: no message is
// written to two.
func (c *Core) get(w http.ResponseWriter, r *http.Request, s *Session) {
	if !accepts(r, "text/event-stream") {
		refuse(w, &Refusal{http.StatusNotAcceptable, "not_acceptable", "this stream is text/event-stream"})
		return
	}
	st := newStream(w, c.cfg.WriteStall)
	defer st.end()
	if st.open() != nil {
		return // the client has gone
	}
	s.streaming(1)
	defer func() {
		if s.streaming(-1) == 0 {
			c.attach(s, false)
		}
	}()
	defer s.attach(st.emit)()
	alive := time.NewTicker(aliveEvery)
	defer alive.Stop()
	for {
		select {
		case <-r.Context().Done():
			return
		case <-s.ctx.Done():
			return
		case <-alive.C:
			if st.comment() != nil {
				return
			}
		}
	}
}

// streaming follows the number of the client's open requests, which it returns.
func (s *Session) streaming(by int) int {
	s.mu.Lock()
	s.streams += by
	n := s.streams
	s.seen = time.Now()
	s.mu.Unlock()
	if by > 0 {
		s.core.attach(s, true)
	}
	return n
}

func (c *Core) post(w http.ResponseWriter, r *http.Request) {
	if t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || t != "application/json" {
		refuse(w, &Refusal{http.StatusUnsupportedMediaType, "unsupported_media_type", "the body must be application/json"})
		return
	}
	if !accepts(r, "application/json") && !accepts(r, "text/event-stream") {
		refuse(w, &Refusal{http.StatusNotAcceptable, "not_acceptable", "answers are application/json or text/event-stream"})
		return
	}
	body, refusal := c.read(w, r)
	if refusal != nil {
		refuse(w, refusal)
		return
	}
	m, err := frame.Parse(body)
	var bad *frame.Error
	if errors.As(err, &bad) {
		reply(w, http.StatusBadRequest, frame.Failure(bad.ID, bad.Code, bad.Message, nil))
		return
	}
	header := r.Header.Get(protocolHeader)
	said, _ := frame.Text(frame.Get(m.Params, "_meta", mcp.MetaKeyProtocolVersion))
	switch {
	case mcp.IsModernProtocol(header) || mcp.IsModernProtocol(said):
		c.postStateless(w, r, m, header, said)
	case m.IsRequest() && m.Name() == "initialize":
		c.postInitialize(w, r, m)
	case header != "" && !mcp.IsValidProtocolVersion(header):
		reply(w, http.StatusBadRequest, frame.Failure(m.ID, frame.CodeInvalidRequest, "this server does not speak protocol version "+header, nil))
	default:
		s := c.session(w, r)
		switch {
		case s == nil:
		case m.IsRequest():
			// In the older era a lost connection does not take a call back.
			c.exchange(w, r, context.WithoutCancel(r.Context()), s, m, false)
		default:
			s.heard(m)
			c.attach(s, true)
			if m.IsResponse() {
				s.answered(m)
			} else {
				s.notified(m)
			}
			w.WriteHeader(http.StatusAccepted)
		}
	}
}

// read reads the body of r: within the size, within the time a sender gets,
// and on one line.
func (c *Core) read(w http.ResponseWriter, r *http.Request) ([]byte, *Refusal) {
	tooLarge := &Refusal{http.StatusRequestEntityTooLarge, "payload_too_large", fmt.Sprintf("a message may have at most %d bytes", c.cfg.MaxMessage)}
	if r.ContentLength > c.cfg.MaxMessage {
		return nil, tooLarge
	}
	rc := http.NewResponseController(w)
	rc.SetReadDeadline(time.Now().Add(c.cfg.ReadTimeout)) // ignore error: not every writer has one
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, c.cfg.MaxMessage))
	if err == nil { // else net/http goes on reading, to keep the connection
		rc.SetReadDeadline(time.Time{}) // ignore error: as above
	}
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, tooLarge
	case err != nil:
		return nil, &Refusal{http.StatusBadRequest, "invalid_json", "the body could not be read to its end"}
	}
	body = bytes.TrimPrefix(body, []byte("\xef\xbb\xbf"))
	if bytes.IndexByte(body, '\n') >= 0 || bytes.IndexByte(body, '\r') >= 0 {
		var line bytes.Buffer // keeps every string and number as it is
		if json.Compact(&line, body) == nil {
			body = line.Bytes()
		}
	}
	return body, nil
}

func (c *Core) postInitialize(w http.ResponseWriter, r *http.Request, m frame.Message) {
	s := c.newSession(frontHTTP, r.Header.Get(BridgeHeader))
	if err := c.enter(s, nil); err != nil {
		refuse(w, err)
		return
	}
	w.Header().Set(sessionHeader, s.id)
	c.exchange(w, r, context.WithoutCancel(r.Context()), s, m, false)
	if !s.shookHands() {
		s.close() // it was answered with an error
	}
}

// postStateless serves a request that carries all that it needs.
func (c *Core) postStateless(w http.ResponseWriter, r *http.Request, m frame.Message, header, said string) {
	bad := func(code int, text string) { reply(w, http.StatusBadRequest, frame.Failure(m.ID, code, text, nil)) }
	switch {
	case m.IsResponse():
		bad(frame.CodeInvalidRequest, "this protocol revision has no responses from clients")
		return
	case m.IsNotification():
		// Ending its connection is how a request is taken back here; an id
		// says nothing across connections.
		w.WriteHeader(http.StatusAccepted)
		return
	case header == "":
		bad(mcp.HEADER_MISMATCH, "the header "+protocolHeader+" is missing")
		return
	case said == "":
		bad(frame.CodeInvalidParams, "_meta lacks "+mcp.MetaKeyProtocolVersion)
		return
	case header != said:
		bad(mcp.HEADER_MISMATCH, "the header "+protocolHeader+" and _meta name different versions")
		return
	}
	if mcp.IsValidProtocolVersion(said) {
		if err := mcp.ValidateStandardHeaders(r.Header.Get, said, mcp.MCPMethod(m.Name()), m.Params); err != nil {
			bad(mcp.HEADER_MISMATCH, err.Error())
			return
		}
		if m.Name() == "tools/call" {
			name, _ := frame.Text(frame.Get(m.Params, "name"))
			if tool := c.cfg.MCP.GetTool(name); tool != nil {
				lookup := func(k string) (string, bool) {
					v := r.Header.Values(k)
					if len(v) == 0 {
						return "", false
					}
					return v[0], true
				}
				if err := mcp.ValidateParamHeadersLookup(lookup, &tool.Tool, m.Params); err != nil {
					bad(mcp.HEADER_MISMATCH, err.Error())
					return
				}
			}
		}
	}
	s, err := c.peer(r)
	if err != nil {
		refuse(w, err)
		return
	}
	ctx, stop := context.WithCancel(r.Context())
	defer context.AfterFunc(s.ctx, stop)()
	defer stop()
	c.exchange(w, r, ctx, s, m, true)
}

// peer is the client that r comes from, entered when it is new.
func (c *Core) peer(r *http.Request) (*Session, error) {
	key := peerKey(r)
	if key == nil {
		key = new(int) // no connection to know it by: a peer of one request
	}
	for {
		c.mu.Lock()
		s := c.byPeer[key]
		c.mu.Unlock()
		if s != nil {
			return s, nil
		}
		s = c.newSession(frontHTTP, r.Header.Get(BridgeHeader))
		err := c.enter(s, key)
		switch {
		case err == nil:
			return s, nil
		case err != errEntered: // by a request that came beside this one
			return nil, err
		}
		s.cancel()
	}
}

// exchange answers one request: as JSON, or as a stream once something else
// than the answer has been told, or the answer is long in coming.
func (c *Core) exchange(w http.ResponseWriter, r *http.Request, ctx context.Context, s *Session, m frame.Message, stateless bool) {
	st := newStream(w, c.cfg.WriteStall)
	defer st.end()
	if accepts(r, "text/event-stream") {
		defer st.keepAlive()()
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	s.streaming(1)
	defer s.streaming(-1)
	// Close waits for it: a handler is not to outlive what it works on.
	if !c.hold() {
		refuse(w, errClosed)
		return
	}
	defer c.wg.Done()
	answered := false
	s.begin(ctx, m, st.emit).answerTo(func(line frame.Line) error {
		answered = true
		status := http.StatusOK
		if stateless && len(line) == 1 { // else it is a result
			status = statelessStatus(frame.Get(line[0], "error", "code"))
		}
		return st.answer(status, line)
	})
	if !answered {
		// Taken back: an end without an answer, as the protocol has it.
		st.open() // ignore error: the client has gone
	}
}

func statelessStatus(code []byte) int {
	switch string(code) {
	case "-32601":
		return http.StatusNotFound
	case "-32602", "-32600", "-32700", "-32020", "-32021", "-32022":
		return http.StatusBadRequest
	}
	return http.StatusOK
}

// stream is the answer to one HTTP request, an event stream once opened.
type stream struct {
	w     http.ResponseWriter
	rc    *http.ResponseController
	stall time.Duration

	mu     sync.Mutex
	events bool
	ended  bool
}

func newStream(w http.ResponseWriter, stall time.Duration) *stream {
	return &stream{w: w, rc: http.NewResponseController(w), stall: stall}
}

func (s *stream) open() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writeLocked()
}

// emit writes one message as an event. It fails once the answer has ended.
func (s *stream) emit(b []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.eventLocked(b)
}

func (s *stream) eventLocked(line ...[]byte) error {
	return s.writeLocked(slices.Concat(frame.Line{[]byte("event: message\ndata: ")}, line, frame.Line{[]byte("\n\n")})...)
}

func (s *stream) comment() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writeLocked([]byte(": alive\n\n"))
}

// answer writes the last message: as the last event, or as the whole answer.
func (s *stream) answer(status int, line frame.Line) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.events {
		return s.eventLocked(line...)
	}
	if s.ended {
		return io.ErrClosedPipe
	}
	s.ended = true
	s.w.Header().Set("Content-Type", "application/json")
	s.w.WriteHeader(status)
	return s.piecesLocked(line)
}

func (s *stream) writeLocked(b ...[]byte) error {
	if s.ended {
		return io.ErrClosedPipe
	}
	if !s.events {
		s.events = true
		s.w.Header().Set("Content-Type", "text/event-stream")
		s.w.Header().Set("Cache-Control", "no-cache")
		s.w.WriteHeader(http.StatusOK)
	}
	return s.piecesLocked(b)
}

func (s *stream) piecesLocked(line frame.Line) error {
	defer s.rc.SetWriteDeadline(time.Time{}) // ignore error: not every writer has one
	for _, b := range line {
		if _, err := writePieces(s.w, b, s.rc.SetWriteDeadline, s.stall); err != nil {
			return err
		}
	}
	return s.rc.Flush()
}

// keepAlive makes the answer a stream when it is long in coming, and has a
// comment written now and then, until the function that it returns is called.
func (s *stream) keepAlive() (stop func()) {
	var t *time.Timer
	t = time.AfterFunc(time.Hour, func() {
		if s.comment() == nil {
			t.Reset(aliveEvery)
		}
	})
	t.Reset(aliveEvery) // only now is t there for it
	return func() { t.Stop() }
}

// end makes every later emit fail: after the handler has returned, nothing may
// be written.
func (s *stream) end() {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
}

// accepts reports whether r takes answers of the type; one that names none
// takes all.
func accepts(r *http.Request, want string) bool {
	values := r.Header.Values("Accept")
	if len(values) == 0 {
		return true
	}
	major, _, _ := strings.Cut(want, "/")
	for _, v := range values {
		for part := range strings.SplitSeq(v, ",") {
			t, _, _ := strings.Cut(strings.TrimSpace(part), ";")
			if t = strings.ToLower(strings.TrimSpace(t)); t == want || t == "*/*" || t == major+"/*" {
				return true
			}
		}
	}
	return false
}

func reply(w http.ResponseWriter, status int, b []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(b) // ignore error: the client has gone
}

// refuse answers with what the door says; err is a *Refusal.
func refuse(w http.ResponseWriter, err error) {
	var r *Refusal
	if !errors.As(err, &r) {
		r = &Refusal{http.StatusInternalServerError, "internal", "this request failed"}
	}
	b, _ := json.Marshal(map[string]any{"error": map[string]string{"code": r.Code, "message": r.Message}}) // ignore error: strings
	reply(w, r.Status, b)
}
