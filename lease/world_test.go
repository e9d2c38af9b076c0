package lease

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing/synctest"
	"time"

	"majordomus/lease/checkout"
)

// A world is one machine on which processes elect a server: a disk with locks,
// and the network between them. Whatever a process does to either is a step that
// waits until the world's scheduler lets it be taken; between its steps a process
// is ordinary code, the package's own. The world runs in a bubble, and time
// passes only when everybody who may go on is asleep.
//
// One step is one name looked up, opened, made, renamed or removed, or one lock
// tried or let go. What is in a file never changes once it has its name, so
// reading an open one is no step.
type world struct {
	checkout *checkout.Checkout
	timings  Timings
	began    time.Time

	met     sync.Mutex
	folder  *inode // at the state folder's path; nil while it is not there
	players []*player
	fixed   bool          // nobody removes the folder or server.lock, so looking at them is no step
	actor   *player       // whose step is being taken
	stood   time.Duration // for how long stopped processes had to stand
	made    int           // by nobody's process
	wrong   string
	written map[string]*player // leases by their token
}

// An inode is a file or a folder. It is named for who made it and how many that
// one had made before, so that two orders of independent steps come to the same
// world.
type inode struct {
	id    string
	names map[string]*inode // of a folder
	data  []byte
	at    time.Time

	exclusive *worldLock
	shared    map[*worldLock]bool
}

func (w *world) newInode(folder bool) *inode {
	n := &inode{at: time.Now(), shared: map[*worldLock]bool{}}
	if p := w.actor; p != nil {
		p.made++
		n.id = fmt.Sprintf("%s.%d", p.name, p.made)
	} else {
		w.made++
		n.id = fmt.Sprintf("w.%d", w.made)
	}
	if folder {
		n.names = map[string]*inode{}
	}
	return n
}

// A player is one process.
type player struct {
	w     *world
	name  string
	life  func(*player)
	grant chan struct{}

	// Written by the process while it may go on, or by the scheduler while it
	// may not.
	wants   string // the step it waits to take; "" while it is asleep or done
	done    bool
	dead    bool
	stopped bool
	inline  bool   // its steps are taken by somebody else's
	history uint64 // of all that it saw: together with its program, all that it knows
	made    int
	tokens  int
	outcome string

	tenure  *Tenure
	url     string // it answers here
	ending  bool   // it says that it does not hold the lease
	version string
	lock    *worldLock // it has server.lock
	judged  *inode     // the lease that it read last without the lock; nil for none
	took    int
	handles []*worldLock
	wasLost bool
	since   time.Duration // when it was stopped
}

// crash is what ends a process in the middle.
type crash struct{}

// step waits for its turn. What the process sees then goes into its history.
func (p *player) step(format string, args ...any) {
	p.w.meet()
	if p.dead {
		panic(crash{})
	}
	what := fmt.Sprintf(format, args...)
	if !p.inline {
		p.wants = what
		<-p.grant
		p.wants = ""
		if p.dead {
			panic(crash{})
		}
	}
	p.w.actor = p
	p.note(what, p.w.now())
}

// note adds to what the process knows.
func (p *player) note(args ...any) {
	h := fnv.New64a()
	fmt.Fprint(h, p.history)
	for _, a := range args {
		fmt.Fprintf(h, "|%v", a)
	}
	p.history = h.Sum64()
}

// meet is for the race detector, which does not know that one who sleeps wakes
// after what the scheduler did before.
func (w *world) meet() {
	w.met.Lock()
	defer w.met.Unlock()
}

func (w *world) now() time.Duration { return time.Since(w.began) }

func (w *world) fault(format string, args ...any) {
	if w.wrong == "" {
		w.wrong = fmt.Sprintf(format, args...)
	}
}

// start begins the process in a goroutine of the bubble.
func (p *player) start() {
	p.grant = make(chan struct{})
	go func() {
		defer func() {
			if r := recover(); r != nil {
				if _, ok := r.(crash); !ok {
					p.w.fault("%s panicked: %v", p.name, r)
				}
			}
			p.w.meet()
			p.done, p.history = true, 0
		}()
		p.life(p)
	}()
}

// kill ends the process as kill -9 does: the kernel closes what it has open.
func (p *player) kill() {
	p.dead, p.stopped = true, false
	for _, l := range p.handles {
		l.drop()
	}
	p.handles, p.url, p.lock = nil, "", nil
	if p.wants != "" {
		p.grant <- struct{}{}
	}
	synctest.Wait()
}

// errno is what the system says.
func errno(op, name string, e syscall.Errno) error { return &fs.PathError{Op: op, Path: name, Err: e} }

