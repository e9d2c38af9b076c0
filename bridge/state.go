package bridge

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"majordomus/bridge/frame"
)

// How often a request is sent again. A request that kills whoever gets it must
// not kill one server after the other for ever.
const (
	maxRuns  = 3 // accepted each time, and safe to repeat
	maxSends = 8 // not accepted
)

// leastFailures is how often servers have to fail, after the first time, before
// a call is given up, however long that takes.
const leastFailures = 2

// What the client may be ahead: in lines that no server was sent yet, beside
// their bytes, and in requests whose answers it lets lie.
const (
	mostUnsent = 64 << 10
	mostUnread = 1 << 10
)

// idleBytes is how much traffic makes it worth giving memory back. Below it lies
// what the runtime would let lie for long: it first collects at 4 MiB, which
// thousands of calls do not fill, and there is a bridge for each editor.
const idleBytes = 256 << 10

// bridge is one run of the bridge.
type bridge struct {
	cfg    Config
	log    *slog.Logger
	begin  time.Time
	ctx    context.Context // ends with Run
	cancel context.CancelFunc
	out    *output
	wake   chan struct{} // watch has a new appointment
	wg     sync.WaitGroup
	large  frame.Spare  // for large lines of servers'
	joined atomic.Int64 // links so far
	called atomic.Value // string: the name that a server gave us for want of the usual one

	mu    sync.Mutex // before output.mu
	room  *sync.Cond // something was sent
	after []func()   // what to do once mu is free
	state
}

// state is all that is known. Only what lies between mu.Lock and unlock changes
// it, so that whoever looks finds it whole.
type state struct {
	// calls holds each request of the client that is neither answered nor
	// cancelled, by its raw id. A call is in exactly one of these places: in
	// waiting, on a live link, or, being a listen, in neither until the next
	// link is told of it.
	calls   map[string]*call
	owed    int    // of calls, those that are no listens
	seq     int    // counts calls
	waiting []item // in order, for the link to come
	held    int    // bytes in waiting

	links     []*link // every live one
	link      *link   // where new lines go; nil while there is none
	incoming  *link   // is being told what the last one knew
	questions map[string]*question
	replays   map[string]*call // by the bridge's own ids
	tokens    map[string]*call // of calls, by raw progress token
	ids       int              // of its own, made so far
	opening   *call            // the client's initialize, unanswered

	mem      memory
	registry string // the last fingerprint told

	rootsID   string // of the unanswered roots/list
	rootsDone bool
	rootsMove bool // the next link is to be left as well

	seeking  bool
	down     bool // a search failed: the next request starts another
	why      error
	trouble  time.Time // when servers began to fail; zero while they do not
	failures int       // since then
	moves    int       // from link to link, none of which has served yet

	passed  int       // bytes, since memory was last given back
	looked  int       // passed, when watch last looked
	armed   time.Time // watch looks again then; zero for never
	eof     bool
	eofAt   time.Time
	readErr error
	ended   bool
	err     error
}

// A call is a request: the client's, or a replay of the bridge's own.
type call struct {
	id     string // raw
	method string
	line   []byte // as written; dropped when it can no longer be sent
	token  string // raw progress token
	seq    int
	listen bool // is answered when it ends, and counts as nothing in flight
	safe   bool // may run twice

	waiting  bool
	gone     bool // answered or cancelled
	link     *link
	n        int // its number on link
	accepted bool
	refused  bool // by its link's server: the next one is sent it
	sent     int  // times
	runs     int  // times that a server said it runs it
	acked    bool

	changes keep                // what it makes the next server be told
	undo    func()              // of that, when it is refused
	reply   func(frame.Message) // of a replay
}

// An item waits for a link: a call, or a notification without one.
type item struct {
	line []byte
	call *call
}

// A question is a request of a server's that the client has not answered.
type question struct {
	link  *link
	id    string
	token string // raw, of the progress it wants
}

// Who calls unlock, and therefore what it may leave to its caller.
type caller int

