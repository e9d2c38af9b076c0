package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"majordomus/lease"
	"majordomus/server/session"
)

const pathMCP = "/mcp"

// maxBody bounds the bodies of our own requests, which are a few words.
const maxBody = 64 << 10

// route is one path. GET stands for HEAD too.
type route struct {
	open   bool // without the key
	method string
	handle func(http.ResponseWriter, *http.Request)
}

// route returns what a path leads to. The paths are compared as they are: a
// multiplexer would redirect some that are not.
func (s *Server) route(path string) (route, bool) {
	switch path {
	case "/":
		return route{true, http.MethodGet, s.serveIndex}, true
	case "/api/v1/health":
		return route{true, http.MethodGet, s.serveHealth}, true
	case "/api/v1/live", "/api/v1/ready":
		return route{true, http.MethodGet, s.serveReady}, true
	case "/api/v1/server":
		return route{false, http.MethodGet, s.serveState}, true
	case "/api/v1/peers":
		return route{false, http.MethodGet, s.servePeers}, true
	case "/api/v1/announce":
		return route{false, http.MethodPost, s.serveAnnounce}, true
	case "/api/v1/executions":
		return route{false, http.MethodGet, s.serveExecutions}, true
	case "/metrics":
		return route{false, http.MethodGet, s.serveMetrics}, true
	case "/api/v1/events":
		return route{false, http.MethodGet, s.serveEvents}, true
	case "/api/v1/upstreams":
		return route{false, http.MethodGet, s.serveUpstreams}, true
	case "/api/v1/upstreams/restart":
		return route{false, http.MethodPost, s.serveRestart}, true
	case "/api/v1/stop":
		return route{false, http.MethodPost, s.serveStop}, true
	case "/api/v1/key":
		return route{false, http.MethodPost, s.serveKey}, true
	case "/api/v1/code":
		return route{false, http.MethodPost, s.serveCode}, true
	case "/api/v1/page":
		return route{true, http.MethodPost, s.serveToken}, true
	case pathCockpit, pathCockpit + "/app.js", pathCockpit + "/style.css", pathCockpit + "/icon.svg":
		return route{true, http.MethodGet, s.serveCockpit}, true
	}
	return route{}, false
}

// ServeHTTP answers every request that comes to the port. It is for the
// http.Server that Run makes.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer")
	// No page of another origin gets to see even what is open, be it as an
	// image, a script or a frame, for which browsers send no Origin.
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("X-Frame-Options", "DENY")
	if r.URL.Path == pathMCP {
		if r.ContentLength != 0 {
			s.bound(w) // if it is turned away; who reads the body sets another
		}
		if s.gate(w, r, false) {
			if session.Listens(r) {
				var done func()
				r, done = s.lasts(r)
				defer done()
			}
			s.core.ServeHTTP(w, r)
		}
		return
	}
	if r.ContentLength != 0 {
		// net/http reads what a handler leaves of a body, and waits for it.
		s.bound(w)
	}
	to, known := s.route(r.URL.Path)
	if !s.gate(w, r, to.open || !known) {
		return
	}
	switch {
	case !known:
		refuse(w, http.StatusNotFound, "not_found", "there is nothing at this path")
	case r.Method != to.method && (r.Method != http.MethodHead || to.method != http.MethodGet):
		allow := to.method
		if allow == http.MethodGet {
			allow = "GET, HEAD"
		}
		h.Set("Allow", allow)
		refuse(w, http.StatusMethodNotAllowed, "method_not_allowed", "this path knows only "+allow)
	default:
		to.handle(w, r)
	}
}

// bound gives the body of a request the time that any request has to be read
// in full.
func (s *Server) bound(w http.ResponseWriter) {
	rc := http.NewResponseController(w)
	rc.SetReadDeadline(time.Now().Add(s.cfg.Policy.ReadDeadline)) // ignore error: not every writer has one
}

// index is what GET / says, beside why it cannot tell everything.
type index struct {
	lease.Index
	Error *fault `json:"error,omitempty"`
}

