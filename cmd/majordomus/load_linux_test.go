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
	"io/fs"
	"maps"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"majordomus/cmd/majordomus/bench"
)

// The load of a day, pressed into minutes. What is promised is that nothing
// grows: that after a day the server has the memory, the descriptors, the
// goroutines and the files that it had in the morning, and answers as fast.
//
// A day is taken for this: eight hours, in which 100 editors are open, and a
// model that works in each for half of the time and calls something every 20
// seconds of that:
//
//	100 editors × 8 h × 0.5 / 20 s = 72,000 requests of editors
//
// An editor is open for two hours, then closed and opened again: 400 starts.
// Beside them are up to 1,000 clients over HTTP. Their sessions last 23 minutes,
// a 21st of the day, and have half a dozen requests each; of each three such
// parts of the day one is quiet (shape), so that there are
//
//	1,000 clients × 15.6 of 21 = 15,600 sessions
//
// half of them in the era with a handshake. Of these, half hold a stream, the
// others must call to be remembered. Two of three say that they go, the others
// fall silent. Every part of the day ends with a spell in which nobody says
// anything, all of these sessions are forgotten and the hosted servers ended. In
// each of them the figures are taken, when what is attached is the same.
//
// What is pressed harder than the rest is what has to be waited for: sessions
// and hosted servers idle for seconds, where it would be half an hour.

var loadFor = flag.Duration("load", 0, "how long a day of load takes; zero plays a few seconds of a small one")

// loadShape is how much goes on in the parts of a third of the day. The thirds
// are alike, so that the last can be compared with the first.
var loadShape = []float64{0.5, 0.8, 1, 0.9, 0.3, 1, 0.7}

// loadPatience is how long anything is waited for. How fast the machine is, is not
// judged.
const loadPatience = 3 * time.Minute

// loadPlan is what is to be played.
type loadPlan struct {
	editors   int
	clients   int // over HTTP, at once
	upstreams int
	parts     []loadPart
	idle      time.Duration // of sessions and hosted servers
	settles   time.Duration // how long memory is looked at after a collection
	beat      time.Duration // between the calls of the editor that stays

	// How much there may be more than in the first quiet spell. Goroutines,
	// descriptors, processes and files may not be more at all.
	perSession, perCall float64 // bytes of the server's heap, and of the bridge that stays
	memory              float64 // times the first
	slower              float64 // times the first third of the day, in bursts; zero: it is too short to be judged
	dearer              float64 // the same, for calls that stand in nobody's way
}

// loadPart is a part of the day, which begins with traffic and ends quiet.
type loadPart struct {
	traffic  time.Duration
	calls    int // of each editor
	sessions int // one after the other, of each client that is there
	clients  int // that are there
	restarts int // of editors
	large    int // messages of some MiB
	short    int // sessions over HTTP beside those, which do nothing
}

// requests is how many are meant to be made in a day by editors, and sessions
// how many there are over HTTP.
func (p *loadPlan) requests() (n int) {
	for _, part := range p.parts {
		n += p.editors * part.calls
	}
	return n
}

func (p *loadPlan) sessions() (n int) {
	for _, part := range p.parts {
		n += part.clients*part.sessions + part.short
	}
	return n
}

// loadDay is the plan of a whole day, played within about so long.
func loadDay(within time.Duration) *loadPlan {
	const (
		editors   = 100
		clients   = 1000
		day       = 8 * time.Hour
		thinks    = 20 * time.Second
		works     = 0.5
		open      = 2 * time.Hour
		thirds    = 3
		largeADay = 210 // two of each editor
	)
	p := &loadPlan{editors: editors, clients: clients, upstreams: 8, settles: 4 * time.Second, beat: 20 * time.Millisecond,
		perSession: 256, perCall: 64, memory: 1.25, slower: 2, dearer: 2.2}
	n := thirds * len(loadShape)
	whole := 0.0 // what the shape sums up to
	for i := range n {
		whole += loadShape[i%len(loadShape)]
	}
	share := within / time.Duration(n)
	traffic := max(share*6/10, share-14*time.Second) // the rest is for the quiet
	p.idle = min(max(traffic/3, 500*time.Millisecond), 6*time.Second)
	calls := works * float64(day) / float64(thinks)
	starts := editors * float64(day) / float64(open)
	for i := range n {
		s := loadShape[i%len(loadShape)]
		p.parts = append(p.parts, loadPart{
			traffic: traffic, clients: int(math.Round(clients * s)), sessions: 1,
			calls: int(math.Round(calls * s / whole)), restarts: int(math.Round(starts * s / whole)), large: int(math.Round(largeADay * s / whole)),
		})
	}
	return p
}

// loadMoment is a small plan: of a warm-up and one part.
func loadMoment() *loadPlan {
	return &loadPlan{
		editors: 20, clients: 100, upstreams: 8, idle: 500 * time.Millisecond, settles: 2100 * time.Millisecond, beat: 10 * time.Millisecond,
		perSession: 512, memory: 1.25,
		parts: []loadPart{
			{traffic: time.Second, calls: 4, sessions: 1, clients: 100, restarts: 2, large: 2},
			{traffic: 2 * time.Second, calls: 12, sessions: 3, clients: 100, restarts: 5, large: 2, short: 1000},
		},
	}
}

// load is one run.
type load struct {
	t    *testing.T
	c    *accCheckout
	plan *loadPlan

	url, key string
	pid      int // of the server
	watching *http.Client
	seats    []*loadSeat
	stays    *loadSeat // the editor that is open all day
	straight *bench.Talker

	conns  atomic.Int64 // of clients over HTTP, open
	served atomic.Int64 // sessions over HTTP, opened
	anew   atomic.Int64 // of these, the ones in the place of one that was forgotten in the middle
	calls  atomic.Int64 // of the editor that stays
	asked  atomic.Int64 // requests in all

	mu     sync.Mutex
	faults []string
	took   map[string][]float64 // in this part, by kind, in µs
}

// fault notes what was not as it should be. A few are enough to see why.
func (l *load) fault(format string, a ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.faults = append(l.faults, fmt.Sprintf(format, a...)); len(l.faults) <= 20 {
		l.t.Errorf(format, a...)
	}
}

// timed notes how long something of a kind took, that began then.
func (l *load) timed(kind string, began time.Time) {
	took := float64(time.Since(began).Microseconds())
	l.asked.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.took[kind] = append(l.took[kind], took)
}

// loadSample is what was seen at one moment.
type loadSample struct {
	anon, heap               float64 // bytes of the server
	descriptors, goroutines  int
	attached, kept, children int
	conns                    int // of clients over HTTP
	files                    int
	logs                     int64 // bytes
	bridge                   loadBridge
	sessions, calls          int64 // so far
	forced                   float64
}

type loadBridge struct {
	anon                 float64
	descriptors, threads int
}

