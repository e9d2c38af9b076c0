package server

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"syscall"

	"majordomus/lease"
	"majordomus/server/session"
)

// Codes and messages that programs and people elsewhere rely on.
const (
	codeLost    = "lease_lost"
	messageLost = "this server no longer holds the lease of its checkout; start again through the launcher (majordomus mcp) to reach the current one"

	codeDraining    = "draining"
	messageDraining = "this server is ending and lets nobody new in; start again through the launcher (majordomus mcp) to reach the next one"

	codeUnreadable = "lease_unreadable"
)

// A door says by which names a server may be called. A page in a browser can
// send requests to loopback, directly or under a name of its own that it makes
// resolve to it, but it cannot choose what Host and Origin then say.
type door struct {
	port  string
	hosts map[string]bool // "name:port", lower case
	any   bool            // listens on every address of the machine
}

func newDoor(port int, names []string) door {
	d := door{port: strconv.Itoa(port), hosts: map[string]bool{}}
	for _, name := range append([]string{loopback, "localhost", "::1"}, names...) {
		if ip, err := netip.ParseAddr(name); err == nil && ip.IsUnspecified() {
			d.any = true
			continue
		}
		d.hosts[strings.ToLower(net.JoinHostPort(name, d.port))] = true
	}
	return d
}

// knows reports whether host, as a header has it, is one of ours. Where the
// server listens on every address, the one that r came to is: an address, unlike
// a name, leads where it says.
func (d door) knows(host string, r *http.Request) bool {
	if _, _, err := net.SplitHostPort(host); err != nil && d.port == "80" {
		host += ":80"
	}
	if d.hosts[strings.ToLower(host)] {
		return true
	}
	if !d.any {
		return false
	}
	to, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	if !ok {
		return false
	}
	called, err := netip.ParseAddrPort(host)
	return err == nil && called.Addr().Unmap() == to.AddrPort().Addr().Unmap() && strconv.Itoa(int(called.Port())) == d.port
}

// gate judges a request before anything of it is done: by whom it takes us for,
// who sends it, whether anybody new is let in, and the key, in place of which a
// page has a token for what it reads. It answers what it turns away. What is
// judged first is what says least about this server to somebody who has no
// business here; the lease comes before the key, because whoever meets a server
// that was replaced may well have the next one's key.
func (s *Server) gate(w http.ResponseWriter, r *http.Request, open bool) bool {
	// A target with a host of its own is for proxies, and takes the place of
	// what the header says.
	if !s.door.knows(r.Host, r) || r.URL.Host != "" {
		refuse(w, http.StatusForbidden, "forbidden_host", "this server is not to be called by that name")
		return false
	}
	for _, origin := range r.Header.Values("Origin") {
		host, plain := strings.CutPrefix(origin, "http://")
		if !plain || !s.door.knows(host, r) {
			refuse(w, http.StatusForbidden, "forbidden_origin", "this server answers no page of another origin")
			return false
		}
	}
	if r.URL.Path == pathMCP && s.isNew(r) {
		if no := s.refusal(); no != nil {
			turnAway(w, no)
			return false
		}
	}
	if !open && !s.hasKey(r) && !s.isPage(r) {
		w.Header().Set("WWW-Authenticate", `Bearer realm="majordomus"`)
		refuse(w, http.StatusUnauthorized, "unauthorized", "the checkout's key is missing or wrong; majordomus key prints it")
		return false
	}
	return true
}

// isNew reports whether a request to /mcp is of somebody who would have to be
// let in, as far as headers tell.
func (s *Server) isNew(r *http.Request) bool {
	return (r.Method == http.MethodPost || session.WantsLink(r)) && !s.core.Known(r)
}

func (s *Server) hasKey(r *http.Request) bool {
	if s.cfg.NoAuth {
		return true
	}
	offered, ok := bearer(r)
	if !ok {
		return false
	}
	is := func(key *secret) bool { return key != nil && key.is(offered) }
	return is(s.key.Load()) || is(s.currentKey())
}

// lasts returns r, which is let in, with a context that also ends when r would
// not be let in any more: with the key when that is rotated, and with a page's
// token. What lasts as long as its client likes would else be a way to go on
// with a key that is worth nothing. done is to be called when r has ended.
func (s *Server) lasts(r *http.Request) (_ *http.Request, done func()) {
	key := s.key.Load()
	if s.cfg.NoAuth || key == nil {
		return r, func() {}
	}
	ctx := r.Context()
	forget := func() {}
	if offered, _ := bearer(r); !key.is(offered) {
		until, _ := tokenEnd(key.text, offered) // none: the key was rotated since the gate
		ctx, forget = context.WithDeadline(ctx, until)
	}
	ctx, cancel := context.WithCancel(ctx)
	keep := context.AfterFunc(key.life, cancel)
	s.streams.Add(1)
	return r.WithContext(ctx), func() {
		s.streams.Add(-1)
		keep()
		cancel()
		forget()
	}
}

func bearer(r *http.Request) (offered string, ok bool) {
	scheme, offered, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.TrimSpace(offered), strings.EqualFold(scheme, "Bearer")
}

func refuse(w http.ResponseWriter, status int, code, message string) {
	answer(w, status, map[string]fault{"error": {code, message}})
}

func turnAway(w http.ResponseWriter, r *session.Refusal) { refuse(w, r.Status, r.Code, r.Message) }

// fault is what an error says.
type fault struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

func unreadable(err error) string {
	return "the lease (server.json) cannot be read at the moment: " + plain(err)
}

// plain is what an error comes to without the paths it was met at, which are
// nobody's business outside this machine.
func plain(err error) string {
	var number syscall.Errno
	if errors.As(err, &number) {
		return number.Error()
	}
	for _, e := range []error{lease.ErrLockBusy, lease.ErrLost, fs.ErrNotExist, fs.ErrPermission} {
		if errors.Is(err, e) {
			return e.Error()
		}
	}
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err.Error()
	}
	return "an error that the log has"
}
