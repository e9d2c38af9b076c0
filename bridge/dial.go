package bridge

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"majordomus/bridge/frame"
)

// protocol is what the server is asked to speak after the handshake.
const protocol = "majordomus-frames/1"

// A Refusal is what a server answered at the door.
type Refusal struct {
	Status  int    // of HTTP
	Code    string // "lease_lost", "unauthorized", "draining", …
	Message string
}

func (r *Refusal) Error() string {
	if r.Message == "" {
		return fmt.Sprintf("the server refused the link: %d %s", r.Status, r.Code)
	}
	return fmt.Sprintf("the server refused the link: %s (%s)", r.Message, r.Code)
}

// elsewhere reports whether the refusal means that another server should be
// looked for. Any other one would be met again. Who cannot read its lease just
// now may be able to in a moment; if not, the search finds it silent and takes its
// place.
func (r *Refusal) elsewhere() bool {
	return r.Status == http.StatusConflict && r.Code == "lease_lost" ||
		r.Status == http.StatusServiceUnavailable && (r.Code == "draining" || r.Code == "lease_unreadable")
}

// seek starts a search for the server. One at a time.
func (b *bridge) seek(why error, pause time.Duration) {
	b.seeking = true
	b.wg.Go(func() {
		if pause > 0 {
			select {
			case <-time.After(pause):
			case <-b.ctx.Done():
				return
			}
		}
		l, final, err := b.join(why)
		b.update(func() {
			b.seeking = false
			switch {
			case b.ended, b.ctx.Err() != nil: // or about to be, and nobody is answered any more
				if l != nil {
					b.after = append(b.after, func() { l.close(false) })
				}
			case err == nil:
				b.adopt(l)
			case final:
				b.giveUp(err)
			default:
				b.log.Debug("a server could not be joined", "because", err)
				b.failed(err, false)
			}
		})
	})
}

// join finds the server and opens a link to it. A final error is one that
// another search would only meet again.
func (b *bridge) join(why error) (l *link, final bool, err error) {
	// Find has bounds of its own; this one keeps a client from silence.
	ctx, cancel := context.WithTimeout(b.ctx, 4*b.cfg.JoinTimeout)
	defer cancel()
	endpoint, err := b.cfg.Find(ctx, why)
	if err != nil {
		return nil, true, err
	}
	l, err = b.open(endpoint)
	var refusal *Refusal
	if errors.As(err, &refusal) && refusal.Status == http.StatusUnauthorized && endpoint.Key != nil {
		// The key may have been replaced between reading and using it.
		l, err = b.open(endpoint)
		errors.As(err, &refusal)
	}
	return l, err != nil && refusal != nil && !refusal.elsewhere(), err
}

func (b *bridge) open(e Endpoint) (*link, error) {
	if e.Open != nil {
		conn, err := e.Open(b.ctx, b.name())
		if err != nil {
			return nil, fmt.Errorf("opening the server in this process: %w", err)
		}
		return newLink(conn, conn, b.begin), nil
	}
	key := ""
	if e.Key != nil {
		var err error
		if key, err = e.Key(); err != nil {
			return nil, fmt.Errorf("reading the checkout's key: %w", err)
		}
	}
	ctx, cancel := context.WithTimeout(b.ctx, b.cfg.BusyGrace)
	defer cancel()
	conn, r, err := dial(ctx, e.URL, key, identity{b.cfg.ID, b.name(), b.cfg.Starter, b.joined.Load()})
	if err != nil {
		return nil, fmt.Errorf("joining the server at %s: %w", e.URL, err)
	}
	b.joined.Add(1)
	return newLink(conn, r, b.begin), nil
}

