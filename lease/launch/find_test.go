package launch

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"majordomus/lease"
	"majordomus/lease/checkout"
)

// quickFolder is another process's view of the launcher's checkout, with waits
// that a test can wait out.
func quickFolder(t *testing.T, l *Launcher) *lease.Folder {
	t.Helper()
	c, err := checkout.Open(l.cfg.Root)
	if err != nil {
		t.Fatal(err)
	}
	f, err := lease.Open(lease.Config{Checkout: c, Timings: lease.Timings{
		BindGrace: 5 * time.Second, BusyGrace: 200 * time.Millisecond, ProbeTimeout: 100 * time.Millisecond,
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// A holder holds the lease of a checkout and answers when it is told to.
type holder struct {
	tenure *lease.Tenure
	url    string
	mute   atomic.Bool
}

func newHolder(t *testing.T, f *lease.Folder, id string) *holder {
	t.Helper()
	h := new(holder)
	quit := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h.mute.Load() {
			select {
			case <-r.Context().Done():
			case <-quit:
			}
			return
		}
		key, err := f.Key()
		if err != nil {
			t.Error(err)
		}
		json.NewEncoder(w).Encode(lease.Index{ // ignore error: who asked has gone
			Name: "majordomus", RepositoryID: id, Proof: lease.Proof(key, r.URL.Query().Get("challenge"), h.tenure.Token()),
		})
	}))
	t.Cleanup(srv.Close)
	t.Cleanup(func() { close(quit) })
	e, err := f.Elect(t.Context(), lease.Candidate{Listen: func(string) (string, error) { return srv.URL, nil }})
	if err != nil || e.Role != lease.Server {
		t.Fatal(e, err)
	}
	t.Cleanup(func() { e.Tenure.Release() })
	h.tenure, h.url = e.Tenure, srv.URL
	return h
}

func idOf(t *testing.T, l *Launcher) string {
	t.Helper()
	c, err := checkout.Open(l.cfg.Root)
	if err != nil {
		t.Fatal(err)
	}
	return c.ID
}

// unstartable fails the test when the launcher starts anything.
func unstartable(t *testing.T, l *Launcher) {
	t.Helper()
	mark := filepath.Join(t.TempDir(), "started")
	l.cfg.Command = []string{"/bin/sh", "-c", `: >"$0"`, mark}
	t.Cleanup(func() {
		if _, err := os.Stat(mark); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a process was started: %v", err)
		}
	})
}

func TestFindJoins(t *testing.T) {
	l := newLauncher(t, "unused")
	unstartable(t, l)
	h := newHolder(t, l.cfg.Folder, idOf(t, l))
	if err := h.tenure.Publish(h.url); err != nil {
		t.Fatal(err)
	}
	if found, err := l.Find(t.Context()); err != nil || found.Started || *found.Document.URL != h.url {
		t.Errorf("found %+v, %v", found, err)
	}
}

// A holder that lives and cannot be reached is nobody's to replace.
func TestFindElsewhere(t *testing.T) {
	l := newLauncher(t, "unused")
	unstartable(t, l)
	l.cfg.Folder = quickFolder(t, l)
	h := newHolder(t, l.cfg.Folder, "another checkout's")
	if err := h.tenure.Publish(h.url); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Find(t.Context()); !errors.Is(err, lease.ErrElsewhere) || !errors.Is(err, ErrNoServer) {
		t.Errorf("found %v", err)
	}
}

// While another launcher starts a server, this one waits for what comes of it,
// and starts none of its own; not for longer than it may.
func TestFindWaitsItsTurn(t *testing.T) {
	l := newLauncher(t, "unused")
	unstartable(t, l)
	other := quickFolder(t, l)
	unlock, ok, err := other.TryLockLaunch()
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	defer unlock()
	l.cfg.Join = 100 * time.Millisecond
	if _, err := l.Find(t.Context()); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "waiting for another start") {
		t.Errorf("found %v", err)
	}
	l.cfg.Join = time.Minute
	type result struct {
		Found
		error
	}
	done := make(chan result, 1)
	go func() {
		found, err := l.Find(context.Background())
		done <- result{found, err}
	}()
	h := newHolder(t, other, idOf(t, l))
	if err := h.tenure.Publish(h.url); err != nil {
		t.Fatal(err)
	}
	if r := <-done; r.error != nil || r.Started || *r.Document.URL != h.url {
		t.Errorf("found %+v", r)
	}
}

