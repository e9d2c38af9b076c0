package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"

	"majordomus/server"
)

// TestChaos has a dozen editors work in one checkout while everything goes
// wrong that can be had, and looks all the time, and once more at the end,
// whether a promise is broken:
//
//   - every request that was not cancelled is answered once, under the id that it
//     had to the byte, within chaosNever;
//   - no call of a tool that may not run twice does, one that was answered with
//     success has run, one that was refused has not;
//   - no two servers let clients in: asked P1, P2, P1, never yes, yes, yes;
//   - what an attached editor announced is on the board;
//   - at the end all are on one server again, and when they have left nothing
//     stays: no process, no descriptor, no peer, no session, no file but those
//     that the design names.
//
// The editors are in chaos_editors_linux_test.go, the faults in
// chaos_faults_linux_test.go; here are the place in which it happens, the looks
// at the whole, and the figures.
//
// It all happens in namespaces of its own: every process in there descends from
// the test, every port that listens is a server's, a disk can be filled, and
// nothing outlives the test, however it ends. Two things are not had. The wall
// clock is the machine's and is left alone: lease documents and files with times
// out of place stand for its steps. And a schedule that is played again draws the
// same faults, pauses and requests; what the scheduler of the machine makes of
// them is another matter.
var (
	chaosFor  = flag.Duration("chaos", 60*time.Second, "how long TestChaos makes trouble")
	chaosSeed = flag.Uint64("chaos.seed", 0, "the seed of what TestChaos does; 0 takes any")
)

const (
	chaosEditors = 12               // at a time
	chaosStays   = 3                // of these, from the beginning to the end
	chaosNever   = 60 * time.Second // without an answer is never
	chaosSettles = 60 * time.Second // for all to be as it should once the faults are over
)

// Short, so that much happens in little time.
const chaosPolicy = `  probe_timeout_seconds: 0.5
  busy_grace_seconds: 1
  bind_grace_seconds: 2
  join_timeout_seconds: 3
  read_deadline_seconds: 5
  session_idle_seconds: 5
  idle_seconds: 4
`

// chaosPlace says where the programs are, and that this process is inside.
const chaosPlace = "MAJORDOMUS_TEST_CHAOS"

