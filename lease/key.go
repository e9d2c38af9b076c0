package lease

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"unicode"
)

const keyName = "key"

// Proof is what a server that holds token answers to a challenge: it shows that
// it knows the checkout's key without saying it. nonce is 32 lower-case hex
// characters chosen by who asks.
func Proof(key, nonce, token string) string {
	mac := hmac.New(sha256.New, []byte(key))
	io.WriteString(mac, nonce+token) // never fails
	return hex.EncodeToString(mac.Sum(nil))
}

// Key returns the checkout's key, making it if there is none. It is made once,
// whoever asks first, and is then the same for every server of the checkout. It
// is on disk for good before it is returned: a key told to a client must not be
// another one after a power failure.
func (f *Folder) Key() (string, error) {
	root, err := f.writable()
	if err != nil {
		return "", fmt.Errorf("making the key: %w", err)
	}
	key, err := readKey(root)
	if err == nil {
		return key, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if errors.Is(err, errKnown) {
		f.cfg.Log.Warn("making another key", "because", "others than this account may know the one that is there, or have put it there")
	}
	fresh, temp, err := writeKey(root)
	if err != nil {
		return "", fmt.Errorf("making the key: %w", err)
	}
	defer root.Remove(temp) // ignore error: at worst an unused file stays
	if !errors.Is(err, errNoKey) && !errors.Is(err, errKnown) {
		// A link, unlike a rename, does not replace the key of another
		// process that was quicker.
		if err := root.Link(temp, keyName); err == nil {
			return fresh, syncNames(root)
		}
	}
	// There is one now; or what is there holds no key; or there are no links
	// on this file system.
	unlock, err := f.change(root)
	if err != nil {
		return "", fmt.Errorf("making the key: %w", err)
	}
	defer unlock()
	if key, err := readKey(root); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return key, err
	}
	if err := root.Rename(temp, keyName); err != nil {
		return "", fmt.Errorf("making the key: %w", err)
	}
	return fresh, syncNames(root)
}

// ReadKey returns the key, or fs.ErrNotExist when none was made yet.
func (f *Folder) ReadKey() (string, error) { return readKey(f.readable()) }

// RotateKey replaces the key. A server that runs takes the old one until it is
// told, or asked for a proof, or met by somebody with the new one.
func (f *Folder) RotateKey() (string, error) {
	root, err := f.writable()
	if err != nil {
		return "", fmt.Errorf("rotating the key: %w", err)
	}
	fresh, temp, err := writeKey(root)
	if err != nil {
		return "", fmt.Errorf("rotating the key: %w", err)
	}
	if err := root.Rename(temp, keyName); err != nil {
		root.Remove(temp) // ignore error: at worst an unused file stays
		return "", fmt.Errorf("rotating the key: %w", err)
	}
	return fresh, syncNames(root)
}

// isKey reports whether s can be a key: one that clients can send in a header,
// and that is not guessed. Our own are 64 hex characters.
func isKey(s string) bool {
	return len(s) >= 16 && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}

// errNoKey says that the file is there and holds no key: somebody emptied it,
// or put something else into it.
var errNoKey = fmt.Errorf("the key file holds no key: %w", fs.ErrNotExist)

// errKnown says that what the file holds is no secret of this account's.
var errKnown error = knownError{}

type knownError struct{}

func (knownError) Error() string {
	return "the key can be read by other accounts, or was put there by one"
}
func (knownError) Unwrap() error { return fs.ErrNotExist }

func readKey(root files) (string, error) {
	info, err := root.Lstat(keyName)
	if err != nil {
		return "", fmt.Errorf("reading the key: %w", err)
	}
	switch {
	case info.IsDir():
		return "", errors.New("reading the key: it is a folder")
	case !info.Mode().IsRegular():
		return "", errNoKey
	case root.foreign(info): // and may well be one that cannot be opened
		return "", errKnown
	}
	h, err := root.OpenFile(keyName, os.O_RDONLY|nonblock, 0)
	if err != nil {
		return "", fmt.Errorf("reading the key: %w", err)
	}
	defer h.Close() // ignore error: only read
	// Not what was looked at, if it was replaced in between.
	if info, err = h.Stat(); err != nil {
		return "", fmt.Errorf("reading the key: %w", err)
	}
	if !info.Mode().IsRegular() {
		return "", errNoKey
	}
	if root.foreign(info) || root.exposed(info) {
		return "", errKnown
	}
	b, err := io.ReadAll(io.LimitReader(h, 4097))
	if err != nil {
		return "", fmt.Errorf("reading the key: %w", err)
	}
	if len(b) > 4096 {
		return "", errors.New("reading the key: its file is larger than any key")
	}
	// People paste keys with line ends, and put their own there.
	key := strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return -1
		}
		return r
	}, string(b))
	if !isKey(key) {
		return "", errNoKey
	}
	return key, nil
}

// writeKey puts a new key into a file of another name.
func writeKey(root files) (key, temp string, err error) {
	var b [32 + 8]byte
	rand.Read(b[:]) // never fails
	key, temp = hex.EncodeToString(b[:32]), keyName+"."+hex.EncodeToString(b[32:])+".tmp"
	return key, temp, writeFile(root, temp, []byte(key+"\n"))
}

// writeFile writes a file and waits until the disk has it.
func writeFile(root files, name string, b []byte) error {
	h, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = h.Write(b)
	if err == nil {
		err = h.Sync()
	}
	if e := h.Close(); err == nil {
		err = e
	}
	if err != nil {
		root.Remove(name) // ignore error: the first one counts
	}
	return err
}

func syncNames(root files) error {
	if err := root.sync(); err != nil {
		return fmt.Errorf("writing the key to disk: %w", err)
	}
	return nil
}
