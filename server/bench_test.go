package server

import (
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"majordomus/server/session"
)

// asker asks over a link and reads nothing but the answer.
func asker(p *place, id string) func(line string) time.Duration {
	l := p.peer(id)
	return func(line string) time.Duration {
		began := time.Now()
		if _, err := io.WriteString(l.conn, line+"\n"); err != nil {
			p.t.Fatal(err)
		}
		for answer := range l.heard {
			if answer[0] != '!' {
				return time.Since(began)
			}
		}
		p.t.Fatal("the link has ended")
		return 0
	}
}

// ratio takes two in turns, and reports the median of the pairs' ratios.
func ratio(b *testing.B, one, other func() time.Duration, unit string) {
	for range 200 {
		one()
		other()
	}
	ratios := make([]float64, 0, 1<<16)
	for b.Loop() {
		ratios = append(ratios, float64(one())/float64(other()))
	}
	slices.Sort(ratios)
	b.ReportMetric(ratios[len(ratios)/2], unit)
}

// What recording adds to a small call, straight on a link. The figure asked for
// is at most 1.05 through a bridge, where the same call takes longer. Two servers
// that both record come to 1.01 here.
func BenchmarkRecording(b *testing.B) {
	with := settle(b, nil)
	without := prepare(b, nil)
	quiet := without.server.sessions()
	quiet.Calls = nil
	without.server.core = session.New(quiet)
	without.run()
	small := call("1", "majordomus_wait", `{"seconds":0}`)
	one, other := asker(with, "1111"), asker(without, "1111")
	ratio(b, func() time.Duration { return one(small) }, func() time.Duration { return other(small) }, "recorded/unrecorded")
}

// The board with 50 peers and 200 claims, over which server this is. The figure
// asked for is at most 3.
func BenchmarkPeers(b *testing.B) {
	p := settle(b, nil)
	for i := range 49 {
		l := p.peer(fmt.Sprintf("4%03d", i))
		for c := range 4 {
			l.say(call(`"announce"`, "majordomus_announce", fmt.Sprintf(`{"intent":"rewrite part %d","scope":["src/p%02d/c%d","docs/%d.md","lib/shared%d"],"claim":"%d"}`, c, i, c, i, i%10, c)))
			l.hear(`"id":"announce"`)
		}
	}
	ask := asker(p, "1111")
	one, other := call("1", "majordomus_peers", `{}`), call("2", "majordomus_server", `{}`)
	ratio(b, func() time.Duration { return ask(one) }, func() time.Duration { return ask(other) }, "peers/server")
}
