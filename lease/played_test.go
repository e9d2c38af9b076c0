package lease

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"majordomus/lease/checkout"
)

// A player is one process, alone in a bubble: ordinary code, the package's own,
// that waits for an answer whenever it does something that others can see or
// bring about. What it asks for, and what it is answered, are plain values; what
// the answers are is up to the world (world_test.go), which the player never
// sees.
//
// It calls itself 0, and the others 1, 2 and so on, in the order in which it
// came to know of them. So two processes of the same life that have seen the
// same are the same, whoever they are.
type player struct {
	part  *part
	grant chan reply
	want  request
	wants bool
	done  bool
	dead  bool
	born  time.Time
	wrong string
	shown *reply // it is being asked, and sees this

	tokens int
	writes int

	// What the world may know of it. See knowledge.
	known   knowledge
	tenure  *Tenure
	lock    bool // it has server.lock
	digest  string
	forgets bool
}

// A part is what a process does, and what it is to begin with.
type part struct {
	name    string // two of one name are the same
	life    func(*player)
	exe     int  // the path that it is started from, 1 or 2; 0: nobody asks
	fixed   bool // the folder and server.lock stay, so looking at them is no step
	network uint8
	maker   bool          // it is of another maker
	binds   bool          // it takes long to bind
	skew    time.Duration // of the clock of whoever keeps the files
}

// knowledge is what can be told of a process between its steps: all of it
// follows from its part and from what it was answered.
type knowledge struct {
	outcome string // how it ended; "serves" goes on for ever
	joined  uint8  // whom, by its own count
	maker   bool   // it is of another maker, and has no tenure and no .alive file
	took    uint16 // how long its election took in ms, plus one; in the one step in which it ended
	claims  bool   // it has just read that the lease is its own
	takes   uint8  // leases put in place of none, or of others'
	tok     uint8  // the token that it has now, by its own count
	wrote   bool   // and has put in the lease's place
	judged  ident  // the lease that it read last without server.lock
	asked   bool   // somebody, in this election
	heard   bool   // and the last time the holder answered
	unheard uint8  // or how many times in a row it did not
	ver     uint8
	exe     uint8

	listens bool // it is bound
	answers bool // and serves
	ending  bool // it says that it does not hold the lease
	held    bool // it has a tenure that did not end
	lost    bool // it has noticed, once, that the lease is not its own
	gone    bool // it let go of its lease
	busy    bool // it would not answer now: it is in the middle of a change
	locks   bool // it has server.lock
	folder  uint8
}

// crash is what ends a process in the middle.
type crash struct{}

// What a process can ask for.
type op uint8

const (
	opNone op = iota
	opStat
	opOpenFolder
	opMakeFolder
	opLstat
	opOpen
	opCreate
	opWrite
	opRename
	opRemove
	opList
	opOpenLock
	opLock
	opShare
	opUnlock
	opAsk
	opHear
	opSleep
	opMark
	opStart
	opStatExe
	opLoss
)

var opNames = [...]string{"nothing", "stat the folder", "open the folder", "make the folder", "lstat", "open", "create", "write", "rename", "remove", "list", "open to lock", "lock", "share", "unlock", "ask", "hear from", "sleep", "mark", "start", "stat its executable", "notice its loss"}

// ident is one file or folder of all that ever are.
type ident struct{ kind, by, tok, seq uint8 }

const (
	aFolder = 1 + iota
	aLock
	anAlive
	aDocument
)

// name is one in a folder.
type name struct{ kind, by, tok uint8 }

const (
	theDocument = 1 + iota
	theLock
	theFolder
	thisAlive
	thisTemp
	another // that nobody ever has
)

func (n name) String() string {
	switch n.kind {
	case theDocument:
		return documentName
	case theLock:
		return lockName
	case theFolder:
		return "the folder"
	case thisAlive:
		return fmt.Sprintf("%d.%d.alive", n.by, n.tok)
	case thisTemp:
		return fmt.Sprintf("%d.%d.tmp", n.by, n.tok)
	}
	return "?"
}

