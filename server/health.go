package server

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"majordomus/lease"
)

// report is how a server is, for people and models.
type report struct {
	Status string  `json:"status"` // ok, warn or fail: that of its worst check
	Checks []check `json:"checks"`
}

type check struct {
	ID       string    `json:"id"`
	Status   string    `json:"status"`
	Findings []finding `json:"findings"`
}

// finding is one thing that is not as it should be, and what to do about it.
// Neither says where on this machine anything lies: reports are pasted, and one
// is open to whoever reaches the port.
type finding struct {
	Message string `json:"message"`
	Remedy  string `json:"remedy"`
	fatal   bool   // somebody is not served for it
}

const (
	statusOK   = "ok"
	statusWarn = "warn"
	statusFail = "fail"
)

// health looks at everything anew.
func (s *Server) health() report {
	r := report{Status: statusOK, Checks: []check{
		{ID: "server", Findings: s.checkServer()},
		{ID: "lease", Findings: s.checkLease()},
		{ID: "executable", Findings: s.checkExecutable()},
	}}
	r.Checks = append(r.Checks, s.checkHosted()...)
	for i := range r.Checks {
		c := &r.Checks[i]
		switch {
		case len(c.Findings) == 0:
			c.Status, c.Findings = statusOK, []finding{} // not null
		case slices.ContainsFunc(c.Findings, func(f finding) bool { return f.fatal }):
			c.Status, r.Status = statusFail, statusFail
		default:
			c.Status = statusWarn
			if r.Status == statusOK {
				r.Status = statusWarn
			}
		}
	}
	return r
}

func (s *Server) checkServer() []finding {
	var list []finding
	if t := s.cfg.Tenure; t != nil && t.Held() {
		t.IsOwn() // ignore error: the lease's check says it
	}
	if s.lost() {
		list = append(list, finding{
			Message: "this server no longer holds the lease of its checkout: what it says is about a process that was replaced, and the server of the checkout is another one",
			Remedy:  "start again through the launcher (majordomus mcp) to reach the current one; bridges do so by themselves, and this server ends with its last session",
		})
	} else if s.reason() != "" {
		list = append(list, finding{
			Message: "this server is ending and lets nobody new in",
			Remedy:  "start again through the launcher (majordomus mcp) to reach the next one; bridges do so by themselves",
		})
	}
	if s.cfg.Alone != "" {
		list = append(list, finding{
			Message: "this client is served alone, without the other editors of the checkout: " + s.pathless(s.cfg.Alone),
			Remedy:  "remove the cause. A client that was kept from its checkout's server joins it by itself within some minutes; any other does when its editor restarts it",
		})
	}
	if why := s.registry.failing(); why != "" {
		list = append(list, finding{
			Message: "the layer cannot be read, so what is listed of it may be out of date: " + why,
			Remedy:  "see that the checkout's shared folder can be read by this account",
		})
	}
	return list
}

func (s *Server) checkLease() []finding {
	t := s.cfg.Tenure
	if t == nil {
		if s.cfg.Alone == "" || s.cfg.Folder == nil {
			return nil // it never held one, and need not
		}
		return []finding{{
			Message: "this server holds no lease: " + s.holder(),
			Remedy:  "remove what keeps this client from being served with the others",
		}}
	}
	var list []finding
	if why := s.exposed(); why != "" {
		list = append(list, finding{
			Message: "other accounts of this machine may get at this server: " + why,
			Remedy:  "majordomus serve stop; take the state folder (.ai/local/state/mcp) away, and the next editor makes it anew, with another key. If it is so again, others can write in the checkout's .ai/local, or its file system keeps no modes",
		})
	}
	_, err := t.IsOwn()
	s.mu.Lock()
	trouble := s.trouble
	s.mu.Unlock()
	switch {
	case err != nil:
		list = append(list, finding{
			Message: unreadable(err),
			Remedy:  "nothing is lost by it; until it can be read nobody new is let in. See what keeps server.json in the state folder from being read",
			fatal:   true,
		})
	case t.Lost():
		list = append(list, finding{
			Message: "the lease is not this server's: " + s.holder(),
			Remedy:  "majordomus status shows who serves the checkout",
		})
	}
	if trouble != "" {
		list = append(list, finding{
			Message: "the address is not published yet: " + trouble,
			Remedy:  "end the process that holds server.lock in the state folder, if it hangs",
			fatal:   true,
		})
	}
	return list
}

func (s *Server) exposed() string {
	if s.cfg.Folder == nil || s.cfg.NoAuth {
		return ""
	}
	return s.cfg.Folder.Exposed()
}

// holder is who has the lease, as far as its file tells.
func (s *Server) holder() string {
	if s.cfg.Folder == nil {
		return "it was taken by another process, or removed"
	}
	switch f := s.cfg.Folder.Read(); f.State {
	case lease.Present:
		bound := "which is not listening yet"
		if f.Document.URL != nil {
			bound = "at " + brief(*f.Document.URL, 60)
		}
		return fmt.Sprintf("it is held by a server of version %s, started %s, %s",
			brief(f.Document.Version, 60), f.Document.StartedAt.UTC().Format(time.RFC3339), bound)
	case lease.Absent:
		return "it was removed, and nobody holds it now"
	case lease.Unreadable:
		return "who holds it cannot be read at the moment: " + plain(f.Err)
	default:
		return "in its place there is " + f.Reason
	}
}

func (s *Server) checkExecutable() []finding {
	if why := s.stale.now(); why != nil {
		return []finding{{
			Message: "this server runs code that is no longer on disk: " + *why,
			Remedy:  "nothing need be done: the next editor that starts replaces it. majordomus serve stop does so now",
		}}
	}
	return nil
}

// pathless is text without absolute paths: of each, the last element stays; of
// what lies in the checkout, its place there.
func (s *Server) pathless(text string) string {
	if c := s.cfg.Checkout; c != nil && len(c.Root) > 1 {
		text = strings.ReplaceAll(text, c.Root, c.Name)
	}
	const inner = "[^\\s\"'()\\[\\]{},;:]*[\\\\/]"
	path := regexp.MustCompile("(^|[\\s\"'(=\\[{,;])(?:/|[A-Za-z]:[\\\\/]|\\\\\\\\)(?:" + inner + ")?([^\\s\"'()\\[\\]{},;:\\\\/]+)")
	return path.ReplaceAllString(text, "${1}…/${2}")
}

// brief is text that somebody else wrote, on one line and not longer than
// most bytes.
func brief(text string, most int) string {
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "?")), " ")
	text = strings.Map(func(r rune) rune {
		if unseen(r) {
			return -1
		}
		return r
	}, text)
	if len(text) <= most {
		return text
	}
	cut := most - len("…")
	for cut > 0 && text[cut]&0xc0 == 0x80 {
		cut--
	}
	return text[:cut] + "…"
}

// unseen reports whether a letter commands a terminal or turns a line around.
func unseen(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) }
