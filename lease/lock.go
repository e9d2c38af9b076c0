package lease

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	lockName   = "server.lock"
	launchName = "launch.lock"
)

// errMoved says that the folder's path leads to another folder than the handle.
var errMoved = fmt.Errorf("the state folder was removed or replaced: %w", fs.ErrNotExist)

// change takes the locks under which every change to the lease happens, and
// waits for them at most as long as a probe may take: they are held for
// milliseconds, so who has them longer was stopped, and waiting on would leave
// a client without an answer.
//
// There are two. server.lock is the one that other makers know. Deleted while
// somebody has it, it excludes nobody: the next process makes a new one and
// locks that,
//
//	P1 locks server.lock, reads: absent
//	                                     rm server.lock
//	P2 makes server.lock, locks it, reads: absent
//	P1 renames its lease into place
//	P2 renames its own over it
//
// and to compare the file with its name after locking only narrows the gap (it
// was measured). So the folder itself is locked too. That lock and what it
// guards live and die together: who works in a deleted folder can rename
// nothing into a new one. Where a folder cannot be locked (Windows, where an
// open lock file cannot be deleted; NFS, which wants it open for writing)
// server.lock must do.
func (f *Folder) change(root files) (unlock func(), err error) {
	until := time.Now().Add(f.cfg.Timings.ProbeTimeout)
	first, err := f.lock(root, lockName, until)
	if err != nil {
		return nil, err
	}
	if !folderLocks {
		return func() { first.Unlock() }, nil // ignore error: closing it, later or at exit, unlocks too
	}
	folder := f.cfg.disk.lock(f.path, os.O_RDONLY)
	unlock = func() {
		folder.Unlock() // ignore error: as above
		first.Unlock()
	}
	ok, err := f.tryUntil(folder, until)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = errMoved
	case err != nil:
		f.cfg.Log.Debug("the state folder cannot be locked, only server.lock", "err", err)
		return unlock, nil
	case !ok:
		err = ErrLockBusy
	case !isAt(root, ".", folder):
		err = errMoved
	}
	if err != nil {
		unlock()
		return nil, fmt.Errorf("locking the state folder: %w", err)
	}
	return unlock, nil
}

// lock locks a lock file exclusively, making it where it is missing.
func (f *Folder) lock(root files, name string, until time.Time) (locker, error) {
	for {
		if err := f.make(root, name); err != nil {
			return nil, fmt.Errorf("making %s: %w", name, err)
		}
		// For reading and writing, since NFS wants that for an exclusive lock.
		l := f.cfg.disk.lock(filepath.Join(f.path, name), os.O_RDWR|nonblock)
		ok, err := f.tryUntil(l, until)
		if errors.Is(err, fs.ErrNotExist) && !f.moved(root) {
			continue // deleted since it was made
		}
		if err != nil {
			return nil, fmt.Errorf("locking %s: %w", name, err)
		}
		if !ok {
			return nil, fmt.Errorf("locking %s: %w", name, ErrLockBusy)
		}
		if isAt(root, name, l) {
			return l, nil
		}
		l.Unlock() // ignore error: it excludes nobody any more
		if f.moved(root) {
			return nil, fmt.Errorf("locking %s: %w", name, errMoved)
		}
	}
}

// make sees to it that a regular file lies at name. What else lies there is
// moved aside: a link would lead the lock, and a new file, elsewhere, and
// whoever owns a file can keep others from opening it.
func (f *Folder) make(root files, name string) error {
	info, err := root.Lstat(name)
	if err == nil && info.Mode().IsRegular() && !root.foreign(info) {
		return nil
	}
	if err == nil {
		if err := f.aside(root, name); err != nil {
			return err
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	h, err := root.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return h.Close()
}

// aside renames what cannot be used where it lies.
func (f *Folder) aside(root files, name string) error {
	to := name + ".aside-" + f.cfg.token()[:8]
	f.cfg.Log.Warn("moving aside what is in the way", "name", name, "to", to)
	if err := root.Rename(name, to); err != nil {
		return fmt.Errorf("moving %s aside: %w", name, err)
	}
	return nil
}

// moved reports whether the folder's path no longer leads to root.
func (f *Folder) moved(root files) bool {
	at, err := f.cfg.disk.stat(f.path)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	info, err := root.Stat(".")
	return err == nil && !sameFile(at, info)
}

// isAt reports whether the file that was locked is the one that name leads to.
func isAt(root files, name string, l locker) bool {
	locked, err := l.Stat()
	if err != nil {
		return false
	}
	at, err := root.Lstat(name)
	return err == nil && sameFile(locked, at)
}

// tryUntil locks l, or gives up at a time. It never blocks in the kernel: a
// lock waited for there knows no end.
func (f *Folder) tryUntil(l locker, until time.Time) (bool, error) {
	for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
		ok, err := l.TryLock()
		left := time.Until(until)
		if ok || err != nil || left <= 0 {
			return ok, err
		}
		f.cfg.sleep(context.Background(), min(pause, left)) // ignore error: there is none
	}
}

// TryLockLaunch takes launch.lock, which a launcher holds while it starts a
// server, unless another one has it.
func (f *Folder) TryLockLaunch() (unlock func(), ok bool, err error) {
	root, err := f.writable()
	if err != nil {
		return nil, false, err
	}
	l, err := f.lock(root, launchName, time.Time{})
	if errors.Is(err, ErrLockBusy) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	return func() { l.Unlock() }, true, nil // ignore error: the process's end unlocks too
}

// LockLaunch waits for launch.lock until ctx ends.
func (f *Folder) LockLaunch(ctx context.Context) (unlock func(), err error) {
	for pause := time.Millisecond; ; pause = min(2*pause, 25*time.Millisecond) {
		unlock, ok, err := f.TryLockLaunch()
		if ok || err != nil {
			return unlock, err
		}
		if err := f.cfg.sleep(ctx, pause); err != nil {
			return nil, fmt.Errorf("waiting for %s: %w", launchName, err)
		}
	}
}

func aliveName(token string) string { return "server." + token + ".alive" }
func tempName(token string) string  { return "server." + token + ".tmp" }

// AliveHeld asks the kernel whether the process that took the lease with this
// token lives: whether the file that it keeps locked for as long as it does is
// locked. exists is false where there is no such file, or no locks at all, so
// that nothing is known. Where it cannot be told, held is true: nobody must be
// replaced because this process has no descriptor left.
//
// The lock it tries is a shared one: askers that hold each other off would
// call a dead holder alive.
func (f *Folder) AliveHeld(token string) (held, exists bool) {
	if !isToken(token) {
		return false, false
	}
	return f.aliveHeld(f.readable(), token)
}

func (f *Folder) aliveHeld(root files, token string) (held, exists bool) {
	name := aliveName(token)
	info, err := root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
		return false, false
	}
	if err != nil {
		return true, true
	}
	l := f.cfg.disk.lock(filepath.Join(f.path, name), os.O_RDONLY|nonblock)
	ok, err := l.TryRLock()
	defer l.Unlock() // ignore error: closing it unlocks
	switch {
	case errors.Is(err, fs.ErrNotExist), noLocks(err):
		return false, false
	case err != nil:
		return true, true
	}
	return !ok, true
}

