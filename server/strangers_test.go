package server

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// These are the callers that mean no good: processes of this machine that have
// no key, pages in a browser, and whoever sends too much, too slowly or what is
// no HTTP. With MAJORDOMUS_TEST_LONG=1 there are more of them.

// every path that leads anywhere, as the code that leads there has it.
func everyPath(t *testing.T) []string {
	t.Helper()
	code, err := os.ReadFile("http.go")
	if err != nil {
		t.Fatal(err)
	}
	paths := []string{"/nowhere", pathMCP, pathCockpit, pathCockpit + "/app.js", pathCockpit + "/style.css", pathCockpit + "/icon.svg"}
	for _, m := range regexp.MustCompile(`\tcase "(/[^\n]*)":`).FindAllStringSubmatch(string(code), -1) {
		paths = append(paths, strings.Split(m[1], `", "`)...)
	}
	if len(paths) < 20 || !slices.Contains(paths, "/api/v1/ready") {
		t.Fatalf("the paths are not found in http.go: %q", paths)
	}
	return paths
}

// unharmed fails the test if anybody had an effect on the server.
func (p *place) unharmed() {
	p.t.Helper()
	if why := p.server.reason(); why != "" {
		p.t.Errorf("it ends: %s", why)
	}
	if key, err := p.folder.Key(); err != nil || key != p.key {
		p.t.Errorf("the key is %.8q now, %v", key, err)
	}
	if own, err := p.tenure.IsOwn(); !own || err != nil {
		p.t.Errorf("the lease is not its own: %v", err)
	}
	if log := p.log.String(); strings.Contains(log, "panic") || strings.Contains(log, p.key) {
		p.t.Errorf("it logged:\n%s", log)
	}
}

