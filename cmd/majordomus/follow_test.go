package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"majordomus/lease"
	"majordomus/lease/checkout"
	"majordomus/server"
	"majordomus/server/board"
)

// fakeServer holds the lease of a checkout and answers as a test has it.
type fakeServer struct {
	root string

	mu    sync.Mutex
	asked []string // what each stream asked for
}

func newFakeServer(t *testing.T, events func(n int, w http.ResponseWriter), executions server.Executions) *fakeServer {
	t.Helper()
	s := &fakeServer{root: t.TempDir()}
	c, err := checkout.Open(s.root)
	if err != nil {
		t.Fatal(err)
	}
	f, err := lease.Open(lease.Config{Checkout: c, Timings: timings(checkout.DefaultPolicy()), Self: lease.StartedAs()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if _, err := f.Key(); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + l.Addr().String()
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, v any) {
		if err := json.NewEncoder(w).Encode(v); err != nil {
			t.Error(err)
		}
	}
	mux.HandleFunc("/{$}", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, lease.Index{Name: "majordomus", RepositoryID: c.ID})
	})
	mux.HandleFunc("/api/v1/executions", func(w http.ResponseWriter, _ *http.Request) { answer(w, executions) })
	if events != nil {
		mux.HandleFunc("/api/v1/events", func(w http.ResponseWriter, r *http.Request) {
			s.mu.Lock()
			s.asked = append(s.asked, r.URL.RawQuery)
			n := len(s.asked)
			s.mu.Unlock()
			if r.Header.Get("Authorization") != "" {
				t.Error("a server that proved nothing is sent the key")
			}
			events(n, w)
		})
	}
	serving := &http.Server{Handler: mux}
	done := make(chan struct{})
	go func() { serving.Serve(l); close(done) }()
	t.Cleanup(func() { serving.Close(); <-done })
	el, err := f.Elect(t.Context(), lease.Candidate{NoAuth: true, Listen: func(string) (string, error) { return url, nil }})
	if err != nil {
		t.Fatal(err)
	}
	if err := el.Tenure.Publish(url); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { el.Tenure.Release() })
	return s
}

// lineWriter ends the run when it has had so many lines.
type lineWriter struct {
	b    bytes.Buffer
	left int
	end  func()
}

func (w *lineWriter) Write(p []byte) (int, error) {
	if w.left -= bytes.Count(p, []byte("\n")); w.left <= 0 {
		w.end()
	}
	return w.b.Write(p)
}

// runs runs words in this process until they end or have written so many lines.
func (s *fakeServer) runs(t *testing.T, lines int, args ...string) (out, log string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	w, said := &lineWriter{left: lines, end: cancel}, &bytes.Buffer{}
	a := &app{in: strings.NewReader(""), out: w, err: &sink{w: said}, getenv: func(string) string { return "" }, started: lease.StartedAs()}
	code = a.run(ctx, append(args, "--root", s.root))
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		t.Errorf("%q did not come to its end: %s%s", args, w.b.String(), said)
	}
	return w.b.String(), said.String(), code
}

func fakeCall(number uint64, tool string) board.Execution {
	return board.Execution{Number: number, Peer: "p1a2b", Client: "claude-code", Tool: tool, Outcome: "ok", Started: time.Now(), Millis: 1}
}

func fakeEnded(w io.Writer, event, number uint64, tool string) {
	e := fakeCall(number, tool)
	b, _ := json.Marshal(board.Event{Number: event, Kind: board.CallEnded, Execution: &e}) // ignore error: it has none
	fmt.Fprintf(w, "id: %d\nevent: call_ended\ndata: %s\n\n", event, b)
}

// TestFollowGap has a server forget, and its stream break: what is missing is
// said, and what is in the list and the stream both is shown once.
func TestFollowGap(t *testing.T) {
	t.Parallel()
	events := func(n int, w http.ResponseWriter) {
		io.WriteString(w, "event: hello\ndata: {\"generation\":\"g\",\"newest\":7}\n\n: alive\n\n")
		switch n {
		case 1: // breaks before anything has happened
		case 2:
			fakeEnded(w, 8, 2, "files__two") // in the list too
			fakeEnded(w, 9, 3, "files__three")
		default:
			io.WriteString(w, "event: gap\r\ndata: {\"missed\":312}\r\n\r\n")
			fakeEnded(w, 322, 316, "files__last")
			w.(http.Flusher).Flush()
			time.Sleep(100 * time.Millisecond) // for what would come twice
		}
	}
	s := newFakeServer(t, events, server.Executions{Ended: []board.Execution{fakeCall(2, "files__two"), fakeCall(1, "files__one")}})
	out, log, code := s.runs(t, 6, "executions", "--follow")
	var tools []string
	for line := range strings.Lines(out) {
		switch f := strings.Fields(line); {
		case f[0] == "…":
			tools = append(tools, strings.TrimSpace(line))
		case len(f) > 3:
			tools = append(tools, f[3])
		}
	}
	want := []string{"OUTCOME", "files__one", "files__two", "files__three", "… at most 312 calls not shown", "files__last"}
	if code != 0 || log != "" || !slices.Equal(tools, want) {
		t.Errorf("exit code %d, %q; it shows %q:\n%s", code, log, tools, out)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if want := []string{"", "after=7", "after=9"}; !slices.Equal(s.asked[:min(3, len(s.asked))], want) {
		t.Errorf("it asked for %q", s.asked)
	}
}

func TestFollowGapAsJSON(t *testing.T) {
	t.Parallel()
	s := newFakeServer(t, func(n int, w http.ResponseWriter) {
		io.WriteString(w, "event: hello\ndata: {\"generation\":\"g\",\"newest\":7}\n\nevent: gap\ndata: {\"missed\":2}\n\n")
		fakeEnded(w, 10, 3, "files__three")
	}, server.Executions{})
	out, log, code := s.runs(t, 2, "executions", "--follow", "--format", "json")
	gap, call, _ := strings.Cut(out, "\n")
	if code != 0 || log != "" || gap != `{"missed":2}` || !strings.HasPrefix(call, `{"number":3,`) {
		t.Errorf("exit code %d, %q: %s", code, log, out)
	}
}

// TestFollowOlder has a server that knows no events: it would say so for ever.
func TestFollowOlder(t *testing.T) {
	t.Parallel()
	s := newFakeServer(t, nil, server.Executions{})
	for _, args := range [][]string{{"executions", "--follow"}, {"peers", "--watch"}} {
		if out, log, code := s.runs(t, 1, args...); code != exitFailed || out != "" || !strings.Contains(log, "404") {
			t.Errorf("%q: exit code %d: %s%s", args, code, out, log)
		}
	}
}

// TestFollowWriteFails has the reader of the output go.
func TestFollowWriteFails(t *testing.T) {
	t.Parallel()
	s := newFakeServer(t, func(n int, w http.ResponseWriter) {
		io.WriteString(w, "event: hello\ndata: {\"generation\":\"g\",\"newest\":7}\n\n")
		w.(http.Flusher).Flush()
	}, server.Executions{})
	a := &app{in: strings.NewReader(""), out: brokenWriter{}, err: &sink{w: io.Discard}, getenv: func(string) string { return "" }, started: lease.StartedAs()}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if code := a.run(ctx, []string{"executions", "--follow", "--root", s.root}); code != exitFailed || ctx.Err() != nil {
		t.Errorf("exit code %d, %v", code, ctx.Err())
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("nobody reads") }
