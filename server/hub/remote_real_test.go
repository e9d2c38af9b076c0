package hub_test

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"majordomus/bridge/frame"
)

// startEverything starts the reference server, which others wrote, at the
// address, and returns its end.
func startEverything(t *testing.T, address string) (stop func()) {
	t.Helper()
	folder, err := filepath.Abs(filepath.Join("..", "..", "cmd", "majordomus", "testdata"))
	if err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(folder, "upstreams", "node_modules", "@modelcontextprotocol", "server-everything", "dist", "index.js")
	node := filepath.Join(folder, "clients", "node_modules", ".bin", "node")
	for _, file := range []string{script, node} {
		if _, err := os.Stat(file); err != nil {
			why := "what `npm ci` installs in cmd/majordomus/testdata is missing: " + err.Error()
			if os.Getenv("MAJORDOMUS_TEST_ALL") == "1" {
				t.Fatal("MAJORDOMUS_TEST_ALL=1, but " + why)
			}
			t.Skip(why)
		}
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	server := exec.Command(node, script, "streamableHttp")
	server.Env = []string{"PORT=" + port, "PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}
	said, err := server.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	stop = func() {
		server.Process.Kill() // ignore error: it may have ended
		server.Wait()         // ignore error: it was killed
	}
	t.Cleanup(stop)
	var words strings.Builder
	lines := bufio.NewScanner(said)
	for lines.Scan() {
		fmt.Fprintln(&words, lines.Text())
		if strings.Contains(lines.Text(), "listening on port") {
			go func() {
				for lines.Scan() { // it must not stand at a full pipe
				}
			}()
			return stop
		}
	}
	t.Fatalf("the reference server has ended:\n%s", &words)
	return nil
}

func TestRemoteReferenceServer(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	stop := startEverything(t, address)
	h := reachAt(t, "http://"+address+"/mcp")
	c, other := h.client(), h.client()
	if got := text(c.call("far__echo", `"message":"hello"`)); got != "Echo: hello" {
		t.Fatalf("echo: %s", got)
	}
	if got := string(c.ask("resources/templates/list", "{}").Result); !strings.Contains(got, "demo://resource/dynamic/text/{resourceId}") {
		t.Errorf("templates: %s", got)
	}
	if got := string(c.ask("resources/read", `{"uri":"demo://resource/dynamic/text/1"}`).Result); !strings.Contains(got, "Resource 1") {
		t.Errorf("a resource: %s", got)
	}
	// Another one has a call in flight: what belongs to a call is told by its
	// stream alone.
	slow := other.send("tools/call", `{"name":"far__trigger-long-running-operation","arguments":{"duration":2,"steps":4},"_meta":{"progressToken":"o"}}`)
	id := c.send("tools/call", `{"name":"far__trigger-elicitation-request","arguments":{}}`)
	var q frame.Message
	for q.Name() != "elicitation/create" {
		if q = c.hear(); q.IsResponse() {
			t.Fatalf("it did not ask: %s", q.Raw)
		}
	}
	c.say(string(frame.Result(q.ID, []byte(`{"action":"accept","content":{"name":"Ada"}}`))))
	if got := string(c.answer(id).Result); !strings.Contains(got, "Ada") {
		t.Errorf("what it was answered: %s", got)
	}
	if got := text(other.answer(slow)); !strings.Contains(got, "completed") {
		t.Errorf("the long one: %s", got)
	}
	if notes := strings.Join(other.notes, "\n"); !strings.Contains(notes, `"progress":4`) || !strings.Contains(notes, `"progressToken":"o"`) {
		t.Errorf("its progress: %s", notes)
	}
	if notes := strings.Join(c.notes, "\n"); strings.Contains(notes, "notifications/progress") {
		t.Errorf("another's progress: %s", notes)
	}
	// After its restart it does not know the session.
	stop()
	startEverything(t, address)
	if got := text(c.call("far__echo", `"message":"again"`)); got != "Echo: again" {
		t.Errorf("after its restart: %s", got)
	}
	if st := h.hub.States()[0]; st.State != "ready" || len(st.Processes) != 0 {
		t.Errorf("it is %+v", st)
	}
}
