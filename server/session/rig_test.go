package session_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	mcpserver "github.com/mark3labs/mcp-go/server"
	"go.uber.org/goleak"

	"majordomus/bridge/frame"
	"majordomus/server/session"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what is certain to come.
const patience = 20 * time.Second

const (
	shaken    = "2025-11-25" // the era with a handshake
	stateless = "2026-07-28"
)

// a house is a Core behind a real HTTP server, with tools that wait to be told
// what to do.
type house struct {
	t    *testing.T
	core *session.Core
	mcp  *mcpserver.MCPServer
	http *httptest.Server

	began chan string   // a block call has begun, by its name
	ended chan error    // a block call has ended, with what ended it
	free  chan struct{} // each receive lets one block call return

	mu      sync.Mutex
	changes chan struct{} // closed at the next change of the Core's
}

func settle(t testing.TB, change func(*session.Config)) *house {
	t.Helper()
	h := &house{began: make(chan string, 1000), ended: make(chan error, 1000), free: make(chan struct{}), changes: make(chan struct{})}
	h.t, _ = t.(*testing.T)
	h.mcp = mcpserver.NewMCPServer("house", "1", mcpserver.WithToolCapabilities(true), mcpserver.WithResourceCapabilities(true, true),
		mcpserver.WithPromptCapabilities(true), mcpserver.WithLogging(), mcpserver.WithElicitation(), mcpserver.WithRoots())
	h.mcp.EnableSampling()
	h.tools()
	cfg := session.Config{MCP: h.mcp, Generation: "gen1", OnChange: h.changed}
	if change != nil {
		change(&cfg)
	}
	h.core = session.New(cfg)
	h.http = httptest.NewUnstartedServer(h.core)
	h.http.Config.ConnContext = h.core.ConnContext
	h.http.Config.ConnState = h.core.ConnState
	h.http.Start()
	ctx, stop := context.WithCancel(context.Background())
	ran := make(chan struct{})
	go func() { defer close(ran); h.core.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		<-ran
		h.core.Close()
		h.http.CloseClientConnections()
		h.http.Close()
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	})
	return h
}

func (h *house) changed() {
	h.mu.Lock()
	close(h.changes)
	h.changes = make(chan struct{})
	h.mu.Unlock()
}

// until waits for cond, asked after each change of the Core's.
func (h *house) until(t testing.TB, what string, cond func() bool) {
	t.Helper()
	late := time.After(patience)
	for {
		h.mu.Lock()
		next := h.changes
		h.mu.Unlock()
		if cond() {
			return
		}
		select {
		case <-next:
		case <-late:
			t.Fatalf("never: %s", what)
		}
	}
}

func (h *house) peers(n int) func() bool {
	return func() bool { p, _ := h.core.Stats(); return p == n }
}

func text(s string) (*mcp.CallToolResult, error) { return mcp.NewToolResultText(s), nil }

