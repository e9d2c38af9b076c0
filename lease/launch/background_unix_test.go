//go:build unix

package launch

import (
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// What runs in the background is waited for by nobody, has the environment of a
// server, and keeps no descriptor of whoever started it.
func TestBackground(t *testing.T) {
	dir := t.TempDir()
	var ends [2]int
	if err := syscall.Pipe(ends[:]); err != nil { // which children inherit, as those of direnv
		t.Fatal(err)
	}
	r, w := os.NewFile(uintptr(ends[0]), "reader"), os.NewFile(uintptr(ends[1]), "writer")
	defer r.Close()
	start := filepath.Join(dir, "go")
	if err := Background([]string{"/bin/sh", "-c", `while [ ! -e go ]; do sleep 0.01; done; echo "$X$HOME" >said; mv said done`}, dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=/h", "X=x"}); err != nil {
		t.Fatal(err)
	}
	w.Close()
	if _, err := r.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("a pipe of ours: %v", err)
	}
	if err := os.WriteFile(start, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		b, err := os.ReadFile(filepath.Join(dir, "done"))
		if err == nil && string(b) == "/h\n" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%q, %v", b, err)
		}
	}
	if err := Background([]string{filepath.Join(dir, "none")}, dir, nil); err == nil {
		t.Error("a program that is missing was started")
	}
}
