//go:build unix

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"majordomus/install"
	"majordomus/install/service"
	"majordomus/lease"
	"majordomus/lease/checkout"
	"majordomus/server/hub/config"
)

// checkup is what doctor finds, by the ids of its checks, which are unique.
func (c *accCheckout) checkup() map[string]check {
	c.t.Helper()
	out, log, err := c.run("doctor", "--format", "json")
	code := exits(c.t, err)
	var r struct{ Checks []check }
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		c.t.Fatalf("%v: %s%s", err, out, log)
	}
	if log != "" {
		c.t.Errorf("said on standard error: %s", log)
	}
	all := map[string]check{}
	wrong := false
	for _, one := range r.Checks {
		if _, twice := all[one.ID]; twice || one.Message == "" || one.Status != well && one.Remedy == "" {
			c.t.Errorf("%+v", one)
		}
		wrong = wrong || one.Status != well
		all[one.ID] = one
	}
	if want := map[bool]int{true: exitNo}[wrong]; code != want {
		c.t.Errorf("exit code %d, want %d", code, want)
	}
	return all
}

// ails has doctor look and fails the test unless exactly the checks named find
// something wrong, the first of them with this status and these words.
func (c *accCheckout) ails(status, says string, ids ...string) {
	c.t.Helper()
	all := c.checkup()
	one := all[ids[0]]
	if one.Status != status || !strings.Contains(one.Message, says) {
		c.t.Errorf("%+v, want %s and %q", one, status, says)
	}
	for id, other := range all {
		if (other.Status != well) != slices.Contains(ids, id) {
			c.t.Errorf("beside %q: %+v", ids, other)
		}
	}
	for _, id := range ids {
		if _, is := all[id]; !is {
			c.t.Errorf("there is no check %s", id)
		}
	}
}

func (c *accCheckout) healthy() {
	c.t.Helper()
	for id, one := range c.checkup() {
		if one.Status != well {
			c.t.Errorf("%s: %+v", id, one)
		}
	}
}

// swap writes a file and returns what puts back what was there.
func (c *accCheckout) swap(path, text string, mode os.FileMode) (back func()) {
	c.t.Helper()
	was, err := os.ReadFile(path)
	if err != nil {
		c.t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		c.t.Fatal(err)
	}
	put := func(text string, mode os.FileMode) {
		c.t.Helper()
		if err := errors.Join(os.WriteFile(path, []byte(text), 0o600), os.Chmod(path, mode)); err != nil {
			c.t.Fatal(err)
		}
	}
	put(text, mode)
	return func() { put(string(was), info.Mode().Perm()) }
}

func (c *accCheckout) chmod(path string, mode os.FileMode) (back func()) {
	c.t.Helper()
	info, err := os.Stat(path)
	if err == nil {
		err = os.Chmod(path, mode)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return func() {
		if err := os.Chmod(path, info.Mode().Perm()); err != nil {
			c.t.Fatal(err)
		}
	}
}

// accHealthy is a checkout with everything installed, served and well.
func accHealthy(t *testing.T) *accCheckout {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		accNeed(t, false, "git is not installed")
	}
	c := accAlone(t)
	c.onPath(true)
	shell := filepath.Join(filepath.Dir(c.root), "bash")
	if err := os.Rename(filepath.Join(filepath.Dir(c.root), "shell"), shell); err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(filepath.Dir(c.root), "bin")
	c.extra = append(c.extra, "SHELL="+shell, "XDG_CONFIG_HOME=", "PATH="+bin+":/usr/bin:/bin")
	c.must("init")
	c.writeFile(filepath.Join(c.root, "tool.sh"), "#!/bin/sh\n")
	c.chmod(filepath.Join(c.root, "tool.sh"), 0o755)
	c.writeFile(filepath.Join(c.root, ".ai/repo/mcp.json"), `{"mcpServers": {"files": {"command": "./tool.sh"}}}`)
	c.must("trust", "--yes")
	c.must("install", "editor", "claude", "cursor")
	c.must("install", "editor", "codex", "--user")
	c.must("install", "shell", "bash")
	c.must("install", "hooks")
	c.must("serve", "ensure", "--root", c.root)
	c.registered(1)
	c.keeps("read", "write")
	return c
}

