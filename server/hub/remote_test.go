package hub_test

import (
	"context"
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

	"majordomus/bridge/frame"
	"majordomus/server/hub/config"
)

// far is a server that is reached over HTTP, in raw bytes so that it can say
// what no library would. It offers one tool, echo.
type far struct {
	t   *testing.T
	srv *httptest.Server

	// calls answers tools/call; nil echoes its params. It may be replaced by set.
	calls func(w http.ResponseWriter, r *http.Request, m frame.Message)
	// gets answers GET; nil offers none.
	gets func(w http.ResponseWriter, r *http.Request)
	// first is asked before all else, and returns true where it has answered.
	first func(w http.ResponseWriter, r *http.Request, m frame.Message) bool

	mu       sync.Mutex
	sessions map[string]bool
	begun    int
	seen     []visit
	extra    string // more tools
	heard    chan frame.Message
}

// A visit is one request that it got.
type visit struct {
	method string
	header http.Header
	m      frame.Message
}

func newFar(t *testing.T) *far {
	f := &far{t: t, sessions: map[string]bool{}, heard: make(chan frame.Message, 1000)}
	f.srv = httptest.NewServer(f)
	t.Cleanup(func() {
		f.srv.CloseClientConnections()
		f.srv.Close()
	})
	return f
}

func (f *far) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	m, _ := frame.Parse(body) // ignore error: no body is no message
	id := r.Header.Get("Mcp-Session-Id")
	f.mu.Lock()
	f.seen = append(f.seen, visit{r.Method, r.Header.Clone(), m})
	known := f.sessions[id]
	first, calls, gets, extra := f.first, f.calls, f.gets, f.extra
	f.mu.Unlock()
	if first != nil && first(w, r, m) {
		return
	}
	switch {
	case m.Name() == "initialize":
		f.mu.Lock()
		f.begun++
		id = fmt.Sprintf("session-%d", f.begun)
		f.sessions[id] = true
		f.mu.Unlock()
		w.Header().Set("Mcp-Session-Id", id)
		answer(w, m, `{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true},"logging":{}},"serverInfo":{"name":"far","version":"1"}}`)
	case !known:
		http.Error(w, "no such session", http.StatusNotFound)
	case r.Method == http.MethodDelete:
		f.forget()
		w.WriteHeader(http.StatusNoContent)
	case r.Method == http.MethodGet:
		if gets == nil {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		gets(w, r)
	case !m.IsRequest():
		f.heard <- m
		w.WriteHeader(http.StatusAccepted)
	case m.Name() == "tools/list":
		answer(w, m, `{"tools":[{"name":"echo","inputSchema":{"type":"object"},"_meta":{"k":0.10}}`+extra+`]}`)
	case m.Name() == "tools/call" && calls != nil:
		calls(w, r, m)
	case m.Name() == "tools/call":
		answer(w, m, `{"content":[{"type":"text","text":`+string(frame.Quote(string(m.Params)))+`}],"odd": 1e2}`)
	case m.Name() == "ping":
		answer(w, m, "{}")
	default:
		say(w, "application/json", fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such method"}}`, m.ID))
	}
}

// forget has it know no session any more, as after a restart.
func (f *far) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sessions = map[string]bool{}
}

func (f *far) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// visits are the requests of an HTTP method, or those that carried an MCP one.
func (f *far) visits(method string) (some []visit) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, v := range f.seen {
		if v.method == method || v.m.Name() == method {
			some = append(some, v)
		}
	}
	return some
}

// next is the next message that is no request of the hub's, by its method; "" is
// an answer.
func (f *far) next(method string) frame.Message {
	f.t.Helper()
	for {
		select {
		case m := <-f.heard:
			if m.Name() == method {
				return m
			}
		case <-time.After(patience):
			f.t.Fatalf("never heard: %q", method)
		}
	}
}

func say(w http.ResponseWriter, kind, body string) {
	w.Header().Set("Content-Type", kind)
	io.WriteString(w, body) // ignore error: the other side may have gone
}

func answer(w http.ResponseWriter, m frame.Message, result string) {
	say(w, "application/json", string(frame.Result(m.ID, []byte(result))))
}

// stream begins a stream of events; what it returns adds to it.
func stream(w http.ResponseWriter) func(format string, args ...any) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	return func(format string, args ...any) {
		fmt.Fprintf(w, format, args...) // ignore error: the other side may have gone
		w.(http.Flusher).Flush()
	}
}

const done = `data: {"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"done"}]}}` + "\n\n"

// reach hosts the server as "far".
func reach(t *testing.T, f *far, change ...func(*config.Server)) *house {
	return reachAt(t, f.srv.URL+"/mcp?key=hush", change...)
}

func reachAt(t *testing.T, address string, change ...func(*config.Server)) *house {
	h := &house{t: t, dir: t.TempDir()}
	h.hostAt(address, change...)
	h.open()
	return h
}

