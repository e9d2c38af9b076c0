//go:build unix

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// A silentStream is one stream of messages to a client.
type silentStream struct {
	name  string
	lines chan string // closed at its end

	// Of a process only:
	in   io.Writer  // the way back
	ping string     // a request that is answered at once
	log  *accBuffer // its standard error
}

// follow hands on the messages that r brings: lines, or the data of events.
func (s *silentStream) follow(r io.Reader) {
	defer close(s.lines)
	for lines := bufio.NewReader(r); ; {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		line = strings.TrimPrefix(strings.TrimSpace(line), "data: ")
		// That the hosted server's tools are there is told whenever it is up.
		if strings.HasPrefix(line, "{") && !strings.Contains(line, "notifications/tools/list_changed") {
			s.lines <- line
		}
	}
}

// hears waits for a message with all the parts.
func (s *silentStream) hears(within time.Duration, parts ...string) error {
	late := time.After(within)
	for {
		select {
		case line, ok := <-s.lines:
			if !ok {
				return fmt.Errorf("%s: the stream ended, without %q", s.name, parts)
			}
			if !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(line, part) }) {
				return nil
			}
		case <-late:
			return fmt.Errorf("%s: %q did not come within %v", s.name, parts, within)
		}
	}
}

const (
	silentMeta  = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"silence","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`
	silentOpen  = `{"jsonrpc":"2.0","id":"listen","method":"subscriptions/listen","params":{"notifications":{"resourcesListChanged":true},` + silentMeta + `}}`
	silentCall  = `{"jsonrpc":"2.0","id":"call","method":"tools/call","params":{"name":"up__write","arguments":{},"_meta":{"progressToken":"p"}}}`
	silentReady = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
)

