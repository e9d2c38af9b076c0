package lease

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// maxLog is how large a log may be when it is opened; a larger one becomes the
// previous one.
const maxLog = 10 << 20

// OpenLog opens a log file in the state folder for appending. One that has
// grown over 10 MiB is renamed to name.1 first, in place of the one before it.
// Processes that still write to that one go on doing so.
func (f *Folder) OpenLog(name string) (*os.File, error) {
	if name == "." || name == ".." || filepath.Base(name) != name {
		return nil, fmt.Errorf("opening a log: %q is not a name", name)
	}
	root, err := f.writable()
	if err != nil {
		return nil, fmt.Errorf("opening a log: %w", err)
	}
	info, err := root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("opening a log: %w", err)
	case !info.Mode().IsRegular():
		if err := f.aside(root, name); err != nil {
			return nil, fmt.Errorf("opening a log: %w", err)
		}
	case info.Size() > maxLog:
		if err := root.Rename(name, name+".1"); err != nil && !errors.Is(err, fs.ErrNotExist) {
			// Somebody has it open where that forbids renaming: the log
			// grows on.
			f.cfg.Log.Warn("the log cannot be rotated", "name", name, "err", err)
		}
	}
	h, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening a log: %w", err)
	}
	return h, nil
}

// LogPath is where OpenLog puts the log of that name.
func (f *Folder) LogPath(name string) string { return filepath.Join(f.path, name) }
