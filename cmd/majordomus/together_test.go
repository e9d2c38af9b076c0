//go:build unix

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode"

	"majordomus/server"
	"majordomus/server/board"
)

// The tests of the board as a whole: several editors of both eras, as
// processes, in one checkout and in several.

// togetherTrees makes a repository with so many work trees, which git itself
// adds, and returns where they are.
func togetherTrees(t *testing.T, n int) (roots []string) {
	t.Helper()
	_, err := exec.LookPath("git")
	need(t, "git", err)
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	main := filepath.Join(dir, "main")
	git := func(args ...string) {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-C", main, "-c", "user.name=a", "-c", "user.email=a@example.org"}, args...)...)
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %q: %v: %s", args, err, out)
		}
	}
	if err := os.Mkdir(main, 0o755); err != nil {
		t.Fatal(err)
	}
	git("init", "-q", "-b", "main")
	git("commit", "-q", "--allow-empty", "-m", "first")
	roots = []string{main}
	for i := range n - 1 {
		name := fmt.Sprintf("tree%d", i+1)
		roots = append(roots, filepath.Join(dir, name))
		git("worktree", "add", "-q", "-b", name, roots[i+1])
	}
	return roots
}

// tree is another work tree as a checkout of its own, for the same account.
func (c *accCheckout) tree(root string) *accCheckout {
	tree := &accCheckout{t: c.t, root: root, home: c.home, program: c.program}
	c.t.Cleanup(tree.end)
	return tree
}

