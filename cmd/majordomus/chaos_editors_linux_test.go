package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"majordomus/bridge/frame"
	"majordomus/server"
	"majordomus/server/board"
)

// A chaosEditor is one life of an editor: a bridge, and who speaks with it.
type chaosEditor struct {
	*chaos
	name   string
	modern bool
	rand   *rand.Rand
	cmd    *exec.Cmd
	in     io.WriteCloser
	log    accBuffer
	silent chan struct{} // closed when the bridge says nothing more: it has ended
	rest   context.CancelFunc
	work   sync.WaitGroup

	mu      sync.Mutex
	writing sync.Mutex
	ids     int
	calls   map[string]*chaosCall // without an answer, by their ids as they were written
	ending  bool
	stopped bool
	awake   time.Time // since when it is not stopped
	listed  bool      // what may run twice was seen in a list
	id      string    // on the board
	claims  map[string][]string
}

// A chaosCall is a request.
type chaosCall struct {
	id, kind  string
	n         int // of a call with an effect, its number
	asked     time.Time
	takes     time.Duration // by what it asked for
	losses    int           // of servers, that the bridge had told of by then
	listed    bool          // the editor's, when it was asked
	cancelled bool
	late      bool             // that it is was said
	answer    chan chaosAnswer // one slot
}

type chaosAnswer struct {
	Result json.RawMessage
	Error  *struct {
		Message string
		Data    struct{ Code string }
	}
	// Of a tool's result.
	structured json.RawMessage
	text       string
	failed     bool
}

// outcome is "ok", or in few words why not.
func (a chaosAnswer) outcome() string {
	switch {
	case a.Error != nil && a.Error.Data.Code != "":
		code := a.Error.Data.Code
		if strings.Contains(a.Error.Message, "is not known") {
			code += ", not known"
		}
		return code
	case a.Error != nil:
		return a.Error.Message
	case a.failed:
		return "failed: " + a.text
	}
	return "ok"
}

// place is where one editor follows the other until all is over; who is there
// then stays.
func (c *chaos) place(i int, r *rand.Rand) {
	stays := i < chaosStays
	for life := 0; c.over.Err() == nil; life++ {
		program := c.program
		if !stays && r.IntN(6) == 0 {
			program = c.newer
		}
		span, way := time.Duration(1000+r.IntN(9000))*time.Millisecond, chaosWays[r.IntN(len(chaosWays))]
		c.standing.RLock()
		e := c.begin(fmt.Sprintf("editor %d.%d", i, life), i%2 == 1, program, rand.New(rand.NewPCG(r.Uint64(), r.Uint64())))
		opened := e != nil && e.open()
		c.standing.RUnlock()
		if e == nil {
			chaosSleep(c.over, 200*time.Millisecond)
			continue
		}
		if opened {
			e.begins()
		}
		if stays {
			span = time.Hour * 24
		}
		if !chaosSleep(c.over, span) {
			e.rest() // it stays
			e.work.Wait()
			return
		}
		e.end(way)
		c.mu.Lock()
		c.living = slices.DeleteFunc(c.living, func(x *chaosEditor) bool { return x == e })
		c.mu.Unlock()
		chaosSleep(c.over, time.Duration(r.IntN(500))*time.Millisecond)
	}
}

// chaosSleep reports whether it slept for so long, and ctx did not end.
func chaosSleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// begin starts a bridge; nil where that is not to be had just now.
func (c *chaos) begin(name string, modern bool, program string, r *rand.Rand) *chaosEditor {
	e := &chaosEditor{
		chaos: c, name: name, modern: modern, rand: r, silent: make(chan struct{}), awake: time.Now(),
		calls: map[string]*chaosCall{}, claims: map[string][]string{}, rest: func() {},
	}
	e.cmd = exec.Command(program, "mcp")
	e.cmd.Dir, e.cmd.Env, e.cmd.Stderr = c.root, c.environ(), &e.log
	e.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // it is ended with its tree, and the server is none of that
	e.cmd.WaitDelay = 10 * time.Second
	in, errIn := e.cmd.StdinPipe()
	out, errOut := e.cmd.StdoutPipe()
	if err := errors.Join(errIn, errOut, e.cmd.Start()); err != nil {
		// Its file may be busy: written by us, and open still in another process
		// that we are starting just now.
		if !errors.Is(err, syscall.ETXTBSY) {
			c.wrong("%s cannot be started: %v", name, err)
		}
		return nil
	}
	e.in = in
	c.mu.Lock()
	c.living = append(c.living, e)
	c.mu.Unlock()
	go e.read(out) // until the bridge has ended
	c.count("editors", "began")
	return e
}

