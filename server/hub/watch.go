package hub

import (
	"context"
	"maps"
	"slices"
	"sync"

	"majordomus/bridge/frame"
	"majordomus/server/session"
)

// watches knows who watches which resource of a hosted server's, and how much
// each client wants to be logged: a hosted server that is started again has
// forgotten both, and one that several share is told for all of them.
type watches struct {
	mu     sync.Mutex
	by     map[string]map[string]bool // watchers, by URI
	levels map[string]string          // by client
}

// levels of logging, from the most to the fewest words.
var levels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

// add notes that somebody watches uri.
func (w *watches) add(uri, who string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.by == nil {
		w.by = map[string]map[string]bool{}
	}
	if w.by[uri] == nil {
		w.by[uri] = map[string]bool{}
	}
	w.by[uri][who] = true
}

// remove notes that somebody watches uri no more, and reports whether nobody
// does.
func (w *watches) remove(uri, who string) (last bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.by[uri][who] {
		return false
	}
	delete(w.by[uri], who)
	if len(w.by[uri]) > 0 {
		return false
	}
	delete(w.by, uri)
	return true
}

// leave forgets a client, and returns what nobody watches any more.
func (w *watches) leave(who string) (unwatched []string) {
	w.mu.Lock()
	delete(w.levels, who)
	uris := slices.Collect(maps.Keys(w.by))
	w.mu.Unlock()
	for _, uri := range uris {
		if w.remove(uri, who) {
			unwatched = append(unwatched, uri)
		}
	}
	return unwatched
}

func (w *watches) uris() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.by))
}

// level is the one that hosted servers are told: that of the client who wants
// the most; "" where nobody has said.
func (w *watches) level() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	most := ""
	for _, l := range w.levels {
		if most == "" || slices.Index(levels, l) < slices.Index(levels, most) {
			most = l
		}
	}
	return most
}

// watching does its part of requests about watching. handled is false for those
// that others have a part in too.
func (h *Hub) watching(r session.Request) (answer []byte, handled bool) {
	m := r.Message()
	switch m.Name() {
	case "logging/setLevel":
		h.setLevel(r.Session(), textAt(m.Params, "level"))
	case "resources/subscribe", "resources/unsubscribe":
		u, params := h.locate(r)
		if u == nil {
			return nil, false
		}
		uri := textAt(m.Params, "uri")
		if m.Name() == "resources/unsubscribe" {
			r.Watch(uri, false)
			if !h.watches.remove(uri, r.Session()) {
				return h.answer(r, frame.Message{Result: []byte("{}")}), true // others go on
			}
			return h.forward(r, u, params), true
		}
		// Before it is asked: what changes meanwhile must not be missed.
		h.watches.add(uri, r.Session())
		r.Watch(uri, true)
		answer = h.forward(r, u, params)
		if frame.Get(answer, "error") != nil {
			h.watches.remove(uri, r.Session())
			r.Watch(uri, false)
		}
		return answer, true
	}
	return nil, false
}

// Listening is session.Router's.
func (h *Hub) Listening(r session.Request) {
	m := r.Message()
	// ignore error: whoever acknowledged the listen has read the list
	_ = frame.Elements(frame.Get(m.Params, "notifications", "resourceSubscriptions"), func(raw []byte) bool {
		uri, ok := frame.Text(raw)
		if u := h.current().resource(uri); ok && u != nil {
			who := r.Session() + " " + string(m.ID)
			h.watches.add(uri, who)
			h.tellUpstream(u, r.Session(), "resources/subscribe", uri)
			context.AfterFunc(r.Context(), func() {
				if h.watches.remove(uri, who) {
					h.tellUpstream(u, r.Session(), "resources/unsubscribe", uri)
				}
			})
		}
		return true
	})
}

// tellUpstream has a hosted server watch a resource, or not, in its own time.
func (h *Hub) tellUpstream(u *upstream, client, method, uri string) {
	in := u.instance(client)
	h.spawn(func() {
		if method == "resources/unsubscribe" && !in.isUp() {
			return // it has forgotten already
		}
		ctx, cancel := context.WithTimeout(in.ctx, startTimeout)
		defer cancel()
		c, err := in.ready(ctx)
		if err == nil {
			_, err = c.call(ctx, method, param("uri", uri), nil)
		}
		if err != nil {
			in.log.Warn("a hosted server cannot be told who watches", "method", method, "err", err)
		}
	})
}

// param is the params of a request that takes one text.
func param(name, value string) []byte { return frame.Set([]byte("{}"), name, frame.Quote(value)) }

func (in *instance) isUp() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.state == stateReady
}

func (h *Hub) setLevel(client, level string) {
	if !slices.Contains(levels, level) {
		return // and is answered so
	}
	before := h.watches.level()
	h.watches.mu.Lock()
	if h.watches.levels == nil {
		h.watches.levels = map[string]string{}
	}
	h.watches.levels[client] = level
	h.watches.mu.Unlock()
	if h.watches.level() == before {
		return
	}
	for _, u := range h.upstreams() {
		for _, in := range u.all() {
			if in.isUp() {
				h.spawn(in.remember)
			}
		}
	}
}

// remember tells a server what those who use it have said to the one before.
func (in *instance) remember() {
	h := in.up.hub
	in.mu.Lock()
	c, caps := in.conn, in.caps
	in.mu.Unlock()
	if c == nil {
		return
	}
	ctx, cancel := context.WithTimeout(in.ctx, startTimeout)
	defer cancel()
	if level := h.watches.level(); level != "" && frame.Get(caps, "logging") != nil {
		if _, err := c.call(ctx, "logging/setLevel", param("level", level), nil); err != nil {
			in.log.Warn("a hosted server cannot be told how much to log", "err", err)
		}
	}
	for _, uri := range h.watches.uris() {
		if h.current().resource(uri) != in.up {
			continue
		}
		if _, err := c.call(ctx, "resources/subscribe", param("uri", uri), nil); err != nil {
			in.log.Warn("a hosted server cannot be told who watches", "uri", uri, "err", err)
		}
	}
}

// watched reports whether anybody watches something of the server's.
func (u *upstream) watched() bool {
	routes := u.hub.current()
	return slices.ContainsFunc(u.hub.watches.uris(), func(uri string) bool { return routes.resource(uri) == u })
}
