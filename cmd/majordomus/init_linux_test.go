package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestInitAsks has a person at a terminal. A no to the editors is no failure:
// the checkout has begun.
func TestInitAsks(t *testing.T) {
	t.Parallel()
	c := accOwn(t)
	c.onPath(true)
	c.extra = append(c.extra, "PATH=/nowhere")
	outside := filepath.Join(filepath.Dir(c.root), "outside")
	if err := os.Mkdir(outside, 0o755); err != nil {
		t.Fatal(err)
	}
	c.writeFile(filepath.Join(c.root, ".junie/mcp/mcp.json"), "{}\n")
	for _, tt := range []struct {
		dir, typed, asks, says string
		code                   int
	}{
		{outside, "n", "in no git work tree. Make it a checkout all the same? [y/N] ", "the answer is no", exitNo},
		{outside, "y", "in no git work tree. Make it a checkout all the same? [y/N] ", "", exitDone},
		{c.root, "n", "have all of these start majordomus? [y/N] ", "later: majordomus install editor junie\n", exitDone},
		{c.root, "y", "have all of these start majordomus? [y/N] ", ".junie/mcp/mcp.json was changed\n", exitDone},
	} {
		t.Run(filepath.Base(tt.dir)+" "+tt.typed, func(t *testing.T) {
			person, program := accTerminal(t)
			cmd := c.command("init")
			var out bytes.Buffer
			var log accBuffer
			cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = tt.dir, program, &out, &log
			cmd.WaitDelay = 10 * time.Second
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			accPoll(t, 20*time.Second, "the question", func() error {
				if !strings.HasSuffix(log.String(), tt.asks) {
					return errors.New(log.String())
				}
				return nil
			})
			if tt.dir == outside && there(filepath.Join(outside, ".ai")) {
				t.Error("written before the answer")
			}
			if _, err := io.WriteString(person, tt.typed+"\n"); err != nil {
				t.Fatal(err)
			}
			cmd.Wait() // ignore error: the code says it
			if code := cmd.ProcessState.ExitCode(); code != tt.code || !strings.Contains(out.String()+log.String(), tt.says) {
				t.Errorf("exit code %d, said %s%s", code, &out, log.String())
			}
			if tt.dir == outside && there(filepath.Join(outside, ".ai/repo")) != (tt.code == exitDone) {
				t.Error("the answer was not heeded")
			}
		})
	}
	c.must("uninstall", "editor", "--all")
}
