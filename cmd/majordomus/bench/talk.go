// Package bench is what figures are taken with: a client that speaks MCP to a
// process or to a server's address, programs that are the floor for what
// majordomus can cost, and the memory of processes.
//
// The speed of a machine changes between runs and within them. So what is
// compared is taken in pairs within one run, and the figure is the median of the
// pairs' ratios.
package bench

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"majordomus/bridge/frame"
	"majordomus/server/hub/child"
)

// The lines that a client sends. The id of all requests is 7.
const (
	Initialize  = `{"jsonrpc":"2.0","id":7,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}` + "\n"
	Initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n"
	Ping        = `{"jsonrpc":"2.0","id":7,"method":"ping"}` + "\n"
	ListTools   = `{"jsonrpc":"2.0","id":7,"method":"tools/list"}` + "\n"
	// Moved is what a mover carries, which comes back as it is: as long as a call
	// and its answer are, and read as an answer.
	Moved = `{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"a line of the length of a call and its answer"}]}}` + "\n"
)

// Call is the line that calls a tool.
func Call(tool, arguments string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":%s,"arguments":%s}}`+"\n", frame.Quote(tool), arguments)
}

// ErrEcho is returned where a process gives back what it is sent.
var ErrEcho = errors.New("it gives back what it is sent")

// A RefusedError is the error that a request was answered with.
type RefusedError struct{ Answer []byte }

func (e *RefusedError) Error() string { return fmt.Sprintf("answered with an error: %.300s", e.Answer) }

// A Talker is a client of a process that has lines in and out.
type Talker struct {
	In  io.Writer
	Out *bufio.Reader

	ctx   context.Context // the lifetime that its owner gave
	child *child.Child
	free  func() bool
	errs  tail
	long  []byte // of a line that does not fit the reader
	heard bool   // an answer has come
	odd   []byte // the first line before it that is no message
}

// Talk starts a process, which is ended with all that it started when ctx ends.
// Argv, dir and env are as child.Spec has them.
func Talk(ctx context.Context, dir string, env []string, argv ...string) (*Talker, error) {
	t := &Talker{ctx: ctx}
	c, err := child.Start(child.Spec{Name: argv[0], Argv: argv, Dir: dir, Env: env, Stderr: &t.errs})
	if err != nil {
		return nil, err
	}
	t.In, t.Out, t.child = c.Stdin(), bufio.NewReaderSize(c.Stdout(), 64<<10), c
	t.free = context.AfterFunc(ctx, func() { c.Stop(ctx) })
	return t, nil
}

// PID is the process's.
func (t *Talker) PID() int { return t.child.PID() }

// End ends the process with all that it started, at the latest in 8 s.
func (t *Talker) End() {
	t.free()
	t.child.Stop(context.WithoutCancel(t.ctx))
}

// Ask sends a line and returns the next one that comes. It is good until the
// next one is read.
func (t *Talker) Ask(line string) ([]byte, error) {
	if _, err := io.WriteString(t.In, line); err != nil {
		return nil, t.why(err)
	}
	return t.line()
}

// Answer sends a request and returns its answer, which may be an error as well.
// It is good until the next one is read.
func (t *Talker) Answer(request string) ([]byte, error) {
	// One that has ended may have said why: what it wrote comes first.
	io.WriteString(t.In, request) // ignore error: then no answer comes
	for {
		line, err := t.line()
		if err != nil {
			return nil, err
		}
		m, err := frame.Parse(bytes.TrimSpace(line))
		switch {
		case err != nil:
			if !t.heard && t.odd == nil && len(bytes.TrimSpace(line)) > 0 {
				t.odd = bytes.Clone(bytes.TrimSpace(line))
			}
		case m.IsRequest() && string(bytes.TrimSpace(line)) == strings.TrimSpace(request):
			return nil, ErrEcho
		case m.IsRequest():
			// Nothing of what a server may ask is offered to it.
			if _, err := t.In.Write(append(frame.Failure(m.ID, -32601, "not offered", nil), '\n')); err != nil {
				return nil, t.why(err)
			}
		case string(m.ID) == "7" && m.Result == nil && m.Error != nil:
			t.heard = true
			return line, &RefusedError{bytes.Clone(bytes.TrimSpace(line))}
		case string(m.ID) == "7" && m.Result != nil:
			t.heard = true
			return line, nil
		}
	}
}

// Open shakes hands and returns the answer to initialize.
func (t *Talker) Open() ([]byte, error) {
	a, err := t.Answer(Initialize)
	if err != nil {
		return nil, err
	}
	a = bytes.Clone(a)
	if _, err := io.WriteString(t.In, Initialized); err != nil {
		return nil, t.why(err)
	}
	return a, nil
}

// Flight sends as many requests, so many of them at a time, and returns when all
// have been answered.
func (t *Talker) Flight(request string, width, total int) error {
	at := strings.Index(request, `"id":7`)
	if at < 0 {
		return errors.New("a request without its id")
	}
	say := func(id int) error {
		_, err := fmt.Fprintf(t.In, `%s"id":%d%s`, request[:at], id+100, request[at+len(`"id":7`):])
		return err
	}
	for id := range min(width, total) {
		if err := say(id); err != nil {
			return t.why(err)
		}
	}
	for done, next := 0, width; done < total; {
		line, err := t.line()
		if err != nil {
			return err
		}
		if m, err := frame.Parse(bytes.TrimSpace(line)); err != nil || m.IsRequest() || m.ID == nil {
			continue
		} else if m.Error != nil {
			return &RefusedError{bytes.Clone(line)}
		}
		if done++; next < total {
			if err := say(next); err != nil {
				return t.why(err)
			}
			next++
		}
	}
	return nil
}

// Size sends a line and counts the bytes of the next one that comes.
func (t *Talker) Size(line string) (n int, err error) {
	if _, err := io.WriteString(t.In, line); err != nil {
		return 0, t.why(err)
	}
	for {
		part, err := t.Out.ReadSlice('\n')
		if n += len(part); err == nil {
			return n, nil
		} else if err != bufio.ErrBufferFull {
			return n, t.why(err)
		}
	}
}

func (t *Talker) line() ([]byte, error) {
	line, err := t.Out.ReadSlice('\n')
	if err == nil {
		return line, nil
	}
	for t.long = append(t.long[:0], line...); err == bufio.ErrBufferFull; t.long = append(t.long, line...) {
		line, err = t.Out.ReadSlice('\n')
	}
	if err != nil {
		return nil, t.why(err)
	}
	return t.long, nil
}

// why says more than that a pipe has ended: what became of the process, and what
// it wrote.
func (t *Talker) why(err error) error {
	if t.ctx.Err() != nil {
		err = context.Cause(t.ctx)
	} else {
		select {
		case <-t.child.Done():
			t.child.Stop(context.WithoutCancel(t.ctx)) // then all that it wrote has come
			err = fmt.Errorf("it has ended: %w", t.child.Err())
		case <-time.After(time.Second):
			err = fmt.Errorf("it has closed its output: %w", err)
		}
	}
	if t.odd != nil && !t.heard {
		err = fmt.Errorf("%w; it printed %.200q", err, t.odd)
	}
	if said := t.errs.String(); said != "" {
		err = fmt.Errorf("%w; on its standard error: %s", err, said)
	}
	return err
}

// tail keeps the end of what is written to it.
type tail struct {
	mu sync.Mutex
	b  []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	t.b = t.b[max(0, len(t.b)-600):]
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.TrimSpace(t.b))
}
