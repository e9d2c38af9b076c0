//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	mcpserver "github.com/mark3labs/mcp-go/server"
	"golang.org/x/sys/unix"

	"majordomus/bridge"
	"majordomus/bridge/frame"
	"majordomus/server/session"
)

// These tests prove with processes and sockets that the bridge loses no request
// and has none run twice. The server is this test binary, started anew with
// lossServer set: the sessions and links are the product's, the tools are for
// the test. Their effects are lines in a file, which outlive whoever wrote them.
// A small election stands for the real one: the next server is started when the
// one there was is known to be gone.

// lossGrace is how long a silent server is waited for.
const lossGrace = 300 * time.Millisecond

const lossServer = "MAJORDOMUS_TEST_LOSS_SERVER"

// lossLong asks for the full number of rounds.
func lossLong(long, short int) int {
	if os.Getenv("MAJORDOMUS_TEST_LONG") == "1" {
		return long
	}
	return short
}

// init runs before the tests, and instead of them in a server.
func init() {
	effects := os.Getenv(lossServer)
	if effects == "" {
		return
	}
	if err := lossServe(effects); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// lossServe serves links until its input ends, which it does with the test. On
// its input it takes orders, on its output it says what happens, each in one
// line.
func lossServe(effects string) error {
	file, err := os.OpenFile(effects, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	tools := mcpserver.NewMCPServer("loss", "1", mcpserver.WithToolCapabilities(true))
	pause := func(r mcp.CallToolRequest, name string) {
		time.Sleep(time.Duration(r.GetFloat(name, 0) * float64(time.Millisecond)))
	}
	// Neither read-only nor idempotent, and deaf to cancellation: what runs is
	// not called back.
	tools.AddTool(mcp.NewTool("write"), func(_ context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		line := r.GetString("line", "")
		tell := r.GetBool("tell", false)
		if tell {
			fmt.Println("begun", line)
		}
		pause(r, "before")
		if _, err := file.WriteString(line + "\n"); err != nil {
			return nil, err
		}
		if tell {
			fmt.Println("done", line)
		}
		pause(r, "after")
		return mcp.NewToolResultText(line), nil
	})
	for _, name := range []string{"read", "slow"} {
		tools.AddTool(mcp.NewTool(name, mcp.WithReadOnlyHintAnnotation(true)), func(_ context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			pause(r, "before")
			return mcp.NewToolResultText(r.GetString("line", "") + strings.Repeat("x", r.GetInt("fill", 0))), nil
		})
	}
	core := session.New(session.Config{
		MCP: tools, Generation: strconv.Itoa(os.Getpid()),
		Registry: func() string { return "0123" },
		AtOnce:   func(tool string) bool { return tool == "read" },
	})
	conns := &lossConns{Listener: l}
	go (&http.Server{Handler: core, ConnContext: core.ConnContext, ConnState: core.ConnState}).Serve(conns) // ends with the process
	fmt.Println("url http://" + l.Addr().String())
	for orders := bufio.NewScanner(os.Stdin); orders.Scan(); {
		switch orders.Text() {
		case "reset":
			conns.each(func(c *net.TCPConn) {
				c.SetLinger(0) // ignore error: then it is an orderly end
				c.Close()
			})
		case "half-close":
			conns.each(func(c *net.TCPConn) { c.CloseWrite() })
		case "deafen":
			conns.each(func(c *net.TCPConn) { c.CloseRead() })
		case "unsent":
			n := 0
			conns.each(func(c *net.TCPConn) { n = max(n, lossUnsent(c)) })
			fmt.Println("unsent", n)
		case "stats":
			peers, busy := core.Stats()
			fmt.Println("stats", peers, busy)
		}
	}
	return nil
}

// lossConns is a listener that knows its connections.
type lossConns struct {
	net.Listener
	mu    sync.Mutex
	conns []*net.TCPConn
}

func (l *lossConns) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if tcp, ok := c.(*net.TCPConn); ok {
		l.mu.Lock()
		l.conns = append(l.conns, tcp)
		l.mu.Unlock()
	}
	return c, err
}

func (l *lossConns) each(f func(*net.TCPConn)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		f(c)
	}
}

