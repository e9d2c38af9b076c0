package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	testID     = "0123456789abcdef0123456789abcdef"
	testDigest = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
)

func TestLedger(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "trust")
	l := OpenLedger(dir)
	if got, ok, err := l.Lookup(testID); ok || err != nil {
		t.Errorf("before anything: %+v, %v, %v", got, ok, err)
	}
	if was, err := l.Revoke(testID); was || err != nil {
		t.Errorf("revoked nothing: %v, %v", was, err)
	}
	want := Trust{testDigest, "/bin:/usr/bin", "/work", time.Date(2026, 8, 1, 12, 0, 0, 5, time.UTC)}
	for _, path := range []string{"/old", want.Path} {
		want.Path = path
		if err := l.Record(testID, want); err != nil {
			t.Fatal(err)
		}
	}
	if got, ok, err := OpenLedger(dir).Lookup(testID); got != want || !ok || err != nil {
		t.Errorf("%+v, %v, %v", got, ok, err)
	}
	if got, ok, err := l.Lookup(strings.Repeat("f", 32)); ok || err != nil {
		t.Errorf("another checkout: %+v, %v, %v", got, ok, err)
	}
	names, _ := filepath.Glob(filepath.Join(dir, "*"))
	if len(names) != 1 {
		t.Errorf("files: %q", names)
	}
	if hasModes {
		for name, want := range map[string]os.FileMode{dir: 0o700, names[0]: 0o600} {
			if info, err := os.Stat(name); err != nil || info.Mode().Perm() != want {
				t.Errorf("%s: %v, %v", name, info.Mode(), err)
			}
		}
	}
	if was, err := l.Revoke(testID); !was || err != nil {
		t.Errorf("revoked: %v, %v", was, err)
	}
	if _, ok, err := l.Lookup(testID); ok || err != nil {
		t.Errorf("after that: %v, %v", ok, err)
	}
	for _, id := range []string{"", "x", testID[1:], "../" + testID[3:], strings.ToUpper(testID)} {
		if err := l.Record(id, want); err == nil {
			t.Errorf("recorded %q", id)
		}
		if _, _, err := l.Lookup(id); err == nil {
			t.Errorf("looked up %q", id)
		}
		if _, err := l.Revoke(id); err == nil {
			t.Errorf("revoked %q", id)
		}
	}
}

// A record that is no record is an error and not trust.
func TestLedgerGarbage(t *testing.T) {
	l := OpenLedger(t.TempDir())
	if hasModes {
		if err := os.Chmod(l.dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(l.dir, testID+".json")
	for _, text := range []string{"", "{", "[]", "{}", `{"schema":"majordomus-trust/v2","digest":"` + testDigest + `"}`, `{"schema":"majordomus-trust/v1","digest":""}`, `{"schema":"majordomus-trust/v1","digest":7}`} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, ok, err := l.Lookup(testID); ok || err == nil || got != (Trust{}) || !strings.Contains(err.Error(), path) {
			t.Errorf("%q: %+v, %v, %v", text, got, ok, err)
		}
	}
	os.Remove(path)
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, ok, err := l.Lookup(testID); ok || err == nil {
		t.Errorf("a folder: %v, %v", ok, err)
	}
}

func TestLedgerOthersCanWrite(t *testing.T) {
	if !hasModes {
		t.Skip("no modes here")
	}
	l := OpenLedger(filepath.Join(t.TempDir(), "trust"))
	if err := l.Record(testID, Trust{Digest: testDigest}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(l.dir, testID+".json")
	for _, tt := range []struct {
		folder, file os.FileMode
		believed     bool
	}{
		{0o700, 0o600, true}, {0o755, 0o644, true}, {0o700, 0o620, false}, {0o700, 0o602, false}, {0o720, 0o600, false}, {0o702, 0o600, false}, {0o700, 0o600, true},
	} {
		if err := os.Chmod(l.dir, tt.folder); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, tt.file); err != nil {
			t.Fatal(err)
		}
		_, ok, err := l.Lookup(testID)
		if ok != tt.believed || (err == nil) != tt.believed || err != nil && !strings.Contains(err.Error(), "others can write it") {
			t.Errorf("%04o/%04o: %v, %v", tt.folder, tt.file, ok, err)
		}
		err = l.Record(strings.Repeat("a", 32), Trust{Digest: testDigest})
		if (err == nil) != (tt.folder&0o022 == 0) {
			t.Errorf("%04o: recording: %v", tt.folder, err)
		}
	}
}

// Who looks while others record sees one record or another, and never half.
func TestLedgerTogether(t *testing.T) {
	l := OpenLedger(filepath.Join(t.TempDir(), "trust"))
	path := func(i int) string { return strings.Repeat(fmt.Sprint(i), 10_000) }
	if err := l.Record(testID, Trust{Digest: testDigest, Path: path(0)}); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for range 20 {
				if err := l.Record(testID, Trust{Digest: testDigest, Path: path(i)}); err != nil {
					t.Error(err)
				}
				got, ok, err := l.Lookup(testID)
				if err != nil || !ok || len(got.Path) != 10_000 || strings.Trim(got.Path, got.Path[:1]) != "" {
					t.Errorf("%v, %v, %d", ok, err, len(got.Path))
				}
			}
		})
	}
	wg.Wait()
	if names, _ := filepath.Glob(filepath.Join(l.dir, "*")); len(names) != 1 {
		t.Errorf("files: %q", names)
	}
}
