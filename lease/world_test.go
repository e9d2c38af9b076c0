package lease

import (
	"context"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"time"
	"unsafe"
)

// most is how many processes there can be at once: four, and the next one.
const (
	most  = 5
	after = most - 1
)

// state is a machine on which processes elect a server: its disk with locks, and
// how far each process is. It is a plain value without padding, so that two
// states are the same if their bytes are.
//
// One step is one name looked up, opened, made, renamed or removed, or one lock
// tried or let go, or one question answered. What is in a file never changes
// once it has its name, so reading an open one is no step.
type state struct {
	players [most]running
	n       uint8    // files
	path    uint8    // the folder at the state folder's path; 0 while there is none
	folders uint8    // that there ever were
	locks   uint8    // server.locks that there ever were
	taken   [4]uint8 // by whom each folder is locked, plus one

	kills, stops, rms, slows, refusals, blinds, builds uint8 // that may still come

	switches uint8 // to another process, though the one that went last could go on, that may still come
	last     uint8 // who went last, plus one; 0 where that makes no difference
	images   [3]uint8

	files [24]onDisk // the last, so that what is not used of them need not be looked at
}

// onDisk is a file, or a lease that was renamed.
type onDisk struct {
	kind, place, dir  uint8 // place: 0 if it has no name any more
	slot, tok, seq    uint8
	url, ver, exe     uint8
	exclusive, shared uint8
	age               uint8 // ms; of a lease without an address
}

const (
	itsOwn = 1 + iota
	temporary
	theLease
)

const (
	buried = 1 + iota
	dying
)

type running struct {
	node   int32
	known  [4]uint8 // whom it calls 1, 2 and so on, plus one
	dead   uint8
	halted uint8  // by SIGSTOP; 2 when time has passed since
	stood  uint16 // for how many ms it was, since its election began
	lag    uint16 // ms since it was answered last, while that makes a difference
	unused uint16
}

// machine is what a scene is played on.
type machine struct {
	scene    *scene
	memories [most]*memory
	wrong    string
	seed     maphash.Seed
	told     func(p int, a reply) // is told of all answers; nil for nobody
}

func (x *machine) fault(format string, args ...any) {
	if x.wrong == "" {
		x.wrong = fmt.Sprintf(format, args...)
	}
}

func (x *machine) node(s *state, i int) *node { return x.memories[i].nodes[s.players[i].node] }

// view is what p calls somebody.
func (s *state) view(p, of int) uint8 {
	if p == of {
		return 0
	}
	known := &s.players[p].known
	for k := range known {
		switch known[k] {
		case uint8(of + 1):
			return uint8(k + 1)
		case 0:
			known[k] = uint8(of + 1)
			return uint8(k + 1)
		}
	}
	panic("too many to know")
}

func (s *state) slot(p int, view uint8) int {
	if view == 0 {
		return p
	}
	return int(s.players[p].known[view-1]) - 1
}

func (s *state) find(dir uint8, place, kind uint8, slot int, tok uint8) *onDisk {
	for i := range s.files[:s.n] {
		f := &s.files[i]
		if f.place != place || f.dir != dir || f.kind != kind {
			continue
		}
		if place == theLease || kind == aLock || f.slot == uint8(slot) && f.tok == tok {
			return f
		}
	}
	return nil
}

// lease is what lies at the lease's path.
func (s *state) lease(dir uint8) *onDisk { return s.find(dir, theLease, aDocument, 0, 0) }

func (s *state) named(p int, dir uint8, n name) *onDisk {
	switch n.kind {
	case theDocument:
		return s.lease(dir)
	case theLock:
		return s.find(dir, itsOwn, aLock, 0, 0)
	case thisAlive:
		return s.find(dir, itsOwn, anAlive, s.slot(p, n.by), n.tok)
	case thisTemp:
		return s.find(dir, temporary, aDocument, s.slot(p, n.by), n.tok)
	}
	panic("nobody makes such a name")
}

func (s *state) add(f onDisk) *onDisk {
	s.files[s.n] = f
	s.n++
	return &s.files[s.n-1]
}

