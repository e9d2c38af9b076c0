package bridge

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"majordomus/bridge/frame"
)

func TestMain(m *testing.M) {
	// A deadlock is told with the stacks of all that take part in it.
	guard := time.AfterFunc(4*time.Minute, func() {
		debug.SetTraceback("all")
		panic("the tests do not come to an end")
	})
	code := m.Run()
	guard.Stop()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

const welcome = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: majordomus-frames/1\r\n\r\n"

// A host is a process on a port, of whatever kind. Each connection is handed to
// the test.
type host struct {
	t     *testing.T
	l     net.Listener
	conns chan *guest
}

// A guest is one connection, seen from the server.
type guest struct {
	t    *testing.T
	conn *net.TCPConn
	r    *bufio.Reader
}

func newHost(t *testing.T) *host {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := &host{t: t, l: l, conns: make(chan *guest, 100)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			h.conns <- &guest{t, c.(*net.TCPConn), bufio.NewReader(c)}
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-done
		close(h.conns)
		for g := range h.conns {
			g.conn.Close()
		}
	})
	return h
}

func (h *host) url() string { return "http://" + h.l.Addr().String() }

// accept takes the next connection and reads the head of its request.
func (h *host) accept() *guest {
	h.t.Helper()
	g := <-h.conns
	h.t.Cleanup(func() { g.conn.Close() })
	return g
}

func (g *guest) head() string {
	g.t.Helper()
	var b strings.Builder
	for {
		line, err := g.r.ReadString('\n')
		if err != nil {
			g.t.Fatal(err)
		}
		if b.WriteString(line); line == "\r\n" {
			return b.String()
		}
	}
}

// welcome opens a link.
func (h *host) welcome() *guest {
	h.t.Helper()
	g := h.accept()
	g.head()
	g.say(welcome)
	return g
}

func (g *guest) say(s string) {
	g.t.Helper()
	if _, err := io.WriteString(g.conn, s); err != nil {
		g.t.Error(err) // not Fatal: some say it beside the test
	}
}

// much complains when the bridge took more than buffers hold.
func (g *guest) much(n int) {
	if n == 20_000_000 {
		g.t.Error("20 MB of nonsense were read")
	}
}

func (g *guest) line() string {
	g.t.Helper()
	line, err := g.r.ReadString('\n')
	if err != nil {
		g.t.Fatalf("%q, %v", line, err)
	}
	return strings.TrimSuffix(line, "\n")
}

func (g *guest) want(want string) {
	g.t.Helper()
	if got := g.line(); got != want {
		g.t.Fatalf("the server got %.300s\nwant %.300s", got, want)
	}
}

// kill ends the process as kill -9 does where bytes were left unread.
func (g *guest) kill() {
	g.conn.SetLinger(0)
	g.conn.Close()
}

// A desk is a client and its bridge.
type desk struct {
	t    *testing.T
	in   *io.PipeWriter
	out  *bufio.Reader
	done chan error
	host *host

	mu    sync.Mutex
	finds []error
	keys  int
}

func newDesk(t *testing.T, h *host, options ...func(*Config)) *desk {
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	d := &desk{t: t, in: inW, out: bufio.NewReader(outR), done: make(chan error, 1), host: h}
	ctx, cancel := context.WithCancel(context.Background())
	cfg := Config{In: inR, Out: outW, ID: "11111111-2222-4333-8444-555555555555", Find: d.find}
	for _, o := range options {
		o(&cfg)
	}
	go func() {
		err := Run(ctx, cfg)
		outW.CloseWithError(io.EOF)
		d.done <- err
	}()
	t.Cleanup(func() {
		cancel()
		inW.Close()
		outR.Close()
		if err := <-d.done; err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("Run: %v", err)
		}
	})
	return d
}

// quick lets rules about silence be tried in real time.
func quick(c *Config) {
	c.ProbeTimeout, c.BusyGrace, c.JoinTimeout = 50*time.Millisecond, 200*time.Millisecond, 500*time.Millisecond
}

func (d *desk) find(_ context.Context, why error) (Endpoint, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.finds = append(d.finds, why)
	return Endpoint{URL: d.host.url(), Key: func() (string, error) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.keys++
		return fmt.Sprintf("key%d", d.keys), nil
	}}, nil
}

func (d *desk) why() []error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]error(nil), d.finds...)
}

