package session

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"majordomus/bridge/frame"
)

// Protocol is what a bridge upgrades a connection to.
const Protocol = "majordomus-frames/1"

// BridgeHeader names the bridge, by a UUID that outlives servers.
const BridgeHeader = "Majordomus-Bridge"

// Peer says who is at the other end of a stream.
type Peer struct {
	Bridge string // the bridge's UUID; "" for a client without
	// Plain says that the other end is a client, not a bridge: it gets no
	// control lines, and what it has in flight when its input ends is still
	// answered.
	Plain bool
}

// ServeStream serves one client on rw until its input ends or ctx does, and
// closes rw. It returns a *Refusal when the client is not let in, and nil at
// the end of the input.
func (c *Core) ServeStream(ctx context.Context, rw io.ReadWriteCloser, p Peer) error {
	defer rw.Close() // ignore error: both sides are done with it
	s := c.newSession(frontLink, p.Bridge)
	s.control = !p.Plain
	if p.Plain {
		s.front = frontStdio
	}
	if err := c.enter(s, nil); err != nil {
		return err
	}
	return c.serveLink(ctx, s, rw)
}

// upgrade makes the connection of r a link.
func (c *Core) upgrade(w http.ResponseWriter, r *http.Request) {
	if !strings.EqualFold(r.Header.Get("Upgrade"), Protocol) || !hasToken(r.Header.Get("Connection"), "upgrade") {
		w.Header().Set("Upgrade", Protocol)
		w.Header().Set("Connection", "Upgrade")
		refuse(w, &Refusal{http.StatusUpgradeRequired, "invalid_upgrade", "the only protocol to upgrade to is " + Protocol})
		return
	}
	s := c.newSession(frontLink, r.Header.Get(BridgeHeader))
	s.control = true
	if err := c.enter(s, nil); err != nil {
		refuse(w, err)
		return
	}
	conn, brw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		s.close()
		refuse(w, &Refusal{http.StatusInternalServerError, "no_upgrade", "this connection cannot be upgraded"})
		return
	}
	conn.SetDeadline(time.Time{}) // ignore error: a broken connection shows at the first write
	rw := &stallGuard{Conn: conn, in: conn, stall: c.cfg.WriteStall}
	if n := brw.Reader.Buffered(); n > 0 {
		early, _ := brw.Reader.Peek(n) // ignore error: they are there
		rw.in = io.MultiReader(strings.NewReader(string(early)), conn)
	}
	// In a goroutine of our own: returning lets net/http drop its buffers and
	// its stack, which a thousand idle links would keep.
	if !c.spawn(func() {
		defer conn.Close() // ignore error: both sides are done with it
		if _, err := io.WriteString(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+Protocol+"\r\n\r\n"); err != nil {
			s.close()
			return
		}
		c.serveLink(c.ctx, s, rw) // ignore error: it is the end of the link, whichever
	}) {
		s.close()
		conn.Close() // ignore error: nobody was served on it
	}
}

// piece is how much is written before a client gets new time to read it.
const piece = 256 << 10

// stallGuard bounds how long one write may stand, so that a client which does
// not read loses its own link and no goroutine is kept for ever.
type stallGuard struct {
	net.Conn
	in    io.Reader // what the upgrade had read ahead, then the connection
	stall time.Duration
}

// Write writes piece by piece, each with a time of its own: a slow reader keeps
// its link as long as it goes on reading.
func (g *stallGuard) Write(b []byte) (n int, err error) {
	for {
		piece := b[n:min(len(b), n+piece)]
		g.SetWriteDeadline(time.Now().Add(g.stall)) // ignore error: the write tells
		m, err := g.Conn.Write(piece)
		if n += m; err != nil || n == len(b) {
			return n, err
		}
	}
}

func (g *stallGuard) Read(b []byte) (int, error) { return g.in.Read(b) }

func hasToken(header, token string) bool {
	for part := range strings.SplitSeq(header, ",") {
		if strings.EqualFold(strings.TrimSpace(part), token) {
			return true
		}
	}
	return false
}

// serveLink reads lines until the stream ends, and returns when every request
// that came over it has ended.
func (c *Core) serveLink(ctx context.Context, s *Session, rw io.ReadWriteCloser) error {
	defer s.close()
	// Whatever ends the session ends the reading.
	defer context.AfterFunc(s.ctx, func() { rw.Close() })() // ignore error: the reader finds it closed
	defer context.AfterFunc(ctx, s.close)()

	w := frame.NewWriter(rw)
	// Nothing can be said any more after a failed write, and the reader may
	// never notice: a client that does not read need not say anything either.
	write := func(b []byte) error {
		err := w.Write(b)
		if err != nil {
			s.close()
		}
		return err
	}
	if s.control && c.cfg.Registry != nil {
		if err := write([]byte("!registry " + c.cfg.Registry())); err != nil {
			return err
		}
	}
	defer s.attach(write)()

	var calls sync.WaitGroup
	defer func() {
		s.close() // first: it ends the calls that are waited for
		calls.Wait()
	}()
	// malformed answers what is no message; an answer that is none is dropped.
	malformed := func(bad *frame.Error) error {
		if bad.Response {
			return nil
		}
		return write(frame.Failure(bad.ID, bad.Code, bad.Message, nil))
	}
	r := frame.NewReader(rw, c.cfg.MaxMessage)
	requests := 0
	for {
		line, err := r.Next()
		var bad *frame.Error
		switch {
		case errors.As(err, &bad):
			if err := malformed(bad); err != nil {
				return err
			}
			continue
		case err == io.EOF:
			if !s.control {
				s.inputEnded()
				calls.Wait() // a client that closed its side still reads
			}
			return nil
		case err != nil:
			return err
		case line[0] == '!':
			if !s.control {
				write(frame.Failure(nil, frame.CodeParse, "not JSON", nil)) // ignore error: the next write tells
				continue
			}
			switch strings.TrimSpace(string(line)) {
			case "!ping":
				if err := write([]byte("!pong")); err != nil {
					return err
				}
			case "!bye":
				return nil
			}
			continue
		}
		m, err := frame.Parse(clone(line))
		if errors.As(err, &bad) {
			if err := malformed(bad); err != nil {
				return err
			}
			continue
		}
		switch {
		case m.IsResponse():
			s.heard(m)
			s.answered(m)
			continue
		case m.IsNotification():
			s.heard(m)
			s.notified(m)
			continue
		}
		requests++
		if s.control {
			// Before it runs, so that a bridge whose server dies knows
			// what may have happened and what cannot have.
			if err := write([]byte("!accepted " + strconv.Itoa(requests))); err != nil {
				return err
			}
		}
		run := s.begin(s.ctx, m, write)
		answer := func() { run(write) }
		if m.Name() == "initialize" {
			answer() // in order: what follows meets a session that shook hands
			continue
		}
		calls.Go(answer)
	}
}
