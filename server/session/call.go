package session

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"

	"github.com/mark3labs/mcp-go/mcp"
	mcpserver "github.com/mark3labs/mcp-go/server"

	"majordomus/bridge/frame"
)

// call is one request. It is what mcp-go takes for a client's session: made
// for the request, thrown away after it, so that whatever mcp-go keeps by
// session it keeps for one request only.
type call struct {
	*Session
	asked  frame.Message
	listen bool
	ctx    context.Context // the request's; ended by cancel
	cancel context.CancelFunc
	emit   func([]byte) error // writes to the request's own stream

	// stateless: the request brings its client's identity, capabilities and
	// log level itself. They are kept here, because another request of the
	// same client, or a handshake on the same link, may have said otherwise.
	stateless bool

	key    string      // in Session.flight
	double bool        // its id was in flight already
	may    func() bool // waits for the word to run; nil when none is needed
	yield  func()      // has the client's next lines read while this one waits; nil when they are, or once called
	told   told        // on a listen

	// Guarded by Session.mu.
	info       mcp.Implementation     // of a stateless request
	caps       mcp.ClientCapabilities // likewise
	level      mcp.LoggingLevel       // likewise
	cancelled  bool                   // by the client: it gets no answer
	fail       *failure
	structured []byte // of a tool's result, encoded; see Structured
	filter     *mcp.SubscriptionFilter
	uris       map[string]bool // a listen's own resources

	once sync.Once
	ch   chan mcp.JSONRPCNotification
	stop chan struct{}
	gone chan struct{}
}

var (
	_ mcpserver.SessionWithLogging               = (*call)(nil)
	_ mcpserver.SessionWithClientInfo            = (*call)(nil)
	_ mcpserver.SessionWithElicitation           = (*call)(nil)
	_ mcpserver.SessionWithSampling              = (*call)(nil)
	_ mcpserver.SessionWithRoots                 = (*call)(nil)
	_ mcpserver.SessionWithResourceSubscriptions = (*call)(nil)
	_ mcpserver.SessionWithSubscriptionFilter    = (*call)(nil)
	_ mcpserver.SessionWithProtocolVersion       = (*call)(nil)
)

// run returns the answer to the request, when all that belongs before it is
// written.
func (c *call) run() (reply frame.Line) {
	defer func() {
		if r := recover(); r != nil {
			c.core.cfg.Log.Error("a request's handler panicked", "method", c.asked.Name(), "panic", r, "stack", string(debug.Stack()))
			reply = frame.Line{frame.Failure(c.asked.ID, frame.CodeInternal, "the handler of this request failed", nil)}
		}
		c.flush()
		if c.listen {
			c.core.mu.Lock()
			delete(c.core.listens, c)
			c.core.mu.Unlock()
			c.told.finish()
		}
	}()
	if r := c.core.cfg.Hosted; r != nil {
		if answer, handled := r.Route(Request{c}); handled {
			return answer
		}
	}
	if c.listen {
		c.uris = map[string]bool{}
	}
	m := c.core.cfg.MCP
	return frame.Line{c.answer(m.HandleMessage(m.WithContext(c.ctx, c), c.rebuilt()))}
}

// rebuilt is the request as mcp-go gets it: under a number of ours, because it
// reads ids through float64 and lets 1 and "1" collide, and with just the
// members it should see, because it takes "ID" for "id".
func (c *call) rebuilt() []byte {
	b := make([]byte, 0, len(c.asked.Params)+len(c.asked.Method)+64)
	b = fmt.Appendf(b, `{"jsonrpc":"2.0","id":%d,"method":%s`, c.core.ids.Add(1), c.asked.Method)
	if c.asked.Params != nil {
		b = append(append(b, `,"params":`...), c.asked.Params...)
	}
	return append(b, '}')
}

// lists are the methods whose results hosted servers add to, and the member.
var lists = map[string]string{
	"tools/list": "tools", "prompts/list": "prompts", "resources/list": "resources", "resources/templates/list": "resourceTemplates",
}

