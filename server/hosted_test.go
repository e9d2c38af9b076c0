package server

import (
	"net"
	"strings"
	"sync/atomic"
	"testing"

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