// keeps has the state folder keep these as the tools of the hosted server.
func (c *accCheckout) keeps(tools ...string) {
	c.t.Helper()
	f, err := config.Read(filepath.Join(c.root, ".ai/repo/mcp.json"))
	if err != nil {
		c.t.Fatal(err)
	}
	var list []map[string]string
	for _, name := range tools {
		list = append(list, map[string]string{"name": name})
	}
	b, err := json.Marshal(map[string]any{"tools": list})
	if err != nil {
		c.t.Fatal(err)
	}
	name := fmt.Sprintf("%s__-%.16s.json", f.Servers[0].Name, f.Servers[0].Key())
	c.writeFile(filepath.Join(filepath.Dir(c.leasePath()), "catalogue", name), string(b))
}

var doctorVaries = regexp.MustCompile(`version \S+, is what|client are \S+|process \d+|127\.0\.0\.1:\d+|is free for the next server|is taken, perhaps by another checkout's server; the next takes another port`)

// shows compares what doctor says with a golden file.
func (c *accCheckout) shows(golden string, code int, words ...string) {
	c.t.Helper()
	out, is := c.speaks(append([]string{"doctor"}, words...)...)
	if is != code {
		c.t.Errorf("%s: exit code %d, want %d", golden, is, code)
	}
	c.installGolden("../doctor/"+golden, doctorVaries.ReplaceAllStringFunc(out, func(s string) string {
		switch s[:2] {
		case "pr":
			return "process PID"
		case "12":
			return "127.0.0.1:PORT"
		case "ve":
			return "version VERSION, is what"
		case "cl":
			return "client are VERSION"
		}
		return "is free or taken"
	}))
}

