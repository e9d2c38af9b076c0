// Package board is what a server remembers of its clients and tells them: who
// is there, what each says it works on and was seen to work on, where two of
// them meet, which calls ran, and what happened in which order.
//
// Promised: of two peers whose claims meet, whoever announced second is told of
// the first; a peer that returns under its key finds its claims as they were;
// events are numbered without holes, and whoever falls behind learns how many
// it missed; all that is kept is bounded, however long the server runs. No lock
// is held while anybody is told anything, and nobody who listens is waited for.
//
// Not promised: that a claim is kept by anyone. It is a word among colleagues,
// not a lock. What was seen of a peer (Touch) is what passed through the server;
// an editor that writes files by itself is not seen.
package board

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// What is kept at most. All of it is shown to people or models, who read less.
const (
	mostDeparted = 32
	mostClaims   = 32      // of one peer
	mostScope    = 256     // paths of one claim
	mostPath     = 1 << 10 // bytes
	mostIntent   = 2 << 10 // bytes
	mostTouched  = 64      // paths of one peer
)

// freshness is how long a touched path says that somebody works there. A path
// touched again sooner than again is no news.
const (
	freshness = time.Hour
	again     = time.Minute
)

// Peer is a client as it describes itself.
type Peer struct {
	Key     string `json:"-"` // the same for one editor on every server, in every era
	ID      string `json:"id"`
	Client  string `json:"client"`
	Version string `json:"version,omitempty"`
	Era     string `json:"era,omitempty"`
	Front   string `json:"front"` // link, stdio, http, or hand for what people announce

	Since time.Time `json:"since"`
}

// View is a peer as others see it.
type View struct {
	Peer
	Attached   bool       `json:"attached"`
	DepartedAt *time.Time `json:"departed_at,omitempty"`
	Claims     []Claim    `json:"claims"`
	Touched    []Touched  `json:"touched"`
	Checkout   string     `json:"checkout"`    // its name
	CheckoutID string     `json:"checkout_id"` // its repository_id
}

// Claim is what a peer says it works on.
type Claim struct {
	Name   string    `json:"claim"`
	Intent string    `json:"intent"`
	Scope  []string  `json:"scope"` // below the checkout's root, with slashes
	At     time.Time `json:"at"`
}

// Touched is a path that a peer's calls of hosted tools named.
type Touched struct {
	Path  string    `json:"path"`
	Wrote bool      `json:"wrote"` // by a tool that does not say that it only reads
	At    time.Time `json:"at"`    // last
}

// An Announcement records, replaces or (without a scope) withdraws a claim.
type Announcement struct {
	Claim  string // "" is "default"
	Intent string
	Scope  []string
}

// Announced is what came of it.
type Announced struct {
	Peer     string    `json:"peer"`
	Claim    string    `json:"claim"`
	Intent   string    `json:"intent"`
	Scope    []string  `json:"scope"`
	Released []string  `json:"released"` // paths of the claim before that this one does not cover
	Overlaps []Meeting `json:"overlaps"` // with others
}

// Meeting is where somebody else is met.
type Meeting struct {
	Kind     string   `json:"kind"` // claimed or touched, by the other
	Peer     string   `json:"peer"`
	Client   string   `json:"client"`
	Attached bool     `json:"attached"`
	Checkout string   `json:"checkout"`
	Claim    string   `json:"claim,omitempty"`
	Intent   string   `json:"intent,omitempty"`
	Paths    []string `json:"paths"` // the other's
}

// Board is one server's. New makes it.
type Board struct {
	checkout, id string
	fold         bool

	mu      sync.Mutex // never held while anybody is told anything
	peers   map[string]*peer
	session map[string]*peer // by the sessions that are there
	rev     uint64           // counts changes of the peers
	events  ring[Event]
	calls   ring[Execution]
	running map[uint64]*Execution
	number  uint64 // of the last execution
	wake    chan struct{}
}

type peer struct {
	Peer
	sessions int
	hand     bool
	departed time.Time
	claims   []Claim
	touched  []Touched // the last touched last
}

func (p *peer) attached() bool { return p.hand || p.sessions > 0 }

