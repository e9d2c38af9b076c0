package lease

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func settle(t *testing.T, f *Folder, h History, want Action) Verdict {
	t.Helper()
	v, err := f.Settle(t.Context(), h)
	if err != nil {
		t.Fatal(err)
	}
	if v.Action != want {
		t.Fatalf("%v (%s), want %v", v.Action, v.Reason, want)
	}
	return v
}

func TestSettleOnAServerThatAnswers(t *testing.T) {
	f := newTestFolder(t, newCheckout(t), patient)
	if _, err := f.Key(); err != nil {
		t.Fatal(err)
	}
	settle(t, f, History{}, Free)
	srv := newFake(t)
	d := plantDocument(t, f, func(d *Document) { d.URL, d.Auth = &srv.url, "key" })
	hold(t, f, d.Token)
	srv.set(as(f, d.Token, nil))
	v := settle(t, f, History{}, Join)
	if v.File.Document.Token != d.Token {
		t.Errorf("joined %+v", v.File.Document)
	}
	if srv.times() != 1 {
		t.Errorf("asked %d times", srv.times())
	}
	srv.set(as(f, d.Token, func(x *Index) { x.Stale = ptr("replaced") }))
	if v := settle(t, f, History{}, TakeOver); !v.Superseded {
		t.Error("not superseded")
	}
	settle(t, f, History{StartedOwn: true}, Join)
	no := false
	srv.set(as(f, d.Token, func(x *Index) { x.LeaseHolder = &no }))
	settle(t, f, History{}, TakeOver)
}

func TestSettleWaitsForABinding(t *testing.T) {
	f := newTestFolder(t, newCheckout(t), patient)
	tenure := take(t, f)
	srv := newFake(t)
	if _, err := f.Key(); err != nil {
		t.Fatal(err)
	}
	srv.set(as(f, tenure.Token(), nil))
	type result struct {
		v   Verdict
		err error
	}
	got := make(chan result)
	go func() {
		v, err := f.Settle(context.Background(), History{})
		got <- result{v, err}
	}()
	select {
	case r := <-got:
		t.Fatalf("did not wait: %v %v", r.v, r.err)
	case <-time.After(50 * time.Millisecond):
	}
	if err := tenure.Publish(srv.url); err != nil {
		t.Fatal(err)
	}
	if r := <-got; r.err != nil || r.v.Action != Join {
		t.Fatal(r.v, r.err)
	}
}

func TestSettleAbandonsABinding(t *testing.T) {
	f := newTestFolder(t, newCheckout(t), quick)
	d := plantDocument(t, f, nil)
	letGo := hold(t, f, d.Token)
	settle(t, f, History{JudgedStale: d.Token}, TakeOver)

	began := time.Now()
	settle(t, f, History{}, TakeOver)
	if waited := time.Since(began); waited < quick.BindGrace {
		t.Errorf("waited %v of %v", waited, quick.BindGrace)
	}
	// Its death says at once what the grace would.
	letGo()
	f.cfg.Timings = patient
	settle(t, f, History{}, TakeOver)
}

// A binder that says that it lives is waited for beyond any one grace.
func TestSettleSeesKeepAlives(t *testing.T) {
	c := newCheckout(t)
	f := newTestFolder(t, c, Timings{BindGrace: 200 * time.Millisecond})
	tenure := take(t, f)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tenure.Run(ctx)
	}()
	defer func() { cancel(); <-done }()
	ctx2, cancel2 := context.WithTimeout(t.Context(), 800*time.Millisecond)
	defer cancel2()
	if v, err := f.Settle(ctx2, History{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v (%s), %v", v.Action, v.Reason, err)
	} else if !strings.Contains(err.Error(), "starting") {
		t.Errorf("the error does not say what was waited for: %v", err)
	}
}

