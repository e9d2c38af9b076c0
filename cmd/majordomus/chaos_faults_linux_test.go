package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A chaosFault is something that goes wrong. Faults are dealt like cards from a
// deck that has each as many times as it says, so that even a short run sees most
// of them. strike does it, in the way that a number chooses of several; an error
// says that just now it cannot be done. What it returns, if anything, puts it
// right again after up to lasts.
type chaosFault struct {
	name   string
	times  int
	lasts  time.Duration
	strike func(c *chaos, way int) (mend func(), err error)
}

// Faults that answers may tell of.
const (
	faultMoved      = "the checkout was moved away, and back"
	faultServerFull = "the server had no descriptor left"
	faultBridgeFull = "a bridge had no descriptor left" // which may serve its client itself
)

// makeTrouble deals faults until then.
func (c *chaos) makeTrouble(r *rand.Rand, until time.Time) {
	var deck []chaosFault
	for {
		if len(deck) == 0 {
			for _, f := range chaosFaults {
				for range f.times {
					deck = append(deck, f)
				}
			}
			r.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
		}
		f := deck[0]
		deck = deck[1:]
		// All is drawn before anything happens, so that what happens changes
		// nothing about what is drawn.
		pause, lasts, way := time.Duration(r.IntN(1000))*time.Millisecond, time.Duration(0), r.IntN(1<<30)
		if f.lasts > 0 {
			lasts = time.Duration(r.Int64N(int64(f.lasts)))
		}
		if time.Now().Add(pause).After(until) {
			return
		}
		time.Sleep(pause)
		c.mu.Lock()
		c.on[f.name]++
		c.mu.Unlock()
		mend, err := f.strike(c, way)
		if err != nil {
			c.event("not %s: %v", f.name, err)
			c.count("faults that had nothing to befall", f.name)
		} else {
			c.event("%s", f.name)
			c.count("faults", f.name)
		}
		if mend != nil {
			time.Sleep(lasts)
			mend()
			c.event("%s: over after %v", f.name, lasts.Round(time.Millisecond))
		}
		c.mu.Lock()
		c.on[f.name]--
		c.ended[f.name] = time.Now()
		c.mu.Unlock()
	}
}

var chaosFaults = []chaosFault{
	{"the server was killed", 5, 0, func(c *chaos, _ int) (func(), error) {
		return c.signal(syscall.SIGKILL, 0)
	}},
	{"the server was stopped for a while", 4, 4 * time.Second, func(c *chaos, _ int) (func(), error) {
		return c.signal(syscall.SIGSTOP, syscall.SIGCONT)
	}},
	{"the server was asked to end", 2, 0, func(c *chaos, way int) (func(), error) {
		if way%2 == 0 {
			return c.signal([]syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP}[way/2%3], 0)
		}
		_, log, err := c.run("serve", "stop")
		if err != nil {
			return nil, fmt.Errorf("%w: %s", err, log)
		}
		return nil, nil
	}},
	{"the executable was rebuilt", 3, 0, func(c *chaos, way int) (func(), error) {
		return nil, c.rebuild(way)
	}},
	{"the executable was touched", 1, 0, func(c *chaos, _ int) (func(), error) {
		now := time.Now()
		return nil, os.Chtimes(c.program, now, now)
	}},
	{"a newer release came", 2, 0, func(c *chaos, _ int) (func(), error) {
		_, log, err := c.with(c.newer).run("serve", "ensure")
		if err != nil {
			return nil, fmt.Errorf("%w: %s", err, log)
		}
		return nil, nil
	}},
	{"the lease was deleted", 3, 0, func(c *chaos, _ int) (func(), error) {
		return nil, os.Remove(c.leasePath())
	}},
	{"the lease was garbled", 6, 0, func(c *chaos, way int) (func(), error) {
		return nil, c.garble(way)
	}},
	{"the lease's times were shifted", 2, 0, func(c *chaos, way int) (func(), error) {
		return nil, c.shift(way)
	}},
	{"a lock file was deleted", 3, 0, func(c *chaos, way int) (func(), error) {
		return nil, os.Remove(c.state([]string{"server.lock", "launch.lock"}[way%2]))
	}},
	{"the key was spoilt", 3, 0, func(c *chaos, way int) (func(), error) {
		switch key := c.state("key"); way % 4 {
		case 0:
			return nil, os.Remove(key)
		case 1:
			return nil, os.Truncate(key, 0)
		case 2:
			return nil, os.Chmod(key, 0o644) // others may know it now
		}
		_, log, err := c.run("key", "--rotate")
		if err != nil {
			return nil, fmt.Errorf("%w: %s", err, log)
		}
		return nil, nil
	}},
	{faultMoved, 1, 2 * time.Second, func(c *chaos, _ int) (func(), error) {
		away := filepath.Join(c.disk, "away")
		c.standing.Lock()
		if err := os.Rename(c.root, away); err != nil {
			c.standing.Unlock()
			return nil, err
		}
		return func() {
			defer c.standing.Unlock()
			if err := os.Rename(away, c.root); err != nil {
				c.wrong("the checkout cannot be moved back: %v", err)
			}
		}, nil
	}},
	{"the disk was full", 2, 3 * time.Second, func(c *chaos, _ int) (func(), error) {
		path := filepath.Join(c.disk, "filling")
		f, err := os.Create(path)
		if err != nil {
			return nil, err
		}
		for b := make([]byte, 1<<20); err == nil; {
			_, err = f.Write(b)
		}
		f.Close()
		mend := func() {
			os.Remove(path) // ignore error: it is there
		}
		if !errors.Is(err, unix.ENOSPC) {
			mend()
			return nil, err
		}
		return mend, nil
	}},
	{faultServerFull, 2, 2 * time.Second, func(c *chaos, way int) (func(), error) {
		pid, err := c.holder()
		if err != nil {
			return nil, err
		}
		return chaosExhaust(pid, way)
	}},
	{faultBridgeFull, 2, 2 * time.Second, func(c *chaos, way int) (func(), error) {
		e, err := c.anyEditor(way)
		if err != nil {
			return nil, err
		}
		return chaosExhaust(e.cmd.Process.Pid, way)
	}},
	{"a bridge was stopped for a while", 4, 4 * time.Second, func(c *chaos, way int) (func(), error) {
		e, err := c.anyEditor(way)
		if err != nil {
			return nil, err
		}
		e.freeze(true)
		return func() { e.freeze(false) }, nil
	}},
	{"the hosted server was killed", 3, 0, func(c *chaos, way int) (func(), error) {
		return c.signalHosted(way, syscall.SIGKILL, 0)
	}},
	{"the hosted server was stopped for a while", 1, 2 * time.Second, func(c *chaos, way int) (func(), error) {
		return c.signalHosted(way, syscall.SIGSTOP, syscall.SIGCONT)
	}},
}