// New returns a board of the checkout with that name and id; fold says that its
// file system takes upper and lower case for the same.
func New(checkout, id string, fold bool) *Board {
	return &Board{
		checkout: checkout, id: id, fold: fold,
		peers: map[string]*peer{}, session: map[string]*peer{}, running: map[uint64]*Execution{},
		events: ring[Event]{most: mostEvents}, calls: ring[Execution]{most: mostExecutions},
	}
}

// Attach puts a client on the board, or says anew who is behind a session.
func (b *Board) Attach(session string, who Peer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.session[session]
	if p == nil {
		if p = b.peers[who.Key]; p == nil {
			p = &peer{Peer: who}
			b.peers[who.Key] = p
		}
		b.session[session] = p
		p.sessions++
		if p.sessions == 1 {
			who.Since = firstOf(p.Since, who.Since)
			p.Peer, p.departed = who, time.Time{}
			b.changedLocked(Event{Kind: PeerCame, Peer: p.ID, Client: p.Client})
			return
		}
	}
	who.Since = firstOf(p.Since, who.Since)
	if p.Peer != who {
		p.Peer = who
		b.changedLocked(Event{})
	}
}

func firstOf(a, b time.Time) time.Time {
	if !a.IsZero() && a.Before(b) {
		return a
	}
	return b
}

// Detach takes a session off. A peer that announced something stays, as one
// that has departed.
func (b *Board) Detach(session string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.session[session]
	if p == nil {
		return
	}
	delete(b.session, session)
	if p.sessions--; p.attached() {
		return
	}
	p.departed = time.Now().UTC()
	if len(p.claims) == 0 {
		delete(b.peers, p.Key)
	}
	b.pruneLocked()
	b.changedLocked(Event{Kind: PeerWent, Peer: p.ID, Client: p.Client})
}

// pruneLocked forgets those who departed first.
func (b *Board) pruneLocked() {
	var gone []*peer
	for _, p := range b.peers {
		if !p.attached() {
			gone = append(gone, p)
		}
	}
	if len(gone) <= mostDeparted {
		return
	}
	slices.SortFunc(gone, func(x, y *peer) int { return x.departed.Compare(y.departed) })
	for _, p := range gone[:len(gone)-mostDeparted] {
		delete(b.peers, p.Key)
	}
}

// A LimitError says what of an announcement is too much, or is missing.
type LimitError struct {
	Argument string // intent, claim or scope
	Reason   string
}

func (e *LimitError) Error() string { return e.Argument + ": " + e.Reason }

