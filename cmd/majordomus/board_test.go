//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"majordomus/server"
	"majordomus/server/board"
)

// boardEditor is an editor of that name that has been heard of.
func (c *accCheckout) boardEditor(name string) *accEditor {
	c.t.Helper()
	e := c.editor()
	e.hello(name)
	return e
}

// hello begins as an editor of that name.
func (e *accEditor) hello(name string) {
	c := e.c
	c.t.Helper()
	hello := map[string]any{"protocolVersion": "2025-11-25", "capabilities": map[string]any{}, "clientInfo": map[string]string{"name": name, "version": "1"}}
	if _, err := e.request("initialize", hello); err != nil {
		c.t.Fatal(err)
	}
	if err := e.send(map[string]any{"jsonrpc": "2.0", "method": "notifications/initialized"}); err != nil {
		c.t.Fatal(err)
	}
}

// announce is what an editor's model does; it returns the peer's id. Each intent
// is a claim of its own.
func (e *accEditor) announce(intent string, scope ...string) string {
	e.c.t.Helper()
	text, err := e.tool("majordomus_announce", map[string]any{"intent": intent, "scope": scope, "claim": intent})
	if err != nil {
		e.c.t.Fatal(err)
	}
	var got board.Announced
	if err := json.Unmarshal([]byte(text), &got); err != nil || got.Peer == "" {
		e.c.t.Fatalf("announcing: %s: %v", text, err)
	}
	return got.Peer
}

// boardNorm takes out of a text what differs from run to run.
func boardNorm(text string, names ...string) string {
	for i := 0; i+1 < len(names); i += 2 {
		text = strings.ReplaceAll(text, names[i], names[i+1])
	}
	text = regexp.MustCompile(`\d\d:\d\d(:\d\d)?`).ReplaceAllString(text, "TIME")
	return regexp.MustCompile(`\d+(\.\d+)? ms`).ReplaceAllString(text, "N ms")
}

// exits returns the exit code of a run that ended.
func exits(t *testing.T, err error) int {
	t.Helper()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	}
	t.Fatal(err)
	return 0
}

func TestBoardHelp(t *testing.T) {
	t.Parallel()
	c := accFresh(t)
	for _, word := range []string{"peers", "announce", "executions", "guard"} {
		c.says("board/help-"+word+".txt", word, "--help")
	}
}

func TestBoardWithoutServer(t *testing.T) {
	t.Parallel()
	c := accFresh(t)
	c.says("board/none-peers.txt", "peers")
	c.says("board/none-announce.txt", "announce", "moving the parser", "src")
	c.says("board/none-executions.txt", "executions", "--follow")
	c.says("board/none-guard.txt", "guard", "--strict")
	if c.folder() != nil {
		t.Error("asking for a server left something behind")
	}
	for _, args := range [][]string{
		{"peers", "--checkouts", "all"}, {"peers", "x"}, {"executions", "-n", "-1"}, {"executions", "x"}, {"guard", "x"}, {"guard", "--as"},
		{"announce"}, {"announce", "x"}, {"announce", " ", "src"}, {"announce", "x", "src", ""}, {"announce", "x", "../outside"}, {"announce", "x", "/"}, {"announce", "x", "a\nb"},
	} {
		out, log, err := c.run(args...)
		if code := exits(t, err); code != exitWords || out != "" || !strings.HasPrefix(log, "majordomus: ") {
			t.Errorf("%q: exit code %d: %s%s", args, code, out, log)
		}
	}
	c.says("board/words-empty.txt", "announce", "x", "")
	c.says("board/words-outside.txt", "announce", "x", "..")
	c.says("board/words-checkouts.txt", "peers", "--checkouts", "all")

	// A server that was, and left its lease.
	e := c.boardEditor("claude-code")
	e.announce("x", "src")
	e.cmd.Process.Kill()
	c.boardKill()
	for _, words := range [][]string{{"peers"}, {"executions"}, {"announce", "x", "src"}} {
		if out, log, err := c.run(words...); exits(t, err) != exitNo || out != "" {
			t.Errorf("%q with a dead server: %v: %s%s", words, err, out, log)
		}
	}
}

