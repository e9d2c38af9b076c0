package session

import (
	"context"
	"fmt"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"majordomus/bridge/frame"
)

// A Router answers what hosted servers offer, as raw messages: what mcp-go makes
// of one loses members that it does not know.
type Router interface {
	// Route answers r under its own id, or reports that it is none of a hosted
	// server's. It is called for every request, on the goroutine that read it
	// where that is answered at once (Config.AtOnce): it calls r.Yield before
	// it waits for anything. A nil answer is none: the client took it back.
	Route(r Request) (answer frame.Line, handled bool)

	// List returns the raw entries to add to a list that r asked for: tools,
	// prompts, resources or resourceTemplates. The same rule holds.
	List(r Request, kind string) [][]byte

	// Listening is told of a listen once it was acknowledged: what changes from
	// then on reaches its client, and what a hosted server were told before
	// could be answered too early. It must not block.
	Listening(r Request)

	// Harmless reports whether a tool says of itself that a call may run twice.
	Harmless(tool string) bool

	// Ready is told that a client has shaken hands, or come without that. It
	// must not block.
	Ready(session string)

	// Left is told that a client has gone. It must not block.
	Left(session string)
}

// A Request is one request on its way to a hosted server. It is of use until it
// is answered.
type Request struct{ c *call }

// Context ends when the client takes the request back or goes.
func (r Request) Context() context.Context { return r.c.ctx }

// Message is the request as the client wrote it.
func (r Request) Message() frame.Message { return r.c.asked }

// Session names the client's session among all there ever are.
func (r Request) Session() string { return r.c.Session.id }

// Caller describes the client.
func (r Request) Caller() Info { return r.c.Session.Info() }

// Stateless reports whether the request brings with it all that there is to
// know of its client: then its client cannot be asked anything (Ask).
func (r Request) Stateless() bool { return r.c.stateless }

// Yield has the next lines of the client read while the caller waits.
func (r Request) Yield() { r.c.yieldOnce() }

// Wants reports whether the client wants log lines of that level. One that has
// set none hears what the hosted server tells anybody.
func (r Request) Wants(level string) bool {
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	return !r.c.leveled || mcp.LoggingLevel(level).ShouldSendTo(r.c.Session.level)
}

// Emit writes a notification that belongs to the request, before its answer.
func (r Request) Emit(line []byte) error { return r.c.emit(line) }

// Watch has the client told, or not any more, when the resource changes.
func (r Request) Watch(uri string, on bool) {
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	if on {
		r.c.subs[uri] = true
	} else {
		delete(r.c.subs, uri)
	}
}

// Tell tells the client something that it did not ask for, in its own time.
func (r Request) Tell(line []byte) { r.c.Session.notify(line) }

// Able reports whether the client says that it answers such requests.
func (r Request) Able(method string) bool {
	if r.c.stateless {
		kind, _, _ := strings.Cut(method, "/")
		return frame.Get(r.c.asked.Params, "_meta", mcp.MetaKeyClientCapabilities, kind) != nil
	}
	caps := r.c.GetClientCapabilities()
	switch method {
	case "elicitation/create":
		return caps.Elicitation != nil
	case "sampling/createMessage":
		return caps.Sampling != nil
	case "roots/list":
		return caps.Roots != nil
	}
	return false
}

// Ask asks the client, in the era with a handshake, and returns its answer,
// however long a person takes: raw, a result or an error.
func (r Request) Ask(ctx context.Context, method string, params []byte) (frame.Message, error) {
	if r.c.stateless || !r.Able(method) {
		return frame.Message{}, fmt.Errorf("the client did not declare that it answers %s", method)
	}
	return r.c.ask(ctx, method, params)
}