// A lock that cannot be had for another reason than that somebody has it is
// told, not waited for.
func TestFindWithoutALock(t *testing.T) {
	l := newLauncher(t, "unused")
	unstartable(t, l)
	l.cfg.Join = time.Hour
	local := filepath.Join(l.cfg.Root, ".ai", "local")
	if err := errors.Join(os.RemoveAll(local), os.WriteFile(local, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Find(t.Context()); !errors.Is(err, ErrNoServer) || !strings.Contains(err.Error(), "locking for a start") {
		t.Errorf("found %v", err)
	}
}

// started is a command that says that it runs, writes what it was told of a
// judged lease, and ends when it is let go.
func started(t *testing.T, l *Launcher) (told func() string, letGo func()) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("the server of this test is a shell")
	}
	dir := t.TempDir()
	l.cfg.Command = []string{"/bin/sh", "-c", `echo >&3; echo "$` + JudgedStaleVar + `" >"$0/.said"; mv "$0/.said" "$0/said"; while [ ! -e "$0/go" ]; do sleep 0.01; done`, dir}
	return func() string {
			for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
				b, err := os.ReadFile(filepath.Join(dir, "said"))
				if err == nil {
					return strings.TrimSpace(string(b))
				}
				if time.Now().After(deadline) {
					t.Error("it was not started")
					return ""
				}
			}
		}, func() {
			if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
				t.Error(err)
			}
		}
}

// A server that ends because another one was quicker is no failure: that one is
// joined.
func TestFindJoinsWhoWasQuicker(t *testing.T) {
	l := newLauncher(t, "")
	told, letGo := started(t, l)
	other, id := quickFolder(t, l), idOf(t, l)
	elected := make(chan *holder, 1)
	go func() {
		told()
		h := newHolder(t, other, id)
		elected <- h
		letGo() // before it has an address: its word that it lives must do
		if err := h.tenure.Publish(h.url); err != nil {
			t.Error(err)
		}
	}()
	found, err := l.Find(t.Context())
	if err != nil || !found.Started || found.Document.Token != (<-elected).tenure.Token() {
		t.Errorf("found %+v, %v", found, err)
	}
}

// One that was silent for too long is about to be replaced, and answers again
// before it is: the server that was started leaves it its lease, and it is
// joined. That server was told whose silence was waited for.
func TestFindJoinsWhoAnswersAgain(t *testing.T) {
	l := newLauncher(t, "")
	told, letGo := started(t, l)
	l.cfg.Folder = quickFolder(t, l)
	h := newHolder(t, l.cfg.Folder, idOf(t, l))
	h.mute.Store(true)
	if err := h.tenure.Publish(h.url); err != nil {
		t.Fatal(err)
	}
	said := make(chan string, 1)
	go func() {
		said <- told()
		h.mute.Store(false)
		letGo()
	}()
	found, err := l.Find(t.Context())
	if err != nil || found.Document.Token != h.tenure.Token() {
		t.Errorf("found %+v, %v", found, err)
	}
	if token := <-said; token != h.tenure.Token() {
		t.Errorf("the started server was told of %q", token)
	}
}

// Who starts in vain does not do so for ever.
func TestFindStartsTwice(t *testing.T) {
	l := newLauncher(t, "unused")
	unstartable(t, l)
	asked := 0
	l.cfg.Service = func(_ context.Context, published func() bool) (bool, error) {
		asked++
		if published() {
			t.Error("nobody has published anything")
		}
		return true, nil
	}
	if _, err := l.Find(t.Context()); err == nil || !strings.Contains(err.Error(), "started 2 servers and none serves") || asked != 2 {
		t.Errorf("asked %d times, %v", asked, err)
	}
}

// What the service manager started is known by another lease with an address.
func TestFindPublished(t *testing.T) {
	l := newLauncher(t, "unused")
	unstartable(t, l)
	other, id := quickFolder(t, l), idOf(t, l)
	l.cfg.Service = func(_ context.Context, published func() bool) (bool, error) {
		h := newHolder(t, other, id)
		if published() {
			t.Error("without an address")
		}
		if err := h.tenure.Publish(h.url); err != nil {
			t.Error(err)
		}
		if !published() {
			t.Error("not seen")
		}
		return true, nil
	}
	if found, err := l.Find(t.Context()); err != nil || !found.Started {
		t.Errorf("found %+v, %v", found, err)
	}
}

// Who serves in this process is told whose lease was judged, too.
func TestServedInPlaceOfTheDead(t *testing.T) {
	l := newLauncher(t, filepath.Join(t.TempDir(), "none"))
	const token = "0123456789abcdef0123456789abcdef"
	if err := os.WriteFile(l.cfg.Folder.LeasePath(), []byte(`{"schema":"`+lease.Schema+`","token":"`+token+`","url":"http://127.0.0.1:1"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	var asked lease.History
	l.cfg.InProcess = func(_ context.Context, h lease.History) (lease.Document, error) {
		asked = h
		return lease.Document{}, nil
	}
	if _, err := l.Find(t.Context()); err != nil || asked.JudgedStale != token || !asked.InProcess {
		t.Errorf("asked with %+v, %v", asked, err)
	}
}