func (h *house) tools() {
	add := func(name string, f func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error)) {
		h.mcp.AddTool(mcp.NewTool(name), f)
	}
	add("echo", func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return text(r.GetString("s", ""))
	})
	add("block", func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		h.began <- r.GetString("s", "")
		select {
		case <-ctx.Done():
			h.ended <- ctx.Err()
			return nil, ctx.Err()
		case h.free <- struct{}{}:
			h.ended <- nil
			return text("freed " + r.GetString("s", ""))
		}
	})
	add("stubborn", func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		h.began <- "stubborn"
		<-ctx.Done()
		// The time it takes to tidy up. Who should wait for it and does not is
		// done by then, and is found out; who does loses nothing.
		time.Sleep(50 * time.Millisecond)
		h.ended <- ctx.Err()
		return nil, ctx.Err()
	})
	add("panic", func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) { panic("a fault") })
	add("progress", func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		n := r.GetInt("n", 1)
		for i := range n {
			if err := session.Progress(ctx, float64(i+1), float64(n), ""); err != nil {
				return nil, err
			}
		}
		return text("done")
	})
	add("fail", func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return nil, session.Fail(ctx, -32602, "not <this>", []byte(`{"why":1e2}`))
	})
	add("who", func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		i, ok := session.CallerFrom(ctx)
		return text(fmt.Sprint(ok, " ", i.Client, " ", i.Version, " ", i.Era, " ", i.Front, " ", i.InFlight))
	})
	add("ask", func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		switch r.GetString("s", "") {
		case "elicitation":
			a, err := h.mcp.RequestElicitation(ctx, mcp.ElicitationRequest{Params: mcp.ElicitationParams{Message: "?", RequestedSchema: map[string]any{"type": "object", "properties": map[string]any{}}}})
			if err != nil {
				return nil, err
			}
			return text(string(a.Action))
		case "sampling":
			//lint:ignore SA1019 2026-11: clients of the older revisions answer it, so it must work
			a, err := h.mcp.RequestSampling(ctx, mcp.CreateMessageRequest{CreateMessageParams: mcp.CreateMessageParams{MaxTokens: 3}})
			if err != nil {
				return nil, err
			}
			return text(a.Model)
		default:
			a, err := h.mcp.RequestRoots(ctx, mcp.ListRootsRequest{})
			if err != nil {
				return nil, err
			}
			return text(a.Roots[0].URI)
		}
	})
	h.mcp.AddTool(mcp.NewToolWithRawSchema("region", "", json.RawMessage(`{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}`)),
		func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) { return text("here") })
	h.mcp.AddResource(mcp.NewResource("test://a", "a"), func(context.Context, mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
		return []mcp.ResourceContents{mcp.TextResourceContents{URI: "test://a", Text: "A"}}, nil
	})
}

const everything = `{"elicitation":{},"sampling":{},"roots":{}}`

// params adds what the era wants to have in a request's params, and meta,
// which are members of _meta.
func params(era, p, meta string) string {
	if era == stateless {
		m := `"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"7"},"io.modelcontextprotocol/clientCapabilities":{}`
		if meta != "" {
			m += "," + meta
		}
		meta = m
	}
	if meta == "" {
		return "{" + p + "}"
	}
	if p != "" {
		p += ","
	}
	return "{" + p + `"_meta":{` + meta + "}}"
}

func request(id, method, params string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":` + params + "}"
}

func toolCall(era, id, tool, args, meta string) string {
	return request(id, "tools/call", params(era, `"name":"`+tool+`","arguments":{`+args+`}`, meta))
}

func cancelled(id string) string {
	return `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}`
}

func hello(id, caps string) string {
	return request(id, "initialize", `{"protocolVersion":"2025-11-25","capabilities":`+caps+`,"clientInfo":{"name":"t","version":"7"}}`)
}

// a line is one end of a link.
type line struct {
	t     testing.TB
	conn  net.Conn
	lines chan string // closed at the end of the stream
	heard []string    // what came while something else was waited for
	done  chan error  // of ServeStream; nil over HTTP
}

func newLine(t testing.TB, conn net.Conn, r io.Reader) *line {
	l := &line{t: t, conn: conn, lines: make(chan string, 10000)}
	go func() {
		defer close(l.lines)
		r := frame.NewReader(r, 0)
		for {
			b, err := r.Next()
			if err != nil {
				return
			}
			l.lines <- string(b)
		}
	}()
	t.Cleanup(func() {
		conn.Close()
		for range l.lines {
		}
		if l.done != nil {
			<-l.done
		}
	})
	return l
}

// pipe connects a client by a pair of TCP sockets, without HTTP.
func (h *house) pipe(t testing.TB, p session.Peer) *line {
	t.Helper()
	a, b := sockets(t)
	done := make(chan error, 2)
	l := newLine(t, a, a)
	l.done = done
	go func() {
		err := h.core.ServeStream(context.Background(), b, p)
		done <- err
		close(done)
	}()
	return l
}

func sockets(t testing.TB) (client, server net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	client, err = net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	server, err = ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return client, server
}

// link upgrades a connection as a bridge does.
func (h *house) link(t testing.TB) *line {
	t.Helper()
	l, resp := h.upgrade(t, "Majordomus-Bridge: 0123abcd-0000\r\n")
	if resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("the link was answered %s", resp.Status)
	}
	return l
}

