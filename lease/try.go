package lease

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"
)

// ErrNoLocks says that a lock in a folder excludes nobody, or everybody.
var ErrNoLocks = errors.New("locks do not work here")

const tryPrefix = ".try-"

// TryLocks tries in a folder whether locks are locks there, with a file of its
// own that it removes: some file systems, and some links between machines, only
// say so. It returns the time at which that file was made, by the clock of
// whoever keeps the files.
func TryLocks(dir string) (made time.Time, err error) {
	f, err := os.CreateTemp(dir, tryPrefix+"*")
	if err != nil {
		return made, fmt.Errorf("trying locks: %w", err)
	}
	path := f.Name()
	defer func() {
		f.Close() // ignore error: nothing of it is needed
		if e := os.Remove(path); e != nil && err == nil {
			err = fmt.Errorf("trying locks: %w", e)
		}
	}()
	if _, err = f.WriteString("x"); err != nil { // the one who keeps the file stamps it
		return made, fmt.Errorf("trying locks: %w", err)
	}
	info, err := os.Stat(path)
	if err != nil {
		return made, fmt.Errorf("trying locks: %w", err)
	}
	return info.ModTime(), tryLocks(func() lockable { return flock.New(path) }, filepath.Base(dir))
}

type lockable interface {
	TryLock() (bool, error)
	Unlock() error
}

// tryLocks takes one lock with two hands.
func tryLocks(open func() lockable, name string) error {
	a, b := open(), open()
	defer a.Unlock() // ignore error: it was only a try
	defer b.Unlock() // ignore error: as above
	for _, step := range []struct {
		hand    lockable
		granted bool
		why     string
	}{
		{a, true, "nobody can have one"},
		{b, false, "two can have the same one at once"},
	} {
		switch got, err := step.hand.TryLock(); {
		case err != nil:
			return fmt.Errorf("%w (%s): %w", ErrNoLocks, name, err)
		case got != step.granted:
			return fmt.Errorf("%w (%s): %s", ErrNoLocks, name, step.why)
		}
	}
	if err := a.Unlock(); err != nil {
		return fmt.Errorf("%w (%s): %w", ErrNoLocks, name, err)
	}
	if got, err := b.TryLock(); err != nil || !got {
		return errors.Join(fmt.Errorf("%w (%s): one that was given up is not free", ErrNoLocks, name), err)
	}
	return nil
}
