package server

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"majordomus/lease"
)

// TestGate asks for everything by everybody in every state, and compares with
// the rules written down once more.
func TestGate(t *testing.T) {
	for _, state := range []string{"held", "lost", "draining"} {
		t.Run(state, func(t *testing.T) {
			p := settle(t, nil)
			known := p.session()
			want := "" // of somebody new
			switch state {
			case "lost":
				p.lose()
				want = codeLost
			case "draining":
				l := p.link("0b1d0000-0000-4000-8000-000000000000")
				l.say(call("1", "majordomus_wait", `{"seconds":300}`))
				eventually(t, "a call in flight", func() bool { _, n := p.server.core.Stats(); return n == 1 })
				p.server.stop(false)
				want = codeDraining
			}
			ours := strings.TrimPrefix(p.url, "http://")
			_, port, _ := net.SplitHostPort(ours)
			hosts := map[string]bool{
				ours: true, "localhost:" + port: true, "LOCALHOST:" + port: true, "[::1]:" + port: true,
				"127.0.0.1": false, "localhost:1": false, "evil.example:" + port: false, "127.0.0.1.evil.example:" + port: false,
				"[::1]": false, "127.1:" + port: false, "0.0.0.0:" + port: false,
			}
			origins := map[string]bool{
				"": true, "http://" + ours: true, "http://localhost:" + port: true,
				"null": false, "https://" + ours: false, "http://evil.example": false, "http://localhost": false, "http://" + ours + "/": false, ours: false,
			}
			keys := map[string]bool{"": false, "Bearer " + p.key: true, "bearer " + p.key: true, "Bearer " + p.key[1:]: false,
				"Bearer ": false, "Basic " + p.key: false, p.key: false}
			routes := map[string]struct {
				open   bool
				method string
			}{
				"/": {true, "GET"}, "/api/v1/health": {true, "GET"}, "/api/v1/live": {true, "GET"}, "/api/v1/ready": {true, "GET"},
				"/api/v1/server": {false, "GET"}, "/api/v1/upstreams": {false, "GET"}, "/api/v1/upstreams/restart": {false, "POST"}, "/api/v1/stop": {false, "POST"}, "/api/v1/key": {false, "POST"},
				"/api/v1/code": {false, "POST"}, "/api/v1/page": {true, "POST"}, "/cockpit": {true, "GET"}, "/cockpit/app.js": {true, "GET"}, "/cockpit/": {true, ""},
				"/mcp": {false, ""}, "/nowhere": {true, ""}, "//": {true, ""}, "/mcp/": {true, ""}, "/api/v1/server/": {true, ""},
			}
			n := 0
			for path, to := range routes {
				for _, method := range []string{"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"} {
					for host, goodHost := range hosts {
						for origin, goodOrigin := range origins {
							if !goodHost && origin != "" && origin != "null" {
								continue // enough is enough
							}
							for key, goodKey := range keys {
								for _, who := range []string{"", known} {
									if who != "" && path != "/mcp" {
										continue
									}
									code := ""
									fits := method == to.method || method == "HEAD" && to.method == "GET"
									switch {
									case !goodHost:
										code = "forbidden_host"
									case !goodOrigin:
										code = "forbidden_origin"
									case path == "/mcp" && method == "POST" && who == "" && want != "":
										code = want
									case !to.open && !goodKey:
										code = "unauthorized"
									case path == "/mcp":
										if method == "GET" || method == "DELETE" || method == "POST" && who == "" {
											continue // lets somebody in, or out
										}
									case to.method == "":
										code = "not_found"
									case !fits:
										code = "method_not_allowed"
									case path == "/api/v1/stop":
										continue
									case path == "/api/v1/upstreams/restart":
										code = "upstream_not_found" // it names none
									case path == "/api/v1/page":
										code = "invalid_code" // it brings none
									case want != "" && (path == "/api/v1/live" || path == "/api/v1/ready"):
										code = want
									}
									r := p.ask(method, path, "", "Host", host, "Origin", origin, "Authorization", key, "Mcp-Session-Id", who)
									n++
									got := r.code()
									if method == "HEAD" {
										if r.body != "" {
											t.Errorf("a body for HEAD %s", path)
										}
										got = code // there is none to read it from
									}
									status := map[string]int{"forbidden_host": 403, "forbidden_origin": 403, codeLost: 409, codeDraining: 503,
										"unauthorized": 401, "invalid_code": 401, "not_found": 404, "upstream_not_found": 404, "method_not_allowed": 405, "": 200}[code]
									if strings.HasSuffix(path, "/live") || strings.HasSuffix(path, "/ready") {
										if status == 409 {
											status = 503
										}
									}
									if path == "/mcp" && code == "" { // what is behind the gate answers
										if slices.Contains([]string{"forbidden_host", "forbidden_origin", codeLost, codeDraining, "unauthorized"}, got) {
											t.Errorf("%s /mcp by %q: %s", method, who, got)
										}
										continue
									}
									if r.status != status || got != code {
										t.Errorf("%s %s host %q origin %q key %.12q who %q: %d %q, want %d %q", method, path, host, origin, key, who, r.status, got, status, code)
									}
									if code == "method_not_allowed" && !strings.Contains(r.header.Get("Allow"), to.method) {
										t.Errorf("%s %s: Allow %q", method, path, r.header.Get("Allow"))
									}
									if code != "" && r.header.Get("Content-Type") != "application/json" {
										t.Errorf("%s %s: %s", method, path, r.header.Get("Content-Type"))
									}
									if r.header.Get("X-Content-Type-Options") != "nosniff" || r.header.Get("Cache-Control") != "no-store" {
										t.Errorf("%s %s: headers %v", method, path, r.header)
									}
								}
							}
						}
					}
				}
			}
			t.Log(n, "requests")
			if strings.Contains(p.log.String(), p.key) {
				t.Error("the key was logged")
			}
			// A link is somebody new, whoever it is.
			r := p.ask("GET", "/mcp", "", "Connection", "Upgrade", "Upgrade", "majordomus-frames/1", "Authorization", "", "Mcp-Session-Id", known)
			if r.code() != want && want != "" || want == "" && r.code() != "unauthorized" {
				t.Errorf("a link: %d %s", r.status, r.body)
			}
			// Those who are in go on.
			r = p.ask("POST", "/mcp", call("7", "majordomus_server", "{}"), "Mcp-Session-Id", known)
			if r.status != 200 || !strings.Contains(r.body, `"structuredContent"`) {
				t.Errorf("a session that is in: %d %s", r.status, r.body)
			}
		})
	}
}

