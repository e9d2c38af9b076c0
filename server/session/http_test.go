package session_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"majordomus/bridge/frame"
	"majordomus/server/session"
)

func TestHTTPRefusals(t *testing.T) {
	h := settle(t, func(c *session.Config) { c.MaxMessage = 10000 })
	w := h.web(t, shaken)
	ping := request(`1`, "ping", "{}")
	for name, test := range map[string]struct {
		method, body string
		change       func(*http.Request)
		status       int
		code         string
	}{
		"too large": {"POST", request(`1`, "ping", `{"x":"`+strings.Repeat("x", 10000)+`"}`), nil, 413, "payload_too_large"},
		"too large, in parts": {"POST", request(`1`, "ping", `{"x":"`+strings.Repeat("x", 10000)+`"}`), func(r *http.Request) {
			r.ContentLength = -1
			r.Body = io.NopCloser(io.MultiReader(r.Body))
		}, 413, "payload_too_large"},
		"another type":      {"POST", ping, func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }, 415, "unsupported_media_type"},
		"no type":           {"POST", ping, func(r *http.Request) { r.Header.Del("Content-Type") }, 415, "unsupported_media_type"},
		"not acceptable":    {"POST", ping, func(r *http.Request) { r.Header.Set("Accept", "text/html") }, 406, "not_acceptable"},
		"no stream":         {"GET", "", func(r *http.Request) { r.Header.Set("Accept", "application/json") }, 406, "not_acceptable"},
		"another method":    {"PUT", ping, nil, 405, "method_not_allowed"},
		"no session":        {"POST", ping, func(r *http.Request) { r.Header.Del("Mcp-Session-Id") }, 400, "session_required"},
		"another's session": {"POST", ping, func(r *http.Request) { r.Header.Set("Mcp-Session-Id", "gen0-ABC") }, 404, "session_not_found"},
		"another's stream":  {"GET", "", func(r *http.Request) { r.Header.Set("Mcp-Session-Id", "gen0-ABC") }, 404, "session_not_found"},
		"another's end":     {"DELETE", "", func(r *http.Request) { r.Header.Set("Mcp-Session-Id", "gen0-ABC") }, 404, "session_not_found"},
		"stateless stream":  {"GET", "", func(r *http.Request) { r.Header.Set("Mcp-Protocol-Version", stateless) }, 405, "method_not_allowed"},
		"no JSON":           {"POST", "{", nil, 400, "-32700"},
		"a batch":           {"POST", "[" + ping + "]", nil, 400, "-32600"},
		"old unknown":       {"POST", ping, func(r *http.Request) { r.Header.Set("Mcp-Protocol-Version", "1999-01-01") }, 400, "-32600"},
	} {
		t.Run(name, func(t *testing.T) {
			r := w.request(context.Background(), test.method, test.body)
			if test.change != nil {
				test.change(r)
			}
			resp := w.do(r)
			b := []byte(body(t, resp))
			code := frame.Get(b, "error", "code")
			if s, ok := frame.Text(code); ok {
				code = []byte(s)
			}
			if resp.StatusCode != test.status || string(code) != test.code {
				t.Errorf("answered %s %s", resp.Status, b)
			}
			if allow := resp.Header.Get("Allow"); (test.status == 405) != (allow != "") {
				t.Errorf("Allow: %q", allow)
			}
		})
	}
	if s := w.exchange(`1`, ping); !strings.Contains(s, `"result":{}`) {
		t.Error("after all that: ", s)
	}
}

