package main

import (
	"strings"
	"testing"

	"majordomus/server"
	"majordomus/server/hub"
	"majordomus/server/hub/config"
)

func TestUpstreamsAsText(t *testing.T) {
	t.Parallel()
	running := func(name string, clients int, memory ...int64) hub.State {
		s := hub.State{Name: name, State: "ready", Share: config.ShareCheckout, Clients: clients, Tools: 3, Calls: 12}
		for i, m := range memory {
			s.Processes = append(s.Processes, hub.Process{PID: 100 + i, Memory: m})
		}
		return s
	}
	own := running("own", 8, 50<<20, 60<<20)
	own.Share = config.ShareSession
	failed := hub.State{Name: "web", State: "failed", Share: config.ShareCheckout, Clients: 8, Errors: 2, LastError: "it ended with exit code 3"}
	odd := running("odd", 1, 90<<20)
	odd.LeftOut = []hub.LeftOut{{Kind: "tools", Name: "x \"y\"", Reason: "its inputSchema lacks type"}, {Kind: "resourceTemplates", Name: "a:{b}", Reason: "it lacks name"}}
	slow := hub.State{Name: "slow", State: "starting", Share: config.ShareCheckout, Waiting: "it has not answered initialize within 5s"}
	for name, x := range map[string]struct {
		all  server.Upstreams
		want string
	}{
		"some": {server.Upstreams{Upstreams: []hub.State{running("a", 8, 90<<20), running("b", 8, 90<<20), running("c", 8, 90<<20), own, failed}}, `
NAME  STATE   SHARE     PID      MEMORY  TOOLS  CALLS  ERRORS
a     ready   checkout  100      90 MB   3      12     0
b     ready   checkout  100      90 MB   3      12     0
c     ready   checkout  100      90 MB   3      12     0
own   ready   session   100,101  110 MB  3      12     0
web   failed  checkout  -        -       0      0      2
web: the last error: it ended with exit code 3
3 servers serve 8 editors: 3 processes instead of 24, about 1.8 GB saved
`},
		"one editor": {server.Upstreams{Upstreams: []hub.State{running("a", 1, 90<<20)}}, `
NAME  STATE  SHARE     PID  MEMORY  TOOLS  CALLS  ERRORS
a     ready  checkout  100  90 MB   3      12     0
`},
		"left out": {server.Upstreams{Upstreams: []hub.State{odd}}, `
NAME  STATE  SHARE     PID  MEMORY  TOOLS  CALLS  ERRORS
odd   ready  checkout  100  90 MB   3      12     0
odd: left out is the tool "x \"y\"": its inputSchema lacks type
odd: left out is the resource template "a:{b}": it lacks name
`},
		"slow": {server.Upstreams{Upstreams: []hub.State{slow}}, `
NAME  STATE     SHARE     PID  MEMORY  TOOLS  CALLS  ERRORS
slow  starting  checkout  -    -       0      0      0
slow: it has not answered initialize within 5s
`},
		"one server": {server.Upstreams{Upstreams: []hub.State{running("a", 2, 0)}}, `
NAME  STATE  SHARE     PID  MEMORY  TOOLS  CALLS  ERRORS
a     ready  checkout  100  -       3      12     0
1 server serves 2 editors: 1 process instead of 2
`},
		"none": {server.Upstreams{}, `
this checkout hosts no servers; majordomus upstream import takes them over from an editor's file
`},
		"untrusted": {server.Upstreams{Reason: "the servers file is not trusted", Untrusted: true, Problems: []config.Problem{{Line: 3, Key: "mcpServers.x", Reason: "has no command"}}}, `
nothing is hosted: the servers file is not trusted
majordomus trust shows what it would run, and lets it
left out: line 3: mcpServers.x: has no command
`},
	} {
		var b strings.Builder
		if writeUpstreams(&b, x.all); b.String() != x.want[1:] {
			t.Errorf("%s:\n%s\nwant:\n%s", name, b.String(), x.want[1:])
		}
	}
}