func TestChaos(t *testing.T) {
	if dir := os.Getenv(chaosPlace); dir != "" {
		chaosInside(t, dir)
		return
	}
	t.Parallel() // it waits more than it works
	spaces := []string{"--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"}
	accNamespaces(t, spaces...)
	_, err := exec.LookPath("ip")
	accNeed(t, err == nil, "ip is missing")
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	releases, err := accVersions()
	if err != nil {
		t.Fatal(err)
	}
	upstream, err := hubUpstream()
	if err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{"older": releases[0], "newer": releases[1], "upstream": upstream} {
		if err := os.Symlink(path, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	seed := *chaosSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// A shell is the first process in there: it buries the dead.
	cmd := exec.Command("unshare", append(spaces, "/bin/sh", "-c", `ip link set lo up && "$0" "$@"; exit $?`, self,
		"-test.run=^TestChaos$", "-test.timeout="+(*chaosFor+5*time.Minute).String(),
		"-chaos="+chaosFor.String(), "-chaos.seed="+strconv.FormatUint(seed, 10))...)
	cmd.Env = append(os.Environ(), chaosPlace+"="+dir)
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // and with it all that is in there
	runtime.LockOSThread()                                             // which is what the kernel takes for the parent
	defer runtime.UnlockOSThread()
	if err := cmd.Run(); err != nil {
		t.Errorf("%v; to play it again: go test ./cmd/majordomus -run Chaos -chaos %v -chaos.seed %d", err, *chaosFor, seed)
	}
}

// chaos is one run.
type chaos struct {
	*accCheckout
	began    time.Time
	disk     string // the file system with the checkout in it
	older    string // the program, which is replaced now and then
	newer    string // a newer release of it
	upstream string
	ledger   chaosLedger
	over     context.Context // done when editors are to begin nothing more

	// standing is held by editors until they know which checkout they are in, and
	// by who moves that: an editor that begins in a folder of another name is in
	// another checkout for good.
	standing sync.RWMutex

	mu      sync.Mutex
	living  []*chaosEditor
	counts  map[string]map[string]int // by table and row
	on      map[string]int            // how many of a fault are on
	ended   map[string]time.Time      // when one last was
	longest map[string]time.Duration
	tokens  map[string]bool // that the lease has shown
	events  []string        // what happened, with what was wrong among it
	wrongs  int
}

// chaosInside is the run, in namespaces of its own.
func chaosInside(t *testing.T, dir string) {
	began := time.Now()
	fmt.Printf("seed %d, %v\n", *chaosSeed, *chaosFor)
	disk := filepath.Join(dir, "disk")
	if err := errors.Join(os.Mkdir(disk, 0o755), unix.Mount("none", disk, "tmpfs", 0, "size=128m")); err != nil {
		t.Fatal(err)
	}
	programs := filepath.Join(dir, "programs")
	if err := os.Mkdir(programs, 0o755); err != nil {
		t.Fatal(err)
	}
	c := &chaos{
		accCheckout: accIn(t, disk, filepath.Join(programs, "majordomus")), began: began, disk: disk,
		older: filepath.Join(dir, "older"), upstream: filepath.Join(dir, "upstream"),
		counts: map[string]map[string]int{}, on: map[string]int{}, ended: map[string]time.Time{}, longest: map[string]time.Duration{}, tokens: map[string]bool{},
	}
	c.ledger = chaosLedger{chaos: c, path: filepath.Join(dir, "effects"), calls: map[int]string{}, ran: map[int]int{}}
	c.newer, _ = filepath.EvalSymlinks(filepath.Join(dir, "newer")) // ignore error: starting it would fail
	if err := c.rebuild(0); err != nil {
		t.Fatal(err)
	}
	c.home = filepath.Join(dir, "home") // room for what people have does not end with the disk
	if err := os.Mkdir(c.home, 0o755); err != nil {
		t.Fatal(err)
	}
	c.policy(chaosPolicy)
	c.write(".ai/repo/notes.md", "what to know\n", 0o644)
	c.hosts(map[string]hubServer{"up": {Command: c.upstream, Args: []string{"-effects", c.ledger.path}}})
	c.mustRun("trust", "--yes")

	over, stop := context.WithCancel(context.Background())
	c.over = over
	looking, enough := context.WithCancel(context.Background())
	var looks, work, trouble sync.WaitGroup
	looks.Go(func() { c.every(looking, 20*time.Millisecond, c.lookAtHolders()) })
	looks.Go(func() { c.every(looking, time.Second, c.lookAtAnswers) })
	looks.Go(func() { c.every(looking, 500*time.Millisecond, c.ledger.look) })
	looks.Go(func() { c.every(looking, time.Minute, c.say) })
	for i := range chaosEditors {
		work.Go(func() { c.place(i, chaosRand("editors", i)) })
	}
	for i := range 2 {
		work.Go(func() { c.web(i, chaosRand("web", i)) })
	}
	for i := range 2 { // so that there are two at a time
		trouble.Go(func() { c.makeTrouble(chaosRand("faults", i), time.Now().Add(*chaosFor)) })
	}
	trouble.Wait()
	c.event("the faults are over")
	stop()
	work.Wait()
	c.settle()
	enough()
	looks.Wait()
	c.leave()
	c.ledger.close()
	c.report()
	if c.wrongs > 0 {
		t.Errorf("%d promises were broken; what happened:\n%s", c.wrongs, strings.Join(c.events[max(0, len(c.events)-500):], "\n"))
	}
}

// chaosRand draws for one of those who act, whatever the others do.
func chaosRand(who string, i int) *rand.Rand {
	stream := uint64(i)
	for _, b := range []byte(who) {
		stream = stream*257 + uint64(b)
	}
	return rand.New(rand.NewPCG(*chaosSeed, stream))
}

func (c *chaos) every(ctx context.Context, pause time.Duration, do func()) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
			do()
		}
	}
}

