//go:build unix

package lease

import (
	"errors"
	"syscall"
)

// removeLocked removes a file that one has locked, while it is locked.
func removeLocked(root files, name string, l locker) {
	root.Remove(name) // ignore error: the next cleaner tries again
	l.Unlock()        // ignore error: closing it unlocks
}

// noLocks reports whether an error says that this file system has no locks.
func noLocks(err error) bool {
	return errors.Is(err, syscall.ENOTSUP) || errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.ENOLCK) || errors.Is(err, syscall.ENOSYS)
}
