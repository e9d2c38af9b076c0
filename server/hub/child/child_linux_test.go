package child

import (
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"
)

func thread() int { return syscall.Gettid() }

// threadEnds waits for the end of a thread, of which no event tells.
func threadEnds(t *testing.T, id int) {
	t.Helper()
	for until := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		if _, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", id)); err != nil {
			return
		}
		if time.Now().After(until) {
			t.Fatal("the thread did not end")
		}
	}
}

func TestParseStat(t *testing.T) {
	t.Parallel()
	page := int64(os.Getpagesize())
	for _, c := range []struct {
		line string
		want stat
		ok   bool
	}{
		{"4711 (node) S 1 4710 4709 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 11 0 987654 22000000 777 18446744073709551615 1 1\n",
			stat{false, 4710, 4709, "987654", 777 * page}, true},
		{"4711 (a) S 1) Z) Z 1 4710 4709 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 11 0 987654 0 0 0\n", stat{true, 4710, 4709, "987654", 0}, true},
		{"4711 (node) S 1 4710", stat{}, false},
		{"", stat{}, false},
	} {
		if got, ok := parseStat([]byte(c.line)); got != c.want || ok != c.ok {
			t.Errorf("%q\ngot  %+v, %v\nwant %+v, %v", c.line, got, ok, c.want, c.ok)
		}
	}
}
