package server

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestCodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c codes
		code := c.give()
		for _, wrong := range []string{"", code[1:], code + "x", strings.ToLower(code)} {
			if c.spend(wrong) {
				t.Errorf("%q is taken", wrong)
			}
		}
		if !c.spend(code) {
			t.Error("a code is not taken")
		}
		if c.spend(code) {
			t.Error("a code is taken twice")
		}

		early := c.give()
		time.Sleep(codeLife / 2)
		late := c.give()
		time.Sleep(codeLife / 2)
		if c.spend(early) {
			t.Error("a code is taken after a minute")
		}
		time.Sleep(codeLife/2 - time.Nanosecond)
		if !c.spend(late) {
			t.Error("a code is not taken just before a minute is over")
		}

		var all []string
		for range mostCodes + 1 {
			all = append(all, c.give())
		}
		if c.spend(all[0]) {
			t.Error("there are more codes than may be")
		}
		for _, code := range all[1:] {
			if !c.spend(code) {
				t.Error("one of the last codes is not taken")
			}
		}
		if len(c.given) != 0 {
			t.Errorf("%d are left", len(c.given))
		}
	})
}

func TestPageTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const key = "the key"
		token := pageToken(key)
		parts := strings.Split(token, ".")
		if len(parts) != 3 || len(parts[0]) != 32 || len(parts[2]) != 64 {
			t.Fatalf("a token looks like %q", token)
		}
		if token == pageToken(key) {
			t.Error("two tokens are the same")
		}
		nonce, expiry, mac := parts[0], parts[1], parts[2]
		for _, wrong := range []string{
			"", ".", "..", nonce + "." + expiry, nonce + "." + expiry + ".", nonce + "." + expiry + "." + mac[1:],
			nonce + "." + expiry + "0." + mac, nonce + expiry + "." + mac, nonce[1:] + "." + expiry + "." + mac, strings.ToUpper(token), key,
		} {
			if isPageToken(key, wrong) {
				t.Errorf("%q is taken", wrong)
			}
		}
		if isPageToken("another", token) {
			t.Error("a token of another key is taken")
		}
		time.Sleep(tokenLife - time.Second)
		if !isPageToken(key, token) {
			t.Error("a token is not taken within its day")
		}
		time.Sleep(time.Second)
		if isPageToken(key, token) {
			t.Error("a token is taken after its day")
		}
	})
}

// a visit is how a page comes to its token.
func (p *place) visit() (token string) {
	p.t.Helper()
	var given struct {
		Code    string
		Expires int `json:"expires_in"`
	}
	p.ask("POST", "/api/v1/code", "").decode(p.t, &given)
	if given.Code == "" || given.Expires != 60 {
		p.t.Fatalf("a code: %+v", given)
	}
	offer := fmt.Sprintf(`{"code":%q}`, given.Code)
	if r := p.ask("POST", "/api/v1/page", offer, "Authorization", "", "Origin", "http://evil.example"); r.code() != "forbidden_origin" {
		p.t.Errorf("a page of another origin: %d %s", r.status, r.body)
	}
	var got struct{ Token string }
	p.ask("POST", "/api/v1/page", offer, "Authorization", "", "Origin", p.url).decode(p.t, &got)
	if got.Token == "" {
		p.t.Fatal("no token")
	}
	if r := p.ask("POST", "/api/v1/page", offer, "Authorization", ""); r.status != 401 || r.code() != "invalid_code" {
		p.t.Errorf("a code that was used: %d %s", r.status, r.body)
	}
	return got.Token
}

