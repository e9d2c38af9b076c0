package session_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	mcpserver "github.com/mark3labs/mcp-go/server"

	"majordomus/server/session"
)

// A client over HTTP that dies says nothing. It is not waited for as long as
// its session is kept, and it is back with its next request.
func TestClientsOverHTTPDepart(t *testing.T) {
	// Every sleep is in the time of the bubble: it is time that is tried.
	synctest.Test(t, func(t *testing.T) {
		m := mcpserver.NewMCPServer("house", "1", mcpserver.WithToolCapabilities(true))
		m.AddTool(mcp.NewTool("slow"), func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			time.Sleep(10 * time.Minute)
			return text("done")
		})
		var changes atomic.Int64
		core := session.New(session.Config{MCP: m, OnChange: func() { changes.Add(1) }})
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		go core.Run(ctx)
		defer core.Close()

		id := ""
		ask := func(ctx context.Context, method, message string) int {
			r := httptest.NewRequestWithContext(ctx, method, "/mcp", strings.NewReader(message))
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Accept", "application/json, text/event-stream")
			if id != "" {
				r.Header.Set("Mcp-Session-Id", id)
			}
			w := httptest.NewRecorder()
			core.ServeHTTP(w, r)
			if id == "" {
				id = w.Header().Get("Mcp-Session-Id")
			}
			io.Copy(io.Discard, w.Body)
			return w.Code
		}
		there := func(when string, want int) {
			t.Helper()
			synctest.Wait()
			if n, _ := core.Stats(); n != want || len(core.Peers()) != want {
				t.Fatalf("%s: %d are counted and %v described, not %d", when, n, core.Peers(), want)
			}
		}
		ask(ctx, "POST", hello(`1`, `{}`))
		there("after initialize", 1)
		time.Sleep(89 * time.Second)
		there("after 89 s", 1)
		before := changes.Load()
		time.Sleep(20 * time.Second)
		there("after 109 s", 0)
		if changes.Load() == before {
			t.Error("nobody is told that the last one has gone")
		}
		if code := ask(ctx, "POST", request(`2`, "ping", "{}")); code != http.StatusOK {
			t.Fatalf("its session is answered %d", code)
		}
		there("after another request", 1)
		go ask(ctx, "POST", toolCall(shaken, `3`, "slow", "", ""))
		time.Sleep(9 * time.Minute)
		there("during a long call", 1)
		time.Sleep(2*time.Minute + 110*time.Second)
		there("after it", 0)
		ask(ctx, "POST", `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		there("after a notification", 1)

		// The stream for what it did not ask for is a sign of life that ends
		// with it.
		stream, hangUp := context.WithCancel(ctx)
		go ask(stream, "GET", "")
		time.Sleep(20 * time.Minute)
		there("with a stream", 1)
		hangUp()
		there("when that broke", 0)
		if code := ask(ctx, "POST", request(`4`, "ping", "{}")); code != http.StatusOK {
			t.Fatalf("its session is answered %d", code)
		}
		there("after another request", 1)
		time.Sleep(31 * time.Minute)
		there("much later", 0)
		if code := ask(ctx, "POST", request(`5`, "ping", "{}")); code != http.StatusNotFound {
			t.Errorf("a forgotten session is answered %d", code)
		}
		ask(ctx, "DELETE", "")
	})
}
