package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"majordomus/lease"
	"majordomus/server/board"
	"majordomus/server/session"
)

const (
	// layerPoll is how often the layer is looked at while anybody is
	// attached. See housekeep.
	layerPoll = 2 * time.Second

	// soonAgain is how long after a look that failed the next one is due, and
	// twice as long after each that fails as well, up to layerPoll.
	soonAgain = 50 * time.Millisecond

	// answerLimit is how long its own port may at least take to answer: a
	// policy that is in a hurry makes no machine faster.
	answerLimit = 5 * time.Second

	// drainLimit is how long an ending server that nobody presses waits for
	// the calls in flight: as long as the longest of its own tools.
	drainLimit = longestWait

	// leaveLimit is how long clients that have nothing in flight are given to
	// go by themselves once they are told.
	leaveLimit = 200 * time.Millisecond

	// closeLimit is how long answers that are being written may take.
	closeLimit = 500 * time.Millisecond

	// manyLeft is how many clients have to have gone before memory is worth
	// giving back.
	manyLeft = 100
)

// Run serves until the server has been idle for long enough, was told to stop,
// has lost its lease and its last client, or ctx ends; each of these is a nil
// error. What is in flight is then drained: after the end of ctx for the
// policy's BusyGrace, so that a signal ends it soon. It returns when all it
// started has ended, with the lease released and the listener closed.
func (s *Server) Run(ctx context.Context) error {
	life, end := context.WithCancel(context.Background()) // of all that Run starts: it outlasts ctx, to drain
	defer end()
	var wg sync.WaitGroup
	wg.Go(func() { s.core.Run(life) }) // ignore error: always nil
	wg.Go(func() { s.housekeep(life) })
	wg.Go(func() { s.tellBoard(life) })
	if s.cfg.Tenure != nil {
		wg.Go(func() { s.cfg.Tenure.Run(life) }) // ignore error: always nil
	}
	if s.hub != nil && s.cfg.Tenure != nil {
		// Beside all else: what a killed server left is no hurry of anybody's.
		wg.Go(func() { s.hub.Sweep() })
	}
	s.prepare()
	failed := make(chan error, 1)
	var conns sync.WaitGroup // until each has come to the end of its goroutine, or was made a link
	web := s.newWeb(&conns)
	if s.cfg.Listener != nil {
		s.warnOfOpenDoors()
		wg.Go(func() {
			if err := web.Serve(session.Guard(outlast(s.cfg.Listener, s.log), s.stall())); !errors.Is(err, http.ErrServerClosed) {
				failed <- err
			}
		})
	}

	err := s.announce(ctx, failed)
	if err == nil && ctx.Err() == nil {
		if s.cfg.OnReady != nil {
			s.cfg.OnReady()
		}
		err = s.stay(ctx, failed)
	}
	s.end("it is stopped") // if it was not decided already
	s.leave(ctx)

	closing, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	if web.Shutdown(closing) != nil { // ignore error: whoever is still there was told
		web.Close() // ignore error: as above
	}
	end()
	wg.Wait()
	conns.Wait()
	s.log.Info("ended", "because", s.reason())
	if err != nil {
		return fmt.Errorf("serving: %w", err)
	}
	return nil
}

// prepare learns what there is to offer, before anybody is served: the address of
// a server that takes another one's place is known as soon as the lease is its
// own, and whoever comes at once would be told that a tool is not there.
func (s *Server) prepare() {
	if s.hub != nil {
		s.hub.Look() // what was kept of hosted servers is listed from the start
	}
	s.registry.current() // the first walk: the index counts what it finds
	close(s.prepared)
}

// announce makes the server one that others can find, once it answers.
func (s *Server) announce(ctx context.Context, failed <-chan error) error {
	if s.cfg.Listener != nil {
		if err := s.answers(ctx, failed); err != nil {
			return err
		}
		s.log.Info("listening", "url", s.url, "version", s.cfg.Version)
	}
	if s.cfg.Tenure == nil {
		return nil
	}
	// What started this server waits for JoinTimeout, and is to hear before what
	// was in the way: a disk that had room for the lease and is full now.
	limit := time.Now().Add(s.cfg.Policy.JoinTimeout / 2)
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, 500*time.Millisecond) {
		err := s.cfg.Tenure.Publish(s.url)
		if err == nil || errors.Is(err, lease.ErrLost) || !time.Now().Before(limit) {
			s.setTrouble("")
			return err
		}
		// The lease is ours and stays so: what was in the way may pass.
		s.setTrouble(plain(err))
		s.log.Warn("publishing the address", "err", err)
		if !pausing(ctx, pause) {
			return nil
		}
	}
}

