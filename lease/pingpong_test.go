package lease

import (
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A build is a program that was started: from a file of some path, in a place
// that has a file system and a network.
type build struct {
	path    string
	image   int // of what lay at the path then
	version string
	files   int // whose file system
	network int
}

// A match is who meets in one checkout: what lies on the disks, and the bridges
// of one editor each.
type match struct {
	disk    [2]map[string]build // by file system and path; what is missing is gone
	bridges []build
	inside  []bool // it serves in its own process
	vain    bool   // a server was started for nothing
	service string // the path that an OS service of the checkout runs; "": there is none
}

// identity is what the lease of a build says of it.
func (b build) identity() ExecutableIdentity {
	return ExecutableIdentity{Path: b.path, MTime: int64(1 + 10*b.files + b.image), Size: 1}
}

func (m *match) replaced(b build) bool {
	_, replaced := b.identity().replaced(func(path string) (fs.FileInfo, error) {
		now, there := m.disk[b.files][path]
		if !there {
			return nil, errno("stat", path, syscall.ENOENT)
		}
		return playedInfo{size: 1, at: time.Unix(now.identity().MTime, 0)}, nil
	})
	return replaced
}

// A round is how things stand: who serves, who is looking, and who of them has
// started a server already.
type round struct {
	server  int // among the builds that served; -1: nobody
	looking [3]bool
	started [3]bool
}

// verdict is Judge's about the server, for a process of build b.
func (m *match) verdict(b build, h History, server *build) Verdict {
	s := Sight{
		Self: b.identity(), SelfReplaced: m.replaced(b), Version: b.version,
		History: h, Timings: Timings{}.withDefaults(),
	}
	if server != nil {
		url := "http://127.0.0.1:1"
		s.File = File{State: Present, Document: Document{
			Schema: Schema, Token: strings.Repeat("0", 32), URL: &url, Version: server.version,
			Executable: server.identity(),
		}}
		s.Alive, s.Exists, s.Asked = true, true, true
		if server.network != b.network {
			s.Reply, s.Shut = ProbeReply{Outcome: Refused}, s.Timings.ProbeTimeout
		} else {
			s.Reply = ProbeReply{Outcome: Ours, Index: Index{Version: server.version}}
			if m.replaced(*server) {
				why := "its file was replaced"
				s.Reply.Index.Stale = &why
			}
		}
	}
	return Judge(s)
}

// moves are what can happen next, and whether a server is started by it.
func (m *match) moves(r round, builds *[]build, move func(to round, starts bool)) {
	var server *build
	if r.server >= 0 {
		server = &(*builds)[r.server]
	}
	for i, b := range m.bridges {
		if !r.looking[i] {
			continue
		}
		v := m.verdict(b, History{StartedOwn: r.started[i], InProcess: m.inside[i]}, server)
		to := r
		switch v.Action {
		case Free, TakeOver:
		default:
			to.looking[i], to.started[i] = false, false
			move(to, false)
			continue
		}
		next, ok := b, true
		if !m.inside[i] {
			path := b.path
			if m.service != "" {
				path = m.service
			}
			next, ok = m.disk[b.files][path]
			next.network = b.network
		}
		if !ok { // nothing there to start
			to.looking[i] = false
			move(to, false)
			continue
		}
		to.started[i] = true
		if !m.inside[i] {
			if w := m.verdict(next, History{}, server); w.Action != Free && w.Action != TakeOver {
				// It found one that serves, and ended. A service is another build
				// than its launcher; without, what is started is what was meant.
				m.vain = m.vain || m.service == ""
				move(to, true)
				continue
			}
		}
		to.server = -1
		for n, known := range *builds {
			if known == next {
				to.server = n
			}
		}
		if to.server < 0 {
			*builds = append(*builds, next)
			to.server = len(*builds) - 1
		}
		for j := range m.bridges { // whoever was with the other one looks again
			if !to.looking[j] {
				to.looking[j], to.started[j] = true, false
			}
		}
		if m.inside[i] {
			to.looking[i], to.started[i] = false, false
		}
		move(to, true)
	}
}

// endless returns a way that goes round in a circle and starts a server on it.
func (m *match) endless() bool {
	var builds []build
	begin := round{server: -1}
	for i := range m.bridges {
		begin.looking[i] = true
	}
	// By Tarjan: a start between two rounds that each lead to the other.
	index, low := map[round]int{}, map[round]int{}
	on := map[round]bool{}
	component := map[round]int{}
	var stack []round
	type edge struct{ from, to round }
	var starts []edge
	var visit func(r round)
	visit = func(r round) {
		index[r] = len(index) + 1
		low[r] = index[r]
		stack, on[r] = append(stack, r), true
		m.moves(r, &builds, func(to round, starting bool) {
			if starting {
				starts = append(starts, edge{r, to})
			}
			if index[to] == 0 {
				visit(to)
				low[r] = min(low[r], low[to])
			} else if on[to] {
				low[r] = min(low[r], index[to])
			}
		})
		if low[r] != index[r] {
			return
		}
		for {
			top := stack[len(stack)-1]
			stack, on[top] = stack[:len(stack)-1], false
			component[top] = index[r]
			if top == r {
				return
			}
		}
	}
	visit(begin)
	for _, e := range starts {
		if component[e.from] == component[e.to] {
			return true
		}
	}
	return false
}

// TestNoPingPong has every mix of paths, builds, releases, ways to serve and
// places meet, and asks Judge itself: without a fault, servers are not started,
// nor replaced, for ever.
func TestNoPingPong(t *testing.T) {
	versions := []string{"v1.0.0", "v2.0.0", "(devel)"}
	paths := []string{"/a/majordomus", "/b/majordomus"}
	// What may lie at a path, its image being 1: one of the versions, or nothing.
	disks := func(files int, each func(map[string]build)) {
		for _, a := range append(versions, "") {
			for _, b := range append(versions, "") {
				disk := map[string]build{}
				for i, v := range []string{a, b} {
					if v != "" {
						disk[paths[i]] = build{path: paths[i], image: 1, version: v, files: files}
					}
				}
				each(disk)
			}
		}
	}
	// Who may have been started in a place: what lies there now, or an older one.
	candidates := func(disk map[string]build, files, network int) (list []build) {
		for _, p := range paths {
			if now, ok := disk[p]; ok {
				now.network = network
				list = append(list, now)
			}
			for _, v := range versions {
				list = append(list, build{p, 0, v, files, network})
			}
		}
		return list
	}
	tried := 0
	try := func(m match) {
		tried++
		if m.endless() {
			t.Fatalf("servers replace each other for ever:\n%s", m)
		}
		if m.vain {
			t.Fatalf("a server is started for nothing:\n%s", m)
		}
	}
	modes := func(m match, each func(match)) {
		for mode := range 1 << len(m.bridges) {
			m.inside = nil
			for i := range m.bridges {
				m.inside = append(m.inside, mode>>i&1 == 1)
			}
			each(m)
		}
	}
	disks(0, func(disk map[string]build) {
		all := candidates(disk, 0, 0)
		for i, one := range all {
			for j, two := range all[i:] {
				modes(match{disk: [2]map[string]build{disk, nil}, bridges: []build{one, two}}, try)
				modes(match{disk: [2]map[string]build{disk, nil}, bridges: []build{one, two}, service: paths[0]}, try)
				if !*deep && len(disk) < 2 {
					continue
				}
				for _, three := range all[i+j:] {
					modes(match{disk: [2]map[string]build{disk, nil}, bridges: []build{one, two, three}}, try)
				}
			}
		}
	})
	t.Logf("in one place: %d", tried)
	tried = 0
	for _, place := range []struct{ files, network int }{{0, 1}, {1, 0}, {1, 1}} {
		disks(0, func(here map[string]build) {
			if place.files == 0 {
				for _, one := range candidates(here, 0, 0) {
					for _, two := range candidates(here, 0, place.network) {
						modes(match{disk: [2]map[string]build{here, nil}, bridges: []build{one, two}}, try)
					}
				}
				return
			}
			disks(1, func(there map[string]build) {
				for _, one := range candidates(here, 0, 0) {
					for _, two := range candidates(there, 1, place.network) {
						modes(match{disk: [2]map[string]build{here, there}, bridges: []build{one, two}}, try)
					}
				}
			})
		})
	}
	t.Logf("in two places: %d", tried)
}

func (m match) String() string {
	var b strings.Builder
	for i, disk := range m.disk {
		fmt.Fprintf(&b, "disk %d: %+v\n", i, disk)
	}
	if m.service != "" {
		fmt.Fprintf(&b, "service: %s\n", m.service)
	}
	for i, x := range m.bridges {
		fmt.Fprintf(&b, "bridge %+v, in its own process %t\n", x, m.inside[i])
	}
	return b.String()
}