func (h *house) hostAt(address string, change ...func(*config.Server)) {
	s := config.Server{Name: "far", URL: address, Headers: map[string]string{"Authorization": "Bearer hush", "X-Own": "1"}}
	for _, c := range change {
		c(&s)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.file = &config.File{Digest: address + "#", Servers: []config.Server{s}}
}

func TestRemotePassesAsItIs(t *testing.T) {
	f := newFar(t)
	h := reach(t, f)
	c := h.client()
	if got := string(frame.Get(c.ask("tools/list", "{}").Result, "tools")); got != `[{"name":"far__echo","inputSchema":{"type":"object"},"_meta":{"k":0.10}}]` {
		t.Errorf("tools: %s", got)
	}
	m := c.ask("tools/call", `{"name":"far__echo","arguments":{"n":9007199254740993},"_meta":{"other":0.10}}`)
	if got := string(m.Result); got != `{"content":[{"type":"text","text":"{\"name\":\"echo\",\"arguments\":{\"n\":9007199254740993},\"_meta\":{\"other\":0.10}}"}],"odd": 1e2}` {
		t.Errorf("a call: %s", got)
	}
	for i, v := range f.visits("POST") {
		accept := v.header.Get("Accept")
		wantSession, wantVersion := "session-1", "2025-06-18"
		if i == 0 {
			wantSession, wantVersion = "", ""
		}
		if !strings.Contains(accept, "application/json") || !strings.Contains(accept, "text/event-stream") ||
			v.header.Get("Content-Type") != "application/json" || v.header.Get("Authorization") != "Bearer hush" || v.header.Get("X-Own") != "1" ||
			v.header.Get("Mcp-Session-Id") != wantSession || v.header.Get("Mcp-Protocol-Version") != wantVersion {
			t.Errorf("%s: headers %v", v.m.Name(), v.header)
		}
	}
	var names []string
	for _, v := range f.visits("POST") {
		names = append(names, v.m.Name())
	}
	if want := []string{"initialize", "notifications/initialized", "tools/list", "tools/call"}; !slices.Equal(names, want) {
		t.Errorf("it was asked %q", names)
	}
	if st := h.hub.States()[0]; st.State != "ready" || len(st.Processes) != 0 {
		t.Errorf("it is %+v", st)
	}
	h.close()
	if v := f.visits("DELETE"); len(v) != 1 || v[0].header.Get("Mcp-Session-Id") != "session-1" || v[0].header.Get("Authorization") == "" {
		t.Errorf("its end was told as %v", v)
	}
}

// A majordomus is not hosted by another one, by whatever way it is reached, and
// is left before it starts what it hosts itself.
func TestOurselvesAreNotHosted(t *testing.T) {
	f := newFar(t)
	f.first = func(w http.ResponseWriter, _ *http.Request, m frame.Message) bool {
		if m.Name() != "initialize" {
			return false
		}
		f.set(func() { f.sessions["session-1"] = true })
		w.Header().Set("Mcp-Session-Id", "session-1")
		answer(w, m, `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"majordomus","version":"1"}}`)
		return true
	}
	for _, h := range []*house{reach(t, f), settle(t, "self=majordomus")} {
		if got := string(h.client().ask("tools/list", "{}").Result); strings.Contains(got, "__") {
			t.Errorf("listed %s", got)
		}
		if st := h.hub.States()[0]; st.State != "failed" || !strings.Contains(st.LastError, "hosting ourselves") {
			t.Errorf("it is %+v", st)
		}
	}
	if n := len(f.visits("notifications/initialized")) + len(f.visits("tools/list")); n > 0 || len(f.visits("DELETE")) != len(f.visits("initialize")) {
		t.Errorf("it was visited %v", f.visits("POST"))
	}
}

// However a message is wrapped, its bytes are the server's, on one line.
func TestRemoteForms(t *testing.T) {
	f := newFar(t)
	h := reach(t, f)
	c := h.client()
	c.ask("tools/list", "{}")
	const want = `{"content":[],  "text":"a\nb \u2028 \"x\" ü","n":1e2, "big":9007199254740993,"list":[1,  2]}`
	lines := strings.ReplaceAll(want, "  ", " \n") // as if it were pretty
	for name, answer := range map[string]struct{ kind, body string }{
		"plain":             {"application/json", `{"jsonrpc":"2.0","id":ID,"result":RESULT}`},
		"odd type":          {"Application/JSON; charset=UTF-8", `{"jsonrpc":"2.0","id":ID,"result":RESULT}`},
		"pretty":            {"application/json", "\ufeff\r\n{\n\t\"result\": LINES,\r\n\"id\":ID }\n\n"},
		"no type":           {"", `{"jsonrpc":"2.0","id":ID,"result":RESULT}`},
		"list":              {"application/json", `[{"jsonrpc":"2.0","method":"notifications/message","params":{}}, {"jsonrpc":"2.0","id":ID,"result":RESULT}]`},
		"event":             {"text/event-stream", "event: message\nid: 1\ndata: {\"id\":ID,\"result\":RESULT}\n\n"},
		"several lines":     {"text/event-stream", "EVENT {\n\"result\":LINES,\n\"id\":ID\n}"},
		"carriage returns":  {"text/event-stream", "EVENT {\n\"result\":LINES,\n\"id\":ID\n}"},
		"both":              {"text/event-stream", ": hello\r\n\r\nid\r\nretry: x\r\ndata: {\"id\":ID,\"result\":RESULT}\r\n\r\n"},
		"foreign events":    {"text/event-stream", "event: ping\ndata: {\"id\":ID,\"result\":{}}\n\ndata\n\nevent: message\ndata: {\"id\":ID,\"result\":RESULT}\n\n"},
		"banner":            {"text/event-stream", "data: Welcome!\n\ndata: {\"id\":ID,\"result\":RESULT}\n\n"},
		"unknown reference": {"text/event-stream", "data: {\"id\":77777,\"result\":{}}\n\ndata: {\"id\":ID,\"result\":RESULT}\n\n"},
	} {
		f.set(func() {
			f.calls = func(w http.ResponseWriter, _ *http.Request, m frame.Message) {
				r := strings.NewReplacer("ID", string(m.ID), "RESULT", want, "LINES", lines)
				w.Header()["Content-Type"] = nil
				if answer.kind != "" {
					w.Header().Set("Content-Type", answer.kind)
				}
				body := r.Replace(answer.body)
				if text, ok := strings.CutPrefix(body, "EVENT "); ok {
					body = "data:" + strings.ReplaceAll(text, "\n", "\ndata:") + "\n\n"
				}
				if name == "carriage returns" {
					body = strings.ReplaceAll(body, "\n", "\r")
				}
				io.WriteString(w, body) // ignore error: judged by what arrives
			}
		})
		expected := want
		if strings.Contains(answer.body, "LINES") {
			expected = strings.ReplaceAll(lines, "\n", " ")
		}
		if got := string(c.call("far__echo", "").Result); got != expected {
			t.Errorf("%s:\n got %s\nwant %s", name, got, expected)
		}
	}
	for name, answer := range map[string]struct {
		status     int
		kind, body string
	}{
		"plain":     {200, "application/json", `{"jsonrpc":"2.0","id":ID,"error":ERROR}`},
		"event":     {200, "text/event-stream", "data: {\"id\":ID,\"error\":ERROR}\n\n"},
		"null":      {200, "application/json", `{"jsonrpc":"2.0","id":null,"error":ERROR}`},
		"with 400":  {400, "application/json", `{"jsonrpc":"2.0","id":ID,"error":ERROR}`},
		"with 500":  {500, "application/json; a=b", ` {"jsonrpc":"2.0","id":ID,"error":ERROR} `},
		"with lone": {403, "application/problem+json", `{"id":ID,"error":ERROR}`},
	} {
		const want = `{"code":-32050,"message":"no <thing>","data":{"n":1e2}}`
		f.set(func() {
			f.calls = func(w http.ResponseWriter, _ *http.Request, m frame.Message) {
				w.Header().Set("Content-Type", answer.kind)
				w.WriteHeader(answer.status)
				io.WriteString(w, strings.NewReplacer("ID", string(m.ID), "ERROR", want).Replace(answer.body)) // ignore error: as above
			}
		})
		if got := string(c.call("far__echo", "").Error); got != want {
			t.Errorf("an error, %s: %s", name, got)
		}
	}
	if n := len(f.visits("initialize")); n != 1 {
		t.Errorf("%d handshakes", n)
	}
}

// What is in the answer to a call is that call's: it reaches its client, though
// another has one in flight too.
func TestWhatComesBeforeARemoteAnswer(t *testing.T) {
	f := newFar(t)
	var calls sync.WaitGroup
	f.calls = func(w http.ResponseWriter, r *http.Request, m frame.Message) {
		defer calls.Done()
		emit := stream(w)
		who := string(frame.Get(m.Params, "arguments", "who"))
		token := frame.Get(m.Params, "_meta", "progressToken")
		for i := range 100 {
			emit("data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":%s,\"progress\":%d,\"odd\":1e2}}\n\n", token, i)
		}
		emit("data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"level\":\"error\",\"data\":%s}}\n\n", who)
		emit("data: {\"jsonrpc\":\"2.0\",\"id\":\"q\",\"method\":\"elicitation/create\",\"params\":{\"message\":%s,\"requestedSchema\":{\"type\":\"object\"}}}\n\n", who)
		for end := time.Now().Add(patience); time.Now().Before(end) && r.Context().Err() == nil; {
			select {
			case a := <-f.heard:
				if a.IsResponse() && string(frame.Get(a.Result, "content", "who")) == who {
					emit("data: "+`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":%s}]}}`+"\n\n", m.ID, frame.Quote(string(a.Raw)))
					return
				}
				f.heard <- a
			case <-time.After(time.Millisecond):
			}
		}
	}
	h := reach(t, f)
	var clients []*client
	for range 3 {
		clients = append(clients, h.client())
	}
	clients[0].ask("tools/list", "{}")
	calls.Add(len(clients))
	ids := make([]string, len(clients))
	questions := make([]frame.Message, len(clients))
	for i, c := range clients {
		ids[i] = c.send("tools/call", fmt.Sprintf(`{"name":"far__echo","arguments":{"who":"c%d"},"_meta":{"progressToken":"t"}}`, i))
	}
	for i, c := range clients {
		for questions[i].Name() != "elicitation/create" {
			questions[i] = c.hear()
			c.notes = append(c.notes, string(questions[i].Raw))
		}
		if got, want := string(questions[i].Params), fmt.Sprintf(`{"message":"c%d","requestedSchema":{"type":"object"}}`, i); got != want {
			t.Errorf("client %d was asked %s", i, got)
		}
	}
	// That it asks in answers makes nobody wait for a turn.
	calls.Add(1)
	late := h.client()
	f.set(func() {
		asks := f.calls
		f.calls = func(w http.ResponseWriter, r *http.Request, m frame.Message) {
			if string(frame.Get(m.Params, "arguments", "who")) != `"late"` {
				asks(w, r, m)
				return
			}
			defer calls.Done()
			answer(w, m, "{}")
		}
	})
	late.call("far__echo", `"who":"late"`)
	// The first answers last.
	for i := len(clients) - 1; i >= 0; i-- {
		c := clients[i]
		c.say(string(frame.Result(questions[i].ID, fmt.Appendf(nil, `{"action":"accept","content":{"who":"c%d","n":1e2}}`, i))))
		want := fmt.Sprintf(`{"jsonrpc":"2.0","id":"q","result":{"action":"accept","content":{"who":"c%d","n":1e2}}}`, i)
		if got := text(c.answer(ids[i])); got != want {
			t.Errorf("client %d's answer arrived as %s", i, got)
		}
		notes := strings.Join(c.notes, "\n")
		if !strings.Contains(notes, `"params":{"progressToken":"t","progress":99,"odd":1e2}`) {
			t.Errorf("client %d did not get the last progress: %s", i, notes)
		}
		for j := range clients {
			if strings.Contains(notes, fmt.Sprintf(`{"level":"error","data":"c%d"}`, j)) != (i == j) {
				t.Errorf("client %d heard the log of %d, or not its own: %s", i, j, notes)
			}
		}
	}
	calls.Wait()
}

// What it says by itself comes in a stream of its own, which is opened again
// after its end, from where it ended.
func TestRemoteSpeaksByItself(t *testing.T) {
	t.Parallel()
	f := newFar(t)
	open := make(chan func(string, ...any), 10)
	closing := make(chan struct{})
	f.gets = func(w http.ResponseWriter, r *http.Request) {
		open <- stream(w)
		select {
		case <-closing:
		case <-r.Context().Done():
		}
	}
	h := reach(t, f)
	c := h.client()
	c.ask("tools/list", "{}")
	emit := <-open
	f.set(func() { f.extra = `,{"name":"more","inputSchema":{"type":"object"}}` })
	emit("id: e<7>\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n\n")
	listed := func(name string) func() bool {
		return func() bool { return strings.Contains(string(c.ask("tools/list", "{}").Result), name) }
	}
	eventually(t, "the new tool is listed", listed("far__more"))
	emit("data: {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n\n")
	if m := f.next(""); string(m.Raw) != `{"jsonrpc":"2.0","id":1,"result":{}}` {
		t.Errorf("its ping was answered %s", m.Raw)
	}
	emit("data: {\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"roots/list\"}\n\n")
	if m := f.next(""); !strings.Contains(string(m.Raw), `"uri":"file://`+h.dir+`"`) {
		t.Errorf("its roots are %s", m.Raw)
	}
	closing <- struct{}{}
	emit = <-open
	gets := f.visits("GET")
	if v := gets[len(gets)-1]; v.header.Get("Last-Event-Id") != "e<7>" || v.header.Get("Accept") != "text/event-stream" || v.header.Get("Mcp-Session-Id") != "session-1" {
		t.Errorf("it was opened again with %v", v.header)
	}
	f.set(func() { f.extra = `,{"name":"again","inputSchema":{"type":"object"}}` })
	emit("data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n\n")
	eventually(t, "the newer tool is listed", listed("far__again"))
}

// A question that is in no call's answer names none, as over standard streams.
func TestRemoteQuestionsOutsideOfCalls(t *testing.T) {
	f := newFar(t)
	open := make(chan func(string, ...any), 10)
	f.gets = func(w http.ResponseWriter, r *http.Request) {
		open <- stream(w)
		<-r.Context().Done()
	}
	release := make(chan struct{})
	f.calls = func(w http.ResponseWriter, _ *http.Request, m frame.Message) {
		<-release
		answer(w, m, "{}")
	}
	h := reach(t, f)
	one, two := h.client(), h.client()
	one.ask("tools/list", "{}")
	emit := <-open
	const question = "data: {\"jsonrpc\":\"2.0\",\"id\":%q,\"method\":\"elicitation/create\",\"params\":{\"message\":\"well?\",\"requestedSchema\":{\"type\":\"object\"}}}\n\n"
	emit(question, "early")
	if m := f.next(""); string(m.ID) != `"early"` || !strings.Contains(string(m.Error), "not certain") {
		t.Errorf("without a call: %s", m.Raw)
	}
	id := one.send("tools/call", `{"name":"far__echo"}`)
	eventually(t, "the call is there", func() bool { return len(f.visits("tools/call")) == 1 })
	emit(question, "during")
	q := one.hear()
	for q.Name() != "elicitation/create" {
		q = one.hear()
	}
	waits := two.send("tools/call", `{"name":"far__echo"}`)
	one.say(string(frame.Result(q.ID, []byte(`{"action":"decline"}`))))
	if m := f.next(""); string(m.Raw) != `{"jsonrpc":"2.0","id":"during","result":{"action":"decline"}}` {
		t.Errorf("the question was answered %s", m.Raw)
	}
	close(release)
	one.answer(id)
	two.answer(waits)
}

// A session that the server has forgotten is begun anew, and the request that
// was refused for it is sent again; several at a time share one handshake.
func TestRemoteForgets(t *testing.T) {
	f := newFar(t)
	h := reach(t, f)
	c := h.client()
	c.call("far__echo", `"n":0`)
	for n := range 3 {
		f.set(func() { f.extra = fmt.Sprintf(`,{"name":"more%d","inputSchema":{"type":"object"}}`, n) })
		f.forget()
		var wg sync.WaitGroup
		for range 8 {
			other := h.client()
			wg.Go(func() {
				if got := text(other.call("far__echo", `"n":1`)); !strings.Contains(got, `"n":1`) {
					t.Errorf("after it forgot: %s", got)
				}
			})
		}
		wg.Wait()
		if begun := len(f.visits("initialize")); begun != n+2 {
			t.Errorf("%d handshakes after it forgot %d times", begun, n+1)
		}
		if got := string(c.ask("tools/list", "{}").Result); !strings.Contains(got, fmt.Sprintf("far__more%d", n)) {
			t.Errorf("what it offers now is not known: %s", got)
		}
	}
	if st := h.hub.States()[0]; st.State != "ready" || st.LastError != "" {
		t.Errorf("it is %+v", st)
	}
	// Whom it never knows is not tried with for ever.
	f.set(func() {
		f.calls = func(w http.ResponseWriter, _ *http.Request, _ frame.Message) { http.NotFound(w, nil) }
	})
	before := len(f.visits("tools/call"))
	m := c.call("far__echo", "")
	if !strings.Contains(string(m.Error), "forgotten") || strings.Contains(string(m.Error), "not known") {
		t.Errorf("a server that forgets at once: %s", m.Raw)
	}
	if n := len(f.visits("tools/call")) - before; n != 2 {
		t.Errorf("it was called %d times", n)
	}
}

// A server that forgets a session soon after its start is come back to where
// somebody watches something there, who makes no call that would do it.
func TestRemoteForgetsWhoWatches(t *testing.T) {
	t.Parallel()
	f := newFar(t)
	var closing sync.Map // by session: ends its stream
	f.gets = func(w http.ResponseWriter, r *http.Request) {
		end := make(chan struct{})
		closing.Store(r.Header.Get("Mcp-Session-Id"), end)
		stream(w)
		select {
		case <-end:
		case <-r.Context().Done():
		}
	}
	f.first = func(w http.ResponseWriter, r *http.Request, m frame.Message) bool {
		known := false
		f.set(func() { known = f.sessions[r.Header.Get("Mcp-Session-Id")] })
		switch name := m.Name(); {
		case name == "initialize":
			id := ""
			f.set(func() {
				f.begun++
				id = fmt.Sprintf("session-%d", f.begun)
				f.sessions[id] = true
			})
			w.Header().Set("Mcp-Session-Id", id)
			answer(w, m, `{"protocolVersion":"2025-06-18","capabilities":{"resources":{"subscribe":true}},"serverInfo":{"name":"far","version":"1"}}`)
		case name == "resources/list" && known:
			answer(w, m, `{"resources":[{"uri":"far://one","name":"one"}]}`)
		case name == "resources/subscribe" && known:
			answer(w, m, `{}`)
		default:
			return false
		}
		return true
	}
	h := reach(t, f)
	c := h.client()
	c.ask("resources/list", "{}")
	if m := c.ask("resources/subscribe", `{"uri":"far://one"}`); m.Error != nil {
		t.Fatal(string(m.Raw))
	}
	for n := range 2 {
		var end any
		eventually(t, "it is listened to", func() bool {
			var there bool
			end, there = closing.Load(fmt.Sprintf("session-%d", n+1))
			return there
		})
		f.forget()
		close(end.(chan struct{}))
		eventually(t, "it is told anew who watches", func() bool { return len(f.visits("resources/subscribe")) == n+2 })
	}
}

// A call that may have run is not sent again, whatever became of the session.
func TestRemoteRepeatsNothingThatMayHaveRun(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(f *far, w http.ResponseWriter){
		"the stream breaks": func(f *far, w http.ResponseWriter) { stream(w)("data: {"); hangUp(w) },
		"the connection breaks": func(f *far, w http.ResponseWriter) {
			hangUp(w)
		},
		"the stream ends, and it forgets": func(f *far, w http.ResponseWriter) {
			stream(w)("retry: 1\nid: 1\ndata:\n\n")
			f.forget()
		},
		"500":                func(f *far, w http.ResponseWriter) { http.Error(w, "out of <order>", 500) },
		"502 without a word": func(f *far, w http.ResponseWriter) { w.WriteHeader(502) },
		"half a JSON":        func(f *far, w http.ResponseWriter) { say(w, "application/json", `{"jsonrpc":"2.0","id":`) },
		"a cut JSON": func(f *far, w http.ResponseWriter) {
			w.Header().Set("Content-Length", "1000")
			say(w, "application/json", `{`)
		},
		"accepted and no answer": func(f *far, w http.ResponseWriter) { w.WriteHeader(202) },
		"an answer to another": func(f *far, w http.ResponseWriter) {
			say(w, "application/json", `{"jsonrpc":"2.0","id":"x","result":{}}`)
		},
		"nothing that is a message": func(f *far, w http.ResponseWriter) { say(w, "application/json", `[1,{},"x",{"id":{}}]`) },
		"a page": func(f *far, w http.ResponseWriter) {
			say(w, "text/html; charset=utf-8", "<!DOCTYPE html><h1>Welcome</h1>")
		},
		"a packed body": func(f *far, w http.ResponseWriter) {
			w.Header().Set("Content-Encoding", "gzip")
			say(w, "application/json", "no gzip")
		},
		"half an event":      func(f *far, w http.ResponseWriter) { stream(w)(`data: {"jsonrpc":"2.0","id":1`) },
		"an event half told": func(f *far, w http.ResponseWriter) { stream(w)(strings.TrimSuffix(done, "\n"), "ID") },
		"an empty stream":    func(f *far, w http.ResponseWriter) { stream(w) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFar(t)
			f.calls = func(w http.ResponseWriter, _ *http.Request, m frame.Message) { end(f, w) }
			h := reach(t, f)
			c := h.client()
			c.ask("tools/list", "{}")
			m := c.call("far__echo", `"n":1`)
			if !strings.Contains(string(m.Error), "not known") || !strings.Contains(string(m.Error), "upstream_failed") {
				t.Errorf("answered %s", m.Raw)
			}
			if strings.Contains(string(m.Error), "hush") {
				t.Errorf("a secret is told: %s", m.Error)
			}
			if n := len(f.visits("tools/call")); n != 1 {
				t.Errorf("it was called %d times", n)
			}
			for i, v := range f.visits("GET") {
				if i > 0 && v.header.Get("Last-Event-Id") == "" {
					t.Errorf("the rest of a stream without numbers is asked for: %v", v.header)
				}
			}
			f.set(func() { f.calls = nil })
			if got := text(c.call("far__echo", `"n":2`)); !strings.Contains(got, `"n":2`) {
				t.Errorf("afterwards: %s", got)
			}
		})
	}
}

