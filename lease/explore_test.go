package lease

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"majordomus/lease/checkout"
)

var deep = flag.Bool("deep", false, "explore elections of more processes and more faults, for many minutes")

// A scene is who plays, and what may befall them.
type scene struct {
	name    string
	players []func(*player)
	crashes int // kill -9, at any step
	stops   int // SIGSTOP, at any step, and SIGCONT at any later one
	rms     int // rm of the lease, of server.lock or of the folder, at any step
}

// mostStates is how many a scene may come to: more is a failure, since then not
// all was seen.
const mostStates = 5_000_000

// In this world a look costs nothing and waiting is what takes time, so the
// durations only have to be in the order that real ones are in.
var worldly = Timings{ProbeTimeout: 8 * time.Millisecond, BusyGrace: 16 * time.Millisecond, BindGrace: 40 * time.Millisecond, JoinTimeout: 80 * time.Millisecond}

// serves is the life of a server: it stands for election, publishes, looks
// whether it may admit somebody, and gives the lease up.
func serves(version string) func(*player) {
	return func(p *player) {
		p.version = version
		e, err := p.elect()
		switch {
		case err != nil:
			p.outcome = "alone: " + reason(err)
			return
		case e.Role == Peer:
			p.outcome = "joined " + *e.Peer.URL
			return
		}
		t := e.Tenure
		p.tenure = t
		p.url = p.address() // bound, and answering
		if err := t.Publish(p.url); err != nil {
			p.url = ""
			p.outcome = "lost before it served"
			if !errors.Is(err, ErrLost) {
				p.outcome = "alone: " + reason(err)
			}
		} else {
			p.outcome = "served"
			t.IsOwn() // ignore error: somebody knocks
			p.step("be knocked at again")
			t.IsOwn() // ignore error: as above
		}
		p.ending = true
		p.forget(p.outcome)
		p.step("decide to end")
		t.Release() // ignore error: the next one gets past it
		p.url = ""
		p.tenure = nil
	}
}

// stays is a server that never ends.
func stays(version string) func(*player) {
	return func(p *player) {
		p.version = version
		e, err := p.elect()
		switch {
		case err != nil:
			p.outcome = "alone: " + reason(err)
			return
		case e.Role == Peer:
			p.outcome = "joined " + *e.Peer.URL
			return
		}
		p.tenure, p.url = e.Tenure, p.address()
		if err := e.Tenure.Publish(p.url); err != nil {
			p.url, p.outcome = "", "lost before it served"
			if !errors.Is(err, ErrLost) {
				p.outcome = "alone: " + reason(err)
			}
			e.Tenure.Release() // ignore error: as above
			p.tenure = nil
			return
		}
		p.outcome = "serves"
	}
}

func reason(err error) string {
	for _, e := range []error{ErrElsewhere, ErrUnreadable, ErrLockBusy, ErrLost, context.DeadlineExceeded} {
		if errors.Is(err, e) {
			return e.Error()
		}
	}
	return err.Error()
}

func (p *player) address() string { return "http://127.0.0.1:" + p.name }

func (p *player) elect() (Election, error) {
	f, err := Open(p.config())
	if err != nil {
		return Election{}, err
	}
	defer f.Close()
	began := time.Now()
	e, err := f.Elect(context.Background(), Candidate{Listen: func(string) (string, error) {
		p.url = p.address() // the kernel takes connections from here on
		return p.url, nil
	}})
	if p.url != "" && (err != nil || e.Role == Peer) {
		p.url = ""
	}
	if took := time.Since(began); took > p.w.timings.JoinTimeout+2*p.w.timings.ProbeTimeout+p.w.stood {
		p.w.fault("%s took %v to be told who serves", p.name, took)
	}
	if err == nil && e.Role == Server {
		p.tenure = e.Tenure
	}
	// How it came to this makes no difference from here on.
	p.forget(e.Role, err == nil, p.tokens, time.Since(p.w.began))
	return e, err
}

// forget says that the process knows nothing but this, and its tenure.
func (p *player) forget(but ...any) {
	p.history = 0
	p.note(but...)
	if t := p.tenure; t != nil {
		p.note(t.doc.StartedAt, t.doc.address(), t.published, t.released, t.lostAt)
	}
}

