package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"majordomus/bridge/frame"
	"majordomus/lease"
	"majordomus/lease/checkout"
	"majordomus/server/hub/config"
)

// result is the member at path of the result in an answer.
func result(t testing.TB, answer string, path ...string) string {
	t.Helper()
	r := frame.Get([]byte(answer), append([]string{"result"}, path...)...)
	if r == nil {
		t.Fatalf("no result %v in %.500s", path, answer)
	}
	return string(r)
}

func text(t testing.TB, answer string) string {
	t.Helper()
	var content []struct{ Text string }
	if err := json.Unmarshal([]byte(result(t, answer, "content")), &content); err != nil || len(content) != 1 {
		t.Fatalf("%v in %.500s", err, answer)
	}
	return content[0].Text
}

func TestIndex(t *testing.T) {
	p := settle(t, nil)
	r := p.ask("GET", "/", "", "Authorization", "")
	p.golden("index.json", indented(t, r.body))

	const nonce = "0123456789abcdef0123456789abcdef"
	var x lease.Index
	p.ask("GET", "/?challenge="+nonce, "").decode(t, &x)
	if x.Proof != lease.Proof(p.key, nonce, p.tenure.Token()) {
		t.Errorf("proof %q", x.Proof)
	}
	for _, bad := range []string{"", nonce[1:], nonce + "0", strings.ToUpper(nonce), nonce[1:] + "g", nonce + "&challenge=" + nonce} {
		if r := p.ask("GET", "/?challenge="+bad, ""); r.status != 400 || r.code() != "invalid_challenge" || strings.Contains(r.body, "proof") {
			t.Errorf("%q: %d %s", bad, r.status, r.body)
		}
	}
	// A browser gets the same facts.
	r = p.ask("GET", "/", "", "Accept", "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8")
	if !strings.HasPrefix(r.header.Get("Content-Type"), "text/html") {
		t.Errorf("%v", r.header)
	}
	p.golden("index.html", r.body)
	for accept, page := range map[string]bool{"*/*": false, "application/json": false, "": false, "text/html;q=0": false, "Text/HTML": true, "text/*": false} {
		r := p.ask("GET", "/", "", "Accept", accept)
		if got := strings.HasPrefix(r.header.Get("Content-Type"), "text/html"); got != page {
			t.Errorf("Accept %q: %v", accept, r.header)
		}
	}
}

func TestHealth(t *testing.T) {
	p := settle(t, nil)
	r := p.ask("GET", "/api/v1/health", "", "Authorization", "")
	p.golden("health.json", indented(t, r.body))

	// Everything at once. The lock is not to be had in time.
	p.server.setTrouble(plain(fmt.Errorf("publishing %s: %w", p.root, lease.ErrLockBusy)))
	p.server.cfg.Alone = "opening " + p.root + "/.ai/local/state/mcp: mkdir /home/ann/x y: permission denied; neither /home/ann nor C:\\Users\\ann has .ai"
	reason := "its executable was replaced: it runs a file of 1 bytes from 2026-01-02T03:04:05Z, now there is one of 2 bytes from 2026-01-02T03:04:06Z"
	p.server.stale.mu.Lock()
	p.server.stale.reason = &reason
	p.server.stale.mu.Unlock()
	p.lose()
	r = p.ask("GET", "/api/v1/health", "")
	p.golden("health-bad.json", indented(t, r.body))
	if strings.Contains(r.body, "/home/") || strings.Contains(r.body, p.root) || strings.Contains(r.body, "Users") {
		t.Error("names paths of the machine")
	}
}

func TestHealthAlone(t *testing.T) {
	p := settle(t, func(c *Config) { c.Tenure, c.Alone = nil, "somebody else serves" })
	var h report
	p.ask("GET", "/api/v1/health", "").decode(t, &h)
	if h.Status != "warn" || len(h.Checks[0].Findings) != 1 || len(h.Checks[1].Findings) != 1 ||
		!strings.Contains(h.Checks[1].Findings[0].Message, "version v0.1.0") {
		t.Errorf("%+v", h)
	}
}

func TestPathless(t *testing.T) {
	s := &Server{cfg: Config{Checkout: &checkout.Checkout{Root: "/w/my shop", Name: "my shop"}}}
	for in, want := range map[string]string{
		"open /w/my shop/.ai/local: no": "open my shop/.ai/local: no",
		`open "/etc/x/y.json"`:          `open "…/y.json"`,
		`C:\Users\ann\x: no`:            "…/x: no",
		`\\box\share\x`:                 "…/x",
		"http://127.0.0.1:8741 and/or":  "http://127.0.0.1:8741 and/or",
		"mcp --root=/srv/x, then / or":  "mcp --root=…/x, then / or",
		"":                              "",
	} {
		if got := s.pathless(in); got != want {
			t.Errorf("%q is %q, want %q", in, got, want)
		}
	}
}

