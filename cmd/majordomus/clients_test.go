//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// need skips the test when something it runs against cannot be had here. Where
// MAJORDOMUS_TEST_ALL is 1 everything must be there, so that the test fails.
func need(t *testing.T, what string, err error) {
	t.Helper()
	switch {
	case err == nil:
	case os.Getenv("MAJORDOMUS_TEST_ALL") == "1":
		t.Fatalf("MAJORDOMUS_TEST_ALL=1, but %s is missing: %v", what, err)
	default:
		t.Skipf("%s is missing: %v", what, err)
	}
}

// TestClients runs clients that others wrote, unchanged, against the program.
// What each of them checks is in its script in testdata/clients; `npm ci` in
// that folder installs what they need.
func TestClients(t *testing.T) {
	t.Parallel() // it waits more than it works
	clients, err := filepath.Abs(filepath.Join("testdata", "clients"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = os.Stat(filepath.Join(clients, "node_modules"))
	need(t, "what `npm ci` installs in testdata/clients", err)
	node, err := findNode(t, clients)
	need(t, "node 20 or newer", err)
	_, err = exec.LookPath("git")
	need(t, "git", err)

	program := filepath.Join(t.TempDir(), "majordomus")
	if err := accBuildTo(program, "-ldflags", "-X main.accountHome="+filepath.Join(filepath.Dir(program), "account")); err != nil {
		t.Fatalf("building the program: %v", err)
	}
	start := func(t *testing.T) *clientRun { return newClientRun(t, program, clients, node) }

	t.Run("v1-stdio", func(t *testing.T) {
		r := start(t)
		r.script("v1.mjs", "stdio", program, r.root)
	})
	t.Run("v1-killed", func(t *testing.T) {
		r := start(t)
		r.script("v1.mjs", "killed", program, r.root)
	})
	t.Run("v1-http", func(t *testing.T) {
		r := start(t)
		r.script("v1.mjs", "http", r.majordomus("serve", "ensure"), r.majordomus("key"), r.root)
	})
	t.Run("v2-stdio", func(t *testing.T) {
		r := start(t)
		r.script("v2.mjs", "stdio", program, r.root)
	})
	t.Run("v2-http", func(t *testing.T) {
		r := start(t)
		r.script("v2.mjs", "http", r.majordomus("serve", "ensure"), r.majordomus("key"), r.root)
	})
	t.Run("claude-code", func(t *testing.T) { start(t).claudeCode() })
}

// findNode prefers the version that package.json pins.
func findNode(t *testing.T, clients string) (string, error) {
	t.Helper()
	var errs []error
	for _, node := range []string{filepath.Join(clients, "node_modules", ".bin", "node"), "node"} {
		out, err := exec.Command(node, "--version").Output()
		if err != nil {
			errs = append(errs, err)
			continue
		}
		major, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(string(out)), "v"), ".")
		if n, err := strconv.Atoi(major); err != nil || n < 20 {
			errs = append(errs, fmt.Errorf("%s is %s", node, bytes.TrimSpace(out)))
			continue
		}
		return exec.LookPath(node)
	}
	return "", errors.Join(errs...)
}

// A clientRun is one client with a checkout and a home of its own.
type clientRun struct {
	t                      *testing.T
	program, clients, node string
	root, home             string
}

func newClientRun(t *testing.T, program, clients, node string) *clientRun {
	t.Helper()
	r := &clientRun{t: t, program: program, clients: clients, node: node, root: t.TempDir(), home: t.TempDir()}
	if out, err := exec.Command("git", "init", "-q", r.root).CombinedOutput(); err != nil {
		t.Fatalf("git init: %v\n%s", err, out)
	}
	r.write(filepath.Join(r.root, ".ai", "repo", "greeting.md"), "hello, 世界\n")
	t.Cleanup(func() {
		r.majordomus("serve", "stop", "--force")
		if t.Failed() {
			log, err := os.ReadFile(filepath.Join(r.root, ".ai", "local", "state", "mcp", "server.log"))
			t.Logf("server.log (%v):\n%s", err, log)
		}
	})
	return r
}