// boardKill kills the server that holds the lease.
func (c *accCheckout) boardKill() {
	c.t.Helper()
	d := c.mustLease()
	if err := syscall.Kill(d.PID, syscall.SIGKILL); err != nil {
		c.t.Fatal(err)
	}
	accPoll(c.t, 5*time.Second, "the killed server is gone", func() error {
		if held, _ := c.folder().AliveHeld(d.Token); held {
			return errors.New("its lock is held")
		}
		return nil
	})
}

// boardStop has the server that holds the lease stand still.
func (c *accCheckout) boardStop() {
	c.t.Helper()
	d := c.mustLease()
	if err := syscall.Kill(d.PID, syscall.SIGSTOP); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { syscall.Kill(d.PID, syscall.SIGKILL) }) // ignore error: it may have ended
	// The signal is on its way still.
	asking := &http.Client{Timeout: 100 * time.Millisecond, Transport: &http.Transport{DisableKeepAlives: true}}
	accPoll(c.t, 5*time.Second, "the server stands still", func() error {
		resp, err := asking.Get(*d.URL + "/api/v1/live")
		if err != nil {
			return nil
		}
		resp.Body.Close()
		return errors.New("it answers")
	})
}

func TestBoardWords(t *testing.T) {
	t.Parallel()
	c := accFresh(t)
	claude, cursor := c.boardEditor("claude-code"), c.boardEditor("cursor")
	a := claude.announce("rewriting login", "src/auth", "src/session")
	b := cursor.announce("tokens", "src/auth/token.go")
	names := []string{a, "PEER1", b, "PEER2"}

	out := c.mustRun("peers")
	boardGolden(t, "live-peers.txt", boardNorm(out, names...))
	var all server.Peers
	if err := json.Unmarshal([]byte(c.mustRun("peers", "--format", "json", "--checkouts", "this")), &all); err != nil {
		t.Fatal(err)
	}
	if len(all.Peers) != 2 || all.Peers[0].ID != a || all.Peers[0].Claims[0].Intent != "rewriting login" || len(all.Overlaps) != 1 || !all.Complete || !all.Boards[0].This {
		t.Errorf("as JSON: %+v", all)
	}

	boardGolden(t, "live-executions.txt", boardNorm(c.mustRun("executions"), names...))
	out = c.mustRun("executions", "-n", "1")
	if strings.Count(out, "\n") != 2 || !strings.Contains(out, b) {
		t.Errorf("-n 1 shows not only the last: %s", out)
	}
	var calls server.Executions
	if err := json.Unmarshal([]byte(c.mustRun("executions", "--format", "json", "-n", "0")), &calls); err != nil || len(calls.Ended) != 2 || calls.Ended[0].Peer != b {
		t.Errorf("executions as JSON: %v %+v", err, calls)
	}

	// By hand, from a folder in the checkout that is reached through a link.
	if err := os.MkdirAll(filepath.Join(c.root, "src/auth"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("auth", filepath.Join(c.root, "src/login")); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(filepath.Dir(c.root), "link")
	if err := os.Symlink(filepath.Join(c.root, "src"), link); err != nil {
		t.Fatal(err)
	}
	run := func(dir string, args ...string) (string, int) {
		t.Helper()
		cmd := c.command(args...)
		cmd.Dir, cmd.Env = dir, append(cmd.Env, "PWD="+dir)
		out, err := cmd.CombinedOutput()
		return string(out), exits(t, err)
	}
	out, code := run(link, "announce", "moving the parser", "auth/", "login/x.go", "../docs/**/*.md", filepath.Join(c.root, "go.mod"))
	if code != 0 {
		t.Fatalf("announcing by hand: exit code %d: %s", code, out)
	}
	id := regexp.MustCompile(`^announced as (\S+):`).FindStringSubmatch(out)
	if id == nil {
		t.Fatal(out)
	}
	names = append(names, id[1], "HAND")
	boardGolden(t, "live-announce.txt", boardNorm(out, names...))
	var got announced
	if err := json.Unmarshal([]byte(c.mustRun("announce", "--claim", "docs", "--format", "json", "writing", "README.md")), &got); err != nil {
		t.Fatal(err)
	}
	if got.Peer != id[1] || got.Claim != "docs" || !slices.Equal(got.Scope, []string{"README.md"}) || !got.Complete {
		t.Errorf("announced as JSON: %+v", got)
	}
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	out = c.mustRun("peers")
	if !strings.Contains(out, me.Username+" (by hand)") || !strings.Contains(out, `"writing" (docs): README.md`) {
		t.Errorf("what was announced by hand is not shown:\n%s", out)
	}
	if out := c.mustRun("announce", "moving the parser", "go.mod"); !strings.Contains(out, "no longer announced: src/auth, src/login/x.go, ") || strings.Contains(out, "works on") {
		t.Errorf("narrowed: %s", out)
	}
	if out := c.mustRun("announce", "--done", "--claim", "docs"); out != "withdrawn: README.md\n" {
		t.Errorf("withdrawn: %s", out)
	}
	if out := c.mustRun("announce", "--done"); out != "withdrawn: go.mod\n" {
		t.Errorf("withdrawn: %s", out)
	}
	if out := c.mustRun("announce", "--done"); out != "nothing of that name was announced\n" {
		t.Errorf("withdrawn again: %s", out)
	}
	if out := c.mustRun("peers"); strings.Contains(out, "by hand") {
		t.Errorf("who withdrew all is there still:\n%s", out)
	}
	out, code = run(c.root, "announce", "x", "--claim", strings.Repeat("n", 101), "src")
	if code != exitWords || !strings.HasPrefix(out, "majordomus: claim") {
		t.Errorf("too long a name: exit code %d: %s", code, out)
	}

	// A departed peer that announced something stays.
	cursor.close()
	accPoll(t, 5*time.Second, "the departed is marked", func() error {
		if out := c.mustRun("peers"); !regexp.MustCompile(`cursor +gone \d\d:\d\d +"tokens"`).MatchString(out) {
			return errors.New(out)
		}
		return nil
	})
}

// boardWatcher is a word that runs until it is interrupted.
type boardWatcher struct {
	t        *testing.T
	cmd      *exec.Cmd
	out, log accBuffer
}

func (c *accCheckout) watcher(args ...string) *boardWatcher {
	c.t.Helper()
	w := &boardWatcher{t: c.t, cmd: c.command(args...)}
	w.cmd.Stdout, w.cmd.Stderr, w.cmd.WaitDelay = &w.out, &w.log, 5*time.Second
	if err := w.cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { w.cmd.Process.Kill() }) // ignore error: mostly ended by then
	return w
}

// until waits for less time than after which the board is asked for anyway.
func (w *boardWatcher) until(what string, so func(out string) bool) {
	w.t.Helper()
	accPoll(w.t, peersPeriod-time.Second, what, func() error {
		if out := w.out.String(); !so(out) {
			return fmt.Errorf("it says\n%s%s", out, w.log.String())
		}
		return nil
	})
}

// interrupt ends it as a person does.
func (w *boardWatcher) interrupt() {
	w.t.Helper()
	if err := w.cmd.Process.Signal(os.Interrupt); err != nil {
		w.t.Fatal(err)
	}
	if err := w.cmd.Wait(); err != nil {
		w.t.Errorf("interrupted: %v: %s", err, w.log.String())
	}
}

func TestPeersWatch(t *testing.T) {
	t.Parallel()
	c := accFresh(t)
	claude := c.boardEditor("claude-code")
	claude.announce("rewriting login", "src/auth")
	text, lines := c.watcher("peers", "--watch"), c.watcher("peers", "--watch", "--format", "json", "--checkouts", "this")
	has := func(s string) func(string) bool { return func(out string) bool { return strings.Contains(out, s) } }
	text.until("it shows who is there", has(`src/auth`))
	lines.until("it shows who is there", has(`"intent":"rewriting login"`))
	if out := text.out.String(); strings.Contains(out, "----") || strings.Contains(out, "\x1b") {
		t.Errorf("not on a terminal: %q", out)
	}

	cursor := c.boardEditor("cursor")
	cursor.announce("tokens", "src/auth/token.go")
	lines.until("it shows who came", has(`"intent":"tokens"`))
	text.until("it shows who came", func(out string) bool {
		_, after, ok := strings.Cut(out, "----\n")
		return ok && strings.Contains(after, `"tokens" (tokens): src/auth/token.go`) && strings.Contains(after, "claude-code) announced src/auth, ")
	})

	cursor.announce("tokens", "src/auth/token.go") // which is no news

	// Another server takes over; the editors say again what they work on.
	c.boardKill()
	if _, err := cursor.server(); err != nil {
		t.Fatal(err)
	}
	claude.announce("resting", "nothing.txt")
	text.until("it goes on with the next server", has(`"resting" (resting): nothing.txt`))
	lines.until("it goes on with the next server", has(`"intent":"resting"`))
	for _, w := range []*boardWatcher{text, lines} {
		w.interrupt() // and all that it said is read
		if said := w.log.String(); said != "majordomus: another server serves this checkout now, "+*c.mustLease().URL+"\n" {
			t.Errorf("of the other server it says %q", said)
		}
	}
	var last server.Peers
	for line := range strings.Lines(lines.out.String()) {
		last = server.Peers{}
		if err := json.Unmarshal([]byte(line), &last); err != nil || len(last.Boards) != 1 {
			t.Errorf("a line is no document: %v: %s", err, line)
		}
	}
	if len(last.Peers) != 2 {
		t.Errorf("the last picture has %+v", last.Peers)
	}
	text.pictures()
}

// pictures checks those that were shown.
func (w *boardWatcher) pictures() {
	w.t.Helper()
	before := ""
	for picture := range strings.SplitSeq(w.out.String(), "----\n") {
		if picture == before {
			w.t.Errorf("shown twice: %s", picture)
		}
		before = picture
		if !strings.HasPrefix(picture, "ID ") && picture != "nobody is here\n" {
			w.t.Errorf("not a whole picture: %q", picture)
		}
	}
}

// TestPeersOfWorktrees is of editors in two work trees: what changes in the other
// is shown too, and so is that its server says nothing.
func TestPeersOfWorktrees(t *testing.T) {
	t.Parallel()
	c := guardRepo(t, "")
	a := c.boardEditor("claude-code").announce("login", "src/auth")
	tree := *c
	tree.root = filepath.Join(filepath.Dir(c.root), "tree")
	c.mustGit("worktree", "add", "-q", "-b", "side", tree.root)
	t.Cleanup(tree.end)
	w := c.watcher("peers", "--watch")
	w.until("it shows who is there", func(out string) bool { return strings.Contains(out, "src/auth") })
	b := tree.boardEditor("cursor").announce("tokens", "src")
	w.until("it shows who came in the other work tree", func(out string) bool { return strings.Contains(out, "cursor") && strings.Contains(out, "CHECKOUT") })
	w.interrupt()
	w.pictures()
	boardGolden(t, "live-worktrees.txt", boardNorm(c.mustRun("peers"), a, "PEER1", b, "PEER2"))
	if out := c.mustRun("peers", "--checkouts", "this"); strings.Contains(out, "cursor") || strings.Contains(out, "CHECKOUT") {
		t.Errorf("this checkout alone:\n%s", out)
	}
	tree.boardStop()
	if out := c.mustRun("peers"); !strings.Contains(out, "\nnot read: tree: its server does not answer: ") {
		t.Errorf("with a board that cannot be read:\n%s", out)
	}
}

// TestPeersWatchStopped has the server's process stand still with its streams
// open while another takes its lease.
func TestPeersWatchStopped(t *testing.T) {
	t.Parallel()
	c := accFresh(t)
	c.policy("  busy_grace_seconds: 1\n")
	claude := c.boardEditor("claude-code")
	claude.announce("rewriting login", "src/auth")
	w := c.watcher("peers", "--watch")
	w.until("it shows who is there", func(out string) bool { return strings.Contains(out, "rewriting login") })
	c.boardStop()
	claude.announce("tokens", "src/token")
	w.until("it leaves the one that stands", func(out string) bool { return strings.Contains(out, `"tokens" (tokens): src/token`) })
	w.interrupt()
}

// TestPeersWatchTerminal has a terminal cleared before each picture.
func TestPeersWatchTerminal(t *testing.T) {
	t.Parallel()
	accNeed(t, boardScript() == nil, "script (util-linux) is missing")
	c := accFresh(t)
	claude := c.boardEditor("claude-code")
	claude.announce("rewriting login", "src/auth")
	cmd := exec.Command("script", "-qec", "exec "+c.program+" peers --watch", "/dev/null")
	cmd.Dir, cmd.Env = c.root, c.environ()
	w := &boardWatcher{t: t, cmd: cmd}
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &w.out, &w.log, 5*time.Second
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() }) // ignore error: mostly ended by then
	w.until("it shows who is there", func(out string) bool { return strings.Contains(out, "rewriting login") })
	claude.announce("tokens", "src/token")
	w.until("it clears the terminal", func(out string) bool {
		parts := strings.Split(out, "\x1b[H\x1b[2J")
		return len(parts) > 2 && strings.Contains(parts[len(parts)-1], "tokens")
	})
	if strings.Contains(w.out.String(), "----") {
		t.Errorf("on a terminal: %q", w.out.String())
	}
	if _, err := io.WriteString(in, "\x03"); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("^C: %v", err)
	}
}