// content is what a lease says.
type content struct {
	url      bool // the one address of its writer, or none
	ver, exe uint8
}

type request struct {
	op   op
	name name
	dir  uint8
	id   ident // of a lock that is open
	says content
	to   uint8
	wait uint16 // for how many ms first
}

func (r request) String() string {
	s := opNames[r.op]
	switch r.op {
	case opAsk, opHear:
		s += fmt.Sprintf(" %d", r.to)
	case opSleep:
		s += fmt.Sprintf(" for %d", r.wait)
	case opWrite:
		s += fmt.Sprintf(" %+v", r.says)
	}
	if r.name != (name{}) {
		s += " " + r.name.String()
	}
	return s
}

// What it can be answered.
const (
	yes = 1 + iota
	none
	isThere
	isBusy
	deleted
	cannot // it has no descriptor left
	ours
	notHolder
	refusedThere
	silent
	pending
	shown
)

type reply struct {
	passed uint16 // ms since it was answered last
	code   uint8
	dir    uint8 // when shown: the folder at the path
	id     ident
	says   content
	age    uint16 // ms; of a lease without an address
	list   string // of names, three bytes each
	old    bool   // who answers says that its code was replaced
}

var versions = [...]string{"", "v1.0.0", "v2.0.0", "(devel)"}

func version(s string) uint8 {
	for i, v := range versions {
		if v == s {
			return uint8(i)
		}
	}
	panic("no version " + s)
}

// An executable is one of two paths, and an image that lay there once.
func executable(path, image int) uint8 { return uint8(path<<4 | image) }

func identity(exe uint8) ExecutableIdentity {
	if exe == 0 {
		return ExecutableIdentity{}
	}
	return ExecutableIdentity{Path: fmt.Sprintf("/bin/%d", exe>>4), MTime: int64(exe&15) + 1, Size: 1}
}

// do asks for a step, and waits for the answer.
func (p *player) do(r request) reply {
	if p.dead {
		panic(crash{})
	}
	if p.shown != nil {
		return p.show(r)
	}
	p.want, p.wants = r, true
	a := <-p.grant
	p.wants = false
	if p.dead {
		panic(crash{})
	}
	return a
}

// show is do for one who answers a question: it sees what is there at that
// moment, and takes no steps.
func (p *player) show(r request) reply {
	a := *p.shown
	switch r.op {
	case opStat:
		a.code, a.id = yes, ident{kind: aFolder, seq: a.dir}
		if a.dir == 0 {
			a.code = none
		}
	case opLstat, opOpen:
		if r.name.kind != theDocument || r.dir != a.dir {
			a.code = none
		} else if a.code = yes; a.id == (ident{}) {
			a.code = none
		}
	default:
		panic(fmt.Sprintf("to answer a question takes a step: %v", r))
	}
	return a
}

func (p *player) mark() { p.do(request{op: opMark}) }

func (p *player) sleep(ctx context.Context, d time.Duration) error {
	p.do(request{op: opSleep, wait: wait(ctx, d)})
	return ctx.Err()
}

func wait(ctx context.Context, d time.Duration) uint16 {
	if deadline, ok := ctx.Deadline(); ok {
		d = min(d, time.Until(deadline))
	}
	return uint16((max(0, d) + time.Millisecond - 1) / time.Millisecond)
}