const (
	other         caller = iota
	client               // may write to a link itself
	clientHasMore        // comes back at once: nothing need be written yet
	server               // writes to the client itself
)

// update changes the state in one step.
func (b *bridge) update(change func()) {
	b.mu.Lock()
	change()
	b.unlock(other)
}

// unlock ends a change: it draws the conclusions, frees mu, and does what must
// not be done under it.
func (b *bridge) unlock(from caller) {
	b.settle()
	if b.cfg.audit != nil {
		b.cfg.audit(b)
	}
	var direct *link
	var batch [][]byte
	if from != clientHasMore {
		for _, l := range b.links {
			switch {
			case len(l.queue) == 0 || l.writing:
			case from == client && direct == nil && l.direct():
				direct, l.writing = l, true
				batch = l.take()
			default:
				l.cond.Signal()
			}
		}
	}
	after := b.after
	b.after = nil
	b.mu.Unlock()
	if from != server {
		b.out.kick()
	}
	for _, f := range after {
		f()
	}
	if direct != nil {
		err := direct.write(batch)
		b.mu.Lock()
		b.wrote(direct, err)
		b.unlock(other)
	}
}

// settle draws the conclusions from a change.
func (b *bridge) settle() {
	if b.ended {
		return
	}
	if b.eof && b.owed == 0 {
		b.end(b.readErr)
		return
	}
	if len(b.links) > 1 {
		for _, l := range b.links {
			if l != b.link && l != b.incoming && !l.closing && l.inflight == 0 && l.asked == 0 {
				l.closing = true
				b.send(l, bye)
			}
		}
	}
	if b.seeking || b.incoming != nil {
		return
	}
	switch l := b.link; {
	case l == nil && !b.down:
		b.seek(b.why, b.pause())
	case l != nil && l.leaving:
		now := time.Now()
		due := l.leaveBy
		if l.inflight == 0 && l.asked == 0 {
			due = l.leaveAt
		}
		if now.Before(due) {
			b.arm(due)
		} else {
			b.seek(ErrLeft, 0)
		}
	}
}

// end ends the run. What the client is owed it gets nothing more of.
func (b *bridge) end(err error) {
	if b.ended {
		return
	}
	b.ended, b.err = true, err
	b.room.Broadcast()
	b.nudge()
}

// arm makes watch look again at t at the latest.
func (b *bridge) arm(t time.Time) {
	if b.armed.IsZero() || t.Before(b.armed) {
		b.armed = t
		b.nudge()
	}
}

func (b *bridge) nudge() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// tick is what watch does when its time has come.
func (b *bridge) tick() {
	now := time.Now()
	// Woken far too late, this process itself was stopped or starved. That
	// says nothing about the servers, whose words may be waiting to be read.
	overslept := now.Sub(b.armed) > max(b.cfg.ProbeTimeout, 500*time.Millisecond)
	b.armed = time.Time{}
	if b.eof {
		if limit := b.eofAt.Add(b.cfg.DrainTimeout); now.Before(limit) {
			b.arm(limit)
		} else {
			b.log.Warn("the client's last requests were not answered in time", "requests", b.owed)
			b.end(b.readErr)
			return
		}
	}
	// Nothing has passed since the last look: a call may be in flight for an hour.
	quiet := b.passed == b.looked
	b.looked = b.passed
	if b.passed > idleBytes && (quiet || !slices.ContainsFunc(b.links, (*link).busy)) {
		// A bridge sits in every editor, mostly doing nothing. What a burst
		// or a large line took would stay with it for minutes.
		if slices.ContainsFunc(b.links, func(l *link) bool { return l.handing.Load() }) {
			b.arm(now.Add(b.cfg.ProbeTimeout)) // what it took is being written to the client still
		} else {
			b.passed, b.looked = 0, 0
			b.shrink()
			b.large.Drop()
			b.after = append(b.after, runtime.GC, debug.FreeOSMemory) // what pools hold goes with the second collection
		}
	}
	for _, l := range slices.Clone(b.links) {
		if overslept {
			l.since, l.pinged = now, time.Time{}
		}
		b.listenTo(l, now)
	}
}

