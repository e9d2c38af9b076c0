//go:build unix && !linux

package child

import (
	"context"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// memory asks ps, which every such system has, and which may know what other
// programs are not told. Where the members are not known, the leader is all.
func (g *group) memory() (rss int64, ok bool) {
	pids := []string{strconv.Itoa(g.id)}
	if members, known := membersOf(g.id); known {
		pids = nil
		for _, m := range members {
			if m.pid == g.id && m.start != g.start {
				return 0, false // the number is somebody else's by now
			}
			pids = append(pids, strconv.Itoa(m.pid))
		}
	}
	if len(pids) == 0 {
		return 0, false
	}
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/bin/ps", "-o", "rss=", "-p", strings.Join(pids, ","))
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if err != nil {
		return 0, false
	}
	for _, field := range strings.Fields(string(out)) {
		kilobytes, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, false
		}
		rss += kilobytes << 10
	}
	return rss, rss > 0
}
