package hub

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/yosida95/uritemplate/v3"

	"majordomus/bridge/frame"
)

// routes are the lists as clients see them, and who answers for what is in them.
// They are never changed: a change makes new ones.
type routes struct {
	lists     [len(kinds)][][]byte
	tools     map[string]target
	prompts   map[string]target
	resources map[string]*upstream
	templates []template
	clashes   []string // resources that several offer

	// fingerprint sums up the lists, once: each newcomer is told it.
	fingerprint func() string
}

func (r *routes) sum() string {
	sum := sha256.New()
	for i, k := range kinds {
		fmt.Fprintf(sum, "%s %d\n", k.member, len(r.lists[i]))
		for _, raw := range r.lists[i] {
			fmt.Fprintf(sum, "%d %s\n", len(raw), raw)
		}
	}
	return hex.EncodeToString(sum.Sum(nil))
}

func newRoutes() *routes {
	r := &routes{tools: map[string]target{}, prompts: map[string]target{}, resources: map[string]*upstream{}}
	r.fingerprint = sync.OnceValue(r.sum)
	return r
}

type target struct {
	up   *upstream
	name string // as the server calls it
	safe bool   // a call may run twice: it reads, or says that it may
	read bool   // it says that it only reads
}

type template struct {
	up      *upstream
	pattern *uritemplate.Template
}

// resource is the server that answers for a URI: by its list, then by its
// templates, the first one by name.
func (r *routes) resource(uri string) *upstream {
	if uri == "" {
		return nil
	}
	if u := r.resources[uri]; u != nil {
		return u
	}
	for _, t := range r.templates {
		if t.pattern.Raw() == uri || t.pattern.Match(uri) != nil {
			return t.up
		}
	}
	return nil
}

// find is the server that answers a request, and what it is asked there.
func (r *routes) find(m frame.Message) (*upstream, []byte) {
	named := func(table map[string]target) (*upstream, []byte) {
		t, ok := table[textAt(m.Params, "name")]
		if !ok {
			return nil, nil
		}
		return t.up, frame.Set(m.Params, "name", frame.Quote(t.name))
	}
	switch m.Name() {
	case "tools/call":
		return named(r.tools)
	case "prompts/get":
		return named(r.prompts)
	case "resources/read", "resources/subscribe", "resources/unsubscribe":
		return r.resource(textAt(m.Params, "uri")), m.Params
	case "completion/complete":
		if t, ok := r.prompts[textAt(m.Params, "ref", "name")]; ok {
			return t.up, frame.Set(m.Params, "ref", frame.Set(frame.Get(m.Params, "ref"), "name", frame.Quote(t.name)))
		}
		return r.resource(textAt(m.Params, "ref", "uri")), m.Params
	}
	return nil, nil
}

// mayOffer says which servers a request may be for, judged by its name alone;
// nil when it is for none.
func mayOffer(m frame.Message) func(*upstream) bool {
	name := ""
	switch m.Name() {
	case "tools/call", "prompts/get":
		name = textAt(m.Params, "name")
	case "completion/complete":
		name = textAt(m.Params, "ref", "name")
	case "resources/read", "resources/subscribe", "resources/unsubscribe":
		if strings.HasPrefix(textAt(m.Params, "uri"), "majordomus:") {
			return nil
		}
		return func(*upstream) bool { return true }
	}
	if !strings.Contains(name, "__") {
		return nil
	}
	return func(u *upstream) bool {
		plain := strings.Map(plainRune, u.server.Name) + "__"
		return strings.HasPrefix(name, plain[:min(len(plain), maxName-9)])
	}
}

// reroute makes the routes anew, and tells of the lists that are others now,
// whatever it is that made them so.
func (h *Hub) reroute() {
	h.mu.Lock()
	before, now := h.routes, h.newRoutesLocked()
	h.routes = now
	h.mu.Unlock()
	told := ""
	for i, k := range kinds {
		// Resources and their templates are told of in one.
		if k.capability != told && !slices.EqualFunc(before.lists[i], now.lists[i], bytes.Equal) {
			told = k.capability
			h.cfg.Changed(told)
		}
	}
}

func (h *Hub) newRoutesLocked() *routes {
	r := newRoutes()
	for _, name := range slices.Sorted(maps.Keys(h.ups)) {
		u := h.ups[name]
		u.mu.Lock()
		all := u.catalogue
		u.mu.Unlock()
		for i, k := range kinds {
			for _, e := range all[i] {
				if !u.shows(i, e) {
					continue
				}
				raw := e.raw
				switch k.member {
				case "tools":
					raw = r.name(r.tools, u, e)
				case "prompts":
					raw = r.name(r.prompts, u, e)
				case "resources":
					if other := r.resources[e.key]; other != nil {
						r.clashes = append(r.clashes, fmt.Sprintf("%s is offered by %s and %s; the first answers", e.key, other.server.Name, name))
						continue
					}
					r.resources[e.key] = u
				case "resourceTemplates":
					if p, err := uritemplate.New(e.key); err == nil {
						r.templates = append(r.templates, template{u, p})
					}
				}
				r.lists[i] = append(r.lists[i], raw)
			}
		}
	}
	return r
}

// shows reports whether an entry is there for clients.
func (u *upstream) shows(kind int, e entry) bool { return e.unfit == "" && u.wanted(kind, e) }

// wanted reports whether the entry of the servers file has it shown.
func (u *upstream) wanted(kind int, e entry) bool {
	return kinds[kind].member != "tools" || u.server.Tools == nil || slices.Contains(u.server.Tools, e.key)
}

// name gives an entry a public name that nothing else has.
func (r *routes) name(table map[string]target, u *upstream, e entry) []byte {
	public := publicName(u.server.Name, e.key)
	for n := 1; ; n++ {
		if _, taken := table[public]; !taken {
			break
		}
		// Two that differ only in what is not left of them.
		public = hashed(strings.Map(plainRune, u.server.Name+"__"+e.key), fmt.Sprintf("%s\x00%s\x00%d", u.server.Name, e.key, n))
	}
	read := says(e.raw, "readOnlyHint")
	table[public] = target{up: u, name: e.key, safe: read || says(e.raw, "idempotentHint"), read: read}
	return frame.Set(e.raw, "name", frame.Quote(public))
}

func says(entry []byte, hint string) bool {
	return string(frame.Get(entry, "annotations", hint)) == "true"
}

// Harmless is session.Router's.
func (h *Hub) Harmless(tool string) bool { return h.current().tools[tool].safe }