// shrink makes empty maps small again, which they do not become by themselves.
func (b *bridge) shrink() {
	if len(b.calls) == 0 {
		b.calls, b.tokens = map[string]*call{}, map[string]*call{}
	}
	for _, l := range b.links {
		if len(l.calls) == 0 {
			l.calls = map[int]*call{}
		}
	}
}

// listenTo asks a link for a sign of life when it owes one, and gives it up
// when it gives none.
func (b *bridge) listenTo(l *link, now time.Time) {
	l.due = time.Time{}
	if l.broken != nil {
		// What it wrote before is still being read; a reader that does not
		// come to an end is not waited for.
		if by := l.brokenAt.Add(b.cfg.ProbeTimeout); now.Before(by) {
			b.expect(l, by)
		} else {
			b.lose(l, l.broken)
		}
		return
	}
	if !l.busy() {
		l.pinged = time.Time{}
		return
	}
	sign := l.lastSign(b.begin)
	if l.handing.Load() {
		// Its words wait for a slow client. It must not take us for dead.
		l.since, l.pinged = now, time.Time{}
		if len(l.queue) == 0 {
			b.send(l, pong)
		}
		b.expect(l, now.Add(b.cfg.ProbeTimeout))
		return
	}
	if l.pinged.IsZero() || !sign.Before(l.pinged) {
		l.pinged = time.Time{}
		if by := sign.Add(b.cfg.ProbeTimeout); now.Before(by) {
			b.expect(l, by)
			return
		}
		l.pinged = now
		b.send(l, ping)
	}
	by := sign.Add(b.cfg.BusyGrace)
	if least := l.pinged.Add(b.cfg.ProbeTimeout); by.Before(least) {
		by = least
	}
	if !now.Before(by) {
		b.lose(l, ErrHung)
		return
	}
	if look := now.Add(b.cfg.ProbeTimeout); look.Before(by) {
		by = look // it may have answered, and fallen silent again
	}
	b.expect(l, by)
}

// expect makes watch look at l again at t.
func (b *bridge) expect(l *link, t time.Time) {
	l.due = t
	b.arm(t)
}

// unsent is how much of the client's waits for a server.
func (b *bridge) unsent() (lines int, bytes int64) {
	lines, bytes = len(b.waiting), int64(b.held)
	for _, l := range b.links {
		lines += len(l.queue)
		bytes += int64(l.queued)
	}
	return lines, bytes
}

// crowded reports whether that is too much.
func (b *bridge) crowded() bool {
	lines, bytes := b.unsent()
	return lines > mostUnsent || bytes > max(b.cfg.MaxMessage, 16<<20)
}

// route sends a line to the server, or has it wait for one.
func (b *bridge) route(line []byte, c *call) {
	if b.link != nil && b.incoming == nil {
		if c != nil {
			b.sendCall(b.link, c)
		} else {
			b.send(b.link, line)
		}
		return
	}
	if c != nil {
		b.down = false // somebody waits: search again
		c.waiting = true
	} else if b.down {
		return
	}
	b.waiting = append(b.waiting, item{line, c})
	b.held += len(line)
}

// flush sends what waited.
func (b *bridge) flush() {
	waiting := b.waiting
	b.waiting, b.held = nil, 0
	for _, w := range waiting {
		switch {
		case w.call == nil:
			b.send(b.link, w.line)
		case !w.call.gone:
			w.call.waiting = false
			b.sendCall(b.link, w.call)
		}
	}
	b.room.Broadcast()
}

