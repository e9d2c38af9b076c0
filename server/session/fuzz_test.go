package session_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/mark3labs/mcp-go/mcp"
	mcpserver "github.com/mark3labs/mcp-go/server"

	"majordomus/bridge/frame"
	"majordomus/server/session"
)

// FuzzHTTP has anybody send anything to /mcp. It is answered with a status of
// HTTP and with JSON, events or nothing; a request that is answered by JSON-RPC
// is answered under its own id.
func FuzzHTTP(f *testing.F) {
	m := mcpserver.NewMCPServer("house", "1", mcpserver.WithToolCapabilities(true), mcpserver.WithResourceCapabilities(true, true), mcpserver.WithLogging())
	m.AddTool(mcp.NewTool("echo"), func(_ context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return text(r.GetString("s", ""))
	})
	f.Add("POST", "", "application/json", "", "", hello(`1`, `{}`))
	f.Add("POST", "2025-11-25", "application/json; charset=utf-8", "*/*", "gen1-none", request(`2`, "ping", "{}"))
	f.Add("POST", stateless, "application/json", "text/event-stream", "", toolCall(stateless, `"x"`, "echo", `"s":"a"`, ""))
	f.Add("GET", "", "", "text/event-stream", "it", "")
	f.Add("DELETE", "", "", "", "it", "")
	f.Add("PUT", "x", "text/plain", ",;", "\x00", "[]\r\n")
	f.Fuzz(func(t *testing.T, method, version, kind, accept, id, message string) {
		if len(message) > 1<<16 || strings.Contains(message, "listen") {
			return // a listen ends when it is left
		}
		core := session.New(session.Config{MCP: m, Generation: "gen1"})
		defer core.Close()
		ask := func(method, message string, headers ...string) *httptest.ResponseRecorder {
			ctx, cancel := context.WithCancel(t.Context())
			if method == http.MethodGet || method == "" {
				cancel() // it has no end of its own
			}
			defer cancel()
			r, err := http.NewRequestWithContext(ctx, method, "/mcp", strings.NewReader(message))
			if err != nil {
				t.Skip("no request")
			}
			for i := 0; i < len(headers); i += 2 {
				if headers[i+1] != "" {
					r.Header[headers[i]] = []string{headers[i+1]}
				}
			}
			w := httptest.NewRecorder()
			core.ServeHTTP(w, r)
			return w
		}
		first := ask("POST", hello(`0`, `{}`), "Content-Type", "application/json").Header().Get("Mcp-Session-Id")
		if id == "it" {
			id = first
		}
		parsed, bad := frame.Parse([]byte(message))
		w := ask(method, message, "Mcp-Protocol-Version", version, "Content-Type", kind, "Accept", accept, "Mcp-Session-Id", id,
			"Mcp-Method", parsed.Name(), "Mcp-Name", "echo")
		if w.Code < 200 || w.Code > 599 {
			t.Errorf("status %d", w.Code)
		}
		body := w.Body.String()
		switch w.Header().Get("Content-Type") {
		case "application/json":
			if !json.Valid([]byte(body)) {
				t.Errorf("no JSON: %q", body)
			}
			if reply, err := frame.Parse([]byte(body)); err == nil && reply.IsResponse() && bad == nil && parsed.IsRequest() && string(reply.ID) != string(parsed.ID) {
				t.Errorf("%s was answered under %s", parsed.ID, reply.ID)
			}
		case "text/event-stream":
		default:
			if body != "" {
				t.Errorf("a body of no type: %q", body)
			}
		}
	})
}
