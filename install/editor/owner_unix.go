//go:build unix

package editor

import (
	"errors"
	"os"
	"syscall"
)

// sameOwner gives a file the owner of another. A group that cannot be given
// away is the writer's then, as editors leave it too.
func sameOwner(f *os.File, other os.FileInfo) error {
	want, ok := other.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	is := info.Sys().(*syscall.Stat_t)
	if is.Uid != want.Uid {
		if err := f.Chown(int(want.Uid), int(want.Gid)); err != nil {
			return errors.New("it is another account's")
		}
	} else if is.Gid != want.Gid {
		f.Chown(-1, int(want.Gid)) // ignore error: see above
	}
	return nil
}
