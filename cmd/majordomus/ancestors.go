package main

import (
	"os"
	"strconv"
)

// mostAncestors bounds the way up: a shell in a terminal in an editor is ten
// processes below the first.
const mostAncestors = 32

// starter names the process that started this one, and no other that ever has
// its number; empty where that cannot be told.
func starter() string {
	name, _ := process(os.Getppid())
	return name
}

// ancestors names the processes that led to this one, the nearest first, but for
// the system's first: orphans of anybody are its children.
func ancestors() []string {
	var list []string
	for pid := os.Getppid(); pid > 1 && len(list) < mostAncestors; {
		name, parent := process(pid)
		if name == "" {
			break
		}
		list = append(list, name)
		pid = parent
	}
	return list
}

// processName is a number and when it was given out.
func processName(pid int, start string) string { return strconv.Itoa(pid) + ":" + start }
