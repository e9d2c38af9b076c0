// Package hub hosts other MCP servers, once for every client of a checkout.
//
// What a hosted server offers passes byte for byte but for the name, and so do
// its answers: raw messages go around mcp-go, whose types lose what they do not
// know. Ids and progress tokens are made anew on the way to a hosted server and
// put back on the way from it, so that equal ones of two clients never meet.
//
// Promised: one process for each hosted server and checkout, or one session where
// it is reached over HTTP, or one for each client where the entry says so; that a
// slow, hostile or dead hosted server delays nobody but its own callers; that
// lists are served at once from what was kept of the last time; that over HTTP
// too nothing is sent twice that may have run. Not promised: that what an older
// server asks or says by itself reaches a client when several have calls in
// flight there: such messages name no call, but for those in the answer to a call
// over HTTP.
package hub

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"majordomus/bridge/frame"
	"majordomus/lease/checkout"
	"majordomus/server/hub/child"
	"majordomus/server/hub/config"
	"majordomus/server/session"
)

// Config says what a Hub hosts and where. Root, Updated and Changed are required.
type Config struct {
	Root    string // the checkout's folder: what hosted servers work in
	Version string // ours, for their handshake

	// Entries is asked what to host, again and again: an error says why nothing
	// may be hosted, a file that cannot be read or is not trusted, and is
	// reported by Findings.
	Entries func() (*config.File, error)

	// Resolve makes an entry ready to be started: variables replaced, and the
	// environment of its process. It is asked at each start.
	Resolve func(config.Server) (config.Server, []string, error)

	OpenLog func(name string) (io.WriteCloser, error) // for a server's standard error, by a plain file name
	LogTail func(name string) string                  // its last words; nil: none
	Records string                                    // folder for the records of process groups; "" keeps none
	Keep    string                                    // folder for catalogues; "" keeps none

	Changed func(kind string)         // a list has changed: tools, prompts or resources; must not block
	Updated func(session, uri string) // a resource has changed, of one session's own server or for all (""); must not block

	// Stands is told when a hosted server's process is in another state, and
	// because of what it failed; must not block. Nil tells nobody.
	Stands func(name, state string, because error)

	MaxMessage int64
	Log        *slog.Logger
}

// Hub is a session.Router for the servers that it hosts.
type Hub struct {
	cfg    Config
	log    *slog.Logger
	store  store
	ctx    context.Context // the lifetime of all that is hosted; ended by Close
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	digest   string // of the entries in use
	trouble  error  // why there are none
	problems []config.Problem
	ups      map[string]*upstream
	present  map[string]bool // clients that are there to stay
	routes   *routes
	calls    map[string]int // in flight, by client
	waiting  waitingRuns
	watches  watches
}

// upstream is one entry of the servers file.
type upstream struct {
	hub    *Hub
	server config.Server
	stale  stale

	starts, calls, errs atomic.Int64 // since the Hub began

	keeping sync.Mutex // one writes what is kept at a time, and the last one the latest

	mu        sync.Mutex
	catalogue catalogue
	known     chan struct{} // closed once there is a catalogue
	instances map[string]*instance
	ended     bool
}

// New returns a Hub that hosts nothing yet.
func New(cfg Config) *Hub {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.LogTail == nil {
		cfg.LogTail = func(string) string { return "" }
	}
	h := &Hub{cfg: cfg, log: cfg.Log, store: store{cfg.Keep}, ups: map[string]*upstream{}, present: map[string]bool{}, calls: map[string]int{}, routes: newRoutes(), waiting: waitingRuns{runs: map[string]*run{}}}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	return h
}

// spawn runs f in a goroutine that Close waits for; false when closed.
func (h *Hub) spawn(f func()) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	h.wg.Go(f)
	return true
}

// upstreams returns the entries there are at the moment.
func (h *Hub) upstreams() []*upstream {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Values(h.ups))
}

// Close ends every hosted server, within ctx, and waits for all that the Hub
// started.
func (h *Hub) Close(ctx context.Context) {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	ups := h.upstreams()
	var wg sync.WaitGroup
	for _, u := range ups {
		wg.Go(func() { u.end(ctx) })
	}
	wg.Wait()
	h.cancel()
	h.wg.Wait()
}

