package child

import (
	"bytes"
	"os"
	"strconv"

	"majordomus/server/hub/child/procstat"
)

// A member is a living process of a group.
type member struct {
	pid   int
	start string // when it was started, in the kernel's words
	rss   int64  // bytes
}

// membersOf returns the living members of a group that leads a session; known
// is false where the system does not tell.
func membersOf(group int) (members []member, known bool) {
	proc, err := os.Open("/proc")
	if err != nil {
		return nil, false
	}
	defer proc.Close() // ignore error: only read
	names, err := proc.Readdirnames(-1)
	if err != nil {
		return nil, false
	}
	for _, name := range names {
		if name[0] < '1' || name[0] > '9' {
			continue
		}
		known = true // where /proc is mounted there is at least this process
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		s, ok := procstat.Read(pid)
		if ok && s.Group == group && s.Session == group && !s.Dead {
			members = append(members, member{pid, s.Start, s.RSS})
		}
	}
	return members, known
}

// startOf says when a process was started, in the words of members; empty: not
// known. A dead one that nobody has waited for still has its number.
func startOf(pid int) (start string, dead bool) {
	s, _ := procstat.Read(pid)
	return s.Start, s.Dead
}

// marked reports whether a process was started by what has the token in its
// environment.
func marked(pid int, token string) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	return err == nil && hasMark(b, token)
}

// system says what numbers of processes, and their times, are valid in; empty:
// not known.
func system() (boot, namespace string) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", ""
	}
	namespace, err = os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return "", ""
	}
	return string(bytes.TrimSpace(b)), namespace
}
