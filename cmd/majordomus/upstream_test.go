//go:build unix

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"majordomus/server/hub/config"
)

func (c *accCheckout) holds(name, want string) {
	c.t.Helper()
	b, err := os.ReadFile(filepath.Join(c.root, name))
	if err != nil || string(b) != want {
		c.t.Errorf("%s: %v\n%s\nwant\n%s", name, err, b, want)
	}
}

func TestUpstreamImport(t *testing.T) {
	t.Parallel()
	c := accFresh(t)
	const cursor = `{
  // my servers
  "mcpServers": {
    "majordomus": {"command": "majordomus", "args": ["mcp"]},
    "files": {
      "command": "npx", // newest
      "args": ["-y", "files"]
    },
    "git": {"command": "git-mcp", "env": {"GIT_TOKEN": "s3cret"}},
    "off": {"command": "x", "disabled": true}, // broken
    "mine": {"command": "y", "args": ["${input:key}"]}
  },
  "more": [1, 2]
}
`
	c.write(".cursor/mcp.json", cursor, 0o640)
	c.says("import/first.txt", "upstream", "import", ".cursor/mcp.json")
	const servers = `{
  "mcpServers": {
    "files": {
      "command": "npx", // newest
      "args": ["-y", "files"]
    },
    "git": {"command": "git-mcp", "env": {"GIT_TOKEN": "${GIT_TOKEN}"}}
  }
}
`
	c.holds(".ai/repo/mcp.json", servers)
	c.holds(".cursor/mcp.json", cursor)
	c.holds(".ai/local/env", "GIT_TOKEN='s3cret'\n")
	c.holds(".ai/local/.gitignore", "*\n")
	if _, err := config.ReadEnv(filepath.Join(c.root, ".ai/local/env")); err != nil {
		t.Error(err)
	}

	// A second time nothing changes, and the servers are still there twice.
	c.says("import/again.txt", "upstream", "import", ".cursor/mcp.json")
	c.holds(".ai/repo/mcp.json", servers)
	c.holds(".ai/local/env", "GIT_TOKEN='s3cret'\n")

	c.says("import/take-out-no-terminal.txt", "upstream", "import", "--take-out", ".cursor/mcp.json")
	c.holds(".cursor/mcp.json", cursor)
	c.says("import/take-out.txt", "upstream", "import", "--take-out", "--yes", ".cursor/mcp.json")
	c.holds(".ai/repo/mcp.json", servers)
	c.holds(".cursor/mcp.json", `{
  // my servers
  "mcpServers": {
    "majordomus": {"command": "majordomus", "args": ["mcp"]},
    "off": {"command": "x", "disabled": true}, // broken
    "mine": {"command": "y", "args": ["${input:key}"]}
  },
  "more": [1, 2]
}
`)
	if info, err := os.Stat(filepath.Join(c.root, ".cursor/mcp.json")); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	c.says("import/nothing-left.txt", "upstream", "import", "--take-out", ".cursor/mcp.json")

	// Take-out without a terminal and without --yes does nothing at all, also
	// not the half that needs no question.
	c.write(".vscode/mcp.json", `{"servers": {"new": {"type": "stdio", "command": "z", "args": ["--token", "s3cret"]}}, "inputs": []}`, 0o644)
	c.says("import/vscode-no-terminal.txt", "upstream", "import", "--take-out", ".vscode/mcp.json", "--format", "json")
	c.holds(".ai/repo/mcp.json", servers)
	c.holds(".ai/local/env", "GIT_TOKEN='s3cret'\n")
	c.says("import/vscode-json.txt", "upstream", "import", "--take-out", "--yes", ".vscode/mcp.json", "--format", "json")
	c.holds(".vscode/mcp.json", `{"servers": {}, "inputs": []}`)
	c.holds(".ai/local/env", "GIT_TOKEN='s3cret'\nNEW_TOKEN='s3cret'\n")

	c.says("import/itself.txt", "upstream", "import", ".ai/repo/mcp.json")
	c.says("import/missing.txt", "upstream", "import", "nowhere.json")
	c.says("import/no-file.txt", "upstream", "import")
	c.says("import/only-yes.txt", "upstream", "import", "--yes", ".cursor/mcp.json")
	c.write("config.toml", "[mcp_servers.x]\ncommand = \"x\"\n", 0o644)
	c.says("import/toml.txt", "upstream", "import", "config.toml")
	if out, log, err := c.run("upstream", "list-no-such"); err == nil {
		t.Errorf("an unknown word: %s%s", out, log)
	}

	// Nothing is taken when the secrets have nowhere safe to go.
	if err := os.Chmod(filepath.Join(c.root, ".ai/local/env"), 0o644); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(filepath.Join(c.root, ".ai/repo/mcp.json"))
	if err != nil || strings.Contains(string(before), "s3cret") {
		t.Errorf("%s, %v", before, err)
	}
	c.write(".vscode/mcp.json", `{"servers": {"more": {"command": "z"}}}`, 0o644)
	c.says("import/open-environment.txt", "upstream", "import", "--take-out", "--yes", ".vscode/mcp.json")
	c.holds(".ai/repo/mcp.json", string(before))
	c.holds(".vscode/mcp.json", `{"servers": {"more": {"command": "z"}}}`)
}
