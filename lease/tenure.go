package lease

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"
)

// tick is how often an owner looks whether the lease is still its own. It looks
// at every admission besides.
const tick = 500 * time.Millisecond

// A Tenure is the time during which a process holds the lease. It ends by a
// loss, which is noticed at a read, recorded once and never unmade, or by
// Release. It is safe for concurrent use. Whoever got one from Elect calls Run
// and, in the end, Release.
type Tenure struct {
	f     *Folder
	root  files // of its own: the folder it was taken in, whatever lies at the path later
	info  fs.FileInfo
	token string
	start time.Time
	alive locker

	ctx    context.Context // the tenure itself: owned here, ended by loss or release
	cancel context.CancelCauseFunc
	gone   chan struct{} // closed by Release

	write sync.Mutex // one change of the file at a time; before mu

	mu        sync.Mutex
	doc       Document
	lostAt    time.Time // zero while not lost
	published bool
	released  bool
}

// Context ends with the tenure. Its cause is ErrLost after a loss.
func (t *Tenure) Context() context.Context { return t.ctx }

// Token is the lease's token, also after a loss.
func (t *Tenure) Token() string { return t.token }

// StartedAt is the identity of this server's generation.
func (t *Tenure) StartedAt() time.Time { return t.start }

// Document is the lease as this process last wrote it, from memory, and false
// once it is lost or released.
func (t *Tenure) Document() (Document, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.endedLocked() {
		return Document{}, false
	}
	return t.doc, true
}

// Held reports, without looking, whether the lease was neither lost nor
// released. Before anything is done that only the holder may do, ask IsOwn.
func (t *Tenure) Held() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.endedLocked()
}

// Lost reports whether a loss was noticed.
func (t *Tenure) Lost() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.lostAt.IsZero()
}

// LostFor is how long ago the loss was noticed; 0 without one.
func (t *Tenure) LostFor() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lostAt.IsZero() {
		return 0
	}
	return time.Since(t.lostAt)
}

func (t *Tenure) endedLocked() bool { return t.released || !t.lostAt.IsZero() }

// IsOwn reads the lease now and reports whether it is this tenure's. A
// difference is recorded as the loss. An error wraps ErrUnreadable: it could
// not be told, which is no loss, but no reason to admit anybody either.
func (t *Tenure) IsOwn() (bool, error) {
	if !t.Held() {
		return false, nil
	}
	own, err := t.look()
	if confirmLoss && err == nil && !own {
		own, err = t.confirm()
	}
	if !t.Held() {
		return false, nil // lost or released while it was read
	}
	if err == nil && !own {
		t.lose()
	}
	return own, err
}

// confirm looks again, while nobody can be changing anything.
func (t *Tenure) confirm() (bool, error) {
	unlock, err := t.f.change(t.root)
	if errors.Is(err, errMoved) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("%w: finding out whether it was lost: %w", ErrUnreadable, err)
	}
	defer unlock()
	return t.look()
}

// look reports whether the file names this tenure, and still lies where others
// look for it: a folder that was moved away is read by nobody.
func (t *Tenure) look() (bool, error) {
	at, err := t.f.cfg.disk.stat(t.f.path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !sameFile(at, t.info) {
		return false, nil
	}
	file := read(t.root)
	if file.State == Unreadable {
		return false, fmt.Errorf("%w: %w", ErrUnreadable, file.Err)
	}
	return file.State == Present && file.Document.Token == t.token, nil
}

// lose records the loss. A tenure that was released in the meantime has lost
// nothing: the file that is not there is the one it removed.
func (t *Tenure) lose() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.endedLocked() {
		return
	}
	t.lostAt = time.Now()
	t.doc = Document{}
	t.cancel(ErrLost)
	t.f.cfg.Log.Warn("the lease was lost", "token", t.token[:8])
}

// Run looks after the tenure until ctx ends or it is released: it reads the
// lease every half second and, until an address is published, rewrites it every
// third of the bind grace, so that others see that the process makes progress.
// A loss does not end it: Context tells of that. It always returns nil.
func (t *Tenure) Run(ctx context.Context) error {
	looks := time.NewTicker(tick)
	defer looks.Stop()
	alive := time.NewTicker(t.f.cfg.Timings.BindGrace / 3)
	defer alive.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.gone:
			return nil
		case <-looks.C:
			if _, err := t.IsOwn(); err != nil {
				t.f.cfg.Log.Warn("looking after the lease", "err", err)
			}
		case <-alive.C:
			if err := t.KeepAlive(); err != nil && !errors.Is(err, ErrLost) {
				t.f.cfg.Log.Warn("keeping the lease alive", "err", err)
			}
		}
	}
}

