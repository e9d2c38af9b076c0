package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"majordomus/lease"
	"majordomus/server/session"
)

const bridge = "0b1d0000-0000-4000-8000-000000000000"

func leaseholder(t *testing.T, p *place) bool {
	t.Helper()
	var x lease.Index
	p.ask("GET", "/", "").decode(t, &x)
	if x.LeaseHolder == nil {
		t.Fatal("the index does not say whether it holds the lease")
	}
	return *x.LeaseHolder
}

func TestPublishedWhenReady(t *testing.T) {
	p := prepare(t, nil)
	if d := p.folder.Read().Document; d.URL != nil {
		t.Fatalf("published before it runs: %s", *d.URL)
	}
	p.run()
	f := p.folder.Read()
	if f.Document.URL == nil || *f.Document.URL != p.url {
		t.Fatalf("%+v", f)
	}
	if reply := p.folder.Probe(t.Context(), f.Document); reply.Outcome != lease.Ours {
		t.Errorf("%v %v", reply.Outcome, reply.Err)
	}
	if !leaseholder(t, p) {
		t.Error("does not say that it holds the lease")
	}
}

// A listening port that does not answer yet is not an address to give away.
func TestNotPublishedBeforeItAnswers(t *testing.T) {
	gate := make(chan struct{})
	p := prepare(t, func(c *Config) { c.Listener = &shut{c.Listener, gate, make(chan struct{})} })
	ran := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { ran <- p.server.Run(ctx) }()
	<-p.server.cfg.Listener.(*shut).asked
	if d := p.folder.Read().Document; d.URL != nil {
		t.Errorf("published: %s", *d.URL)
	}
	close(gate)
	eventually(t, "published", func() bool { return p.folder.Read().Document.URL != nil })
	cancel()
	if err := <-ran; err != nil {
		t.Error(err)
	}
}

// shut accepts nobody before open is closed. asked is closed when there is
// somebody to accept.
type shut struct {
	net.Listener
	open, asked chan struct{}
}

func (l *shut) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	select {
	case <-l.open:
	default:
		close(l.asked)
		<-l.open
	}
	return conn, err
}

func TestLeaseLostBeforeItIsPublished(t *testing.T) {
	p := prepare(t, nil)
	if err := os.Remove(p.folder.LeasePath()); err != nil {
		t.Fatal(err)
	}
	if err := p.server.Run(t.Context()); !errors.Is(err, lease.ErrLost) {
		t.Error(err)
	}
	if _, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://")); err == nil {
		t.Error("the port is still open")
	}
}

func TestSignal(t *testing.T) {
	p := settle(t, nil)
	p.stop()
	if err := p.ended(); err != nil {
		t.Error(err)
	}
	if s := p.folder.Read().State; s != lease.Absent {
		t.Errorf("the lease is %v", s)
	}
	if _, err := p.try("GET", "/", ""); err == nil {
		t.Error("still answers")
	}
}

// A signal leaves the calls in flight the grace, and no more.
func TestSignalWithACallInFlight(t *testing.T) {
	p := settle(t, func(c *Config) { c.Policy.BusyGrace = 1500 * time.Millisecond })
	l := p.link(bridge)
	l.shake()
	l.say(call("1", "majordomus_wait", `{"seconds":0.7,"note":"short"}`))
	l.say(call("2", "majordomus_wait", `{"seconds":300,"note":"long"}`))
	l.hear("!accepted 3")
	eventually(t, "two calls in flight", func() bool { _, n := p.server.core.Stats(); return n == 2 })
	p.stop()
	l.hear("!draining")
	l.hear(`"id":1`, "short")
	if err := p.ended(); err != nil {
		t.Error(err)
	}
	l.gone()
}

