//go:build unix

package main

import (
	"os"
	"sync"
	"syscall"

	"majordomus/lease/launch"
)

// readySignal takes over the descriptor on which a launcher waits, tells it that
// this process runs, and returns what closes it. It is closed by the end of the
// process too.
func readySignal() func() {
	syscall.CloseOnExec(launch.ReadyFD)
	f := os.NewFile(launch.ReadyFD, "ready")
	f.Write([]byte{'\n'})                      // ignore error: the launcher has gone
	return sync.OnceFunc(func() { f.Close() }) // ignore error: the end is the message
}