func TestStatelessHeaders(t *testing.T) {
	h := settle(t, nil)
	w := h.web(t, stateless)
	call := toolCall(stateless, `1`, "region", `"region":"eu"`, "")
	set := func(k, v string) func(*http.Request) {
		return func(r *http.Request) {
			r.Header.Set("Mcp-Param-Region", "eu")
			if v == "" {
				r.Header.Del(k)
			} else {
				r.Header.Set(k, v)
			}
		}
	}
	for name, test := range map[string]struct {
		body   string
		change func(*http.Request)
		status int
		code   string
	}{
		"all right":          {call, set("X", "y"), 200, ""},
		"another version":    {call, set("Mcp-Protocol-Version", "2026-12-31"), 400, "-32020"},
		"no version":         {call, set("Mcp-Protocol-Version", ""), 400, "-32020"},
		"another method":     {call, set("Mcp-Method", "tools/list"), 400, "-32020"},
		"no method":          {call, set("Mcp-Method", ""), 400, "-32020"},
		"another name":       {call, set("Mcp-Name", "echo"), 400, "-32020"},
		"another parameter":  {call, set("Mcp-Param-Region", "us"), 400, "-32020"},
		"no parameter":       {call, set("Mcp-Param-Region", ""), 400, "-32020"},
		"no version in meta": {request(`1`, "tools/list", "{}"), set("X", "y"), 400, "-32602"},
		"unknown version":    {strings.ReplaceAll(call, stateless, "2027-01-01"), set("Mcp-Protocol-Version", "2027-01-01"), 400, "-32022"},
		"unknown method":     {request(`1`, "no/such", params(stateless, "", "")), set("X", "y"), 404, "-32601"},
		"unknown tool":       {toolCall(stateless, `1`, "nothing", "", ""), set("X", "y"), 400, "-32602"},
		"a response":         {`{"jsonrpc":"2.0","id":1,"result":{}}`, set("X", "y"), 400, "-32600"},
	} {
		t.Run(name, func(t *testing.T) {
			r := w.request(context.Background(), "POST", test.body)
			test.change(r)
			resp := w.do(r)
			b := []byte(body(t, resp))
			if got := string(frame.Get(b, "error", "code")); resp.StatusCode != test.status || got != test.code {
				t.Errorf("answered %s %s", resp.Status, b)
			}
			if test.code == "-32022" && !strings.Contains(string(b), `"supported":["2026-07-28"`) {
				t.Errorf("not told what is supported: %s", b)
			}
		})
	}
	// A handshake that asks for what nobody knows is given what we know.
	resp := w.do(w.request(context.Background(), "POST", ""))
	resp.Body.Close()
	old := h.web(t, "")
	s := old.exchange(`1`, strings.ReplaceAll(hello(`1`, `{}`), shaken, "1999-01-01"))
	if !strings.Contains(s, `"protocolVersion":"2025-`) {
		t.Error(s)
	}
}

func TestBodiesMayHaveLines(t *testing.T) {
	h := settle(t, nil)
	w := h.web(t, shaken)
	m := "\ufeff{\n\t\"jsonrpc\": \"2.0\",\r\n \"id\": 9007199254740993,\n\"method\": \"tools/call\", \"params\": {\"name\": \"progress\",\n \"_meta\": {\"progressToken\":\n 1.50}}\n}\n"
	e := eventsOf(t, w.post(m))
	if s := e.must(); !strings.Contains(s, `"progressToken":1.50,`) {
		t.Error(s)
	}
	if s := e.must(); !answers(`9007199254740993`)(s) {
		t.Error(s)
	}
}

func TestDeleteEndsASession(t *testing.T) {
	h := settle(t, nil)
	w := h.web(t, shaken)
	stream := eventsOf(t, w.do(w.request(context.Background(), "GET", "")))
	if resp := w.do(w.request(context.Background(), "DELETE", "")); resp.StatusCode != 200 {
		t.Error(resp.Status)
	}
	if s, ok := stream.next(); ok {
		t.Error("the stream said ", s)
	}
	if resp := w.post(request(`1`, "ping", "{}")); resp.StatusCode != 404 {
		t.Error(resp.Status)
	}
}