// ask is the network.
func (p *player) ask(ctx context.Context, doc Document, within time.Duration) ProbeReply {
	to := letterOf(strings.TrimPrefix(doc.address(), "http://127.0.0.1:")[0])
	_, tok := tokenParts(doc.Token)
	p.known.asked, p.known.heard = true, false
	a := p.do(request{op: opAsk, to: to, id: ident{aDocument, to, tok, 0}})
	until := time.Now().Add(within)
	for a.code == pending {
		if ctx.Err() != nil || !time.Now().Before(until) {
			a.code = silent
			break
		}
		a = p.do(request{op: opHear, to: to, id: ident{aDocument, to, tok, 0}, wait: wait(ctx, min(4*time.Millisecond, time.Until(until)))})
	}
	switch a.code {
	case silent:
		p.known.unheard++
		if left := time.Until(until); left > 0 {
			p.sleep(ctx, left) // ignore error: silence is what it is
		}
		return ProbeReply{Outcome: Silent, Err: errors.New("it does not answer")}
	case refusedThere:
		return ProbeReply{Outcome: Refused, Err: errors.New("nobody listens")}
	case notHolder:
		p.known.unheard = 0
		return ProbeReply{Outcome: NotHolder, Err: errors.New("it says that it does not hold the lease")}
	}
	p.known.heard, p.known.unheard = true, 0
	index := Index{Name: serverName, Version: versions[a.says.ver]}
	if a.old {
		why := "its file was replaced"
		index.Stale = &why
	}
	return ProbeReply{Outcome: Ours, Index: index}
}

// Names of processes, tokens and addresses, as their owner calls them.
func letter(view uint8) byte      { return 'a' + view }
func letterOf(b byte) uint8       { return b - 'a' }
func address(view uint8) string   { return fmt.Sprintf("http://127.0.0.1:%c", letter(view)) }
func token(view, n uint8) string  { return fmt.Sprintf("%032x", int(letter(view))<<8+int(n)) }
func (p *player) address() string { return address(0) }

// A stranger is somebody whom the process does not come to know.
const stranger = 25

func tokenParts(s string) (view, n uint8) {
	i, err := strconv.ParseUint(s, 16, 32)
	if err != nil {
		panic(err)
	}
	return letterOf(byte(i >> 8)), uint8(i)
}

func nameFor(s string) name {
	switch s {
	case documentName:
		return name{kind: theDocument}
	case lockName:
		return name{kind: theLock}
	case ".":
		return name{kind: theFolder}
	}
	if t, ok := tokenOf(s, ".alive"); ok {
		by, n := tokenParts(t)
		return name{thisAlive, by, n}
	}
	if t, ok := tokenOf(s, ".tmp"); ok {
		by, n := tokenParts(t)
		return name{thisTemp, by, n}
	}
	return name{kind: another}
}

func (n name) name() string {
	switch n.kind {
	case theDocument:
		return documentName
	case theLock:
		return lockName
	case thisAlive:
		return aliveName(token(n.by, n.tok))
	case thisTemp:
		return tempName(token(n.by, n.tok))
	}
	panic(n)
}

func (p *player) bytes(id ident, c content) []byte {
	if id.kind != aDocument {
		return nil
	}
	d := Document{
		Schema: Schema, PID: os.Getpid(), Token: token(id.by, id.tok), Root: theCheckout.Root,
		Executable: identity(c.exe), Version: versions[c.ver], Auth: "key",
	}
	if c.url {
		d.URL = ptr(address(id.by))
	}
	b, err := d.encode()
	if err != nil {
		panic(err)
	}
	return b
}

// theCheckout is only a name in the leases.
var theCheckout = &checkout.Checkout{Root: "/checkout", LocalDir: "/checkout/.ai/local"}

// errno is what the system says.
func errno(op, name string, e syscall.Errno) error { return &fs.PathError{Op: op, Path: name, Err: e} }

// playedInfo is what is to be known of a file at one moment.
type playedInfo struct {
	id   ident
	name string
	size int64
	at   time.Time
}

func (i playedInfo) Name() string       { return i.name }
func (i playedInfo) Size() int64        { return i.size }
func (i playedInfo) ModTime() time.Time { return i.at }
func (i playedInfo) IsDir() bool        { return i.id.kind == aFolder }
func (i playedInfo) Sys() any           { return nil }
func (i playedInfo) Mode() fs.FileMode {
	if i.IsDir() {
		return fs.ModeDir | 0o700
	}
	return 0o600
}

func (i playedInfo) same(o fs.FileInfo) bool {
	other, ok := o.(playedInfo)
	return ok && other.id == i.id
}

