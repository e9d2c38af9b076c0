// Package session is one connected client of the server, whatever its era and
// front, and what it asks.
//
// There are two fronts: links (newline JSON-RPC on any stream, with control
// lines between a bridge and the server) and Streamable HTTP. Both feed the
// same Session, and both speak the revisions with a handshake and the one
// without. The router below them gives our own tools, resources and prompts to
// mcp-go, one request at a time and each through a throw-away call object:
// mcp-go never sees a session, because with one registered two listens
// overwrite each other's filter, ids pass through float64 and notifications
// share one bounded channel. What hosted servers offer goes to a Router as raw
// frames and comes back as raw bytes.
//
// Promised: an id is answered under the very bytes it was asked with, at most
// once, and never after it was cancelled; nothing that belongs to a call comes
// after its answer; one client's slow call, slow reading or leaving delays no
// other. Not promised: that a notification reaches a client that has no stream
// open; of those the newest few are kept for when it opens one.
package session

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"

	mcpserver "github.com/mark3labs/mcp-go/server"

	"majordomus/bridge/frame"
)

// A Refusal is why a new peer is not let in.
type Refusal struct {
	Status  int    // of HTTP
	Code    string // for programs
	Message string // for people
}

func (r *Refusal) Error() string { return r.Message }

// Config says how a Core works. MCP is required.
type Config struct {
	MCP *mcpserver.MCPServer

	// Generation goes into session ids and into the ids of questions to
	// clients, so that what another server handed out is unknown here.
	Generation string

	MaxMessage  int64         // bytes of one message on any leg; zero means frame.DefaultLimit
	SessionIdle time.Duration // when an HTTP session without request or stream is forgotten; zero means 30 minutes
	ReadTimeout time.Duration // for a request's body; zero means 30 s
	WriteStall  time.Duration // how long one write to a client may stand; zero means 30 s
	MaxSessions int           // links and sessions at once; zero means 4,000

	// Admit is asked when a new peer is already entered and before its first
	// answer; on an error it is taken out again and told. An *Refusal says
	// what is answered. Nil admits everybody.
	Admit func() error

	// AtOnce names the tools whose calls are answered without waiting for
	// anything and may run twice. They are run where they were read, which is
	// faster; a handler that is going to wait after all calls Yield first. Nil
	// names none.
	AtOnce func(tool string) bool

	// OnPeer is called when a client has become a peer, tells of itself what it
	// had not, or is one no more: look at it (Attached, Info), since the next
	// change may have come by then. It must not block.
	OnPeer func(*Session)

	Calls    Recorder      // nil: nobody wants to know
	Hosted   Router        // nil: no hosted servers
	Registry func() string // the fingerprint of what can be listed, for bridges
	OnChange func()        // the peers or the calls in flight have changed; must not block

	Log *slog.Logger // nil discards
}

// Core holds the sessions of one server.
type Core struct {
	cfg Config
	wg  sync.WaitGroup // links, calls and senders

	draining atomic.Bool // Leave was called
	large    atomic.Bool // a large message passed since TookMuch was asked

	answered atomic.Int64 // requests, since TookMuch said so
	looked   int64        // answered, when TookMuch was last asked

	rejoined atomic.Int64 // links of bridges that had one before

	ids   atomic.Int64 // ids handed to mcp-go
	asked atomic.Int64 // ids of questions to clients

	mu       sync.Mutex // never held while a Session's is taken, nor while anybody is told anything
	closed   bool
	sessions map[*Session]struct{}
	byID     map[string]*Session // HTTP sessions, by Mcp-Session-Id
	byPeer   map[any]*Session    // peers without sessions, by bridge or connection
	listens  map[*call]struct{}
	attached int           // sessions whose client is there
	inFlight int           // requests being answered, listens left out
	quiet    chan struct{} // closed and replaced when inFlight falls to zero
}