func hangUp(w http.ResponseWriter) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(err)
	}
	conn.Close()
}

// What it does not let in says why, and that nothing ran.
func TestRemoteRefuses(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("somebody else got %s with %v", r.Method, r.Header)
	}))
	t.Cleanup(elsewhere.Close)
	for name, c := range map[string]struct {
		answer func(w http.ResponseWriter)
		want   string
	}{
		"OAuth": {func(w http.ResponseWriter) {
			w.Header().Set("WWW-Authenticate", `Bearer resource_metadata="https://example.com/x"`)
			w.WriteHeader(401)
		}, `OAuth is not supported yet`},
		"401 alone": {func(w http.ResponseWriter) { http.Error(w, "who?", http.StatusUnauthorized) }, "401 Unauthorized: who?"},
		"403 as JSON": {func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(403)
			io.WriteString(w, `{"error":{"message":"not you"}}`)
		}, "403 Forbidden: not you"},
		"another host": {func(w http.ResponseWriter) {
			w.Header().Set("Location", elsewhere.URL+"/mcp?key=1")
			w.WriteHeader(307)
		}, "redirects to " + elsewhere.URL + " (307"},
		"a GET elsewhere": {func(w http.ResponseWriter) { w.Header().Set("Location", "/other"); w.WriteHeader(302) }, "redirects to http://127.0.0.1"},
		"a page of 404": {func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(410)
			io.WriteString(w, "<html>")
		}, "410 Gone"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFar(t)
			f.calls = func(w http.ResponseWriter, _ *http.Request, _ frame.Message) { c.answer(w) }
			h := reach(t, f)
			client := h.client()
			client.ask("tools/list", "{}")
			m := client.call("far__echo", "")
			if got, _ := frame.Text(frame.Get(m.Error, "message")); !strings.Contains(got, c.want) || strings.Contains(got, "not known") || strings.Contains(got, "key=") || strings.Contains(got, "html") {
				t.Errorf("answered %s", m.Error)
			}
			// The same at the handshake.
			f = newFar(t)
			f.first = func(w http.ResponseWriter, _ *http.Request, _ frame.Message) bool { c.answer(w); return true }
			h = reach(t, f)
			h.client().ask("tools/list", "{}")
			if st := h.hub.States()[0]; st.State != "failed" || !strings.Contains(st.LastError, c.want) {
				t.Errorf("it is %+v", st)
			}
		})
	}
}

