package hub

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"majordomus/bridge/frame"
	"majordomus/server/hub/child"
	"majordomus/server/session"
)

const (
	startTimeout = 90 * time.Second // for a server's answer to initialize and its first lists
	usualIdle    = 10 * time.Minute // how long a server outlives its last call
	firstPause   = time.Second      // before it is started again
	longestPause = 5 * time.Minute
	steady       = 30 * time.Second // having lived so long, it is no crash loop
	mostCalls    = 256              // in flight in one server
)

// The states of an instance, as people are told.
const (
	stateStopped  = "stopped"
	stateStarting = "starting"
	stateReady    = "ready"
	stateFailed   = "failed" // and not to be started again before retryAt
)

// instance is one process of a hosted server: the one that everybody shares, or
// that of one client.
type instance struct {
	up    *upstream
	owner string // the session it belongs to; "" for everybody's
	log   *slog.Logger

	ctx    context.Context // its lifetime; ended by end
	cancel context.CancelCauseFunc

	mu       sync.Mutex
	state    string
	started  chan struct{} // closed when the start that goes on has ended
	began    time.Time     // when that was
	awaited  string        // what the server has not done yet of it
	conn     hosted
	noted    chan struct{} // closed when the end of conn has been noted
	child    *child.Child  // nil where it is not ours to run
	caps     []byte        // what it says that it can
	failure  error         // why the last start or life ended
	failures int           // in a row
	retryAt  time.Time
	over     bool // it is not to be started any more

	active  map[*use]struct{}
	alone   bool          // it has asked something: from then on it gets one client's calls at a time
	changed chan struct{} // closed and replaced when a use ends
	idle    *time.Timer
}

// A use is one request that it answers.
type use struct {
	r      session.Request // guarded by the instance's mu
	run    *run            // of a stateless client's; nil for others
	parked bool            // it waits for its client to come back with an answer; guarded likewise
}

func (u *upstream) newInstance(owner string) *instance {
	in := &instance{
		up: u, owner: owner, log: u.hub.log.With("upstream", u.server.Name), state: stateStopped,
		active: map[*use]struct{}{}, changed: make(chan struct{}),
	}
	in.ctx, in.cancel = context.WithCancelCause(u.hub.ctx)
	return in
}

// A Failure is why a hosted server could not be used.
type Failure struct {
	Server string
	Code   string // upstream_failed, upstream_busy or upstream_gone
	Err    error
}

func (f *Failure) Error() string { return fmt.Sprintf("the hosted server %q %v", f.Server, f.Err) }
func (f *Failure) Unwrap() error { return f.Err }

func (in *instance) fail(code, format string, args ...any) error {
	return &Failure{in.up.server.Name, code, fmt.Errorf(format, args...)}
}

// enter lets a request in, when its turn has come.
func (in *instance) enter(r session.Request) (*use, error) {
	for {
		in.mu.Lock()
		switch {
		case in.over:
			in.mu.Unlock()
			return nil, in.fail("upstream_gone", "is hosted no more")
		case len(in.active) >= mostCalls:
			in.mu.Unlock()
			return nil, in.fail("upstream_busy", "has %d calls in flight, which is as many as it gets", mostCalls)
		case !in.alone || in.mayJoinLocked(r):
			u := &use{r: r}
			if r.Stateless() {
				u.run = &run{use: u, in: in, asks: make(chan *question), done: make(chan struct{})}
			}
			in.active[u] = struct{}{}
			in.up.calls.Add(1)
			if in.idle != nil {
				in.idle.Stop()
			}
			in.mu.Unlock()
			return u, nil
		}
		if err := in.awaitUnlock(r.Context()); err != nil {
			return nil, err
		}
	}
}

