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
		return nil, errors.Join(err, s.end(false))
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

// end stops every server seen, and removes the folder. Where what was done there
// did not come to its end, a server may be on its way: whoever started it was
// interrupted, and it goes on, and would take the lease of a folder that is being
// removed, and serve nobody. It is waited for.
func (s *scratch) end(interrupted bool) error {
	var errs []error
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if s.place.folder != nil {
		if interrupted {
			soon, cancel := context.WithTimeout(ctx, 2*time.Second)
			until(soon, func() bool { // ignore error: then none came
				doc, err := s.serving()
				if err != nil {
					return false
				}
				held, _ := s.place.folder.AliveHeld(doc.Token) // ignore error: then it is waited for
				return held
			})
			cancel()
		}
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
	for {
		err := os.RemoveAll(s.dir)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			break
		}
		if !interrupted || ctx.Err() != nil {
			errs = append(errs, err)
			break
		}
		// Several may have been started, one after the other: this one has come
		// while the folder was being removed, and made its part of it again.
		s.late(ctx)
	}
	return errors.Join(errs...)
}

// late stops a server that came into what is left of the folder.
func (s *scratch) late(ctx context.Context) {
	p, err := s.app.open(s.place.Checkout, s.app.logger(), lease.Open)
	if err != nil {
		return // the next attempt to remove it says more
	}
	defer p.close()
	until(ctx, func() bool { // ignore error: as above
		_, err := s.app.stop(ctx, p, true, time.Second)
		f := p.folder.Read()
		return err == nil && (f.State != lease.Present || f.Document.URL != nil)
	})
}
