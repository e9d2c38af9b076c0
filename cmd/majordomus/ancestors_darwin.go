package main

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// process names a process, and tells its parent. What the system's first one has
// started is nobody's.
func process(pid int) (name string, parent int) {
	if pid <= 1 {
		return "", 0
	}
	k, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil {
		return "", 0
	}
	start := k.Proc.P_starttime
	return processName(pid, fmt.Sprintf("%d.%06d", start.Sec, start.Usec)), int(k.Eproc.Ppid)
}
