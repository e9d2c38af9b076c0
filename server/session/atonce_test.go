package session_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/mark3labs/mcp-go/mcp"
	mcpserver "github.com/mark3labs/mcp-go/server"

	"majordomus/bridge/frame"
	"majordomus/server/session"
)

// polite has h answer echo at once, and adds a tool that says it is going to
// wait before it does.
func polite(c *session.Config) {
	c.AtOnce = func(tool string) bool { return slices.Contains([]string{"echo", "polite", "ask"}, tool) }
}

func (h *house) polite() {
	h.mcp.AddTool(mcp.NewTool("polite"), func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		session.Yield(ctx)
		session.Yield(ctx) // once is enough
		h.began <- r.GetString("s", "")
		select {
		case <-ctx.Done():
			h.ended <- ctx.Err()
			return nil, ctx.Err()
		case h.free <- struct{}{}:
			h.ended <- nil
			return text("freed")
		}
	})
}

// stream is a stream whose input comes at once and whose writes are noted.
type stream struct {
	io.Reader
	mu     sync.Mutex
	writes []string
}

func (s *stream) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes = append(s.writes, string(b))
	return len(b), nil
}

func (s *stream) Close() error { return nil }

// A write to a link costs more than what is written: the word that a request is
// taken goes with its answer, and the answers to what was read together go
// together.
func TestAnswersAtOnceGoTogether(t *testing.T) {
	h := settle(t, polite)
	s := &stream{Reader: strings.NewReader(toolCall(stateless, `1`, "echo", "", "") + "\n" + toolCall(stateless, `2`, "echo", "", "") + "\n")}
	if err := h.core.ServeStream(context.Background(), s, session.Peer{}); err != nil {
		t.Fatal(err)
	}
	if len(s.writes) != 1 {
		t.Fatalf("%d writes: %q", len(s.writes), s.writes)
	}
	var begin []string
	for line := range strings.Lines(s.writes[0]) {
		begin = append(begin, line[:min(len(line), 12)])
	}
	if len(begin) != 4 || begin[0] != "!accepted 1\n" || begin[2] != "!accepted 2\n" {
		t.Errorf("%q", s.writes[0])
	}
}

// What said that it is going to wait is waited for by nobody: not by what comes
// behind it on the same link, nor by the word that it was taken.
func TestYield(t *testing.T) {
	h := settle(t, polite)
	h.polite()
	l := h.link(t)
	for i := range 3 {
		l.say(toolCall(stateless, fmt.Sprint(i), "polite", fmt.Sprintf(`"s":"%d"`, i), ""))
		h.hasBegun(t, fmt.Sprint(i))
		l.exactly(fmt.Sprintf("!accepted %d", i+1))
	}
	l.say(toolCall(stateless, `9`, "echo", "", ""))
	l.exactly("!accepted 4")
	l.answer(`9`)
	l.say(cancelled(`1`))
	h.hasEnded(t, context.Canceled)
	for range 2 {
		h.release(t)
		h.hasEnded(t, nil)
	}
	l.say("!bye")
	l.ended()
	for _, line := range l.heard {
		if strings.Contains(line, `"id":1,`) {
			t.Error("a call that was taken back was answered")
		}
	}
	h.until(t, "nobody there", h.peers(0))
}

// The end of a link is noticed while what was read first still waits: a bridge
// that was killed during a long poll is not kept among the peers until that ends.
func TestTheEndIsNoticedBehindWhatWaits(t *testing.T) {
	for name, end := range map[string]func(*line){
		"end of the input": func(l *line) { l.conn.(*net.TCPConn).CloseWrite() },
		"farewell":         func(l *line) { l.say("!bye") },
		"reset": func(l *line) {
			l.conn.(*net.TCPConn).SetLinger(0)
			l.conn.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := settle(t, polite)
			h.polite()
			l := h.link(t)
			l.say(toolCall(stateless, `1`, "polite", `"s":"a"`, ""))
			h.hasBegun(t, "a")
			end(l)
			h.hasEnded(t, context.Canceled)
			h.until(t, "nobody there", h.peers(0))
		})
	}
	// A client without a bridge is answered what it asked before, but for what
	// it would have to answer itself.
	h := settle(t, polite)
	l := h.pipe(t, session.Peer{Plain: true})
	l.greet(`{"elicitation":{}}`)
	l.say(toolCall(shaken, `1`, "ask", `"s":"elicitation"`, ""))
	l.has("elicitation/create")
	l.conn.(*net.TCPConn).CloseWrite()
	if s := l.answer(`1`); !strings.Contains(s, `"error":`) {
		t.Error("the question was answered by nobody: ", s)
	}
	l.ended()
}

// The client's answer is among the lines that are read while it is waited for.
func TestAQuestionYields(t *testing.T) {
	h := settle(t, polite)
	l := h.link(t)
	l.greet(`{"elicitation":{}}`)
	l.say(toolCall(shaken, `1`, "ask", `"s":"elicitation"`, ""))
	m, err := frame.Parse([]byte(l.has("elicitation/create")))
	if err != nil {
		t.Fatal(err)
	}
	l.say(string(frame.Result(m.ID, []byte(`{"action":"decline"}`))))
	if a := l.answer(`1`); !strings.Contains(a, "decline") {
		t.Error(a)
	}
}

// A client that asks and asks and reads nothing is soon read from no more, and
// gets every answer when it goes on.
func TestAnswersThatNobodyReadsStopTheReading(t *testing.T) {
	for _, kind := range []string{"echo", "slow echo"} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := mcpserver.NewMCPServer("house", "1", mcpserver.WithToolCapabilities(true))
				m.AddTool(mcp.NewTool(kind), func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
					return text(r.GetString("s", ""))
				})
				core := session.New(session.Config{MCP: m, AtOnce: func(tool string) bool { return tool == "echo" }})
				client, server := net.Pipe()
				go core.ServeStream(context.Background(), server, session.Peer{Plain: true})
				const all = 80
				said := 0
				go func() {
					big := strings.Repeat("x", 64<<10)
					for i := range all {
						if _, err := io.WriteString(client, toolCall(stateless, fmt.Sprint(i), kind, `"s":"`+big+`"`, "")+"\n"); err != nil {
							t.Error(err)
							return
						}
						said++
					}
				}()
				synctest.Wait()
				if said > 40 {
					t.Errorf("%d of %d calls of 64 KiB were read, and no answer", said, all)
				}
				r := frame.NewReader(client, 0)
				for range all {
					if _, err := r.Next(); err != nil {
						t.Fatal(err)
					}
				}
				client.Close()
				core.Close()
			})
		})
	}
}
