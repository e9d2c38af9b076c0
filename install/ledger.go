// Package install makes a machine know majordomus, and forget it again: what an
// account has installed, and where.
//
// Promised: what is recorded here can be found and undone from any checkout, and
// by a later version; a file is kept as it was before it is changed. Not
// promised: that what is recorded is still there, since people edit their files
// and delete their checkouts. Whoever undoes it looks first.
package install

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gofrs/flock"
)

// Kinds of what is installed.
const (
	Editor  = "editor"
	Service = "service"
	Shell   = "shell"
	Hooks   = "hooks"
)

// An Entry is one thing that was installed.
type Entry struct {
	Kind string    `json:"kind"`
	Name string    `json:"name"`           // of the editor, service, shell or hook
	File string    `json:"file"`           // that it is in
	Root string    `json:"root,omitempty"` // the checkout it is for; "" for all of the account's
	At   time.Time `json:"at"`
	Undo string    `json:"undo,omitempty"` // what undoes it, in the words of the package that did it
}

const entrySchema = "majordomus-installed/v1"

// A Ledger is an account's record of what it has installed: a file for each
// entry, so that processes may use it at the same time, and backups beside it.
type Ledger struct{ dir string }

// OpenLedger returns the ledger in a folder of the account's, which need not
// exist.
func OpenLedger(dir string) *Ledger { return &Ledger{dir} }

func (l *Ledger) entries() string { return filepath.Join(l.dir, "installed") }

// Dir is the folder.
func (l *Ledger) Dir() string { return l.dir }

// file is where e is kept: one of the same kind, name, file and checkout takes
// its place.
func (l *Ledger) file(e Entry) string {
	sum := sha256.Sum256([]byte(strings.Join([]string{e.Kind, e.Name, e.File, e.Root}, "\x00")))
	return filepath.Join(l.entries(), e.Kind+"-"+hex.EncodeToString(sum[:8])+".json")
}

// Add records e.
func (l *Ledger) Add(e Entry) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("recording what is installed: %w", err)
		}
	}()
	if e.At.IsZero() {
		e.At = time.Now().UTC().Truncate(time.Second)
	}
	b, err := json.MarshalIndent(struct {
		Schema string `json:"schema"`
		Entry
	}{entrySchema, e}, "", "  ")
	if err != nil {
		return err
	}
	return writeWhole(l.file(e), append(b, '\n'))
}

// Remove forgets e. One that is not recorded is no error.
func (l *Ledger) Remove(e Entry) error {
	if err := os.Remove(l.file(e)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forgetting what was installed: %w", err)
	}
	os.Remove(l.entries()) // ignore error: it goes with its last entry
	return nil
}

// List returns what is recorded, by kind, checkout and name. Entries that cannot
// be read are left out, and the error joins why; the others are returned beside
// it.
func (l *Ledger) List() ([]Entry, error) {
	var list []Entry
	err := eachRecord(l.entries(), func(_ string, b []byte) error {
		var e struct {
			Schema string
			Entry
		}
		if err := json.Unmarshal(b, &e); err != nil {
			return err
		}
		if e.Schema != entrySchema {
			return fmt.Errorf("is no %s", entrySchema)
		}
		list = append(list, e.Entry)
		return nil
	})
	slices.SortFunc(list, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Root, b.Root), cmp.Compare(a.Name, b.Name), cmp.Compare(a.File, b.File))
	})
	if err != nil {
		return list, fmt.Errorf("reading what is installed: %w", err)
	}
	return list, nil
}

// eachRecord hands each record in a folder, which need not exist, to take, with
// its name. The error joins why some could not be read or taken.
func eachRecord(dir string, take func(name string, b []byte) error) error {
	files, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var errs []error
	for _, f := range files {
		name, ok := strings.CutSuffix(f.Name(), ".json")
		if !ok {
			continue
		}
		path := filepath.Join(dir, f.Name())
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // forgotten meanwhile
		}
		if err == nil {
			err = take(name, b)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", path, err))
		}
	}
	return errors.Join(errs...)
}

// Lock has others who lock wait until unlock is called or the process ends: who
// looks at what is recorded, changes a file and records that, does it alone. It
// gives up when ctx ends.
func (l *Ledger) Lock(ctx context.Context) (unlock func(), err error) {
	if err = os.MkdirAll(l.dir, 0o700); err == nil {
		f := flock.New(filepath.Join(l.dir, "installed.lock"))
		if _, err = f.TryLockContext(ctx, 10*time.Millisecond); err == nil {
			return func() { f.Unlock() }, nil // ignore error: it ends with the process
		}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = errors.New("another process is installing something")
	}
	return nil, fmt.Errorf("recording what is installed: %w", err)
}

// Backup keeps content, as it was in the file at path, and returns where. It is
// readable for this account alone, whoever could read the file.
func (l *Ledger) Backup(path string, content []byte) (string, error) {
	name := time.Now().UTC().Format("20060102T150405Z") + "-" + strings.ToLower(rand.Text()[:6]) + "-" + filepath.Base(path)
	to := filepath.Join(l.dir, "backups", name)
	if err := writeWhole(to, content); err != nil {
		return "", fmt.Errorf("keeping %s as it was: %w", path, err)
	}
	return to, nil
}

// writeWhole writes a file that is there as a whole or not at all.
func writeWhole(path string, b []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // ignore error: it has its name by then
	if _, err = f.Write(b); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