// serveIndex says what server this is. Judges of the lease read it: while the
// lease cannot be read, the status says "not now", which they wait out.
func (s *Server) serveIndex(w http.ResponseWriter, r *http.Request) {
	proof := ""
	if q := r.URL.Query(); q.Has("challenge") {
		nonce := q["challenge"]
		if len(nonce) != 1 || !isNonce(nonce[0]) {
			refuse(w, http.StatusBadRequest, "invalid_challenge", "a challenge is 32 lower-case hex characters")
			return
		}
		// Also by a server that has lost its lease, or is about to give it
		// up: only with the proof its word for that is believed.
		if key := s.currentKey(); key != nil && s.cfg.Tenure != nil {
			proof = lease.Proof(key.text, nonce[0], s.cfg.Tenure.Token())
		}
	}
	status := http.StatusOK
	x := index{Index: s.index()}
	x.Proof = proof
	holds, err := s.holding()
	if err != nil {
		status = http.StatusServiceUnavailable
		x.Error = &fault{codeUnreadable, unreadable(err)}
	}
	x.LeaseHolder = &holds
	w.Header().Set("Vary", "Accept")
	if wantsPage(r) {
		s.servePage(w, status, x)
		return
	}
	answer(w, status, x)
}

// index is what this server is, but for the lease.
func (s *Server) index() lease.Index {
	counts, fingerprint := s.sums()
	x := lease.Index{
		Name: name, Version: s.cfg.Version, StartedAt: s.started, Stale: s.stale.now(),
		Counts: counts, Fingerprint: fingerprint, Surfaces: []lease.Surface{{ID: "mcp", Path: pathMCP}, {ID: "cockpit", Path: pathCockpit}},
	}
	if c := s.cfg.Checkout; c != nil {
		x.Repository, x.RepositoryID, x.GitRepositoryID, x.LinkedWorktree = c.Name, c.ID, c.GitID, c.LinkedWorktree
	}
	return x
}

// serveReady says whether this is a server to send anybody to.
func (s *Server) serveReady(w http.ResponseWriter, r *http.Request) {
	if no := s.refusal(); no != nil {
		refuse(w, http.StatusServiceUnavailable, no.Code, no.Message)
		return
	}
	if s.cfg.Tenure != nil {
		switch holds, err := s.holding(); {
		case err != nil:
			refuse(w, http.StatusServiceUnavailable, codeUnreadable, unreadable(err))
			return
		case !holds:
			refuse(w, http.StatusServiceUnavailable, codeLost, messageLost)
			return
		}
	}
	answer(w, http.StatusOK, map[string]string{"status": "ok"})
}

func (s *Server) serveHealth(w http.ResponseWriter, r *http.Request) {
	answer(w, http.StatusOK, s.health())
}

func (s *Server) serveState(w http.ResponseWriter, r *http.Request) {
	answer(w, http.StatusOK, s.state())
}

// serveStop has decided to end when it answers: what is asked next finds a
// server that lets nobody in.
func (s *Server) serveStop(w http.ResponseWriter, r *http.Request) {
	var asked struct {
		Force bool `json:"force"`
	}
	if !s.decode(w, r, &asked) {
		return
	}
	s.stop(asked.Force)
	peers, calls := s.core.Stats()
	answer(w, http.StatusOK, map[string]any{"stopping": true, "peers": peers, "in_flight": calls})
}

// serveKey reads the key file again, so that the old key is worth nothing from
// then on. It was looked at already if the caller came with the new one.
func (s *Server) serveKey(w http.ResponseWriter, r *http.Request) {
	if !s.decode(w, r, &struct{}{}) {
		return
	}
	for {
		had := s.key.Load()
		key, err := s.readKey()
		if err != nil {
			s.log.Error("reading the key again", "err", err)
			refuse(w, http.StatusServiceUnavailable, "key_unreadable", "the key cannot be read, so the old one goes on: "+plain(err))
			return
		}
		if s.swapKey(had, key) {
			break
		}
	}
	s.log.Info("the key was read again")
	answer(w, http.StatusOK, map[string]bool{"read": true})
}

