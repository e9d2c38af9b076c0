package lease

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/gofrs/flock"

	"majordomus/lease/checkout"
)

// A disk is where state folders lie. All that an election does to files, and to
// locks, it does through one, so that tests can put a world of their own in its
// place, in which every step waits to be taken or fails.
type disk interface {
	stat(path string) (fs.FileInfo, error)
	open(c *checkout.Checkout) (files, error)   // the state folder, if it is there
	create(c *checkout.Checkout) (files, error) // made where it is missing
	lock(path string, flag int) locker          // as flock.New
}

// files is an open folder, as *os.Root: no name and no link leads out of it.
type files interface {
	Lstat(name string) (fs.FileInfo, error)
	Stat(name string) (fs.FileInfo, error)
	OpenFile(name string, flag int, perm fs.FileMode) (file, error)
	Rename(from, to string) error
	Remove(name string) error
	Link(from, to string) error
	Close() error

	log(name string) (*os.File, error) // open for appending, made where it is missing; a process is to have it as output
	names() ([]string, error)
	sync() error           // makes its names durable, where folders can be synced
	again() (files, error) // another handle on the same folder

	foreign(info fs.FileInfo) bool // another account's
	exposed(info fs.FileInfo) bool // other accounts may read or write it
}

type file interface {
	io.Reader
	io.Writer
	Stat() (fs.FileInfo, error)
	Sync() error
	Close() error
}

type locker interface {
	TryLock() (bool, error)
	TryRLock() (bool, error)
	Unlock() error
	Stat() (fs.FileInfo, error)
}

var (
	_ disk   = systemDisk{}
	_ files  = systemFiles{}
	_ file   = (*os.File)(nil)
	_ locker = (*flock.Flock)(nil)
)

// sameFile is os.SameFile, for files of any disk.
func sameFile(a, b fs.FileInfo) bool {
	if a, ok := a.(interface{ same(fs.FileInfo) bool }); ok {
		return a.same(b)
	}
	return os.SameFile(a, b)
}

// systemDisk is the machine's.
type systemDisk struct{}

func (systemDisk) stat(path string) (fs.FileInfo, error) { return os.Stat(path) }

func (systemDisk) lock(path string, flag int) locker { return flock.New(path, flock.SetFlag(flag)) }

// open opens the folder by way of the checkout's local folder, which no link
// below it gets out of.
func (systemDisk) open(c *checkout.Checkout) (files, error) {
	local, err := os.OpenRoot(c.LocalDir)
	if err != nil {
		return nil, err
	}
	defer local.Close() // ignore error: only looked through
	below, err := filepath.Rel(c.LocalDir, c.StateDir())
	if err != nil {
		return nil, err
	}
	return opened(c, local.OpenRoot, below)
}

func (systemDisk) create(c *checkout.Checkout) (files, error) {
	top, err := os.OpenRoot(c.Root)
	if err != nil {
		return nil, err
	}
	defer top.Close() // ignore error: only looked through
	local, err := filepath.Rel(c.Root, c.LocalDir)
	if err != nil {
		return nil, err
	}
	if err := top.MkdirAll(filepath.Dir(local), 0o755); err != nil {
		return nil, err
	}
	if err := top.MkdirAll(filepath.Join(local, "state"), 0o755); err != nil {
		return nil, err
	}
	// Before anything is put there that git must not see. An empty one is of a
	// process that died, or met a full disk, before it wrote: as all write the
	// same two bytes to the same place, it does not matter how many do.
	ignore := filepath.Join(local, ".gitignore")
	info, err := top.Lstat(ignore)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Mode().IsRegular() && info.Size() == 0 {
		h, err := top.OpenFile(ignore, os.O_WRONLY|os.O_CREATE, 0o644)
		if err != nil {
			return nil, err
		}
		_, err = h.WriteString("*\n")
		if e := h.Close(); err == nil {
			err = e
		}
		if err != nil {
			return nil, err
		}
	}
	state, err := filepath.Rel(c.Root, c.StateDir())
	if err != nil {
		return nil, err
	}
	if err := top.Mkdir(state, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	info, err = top.Stat(state)
	if err != nil {
		return nil, err
	}
	if info.IsDir() && info.Mode().Perm()&0o077 != 0 {
		top.Chmod(state, 0o700) // ignore error: another account's, or a system without modes
	}
	return opened(c, top.OpenRoot, state)
}

func opened(c *checkout.Checkout, open func(string) (*os.Root, error), name string) (files, error) {
	root, err := open(name)
	if err != nil {
		return nil, err
	}
	return systemFiles{root, accountsOf(c)}, nil
}

type systemFiles struct {
	*os.Root
	accounts *accounts
}

func (r systemFiles) OpenFile(name string, flag int, perm fs.FileMode) (file, error) {
	h, err := r.Root.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err // and no *os.File that is nil
	}
	return h, nil
}

func (r systemFiles) log(name string) (*os.File, error) {
	return r.Root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
}

func (r systemFiles) again() (files, error) {
	root, err := r.OpenRoot(".")
	if err != nil {
		return nil, err
	}
	return systemFiles{root, r.accounts}, nil
}

func (r systemFiles) names() ([]string, error) {
	dir, err := r.Open(".")
	if err != nil {
		return nil, err
	}
	defer dir.Close() // ignore error: only read
	return dir.Readdirnames(-1)
}

func (r systemFiles) sync() error {
	dir, err := r.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close() // ignore error: only read
	dir.Sync()        // ignore error: not every system can, and the names are there
	return nil
}