// lossUnsent is how much of what was written to c the other side's kernel does
// not have; -1 where the kernel does not say.
func lossUnsent(c *net.TCPConn) int {
	raw, err := c.SyscallConn()
	if err != nil {
		return -1
	}
	n := -1
	raw.Control(func(fd uintptr) { // ignore error: a closed one has nothing unsent
		if v, err := unix.IoctlGetInt(int(fd), unix.TIOCOUTQ); err == nil {
			n = v
		}
	})
	return n
}

// A lossProcess is one server, seen from the test.
type lossProcess struct {
	t    *testing.T
	cmd  *exec.Cmd
	in   io.WriteCloser
	url  string
	gone chan struct{} // closed when the process was waited for

	mu     sync.Mutex
	said   []string
	more   chan struct{} // closed and replaced at each line
	asleep bool
	doomed bool
}

func lossStart(t *testing.T, effects string) (*lossProcess, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &lossProcess{t: t, cmd: exec.Command(program), gone: make(chan struct{}), more: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), lossServer+"="+effects)
	p.cmd.Stderr = os.Stderr
	p.cmd.WaitDelay = 10 * time.Second
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { // ends with the process, which the test ends
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.mu.Lock()
			p.said = append(p.said, lines.Text())
			close(p.more)
			p.more = make(chan struct{})
			p.mu.Unlock()
		}
		p.cmd.Wait() // ignore error: killed
		close(p.gone)
	}()
	p.url, err = p.next("url ")
	return p, err
}

// next returns what follows the prefix on the next line that has it, and takes
// that line away.
func (p *lossProcess) next(prefix string) (string, error) {
	late := time.After(20 * time.Second)
	gone := p.gone
	for {
		p.mu.Lock()
		for i, line := range p.said {
			if rest, ok := strings.CutPrefix(line, prefix); ok {
				p.said = append(p.said[:i:i], p.said[i+1:]...)
				p.mu.Unlock()
				return rest, nil
			}
		}
		more := p.more
		p.mu.Unlock()
		if gone == nil {
			return "", fmt.Errorf("the server ended without a word of %q", prefix)
		}
		select {
		case <-more:
		case <-gone:
			gone = nil // all its words are there now
		case <-late:
			return "", fmt.Errorf("the server never said %q", prefix)
		}
	}
}

func (p *lossProcess) must(prefix string) string {
	p.t.Helper()
	rest, err := p.next(prefix)
	if err != nil {
		p.t.Fatal(err)
	}
	return rest
}

func (p *lossProcess) order(word string) {
	p.t.Helper()
	if _, err := io.WriteString(p.in, word+"\n"); err != nil {
		p.t.Fatal(err)
	}
}

// unsent asks how much lies in the server's kernel.
func (p *lossProcess) unsent() int {
	p.t.Helper()
	p.order("unsent")
	n, err := strconv.Atoi(p.must("unsent "))
	if err != nil {
		p.t.Fatal(err)
	}
	return n
}

// atRest waits until the server has so many peers and runs nothing.
func (p *lossProcess) atRest(peers int) {
	p.t.Helper()
	want := fmt.Sprint(peers, " ", 0)
	accPoll(p.t, 20*time.Second, "the server must be at rest", func() error {
		p.order("stats")
		if got := p.must("stats "); got != want {
			return fmt.Errorf("peers and calls are %s, not %s", got, want)
		}
		return nil
	})
}

// doom says that p is to be joined no more.
func (p *lossProcess) doom() {
	p.mu.Lock()
	p.doomed = true
	p.mu.Unlock()
}

func (p *lossProcess) kill() {
	p.doom()
	p.cmd.Process.Kill() // ignore error: it may have ended
	<-p.gone
	p.in.Close()
}

