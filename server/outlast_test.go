package server

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// A failing listener gives the errors it has before it does anything else.
type failing struct {
	net.Listener
	errs  chan error
	asked atomic.Int64
}

func (l *failing) Accept() (net.Conn, error) {
	l.asked.Add(1)
	select {
	case err := <-l.errs:
		return nil, &net.OpError{Op: "accept", Net: "tcp", Addr: l.Addr(), Err: err}
	default:
		return l.Listener.Accept()
	}
}

// fail puts errors into a listener, at most a hundred.
func fail(l net.Listener, errs ...error) *failing {
	f := &failing{Listener: l, errs: make(chan error, 100)}
	for _, err := range errs {
		f.errs <- err
	}
	return f
}

func acceptFailed(number syscall.Errno) error { return os.NewSyscallError("accept4", number) }

// Whatever accepting fails with that has nothing to do with the listener, those
// who are there are served on, and whoever comes later is let in.
func TestAcceptFails(t *testing.T) {
	passing := []error{
		acceptFailed(syscall.ENOBUFS), acceptFailed(syscall.ENOMEM), acceptFailed(syscall.EPERM), acceptFailed(syscall.EPROTO),
		acceptFailed(syscall.ENETDOWN), acceptFailed(syscall.EHOSTUNREACH),
	}
	var l *failing
	p := settle(t, func(c *Config) { l = fail(c.Listener); c.Listener = l })
	there := p.link("1d6ee63c-2ed3-44b7-9b4e-3d6bc1e7ff15")
	there.shake()
	for _, err := range passing {
		l.errs <- err
	}
	// The connections that make it ask again, and meet what it fails with.
	for range 2 {
		p.client.CloseIdleConnections()
		if r := p.ask("GET", "/api/v1/ready", ""); r.status != 200 {
			t.Fatal(r.status, r.body)
		}
	}
	if n := len(l.errs); n > 0 {
		t.Fatalf("%d errors were not met", n)
	}
	there.say(call("1", "majordomus_peers", "{}"))
	there.hear(`"id":1`)
	if n := strings.Count(p.log.String(), "accepting a connection"); n != 1 {
		t.Errorf("said %d times: %s", n, p.log.String())
	}
}

// The pauses grow, and one success ends them.
func TestAcceptPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := &memory{make(chan net.Conn), make(chan struct{})}
		inner := fail(network)
		for range 12 {
			inner.errs <- acceptFailed(syscall.ENOBUFS)
		}
		log := &logged{}
		l := outlast(inner, slog.New(slog.NewTextHandler(log, nil)))
		begun := time.Now()
		accept := func() {
			t.Helper()
			go func() {
				conn, err := network.dial(t.Context(), "", "")
				if err == nil {
					io.Copy(io.Discard, conn) // ignore error: until it is closed
				}
			}()
			conn, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			conn.Close()
		}
		accept()
		// 5 ms, 10, 20, … 640, then four of a second.
		if took, want := time.Since(begun), 1275*time.Millisecond+4*time.Second; took != want {
			t.Errorf("paused for %v, want %v", took, want)
		}
		if n := inner.asked.Load(); n != 13 {
			t.Errorf("asked %d times", n)
		}
		begun = time.Now()
		inner.errs <- acceptFailed(syscall.ENOBUFS)
		accept()
		if took := time.Since(begun); took != shortestPause {
			t.Errorf("paused for %v after a success", took)
		}
		if n := strings.Count(log.String(), "level=WARN"); n != 2 {
			t.Errorf("%d warnings for two runs of failures: %s", n, log)
		}
	})
}

// A pause is nothing that whoever ends the server waits for.
func TestCloseEndsAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := fail(&memory{make(chan net.Conn), make(chan struct{})})
		for range 100 {
			inner.errs <- acceptFailed(syscall.ENETDOWN)
		}
		l := outlast(inner, slog.New(slog.DiscardHandler))
		ended := make(chan error)
		go func() {
			_, err := l.Accept()
			ended <- err
		}()
		time.Sleep(10 * time.Second)
		synctest.Wait() // it pauses for a second
		begun := time.Now()
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, net.ErrClosed) || time.Since(begun) != 0 {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
	})
}

// What is no listener any more is not asked for ever.
func TestAcceptEnds(t *testing.T) {
	for _, err := range []error{net.ErrClosed, acceptFailed(syscall.EBADF), acceptFailed(syscall.EINVAL), acceptFailed(syscall.ENOTSOCK), io.EOF} {
		l := outlast(fail(&memory{make(chan net.Conn), make(chan struct{})}, err), slog.New(slog.DiscardHandler))
		if _, got := l.Accept(); !errors.Is(got, err) {
			t.Errorf("%v became %v", err, got)
		}
	}
}

// Of two addresses one goes on while the other fails.
func TestOneOfTwoFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near := &memory{make(chan net.Conn), make(chan struct{})}
		far := fail(&memory{make(chan net.Conn), make(chan struct{})})
		for range 100 {
			far.errs <- acceptFailed(syscall.ENETDOWN)
		}
		l := outlast(&both{near: near, far: far}, slog.New(slog.DiscardHandler))
		begun := time.Now()
		for range 10 {
			go near.dial(t.Context(), "", "")
			conn, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			conn.Close()
		}
		if took := time.Since(begun); took > 0 {
			t.Errorf("ten clients waited %v for an address that is not theirs", took)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}
