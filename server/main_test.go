package server

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"majordomus/bridge/frame"
	"majordomus/lease"
	"majordomus/lease/checkout"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestMain(m *testing.M) {
	flag.Parse()
	goleak.VerifyTestMain(m)
}

// patience is how long a test waits for what is certain to come.
const patience = 20 * time.Second

// then is when the files of a test's layer were written.
var then = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// a place is a checkout with a server in it.
type place struct {
	t        testing.TB
	root     string
	checkout *checkout.Checkout
	folder   *lease.Folder
	tenure   *lease.Tenure
	server   *Server
	log      *logged
	url      string
	key      string
	client   *http.Client

	stop func() // ends ctx
	done chan struct{}
	err  error // of Run; after done
}

// policy is one in which nothing ends by itself.
func policy() checkout.Policy {
	p := checkout.DefaultPolicy()
	p.BusyGrace, p.Idle, p.JoinTimeout = time.Minute, time.Hour, time.Minute
	return p
}

// settle makes a checkout, stands for election and starts the server; change
// may have its own idea of the configuration.
func settle(t testing.TB, change func(*Config)) *place {
	t.Helper()
	p := prepare(t, change)
	p.run()
	return p
}

func prepare(t testing.TB, change func(*Config)) *place {
	t.Helper()
	p := newPlace(t, filepath.Join(t.TempDir(), "shop"))
	p.write(".git/HEAD", "ref: refs/heads/main\n")
	p.prepare(change)
	return p
}

func newPlace(t testing.TB, root string) *place { return &place{t: t, root: root, log: &logged{}} }

// prepare fills the place's checkout, stands for election and makes the server.
func (p *place) prepare(change func(*Config)) {
	t := p.t
	t.Helper()
	p.write(".ai/manifest.yaml", "schema: ai-repository/v1\n")
	p.write(".ai/repo/AGENTS.md", "# Rules\n")
	p.write(".ai/repo/docs/a b.json", "{}")
	c, err := checkout.Open(p.root)
	if err != nil {
		t.Fatal(err)
	}
	p.checkout = c
	log := slog.New(slog.NewTextHandler(p.log, nil))
	p.folder, err = lease.Open(lease.Config{Checkout: c, Version: "v0.1.0", Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.folder.Close() })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	e, err := p.folder.Elect(t.Context(), lease.Candidate{Listen: func(string) (string, error) { return "http://" + l.Addr().String(), nil }})
	if err != nil {
		t.Fatal(err)
	}
	p.tenure = e.Tenure
	t.Cleanup(func() { p.tenure.Release() })
	cfg := Config{Checkout: c, Policy: policy(), Folder: p.folder, Tenure: e.Tenure, Listener: l, Version: "v0.1.0", Log: log}
	if change != nil {
		change(&cfg)
	}
	p.server, err = New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	p.url = p.server.url
	if p.key, err = p.folder.Key(); err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	p.client = &http.Client{Transport: transport}
	t.Cleanup(transport.CloseIdleConnections)
}

// run runs the server and waits until it serves.
func (p *place) run() {
	p.t.Helper()
	ready := make(chan struct{})
	p.server.cfg.OnReady = func() { close(ready) }
	ctx, cancel := context.WithCancel(context.Background())
	p.stop, p.done = cancel, make(chan struct{})
	go func() {
		defer close(p.done)
		p.err = p.server.Run(ctx)
	}()
	p.t.Cleanup(func() {
		p.server.stop(true)
		cancel()
		p.ended()
	})
	select {
	case <-ready:
	case <-p.done:
		p.t.Fatalf("ended before it served: %v", p.err)
	case <-time.After(patience):
		p.t.Fatal("does not serve")
	}
}

// ended waits for the end of Run.
func (p *place) ended() error {
	p.t.Helper()
	select {
	case <-p.done:
		return p.err
	case <-time.After(patience):
		p.t.Fatal("does not end")
		return nil
	}
}

func (p *place) runs() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

func (p *place) write(name, content string) {
	p.t.Helper()
	path := filepath.Join(p.root, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		p.t.Fatal(err)
	}
	if err := os.Chtimes(path, then, then); err != nil {
		p.t.Fatal(err)
	}
}

// lose takes the lease away and waits until the server knows.
func (p *place) lose() {
	p.t.Helper()
	if err := os.Remove(p.folder.LeasePath()); err != nil {
		p.t.Fatal(err)
	}
	select {
	case <-p.tenure.Context().Done():
	case <-time.After(patience):
		p.t.Fatal("the loss is not noticed")
	}
}

// a reply is an answer over HTTP, read in full.
type reply struct {
	status int
	header http.Header
	body   string
}

// code is that of an error.
func (r reply) code() string {
	var e struct{ Error fault }
	json.Unmarshal([]byte(r.body), &e)
	return e.Error.Code
}

func (r reply) decode(t testing.TB, v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(r.body), v); err != nil {
		t.Fatalf("%v in %s", err, r.body)
	}
}

// ask sends a request with the key; header is name, value, …, where an empty
// value takes one away.
func (p *place) ask(method, path, body string, header ...string) reply {
	p.t.Helper()
	r, err := p.try(method, path, body, header...)
	if err != nil {
		p.t.Fatal(err)
	}
	return r
}