func TestSettleOnSilence(t *testing.T) {
	f := newTestFolder(t, newCheckout(t), quick)
	srv := newFake(t)
	srv.set(func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	d := plantDocument(t, f, func(d *Document) { d.URL = &srv.url })
	letGo := hold(t, f, d.Token)
	began := time.Now()
	settle(t, f, History{}, TakeOver)
	if waited := time.Since(began); waited < quick.BusyGrace {
		t.Errorf("waited %v of %v", waited, quick.BusyGrace)
	}
	if srv.times() < 2 {
		t.Errorf("asked %d times", srv.times())
	}
	asked := srv.times()
	settle(t, f, History{JudgedStale: d.Token}, TakeOver)
	if n := srv.times() - asked; n != 1 {
		t.Errorf("what was waited for before was asked %d times", n)
	}
	letGo()
	f.cfg.Timings = patient // at once: neither grace nor probe is waited out
	settle(t, f, History{}, TakeOver)
}

func TestSettleOnABusyServer(t *testing.T) {
	f := newTestFolder(t, newCheckout(t), Timings{BusyGrace: time.Minute, ProbeTimeout: 50 * time.Millisecond})
	srv := newFake(t)
	d := plantDocument(t, f, func(d *Document) { d.URL = &srv.url })
	hold(t, f, d.Token)
	srv.set(func(w http.ResponseWriter, r *http.Request) {
		if srv.times() < 3 {
			<-r.Context().Done()
			return
		}
		as(f, d.Token, nil)(w, r)
	})
	settle(t, f, History{}, Join)
}

func TestSettleElsewhere(t *testing.T) {
	f := newTestFolder(t, newCheckout(t), quick)
	d := plantDocument(t, f, func(d *Document) { d.URL = ptr("http://127.0.0.1:1") })
	letGo := hold(t, f, d.Token)
	began := time.Now()
	v := settle(t, f, History{}, Elsewhere)
	if waited := time.Since(began); waited < quick.ProbeTimeout {
		t.Errorf("asked for %v of %v", waited, quick.ProbeTimeout)
	}
	if !strings.Contains(v.Reason, "127.0.0.1:1") {
		t.Errorf("reason %q", v.Reason)
	}
	if _, err := f.Elect(t.Context(), Candidate{Listen: noListen}); !errors.Is(err, ErrElsewhere) {
		t.Errorf("elected: %v", err)
	}
	if got := f.Read(); got.Document.Token != d.Token {
		t.Error("the lease was touched")
	}
	// An owner that was just exiting: its port went before its lock.
	letGo()
	settle(t, f, History{}, TakeOver)
	// Another maker's, without a lock: nobody is there.
	os.Remove(filepath.Join(f.path, aliveName(d.Token)))
	settle(t, f, History{}, TakeOver)
}

func TestSettleEndsWithItsContext(t *testing.T) {
	f := newTestFolder(t, newCheckout(t), patient)
	d := plantDocument(t, f, nil)
	hold(t, f, d.Token)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.Settle(ctx, History{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func BenchmarkSettleHealthy(b *testing.B) {
	f := newTestFolder(b, newCheckout(b), patient)
	if _, err := f.Key(); err != nil {
		b.Fatal(err)
	}
	srv := newFake(b)
	d := plantDocument(b, f, func(d *Document) { d.URL, d.Auth = &srv.url, "key" })
	hold(b, f, d.Token)
	srv.set(as(f, d.Token, nil))
	for b.Loop() {
		if v, err := f.Settle(b.Context(), History{}); err != nil || v.Action != Join {
			b.Fatal(v, err)
		}
	}
}

func BenchmarkElectEmpty(b *testing.B) {
	f := newTestFolder(b, newCheckout(b), patient)
	for b.Loop() {
		e, err := f.Elect(b.Context(), Candidate{Listen: noListen})
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		e.Tenure.Release()
		b.StartTimer()
	}
}

func BenchmarkIsOwn(b *testing.B) {
	f := newTestFolder(b, newCheckout(b), patient)
	tenure := take(b, f)
	for b.Loop() {
		if own, err := tenure.IsOwn(); !own || err != nil {
			b.Fatal(own, err)
		}
	}
}

// meanwhile is a folder in which something happens before a file is opened.
type meanwhile struct {
	files
	name string
	do   func()
}

func (m meanwhile) OpenFile(name string, flag int, perm fs.FileMode) (file, error) {
	if name == m.name {
		m.do()
	}
	return m.files.OpenFile(name, flag, perm)
}

// TestStoppedWhileItLooks was found by the explorer: a server that is slow to
// bind, and says so by rewriting its lease, was taken for one that does nothing
// by somebody who was stopped between its look at the clock and the one at the
// lease. See watch.look.
func TestStoppedWhileItLooks(t *testing.T) {
	c := newCheckout(t)
	synctest.Test(t, func(t *testing.T) {
		f := newTestFolder(t, c, Timings{})
		doc := plantDocument(t, f, nil)
		hold(t, f, doc.Token)
		w := f.watch(History{})
		if v := w.look(t.Context()); v.Action != Wait {
			t.Fatalf("a lease that was just written: %v, %s", v.Action, v.Reason)
		}
		root := f.root
		f.root = meanwhile{root, documentName, func() {
			time.Sleep(f.cfg.Timings.BindGrace - time.Second) // it is stopped
			plantDocument(t, f, func(d *Document) { d.Token = doc.Token })
		}}
		if v := w.look(t.Context()); v.Action != Wait {
			t.Errorf("a lease that was rewritten: %v, %s", v.Action, v.Reason)
		}
		f.root = root
		time.Sleep(2 * time.Second)
		if v := w.look(t.Context()); v.Action != Wait {
			t.Errorf("a lease that was rewritten two seconds ago: %v, %s", v.Action, v.Reason)
		}
	})
}

// TestStoppedWhileItAsks was found by the explorer: a server that did not answer
// one question was taken for one that hangs by somebody who was stopped while it
// asked it, or before. See watch.silence.
func TestStoppedWhileItAsks(t *testing.T) {
	c := newCheckout(t)
	for _, when := range []string{"before", "while"} {
		synctest.Test(t, func(t *testing.T) {
			f := newTestFolder(t, c, Timings{})
			stopped := func() { time.Sleep(2 * f.cfg.Timings.BusyGrace) }
			doc := plantDocument(t, f, func(d *Document) { d.URL = ptr("http://127.0.0.1:1") })
			hold(t, f, doc.Token)
			f.cfg.ask = func(_ context.Context, _ Document, within time.Duration) ProbeReply {
				if time.Sleep(within); when == "while" {
					stopped()
				}
				return ProbeReply{Outcome: Silent}
			}
			if when == "before" {
				f.root = meanwhile{f.root, documentName, stopped}
			}
			w := f.watch(History{})
			for i := range 2 {
				if v := w.look(t.Context()); v.Action != Wait {
					t.Errorf("stopped %s it asked: after %d questions %v, %s", when, i+1, v.Action, v.Reason)
				}
			}
			if w.look(t.Context()); w.silent != f.cfg.Timings.BusyGrace {
				t.Errorf("stopped %s it asked: silence of %v, and three questions were asked", when, w.silent)
			}
		})
	}
}
