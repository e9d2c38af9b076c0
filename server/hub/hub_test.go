package hub_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"majordomus/bridge/frame"
)

func TestWhatIsHostedPassesAsItIs(t *testing.T) {
	h := settle(t, "good")
	c := h.client()
	tools := string(frame.Get(c.ask("tools/list", "{}").Result, "tools"))
	want := `[{"name":"good__echo","inputSchema":{"type":"object","$defs":{"a":{"x-odd":1e2}},"anyOf":[{},true]},"icons":[{"src":"a"}],"_meta":{"k":0.10}},` +
		`{"name":"good__do_it_now_ade6c772","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}]`
	if tools != want {
		t.Errorf("tools:\n got %s\nwant %s", tools, want)
	}
	for method, want := range map[string]string{
		"prompts/list":             `{"prompts":[{"name":"good__hello"}]}`,
		"resources/list":           `{"resources":[{"uri":"test://good/one","name":"one"}]}`,
		"resources/templates/list": `{"resourceTemplates":[{"uriTemplate":"test://good/by/{id}","name":"by id"}]}`,
	} {
		if got := string(c.ask(method, "{}").Result); got != want {
			t.Errorf("%s: %s", method, got)
		}
	}
	m := c.ask("tools/call", `{"name":"good__echo","arguments":{"do":"params","n":9007199254740993},"_meta":{"other":0.10}}`)
	if got := string(m.Result); got != `{"content":[],"structuredContent":{"name":"echo","arguments":{"do":"params","n":9007199254740993},"_meta":{"other":0.10}},"odd": 1e2}` {
		t.Errorf("a call: %s", got)
	}
	if got := text(c.call("good__do_it_now_ade6c772", `"do":"params"`)); strings.Contains(got, "error") {
		t.Error(got)
	}
	if got := string(c.call("good__echo", `"do":"fail"`).Error); got != `{"code":-32050,"message":"no <thing>","data":{"n":1e2}}` {
		t.Errorf("an error: %s", got)
	}
	for uri, want := range map[string]string{"test://good/one": "read by good", "test://good/by/7": "read by good"} {
		if got := string(c.ask("resources/read", `{"uri":"`+uri+`"}`).Result); !strings.Contains(got, want) {
			t.Errorf("%s: %s", uri, got)
		}
	}
	if got := string(c.ask("prompts/get", `{"name":"good__hello"}`).Result); !strings.Contains(got, `"text":"hello"`) {
		t.Errorf("a prompt: %s", got)
	}
	m = c.ask("tools/call", `{"name":"good__echo","task":{"ttl":1},"arguments":{"do":"params","task":1}}`)
	if got := string(frame.Get(m.Result, "structuredContent")); got != `{"name":"echo","arguments":{"do":"params","task":1}}` {
		t.Errorf("a call as a task: %s", got)
	}
	// What would have clients refuse the whole list is not in it, and is nothing
	// to call.
	left := fmt.Sprint(h.hub.States()[0].LeftOut)
	for tool, why := range map[string]string{"odd": `its inputSchema.type is ["object","null"], and must be "object"`, "task": "it is only run as a task"} {
		if !strings.Contains(left, `the tool "`+tool+`": its `) || !strings.Contains(left, why) {
			t.Errorf("left out are %s", left)
		}
		if m := c.call("good__"+tool, ""); m.Error == nil {
			t.Errorf("%s is answered: %s", tool, m.Raw)
		}
	}
	if st := h.hub.States()[0]; st.Tools != 2 || len(st.LeftOut) != 2 {
		t.Errorf("it is %+v", st)
	}
	for tool, want := range map[string]bool{"good__echo": false, "good__nothing": false, "good__do_it_now_ade6c772": true} {
		if h.hub.Harmless(tool) != want {
			t.Errorf("%s may run twice: %v", tool, !want)
		}
	}
	if got := c.call("good__nothing", ""); got.Error == nil {
		t.Errorf("a tool that is not there: %s", got.Raw)
	}
	if got := text(c.call("good__echo", `"do":"cwd"`)); got != h.dir {
		t.Errorf("it works in %s", got)
	}
	if got := text(c.call("good__echo", `"do":"roots"`)); !strings.Contains(got, `"uri":"file://`+h.dir+`"`) {
		t.Errorf("its roots are %s", got)
	}
}

