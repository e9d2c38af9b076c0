// Majordomus is the words people and editors type: `majordomus mcp` joins an
// editor to its checkout's one server, the others look after that server.
//
// This is the only package that reads the environment, picks exit codes and
// adds to an error the hint that helps a person; everything below it returns
// errors that can be composed.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"majordomus/lease"
)

func main() {
	// First of all: what lies at this path later may be another build.
	started := lease.StartedAs()
	// A log or an answer whose reader has gone is an error to return, not a
	// signal to die of before the lease is released.
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), endSignals...)
	context.AfterFunc(ctx, stop) // a second signal ends the process as if we were not here
	a := &app{
		in: os.Stdin, out: os.Stdout, err: &sink{w: os.Stderr},
		environ: os.Environ(), getenv: os.Getenv, started: started,
	}
	os.Exit(a.run(ctx, os.Args[1:]))
}