func TestOtherHosts(t *testing.T) {
	p := settle(t, func(c *Config) { c.Hosts = []string{"box.example", "0.0.0.0"} })
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(p.url, "http://"))
	for host, code := range map[string]string{
		"box.example:" + port: "", "BOX.example:" + port: "", "127.0.0.1:" + port: "",
		"0.0.0.0:" + port: "forbidden_host", "10.0.0.9:" + port: "forbidden_host", "other.example:" + port: "forbidden_host", "box.example": "forbidden_host",
	} {
		if r := p.ask("GET", "/", "", "Host", host, "Origin", "http://"+host); r.code() != code {
			t.Errorf("%s: %d %s", host, r.status, r.body)
		}
	}
	if !strings.Contains(p.log.String(), "beyond this machine") {
		t.Error("not warned about")
	}
}

func TestNoAuth(t *testing.T) {
	p := settle(t, func(c *Config) { c.NoAuth = true })
	if r := p.ask("GET", "/api/v1/server", "", "Authorization", ""); r.status != 200 {
		t.Errorf("%d %s", r.status, r.body)
	}
	if !strings.Contains(p.log.String(), "NO KEY") {
		t.Error("not said loudly")
	}
}

// Who rotates the key writes the file first. From then on this server is no
// stranger to those who read the file, whether or not it is told.
func TestRotatedKey(t *testing.T) {
	status := func(p *place, key string) int {
		return p.ask("GET", "/api/v1/server", "", "Authorization", "Bearer "+key).status
	}
	rotate := func(t *testing.T) (p *place, old, fresh string) {
		p = settle(t, nil)
		fresh, err := p.folder.RotateKey()
		if err != nil {
			t.Fatal(err)
		}
		return p, p.key, fresh
	}
	known := func(t *testing.T, p *place, old, fresh string) {
		if s := status(p, old); s != 401 {
			t.Errorf("the old key: %d", s)
		}
		if s := status(p, fresh); s != 200 {
			t.Errorf("the new key: %d", s)
		}
		if reply := p.folder.Probe(t.Context(), p.folder.Read().Document); reply.Err != nil || reply.Outcome != lease.Ours {
			t.Error(reply)
		}
	}
	t.Run("told with the old key", func(t *testing.T) {
		p, old, fresh := rotate(t)
		if r := p.ask("POST", "/api/v1/key", ""); r.status != 200 {
			t.Fatalf("telling: %d %s", r.status, r.body)
		}
		known(t, p, old, fresh)
	})
	t.Run("told with the new key", func(t *testing.T) {
		p, old, fresh := rotate(t)
		p.key = fresh
		if r := p.ask("POST", "/api/v1/key", ""); r.status != 200 {
			t.Fatalf("telling: %d %s", r.status, r.body)
		}
		known(t, p, old, fresh)
	})
	t.Run("met with the new key", func(t *testing.T) {
		p, old, fresh := rotate(t)
		if s := status(p, fresh); s != 200 {
			t.Errorf("the new key: %d", s)
		}
		known(t, p, old, fresh)
	})
	t.Run("asked for a proof", func(t *testing.T) {
		p, old, fresh := rotate(t)
		if reply := p.folder.Probe(t.Context(), p.folder.Read().Document); reply.Err != nil || reply.Outcome != lease.Ours {
			t.Fatal(reply)
		}
		known(t, p, old, fresh)
	})
	t.Run("the file is gone", func(t *testing.T) {
		p, old, _ := rotate(t)
		if err := os.Remove(filepath.Join(filepath.Dir(p.folder.LeasePath()), "key")); err != nil {
			t.Fatal(err)
		}
		if s := status(p, "wrong"); s != 401 {
			t.Errorf("a wrong key: %d", s)
		}
		if s := status(p, old); s != 200 {
			t.Errorf("the key it has: %d", s)
		}
	})
}