// Where an entry has no Authorization, it is said where a token would go.
func TestRemoteWantsAToken(t *testing.T) {
	f := newFar(t)
	f.first = func(w http.ResponseWriter, _ *http.Request, _ frame.Message) bool {
		w.Header().Set("WWW-Authenticate", "Bearer")
		w.WriteHeader(401)
		return true
	}
	h := reach(t, f, func(s *config.Server) { s.Headers = nil })
	h.client().ask("tools/list", "{}")
	if st := h.hub.States()[0]; st.State != "failed" || !strings.Contains(st.LastError, "put that into the headers of its entry") {
		t.Errorf("it is %+v", st)
	}
}

// A version that cannot be put into a header ends the handshake, and is not said
// to anybody.
func TestRemoteOfAStrangeVersion(t *testing.T) {
	f := newFar(t)
	f.first = func(w http.ResponseWriter, _ *http.Request, m frame.Message) bool {
		if m.Name() != "initialize" {
			return false
		}
		answer(w, m, `{"protocolVersion":"2025-06-18\r\nX-Own: 2","capabilities":{},"serverInfo":{"name":"far","version":"1"}}`)
		return true
	}
	h := reach(t, f)
	h.client().ask("tools/list", "{}")
	if st := h.hub.States()[0]; st.State != "failed" || !strings.Contains(st.LastError, "a strange protocol version") {
		t.Errorf("it is %+v", st)
	}
}

