package session_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"majordomus/bridge/frame"
	"majordomus/server/session"
)

// The fingerprint comes first, and each request is announced, by its number,
// before it runs: a bridge whose server dies knows what may have happened.
func TestControlLines(t *testing.T) {
	h := settle(t, func(c *session.Config) { c.Registry = func() string { return "beef" } })
	l := h.link(t)
	l.exactly("!registry beef")
	l.say("!ping")
	l.exactly("!pong")
	l.say("!something new")
	l.say(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	l.say(toolCall(stateless, `"a"`, "block", `"s":"a"`, ""))
	h.hasBegun(t, "a")
	l.exactly("!accepted 1") // while it runs
	l.say(toolCall(stateless, `"b"`, "echo", "", ""))
	l.exactly("!accepted 2")
	l.answer(`"b"`)
	h.core.Tell("!draining")
	l.exactly("!draining")
	h.release(t)
	l.answer(`"a"`)
	l.say("!bye")
	l.ended()
	h.until(t, "nobody there", h.peers(0))
}

// A bridge that confirms is asked before a call runs that may not run twice: a
// word that was written need not arrive, and what the bridge has not read it
// sends to the next server.
func TestWhatMayNotRunTwiceWaitsForTheWord(t *testing.T) {
	h := settle(t, nil)
	h.mcp.AddTool(mcp.NewTool("look", mcp.WithReadOnlyHintAnnotation(true)), func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return text("seen")
	})
	l, resp := h.upgrade(t, session.ConfirmHeader+": run\r\n")
	if resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("the link was answered %s", resp.Status)
	}
	for i := range 3 {
		l.say(toolCall(stateless, strconv.Itoa(i+1), "block", `"s":"`+strconv.Itoa(i+1)+`"`, ""))
		l.exactly(fmt.Sprintf("!ready %d", i+1))
	}
	l.say("!run 2")
	h.hasBegun(t, "2") // and no other
	l.say("!run 2")
	l.say("!run 7")
	l.say("!run")
	h.release(t)
	l.answer(`2`)
	// Taken back, it does not run, whatever is said later.
	l.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
	l.say("!run 1")
	// What may run twice does not wait.
	l.say(toolCall(stateless, `4`, "look", "", ""))
	l.exactly("!accepted 4 safe")
	l.answer(`4`)
	l.say(request(`5`, "resources/list", params(stateless, "", "")))
	l.exactly("!accepted 5 safe")
	l.answer(`5`)
	l.say("!run 3")
	h.hasBegun(t, "3")
	h.release(t)
	l.answer(`3`)
	// Nor does it when the link ends.
	l.say(toolCall(stateless, `6`, "block", `"s":"6"`, ""))
	l.exactly("!ready 6")
	l.say("!bye")
	l.ended()
	h.until(t, "nobody there, nothing in flight", func() bool {
		peers, busy := h.core.Stats()
		return peers == 0 && busy == 0
	})
	if len(h.began) > 0 {
		t.Error("a call ran that nobody confirmed: ", <-h.began)
	}
	// A bridge in the server's own process is asked as well.
	l = h.pipe(t, session.Peer{Confirms: true})
	l.say(toolCall(stateless, `1`, "block", `"s":"1"`, ""))
	l.exactly("!ready 1")
	l.say("!run 1")
	h.hasBegun(t, "1")
	h.release(t)
	l.answer(`1`)
}

// The call of a hosted server's tool that may run twice is sent again whatever
// the bridge has heard of it, and needs no word; another one waits for it.
func TestHostedCallsAndTheWord(t *testing.T) {
	hosted := &router{got: make(chan string, 3), harmless: true}
	h := settle(t, func(c *session.Config) { c.Hosted = hosted })
	l, _ := h.upgrade(t, session.ConfirmHeader+": run\r\n")
	l.say(toolCall(stateless, `1`, "hosted", "", ""))
	if s := l.next(); s[0] == '!' {
		t.Errorf("the first that it said is %s", s)
	}
	hosted.harmless = false
	l.say(toolCall(stateless, `2`, "hosted", "", ""))
	l.exactly("!ready 2")
	l.say("!run 2")
	l.answer(`2`)
	hosted.harmless = true
	// A bridge that does not confirm counts what was accepted.
	l, _ = h.upgrade(t, "")
	l.say(toolCall(stateless, `1`, "hosted", "", ""))
	l.exactly("!accepted 1")
	l.answer(`1`)
}