// After a loss: nobody new, whoever is in goes on, and the end with the last.
func TestLoss(t *testing.T) {
	p := settle(t, func(c *Config) { c.Policy.BusyGrace = 500 * time.Millisecond })
	l := p.link(bridge)
	l.shake()
	l.say(call("1", "majordomus_wait", `{"seconds":300}`))
	l.hear("!accepted 2")
	began := time.Now()
	if err := os.Remove(p.folder.LeasePath()); err != nil {
		t.Fatal(err)
	}
	if leaseholder(t, p) {
		t.Error("still says that it holds the lease")
	}
	r := p.ask("POST", "/mcp", initialize, "Authorization", "")
	if r.status != 409 || r.code() != "lease_lost" || !strings.Contains(r.body, messageLost) {
		t.Errorf("without a key: %d %s", r.status, r.body)
	}
	if messageLost != "this server no longer holds the lease of its checkout; start again through the launcher (majordomus mcp) to reach the current one" {
		t.Error("others know this message by heart")
	}
	l.hear("!lost")
	var h report
	p.ask("GET", "/api/v1/health", "").decode(t, &h)
	if h.Status != "warn" || h.Checks[0].ID != "server" || len(h.Checks[0].Findings) != 1 || !strings.Contains(h.Checks[0].Findings[0].Message, "another one") {
		t.Errorf("%+v", h)
	}
	l.say(call("2", "majordomus_health", "{}"))
	l.hear(`"id":2`, "another one")
	eventually(t, "the grace is over", func() bool { return p.tenure.LostFor() > p.server.cfg.Policy.BusyGrace*2 })
	l.say(call("3", "majordomus_server", "{}")) // a call is in flight: the link stays
	l.hear(`"id":3`, `"leaseholder":false`)
	if !p.runs() {
		t.Error("ended with a session")
	}
	l.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
	l.gone() // nothing in flight, and the grace over
	if err := p.ended(); err != nil {
		t.Error(err)
	}
	if d := time.Since(began); d < p.server.cfg.Policy.BusyGrace {
		t.Errorf("ended after %v, within the grace", d)
	}
}

// The loss is found by whoever comes first, also by letting somebody in.
func TestLossFoundAtTheDoor(t *testing.T) {
	for _, knock := range []func(*place) reply{
		func(p *place) reply { return p.ask("POST", "/mcp", initialize) },
		func(p *place) reply {
			return p.ask("GET", "/mcp", "", "Connection", "Upgrade", "Upgrade", "majordomus-frames/1")
		},
		func(p *place) reply {
			return p.ask("POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{`+modern+`}}`,
				"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/list")
		},
	} {
		p := settle(t, nil)
		if err := os.Remove(p.folder.LeasePath()); err != nil {
			t.Fatal(err)
		}
		if r := knock(p); r.status != 409 || r.code() != codeLost || !strings.Contains(r.body, messageLost) {
			t.Errorf("%d %s", r.status, r.body)
		}
		if n, _ := p.server.core.Stats(); n != 0 {
			t.Errorf("%d are in", n)
		}
	}
}

func TestLossWithoutSessions(t *testing.T) {
	p := settle(t, func(c *Config) { c.Policy.BusyGrace = 300 * time.Millisecond })
	p.lose()
	if err := p.ended(); err != nil {
		t.Error(err)
	}
	if d := p.tenure.LostFor(); d < p.server.cfg.Policy.BusyGrace {
		t.Errorf("ended %v after the loss, within the grace", d)
	}
}

func TestLossWithACallThatDoesNotEnd(t *testing.T) {
	p := prepare(t, func(c *Config) { c.Policy.BusyGrace = 50 * time.Millisecond })
	p.server.lostLimit = time.Second
	p.run()
	l := p.link(bridge)
	l.say(call("1", "majordomus_wait", `{"seconds":300}`))
	l.hear("!accepted 1")
	p.lose()
	eventually(t, "it gives up", func() bool { return p.server.reason() != "" })
	if d := p.tenure.LostFor(); d < p.server.lostLimit {
		t.Errorf("gave up after %v", d)
	}
	p.server.stop(true) // the rest is draining
	p.ended()
}