// answers waits until the server's own port answers a request, as a client
// would make it: an address must not be published before.
func (s *Server) answers(ctx context.Context, failed <-chan error) error {
	ctx, cancel := context.WithTimeout(ctx, max(s.cfg.Policy.JoinTimeout, answerLimit))
	defer cancel()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // without proxies
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		err := ask(ctx, client, s.url+"/api/v1/live")
		if err == nil {
			return nil
		}
		select {
		case err := <-failed:
			return err
		default:
		}
		if !pausing(ctx, pause) {
			if context.Cause(ctx) == context.DeadlineExceeded {
				return fmt.Errorf("its own port does not answer: %w", err)
			}
			return nil
		}
	}
}

// ask reports whether url answers at all. What it answers does not matter: a
// lease that cannot be read, or was lost, shows where it is published.
func ask(ctx context.Context, client *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close() // ignore error: read to its end
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// stay returns when the server is to end. Whoever decides that has made it
// refuse new clients in the same step.
func (s *Server) stay(ctx context.Context, failed <-chan error) error {
	var lost <-chan struct{}
	if s.cfg.Tenure != nil {
		lost = s.cfg.Tenure.Context().Done()
	}
	idle := time.NewTimer(s.idle())
	defer idle.Stop()
	if s.cfg.Idle < 0 {
		idle.Stop()
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.stopping:
			return nil
		case err := <-failed:
			return err
		case <-lost:
			return s.outlive(ctx, failed)
		case <-s.wake:
			// The last one went: it is idle from now on.
			if s.cfg.Idle >= 0 {
				idle.Reset(s.idle())
			}
		case <-idle.C:
			if s.endIfQuiet() {
				return nil
			}
			// Somebody is there; when the last one goes, wake says so.
		}
	}
}

// idle is how long it waits for somebody. One that nobody has joined yet was
// started for somebody who is on the way: with a small Idle, starting and
// ending would alternate.
func (s *Server) idle() time.Duration {
	if s.joined.Load() {
		return s.cfg.Idle
	}
	return max(s.cfg.Idle, s.cfg.Policy.JoinTimeout)
}

// outlive goes on for the sessions of a server that has lost its lease. Those
// with nothing in flight are ended once the grace is over: a bridge that was
// told has left by then, and one that was not would keep two servers for ever.
func (s *Server) outlive(ctx context.Context, failed <-chan error) error {
	s.log.Warn("no longer holding the lease: only those who are attached are served on")
	s.board.Note(board.Event{Kind: board.LeaseLost, Message: messageLost})
	s.core.Tell("!lost")
	tick := time.NewTicker(min(max(s.cfg.Policy.BusyGrace/4, 5*time.Millisecond), 500*time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.stopping:
			return nil
		case err := <-failed:
			return err
		case <-s.wake:
		case <-tick.C:
		}
		since := s.cfg.Tenure.LostFor()
		if since < s.cfg.Policy.BusyGrace {
			continue
		}
		s.core.CloseIdle()
		if peers, calls := s.core.Stats(); peers == 0 && calls == 0 {
			s.end("it lost its lease, and its last client has gone")
			return nil
		}
		if since >= s.lostLimit {
			s.end("it lost its lease too long ago to go on for those who stay")
			return nil
		}
	}
}

// leave gives the lease up and then drains, in this order: drained first, the
// clients refused would find file and index still naming this server and come
// straight back.
func (s *Server) leave(ctx context.Context) {
	if s.cfg.Tenure != nil {
		if err := s.cfg.Tenure.Release(); err != nil {
			s.log.Warn("giving the lease up", "err", err)
		}
	}
	s.core.Leave()
	s.drain(ctx)
	s.farewell()
	s.close()
	s.core.Close()
	s.endHosted(ctx)
}