// What a token opens, and what it does not.
func TestPage(t *testing.T) {
	p := settle(t, nil)
	token := p.visit()
	with := func(method, path string) reply {
		return p.ask(method, path, "", "Authorization", "Bearer "+token)
	}
	for _, path := range []string{"/api/v1/server", "/api/v1/upstreams", "/api/v1/peers", "/api/v1/executions?limit=1"} {
		if r := with("GET", path); r.status != 200 {
			t.Errorf("GET %s: %d %s", path, r.status, r.body)
		}
		if r := with("POST", path); r.status != 401 {
			t.Errorf("POST %s: %d %s", path, r.status, r.body)
		}
	}
	for _, path := range []string{"/api/v1/stop", "/api/v1/key", "/api/v1/code", "/api/v1/upstreams/restart", "/api/v1/announce", "/metrics", "/mcp"} {
		for _, method := range []string{"GET", "POST", "DELETE"} {
			if r := with(method, path); r.status != 401 && r.code() != "not_found" {
				t.Errorf("%s %s: %d %s", method, path, r.status, r.body)
			}
		}
	}
	if strings.Contains(p.log.String(), token) {
		t.Error("the token was logged")
	}
	if _, err := p.folder.RotateKey(); err != nil {
		t.Fatal(err)
	}
	if r := with("GET", "/api/v1/server"); r.status != 401 {
		t.Errorf("after the key was rotated: %d %s", r.status, r.body)
	}
}

// A page goes on with the next server of its checkout.
func TestPageOutlivesItsServer(t *testing.T) {
	p := settle(t, nil)
	token := p.visit()
	next, err := New(Config{Checkout: p.checkout, Folder: p.folder, Policy: policy(), Listener: p.server.cfg.Listener})
	if err != nil {
		t.Fatal(err)
	}
	key := next.currentKey()
	if key == nil || !isPageToken(key.text, token) {
		t.Error("the next server does not know the token")
	}
}

func TestCockpit(t *testing.T) {
	p := settle(t, nil)
	for path, mediaType := range map[string]string{
		"/cockpit": "text/html; charset=utf-8", "/cockpit/app.js": "text/javascript; charset=utf-8",
		"/cockpit/style.css": "text/css; charset=utf-8", "/cockpit/icon.svg": "image/svg+xml",
	} {
		r := p.ask("GET", path, "", "Authorization", "")
		if r.status != 200 || r.body == "" || r.header.Get("Content-Type") != mediaType {
			t.Errorf("%s: %d %s", path, r.status, r.header.Get("Content-Type"))
		}
		for _, must := range []string{"default-src 'none'", "script-src 'self'", "connect-src 'self'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'"} {
			if policy := r.header.Get("Content-Security-Policy"); !strings.Contains(policy+";", must+";") || strings.Contains(policy, "unsafe") {
				t.Errorf("%s: %s is not in %q", path, must, policy)
			}
		}
	}
}

// endings opens every stream that lasts as long as its client likes, and returns
// what each has come to when it has ended.
func (p *place) endings(token string) map[string]<-chan error {
	p.t.Helper()
	id := p.session()
	all := map[string]<-chan error{}
	open := func(name, method, path, body, key string, header ...string) {
		p.t.Helper()
		req, err := http.NewRequest(method, p.url+path, strings.NewReader(body))
		if err != nil {
			p.t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+key)
		req.Header.Set("Accept", "application/json, text/event-stream")
		req.Header.Set("Content-Type", "application/json")
		for i := 0; i < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		resp, err := p.client.Do(req)
		if err != nil {
			p.t.Fatal(err)
		}
		if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
			p.t.Fatalf("%s: %s", name, resp.Status)
		}
		ended := make(chan error, 1)
		all[name] = ended
		go func() { // until the stream ends, or the server
			defer resp.Body.Close()
			_, err := io.Copy(io.Discard, resp.Body)
			ended <- err
		}()
	}
	open("a page's events", "GET", "/api/v1/events", "", token)
	open("events", "GET", "/api/v1/events", "", p.key)
	open("a session's stream", "GET", "/mcp", "", p.key, "Mcp-Session-Id", id)
	open("a listen", "POST", "/mcp", `{"jsonrpc":"2.0","id":"l","method":"subscriptions/listen","params":{"notifications":{"resourcesListChanged":true},`+modern+`}}`, p.key,
		"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "subscriptions/listen")
	return all
}

