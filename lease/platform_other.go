//go:build !unix

package lease

import (
	"io/fs"
	"time"
)

const (
	nonblock = 0

	// confirmLoss: on FAT and on old systems a reader may see a moment of
	// absence while the file is replaced, so a difference is a loss only when
	// a second read finds it under the lock that every change is made under.
	confirmLoss = true

	// folderLocks: a folder cannot be locked here; nor can a lock file be
	// removed while somebody has it open, which is what the folder's lock
	// helps against elsewhere.
	folderLocks = false

	// hasModes: who may do what is not in a file's mode.
	hasModes = false
)

func ownUser() int { return -1 }

func ownerOf(fs.FileInfo) int { return -1 }

func linked(fs.FileInfo) bool { return false }

// readAgain gives a replacement under way the moment it needs.
func readAgain(root files, _ File) File {
	time.Sleep(2 * time.Millisecond)
	return readOnce(root)
}
