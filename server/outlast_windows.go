package server

import "syscall"

// What the system has other names for than elsewhere.
const (
	errorInvalidHandle syscall.Errno = 6
	wsaeBadF           syscall.Errno = 10009
	wsaeInval          syscall.Errno = 10022
	wsaeNotSock        syscall.Errno = 10038
)

func isNoListener(err syscall.Errno) bool {
	return err == errorInvalidHandle || err == wsaeBadF || err == wsaeInval || err == wsaeNotSock
}
