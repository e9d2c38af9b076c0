package lease

import (
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"majordomus/lease/checkout"
)

// childVar makes the test binary be a process of a test.
const childVar = "LEASE_TEST_CHILD"

func TestMain(m *testing.M) {
	if mode := os.Getenv(childVar); mode != "" {
		os.Exit(child(mode))
	}
	goleak.VerifyTestMain(m)
}

// quick are timings for tests that wait them out.
var quick = Timings{BindGrace: 300 * time.Millisecond, BusyGrace: 250 * time.Millisecond, JoinTimeout: 10 * time.Second, ProbeTimeout: 100 * time.Millisecond}

// patient are timings for tests in which nothing may time out.
var patient = Timings{BindGrace: time.Minute, BusyGrace: time.Minute, JoinTimeout: time.Minute, ProbeTimeout: time.Minute}

func newCheckout(t testing.TB) *checkout.Checkout {
	t.Helper()
	c, err := checkout.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func newTestFolder(t testing.TB, c *checkout.Checkout, timings Timings) *Folder {
	t.Helper()
	f, err := Open(Config{Checkout: c, Timings: timings, Self: self, Version: "v1.0.0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

var self = ExecutableIdentity{Path: "/nowhere/majordomus", MTime: 1, Size: 1}

func noListen(string) (string, error) { return "http://127.0.0.1:1", nil }

// take makes f the holder.
func take(t testing.TB, f *Folder) *Tenure {
	t.Helper()
	e, err := f.Elect(t.Context(), Candidate{Listen: noListen})
	if err != nil {
		t.Fatal(err)
	}
	if e.Role != Server {
		t.Fatalf("elected %v (%s)", e.Role, e.Reason)
	}
	t.Cleanup(func() { e.Tenure.Release() })
	return e.Tenure
}

// fake is a server of a checkout that says whatever a test wants.
type fake struct {
	ln  net.Listener
	srv *http.Server
	url string

	mu     sync.Mutex
	answer func(w http.ResponseWriter, r *http.Request)
	asked  int
}

func newFake(t testing.TB) *fake {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{ln: ln, url: "http://" + ln.Addr().String()}
	f.srv = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		f.asked++
		answer := f.answer
		f.mu.Unlock()
		if answer != nil {
			answer(w, r)
		}
	})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.srv.Serve(ln)
	}()
	t.Cleanup(func() {
		f.srv.Close()
		<-done
	})
	return f
}

func (f *fake) set(answer func(http.ResponseWriter, *http.Request)) {
	f.mu.Lock()
	f.answer = answer
	f.mu.Unlock()
}

func (f *fake) times() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked
}

// as answers as the holder of token in the folder, with what change makes of
// the index.
func as(f *Folder, token string, change func(*Index)) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		yes := true
		x := Index{Name: "majordomus", Version: "v1.0.0", RepositoryID: f.cfg.Checkout.ID, LeaseHolder: &yes}
		if key, err := f.ReadKey(); err == nil {
			x.Proof = Proof(key, r.URL.Query().Get("challenge"), token)
		}
		if change != nil {
			change(&x)
		}
		json.NewEncoder(w).Encode(x)
	}
}

// plant puts bytes at the lease's path.
func plant(t testing.TB, f *Folder, b []byte) {
	t.Helper()
	temp := f.LeasePath() + ".planted"
	if err := os.WriteFile(temp, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(temp, f.LeasePath()); err != nil {
		t.Fatal(err)
	}
}

// plantDocument puts a lease of another process there.
func plantDocument(t testing.TB, f *Folder, change func(*Document)) Document {
	t.Helper()
	d := Document{Schema: Schema, PID: 1, Token: newToken(), Root: f.cfg.Checkout.Root, StartedAt: time.Now().UTC(), Executable: self, Version: "v1.0.0"}
	if change != nil {
		change(&d)
	}
	b, err := d.encode()
	if err != nil {
		t.Fatal(err)
	}
	plant(t, f, b)
	return d
}

// hold locks the .alive file of a token, as its owner would, until the returned
// function is called.
func hold(t testing.TB, f *Folder, token string) (letGo func()) {
	t.Helper()
	name := filepath.Join(f.path, aliveName(token))
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := f.lock(f.readable(), aliveName(token), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	letGo = func() { once.Do(func() { l.Unlock() }) }
	t.Cleanup(letGo)
	return letGo
}

func ptr[T any](v T) *T { return &v }

func exists(t testing.TB, path string) bool {
	t.Helper()
	_, err := os.Lstat(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return err == nil
}
