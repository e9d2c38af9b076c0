package lease

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestTryLocks(t *testing.T) {
	dir := t.TempDir()
	made, err := TryLocks(dir)
	if age := time.Since(made); err != nil || age > time.Minute || age < -time.Minute {
		t.Errorf("made %v ago: %v", age, err)
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) > 0 {
		t.Errorf("left behind: %v, %v", list, err)
	}
	if _, err := TryLocks(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) || errors.Is(err, ErrNoLocks) {
		t.Error(err)
	}
}

// A feigned is a lock of a file system that only says that it has them.
type feigned struct {
	grants []bool // one for each try, of both hands
	err    error
	tries  *int
}

func (f feigned) TryLock() (bool, error) {
	*f.tries++
	return f.grants[*f.tries-1], f.err
}

func (f feigned) Unlock() error { return nil }

func TestTryLocksFeigned(t *testing.T) {
	for _, tt := range []struct {
		grants []bool
		err    error
		works  bool
	}{
		{[]bool{true, false, true}, nil, true},
		{[]bool{false, false, false}, nil, false},
		{[]bool{true, true, true}, nil, false},
		{[]bool{true, false, false}, nil, false},
		{[]bool{false, false, false}, errors.New("no locks available"), false},
	} {
		tries := 0
		err := tryLocks(func() lockable { return feigned{tt.grants, tt.err, &tries} }, "x")
		if (err == nil) != tt.works || err != nil && !errors.Is(err, ErrNoLocks) || tt.err != nil && !errors.Is(err, tt.err) {
			t.Errorf("%+v: %v", tt, err)
		}
	}
}
