package board

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"
)

// How many are kept, whatever runs here for how long.
const (
	mostEvents     = 1024
	mostExecutions = 1024
)

// Kinds of events.
const (
	PeerCame    = "peer_came"
	PeerWent    = "peer_went"
	Claimed     = "claimed"
	Withdrawn   = "withdrawn"
	CallBegan   = "call_began"
	CallEnded   = "call_ended"
	UpstreamNow = "upstream"   // a hosted server is in another state
	LeaseLost   = "lease_lost" // another server is the checkout's
	Ending      = "ending"     // this server lets nobody new in
)

// An Event is something that happened. Which members it has depends on its kind.
type Event struct {
	Number    uint64     `json:"number"`
	At        time.Time  `json:"at"`
	Kind      string     `json:"kind"`
	Peer      string     `json:"peer,omitempty"`
	Client    string     `json:"client,omitempty"`
	Claim     string     `json:"claim,omitempty"`
	Intent    string     `json:"intent,omitempty"`
	Scope     []string   `json:"scope,omitempty"`
	Execution *Execution `json:"execution,omitempty"`
	Subject   string     `json:"subject,omitempty"` // a hosted server's name
	State     string     `json:"state,omitempty"`   // of the subject
	Message   string     `json:"message,omitempty"`
}

// An Execution is a call of a tool.
type Execution struct {
	Number   uint64    `json:"number"`
	Peer     string    `json:"peer"`
	Client   string    `json:"client"`
	Tool     string    `json:"tool"`
	Upstream string    `json:"upstream,omitempty"` // whose tool it is; "" for our own
	Started  time.Time `json:"started_at"`
	Millis   float64   `json:"milliseconds"` // so far, while it runs
	// Outcome is running, ok, error (the tool says so), failed (there is no
	// result), cancelled (by the client) or cut (with its client's link).
	Outcome string `json:"outcome"`
}

// Outcome of a call that has not ended.
const Running = "running"

// Began records a call, and returns its number.
func (b *Board) Began(e Execution) uint64 {
	e.Tool, e.Upstream, e.Client = cut(e.Tool, mostName), cut(e.Upstream, mostName), cut(e.Client, mostName)
	e.Outcome, e.Millis = Running, 0
	b.mu.Lock()
	defer b.mu.Unlock()
	b.number++
	e.Number = b.number
	// Nobody changes it any more: listeners have it too.
	kept := &e
	b.running[e.Number] = kept
	if b.listeners > 0 {
		b.noteLocked(Event{Kind: CallBegan, Peer: e.Peer, Client: e.Client, Execution: kept})
	}
	return e.Number
}

// Ended records how a call ended, and how long it took. Only the first time
// counts.
func (b *Board) Ended(number uint64, outcome string, took time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	began := b.running[number]
	if began == nil {
		return
	}
	delete(b.running, number)
	e := *began
	e.Outcome, e.Millis = outcome, millis(took)
	b.calls.add(&e)
	b.noteLocked(Event{Kind: CallEnded, Peer: e.Peer, Client: e.Client, Execution: &e})
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// Executions returns the calls that run, and those that ended last, at most so
// many of these (all that are kept, for zero); the newest first.
func (b *Board) Executions(most int) (running, ended []Execution) {
	b.mu.Lock()
	defer b.mu.Unlock()
	running = make([]Execution, 0, len(b.running))
	for _, e := range b.running {
		r := *e
		r.Millis = millis(time.Since(e.Started))
		running = append(running, r)
	}
	slices.SortFunc(running, func(x, y Execution) int { return cmp.Compare(y.Number, x.Number) })
	last := b.calls.last(most)
	ended = make([]Execution, len(last))
	for i, e := range last {
		ended[len(last)-1-i] = *e
	}
	return running, ended
}

// Listen says that somebody follows the events, until stop is called. Only then
// are calls told when they begin: most have ended before anybody could look, and
// would take half of the room.
func (b *Board) Listen() (stop func()) {
	add := func(n int) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.listeners += n
	}
	add(1)
	return sync.OnceFunc(func() { add(-1) })
}

// Note records an event of the server's own.
func (b *Board) Note(e Event) {
	e.Message = cut(e.Message, mostIntent)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.noteLocked(e)
}

func (b *Board) noteLocked(e Event) {
	e.Number, e.At = b.events.count+1, time.Now().UTC()
	b.events.add(e)
	b.evBell.ring()
}

// Events waits until there are events after that number and returns them, the
// oldest first, and how many between are not kept any more. A number that this
// server has not come to is another server's: then all that is kept is
// returned. The error is why ctx ended.
func (b *Board) Events(ctx context.Context, after uint64) (events []Event, missed uint64, err error) {
	b.mu.Lock()
	if after > b.events.count {
		after = 0
	}
	b.mu.Unlock()
	if err := b.wait(ctx, &b.evBell, func() bool { return b.events.count > after }); err != nil {
		return nil, 0, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	news := b.events.count - after
	kept := b.events.last(int(min(news, mostEvents)))
	return kept, news - uint64(len(kept)), nil
}

// Newest is the number of the last event.
func (b *Board) Newest() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.events.count
}

// ring keeps the last of what is added.
type ring[T any] struct {
	most  int
	kept  []T
	count uint64 // added ever
}

func (r *ring[T]) add(v T) {
	if len(r.kept) < r.most {
		r.kept = append(r.kept, v)
	} else {
		r.kept[r.count%uint64(r.most)] = v
	}
	r.count++
}

// last returns the last n, the oldest first; all for zero.
func (r *ring[T]) last(n int) []T {
	if n <= 0 || n > len(r.kept) {
		n = len(r.kept)
	}
	list := make([]T, 0, n)
	for i := r.count - uint64(n); i < r.count; i++ {
		list = append(list, r.kept[i%uint64(r.most)])
	}
	return list
}
