package server

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"majordomus/bridge/frame"
	"majordomus/server/hub/config"
)

// Trust is looked at with nobody there as well, and health says how it stands.
func TestTrustIsFollowedWithoutPeers(t *testing.T) {
	t.Parallel()
	var trusted atomic.Bool
	p := settle(t, func(c *Config) {
		c.Hosting = &Hosting{
			Entries: func() (*config.File, error) {
				if !trusted.Load() {
					return nil, &Untrusted{}
				}
				return &config.File{}, nil
			},
			Resolve: func(s config.Server) (config.Server, []string, error) { return s, nil, nil },
		}
	})
	says := func() bool {
		return strings.Contains(p.ask("GET", "/api/v1/health", "").body, "agree to it: majordomus trust")
	}
	for _, now := range []bool{false, true, false} {
		trusted.Store(now)
		eventually(t, "health follows", func() bool { return says() != now })
	}
}

// far is the address of a server that offers these tools.
func far(t *testing.T, name, tools string) string {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // ignore error: no body is no message
		m, _ := frame.Parse(body)     // ignore error: as above
		result := map[string]string{  // all else has no answer
			"initialize": `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"` + name + `","version":"1"}}`,
			"tools/list": `{"tools":[` + tools + `]}`,
			"tools/call": `{"content":[],"isError":` + strconv.FormatBool(bytes.Contains(m.Params, []byte("wrong"))) + `}`,
		}[m.Name()]
		if result == "" {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Write(frame.Result(m.ID, []byte(result))) // ignore error: the other side may have gone
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

func hosting(servers ...config.Server) *Hosting {
	return &Hosting{
		Entries: func() (*config.File, error) { return &config.File{Digest: "1", Servers: servers}, nil },
		Resolve: func(s config.Server) (config.Server, []string, error) { return s, nil, nil },
	}
}

// What a hosted server offers and no client is shown, health names.
func TestWhatIsLeftOutIsSaid(t *testing.T) {
	t.Parallel()
	tools := `{"name":"good","inputSchema":{"type":"object"}}`
	for i := range 7 {
		tools += fmt.Sprintf(`,{"name":"odd%d","inputSchema":{"type":["object","null"]}}`, i)
	}
	address := far(t, "far", tools)
	p := settle(t, func(c *Config) { c.Hosting = hosting(config.Server{Name: "far", URL: address}) })
	p.ask("POST", "/api/v1/upstreams/restart", `{"name":"far"}`)
	var said string
	eventually(t, "health names it", func() bool {
		said = p.ask("GET", "/api/v1/health", "").body
		return strings.Contains(said, `left out is the tool`)
	})
	for _, want := range []string{`"status":"warn"`, `"id":"upstream:far"`, `\"odd4\": its inputSchema.type is`, "2 more of what it offers"} {
		if !strings.Contains(said, want) {
			t.Errorf("%s is not in %s", want, said)
		}
	}
	if strings.Contains(said, "odd5") || strings.Contains(said, "good") {
		t.Errorf("it says %s", said)
	}
}

// An entry whose address leads to this server, however it is written, is not
// followed: it would host itself in itself.
func TestAServerDoesNotHostItself(t *testing.T) {
	t.Parallel()
	var port string
	p := settle(t, func(c *Config) {
		_, port, _ = net.SplitHostPort(c.Listener.Addr().String()) // ignore error: it is one
		c.Hosting = &Hosting{
			Entries: func() (*config.File, error) {
				return &config.File{Digest: "1", Servers: []config.Server{{Name: "me", URL: "http://localhost:${PORT}/mcp"}}}, nil
			},
			Resolve: func(s config.Server) (config.Server, []string, error) {
				s.URL = strings.Replace(s.URL, "${PORT}", port, 1)
				return s, nil, nil
			},
		}
	})
	eventually(t, "it is tried", func() bool {
		p.ask("POST", "/api/v1/upstreams/restart", `{"name":"me"}`)
		body := p.ask("GET", "/api/v1/upstreams", "").body
		return strings.Contains(body, `"state":"failed"`) && strings.Contains(body, "would host this server in itself")
	})
}

// Two servers that host each other find that out, and go on with all else.
func TestServersDoNotHostEachOther(t *testing.T) {
	t.Parallel()
	var there atomic.Pointer[place] // once it serves
	one := settle(t, func(c *Config) {
		c.Hosting = hosting(config.Server{Name: "two", URL: "http://two.invalid/mcp"})
		c.Hosting.Resolve = func(s config.Server) (config.Server, []string, error) {
			p := there.Load()
			if p == nil {
				return s, nil, errors.New("not yet")
			}
			s.URL, s.Headers = p.url+"/mcp", map[string]string{"Authorization": "Bearer " + p.key}
			return s, nil, nil
		}
	})
	two := settle(t, func(c *Config) {
		c.Hosting = hosting(config.Server{Name: "one", URL: one.url + "/mcp", Headers: map[string]string{"Authorization": "Bearer " + one.key}})
	})
	there.Store(two)
	for name, p := range map[string]*place{"two": one, "one": two} {
		eventually(t, "it is refused", func() bool {
			p.ask("POST", "/api/v1/upstreams/restart", `{"name":"`+name+`"}`)
			return strings.Contains(p.ask("GET", "/api/v1/upstreams", "").body, "hosting ourselves")
		})
	}
}
