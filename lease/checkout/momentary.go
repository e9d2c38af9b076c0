package checkout

import (
	"errors"
	"syscall"
)

// Momentary reports whether err says nothing of the file that was to be read:
// this process has no descriptor or memory left, or the disk fails. What was
// there may well be there still, so nobody should act as if it had gone.
func Momentary(err error) bool {
	for _, e := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EIO, syscall.ESTALE} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