// TestPages asks for every path in every way in which a page of another origin
// can have a browser ask.
func TestPages(t *testing.T) {
	p := settle(t, nil)
	ours := strings.TrimPrefix(p.url, "http://")
	_, port, _ := net.SplitHostPort(ours)
	open := []string{"/", "/api/v1/health", "/api/v1/live", "/api/v1/ready", "/cockpit", "/cockpit/app.js", "/cockpit/style.css", "/cockpit/icon.svg"}
	form, plain, multi := "application/x-www-form-urlencoded", "text/plain", "multipart/form-data; boundary=x"
	type way struct {
		name, method string
		header       []string
		code         string // "": what is open is served, as something that no page gets to see
	}
	ways := []way{
		{"an image", "GET", []string{"Accept", "image/*", "Sec-Fetch-Mode", "no-cors"}, ""},
		{"a script", "GET", []string{"Accept", "*/*", "Sec-Fetch-Dest", "script"}, ""},
		{"a frame", "GET", []string{"Accept", "text/html", "Sec-Fetch-Dest", "iframe"}, ""},
		{"fetch without cors", "GET", []string{"Accept", "*/*", "Sec-Fetch-Mode", "no-cors"}, ""},
		{"a name of its own", "GET", []string{"Host", "evil.example:" + port}, "forbidden_host"},
		{"a name of its own, from there", "POST", []string{"Host", "evil.example:" + port, "Origin", "http://evil.example:" + port}, "forbidden_host"},
	}
	for _, origin := range []string{"null", "http://evil.example", "https://" + ours, "http://127.0.0.1:1", "file://", "chrome-extension://abcdefgh", "http://localhost"} {
		ways = append(ways,
			way{"fetch", "GET", []string{"Origin", origin}, "forbidden_origin"},
			way{"EventSource", "GET", []string{"Origin", origin, "Accept", "text/event-stream"}, "forbidden_origin"},
			way{"WebSocket", "GET", []string{"Origin", origin, "Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="}, "forbidden_origin"},
			way{"a link", "GET", []string{"Origin", origin, "Connection", "Upgrade", "Upgrade", "majordomus-frames/1"}, "forbidden_origin"},
			way{"preflight", "OPTIONS", []string{"Origin", origin, "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "authorization,content-type", "Access-Control-Request-Private-Network", "true"}, "forbidden_origin"},
			way{"a simple POST", "POST", []string{"Origin", origin, "Content-Type", plain}, "forbidden_origin"},
			way{"a form", "POST", []string{"Origin", origin, "Content-Type", form}, "forbidden_origin"},
			way{"a form with files", "POST", []string{"Origin", origin, "Content-Type", multi}, "forbidden_origin"},
			way{"JSON", "POST", []string{"Origin", origin, "Content-Type", "application/json"}, "forbidden_origin"},
		)
	}
	n := 0
	for _, path := range everyPath(t) {
		for _, w := range ways {
			body := ""
			if w.method == "POST" {
				body = `{"force":true}`
				if path == pathMCP {
					body = initialize
				}
			}
			r := p.ask(w.method, path, body, append([]string{"Authorization", "", "Content-Type", ""}, w.header...)...)
			n++
			want := w.code
			switch {
			case want != "" || slices.Contains(open, path):
			case path == "/nowhere":
				want = "not_found"
			case path == "/api/v1/page":
				want = "method_not_allowed"
			default:
				want = "unauthorized"
			}
			if got := r.code(); got != want || want == "" && r.status != 200 {
				t.Errorf("%s %s by %s %q: %d %.100s, want %q", w.method, path, w.name, w.header, r.status, r.body, want)
			}
			for name := range r.header {
				if strings.HasPrefix(name, "Access-Control-") || name == "Set-Cookie" {
					t.Errorf("%s %s by %s: it is answered with %s", w.method, path, w.name, name)
				}
			}
			for name, value := range map[string]string{"Cross-Origin-Resource-Policy": "same-origin", "X-Frame-Options": "DENY", "X-Content-Type-Options": "nosniff"} {
				if r.header.Get(name) != value {
					t.Errorf("%s %s by %s: %s is %q", w.method, path, w.name, name, r.header.Get(name))
				}
			}
		}
	}
	t.Log(n, "requests")
	if peers, calls := p.server.core.Stats(); peers+calls > 0 {
		t.Errorf("%d are in, with %d calls", peers, calls)
	}
	p.unharmed()
}

// speak sends bytes on a connection of their own and returns all that comes
// back, after which the server has hung up.
func (p *place) speak(bytes ...string) (string, error) {
	conn, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
	if err != nil {
		return "", err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	for _, b := range bytes {
		if _, err := io.WriteString(conn, b); err != nil {
			break // it hung up already, which it may
		}
	}
	conn.(*net.TCPConn).CloseWrite()
	b, err := io.ReadAll(conn)
	var late net.Error
	if errors.As(err, &late) && late.Timeout() {
		return string(b), errors.New("it does not hang up")
	}
	return string(b), nil
}

// TestMalformed sends what is no HTTP, or means one thing to one reader and
// another to the next: what it may hide is not done, whoever has the key.
func TestMalformed(t *testing.T) {
	p := settle(t, func(c *Config) { c.Policy.ReadDeadline = 300 * time.Millisecond })
	host := "Host: " + strings.TrimPrefix(p.url, "http://") + "\r\n"
	key := "Authorization: Bearer " + p.key + "\r\n"
	stop := "POST /api/v1/stop HTTP/1.1\r\n" + host + key
	hidden := stop + "Content-Length: 0\r\n\r\n"
	bare := "POST /api/v1/stop HTTP/1.1\r\n" + host + "Content-Length: 0\r\n\r\n" // without the key
	long := func(n int) string { return strings.Repeat("a", n) }
	for _, test := range []struct {
		name, sent string
		statuses   string // those that may be answered, in order of requests
	}{
		{"two lengths", stop + "Content-Length: 0\r\nContent-Length: " + fmt.Sprint(len(hidden)) + "\r\n\r\n" + hidden, "400"},
		{"two lengths in one", stop + "Content-Length: 0, 5\r\n\r\n" + hidden, "400"},
		{"a length with a sign", stop + "Content-Length: +2\r\n\r\n{}" + hidden, "400"},
		{"a negative length", stop + "Content-Length: -1\r\n\r\n" + hidden, "400"},
		{"a length past all numbers", stop + "Content-Length: 99999999999999999999\r\n\r\n" + hidden, "400"},
		// A reader that goes by the chunks, as one has to, finds a request of
		// somebody without a key behind the first.
		{"length and chunks", "GET /api/v1/live HTTP/1.1\r\n" + host + "Content-Length: " + fmt.Sprint(len(bare)+5) + "\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + bare, "200 401"},
		{"chunks of another kind", stop + "Transfer-Encoding: xchunked\r\n\r\n" + hidden, "501"},
		{"chunks, twice", stop + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden, "400|501"},
		{"chunks, and then none", stop + "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" + hidden, "400|501"},
		{"a space before the colon", stop + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + hidden, "400"},
		{"a chunk whose size is no number", stop + "Transfer-Encoding: chunked\r\n\r\ng\r\n{}\r\n0\r\n\r\n" + hidden, "400"},
		{"a chunk of a negative size", stop + "Transfer-Encoding: chunked\r\n\r\n-2\r\n{}\r\n0\r\n\r\n" + hidden, "400"},
		{"a chunk past all numbers", stop + "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n{}\r\n0\r\n\r\n" + hidden, "400"},
		{"a chunk that is longer than it says", stop + "Transfer-Encoding: chunked\r\n\r\n1\r\n{}\r\n0\r\n\r\n" + hidden, "400"},
		{"chunks that do not end", stop + "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n", "400"},
		{"half a body", stop + "Content-Length: 9\r\n\r\n{}", "400"},
		{"a target for proxies", "POST http://evil.example/api/v1/stop HTTP/1.1\r\n" + host + key + "Content-Length: 0\r\n\r\n", "403"},
		{"a target for proxies that is ours", "POST " + p.url + "/api/v1/stop HTTP/1.1\r\nHost: evil.example\r\n" + key + "Content-Length: 0\r\n\r\n", "403"},
		{"CONNECT", "CONNECT " + strings.TrimPrefix(p.url, "http://") + " HTTP/1.1\r\n" + host + key + "\r\n", "403"},
		{"CONNECT to another", "CONNECT evil.example:25 HTTP/1.1\r\n" + host + key + "\r\n", "403"},
		{"the asterisk", "OPTIONS * HTTP/1.1\r\n" + host + key + "\r\n", "404"},
		{"HTTP/0.9", "GET /api/v1/server\r\n\r\n", "400"},
		{"HTTP/0.9 by name", "GET /api/v1/server HTTP/0.9\r\n" + host + key + "\r\n", "505|400"},
		{"HTTP/1.0 without a host", "POST /api/v1/stop HTTP/1.0\r\n" + key + "\r\n", "403"},
		{"HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "505|403"},
		{"TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "400"},
		{"no host", "POST /api/v1/stop HTTP/1.1\r\n" + key + "\r\n", "400"},
		{"two hosts", "POST /api/v1/stop HTTP/1.1\r\n" + host + "Host: evil.example\r\n" + key + "\r\n", "400"},
		{"a host with another before it", "POST /api/v1/stop HTTP/1.1\r\nHost: evil.example@" + strings.TrimPrefix(p.url, "http://") + "\r\n" + key + "Content-Length: 0\r\n\r\n", "400|403"},
		{"NUL in a value", stop + "X-A: a\x00b\r\nContent-Length: 0\r\n\r\n", "400"},
		{"NUL in a name", stop + "X\x00A: a\r\nContent-Length: 0\r\n\r\n", "400"},
		{"NUL in the target", "POST /api/v1/stop\x00 HTTP/1.1\r\n" + host + key + "Content-Length: 0\r\n\r\n", "400"},
		{"a bare CR in a value", stop + "X-A: a\rContent-Length: 5\r\n\r\n", "400"},
		{"a name that is none", stop + "X A: a\r\nContent-Length: 0\r\n\r\n", "400"},
		{"a method that is none", "PO ST /api/v1/stop HTTP/1.1\r\n" + host + key + "\r\n", "400"},
		{"a method of 1 MiB", long(1<<20) + " / HTTP/1.1\r\n" + host + "\r\n", "431"},
		{"a target of 1 MiB", "GET /" + long(1<<20) + " HTTP/1.1\r\n" + host + "\r\n", "431"},
		{"a header of 1 MiB", stop + "X-A: " + long(1<<20) + "\r\n\r\n", "431"},
		{"20,000 headers", stop + strings.Repeat("X-A: abc\r\n", 20000) + "\r\n", "431"},
		{"ways up", "GET /api/v1/../../../etc/passwd HTTP/1.1\r\n" + host + "\r\n", "404"},
		{"ways up, in disguise", "GET /cockpit/%2e%2e%2fpage.go HTTP/1.1\r\n" + host + "\r\n", "404"},
		{"expecting what is not known", stop + "Expect: the-unexpected\r\nContent-Length: 0\r\n\r\n", "417"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := p.speak(test.sent)
			if err != nil {
				t.Error(err)
			}
			var statuses []string
			for _, m := range regexp.MustCompile(`HTTP/1\.[01] (\d{3}) `).FindAllStringSubmatch(got, -1) {
				statuses = append(statuses, m[1])
			}
			said := strings.Join(statuses, " ")
			if !slices.Contains(strings.Split(test.statuses, "|"), said) {
				t.Errorf("answered %q, and not %s: %.300q", said, test.statuses, got)
			}
			if strings.Contains(got, p.key) || strings.Contains(got, `"stopping"`) {
				t.Errorf("served: %.300q", got)
			}
		})
	}
	p.unharmed()
	if r := p.ask("GET", "/api/v1/server", ""); r.status != 200 {
		t.Errorf("afterwards: %d %s", r.status, r.body)
	}
}

// inUse is what is in use once all that can be given back is.
func inUse() uint64 {
	runtime.GC()
	runtime.GC() // what pools hold goes with the second
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse
}

// bounded is told what there was before, and fails when much more is kept once
// all are gone.
func (p *place) bounded(goroutines int, before uint64) {
	p.t.Helper()
	p.client.CloseIdleConnections()
	eventually(p.t.(*testing.T), fmt.Sprintf("%d goroutines are enough", goroutines+20), func() bool { return runtime.NumGoroutine() <= goroutines+20 })
	after := inUse()
	p.t.Logf("heap in use: %.1f MiB before, %.1f after", float64(before)/(1<<20), float64(after)/(1<<20))
	if after > before+(16<<20) {
		p.t.Errorf("%d bytes of heap are in use, and were %d before", after, before)
	}
}

func many(few, lots int) int {
	if os.Getenv("MAJORDOMUS_TEST_LONG") == "1" {
		return lots
	}
	return few
}

// TestSlowOnes has hundreds of connections that send slowly, or nothing, or read
// nothing, while somebody works. Each is cut, and who works notices nothing: it
// is compared, call by call, with a server that nobody bothers.
func TestSlowOnes(t *testing.T) {
	open := &counted{}
	short := func(c *Config) {
		c.Policy.ReadDeadline, c.writeStall = time.Second, time.Second
		if open.Listener == nil { // the first's
			open.Listener, c.Listener = c.Listener, open
		}
	}
	p, quiet := settle(t, short), settle(t, short)
	worker, other := p.link("0b1d0000-0000-4000-8000-000000000001"), quiet.link("0b1d0000-0000-4000-8000-000000000002")
	worker.shake()
	other.shake()
	host := strings.TrimPrefix(p.url, "http://")
	head := func(method, path, more string) string {
		return method + " " + path + " HTTP/1.1\r\nHost: " + host + "\r\n" + more
	}
	key := "Authorization: Bearer " + p.key + "\r\n"
	goroutines, before := runtime.NumGoroutine(), inUse()

	kinds := []struct {
		name  string
		first string
		drip  string // sent over and over, with pauses
		flood string // sent over and over, as fast as it is taken
	}{
		{name: "sends nothing"},
		{name: "sends a header slowly", first: head("GET", "/", "X-A: "), drip: "a"},
		{name: "sends headers without end", first: head("GET", "/", ""), drip: "X-A: a\r\n"},
		{name: "sends a body slowly", first: head("POST", "/mcp", "Content-Length: 100000\r\n\r\n"), drip: " "},
		{name: "sends a body slowly, with the key", first: head("POST", "/mcp", key+"Content-Type: application/json\r\nContent-Length: 100000\r\n\r\n"), drip: " "},
		{name: "sends chunks slowly, with the key", first: head("POST", "/api/v1/stop", key+"Transfer-Encoding: chunked\r\n\r\n"), drip: "1\r\n \r\n"},
		{name: "asks for a page and reads nothing", flood: head("GET", "/cockpit/app.js", "\r\n")},
		{name: "is refused and reads nothing", flood: head("POST", "/mcp", "Content-Length: 0\r\n\r\n")},
		{name: "asks with the key and reads nothing", flood: head("GET", "/metrics", key+"\r\n")},
		{name: "asks for tools and reads nothing", flood: head("POST", "/mcp", key+"Content-Type: application/json\r\nMcp-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/list\r\nContent-Length: "+
			fmt.Sprint(len(modernList))+"\r\n\r\n") + modernList},
	}
	held := open.now()
	end := make(chan struct{})
	var wg, dialled sync.WaitGroup
	const crowd = 500
	for i := range crowd {
		k := kinds[i%len(kinds)]
		if i >= len(kinds) {
			// It takes thousands of small answers to fill what lies between.
			k = kinds[i%7]
		}
		dialled.Add(1)
		wg.Go(func() {
			conn, err := net.Dial("tcp", host)
			dialled.Done()
			if err != nil {
				t.Error(err)
				return
			}
			conn.(*net.TCPConn).SetReadBuffer(64 << 10) // so that what is not read is soon too much
			// Not one of them ends by itself.
			wg.Go(func() {
				<-end
				conn.Close()
			})
			_, err = io.WriteString(conn, k.first)
			for sent := k.drip + strings.Repeat(k.flood, 50); err == nil && sent != ""; {
				if _, err = io.WriteString(conn, sent); k.drip != "" {
					time.Sleep(30 * time.Millisecond)
				}
			}
		})
	}
	dialled.Wait()
	cut, kept := time.Duration(0), 0
	gone := make(chan struct{})
	begun := time.Now()
	wg.Go(func() {
		defer close(gone)
		defer close(end)
		for open.now() > held && time.Since(begun) < 2*patience {
			time.Sleep(10 * time.Millisecond)
		}
		cut, kept = time.Since(begun), open.now()-held
	})

	// A pair is one call here and one there, in turns.
	var here, there []time.Duration
	timed := func(l *line, id string) time.Duration {
		begun := time.Now()
		l.say(call(id, "majordomus_server", "{}"))
		l.hear(`"id":`+id+`,`, "structuredContent")
		return time.Since(begun)
	}
	during := 0
	for i := 0; ; i++ {
		id := fmt.Sprint(1000 + i)
		if i%2 == 0 {
			here, there = append(here, timed(worker, id)), append(there, timed(other, id))
		} else {
			there, here = append(there, timed(other, id)), append(here, timed(worker, id))
		}
		select {
		case <-gone:
		default:
			during++
			continue
		}
		if i >= 200 {
			break
		}
	}
	median := func(d []time.Duration) time.Duration {
		d = slices.Clone(d[:max(during, 1)])
		slices.Sort(d)
		return d[len(d)/2]
	}
	wg.Wait()
	if kept > 0 {
		t.Errorf("%d of them are kept", kept)
	}
	if most := open.peak(); most < held+crowd/2 {
		t.Errorf("%d connections were open at once: too few to show anything", most-held)
	}
	t.Logf("%d connections, the last cut after %v; %d pairs of calls meanwhile: median %v here, %v there", crowd, cut, during, median(here), median(there))
	if median(here) > 4*median(there)+5*time.Millisecond {
		t.Error("who works is slower for it")
	}
	p.unharmed()
	p.bounded(goroutines, before)
}

// counted is a listener that knows how many connections are open.
type counted struct {
	net.Listener
	mu      sync.Mutex
	n, most int
}

func (l *counted) now() int { return l.add(0) }

func (l *counted) peak() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.most
}

func (l *counted) add(n int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n += n
	l.most = max(l.most, l.n)
	return l.n
}

func (l *counted) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.add(1)
	return &countedConn{Conn: conn, l: l}, nil
}

type countedConn struct {
	net.Conn
	l    *counted
	once sync.Once
}

func (c *countedConn) Close() error {
	c.once.Do(func() { c.l.add(-1) })
	return c.Conn.Close()
}

const modernList = `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` + modern + `}}`

// A page, or anybody else, may read slowly if it goes on reading.
func TestReadsSlowlyAndGoesOn(t *testing.T) {
	p := settle(t, func(c *Config) { c.writeStall = 400 * time.Millisecond })
	conn, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	const asked = 400 // some 13 MB, more than buffers take
	one := "GET /cockpit/app.js HTTP/1.1\r\nHost: " + strings.TrimPrefix(p.url, "http://") + "\r\n\r\n"
	go io.WriteString(conn, strings.Repeat(one, asked)) // ends with the connection
	r := bufio.NewReader(conn)
	begun := time.Now()
	for i := range asked {
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatalf("answer %d, after %v: %v", i, time.Since(begun), err)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			t.Fatalf("answer %d, after %v: %v", i, time.Since(begun), err)
		}
		if i%40 == 0 {
			time.Sleep(100 * time.Millisecond)
		}
	}
}

// TestFloodOfSessions has more clients than there may be come at once. Those past
// the bound are told so, those who are in go on, and when some leave others
// come in.
func TestFloodOfSessions(t *testing.T) {
	bound := many(100, 4000)
	p := settle(t, func(c *Config) { c.maxSessions = many(bound, 0) })
	worker := p.link("0b1d0000-0000-4000-8000-000000000001")
	worker.shake()
	goroutines, before := runtime.NumGoroutine(), inUse()
	var mu sync.Mutex
	var in []string
	statuses := map[string]int{}
	var wg sync.WaitGroup
	enter := func(n int) {
		for range n {
			r, err := p.try("POST", "/mcp", initialize, "Accept", "application/json, text/event-stream")
			mu.Lock()
			if err != nil {
				t.Error(err)
			}
			statuses[fmt.Sprint(r.status, " ", r.code())]++
			if r.status == 200 {
				in = append(in, r.header.Get("Mcp-Session-Id"))
			}
			mu.Unlock()
		}
	}
	for range 20 {
		wg.Go(func() { enter(bound / 10) })
	}
	wg.Wait()
	t.Log(statuses)
	if len(in) != bound-1 || statuses["200 "]+statuses["429 too_many_sessions"] != bound/10*20 {
		t.Errorf("%d came in of %d, beside one: %v", len(in), bound, statuses)
	}
	worker.say(call("1", "majordomus_server", "{}"))
	worker.hear(`"id":1,`, "structuredContent")
	// Nor does it help to come as anybody else.
	if r := p.ask("POST", "/mcp", modernList, "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/list"); r.status != 429 {
		t.Errorf("without a session: %d %s", r.status, r.body)
	}
	if r := p.ask("GET", "/mcp", "", "Connection", "Upgrade", "Upgrade", "majordomus-frames/1"); r.status != 429 {
		t.Errorf("a link: %d %s", r.status, r.body)
	}
	for _, id := range in[:10] {
		if r := p.ask("DELETE", "/mcp", "", "Mcp-Session-Id", id); r.status != 200 {
			t.Errorf("leaving: %d %s", r.status, r.body)
		}
	}
	gone := in[:10]
	in = slices.Clone(in[10:])
	enter(10)
	if len(in) != bound-1 {
		t.Errorf("when %d had left, %d were in", len(gone), len(in))
	}
	for _, id := range in {
		if r := p.ask("DELETE", "/mcp", "", "Mcp-Session-Id", id); r.status != 200 {
			t.Fatalf("leaving: %d %s", r.status, r.body)
		}
	}
	p.unharmed()
	p.bounded(goroutines, before)
}

// zeros is as much white space as is asked for, and counts what was taken.
type zeros struct {
	left  int64
	taken atomic.Int64
}

func (z *zeros) Read(b []byte) (int, error) {
	if z.left <= 0 {
		return 0, io.EOF
	}
	n := min(int64(len(b)), z.left)
	for i := range b[:n] {
		b[i] = ' '
	}
	z.left -= n
	z.taken.Add(n)
	return int(n), nil
}

// TestFloodOfBytes sends bodies of 100 MiB to every path, with and without the
// key, with their length and without. They are refused with next to nothing
// read, or at the bound.
func TestFloodOfBytes(t *testing.T) {
	const huge = 100 << 20
	bound := int64(many(1<<20, 64<<20))
	p := settle(t, func(c *Config) { c.Policy.MaxMessageBytes = bound })
	worker := p.link("0b1d0000-0000-4000-8000-000000000001")
	worker.shake()
	goroutines, before := runtime.NumGoroutine(), inUse()
	session := p.session()
	for _, path := range everyPath(t) {
		for _, key := range []string{"", p.key} {
			for _, sized := range []bool{true, false} {
				z := &zeros{left: huge}
				req, err := http.NewRequest("POST", p.url+path, z)
				if err != nil {
					t.Fatal(err)
				}
				if sized {
					req.ContentLength = huge
				}
				req.Header.Set("Content-Type", "application/json")
				req.Header.Set("Mcp-Session-Id", session)
				if key != "" {
					req.Header.Set("Authorization", "Bearer "+key)
				}
				status := 0
				if resp, err := p.client.Do(req); err == nil { // else it hung up while we were sending
					status = resp.StatusCode
					resp.Body.Close()
				}
				if status != 0 && (status < 400 || status >= 500) {
					t.Errorf("POST %s, key %v, sized %v: %d", path, key != "", sized, status)
				}
				// What buffers take on the way is not read.
				most := int64(12 << 20)
				if path == pathMCP && key != "" {
					most += bound
				}
				if taken := z.taken.Load(); taken > most {
					t.Errorf("POST %s, key %v, sized %v: %d bytes were taken", path, key != "", sized, taken)
				}
				worker.say(call("1", "majordomus_server", "{}"))
				worker.hear(`"id":1,`, "structuredContent")
			}
		}
	}
	// Many at once, of whom none has the key.
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	sys := int64(m.HeapSys)
	var wg sync.WaitGroup
	for range many(50, 500) {
		wg.Go(func() {
			req, err := http.NewRequest("POST", p.url+"/mcp", &zeros{left: huge})
			if err != nil {
				t.Error(err)
				return
			}
			if resp, err := p.client.Do(req); err == nil {
				if resp.StatusCode != http.StatusUnauthorized {
					t.Errorf("without the key: %d", resp.StatusCode)
				}
				resp.Body.Close()
			}
		})
	}
	wg.Wait()
	runtime.ReadMemStats(&m)
	t.Logf("the heap grew by %.1f MiB for them", float64(int64(m.HeapSys)-sys)/(1<<20))
	if int64(m.HeapSys) > sys+(96<<20) {
		t.Errorf("the heap grew from %d to %d bytes", sys, m.HeapSys)
	}
	p.unharmed()
	p.bounded(goroutines, before)
}

// TestFloodOfNesting sends JSON that is deep, or the same over and over, on every
// front: it is answered, as an error or as what it says, and the next is too.
func TestFloodOfNesting(t *testing.T) {
	p := settle(t, nil)
	worker := p.link("0b1d0000-0000-4000-8000-000000000001")
	worker.shake()
	session := p.session()
	goroutines, before := runtime.NumGoroutine(), inUse()
	const deep = 100_000
	size := many(1<<20, 8<<20)
	nested := func(open, inner, shut string, n int) string {
		return strings.Repeat(open, n) + inner + strings.Repeat(shut, n)
	}
	args := func(s string) string { return call("5", "majordomus_announce", s) }
	texts := map[string]string{
		"arrays":                   nested("[", "", "]", deep),
		"arrays without an end":    strings.Repeat("[", deep),
		"objects":                  nested(`{"a":`, "1", "}", deep),
		"objects without an end":   strings.Repeat(`{"a":`, deep),
		"in an id":                 `{"jsonrpc":"2.0","id":` + nested("[", "", "]", deep) + `,"method":"ping"}`,
		"in parameters":            `{"jsonrpc":"2.0","id":5,"method":"ping","params":` + nested(`{"a":`, "1", "}", deep) + `}`,
		"in arguments":             args(nested(`{"a":`, "1", "}", deep)),
		"in arguments, as allowed": args(nested(`{"a":`, "1", "}", 9_000)),
		"in a list of arguments":   args(`{"intent":"x","scope":` + nested("[", "", "]", 9_000) + `}`),
		"in _meta":                 `{"jsonrpc":"2.0","id":5,"method":"tools/list","params":{"_meta":` + nested(`{"a":`, "1", "}", 9_000) + `}}`,
		"one member over and over": args("{" + strings.Repeat(`"a":1,`, size/6) + `"a":1}`),
		"one path over and over":   args(`{"intent":"x","scope":["a"` + strings.Repeat(`,"a"`, size/4) + `]}`),
		"one letter over and over": args(`{"intent":"` + strings.Repeat("a", size) + `","scope":["a"]}`),
		"escapes over and over":    args(`{"intent":"` + strings.Repeat(`\u0000`, size/6) + `","scope":["a"]}`),
		"digits over and over":     `{"jsonrpc":"2.0","id":` + strings.Repeat("1", size) + `,"method":"ping"}`,
		"an exponent":              `{"jsonrpc":"2.0","id":1e999999999,"method":"ping"}`,
		"members over and over":    `{` + strings.Repeat(`"id":5,`, size/7) + `"method":"ping"}`,
	}
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	io.Copy(z, &zeros{left: int64(many(64<<20, 1<<30))})
	z.Close()
	for name, text := range texts {
		t.Run(name, func(t *testing.T) {
			for path, header := range map[string][]string{
				"/mcp":                      {"Mcp-Session-Id", session},
				"/mcp?stateless":            {"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "ping"},
				"/mcp?new":                  nil,
				"/api/v1/code":              nil,
				"/api/v1/announce":          nil,
				"/api/v1/page":              {"Authorization", ""},
				"/api/v1/upstreams/restart": nil,
			} {
				r := p.ask("POST", path, text, header...)
				if r.status >= 500 || r.status == 200 && path != "/api/v1/code" && !strings.HasPrefix(path, "/mcp") {
					t.Errorf("%s: %d %.200s", path, r.status, r.body)
				}
			}
			// On a link and on a stream of its own, with something behind it
			// that is answered as ever.
			l := p.link("0b1d0000-0000-4000-8000-0000000000aa")
			l.shake()
			own, far := net.Pipe()
			var served sync.WaitGroup
			served.Go(func() { p.server.ServeStream(t.Context(), far, "", "") }) // ignore error: it is cut
			s := newLine(t, own, own)
			s.shake()
			for _, l := range []*line{l, s} {
				l.say(text)
				l.say(call("77", "majordomus_server", "{}"))
				l.hear(`"id":77,`, "structuredContent")
				l.conn.Close()
			}
			served.Wait()
			worker.say(call("1", "majordomus_server", "{}"))
			worker.hear(`"id":1,`, "structuredContent")
		})
	}
	if r := p.ask("POST", "/mcp", zipped.String(), "Content-Encoding", "gzip", "Mcp-Session-Id", session); r.status != 400 {
		t.Errorf("zipped: %d %s", r.status, r.body)
	}
	if r := p.ask("POST", "/api/v1/code", zipped.String(), "Content-Encoding", "gzip"); r.status != 400 && r.status != 413 {
		t.Errorf("zipped: %d %s", r.status, r.body)
	}
	if claims := p.ask("GET", "/api/v1/peers", "").body; len(claims) > 1<<20 {
		t.Errorf("the board has %d bytes", len(claims))
	}
	p.unharmed()
	p.bounded(goroutines, before)
}