// A server that is being left runs nothing new: what was on its way is for the
// next one. What it has it finishes, unless it is cut: then that is no answer.
func TestAServerThatIsLeftRefuses(t *testing.T) {
	h := settle(t, nil)
	l, _ := h.upgrade(t, session.ConfirmHeader+": run\r\n")
	for i := range 2 {
		l.say(toolCall(stateless, strconv.Itoa(i+1), "block", `"s":"1"`, ""))
		l.exactly(fmt.Sprintf("!ready %d", i+1))
		l.say(fmt.Sprintf("!run %d", i+1))
		h.hasBegun(t, "1")
	}
	h.core.Leave()
	l.exactly("!draining")
	for i, message := range []string{toolCall(stateless, `3`, "block", "", ""), toolCall(stateless, `4`, "look", "", ""), request(`5`, "ping", "{}")} {
		l.say(message)
		l.exactly(fmt.Sprintf("!refused %d", i+3))
	}
	h.release(t)
	if s := l.next(); !strings.Contains(s, "freed") {
		t.Error("what it had was answered ", s)
	}
	h.core.Close()
	l.ended()
	for _, s := range l.heard {
		t.Error("in the end it said ", s)
	}
}

// A request that takes long to read in does not keep what comes behind it.
func TestLargeRequestsAreNotAnsweredWhereTheyAreRead(t *testing.T) {
	h := settle(t, polite)
	h.polite()
	h.mcp.AddTool(mcp.NewTool("echo"), func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		h.began <- "echo"
		h.free <- struct{}{}
		return text("freed")
	})
	l := h.link(t)
	l.say(toolCall(stateless, `1`, "echo", `"s":"`+strings.Repeat("x", 100<<10)+`"`, ""))
	h.hasBegun(t, "echo")
	l.say("!ping")
	l.exactly("!accepted 1")
	l.exactly("!pong")
	h.release(t)
	l.answer(`1`)
}

// A bridge is told how long a large line is before that comes, and says so
// itself; its client is not.
func TestLargeLinesAreAnnounced(t *testing.T) {
	h := settle(t, nil)
	ask := toolCall(stateless, `1`, "echo", `"s":"`+strings.Repeat("x", 100<<10)+`"`, "")
	for _, say := range []string{"", "!large 7\n", fmt.Sprintf("!large %d\n", len(ask))} {
		l := h.link(t)
		l.say(say + ask)
		l.exactly("!accepted 1")
		hint := l.next()
		if answer := l.answer(`1`); hint != fmt.Sprintf("!large %d", len(answer)) || len(answer) < 100<<10 {
			t.Errorf("before an answer of %d bytes came %.100s", len(answer), hint)
		}
	}
	l := h.pipe(t, session.Peer{Plain: true})
	l.exchange(`1`, ask)
	if len(l.heard) > 0 {
		t.Errorf("a client was sent %.100q", l.heard)
	}
}

// A large answer of a hosted server is passed on as it is, everywhere.
func TestLargeHostedAnswers(t *testing.T) {
	hosted := &router{got: make(chan string, 4), harmless: true, large: 100 << 10}
	h := settle(t, func(c *session.Config) { c.Hosted = hosted })
	ask := toolCall(stateless, `1.50`, "hosted", "", "")
	want := `{"jsonrpc":"2.0","id":1.50,"result":` + string(hosted.result()) + `}`
	for name, got := range map[string]string{
		"over a link":   h.link(t).exchange(`1.50`, ask),
		"over a stream": h.pipe(t, session.Peer{Plain: true}).exchange(`1.50`, ask),
		"over HTTP":     body(t, h.web(t, stateless).post(ask)),
	} {
		if got != want {
			t.Errorf("%s comes %.80s (%d bytes)", name, got, len(got))
		}
	}
}