// All clients share one process, and equal ids and tokens of theirs do not meet.
func TestOneProcessForAll(t *testing.T) {
	h := settle(t, "good")
	var wg sync.WaitGroup
	pids := make([]string, 8)
	for i := range pids {
		c := h.client()
		wg.Go(func() {
			pids[i] = text(c.call("good__echo", `"do":"pid"`))
			for n := range 20 {
				want := fmt.Sprintf(`{"c":%d,"n":%d}`, i, n)
				if got := text(c.call("good__echo", want[1:len(want)-1])); got != want {
					t.Errorf("asked %s, answered %s", want, got)
				}
			}
		})
	}
	wg.Wait()
	for _, pid := range pids {
		if pid != pids[0] || pid == "" {
			t.Fatalf("processes %q", pids)
		}
	}
}

func TestProcessesOfOneClient(t *testing.T) {
	h := settle(t, "good/session")
	one, two := h.client(), h.client()
	a, b := text(one.call("good__echo", `"do":"pid"`)), text(two.call("good__echo", `"do":"pid"`))
	if a == b || text(one.call("good__echo", `"do":"pid"`)) != a {
		t.Errorf("processes %s and %s", a, b)
	}
	one.conn.Close()
	eventually(t, "the first one's process has ended", func() bool {
		for _, p := range h.hub.States()[0].Processes {
			if fmt.Sprint(p.PID) == a {
				return false
			}
		}
		return true
	})
	if got := text(two.call("good__echo", `"do":"pid"`)); got != b {
		t.Errorf("the second one's is now %s", got)
	}
}

func TestProgressOfHostedServers(t *testing.T) {
	h := settle(t, "good")
	c, other := h.client(), h.client()
	id := c.send("tools/call", `{"name":"good__echo","arguments":{"do":"progress"},"_meta":{"progressToken":"t<1>"}}`)
	if got := text(other.call("good__echo", `"a":1`)); got != `{"a":1}` { // while c reads nothing
		t.Errorf("beside them: %s", got)
	}
	c.answer(id)
	var notes []string
	for _, n := range c.notes {
		if strings.Contains(n, "notifications/progress") {
			notes = append(notes, n)
		}
	}
	if len(notes) == 0 || notes[len(notes)-1] != `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t<1>","progress":99999,"odd":1e2}}` {
		t.Errorf("%d notes, the last %q", len(notes), notes)
	}
}

func TestQuestionsOfHostedServers(t *testing.T) {
	h := settle(t, "good")
	c := h.client()
	id := c.send("tools/call", `{"name":"good__echo","arguments":{"do":"elicit"}}`)
	for {
		m := c.hear()
		if m.Name() == "elicitation/create" {
			c.say(string(frame.Result(m.ID, []byte(`{"action":"accept","content":{"n":1e2}}`))))
			break
		}
	}
	if got := text(c.answer(id)); got != `{"jsonrpc":"2.0","id":"q0","result":{"action":"accept","content":{"n":1e2}}}` {
		t.Errorf("it was answered %s", got)
	}
	// It has asked once: others wait for their turn, so that it is certain whom
	// it means.
	other := h.client()
	id = c.send("tools/call", `{"name":"good__echo","arguments":{"do":"elicit"}}`)
	var q frame.Message
	for q.Name() != "elicitation/create" {
		q = c.hear()
	}
	waiting := other.send("tools/call", `{"name":"good__echo","arguments":{"do":"pid"}}`)
	other.ask("ping", "{}") // nobody else waits
	c.say(string(frame.Result(q.ID, []byte(`{"action":"decline"}`))))
	if got := text(c.answer(id)); !strings.Contains(got, "decline") {
		t.Error(got)
	}
	if got := text(other.answer(waiting)); got == "" {
		t.Error("the other one is not answered")
	}
}

func TestListsOfHostedServersChange(t *testing.T) {
	h := settle(t, "good")
	c := h.client()
	c.ask("tools/list", "{}")
	c.call("good__echo", `"do":"more"`)
	eventually(t, "the new tool is listed", func() bool {
		return strings.Contains(string(c.ask("tools/list", "{}").Result), `"good__another"`)
	})
	eventually(t, "the client is told", func() bool {
		c.ask("ping", "{}")
		return strings.Contains(strings.Join(c.notes, "\n"), "notifications/tools/list_changed")
	})
}