func TestBodies(t *testing.T) {
	p := settle(t, nil)
	for body, code := range map[string]string{
		"[":                        "invalid_json",
		`{"force":"yes"}`:          "invalid_json",
		strings.Repeat(" ", 1<<17): "payload_too_large",
	} {
		if r := p.ask("POST", "/api/v1/stop", body); r.code() != code {
			t.Errorf("%.20q: %d %s", body, r.status, r.body)
		}
	}
	if p.server.reason() != "" {
		t.Error("it stops")
	}
}

// Somebody who sends slowly, or nothing at all, does not keep a connection.
func TestSlowSenders(t *testing.T) {
	p := settle(t, func(c *Config) { c.Policy.ReadDeadline = 100 * time.Millisecond })
	host := strings.TrimPrefix(p.url, "http://")
	for name, sent := range map[string]string{
		"nothing":              "",
		"half a header":        "GET / HTTP/1.1\r\nHo",
		"no body":              "POST /api/v1/stop HTTP/1.1\r\nHost: " + host + "\r\nAuthorization: Bearer " + p.key + "\r\nContent-Length: 10\r\n\r\n",
		"no body, turned away": "POST /api/v1/stop HTTP/1.1\r\nHost: " + host + "\r\nContent-Length: 10\r\n\r\n",
		"no body to mcp":       "POST /mcp HTTP/1.1\r\nHost: " + host + "\r\nContent-Length: 10\r\n\r\n",
		"after an answer":      "GET / HTTP/1.1\r\nHost: " + host + "\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := net.Dial("tcp", host)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			io.WriteString(conn, sent)
			conn.SetDeadline(time.Now().Add(patience))
			if _, err := io.ReadAll(conn); err != nil && strings.Contains(err.Error(), "timeout") {
				t.Error("kept")
			}
		})
	}
	if p.server.reason() != "" {
		t.Error("it stops")
	}
}

func TestHead(t *testing.T) {
	p := settle(t, nil)
	get, head := p.ask("GET", "/api/v1/health", ""), p.ask("HEAD", "/api/v1/health", "")
	if head.status != 200 || head.header.Get("Content-Length") != fmt.Sprint(len(get.body)) || head.body != "" {
		t.Errorf("%+v", head)
	}
}

var _ http.Handler = (*Server)(nil)