// Memory is worth giving back after a large message, and after many when all is
// quiet again.
func TestTookMuch(t *testing.T) {
	h := settle(t, nil)
	l := h.link(t)
	took := func() (answers string) {
		for range 3 {
			answers += fmt.Sprint(h.core.TookMuch(), " ")
		}
		return answers
	}
	for i := range 499 {
		id := strconv.Itoa(i)
		l.exchange(id, toolCall(stateless, id, "echo", "", ""))
	}
	if got := took(); got != "false false false " {
		t.Errorf("after few small ones: %s", got)
	}
	l.exchange(`"a"`, toolCall(stateless, `"a"`, "echo", "", ""))
	if got := took(); got != "false true false " {
		t.Errorf("after many: %s", got)
	}
	l.exchange(`"b"`, toolCall(stateless, `"b"`, "echo", `"s":"`+strings.Repeat("x", 5<<20)+`"`, ""))
	if got := took(); got != "true false false " {
		t.Errorf("after a large one: %s", got)
	}
}

// A request that is too long to be held is one to the bridge, which counts it.
func TestARequestThatIsRefusedCounts(t *testing.T) {
	h := settle(t, func(c *session.Config) { c.MaxMessage = 1000 })
	l := h.link(t)
	l.say(toolCall(stateless, `1`, "echo", `"s":"`+strings.Repeat("x", 1000)+`"`, ""))
	if s := l.answer(`1`); !strings.Contains(s, `"error"`) {
		t.Error("a request that is too long was answered ", s)
	}
	l.say(`{"jsonrpc":"2.0","id":7,"result":"` + strings.Repeat("x", 1000) + `"}`)
	l.say(toolCall(stateless, `2`, "echo", `"s":"a"`, ""))
	l.exactly("!accepted 2")
	l.answer(`2`)
}

func TestPlainClientsSeeNoControlLines(t *testing.T) {
	h := settle(t, func(c *session.Config) { c.Registry = func() string { return "beef" } })
	l := h.pipe(t, session.Peer{Plain: true})
	l.say("!ping")
	if s := l.next(); !strings.Contains(s, `"code":-32700`) || !strings.Contains(s, `"id":null`) {
		t.Error("what is no JSON was answered ", s)
	}
	h.core.Tell("!lost")
	l.exchange(`1`, toolCall(stateless, `1`, "echo", "", ""))
	if len(l.heard) > 0 {
		t.Error("a client was sent ", l.heard)
	}
}

func TestEndOfInputOnALinkTakesBackWhatIsInFlight(t *testing.T) {
	h := settle(t, nil)
	l := h.link(t)
	l.say(toolCall(stateless, `1`, "block", `"s":"a"`, ""))
	h.hasBegun(t, "a")
	if err := l.conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	h.hasEnded(t, context.Canceled)
	l.ended()
	h.until(t, "nobody there", h.peers(0))
}

// A client that closes its output still reads: it is answered, and neither a
// listen nor a question that it cannot answer any more keeps it waiting.
func TestEndOfInputOnStdioIsWaitedFor(t *testing.T) {
	h := settle(t, nil)
	l := h.pipe(t, session.Peer{Plain: true})
	l.greet(everything)
	l.say(listen(`"l"`, `"toolsListChanged":true`))
	l.has("acknowledged")
	l.say(toolCall(shaken, `1`, "block", `"s":"a"`, ""))
	h.hasBegun(t, "a")
	l.say(toolCall(shaken, `2`, "ask", `"s":"elicitation"`, ""))
	l.has("elicitation/create")
	if err := l.conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if s := l.answer(`2`); !strings.Contains(s, `"error":`) {
		t.Error("the question was answered by nobody: ", s)
	}
	h.release(t)
	if s := l.answer(`1`); !strings.Contains(s, "freed a") {
		t.Error(s)
	}
	l.ended()
	if err := <-l.done; err != nil {
		t.Error("a client that left in order: ", err)
	}
	h.until(t, "nobody there", h.peers(0))
}

