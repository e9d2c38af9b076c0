package hub_test

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"majordomus/bridge/frame"
	"majordomus/server/hub"
)

// What keeps a server from being used is said in its own words, and nothing of it
// runs on.
func TestServersThatRefuse(t *testing.T) {
	for kind, want := range map[string]string{
		"refuses":  `it answered initialize with an error: {"code":-32099,"message":"not today"}`,
		"nolist":   "listing tools: the hosted server answered with something else than a list",
		"unlisted": `listing prompts: the hosted server answered {"code":-32099,"message":"the shelf is empty"}`,
	} {
		t.Run(kind, func(t *testing.T) {
			h := settle(t, kind)
			h.client().ask("tools/list", "{}")
			if st := h.hub.States()[0]; st.State != "failed" || !strings.Contains(st.LastError, want) || len(st.Processes) != 0 {
				t.Errorf("it is %+v", st)
			}
		})
	}
}

// A hosted server's questions that are none of a client's are answered by the
// hub, with an error where there is no answer.
func TestOddQuestionsOfHostedServers(t *testing.T) {
	h := settle(t, "good")
	c := h.client()
	for method, want := range map[string]string{
		"ping": `"result":{}`, "tasks/get": `"error":{"code":-32601,"message":"this client does not answer tasks/get"}`,
	} {
		if got := text(c.call("good__echo", `"do":"asks","method":"`+method+`"`)); !strings.Contains(got, want) {
			t.Errorf("%s is answered %s", method, got)
		}
	}
}

// Two tools of one server that would be shown under one name are shown under
// two, and each is called by its own.
func TestNamesThatMeet(t *testing.T) {
	h := settle(t, "clash")
	c := h.client()
	var names []string
	frame.Elements(frame.Get(c.ask("tools/list", "{}").Result, "tools"), func(raw []byte) bool {
		names = append(names, textAt(raw, "name"))
		return true
	})
	if len(names) != 2 || names[0] != "clash__"+clashing || names[1] == names[0] || !strings.HasPrefix(names[1], "clash__do_it_now_") {
		t.Fatalf("shown are %q", names)
	}
	for i, want := range []string{clashing, "do.it now"} {
		if m := c.call(names[i], `"do":"params"`); textAt(m.Result, "structuredContent", "name") != want {
			t.Errorf("%s: %s", names[i], m.Raw)
		}
	}
}

// What a server does not let be watched, nobody watches.
func TestWatchingIsRefused(t *testing.T) {
	h := settle(t, "shy")
	c := h.client()
	c.ask("resources/list", "{}")
	if m := c.ask("resources/subscribe", `{"uri":"test://shy/one"}`); !strings.Contains(string(m.Error), "do not look") {
		t.Errorf("answered %s", m.Raw)
	}
	c.call("shy__echo", `"do":"update","uri":"test://shy/one"`)
	c.ask("ping", "{}")
	if i := slices.IndexFunc(c.notes, func(n string) bool { return strings.Contains(n, "resources/updated") }); i >= 0 {
		t.Errorf("it is told all the same: %s", c.notes[i])
	}
	if m := c.ask("logging/setLevel", `{"level":"shouting"}`); m.Error == nil {
		t.Errorf("a level that is none: %s", m.Raw)
	}
}

// A log line that is said while several clients have calls in flight is of none
// of them, and told to none.
func TestLogLinesOfNobody(t *testing.T) {
	h := settle(t, "good")
	c, other := h.client(), h.client()
	for _, c := range []*client{c, other} {
		c.ask("logging/setLevel", `{"level":"debug"}`)
	}
	c.call("good__echo", `"do":"log"`)
	eventually(t, "its own line is told", func() bool {
		c.ask("ping", "{}")
		return strings.Contains(strings.Join(c.notes, "\n"), "notifications/message")
	})
	c.notes, other.notes = nil, nil
	held := other.send("tools/call", `{"name":"good__echo","arguments":{"do":"hold"}}`)
	eventually(t, "it is in flight", func() bool { return h.hub.Standing()[0].Calls == 2 })
	c.call("good__echo", `"do":"log"`)
	if err := os.WriteFile(filepath.Join(h.dir, "let"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	other.answer(held)
	for _, c := range []*client{c, other} {
		c.ask("ping", "{}")
		if i := slices.IndexFunc(c.notes, func(n string) bool { return strings.Contains(n, "notifications/message") }); i >= 0 {
			t.Errorf("somebody is told %s", c.notes[i])
		}
	}
}

// What people are told of tools whose names are too long is how they are shown.
func TestKeptToolsOfALongName(t *testing.T) {
	name := strings.Repeat("n", 40)
	h := settle(t, name+"=good")
	h.client().ask("tools/list", "{}")
	var cut map[string]string
	eventually(t, "the catalogue is kept", func() (ok bool) {
		_, cut, ok = hub.KeptTools(filepath.Join(h.dir, "catalogue"), h.file.Servers[0])
		return ok
	})
	shown := cut["do.it now"]
	if _, plain := cut["echo"]; plain || len(shown) != 47 || !strings.Contains(string(h.client().ask("tools/list", "{}").Result), `"`+shown+`"`) {
		t.Errorf("cut are %v", cut)
	}
}

// What a server's processes take is told where the system tells it.
func TestMeasured(t *testing.T) {
	h := settle(t, "good")
	h.client().call("good__echo", "")
	if st := h.hub.States()[0]; len(st.Processes) != 1 || st.Processes[0].Memory != 0 {
		t.Errorf("unasked: %+v", st.Processes)
	}
	if st := h.hub.Measured()[0]; runtime.GOOS == "linux" && (len(st.Processes) != 1 || st.Processes[0].Memory < 1<<20) {
		t.Errorf("asked: %+v", st.Processes)
	}
}