// event notes what happens.
func (c *chaos) event(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events = append(c.events, fmt.Sprintf("%9.3f ", time.Since(c.began).Seconds())+fmt.Sprintf(format, args...))
}

// wrong notes a broken promise.
func (c *chaos) wrong(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	c.event("WRONG: %s", text)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.wrongs++; c.wrongs <= 100 {
		fmt.Printf("%.3f WRONG: %.1000s\n", time.Since(c.began).Seconds(), text)
	}
}

func (c *chaos) count(table, row string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts[table] == nil {
		c.counts[table] = map[string]int{}
	}
	c.counts[table][row]++
}

func (c *chaos) took(what string, d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.longest[what] = max(c.longest[what], d)
}

// wasOn reports whether a fault was on since then.
func (c *chaos) wasOn(fault string, since time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.on[fault] > 0 || c.ended[fault].After(since)
}

func (c *chaos) editors() []*chaosEditor {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.living)
}

// lookAtAnswers looks for requests that nobody answers.
func (c *chaos) lookAtAnswers() {
	for _, e := range c.editors() {
		for _, call := range e.unanswered(chaosNever) {
			c.wrong("%s waits for the answer to %s %s since %v: %s", e.name, call.kind, call.id, time.Since(call.asked), e.said())
		}
	}
}

// lookAtHolders asks the servers whether they let clients in, each and every one
// that listens. Two that say yes are a fault only when the first says so before
// and after the second.
func (c *chaos) lookAtHolders() func() {
	client := &http.Client{Timeout: 500 * time.Millisecond, Transport: &http.Transport{DisableKeepAlives: true}}
	holds := func(port int) (which string) {
		resp, err := client.Get(fmt.Sprintf("http://127.0.0.1:%d/", port))
		if err != nil {
			return ""
		}
		defer resp.Body.Close()
		var index struct {
			Leaseholder bool
			StartedAt   string `json:"started_at"`
		}
		if json.NewDecoder(resp.Body).Decode(&index) != nil || !index.Leaseholder {
			return ""
		}
		c.count("looks", "a server said that it holds the lease")
		return index.StartedAt
	}
	return func() {
		if d, err := c.lease(); err == nil {
			c.mu.Lock()
			c.tokens[d.Token] = true
			c.mu.Unlock()
		}
		ports := chaosPorts()
		said := make([]string, len(ports))
		var all sync.WaitGroup // one that is stopped keeps nobody waiting
		for i, port := range ports {
			all.Go(func() { said[i] = holds(port) })
		}
		all.Wait()
		for i, first := range said {
			for j, second := range said {
				if i == j || first == "" || second == "" {
					continue
				}
				c.count("looks", "two said so, and were asked again")
				if first = holds(ports[i]); first != "" && holds(ports[j]) != "" && holds(ports[i]) == first {
					c.wrong("two servers hold the lease, at the ports %d and %d", ports[i], ports[j])
				}
			}
		}
	}
}

// chaosPorts are those that somebody listens at.
func chaosPorts() (ports []int) {
	b, _ := os.ReadFile("/proc/self/net/tcp") // ignore error: nobody listens then
	for line := range strings.Lines(string(b)) {
		var n, port, state int
		var address string
		if _, err := fmt.Sscanf(line, "%d: %8s:%X %17s %X", &n, &address, &port, new(string), &state); err == nil && state == 0x0a {
			ports = append(ports, port)
		}
	}
	return ports
}

// A chaosProcess is one that this test started, or that one of these did.
type chaosProcess struct {
	pid   int
	words string
}

// processes are all that there are but this one and the first.
func (c *chaos) processes() (all []chaosProcess) {
	dirs, _ := filepath.Glob("/proc/[0-9]*") // ignore error: the pattern is good
	for _, dir := range dirs {
		pid, _ := strconv.Atoi(filepath.Base(dir))               // it is a number
		words, err := os.ReadFile(filepath.Join(dir, "cmdline")) // empty in who waits to be buried
		if err != nil || len(words) == 0 || pid == 1 || pid == os.Getpid() {
			continue
		}
		all = append(all, chaosProcess{pid, strings.ReplaceAll(strings.Trim(string(words), "\x00"), "\x00", " ")})
	}
	return all
}