func TestLastLineWithoutNewlineIsAnswered(t *testing.T) {
	h := settle(t, nil)
	l := h.pipe(t, session.Peer{Plain: true})
	fmt.Fprint(l.conn, toolCall(stateless, `1`, "echo", `"s":"x"`, ""))
	l.conn.(*net.TCPConn).CloseWrite() // ignore error: the answer tells
	l.answer(`1`)
	l.ended()
}

// What is no message is answered with an error under the id it had, and the
// stream goes on.
func TestBadLines(t *testing.T) {
	h := settle(t, func(c *session.Config) { c.MaxMessage = 1000 })
	l := h.link(t)
	long := strings.Repeat("x", 5000)
	for _, test := range []struct{ line, id, code string }{
		{`{"jsonrpc":"2.0","id":"big","method":"tools/call","params":{"name":"` + long + `"}}`, `"big"`, "-32600"},
		{`{"params":"` + long + `","id":9007199254740993,"method":"ping"}`, `9007199254740993`, "-32600"},
		{`{"jsonrpc":"2.0","id":1,`, `null`, "-32700"},
		{`[{"jsonrpc":"2.0","id":1,"method":"ping"}]`, `null`, "-32600"},
		{`{"jsonrpc":"2.0","id":null,"method":"ping"}`, `null`, "-32600"},
		{`{"jsonrpc":"2.0","ID":1,"method":5}`, `null`, "-32600"},
		{"\r", "", ""},
		{`{"jsonrpc":"2.0","id":"` + long + `","result":{}}`, "", ""}, // an answer is not answered
	} {
		l.say(test.line)
		if test.id == "" {
			continue
		}
		s := l.want("an error", func(s string) bool { return s[0] == '{' })
		if got := frame.Get([]byte(s), "id"); string(got) != test.id || string(frame.Get([]byte(s), "error", "code")) != test.code {
			t.Errorf("%s was answered %s", brief(test.line), s)
		}
	}
	l.say(toolCall(stateless, `1`, "echo", "", "") + "\r")
	if s := l.want("an answer", func(s string) bool { return s[0] == '{' }); !answers(`1`)(s) {
		t.Error("after bad lines came ", s)
	}
}

