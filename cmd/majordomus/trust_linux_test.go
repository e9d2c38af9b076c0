package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// accTerminal opens a terminal: what is typed into person arrives at program.
func accTerminal(t *testing.T) (person, program *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	accNeed(t, err == nil, fmt.Sprintf("no terminal can be made: %v", err))
	t.Cleanup(func() { person.Close() })
	n, err := unix.IoctlGetInt(int(person.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(person.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	accNeed(t, err == nil, fmt.Sprintf("no terminal can be opened: %v", err))
	t.Cleanup(func() { program.Close() })
	return person, program
}

// TestTrustAsks has a person at a terminal: only a yes is one, and nothing is
// recorded before it.
func TestTrustAsks(t *testing.T) {
	t.Parallel()
	c := accFresh(t)
	c.write(".ai/repo/mcp.json", `{"mcpServers": {"a": {"command": "x"}}}`, 0o644)
	for _, tt := range []struct {
		typed string
		args  []string
		code  int
		says  string
	}{
		{"\n", nil, exitNo, "the answer is no"},
		{"n\n", nil, exitNo, "the answer is no"},
		{"yesterday\n", nil, exitNo, "the answer is no"},
		{"\x04", nil, exitWords, "--yes"}, // the end of input
		{"interrupt", nil, exitFailed, "interrupted"},
		{" Y \n", []string{"--format", "json"}, exitDone, ""},
	} {
		t.Run(fmt.Sprintf("%q", tt.typed), func(t *testing.T) {
			person, program := accTerminal(t)
			cmd := c.command(append([]string{"trust"}, tt.args...)...)
			var out bytes.Buffer
			var log accBuffer
			cmd.Stdin, cmd.Stdout, cmd.Stderr = program, &out, &log
			cmd.WaitDelay = 10 * time.Second
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			accPoll(t, 20*time.Second, "the question", func() error {
				if !strings.HasSuffix(log.String(), "run these from now on? [y/N] ") {
					return errors.New(log.String())
				}
				return nil
			})
			if _, ok := c.recorded(); ok {
				t.Error("recorded before the answer")
			}
			if tt.typed == "interrupt" {
				if err := cmd.Process.Signal(os.Interrupt); err != nil {
					t.Fatal(err)
				}
			} else if _, err := io.WriteString(person, tt.typed); err != nil {
				t.Fatal(err)
			}
			err := cmd.Wait()
			var exit *exec.ExitError
			if err != nil && !errors.As(err, &exit) {
				t.Fatal(err)
			}
			if code := cmd.ProcessState.ExitCode(); code != tt.code || !strings.Contains(log.String(), tt.says) {
				t.Errorf("exit code %d, said %s", code, log.String())
			}
			shown := out.String()
			if len(tt.args) > 0 {
				shown = log.String()
			}
			if !strings.Contains(shown, "runs     x\n") {
				t.Errorf("asked without showing what runs: %s", shown)
			}
			if len(tt.args) > 0 && !strings.HasPrefix(out.String(), "{") {
				t.Errorf("not JSON: %s", out.String())
			}
			if _, ok := c.recorded(); ok != (tt.code == exitDone) {
				t.Errorf("recorded: %v", ok)
			}
		})
	}
}