// New returns a Core without sessions.
func New(cfg Config) *Core {
	if cfg.MaxMessage <= 0 {
		cfg.MaxMessage = frame.DefaultLimit
	}
	if cfg.SessionIdle <= 0 {
		cfg.SessionIdle = 30 * time.Minute
	}
	if cfg.ReadTimeout <= 0 {
		cfg.ReadTimeout = 30 * time.Second
	}
	if cfg.WriteStall <= 0 {
		cfg.WriteStall = 30 * time.Second
	}
	if cfg.MaxSessions <= 0 {
		cfg.MaxSessions = 4000
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	c := &Core{
		cfg: cfg, sessions: map[*Session]struct{}{}, byID: map[string]*Session{}, byPeer: map[any]*Session{},
		listens: map[*call]struct{}{}, quiet: make(chan struct{}),
	}
	return c
}

// Run takes clients over HTTP for departed, and forgets their sessions, when
// they have given no sign of life for long enough, until ctx ends.
func (c *Core) Run(ctx context.Context) error {
	tick := time.NewTicker(max(min(c.cfg.SessionIdle/4, 15*time.Second), 10*time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		now := time.Now()
		for _, s := range c.all() {
			switch departed, forgotten := s.silent(now, c.cfg.SessionIdle); {
			case forgotten:
				s.close()
			case departed:
				c.attach(s, false)
			}
		}
	}
}

// errEntered is the only error of enter that is no *Refusal.
var errEntered = errors.New("a peer under this key is there already")

var (
	errClosed  = &Refusal{http.StatusServiceUnavailable, "draining", "this server is ending; ask again for the next one"}
	errTooMany = &Refusal{http.StatusTooManyRequests, "too_many_sessions", "this server has as many sessions as it can take"}
)

// enter puts s among the sessions and has it admitted. On an error it is out
// again, and the error is a *Refusal; errEntered when another is there under
// the same key.
func (c *Core) enter(s *Session, key any) error {
	c.mu.Lock()
	switch {
	case key != nil && c.byPeer[key] != nil:
		c.mu.Unlock()
		return errEntered
	case c.closed:
		c.mu.Unlock()
		return errClosed
	case len(c.sessions) >= c.cfg.MaxSessions:
		c.mu.Unlock()
		return errTooMany
	}
	s.peer = c.peerIDLocked(s)
	c.sessions[s] = struct{}{}
	s.attached = true
	c.attached++
	if key != nil {
		s.key = key
		c.byPeer[key] = s
	} else if s.front == frontHTTP {
		c.byID[s.id] = s
	}
	c.mu.Unlock()
	if c.cfg.Admit != nil {
		if err := c.cfg.Admit(); err != nil {
			s.close()
			var r *Refusal
			if !errors.As(err, &r) {
				r = &Refusal{http.StatusServiceUnavailable, "unavailable", err.Error()}
			}
			return r
		}
	}
	c.changed()
	return nil
}

// leave takes s out; it reports whether it was in.
func (c *Core) leave(s *Session) bool {
	c.mu.Lock()
	_, in := c.sessions[s]
	delete(c.sessions, s)
	if s.attached {
		s.attached = false
		c.attached--
	}
	if c.byID[s.id] == s {
		delete(c.byID, s.id)
	}
	if s.key != nil && c.byPeer[s.key] == s {
		delete(c.byPeer, s.key)
	}
	c.mu.Unlock()
	return in
}

// attach says whether the client of s is there. Its session outlives its going.
func (c *Core) attach(s *Session, there bool) {
	c.mu.Lock()
	_, in := c.sessions[s]
	changed := in && s.attached != there
	if changed {
		s.attached = there
		if there {
			c.attached++
		} else {
			c.attached--
		}
	}
	c.mu.Unlock()
	if changed {
		c.changed()
		s.present()
	}
}

func (c *Core) changed() {
	if c.cfg.OnChange != nil {
		c.cfg.OnChange()
	}
}

// count follows the number of requests being answered.
func (c *Core) count(by int) {
	c.mu.Lock()
	if c.inFlight += by; c.inFlight == 0 && by < 0 {
		close(c.quiet)
		c.quiet = make(chan struct{})
	}
	c.mu.Unlock()
	c.changed()
}

func (c *Core) all() []*Session {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := make([]*Session, 0, len(c.sessions))
	for s := range c.sessions {
		list = append(list, s)
	}
	return list
}

// A Recorder is told of the calls of tools, from the goroutines that run them.
// It must not block.
type Recorder interface {
	// Began is told of a call that runs from now on.
	Began(r Request) (number uint64)

	// Ended is told how the call of that number ended: ok, error (its result
	// says so), failed (it has none), cancelled (its client took it back) or
	// cut (its client has gone).
	Ended(number uint64, r Request, outcome string, took time.Duration)
}

// Info is what can be said of a peer.
type Info struct {
	Key      string    // names the client: the bridge's UUID, or else its session
	ID       string    // "p" and four characters; the same for a bridge on every server
	Bridge   string    // the bridge's UUID; "" for other clients
	Starter  string    // names the process that started the bridge; "" where it did not say
	Client   string    // as it named itself
	Version  string    // of the client
	Era      string    // the protocol revision; "" before it told
	Front    string    // link, stdio or http
	Since    time.Time // of the session
	LastSeen time.Time // when it last asked or told something
	InFlight int       // its requests being answered, listens left out
	Active   bool      // it has listed or called something, so it is no mere probe
}

// Peers returns the attached clients, the oldest first. A client over HTTP is
// attached while a request or stream of its is open, and for 90 s after its
// last one; when the stream for what it did not ask for breaks, it has gone at
// once.
func (c *Core) Peers() []Info {
	c.mu.Lock()
	there := make([]*Session, 0, c.attached)
	for s := range c.sessions {
		if s.attached {
			there = append(there, s)
		}
	}
	c.mu.Unlock()
	list := make([]Info, 0, len(there))
	for _, s := range there {
		list = append(list, s.Info())
	}
	slices.SortFunc(list, func(a, b Info) int {
		if d := a.Since.Compare(b.Since); d != 0 {
			return d
		}
		return strings.Compare(a.ID, b.ID)
	})
	return list
}

// Stats returns how many peers are attached and how many of their requests are
// being answered.
func (c *Core) Stats() (peers, inFlight int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.attached, c.inFlight
}

// Sessions returns how many sessions there are, of which MaxSessions bounds the
// number: those of clients that are not attached, but may come back, too.
func (c *Core) Sessions() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.sessions)
}

