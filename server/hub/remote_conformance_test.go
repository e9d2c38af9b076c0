package hub

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
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

// beClient meets the server at the address and calls each of its tools.
func beClient(address string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	r := newRemote(config.Server{URL: address}, nil, "1", 0, make(ears, 1000), slog.New(slog.DiscardHandler))
	defer r.stop(ctx)
	heard := &getter{r.client.Transport, make(chan struct{}, 10)}
	r.client.Transport = heard
	m, err := r.call(ctx, "initialize", []byte(`{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"majordomus","version":"1"}}`), nil)
	if err != nil {
		return err
	}
	r.tell(ctx, "notifications/initialized", nil)
	// Else the suite may take that request for the one it waits for later.
	select {
	case <-heard.got:
	case <-ctx.Done():
		return errors.New("nothing came of listening")
	}
	tools, err := fetchKind(ctx, r, frame.Get(m.Result, "capabilities"), 0)
	if err != nil {
		return err
	}
	for _, tool := range tools {
		m, err := r.call(ctx, "tools/call", fmt.Appendf(nil, `{"name":%s,"arguments":{"a":1,"b":2}}`, frame.Quote(tool.key)), nil)
		if err == nil && m.Error != nil {
			err = errors.New(string(m.Error))
		}
		if err != nil {
			return fmt.Errorf("calling %s: %w", tool.key, err)
		}
	}
	return nil
}

// A getter says when a GET has been answered.
type getter struct {
	http.RoundTripper
	got chan struct{}
}

func (g *getter) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := g.RoundTripper.RoundTrip(r)
	if r.Method == http.MethodGet {
		g.got <- struct{}{}
	}
	return resp, err
}

// TestRemoteConformance runs what the suite has for clients with a handshake and
// without OAuth. Left out is only what it wants of whoever answers a question:
// that is not the hub.
func TestRemoteConformance(t *testing.T) {
	t.Parallel()
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