func (p *place) try(method, path, body string, header ...string) (reply, error) {
	var rd io.Reader
	if body != "" {
		rd = strings.NewReader(body)
	}
	req, err := http.NewRequest(method, p.url+path, rd)
	if err != nil {
		return reply{}, err
	}
	req.Header.Set("Authorization", "Bearer "+p.key)
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		switch {
		case header[i] == "Host":
			req.Host = header[i+1]
		case header[i+1] == "":
			req.Header.Del(header[i])
		default:
			req.Header.Set(header[i], header[i+1])
		}
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, string(b)}, err
}

const initialize = `{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"tester","version":"1"}}}`

// session initializes over HTTP and returns the session's id.
func (p *place) session() string {
	p.t.Helper()
	r := p.ask("POST", "/mcp", initialize, "Accept", "application/json, text/event-stream")
	id := r.header.Get("Mcp-Session-Id")
	if r.status != 200 || id == "" {
		p.t.Fatalf("initialize: %d %s", r.status, r.body)
	}
	return id
}

// a line is a raw JSON-RPC client on a stream.
type line struct {
	t     testing.TB
	conn  io.ReadWriteCloser
	heard chan string
	past  []string // heard, and passed over
}

// link upgrades a connection.
func (p *place) link(bridge string) *line {
	p.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
	if err != nil {
		p.t.Fatal(err)
	}
	fmt.Fprintf(conn, "GET /mcp HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: majordomus-frames/1\r\nAuthorization: Bearer %s\r\nMajordomus-Bridge: %s\r\n\r\n",
		strings.TrimPrefix(p.url, "http://"), p.key, bridge)
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	if resp.StatusCode != 101 {
		b, _ := io.ReadAll(resp.Body)
		conn.Close()
		p.t.Fatalf("no link: %s %s", resp.Status, b)
	}
	return newLine(p.t, conn, r)
}

func newLine(t testing.TB, conn io.ReadWriteCloser, r io.Reader) *line {
	l := &line{t: t, conn: conn, heard: make(chan string, 1000)}
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(l.heard)
		fr := frame.NewReader(r, 1<<30)
		for {
			b, err := fr.Next()
			if err != nil {
				return
			}
			l.heard <- string(b)
		}
	})
	t.Cleanup(func() {
		conn.Close()
		for range l.heard {
		}
		wg.Wait()
	})
	return l
}

func (l *line) say(s string) {
	l.t.Helper()
	if _, err := io.WriteString(l.conn, s+"\n"); err != nil {
		l.t.Fatal(err)
	}
}

// hear returns the first line not yet returned that contains all of want.
func (l *line) hear(want ...string) string {
	l.t.Helper()
	is := func(s string) bool {
		return !slices.ContainsFunc(want, func(w string) bool { return !strings.Contains(s, w) })
	}
	if i := slices.IndexFunc(l.past, is); i >= 0 {
		found := l.past[i]
		l.past = slices.Delete(l.past, i, i+1)
		return found
	}
	limit := time.After(patience)
	for {
		select {
		case s, ok := <-l.heard:
			if !ok {
				l.t.Fatalf("ended while waiting for %q", want)
			}
			if is(s) {
				return s
			}
			l.past = append(l.past, s)
		case <-limit:
			l.t.Fatalf("silent while waiting for %q", want)
		}
	}
}

// gone waits for the end of the stream.
func (l *line) gone() {
	l.t.Helper()
	limit := time.After(patience)
	for {
		select {
		case _, ok := <-l.heard:
			if !ok {
				return
			}
		case <-limit:
			l.t.Fatal("the stream does not end")
		}
	}
}

func (l *line) shake() string {
	l.t.Helper()
	l.say(initialize)
	answer := l.hear(`"id":"i"`)
	l.say(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return answer
}

func call(id, tool, args string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"` + tool + `","arguments":` + args + `}}`
}

const modern = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"tester","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`

// eventually waits for what is certain to come and tells nobody when it does.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !is(); {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// golden compares with a file, in which what differs from run to run has a
// name instead.
func (p *place) golden(name, got string, names ...string) {
	p.t.Helper()
	pairs := append([]string{p.root, "ROOT", p.checkout.ID, "REPOSITORY_ID", p.url, "URL", p.server.generation, "GENERATION",
		p.server.started.Format(time.RFC3339Nano), "STARTED_AT", p.server.registry.current(), "FINGERPRINT"}, names...)
	if p.checkout.GitID != "" {
		pairs = append(pairs, p.checkout.GitID, "GIT_REPOSITORY_ID")
	}
	got = strings.NewReplacer(pairs...).Replace(got)
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			p.t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		p.t.Fatal(err)
	}
	if got != string(want) {
		p.t.Errorf("%s differs.\ngot:\n%s\nwant:\n%s", name, got, want)
	}
}

func indented(t *testing.T, s string) string {
	t.Helper()
	var b bytes.Buffer
	if err := json.Indent(&b, []byte(s), "", "  "); err != nil {
		t.Fatalf("%v in %s", err, s)
	}
	return b.String() + "\n"
}

// logged keeps what was logged.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
