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
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// What is kept at most. All of it is shown to people or models, who read less.
const (
	mostDeparted = 32
	mostClaims   = 32       // of one peer
	mostScope    = 256      // paths of one claim
	mostPath     = 1 << 10  // bytes
	mostIntent   = 2 << 10  // bytes
	mostAll      = 16 << 10 // bytes of one claim's paths
	mostTouched  = 64       // paths of one peer
	mostHands    = 64       // peers that are there by hand only: they do not depart
	mostName     = 256      // bytes of what clients and tools call themselves
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

	mu        sync.Mutex // never held while anybody is told anything
	peers     map[string]*peer
	order     []*peer          // the same, as they are shown
	session   map[string]*peer // by the sessions that are there
	rev       uint64           // counts changes of the peers
	revBell   bell
	views     []View // as of that revision, unless nil; never changed
	events    ring[Event]
	evBell    bell
	calls     ring[*Execution]
	running   map[uint64]*Execution
	listeners int    // that follow the events
	number    uint64 // of the last execution
}

type peer struct {
	Peer
	sessions int
	hand     bool // announced by hand, and never there: it cannot depart
	departed time.Time
	claims   []Claim
	touched  []Touched // the last touched last
	view     *View     // nil since the last change
}

func (p *peer) attached() bool { return p.hand || p.sessions > 0 }

// New returns a board of the checkout with that name and id; fold says that its
// file system takes upper and lower case for the same.
func New(checkout, id string, fold bool) *Board {
	return &Board{
		checkout: checkout, id: id, fold: fold,
		peers: map[string]*peer{}, session: map[string]*peer{}, running: map[uint64]*Execution{},
		events: ring[Event]{most: mostEvents}, calls: ring[*Execution]{most: mostExecutions},
	}
}

// Attach puts a client on the board, or says anew who is behind a session. A
// peer may have several sessions: a bridge comes back before its old link is
// found dead.
func (b *Board) Attach(session string, who Peer) {
	who = who.brief()
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.session[session]
	if p != nil && p.Key != who.Key { // somebody else
		b.detachLocked(session)
		p = nil
	}
	came := false
	if p == nil {
		if p = b.peers[who.Key]; p == nil {
			p = &peer{}
			b.peers[who.Key] = p
		}
		b.session[session] = p
		p.sessions++
		came = p.sessions == 1
	}
	if !p.Since.IsZero() && !p.Since.After(who.Since) || who.Since.IsZero() {
		who.Since = p.Since
	}
	changed := came || p.Peer != who
	p.Peer = who
	switch {
	case came:
		p.departed, p.hand = time.Time{}, false
		b.changedLocked(p, Event{Kind: PeerCame, Peer: p.ID, Client: p.Client})
	case changed:
		b.changedLocked(p, Event{})
	}
}

func (p Peer) brief() Peer {
	p.Client, p.Version, p.Era = cut(p.Client, mostName), cut(p.Version, mostName), cut(p.Era, mostName)
	return p
}

// Detach takes a session off. A peer that announced something stays, as one
// that has departed.
func (b *Board) Detach(session string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.detachLocked(session)
}

func (b *Board) detachLocked(session string) {
	p := b.session[session]
	if p == nil {
		return
	}
	delete(b.session, session)
	if p.sessions--; p.sessions > 0 {
		return
	}
	p.departed = time.Now().UTC()
	if len(p.claims) == 0 {
		delete(b.peers, p.Key)
	}
	b.pruneLocked()
	b.changedLocked(p, Event{Kind: PeerWent, Peer: p.ID, Client: p.Client})
}

// Compact gives back what is kept for peers of whom there were more once.
func (b *Board) Compact() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.peers, b.session, b.running = maps.Collect(maps.All(b.peers)), maps.Collect(maps.All(b.session)), maps.Collect(maps.All(b.running))
	b.order = slices.Clone(b.order)
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
	slices.SortFunc(gone, func(x, y *peer) int {
		return cmp.Or(x.departed.Compare(y.departed), strings.Compare(x.Key, y.Key))
	})
	for _, p := range gone[:len(gone)-mostDeparted] {
		delete(b.peers, p.Key)
		b.placeLocked(p)
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
	case len(a.Scope) > 0 && strings.TrimSpace(a.Intent) == "":
		return Announced{}, &LimitError{"intent", "is empty: say what you do there"}
	case len(a.Scope) > mostScope:
		return Announced{}, &LimitError{"scope", fmt.Sprintf("has more than %d paths; name the folder they are in", mostScope)}
	}
	all := 0
	for _, path := range a.Scope {
		all += len(path)
	}
	if all > mostAll {
		return Announced{}, &LimitError{"scope", fmt.Sprintf("has more than %d bytes of paths; name the folder they are in", mostAll)}
	}
	done, others, err := b.announce(who.brief(), hand, a)
	if err == nil && len(a.Scope) > 0 {
		// Of two who announce, the second to be recorded has the first in what
		// it then saw; that may be compared while others come.
		done.Overlaps = Meetings(a.Scope, who.Key, others, b.fold)
	}
	return done, err
}

