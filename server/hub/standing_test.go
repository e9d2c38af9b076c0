package hub_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"majordomus/bridge/frame"
	"majordomus/server/hub"
	"majordomus/server/hub/config"
)

// What people and other parts of the server are told of what is hosted.
func TestStanding(t *testing.T) {
	h := settle(t, "good", "dead", "two=good")
	standing := func(name string) hub.Standing {
		for _, s := range h.hub.Standing() {
			if s.Name == name {
				return s
			}
		}
		t.Fatalf("%s does not stand anywhere", name)
		return hub.Standing{}
	}
	if names := h.hub.Standing(); !slices.IsSortedFunc(names, func(a, b hub.Standing) int { return strings.Compare(a.Name, b.Name) }) || len(names) != 3 {
		t.Errorf("%+v", names)
	}
	c := h.client()
	pid := text(c.call("good__echo", `"do":"pid"`))
	c.call("good__echo", `"do":"fail"`)
	eventually(t, "the dead one has failed", func() bool { return standing("dead").State == "failed" })
	if s := standing("good"); s.State != "ready" || s.Starts != 1 || s.Calls != 2 || s.Errors != 0 && s.Errors != 1 {
		t.Errorf("%+v", s)
	}
	for tool, want := range map[string]string{"good__echo": "good false", "good__do_it_now_ade6c772": "good true", "good__none": " false"} {
		if upstream, reads := h.hub.Tool(tool); upstream+map[bool]string{true: " true", false: " false"}[reads] != want {
			t.Errorf("%s is of %q, and reads: %v", tool, upstream, reads)
		}
	}
	if names, cut, ok := hub.KeptTools(filepath.Join(h.dir, "catalogue"), h.file.Servers[0]); !ok || len(cut) != 0 || !slices.Contains(names, "do.it now") {
		t.Errorf("kept are %v, %v, %v", names, cut, ok)
	}
	some := h.file.Servers[0]
	some.Tools = []string{"echo"}
	if names, _, ok := hub.KeptTools(filepath.Join(h.dir, "catalogue"), some); ok && !slices.Equal(names, []string{"echo"}) {
		t.Errorf("of one that may be shown: %v", names)
	}
	if _, _, ok := hub.KeptTools(filepath.Join(h.dir, "catalogue"), config.Server{Name: "nobody"}); ok {
		t.Error("kept of nobody")
	}

	// Two that offer one resource: who looks for the reason is told.
	problems, clashes, err := h.hub.Trouble()
	for range 200 {
		if len(clashes) == 0 {
			c.ask("resources/list", "{}")
			time.Sleep(5 * time.Millisecond)
			problems, clashes, err = h.hub.Trouble()
		}
	}
	if err != nil || len(problems) != 0 || !slices.Contains(clashes, "test://good/one is offered by good and two; the first answers") {
		t.Errorf("trouble: %v, %v, %v", problems, clashes, err)
	}

	before := h.hub.Fingerprint()
	if !h.hub.Restart("good") || h.hub.Restart("nobody") {
		t.Error("restarted what is not there, or not what is")
	}
	eventually(t, "another process is up", func() bool { return standing("good").State == "ready" })
	if got := text(c.call("good__echo", `"do":"pid"`)); got == pid || strings.Contains(got, "error") {
		t.Errorf("after the restart it is %s", got)
	}
	if h.hub.Fingerprint() != before {
		t.Error("a restart changed what is offered")
	}
	c.call("good__echo", `"do":"more"`)
	eventually(t, "something else is offered", func() bool { return h.hub.Fingerprint() != before })

	h.mu.Lock()
	h.err = errors.New("not trusted")
	h.mu.Unlock()
	h.hub.Look()
	if _, _, err := h.hub.Trouble(); err == nil || err.Error() != "not trusted" {
		t.Errorf("the trouble is %v", err)
	}
}

// What is completed goes to the server whose prompt or template it is, under
// the name that it knows.
func TestCompletion(t *testing.T) {
	h := settle(t, "good", "log")
	c := h.client()
	c.ask("tools/list", "{}")
	c.ask("prompts/list", "{}")
	for ref, want := range map[string]string{
		`{"type":"ref/prompt","name":"good__hello"}`:                `{"type":"ref/prompt","name":"hello"}`,
		`{"type":"ref/resource","uri":"test://good/by/{id}"}`:       `{"type":"ref/resource","uri":"test://good/by/{id}"}`,
		`{"type":"ref/resource","uri":"test://good/one","odd":1e2}`: `{"type":"ref/resource","uri":"test://good/one","odd":1e2}`,
	} {
		m := c.ask("completion/complete", `{"ref":`+ref+`,"argument":{"name":"a","value":""}}`)
		if got := string(frame.Get(m.Result, "completion", "values")); got != "["+string(frame.Quote(want))+"]" {
			t.Errorf("of %s: %s", ref, m.Raw)
		}
	}
	if m := c.ask("completion/complete", `{"ref":{"type":"ref/prompt","name":"log__hello"},"argument":{"name":"a","value":""}}`); !strings.Contains(string(m.Error), "no such method") {
		t.Errorf("one that completes nothing: %s", m.Raw)
	}
}

