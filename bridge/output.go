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
	buf     []byte
	spare   []byte
	writing bool
	awaited bool
	closed  bool
	err     error
}

func newOutput(w io.Writer, moved func(), failed func(error)) *output {
	o := &output{w: w, moved: moved, failed: failed}
	o.work, o.rest = sync.NewCond(&o.mu), sync.NewCond(&o.mu)
	return o
}

func (o *output) push(line []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil && !o.closed {
		o.buf = append(append(o.buf, line...), '\n')
	}
}

// kick has what was pushed written by output's own goroutine.
func (o *output) kick() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.buf) > 0 && !o.writing {
		o.work.Signal()
	}
}

// flush writes what was pushed, or leaves it to whoever is writing now; then it
// waits while there is too much of it, which is how a slow client slows the
// server down.
func (o *output) flush() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.flushLocked()
	for o.writing && len(o.buf) > fullBytes && !o.closed {
		o.rest.Wait()
	}
}

func (o *output) flushLocked() {
	if o.writing || o.err != nil || len(o.buf) == 0 {
		return
	}
	o.writing = true
	for len(o.buf) > 0 && o.err == nil {
		batch := o.buf
		o.buf, o.spare = o.spare[:0], nil
		o.mu.Unlock()
		n, err := o.w.Write(batch)
		if err == nil && n < len(batch) {
			err = io.ErrShortWrite
		}
		if err != nil {
			o.failed(err)
		}
		o.mu.Lock()
		if cap(batch) <= keptBytes {
			o.spare = batch[:0]
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
		for !o.closed && (len(o.buf) == 0 || o.writing || o.err != nil) {
			o.work.Wait()
		}
		if o.closed {
			return
		}
		o.flushLocked()
	}
}

// close writes what was pushed, within d, and ends run. The end of ctx leaves
// it no more than least.
func (o *output) close(ctx context.Context, d, least time.Duration) {
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
	for !late && o.err == nil && (o.writing || len(o.buf) > 0) {
		o.rest.Wait()
	}
	o.closed = true
	o.work.Signal()
	o.rest.Broadcast()
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