func (b *Board) announce(who Peer, hand bool, a Announcement) (done Announced, others []View, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now().UTC()
	p := b.peers[who.Key]
	if p == nil {
		// By hand; or by a client whose coming and going overtook its call:
		// what it said is kept as of one that has departed.
		if who.Since.IsZero() {
			who.Since = now
		}
		p = &peer{Peer: who, departed: now}
	}
	i := slices.IndexFunc(p.claims, func(c Claim) bool { return c.Name == a.Claim })
	done = Announced{Peer: p.ID, Claim: a.Claim, Intent: a.Intent, Scope: append([]string{}, a.Scope...), Released: []string{}, Overlaps: []Meeting{}}
	if i >= 0 {
		done.Released = released(p.claims[i].Scope, a.Scope, b.fold)
	}
	if len(a.Scope) == 0 {
		if i >= 0 {
			p.claims = slices.Delete(p.claims, i, i+1)
			p.hand = p.hand && len(p.claims) > 0
			if !p.attached() && len(p.claims) == 0 {
				delete(b.peers, p.Key)
			}
			b.changedLocked(p, Event{Kind: Withdrawn, Peer: p.ID, Client: p.Client, Claim: a.Claim})
		}
		return done, nil, nil
	}
	if i < 0 && len(p.claims) == mostClaims {
		return Announced{}, nil, &LimitError{"claim", fmt.Sprintf("is one too many: this peer has %d claims; withdraw one with an empty scope", mostClaims)}
	}
	if hand = hand && p.sessions == 0 && !p.hand; hand {
		hands := 0
		for _, other := range b.peers {
			if other.hand {
				hands++
			}
		}
		if hands >= mostHands {
			return Announced{}, nil, &LimitError{"claim", fmt.Sprintf("is one too many: %d peers have announced by hand; have one withdraw its own", mostHands)}
		}
		p.hand = true
	}
	b.peers[who.Key] = p
	c := Claim{a.Claim, a.Intent, slices.Clone(a.Scope), now}
	if i >= 0 {
		p.claims[i] = c
	} else {
		p.claims = append(p.claims, c)
	}
	b.pruneLocked()
	b.changedLocked(p, Event{Kind: Claimed, Peer: p.ID, Client: p.Client, Claim: c.Name, Intent: c.Intent, Scope: c.Scope})
	return done, b.viewsLocked(), nil
}

// released returns what of a scope another does not cover.
func released(before, now []string, fold bool) []string {
	list, routes := []string{}, make([][]step, len(now))
	for i, p := range now {
		routes[i] = route(p, fold)
	}
	for _, p := range before {
		inner := route(p, fold)
		if !slices.ContainsFunc(routes, func(outer []step) bool { return covers(outer, inner) }) {
			list = append(list, p)
		}
	}
	return list
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
			t.Wrote = wrote || was.Wrote && now.Sub(was.At) < freshness
			p.touched = slices.Delete(p.touched, i, i+1)
		}
		if len(p.touched) == mostTouched {
			p.touched = slices.Delete(p.touched, 0, 1)
		}
		p.touched = append(p.touched, t)
		news = true
	}
	if news {
		b.changedLocked(p, Event{})
	}
}

// Views returns all peers, those attached first, the oldest first. Others are
// given the same: nobody may change what is in it.
func (b *Board) Views() (views []View, revision uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.viewsLocked(), b.rev
}

func (b *Board) viewsLocked() []View {
	if b.views != nil {
		return b.views
	}
	views := make([]View, 0, len(b.order))
	for _, p := range b.order {
		if p.view == nil {
			p.view = b.viewOf(p)
		}
		views = append(views, *p.view)
	}
	b.views = views
	return views
}

// compare says who of two is shown first.
func (p *peer) compare(o *peer) int {
	switch there := p.attached(); {
	case there != o.attached() && there:
		return -1
	case there != o.attached():
		return 1
	}
	return cmp.Or(p.Since.Compare(o.Since), strings.Compare(p.ID, o.ID), strings.Compare(p.Key, o.Key))
}

// placeLocked puts a peer where it is shown now, or takes it out when it is not
// on the board any more. There may be a thousand, and a change of one is no reason
// to sort them all while others wait.
func (b *Board) placeLocked(p *peer) {
	if i := slices.Index(b.order, p); i >= 0 {
		b.order = slices.Delete(b.order, i, i+1)
	}
	if b.peers[p.Key] == p {
		i, _ := slices.BinarySearchFunc(b.order, p, (*peer).compare)
		b.order = slices.Insert(b.order, i, p)
	}
}

func (b *Board) viewOf(p *peer) *View {
	v := &View{
		Peer: p.Peer, Attached: p.attached(), Claims: append([]Claim{}, p.claims...), Touched: append([]Touched{}, p.touched...),
		Checkout: b.checkout, CheckoutID: b.id,
	}
	if !v.Attached {
		at := p.departed
		v.DepartedAt = &at
	}
	slices.Reverse(v.Touched)
	return v
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
	return b.wait(ctx, &b.revBell, func() bool { return b.rev != revision })
}

// changedLocked says that a peer did; the event, if it has a kind, is noted
// before anybody learns of it.
func (b *Board) changedLocked(p *peer, e Event) {
	b.rev++
	p.view, b.views = nil, nil
	b.placeLocked(p)
	if e.Kind != "" {
		b.noteLocked(e)
	}
	b.revBell.ring()
}

// bell wakes all who wait. The channel is made by who waits, and nobody else
// pays for it.
type bell struct{ rung chan struct{} }

func (l *bell) ring() {
	if l.rung != nil {
		close(l.rung)
		l.rung = nil
	}
}

// wait waits for what is so after the bell has rung.
func (b *Board) wait(ctx context.Context, l *bell, so func() bool) error {
	for {
		b.mu.Lock()
		if so() {
			b.mu.Unlock()
			return nil
		}
		if l.rung == nil {
			l.rung = make(chan struct{})
		}
		rung := l.rung
		b.mu.Unlock()
		select {
		case <-rung:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