// TestTogether has clients that others wrote, in two work trees of one
// repository, see each other. The checks are in testdata/clients.
func TestTogether(t *testing.T) {
	t.Parallel()
	clients, err := filepath.Abs(filepath.Join("testdata", "clients"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = os.Stat(filepath.Join(clients, "node_modules"))
	need(t, "what `npm ci` installs in testdata/clients", err)
	node, err := findNode(t, clients)
	need(t, "node 20 or newer", err)
	for _, script := range []string{"board1.mjs", "board2.mjs"} {
		t.Run(script, func(t *testing.T) {
			roots := togetherTrees(t, 2)
			c := accFresh(t)
			for _, root := range roots {
				c.tree(root)
			}
			if made := makeChecks(t, append([]string{node, filepath.Join(clients, script), c.program}, roots...)); len(made) < 11 {
				t.Errorf("only %d checks were made: %q", len(made), made)
			}
		})
	}
}

// A mate is an editor of one of both eras.
type mate struct {
	*accEditor
	name   string
	modern bool
	id     string // on the board
	claims map[string][]string
}

// mate is an editor that has announced nothing yet.
func (c *accCheckout) mate(name string, modern bool) *mate {
	c.t.Helper()
	m := &mate{name: name, modern: modern, claims: map[string][]string{}}
	if modern {
		m.accEditor = c.editor()
	} else {
		m.accEditor = c.boardEditor(name)
	}
	return m
}

// params are those of a request of its era.
func (m *mate) params(p map[string]any) map[string]any {
	if m.modern {
		p["_meta"] = map[string]any{
			"io.modelcontextprotocol/protocolVersion":    "2026-07-28",
			"io.modelcontextprotocol/clientInfo":         map[string]string{"name": m.name, "version": "1"},
			"io.modelcontextprotocol/clientCapabilities": map[string]any{},
		}
	}
	return p
}

// begin calls a tool; structured reads what comes of it.
func (m *mate) begin(tool string, arguments map[string]any) <-chan []byte {
	m.c.t.Helper()
	ch, err := m.ask("tools/call", m.params(map[string]any{"name": tool, "arguments": arguments}))
	if err != nil {
		m.c.t.Fatal(err)
	}
	return ch
}

func (m *mate) structured(ch <-chan []byte, v any) {
	m.c.t.Helper()
	b, err := m.answer(ch, "a call of "+m.name)
	if err != nil {
		m.c.t.Fatal(err)
	}
	var result struct {
		StructuredContent json.RawMessage
		IsError           bool
	}
	if err := json.Unmarshal(b, &result); err != nil || result.IsError || result.StructuredContent == nil {
		m.c.t.Fatalf("%s was answered %s: %v", m.name, b, err)
	}
	if err := json.Unmarshal(result.StructuredContent, v); err != nil {
		m.c.t.Fatalf("%s was answered %s: %v", m.name, b, err)
	}
}

// says announces a claim and remembers it.
func (m *mate) says(claim string, scope ...string) board.Announced {
	m.c.t.Helper()
	if scope == nil {
		scope = []string{}
	}
	var got board.Announced
	m.structured(m.begin("majordomus_announce", map[string]any{"intent": m.name + " " + claim, "claim": claim, "scope": scope}), &got)
	if m.id == "" {
		m.id = got.Peer
	}
	if got.Peer != m.id {
		m.c.t.Fatalf("%s was %s, and is %s", m.name, m.id, got.Peer)
	}
	if m.claims[claim] = got.Scope; len(scope) == 0 {
		delete(m.claims, claim)
	}
	return got
}

// sees is this checkout's board, as it is asked for.
func (m *mate) sees() server.Peers {
	m.c.t.Helper()
	return m.saw(m.begin("majordomus_peers", map[string]any{"checkouts": "this"}))
}

func (m *mate) saw(ch <-chan []byte) server.Peers {
	m.c.t.Helper()
	var all server.Peers
	m.structured(ch, &all)
	return all
}

// is reports how the board has it otherwise than it is.
func (m *mate) is(all server.Peers) error {
	var own []board.View
	for _, v := range all.Peers {
		if v.ID == m.id || v.Client == m.name {
			own = append(own, v)
		}
	}
	if len(own) != 1 || own[0].ID != m.id || own[0].Client != m.name || !own[0].Attached {
		return fmt.Errorf("%s (%s) is there as %+v", m.name, m.id, own)
	}
	if n := len(own[0].Claims); n != len(m.claims) {
		return fmt.Errorf("%s has %d claims of %d: %+v", m.name, n, len(m.claims), own[0].Claims)
	}
	for _, c := range own[0].Claims {
		if scope, ok := m.claims[c.Name]; !ok || !slices.Equal(scope, c.Scope) || c.Intent != m.name+" "+c.Name {
			return fmt.Errorf("%s has the claim %+v; it said %q", m.name, c, m.claims)
		}
	}
	return nil
}

// TestClaimsOutliveServers kills servers under editors of both eras: what each
// has on the board is on the next server's before anything that it says then.
func TestClaimsOutliveServers(t *testing.T) {
	t.Parallel()
	c := accFresh(t)
	var mates []*mate
	for i := range 6 {
		m := c.mate(fmt.Sprintf("editor %d", i), i%2 == 1)
		for n := range 12 {
			m.says(fmt.Sprintf("claim %d", n), fmt.Sprintf("src/%d/%d", i, n), "shared")
		}
		m.says("withdrawn", "src/withdrawn")
		m.says("default", "docs", fmt.Sprintf("docs/%d", i), "README.md", "src/*.go")
		if got := m.says("withdrawn"); !slices.Equal(got.Released, []string{"src/withdrawn"}) {
			t.Errorf("withdrawn: %+v", got)
		}
		if got := m.says("default", fmt.Sprintf("docs/%d", i)); !slices.Equal(got.Released, []string{"docs", "README.md", "src/*.go"}) {
			t.Errorf("narrowed: %+v", got)
		}
		mates = append(mates, m)
	}
	for round := range 5 {
		if round == 2 { // one goes with its server
			gone := mates[0]
			mates = mates[1:]
			gone.cmd.Process.Kill()
		}
		before := c.mustLease()
		if err := syscall.Kill(before.PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		// The first that each says. Some says it before its bridge knows.
		var asked []<-chan []byte
		for _, m := range mates {
			asked = append(asked, m.begin("majordomus_peers", map[string]any{"checkouts": "this"}))
		}
		for i, m := range mates {
			if err := m.is(m.saw(asked[i])); err != nil {
				t.Errorf("round %d: %v", round, err)
			}
		}
		if c.mustLease().Token == before.Token {
			t.Fatal("the killed server still has the lease")
		}
		all := mates[len(mates)-1].sees()
		if len(all.Peers) != len(mates) {
			t.Errorf("round %d: %d peers are there of %d", round, len(all.Peers), len(mates))
		}
		for _, m := range mates {
			if err := m.is(all); err != nil {
				t.Errorf("round %d: all of them: %v", round, err)
			}
		}
	}
}

// TestAnotherHandshake has an editor begin anew on its streams, under another
// name: it is the same peer, and what it announced stands here and on the next
// server.
func TestAnotherHandshake(t *testing.T) {
	t.Parallel()
	c := accFresh(t)
	m, other := c.mate("before", false), c.mate("other", true)
	m.says("default", "src/auth")
	m.says("docs", "docs")
	other.says("default", "src")
	hello := map[string]any{"protocolVersion": "2025-11-25", "capabilities": map[string]any{}, "clientInfo": map[string]string{"name": "after", "version": "2"}}
	if _, err := m.request("initialize", hello); err != nil {
		t.Fatal(err)
	}
	if err := m.send(map[string]any{"jsonrpc": "2.0", "method": "notifications/initialized"}); err != nil {
		t.Fatal(err)
	}
	stands := func(when string) {
		t.Helper()
		all := m.sees()
		for _, v := range all.Peers {
			if v.ID == m.id && v.Client == "after" && v.Version == "2" && len(v.Claims) == 2 && len(all.Peers) == 2 && len(all.Overlaps) == 1 {
				return
			}
		}
		t.Errorf("%s: %+v", when, all)
	}
	stands("here")
	c.boardKill()
	other.sees()
	stands("on the next server")
}

// TestAloneIsTheSamePeer has an editor's checkout vanish with its server: served
// alone it is the peer that it was, with what it announced, and is so again when
// it is back.
func TestAloneIsTheSamePeer(t *testing.T) {
	t.Parallel() // it waits more than it works
	c := accFresh(t)
	c.policy("  join_timeout_seconds: 1\n  busy_grace_seconds: 0.5\n  probe_timeout_seconds: 0.2\n")
	m := c.mate("editor", false)
	m.says("default", "src/auth")
	server, away := c.mustLease().PID, c.root+".away"
	if err := os.Rename(c.root, away); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(server, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	m.says("docs", "docs")
	if s := m.mustServer(); s.Alone == "" {
		t.Fatalf("served by %+v", s)
	}
	if err := m.is(m.sees()); err != nil {
		t.Error(err)
	}
	if err := os.Rename(away, c.root); err != nil {
		t.Fatal(err)
	}
	accPoll(t, 20*time.Second, "it comes back", func() error {
		if s := m.mustServer(); s.Alone != "" {
			return errors.New(s.Alone)
		}
		return nil
	})
	m.says("docs", "docs/more")
	if err := m.is(m.sees()); err != nil {
		t.Error(err)
	}
}

// TestTwentyBack has twenty editors on one board after their server was killed,
// each once, and meeting the others as before.
func TestTwentyBack(t *testing.T) {
	t.Parallel()
	const n = 20
	c := accFresh(t)
	mates := make([]*mate, n)
	for i := range mates {
		mates[i] = c.mate(fmt.Sprintf("editor %d", i), i%2 == 1)
	}
	var wg sync.WaitGroup
	for i, m := range mates {
		wg.Go(func() {
			m.begun(t, "majordomus_announce", map[string]any{"intent": m.name + " default", "scope": []string{"shared", fmt.Sprint("own/", i)}})
			m.begun(t, "majordomus_announce", map[string]any{"intent": m.name + " more", "claim": "more", "scope": []string{fmt.Sprint("more/", i)}})
		})
	}
	wg.Wait()
	before := mates[0].sees()
	for i, m := range mates {
		for _, v := range before.Peers {
			if v.Client == m.name {
				m.id = v.ID
			}
		}
		m.claims = map[string][]string{"default": {"shared", fmt.Sprint("own/", i)}, "more": {fmt.Sprint("more/", i)}}
		if err := m.is(before); err != nil {
			t.Error(err)
		}
	}
	if want := n * (n - 1) / 2; len(before.Overlaps) != want {
		t.Errorf("%d overlaps of %d", len(before.Overlaps), want)
	}
	c.boardKill()
	served := map[string]int{}
	for _, m := range mates {
		if err := m.is(m.sees()); err != nil {
			t.Error(err)
		}
		s := m.mustServer()
		served[s.Generation]++
	}
	if len(served) != 1 {
		t.Errorf("they are served by %v", served)
	}
	after := mates[0].sees()
	if len(after.Peers) != n || len(after.Overlaps) != len(before.Overlaps) {
		t.Errorf("%d peers, %d overlaps; before %d, %d", len(after.Peers), len(after.Overlaps), len(before.Peers), len(before.Overlaps))
	}
	for _, m := range mates {
		if err := m.is(after); err != nil {
			t.Error(err)
		}
	}
}

// begun is begin and structured where the test must not end at once.
func (m *mate) begun(t *testing.T, tool string, arguments map[string]any) {
	ch, err := m.ask("tools/call", m.params(map[string]any{"name": tool, "arguments": arguments}))
	if err == nil {
		_, err = m.answer(ch, tool)
	}
	if err != nil {
		t.Errorf("%s: %v", m.name, err)
	}
}

// TestAnnouncedUnderAKill announces while the server dies: what was said is
// there once, whatever became of the call, and of two words the last.
func TestAnnouncedUnderAKill(t *testing.T) {
	t.Parallel()
	c := accFresh(t)
	mates := []*mate{c.mate("older", false), c.mate("modern", true)}
	for _, m := range mates {
		m.says("first", "src/first")
	}
	// One of them has seen the list of tools, which says what may run twice.
	if _, err := mates[0].request("tools/list", map[string]any{}); err != nil {
		t.Fatal(err)
	}
	for round := range lossLong(20, 6) {
		type said struct {
			m     *mate
			claim string
			ch    <-chan []byte
		}
		var all []said
		const each = 12
		pid := c.mustLease().PID
		for i := range each {
			if i == round%each {
				if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
			}
			for _, m := range mates {
				// Every third says another word on the claim before.
				claim, scope := fmt.Sprintf("claim %d", i-i%3), []string{fmt.Sprintf("round/%d/%d", round, i)}
				m.claims[claim] = scope
				all = append(all, said{m, claim, m.begin("majordomus_announce", map[string]any{"intent": m.name + " " + claim, "claim": claim, "scope": scope})})
			}
		}
		for _, s := range all {
			var got board.Announced
			if s.m.structured(s.ch, &got); got.Peer != s.m.id || got.Claim != s.claim {
				t.Errorf("round %d: %s announced %s and was answered %+v", round, s.m.name, s.claim, got)
			}
		}
		for _, m := range mates {
			if err := m.is(m.sees()); err != nil {
				t.Errorf("round %d: %v", round, err)
			}
		}
	}
}

// TestKilledEditorHasDeparted kills an editor's bridge: it has departed at
// once, with what it announced, and its word meets who comes there.
func TestKilledEditorHasDeparted(t *testing.T) {
	t.Parallel()
	for _, modern := range []bool{false, true} {
		t.Run(fmt.Sprintf("modern=%v", modern), func(t *testing.T) {
			c := accFresh(t)
			stays, gone := c.mate("stays", !modern), c.mate("gone", modern)
			gone.says("default", "src/auth")
			stays.says("default", "docs")
			if err := gone.cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			accPoll(t, 5*time.Second, "the killed editor has departed", func() error {
				for _, v := range stays.sees().Peers {
					if v.ID == gone.id && !v.Attached && v.DepartedAt != nil && len(v.Claims) == 1 && v.Claims[0].Scope[0] == "src/auth" {
						return nil
					}
				}
				return errors.New("it has not")
			})
			t.Logf("departed after %v", time.Since(began))
			all := stays.sees()
			if len(all.Overlaps) != 0 || len(all.Peers) != 2 {
				t.Errorf("%+v", all)
			}
			got := stays.says("default", "src")
			if len(got.Overlaps) != 1 || got.Overlaps[0].Attached || got.Overlaps[0].Peer != gone.id || got.Overlaps[0].Intent != "gone default" {
				t.Errorf("who meets the departed is told %+v", got)
			}
		})
	}
}

// TestListenerThatNeverReads opens the stream of events and reads nothing while
// many calls go on: nobody waits for it, what is kept for it is bounded, and
// when it reads at last it learns how many it missed.
func TestListenerThatNeverReads(t *testing.T) {
	t.Parallel()
	c := accFresh(t)
	e := c.boardEditor("claude-code")
	if _, err := e.request("tools/list", map[string]any{}); err != nil {
		t.Fatal(err)
	}
	d := c.mustLease()
	const batch = 500
	calls := func() time.Duration {
		t.Helper()
		began := time.Now()
		for range batch / 10 {
			var asked []<-chan []byte
			for range 10 {
				ch, err := e.ask("tools/call", map[string]any{"name": "majordomus_wait", "arguments": map[string]any{"seconds": 0}})
				if err != nil {
					t.Fatal(err)
				}
				asked = append(asked, ch)
			}
			for _, ch := range asked {
				if _, err := e.answer(ch, "a call"); err != nil {
					t.Fatal(err)
				}
			}
		}
		return time.Since(began)
	}
	for range 6 { // warm; the ring of events is full
		calls()
	}
	memory := func() float64 {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.PID))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			var kb float64
			if n, _ := fmt.Sscanf(line, "RssAnon: %f kB", &kb); n == 1 {
				return kb / 1024
			}
		}
		t.Fatal("no RssAnon")
		return 0
	}
	linux := runtime.GOOS == "linux"
	var before float64
	if linux {
		before = memory()
	}

	// Pairs: without a listener, and with several that do not read.
	var ratios []float64
	for range 12 {
		without := calls()
		var list []*togetherListener
		for range 4 {
			list = append(list, c.listens(""))
		}
		with := calls()
		ratios = append(ratios, float64(with)/float64(without))
		for _, l := range list {
			l.conn.Close()
		}
	}
	slices.Sort(ratios)
	t.Logf("calls with four deaf listeners take %.2f times as long as without (from %.2f to %.2f)", ratios[len(ratios)/2], ratios[0], ratios[len(ratios)-1])
	if m := ratios[len(ratios)/2]; m > 2 {
		t.Errorf("calls are slowed %.2f times by who does not read", m)
	}

	// One that does not read until what can be kept for it is full, and then
	// more than the ring holds.
	deaf := c.listens("")
	for range 8 {
		calls()
	}
	if linux {
		after := memory()
		t.Logf("the server has %.1f MiB, before it had %.1f", after, before)
		if after > before+16 {
			t.Errorf("the server grew from %.1f to %.1f MiB", before, after)
		}
	}
	deaf.conn.(*net.TCPConn).SetReadBuffer(1 << 20) // ignore error: then it takes longer
	var missed, last uint64
	gaps := 0
	for {
		kind, data, err := deaf.next()
		if errors.Is(err, io.EOF) {
			// It was silent for so long that it was cut off. It comes again as
			// pages in browsers do, and is told from there.
			deaf = c.listens(fmt.Sprint(last))
			missed = 0
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		switch kind {
		case "gap":
			var gap struct{ Missed uint64 }
			if err := json.Unmarshal(data, &gap); err != nil || gap.Missed == 0 {
				t.Fatalf("%s: %v", data, err)
			}
			missed += gap.Missed
			gaps++
			continue
		case "hello":
			var hello struct{ Newest uint64 }
			if err := json.Unmarshal(data, &hello); err != nil {
				t.Fatal(err)
			}
			if last == 0 {
				last = hello.Newest
			}
			continue
		}
		var event board.Event
		if err := json.Unmarshal(data, &event); err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		if event.Number != last+missed+1 {
			t.Fatalf("after %d came %d, and %d were missed", last, event.Number, missed)
		}
		last, missed = event.Number, 0
		if event.Kind == board.Claimed {
			break
		}
		if gaps > 0 && event.Kind == board.CallEnded && gaps < 1<<30 {
			gaps = 1 << 30 // what comes after the gap is told as it happens
			e.announce("the end", "src")
		}
	}
	if gaps == 0 {
		t.Error("it missed nothing: what is kept for it is not bounded")
	}
}

// togetherListener is one of the stream of events that reads when it is told to.
type togetherListener struct {
	conn net.Conn
	r    *bufio.Reader
}

func (c *accCheckout) listens(after string) *togetherListener {
	c.t.Helper()
	address := strings.TrimPrefix(*c.mustLease().URL, "http://")
	conn, err := net.Dial("tcp", address)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { conn.Close() })
	conn.(*net.TCPConn).SetReadBuffer(4096) // ignore error: then it takes longer to be full
	if _, err := fmt.Fprintf(conn, "GET /api/v1/events?after=%s HTTP/1.0\r\nHost: %s\r\nAuthorization: Bearer %s\r\n\r\n", after, address, c.key()); err != nil {
		c.t.Fatal(err)
	}
	l := &togetherListener{conn, bufio.NewReader(conn)}
	for { // the head is read, so that it listens
		line, err := l.r.ReadString('\n')
		if err != nil {
			c.t.Fatal(err)
		}
		if strings.TrimSpace(line) == "" {
			return l
		}
	}
}

func (l *togetherListener) next() (kind string, data []byte, err error) {
	l.conn.SetReadDeadline(time.Now().Add(30 * time.Second)) // ignore error: it is open
	for {
		line, err := l.r.ReadBytes('\n')
		if err != nil {
			return "", nil, fmt.Errorf("reading events: %w", err)
		}
		line = bytes.TrimRight(line, "\r\n")
		if rest, ok := bytes.CutPrefix(line, []byte("event: ")); ok {
			kind = string(rest)
		}
		if rest, ok := bytes.CutPrefix(line, []byte("data: ")); ok {
			data = rest
		}
		if len(line) == 0 && kind != "" {
			return kind, data, nil
		}
	}
}

// TestObservedPaths has an editor read and write through a hosted server, and
// others see where; a policy switches it off.
func TestObservedPaths(t *testing.T) {
	t.Parallel()
	node, _, upstreams := hubNode(t)
	for _, observed := range []bool{true, false} {
		t.Run(fmt.Sprintf("observe_paths=%v", observed), func(t *testing.T) {
			c := accFresh(t)
			c.policy(fmt.Sprintf("  observe_paths: %v\n", observed))
			c.write("src/auth/token.go", "package auth\n", 0o644)
			c.write("docs/a.md", "a\n", 0o644)
			c.hosts(map[string]hubServer{"files": {Command: node, Args: []string{
				filepath.Join(upstreams, "node_modules", "@modelcontextprotocol", "server-filesystem", "dist", "index.js"), c.root,
			}}})
			c.mustRun("trust", "--yes")
			worker, looker := c.mate("worker", false), c.mate("looker", true)
			looker.says("default", "src/auth")
			accPoll(t, 20*time.Second, "the hosted server is listed", func() error {
				if !slices.Contains(worker.tools(), "files__write_file") {
					return errors.New("it is not")
				}
				return nil
			})
			call := func(tool string, arguments map[string]any) error {
				_, err := worker.request("tools/call", map[string]any{"name": tool, "arguments": arguments})
				return err
			}
			for _, err := range []error{
				call("files__read_text_file", map[string]any{"path": filepath.Join(c.root, "docs/a.md")}),
				call("files__write_file", map[string]any{"path": filepath.Join(c.root, "src/auth/new.go"), "content": "package auth\n"}),
				call("files__read_multiple_files", map[string]any{"paths": []string{filepath.Join(c.root, "docs/a.md"), filepath.Join(c.root, "src/auth/token.go")}}),
				call("files__read_text_file", map[string]any{"path": filepath.Join(c.root, "none.md")}),                  // is not there
				call("files__read_text_file", map[string]any{"path": filepath.Join(filepath.Dir(c.root), "outside.md")}), // is not here
			} {
				if err != nil {
					t.Fatal(err)
				}
			}
			if _, err := os.Stat(filepath.Join(c.root, "src/auth/new.go")); err != nil {
				t.Fatal(err)
			}
			all := looker.sees()
			var touched []string
			for _, v := range all.Peers {
				for _, p := range v.Touched {
					touched = append(touched, fmt.Sprintf("%s %s %v", v.Client, p.Path, p.Wrote))
				}
			}
			slices.Sort(touched)
			var want []string
			kinds := []string{}
			if observed {
				want = []string{"worker docs/a.md false", "worker src/auth/new.go true", "worker src/auth/token.go false"}
				kinds = []string{board.KindTouched}
			}
			if !slices.Equal(touched, want) {
				t.Errorf("touched: %q, not %q", touched, want)
			}
			met := []string{}
			for _, o := range all.Overlaps {
				met = append(met, o.Kind)
			}
			if !slices.Equal(met, kinds) {
				t.Errorf("overlaps: %+v", all.Overlaps)
			}
			if out := c.mustRun("peers"); strings.Contains(out, "touched") != observed || strings.Contains(out, "looked at") != observed {
				t.Errorf("people are shown\n%s", out)
			}
			got := looker.says("default", "src/auth", "docs")
			met = nil
			for _, o := range got.Overlaps {
				met = append(met, o.Kind+" "+o.Client)
			}
			if observed != slices.Equal(met, []string{"touched worker"}) {
				t.Errorf("who announces is told %+v", got.Overlaps)
			}
		})
	}
}

// TestJSONIsPlain has JSON on a terminal command nothing, and mean the same.
func TestJSONIsPlain(t *testing.T) {
	t.Parallel()
	const sly = "a\u202eb\x1b[2J\u009b31m\u2066c\x7f\U000e0041é日本👩\u200d🚀<&>\u2028"
	want := map[string]string{sly: sly}
	for _, indent := range []string{"", "  "} {
		b, err := encodeJSON(want, indent)
		if err != nil {
			t.Fatal(err)
		}
		if i := bytes.IndexFunc(b, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); i >= 0 {
			t.Errorf("%q", b[i:])
		}
		if !bytes.Contains(b, []byte("é日本👩")) || !bytes.Contains(b, []byte("<&>")) {
			t.Errorf("letters are escaped: %s", b)
		}
		got := map[string]string{}
		if err := json.Unmarshal(b, &got); err != nil || got[sly] != sly {
			t.Errorf("%q: %v", got, err)
		}
	}
}

// TestLongNames has the name of one client take no room from the others.
func TestLongNames(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	view := func(id, client, front string) board.View {
		return board.View{Peer: board.Peer{ID: id, Client: client, Front: front}, Attached: true, Checkout: "work"}
	}
	long := strings.Repeat("\x1b[2Jé", 50)
	all := server.Peers{Complete: true, Peers: []board.View{view("p1111", long, "link"), view("p2222", long, "hand"), view("\x1b[2J", "zed", "link")}}
	all.Overlaps = []board.Overlap{{Kind: board.KindClaimed, Between: [2]board.Side{{Peer: "p1111", Client: long}, {Peer: "p2222", Client: long}}, Paths: [][2]string{{"a", "b"}}}}
	writePeers(&b, all, time.Now())
	for line := range strings.Lines(b.String()) {
		if n := len([]rune(line)); n > 200 || strings.Contains(line, "\x1b") {
			t.Errorf("%d letters: %q", n, line)
		}
	}
}

// TestPlainly has folders with any name make no mischief, in what is reported and
// in errors.
func TestPlainly(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"a\tb\n": "a\tb\n", "größe 日本\u3000👩\u200d🚀\n": "größe 日本\u3000👩\u200d🚀\n", `\x1b "`: `\x1b "`,
		"a\x1b[2J\r\u009b\u202e\x9b\x7f\n": `a\x1b[2J\r\u009b\u202e\x9b\x7f` + "\n",
	} {
		if got := plainly(text); got != want {
			t.Errorf("%q is written as %q, not %q", text, got, want)
		}
	}
	c := accFresh(t)
	root := filepath.Join(filepath.Dir(c.root), "wo\x1b[2J\u202erk")
	if err := os.Rename(c.root, root); err != nil {
		t.Skip(err) // not on every file system
	}
	c.root = root
	e := c.boardEditor("a\x1b[31m")
	e.announce("x", "src")
	for _, args := range [][]string{
		{"peers"}, {"peers", "--format", "json"}, {"executions"}, {"announce", "x", "/etc"}, {"announce", "x", "src"}, {"guard"}, {"guard", "--strict"},
		{"status"}, {"serve", "status"}, {"peers", "--root", "/none\x1b"}, {"serve", "stop", "--force"},
	} {
		out, log, _ := c.run(args...)
		if said := out + log; said == "" && args[0] != "guard" || strings.IndexFunc(said, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }) >= 0 {
			t.Errorf("%q says %q", args, said)
		}
	}
}
