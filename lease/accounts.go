package lease

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"sync"

	"majordomus/lease/checkout"
)

// accounts knows whose files are believed in a state folder. The folder is made
// for this account alone, but it may have been there before: made by somebody
// else who can write in the checkout, brought along by an archive or a clone,
// opened to others by hand. What such a folder holds is judged file by file:
//
//   - a key that others may read, or that another account has put there, is none,
//     since whoever knows it can use the server, and prove to be it;
//   - a lease that another account has put there is none, since it says whom to
//     send what an editor says;
//   - a lock file of another account is moved aside, since who owns it can keep
//     it locked, or from being opened;
//   - a log of another account, or one that has another name elsewhere, is not
//     written to.
//
// Root is believed, as it can do all that anyway; and root believes the owner of
// the checkout, with whom it often shares a server.
type accounts struct {
	self     int // -1 where files belong to nobody
	checkout int // the owner of the checkout

	once sync.Once
	made fs.FileInfo // of a file made here; nil where none can be
}

func accountsOf(c *checkout.Checkout) *accounts {
	a := &accounts{self: ownUser(), checkout: -1}
	if info, err := os.Stat(c.Root); err == nil {
		a.checkout = ownerOf(info)
	}
	return a
}

func (r systemFiles) foreign(info fs.FileInfo) bool {
	a, is := r.accounts, ownerOf(info)
	if is <= 0 || is == a.self || a.self == 0 && is == a.checkout {
		return false
	}
	made := r.madeHere()
	return made == nil || ownerOf(made) != is
}

func (r systemFiles) exposed(info fs.FileInfo) bool {
	if !hasModes || info.Mode().Perm()&0o077 == 0 {
		return false
	}
	made := r.madeHere()
	return made == nil || made.Mode().Perm()&0o077 == 0
}

// madeHere is what a file looks like that this process makes in the folder. Not
// every file system keeps owners and modes, and where it does not, a file of
// one's own looks like anybody's.
func (r systemFiles) madeHere() fs.FileInfo {
	a := r.accounts
	a.once.Do(func() {
		var b [8]byte
		rand.Read(b[:]) // never fails
		name := keyName + "." + hex.EncodeToString(b[:]) + ".tmp"
		h, err := r.Root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return
		}
		defer r.Remove(name) // ignore error: at worst an unused file stays
		defer h.Close()      // ignore error: nothing was written
		if info, err := h.Stat(); err == nil {
			a.made = info
		}
	})
	return a.made
}

// Exposed says for people what lets other accounts into the state folder, or to
// its key; "" if nothing does. Opening the folder mends what can be mended.
func (f *Folder) Exposed() string {
	if !hasModes {
		return ""
	}
	root := f.readable()
	if info, err := root.Stat("."); err == nil {
		if root.foreign(info) {
			return "the state folder belongs to another account"
		}
		if info.Mode().Perm()&0o077 != 0 {
			return "the mode of the state folder lets other accounts in"
		}
	}
	if _, err := readKey(root); errors.Is(err, errKnown) {
		return errKnown.Error()
	}
	return ""
}
