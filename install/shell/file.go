package shell

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// most is far more than a startup file or a hook has.
const most = 4 << 20

// A File is one that lines of ours are in, or are to be put into.
type File struct {
	Path string // as it is named
	Real string // what that leads to
	Text []byte // nil where it is not there
	mode fs.FileMode
}

// Read reads the file at path, which may be a link: what it leads to is what is
// read and written, so that dotfiles that are kept elsewhere stay links. A file
// that is not there is no error, but a link that leads nowhere is one.
func Read(path string) (File, error) {
	f := File{Path: path, Real: path, mode: 0o644}
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return f, fmt.Errorf("reading %s: %w", path, err)
	}
	info, err := os.Stat(real)
	switch {
	case err != nil:
		return f, fmt.Errorf("reading %s: %w", path, err)
	case !info.Mode().IsRegular() || info.Size() > most:
		return f, fmt.Errorf("reading %s: not a regular file of at most %d bytes", path, most)
	}
	text, err := os.ReadFile(real)
	if err != nil {
		return f, fmt.Errorf("reading %s: %w", path, err)
	}
	if text == nil {
		text = []byte{}
	}
	return File{path, real, text, info.Mode()}, nil
}

// Mode is the file's, or the one it will be made with.
func (f File) Mode() fs.FileMode { return f.mode }

// Made has the file made with this mode where it is not there.
func (f *File) Made(mode fs.FileMode) {
	if f.Text == nil {
		f.mode = mode
	}
}

// Write replaces the file as a whole, or removes it where text is nil. A file
// that somebody else has changed since it was read is left alone.
func (f File) Write(text []byte) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("writing %s: %w", f.Path, err)
		}
	}()
	now, err := os.ReadFile(f.Real)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if f.Text != nil {
			return errors.New("it has gone in the meantime")
		}
	case err != nil:
		return err
	case f.Text == nil || !bytes.Equal(now, f.Text):
		return errors.New("it has changed in the meantime")
	}
	if text == nil {
		return os.Remove(f.Real)
	}
	dir := filepath.Dir(f.Real)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	h, err := os.CreateTemp(dir, ".majordomus-*")
	if err != nil {
		return err
	}
	defer os.Remove(h.Name()) // ignore error: it has its name by then
	if _, err = h.Write(text); err == nil {
		err = h.Sync()
	}
	if err = errors.Join(err, h.Close()); err != nil {
		return err
	}
	if f.Text != nil {
		keepOwner(h.Name(), f.Real)
	}
	if err := os.Chmod(h.Name(), f.mode.Perm()); err != nil {
		return err
	}
	return os.Rename(h.Name(), f.Real)
}