// sendCall sends a request on l, as its next one in number.
func (b *bridge) sendCall(l *link, c *call) {
	if !c.listen {
		if !l.busy() {
			b.wakeUp(l)
		}
		l.inflight++
	}
	l.count++
	l.calls[l.count] = c
	c.link, c.n, c.accepted = l, l.count, false
	c.sent++
	if c.changes.key != "" && c.sent == 1 {
		c.undo = b.mem.keep(c.changes)
	}
	b.send(l, c.line)
	if c.changes.key != "" && c.sent > 1 {
		// The server before had two words on one thing, and answered the later
		// one first: it died, and the earlier comes last here. What counts is
		// said once more.
		if k, ok := b.mem.last(c.changes.key); ok && !k.is(c.changes) && !b.pending(k.key, func(c *call) bool { return c.waiting && c.changes.is(k) }) {
			b.remind(l, k)
		}
	}
	if c == b.opening && b.mem.initialized != nil {
		// A client that does not wait has said so already, perhaps to a
		// server that did not live to answer.
		b.send(l, b.mem.initialized)
	}
}

// send queues a line for l.
func (b *bridge) send(l *link, line []byte) {
	if l.dead || l.broken != nil {
		return
	}
	if !l.busy() {
		b.wakeUp(l)
	}
	l.queue = append(l.queue, line)
	l.queued += len(line) + 1
}

// wakeUp starts the clock of a link that was idle.
func (b *bridge) wakeUp(l *link) {
	l.since = time.Now()
	if l.due.IsZero() {
		b.expect(l, l.since.Add(b.cfg.ProbeTimeout))
	}
}

// release takes a call off its link.
func (b *bridge) release(c *call) {
	l := c.link
	if l == nil {
		return
	}
	c.link = nil
	delete(l.calls, c.n)
	refused := c.refused
	c.refused = false
	if !c.listen && !refused {
		if l.inflight--; l.inflight == 0 {
			l.unread = 0
		}
	}
}

// drop forgets a call of the client's: it was answered, or cancelled.
func (b *bridge) drop(c *call) {
	b.release(c)
	c.gone = true
	delete(b.calls, c.id)
	if !c.listen {
		b.owed--
	}
	if c.token != "" && b.tokens[c.token] == c {
		delete(b.tokens, c.token)
	}
	if b.opening == c {
		b.opening = nil
	}
	if key := c.changes.key; key != "" {
		if k, ok := b.mem.last(key); ok && k.removes && !b.pending(key, func(*call) bool { return true }) {
			b.mem.forget(key)
		}
	}
}

// pending reports whether such a request, which says something on a key, is
// unanswered.
func (b *bridge) pending(key string, such func(*call) bool) bool {
	for _, c := range b.calls {
		if c.changes.key == key && such(c) {
			return true
		}
	}
	return false
}

// answer gives the client the one answer to c.
func (b *bridge) answer(c *call, line []byte) {
	b.drop(c)
	b.out.push(line)
}

func (b *bridge) fail(c *call, code, text string) {
	b.answer(c, frame.Failure([]byte(c.id), frame.CodeInternal, text, []byte(`{"code":"`+code+`"}`)))
}

// forget takes a question off the record.
func (b *bridge) forget(q *question) {
	delete(b.questions, q.id)
	q.link.asked--
}

