//go:build unix

package lease

import (
	"io/fs"
	"os"
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

// hasModes: a file says who else may read and write it.
const hasModes = true

func ownUser() int { return os.Geteuid() }

// ownerOf is the account that a file belongs to, -1 where it does not say.
func ownerOf(info fs.FileInfo) int {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(s.Uid)
	}
	return -1
}

// linked reports whether a file has another name too.
func linked(info fs.FileInfo) bool {
	s, ok := info.Sys().(*syscall.Stat_t)
	return ok && s.Nlink > 1
}
