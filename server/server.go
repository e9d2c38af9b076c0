// Package server is the server that a checkout's editors share: one process,
// one loopback port, one set of tools, resources and sessions.
//
// What is promised. Whoever is let in is let in by the holder of the lease as
// it was read after the client was entered, or by a process that never held
// one. Deciding to end and refusing new clients are one step, after which the
// index denies holding the lease; then the lease is given up, then what is in
// flight is drained, so that whoever meets an ending server goes to the next
// one. A lost lease ends no session: it refuses new ones, and the server ends
// with the last. Run returns only when all it started has ended.
//
// What is not promised. A client admitted at the moment of a loss is served by
// a server that has just lost its lease, and is told so within half a second.
// Changes of the layer are seen by size and time of its files, after two
// seconds at the latest while anybody is attached, and before a list is
// answered. A lost server keeps calls going for at most half an hour.
//
// Tuning. All durations are the policy's. Idle decides how long a server
// outlives its last client; BusyGrace also bounds what a signal leaves to the
// calls in flight, and is how long after a loss links without work are kept.
package server

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	mcpserver "github.com/mark3labs/mcp-go/server"

	"majordomus/lease"
	"majordomus/lease/checkout"
	"majordomus/server/board"
	"majordomus/server/hub"
	"majordomus/server/session"
)

const name = "majordomus"

// Config says what a Server serves, and how. Every field may be zero.
type Config struct {
	Checkout *checkout.Checkout // nil: outside any checkout
	Policy   checkout.Policy    // zero fields take the defaults
	Folder   *lease.Folder      // nil: no key, no lease
	Tenure   *lease.Tenure      // nil: never held a lease; serves whoever asks
	Listener net.Listener       // nil: no port; closed by Run

	Hosts  []string      // names besides those of loopback by which clients may call
	NoAuth bool          // nobody is asked for the key; for tests
	Idle   time.Duration // how long it outlives its last client; 0: the policy's, < 0: never ends

	Hosting *Hosting // nil: hosts no servers

	Version    string
	Executable lease.ExecutableIdentity // as it was when the process started
	Alone      string                   // why its client is served alone; "": it is not
	OnReady    func()                   // called once, when others can find it (or it serves, without a lease)
	Log        *slog.Logger             // nil discards

	writeStall  time.Duration // how long one write to a client may stand; zero means 30 s
	maxSessions int           // zero means 4,000
}

// A Server serves one checkout. New makes it and Run runs it, once.
type Server struct {
	cfg        Config
	log        *slog.Logger
	mcp        *mcpserver.MCPServer
	core       *session.Core
	registry   *registry
	hub        *hub.Hub // nil: hosts no servers
	generation string
	started    time.Time
	url        string // "" without a port
	door       door
	lostLimit  time.Duration // how long a lost server goes on for a call

	key     atomic.Pointer[secret] // nil: there is none; set by swapKey
	streams atomic.Int64           // that end with the key they were opened with
	joined  atomic.Bool            // somebody was here
	peak    atomic.Int64           // most clients since memory was last given back
	wake    chan struct{}          // one slot: nobody is attached any more
	bell    bell                   // rung at every change of clients and calls
	telling sync.Mutex             // one change of the registry is told at a time

	board     *board.Board
	measures  *measures
	fold      bool       // upper and lower case are the same in paths
	presence  sync.Mutex // one look at a peer at a time
	ownBoard  ownBoard
	worktrees worktrees

	prepared chan struct{} // closed when what there is to offer is known

	closing context.Context // ended when streams are to end
	close   context.CancelFunc

	stopping chan struct{} // closed by whoever asks it to stop
	forced   chan struct{} // closed by whoever wants calls cut

	codes codes // for pages
	stale staleness

	mu      sync.Mutex
	ending  string // why it ends; "": it does not. Never unmade
	stopped bool   // stopping is closed
	cut     bool   // forced is closed
	trouble string // what keeps the lease from being published, for people
}

