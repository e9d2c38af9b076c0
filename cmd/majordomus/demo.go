package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"majordomus/lease"
	"majordomus/lease/launch"
)

func (a *app) demoCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "demo",
		Short: "Show the main job with real processes in a temporary checkout",
		Long: `Start three editors in a temporary git checkout, kill their server in the
middle of a call, take its lease away, and check that every call is answered.
Takes a few seconds, touches nothing outside its temporary folder and leaves
nothing behind.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), 20*time.Second)
			defer cancel()
			return a.demo(ctx)
		},
	}
}

// demo runs the steps; the first that fails ends it.
func (a *app) demo(ctx context.Context) (err error) {
	begun := time.Now()
	s, err := a.newScratch("majordomus-demo-")
	if err != nil {
		return err
	}
	d := &demo{scratch: s, begun: begun}
	defer func() { err = errors.Join(err, d.end(err != nil)) }()
	d.say("made a git checkout in %s", d.dir)
	for _, step := range []func(context.Context) error{d.open, d.call, d.kill, d.take} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	d.say("done: three editors, %d servers, and no call was lost or run twice", len(d.servers))
	return nil
}

type demo struct {
	*scratch
	begun   time.Time
	editors []*editor
}

func (d *demo) say(format string, args ...any) {
	fmt.Fprintf(d.app.out, "%6.2f s  %s\n", time.Since(d.begun).Seconds(), fmt.Sprintf(format, args...))
}

// open starts three editors at one instant; one server must come of it.
func (d *demo) open(ctx context.Context) error {
	for i := range 3 {
		e, err := d.app.startEditor(ctx, d.dir, fmt.Sprintf("editor-%d", i+1))
		if err != nil {
			return err
		}
		d.editors = append(d.editors, e)
	}
	if err := d.each(func(e *editor) error { return e.initialize(ctx) }); err != nil {
		return err
	}
	doc, err := d.serving()
	if err != nil {
		return err
	}
	d.say("three editors started together and share one server: process %d at %s", doc.PID, address(doc))
	return nil
}

func (d *demo) call(ctx context.Context) error {
	doc, err := d.serving()
	if err != nil {
		return err
	}
	if err := d.each(func(e *editor) error { return e.askServer(ctx, address(doc)) }); err != nil {
		return err
	}
	d.say("a call from each was answered by that server")
	return nil
}

// kill ends the server the hard way while each editor has a call running.
func (d *demo) kill(ctx context.Context) error {
	old, err := d.serving()
	if err != nil {
		return err
	}
	answers := make(chan error, len(d.editors))
	for _, e := range d.editors {
		go func() { answers <- e.wait(ctx, 1, e.name) }() // waited for below
	}
	if err := d.running(ctx, old, len(d.editors)); err != nil {
		return err
	}
	p, err := os.FindProcess(old.PID)
	if err == nil {
		err = p.Kill()
	}
	if err != nil {
		return fmt.Errorf("killing the server: %w", err)
	}
	d.say("killed process %d while each editor had a call running there", old.PID)
	for range d.editors {
		if e := <-answers; e != nil {
			err = errors.Join(err, e)
		}
	}
	if err != nil {
		return err
	}
	doc, err := d.serving()
	if err != nil {
		return err
	}
	if doc.Token == old.Token {
		return errors.New("the killed server still holds the lease")
	}
	d.say("each call was answered all the same, once, by process %d; no editor noticed", doc.PID)
	return nil
}

// take removes the lease file: the server must notice and everybody move on.
func (d *demo) take(ctx context.Context) error {
	old, err := d.serving()
	if err != nil {
		return err
	}
	if err := os.Remove(d.place.folder.LeasePath()); err != nil {
		return fmt.Errorf("taking the lease away: %w", err)
	}
	d.say("took the lease away from process %d", old.PID)
	var index lease.Index
	if err := until(ctx, func() bool {
		return call(ctx, address(old), "", http.MethodGet, "/", nil, &index) == nil && index.LeaseHolder != nil && !*index.LeaseHolder
	}); err != nil {
		return fmt.Errorf("the server did not notice that its lease is gone: %w", err)
	}
	d.say("it says leaseholder: false")
	resp, err := http.Post(address(old)+"/mcp", "application/json", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize"}`))
	if err != nil {
		return fmt.Errorf("knocking at the old server: %w", err)
	}
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 4096)) // ignore error: checked by what it holds
	resp.Body.Close()
	if resp.StatusCode != http.StatusConflict || !bytes.Contains(body, []byte("lease_lost")) {
		return fmt.Errorf("the old server answered a newcomer with %s, not 409 lease_lost", resp.Status)
	}
	d.say("it answers a newcomer with 409 lease_lost")
	var doc lease.Document
	if err := until(ctx, func() bool {
		if doc, err = d.serving(); err != nil || doc.Token == old.Token {
			return false
		}
		return d.each(func(e *editor) error { return e.askServer(ctx, address(doc)) }) == nil
	}); err != nil {
		return fmt.Errorf("the editors did not all move to the next server: %w", err)
	}
	d.say("all three are on the next server: process %d at %s", doc.PID, address(doc))
	return nil
}

// running waits until the server has n calls in flight.
func (d *demo) running(ctx context.Context, doc lease.Document, n int) error {
	key, err := d.place.folder.ReadKey()
	if err != nil {
		return err
	}
	var state struct {
		InFlight int `json:"in_flight"`
	}
	if err := until(ctx, func() bool {
		return call(ctx, address(doc), key, http.MethodGet, "/api/v1/server", nil, &state) == nil && state.InFlight >= n
	}); err != nil {
		return fmt.Errorf("%d of %d calls reached the server: %w", state.InFlight, n, err)
	}
	return nil
}

