//go:build unix

package server

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"majordomus/server/hub/config"
)

// What a killed server leaves is found by records in the state folder.
func TestHostedGroupsAreRecorded(t *testing.T) {
	t.Parallel()
	p := settle(t, func(c *Config) {
		c.Hosting = hosting(config.Server{Name: "mute", Command: "/bin/sh", Args: []string{"-c", "while read x; do :; done"}})
		c.Hosting.Resolve = func(s config.Server) (config.Server, []string, error) {
			s.Cwd = c.Checkout.Root
			return s, []string{"PATH=" + os.Getenv("PATH")}, nil
		}
	})
	p.ask("POST", "/api/v1/upstreams/restart", `{"name":"mute"}`)
	folder := filepath.Join(filepath.Dir(p.folder.LeasePath()), "hosted")
	eventually(t, "there is a record", func() bool {
		files, err := filepath.Glob(filepath.Join(folder, "*.json"))
		if err != nil || len(files) != 1 {
			return false
		}
		b, err := os.ReadFile(files[0])
		return err == nil && strings.Contains(string(b), `"name":"mute"`)
	})
}