// A server that nobody calls is ended after a while, which is no failure, and
// started again by the next call. What is watched is not left.
func TestEndsWhenIdle(t *testing.T) {
	h := &house{t: t, dir: t.TempDir()}
	h.host("good")
	h.file.Servers[0].Idle = 200 * time.Millisecond
	h.open()
	c := h.client()
	long := c.send("tools/call", `{"name":"good__echo","arguments":{"do":"wait","for":"500ms"}}`)
	pid := text(c.call("good__echo", `"do":"pid"`))
	if got := text(c.answer(long)); got != "waited" {
		t.Errorf("a call that takes longer: %s", got)
	}
	eventually(t, "it is ended", func() bool {
		s := h.hub.States()[0]
		return s.State == "stopped" && len(s.Processes) == 0 && s.LastError == ""
	})
	if got := text(c.call("good__echo", `"do":"pid"`)); got == pid || strings.Contains(got, "error") {
		t.Errorf("then it is %s", got)
	}
	if n := h.hub.Standing()[0].Starts; n != 2 {
		t.Errorf("started %d times", n)
	}
	c.ask("resources/subscribe", `{"uri":"test://good/one"}`)
	pid = text(c.call("good__echo", `"do":"pid"`))
	time.Sleep(500 * time.Millisecond) // nothing tells that it is left alone
	if got := text(c.call("good__echo", `"do":"pid"`)); got != pid {
		t.Errorf("watched, it was ended: %s, then %s", pid, got)
	}
}

// A server has only so many calls in flight; one more is told so at once, and
// harms none of the others.
func TestTooManyCalls(t *testing.T) {
	h := settle(t, "good")
	c := h.client()
	c.call("good__echo", `"a":1`)
	type sent struct {
		by *client
		id string
	}
	var all []sent
	for len(all) < hub.MostCalls {
		by := h.client()
		for range hub.MostCallsOfOne {
			all = append(all, sent{by, by.send("tools/call", `{"name":"good__echo","arguments":{"do":"hold"}}`)})
		}
		in := int64(1 + len(all))
		eventually(t, "all are in flight", func() bool { return h.hub.Standing()[0].Calls == in })
		if m := by.call("good__echo", `"a":1`); !strings.Contains(string(m.Error), "too_many_calls") {
			t.Errorf("one more of one client: %s", m.Raw)
		}
	}
	if m := c.call("good__echo", `"a":1`); !strings.Contains(string(m.Error), "upstream_busy") || !strings.Contains(string(m.Error), "calls in flight, which is as many as it gets") {
		t.Errorf("one more of all: %s", m.Raw)
	}
	if err := os.WriteFile(filepath.Join(h.dir, "let"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		if got := text(s.by.answer(s.id)); got != "held" {
			t.Fatalf("one of those in flight: %s", got)
		}
	}
	if got := text(c.call("good__echo", `"a":1`)); got != `{"a":1}` {
		t.Errorf("afterwards: %s", got)
	}
}

// A kept catalogue that is none is as if nothing had been kept, and one that
// cannot be kept keeps nobody from being served.
func TestDamagedCatalogue(t *testing.T) {
	h := settle(t, "good")
	h.client().ask("tools/list", "{}")
	eventually(t, "the catalogue is kept", func() bool { return h.kept() != "" })
	h.close()
	for _, text := range []string{"", "{", `{"tools":{}}`, `{"tools":[}`, "\x00\x00"} {
		if err := os.WriteFile(h.kept(), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		again := &house{t: t, dir: h.dir}
		again.host("good")
		again.open()
		if n, _, _ := again.hub.Counts(); n != 0 {
			t.Errorf("%q: %d tools are known", text, n)
		}
		again.close()
	}
	if err := errors.Join(os.RemoveAll(filepath.Join(h.dir, "catalogue")), os.WriteFile(filepath.Join(h.dir, "catalogue"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	again := &house{t: t, dir: h.dir}
	again.host("good")
	again.open()
	if got := text(again.client().call("good__echo", `"a":1`)); got != `{"a":1}` {
		t.Errorf("where nothing can be kept: %s", got)
	}
}