// TestDoctor has each check find that all is well, and then, one at a time, what
// can be wrong.
func TestDoctor(t *testing.T) {
	t.Parallel()
	c := accHealthy(t)
	before := c.everything()
	c.healthy()
	c.shows("well.txt", 0)
	c.shows("help.txt", 0, "--help")
	c.same("doctor only looks", before, c.everything(), filepath.Join(c.root, ".ai/local/state/mcp/server.log"))

	base := filepath.Dir(c.root)
	state := filepath.Dir(c.leasePath())
	servers := filepath.Join(c.root, ".ai/repo/mcp.json")
	other := filepath.Join(base, "other", "majordomus")
	c.writeFile(other, "#!/bin/sh\n")
	c.chmod(other, 0o755)
	link := func(to string) func() {
		path := filepath.Join(base, "bin", "majordomus")
		was, err := os.Readlink(path)
		if err == nil {
			err = errors.Join(os.Remove(path), os.Symlink(to, path))
		}
		if err != nil {
			t.Fatal(err)
		}
		return func() {
			if err := errors.Join(os.Remove(path), os.Symlink(was, path)); err != nil {
				t.Fatal(err)
			}
		}
	}
	environ := func(kv string) func() {
		was := c.extra
		c.extra = append(slices.Clone(was), kv)
		return func() { c.extra = was }
	}
	file := func(path, text string) func() func() {
		return func() func() { return c.swap(path, text, 0o644) }
	}
	read := func(path string) string {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	added := func(path, text string) func() func() {
		return func() func() {
			c.writeFile(path, text)
			return func() {
				if err := os.Remove(path); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	rc, hook := filepath.Join(c.home, ".bashrc"), filepath.Join(c.root, ".git/hooks/pre-commit")
	mcp := filepath.Join(c.root, ".mcp.json")
	program := filepath.Join(base, "bin", "majordomus")
	for _, tt := range []struct {
		name         string
		wrong        func() (undo func())
		status, says string
		ids          []string // the check that says it, and those which it concerns too
	}{
		{"not on the PATH", func() func() { return environ("SHELL=") }, warn, "not on the PATH", []string{"executable", "editor:claude", "editor:cursor"}},
		{"another program", func() func() { return link(other) }, warn, "another file than this one", []string{"executable", "editor:claude", "editor:cursor", "editor:codex", "shell", "hooks"}},
		{"another in this shell", func() func() { return environ("PATH=" + filepath.Dir(other) + ":/usr/bin:/bin") }, warn, "this shell finds", []string{"executable", "shell", "hooks"}},
		{"manifest", file(filepath.Join(c.root, ".ai/manifest.yaml"), "schema: other/v1\n"), bad, "is not known", []string{"checkout"}},
		{"policy", file(filepath.Join(c.root, ".ai/repo/policy.yaml"), "server: {idle: 1}\n"), bad, "server.idle", []string{"policy"}},
		{"account", func() func() { return c.chmod(c.account(), 0o777) }, warn, "others can write", []string{"account"}},
		{"trust written by others", func() func() { return c.chmod(filepath.Join(c.account(), "trust"), 0o777) }, warn, "others can write", []string{"trust", "upstream:files"}},
		{"record", added(filepath.Join(c.account(), "installed", "x.json"), "{"), warn, "x.json", []string{"account"}},
		{"state folder", func() func() { return c.chmod(state, 0o755) }, warn, "others get into", []string{"folder"}},
		// The server makes a new one, so there is nothing to undo.
		{"key", func() func() { c.chmod(filepath.Join(state, "key"), 0o644); return func() {} }, bad, "others can read the key", []string{"folder"}},
		{"not ignored", file(filepath.Join(c.root, ".ai/local/.gitignore"), "# nothing\n"), warn, "git sees", []string{"folder"}},
		{"started in the future", func() func() {
			text := read(c.leasePath())
			at := regexp.MustCompile(`"started_at": *"[^"]*"`)
			return c.swap(c.leasePath(), at.ReplaceAllString(text, `"started_at":"2999-01-01T00:00:00Z"`), 0o600)
		}, warn, "from now", []string{"clock"}},
		{"editor's other program", file(mcp, fmt.Sprintf(`{"mcpServers": {"majordomus": {"command": %q, "args": ["mcp"]}}}`, other)), warn, "another file than this one", []string{"editor:claude"}},
		{"editor's missing program", file(mcp, `{"mcpServers": {"majordomus": {"command": "/nowhere/majordomus", "args": ["mcp"]}}}`), bad, "not found by editors", []string{"editor:claude"}},
		{"editor's program that is none", file(mcp, fmt.Sprintf(`{"mcpServers": {"majordomus": {"command": %q, "args": ["mcp"]}}}`, rc)), bad, "no program", []string{"editor:claude"}},
		{"editor's something else", file(mcp, `{"mcpServers": {"majordomus": {"command": "butler"}}}`), warn, "starts something else", []string{"editor:claude"}},
		{"editor's broken file", file(mcp, "{\"mcpServers\":\n {\"majordomus\": {\"command\": }}}"), bad, mcp + ":2", []string{"editor:claude"}},
		{"hook of another program", file(rc, strings.ReplaceAll(read(rc), program, "/old/majordomus")), warn, "another program or version", []string{"shell"}},
		{"broken marks", file(rc, read(rc)+"# >>> majordomus >>>\n"), bad, "for the second time", []string{"shell"}},
		{"git hook gone", func() func() {
			text := read(hook)
			if err := os.Remove(hook); err != nil {
				t.Fatal(err)
			}
			return func() { c.writeFile(hook, text); c.chmod(hook, 0o755) }
		}, warn, "is gone from", []string{"hooks"}},
		{"git hook of another program", file2(c, hook, strings.ReplaceAll(read(hook), program, "/old/majordomus"), 0o755), warn, "another program or version", []string{"hooks"}},
		{"git hook not executable", func() func() { return c.chmod(hook, 0o644) }, warn, "not executable", []string{"hooks"}},
		{"git hook with broken marks", file2(c, hook, read(hook)+"# >>> majordomus >>>\n", 0o755), bad, "for the second time", []string{"hooks"}},
		{"servers file", file(servers, `{"mcpServers": [`), bad, "mcp.json:1", []string{"servers"}},
		{"an entry", file(servers, `{"mcpServers": {"files": {"command": "./tool.sh"}, "b": {}}}`), warn, "command", []string{"servers", "trust"}},
		{"changed", file(servers, `{"mcpServers": {"files": {"command": "./tool.sh", "args": ["x"]}}}`), warn, "has changed", []string{"trust"}},
		{"missing program", file(servers, `{"mcpServers": {"files": {"command": "no-such-program"}}}`), bad, "no-such-program is not found", []string{"upstream:files", "trust"}},
		{"missing script", file(servers, `{"mcpServers": {"files": {"command": "./no-such.sh"}}}`), bad, "./no-such.sh is not found", []string{"upstream:files", "trust"}},
		{"missing variable", file(servers, `{"mcpServers": {"files": {"command": "./tool.sh", "args": ["${NO_SUCH}"]}}}`), bad, "NO_SUCH", []string{"upstream:files", "trust"}},
		{"missing folder", file(servers, `{"mcpServers": {"files": {"command": "sh", "cwd": "no-such"}}}`), bad, "no-such is not there", []string{"upstream:files", "trust"}},
		{"no program", func() func() { return c.chmod(filepath.Join(c.root, "tool.sh"), 0o644) }, bad, "is no program", []string{"upstream:files"}},
		{"itself", file(servers, `{"mcpServers": {"files": {"command": "majordomus", "args": ["mcp"]}}}`), warn, "itself", []string{"servers"}},
		{"its own address", file(servers, fmt.Sprintf(`{"mcpServers": {"files": {"url": "%s/mcp"}}}`, *c.mustLease().URL)), warn, "does not host itself", []string{"upstream:files", "trust"}},
		{"long names", func() func() {
			c.keeps("read", strings.Repeat("long", 11))
			return func() { c.keeps("read", "write") }
		}, warn, "51 characters of 47", []string{"names"}},
		{"service of a folder that is gone", func() func() {
			e := install.Entry{Kind: install.Service, Name: service.Name("00"), Root: filepath.Join(base, "gone")}
			l := install.OpenLedger(c.account())
			if err := l.Add(e); err != nil {
				t.Fatal(err)
			}
			return func() {
				if err := l.Remove(e); err != nil {
					t.Fatal(err)
				}
			}
		}, warn, "a folder that is gone", []string{"service"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := *c
			d.t = t
			undo := tt.wrong()
			d.extra = c.extra
			d.ails(tt.status, tt.says, tt.ids...)
			if tt.name == "editor's other program" {
				d.shows("wrong.txt", exitNo)
			}
			undo()
		})
	}
	c.healthy() // all of that was undone

	c.must("trust", "--revoke")
	c.ails(warn, "not trusted", "trust")
	c.must("trust", "--yes")
	if runtime.GOOS == "linux" {
		doctorService(t, c)
	}
	doctorServer(t, c)
}

func file2(c *accCheckout, path, text string, mode os.FileMode) func() func() {
	return func() func() { return c.swap(path, text, mode) }
}

// doctorService has a service that no manager knows of.
func doctorService(t *testing.T, c *accCheckout) {
	t.Helper()
	if _, err := os.Stat(fmt.Sprintf("/run/user/%d/systemd/private", os.Getuid())); err == nil {
		return // it would be asked
	}
	co, err := checkout.Open(c.root)
	if err != nil {
		t.Fatal(err)
	}
	m := service.New(service.Config{Home: c.home, UID: os.Getuid()})
	unit := m.File(service.Name(co.ID))
	c.writeFile(unit, "[Unit]\n")
	c.ails(warn, "cannot be asked", "service")
	if err := os.Remove(unit); err != nil {
		t.Fatal(err)
	}
}

// doctorServer has the server hang, die and be another program's, and another
// checkout's too.
func doctorServer(t *testing.T, c *accCheckout) {
	t.Helper()
	doc := c.mustLease()
	accStop(t, doc.PID)
	c.ails(bad, "does not answer", "lease")
	if err := syscall.Kill(doc.PID, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	accPoll(t, 10*time.Second, "its answer", func() error {
		if one := c.checkup()["lease"]; one.Status != well {
			return fmt.Errorf("%+v", one)
		}
		return nil
	})

	other := c.beside("other")
	other.must("serve", "ensure")
	c.registered(2)
	if one := c.checkup()["checkouts"]; one.Status != well || !strings.HasPrefix(one.Message, "1 other") {
		t.Errorf("%+v", one)
	}
	kill := func(c *accCheckout) lease.Document {
		t.Helper()
		doc := c.mustLease()
		if err := syscall.Kill(doc.PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		accPoll(t, 10*time.Second, "the end of the killed one", func() error {
			if held, _ := c.folder().AliveHeld(doc.Token); held {
				return errors.New("it lives")
			}
			return nil
		})
		return doc
	}
	kill(other)
	c.ails(warn, other.root+": its server is stale", "checkouts")
	other.must("serve", "ensure")
	other.must("serve", "stop")
	c.healthy()

	kill(c)
	c.ails(warn, "has left its lease", "lease")
	// Another program comes to listen where the server was.
	var l net.Listener
	accPoll(t, 5*time.Second, "the port must be free", func() (err error) {
		l, err = net.Listen("tcp", strings.TrimPrefix(*doc.URL, "http://"))
		return err
	})
	stranger := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.NotFoundHandler()}}
	stranger.Start()
	c.ails(warn, "another program answers", "port", "lease")
	stranger.Close()
	for text, status := range map[string]string{"": warn, "{": warn} {
		back := c.swap(c.leasePath(), text, 0o600)
		c.ails(status, "has left its lease", "lease")
		back()
	}
	c.must("serve", "ensure")
	c.must("serve", "stop")
	c.healthy() // that none runs is well

	// A folder that cannot be one, as when a disk is read-only or another's.
	local := filepath.Join(c.root, ".ai/local")
	if err := os.Rename(local, local+".away"); err != nil {
		t.Fatal(err)
	}
	c.writeFile(filepath.Join(local, "state"), "no folder")
	c.ails(bad, "cannot be written", "locks", "folder", "lease")
	if err := errors.Join(os.RemoveAll(local), os.Rename(local+".away", local)); err != nil {
		t.Fatal(err)
	}

	outside := *c
	outside.root = filepath.Join(filepath.Dir(c.root), "outside")
	if err := os.Mkdir(outside.root, 0o755); err != nil {
		t.Fatal(err)
	}
	outside.ails(warn, "in none", "checkout")
	outside.shows("outside.txt", exitNo)
	if list, err := os.ReadDir(outside.root); err != nil || len(list) > 0 {
		t.Errorf("%v, %v", list, err)
	}
}

func TestDoctorClock(t *testing.T) {
	t.Parallel()
	now := time.Now()
	at := func(d time.Duration) *time.Time { v := now.Add(d); return &v }
	for _, tt := range []struct {
		made    time.Time
		started *time.Time
		status  string
		says    string
	}{
		{time.Time{}, nil, well, ""},
		{now, at(-time.Hour), well, ""},
		{now.Add(-2 * time.Second), at(2 * time.Second), well, ""},
		{now.Add(-time.Minute), nil, warn, "1m0s behind"},
		{now.Add(time.Minute), at(-time.Hour), warn, "1m0s ahead"},
		{now, at(time.Minute), warn, "1m0s from now"},
	} {
		if c := clocks(now, tt.made, tt.started); c.Status != tt.status || !strings.Contains(c.Message, tt.says) || (c.Remedy == "") != (c.Status == well) {
			t.Errorf("%+v: %+v", tt, c)
		}
	}
}

func TestDoctorVersions(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file := func(path string) lease.File {
		return lease.File{Document: lease.Document{Executable: lease.ExecutableIdentity{Path: path}}}
	}
	for _, tt := range []struct {
		at     standing
		path   string
		mine   string
		status string
		says   string
	}{
		{standing{State: "none"}, "", "v1.0.0", well, "no server"},
		{standing{State: "serving", Version: "v1.0.0"}, self, "v1.0.0", well, "are v1.0.0"},
		{standing{State: "serving", Version: "(devel)"}, self, "(devel)", well, ""},
		{standing{State: "serving", Version: "v1.0.0"}, self, "v1.1.0", warn, "the server is v1.0.0"},
		{standing{State: "serving", Version: "v1.1.0"}, self, "v1.0.0", warn, "the server is v1.1.0"},
		{standing{State: "serving", Version: "v1.1.0"}, self, "(devel)", warn, "the server is v1.1.0"},
		{standing{State: "serving", Version: "v1.0.0", Stale: "it was rebuilt"}, self, "v1.0.0", warn, "it was rebuilt"},
		{standing{State: "serving", Version: "v1.0.0"}, "/nowhere/majordomus", "v1.0.0", warn, "/nowhere"},
	} {
		if c := versions(tt.at, file(tt.path), tt.mine, self); c.Status != tt.status || !strings.Contains(c.Message, tt.says) || (c.Remedy == "") != (c.Status == well) {
			t.Errorf("%+v: %+v", tt, c)
		}
	}
}

func TestDoctorPort(t *testing.T) {
	t.Parallel()
	taken := func(free bool) func(string, string) (net.Listener, error) {
		return func(network, address string) (net.Listener, error) {
			if free && address == "127.0.0.1:0" {
				return net.Listen(network, address)
			}
			return nil, errors.New("operation not permitted")
		}
	}
	d := &diagnosis{}
	if c := d.port(taken(true)); c.Status != well || !strings.Contains(c.Message, "is taken") {
		t.Errorf("%+v", c)
	}
	if c := d.port(taken(false)); c.Status != bad || !strings.Contains(c.Message, "not permitted") || c.Remedy == "" {
		t.Errorf("%+v", c)
	}
	d.at = standing{State: "serving", URL: "http://127.0.0.1:1"}
	if c := d.port(taken(false)); c.Status != well {
		t.Errorf("%+v", c)
	}
}

func TestDoctorLease(t *testing.T) {
	t.Parallel()
	for state, status := range map[string]string{
		"serving": well, "none": well, "starting": well, "silent": bad, "elsewhere": bad, "unreadable": bad, "lost": warn, "stale": warn,
	} {
		d := &diagnosis{at: standing{State: state, Reason: "a reason"}}
		if c := d.standing(); c.Status != status || (c.Remedy == "") != (status == well) || status != well && !strings.HasSuffix(c.Message, ": a reason") {
			t.Errorf("%s: %+v", state, c)
		}
	}
}