// Rejoined is how many links were of bridges that had lost or left another.
func (c *Core) Rejoined() int64 { return c.rejoined.Load() }

// Leave has bridges leave, and run nothing more here: what is still on its way
// is theirs to take to the next server. What is in flight goes on.
func (c *Core) Leave() {
	c.draining.Store(true)
	c.Tell("!draining")
}

// manyAnswered is how many requests leave more behind than they are worth: below
// the 4 MiB at which the runtime first collects, nothing is given back by itself.
const manyAnswered = 500

// TookMuch reports whether giving memory back is worth it: a large message has
// passed since it was asked last, or there were many requests and none since it
// was asked last. Only one may ask.
func (c *Core) TookMuch() bool {
	n := c.answered.Load()
	quiet := n == c.looked
	if c.looked = n; quiet && n >= manyAnswered {
		c.answered.Add(-n)
		c.looked = 0
		return true
	}
	return c.large.Swap(false)
}

// Tell sends a control line to every link.
func (c *Core) Tell(line string) {
	for _, s := range c.all() {
		if s.control {
			s.notify([]byte(line))
		}
	}
}

// ListChanged tells every client that a list has changed: tools, resources or
// prompts. Clients without sessions hear it on the listens that asked for it.
func (c *Core) ListChanged(kind string) {
	method := "notifications/" + kind + "/list_changed"
	for _, s := range c.all() {
		if s.shookHands() {
			s.notify(frame.Notification(method, nil))
		}
	}
	for _, l := range c.listening() {
		f, _ := l.SubscriptionFilter()
		if kind == "tools" && f.ToolsListChanged || kind == "prompts" && f.PromptsListChanged || kind == "resources" && f.ResourcesListChanged {
			l.tell(method, nil)
		}
	}
}

// Updated tells whoever subscribed to the resource that it has changed.
func (c *Core) Updated(uri string) { c.UpdatedFor("", uri) }

// UpdatedFor is Updated for what only one session can see; "" is all of them.
func (c *Core) UpdatedFor(session, uri string) {
	const method = "notifications/resources/updated"
	params := append(append([]byte(`{"uri":`), frame.Quote(uri)...), '}')
	for _, s := range c.all() {
		if (session == "" || s.id == session) && s.subscribed(uri) {
			s.notify(frame.Notification(method, params))
		}
	}
	for _, l := range c.listening() {
		if (session == "" || l.id == session) && l.IsSubscribedToResource(uri) {
			l.tell(method, params)
		}
	}
}

func (c *Core) listening() []*call {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := make([]*call, 0, len(c.listens))
	for l := range c.listens {
		list = append(list, l)
	}
	return list
}

// CloseIdle ends the sessions, links and streams that have nothing in flight.
func (c *Core) CloseIdle() {
	for _, s := range c.all() {
		if s.Info().InFlight == 0 {
			s.close()
		}
	}
}

// Drain waits until no request is being answered, or ctx ends.
func (c *Core) Drain(ctx context.Context) error {
	for {
		c.mu.Lock()
		n, quiet := c.inFlight, c.quiet
		c.mu.Unlock()
		if n == 0 {
			return nil
		}
		select {
		case <-quiet:
		case <-ctx.Done():
			return fmt.Errorf("waiting for %d calls: %w", n, context.Cause(ctx))
		}
	}
}

