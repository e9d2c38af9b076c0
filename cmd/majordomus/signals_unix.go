//go:build unix

package main

import (
	"os"
	"syscall"
)

var endSignals = []os.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP}
