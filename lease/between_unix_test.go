//go:build unix

package lease

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A meddler is somebody else in the folder, who does something just before a
// file is opened.
type meddler struct {
	files
	name string
	do   func()
}

func (m *meddler) OpenFile(name string, flag int, perm fs.FileMode) (file, error) {
	if name == m.name {
		m.do()
	}
	return m.files.OpenFile(name, flag, perm)
}

// What is opened need not be what was looked at a moment before: it is looked
// at again, and a pipe in its place keeps nobody waiting.
func TestReplacedBetweenLookAndOpen(t *testing.T) {
	f := newTestFolder(t, newCheckout(t), patient)
	root := f.readable()
	in := func(name string, do func(path string)) *meddler {
		path := filepath.Join(f.path, name)
		if err := errors.Join(os.RemoveAll(path), os.WriteFile(path, []byte("a key that is one for good"), 0o600)); err != nil {
			t.Fatal(err)
		}
		return &meddler{root, name, func() { do(path) }}
	}
	pipe := func(path string) {
		if err := errors.Join(os.Remove(path), syscall.Mkfifo(path, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	given := func(path string) {
		if err := os.Chown(path, somebody, somebody); err != nil {
			t.Fatal(err)
		}
	}
	opened := func(path string) {
		if err := os.Chmod(path, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	grown := func(path string) {
		if err := os.Truncate(path, maxDocument+1); err != nil {
			t.Fatal(err)
		}
	}
	gone := func(path string) {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	leases := []struct {
		name   string
		do     func(path string)
		want   State
		reason string
	}{
		{"a pipe", pipe, Corrupt, "not a regular file"},
		{"more than a lease", grown, Corrupt, "more bytes"},
		{"nothing", gone, Absent, ""},
	}
	keys := []struct {
		name string
		do   func(path string)
		want error
	}{
		{"a pipe", pipe, errNoKey}, {"one that others read", opened, errKnown}, {"nothing", gone, fs.ErrNotExist},
	}
	if os.Geteuid() == 0 {
		leases = append(leases, leases[0])
		leases[3].name, leases[3].do, leases[3].reason = "another account's", given, "another account"
		keys = append(keys, keys[1])
		keys[3].name, keys[3].do = "another account's", given
	}
	for _, tt := range leases {
		if got := read(in(documentName, tt.do)); got.State != tt.want || !strings.Contains(got.Reason, tt.reason) {
			t.Errorf("a lease became %s: %v (%s)", tt.name, got.State, got.Reason)
		}
	}
	for _, tt := range keys {
		if key, err := readKey(in(keyName, tt.do)); key != "" || !errors.Is(err, tt.want) {
			t.Errorf("a key became %s: %q, %v", tt.name, key, err)
		}
	}
}

// lockless is a disk whose locks are none.
type lockless struct{ systemDisk }

func (d lockless) lock(path string, flag int) locker { return noLock{d.systemDisk.lock(path, flag)} }

type noLock struct{ locker }

func (noLock) TryLock() (bool, error)  { return false, syscall.ENOLCK }
func (noLock) TryRLock() (bool, error) { return false, syscall.ENOTSUP }

// Without locks nobody can be elected. Who stands is told why and leaves
// nothing; of a lease that is there nothing is known but what answers.
func TestWithoutLocks(t *testing.T) {
	c := newCheckout(t)
	f, err := Open(Config{Checkout: c, Timings: quick, Version: "v1.0.0", disk: lockless{}})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if e, err := f.Elect(t.Context(), Candidate{Listen: noListen}); !errors.Is(err, syscall.ENOLCK) {
		t.Errorf("elected %+v, %v", e, err)
	}
	if _, ok, err := f.TryLockLaunch(); ok || !errors.Is(err, syscall.ENOLCK) {
		t.Errorf("the lock of a start: %v, %v", ok, err)
	}
	onlyLeft(t, f, launchName)
	tenure := take(t, newTestFolder(t, c, patient)) // by somebody who has locks
	if held, exists := f.AliveHeld(tenure.Token()); held || exists {
		t.Errorf("held %v, exists %v", held, exists)
	}
}

// A file that cannot be told from another account's is not believed.
func TestNotToldIsNotBelieved(t *testing.T) {
	asRoot(t)
	f := newTestFolder(t, newCheckout(t), patient)
	path := filepath.Join(f.path, "x")
	put(t, path, "x", 0o644, somebody)
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	root := f.readable().(systemFiles)
	root.accounts = accountsOf(f.cfg.Checkout)
	if err := os.RemoveAll(f.path); err != nil { // in it nothing can be made
		t.Fatal(err)
	}
	if !root.foreign(info) || !root.exposed(info) {
		t.Errorf("foreign %v, exposed %v", root.foreign(info), root.exposed(info))
	}
}

// A handle follows the folder when somebody else has made it again.
func TestFolderIsFollowed(t *testing.T) {
	c := newCheckout(t)
	f := newTestFolder(t, c, patient)
	f.Read()
	if err := os.RemoveAll(c.LocalDir); err != nil {
		t.Fatal(err)
	}
	tenure := take(t, newTestFolder(t, c, patient))
	if got := f.Read(); got.Document.Token != tenure.Token() {
		t.Errorf("it reads %v", got.State)
	}
	if held, exists := f.AliveHeld(tenure.Token()); !held || !exists {
		t.Errorf("held %v, exists %v", held, exists)
	}
	if _, kept := Kept(c); !kept {
		t.Error("no lease is kept there")
	}
	info, kept := Kept(newCheckout(t))
	if info != nil || kept {
		t.Errorf("a lease is kept where nobody ever was: %v", info)
	}
	// Where it cannot be told, there may be one.
	if err := errors.Join(os.RemoveAll(c.LocalDir), os.WriteFile(c.LocalDir, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if info, kept := Kept(c); info != nil || !kept {
		t.Errorf("%v, %v", info, kept)
	}
	// Where it cannot be made again, that is what is said.
	if err := errors.Join(os.RemoveAll(c.LocalDir), os.Symlink(filepath.Join(t.TempDir(), "nowhere"), c.LocalDir)); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"the key":             second(f.Key()),
		"a new key":           second(f.RotateKey()),
		"a log":               second(f.OpenLog("server.log")),
		"an election":         second(f.Elect(t.Context(), Candidate{Listen: noListen})),
		"the lock of a start": second(f.LockLaunch(t.Context())),
	} {
		if err == nil || !strings.Contains(err.Error(), "making the state folder again") {
			t.Errorf("%s, where a link out has taken the folder's place: %v", what, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// An election does not outlast its time because folders are deleted under it.
func TestElectInAFolderThatGoes(t *testing.T) {
	c := newCheckout(t)
	f, err := Open(Config{Checkout: c, Timings: quick, Version: "v1.0.0", disk: deleter{c: c.LocalDir}})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if e, err := f.Elect(ctx, Candidate{Listen: noListen}); !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("elected %+v, %v", e, err)
	}
}

// A deleter's folders are gone as soon as somebody wants to lock in them.
type deleter struct {
	systemDisk
	c string
}

func (d deleter) lock(path string, flag int) locker {
	os.RemoveAll(d.c) // ignore error: then it is there
	return d.systemDisk.lock(path, flag)
}

// A thief removes each .alive file before it is locked.
type thief struct{ systemDisk }

func (d thief) lock(path string, flag int) locker {
	l := d.systemDisk.lock(path, flag)
	if strings.HasSuffix(path, ".alive") {
		return &stolen{l, path}
	}
	return l
}

type stolen struct {
	locker
	path string
}

func (l *stolen) TryLock() (bool, error) {
	ok, err := l.locker.TryLock()
	os.Remove(l.path) // ignore error: it has gone
	return ok, err
}

// Who never gets a word that it lives does not try for ever, and says why.
func TestAliveIsRemovedEachTime(t *testing.T) {
	c := newCheckout(t)
	f, err := Open(Config{Checkout: c, Timings: patient, disk: thief{}})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if e, err := f.Elect(t.Context(), Candidate{Listen: noListen}); err == nil || !strings.Contains(err.Error(), "others removed each one that was made") {
		t.Errorf("elected %+v, %v", e, err)
	}
	onlyLeft(t, f)
}

// Who cannot look whether a holder lives takes it for alive: nobody is replaced
// because this process has no descriptor left.
func TestAliveWhereItCannotBeTold(t *testing.T) {
	c := newCheckout(t)
	d := &faulty{err: syscall.EMFILE}
	f, err := Open(Config{Checkout: c, Timings: patient, disk: faultyDisk{d}})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	token := newToken()
	if err := os.WriteFile(filepath.Join(f.path, aliveName(token)), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	before := d.calls
	if held, exists := f.AliveHeld(token); held || !exists {
		t.Fatalf("free, and held is %v, exists %v", held, exists)
	}
	told := 0
	for at := range d.calls - before { // its calls, one after the other
		d.at, d.hits = d.calls+at+1, 0
		if held, exists := f.AliveHeld(token); d.hits == 1 && held && exists {
			told++
		} else if d.hits == 1 && d.what != "unlock "+aliveName(token) && !strings.HasPrefix(d.what, "stat") {
			t.Errorf("after %s failed: held %v, exists %v", d.what, held, exists)
		}
		d.what = ""
	}
	if told < 2 {
		t.Errorf("only %d of its calls failed", told)
	}
}

// A tenure looks after itself when the disk fails, and says so.
func TestRunOnABadDisk(t *testing.T) {
	c := newCheckout(t)
	d := &faulty{}
	var log strings.Builder
	f, err := Open(Config{Checkout: c, Timings: Timings{BindGrace: 3 * time.Second}, disk: faultyDisk{d}, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	e, err := f.Elect(t.Context(), Candidate{Listen: noListen})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Tenure.Release()
	d.at, d.lasting, d.err = d.calls+1, true, syscall.EIO
	ctx, cancel := context.WithTimeout(t.Context(), 1200*time.Millisecond)
	defer cancel()
	if err := e.Tenure.Run(ctx); err != nil {
		t.Error(err)
	}
	d.lasting, d.at = false, 0
	for _, words := range []string{"looking after the lease", "keeping the lease alive"} {
		if !strings.Contains(log.String(), words) {
			t.Errorf("not said: %s", words)
		}
	}
	if own, err := e.Tenure.IsOwn(); !own || err != nil {
		t.Errorf("a disk that failed for a while cost the lease: %v, %v", own, err)
	}
}

// Who probes a server finds the key as it is, or has it made: a server whose key
// is gone, or known to others, can prove itself again.
func TestProbeMendsTheKey(t *testing.T) {
	f := newTestFolder(t, newCheckout(t), patient)
	srv := newFake(t)
	d := plantDocument(t, f, func(d *Document) { d.URL, d.Auth = &srv.url, "key" })
	srv.set(as(f, d.Token, nil))
	if got := f.Probe(t.Context(), d); got.Outcome != Ours {
		t.Errorf("without a key: %v, %v", got.Outcome, got.Err)
	}
	key, err := f.ReadKey()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(f.path, keyName)
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if got := f.probe(t.Context(), d, time.Minute); got.Outcome != Ours {
		t.Errorf("with a key that others read: %v, %v", got.Outcome, got.Err)
	}
	if now, err := f.ReadKey(); err != nil || now == key {
		t.Errorf("the key is still the one that others read: %v", err)
	}
	// What keeps it from being read says nothing about the server.
	srv.set(func(w http.ResponseWriter, r *http.Request) {
		as(f, d.Token, nil)(w, r)
		os.Remove(path)                   // ignore error: the next fails then
		if os.Mkdir(path, 0o700) != nil { // a key that cannot be read
			t.Error("no folder in the key's place")
		}
	})
	if got := f.probe(t.Context(), d, time.Minute); got.Outcome != Unreachable {
		t.Errorf("with a key that cannot be read: %v, %v", got.Outcome, got.Err)
	}
	os.Remove(path) // ignore error: the next fails then
	srv.set(func(w http.ResponseWriter, r *http.Request) {
		as(f, d.Token, nil)(w, r)
		os.Remove(path) // ignore error: the probe finds out
	})
	if got := f.probe(t.Context(), d, time.Minute); got.Outcome != Stranger {
		t.Errorf("with a key that has gone: %v, %v", got.Outcome, got.Err)
	}
}

// How old a lease is, is asked of what may not be one.
func TestFileAge(t *testing.T) {
	f := newTestFolder(t, newCheckout(t), patient)
	if age, err := f.FileAge(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of none: %v, %v", age, err)
	}
	plant(t, f, []byte("x"))
	for ago, want := range map[time.Duration]time.Duration{time.Hour: time.Hour, -time.Hour: 0} {
		then := time.Now().Add(-ago)
		if err := os.Chtimes(f.LeasePath(), then, then); err != nil {
			t.Fatal(err)
		}
		if age, err := f.FileAge(); err != nil || age < want || age > want+time.Minute {
			t.Errorf("written %v ago: %v, %v", ago, age, err)
		}
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if err := f.Close(); err != nil {
		t.Errorf("closed again: %v", err)
	}
	if _, err := f.Age(); err == nil {
		t.Error("the age of a folder that was let go of")
	}
}

// What people and logs are told of a value is its name, and never nothing.
func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for _, v := range []fmt.Stringer{
		Absent, Empty, Corrupt, Unreadable, Present, Free, Wait, Join, TakeOver, Elsewhere,
		Ours, NotHolder, Silent, Refused, Unreachable, Stranger, Same, ServerOlder, ServerNewer, Unpublished, Unordered, Server, Peer,
	} {
		if s := v.String(); s == "" || seen[s] || strings.Contains(s, "(") {
			t.Errorf("%#v is called %q", v, s)
		} else {
			seen[s] = true
		}
	}
	for want, v := range map[string]fmt.Stringer{
		"State(5)": State(5), "Action(5)": Action(5), "Outcome(6)": Outcome(6), "VersionVerdict(5)": VersionVerdict(5),
	} {
		if got := v.String(); got != want {
			t.Errorf("one that was forgotten here is %q", got)
		}
	}
}