// A stream does not outlive the key that it was opened with, whether this server
// is told of another one or finds it; calls do, and links, which are this
// account's own processes.
func TestStreamsEndWithTheirKey(t *testing.T) {
	for _, told := range []bool{true, false} {
		t.Run(fmt.Sprintf("told %v", told), func(t *testing.T) {
			t.Parallel()
			p := settle(t, nil)
			link := p.peer("1111")
			streams := p.endings(p.visit())
			link.say(call("7", "majordomus_wait", `{"seconds":60,"until":"board"}`))
			id := p.session()
			called := make(chan reply, 1)
			go func() {
				r, _ := p.try("POST", "/mcp", call("8", "majordomus_wait", `{"seconds":60,"until":"board"}`), "Accept", "application/json, text/event-stream", "Mcp-Session-Id", id)
				called <- r
			}()
			eventually(t, "both calls run", func() bool { _, calls := p.server.core.Stats(); return calls >= 2 })

			// The same key read again is no other key.
			if r := p.ask("POST", "/api/v1/key", ""); r.status != 200 {
				t.Fatal(r.status, r.body)
			}
			for name, ended := range streams {
				select {
				case err := <-ended:
					t.Errorf("%s ended with the key as it was: %v", name, err)
				default:
				}
			}
			fresh, err := p.folder.RotateKey()
			if err != nil {
				t.Fatal(err)
			}
			p.key = fresh
			if told {
				if r := p.ask("POST", "/api/v1/key", ""); r.status != 200 {
					t.Fatal(r.status, r.body)
				}
			}
			for name, ended := range streams {
				select {
				case err := <-ended:
					if err != nil {
						t.Errorf("%s ended with %v", name, err)
					}
				case <-time.After(patience):
					t.Errorf("%s goes on", name)
				}
			}
			// Whoever comes ends the calls, which wait for others.
			p.peer("2222")
			link.hear(`"id":7`, "result")
			select {
			case r := <-called:
				if r.status != 200 || !strings.Contains(r.body, `"id":8`) {
					t.Errorf("the call is answered %d %s", r.status, r.body)
				}
			case <-time.After(patience):
				t.Error("the call is not answered")
			}
			if n := p.server.streams.Load(); n != 0 {
				t.Errorf("%d streams are counted", n)
			}
		})
	}
}

// A page's stream ends when its token does, to the second.
func TestStreamEndsWithItsToken(t *testing.T) {
	p := prepare(t, nil)
	synctest.Test(t, func(t *testing.T) {
		network := &memory{make(chan net.Conn), make(chan struct{})}
		s, err := New(Config{Checkout: p.checkout, Folder: p.folder, Policy: policy(), Listener: network})
		if err != nil {
			t.Fatal(err)
		}
		s.prepare()
		var wg, conns sync.WaitGroup
		web := s.newWeb(&conns)
		wg.Go(func() { web.Serve(network) }) // ignore error: it is closed
		defer func() {
			s.core.Close()
			web.Close()
			wg.Wait()
			conns.Wait()
		}()
		begun := time.Now()
		open := func(key string) <-chan time.Duration {
			t.Helper()
			req, err := http.NewRequestWithContext(t.Context(), "GET", s.url+"/api/v1/events", nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer "+key)
			resp, err := (&http.Client{Transport: &http.Transport{DialContext: network.dial, DisableKeepAlives: true}}).Do(req)
			if err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != 200 {
				t.Fatal(resp.Status)
			}
			ended := make(chan time.Duration, 1)
			wg.Go(func() {
				defer resp.Body.Close()
				io.Copy(io.Discard, resp.Body) // ignore error: it is asked when
				ended <- time.Since(begun)
			})
			return ended
		}
		key := s.currentKey().text
		paged, keyed := open(pageToken(key)), open(key)
		time.Sleep(tokenLife + time.Hour)
		synctest.Wait()
		select {
		case took := <-paged:
			if took != tokenLife {
				t.Errorf("ended after %v", took)
			}
		default:
			t.Error("goes on")
		}
		select {
		case took := <-keyed:
			t.Errorf("who has the key is heard out after %v", took)
		default:
		}
	})
}