// Sweep ends what a Hub left whose process was killed, and returns the names.
func (h *Hub) Sweep() []string {
	if h.cfg.Records == "" {
		return nil
	}
	return child.Sweep(h.cfg.Records, h.log)
}

// Look reads the entries and follows what changed in them: what is new, gone or
// different, and nothing else.
func (h *Hub) Look() {
	file, err := h.cfg.Entries()
	h.mu.Lock()
	if h.closed || err == nil && h.trouble == nil && file.Digest == h.digest && h.digest != "" {
		h.mu.Unlock()
		return
	}
	if checkout.Momentary(err) {
		h.trouble = err // what is hosted has not gone from a file that cannot be read for the moment
		h.mu.Unlock()
		return
	}
	var entries []config.Server
	h.trouble, h.digest, h.problems = err, "", nil
	if err == nil {
		entries, h.digest, h.problems = file.Servers, file.Digest, file.Problems
	}
	wanted := map[string]config.Server{}
	for _, e := range entries {
		wanted[e.Name] = e
	}
	var gone []*upstream
	for name, u := range h.ups {
		if e, ok := wanted[name]; !ok || !e.Equal(u.server) {
			gone = append(gone, u)
			delete(h.ups, name)
		} else {
			delete(wanted, name)
		}
	}
	clients := len(h.present) > 0
	var fresh []*upstream
	for name, e := range wanted {
		u := h.newUpstream(e)
		h.ups[name] = u
		fresh = append(fresh, u)
	}
	h.mu.Unlock()
	for _, u := range gone {
		h.spawn(func() { u.end(h.ctx) })
	}
	if len(gone)+len(fresh) > 0 {
		h.reroute()
	}
	if clients {
		for _, u := range fresh {
			u.warm()
		}
	}
}

func (h *Hub) newUpstream(e config.Server) *upstream {
	u := &upstream{hub: h, server: e, known: make(chan struct{}), instances: map[string]*instance{}}
	if kept, ok := h.store.load(e.Name, e.Key()); ok {
		u.catalogue = kept
		close(u.known)
	}
	return u
}

// warm starts a server before it is called, so that it is up when it is.
func (u *upstream) warm() {
	if !u.own() || !u.isKnown() {
		u.instance("").warm()
		return
	}
	// There is one for each client: when it calls, or for what it watches.
	for client := range u.watched() {
		u.instance(client).warm()
	}
}

func (in *instance) warm() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.startLocked()
}

// own reports whether each client has a process of its own.
func (u *upstream) own() bool { return u.server.Share == config.ShareSession }

// has reports whether there is something to ask for the client.
func (u *upstream) has(client string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return !u.own() || u.instances[client] != nil
}

func (u *upstream) isKnown() bool {
	select {
	case <-u.known:
		return true
	default:
		return false
	}
}