func (r *clientRun) write(path, text string) {
	r.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		r.t.Fatal(err)
	}
}

// run returns what a command in the checkout prints. It inherits nothing, so
// that neither this machine's settings nor an editor that runs the tests
// changes what a client does.
func (r *clientRun) run(name string, args ...string) (stdout, stderr string, err error) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = r.root
	cmd.Env = []string{
		"PATH=" + filepath.Dir(r.node) + string(os.PathListSeparator) + os.Getenv("PATH"),
		"HOME=" + r.home, "TMPDIR=" + os.TempDir(), "LANG=C.UTF-8", "TERM=dumb",
		"DISABLE_AUTOUPDATER=1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
	}
	cmd.WaitDelay = 5 * time.Second // a bridge that outlives its client holds the streams
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

// majordomus runs the program in the checkout and returns the line it prints.
func (r *clientRun) majordomus(args ...string) string {
	r.t.Helper()
	out, errs, err := r.run(r.program, args...)
	if err != nil {
		r.t.Errorf("majordomus %s: %v\n%s%s", strings.Join(args, " "), err, out, errs)
	}
	return strings.TrimSpace(out)
}

// script runs one of the scripts, which says itself what went wrong.
func (r *clientRun) script(name string, args ...string) {
	r.t.Helper()
	out, errs, err := r.run(r.node, append([]string{filepath.Join(r.clients, name)}, args...)...)
	if err != nil {
		r.t.Errorf("%s: %v\n%s\nstderr:\n%s", name, err, out, errs)
		return
	}
	r.t.Log("\n" + out)
}

// claudeCode has Claude Code start the program from .mcp.json as it does for
// everybody, in a home where nobody has logged in.
func (r *clientRun) claudeCode() {
	t := r.t
	claude := filepath.Join(r.clients, "node_modules", ".bin", "claude")
	version, _, err := r.run(claude, "--version")
	need(t, "Claude Code", err)
	config, err := json.Marshal(map[string]any{"mcpServers": map[string]any{
		"majordomus": map[string]any{"command": r.program, "args": []string{"mcp"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	r.write(filepath.Join(r.root, ".mcp.json"), string(config))
	r.write(filepath.Join(r.home, ".claude", "settings.json"), `{"enableAllProjectMcpServers":true}`)

	// Twice: the first starts the server, the second finds it.
	var servers []string
	for range 2 {
		out, errs, err := r.run(claude, "mcp", "list") // ends with 0 whatever it finds
		if err != nil || !regexp.MustCompile(`(?m)^majordomus: .*✔ Connected`).MatchString(out) {
			r.claudeLogs()
			t.Fatalf("%s does not connect: %v\n%s%s", strings.TrimSpace(version), err, out, errs)
		}
		var status standing
		if err := json.Unmarshal([]byte(r.majordomus("serve", "status", "--format", "json")), &status); err != nil {
			t.Fatalf("reading the status: %v", err)
		}
		servers = append(servers, fmt.Sprintf("%s, process %d", status.State, status.PID))
	}
	if !strings.HasPrefix(servers[0], "serving,") || servers[1] != servers[0] {
		t.Errorf("after Claude Code came the server is %q, after it came again %q", servers[0], servers[1])
	}
	t.Logf("%s connects", strings.TrimSpace(version))
}

func (r *clientRun) claudeLogs() {
	logs, err := filepath.Glob(filepath.Join(r.home, ".cache", "claude-cli-nodejs", "*", "mcp-logs-majordomus", "*"))
	if err != nil {
		r.t.Log(err)
	}
	for _, path := range logs {
		text, err := os.ReadFile(path)
		r.t.Logf("%s (%v):\n%s", path, err, text)
	}
}
