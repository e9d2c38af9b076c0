package child

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// modeVar makes the test binary be a hosted server, of an unpleasant kind.
const modeVar = "CHILD_TEST_MODE"

func TestMain(m *testing.M) {
	if mode := os.Getenv(modeVar); mode != "" {
		os.Exit(be(mode))
	}
	flag.Parse()
	flag.Set("test.parallel", "16") // they mostly wait: for what is given time to end
	goleak.VerifyTestMain(m)
}

// patience is how long a test waits for what is certain to come.
const patience = 30 * time.Second

// spec is one for this test binary in a mode.
func spec(mode string, more ...string) Spec {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	env := append(slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, modeVar) }), modeVar+"="+mode)
	return Spec{Name: mode, Argv: []string{self}, Env: append(env, more...)}
}

// a hosted child, whose stdout the test reads line by line.
type hosted struct {
	*Child
	t   *testing.T
	out *bufio.Reader
}

func host(t *testing.T, s Spec) *hosted {
	t.Helper()
	c, err := Start(s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stopNow(c)
		io.Copy(io.Discard, c.Stdout())
	})
	return &hosted{Child: c, t: t, out: bufio.NewReader(c.Stdout())}
}

// stopNow ends a child that a test has done with.
func stopNow(c *Child) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	c.Stop(ctx)
}

func (h *hosted) say(line string) {
	h.t.Helper()
	if _, err := io.WriteString(h.Stdin(), line+"\n"); err != nil {
		h.t.Fatal(err)
	}
}

func (h *hosted) line() string {
	h.t.Helper()
	line, err := h.out.ReadString('\n')
	if err != nil {
		h.t.Fatalf("after %q: %v", line, err)
	}
	return strings.TrimRight(line, "\r\n")
}

// number is a line that ends in one.
func (h *hosted) number() int {
	h.t.Helper()
	line := h.line()
	n, err := strconv.Atoi(line[strings.LastIndexByte(line, ' ')+1:])
	if err != nil {
		h.t.Fatal(err)
	}
	return n
}

// rest is what is left on stdout.
func (h *hosted) rest() string {
	h.t.Helper()
	b, err := io.ReadAll(h.out)
	if err != nil {
		h.t.Fatal(err)
	}
	return string(b)
}

// ended waits for the direct child and says how it went.
func (h *hosted) ended() string {
	h.t.Helper()
	wait(h.t, h.Done(), "the end of the child")
	return h.Err().Error()
}

func wait(t *testing.T, c <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		t.Fatalf("%s did not come", what)
	}
}

// a pot keeps what is written to it.
type pot struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (p *pot) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.b.Write(b)
}

func (p *pot) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.b.String()
}

// a gate is a writer that blocks until it is opened.
type gate struct {
	pot
	open chan struct{}
}

func (g *gate) Write(b []byte) (int, error) {
	<-g.open
	return g.pot.Write(b)
}