// kept is the file with the catalogue of good, if there is one.
func (h *house) kept() string {
	names, _ := filepath.Glob(filepath.Join(h.dir, "catalogue", "good__-*.json")) // ignore error: the pattern is good
	if len(names) != 1 {
		return ""
	}
	return names[0]
}

// What was kept of the last time is listed before anything is started.
func TestKeptCatalogue(t *testing.T) {
	h := settle(t, "good")
	h.client().ask("tools/list", "{}")
	eventually(t, "the catalogue is kept", func() bool { return h.kept() != "" })
	h.close()
	again := &house{t: t, dir: h.dir}
	again.host("good")
	again.open()
	if n, _, _ := again.hub.Counts(); n != 2 {
		t.Errorf("%d tools are known", n)
	}
	if st := again.hub.States()[0]; st.State != "stopped" || len(st.Processes) != 0 {
		t.Errorf("it is %+v", st)
	}
	// A client that is there to stay has it started, behind its first lists.
	again.client()
	eventually(t, "it is up without a call", func() bool { return again.hub.States()[0].State == "ready" })

	// So is what it came to offer later.
	again.client().call("good__echo", `"do":"more"`)
	eventually(t, "the new tool is listed", func() bool { n, _, _ := again.hub.Counts(); return n == 3 })
	again.close()
	third := &house{t: t, dir: h.dir}
	third.host("good")
	third.open()
	if n, _, _ := third.hub.Counts(); n != 3 {
		t.Errorf("%d tools are known of the last time", n)
	}
}

func TestDeathDuringACall(t *testing.T) {
	h := settle(t, "good")
	c := h.client()
	before := text(c.call("good__echo", `"do":"pid"`))
	waiting := c.send("tools/call", `{"name":"good__echo","arguments":{"do":"wait","for":"1m"}}`)
	if got := c.call("good__echo", `"do":"die"`); !strings.Contains(string(got.Error), "upstream_failed") {
		t.Errorf("the call that killed it: %s", got.Raw)
	}
	if got := c.answer(waiting); !strings.Contains(string(got.Error), "not known") {
		t.Errorf("the call beside it: %s", got.Raw)
	}
	if got := c.call("good__echo", `"do":"pid"`); !strings.Contains(string(got.Error), "started again") {
		t.Errorf("at once: %s", got.Raw)
	}
	eventually(t, "it is back", func() bool {
		got := text(c.call("good__echo", `"do":"pid"`))
		return got != before && !strings.Contains(got, "error")
	})
}

// TestNoMoreDuringACall takes a server out of the file while calls are in flight
// there: a client of either era is told that they may have been run.
func TestNoMoreDuringACall(t *testing.T) {
	h := settle(t, "log")
	c, modern := h.client(), h.stateless()
	const wait = `"name":"log__echo","arguments":{"do":"wait","for":"1m"}`
	ids := []string{c.send("tools/call", "{"+wait+"}"), modern.send("tools/call", "{"+wait+","+statelessMeta+"}")}
	eventually(t, "both run", func() bool { return strings.Count(h.log("log"), `"1m"`) == 2 })
	h.host()
	h.hub.Look()
	for i, m := range []frame.Message{c.answer(ids[0]), modern.answer(ids[1])} {
		if got := string(m.Error); !strings.Contains(got, "not known") || !strings.Contains(got, `"code":"upstream_`) {
			t.Errorf("client %d is told %s", i, m.Raw)
		}
	}
}

