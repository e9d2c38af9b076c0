package bridge

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"majordomus/bridge/frame"
)

// A script (testdata/scripts) is one run of a bridge between a client and the servers that it
// finds one after the other, line by line, in fake time:
//
//	c> LINE        the client writes a line
//	c< LINE        the client has got that line, next
//	N> LINE        the server of the Nth link writes a line
//	N< LINE        it has got that line, next
//	N dies         the Nth link ends
//	N hangs        it reads nothing any more
//	N joined       it was opened, and nothing was sent on it yet
//	find TEXT      from now on Find fails with TEXT; "find ok" ends it
//	refuse S CODE  the next attempt to open a link is refused
//	slow D         from now on Find takes D; "deaf" makes the client not read
//	sleep D        time passes
//	eof            the client ends its input
//	ended          Run has returned
//
// $NAME in an expectation stands for an id of the bridge's own when it is met
// first, and for the same afterwards; ~TEXT at the end of an expectation for
// anything that has TEXT in it. Whatever was received must have been expected
// before the next step that is no writing: a line too many is as wrong as a
// line too few.
type script struct {
	t     *testing.T
	cfg   Config
	mu    sync.Mutex
	toCli [][]byte
	in    *io.PipeWriter
	links []*fakeLink
	names map[string]string

	findErr error
	refuse  error
	slow    time.Duration
	deaf    chan struct{}
	finds   []error
	called  []string // what it was to be called
	ended   bool
	endErr  error

	got    string // what the last expectation met
	record []byte // with -update: the script as it should have been
}

var update = flag.Bool("update", false, "rewrite what the scripts expect")

type fakeLink struct {
	conn  net.Conn
	got   [][]byte
	seen  bool
	stop  chan struct{}
	ended bool
}

