package install

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A Served is a checkout that was served on this account.
type Served struct {
	ID   string    `json:"-"` // of the checkout; the record's name
	Root string    `json:"root"`
	At   time.Time `json:"at"` // the first time
}

const servedSchema = "majordomus-served/v1"

// A Register is an account's record of the checkouts that were served on it, by
// which they are found from anywhere: a file for each, which stays until somebody
// sees that nothing of it is left. That one is served now is for its lease to
// say.
type Register struct{ dir string }

// OpenRegister returns the register in a folder of the account's, which need not
// exist.
func OpenRegister(dir string) *Register { return &Register{filepath.Join(dir, "served")} }

// Add records a checkout and reports whether it was not recorded yet. It is one
// look where it was, and never waits for a disk: what a crash takes is recorded
// again at the next start.
func (r *Register) Add(id, root string) (added bool, err error) {
	path, err := r.file(id)
	if err != nil {
		return false, err
	}
	if _, err := os.Stat(path); err == nil {
		return false, nil
	}
	b, err := json.MarshalIndent(struct {
		Schema string `json:"schema"`
		Served
	}{servedSchema, Served{Root: root, At: time.Now().UTC().Truncate(time.Second)}}, "", "  ")
	if err == nil {
		err = os.MkdirAll(r.dir, 0o700)
	}
	if err == nil {
		err = put(path, append(b, '\n'))
	}
	if err != nil {
		return false, fmt.Errorf("recording what is served: %w", err)
	}
	return true, nil
}

// put is writeWhole without the disk.
func put(path string, b []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name()) // ignore error: it is nothing's name
	}
	return err
}

// Remove forgets a checkout. One that is not recorded is no error.
func (r *Register) Remove(id string) error {
	path, err := r.file(id)
	if err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forgetting what was served: %w", err)
	}
	os.Remove(r.dir) // ignore error: it goes with its last record
	return nil
}

// List returns what is recorded, by root. Records that cannot be read are left
// out, and the error joins why.
func (r *Register) List() ([]Served, error) {
	var list []Served
	err := eachRecord(r.dir, func(id string, b []byte) error {
		var s struct {
			Schema string
			Served
		}
		if err := json.Unmarshal(b, &s); err != nil {
			return err
		}
		if s.Schema != servedSchema || !filepath.IsAbs(s.Root) {
			return fmt.Errorf("is no %s", servedSchema)
		}
		s.ID = id
		list = append(list, s.Served)
		return nil
	})
	slices.SortFunc(list, func(a, b Served) int { return cmp.Or(cmp.Compare(a.Root, b.Root), cmp.Compare(a.ID, b.ID)) })
	if err != nil {
		return list, fmt.Errorf("reading what was served: %w", err)
	}
	return list, nil
}

// file is where a checkout is recorded; an ID that is none must not become a
// path.
func (r *Register) file(id string) (string, error) {
	if id == "" || strings.Trim(id, "0123456789abcdef") != "" {
		return "", fmt.Errorf("%q is not the ID of a checkout", id)
	}
	return filepath.Join(r.dir, id+".json"), nil
}