func TestCancelledCall(t *testing.T) {
	h := settle(t, "log")
	c := h.client()
	id := c.send("tools/call", `{"name":"log__echo","arguments":{"do":"wait","for":"1m"}}`)
	eventually(t, "it runs", func() bool { return h.hub.States()[0].Calls == 1 && strings.Contains(h.log("log"), `"1m"`) })
	c.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}`)
	eventually(t, "the server is told", func() bool { return strings.Contains(h.log("log"), "notifications/cancelled") })
	c.ask("ping", "{}")
	if got := text(c.call("log__echo", `"a":1`)); got != `{"a":1}` {
		t.Error(got)
	}
}

func (h *house) log(name string) string {
	b, err := os.ReadFile(filepath.Join(h.dir, "upstream-"+name+".log"))
	if err != nil {
		return ""
	}
	return string(b)
}

// TestFileThatCannotBeRead has the file with what is hosted be one that cannot be
// read just now, and then one that is no good: only that ends what it named.
func TestFileThatCannotBeRead(t *testing.T) {
	h := settle(t, "good")
	c := h.client()
	pid := text(c.call("good__echo", `"do":"pid"`))
	waiting := c.send("tools/call", `{"name":"good__echo","arguments":{"do":"wait","for":"200ms"}}`)
	for _, err := range []error{syscall.EMFILE, syscall.EIO, nil} {
		h.mu.Lock()
		h.err = err
		if err != nil {
			h.err = fmt.Errorf("reading the servers file: %w", &fs.PathError{Op: "open", Path: "mcp.json", Err: err})
		}
		h.mu.Unlock()
		h.hub.Look()
		if got := text(c.call("good__echo", `"do":"pid"`)); got != pid {
			t.Errorf("%v: it runs in %s now, not %s", err, got, pid)
		}
	}
	if got := text(c.answer(waiting)); got != "waited" {
		t.Errorf("a call in flight: %s", got)
	}
	h.mu.Lock()
	h.err = errors.New("mcp.json: line 1 is no JSON")
	h.mu.Unlock()
	h.hub.Look()
	if got := c.call("good__echo", ""); got.Error == nil {
		t.Errorf("without a file: %s", got.Raw)
	}
}

func TestFileChanges(t *testing.T) {
	h := settle(t, "good", "log")
	c := h.client()
	pid := text(c.call("good__echo", `"do":"pid"`))
	h.host("good", "new=good")
	h.hub.Look()
	if got := text(c.call("good__echo", `"do":"pid"`)); got != pid {
		t.Errorf("an entry that did not change runs in %s now, not %s", got, pid)
	}
	if got := c.call("log__echo", ""); got.Error == nil {
		t.Errorf("an entry that is gone: %s", got.Raw)
	}
	eventually(t, "the new one is there", func() bool {
		return strings.Contains(string(c.ask("tools/list", "{}").Result), "new__echo")
	})
	h.mu.Lock()
	h.err = fmt.Errorf("not trusted")
	h.mu.Unlock()
	h.hub.Look()
	if got := c.call("good__echo", ""); got.Error == nil {
		t.Errorf("without trust: %s", got.Raw)
	}
	eventually(t, "nothing runs", func() bool { return len(h.hub.States()) == 0 })
}

// What a look at the file brings or takes away, clients are told of at once:
// also what was kept of the last time, of which a server that starts says
// nothing new.
func TestLooksAreTold(t *testing.T) {
	h := settle(t, "good")
	h.client().ask("tools/list", "{}")
	eventually(t, "the catalogue is kept", func() bool { return h.kept() != "" })
	h.close()
	again := &house{t: t, dir: h.dir, err: &fs.PathError{Op: "open", Path: "mcp.json", Err: syscall.EMFILE}}
	again.host("good")
	again.open()
	c := again.client()
	look := func(want int) {
		t.Helper()
		again.mu.Lock()
		again.err, again.changes = nil, nil
		again.mu.Unlock()
		again.hub.Look()
		again.mu.Lock()
		changes := strings.Join(again.changes, " ")
		again.mu.Unlock()
		if changes != "tools prompts resources" {
			t.Errorf("told of %q", changes)
		}
		if n, _, _ := again.hub.Counts(); n != want {
			t.Errorf("%d tools are listed, not %d", n, want)
		}
		c.notes = nil
		eventually(t, "the client is told", func() bool {
			c.ask("ping", "{}")
			return strings.Contains(strings.Join(c.notes, "\n"), "notifications/tools/list_changed")
		})
	}
	look(2)
	again.host()
	look(0)
}

// A client has other calls in flight when it is asked: the question outlives
// them, and in the era without sessions it answers the call that it is of.
func TestQuestionsBesideOtherCalls(t *testing.T) {
	h := settle(t, "good")
	c := h.client()
	for range 8 { // which of the calls the hub takes it for is chance
		beside := c.send("tools/call", `{"name":"good__echo","arguments":{"do":"wait","for":"50ms"}}`)
		asks := c.send("tools/call", `{"name":"good__echo","arguments":{"do":"elicit"}}`)
		q := c.hear()
		for q.Name() != "elicitation/create" {
			if q.IsResponse() {
				t.Fatalf("answered before it was asked: %s", q.Raw)
			}
			q = c.hear()
		}
		if got := text(c.answer(beside)); got != "waited" {
			t.Fatal(got)
		}
		c.say(string(frame.Result(q.ID, []byte(`{"action":"decline"}`))))
		if got := text(c.answer(asks)); !strings.Contains(got, `"action":"decline"`) {
			t.Fatalf("the question ended with another call: %s", got)
		}
	}
	modern := h.stateless()
	call := func(args string) string {
		return modern.send("tools/call", `{"name":"good__echo","arguments":{`+args+`},`+statelessMeta+`}`)
	}
	for range 8 {
		before, asks := call(`"do":"wait","for":"20ms"`), call(`"do":"elicit"`)
		if m := modern.answer(asks); textAt(m.Result, "resultType") != "input_required" {
			t.Fatalf("what asks was answered %s", m.Raw)
		} else {
			// A person is asked, and may take long: nobody waits for that.
			for _, x := range []*client{modern, c} {
				if got := text(x.ask("tools/call", `{"name":"good__echo","arguments":{"a":1},`+statelessMeta+`}`)); got != `{"a":1}` {
					t.Fatalf("while a person is asked: %s", got)
				}
			}
			m = modern.ask("tools/call", `{"name":"good__echo","arguments":{"do":"elicit"},"requestState":`+string(frame.Get(m.Result, "requestState"))+`,"inputResponses":{"question":{"action":"decline"}},`+statelessMeta+`}`)
			if got := text(m); !strings.Contains(got, `"action":"decline"`) {
				t.Fatalf("in the end: %s", got)
			}
		}
		if got := text(modern.answer(before)); got != "waited" {
			t.Fatalf("beside a question: %q", got)
		}
	}
}

// Log lines are for the client in whose call they are said, if it wants them.
func TestLogLines(t *testing.T) {
	h := settle(t, "good")
	c, other := h.client(), h.client()
	log := func(level string) {
		t.Helper()
		if got := text(c.call("good__echo", `"do":"log","level":"`+level+`"`)); got != "logged" {
			t.Fatal(got)
		}
	}
	heard := func(c *client) (levels string) {
		for _, note := range c.notes {
			if strings.Contains(note, `"notifications/message"`) {
				levels += textAt([]byte(note), "params", "level") + " "
			}
		}
		return levels
	}
	log("debug") // it has not said how much it wants
	c.ask("logging/setLevel", `{"level":"warning"}`)
	log("info")
	log("error")
	eventually(t, "it hears", func() bool { c.ask("ping", "{}"); return strings.Contains(heard(c), "error") })
	other.ask("ping", "{}")
	if got := heard(c); got != "debug error " || heard(other) != "" {
		t.Errorf("it heard %q, another %q", got, heard(other))
	}
}

// A name that came into being with the last answer is known, although the list
// that has it is still being read.
func TestNamesThatCameWithAnAnswer(t *testing.T) {
	h := settle(t, "good")
	c := h.client()
	for n := range 20 {
		m := c.call("good__echo", fmt.Sprintf(`"do":"create","n":%d`, n))
		uri := text(m)
		if got := string(c.ask("resources/read", `{"uri":"`+uri+`"}`).Result); !strings.Contains(got, "read by good") {
			t.Fatalf("%s: %s", uri, got)
		}
	}
}

// What a client of the era without sessions needs in an answer, and a server of
// an older one does not say.
func TestAnswersInTheClientsEra(t *testing.T) {
	h := settle(t, "good")
	m := h.stateless().ask("resources/read", `{"uri":"test://good/one",`+statelessMeta+`}`)
	for member, want := range map[string]string{"resultType": `"complete"`, "ttlMs": "0", "cacheScope": `"private"`} {
		if got := string(frame.Get(m.Result, member)); got != want {
			t.Errorf("%s is %q in %s", member, got, m.Raw)
		}
	}
	if m := h.client().ask("resources/read", `{"uri":"test://good/one"}`); strings.Contains(string(m.Raw), "resultType") || strings.Contains(string(m.Raw), "ttlMs") {
		t.Errorf("in the older era: %s", m.Raw)
	}
}

// What a request of the era without sessions says of its client is not for a
// server that shook hands: all else of it passes, and no empty shell is left.
func TestWhatARequestSaysOfItsClient(t *testing.T) {
	h := settle(t, "good")
	c := h.stateless()
	for meta, want := range map[string]string{
		statelessMeta: `{"name":"echo", "arguments":{"do":"params","n": 1e2}}`,
		strings.Replace(statelessMeta, `{`, `{ "own":0.10 , `, 1):   `{"name":"echo", "arguments":{"do":"params","n": 1e2},"_meta":{ "own":0.10}}`,
		strings.TrimSuffix(statelessMeta, `}`) + `, "own": [ 1 ] }`: `{"name":"echo", "arguments":{"do":"params","n": 1e2},"_meta":{"own": [ 1 ] }}`,
	} {
		m := c.ask("tools/call", `{"name":"good__echo", "arguments":{"do":"params","n": 1e2},`+meta+`}`)
		if got := string(frame.Get(m.Result, "structuredContent")); got != want {
			t.Errorf("it was asked %s, want %s", got, want)
		}
	}
}

// A client of the era without sessions is not asked: its call is answered with
// the question, and sent again with the answer.
func TestInputRequired(t *testing.T) {
	h := settle(t, "log")
	c := h.stateless()
	ask := func(params string) frame.Message {
		t.Helper()
		return c.ask("tools/call", `{"name":"log__echo","arguments":{"do":"elicit"},`+params+statelessMeta+`}`)
	}
	state := func(m frame.Message) string {
		t.Helper()
		if textAt(m.Result, "resultType") != "input_required" ||
			string(frame.Get(m.Result, "inputRequests")) != `{"question":{"method":"elicitation/create","params":{"message":"well?","requestedSchema":{"type":"object","properties":{}}}}}` {
			t.Fatalf("answered %s", m.Raw)
		}
		return string(frame.Get(m.Result, "requestState"))
	}
	first := state(ask(""))
	m := ask(`"requestState":` + first + `,"inputResponses":{"question":{"action":"accept","content":{"n":1e2}}},`)
	if got := text(m); got != `{"jsonrpc":"2.0","id":"q0","result":{"action":"accept","content":{"n":1e2}}}` || textAt(m.Result, "resultType") != "complete" {
		t.Errorf("in the end: %s", m.Raw)
	}
	if n := strings.Count(h.log("log"), `"method":"tools/call"`); n != 1 {
		t.Errorf("the hosted server was called %d times", n)
	}
	// An old state is none: the call is a new one.
	second := state(ask(`"requestState":` + first + `,"inputResponses":{"question":{}},`))
	if m := ask(`"requestState":` + second + `,"inputResponses":{"other":{}},`); !strings.Contains(string(m.Error), "inputResponses.question") {
		t.Errorf("without an answer: %s", m.Raw)
	}
	eventually(t, "nothing waits there", func() bool { return strings.Count(h.log("log"), "did not come back") > 0 })
	if got := text(c.ask("tools/call", `{"name":"log__echo","arguments":{"a":1},`+statelessMeta+`}`)); got != `{"a":1}` {
		t.Errorf("afterwards: %s", got)
	}
	// Who does not answer such things is not asked.
	m = c.ask("tools/call", `{"name":"log__echo","arguments":{"do":"elicit"},`+strings.Replace(statelessMeta, `"elicitation":{}`, "", 1)+`}`)
	if got := text(m); !strings.Contains(got, "did not declare") {
		t.Errorf("a client that is not able: %s", got)
	}
}

// Several watch one resource of a server that they share: it is told once they
// all have gone, and told again when it was started anew.
func TestWatchingResources(t *testing.T) {
	h := settle(t, "log")
	one, two := h.client(), h.client()
	const uri = "test://log/one"
	updated := func(c *client) {
		t.Helper()
		eventually(t, "the client is told", func() bool {
			c.ask("ping", "{}")
			return strings.Contains(strings.Join(c.notes, "\n"), `"method":"notifications/resources/updated","params":{"uri":"`+uri+`"}`)
		})
		c.notes = nil
	}
	for _, c := range []*client{one, two} {
		if m := c.ask("resources/subscribe", `{"uri":"`+uri+`"}`); m.Error != nil {
			t.Fatal(string(m.Raw))
		}
	}
	updated(one)
	updated(two)
	said := func(what string) int { return strings.Count(h.log("log"), what) }
	if m := one.ask("resources/unsubscribe", `{"uri":"`+uri+`"}`); m.Error != nil || said("resources/unsubscribe") != 0 {
		t.Errorf("one of two went: %s, and the server was told %d times", m.Raw, said("resources/unsubscribe"))
	}
	one.ask("ping", "{}")
	one.notes = nil
	one.call("log__echo", `"do":"die"`)
	before := said("resources/subscribe")
	eventually(t, "it is back, and knows who watches", func() bool {
		one.call("log__echo", "")
		return said("resources/subscribe") > before
	})
	updated(two)
	if len(one.notes) > 0 && strings.Contains(strings.Join(one.notes, "\n"), "updated") {
		t.Error("the one that went is told")
	}
	two.conn.Close()
	eventually(t, "nobody watches", func() bool { return said("resources/unsubscribe") == 1 })
}

// Of a server that each client has for itself, each watches its own: what one
// does is told to no other process, and what one process says to no other client,
// also after a restart.
func TestWatchingResourcesOfOnesOwn(t *testing.T) {
	h := settle(t, "log/session")
	const uri = "test://log/one"
	subscribed := `"notifications/resources/updated","params":{"uri":"` + uri + `"`
	clients := []*client{h.client(), h.client(), h.stateless()}
	args := []string{"", "", "," + statelessMeta}
	pids := make([]string, 3)
	for i, c := range clients {
		c.ask("resources/list", `{"n":0`+args[i]+`}`)
		pids[i] = text(c.ask("tools/call", `{"name":"log__echo","arguments":{"do":"pid"}`+args[i]+`}`))
	}
	// told is how many processes were told the method, in this order.
	told := func(method string) (by []string) {
		for line := range strings.Lines(h.log("log")) {
			if strings.Contains(line, `"method":"`+method+`"`) {
				_, pid, _ := strings.Cut(strings.TrimSpace(line), " by ")
				by = append(by, pid)
			}
		}
		return by
	}
	heard := func(i int) int {
		clients[i].ask("resources/list", `{"n":0`+args[i]+`}`)
		n := strings.Count(strings.Join(clients[i].notes, "\n"), subscribed)
		clients[i].notes = nil
		return n
	}
	hears := func(i int) {
		t.Helper()
		eventually(t, "the client hears", func() bool { return heard(i) > 0 })
		for other := range clients {
			if other != i && heard(other) > 0 {
				t.Errorf("client %d hears what client %d watches", other, i)
			}
		}
	}
	change := func(i int) {
		t.Helper()
		if m := clients[i].ask("tools/call", `{"name":"log__echo","arguments":{"do":"update","uri":"`+uri+`"}`+args[i]+`}`); m.Error != nil {
			t.Fatal(string(m.Raw))
		}
	}
	listen := ""
	for i, c := range clients {
		if i < 2 {
			c.ask("resources/subscribe", `{"uri":"`+uri+`"}`)
		} else {
			listen = c.send("subscriptions/listen", `{"notifications":{"resourceSubscriptions":["`+uri+`"]}`+args[i]+`}`)
		}
		hears(i) // the server says so at once
		// Its log is written on the way, and may come behind its word.
		eventually(t, "the process notes it", func() bool { return len(told("resources/subscribe")) > i })
		if by := told("resources/subscribe"); !slices.Equal(by, pids[:i+1]) {
			t.Fatalf("subscribed at %q, of %q", by, pids)
		}
	}
	for i := range clients {
		change(i)
		hears(i)
	}
	// One that goes away from it tells its own, though others stay.
	clients[0].ask("resources/unsubscribe", `{"uri":"`+uri+`"}`)
	clients[2].say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + listen + `}}`)
	eventually(t, "both processes are told", func() bool { return len(told("resources/unsubscribe")) == 2 })
	if by := told("resources/unsubscribe"); !slices.Equal(by, []string{pids[0], pids[2]}) {
		t.Errorf("unsubscribed at %q, of %q", by, pids)
	}
	change(1)
	hears(1)
	// Started anew it knows of its own client, and comes back for that alone.
	before, running := len(told("resources/subscribe")), len(h.hub.States()[0].Processes)
	clients[1].call("log__echo", `"do":"die"`)
	clients[0].call("log__echo", `"do":"die"`)
	hears(1)
	eventually(t, "the new process notes it", func() bool { return len(told("resources/subscribe")) > before })
	if n := len(told("resources/subscribe")) - before; n != 1 {
		t.Errorf("%d were told anew who watches", n)
	}
	if n := len(h.hub.States()[0].Processes); n != running-1 {
		t.Errorf("%d processes run of %d, one of which nobody watches at", n, running)
	}
}

func TestListensWatchResources(t *testing.T) {
	h := settle(t, "log")
	c := h.stateless()
	const uri = "test://log/one"
	c.ask("resources/list", `{`+statelessMeta+`}`)
	id := c.send("subscriptions/listen", `{"notifications":{"resourceSubscriptions":["`+uri+`"]},`+statelessMeta+`}`)
	eventually(t, "the listen is told", func() bool {
		c.ask("resources/list", `{`+statelessMeta+`}`)
		return strings.Contains(strings.Join(c.notes, "\n"), `"notifications/resources/updated"`)
	})
	c.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}`)
	eventually(t, "nobody watches", func() bool { return strings.Contains(h.log("log"), "resources/unsubscribe") })
}

