package lease

import (
	"context"
	"fmt"
	"time"
)

// Pauses between two looks. Many wait on one cold start, which takes
// milliseconds; who waits on something slow need not be quick.
const (
	firstPause = 5 * time.Millisecond
	lastPause  = 100 * time.Millisecond
)

func longer(pause time.Duration) time.Duration { return min(pause*5/4, lastPause) }

// deadPatience is how long a holder is asked whose .alive file is free. It is
// dead by the kernel's word, so this only spares one whose lock does not reach
// here, and must not hold anybody up.
const deadPatience = 250 * time.Millisecond

// Settle looks at the lease, asks the server it names, and waits until there is
// something to do about it: the action is never Wait. When ctx ends first the
// error says what was waited for. ErrUnreadable says that the lease could not
// be read for longer than a busy server would have been waited for.
func (f *Folder) Settle(ctx context.Context, h History) (Verdict, error) {
	return f.watch(h).settle(ctx)
}

// watch remembers, for one process, since when it has seen what.
type watch struct {
	f       *Folder
	history History

	last   File
	looked bool
	since  time.Time // when last was first seen
	shut   time.Time // when the current run of what is shut began; zero without

	// Of the current run of silence: how much of it was waited for, up to when,
	// and how long it was meant to be waited since.
	silent time.Duration
	heard  time.Time // zero without a run
	pause  time.Duration
}

func (f *Folder) watch(h History) *watch { return &watch{f: f, history: h} }

func (w *watch) settle(ctx context.Context) (Verdict, error) {
	pause := firstPause
	for {
		before := w.since
		v := w.look(ctx)
		if v.Action == Elsewhere && v.File.State == Unreadable {
			return v, fmt.Errorf("%w: %s: %w", ErrUnreadable, w.f.LeasePath(), v.File.Err)
		}
		if v.Action != Wait && ctx.Err() == nil {
			return v, nil
		}
		if !w.since.Equal(before) {
			pause = firstPause // something happens: be quick again
		}
		w.pause = pause
		if err := w.f.cfg.sleep(ctx, pause); err != nil {
			return v, fmt.Errorf("waiting for the server of this checkout (%s): %w", v.Reason, err)
		}
		pause = longer(pause)
	}
}

// look looks once and judges.
func (w *watch) look(ctx context.Context) Verdict {
	f, now := w.f, time.Now()
	root := f.readable()
	file := read(root)
	if !w.looked || !file.same(w.last) && (file.State != Unreadable || w.last.State != Unreadable) {
		// By the time when it was there for certain: whoever is stopped while
		// it looks finds what was written since it began to.
		//
		//	P2 begins to look, and is stopped
		//	                                  P1, slow to bind, rewrites its lease
		//	P2 goes on, and reads it
		w.looked, w.since = true, time.Now()
		w.heard, w.shut = time.Time{}, time.Time{}
	}
	w.last = file
	s := Sight{
		File: file, Unchanged: max(0, now.Sub(w.since)),
		Self: f.cfg.Self, Version: f.cfg.Version, History: w.history, Timings: f.cfg.Timings,
	}
	if file.State != Present {
		return Judge(s)
	}
	doc := file.Document
	s.Alive, s.Exists = f.aliveHeld(root, doc.Token)
	if doc.URL == nil {
		s.FileAge = now.Sub(file.info.ModTime())
		return Judge(s)
	}
	within := f.cfg.Timings.ProbeTimeout
	if s.Exists && !s.Alive {
		within = min(within, deadPatience)
	} else if !w.heard.IsZero() {
		// The last question ends when the grace does.
		within = min(within, max(f.cfg.Timings.BusyGrace-w.silent, within/4))
	}
	asked := time.Now()
	s.Asked, s.Reply = true, f.probe(ctx, doc, within)
	// Silence began with the question; what is shut is asked again for a while
	// after it was first found to be.
	o := s.Reply.Outcome
	s.Silent = w.silence(o == Silent, asked, within)
	s.Shut = lasting(&w.shut, o == Refused || o == Unreachable || o == Stranger, time.Now())
	if o == Ours {
		_, s.SelfReplaced = f.cfg.Self.replaced(f.cfg.disk.stat)
	} else if !s.Exists || s.Alive {
		// It may have ended while it was asked.
		s.Alive, s.Exists = f.aliveHeld(root, doc.Token)
	}
	return Judge(s)
}

// silence says for how long a run of silence has lasted, if this question, asked
// at a time and waited for within a time, is part of one. A process that was
// stopped meanwhile, or had no turn, has heard nothing, which is not the
// holder's silence: only what was meant to be waited counts.
//
//	P2 asks, and is stopped
//	                        P1, which is healthy, answers a little late, or in
//	                        time, when P2 no longer listens
//	P2 goes on: the busy grace is over, after one question
func (w *watch) silence(is bool, asked time.Time, within time.Duration) time.Duration {
	now := time.Now()
	if !is {
		w.heard = time.Time{}
		return 0
	}
	if w.heard.IsZero() {
		w.silent, w.heard, w.pause = 0, asked, 0
	}
	w.silent += min(now.Sub(w.heard), w.pause+within)
	w.heard = now
	return w.silent
}

// lasting says for how long something has been so, if it is.
func lasting(since *time.Time, is bool, from time.Time) time.Duration {
	switch {
	case !is:
		*since = time.Time{}
		return 0
	case since.IsZero():
		*since = from
	}
	return time.Since(*since)
}
