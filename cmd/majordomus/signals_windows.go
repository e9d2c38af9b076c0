package main

import (
	"os"
	"syscall"
)

var endSignals = []os.Signal{os.Interrupt, syscall.SIGTERM}