func (s *state) drop(f *onDisk) {
	s.n--
	*f = s.files[s.n]
	s.files[s.n] = onDisk{}
}

// unname takes a file's name away. Whoever has it locked still has.
func (s *state) unname(f *onDisk) {
	if f.exclusive == 0 && f.shared == 0 {
		s.drop(f)
		return
	}
	f.place, f.dir = 0, 0
}

// release is what closing a locked file does.
func (s *state) release(f *onDisk, p int) {
	if f.exclusive == uint8(p+1) {
		f.exclusive = 0
	}
	f.shared &^= 1 << p
	if f.place == 0 && f.exclusive == 0 && f.shared == 0 {
		s.drop(f)
	}
}

// close is what the kernel does when a process ends.
func (s *state) close(p int) {
	for i := int(s.n) - 1; i >= 0; i-- {
		s.release(&s.files[i], p)
	}
	for i := range s.taken {
		if s.taken[i] == uint8(p+1) {
			s.taken[i] = 0
		}
	}
}

// kill ends a process as kill -9 does: nobody answers any more. What it has open
// the kernel closes after that, at once, but not in the same moment.
func (s *state) kill(p int) { s.players[p] = running{dead: dying} }

func (s *state) bury(p int) {
	s.close(p)
	s.players[p] = running{dead: buried}
}

// about fills in what there is to know of a file.
func (s *state) about(a *reply, p int, f *onDisk) {
	a.id = ident{kind: f.kind, seq: f.seq}
	if f.kind != aLock {
		a.id.by, a.id.tok = s.view(p, int(f.slot)), f.tok
	}
	a.says = content{url: f.url != 0, ver: f.ver, exe: f.exe}
	a.age = uint16(f.age)
}

// serving reports whether a process answers as the server of a lease of its own.
func (n *node) serving(tok uint8) bool { return n.held && n.listens && !n.ending && n.tok == tok }

// listens reports whether somebody accepts connections.
func (x *machine) listens(s *state, p int) bool {
	return s.players[p].dead == 0 && x.node(s, p).listens
}

// may reports whether a process can take its step.
func (x *machine) may(s *state, p int) bool {
	r := &s.players[p]
	if r.dead != 0 || r.halted != 0 {
		return false
	}
	n := x.node(s, p)
	switch {
	case n.done:
		return false
	case n.want.op == opLoss: // a look at the lease that finds it in place is no event
		return !x.holds(s, p)
	case n.want.wait > r.lag:
		return false
	}
	return true
}

// holds reports whether a process would find, reading now, that it holds the
// lease.
func (x *machine) holds(s *state, p int) bool {
	if s.players[p].dead != 0 {
		return false
	}
	n := x.node(s, p)
	return n.held && x.names(s, p, n)
}

func (x *machine) names(s *state, p int, n *node) bool {
	if s.path == 0 || n.folder != s.path {
		return false
	}
	f := s.lease(s.path)
	return f != nil && f.slot == uint8(p) && f.tok == n.tok
}