// New returns a server that is not running yet. It reads the key, and makes it
// where there is none, if there is a port to guard.
func New(cfg Config) (*Server, error) {
	cfg.Policy = withDefaults(cfg.Policy)
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Idle == 0 {
		cfg.Idle = cfg.Policy.Idle
	}
	s := &Server{
		cfg: cfg, log: cfg.Log, generation: newGeneration(), started: time.Now().UTC(), lostLimit: 30 * time.Minute, measures: newMeasures(),
		prepared: make(chan struct{}), wake: make(chan struct{}, 1), stopping: make(chan struct{}), forced: make(chan struct{}),
	}
	s.stale.executable = cfg.Executable
	s.closing, s.close = context.WithCancel(context.Background())
	if c := cfg.Checkout; c != nil {
		s.fold = caseBlind(c.Root)
		s.board = board.New(c.Name, c.ID, s.fold)
	} else {
		s.board = board.New("", "", false)
	}
	if cfg.Tenure != nil {
		s.started = cfg.Tenure.StartedAt()
	}
	if cfg.Listener != nil {
		if err := s.guard(); err != nil {
			return nil, fmt.Errorf("preparing to serve: %w", err)
		}
	}
	s.mcp = s.newMCP()
	s.registry = newRegistry(cfg.Checkout, s.mcp, cfg.Log)
	s.hub = s.newHub()
	s.core = session.New(s.sessions())
	return s, nil
}

func (s *Server) sessions() session.Config {
	sessions := session.Config{
		MCP: s.mcp, Generation: s.generation,
		MaxMessage: s.cfg.Policy.MaxMessageBytes, SessionIdle: s.cfg.Policy.SessionIdle, ReadTimeout: s.cfg.Policy.ReadDeadline,
		Admit: s.admit, AtOnce: atOnce, Registry: s.fingerprint, OnChange: s.changed,
		OnPeer: s.present, Calls: recorder{s}, Log: s.log, WriteStall: s.stall(), MaxSessions: s.cfg.maxSessions,
	}
	if s.hub != nil {
		sessions.Hosted = s.hub
	}
	return sessions
}

func (s *Server) stall() time.Duration {
	if s.cfg.writeStall > 0 {
		return s.cfg.writeStall
	}
	return 30 * time.Second
}

// guard prepares what stands between the port and the server.
func (s *Server) guard() error {
	addr, ok := s.cfg.Listener.Addr().(*net.TCPAddr)
	if !ok {
		return fmt.Errorf("a server listens on TCP, not on %s", s.cfg.Listener.Addr().Network())
	}
	if !addr.IP.IsLoopback() && len(s.cfg.Hosts) == 0 {
		return fmt.Errorf("listening on %v, beyond this machine, takes a host name by which others may call", addr)
	}
	s.door = newDoor(addr.Port, s.cfg.Hosts)
	s.url = address(addr)
	switch key, err := s.readKey(); {
	case err == nil:
		s.swapKey(nil, key)
	case !s.cfg.NoAuth:
		return err
	}
	return nil
}

// currentKey is the key as it stands in the file, or the last one while that
// cannot be read; nil if there never was one. Whoever rotates the key writes the
// file first and may die before telling this server: until it looked, it would
// prove itself with the old key, and be taken for a stranger.
func (s *Server) currentKey() *secret {
	had := s.key.Load()
	if s.cfg.Folder == nil {
		return had
	}
	text, err := s.cfg.Folder.ReadKey()
	if err != nil || had != nil && had.text == text {
		return had
	}
	s.swapKey(had, newSecret(text))
	return s.key.Load()
}

// swapKey makes key the current one in place of had, which ends what was let in
// with that and lasts. It reports false when another one was put there before.
func (s *Server) swapKey(had, key *secret) bool {
	if had != nil && had.text == key.text {
		return true
	}
	if !s.key.CompareAndSwap(had, key) {
		return false
	}
	if had != nil {
		had.end()
		s.log.Info("the key was rotated")
	}
	return true
}