// A server that several share logs as much as the one who wants the most.
func TestLogLevels(t *testing.T) {
	h := settle(t, "log")
	one, two := h.client(), h.client()
	one.call("log__echo", "")
	last := func(want string) {
		t.Helper()
		eventually(t, "the server is told "+want, func() bool {
			all := strings.Split(h.log("log"), "\n")
			for i := len(all) - 1; i >= 0; i-- {
				if strings.Contains(all[i], "logging/setLevel") {
					return strings.Contains(all[i], `"level":"`+want+`"`)
				}
			}
			return false
		})
	}
	one.ask("logging/setLevel", `{"level":"warning"}`)
	last("warning")
	two.ask("logging/setLevel", `{"level":"debug"}`)
	last("debug")
	two.ask("logging/setLevel", `{"level":"emergency"}`)
	last("warning")
	two.call("log__echo", `"do":"log","level":"error"`)
	one.call("log__echo", `"do":"log","level":"error"`)
	two.ask("ping", "{}")
	one.ask("ping", "{}")
	if strings.Contains(strings.Join(two.notes, "\n"), "something") {
		t.Error("a line that is not wanted is told")
	}
	eventually(t, "the other one is told", func() bool {
		one.ask("ping", "{}")
		return strings.Contains(strings.Join(one.notes, "\n"), "something")
	})
}

// One client does not take all the room there is in a server that others share.
func TestBounds(t *testing.T) {
	h := settle(t, "good")
	one, two := h.client(), h.client()
	one.call("good__echo", "")
	var ids []string
	for range 129 {
		ids = append(ids, one.send("tools/call", `{"name":"good__echo","arguments":{"do":"wait","for":"2s"}}`))
	}
	if got := text(two.call("good__echo", `"a":1`)); got != `{"a":1}` {
		t.Errorf("another client: %s", got)
	}
	refused := 0
	for _, id := range ids { // they may overtake each other on their way
		switch m := one.answer(id); {
		case strings.Contains(string(m.Error), "too_many_calls"):
			refused++
		case m.Error != nil:
			t.Errorf("answered %s", m.Raw)
		}
	}
	if refused != 1 {
		t.Errorf("of one too many, %d were refused", refused)
	}
	if got := text(one.call("good__echo", `"a":1`)); got != `{"a":1}` {
		t.Errorf("afterwards: %s", got)
	}
}