// sleep stops the process, and returns when it does nothing any more.
func (p *lossProcess) sleep() {
	p.t.Helper()
	p.mu.Lock()
	p.asleep = true
	p.mu.Unlock()
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		p.t.Fatal(err)
	}
	accPoll(p.t, 10*time.Second, "the process must stop", func() error {
		out, err := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(p.cmd.Process.Pid)).Output()
		if err != nil || !strings.HasPrefix(strings.TrimSpace(string(out)), "T") {
			return fmt.Errorf("its state is %q, %v", out, err)
		}
		return nil
	})
}

func (p *lossProcess) wake() {
	p.t.Helper()
	p.mu.Lock()
	p.asleep = false
	p.mu.Unlock()
	if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		p.t.Fatal(err)
	}
}

// A lossHouse is a checkout in miniature: one server after the other.
type lossHouse struct {
	t       *testing.T
	effects string

	mu   sync.Mutex
	live *lossProcess
	all  []*lossProcess
}

func lossBuild(t *testing.T) *lossHouse {
	h := &lossHouse{t: t, effects: filepath.Join(t.TempDir(), "effects")}
	t.Cleanup(func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, p := range h.all {
			p.kill()
		}
	})
	return h
}

// find is bridge.Config.Find.
func (h *lossHouse) find(_ context.Context, why error) (bridge.Endpoint, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p := h.live; p != nil {
		p.mu.Lock()
		over := p.doomed || p.asleep && why != nil
		p.mu.Unlock()
		if !over {
			return bridge.Endpoint{URL: p.url}, nil
		}
	}
	p, err := lossStart(h.t, h.effects)
	if err != nil {
		return bridge.Endpoint{}, err
	}
	h.live, h.all = p, append(h.all, p)
	return bridge.Endpoint{URL: p.url}, nil
}

// server is the one that serves now.
func (h *lossHouse) server() *lossProcess {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.live
}

// ran counts the effects of each call.
func (h *lossHouse) ran() map[string]int {
	h.t.Helper()
	b, err := os.ReadFile(h.effects)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		h.t.Fatal(err)
	}
	ran := map[string]int{}
	for line := range strings.Lines(string(b)) {
		ran[strings.TrimSuffix(line, "\n")]++
	}
	return ran
}

// A lossEditor is a client with a bridge of its own.
type lossEditor struct {
	t    *testing.T
	name string
	in   *io.PipeWriter
	ran  chan error // Run's

	mu      sync.Mutex
	asked   int
	waiting map[string]chan lossAnswer
	deaf    chan struct{} // closed when it listens again
}

type lossAnswer struct {
	Result struct {
		Content []struct{ Text string }
		IsError bool
	}
	Error *struct {
		Message string
		Data    struct{ Code string }
	}
}

// outcome is "ok", or why there is no result.
func (a lossAnswer) outcome() string {
	switch {
	case a.Error != nil && a.Error.Data.Code != "":
		return a.Error.Data.Code
	case a.Error != nil:
		return a.Error.Message
	case a.Result.IsError:
		return "the tool failed"
	}
	return "ok"
}