func (p *player) info(a reply, name string) playedInfo {
	// How old it is makes a difference while it names no address. A file that was
	// replaced is another one, so this does for telling them apart.
	at := p.born
	if a.id.kind == aDocument && !a.says.url {
		at = time.Now().Add(p.part.skew - time.Duration(a.age)*time.Millisecond)
	}
	return playedInfo{a.id, name, int64(len(p.bytes(a.id, a.says))), at}
}

func folderInfo(n uint8) playedInfo { return playedInfo{id: ident{kind: aFolder, seq: n}, name: "mcp"} }

// playedDisk is the disk as the process sees it.
type playedDisk struct{ p *player }

func (d playedDisk) stat(path string) (fs.FileInfo, error) {
	if strings.HasPrefix(path, "/bin/") {
		a := d.p.do(request{op: opStatExe})
		id := identity(executable(d.p.part.exe, int(a.id.seq)))
		return playedInfo{id: ident{kind: aLock}, name: path, size: id.Size, at: time.Unix(id.MTime, 0)}, nil
	}
	if d.p.part.fixed {
		return folderInfo(1), nil
	}
	a := d.p.do(request{op: opStat})
	if a.code == none {
		return nil, errno("stat", path, syscall.ENOENT)
	}
	return folderInfo(a.id.seq), nil
}

func (d playedDisk) open(*checkout.Checkout) (files, error)   { return d.folder(opOpenFolder) }
func (d playedDisk) create(*checkout.Checkout) (files, error) { return d.folder(opMakeFolder) }

func (d playedDisk) folder(how op) (files, error) {
	if d.p.part.fixed {
		return playedFiles{d.p, 1}, nil
	}
	a := d.p.do(request{op: how})
	if a.code == none {
		return nil, errno("open", "mcp", syscall.ENOENT)
	}
	return playedFiles{d.p, a.id.seq}, nil
}

func (d playedDisk) lock(path string, flag int) locker {
	n := nameFor(filepath.Base(path))
	if path == theCheckout.StateDir() {
		n = name{kind: theFolder}
	}
	return &playedLock{p: d.p, name: n}
}

// playedFiles is an open folder.
type playedFiles struct {
	p   *player
	dir uint8
}

func (f playedFiles) Lstat(s string) (fs.FileInfo, error) {
	n := nameFor(s)
	if n.kind == theFolder {
		return folderInfo(f.dir), nil
	}
	if f.p.part.fixed && n.kind == theLock {
		return playedInfo{id: ident{kind: aLock, seq: 1}, name: s}, nil
	}
	a := f.p.do(request{op: opLstat, name: n, dir: f.dir})
	switch a.code {
	case none:
		if n.kind == theDocument {
			f.judges(ident{})
		}
		return nil, errno("lstat", s, syscall.ENOENT)
	case cannot:
		return nil, errno("lstat", s, syscall.EMFILE)
	}
	return f.p.info(a, s), nil
}

func (f playedFiles) judges(id ident) {
	if !f.p.lock && f.p.shown == nil {
		f.p.known.judged = id
	}
}

// Stat is asked for the open folder alone, which is no name that anybody changes.
func (f playedFiles) Stat(string) (fs.FileInfo, error) { return folderInfo(f.dir), nil }

// Nobody else has an account in this world.
func (f playedFiles) foreign(fs.FileInfo) bool { return false }
func (f playedFiles) exposed(fs.FileInfo) bool { return false }

func (f playedFiles) OpenFile(s string, flag int, _ fs.FileMode) (file, error) {
	r := request{op: opOpen, name: nameFor(s), dir: f.dir}
	if flag&os.O_CREATE != 0 {
		r.op = opCreate
		if r.name.kind == thisTemp {
			f.p.writes++
			r.id.seq = uint8(f.p.writes)
		}
	}
	a := f.p.do(r)
	if r.name.kind == theDocument && a.code != cannot {
		f.judges(a.id)
	}
	switch a.code {
	case none, deleted: // nothing is made in a folder that was removed
		return nil, errno("open", s, syscall.ENOENT)
	case isThere:
		return nil, errno("open", s, syscall.EEXIST)
	case cannot:
		return nil, errno("open", s, syscall.EMFILE)
	}
	return &playedFile{p: f.p, name: r.name, info: f.p.info(a, s), r: bytes.NewReader(f.p.bytes(a.id, a.says)), made: r.op == opCreate}, nil
}

