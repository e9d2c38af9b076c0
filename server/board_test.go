package server

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"majordomus/bridge/frame"
	"majordomus/lease/checkout"
	"majordomus/server/board"
	"majordomus/server/hub/config"
)

// Bridges, by what their peers are called.
func bridgeOf(id string) string { return id + "0000-0000-4000-8000-000000000000" }

// peer is a client that has listed something, so that others see it.
func (p *place) peer(id string) *line {
	p.t.Helper()
	l := p.link(bridgeOf(id))
	l.shake()
	l.say(`{"jsonrpc":"2.0","id":"there","method":"tools/list"}`)
	l.hear(`"id":"there"`)
	return l
}

// announce returns what the tool answers, or the error.
func (l *line) announce(args string) (a announcement, fail string) {
	l.t.Helper()
	l.say(call(`"announce"`, "majordomus_announce", args))
	answer := l.hear(`"id":"announce"`)
	if e := frame.Get([]byte(answer), "error"); e != nil {
		text, _ := frame.Text(frame.Get(e, "message"))
		return a, text
	}
	got := result(l.t, answer, "structuredContent")
	conforms(l.t, schemaAnnounceOut, got)
	if err := json.Unmarshal([]byte(got), &a); err != nil {
		l.t.Fatal(err)
	}
	return a, ""
}

func (l *line) peers(args string) (p Peers) {
	l.t.Helper()
	l.say(call(`"peers"`, "majordomus_peers", args))
	got := result(l.t, l.hear(`"id":"peers"`), "structuredContent")
	conforms(l.t, schemaPeersOut, got)
	if err := json.Unmarshal([]byte(got), &p); err != nil {
		l.t.Fatal(err)
	}
	return p
}

// met says whom an announcement met, in words.
func (a announcement) met() string {
	var list []string
	for _, m := range a.Overlaps {
		list = append(list, fmt.Sprintf("%s %s %q %s %t", m.Kind, m.Peer, m.Intent, strings.Join(m.Paths, ","), m.Attached))
	}
	return strings.Join(list, "; ")
}

func TestAnnounce(t *testing.T) {
	p := settle(t, nil)
	one, two := p.peer("1111"), p.peer("2222")
	link := filepath.Join(t.TempDir(), "way")
	if err := os.Symlink(p.root, link); err != nil {
		t.Fatal(err)
	}
	a, fail := one.announce(`{"intent":"tidy up","scope":["./src/","docs/*.md",` + strconv.Quote("file://"+filepath.Join(link, "src")) + `,` + strconv.Quote(filepath.Join(link, "new", "file.go")) + `]}`)
	if fail != "" || a.Peer != "p1111" || a.Claim != "default" || !a.Complete || a.met() != "" ||
		!slices.Equal(a.Scope, []string{"src", "docs/*.md", "new/file.go"}) {
		t.Errorf("%+v %s", a, fail)
	}
	if a, _ := two.announce(`{"intent":"rewrite","scope":["src/auth","docs"],"claim":"x"}`); a.met() != `claimed p1111 "tidy up" src,docs/*.md true` {
		t.Errorf("%+v", a)
	}
	seen := one.peers(`{}`)
	if len(seen.Overlaps) != 1 || seen.You != "p1111" || seen.Overlaps[0].Between[0].Peer != "p1111" || seen.Overlaps[0].Between[1].Intent != "rewrite" ||
		fmt.Sprint(seen.Overlaps[0].Paths) != "[[src src/auth] [docs/*.md docs]]" || seen.Overlaps[0].Kind != "claimed" {
		t.Errorf("%+v", seen)
	}
	one.say(call("7", "majordomus_peers", `{}`))
	words := text(t, one.hear(`"id":7`))
	if want := "you are p1111\n2 peers\np1111 (tester)\n  works on src, docs/*.md, new/file.go: \"tidy up\"\np2222 (tester)\n  works on src/auth, docs: \"rewrite\"\n" +
		"overlap (claimed): p1111 and p2222 at src / src/auth, docs/*.md / docs\n"; words != want {
		t.Errorf("%q, want %q", words, want)
	}
	if a, _ := one.announce(`{"intent":"only new","scope":["new","docs/*.md"]}`); !slices.Equal(a.Released, []string{"src"}) {
		t.Errorf("narrowed: %+v", a)
	}
	if a, fail := two.announce(`{"scope":[],"claim":"x"}`); fail != "" || !slices.Equal(a.Released, []string{"src/auth", "docs"}) || len(a.Scope) != 0 {
		t.Errorf("withdrawn: %+v %s", a, fail)
	}
	if seen := two.peers(`{"checkouts":"this"}`); len(seen.Overlaps) != 0 || len(seen.Peers) != 2 || len(seen.Peers[1].Claims) != 0 {
		t.Errorf("%+v", seen)
	}
	for args, want := range map[string]string{
		`{"intent":"x","scope":["ok","../out"]}`:                       `scope: [1] "../out" lies outside the checkout`,
		`{"intent":"x","scope":["/etc"]}`:                              `scope: [0] "/etc" lies outside the checkout`,
		`{"intent":"x","scope":[""]}`:                                  `scope: [0] "" is empty; "." is the whole checkout`,
		`{"intent":"x","scope":["a",7]}`:                               `scope: [1] must be a string`,
		`{"intent":"x","scope":"src"}`:                                 `scope: must be a list of paths; an empty one withdraws the claim`,
		`{"intent":"x"}`:                                               `scope: must be a list of paths; an empty one withdraws the claim`,
		`{"intent":" ","scope":["a"]}`:                                 `intent: must say in a sentence what you are going to do`,
		`{"intent":7,"scope":[]}`:                                      `intent: must say in a sentence what you are going to do`,
		`{"intent":"x","scope":["a"],"claim":1}`:                       `claim: must be a string`,
		`{"intent":"x","scope":["a"],"paths":["b"]}`:                   `paths: is not an argument of majordomus_announce, which takes intent, scope, claim`,
		`{"intent":"` + strings.Repeat("x", 2049) + `","scope":["a"]}`: `intent: has more than 2048 bytes`,
	} {
		if _, fail := one.announce(args); fail != want {
			t.Errorf("%.80s: %s, want %s", args, fail, want)
		}
	}
	if seen := one.peers(`{}`); len(seen.Peers[0].Claims) != 1 || seen.Peers[0].Claims[0].Intent != "only new" {
		t.Errorf("what was refused was recorded: %+v", seen.Peers[0])
	}
}

