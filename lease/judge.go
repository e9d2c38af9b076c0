package lease

import (
	"fmt"
	"time"
)

// History is what a process brings to a judgement besides what it sees.
type History struct {
	// StartedOwn says that it has already started a server in this search. It
	// then joins whatever live server answers: a newer launcher beside an
	// older build on disk would otherwise start that build again and again.
	StartedOwn bool
	// InProcess says that it would serve in itself, not start what lies on
	// disk.
	InProcess bool
	// JudgedStale is the token of a lease that whoever started this process
	// has already waited on.
	JudgedStale string
}

// Action is what a judgement comes to.
type Action int

const (
	Free      Action = iota // there is no lease
	Wait                    // look again
	Join                    // the server answers; use it
	TakeOver                // replace the lease
	Elsewhere               // the holder lives and cannot be reached, or nothing can be told; serve alone
)

func (a Action) String() string {
	switch a {
	case Free:
		return "free"
	case Wait:
		return "wait"
	case Join:
		return "join"
	case TakeOver:
		return "take over"
	case Elsewhere:
		return "elsewhere"
	}
	return fmt.Sprintf("Action(%d)", int(a))
}

// A Verdict is an action and what it is about.
type Verdict struct {
	Action Action
	Reason string // for people
	File   File   // what was judged
	// Superseded says that a live server is to be replaced: it must not be
	// before its successor listens.
	Superseded bool
}

// Sight is everything that a judgement rests on.
type Sight struct {
	File File

	Alive  bool // its .alive file is locked
	Exists bool // it has one

	// Asked says that Reply is the answer of a probe. A lease with an address
	// cannot be judged without.
	Asked bool
	Reply ProbeReply

	// By the judge's own monotonic clock: how long this very file has been
	// seen, and for how long in a row it has been silent, or refused,
	// unreachable or a stranger.
	Unchanged time.Duration
	Silent    time.Duration
	Shut      time.Duration

	// FileAge is how old the file says it is; it counts only where there is
	// no .alive file.
	FileAge time.Duration

	Self         ExecutableIdentity
	SelfReplaced bool // this process runs code that is no longer on disk
	Version      string
	History      History
	Timings      Timings
}

// Judge says what is to be done about a lease. It is a pure function, the same
// for those who would only join and those who would serve.
//
// The rules about replacing live servers are five, and each is needed. Any two
// processes that each find the other's server worth replacing would do so in
// turns, for ever; these leave no such pair, whatever mix of paths, builds,
// releases and containers meets in a checkout:
//
//   - that its code was replaced is believed of a server only by its own word,
//     since the same path can be another file in another place;
//   - whose own file was replaced makes no claim by version: what it would
//     start is not what it is;
//   - who would serve in itself and was replaced supersedes nobody;
//   - a live holder that cannot be reached is left alone;
//   - who has started a server once joins what there is.
func Judge(s Sight) Verdict {
	v := judge(s)
	v.File = s.File
	return v
}

func judge(s Sight) Verdict {
	t := s.Timings.withDefaults()
	switch s.File.State {
	case Absent:
		return Verdict{Action: Free, Reason: "there is no lease"}
	case Empty, Corrupt:
		// A taker never leaves one: it renames what it has written in full.
		return Verdict{Action: TakeOver, Reason: "the lease is " + s.File.Reason}
	case Unreadable:
		if s.Unchanged >= t.BusyGrace {
			return Verdict{Action: Elsewhere, Reason: fmt.Sprintf("the lease cannot be read: %v", s.File.Err)}
		}
		return Verdict{Action: Wait, Reason: fmt.Sprintf("the lease cannot be read: %v", s.File.Err)}
	case Present:
	default:
		return Verdict{Action: Wait, Reason: "the lease was not looked at"}
	}
	waitedFor := s.History.JudgedStale != "" && s.History.JudgedStale == s.File.Document.Token
	if s.File.Document.URL == nil {
		return judgeBinding(s, t, waitedFor)
	}
	if !s.Asked {
		return Verdict{Action: Wait, Reason: "the server was not asked"}
	}
	why := s.Reply.Outcome.String()
	if s.Reply.Err != nil {
		why = s.Reply.Err.Error()
	}
	dead := s.Exists && !s.Alive
	switch o := s.Reply.Outcome; {
	case o == Ours:
		return judgeLive(s)
	case o == NotHolder:
		return Verdict{Action: TakeOver, Reason: why}
	case dead:
		return Verdict{Action: TakeOver, Reason: "the process that held the lease has ended"}
	case o == Silent, o == Unreachable && !s.Exists:
		// Unreachable, and nothing that says that anybody lives: the only way
		// past a lease that names an address nobody ever had.
		if waitedFor || max(s.Silent, s.Shut) >= t.BusyGrace {
			return Verdict{Action: TakeOver, Reason: why}
		}
		return Verdict{Action: Wait, Reason: why}
	case s.Alive:
		// In a container, a sandbox, another network: alive, but not here. An
		// owner that is just exiting looks the same for a moment, since its
		// port goes before its lock.
		if s.Shut >= t.ProbeTimeout {
			return Verdict{Action: Elsewhere, Reason: why}
		}
		return Verdict{Action: Wait, Reason: why}
	default:
		return Verdict{Action: TakeOver, Reason: why}
	}
}

// judgeBinding judges a lease whose holder has no address yet.
func judgeBinding(s Sight, t Timings, waitedFor bool) Verdict {
	abandoned := Verdict{Action: TakeOver, Reason: "the process that took the lease has not begun to serve"}
	switch {
	case s.Exists && !s.Alive:
		return Verdict{Action: TakeOver, Reason: "the process that took the lease ended before it served"}
	case waitedFor, s.Unchanged >= t.BindGrace:
		return abandoned
	case !s.Exists && s.FileAge >= t.BindGrace:
		return abandoned
	}
	return Verdict{Action: Wait, Reason: "a server is starting"}
}

// judgeLive judges a server that answers and holds the lease.
func judgeLive(s Sight) Verdict {
	join := Verdict{Action: Join, Reason: "the server answers"}
	if s.History.StartedOwn || s.History.InProcess && s.SelfReplaced {
		return join
	}
	doc, index := s.File.Document, s.Reply.Index
	if index.Stale != nil && s.Self.Path != "" && s.Self.Path == doc.Executable.Path {
		return Verdict{Action: TakeOver, Superseded: true, Reason: fmt.Sprintf("the server is out of date: %.200s", *index.Stale)}
	}
	version := index.Version
	if version == "" {
		version = doc.Version
	}
	if !s.SelfReplaced && CompareVersions(version, s.Version) == ServerOlder {
		return Verdict{Action: TakeOver, Superseded: true, Reason: fmt.Sprintf("the server is of the older release %.40s, this one is %s", version, s.Version)}
	}
	return join
}
