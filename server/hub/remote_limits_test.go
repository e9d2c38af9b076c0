package hub

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"majordomus/bridge/frame"
	"majordomus/server/hub/config"
)

// ears are told what a server says by itself.
type ears chan string

func (e ears) asked(context.Context, frame.Message) []byte { return nil }
func (e ears) told(_ context.Context, m frame.Message)     { e <- string(m.Raw) }
func (e ears) wait(t *testing.T, what string) (got string) { t.Helper(); return waitFor(t, e, what) }
func waitFor[T any](t *testing.T, c <-chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(20 * time.Second):
		t.Fatal("never: ", what)
	}
	return v
}

// meet is a session with a server whose largest message has 1,000 bytes.
func meet(t testing.TB, serve func(w http.ResponseWriter, r *http.Request, m frame.Message)) (*remote, ears) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // ignore error: then it is no message
		m, _ := frame.Parse(body)     // ignore error: a GET has none
		serve(w, r, m)
	}))
	heard := make(ears, 100)
	r := newRemote(config.Server{URL: srv.URL}, nil, "1", 1000, heard, slog.New(slog.DiscardHandler))
	t.Cleanup(func() {
		r.stop(t.Context())
		srv.CloseClientConnections()
		srv.Close()
	})
	return r, heard
}

func TestRemoteLimits(t *testing.T) {
	long := strings.Repeat("x", 1000)
	for name, body := range map[string]string{
		"a body":            `{"id":%s,"result":"` + long + `"}`,
		"an endless body":   strings.Repeat(" ", 1<<20) + `{"id":%s}`,
		"an event":          "data: {\"id\":%s,\"result\":\"" + long + "\"}\n\n",
		"an event of lines": strings.Repeat("data: 123456789\n", 200) + "data: %s\n\n",
		"an endless event":  "data: " + strings.Repeat("x", 1<<20) + "%s",
		"an error":          "!" + strings.Repeat(" ", 2000) + "%s",
	} {
		r, _ := meet(t, func(w http.ResponseWriter, _ *http.Request, m frame.Message) {
			body := body
			w.Header().Set("Content-Type", "application/json")
			if strings.HasPrefix(body, "data") {
				w.Header().Set("Content-Type", "text/event-stream")
			}
			if body[0] == '!' {
				w.WriteHeader(500)
			}
			fmt.Fprintf(w, body, m.ID) // ignore error: the other side may have gone
		})
		_, err := r.call(t.Context(), "x", nil, nil)
		if want := "more than the largest message, which has 1000 bytes"; name != "an endless event" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}

// In the stream of what it says by itself what is too long is left out.
func TestRemoteSaysTooMuchByItself(t *testing.T) {
	r, heard := meet(t, func(w http.ResponseWriter, r *http.Request, m frame.Message) {
		switch {
		case r.Method == http.MethodGet && r.Header.Get(eventHeader) == "":
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprintf(w, "id: 1\ndata: {\"method\":\"%s\"}\n\ndata: {\"method\":\"second\"}\n\n", strings.Repeat("x", 1000)) // ignore error: as above
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		default:
			w.WriteHeader(http.StatusAccepted)
		}
	})
	r.tell(t.Context(), "notifications/initialized", nil)
	if got := heard.wait(t, "the second"); got != `{"method":"second"}` {
		t.Errorf("heard %s", got)
	}
}

// An answer that does not begin is not waited for for ever, and the server is
// told so; one that has begun may take its time.
func TestRemoteDoesNotBegin(t *testing.T) {
	t.Parallel()
	cancelled := make(chan string, 1)
	r, _ := meet(t, func(w http.ResponseWriter, r *http.Request, m frame.Message) {
		switch m.Name() {
		case "notifications/cancelled":
			cancelled <- string(m.Params)
			w.WriteHeader(http.StatusAccepted)
		case "mute":
			<-r.Context().Done()
		default:
			w.Header().Set("Content-Type", "text/event-stream")
			w.(http.Flusher).Flush()
			time.Sleep(2 * time.Second)                                // twice as long as it may take to begin
			fmt.Fprintf(w, "data: {\"id\":%s,\"result\":1}\n\n", m.ID) // ignore error: judged by what arrives
		}
	})
	r.head = time.Second
	_, err := r.call(t.Context(), "mute", nil, nil)
	var not *unrun
	if !errors.Is(err, errNoHead) || errors.As(err, &not) {
		t.Errorf("one that does not begin: %v", err)
	}
	if got := waitFor(t, cancelled, "it is told"); got != `{"requestId":1}` {
		t.Errorf("it was told %s", got)
	}
	if m, err := r.call(t.Context(), "slow", nil, nil); err != nil || string(m.Result) != "1" {
		t.Errorf("one that takes its time: %s %v", m.Raw, err)
	}
	r.stop(t.Context())
	if _, err := r.call(t.Context(), "late", nil, nil); !errors.Is(err, errEnded) || !errors.As(err, &not) {
		t.Errorf("after the end: %v", err)
	}
}

// Who goes takes the calls in flight with him; they do not hold up the end.
func TestRemoteStops(t *testing.T) {
	begun := make(chan struct{}, 10)
	r, _ := meet(t, func(w http.ResponseWriter, r *http.Request, m frame.Message) {
		if r.Method != http.MethodDelete {
			w.Header().Set("Content-Type", "text/event-stream")
			w.(http.Flusher).Flush()
			begun <- struct{}{}
		}
		<-r.Context().Done()
	})
	r.session = "known"
	failed := make(chan error, 1)
	go func() {
		_, err := r.call(t.Context(), "x", nil, nil)
		failed <- err
	}()
	waitFor(t, begun, "the call is there")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	stopped := make(chan struct{})
	go func() { r.stop(ctx); r.stop(t.Context()); close(stopped) }()
	waitFor(t, stopped, "it has stopped")
	if err := waitFor(t, failed, "the call has ended"); !errors.Is(err, errEnded) {
		t.Errorf("the call: %v", err)
	}
	if err := r.wait(); err != errEnded {
		t.Errorf("the end: %v", err)
	}
}

// What is handed on is one line, whatever the server made of it: a front that
// speaks events could not say it otherwise.
func TestRemoteSaysOneLine(t *testing.T) {
	r, heard := meet(t, func(w http.ResponseWriter, _ *http.Request, m frame.Message) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, "[{\r\n\"method\":\n\"x\"},\n{ \"id\":%s,\n\"result\":{\n\"a\": \"\\n\"\r\n}}\n]", m.ID) // ignore error: judged by what arrives
	})
	m, err := r.call(t.Context(), "x", nil, nil)
	if err != nil || string(m.Result) != `{ "a": "\n"  }` {
		t.Errorf("answered %q, %v", m.Result, err)
	}
	if got := heard.wait(t, "the notification"); got != `{  "method": "x"}` {
		t.Errorf("heard %q", got)
	}
}

