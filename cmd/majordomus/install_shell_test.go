//go:build unix

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"majordomus/install"
	"majordomus/server/hub/config"
)

var backups = regexp.MustCompile(`\S*/backups/\d{8}T\d{6}Z-\w{6}-(\S+)`)

// installGolden compares what was said with a golden file, without what differs
// from run to run.
func (c *accCheckout) installGolden(name, got string) {
	c.t.Helper()
	got = backups.ReplaceAllString(got, "BACKUP-$1")
	got = strings.NewReplacer(c.root, "WORK", c.home, "HOME", c.program, "PROGRAM", filepath.Dir(c.root), "DIR").Replace(got)
	path := filepath.Join("testdata", "install", name)
	if *update {
		c.writeFile(path, got)
	}
	want, err := os.ReadFile(path)
	if err != nil {
		c.t.Fatal(err)
	}
	if got != string(want) {
		c.t.Errorf("%s: said\n%s\nwant\n%s", name, got, want)
	}
}

func (c *accCheckout) writeFile(path, text string) {
	c.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		c.t.Fatal(err)
	}
	syscall.ForkLock.RLock() // see accExecutable
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		c.t.Fatal(err)
	}
}

// speaks runs the program and returns all it said, and its exit code.
func (c *accCheckout) speaks(args ...string) (string, int) {
	c.t.Helper()
	out, log, err := c.run(args...)
	return out + log, exits(c.t, err)
}

func (c *accCheckout) must(args ...string) string {
	c.t.Helper()
	text, code := c.speaks(args...)
	if code != 0 {
		c.t.Fatalf("majordomus %q: exit code %d: %s", args, code, text)
	}
	return text
}

func (c *accCheckout) fileIs(path, want string) {
	c.t.Helper()
	b, err := os.ReadFile(path)
	if want == "" && errors.Is(err, os.ErrNotExist) {
		return
	}
	if err != nil || string(b) != want {
		c.t.Errorf("%s: %v: %q, want %q", path, err, b, want)
	}
}

// inLedger are the entries of a kind whose file is below the checkout's folders.
func (c *accCheckout) inLedger(kind string) []install.Entry {
	c.t.Helper()
	list, err := install.OpenLedger(filepath.Dir(config.TrustDir(filepath.Join(filepath.Dir(c.program), "account")))).List()
	if err != nil {
		c.t.Fatal(err)
	}
	var mine []install.Entry
	for _, e := range list {
		if e.Kind == kind && strings.HasPrefix(e.File, filepath.Dir(c.root)) {
			mine = append(mine, e)
		}
	}
	return mine
}