// step takes the step that a process waits to take.
func (x *machine) step(s *state, p int) {
	n := x.node(s, p)
	r := &n.want
	var a reply
	a.code = yes
	switch r.op {
	case opStat, opOpenFolder, opMakeFolder:
		if r.op == opMakeFolder && s.path == 0 {
			s.folders++
			s.path = s.folders
		}
		if a.id = (ident{kind: aFolder, seq: s.path}); s.path == 0 {
			a.code, a.id = none, ident{}
		}
	case opLstat, opOpen, opCreate:
		f := s.named(p, r.dir, r.name)
		switch {
		case f == nil && r.op != opCreate:
			a.code = none
		case f == nil && s.path != r.dir:
			a.code = deleted
		case f != nil && r.op == opCreate:
			a.code = isThere
		default:
			if f == nil {
				f = x.create(s, p, r)
			}
			s.about(&a, p, f)
		}
	case opWrite:
		for i := range s.files[:s.n] {
			if f := &s.files[i]; f.kind == aDocument && f.slot == uint8(p) && f.tok == r.id.tok && f.seq == r.id.seq {
				f.ver, f.exe, f.age = r.says.ver, r.says.exe, 0
				if r.says.url {
					f.url = 1
				}
			}
		}
		if n.locks {
			x.fault("%s writes while it has %s", label(p), lockName)
		}
	case opRename:
		f := s.named(p, r.dir, r.name)
		if f == nil {
			a.code = none
			break
		}
		was := s.lease(r.dir)
		a.says.url = x.replaced(s, p, r.dir, was, f)
		f.place = theLease
		if was != nil {
			s.unname(was)
		}
	case opRemove:
		f := s.named(p, r.dir, r.name)
		if f == nil {
			a.code = none
			break
		}
		x.removed(s, p, f)
		s.unname(f)
	case opList:
		a.list = s.list(p, r.dir)
	case opOpenLock:
		switch f := (*onDisk)(nil); {
		case s.path == 0:
			a.code = none
		case r.name.kind == theFolder:
			a.id = ident{kind: aFolder, seq: s.path}
		default:
			if f = s.named(p, s.path, r.name); f == nil {
				a.code = none
				break
			}
			s.about(&a, p, f)
			a.says, a.age = content{}, 0
		}
	case opLock, opShare:
		if !x.lock(s, p, r) {
			a.code = isBusy
		}
	case opUnlock:
		if r.id.kind == aFolder {
			s.taken[r.id.seq] = 0
		} else if f := s.open(p, r.id); f != nil {
			s.release(f, p)
		}
	case opAsk, opHear:
		x.ask(s, p, &a, r)
	case opStart:
		a.says.exe = executable(x.memories[p].part.exe, int(s.images[x.memories[p].part.exe]))
		a.says.ver = version(x.scene.images[x.memories[p].part.exe][s.images[x.memories[p].part.exe]])
	case opStatExe:
		a.id.seq = s.images[x.memories[p].part.exe]
	}
	x.answer(s, p, n, a)
}

// answer gives a process what it waits for.
func (x *machine) answer(s *state, p int, n *node, a reply) {
	a.passed = s.players[p].lag
	s.players[p].lag = 0
	if x.told != nil {
		x.told(p, a)
	}
	to, _ := x.memories[p].after(n, a)
	x.goes(s, p, n, to)
}

func (x *machine) goes(s *state, p int, from, to *node) {
	r := &s.players[p]
	r.node = to.id
	switch {
	case to.wrong != "":
		x.fault("%s: %s", label(p), to.wrong)
	case to.lost && to.held:
		x.fault("%s had lost the lease and has it again", label(p))
	case to.claims && to.folder == s.path && !x.names(s, p, to): // or it was when it looked at the folder
		x.fault("%s finds that it has the lease, which is another's", label(p))
	case to.lost && !from.lost && x.names(s, p, to):
		x.fault("%s lost a lease that is its own", label(p))
	}
	if to.took != 0 {
		// One stop of another is got past in time, if its lease can be read all
		// the while, since a look that fails begins the wait for it anew.
		if to.outcome == "alone: "+context.DeadlineExceeded.Error() && r.stood == 0 && x.scene.stops < 2 && x.scene.blinds == 0 && !x.scene.binds() {
			x.fault("%s is %s, and was not stopped itself", label(p), to.outcome)
		}
		if most := worldly.JoinTimeout + 2*worldly.ProbeTimeout + time.Duration(r.stood)*time.Millisecond; time.Duration(to.took-1)*time.Millisecond > most {
			x.fault("%s took %d ms to be told who serves", label(p), to.took-1)
		}
		r.stood = 0
	}
	if to.forgets {
		known := [4]uint8{}
		if to.kept != 0 {
			known[0] = r.known[to.kept-1]
		}
		r.known = known
	}
}

