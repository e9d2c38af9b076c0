package config

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// Trust is what a person agreed to for one checkout.
type Trust struct {
	Digest string    `json:"digest"` // of the servers file, as File.Digest
	Path   string    `json:"path"`   // PATH where the person was: servers are looked for in it
	Root   string    `json:"root"`   // of the checkout, for people
	At     time.Time `json:"at"`
}

const trustSchema = "majordomus-trust/v1"

// TrustDir is where an account keeps its ledger. Home must be the account's own
// folder as the system knows it. HOME and its like will not do: an editor's
// configuration comes with a clone and may set them, and a ledger beside the
// servers file would let that file trust itself.
func TrustDir(home string) string {
	switch runtime.GOOS {
	case "windows":
		return filepath.Join(home, "AppData", "Local", "majordomus", "trust")
	case "darwin":
		return filepath.Join(home, "Library", "Application Support", "majordomus", "trust")
	}
	return filepath.Join(home, ".local", "state", "majordomus", "trust")
}

// A Ledger is an account's record of what it trusts: a file for each checkout,
// by its ID. Processes may use it at the same time: a record is there as a
// whole or not at all.
type Ledger struct{ dir string }

// OpenLedger returns the ledger in a folder, which need not exist.
func OpenLedger(dir string) *Ledger { return &Ledger{dir} }

// Record keeps t for a checkout in place of what was there.
func (l *Ledger) Record(repositoryID string, t Trust) (err error) {
	name, err := recordName(repositoryID)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("recording trust: %w", err)
		}
	}()
	b, err := json.MarshalIndent(struct {
		Schema string `json:"schema"`
		Trust
	}{trustSchema, t}, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return err
	}
	root, err := l.open()
	if err != nil {
		return err
	}
	defer root.Close() // ignore error: nothing is written through it
	return replaceFile(root, name, append(b, '\n'), 0o600, true)
}

// Lookup returns what is recorded for a checkout, and whether anything is. An
// error is a reason to believe nothing: a record that others than the account
// could have written is one.
func (l *Ledger) Lookup(repositoryID string) (t Trust, ok bool, err error) {
	name, err := recordName(repositoryID)
	if err != nil {
		return t, false, err
	}
	root, err := l.open()
	if errors.Is(err, fs.ErrNotExist) {
		return t, false, nil
	}
	if err != nil {
		return t, false, fmt.Errorf("looking for trust: %w", err)
	}
	defer root.Close() // ignore error: only read
	f, err := root.OpenFile(name, os.O_RDONLY|nonblock, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return t, false, nil
	}
	if err != nil {
		return t, false, fmt.Errorf("looking for trust: %w", err)
	}
	defer f.Close() // ignore error: only read
	fail := func(err error) (Trust, bool, error) {
		return Trust{}, false, fmt.Errorf("looking for trust: %s: %w", filepath.Join(l.dir, name), err)
	}
	b, info, err := readRegular(f)
	if err != nil {
		return fail(err)
	}
	if err := onlyOurs(info); err != nil {
		return fail(err)
	}
	record := struct {
		Schema string
		Trust
	}{}
	if err := json.Unmarshal(b, &record); err != nil {
		return fail(fmt.Errorf("is no record of trust: %w", err))
	}
	if record.Schema != trustSchema || !isHex(record.Digest, 64) {
		return fail(errors.New("is no record of trust that this version can read"))
	}
	return record.Trust, true, nil
}

// Roots are the checkouts of which anything is recorded, by their IDs: where they
// were, "" where the record is not to be believed.
func (l *Ledger) Roots() (map[string]string, error) {
	files, err := os.ReadDir(l.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("looking for trust: %w", err)
	}
	roots := map[string]string{}
	for _, f := range files {
		id, ok := strings.CutSuffix(f.Name(), ".json")
		if !ok || !isHex(id, 32) {
			continue
		}
		t, _, _ := l.Lookup(id) // ignore error: it is recorded all the same
		roots[id] = t.Root
	}
	return roots, nil
}

// Revoke forgets what is recorded for a checkout and reports whether anything
// was.
func (l *Ledger) Revoke(repositoryID string) (bool, error) {
	name, err := recordName(repositoryID)
	if err != nil {
		return false, err
	}
	switch err := os.Remove(filepath.Join(l.dir, name)); {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("revoking trust: %w", err)
	}
	return true, nil
}

// open opens the folder, unless others could have put something there.
func (l *Ledger) open() (*os.Root, error) {
	root, err := os.OpenRoot(l.dir)
	if err != nil {
		return nil, err
	}
	info, err := root.Stat(".")
	if err == nil {
		err = onlyOurs(info)
	}
	if err != nil {
		root.Close() // ignore error: nothing was done in it
		return nil, fmt.Errorf("%s: %w", l.dir, err)
	}
	return root, nil
}

// onlyOurs says why others than this account, or the system's administrator,
// could have written a file, where the system tells.
func onlyOurs(info fs.FileInfo) error {
	if !hasModes {
		return nil
	}
	if mode := info.Mode().Perm(); mode&0o022 != 0 {
		return fmt.Errorf("others can write it (mode %04o), so it is not believed: take that away with chmod go-w, and look at what is there", mode)
	}
	if !ownFile(info) {
		return errors.New("it belongs to another account, so it is not believed")
	}
	return nil
}

// recordName is the file of a checkout; an ID that is not one must not become
// a path.
func recordName(id string) (string, error) {
	if !isHex(id, 32) {
		return "", fmt.Errorf("%q is not the ID of a checkout", id)
	}
	return id + ".json", nil
}

func isHex(s string, n int) bool {
	return len(s) == n && strings.Trim(s, "0123456789abcdef") == ""
}

// replaceFile puts a file in the place of another in one step, when the disk
// has it. Exactly is with that mode, whatever the process's mask takes away.
func replaceFile(root *os.Root, name string, b []byte, mode fs.FileMode, exactly bool) error {
	var r [8]byte
	rand.Read(r[:]) // never fails
	temp := name + "." + hex.EncodeToString(r[:]) + ".tmp"
	f, err := root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil && exactly && hasModes {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = root.Rename(temp, name)
	}
	if err != nil {
		root.Remove(temp) // ignore error: the first one counts
	}
	return err
}