// drain waits for the calls in flight: for drainLimit; from the end of ctx on
// for BusyGrace; not at all once it is forced.
func (s *Server) drain(ctx context.Context) {
	inner, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan struct{})
	go func() { // ended by cancel, waited for by every return below
		defer close(done)
		if err := s.core.Drain(inner); err != nil {
			s.log.Warn("cutting what is in flight", "err", err)
		}
	}()
	limit := time.NewTimer(drainLimit)
	defer limit.Stop()
	ended, forced := ctx.Done(), (<-chan struct{})(s.forced)
	for {
		select {
		case <-done:
			return
		case <-ended:
			ended = nil
			limit.Reset(s.cfg.Policy.BusyGrace)
		case <-limit.C:
			cancel()
		case <-forced:
			forced = nil
			cancel()
		}
	}
}

// farewell gives clients a moment to go by themselves. What was told last is
// still on its way to them: an answer counts as given when it is about to be
// written.
func (s *Server) farewell() {
	limit := time.NewTimer(leaveLimit)
	defer limit.Stop()
	for {
		next := s.bell.next()
		if peers, _ := s.core.Stats(); peers == 0 {
			return
		}
		select {
		case <-next:
		case <-limit.C:
			return
		case <-s.forced:
			return
		}
	}
}

// housekeep follows the layer, and gives memory back after many clients have
// gone.
//
// The layer is polled, not watched. A watch for every folder takes from a
// limit that editors already exhaust, sees nothing of what is written on the
// other side of a bind mount or a network, and differs on every system, which would
// take another module. A walk of the largest layer there can be takes some ten
// milliseconds, and happens only while somebody is there to be told.
func (s *Server) housekeep(ctx context.Context) {
	select {
	case <-s.prepared: // which is the first look
	case <-ctx.Done():
		return
	}
	var pause time.Duration // since a look that failed
	due := func() time.Duration {
		if !s.unseen() {
			pause = 0
			return layerPoll
		}
		pause = min(max(2*pause, soonAgain), layerPoll)
		return pause
	}
	tick := time.NewTimer(due())
	defer tick.Stop()
	again := 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		peers, _ := s.core.Stats()
		if peers > 0 || s.registry.failing() != "" {
			s.follow()
		}
		if s.hub != nil {
			// Without anybody there too: what is hosted outlives its clients,
			// but not the trust in its file.
			s.hub.Look()
		}
		tick.Reset(due())
		if s.streams.Load() > 0 {
			s.currentKey() // whoever rotated it may have told nobody
		}
		if s.peak.Load()-int64(peers) > manyLeft {
			s.peak.Store(int64(peers))
			again = 3
			s.core.Compact()
			s.board.Compact()
			if s.hub != nil {
				s.hub.Compact()
			}
		}
		if s.core.TookMuch() {
			again = 2
		}
		if again > 0 {
			// Not once: what pools hold goes with the second collection, and
			// those who leave together do not all leave before one tick.
			again--
			debug.FreeOSMemory()
		}
	}
}

// unseen reports whether the last look at the layer, or at what is to be hosted,
// failed: what is listed may lack what is there. What nobody trusts was seen.
func (s *Server) unseen() bool {
	if s.registry.failing() != "" {
		return true
	}
	if s.hub == nil {
		return false
	}
	_, _, trouble := s.hub.Trouble()
	var untrusted *Untrusted
	return trouble != nil && !errors.As(trouble, &untrusted)
}

// follow looks at the layer and tells whoever listens of what is new there.
func (s *Server) follow() {
	touched, changed := s.registry.refresh()
	if !changed {
		return
	}
	s.telling.Lock()
	defer s.telling.Unlock()
	s.core.ListChanged("resources")
	for _, uri := range touched {
		s.core.Updated(uri)
	}
	// Read here, so that the last told is the last there is.
	s.core.Tell("!registry " + s.fingerprint())
}