func (x *machine) create(s *state, p int, r *request) *onDisk {
	f := onDisk{place: itsOwn, dir: r.dir, slot: uint8(p), tok: r.name.tok, seq: r.id.seq}
	switch r.name.kind {
	case theLock:
		s.locks++
		f.kind, f.slot, f.seq = aLock, 0, s.locks
	case thisAlive:
		f.kind = anAlive
	case thisTemp:
		f.kind, f.place = aDocument, temporary
	default:
		panic("nobody makes such a file")
	}
	if f.kind != aLock && r.name.by != 0 {
		x.fault("%s makes another's file", label(p))
	}
	return s.add(f)
}

func (s *state) list(p int, dir uint8) string {
	var list [][3]byte
	// Whoever is not known yet is, from here on, in the order of slots.
	for slot := range most {
		for i := range s.files[:s.n] {
			f := &s.files[i]
			if f.place == 0 || f.dir != dir || int(f.slot) != slot {
				continue
			}
			switch {
			case f.place == theLease:
				list = append(list, [3]byte{theDocument})
			case f.kind == aLock:
				list = append(list, [3]byte{theLock})
			case f.kind == anAlive:
				list = append(list, [3]byte{thisAlive, s.view(p, slot), f.tok})
			default:
				list = append(list, [3]byte{thisTemp, s.view(p, slot), f.tok})
			}
		}
	}
	slices.SortFunc(list, func(a, b [3]byte) int { return slices.Compare(a[:], b[:]) })
	var b strings.Builder
	for _, l := range list {
		b.Write(l[:])
	}
	return b.String()
}

// open is the file that a lock was opened on, if anybody can tell.
func (s *state) open(p int, id ident) *onDisk {
	slot := 0
	if id.kind == anAlive {
		slot = s.slot(p, id.by)
	}
	for i := range s.files[:s.n] {
		f := &s.files[i]
		if f.kind == id.kind && f.slot == uint8(slot) && f.tok == id.tok && f.seq == id.seq {
			return f
		}
	}
	return nil
}

func (x *machine) lock(s *state, p int, r *request) bool {
	id := r.id
	if id.kind == aFolder {
		switch s.taken[id.seq] {
		case 0, uint8(p + 1):
			s.taken[id.seq] = uint8(p + 1)
			return true
		}
		return false
	}
	f := s.open(p, id)
	if f == nil { // it has no name, and no other lock
		f = s.add(onDisk{kind: id.kind, tok: id.tok, seq: id.seq})
		if id.kind == anAlive {
			f.slot = uint8(s.slot(p, id.by))
		}
	}
	me := uint8(p + 1)
	switch {
	case f.exclusive == me || f.shared&(1<<p) != 0:
	case r.op == opShare && f.exclusive == 0:
		f.shared |= 1 << p
	case r.op == opLock && f.exclusive == 0 && f.shared == 0:
		f.exclusive = me
	default:
		if by := int(f.exclusive) - 1; f.kind == anAlive && by >= 0 && by != int(f.slot) && int(f.slot) != p && !x.node(s, p).locks && !x.node(s, by).locks {
			x.fault("%s takes a dead process for alive, because %s asks", label(p), label(by))
		}
		return false
	}
	return true
}

// ask is the network. It is answered when the process asked goes on, and is not
// in the middle of a change, and as that one finds it at this moment.
func (x *machine) ask(s *state, p int, a *reply, r *request) {
	to := s.slot(p, r.to)
	if !x.listens(s, to) || x.scene.network(p) != x.scene.network(to) {
		a.code = refusedThere
		return
	}
	n := x.node(s, to)
	if s.players[to].halted != 0 || n.busy || !n.answers {
		a.code = pending
		return
	}
	own := n.maker && x.names(s, to, n)
	if !n.maker {
		own = x.question(s, to, n)
		n = x.node(s, to)
	}
	if a.code = ours; !own || n.tok != r.id.tok {
		a.code = notHolder
		return
	}
	a.says.ver, a.old = n.ver, x.stale(s, n)
}

