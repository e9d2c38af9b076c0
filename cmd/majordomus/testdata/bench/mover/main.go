// Mover moves bytes over the hops of a bridge and its server and does nothing
// else: the floor for what a call through them can cost.
//
//	mover serve        echoes each line of each connection; prints its address
//	mover join ADDR    carries lines between the standard streams and ADDR
package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
)

func main() {
	switch os.Args[1] {
	case "serve":
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
			go copyLines(c, c)
		}
	case "join":
		c, err := net.Dial("tcp", os.Args[2])
		if err != nil {
			panic(err)
		}
		go copyLines(os.Stdout, c)
		copyLines(c, os.Stdin)
	}
}

func copyLines(w io.Writer, r io.Reader) {
	for b := bufio.NewReaderSize(r, 64<<10); ; {
		line, err := b.ReadSlice('\n')
		if len(line) > 0 {
			if _, err := w.Write(line); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
