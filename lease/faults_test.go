package lease

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
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

func (f *faultyFile) Sync() error { return f.d.call("sync "+f.name, f.file.Sync) }

// TestFaults has every call to the disk of taking, publishing, looking, keeping
// and releasing fail in every way, and die before and after its effect: the next
// process always gets through, and nothing is left but server.lock.
func TestFaults(t *testing.T) {
	timings := Timings{BindGrace: 60 * time.Millisecond, BusyGrace: 30 * time.Millisecond, JoinTimeout: 400 * time.Millisecond, ProbeTimeout: 20 * time.Millisecond}
	open := func(c *checkout.Checkout, d disk) (*Folder, error) {
		return Open(Config{Checkout: c, Timings: timings, Version: "v1.0.0", disk: d})
	}
	// life returns what a process came to.
	life := func(c *checkout.Checkout, d disk) (outcome string) {
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
	count := &faulty{}
	if got := life(newCheckout(t), faultyDisk{count}); got != "served" || count.calls < 40 {
		t.Fatalf("without a fault: %s, %d calls", got, count.calls)
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
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for at := 1; at <= count.calls+10; at++ {
				c := newCheckout(t)
				d := &faulty{at: at}
				way(d)
				was := life(c, faultyDisk{d})
				if d.hits == 0 {
					continue // it had fewer calls than that
				}
				d.die()
				what := fmt.Sprintf("call %d (%s), %s, which %s", at, d.what, name, was)
				if was == "joined" || strings.HasPrefix(was, "lost") && name != "gone" {
					t.Errorf("%s: there is nobody to join or lose to", what)
				}
				if got := life(c, systemDisk{}); got != "served" {
					t.Errorf("%s: the next process is %s", what, got)
				}
				left, err := os.ReadDir(c.StateDir())
				if err != nil {
					t.Error(err)
				}
				for _, e := range left {
					// Of a temporary file without an .alive file, a minute's
					// age says that nobody is going to rename it.
					if e.Name() != lockName && !strings.Contains(e.Name(), ".tmp") {
						t.Errorf("%s: %s is left", what, e.Name())
					}
				}
			}
		})
	}
}
