// Package bridge joins an editor's standard streams to a checkout's server.
//
// A bridge is a wire with a memory. It asks the server once for a link, a
// stream of newline JSON-RPC in both directions, and passes lines between it
// and the client as they were written. What a server has to know about its
// client it remembers, so that when that server dies, hangs, or asks to be
// left, the next one is told before anything else is sent and the client never
// notices.
//
// The promise: every request id that was not cancelled is answered exactly
// once, whatever dies. A request is sent again when the server did not say that
// it was about to run it, or when running it twice does no harm: reads, lists,
// and calls of tools whose own declaration, seen in a list that passed through,
// says read-only or idempotent. Any other call that a dead server had taken is
// answered with an error whose data.code is "outcome_unknown". Nothing but
// JSON-RPC is ever written to the client, and no search for a server, however
// it fails, is silent or spins.
//
// Its limits: what a server has written may never come. A kernel forgets what
// it could not deliver yet when the process dies or the connection is reset, and
// a server that was given up wakes up and writes into a connection that is just
// being closed. So a server asks before it runs what may not run twice, by
// "!ready", and does not run it before it was told to, by "!run", which the
// bridge says only once it has noted that this request is never sent again. For
// what may run twice "!accepted" before it runs is enough. Notifications that
// meet no server are dropped, except for what is remembered. Requests wait in
// memory for their server and their answer; the client is no longer read when
// more than a message of the largest size is unsent. A large message is held
// once, as a whole: half of one cannot be taken back from a client. Either side
// says before it how long it is, by "!large".
//
// Tuning: ProbeTimeout and BusyGrace decide together how long a silent server
// keeps a call, JoinTimeout how long a call waits for servers that fail as soon
// as they are found. Editors give a first answer 3 to 10 s.
//
// # How it works
//
// All that is known lives in one struct under one mutex. Every line and every
// event changes it in one step, and settle then draws the conclusions: search,
// leave, close, end, set the clock. Reading, writing, searching and waiting
// happen outside the mutex, in goroutines that Run waits for.
package bridge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"sync"
	"syscall"
	"time"

	"majordomus/bridge/frame"
)

var (
	// ErrHung is what ended a link whose server was silent for BusyGrace
	// although something was in flight. It is handed to Config.Find.
	ErrHung = errors.New("the server does not answer")

	// ErrLeft is why a server is looked for while the present one still
	// answers: it asked to be left, or the client's roots named another
	// checkout. It is handed to Config.Find.
	ErrLeft = errors.New("the server is being left")
)

// An Endpoint says where a server is.
type Endpoint struct {
	URL string                 // http://HOST:PORT; ignored where Open is given
	Key func() (string, error) // read anew for each attempt; nil sends no key

	// Open connects to a server in this process, which shall call this bridge by
	// name, as the last one did; "" for the usual name.
	Open func(ctx context.Context, name string) (io.ReadWriteCloser, error)
}

// Config says what a bridge joins. In, Out and Find are required; durations
// and sizes of zero take the defaults named.
type Config struct {
	In  io.Reader // the client's lines
	Out io.Writer // lines for the client; each Write holds whole lines
	ID  string    // UUID of this bridge: the server knows its peer by it

	// Starter names the process that started this one, for who looks later
	// whether that is among what started him. Empty: not known.
	Starter string

	// Find finds the checkout's server or brings one about. It is never called
	// twice at once. why is nil at first, and else what ended the last link or
	// attempt: a *Refusal, an I/O error, ErrHung or ErrLeft. An error is what
	// pending requests are answered with; the next request asks again.
	Find func(ctx context.Context, why error) (Endpoint, error)

	// Moved is asked, and answers at once, before something is sent on a link
	// that has been silent for a while: true means that Find would now find
	// another server. A server that hangs says nothing, and without this each
	// of its bridges has to find that out for itself. Nil asks nobody.
	Moved func() bool

	// Roots is asked with the client's file: roots once it has initialized,
	// and when they change, where it declares them. True means that Find would
	// now find another server. Nil asks no client for roots.
	Roots func(ctx context.Context, uris []string) bool

	MaxMessage   int64         // the largest line either way; 64 MiB
	ProbeTimeout time.Duration // silence after which a server is pinged; 1 s
	BusyGrace    time.Duration // silence after which it is given up; 3 s
	JoinTimeout  time.Duration // how long servers may fail one after the other before requests are answered with an error; 8 s
	DrainTimeout time.Duration // how long requests in flight are waited for after the end of In; 30 s

	Log *slog.Logger // nil discards

	audit func(*bridge) // for tests: looks at the state after each change
}

// Run joins the client to its server until In has ended and what was in flight
// is answered, or until ctx ends, and then returns at once. An error says why
// the client could no longer be served: Out failed, In failed, or ctx's cause.
//
// It waits for all that it started, with two exceptions that Go cannot
// interrupt: a Read of In and a Write to Out that block. Their goroutines belong
// to the streams' owner, who ends them by closing the streams; nothing that
// they still bring is acted on. Find and Roots must return when their context
// ends; a run that ctx ended does not wait long for them.
func Run(ctx context.Context, cfg Config) error {
	b := newBridge(cfg)
	ctx, b.cancel = context.WithCancel(ctx)
	defer b.cancel()
	b.ctx = ctx
	b.wg.Go(b.out.run)
	b.update(func() {}) // the first search
	go b.readClient()   // ends with In, see above
	b.watch()
	return b.shutDown()
}

