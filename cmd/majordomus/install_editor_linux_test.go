package main

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"strings"
	"testing"
	"time"
)

// TestInstallEditorAsks has a person at a terminal: only a yes is one.
func TestInstallEditorAsks(t *testing.T) {
	c := accFresh(t)
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
