//go:build unix

package hub_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// What a server's process writes last may be on its way when it has ended, and
// what it has started may know more than it does.
func TestLastWordsAreNotLost(t *testing.T) {
	h := settle(t)
	h.host("npx")
	h.mu.Lock()
	h.file.Servers[0].Command = "/bin/sh"
	h.file.Servers[0].Args = []string{"-c", "(sleep 0.2; echo no such package >&2) & exit 1"}
	h.mu.Unlock()
	h.hub.Look()
	h.client().ask("tools/list", "{}")
	eventually(t, "the server has failed, and why is known", func() bool {
		s := h.hub.States()
		return len(s) == 1 && s[0].State == "failed" && strings.Contains(s[0].LastError, "no such package")
	})
}

// As long as a hosted server's group lives there is a record of it, by which the
// next server would find it after a kill of this one.
func TestGroupsAreRecorded(t *testing.T) {
	h := settle(t, "good", "other=good")
	c := h.client()
	records := func() (all string) {
		t.Helper()
		files, err := filepath.Glob(filepath.Join(h.dir, "hosted", "*.json"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			all += string(b)
		}
		return all
	}
	for _, name := range []string{"good", "other"} {
		pid := text(c.call(name+"__echo", `"do":"pid"`))
		if all := records(); !strings.Contains(all, `"name":"`+name+`"`) || !strings.Contains(all, `"leader":{"pid":`+pid+`,`) {
			t.Errorf("process %s of %s is not in the records %q", pid, name, all)
		}
	}
	if ended := h.hub.Sweep(); len(ended) > 0 || text(c.call("good__echo", `"a":1`)) != `{"a":1}` {
		t.Errorf("a sweep beside it ended %q", ended)
	}
	h.close()
	if all := records(); all != "" {
		t.Errorf("left are the records %q", all)
	}
}

// runs reports whether there is such a process.
func runs(t *testing.T, pid string) bool {
	t.Helper()
	n, err := strconv.Atoi(pid)
	if err != nil {
		t.Fatal(err)
	}
	return syscall.Kill(n, 0) == nil
}
