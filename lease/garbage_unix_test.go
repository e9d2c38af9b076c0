//go:build unix

package lease

import (
	"net"
	"syscall"
	"testing"
)

var moreGarbage = map[string]func(*testing.T, string){
	"a named pipe that nobody writes": func(t *testing.T, path string) {
		if err := syscall.Mkfifo(path, 0o600); err != nil {
			t.Skip(err)
		}
	},
	"a socket": func(t *testing.T, path string) {
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Skip(err) // the path is too long
		}
		t.Cleanup(func() { l.Close() })
	},
}
