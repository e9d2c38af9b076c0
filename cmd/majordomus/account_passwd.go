//go:build unix && !darwin

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// systemHome is the folder that the system has for this account. The library's
// user.Current takes HOME where it does not find the account in the file, and
// in a program without cgo it looks nowhere else; getent knows accounts that
// come over the network too.
func systemHome() (string, error) {
	uid := strconv.Itoa(os.Getuid())
	if b, err := os.ReadFile("/etc/passwd"); err == nil {
		if home := homeIn(string(b), uid); home != "" {
			return home, nil
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for _, getent := range []string{"/usr/bin/getent", "/bin/getent", "/run/current-system/sw/bin/getent"} {
		cmd := exec.CommandContext(ctx, getent, "passwd", uid)
		cmd.Env, cmd.WaitDelay = []string{}, time.Second
		if b, err := cmd.Output(); err == nil {
			if home := homeIn(string(b), uid); home != "" {
				return home, nil
			}
		}
	}
	return "", fmt.Errorf("the system knows no home of this account (user %s)", uid)
}

// homeIn finds a user's home in lines as /etc/passwd has them.
func homeIn(lines, uid string) string {
	for line := range strings.Lines(lines) {
		if f := strings.Split(strings.TrimSpace(line), ":"); len(f) == 7 && f[2] == uid && filepath.IsAbs(f[5]) {
			return filepath.Clean(f[5])
		}
	}
	return ""
}
