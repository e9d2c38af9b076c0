//go:build unix && !linux

package child

import "syscall"

// endWithParent does nothing: there is no such service here. The child reads
// the end of its stdin.
func endWithParent(*syscall.SysProcAttr) {}
