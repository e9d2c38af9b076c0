//go:build unix

package checkout

import "syscall"

// nonblock keeps an open from waiting for the other end of a named pipe that
// took a file's place after it was looked at.
const nonblock = syscall.O_NONBLOCK