func (d *desk) say(line string) {
	d.t.Helper()
	if _, err := io.WriteString(d.in, line+"\n"); err != nil {
		d.t.Error(err) // not Fatal: some say it beside the test
	}
}

func (d *desk) line() string {
	d.t.Helper()
	line, err := d.out.ReadString('\n')
	if err != nil {
		d.t.Fatal(err)
	}
	return strings.TrimSuffix(line, "\n")
}

func (d *desk) want(want string) {
	d.t.Helper()
	got := d.line()
	if part, ok := strings.CutPrefix(want, "~"); ok && strings.Contains(got, part) {
		return
	}
	if got != want {
		d.t.Fatalf("the client got %.300s\nwant %.300s", got, want)
	}
}

func TestHandshake(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	t.Setenv("http_proxy", "http://127.0.0.1:1")
	h := newHost(t)
	d := newDesk(t, h)
	g := h.accept()
	want := "GET /mcp HTTP/1.1\r\nHost: " + h.l.Addr().String() + "\r\nConnection: Upgrade\r\nUpgrade: majordomus-frames/1\r\n" +
		"Authorization: Bearer key1\r\nMajordomus-Bridge: 11111111-2222-4333-8444-555555555555\r\n" +
		"Majordomus-Confirm: run\r\n\r\n"
	if got := g.head(); got != want {
		t.Errorf("the request is %q", got)
	}
	// What comes in one piece with the head is part of the link.
	g.say(welcome + "!registry aa\n" + `{"method":"notifications/one"}` + "\n")
	d.want(`{"method":"notifications/one"}`)
	d.say(`{"id":1,"method":"ping"}`)
	g.want(`{"id":1,"method":"ping"}`)
	g.say(`{"id":1,"result":{}}` + "\n")
	d.want(`{"id":1,"result":{}}`)
	d.in.Close()
	g.want("!bye")
	if rest, err := io.ReadAll(g.r); err != nil || len(rest) > 0 {
		t.Errorf("behind the farewell: %q, %v", rest, err)
	}
}

// What a server calls the bridge, for want of the name that all servers would
// give it, the next one is told.
func TestItsNameIsKept(t *testing.T) {
	h := newHost(t)
	d := newDesk(t, h)
	g := h.accept()
	if head := g.head(); strings.Contains(head, "Majordomus-Peer") {
		t.Error(head)
	}
	g.say(welcome + "!peer pabcd2\n")
	d.say(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)
	g.line() // behind the name
	g.say(`{"jsonrpc":"2.0","id":1,"result":{}}` + "\n")
	d.line()
	g.kill()
	if head := h.accept().head(); !strings.Contains(head, "\r\nMajordomus-Peer: pabcd2\r\n") {
		t.Error(head)
	}
}

func TestNothingFromAFileEndsALineOfTheRequest(t *testing.T) {
	if got := request("h", "k\r\nEvil: 1", identity{id: "id\nx"}); strings.Contains(got, "Evil") || strings.Count(got, "\r\n") != 6 {
		t.Errorf("%q", got)
	}
}

func refusal(status int, code string) string {
	body := `{"error":{"code":"` + code + `","message":"because"}}`
	return fmt.Sprintf("HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", status, http.StatusText(status), len(body), body)
}

func TestRefusals(t *testing.T) {
	h := newHost(t)
	d := newDesk(t, h, quick)
	d.say(`{"id":1,"method":"ping"}`)
	answer := func(s string) {
		g := h.accept()
		g.head()
		g.say(s)
	}
	// The key is read again, once, without another search.
	answer(refusal(401, "unauthorized"))
	g := h.accept()
	if !strings.Contains(g.head(), "Bearer key2\r\n") {
		t.Error("the key was not read again")
	}
	g.say(refusal(401, "unauthorized"))
	d.want(`{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"joining the server at ` + h.url() + `: the server refused the link: because (unauthorized)","data":{"code":"server_unavailable"}}}`)
	if n := len(d.why()); n != 1 {
		t.Errorf("searched %d times", n)
	}
	// Lost and draining servers send us to the next one.
	d.say(`{"id":2,"method":"ping"}`)
	answer(refusal(409, "lease_lost"))
	answer(refusal(503, "draining"))
	answer(refusal(403, "forbidden_host"))
	d.want("~forbidden_host")
	var r *Refusal
	if why := d.why(); len(why) != 4 || !errors.As(why[2], &r) || r.Status != 409 || r.Code != "lease_lost" || r.Message != "because" {
		t.Errorf("searched because of %v", why)
	}
	d.say(`{"id":3,"method":"ping"}`)
	h.welcome().want(`{"id":3,"method":"ping"}`)
}

