package bridge

import (
	"slices"
	"strings"

	"majordomus/bridge/frame"
)

// kinds of things that clients list.
var kinds = [...]string{"tools", "resources", "prompts"}

// memory is what the next server has to know about the client, and what the
// bridge has to know about both.
type memory struct {
	init        []byte // the client's initialize, once it was answered
	initialized []byte // its notification
	roots       bool   // it declared roots
	kept        []keep // the last of each key, in the order the client sent them

	listed map[string]bool // kinds it has asked for
	safe   map[string]bool // tools declared read-only or idempotent
}

// A keep is a request whose effect the next server must have too. A later one
// of the same key replaces it. One that removes is kept only for as long as an
// earlier one may have to be sent again.
type keep struct {
	key     string
	line    []byte
	removes bool // it undoes the effect of the one before
}

func (k keep) is(other keep) bool { return &k.line[0] == &other.line[0] }

// restart forgets what a client that begins anew no longer means. What it has
// announced stands: its server still shows it.
func (m *memory) restart() {
	m.init, m.initialized, m.roots = nil, nil, false
	m.kept = slices.DeleteFunc(m.kept, func(k keep) bool { return !strings.HasPrefix(k.key, claimKey) })
}

// note remembers that the client has asked for things of a kind.
func (m *memory) note(method string) {
	kind, isList := strings.CutSuffix(method, "/list")
	if kind == "resources/templates" {
		kind = "resources"
	}
	if isList && slices.Contains(kinds[:], kind) && !m.listed[kind] {
		if m.listed == nil {
			m.listed = map[string]bool{}
		}
		m.listed[kind] = true
	}
}

// keep remembers k and returns what forgets it again, in case the server
// refuses it. It is called when the request is sent, not when it is answered: a
// link that comes up between the two must be told as well.
func (m *memory) keep(k keep) (undo func()) {
	before, was := m.last(k.key)
	m.set(k)
	return func() {
		if now, ok := m.last(k.key); !ok || !now.is(k) {
			return
		}
		m.forget(k.key)
		if was {
			m.set(before)
		}
	}
}

// last returns what the client said last on a key.
func (m *memory) last(key string) (keep, bool) {
	i := slices.IndexFunc(m.kept, func(k keep) bool { return k.key == key })
	if i < 0 {
		return keep{}, false
	}
	return m.kept[i], true
}

func (m *memory) set(k keep) {
	m.forget(k.key)
	m.kept = append(m.kept, k)
}

func (m *memory) forget(key string) {
	m.kept = slices.DeleteFunc(m.kept, func(old keep) bool { return old.key == key })
}

// declared learns from a page of a list of tools which of them may run twice.
func (m *memory) declared(result []byte, first bool) {
	if first || m.safe == nil {
		m.safe = map[string]bool{}
	}
	// ignore error: a tool that cannot be read may not run twice
	_ = frame.Elements(frame.Get(result, "tools"), func(tool []byte) bool {
		name, ok := frame.Text(frame.Get(tool, "name"))
		says := func(hint string) bool { return string(frame.Get(tool, "annotations", hint)) == "true" }
		if ok && (says("readOnlyHint") || says("idempotentHint")) {
			m.safe[name] = true
		} else {
			delete(m.safe, name)
		}
		return true
	})
}

// claimKey begins the key of each claim.
const claimKey = "claim "

// announcement is what a call of the announcing tool makes the next server be
// told: a claim, or that there is none of that name any more.
func announcement(arguments []byte) keep {
	name, _ := frame.Text(frame.Get(arguments, "claim"))
	if name == "" {
		name = "default"
	}
	paths := 0
	err := frame.Elements(frame.Get(arguments, "scope"), func([]byte) bool {
		paths++
		return false
	})
	return keep{key: claimKey + name, removes: err == nil && paths == 0}
}

// remind tells l's server what the client said on a key.
func (b *bridge) remind(l *link, k keep) {
	b.replay(l, k.line, func(m frame.Message) {
		if m.Result == nil || string(frame.Get(m.Result, "isError")) == "true" {
			b.log.Warn("the server refused what the one before it took", "what", k.key)
		}
	})
}

// replay sends l a request of the client's again, under an id of the bridge's
// own. Progress of it, if any, carries a token that nobody has in flight.
func (b *bridge) replay(l *link, line []byte, reply func(frame.Message)) {
	id := b.own()
	line = frame.Set(line, "id", id)
	if params := frame.Get(line, "params"); frame.Get(params, "_meta", "progressToken") != nil {
		meta := frame.Set(frame.Get(params, "_meta"), "progressToken", id)
		line = frame.Set(line, "params", frame.Set(params, "_meta", meta))
	}
	r := &call{id: string(id), method: "replay", line: line, reply: reply}
	b.replays[r.id] = r
	b.sendCall(l, r)
}

// replayed takes the answer to a replay, which the client never sees. An empty
// message is one that could not be used.
func (b *bridge) replayed(r *call, m frame.Message) {
	delete(b.replays, r.id)
	b.release(r)
	r.reply(m)
}