// What was told before there was a stream is kept, the newest of it, and a
// second stream takes the place of the first: nothing is said twice.
func TestStreams(t *testing.T) {
	h := settle(t, nil)
	w := h.web(t, shaken)
	h.core.ListChanged("tools")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	first := eventsOf(t, w.do(w.request(ctx, "GET", "")))
	if s := first.must(); !strings.Contains(s, "tools/list_changed") {
		t.Error(s)
	}
	h.core.ListChanged("prompts")
	if s := first.must(); !strings.Contains(s, "prompts/list_changed") {
		t.Error(s)
	}
	resp := w.do(w.request(context.Background(), "GET", ""))
	second := eventsOf(t, resp)
	// Its head is written before it is attached: only when a list change has
	// come through it is it known to be the one.
	late := time.Now().Add(patience)
	heard := make(chan string, 100)
	go func() {
		defer close(heard)
		for {
			s, ok := second.next()
			if !ok {
				return
			}
			heard <- s
		}
	}()
	for done := false; !done; {
		h.core.ListChanged("resources")
		select {
		case <-heard:
			done = true
		case <-time.After(10 * time.Millisecond):
			if time.Now().After(late) {
				t.Fatal("the second stream is never told anything")
			}
		}
	}
	h.core.ListChanged("tools")
	for s := range heard {
		if strings.Contains(s, "tools/") {
			break
		}
	}
	resp.Body.Close()
	for range heard {
	}
}

func TestSessionsAreForgotten(t *testing.T) {
	h := settle(t, func(c *session.Config) { c.SessionIdle = 100 * time.Millisecond })
	gone := h.web(t, shaken)
	kept := h.web(t, shaken)
	stream := eventsOf(t, kept.do(kept.request(context.Background(), "GET", "")))
	h.until(t, "one is forgotten", h.peers(1))
	if resp := gone.post(request(`1`, "ping", "{}")); resp.StatusCode != 404 {
		t.Error(resp.Status)
	}
	h.core.ListChanged("tools")
	if s := stream.must(); !strings.Contains(s, "tools/") {
		t.Error(s)
	}
}

func TestStatelessPeersGoWithTheirConnection(t *testing.T) {
	h := settle(t, nil)
	w := h.web(t, stateless)
	for range 3 {
		w.exchange(`1`, toolCall(stateless, `1`, "echo", "", ""))
	}
	if p := h.core.Peers(); len(p) != 1 || p[0].Client != "t" || p[0].Era != stateless || p[0].Front != "http" || !p[0].Active {
		t.Errorf("%+v", p)
	}
	w.client.CloseIdleConnections()
	h.until(t, "nobody there", h.peers(0))
}

func TestTooManySessions(t *testing.T) {
	h := settle(t, func(c *session.Config) { c.MaxSessions = 2 })
	l := h.link(t)
	w := h.web(t, shaken)
	_, resp := h.upgrade(t, "")
	if resp.StatusCode != 429 {
		t.Error("a link was answered ", resp.Status)
	}
	if resp := h.web(t, "").post(hello(`1`, `{}`)); resp.StatusCode != 429 {
		t.Error("a handshake was answered ", resp.Status)
	}
	if resp := h.web(t, stateless).post(toolCall(stateless, `1`, "echo", "", "")); resp.StatusCode != 429 {
		t.Error("a stateless request was answered ", resp.Status)
	}
	if s := w.exchange(`1`, request(`1`, "ping", "{}")); !strings.Contains(s, "result") {
		t.Error("who was in was answered ", s)
	}
	l.say("!bye")
	h.until(t, "one has left", h.peers(1))
	h.link(t)
}

