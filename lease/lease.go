// Package lease decides which process serves a checkout, and tells the others
// how to reach it.
//
// The processes that meet in a checkout have nothing in common but its files.
// One of them holds the lease, a small document that names it and its address.
// The others judge that document: they join a server that proves that it holds
// the lease, wait for one that is on its way, and replace one that is dead,
// hung, or running code that is no longer on disk. Judge is the whole of that
// as one function without I/O; Settle looks until there is a verdict; Elect
// takes the lease and returns a Tenure, which knows when it is lost.
//
// What is promised. At no moment do two servers both find the lease to be
// theirs by reading it. A lease is never taken from a holder that was not
// judged as it is at that moment, nor removed by another than its holder. A
// loss, once noticed, is never unmade. Nothing that can lie at the lease's path
// keeps the next process from getting past it.
//
// What is not promised. Between reading the lease and acting on it a process
// can be stopped for any time, so two servers can both be acting: a server
// reads again whenever it admits somebody, and bridges move on when told. Where
// a file system has no locks, or does not carry them between machines, a live
// holder that cannot be reached looks dead. No clock but a process's own
// monotonic one is believed, save where a lease of another maker leaves nothing
// but its file's age. A process that is stopped while it has server.lock makes
// every election fail, within the probe timeout, until it goes on.
//
// Tuning. Editors allow 3 to 10 seconds for a first answer. BusyGrace plus the
// start of a server has to fit into JoinTimeout. A hung server is replaced
// after BusyGrace, so that must be longer than the longest pause of a healthy
// one. BindGrace is longer than JoinTimeout by default: a holder that hangs
// before it listens makes the clients that meet it be served alone, which is
// better than to take a slow disk for a death.
package lease

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"majordomus/lease/checkout"
)

var (
	// ErrLost says that the lease is no longer one's own.
	ErrLost = errors.New("the lease of this checkout was lost")
	// ErrElsewhere says that the lease's holder lives and cannot be reached
	// from this process.
	ErrElsewhere = errors.New("the server of this checkout lives where it cannot be reached from here")
	// ErrUnreadable says that the lease could not be read, which says nothing
	// about who holds it.
	ErrUnreadable = errors.New("the lease cannot be read")
	// ErrLockBusy says that another process is in the middle of changing the
	// lease and has not come to an end.
	ErrLockBusy = errors.New("another process does not let go of server.lock")
)

// Timings are the durations that decide. Zero fields take the defaults.
type Timings struct {
	BindGrace    time.Duration // how long a lease without an address may stay unchanged; 15 s
	BusyGrace    time.Duration // how long a live holder that does not answer is waited for; 3 s
	JoinTimeout  time.Duration // how long an election may take; 8 s
	ProbeTimeout time.Duration // how long one probe, and one wait for a lock, may take; 1 s
}

func (t Timings) withDefaults() Timings {
	set := func(d *time.Duration, otherwise time.Duration) {
		if *d <= 0 {
			*d = otherwise
		}
	}
	set(&t.BindGrace, 15*time.Second)
	set(&t.BusyGrace, 3*time.Second)
	set(&t.JoinTimeout, 8*time.Second)
	set(&t.ProbeTimeout, time.Second)
	return t
}

// Config says whose lease a Folder is about and who asks. Checkout is required.
type Config struct {
	Checkout *checkout.Checkout
	Timings  Timings
	Self     ExecutableIdentity // of this process, as StartedAs gave it
	Version  string             // of this process
	Log      *slog.Logger       // nil discards

	disk  disk                                                                     // nil: the machine's
	token func() string                                                            // nil: a random one
	ask   func(ctx context.Context, doc Document, within time.Duration) ProbeReply // nil: over the network
	sleep func(ctx context.Context, d time.Duration) error                         // nil: by the machine's clock
}

// A Folder is the state folder of a checkout, in which its processes meet. It
// is safe for concurrent use. All files in it are reached through one handle on
// the folder, so that no name and no link leads elsewhere; when the folder is
// deleted and made again, the handle follows, except that of a Tenure: who held
// a lease in the old one must not touch the new one's.
type Folder struct {
	cfg  Config
	path string

	mu     sync.Mutex
	root   files
	info   fs.FileInfo // of root
	old    []files     // replaced; other calls may still be using them
	closed bool
}

