package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestInstallEditorAsks has a person at a terminal: only a yes is one.
func TestInstallEditorAsks(t *testing.T) {
	t.Parallel()
	c := accOwn(t)
	c.onPath(true)
	c.extra = append(c.extra, "PATH=/nowhere")
	c.write(".vscode/mcp.json", "{\n  \"servers\": {\n    \"majordomus\": {\"command\": \"butler\"}\n  }\n}\n", 0o644)
	c.write(".junie/mcp/mcp.json", "{}", 0o644)
	for _, tt := range []struct {
		words   []string
		typed   []string // an answer for each question
		asks    string
		code    int
		changed []string
	}{
		{[]string{"install", "editor"}, []string{"n"}, "have all of these start majordomus? [y/N] ", exitNo, nil},
		{[]string{"install", "editor"}, []string{"y", "n"}, "replace it? [y/N] ", exitNo, []string{".junie/mcp/mcp.json"}},
		{[]string{"install", "editor", "vscode"}, []string{"y"}, "replace it? [y/N] ", exitDone, []string{".vscode/mcp.json", ".junie/mcp/mcp.json"}},
		{[]string{"uninstall", "editor"}, []string{"n"}, "take majordomus out of all of these? [y/N] ", exitNo, []string{".vscode/mcp.json", ".junie/mcp/mcp.json"}},
		{[]string{"uninstall", "editor"}, []string{"yes"}, "take majordomus out of all of these? [y/N] ", exitDone, nil},
	} {
		t.Run(strings.Join(append(tt.words, tt.typed...), " "), func(t *testing.T) {
			person, program := accTerminal(t)
			cmd := c.command(tt.words...)
			var out bytes.Buffer
			var log accBuffer
			cmd.Stdin, cmd.Stdout, cmd.Stderr = program, &out, &log
			cmd.WaitDelay = 10 * time.Second
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			for i, answer := range tt.typed {
				accPoll(t, 20*time.Second, "the question", func() error {
					if strings.Count(log.String(), "[y/N] ") != i+1 {
						return errors.New(log.String())
					}
					return nil
				})
				if _, err := io.WriteString(person, answer+"\n"); err != nil {
					t.Fatal(err)
				}
			}
			cmd.Wait() // ignore error: the code says it
			if code := cmd.ProcessState.ExitCode(); code != tt.code || !strings.Contains(log.String(), tt.asks) {
				t.Errorf("exit code %d, said %s%s", code, &out, log.String())
			}
			if strings.Contains(tt.asks, "replace") && !strings.Contains(log.String(), `-     "majordomus": {"command": "butler"}`) {
				t.Errorf("what would go was not shown: %s", log.String())
			}
			want := map[string]bool{}
			for _, name := range tt.changed {
				want[name] = true
			}
			got := map[string]bool{}
			for path, text := range c.files() {
				if name := strings.TrimPrefix(path, c.root+"/"); strings.HasSuffix(name, "mcp.json") && strings.Contains(text, `"args"`) {
					got[name] = true
				}
			}
			if !maps.Equal(got, want) {
				t.Errorf("changed are %v, want %v", got, want)
			}
		})
	}
}

// TestReadmeFromNothing follows the README in an empty home, from a clone to two
// editors on one server. What a person has to answer is answered.
func TestReadmeFromNothing(t *testing.T) {
	t.Parallel() // it waits more than it works
	clients := editorFolder(t, "clients")
	folder := editorFolder(t, "editors")
	node, err := findNode(t, clients)
	need(t, "node 20 or newer", err)
	for _, tool := range []string{"git", "bash"} {
		_, err := exec.LookPath(tool)
		need(t, tool, err)
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(readme), "\nTo use it:\n")
	text, _, _ = strings.Cut(text, "\n## ")
	var commands []string
	for line := range strings.Lines(text) {
		if code, ok := strings.CutPrefix(line, "    "); ok {
			commands = append(commands, strings.TrimSpace(code))
		}
	}
	if len(commands) != 2 || !strings.HasPrefix(commands[0], "go build ") {
		t.Fatalf("the README's commands are %q", commands)
	}

	c := accFresh(t)
	c.program = filepath.Join(c.home, "bin", "majordomus")
	env, err := exec.Command("go", "env", "GOMODCACHE", "GOCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	caches := strings.Fields(string(env))
	bins := filepath.Join(filepath.Dir(c.root), "editors")
	if err := os.Mkdir(bins, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{"claude": clients, "gemini": folder} {
		if err := os.Symlink(filepath.Join(path, "node_modules/.bin", name), filepath.Join(bins, name)); err != nil {
			t.Fatal(err)
		}
	}
	c.extra = []string{
		"PATH=" + strings.Join([]string{filepath.Dir(c.program), bins, filepath.Dir(node), os.Getenv("PATH")}, ":"), "SHELL=/bin/bash", "TERM=dumb",
		"GOMODCACHE=" + caches[0], "GOCACHE=" + caches[1], "GOFLAGS=-ldflags=-X=main.accountHome=" + c.home, // else it is the home of who tests
		"DISABLE_AUTOUPDATER=1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
	}
	run := func(dir, line string, stdin *os.File) string {
		t.Helper()
		cmd := exec.Command("bash", "-c", line)
		cmd.Dir, cmd.Env = dir, c.environ()
		if stdin != nil {
			cmd.Stdin = stdin
		}
		cmd.WaitDelay = 10 * time.Second
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", line, err, out)
		}
		return string(out)
	}

	// The clone has what is here, committed or not.
	clone := filepath.Join(c.home, "clone")
	here, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	run(here, "mkdir "+clone+" && git -c safe.directory='*' ls-files -z -co --exclude-standard | xargs -0 cp --parents -t "+clone+" 2>&1 || true", nil)
	run(clone, commands[0], nil)
	person, program := accTerminal(t)
	if _, err := io.WriteString(person, "y\n"); err != nil {
		t.Fatal(err)
	}
	if out := run(c.root, commands[1], program); !strings.Contains(out, ".mcp.json was made") || !strings.Contains(out, ".gemini/settings.json was made") {
		t.Fatalf("%s says\n%s", commands[1], out)
	}
	// What the editors ask is answered with yes.
	c.write("../home/.claude/settings.json", `{"enableAllProjectMcpServers": true}`, 0o600)
	c.write("../home/.gemini/trustedFolders.json", fmt.Sprintf(`{%q: "TRUST_FOLDER"}`, c.root), 0o600)
	if out := run(c.root, "claude mcp list", nil); !strings.Contains(out, "✔ Connected") {
		t.Errorf("Claude Code says\n%s", out)
	}
	first := c.mustLease()
	if out := run(c.root, "gemini mcp list", nil); !strings.Contains(out, "- Connected") {
		t.Errorf("Gemini CLI says\n%s", out)
	}
	if second := c.mustLease(); second.PID != first.PID || second.Token != first.Token {
		t.Errorf("the second editor came to server %d, the first to %d", second.PID, first.PID)
	}
	if out := run(c.root, "majordomus status", nil); !strings.Contains(out, fmt.Sprint(first.PID)) {
		t.Errorf("the status says\n%s", out)
	}
	run(c.root, "majordomus uninstall editor --all && majordomus serve stop --all", nil)
	for _, name := range []string{".mcp.json", ".gemini"} {
		if there(filepath.Join(c.root, name)) {
			t.Errorf("%s is left", name)
		}
	}
}
