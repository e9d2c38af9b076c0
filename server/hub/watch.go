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
	by     map[string]map[watcher]bool // by URI
	levels map[string]string           // by client
}

// A watcher is a client, or a listen of its.
type watcher struct{ session, listen string }

// levels of logging, from the most to the fewest words.
var levels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

// add notes that somebody watches uri.
func (w *watches) add(uri string, who watcher) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.by == nil {
		w.by = map[string]map[watcher]bool{}
	}
	if w.by[uri] == nil {
		w.by[uri] = map[watcher]bool{}
	}
	w.by[uri][who] = true
}

// remove notes that somebody watches uri no more, and reports whether nobody
// does who shares a process: where own is true, only what its client has at it.
func (w *watches) remove(uri string, who watcher, own bool) (last bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.by[uri][who] {
		return false
	}
	delete(w.by[uri], who)
	last = true
	for other := range w.by[uri] {
		last = last && own && other.session != who.session
	}
	if len(w.by[uri]) == 0 {
		delete(w.by, uri)
	}
	return last
}

// leave forgets a client, and returns what nobody watches any more. Its listens
// end by themselves.
func (w *watches) leave(client string) (unwatched []string) {
	w.mu.Lock()
	delete(w.levels, client)
	uris := slices.Collect(maps.Keys(w.by))
	w.mu.Unlock()
	for _, uri := range uris {
		if w.remove(uri, watcher{session: client}, false) {
			unwatched = append(unwatched, uri)
		}
	}
	return unwatched
}

// watched is what each client watches.
func (w *watches) watched() map[string][]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := map[string][]string{}
	for uri, by := range w.by {
		for who := range by {
			if !slices.Contains(all[who.session], uri) {
				all[who.session] = append(all[who.session], uri)
			}
		}
	}
	return all
}

// level is the one that a hosted server is told: that of the client who wants
// the most, or of its own client; "" where nobody has said.
func (w *watches) level(in *instance) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if in.up.own() {
		return w.levels[in.owner]
	}
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
func (h *Hub) watching(r session.Request) (answer frame.Line, handled bool) {
	m := r.Message()
	switch m.Name() {
	case "logging/setLevel":
		h.setLevel(r.Session(), textAt(m.Params, "level"))
	case "resources/subscribe", "resources/unsubscribe":
		u, params := h.locate(r)
		if u == nil {
			return nil, false
		}
		uri, who := textAt(m.Params, "uri"), watcher{session: r.Session()}
		if m.Name() == "resources/unsubscribe" {
			r.Watch(uri, false)
			if !h.watches.remove(uri, who, u.own()) {
				return h.answer(r, frame.Message{Result: []byte("{}")}), true // others go on
			}
			return h.forward(r, u, params), true
		}
		// Before it is asked: what changes meanwhile must not be missed.
		h.watches.add(uri, who)
		r.Watch(uri, true)
		answer = h.forward(r, u, params)
		if len(answer) == 1 && frame.Get(answer[0], "error") != nil {
			h.watches.remove(uri, who, u.own())
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
			who := watcher{r.Session(), string(m.ID)}
			h.watches.add(uri, who)
			h.tellUpstream(u, r.Session(), "resources/subscribe", uri)
			context.AfterFunc(r.Context(), func() {
				if h.watches.remove(uri, who, u.own()) {
					h.tellUpstream(u, r.Session(), "resources/unsubscribe", uri)
				}
			})
		}
		return true
	})
}

// tellUpstream has a hosted server watch a resource, or not, in its own time.
func (h *Hub) tellUpstream(u *upstream, client, method, uri string) {
	forget := method == "resources/unsubscribe"
	if forget && !u.has(client) {
		return // its own has gone with it, and none is made for that
	}
	in := u.instance(client)
	h.spawn(func() {
		if forget && !in.isUp() {
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
	told := func() map[*instance]string {
		all := map[*instance]string{}
		for _, u := range h.upstreams() {
			for _, in := range u.all() {
				all[in] = h.watches.level(in)
			}
		}
		return all
	}
	before := told()
	h.watches.mu.Lock()
	if h.watches.levels == nil {
		h.watches.levels = map[string]string{}
	}
	h.watches.levels[client] = level
	h.watches.mu.Unlock()
	for in, now := range told() {
		if now != before[in] && in.isUp() {
			h.spawn(in.remember)
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
	if level := h.watches.level(in); level != "" && frame.Get(caps, "logging") != nil {
		if _, err := c.call(ctx, "logging/setLevel", param("level", level), nil); err != nil {
			in.log.Warn("a hosted server cannot be told how much to log", "err", err)
		}
	}
	for _, uri := range in.watched() {
		if _, err := c.call(ctx, "resources/subscribe", param("uri", uri), nil); err != nil {
			in.log.Warn("a hosted server cannot be told who watches", "uri", uri, "err", err)
		}
	}
}

// watched is what each client watches of the server's.
func (u *upstream) watched() map[string][]string {
	routes := u.hub.current()
	all := u.hub.watches.watched()
	for client, uris := range all {
		uris = slices.DeleteFunc(uris, func(uri string) bool { return routes.resource(uri) != u })
		if all[client] = uris; len(uris) == 0 {
			delete(all, client)
		}
	}
	return all
}

// watched is what is watched at this process, in order.
func (in *instance) watched() []string {
	all := in.up.watched()
	if in.up.own() {
		return all[in.owner]
	}
	uris := slices.Concat(slices.Collect(maps.Values(all))...)
	slices.Sort(uris)
	return slices.Compact(uris)
}