// loadSeen is what was seen in one part of the day.
type loadSeen struct {
	busy, quiet loadSample
	took        map[string][]float64
	calm        map[string]float64 // how many times as long as straight, by kind
	lasted      time.Duration
}

// TestLoad has editors, clients over HTTP and hosted servers do what they do in
// a day, and looks whether anything has grown by it.
func TestLoad(t *testing.T) {
	plan := loadMoment()
	if *loadFor > 0 {
		plan = loadDay(*loadFor)
	} else {
		t.Parallel() // it waits more than it works
	}
	l := &load{t: t, c: accFresh(t), plan: plan, took: map[string][]float64{}}
	began := time.Now()
	l.open()
	var day []*loadSeen
	for i, part := range plan.parts {
		var first *loadSample
		if len(day) > 0 {
			first = &day[0].quiet
		}
		seen := l.play(i, part, first)
		if seen == nil || t.Failed() {
			break
		}
		day = append(day, seen)
	}
	t.Logf("%d editors, %d clients over HTTP at once, %d hosted servers: %d requests of editors and %d sessions were meant; %d requests, %d sessions (%d anew) came of it in %v",
		plan.editors, plan.clients, plan.upstreams, plan.requests(), plan.sessions(), l.asked.Load(), l.served.Load(), l.anew.Load(), time.Since(began).Round(time.Second))
	if len(day) > 0 {
		t.Log("\n" + loadTable(day))
	}
	if !t.Failed() {
		grown, known := loadJudge(plan, day)
		t.Log("\n" + strings.Join(known, "\n"))
		for _, what := range grown {
			t.Error(what)
		}
	}
	l.end()
}

// open makes the checkout and opens the editors that it begins with.
func (l *load) open() {
	t, c, p := l.t, l.c, l.plan
	upstream, err := hubUpstream()
	if err != nil {
		t.Fatal(err)
	}
	// That the server is taken for hung where the machine is only busy is another
	// test's matter.
	c.policy(fmt.Sprintf("  session_idle_seconds: %.3f\n  probe_timeout_seconds: 2\n  busy_grace_seconds: 60\n  join_timeout_seconds: 60\n", p.idle.Seconds()))
	servers := map[string]any{}
	for i := range p.upstreams {
		servers[fmt.Sprintf("up%d", i)] = map[string]any{"command": upstream, "majordomus": map[string]any{"idle_seconds": p.idle.Seconds()}}
	}
	file, err := json.Marshal(map[string]any{"mcpServers": servers})
	if err != nil {
		t.Fatal(err)
	}
	c.write(".ai/repo/mcp.json", string(file), 0o644)
	c.write(".ai/repo/notes/long.md", strings.Repeat("what every agent is to know\n", 1000), 0o644)
	c.write("src/main.go", "package main\n", 0o644)
	c.mustRun("trust", "--yes")

	if l.straight, err = bench.Talk(t.Context(), c.root, c.environ(), upstream); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.straight.End)
	if _, err := l.straight.Open(); err != nil {
		t.Fatal(err)
	}
	l.stays = &loadSeat{l: l, name: "stays", r: rand.New(rand.NewPCG(1, 0))}
	if err := l.stays.open(); err != nil {
		t.Fatal(err)
	}
	d := c.mustLease()
	l.url, l.key, l.pid = *d.URL, c.key(), d.PID
	l.watching = &http.Client{Timeout: loadPatience}
	t.Cleanup(l.watching.CloseIdleConnections)

	var wg sync.WaitGroup
	few := make(chan bool, 8)
	for i := range p.editors {
		s := &loadSeat{l: l, name: fmt.Sprintf("editor %d", i), modern: i%2 == 1, r: rand.New(rand.NewPCG(2, uint64(i)))}
		l.seats = append(l.seats, s)
		wg.Go(func() {
			few <- true
			defer func() { <-few }()
			if err := s.open(); err != nil {
				l.fault("%s: %v", s.name, err)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	// What is kept of the last so many calls and events is full from the start,
	// and every hosted server was seen once.
	for i := range p.upstreams {
		if _, err := l.stays.tool(fmt.Sprintf("up%d__read", i), map[string]any{}); err != nil {
			t.Fatal(err)
		}
	}
	var asked []<-chan []byte
	for range 1100 {
		asked = append(asked, l.stays.begin("majordomus_wait", map[string]any{"seconds": 0}))
	}
	for _, ch := range asked {
		if _, err := l.stays.answer(ch, "a call"); err != nil {
			t.Fatal(err)
		}
	}
}

// play plays a part of the day and returns what was seen, or nil.
func (l *load) play(n int, part loadPart, first *loadSample) *loadSeen {
	began := time.Now()
	var busy sync.WaitGroup // editors and clients
	told := l.told()
	large := make([]int, len(l.seats))
	for i := range part.large {
		large[(n*part.large+i)%len(large)]++ // others each time
	}
	for i, s := range l.seats {
		again := (i+n*part.restarts)%len(l.seats) < part.restarts
		busy.Go(func() { s.work(part, began, large[i], again) })
	}
	// All clients are there at once, in the middle of their last sessions.
	var there, clients sync.WaitGroup
	there.Add(part.clients)
	leave := make(chan struct{})
	for i := range part.clients {
		clients.Go(func() {
			h := &loadClient{l: l, n: i, r: rand.New(rand.NewPCG(uint64(n)+3, uint64(i)))}
			h.visit(part, &there, leave)
		})
	}
	clients.Go(func() { l.brief(part.short) })
	rest := make(chan struct{})
	var beats sync.WaitGroup
	beats.Go(func() { l.beat(rest) })
	beats.Go(func() { l.yardstick(rest) })

	there.Wait()
	seen := &loadSeen{}
	if l.t.Failed() {
		part.clients, part.restarts = 0, 1 // nothing is to be expected
	}
	anew := l.anew.Load()
	seen.busy = l.sample()
	if want := part.clients + len(l.seats); seen.busy.kept < want && anew == 0 && part.restarts == 0 {
		l.fault("part %d: %d sessions are kept where %d clients are there", n, seen.busy.kept, want)
	}
	if d := seen.busy.conns; d < part.clients {
		l.fault("part %d: %d connections of %d clients", n, d, part.clients)
	}
	close(leave)
	clients.Wait()
	busy.Wait()
	close(rest)
	beats.Wait()
	seen.lasted = time.Since(began)
	if l.told() == told {
		l.fault("part %d: nobody was told anything", n)
	}
	l.mu.Lock()
	seen.took, l.took = l.took, map[string][]float64{}
	l.mu.Unlock()
	if l.t.Failed() {
		return nil
	}
	seen.quiet = l.quiet(first)
	if l.plan.slower > 0 {
		seen.calm = l.calmly()
	}
	return seen
}

// brief opens and closes so many sessions on one connection.
func (l *load) brief(n int) {
	if n == 0 {
		return
	}
	s, err := bench.NewStraight(l.url, l.key)
	if err != nil {
		l.fault("sessions that do nothing: %v", err)
		return
	}
	defer s.Close() // ignore error: every answer was read
	for i := range n {
		if i > 0 {
			err = s.Open()
		}
		l.served.Add(1)
		if err == nil {
			err = s.Leave()
		}
		if err != nil && !strings.Contains(err.Error(), " 404 ") { // forgotten already, on a slow machine
			l.fault("sessions that do nothing: %v", err)
			return
		}
	}
}

// told is how often editors were told what they had not asked for.
func (l *load) told() (n int) {
	for _, s := range append([]*loadSeat{l.stays}, l.seats...) {
		if e := s.mate; e != nil {
			e.mu.Lock()
			n += e.told
			e.mu.Unlock()
		}
	}
	return n
}

// beat is what the editor that stays does: many calls, one after the other.
func (l *load) beat(rest <-chan struct{}) {
	tick := time.NewTicker(l.plan.beat)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-rest:
			return
		case <-tick.C:
		}
		began := time.Now()
		note := fmt.Sprintf("beat %d", i)
		tool, arguments := "majordomus_wait", map[string]any{"seconds": 0, "note": note}
		if i%2 == 1 {
			tool, arguments = fmt.Sprintf("up%d__read", i%l.plan.upstreams), map[string]any{"note": note}
		}
		b, err := l.stays.tool(tool, arguments)
		if err != nil || !bytes.Contains(b, []byte(note)) {
			l.fault("the editor that stays: %s: %.200s: %v", tool, b, err)
			return
		}
		l.calls.Add(1)
		l.timed("the one that stays", began)
	}
}

// straightKind is what other kinds are measured by: the machine's speed changes.
const straightKind = "straight, without us"

// yardstick calls a server of the kind that is hosted without anything between.
func (l *load) yardstick(rest <-chan struct{}) {
	tick := time.NewTicker(l.plan.beat)
	defer tick.Stop()
	call := bench.Call("read", `{"note":"straight"}`)
	for {
		select {
		case <-rest:
			return
		case <-tick.C:
		}
		began := time.Now()
		if _, err := l.straight.Answer(call); err != nil {
			l.fault("going straight: %v", err)
			return
		}
		l.timed(straightKind, began)
	}
}

// metrics is what the server says of itself.
func (l *load) metrics() (map[string]float64, error) {
	req, err := http.NewRequest("GET", l.url+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+l.key)
	resp, err := l.watching.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	all := map[string]float64{}
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		name, value, ok := strings.Cut(lines.Text(), " ")
		if v, err := strconv.ParseFloat(value, 64); ok && err == nil {
			all[name] = v
		}
	}
	return all, nil
}