func TestAdmitTakesHTTPPeersOutAgain(t *testing.T) {
	var shut atomic.Bool
	var h *house
	var entered atomic.Int64
	h = settle(t, func(c *session.Config) {
		c.Admit = func() error {
			p, _ := h.core.Stats()
			entered.Store(int64(p))
			if shut.Load() {
				return &session.Refusal{Status: 409, Code: "lease_lost", Message: "gone"}
			}
			return nil
		}
	})
	w, s := h.web(t, shaken), h.web(t, stateless)
	s.exchange(`1`, toolCall(stateless, `1`, "echo", "", ""))
	shut.Store(true)
	for era, m := range map[string]string{"": hello(`1`, `{}`), stateless: toolCall(stateless, `1`, "echo", "", "")} {
		resp := h.web(t, era).post(m)
		if b := body(t, resp); resp.StatusCode != 409 || !strings.Contains(b, `"lease_lost"`) || resp.Header.Get("Mcp-Session-Id") != "" {
			t.Errorf("%q: %s %s", era, resp.Status, b)
		}
	}
	if p, _ := h.core.Stats(); entered.Load() != 3 || p != 2 {
		t.Errorf("%d were in when asked, %d afterwards", entered.Load(), p)
	}
	w.exchange(`1`, request(`1`, "ping", "{}"))
	s.exchange(`2`, toolCall(stateless, `2`, "echo", "", ""))
}

func TestKnown(t *testing.T) {
	known := make(chan bool, 10)
	h := settle(t, nil)
	inner := h.http.Config.Handler
	h.http.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		known <- h.core.Known(r)
		inner.ServeHTTP(w, r)
	})
	is := func(what string, want bool) {
		t.Helper()
		if got := <-known; got != want {
			t.Errorf("%s: known is %v", what, got)
		}
	}
	w := h.web(t, shaken)
	is("a handshake", false)
	is("initialized", true)
	w.id = "gen0-X"
	w.post(request(`1`, "ping", "{}"))
	is("another's session", false)
	s := h.web(t, stateless)
	s.exchange(`1`, toolCall(stateless, `1`, "echo", "", ""))
	is("a new connection", false)
	s.exchange(`2`, toolCall(stateless, `2`, "echo", "", ""))
	is("the same connection", true)
	h.link(t)
	is("a link", false)
}

// In the era with a handshake a lost connection takes no call back; in the
// stateless one it does.
func TestDroppedPost(t *testing.T) {
	for _, era := range []string{shaken, stateless} {
		t.Run(era, func(t *testing.T) {
			h := settle(t, nil)
			w := h.web(t, era)
			ctx, cancel := context.WithCancel(context.Background())
			done := make(chan struct{})
			go func() {
				defer close(done)
				resp, err := w.client.Do(w.request(ctx, "POST", toolCall(era, `1`, "block", `"s":"a"`, "")))
				if err == nil {
					resp.Body.Close()
					t.Error("answered ", resp.Status)
				}
			}()
			h.hasBegun(t, "a")
			cancel()
			<-done
			if era == stateless {
				h.hasEnded(t, context.Canceled)
				return
			}
			for range 5 { // it has had time to notice
				w.exchange(`2`, toolCall(era, `2`, "echo", "", ""))
			}
			h.release(t)
			h.hasEnded(t, nil)
		})
	}
}

// First requests that come side by side are of one peer.
func TestPeersEnterOnce(t *testing.T) {
	h := settle(t, nil)
	w := h.web(t, stateless)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			r := w.request(context.Background(), "POST", toolCall(stateless, `1`, "block", `"s":"a"`, ""))
			r.Header.Set("Majordomus-Bridge", "beef-1")
			resp, err := w.client.Do(r)
			if err != nil {
				t.Error(err)
				return
			}
			resp.Body.Close()
		})
	}
	for range 8 {
		h.hasBegun(t, "a")
	}
	if p := h.core.Peers(); len(p) != 1 || p[0].InFlight != 8 {
		t.Errorf("%+v", p)
	}
	for range 8 {
		h.release(t)
	}
	wg.Wait()
}

