package lease

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"majordomus/lease/checkout"
)

func TestOpenMakesTheFolderForThisAccount(t *testing.T) {
	c := newCheckout(t)
	if _, err := OpenExisting(Config{Checkout: c}); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("existing: %v", err)
	}
	if exists(t, filepath.Join(c.Root, ".ai")) {
		t.Fatal("to look made something")
	}
	f := newTestFolder(t, c, patient)
	if b, err := os.ReadFile(filepath.Join(c.LocalDir, ".gitignore")); err != nil || string(b) != "*\n" {
		t.Errorf(".gitignore: %q, %v", b, err)
	}
	if runtime.GOOS != "windows" {
		info, err := os.Stat(c.StateDir())
		if err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("mode %v, %v", info.Mode(), err)
		}
	}
	if f.LeasePath() != filepath.Join(c.StateDir(), "server.json") {
		t.Error(f.LeasePath())
	}
	// A person's own .gitignore stays.
	if err := os.WriteFile(filepath.Join(c.LocalDir, ".gitignore"), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	newTestFolder(t, c, patient)
	if b, _ := os.ReadFile(filepath.Join(c.LocalDir, ".gitignore")); string(b) != "mine" {
		t.Errorf(".gitignore became %q", b)
	}
	// One that a process left empty, which died or met a full disk before it
	// wrote, lets git see the key.
	if err := os.WriteFile(filepath.Join(c.LocalDir, ".gitignore"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	newTestFolder(t, c, patient)
	if b, _ := os.ReadFile(filepath.Join(c.LocalDir, ".gitignore")); string(b) != "*\n" {
		t.Errorf("an empty .gitignore became %q", b)
	}
	if g, err := OpenExisting(Config{Checkout: c}); err != nil {
		t.Error(err)
	} else {
		g.Close()
	}
}

// A cloned checkout must not choose where on the machine this program writes.
// What a shell compares is what the file says, and a change of the folder is seen.
func TestContentAndAge(t *testing.T) {
	c := newCheckout(t)
	f := newTestFolder(t, c, patient)
	if got := f.Read().Content(); len(got) != 0 {
		t.Errorf("of no lease: %q", got)
	}
	const text = "{\"schema\": \"another\"}\n"
	if err := os.WriteFile(f.LeasePath(), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := f.Read().Content(); string(got) != text {
		t.Errorf("%q", got)
	}
	if age, err := f.Age(); err != nil || age > time.Minute {
		t.Errorf("just changed: %v, %v", age, err)
	}
	then := time.Now().Add(-time.Hour)
	if err := os.Chtimes(c.StateDir(), then, then); err != nil {
		t.Fatal(err)
	}
	if age, err := f.Age(); err != nil || age < 59*time.Minute {
		t.Errorf("changed an hour ago: %v, %v", age, err)
	}
}

func TestOpenFollowsNoLinkOut(t *testing.T) {
	root, out := t.TempDir(), t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, ".ai", "local"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(out, filepath.Join(root, ".ai", "local", "state")); err != nil {
		t.Skip(err)
	}
	c, err := checkout.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	if f, err := Open(Config{Checkout: c}); err == nil {
		f.Close()
		t.Error("opened through a link that leaves the checkout")
	}
	if entries, _ := os.ReadDir(out); len(entries) != 0 {
		t.Errorf("wrote %v outside", entries)
	}
}

func TestKeyIsMadeOnce(t *testing.T) {
	c := newCheckout(t)
	f := newTestFolder(t, c, patient)
	if _, err := f.ReadKey(); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("before: %v", err)
	}
	keys := make([]string, 16)
	var wg sync.WaitGroup
	for i := range keys {
		g := newTestFolder(t, c, patient)
		wg.Go(func() {
			key, err := g.Key()
			if err != nil {
				t.Error(err)
			}
			keys[i] = key
		})
	}
	wg.Wait()
	for _, key := range keys {
		if len(key) != 64 || key != keys[0] {
			t.Fatalf("keys %v", keys)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(c.StateDir(), "key.*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	if info, _ := os.Stat(filepath.Join(c.StateDir(), "key")); runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
	rotated, err := f.RotateKey()
	if err != nil || rotated == keys[0] {
		t.Fatalf("rotated to %q, %v", rotated, err)
	}
	if key, err := f.Key(); err != nil || key != rotated {
		t.Errorf("after: %q, %v", key, err)
	}
}

func TestKeyFiles(t *testing.T) {
	f := newTestFolder(t, newCheckout(t), patient)
	path := filepath.Join(f.path, "key")
	write := func(s string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(" my very\town key \r\n  of 16")
	if key, err := f.Key(); err != nil || key != "myveryownkeyof16" {
		t.Errorf("%q, %v", key, err)
	}
	for _, none := range []string{" \n", "abc", "schlüsselschlüssel", "0123456789\xff012345", "0123456789\x00012345"} {
		write(none)
		if _, err := f.ReadKey(); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%q: %v", none, err)
		}
		if key, err := f.Key(); err != nil || len(key) != 64 {
			t.Errorf("in place of %q: %q, %v", none, key, err)
		}
	}
	write(strings.Repeat("x", 5000))
	if _, err := f.Key(); err == nil {
		t.Error("5000 bytes taken for a key")
	}
	os.Remove(path)
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Key(); err == nil {
		t.Error("a folder taken for a key")
	}
}

// What processes leave that die while they make a key, or try a lock, is removed
// by whoever takes the lease a minute later.
func TestLeftoversOfTheDead(t *testing.T) {
	c := newCheckout(t)
	f := newTestFolder(t, c, patient)
	const half = "0123456789abcdef"
	names := map[string]bool{ // and whether they stay
		"key." + half + ".tmp": false, ".try-12345": false, "server." + newToken() + ".tmp": false,
		"key.fresh.tmp": true, ".try-fresh": true, "key.mine": true, "mine.tmp": true,
	}
	for name := range names {
		path := filepath.Join(c.StateDir(), name)
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(name, "fresh") {
			continue
		}
		then := time.Now().Add(-2 * time.Minute)
		if err := os.Chtimes(path, then, then); err != nil {
			t.Fatal(err)
		}
	}
	take(t, f)
	for name, stays := range names {
		if exists(t, filepath.Join(c.StateDir(), name)) != stays {
			t.Errorf("%s: stays %v", name, !stays)
		}
	}
}

// The agreement: hex HMAC-SHA256 of the nonce followed by the token, under the
// key's characters.
func TestProof(t *testing.T) {
	// RFC 4231, test case 2.
	if got := Proof("Jefe", "what do ya want ", "for nothing?"); got != "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843" {
		t.Errorf("%s", got)
	}
}

func TestAliveHeld(t *testing.T) {
	f := newTestFolder(t, newCheckout(t), patient)
	token := newToken()
	is := func(wantHeld, wantExists bool) {
		t.Helper()
		if held, exists := f.AliveHeld(token); held != wantHeld || exists != wantExists {
			t.Errorf("held %v, exists %v; want %v, %v", held, exists, wantHeld, wantExists)
		}
	}
	is(false, false)
	if exists(t, filepath.Join(f.path, aliveName(token))) {
		t.Fatal("to ask made the file")
	}
	letGo := hold(t, f, token)
	is(true, true)
	is(true, true)
	letGo()
	is(false, true)
	for _, bad := range []string{"", "..", "../../key", strings.ToUpper(token), token + "0"} {
		if held, exists := f.AliveHeld(bad); held || exists {
			t.Errorf("%q: held %v, exists %v", bad, held, exists)
		}
	}
}

// Askers that held each other off would call a dead holder alive.
func TestAliveAskersDoNotMeet(t *testing.T) {
	f := newTestFolder(t, newCheckout(t), patient)
	token := newToken()
	hold(t, f, token)()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 300 {
				if held, exists := f.AliveHeld(token); held || !exists {
					t.Errorf("held %v, exists %v", held, exists)
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestLaunchLock(t *testing.T) {
	c := newCheckout(t)
	f, g := newTestFolder(t, c, patient), newTestFolder(t, c, patient)
	unlock, ok, err := f.TryLockLaunch()
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	if _, ok, err := g.TryLockLaunch(); ok || err != nil {
		t.Fatalf("locked twice: %v, %v", ok, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if _, err := g.LockLaunch(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("waiting: %v", err)
	}
	got := make(chan error)
	go func() {
		unlock, err := g.LockLaunch(context.Background())
		if err == nil {
			unlock()
		}
		got <- err
	}()
	unlock()
	if err := <-got; err != nil {
		t.Fatal(err)
	}
	if !exists(t, filepath.Join(f.path, "launch.lock")) {
		t.Error("launch.lock was removed")
	}
}

func TestLockFileIsALinkOut(t *testing.T) {
	f := newTestFolder(t, newCheckout(t), patient)
	out := filepath.Join(t.TempDir(), "made")
	if err := os.Symlink(out, filepath.Join(f.path, "server.lock")); err != nil {
		t.Skip(err)
	}
	take(t, f)
	if exists(t, out) {
		t.Error("a file was made outside")
	}
}

// A log is rotated while it is written, and where it cannot be it grows on.
func TestLogRotates(t *testing.T) {
	f := newTestFolder(t, newCheckout(t), patient)
	l, err := f.Log("server.log")
	if err != nil {
		t.Fatal(err)
	}
	line := []byte(strings.Repeat("x", 1<<20-1) + "\n")
	write := func(n int) {
		t.Helper()
		for range n {
			if n, err := l.Write(line); err != nil || n != len(line) {
				t.Fatal(n, err)
			}
		}
	}
	size := func(name string) int64 {
		info, err := os.Stat(f.LogPath(name))
		if err != nil {
			return -1
		}
		return info.Size()
	}
	write(11)
	if now, before := size("server.log"), size("server.log.1"); now != 11<<20 || before != -1 {
		t.Errorf("after 11 MiB: %d, before %d", now, before)
	}
	write(1)
	if now, before := size("server.log"), size("server.log.1"); now != 1<<20 || before != 11<<20 {
		t.Errorf("after 12 MiB: %d, before %d", now, before)
	}
	// Somebody else rotates it, or removes it: what comes next is not lost.
	if err := os.Remove(f.LogPath("server.log")); err != nil {
		t.Fatal(err)
	}
	write(11)
	if now := size("server.log"); now != 1<<20 {
		t.Errorf("after it was removed and filled: %d", now)
	}
	again, err := f.Log("server.log")
	if err != nil {
		t.Fatal(err)
	}
	if again.size != 1<<20 {
		t.Errorf("one that goes on counts %d", again.size)
	}
	if err := os.Mkdir(f.LogPath("server.log.1")+"x", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Remove(f.LogPath("server.log.1")), os.Rename(f.LogPath("server.log.1")+"x", f.LogPath("server.log.1"))); err != nil {
		t.Fatal(err)
	}
	write(11) // in its way is a folder
	if now := size("server.log"); now != 12<<20 {
		t.Errorf("one that cannot be rotated: %d", now)
	}
}

func TestOpenLog(t *testing.T) {
	f := newTestFolder(t, newCheckout(t), patient)
	say := func(s string) {
		t.Helper()
		h, err := f.OpenLog("server.log")
		if err != nil {
			t.Fatal(err)
		}
		h.WriteString(s)
		h.Close()
	}
	say("one\n")
	say("two\n")
	path := f.LogPath("server.log")
	if b, _ := os.ReadFile(path); string(b) != "one\ntwo\n" {
		t.Fatalf("%q", b)
	}
	if err := os.Truncate(path, maxLog+1); err != nil {
		t.Fatal(err)
	}
	say("three\n")
	if b, _ := os.ReadFile(path); string(b) != "three\n" {
		t.Errorf("%.20q", b)
	}
	if info, err := os.Stat(path + ".1"); err != nil || info.Size() != maxLog+1 {
		t.Errorf("%v", err)
	}
	for _, name := range []string{"", ".", "..", "../x", "a/b"} {
		if h, err := f.OpenLog(name); err == nil {
			h.Close()
			t.Errorf("%q opened", name)
		}
	}
}

func TestTail(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if got := Tail(path, 0); got != "" {
		t.Errorf("of no file: %q", got)
	}
	if err := os.WriteFile(path, []byte("before\n"+strings.Repeat("x", 5000)+"\nlast \xff line\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := Tail(path, 7)
	if !strings.HasSuffix(got, "x\nlast ? line") || len(got) > 2<<10 || strings.Contains(got, "before") {
		t.Errorf("the tail is %d bytes and ends %q", len(got), got[max(0, len(got)-20):])
	}
}

func TestExecutableIdentity(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mj")
	if err := os.WriteFile(path, []byte("one"), 0o700); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	id := ExecutableIdentity{Path: path}.of(info)
	is := func(want bool) {
		t.Helper()
		reason, replaced := id.Replaced()
		if replaced != want || (reason == "") == want {
			t.Errorf("replaced %v (%s), want %v", replaced, reason, want)
		}
		if strings.Contains(reason, path) {
			t.Errorf("the reason tells a path: %s", reason)
		}
	}
	is(false)
	if err := os.Chtimes(path, time.Time{}, info.ModTime().Add(time.Nanosecond)); err != nil {
		t.Fatal(err)
	}
	is(true)
	if err := os.Chtimes(path, time.Time{}, info.ModTime()); err != nil {
		t.Fatal(err)
	}
	is(false)
	if err := os.Truncate(path, 2); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, time.Time{}, info.ModTime()); err != nil {
		t.Fatal(err)
	}
	is(true)
	os.Remove(path)
	is(false) // a missing file is not a replaced one
	if _, replaced := (ExecutableIdentity{}).Replaced(); replaced {
		t.Error("what is not known counts as replaced")
	}
	me := StartedAs()
	if me.Path == "" || me.Size == 0 || me.MTime == 0 {
		t.Errorf("started as %+v", me)
	}
	if reason, replaced := ServingReplacedCode(me); replaced {
		t.Error(reason)
	}
}

// The interleaving that a lock file alone does not survive: it is deleted while
// somebody has it, and the next one makes and locks another.
func TestADeletedLockFileStillExcludes(t *testing.T) {
	if !folderLocks {
		t.Skip("an open lock file cannot be deleted here")
	}
	c := newCheckout(t)
	f, g := newTestFolder(t, c, quick), newTestFolder(t, c, quick)
	unlock, err := f.change(f.readable())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(f.path, lockName)); err != nil {
		t.Fatal(err)
	}
	if second, err := g.change(g.readable()); !errors.Is(err, ErrLockBusy) {
		if err == nil {
			second()
		}
		t.Errorf("locked beside the first: %v", err)
	}
	unlock()
	second, err := g.change(g.readable())
	if err != nil {
		t.Fatal(err)
	}
	second()
	// A folder that was deleted is not the one that is there now.
	root, err := g.readable().again()
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := os.RemoveAll(c.LocalDir); err != nil {
		t.Fatal(err)
	}
	newTestFolder(t, c, quick)
	if unlock, err := g.change(root); !errors.Is(err, fs.ErrNotExist) {
		if err == nil {
			unlock()
		}
		t.Errorf("locked a deleted folder: %v", err)
	}
}

// goingFiles is a folder that is removed just before something is made in it.
type goingFiles struct {
	files
	path string
}

func (g goingFiles) OpenFile(name string, flag int, perm fs.FileMode) (file, error) {
	if flag&os.O_CREATE != 0 {
		if err := os.RemoveAll(g.path); err != nil {
			return nil, err
		}
	}
	return g.files.OpenFile(name, flag, perm)
}

// TestPublishInAFolderThatGoes was found by the explorer:
//
//	P1 looks: the lease is its own
//	                               rm -r of the folder
//	P1 makes its temporary file: no such file
//
// P1 was told that nothing was written and that it held the lease.
func TestPublishInAFolderThatGoes(t *testing.T) {
	f := newTestFolder(t, newCheckout(t), patient)
	tenure := take(t, f)
	tenure.root = goingFiles{tenure.root, f.path}
	if err := tenure.Publish("http://127.0.0.1:1"); !errors.Is(err, ErrLost) {
		t.Errorf("publishing in a folder that is gone: %v", err)
	}
	if !tenure.Lost() {
		t.Error("the loss was not recorded")
	}
}
