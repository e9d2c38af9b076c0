//go:build unix

package config

import "syscall"

const (
	// nonblock keeps an open from waiting for the other end of a named pipe.
	nonblock = syscall.O_NONBLOCK

	// hasModes: a file says who else may read and write it.
	hasModes = true
)