func (h *house) upgrade(t testing.TB, headers string) (*line, *http.Response) {
	t.Helper()
	conn, err := net.Dial("tcp", h.http.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "GET /mcp HTTP/1.1\r\nHost: x\r\nConnection: keep-alive, Upgrade\r\nUpgrade: %s\r\n%s\r\n", session.Protocol, headers)
	// Byte by byte, so that no line behind the head is read with it.
	var head []byte
	for one := make([]byte, 1); !bytes.HasSuffix(head, []byte("\r\n\r\n")); head = append(head, one[0]) {
		if _, err := io.ReadFull(conn, one); err != nil {
			t.Fatal("the answer to the upgrade was cut: ", string(head))
		}
	}
	resp, err := http.ReadResponse(newBufio(head), nil)
	if err != nil {
		t.Fatal(err)
	}
	return newLine(t, conn, conn), resp
}

func (l *line) say(s string) {
	l.t.Helper()
	if _, err := io.WriteString(l.conn, s+"\n"); err != nil {
		l.t.Fatal("writing to the link: ", err)
	}
}

func (l *line) next() string {
	l.t.Helper()
	if len(l.heard) > 0 {
		s := l.heard[0]
		l.heard = l.heard[1:]
		return s
	}
	return l.fresh()
}

func (l *line) fresh() string {
	l.t.Helper()
	select {
	case s, ok := <-l.lines:
		if !ok {
			l.t.Fatal("the link ended")
		}
		return s
	case <-time.After(patience):
		l.t.Fatal("nothing came over the link")
		return ""
	}
}

// want returns the first line that match takes, and keeps the others.
func (l *line) want(what string, match func(string) bool) string {
	l.t.Helper()
	for i, s := range l.heard {
		if match(s) {
			l.heard = slices.Delete(l.heard, i, i+1)
			return s
		}
	}
	for {
		s := l.fresh()
		if match(s) {
			return s
		}
		l.heard = append(l.heard, s)
		if len(l.heard) > 9000 {
			l.t.Fatal("never: ", what)
		}
	}
}

func (l *line) exactly(s string) {
	l.t.Helper()
	if got := l.next(); got != s {
		l.t.Fatalf("got %s\nwant %s", got, s)
	}
}

func (l *line) has(part string) string {
	l.t.Helper()
	return l.want(part, func(s string) bool { return strings.Contains(s, part) })
}

func answers(id string) func(string) bool {
	return func(s string) bool {
		m, err := frame.Parse([]byte(s))
		return err == nil && m.IsResponse() && string(m.ID) == id
	}
}

// answer waits for the answer to id, as written.
func (l *line) answer(id string) string {
	l.t.Helper()
	return l.want("an answer to "+brief(id), answers(id))
}

func brief(s string) string {
	if len(s) > 60 {
		return s[:60] + "…"
	}
	return s
}

func (l *line) greet(caps string) {
	l.t.Helper()
	l.say(hello(`"hello"`, caps))
	if s := l.answer(`"hello"`); !strings.Contains(s, `"protocolVersion":"2025-11-25"`) {
		l.t.Fatal("the handshake failed: ", s)
	}
	l.say(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
}

// ended waits until the other side has closed the link.
func (l *line) ended() {
	l.t.Helper()
	late := time.After(patience)
	for {
		select {
		case s, ok := <-l.lines:
			if !ok {
				return
			}
			l.heard = append(l.heard, s)
		case <-late:
			l.t.Fatal("the link did not end")
		}
	}
}

// a web is a client over HTTP with connections of its own.
type web struct {
	t      testing.TB
	url    string
	client *http.Client
	id     string // Mcp-Session-Id
	era    string
}

func (h *house) web(t testing.TB, era string) *web {
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	w := &web{t: t, url: h.http.URL + "/mcp", client: &http.Client{Transport: tr}, era: era}
	if era == shaken {
		w.greet(everything)
	}
	return w
}

func (w *web) greet(caps string) {
	w.t.Helper()
	resp := w.do(w.request(context.Background(), http.MethodPost, hello(`"hello"`, caps)))
	w.id = resp.Header.Get("Mcp-Session-Id")
	if b := body(w.t, resp); resp.StatusCode != 200 || w.id == "" {
		w.t.Fatal("the handshake failed: ", resp.Status, " ", b)
	}
	resp = w.post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	if body(w.t, resp); resp.StatusCode != http.StatusAccepted {
		w.t.Fatal("initialized was answered ", resp.Status)
	}
}

// request makes a request with the headers that its message asks for.
func (w *web) request(ctx context.Context, method, message string) *http.Request {
	r, err := http.NewRequestWithContext(ctx, method, w.url, strings.NewReader(message))
	if err != nil {
		w.t.Error(err)
	}
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
	}
	r.Header.Set("Accept", "application/json, text/event-stream")
	if w.id != "" {
		r.Header.Set("Mcp-Session-Id", w.id)
	}
	if w.era == stateless {
		m, _ := frame.Parse([]byte(message))
		r.Header.Set("Mcp-Protocol-Version", stateless)
		r.Header.Set("Mcp-Method", m.Name())
		for _, key := range []string{"name", "uri"} {
			if v, ok := frame.Text(frame.Get(m.Params, key)); ok {
				r.Header.Set("Mcp-Name", v)
			}
		}
	}
	return r
}

