package hub

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"majordomus/server/hub/config"
)

// State is how one hosted server stands.
type State struct {
	Name      string    `json:"name"`
	State     string    `json:"state"` // stopped, starting, ready or failed; of several processes the liveliest
	Share     string    `json:"share"`
	Processes []Process `json:"processes"`
	Clients   int       `json:"clients"` // that share it, or have one each
	Calls     int       `json:"calls"`
	Errors    int       `json:"errors"`
	LastError string    `json:"last_error,omitempty"`
	Waiting   string    `json:"waiting,omitempty"` // what a start that takes long waits for
	RetryAt   time.Time `json:"retry_at,omitzero"` // when a failed one may be started again
	Tools     int       `json:"tools"`
	Prompts   int       `json:"prompts"`
	Resources int       `json:"resources"`
	LeftOut   []LeftOut `json:"left_out,omitempty"`
}

// LeftOut is something that a hosted server offers and no client is shown.
type LeftOut struct {
	Kind   string `json:"kind"` // tools, prompts, resources or resourceTemplates
	Name   string `json:"name"` // as the server calls it; a URI or a template of some kinds
	Reason string `json:"reason"`
}

func (l LeftOut) String() string {
	kind := map[string]string{"tools": "tool", "prompts": "prompt", "resources": "resource", "resourceTemplates": "resource template"}[l.Kind]
	return fmt.Sprintf("the %s %q: %s", kind, brief([]byte(l.Name)), l.Reason)
}

// Process is one process of a hosted server.
type Process struct {
	PID    int       `json:"pid"`
	Since  time.Time `json:"since"`
	Memory int64     `json:"memory_bytes,omitempty"` // of it and all that it started; 0: not known
	Client string    `json:"client,omitempty"`       // the session it belongs to
}

// longStart is from when on people are told what a start waits for.
const longStart = 2 * time.Second

var liveliness = []string{stateStopped, stateFailed, stateStarting, stateReady}

// States describes the hosted servers, by name. What memory their processes have
// is left out: to know it, most systems have to be asked of every process that
// there is.
func (h *Hub) States() []State { return h.states(false) }

// Measured is States with the memory.
func (h *Hub) Measured() []State { return h.states(true) }

func (h *Hub) states(memory bool) []State {
	h.mu.Lock()
	ups := maps.Clone(h.ups)
	clients := len(h.present)
	h.mu.Unlock()
	list := []State{}
	for _, name := range slices.Sorted(maps.Keys(ups)) {
		list = append(list, ups[name].state(clients, memory))
	}
	return list
}

// Standing is the part of a State that costs little to know.
type Standing struct {
	Name                  string
	State                 string
	Starts, Calls, Errors int64
}

// Standing says how the hosted servers stand, by name.
func (h *Hub) Standing() []Standing {
	list := []Standing{}
	for _, u := range h.upstreams() {
		s := Standing{u.server.Name, stateStopped, u.starts.Load(), u.calls.Load(), u.errs.Load()}
		u.mu.Lock()
		instances := slices.Collect(maps.Values(u.instances))
		u.mu.Unlock()
		for _, in := range instances {
			in.mu.Lock()
			s.State = livelier(s.State, in.state)
			in.mu.Unlock()
		}
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b Standing) int { return strings.Compare(a.Name, b.Name) })
	return list
}

func livelier(a, b string) string {
	if slices.Index(liveliness, b) > slices.Index(liveliness, a) {
		return b
	}
	return a
}

func (u *upstream) state(clients int, memory bool) State {
	u.mu.Lock()
	s := State{
		Name: u.server.Name, State: stateStopped, Share: u.server.Share, Processes: []Process{}, Clients: clients}
	var shown [len(kinds)]int
	for i, k := range kinds {
		for _, e := range u.catalogue[i] {
			switch {
			case u.shows(i, e):
				shown[i]++
			case e.unfit != "" && u.wanted(i, e):
				s.LeftOut = append(s.LeftOut, LeftOut{k.member, e.key, e.unfit})
			}
		}
	}
	s.Calls, s.Errors = int(u.calls.Load()), int(u.errs.Load())
	s.Tools, s.Prompts, s.Resources = shown[0], shown[1], shown[2]
	instances := maps.Clone(u.instances)
	u.mu.Unlock()
	if s.Share == "" {
		s.Share = config.ShareCheckout
	}
	for owner, in := range instances {
		in.mu.Lock()
		s.State = livelier(s.State, in.state)
		if in.failure != nil {
			s.LastError = in.failure.Error()
		}
		if in.state == stateFailed {
			s.RetryAt = in.retryAt
		}
		if took := time.Since(in.began); in.state == stateStarting && took > longStart {
			s.Waiting = fmt.Sprintf("it has not %s within %v, and has until %v", in.awaited, took.Round(time.Second), startTimeout)
		}
		c := in.child
		in.mu.Unlock()
		if c != nil {
			p := Process{PID: c.PID(), Since: c.Started(), Client: owner}
			if memory {
				p.Memory, _ = c.Memory() // not every system tells
			}
			s.Processes = append(s.Processes, p)
		}
	}
	slices.SortFunc(s.Processes, func(a, b Process) int { return a.PID - b.PID })
	return s
}

// Trouble is why nothing is hosted at all, and what is wrong with single entries
// of the servers file or between hosted servers.
func (h *Hub) Trouble() (problems []config.Problem, clashes []string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.problems, h.routes.clashes, h.trouble
}

// Counts is how many tools, resources and prompts are offered.
func (h *Hub) Counts() (tools, resources, prompts int) {
	lists := h.current().lists
	return len(lists[0]), len(lists[2]), len(lists[1])
}

// Fingerprint changes when anything that is offered does.
func (h *Hub) Fingerprint() string { return h.current().fingerprint() }

// Restart ends a server's processes and has them started at once.
func (h *Hub) Restart(name string) bool {
	h.mu.Lock()
	u := h.ups[name]
	if u != nil {
		h.ups[name] = h.newUpstream(u.server)
	}
	fresh := h.ups[name]
	h.mu.Unlock()
	if u == nil {
		return false
	}
	u.end(h.ctx)
	h.reroute()
	fresh.warm()
	return true
}
