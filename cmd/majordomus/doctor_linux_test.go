package main

import (
	"bytes"
	"strings"
	"testing"
)

// TestDoctorShell has a person at a terminal, whose shell has loaded the hook or
// not.
func TestDoctorShell(t *testing.T) {
	t.Parallel()
	c := accHealthy(t)
	for entered, says := range map[string]string{"": "this shell has not loaded it", c.root: "is loaded"} {
		_, program := accTerminal(t)
		cmd := c.command("doctor")
		if entered != "" {
			cmd.Env = append(cmd.Env, enteredVar+"="+entered, rootVar+"="+entered)
		}
		var out bytes.Buffer
		cmd.Stdin, cmd.Stdout, cmd.Stderr = program, &out, &out
		cmd.Run() // ignore error: the code says it
		if code, want := cmd.ProcessState.ExitCode(), map[bool]int{true: exitNo}[entered == ""]; code != want || !strings.Contains(out.String(), says) {
			t.Errorf("exit code %d, want %d and %q:\n%s", code, want, says, &out)
		}
	}
	c.must("serve", "stop")
}