// A hosted server reads lines: what it is handed is one, however the body was
// laid out, and its answer is one event however it lays that out.
func TestHostedServersGetOneLine(t *testing.T) {
	hosted := &router{got: make(chan string, 1)}
	h := settle(t, func(c *session.Config) { c.Hosted = hosted })
	w := h.web(t, shaken)
	e := eventsOf(t, w.post("{\"jsonrpc\":\"2.0\",\n\"id\": 1.50,\r\n\"method\":\"tools/call\",\"params\":{\"name\":\"hosted\",\n\"n\": 1e2}}"))
	if s := <-hosted.got; s != `{"jsonrpc":"2.0","id":1.50,"method":"tools/call","params":{"name":"hosted","n":1e2}}` {
		t.Errorf("handed over: %q", s)
	}
	if s := e.must(); s != `{"jsonrpc":"2.0","id":1.50,"result":{"x": 1e2}}` {
		t.Error(s)
	}
	// Lists are added to without a byte of theirs changed.
	s := w.exchange(`2`, request(`2`, "tools/list", "{}"))
	if !strings.HasSuffix(s, `,{"name":"hosted", "n":1e2}]}}`) {
		t.Error(s)
	}
}

// Whoever hosts servers knows from when to when each client is there.
func TestClientsComeAndGo(t *testing.T) {
	for _, era := range []string{shaken, stateless} {
		for _, way := range []string{"link", "http"} {
			t.Run(way+"/"+era, func(t *testing.T) {
				hosted := &router{seen: make(chan string, 100)}
				h := settle(t, func(c *session.Config) { c.Hosted = hosted })
				want := func(what, of string) string {
					t.Helper()
					select {
					case s := <-hosted.seen:
						got, id, _ := strings.Cut(s, " ")
						if got != what || of != "" && id != of {
							t.Fatalf("heard %q, not %s %s", s, what, of)
						}
						return id
					case <-time.After(patience):
						t.Fatalf("never: %s", what)
						return ""
					}
				}
				var leave func()
				if way == "link" {
					l := h.link(t)
					if era == shaken {
						l.greet("{}")
					} else {
						l.exchange(`1`, request(`1`, "tools/list", params(era, "", "")))
						l.exchange(`2`, request(`2`, "tools/list", params(era, "", "")))
					}
					leave = func() { l.say("!bye") }
				} else {
					w := h.web(t, era)
					if era == stateless {
						w.exchange(`1`, request(`1`, "tools/list", params(era, "", "")))
						w.exchange(`2`, request(`2`, "tools/list", params(era, "", "")))
						leave = w.client.CloseIdleConnections
					} else {
						leave = func() { body(t, w.do(w.request(context.Background(), http.MethodDelete, ""))) }
					}
				}
				id := want("ready", "")
				leave()
				want("left", id)
				if len(hosted.seen) > 0 {
					t.Error("heard ", <-hosted.seen)
				}
			})
		}
	}
}

type router struct {
	got      chan string
	seen     chan string
	harmless bool
	large    int // bytes of an answer; 0: a small one
}

func (r *router) Ready(id string)           { r.note("ready", id) }
func (r *router) Listening(session.Request) {}
func (r *router) Harmless(string) bool      { return r.harmless }

func (r *router) Left(id string) { r.note("left", id) }

func (r *router) note(what, id string) {
	if r.seen != nil {
		r.seen <- what + " " + id
	}
}

func (r *router) Route(q session.Request) (frame.Line, bool) {
	m := q.Message()
	if name, _ := frame.Text(frame.Get(m.Params, "name")); name != "hosted" {
		return nil, false
	}
	r.got <- string(m.Raw)
	return frame.Answer(m.ID, r.result()), true
}

func (r *router) result() []byte {
	if r.large > 0 {
		return []byte(`{"x": "` + strings.Repeat("x", r.large) + `"}`)
	}
	return []byte(`{"x": 1e2}`)
}

func (r *router) List(_ session.Request, kind string) [][]byte {
	if kind != "tools" {
		return nil
	}
	return [][]byte{[]byte(`{"name":"hosted", "n":1e2}`)}
}