func (f playedFiles) Rename(from, to string) error {
	n := nameFor(to)
	if n.kind != theDocument || nameFor(from).by != 0 {
		panic("a rename of " + from + " to " + to)
	}
	a := f.p.do(request{op: opRename, name: nameFor(from), dir: f.dir})
	if a.code == none {
		return errno("rename", from, syscall.ENOENT)
	}
	if a.says.url { // in place of another's, or of nobody's
		f.p.known.takes++
	}
	f.p.known.wrote = true
	return nil
}

func (f playedFiles) Remove(s string) error {
	if a := f.p.do(request{op: opRemove, name: nameFor(s), dir: f.dir}); a.code == none {
		return errno("remove", s, syscall.ENOENT)
	}
	return nil
}

func (f playedFiles) Link(from, to string) error { return errno("link", from, syscall.ENOTSUP) }
func (f playedFiles) Close() error               { return nil }
func (f playedFiles) sync() error                { return nil }

func (f playedFiles) log(string) (*os.File, error) { panic("nobody is launched") }
func (f playedFiles) again() (files, error)        { return f, nil }

func (f playedFiles) names() ([]string, error) {
	a := f.p.do(request{op: opList, dir: f.dir})
	var list []string
	for i := 0; i < len(a.list); i += 3 {
		list = append(list, name{a.list[i], a.list[i+1], a.list[i+2]}.name())
	}
	return list, nil
}

type playedFile struct {
	p    *player
	name name
	info playedInfo
	r    *bytes.Reader
	made bool
}

func (f *playedFile) Read(b []byte) (int, error) {
	if f.made {
		return 0, io.EOF
	}
	return f.r.Read(b)
}

func (f *playedFile) Write(b []byte) (int, error) {
	d := parse(b)
	by, n := uint8(stranger), uint8(0)
	if d.State == Present {
		by, n = tokenParts(d.Document.Token)
	}
	url := d.Document.address()
	if by != 0 || f.name != (name{thisTemp, 0, n}) || url != "" && url != f.p.address() {
		panic(fmt.Sprintf("what is written is no lease of one's own: %s", b))
	}
	c := content{url: url != "", ver: version(d.Document.Version)}
	if e := d.Document.Executable; e.Path != "" {
		c.exe = executable(int(e.Path[len(e.Path)-1]-'0'), int(e.MTime-1))
	}
	f.p.do(request{op: opWrite, name: f.name, id: f.info.id, says: c})
	return len(b), nil
}

func (f *playedFile) Stat() (fs.FileInfo, error) { return f.info, nil }
func (f *playedFile) Sync() error                { return nil }
func (f *playedFile) Close() error               { return nil }

// playedLock is flock on an open file: tied to the file, not to its name.
type playedLock struct {
	p    *player
	name name
	id   ident // zero while it is not open
}

func (l *playedLock) try(how op) (bool, error) {
	if l.p.part.fixed && l.name.kind == theFolder { // whoever has server.lock gets it
		l.id = ident{kind: aFolder, seq: 1}
		return true, nil
	}
	if l.p.part.fixed && l.name.kind == theLock {
		l.id = ident{kind: aLock, seq: 1}
	}
	if l.id == (ident{}) {
		a := l.p.do(request{op: opOpenLock, name: l.name})
		if a.code == none {
			return false, errno("open", l.name.String(), syscall.ENOENT)
		}
		l.id = a.id
	}
	if a := l.p.do(request{op: how, name: l.name, id: l.id}); a.code == isBusy {
		return false, nil
	}
	if l.name.kind == theLock {
		l.p.lock = true
	}
	return true, nil
}

func (l *playedLock) TryLock() (bool, error)  { return l.try(opLock) }
func (l *playedLock) TryRLock() (bool, error) { return l.try(opShare) }

