package lease

import (
	"errors"
	"testing"
	"time"
)

func TestJudge(t *testing.T) {
	const (
		token = "0123456789abcdef0123456789abcdef"
		other = "fedcba9876543210fedcba9876543210"
		grace = 15 * time.Second
		busy  = 3 * time.Second
		probe = time.Second
	)
	mine := ExecutableIdentity{Path: "/bin/mj", MTime: 5, Size: 5}
	doc := func(change func(*Document)) File {
		d := Document{Schema: Schema, Token: token, URL: ptr("http://127.0.0.1:1"), Executable: ExecutableIdentity{Path: "/bin/mj", MTime: 4, Size: 4}, Version: "v1.2.3", Auth: "key"}
		if change != nil {
			change(&d)
		}
		return File{State: Present, Document: d}
	}
	bound, binding := doc(nil), doc(func(d *Document) { d.URL = nil })
	index := func(change func(*Index)) ProbeReply {
		x := Index{Version: "v1.2.3"}
		if change != nil {
			change(&x)
		}
		return ProbeReply{Outcome: Ours, Index: x}
	}
	stale := index(func(x *Index) { x.Stale = ptr("replaced") })
	older := index(func(x *Index) { x.Version = "v1.2.2" })
	said := func(o Outcome) ProbeReply { return ProbeReply{Outcome: o, Err: errors.New(o.String())} }

	tests := []struct {
		name       string
		sight      Sight
		want       Action
		superseded bool
	}{
		{"absent", Sight{File: File{State: Absent}}, Free, false},
		{"empty", Sight{File: File{State: Empty}}, TakeOver, false},
		{"corrupt", Sight{File: File{State: Corrupt}}, TakeOver, false},
		{"unreadable", Sight{File: File{State: Unreadable}}, Wait, false},
		{"unreadable nearly for busy grace", Sight{File: File{State: Unreadable}, Unchanged: busy - 1}, Wait, false},
		{"unreadable for busy grace", Sight{File: File{State: Unreadable}, Unchanged: busy}, Elsewhere, false},
		{"a state nobody knows", Sight{File: File{State: 99}}, Wait, false},

		{"binding, alive", Sight{File: binding, Exists: true, Alive: true}, Wait, false},
		{"binding, alive, nearly for bind grace", Sight{File: binding, Exists: true, Alive: true, Unchanged: grace - 1}, Wait, false},
		{"binding, alive, for bind grace", Sight{File: binding, Exists: true, Alive: true, Unchanged: grace}, TakeOver, false},
		{"binding, alive, an old file by a foreign clock", Sight{File: binding, Exists: true, Alive: true, FileAge: time.Hour}, Wait, false},
		{"binding, dead", Sight{File: binding, Exists: true}, TakeOver, false},
		{"binding, other maker, young", Sight{File: binding, FileAge: grace - 1}, Wait, false},
		{"binding, other maker, old", Sight{File: binding, FileAge: grace}, TakeOver, false},
		{"binding, other maker, from the future, watched", Sight{File: binding, FileAge: -time.Hour, Unchanged: grace}, TakeOver, false},
		{"binding, waited for before", Sight{File: binding, Exists: true, Alive: true, History: History{JudgedStale: token}}, TakeOver, false},
		{"binding, another one waited for before", Sight{File: binding, Exists: true, Alive: true, History: History{JudgedStale: other}}, Wait, false},

		{"not asked", Sight{File: bound, Exists: true, Alive: true}, Wait, false},
		{"ours", Sight{File: bound, Exists: true, Alive: true, Asked: true, Reply: index(nil)}, Join, false},
		{"ours, its .alive gone", Sight{File: bound, Asked: true, Reply: index(nil)}, Join, false},
		{"ours, its .alive free: locks do not reach here", Sight{File: bound, Exists: true, Asked: true, Reply: index(nil)}, Join, false},
		{"ours, although waited for before", Sight{File: bound, Asked: true, Reply: index(nil), History: History{JudgedStale: token}}, Join, false},

		{"stale, my path", Sight{File: bound, Asked: true, Reply: stale, Self: mine}, TakeOver, true},
		{"stale, my path, and my file replaced too: I start the new one", Sight{File: bound, Asked: true, Reply: stale, Self: mine, SelfReplaced: true}, TakeOver, true},
		{"stale, another path", Sight{File: bound, Asked: true, Reply: stale, Self: ExecutableIdentity{Path: "/opt/mj"}}, Join, false},
		{"stale, no path known of either", Sight{File: doc(func(d *Document) { d.Executable = ExecutableIdentity{} }), Asked: true, Reply: stale}, Join, false},
		{"not stale by its own word, although its file differs from mine at my path", Sight{File: bound, Asked: true, Reply: index(nil), Self: mine}, Join, false},
		{"stale, in-process", Sight{File: bound, Asked: true, Reply: stale, Self: mine, History: History{InProcess: true}}, TakeOver, true},
		{"stale, in-process and replaced", Sight{File: bound, Asked: true, Reply: stale, Self: mine, SelfReplaced: true, History: History{InProcess: true}}, Join, false},
		{"stale, after a start of my own", Sight{File: bound, Asked: true, Reply: stale, Self: mine, History: History{StartedOwn: true}}, Join, false},

		{"older release", Sight{File: bound, Asked: true, Reply: older, Version: "v1.2.3"}, TakeOver, true},
		{"older release, my file replaced", Sight{File: bound, Asked: true, Reply: older, Version: "v1.2.3", SelfReplaced: true}, Join, false},
		{"older release, after a start of my own", Sight{File: bound, Asked: true, Reply: older, Version: "v1.2.3", History: History{StartedOwn: true}}, Join, false},
		{"older release, in-process and replaced", Sight{File: bound, Asked: true, Reply: older, Version: "v1.2.3", SelfReplaced: true, History: History{InProcess: true}}, Join, false},
		{"newer release", Sight{File: bound, Asked: true, Reply: index(nil), Version: "v1.2.2"}, Join, false},
		{"same release", Sight{File: bound, Asked: true, Reply: index(nil), Version: "v1.2.3"}, Join, false},
		{"mine unpublished", Sight{File: bound, Asked: true, Reply: older, Version: "(devel)"}, Join, false},
		{"its unpublished", Sight{File: bound, Asked: true, Reply: index(func(x *Index) { x.Version = "v1.2.2+dirty" }), Version: "v1.2.3"}, Join, false},
		{"its version only in the lease", Sight{File: bound, Asked: true, Reply: index(func(x *Index) { x.Version = "" }), Version: "v1.3.0"}, TakeOver, true},

		{"not the holder", Sight{File: bound, Exists: true, Alive: true, Asked: true, Reply: said(NotHolder)}, TakeOver, false},
		{"not the holder, no .alive", Sight{File: bound, Asked: true, Reply: said(NotHolder)}, TakeOver, false},

		{"silent, alive", Sight{File: bound, Exists: true, Alive: true, Asked: true, Reply: said(Silent), Silent: busy - 1}, Wait, false},
		{"silent, alive, for busy grace", Sight{File: bound, Exists: true, Alive: true, Asked: true, Reply: said(Silent), Silent: busy}, TakeOver, false},
		{"silent, alive, waited for before", Sight{File: bound, Exists: true, Alive: true, Asked: true, Reply: said(Silent), History: History{JudgedStale: token}}, TakeOver, false},
		{"silent, dead", Sight{File: bound, Exists: true, Asked: true, Reply: said(Silent)}, TakeOver, false},
		{"silent, no .alive", Sight{File: bound, Asked: true, Reply: said(Silent), Silent: busy - 1}, Wait, false},
		{"silent, no .alive, for busy grace", Sight{File: bound, Asked: true, Reply: said(Silent), Silent: busy}, TakeOver, false},

		{"refused, dead", Sight{File: bound, Exists: true, Asked: true, Reply: said(Refused)}, TakeOver, false},
		{"stranger, dead", Sight{File: bound, Exists: true, Asked: true, Reply: said(Stranger)}, TakeOver, false},
		{"unreachable, dead", Sight{File: bound, Exists: true, Asked: true, Reply: said(Unreachable)}, TakeOver, false},
		{"refused, no .alive", Sight{File: bound, Asked: true, Reply: said(Refused)}, TakeOver, false},
		{"stranger, no .alive", Sight{File: bound, Asked: true, Reply: said(Stranger)}, TakeOver, false},
		{"unreachable, no .alive", Sight{File: bound, Asked: true, Reply: said(Unreachable), Shut: busy - 1}, Wait, false},
		{"unreachable, no .alive, for busy grace", Sight{File: bound, Asked: true, Reply: said(Unreachable), Shut: busy}, TakeOver, false},
		{"refused, alive", Sight{File: bound, Exists: true, Alive: true, Asked: true, Reply: said(Refused), Shut: probe - 1}, Wait, false},
		{"refused, alive, for a probe timeout", Sight{File: bound, Exists: true, Alive: true, Asked: true, Reply: said(Refused), Shut: probe}, Elsewhere, false},
		{"unreachable, alive, for a probe timeout", Sight{File: bound, Exists: true, Alive: true, Asked: true, Reply: said(Unreachable), Shut: probe}, Elsewhere, false},
		{"stranger, alive, for a probe timeout", Sight{File: bound, Exists: true, Alive: true, Asked: true, Reply: said(Stranger), Shut: probe}, Elsewhere, false},
		{"refused, alive, for an hour: never taken over", Sight{File: bound, Exists: true, Alive: true, Asked: true, Reply: said(Refused), Shut: time.Hour, Unchanged: time.Hour, FileAge: time.Hour}, Elsewhere, false},
		{"refused, alive, waited for before", Sight{File: bound, Exists: true, Alive: true, Asked: true, Reply: said(Refused), Shut: probe, History: History{JudgedStale: token}}, Elsewhere, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := Judge(tt.sight)
			if got.Action != tt.want || got.Superseded != tt.superseded {
				t.Errorf("Judge = %v, superseded %v (%s); want %v, %v", got.Action, got.Superseded, got.Reason, tt.want, tt.superseded)
			}
			if got.Reason == "" {
				t.Error("no reason")
			}
			if got.File.State != tt.sight.File.State {
				t.Error("the verdict is not about what was judged")
			}
		})
	}
}