// Whoever else answers on that port costs bounded memory and time, and no spin.
func TestStrangers(t *testing.T) {
	for name, stranger := range map[string]func(*guest){
		"a page":   func(g *guest) { g.say("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<html>") },
		"not HTTP": func(g *guest) { g.say("SSH-2.0-OpenSSH\r\n") },
		"another upgrade": func(g *guest) {
			g.head()
			g.say("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n")
			if rest, _ := io.ReadAll(g.r); len(rest) > 0 {
				g.t.Errorf("it was told %q", rest)
			}
		},
		"JSON without code": func(g *guest) { g.say("HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{}") },
		"nothing":           func(*guest) {},
		"a closed door":     func(g *guest) { g.conn.Close() },
		"an endless head": func(g *guest) {
			g.say("HTTP/1.1 200 OK\r\n")
			for i := 0; ; i++ {
				if _, err := fmt.Fprintf(g.conn, "H%d: %s\r\n", i, strings.Repeat("x", 10_000)); err != nil {
					return
				}
				g.much(i * 10_000)
			}
		},
		"an endless body": func(g *guest) {
			g.say("HTTP/1.1 200 OK\r\n\r\n")
			for i := 0; ; i++ {
				if _, err := g.conn.Write(bytes.Repeat([]byte("x"), 10_000)); err != nil {
					return
				}
				g.much(i * 10_000)
			}
		},
		"a slow body": func(g *guest) { g.say("HTTP/1.1 403 No\r\nContent-Length: 1000\r\n\r\n{") },
		"a link and silence": func(g *guest) {
			g.head()
			g.say(welcome)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t)
			d := newDesk(t, h, quick)
			d.say(`{"id":1,"method":"ping"}`)
			answered := make(chan struct{})
			met := make(chan int)
			go func() {
				n := 0
				for {
					select {
					case g := <-h.conns:
						n++
						stranger(g)
						defer g.conn.Close()
					case <-answered:
						met <- n
						return
					}
				}
			}()
			d.want("~server_unavailable")
			close(answered)
			if n := <-met; n < 2 || n > 12 {
				t.Errorf("met %d times", n)
			}
			// And when the right one is there, all is well.
			d.say(`{"id":2,"method":"ping"}`)
			g := h.accept()
			for g.r.Buffered() == 0 {
				if _, err := g.r.Peek(1); err == nil {
					break
				}
				g = h.accept() // one that was still on its way to the stranger
			}
			g.head()
			g.say(welcome)
			g.want(`{"id":2,"method":"ping"}`)
		})
	}
}

func TestDeathOfAProcess(t *testing.T) {
	big := strings.Repeat("x", 10<<20)
	for name, c := range map[string]struct {
		method string
		before string // said by the server before it dies
		die    func(*guest)
		again  bool
		answer string
	}{
		"killed, not accepted":            {method: "tools/call", die: (*guest).kill, again: true},
		"killed, accepted":                {method: "tools/call", before: "!accepted 1\n", die: (*guest).kill, answer: "outcome_unknown"},
		"ended, accepted":                 {method: "tools/call", before: "!accepted 1\n", die: func(g *guest) { g.conn.Close() }, answer: "outcome_unknown"},
		"half closed":                     {method: "tools/call", before: "!accepted 1\n", die: func(g *guest) { g.conn.CloseWrite() }, answer: "outcome_unknown"},
		"half a word":                     {method: "tools/call", before: "!accepted 1", die: func(g *guest) { g.conn.Close() }, again: true},
		"in the middle of a large answer": {method: "tools/call", before: "!accepted 1\n" + `{"id":1,"result":"` + big, die: func(g *guest) { g.conn.Close() }, answer: "outcome_unknown"},
		"the same, of a read":             {method: "resources/read", before: "!accepted 1\n" + `{"id":1,"result":"` + big, die: func(g *guest) { g.conn.Close() }, again: true},
		"an answer without its newline":   {method: "tools/call", before: "!accepted 1\n" + `{"id":1,"result":{}}`, die: func(g *guest) { g.conn.Close() }, answer: "outcome_unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			d := newDesk(t, h)
			g := h.welcome()
			line := `{"id":1,"method":"` + c.method + `","params":{"name":"a"}}`
			d.say(line)
			g.want(line)
			g.say(c.before)
			c.die(g)
			g = h.welcome()
			if c.again {
				g.want(line)
				g.say("!accepted 1\n" + `{"id":1,"result":{"second":true}}` + "\n")
				d.want(`{"id":1,"result":{"second":true}}`)
			} else {
				d.want("~" + c.answer)
			}
			d.say(`{"id":1,"method":"ping"}`)
			g.want(`{"id":1,"method":"ping"}`)
		})
	}
}