// chaosDescriptors is the least number that a process has within a moment: files that
// it looks at now and then are open in between.
func chaosDescriptors(pid int) (least int, list string) {
	least = 1 << 20
	for range 20 {
		dir := fmt.Sprintf("/proc/%d/fd", pid)
		entries, err := os.ReadDir(dir)
		if err == nil && len(entries) < least {
			least, list = len(entries), ""
			for _, e := range entries {
				to, _ := os.Readlink(filepath.Join(dir, e.Name())) // ignore error: closed since
				list += e.Name() + " " + to + "\n"
			}
		}
		time.Sleep(5 * time.Millisecond)
	}
	return least, list
}

// must waits until it is so.
func (c *chaos) must(what string, so func() error) bool {
	began := time.Now()
	if err := accUntil(chaosSettles, so); err != nil {
		c.wrong("%s: not within %v: %v", what, chaosSettles, err)
		return false
	}
	c.event("%s: after %v", what, time.Since(began).Round(time.Millisecond))
	return true
}

// settle has everybody be where they should be, once there are no faults any
// more: answered, on one server, and on its board with what they announced.
func (c *chaos) settle() {
	editors := c.editors()
	c.must("all is answered", func() error {
		for _, e := range editors {
			if n := len(e.unanswered(0)); n > 0 {
				return fmt.Errorf("%s waits for %d answers", e.name, n)
			}
		}
		return nil
	})
	c.must("all are on one server", func() error {
		var first accServed
		for i, e := range editors {
			s, err := e.server()
			if i == 0 {
				first = s
			}
			if err != nil || s.Alone != "" || !s.LeaseHolder || s.Generation != first.Generation {
				return fmt.Errorf("%s is served by %+v, %v; the first by %+v", e.name, s, err, first)
			}
		}
		return nil
	})
	c.must("all are on the board with what they announced, and nobody else", func() error {
		out, log, err := c.run("peers", "--format", "json")
		if err != nil {
			return fmt.Errorf("%w: %s", err, log)
		}
		var all server.Peers
		if err := json.Unmarshal([]byte(out), &all); err != nil {
			return err
		}
		attached := 0
		for _, v := range all.Peers {
			if v.Attached {
				attached++
			}
		}
		if attached != len(editors) {
			return fmt.Errorf("%d are attached of %d: %s", attached, len(editors), out)
		}
		for _, e := range editors {
			if err := e.is(all); err != nil {
				return err
			}
		}
		return nil
	})
}

// leave ends everything, and looks whether something stays.
func (c *chaos) leave() {
	editors := c.editors()
	fresh := c.begin("fresh", false, c.program, chaosRand("fresh", 0))
	if fresh == nil || !fresh.open() {
		c.wrong("nobody can begin any more")
		return
	}
	usual, usually := chaosDescriptors(fresh.cmd.Process.Pid)
	c.must("no bridge has more descriptors than one that has just begun", func() error {
		for _, e := range editors {
			if n, list := chaosDescriptors(e.cmd.Process.Pid); n > usual {
				return fmt.Errorf("%s has %d, not %d:\n%s\nthe other:\n%s", e.name, n, usual, list, usually)
			}
		}
		return nil
	})
	for _, e := range editors {
		e.end(chaosEOF)
	}
	// What the server has when all but one have left is what the next one has
	// that nobody else ever joined.
	alone := func() (pid, n int, list string) {
		c.must("but one all have left", func() error {
			if _, err := fresh.wait(fresh.ask("hosted read", "tools/call", map[string]any{"name": "up__read", "arguments": map[string]any{"n": -1}}, 0)); err != nil {
				return err
			}
			s, err := fresh.server()
			if err != nil || s.Peers != 1 || s.InFlight != 1 || s.Alone != "" {
				return fmt.Errorf("served by %+v, %v", s, err)
			}
			d, err := c.accCheckout.lease()
			pid = d.PID
			return err
		})
		n, list = chaosDescriptors(pid)
		return pid, n, list
	}
	pid, n, list := alone()
	if _, log, err := c.run("serve", "stop"); err != nil {
		c.wrong("the server is not to be stopped: %v: %s", err, log)
	}
	next, most, mostly := alone()
	if next == pid || n > most {
		c.wrong("the server %d has %d descriptors, the next one, %d, has %d:\n%s\nthe next one:\n%s", pid, n, next, most, list, mostly)
	}
	c.event("descriptors: %d in a bridge, %d in the server", usual, most)
	fresh.end(chaosEOF)
	c.must("all processes have ended", func() error {
		if left := c.processes(); len(left) > 0 {
			return fmt.Errorf("left are %v", left)
		}
		return nil
	})
	c.lookAtFiles()
}

