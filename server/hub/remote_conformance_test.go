package hub

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"majordomus/bridge/frame"
	"majordomus/server/hub/config"
)

// The protocol's own conformance suite runs its client as a program that is given
// an address: this test binary is one where the suite says so.
func init() {
	if os.Getenv("MCP_CONFORMANCE_SCENARIO") == "" {
		return
	}
	if err := beClient(os.Args[len(os.Args)-1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// beClient hosts the server at the address and calls each of its tools.
func beClient(address string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	h := New(Config{
		Root: "/", Version: "1",
		Entries: func() (*config.File, error) {
			return &config.File{Digest: "1", Servers: []config.Server{{Name: "far", URL: address}}}, nil
		},
		Resolve: func(s config.Server) (config.Server, []string, error) { return s, nil, nil },
		Changed: func(string) {}, Updated: func(string) {},
	})
	defer h.Close(ctx)
	h.Look()
	u := h.ups["far"]
	c, err := u.instance("").ready(ctx)
	if err != nil {
		return err
	}
	for _, tool := range u.catalogue[0] {
		m, err := c.call(ctx, "tools/call", fmt.Appendf(nil, `{"name":%s,"arguments":{"a":1,"b":2}}`, frame.Quote(tool.key)), nil)
		if err == nil && m.Error != nil {
			err = errors.New(string(m.Error))
		}
		if err != nil {
			return fmt.Errorf("calling %s: %w", tool.key, err)
		}
	}
	return nil
}

// TestRemoteConformance runs what the suite has for clients with a handshake and
// without OAuth. Left out is only what it wants of whoever answers a question:
// that is not the hub.
func TestRemoteConformance(t *testing.T) {
	modules, err := filepath.Abs(filepath.Join("..", "session", "testdata", "conformance", "node_modules"))
	if err != nil {
		t.Fatal(err)
	}
	node := filepath.Join(modules, ".bin", "node") // the pinned one
	if out, err := exec.Command(node, "--version").CombinedOutput(); err != nil {
		why := fmt.Sprintf("what `npm ci` installs in server/session/testdata/conformance is missing: %v %s", err, out)
		if os.Getenv("MAJORDOMUS_TEST_ALL") == "1" {
			t.Fatal("MAJORDOMUS_TEST_ALL=1, but " + why)
		}
		t.Skip(why)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, scenario := range []string{"initialize", "tools_call", "sse-retry"} {
		t.Run(scenario, func(t *testing.T) {
			t.Parallel()
			home := t.TempDir()
			ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
			defer cancel()
			suite := exec.CommandContext(ctx, node, filepath.Join(modules, "@modelcontextprotocol", "conformance", "dist", "index.js"),
				"client", "--scenario", scenario, "--command", self, "--output-dir", home, "--timeout", "30000")
			suite.Dir = home
			suite.Env = []string{"HOME=" + home, "TMPDIR=" + home, "PATH=" + filepath.Dir(node) + string(os.PathListSeparator) + os.Getenv("PATH")}
			suite.WaitDelay = 5 * time.Second
			out, err := suite.CombinedOutput()
			if err != nil {
				t.Errorf("the suite: %v\n%s", err, out)
			}
			found, _ := filepath.Glob(filepath.Join(home, "*", "checks.json")) // ignore error: a pattern of ours
			if len(found) != 1 {
				t.Fatalf("the suite's results: %q\n%s", found, out)
			}
			b, err := os.ReadFile(found[0])
			if err != nil {
				t.Fatal(err)
			}
			if text := string(b); !strings.Contains(text, `"SUCCESS"`) || strings.Contains(text, `"FAILURE"`) || strings.Contains(text, `"WARNING"`) {
				t.Errorf("the checks:\n%s", text)
			}
		})
	}
}
