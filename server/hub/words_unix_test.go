//go:build unix

package hub_test

import (
	"strings"
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
