package lease

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"majordomus/lease/checkout"
)

// A faulty disk is the machine's, but for one call, or all from one on, that
// fails, or in the middle of which the process dies.
type faulty struct {
	systemDisk
	at      int // the call at which it begins; calls count from 1
	lasting bool
	err     error // nil: the process dies
	after   bool  // when the call has had its effect
	short   bool  // writes put half of it down

	calls   int
	hits    int
	what    string
	handles []io.Closer
}

// call counts a call, and returns how it fails. One in the middle of which the
// process dies does not return.
func (d *faulty) call(what string, do func() error) error {
	d.calls++
	if d.calls != d.at && !(d.lasting && d.calls > d.at && d.at > 0) {
		return do()
	}
	d.hits++
	if d.what == "" {
		d.what = what
	}
	if d.err == nil {
		if d.after {
			do() // ignore error: nobody is there to learn of it
		}
		panic(crash{})
	}
	if d.after {
		do() // ignore error: the one that is made up counts
	}
	return &fs.PathError{Op: what, Path: "x", Err: d.err}
}

// die is what the kernel does for a process that has died.
func (d *faulty) die() {
	for _, c := range d.handles {
		c.Close() // ignore error: most are closed already
	}
}

func (d *faulty) stat(path string) (info fs.FileInfo, err error) {
	err = d.call("stat", func() (err error) { info, err = d.systemDisk.stat(path); return err })
	return info, err
}

func (d *faulty) openAs(what string, how func() (files, error)) (f files, err error) {
	err = d.call(what, func() (err error) { f, err = how(); return err })
	if err != nil {
		if f != nil {
			f.Close()
		}
		return nil, err
	}
	d.handles = append(d.handles, f)
	return &faultyFiles{f, d}, nil
}

type faultyDisk struct{ *faulty }

func (d faultyDisk) open(c *checkout.Checkout) (files, error) {
	return d.openAs("open the folder", func() (files, error) { return d.systemDisk.open(c) })
}

func (d faultyDisk) create(c *checkout.Checkout) (files, error) {
	return d.openAs("make the folder", func() (files, error) { return d.systemDisk.create(c) })
}

func (d faultyDisk) lock(path string, flag int) locker {
	l := &faultyLock{d.systemDisk.lock(path, flag), d.faulty, filepath.Base(path)}
	d.handles = append(d.handles, closer(l.locker.Unlock))
	return l
}

type closer func() error

func (c closer) Close() error { return c() }

type faultyLock struct {
	locker
	d    *faulty
	name string
}

func (l *faultyLock) TryLock() (ok bool, err error) {
	err = l.d.call("lock "+l.name, func() (err error) { ok, err = l.locker.TryLock(); return err })
	return ok && err == nil, err
}

func (l *faultyLock) TryRLock() (ok bool, err error) {
	err = l.d.call("share "+l.name, func() (err error) { ok, err = l.locker.TryRLock(); return err })
	return ok && err == nil, err
}

func (l *faultyLock) Unlock() error { return l.d.call("unlock "+l.name, l.locker.Unlock) }

type faultyFiles struct {
	files
	d *faulty
}

func (f *faultyFiles) Lstat(name string) (info fs.FileInfo, err error) {
	err = f.d.call("lstat "+name, func() (err error) { info, err = f.files.Lstat(name); return err })
	return info, err
}

func (f *faultyFiles) Stat(name string) (info fs.FileInfo, err error) {
	err = f.d.call("stat "+name, func() (err error) { info, err = f.files.Stat(name); return err })
	return info, err
}

func (f *faultyFiles) OpenFile(name string, flag int, perm fs.FileMode) (h file, err error) {
	err = f.d.call("open "+name, func() (err error) { h, err = f.files.OpenFile(name, flag, perm); return err })
	if err != nil {
		if h != nil {
			h.Close()
		}
		return nil, err
	}
	f.d.handles = append(f.d.handles, h)
	return &faultyFile{h, f.d, name}, nil
}

func (f *faultyFiles) Rename(from, to string) error {
	return f.d.call("rename to "+to, func() error { return f.files.Rename(from, to) })
}

func (f *faultyFiles) Remove(name string) error {
	return f.d.call("remove "+name, func() error { return f.files.Remove(name) })
}

func (f *faultyFiles) Link(from, to string) error {
	return f.d.call("link to "+to, func() error { return f.files.Link(from, to) })
}

