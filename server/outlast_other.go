//go:build !windows

package server

import "syscall"

// isNoListener reports nothing here, where errors have the usual names.
func isNoListener(syscall.Errno) bool { return false }
