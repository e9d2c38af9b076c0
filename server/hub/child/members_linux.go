package child

import (
	"bytes"
	"os"
	"strconv"
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
		s, ok := statOf(pid)
		if ok && s.group == group && s.session == group && !s.dead {
			members = append(members, member{pid, s.start, s.rss})
		}
	}
	return members, known
}

// startOf says when a process was started, in the words of members; empty: not
// known. A dead one that nobody has waited for still has its number.
func startOf(pid int) (start string, dead bool) {
	s, _ := statOf(pid)
	return s.start, s.dead
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

// stat is part of /proc/PID/stat.
type stat struct {
	dead           bool // a zombie, or worse
	group, session int
	start          string // in ticks since the system started
	rss            int64  // bytes
}

func statOf(pid int) (stat, bool) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return stat{}, false
	}
	return parseStat(b)
}

// parseStat reads a line such as
//
//	4711 (a name) of its) own choice) S 1 4711 4711 0 -1 ...
func parseStat(b []byte) (stat, bool) {
	end := bytes.LastIndexByte(b, ')')
	if end < 0 {
		return stat{}, false
	}
	// The first one is the third of proc(5).
	fields := bytes.Fields(b[end+1:])
	if len(fields) < 22 || len(fields[0]) != 1 {
		return stat{}, false
	}
	group, err1 := strconv.Atoi(string(fields[5-3]))
	session, err2 := strconv.Atoi(string(fields[6-3]))
	pages, err3 := strconv.ParseInt(string(fields[24-3]), 10, 64)
	if err1 != nil || err2 != nil || err3 != nil {
		return stat{}, false
	}
	return stat{
		dead:  bytes.ContainsAny(fields[0], "ZXx"),
		group: group, session: session, start: string(fields[22-3]), rss: pages * int64(os.Getpagesize()),
	}, true
}