// An entry may say by which name its server is to be asked.
func TestRemoteByAnotherName(t *testing.T) {
	f := newFar(t)
	names := make(chan string, 1000)
	f.first = func(_ http.ResponseWriter, r *http.Request, _ frame.Message) bool {
		names <- r.Host
		return false
	}
	h := reach(t, f, func(s *config.Server) { s.Headers = map[string]string{"hOST": "mcp.example.com"} })
	if got := text(h.client().call("far__echo", `"n":1`)); !strings.Contains(got, `"n":1`) {
		t.Error(got)
	}
	for len(names) > 0 {
		if name := <-names; name != "mcp.example.com" {
			t.Errorf("asked as %q", name)
		}
	}
}

// A server that has forgotten us may say so of what we tell it: it is met anew,
// and whatever is asked then is answered.
func TestRemoteForgetsWhatItIsTold(t *testing.T) {
	f := newFar(t)
	running := make(chan struct{})
	f.calls = func(_ http.ResponseWriter, r *http.Request, _ frame.Message) {
		close(running)
		<-r.Context().Done()
	}
	h := reach(t, f)
	c := h.client()
	c.ask("tools/list", "{}")
	id := c.send("tools/call", `{"name":"far__echo"}`)
	<-running
	f.forget()
	c.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}`)
	f.set(func() { f.calls = nil })
	eventually(t, "it is met anew", func() bool {
		return strings.Contains(text(c.call("far__echo", `"n":1`)), `"n":1`) && len(f.visits("initialize")) > 1
	})
}

// A redirect that takes the same request to the same server is followed.
func TestRemoteSlashRedirect(t *testing.T) {
	f := newFar(t)
	f.first = func(w http.ResponseWriter, r *http.Request, _ frame.Message) bool {
		if strings.HasSuffix(r.URL.Path, "/") {
			return false
		}
		w.Header().Set("Location", "http://"+r.Host+r.URL.Path+"/?"+r.URL.RawQuery)
		w.WriteHeader(307)
		return true
	}
	h := reach(t, f)
	if got := text(h.client().call("far__echo", `"n":1`)); !strings.Contains(got, `"n":1`) {
		t.Error(got)
	}
}

// Many do not know sessions after their restart, and say 400. What they refuse
// for that, and a ping too, did not run.
func TestRemoteForgetsWith400(t *testing.T) {
	f := newFar(t)
	refusal := ""
	f.first = func(w http.ResponseWriter, r *http.Request, m frame.Message) bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		if refusal == "" || m.Name() == "initialize" || f.sessions[r.Header.Get("Mcp-Session-Id")] {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(400)
		io.WriteString(w, strings.NewReplacer("NUMBER", string(m.ID), "METHOD", m.Name()).Replace(refusal)) // ignore error: judged by what arrives
		return true
	}
	h := reach(t, f)
	c := h.client()
	c.ask("tools/list", "{}")
	begun := 1
	for _, try := range []struct {
		refusal string
		repeats bool
	}{
		{`{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"},"id":null}`, true},
		{`{"jsonrpc":"2.0","error":{"code":-32000,"message":"Unknown Session"},"id":NUMBER}`, true},
		{`{"jsonrpc":"2.0","error":{"code":-32000,"message":"Unknown session at METHOD"},"id":NUMBER}`, false},
		{`{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request"},"id":null}`, false},
	} {
		f.set(func() { refusal = try.refusal })
		f.forget()
		m := c.call("far__echo", `"n":1`)
		if got := strings.Contains(text(m), `\"n\":1`) || strings.Contains(text(m), `"n":1`); got != try.repeats {
			t.Errorf("%s: answered %s", try.refusal, m.Raw)
		}
		if got := text(c.call("far__echo", `"n":2`)); !strings.Contains(got, `"n":2`) {
			t.Errorf("%s, and afterwards: %s", try.refusal, got)
		}
		if begun++; len(f.visits("initialize")) != begun {
			t.Errorf("%s: %d handshakes", try.refusal, len(f.visits("initialize")))
		}
	}
	// A call that it does not like says nothing about the session.
	for _, why := range []string{"no", "no such session of bowling"} {
		f.set(func() {
			f.calls = func(w http.ResponseWriter, _ *http.Request, _ frame.Message) { http.Error(w, why, 400) }
		})
		before := len(f.visits("tools/call"))
		for range 2 {
			if m := c.call("far__echo", ""); !strings.Contains(string(m.Error), "400 Bad Request: "+why) {
				t.Errorf("answered %s", m.Raw)
			}
		}
		if n := len(f.visits("tools/call")) - before; n != 2 {
			t.Errorf("it was called %d times", n)
		}
	}
	if n := len(f.visits("initialize")); n != begun {
		t.Errorf("%d handshakes", n)
	}
}

