package hub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
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

	// tell sends a notification. What is sent once it has returned comes after it.
	tell(ctx context.Context, method string, params []byte)

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
	outstanding
	child   *child.Child
	w       *frame.Writer
	unasked unasked
	wg      sync.WaitGroup // of answers to the server's questions

	err  error         // why it ended; set before done is closed
	done chan struct{} // closed when it has
}

// unasked is told what the server says by itself. Where that came in the answer
// to a call of ours, ctx has the values of the call's.
type unasked interface {
	// asked answers a question of the server's. It may take its time, until ctx
	// ends.
	asked(ctx context.Context, m frame.Message) []byte
	// told is called in order, and must not wait.
	told(ctx context.Context, m frame.Message)
}

// outstanding are the requests of ours that are not answered yet.
type outstanding struct {
	mu    sync.Mutex
	next  int
	calls map[string]*exchange // by our raw id, which is its progress token too
}

// An exchange is one of them.
type exchange struct {
	id     string
	answer chan frame.Message // one slot, one answer

	mu       sync.Mutex
	progress func(params []byte) // nil: nobody wants to know, or not any more
}

func (o *outstanding) begin(progress func(params []byte)) *exchange {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.next++
	x := &exchange{id: strconv.Itoa(o.next), answer: make(chan frame.Message, 1), progress: progress}
	if o.calls == nil {
		o.calls = map[string]*exchange{}
	}
	o.calls[x.id] = x
	return x
}

// end forgets a request. Its progress is not called any more.
func (o *outstanding) end(x *exchange) {
	o.mu.Lock()
	delete(o.calls, x.id)
	o.mu.Unlock()
	x.mu.Lock()
	x.progress = nil
	x.mu.Unlock()
}

// awaits reports whether a request is neither answered nor forgotten.
func (o *outstanding) awaits(x *exchange) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.calls[x.id] != nil
}

// wasteful is from where on an answer is worth a collection.
const wasteful = 4 << 20

func (o *outstanding) answered(m frame.Message) {
	o.mu.Lock()
	if x := o.calls[string(m.ID)]; x != nil {
		delete(o.calls, string(m.ID))
		x.answer <- m // who sees that it is not awaited any more finds it
	}
	o.mu.Unlock()
	if len(m.Result) > wasteful {
		// What it was read into is as large again. Left alone, the collector
		// lets that, and the answers before, grow to several times the answer.
		// It works while this one is passed on.
		runtime.GC()
	}
}

func (o *outstanding) progressed(m frame.Message) {
	o.mu.Lock()
	x := o.calls[string(frame.Get(m.Params, "progressToken"))]
	o.mu.Unlock()
	if x == nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.progress != nil {
		x.progress(m.Params)
	}
}

// strange answers the call whose answer is none: too long, or no message.
func (o *outstanding) strange(bad *frame.Error) {
	if bad.ID == nil {
		return
	}
	o.answered(frame.Message{ID: bad.ID, Error: fmt.Appendf(nil, `{"code":%d,"message":%s}`, frame.CodeInternal,
		frame.Quote(errStrange.Error()+": "+bad.Message))})
}

// line is the request as it is sent.
func (x *exchange) line(method string, params []byte) []byte {
	if x.progress != nil {
		meta := frame.Get(params, "_meta")
		if meta == nil {
			meta = []byte("{}")
		}
		params = frame.Set(params, "_meta", frame.Set(meta, "progressToken", []byte(x.id)))
	}
	line := fmt.Appendf(make([]byte, 0, len(params)+len(method)+64), `{"jsonrpc":"2.0","id":%s,"method":%s`, x.id, frame.Quote(method))
	if params != nil {
		line = append(append(line, `,"params":`...), params...)
	}
	return append(line, '}')
}

// newConn speaks with ch, and has what it says read until its end.
func newConn(ch *child.Child, limit int64, u unasked) *conn {
	c := &conn{child: ch, w: frame.NewWriter(ch.Stdin()), unasked: u, done: make(chan struct{})}
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

var (
	// errStrange is an answer that cannot be passed on.
	errStrange = errors.New("the hosted server's answer cannot be used")

	// errDead: the process had ended before it was asked.
	errDead = errors.New("the hosted server has ended")
)

func (c *conn) call(ctx context.Context, method string, params []byte, progress func(params []byte)) (frame.Message, error) {
	x := c.begin(progress)
	defer c.end(x)
	select {
	case <-c.done:
		return frame.Message{}, &unrun{errDead}
	default:
	}
	if err := c.w.Write(x.line(method, params)); err != nil {
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
		c.tell(ctx, "notifications/cancelled", []byte(`{"requestId":`+x.id+`}`))
		return frame.Message{}, context.Cause(ctx)
	}
}

func (c *conn) tell(_ context.Context, method string, params []byte) {
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
		m, err := frame.Parse(r.Own(line))
		switch {
		case errors.As(err, &bad):
			c.strange(bad)
		case m.IsRequest():
			c.wg.Go(func() {
				c.w.Write(c.unasked.asked(context.Background(), m)) // ignore error: the reader finds the end
			})
		case m.IsNotification() && m.Name() == "notifications/progress":
			c.progressed(m)
		case m.IsNotification():
			c.unasked.told(context.Background(), m)
		default:
			c.answered(m)
		}
	}
	c.err = fmt.Errorf("the hosted server has ended: %w", end)
	if end == io.EOF {
		c.err = errors.New("the hosted server has ended")
	}
	close(c.done)
}
