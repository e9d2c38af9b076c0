//go:build unix

package shell

import (
	"os"
	"syscall"
)

// keepOwner gives to the owner that from has, where one who may, as root, writes
// another account's file.
func keepOwner(to, from string) {
	if info, err := os.Stat(from); err == nil {
		if s, ok := info.Sys().(*syscall.Stat_t); ok {
			os.Chown(to, int(s.Uid), int(s.Gid)) // ignore error: then it is ours already, or will be
		}
	}
}
