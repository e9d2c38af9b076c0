package launch

import "golang.org/x/sys/unix"

// closeOnExec marks every descriptor from first up, so that no child inherits
// it. Kernels before 5.11 lack the call; there each one is marked by itself.
func closeOnExec(first uint) {
	if unix.CloseRange(first, ^uint(0)>>1, unix.CLOSE_RANGE_CLOEXEC) != nil {
		closeOnExecEach("/proc/self/fd", first)
	}
}
