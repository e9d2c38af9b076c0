package hub_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"majordomus/bridge/frame"
)

// A server that does not work says why, within moments, and the others go on.
func TestHostileServers(t *testing.T) {
	h := settle(t, "good", "dead", "mute", "banner", "gone=none")
	h.mu.Lock()
	h.file.Servers[4].Command = filepath.Join(h.dir, "no", "such", "program")
	h.file.Digest += "!"
	h.mu.Unlock()
	h.hub.Look()
	c := h.client()
	began := time.Now()
	list := string(c.ask("tools/list", "{}").Result)
	if took := time.Since(began); took > patience/2 {
		t.Errorf("a list took %v", took)
	}
	for _, name := range []string{"good__echo", "banner__echo"} {
		if !strings.Contains(list, `"`+name+`"`) {
			t.Errorf("%s is not listed: %s", name, list)
		}
	}
	if got := text(c.call("banner__echo", `"a":1`)); got != `{"a":1}` {
		t.Error(got)
	}
	for name, why := range map[string]string{"dead": "cannot find my configuration", "gone": filepath.Join("no", "such", "program")} {
		eventually(t, name+" has failed", func() bool {
			for _, s := range h.hub.States() {
				if s.Name == name {
					return s.State == "failed" && strings.Contains(s.LastError, why)
				}
			}
			return false
		})
	}
	// What has not failed yet says what it waits for.
	eventually(t, "it is known what keeps the one that says nothing", func() bool {
		for _, s := range h.hub.States() {
			if s.Name == "mute" {
				return s.State == "starting" && strings.Contains(s.Waiting, "it has not answered initialize")
			}
		}
		return false
	})
}

// One that takes long to start keeps nobody waiting but its callers; what it
// offers is listed when it is there.
func TestSlowStart(t *testing.T) {
	h := settle(t, "good", "held")
	c, other := h.client(), h.client()
	waiting := c.send("tools/call", `{"name":"held__echo","arguments":{"a":1}}`)
	if got := text(other.call("good__echo", `"a":2`)); got != `{"a":2}` {
		t.Errorf("another server: %s", got)
	}
	if list := string(other.ask("tools/list", "{}").Result); !strings.Contains(list, "good__echo") || strings.Contains(list, "held__echo") {
		t.Errorf("listed: %s", list)
	}
	if st := h.hub.States()[1]; st.State != "starting" {
		t.Errorf("it is %+v", st)
	}
	other.notes = nil
	if err := os.WriteFile(filepath.Join(h.dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := text(c.answer(waiting)); got != `{"a":1}` {
		t.Errorf("who waited for it: %s", got)
	}
	eventually(t, "the others are told", func() bool {
		other.ask("ping", "{}")
		return strings.Contains(strings.Join(other.notes, "\n"), "notifications/tools/list_changed")
	})
	if list := string(other.ask("tools/list", "{}").Result); !strings.Contains(list, "held__echo") {
		t.Errorf("then listed: %s", list)
	}
}

// What one writes to its standard error keeps neither it nor anybody waiting.
func TestFloodOfErrors(t *testing.T) {
	h := settle(t, "flood", "good")
	c, other := h.client(), h.client()
	waiting := c.send("tools/call", `{"name":"flood__echo","arguments":{"do":"flood"}}`)
	if got := text(other.call("good__echo", `"a":1`)); got != `{"a":1}` {
		t.Errorf("another server: %s", got)
	}
	if got := text(c.answer(waiting)); got != "flooded" {
		t.Errorf("it answered %.100s", got)
	}
}

// One that minds neither the end of its input nor being asked to end is ended.
func TestDeafServer(t *testing.T) {
	h := settle(t, "deaf", "good")
	c := h.client()
	pid := text(c.call("deaf__echo", `"do":"pid"`))
	h.host("good")
	h.hub.Look()
	if got := text(c.call("good__echo", `"a":1`)); got != `{"a":1}` { // at once
		t.Errorf("another server: %s", got)
	}
	began := time.Now()
	h.close()
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("its end took %v", took)
	}
	if runs(t, pid) {
		t.Errorf("process %s is left", pid)
	}
}

// A result of 30 MiB passes whole, and others do not wait for who reads it.
func TestHugeResult(t *testing.T) {
	h := settle(t, "good")
	c, other := h.client(), h.client()
	id := c.send("tools/call", `{"name":"good__echo","arguments":{"do":"big"}}`)
	for range 20 {
		if got := text(other.call("good__echo", `"a":1`)); got != `{"a":1}` {
			t.Fatalf("another client: %s", got)
		}
	}
	if got := text(c.answer(id)); len(got) != 30<<20 || strings.Trim(got, "x") != "" {
		t.Errorf("of 30 MiB came %d bytes, %.100s", len(got), got)
	}
}

// Two servers with the same tools, and names that no client takes: each tool has
// a name of its own, and leads to its server.
func TestHostileNames(t *testing.T) {
	long := strings.Repeat("漢.", 30)
	names := []string{"one", "two", long, long[:len(long)-1] + "字", "a.b", "a_b", "-"}
	var kinds []string
	for _, n := range names {
		kinds = append(kinds, n+"=good")
	}
	h := settle(t, kinds...)
	c := h.client()
	plain := regexp.MustCompile(`^[A-Za-z0-9_-]{1,47}$`)
	var tools []string
	eventually(t, "all are listed", func() bool {
		tools = nil
		frame.Elements(frame.Get(c.ask("tools/list", "{}").Result, "tools"), func(raw []byte) bool {
			tools = append(tools, textAt(raw, "name"))
			return true
		})
		return len(tools) == 2*len(names)
	})
	pids := map[string]int{}
	for _, tool := range tools {
		if !plain.MatchString(tool) {
			t.Errorf("a tool is called %q", tool)
		}
		pids[text(c.call(tool, `"do":"pid"`))]++
	}
	if slices.Sort(tools); len(slices.Compact(tools)) != 2*len(names) || len(pids) != len(names) {
		t.Errorf("%q lead to %v", tools, pids)
	}
	if !slices.Contains(tools, "one__echo") || !slices.Contains(tools, "two__echo") {
		t.Errorf("listed are %q", tools)
	}
	for _, s := range h.hub.States() {
		if !slices.Contains(names, s.Name) || s.State != "ready" || fmt.Sprint(s.Processes) == "[]" {
			t.Errorf("it is %+v", s)
		}
	}
}
