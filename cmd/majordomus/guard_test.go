//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"majordomus/server/board"
)

// guardRepo is a real repository, in a folder whose name wants quoting, with the
// guard as its hook.
func guardRepo(t *testing.T, flags string) *accCheckout {
	t.Helper()
	_, err := exec.LookPath("git")
	accNeed(t, err == nil, "git is missing")
	c := accFresh(t)
	root := filepath.Join(filepath.Dir(c.root), "my work")
	if err := os.Rename(c.root, root); err != nil {
		t.Fatal(err)
	}
	c.root = root
	c.extra = []string{"GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b"}
	c.mustGit("init", "-q")
	c.write("go.mod", "module x\n", 0o644)
	c.write("src/auth/token.go", "package auth\n", 0o644)
	c.mustGit("add", "--all")
	c.mustGit("commit", "-q", "-m", "first")
	c.write(".git/hooks/pre-commit", "#!/bin/sh\nexec '"+c.program+"' guard "+flags+"\n", 0o755)
	return c
}

// git runs git in a folder of the checkout; stdout and stderr come together.
func (c *accCheckout) git(dir string, args ...string) (string, int) {
	c.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Env = filepath.Join(c.root, dir), c.environ()
	out, err := cmd.CombinedOutput()
	return string(out), exits(c.t, err)
}

func (c *accCheckout) mustGit(args ...string) string {
	c.t.Helper()
	out, code := c.git(".", args...)
	if code != 0 {
		c.t.Fatalf("git %q: exit code %d: %s", args, code, out)
	}
	return out
}

// commits stages everything, commits it, and returns what the hook said.
func (c *accCheckout) commits(dir string, args ...string) string {
	c.t.Helper()
	if out, code := c.git(dir, "add", "--all", ":/"); code != 0 {
		c.t.Fatal(out)
	}
	out, code := c.git(dir, append([]string{"commit", "-q", "-m", "more"}, args...)...)
	if code != 0 {
		c.t.Fatalf("the commit was kept from: exit code %d: %s", code, out)
	}
	return out
}

// guardEditor is an editor that has nothing to do with who commits: another
// process than the one that starts git has started its bridge.
func (c *accCheckout) guardEditor(name string) *accEditor {
	c.t.Helper()
	cmd := c.command()
	cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", `"$0" mcp; exit $?`, c.program}
	e := c.editorOf(cmd)
	e.hello(name)
	return e
}

// agent is a process that starts a bridge and then does something, once it is let.
func (c *accCheckout) agent(does string) (e *accEditor, let func()) {
	c.t.Helper()
	cmd := c.command()
	may := filepath.Join(c.t.TempDir(), "may")
	if err := syscall.Mkfifo(may, 0o600); err != nil {
		c.t.Fatal(err)
	}
	cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", `exec 3<&0; "$0" mcp <&3 & exec 3<&- </dev/null; read it <"$1" && { ` + does + `; }; wait`, c.program, may}
	e = c.editorOf(cmd)
	open, err := os.OpenFile(may, os.O_RDWR, 0) // which waits for nobody
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { open.Close() })
	return e, func() {
		if _, err := open.WriteString("go\n"); err != nil {
			c.t.Error(err)
		}
	}
}

// TestGuardAgent commits from the shell of an agent whose editor has started
// its bridge, too: it does not meet itself, but others, also those who say that
// they are it.
func TestGuardAgent(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" && runtime.GOOS != "darwin" {
		t.Skip("processes are not told apart here")
	}
	for name, peer := range map[string]string{"nobody's word": "", "another's": "p0000"} {
		t.Run(name, func(t *testing.T) {
			c := guardRepo(t, "")
			said := filepath.Join(t.TempDir(), "said")
			if peer != "" {
				c.extra = append(c.extra, "MAJORDOMUS_PEER="+peer)
			}
			agent, let := c.agent(`sh -c 'git commit -q -m agent' >'` + said + `' 2>&1; mv '` + said + `' '` + said + `.all'`)
			agent.hello("claude-code")
			own := agent.announce("rewriting login", "src/auth")
			other := c.guardEditor("claude-code").announce("tidying up", "src")
			c.write("src/auth/token.go", "package auth // 2\n", 0o644)
			c.mustGit("add", "--all")
			let()
			var out []byte
			accPoll(t, 20*time.Second, "the commit", func() (err error) {
				out, err = os.ReadFile(said + ".all")
				return err
			})
			if met := strings.Contains(string(out), own+" ("); met != (peer != "") {
				t.Errorf("it meets itself: %v: %s", met, out)
			}
			if !strings.Contains(string(out), other+" (") {
				t.Errorf("it does not meet the other: %s", out)
			}
		})
	}
}

