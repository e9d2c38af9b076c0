//go:build unix

package editor

import (
	"os"
	"syscall"
	"testing"
)

// TestOwner: who administers a machine does not take people's files away.
func TestOwner(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can write as somebody else")
	}
	c := newCupboard(t, "claude")
	path := c.e.File(c.m, true)
	c.put(path, "{}", 0o640)
	if err := os.Chown(path, 12345, 23456); err != nil {
		t.Fatal(err)
	}
	add, err := c.e.Plan(path, "", ours, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := add.Commit(c.keep); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if st := info.Sys().(*syscall.Stat_t); st.Uid != 12345 || st.Gid != 23456 || info.Mode().Perm() != 0o640 {
		t.Errorf("it is %d's and %d's, %v", st.Uid, st.Gid, info.Mode())
	}
}
