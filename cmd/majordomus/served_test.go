//go:build unix

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// accAlone is a checkout of an account of its own, whose home is the account's.
func accAlone(t *testing.T) *accCheckout {
	t.Helper()
	c := accOwn(t)
	c.home = filepath.Join(filepath.Dir(c.program), "account")
	if err := os.Mkdir(c.home, 0o755); err != nil {
		t.Fatal(err)
	}
	return c
}

// beside is another checkout of the same account.
func (c *accCheckout) beside(name string) *accCheckout {
	c.t.Helper()
	other := *c
	other.root = filepath.Join(filepath.Dir(c.root), name)
	for _, sub := range []string{".git/objects", ".git/refs/heads"} {
		if err := os.MkdirAll(filepath.Join(other.root, sub), 0o755); err != nil {
			c.t.Fatal(err)
		}
	}
	c.writeFile(filepath.Join(other.root, ".git/HEAD"), "ref: refs/heads/main\n")
	c.t.Cleanup(other.end)
	return &other
}

// account is the account's folder.
func (c *accCheckout) account() string {
	if runtime.GOOS == "darwin" {
		return filepath.Join(c.home, "Library/Application Support/majordomus")
	}
	return filepath.Join(c.home, ".local/state/majordomus")
}

// registered waits until n checkouts are recorded, which is after others can find
// their servers, and returns the records.
func (c *accCheckout) registered(n int) []string {
	c.t.Helper()
	var files []string
	accPoll(c.t, 10*time.Second, "the records", func() (err error) {
		if files, err = filepath.Glob(filepath.Join(c.account(), "served", "*.json")); err == nil && len(files) != n {
			err = fmt.Errorf("%d, not %d: %q", len(files), n, files)
		}
		return err
	})
	return files
}

// servers are those that `status --all` shows, by their roots.
func (c *accCheckout) servers() map[string]standing {
	c.t.Helper()
	var list []standing
	if err := json.Unmarshal([]byte(c.must("status", "--all", "--format", "json")), &list); err != nil {
		c.t.Fatal(err)
	}
	all := map[string]standing{}
	for _, s := range list {
		all[s.Root] = s
	}
	if len(all) != len(list) {
		c.t.Errorf("one is shown twice: %+v", list)
	}
	return all
}

// TestServedElsewhere has all servers of an account found from anywhere, and
// stopped; those of checkouts that are gone are forgotten.
func TestServedElsewhere(t *testing.T) {
	t.Parallel()
	a := accAlone(t)
	b, gone := a.beside("other"), a.beside("gone")
	outside := *a
	outside.root = filepath.Join(filepath.Dir(a.root), "outside")
	if err := os.Mkdir(outside.root, 0o755); err != nil {
		t.Fatal(err)
	}
	outside.says("served/status-none.txt", "status", "--all")
	outside.says("served/stop-none.txt", "serve", "stop", "--all")
	outside.says("served/status-help.txt", "status", "--help")
	outside.says("served/stop-help.txt", "serve", "stop", "--help")
	if there(a.account()) {
		t.Error("looking has made the account's folder")
	}

	for _, c := range []*accCheckout{a, b, gone} {
		c.must("serve", "ensure")
	}
	a.registered(3)
	for _, from := range []*accCheckout{a, &outside} {
		all := from.servers()
		if len(all) != 3 || all[a.root].State != "serving" || all[b.root].State != "serving" || all[gone.root].State != "serving" {
			t.Errorf("from %s: %+v", from.root, all)
		}
	}
	if out := outside.must("status", "--all"); strings.Count(out, "checkout   ") != 3 || !strings.Contains(out, *b.mustLease().URL) {
		t.Errorf("said %s", out)
	}

	// One that was killed is shown, because its lease is there.
	killed := b.mustLease()
	if err := syscall.Kill(killed.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	accPoll(t, 10*time.Second, "the end of the killed one", func() error {
		if held, _ := b.folder().AliveHeld(killed.Token); held {
			return errors.New("it lives")
		}
		return nil
	})
	if s := outside.servers()[b.root]; s.State != "stale" {
		t.Errorf("the killed one is %+v", s)
	}

	// The folder of one goes while it is served: its server notices and ends.
	lost := gone.mustLease()
	if err := os.RemoveAll(gone.root); err != nil {
		t.Fatal(err)
	}
	if all := outside.servers(); len(all) != 2 {
		t.Errorf("%+v", all)
	}
	if files, err := os.ReadDir(filepath.Join(a.account(), "served")); err != nil || len(files) != 2 {
		t.Errorf("%v, %v", files, err)
	}
	syscall.Kill(lost.PID, syscall.SIGKILL) // ignore error: it may have ended

	out := outside.must("serve", "stop", "--all", "--force")
	if lines := strings.Split(strings.TrimSpace(out), "\n"); len(lines) != 2 || !strings.Contains(out, a.root+": stopped ") || !strings.Contains(out, b.root+": no server was running") {
		t.Errorf("said %q", lines)
	}
	if _, err := a.lease(); err == nil {
		t.Error("it is served still")
	}
	// Here it is shown though none serves, elsewhere it is not.
	if all := a.servers(); len(all) != 2 || all[a.root].State != "none" {
		t.Errorf("%+v", all)
	}
	b.must("serve", "ensure")
	a.must("serve", "stop", "--all")
	if all := outside.servers(); len(all) != 0 {
		t.Errorf("%+v", all)
	}
}

// A folder of the account that cannot be written keeps nobody from serving, and
// a new record has what is gone forgotten.
func TestServedRecords(t *testing.T) {
	t.Parallel()
	a := accAlone(t)
	b := a.beside("other")
	a.writeFile(a.account(), "no folder") // root writes into any
	a.must("serve", "ensure")
	a.must("serve", "stop")
	if err := os.Remove(a.account()); err != nil {
		t.Fatal(err)
	}
	b.must("serve", "ensure")
	before := a.registered(1)
	b.must("serve", "stop")
	if err := os.RemoveAll(b.root); err != nil {
		t.Fatal(err)
	}
	a.must("serve", "ensure")
	accPoll(t, 10*time.Second, "the other's record gone", func() error {
		if now := a.registered(1); slices.Equal(now, before) {
			return os.ErrExist
		}
		return nil
	})
	a.must("serve", "stop")
}

// The demo says that it touches nothing.
func TestDemoLeavesNothing(t *testing.T) {
	t.Parallel()
	c := accAlone(t)
	before := c.files()
	c.extra = append(c.extra, "TMPDIR="+filepath.Join(filepath.Dir(c.root), "tmp"))
	if err := os.Mkdir(filepath.Join(filepath.Dir(c.root), "tmp"), 0o755); err != nil {
		t.Fatal(err)
	}
	if out := c.must("demo"); !strings.Contains(out, "no call was lost") {
		t.Error(out)
	}
	for path := range c.files() {
		if _, ok := before[path]; !ok {
			t.Errorf("%s was left behind", path)
		}
	}
	if list, err := os.ReadDir(filepath.Join(filepath.Dir(c.root), "tmp")); err != nil || len(list) > 0 {
		t.Errorf("%v, %v", list, err)
	}
}