// editor joins the house's server, does the handshake and lists the tools, so
// that the bridge knows which of them may run twice.
func (h *lossHouse) editor(name string, find func(context.Context, error) (bridge.Endpoint, error)) *lossEditor {
	h.t.Helper()
	in, out := io.Pipe()
	e := &lossEditor{t: h.t, name: name, in: out, ran: make(chan error, 1), waiting: map[string]chan lossAnswer{}}
	ctx, cancel := context.WithCancel(context.Background())
	if find == nil {
		find = h.find
	}
	cfg := bridge.Config{
		In: in, Out: e, ID: newID(), Find: find,
		ProbeTimeout: lossGrace / 3, BusyGrace: lossGrace, JoinTimeout: 20 * time.Second,
	}
	go func() { e.ran <- bridge.Run(ctx, cfg) }() // waited for below
	h.t.Cleanup(func() {
		e.hear()
		out.Close()
		if h.t.Failed() {
			cancel()
		}
		late := time.AfterFunc(20*time.Second, cancel)
		if err := <-e.ran; err != nil && !h.t.Failed() {
			h.t.Errorf("the bridge of %s: %v", name, err)
		}
		late.Stop()
		cancel()
		in.Close()
		e.mu.Lock()
		defer e.mu.Unlock()
		for id := range e.waiting {
			h.t.Errorf("%s was never answered", id)
		}
	})
	e.must("initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"loss","version":"1"}}`)
	e.say(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	e.must("tools/list", `{}`)
	return e
}

// Write takes the bridge's lines for the client.
func (e *lossEditor) Write(p []byte) (int, error) {
	e.mu.Lock()
	deaf := e.deaf
	e.mu.Unlock()
	if deaf != nil {
		<-deaf
	}
	for line := range bytes.Lines(p) {
		m, err := frame.Parse(bytes.TrimSuffix(line, []byte("\n")))
		if err != nil {
			e.t.Errorf("%s got %q: %v", e.name, line, err)
			continue
		}
		if !m.IsResponse() {
			continue
		}
		id, _ := frame.Text(m.ID)
		e.mu.Lock()
		ch := e.waiting[id]
		delete(e.waiting, id)
		e.mu.Unlock()
		if ch == nil {
			e.t.Errorf("%s got an answer to nothing it asked, or a second one: %.200s", e.name, line)
			continue
		}
		var a lossAnswer
		if err := json.Unmarshal(line, &a); err != nil {
			e.t.Errorf("%s got %.200s: %v", e.name, line, err)
		}
		ch <- a
	}
	return len(p), nil
}

// stopReading makes e one that does not read until hear.
func (e *lossEditor) stopReading() {
	e.mu.Lock()
	e.deaf = make(chan struct{})
	e.mu.Unlock()
}

func (e *lossEditor) hear() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.deaf != nil {
		close(e.deaf)
		e.deaf = nil
	}
}

func (e *lossEditor) say(line string) {
	e.t.Helper()
	if _, err := io.WriteString(e.in, line+"\n"); err != nil {
		e.t.Errorf("%s: %v", e.name, err)
	}
}

func (e *lossEditor) ask(method, params string) <-chan lossAnswer {
	e.t.Helper()
	ch := make(chan lossAnswer, 1)
	e.mu.Lock()
	e.asked++
	id := fmt.Sprintf("%s-%d", e.name, e.asked)
	e.waiting[id] = ch
	e.mu.Unlock()
	e.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%q,"method":%q,"params":%s}`, id, method, params))
	return ch
}

// call calls a tool; more are further arguments, each as JSON.
func (e *lossEditor) call(tool, line string, more ...string) <-chan lossAnswer {
	e.t.Helper()
	arguments := strings.Join(append([]string{fmt.Sprintf(`"line":%q`, line)}, more...), ",")
	return e.ask("tools/call", fmt.Sprintf(`{"name":%q,"arguments":{%s}}`, tool, arguments))
}

func (e *lossEditor) wait(ch <-chan lossAnswer) lossAnswer {
	e.t.Helper()
	select {
	case a := <-ch:
		return a
	case <-time.After(20 * time.Second):
		e.t.Fatalf("a request of %s is not answered", e.name)
		return lossAnswer{}
	}
}

func (e *lossEditor) must(method, params string) {
	e.t.Helper()
	if a := e.wait(e.ask(method, params)); a.outcome() != "ok" {
		e.t.Fatalf("%s of %s: %s", method, e.name, a.outcome())
	}
}

// A lossRecord is every call of the tool "write" and how it was answered.
type lossRecord struct {
	mu       sync.Mutex
	outcomes map[string]string
	count    map[string]int
}

func (r *lossRecord) note(line, outcome string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.outcomes == nil {
		r.outcomes, r.count = map[string]string{}, map[string]int{}
	}
	r.outcomes[line] = outcome
	r.count[outcome]++
}

// check holds the answers against the effects. It is called when nothing runs
// any more.
func (r *lossRecord) check(t *testing.T, ran map[string]int) {
	t.Helper()
	for line, outcome := range r.outcomes {
		switch n := ran[line]; {
		case n > 1:
			t.Errorf("%s ran %d times (%s)", line, n, outcome)
		case outcome == "ok" && n != 1:
			t.Errorf("%s has a result and did not run", line)
		case outcome != "ok" && outcome != "outcome_unknown":
			t.Errorf("%s: %s", line, outcome)
		}
	}
	for line := range ran {
		if r.outcomes[line] == "" {
			t.Errorf("%s ran, and nobody asked for it", line)
		}
	}
}

// lossWait is an argument by which a write stands longer than any test.
const lossWait = "60000"

// TestLossAcceptedOutlives looks at the kernel alone: what a server has written
// before it was killed can be read afterwards, also when bytes lay unread in
// its own buffer, which makes the kernel reset the connection.
func TestLossAcceptedOutlives(t *testing.T) {
	t.Parallel()
	rounds := lossLong(300, 15)
	for _, unread := range []bool{false, true} {
		t.Run(fmt.Sprintf("unread=%v", unread), func(t *testing.T) {
			h := lossBuild(t)
			resets := 0
			for i := range rounds {
				p := h.fresh()
				conn, r := lossLink(t, p)
				fmt.Fprintf(conn, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"write","arguments":{"line":"%d","tell":true,"after":%s}}}`+"\n", i, lossWait)
				p.must("done ")
				if unread {
					p.sleep()
					fmt.Fprintln(conn, `{"jsonrpc":"2.0","id":2,"method":"ping"}`)
				}
				p.kill()
				left, err := io.ReadAll(r)
				conn.Close()
				if !bytes.Contains(left, []byte("!accepted 1\n")) {
					t.Fatalf("round %d: of a server that ran a call %q was left, %v", i, left, err)
				}
				if err != nil {
					resets++
				}
			}
			t.Logf("%d of %d could be read, %d before a reset", rounds, rounds, resets)
			if unread && resets == 0 {
				t.Error("no connection was reset, so that this tries too little")
			}
		})
	}
}

