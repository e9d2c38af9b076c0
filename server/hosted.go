package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"time"

	"majordomus/lease"
	"majordomus/server/board"
	"majordomus/server/hub"
	"majordomus/server/hub/config"
)

// Hosting says what a server hosts for its clients.
type Hosting struct {
	// Entries is asked again and again; see hub.Config. An error that is an
	// *Untrusted is one that a person can lift.
	Entries func() (*config.File, error)
	Resolve func(config.Server) (config.Server, []string, error)
}

// Untrusted is why nothing of a servers file is started.
type Untrusted struct {
	Changed bool // it was trusted, and is another file now
}

func (u *Untrusted) Error() string {
	if u.Changed {
		return "the servers file has changed since it was trusted"
	}
	return "the servers file is not trusted"
}

// newHub is what hosts servers; nil where none may be.
func (s *Server) newHub() *hub.Hub {
	if s.cfg.Hosting == nil || s.cfg.Checkout == nil {
		return nil
	}
	cfg := hub.Config{
		Root: s.cfg.Checkout.Root, Version: s.cfg.Version, Entries: s.cfg.Hosting.Entries, Resolve: s.resolve,
		Changed: func(kind string) {
			s.core.Tell("!registry " + s.fingerprint())
			s.core.ListChanged(kind)
		},
		Stands: func(name, state string, because error) {
			e := board.Event{Kind: board.UpstreamNow, Subject: name, State: state}
			if because != nil {
				e.Message = brief(s.pathless(because.Error()), 400)
			}
			s.board.Note(e)
		},
		Updated: func(session, uri string) { s.core.UpdatedFor(session, uri) }, MaxMessage: s.cfg.Policy.MaxMessageBytes, Log: s.log,
		OpenLog: func(string) (io.WriteCloser, error) { return discard{io.Discard}, nil },
	}
	if f := s.cfg.Folder; f != nil {
		dir := filepath.Dir(f.LeasePath())
		cfg.Keep, cfg.Records = filepath.Join(dir, "catalogue"), filepath.Join(dir, "hosted")
		cfg.OpenLog = func(name string) (io.WriteCloser, error) { return f.Log(name) }
		cfg.LogTail = func(name string) string { return lease.Tail(f.LogPath(name), 0) }
	}
	return hub.New(cfg)
}

// resolve makes an entry ready to be started, and refuses one that leads here:
// only a server that listens knows its port.
func (s *Server) resolve(e config.Server) (config.Server, []string, error) {
	e, env, err := s.cfg.Hosting.Resolve(e)
	if err != nil || s.cfg.Listener == nil {
		return e, env, err
	}
	if at, ok := s.cfg.Listener.Addr().(*net.TCPAddr); ok && e.HostsItself(at.Port) {
		return e, env, errors.New("it would host this server in itself")
	}
	return e, env, nil
}

type discard struct{ io.Writer }

func (discard) Close() error { return nil }

// hostedLimit is how long hosted servers get to end, all at once.
const hostedLimit = 8 * time.Second

func (s *Server) endHosted(ctx context.Context) {
	if s.hub == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), hostedLimit)
	defer cancel()
	s.hub.Close(ctx)
}

// sums counts all that clients can list, and fingerprints it.
func (s *Server) sums() (lease.Counts, string) {
	counts, fingerprint := s.registry.sums()
	if s.hub == nil {
		return counts, fingerprint
	}
	tools, resources, prompts := s.hub.Counts()
	counts.Tools += tools
	counts.Resources += resources
	counts.Prompts += prompts
	sum := sha256.Sum256([]byte(fingerprint + s.hub.Fingerprint()))
	return counts, hex.EncodeToString(sum[:])
}

func (s *Server) fingerprint() string {
	_, fingerprint := s.sums()
	return fingerprint
}

// Upstreams is what is hosted, and why not more.
type Upstreams struct {
	Upstreams []hub.State      `json:"upstreams"`
	Reason    string           `json:"reason,omitempty"` // why nothing is hosted
	Untrusted bool             `json:"untrusted,omitempty"`
	Problems  []config.Problem `json:"problems"` // entries that are left out
}

func (s *Server) serveUpstreams(w http.ResponseWriter, _ *http.Request) {
	all := Upstreams{Upstreams: []hub.State{}, Problems: []config.Problem{}}
	if s.hub == nil {
		all.Reason = "this server hosts no others"
		answer(w, http.StatusOK, all)
		return
	}
	problems, _, trouble := s.hub.Trouble()
	all.Upstreams = s.hub.Measured()
	all.Problems = append(all.Problems, problems...)
	if trouble != nil {
		var untrusted *Untrusted
		all.Reason, all.Untrusted = trouble.Error(), errors.As(trouble, &untrusted)
	}
	answer(w, http.StatusOK, all)
}

// serveRestart ends the processes of one hosted server, and starts it.
func (s *Server) serveRestart(w http.ResponseWriter, r *http.Request) {
	var body struct{ Name string }
	if !s.decode(w, r, &body) {
		return
	}
	if s.hub == nil || !s.hub.Restart(body.Name) {
		refuse(w, http.StatusNotFound, "upstream_not_found", "no server of that name is hosted here")
		return
	}
	answer(w, http.StatusOK, map[string]bool{"restarted": true})
}

// mostLeftOut is how many of one server's offers that are left out are named.
const mostLeftOut = 5

// checkHosted looks at what is hosted: whether it may be, and each server.
func (s *Server) checkHosted() []check {
	if s.hub == nil {
		return nil
	}
	problems, clashes, trouble := s.hub.Trouble()
	trust := check{ID: "trust"}
	if trouble != nil {
		remedy := "mend the servers file; it is looked at again within seconds"
		var untrusted *Untrusted
		if errors.As(trouble, &untrusted) {
			remedy = "look at what it would run and agree to it: majordomus trust"
		}
		trust.Findings = append(trust.Findings, finding{Message: "no server is hosted: " + s.pathless(trouble.Error()), Remedy: remedy})
	}
	for _, p := range problems {
		trust.Findings = append(trust.Findings, finding{
			Message: "an entry of the servers file is left out: " + p.String(), Remedy: "mend that line; the other entries go on",
		})
	}
	for _, c := range clashes {
		trust.Findings = append(trust.Findings, finding{
			Message: "a resource is offered twice: " + brief(c, 300), Remedy: "host only one of the two, if that matters",
		})
	}
	checks := []check{trust}
	for _, st := range s.hub.States() {
		c := check{ID: "upstream:" + st.Name}
		if st.State == "failed" {
			c.Findings = append(c.Findings, finding{
				Message: "it has failed: " + brief(s.pathless(st.LastError), 400),
				Remedy:  fmt.Sprintf("majordomus upstream logs %s shows what it said; it is started again on the next call", st.Name),
			})
		}
		if st.Waiting != "" {
			c.Findings = append(c.Findings, finding{
				Message: "it is being started: " + st.Waiting,
				Remedy:  fmt.Sprintf("nobody waits for it but those who call it; majordomus upstream logs %s shows what it said", st.Name),
			})
		}
		for i, l := range st.LeftOut {
			if i == mostLeftOut {
				c.Findings = append(c.Findings, finding{
					Message: fmt.Sprintf("%d more of what it offers are left out", len(st.LeftOut)-i), Remedy: "majordomus upstream list shows all of them",
				})
				break
			}
			c.Findings = append(c.Findings, finding{
				Message: "left out is " + brief(s.pathless(l.String()), 400),
				Remedy:  "have it mended in that server, or leave it; all else that is hosted goes on",
			})
		}
		checks = append(checks, c)
	}
	return checks
}
