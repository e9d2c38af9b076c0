package bridge

import (
	"context"
	"io"
	"sync"
	"time"
)

const (
	keptBytes = 64 << 10 // of a buffer at rest
	fullBytes = 1 << 20  // unwritten, at which whoever flushes waits
	largeLine = 64 << 10 // from here on a line is not copied
)

// output writes lines to the client. Lines are pushed under the bridge's mutex,
// which gives them their order, and written outside it by whoever comes first:
// the reader of a link, which saves a switch of goroutines for each answer, or
// else output's own goroutine. What is pushed meanwhile goes out with the next
// Write.
type output struct {
	w      io.Writer
	moved  func() // a Write has ended that somebody had found going on
	failed func(error)

	mu      sync.Mutex
	work    *sync.Cond // run has something to do
	rest    *sync.Cond // less is unwritten
	ahead   []batch    // to be written before buf
	buf     []byte
	size    int // of all that
	lent    int // how many batches are not ours, the one being written among them
	spare   []byte
	writing bool
	awaited bool
	closed  bool
	err     error
}

// A batch is what goes into one Write.
type batch struct {
	lines []byte
	lent  bool
}

func newOutput(w io.Writer, moved func(), failed func(error)) *output {
	o := &output{w: w, moved: moved, failed: failed}
	o.work, o.rest = sync.NewCond(&o.mu), sync.NewCond(&o.mu)
	return o
}

// push has line written, with a newline behind it. A large one is not copied if
// the newline is there already (frame.Reader): nobody may change it until flush
// has returned true.
func (o *output) push(line []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil || o.closed {
		return
	}
	n := len(line)
	o.size += n + 1
	if n < largeLine || n == cap(line) || line[:n+1][n] != '\n' {
		o.buf = append(append(o.buf, line...), '\n')
		return
	}
	if len(o.buf) > 0 {
		o.ahead = append(o.ahead, batch{lines: o.buf})
		o.buf = nil
	}
	o.ahead = append(o.ahead, batch{lines: line[:n+1], lent: true})
	o.lent++
}

// kick has what was pushed written by output's own goroutine.
func (o *output) kick() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.size > 0 && !o.writing {
		o.work.Signal()
	}
}

// flush writes what was pushed, or leaves it to whoever is writing now; then it
// waits while there is too much of it, which is how a slow client slows the
// server down, or a line in it that is not ours. It reports whether there is
// none any more: where the client reads nothing, one may be in use for ever.
func (o *output) flush() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.flushLocked()
	for o.writing && (o.size > fullBytes || o.lent > 0) && !o.closed {
		o.rest.Wait()
	}
	return o.lent == 0
}

func (o *output) flushLocked() {
	if o.writing || o.err != nil || o.size == 0 {
		return
	}
	o.writing = true
	for o.size > 0 && o.err == nil {
		next := batch{lines: o.buf}
		if len(o.ahead) > 0 {
			next = o.ahead[0]
			o.ahead[0] = batch{} // or it is kept until the next line comes, in an hour
			o.ahead = o.ahead[1:]
		} else {
			o.buf, o.spare, o.ahead = o.spare[:0], nil, nil
		}
		o.size -= len(next.lines)
		o.mu.Unlock()
		n, err := o.w.Write(next.lines)
		if err == nil && n < len(next.lines) {
			err = io.ErrShortWrite
		}
		if err != nil {
			o.failed(err)
		}
		o.mu.Lock()
		switch {
		case next.lent:
			o.lent--
		case cap(next.lines) <= keptBytes:
			o.spare = next.lines[:0]
		}
		o.err = err
		o.rest.Broadcast()
	}
	o.writing = false
	o.rest.Broadcast()
	if o.awaited {
		o.awaited = false
		o.mu.Unlock()
		o.moved()
		o.mu.Lock()
	}
}

// run writes what nobody else does until the output is closed.
func (o *output) run() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for {
		for !o.closed && (o.size == 0 || o.writing || o.err != nil) {
			o.work.Wait()
		}
		if o.closed {
			return
		}
		o.flushLocked()
	}
}

// close writes what was pushed, within d, and ends run. The end of ctx leaves
// it no more than least. It returns what kept it from writing.
func (o *output) close(ctx context.Context, d, least time.Duration) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	late := false
	giveUp := func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		late = true
		o.rest.Broadcast()
	}
	t := time.AfterFunc(d, giveUp)
	defer t.Stop()
	o.work.Signal()
	defer context.AfterFunc(ctx, func() {
		if d > least {
			t.Reset(least)
		}
	})()
	for !late && o.err == nil && (o.writing || o.size > 0) {
		o.rest.Wait()
	}
	o.closed = true
	o.work.Signal()
	o.rest.Broadcast()
	return o.err
}

// stalled reports whether a Write goes on, as it does for as long as the client
// reads nothing, and has moved called when it has ended.
func (o *output) stalled() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.awaited = o.writing
	return o.writing
}

// stuck reports whether a Write goes on.
func (o *output) stuck() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.writing
}
