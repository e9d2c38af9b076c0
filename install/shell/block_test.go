package shell

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Lines that were put into a file and taken out again leave the bytes that were
// there, twice is once, and other lines take the place of those that are there.
func TestPutAndTake(t *testing.T) {
	pieces := []string{"export A=1", "\n", "\n\n", "#!/bin/sh\n", "\r\n", "\t", "# >>> majordomus", "é", "\x00\xff", "if x; then\n", " >>>\n", "fi"}
	for seed := range uint64(5000) {
		r := rand.New(rand.NewPCG(seed, 1))
		text := []byte{}
		for range r.IntN(8) {
			text = append(text, pieces[r.IntN(len(pieces))]...)
		}
		if _, there, err := find(text); there || err != nil {
			continue // a mark by chance
		}
		place, first := Place(r.IntN(2)), []string{"", "#!/bin/sh\n"}[r.IntN(2)]
		if r.IntN(10) == 0 {
			text = nil
		}
		put := func(text []byte, lines string) []byte {
			t.Helper()
			got, err := Put(text, place, first, lines, "undo")
			if err != nil {
				t.Fatalf("%d: %q: %v", seed, text, err)
			}
			return got
		}
		once := put(text, "line")
		if has, err := Has(once); !has || err != nil {
			t.Fatalf("%d: %q became %q", seed, text, once)
		}
		if !bytes.Contains(once, []byte("\nline\n")) {
			t.Fatalf("%d: not a line of its own in %q", seed, once)
		}
		if twice := put(once, "line"); !bytes.Equal(once, twice) {
			t.Fatalf("%d: %q became %q and then %q", seed, text, once, twice)
		}
		left, err := Take(put(put(once, "another\nline"), "third"), first)
		if err != nil || !bytes.Equal(left, text) || (left == nil) != (text == nil) {
			t.Fatalf("%d: of %q is left %q (%v)", seed, text, left, err)
		}
	}
}

// What came below the lines afterwards stays a line of its own.
func TestTakeFromBetween(t *testing.T) {
	text, err := Put([]byte("a"), Last, "", "line", "undo")
	if err != nil {
		t.Fatal(err)
	}
	left, err := Take(append(text, "b\n"...), "")
	if err != nil || string(left) != "a\nb\n" {
		t.Errorf("%q, %v", left, err)
	}
	made, err := Put(nil, Last, "", "line", "undo")
	if err != nil {
		t.Fatal(err)
	}
	if left, err := Take(append(made, "b\n"...), ""); err != nil || string(left) != "b\n" {
		t.Errorf("%q, %v", left, err)
	}
}

func TestBrokenMarks(t *testing.T) {
	for text, line := range map[string]int{
		"a\n" + begin + "\nb\n":                                    2,
		"a\n" + end + "\nb\n":                                      2,
		begin + "\n" + begin + "\n" + end + "\n":                   2,
		begin + "\n" + end + "\n\n" + begin + "\n" + end + "\n":    4,
		begin + "\n" + end + "\n" + end + "\n":                     3,
		"a\n  " + begin + "\r\nx\n" + end + "\n" + begin:           5,
		strings.Repeat("x\n", 99) + begin + "\n" + "# <<< major\n": 100,
	} {
		_, err := Put([]byte(text), Last, "", "line", "undo")
		_, also := Take([]byte(text), "")
		var b *BrokenError
		if !errors.As(err, &b) || b.Line != line || also == nil {
			t.Errorf("%q: %v, %v; want line %d", text, err, also, line)
		}
	}
}

func TestFile(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	path := func(name string) string { return filepath.Join(dir, name) }
	read := func(name string) File {
		t.Helper()
		f, err := Read(path(name))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}

	f := read("sub/new")
	f.Made(0o700)
	if f.Text != nil {
		t.Errorf("%q", f.Text)
	}
	if err := f.Write([]byte("one\n")); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path("sub/new")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info, err)
	}
	if err := f.Write([]byte("two\n")); err == nil {
		t.Error("written over a file that has come in the meantime")
	}

	// A link stays one, and the mode of what it leads to too.
	if err := os.Chmod(path("sub/new"), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("sub/new", path("link")); err != nil {
		t.Skip(err)
	}
	f = read("link")
	if err := f.Write([]byte("two\n")); err != nil {
		t.Fatal(err)
	}
	if to, err := os.Readlink(path("link")); err != nil || to != "sub/new" {
		t.Errorf("the link leads to %q (%v)", to, err)
	}
	b, err := os.ReadFile(path("sub/new"))
	info, _ := os.Stat(path("sub/new"))
	if err != nil || string(b) != "two\n" || info.Mode().Perm() != 0o640 {
		t.Errorf("%q, %v, %v", b, err, info.Mode())
	}
	if err := f.Write([]byte("three\n")); err == nil {
		t.Error("written over a change of somebody else")
	}
	if left, _ := filepath.Glob(path("sub/.majordomus-*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}

	if err := os.Symlink("nowhere", path("dangling")); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path("dangling")); err == nil {
		t.Error("a link that leads nowhere was read")
	}
	if _, err := Read(dir); err == nil {
		t.Error("a folder was read")
	}
	if err := read("link").Write(nil); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(path("sub/new")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("not removed: %v", err)
	}
}