// Two processes that each find the other's server worth replacing would take
// turns for ever. Each world holds a process of either kind; both judge the
// server that the other started.
func TestJudgeNeverPingPongs(t *testing.T) {
	type proc struct {
		path      string
		replaced  bool // its own file
		version   string
		inProcess bool
	}
	var procs []proc
	for _, path := range []string{"/a", "/b"} {
		for _, replaced := range []bool{false, true} {
			for _, version := range []string{"v1.0.0", "v2.0.0", "(devel)"} {
				for _, inProcess := range []bool{false, true} {
					procs = append(procs, proc{path, replaced, version, inProcess})
				}
			}
		}
	}
	// What runs after p has served or started a server: in-process p itself;
	// else what lies at its path, which is p unless it was replaced.
	type server struct {
		path, version string
		stale         bool
	}
	onDisk := map[string]string{"/a": "v1.0.0", "/b": "v2.0.0"}
	serve := func(p proc) server {
		if p.inProcess {
			return server{p.path, p.version, p.replaced}
		}
		if p.replaced {
			return server{p.path, onDisk[p.path], false}
		}
		return server{p.path, p.version, false}
	}
	// supersedes reports whether p's own election would end with its server:
	// a launcher judges first, then the server it starts, which joins if it
	// judges otherwise.
	supersedes := func(p proc, s server) bool {
		judge := func(self server, replaced, inProcess bool) bool {
			x := Index{Version: s.version}
			if s.stale {
				x.Stale = ptr("replaced")
			}
			return Judge(Sight{
				File:  File{State: Present, Document: Document{URL: ptr("u"), Executable: ExecutableIdentity{Path: s.path}}},
				Asked: true, Reply: ProbeReply{Outcome: Ours, Index: x},
				Self: ExecutableIdentity{Path: self.path}, SelfReplaced: replaced, Version: self.version,
				History: History{InProcess: inProcess},
			}).Action == TakeOver
		}
		if !judge(server{path: p.path, version: p.version}, p.replaced, p.inProcess) {
			return false
		}
		started := serve(p)
		return p.inProcess || judge(started, false, false)
	}
	for _, p := range procs {
		for _, q := range procs {
			if supersedes(p, serve(q)) && supersedes(q, serve(p)) {
				t.Errorf("%+v and %+v replace each other's servers", p, q)
			}
		}
		if supersedes(p, serve(p)) {
			t.Errorf("%+v replaces its own server", p)
		}
	}
}