// What another process put there in the meantime is not touched.
func TestLossToAnother(t *testing.T) {
	p := settle(t, func(c *Config) { c.Policy.BusyGrace = 50 * time.Millisecond })
	doc := p.folder.Read().Document
	doc.Token = strings.Repeat("0", 32)
	doc.Version = "v9.0.0"
	b, err := encode(doc)
	if err != nil {
		t.Fatal(err)
	}
	l := p.link(bridge)
	l.say(call("1", "majordomus_wait", `{"seconds":300}`))
	if err := os.WriteFile(p.folder.LeasePath(), b, 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the loss", p.tenure.Lost)
	r := p.ask("GET", "/api/v1/health", "")
	if !strings.Contains(r.body, "held by a server of version v9.0.0") || strings.Contains(r.body, p.root) {
		t.Error(r.body)
	}
	l.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
	p.ended()
	if d := p.folder.Read().Document; d.Token != doc.Token {
		t.Errorf("%+v", d)
	}
}

func TestIdle(t *testing.T) {
	p := settle(t, func(c *Config) { c.Idle = 150 * time.Millisecond })
	if d := p.server.idle(); d != time.Minute {
		t.Errorf("nobody has joined, and it would wait %v", d)
	}
	l := p.link(bridge)
	l.shake()
	l.say(call("1", "majordomus_wait", `{"seconds":0.4}`))
	l.hear(`"id":1`, "time")
	if p.server.reason() != "" {
		t.Error("it ends while somebody is there")
	}
	began := time.Now()
	l.conn.Close()
	if err := p.ended(); err != nil {
		t.Error(err)
	}
	if d := time.Since(began); d < 150*time.Millisecond {
		t.Errorf("ended after %v", d)
	}
	if s := p.folder.Read().State; s != lease.Absent {
		t.Errorf("the lease is %v", s)
	}
}

func TestIdleBeforeAnybodyJoined(t *testing.T) {
	p := settle(t, func(c *Config) { c.Idle, c.Policy.JoinTimeout = time.Millisecond, 300*time.Millisecond })
	began := time.Now()
	if err := p.ended(); err != nil {
		t.Error(err)
	}
	if d := time.Since(began); d < 250*time.Millisecond {
		t.Errorf("ended after %v", d)
	}
}

func TestNeverIdle(t *testing.T) {
	p := settle(t, func(c *Config) { c.Idle, c.Policy.JoinTimeout, c.Policy.Idle = -1, time.Millisecond, time.Millisecond })
	l := p.link(bridge)
	l.shake()
	l.conn.Close()
	eventually(t, "nobody there", func() bool { n, _ := p.server.core.Stats(); return n == 0 })
	select {
	case <-p.done:
		t.Error("ended")
	case <-time.After(100 * time.Millisecond): // nothing is to come
	}
}

// Deciding to end and refusing are one step: of a client that comes at that
// moment and the end exactly one gets its way.
func TestEndMeetsArrival(t *testing.T) {
	for range 3000 {
		s, err := New(Config{})
		if err != nil {
			t.Fatal(err)
		}
		s.prepare()
		ours, theirs := net.Pipe()
		var served sync.WaitGroup
		var refused error
		left := make(chan struct{})
		served.Go(func() {
			defer close(left)
			refused = s.ServeStream(t.Context(), theirs, "", "")
		})
		ended := s.endIfQuiet()
		if !ended {
			ours.Close()
		}
		<-left // refused, or left
		var r *session.Refusal
		if is := errors.As(refused, &r); ended != is {
			t.Fatalf("ended: %t, and the client met %v", ended, refused)
		}
		ours.Close()
		served.Wait()
		s.core.Close()
	}
}

func TestStop(t *testing.T) {
	p := settle(t, nil)
	l := p.link(bridge)
	l.shake()
	l.say(call("1", "majordomus_wait", `{"seconds":0.5,"note":"to its end"}`))
	eventually(t, "a call in flight", func() bool { _, n := p.server.core.Stats(); return n == 1 })
	doc := p.folder.Read().Document
	r := p.ask("POST", "/api/v1/stop", `{"force":false}`)
	if r.status != 200 || !strings.Contains(r.body, `"peers":1`) || !strings.Contains(r.body, `"in_flight":1`) {
		t.Errorf("%d %s", r.status, r.body)
	}
	if leaseholder(t, p) {
		t.Error("says that it holds the lease after it was told to stop")
	}
	if reply := p.folder.Probe(t.Context(), doc); reply.Outcome != lease.NotHolder {
		t.Errorf("a judge finds %v: %v", reply.Outcome, reply.Err)
	}
	if r := p.ask("POST", "/mcp", initialize); r.status != 503 || r.code() != "draining" {
		t.Errorf("somebody new: %d %s", r.status, r.body)
	}
	for _, path := range []string{"/api/v1/live", "/api/v1/ready"} {
		if r := p.ask("GET", path, ""); r.status != 503 || r.code() != "draining" {
			t.Errorf("%s: %d %s", path, r.status, r.body)
		}
	}
	l.hear("!draining")
	l.hear(`"id":1`, "to its end")
	if err := p.ended(); err != nil {
		t.Error(err)
	}
}

// Whoever is there is told, and is given the time to hear it.
func TestStopTellsLinks(t *testing.T) {
	for range 10 {
		p := settle(t, nil)
		l := p.link(bridge)
		l.hear("!registry")
		p.stop()
		l.hear("!draining")
		l.conn.Close()
		if err := p.ended(); err != nil {
			t.Error(err)
		}
	}
}

func TestStopByForce(t *testing.T) {
	p := settle(t, nil)
	l := p.link(bridge)
	l.shake()
	l.say(call("1", "majordomus_wait", `{"seconds":300}`))
	eventually(t, "a call in flight", func() bool { _, n := p.server.core.Stats(); return n == 1 })
	if r := p.ask("POST", "/api/v1/stop", `{}`); r.status != 200 {
		t.Errorf("%d %s", r.status, r.body)
	}
	l.hear("!draining")
	if !p.runs() {
		t.Error("cut without force")
	}
	if r := p.ask("POST", "/api/v1/stop", `{"force":true}`); r.status != 200 {
		t.Errorf("%d %s", r.status, r.body)
	}
	if err := p.ended(); err != nil {
		t.Error(err)
	}
	l.gone()
}

// A process that never held a lease has lost nothing.
func TestWithoutTenure(t *testing.T) {
	p := settle(t, func(c *Config) { c.Tenure = nil })
	p.session()
	if leaseholder(t, p) {
		t.Error("claims a lease")
	}
	if r := p.ask("GET", "/api/v1/ready", ""); r.status != 200 {
		t.Errorf("%d %s", r.status, r.body)
	}
}

func TestPortThatFails(t *testing.T) {
	p := settle(t, nil)
	p.server.cfg.Listener.Close()
	if err := p.ended(); err == nil {
		t.Error("ended without an error")
	}
	if s := p.folder.Read().State; s != lease.Absent {
		t.Errorf("the lease is %v", s)
	}
}

// An open stream holds nobody up.
func TestStopWithStreams(t *testing.T) {
	p := settle(t, nil)
	id := p.session()
	req, err := http.NewRequest("GET", p.url+"/mcp", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+p.key)
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Mcp-Session-Id", id)
	resp, err := p.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 200 {
		t.Fatal(resp.Status)
	}
	p.stop()
	if err := p.ended(); err != nil {
		t.Error(err)
	}
	io.Copy(io.Discard, resp.Body)
}

func TestNewRefuses(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := New(Config{Listener: l}); err == nil {
		t.Error("a port without a key")
	}
	if _, err := New(Config{Listener: wide{l}, NoAuth: true}); err == nil {
		t.Error("the whole network without a name")
	}
	if s, err := New(Config{}); err != nil || s.cfg.Idle != 15*time.Minute {
		t.Error(err)
	}
}

type wide struct{ net.Listener }

func (wide) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4zero, Port: 1} }

