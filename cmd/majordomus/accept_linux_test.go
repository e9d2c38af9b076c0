package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// accNamespaces skips where namespaces cannot be made, with or without a
// network: most often without root.
func accNamespaces(t *testing.T, args ...string) {
	t.Helper()
	out, err := exec.Command("unshare", append(args, "true")...).CombinedOutput()
	accNeed(t, err == nil, fmt.Sprintf("unshare %s: %v: %s", strings.Join(args, " "), err, bytes.TrimSpace(out)))
}

// TestOtherNetwork has an editor in a network of its own, as in a sandbox: the
// server lives and cannot be reached from there. Each side is served and
// neither takes the lease from the other.
func TestOtherNetwork(t *testing.T) {
	t.Parallel() // it waits more than it works
	accNamespaces(t, "-n")
	for name, script := range map[string]string{
		"no loopback": `exec "$0" mcp`,
		"loopback":    `ip link set lo up && exec "$0" mcp`,
	} {
		t.Run(name, func(t *testing.T) {
			if strings.Contains(script, "ip ") {
				_, err := exec.LookPath("ip")
				accNeed(t, err == nil, "ip is missing")
			}
			c := accFresh(t)
			here := c.editor()
			here.mustOpen()
			doc := c.mustLease()
			tokens := accTokens(c)
			cmd := c.command()
			cmd.Args = append([]string{"unshare", "-n", "/bin/sh", "-c", script}, c.program)
			cmd.Path, _ = exec.LookPath("unshare") // ignore error: it was run above
			there := c.editorOf(cmd)
			begun := time.Now()
			said := there.mustOpen()
			t.Logf("served alone after %v", time.Since(begun))
			var wg sync.WaitGroup
			for _, side := range []struct {
				e     *accEditor
				alone bool
			}{{here, false}, {there, true}} {
				wg.Go(func() {
					for i := range 20 {
						s, err := side.e.server()
						if err != nil || (s.Alone != "") != side.alone || s.LeaseHolder == side.alone && s.URL != "" {
							t.Errorf("call %d, alone %v: %+v, %v", i, side.alone, s, err)
							return
						}
					}
				})
			}
			wg.Wait()
			if seen := tokens(); len(seen) != 1 || seen[0] != doc.Token {
				t.Errorf("the lease changed hands: %v", seen)
			}
			log := there.log.String()
			if !strings.Contains(log, "serving this client alone") || !strings.Contains(log, "namespace") || strings.Contains(log, "listening on") {
				t.Errorf("the reason is not told: %s", log)
			}
			if !strings.Contains(said, "served alone") {
				t.Errorf("the client is not told: %s", said)
			}
		})
	}
}

// TestUsualPort has servers start where nobody listens: the first is where the
// documentation says, the next elsewhere, and who comes back is where it was.
func TestUsualPort(t *testing.T) {
	t.Parallel()
	accNamespaces(t, "-n")
	_, err := exec.LookPath("ip")
	accNeed(t, err == nil, "ip is missing")
	c := accFresh(t)
	other := c.beside("other")
	cmd := c.command()
	cmd.Path, _ = exec.LookPath("unshare") // ignore error: it was run above
	cmd.Args = []string{"unshare", "-n", "/bin/sh", "-ec", `ip link set lo up
		for root in "$1" "$2" "$1"; do "$0" serve ensure --root "$root"; done
		"$0" serve stop --root "$1" >&2
		"$0" serve ensure --root "$1"
		"$0" serve stop --root "$2" >&2
		"$0" serve ensure --root "$2"`, c.program, c.root, other.root}
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, said.Bytes())
	}
	at := strings.Fields(string(out))
	if usual := "http://" + accUsual; len(at) != 5 || at[0] != usual || at[2] != usual || at[3] != usual || at[1] == usual {
		t.Errorf("they were at %q", at)
	}
}