// decode reads a body of JSON, or of nothing, into v; it answers what it
// cannot read.
func (s *Server) decode(w http.ResponseWriter, r *http.Request, v any) bool {
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		refuse(w, http.StatusRequestEntityTooLarge, "payload_too_large", "the body may have at most "+strconv.Itoa(maxBody)+" bytes")
	case err != nil:
		refuse(w, http.StatusBadRequest, "invalid_json", "the body could not be read to its end")
	case len(bytes.TrimSpace(b)) > 0 && json.Unmarshal(b, v) != nil:
		refuse(w, http.StatusBadRequest, "invalid_json", "the body is not the JSON that this path takes")
	default:
		return true
	}
	return false
}

func answer(w http.ResponseWriter, status int, v any) {
	b, err := encode(v)
	if err != nil {
		status, b = http.StatusInternalServerError, []byte(`{"error":{"code":"internal","message":"the answer could not be encoded"}}`)
	}
	answerRaw(w, status, b)
}

func answerRaw(w http.ResponseWriter, status int, b []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	w.WriteHeader(status)
	w.Write(b) // ignore error: the client has gone
}

// encode encodes v as JSON as it is, without escapes for HTML.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

func isNonce(s string) bool { return len(s) == 32 && strings.Trim(s, "0123456789abcdef") == "" }

// wantsPage reports whether text/html is named: browsers do, and everything
// else that takes anything gets JSON.
func wantsPage(r *http.Request) bool {
	for _, v := range r.Header.Values("Accept") {
		for part := range strings.SplitSeq(v, ",") {
			t, params, err := mime.ParseMediaType(part)
			if q, bad := strconv.ParseFloat(params["q"], 64); err == nil && t == "text/html" && (bad != nil || q > 0) {
				return true
			}
		}
	}
	return false
}

// servePage says for people what the index says for programs.
func (s *Server) servePage(w http.ResponseWriter, status int, x index) {
	var b strings.Builder
	row := func(key, format string, a ...any) {
		fmt.Fprintf(&b, "<tr><td>%s</td><td>%s</td></tr>\n", html.EscapeString(key), html.EscapeString(fmt.Sprintf(format, a...)))
	}
	title := html.EscapeString(name + ": " + x.Repository)
	fmt.Fprintf(&b, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>%s</title></head><body>\n<h1>%s</h1>\n<table>\n", title, title)
	row("version", "%s", x.Version)
	row("repository_id", "%s", x.RepositoryID)
	if x.GitRepositoryID != "" {
		row("git_repository_id", "%s", x.GitRepositoryID)
	}
	row("linked_worktree", "%t", x.LinkedWorktree)
	row("leaseholder", "%t", *x.LeaseHolder)
	row("started_at", "%s", x.StartedAt.Format(time.RFC3339Nano))
	stale := "no"
	if x.Stale != nil {
		stale = *x.Stale
	}
	row("stale", "%s", stale)
	row("counts", "%d tools, %d resources, %d prompts, %d files of the layer", x.Counts.Tools, x.Counts.Resources, x.Counts.Prompts, x.Counts.Layer)
	row("fingerprint", "%s", x.Fingerprint)
	for _, to := range x.Surfaces {
		row(to.ID, "%s", to.Path)
	}
	if x.Proof != "" {
		row("proof", "%s", x.Proof)
	}
	if x.Error != nil {
		row(x.Error.Code, "%s", x.Error.Message)
	}
	b.WriteString("</table>\n<p><a href=\"/cockpit\">cockpit</a> <a href=\"/api/v1/health\">health</a></p>\n</body></html>\n")
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	h.Set("Content-Length", strconv.Itoa(b.Len()))
	w.WriteHeader(status)
	io.WriteString(w, b.String()) // ignore error: the client has gone
}