// A client that does not read loses its own link, and nobody else waits.
func TestSlowReaderLosesItsLinkAlone(t *testing.T) {
	h := settle(t, func(c *session.Config) { c.WriteStall = 50 * time.Millisecond })
	other := h.link(t)
	conn, err := net.Dial("tcp", h.http.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET /mcp HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", session.Protocol)
	h.until(t, "two peers", h.peers(2))
	// One answer that fits into no socket's buffers, and nothing said after
	// it: the server must notice without reading.
	conn.(*net.TCPConn).SetReadBuffer(4096) // ignore error: then more is needed to fill it
	fmt.Fprintln(conn, toolCall(stateless, `1`, "echo", `"s":"`+strings.Repeat("x", 7<<20)+`"`, ""))
	other.exchange(`1`, toolCall(stateless, `1`, "echo", "", ""))
	h.until(t, "the slow reader's link ended", h.peers(1))
	h.core.Tell("!lost")
	other.has("!lost")
	other.exchange(`2`, toolCall(stateless, `2`, "echo", "", ""))
}

// steadySize is what a steady reader reads: the sending socket holds some of it.
const steadySize = 14 << 20

// steady is a house that gives a write little time, and a connection to it that
// holds little.
func steady(t *testing.T) (*house, net.Conn) {
	t.Helper()
	if testing.Short() {
		t.Skip("moves 14 MB in small steps")
	}
	h := settle(t, func(c *session.Config) { c.WriteStall = 1500 * time.Millisecond })
	conn, err := net.Dial("tcp", h.http.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.(*net.TCPConn).SetReadBuffer(64 << 10) // ignore error: then more is held
	return h, conn
}

// readSteadily reads steadySize in small steps, and returns the first of them.
func readSteadily(t *testing.T, conn net.Conn) (first string) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	b := make([]byte, 64<<10)
	for read := 0; read < steadySize; {
		<-tick.C
		n, err := io.ReadAtLeast(conn, b, min(len(b), max(1, steadySize-read)))
		if read == 0 {
			first = string(b[:n])
		}
		if read += n; err != nil {
			t.Fatalf("the connection ended after %d bytes: %v; it began %.200s", read, err, first)
		}
	}
	return first
}

// Time is given to each piece of an answer: a large one may take longer than
// one write may stand, as long as it is being read.
func TestSteadyReaderKeepsItsLink(t *testing.T) {
	_, conn := steady(t)
	fmt.Fprintf(conn, "GET /mcp HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", session.Protocol)
	go fmt.Fprintln(conn, toolCall(stateless, `1`, "echo", `"s":"`+strings.Repeat("x", steadySize)+`"`, "")) // ends with the connection
	readSteadily(t, conn)
}

func listen(id, filter string) string {
	return request(id, "subscriptions/listen", params(stateless, `"notifications":{`+filter+`}`, ""))
}

// Each listen hears what it asked for, under its own id as written, whatever
// another one of the same client asked for.
func TestListensKeepTheirFilters(t *testing.T) {
	const a, b, c = `9007199254740993`, `"9007199254740993"`, `"<&>"`
	run := func(t *testing.T, h *house, start func(id, filter string) func() string) {
		na := start(a, `"toolsListChanged":true`)
		nb := start(b, `"promptsListChanged":true,"resourceSubscriptions":["test://b"]`)
		nc := start(c, `"resourcesListChanged":true,"resourceSubscriptions":["test://c"]`)
		hears := func(next func() string, id, method string) {
			t.Helper()
			s := next()
			m, _ := frame.Parse([]byte(s))
			if m.Name() != method || string(frame.Get(m.Params, "_meta", "io.modelcontextprotocol/subscriptionId")) != id {
				t.Errorf("%s heard %s, not %s", id, s, method)
			}
		}
		for next, id := range map[*func() string]string{&na: a, &nb: b, &nc: c} {
			hears(*next, id, "notifications/subscriptions/acknowledged")
		}
		for range 20 {
			for _, kind := range []string{"tools", "prompts", "resources"} {
				h.core.ListChanged(kind)
			}
			h.core.Updated("test://b")
			h.core.Updated("test://c")
			h.core.Updated("test://nobody")
			hears(na, a, "notifications/tools/list_changed")
			hears(nb, b, "notifications/prompts/list_changed")
			hears(nb, b, "notifications/resources/updated")
			hears(nc, c, "notifications/resources/list_changed")
			hears(nc, c, "notifications/resources/updated")
		}
	}
	t.Run("link", func(t *testing.T) {
		h := settle(t, nil)
		l := h.link(t)
		run(t, h, func(id, filter string) func() string {
			l.say(listen(id, filter))
			return func() string {
				return l.want("something for "+id, func(s string) bool {
					return string(frame.Get([]byte(s), "params", "_meta", "io.modelcontextprotocol/subscriptionId")) == id
				})
			}
		})
		// Taken back, it hears nothing more; the others do.
		l.say(cancelled(a))
		l.exchange(`1`, toolCall(stateless, `1`, "echo", "", ""))
		h.until(t, "the listen ended", func() bool { h.core.ListChanged("tools"); return true })
	})
	t.Run("http", func(t *testing.T) {
		h := settle(t, nil)
		w := h.web(t, stateless)
		run(t, h, func(id, filter string) func() string {
			return eventsOf(t, w.post(listen(id, filter))).must
		})
	})
}

// Whoever shook hands hears of lists and of what it subscribed to.
func TestSubscriptionsOfSessions(t *testing.T) {
	h := settle(t, nil)
	l, other := h.link(t), h.link(t)
	l.greet(everything)
	other.greet(everything)
	l.exchange(`1`, request(`1`, "resources/subscribe", `{"uri":"test://<a>"}`))
	h.core.Updated("test://<a>")
	h.core.ListChanged("tools")
	l.heard = nil
	if s := l.has("resources/updated"); s != `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"test://<a>"}}` {
		t.Error(s)
	}
	other.has("tools/list_changed")
	l.has("tools/list_changed")
	for _, s := range other.heard {
		if strings.Contains(s, "updated") {
			t.Error("who did not subscribe was told ", s)
		}
	}
	l.exchange(`2`, request(`2`, "resources/unsubscribe", `{"uri":"test://<a>"}`))
	h.core.Updated("test://<a>")
	h.core.ListChanged("prompts")
	l.has("prompts/list_changed")
	for _, s := range l.heard {
		if strings.Contains(s, "updated") {
			t.Error("who unsubscribed was told ", s)
		}
	}
}

func TestPeersAreDescribed(t *testing.T) {
	h := settle(t, nil)
	l := h.link(t)
	l.greet(everything)
	h.until(t, "nothing in flight", func() bool { _, n := h.core.Stats(); return n == 0 }) // it counts until it is written
	p := h.core.Peers()
	if len(p) != 1 || p[0].ID != "p0123" || p[0].Bridge != "0123abcd-0000" || p[0].Client != "t" || p[0].Version != "7" ||
		p[0].Era != shaken || p[0].Front != "link" || p[0].Active || p[0].InFlight != 0 {
		t.Errorf("%+v", p)
	}
	l.say(toolCall(shaken, `1`, "block", `"s":"a"`, ""))
	h.hasBegun(t, "a")
	if p := h.core.Peers(); !p[0].Active || p[0].InFlight != 1 {
		t.Errorf("%+v", p)
	}
	h.release(t)
	l.answer(`1`)
	h.until(t, "nothing in flight", func() bool { return h.core.Peers()[0].InFlight == 0 })
}

func TestAdmitTakesLinksOutAgain(t *testing.T) {
	var h *house
	entered := 0
	h = settle(t, func(c *session.Config) {
		c.Admit = func() error {
			entered, _ = h.core.Stats()
			return &session.Refusal{Status: 409, Code: "lease_lost", Message: "gone"}
		}
	})
	_, resp := h.upgrade(t, "")
	if resp.StatusCode != 409 {
		t.Error(resp.Status)
	}
	a, b := net.Pipe()
	defer a.Close()
	var r *session.Refusal
	if err := h.core.ServeStream(context.Background(), b, session.Peer{}); !errors.As(err, &r) || r.Code != "lease_lost" {
		t.Error(err)
	}
	if p, _ := h.core.Stats(); entered != 1 || p != 0 {
		t.Errorf("%d were in when asked, %d afterwards", entered, p)
	}
}

// A link of another version is refused in a way that says which there is. What
// else a client offers to upgrade to (Java's offer HTTP/2 each time) is ignored.
func TestUpgradeToSomethingElse(t *testing.T) {
	h := settle(t, nil)
	w := h.web(t, shaken)
	offer := func(protocol, method, message string) *http.Response {
		ctx, cancel := context.WithCancel(context.Background())
		t.Cleanup(cancel)
		r := w.request(ctx, method, message)
		r.Header.Set("Connection", "Upgrade, HTTP2-Settings")
		r.Header.Set("Upgrade", protocol)
		resp := w.do(r)
		t.Cleanup(func() { resp.Body.Close() })
		return resp
	}
	if resp := offer("majordomus-frames/9", "GET", ""); resp.StatusCode != http.StatusUpgradeRequired || resp.Header.Get("Upgrade") != session.Protocol {
		t.Error(resp.Status, resp.Header)
	}
	for _, protocol := range []string{"h2c", "websocket"} {
		if resp := offer(protocol, "GET", ""); resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
			t.Error(protocol, resp.Status, resp.Header)
		}
		if resp := offer(protocol, "POST", request(`9`, "ping", "{}")); resp.StatusCode != http.StatusOK {
			t.Error(protocol, resp.Status, resp.Header)
		}
	}
}

