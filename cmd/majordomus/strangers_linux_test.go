package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"majordomus/lease"
	"majordomus/lease/checkout"
)

// Two accounts of one machine, of which neither is root: who works, and who
// means no good.
const (
	strangersVictim   = 54321
	strangersIntruder = 54322
)

// strangersCheckout is a checkout of the account that works.
func strangersCheckout(t *testing.T) *accCheckout {
	t.Helper()
	accNeed(t, os.Geteuid() == 0, "only root can run processes as other accounts")
	c := accFresh(t)
	// Where the program is, others come too.
	for _, dir := range []string{filepath.Dir(c.program), accTemp.dir} {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	dir := filepath.Dir(c.root)
	for path := dir; path != os.TempDir() && path != "/"; path = filepath.Dir(path) {
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		return os.Lchown(path, strangersVictim, strangersVictim)
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func strangersAs(uid uint32) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
}

func (c *accCheckout) victim(args ...string) *exec.Cmd {
	cmd := c.command(args...)
	cmd.SysProcAttr = strangersAs(strangersVictim)
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// works has the victim's program do something, and returns what it says.
func (c *accCheckout) works(args ...string) string {
	c.t.Helper()
	cmd := c.victim(args...)
	out, err := cmd.Output()
	if err != nil {
		if exit, ok := err.(*exec.ExitError); ok {
			out = append(out, exit.Stderr...)
		}
		c.t.Fatalf("%q: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// intrudes runs a line of shell as the intruder; $0 is the program.
func (c *accCheckout) intrudes(script string) (string, error) {
	c.t.Helper()
	cmd := c.command()
	cmd.Path, cmd.Args = "/bin/sh", []string{"/bin/sh", "-c", script, c.program}
	cmd.SysProcAttr = strangersAs(strangersIntruder)
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (c *accCheckout) mustIntrude(script string) {
	c.t.Helper()
	if out, err := c.intrudes(script); err != nil {
		c.t.Fatalf("%s: %v: %s", script, err, out)
	}
}

// TestStrangersHelper is no test: it is what the intruder runs.
func TestStrangersHelper(t *testing.T) {
	t.Parallel()
	address, index := os.Getenv("STRANGERS_LISTEN"), os.Getenv("STRANGERS_INDEX")
	if address == "" {
		return // nobody wants it
	}
	// Of a process that was killed the first thread may have ended and others not,
	// and what it listened on is theirs until they have.
	var l net.Listener
	accPoll(t, 5*time.Second, "the port must be free", func() (err error) {
		l, err = net.Listen("tcp", address)
		return err
	})
	fmt.Printf("listening on %s as %d\n", l.Addr(), os.Geteuid())
	http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // until it is killed
		r.Write(os.Stdout)
		fmt.Printf("\nheard %s %s %s\n", r.Method, r.URL.Path, r.Header.Get("Authorization"))
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, index)
	}))
}

// impostor has the intruder listen and answer with an index. What it hears is
// kept.
func (c *accCheckout) impostor(address, index string) (at string, heard *accBuffer) {
	c.t.Helper()
	copied := filepath.Join(filepath.Dir(c.program), "stranger")
	if _, err := os.Stat(copied); err != nil {
		self, err := os.ReadFile("/proc/self/exe")
		if err == nil {
			err = accExecutable(copied, self)
		}
		if err != nil {
			c.t.Fatal(err)
		}
	}
	cmd := exec.Command(copied, "-test.run=^TestStrangersHelper$", "-test.timeout=2m")
	cmd.Dir = "/"
	cmd.Env = []string{"STRANGERS_LISTEN=" + address, "STRANGERS_INDEX=" + index}
	cmd.SysProcAttr = strangersAs(strangersIntruder)
	out, err := cmd.StdoutPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		cmd.Process.Kill() // ignore error: it may have ended
		cmd.Wait()         // ignore error: killed
	})
	r := bufio.NewReader(out)
	line, err := r.ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "listening on ") {
		c.t.Fatalf("the stranger says %q, %v", line, err)
	}
	heard = &accBuffer{}
	go io.Copy(heard, r) // ends with the process
	return strings.Fields(line)[2], heard
}