func TestBrief(t *testing.T) {
	for _, tt := range []struct {
		in   string
		most int
		want string
	}{
		{"a\n b\x00\tc", 10, "a b c"}, {"äöü", 6, "äöü"}, {"äöüx", 6, "ä…"}, {"abcdef", 5, "ab…"}, {"\xff", 5, "?"},
	} {
		if got := brief(tt.in, tt.most); got != tt.want {
			t.Errorf("brief(%q, %d) = %q, want %q", tt.in, tt.most, got, tt.want)
		}
	}
}

func TestStale(t *testing.T) {
	exe := filepath.Join(t.TempDir(), "majordomus")
	if err := os.WriteFile(exe, []byte("1"), 0o700); err != nil {
		t.Fatal(err)
	}
	p := settle(t, func(c *Config) {
		info, err := os.Stat(exe)
		if err != nil {
			t.Fatal(err)
		}
		c.Executable = lease.ExecutableIdentity{Path: exe, MTime: info.ModTime().Unix(), MTimeNS: int64(info.ModTime().Nanosecond()), Size: 1}
	})
	var x lease.Index
	if p.ask("GET", "/", "").decode(t, &x); x.Stale != nil {
		t.Errorf("stale: %s", *x.Stale)
	}
	if err := os.WriteFile(exe, []byte("22"), 0o700); err != nil {
		t.Fatal(err)
	}
	eventually(t, "stale", func() bool { p.ask("GET", "/", "").decode(t, &x); return x.Stale != nil })
	if !strings.Contains(*x.Stale, "2 bytes") || strings.Contains(*x.Stale, exe) {
		t.Error(*x.Stale)
	}
	var h report
	p.ask("GET", "/api/v1/health", "").decode(t, &h)
	if h.Checks[2].ID != "executable" || h.Checks[2].Status != "warn" {
		t.Errorf("%+v", h)
	}
}

func TestState(t *testing.T) {
	p := settle(t, nil)
	p.session()
	var st state
	p.ask("GET", "/api/v1/server", "").decode(t, &st)
	if st.Peers != 1 || st.Root != p.checkout.Root || st.URL != p.url || !st.LeaseHolder || st.Draining || st.Generation == "" {
		t.Errorf("%+v", st)
	}
}

// What clients are told, in both eras.
func TestInstructions(t *testing.T) {
	p := settle(t, nil)
	other := p.link("aaaa0000-0000-4000-8000-000000000000")
	other.shake()
	other.say(call("1", "majordomus_server", "{}"))
	other.hear(`"id":1`)
	l := p.link(bridge)
	told, _ := frame.Text([]byte(result(t, l.shake(), "instructions")))
	p.golden("instructions.txt", told+"\n")
	l.say(`{"jsonrpc":"2.0","id":2,"method":"server/discover","params":{` + modern + `}}`)
	if again, _ := frame.Text([]byte(result(t, l.hear(`"id":2`), "instructions"))); again != told {
		t.Errorf("without a handshake:\n%s\nwith:\n%s", again, told)
	}
	if strings.Contains(told, p.root) {
		t.Error("names a path")
	}
	// As long as they get.
	p.server.cfg.Alone = strings.Repeat("/very/long/path because ", 1000)
	p.server.cfg.Version = strings.Repeat("v", 1000)
	p.checkout.Name = strings.Repeat("\x01\n\"", 500)
	l = p.link("bbbb0000-0000-4000-8000-000000000000")
	told, _ = frame.Text([]byte(result(t, l.shake(), "instructions")))
	if len(told) >= 2048 || strings.Contains(told, "/very") || !strings.Contains(told, "served alone") {
		t.Errorf("%d bytes: %s", len(told), told)
	}
}

func TestInstructionsAlone(t *testing.T) {
	s, err := New(Config{Version: "v0.1.0", Alone: "no checkout here: neither /home/ann/work nor a folder above it is one"})
	if err != nil {
		t.Fatal(err)
	}
	l, _ := stream(t, s, true)
	told, _ := frame.Text([]byte(result(t, l.shake(), "instructions")))
	got := strings.Replace(told, "peer "+s.core.Peers()[0].ID, "peer PEER", 1) + "\n"
	path := filepath.Join("testdata", "instructions-alone.txt")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(path); err != nil || got != string(want) {
		t.Errorf("%v\ngot:\n%s\nwant:\n%s", err, got, want)
	}
}