// boardScript looks for a script that hands on the exit code.
func boardScript() error {
	out, err := exec.Command("script", "--version").CombinedOutput()
	if err == nil && !bytes.Contains(out, []byte("util-linux")) {
		return fmt.Errorf("another script: %s", out)
	}
	return err
}

func TestExecutionsFollow(t *testing.T) {
	t.Parallel()
	c := accFresh(t)
	e := c.boardEditor("claude-code")
	e.announce("one", "a")
	w, lines := c.watcher("executions", "--follow", "-n", "10"), c.watcher("executions", "-f", "--format", "json")
	w.until("it shows the last ones", func(out string) bool { return strings.Contains(out, "majordomus_announce") })
	lines.until("it shows the last ones", func(out string) bool { return strings.Contains(out, "majordomus_announce") })
	calls := func(out string) int { return strings.Count(out, "majordomus_server") }
	for range 3 {
		e.mustServer()
	}
	three := func(out string) bool { return calls(out) == 3 }
	w.until("it goes on", three)
	lines.until("it goes on", three) // what a killed server told may never come
	c.boardKill()
	for range 2 {
		e.mustServer()
	}
	five := func(out string) bool { return calls(out) == 5 }
	w.until("it goes on with the next server", five)
	lines.until("it goes on with the next server", five)
	if _, err := e.tool("majordomus_health", map[string]any{}); err != nil {
		t.Fatal(err)
	}
	w.until("it goes on", func(out string) bool { return strings.Contains(out, "majordomus_health") })
	w.interrupt()
	lines.interrupt()
	out := w.out.String()
	if n := calls(out); n != 5 || strings.Count(out, "TIME") != 1 || strings.Count(out, "majordomus_announce") < 1 {
		t.Errorf("%d calls are shown of 5:\n%s", n, out)
	}
	if said := w.log.String(); said != "majordomus: another server serves this checkout now, "+*c.mustLease().URL+"\n" {
		t.Errorf("of the other server it says %q", said)
	}
	for line := range strings.Lines(lines.out.String()) {
		var one board.Execution
		if err := json.Unmarshal([]byte(line), &one); err != nil || one.Tool == "" || one.Outcome != "ok" {
			t.Errorf("a line is no call: %v: %s", err, line)
		}
	}
}
