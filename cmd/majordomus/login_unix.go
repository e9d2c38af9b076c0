//go:build unix

package main

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// loginPath is the PATH that the person's shell has after login, which is what
// editors ask it for when a desktop has started them; "" where it does not say.
func (a *app) loginPath(ctx context.Context) string {
	shell := a.getenv("SHELL")
	if !filepath.IsAbs(shell) {
		return ""
	}
	// Long startup files are known; a person is not kept waiting longer.
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	const mark = "majordomus-path"
	cmd := exec.CommandContext(ctx, shell, "-l", "-i", "-c", `printf '\n%s=%s\n' `+mark+` "$PATH"`)
	cmd.Env = []string{"SHELL=" + shell, "TERM=dumb", "PATH=" + usualPath}
	for _, name := range []string{"HOME", "USER", "LOGNAME", "LANG", "XDG_CONFIG_HOME", "ZDOTDIR"} {
		if v := a.getenv(name); v != "" {
			cmd.Env = append(cmd.Env, name+"="+v)
		}
	}
	// Away from the terminal, which an interactive shell would take.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second // what it has left behind may hold the stream
	out, _ := cmd.Output()      // ignore error: what it has said counts
	for line := range strings.Lines(string(out)) {
		if path, ok := strings.CutPrefix(strings.TrimRight(line, "\r\n"), mark+"="); ok {
			return path
		}
	}
	return ""
}

// usualPath is what programs have that a desktop has started.
const usualPath = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