// stream serves one client of s over a pair of sockets, with Run running.
func stream(t *testing.T, s *Server, plain bool) (*line, <-chan error) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	ours, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	served, ran := make(chan error, 1), make(chan error, 1)
	go func() { ran <- s.Run(t.Context()) }()
	bridge, called := "", ""
	if !plain {
		bridge, called = "0f0e0d0c-0b0a-4908-8706-050403020100", "p0f0e0d"
	}
	go func() { served <- s.ServeStream(t.Context(), theirs, bridge, called) }()
	t.Cleanup(func() {
		s.stop(true)
		if err := <-ran; err != nil {
			t.Error(err)
		}
	})
	return newLine(t, ours, ours), served
}

func TestServeStream(t *testing.T) {
	for _, plain := range []bool{true, false} {
		t.Run(fmt.Sprintf("plain=%t", plain), func(t *testing.T) {
			s, err := New(Config{Version: "v0.1.0", Idle: -1})
			if err != nil {
				t.Fatal(err)
			}
			l, served := stream(t, s, plain)
			if !plain {
				l.hear("!registry " + s.registry.current())
				l.hear("!peer p0f0e0d")
			}
			l.shake()
			l.say(`{"jsonrpc":"2.0","id":9007199254740993,"method":"tools/list"}`)
			if plain {
				if got := <-l.heard; !strings.HasPrefix(got, `{"jsonrpc":"2.0","id":9007199254740993,"result":{`) {
					t.Error(got)
				}
			} else {
				l.hear(`"id":9007199254740993,"result"`)
			}
			l.say(`{"jsonrpc":"2.0","id":2,"method":"resources/read","params":{"uri":"majordomus://layer/x"}}`)
			l.hear(`"id":2,"error"`, "-32002")
			// A client that closes its side still gets its answer.
			if plain {
				l.say(call("3", "majordomus_wait", `{"seconds":0.2,"note":"late"}`))
				l.conn.(*net.TCPConn).CloseWrite()
				l.hear(`"id":3`, "late")
			} else {
				l.say("!bye")
			}
			if err := <-served; err != nil {
				t.Error(err)
			}
			l.gone()
		})
	}
}