func TestInstallShell(t *testing.T) {
	t.Parallel()
	c := accOwn(t)
	c.extra = []string{"SHELL=/bin/bash"}
	rc := filepath.Join(c.home, ".bashrc")
	real := filepath.Join(c.home, "dotfiles/bashrc")
	const was = "PS1='$ '\n# no end"
	c.writeFile(real, was)
	if err := os.Symlink("dotfiles/bashrc", rc); err != nil {
		t.Fatal(err)
	}

	c.installGolden("shell-dry.txt", c.must("install", "shell", "--dry-run"))
	c.fileIs(rc, was)
	c.installGolden("shell-bash.txt", c.must("install", "shell"))
	once, err := os.ReadFile(rc)
	if err != nil || !strings.HasPrefix(string(once), was+"\n# >>> majordomus >>>\n") {
		t.Errorf("%q, %v", once, err)
	}
	if to, err := os.Readlink(rc); err != nil || to != "dotfiles/bashrc" {
		t.Errorf("the link leads to %q (%v)", to, err)
	}
	c.installGolden("shell-again.txt", c.must("install", "shell", "bash"))
	c.fileIs(rc, string(once))
	c.installGolden("shell-all.txt", c.must("install", "shell", "zsh", "fish", "direnv"))
	if list := c.inLedger(install.Shell); len(list) != 4 {
		t.Errorf("recorded: %+v", list)
	}
	c.installGolden("shell-uninstall-dry.txt", c.must("uninstall", "shell", "--dry-run"))
	c.fileIs(rc, string(once))
	c.installGolden("shell-uninstall.txt", c.must("uninstall", "shell"))
	c.fileIs(real, was)
	for _, path := range []string{filepath.Join(c.home, ".zshrc"), filepath.Join(c.home, ".config/fish"), filepath.Join(c.root, ".envrc")} {
		if there(path) {
			t.Errorf("%s was left behind", path)
		}
	}
	if list := c.inLedger(install.Shell); len(list) != 0 {
		t.Errorf("recorded still: %+v", list)
	}
	c.installGolden("shell-uninstalled.txt", c.must("uninstall", "shell")+c.must("uninstall", "shell", "bash"))

	// A backup has the file as it was.
	var report struct {
		Installed []placed
	}
	if err := json.Unmarshal([]byte(c.must("install", "shell", "--format", "json")), &report); err != nil || len(report.Installed) != 1 {
		t.Fatal(err, report)
	}
	if p := report.Installed[0]; p.Name != "bash" || p.File != rc || !p.Changed || p.Made || p.Lines == "" {
		t.Errorf("%+v", p)
	}
	c.fileIs(report.Installed[0].Backup, was)

	// Marks that are not whole are nobody's to mend but a person's.
	broken := string(once) + "# >>> majordomus >>>\n"
	c.writeFile(real, broken)
	text := ""
	for _, word := range []string{"install", "uninstall"} {
		said, code := c.speaks(word, "shell", "bash")
		if code != 1 {
			t.Errorf("%s: exit code %d", word, code)
		}
		text += said
	}
	c.installGolden("shell-broken.txt", text)
	c.fileIs(real, broken)

	// Where other variables say, and words that say nothing.
	c.extra = []string{"SHELL=/bin/tcsh", "ZDOTDIR=" + filepath.Join(c.home, "z"), "XDG_CONFIG_HOME=" + filepath.Join(c.home, "x")}
	c.must("install", "shell", "zsh", "fish")
	for _, path := range []string{"z/.zshrc", "x/fish/config.fish"} {
		if !there(filepath.Join(c.home, path)) {
			t.Errorf("%s was not made", path)
		}
	}
	text = ""
	for _, args := range [][]string{{"install", "shell"}, {"install", "shell", "tcsh"}, {"hook"}, {"hook", "direnv"}, {"env", "enter"}, {"env", "enter", "--shell", "tcsh"}} {
		said, code := c.speaks(args...)
		if code != exitWords {
			t.Errorf("%q: exit code %d", args, code)
		}
		text += fmt.Sprintf("%q\n%s", args, said)
	}
	c.installGolden("shell-words.txt", text)

	// A dangling link is not written through, and a folder is no file.
	if err := os.Remove(real); err != nil {
		t.Fatal(err)
	}
	if said, code := c.speaks("install", "shell", "bash"); code != 1 || there(real) {
		t.Errorf("exit code %d: %s", code, said)
	}
}

func TestInstallHelp(t *testing.T) {
	t.Parallel()
	c := accFresh(t)
	for _, args := range [][]string{{"hook"}, {"env"}, {"env", "enter"}, {"env", "export"}, {"install", "shell"}, {"uninstall", "shell"}, {"install", "hooks"}, {"uninstall", "hooks"}} {
		c.installGolden("help-"+strings.Join(args, "-")+".txt", c.must(append(args, "--help")...))
	}
}