// Open opens the state folder of a checkout and creates it where it is missing,
// readable for this account only and ignored by git.
func Open(cfg Config) (*Folder, error) {
	f := newFolder(cfg)
	root, err := f.cfg.disk.create(f.cfg.Checkout)
	if err != nil {
		return nil, fmt.Errorf("opening the state folder: %w", err)
	}
	return f.with(root)
}

// OpenExisting opens the state folder of a checkout and creates nothing. The
// error is fs.ErrNotExist when there is none: nobody ever served here.
func OpenExisting(cfg Config) (*Folder, error) {
	f := newFolder(cfg)
	root, err := f.cfg.disk.open(f.cfg.Checkout)
	if err != nil {
		return nil, fmt.Errorf("opening the state folder: %w", err)
	}
	return f.with(root)
}

func newFolder(cfg Config) *Folder {
	cfg.Timings = cfg.Timings.withDefaults()
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.disk == nil {
		cfg.disk = systemDisk{}
	}
	if cfg.token == nil {
		cfg.token = newToken
	}
	if cfg.sleep == nil {
		cfg.sleep = sleep
	}
	return &Folder{cfg: cfg, path: cfg.Checkout.StateDir()}
}

func (f *Folder) with(root files) (*Folder, error) {
	info, err := root.Stat(".")
	if err != nil {
		root.Close() // ignore error: the first one counts
		return nil, fmt.Errorf("opening the state folder: %w", err)
	}
	f.root, f.info = root, info
	return f, nil
}

// Close lets go of the folder. Tenures taken through it keep what they need.
func (f *Folder) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil
	}
	f.closed = true
	for _, old := range f.old {
		old.Close() // ignore error: its folder is gone
	}
	return f.root.Close()
}

// Read says what lies at the lease's path now.
func (f *Folder) Read() File { return read(f.readable()) }

// LeasePath is where the lease lies.
func (f *Folder) LeasePath() string { return filepath.Join(f.path, documentName) }

// FileAge is how long ago the lease was last written, by the clock of this
// process and the time of the file, which may be another machine's.
func (f *Folder) FileAge() (time.Duration, error) {
	info, err := f.readable().Lstat(documentName)
	if err != nil {
		return 0, fmt.Errorf("asking for the age of the lease: %w", err)
	}
	return max(0, time.Since(info.ModTime())), nil
}

// Age is how long ago something was last put into the folder or taken out of it.
func (f *Folder) Age() (time.Duration, error) {
	info, err := f.readable().Stat(".")
	if err != nil {
		return 0, fmt.Errorf("asking for the age of the state folder: %w", err)
	}
	return max(0, time.Since(info.ModTime())), nil
}

// readable is the handle on the folder as its path leads to it now; on the one
// that was deleted, in which nothing is found, where there is none.
func (f *Folder) readable() files {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now, err := f.cfg.disk.stat(f.path); err == nil && !sameFile(now, f.info) {
		if root, err := f.cfg.disk.open(f.cfg.Checkout); err == nil {
			f.replaceLocked(root)
		}
	}
	return f.root
}

// writable is readable for who is about to put something into the folder: it
// is made again where it is gone.
func (f *Folder) writable() (files, error) {
	root := f.readable()
	if _, err := f.cfg.disk.stat(f.path); !errors.Is(err, fs.ErrNotExist) {
		return root, nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	root, err := f.cfg.disk.create(f.cfg.Checkout)
	if err != nil {
		return nil, fmt.Errorf("making the state folder again: %w", err)
	}
	f.replaceLocked(root)
	return f.root, nil
}

func (f *Folder) replaceLocked(root files) {
	info, err := root.Stat(".")
	if err != nil || f.closed || sameFile(info, f.info) {
		root.Close() // ignore error: unused
		return
	}
	f.old = append(f.old, f.root)
	f.root, f.info = root, info
}

func newToken() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// Kept reports whether a lease lies in the state folder of c, whatever it says,
// and what its file is; nil where that cannot be told. It is one look, for
// whoever has many checkouts to look at. Every lease is a file of its own, so
// that as long as it is the same one, unchanged, so is the lease.
func Kept(c *checkout.Checkout) (info fs.FileInfo, kept bool) {
	info, err := os.Lstat(filepath.Join(c.StateDir(), documentName))
	if err != nil {
		return nil, !errors.Is(err, fs.ErrNotExist)
	}
	return info, true
}