// Nobody is told that a tool is not there by a server that has not looked yet
// what there is.
func TestServeStreamBeforeTheFirstLook(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, ".ai"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, ".ai", "manifest.yaml"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := checkout.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	hosts, looks := hosting(config.Server{Name: "far", URL: far(t, "far", `{"name":"read","inputSchema":{"type":"object"}}`)}), make(chan struct{})
	entries := hosts.Entries
	hosts.Entries = func() (*config.File, error) {
		<-looks
		return entries()
	}
	s, err := New(Config{Checkout: c, Idle: -1, Hosting: hosts})
	if err != nil {
		t.Fatal(err)
	}
	l, _ := stream(t, s, true)
	l.say(initialize)
	l.say(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	l.say(call("1", "far__read", "{}"))
	select {
	case got := <-l.heard:
		t.Error(got)
	case <-time.After(50 * time.Millisecond): // nothing is to come
	}
	close(looks)
	l.hear(`"id":1,"result"`)
}

func TestServeStreamAfterTheEnd(t *testing.T) {
	s, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	s.prepare()
	s.end("over")
	ours, theirs := net.Pipe()
	defer ours.Close()
	if err := s.ServeStream(t.Context(), theirs, "", ""); err == nil || !strings.Contains(err.Error(), messageDraining) {
		t.Error(err)
	}
	s.core.Close()
}

func TestTools(t *testing.T) {
	p := settle(t, nil)
	l := p.link(bridge)
	l.shake()
	l.say(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	answer := l.hear(`"id":1`)
	p.golden("tools.json", indented(t, result(t, answer, "tools")))

	l.say(call("2", "majordomus_server", `{}`))
	answer = l.hear(`"id":2`)
	var st state
	if err := json.Unmarshal([]byte(result(t, answer, "structuredContent")), &st); err != nil || st.Peers != 1 || st.InFlight != 1 || st.Root != p.checkout.Root {
		t.Errorf("%v %+v", err, st)
	}
	if text(t, answer) != result(t, answer, "structuredContent") {
		t.Error(answer)
	}
	conforms(t, schemaState, result(t, answer, "structuredContent"))

	l.say(call("3", "majordomus_health", `{}`))
	answer = l.hear(`"id":3`)
	conforms(t, schemaHealth, result(t, answer, "structuredContent"))

	l.say(call("4", "majordomus_wait", `{"seconds":0}`))
	answer = l.hear(`"id":4`)
	conforms(t, schemaWaitOut, result(t, answer, "structuredContent"))
	if got := result(t, answer, "structuredContent", "because"); got != `"time"` {
		t.Error(got)
	}

	// In the era without a handshake, with no difference.
	l.say(`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"majordomus_wait","arguments":{"seconds":0,"note":"n"},` + modern + `}}`)
	answer = l.hear(`"id":5`)
	if text(t, answer) != "n" || result(t, answer, "structuredContent", "note") != `"n"` {
		t.Error(answer)
	}
	for i, tt := range []struct{ tool, args, argument string }{
		{"majordomus_server", `{"x":1}`, "x"},
		{"majordomus_health", `{"x":null}`, "x"},
		{"majordomus_server", `[]`, "arguments"},
		{"majordomus_wait", `{}`, "seconds"},
		{"majordomus_wait", `{"seconds":"1"}`, "seconds"},
		{"majordomus_wait", `{"seconds":-0.1}`, "seconds"},
		{"majordomus_wait", `{"seconds":300.1}`, "seconds"},
		{"majordomus_wait", `{"seconds":null}`, "seconds"},
		{"majordomus_wait", `{"Seconds":1}`, "Seconds"},
		{"majordomus_wait", `{"seconds":0,"until":"never"}`, "until"},
		{"majordomus_wait", `{"seconds":0,"until":7}`, "until"},
		{"majordomus_wait", `{"seconds":0,"note":7}`, "note"},
		{"majordomus_wait", `{"seconds":0,"more":7}`, "more"},
	} {
		id := strconv.Itoa(100 + i)
		l.say(call(id, tt.tool, tt.args))
		answer := l.hear(`"id":` + id)
		e := frame.Get([]byte(answer), "error")
		message, _ := frame.Text(frame.Get(e, "message"))
		named, _ := frame.Text(frame.Get(e, "data", "argument"))
		if string(frame.Get(e, "code")) != "-32602" || !strings.HasPrefix(message, tt.argument+": ") || named != tt.argument {
			t.Errorf("%s %s: %s", tt.tool, tt.args, answer)
		}
	}
	for _, fine := range []string{`{"seconds":0,"until":null}`, `{"seconds":0,"until":"time","note":null}`, `{"seconds":0.0}`} {
		l.say(call("200", "majordomus_wait", fine))
		if answer := l.hear(`"id":200`); !strings.Contains(answer, `"result"`) {
			t.Errorf("%s: %s", fine, answer)
		}
	}
}

// conforms checks what an output schema promises, as far as ours go.
func conforms(t testing.TB, schema, value string) {
	t.Helper()
	var sc struct {
		Properties map[string]json.RawMessage
		Required   []string
	}
	var v map[string]json.RawMessage
	if err := json.Unmarshal([]byte(schema), &sc); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(value), &v); err != nil {
		t.Fatal(err)
	}
	for _, name := range sc.Required {
		if _, ok := v[name]; !ok {
			t.Errorf("%s is missing in %s", name, value)
		}
	}
	for name, raw := range v {
		want := string(frame.Get(sc.Properties[name], "type"))
		kind := map[byte]string{'"': "string", '{': "object", '[': "array", 't': "boolean", 'f': "boolean", 'n': "null"}[raw[0]]
		if kind == "" {
			kind = "number"
		}
		if want == "" || !strings.Contains(want, kind) && !(kind == "number" && want == `"integer"`) {
			t.Errorf("%s is a %s, promised %s", name, kind, want)
		}
	}
}

func TestNoteComesBackAsItWent(t *testing.T) {
	p := settle(t, nil)
	l := p.link(bridge)
	l.shake()
	for i, note := range []string{"", "<&>\u2028\U0001f600\t\"\\ \x00", strings.Repeat("0123456789abcdef", 8<<20/16)} {
		id := strconv.Itoa(i + 1)
		l.say(call(id, "majordomus_wait", `{"seconds":0,"note":`+string(frame.Quote(note))+`}`))
		answer := l.hear(`"id":` + id + ",")
		if text(t, answer) != note {
			t.Errorf("%d bytes came back changed: %.100s", len(note), answer)
		}
		if has := frame.Get([]byte(answer), "result", "structuredContent", "note") != nil; has != (len(note) <= echoedNote) {
			t.Errorf("%d bytes in the structured result: %t", len(note), has)
		}
	}
}

func TestWaitForTheBoard(t *testing.T) {
	p := settle(t, nil)
	l := p.link(bridge)
	l.shake()
	wait := func(id string) {
		t.Helper()
		l.say(call(id, "majordomus_wait", `{"seconds":300,"until":"board"}`))
		// It has to have seen who is there, which it has once it waits: no
		// event tells that, but the stack does. (That somebody listens for
		// changes does not: the server itself does too.)
		eventually(t, "it waits", func() bool {
			stacks := make([]byte, 1<<20)
			return bytes.Contains(stacks[:runtime.Stack(stacks, true)], []byte("server.wait("))
		})
	}
	wait("1")
	other := p.link("cafe0000-0000-4000-8000-000000000000")
	other.shake() // a probe would do no more: nobody yet
	l.say(`{"jsonrpc":"2.0","id":"p","method":"ping"}`)
	l.hear(`"id":"p"`)
	other.say(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	other.hear(`"id":1`)
	answer := l.hear(`"id":1`)
	if got := result(t, answer, "structuredContent", "came"); got != `[{"id":"pcafe","client":"tester"}]` {
		t.Error(got)
	}
	conforms(t, schemaWaitOut, result(t, answer, "structuredContent"))
	wait("2")
	other.conn.Close()
	answer = l.hear(`"id":2`)
	if got := result(t, answer, "structuredContent", "went"); got != `[{"id":"pcafe","client":"tester"}]` {
		t.Error(got)
	}
	if got := result(t, answer, "structuredContent", "because"); got != `"board"` {
		t.Error(got)
	}
	// Taken back: it ends, without an answer.
	wait("3")
	l.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3}}`)
	eventually(t, "it has ended", func() bool { _, n := p.server.core.Stats(); return n == 0 })
}

func uris(t *testing.T, answer string) (list []string) {
	t.Helper()
	var resources []struct{ URI string }
	if err := json.Unmarshal([]byte(result(t, answer, "resources")), &resources); err != nil {
		t.Fatal(err)
	}
	for _, r := range resources {
		list = append(list, r.URI)
	}
	return list
}

func TestLayer(t *testing.T) {
	p := settle(t, nil)
	l := p.link(bridge)
	first := strings.TrimPrefix(l.hear("!registry "), "!registry ")
	l.shake()
	list := func() []string {
		t.Helper()
		l.say(`{"jsonrpc":"2.0","id":"l","method":"resources/list"}`)
		return uris(t, l.hear(`"id":"l"`))
	}
	if got := list(); !slices.Equal(got, []string{"majordomus://layer/AGENTS.md", "majordomus://layer/docs/a%20b.json", "majordomus://peers", "majordomus://server"}) {
		t.Error(got)
	}
	l.say(`{"jsonrpc":"2.0","id":"t","method":"resources/templates/list"}`)
	if got := l.hear(`"id":"t"`); !strings.Contains(got, `"uriTemplate":"majordomus://layer/{+path}"`) {
		t.Error(got)
	}
	read := func(uri, extra string) string {
		t.Helper()
		l.say(`{"jsonrpc":"2.0","id":"r","method":"resources/read","params":{"uri":` + string(frame.Quote(uri)) + extra + `}}`)
		return l.hear(`"id":"r"`)
	}
	if got := read("majordomus://layer/docs/a%20b.json", ""); !strings.Contains(got, `"text":"{}"`) || !strings.Contains(got, `"mimeType":"application/json"`) {
		t.Error(got)
	}
	if got := read("majordomus://server", ""); !strings.Contains(got, p.checkout.ID) {
		t.Error(got)
	}
	l.say(`{"jsonrpc":"2.0","id":"s","method":"resources/subscribe","params":{"uri":"majordomus://layer/AGENTS.md"}}`)
	l.hear(`"id":"s"`)

	// A file that has just come is read at once, and nobody need have looked.
	p.write(".ai/repo/new.md", "new")
	if got := read("majordomus://layer/new.md", ""); !strings.Contains(got, `"text":"new"`) || !strings.Contains(got, `text/markdown`) {
		t.Error(got)
	}
	if got := list(); !slices.Contains(got, "majordomus://layer/new.md") {
		t.Error(got)
	}
	second := strings.TrimPrefix(l.hear("!registry "), "!registry ")
	if second == first || len(second) != 64 {
		t.Errorf("fingerprint %s, before %s", second, first)
	}
	// A change is followed without being asked for.
	p.write(".ai/repo/AGENTS.md", "# Other rules\n")
	l.hear("notifications/resources/list_changed")
	l.hear("notifications/resources/updated", `"majordomus://layer/AGENTS.md"`)
	third := strings.TrimPrefix(l.hear("!registry "), "!registry ")
	if third == second {
		t.Error("the same fingerprint")
	}
	if got := read("majordomus://layer/AGENTS.md", ""); !strings.Contains(got, "# Other rules") {
		t.Error(got)
	}
	// Also one that no list shows.
	p.write(".ai/repo/AGENTS.md", "# other rules\n")
	if err := os.Chtimes(filepath.Join(p.root, ".ai/repo/AGENTS.md"), then, then.Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	l.hear("notifications/resources/updated", `"majordomus://layer/AGENTS.md"`)
	if fourth := strings.TrimPrefix(l.hear("!registry "), "!registry "); fourth == third {
		t.Error("the same fingerprint")
	}
	// As it was: the same fingerprint, also for the next server.
	p.write(".ai/repo/AGENTS.md", "# Rules\n")
	if err := os.Remove(filepath.Join(p.root, ".ai/repo/new.md")); err != nil {
		t.Fatal(err)
	}
	if got := list(); len(got) != 4 {
		t.Error(got)
	}
	if got := p.server.registry.current(); got != first {
		t.Errorf("fingerprint %s, at first %s", got, first)
	}
	var x lease.Index
	if p.ask("GET", "/", "").decode(t, &x); x.Counts != (lease.Counts{Tools: 6, Resources: 4, Layer: 2}) || x.Fingerprint != first {
		t.Errorf("%+v", x)
	}
	// What is not there, or not to be had.
	p.write(".ai/repo/policy.yaml", "server: {}\n")
	p.write(".ai/local/secret.md", "secret")
	for _, uri := range []string{
		"majordomus://layer/nothing", "majordomus://layer/", "majordomus://layer/docs", "majordomus://layer/../local/secret.md",
		"majordomus://layer/..%2flocal%2fsecret.md", "majordomus://layer/%2e%2e/local/secret.md", "majordomus://layer//etc/passwd",
		"majordomus://layer/policy.yaml", "majordomus://layer/%zz", "majordomus://other", "file:///etc/passwd",
	} {
		if got := read(uri, ""); string(frame.Get([]byte(got), "error", "code")) != "-32002" {
			t.Errorf("%s: %s", uri, got)
		}
		if got := read(uri, ","+modern); string(frame.Get([]byte(got), "error", "code")) != "-32602" {
			t.Errorf("%s without a handshake: %s", uri, got)
		}
	}
}

// A hundred clients that list at once share walks, and none gets an old list.
func TestListsTogether(t *testing.T) {
	p := settle(t, nil)
	p.write(".ai/repo/late.md", "x")
	before := p.server.registry.walks.Load()
	done := make(chan bool)
	for range 100 {
		go func() {
			p.server.registry.refresh()
			_, ok := p.server.mcp.ListResources()["majordomus://layer/late.md"]
			done <- ok
		}()
	}
	for range 100 {
		if !<-done {
			t.Error("an old list")
		}
	}
	t.Log(p.server.registry.walks.Load()-before, "walks")
}

func TestLayerURI(t *testing.T) {
	for _, path := range []string{"a", "a/b.md", "a b/ü%.md", "x?y#z", "a&b=c+d", "[x]", "~/'q'", `back\slash`} {
		got, ok := layerPath(layerURI(path))
		if !ok || got != path {
			t.Errorf("%q became %q by way of %s", path, got, layerURI(path))
		}
	}
}

func FuzzLayerPath(f *testing.F) {
	f.Add("majordomus://layer/a%20b/c")
	f.Add("majordomus://layer/%2e%2e/%2f")
	f.Fuzz(func(t *testing.T, uri string) {
		path, ok := layerPath(uri)
		if !ok {
			return
		}
		if again, ok := layerPath(layerURI(path)); !ok || again != path {
			t.Errorf("%q is %q is %q", uri, path, again)
		}
		if strings.Count(path, "/") != strings.Count(uri, "/")-3 {
			t.Errorf("%q has a folder that %q does not name", path, uri)
		}
	})
}
