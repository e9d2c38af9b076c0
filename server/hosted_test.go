package server

import (
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