// admit is asked about a client that is entered already. Entered first, read
// second, answered third: whoever takes the lease between reading and
// answering finds nobody admitted later than that, and no lock is needed that
// a stopped server could keep from everybody.
func (s *Server) admit() error {
	if r := s.refusal(); r != nil {
		return r
	}
	if s.cfg.Tenure == nil {
		return nil
	}
	own, err := s.cfg.Tenure.IsOwn()
	if r := s.refusal(); r != nil { // an end, or a loss, in the meantime
		return r
	}
	if err != nil {
		return &session.Refusal{Status: http.StatusServiceUnavailable, Code: codeUnreadable, Message: unreadable(err)}
	}
	if !own {
		return &session.Refusal{Status: http.StatusServiceUnavailable, Code: codeDraining, Message: messageDraining}
	}
	return nil
}

// refusal is why nobody new is let in, judged without looking at the lease, or
// nil.
func (s *Server) refusal() *session.Refusal {
	if s.lost() {
		return &session.Refusal{Status: http.StatusConflict, Code: codeLost, Message: messageLost}
	}
	if s.reason() != "" {
		return &session.Refusal{Status: http.StatusServiceUnavailable, Code: codeDraining, Message: messageDraining}
	}
	return nil
}

func (s *Server) lost() bool { return s.cfg.Tenure != nil && s.cfg.Tenure.Lost() }

// holding reads the lease and reports whether it is this server's, and whether
// it means to keep it. An error says that it could not be told.
func (s *Server) holding() (bool, error) {
	if s.cfg.Tenure == nil || s.reason() != "" {
		return false, nil
	}
	own, err := s.cfg.Tenure.IsOwn()
	if err != nil {
		return false, err
	}
	return own && s.reason() == "", nil
}

// end makes the server one that ends, for the first reason there is.
func (s *Server) end(why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending == "" {
		s.ending = why
		s.board.Note(board.Event{Kind: board.Ending, Message: why})
	}
}

// endIfQuiet ends a server that nobody uses. A client is entered before it
// asks whether it may stay, so either it is counted here, or it finds the
// server ending.
func (s *Server) endIfQuiet() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if peers, calls := s.core.Stats(); peers > 0 || calls > 0 {
		return false
	}
	if s.ending == "" {
		s.ending = "nobody has used it for long enough"
		s.board.Note(board.Event{Kind: board.Ending, Message: s.ending})
	}
	return true
}

// stop makes the server end as if it were idle; force also cuts what is in
// flight. It may be called again, to force.
func (s *Server) stop(force bool) {
	s.end("it was told to stop")
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopped {
		s.stopped = true
		close(s.stopping)
	}
	if force && !s.cut {
		s.cut = true
		close(s.forced)
	}
}

// reason is why the server ends, or "".
func (s *Server) reason() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ending
}

func (s *Server) setTrouble(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trouble = what
}

func (s *Server) newWeb(conns *sync.WaitGroup) *http.Server {
	return &http.Server{
		Handler:           s,
		ReadHeaderTimeout: s.cfg.Policy.ReadDeadline,
		// What reads a body has a deadline of its own and each write has one;
		// a stream as such has none, so there is no ReadTimeout and no
		// WriteTimeout.
		IdleTimeout:                  s.cfg.Policy.ReadDeadline,
		MaxHeaderBytes:               64 << 10,
		DisableGeneralOptionsHandler: true, // it would answer before the gate
		ConnContext:                  s.core.ConnContext,
		ConnState: func(c net.Conn, state http.ConnState) {
			s.core.ConnState(c, state)
			switch state {
			case http.StateNew:
				conns.Add(1)
			case http.StateClosed, http.StateHijacked:
				conns.Done()
			}
		},
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelWarn),
	}
}

func (s *Server) warnOfOpenDoors() {
	if s.cfg.NoAuth {
		s.log.Warn("NO KEY IS ASKED FOR: every process that reaches this port can read this checkout and run its tools", "url", s.url)
	}
	for _, h := range s.cfg.Hosts {
		if ip := net.ParseIP(h); h != "localhost" && (ip == nil || !ip.IsLoopback()) {
			s.log.Warn("listening beyond this machine: whoever has the key can use it from there, and the key is sent unencrypted", "host", h)
		}
	}
}

// pausing waits for d; it reports false when ctx ended first.
func pausing(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