// Announce records what the peer under key works on, and returns whom that
// meets. Scope has been read by Scope. One who announces by hand need not be
// attached: who says then who it is. Errors are *LimitError; nothing is
// recorded then.
func (b *Board) Announce(who Peer, hand bool, a Announcement) (Announced, error) {
	a.Claim = cmp.Or(a.Claim, "default")
	switch {
	case len(a.Intent) > mostIntent:
		return Announced{}, &LimitError{"intent", fmt.Sprintf("has more than %d bytes", mostIntent)}
	case len(a.Claim) > 100:
		return Announced{}, &LimitError{"claim", "has more than 100 bytes"}
	case len(a.Scope) > mostScope:
		return Announced{}, &LimitError{"scope", fmt.Sprintf("has more than %d paths; name the folder they are in", mostScope)}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.peers[who.Key]
	if p == nil {
		// By hand; or by a client whose coming and going overtook its call:
		// what it said is kept as of one that has departed.
		p = &peer{Peer: who, departed: time.Now().UTC()}
		b.peers[who.Key] = p
	}
	i := slices.IndexFunc(p.claims, func(c Claim) bool { return c.Name == a.Claim })
	done := Announced{Peer: p.ID, Claim: a.Claim, Intent: a.Intent, Scope: append([]string{}, a.Scope...), Released: []string{}, Overlaps: []Meeting{}}
	if i >= 0 {
		for _, path := range p.claims[i].Scope {
			if !slices.ContainsFunc(a.Scope, func(new string) bool { return covers(new, path, b.fold) }) {
				done.Released = append(done.Released, path)
			}
		}
	}
	if len(a.Scope) == 0 {
		if i >= 0 {
			p.claims = slices.Delete(p.claims, i, i+1)
			p.hand = p.hand && len(p.claims) > 0
			b.changedLocked(Event{Kind: Withdrawn, Peer: p.ID, Client: p.Client, Claim: a.Claim})
		}
		if !p.attached() && len(p.claims) == 0 {
			delete(b.peers, p.Key)
		}
		return done, nil
	}
	if i < 0 && len(p.claims) == mostClaims {
		return Announced{}, &LimitError{"claim", fmt.Sprintf("is one too many: this peer has %d claims; withdraw one with an empty scope", mostClaims)}
	}
	p.hand = p.hand || hand
	c := Claim{a.Claim, a.Intent, slices.Clone(a.Scope), time.Now().UTC()}
	if i >= 0 {
		p.claims[i] = c
	} else {
		p.claims = append(p.claims, c)
	}
	b.pruneLocked()
	b.changedLocked(Event{Kind: Claimed, Peer: p.ID, Client: p.Client, Claim: c.Name, Intent: c.Intent, Scope: c.Scope})
	done.Overlaps = Meetings(c.Scope, p.Key, b.viewsLocked(), b.fold)
	return done, nil
}

// Touch notes paths that a call of the peer under key named.
func (b *Board) Touch(key string, paths []string, wrote bool) {
	now := time.Now().UTC()
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.peers[key]
	if p == nil {
		return
	}
	news := false
	for _, path := range paths {
		t := Touched{path, wrote, now}
		if i := slices.IndexFunc(p.touched, func(t Touched) bool { return same(t.Path, path, b.fold) }); i >= 0 {
			was := p.touched[i]
			if now.Sub(was.At) < again && (was.Wrote || !wrote) {
				continue
			}
			t.Wrote = wrote || was.Wrote
			p.touched = slices.Delete(p.touched, i, i+1)
		}
		if len(p.touched) == mostTouched {
			p.touched = slices.Delete(p.touched, 0, 1)
		}
		p.touched = append(p.touched, t)
		news = true
	}
	if news {
		b.changedLocked(Event{})
	}
}

// Views returns all peers, those attached first, the oldest first.
func (b *Board) Views() (views []View, revision uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.viewsLocked(), b.rev
}

func (b *Board) viewsLocked() []View {
	views := make([]View, 0, len(b.peers))
	for _, p := range b.peers {
		v := View{
			Peer: p.Peer, Attached: p.attached(), Claims: append([]Claim{}, p.claims...), Touched: append([]Touched{}, p.touched...),
			Checkout: b.checkout, CheckoutID: b.id,
		}
		if !v.Attached {
			at := p.departed
			v.DepartedAt = &at
		}
		slices.Reverse(v.Touched)
		views = append(views, v)
	}
	slices.SortFunc(views, func(x, y View) int {
		switch {
		case x.Attached != y.Attached && x.Attached:
			return -1
		case x.Attached != y.Attached:
			return 1
		}
		return cmp.Or(x.Since.Compare(y.Since), strings.Compare(x.ID, y.ID), strings.Compare(x.Key, y.Key))
	})
	return views
}

// Revision counts the changes of the peers and of what they announced and
// touched.
func (b *Board) Revision() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rev
}

// Changed waits until there is another revision than that, or ctx ends.
func (b *Board) Changed(ctx context.Context, revision uint64) error {
	return b.wait(ctx, func() bool { return b.rev != revision })
}

func (b *Board) changedLocked(e Event) {
	b.rev++
	if e.Kind != "" {
		b.noteLocked(e)
		return
	}
	b.wakeLocked()
}

// wait waits for what is so after a change.
func (b *Board) wait(ctx context.Context, so func() bool) error {
	for {
		b.mu.Lock()
		if so() {
			b.mu.Unlock()
			return nil
		}
		if b.wake == nil { // made by who waits: nobody else pays for it
			b.wake = make(chan struct{})
		}
		wake := b.wake
		b.mu.Unlock()
		select {
		case <-wake:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (b *Board) wakeLocked() {
	if b.wake != nil {
		close(b.wake)
		b.wake = nil
	}
}
