package hub

import (
	"sync"

	"majordomus/bridge/frame"
	"majordomus/server/session"
)

// progress passes the notes of one call on to its client. A burst is thinned to
// what the client reads; the last note is never dropped, and none comes after
// the answer.
type progress struct {
	r     session.Request
	token []byte // the client's own, raw

	mu      sync.Mutex
	latest  []byte
	sending bool
	idle    sync.WaitGroup
}

// callback is called with each note, by whoever reads the hosted server: it
// never waits for the client.
func (p *progress) callback() func(params []byte) {
	if p == nil {
		return nil
	}
	return func(params []byte) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.latest = params
		if !p.sending {
			p.sending = true
			p.idle.Go(p.send)
		}
	}
}

func (p *progress) send() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.latest != nil {
		params := p.latest
		p.latest = nil
		p.mu.Unlock()
		p.r.Emit(frame.Notification("notifications/progress", frame.Set(params, "progressToken", p.token))) // ignore error: the client has gone
		p.mu.Lock()
	}
	p.sending = false
}

// flush returns when what was said before is written.
func (p *progress) flush() {
	if p != nil {
		p.idle.Wait()
	}
}