// What has nothing in flight goes at once; the rest is answered first.
func TestCloseIdle(t *testing.T) {
	h := settle(t, nil)
	idle, busy, w := h.link(t), h.link(t), h.web(t, shaken)
	_ = w
	busy.say(toolCall(stateless, `1`, "block", `"s":"a"`, ""))
	h.hasBegun(t, "a")
	h.core.CloseIdle()
	idle.ended()
	h.until(t, "the busy one alone", h.peers(1))
	h.release(t)
	if s := busy.answer(`1`); !strings.Contains(s, "freed a") {
		t.Error(s)
	}
}

// When nothing is in flight every answer has been handed over: whoever drains
// and closes cuts none off.
func TestDrainedIsAnswered(t *testing.T) {
	for i := range 50 {
		h := settle(t, nil)
		l := h.pipe(t, session.Peer{})
		const calls = 20
		for n := range calls {
			l.say(toolCall(stateless, fmt.Sprint(n), "block", `"s":"`+fmt.Sprint(n)+`"`, ""))
		}
		for range calls {
			<-h.began
		}
		short, cancel := context.WithCancel(context.Background())
		cancel()
		if err := h.core.Drain(short); !errors.Is(err, context.Canceled) {
			t.Fatal("with calls in flight Drain said ", err)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			for range calls {
				<-h.free
			}
		})
		if err := h.core.Drain(context.Background()); err != nil {
			t.Fatal(err)
		}
		h.core.CloseIdle()
		h.core.Close()
		wg.Wait()
		l.ended()
		n := 0
		for _, s := range l.heard {
			if strings.Contains(s, "freed") {
				n++
			}
		}
		if n != calls {
			t.Fatalf("round %d: %d of %d were answered", i, n, calls)
		}
	}
}

