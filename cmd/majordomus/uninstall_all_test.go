//go:build unix

package main

import (
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"majordomus/install"
	"majordomus/install/service"
	"majordomus/lease/checkout"
)

var (
	serviceID  = regexp.MustCompile(`majordomus-[0-9a-f]{8,}\.service`)
	portNumber = regexp.MustCompile(`http://127\.0\.0\.1:\d+`)
)

// everything is every file, folder and link below the checkout and the home, and
// its mode.
func (c *accCheckout) everything() map[string]string {
	c.t.Helper()
	all := map[string]string{}
	for _, dir := range []string{c.root, c.home} {
		err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := e.Info()
			if err != nil {
				return err
			}
			text := ""
			switch {
			case info.Mode().IsRegular():
				b, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				text = string(b)
			case info.Mode()&os.ModeSymlink != 0:
				if text, err = os.Readlink(path); err != nil {
					return err
				}
			}
			all[path] = info.Mode().String() + " " + text
			return nil
		})
		if err != nil {
			c.t.Fatal(err)
		}
	}
	return all
}

// same says in what two states differ, but for what lies below the names.
func (c *accCheckout) same(when string, before, after map[string]string, but ...string) {
	c.t.Helper()
	named := func(path string) bool {
		return slices.ContainsFunc(but, func(name string) bool { return path == name || strings.HasPrefix(path, name+"/") })
	}
	for path, was := range before {
		if is, ok := after[path]; !named(path) && (!ok || is != was) {
			c.t.Errorf("%s: %s was\n%q\nand is\n%q", when, path, was, is)
		}
	}
	for path, is := range after {
		if _, ok := before[path]; !named(path) && !ok {
			c.t.Errorf("%s: %s was left behind: %q", when, path, is)
		}
	}
}

// furnish puts what people have into the checkout and the home.
func (c *accCheckout) furnish() {
	c.t.Helper()
	c.onPath(true)
	c.extra = append(c.extra, "XDG_CONFIG_HOME=")
	for name, text := range accEditorFiles {
		dir, rest, _ := strings.Cut(name, "/")
		c.writeFile(filepath.Join(map[string]string{"work": c.root, "home": c.home}[dir], rest), text)
	}
	// One that was there before by another's hand is one of ours, and would go.
	if err := os.Remove(filepath.Join(c.home, ".cursor/mcp.json")); err != nil {
		c.t.Fatal(err)
	}
	c.writeFile(filepath.Join(c.home, ".bashrc"), "PS1='$ '\n# no end")
	c.writeFile(filepath.Join(c.home, "dotfiles/zshrc"), "setopt x\r\n")
	if err := os.Symlink("dotfiles/zshrc", filepath.Join(c.home, ".zshrc")); err != nil {
		c.t.Fatal(err)
	}
	c.writeFile(filepath.Join(c.root, ".git/hooks/pre-commit"), "#!/bin/sh\nexit 0\n")
	if err := os.Chmod(filepath.Join(c.root, ".git/hooks/pre-commit"), 0o755); err != nil {
		c.t.Fatal(err)
	}
}

// installAll installs all that there is.
func (c *accCheckout) installAll() {
	c.t.Helper()
	c.must("init")
	c.must(append([]string{"install", "editor"}, everyEditor()...)...)
	c.must(append([]string{"install", "editor", "--user"}, everyEditor()...)...)
	c.must("install", "shell", "bash", "zsh", "fish", "direnv")
	c.must("install", "hooks")
	c.writeFile(filepath.Join(c.root, ".ai/repo/mcp.json"), `{"mcpServers": {"a": {"command": "x"}}}`)
	c.must("trust", "--yes")
	c.must("serve", "ensure")
	if runtime.GOOS != "linux" {
		return
	}
	// A service as where there is a manager: there is none here to install one.
	co, err := checkout.Open(c.root)
	if err != nil {
		c.t.Fatal(err)
	}
	m := service.New(service.Config{Home: c.home, UID: os.Getuid()})
	unit := m.File(service.Name(co.ID))
	c.writeFile(unit, "[Unit]\n")
	wants := filepath.Join(filepath.Dir(unit), "default.target.wants")
	if err := os.MkdirAll(wants, 0o755); err != nil {
		c.t.Fatal(err)
	}
	if err := os.Symlink(unit, filepath.Join(wants, filepath.Base(unit))); err != nil {
		c.t.Fatal(err)
	}
	if err := install.OpenLedger(c.account()).Add(install.Entry{Kind: install.Service, Name: service.Name(co.ID), File: unit, Root: c.root}); err != nil {
		c.t.Fatal(err)
	}
}

// sweeps compares what uninstall --all says with a golden file, without what
// differs between runs and machines.
func (c *accCheckout) sweeps(golden string, code int, words ...string) {
	c.t.Helper()
	out, is := c.speaks(append([]string{"uninstall", "--all"}, words...)...)
	if is != code {
		c.t.Errorf("%s: exit code %d, want %d", golden, is, code)
	}
	if runtime.GOOS != "linux" {
		return // files are elsewhere, and there is no service to install by hand
	}
	out = portNumber.ReplaceAllString(serviceID.ReplaceAllString(out, "majordomus-ID.service"), "http://127.0.0.1:PORT")
	c.installGolden("../traces/"+golden, out)
}