func (p *player) config() Config {
	return Config{
		Checkout: p.w.checkout, Timings: p.w.timings, Version: p.version,
		disk: playerDisk{p}, ask: p.ask,
		token: func() string {
			p.tokens++
			return fmt.Sprintf("%032x", int(p.name[0])<<8+p.tokens)
		},
	}
}

// A choice is what the scheduler does next: a player takes its step, or a fault
// befalls somebody.
type choice struct{ what, who string }

func (c choice) String() string { return strings.TrimSuffix(c.what+":"+c.who, ":") }

// play plays one schedule: the choices of script, then the first ones there are,
// until all is over or until seen knows the world. It returns, for each moment
// from the end of the script on, what could have been chosen there.
func (s scene) play(t *testing.T, c *checkout.Checkout, script []choice, seen func(key string) bool) (open [][]choice, wrong string, trace []string, end map[string]string) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{checkout: c, timings: worldly, began: time.Now(), written: map[string]*player{}}
		w.folder = w.newInode(true)
		if w.fixed = s.rms == 0; w.fixed {
			w.folder.names[lockName] = w.newInode(false)
		}
		for i, life := range s.players {
			w.players = append(w.players, &player{w: w, name: string(rune('a' + i)), life: life})
		}
		for _, p := range w.players {
			p.start()
		}
		crashes, stops, rms := s.crashes, s.stops, s.rms
		for n := 0; w.wrong == ""; n++ {
			synctest.Wait()
			w.check()
			if w.wrong != "" {
				break
			}
			if n >= len(script) && seen(w.key(fmt.Sprint(crashes, stops, rms))) {
				break
			}
			list := w.choices(crashes, stops, rms)
			if len(list) == 0 {
				w.over(s)
				break
			}
			c := list[0]
			if n < len(script) {
				c = script[n]
				if !slices.Contains(list, c) {
					w.fault("the schedule does not come to %v: there is %v", c, list)
					break
				}
			} else {
				open = append(open, list)
			}
			step := c.String()
			if p := w.player(c.who); p != nil && c.what == "go" {
				step += " " + p.wants
			}
			trace = append(trace, fmt.Sprintf("%v %s", w.now(), step))
			switch c.what {
			case "go":
				w.player(c.who).grant <- struct{}{}
			case "kill":
				crashes--
				w.player(c.who).kill()
			case "stop":
				stops--
				p := w.player(c.who)
				p.stopped = true
				p.since = w.now()
			case "cont":
				p := w.player(c.who)
				p.stopped = false
				w.stood += w.now() - p.since
			case "rm":
				rms--
				w.actor = nil
				if c.who == "." {
					w.folder = nil
				} else {
					delete(w.folder.names, c.who)
				}
			case "time":
				w.meet()
				time.Sleep(time.Millisecond)
			}
		}
		end = map[string]string{}
		for _, p := range w.players {
			end[p.name] = p.outcome
		}
		wrong = w.wrong
		for _, p := range w.players {
			if !p.done && !p.dead {
				p.kill()
			}
		}
		// What is asleep wakes, and finds itself dead.
		w.meet()
		time.Sleep(time.Minute)
	})
	return open, wrong, trace, end
}

func (w *world) player(name string) *player {
	for _, p := range w.players {
		if p.name == name {
			return p
		}
	}
	return nil
}

// choices are what may happen next. Time passes when nobody is able to go on;
// and at any moment for whoever is stopped.
func (w *world) choices(crashes, stops, rms int) []choice {
	var list []choice
	asleep := false
	for _, p := range w.players {
		if p.done || p.dead || p.stopped {
			continue
		}
		if p.wants != "" {
			list = append(list, choice{"go", p.name})
		} else {
			asleep = true
		}
	}
	if len(list) == 0 && asleep {
		list = append(list, choice{"time", ""})
	}
	for _, p := range w.players {
		if p.dead || p.done && p.url == "" {
			continue
		}
		if p.stopped {
			list = append(list, choice{"cont", p.name})
			continue
		}
		if crashes > 0 {
			list = append(list, choice{"kill", p.name})
		}
		if stops > 0 {
			list = append(list, choice{"stop", p.name})
		}
	}
	if rms > 0 && w.folder != nil {
		for _, name := range []string{documentName, lockName} {
			if w.folder.names[name] != nil {
				list = append(list, choice{"rm", name})
			}
		}
		list = append(list, choice{"rm", "."})
	}
	// A world in which all there is to do is to go on with a stopped one, or to
	// harm somebody, is over unless somebody is there to be harmed or go on.
	if !slices.ContainsFunc(list, func(c choice) bool { return c.what == "go" || c.what == "time" || c.what == "cont" }) {
		return nil
	}
	return list
}

