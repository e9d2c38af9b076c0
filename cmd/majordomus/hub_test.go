//go:build unix

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
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
	node, clients, upstreams := hubNode(t)
	for script, least := range map[string]int{"hub1.mjs": 11, "hub2.mjs": 5} {
		t.Run(script, func(t *testing.T) {
			c := accFresh(t)
			c.hostsReal(node, upstreams)
			if made := makeChecks(t, []string{node, filepath.Join(clients, script), c.program, c.root}); len(made) < least {
				t.Errorf("%d checks were made, not even %d: %q", len(made), least, made)
			}
		})
	}
}
