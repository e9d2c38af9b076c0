package lease

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestElectOnNothing(t *testing.T) {
	f := newTestFolder(t, newCheckout(t), patient)
	listened := 0
	e, err := f.Elect(t.Context(), Candidate{Listen: func(prefer string) (string, error) {
		listened++
		if prefer != "" {
			t.Errorf("prefer %q", prefer)
		}
		return "http://127.0.0.1:1", nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Tenure.Release()
	if e.Role != Server || listened != 1 {
		t.Fatalf("role %v, listened %d times", e.Role, listened)
	}
	d := f.Read().Document
	if d.URL != nil {
		t.Error("an address nobody answers at was published")
	}
	if d.Auth != "key" || d.PID != os.Getpid() || d.Root != f.cfg.Checkout.Root || d.Executable != self || d.Version != "v1.0.0" {
		t.Errorf("%+v", d)
	}
	if held, exists := f.AliveHeld(d.Token); !held || !exists {
		t.Error("its .alive is not held")
	}
	if !e.Tenure.Held() || e.Tenure.Context().Err() != nil {
		t.Error("not held")
	}
	if !e.Tenure.StartedAt().Equal(d.StartedAt) || d.StartedAt.IsZero() {
		t.Errorf("started at %v, its lease says %v", e.Tenure.StartedAt(), d.StartedAt)
	}
}

func TestElectNoAuth(t *testing.T) {
	f := newTestFolder(t, newCheckout(t), patient)
	e, err := f.Elect(t.Context(), Candidate{Listen: noListen, NoAuth: true})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Tenure.Release()
	b, err := os.ReadFile(f.LeasePath())
	if err != nil || strings.Contains(string(b), "auth") {
		t.Errorf("%s, %v", b, err)
	}
}

func TestElectJoins(t *testing.T) {
	f := newTestFolder(t, newCheckout(t), patient)
	srv := newFake(t)
	tenure := take(t, f)
	srv.set(as(f, tenure.Token(), nil))
	if _, err := f.Key(); err != nil {
		t.Fatal(err)
	}
	if err := tenure.Publish(srv.url); err != nil {
		t.Fatal(err)
	}
	e, err := f.Elect(t.Context(), Candidate{Listen: func(string) (string, error) {
		t.Error("a peer listened")
		return "", errors.New("no")
	}})
	if err != nil || e.Role != Peer || e.Peer.Token != tenure.Token() || e.Tenure != nil {
		t.Fatalf("%+v, %v", e, err)
	}
}

// A live server is replaced only by one that listens already, and its lease
// says where from its first moment.
func TestElectSupersedesWithoutAHole(t *testing.T) {
	f := newTestFolder(t, newCheckout(t), patient)
	if _, err := f.Key(); err != nil {
		t.Fatal(err)
	}
	srv := newFake(t)
	old := take(t, f)
	srv.set(as(f, old.Token(), func(x *Index) { x.Version = "v0.9.0" }))
	if err := old.Publish(srv.url); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Elect(t.Context(), Candidate{Listen: func(string) (string, error) { return "", errors.New("no port") }}); err == nil || !strings.Contains(err.Error(), "no port") {
		t.Fatalf("elected without listening: %v", err)
	}
	if own, err := old.IsOwn(); !own || err != nil {
		t.Fatal("a build that cannot bind did harm")
	}
	calls := 0
	e, err := f.Elect(t.Context(), Candidate{Listen: func(prefer string) (string, error) {
		calls++
		if prefer != srv.url {
			t.Errorf("prefer %q, want %q", prefer, srv.url)
		}
		if got := f.Read().Document.Token; got != old.Token() {
			t.Error("the lease was taken before its taker listened")
		}
		return "http://127.0.0.1:7", nil
	}})
	if err != nil || e.Role != Server {
		t.Fatal(e, err)
	}
	defer e.Tenure.Release()
	if d := f.Read().Document; d.address() != "http://127.0.0.1:7" || d.Token != e.Tenure.Token() {
		t.Errorf("%+v", d)
	}
	if calls != 1 {
		t.Errorf("listened %d times", calls)
	}
	if own, err := old.IsOwn(); own || err != nil || !old.Lost() {
		t.Error("the superseded server does not know")
	}
}

func TestElectThatCannotListenLeavesNothing(t *testing.T) {
	f := newTestFolder(t, newCheckout(t), patient)
	if _, err := f.Elect(t.Context(), Candidate{Listen: func(string) (string, error) { return "", errors.New("no port") }}); err == nil {
		t.Fatal("elected")
	}
	onlyLeft(t, f, ".gitignore", "server.lock")
}

// onlyLeft checks that nothing but lock files is in the folder.
func onlyLeft(t *testing.T, f *Folder, names ...string) {
	t.Helper()
	entries, err := os.ReadDir(f.path)
	if err != nil {
		t.Fatal(err)
	}
next:
	for _, e := range entries {
		for _, n := range names {
			if e.Name() == n {
				continue next
			}
		}
		t.Errorf("left behind: %s", e.Name())
	}
}

// What is taken over must be, to the last byte and the very file, what was
// judged.
func TestTakeOnlyWhatWasJudged(t *testing.T) {
	f := newTestFolder(t, newCheckout(t), patient)
	begun := func() *Tenure {
		t.Helper()
		b, err := f.begin(Candidate{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	attempt := func(name string, judged File, want bool) {
		t.Helper()
		b := begun()
		took, err := b.take(judged)
		if err != nil || took != want {
			t.Errorf("%s: took %v, %v; want %v", name, took, err, want)
		}
		if took {
			if err := b.Release(); err != nil {
				t.Error(err)
			}
		} else {
			b.abandon()
		}
	}

	absent := f.Read()
	plant(t, f, nil)
	attempt("judged absent, now empty", absent, false)
	empty := f.Read()
	plant(t, f, nil)
	attempt("judged empty, now another empty file", empty, false)
	attempt("still empty", f.Read(), true)

	// A slow holder publishes under the token that was judged abandoned.
	d := plantDocument(t, f, nil)
	binding := f.Read()
	d.URL = ptr("http://127.0.0.1:1")
	b, _ := d.encode()
	plant(t, f, b)
	attempt("judged abandoned, now published", binding, false)

	// A slow holder says that it lives: the same bytes in another file.
	d = plantDocument(t, f, nil)
	binding = f.Read()
	b, _ = d.encode()
	plant(t, f, b)
	attempt("judged abandoned, now kept alive", binding, false)
	attempt("unchanged", f.Read(), true)
	attempt("absent", f.Read(), true)

	attempt("unreadable", File{State: Unreadable}, false)
}

func TestElectCleansUpAfterTheDead(t *testing.T) {
	f := newTestFolder(t, newCheckout(t), patient)
	file := func(name string, age time.Duration) string {
		t.Helper()
		path := filepath.Join(f.path, name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		at := time.Now().Add(-age)
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
		return path
	}
	dead, living := newToken(), newToken()
	letGo := hold(t, f, living)
	gone := []string{file(aliveName(dead), 0), file(tempName(dead), 0), file(tempName(newToken()), time.Hour)}
	stay := []string{
		filepath.Join(f.path, aliveName(living)), file(tempName(living), time.Hour),
		file("server.json.aside-1", time.Hour), file("server.nothex.alive", time.Hour), file("server.log", time.Hour),
		file("key", time.Hour), file(tempName(newToken()), 0),
	}
	take(t, f)
	for _, path := range gone {
		if exists(t, path) {
			t.Errorf("still there: %s", path)
		}
	}
	for _, path := range stay {
		if !exists(t, path) {
			t.Errorf("removed: %s", path)
		}
	}
	letGo()
}

func TestElectionsWaitOnlySoLongForALock(t *testing.T) {
	c := newCheckout(t)
	f, stopped := newTestFolder(t, c, quick), newTestFolder(t, c, quick)
	unlock, err := stopped.change(stopped.readable())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Elect(t.Context(), Candidate{Listen: noListen}); !errors.Is(err, ErrLockBusy) {
		t.Fatalf("elected: %v", err)
	}
	unlock()
	onlyLeft(t, f, "server.lock")
	take(t, f)
}

func TestElectJudgedStale(t *testing.T) {
	f := newTestFolder(t, newCheckout(t), patient)
	d := plantDocument(t, f, nil)
	hold(t, f, d.Token)
	e, err := f.Elect(t.Context(), Candidate{Listen: noListen, History: History{JudgedStale: d.Token}})
	if err != nil || e.Role != Server {
		t.Fatal(e, err)
	}
	e.Tenure.Release()
}

func TestElectIsBounded(t *testing.T) {
	f := newTestFolder(t, newCheckout(t), Timings{JoinTimeout: 60 * time.Millisecond})
	d := plantDocument(t, f, nil)
	hold(t, f, d.Token)
	if _, err := f.Elect(t.Context(), Candidate{Listen: noListen}); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
}

func TestRelease(t *testing.T) {
	f := newTestFolder(t, newCheckout(t), patient)
	tenure := take(t, f)
	if err := tenure.Publish("http://127.0.0.1:1"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := tenure.Release(); err != nil {
			t.Fatal(err)
		}
	}
	onlyLeft(t, f, "server.lock")
	if tenure.Held() || tenure.Lost() || tenure.LostFor() != 0 {
		t.Error("released is neither held nor lost")
	}
	if own, err := tenure.IsOwn(); own || err != nil || tenure.Lost() {
		t.Error("a released lease was lost")
	}
	if _, ok := tenure.Document(); ok {
		t.Error("still has a document")
	}
	if err := tenure.Publish("http://127.0.0.1:2"); !errors.Is(err, ErrLost) {
		t.Errorf("published: %v", err)
	}
	if tenure.Context().Err() == nil || errors.Is(context.Cause(tenure.Context()), ErrLost) {
		t.Errorf("cause %v", context.Cause(tenure.Context()))
	}
}

func TestLoss(t *testing.T) {
	for name, strike := range map[string]func(*testing.T, *Folder){
		"removed":   func(t *testing.T, f *Folder) { os.Remove(f.LeasePath()) },
		"replaced":  func(t *testing.T, f *Folder) { plantDocument(t, f, nil) },
		"emptied":   func(t *testing.T, f *Folder) { plant(t, f, nil) },
		"garbled":   func(t *testing.T, f *Folder) { plant(t, f, []byte("{")) },
		"a folder":  func(t *testing.T, f *Folder) { os.Remove(f.LeasePath()); os.Mkdir(f.LeasePath(), 0o700) },
		"all gone":  func(t *testing.T, f *Folder) { os.RemoveAll(f.path) },
		"moved off": func(t *testing.T, f *Folder) { os.Rename(f.path, f.path+".moved") },
	} {
		t.Run(name, func(t *testing.T) {
			f := newTestFolder(t, newCheckout(t), patient)
			tenure := take(t, f)
			mine, err := os.ReadFile(f.LeasePath())
			if err != nil {
				t.Fatal(err)
			}
			strike(t, f)
			if !tenure.Held() {
				t.Fatal("noticed without looking")
			}
			if own, err := tenure.IsOwn(); own || err != nil {
				t.Fatalf("own %v, %v", own, err)
			}
			if tenure.Held() || !tenure.Lost() || !errors.Is(context.Cause(tenure.Context()), ErrLost) {
				t.Fatal("not recorded")
			}
			if _, ok := tenure.Document(); ok {
				t.Error("the document in memory stayed")
			}

			// Never unmade, even when the very lease comes back.
			if name == "removed" || name == "replaced" {
				plant(t, f, mine)
				if own, _ := tenure.IsOwn(); own || !tenure.Lost() {
					t.Error("the loss was unmade")
				}
			}
			before := f.Read()
			if err := tenure.Publish("http://127.0.0.1:1"); !errors.Is(err, ErrLost) {
				t.Errorf("published: %v", err)
			}
			if err := tenure.KeepAlive(); !errors.Is(err, ErrLost) {
				t.Errorf("kept alive: %v", err)
			}
			if err := tenure.Release(); err != nil {
				t.Errorf("released: %v", err)
			}
			if after := f.Read(); !after.same(before) {
				t.Errorf("the way out touched the file: %v to %v", before.State, after.State)
			}
			if !tenure.Lost() {
				t.Error("release unmade the loss")
			}
		})
	}
}

// Whoever publishes without having noticed the loss must not touch another's
// lease either.
func TestPublishNoticesTheLoss(t *testing.T) {
	f := newTestFolder(t, newCheckout(t), patient)
	tenure := take(t, f)
	other := plantDocument(t, f, nil)
	if err := tenure.Publish("http://127.0.0.1:1"); !errors.Is(err, ErrLost) {
		t.Fatal(err)
	}
	if !tenure.Lost() {
		t.Error("not recorded")
	}
	if got := f.Read().Document; got.Token != other.Token || got.URL != nil {
		t.Errorf("%+v", got)
	}
}

func TestReleaseLeavesAnothersLease(t *testing.T) {
	f := newTestFolder(t, newCheckout(t), patient)
	tenure := take(t, f)
	other := plantDocument(t, f, nil)
	if err := tenure.Release(); err != nil {
		t.Fatal(err)
	}
	if got := f.Read().Document; got.Token != other.Token {
		t.Errorf("%+v", got)
	}
}

// A lease that cannot be removed is one whose owner is seen to be gone.
func TestReleaseWithoutTheLock(t *testing.T) {
	c := newCheckout(t)
	f, stopped := newTestFolder(t, c, quick), newTestFolder(t, c, quick)
	tenure := take(t, f)
	unlock, err := stopped.change(stopped.readable())
	if err != nil {
		t.Fatal(err)
	}
	if err := tenure.Release(); !errors.Is(err, ErrLockBusy) {
		t.Fatalf("released: %v", err)
	}
	unlock()
	if held, exists := f.AliveHeld(tenure.Token()); held || !exists {
		t.Errorf("held %v, exists %v", held, exists)
	}
	f.cfg.Timings = patient // the next one need not wait for anything
	take(t, f)
}

func TestRun(t *testing.T) {
	c := newCheckout(t)
	synctest.Test(t, func(t *testing.T) {
		f, err := Open(Config{Checkout: c, Timings: Timings{BindGrace: 15 * time.Second}})
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		e, err := f.Elect(t.Context(), Candidate{Listen: noListen})
		if err != nil {
			t.Fatal(err)
		}
		tenure := e.Tenure
		ended := make(chan error, 1)
		go func() { ended <- tenure.Run(t.Context()) }()

		file := f.Read()
		changes := func(after time.Duration) bool {
			t.Helper()
			time.Sleep(after) // in the time of the bubble, here and below
			synctest.Wait()
			now := f.Read()
			changed := !now.same(file)
			file = now
			return changed
		}
		if changes(4900 * time.Millisecond) {
			t.Error("rewritten early")
		}
		for range 3 {
			if !changes(5 * time.Second) {
				t.Error("not kept alive")
			}
		}
		if err := tenure.Publish("http://127.0.0.1:1"); err != nil {
			t.Fatal(err)
		}
		file = f.Read()
		if changes(time.Minute) {
			t.Error("kept alive although published")
		}

		os.Remove(f.LeasePath())
		time.Sleep(tick)
		synctest.Wait()
		if !tenure.Lost() {
			t.Error("the loss was not noticed within a tick")
		}
		before := tenure.LostFor()
		time.Sleep(3 * time.Second)
		if got := tenure.LostFor() - before; got != 3*time.Second {
			t.Errorf("lost for %v more after 3 s", got)
		}
		select {
		case <-ended:
			t.Error("the loss ended Run")
		default:
		}
		tenure.Release()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// A checkout cleaned of all that git ignores, under a process that goes on.
func TestFolderIsMadeAgain(t *testing.T) {
	c := newCheckout(t)
	f := newTestFolder(t, c, patient)
	tenure := take(t, f)
	if err := os.RemoveAll(c.LocalDir); err != nil {
		t.Fatal(err)
	}
	if got := f.Read(); got.State != Absent {
		t.Errorf("read %v", got.State)
	}
	if unlock, ok, err := f.TryLockLaunch(); !ok || err != nil {
		t.Errorf("%v, %v", ok, err)
	} else {
		unlock()
	}
	if err := os.RemoveAll(c.LocalDir); err != nil {
		t.Fatal(err)
	}
	next := take(t, f)
	if own, err := tenure.IsOwn(); own || err != nil {
		t.Errorf("own %v, %v", own, err)
	}
	if err := tenure.Release(); err != nil {
		t.Error(err)
	}
	if own, err := next.IsOwn(); !own || err != nil {
		t.Errorf("the old holder's release touched the new folder: %v, %v", own, err)
	}
	// Another process's folder is followed too.
	g := newTestFolder(t, c, patient)
	if got := g.Read(); got.Document.Token != next.Token() {
		t.Errorf("read %+v", got)
	}
	if !exists(t, filepath.Join(c.LocalDir, ".gitignore")) {
		t.Error("made again without .gitignore")
	}
}

// The lease is replaced while its holder, who has just found it its own, waits
// for the lock.
func TestPublishLooksUnderTheLock(t *testing.T) {
	c := newCheckout(t)
	f, g := newTestFolder(t, c, patient), newTestFolder(t, c, patient)
	tenure := take(t, f)
	unlock, err := g.change(g.readable())
	if err != nil {
		t.Fatal(err)
	}
	published := make(chan error, 1)
	go func() { published <- tenure.Publish("http://127.0.0.1:1") }()
	// Once its file is there it has looked, and writes what it wants to put
	// there. A file tells nobody, so it is asked for.
	again, late := time.NewTicker(time.Millisecond), time.After(20*time.Second)
	defer again.Stop()
	for !exists(t, filepath.Join(f.path, tempName(tenure.Token()))) {
		select {
		case <-again.C:
		case err := <-published:
			t.Fatalf("published before it could have the lock: %v", err)
		case <-late:
			t.Fatal("it writes nothing")
		}
	}
	other := plantDocument(t, f, nil)
	unlock()
	if err := <-published; !errors.Is(err, ErrLost) || !tenure.Lost() {
		t.Errorf("published: %v", err)
	}
	if got := f.Read().Document; got.Token != other.Token {
		t.Error("another's lease was overwritten")
	}
}