// worldInfo is what is to be known of an inode at one moment.
type worldInfo struct {
	n    *inode
	name string
	size int64
	at   time.Time
}

func (i worldInfo) Name() string       { return i.name }
func (i worldInfo) Size() int64        { return i.size }
func (i worldInfo) ModTime() time.Time { return i.at }
func (i worldInfo) IsDir() bool        { return i.n.names != nil }
func (i worldInfo) Sys() any           { return nil }
func (i worldInfo) Mode() fs.FileMode {
	if i.IsDir() {
		return fs.ModeDir | 0o700
	}
	return 0o600
}

func (i worldInfo) same(o fs.FileInfo) bool {
	other, ok := o.(worldInfo)
	return ok && other.n == i.n
}

func (n *inode) info(name string) fs.FileInfo { return worldInfo{n, name, int64(len(n.data)), n.at} }

// playerDisk is the disk as one process sees it.
type playerDisk struct{ p *player }

func (d playerDisk) stat(path string) (fs.FileInfo, error) {
	d.p.w.meet()
	if d.p.w.fixed {
		return d.p.w.folder.info("mcp"), nil
	}
	d.p.step("stat the folder")
	if d.p.w.folder == nil {
		d.p.note("gone")
		return nil, errno("stat", path, syscall.ENOENT)
	}
	d.p.note(d.p.w.folder.id)
	return d.p.w.folder.info("mcp"), nil
}

func (d playerDisk) open(*checkout.Checkout) (files, error) {
	if d.p.w.fixed {
		return playerFiles{d.p, d.p.w.folder}, nil
	}
	d.p.step("open the folder")
	if d.p.w.folder == nil {
		d.p.note("gone")
		return nil, errno("open", "mcp", syscall.ENOENT)
	}
	d.p.note(d.p.w.folder.id)
	return playerFiles{d.p, d.p.w.folder}, nil
}

func (d playerDisk) create(*checkout.Checkout) (files, error) {
	if d.p.w.fixed {
		return playerFiles{d.p, d.p.w.folder}, nil
	}
	d.p.step("make the folder")
	if d.p.w.folder == nil {
		d.p.w.folder = d.p.w.newInode(true)
	}
	d.p.note(d.p.w.folder.id)
	return playerFiles{d.p, d.p.w.folder}, nil
}

func (d playerDisk) lock(path string, flag int) locker {
	name := filepath.Base(path)
	if path == d.p.w.checkout.StateDir() {
		name = "."
	}
	return &worldLock{p: d.p, name: name}
}

// playerFiles is an open folder.
type playerFiles struct {
	p   *player
	dir *inode
}

func (f playerFiles) look(name string) *inode {
	if name == "." {
		return f.dir
	}
	return f.dir.names[name]
}

func (f playerFiles) Lstat(name string) (fs.FileInfo, error) {
	f.p.w.meet()
	if f.p.w.fixed && (name == lockName || name == ".") {
		return f.look(name).info(name), nil
	}
	f.p.step("lstat %s", name)
	n := f.look(name)
	if n == nil {
		f.p.note("none")
		if name == documentName && f.p.lock == nil {
			f.p.judged = nil
		}
		return nil, errno("lstat", name, syscall.ENOENT)
	}
	f.p.note(n.id)
	return n.info(name), nil
}

// Stat is asked for the open folder alone, which is no name that anybody changes.
func (f playerFiles) Stat(name string) (fs.FileInfo, error) { return f.dir.info(name), nil }

// Nobody else has an account in this world.
func (f playerFiles) foreign(fs.FileInfo) bool { return false }
func (f playerFiles) exposed(fs.FileInfo) bool { return false }

func (f playerFiles) OpenFile(name string, flag int, _ fs.FileMode) (file, error) {
	f.p.step("open %s %x", name, flag)
	w, n := f.p.w, f.look(name)
	if name == documentName && f.p.lock == nil {
		f.p.judged = n
	}
	switch {
	case n == nil && flag&os.O_CREATE == 0:
		f.p.note("none")
		return nil, errno("open", name, syscall.ENOENT)
	case n != nil && flag&os.O_EXCL != 0:
		f.p.note("there")
		return nil, errno("open", name, syscall.EEXIST)
	case n == nil && w.folder != f.dir:
		f.p.note("deleted")
		return nil, errno("open", name, syscall.ENOENT) // nothing is made in a folder that was removed
	case n == nil:
		n = w.newInode(false)
		f.dir.names[name] = n
	}
	f.p.note(n.id, string(n.data))
	return &worldFile{n: n}, nil
}

