package server

import (
	"errors"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"time"
)

// The pauses after an accept that failed, which are net/http's.
const (
	shortestPause = 5 * time.Millisecond
	longestPause  = time.Second
)

// outlast returns l as a listener that goes on after errors which pass. net/http
// does so for a few of them; any other would end the server, and with it the
// sessions of everybody who is there.
func outlast(l net.Listener, log *slog.Logger) net.Listener {
	if b, ok := l.(*both); ok {
		// Each for itself: what one meets keeps nobody waiting at the other.
		return &both{near: outlast(b.near, log), far: outlast(b.far, log)}
	}
	return &lasting{Listener: l, log: log, closed: make(chan struct{})}
}

type lasting struct {
	net.Listener
	log *slog.Logger

	once   sync.Once
	closed chan struct{} // by Close
}

// Accept returns no error but one that is the end of the listener.
func (l *lasting) Accept() (net.Conn, error) {
	pause := shortestPause
	for failed := 0; ; failed++ {
		conn, err := l.Listener.Accept()
		switch {
		case err == nil:
			if failed > 0 {
				l.log.Info("accepting connections again", "failed", failed)
			}
			return conn, nil
		case !passes(err):
			return nil, err
		case failed == 0: // once: there may be one a second for a long time
			l.log.Warn("accepting a connection; tried again until it is possible", "addr", l.Addr(), "err", err)
		}
		wait := time.NewTimer(pause)
		select {
		case <-wait.C:
		case <-l.closed:
			wait.Stop()
			return nil, net.ErrClosed
		}
		pause = min(2*pause, longestPause)
	}
}

// Close ends a pause, too.
func (l *lasting) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// passes reports whether an error of accept says nothing about the listener.
// Most do not: there is no memory, no descriptor or no network for the moment, a
// firewall has no liking for the client, or that has gone. Only that what is
// listened on is no listener, or none any more, is for good.
func passes(err error) bool {
	var number syscall.Errno
	if !errors.As(err, &number) {
		return false
	}
	switch number {
	case syscall.EBADF, syscall.EINVAL, syscall.ENOTSOCK:
		return false
	}
	return !isNoListener(number)
}