// answer is mcp-go's answer under the client's own id.
func (c *call) answer(resp mcp.JSONRPCMessage) []byte {
	id := c.asked.ID
	switch r := resp.(type) {
	case mcp.JSONRPCResponse:
		if l, ok := r.Result.(mcp.SubscriptionsListenResult); ok {
			l.EnsureResultMeta().SetSubscriptionID(0) // a place for it
			r.Result = l
		}
		result, err := encode(r.Result)
		if err != nil {
			return frame.Failure(id, frame.CodeInternal, "the result could not be encoded: "+err.Error(), nil)
		}
		if _, ok := r.Result.(mcp.SubscriptionsListenResult); ok {
			result = setIn(result, id, "_meta", mcp.MetaKeySubscriptionID)
		}
		c.mu.Lock()
		structured := c.structured
		c.mu.Unlock()
		if structured != nil {
			result = frame.Set(result, "structuredContent", structured)
		}
		if kind := lists[c.asked.Name()]; kind != "" && c.core.cfg.Hosted != nil {
			result = frame.AppendTo(result, kind, c.core.cfg.Hosted.List(Request{c}, kind))
		}
		if c.asked.Name() == "initialize" {
			c.mu.Lock()
			c.shaken = true
			c.mu.Unlock()
			c.present() // it may have come back under another name
		}
		return frame.Result(id, result)
	case mcp.JSONRPCError:
		c.mu.Lock()
		f := c.fail
		c.mu.Unlock()
		if f != nil {
			return frame.Failure(id, f.code, f.message, f.data)
		}
		var data []byte
		if r.Error.Data != nil {
			b, err := encode(r.Error.Data)
			if err == nil {
				data = b
			}
		}
		if code := r.Error.Code; data == nil && c.asked.Name() == "resources/read" && (code == mcp.RESOURCE_NOT_FOUND || code == mcp.INVALID_PARAMS) {
			// The protocol wants the resource named; mcp-go names it in the message only.
			uri := frame.Get(c.asked.Params, "uri")
			if _, ok := frame.Text(uri); ok {
				data = slices.Concat([]byte(`{"uri":`), uri, []byte("}"))
			}
		}
		return frame.Failure(id, r.Error.Code, r.Error.Message, data)
	}
	return frame.Failure(id, frame.CodeInternal, fmt.Sprintf("no answer to this request: %T", resp), nil)
}

// encode leaves < > & as they are: ids and tokens of clients are among it.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// NotificationChannel is where mcp-go puts what a handler tells. It never
// waits when the channel is full, so a handler of ours uses Progress.
func (c *call) NotificationChannel() chan<- mcp.JSONRPCNotification {
	c.once.Do(func() {
		c.ch, c.stop, c.gone = make(chan mcp.JSONRPCNotification, 256), make(chan struct{}), make(chan struct{})
		go func() { // waited for in flush
			defer close(c.gone)
			for {
				select {
				case n := <-c.ch:
					c.note(n)
				case <-c.stop:
					for {
						select {
						case n := <-c.ch:
							c.note(n)
						default:
							return
						}
					}
				}
			}
		}()
	})
	return c.ch
}

// flush writes what the handler told before its answer is.
func (c *call) flush() {
	c.once.Do(func() {})
	if c.stop != nil {
		close(c.stop)
		<-c.gone
	}
}

// note writes one notification with the client's own bytes for what names the
// request.
func (c *call) note(n mcp.JSONRPCNotification) {
	b, err := encode(n)
	if err != nil {
		c.core.cfg.Log.Warn("a notification could not be encoded", "method", n.Method, "err", err)
		return
	}
	// Into the bytes, because mcp-go escapes what it encodes itself.
	if _, ok := n.Params.Meta[mcp.MetaKeySubscriptionID]; ok {
		b = setIn(b, c.asked.ID, "params", "_meta", mcp.MetaKeySubscriptionID)
	}
	if n.Method == "notifications/progress" {
		if t := frame.Get(c.asked.Params, "_meta", "progressToken"); t != nil {
			b = setIn(b, t, "params", "progressToken")
		}
	}
	c.emit(b) // ignore error: a broken stream ends its session
	if n.Method == mcp.MethodNotificationSubscriptionsAcknowledged {
		c.told.start()
		if h := c.core.cfg.Hosted; h != nil {
			h.Listening(Request{c})
		}
	}
}

