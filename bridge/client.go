package bridge

import (
	"bytes"
	"errors"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"majordomus/bridge/frame"
)

// What the bridge must know by name. It passes everything else on as it is.
const (
	methodInitialize  = string(mcp.MethodInitialize)
	methodInitialized = string(mcp.MethodNotificationInitialized)
	methodCancelled   = string(mcp.MethodNotificationCancelled)
	methodProgress    = string(mcp.MethodNotificationProgress)
	methodRoots       = string(mcp.MethodListRoots)
	methodRootsNew    = string(mcp.MethodNotificationRootsListChanged)
	methodLevel       = string(mcp.MethodSetLogLevel)
	methodSubscribe   = string(mcp.MethodResourcesSubscribe)
	methodUnsubscribe = string(mcp.MethodResourcesUnsubscribe)
	methodListen      = string(mcp.MethodSubscriptionsListen)
	methodListening   = string(mcp.MethodNotificationSubscriptionsAcknowledged)
	methodCall        = string(mcp.MethodToolsCall)
	methodTools       = string(mcp.MethodToolsList)
	methodToolsNew    = string(mcp.MethodNotificationToolsListChanged)

	metaSubscription = mcp.MetaKeySubscriptionID
	toolAnnounce     = "majordomus_announce"
)

// repeatable reports whether a request may run twice, whatever its params are.
func repeatable(method string) bool {
	switch method {
	case methodInitialize, string(mcp.MethodPing), string(mcp.MethodServerDiscover),
		string(mcp.MethodResourcesRead), string(mcp.MethodPromptsGet), string(mcp.MethodCompletionComplete),
		methodLevel, methodSubscribe, methodUnsubscribe, methodListen:
		return true
	}
	return strings.HasSuffix(method, "/list")
}

// fromClient takes one line of the client's, which is ours to keep, or else
// valid until the next is read.
func (b *bridge) fromClient(line []byte, ours bool) {
	b.passed += len(line)
	m, err := frame.Parse(line)
	var bad *frame.Error
	switch {
	case errors.As(err, &bad):
		b.malformed(bad)
	case m.IsRequest():
		if !ours {
			m.Raw = bytes.Clone(m.Raw)
		}
		b.request(m)
	case m.IsNotification():
		b.notification(m)
	default:
		b.response(m)
	}
}

// malformed answers a line that is no message, if it is to be answered at all.
func (b *bridge) malformed(bad *frame.Error) {
	if bad.Response {
		// It was to be an answer. Whoever asked waits for one.
		if q := b.questions[string(bad.ID)]; q != nil {
			b.forget(q)
			b.send(q.link, frame.Failure(bad.ID, frame.CodeInternal, "the client's answer cannot be passed on: "+bad.Message, nil))
		}
		return
	}
	id := bad.ID
	if b.calls[string(id)] != nil {
		id = nil // that one will be answered
	}
	b.out.push(frame.Failure(id, bad.Code, bad.Message, nil))
}

// request takes a request of the client's.
func (b *bridge) request(m frame.Message) {
	if b.calls[string(m.ID)] != nil {
		b.out.push(frame.Failure(m.ID, frame.CodeInvalidRequest, "id already in flight", nil))
		return
	}
	b.seq++
	c := &call{
		id: string(m.ID), method: m.Name(), line: m.Raw, seq: b.seq,
		token: string(frame.Get(m.Params, "_meta", "progressToken")),
	}
	c.safe = repeatable(c.method)
	switch c.method {
	case methodInitialize:
		b.mem.restart()
		b.opening = c
	case methodCall:
		name, _ := frame.Text(frame.Get(m.Params, "name"))
		c.safe = b.mem.safe[name]
		if name == toolAnnounce {
			c.changes = announcement(frame.Get(m.Params, "arguments"))
		}
	case methodLevel:
		c.changes.key = "level"
	case methodSubscribe, methodUnsubscribe:
		if uri, ok := frame.Text(frame.Get(m.Params, "uri")); ok {
			c.changes = keep{key: "subscription " + uri, removes: c.method == methodUnsubscribe}
		}
	case methodListen:
		c.listen = true
	}
	c.changes.line = c.line
	b.mem.note(c.method)
	b.calls[c.id] = c
	if !c.listen {
		b.owed++
	}
	if c.token != "" {
		b.tokens[c.token] = c
	}
	b.lookBehind()
	b.route(c.line, c)
}

