package server

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"majordomus/lease/checkout"
	"majordomus/server/hub/config"
)

// What could not be read as the server began is looked at again soon, with
// somebody there to be told of it or nobody, and not for ever in haste.
func TestFirstLookFails(t *testing.T) {
	for _, attached := range []bool{true, false} {
		root := filepath.Join(t.TempDir(), "shop")
		layer := filepath.Join(root, ".ai", "repo")
		if err := os.MkdirAll(filepath.Dir(layer), 0o755); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{filepath.Join(root, ".ai", "manifest.yaml"), layer} { // not a folder yet
			if err := os.WriteFile(path, []byte("schema: ai-repository/v1\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		c, err := checkout.Open(root)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Test(t, func(t *testing.T) {
			begun := time.Now()
			var looks []time.Duration
			s, err := New(Config{Checkout: c, Hosting: &Hosting{Entries: func() (*config.File, error) {
				if looks = append(looks, time.Since(begun)/time.Millisecond); len(looks) <= 3 {
					return nil, &fs.PathError{Op: "open", Path: c.ServersFile, Err: syscall.EMFILE}
				}
				return &config.File{Digest: "1"}, nil
			}}})
			if err != nil {
				t.Fatal(err)
			}
			ctx, end := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			wg.Go(func() { s.core.Run(ctx) }) // ignore error: always nil
			wg.Go(func() { s.housekeep(ctx) })
			defer func() {
				s.core.Close()
				end()
				wg.Wait()
				s.hub.Close(ctx)
			}()
			s.prepare()
			ours, theirs := net.Pipe()
			var l *line
			if attached {
				wg.Go(func() { s.ServeStream(ctx, theirs, "", "") }) // ignore error: it is ended
				l = newLine(t, ours, ours)
				l.shake()
			}
			time.Sleep(100 * time.Millisecond)
			if err := errors.Join(os.Remove(layer), os.Mkdir(layer, 0o755), os.WriteFile(filepath.Join(layer, "a.md"), []byte("a\n"), 0o644)); err != nil {
				t.Fatal(err)
			}
			if attached {
				l.hear("notifications/resources/list_changed")
			}
			time.Sleep(150*time.Millisecond - time.Since(begun))
			synctest.Wait()
			if took := time.Since(begun); took != 150*time.Millisecond {
				t.Errorf("told after %v", took)
			}
			if counts, _ := s.sums(); counts.Layer != 1 {
				t.Errorf("attached %v: %d files are listed", attached, counts.Layer)
			}
			time.Sleep(3 * time.Second)
			synctest.Wait()
			if want := []time.Duration{0, 50, 150, 350, 2350}; !slices.Equal(looks, want) {
				t.Errorf("looked after %d ms, not %d", looks, want)
			}
		})
	}
}