// A killed editor is seen to have gone at once, and what it announced is still
// there; when it comes back, under a new link, it is the same peer.
func TestDeparted(t *testing.T) {
	p := settle(t, nil)
	one, two := p.peer("1111"), p.peer("2222")
	silent := p.peer("3333")
	two.announce(`{"intent":"half done","scope":["src"]}`)
	two.conn.Close()
	silent.conn.Close()
	eventually(t, "they have gone", func() bool { return len(one.peers(`{}`).Peers) == 2 && !one.peers(`{}`).Peers[1].Attached })
	if gone := one.peers(`{}`).Peers[1]; gone.ID != "p2222" || gone.DepartedAt == nil || gone.Claims[0].Intent != "half done" {
		t.Errorf("%+v", gone)
	}
	if a, _ := one.announce(`{"intent":"go on","scope":["src/x"]}`); a.met() != `claimed p2222 "half done" src false` {
		t.Error(a.met())
	}
	if seen := one.peers(`{}`); len(seen.Overlaps) != 0 {
		t.Errorf("somebody who has gone overlaps: %+v", seen.Overlaps)
	}
	p.peer("2222")
	if back := one.peers(`{}`); len(back.Peers) != 2 || !back.Peers[1].Attached || len(back.Peers[1].Claims) != 1 || len(back.Overlaps) != 1 {
		t.Errorf("%+v", back)
	}
}

// Each of ten that announce at once: every pair is told to one of the two.
func TestAnnounceAtOnce(t *testing.T) {
	p := settle(t, nil)
	var lines []*line
	for i := range 10 {
		lines = append(lines, p.peer(fmt.Sprintf("%d%d%d%d", i, i, i, i)))
	}
	var told sync.Map
	var wg sync.WaitGroup
	for i, l := range lines {
		l.say(call(`"announce"`, "majordomus_announce", `{"intent":"all","scope":["src"]}`))
		wg.Go(func() {
			var a announcement
			json.Unmarshal(frame.Get([]byte(l.hear(`"id":"announce"`)), "result", "structuredContent"), &a)
			for _, m := range a.Overlaps {
				told.Store([2]string{fmt.Sprintf("p%d%d%d%d", i, i, i, i), m.Peer}, true)
			}
		})
	}
	wg.Wait()
	for i := range 10 {
		for j := range i {
			a, b := fmt.Sprintf("p%d%d%d%d", i, i, i, i), fmt.Sprintf("p%d%d%d%d", j, j, j, j)
			_, one := told.Load([2]string{a, b})
			_, other := told.Load([2]string{b, a})
			if !one && !other {
				t.Errorf("%s and %s do not know of each other", a, b)
			}
		}
	}
}