func (s *script) Write(p []byte) (int, error) {
	s.mu.Lock()
	deaf := s.deaf
	s.mu.Unlock()
	if deaf != nil {
		<-deaf
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(p) == 0 || p[len(p)-1] != '\n' {
		s.t.Errorf("half a line was written to the client: %.100q", p)
	}
	for line := range bytes.Lines(p) {
		line = bytes.TrimSuffix(line, []byte("\n"))
		if _, err := frame.Parse(line); err != nil {
			s.t.Errorf("the client got %.100q: %v", line, err)
		}
		s.toCli = append(s.toCli, bytes.Clone(line))
	}
	return len(p), nil
}

func (s *script) find(ctx context.Context, why error) (Endpoint, error) {
	s.mu.Lock()
	s.finds = append(s.finds, why)
	slow := s.slow
	s.mu.Unlock()
	select {
	case <-time.After(slow):
	case <-ctx.Done():
		return Endpoint{}, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.findErr != nil {
		return Endpoint{}, s.findErr
	}
	return Endpoint{Open: s.open}, nil
}

func (s *script) open(_ context.Context, name string) (io.ReadWriteCloser, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.called = append(s.called, name)
	if err := s.refuse; err != nil {
		s.refuse = nil
		return nil, err
	}
	ours, theirs := net.Pipe()
	l := &fakeLink{conn: theirs, stop: make(chan struct{})}
	s.links = append(s.links, l)
	go func() {
		r := frame.NewReader(theirs, 0)
		for {
			line, err := r.Next()
			s.mu.Lock()
			if err != nil {
				l.ended = true
				s.mu.Unlock()
				return
			}
			l.got = append(l.got, bytes.Clone(line))
			stop := l.stop
			s.mu.Unlock()
			select {
			case <-stop: // hangs until it dies
				return
			default:
			}
		}
	}()
	return ours, nil
}

func runScript(t *testing.T, text string, options ...func(*Config, *script)) *script {
	t.Helper()
	s := &script{t: t, names: map[string]string{}}
	synctest.Test(t, func(t *testing.T) {
		s.t = t
		inR, inW := io.Pipe()
		s.in = inW
		s.cfg = Config{In: inR, Out: s, ID: "b", Find: s.find, audit: audit(t)}
		for _, o := range options {
			o(&s.cfg, s)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			err := Run(ctx, s.cfg)
			s.mu.Lock()
			s.ended, s.endErr = true, err
			s.mu.Unlock()
		}()
		for n, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
			full := line
			line = strings.TrimSpace(line)
			if line == "" || strings.HasPrefix(line, "#") {
				s.note(full)
				continue
			}
			synctest.Wait()
			if *update && !isExpectation(line) {
				s.note(s.unexpected()...)
			}
			s.got = ""
			err := s.step(line)
			switch who, _, _ := strings.Cut(line, " "); {
			case err == nil:
				s.note(full)
			case *update && isExpectation(line):
				if s.got != "" {
					s.note(who + " " + s.got)
				}
			default:
				t.Errorf("line %d: %s\n%v", n+1, line, err)
			}
			if t.Failed() {
				break
			}
		}
		synctest.Wait()
		if *update {
			s.note(s.unexpected()...)
		}
		if !t.Failed() {
			if err := s.rest(""); err != nil {
				t.Errorf("at the end: %v", err)
			}
		}
		cancel()
		s.mu.Lock()
		if s.deaf != nil {
			close(s.deaf)
			s.deaf = nil
		}
		s.mu.Unlock()
		<-done
		inR.Close()
		inW.Close()
		for _, l := range s.links {
			l.conn.Close()
			s.mu.Lock()
			select {
			case <-l.stop:
			default:
				close(l.stop)
			}
			s.mu.Unlock()
		}
	})
	return s
}

// note adds to the record.
func (s *script) note(lines ...string) {
	for _, line := range lines {
		s.record = append(append(s.record, line...), '\n')
	}
}

// isExpectation reports whether a line says what is to be received.
func isExpectation(line string) bool {
	who, _, _ := strings.Cut(line, " ")
	return strings.HasSuffix(who, "<")
}

// unexpected takes what was received and not expected.
func (s *script) unexpected() (lines []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, line := range s.toCli {
		lines = append(lines, "c< "+string(line))
	}
	s.toCli = nil
	for i, l := range s.links {
		for _, line := range l.got {
			l.seen = true
			lines = append(lines, fmt.Sprintf("%d< %s", i+1, line))
		}
		l.got = nil
	}
	return lines
}

var ownID = regexp.MustCompile(`\$[a-z]+`)

// step does one step, or tells what is wrong.
func (s *script) step(line string) error {
	who, rest, _ := strings.Cut(line, " ")
	if isExpectation(line) {
		return s.expect(strings.TrimSuffix(who, "<"), rest)
	}
	if !strings.HasSuffix(who, ">") {
		if err := s.rest(line); err != nil {
			return err
		}
	}
	rest = ownID.ReplaceAllStringFunc(rest, func(name string) string { return s.names[name] })
	switch who {
	case "c>":
		_, err := io.WriteString(s.in, rest+"\n")
		return err
	case "eof":
		return s.in.Close()
	case "sleep":
		d, err := time.ParseDuration(rest)
		time.Sleep(d) // of the bubble's time, as a script says
		return err
	case "slow":
		d, err := time.ParseDuration(rest)
		s.mu.Lock()
		s.slow = d
		s.mu.Unlock()
		return err
	case "deaf":
		s.mu.Lock()
		s.deaf = make(chan struct{})
		s.mu.Unlock()
		return nil
	case "hears":
		s.mu.Lock()
		close(s.deaf)
		s.deaf = nil
		s.mu.Unlock()
		return nil
	case "find":
		s.mu.Lock()
		defer s.mu.Unlock()
		s.findErr = nil
		if rest != "ok" {
			s.findErr = errors.New(rest)
		}
		return nil
	case "refuse":
		s.mu.Lock()
		defer s.mu.Unlock()
		status, code, _ := strings.Cut(rest, " ")
		n, err := strconv.Atoi(status)
		s.refuse = &Refusal{Status: n, Code: code, Message: "no"}
		return err
	case "ended":
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.ended {
			return errors.New("Run goes on")
		}
		if s.endErr != nil {
			return fmt.Errorf("Run failed: %w", s.endErr)
		}
		return nil
	case "goes":
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.ended {
			return errors.New("Run has ended")
		}
		return nil
	}
	n, err := strconv.Atoi(strings.TrimRight(who, ">"))
	if err != nil {
		return errors.New("what step is this?")
	}
	s.mu.Lock()
	if n > len(s.links) {
		s.mu.Unlock()
		return fmt.Errorf("there are only %d links", len(s.links))
	}
	l := s.links[n-1]
	s.mu.Unlock()
	switch {
	case strings.HasSuffix(who, ">"):
		l.conn.SetWriteDeadline(time.Now().Add(time.Hour))
		_, err := io.WriteString(l.conn, rest+"\n")
		return err
	case rest == "dies":
		return l.conn.Close()
	case rest == "hangs":
		s.mu.Lock()
		close(l.stop)
		s.mu.Unlock()
		return nil
	case rest == "gone":
		s.mu.Lock()
		defer s.mu.Unlock()
		if !l.ended {
			return errors.New("the link is there")
		}
		return nil
	case rest == "joined":
		l.seen = true
		return nil
	}
	return errors.New("what step is this?")
}

func (s *script) expect(who, want string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	queue := &s.toCli
	if who != "c" {
		n, _ := strconv.Atoi(who)
		if n < 1 || n > len(s.links) {
			return fmt.Errorf("there are only %d links", len(s.links))
		}
		queue = &s.links[n-1].got
		s.links[n-1].seen = true
	}
	if len(*queue) == 0 {
		return errors.New("nothing came" + s.held())
	}
	got := string((*queue)[0])
	*queue, s.got = (*queue)[1:], got
	pattern := regexp.QuoteMeta(want)
	if prefix, part, ok := strings.Cut(want, "~"); ok {
		pattern = regexp.QuoteMeta(prefix) + ".*" + regexp.QuoteMeta(part) + ".*"
	}
	var names []string
	pattern = regexp.MustCompile(`\\\$[a-z]+`).ReplaceAllStringFunc(pattern, func(name string) string {
		name = name[1:]
		if known, ok := s.names[name]; ok {
			return regexp.QuoteMeta(known)
		}
		names = append(names, name)
		return `("majordomus-bridge-b-\d+")`
	})
	found := regexp.MustCompile("^" + pattern + "$").FindStringSubmatch(got)
	if found == nil {
		return fmt.Errorf("got %.300s", got)
	}
	for i, name := range names {
		s.names[name] = found[i+1]
	}
	return nil
}

// rest complains of whatever was received and not expected.
func (s *script) rest(next string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.held(); h != "" {
		return errors.New("not expected:" + h)
	}
	for i, l := range s.links {
		if !l.seen && !strings.HasPrefix(next, strconv.Itoa(i+1)) && next != "" {
			return fmt.Errorf("link %d was not expected", i+1)
		}
		l.seen = true
	}
	return nil
}

func (s *script) held() string {
	var b strings.Builder
	for _, line := range s.toCli {
		fmt.Fprintf(&b, "\n\tc< %.300s", line)
	}
	for i, l := range s.links {
		for _, line := range l.got {
			fmt.Fprintf(&b, "\n\t%d< %.300s", i+1, line)
		}
	}
	return b.String()
}
