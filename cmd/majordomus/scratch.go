package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"majordomus/lease"
	"majordomus/lease/checkout"
	"majordomus/lease/launch"
)

// scratch is a checkout in a temporary folder, which goes with every server
// that there was in it.
type scratch struct {
	app     *app
	dir     string
	place   place
	servers map[string]int // every server seen, its pid by its token
}

// newScratch makes an empty git work tree; what git needs to know one by is
// written by hand, because it must be made where git is not installed.
func (a *app) newScratch(name string) (*scratch, error) {
	dir, err := os.MkdirTemp("", name)
	if err != nil {
		return nil, fmt.Errorf("making a temporary folder: %w", err)
	}
	own := *a // whose servers leave no record
	own.environ = append(slices.Clip(a.environ), unrecordedVar+"=1")
	s := &scratch{app: &own, dir: dir, servers: map[string]int{}}
	if err := s.make(); err != nil {
		return nil, errors.Join(err, s.end())
	}
	return s, nil
}

func (s *scratch) make() error {
	git := filepath.Join(s.dir, ".git")
	for _, sub := range []string{"objects", "refs/heads"} {
		if err := os.MkdirAll(filepath.Join(git, sub), 0o755); err != nil {
			return fmt.Errorf("making a checkout: %w", err)
		}
	}
	if err := os.WriteFile(filepath.Join(git, "HEAD"), []byte("ref: refs/heads/main\n"), 0o644); err != nil {
		return fmt.Errorf("making a checkout: %w", err)
	}
	c, err := checkout.Open(s.dir)
	if err != nil {
		return err
	}
	s.place, err = s.app.open(c, s.app.logger(), lease.Open)
	return err
}

// serving is the lease as it stands, of a server with an address.
func (s *scratch) serving() (lease.Document, error) {
	f := s.place.folder.Read()
	if f.State != lease.Present || f.Document.URL == nil {
		return lease.Document{}, errors.New("no server holds the lease")
	}
	s.servers[f.Document.Token] = f.Document.PID
	return f.Document, nil
}

// end stops every server seen, and removes the folder.
func (s *scratch) end() error {
	var errs []error
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if s.place.folder != nil {
		if _, err := s.app.stop(ctx, s.place, true, 5*time.Second); err != nil {
			errs = append(errs, err)
		}
		for token := range s.servers { // one that lost its lease ends by itself
			if err := until(ctx, func() bool { held, _ := s.place.folder.AliveHeld(token); return !held }); err != nil {
				errs = append(errs, fmt.Errorf("process %d has not ended: %w", s.servers[token], err))
			}
		}
		if len(errs) > 0 {
			fmt.Fprintln(s.app.err, lease.Tail(s.place.folder.LogPath(launch.LogName), 0))
		}
		s.place.close()
	}
	if err := os.RemoveAll(s.dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
