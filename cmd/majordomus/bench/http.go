package bench

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
)

// A Straight is a client of a server's /mcp on one kept connection, written to
// spend as little as there can be.
type Straight struct {
	conn net.Conn
	r    *bufio.Reader
	bare string
	head string
}

// NewStraight shakes hands with the server at url.
func NewStraight(url, key string) (*Straight, error) {
	host := strings.TrimPrefix(url, "http://")
	conn, err := net.Dial("tcp", host)
	if err != nil {
		return nil, fmt.Errorf("going straight to the server: %w", err)
	}
	s := &Straight{conn: conn, r: bufio.NewReaderSize(conn, 64<<10)}
	s.bare = "/mcp HTTP/1.1\r\nHost: " + host + "\r\nAuthorization: Bearer " + key + "\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
	if err := s.Open(); err != nil {
		conn.Close() // ignore error: nothing was done on it
		return nil, err
	}
	return s, nil
}

// Open begins another session on the same connection.
func (s *Straight) Open() error {
	s.head = s.bare
	resp, err := s.do("POST", strings.TrimSpace(Initialize))
	if err != nil {
		return err
	}
	s.head += "Mcp-Session-Id: " + resp.Header.Get("Mcp-Session-Id") + "\r\nMcp-Protocol-Version: 2025-11-25\r\n"
	return nil
}

// Leave ends the session that was opened last.
func (s *Straight) Leave() error {
	_, err := s.do("DELETE", "")
	return err
}

// Session is what a session is left by later, on any connection.
func (s *Straight) Session() func() error {
	head := s.head
	return func() error {
		s.head = head
		return s.Leave()
	}
}

// Ask sends a message and reads its answer.
func (s *Straight) Ask(message string) error {
	_, err := s.do("POST", strings.TrimSuffix(message, "\n"))
	return err
}

func (s *Straight) do(method, message string) (*http.Response, error) {
	if _, err := fmt.Fprintf(s.conn, "%s %sContent-Length: %d\r\n\r\n%s", method, s.head, len(message), message); err != nil {
		return nil, fmt.Errorf("asking straight: %w", err)
	}
	resp, err := http.ReadResponse(s.r, nil)
	if err != nil {
		return nil, fmt.Errorf("asking straight: %w", err)
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode/100 != 2 {
		return nil, fmt.Errorf("asking straight: %s %v", resp.Status, err)
	}
	return resp, nil
}

// Close ends the connection; the sessions stay.
func (s *Straight) Close() error { return s.conn.Close() }

// A Link is a bridge's link to its server, without the bridge.
type Link struct {
	conn net.Conn
	r    *bufio.Reader
}

// DialLink opens the nth link to the server at url and shakes hands on it.
func DialLink(url, key string, n int) (*Link, error) {
	host := strings.TrimPrefix(url, "http://")
	conn, err := net.Dial("tcp", host)
	if err != nil {
		return nil, fmt.Errorf("opening a link: %w", err)
	}
	l := &Link{conn, bufio.NewReaderSize(conn, 512)}
	fmt.Fprintf(conn, "GET /mcp HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: majordomus-frames/1\r\nAuthorization: Bearer %s\r\nMajordomus-Bridge: %04x0000-0000-4000-8000-000000000000\r\n\r\n", host, key, n)
	resp, err := http.ReadResponse(l.r, nil)
	if err == nil && resp.StatusCode != http.StatusSwitchingProtocols {
		err = fmt.Errorf("refused: %s", resp.Status)
	}
	if err == nil {
		_, err = l.Ask(Initialize)
	}
	if err == nil {
		_, err = io.WriteString(conn, Initialized)
	}
	if err != nil {
		conn.Close() // ignore error: nothing was done on it
		return nil, fmt.Errorf("opening a link: %w", err)
	}
	return l, nil
}

// Ask sends a request and returns the answer.
func (l *Link) Ask(request string) ([]byte, error) {
	if _, err := io.WriteString(l.conn, request); err != nil {
		return nil, fmt.Errorf("asking on a link: %w", err)
	}
	for { // control lines and notifications come between
		line, err := l.r.ReadBytes('\n')
		if err != nil {
			return nil, fmt.Errorf("asking on a link: %w", err)
		}
		if line[0] == '{' && bytes.Contains(line, []byte(`"id":7`)) {
			return line, nil
		}
	}
}

// Close ends the link.
func (l *Link) Close() error { return l.conn.Close() }