func (w *web) do(r *http.Request) *http.Response {
	w.t.Helper()
	resp, err := w.client.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { resp.Body.Close() })
	return resp
}

func (w *web) post(message string) *http.Response {
	w.t.Helper()
	return w.do(w.request(context.Background(), http.MethodPost, message))
}

// events are the messages of an answer: one of JSON, or those of its stream.
type events struct {
	t    testing.TB
	json []byte
	r    *frame.Reader
}

func eventsOf(t testing.TB, resp *http.Response) *events {
	if resp.Header.Get("Content-Type") == "application/json" {
		b, _ := io.ReadAll(resp.Body)
		return &events{t: t, json: b}
	}
	return &events{t: t, r: frame.NewReader(resp.Body, 0)}
}

func (e *events) next() (string, bool) {
	if e.r == nil {
		b := e.json
		e.json = nil
		return string(b), b != nil
	}
	for {
		b, err := e.r.Next()
		if err != nil {
			return "", false
		}
		if data, ok := bytes.CutPrefix(b, []byte("data: ")); ok {
			return string(data), true
		}
	}
}

func (e *events) must() string {
	e.t.Helper()
	s, ok := e.next()
	if !ok {
		e.t.Fatal("the stream ended")
	}
	return s
}

func body(t testing.TB, resp *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// an end takes messages and gives answers, whatever the front.
type end interface {
	// exchange sends a request and returns its answer.
	exchange(id, message string) string
}

func (l *line) exchange(id, message string) string { l.t.Helper(); l.say(message); return l.answer(id) }

func (w *web) exchange(id, message string) string {
	w.t.Helper()
	e := eventsOf(w.t, w.post(message))
	for {
		s := e.must()
		if answers(id)(s) {
			return s
		}
	}
}

// everywhere runs f in both eras over both fronts.
func everywhere(t *testing.T, f func(t *testing.T, h *house, e end, era string)) {
	for _, era := range []string{shaken, stateless} {
		t.Run("link/"+era, func(t *testing.T) {
			h := settle(t, nil)
			l := h.link(t)
			if era == shaken {
				l.greet(everything)
			}
			f(t, h, l, era)
		})
		t.Run("http/"+era, func(t *testing.T) {
			h := settle(t, nil)
			f(t, h, h.web(t, era), era)
		})
	}
}

func (h *house) hasBegun(t testing.TB, name string) {
	t.Helper()
	select {
	case got := <-h.began:
		if got != name {
			t.Fatalf("the call %q began, not %q", got, name)
		}
	case <-time.After(patience):
		t.Fatalf("the call %q never began", name)
	}
}

func (h *house) hasEnded(t testing.TB, want error) {
	t.Helper()
	select {
	case err := <-h.ended:
		if !errors.Is(err, want) {
			t.Fatalf("the call ended with %v, not %v", err, want)
		}
	case <-time.After(patience):
		t.Fatal("the call never ended")
	}
}

func (h *house) release(t testing.TB) {
	t.Helper()
	select {
	case <-h.free:
	case <-time.After(patience):
		t.Fatal("no call waited to be freed")
	}
}

func newBufio(b []byte) *bufio.Reader { return bufio.NewReader(bytes.NewReader(b)) }
