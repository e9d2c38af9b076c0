package child

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// zombie is SZOMB of <sys/proc.h>.
const zombie = 5

// A member is a living process of a group.
type member struct {
	pid   int
	start string // when it was started, in the kernel's words
}

// membersOf returns the living members of a group; known is false where the
// system does not tell.
func membersOf(group int) (members []member, known bool) {
	processes, err := unix.SysctlKinfoProcSlice("kern.proc.pgrp", group)
	if err != nil {
		return nil, false
	}
	for i := range processes {
		if p := &processes[i].Proc; p.P_stat != zombie {
			members = append(members, member{int(p.P_pid), when(p)})
		}
	}
	return members, true
}

func when(p *unix.ExternProc) string {
	return fmt.Sprintf("%d.%06d", p.P_starttime.Sec, p.P_starttime.Usec)
}

// startOf says when a process was started, in the words of members; empty: not
// known. A dead one that nobody has waited for still has its number.
func startOf(pid int) (start string, dead bool) {
	k, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil {
		return "", false
	}
	return when(&k.Proc), k.Proc.P_stat == zombie
}

// marked reports whether a process was started by what has the token in its
// environment. Of the system's own programs nobody is told.
func marked(pid int, token string) bool {
	b, err := unix.SysctlRaw("kern.procargs2", pid)
	return err == nil && hasMark(b, token)
}

// system says what numbers of processes, and their times, are valid in; empty:
// not known.
func system() (boot, namespace string) {
	boot, err := unix.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return "", ""
	}
	return boot, ""
}