// A server that was stopped and goes on finds that it can announce nothing:
// what it has read meanwhile was sent elsewhere, and must not run here too.
func TestAServerThatWakesUpCannotAccept(t *testing.T) {
	h := newHost(t)
	d := newDesk(t, h, quick)
	g := h.welcome()
	line := `{"id":1,"method":"tools/call","params":{"name":"a"}}`
	d.say(line)
	second := h.welcome() // the first one was silent for too long
	second.want(line)
	g.want(line)
	// The reset may be on its way, but the first write already fails once it
	// is there: ask the kernel for it.
	one := make([]byte, 1)
	for {
		if _, err := g.r.Read(one); err != nil {
			break
		}
	}
	if _, err := io.WriteString(g.conn, "!accepted 1\n"); err == nil {
		t.Error("the server could announce a call that it had lost")
	}
}

// A server that wakes up in the very moment in which it is given up can still
// write: the bridge has sent the call elsewhere and has not closed the link yet.
// It is not told to run the call.
func TestAServerThatWakesUpTooLateIsNotToldToRun(t *testing.T) {
	h := newHost(t)
	var d *desk
	var g *guest
	given := make(chan bool, 1)
	d = newDesk(t, h, quick, func(c *Config) {
		c.audit = func(b *bridge) { // under the bridge's mutex
			if len(b.waiting) == 1 && b.link == nil && b.calls["1"] != nil && b.calls["1"].sent == 1 {
				select {
				case given <- true:
					g.say("!ready 1\n")
				default:
				}
			}
		}
	})
	g = h.welcome()
	line := `{"id":1,"method":"tools/call","params":{"name":"a"}}`
	d.say(line)
	second := h.welcome()
	second.want(line)
	if len(given) == 0 {
		t.Error("the first server was not given up as it should be")
	}
	g.want(line)
	rest, err := io.ReadAll(g.r)
	if strings.Contains(string(rest), "run") {
		t.Errorf("it was told %q, %v", rest, err)
	}
	second.say("!ready 1\n")
	second.want("!run 1")
	second.say(`{"id":1,"result":{}}` + "\n")
	d.want(`{"id":1,"result":{}}`)
}

func TestLargeLines(t *testing.T) {
	h := newHost(t)
	d := newDesk(t, h)
	g := h.welcome()
	big := strings.Repeat("<é>", 4<<20)
	call := `{"id":1,"method":"tools/call","params":{"name":"a","arguments":"` + big + `"}}`
	for _, hint := range []string{"", "!large 16777283\n", "!large 99999999999\n"} {
		go d.say(call)
		g.want(fmt.Sprintf("!large %d", len(call)))
		g.want(call)
		answer := `{"id":1,"result":"` + big + `"}`
		go g.say("!accepted 1\n" + hint + answer + "\n")
		d.want(answer)
	}
}

// A server that reads nothing keeps nobody from reading the client: the word
// that a call is cancelled is heard, and its id is free again.
func TestAServerThatReadsNothing(t *testing.T) {
	h := newHost(t)
	d := newDesk(t, h, func(c *Config) { c.ProbeTimeout, c.BusyGrace = time.Hour, time.Hour })
	h.welcome()
	big := strings.Repeat("x", 4<<20)
	for i := range 3 {
		d.say(fmt.Sprintf(`{"id":%d,"method":"tools/call","params":"%s"}`, i, big))
	}
	d.say(`{"method":"notifications/cancelled","params":{"requestId":2}}`)
	d.say(`{"id":1,"method":"ping"}`)
	d.want("~id already in flight")
}