func (f playerFiles) Rename(from, to string) error {
	f.p.step("rename %s to %s", from, to)
	n := f.dir.names[from]
	if n == nil {
		f.p.note("none")
		return errno("rename", from, syscall.ENOENT)
	}
	if to == documentName {
		f.p.w.replaced(f.p, f.dir, n)
	}
	delete(f.dir.names, from)
	f.dir.names[to] = n
	return nil
}

func (f playerFiles) Remove(name string) error {
	f.p.step("remove %s", name)
	n := f.dir.names[name]
	if n == nil {
		f.p.note("none")
		return errno("remove", name, syscall.ENOENT)
	}
	if name == documentName {
		f.p.w.removed(f.p, n)
	}
	delete(f.dir.names, name)
	return nil
}

func (f playerFiles) log(name string) (*os.File, error) {
	return nil, errno("open", name, syscall.ENOTSUP)
}

func (f playerFiles) Link(from, to string) error { return errno("link", from, syscall.ENOTSUP) }
func (f playerFiles) Close() error               { return nil }
func (f playerFiles) sync() error                { return nil }
func (f playerFiles) again() (files, error)      { return f, nil }

func (f playerFiles) names() ([]string, error) {
	f.p.step("list the folder")
	list := slices.Sorted(maps.Keys(f.dir.names))
	f.p.note(list)
	return list, nil
}

type worldFile struct {
	n  *inode
	at int
}

func (f *worldFile) Read(b []byte) (int, error) {
	if f.at == len(f.n.data) {
		return 0, io.EOF
	}
	n := copy(b, f.n.data[f.at:])
	f.at += n
	return n, nil
}

func (f *worldFile) Write(b []byte) (int, error) {
	f.n.data = append(f.n.data, b...)
	f.n.at = time.Now()
	return len(b), nil
}

func (f *worldFile) Stat() (fs.FileInfo, error) { return f.n.info("open"), nil }
func (f *worldFile) Sync() error                { return nil }
func (f *worldFile) Close() error               { return nil }

// worldLock is flock on an open file: tied to the file, not to its name.
type worldLock struct {
	p    *player
	name string
	n    *inode
}

func (l *worldLock) try(shared bool) (bool, error) {
	l.p.w.meet()
	if l.p.w.fixed && l.name == "." { // whoever has server.lock gets it
		l.n = l.p.w.folder
		return true, nil
	}
	l.p.step("lock %s %t", l.name, shared)
	if l.n == nil {
		dir := l.p.w.folder
		if dir == nil {
			l.p.note("no folder")
			return false, errno("open", l.name, syscall.ENOENT)
		}
		if l.n = (playerFiles{l.p, dir}).look(l.name); l.n == nil {
			l.p.note("none")
			return false, errno("open", l.name, syscall.ENOENT)
		}
		l.p.handles = append(l.p.handles, l)
	}
	n := l.n
	switch {
	case n.exclusive == l || n.shared[l]:
	case shared && n.exclusive == nil:
		n.shared[l] = true
	case !shared && n.exclusive == nil && len(n.shared) == 0:
		n.exclusive = l
	default:
		l.p.note("busy", n.id)
		return false, nil
	}
	l.p.note("locked", n.id)
	if l.name == lockName {
		l.p.lock = l
	}
	return true, nil
}

func (l *worldLock) TryLock() (bool, error)  { return l.try(false) }
func (l *worldLock) TryRLock() (bool, error) { return l.try(true) }

func (l *worldLock) Unlock() error {
	if l.n == nil {
		return nil
	}
	if l.p.w.fixed && l.name == "." {
		l.n = nil
		return nil
	}
	l.p.step("unlock %s", l.name)
	l.drop()
	l.p.handles = slices.DeleteFunc(l.p.handles, func(x *worldLock) bool { return x == l })
	return nil
}

// drop is what closing it does.
func (l *worldLock) drop() {
	if l.n == nil {
		return
	}
	if l.n.exclusive == l {
		l.n.exclusive = nil
	}
	delete(l.n.shared, l)
	if l.p.lock == l {
		l.p.lock = nil
	}
	l.n = nil
}

func (l *worldLock) Stat() (fs.FileInfo, error) {
	if l.n == nil {
		return nil, errors.New("not open")
	}
	return l.n.info(l.name), nil
}

// replaced is told of every lease that is put in place. What it takes the place
// of must be its own, or to the last byte what its writer judged.
func (w *world) replaced(p *player, dir, by *inode) {
	if dir != w.folder {
		return // in a folder that is gone, where nobody looks
	}
	d := parse(by.data).Document
	was := dir.names[documentName]
	switch {
	case was != nil && parse(was.data).Document.Token == d.Token:
	case was == nil && w.written[d.Token] != nil:
		// Somebody deleted its own after it was read. Harmless, and only a hand
		// does that.
	case was != p.judged:
		w.fault("%s replaced a lease that it had not judged", p.name)
	default:
		p.took++
	}
	w.written[d.Token] = p
}

