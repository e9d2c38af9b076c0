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
			members = append(members, member{int(p.P_pid), startOf(p)})
		}
	}
	return members, true
}

func startOf(p *unix.ExternProc) string {
	return fmt.Sprintf("%d.%06d", p.P_starttime.Sec, p.P_starttime.Usec)
}
