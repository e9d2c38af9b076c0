//go:build unix

package server

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"majordomus/lease"
)

// exhaust leaves the process no descriptor, so that what is open goes on and
// nothing can be opened, until the returned function is called.
func exhaust(t *testing.T) (relieve func()) {
	t.Helper()
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	now := was
	now.Cur = 0
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &now); err != nil {
		t.Skip(err)
	}
	done := false
	relieve = func() {
		if !done {
			done = true
			if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
				panic(err)
			}
		}
	}
	t.Cleanup(relieve)
	return relieve
}

// A lease that cannot be read is nobody's loss, and admits nobody.
func TestUnreadableLease(t *testing.T) {
	p := settle(t, nil)
	id := p.session()
	p.ask("GET", "/", "") // from here on over the connection that is open
	relieve := exhaust(t)
	if f, err := os.Open(p.root); err == nil {
		f.Close()
		t.Skip("files can be opened all the same")
	}
	r := p.ask("GET", "/", "")
	health := p.ask("GET", "/api/v1/health", "")
	ready := p.ask("GET", "/api/v1/ready", "")
	fresh := p.ask("POST", "/mcp", initialize)
	known := p.ask("POST", "/mcp", call("1", "majordomus_wait", `{"seconds":0}`), "Mcp-Session-Id", id)
	relieve()
	var x index
	r.decode(t, &x)
	if r.status != 503 || x.LeaseHolder == nil || *x.LeaseHolder || x.Error == nil || x.Error.Code != codeUnreadable || x.RepositoryID != p.checkout.ID {
		t.Errorf("index: %d %s", r.status, r.body)
	}
	if !strings.Contains(health.body, `{"id":"lease","status":"fail"`) || !strings.Contains(health.body, "too many open files") || strings.Contains(health.body, p.root) {
		t.Errorf("health: %s", health.body)
	}
	for name, r := range map[string]reply{"ready": ready, "somebody new": fresh} {
		if r.status != 503 || r.code() != codeUnreadable || !strings.Contains(r.body, "server.json") || strings.Contains(r.body, p.root) {
			t.Errorf("%s: %d %s", name, r.status, r.body)
		}
	}
	if known.status != 200 {
		t.Errorf("a session that is in: %d %s", known.status, known.body)
	}
	if p.tenure.Lost() || !leaseholder(t, p) {
		t.Error("taken for a loss")
	}
	if reply := p.folder.Probe(t.Context(), p.folder.Read().Document); reply.Outcome != lease.Ours {
		t.Error(reply.Err)
	}
	p.session()
}