// question has a process say whether the lease is its own.
func (x *machine) question(s *state, p int, n *node) bool {
	see := reply{code: shown, dir: s.path}
	if s.path != 0 {
		if f := s.lease(s.path); f != nil {
			see.id, see.says = ident{aDocument, 0, f.tok, f.seq}, content{url: f.url != 0, ver: f.ver, exe: f.exe}
			if int(f.slot) != p {
				see.id, see.says = ident{aDocument, stranger, 0, 0}, content{}
			}
		}
	}
	if x.told != nil {
		x.told(p, see)
	}
	to, own := x.memories[p].after(n, see)
	if to != n {
		x.goes(s, p, n, to)
	}
	if own && !x.holds(s, p) {
		x.fault("%s says that it has the lease, which is another's", label(p))
	}
	return own
}

// stale reports whether a process runs code that is no longer at its path.
func (x *machine) stale(s *state, n *node) bool {
	return n.exe != 0 && s.images[n.exe>>4] != n.exe&15
}

// replaced looks at a lease that is put in place. What it takes the place of
// must be its own, or to the last byte what its writer judged; and somebody who
// serves, or is on the way to it, is only replaced for a reason. It reports
// whether the lease changes hands.
func (x *machine) replaced(s *state, p int, dir uint8, was, by *onDisk) bool {
	n := x.node(s, p)
	switch {
	case dir != s.path: // in a folder that is gone, where nobody looks
		return false
	case was != nil && was.slot == by.slot && was.tok == by.tok:
		return false
	case was == nil:
		// If there was one when it was read, somebody deleted it. Harmless, and
		// only a hand does that.
		return !n.wrote
	}
	if n.judged != (ident{aDocument, s.view(p, int(was.slot)), was.tok, was.seq}) {
		x.fault("%s replaced a lease that it had not judged", label(p))
		return true
	}
	if s.players[was.slot].dead != 0 {
		return true
	}
	q := int(was.slot)
	m, r := x.node(s, q), &s.players[q]
	if was.url == 0 {
		if m.tok == was.tok && !m.gone && !m.lost && time.Duration(was.age)*time.Millisecond < worldly.BindGrace {
			x.fault("%s replaced a server on its way", label(p))
		}
		return true
	}
	if !m.serving(was.tok) {
		return true
	}
	why := CompareVersions(versions[m.ver], versions[n.ver]) == ServerOlder || x.stale(s, m)
	switch {
	case !n.asked:
		x.fault("%s replaced a server without asking it", label(p))
	case x.scene.network(p) != x.scene.network(q):
		x.fault("%s replaced a server that it cannot reach", label(p))
	case !why && n.unheard == 1:
		x.fault("%s replaced a server that did not answer one question", label(p))
	case (time.Duration(r.stood)*time.Millisecond >= worldly.BusyGrace || x.scene.slows > 0) && n.unheard > 1:
	case !why:
		x.fault("%s replaced a server that answers", label(p))
	case by.url == 0 || !n.listens:
		x.fault("%s replaced a server that answers, and does not listen", label(p))
	}
	return true
}

// removed looks at a file that is removed.
func (x *machine) removed(s *state, p int, f *onDisk) {
	q := int(f.slot)
	switch {
	case f.kind == aLock:
		x.fault("%s removed %s", label(p), lockName)
	case q == p:
	case f.place == theLease && f.dir == s.path:
		x.fault("%s removed a lease that is not its own", label(p))
	default:
		if alive := s.find(f.dir, itsOwn, anAlive, q, f.tok); alive != nil && alive.exclusive == f.slot+1 {
			x.fault("%s removed a file of a process that lives", label(p))
		}
	}
}

// check looks at what must hold at every moment.
func (x *machine) check(s *state) {
	if s.path == 0 {
		return
	}
	f := s.lease(s.path)
	if f == nil || s.players[f.slot].dead != 0 {
		return // what names the lease's holder is the lease, so there is never more than one
	}
	p := int(f.slot)
	n := x.node(s, p)
	if n.tok != f.tok || n.gone || !n.wrote || n.maker {
		return
	}
	if alive := s.find(s.path, itsOwn, anAlive, p, f.tok); alive == nil || alive.exclusive != f.slot+1 {
		x.fault("%s has the lease, and looks dead", label(p))
	}
}