// chaosStands are the names, in the state folder, of what the design has stay
// there. What lay in the way was moved aside.
var chaosStands = []string{
	"server.lock", "launch.lock", "key", "server.log", "server.log.1", "upstream-up.log", "upstream-up.log.1", "catalogue", "catalogue/up*-????????????????.json", "hosted",
}

func (c *chaos) lookAtFiles() {
	state := filepath.Dir(c.leasePath())
	err := filepath.WalkDir(c.disk, func(path string, e os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(state, path)
		if err != nil {
			return err
		}
		known := func(patterns []string, name string) bool {
			return slices.ContainsFunc(patterns, func(p string) bool { ok, _ := filepath.Match(p, name); return ok })
		}
		if filepath.IsLocal(rel) && rel != "." {
			top, _, _ := strings.Cut(rel, "/")
			if !known(chaosStands, rel) && !strings.Contains(top, ".aside-") {
				c.wrong("in the state folder stays %s", rel)
			}
			return nil
		}
		if rel, err = filepath.Rel(c.disk, path); err != nil {
			return err
		}
		if !known([]string{".", "home", "work", "work/.git*", "work/.git/*", "work/.git/*/*", "work/.ai", "work/.ai/local", "work/.ai/local/.gitignore", "work/.ai/local/state",
			"work/.ai/local/state/mcp", "work/.ai/repo", "work/.ai/repo/policy.yaml", "work/.ai/repo/mcp.json", "work/.ai/repo/notes.md"}, rel) {
			c.wrong("in the checkout stays %s", rel)
		}
		return nil
	})
	if err != nil {
		c.wrong("looking at what stays: %v", err)
	}
}

// say tells how far it is.
func (c *chaos) say() {
	c.mu.Lock()
	defer c.mu.Unlock()
	sum := func(table string) (n int) {
		for _, v := range c.counts[table] {
			n += v
		}
		return n
	}
	fmt.Printf("%v: %d faults, %d requests, %d servers, %d promises broken\n", time.Since(c.began).Round(time.Second), sum("faults"), sum("requests"), len(c.tokens), c.wrongs)
}

// report prints the figures.
func (c *chaos) report() {
	c.mu.Lock()
	defer c.mu.Unlock()
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, table := range slices.Sorted(maps.Keys(c.counts)) {
		fmt.Fprintf(w, "%s\n", table)
		rows := c.counts[table]
		for _, row := range slices.SortedFunc(maps.Keys(rows), func(a, b string) int { return cmp.Or(rows[b]-rows[a], strings.Compare(a, b)) }) {
			fmt.Fprintf(w, "  %s\t%d\n", row, rows[row])
		}
	}
	fmt.Fprintf(w, "elections that were seen\t%d\n", len(c.tokens))
	for _, what := range slices.Sorted(maps.Keys(c.longest)) {
		fmt.Fprintf(w, "longest wait, %s\t%v\n", what, c.longest[what].Round(time.Millisecond))
	}
	fmt.Fprintf(w, "promises broken\t%d\n", c.wrongs)
	w.Flush()
	io.Copy(os.Stdout, &b) // ignore error: it is the test's output
}
