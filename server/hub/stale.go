package hub

import (
	"context"
	"sync"

	"majordomus/server/session"
)

// stale knows which lists a server said have changed and are being read. One of
// a kind is read at a time, or an older one could come last, and many changes
// make few readings.
type stale struct {
	mu    sync.Mutex
	kinds [len(kinds)]struct {
		read  chan struct{} // closed when it is read; nil when nothing is
		again bool          // it has changed meanwhile
	}
}

// relistSoon has one list read anew. It is called before the server's next line
// is read: a client may ask for something by a name that the next answer tells
// it.
func (in *instance) relistSoon(kind int) {
	s := &in.up.stale
	s.mu.Lock()
	defer s.mu.Unlock()
	k := &s.kinds[kind]
	if k.again = k.read != nil; k.again {
		return
	}
	k.read = make(chan struct{})
	if !in.up.hub.spawn(func() { s.work(kind, func() { in.relist(kind) }) }) {
		close(k.read)
		k.read = nil
	}
}

func (s *stale) work(kind int, relist func()) {
	k := &s.kinds[kind]
	for {
		relist()
		s.mu.Lock()
		if !k.again {
			break
		}
		k.again = false
		s.mu.Unlock()
	}
	close(k.read)
	k.read = nil
	s.mu.Unlock()
}

// wait returns what is closed when the lists are read that are being read now.
func (s *stale) wait() []<-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []<-chan struct{}
	for _, k := range s.kinds {
		if k.read != nil {
			list = append(list, k.read)
		}
	}
	return list
}

// refresh waits until the lists are read that are being read anew, though not
// for long.
func (h *Hub) refresh(r session.Request, which func(*upstream) bool) {
	h.mu.Lock()
	var waits []<-chan struct{}
	for _, u := range h.ups {
		if which(u) {
			waits = append(waits, u.stale.wait()...)
		}
	}
	h.mu.Unlock()
	if len(waits) == 0 {
		return
	}
	r.Yield()
	ctx, cancel := context.WithTimeout(r.Context(), firstLists)
	defer cancel()
	for _, w := range waits {
		select {
		case <-w:
		case <-ctx.Done():
		}
	}
}
