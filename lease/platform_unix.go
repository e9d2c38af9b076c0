//go:build unix

package lease

import (
	"syscall"
)

const (
	// nonblock keeps an open from waiting for the other end of a named pipe.
	nonblock = syscall.O_NONBLOCK

	// confirmLoss: a rename over an existing file is one step here, so what a
	// reader finds is what is there.
	confirmLoss = false
)

func readAgain(_ files, f File) File { return f }

// folderLocks reports whether a folder itself can be locked.
const folderLocks = true