// setIn replaces what stands at path in an object that has its first steps.
func setIn(object, value []byte, path ...string) []byte {
	if len(path) > 1 {
		inner := frame.Get(object, path[0])
		if inner == nil {
			return object
		}
		value = setIn(inner, value, path[1:]...)
	}
	return frame.Set(object, path[0], value)
}

// told is what waits to be written on one listen: in order, by one sender at a
// time, after the acknowledgement and before the answer. Only the newest wait;
// all of them say "look again".
type told struct {
	core  *Core
	write func([]byte) error

	mu       sync.Mutex
	begun    bool
	finished bool
	queue    [][]byte
	sender   chan struct{} // closed when the sender at work has ended; nil without one
}

func (t *told) add(line []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.queue = append(t.queue, line); len(t.queue) > mostNotes {
		t.queue = t.queue[1:]
	}
	t.sendLocked()
}

func (t *told) start() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.begun = true
	t.sendLocked()
}

// finish drops what waits, and returns when nothing is being written.
func (t *told) finish() {
	t.mu.Lock()
	t.finished, t.queue = true, nil
	sender := t.sender
	t.mu.Unlock()
	if sender != nil {
		<-sender
	}
}

func (t *told) sendLocked() {
	if !t.begun || t.finished || t.sender != nil || len(t.queue) == 0 {
		return
	}
	done := make(chan struct{})
	if t.core.spawn(func() { t.send(done) }) {
		t.sender = done
	}
}

func (t *told) send(done chan struct{}) {
	defer close(done)
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.queue) > 0 {
		line := t.queue[0]
		t.queue = t.queue[1:]
		t.mu.Unlock()
		t.write(line) // ignore error: a broken stream ends its session
		t.mu.Lock()
	}
	t.queue, t.sender = nil, nil
}

// tell writes a notification on a listen, tagged as its. The writing is done
// by a goroutine of the Core's: a client that reads slowly delays nobody.
func (c *call) tell(method string, params []byte) {
	if params == nil {
		params = []byte("{}")
	}
	meta := fmt.Appendf(nil, `{"%s":%s}`, mcp.MetaKeySubscriptionID, c.asked.ID)
	line := frame.Notification(method, frame.Set(params, "_meta", meta))
	c.told.add(line)
}

// Initialize and what follows to ProtocolVersion is what mcp-go asks of a
// client's session.
func (s *Session) Initialize()       {}
func (s *Session) Initialized() bool { return true }
func (s *Session) SessionID() string { return s.id }

func (c *call) SetLogLevel(l mcp.LoggingLevel) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stateless {
		c.level = l
	} else {
		c.Session.level, c.leveled = l, true
	}
}

func (c *call) GetLogLevel() mcp.LoggingLevel {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stateless {
		return c.level
	}
	return c.Session.level
}

func (c *call) SetClientInfo(i mcp.Implementation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stateless {
		c.info = i
	} else {
		c.Session.info = i
	}
}

func (c *call) GetClientInfo() mcp.Implementation {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stateless {
		return c.info
	}
	return c.Session.info
}

func (c *call) SetClientCapabilities(caps mcp.ClientCapabilities) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stateless {
		c.caps = caps
	} else {
		c.Session.caps = caps
	}
}

func (c *call) GetClientCapabilities() mcp.ClientCapabilities {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stateless {
		return c.caps
	}
	return c.Session.caps
}

func (c *call) SetProtocolVersion(v string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.stateless { // its session's is set when it is heard
		c.version = v
	}
}

func (c *call) ProtocolVersion() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stateless {
		v, _ := frame.Text(frame.Get(c.asked.Params, "_meta", mcp.MetaKeyProtocolVersion))
		return v
	}
	return c.version
}