func TestListen(t *testing.T) {
	first, err := Listen("", "", 0)
	if err != nil {
		t.Fatal(err)
	}
	addr := first.Addr().(*net.TCPAddr)
	if !addr.IP.Equal(net.IPv4(127, 0, 0, 1)) {
		t.Error(addr)
	}
	// Taken: another one.
	second, err := Listen("http://"+addr.String(), "", 0)
	if err != nil {
		t.Fatal(err)
	}
	if second.Addr().String() == addr.String() {
		t.Error("twice the same")
	}
	if _, err := Listen("", "", addr.Port); err == nil {
		t.Error("a port that is taken was given")
	}
	second.Close()
	first.Close()
	// Free: the preferred one.
	want := second.Addr().(*net.TCPAddr)
	third, err := Listen("http://"+want.String(), "", 0)
	if err != nil {
		t.Fatal(err)
	}
	if third.Addr().String() != want.String() {
		t.Errorf("%v, want %v", third.Addr(), want)
	}
	third.Close()
	fixed, err := Listen("", "localhost", want.Port)
	if err != nil || fixed.Addr().String() != want.String() {
		t.Fatal(fixed, err)
	}
	fixed.Close()
	for _, bad := range []int{-1, 65536} {
		if _, err := Listen("", "", bad); err == nil {
			t.Error(bad)
		}
	}
	for _, prefer := range []string{"::", "http://127.0.0.1:99999", "http://127.0.0.1:0", "nonsense"} {
		l, err := Listen(prefer, "", 0)
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
	}
}

func TestListenOnTwoAddresses(t *testing.T) {
	l, err := Listen("", "::1", 0)
	if err != nil {
		t.Skip(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	got := make(chan string)
	go func() {
		defer close(got)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			got <- conn.LocalAddr().String()
			conn.Close()
		}
	}()
	for _, host := range []string{"127.0.0.1", "::1"} {
		to := net.JoinHostPort(host, fmt.Sprint(port))
		conn, err := net.Dial("tcp", to)
		if err != nil {
			t.Fatal(err)
		}
		if s := <-got; s != to {
			t.Errorf("%s came to %s", to, s)
		}
		conn.Close()
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	<-got
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	// Closed before anybody accepted.
	l, err = Listen("", "::1", 0)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}

func TestContextEndedBeforeRun(t *testing.T) {
	p := prepare(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.server.Run(ctx); err != nil {
		t.Error(err)
	}
	if s := p.folder.Read().State; s != lease.Absent {
		t.Errorf("the lease is %v", s)
	}
}
