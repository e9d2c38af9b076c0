package server

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"majordomus/lease/checkout"
	"majordomus/server/session"
)

// A memory is a listener without a network, whose connections have deadlines in
// the time of a bubble.
type memory struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (m *memory) Accept() (net.Conn, error) {
	select {
	case c := <-m.conns:
		return c, nil
	case <-m.closed:
		return nil, net.ErrClosed
	}
}

func (m *memory) Close() error   { close(m.closed); return nil }
func (m *memory) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: usualPort} }

func (m *memory) dial(context.Context, string, string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case m.conns <- theirs:
		return ours, nil
	case <-m.closed:
		return nil, net.ErrClosed
	}
}

// Six minutes are longer than proxies and clients bear silence, and than every
// deadline of ours. What is told then arrives on streams of every kind, and what
// the client tells where there is a way back.
func TestSilence(t *testing.T) {
	root := filepath.Join(t.TempDir(), "shop")
	layer := filepath.Join(root, ".ai", "repo")
	if err := os.MkdirAll(layer, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, ".ai", "manifest.yaml"), []byte("schema: ai-repository/v1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	c, err := checkout.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		network := &memory{make(chan net.Conn), make(chan struct{})}
		s, err := New(Config{Checkout: c, Listener: network, NoAuth: true})
		if err != nil {
			t.Fatal(err)
		}
		speak, cancelled := make(chan struct{}), make(chan struct{}, 10)
		s.mcp.AddTool(mcp.NewTool("late"), func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			select {
			case <-speak:
			case <-ctx.Done():
				cancelled <- struct{}{}
				return nil, ctx.Err()
			}
			if err := session.Progress(ctx, 1, 2, ""); err != nil {
				return nil, err
			}
			return mcp.NewToolResultText("spoken"), nil
		})
		// What Run does, but that it asks its own port over a network first.
		s.prepare()
		ctx, end := context.WithCancel(t.Context())
		var wg, conns sync.WaitGroup
		web := s.newWeb(&conns)
		wg.Go(func() { s.core.Run(ctx) }) // ignore error: always nil
		wg.Go(func() { s.housekeep(ctx) })
		wg.Go(func() { web.Serve(network) }) // ignore error: it is closed
		t.Cleanup(func() {
			s.core.Close()
			web.Close()
			end()
			wg.Wait()
			conns.Wait()
		})

		const listen = `{"jsonrpc":"2.0","id":"l","method":"subscriptions/listen","params":{"notifications":{"resourcesListChanged":true},` + modern + `}}`
		late := func(id string) string {
			return `{"jsonrpc":"2.0","id":"` + id + `","method":"tools/call","params":{"name":"late","_meta":{"progressToken":"p"}}}`
		}
		var told, called, ways []*line // by what they are to hear; and those with a way back

		client := &http.Client{Transport: &http.Transport{DialContext: network.dial, DisableKeepAlives: true}}
		id := ""
		request := func(method, message string, header ...string) *line {
			t.Helper()
			r, err := http.NewRequestWithContext(t.Context(), method, s.url+pathMCP, strings.NewReader(message))
			if err != nil {
				t.Fatal(err)
			}
			header = append(header, "Content-Type", "application/json", "Accept", "application/json, text/event-stream", "Mcp-Session-Id", id)
			for i := 0; i < len(header); i += 2 {
				r.Header.Set(header[i], header[i+1])
			}
			resp, err := client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode/100 != 2 {
				t.Fatalf("%s %s: %s", method, message, resp.Status)
			}
			id = cmp.Or(resp.Header.Get("Mcp-Session-Id"), id)
			return newLine(t, struct {
				io.Reader
				io.Writer
				io.Closer
			}{Closer: resp.Body}, resp.Body)
		}
		listening := request("POST", listen, "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "subscriptions/listen")
		listening.hear("acknowledged")
		request("POST", initialize).hear(`"id":"i"`)
		request("POST", `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		told = append(told, listening, request("GET", ""))
		called = append(called, request("POST", late("c"))) // returns after 15 s, with the first sign of life

		for _, plain := range []bool{false, true} {
			open := func() *line {
				t.Helper()
				if plain {
					ours, theirs := net.Pipe()
					wg.Go(func() { s.ServeStream(ctx, theirs, "", "") }) // ignore error: it is ended
					return newLine(t, ours, ours)
				}
				conn, err := network.dial(ctx, "", "")
				if err != nil {
					t.Fatal(err)
				}
				fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: %s\r\nMajordomus-Bridge: 0123abcd\r\n\r\n",
					pathMCP, network.Addr(), session.Protocol)
				r := bufio.NewReader(conn)
				if resp, err := http.ReadResponse(r, nil); err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
					t.Fatal(resp, err)
				}
				return newLine(t, conn, r)
			}
			l := open()
			l.say(listen)
			l.hear("acknowledged")
			told = append(told, l)
			l = open()
			l.shake()
			l.say(late("c"))
			l.say(late("taken back"))
			told, called, ways = append(told, l), append(called, l), append(ways, l)
		}

		time.Sleep(6 * time.Minute)
		for _, l := range ways {
			l.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"taken back"}}`)
		}
		synctest.Wait()
		if len(cancelled) != len(ways) {
			t.Errorf("%d of %d cancellations arrived", len(cancelled), len(ways))
		}
		if err := os.WriteFile(filepath.Join(layer, "new.md"), []byte("news\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		close(speak)
		for _, l := range told {
			l.hear("notifications/resources/list_changed")
		}
		for _, l := range called {
			l.hear("notifications/progress", `"p"`)
			l.hear(`"id":"c"`, "spoken")
		}
	})
}
