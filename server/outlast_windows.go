package server

import (
	"syscall"

	"golang.org/x/sys/windows"
)

// isNoListener knows what the system calls what has other names elsewhere.
func isNoListener(err syscall.Errno) bool {
	switch err {
	case windows.ERROR_INVALID_HANDLE, windows.WSAEBADF, windows.WSAEINVAL, windows.WSAENOTSOCK:
		return true
	}
	return false
}
