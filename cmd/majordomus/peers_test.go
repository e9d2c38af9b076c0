//go:build unix

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"majordomus/server"
	"majordomus/server/board"
)

func boardGolden(t *testing.T, name, got string) {
	t.Helper()
	golden(t, filepath.Join("testdata", "board", name), got)
}

// golden compares what people see with the golden file.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: said\n%s\nwant\n%s", path, got, want)
	}
}

func TestPeersAsText(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 4, 15, 30, 0, 0, time.Local)
	claim := func(name, intent string, scope ...string) board.Claim {
		return board.Claim{Name: name, Intent: intent, Scope: scope}
	}
	view := func(id, client string, ago time.Duration, claims ...board.Claim) board.View {
		return board.View{Peer: board.Peer{ID: id, Client: client, Front: "link", Since: now.Add(-ago)}, Attached: true, Claims: claims, Checkout: "work", CheckoutID: "1"}
	}
	here := server.BoardState{Checkout: "work", CheckoutID: "1", This: true, State: "served"}

	claude := view("p1a2b", "claude-code", time.Hour, claim("default", "rewriting login", "src/auth", "src/session"), claim("docs", "", "docs"))
	claude.Touched = []board.Touched{{Path: "src/auth/token.go", Wrote: true}, {Path: "a b.txt"}, {Path: "go.mod"}}
	cursor := view("p3c4d", "cursor", 3*24*time.Hour)
	gone := view("p5e6f", "codex", 2*time.Hour, claim("default", "releasing", "CHANGELOG.md"))
	left := now.Add(-10 * time.Minute)
	gone.Attached, gone.DepartedAt = false, &left
	hand := view("pd653", "ada", time.Minute, claim("default", "moving the parser", "src/parse"))
	hand.Front = "hand"
	tree := view("p7788", "zed", 5*time.Minute, claim("default", "tokens", "src/auth/token.go"))
	tree.Checkout, tree.CheckoutID = "tree", "2"

	many := make([]string, 300)
	for i := range many {
		many[i] = "src/" + strings.Repeat("x", i%3+1)
	}
	sly := view("p0bad", "evil\x1b[2J\u202e", time.Minute,
		claim("default", "two\nlines \x1b]0;x\a"+strings.Repeat("and more ", 40), "a,b", "tab\there", "größe/日本", `qu"ote`, "\xff"),
		claim("many", "everything", many...))
	sly.Checkout = "work\x1b"
	for range 9 {
		sly.Touched = append(sly.Touched, board.Touched{Path: "x\x1b", Wrote: true})
	}

	side := func(v board.View) board.Side {
		return board.Side{Peer: v.ID, Client: v.Client, Checkout: v.Checkout}
	}
	for name, x := range map[string]server.Peers{
		"nobody": {Boards: []server.BoardState{here}, Complete: true},
		"some": {Peers: []board.View{cursor, claude, hand, gone}, Boards: []server.BoardState{here, {Checkout: "tree", CheckoutID: "2", State: "none"}}, Complete: true,
			Overlaps: []board.Overlap{
				{Kind: board.KindClaimed, Between: [2]board.Side{side(claude), side(hand)}, Paths: [][2]string{{"src/auth", "src/auth"}}},
				{Kind: board.KindTouched, Between: [2]board.Side{side(claude), side(cursor)}, Paths: [][2]string{{"src/auth", "src/auth/token.go"}, {"src/session", "src/session/a.go"}, {"docs", "docs/b"}}},
			}, LeftOut: 1},
		"repository": {Peers: []board.View{claude, tree}, Boards: []server.BoardState{here, {Checkout: "tree", CheckoutID: "2", State: "served"},
			{Checkout: "old", CheckoutID: "3", State: "unread", Reason: "its server does not answer: asking at 127.0.0.1:8742: connected, but no answer in time"}},
			Reasons:  []string{"reading the registered work trees: permission denied"},
			Overlaps: []board.Overlap{{Kind: board.KindClaimed, Between: [2]board.Side{side(claude), side(tree)}, Paths: [][2]string{{"src/auth", "src/auth/token.go"}}}}},
		"nobody-unread": {Boards: []server.BoardState{here}},
		"sly": {Peers: []board.View{sly}, Boards: []server.BoardState{here, {Checkout: "x\x1b", State: "unread", Reason: "y\x1b"}},
			Overlaps: []board.Overlap{{Between: [2]board.Side{side(sly), side(sly)}, Paths: [][2]string{{"a\x1b", "a\x1b"}}}, {Between: [2]board.Side{side(sly), side(sly)}}}},
	} {
		var b strings.Builder
		writePeers(&b, x, now)
		if strings.ContainsAny(b.String(), "\x1b\a\u202e") {
			t.Errorf("%s: what a peer says reaches the terminal: %q", name, b.String())
		}
		boardGolden(t, "peers-"+name+".txt", b.String())
	}
}

func TestAnnouncedAsText(t *testing.T) {
	t.Parallel()
	one := announced{Complete: true, Announced: board.Announced{
		Peer: "pd653", Claim: "parser", Intent: "moving the parser", Scope: []string{"src/parse", "a b"}, Released: []string{"src/old"},
		Overlaps: []board.Meeting{
			{Kind: board.KindClaimed, Peer: "p1a2b", Client: "claude-code", Attached: true, Checkout: "work", Intent: "rewriting login", Paths: []string{"src/parse/a.go"}},
			{Kind: board.KindTouched, Peer: "p1a2b", Client: "claude-code", Attached: true, Checkout: "work", Paths: []string{"src/parse/b.go"}},
			{Kind: board.KindClaimed, Peer: "p5e6f", Client: "codex\x1b", Checkout: "tree", Intent: "half\ndone", Paths: []string{"src", "x"}},
		}}}
	alone := announced{Announced: board.Announced{Peer: "pd653", Claim: "default", Intent: "x", Scope: []string{"."}}, Reasons: []string{"tree: its server does not answer"}}
	for name, x := range map[string]announced{
		"meets": one, "alone": alone,
		"done":    {Announced: board.Announced{Peer: "pd653", Claim: "default", Released: []string{"src/parse", "docs"}}, Complete: true},
		"nothing": {Announced: board.Announced{Peer: "pd653", Claim: "default"}, Complete: true},
	} {
		var b strings.Builder
		writeAnnounced(&b, x, "work")
		boardGolden(t, "announced-"+name+".txt", b.String())
	}
}

func TestExecutionsAsText(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 4, 15, 30, 0, 0, time.Local)
	call := func(n uint64, ago time.Duration, tool, outcome string, millis float64) board.Execution {
		return board.Execution{Number: n, Peer: "p1a2b", Client: "claude-code", Tool: tool, Started: now.Add(-ago), Millis: millis, Outcome: outcome}
	}
	sly := call(2, time.Hour, "files__read\x1b[2J", "ok", 12.345)
	sly.Client = "a client with rather a long name"
	for name, x := range map[string]server.Executions{
		"none": {},
		"some": {Running: []board.Execution{call(6, time.Second, "majordomus_wait", board.Running, 1000), call(5, 3*time.Minute, "files__copy", board.Running, 180_000)},
			Ended: []board.Execution{call(4, time.Minute, "files__write", "cancelled", 59_999), call(3, time.Minute, "files__write", "error", 999.4), sly, call(1, 24*time.Hour, "majordomus_server", "ok", 0.271)}},
	} {
		var b strings.Builder
		writeExecutions(&b, x, now)
		boardGolden(t, "executions-"+name+".txt", b.String())
	}
}
