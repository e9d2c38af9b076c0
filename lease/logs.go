package lease

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
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
	case !info.Mode().IsRegular(), root.foreign(info), linked(info):
		// A file that has another name is somebody's, not ours to write to.
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
	log, err := root.log(name)
	if err != nil {
		return nil, fmt.Errorf("opening a log: %w", err)
	}
	return log, nil
}

// A Log is a log file that does not outgrow 10 MiB for long: when it has, what
// is written next goes to a new one (OpenLog).
type Log struct {
	folder *Folder
	name   string

	mu   sync.Mutex
	file *os.File
	size int64 // of the file, or what was written since it could not be rotated
}

// Log opens a log file in the state folder for appending.
func (f *Folder) Log(name string) (*Log, error) {
	l := &Log{folder: f, name: name}
	if err := l.open(); err != nil {
		return nil, err
	}
	return l, nil
}

func (l *Log) open() error {
	file, err := l.folder.OpenLog(l.name)
	if err != nil {
		return err
	}
	if l.file != nil {
		l.file.Close() // ignore error: it is written to no more
	}
	l.file, l.size = file, 0
	if info, err := file.Stat(); err == nil && info.Size() <= maxLog {
		l.size = info.Size()
	}
	return nil
}

// Write writes p in one Write of the file.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.size > maxLog && l.open() != nil {
		l.size = 0 // the log grows on, and is tried again later
	}
	n, err := l.file.Write(p)
	l.size += int64(n)
	return n, err
}

// Close closes the file. Nothing may be written any more.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.file.Close()
}

// LogPath is where OpenLog puts the log of that name.
func (f *Folder) LogPath(name string) string { return filepath.Join(f.path, name) }

// Tail returns the last lines, at most 2 KiB, of what was written to the file
// at path after its first from bytes. A file that cannot be read gives "".
func Tail(path string, from int64) string {
	const most = 2 << 10
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size()-from > most {
		from = info.Size() - most
	}
	b, err := io.ReadAll(io.LimitReader(io.NewSectionReader(f, from, most), most))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(strings.ToValidUTF8(string(b), "?"))
}