// lookBehind leaves a link that was idle if another server has taken the place
// of its own meanwhile.
func (b *bridge) lookBehind() {
	l := b.link
	if b.cfg.Moved == nil || l == nil || b.incoming != nil || b.seeking || l.leaving || l.busy() ||
		time.Since(l.lastSign(b.begin)) < b.cfg.ProbeTimeout {
		return
	}
	if b.cfg.Moved() {
		b.lose(l, ErrLeft)
	}
}

// notification takes a notification of the client's.
func (b *bridge) notification(m frame.Message) {
	switch m.Name() {
	case methodInitialized:
		b.mem.initialized = bytes.Clone(m.Raw)
		if b.link != nil && b.incoming == nil || b.mem.init == nil && b.opening == nil {
			b.route(b.mem.initialized, nil)
		} // else it follows what it belongs to
		b.askForRoots()
	case methodCancelled:
		b.cancelled(m)
	case methodProgress:
		// Progress of an answer to come goes to whoever asked.
		token := frame.Get(m.Params, "progressToken")
		for _, q := range b.questions {
			if q.token != "" && q.token == string(token) {
				b.send(q.link, bytes.Clone(m.Raw))
				return
			}
		}
	case methodRootsNew:
		b.route(bytes.Clone(m.Raw), nil)
		b.askForRoots()
	default:
		b.route(bytes.Clone(m.Raw), nil)
	}
}

// cancelled takes back a request. The word follows the request to wherever that
// went; a request that went nowhere yet is dropped together with it, and the
// cancellation of what was answered already is nobody's business.
func (b *bridge) cancelled(m frame.Message) {
	c := b.calls[string(frame.Get(m.Params, "requestId"))]
	if c == nil {
		return
	}
	l := c.link
	if c.waiting {
		b.held -= len(c.line)
	}
	b.drop(c)
	if l != nil {
		b.send(l, bytes.Clone(m.Raw))
	}
}

// response takes the client's answer to a question.
func (b *bridge) response(m frame.Message) {
	if b.rootsID != "" && string(m.ID) == b.rootsID {
		b.rootsID = ""
		b.rooted(m)
		return
	}
	// No question of that id: its server is gone, and has nothing to do with
	// the one that is there now.
	if q := b.questions[string(m.ID)]; q != nil {
		b.forget(q)
		b.send(q.link, bytes.Clone(m.Raw))
	}
}

// askForRoots asks the client for its roots, where somebody wants them. Of
// several questions the answer to the last one counts.
func (b *bridge) askForRoots() {
	if b.cfg.Roots == nil || b.rootsDone || !b.mem.roots {
		return
	}
	id := b.own()
	b.rootsID = string(id)
	b.out.push([]byte(`{"jsonrpc":"2.0","id":` + b.rootsID + `,"method":"` + methodRoots + `"}`))
}

// rooted is told the client's roots.
func (b *bridge) rooted(m frame.Message) {
	var uris []string
	// ignore error: a client that answers nonsense has no roots
	_ = frame.Elements(frame.Get(m.Result, "roots"), func(root []byte) bool {
		if uri, ok := frame.Text(frame.Get(root, "uri")); ok && strings.HasPrefix(uri, "file:") {
			uris = append(uris, uri)
		}
		return true
	})
	if len(uris) == 0 {
		return
	}
	b.wg.Go(func() {
		if !b.cfg.Roots(b.ctx, uris) {
			return
		}
		b.update(func() {
			b.rootsDone = true
			if b.link != nil {
				b.leave(b.link)
			} else {
				b.rootsMove = !b.down // one that is being found is the wrong one
			}
		})
	})
}