// Close ends links, streams, calls and listens, and lets nobody in.
func TestCloseLeavesNothing(t *testing.T) {
	h := settle(t, nil)
	l, w := h.link(t), h.web(t, shaken)
	l.say(toolCall(stateless, `1`, "block", `"s":"a"`, ""))
	h.hasBegun(t, "a")
	l.say(listen(`"l"`, `"toolsListChanged":true`))
	l.has("acknowledged")
	stream := eventsOf(t, w.do(w.request(context.Background(), "GET", "")))
	var wg sync.WaitGroup
	wg.Go(func() {
		resp, err := w.client.Do(w.request(context.Background(), "POST", toolCall(shaken, `1`, "stubborn", "", "")))
		if err == nil {
			resp.Body.Close()
		}
	})
	h.hasBegun(t, "stubborn")
	h.core.Close()
	// Both calls have ended by now.
	for range 2 {
		select {
		case err := <-h.ended:
			if !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		default:
			t.Error("Close returned while a call was running")
		}
	}
	l.ended()
	if s, ok := stream.next(); ok {
		t.Error("the stream said ", s)
	}
	wg.Wait()
	if p, n := h.core.Stats(); p != 0 || n != 0 {
		t.Errorf("%d peers and %d calls are left", p, n)
	}
	if _, resp := h.upgrade(t, ""); resp.StatusCode != http.StatusServiceUnavailable {
		t.Error(resp.Status)
	}
}