// Whoever subscribed to the board hears of its changes, in both eras.
func TestBoardIsToldOf(t *testing.T) {
	p := settle(t, nil)
	legacy, listening, other := p.peer("1111"), p.link(bridgeOf("2222")), p.peer("3333")
	legacy.say(`{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"majordomus://peers"}}`)
	legacy.hear(`"id":1`)
	listening.say(`{"jsonrpc":"2.0","id":"ear","method":"subscriptions/listen","params":{"notifications":{"resourceSubscriptions":["majordomus://peers"]},` + modern + `}}`)
	listening.hear("subscriptions/acknowledged")
	updated := func() {
		t.Helper()
		legacy.hear("notifications/resources/updated", `"majordomus://peers"`)
		listening.hear("notifications/resources/updated", `"majordomus://peers"`, `"ear"`)
	}
	other.announce(`{"intent":"x","scope":["y"]}`)
	updated()
	legacy.say(`{"jsonrpc":"2.0","id":2,"method":"resources/read","params":{"uri":"majordomus://peers"}}`)
	if got := legacy.hear(`"id":2`); !strings.Contains(got, `\"intent\":\"x\"`) {
		t.Error(got)
	}
	other.conn.Close()
	updated()
}

func TestInstructionsNameTheOthers(t *testing.T) {
	p := settle(t, nil)
	one := p.peer("1111")
	one.announce(`{"intent":"rewrite\nthe login","scope":["src/auth","docs"]}`)
	l := p.link(bridgeOf("2222"))
	text, _ := frame.Text(frame.Get([]byte(l.shake()), "result", "instructions"))
	if want := "\n- p1111 (tester) works on src/auth, docs: \"rewrite the login\"\n"; !strings.Contains(text, want) {
		t.Errorf("%q lacks %q", text, want)
	}
	for i := range 60 {
		l := p.peer(fmt.Sprintf("4%03d", i))
		for c := range 4 {
			l.announce(fmt.Sprintf(`{"intent":%q,"scope":[%q],"claim":"%d"}`, strings.Repeat("very long ", 50), strings.Repeat("path/", 50), c))
		}
	}
	text, _ = frame.Text(frame.Get([]byte(p.link(bridgeOf("5555")).shake()), "result", "instructions"))
	if len(text) > 2048 || !strings.Contains(text, "p1111") || !strings.Contains(text, " more") {
		t.Errorf("%d bytes: %s", len(text), text)
	}
}

func TestWaitForAnAnnouncement(t *testing.T) {
	p := settle(t, nil)
	one, two := p.peer("1111"), p.peer("2222")
	one.announce(`{"intent":"mine","scope":["a"]}`)
	for i, change := range []string{`{"intent":"yours","scope":["a"]}`, `{"intent":"yours","scope":["b"]}`, `{"scope":[]}`} {
		id := strconv.Itoa(10 + i)
		one.say(call(id, "majordomus_wait", `{"seconds":300,"until":"board"}`))
		// Its own changes do not end it; nor is it known when it has begun, so
		// the other says it until it does.
		one.announce(fmt.Sprintf(`{"intent":"mine %d","scope":["a"]}`, i))
		two.announce(change)
		got := result(t, one.hear(`"id":`+id+`,`), "structuredContent")
		if string(frame.Get([]byte(got), "announced")) != `[{"id":"p2222","client":"tester"}]` || string(frame.Get([]byte(got), "because")) != `"board"` {
			t.Error(got)
		}
		conforms(t, schemaWaitOut, got)
	}
}