func (l *playedLock) Unlock() error {
	if l.id == (ident{}) {
		return nil
	}
	if !l.p.part.fixed || l.name.kind != theFolder {
		l.p.do(request{op: opUnlock, name: l.name, id: l.id})
	}
	if l.name.kind == theLock {
		l.p.lock = false
	}
	l.id = ident{}
	return nil
}

func (l *playedLock) Stat() (fs.FileInfo, error) {
	if l.id == (ident{}) {
		return nil, errors.New("not open")
	}
	return playedInfo{id: l.id, name: l.name.String()}, nil
}

// config is what the process looks for its server with.
func (p *player) config() Config {
	return Config{
		Checkout: theCheckout, Timings: worldly, Version: versions[p.known.ver], Self: identity(p.known.exe),
		disk: playedDisk{p}, ask: p.ask, sleep: p.sleep,
		token: func() string {
			p.tokens++
			p.known.tok, p.known.wrote = uint8(p.tokens), false
			return token(0, uint8(p.tokens))
		},
	}
}

// knows is knowledge of now.
func (p *player) knows() knowledge {
	k := p.known
	k.locks = p.lock
	if k.maker {
		k.held, k.folder = true, 1
	}
	if t := p.tenure; t != nil {
		k.gone = k.gone || t.released
		if k.busy = !t.mu.TryLock(); !k.busy {
			t.mu.Unlock()
		}
		// Nobody else runs; it may have the lock itself.
		k.held, k.lost = !t.endedLocked(), context.Cause(t.ctx) == ErrLost
		if at, ok := t.info.(playedInfo); ok {
			k.folder = at.id.seq
		}
	}
	return k
}

// forget says that the process knows nothing from here on but this, and its
// tenure: how it came to it makes no difference any more.
func (p *player) forget(but ...any) {
	p.known.judged, p.known.asked, p.known.heard, p.known.unheard = ident{}, false, false, 0
	p.digest, p.forgets = fmt.Sprint(append(but, p.tokens, p.writes)...), true
	if t := p.tenure; t != nil {
		p.digest += fmt.Sprint(t.token, t.doc.address(), t.published, t.released, t.lostAt.IsZero())
	}
}

// A node is a process between two steps.
type node struct {
	id   int32
	from *node // and what it was answered there: one way to come to it
	by   reply

	want    request
	done    bool
	wrong   string
	forgets bool  // it has just come to know nobody
	kept    uint8 // but this one, whom it now calls 1
	key     string
	knowledge
}

// A memory is all that a part is known to do: by node and answer, the node that
// it comes to. It is found out by playing it, once each. A process depends on
// nothing but what it is answered and when, so what it did once it does again.
type memory struct {
	t     *testing.T
	part  *part
	nodes []*node
	next  map[edge]next
	keys  map[string]*node
	plays int // of processes, from their beginning
	moves int

	live  map[*node]*stage // processes that wait at a node for what is not known yet
	fresh []*stage         // the same, the oldest first
}

type edge struct {
	at int32
	by reply
}

type next struct {
	node *node
	own  bool // to a question: it holds the lease
}

func newMemory(t *testing.T, p *part) *memory {
	m := &memory{t: t, part: p, next: map[edge]next{}, keys: map[string]*node{}, live: map[*node]*stage{}}
	s := m.raise()
	n, _ := s.play(nil)
	m.add(n)
	m.keep(s, n)
	t.Cleanup(m.close)
	return m
}

func (m *memory) add(n *node) {
	n.id = int32(len(m.nodes))
	m.nodes = append(m.nodes, n)
}