// sample looks at everything.
func (l *load) sample() loadSample {
	m, err := l.metrics()
	if err != nil {
		l.fault("asking the server: %v", err)
		return loadSample{}
	}
	s := loadSample{
		anon: m["process_resident_memory_anon_bytes"], heap: m["go_memstats_heap_alloc_bytes"],
		goroutines: int(m["go_goroutines"]), descriptors: l.descriptors(l.pid),
		attached: int(m["majordomus_sessions"]), kept: int(m["majordomus_sessions_kept"]),
		children: len(accChildren(l.pid)), conns: int(l.conns.Load()),
		sessions: l.served.Load(), calls: l.calls.Load(), forced: m["go_gc_forced_count"],
	}
	folder := filepath.Dir(l.c.leasePath())
	err = filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		s.files++
		info, err := d.Info()
		if err == nil && strings.Contains(d.Name(), ".log") {
			s.logs += info.Size()
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // what is renamed into its place has another name before
		l.fault("looking at the state folder: %v", err)
	}
	pid := l.stays.cmd.Process.Pid
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		l.fault("looking at the editor that stays: %v", err)
	}
	for line := range strings.Lines(string(b)) {
		fmt.Sscanf(line, "RssAnon: %f kB", &s.bridge.anon) // ignore error: another line
		fmt.Sscanf(line, "Threads: %d", &s.bridge.threads) // ignore error: another line
	}
	s.bridge.anon *= 1024
	s.bridge.descriptors = l.descriptors(pid)
	return s
}

func (l *load) descriptors(pid int) int {
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		l.fault("looking at a process: %v", err)
	}
	return len(list)
}

// accChildren are the processes that one has started and not buried.
func accChildren(pid int) (list []int) {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) // ignore error: the pattern is good
	for _, task := range tasks {
		b, err := os.ReadFile(task)
		if err != nil {
			continue // the thread has just ended
		}
		for word := range strings.FieldsSeq(string(b)) {
			if n, err := strconv.Atoi(word); err == nil {
				list = append(list, n)
			}
		}
	}
	return list
}

// quiet waits until all that is to be forgotten is, and until memory was given
// back, and looks then. First is what was seen the first time.
func (l *load) quiet(first *loadSample) loadSample {
	settled := func(s loadSample) error {
		if want := len(l.seats) + 1; s.kept != want || s.attached != want || s.children > 0 || s.conns > 0 {
			return fmt.Errorf("%d sessions are kept and %d clients attached where %d editors are open; %d hosted servers run; %d connections are open",
				s.kept, s.attached, want, s.children, s.conns)
		}
		return nil
	}
	// After a message of this size the server collects at the next tick, 2 s apart,
	// and at the one after that, and so does a bridge. What pools hold goes with the
	// second.
	note := strings.Repeat("x", 4<<20+1)
	if _, err := l.stays.tool("majordomus_wait", map[string]any{"seconds": 0, "note": note}); err != nil {
		l.fault("a large message: %v", err)
	}
	before := l.sample().forced
	var s loadSample
	err := loadUntil(func() error {
		s = l.sample()
		return settled(s)
	})
	if err != nil {
		l.fault("%v after the last word %v", loadPatience, err)
		return s
	}
	err = loadUntil(func() error {
		if s = l.sample(); s.forced == before {
			return errors.New("it has not")
		}
		return settled(s)
	})
	if err != nil {
		l.fault("the server was to collect its garbage: %v", err)
	}
	// What was collected is given back a moment later; of what is seen until then
	// the least counts.
	// So it is with the last of a hosted server that has ended; for that to go more
	// time is given, where there is more than there was the first time.
	began := time.Now()
	for {
		<-time.After(50 * time.Millisecond)
		now := l.sample()
		s.heap, s.anon, s.bridge.anon = min(s.heap, now.heap), min(s.anon, now.anon), min(s.bridge.anon, now.bridge.anon)
		s.descriptors, s.goroutines, s.files = min(s.descriptors, now.descriptors), min(s.goroutines, now.goroutines), min(s.files, now.files)
		more := first != nil && (s.descriptors > first.descriptors || s.goroutines > first.goroutines || s.files > first.files)
		switch lasted := time.Since(began); {
		case lasted > l.plan.settles && !more, lasted > 10*l.plan.settles:
			return s
		case now.forced >= before+3 && !more:
			return s
		}
	}
}