func TestCompareVersions(t *testing.T) {
	for _, tt := range []struct {
		server, mine string
		want         VersionVerdict
	}{
		{"v1.2.3", "v1.2.3", Same},
		{"v1.2", "v1.2.0", Same},
		{"v1.2.2", "v1.2.3", ServerOlder},
		{"v1.9.0", "v1.10.0", ServerOlder},
		{"v2.0.0", "v1.2.3", ServerNewer},
		{"v1.2.3-rc.1", "v1.2.3", ServerOlder},
		{"v1.2.3-rc.2", "v1.2.3-rc.10", ServerOlder},
		{"v1.2.3", "v1.2.3-rc.1", ServerNewer},
		{"", "v1.2.3", Unpublished},
		{"v1.2.3", "", Unpublished},
		{"", "", Unpublished},
		{"(devel)", "(devel)", Unpublished},
		{"v1.2.3+dirty", "v1.2.4", Unpublished},
		{"v1.2.2", "v1.2.3+dirty", Unpublished},
		{"v0.0.0-20260102030405-0123456789ab", "v1.2.3", Unpublished},
		{"v1.2.2", "v1.2.4-0.20260102030405-0123456789ab", Unpublished},
		{"v1.2.2", "v1.2.4-0.20260102030405-0123456789ab+dirty", Unpublished},
		{"v1.2.4-rc.1.0.20260102030405-0123456789ab", "v1.3.0", Unpublished},
		{"1.2.2", "v1.2.3", Unordered},
		{"nightly", "v1.2.3", Unordered},
		{"nightly", "nightly", Same},
		{"v1.2.3+a", "v1.2.3+b", Unordered},
	} {
		if got := CompareVersions(tt.server, tt.mine); got != tt.want {
			t.Errorf("CompareVersions(%q, %q) = %v, want %v", tt.server, tt.mine, got, tt.want)
		}
	}
}
