package child

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// output is the reading end of a child's stdout. Whatever ends it is its end:
// there is nothing else that a reader of a pipe could do about it.
type output struct{ in *os.File }

func (o *output) Read(p []byte) (int, error) {
	n, err := o.in.Read(p)
	if err != nil {
		o.in.Close() // ignore error: mostly the second time
		err = io.EOF
	}
	return n, err
}

// finish has the reader end, although a process outside the group may hold the
// other end for years.
func (o *output) finish() {
	time.AfterFunc(linger, func() { o.in.Close() }) // ignore error: as above
}

// enough is how much of stderr waits for a slow writer.
const enough = 1 << 20

// drain reads a child's stderr, always, and hands it on as fast as the writer
// takes it.
//
//	child -> pipe -> read -> waiting -> write -> to
//
// Two goroutines, since either end may block: one would have the child wait
// for a full disk.
type drain struct {
	in *os.File
	to io.Writer

	mu      sync.Mutex
	changed *sync.Cond
	waiting []byte
	left    int64 // bytes left out since waiting was last taken
	ended   bool  // nothing more comes
	cut     bool  // nothing more is written

	read, written chan struct{} // closed when the goroutines have ended
}

func newDrain(in *os.File, to io.Writer) *drain {
	d := &drain{in: in, to: to, read: make(chan struct{}), written: make(chan struct{})}
	d.changed = sync.NewCond(&d.mu)
	go d.reading() // end in finish
	go d.writing()
	return d
}

func (d *drain) reading() {
	defer close(d.read)
	buf := make([]byte, 32<<10)
	for {
		n, err := d.in.Read(buf)
		d.mu.Lock()
		switch {
		case d.left > 0 || len(d.waiting)+n > enough:
			// Once something is missing, so is the rest until the writer is
			// back: the note about it says where.
			d.left += int64(n)
		default:
			d.waiting = append(d.waiting, buf[:n]...)
		}
		d.ended = err != nil
		d.changed.Signal()
		d.mu.Unlock()
		if err != nil {
			d.in.Close() // ignore error: mostly the second time
			return
		}
	}
}

func (d *drain) writing() {
	defer close(d.written)
	var spare []byte
	for {
		d.mu.Lock()
		for len(d.waiting) == 0 && d.left == 0 && !d.ended && !d.cut {
			d.changed.Wait()
		}
		batch, left := d.waiting, d.left
		d.waiting, d.left = spare[:0], 0
		over := d.cut || len(batch) == 0 && left == 0
		d.mu.Unlock()
		if over {
			return
		}
		if len(batch) > 0 {
			d.to.Write(batch) // ignore error: nobody could be told, and the child must not stop for it
		}
		if left > 0 {
			fmt.Fprintf(d.to, noteForm, fmt.Sprintf("%d bytes of stderr left out: they came faster than they could be written", left))
		}
		spare = batch
		if cap(spare) > enough/8 {
			spare = nil // a flood is no reason to keep its bed
		}
	}
}

// noteForm is how words of ours stand among those of the child, which may not
// have ended its line.
const noteForm = "\n[%s]\n"

func (d *drain) note(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.waiting = fmt.Appendf(d.waiting, noteForm, fmt.Sprintf(format, args...))
	d.changed.Signal()
}

// finish waits until all that was written has been handed on; not for a process
// outside the group that has stderr open, nor for a writer that is stuck.
func (d *drain) finish() {
	if within(linger, d.written) {
		return
	}
	closeOutput(d.in)
	within(linger, d.written)
	d.mu.Lock()
	d.cut = true
	d.changed.Signal()
	d.mu.Unlock()
}

// within reports whether c is closed before the time is over.
func within(d time.Duration, c <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-c:
		return true
	case <-timer.C:
		return false
	}
}
