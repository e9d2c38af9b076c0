package main

import "majordomus/server/hub/child/procstat"

// process names a process, and tells its parent. What the system's first one has
// started is nobody's.
func process(pid int) (name string, parent int) {
	if pid <= 1 {
		return "", 0
	}
	s, ok := procstat.Read(pid)
	if !ok {
		return "", 0
	}
	return processName(pid, s.Start), s.Parent
}
