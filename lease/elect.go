package lease

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// Role is what an election made of a process.
type Role int

const (
	Server Role = iota // it holds the lease
	Peer               // another process serves
)

func (r Role) String() string {
	if r == Server {
		return "server"
	}
	return "peer"
}

// A Candidate is a process that is about to serve. Listen is required.
type Candidate struct {
	History History

	// Listen binds and listens, at the port of prefer if it can, and returns
	// the address; prefer is that of the lease replaced, or "". It is called
	// at most once per election with an effect: a second call must return the
	// same address. Connections may wait from then on; nobody is told of the
	// address before Publish, unless a live server is superseded.
	Listen func(prefer string) (url string, err error)

	// NoAuth says that the server will want no key.
	NoAuth bool
}

// An Election is how one ended.
type Election struct {
	Role   Role
	Tenure *Tenure  // of a Server
	Peer   Document // the lease of the server that answered, for a Peer
	Reason string   // for people
}

// Elect makes this process the server of the checkout, or finds the one that
// is. It is bounded by the join timeout. An error, among them ErrElsewhere,
// ErrUnreadable, ErrLockBusy and those of the file system, means that neither
// was possible: serve the client at hand alone, and say why. What was bound by
// Listen stays the caller's, whatever the outcome.
func (f *Folder) Elect(ctx context.Context, c Candidate) (Election, error) {
	ctx, cancel := context.WithTimeout(ctx, f.cfg.Timings.JoinTimeout)
	defer cancel()
	e, err := f.elect(ctx, c)
	if err != nil {
		return Election{}, fmt.Errorf("standing for election: %w", err)
	}
	return e, nil
}

func (f *Folder) elect(ctx context.Context, c Candidate) (Election, error) {
	w := f.watch(c.History)
	gone := 0
	var t *Tenure // begun, not yet taken
	abandon := func() {
		if t != nil {
			t.abandon()
			t = nil
		}
	}
	defer func() { abandon() }()
	for {
		v, err := w.settle(ctx)
		if err != nil {
			return Election{}, err
		}
		switch v.Action {
		case Join:
			return Election{Role: Peer, Peer: v.File.Document, Reason: v.Reason}, nil
		case Free, TakeOver:
		default:
			return Election{}, fmt.Errorf("%w: %s", ErrElsewhere, v.Reason)
		}
		prefer := v.File.Document.address()
		var url *string
		if v.Superseded {
			// It lives and serves: it is replaced by one that listens
			// already, so that there is never nobody, and a build that cannot
			// bind harms nobody.
			address, err := c.Listen(prefer)
			if err != nil {
				return Election{}, fmt.Errorf("listening: %w", err)
			}
			url = &address
		}
		if t == nil {
			t, err = f.begin(c, url)
		} else {
			err = t.prepare(url)
		}
		took := false
		if err == nil {
			took, err = t.take(v.File)
		}
		if errors.Is(err, fs.ErrNotExist) && gone < 10 {
			gone++
			// The folder was deleted under us. It is made again, and whoever
			// else makes it is met there.
			abandon()
			if err := f.cfg.sleep(ctx, firstPause); err != nil {
				return Election{}, err
			}
			continue
		}
		if err != nil {
			return Election{}, err
		}
		if !took {
			continue // it is no longer what was judged
		}
		f.cfg.Log.Info("took the lease", "because", v.Reason, "token", t.token[:8])
		mine := t
		t = nil
		if url == nil {
			if _, err := c.Listen(prefer); err != nil {
				return Election{}, errors.Join(fmt.Errorf("listening: %w", err), mine.Release())
			}
		}
		return Election{Role: Server, Tenure: mine, Reason: v.Reason}, nil
	}
}

// begin makes all that is made before the lease is taken: the .alive file,
// locked, and the document under its own name, on disk.
func (f *Folder) begin(c Candidate, url *string) (*Tenure, error) {
	shared, err := f.writable()
	if err != nil {
		return nil, err
	}
	root, err := shared.again()
	if err != nil {
		return nil, fmt.Errorf("opening the state folder: %w", err)
	}
	info, err := root.Stat(".")
	if err != nil {
		root.Close() // ignore error: the first one counts
		return nil, fmt.Errorf("opening the state folder: %w", err)
	}
	token, alive, err := f.lockAlive(root)
	if err != nil {
		root.Close() // ignore error: the first one counts
		return nil, err
	}
	// As the file will say it, so that memory and file agree.
	start := time.Now().UTC().Round(0)
	t := &Tenure{f: f, root: root, info: info, token: token, start: start, alive: alive, gone: make(chan struct{})}
	t.ctx, t.cancel = context.WithCancelCause(context.Background())
	t.doc = Document{
		Schema: Schema, PID: os.Getpid(), Token: token, Root: f.cfg.Checkout.Root, StartedAt: start,
		Executable: f.cfg.Self, Version: f.cfg.Version, Auth: "key",
	}
	if c.NoAuth {
		t.doc.Auth = ""
	}
	if err := t.writeTemp(url); err != nil {
		t.abandon()
		return nil, err
	}
	return t, nil
}

// prepare makes the document name url, or no address.
func (t *Tenure) prepare(url *string) error {
	if t.doc.address() == (Document{URL: url}).address() {
		return nil
	}
	t.root.Remove(tempName(t.token)) // ignore error: then writing fails
	return t.writeTemp(url)
}

func (t *Tenure) writeTemp(url *string) error {
	t.doc.URL = url
	b, err := t.doc.encode()
	if err != nil {
		return err
	}
	if err := writeFile(t.root, tempName(t.token), b); err != nil {
		return fmt.Errorf("writing the lease: %w", err)
	}
	return nil
}

// take puts the document in the lease's place if what lies there is still what
// was judged, to the last byte: the token alone is not enough, since a holder
// that was slow publishes under the token of the lease that was judged
// abandoned.
func (t *Tenure) take(judged File) (bool, error) {
	unlock, err := t.f.change(t.root)
	if err != nil {
		return false, err
	}
	defer unlock()
	now := read(t.root)
	if now.State == Unreadable {
		return false, nil // judged again, and waited for
	}
	if !now.same(judged) {
		return false, nil
	}
	if now.info != nil && now.info.IsDir() {
		if err := t.f.aside(t.root, documentName); err != nil {
			return false, err
		}
	}
	if err := t.root.Rename(tempName(t.token), documentName); err != nil {
		return false, fmt.Errorf("putting the lease in place: %w", err)
	}
	t.f.clean(t.root, t.token)
	return true, nil
}

// abandon removes what begin made, when nothing came of it.
func (t *Tenure) abandon() {
	t.root.Remove(tempName(t.token)) // ignore error: whoever takes the lease next cleans up
	removeLocked(t.root, aliveName(t.token), t.alive)
	t.root.Close() // ignore error: nothing to lose
	t.cancel(errReleased)
}