// calmly makes each kind of call many times, each beside one that goes straight to
// a server of the kind that is hosted, and returns how many times as long they
// take: what a call costs, where nobody stands in the way.
func (l *load) calmly() map[string]float64 {
	ratios := map[string]float64{}
	call := bench.Call("read", `{"note":"straight"}`)
	for kind, ask := range map[string]func() error{
		"own tool":      func() error { _, err := l.stays.tool("majordomus_server", map[string]any{}); return err },
		"hosted tool":   func() error { _, err := l.stays.tool("up0__read", map[string]any{"note": "calm"}); return err },
		"list of tools": func() error { _, err := l.stays.request("tools/list", map[string]any{}); return err },
		"the board": func() error {
			_, err := l.stays.tool("majordomus_peers", map[string]any{"checkouts": "this"})
			return err
		},
		"last executions": func() error {
			_, err := l.stays.tool("majordomus_executions", map[string]any{"limit": 100})
			return err
		},
		"announcing": func() error {
			_, err := l.stays.tool("majordomus_announce", map[string]any{"intent": "calm", "scope": []string{"calm"}})
			return err
		},
	} {
		var ours, straight []float64
		for range 80 {
			began := time.Now()
			if err := ask(); err != nil {
				l.fault("%s: %v", kind, err)
				return nil
			}
			took := time.Since(began)
			began = time.Now()
			if _, err := l.straight.Answer(call); err != nil {
				l.fault("going straight: %v", err)
				return nil
			}
			ours, straight = append(ours, float64(took)), append(straight, float64(time.Since(began)))
		}
		// Those that nothing else on the machine came between.
		ratios[kind] = bench.Quantile(ours, 25) / bench.Quantile(straight, 25)
	}
	return ratios
}