// hookRepo is a real repository with one commit.
func hookRepo(t *testing.T) *accCheckout {
	c := guardRepo(t, "")
	if err := os.Remove(filepath.Join(c.root, ".git/hooks/pre-commit")); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestInstallHooks(t *testing.T) {
	t.Parallel()
	c := hookRepo(t)
	hook := filepath.Join(c.root, ".git/hooks/pre-commit")
	c.installGolden("hooks-dry.txt", c.must("install", "hooks", "--dry-run"))
	if there(hook) {
		t.Error("a dry run made the hook")
	}
	c.installGolden("hooks.txt", c.must("install", "hooks"))
	once, err := os.ReadFile(hook)
	if err != nil {
		t.Fatal(err)
	}
	c.installGolden("hooks-file.txt", string(once))
	c.installGolden("hooks-again.txt", c.must("install", "hooks"))
	c.fileIs(hook, string(once))

	// It warns, and lets pass; strictly it refuses.
	claude := c.guardEditor("claude-code")
	peer := claude.announce("rewriting login", "src/auth")
	c.write("src/auth/token.go", "package auth // 2\n", 0o644)
	if out := c.commits("."); !strings.Contains(out, peer) {
		t.Errorf("said: %q", out)
	}
	c.installGolden("hooks-strict.txt", c.must("install", "hooks", "--strict"))
	c.write("src/auth/token.go", "package auth // 3\n", 0o644)
	if out, code := c.git(".", "commit", "-q", "-a", "-m", "x"); code == 0 || !strings.Contains(out, peer) {
		t.Errorf("not refused: %s", out)
	}

	// A linked worktree has the same hook; from a shell that has entered
	// another checkout it is asked of its own.
	tree := filepath.Join(filepath.Dir(c.root), "tree")
	c.mustGit("worktree", "add", "-q", tree)
	other := *c
	other.root = tree
	if text := other.must("install", "hooks", "--strict"); !strings.Contains(text, hook+" has the lines already") {
		t.Errorf("in a worktree: %s", text)
	}
	if list := c.inLedger(install.Hooks); len(list) != 1 || list[0].File != hook {
		t.Errorf("recorded: %+v", list)
	}

	// Whatever is wrong with the program is no reason against a commit.
	text, err := os.ReadFile(hook)
	if err != nil {
		t.Fatal(err)
	}
	crashes := filepath.Join(c.home, "crashes")
	c.writeFile(crashes, "#!/bin/sh\nkill -SEGV $$\n")
	if err := os.Chmod(crashes, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, program := range []string{"/nowhere/majordomus", crashes, c.home} {
		c.writeFile(hook, strings.ReplaceAll(string(text), c.program, program))
		c.commits(".")
		c.write("src/auth/token.go", "package auth // "+program+"\n", 0o644)
	}
	c.writeFile(hook, string(text))
	c.installGolden("hooks-uninstall.txt", c.must("uninstall", "hooks"))
	if there(hook) {
		t.Error("the hook was left behind")
	}
	if list := c.inLedger(install.Hooks); len(list) != 0 {
		t.Errorf("recorded still: %+v", list)
	}
	c.installGolden("hooks-uninstalled.txt", c.must("uninstall", "hooks"))

	// A hook of somebody else's goes on below the lines.
	theirs := "#!/usr/bin/env bash\nset -eu\necho theirs >&2\nexit 0"
	c.writeFile(hook, theirs)
	if err := os.Chmod(hook, 0o755); err != nil {
		t.Fatal(err)
	}
	c.installGolden("hooks-chained.txt", c.must("install", "hooks"))
	c.write("src/auth/token.go", "package auth // 5\n", 0o644)
	if out := c.commits("."); !strings.Contains(out, peer) || !strings.HasSuffix(out, "theirs\n") {
		t.Errorf("said: %q", out)
	}
	c.must("uninstall", "hooks")
	c.fileIs(hook, theirs)
	c.writeFile(hook, "#!/bin/sh\nexec majordomus guard\n")
	c.installGolden("hooks-by-hand.txt", c.must("install", "hooks"))
	c.fileIs(hook, "#!/bin/sh\nexec majordomus guard\n")
	c.writeFile(hook, theirs+"\n# <<< majordomus <<<\n")
	said, _ := c.speaks("install", "hooks")
	c.installGolden("hooks-broken.txt", said)

	// Others are left alone.
	text2 := ""
	for _, foreign := range []string{"#!/usr/bin/env python3\n", "#!/bin/sh\r\ntrue\r\n", "\x7fELF\x00", "no first line\n"} {
		c.writeFile(hook, foreign)
		said, code := c.speaks("install", "hooks")
		if code != 1 {
			t.Errorf("%q: exit code %d", foreign, code)
		}
		c.fileIs(hook, foreign)
		text2 += fmt.Sprintf("%q\n%s", foreign, said)
	}
	c.writeFile(hook, theirs)
	if err := os.Chmod(hook, 0o644); err != nil {
		t.Fatal(err)
	}
	said, _ = c.speaks("install", "hooks")
	text2 += said
	c.writeFile(filepath.Join(c.root, "scripts/hook"), theirs)
	if err := errors.Join(os.Remove(hook), os.Symlink("../../scripts/hook", hook)); err != nil {
		t.Fatal(err)
	}
	said, _ = c.speaks("install", "hooks")
	c.fileIs(hook, theirs)
	c.installGolden("hooks-foreign.txt", text2+said)
	if err := os.Remove(hook); err != nil {
		t.Fatal(err)
	}

	// Where git looks counts.
	c.mustGit("config", "core.hooksPath", ".githooks")
	c.installGolden("hooks-path.txt", c.must("install", "hooks"))
	c.write("src/auth/token.go", "package auth // 6\n", 0o644)
	if out := c.commits("."); !strings.Contains(out, peer) {
		t.Errorf("said: %q", out)
	}
	c.must("uninstall", "hooks")
	if there(filepath.Join(c.root, ".githooks/pre-commit")) {
		t.Error("the hook was left behind")
	}
	c.mustGit("config", "core.hooksPath", filepath.Join(c.home, "hooks"))
	said, code := c.speaks("install", "hooks")
	if code != 1 || there(filepath.Join(c.home, "hooks")) {
		t.Errorf("exit code %d", code)
	}
	c.installGolden("hooks-shared.txt", said)

	// Without git there are no hooks.
	c.extra = append(c.extra, "PATH=/nowhere")
	if said, code := c.speaks("install", "hooks"); code != exitMissing {
		t.Errorf("exit code %d: %s", code, said)
	}
}

func TestEnvSnapshot(t *testing.T) {
	t.Parallel()
	c := hookRepo(t)
	c.mustGit("checkout", "-q", "-b", "feature/x")
	norm := func(text string, more ...string) string {
		var s snapshot
		if err := json.Unmarshal([]byte(c.must("env", "--format", "json")), &s); err != nil {
			t.Fatal(err)
		}
		more = append(more, s.ID, "ID", s.GitID, "GITID")
		if s.Server.URL != "" {
			more = append(more, s.Server.URL, "URL")
		}
		return strings.NewReplacer(more...).Replace(text)
	}
	c.installGolden("env-none.txt", norm(c.must("env")))
	c.writeFile(filepath.Join(c.root, ".ai/repo/mcp.json"), `{"mcpServers":{"x":{"command":"`+filepath.Join(c.home, "missing")+`"}}}`)
	claude := c.guardEditor("claude-code")
	peer := claude.announce("rewriting login", "src/auth", "go.mod")
	c.installGolden("env-untrusted.txt", norm(c.must("env"), peer, "PEER"))
	c.must("trust", "--yes")
	var s snapshot
	accPoll(t, 20*time.Second, "the hosted server", func() error {
		if err := json.Unmarshal([]byte(c.must("env", "--format", "json")), &s); err != nil {
			return err
		}
		if len(s.Upstreams) != 1 || s.Upstreams[0].Name != "x" {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	if s.Root != c.root || s.Branch != "feature/x" || s.Server.State != "serving" || s.Server.Peers == nil || *s.Server.Peers != 1 || len(s.Peers) != 1 || s.Peers[0].ID != peer || len(s.Peers[0].Scope) != 2 || len(s.Problems) != 0 {
		t.Errorf("%+v", s)
	}
	c.mustGit("checkout", "-q", "--detach")
	head := strings.TrimSpace(c.mustGit("rev-parse", "HEAD"))
	if text := c.must("env"); !strings.Contains(text, "none, at "+head[:12]+"\n") {
		t.Errorf("detached: %s", text)
	}

	// A policy that cannot be read is told, and nothing else is kept back.
	c.policy("  autostart: maybe\n")
	if text := c.must("env"); !strings.Contains(text, "problem    "+c.root) || !strings.Contains(text, peer) {
		t.Errorf("with a bad policy: %s", text)
	}
	cmd := exec.Command(c.program, "env")
	cmd.Dir, cmd.Env = filepath.Dir(c.root), c.environ()
	if out, err := cmd.CombinedOutput(); exits(t, err) != exitMissing {
		t.Errorf("outside: %s", out)
	}
}