func label(p int) string {
	if p == after {
		return "z"
	}
	return string(rune('a' + p))
}

// canon brings a state into the form that all share that differ only in which
// of several like processes is which, and returns who is now in whose place.
func (x *machine) canon(s *state, symmetric bool) (now [most]uint8) {
	for i := range now {
		now[i] = uint8(i)
	}
	if symmetric && x.scene.alike {
		order := now
		less := func(a, b uint8) int {
			p, q := &s.players[a], &s.players[b]
			if c := int(x.scene.class[a]) - int(x.scene.class[b]); c != 0 {
				return c
			}
			if p.dead != q.dead {
				return int(p.dead) - int(q.dead)
			}
			if p.node != q.node {
				return int(p.node) - int(q.node)
			}
			if p.halted != q.halted {
				return int(p.halted) - int(q.halted)
			}
			if p.stood != q.stood {
				return int(p.stood) - int(q.stood)
			}
			return int(p.lag) - int(q.lag)
		}
		// By insertion, so that equals stay in their order.
		n := len(x.scene.cast)
		for i := 1; i < n; i++ {
			for j := i; j > 0 && less(order[j], order[j-1]) < 0; j-- {
				order[j], order[j-1] = order[j-1], order[j]
			}
		}
		for to, from := range order {
			now[from] = uint8(to)
		}
		if order != [most]uint8{0, 1, 2, 3, 4} {
			s.rename(now)
		}
	}
	s.sort()
	return now
}

// rename gives each process the place that now says.
func (s *state) rename(now [most]uint8) {
	plus := func(v uint8) uint8 {
		if v == 0 {
			return 0
		}
		return now[v-1] + 1
	}
	was := s.players
	for i := range was {
		r := was[i]
		for k := range r.known {
			r.known[k] = plus(r.known[k])
		}
		s.players[now[i]] = r
	}
	for i := range s.files[:s.n] {
		f := &s.files[i]
		if f.kind != aLock {
			f.slot = now[f.slot]
		}
		f.exclusive = plus(f.exclusive)
		if old := f.shared; old != 0 {
			f.shared = 0
			for p := range most {
				if old&(1<<p) != 0 {
					f.shared |= 1 << now[p]
				}
			}
		}
	}
	for i := range s.taken {
		s.taken[i] = plus(s.taken[i])
	}
	s.last = plus(s.last)
}

func (s *state) sort() {
	key := func(f *onDisk) uint64 {
		return uint64(f.kind)<<40 | uint64(f.place)<<32 | uint64(f.dir)<<24 | uint64(f.slot)<<16 | uint64(f.tok)<<8 | uint64(f.seq)
	}
	for i := 1; i < int(s.n); i++ {
		for j := i; j > 0 && key(&s.files[j]) < key(&s.files[j-1]); j-- {
			s.files[j], s.files[j-1] = s.files[j-1], s.files[j]
		}
	}
}

// hash is all that is kept of a state that was seen.
func (x *machine) hash(s *state) uint64 {
	used := unsafe.Offsetof(s.files) + uintptr(s.n)*unsafe.Sizeof(s.files[0])
	return maphash.Bytes(x.seed, unsafe.Slice((*byte)(unsafe.Pointer(s)), used)) | 1
}

// states is a set of hashes.
type states struct {
	table []uint64
	n     int
}

// add reports whether h is new.
func (v *states) add(h uint64) bool {
	if v.n*4 >= len(v.table)*3 {
		old := v.table
		v.table = make([]uint64, max(1<<12, 2*len(old)))
		for _, h := range old {
			if h != 0 {
				v.put(h)
			}
		}
	}
	if v.put(h) {
		v.n++
		return true
	}
	return false
}

func (v *states) put(h uint64) bool {
	mask := uint64(len(v.table) - 1)
	for i := h >> 1 & mask; ; i = (i + 1) & mask {
		switch v.table[i] {
		case h:
			return false
		case 0:
			v.table[i] = h
			return true
		}
	}
}