// instance is the process that a client's calls go to.
func (u *upstream) instance(client string) *instance {
	if !u.own() {
		client = ""
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	in := u.instances[client]
	if in == nil {
		in = u.newInstance(client)
		in.over = u.ended
		u.instances[client] = in
	}
	return in
}

// all returns the instances there are at the moment.
func (u *upstream) all() []*instance {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Collect(maps.Values(u.instances))
}

// end ends its processes for good.
func (u *upstream) end(ctx context.Context) {
	u.mu.Lock()
	u.ended = true
	u.mu.Unlock()
	var wg sync.WaitGroup
	for _, in := range u.all() {
		wg.Go(func() { in.end(ctx) })
	}
	wg.Wait()
}

// learned takes a whole catalogue.
func (u *upstream) learned(all catalogue) {
	u.mu.Lock()
	u.catalogue = all
	u.mu.Unlock()
	u.hub.reroute()
	u.mu.Lock()
	if !u.isKnown() {
		close(u.known) // now whoever waits for it finds it in the routes
	}
	u.mu.Unlock()
	u.keep()
}

// keep writes the catalogue where the next server finds it.
func (u *upstream) keep() {
	u.keeping.Lock()
	defer u.keeping.Unlock()
	u.hub.mu.Lock()
	current := u.hub.ups[u.server.Name] == u
	u.hub.mu.Unlock()
	if !current {
		return // what came in its place keeps its own
	}
	u.mu.Lock()
	all := u.catalogue
	u.mu.Unlock()
	if err := u.hub.store.save(u.server.Name, u.server.Key(), all); err != nil {
		u.hub.log.Warn("a catalogue is not kept", "err", err)
	}
}

// learnedKind takes one list, and tells of it when it is another.
func (u *upstream) learnedKind(kind int, list []entry) {
	u.mu.Lock()
	before := u.catalogue
	u.catalogue[kind] = list
	same := u.catalogue.equal(before, kind)
	u.mu.Unlock()
	if same {
		return
	}
	u.hub.reroute()
	u.keep()
}

// afterLists is how long the start of servers waits whose lists are known: a
// client asks for these right after its handshake, and would share the processor
// with all that is being started.
const afterLists = 100 * time.Millisecond

// Ready is session.Router's.
func (h *Hub) Ready(client string) {
	h.mu.Lock()
	h.present[client] = true
	h.mu.Unlock()
	var later []*upstream
	for _, u := range h.upstreams() {
		if u.isKnown() {
			later = append(later, u)
		} else {
			u.warm()
		}
	}
	if len(later) == 0 {
		return
	}
	h.spawn(func() {
		select {
		case <-time.After(afterLists):
		case <-h.ctx.Done():
			return
		}
		for _, u := range later {
			u.warm()
		}
	})
}

// Left is session.Router's.
func (h *Hub) Left(client string) {
	h.mu.Lock()
	delete(h.present, client)
	h.mu.Unlock()
	for _, uri := range h.watches.leave(client) {
		if u := h.current().resource(uri); u != nil && !u.own() {
			h.tellUpstream(u, "", "resources/unsubscribe", uri)
		}
	}
	for _, u := range h.upstreams() {
		u.mu.Lock()
		in := u.instances[client]
		delete(u.instances, client)
		u.mu.Unlock()
		if in != nil {
			h.spawn(func() { in.end(h.ctx) })
		}
	}
}

// Compact gives back what is kept for clients of whom there were more once.
func (h *Hub) Compact() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.present, h.calls = maps.Collect(maps.All(h.present)), maps.Collect(maps.All(h.calls))
}

// LogName is the name of the log of what a hosted server writes to its standard
// error.
func LogName(server string) string {
	plain := strings.Map(plainRune, server)
	if plain != server || len(plain) > maxName {
		plain = hashed(plain, server)
	}
	return "upstream-" + plain + ".log"
}

// firstLists is how long a list waits for servers of which nothing is known.
const firstLists = 2 * time.Second

// List is session.Router's.
func (h *Hub) List(r session.Request, kind string) [][]byte {
	ctx, cancel := context.WithTimeout(r.Context(), firstLists)
	defer cancel()
	h.learn(ctx, r, func(*upstream) bool { return true })
	routes := h.current()
	for i, k := range kinds {
		if k.member == kind {
			return routes.lists[i]
		}
	}
	return nil
}

func (h *Hub) current() *routes {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.routes
}

// learn starts those servers of which nothing is known yet, and waits until it
// is or they have failed. It reports whether there were any.
func (h *Hub) learn(ctx context.Context, r session.Request, which func(*upstream) bool) bool {
	h.mu.Lock()
	var unknown []*upstream
	for _, u := range h.ups {
		if !u.isKnown() && which(u) {
			unknown = append(unknown, u)
		}
	}
	h.mu.Unlock()
	if len(unknown) == 0 {
		return false
	}
	r.Yield()
	for _, u := range unknown {
		u.warm()
	}
	for _, u := range unknown {
		select {
		case <-u.known:
		case <-u.failed():
		case <-ctx.Done():
		}
	}
	return true
}