func (f *faultyFiles) sync() error { return f.d.call("sync the folder", f.files.sync) }

func (f *faultyFiles) log(name string) (h *os.File, err error) {
	err = f.d.call("open "+name, func() (err error) { h, err = f.files.log(name); return err })
	if err != nil {
		if h != nil {
			h.Close()
		}
		return nil, err
	}
	f.d.handles = append(f.d.handles, h)
	return h, nil
}

func (f *faultyFiles) again() (files, error) { return f.d.openAs("open again", f.files.again) }

func (f *faultyFiles) names() (list []string, err error) {
	err = f.d.call("list", func() (err error) { list, err = f.files.names(); return err })
	return list, err
}

type faultyFile struct {
	file
	d    *faulty
	name string
}

func (f *faultyFile) Read(b []byte) (n int, err error) {
	err = f.d.call("read "+f.name, func() (err error) { n, err = f.file.Read(b); return err })
	return n, err
}

func (f *faultyFile) Write(b []byte) (n int, err error) {
	err = f.d.call("write "+f.name, func() (err error) { n, err = f.file.Write(b); return err })
	if err != nil && f.d.short && n == 0 {
		n, _ = f.file.Write(b[:len(b)/2]) // ignore error: the other one counts
	}
	return n, err
}

func (f *faultyFile) Stat() (info fs.FileInfo, err error) {
	err = f.d.call("stat "+f.name, func() (err error) { info, err = f.file.Stat(); return err })
	return info, err
}

func (f *faultyFile) Sync() error { return f.d.call("sync "+f.name, f.file.Sync) }

// A play is what a process does with a disk, and what must be so afterwards.
type play struct {
	lay  func(t *testing.T, c *checkout.Checkout) // what it finds; nil: nothing
	live func(t *testing.T, f *Folder) string     // returns what it came to
	done string                                   // how that begins without a fault

	// then looks at what it left, through a disk without faults.
	then func(t *testing.T, c *checkout.Checkout, f *Folder, was, what string)
	left []string // names that may be there in the end

	few string // it is like another one: the way in which it is tried without -deep
}

// TestFaults has every call to the disk of taking, publishing, looking, keeping
// and releasing, of making and rotating the key, of the launch lock and of the
// log fail in every way, and die before and after its effect: the next process
// always gets through, and nothing is left but what has a name in DESIGN.
func TestFaults(t *testing.T) {
	timings := Timings{BindGrace: 60 * time.Millisecond, BusyGrace: 30 * time.Millisecond, JoinTimeout: 400 * time.Millisecond, ProbeTimeout: 20 * time.Millisecond}
	open := func(c *checkout.Checkout, d disk) (*Folder, error) {
		return Open(Config{Checkout: c, Timings: timings, Version: "v1.0.0", disk: d})
	}
	// life returns what a process came to.
	life := func(t *testing.T, p play, c *checkout.Checkout, d disk) (outcome string) {
		defer func() {
			if r := recover(); r != nil {
				if _, ok := r.(crash); !ok {
					panic(r)
				}
				outcome = "died"
			}
		}()
		f, err := open(c, d)
		if err != nil {
			return "alone: " + err.Error()
		}
		defer f.Close()
		return p.live(t, f)
	}
	fresh := func(t *testing.T, p play) *checkout.Checkout {
		c := newCheckout(t)
		if p.lay != nil {
			p.lay(t, c)
		}
		return c
	}
	ways := map[string]func(d *faulty){
		"no space":              func(d *faulty) { d.err = syscall.ENOSPC },
		"no space, half of it":  func(d *faulty) { d.err, d.short = syscall.ENOSPC, true },
		"no space from then on": func(d *faulty) { d.err, d.lasting = syscall.ENOSPC, true },
		"broken":                func(d *faulty) { d.err = syscall.EIO },
		"broken, and done":      func(d *faulty) { d.err, d.after = syscall.EIO, true },
		"broken from then on":   func(d *faulty) { d.err, d.lasting = syscall.EIO, true },
		"not allowed":           func(d *faulty) { d.err = syscall.EACCES },
		"no descriptors":        func(d *faulty) { d.err = syscall.EMFILE },
		"gone":                  func(d *faulty) { d.err = syscall.ENOENT },
		"dead before":           func(*faulty) {},
		"dead after":            func(d *faulty) { d.after = true },
	}
	for title, p := range plays() {
		count := &faulty{}
		if got := life(t, p, fresh(t, p), faultyDisk{count}); !strings.HasPrefix(got, p.done) {
			t.Fatalf("%s without a fault: %s", title, got)
		}
		for name, way := range ways {
			if p.few != "" && p.few != name && !*deep {
				continue
			}
			t.Run(title+"/"+name, func(t *testing.T) {
				t.Parallel()
				for at := 1; at <= count.calls+10; at++ {
					c := fresh(t, p)
					d := &faulty{at: at}
					way(d)
					was := life(t, p, c, faultyDisk{d})
					if d.hits == 0 {
						continue // it had fewer calls than that
					}
					d.die()
					what := fmt.Sprintf("call %d (%s), %s, which %s", at, d.what, name, was)
					f, err := open(c, systemDisk{})
					if err != nil {
						t.Fatalf("%s: the next process: %v", what, err)
					}
					p.then(t, c, f, was, what)
					f.Close()
					left, err := os.ReadDir(c.StateDir())
					if err != nil {
						t.Error(err)
					}
					for _, e := range left {
						// Of a temporary file a minute's age says that nobody is
						// going to rename it.
						if !slices.Contains(p.left, e.Name()) && !strings.HasSuffix(e.Name(), ".tmp") {
							t.Errorf("%s: %s is left", what, e.Name())
						}
					}
				}
			})
		}
	}
}

