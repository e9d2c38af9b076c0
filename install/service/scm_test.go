package service

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s is now\n%s", name, got)
	}
}

func TestForWindows(t *testing.T) {
	s := Spec{ID: "0123456789abcdef0123456789abcdef", Root: `C:\Users\alice\my work`, Executable: `C:\Program Files\majordomus.exe`}
	golden(t, "windows.txt", forWindows(s, `DESKTOP\alice`, "S-1-5-21-1-2-3-1001").String())
}