// A client that does not read keeps the server from writing, not the bridge
// from an end to its memory.
func TestASlowClientSlowsItsServer(t *testing.T) {
	h := newHost(t)
	newDesk(t, h)
	g := h.welcome()
	line := []byte(`{"method":"notifications/message","params":"` + strings.Repeat("x", 1<<20) + `"}` + "\n")
	g.conn.SetWriteDeadline(time.Now().Add(500 * time.Millisecond))
	for range 200 {
		if _, err := g.conn.Write(line); err != nil {
			return
		}
	}
	t.Error("200 MB went to a client that reads nothing")
}

func TestOutputGivesMemoryBack(t *testing.T) {
	o := newOutput(io.Discard, func() {}, func(error) {})
	for range 3 {
		o.push(make([]byte, 1<<20))
		o.push([]byte("{}"))
		o.flush()
		o.push([]byte("{}"))
		o.flush()
	}
	if n := cap(o.buf) + cap(o.spare); n > 2*keptBytes {
		t.Errorf("%d bytes are held", n)
	}
}

func TestTheEndOfTheContextIsTheEnd(t *testing.T) {
	h := newHost(t)
	inR, inW := io.Pipe()
	defer inW.Close()
	outR, outW := io.Pipe() // nobody reads
	defer outR.Close()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() {
		done <- Run(ctx, Config{In: inR, Out: outW, Find: func(context.Context, error) (Endpoint, error) { return Endpoint{URL: h.url()}, nil }})
	}()
	g := h.welcome()
	io.WriteString(inW, `{"id":1,"method":"tools/call","params":{"name":"a"}}`+"\n")
	g.line()
	g.say(`{"method":"notifications/message"}` + "\n" + `{"id":1,"result":{}}` + "\n")
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// echo answers every request of a link at once.
func echo(conn net.Conn) {
	defer conn.Close()
	r := frame.NewReader(conn, 0)
	n := 0
	var buf []byte
	for {
		line, err := r.Next()
		if err != nil {
			return
		}
		m, err := frame.Parse(line)
		if err != nil || !m.IsRequest() {
			continue
		}
		n++
		buf = fmt.Appendf(buf, "!accepted %d\n", n)
		buf = append(append(buf, frame.Result(m.ID, []byte(`{"content":[{"type":"text","text":"hello"}]}`))...), '\n')
		if !r.Ready() {
			if _, err := conn.Write(buf); err != nil {
				return
			}
			buf = buf[:0]
		}
	}
}

func benchmark(b *testing.B, run func(in io.Reader, out io.Writer, url string)) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				r := bufio.NewReader(c)
				if _, err := http.ReadRequest(r); err != nil {
					c.Close()
					return
				}
				io.WriteString(c, welcome)
				echo(c)
			})
		}
	})
	inR, inW, _ := os.Pipe()
	outR, outW, _ := os.Pipe()
	wg.Go(func() {
		run(inR, outW, "http://"+l.Addr().String())
		outW.Close()
	})
	r := frame.NewReader(outR, 0)
	call := []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"message":"hello world"},"_meta":{"progressToken":3}}}` + "\n")
	for b.Loop() {
		if _, err := inW.Write(call); err != nil {
			b.Fatal(err)
		}
		if line, err := r.Next(); err != nil || line[0] != '{' {
			b.Fatalf("%q %v", line, err)
		}
	}
	inW.Close()
	io.Copy(io.Discard, outR)
	l.Close()
	wg.Wait()
}

// BenchmarkRelay is one small call after the other, through pipes as an
// editor's.
func BenchmarkRelay(b *testing.B) {
	b.ReportAllocs()
	benchmark(b, func(in io.Reader, out io.Writer, url string) {
		err := Run(context.Background(), Config{In: in, Out: out, ID: "b", Find: func(context.Context, error) (Endpoint, error) {
			return Endpoint{URL: url}, nil
		}})
		if err != nil {
			b.Error(err)
		}
	})
}

// BenchmarkMover is what the same costs if nobody looks at the bytes.
func BenchmarkMover(b *testing.B) {
	benchmark(b, func(in io.Reader, out io.Writer, url string) {
		conn, r, err := dial(context.Background(), url, "", identity{id: "b"})
		if err != nil {
			b.Error(err)
			return
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			s := bufio.NewReader(r)
			for {
				line, err := s.ReadSlice('\n')
				if err != nil {
					return
				}
				if line[0] == '{' { // the only look
					out.Write(line)
				}
			}
		}()
		io.Copy(conn, in)
		conn.(*net.TCPConn).CloseWrite()
		<-done
		conn.Close()
	})
}