// loadUntil asks now and then: to be looked at costs the server something.
func loadUntil(so func() error) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(loadPatience); ; <-tick.C {
		if err := so(); err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

// A loadSeat is where one editor after the other is opened.
type loadSeat struct {
	l      *load
	name   string
	modern bool
	r      *rand.Rand
	claims int

	*mate
}

// open opens an editor, and is done when it has seen the tools.
func (s *loadSeat) open() error {
	began := time.Now()
	s.mate = s.l.c.mate(s.name, s.modern)
	s.patience = loadPatience
	b, err := s.request("tools/list", s.params(map[string]any{}))
	if err != nil {
		return fmt.Errorf("opening: %w", err)
	}
	if !bytes.Contains(b, []byte(`"majordomus_announce"`)) || !bytes.Contains(b, []byte(`"up0__read"`)) {
		return fmt.Errorf("opening: the tools are %.300s", b)
	}
	s.l.timed("start", began)
	// From the first call that waits on, a link has two goroutines: one that reads
	// on, and the first.
	if _, err := s.tool("majordomus_wait", map[string]any{"seconds": 0.001}); err != nil {
		return fmt.Errorf("opening: %w", err)
	}
	if s.modern || s.claims%2 == 1 {
		return nil
	}
	_, err = s.request("resources/subscribe", map[string]any{"uri": "majordomus://peers"})
	return err
}

// close closes the editor as editors do.
func (s *loadSeat) close() error {
	s.in.Close() // ignore error: then it has ended
	select {
	case <-s.ended:
	case <-time.After(30 * time.Second):
		return errors.New("the bridge outlives its editor")
	}
	return s.cmd.Wait()
}

// work is a part of an editor's day: so many calls, with a burst now and then.
func (s *loadSeat) work(part loadPart, began time.Time, large int, again bool) {
	reopen, huge := -1, map[int]bool{}
	if again {
		reopen = s.r.IntN(part.calls)
	}
	for range large {
		huge[s.r.IntN(part.calls)] = true
	}
	// Three of four calls come in bursts, the others anywhere.
	var at []time.Duration
	bursts := []float64{s.r.Float64(), 0.3, 0.7}
	for range part.calls {
		when := s.r.Float64()
		if s.r.IntN(4) > 0 {
			when = min(bursts[s.r.IntN(len(bursts))]+0.03*s.r.Float64(), 1)
		}
		at = append(at, time.Duration(when*float64(part.traffic)))
	}
	slices.Sort(at)
	for i, when := range at {
		time.Sleep(time.Until(began.Add(when))) // a model thinks
		if i == reopen {
			err := s.close()
			if err == nil {
				err = s.open()
			}
			if err != nil {
				s.l.fault("%s: %v", s.name, err)
				return
			}
		}
		do := s.one
		if huge[i] {
			do = s.large
		}
		if err := do(); err != nil {
			s.l.fault("%s: %v", s.name, err)
			return
		}
		if s.l.t.Failed() {
			return
		}
	}
}

// tool calls a tool and returns the whole result.
func (s *loadSeat) tool(name string, arguments map[string]any) ([]byte, error) {
	b, err := s.request("tools/call", s.params(map[string]any{"name": name, "arguments": arguments}))
	if err == nil && bytes.Contains(b, []byte(`"isError":true`)) {
		err = fmt.Errorf("%s: %.300s", name, b)
	}
	return b, err
}

// note is a text of some length, mostly short, that answers are known by.
func (s *loadSeat) note() string {
	n := 20 + s.r.IntN(400)
	switch s.r.IntN(100) {
	case 0:
		n = 1 << 20
	case 1, 2, 3, 4, 5:
		n = 64<<10 + s.r.IntN(64<<10)
	}
	return fmt.Sprintf("%d ", s.r.Uint32()) + strings.Repeat("n", n)
}

func (s *loadSeat) large() error {
	began := time.Now()
	note := strings.Repeat("l", 2<<20+s.r.IntN(3<<20))
	b, err := s.tool(fmt.Sprintf("up%d__write", s.r.IntN(s.l.plan.upstreams)), map[string]any{"note": note})
	if err != nil || !bytes.Contains(b, []byte(note)) {
		return fmt.Errorf("a large call: %.200s: %w", b, err)
	}
	s.l.timed("some MiB", began)
	return nil
}

// one is one of the things that editors do.
func (s *loadSeat) one() error {
	began := time.Now()
	ask := func(kind, method string, params map[string]any, want string) error {
		b, err := s.request(method, s.params(params))
		if err != nil {
			return err
		}
		if !bytes.Contains(b, []byte(want)) || bytes.Contains(b, []byte(`"isError":true`)) {
			return fmt.Errorf("%s was answered %.300s", method, b)
		}
		s.l.timed(kind, began)
		return nil
	}
	call := func(kind, tool string, arguments map[string]any, want string) error {
		return ask(kind, "tools/call", map[string]any{"name": tool, "arguments": arguments}, want)
	}
	switch n := s.r.IntN(100); {
	case n < 30:
		note := s.note()
		return call("hosted, reads", fmt.Sprintf("up%d__read", s.r.IntN(s.l.plan.upstreams)), map[string]any{"note": note, "path": "src/main.go"}, note)
	case n < 45:
		note := s.note()
		return call("hosted, writes", fmt.Sprintf("up%d__write", s.r.IntN(s.l.plan.upstreams)), map[string]any{"note": note, "path": "src/main.go"}, note)
	case n < 55:
		return call("own tools", "majordomus_server", map[string]any{}, `"generation"`)
	case n < 60:
		return call("own tools", "majordomus_executions", map[string]any{"limit": 20}, `"ended"`)
	case n < 62:
		return call("own tools", "majordomus_health", map[string]any{}, `"checks"`)
	case n < 66:
		return ask("lists", "tools/list", map[string]any{}, `"up7__write"`)
	case n < 69:
		return ask("lists", "resources/list", map[string]any{}, `majordomus://peers`)
	case n < 70:
		return ask("lists", "prompts/list", map[string]any{}, `"prompts"`)
	case n < 80:
		s.claims++
		intent := fmt.Sprintf("intent %d of %s", s.claims, s.name)
		arguments := map[string]any{"intent": intent, "scope": []string{fmt.Sprintf("src/%d", s.r.IntN(40)), fmt.Sprintf("docs/%d.md", s.r.IntN(1000))}}
		if s.claims%3 == 0 {
			arguments["scope"] = []string{}
		}
		if s.claims%2 == 0 {
			arguments["claim"] = "other"
		}
		return call("announce", "majordomus_announce", arguments, intent)
	case n < 84:
		return call("the board", "majordomus_peers", map[string]any{"checkouts": "this"}, `"overlaps"`)
	case n < 92:
		return ask("resources", "resources/read", map[string]any{"uri": "majordomus://layer/notes/long.md"}, "what every agent is to know")
	case n < 93:
		return ask("the board", "resources/read", map[string]any{"uri": "majordomus://peers"}, `overlaps`)
	case n < 95:
		// What it waits is no latency.
		const waits = 100 * time.Millisecond
		began = began.Add(waits)
		return call("wait", "majordomus_wait", map[string]any{"seconds": waits.Seconds(), "note": "waited"}, "waited")
	case n < 98 && s.modern:
		// A stream, which is taken back after the next other thing.
		_, err := s.ask("subscriptions/listen", s.params(map[string]any{"notifications": map[string]any{"resourceSubscriptions": []string{"majordomus://peers"}}}))
		if err != nil {
			return err
		}
		id := s.last()
		if err := call("announce", "majordomus_announce", map[string]any{"intent": "heard", "scope": []string{"src"}, "claim": "heard"}, "heard"); err != nil {
			return err
		}
		return s.send(map[string]any{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": map[string]any{"requestId": id}})
	case n < 98:
		if err := ask("subscribe", "resources/unsubscribe", map[string]any{"uri": "majordomus://peers"}, ""); err != nil {
			return err
		}
		began = time.Now()
		return ask("subscribe", "resources/subscribe", map[string]any{"uri": "majordomus://peers"}, "")
	case s.modern:
		return ask("lists", "server/discover", map[string]any{}, "majordomus")
	default:
		return ask("own tools", "ping", map[string]any{}, "")
	}
}

// last is the id of the request that was asked last.
func (e *accEditor) last() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.next
}

// A loadClient is one client over Streamable HTTP: one in four holds a stream in
// each era.
type loadClient struct {
	l      *load
	n      int
	r      *rand.Rand
	modern bool

	web     *http.Client
	ids     int
	session string
	stream  context.CancelFunc
	over    chan struct{} // the stream has ended
}

func (h *loadClient) streams() bool { return h.n%4 < 2 }

// calm is how long it may say nothing: it would be forgotten, or its connection
// be closed.
func (h *loadClient) calm() time.Duration {
	if h.modern || h.streams() {
		return 10 * time.Second
	}
	return h.l.plan.idle / 3
}

// errForgotten is what a client is answered whose session is not there any more.
var errForgotten = errors.New("its session was forgotten")

// visit is a part of the client's day: its sessions, the last of which has begun
// when there is told, and goes on until leave is closed.
func (h *loadClient) visit(part loadPart, there *sync.WaitGroup, leave <-chan struct{}) {
	here := sync.OnceFunc(there.Done)
	defer here() // whatever goes wrong, the others are not to wait for it
	h.modern = h.n%2 == 1
	round := part.traffic / time.Duration(part.sessions)
	for i := range part.sessions {
		began := time.Now()
		dial := &net.Dialer{}
		h.web = &http.Client{Timeout: loadPatience, Transport: &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dial.DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			h.l.conns.Add(1)
			return &loadConn{Conn: conn, gone: sync.OnceFunc(func() { h.l.conns.Add(-1) })}, nil
		}}}
		h.pause(began, time.Duration(h.r.Float64()*0.4*float64(round)), nil)
		err := h.begin()
		if err == nil {
			err = h.one()
		}
		if i == part.sessions-1 {
			here()
			for err == nil && h.pause(time.Now(), h.calm(), leave) {
				err = h.one()
			}
		}
		end := time.Duration((0.6 + 0.4*h.r.Float64()) * float64(round))
		for err == nil && time.Since(began) < end-h.calm() {
			h.pause(time.Now(), h.calm(), nil)
			err = h.one()
		}
		h.pause(began, end, nil)
		if err == nil {
			err = h.one()
		}
		if err == nil {
			err = h.leave()
		}
		h.close()
		if err != nil {
			h.l.fault("client %d (modern: %v): %v", h.n, h.modern, err)
			return
		}
		if h.l.t.Failed() {
			return
		}
	}
}

// loadConn is a connection that is counted while it is open.
type loadConn struct {
	net.Conn
	gone func()
}

func (c *loadConn) Close() error {
	c.gone()
	return c.Conn.Close()
}

// pause waits until so long after began; false if told to stop before.
func (h *loadClient) pause(began time.Time, d time.Duration, stop <-chan struct{}) bool {
	timer := time.NewTimer(time.Until(began.Add(d)))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-stop:
		return false
	}
}

// begin shakes hands, in the era that has it. On a machine that is slow for the
// time that a session is kept here it may take more than once.
func (h *loadClient) begin() (err error) {
	for range 20 {
		if err = h.hands(); !errors.Is(err, errForgotten) {
			return err
		}
		h.l.anew.Add(1)
	}
	return err
}

