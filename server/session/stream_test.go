package session_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	mcpserver "github.com/mark3labs/mcp-go/server"

	"majordomus/server/session"
)

// A recorder that may be looked at while it is written to.
type recorder struct {
	*httptest.ResponseRecorder
	mu sync.Mutex
}

func (r *recorder) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ResponseRecorder.Write(b)
}

func (r *recorder) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.Body.String()
}

// bubble is a Core within a synctest bubble, asked without a network.
type bubble struct {
	core *session.Core
	id   string
}

func newBubble(t *testing.T) *bubble {
	m := mcpserver.NewMCPServer("house", "1", mcpserver.WithToolCapabilities(true))
	m.AddTool(mcp.NewTool("sleep"), func(_ context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		time.Sleep(time.Duration(r.GetInt("s", 0)) * time.Second) // of the bubble's
		return text("slept")
	})
	b := &bubble{core: session.New(session.Config{MCP: m, SessionIdle: 1000 * time.Hour})}
	b.id = b.ask(t.Context(), "POST", hello(`1`, `{}`), "").Header().Get("Mcp-Session-Id")
	return b
}

// ask returns when the answer is complete.
func (b *bubble) ask(ctx context.Context, method, message, accept string) *recorder {
	w := &recorder{ResponseRecorder: httptest.NewRecorder()}
	b.into(ctx, w, method, message, accept)
	return w
}

func (b *bubble) into(ctx context.Context, w *recorder, method, message, accept string) {
	r := httptest.NewRequestWithContext(ctx, method, "/mcp", strings.NewReader(message))
	r.Header.Set("Content-Type", "application/json")
	if accept != "" {
		r.Header.Set("Accept", accept)
	}
	if b.id != "" {
		r.Header.Set("Mcp-Session-Id", b.id)
	}
	b.core.ServeHTTP(w, r)
}

// An answer that is long in coming begins meanwhile: Node's clients give up one
// whose head has not come after 5 minutes.
func TestLongCallsGiveSignsOfLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		defer b.core.Close()
		long := toolCall(shaken, `2`, "sleep", `"s":100`, "")
		w := b.ask(t.Context(), "POST", long, "application/json, text/event-stream")
		if n := strings.Count(w.text(), ": alive\n\n"); w.Header().Get("Content-Type") != "text/event-stream" || n != 6 {
			t.Errorf("%d signs of life in 100 s, as %s", n, w.Header().Get("Content-Type"))
		}
		if !strings.HasSuffix(w.text(), "\n\n") || !strings.Contains(w.text(), `"id":2`) {
			t.Errorf("the answer: %q", w.text())
		}
		w = b.ask(t.Context(), "POST", long, "application/json")
		if w.Header().Get("Content-Type") != "application/json" || !strings.HasPrefix(w.text(), "{") {
			t.Errorf("a client that takes no stream got one: %q", w.text())
		}
		w = b.ask(t.Context(), "POST", toolCall(shaken, `2`, "sleep", `"s":14`, ""), "application/json, text/event-stream")
		if w.Header().Get("Content-Type") != "application/json" {
			t.Errorf("a short call is answered as %s", w.Header().Get("Content-Type"))
		}
		time.Sleep(time.Minute) // nothing is written to what has ended
		if strings.Contains(w.text(), "alive") {
			t.Errorf("written afterwards: %q", w.text())
		}
	})
}

// Of several streams the newest open one is told, and only that one.
func TestTheOlderStreamTakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		defer b.core.Close()
		open := func() (*recorder, context.CancelFunc) {
			w := &recorder{ResponseRecorder: httptest.NewRecorder()}
			ctx, cancel := context.WithCancel(t.Context())
			go b.into(ctx, w, "GET", "", "text/event-stream")
			synctest.Wait()
			return w, cancel
		}
		tell := func(kind string) {
			b.core.ListChanged(kind)
			synctest.Wait()
		}
		first, end1 := open()
		tell("tools")
		second, end2 := open()
		tell("prompts")
		end2()
		synctest.Wait()
		tell("resources")
		end1()
		synctest.Wait()
		tell("tools") // kept
		third, end3 := open()
		defer end3()
		for _, x := range []struct {
			stream *recorder
			want   []string
		}{{first, []string{"tools", "resources"}}, {second, []string{"prompts"}}, {third, []string{"tools"}}} {
			var got []string
			for _, line := range strings.Split(x.stream.text(), "\n") {
				if _, kind, ok := strings.Cut(line, "notifications/"); ok {
					kind, _, _ = strings.Cut(kind, "/")
					got = append(got, kind)
				}
			}
			if fmt.Sprint(got) != fmt.Sprint(x.want) {
				t.Errorf("a stream heard %v, not %v", got, x.want)
			}
		}
	})
}

// Each piece of an event has a time of its own, as on a link.
func TestSteadyReaderKeepsItsStream(t *testing.T) {
	h, conn := steady(t)
	// Progress makes the answer a stream.
	message := toolCall(stateless, `1`, "progress echo", `"s":"`+strings.Repeat("x", steadySize)+`"`, `"progressToken":1`)
	h.mcp.AddTool(mcp.NewTool("progress echo"), func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if err := session.Progress(ctx, 1, 2, ""); err != nil {
			return nil, err
		}
		return text(r.GetString("s", ""))
	})
	go fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nMcp-Protocol-Version: %s\r\nMcp-Method: tools/call\r\nMcp-Name: progress echo\r\nContent-Length: %d\r\n\r\n%s",
		stateless, len(message), message) // ends with the connection
	if first := readSteadily(t, conn); !strings.Contains(first, "text/event-stream") {
		t.Fatalf("%.200s", first)
	}
}
