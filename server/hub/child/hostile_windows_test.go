package child

import (
	"bufio"
	"os/exec"
	"syscall"

	"golang.org/x/sys/windows"
)

func ignoreAsking() {}

func hold() {}

// outside has a relative leave the group.
func outside(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: windows.CREATE_BREAKAWAY_FROM_JOB}
}

// holdToo does nothing: a relative here has three handles, and holds stderr.
func holdToo(*exec.Cmd) {}

func bePlatform(string, *bufio.Reader) int { return 2 }