// failed is closed when no start goes on.
func (u *upstream) failed() <-chan struct{} {
	in := u.instance("")
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.state == stateStarting {
		return in.started
	}
	done := make(chan struct{})
	close(done)
	return done
}

// Route is session.Router's.
func (h *Hub) Route(r session.Request) (frame.Line, bool) {
	if answer, handled := h.watching(r); handled {
		return answer, true
	}
	u, params := h.locate(r)
	if u == nil {
		return nil, false
	}
	return h.forward(r, u, params), true
}

// locate finds the server that answers r, and what it is asked there.
func (h *Hub) locate(r session.Request) (*upstream, []byte) {
	if u, params := h.current().find(r.Message()); u != nil {
		return u, params
	}
	// A client may know a name from before, from another server, or from
	// an answer that came with the word that a list has changed.
	which := mayOffer(r.Message())
	if which == nil {
		return nil, nil
	}
	h.refresh(r, which)
	h.learn(r.Context(), r, which)
	return h.current().find(r.Message())
}

// forward has the request answered by a hosted server.
func (h *Hub) forward(r session.Request, u *upstream, params []byte) frame.Line {
	r.Yield()
	m := r.Message()
	var result frame.Line
	got, resumed, err := h.resume(r)
	if resumed {
		result = h.answer(r, got)
	} else {
		result, err = h.ask(r, u, m.Name(), params)
	}
	var failed *Failure
	switch {
	case err == nil:
		return result
	case errors.As(err, &failed):
		return frame.Line{frame.Failure(m.ID, frame.CodeInternal, err.Error(), fmt.Appendf(nil, `{"code":%q}`, failed.Code))}
	}
	return frame.Line{frame.Failure(m.ID, frame.CodeInternal, err.Error(), nil)}
}

// mostOfOne is how many calls of one client may be in flight in all hosted
// servers together: half of what one server takes, so that there is room for
// others.
const mostOfOne = mostCalls / 2

// count follows the calls of a client; false when that would be too many.
func (h *Hub) count(client string, by int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if by > 0 && h.calls[client] >= mostOfOne {
		return false
	}
	if h.calls[client] += by; h.calls[client] == 0 {
		delete(h.calls, client)
	}
	return true
}

func (h *Hub) ask(r session.Request, u *upstream, method string, params []byte) (answer frame.Line, err error) {
	in := u.instance(r.Session())
	if !h.count(r.Session(), 1) {
		return nil, in.fail("too_many_calls", "is not called: this client has %d calls in flight in hosted servers, which is as many as it gets", mostOfOne)
	}
	defer h.count(r.Session(), -1)
	one, err := in.enter(r)
	if err != nil {
		return nil, err
	}
	failed := true
	if one.run != nil {
		return h.askStateless(r, one, method, params)
	}
	defer func() { in.leave(one, failed) }()
	m, err := in.call(one.mark(r.Context()), r, method, params)
	if err != nil {
		return nil, err
	}
	failed = m.Error != nil
	return h.answer(r, m), nil
}

// call is one call in the hosted server, which is started if need be, with
// progress for the client of r.
func (in *instance) call(ctx context.Context, r session.Request, method string, params []byte) (frame.Message, error) {
	if t := in.up.server.Timeout; t > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, t, in.fail("upstream_timeout", "did not answer within %v", t))
		defer cancel()
	}
	c, err := in.ready(ctx)
	if err != nil {
		return frame.Message{}, in.cut(ctx, err, "")
	}
	var p *progress
	if token := frame.Get(params, "_meta", "progressToken"); token != nil {
		p = &progress{r: r, token: token}
	}
	m, err := c.call(ctx, method, plain(method, params), p.callback())
	var not *unrun
	if errors.As(err, &not) && (errors.Is(err, errForgotten) || errors.Is(err, errDead)) {
		if c, err = in.renew(ctx, c, err); err != nil {
			p.flush()
			return m, in.cut(ctx, err, "")
		}
		m, err = c.call(ctx, method, plain(method, params), p.callback())
	}
	p.flush()
	var f *Failure
	switch {
	case err == nil, errors.As(err, &f):
	case errors.As(err, &not):
		err = in.fail("upstream_failed", "failed: %w", err)
	case ctx.Err() != nil:
		err = in.cut(ctx, err, ", and what it did with this request is not known")
	default:
		err = in.fail("upstream_failed", "failed: %w, and what it did with this request is not known", err)
	}
	return m, err
}