func TestExecutions(t *testing.T) {
	p := settle(t, func(c *Config) {
		c.Policy.ObservePaths = true
		c.Hosting = hosting(config.Server{Name: "far", URL: far(t, "far",
			`{"name":"write","inputSchema":{"type":"object"}},{"name":"read","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}`)})
	})
	p.write("src/a.go", "")
	p.write("src/b.go", "")
	l := p.link(bridgeOf("1111"))
	l.shake()
	eventually(t, "far is there", func() bool {
		l.say(`{"jsonrpc":"2.0","id":"tools","method":"tools/list"}`)
		return strings.Contains(l.hear(`"id":"tools"`), "far__write")
	})
	say := func(id, tool, args string) {
		l.say(call(id, tool, args))
		l.hear(`"id":` + id + `,`)
	}
	say("1", "far__read", `{"path":"src/a.go"}`)
	say("2", "far__write", `{"paths":["src/b.go","nowhere/c.go","https://example.org/src/a.go"],"file_path":`+strconv.Quote(filepath.Join(p.root, "src", "a.go"))+`}`)
	say("3", "far__write", `{"path":"../../etc/passwd","uri":"file:///etc/passwd","query":"src"}`)
	say("4", "far__write", `{"path":"src","how":"wrong"}`)
	say("5", "majordomus_wait", `{"seconds":-1}`)
	say("6", "nothing", `{}`)
	l.say(call("7", "majordomus_wait", `{"seconds":300}`))
	l.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`)
	other := p.peer("2222")
	other.say(call("8", "majordomus_wait", `{"seconds":300}`))
	list := func() (x Executions) {
		p.ask("GET", "/api/v1/executions", "").decode(t, &x)
		return x
	}
	eventually(t, "all ran", func() bool { x := list(); return len(x.Ended) == 7 && len(x.Running) == 1 })
	x := list()
	if r := x.Running[0]; r.Peer != "p2222" || r.Tool != "majordomus_wait" || r.Outcome != "running" || r.Client != "tester" {
		t.Errorf("%+v", r)
	}
	other.conn.Close()
	eventually(t, "it was cut", func() bool { return list().Ended[0].Outcome == "cut" })
	var got []string
	for _, e := range list().Ended {
		got = append(got, fmt.Sprintf("%d %s %s %s %s", e.Number, e.Peer, e.Tool, e.Upstream, e.Outcome))
	}
	slices.Sort(got)
	want := []string{
		"1 p1111 far__read far ok", "2 p1111 far__write far ok", "3 p1111 far__write far ok", "4 p1111 far__write far error",
		"5 p1111 majordomus_wait  failed", "6 p1111 nothing  failed", "7 p1111 majordomus_wait  cancelled", "8 p2222 majordomus_wait  cut",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	l.say(call("9", "majordomus_executions", `{"limit":2}`))
	answer := result(t, l.hear(`"id":9`), "structuredContent")
	conforms(t, schemaExecutionsOut, answer)
	if len(list().Ended) < 8 || strings.Count(answer, `"number"`) != 3 { // two, and itself
		t.Error(answer)
	}
	var touched []string
	for _, f := range l.peers(`{}`).Peers[0].Touched {
		touched = append(touched, fmt.Sprintf("%s %t", f.Path, f.Wrote))
	}
	slices.Sort(touched)
	if !slices.Equal(touched, []string{"src/a.go true", "src/b.go true"}) {
		t.Errorf("touched %q", touched)
	}
	if r := p.ask("GET", "/api/v1/executions?limit=0", ""); r.status != 400 || r.code() != "invalid_argument" {
		t.Errorf("%d %s", r.status, r.body)
	}
}

// Two that were seen in one file, and a claim on what another was seen at.
func TestTouchedOverlaps(t *testing.T) {
	p := settle(t, func(c *Config) {
		c.Policy.ObservePaths = true
		c.Hosting = hosting(config.Server{Name: "far", URL: far(t, "far", `{"name":"write","inputSchema":{"type":"object"}}`)})
	})
	p.write("src/a.go", "")
	one, two := p.peer("1111"), p.peer("2222")
	eventually(t, "far is there", func() bool {
		one.say(`{"jsonrpc":"2.0","id":"tools","method":"tools/list"}`)
		return strings.Contains(one.hear(`"id":"tools"`), "far__write")
	})
	one.say(call("1", "far__write", `{"path":"src/a.go"}`))
	one.hear(`"id":1`)
	if a, _ := two.announce(`{"intent":"x","scope":["src"]}`); a.met() != `touched p1111 "" src/a.go true` {
		t.Error(a.met())
	}
	seen := two.peers(`{}`)
	if len(seen.Overlaps) != 1 || seen.Overlaps[0].Kind != "touched" {
		t.Errorf("%+v", seen.Overlaps)
	}
}

func TestAnnounceByHand(t *testing.T) {
	p := settle(t, nil)
	one := p.peer("1111")
	one.announce(`{"intent":"mine","scope":["src/x"]}`)
	say := func(body string) (a announcement, r reply) {
		if r = p.ask("POST", "/api/v1/announce", body); r.status == 200 {
			r.decode(t, &a)
		}
		return a, r
	}
	if a, r := say(`{"as":"ann","intent":"by hand","scope":["src"]}`); a.met() != `claimed p1111 "mine" src/x true` {
		t.Error(r)
	}
	seen := one.peers(`{}`)
	if len(seen.Peers) != 2 || seen.Peers[1].Front != "hand" || !seen.Peers[1].Attached || seen.Peers[1].Client != "ann" || len(seen.Overlaps) != 1 {
		t.Errorf("%+v", seen)
	}
	if _, r := say(`{"as":"ann","scope":[]}`); r.status != 200 || len(one.peers(`{}`).Peers) != 1 {
		t.Errorf("%v %+v", r, one.peers(`{}`))
	}
	for body, want := range map[string]string{
		`{"intent":"x","scope":["a"]}`:            "as: must say who announces, in at most 100 bytes",
		`{"as":"ann","scope":["a"]}`:              "intent: must say in a sentence what is going to be done",
		`{"as":"ann","intent":"x","scope":["/"]}`: `scope[0] "/" lies outside the checkout`,
	} {
		if _, r := say(body); r.status != 400 || r.code() != "invalid_argument" || !strings.Contains(r.body, string(frame.Quote(want))) {
			t.Errorf("%s: %d %s", body, r.status, r.body)
		}
	}
}

// listen opens the stream of events and returns what reads the next.
func (p *place) listen(query string, header ...string) (next func() (event, data string)) {
	p.t.Helper()
	req, _ := http.NewRequest("GET", p.url+"/api/v1/events"+query, nil)
	req.Header.Set("Authorization", "Bearer "+p.key)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := p.client.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		p.t.Fatalf("%s %v", resp.Status, resp.Header)
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	return func() (event, data string) {
		for lines.Scan() {
			switch text := lines.Text(); {
			case strings.HasPrefix(text, "event: "):
				event = text[7:]
			case strings.HasPrefix(text, "data: "):
				data = text[6:]
			case text == "" && event != "":
				return event, data
			}
		}
		return "", ""
	}
}

func TestEvents(t *testing.T) {
	p := settle(t, nil)
	next := p.listen("")
	if event, data := next(); event != "hello" || !strings.Contains(data, p.server.generation) {
		t.Fatal(event, data)
	}
	one := p.peer("1111")
	one.announce(`{"intent":"x","scope":["a"]}`)
	var kinds []string
	var last board.Event
	for len(kinds) < 4 {
		event, data := next()
		var e board.Event
		if err := json.Unmarshal([]byte(data), &e); err != nil || e.Kind != event || last.Number > 0 && e.Number != last.Number+1 {
			t.Fatalf("%v: %s %s", err, event, data)
		}
		last = e
		kinds = append(kinds, event)
	}
	if !slices.Equal(kinds, []string{"peer_came", "call_began", "claimed", "call_ended"}) {
		t.Error(kinds)
	}
	// Who comes back goes on behind the last it saw, whatever its address says.
	again := p.listen("?after=0", "Last-Event-ID", strconv.FormatUint(last.Number-1, 10))
	again()
	if event, _ := again(); event != "call_ended" {
		t.Error(event)
	}
	// Of another server's numbers nothing is known: all there is.
	all := p.listen("?after=123456")
	all()
	if event, _ := all(); event != "peer_came" {
		t.Error(event)
	}
	if r := p.ask("GET", "/api/v1/events?after=x", ""); r.status != 400 {
		t.Error(r)
	}
	// One that was away for long misses some, and is told how many.
	for range 1500 {
		p.server.board.Note(board.Event{Kind: "noise"})
	}
	late := p.listen("?after=" + strconv.FormatUint(last.Number, 10))
	late()
	if event, data := late(); event != "gap" || data != `{"missed":476}` {
		t.Error(event, data)
	}
	p.lose()
	for {
		event, data := late()
		if event == "lease_lost" {
			break
		}
		if event == "" {
			t.Fatal("not told of the loss")
		}
		_ = data
	}
	began := time.Now()
	p.server.stop(false)
	one.conn.Close()
	p.ended()
	for event := "x"; event != ""; event, _ = late() {
	}
	if took := time.Since(began); took > patience {
		t.Error(took)
	}
}

// gitWorktrees makes a repository with so many work trees.
func gitWorktrees(t *testing.T, n int) []string {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("there is no git here")
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	git := func(args ...string) {
		t.Helper()
		cmd := exec.Command("git", args...)
		cmd.Dir = filepath.Join(dir, "main")
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null",
			"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.org", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.org")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	os.Mkdir(filepath.Join(dir, "main"), 0o755)
	git("init", "-q", "-b", "main")
	git("commit", "-q", "--allow-empty", "-m", "first")
	roots := []string{filepath.Join(dir, "main")}
	for i := range n - 1 {
		name := fmt.Sprintf("w%02d", i)
		git("worktree", "add", "-q", "-b", name, filepath.Join(dir, name))
		roots = append(roots, filepath.Join(dir, name))
	}
	return roots
}

// Who works in another work tree of the repository is seen, and met; one whose
// server cannot be read makes the answer incomplete, one without a server does
// not.
func TestRepository(t *testing.T) {
	roots := gitWorktrees(t, 3)
	here, there := newPlace(t, roots[0]), newPlace(t, roots[1])
	for _, p := range []*place{here, there} {
		p.prepare(nil)
		p.run()
	}
	one, two := here.peer("1111"), there.peer("2222")
	if a, fail := one.announce(`{"intent":"this","scope":["src"]}`); fail != "" || a.met() != "" || !a.Complete {
		t.Errorf("%+v %s", a, fail)
	}
	if a, _ := two.announce(`{"intent":"that","scope":["src/x"]}`); a.met() != `claimed p1111 "this" src true` || a.Overlaps[0].Checkout != "main" {
		t.Errorf("%+v", a)
	}
	for _, l := range []*line{one, two} {
		seen := l.peers(`{}`)
		if len(seen.Peers) != 2 || len(seen.Overlaps) != 1 || !seen.Complete || len(seen.Boards) != 3 || !seen.Boards[0].This {
			t.Errorf("%+v", seen)
		}
		states := map[string]string{}
		for _, b := range seen.Boards {
			states[b.Checkout] = b.State
		}
		if states["main"] != "served" || states["w00"] != "served" || states["w01"] != "none" {
			t.Error(states)
		}
	}
	if seen := one.peers(`{"checkouts":"this"}`); len(seen.Peers) != 1 || len(seen.Boards) != 1 {
		t.Errorf("%+v", seen)
	}
	// A folder that cannot be read is said to be.
	c, err := checkout.Open(roots[2])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(c.StateDir()), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(c.StateDir(), "server.json"), 0o700); err != nil {
		t.Fatal(err)
	}
	if seen := one.peers(`{}`); !seen.Complete { // a folder in the lease's place: nobody serves
		t.Errorf("%+v", seen.Boards)
	}
	// One server stops: the other's answer is complete, and honest.
	there.server.stop(true)
	there.ended()
	if seen := one.peers(`{}`); len(seen.Peers) != 1 || !seen.Complete || len(seen.Overlaps) != 0 {
		t.Errorf("%+v", seen)
	}
}

// A server that holds its lease and says nothing is no server without peers.
func TestRepositoryUnread(t *testing.T) {
	roots := gitWorktrees(t, 2)
	here, there := newPlace(t, roots[0]), newPlace(t, roots[1])
	here.prepare(func(c *Config) { c.Policy.ProbeTimeout = 200 * time.Millisecond })
	here.run()
	there.prepare(nil)
	if err := there.tenure.Publish(there.url); err != nil { // which it never answers at
		t.Fatal(err)
	}
	one := here.peer("1111")
	began := time.Now()
	seen := one.peers(`{}`)
	if seen.Complete || seen.Boards[1].State != "unread" || !strings.HasPrefix(seen.Boards[1].Reason, "its server does not answer: ") {
		t.Errorf("%+v", seen.Boards)
	}
	a, _ := one.announce(`{"intent":"x","scope":["y"]}`)
	if a.Complete || len(a.Reasons) != 1 || !strings.HasPrefix(a.Reasons[0], "w00: its server does not answer") {
		t.Errorf("%+v", a)
	}
	if took := time.Since(began); took > patience {
		t.Error(took)
	}
}