// lockAlive makes and locks the .alive file of a token of one's own. It is
// locked before any document names it: a live holder must never look dead.
//
//	owner makes the file
//	                      a cleaner finds it free, locks it, removes it
//	owner locks a file that has no name any more
//
// So owner and cleaner both look, after locking, whether the name still leads
// to what they locked; with only one of them looking, there are
// interleavings of three that end the same way.
func (f *Folder) lockAlive(root files) (token string, l locker, err error) {
	for range 8 {
		token = f.cfg.token()
		name := aliveName(token)
		h, err := root.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return "", nil, fmt.Errorf("making %s: %w", name, err)
		}
		h.Close() // ignore error: nothing was written
		l = f.cfg.disk.lock(filepath.Join(f.path, name), os.O_RDWR|nonblock)
		ok, err := l.TryLock()
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			root.Remove(name) // ignore error: the next one that takes the lease cleans up
			return "", nil, fmt.Errorf("locking %s: %w", name, err)
		}
		if ok && isAt(root, name, l) {
			return token, l, nil
		}
		l.Unlock() // ignore error: of no use
		if f.moved(root) {
			return "", nil, fmt.Errorf("locking %s: %w", name, errMoved)
		}
	}
	return "", nil, errors.New("locking an .alive file: others removed each one that was made")
}

// clean removes what processes that have died left in the folder, under the
// lock of the lease. own is the token of who cleans. A failure is nobody's: the
// next one to take the lease tries again.
func (f *Folder) clean(root files, own string) {
	names, err := root.names()
	if err != nil {
		return
	}
	for _, name := range names {
		if token, ok := tokenOf(name, ".alive"); ok && token != own {
			f.cleanAlive(root, token)
		}
		if token, ok := tokenOf(name, ".tmp"); ok && token != own {
			// Made after its .alive and removed before it: without one,
			// nobody is going to rename it. Its age is a margin for makers
			// with other ways.
			if _, err := root.Lstat(aliveName(token)); errors.Is(err, fs.ErrNotExist) {
				removeOld(root, name)
			}
		}
		// A key that was to be, and a lock that was tried: whoever made it is
		// done with it within milliseconds, or died.
		if strings.HasPrefix(name, keyName+".") && strings.HasSuffix(name, ".tmp") || strings.HasPrefix(name, tryPrefix) {
			removeOld(root, name)
		}
	}
}

// removeOld removes a file that nobody has written to for a minute.
func removeOld(root files, name string) {
	if info, err := root.Lstat(name); err == nil && info.Mode().IsRegular() && time.Since(info.ModTime()) > time.Minute {
		root.Remove(name) // ignore error: the next one to clean tries again
	}
}

// cleanAlive removes the files of a token if its process is dead, the .alive
// file last, so that a cleaner that dies half way leaves what the next one
// finds.
func (f *Folder) cleanAlive(root files, token string) {
	name := aliveName(token)
	if info, err := root.Lstat(name); err != nil || !info.Mode().IsRegular() {
		return
	}
	l := f.cfg.disk.lock(filepath.Join(f.path, name), os.O_RDWR|nonblock)
	if ok, err := l.TryLock(); err != nil || !ok {
		l.Unlock() // ignore error: closes it
		return     // its process lives, or somebody is asking just now
	}
	if isAt(root, name, l) {
		root.Remove(tempName(token)) // ignore error: mostly there is none
		removeLocked(root, name, l)
		return
	}
	l.Unlock() // ignore error: of no use
}

// tokenOf returns the token in server.<token><suffix>.
func tokenOf(name, suffix string) (string, bool) {
	const prefix = "server."
	if len(name) != len(prefix)+32+len(suffix) || name[:len(prefix)] != prefix || name[len(name)-len(suffix):] != suffix {
		return "", false
	}
	token := name[len(prefix) : len(prefix)+32]
	return token, isToken(token)
}