// SetSubscriptionFilter makes the call a listen, or ends it being one. Each
// keeps a filter of its own: two of one client do not overwrite each other.
func (c *call) SetSubscriptionFilter(f mcp.SubscriptionFilter) {
	c.mu.Lock()
	if c.filter = &f; f.IsEmpty() {
		c.filter = nil
	}
	on := c.filter != nil
	c.mu.Unlock()
	c.core.mu.Lock()
	if on {
		c.core.listens[c] = struct{}{}
	} else {
		delete(c.core.listens, c)
	}
	c.core.mu.Unlock()
}

func (c *call) SubscriptionFilter() (mcp.SubscriptionFilter, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.filter == nil {
		return mcp.SubscriptionFilter{}, true
	}
	return *c.filter, true
}

func (c *call) resourcesLocked() map[string]bool {
	if c.uris != nil {
		return c.uris
	}
	return c.subs
}

func (c *call) SubscribeToResource(uri string) {
	c.mu.Lock()
	c.resourcesLocked()[uri] = true
	c.mu.Unlock()
}

func (c *call) UnsubscribeFromResource(uri string) {
	c.mu.Lock()
	delete(c.resourcesLocked(), uri)
	c.mu.Unlock()
}

func (c *call) SubscribedResources() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []string
	for uri := range c.resourcesLocked() {
		list = append(list, uri)
	}
	return list
}

func (c *call) IsSubscribedToResource(uri string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.resourcesLocked()[uri]
}

// ask asks the client and waits for its answer, however long a person takes.
// When ctx ends first the client is told that nobody waits any more.
func (c *call) ask(ctx context.Context, method string, params []byte) (frame.Message, error) {
	id := fmt.Sprintf(`"mj-%s-%d"`, c.core.cfg.Generation, c.core.asked.Add(1))
	ch := make(chan frame.Message, 1)
	c.mu.Lock()
	c.pending[id] = ch
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.pending, id)
		c.mu.Unlock()
	}()
	c.yieldOnce() // the answer is among the lines to be read
	if err := c.emit(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"method":%q,"params":%s}`, id, method, params)); err != nil {
		return frame.Message{}, fmt.Errorf("asking the client %s: %w", method, err)
	}
	select {
	case <-c.deaf:
		return frame.Message{}, errors.New("the client ended its input before it answered " + method)
	case m := <-ch:
		return m, nil
	case <-ctx.Done():
		c.emit(frame.Notification("notifications/cancelled", []byte(`{"requestId":`+id+`}`))) // ignore error: nothing more to tell
		return frame.Message{}, context.Cause(ctx)
	}
}

func ask[T any](ctx context.Context, c *call, able bool, method string, params any) (*T, error) {
	if !able { // mcp-go does not look
		return nil, errors.New("the client did not declare that it answers " + method)
	}
	p, err := encode(params)
	if err != nil {
		return nil, fmt.Errorf("encoding %s: %w", method, err)
	}
	m, err := c.ask(ctx, method, p)
	if err != nil {
		return nil, err
	}
	if len(m.Error) > 0 {
		text, _ := frame.Text(frame.Get(m.Error, "message"))
		return nil, fmt.Errorf("the client answered %s with an error: %s", method, text)
	}
	r := new(T)
	if err := json.Unmarshal(m.Result, r); err != nil {
		return nil, fmt.Errorf("decoding the client's answer to %s: %w", method, err)
	}
	return r, nil
}

func (c *call) RequestElicitation(ctx context.Context, r mcp.ElicitationRequest) (*mcp.ElicitationResult, error) {
	return ask[mcp.ElicitationResult](ctx, c, c.GetClientCapabilities().Elicitation != nil, "elicitation/create", r.Params)
}

func (c *call) RequestSampling(ctx context.Context, r mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
	return ask[mcp.CreateMessageResult](ctx, c, c.GetClientCapabilities().Sampling != nil, "sampling/createMessage", r.CreateMessageParams)
}

func (c *call) ListRoots(ctx context.Context, r mcp.ListRootsRequest) (*mcp.ListRootsResult, error) {
	return ask[mcp.ListRootsResult](ctx, c, c.GetClientCapabilities().Roots != nil, "roots/list", map[string]any{})
}