// TestUninstallAll installs everything there is, and has every byte of the
// checkout and the home as it was before, but for what it names.
func TestUninstallAll(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("git"); err != nil {
		accNeed(t, false, "git is not installed")
	}
	c := accAlone(t)
	c.furnish()
	gone, third := c.beside("gone"), c.beside("third")
	before := c.everything()
	c.sweeps("help.txt", 0, "--help")
	c.sweeps("nothing.txt", 0)
	c.same("with nothing to undo", before, c.everything())

	c.installAll()
	gone.must("install", "editor", "claude", "cursor")
	gone.must("install", "shell", "direnv")
	gone.must("install", "hooks")
	gone.must("serve", "ensure")
	gone.must("serve", "stop")
	third.must("install", "editor", "claude")
	third.must("serve", "ensure")
	c.registered(3)
	if err := os.RemoveAll(gone.root); err != nil {
		t.Fatal(err)
	}
	installed := c.everything()
	if len(installed) < len(before)+20 {
		t.Fatal("little was installed")
	}
	c.sweeps("dry.txt", 0, "--dry-run", "--purge")
	c.same("after --dry-run", installed, c.everything())
	if _, err := c.lease(); err != nil {
		t.Errorf("--dry-run has stopped the server: %v", err)
	}

	ai := []string{filepath.Join(c.root, ".ai/repo"), filepath.Join(c.root, ".ai/manifest.yaml")}
	folders := []string{filepath.Join(c.root, ".ai")}
	c.sweeps("all.txt", 0)
	c.same("after uninstall --all", before, c.everything(), slices.Concat(ai, folders, []string{c.account(), filepath.Dir(c.account()), filepath.Join(c.home, ".local")})...)
	if there(filepath.Join(third.root, ".mcp.json")) {
		t.Error("the entry in another checkout is left")
	}
	if _, err := c.lease(); err == nil {
		t.Error("it is served still")
	}
	if third.servers()[third.root].State != "serving" {
		t.Error("another checkout's server is gone")
	}
	after := c.everything()
	c.sweeps("again.txt", 0)
	c.same("a second time", after, c.everything())

	c.sweeps("purge.txt", 0, "--purge")
	if there(filepath.Join(c.root, ".ai/local")) || !there(filepath.Join(c.root, ".ai/repo/policy.yaml")) {
		t.Error("it is not the folder .ai/local that was removed")
	}
	third.must("serve", "stop")
	third.sweeps("purge-third.txt", 0, "--purge")
	c.same("at the end", before, c.everything(), append(ai, filepath.Join(c.root, ".ai"))...)
	if there(filepath.Join(third.root, ".ai")) {
		t.Error("a folder that was made for .ai/local is left")
	}
	c.sweeps("purge-again.txt", 0, "--purge")
	c.same("at the end, again", before, c.everything(), append(ai, filepath.Join(c.root, ".ai"))...)
}

// What others have changed stays and is named, and keeps nothing else.
func TestUninstallAllLeaves(t *testing.T) {
	t.Parallel()
	c := accAlone(t)
	c.onPath(true)
	c.must("install", "editor", "claude", "junie")
	c.must("install", "shell", "bash", "fish")
	c.writeFile(filepath.Join(c.root, ".mcp.json"), `{"mcpServers": {"majordomus": {"command": "butler"}}}`)
	rc := filepath.Join(c.home, ".bashrc")
	b, err := os.ReadFile(rc)
	if err != nil {
		t.Fatal(err)
	}
	c.writeFile(rc, string(b)+"# >>> majordomus >>>\n")
	c.writeFile(filepath.Join(c.account(), "installed", "editor-x.json"), "{")
	c.sweeps("leaves.txt", 1)
	for _, path := range []string{filepath.Join(c.root, ".junie"), filepath.Join(c.home, ".config/fish")} {
		if there(path) {
			t.Errorf("%s is left", path)
		}
	}
	c.fileIs(filepath.Join(c.root, ".mcp.json"), `{"mcpServers": {"majordomus": {"command": "butler"}}}`)
	c.fileIs(rc, string(b)+"# >>> majordomus >>>\n")
	var r tracesReport
	out, _, _ := c.run("uninstall", "--all", "--format", "json") // ignore error: the code is checked above
	if err := json.Unmarshal([]byte(out), &r); err != nil || len(r.Undone) != 0 || !slices.ContainsFunc(r.Left, func(l leftover) bool { return l.Failed && l.Name == rc }) {
		t.Errorf("%v: %s", err, out)
	}
	out, code := c.speaks("uninstall", "--purge")
	c.installGolden("../traces/words-purge.txt", out)
	if code != exitWords {
		t.Errorf("exit code %d", code)
	}

	// From outside any checkout what is the account's is undone.
	outside := *c
	outside.root = filepath.Join(filepath.Dir(c.root), "outside")
	if err := os.Mkdir(outside.root, 0o755); err != nil {
		t.Fatal(err)
	}
	c.writeFile(filepath.Join(c.root, ".mcp.json"), `{}`)
	c.writeFile(rc, string(b))
	if err := os.Remove(filepath.Join(c.account(), "installed", "editor-x.json")); err != nil {
		t.Fatal(err)
	}
	outside.sweeps("outside.txt", 0)
	outside.sweeps("outside-purge.txt", exitMissing, "--purge")
	if there(rc) || there(filepath.Join(c.account(), "installed")) {
		t.Error("something of the account's is left")
	}
}

// A folder that somebody uses is not taken from under him.
func TestUninstallAllInUse(t *testing.T) {
	t.Parallel()
	c := accAlone(t)
	c.must("serve", "ensure")
	e := c.editor()
	e.mustOpen()
	e.mustServer()
	c.sweeps("in-use.txt", 1, "--purge")
	if !there(filepath.Join(c.root, ".ai/local")) {
		t.Error("it is gone")
	}
	e.close()
	c.sweeps("in-use-not.txt", 0, "--purge")
	if there(filepath.Join(c.root, ".ai")) {
		t.Error("it is left")
	}
}
