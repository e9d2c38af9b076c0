package server

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"sync"
)

// usualPort is where a checkout's server listens if it can, so that what people
// have written down mostly stays true.
const usualPort = 8741

const loopback = "127.0.0.1"

// Listen binds a server's port on 127.0.0.1, and on host as well where that is
// another address: whoever finds the server by its lease comes over loopback.
// A port other than 0 is used or is an error. Else it is the port of the
// address prefer ("" for none), for the sake of clients that know it from the
// server replaced; if that is taken 8741; if that is taken too any.
func Listen(prefer, host string, port int) (net.Listener, error) {
	if port < 0 || port > 65535 {
		return nil, fmt.Errorf("listening: %d is no port", port)
	}
	if port != 0 {
		l, err := listen(host, port)
		if err != nil {
			return nil, fmt.Errorf("listening on port %d: %w", port, err)
		}
		return l, nil
	}
	tried := 0
	if u, err := url.Parse(prefer); err == nil && u.Port() != "" {
		if n, err := strconv.Atoi(u.Port()); err == nil && n > 0 && n <= 65535 {
			tried = n
			if l, err := listen(host, n); err == nil {
				return l, nil
			}
		}
	}
	if tried != usualPort {
		if l, err := listen(host, usualPort); err == nil {
			return l, nil
		}
	}
	l, err := listen(host, 0)
	if err != nil {
		return nil, fmt.Errorf("listening: %w", err)
	}
	return l, nil
}

func listen(host string, port int) (net.Listener, error) {
	ip, err := netip.ParseAddr(host)
	switch {
	case host == "" || host == "localhost" || err == nil && ip.Unmap() == netip.AddrFrom4([4]byte{127, 0, 0, 1}):
		return bind(loopback, port)
	case err == nil && ip.IsUnspecified():
		return bind(host, port)
	}
	near, err := bind(loopback, port)
	if err != nil {
		return nil, err
	}
	far, err := bind(host, near.Addr().(*net.TCPAddr).Port)
	if err != nil {
		near.Close() // ignore error: nobody was served on it
		return nil, err
	}
	if far.Addr().String() == near.Addr().String() { // cannot be: the port was taken
		return far, nil
	}
	return &both{near: near, far: far}, nil
}

func bind(host string, port int) (net.Listener, error) {
	return net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
}

// address is the URL under which this machine reaches a listener.
func address(a *net.TCPAddr) string {
	host := a.IP.String()
	if a.IP.IsUnspecified() {
		host = loopback
	}
	return "http://" + net.JoinHostPort(host, strconv.Itoa(a.Port))
}

// both is a listener on loopback and on another address, at the same port.
type both struct {
	near, far net.Listener

	once  sync.Once
	found chan accepted
	done  chan struct{} // closed by Close
	wg    sync.WaitGroup

	mu     sync.Mutex
	closed bool
}

type accepted struct {
	conn net.Conn
	err  error
}

// Addr is the address on loopback.
func (b *both) Addr() net.Addr { return b.near.Addr() }

// Accept starts the two goroutines that accept; Close ends them.
func (b *both) Accept() (net.Conn, error) {
	b.once.Do(b.start)
	select {
	case a := <-b.found:
		return a.conn, a.err
	case <-b.done:
		return nil, net.ErrClosed
	}
}

func (b *both) start() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.found, b.done = make(chan accepted), make(chan struct{})
	if b.closed {
		close(b.done)
		return
	}
	for _, l := range []net.Listener{b.near, b.far} {
		b.wg.Go(func() {
			for {
				conn, err := l.Accept()
				select {
				case b.found <- accepted{conn, err}:
				case <-b.done:
					if conn != nil {
						conn.Close() // ignore error: nobody was served on it
					}
					return
				}
				if errors.Is(err, net.ErrClosed) {
					return
				}
			}
		})
	}
}

// Close closes both and waits for what Accept started.
func (b *both) Close() error {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return nil
	}
	b.closed = true
	if b.done != nil {
		close(b.done)
	}
	b.mu.Unlock()
	err := errors.Join(b.near.Close(), b.far.Close())
	b.wg.Wait()
	return err
}
