package bench

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"

	"majordomus/bridge/frame"
)

// A Mover moves bytes over the hops of a bridge, its server and what that hosts,
// and does nothing else: the floor for what a call through them can cost.
type Mover struct {
	In  io.Reader
	Out io.Writer
	// Answer is what each line is answered with; with none, it is the line.
	Answer []byte
	// Echo is the command of the child of Pass, which does what Echo does.
	Echo []string
}

// Serve answers each line of whoever joins. It prints its address, and ends
// when its input does.
func (m Mover) Serve() error {
	return m.listen(func(c net.Conn) error {
		copyLines(c, c, m.Answer)
		return nil
	})
}

// Pass is Serve where a child answers, over pipes.
func (m Mover) Pass() error {
	return m.listen(func(c net.Conn) error {
		child := exec.Command(m.Echo[0], m.Echo[1:]...)
		in, errIn := child.StdinPipe()
		out, errOut := child.StdoutPipe()
		if err := errors.Join(errIn, errOut, child.Start()); err != nil {
			return fmt.Errorf("starting the child: %w", err)
		}
		go func() { // ends with the connection
			copyLines(in, c, nil)
			in.Close() // ignore error: then the child has ended
		}()
		copyLines(c, out, nil)
		return child.Wait()
	})
}

// Join carries lines between the standard streams and addr.
func (m Mover) Join(addr string) error {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return fmt.Errorf("joining: %w", err)
	}
	go copyLines(m.Out, c, nil) // ends with the process
	copyLines(c, m.In, nil)
	return c.Close()
}

// Echo gives back each line.
func (m Mover) EchoLines() error {
	copyLines(m.Out, m.In, nil)
	return nil
}

func (m Mover) listen(each func(net.Conn) error) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	defer l.Close() // ignore error: the process ends
	fmt.Fprintln(m.Out, l.Addr())
	go func() { // ends with the process
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				each(c) // ignore error: the other side sees the end of it
			}()
		}
	}()
	io.Copy(io.Discard, m.In) // ignore error: it ended
	return nil
}

// copyLines copies what comes as soon as it comes, or answers each line.
func copyLines(w io.Writer, r io.Reader, answer []byte) {
	for b := bufio.NewReaderSize(r, 64<<10); ; {
		line, err := b.ReadSlice('\n')
		if answer != nil {
			if err == nil {
				line = answer
			} else {
				line = nil
			}
		}
		if len(line) > 0 {
			if _, err := w.Write(line); err != nil {
				return
			}
		}
		if err != nil && err != bufio.ErrBufferFull {
			return
		}
	}
}

// An Upstream is a small MCP server on its standard streams that costs little.
// Its tools answer with their arguments: "read" says that it only reads, "write"
// says nothing of the kind.
type Upstream struct {
	In  io.Reader
	Out io.Writer
	// Starting is called before initialize is answered; nil does nothing.
	Starting func()
	// Called may answer a call itself, later, and says so; nil does not.
	Called func(m frame.Message, result []byte) bool
}

const tools = `{"tools":[` +
	`{"name":"read","description":"answers with its arguments","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}},` +
	`{"name":"write","description":"answers with its arguments","inputSchema":{"type":"object"}}]}`

// Serve answers until the input ends.
func (u Upstream) Serve() {
	in := bufio.NewReaderSize(u.In, 64<<10)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		m, err := frame.Parse(bytes.TrimSpace(line))
		if err != nil || !m.IsRequest() {
			continue
		}
		var result []byte
		switch m.Name() {
		case "initialize":
			if u.Starting != nil {
				u.Starting()
			}
			result = []byte(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"upstream","version":"1"}}`)
		case "tools/list":
			result = []byte(tools)
		case "tools/call":
			arguments := frame.Get(m.Params, "arguments")
			result = append(append([]byte(`{"content":[{"type":"text","text":`), frame.Quote(string(arguments))...), `}]}`...)
			if u.Called != nil && u.Called(m, result) {
				continue
			}
		default:
			result = []byte("{}")
		}
		if _, err := u.Out.Write(append(frame.Result(m.ID, result), '\n')); err != nil {
			return
		}
	}
}
