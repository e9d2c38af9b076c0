package session_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	mcpserver "github.com/mark3labs/mcp-go/server"

	"majordomus/server/session"
)

// TestGoneIsGone has many sessions come and go: hardly a byte is kept for each.
func TestGoneIsGone(t *testing.T) {
	core := session.New(session.Config{MCP: mcpserver.NewMCPServer("house", "1"), Generation: "g"})
	defer core.Close()
	ask := func(method, id, message string) string {
		r := httptest.NewRequest(method, "/mcp", strings.NewReader(message))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Mcp-Session-Id", id)
		w := httptest.NewRecorder()
		core.ServeHTTP(w, r)
		if w.Code != http.StatusOK {
			t.Fatal(w.Code, w.Body)
		}
		return w.Header().Get("Mcp-Session-Id")
	}
	many := func(n int) {
		ids := make([]string, n)
		for i := range ids {
			ids[i] = ask("POST", "", hello(`1`, `{}`))
		}
		if core.Sessions() != n {
			t.Fatalf("%d sessions of %d", core.Sessions(), n)
		}
		for _, id := range ids {
			ask("DELETE", id, "")
		}
		if core.Sessions() != 0 {
			t.Fatalf("%d sessions are left", core.Sessions())
		}
	}
	held := func() int64 {
		core.Compact()
		for range 3 { // pools take two
			runtime.GC()
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	many(10) // what is made once
	before := held()
	const n = 3500
	many(n)
	each := float64(held()-before) / n
	t.Logf("%.1f bytes are kept for each session that was", each)
	if each > 16 {
		t.Errorf("%.1f bytes are kept for each session that was", each)
	}
}

// slowRouter is in the middle of Ready for as long as it is let be.
type slowRouter struct {
	router
	in, out chan struct{}
	mu      sync.Mutex
	order   []string
}

func (r *slowRouter) Ready(string) {
	close(r.in)
	<-r.out
	r.noted("ready")
}

func (r *slowRouter) Left(string) { r.noted("left") }

func (r *slowRouter) noted(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.order = append(r.order, what)
}

// TestLeftAfterReady has a client go at the moment when whoever hosts servers is
// told that it is there: that it has left is told after that, or it would be taken
// for one that is there for ever.
func TestLeftAfterReady(t *testing.T) {
	r := &slowRouter{in: make(chan struct{}), out: make(chan struct{})}
	h := settle(t, func(c *session.Config) { c.Hosted = r })
	asked := make(chan struct{}, 2)
	w := h.web(t, stateless)
	w.era = shaken
	resp := w.do(w.request(context.Background(), http.MethodPost, hello(`1`, `{}`)))
	w.id = resp.Header.Get("Mcp-Session-Id")
	body(t, resp)
	ask := func(method, message string) {
		resp, err := w.client.Do(w.request(context.Background(), method, message))
		if err == nil {
			resp.Body.Close()
		}
		asked <- struct{}{}
	}
	go ask(http.MethodPost, `{"jsonrpc":"2.0","method":"notifications/initialized"}`) // waited for below
	<-r.in
	go ask(http.MethodDelete, "") // as above
	h.until(t, "it has gone", func() bool { return h.core.Sessions() == 0 })
	time.Sleep(20 * time.Millisecond) // for who would not wait
	close(r.out)
	<-asked
	<-asked
	if len(r.order) != 2 || r.order[0] != "ready" {
		t.Errorf("told: %q", r.order)
	}
}