func TestRemoteIsCancelled(t *testing.T) {
	for name, begin := range map[string]func(http.ResponseWriter){"before its answer begins": func(http.ResponseWriter) {}, "in its stream": func(w http.ResponseWriter) { stream(w) }} {
		t.Run(name, func(t *testing.T) {
			f := newFar(t)
			running, dropped := make(chan string, 1), make(chan struct{})
			f.calls = func(w http.ResponseWriter, r *http.Request, m frame.Message) {
				begin(w)
				running <- string(m.ID)
				<-r.Context().Done()
				close(dropped)
			}
			h := reach(t, f)
			c := h.client()
			c.ask("tools/list", "{}")
			id := c.send("tools/call", `{"name":"far__echo"}`)
			theirs := <-running
			c.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}`)
			if m := f.next("notifications/cancelled"); string(m.Params) != `{"requestId":`+theirs+`}` {
				t.Errorf("it was told %s of %s", m.Raw, theirs)
			}
			<-dropped
			f.set(func() { f.calls = nil })
			if got := text(c.call("far__echo", `"n":1`)); !strings.Contains(got, `"n":1`) {
				t.Error(got)
			}
		})
	}
}

// A server that never answers delays only its callers, no longer than its entry
// says, and not the end.
func TestRemoteNeverAnswers(t *testing.T) {
	t.Parallel()
	f := newFar(t)
	f.calls = func(_ http.ResponseWriter, r *http.Request, _ frame.Message) { <-r.Context().Done() }
	h := reach(t, f, func(s *config.Server) { s.Timeout = 300 * time.Millisecond })
	c := h.client()
	c.ask("tools/list", "{}")
	if m := c.call("far__echo", ""); !strings.Contains(string(m.Error), "upstream_timeout") {
		t.Errorf("answered %s", m.Raw)
	}
	f.next("notifications/cancelled")

	mute := newFar(t)
	asked := make(chan struct{}, 100)
	mute.first = func(_ http.ResponseWriter, r *http.Request, _ frame.Message) bool {
		asked <- struct{}{}
		<-r.Context().Done()
		return true
	}
	h = reach(t, mute)
	c = h.client()
	<-asked
	began := time.Now()
	if got := string(c.ask("tools/list", "{}").Result); got != `{"tools":[]}` {
		t.Errorf("tools: %s", got)
	}
	h.close() // while it is being started
	if took := time.Since(began); took > patience/2 {
		t.Errorf("a list and the end took %v", took)
	}
}

// The rest of a stream that ended is asked for, where it has numbers.
func TestRemoteResumes(t *testing.T) {
	t.Parallel()
	f := newFar(t)
	var mu sync.Mutex
	pending := ""
	f.calls = func(w http.ResponseWriter, _ *http.Request, m frame.Message) {
		mu.Lock()
		pending = string(m.ID)
		mu.Unlock()
		stream(w)("retry: 1\nid: a\ndata:\n\n")
	}
	n := 0
	f.gets = func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		last := r.Header.Get("Last-Event-Id")
		if last == "" {
			w.WriteHeader(405)
			return
		}
		n++
		switch {
		case n == 1 && last == "a":
			w.WriteHeader(503)
		case n == 2 && last == "a":
			stream(w)("id: b\ndata: {\"method\":\"notifications/message\",\"params\":{\"level\":\"error\",\"data\":\"half way\"}}\n\n")
		case n == 3 && last == "b":
			stream(w)(done, pending)
		default:
			t.Errorf("asked for what comes after %q, the %dth time", last, n)
		}
	}
	h := reach(t, f)
	c := h.client()
	c.ask("tools/list", "{}")
	if got := text(c.call("far__echo", "")); got != "done" {
		t.Errorf("answered %s", got)
	}
	if !strings.Contains(strings.Join(c.notes, "\n"), "half way") {
		t.Errorf("on the way it said %q", c.notes)
	}
	if n := len(f.visits("tools/call")); n != 1 {
		t.Errorf("it was called %d times", n)
	}
}

// One that cannot be reached has failed, and is looked for again.
func TestRemoteIsAway(t *testing.T) {
	t.Parallel()
	f := newFar(t)
	address := f.srv.Listener.Addr().String()
	h := reach(t, f)
	c := h.client()
	c.ask("tools/list", "{}")
	f.srv.Listener.Close()
	eventually(t, "nobody is there", func() bool {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			conn.Close()
		}
		return err != nil
	})
	var m frame.Message
	eventually(t, "it is not reached", func() bool { // a connection may be left, or not known to be broken
		f.srv.CloseClientConnections()
		m = c.call("far__echo", "")
		return strings.Contains(string(m.Error), "cannot be reached")
	})
	if strings.Contains(string(m.Error), "not known") || strings.Contains(string(m.Error), "hush") {
		t.Errorf("answered %s", m.Error)
	}
	eventually(t, "it has failed", func() bool { return h.hub.States()[0].State == "failed" })
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Skip("its port is another's now: ", err)
	}
	again := newFar(t)
	srv := &http.Server{Handler: again}
	go srv.Serve(l) // ends with Close
	t.Cleanup(func() { srv.Close() })
	eventually(t, "it is back", func() bool { return strings.Contains(text(c.call("far__echo", `"n":1`)), `"n":1`) })
}

// That it is away shows without a call where its stream was open.
func TestRemoteGoesAwayBesideCalls(t *testing.T) {
	t.Parallel()
	f := newFar(t)
	open := make(chan struct{}, 10)
	f.gets = func(w http.ResponseWriter, r *http.Request) {
		stream(w)
		open <- struct{}{}
		<-r.Context().Done()
	}
	h := reach(t, f)
	h.client().ask("tools/list", "{}")
	<-open
	f.srv.Listener.Close()
	eventually(t, "it has failed", func() bool {
		f.srv.CloseClientConnections()
		st := h.hub.States()[0]
		return st.State == "failed" && strings.Contains(st.LastError, "cannot be reached")
	})
	if n := len(f.visits("tools/call")); n != 0 {
		t.Errorf("it was called %d times", n)
	}
}

func TestRemoteSaysMuch(t *testing.T) {
	t.Parallel()
	f := newFar(t)
	long := strings.Repeat("x", 30<<20)
	f.calls = func(w http.ResponseWriter, _ *http.Request, m frame.Message) {
		if string(frame.Get(m.Params, "arguments", "stream")) == "true" {
			stream(w)("data: {\"id\":%s,\"result\":{\"text\":\"%s\"}}\n\n", m.ID, long)
			return
		}
		answer(w, m, `{"text":"`+long+`"}`)
	}
	h := reach(t, f)
	c := h.client()
	for _, how := range []string{"false", "true"} {
		if got := string(c.call("far__echo", `"stream":`+how).Result); got != `{"text":"`+long+`"}` {
			t.Errorf("%d bytes arrived", len(got))
		}
	}
}

// That it has forgotten the session shows in the stream of what it says by itself
// too: then nothing is called to find out.
func TestRemoteForgetsBesideCalls(t *testing.T) {
	t.Parallel()
	for _, code := range []int{404, 400} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			t.Parallel()
			testForgetsBesideCalls(t, code)
		})
	}
}

func testForgetsBesideCalls(t *testing.T, code int) {
	f := newFar(t)
	f.first = func(w http.ResponseWriter, r *http.Request, m frame.Message) bool {
		f.mu.Lock()
		known := m.Name() == "initialize" || f.sessions[r.Header.Get("Mcp-Session-Id")]
		f.mu.Unlock()
		if !known {
			http.Error(w, "no session", code)
		}
		return !known
	}
	open := make(chan struct{}, 10)
	closing := make(chan struct{})
	f.gets = func(w http.ResponseWriter, r *http.Request) {
		stream(w)
		open <- struct{}{}
		select {
		case <-closing:
		case <-r.Context().Done():
		}
	}
	h := reach(t, f)
	c := h.client()
	c.ask("tools/list", "{}")
	<-open
	f.forget()
	closing <- struct{}{}
	eventually(t, "it is known", func() bool { return h.hub.States()[0].State == "stopped" })
	if got := text(c.call("far__echo", `"n":1`)); !strings.Contains(got, `"n":1`) {
		t.Error(got)
	}
	if n := len(f.visits("tools/call")); n != 1 {
		t.Errorf("it was called %d times", n)
	}
	<-open // for the new session
}

// Each client may have a session of its own.
func TestRemoteSessions(t *testing.T) {
	f := newFar(t)
	f.calls = func(w http.ResponseWriter, r *http.Request, m frame.Message) {
		answer(w, m, `{"content":[{"type":"text","text":"`+r.Header.Get("Mcp-Session-Id")+`"}]}`)
	}
	h := reach(t, f, func(s *config.Server) { s.Share = config.ShareSession })
	one, two := h.client(), h.client()
	a, b := text(one.call("far__echo", "")), text(two.call("far__echo", ""))
	if a == b || text(one.call("far__echo", "")) != a || !strings.HasPrefix(a, "session-") {
		t.Errorf("sessions %s and %s", a, b)
	}
	one.conn.Close()
	eventually(t, "the first one's session has ended", func() bool {
		for _, v := range f.visits("DELETE") {
			if v.header.Get("Mcp-Session-Id") == a {
				return true
			}
		}
		return false
	})
}

// One house hosts the other: the sessions of this project on both sides.
func TestRemoteHouse(t *testing.T) {
	inner := settle(t, "good")
	inner.client().ask("tools/list", "{}")
	srv := httptest.NewServer(inner.core)
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	h := reachAt(t, srv.URL)
	c := h.client()
	list := string(c.ask("tools/list", "{}").Result)
	if !strings.Contains(list, `{"name":"far__good__echo","inputSchema":{"type":"object","$defs":{"a":{"x-odd":1e2}},"anyOf":[{},true]},"icons":[{"src":"a"}],"_meta":{"k":0.10}}`) {
		t.Errorf("tools: %s", list)
	}
	const tool = "far__good__echo"
	m := c.ask("tools/call", `{"name":"far__good__echo","arguments":{"do":"params","n":9007199254740993},"_meta":{"other":0.10}}`)
	if got := string(m.Result); got != `{"content":[],"structuredContent":{"name":"echo","arguments":{"do":"params","n":9007199254740993},"_meta":{"other":0.10}},"odd": 1e2}` {
		t.Errorf("a call: %s", got)
	}
	if got := string(c.call(tool, `"do":"fail"`).Error); got != `{"code":-32050,"message":"no <thing>","data":{"n":1e2}}` {
		t.Errorf("an error: %s", got)
	}
	c.ask("tools/call", `{"name":"far__good__echo","arguments":{"do":"progress"},"_meta":{"progressToken":"t<1>"}}`)
	if notes := strings.Join(c.notes, "\n"); !strings.Contains(notes, `"params":{"progressToken":"t<1>","progress":99999,"odd":1e2}`) {
		t.Errorf("progress: %s", notes)
	}
	id := c.send("tools/call", `{"name":"far__good__echo","arguments":{"do":"elicit"}}`)
	var q frame.Message
	for q.Name() != "elicitation/create" {
		q = c.hear()
	}
	c.say(string(frame.Result(q.ID, []byte(`{"action":"accept","content":{"n":1e2}}`))))
	if got := text(c.answer(id)); !strings.Contains(got, `"result":{"action":"accept","content":{"n":1e2}}`) {
		t.Errorf("it was answered %s", got)
	}
	// The other house's own stream tells of a change.
	c.call(tool, `"do":"more"`)
	eventually(t, "the new tool is listed", func() bool {
		return strings.Contains(string(c.ask("tools/list", "{}").Result), `"far__good__another"`)
	})
	for uri, want := range map[string]string{"test://good/one": "read by good", "test://good/by/7": "read by good"} {
		if got := string(c.ask("resources/read", `{"uri":"`+uri+`"}`).Result); !strings.Contains(got, want) {
			t.Errorf("%s: %s", uri, got)
		}
	}
	h.close()
	eventually(t, "the session is over", func() bool {
		for _, p := range inner.core.Peers() {
			if p.Client == "majordomus" {
				return false
			}
		}
		return true
	})
}

// Nothing of an entry that left the file goes on.
func TestRemoteLeavesTheFile(t *testing.T) {
	f := newFar(t)
	f.calls = func(w http.ResponseWriter, r *http.Request, _ frame.Message) {
		stream(w)
		<-r.Context().Done()
	}
	h := reach(t, f)
	c := h.client()
	c.ask("tools/list", "{}")
	id := c.send("tools/call", `{"name":"far__echo"}`)
	eventually(t, "it runs", func() bool { return len(f.visits("tools/call")) == 1 })
	h.host()
	h.hub.Look()
	if m := c.answer(id); m.Error == nil {
		t.Errorf("the call of one that is gone: %s", m.Raw)
	}
	eventually(t, "its session has ended", func() bool { return len(f.visits("DELETE")) == 1 })
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	h.hub.Close(ctx)
}