// fresh starts a server that no bridge joins.
func (h *lossHouse) fresh() *lossProcess {
	h.t.Helper()
	p, err := lossStart(h.t, h.effects)
	if err != nil {
		h.t.Fatal(err)
	}
	h.mu.Lock()
	h.all = append(h.all, p)
	h.mu.Unlock()
	return p
}

// lossLink opens a link as a bridge would.
func lossLink(t *testing.T, p *lossProcess) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	fmt.Fprintf(conn, "GET /mcp HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", session.Protocol)
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("no link: %+v, %v", resp, err)
	}
	return conn, r
}

// TestLossMoment kills the server at the moments that matter, one by one.
func TestLossMoment(t *testing.T) {
	t.Parallel()
	rounds := lossLong(300, 5)
	for name, moment := range map[string]struct {
		pause  string // where the first call stands
		word   string // the server's, after which it is killed
		unread bool
		runs   int
	}{
		"before it reads":                         {unread: true},
		"accepted, before the effect":             {pause: "before", word: "begun "},
		"accepted, after the effect":              {pause: "after", word: "done ", runs: 1},
		"accepted, before the effect, and unread": {pause: "before", word: "begun ", unread: true},
		"accepted, after the effect, and unread":  {pause: "after", word: "done ", unread: true, runs: 1},
	} {
		t.Run(name, func(t *testing.T) {
			h := lossBuild(t)
			e := h.editor("e", nil)
			for i := range rounds {
				e.must("ping", "{}") // it is on the next server
				p := h.server()
				taken, fresh := fmt.Sprint("taken-", i), fmt.Sprint("fresh-", i)
				var first, second <-chan lossAnswer
				if moment.pause != "" {
					first = e.call("write", taken, `"tell":true`, fmt.Sprintf(`%q:%s`, moment.pause, lossWait))
					p.must(moment.word)
				}
				if moment.unread {
					p.sleep()
					second = e.call("write", fresh)
					e.say(`{"jsonrpc":"2.0","method":"notifications/nothing"}`) // once it is read, the call is on its way
				}
				p.kill()
				if first != nil {
					if got := e.wait(first).outcome(); got != "outcome_unknown" {
						t.Errorf("round %d: what the dead server had taken is %s", i, got)
					}
				}
				if second != nil {
					if got := e.wait(second).outcome(); got != "ok" {
						t.Errorf("round %d: what the dead server had not read is %s", i, got)
					}
				}
				ran := h.ran()
				if first != nil && ran[taken] != moment.runs {
					t.Errorf("round %d: what the dead server had taken ran %d times, not %d", i, ran[taken], moment.runs)
				}
				if second != nil && ran[fresh] != 1 {
					t.Errorf("round %d: what the dead server had not read ran %d times", i, ran[fresh])
				}
				if t.Failed() {
					return
				}
			}
		})
	}
}

