package bridge

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"

	"majordomus/bridge/frame"
)

// deadEnd is a stream on which nothing ever comes.
type deadEnd struct{}

func (deadEnd) Read([]byte) (int, error)    { return 0, io.EOF }
func (deadEnd) Write(p []byte) (int, error) { return len(p), nil }
func (deadEnd) Close() error                { return nil }

// answersTo counts the answers to each id among what the client was told.
type answersTo struct {
	t  *testing.T
	mu sync.Mutex
	n  map[string]int
}

func (a *answersTo) Write(p []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for line := range bytes.Lines(p) {
		m, err := frame.Parse(bytes.TrimSuffix(line, []byte("\n")))
		if err != nil {
			a.t.Errorf("the client got %q: %v", line, err)
		} else if m.IsResponse() {
			a.n[string(m.ID)]++
		}
	}
	return len(p), nil
}

// FuzzLines has a client and a server write whatever they like: lines that begin
// with c are the client's. Nothing panics, the state stays whole, the client is
// told nothing but messages, and no request of its is answered twice.
func FuzzLines(f *testing.F) {
	f.Add("c{\"id\":1,\"method\":\"tools/call\"}\n!accepted 1\n{\"id\":1,\"result\":{}}\n{\"id\":1,\"result\":{}}\n")
	f.Add("c{\"id\":1,\"method\":\"initialize\",\"params\":{\"capabilities\":{\"roots\":{}}}}\n!registry a\n{\"id\":1,\"result\":{}}\nc{\"method\":\"notifications/initialized\"}\n{\"id\":7,\"method\":\"roots/list\"}\nc{\"id\":7,\"result\":{}}\n")
	f.Add("c{\"id\":\"a\",\"method\":\"subscriptions/listen\",\"params\":{\"notifications\":{\"toolsListChanged\":true}}}\n{\"method\":\"notifications/subscriptions/acknowledged\",\"params\":{\"_meta\":{\"io.modelcontextprotocol/subscriptionId\":\"a\"}}}\n!draining\n!lost\n{\"id\":\"a\",\"result\":{}}\n")
	f.Add("!accepted\n!accepted x\n!accepted 99999999999999999999\n!accepted -1\n!ping\n!pong\n!registry\n!registry b\n! \n!unknown\n")
	f.Add("c{\"id\":1,\"method\":\"ping\",\"params\":{\"_meta\":{\"progressToken\":1}}}\n{\"method\":\"notifications/progress\",\"params\":{\"progressToken\":1}}\nc{\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":1}}\n{\"id\":1,\"error\":{}}\n")
	f.Fuzz(func(t *testing.T, text string) {
		said := &answersTo{t: t, n: map[string]int{}}
		b := newBridge(Config{In: strings.NewReader(""), Out: said, ID: "b", audit: audit(t),
			Find:  func(context.Context, error) (Endpoint, error) { return Endpoint{}, errors.New("nobody") },
			Roots: func(context.Context, []string) bool { return false }})
		var cancel context.CancelFunc
		b.ctx, cancel = context.WithCancel(t.Context())
		defer cancel()
		b.seeking = true // no search is to begin: the test is the only server
		l := newLink(deadEnd{}, deadEnd{}, b.begin)
		l.cond = sync.NewCond(&b.mu)
		b.links, b.link = []*link{l}, l
		asked := map[string]int{}
		for line := range strings.Lines(text) {
			line := []byte(strings.TrimSuffix(line, "\n"))
			b.mu.Lock()
			switch {
			case len(line) == 0:
			case line[0] == 'c':
				if m, err := frame.Parse(line[1:]); err == nil && m.IsRequest() {
					asked[string(m.ID)]++
				}
				b.fromClient(line[1:], false)
			case l.dead:
			case line[0] == '!':
				b.control(l, line)
			default:
				b.fromServer(l, line)
			}
			b.unlock(server)
			b.out.flush()
		}
		b.wg.Wait()
		for id, n := range said.n {
			// An id that is in flight and asked again is refused each time.
			if n > asked[id] && id != "null" && asked[id] > 0 {
				t.Errorf("%s was asked %d times and answered %d times", id, asked[id], n)
			}
		}
	})
}