// after is where a process comes to when it is answered, or asked.
func (m *memory) after(at *node, a reply) (*node, bool) {
	e := edge{at.id, a}
	if to, ok := m.next[e]; ok {
		return to.node, to.own
	}
	s := m.live[at]
	if s == nil {
		s = m.raise()
		s.play(at.way())
	}
	m.moves++
	n, own := s.play([]reply{a})
	switch {
	case a.code == shown && n.knowledge == at.knowledge && n.want == at.want:
		n = at // it saw that the lease is its own, and remembers nothing of that
	case n.forgets && m.keys[n.key] != nil:
		n = m.keys[n.key]
	default:
		n.from, n.by = at, a
		m.add(n)
		if n.forgets {
			m.keys[n.key] = n
		}
	}
	m.next[e] = next{n, own}
	m.keep(s, n)
	return n, own
}

// keep has a process wait at a node. There are never many of them.
func (m *memory) keep(s *stage, n *node) {
	if m.live[s.at] == s {
		delete(m.live, s.at)
	}
	s.at = n
	if m.live[n] != nil {
		if !s.kept {
			s.close()
		}
		return
	}
	m.live[n] = s
	if s.kept {
		return
	}
	s.kept = true
	if m.fresh = append(m.fresh, s); len(m.fresh) > 200 {
		old := m.fresh[0]
		m.fresh = m.fresh[1:]
		if m.live[old.at] == old {
			delete(m.live, old.at)
		}
		old.close()
	}
}

func (m *memory) close() {
	for _, s := range m.fresh {
		s.close()
	}
	m.fresh, m.live = nil, map[*node]*stage{}
}

// way is one way to come to a node.
func (n *node) way() []reply {
	if n.from == nil {
		return nil
	}
	return append(n.from.way(), n.by)
}

// A stage is where one process is played, alone, in a bubble, in which as much
// time passes as the answers say.
type stage struct {
	way  chan []reply
	came chan next
	at   *node
	kept bool
}

func (s *stage) play(way []reply) (*node, bool) {
	s.way <- way
	n := <-s.came
	return n.node, n.own
}

func (s *stage) close() {
	close(s.way)
	<-s.came
}

// raise begins to play the part. Its goroutine ends when the stage is closed.
func (m *memory) raise() *stage {
	m.plays++
	s := &stage{way: make(chan []reply), came: make(chan next)}
	go func() {
		defer close(s.came)
		synctest.Test(m.t, func(*testing.T) {
			p := &player{part: m.part, grant: make(chan reply), born: time.Now()}
			go p.live()
			synctest.Wait()
			for way := range s.way {
				own := p.follow(way)
				s.came <- next{p.node(), own}
			}
			p.dead = true
			if !p.done {
				p.grant <- reply{}
			}
			synctest.Wait()
		})
	}()
	return s
}

func (p *player) live() {
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(crash); !ok {
				p.wrong = fmt.Sprintf("it panicked: %v\n%s", r, debug.Stack())
			}
		}
		p.done = true
	}()
	p.part.life(p)
}

// follow gives the process its answers, one after the other.
func (p *player) follow(way []reply) (own bool) {
	for _, a := range way {
		p.forgets = false
		p.known.took, p.known.claims = 0, false
		if a.passed > 0 {
			time.Sleep(time.Duration(a.passed) * time.Millisecond)
			synctest.Wait() // deadlines pass first
		}
		if a.code == shown {
			own = p.asked(a)
			continue
		}
		p.grant <- a
		synctest.Wait()
	}
	return own
}

func (p *player) node() *node {
	n := &node{want: p.want, done: p.done, wrong: p.wrong, forgets: p.forgets, knowledge: p.knows()}
	if n.done || !p.wants {
		n.want = request{}
	}
	if !n.done && !p.wants && n.wrong == "" {
		n.wrong = "it waits for what is no step"
	}
	if n.forgets {
		if n.kept = n.joined; n.kept != 0 {
			n.joined = 1
		}
		n.key = fmt.Sprint(p.digest, n.want, n.knowledge, n.kept)
	}
	return n
}

// asked is a question that comes to a process.
func (p *player) asked(a reply) (own bool) {
	p.shown = &a
	defer func() { p.shown = nil }()
	if !p.known.ending && p.tenure != nil {
		own, _ = p.tenure.IsOwn() // ignore error: then it does not claim to
	}
	return own
}
