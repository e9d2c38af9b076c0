package lease

import (
	"flag"
	"fmt"
	"hash/maphash"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

var deep = flag.Bool("deep", false, "explore elections of more processes and more faults, for an hour")

// The explorer goes to every state that an election can come to, from one to the
// next by one step of one process, or by a fault. Both halves are real in their
// way. What a process does is the package's own code: it is played, alone, and
// what it wants after each answer is remembered (played_test.go), so that it is
// played once for each thing that can happen to it and not once for each
// schedule. What its steps do is a model of a disk, of locks and of a network
// (world_test.go).
//
// A state holds how far each process is, what lies on the disk and who has which
// lock, and of time only how long ago things were, since nobody can tell more.
// States that were seen are kept as hashes of 64 bits: of 100 million, two are
// the same by chance in one run of 4,000, and then what is behind one of them
// may not be seen.
//
// What is not in it: that a file is found half written, since names are only
// given to what is whole; systems on which a file that is open cannot be
// removed; file systems without locks, or that cache; more than one thing at a
// time within a process, save for its answers to questions, each of which is
// given at one moment. TestFaults has calls to the disk fail.

// A scene is who plays, and what may befall them.
type scene struct {
	name string
	cast []*part

	kills    int         // kill -9, at any step
	stops    int         // SIGSTOP, at any step, and SIGCONT at any later one
	rms      int         // rm of the lease, of server.lock or of the folder, at any step
	slows    int         // questions that a healthy server does not answer in time
	refusals int         // connections that a healthy server does not get to see
	blinds   int         // looks at the lease for which there is no descriptor
	builds   int         // new executables at a path
	images   [3][]string // the versions of what lies at paths 1 and 2, one after the other

	// bound is for how many times another process goes on though the one that
	// went last could, but for waking from sleep; 0 is for no bound.
	bound int
	walks int  // so many ways at random, instead of all
	deep  bool // takes long

	class [most]uint8 // of processes, by their parts
	alike bool        // there are two of a class
}

func (s *scene) network(p int) uint8 {
	if p == after {
		return 0
	}
	return s.cast[p].network
}

// alone reports whether somebody may end alone, for a reason: because it or
// another was stopped for long, or because it cannot reach the one who serves.
// No death, and nothing that passes, makes anybody end so.
func (s *scene) alone(why string) bool {
	return s.stops > 0 || s.apart() && strings.Contains(why, ErrElsewhere.Error())
}

// binds reports whether somebody takes long to bind, and if it is stopped too,
// longer than the others wait.
func (s *scene) binds() bool {
	return slices.ContainsFunc(s.cast, func(p *part) bool { return p.binds })
}

func (s *scene) apart() bool {
	return slices.ContainsFunc(s.cast, func(p *part) bool { return p.network != s.cast[0].network })
}

// reduction is what an exploration leaves out. Each is sound for what is
// checked; that nothing differs without them is tried in small scenes.
type reduction struct {
	// symmetric takes states as one in which like processes have changed
	// places. What they do depends on their part and on what they saw, and in
	// that they call each other by numbers of their own.
	symmetric bool
	// atOnce takes a step that nobody else can see, and that sees nothing of
	// others, as soon as it can be taken, and offers no other instead: it
	// commutes with all of them. There are three: writing to a file that only
	// its owner opens, waking, and nothing. To be killed before it leaves the
	// same as to be killed after it, since nobody reads what the dead wrote and
	// gave no name. To be stopped makes a difference where the clock is read, so
	// that the last two are such steps only if nobody can be stopped any more.
	atOnce bool
	// lateStops has a process be stopped only when that matters next: nobody
	// else can go on, or nobody who is not going to be stopped too, so that time
	// is about to pass; or somebody is about to ask it. A stop commutes with all
	// else that others do, and to be stopped before taking a step and go on with
	// no time passed is not to be stopped. So it goes on only when some has.
	lateStops bool
}

var reduced = reduction{symmetric: true, atOnce: true, lateStops: true}

// oldest is how old a lease can be, in ms: longer than an election takes.
const oldest = 250

// longest is for how many ms a process is stopped while nothing else happens:
// for longer than any of its own durations.
const longest = 100

// A choice is what happens next: a process takes its step, or a fault befalls
// somebody.
type choice struct {
	what whatNext
	who  uint8
}

type whatNext uint8

const (
	goOn whatNext = iota
	passTime
	buryIt
	killIt
	stopIt
	contIt
	removeLease
	removeLock
	removeFolder
	answerLate
	refuseIt
	blindIt
	replaceIt
)

var whatNames = [...]string{"", "time passes", "the kernel closes what was open to", "kill -9", "kill -STOP", "kill -CONT", "rm " + documentName, "rm " + lockName, "rm -r the folder", "(no answer in time)", "(refused)", "(no descriptor left)", "put a new executable at path"}

func newMachine(t *testing.T, s *scene) *machine {
	x := &machine{scene: s, seed: maphash.MakeSeed()}
	known := map[string]*memory{}
	of := func(p *part) *memory {
		p = new(part(*p))
		p.fixed = s.rms == 0
		if known[p.name] == nil {
			known[p.name] = newMemory(t, p)
		}
		return known[p.name]
	}
	for i, p := range s.cast {
		x.memories[i] = of(p)
		s.class[i] = uint8(i)
		for j := range i {
			if s.cast[j].name == p.name && s.cast[j].network == p.network {
				s.class[i], s.alike = s.class[j], true
				break
			}
		}
	}
	x.memories[after] = of(serves("v1.0.0"))
	return x
}

func (x *machine) begin() state {
	sc := x.scene
	s := state{
		path: 1, folders: 1, kills: uint8(sc.kills), stops: uint8(sc.stops), rms: uint8(sc.rms), slows: uint8(sc.slows),
		refusals: uint8(sc.refusals), blinds: uint8(sc.blinds), builds: uint8(sc.builds), switches: uint8(sc.bound),
	}
	for i := range s.players {
		s.players[i].dead = buried
		if i < len(sc.cast) {
			s.players[i] = running{}
		}
	}
	if sc.rms == 0 {
		s.locks = 1
		s.add(onDisk{kind: aLock, place: itsOwn, dir: 1, seq: 1})
	}
	return s
}

// choices are what may happen next, in an order that depends on the state alone.
// Time passes when nobody is able to go on; and at any moment for whoever is
// stopped.
func (x *machine) choices(list []choice, s *state, r reduction) []choice {
	sc := x.scene
	var can [most]bool
	able, asleep, halted, dies := 0, false, false, false
	for p := range sc.cast {
		if can[p] = x.may(s, p); can[p] {
			able++
			if r.atOnce && x.alone(s, x.node(s, p)) {
				return append(list, choice{goOn, uint8(p)})
			}
		} else if q := s.players[p]; q.halted != 0 {
			halted = true
			asleep = asleep || q.stood < longest
		} else if q.dead == 0 && !x.node(s, p).done && x.node(s, p).want.op != opLoss {
			asleep = true
		}
	}
	goes := func(p int) bool {
		last := int(s.last) - 1
		return sc.bound == 0 || s.switches > 0 || last < 0 || last == p || !can[last]
	}
	moves := len(list)
	for p := range sc.cast {
		if can[p] && goes(p) {
			list = append(list, choice{goOn, uint8(p)})
		}
	}
	for p := range sc.cast {
		if s.players[p].dead == dying {
			list, dies = append(list, choice{buryIt, uint8(p)}), true
		}
	}
	if able == 0 && asleep && !dies {
		list = append(list, choice{what: passTime})
	}
	over := len(list) == moves && !halted
	for p := range sc.cast {
		q := &s.players[p]
		if q.dead != 0 {
			continue
		}
		n := x.node(s, p)
		if q.halted != 0 {
			if q.halted > 1 || !r.lateStops {
				list = append(list, choice{contIt, uint8(p)})
			}
			continue
		}
		if can[p] && goes(p) {
			w := n.want
			if asks := w.op == opAsk || w.op == opHear; asks && x.listens(s, s.slot(p, w.to)) {
				if s.slows > 0 && w.op == opAsk {
					list = append(list, choice{answerLate, uint8(p)})
				}
				if s.refusals > 0 && w.op == opAsk {
					list = append(list, choice{refuseIt, uint8(p)})
				}
			}
			if s.blinds > 0 && w.name.kind == theDocument && (w.op == opOpen || w.op == opLstat) {
				list = append(list, choice{blindIt, uint8(p)})
			}
		}
		if over || n.done && !n.listens {
			continue
		}
		if s.kills > 0 {
			list = append(list, choice{killIt, uint8(p)})
		}
		if s.stops > 0 && (!r.lateStops || x.matters(s, p, can, able)) {
			list = append(list, choice{stopIt, uint8(p)})
		}
	}
	if over {
		return list[:moves]
	}
	if s.rms > 0 && s.path != 0 {
		if s.lease(s.path) != nil {
			list = append(list, choice{what: removeLease})
		}
		if s.find(s.path, itsOwn, aLock, 0, 0) != nil {
			list = append(list, choice{what: removeLock})
		}
		list = append(list, choice{what: removeFolder})
	}
	for path, images := range sc.images {
		if s.builds > 0 && int(s.images[path])+1 < len(images) {
			list = append(list, choice{replaceIt, uint8(path)})
		}
	}
	return list
}

// alone reports whether a process's next step is none of the others' business.
func (x *machine) alone(s *state, n *node) bool {
	switch n.want.op {
	case opWrite: // to a file whose name only its owner opens
		return true
	case opMark:
		return s.stops == 0
	case opSleep:
		return s.stops == 0
	}
	return false
}

// matters reports whether it makes a difference that p is stopped now.
func (x *machine) matters(s *state, p int, can [most]bool, able int) bool {
	if can[p] {
		able--
	}
	if able < int(s.stops) {
		return true
	}
	for q := range x.scene.cast {
		if q != p && can[q] {
			if w := x.node(s, q).want; (w.op == opAsk || w.op == opHear) && s.slot(q, w.to) == p {
				return true
			}
		}
	}
	return false
}

// apply does what was chosen.
func (x *machine) apply(s *state, c choice) (passed uint16) {
	p := int(c.who)
	q := &s.players[p]
	last := s.last
	s.last = 0
	switch c.what {
	case goOn, answerLate, refuseIt, blindIt:
		if x.scene.bound > 0 && x.alone(s, x.node(s, p)) {
			s.last = last
		} else if x.scene.bound > 0 {
			if l := int(last) - 1; l >= 0 && l != p && x.may(s, l) {
				s.switches--
			}
			s.last = c.who + 1
		}
		n := x.node(s, p)
		switch c.what {
		case goOn:
			x.step(s, p)
		case answerLate:
			s.slows--
			x.answer(s, p, n, reply{code: silent})
		case refuseIt:
			s.refusals--
			x.answer(s, p, n, reply{code: refusedThere})
		case blindIt:
			s.blinds--
			x.answer(s, p, n, reply{code: cannot})
		}
	case passTime:
		return x.pass(s)
	case killIt:
		s.kills--
		s.kill(p)
	case buryIt:
		s.bury(p)
	case stopIt:
		s.stops--
		q.halted = 1
	case contIt:
		q.halted = 0
	case removeLease:
		s.rms--
		s.unname(s.lease(s.path))
	case removeLock:
		s.rms--
		s.unname(s.find(s.path, itsOwn, aLock, 0, 0))
	case removeFolder:
		s.rms--
		s.path = 0
	case replaceIt:
		s.builds--
		s.images[c.who]++
	}
	return 0
}

// pass lets time pass until somebody wakes; while somebody is stopped by the
// millisecond, since it may go on at each.
func (x *machine) pass(s *state) uint16 {
	next := ^uint16(0)
	for p := range most {
		q := &s.players[p]
		if q.dead != 0 {
			continue
		}
		if q.halted != 0 {
			next = 1
		} else if n := x.node(s, p); !n.done && n.want.wait > q.lag {
			next = min(next, n.want.wait-q.lag)
		}
	}
	if next == ^uint16(0) {
		x.fault("nobody will ever wake")
		return 0
	}
	for p := range most {
		q := &s.players[p]
		if q.dead != 0 {
			continue
		}
		if q.halted != 0 {
			q.halted, q.stood = 2, q.stood+next
		}
		if n := x.node(s, p); !n.done && n.want.op != opLoss {
			q.lag += next
		}
	}
	for i := range s.files[:s.n] {
		if f := &s.files[i]; f.place == theLease && f.url == 0 {
			f.age = uint8(min(uint16(f.age)+next, oldest))
		}
	}
	return next
}

// outcome is how it ended for each, by part.
func (x *machine) outcome(s *state) string {
	var list []string
	for p, part := range x.scene.cast {
		what := "dead"
		if s.players[p].dead == 0 {
			what = x.node(s, p).outcome
		}
		list = append(list, part.name+": "+what)
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

// over looks at what has come of it all.
func (x *machine) over(s *state) {
	for p := range x.scene.cast {
		if s.players[p].dead != 0 {
			continue
		}
		switch n := x.node(s, p); {
		case n.outcome == "":
			x.fault("%s came to no end", label(p))
		case n.outcome == "replaced again and again":
			x.fault("%s is %s", label(p), n.outcome)
		case n.outcome == "lost before it served" && x.scene.stops+x.scene.rms == 0:
			x.fault("%s %s, and nothing befell it", label(p), n.outcome)
		case strings.HasPrefix(n.outcome, "alone") && !x.scene.alone(n.outcome):
			x.fault("%s is %s, and nobody was stopped", label(p), n.outcome)
		}
	}
}

// nextOne lets one more process come to what would be left if everybody died
// now: it must serve, and leave nothing behind.
func (x *machine) nextOne(s *state, seen *states) {
	t := *s
	for p := range x.scene.cast {
		t.bury(p)
	}
	t.players[after] = running{}
	t.kills, t.stops, t.rms, t.slows, t.refusals, t.blinds, t.builds, t.switches, t.last = 0, 0, 0, 0, 0, 0, 0, 0, 0
	t.sort()
	if !seen.add(x.hash(&t)) {
		return
	}
	for range 1000 {
		n := x.node(&t, after)
		switch {
		case x.wrong != "":
			return
		case n.done && n.outcome != "served":
			x.fault("the next process is %s", n.outcome)
			return
		case n.done:
			for _, f := range t.files[:t.n] {
				if f.place == temporary && int(f.slot) < len(x.scene.cast) && x.scene.cast[f.slot].maker {
					continue // nobody can tell whether its maker lives, for a minute
				}
				if f.dir == t.path && f.kind != aLock {
					x.fault("%s is left behind", [...]string{"an .alive file", "a temporary file", "a lease"}[f.place-1])
				}
			}
			return
		case x.may(&t, after):
			x.step(&t, after)
		default:
			x.pass(&t)
		}
	}
	x.fault("the next process comes to no end")
}

// A found is what came of an exploration.
type found struct {
	states, steps, deepest int
	plays, moves, nodes    int
	took                   time.Duration
	outcomes               map[string]int
	wrong                  string
	trace                  []string
}

// frame is a state on the way to the one that is looked at.
type frame struct {
	state state
	who   [most]uint8 // who is in whose place
	now   int         // ms
	list  []choice
	next  int
}

// explore goes to every state that can be come to.
func (s *scene) explore(t *testing.T, r reduction) found {
	began := time.Now()
	x := newMachine(t, s)
	f := found{outcomes: map[string]int{}}
	var seen, ends states
	stack := make([]frame, 0, 1024)
	push := func(st state, who [most]uint8, ms int) {
		now := x.canon(&st, r.symmetric)
		var placed [most]uint8
		for i, to := range now {
			placed[to] = who[i]
		}
		if !seen.add(x.hash(&st)) {
			return
		}
		x.check(&st)
		x.nextOne(&st, &ends)
		if len(stack) == cap(stack) {
			stack = slices.Grow(stack, len(stack))
		}
		stack = stack[:len(stack)+1] // with the list that was there
		top := &stack[len(stack)-1]
		top.state, top.who, top.now, top.next = st, placed, ms, 0
		top.list = x.choices(top.list[:0], &st, r)
		f.deepest = max(f.deepest, len(stack))
		if len(top.list) == 0 {
			f.outcomes[x.outcome(&st)]++
			x.over(&st)
		}
	}
	push(x.begin(), [most]uint8{0, 1, 2, 3, 4}, 0)
	for len(stack) > 0 && x.wrong == "" {
		top := &stack[len(stack)-1]
		if top.next == len(top.list) {
			stack = stack[:len(stack)-1]
			continue
		}
		c := top.list[top.next]
		top.next++
		st := top.state
		passed := x.apply(&st, c)
		f.steps++
		if x.wrong == "" {
			push(st, top.who, top.now+int(passed))
		}
		if seen.n > mostStates {
			x.fault("there are more than %d states, and not all were seen", mostStates)
		}
	}
	if f.wrong = x.wrong; f.wrong != "" {
		for i := range stack {
			if fr := &stack[i]; fr.next > 0 {
				f.trace = append(f.trace, x.tell(fr, fr.list[fr.next-1]))
			}
		}
	}
	f.count(x, &seen, began)
	return f
}

func (f *found) count(x *machine, seen *states, began time.Time) {
	f.states, f.took = seen.n, time.Since(began)
	for i, m := range x.memories {
		if m != nil && !slices.Contains(x.memories[:i], m) {
			f.nodes += len(m.nodes)
			f.plays += m.plays
			f.moves += m.moves
		}
	}
}

// wander goes as many ways at random as the scene says.
func (s *scene) wander(t *testing.T) found {
	began := time.Now()
	x := newMachine(t, s)
	f := found{outcomes: map[string]int{}}
	var seen, ends states
	seed := rand.Uint64()
	t.Logf("by seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for i := 0; i < s.walks && x.wrong == ""; i++ {
		s.walk(x, rng, &seen, &ends, &f)
	}
	f.count(x, &seen, began)
	return f
}

// tell says what a choice was, of processes by the names that they began with.
func (x *machine) tell(fr *frame, c choice) string {
	s := &fr.state
	name := func(p int) string { return label(int(fr.who[p])) }
	what := whatNames[c.what]
	switch c.what {
	case goOn, answerLate, refuseIt, blindIt:
		n := x.node(s, int(c.who))
		ask := n.want.String()
		if w := n.want; w.op == opAsk || w.op == opHear {
			ask = opNames[w.op] + " " + name(s.slot(int(c.who), w.to))
		}
		if w := n.want; w.name.kind == thisAlive || w.name.kind == thisTemp {
			ask = fmt.Sprintf("%s %s's %s", opNames[w.op], name(s.slot(int(c.who), w.name.by)), strings.TrimLeft(w.name.String(), "0123456789."))
		}
		what = strings.TrimSpace(name(int(c.who)) + " " + ask + " " + what)
	case killIt, buryIt, stopIt, contIt:
		what += " " + name(int(c.who))
	case replaceIt:
		what += fmt.Sprintf(" %d", c.who)
	}
	return fmt.Sprintf("%4d ms  %s", fr.now, what)
}

// walk goes one way at random to its end.
func (s *scene) walk(x *machine, rng *rand.Rand, seen, ends *states, f *found) state {
	st := x.begin()
	var way []frame
	ms := 0
	for {
		x.canon(&st, false)
		if seen.add(x.hash(&st)) {
			x.check(&st)
			x.nextOne(&st, ends)
		}
		list := x.choices(nil, &st, reduction{atOnce: true, lateStops: true})
		if len(list) == 0 {
			f.outcomes[x.outcome(&st)]++
			x.over(&st)
		}
		if len(list) == 0 || x.wrong != "" {
			break
		}
		// Faults are rare, or they would all come at once; save for stops, which
		// are only offered when they matter.
		c := list[rng.IntN(len(list))]
		if c.what > buryIt && c.what != stopIt && rng.IntN(20) > 0 {
			if i := slices.IndexFunc(list, func(c choice) bool { return c.what <= buryIt }); i >= 0 {
				c = list[i]
			}
		}
		way = append(way, frame{state: st, now: ms, who: [most]uint8{0, 1, 2, 3, 4}, list: []choice{c}})
		ms += int(x.apply(&st, c))
		f.steps++
		if x.wrong != "" {
			break
		}
	}
	f.deepest = max(f.deepest, len(way))
	if f.wrong = x.wrong; f.wrong != "" {
		for i := range way {
			f.trace = append(f.trace, x.tell(&way[i], way[i].list[0]))
		}
	}
	return st
}

// scenes are those that a CI run plays, and then those that take longer. What
// is not bounded by a number of switches is seen to the end.
func scenes() []scene {
	v1, v2 := "v1.0.0", "v2.0.0"
	cast := func(p ...*part) []*part { return p }
	return []scene{
		{name: "two", cast: cast(serves(v1), serves(v1))},
		{name: "an older release that ends and a newer one", cast: cast(serves(v1), stays(v2))},
		{name: "a kill", cast: cast(stays(v1), serves(v1)), kills: 1},
		{name: "two kills", cast: cast(stays(v1), stays(v1)), kills: 2},
		{name: "a newer release and a kill", cast: cast(stays(v1), stays(v2)), kills: 1},
		{name: "two releases that return", cast: cast(returns(v1, 0, false), returns(v2, 0, false))},
		{name: "two networks", cast: cast(serves(v1), stays(v1).in(1))},
		{name: "a new executable", cast: cast(returns("", 1, false), returns("", 1, false)), builds: 1, images: [3][]string{1: {v1, v2}}},
		{name: "a new executable, and who serves in itself", cast: cast(returns("", 1, true), returns("", 1, true)), builds: 1, images: [3][]string{1: {v1, v2}}},
		{name: "no descriptor", cast: cast(stays(v1), serves(v1)), blinds: 1},
		{name: "a refusal", cast: cast(stays(v1), serves(v1)), refusals: 1},
		{name: "a slow answer", cast: cast(stays(v1), serves(v1)), slows: 1},
		{name: "slow to bind", cast: cast(binds(v1), stays(v1))},
		{name: "slow to bind, and files of another clock", cast: cast(binds(v1).dated(-time.Hour), stays(v1).dated(-time.Hour))},

		{name: "a server of another maker", cast: cast(makes(v1), stays(v1)), slows: 1},
		{name: "three and a newer release", cast: cast(stays(v1), stays(v1), stays(v2))},
		{name: "an rm", cast: cast(stays(v1), stays(v1)), rms: 1},
		{name: "four", cast: cast(stays(v1), stays(v1), stays(v1), serves(v1)), kills: 1, stops: 1, rms: 1, refusals: 1, slows: 1, blinds: 1, walks: 300},

		{name: "three", cast: cast(stays(v1), stays(v1), serves(v1)), deep: true},
		{name: "three and a stop", cast: cast(stays(v1), stays(v1), stays(v1)), stops: 1, bound: 2, deep: true},
		{name: "three and two stops", cast: cast(stays(v1), stays(v1), stays(v2)), stops: 2, walks: 20_000, deep: true},
		{name: "three and an rm", cast: cast(stays(v1), stays(v1), stays(v1)), rms: 1, bound: 3, deep: true},
		{name: "four that stay", cast: cast(stays(v1), stays(v1), stays(v1), stays(v1)), deep: true},
		{name: "four and a kill", cast: cast(stays(v1), stays(v1), stays(v1), serves(v1)), kills: 1, bound: 3, deep: true},
		{name: "four and two releases", cast: cast(stays(v1), returns(v1, 0, false), stays(v2), returns(v2, 0, false)), bound: 3, deep: true},
		{name: "four in two networks", cast: cast(stays(v1), serves(v1), stays(v1).in(1), serves(v1).in(1)), bound: 3, deep: true},
		{name: "four and all that may befall them", cast: cast(stays(v1), serves(v1), returns(v2, 0, false), launches(v1)), kills: 1, stops: 1, rms: 1, refusals: 1, slows: 1, blinds: 1, walks: 20_000, deep: true},
		{name: "four, new executables and a kill", cast: cast(returns("", 1, false), returns("", 2, false), returns("", 1, true), returns("", 2, true)), kills: 1, builds: 2, images: [3][]string{1: {v1, v2}, 2: {v2, v1}}, walks: 20_000, deep: true},
		{name: "three and a kill", cast: cast(stays(v1), stays(v1), stays(v1)), kills: 1, deep: true},
		{name: "a stop", cast: cast(stays(v1), stays(v1)), stops: 1, deep: true},
		{name: "a newer release and a stop", cast: cast(stays(v1), stays(v2)), stops: 1, deep: true},
		{name: "slow to bind and a stop", cast: cast(binds(v1), stays(v1)), stops: 1, deep: true},
		{name: "a slow answer and a stop", cast: cast(stays(v1), stays(v1)), slows: 1, stops: 1, deep: true},
		{name: "a stop and a launcher", cast: cast(stays(v1), launches(v1)), stops: 1, deep: true},
		{name: "an rm and a server that ends", cast: cast(serves(v1), stays(v1)), rms: 1, deep: true},
		{name: "an rm and a kill", cast: cast(stays(v1), stays(v1)), rms: 1, kills: 1, deep: true},
		{name: "two rms", cast: cast(stays(v1), stays(v1)), rms: 2, deep: true},
		{name: "two networks and a kill", cast: cast(stays(v1), stays(v1).in(1)), kills: 1, deep: true},
		{name: "three in two networks", cast: cast(serves(v1), stays(v1), stays(v1).in(1)), deep: true},
		{name: "new executables at two paths", cast: cast(returns("", 1, false), returns("", 2, false)), builds: 2, images: [3][]string{1: {v1, v2}, 2: {v1, v2}}, deep: true},
		{name: "an older executable at a path", cast: cast(returns("", 1, false), returns(v1, 0, false)), builds: 1, images: [3][]string{1: {v2, v1}}, deep: true},
	}
}

func TestExplore(t *testing.T) {
	var table []string
	for _, s := range scenes() {
		if s.deep && !*deep {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			f := s.run(t)
			table = append(table, fmt.Sprintf("%-46s %10d %10d %6d %8d %9v  %s", s.name, f.states, f.steps, f.deepest, f.nodes, f.took.Round(10*time.Millisecond), s.extent()))
		})
	}
	t.Logf("\n%-46s %10s %10s %6s %8s %9s\n%s", "scene", "states", "steps", "depth", "of one", "time", strings.Join(table, "\n"))
}

// extent says how much of a scene is seen.
func (s *scene) extent() string {
	switch {
	case s.walks > 0:
		return fmt.Sprintf("%d ways at random", s.walks)
	case s.bound > 0:
		return fmt.Sprintf("all with at most %d switches", s.bound)
	}
	return "all"
}

// mostStates is how many a scene may come to, for the memory's sake: more is a
// failure, since then not all was seen.
const mostStates = 150_000_000

func (s *scene) run(t *testing.T) found {
	var f found
	if s.walks > 0 {
		f = s.wander(t)
	} else {
		f = s.explore(t, reduced)
	}
	t.Logf("%s: %d states, %d steps, %d deep; %d plays of processes, %d moves, %d nodes; %v", s.extent(), f.states, f.steps, f.deepest, f.plays, f.moves, f.nodes, f.took.Round(time.Millisecond))
	for _, o := range slices.Sorted(maps.Keys(f.outcomes)) {
		t.Logf("%8d %s", f.outcomes[o], o)
	}
	if f.wrong != "" {
		t.Fatalf("%s: %s\n%s", s.name, f.wrong, strings.Join(f.trace, "\n"))
	}
	return f
}
