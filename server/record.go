package server

import (
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"majordomus/bridge/frame"
	"majordomus/server/board"
	"majordomus/server/session"
)

// recorder puts the calls of tools on the board.
type recorder struct{ s *Server }

// longestTool is as much of a tool's name as is kept: a client may call anything.
const longestTool = 128

// tool is what a request calls, and whose it is. It is asked again when the call
// has ended: before the first one a hosted server's tools may not be known.
func (r recorder) tool(q session.Request) (name, upstream string, reads bool) {
	name, _ = frame.Text(frame.Get(q.Message().Params, "name"))
	if r.s.hub != nil {
		upstream, reads = r.s.hub.Tool(name)
	}
	return name, upstream, reads
}

func (r recorder) Began(q session.Request) uint64 {
	who := q.Caller()
	tool, upstream, _ := r.tool(q)
	return r.s.board.Began(board.Execution{
		Peer: who.ID, Client: who.Client, Tool: shortName(tool), Upstream: upstream, Started: time.Now().UTC(),
	})
}

func (r recorder) Ended(number uint64, q session.Request, outcome string, took time.Duration) {
	s := r.s
	tool, upstream, reads := r.tool(q)
	if upstream == "" && s.mcp.GetTool(tool) == nil {
		tool = "unknown"
	}
	s.measures.called(tool, upstream, outcome, took)
	if upstream != "" && outcome == "ok" {
		r.touch(q, reads) // first: whoever is told of the end looks what it touched
	}
	s.board.Ended(number, outcome, took)
}

// touch notes the paths that a call of a hosted tool named. Our own tools touch
// nothing.
func (r recorder) touch(q session.Request, reads bool) {
	s := r.s
	if s.cfg.Checkout == nil || !s.cfg.Policy.ObservePaths || len(q.Message().Params) > largestLooked {
		return
	}
	var paths []string
	for _, p := range named(frame.Get(q.Message().Params, "arguments")) {
		// What is not there, once the call has ended, was no path: a query, or a
		// path of some other thing. A file that the call removed is missed.
		below, reason := board.Inside(s.cfg.Checkout.Root, p, s.fold)
		if reason != "" || below == "." {
			continue
		}
		if _, err := os.Lstat(filepath.Join(s.cfg.Checkout.Root, filepath.FromSlash(below))); err == nil {
			paths = append(paths, below)
		}
	}
	if len(paths) > 0 {
		s.board.Touch(q.Caller().Key, paths, !reads)
	}
}

const (
	largestLooked = 64 << 10
	mostNamedIn   = 32 // paths of one call
)

// pathNames are the arguments in which tools take paths, without case and
// without what joins their words.
var pathNames = map[string]bool{
	"path": true, "paths": true, "file": true, "files": true, "uri": true, "uris": true,
	"filepath": true, "filepaths": true, "filename": true, "filenames": true, "absolutepath": true, "relativepath": true,
	"dir": true, "directory": true, "folder": true, "source": true, "destination": true, "from": true, "to": true,
	"target": true, "targetfile": true, "oldpath": true, "newpath": true, "notebookpath": true,
}

// unjoined takes out what joins the words of a name.
var unjoined = strings.NewReplacer("_", "", "-", "")

// named are the paths that arguments name.
func named(arguments []byte) []string {
	var paths []string
	add := func(raw []byte) bool {
		if p, ok := frame.Text(raw); ok && p != "" && (!strings.Contains(p, "://") || strings.HasPrefix(p, "file://")) {
			paths = append(paths, p)
		}
		return len(paths) < mostNamedIn
	}
	// ignore error: what is no object names nothing
	_ = frame.Members(arguments, func(key string, value []byte) bool {
		if !pathNames[strings.ToLower(unjoined.Replace(key))] {
			return true
		}
		if len(value) > 0 && value[0] == '[' {
			_ = frame.Elements(value, add) // ignore error: as above
			return len(paths) < mostNamedIn
		}
		return add(value)
	})
	return paths
}

// shortName is a tool's name as it is shown. Hardly any needs a change.
func shortName(tool string) string {
	if len(tool) <= longestTool && strings.IndexFunc(tool, func(r rune) bool { return r == ' ' || r == utf8.RuneError || unseen(r) }) < 0 {
		return tool
	}
	return brief(tool, longestTool)
}