// dial asks the server at address for a link, until ctx ends. It goes straight
// there, whatever proxies the environment names. What answers may be anybody:
// of it no more than headBytes are read.
func dial(ctx context.Context, address, key string, who identity) (net.Conn, io.Reader, error) {
	const headBytes = 64 << 10
	u, err := url.Parse(address)
	if err != nil {
		return nil, nil, err
	}
	host := u.Host
	if u.Scheme != "http" || host == "" {
		return nil, nil, errors.New("this is not the address of a server")
	}
	if u.Port() == "" {
		host = net.JoinHostPort(u.Hostname(), "80")
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", host)
	if err != nil {
		return nil, nil, err
	}
	r, err := shake(ctx, conn, headBytes, request(u.Host, key, who))
	if err != nil {
		conn.Close() // ignore error: it is done with
		if ctx.Err() != nil {
			err = fmt.Errorf("it did not answer in time: %w", err)
		}
		return nil, nil, err
	}
	return conn, r, nil
}

// identity is who asks for a link.
type identity struct {
	id      string // the bridge's
	name    string // that it had elsewhere, if it was not the usual one
	starter string // the process that started it
	before  int64  // how many links it had
}

// name is what a server called us, if that has to be told to the next.
func (b *bridge) name() string {
	name, _ := b.called.Load().(string)
	return name
}

// request is the head that asks for a link.
func request(host, key string, who identity) string {
	var head strings.Builder
	line := func(name, value string) {
		// Nothing that comes from a file may end the line and begin another.
		if value != "" && !strings.ContainsAny(value, "\r\n") {
			head.WriteString(name + ": " + value + "\r\n")
		}
	}
	head.WriteString("GET /mcp HTTP/1.1\r\n")
	line("Host", host)
	line("Connection", "Upgrade")
	line("Upgrade", protocol)
	if key != "" {
		line("Authorization", "Bearer "+key)
	}
	line("Majordomus-Bridge", who.id)
	line("Majordomus-Peer", who.name)
	line("Majordomus-Starter", who.starter)
	line("Majordomus-Confirm", "run") // it is told when to run what may not run twice
	if who.before > 0 {
		line("Majordomus-Rejoins", strconv.FormatInt(who.before, 10)) // counted there
	}
	head.WriteString("\r\n")
	return head.String()
}

// shake sends the request's head and reads the answer's. The reader that it
// returns goes on behind it.
func shake(ctx context.Context, conn net.Conn, limit int64, head string) (io.Reader, error) {
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	if _, err := io.WriteString(conn, head); err != nil {
		return nil, err
	}
	bounded := &io.LimitedReader{R: conn, N: limit}
	r := bufio.NewReader(bounded)
	response, err := http.ReadResponse(r, nil)
	if err != nil {
		return nil, fmt.Errorf("it did not answer as a server does: %w", err)
	}
	if response.StatusCode == http.StatusSwitchingProtocols && response.Header.Get("Upgrade") == protocol {
		if !stop() {
			return nil, ctx.Err()
		}
		bounded.N = math.MaxInt64
		return r, nil
	}
	defer stop()
	body, err := io.ReadAll(response.Body) // bounded like the rest
	refusal := &Refusal{Status: response.StatusCode}
	refusal.Code, _ = frame.Text(frame.Get(body, "error", "code"))
	refusal.Message, _ = frame.Text(frame.Get(body, "error", "message"))
	if refusal.Code == "" {
		return nil, errors.Join(fmt.Errorf("it answered %s, as no server of ours does", response.Status), err)
	}
	return nil, refusal
}

// adopt makes a new link the one in use, once its server knows what the last
// one knew.
func (b *bridge) adopt(l *link) {
	b.start(l)
	b.incoming = l
	switch {
	case b.opening != nil:
		// The client's own initialize is on its way: it goes to the server
		// that it will be answered by.
		if c := b.opening; c.link != nil {
			b.release(c)
			b.sendCall(l, c)
		}
		b.told(l)
	case b.mem.init != nil:
		b.replay(l, b.mem.init, func(m frame.Message) {
			if m.Result == nil {
				b.lose(l, fmt.Errorf("the server refused what the client began with: %s", frame.Get(m.Error, "message")))
				return
			}
			b.told(l)
		})
	default:
		b.told(l)
	}
}

// refused returns the calls that servers would not run, in the order they came.
func (b *bridge) refused() []*call {
	var list []*call
	for _, l := range b.links {
		for _, c := range l.calls {
			if c.refused && !c.listen {
				list = append(list, c)
			}
		}
	}
	slices.SortFunc(list, func(x, y *call) int { return x.seq - y.seq })
	return list
}

// told sends l what else the last server knew, and then what waits.
func (b *bridge) told(l *link) {
	if b.mem.init != nil && b.mem.initialized != nil {
		b.send(l, b.mem.initialized)
	}
	for _, k := range b.mem.kept {
		if !k.removes {
			b.remind(l, k)
		}
	}
	for _, c := range b.listens() {
		if !c.waiting {
			b.release(c)
			b.sendCall(l, c)
		}
	}
	for _, c := range b.refused() {
		b.release(c)
		b.sendCall(l, c)
	}
	b.link, b.incoming = l, nil
	if b.rootsMove {
		b.rootsMove = false
		b.leave(l)
	}
	b.log.Debug("joined a server")
	b.flush()
}