// awaitUnlock frees mu and waits until something changes in who is active.
func (in *instance) awaitUnlock(ctx context.Context) error {
	changed := in.changed
	in.mu.Unlock()
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// ringLocked tells those who wait for that.
func (in *instance) ringLocked() {
	close(in.changed)
	in.changed = make(chan struct{})
}

// stoppedLocked notes that no session is there, and that nothing failed.
func (in *instance) stoppedLocked() {
	in.conn, in.child = nil, nil
	in.standLocked(stateStopped, nil)
}

// standLocked notes how it stands, and tells.
func (in *instance) standLocked(state string, because error) {
	if in.state == state {
		return
	}
	in.state = state
	if told := in.up.hub.cfg.Stands; told != nil {
		told(in.up.server.Name, state, because)
	}
}

// mayJoinLocked reports whether it would still be certain, with r in flight as
// well, whom a question is for: which client in the era with a handshake, and
// in the other, where the question becomes the answer to a call, which call.
func (in *instance) mayJoinLocked(r session.Request) bool {
	for u := range in.active {
		if !u.parked && (u.r.Session() != r.Session() || u.run != nil || r.Stateless()) {
			return false
		}
	}
	return true
}

func (in *instance) leave(u *use, failed bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	delete(in.active, u)
	if failed {
		in.up.errs.Add(1)
	}
	in.ringLocked()
	in.restLocked()
}

// restLocked has an idle server ended.
func (in *instance) restLocked() {
	if len(in.active) > 0 || in.state != stateReady {
		return
	}
	after := in.up.server.Idle
	if after <= 0 {
		after = usualIdle
	}
	if in.idle == nil {
		in.idle = time.AfterFunc(after, func() { in.up.hub.spawn(in.endIdle) })
	} else {
		in.idle.Reset(after)
	}
}

func (in *instance) endIdle() {
	watched := len(in.watched()) > 0 // then its word is waited for
	in.mu.Lock()
	c := in.conn
	if len(in.active) > 0 || in.state != stateReady || watched {
		in.restLocked()
		in.mu.Unlock()
		return
	}
	in.stoppedLocked()
	in.mu.Unlock()
	in.log.Info("ending a hosted server that nobody uses")
	c.stop(in.up.hub.ctx)
}

// ready returns a session with the server, started if need be.
func (in *instance) ready(ctx context.Context) (hosted, error) {
	for {
		in.mu.Lock()
		switch {
		case in.over:
			in.mu.Unlock()
			return nil, in.fail("upstream_gone", "is hosted no more")
		case in.state == stateReady:
			c := in.conn
			in.mu.Unlock()
			return c, nil
		case in.state == stateFailed && time.Now().Before(in.retryAt):
			err := in.fail("upstream_failed", "failed: %w; it is started again on the first call after %s", in.failure, in.retryAt.Format(time.TimeOnly))
			in.mu.Unlock()
			return nil, err
		case !in.startLocked():
			in.mu.Unlock()
			return nil, in.fail("upstream_gone", "is not started: this server is ending")
		}
		started := in.started
		in.mu.Unlock()
		select {
		case <-started:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		in.mu.Lock()
		failed := in.state == stateFailed
		err := in.failure
		in.mu.Unlock()
		if failed {
			return nil, in.fail("upstream_failed", "could not be started: %w", err)
		}
	}
}

// startLocked has it started, if it is not and may be; false when the Hub is
// closed.
func (in *instance) startLocked() bool {
	if in.over || in.state == stateStarting || in.state == stateReady || in.state == stateFailed && time.Now().Before(in.retryAt) {
		return true
	}
	before := in.started
	in.started = make(chan struct{})
	if !in.up.hub.spawn(in.start) {
		in.started = before
		return false
	}
	in.began, in.awaited = time.Now(), "answered initialize"
	in.standLocked(stateStarting, nil)
	in.up.starts.Add(1)
	return true
}

// start starts the process, shakes hands, and has it watched.
func (in *instance) start() {
	began := time.Now()
	ctx, cancel := context.WithTimeoutCause(in.ctx, startTimeout, fmt.Errorf("it did not answer within %v", startTimeout))
	defer cancel()
	c, ch, caps, err := in.launch(ctx)
	in.mu.Lock()
	defer func() {
		close(in.started)
		in.mu.Unlock()
	}()
	switch {
	case err == nil && !in.over:
	case err == nil:
		in.mu.Unlock()
		c.stop(in.up.hub.ctx)
		in.mu.Lock()
		in.standLocked(stateStopped, nil)
		return
	case in.over:
		in.standLocked(stateStopped, nil)
		return
	default:
		in.failedLocked(err, 0)
		return
	}
	in.conn, in.child, in.caps = c, ch, caps
	in.standLocked(stateReady, nil)
	pid := 0
	if ch != nil {
		pid = ch.PID()
	}
	in.log.Info("a hosted server is up", "after", time.Since(began).Round(time.Millisecond), "pid", pid)
	in.restLocked()
	noted := make(chan struct{})
	in.noted = noted
	in.up.hub.spawn(func() { in.watch(c, time.Now(), noted) })
	in.up.hub.spawn(in.remember)
}

// failedLocked notes the end of a start or a life that lasted so long.
func (in *instance) failedLocked(err error, lived time.Duration) {
	if lived > steady {
		in.failures = 0
	}
	in.failures++
	pause := in.pauseLocked()
	in.conn, in.child, in.failure, in.retryAt = nil, nil, err, time.Now().Add(pause)
	in.standLocked(stateFailed, err)
	in.log.Warn("a hosted server has failed", "because", err, "in a row", in.failures, "next start after", pause.Round(time.Millisecond))
	in.backLocked(pause)
}

// pauseLocked grows with the failures in a row.
func (in *instance) pauseLocked() time.Duration {
	pause := min(longestPause, firstPause<<min(in.failures-1, 20))
	return pause + rand.N(pause/4+1)
}

// backLocked has it started again after a pause if somebody watches something
// there: who waits for its word makes no call that would do it.
func (in *instance) backLocked(pause time.Duration) {
	back := func() {
		if len(in.watched()) > 0 {
			in.warm()
		}
	}
	time.AfterFunc(pause, func() { in.up.hub.spawn(back) })
}

// open starts the server's process, or makes ready to call on the server.
func (in *instance) open() (hosted, *child.Child, error) {
	h := in.up.hub
	e, env, err := h.cfg.Resolve(in.up.server)
	if err != nil {
		return nil, nil, err
	}
	if e.Command == "" {
		return newRemote(e, env, h.cfg.Version, h.cfg.MaxMessage, in, in.log), nil, nil
	}
	stderr, err := h.cfg.OpenLog(LogName(in.up.server.Name))
	if err != nil {
		return nil, nil, err
	}
	ch, err := child.Start(child.Spec{
		Name: e.Name, Argv: append([]string{e.Command}, e.Args...), Dir: e.Cwd, Env: env, Records: h.cfg.Records, Stderr: stderr,
	})
	if err != nil {
		stderr.Close() // ignore error: nothing was written
		return nil, nil, err
	}
	h.spawn(func() {
		<-ch.Done()
		ch.Stop(h.ctx) // until its last words are written, and those of its group
		stderr.Close() // ignore error: nothing more is written
	})
	return newConn(ch, h.cfg.MaxMessage, in), ch, nil
}

// ourName is what we are called in handshakes, on both sides.
const ourName = "majordomus"

var errOurselves = errors.New("it is a majordomus, and hosting ourselves would lead round in a circle: take it out of the servers file, and host there and here what it hosts")

// launch is a start, up to the first catalogue.
func (in *instance) launch(ctx context.Context) (c hosted, ch *child.Child, caps []byte, err error) {
	h := in.up.hub
	c, ch, err = in.open()
	if err != nil {
		return nil, nil, nil, err
	}
	defer func() {
		if err == nil {
			return
		}
		c.stop(h.ctx)
		if ch == nil {
			return
		}
		if ended := ch.Err(); ended != nil && ctx.Err() == nil {
			err = fmt.Errorf("%w; it ended: %w", err, ended)
		}
		if tail := h.cfg.LogTail(LogName(in.up.server.Name)); tail != "" {
			err = fmt.Errorf("%w; its last words: %s", err, tail)
		}
	}()
	m, err := c.call(ctx, "initialize", fmt.Appendf(nil,
		`{"protocolVersion":"2025-11-25","capabilities":{"roots":{},"sampling":{},"elicitation":{}},"clientInfo":{"name":%q,"version":%s}}`,
		ourName, frame.Quote(h.cfg.Version)), nil)
	if err != nil {
		return c, ch, nil, err
	}
	if m.Error != nil {
		return c, ch, nil, fmt.Errorf("it answered initialize with an error: %s", brief(m.Error))
	}
	if textAt(m.Result, "serverInfo", "name") == ourName {
		// Before it is told that we are there to stay: it would start what it
		// hosts, and that may be the server that we are. Two checkouts that host
		// each other show it nowhere else.
		return c, ch, nil, errOurselves
	}
	caps = frame.Get(m.Result, "capabilities")
	c.tell(ctx, "notifications/initialized", nil)
	in.mu.Lock()
	in.awaited = "listed what it offers"
	in.mu.Unlock()
	all, err := fetch(ctx, c, caps)
	if err != nil {
		return c, ch, nil, err
	}
	in.up.learned(all)
	return c, ch, caps, nil
}

// watch waits for an end that nobody brought about.
func (in *instance) watch(c hosted, since time.Time, noted chan<- struct{}) {
	err := c.wait()
	in.mu.Lock()
	switch lived := time.Since(since); {
	case in.conn != c || in.over:
	case errors.Is(err, errForgotten) && lived > steady:
		in.failures = 0
		in.stoppedLocked()
		in.startLocked()
	case errors.Is(err, errForgotten): // it may do so each time
		in.failures++
		in.stoppedLocked()
		in.backLocked(in.pauseLocked())
	default:
		in.failedLocked(err, lived)
	}
	in.mu.Unlock()
	close(noted)
	c.stop(in.up.hub.ctx)
}

// renew is ready for who found that the server has forgotten the session c, or
// has ended.
func (in *instance) renew(ctx context.Context, c hosted, why error) (hosted, error) {
	in.mu.Lock()
	noted := in.noted
	if in.conn != c {
		noted = nil
	} else if errors.Is(why, errForgotten) {
		in.stoppedLocked()
		noted = nil
	}
	in.mu.Unlock()
	if noted != nil { // its end decides when it may be started again
		select {
		case <-noted:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-in.ctx.Done():
		}
	}
	return in.ready(ctx)
}

// end ends it for good.
func (in *instance) end(ctx context.Context) {
	in.mu.Lock()
	in.over = true
	in.cancel(errors.New("it is hosted no more"))
	c := in.conn
	starting := in.started
	if in.state != stateStarting {
		in.stoppedLocked()
		starting = nil
	}
	if in.idle != nil {
		in.idle.Stop()
	}
	in.ringLocked()
	in.mu.Unlock()
	if c != nil {
		c.stop(ctx)
	}
	if starting != nil {
		<-starting // which cancel has brought to its end
	}
}

type useKey struct{}

// mark has calls in the hosted server that are made in ctx belong to u.
func (u *use) mark(ctx context.Context) context.Context { return context.WithValue(ctx, useKey{}, u) }

// client is whom the server means by what it says in ctx. It may have said it in
// the answer to a call. Else it is the only one that has a call in flight: in the
// older era what a server says of itself names no call, so only then it is
// certain.
func (in *instance) client(ctx context.Context) (r session.Request, u *use, certain bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if u, _ := ctx.Value(useKey{}).(*use); u != nil {
		_, active := in.active[u]
		return u.r, u, active
	}
	for other := range in.active {
		if other.parked {
			continue // it has asked, and asks nothing more before it is answered
		}
		if u != nil && (u.r.Session() != other.r.Session() || u.run != nil || other.run != nil) {
			return session.Request{}, nil, false
		}
		u = other
	}
	if u == nil {
		return session.Request{}, nil, false
	}
	return u.r, u, true
}

// asked answers a question of the server's.
func (in *instance) asked(ctx context.Context, m frame.Message) []byte {
	no := func(code int, text string) []byte { return frame.Failure(m.ID, code, text, nil) }
	switch m.Name() {
	case "ping":
		return frame.Result(m.ID, []byte("{}"))
	case "roots/list":
		root := in.up.hub.cfg.Root
		return frame.Result(m.ID, append(append([]byte(`{"roots":[{"uri":`), frame.Quote(fileURI(root))...),
			append(append([]byte(`,"name":`), frame.Quote(filepath.Base(root))...), "}]}"...)...))
	case "sampling/createMessage", "elicitation/create":
	default:
		return no(frame.CodeMethodNotFound, "this client does not answer "+m.Name())
	}
	r, u, certain := in.client(ctx)
	if ctx.Value(useKey{}) == nil {
		in.mu.Lock()
		in.alone = true
		in.mu.Unlock()
	}
	if !certain {
		return no(frame.CodeInternal, "it is not certain which client is meant: ask during a call, of one client at a time")
	}
	if !r.Able(m.Name()) {
		return no(frame.CodeMethodNotFound, "the client did not declare that it answers "+m.Name())
	}
	if u.run != nil {
		answer, err := in.askStateless(u, m)
		if err != nil {
			return no(frame.CodeInternal, err.Error())
		}
		return frame.Result(m.ID, answer)
	}
	ask, cancel := in.whileAsked(ctx, r)
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	answer, err := r.Ask(ask, m.Name(), m.Params)
	if err != nil {
		return no(frame.CodeInternal, err.Error())
	}
	return passedOn(m.ID, answer).Bytes()
}

// whileAsked is how long a question to r's client stands: as long as the call
// that it came up in, or where that is not known as long as the client has any
// in flight, since r is only one of these.
func (in *instance) whileAsked(ctx context.Context, r session.Request) (context.Context, context.CancelFunc) {
	if ctx.Value(useKey{}) != nil {
		return context.WithCancel(r.Context())
	}
	ask, cancel := context.WithCancel(in.ctx)
	go func() { // ends with ask at the latest, and that with the call
		defer cancel()
		for {
			in.mu.Lock()
			changed, there := in.changed, false
			for u := range in.active {
				there = there || u.r.Session() == r.Session()
			}
			in.mu.Unlock()
			if !there {
				return
			}
			select {
			case <-changed:
			case <-ask.Done():
				return
			}
		}
	}()
	return ask, cancel
}

// told is told what the server says by itself.
func (in *instance) told(ctx context.Context, m frame.Message) {
	h := in.up.hub
	switch name := m.Name(); name {
	case "notifications/message":
		level := textAt(m.Params, "level")
		if r, _, certain := in.client(ctx); certain && !r.Stateless() {
			if r.Wants(level) {
				r.Tell(m.Raw)
			}
			return
		}
		in.log.Info("a hosted server says", "level", level, "data", brief(frame.Get(m.Params, "data")))
	case "notifications/resources/updated":
		uri, ok := frame.Text(frame.Get(m.Params, "uri"))
		if ok && (in.owner != "" || !in.up.own()) { // or nobody asked it
			h.cfg.Updated(in.owner, uri)
		}
	default:
		for i, k := range kinds {
			if name == "notifications/"+k.capability+"/list_changed" {
				in.relistSoon(i)
			}
		}
	}
}

// relist reads one list anew.
func (in *instance) relist(kind int) {
	ctx, cancel := context.WithTimeout(in.up.hub.ctx, startTimeout)
	defer cancel()
	in.mu.Lock()
	starting := in.started
	if in.state != stateStarting {
		starting = nil
	}
	in.mu.Unlock()
	if starting != nil {
		select {
		case <-starting: // it may have been listed before it changed
		case <-ctx.Done():
		}
	}
	in.mu.Lock()
	c, caps := in.conn, in.caps
	in.mu.Unlock()
	if c == nil {
		return // it is started for who asks, and lists everything then
	}
	list, err := fetchKind(ctx, c, caps, kind)
	if err != nil {
		in.log.Warn("a hosted server says that its list has changed, and does not list it", "err", err)
		return
	}
	in.up.learnedKind(kind, list)
}

func textAt(value []byte, path ...string) string {
	s, _ := frame.Text(frame.Get(value, path...))
	return s
}

func fileURI(path string) string {
	path = filepath.ToSlash(path)
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	return (&url.URL{Scheme: "file", Path: path}).String()
}
