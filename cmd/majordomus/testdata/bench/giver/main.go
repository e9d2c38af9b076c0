// Giver gives large answers over a link, as a server does that passes on the
// bytes of one it hosts, and joins a client to it as a bridge does. What it
// costs is measured beside the mover, which looks at nothing.
//
//	giver serve N      answers every tools/call with N bytes; prints its address
//	giver join ADDR    is the bridge
package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"

	mcpserver "github.com/mark3labs/mcp-go/server"

	"majordomus/bridge"
	"majordomus/bridge/frame"
	"majordomus/server/session"
)

type hosted []byte

func (h hosted) Route(r session.Request) ([]byte, bool) {
	if r.Message().Name() != "tools/call" {
		return nil, false
	}
	return frame.Result(r.Message().ID, h), true
}

func (hosted) List(session.Request, string) [][]byte { return nil }
func (hosted) Ready(string)                          {}
func (hosted) Listening(session.Request)             {}
func (hosted) Harmless(string) bool                  { return true }
func (hosted) Left(string)                           {}

func main() {
	switch os.Args[1] {
	case "serve":
		n, err := strconv.Atoi(os.Args[2])
		if err != nil {
			panic(err)
		}
		result := append(append([]byte(`{"content":[{"type":"text","text":"`), bytes.Repeat([]byte("a"), n)...), `"}]}`...)
		core := session.New(session.Config{MCP: mcpserver.NewMCPServer("giver", "1"), Hosted: hosted(result)})
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			panic(err)
		}
		fmt.Println(l.Addr())
		go func() { io.Copy(io.Discard, os.Stdin); os.Exit(0) }() // ends with its parent
		panic(http.Serve(l, core))
	case "join":
		err := bridge.Run(context.Background(), bridge.Config{In: os.Stdin, Out: os.Stdout, ID: "0b1d0000-0000-4000-8000-000000000000",
			Find: func(context.Context, error) (bridge.Endpoint, error) {
				return bridge.Endpoint{URL: "http://" + os.Args[2]}, nil
			}})
		if err != nil {
			panic(err)
		}
	}
}
