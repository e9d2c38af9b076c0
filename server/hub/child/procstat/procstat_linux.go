// Package procstat reads what Linux tells of a process in one line.
package procstat

import (
	"bytes"
	"os"
	"strconv"
)

// A Stat is part of /proc/PID/stat.
type Stat struct {
	Dead                   bool // a zombie, or worse
	Parent, Group, Session int
	Start                  string // in ticks since the system started
	RSS                    int64  // bytes
}

// Read returns what there is of a process; false where there is none, or the
// system does not tell.
func Read(pid int) (Stat, bool) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return Stat{}, false
	}
	return parse(b)
}

// parse reads a line such as
//
//	4711 (a name) of its) own choice) S 1 4711 4711 0 -1 ...
func parse(b []byte) (Stat, bool) {
	end := bytes.LastIndexByte(b, ')')
	if end < 0 {
		return Stat{}, false
	}
	// The first one is the third of proc(5).
	fields := bytes.Fields(b[end+1:])
	if len(fields) < 22 || len(fields[0]) != 1 {
		return Stat{}, false
	}
	parent, err1 := strconv.Atoi(string(fields[4-3]))
	group, err2 := strconv.Atoi(string(fields[5-3]))
	session, err3 := strconv.Atoi(string(fields[6-3]))
	pages, err4 := strconv.ParseInt(string(fields[24-3]), 10, 64)
	if err1 != nil || err2 != nil || err3 != nil || err4 != nil {
		return Stat{}, false
	}
	return Stat{
		Dead:   bytes.ContainsAny(fields[0], "ZXx"),
		Parent: parent, Group: group, Session: session, Start: string(fields[22-3]), RSS: pages * int64(os.Getpagesize()),
	}, true
}