// each does the same with all editors at once.
func (d *demo) each(do func(*editor) error) error {
	errs := make([]error, len(d.editors))
	var wg sync.WaitGroup
	for i, e := range d.editors {
		wg.Go(func() {
			if err := do(e); err != nil {
				errs[i] = fmt.Errorf("%s: %w", e.name, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// end closes the editors, and ends the rest with them.
func (d *demo) end(interrupted bool) error {
	var errs []error
	for _, e := range d.editors {
		errs = append(errs, e.close())
	}
	return errors.Join(append(errs, d.scratch.end(interrupted))...)
}

// until asks again until it is so or ctx ends.
func until(ctx context.Context, so func() bool) error {
	for !so() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

// editor is a small MCP client that talks to a `majordomus mcp` of its own.
type editor struct {
	name string
	cmd  *exec.Cmd
	in   io.WriteCloser
	log  bytes.Buffer

	mu      sync.Mutex
	next    int
	waiting map[int]chan json.RawMessage
	extra   int // answers to nothing that was asked
	ended   chan struct{}
}

func (a *app) startEditor(ctx context.Context, dir, name string) (*editor, error) {
	e := &editor{name: name, waiting: map[int]chan json.RawMessage{}, ended: make(chan struct{})}
	e.cmd = exec.Command(a.started.Path, "mcp", "--root", dir)
	e.cmd.Env = append(launch.Environ(a.environ), "MAJORDOMUS_ROOT=", unrecordedVar+"=1")
	e.cmd.Dir, e.cmd.Stderr = dir, &e.log
	in, err := e.cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	out, err := e.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	if err := e.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	e.in = in
	go e.read(out) // waited for in close
	return e, ctx.Err()
}

func (e *editor) read(out io.Reader) {
	defer close(e.ended)
	for r := bufio.NewReader(out); ; {
		line, err := r.ReadBytes('\n')
		var m struct {
			ID     *int
			Method string
		}
		if json.Unmarshal(line, &m) == nil && m.ID != nil && m.Method == "" {
			e.mu.Lock()
			ch := e.waiting[*m.ID]
			delete(e.waiting, *m.ID)
			if ch == nil {
				e.extra++
			}
			e.mu.Unlock()
			if ch != nil {
				ch <- line
			}
		}
		if err != nil {
			return
		}
	}
}

func (e *editor) request(ctx context.Context, method string, params any) (json.RawMessage, error) {
	ch := make(chan json.RawMessage, 1)
	e.mu.Lock()
	e.next++
	id := e.next
	e.waiting[id] = ch
	e.mu.Unlock()
	if err := e.send(map[string]any{"jsonrpc": "2.0", "id": id, "method": method, "params": params}); err != nil {
		return nil, err
	}
	select {
	case line := <-ch:
		var m struct {
			Result json.RawMessage
			Error  json.RawMessage
		}
		if err := json.Unmarshal(line, &m); err != nil {
			return nil, fmt.Errorf("reading the answer to %s: %w", method, err)
		}
		if m.Error != nil {
			return nil, fmt.Errorf("%s was answered with an error: %s", method, m.Error)
		}
		return m.Result, nil
	case <-e.ended:
		return nil, fmt.Errorf("the bridge ended while %s was running: %s", method, e.log.String())
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for the answer to %s: %w", method, ctx.Err())
	}
}

func (e *editor) send(m any) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if _, err := e.in.Write(append(b, '\n')); err != nil {
		return fmt.Errorf("writing to the bridge: %w", err)
	}
	return nil
}

func (e *editor) initialize(ctx context.Context) error {
	_, err := e.request(ctx, "initialize", map[string]any{
		"protocolVersion": "2025-11-25", "capabilities": map[string]any{},
		"clientInfo": map[string]string{"name": e.name, "version": "1"},
	})
	if err != nil {
		return err
	}
	if err := e.send(map[string]any{"jsonrpc": "2.0", "method": "notifications/initialized"}); err != nil {
		return err
	}
	_, err = e.request(ctx, "tools/list", map[string]any{}) // as every editor does
	return err
}

// askServer calls majordomus_server and checks which one answers.
func (e *editor) askServer(ctx context.Context, url string) error {
	b, err := e.request(ctx, "tools/call", map[string]any{"name": "majordomus_server", "arguments": map[string]any{}})
	if err != nil {
		return err
	}
	var r struct{ StructuredContent struct{ URL string } }
	if err := json.Unmarshal(b, &r); err != nil {
		return fmt.Errorf("reading what majordomus_server says: %w", err)
	}
	if got := r.StructuredContent.URL; got != url {
		return fmt.Errorf("answered by %s, not by %s", got, url)
	}
	return nil
}

// wait calls majordomus_wait and checks that its note comes back.
func (e *editor) wait(ctx context.Context, seconds int, note string) error {
	b, err := e.request(ctx, "tools/call", map[string]any{"name": "majordomus_wait", "arguments": map[string]any{"seconds": seconds, "note": note}})
	if err != nil {
		return fmt.Errorf("%s: %w", e.name, err)
	}
	if !bytes.Contains(b, []byte(note)) {
		return fmt.Errorf("%s: the note %q did not come back: %s", e.name, note, b)
	}
	return nil
}

// close ends the editor's input and waits for its bridge.
func (e *editor) close() error {
	e.in.Close() // ignore error: the bridge may have gone
	timer := time.AfterFunc(5*time.Second, func() { e.cmd.Process.Kill() })
	defer timer.Stop()
	<-e.ended
	if err := e.cmd.Wait(); err != nil {
		return fmt.Errorf("%s: its bridge ended badly: %w: %s", e.name, err, e.log.String())
	}
	if e.extra > 0 {
		return fmt.Errorf("%s: %d answers came twice", e.name, e.extra)
	}
	return nil
}
