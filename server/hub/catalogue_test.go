package hub

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestStore keeps a catalogue in a folder that is missing, and not in one whose
// checkout has gone; what killed servers left there goes.
func TestStore(t *testing.T) {
	dir := t.TempDir()
	s := store{filepath.Join(dir, "catalogue")}
	if err := s.save("up", "key", catalogue{}); err != nil {
		t.Fatal(err)
	}
	if _, ok := s.load("up", "key"); !ok {
		t.Error("it is not kept")
	}
	old, young := filepath.Join(s.dir, ".new-1"), filepath.Join(s.dir, ".new-2")
	for _, path := range []string{old, young} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	at := time.Now().Add(-2 * time.Minute)
	if err := os.Chtimes(old, at, at); err != nil {
		t.Fatal(err)
	}
	if err := s.save("up", "other key", catalogue{}); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(s.dir, "*"))
	if err != nil || len(left) != 2 || left[0] != young || left[1] != s.path("up", "other key") {
		t.Errorf("left are %q, %v", left, err)
	}
	gone := filepath.Join(dir, "gone")
	if err := (store{filepath.Join(gone, "catalogue")}).save("up", "key", catalogue{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("kept in a checkout that has gone: %v", err)
	}
	if _, err := os.Stat(gone); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the checkout is there again: %v", err)
	}
}