func plays() map[string]play {
	serve := func(t *testing.T, f *Folder) string {
		began := time.Now()
		e, err := f.Elect(context.Background(), Candidate{Listen: noListen})
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("it took %v", took)
		}
		if err != nil {
			return "alone: " + err.Error()
		}
		if e.Role == Peer {
			return "joined"
		}
		defer e.Tenure.Release()
		if err := e.Tenure.KeepAlive(); err != nil && errors.Is(err, ErrLost) {
			return "lost: " + err.Error()
		}
		if err := e.Tenure.Publish("http://127.0.0.1:1"); err != nil {
			return "unpublished: " + err.Error()
		}
		if own, err := e.Tenure.IsOwn(); err == nil && !own {
			return "lost what nobody took"
		}
		return "served"
	}
	served := func(t *testing.T, _ *checkout.Checkout, f *Folder, was, what string) {
		if was == "joined" || strings.HasPrefix(was, "lost") && !strings.Contains(what, "gone") {
			t.Errorf("%s: there is nobody to join or lose to", what)
		}
		if got := serve(t, f); got != "served" {
			t.Errorf("%s: the next process is %s", what, got)
		}
	}
	write := func(t *testing.T, c *checkout.Checkout, name, text string) {
		if err := errors.Join(os.MkdirAll(c.StateDir(), 0o700), os.WriteFile(filepath.Join(c.StateDir(), name), []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	const old = "a key that was there before"
	const dead = "0123456789abcdef0123456789abcdef"
	aside := func(t *testing.T, c *checkout.Checkout, f *Folder, was, what string) {
		served(t, c, f, was, what)
		putAway(t, f.LeasePath(), what)
	}
	return map[string]play{
		"serving": {live: serve, done: "served", then: served, left: []string{lockName}},
		"serving after one that died": {
			lay: func(t *testing.T, c *checkout.Checkout) {
				write(t, c, documentName, `{"schema":"`+Schema+`","token":"`+dead+`","url":null}`)
				write(t, c, aliveName(dead), "")
				write(t, c, tempName(dead), "")
			},
			live: serve, done: "served", then: served, left: []string{lockName}, few: "dead before",
		},
		"serving where a folder lies": {
			lay: func(t *testing.T, c *checkout.Checkout) {
				if err := os.MkdirAll(filepath.Join(c.StateDir(), documentName), 0o700); err != nil {
					t.Fatal(err)
				}
			},
			live: serve, done: "served", then: aside, left: []string{lockName}, few: "broken",
		},
		"making the key": {live: tell, done: "told ", then: told, left: []string{lockName, keyName}},
		"making the key where there is none in the file": {
			lay:  func(t *testing.T, c *checkout.Checkout) { write(t, c, keyName, "short") },
			live: tell, done: "told ", then: told, left: []string{lockName, keyName}, few: "dead after",
		},
		"making the key where a link lies": {
			lay: func(t *testing.T, c *checkout.Checkout) {
				write(t, c, lockName, "")
				if err := os.Symlink(lockName, filepath.Join(c.StateDir(), keyName)); err != nil {
					t.Fatal(err)
				}
			},
			live: tell, done: "told ", then: told, left: []string{lockName, keyName},
		},
		"rotating the key": {
			lay: func(t *testing.T, c *checkout.Checkout) { write(t, c, keyName, old) },
			live: func(_ *testing.T, f *Folder) string {
				key, err := f.RotateKey()
				if err != nil {
					return "kept: " + err.Error()
				}
				return "told " + key
			},
			done: "told ", then: told, left: []string{lockName, keyName},
		},
		"starting": {
			live: getTurn, done: "had its turn",
			then: func(t *testing.T, _ *checkout.Checkout, f *Folder, was, what string) {
				if got := getTurn(t, f); got != "had its turn" {
					t.Errorf("%s: the next process %s", what, got)
				}
			},
			left: []string{launchName},
		},
		"starting where a folder lies": {
			lay: func(t *testing.T, c *checkout.Checkout) {
				if err := os.MkdirAll(filepath.Join(c.StateDir(), launchName), 0o700); err != nil {
					t.Fatal(err)
				}
			},
			live: getTurn, done: "had its turn",
			then: func(t *testing.T, _ *checkout.Checkout, f *Folder, was, what string) {
				if got := getTurn(t, f); got != "had its turn" {
					t.Errorf("%s: the next process %s", what, got)
				}
				putAway(t, filepath.Join(f.path, launchName), what)
			},
			left: []string{launchName},
		},
		"logging": {
			lay: func(t *testing.T, c *checkout.Checkout) {
				write(t, c, "server.log", "")
				if err := os.Truncate(filepath.Join(c.StateDir(), "server.log"), maxLog); err != nil {
					t.Fatal(err)
				}
			},
			live: say, done: "said", then: saidOn, left: []string{"server.log", "server.log.1"},
		},
		"logging where a folder lies": {
			lay: func(t *testing.T, c *checkout.Checkout) {
				if err := os.MkdirAll(filepath.Join(c.StateDir(), "server.log"), 0o700); err != nil {
					t.Fatal(err)
				}
			},
			live: say, done: "said",
			then: func(t *testing.T, c *checkout.Checkout, f *Folder, was, what string) {
				saidOn(t, c, f, was, what)
				putAway(t, f.LogPath("server.log"), what)
			},
			left: []string{"server.log"},
		},
	}
}

func tell(_ *testing.T, f *Folder) string {
	key, err := f.Key()
	if err != nil {
		return "none: " + err.Error()
	}
	return "told " + key
}

// told looks whether the key that somebody was told is the one for good.
func told(t *testing.T, _ *checkout.Checkout, f *Folder, was, what string) {
	key, err := f.Key()
	if err != nil || !isKey(key) {
		t.Errorf("%s: the next process has the key %q, %v", what, key, err)
	}
	if again, err := f.ReadKey(); err != nil || again != key {
		t.Errorf("%s: then it is %q, %v", what, again, err)
	}
	if before, ok := strings.CutPrefix(was, "told "); ok && before != key {
		t.Errorf("%s: the next process is told %q", what, key)
	}
}

func getTurn(_ *testing.T, f *Folder) string {
	unlock, ok, err := f.TryLockLaunch()
	switch {
	case err != nil:
		return "does not start: " + err.Error()
	case !ok:
		return "waits for nobody"
	}
	unlock()
	return "had its turn"
}

// say writes to a log that is full after the first line.
func say(_ *testing.T, f *Folder) string {
	l, err := f.Log("server.log")
	if err != nil {
		return "silent: " + err.Error()
	}
	defer l.Close()
	for range 3 {
		if _, err := l.Write([]byte("word\n")); err != nil {
			return "lost a word: " + err.Error()
		}
	}
	return "said"
}

func saidOn(t *testing.T, _ *checkout.Checkout, f *Folder, was, what string) {
	if strings.HasPrefix(was, "lost") {
		t.Errorf("%s: what could be opened is written to", what)
	}
	if got := say(t, f); got != "said" {
		t.Errorf("%s: the next process is %s", what, got)
	}
}

// putAway removes what was moved aside, of which there is one at most.
func putAway(t *testing.T, path, what string) {
	moved, _ := filepath.Glob(path + ".aside-*") // ignore error: a pattern that is one
	if len(moved) != 1 {
		t.Errorf("%s: aside are %v", what, moved)
	}
	for _, name := range moved {
		os.Remove(name) // ignore error: then it is found to be left
	}
}
