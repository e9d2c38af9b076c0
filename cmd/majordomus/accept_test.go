//go:build unix

package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"majordomus/lease"
	"majordomus/lease/checkout"
)

// The acceptance tests run the program as editors, shells and people do: as
// processes. Each has a checkout of its own, and what a test started is ended
// by its pid, whatever became of it.

var accRounds = flag.Int("rounds", 3, "how many times forty bridges are released at once")

// accNeed skips a test of what is not there; where MAJORDOMUS_TEST_ALL is 1
// everything has to be there.
func accNeed(t *testing.T, ok bool, why string) {
	t.Helper()
	switch {
	case ok:
	case os.Getenv("MAJORDOMUS_TEST_ALL") == "1":
		t.Fatal("MAJORDOMUS_TEST_ALL=1, but: " + why)
	default:
		t.Skip(why)
	}
}

// accAtOnce is how many tests run at once for each core.
const accAtOnce = 3

// accTemp holds the program, which is built once for all tests.
var accTemp struct {
	sync.Mutex
	dir      string
	accounts int // so far, beside the one that most tests share
}

// accUsual is where a server listens if it can. Nothing does during the tests,
// so that each server has a port that no other test's comes to when it is gone:
// some tests have a stranger come there, or the next server.
const accUsual = "127.0.0.1:8741"

func TestMain(m *testing.M) {
	flag.Parse()
	taken, _ := net.Listen("tcp", accUsual) // ignore error: then somebody else has it
	if !slices.ContainsFunc(os.Args, func(arg string) bool { return strings.HasPrefix(arg, "-test.parallel") }) {
		// They mostly wait for processes: a pause of some seconds here, a page
		// that is drawn there. One for each core leaves the cores idle.
		if err := flag.Set("test.parallel", strconv.Itoa(accAtOnce*runtime.GOMAXPROCS(0))); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
	}
	code := m.Run()
	if taken != nil {
		taken.Close() // ignore error: nobody was served on it
	}
	if accTemp.dir != "" {
		os.RemoveAll(accTemp.dir) // ignore error: a temporary folder
	}
	os.Exit(code)
}

var accProgram = sync.OnceValues(func() (string, error) {
	accTemp.Lock()
	defer accTemp.Unlock()
	dir, err := os.MkdirTemp("", "majordomus-accept-")
	if err != nil {
		return "", err
	}
	accTemp.dir = dir
	return accBuildFor(dir, 0)
})

// accBuildFor builds the nth program, in a folder of its own below dir, which
// has its account's home, too.
func accBuildFor(dir string, n int) (string, error) {
	dir = filepath.Join(dir, fmt.Sprintf("%03d", n))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	path := filepath.Join(dir, "majordomus")
	return path, accBuildTo(path, "-ldflags", "-X main.accountHome="+filepath.Join(dir, "account"))
}

// accOwn is a checkout whose account no other test uses: what is asked of all
// that is installed, or served, is asked of it alone.
func accOwn(t *testing.T) *accCheckout {
	t.Helper()
	c := accFresh(t)
	dir := filepath.Dir(filepath.Dir(c.program))
	accTemp.Lock()
	accTemp.accounts++
	n := accTemp.accounts
	accTemp.Unlock()
	var err error
	if runtime.GOOS == "linux" {
		c.program, err = accMoved(c.program, filepath.Join(dir, fmt.Sprintf("%03d", n)))
	} else {
		c.program, err = accBuildFor(dir, n) // a changed one would have to be signed again
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(filepath.Dir(c.program)) }) // ignore error: the end removes it again
	return c
}

// accMoved writes the program anew for the account in dir: it has the name of
// its account's home in it, and this one is as long.
func accMoved(program, dir string) (string, error) {
	b, err := os.ReadFile(program)
	if err != nil {
		return "", err
	}
	home := func(dir string) []byte { return []byte(filepath.Join(dir, "account")) }
	was, is := home(filepath.Dir(program)), home(dir)
	if len(was) != len(is) || !bytes.Contains(b, was) {
		return "", fmt.Errorf("%s is not the program of %s", program, was)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	path := filepath.Join(dir, "majordomus")
	return path, accExecutable(path, bytes.ReplaceAll(b, was, is))
}

// accExecutable writes what is going to be run. While another test starts a
// process, its file must not be open for writing: the child would have it open,
// too, until it has become what it runs, and the kernel says "text file busy".
func accExecutable(path string, b []byte) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(path, b, 0o755)
}

