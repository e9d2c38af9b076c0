package main

import (
	"bytes"
	"os"
	"strconv"
)

// process names a process, and tells its parent. What the system's first one has
// started is nobody's.
func process(pid int) (name string, parent int) {
	if pid <= 1 {
		return "", 0
	}
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return "", 0
	}
	// "4711 (a name) of its) own choice) S 1 …": the state is the third of
	// proc(5), the parent the fourth, the start in ticks the 22nd.
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(fields) < 20 {
		return "", 0
	}
	parent, err = strconv.Atoi(string(fields[4-3]))
	if err != nil {
		return "", 0
	}
	return processName(pid, string(fields[22-3])), parent
}
