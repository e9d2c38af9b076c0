//go:build unix

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A browser is a real one, looking at one page at a time.
type browser struct {
	t   *testing.T
	in  io.Writer
	out *bufio.Reader
}

func newBrowser(t *testing.T) *browser {
	t.Helper()
	folder, err := filepath.Abs(filepath.Join("testdata", "browser"))
	if err != nil {
		t.Fatal(err)
	}
	chromium, err := exec.LookPath("chromium")
	need(t, "chromium", err)
	_, err = os.Stat(filepath.Join(folder, "node_modules"))
	need(t, "what `npm ci` installs in testdata/browser", err)
	node, err := findNode(t, folder)
	need(t, "node 20 or newer", err)

	home := t.TempDir()
	cmd := exec.Command(node, filepath.Join(folder, "page.mjs"), chromium, filepath.Join(home, "profile"))
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "TMPDIR=" + os.TempDir(), "LANG=C.UTF-8", "TZ=UTC"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // the browser is many processes
	cmd.WaitDelay = 5 * time.Second
	var log accBuffer
	cmd.Stderr = &log
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stuck := time.AfterFunc(3*time.Minute, func() { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	t.Cleanup(func() {
		in.Close()
		if _, err := io.Copy(io.Discard, out); err != nil {
			t.Log(err)
		}
		err := cmd.Wait()
		stuck.Stop()
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // ignore error: mostly ended by then
		if err != nil || t.Failed() {
			t.Logf("the browser ended with %v and said:\n%s", err, log.String())
		}
	})
	return &browser{t, in, bufio.NewReader(out)}
}

// do has the browser do what a word of page.mjs says.
func (b *browser) do(word string, with map[string]any) any {
	b.t.Helper()
	m := map[string]any{"word": word}
	for name, value := range with {
		m[name] = value
	}
	line, err := json.Marshal(m)
	if err != nil {
		b.t.Fatal(err)
	}
	if _, err := b.in.Write(append(line, '\n')); err != nil {
		b.t.Fatal(err)
	}
	var answer struct {
		Value any
		Error string
	}
	if line, err = b.out.ReadBytes('\n'); err == nil {
		err = json.Unmarshal(line, &answer)
	}
	if err == nil && answer.Error != "" {
		err = errors.New(answer.Error)
	}
	if err != nil {
		b.t.Fatalf("%s %v: %v", word, with, err)
	}
	return answer.Value
}

// shows waits until what selector finds has that text and can be seen.
func (b *browser) shows(selector, text string) {
	b.t.Helper()
	b.do("until", map[string]any{"selector": selector, "text": text})
}

func (b *browser) find(expression string) any {
	b.t.Helper()
	return b.do("find", map[string]any{"expression": expression})
}

// errors are what the browser said since it was last asked; those of requests
// that found no server, or no way in, are left out where they are expected.
func (b *browser) errors(unreachable bool) []string {
	b.t.Helper()
	var list []string
	said, _ := b.do("said", nil).([]any)
	for _, s := range said {
		if text := fmt.Sprint(s); !unreachable || !strings.HasPrefix(text, "Failed to load resource:") {
			list = append(list, text)
		}
	}
	return list
}

// visit is the address that lets a page in.
func (c *accCheckout) visit() string {
	c.t.Helper()
	address := strings.TrimSpace(c.mustRun("open", "--print"))
	if u, err := url.Parse(address); err != nil || u.Path != "/cockpit" || !strings.HasPrefix(u.Fragment, "code=") {
		c.t.Fatalf("open --print: %q", address)
	}
	return address
}

// named opens an editor of that name, which is on the board from then on.
func (c *accCheckout) named(name string) *accEditor {
	c.t.Helper()
	e := c.editor()
	hello := map[string]any{"protocolVersion": "2025-11-25", "capabilities": map[string]any{}, "clientInfo": map[string]string{"name": name, "version": "1.2.3"}}
	if _, err := e.request("initialize", hello); err != nil {
		c.t.Fatal(err)
	}
	if err := e.send(map[string]any{"jsonrpc": "2.0", "method": "notifications/initialized"}); err != nil {
		c.t.Fatal(err)
	}
	e.mustServer()
	return e
}

func (e *accEditor) intends(intent string, scope ...string) {
	e.c.t.Helper()
	arguments := map[string]any{"intent": intent, "scope": scope}
	if _, err := e.request("tools/call", map[string]any{"name": "majordomus_announce", "arguments": arguments}); err != nil {
		e.c.t.Fatal(err)
	}
}

// TestCockpit looks at the page in a real browser while its server lives, works,
// dies and is replaced. What it saw is kept in MAJORDOMUS_ARTEFACTS if that
// names a folder.
func TestCockpit(t *testing.T) {
	t.Parallel()
	b := newBrowser(t)
	shots := os.Getenv("MAJORDOMUS_ARTEFACTS")
	if shots == "" {
		shots = t.TempDir()
	}
	shot := func(name, scheme string, width int) {
		t.Helper()
		b.do("shot", map[string]any{"path": filepath.Join(shots, "cockpit-"+name+".png"), "scheme": scheme, "width": width})
	}

	c := accFresh(t)
	c.policy("  busy_grace_seconds: 10\n") // so long stays a server that has lost its lease
	// Not the usual port: when a server is killed, that of any checkout takes it.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	serve := c.command("serve", "--port", strconv.Itoa(port))
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		serve.Process.Kill() // ignore error: mostly ended by then
		serve.Wait()         // ignore error: killed
	})
	accPoll(t, 20*time.Second, "the server must serve", func() error { _, err := c.lease(); return err })
	first := c.mustLease()

	// Whoever has no code is told how to get one, and sees nothing.
	b.do("open", map[string]any{"url": *first.URL + "/cockpit"})
	b.shows("#status", "this page has no pass; run majordomus open")
	b.shows("#door", "majordomus open")
	if b.find(`document.querySelector("#board").checkVisibility()`) != false {
		t.Error("a board is shown to whoever has no pass")
	}
	if said := b.errors(true); len(said) > 0 {
		t.Errorf("the browser said %q", said)
	}

	// Two editors, and what one announces while the page is open.
	claude := c.named("claude-code")
	cursor := c.named("cursor")
	visit := c.visit()
	b.do("open", map[string]any{"url": visit})
	b.shows("#status", "live")
	b.shows("#peers-list h3", "claude-code")
	b.shows("#peers-list h3", "cursor")
	b.shows("#n-peers", "2")
	b.shows("#facts", "holds the lease")
	b.shows("#facts", *first.URL)
	b.shows("#checkouts-rows", filepath.Base(c.root))
	if at := b.find("location.href"); at != *first.URL+"/cockpit" {
		t.Errorf("the code stays in the address: %v", at)
	}
	claude.intends("Count the totals in cents", "apps/cart", "openapi.yaml")
	b.shows("#peers-list .intent", "Count the totals in cents")
	b.shows("#peers-list .scope", "openapi.yaml")
	cursor.intends(`Show <img src="x" onerror="alert(1)"> in a line`, "apps/cart/lines.tsx")
	b.shows("#overlaps-list", "apps/cart/lines.tsx")
	b.shows("#n-overlaps", "1")
	b.shows("#peers-list .intent", `<img src="x" onerror="alert(1)">`)
	if n := b.find("document.images.length"); n != 1.0 {
		t.Errorf("%v images: what a peer says became markup", n)
	}
	b.shows("#ended-rows", "majordomus_announce")
	b.shows("#chart-text", "median")

	// A call is shown while it runs.
	if _, err := cursor.ask("tools/call", map[string]any{"name": "majordomus_wait", "arguments": map[string]any{"seconds": 300}}); err != nil {
		t.Fatal(err)
	}
	cursor.mu.Lock()
	waiting := cursor.next
	cursor.mu.Unlock()
	b.shows("#running-rows", "majordomus_wait")
	b.shows("#running-rows", "running")

	// By keyboard: the way past what is above, and what there is to press.
	b.do("press", map[string]any{"keys": "Tab"})
	if id := b.find("document.activeElement.className"); id != "skip" {
		t.Errorf("first comes %v", id)
	}
	b.find(`document.querySelector("#pause").focus()`)
	b.do("press", map[string]any{"keys": "Enter"})
	b.shows("#pause", "Resume")
	cursor.mustServer()
	b.shows("#paused", "1 ended since")
	b.do("press", map[string]any{"keys": "Space"})
	b.shows("#pause", "Pause")
	b.shows("#ended-rows", "majordomus_server")

	shot("light", "light", 1280)
	shot("dark", "dark", 1280)
	for _, width := range []int{320, 375, 768, 1024} {
		shot(fmt.Sprintf("%d-light", width), "light", width)
		if wide := b.find("document.documentElement.scrollWidth"); wide.(float64) > float64(width) {
			t.Errorf("%v pixels are wanted where there are %d", wide, width)
		}
	}
	shot("320-dark", "dark", 320)
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int{320, 1280} {
			if found, _ := b.do("audit", map[string]any{"scheme": scheme, "width": width}).([]any); len(found) > 0 {
				t.Errorf("%s, %d pixels: %q", scheme, width, found)
			}
		}
	}
	cancel := map[string]any{"requestId": waiting, "reason": "the test goes on"}
	if err := cursor.send(map[string]any{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancel}); err != nil {
		t.Fatal(err)
	}
	b.shows("#ended-rows", "cancelled")
	if said := b.errors(false); len(said) > 0 {
		t.Errorf("the browser said %q", said)
	}

	// A code is for one visit. What the page keeps survives loading it anew.
	b.do("go", map[string]any{"url": *first.URL + "/cockpit"})
	b.shows("#status", "live")
	b.shows("#n-peers", "2")

	// The server is killed. The page says so, and goes on with the next one,
	// which the editors bring about at the same address.
	generation := b.find(`document.querySelector("#facts").textContent`)
	b.find("window.phases.length = 0")
	if err := syscall.Kill(first.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	serve.Wait() // ignore error: killed
	accPoll(t, 20*time.Second, "another must serve", func() error {
		d, err := c.lease()
		if err == nil && d.Token == first.Token {
			err = errors.New("it is the same lease")
		}
		return err
	})
	next := c.mustLease()
	if *next.URL != *first.URL {
		t.Fatalf("the next server is at %s, and not at %s", *next.URL, *first.URL)
	}
	b.shows("#status", "live")
	accPoll(t, 20*time.Second, "the page must show the next server", func() error {
		if now := b.find(`document.querySelector("#facts").textContent`); now == generation {
			return errors.New("it shows the first")
		}
		return nil
	})
	b.shows("#n-peers", "2")
	if phases := fmt.Sprint(b.find("window.phases")); !strings.HasPrefix(phases, "[gone") || !strings.HasSuffix(phases, "live]") {
		t.Errorf("the page went through %s", phases)
	}

	// With nobody to bring another about it stays so until somebody does.
	claude.close()
	cursor.close()
	b.shows("#peers-list .departed h3", "claude-code")
	if err := syscall.Kill(next.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	b.shows("#status", "the server is gone; waiting for the next one")
	b.shows("#status-more", "shown as of")
	shot("gone", "light", 1280)
	c.mustRun("serve", "ensure")
	if last := c.mustLease(); *last.URL != *first.URL {
		t.Fatalf("the last server is at %s, and not at %s", *last.URL, *first.URL)
	}
	b.shows("#status", "live")

	// Another key: nothing but another code helps, in the same page too.
	c.mustRun("key", "--rotate")
	b.shows("#status", "this page has no pass; run majordomus open")
	shot("refused", "dark", 320)
	b.do("go", map[string]any{"url": c.visit()})
	b.shows("#status", "live")

	// The lease is another's.
	if err := os.Remove(c.leasePath()); err != nil {
		t.Fatal(err)
	}
	b.shows("#status", "another server now holds the lease")
	b.shows("#facts", "does not hold the lease")
	b.shows("#findings", "no longer holds the lease")
	shot("lost", "dark", 1280)

	if said := b.errors(true); len(said) > 0 {
		t.Errorf("the browser said %q", said)
	}
	asked, _ := b.do("asked", nil).([]any)
	if !slices.Equal(asked, []any{*first.URL}) {
		t.Errorf("the page asked %v", asked)
	}
	if what := b.find(`(() => { try { document.body.innerHTML = "x"; return "done"; } catch (e) { return e.name; } })()`); what != "TypeError" {
		t.Errorf("making markup of a text: %v", what)
	}
	if style := b.find(`(() => { const d = document.createElement("div"); d.setAttribute("style", "color: red"); return d.style.color; })()`); style != "" {
		t.Errorf("an inline style holds: %v", style)
	}
}
