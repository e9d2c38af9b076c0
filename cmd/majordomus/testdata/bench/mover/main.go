// Mover moves bytes over the hops of a bridge, its server and what that hosts,
// and does nothing else: the floor for what a call through them can cost.
//
//	mover serve [N]    answers each line with itself, or with N bytes; prints its address
//	mover pass         has a child answer each line, over pipes; prints its address
//	mover echo         is that child
//	mover join ADDR    carries lines between the standard streams and ADDR
package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
)

func main() {
	switch os.Args[1] {
	case "serve":
		var answer []byte
		if len(os.Args) > 2 {
			n, err := strconv.Atoi(os.Args[2])
			if err != nil {
				panic(err)
			}
			answer = append(bytes.Repeat([]byte("a"), n), '\n')
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			panic(err)
		}
		fmt.Println(l.Addr())
		go func() { io.Copy(io.Discard, os.Stdin); os.Exit(0) }() // ends with its parent
		for {
			c, err := l.Accept()
			if err != nil {
				panic(err)
			}
			go copyLines(c, c, answer)
		}
	case "pass":
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			panic(err)
		}
		fmt.Println(l.Addr())
		go func() { io.Copy(io.Discard, os.Stdin); os.Exit(0) }() // ends with its parent, and its child with it
		for {
			c, err := l.Accept()
			if err != nil {
				panic(err)
			}
			child := exec.Command(os.Args[0], "echo")
			in, errIn := child.StdinPipe()
			out, errOut := child.StdoutPipe()
			if err := errors.Join(errIn, errOut, child.Start()); err != nil {
				panic(err)
			}
			go copyLines(in, c, nil)
			go copyLines(c, out, nil)
		}
	case "echo":
		copyLines(os.Stdout, os.Stdin, nil)
	case "join":
		c, err := net.Dial("tcp", os.Args[2])
		if err != nil {
			panic(err)
		}
		go copyLines(os.Stdout, c, nil)
		copyLines(c, os.Stdin, nil)
	}
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
