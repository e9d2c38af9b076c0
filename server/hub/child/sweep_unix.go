//go:build unix

package child

import (
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Sweep ends the groups that servers left which were killed, by the records in
// a folder, and returns their names. Groups of living servers stay, as does
// everything that is not provably what was recorded. Each gets 2 s to end after
// being asked, all at the same time; where there is nothing to end, it takes no
// time.
//
// It may run beside Start, and ends nothing that this process has started. A
// child without a record yet is in nobody's. One with a record is of a living
// server: this one. And an older record is not taken for it when the child got
// the number of the group of old: its leader then has another time, and where
// the leader is dead, what it started lacks the mark. While anything of a group
// lives the kernel gives its number to nobody, so between the look and the
// signal the group would have to end by itself and all numbers come round.
func Sweep(folder string, log *slog.Logger) (ended []string) {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil // nothing was ever recorded
	}
	defer root.Close() // ignore error: nothing is written through it
	dir, err := root.Open(".")
	if err != nil {
		log.Warn("the records of hosted servers cannot be read", "folder", folder, "err", err)
		return nil
	}
	names, err := dir.Readdirnames(-1)
	dir.Close() // ignore error: only read
	if err != nil {
		log.Warn("the records of hosted servers cannot be read", "folder", folder, "err", err)
	}
	var all sync.WaitGroup
	var mu sync.Mutex // guards ended
	for _, name := range names {
		token, ok := strings.CutSuffix(name, recordSuffix)
		if !ok || !isToken(token) {
			sweepTemp(root, name)
			continue
		}
		b, err := read(root, name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // its child has just ended
		}
		if err != nil {
			log.Warn("a record of a hosted server cannot be read", "file", name, "err", err)
			continue
		}
		r, err := parseRecord(b)
		if err != nil {
			log.Warn("removing a record of a hosted server that says nothing", "file", name, "err", err)
			root.Remove(name) // ignore error: a folder, or another sweeper was faster
			continue
		}
		what, why := r.judge(look(r))
		log.Debug("a record of a hosted server", "name", r.Name, "group", r.Leader.PID, "verdict", what, "why", why)
		switch what {
		case drop:
			root.Remove(name) // ignore error: as above
		case end:
			all.Go(func() {
				log.Warn("ending what a killed server left", "name", r.Name, "group", r.Leader.PID, "why", why)
				g := &group{id: r.Leader.PID, start: r.Leader.Start}
				if !g.sweep() {
					log.Warn("it cannot be ended", "name", r.Name, "group", r.Leader.PID)
					return
				}
				root.Remove(name) // ignore error: as above
				mu.Lock()
				defer mu.Unlock()
				ended = append(ended, r.Name)
			})
		}
	}
	all.Wait()
	return ended
}

// read reads what may be anything. What is no file is read as empty.
func read(root *os.Root, name string) ([]byte, error) {
	info, err := root.Lstat(name)
	if err != nil || !info.Mode().IsRegular() {
		return nil, err
	}
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close() // ignore error: only read
	return io.ReadAll(io.LimitReader(f, 64<<10))
}

// sweepTemp removes a record that was never finished. Its age tells it from one
// that somebody is about to finish.
func sweepTemp(root *os.Root, name string) {
	token, ok := strings.CutSuffix(name, tempSuffix)
	if !ok || !isToken(token) {
		return // not ours
	}
	if info, err := root.Lstat(name); err == nil && time.Since(info.ModTime()) > time.Minute {
		root.Remove(name) // ignore error: the next one tries again
	}
}

func look(r record) sight {
	s := sight{marked: marked}
	s.boot, s.namespace = system()
	if start, dead := startOf(r.Server.PID); start == r.Server.Start && !dead {
		s.server = true
	}
	s.members, s.known = membersOf(r.Leader.PID)
	return s
}

// sweep ends a group of which nothing is a child of this process.
func (g *group) sweep() bool {
	g.ask()
	if g.emptyWithin(grace) {
		return true
	}
	g.kill()
	return g.emptyWithin(settle)
}

func (g *group) emptyWithin(d time.Duration) bool {
	until := time.Now().Add(d)
	for pause := time.Millisecond; !g.empty(); pause = min(2*pause, 50*time.Millisecond) {
		if time.Now().After(until) {
			return false
		}
		time.Sleep(pause)
	}
	return true
}
