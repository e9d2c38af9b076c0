//go:build unix

package config

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Nobody writes into the pipe: who waited for that would hang here.
func TestReadPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Error(err)
	}
	if _, err := ReadEnv(path); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Error(err)
	}
}

// Only root can give a file away, so this runs where tests run as root.
func TestLedgerOfAnother(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root: nobody else's file can be made")
	}
	l := OpenLedger(filepath.Join(t.TempDir(), "trust"))
	if err := l.Record(testID, Trust{Digest: testDigest}); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(l.dir, testID+".json"), l.dir} {
		if err := os.Chown(path, 4242, 4242); err != nil {
			t.Fatal(err)
		}
		if _, ok, err := l.Lookup(testID); ok || err == nil || !strings.Contains(err.Error(), "another account") {
			t.Errorf("%s: %v, %v", path, ok, err)
		}
		if err := os.Chown(path, 0, 0); err != nil {
			t.Fatal(err)
		}
	}
}

func TestEnvOfAnother(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root: nobody else's file can be made")
	}
	path := filepath.Join(t.TempDir(), "env")
	if err := os.WriteFile(path, []byte("A=s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(path, 4242, 4242); err != nil {
		t.Fatal(err)
	}
	if env, err := ReadEnv(path); err == nil || !strings.Contains(err.Error(), "another account") || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("%v, %v", env, err)
	}
}
