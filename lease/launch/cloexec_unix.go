//go:build unix

package launch

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// closeOnExecEach marks the descriptors that folder lists. One that has gone
// by the time it is marked is nobody's loss.
func closeOnExecEach(folder string, first uint) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		// Not readable: mark what a process is likely to have.
		for fd := first; fd < 1024; fd++ {
			unix.CloseOnExec(int(fd))
		}
		return
	}
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd >= int(first) {
			unix.CloseOnExec(fd)
		}
	}
}
