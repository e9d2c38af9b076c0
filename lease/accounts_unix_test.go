//go:build unix

package lease

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// somebody is an account that is not this process's.
const somebody = 54321

// asRoot skips where files cannot be given to another account.
func asRoot(t *testing.T) {
	t.Helper()
	switch {
	case os.Geteuid() == 0:
	case os.Getenv("MAJORDOMUS_TEST_ALL") == "1":
		t.Fatal("MAJORDOMUS_TEST_ALL=1, but this is not root, who alone can give files to another account")
	default:
		t.Skip("only root can give files to another account")
	}
}

func put(t *testing.T, path, content string, mode fs.FileMode, uid int) {
	t.Helper()
	if err := errors.Join(os.WriteFile(path, []byte(content), mode), os.Chmod(path, mode)); err != nil {
		t.Fatal(err)
	}
	if uid >= 0 {
		if err := os.Chown(path, uid, uid); err != nil {
			t.Fatal(err)
		}
	}
}

const planted = "0123456789abcdef0123456789abcdef"

// A key that others may know is none: the next one who asks makes another.
func TestKeyThatOthersMayKnow(t *testing.T) {
	for name, test := range map[string]struct {
		mode  fs.FileMode
		uid   int
		taken bool
	}{
		"as it should be":           {0o600, -1, true},
		"for reading alone":         {0o400, -1, true},
		"the group may read it":     {0o640, -1, false},
		"as a clone brings it":      {0o644, -1, false},
		"others may write it":       {0o602, -1, false},
		"another account's":         {0o600, somebody, false},
		"another's, for all to see": {0o644, somebody, false},
	} {
		t.Run(name, func(t *testing.T) {
			if test.uid >= 0 {
				asRoot(t)
			}
			f := newTestFolder(t, newCheckout(t), patient)
			path := filepath.Join(f.path, keyName)
			put(t, path, planted, test.mode, test.uid)
			if key, err := f.ReadKey(); (err == nil) != test.taken || err == nil && key != planted {
				t.Errorf("read %q, %v", key, err)
			} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("it does not count as none: %v", err)
			}
			if said := f.Exposed(); (said == "") != test.taken {
				t.Errorf("said of it: %q", said)
			}
			key, err := f.Key()
			if err != nil || (key == planted) != test.taken {
				t.Fatalf("made %q, %v", key, err)
			}
			if again, err := f.ReadKey(); err != nil || again != key {
				t.Errorf("then read %q, %v", again, err)
			}
			if said := f.Exposed(); said != "" {
				t.Errorf("said of the new one: %q", said)
			}
			if info, err := os.Stat(path); err != nil || info.Mode().Perm()&0o077 != 0 || ownerOf(info) != os.Geteuid() {
				t.Errorf("it lies there as %v, %v", info, err)
			}
			left, _ := filepath.Glob(filepath.Join(f.path, keyName+".*")) // ignore error: the pattern is good
			if len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// A lease that another account has put there says whom to send what an editor
// says; it is got past like anything else that is no lease.
func TestLeaseOfAnotherAccount(t *testing.T) {
	asRoot(t)
	f := newTestFolder(t, newCheckout(t), patient)
	asked := false
	f.cfg.ask = func(_ context.Context, _ Document, _ time.Duration) ProbeReply {
		asked = true
		return ProbeReply{Outcome: Ours}
	}
	url := "http://127.0.0.1:1"
	doc := Document{Schema: Schema, Token: strings.Repeat("a", 32), URL: &url}
	b, err := doc.encode()
	if err != nil {
		t.Fatal(err)
	}
	put(t, f.LeasePath(), string(b), 0o644, somebody)
	if got := f.Read(); got.State != Corrupt || !strings.Contains(got.Reason, "another account") {
		t.Fatalf("read as %v: %s", got.State, got.Reason)
	}
	tenure := take(t, f)
	if asked {
		t.Error("somebody was asked at its address")
	}
	// Put in the place of a holder's lease it is a loss like any other.
	put(t, f.LeasePath()+".other", string(b), 0o644, somebody)
	if err := os.Rename(f.LeasePath()+".other", f.LeasePath()); err != nil {
		t.Fatal(err)
	}
	if own, err := tenure.IsOwn(); own || err != nil || !tenure.Lost() {
		t.Errorf("still holding: %v, %v", own, err)
	}
}

// A lock file that another account made is not waited for, nor one's logs
// written into what it, or anybody, has put in their place.
func TestFilesOfAnotherAccount(t *testing.T) {
	asRoot(t)
	f := newTestFolder(t, newCheckout(t), quick)
	path := filepath.Join(f.path, lockName)
	put(t, path, "", 0o666, somebody)
	h, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if err := syscall.Flock(int(h.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	take(t, f)

	put(t, f.LogPath("server.log"), "theirs\n", 0o666, somebody)
	log, err := f.OpenLog("server.log")
	if err != nil {
		t.Fatal(err)
	}
	log.WriteString("ours\n")
	log.Close()
	if b, err := os.ReadFile(f.LogPath("server.log")); err != nil || string(b) != "ours\n" {
		t.Errorf("the log is %q, %v", b, err)
	}
}

// What has a name elsewhere too is somebody's.
func TestLogIsALinkToAnother(t *testing.T) {
	f := newTestFolder(t, newCheckout(t), quick)
	out := filepath.Join(t.TempDir(), "precious")
	put(t, out, "precious\n", 0o600, -1)
	if err := os.Link(out, f.LogPath("server.log")); err != nil {
		t.Skip(err)
	}
	log, err := f.Log("server.log")
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	if _, err := log.Write([]byte("said\n")); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(out); err != nil || string(b) != "precious\n" {
		t.Errorf("it was written to: %q, %v", b, err)
	}
}

// Opening the folder mends its mode; whose it is can only be said.
func TestExposed(t *testing.T) {
	c := newCheckout(t)
	f := newTestFolder(t, c, quick)
	if said := f.Exposed(); said != "" {
		t.Errorf("of a new one: %q", said)
	}
	for _, mode := range []fs.FileMode{0o777, 0o770, 0o755, 0o710} {
		if err := os.Chmod(f.path, mode); err != nil {
			t.Fatal(err)
		}
		if said := f.Exposed(); !strings.Contains(said, "mode") {
			t.Errorf("of mode %v: %q", mode, said)
		}
		newTestFolder(t, c, quick)
		if said := f.Exposed(); said != "" {
			t.Errorf("of mode %v, mended: %q", mode, said)
		}
	}
	asRoot(t)
	if err := os.Chown(f.path, somebody, somebody); err != nil {
		t.Fatal(err)
	}
	if said := newTestFolder(t, c, quick).Exposed(); !strings.Contains(said, "another account") {
		t.Errorf("of another's: %q", said)
	}
	// Root and the owner of a checkout share its server.
	if err := os.Chown(c.Root, somebody, somebody); err != nil {
		t.Fatal(err)
	}
	g := newTestFolder(t, c, quick)
	put(t, filepath.Join(g.path, keyName), planted, 0o600, somebody)
	if said := g.Exposed(); said != "" {
		t.Errorf("of the owner's: %q", said)
	}
	if key, err := g.Key(); err != nil || key != planted {
		t.Errorf("the owner's key: %q, %v", key, err)
	}
}