func (h *loadClient) hands() error {
	h.l.served.Add(1)
	h.session = ""
	if h.modern {
		if _, err := h.ask("HTTP: lists", "tools/list", map[string]any{}, "majordomus_announce"); err != nil {
			return err
		}
		if h.streams() {
			return h.listen(h.request("subscriptions/listen", map[string]any{"notifications": map[string]any{"resourceSubscriptions": []string{"majordomus://peers"}}}))
		}
		return nil
	}
	header, err := h.ask("HTTP: initialize", "initialize", map[string]any{
		"protocolVersion": "2025-11-25", "capabilities": map[string]any{}, "clientInfo": map[string]string{"name": fmt.Sprintf("client %d", h.n), "version": "1"},
	}, `"serverInfo"`)
	if err != nil {
		return err
	}
	if h.session = header.Get("Mcp-Session-Id"); h.session == "" {
		return errors.New("initialize gave no session")
	}
	resp, err := h.do("POST", map[string]any{"jsonrpc": "2.0", "method": "notifications/initialized"}, nil)
	if err != nil {
		return err
	}
	resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusAccepted:
	case http.StatusNotFound:
		return errForgotten
	default:
		return fmt.Errorf("initialized: %s", resp.Status)
	}
	if h.streams() {
		return h.listen("GET", nil, nil)
	}
	return nil
}

// listen opens a stream, which is read until the client leaves.
func (h *loadClient) listen(method string, message any, headers map[string]string) error {
	ctx, cancel := context.WithCancel(h.l.t.Context())
	req, err := h.build(ctx, method, message, headers)
	if err != nil {
		cancel()
		return err
	}
	open := *h.web
	open.Timeout = 0 // it lasts
	resp, err := open.Do(req)
	if err != nil {
		cancel()
		return fmt.Errorf("opening a stream: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		cancel()
		if resp.StatusCode == http.StatusNotFound && !h.modern {
			return errForgotten
		}
		return fmt.Errorf("opening a stream: %s", resp.Status)
	}
	h.stream, h.over = cancel, make(chan struct{})
	go func() {
		defer close(h.over)
		defer resp.Body.Close()
		io.Copy(io.Discard, resp.Body) // ignore error: it is ended by leaving
	}()
	return nil
}

// one is one request.
func (h *loadClient) one() error {
	call := func(kind, tool string, arguments map[string]any, want string) error {
		_, err := h.ask(kind, "tools/call", map[string]any{"name": tool, "arguments": arguments}, want)
		return err
	}
	var err error
	switch n := h.r.IntN(20); {
	case n < 6:
		note := fmt.Sprintf("%d ", h.r.Uint32()) + strings.Repeat("h", h.r.IntN(2000))
		err = call("HTTP: hosted", fmt.Sprintf("up%d__read", h.r.IntN(h.l.plan.upstreams)), map[string]any{"note": note}, note)
	case n < 12:
		err = call("HTTP: own tools", "majordomus_server", map[string]any{}, `"generation"`)
	case n < 14:
		err = call("HTTP: announce", "majordomus_announce", map[string]any{"intent": fmt.Sprint("of client ", h.n), "scope": []string{fmt.Sprintf("web/%d", h.n)}}, "of client")
	case n < 16:
		_, err = h.ask("HTTP: resources", "resources/read", map[string]any{"uri": "majordomus://layer/notes/long.md"}, "what every agent is to know")
	case n < 17:
		_, err = h.ask("HTTP: lists", "tools/list", map[string]any{}, "up7__write")
	default:
		err = call("HTTP: own tools", "majordomus_wait", map[string]any{"seconds": 0, "note": "waited"}, "waited")
	}
	if errors.Is(err, errForgotten) && !h.modern && !h.holds() {
		// It was too slow for the time that a session is kept here, and does
		// what clients do then.
		h.hangUp()
		h.l.anew.Add(1)
		return h.begin()
	}
	return err
}

// holds reports whether it holds a stream, by which it is remembered.
func (h *loadClient) holds() bool {
	if h.stream == nil {
		return false
	}
	select {
	case <-h.over:
		return false
	default:
		return true
	}
}

// hangUp ends the stream.
func (h *loadClient) hangUp() {
	if h.stream != nil {
		h.stream()
		<-h.over
		h.stream = nil
	}
}

// leave says that the client goes; one in three does not.
func (h *loadClient) leave() error {
	if h.modern || h.n%3 == 0 {
		return nil
	}
	began := time.Now()
	resp, err := h.do("DELETE", nil, nil)
	if err != nil {
		return err
	}
	resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusNotFound && !h.holds():
		h.l.anew.Add(1)
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("leaving: %s", resp.Status)
	}
	h.l.timed("HTTP: delete", began)
	return nil
}

func (h *loadClient) close() {
	h.hangUp()
	h.web.CloseIdleConnections()
}

// request is a request of the client's era, for build.
func (h *loadClient) request(method string, params map[string]any) (verb string, message any, headers map[string]string) {
	h.ids++
	headers = map[string]string{}
	if h.modern {
		const version = "2026-07-28"
		params["_meta"] = map[string]any{
			mcp.MetaKeyProtocolVersion: version, mcp.MetaKeyClientInfo: map[string]string{"name": fmt.Sprintf("client %d", h.n), "version": "1"},
			mcp.MetaKeyClientCapabilities: map[string]any{},
		}
		b, _ := json.Marshal(params) // ignore error: plain values
		headers = mcp.StandardHeaders(version, mcp.MCPMethod(method), b)
		headers["Mcp-Protocol-Version"] = version
	} else if h.session != "" {
		headers["Mcp-Protocol-Version"] = "2025-11-25"
	}
	return "POST", map[string]any{"jsonrpc": "2.0", "id": h.ids, "method": method, "params": params}, headers
}

// ask makes a request and returns the headers of the answer, in which there has
// to be what is wanted.
func (h *loadClient) ask(kind, method string, params map[string]any, want string) (http.Header, error) {
	began := time.Now()
	resp, err := h.do(h.request(method, params))
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", method, err)
	case resp.StatusCode == http.StatusNotFound && bytes.Contains(b, []byte(`"session_not_found"`)):
		return nil, errForgotten
	case resp.StatusCode != http.StatusOK, !bytes.Contains(b, []byte(want)), bytes.Contains(b, []byte(`"isError":true`)):
		return nil, fmt.Errorf("%s was answered %s %.300s", method, resp.Status, b)
	}
	h.l.timed(kind, began)
	return resp.Header, nil
}

func (h *loadClient) do(verb string, message any, headers map[string]string) (*http.Response, error) {
	req, err := h.build(h.l.t.Context(), verb, message, headers)
	if err != nil {
		return nil, err
	}
	return h.web.Do(req)
}

func (h *loadClient) build(ctx context.Context, verb string, message any, headers map[string]string) (*http.Request, error) {
	var body io.Reader
	if message != nil {
		b, err := json.Marshal(message)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, verb, h.l.url+"/mcp", body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+h.l.key)
	req.Header.Set("Accept", "application/json, text/event-stream")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if verb == "GET" {
		req.Header.Set("Accept", "text/event-stream")
	}
	if h.session != "" {
		req.Header.Set("Mcp-Session-Id", h.session)
	}
	for k, v := range headers {
		req.Header.Set(k, v)
	}
	return req, nil
}