// TestLossBehind has the server die when its word that it took a call has not
// come to the bridge: it lies in a kernel, behind answers that are not read
// because the client reads none.
func TestLossBehind(t *testing.T) {
	t.Parallel()
	rounds := lossLong(30, 2)
	// fall makes the bridge one that reads nothing more.
	fall := func(e *lossEditor, fill int) []<-chan lossAnswer {
		e.stopReading()
		var fills []<-chan lossAnswer
		for range 3 { // one is being written, and the next ones are too much to be kept
			fills = append(fills, e.call("read", "", fmt.Sprintf(`"fill":%d`, fill)))
		}
		return fills
	}
	finish := func(h *lossHouse, e *lossEditor, record *lossRecord, line string, call <-chan lossAnswer, fills []<-chan lossAnswer) {
		e.hear()
		record.note(line, e.wait(call).outcome())
		for _, fill := range fills {
			if got := e.wait(fill).outcome(); got != "ok" {
				h.t.Errorf("a read: %s", got)
			}
		}
		record.check(h.t, h.ran())
		if h.t.Failed() {
			h.t.FailNow()
		}
	}
	t.Run("closed window", func(t *testing.T) {
		h := lossBuild(t)
		e := h.editor("e", nil)
		var record lossRecord
		for i := range rounds {
			e.must("ping", "{}")
			p := h.server()
			if p.unsent() < 0 {
				t.Skip("this kernel does not say what is unsent")
			}
			fills := fall(e, 700_000)
			for still := 0; still < 3; {
				// What is unsent for so long is so because there is no room.
				time.Sleep(30 * time.Millisecond)
				if p.unsent() > 0 {
					still++
					continue
				}
				still = 0
				fills = append(fills, e.call("read", "", `"fill":100000`))
			}
			line := fmt.Sprint("behind-", i)
			call := e.call("write", line, `"after":500`)
			h.mayRun(line)
			p.sleep()
			e.call("read", "") // unread, which makes the kernel reset
			p.kill()
			finish(h, e, &record, line, call, fills)
		}
	})
	t.Run("client that does not read", func(t *testing.T) {
		h := lossBuild(t)
		e := h.editor("e", nil)
		var record lossRecord
		for i := range rounds {
			e.must("ping", "{}")
			p := h.server()
			fills := fall(e, 700_000)
			line := fmt.Sprint("behind-", i)
			call := e.call("write", line, `"after":500`)
			h.mayRun(line)
			p.kill()
			// What the client asks meanwhile shows the bridge that the server
			// is gone, and the next one is found.
			accPoll(t, 20*time.Second, "the next server must be looked for", func() error {
				if h.server() == p {
					fills = append(fills, e.call("read", ""))
					return errors.New("it is not")
				}
				return nil
			})
			finish(h, e, &record, line, call, fills)
		}
	})
}

// mayRun gives a call the time to take effect, which it need not.
func (h *lossHouse) mayRun(line string) {
	h.t.Helper()
	// ignore error: it may be that it cannot
	_ = accUntil(300*time.Millisecond, func() error {
		if h.ran()[line] == 0 {
			return errors.New("not yet")
		}
		return nil
	})
}

