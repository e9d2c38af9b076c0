//go:build !unix

package lease

import ()

// removeLocked lets go of a file before it removes it, since an open one cannot
// be removed here. For the same reason nobody else's can: an owner has its file
// open from before it is locked.
func removeLocked(root files, name string, l locker) {
	l.Unlock()        // ignore error: then the removal fails
	root.Remove(name) // ignore error: the next cleaner tries again
}

func noLocks(error) bool { return false }
