package hub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"

	"majordomus/bridge/frame"
	"majordomus/server/hub/child"
)

// hosted is one session with a hosted server.
type hosted interface {
	// call sends a request and waits for its answer: a result or an error, raw
	// and ours to keep. When ctx ends first the server is told that nobody waits
	// any more. progress is called in order, before call returns.
	call(ctx context.Context, method string, params []byte, progress func(params []byte)) (frame.Message, error)

	// tell sends a notification.
	tell(method string, params []byte)

	// wait returns when the session has ended, and says why.
	wait() error

	// stop ends it, with the process where there is one, and returns when all
	// that belongs to it has gone: at the latest soon after ctx has ended. It may
	// be called more than once.
	stop(ctx context.Context)
}

// conn is a session with a process, in raw lines. Ids and progress tokens are
// ours, so that equal ones of two clients never meet.
type conn struct {
	child   *child.Child
	w       *frame.Writer
	unasked unasked
	wg      sync.WaitGroup // of answers to the server's questions

	mu    sync.Mutex
	next  int
	calls map[string]*exchange // by our raw id, which is its progress token too
	err   error                // why it ended; set once
	done  chan struct{}        // closed when it has
}

// unasked is told what the server says by itself.
type unasked interface {
	// asked answers a question of the server's. It may take its time.
	asked(m frame.Message) []byte
	// told is called in order, and must not wait.
	told(m frame.Message)
}

// An exchange is a request of ours that is not answered yet.
type exchange struct {
	answer   chan frame.Message
	progress func(params []byte) // nil: nobody wants to know
}

// newConn speaks with ch, and has what it says read until its end.
func newConn(ch *child.Child, limit int64, u unasked) *conn {
	c := &conn{child: ch, w: frame.NewWriter(ch.Stdin()), unasked: u, calls: map[string]*exchange{}, done: make(chan struct{})}
	go c.read(frame.NewReader(ch.Stdout(), limit)) // ends with the stream, which stop closes
	return c
}

func (c *conn) wait() error {
	select {
	case <-c.child.Done():
	case <-c.done:
	}
	if err := c.child.Err(); err != nil {
		return err
	}
	return errors.New("it closed its output")
}

func (c *conn) stop(ctx context.Context) { c.child.Stop(ctx) }

// errStrange is an answer that cannot be passed on.
var errStrange = errors.New("the hosted server's answer cannot be used")

func (c *conn) call(ctx context.Context, method string, params []byte, progress func(params []byte)) (frame.Message, error) {
	x := &exchange{answer: make(chan frame.Message, 1), progress: progress}
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return frame.Message{}, c.err
	}
	c.next++
	id := strconv.Itoa(c.next)
	c.calls[id] = x
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.calls, id)
		c.mu.Unlock()
	}()
	if progress != nil {
		meta := frame.Get(params, "_meta")
		if meta == nil {
			meta = []byte("{}")
		}
		params = frame.Set(params, "_meta", frame.Set(meta, "progressToken", []byte(id)))
	}
	line := fmt.Appendf(make([]byte, 0, len(params)+len(method)+64), `{"jsonrpc":"2.0","id":%s,"method":%s`, id, frame.Quote(method))
	if params != nil {
		line = append(append(line, `,"params":`...), params...)
	}
	if err := c.w.Write(append(line, '}')); err != nil {
		return frame.Message{}, fmt.Errorf("writing to the hosted server: %w", err)
	}
	select {
	case m := <-x.answer:
		return m, nil
	case <-c.done:
		select {
		case m := <-x.answer: // the last that it said
			return m, nil
		default:
			return frame.Message{}, c.err
		}
	case <-ctx.Done():
		c.tell("notifications/cancelled", []byte(`{"requestId":`+id+`}`))
		return frame.Message{}, context.Cause(ctx)
	}
}

func (c *conn) tell(method string, params []byte) {
	c.w.Write(frame.Notification(method, params)) // ignore error: the reader finds the end
}

// read hands on what the server writes. What is no message is dropped: many
// servers greet, log or draw a banner where they should not.
func (c *conn) read(r *frame.Reader) {
	var end error
	for end == nil {
		line, err := r.Next()
		var bad *frame.Error
		switch {
		case errors.As(err, &bad):
			c.strange(bad)
			continue
		case err != nil:
			end = err
			continue
		}
		if len(line) < keptLine {
			line = append([]byte(nil), line...)
		} else {
			line = r.Keep(line)
		}
		m, err := frame.Parse(line)
		switch {
		case errors.As(err, &bad):
			c.strange(bad)
		case m.IsRequest():
			c.wg.Go(func() {
				c.w.Write(c.unasked.asked(m)) // ignore error: the reader finds the end
			})
		case m.IsNotification() && m.Name() == "notifications/progress":
			c.progressed(m)
		case m.IsNotification():
			c.unasked.told(m)
		default:
			c.answered(m)
		}
	}
	c.mu.Lock()
	c.err = fmt.Errorf("the hosted server has ended: %w", end)
	if end == io.EOF {
		c.err = errors.New("the hosted server has ended")
	}
	c.mu.Unlock()
	close(c.done)
}

// keptLine is from where on a line is kept in the buffer it was read into.
const keptLine = 64 << 10

func (c *conn) answered(m frame.Message) {
	c.mu.Lock()
	x := c.calls[string(m.ID)]
	delete(c.calls, string(m.ID))
	c.mu.Unlock()
	if x != nil {
		x.answer <- m // one slot, one answer
	}
}

func (c *conn) progressed(m frame.Message) {
	c.mu.Lock()
	x := c.calls[string(frame.Get(m.Params, "progressToken"))]
	c.mu.Unlock()
	if x != nil && x.progress != nil {
		x.progress(m.Params)
	}
}

// strange answers the call whose answer is none: too long, or no message.
func (c *conn) strange(bad *frame.Error) {
	if bad.ID == nil {
		return
	}
	c.answered(frame.Message{ID: bad.ID, Error: fmt.Appendf(nil, `{"code":%d,"message":%s}`, frame.CodeInternal,
		frame.Quote(errStrange.Error()+": "+bad.Message))})
}