// TestLossFaults has faults at random moments while calls come and go.
func TestLossFaults(t *testing.T) {
	t.Parallel()
	rounds := lossLong(300, 8)
	moment := func() { time.Sleep(rand.N(10 * time.Millisecond)) }
	broken := func(how string) func(*lossHouse, *lossProcess) func() {
		return func(_ *lossHouse, p *lossProcess) func() {
			moment()
			p.order(how)
			return nil
		}
	}
	// A fault returns what is to be done once all is answered.
	for name, fault := range map[string]func(*lossHouse, *lossProcess) func(){
		"killed": func(_ *lossHouse, p *lossProcess) func() {
			moment()
			p.kill()
			return nil
		},
		"killed with unread bytes": func(_ *lossHouse, p *lossProcess) func() {
			moment()
			p.sleep()
			moment()
			p.kill()
			return nil
		},
		"stopped, and woken when it is given up": func(_ *lossHouse, p *lossProcess) func() {
			moment()
			p.sleep()
			time.Sleep(lossGrace - 60*time.Millisecond + rand.N(120*time.Millisecond))
			p.wake()
			return nil
		},
		"stopped, and woken when all is answered": func(_ *lossHouse, p *lossProcess) func() {
			moment()
			p.sleep()
			return p.wake
		},
		"reset":       broken("reset"),
		"half-closed": broken("half-close"),
		"deaf":        broken("deafen"),
	} {
		t.Run(name, func(t *testing.T) {
			h := lossBuild(t)
			e := h.editor("e", nil)
			var record lossRecord
			for i := range rounds {
				e.must("ping", "{}") // it is on the next server
				p := h.server()
				type sent struct {
					line   string
					answer <-chan lossAnswer
				}
				var writes []sent
				var reads []<-chan lossAnswer
				over := make(chan struct{})
				var wg sync.WaitGroup
				wg.Go(func() {
					for k := range 30 {
						line := fmt.Sprint("round-", i, "-", k)
						where := []string{"before", "after"}[rand.N(2)]
						writes = append(writes, sent{line, e.call("write", line, fmt.Sprintf(`%q:%d`, where, rand.N(4)))})
						if rand.N(3) == 0 {
							reads = append(reads, e.call([]string{"read", "slow"}[rand.N(2)], ""))
						}
						select {
						case <-over:
							return
						case <-time.After(rand.N(3 * time.Millisecond)):
						}
					}
				})
				after := fault(h, p)
				close(over)
				wg.Wait()
				for _, w := range writes {
					record.note(w.line, e.wait(w.answer).outcome())
				}
				for _, r := range reads {
					if got := e.wait(r).outcome(); got != "ok" {
						t.Errorf("a read: %s", got)
					}
				}
				if after != nil {
					after()
				}
				e.must("ping", "{}")
				p.mu.Lock()
				doomed := p.doomed
				p.mu.Unlock()
				if !doomed {
					// What a server that was left still runs counts, too.
					if h.server() == p {
						p.atRest(1)
					} else {
						p.atRest(0)
						p.kill()
					}
				}
				record.check(t, h.ran())
				if t.Failed() {
					return
				}
			}
			t.Logf("%d rounds: %v", rounds, record.count)
		})
	}
}