// TestSilence leaves every kind of stream alone for six minutes, longer than
// the five after which proxies and clients give up what is silent, and then has
// each told something. Without MAJORDOMUS_TEST_LONG it is a second.
func TestSilence(t *testing.T) {
	t.Parallel()
	const soon = 30 * time.Second
	silence := time.Duration(lossLong(360, 1)) * time.Second
	c := accFresh(t)
	upstream, err := hubUpstream()
	if err != nil {
		t.Fatal(err)
	}
	end := filepath.Join(c.home, "end")
	servers, err := json.Marshal(map[string]any{"mcpServers": map[string]any{"up": map[string]any{
		"command": upstream, "args": []string{"-until", end}, "majordomus": map[string]any{"timeout_seconds": 900},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	c.write(".ai/repo/mcp.json", string(servers), 0o644)
	c.mustRun("trust", "--yes")
	t.Cleanup(func() { c.run("serve", "stop", "--force") }) // ignore error: what is left is killed

	hello, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": "hello", "method": "initialize", "params": accHello})
	if err != nil {
		t.Fatal(err)
	}
	var following sync.WaitGroup
	t.Cleanup(following.Wait)
	open := func(name string, r io.Reader) *silentStream {
		s := &silentStream{name: name, lines: make(chan string, 1000)}
		following.Go(func() { s.follow(r) })
		return s
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}

	// stdio is a process with standard streams that was told the lines; the
	// answers to them have come.
	stdio := func(name string, words []string, tell ...[]string) *silentStream {
		t.Helper()
		cmd := c.command(words...)
		cmd.WaitDelay = 5 * time.Second
		in, err := cmd.StdinPipe()
		must(err)
		out, err := cmd.StdoutPipe()
		must(err)
		log := &accBuffer{}
		cmd.Stderr = log
		must(cmd.Start())
		s := open(name, out)
		s.in, s.log = in, log
		t.Cleanup(func() {
			in.Close()
			cmd.Process.Kill() // ignore error: it may have ended
			for range s.lines {
			}
			cmd.Wait() // ignore error: killed
			if t.Failed() {
				t.Logf("%s said:\n%s", name, log)
			}
		})
		for _, exchange := range tell {
			_, err := io.WriteString(in, exchange[0]+"\n")
			must(err)
			if len(exchange) > 1 {
				must(s.hears(soon, exchange[1:]...))
			}
		}
		return s
	}
	greet := [][]string{{string(hello), `"id":"hello"`, `"result"`}, {silentReady}, {`{"jsonrpc":"2.0","id":"list","method":"tools/list"}`, "up__write"}}
	listen := [][]string{{silentOpen, "notifications/subscriptions/acknowledged"}}
	alone := []string{"mcp", "--standalone"}

	// The first brings up the server, and that the one it hosts.
	told := []*silentStream{
		stdio("bridge, handshake", []string{"mcp"}, greet...),
		stdio("bridge, listen", []string{"mcp"}, listen...),
		stdio("alone, handshake", alone, greet...),
		stdio("alone, listen", alone, listen...),
	}
	stateless := `{"jsonrpc":"2.0","id":"pong","method":"server/discover","params":{` + silentMeta + `}}`
	for i, s := range told {
		if s.ping = `{"jsonrpc":"2.0","id":"pong","method":"ping"}`; i%2 == 1 {
			s.ping = stateless
		}
	}
	called := []*silentStream{
		stdio("bridge, call", []string{"mcp"}, append(greet[:3:3], []string{silentCall})...),
		stdio("alone, call", alone, append(greet[:3:3], []string{silentCall})...),
	}

	// Over HTTP with connections of their own, and no timeouts at all.
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	ctx, hangUp := context.WithCancel(context.Background())
	t.Cleanup(hangUp)
	url, key := *c.mustLease().URL+"/mcp", c.key()
	web := func(method, message string, headers ...string) (*http.Response, error) {
		r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(message))
		if err != nil {
			return nil, err
		}
		r.Header.Set("Authorization", "Bearer "+key)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		resp, err := client.Do(r)
		if err == nil && resp.StatusCode/100 != 2 {
			resp.Body.Close()
			err = fmt.Errorf("%s %s: %s", method, message, resp.Status)
		}
		return resp, err
	}
	resp, err := web("POST", silentOpen, "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "subscriptions/listen")
	must(err)
	listening := open("http, listen", resp.Body)
	must(listening.hears(soon, "notifications/subscriptions/acknowledged"))
	resp, err = web("POST", string(hello))
	must(err)
	session := resp.Header.Get("Mcp-Session-Id")
	_, err = io.Copy(io.Discard, resp.Body)
	must(err)
	resp, err = web("POST", silentReady, "Mcp-Session-Id", session)
	must(err)
	resp.Body.Close()
	resp, err = web("GET", "", "Mcp-Session-Id", session)
	must(err)
	told = append(told, listening, open("http, GET", resp.Body))
	// The head of its answer comes with the first sign of life, after 15 s.
	posted := &silentStream{name: "http, call", lines: make(chan string, 1000)}
	called = append(called, posted)
	following.Go(func() {
		resp, err := web("POST", silentCall, "Mcp-Session-Id", session)
		if err != nil {
			t.Error(err)
			close(posted.lines)
			return
		}
		posted.follow(resp.Body)
	})

	for begun := time.Now(); time.Since(begun) < silence; {
		time.Sleep(time.Second) // the silence is the matter
		for _, s := range append(told[:len(told):len(told)], called...) {
			select {
			case line, ok := <-s.lines:
				t.Fatalf("%s: after %v of silence came %q, %v", s.name, time.Since(begun).Round(time.Second), line, ok)
			default:
			}
		}
	}
	c.write(".ai/repo/new.md", "news\n", 0o644)
	must(os.WriteFile(end, nil, 0o600))
	for _, s := range told {
		if err := s.hears(soon, "notifications/resources/list_changed"); err != nil {
			t.Error(err)
		}
	}
	for _, s := range called {
		if err := s.hears(soon, "notifications/progress", `"p"`); err != nil {
			t.Error(err)
		} else if err := s.hears(soon, `"id":"call"`, `"result"`); err != nil {
			t.Error(err)
		}
	}
	for _, s := range told { // and the other way
		if s.in == nil {
			continue
		}
		_, err := io.WriteString(s.in, s.ping+"\n")
		must(err)
		if err := s.hears(soon, `"id":"pong"`, `"result"`); err != nil {
			t.Error(err)
		}
		// A bridge whose link had ended would have found the server again.
		if log := s.log.String(); strings.Contains(log, "link to the server has ended") {
			t.Errorf("%s: %s", s.name, log)
		}
	}
}