// over looks at what has come of it all, and lets one more process take the
// lease in what is left.
func (w *world) over(s scene) {
	faulty := s.crashes+s.stops+s.rms > 0
	took := 0
	for _, p := range w.players {
		took += p.took
		switch {
		case p.dead:
		case p.outcome == "":
			w.fault("%s came to no end", p.name)
		case strings.HasPrefix(p.outcome, "alone") && !faulty:
			w.fault("%s is %s, and nothing went wrong", p.name, p.outcome)
		}
	}
	if !faulty && took > len(w.players) {
		w.fault("the lease was taken %d times by %d processes", took, len(w.players))
	}
	for _, p := range w.players {
		if !p.done {
			p.kill()
		} else {
			for _, l := range p.handles { // it has ended: as its process does
				l.drop()
			}
			p.dead, p.url = true, ""
		}
	}
	next := &player{w: w, name: "z", life: serves("v1.0.0")}
	w.players = append(w.players, next)
	next.start()
	for synctest.Wait(); !next.done; synctest.Wait() {
		if next.wants != "" {
			next.grant <- struct{}{}
		} else {
			w.meet()
			time.Sleep(time.Millisecond)
		}
	}
	if next.outcome != "served" {
		w.fault("the next process is %s", next.outcome)
	}
	for _, name := range slices.Sorted(maps.Keys(w.folder.names)) {
		if name != lockName {
			w.fault("%s is left behind", name)
		}
	}
}

// explore plays every schedule there is, of which those that come to the same
// world are one.
func (s scene) explore(t *testing.T) (states, runs int, outcomes map[string]int) {
	c := newCheckout(t) // one: its root is in every lease
	visited := map[string]bool{}
	outcomes = map[string]int{}
	todo := [][]choice{nil}
	for len(todo) > 0 {
		script := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		runs++
		open, wrong, trace, end := s.play(t, c, script, func(key string) bool {
			if visited[key] {
				return true
			}
			visited[key] = true
			return false
		})
		if wrong != "" {
			t.Fatalf("%s: %s\n%s", s.name, wrong, strings.Join(trace, "\n"))
		}
		for who, what := range end {
			if what != "" {
				outcomes[who+" "+what]++
			}
		}
		if len(visited) > mostStates {
			t.Fatalf("%s: more than %d states; not all were seen", s.name, mostStates)
		}
		// At each moment of the way: what else there was.
		way := slices.Clone(script)
		for _, list := range open {
			for _, c := range list[1:] {
				todo = append(todo, append(slices.Clone(way), c))
			}
			way = append(way, list[0])
		}
	}
	return len(visited), runs, outcomes
}

func TestExplore(t *testing.T) {
	v1, v2 := "v1.0.0", "v2.0.0"
	scenes := []scene{
		{name: "two", players: []func(*player){serves(v1), serves(v1)}},
		{name: "an older release that ends and a newer one", players: []func(*player){serves(v1), stays(v2)}},
		{name: "a kill", players: []func(*player){stays(v1), serves(v1)}, crashes: 1},
	}
	if *deep {
		scenes = append(scenes,
			scene{name: "three", players: []func(*player){stays(v1), stays(v1), serves(v1)}},
			scene{name: "two kills", players: []func(*player){stays(v1), stays(v1)}, crashes: 2},
			scene{name: "a newer release and a kill", players: []func(*player){stays(v1), stays(v2)}, crashes: 1},
			scene{name: "a stop", players: []func(*player){stays(v1), stays(v1)}, stops: 1},
			scene{name: "a newer release and a stop", players: []func(*player){stays(v1), stays(v2)}, stops: 1},
			scene{name: "an rm", players: []func(*player){stays(v1), stays(v1)}, rms: 1},
		)
	}
	for _, s := range scenes {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			states, runs, outcomes := s.explore(t)
			t.Logf("%d states in %d runs, %v: %v", states, runs, time.Since(began).Round(time.Millisecond), outcomes)
		})
	}
}
