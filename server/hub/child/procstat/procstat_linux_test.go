package procstat

import (
	"os"
	"testing"
)

func TestParse(t *testing.T) {
	page := int64(os.Getpagesize())
	for _, c := range []struct {
		line string
		want Stat
		ok   bool
	}{
		{"4711 (node) S 1 4710 4709 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 11 0 987654 22000000 777 18446744073709551615 1 1\n",
			Stat{false, 1, 4710, 4709, "987654", 777 * page}, true},
		{"4711 (a) S 1) Z) Z 7 4710 4709 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 11 0 987654 0 0 0\n", Stat{true, 7, 4710, 4709, "987654", 0}, true},
		{"4711 (node) S 1 4710", Stat{}, false},
		{"4711 (node) S x 4710 4709 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 11 0 987654 0 0 0\n", Stat{}, false},
		{"", Stat{}, false},
	} {
		if got, ok := parse([]byte(c.line)); got != c.want || ok != c.ok {
			t.Errorf("%q\ngot  %+v, %v\nwant %+v, %v", c.line, got, ok, c.want, c.ok)
		}
	}
}

// This process and the one that started it are as they say themselves.
func TestRead(t *testing.T) {
	s, ok := Read(os.Getpid())
	if !ok || s.Dead || s.Parent != os.Getppid() || s.Start == "" || s.RSS <= 0 {
		t.Errorf("%+v, %v", s, ok)
	}
	if s, ok := Read(1 << 30); ok || s != (Stat{}) {
		t.Errorf("of nobody: %+v, %v", s, ok)
	}
}