// TestNoRoom opens checkouts in which nothing can be written: the client is
// served alone and told why.
func TestNoRoom(t *testing.T) {
	t.Parallel()
	accNamespaces(t, "-m")
	const (
		readOnly = `mount --bind . . && mount -o remount,bind,ro . && cd "$PWD" && exec "$0" mcp`
		fresh    = `mkdir -p .ai/local && mount -t tmpfs -o size=64k none .ai/local && `
		full     = `{ cat /dev/zero >.ai/local/filling 2>/dev/null; exec "$0" mcp; }`
		// The folder was used before; its file system filled since.
		used = fresh + `"$0" serve ensure >/dev/null && "$0" serve stop >/dev/null && `
	)
	type place struct{ name, script, reason string }
	var places []place
	for pages := 1; pages <= 4; pages++ {
		// Room for the folder, the key, the log and the lease, but not for the
		// same with an address.
		places = append(places, place{fmt.Sprintf("full but for %d pages", pages),
			fresh + `{ cat /dev/zero >.ai/local/filling 2>/dev/null; truncate -s -` + strconv.Itoa(pages*os.Getpagesize()) + ` .ai/local/filling; exec "$0" mcp; }`, "no space left on device"})
	}
	for _, test := range append(places, []place{
		{"read-only", readOnly, "read-only file system"},
		{"read-only, used before", `"$0" serve ensure >/dev/null && "$0" serve stop >/dev/null && ` + readOnly, "read-only file system"},
		{"full", fresh + full, "no space left on device"},
		{"full, used before", used + full, "no space left on device"},
		{"full, no room for a log", used + `rm .ai/local/state/mcp/server.log && ` + full, "no space left on device"},
	}...) {
		t.Run(test.name, func(t *testing.T) {
			c := accFresh(t)
			cmd := c.command()
			cmd.Args = []string{"unshare", "-m", "/bin/sh", "-c", test.script, c.program}
			cmd.Path, _ = exec.LookPath("unshare") // ignore error: it was run above
			begun := time.Now()
			e := c.editorOf(cmd)
			said := e.mustOpen()
			if s := e.mustServer(); s.Alone == "" || s.URL != "" {
				t.Errorf("served by %+v", s)
			}
			t.Logf("served alone after %v", time.Since(begun))
			for name, text := range map[string]string{"the editor's log": e.log.String(), "the client": said} {
				if !strings.Contains(text, test.reason) {
					t.Errorf("%s is not told the reason: %s", name, text)
				}
			}
			e.close()
			if pids := c.pids(); len(pids) > 0 {
				t.Errorf("processes are left: %v", pids)
			}
		})
	}
}

// TestPortTaken asks for a port that somebody has.
func TestPortTaken(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := accFresh(t)
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	_, stderr, err := c.run("serve", "--port", port)
	if exit, ok := err.(*exec.ExitError); !ok || exit.ExitCode() != exitFailed {
		t.Fatalf("serve: %v: %s", err, stderr)
	}
	if !strings.Contains(stderr, "port "+port) || !strings.Contains(stderr, "address already in use") {
		t.Errorf("the reason is not told: %s", stderr)
	}
	t.Logf("said so after %v", time.Since(begun))
	if _, err := os.Stat(c.leasePath()); !os.IsNotExist(err) {
		t.Errorf("a lease is left: %v", err)
	}
	// It stands in nobody's way.
	e := c.editor()
	e.mustOpen()
	if s := e.mustServer(); s.Alone != "" || !s.LeaseHolder {
		t.Errorf("the next editor is served by %+v", s)
	}
}

// TestOutside starts in / and in a bare home: the client is served alone, told
// why, and nothing is written.
func TestOutside(t *testing.T) {
	t.Parallel()
	c := accFresh(t)
	if _, err := os.Stat("/.ai"); err == nil {
		accNeed(t, false, "/ is a checkout here")
	}
	bare := t.TempDir()
	for _, dir := range []string{"/", c.home, bare} {
		cmd := c.command("mcp")
		cmd.Dir = dir
		e := c.editorOf(cmd)
		said := e.mustOpen()
		if s := e.mustServer(); s.Alone == "" || s.URL != "" {
			t.Errorf("in %s: served by %+v", dir, s)
		}
		for name, text := range map[string]string{"the editor's log": e.log.String(), "the client": said} {
			if !strings.Contains(text, "alone") || !strings.Contains(text, "checkout") {
				t.Errorf("in %s: %s is not told the reason: %s", dir, name, text)
			}
		}
		e.close()
		if _, err := os.Stat(filepath.Join(dir, ".ai")); err == nil {
			t.Errorf("in %s: it wrote .ai", dir)
		}
	}
}
