//go:build unix

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// The tests of what is hosted run real servers behind the program: those of
// testdata/upstreams, which others wrote, and testdata/bench/upstream, which
// does what a test needs.

// hubNode is a node and the folders of what it runs.
func hubNode(t *testing.T) (node, clients, upstreams string) {
	t.Helper()
	clients, err := filepath.Abs(filepath.Join("testdata", "clients"))
	if err != nil {
		t.Fatal(err)
	}
	upstreams = filepath.Join(filepath.Dir(clients), "upstreams")
	for _, dir := range []string{clients, upstreams} {
		_, err = os.Stat(filepath.Join(dir, "node_modules"))
		need(t, "what `npm ci` installs in testdata/"+filepath.Base(dir), err)
	}
	node, err = findNode(t, clients)
	need(t, "node 20 or newer", err)
	return node, clients, upstreams
}

// hubServer is an entry of a servers file.
type hubServer struct {
	Command string            `json:"command"`
	Args    []string          `json:"args,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
}

// hosts writes the servers file.
func (c *accCheckout) hosts(servers map[string]hubServer) {
	c.t.Helper()
	b, err := json.MarshalIndent(map[string]any{"mcpServers": servers}, "", "  ")
	if err != nil {
		c.t.Fatal(err)
	}
	c.write(".ai/repo/mcp.json", string(b)+"\n", 0o644)
}

func (c *accCheckout) mustRun(args ...string) string {
	c.t.Helper()
	out, log, err := c.run(args...)
	if err != nil {
		c.t.Fatalf("majordomus %q: %v: %s%s", args, err, out, log)
	}
	return out
}

// hostsReal has the checkout host the servers of testdata/upstreams, trusted.
func (c *accCheckout) hostsReal(node, upstreams string) {
	c.t.Helper()
	real := func(name string) []string {
		return []string{filepath.Join(upstreams, "node_modules", "@modelcontextprotocol", "server-"+name, "dist", "index.js")}
	}
	c.hosts(map[string]hubServer{
		"everything": {Command: node, Args: append(real("everything"), "stdio")},
		"files":      {Command: node, Args: append(real("filesystem"), c.root)},
		"memory":     {Command: node, Args: real("memory"), Env: map[string]string{"MEMORY_FILE_PATH": filepath.Join(c.home, "memory.jsonl")}},
		"odd":        {Command: node, Args: []string{filepath.Join(upstreams, "odd.mjs")}},
		"thinking":   {Command: node, Args: real("sequential-thinking")},
	})
	c.mustRun("trust", "--yes")
}

// TestHostedServers has clients that others wrote use servers that others wrote
// through the hub, and find what they find without it. The checks are in
// testdata/clients.
func TestHostedServers(t *testing.T) {
	t.Parallel()
	node, clients, upstreams := hubNode(t)
	for script, least := range map[string]int{"hub1.mjs": 12, "hub2.mjs": 5} {
		t.Run(script, func(t *testing.T) {
			c := accFresh(t)
			c.hostsReal(node, upstreams)
			if made := makeChecks(t, []string{node, filepath.Join(clients, script), c.program, c.root}); len(made) < least {
				t.Errorf("%d checks were made, not even %d: %q", len(made), least, made)
			}
		})
	}
}

// hubUpstream builds testdata/bench/upstream once for all tests.
var hubUpstream = sync.OnceValues(func() (string, error) {
	program, err := accProgram()
	if err != nil {
		return "", err
	}
	path := filepath.Join(filepath.Dir(program), "upstream")
	if out, err := exec.Command("go", "build", "-o", path, "./testdata/bench/upstream").CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the upstream: %w: %s", err, out)
	}
	return path, nil
})

// hostsFamily has the checkout host a server "up" that starts another process
// and ends by itself on no account, and returns what tells the processes that
// there were.
func (c *accCheckout) hostsFamily() (noted func() map[string][]int) {
	c.t.Helper()
	upstream, err := hubUpstream()
	if err != nil {
		c.t.Fatal(err)
	}
	note := filepath.Join(c.home, "note")
	c.hosts(map[string]hubServer{"up": {Command: upstream, Args: []string{"-note", note, "-family"}}})
	noted = func() map[string][]int {
		c.t.Helper()
		b, err := os.ReadFile(note)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			c.t.Fatal(err)
		}
		all := map[string][]int{}
		for line := range strings.Lines(string(b)) {
			var what string
			var pid int
			if _, err := fmt.Sscanf(line, "%s %d\n", &what, &pid); err != nil {
				c.t.Fatalf("%q: %v", line, err)
			}
			all[what] = append(all[what], pid)
		}
		return all
	}
	c.t.Cleanup(func() {
		if _, log, err := c.run("serve", "stop", "--force"); err != nil {
			c.t.Errorf("stopping the server: %v: %s", err, log)
		}
		for _, pids := range noted() {
			for _, pid := range pids {
				if hubRuns(pid, upstream) {
					c.t.Errorf("process %d outlives the server", pid)
					syscall.Kill(pid, syscall.SIGKILL) // ignore error: it has just ended
				}
			}
		}
	})
	return noted
}

// hubRuns reports whether the process runs the program: its number may have
// been given away, and it may wait to be buried.
func hubRuns(pid int, program string) bool {
	if exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); err == nil {
		return exe == program
	}
	if _, err := os.Stat("/proc/self/exe"); err == nil {
		return false
	}
	return syscall.Kill(pid, 0) == nil
}

// hubEnd waits for the end of all of these processes.
func hubEnd(t *testing.T, what string, pids ...int) {
	t.Helper()
	upstream, err := hubUpstream()
	if err != nil {
		t.Fatal(err)
	}
	accPoll(t, 30*time.Second, what, func() error {
		for _, pid := range pids {
			if hubRuns(pid, upstream) {
				return fmt.Errorf("process %d runs", pid)
			}
		}
		return nil
	})
}

// tools are the names that are listed.
func (e *accEditor) tools() []string {
	e.c.t.Helper()
	b, err := e.request("tools/list", map[string]any{})
	if err != nil {
		e.c.t.Fatal(err)
	}
	var list struct{ Tools []struct{ Name string } }
	if err := json.Unmarshal(b, &list); err != nil {
		e.c.t.Fatal(err)
	}
	var names []string
	for _, tool := range list.Tools {
		names = append(names, tool.Name)
	}
	return names
}

// tool calls a tool and returns what its first part says.
func (e *accEditor) tool(name string, arguments any) (string, error) {
	b, err := e.request("tools/call", map[string]any{"name": name, "arguments": arguments})
	if err != nil {
		return "", err
	}
	var result struct {
		Content []struct{ Text string }
	}
	if err := json.Unmarshal(b, &result); err != nil || len(result.Content) == 0 {
		return "", fmt.Errorf("%s answered %s: %v", name, b, err)
	}
	return result.Content[0].Text, nil
}

// findings are what health has to say under an id.
func (c *accCheckout) findings(id string) string {
	c.t.Helper()
	var health struct {
		Checks []struct {
			ID       string
			Findings []struct{ Message, Remedy string }
		}
	}
	if _, err := accGet(*c.mustLease().URL+"/api/v1/health", &health); err != nil {
		c.t.Fatal(err)
	}
	var found []string
	for _, check := range health.Checks {
		for _, f := range check.Findings {
			if check.ID == id {
				found = append(found, f.Message+"; "+f.Remedy)
			}
		}
	}
	return strings.Join(found, "\n")
}

// trustFinding is what health has to say of trust: over HTTP, and where there is
// an editor from its tool too.
func (c *accCheckout) trustFinding(e *accEditor) string {
	c.t.Helper()
	said := c.findings("trust")
	if e != nil {
		text, err := e.tool("majordomus_health", map[string]any{})
		if err != nil {
			c.t.Fatal(err)
		}
		if strings.Contains(text, "majordomus trust") != strings.Contains(said, "majordomus trust") {
			c.t.Errorf("health says %q, the tool %s", said, text)
		}
	}
	return said
}

// TestTrustedOrNothing has a file that came with a clone start nothing, however
// the server came about, and every surface say what to run; what a person
// agrees to starts in the same server, and ends with the agreement.
func TestTrustedOrNothing(t *testing.T) {
	t.Parallel()
	for name, serve := range map[string]func(*accCheckout){
		"mcp": func(*accCheckout) {}, // by the first editor
		"serve": func(c *accCheckout) {
			cmd := c.command("serve")
			var log accBuffer
			cmd.Stderr = &log
			if err := cmd.Start(); err != nil {
				c.t.Fatal(err)
			}
			c.t.Cleanup(func() {
				cmd.Process.Kill() // ignore error: mostly ended by then
				cmd.Wait()         // ignore error: killed
			})
			accPoll(c.t, 20*time.Second, "the server must publish its address", func() error {
				if _, err := c.lease(); err != nil {
					return fmt.Errorf("%w: %s", err, log.String())
				}
				return nil
			})
		},
		"serve ensure": func(c *accCheckout) { c.mustRun("serve", "ensure") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := accFresh(t)
			noted := c.hostsFamily()
			serve(c)
			if _, err := c.lease(); err == nil {
				if said := c.trustFinding(nil); !strings.Contains(said, "not trusted") || !strings.Contains(said, "majordomus trust") {
					t.Errorf("without an editor health says %q", said)
				}
			}
			e := c.editor()
			e.mustOpen()
			nothing := func(why string) {
				t.Helper()
				// A list waits for first starts, and a call for its server: what
				// would start has by then.
				if names := e.tools(); slices.ContainsFunc(names, func(s string) bool { return strings.HasPrefix(s, "up__") }) {
					t.Errorf("%s: listed %q", why, names)
				}
				if got, err := e.tool("up__read", map[string]any{}); err == nil {
					t.Errorf("%s: a call was answered %q", why, got)
				}
				if said := c.trustFinding(e); !strings.Contains(said, why) || !strings.Contains(said, "majordomus trust") {
					t.Errorf("%s: health says %q", why, said)
				}
			}
			runs := func() (pids []int) {
				t.Helper()
				before := len(noted()["server"])
				c.mustRun("trust", "--yes")
				accPoll(t, 20*time.Second, "what is trusted must start", func() error {
					if !slices.Contains(e.tools(), "up__read") {
						return errors.New("it is not listed")
					}
					now := noted()
					if len(now["server"]) <= before || len(now["child"]) != len(now["server"]) {
						return fmt.Errorf("started %v", now)
					}
					return nil
				})
				if got, err := e.tool("up__read", map[string]any{"a": 1}); err != nil || got != `{"a":1}` {
					t.Errorf("a call: %q, %v", got, err)
				}
				if said := c.trustFinding(e); said != "" {
					t.Errorf("trusted, and health says %q", said)
				}
				now := noted()
				if n := len(now["server"]); n != before+1 {
					t.Errorf("%d processes were started at once", n-before)
				}
				return []int{now["server"][before], now["child"][before]}
			}
			ends := func(why string, pids []int) {
				t.Helper()
				hubEnd(t, why+": what it hosted must end", pids...)
				accPoll(t, 20*time.Second, why+": health must say so", func() error {
					if said := c.trustFinding(e); !strings.Contains(said, why) {
						return fmt.Errorf("it says %q", said)
					}
					return nil
				})
				nothing(why)
			}

			nothing("not trusted")
			if now := noted(); len(now) > 0 {
				t.Fatalf("untrusted, it started %v", now)
			}
			first := c.mustLease()
			pids := runs()
			b, err := os.ReadFile(filepath.Join(c.root, ".ai/repo/mcp.json"))
			if err != nil {
				t.Fatal(err)
			}
			c.write(".ai/repo/mcp.json", string(b)+"\n", 0o644) // says the same, and is another file
			ends("changed", pids)
			pids = runs()
			if name == "mcp" { // nobody need be there to see it
				e.close()
				c.mustRun("trust", "--revoke")
				hubEnd(t, "revoked without an editor: what it hosted must end", pids...)
			} else {
				c.mustRun("trust", "--revoke")
				ends("not trusted", pids)
			}
			if now := c.mustLease(); now.Token != first.Token {
				t.Error("the server was restarted")
			}
		})
	}
}

// TestHostedVariables has one server whose variable nobody has set keep nobody
// else from starting, and an environment file that others can read give nothing
// to anybody.
func TestHostedVariables(t *testing.T) {
	t.Parallel()
	c := accFresh(t)
	upstream, err := hubUpstream()
	if err != nil {
		t.Fatal(err)
	}
	note := filepath.Join(c.home, "note")
	c.hosts(map[string]hubServer{"up": {Command: upstream}, "wants": {Command: upstream, Args: []string{"-note", "${HUB_TEST_NOTE}"}}})
	c.mustRun("trust", "--yes")
	e := c.editor()
	e.mustOpen()
	works := func(tool string) func() error {
		return func() error {
			if got, err := e.tool(tool, map[string]any{"a": 1}); err != nil || got != `{"a":1}` {
				return fmt.Errorf("a call of %s: %q, %w", tool, got, err)
			}
			return nil
		}
	}
	finds := func(id, what string) func() error {
		return func() error {
			if said := c.findings("upstream:" + id); !strings.Contains(said, what) || strings.Contains(said, c.root) {
				return fmt.Errorf("health says %q", said)
			}
			return nil
		}
	}
	accPoll(t, 20*time.Second, "the other server must work", works("up__read"))
	accPoll(t, 20*time.Second, "health must name the variable", finds("wants", "HUB_TEST_NOTE"))

	c.write(".ai/local/env", "HUB_TEST_NOTE="+note+"\n", 0o644)
	for _, name := range []string{"up", "wants"} {
		c.mustRun("upstream", "restart", name)
		accPoll(t, 20*time.Second, "health must say why nothing of the file is used", finds(name, "others can read it"))
	}
	if err := os.Chmod(filepath.Join(c.root, ".ai/local/env"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"up", "wants"} {
		c.mustRun("upstream", "restart", name)
		accPoll(t, 20*time.Second, "both must work", works(name+"__read"))
	}
	if b, err := os.ReadFile(note); err != nil || !strings.HasPrefix(string(b), "server ") {
		t.Errorf("the variable's value: %q, %v", b, err)
	}
}

// TestHostedAfterAKill kills the server: what it hosted ends, at the latest with
// the next one, and calls go on.
func TestHostedAfterAKill(t *testing.T) {
	t.Parallel()
	c := accFresh(t)
	noted := c.hostsFamily()
	c.mustRun("trust", "--yes")
	kill := func() {
		t.Helper()
		if err := syscall.Kill(c.mustLease().PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	family := func(nth int) (server, child int) {
		t.Helper()
		accPoll(t, 20*time.Second, "both processes must have started", func() error {
			if now := noted(); len(now["server"]) < nth || len(now["child"]) < nth {
				return fmt.Errorf("started %v", now)
			}
			return nil
		})
		return noted()["server"][nth-1], noted()["child"][nth-1]
	}
	e := c.editor()
	e.mustOpen()
	if got, err := e.tool("up__read", map[string]any{"a": 1}); err != nil || got != `{"a":1}` {
		t.Fatalf("a call: %q, %v", got, err)
	}
	server, child := family(1)
	e.close()

	// Nobody is there who would start another server.
	kill()
	upstream, _ := hubUpstream() // built by now
	if runtime.GOOS == "linux" {
		hubEnd(t, "the direct child must end with the killed server", server)
		if !hubRuns(child, upstream) {
			t.Error("nothing is left for the next server: this test shows less than it should")
		}
	}
	c.mustRun("serve", "ensure")
	hubEnd(t, "the group must end with the next server", server, child)

	// Under calls. What only reads is asked again, so each is answered.
	e = c.editor()
	e.mustOpen()
	e.tools() // the bridge learns what only reads
	for round := range 3 {
		server, child = family(round + 2)
		var asked []<-chan []byte
		for n := range 60 {
			if n == 30 {
				kill()
			}
			ch, err := e.ask("tools/call", map[string]any{"name": "up__read", "arguments": map[string]any{"n": n}})
			if err != nil {
				t.Fatal(err)
			}
			asked = append(asked, ch)
		}
		for n, ch := range asked {
			b, err := e.answer(ch, "a call")
			if want := fmt.Sprintf(`{\"n\":%d}`, n); err != nil || !strings.Contains(string(b), want) {
				t.Fatalf("round %d, call %d: %s, %v", round, n, b, err)
			}
		}
		family(round + 3)
		hubEnd(t, "the group of the killed server must end", server, child)
	}
	if now := noted(); len(now["server"]) != 5 {
		t.Errorf("started %v", now)
	}
}