// cut is why a call came to nothing whose ctx has ended: where that is because
// the instance does, a failure that says so, and what is known of the call.
func (in *instance) cut(ctx context.Context, err error, known string) error {
	var f *Failure
	if ctx.Err() == nil || in.ctx.Err() == nil || errors.As(err, &f) {
		return err
	}
	return in.fail("upstream_gone", "is hosted no more%s", known)
}

// askStateless is ask for a client that cannot be asked back: its call may
// outlast its request.
func (h *Hub) askStateless(r session.Request, one *use, method string, params []byte) (frame.Line, error) {
	x, in := one.run, one.run.in
	ctx, cancel := context.WithCancelCause(one.mark(in.ctx))
	x.cancel = cancel
	work := func() {
		defer close(x.done)
		defer cancel(nil)
		defer func() { in.leave(one, x.err != nil || x.answer.Error != nil) }()
		x.answer, x.err = in.call(ctx, r, method, params)
	}
	if !h.spawn(work) {
		in.leave(one, true)
		return nil, in.fail("upstream_gone", "is not started: this server is ending")
	}
	m, err := h.follow(r, x)
	if err != nil {
		return nil, err
	}
	return h.answer(r, m), nil
}

// answer is what r is answered with.
func (h *Hub) answer(r session.Request, m frame.Message) frame.Line {
	if m.Error == nil && r.Stateless() {
		return frame.Answer(r.Message().ID, completed(m.Result, r.Message().Name())...)
	}
	return passedOn(r.Message().ID, m)
}

// completed is a result as the era without sessions has it, with what it lacks
// behind its own members: it says that it is one and, of a resource, how long and
// for whom it holds. What says itself what it is knows that era.
func completed(result []byte, method string) frame.Line {
	lacks := [][2]string{{"resultType", `"complete"`}}
	if method == "resources/read" {
		lacks = append(lacks, [][2]string{{"ttlMs", "0"}, {"cacheScope", `"private"`}}...)
	}
	comma := ""
	err := frame.Members(result, func(key string, _ []byte) bool {
		comma = ","
		lacks = slices.DeleteFunc(lacks, func(lack [2]string) bool { return lack[0] == key })
		return true
	})
	if err != nil || len(lacks) == 0 || lacks[0][0] != "resultType" {
		return frame.Line{result}
	}
	var more []byte
	for _, lack := range lacks {
		more = fmt.Appendf(more, "%s%q:%s", comma, lack[0], lack[1])
		comma = ","
	}
	end := len(result) - 1 // of an object: the bracket
	return frame.Line{result[:end], more, result[end:]}
}

// passedOn is the answer m, a result or an error, under another id.
func passedOn(id []byte, m frame.Message) frame.Line {
	if m.Error == nil {
		return frame.Answer(id, m.Result)
	}
	return frame.Line{append(append(append(append([]byte(`{"jsonrpc":"2.0","id":`), id...), `,"error":`...), m.Error...), '}')}
}

// plain is params without what the era without sessions says in each request: a
// server that shook hands has been told. Nor is a call of a tool made a task,
// whose result nobody could get: where tasks are not offered, the protocol has a
// call that asks for one run like any other.
func plain(method string, params []byte) []byte {
	if method == "tools/call" {
		params = frame.Drop(params, func(key string) bool { return key == "task" })
	}
	meta := frame.Get(params, "_meta")
	kept := frame.Drop(meta, func(key string) bool { return strings.HasPrefix(key, "io.modelcontextprotocol/") })
	switch {
	case len(kept) == len(meta):
		return params
	case len(bytes.Trim(kept, "{} \t\r\n")) == 0:
		return frame.Drop(params, func(key string) bool { return key == "_meta" })
	}
	return frame.Set(params, "_meta", kept)
}