// removed is told of every lease that is removed: it must be its owner's.
func (w *world) removed(p *player, n *inode) {
	if owner := w.written[parse(n.data).Document.Token]; owner != p {
		w.fault("%s removed a lease that is not its own", p.name)
	}
}

// busy reports whether the process is changing its lease.
func (p *player) busy() bool {
	if p.tenure == nil || !p.tenure.mu.TryLock() {
		return p.tenure != nil
	}
	p.tenure.mu.Unlock()
	return false
}

// holds reports whether the process would find, reading now, that it holds the
// lease.
func (p *player) holds() bool {
	t := p.tenure
	if t == nil || p.dead || t.endedLocked() || p.w.folder == nil { // nobody else runs; it may have the lock itself
		return false
	}
	at, ok := t.info.(worldInfo)
	if !ok || at.n != p.w.folder {
		return false
	}
	n := p.w.folder.names[documentName]
	return n != nil && parse(n.data).Document.Token == t.token
}

// check looks at what must hold at every moment.
func (w *world) check() {
	holders := 0
	for _, p := range w.players {
		if p.holds() {
			holders++
		}
		if p.tenure == nil {
			continue
		}
		lost := !p.tenure.lostAt.IsZero()
		if p.wasLost && (!lost || !p.tenure.endedLocked()) {
			w.fault("%s had lost the lease and has it again", p.name)
		}
		p.wasLost = lost
	}
	if holders > 1 {
		w.fault("%d processes find the lease theirs", holders)
	}
}

// ask is the network: a probe of whoever answers at the address.
func (p *player) ask(ctx context.Context, doc Document, within time.Duration) ProbeReply {
	p.step("ask %s", doc.address())
	var to *player
	for _, q := range p.w.players {
		if q.url != "" && q.url == doc.address() {
			to = q
		}
	}
	// It answers when its process goes on, and is not in the middle of a change.
	for until := time.Now().Add(within); to != nil && !to.dead && (to.stopped || to.busy()); {
		if ctx.Err() != nil || !time.Now().Before(until) {
			p.note("silence")
			return ProbeReply{Outcome: Silent, Err: errors.New("it does not answer")}
		}
		sleep(ctx, min(4*time.Millisecond, time.Until(until))) // ignore error: seen above
		p.step("hear from %s", to.name)
	}
	if to == nil || to.dead || to.url == "" {
		p.note("refused")
		return ProbeReply{Outcome: Refused, Err: errors.New("nobody listens")}
	}
	// It answers as its own process finds it at this moment.
	to.inline = true
	own := false
	if !to.ending && to.tenure != nil {
		own, _ = to.tenure.IsOwn() // ignore error: then it does not claim to
	}
	to.inline = false
	p.w.actor = p
	if !own || to.tenure.token != doc.Token {
		p.note("not the holder")
		return ProbeReply{Outcome: NotHolder, Err: errors.New("it says that it does not hold the lease")}
	}
	p.note("ours", to.version)
	return ProbeReply{Outcome: Ours, Index: Index{Name: "majordomus", Version: to.version}}
}

// key names the world as it is: two with the same key go on in the same ways.
func (w *world) key(budget string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %v\n", budget, w.now())
	seen := map[*inode]bool{}
	var put func(n *inode)
	put = func(n *inode) {
		if n == nil || seen[n] {
			return
		}
		seen[n] = true
		fmt.Fprintf(&b, "%s %q %v", n.id, n.data, n.at.Sub(w.began))
		if l := n.exclusive; l != nil {
			fmt.Fprintf(&b, " by %s", l.p.name)
		}
		var by []string
		for l := range n.shared {
			by = append(by, l.p.name)
		}
		slices.Sort(by)
		fmt.Fprintln(&b, by)
		for _, name := range slices.Sorted(maps.Keys(n.names)) {
			fmt.Fprintf(&b, "%s -> %s\n", name, n.names[name].id)
			put(n.names[name])
		}
	}
	put(w.folder)
	for _, p := range w.players {
		fmt.Fprintf(&b, "%s %x %q %t %t %t %q %q", p.name, p.history, p.wants, p.done, p.dead, p.stopped, p.url, p.outcome)
		for _, l := range p.handles {
			if l.n != nil {
				fmt.Fprintf(&b, " %s=%s", l.name, l.n.id)
				put(l.n)
			}
		}
		b.WriteByte('\n')
	}
	h := fnv.New128a()
	io.WriteString(h, b.String())
	return string(h.Sum(nil))
}