// Progress that comes after the answer, in another stream, is nobody's.
func TestRemoteProgressEndsWithTheCall(t *testing.T) {
	emit := make(chan string)
	r, heard := meet(t, func(w http.ResponseWriter, r *http.Request, m frame.Message) {
		switch {
		case r.Method == http.MethodGet:
			w.Header().Set("Content-Type", "text/event-stream")
			w.(http.Flusher).Flush()
			for {
				select {
				case line := <-emit:
					fmt.Fprintf(w, "data: %s\n\n", line) // ignore error: judged by what arrives
					w.(http.Flusher).Flush()
				case <-r.Context().Done():
					return
				}
			}
		case m.IsRequest():
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"id":%s,"result":1}`, m.ID) // ignore error: as above
		default:
			w.WriteHeader(http.StatusAccepted)
		}
	})
	r.tell(t.Context(), "notifications/initialized", nil)
	const note = `{"method":"notifications/progress","params":{"progressToken":%d}}`
	emit <- `{"method":"begun"}`
	heard.wait(t, "the stream is open")
	var after []string
	returned := false
	if _, err := r.call(t.Context(), "x", nil, func(params []byte) {
		if returned {
			after = append(after, string(params))
		}
	}); err != nil {
		t.Fatal(err)
	}
	returned = true
	emit <- fmt.Sprintf(note, 1)
	emit <- `{"method":"ended"}`
	heard.wait(t, "what comes behind it")
	if len(after) > 0 {
		t.Errorf("told %q", after)
	}
}

// What has ended by itself takes no more calls, and lets those in flight finish.
func TestRemoteLetsFinish(t *testing.T) {
	release := make(chan struct{})
	begun := make(chan struct{}, 1)
	r, _ := meet(t, func(w http.ResponseWriter, r *http.Request, m frame.Message) {
		switch m.Name() {
		case "slow":
			w.Header().Set("Content-Type", "text/event-stream")
			w.(http.Flusher).Flush()
			begun <- struct{}{}
			<-release
			fmt.Fprintf(w, "data: {\"id\":%s,\"result\":1}\n\n", m.ID) // ignore error: judged by what arrives
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	})
	r.session = "known"
	answers := make(chan frame.Message, 1)
	go func() {
		m, _ := r.call(t.Context(), "slow", nil, nil) // ignore error: no answer says so
		answers <- m
	}()
	waitFor(t, begun, "the call is there")
	var not *unrun
	if _, err := r.call(t.Context(), "other", nil, nil); !errors.Is(err, errForgotten) || !errors.As(err, &not) {
		t.Errorf("a session that is not known: %v", err)
	}
	if err := r.wait(); !errors.Is(err, errForgotten) {
		t.Errorf("the end: %v", err)
	}
	stopped := make(chan struct{})
	go func() { r.stop(context.Background()); close(stopped) }()
	close(release)
	if m := waitFor(t, answers, "the call is answered"); string(m.Result) != "1" {
		t.Errorf("the call in flight: %s", m.Raw)
	}
	waitFor(t, stopped, "it has stopped")
}

// Over TLS it is HTTP/2 where the server has that. Whose certificate is not
// trusted is told nothing.
func TestRemoteOverTLS(t *testing.T) {
	major := make(chan int, 10)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		major <- r.ProtoMajor
		body, _ := io.ReadAll(r.Body) // ignore error: then it is no message
		m, _ := frame.Parse(body)     // ignore error: as above
		w.Header().Set("Content-Type", "text/event-stream")
		w.(http.Flusher).Flush()
		fmt.Fprintf(w, "data: {\"id\":%s,\"result\":1}\n\n", m.ID) // ignore error: judged by what arrives
	}))
	srv.EnableHTTP2 = true
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	t.Cleanup(srv.Close)
	meet := func() *remote {
		r := newRemote(config.Server{URL: srv.URL}, nil, "1", 1000, make(ears, 100), slog.New(slog.DiscardHandler))
		t.Cleanup(func() { r.stop(t.Context()) })
		return r
	}
	r := meet()
	var not *unrun
	if _, err := r.call(t.Context(), "x", nil, nil); !errors.As(err, &not) || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a certificate that is not trusted: %v", err)
	}
	r = meet()
	pool := x509.NewCertPool()
	pool.AddCert(srv.Certificate())
	r.client.Transport.(*http.Transport).TLSClientConfig.RootCAs = pool
	for range 3 {
		if m, err := r.call(t.Context(), "x", nil, nil); err != nil || string(m.Result) != "1" {
			t.Errorf("answered %s, %v", m.Raw, err)
		}
		if got := waitFor(t, major, "a visit"); got != 2 {
			t.Errorf("it is HTTP/%d", got)
		}
	}
}

func BenchmarkRemoteCall(b *testing.B) {
	for kind, form := range map[string]string{"application/json": `{"jsonrpc":"2.0","id":%s,"result":{}}`, "text/event-stream": "data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{}}\n\n"} {
		b.Run(kind, func(b *testing.B) {
			r, _ := meet(b, func(w http.ResponseWriter, _ *http.Request, m frame.Message) {
				w.Header().Set("Content-Type", kind)
				fmt.Fprintf(w, form, m.ID) // ignore error: judged by what arrives
			})
			b.ReportAllocs()
			for b.Loop() {
				if _, err := r.call(b.Context(), "tools/call", []byte(`{"name":"x"}`), nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
