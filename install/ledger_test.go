package install

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestLedger(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "account")
	l := OpenLedger(dir)
	if list, err := l.List(); err != nil || list != nil {
		t.Errorf("nothing yet: %v, %v", list, err)
	}
	entries := []Entry{
		{Kind: Editor, Name: "claude", File: "/w/.mcp.json", Root: "/w"},
		{Kind: Editor, Name: "claude", File: "/v/.mcp.json", Root: "/v"},
		{Kind: Shell, Name: "bash", File: "/home/a/.bashrc", Undo: `{"lines": 3}`},
	}
	for range 2 { // again is once
		for _, e := range entries {
			if err := l.Add(e); err != nil {
				t.Fatal(err)
			}
		}
	}
	list, err := l.List()
	if err != nil || len(list) != 3 || list[0].Root != "/v" || list[1].Root != "/w" || list[2].Kind != Shell || list[2].Undo != entries[2].Undo || list[2].At.IsZero() {
		t.Errorf("%+v, %v", list, err)
	}
	if info, err := os.Stat(filepath.Join(dir, "installed")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	bad := filepath.Join(dir, "installed", "editor-0.json")
	if err := os.WriteFile(bad, []byte(`{"schema":"else"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if list, err := l.List(); len(list) != 3 || err == nil || !strings.Contains(err.Error(), bad) {
		t.Errorf("%v, %v", list, err)
	}
	os.Remove(bad)
	for _, e := range append(slices.Clone(entries), entries[0]) {
		if err := l.Remove(e); err != nil {
			t.Error(err)
		}
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestBackup(t *testing.T) {
	l := OpenLedger(t.TempDir())
	one, err := l.Backup("/w/.mcp.json", []byte("one"))
	if err != nil {
		t.Fatal(err)
	}
	two, err := l.Backup("/w/.mcp.json", []byte("two"))
	if err != nil || one == two {
		t.Fatal(one, two, err)
	}
	b, err := os.ReadFile(one)
	info, _ := os.Stat(one)
	if err != nil || string(b) != "one" || info.Mode().Perm() != 0o600 || !strings.HasSuffix(one, "-.mcp.json") {
		t.Errorf("%q, %v, %v", b, err, info.Mode())
	}
}

func TestLock(t *testing.T) {
	l := OpenLedger(filepath.Join(t.TempDir(), "account"))
	unlock, err := l.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := OpenLedger(l.Dir()).Lock(ctx); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("locked twice: %v", err)
	}
	unlock()
	unlock, err = OpenLedger(l.Dir()).Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	unlock()
}
