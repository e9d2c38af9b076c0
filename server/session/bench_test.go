package session_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"testing"

	"majordomus/bridge/frame"
	"majordomus/server/session"
)

// BenchmarkCall is a small tools/call with a handshake behind it: handed to
// mcp-go alone, and through a link, its two sockets and its two goroutines.
func BenchmarkCall(b *testing.B) {
	message := toolCall(shaken, `1`, "echo", `"s":"x"`, "")
	b.Run("HandleMessage", func(b *testing.B) {
		h := settle(b, nil)
		for b.Loop() {
			answer, err := json.Marshal(h.mcp.HandleMessage(context.Background(), json.RawMessage(message)))
			if err != nil || len(answer) == 0 {
				b.Fatal(err)
			}
		}
	})
	b.Run("link", func(b *testing.B) {
		h := settle(b, nil)
		conn, server := sockets(b)
		done := make(chan error, 1)
		go func() { done <- h.core.ServeStream(context.Background(), server, session.Peer{}) }()
		r, line := frame.NewReader(conn, 0), []byte(message+"\n")
		for b.Loop() {
			if _, err := conn.Write(line); err != nil {
				b.Fatal(err)
			}
			for n := 0; n < 2; n++ { // accepted, then the answer
				if _, err := r.Next(); err != nil {
					b.Fatal(err)
				}
			}
		}
		conn.Close()
		<-done // ignore error: it was closed on purpose
	})
}

// BenchmarkIdle is what a thousand idle links and a thousand idle sessions of
// HTTP hold, the clients' half of the connections not counted.
func BenchmarkIdle(b *testing.B) {
	const n = 1000
	h := settle(b, nil)
	held := func() float64 {
		runtime.GC()
		runtime.GC()
		var s runtime.MemStats
		runtime.ReadMemStats(&s)
		return float64(s.HeapInuse+s.StackInuse) / (1 << 20)
	}
	for b.Loop() {
		before := held()
		conns := make([]func() error, 0, n)
		buf := make([]byte, 4096)
		for range n {
			conns = append(conns, dial(b, h))
		}
		h.until(b, "all links there", h.peers(n))
		links := held()
		w := h.web(b, "")
		for range n {
			resp, err := w.client.Do(w.request(context.Background(), http.MethodPost, hello(`1`, `{}`)))
			if err != nil {
				b.Fatal(err)
			}
			for err == nil {
				_, err = resp.Body.Read(buf)
			}
			resp.Body.Close()
		}
		sessions := held()
		b.ReportMetric(links-before, "MiB/1000links")
		b.ReportMetric(sessions-links, "MiB/1000sessions")
		for _, end := range conns {
			end()
		}
		h.core.CloseIdle()
		h.until(b, "nobody there", h.peers(0))
	}
}

// dial opens a link whose client holds nothing but a socket.
func dial(b *testing.B, h *house) (end func() error) {
	b.Helper()
	conn, err := net.Dial("tcp", h.http.Listener.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	fmt.Fprintf(conn, "GET /mcp HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n%s\n!ping\n", session.Protocol, hello(`1`, `{}`))
	r := make([]byte, 0, 2048)
	for one := make([]byte, 512); ; {
		n, err := conn.Read(one)
		if err != nil {
			b.Fatal(err)
		}
		if r = append(r, one[:n]...); len(r) > 6 && string(r[len(r)-6:]) == "!pong\n" {
			return conn.Close
		}
	}
}
