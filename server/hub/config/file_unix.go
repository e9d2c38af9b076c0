//go:build unix

package config

import (
	"io/fs"
	"os"
	"syscall"
)

const (
	// nonblock keeps an open from waiting for the other end of a named pipe.
	nonblock = syscall.O_NONBLOCK

	// hasModes: a file says who else may read and write it.
	hasModes = true
)

// ownFile reports whether a file belongs to this account or to root, who can
// write everything anyway.
func ownFile(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && (stat.Uid == 0 || int(stat.Uid) == os.Geteuid())
}