// untold fails when a stranger has heard what is none of its business.
func (c *accCheckout) untold(heard *accBuffer) {
	c.t.Helper()
	got := heard.String()
	for _, secret := range []string{"Authorization: ", "Bearer", "jsonrpc", "initialize", "Upgrade"} {
		if strings.Contains(got, secret) {
			c.t.Errorf("a stranger heard %q", got)
		}
	}
}

// servedTo is by whom an editor of the victim's is served, and how it says so.
func (c *accCheckout) servedTo() (accServed, string) {
	c.t.Helper()
	e := c.editorOf(c.victim("mcp"))
	said := e.mustOpen()
	s := e.mustServer()
	e.close()
	return s, said + e.log.String()
}

func (c *accCheckout) state(name string) string {
	return filepath.Join(c.root, ".ai/local/state/mcp", name)
}

func (c *accCheckout) ownedBy(name string, uid uint32) {
	c.t.Helper()
	info, err := os.Stat(c.state(name))
	if err != nil {
		c.t.Fatal(err)
	}
	if is := info.Sys().(*syscall.Stat_t).Uid; is != uid {
		c.t.Errorf("%s belongs to %d, and not to %d", name, is, uid)
	}
}

// TestStrangersWithoutKey is another account in a checkout that it can read: it
// gets at nothing, and what it tries harms nobody.
func TestStrangersWithoutKey(t *testing.T) {
	t.Parallel()
	c := strangersCheckout(t)
	e := c.editorOf(c.victim("mcp"))
	e.mustOpen()
	e.mustServer()
	doc, key := c.mustLease(), c.key()
	c.ownedBy("key", strangersVictim)

	for _, script := range []string{
		"cat .ai/local/state/mcp/key", "ls .ai/local/state/mcp", "cat .ai/local/state/mcp/server.json", "cat .ai/local/state/mcp/server.log",
		"rm -f .ai/local/state/mcp/server.json", "mv .ai/local/state .ai/local/other", "rmdir .ai/local/state/mcp", "chmod 777 .ai/local/state/mcp",
		`"$0" key`, `"$0" key --rotate`, `"$0" serve stop`, `"$0" serve ensure`, `"$0" open --print`, `"$0" announce mine .`,
		fmt.Sprintf("kill -9 %d", doc.PID), fmt.Sprintf("cat /proc/%d/environ", doc.PID), fmt.Sprintf("ls /proc/%d/fd", doc.PID),
	} {
		if out, err := c.intrudes(script); err == nil || strings.Contains(out, key) || strings.Contains(out, doc.Token) {
			t.Errorf("%s: %v: %s", script, err, out)
		}
	}
	// Over the network it is like anybody without the key, or with another.
	for _, offered := range []string{"", "Bearer " + strings.Repeat("0", 64), "Bearer " + key[:63], "Basic " + key} {
		for _, path := range []string{"/mcp", "/api/v1/server", "/api/v1/peers", "/api/v1/executions", "/api/v1/events", "/metrics"} {
			req, err := http.NewRequest("GET", *doc.URL+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			if offered != "" {
				req.Header.Set("Authorization", offered)
			}
			resp, err := accHTTP.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != http.StatusUnauthorized {
				t.Errorf("GET %s with %.12q: %d", path, offered, resp.StatusCode)
			}
		}
	}
	// Its own editor in there is served alone, and told why.
	cmd := c.command("mcp")
	cmd.SysProcAttr = strangersAs(strangersIntruder)
	other := c.editorOf(cmd)
	said := other.mustOpen()
	if s := other.mustServer(); s.Alone == "" || s.URL != "" {
		t.Errorf("another account's editor is served by %+v", s)
	}
	if !strings.Contains(said, "permission denied") {
		t.Errorf("it is not told why: %s", said)
	}
	if s := e.mustServer(); !s.LeaseHolder || s.Alone != "" || s.URL != *doc.URL {
		t.Errorf("the victim is served by %+v", s)
	}
	if now := c.mustLease(); now.Token != doc.Token || c.key() != key {
		t.Error("the lease or the key is another")
	}
}

// TestStrangersPort has the intruder take the port that the next server would
// listen on, and answer there as the last one did.
func TestStrangersPort(t *testing.T) {
	t.Parallel()
	c := strangersCheckout(t)
	c.works("serve", "ensure")
	doc := c.mustLease()
	resp, err := accHTTP.Get(*doc.URL + "/")
	if err != nil {
		t.Fatal(err)
	}
	index, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(doc.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	c.gone(doc.PID, 5*time.Second)
	at, heard := c.impostor(strings.TrimPrefix(*doc.URL, "http://"), string(index))
	s, said := c.servedTo()
	if s.Alone != "" || !s.LeaseHolder || s.URL == "http://"+at {
		t.Errorf("served by %+v: %s", s, said)
	}
	c.works("serve", "status")
	c.works("serve", "stop")
	if got := heard.String(); !strings.Contains(got, "heard GET / ") {
		t.Errorf("nobody asked the stranger, so that nothing is shown: %q", got)
	}
	c.untold(heard)
}

// strangersLease is a lease that names an impostor, of a form that wants no
// proof.
func (c *accCheckout) strangersLease(at string) string {
	c.t.Helper()
	url := "http://" + at
	b, err := json.Marshal(lease.Document{Schema: lease.Schema, Token: strings.Repeat("ab", 16), Root: c.root, URL: &url, StartedAt: time.Now(), Version: "v99.0.0"})
	if err != nil {
		c.t.Fatal(err)
	}
	return string(b)
}

// TestStrangersFolder has the intruder make the state folder, or what is in it,
// before anybody else does, in a checkout whose .ai/local it can write. The
// victim gets a server of its own, with a key that nobody else knows.
func TestStrangersFolder(t *testing.T) {
	t.Parallel()
	const key = "0123456789abcdef0123456789abcdef"
	for _, test := range []struct {
		name   string
		script string // in the state folder, as the intruder
		mode   string // of the folder; "": it is not made
		alone  bool
	}{
		{name: "all that there is", mode: "0777", script: `printf %s "$KEY" >key && printf %s "$LEASE" >server.json && touch server.lock launch.lock server.log && chmod 0666 *`},
		{name: "all that there is, for nobody to open", mode: "0777", script: `printf %s "$KEY" >key && printf %s "$LEASE" >server.json && touch server.lock launch.lock server.log && chmod 0 *`},
		{name: "links to folders", mode: "0777", script: `mkdir theirs && for f in key server.json server.lock launch.lock server.log; do ln -s theirs $f; done`},
		{name: "links out", mode: "0777", script: `for f in key server.json server.lock launch.lock server.log; do ln -s "$OUT/$f" $f; done`},
		{name: "pipes", mode: "0777", script: `for f in key server.json server.lock launch.lock server.log; do mkfifo -m 0666 $f; done`},
		{name: "folders", mode: "0777", script: `for f in server.json server.lock launch.lock server.log; do mkdir -m 0777 $f; done`},
		{name: "a key as a folder", mode: "0777", script: `mkdir -m 0777 key`, alone: true},
		{name: "a folder that nobody may write", mode: "0755", script: `printf %s "$KEY" >key && printf %s "$LEASE" >server.json && chmod 0644 *`, alone: true},
		{name: "a folder in which nobody may replace what is another's", mode: "1777", script: `printf %s "$KEY" >key && printf %s "$LEASE" >server.json && chmod 0644 *`, alone: true},
		{name: "a file in place of the folder", script: `touch .ai/local/state/mcp`, alone: true},
		{name: "a link in place of the folder", script: `mkdir -m 0777 "$OUT/mcp" && ln -s "$OUT/mcp" .ai/local/state/mcp`, alone: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := strangersCheckout(t)
			co, err := checkout.Open(c.root)
			if err != nil {
				t.Fatal(err)
			}
			index, err := json.Marshal(lease.Index{Name: "majordomus", Version: "v99.0.0", RepositoryID: co.ID})
			if err != nil {
				t.Fatal(err)
			}
			at, heard := c.impostor("127.0.0.1:0", string(index))
			state, out := c.state(""), filepath.Join(filepath.Dir(c.root), "out")
			for path, mode := range map[string]os.FileMode{out: 0o777, filepath.Dir(filepath.Clean(state)): 0o777} {
				if err := os.MkdirAll(path, mode); err != nil {
					t.Fatal(err)
				}
				if err := os.Chmod(path, mode); err != nil {
					t.Fatal(err)
				}
			}
			for _, path := range []string{".ai", ".ai/local", ".ai/local/state"} {
				if err := os.Chown(filepath.Join(c.root, path), strangersVictim, strangersVictim); err != nil {
					t.Fatal(err)
				}
			}
			script := test.script
			if test.mode != "" {
				script = "mkdir .ai/local/state/mcp && cd .ai/local/state/mcp && { " + script + "; } && chmod " + test.mode + " ."
			}
			c.extra = []string{"KEY=" + key, "LEASE=" + c.strangersLease(at), "OUT=" + out}
			c.mustIntrude(script)
			c.extra = nil

			e := c.editorOf(c.victim("mcp"))
			said := e.mustOpen()
			s := e.mustServer()
			if s.URL == "http://"+at || (s.Alone != "") != test.alone || s.LeaseHolder == test.alone {
				t.Errorf("served by %+v: %s", s, e.log.String())
			}
			if test.alone && !strings.Contains(said, "alone") {
				t.Errorf("the client is not told: %s", said)
			}
			c.untold(heard)
			if left, _ := os.ReadDir(out); len(left) > 0 && !strings.Contains(script, "$OUT/mcp") { // ignore error: it is there
				t.Errorf("something was made outside: %v", left)
			}
			if test.alone {
				return
			}
			c.ownedBy("key", strangersVictim)
			c.ownedBy("server.json", strangersVictim)
			if c.key() == key {
				t.Error("the key is the one that the intruder knows")
			}
			if out, err := c.intrudes("cat .ai/local/state/mcp/key"); err == nil || strings.Contains(out, c.key()) {
				t.Errorf("the intruder reads the key: %s", out)
			}
			// It is said.
			var health struct{ Checks []struct{ ID, Status string } }
			if _, err := accGet(*c.mustLease().URL+"/api/v1/health", &health); err != nil {
				t.Fatal(err)
			}
			for _, check := range health.Checks {
				if check.ID == "lease" && check.Status != "warn" {
					t.Errorf("health says %q of the lease", check.Status)
				}
			}
			if status := c.works("status"); !strings.Contains(status, "exposed    the state folder belongs to another account") {
				t.Errorf("status does not say so: %s", status)
			}
			// What it puts there now is no more than a loss, and no gain.
			c.extra = []string{"LEASE=" + c.strangersLease(at), "KEY=" + key}
			// ignore error: the victim may be quicker, and what is there its own again
			c.intrudes(`umask 022; cd .ai/local/state/mcp && rm -f server.json key && printf %s "$LEASE" >server.json && printf %s "$KEY" >key`)
			c.extra = nil
			accPoll(t, 20*time.Second, "the victim must be served by its own again", func() error {
				s, err := e.server()
				if err == nil && (s.Alone != "" || !s.LeaseHolder) {
					err = fmt.Errorf("served by %+v", s)
				}
				return err
			})
			c.ownedBy("server.json", strangersVictim)
			c.untold(heard)
		})
	}
}

// TestStrangersMode opens a state folder of one's own to others: that is said,
// and the next one who starts closes it.
func TestStrangersMode(t *testing.T) {
	t.Parallel()
	c := strangersCheckout(t)
	c.works("serve", "ensure")
	old := c.key()
	for _, chmod := range []struct {
		path, says string
		mode       os.FileMode
	}{
		{"", "the mode of the state folder lets other accounts in", 0o777},
		{"", "the mode of the state folder lets other accounts in", 0o770},
		{"key", "the key can be read by other accounts", 0o644},
	} {
		if err := os.Chmod(c.state(chmod.path), chmod.mode); err != nil {
			t.Fatal(err)
		}
		var health json.RawMessage
		if _, err := accGet(*c.mustLease().URL+"/api/v1/health", &health); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(health), chmod.says) {
			t.Errorf("health does not say %q: %s", chmod.says, health)
		}
		c.servedTo()
		if info, err := os.Stat(c.state(chmod.path)); err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%q stays as it is: %v, %v", chmod.path, info.Mode(), err)
		}
		if status := c.works("status"); strings.Contains(status, "exposed") {
			t.Errorf("status still says: %s", status)
		}
	}
	if c.key() == old {
		t.Error("a key that others could read is still the key")
	}
	c.works("serve", "stop")
}