// TestLossMany has twenty bridges on one checkout whose server is killed again
// and again.
func TestLossMany(t *testing.T) {
	t.Parallel()
	const editors = 20
	calls := lossLong(200, 40)
	h := lossBuild(t)
	var all []*lossEditor
	for i := range editors {
		all = append(all, h.editor(fmt.Sprint("editor", i), nil))
	}
	over := make(chan struct{})
	killed := 0
	var killer sync.WaitGroup
	killer.Go(func() {
		for {
			select {
			case <-over:
				return
			case <-time.After(300*time.Millisecond + rand.N(1700*time.Millisecond)):
				h.server().kill()
				killed++
			}
		}
	})
	var record lossRecord
	var work sync.WaitGroup
	for _, e := range all {
		slots := make(chan struct{}, 4)
		work.Go(func() {
			for k := range calls {
				time.Sleep(rand.N(200 * time.Millisecond))
				slots <- struct{}{}
				line := fmt.Sprint(e.name, "-call-", k)
				var ch <-chan lossAnswer
				tool := []string{"write", "write", "read", "slow", "ping", "tools/list"}[rand.N(6)]
				switch tool {
				case "ping", "tools/list":
					ch = e.ask(tool, "{}")
				case "read":
					ch = e.call(tool, line)
				default:
					ch = e.call(tool, line, fmt.Sprintf(`"before":%d`, rand.N(50)))
				}
				work.Go(func() {
					defer func() { <-slots }()
					var a lossAnswer
					select {
					case a = <-ch:
					case <-time.After(60 * time.Second):
						t.Errorf("%s: %s is not answered", line, tool)
						return
					}
					got := a.outcome()
					switch {
					case tool == "write":
						record.note(line, got)
					case got != "ok":
						t.Errorf("%s: %s: %s", line, tool, got)
					}
					if got == "ok" && tool != "ping" && tool != "tools/list" && (len(a.Result.Content) != 1 || a.Result.Content[0].Text != line) {
						t.Errorf("%s was answered %v", line, a.Result)
					}
				})
			}
		})
	}
	work.Wait()
	close(over)
	killer.Wait()
	for _, e := range all {
		e.must("ping", "{}")
	}
	h.server().atRest(editors)
	record.check(t, h.ran())
	t.Logf("%d bridges, %d calls each, %d servers killed: writes %v", editors, calls, killed, record.count)
	if killed < 2 {
		t.Error("this tries too little")
	}
}

// TestLossSuspended stops a bridge and its server together, as a machine that
// is put to sleep does, for longer than every limit. Nobody takes the other for
// dead afterwards, whoever wakes up first, and what was in flight is answered.
func TestLossSuspended(t *testing.T) {
	t.Parallel()
	const (
		limit = time.Second
		gap   = 300 * time.Millisecond // between the two
	)
	c := accFresh(t)
	c.policy("  probe_timeout_seconds: 0.1\n  busy_grace_seconds: 1\n  join_timeout_seconds: 1\n  bind_grace_seconds: 1\n" +
		"  read_deadline_seconds: 1\n  session_idle_seconds: 1\n  idle_seconds: 1\n")
	e := c.editor()
	e.mustOpen()
	served := e.mustServer()
	server, bridge := c.mustLease().PID, e.cmd.Process.Pid
	for name, order := range map[string][]int{"server first": {server, bridge}, "bridge first": {bridge, server}} {
		for _, busy := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, busy=%v", name, busy), func(t *testing.T) {
				var waits <-chan []byte
				if busy {
					var err error
					waits, err = e.ask("tools/call", map[string]any{"name": "majordomus_wait", "arguments": map[string]any{"seconds": 1, "until": "time"}})
					if err != nil {
						t.Fatal(err)
					}
					e.mustServer() // it is on its way
				}
				signal := func(pid int, s syscall.Signal) {
					if err := syscall.Kill(pid, s); err != nil {
						t.Fatal(err)
					}
				}
				signal(order[0], syscall.SIGSTOP)
				signal(order[1], syscall.SIGSTOP)
				time.Sleep(2*limit + 100*time.Millisecond)
				signal(order[0], syscall.SIGCONT)
				time.Sleep(gap)
				signal(order[1], syscall.SIGCONT)
				begun := time.Now()
				now, err := e.server()
				if took := time.Since(begun); err != nil || took > 5*time.Second {
					t.Errorf("the next call took %v: %v", took, err)
				}
				if now.Generation != served.Generation || !now.LeaseHolder {
					t.Errorf("served by %+v, not %+v", now, served)
				}
				if busy {
					if _, err := e.answer(waits, "what was in flight"); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
}