func (c *chaos) anyEditor(way int) (*chaosEditor, error) {
	all := c.editors()
	if len(all) == 0 {
		return nil, errors.New("no editor is there")
	}
	return all[way%len(all)], nil
}

// holder is the process that the lease names.
func (c *chaos) holder() (pid int, err error) {
	d, err := c.accCheckout.lease()
	if err != nil {
		return 0, err
	}
	for _, p := range c.processes() { // its number may have been given away
		if p.pid == d.PID && strings.Contains(p.words, " serve") {
			return p.pid, nil
		}
	}
	return 0, errors.New("it has ended")
}

// signal sends the holder of the lease a signal, and another one later.
func (c *chaos) signal(now, later syscall.Signal) (func(), error) {
	pid, err := c.holder()
	if err != nil {
		return nil, err
	}
	return chaosSignal(pid, now, later)
}

func (c *chaos) signalHosted(way int, now, later syscall.Signal) (func(), error) {
	var pids []int
	for _, p := range c.processes() {
		if strings.Contains(p.words, " -effects ") {
			pids = append(pids, p.pid)
		}
	}
	if len(pids) == 0 {
		return nil, errors.New("none runs")
	}
	return chaosSignal(pids[way%len(pids)], now, later)
}

func chaosSignal(pid int, now, later syscall.Signal) (func(), error) {
	if err := syscall.Kill(pid, now); err != nil || later == 0 {
		return nil, err
	}
	return func() { syscall.Kill(pid, later) }, nil // ignore error: it was killed meanwhile
}

// chaosExhaust leaves a process at most two more descriptors than it has.
func chaosExhaust(pid, way int) (func(), error) {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return nil, err
	}
	most := 0
	for _, e := range entries {
		if n, err := strconv.Atoi(e.Name()); err == nil {
			most = max(most, n)
		}
	}
	var before unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &before); err != nil {
		return nil, err
	}
	few := unix.Rlimit{Cur: uint64(most + 1 + way%3), Max: before.Max}
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &few, nil); err != nil {
		return nil, err
	}
	before.Cur = before.Max                                                    // as it was, if two are at it
	return func() { unix.Prlimit(pid, unix.RLIMIT_NOFILE, &before, nil) }, nil // ignore error: it has ended
}

// rebuild puts another build in the place of the program: the same code, and
// other bytes at the end.
func (c *chaos) rebuild(way int) error {
	b, err := os.ReadFile(c.older)
	if err != nil {
		return err
	}
	next := fmt.Sprint(c.program, ".next", way)
	if err := os.WriteFile(next, fmt.Appendf(b, "build %d", way), 0o755); err != nil {
		return err
	}
	return os.Rename(next, c.program)
}

// garble puts into the lease's place what is none.
func (c *chaos) garble(way int) error {
	path := c.leasePath()
	document, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	put := func(b []byte) error { return os.WriteFile(path, b, 0o600) }
	switch way % 8 {
	case 0:
		return put(document[:len(document)/2])
	case 1:
		return put(make([]byte, len(document)))
	case 2:
		return put(nil)
	case 3:
		return put(bytes.Replace(document, []byte("majordomus-mcp-lease/v1"), []byte("majordomus-mcp-lease/v9"), 1))
	case 4:
		return put([]byte(`["nobody's"]`))
	case 5: // in one step, as an editor of files does it
		if err := os.WriteFile(path+"~", bytes.ToUpper(document), 0o600); err != nil {
			return err
		}
		return os.Rename(path+"~", path)
	case 6:
		if err := os.Remove(path); err != nil {
			return err
		}
		return os.Symlink("nowhere", path)
	}
	if err := os.Remove(path); err != nil {
		return err
	}
	return errors.Join(os.Mkdir(path, 0o700), os.Mkdir(filepath.Join(path, "full"), 0o700))
}

// shift has the lease be of another time, as it is after a step of the clock:
// the file's, or what the document says.
func (c *chaos) shift(way int) error {
	by := []time.Duration{-1000 * time.Hour, -time.Minute, time.Minute, 1000 * time.Hour}[way%4]
	path := c.leasePath()
	if way/4%2 == 0 {
		at := time.Now().Add(by)
		return os.Chtimes(path, at, at)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var document map[string]any
	if err := json.Unmarshal(b, &document); err != nil {
		return err
	}
	document["started_at"] = time.Now().Add(by).UTC().Format(time.RFC3339Nano)
	if b, err = json.Marshal(document); err != nil {
		return err
	}
	return os.WriteFile(path, b, 0o600)
}
