package install

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"
)

func TestRegister(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "account")
	r := OpenRegister(dir)
	if list, err := r.List(); err != nil || len(list) > 0 {
		t.Fatal(list, err)
	}
	b, a := filepath.Join(dir, "b"), filepath.Join(dir, "a")
	for _, add := range []struct {
		id, root string
		added    bool
	}{{"00ff", b, true}, {"01", a, true}, {"00ff", b, false}} {
		if added, err := r.Add(add.id, add.root); err != nil || added != add.added {
			t.Errorf("%+v: %v, %v", add, added, err)
		}
	}
	list, err := r.List()
	if err != nil || len(list) != 2 || list[0].Root != a || list[0].ID != "01" || list[1].Root != b || time.Since(list[1].At) > time.Minute {
		t.Errorf("%+v, %v", list, err)
	}
	// One that is damaged hides no other, and one of another form neither.
	for name, text := range map[string]string{"02.json": "{", "03.json": `{"schema": "other"}`, "note": "mine"} {
		if err := os.WriteFile(filepath.Join(dir, "served", name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if again, err := r.List(); err == nil || !slices.Equal(again, list) {
		t.Errorf("%+v, %v", again, err)
	}
	for _, id := range []string{"", "../x", "0G", "."} {
		if _, err := r.Add(id, a); err == nil {
			t.Errorf("%q is taken for an ID", id)
		}
		if err := r.Remove(id); err == nil {
			t.Errorf("%q is taken for an ID", id)
		}
	}
	os.Remove(filepath.Join(dir, "served", "note"))
	for _, id := range []string{"00ff", "01", "02", "03", "04"} {
		if err := r.Remove(id); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "served")); !os.IsNotExist(err) {
		t.Errorf("the folder is left: %v", err)
	}
}

// Servers start at the same time, and leave nothing but whole records.
func TestRegisterTogether(t *testing.T) {
	dir := t.TempDir()
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			if _, err := OpenRegister(dir).Add(fmt.Sprintf("%02x", i%8), dir); err != nil {
				t.Error(err)
			}
			if _, err := OpenRegister(dir).List(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if list, err := OpenRegister(dir).List(); err != nil || len(list) != 8 {
		t.Errorf("%+v, %v", list, err)
	}
	if files, err := os.ReadDir(filepath.Join(dir, "served")); err != nil || len(files) != 8 {
		t.Errorf("%v, %v", files, err)
	}
}

// Every start of a server pays for this.
func BenchmarkRegister(b *testing.B) {
	for name, again := range map[string]bool{"new": false, "known": true} {
		b.Run(name, func(b *testing.B) {
			r := OpenRegister(b.TempDir())
			if _, err := r.Add("00", "/x"); err != nil {
				b.Fatal(err)
			}
			for i := 0; b.Loop(); i++ {
				id := "00"
				if !again {
					id = fmt.Sprintf("%08x", i+1)
				}
				if _, err := r.Add(id, "/x"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