func (e *chaosEditor) read(out io.Reader) {
	defer close(e.silent)
	for r := bufio.NewReaderSize(out, 64<<10); ; {
		line, err := r.ReadBytes('\n')
		if len(line) > 0 {
			e.heard(line)
		}
		if err != nil {
			break
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.ending {
		e.wrong("the bridge of %s ended by itself: %s", e.name, e.said())
	}
}

// said is the end of what the bridge logged.
func (e *chaosEditor) said() string {
	s := e.log.String()
	return s[max(0, len(s)-1500):]
}

func (e *chaosEditor) heard(line []byte) {
	m, err := frame.Parse(bytes.TrimSuffix(line, []byte("\n")))
	switch {
	case err != nil:
		e.wrong("%s hears what is no message: %q: %v", e.name, line, err)
		return
	case !m.IsResponse():
		return // a notification
	}
	now := time.Now()
	e.mu.Lock()
	call := e.calls[string(m.ID)]
	delete(e.calls, string(m.ID))
	slept := call != nil && (e.stopped || e.awake.After(call.asked))
	e.mu.Unlock()
	if call == nil {
		e.wrong("%s hears an answer to nothing that it asked, or a second one: %.300s", e.name, line)
		return
	}
	var a chaosAnswer
	if err := json.Unmarshal(line, &a); err != nil {
		e.wrong("%s hears %.300s: %v", e.name, line, err)
	}
	var tool struct {
		Content           []struct{ Text string }
		StructuredContent json.RawMessage
		IsError           bool
	}
	if json.Unmarshal(a.Result, &tool) == nil {
		a.structured, a.failed = tool.StructuredContent, tool.IsError
		if len(tool.Content) > 0 {
			a.text = tool.Content[0].Text
		}
	}
	if !slept && !call.cancelled {
		e.took("the answer to "+call.kind, now.Sub(call.asked)-call.takes)
	}
	e.judge(call, a)
	call.answer <- a
}

// judge is what may be answered to whom.
func (e *chaosEditor) judge(call *chaosCall, a chaosAnswer) {
	outcome := a.outcome()
	e.count("answers", call.kind+": "+brief(outcome))
	if call.kind == chaosEffect {
		e.ledger.answered(call.n, outcome)
	}
	if bytes.Contains(a.structured, []byte(`"alone":"`)) {
		e.count("looks", "an editor was served alone")
	}
	if outcome == "ok" || call.cancelled {
		return
	}
	hosted := call.kind == chaosEffect || call.kind == "hosted read"
	switch {
	case outcome == "outcome_unknown":
		if call.kind == chaosEffect || hosted && !call.listed {
			return
		}
		// One that is asked again and again, and has each server die, is given up.
		if strings.Count(e.log.String(), "link to the server has ended")-call.losses >= 2 {
			return
		}
	case hosted && strings.HasPrefix(outcome, "upstream_"):
		return // that one may fail; what it did is the ledger's
	case hosted && strings.HasSuffix(outcome, "tool not found"), call.kind == "resources/read":
		// What says what is hosted, and what was to be read, was not there.
		if e.wasOn(faultMoved, call.asked.Add(-3*time.Second)) {
			return
		}
		if strings.HasSuffix(outcome, "too many open files") && (e.wasOn(faultServerFull, call.asked) || e.wasOn(faultBridgeFull, call.asked)) {
			return
		}
	}
	why := ""
	if a.Error != nil {
		why = a.Error.Message
	}
	e.wrong("%s is answered to %s %s: %s: %s; %s", e.name, call.kind, call.id, outcome, why, e.said())
}

func brief(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	return s[:min(len(s), 90)]
}

// unanswered are the requests that have waited for so long, and were not
// cancelled. Of a bridge that is stopped nothing is asked. Each is named once
// if it is to be answered at all.
func (e *chaosEditor) unanswered(since time.Duration) (all []*chaosCall) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopped {
		return nil
	}
	for _, call := range e.calls {
		begun := call.asked
		if e.awake.After(begun) {
			begun = e.awake
		}
		if call.cancelled || call.late && since > 0 || time.Since(begun) < since {
			continue
		}
		call.late = call.late || since > 0
		all = append(all, call)
	}
	return all
}

// say reports whether the bridge can hear it.
func (e *chaosEditor) say(line string) bool {
	e.writing.Lock()
	defer e.writing.Unlock()
	_, err := io.WriteString(e.in, line+"\n")
	if err == nil {
		return true
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.ending {
		e.wrong("%s is not heard: %v: %s", e.name, err, e.said())
	}
	return false
}

// ids are of every kind: what comes back is compared byte by byte.
func (e *chaosEditor) newID() string {
	e.ids++
	switch e.ids % 5 {
	case 0:
		return fmt.Sprint(-e.ids)
	case 1:
		return fmt.Sprintf("9007199254740993%06d", e.ids) // no float has room for it
	case 2:
		return fmt.Sprintf(`"é\u00e9\/%d \ud83d\ude80"`, e.ids)
	case 3:
		return fmt.Sprintf("%q", fmt.Sprint(e.ids)) // the number's text is another one
	}
	return fmt.Sprint(e.ids)
}

func (e *chaosEditor) ask(kind, method string, params map[string]any, takes time.Duration) *chaosCall {
	if e.modern {
		params["_meta"] = map[string]any{
			"io.modelcontextprotocol/protocolVersion":    "2026-07-28",
			"io.modelcontextprotocol/clientInfo":         map[string]string{"name": e.name, "version": "1"},
			"io.modelcontextprotocol/clientCapabilities": map[string]any{},
		}
	}
	b, err := json.Marshal(params)
	if err != nil {
		panic(err) // they are ours
	}
	e.mu.Lock()
	call := &chaosCall{id: e.newID(), kind: kind, asked: time.Now(), takes: takes, listed: e.listed, losses: strings.Count(e.log.String(), "link to the server has ended"), answer: make(chan chaosAnswer, 1)}
	if kind == chaosEffect {
		call.n = e.ledger.begin(params)
		b, _ = json.Marshal(params) // as above
	}
	e.calls[call.id] = call
	e.mu.Unlock()
	e.count("requests", kind)
	said := e.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":%s}`, call.id, method, b))
	if !said {
		e.mu.Lock()
		delete(e.calls, call.id) // it was not asked
		e.mu.Unlock()
	}
	return call
}

var errChaosEnded = errors.New("it has ended")

// wait waits for the answer; an error says that there is none to be had.
func (e *chaosEditor) wait(call *chaosCall) (chaosAnswer, error) {
	select {
	case a := <-call.answer:
		if o := a.outcome(); o != "ok" {
			return a, errors.New(o)
		}
		return a, nil
	case <-e.silent:
		return chaosAnswer{}, errChaosEnded
	case <-time.After(2 * chaosNever):
		return chaosAnswer{}, errors.New("it is never answered") // which was seen already
	}
}

func (e *chaosEditor) tool(kind, name string, arguments map[string]any, takes time.Duration) *chaosCall {
	return e.ask(kind, "tools/call", map[string]any{"name": name, "arguments": arguments}, takes)
}

// open does what an editor of its era does first.
func (e *chaosEditor) open() bool {
	first := e.ask
	if e.modern {
		if _, err := e.wait(first("server/discover", "server/discover", map[string]any{}, 0)); err != nil {
			return false
		}
	} else {
		_, err := e.wait(first("initialize", "initialize", map[string]any{
			"protocolVersion": "2025-11-25", "capabilities": map[string]any{}, "clientInfo": map[string]string{"name": e.name, "version": "1"},
		}, 0))
		if err != nil {
			return false
		}
		e.say(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	}
	return e.list() == nil
}

func (e *chaosEditor) list() error {
	a, err := e.wait(e.ask("tools/list", "tools/list", map[string]any{}, 0))
	if err != nil {
		return err
	}
	if bytes.Contains(a.Result, []byte(`"up__read"`)) {
		e.mu.Lock()
		e.listed = true
		e.mu.Unlock()
	}
	return nil
}

// begins has the editor work until it is to rest.
func (e *chaosEditor) begins() {
	var resting context.Context
	resting, e.rest = context.WithCancel(context.Background())
	social := rand.New(rand.NewPCG(e.rand.Uint64(), e.rand.Uint64()))
	e.work.Go(func() { e.calling(resting) })
	e.work.Go(func() { e.talking(resting, social) })
}

const chaosEffect = "call with an effect"

// calling asks for this and that, several at a time.
func (e *chaosEditor) calling(resting context.Context) {
	slots := make(chan struct{}, 8)
	for chaosSleep(resting, time.Duration(e.rand.IntN(150))*time.Millisecond) {
		what, before, after := e.rand.IntN(100), e.rand.IntN(40), e.rand.IntN(40)
		if e.rand.IntN(8) == 0 {
			before, after = 10*before, 20*after // a slow one
		}
		cancel := e.rand.IntN(10) == 0
		takes := time.Duration(before+after) * time.Millisecond
		select {
		case slots <- struct{}{}:
		case <-resting.Done():
			return
		}
		var call *chaosCall
		switch {
		case what < 40:
			call = e.tool(chaosEffect, "up__write", map[string]any{"before": before, "after": after}, takes)
		case what < 60:
			call = e.tool("hosted read", "up__read", map[string]any{"n": 0, "before": before, "after": after}, takes)
		case what < 68:
			call = e.tool("own tool", "majordomus_wait", map[string]any{"seconds": takes.Seconds(), "until": "time"}, takes)
		case what < 80:
			call = e.tool("own tool", "majordomus_server", map[string]any{}, 0)
		case what < 85:
			call = e.ask("resources/list", "resources/list", map[string]any{}, 0)
		case what < 93:
			call = e.ask("resources/read", "resources/read", map[string]any{"uri": "majordomus://layer/notes.md"}, 0)
		default:
			e.work.Go(func() {
				e.list() // ignore error: judged already
				<-slots
			})
			continue
		}
		e.work.Go(func() {
			defer func() { <-slots }()
			if cancel {
				chaosSleep(resting, takes/2)
				e.cancel(call)
				return
			}
			e.wait(call) // ignore error: judged already
		})
	}
}

// cancel takes a request back, if it is not answered yet.
func (e *chaosEditor) cancel(call *chaosCall) {
	e.mu.Lock()
	call.cancelled = true
	gone := e.calls[call.id] == nil
	e.mu.Unlock()
	if gone {
		return
	}
	e.ledger.answered(call.n, "cancelled")
	e.count("requests", "cancelled")
	meta := ""
	if e.modern {
		meta = `,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"x","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`
	}
	e.say(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s%s}}`, call.id, meta))
}

// talking announces one thing after the other, and looks whether it stands.
func (e *chaosEditor) talking(resting context.Context, r *rand.Rand) {
	for i := 0; chaosSleep(resting, time.Duration(r.IntN(1500))*time.Millisecond); i++ {
		claim, scope := fmt.Sprint("claim ", r.IntN(3)), []string{fmt.Sprintf("src/%s/%d", e.name, i)}
		if r.IntN(4) == 0 {
			scope = []string{}
		}
		a, err := e.wait(e.tool("announcement", "majordomus_announce", map[string]any{"intent": "to " + claim, "claim": claim, "scope": scope}, 0))
		if err != nil {
			return // it ends; else it is judged already
		}
		var got board.Announced
		if err := json.Unmarshal(a.structured, &got); err != nil || got.Claim != claim || !slices.Equal(got.Scope, scope) || !strings.HasPrefix(got.Peer, e.id) {
			e.wrong("%s (%s) announced %s %q and is answered %s, %v", e.name, e.id, claim, scope, a.structured, err)
		}
		e.id = got.Peer // longer than before where another came whose id begins alike
		if e.claims[claim] = scope; len(scope) == 0 {
			delete(e.claims, claim)
		}
		if a, err = e.wait(e.tool("look at the board", "majordomus_peers", map[string]any{"checkouts": "this"}, 0)); err != nil {
			return
		}
		var all server.Peers
		if err := json.Unmarshal(a.structured, &all); err != nil {
			e.wrong("%s sees %s: %v", e.name, a.structured, err)
		} else if err := e.is(all); err != nil {
			e.wrong("after %s %q: %v; %s", claim, scope, err, e.said())
		}
	}
}

// is reports how the board has e otherwise than it is. Who has announced nothing
// need not be there by name.
func (e *chaosEditor) is(all server.Peers) error {
	for _, v := range all.Peers {
		if v.Client != e.name { // which no other has
			continue
		}
		if !v.Attached || !strings.HasPrefix(v.ID, e.id) {
			return fmt.Errorf("%s is on the board as %+v", e.name, v)
		}
		has := map[string][]string{}
		for _, claim := range v.Claims {
			has[claim.Name] = claim.Scope
		}
		if fmt.Sprint(has) != fmt.Sprint(e.claims) {
			return fmt.Errorf("%s has announced %v, and on the board is %v", e.name, e.claims, has)
		}
		return nil
	}
	if e.id == "" {
		return nil
	}
	return fmt.Errorf("%s (%s), who has announced %v, is not on the board: %+v", e.name, e.id, e.claims, all.Peers)
}

func (e *chaosEditor) server() (accServed, error) {
	a, err := e.wait(e.tool("own tool", "majordomus_server", map[string]any{}, 0))
	if err != nil {
		return accServed{}, err
	}
	var s accServed
	return s, json.Unmarshal(a.structured, &s)
}

// The ways in which an editor ends its bridge.
const (
	chaosEOF    = "the end of its input"
	chaosTerm   = "a signal"
	chaosTwice  = "a signal, and killed after"
	chaosKilled = "killed with its tree"
)

var chaosWays = []string{chaosEOF, chaosEOF, chaosEOF, chaosTerm, chaosTwice, chaosKilled}

func (e *chaosEditor) end(way string) {
	e.mu.Lock()
	if e.ending {
		e.mu.Unlock()
		return
	}
	e.ending = true
	e.mu.Unlock()
	e.rest()
	e.count("editors", "ended by "+way)
	group := func(s syscall.Signal) { syscall.Kill(-e.cmd.Process.Pid, s) } // ignore error: it has ended
	e.freeze(false)
	switch way {
	case chaosEOF:
		e.writing.Lock() // not amid a request
		e.in.Close()
		e.writing.Unlock()
	case chaosTerm:
		group(syscall.SIGTERM)
	case chaosTwice:
		group(syscall.SIGTERM)
		time.Sleep(95 * time.Millisecond)
		group(syscall.SIGKILL)
	case chaosKilled:
		group(syscall.SIGKILL)
	}
	select {
	case <-e.silent:
	case <-time.After(chaosNever):
		e.wrong("the bridge of %s outlives %s: %s", e.name, way, e.said())
		group(syscall.SIGKILL)
		<-e.silent
	}
	e.work.Wait() // none is about to ask any more
	err := e.cmd.Wait()
	if (way == chaosEOF || way == chaosTerm) && err != nil {
		e.wrong("the bridge of %s, ended by %s, says %v: %s", e.name, way, err, e.said())
	}
	if way == chaosEOF {
		for _, call := range e.unanswered(0) {
			e.wrong("%s left %s %s, asked %v before, without an answer when its input ended: %s", e.name, call.kind, call.id, time.Since(call.asked), e.said())
		}
	}
	if log := e.log.String(); strings.Contains(log, "panic") {
		e.wrong("the bridge of %s panicked: %s", e.name, log)
	}
	e.in.Close()
}

// freeze stops the bridge, or has it go on.
func (e *chaosEditor) freeze(stop bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopped == stop || stop && e.ending {
		return
	}
	s := syscall.SIGCONT
	if stop {
		s = syscall.SIGSTOP
	}
	e.cmd.Process.Signal(s) // ignore error: it has ended
	e.stopped, e.awake = stop, time.Now()
}

// chaosLedger knows of every call with an effect what became of it.
type chaosLedger struct {
	*chaos
	path string // has a line for each effect
	last atomic.Int64

	mu    sync.Mutex
	calls map[int]string // how each was answered; "" if not
	ran   map[int]int    // how often each ran
	read  int64          // of the file
}

// begin gives a call its number.
func (l *chaosLedger) begin(params map[string]any) int {
	n := int(l.last.Add(1))
	params["arguments"].(map[string]any)["n"] = n
	l.mu.Lock()
	l.calls[n] = ""
	l.mu.Unlock()
	return n
}

// answered notes the first that is known of a call.
func (l *chaosLedger) answered(n int, outcome string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n > 0 && l.calls[n] == "" {
		l.calls[n] = outcome
	}
}

// look reads what has happened since the last look.
func (l *chaosLedger) look() {
	f, err := os.Open(l.path)
	if err != nil {
		return // nothing has happened yet
	}
	defer f.Close()
	b, err := io.ReadAll(io.NewSectionReader(f, l.read, 1<<30))
	if err != nil {
		l.wrong("reading the effects: %v", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range bytes.Lines(b) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break
		}
		l.read += int64(len(line))
		var n int
		if _, err := fmt.Sscan(string(line), &n); err != nil {
			l.wrong("the effect %q is nobody's", line)
			continue
		}
		how, asked := l.calls[n]
		switch l.ran[n]++; {
		case !asked:
			l.wrong("the call %d ran, and nobody asked for it", n)
		case l.ran[n] > 1:
			l.wrong("the call %d, answered %q, ran %d times", n, how, l.ran[n])
		}
	}
}

// close holds the answers against the effects, when nothing runs any more.
func (l *chaosLedger) close() {
	l.look()
	l.mu.Lock()
	defer l.mu.Unlock()
	for n, how := range l.calls {
		ran := l.ran[n]
		switch {
		case how == "ok" && ran == 0:
			l.wrong("the call %d was answered with success, and did not run", n)
		case how == "ok", how == "", how == "cancelled", how == "outcome_unknown", strings.HasSuffix(how, "not known"):
		case ran > 0:
			l.wrong("the call %d was answered %q, and ran", n, how)
		}
		row := "not run"
		if ran > 0 {
			row = "run"
		}
		switch how {
		case "":
			how = "nobody there any more to be answered"
		case "ok":
			how = "success"
		}
		l.chaos.count("calls with an effect", brief(how)+": "+row)
	}
}

// web is a client over HTTP, in one session after the other. Nobody asks again
// for it: what a server's end takes away is gone, and unknown.
func (c *chaos) web(i int, r *rand.Rand) {
	client := &http.Client{Timeout: chaosNever, Transport: &http.Transport{DisableKeepAlives: true}}
	for c.over.Err() == nil {
		chaosSleep(c.over, time.Duration(r.IntN(300))*time.Millisecond)
		calls, leaves := 1+r.IntN(10), r.IntN(4) > 0
		doc, err := c.accCheckout.lease()
		if err != nil {
			continue
		}
		key, err := os.ReadFile(c.state("key"))
		if err != nil {
			continue
		}
		session := ""
		do := func(method, message string) (int, []byte, error) {
			req, err := http.NewRequest(method, *doc.URL+"/mcp", strings.NewReader(message))
			if err != nil {
				return 0, nil, err
			}
			req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(key)))
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("Accept", "application/json, text/event-stream")
			if session != "" {
				req.Header.Set("Mcp-Session-Id", session)
				req.Header.Set("Mcp-Protocol-Version", "2025-11-25")
			}
			began := time.Now()
			resp, err := client.Do(req)
			if err != nil {
				if time.Since(began) >= chaosNever {
					c.wrong("over HTTP %s is not answered: %v", message, err)
				}
				return 0, nil, err
			}
			defer resp.Body.Close()
			if s := resp.Header.Get("Mcp-Session-Id"); s != "" {
				session = s
			}
			b, err := io.ReadAll(resp.Body)
			return resp.StatusCode, b, err
		}
		status, _, err := do("POST", fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"web %d","version":"1"}}}`, i))
		if err != nil || status != http.StatusOK {
			c.count("over HTTP", fmt.Sprintf("not let in: %d", status))
			continue
		}
		for n := range calls {
			chaosSleep(c.over, time.Duration(r.IntN(100))*time.Millisecond)
			before, after := r.IntN(50), r.IntN(50)
			params := map[string]any{"name": "up__write", "arguments": map[string]any{"before": before, "after": after}}
			call := c.ledger.begin(params)
			b, _ := json.Marshal(params) // they are ours
			c.count("requests", chaosEffect+", over HTTP")
			id := fmt.Sprintf(`"web\/%d-%d"`, i, n+2)
			status, b, err := do("POST", fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":%s}`, id, b))
			outcome := fmt.Sprint(status)
			switch {
			case err != nil:
				outcome = "cut, not known"
			case status == http.StatusOK:
				at := bytes.Index(b, []byte("{")) // it may be an event of a stream
				m, err := frame.Parse(bytes.TrimSpace(b[max(at, 0):]))
				var a chaosAnswer
				if err == nil {
					err = json.Unmarshal(m.Raw, &a)
				}
				if err != nil || string(m.ID) != id {
					c.wrong("over HTTP %s is answered %q, %v", id, b, err)
				}
				outcome = a.outcome()
			}
			c.ledger.answered(call, outcome)
			c.count("over HTTP", brief(outcome))
			if outcome != "ok" {
				break // its server may be going
			}
		}
		if leaves {
			do("DELETE", "") // ignore error: it is gone then, too
		}
	}
}