// Publish puts the address under which the server answers into the lease, for
// others to come. It must answer already. ErrLost says that the lease is no
// longer this tenure's; any other error leaves it held and not published.
func (t *Tenure) Publish(url string) error {
	err := t.rewrite(func(d *Document) bool {
		if d.address() == url {
			return false
		}
		d.URL = &url
		return true
	})
	if err != nil {
		return fmt.Errorf("publishing the address: %w", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.published = true
	return nil
}

// KeepAlive rewrites a lease that has no address yet, as it is. It does nothing
// once there is one.
func (t *Tenure) KeepAlive() error {
	t.mu.Lock()
	done := t.published || t.doc.URL != nil
	t.mu.Unlock()
	if done {
		return nil
	}
	if err := t.rewrite(func(d *Document) bool { return d.URL == nil }); err != nil {
		return fmt.Errorf("keeping the lease alive: %w", err)
	}
	return nil
}

// rewrite changes the document, while it is this tenure's. change returns false
// when there is nothing to write.
func (t *Tenure) rewrite(change func(*Document) bool) error {
	t.write.Lock()
	defer t.write.Unlock()
	doc, held := t.Document()
	if !held {
		return ErrLost
	}
	// Looked at first as well: in a folder that was deleted there is nothing
	// to lock.
	if own, err := t.IsOwn(); err != nil {
		return err
	} else if !own {
		return ErrLost
	}
	if !change(&doc) {
		return nil
	}
	b, err := doc.encode()
	if err != nil {
		return err
	}
	// Synced before the lock is taken: a loaded disk takes seconds over it.
	temp := tempName(t.token)
	t.root.Remove(temp) // ignore error: mostly there is none
	if err := writeFile(t.root, temp, b); err != nil {
		return t.orLost(fmt.Errorf("writing the lease: %w", err))
	}
	defer t.root.Remove(temp) // ignore error: renamed, mostly
	unlock, err := t.f.change(t.root)
	if err != nil {
		return t.orLost(err)
	}
	defer unlock()
	own, err := t.look()
	switch {
	case err != nil:
		return err
	case !own:
		t.lose()
		return ErrLost
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.endedLocked() {
		return ErrLost
	}
	if err := t.root.Rename(temp, documentName); err != nil {
		return fmt.Errorf("replacing the lease: %w", err)
	}
	t.doc = doc
	return nil
}

// orLost is ErrLost where an error comes of the folder's being gone, which took
// the lease along:
//
//	P1 looks: the lease is its own
//	                               rm -r of the folder
//	P1 makes its temporary file, or locks: no such file
//
// Otherwise it says that nothing was changed, and the lease is held.
func (t *Tenure) orLost(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		if own, e := t.IsOwn(); e == nil && !own {
			return ErrLost
		}
	}
	return err
}

// Release gives the lease up: the file is removed if it is still this tenure's,
// and not touched otherwise. From its first moment Held and IsOwn are false. An
// error means that the file stayed; the next process sees that its owner is
// gone. Calls after the first do nothing.
func (t *Tenure) Release() error {
	t.mu.Lock()
	if t.released {
		t.mu.Unlock()
		return nil
	}
	lost := !t.lostAt.IsZero()
	t.released = true
	t.doc = Document{}
	t.mu.Unlock()

	t.write.Lock() // a rewrite under way comes to its end first, and finds itself released
	defer t.write.Unlock()
	var err error
	if !lost {
		err = t.remove()
	}
	// The .alive file is the last to go, and stays, free, beside a lease that
	// could not be removed: that says at once that its owner is gone.
	if err == nil {
		removeLocked(t.root, aliveName(t.token), t.alive)
	} else {
		t.alive.Unlock() // ignore error: the process's end unlocks too
	}
	t.root.Close() // ignore error: nothing was written through it
	t.cancel(errReleased)
	close(t.gone)
	return err
}

var errReleased = errors.New("the lease was released")

func (t *Tenure) remove() error {
	unlock, err := t.f.change(t.root)
	if errors.Is(err, errMoved) {
		return nil // the folder is gone, and the lease with it
	}
	if err != nil {
		return fmt.Errorf("releasing the lease: %w", err)
	}
	defer unlock()
	own, err := t.look()
	if err != nil {
		return fmt.Errorf("releasing the lease: %w", err)
	}
	if !own {
		return nil
	}
	if err := t.root.Remove(documentName); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("releasing the lease: %w", err)
	}
	return nil
}