// Close ends every session and call and waits for all that the Core started.
// Nobody is let in afterwards.
func (c *Core) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	// First the sessions: a call that is cut while its session seems open would
	// be answered with that.
	for _, s := range c.all() {
		s.close()
	}
	c.wg.Wait()
}

// Compact gives back what a map keeps that had more entries once.
func (c *Core) Compact() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sessions, c.byID, c.byPeer = maps.Collect(maps.All(c.sessions)), maps.Collect(maps.All(c.byID)), maps.Collect(maps.All(c.byPeer))
}

// spawn runs f in a goroutine that Close waits for; false when closed.
func (c *Core) spawn(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.wg.Go(f)
	return true
}

// hold makes Close wait for a call of c.wg.Done; false when closed.
func (c *Core) hold() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.wg.Add(1)
	}
	return !c.closed
}

// shortID is how many characters of its bridge a peer is called by.
const shortID = 4

// peerIDLocked is the short name of a peer: the same wherever the bridge
// connects, unless another peer there has it already. Then it is longer, and
// the bridge is told, so that it keeps its name where it comes before that other.
func (c *Core) peerIDLocked(s *Session) string {
	// A bridge names itself, and nobody holds it to a UUID.
	hex := strings.Map(func(r rune) rune {
		if r = unicode.ToLower(r); r >= '0' && r <= '9' || r >= 'a' && r <= 'z' {
			return r
		}
		return -1
	}, s.bridge[:min(len(s.bridge), 64)])
	if len(hex) < 4 {
		hex = strings.ToLower(rand.Text())
	}
	taken := func(id string) bool {
		for other := range c.sessions {
			if other.peer == id && (s.bridge == "" || other.bridge != s.bridge) {
				return true
			}
		}
		return false
	}
	if c := s.called; len(c) > 4 && strings.HasPrefix("p"+hex, c) && !taken(c) {
		return c
	}
	n := shortID
	for n < len(hex) && taken("p"+hex[:n]) {
		n++
	}
	return "p" + hex[:n]
}

// CallerFrom returns the peer whose request ctx belongs to, in a tool handler
// or hook of mcp-go.
func CallerFrom(ctx context.Context) (Info, bool) {
	c, ok := mcpserver.ClientSessionFromContext(ctx).(*call)
	if !ok {
		return Info{}, false
	}
	return c.Session.Info(), true
}

// Yield has the next lines of the client read while the caller waits. The
// handler of a tool that Config.AtOnce names calls it, from the goroutine it was
// called on, before it waits for anything; nothing happens in any other.
func Yield(ctx context.Context) {
	if c, ok := mcpserver.ClientSessionFromContext(ctx).(*call); ok {
		c.yieldOnce()
	}
}

func (c *call) yieldOnce() {
	if c.yield != nil {
		c.yield()
		c.yield = nil
	}
}

// Fail is how a handler answers with a JSON-RPC error code of its choice;
// mcp-go makes every error of a handler -32603. The handler returns the error.
func Fail(ctx context.Context, code int, message string, data []byte) error {
	if c, ok := mcpserver.ClientSessionFromContext(ctx).(*call); ok {
		c.mu.Lock()
		c.fail = &failure{code, message, data}
		c.mu.Unlock()
	}
	return errors.New(message)
}

// Structured has the result of the tool call that ctx belongs to carry content as
// its structured content: JSON of one line, which goes out as it is. What mcp-go
// is given it reads again for every call.
func Structured(ctx context.Context, content []byte) {
	if c, ok := mcpserver.ClientSessionFromContext(ctx).(*call); ok {
		c.mu.Lock()
		c.structured = content
		c.mu.Unlock()
	}
}

type failure struct {
	code    int
	message string
	data    []byte
}

// Progress tells the client of the request that ctx belongs to how far it is,
// if it asked to be told, and returns when that is written.
func Progress(ctx context.Context, progress, total float64, message string) error {
	c, ok := mcpserver.ClientSessionFromContext(ctx).(*call)
	if !ok {
		return nil
	}
	token := frame.Get(c.asked.Params, "_meta", "progressToken")
	if token == nil {
		return nil
	}
	p := fmt.Appendf(nil, `{"progressToken":%s,"progress":%v`, token, progress)
	if total > 0 {
		p = fmt.Appendf(p, `,"total":%v`, total)
	}
	if message != "" {
		p = append(append(p, `,"message":`...), frame.Quote(message)...)
	}
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	return c.emit(frame.Notification("notifications/progress", append(p, '}')))
}