func (s *Server) readKey() (*secret, error) {
	if s.cfg.Folder == nil {
		return nil, errors.New("there is no state folder to keep a key in")
	}
	text, err := s.cfg.Folder.Key()
	if err != nil {
		return nil, err
	}
	return newSecret(text), nil
}

// ServeStream serves one client on rw, without HTTP and without a key, until
// its input ends or ctx does, and closes rw. bridge is the UUID of the bridge at
// the other end, or empty where the client itself is there, and called is what
// the last server called it. Run must be running, and is waited for until it
// knows what there is to offer: it follows the layer and ends what is served
// here when it ends.
func (s *Server) ServeStream(ctx context.Context, rw io.ReadWriteCloser, bridge, called string) error {
	select {
	case <-s.prepared:
	case <-ctx.Done(): // which is said below
	}
	if err := s.core.ServeStream(ctx, rw, session.Peer{Bridge: bridge, Called: called, Plain: bridge == "", Confirms: bridge != ""}); err != nil {
		return fmt.Errorf("serving a client: %w", err)
	}
	return nil
}

// changed is told of every change of clients and calls, so it does little: of
// the loop in Run it wakes only who waits for the last one to go.
func (s *Server) changed() {
	peers, calls := s.core.Stats()
	if peers == 0 && calls == 0 {
		select {
		case s.wake <- struct{}{}:
		default: // it has not looked yet
		}
	}
	if peers > 0 {
		s.joined.Store(true)
		for p := s.peak.Load(); int64(peers) > p && !s.peak.CompareAndSwap(p, int64(peers)); p = s.peak.Load() {
		}
	}
	s.bell.ring()
}

// secret is the key, and its digest to compare in constant time whatever the
// length of what is offered.
type secret struct {
	text string
	sum  [sha256.Size]byte
	life context.Context // ends when there is another key
	end  context.CancelFunc
}

func newSecret(text string) *secret {
	life, end := context.WithCancel(context.Background())
	return &secret{text, sha256.Sum256([]byte(text)), life, end}
}

// is compares in constant time whatever is offered.
func (k *secret) is(offered string) bool {
	sum := sha256.Sum256([]byte(offered))
	return subtle.ConstantTimeCompare(sum[:], k.sum[:]) == 1
}

// bell wakes whoever waits for the next change, and costs little while nobody
// does.
type bell struct {
	mu sync.Mutex
	ch chan struct{} // nil while nobody waits
}

// next is closed at the next ring.
func (b *bell) next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch == nil {
		b.ch = make(chan struct{})
	}
	return b.ch
}

func (b *bell) ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch != nil {
		close(b.ch)
		b.ch = nil
	}
}

// staleness knows whether the code on disk is still the code that runs. It
// looks each time it is asked, which is one stat: an editor that starts right
// after a build must not be told of the moment before. Once replaced stays
// replaced, also where the old file comes back: this server may have sent
// somebody to the next one by then.
type staleness struct {
	executable lease.ExecutableIdentity

	mu     sync.Mutex
	reason *string
}

// now is nil, or why the code on disk is not the code running.
func (s *staleness) now() *string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reason == nil {
		if reason, replaced := lease.ServingReplacedCode(s.executable); replaced {
			s.reason = &reason
		}
	}
	return s.reason
}

func withDefaults(p checkout.Policy) checkout.Policy {
	d := checkout.DefaultPolicy()
	set := func(to *time.Duration, otherwise time.Duration) {
		if *to <= 0 {
			*to = otherwise
		}
	}
	set(&p.BusyGrace, d.BusyGrace)
	set(&p.JoinTimeout, d.JoinTimeout)
	set(&p.ProbeTimeout, d.ProbeTimeout)
	set(&p.ReadDeadline, d.ReadDeadline)
	set(&p.Idle, d.Idle)
	set(&p.SessionIdle, d.SessionIdle)
	if p.MaxMessageBytes <= 0 {
		p.MaxMessageBytes = d.MaxMessageBytes
	}
	return p
}

// newGeneration names this server among those of the checkout. It is not the
// lease's token, which only the state folder has.
func newGeneration() string {
	var b [8]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
