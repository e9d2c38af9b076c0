package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"
	mcpserver "github.com/mark3labs/mcp-go/server"
	"github.com/spf13/cobra"

	"majordomus/bridge"
	"majordomus/bridge/frame"
	"majordomus/cmd/majordomus/bench"
	"majordomus/lease"
	"majordomus/lease/checkout"
	"majordomus/server"
	"majordomus/server/hub/config"
	"majordomus/server/session"
)

// benchPart is the word by which the benchmark runs this executable as one of
// the programs that it compares with.
const benchPart = "bench-part"

func (a *app) benchPartCommand() *cobra.Command {
	return &cobra.Command{
		Use:    benchPart + " PART [ARG]...",
		Hidden: true,
		Short:  "Be a part of the benchmark",
		Args:   cobra.MinimumNArgs(1),
		// What is hosted has flags of its own.
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, words []string) error {
			return a.benchPart(cmd.Context(), words[0], words[1:])
		},
	}
}

func (a *app) benchPart(ctx context.Context, part string, words []string) error {
	mover := bench.Mover{In: a.in, Out: a.out, Echo: []string{a.started.Path, benchPart, "echo"}}
	size := func() (n int, err error) {
		if len(words) > 0 {
			n, err = strconv.Atoi(words[0])
		}
		return n, wrongWords(err)
	}
	switch {
	case part == "serve":
		n, err := size()
		if err != nil {
			return err
		}
		if n > 0 {
			mover.Answer = append(bytes.Repeat([]byte("a"), n), '\n')
		}
		return mover.Serve()
	case part == "pass":
		return mover.Pass()
	case part == "echo":
		return mover.EchoLines()
	case part == "join" && len(words) == 1:
		return mover.Join(words[0])
	case part == "upstream":
		bench.Upstream{In: a.in, Out: a.out}.Serve()
		return nil
	case part == "give":
		n, err := size()
		if err != nil {
			return err
		}
		return a.give(n)
	case part == "take" && len(words) == 1:
		return bridge.Run(ctx, bridge.Config{In: a.in, Out: a.out, ID: newID(), Log: a.logger(),
			Find: func(context.Context, error) (bridge.Endpoint, error) {
				return bridge.Endpoint{URL: "http://" + words[0]}, nil
			}})
	case part == "host" && len(words) > 2:
		return a.host(ctx, words[0], words[1], words[2:])
	}
	return wrongWords(fmt.Errorf("the benchmark has no part %q with %d words", part, len(words)))
}

// give answers every call of a tool over links with n bytes, as a server does
// that passes on the bytes of one it hosts. It prints its address, and ends when
// its input does.
func (a *app) give(n int) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	large := given(append(append([]byte(`{"content":[{"type":"text","text":"`), bytes.Repeat([]byte("a"), n)...), `"}]}`...))
	core := session.New(session.Config{MCP: mcpserver.NewMCPServer("giver", "1"), Hosted: large})
	fmt.Fprintln(a.out, l.Addr())
	go http.Serve(l, core)    // ends with the process
	io.Copy(io.Discard, a.in) // ignore error: it ended
	return nil
}

// given is the result of every call.
type given []byte

func (g given) Route(r session.Request) (frame.Line, bool) {
	if r.Message().Name() != string(mcp.MethodToolsCall) {
		return nil, false
	}
	return frame.Answer(r.Message().ID, g), true
}

func (given) List(session.Request, string) [][]byte { return nil }
func (given) Ready(string)                          {}
func (given) Listening(session.Request)             {}
func (given) Harmless(string) bool                  { return true }
func (given) Left(string)                           {}

// host serves a temporary checkout and hosts one command that nobody need trust:
// it comes from the command line, not from a file. It prints its address once it
// serves, and ends when its input does.
func (a *app) host(ctx context.Context, root, dir string, argv []string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	log := a.logger()
	c, err := checkout.Open(root)
	if err != nil {
		return err
	}
	p, err := a.open(c, log, lease.Open)
	if err != nil {
		return err
	}
	defer p.close()
	up := config.Server{Name: "up", Command: argv[0], Args: argv[1:], Cwd: dir, Share: config.ShareCheckout}
	a.only = &server.Hosting{
		Entries: func() (*config.File, error) {
			return &config.File{Path: c.ServersFile, Digest: strings.Repeat("0", 64), Servers: []config.Server{up}}, nil
		},
		Resolve: func(s config.Server) (config.Server, []string, error) { return s, a.environ, nil },
	}
	s, _, err := a.stand(ctx, p, serveOptions{idle: -1}, lease.History{}, func() { fmt.Fprintln(a.out, "serving") }, log)
	if err != nil {
		return err
	}
	if s == nil {
		return errors.New("the checkout is served already")
	}
	go func() { // ends with the process
		io.Copy(io.Discard, a.in) // ignore error: it ended
		cancel()
	}()
	return s.Run(ctx)
}