// lose is told when a link has ended, for whatever reason. What was in flight
// on it is sent again or answered; if it was the one in use, a search begins.
func (b *bridge) lose(l *link, err error) {
	if l.dead {
		return
	}
	l.dead = true
	l.queue, l.queued = nil, 0
	b.links = slices.DeleteFunc(slices.Clone(b.links), func(x *link) bool { return x == l })
	l.cond.Broadcast()
	b.room.Broadcast()
	hung := errors.Is(err, ErrHung)
	b.after = append(b.after, func() { l.close(hung) })
	if b.ended {
		return
	}
	for _, q := range b.questions {
		if q.link == l {
			b.forget(q)
			b.out.push(frame.Notification("notifications/cancelled",
				[]byte(`{"requestId":`+q.id+`,"reason":"the server that asked has ended"}`)))
		}
	}
	calls := make([]*call, 0, len(l.calls))
	for _, c := range l.calls {
		calls = append(calls, c)
	}
	slices.SortFunc(calls, func(x, y *call) int { return x.n - y.n })
	var again []item
	for _, c := range calls {
		b.release(c)
		switch {
		case c.reply != nil:
			delete(b.replays, c.id)
		case c.listen && c.sent < maxSends:
			// The next link is told.
		case !c.accepted && c.sent < maxSends, c.accepted && c.safe && c.runs < maxRuns:
			c.waiting = true
			again = append(again, item{c.line, c})
			b.held += len(c.line)
		case c.accepted:
			b.fail(c, "outcome_unknown", "the server ended while it ran this request, which may or may not have taken effect ("+err.Error()+")")
		default:
			b.fail(c, "server_unavailable", "no server lived long enough to take this request ("+err.Error()+")")
		}
	}
	if len(again) > 0 {
		b.down = false // they wait: where the last search was given up, there is another
	}
	b.waiting = append(again, b.waiting...)
	current := l == b.link || l == b.incoming
	if l == b.link {
		b.link = nil
	}
	if l == b.incoming {
		b.incoming = nil
	}
	if !current {
		if b.link != nil && b.incoming == nil {
			b.flush()
		}
		return
	}
	if b.seeking || b.incoming != nil {
		b.why = err // the next one is on its way
		return
	}
	level := slog.LevelInfo
	if err == io.EOF && l.leaving {
		level = slog.LevelDebug
	}
	b.log.Log(b.ctx, level, "the link to the server has ended", "because", err)
	b.failed(err, time.Since(l.born) > b.cfg.JoinTimeout)
}

// failed notes that a server could not be used, or no longer. A server that
// had served well before begins the count anew.
func (b *bridge) failed(err error, well bool) {
	now := time.Now()
	b.why = err
	switch {
	case b.trouble.IsZero() || well:
		b.trouble, b.failures = now, 0
	default:
		b.failures++
	}
	if b.link != nil {
		// The old server still answers: stay, and try again later.
		b.stay(b.link)
		return
	}
	// The time may be up and nothing tried in it: this process was stopped, woke
	// up, and found the one attempt that it was in the middle of too late.
	if now.Sub(b.trouble) >= b.cfg.JoinTimeout && b.failures >= leastFailures {
		b.giveUp(err)
	}
}

// pause is how long to wait before the next search: longer each time, but not
// beyond the moment at which it is the last.
func (b *bridge) pause() time.Duration {
	if b.failures == 0 {
		return 0
	}
	left := time.Until(b.trouble.Add(b.cfg.JoinTimeout))
	return max(0, min(left, time.Second, 25*time.Millisecond<<min(b.failures-1, 10)))
}

// stay puts off the move away from l, the longer the more often it failed.
func (b *bridge) stay(l *link) {
	b.moves++
	l.leaveAt = time.Now().Add(min(30*time.Second, 25*time.Millisecond<<min(b.moves, 20)))
	l.leaveBy = l.leaveAt
	b.flush()
}

// giveUp answers all that waits with err, once no server could be had. Listens
// that once were acknowledged are kept for the next server.
func (b *bridge) giveUp(err error) {
	b.why = err
	b.trouble, b.failures = time.Time{}, 0
	if b.link != nil {
		b.stay(b.link)
		return
	}
	b.log.Warn("no server can be reached", "because", err)
	b.down = true
	for _, w := range b.waiting {
		if w.call != nil && !w.call.gone {
			b.fail(w.call, "server_unavailable", err.Error())
		}
	}
	for _, c := range b.listens() {
		if !c.acked {
			b.fail(c, "server_unavailable", err.Error())
		}
	}
	b.waiting, b.held = nil, 0
	b.room.Broadcast()
}

// listens returns the open listens in the order they came.
func (b *bridge) listens() []*call {
	var open []*call
	if b.owed == len(b.calls) {
		return nil
	}
	for _, c := range b.calls {
		if c.listen {
			open = append(open, c)
		}
	}
	slices.SortFunc(open, func(x, y *call) int { return x.seq - y.seq })
	return open
}