// TestGuardOneProcessOfTwo: where two editors have come from one process, that
// says nothing about who commits.
func TestGuardOneProcessOfTwo(t *testing.T) {
	t.Parallel()
	c := guardRepo(t, "")
	a := c.boardEditor("claude-code").announce("rewriting login", "src/auth")
	c.boardEditor("cursor")
	c.write("src/auth/token.go", "package auth // 2\n", 0o644)
	if out := c.commits("."); !strings.Contains(out, a+" (") {
		t.Errorf("said %s", out)
	}
}

func TestGuard(t *testing.T) {
	t.Parallel()
	c := guardRepo(t, "")
	claude, cursor := c.guardEditor("claude-code"), c.guardEditor("cursor")
	a := claude.announce("rewriting login", "src/auth", "größe")
	b := cursor.announce("releasing", "*.md")

	// Names as git allows them.
	odd := []string{"a b.go", `q"uote.go`, "new\nline.go", "größe.go", "tab\tbed.go", `back\slash.go`, "[id].go", "-n", "\xff.go"}
	if runtime.GOOS == "darwin" {
		odd = odd[:len(odd)-1] // its file system wants UTF-8
	}
	for _, name := range odd {
		c.write("src/auth/"+name, "x", 0o644)
	}
	out := c.commits(".")
	want := fmt.Sprintf("majordomus: %s (claude-code) works on src/auth: \"rewriting login\"; you are about to commit src/auth/-n (and %d more)\n", a, len(odd)-1)
	if out != want {
		t.Errorf("said\n%swant\n%s", out, want)
	}
	for _, name := range odd {
		c.write("src/auth/"+name, "xy", 0o644)
		out := c.commits(".")
		if want := "you are about to commit " + path("src/auth/"+name) + "\n"; !strings.HasSuffix(out, want) || strings.Count(out, "\n") != 1 {
			t.Errorf("%q: said %q, want %q", name, out, want)
		}
	}
	c.write("größe/日本.txt", "x", 0o644)
	if out := c.commits("."); !strings.HasSuffix(out, "you are about to commit größe/日本.txt\n") {
		t.Errorf("said %s", out)
	}

	// Two that are met, and paths that only begin alike.
	c.write("src/auth/token.go", "package auth // 2\n", 0o644)
	c.write("CHANGES.md", "x", 0o644)
	c.write("src/authority.go", "x", 0o644)
	out = c.commits(".")
	boardGolden(t, "guard.txt", boardNorm(out, a, "PEER1", b, "PEER2"))
	c.write("src/authority.go", "xy", 0o644)
	if out := c.commits("."); out != "" {
		t.Errorf("said of nothing that is met: %s", out)
	}

	// What moves away, and what is deleted, is met where it was.
	c.mustGit("mv", "src/auth/token.go", "token.go")
	if out := c.commits("."); !strings.HasSuffix(out, "you are about to commit src/auth/token.go\n") {
		t.Errorf("of a file that moves: %s", out)
	}
	c.mustGit("rm", "-q", "src/auth/größe.go")
	if out := c.commits("."); !strings.Contains(out, "gr") {
		t.Errorf("of a file that goes: %s", out)
	}

	// Only what is committed counts: some paths of those that are staged, from a
	// folder, with settings that change what git prints.
	c.mustGit("config", "diff.relative", "true")
	c.mustGit("config", "diff.noprefix", "true")
	c.mustGit("config", "diff.external", "/bin/false")
	c.mustGit("config", "diff.renames", "copies")
	c.mustGit("config", "core.quotePath", "true")
	c.mustGit("config", "color.ui", "always")
	c.write("src/auth/a b.go", "xyz", 0o644)
	c.write("src/authority.go", "xyz", 0o644)
	c.mustGit("add", "--all")
	if out, code := c.git("src", "commit", "-q", "-m", "some", "authority.go"); code != 0 || out != "" {
		t.Errorf("of a path that is not committed: %d, %s", code, out)
	}
	cmd := c.command("guard")
	cmd.Dir = filepath.Join(c.root, "src")
	if out, err := cmd.CombinedOutput(); err != nil || !strings.HasSuffix(string(out), "you are about to commit \"src/auth/a b.go\"\n") {
		t.Errorf("by hand, in a folder: %v: %s", err, out)
	}
	if out, code := c.git("src", "commit", "-q", "-m", "some", "auth/a b.go"); code != 0 || !strings.HasSuffix(out, "you are about to commit \"src/auth/a b.go\"\n") {
		t.Errorf("from a folder: %d, %s", code, out)
	}

	// Who commits does not meet itself.
	c.write("src/auth/a b.go", "1", 0o644)
	c.extra = append(c.extra, "MAJORDOMUS_PEER="+a)
	if out := c.commits("."); out != "" {
		t.Errorf("it meets itself: %s", out)
	}
	c.extra = c.extra[:len(c.extra)-1]
	c.write("src/auth/a b.go", "2", 0o644)
	c.mustGit("add", "--all")
	if out := c.mustRun("guard", "--as", a, "--format", "json"); out != "{\n  \"asked\": true,\n  \"meetings\": []\n}\n" {
		t.Errorf("it meets itself: %s", out)
	}
	out, log, err := c.run("guard", "--as", b, "--format", "json")
	var got guarded
	if err != nil || json.Unmarshal([]byte(out), &got) != nil || !strings.HasPrefix(log, "majordomus: "+a) {
		t.Fatalf("as JSON: %v: %s%s", err, out, log)
	}
	if m := got.Meetings; !got.Asked || len(m) != 1 || m[0].Peer != a || m[0].Client != "claude-code" || m[0].Intent != "rewriting login" ||
		!slices.Equal(m[0].Paths, []string{"src/auth"}) || !slices.Equal(m[0].Staged, []string{"src/auth/a b.go"}) {
		t.Errorf("as JSON: %s", out)
	}

	// Nor a person what the same person announced; and those who left do not count.
	c.mustRun("announce", "mine", "lib")
	c.write("lib/x", "x", 0o644)
	if out := c.commits("."); strings.Contains(out, "lib") {
		t.Errorf("a person meets itself: %s", out)
	}
	claude.close()
	n := 0
	accPoll(t, 5*time.Second, "who left does not count", func() error {
		n++
		c.write("src/auth/token.go", fmt.Sprint(n), 0o644)
		if out := c.commits("."); out != "" {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
}

func TestGuardStrict(t *testing.T) {
	t.Parallel()
	c := guardRepo(t, "--strict")
	e := c.guardEditor("claude-code")
	a := e.announce("rewriting login", "src/auth")
	c.write("src/auth/token.go", "package auth // 2\n", 0o644)
	c.mustGit("add", "--all")
	before := c.mustGit("rev-parse", "HEAD")
	out, code := c.git(".", "commit", "-q", "-m", "x")
	if code == 0 || c.mustGit("rev-parse", "HEAD") != before {
		t.Fatalf("not refused: %s", out)
	}
	boardGolden(t, "guard-strict.txt", boardNorm(out, a, "PEER1"))
	if _, _, err := c.run("guard", "--strict"); exits(t, err) != exitNo {
		t.Errorf("refused by %v", err)
	}
	c.extra = append(c.extra, "MAJORDOMUS_PEER="+a)
	if out, code := c.git(".", "commit", "-q", "-m", "x"); code != 0 || out != "" {
		t.Errorf("as the peer itself: %d: %s", code, out)
	}
}

func TestGuardWorktrees(t *testing.T) {
	t.Parallel()
	c := guardRepo(t, "")
	e := c.guardEditor("claude-code")
	a := e.announce("rewriting login", "src/auth")
	tree := *c
	tree.root = filepath.Join(filepath.Dir(c.root), "linked tree")
	c.mustGit("worktree", "add", "-q", "-b", "side", tree.root)
	t.Cleanup(tree.end)
	tree.write("src/auth/token.go", "package auth // side\n", 0o644)
	if out := tree.commits("."); out != "" {
		t.Errorf("without a server in the work tree: %s", out)
	}
	f := tree.guardEditor("cursor")
	b := f.announce("tokens", "src")
	tree.write("src/auth/token.go", "package auth // side 2\n", 0o644)
	boardGolden(t, "guard-worktrees.txt", boardNorm(tree.commits("src"), a, "PEER1", b, "PEER2"))
}

// TestGuardElsewhere is of repositories whose top is not the checkout's root.
func TestGuardElsewhere(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct{ manifest, dir, claim, want string }{
		"repository in a checkout": {"..", ".", "my work/src/auth", "my work/src/auth/token.go"},
		"checkout in a repository": {"src", "src", "auth", "auth/token.go"},
	} {
		t.Run(name, func(t *testing.T) {
			c := guardRepo(t, "")
			c.write(filepath.Join(x.manifest, ".ai/manifest.yaml"), "schema: ai-repository/v1\n", 0o644)
			inner := *c
			inner.root = filepath.Join(c.root, x.manifest)
			t.Cleanup(inner.end)
			inner.guardEditor("claude-code").announce("rewriting login", x.claim)
			c.write("src/auth/token.go", "package auth // 2\n", 0o644)
			c.write("go.mod", "module y\n", 0o644)
			c.mustGit("add", "src/auth/token.go", "go.mod")
			cmd := c.command("guard")
			cmd.Dir = filepath.Join(c.root, x.dir)
			if out, err := cmd.CombinedOutput(); err != nil || !strings.HasSuffix(string(out), "you are about to commit "+path(x.want)+"\n") {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

// TestGuardFirst is the first commit of a repository.
func TestGuardFirst(t *testing.T) {
	t.Parallel()
	c := guardRepo(t, "")
	c.guardEditor("claude-code").announce("everything", ".")
	c.mustGit("checkout", "-q", "--orphan", "new")
	if out := c.commits("."); !strings.Contains(out, "works on .: \"everything\"; you are about to commit ") {
		t.Errorf("said %s", out)
	}
}

// TestGuardUnwell has everything go wrong that can, but for the words: no commit
// is kept from, and only --strict says why it was not looked at.
func TestGuardUnwell(t *testing.T) {
	t.Parallel()
	none := func(*testing.T, *accCheckout) {}
	served := func(_ *testing.T, c *accCheckout) { c.guardEditor("claude-code").announce("everything", ".") }
	// Without its editor nobody starts the next server.
	left := func(_ *testing.T, c *accCheckout) {
		e := c.guardEditor("claude-code")
		e.announce("everything", ".")
		e.close()
	}
	for name, x := range map[string]struct {
		with, then func(*testing.T, *accCheckout)
		says       string // of --strict
	}{
		"no server":       {none, none, ""},
		"a killed server": {left, func(t *testing.T, c *accCheckout) { c.boardKill() }, ""},
		"no lease":        {left, func(t *testing.T, c *accCheckout) { os.Remove(c.leasePath()) }, ""},
		"a lease of nonsense": {left, func(t *testing.T, c *accCheckout) {
			if err := os.WriteFile(c.leasePath(), []byte("{"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, ""},
		"a server that stands": {left, func(t *testing.T, c *accCheckout) { c.boardStop() }, "connected, but no answer in time"},
		"a policy of nonsense": {served, func(t *testing.T, c *accCheckout) { c.policy("  idle_secs: 1\n") }, "-"},
		"a manifest of nonsense": {served, func(t *testing.T, c *accCheckout) {
			c.write(".ai/manifest.yaml", "schema: [\n", 0o644)
		}, "manifest"},
		"no git":  {served, func(t *testing.T, c *accCheckout) { c.extra = append(c.extra, "PATH=/nonexistent") }, "git"},
		"no repo": {served, func(t *testing.T, c *accCheckout) { os.RemoveAll(filepath.Join(c.root, ".git/objects")) }, "git"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := guardRepo(t, "")
			x.with(t, c)
			c.write("go.mod", "module y\n", 0o644)
			c.mustGit("add", "go.mod")
			x.then(t, c)
			began := time.Now()
			out, log, err := c.run("guard")
			took := time.Since(began)
			if x.says == "-" { // it goes on without
				if err != nil || !strings.Contains(log, "everything") {
					t.Errorf("%v: %s%s", err, out, log)
				}
				return
			}
			if err != nil || out+log != "" {
				t.Errorf("%v: %s%s", err, out, log)
			}
			if took > 5*time.Second {
				t.Errorf("a commit waits for %v", took)
			}
			out, log, err = c.run("guard", "--strict")
			if err != nil || out != "" || x.says == "" && log != "" {
				t.Errorf("--strict: %v: %s%s", err, out, log)
			}
			if x.says != "" && (strings.Count(log, "\n") != 1 || !strings.HasPrefix(log, "majordomus: the commit was not compared with what others work on: ") || !strings.Contains(log, x.says)) {
				t.Errorf("--strict says %q", log)
			}
		})
	}
	t.Run("no checkout", func(t *testing.T) {
		c := accFresh(t)
		cmd := c.command("guard", "--strict")
		cmd.Dir = c.home
		if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%v: %s", err, out)
		}
		if _, log, err := c.run("guard", "--no-such"); exits(t, err) != exitWords {
			t.Errorf("wrong words: %v: %s", err, log)
		}
	})
}

// TestApart has the cheap look at two paths agree with the board's.
func TestApart(t *testing.T) {
	t.Parallel()
	list := []string{".", "a", "a/b", "ab", "a/b/c.go", "a/*", "a/*.go", "**/c.go", "a/[bc]", "*", "b", "a/b.go", "a/bc/d", "å/b", "{a,b}/c"}
	for _, claimed := range list {
		for _, staged := range list[1:] { // git never prints .
			if board.Meet(claimed, staged, false) && apart(claimed, staged, false) {
				t.Errorf("%s and %s meet, and are not compared", claimed, staged)
			}
		}
	}
	if apart("SRC", "src/x", true) {
		t.Error("case is told apart where the file system does not")
	}
}