func accBuildTo(path string, flags ...string) error {
	args := append(append([]string{"build"}, flags...), "-o", path, ".")
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("go %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

func accBinary(t *testing.T) string {
	t.Helper()
	path, err := accProgram()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// accPoll asks until it is so, and fails the test when it is not within the
// time given. Return an error that says what is seen instead.
func accPoll(t *testing.T, within time.Duration, what string, so func() error) {
	t.Helper()
	if err := accUntil(within, so); err != nil {
		t.Fatalf("%s: not within %v: %v", what, within, err)
	}
}

func accUntil(within time.Duration, so func() error) error {
	deadline := time.Now().Add(within)
	for {
		err := so()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// accCheckout is an empty git work tree and the program used in it.
type accCheckout struct {
	t       *testing.T
	root    string
	program string
	home    string
	extra   []string // more environment
}

func accFresh(t *testing.T) *accCheckout {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return accIn(t, dir, accBinary(t))
}

// accIn makes the checkout in a folder.
func accIn(t *testing.T, dir, program string) *accCheckout {
	t.Helper()
	c := &accCheckout{t: t, root: filepath.Join(dir, "work"), home: filepath.Join(dir, "home"), program: program}
	for _, sub := range []string{".git/objects", ".git/refs/heads"} {
		if err := os.MkdirAll(filepath.Join(c.root, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(c.home, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(c.root, ".git/HEAD"), []byte("ref: refs/heads/main\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.end)
	return c
}

// with is the same checkout seen through another build of the program.
func (c *accCheckout) with(program string) *accCheckout {
	other := *c
	other.program = program
	return &other
}

func (c *accCheckout) policy(lines string) {
	c.t.Helper()
	path := filepath.Join(c.root, ".ai/repo/policy.yaml")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		c.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("server:\n"+lines), 0o644); err != nil {
		c.t.Fatal(err)
	}
}

func (c *accCheckout) environ() []string {
	return append([]string{"HOME=" + c.home, "PATH=" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir(), "LANG=C.UTF-8"}, c.extra...)
}

func (c *accCheckout) command(args ...string) *exec.Cmd {
	cmd := exec.Command(c.program, args...)
	cmd.Dir, cmd.Env = c.root, c.environ()
	return cmd
}

// run runs the program and returns what it printed.
func (c *accCheckout) run(args ...string) (stdout, stderr string, err error) {
	c.t.Helper()
	cmd := c.command(args...)
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	cmd.WaitDelay = 10 * time.Second // a server that kept a stream would hang us
	err = cmd.Run()
	return out.String(), log.String(), err
}

// folder is the state folder; nil before there is one.
func (c *accCheckout) folder() *lease.Folder {
	c.t.Helper()
	co, err := checkout.Open(c.root)
	if err != nil {
		c.t.Fatal(err)
	}
	f, err := lease.OpenExisting(lease.Config{Checkout: co})
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { f.Close() })
	return f
}

func (c *accCheckout) leasePath() string {
	return filepath.Join(c.root, ".ai/local/state/mcp/server.json")
}

// lease is the document that is there now, of a server with an address.
func (c *accCheckout) lease() (lease.Document, error) {
	b, err := os.ReadFile(c.leasePath())
	if err != nil {
		return lease.Document{}, err
	}
	var d lease.Document
	if err := json.Unmarshal(b, &d); err != nil {
		return d, err
	}
	if d.URL == nil {
		return d, errors.New("the lease has no address yet")
	}
	return d, nil
}

func (c *accCheckout) mustLease() lease.Document {
	c.t.Helper()
	d, err := c.lease()
	if err != nil {
		c.t.Fatal(err)
	}
	return d
}

func (c *accCheckout) key() string {
	c.t.Helper()
	b, err := os.ReadFile(filepath.Join(filepath.Dir(c.leasePath()), "key"))
	if err != nil {
		c.t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// pids are the processes whose executable is one of the programs of this
// test and whose words or folder are those of the checkout. Only where there
// is /proc; elsewhere the lease is asked.
func (c *accCheckout) pids() []int {
	if runtime.GOOS != "linux" {
		if d, err := c.lease(); err == nil && syscall.Kill(d.PID, 0) == nil {
			return []int{d.PID}
		}
		return nil
	}
	var pids []int
	entries, err := os.ReadDir("/proc")
	if err != nil {
		c.t.Fatal(err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		exe, err := os.Readlink(filepath.Join("/proc", e.Name(), "exe"))
		if err != nil {
			continue
		}
		b, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err != nil {
			continue
		}
		cwd, err := os.Readlink(filepath.Join("/proc", e.Name(), "cwd"))
		if err != nil {
			continue
		}
		words := strings.Split(string(b), "\x00")
		// A server that is being started is a shell for a moment.
		ours := strings.HasPrefix(filepath.Base(exe), "majordomus") || slices.Contains(words, "--detached")
		if ours && (cwd == c.root || slices.Contains(words, c.root)) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// end kills what is left of the checkout's processes.
func (c *accCheckout) end() {
	err := accUntil(10*time.Second, func() error {
		pids := c.pids()
		if len(pids) == 0 {
			return nil
		}
		for _, pid := range pids {
			syscall.Kill(pid, syscall.SIGKILL) // ignore error: asked again
		}
		return fmt.Errorf("processes are left: %v", pids)
	})
	if err != nil {
		c.t.Error(err)
	}
	if c.t.Failed() {
		log, _ := os.ReadFile(filepath.Join(filepath.Dir(c.leasePath()), "server.log")) // ignore error: may not be there
		if n := len(log); n > 4096 {
			log = log[n-4096:]
		}
		c.t.Logf("the server's log ends:\n%s", log)
	}
}

// accBuffer collects what a process writes while others look.
type accBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *accBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *accBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// accEditor is a client that speaks to a process over its streams. It takes
// note of everything on standard output that is not JSON-RPC and of answers to
// nothing that was asked.
type accEditor struct {
	c   *accCheckout
	cmd *exec.Cmd
	in  io.WriteCloser
	log accBuffer

	patience time.Duration // how long an answer is waited for; zero is 30 s

	mu      sync.Mutex
	next    int
	waiting map[int]chan []byte
	told    int // what nobody asked for
	faults  []string
	ended   chan struct{}
}

func (c *accCheckout) editor(args ...string) *accEditor {
	c.t.Helper()
	if len(args) == 0 {
		args = []string{"mcp"}
	}
	return c.editorOf(c.command(args...))
}

func (c *accCheckout) editorOf(cmd *exec.Cmd) *accEditor {
	c.t.Helper()
	e := &accEditor{c: c, cmd: cmd, waiting: map[int]chan []byte{}, ended: make(chan struct{})}
	cmd.Stderr = &e.log
	cmd.WaitDelay = 5 * time.Second
	in, err := cmd.StdinPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	e.in = in
	go e.read(out)
	c.t.Cleanup(func() {
		cmd.Process.Kill() // ignore error: mostly ended by then
		in.Close()
		<-e.ended
		cmd.Wait() // ignore error: killed
		for _, f := range e.faults {
			c.t.Error(f)
		}
		if log := e.log.String(); c.t.Failed() || strings.Contains(log, "panic") {
			c.t.Logf("process %d said:\n%s", cmd.Process.Pid, log)
		}
		if strings.Contains(e.log.String(), "panic") {
			c.t.Error("a process panicked")
		}
	})
	return e
}

func (e *accEditor) read(out io.Reader) {
	defer close(e.ended)
	for r := bufio.NewReader(out); ; {
		line, err := r.ReadBytes('\n')
		if len(line) > 0 {
			e.line(line)
		}
		if err != nil {
			return
		}
	}
}

func (e *accEditor) line(line []byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var m struct {
		JSONRPC string
		ID      *int
		Method  string
	}
	if err := json.Unmarshal(line, &m); err != nil || m.JSONRPC != "2.0" {
		e.faults = append(e.faults, fmt.Sprintf("not JSON-RPC on standard output: %q", line))
		return
	}
	if m.Method != "" || m.ID == nil {
		e.told++
		return
	}
	ch := e.waiting[*m.ID]
	if ch == nil {
		e.faults = append(e.faults, fmt.Sprintf("an answer to nothing asked, or a second one: %q", line))
		return
	}
	delete(e.waiting, *m.ID)
	ch <- line
}

// ask starts a request; the answer comes on the channel.
func (e *accEditor) ask(method string, params any) (<-chan []byte, error) {
	ch := make(chan []byte, 1)
	e.mu.Lock()
	e.next++
	id := e.next
	e.waiting[id] = ch
	e.mu.Unlock()
	return ch, e.send(map[string]any{"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

func (e *accEditor) send(m any) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	_, err = e.in.Write(append(b, '\n'))
	return err
}

func (e *accEditor) request(method string, params any) (json.RawMessage, error) {
	ch, err := e.ask(method, params)
	if err != nil {
		return nil, err
	}
	return e.answer(ch, method)
}

func (e *accEditor) answer(ch <-chan []byte, what string) (json.RawMessage, error) {
	var line []byte
	select {
	case line = <-ch:
	case <-e.ended:
		select { // it may have answered with its last line
		case line = <-ch:
		default:
			return nil, fmt.Errorf("%s: the process ended: %s", what, e.log.String())
		}
	case <-time.After(cmp.Or(e.patience, 30*time.Second)):
		return nil, fmt.Errorf("%s: no answer: %s", what, e.log.String())
	}
	var m struct{ Result, Error json.RawMessage }
	if err := json.Unmarshal(line, &m); err != nil {
		return nil, err
	}
	if m.Error != nil {
		return nil, fmt.Errorf("%s: %s", what, m.Error)
	}
	return m.Result, nil
}

var accHello = map[string]any{
	"protocolVersion": "2025-11-25", "capabilities": map[string]any{},
	"clientInfo": map[string]string{"name": "acceptance", "version": "1"},
}

// open does what every editor does first, and returns the instructions.
func (e *accEditor) open() (string, error) {
	b, err := e.request("initialize", accHello)
	if err != nil {
		return "", err
	}
	var r struct{ Instructions string }
	if err := json.Unmarshal(b, &r); err != nil {
		return "", err
	}
	return r.Instructions, e.send(map[string]any{"jsonrpc": "2.0", "method": "notifications/initialized"})
}

func (e *accEditor) mustOpen() string {
	e.c.t.Helper()
	s, err := e.open()
	if err != nil {
		e.c.t.Fatal(err)
	}
	return s
}

type accServed struct {
	Generation  string
	URL         string
	Version     string
	LeaseHolder bool
	Alone       string
	Peers       int
	InFlight    int `json:"in_flight"`
}

// server asks which server serves.
func (e *accEditor) server() (accServed, error) {
	b, err := e.request("tools/call", map[string]any{"name": "majordomus_server", "arguments": map[string]any{}})
	if err != nil {
		return accServed{}, err
	}
	var r struct{ StructuredContent accServed }
	err = json.Unmarshal(b, &r)
	return r.StructuredContent, err
}

func (e *accEditor) mustServer() accServed {
	e.c.t.Helper()
	s, err := e.server()
	if err != nil {
		e.c.t.Fatal(err)
	}
	return s
}

// close ends the input as an editor does and waits for the process.
func (e *accEditor) close() {
	e.c.t.Helper()
	e.in.Close()
	select {
	case <-e.ended:
	case <-time.After(10 * time.Second):
		e.c.t.Fatal("the bridge outlives its editor")
	}
}

// accGet asks for a path, without a key, and decodes the answer.
func accGet(url string, v any) (int, error) {
	resp, err := accHTTP.Get(url)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return resp.StatusCode, err
	}
	return resp.StatusCode, json.Unmarshal(b, v)
}

var accHTTP = &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// accKnock sends an initialize without a key; it returns the status and the
// error's code.
func accKnock(t *testing.T, url string) (int, string) {
	t.Helper()
	resp, err := accHTTP.Post(url+"/mcp", "application/json", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var e struct{ Error struct{ Code string } }
	if err := json.NewDecoder(resp.Body).Decode(&e); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, e.Error.Code
}

type accIndex struct{ Leaseholder *bool }

// accHolds reports what the index says of itself.
func accHolds(url string) (bool, error) {
	var x accIndex
	if _, err := accGet(url+"/", &x); err != nil {
		return false, err
	}
	if x.Leaseholder == nil {
		return false, errors.New("the index does not say whether it holds")
	}
	return *x.Leaseholder, nil
}

var accListening = regexp.MustCompile(`(?m)^listening on (http://127\.0\.0\.1:\d+)$`)

// TestLostLease is the walk-through of a lease that somebody removes.
func TestLostLease(t *testing.T) {
	t.Parallel()
	c := accFresh(t)
	_, stderr, err := c.run("mcp") // its input is the null device
	if err != nil {
		t.Fatalf("mcp: %v: %s", err, stderr)
	}
	m := accListening.FindStringSubmatch(stderr)
	if m == nil {
		t.Fatalf("no address in %q", stderr)
	}
	url := m[1]
	if holds, err := accHolds(url); err != nil || !holds {
		t.Fatalf("the index says %v, %v", holds, err)
	}
	old := c.mustLease()
	if err := os.Remove(c.leasePath()); err != nil {
		t.Fatal(err)
	}
	accPoll(t, time.Second, "the index must say so", func() error {
		if holds, err := accHolds(url); err != nil || holds {
			return fmt.Errorf("leaseholder %v, %v", holds, err)
		}
		return nil
	})
	if status, code := accKnock(t, url); status != http.StatusConflict || code != "lease_lost" {
		t.Errorf("a newcomer is answered %d %q", status, code)
	}
	var health struct {
		Status string
		Checks []struct {
			ID       string
			Findings []struct{ Message string }
		}
	}
	if status, err := accGet(url+"/api/v1/health", &health); err != nil || status != http.StatusOK {
		t.Fatalf("health: %d, %v", status, err)
	}
	found := false
	for _, check := range health.Checks {
		found = found || check.ID == "server" && len(check.Findings) > 0
	}
	if !found || health.Status != "warn" {
		t.Errorf("health does not warn: %+v", health)
	}
	// The next editor has a server of its own, and the old one ends.
	next := c.editor()
	next.mustOpen()
	if doc := c.mustLease(); doc.Token == old.Token || next.mustServer().URL != *doc.URL {
		t.Errorf("the editor is not on the next server: %+v", doc)
	}
	c.gone(old.PID, 10*time.Second)
}

// TestForty releases forty bridges at one instant on a checkout that has never
// had a server.
func TestForty(t *testing.T) {
	t.Parallel()
	for round := range *accRounds {
		t.Run(strconv.Itoa(round+1), forty)
		if t.Failed() {
			return
		}
	}
}

func forty(t *testing.T) {
	const n = 40
	c := accFresh(t)
	// Every process waits in a shell for the end of one pipe, and becomes
	// the bridge when it comes: what is released together is the program.
	gate, release, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	editors := make([]*accEditor, n)
	for i := range editors {
		cmd := exec.Command("/bin/sh", "-c", `echo waiting >&2; read _ <&3; exec "$0" mcp 3<&-`, c.program)
		cmd.Dir, cmd.Env, cmd.ExtraFiles = c.root, c.environ(), []*os.File{gate}
		editors[i] = c.editorOf(cmd)
	}
	for _, e := range editors {
		accPoll(t, 20*time.Second, "the shells must wait", func() error {
			if !strings.Contains(e.log.String(), "waiting\n") {
				return errors.New("not there")
			}
			return nil
		})
	}
	gate.Close()
	begun := time.Now()
	release.Close()
	served := make([]accServed, n)
	errs := make([]error, n)
	var slowest time.Duration
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i, e := range editors {
		wg.Go(func() {
			if _, errs[i] = e.open(); errs[i] == nil {
				mu.Lock()
				slowest = max(slowest, time.Since(begun))
				mu.Unlock()
				served[i], errs[i] = e.server()
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	doc := c.mustLease()
	for i, s := range served {
		if s.URL != *doc.URL || s.Generation != served[0].Generation || !s.LeaseHolder || s.Alone != "" {
			t.Errorf("editor %d is served by %+v, the lease names %s", i, s, *doc.URL)
		}
	}
	if s := editors[0].mustServer(); s.Peers != n {
		t.Errorf("the server has %d peers", s.Peers)
	}
	alive, err := filepath.Glob(filepath.Join(filepath.Dir(c.leasePath()), "server.*.alive"))
	if err != nil || len(alive) != 1 {
		t.Errorf("alive files: %v, %v", alive, err)
	}
	if runtime.GOOS == "linux" {
		accPoll(t, 5*time.Second, "forty bridges and one server", func() error {
			if pids := c.pids(); len(pids) != n+1 || !slices.Contains(pids, doc.PID) {
				return fmt.Errorf("%d processes", len(pids))
			}
			return nil
		})
	}
	starts := 0
	for _, e := range editors {
		starts += strings.Count(e.log.String(), "starting a server")
	}
	log, err := os.ReadFile(filepath.Join(filepath.Dir(c.leasePath()), "server.log"))
	if err != nil {
		t.Fatal(err)
	}
	if taken := bytes.Count(log, []byte("took the lease")); starts != 1 || taken != 1 {
		t.Errorf("%d servers started, the lease taken %d times", starts, taken)
	}
	for _, e := range editors {
		e.in.Close()
	}
	for _, e := range editors {
		e.close()
	}
	accPoll(t, 5*time.Second, "only the server is left", func() error {
		if pids := c.pids(); len(pids) != 1 || pids[0] != doc.PID {
			return fmt.Errorf("processes %v, the server is %d", pids, doc.PID)
		}
		return nil
	})
	t.Logf("all forty answered after %v", slowest)
}

// TestKilled kills the server ten times in a row. The client never initialises
// again, and never are there two servers that both say they hold the lease.
func TestKilled(t *testing.T) {
	t.Parallel()
	c := accFresh(t)
	e := c.editor()
	e.mustOpen()
	watch := accWatchHolders(c)
	seen := map[string]bool{}
	var slowest time.Duration
	for i := range 10 {
		doc := c.mustLease()
		if seen[doc.Token] {
			t.Fatalf("round %d: the killed server still holds", i)
		}
		seen[doc.Token] = true
		if err := syscall.Kill(doc.PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		s, err := e.server()
		if err != nil {
			t.Fatalf("round %d: %v", i, err)
		}
		slowest = max(slowest, time.Since(begun))
		if now := c.mustLease(); s.URL != *now.URL || now.PID == doc.PID || !s.LeaseHolder {
			t.Errorf("round %d: served by %+v, the lease is %+v", i, s, now)
		}
	}
	asked, twice := watch()
	if len(twice) > 0 {
		t.Errorf("two servers held the lease at once: %v", twice)
	}
	if asked == 0 {
		t.Error("the index was never asked")
	}
	t.Logf("slowest call after a kill: %v; index asked %d times", slowest, asked)
}

// accWatchHolders asks the index of every server that the lease names while it
// runs. Two that both say yes are a fault only when the first says so before
// and after the second: one answer alone may be of a moment ago.
func accWatchHolders(c *accCheckout) (stop func() (asked int, twice []string)) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	var asked int
	var twice []string
	go func() {
		defer close(done)
		var urls []string
		holds := func(url string) bool {
			asked++
			yes, err := accHolds(url)
			return err == nil && yes
		}
		for ctx.Err() == nil {
			if d, err := c.lease(); err == nil && !slices.Contains(urls, *d.URL+" "+d.Token) {
				urls = append(urls, *d.URL+" "+d.Token)
			}
			var bases []string
			for _, u := range urls {
				if base, _, _ := strings.Cut(u, " "); !slices.Contains(bases, base) {
					bases = append(bases, base)
				}
			}
			for i, p1 := range bases {
				if !holds(p1) {
					continue
				}
				for j, p2 := range bases {
					if i != j && holds(p2) && holds(p1) {
						twice = append(twice, p1+" and "+p2)
					}
				}
			}
			time.Sleep(2 * time.Millisecond)
		}
	}()
	return func() (int, []string) {
		cancel()
		<-done
		return asked, twice
	}
}

// gone waits until a process of the checkout has ended.
func (c *accCheckout) gone(pid int, within time.Duration) {
	c.t.Helper()
	accPoll(c.t, within, fmt.Sprintf("process %d must end", pid), func() error {
		if slices.Contains(c.pids(), pid) {
			return errors.New("it lives")
		}
		return nil
	})
}

// accTokens notes every token that the lease shows until stop is called.
func accTokens(c *accCheckout) (stop func() []string) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	var tokens []string
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if d, err := c.lease(); err == nil && !slices.Contains(tokens, d.Token) {
				tokens = append(tokens, d.Token)
			}
			time.Sleep(time.Millisecond)
		}
	}()
	return func() []string {
		cancel()
		<-done
		return tokens
	}
}

// TestRebuilt puts another build at the path of the running server: the next
// editor's server takes over, and the old one still answers what it has.
func TestRebuilt(t *testing.T) {
	t.Parallel()
	program, err := os.ReadFile(accBinary(t))
	if err != nil {
		t.Fatal(err)
	}
	second := time.Unix(time.Now().Unix()-100, 0)
	for _, test := range []struct {
		name     string
		old, new string // what is appended to the file
		mtime    time.Time
	}{
		{"larger", "", "another build", time.Now()},
		{"equal size and second", "one build....", "another build", second.Add(5 * time.Millisecond)},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := accFresh(t)
			c.program = filepath.Join(t.TempDir(), "majordomus")
			put := func(tail string, mtime time.Time) {
				t.Helper()
				next := c.program + ".next"
				if err := accExecutable(next, append(bytes.Clone(program), tail...)); err != nil {
					t.Fatal(err)
				}
				if err := os.Chtimes(next, mtime, mtime); err != nil {
					t.Fatal(err)
				}
				if err := os.Rename(next, c.program); err != nil {
					t.Fatal(err)
				}
			}
			put(test.old, second)
			first := c.editor()
			first.mustOpen()
			old := first.mustServer()
			doc := c.mustLease()
			waiting, err := first.ask("tools/call", map[string]any{"name": "majordomus_wait", "arguments": map[string]any{"seconds": 2, "note": "in flight"}})
			if err != nil {
				t.Fatal(err)
			}
			watcher := c.editor() // sees that the call runs, through the old server
			watcher.mustOpen()
			accPoll(t, 5*time.Second, "the call must run", func() error {
				if s := watcher.mustServer(); s.InFlight < 2 { // this call is one
					return fmt.Errorf("%d in flight", s.InFlight)
				}
				return nil
			})
			put(test.new, test.mtime)
			accPoll(t, 5*time.Second, "the server must see that it is out of date", func() error {
				var x struct{ Stale *string }
				if _, err := accGet(old.URL+"/", &x); err != nil || x.Stale == nil {
					return fmt.Errorf("not stale, %v", err)
				}
				return nil
			})
			tokens := accTokens(c)
			second := c.editor()
			second.mustOpen()
			now := second.mustServer()
			if now.Generation == old.Generation || now.Alone != "" {
				t.Fatalf("the next editor is served by %+v", now)
			}
			if holds, err := accHolds(old.URL); old.URL != now.URL && (err != nil || holds) {
				t.Errorf("the old server says %v, %v", holds, err)
			}
			b, err := first.answer(waiting, "majordomus_wait")
			if err != nil || !bytes.Contains(b, []byte("in flight")) {
				t.Fatalf("the call in flight: %s, %v", b, err)
			}
			if !slices.Contains(c.pids(), doc.PID) {
				t.Error("the old server ended before it had answered")
			}
			for _, e := range []*accEditor{first, watcher} {
				accPoll(t, 10*time.Second, "the old editors must move", func() error {
					if s := e.mustServer(); s.Generation != now.Generation {
						return fmt.Errorf("served by %+v", s)
					}
					return nil
				})
			}
			c.gone(doc.PID, 15*time.Second)
			third := c.editor()
			third.mustOpen()
			if seen := tokens(); len(seen) != 2 {
				t.Errorf("tokens: %v", seen)
			}
		})
	}
}

// accVersions are two releases, built once.
var accVersions = sync.OnceValues(func() ([2]string, error) {
	base, err := accProgram()
	if err != nil {
		return [2]string{}, err
	}
	var paths [2]string
	for i, v := range []string{"v1.0.0", "v1.1.0"} {
		paths[i] = base + "-" + v
		if err := accBuildTo(paths[i], "-ldflags", "-X main.accountHome="+filepath.Join(filepath.Dir(base), "account")+" -X main.version="+v); err != nil {
			return paths, err
		}
	}
	return paths, nil
})

// TestVersions has two releases in one checkout: the newer takes over, the
// older joins, and they never take turns.
func TestVersions(t *testing.T) {
	t.Parallel() // it waits more than it works
	paths, err := accVersions()
	if err != nil {
		t.Fatal(err)
	}
	t.Run("newer takes over, older joins", func(t *testing.T) {
		c := accFresh(t)
		older, newer := c.with(paths[0]), c.with(paths[1])
		first := older.editor()
		first.mustOpen()
		if s := first.mustServer(); s.Version != "v1.0.0" {
			t.Fatalf("served by %+v", s)
		}
		doc := c.mustLease()
		second := newer.editor()
		second.mustOpen()
		now := second.mustServer()
		if now.Version != "v1.1.0" {
			t.Fatalf("the newer editor is served by %+v", now)
		}
		accPoll(t, 10*time.Second, "the older editor must move", func() error {
			if s := first.mustServer(); s.Generation != now.Generation {
				return fmt.Errorf("served by %+v", s)
			}
			return nil
		})
		for range 3 {
			third := older.editor()
			third.mustOpen()
			if s := third.mustServer(); s.Generation != now.Generation {
				t.Fatalf("an older editor is served by %+v", s)
			}
		}
		c.gone(doc.PID, 15*time.Second)
	})
	t.Run("released together", func(t *testing.T) { accTurns(t, paths[0], paths[1], 2) })
	t.Run("no releases", func(t *testing.T) {
		other := filepath.Join(t.TempDir(), "majordomus")
		b, err := os.ReadFile(accBinary(t))
		if err != nil {
			t.Fatal(err)
		}
		if err := accExecutable(other, append(b, "another"...)); err != nil {
			t.Fatal(err)
		}
		accTurns(t, accBinary(t), other, 1)
	})
}

// accTurns lets editors of two builds come, stay and lose their server; for
// every server that dies there may be at most so many elections.
func accTurns(t *testing.T, one, two string, most int) {
	c := accFresh(t)
	tokens := accTokens(c)
	var editors []*accEditor
	for range 3 {
		editors = append(editors, c.with(one).editor(), c.with(two).editor())
	}
	all := func() {
		t.Helper()
		errs := make([]error, len(editors))
		var wg sync.WaitGroup
		for i, e := range editors {
			wg.Go(func() { _, errs[i] = e.server() })
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	for _, e := range editors {
		wg.Go(func() {
			if _, err := e.open(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	const deaths = 3
	for range deaths {
		all()
		if err := syscall.Kill(c.mustLease().PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		all()
		// Editors that come and go in turns, as two windows of two products.
		for range 2 {
			for _, program := range []string{one, two} {
				e := c.with(program).editor()
				e.mustOpen()
				e.mustServer()
				e.close()
			}
		}
		all()
	}
	if seen := tokens(); len(seen) > most*(deaths+1) || len(seen) < deaths+1 {
		t.Errorf("%d elections for %d servers that died", len(seen), deaths)
	} else {
		t.Logf("%d elections, %d servers killed", len(seen), deaths)
	}
}

// TestCaptured starts the server below callers that wait for the end of what
// they read: they return while the server lives.
func TestCaptured(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"substitution":    `out=$("$0" serve ensure) && echo "$out"`,
		"pipe":            `"$0" serve ensure | cat`,
		"both":            `out=$("$0" serve ensure 2>&1) && echo "$out" | tail -n 1`,
		"bridge, at once": `out=$("$0" mcp </dev/null 2>&1) && echo "$out" | sed -n 's/^listening on //p'`,
	} {
		t.Run(name, func(t *testing.T) {
			c := accFresh(t)
			ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
			defer cancel()
			cmd := exec.CommandContext(ctx, "/bin/sh", "-c", script, c.program)
			cmd.Dir, cmd.Env, cmd.WaitDelay = c.root, c.environ(), time.Second
			// Many more descriptors, all of them pipes somebody reads.
			var readers []*os.File
			for range 28 {
				r, w, err := os.Pipe()
				if err != nil {
					t.Fatal(err)
				}
				defer r.Close()
				readers, cmd.ExtraFiles = append(readers, r), append(cmd.ExtraFiles, w)
			}
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("the caller: %v: %s", err, out)
			}
			doc := c.mustLease()
			if got := strings.TrimSpace(string(out)); got != *doc.URL {
				t.Errorf("the caller read %q, the server is at %s", got, *doc.URL)
			}
			for _, w := range cmd.ExtraFiles {
				w.Close()
			}
			for i, r := range readers {
				if err := r.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
					t.Fatal(err)
				}
				if _, err := r.Read(make([]byte, 1)); err != io.EOF {
					t.Fatalf("descriptor %d is still open somewhere: %v", 3+i, err)
				}
			}
			if holds, err := accHolds(*doc.URL); err != nil || !holds {
				t.Errorf("the server: %v, %v", holds, err)
			}
			accOwnDescriptors(t, c, doc.PID)
		})
	}
}

// accOwnDescriptors checks that a server has nothing open but what is its own:
// null, the log, the state folder's files, its port, and what Go's runtime opens
// (the limits of its control group).
func accOwnDescriptors(t *testing.T, c *accCheckout, pid int) {
	t.Helper()
	if runtime.GOOS != "linux" {
		return
	}
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	state := filepath.Dir(c.leasePath())
	own := map[string]string{"0": os.DevNull, "1": state + "/server.log", "2": state + "/server.log"}
	sockets := 0
	for _, e := range entries {
		to, err := os.Readlink(filepath.Join(dir, e.Name()))
		if err != nil {
			continue // closed since
		}
		if want := own[e.Name()]; want != "" && to != want {
			t.Errorf("descriptor %s is %s, not %s", e.Name(), to, want)
		}
		switch {
		case strings.HasPrefix(to, "socket:"):
			sockets++
		case to == os.DevNull, to == state, strings.HasPrefix(to, state+"/"), to == c.root, strings.HasPrefix(to, c.root+"/.ai"), strings.HasPrefix(to, "anon_inode:"), strings.HasPrefix(to, "/sys/fs/cgroup/"):
		default:
			t.Errorf("descriptor %s of the server is %s", e.Name(), to)
		}
	}
	// Its port, and what asks it just now: connections whose other end has
	// closed are open here for a moment more.
	for end := time.Now().Add(5 * time.Second); sockets > 2; {
		if time.Now().After(end) {
			t.Errorf("the server has %d sockets", sockets)
			return
		}
		time.Sleep(10 * time.Millisecond)
		sockets = 0
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if to, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil && strings.HasPrefix(to, "socket:") {
				sockets++
			}
		}
	}
}

// TestFirstEditorKilled ends the editor that caused the server in the ways that
// editors and terminals end their children.
func TestFirstEditorKilled(t *testing.T) {
	t.Parallel()
	c := accFresh(t)
	cmd := exec.Command("/bin/sh", "-c", `"$0" mcp; exit $?`, c.program)
	cmd.Dir, cmd.Env = c.root, c.environ()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	e := c.editorOf(cmd)
	e.mustOpen()
	doc := c.mustLease()
	tree := accTree(t, cmd.Process.Pid)
	if slices.Contains(tree, doc.PID) {
		t.Errorf("the server %d is in the editor's tree %v", doc.PID, tree)
	}
	if group, err := syscall.Getpgid(doc.PID); err != nil || group == cmd.Process.Pid || group == syscall.Getpgrp() {
		t.Errorf("the server's group is %d, %v", group, err)
	}
	for _, pid := range tree {
		syscall.Kill(pid, syscall.SIGKILL) // ignore error: some end with their parents
	}
	syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // ignore error: the group may have ended
	<-e.ended
	next := c.editor()
	next.mustOpen()
	if s := next.mustServer(); s.URL != *doc.URL || c.mustLease().Token != doc.Token {
		t.Errorf("the server did not outlive its first editor: %+v", s)
	}
}

// accTree is a process and all below it by recorded parents.
func accTree(t *testing.T, root int) []int {
	t.Helper()
	out, err := exec.Command("ps", "-eo", "pid=,ppid=").Output()
	accNeed(t, err == nil, "ps cannot be run")
	children := map[int][]int{}
	for line := range strings.Lines(string(out)) {
		var pid, parent int
		if _, err := fmt.Sscan(line, &pid, &parent); err == nil {
			children[parent] = append(children[parent], pid)
		}
	}
	tree := []int{root}
	for i := 0; i < len(tree); i++ {
		tree = append(tree, children[tree[i]]...)
	}
	return tree
}

// accStopped waits until every thread of a process has come to a stop: the
// signal is sent before it is. Where there is no /proc it is taken for granted.
func accStopped(t *testing.T, pid int) {
	t.Helper()
	if runtime.GOOS != "linux" {
		return
	}
	accPoll(t, 10*time.Second, "the process must stop", func() error {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
		if err != nil || len(threads) == 0 {
			return fmt.Errorf("no threads: %v", err)
		}
		for _, path := range threads {
			status, err := os.ReadFile(path)
			if err == nil && !bytes.Contains(status, []byte("State:\tT")) {
				return fmt.Errorf("%s runs", path)
			}
		}
		return nil
	})
}

// TestStopped stops the server so that it is alive and silent: the next editor
// is answered within the grace, and the server that wakes lets nobody in.
func TestStopped(t *testing.T) {
	t.Parallel()
	c := accFresh(t)
	c.policy("  busy_grace_seconds: 2\n") // not the default, so that the file is seen to be read
	const grace = 2 * time.Second
	first := c.editor()
	first.mustOpen()
	idle := []*accEditor{c.editor(), c.editor()}
	for _, e := range idle {
		e.mustOpen()
	}
	doc := c.mustLease()
	accStop(t, doc.PID)
	accStopped(t, doc.PID)
	// Whoever knocks while it sleeps is the first it hears when it wakes.
	type knock struct {
		status int
		body   string
		err    error
	}
	knocked := make(chan knock, 1)
	req, err := http.NewRequest(http.MethodPost, *doc.URL+"/mcp", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+c.key())
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	go func() {
		client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
		resp, err := client.Do(req)
		if err != nil {
			knocked <- knock{err: err}
			return
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(io.LimitReader(resp.Body, 4096))
		knocked <- knock{resp.StatusCode, string(b), err}
	}()
	begun := time.Now()
	second := c.editor()
	second.mustOpen()
	if took := time.Since(begun); took > grace+5*time.Second { // a loaded machine takes its time for a start
		t.Errorf("the next editor's first answer took %v", took)
	} else {
		t.Logf("the next editor's first answer took %v", took)
	}
	now := second.mustServer()
	if now.URL == *doc.URL || now.Alone != "" {
		t.Errorf("served by %+v", now)
	}
	// Those that sat idle beside it see that it was replaced, and need not wait
	// for a word of its own.
	for _, e := range idle {
		if s := e.mustServer(); s.Generation != now.Generation {
			t.Errorf("an idle editor is served by %+v", s)
		}
		accPoll(t, 5*time.Second, "an idle editor must not wait for a server that was replaced", func() error {
			if said := e.log.String(); strings.Contains(said, "does not answer") || !strings.Contains(said, "is being left") {
				return errors.New(said)
			}
			return nil
		})
	}
	if s := first.mustServer(); s.Generation != now.Generation {
		t.Errorf("the editor of the stopped server is served by %+v", s)
	}
	if err := syscall.Kill(doc.PID, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if k := <-knocked; k.err != nil || k.status != http.StatusConflict || !strings.Contains(k.body, "lease_lost") {
		t.Errorf("who knocked while it slept was answered %+v", k)
	}
	// It may end before the next knock; only a yes is wrong.
	if resp, err := accHTTP.Post(*doc.URL+"/mcp", "application/json", strings.NewReader("{}")); err == nil {
		resp.Body.Close()
		if resp.StatusCode != http.StatusConflict {
			t.Errorf("woken, it answers %s", resp.Status)
		}
	}
	c.gone(doc.PID, 15*time.Second)
	if s := second.mustServer(); s.Generation != now.Generation || c.mustLease().PID == doc.PID {
		t.Errorf("the woken server came back: %+v", s)
	}
}

// TestStreams starts the bridge with streams that are closed or lead nowhere,
// as editors do when they die or are written carelessly. It ends in time, and
// says nothing but JSON-RPC on standard output.
func TestStreams(t *testing.T) {
	t.Parallel()
	hello, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": accHello})
	if err != nil {
		t.Fatal(err)
	}
	for _, standalone := range []string{"", " --standalone"} {
		for _, test := range []struct {
			name, script string
			answers      bool
		}{
			{"input closed", `exec "$0" mcp%s <&-`, false},
			{"input null", `exec "$0" mcp%s </dev/null`, false},
			{"input a folder", `exec "$0" mcp%s <.`, false},
			{"input ends in a line", `printf '{"jsonrpc":"2.0","id":1,"meth' | "$0" mcp%s`, true},
			{"input without its last newline", `printf %%s "$HELLO" | "$0" mcp%s`, true},
			{"output closed, input null", `exec "$0" mcp%s >&- </dev/null`, false},
			{"output closed", `printf '%%s\n' "$HELLO" | "$0" mcp%s >&-`, false},
			{"output full", `printf '%%s\n' "$HELLO" | "$0" mcp%s >/dev/full; true`, false},
			{"output without a reader", `{ printf '%%s\n' "$HELLO"; exec sleep 20; } | "$0" mcp%s | true`, false},
			{"all closed", `exec "$0" mcp%s <&- >&- 2>&-`, false},
			{"errors closed", `exec "$0" mcp%s 2>&- </dev/null`, false},
		} {
			t.Run(test.name+standalone, func(t *testing.T) {
				c := accFresh(t)
				// Its server is there: what is measured is the bridge.
				if _, stderr, err := c.run("serve", "ensure"); err != nil {
					t.Fatal(err, stderr)
				}
				ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
				defer cancel()
				cmd := exec.CommandContext(ctx, "/bin/sh", "-c", fmt.Sprintf(test.script, standalone), c.program)
				cmd.Dir, cmd.Env = c.root, append(c.environ(), "HELLO="+string(hello))
				var out, log accBuffer
				cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &log, time.Second
				cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				defer syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // ignore error: mostly nobody is left
				waited := make(chan struct{})
				go func() {
					defer close(waited)
					cmd.Wait() // ignore error: what matters is what was said
				}()
				server := c.mustLease().PID
				accPoll(t, 10*time.Second, "the bridge must end", func() error {
					for _, pid := range c.pids() {
						if pid != server {
							return fmt.Errorf("process %d lives: %s", pid, log.String())
						}
					}
					select {
					case <-waited:
					default: // of one whose pipeline goes on, a word shows that it has begun
						if log.String() == "" {
							return errors.New("it may not have begun")
						}
					}
					return nil
				})
				syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // ignore error: the rest of the pipeline
				<-waited
				if strings.Contains(log.String(), "panic") || strings.Contains(log.String(), "goroutine ") {
					t.Errorf("it panicked: %s", log.String())
				}
				n := 0
				for line := range strings.Lines(out.String()) {
					var m struct{ JSONRPC string }
					if err := json.Unmarshal([]byte(line), &m); err != nil || m.JSONRPC != "2.0" {
						t.Errorf("on standard output: %q", line)
					}
					n++
				}
				if test.answers != (n == 1) || n > 1 {
					t.Errorf("%d lines on standard output: %s", n, out.String())
				}
				if holds, err := accHolds(*c.mustLease().URL); err != nil || !holds {
					t.Errorf("the server: %v, %v", holds, err)
				}
			})
		}
	}
}

// TestRefused opens a checkout whose policy cannot be read: nobody is served by
// guesswork, and the client is told which line to mend. Mended, it is read anew,
// by the bridge that refused as well.
func TestRefused(t *testing.T) {
	t.Parallel()
	c := accFresh(t)
	c.policy("  idle_seconds: 900\n  busy_grace: 2\n")
	e := c.editor()
	_, err := e.open()
	if err == nil || !strings.Contains(err.Error(), "policy.yaml") || !strings.Contains(err.Error(), "busy_grace") || !strings.Contains(err.Error(), "3") {
		t.Fatalf("refused with %v", err)
	}
	if pids := c.pids(); len(pids) != 1 {
		t.Errorf("processes %v; the bridge is %d", pids, e.cmd.Process.Pid)
	}
	if _, err := os.Stat(c.leasePath()); !os.IsNotExist(err) {
		t.Errorf("a lease is there: %v", err)
	}
	c.policy("  busy_grace_seconds: 2\n")
	for _, e := range []*accEditor{e, c.editor()} {
		e.mustOpen()
		if s := e.mustServer(); !s.LeaseHolder {
			t.Errorf("served by %+v", s)
		}
	}
}

// TestBackTogether takes away what kept a client from the shared server, under
// the client: it comes back without a restart, and no call of its fails.
func TestBackTogether(t *testing.T) {
	t.Parallel()
	c := accFresh(t)
	c.policy("  join_timeout_seconds: 1\n") // it tries after 4 of these
	local := filepath.Join(c.root, ".ai", "local")
	if err := os.WriteFile(local, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	e := c.editor()
	e.mustOpen()
	if s := e.mustServer(); s.Alone == "" {
		t.Fatalf("not alone: %+v", s)
	}
	if err := os.Remove(local); err != nil {
		t.Fatal(err)
	}
	accPoll(t, 20*time.Second, "the client must come back", func() error {
		s, err := e.server()
		if err != nil {
			t.Fatal(err)
		}
		if s.Alone != "" {
			return fmt.Errorf("alone: %s", s.Alone)
		}
		return nil
	})
	other := c.editor()
	other.mustOpen()
	if one, two := e.mustServer(), other.mustServer(); one.URL == "" || one.Generation != two.Generation {
		t.Errorf("they are apart: %+v and %+v", one, two)
	}
	// Its own server has ended with that: nothing is tried any more.
	if said := e.log.String(); strings.Count(said, "no longer serving this client alone") != 1 {
		t.Errorf("said: %s", said)
	}
}

// TestRotatedKey changes the key under a server with a client on it: by the word
// that tells the server; by the file alone, since who rotates may die in between;
// and by taking the file away, or spoiling it. The client goes on, newcomers join
// the same server.
func TestRotatedKey(t *testing.T) {
	t.Parallel()
	c := accFresh(t)
	e := c.editor()
	e.mustOpen()
	first := c.mustLease()
	for _, rotate := range []func() error{
		func() error {
			old := c.key()
			out, stderr, err := c.run("key", "--rotate")
			if err == nil && (strings.TrimSpace(out) == old || strings.TrimSpace(out) != c.key()) {
				err = fmt.Errorf("the key was %q, and is %q of %q", old, c.key(), out)
			}
			if err != nil {
				return fmt.Errorf("%w: %s", err, stderr)
			}
			return nil
		},
		func() error { _, err := c.folder().RotateKey(); return err },
		func() error { return os.Remove(filepath.Join(filepath.Dir(c.leasePath()), "key")) },
		func() error {
			return os.WriteFile(filepath.Join(filepath.Dir(c.leasePath()), "key"), []byte("abc\n"), 0o600)
		},
	} {
		if err := rotate(); err != nil {
			t.Fatal(err)
		}
		e.mustServer()
		next := c.editor()
		next.mustOpen()
		next.mustServer()
		if now := c.mustLease(); now.Token != first.Token {
			t.Errorf("the server was replaced: %+v", now)
		}
	}
}

// TestWordsWithoutAPolicy looks at a server and ends it while its policy cannot
// be read: that is when somebody wants to.
func TestWordsWithoutAPolicy(t *testing.T) {
	t.Parallel()
	c := accFresh(t)
	e := c.editor()
	e.mustOpen()
	c.policy("  busy_grace: 2\n")
	for _, words := range [][]string{{"status"}, {"logs"}, {"key"}, {"serve", "status"}} {
		if out, stderr, err := c.run(words...); err != nil || out == "" || !strings.Contains(stderr, "busy_grace") {
			t.Errorf("%v: %q %q %v", words, out, stderr, err)
		}
	}
	e.close()
	if out, stderr, err := c.run("serve", "stop"); err != nil || !strings.Contains(out, "stopped") {
		t.Errorf("stop: %q %q %v", out, stderr, err)
	}
}

// TestStopWaits stops a server with a call in flight: what says that it has
// stopped is believed, so the process is gone by then.
func TestStopWaits(t *testing.T) {
	t.Parallel()
	c := accFresh(t)
	e := c.editor()
	e.mustOpen()
	pid := c.mustLease().PID
	answer, err := e.ask("tools/call", map[string]any{"name": "majordomus_wait", "arguments": map[string]any{"seconds": 2}})
	if err != nil {
		t.Fatal(err)
	}
	accPoll(t, 10*time.Second, "the call must be in flight", func() error {
		if s, err := e.server(); err != nil || s.InFlight < 2 {
			return fmt.Errorf("%+v, %v", s, err)
		}
		return nil
	})
	if out, stderr, err := c.run("serve", "stop"); err != nil || !strings.Contains(out, "stopped") {
		t.Fatalf("stop: %q %q %v", out, stderr, err)
	}
	c.gone(pid, time.Second)
	if _, err := e.answer(answer, "the call"); err != nil {
		t.Errorf("what was in flight: %v", err)
	}
	e.mustServer() // the next one
}

// accStranger answers at an address as the server that was there did, word for
// word, but for the proof it cannot make; it keeps all that it is sent.
type accStranger struct {
	l    net.Listener
	wg   sync.WaitGroup
	mu   sync.Mutex
	got  bytes.Buffer
	asks int
}

// accStop stops a process, and returns when none of its threads runs any more,
// where the system tells.
func accStop(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS != "linux" {
		return
	}
	accPoll(t, 5*time.Second, "all of it must stand still", func() error {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		if err != nil {
			return err
		}
		for _, path := range threads {
			b, _ := os.ReadFile(path) // ignore error: that thread has ended
			if _, rest, ok := strings.Cut(string(b), ") "); ok && rest[0] != 'T' {
				return fmt.Errorf("%s: %.10s", path, rest)
			}
		}
		return nil
	})
}

func accImpersonate(t *testing.T, address string, index []byte) *accStranger {
	t.Helper()
	s := new(accStranger)
	accPoll(t, 5*time.Second, "the port must be free", func() (err error) {
		s.l, err = net.Listen("tcp", address)
		return err
	})
	// What it copies was not asked for with a challenge; it makes a proof up.
	index = append(bytes.TrimSuffix(bytes.TrimSpace(index), []byte("}")), `,"proof":"`+strings.Repeat("ab", 32)+`"}`...)
	s.wg.Go(func() {
		for {
			conn, err := s.l.Accept()
			if err != nil {
				return
			}
			s.wg.Go(func() {
				defer conn.Close()
				s.converse(conn, index)
			})
		}
	})
	t.Cleanup(s.close)
	return s
}

func (s *accStranger) converse(conn net.Conn, index []byte) {
	b := make([]byte, 64<<10)
	for {
		conn.SetReadDeadline(time.Now().Add(2 * time.Second)) // ignore error: the read then waits for the other's end
		n, err := conn.Read(b)
		s.mu.Lock()
		s.got.Write(b[:n])
		s.asks += bytes.Count(b[:n], []byte("HTTP/1.1\r\n"))
		s.mu.Unlock()
		if err != nil {
			return
		}
		if bytes.Contains(b[:n], []byte("\r\n\r\n")) {
			fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(index), index) // ignore error: the other may have gone
		}
	}
}

func (s *accStranger) close() {
	s.l.Close() // ignore error: may be closed
	s.wg.Wait()
}

// heard is everything it was sent, and how many requests that were.
func (s *accStranger) heard() (string, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.got.String(), s.asks
}

// TestStranger has somebody else listen where the server was: whatever asks it
// never shows it the key.
func TestStranger(t *testing.T) {
	t.Parallel()
	begin := func(t *testing.T) (c *accCheckout, e *accEditor, doc lease.Document, key string, index []byte) {
		c = accFresh(t)
		e = c.editor()
		e.mustOpen()
		e.mustServer()
		doc, key = c.mustLease(), c.key()
		resp, err := accHTTP.Get(*doc.URL + "/")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if index, err = io.ReadAll(resp.Body); err != nil {
			t.Fatal(err)
		}
		return c, e, doc, key, index
	}
	check := func(t *testing.T, s *accStranger, key string, asked bool) {
		t.Helper()
		got, n := s.heard()
		if strings.Contains(got, key) || strings.Contains(strings.ToLower(got), "authorization") {
			t.Errorf("it heard the key: %q", got)
		}
		if asked && n == 0 {
			t.Error("nobody asked it, so that nothing was shown")
		}
		t.Logf("it was asked %d times", n)
	}
	t.Run("the owner is dead", func(t *testing.T) {
		c, first, doc, key, index := begin(t)
		// The editor must not start the next server on that port first.
		accStop(t, first.cmd.Process.Pid)
		if err := syscall.Kill(doc.PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		s := accImpersonate(t, strings.TrimPrefix(*doc.URL, "http://"), index)
		c.run("serve", "status") // ignore error: that it asks is what counts
		c.run("serve", "stop")
		if err := syscall.Kill(first.cmd.Process.Pid, syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		second := c.editor()
		second.mustOpen()
		for _, e := range []*accEditor{first, second} {
			if got := e.mustServer(); got.URL == *doc.URL || got.Alone != "" || !got.LeaseHolder {
				t.Errorf("served by %+v", got)
			}
		}
		check(t, s, key, true)
	})
	t.Run("the owner lives elsewhere", func(t *testing.T) {
		c, first, doc, key, index := begin(t)
		first.close()
		if err := syscall.Kill(doc.PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		c.gone(doc.PID, 5*time.Second)
		// A holder that lives, and whose address is the stranger's.
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		address := l.Addr().String()
		l.Close()
		el, err := c.folder().Elect(t.Context(), lease.Candidate{Listen: func(string) (string, error) { return "http://" + address, nil }})
		if err != nil || el.Role != lease.Server {
			t.Fatalf("elected %v, %v", el.Role, err)
		}
		defer el.Tenure.Release()
		if err := el.Tenure.Publish("http://" + address); err != nil {
			t.Fatal(err)
		}
		s := accImpersonate(t, address, index)
		c.run("serve", "status")
		c.run("serve", "stop")
		second := c.editor()
		said := second.mustOpen()
		if got := second.mustServer(); got.Alone == "" {
			t.Errorf("served by %+v", got)
		}
		if !strings.Contains(said, "alone") {
			t.Errorf("it is not told: %s", said)
		}
		check(t, s, key, true)
	})
}

// TestSignals ends bridges as editors do when they have no patience: they are
// gone at once, whatever they have in flight and whoever reads them.
func TestSignals(t *testing.T) {
	t.Parallel()
	for _, words := range [][]string{{"mcp"}, {"mcp", "--standalone"}} {
		for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
			for _, busy := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s %v busy %v", strings.Join(words, " "), sig, busy), func(t *testing.T) {
					c := accFresh(t)
					e := c.editor(words...)
					e.mustOpen()
					if busy {
						if _, err := e.ask("tools/call", map[string]any{"name": "majordomus_wait", "arguments": map[string]any{"seconds": 60}}); err != nil {
							t.Fatal(err)
						}
						if s := e.mustServer(); s.InFlight < 1 {
							t.Errorf("nothing is in flight: %+v", s)
						}
					}
					begun := time.Now()
					if err := e.cmd.Process.Signal(sig); err != nil {
						t.Fatal(err)
					}
					accPoll(t, 2*time.Second, "it must be gone", func() error {
						if slices.Contains(c.pids(), e.cmd.Process.Pid) {
							return errors.New("it lives")
						}
						return nil
					})
					t.Logf("gone after %v", time.Since(begun))
				})
			}
		}
		t.Run(strings.Join(words, " ")+", nobody reads", func(t *testing.T) {
			c := accFresh(t)
			cmd := c.command(words...)
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			cmd.Stdout = w
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			w.Close()
			defer cmd.Process.Kill() // ignore error: ended by then
			// Questions whose answers are far more than a pipe holds.
			full := make(chan struct{})
			go func() {
				defer close(full)
				hello, _ := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": accHello}) // ignore error: a constant
				in.Write(append(hello, '\n'))
				for i := 2; i < 1000; i++ {
					if _, err := fmt.Fprintf(in, `{"jsonrpc":"2.0","id":%d,"method":"tools/list"}`+"\n", i); err != nil {
						return
					}
				}
			}()
			first := make([]byte, 1)
			if _, err := r.Read(first); err != nil {
				t.Fatal(err)
			}
			select { // it takes all it is given, or stops to read: both are fine
			case <-full:
			case <-time.After(2 * time.Second):
			}
			begun := time.Now()
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if err := accUntil(2*time.Second, func() error {
				if slices.Contains(c.pids(), cmd.Process.Pid) {
					return errors.New("it lives")
				}
				return nil
			}); err != nil {
				t.Errorf("not within 2 s: %v", err)
				cmd.Process.Kill() // ignore error: asked again by the test's end
			} else {
				t.Logf("gone after %v", time.Since(begun))
			}
			cmd.Wait() // ignore error: ended by a signal
			<-full
		})
	}
}