// loadJudge says what has grown, and what else there is to be known.
func loadJudge(p *loadPlan, day []*loadSeen) (grown, known []string) {
	wrong := func(format string, a ...any) { grown = append(grown, fmt.Sprintf(format, a...)) }
	note := func(format string, a ...any) { known = append(known, fmt.Sprintf(format, a...)) }
	first := day[0].quiet
	for i, seen := range day {
		q, b := seen.quiet, seen.busy
		if q.descriptors > first.descriptors || q.goroutines > first.goroutines || q.files > first.files {
			wrong("part %d: quiet, the server has %d descriptors, %d goroutines and %d files; in the first %d, %d and %d, and the same was attached",
				i, q.descriptors, q.goroutines, q.files, first.descriptors, first.goroutines, first.files)
		}
		if q.bridge.descriptors > first.bridge.descriptors {
			wrong("part %d: the bridge that stays has %d descriptors, and had %d", i, q.bridge.descriptors, first.bridge.descriptors)
		}
		// A hosted server has three pipes, its log, and the kernel's handle.
		if more := b.descriptors - q.descriptors - b.conns; more < -10 || more > 6*p.upstreams+10 {
			wrong("part %d: with %d connections and %d hosted servers more than in the quiet there are %d descriptors more", i, b.conns, b.children, b.descriptors-q.descriptors)
		}
	}
	// The middle one of three: what is given back, is now and then.
	few := min(3, len(day)/2)
	compare := func(what string, of func(loadSample) float64) {
		middle := func(part []*loadSeen) float64 {
			var x []float64
			for _, seen := range part {
				x = append(x, of(seen.quiet))
			}
			return bench.Median(x)
		}
		ratio := middle(day[len(day)-few:]) / middle(day[:few])
		note("%s: at the end %.2f times what it was in the first quiet spells", what, ratio)
		if ratio > p.memory {
			wrong("%s is %.2f times what it was in the first quiet spells (at most %.2f)", what, ratio, p.memory)
		}
	}
	compare("what the server's heap holds", func(s loadSample) float64 { return s.heap })
	if p.slower > 0 { // else it is too soon: memory is given back now and then
		compare("the server's memory", func(s loadSample) float64 { return s.anon })
		compare("the memory of the bridge that stays", func(s loadSample) float64 { return s.bridge.anon })
	}

	slope := func(what string, most float64, x, y func(loadSample) float64) {
		var xs, ys []float64
		for _, seen := range day {
			xs, ys = append(xs, x(seen.quiet)), append(ys, y(seen.quiet))
		}
		s := loadSlope(xs, ys)
		note("%s: %.1f bytes", what, s)
		if s > most {
			wrong("%s grows by %.1f bytes (at most %.0f)", what, s, most)
		}
	}
	sessions := func(s loadSample) float64 { return float64(s.sessions) }
	slope("the server's heap, for each session over HTTP that there was", p.perSession, sessions, func(s loadSample) float64 { return s.heap })
	if p.slower == 0 {
		return grown, known
	}
	slope("the memory of the bridge that stays, for each call", p.perCall, func(s loadSample) float64 { return float64(s.calls) }, func(s loadSample) float64 { return s.bridge.anon })

	third := len(day) / 3
	logs := func(from, to int) float64 { return float64(day[to].quiet.logs - day[from].quiet.logs) }
	if a, b := logs(0, third), logs(len(day)-1-third, len(day)-1); b > 2*a+4096 {
		wrong("the logs grew by %.0f bytes in the last third of the day, by %.0f in the first", b, a)
	}
	thirds := func(kind, what string, most float64, of func(*loadSeen) float64) {
		middle := func(part []*loadSeen) float64 {
			var x []float64
			for _, seen := range part {
				x = append(x, of(seen))
			}
			return bench.Median(x)
		}
		a, b := middle(day[:third]), middle(day[len(day)-third:])
		if a == 0 || b == 0 {
			return
		}
		note("%-24s p50 in the first third of the day %8.1f, in the last %8.1f times straight%s: %.2f", kind, a, b, what, b/a)
		if b/a > most {
			wrong("%s takes %.2f times as long in the last third as in the first%s (at most %.1f)", kind, b/a, what, most)
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(day[0].calm)) {
		thirds(kind, " and calmly", p.dearer, func(seen *loadSeen) float64 { return seen.calm[kind] })
	}
	// In the bursts it is judged only where the machine kept pace. Where it did
	// not, each call waits for others: how long says how late they are.
	for i, seen := range day {
		if seen.lasted > p.parts[i].traffic*3/2 {
			note("part %d took %v of %v: this machine is too busy to judge how long calls take in the bursts", i, seen.lasted.Round(time.Second), p.parts[i].traffic.Round(time.Second))
			return grown, known
		}
	}
	for _, kind := range loadKinds(day) {
		if kind == straightKind {
			continue
		}
		thirds(kind, "", p.slower, func(seen *loadSeen) float64 {
			if len(seen.took[kind]) < 10 || len(seen.took[straightKind]) == 0 {
				return 0
			}
			return bench.Median(seen.took[kind]) / bench.Median(seen.took[straightKind])
		})
	}
	return grown, known
}

// loadSlope is how much y grows with x: the middle one of all pairs, which a few
// odd ones do not move.
func loadSlope(x, y []float64) float64 {
	var all []float64
	for i := range x {
		for j := range i {
			if x[i] != x[j] {
				all = append(all, (y[i]-y[j])/(x[i]-x[j]))
			}
		}
	}
	if len(all) == 0 {
		return 0
	}
	return bench.Median(all)
}

// loadKinds are the kinds of requests that there were.
func loadKinds(day []*loadSeen) []string {
	kinds := map[string]bool{}
	for _, seen := range day {
		for kind := range seen.took {
			kinds[kind] = true
		}
	}
	return slices.Sorted(maps.Keys(kinds))
}

// loadTable is the report: a line for each part of the day, and the quantiles of
// each kind, part by part.
func loadTable(day []*loadSeen) string {
	var b strings.Builder
	mib := func(x float64) float64 { return x / (1 << 20) }
	fmt.Fprintf(&b, "%4s %6s | %-46s | %-66s | %s\n", "", "", "busy", "quiet", "bridge that stays, quiet")
	fmt.Fprintf(&b, "%4s %6s | %7s %7s %6s %5s %6s %8s | %7s %7s %5s %5s %6s %6s %5s %8s %8s | %7s %5s %7s %8s\n", "part", "s",
		"MiB", "heap", "fds", "gor.", "sess.", "children", "MiB", "heap", "fds", "gor.", "sess.", "child.", "files", "log KiB", "sessions",
		"MiB", "fds", "threads", "calls")
	for i, seen := range day {
		x, q := seen.busy, seen.quiet
		fmt.Fprintf(&b, "%4d %6.1f | %7.1f %7.1f %6d %5d %6d %8d | %7.1f %7.2f %5d %5d %6d %6d %5d %8.1f %8d | %7.1f %5d %7d %8d\n", i, seen.lasted.Seconds(),
			mib(x.anon), mib(x.heap), x.descriptors, x.goroutines, x.kept, x.children,
			mib(q.anon), mib(q.heap), q.descriptors, q.goroutines, q.kept, q.children, q.files, float64(q.logs)/1024, q.sessions,
			mib(q.bridge.anon), q.bridge.descriptors, q.bridge.threads, q.calls)
	}
	fmt.Fprintf(&b, "\n%-22s %4s %7s", "milliseconds in part", "", "all")
	for i := range day {
		fmt.Fprintf(&b, " %6d", i)
	}
	b.WriteString("\n")
	for _, kind := range loadKinds(day) {
		var all []float64
		for _, seen := range day {
			all = append(all, seen.took[kind]...)
		}
		name := fmt.Sprintf("%s (%d)", kind, len(all))
		for _, percent := range []int{50, 95, 99, 100} {
			label := cmp.Or(map[int]string{100: "max"}[percent], fmt.Sprintf("p%d", percent))
			fmt.Fprintf(&b, "%-22.22s %4s %7s", name, label, loadMillis(all, percent))
			for _, seen := range day {
				fmt.Fprintf(&b, " %6s", loadMillis(seen.took[kind], percent))
			}
			b.WriteString("\n")
			name = ""
		}
	}
	fmt.Fprintf(&b, "\n%-34s", "calmly, in times of straight")
	for i := range day {
		fmt.Fprintf(&b, " %6d", i)
	}
	b.WriteString("\n")
	for _, kind := range slices.Sorted(maps.Keys(day[0].calm)) {
		fmt.Fprintf(&b, "%-34s", kind)
		for _, seen := range day {
			fmt.Fprintf(&b, " %6.1f", seen.calm[kind])
		}
		b.WriteString("\n")
	}
	return b.String()
}

func loadMillis(x []float64, percent int) string {
	if len(x) == 0 {
		return "-"
	}
	v := bench.Quantile(x, percent) / 1000
	if v < 100 {
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.0f", v)
}

// end closes the editors and stops the server, of which nothing is to be left.
func (l *load) end() {
	children := accChildren(l.pid)
	var wg sync.WaitGroup
	for _, s := range append([]*loadSeat{l.stays}, l.seats...) {
		if s.mate == nil {
			continue
		}
		wg.Go(func() {
			if err := s.close(); err != nil && !l.t.Failed() {
				l.fault("%s: closing: %v", s.name, err)
			}
		})
	}
	wg.Wait()
	l.watching.CloseIdleConnections()
	l.c.mustRun("serve", "stop")
	l.c.gone(l.pid, 10*time.Second)
	hubEnd(l.t, "a hosted server that outlives the server must end", children...)
}

// TestLoadJudged has days in which something grows judged, and one in which
// nothing does: that the test of load would see it.
func TestLoadJudged(t *testing.T) {
	plan := loadDay(10 * time.Minute)
	if n := plan.requests(); n < 71000 || n > 73000 || plan.sessions() != 15600 {
		t.Errorf("a day has %d requests of editors and %d sessions", n, plan.sessions())
	}
	const mib = 1 << 20
	day := func(change func(i int, sessions float64, seen *loadSeen)) []*loadSeen {
		var list []*loadSeen
		r := rand.New(rand.NewPCG(1, 1))
		sessions, calls := 0, 0
		for i, part := range plan.parts {
			sessions += part.clients * part.sessions
			calls += 100 + r.IntN(100)
			noise := func() float64 { return 0.95 + 0.1*r.Float64() }
			seen := &loadSeen{lasted: part.traffic, took: map[string][]float64{}, calm: map[string]float64{"own tool": 9 * noise()}}
			seen.quiet = loadSample{
				heap: 5 * mib * noise(), anon: 28 * mib * noise(), descriptors: 114, goroutines: 212, files: 22, logs: int64(1600 * i),
				sessions: int64(sessions), calls: int64(calls), bridge: loadBridge{anon: 11 * mib * noise(), descriptors: 11},
			}
			seen.busy = seen.quiet
			seen.busy.conns, seen.busy.children = 1250, 8
			seen.busy.descriptors += 1250 + 40
			for range 50 {
				seen.took["announce"] = append(seen.took["announce"], 5000*noise())
				seen.took[straightKind] = append(seen.took[straightKind], 200*noise())
			}
			change(i, float64(sessions), seen)
			list = append(list, seen)
		}
		return list
	}
	for name, change := range map[string]func(i int, sessions float64, seen *loadSeen){
		"nothing":                             func(int, float64, *loadSeen) {},
		"a KiB of each session":               func(_ int, sessions float64, seen *loadSeen) { seen.quiet.heap += 1024 * sessions },
		"a descriptor of each hundredth":      func(_ int, sessions float64, seen *loadSeen) { seen.quiet.descriptors += int(sessions / 100) },
		"a goroutine a part":                  func(i int, _ float64, seen *loadSeen) { seen.quiet.goroutines += i },
		"a file a part":                       func(i int, _ float64, seen *loadSeen) { seen.quiet.files += i },
		"memory that is not the heap":         func(i int, _ float64, seen *loadSeen) { seen.quiet.anon += float64(i) * mib },
		"the bridge":                          func(i int, _ float64, seen *loadSeen) { seen.quiet.bridge.anon += float64(i) * mib / 4 },
		"a little of each call of the bridge": func(_ int, _ float64, seen *loadSeen) { seen.quiet.bridge.anon += 300 * float64(seen.quiet.calls) },
		"a descriptor of the bridge":          func(i int, _ float64, seen *loadSeen) { seen.quiet.bridge.descriptors += i / 10 },
		"the log, ever faster":                func(i int, _ float64, seen *loadSeen) { seen.quiet.logs = int64(1600 * i * i) },
		"what a call costs":                   func(i int, _ float64, seen *loadSeen) { seen.calm["own tool"] *= 1 + float64(i)/5 },
		"how long calls take in bursts": func(i int, _ float64, seen *loadSeen) {
			for j := range seen.took["announce"] {
				seen.took["announce"][j] *= 1 + float64(i)/10
			}
		},
		"descriptors that belong to nobody": func(_ int, _ float64, seen *loadSeen) { seen.busy.descriptors += 200 },
	} {
		grown, known := loadJudge(plan, day(change))
		if len(grown) > 0 == (name == "nothing") {
			t.Errorf("%s grows: found %q\n%s", name, grown, strings.Join(known, "\n"))
		}
	}
}