func newBridge(cfg Config) *bridge {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.MaxMessage <= 0 {
		cfg.MaxMessage = frame.DefaultLimit
	}
	for _, d := range []struct {
		value *time.Duration
		usual time.Duration
	}{
		{&cfg.ProbeTimeout, time.Second}, {&cfg.BusyGrace, 3 * time.Second},
		{&cfg.JoinTimeout, 8 * time.Second}, {&cfg.DrainTimeout, 30 * time.Second},
	} {
		if *d.value <= 0 {
			*d.value = d.usual
		}
	}
	b := &bridge{
		cfg: cfg, log: cfg.Log, begin: time.Now(), wake: make(chan struct{}, 1),
		state: state{calls: map[string]*call{}, replays: map[string]*call{}, questions: map[string]*question{}, tokens: map[string]*call{}},
	}
	b.room = sync.NewCond(&b.mu)
	b.out = newOutput(cfg.Out, func() { b.update(b.room.Broadcast) }, func(err error) {
		b.update(func() { b.end(fmt.Errorf("writing to the client: %w", err)) })
	})
	return b
}

// watch is the bridge's clock. It sleeps for as long as nothing is in flight.
func (b *bridge) watch() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		b.mu.Lock()
		ended, armed := b.ended, b.armed
		b.mu.Unlock()
		if ended {
			return
		}
		var due <-chan time.Time
		if !armed.IsZero() {
			timer.Reset(time.Until(armed))
			due = timer.C
		}
		select {
		case <-due:
			b.update(b.tick)
		case <-b.wake:
		case <-b.ctx.Done():
			b.update(func() { b.end(context.Cause(b.ctx)) })
		}
	}
}

// shutDown takes leave of the servers and waits for what was started.
func (b *bridge) shutDown() error {
	const farewell = 20 * time.Millisecond // an editor's kill may be 95 ms away
	b.mu.Lock()
	links, err := b.links, b.err
	patience := farewell
	if err == nil {
		patience = max(patience, time.Until(b.eofAt.Add(b.cfg.DrainTimeout)))
	}
	b.mu.Unlock()
	if e := b.out.close(b.ctx, patience, farewell); err == nil && e != nil && !errors.Is(e, syscall.EPIPE) && !errors.Is(e, io.ErrClosedPipe) {
		// A client that has gone wants no more answers; one whose answers
		// cannot be kept has been given less than it asked for.
		err = fmt.Errorf("writing to the client: %w", e)
	}
	for _, l := range links {
		b.mu.Lock()
		idle := !l.writing && !l.dead
		if idle {
			l.writing = true
			b.send(l, bye)
		}
		batch := l.take()
		b.mu.Unlock()
		// A stream that cannot be hurried gets no farewell: its end says it too.
		if d, ok := l.conn.(interface{ SetWriteDeadline(time.Time) error }); ok && idle && d.SetWriteDeadline(time.Now().Add(farewell)) == nil {
			_ = l.write(batch) // ignore error: the server sees the end of the stream
		}
		b.mu.Lock()
		b.lose(l, io.EOF)
		b.unlock(other)
	}
	b.cancel()
	done := make(chan struct{})
	go func() { // ends with what it waits for
		b.wg.Wait()
		close(done)
	}()
	if err == nil && !b.out.stuck() {
		<-done
		return nil
	}
	select {
	case <-done:
	case <-time.After(farewell):
	}
	return err
}

// readClient hands on what the client writes. It is the owner's to end.
func (b *bridge) readClient() {
	r := frame.NewReader(b.cfg.In, b.cfg.MaxMessage)
	for {
		line, err := r.Next()
		b.mu.Lock()
		if b.ended {
			b.mu.Unlock()
			return
		}
		var bad *frame.Error
		switch {
		case err == nil && len(line) >= largeLine:
			b.fromClient(r.Keep(line), true)
		case err == nil:
			b.fromClient(line, false)
		case errors.As(err, &bad):
			b.malformed(bad)
		default:
			b.clientGone(err)
			b.unlock(other)
			return
		}
		from := client
		if _, unsent := b.unsent(); unsent < directBytes && r.Ready() {
			from = clientHasMore
		}
		b.unlock(from)
		b.waitForRoom()
	}
}

// waitForRoom keeps the client waiting while too much of what it wrote is
// unsent, or too much of what it asked for is unread. It ends: a search ends, a
// server that reads nothing is hung, and a client that reads nothing has only
// itself to wait for.
func (b *bridge) waitForRoom() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for !b.ended && (b.crowded() || b.owed > mostUnread && b.out.stalled()) {
		b.room.Wait()
	}
}

// clientGone is called at the end of In.
func (b *bridge) clientGone(err error) {
	if err != io.EOF {
		b.readErr = fmt.Errorf("reading from the client: %w", err)
	}
	b.eof, b.eofAt = true, time.Now()
	for id, q := range b.questions {
		b.refuse(q, []byte(id))
	}
	b.arm(b.eofAt.Add(b.cfg.DrainTimeout))
}

// refuse answers a server's question that the client can no longer answer: the
// calls that wait for it are to end.
func (b *bridge) refuse(q *question, id []byte) {
	b.forget(q)
	b.send(q.link, frame.Failure(id, frame.CodeInternal, "the client has closed its input", nil))
}

// own returns an id of the bridge's own, and its raw form. It meets no id of
// the client's: those of a bridge are as good as random.
func (b *bridge) own() []byte {
	b.ids++
	return frame.Quote("majordomus-bridge-" + b.cfg.ID + "-" + strconv.Itoa(b.ids))
}
