package bridge

import (
	"bytes"
	"errors"
	"strconv"
	"time"

	"majordomus/bridge/frame"
)

// control takes a control line of a server's. Unknown ones are for later
// versions.
func (b *bridge) control(l *link, line []byte) {
	word, rest, _ := bytes.Cut(line, []byte{' '})
	switch string(word) {
	case "!accepted", "!ready":
		number, kind, _ := bytes.Cut(rest, []byte{' '})
		n, err := strconv.Atoi(string(number))
		c := l.calls[n]
		if err != nil || c == nil {
			return // answered or cancelled meanwhile
		}
		if word[1] == 'r' {
			if l.broken != nil {
				return // what cannot be told to run does not
			}
			b.send(l, append([]byte("!run "), rest...))
			c.safe = false // here it may not run twice, whatever another server's list said
		}
		if !c.accepted {
			c.runs++
		}
		c.accepted = true
		if string(kind) == "safe" {
			c.safe = true // the server says so
		}
		if !c.safe && !c.listen {
			c.line = nil // is never sent again
		}
	case "!refused":
		n, err := strconv.Atoi(string(rest))
		if c := l.calls[n]; err == nil && c != nil && c.reply == nil && !c.accepted && !c.refused {
			c.refused = true
			if !c.listen {
				l.inflight--
			}
		}
		b.leave(l)
	case "!peer":
		if len(rest) <= 64 {
			b.called.Store(string(rest))
		}
	case "!registry":
		b.registered(l, string(rest))
	case "!lost", "!draining":
		b.leave(l)
	case "!ping":
		b.send(l, pong)
	}
}

// leave has l left as soon as nothing is in flight there, and at the latest
// after BusyGrace. A server that asks for it as soon as it is joined, and is
// found again each time, is left more and more slowly.
func (b *bridge) leave(l *link) {
	if l.leaving {
		return
	}
	now := time.Now()
	if now.Sub(l.born) > b.cfg.JoinTimeout {
		b.moves = 0
	}
	l.leaving = true
	l.leaveAt, l.leaveBy = now, now.Add(b.cfg.BusyGrace)
	if b.moves > 0 {
		l.leaveAt = now.Add(min(30*time.Second, 25*time.Millisecond<<min(b.moves, 20)))
	}
	if l.leaveBy.Before(l.leaveAt) {
		l.leaveBy = l.leaveAt
	}
	b.moves++
}

// registered is told the fingerprint of what l's server offers. That of the
// same server may change, and then the server says so itself; that of the next
// one is for the bridge to tell.
func (b *bridge) registered(l *link, fingerprint string) {
	first := l.registry == ""
	l.registry = fingerprint
	if l != b.link && l != b.incoming {
		return
	}
	if first && b.registry != "" && b.registry != fingerprint {
		b.mem.safe = nil // declared by another server
		b.listsChanged()
	}
	b.registry = fingerprint
}

// listsChanged tells the client that what it listed has changed, in the words
// of its era.
func (b *bridge) listsChanged() {
	for _, kind := range kinds {
		method := "notifications/" + kind + "/list_changed"
		if b.mem.init != nil && b.mem.listed[kind] {
			b.out.push(frame.Notification(method, nil))
		}
		for _, c := range b.listens() {
			if string(frame.Get(c.line, "params", "notifications", kind+"ListChanged")) == "true" {
				b.out.push(frame.Notification(method, []byte(`{"_meta":{"`+metaSubscription+`":`+c.id+`}}`)))
			}
		}
	}
}

// tooLong is told of a line of l's that was not held.
func (b *bridge) tooLong(l *link, bad *frame.Error) {
	switch {
	case bad.ID == nil:
		b.log.Warn("a line of the server's was dropped", "because", bad.Message)
	case !bad.Response:
		b.send(l, frame.Failure(bad.ID, bad.Code, bad.Message, nil))
	default:
		b.unusable(l, bad, "answer_too_large")
	}
}

// unusable answers the call or replay whose answer cannot be used.
func (b *bridge) unusable(l *link, bad *frame.Error, code string) {
	b.log.Warn("an answer of the server's cannot be used", "because", bad.Message)
	if c := b.calls[string(bad.ID)]; c != nil && c.link == l {
		b.fail(c, code, "the server's answer cannot be used: "+bad.Message)
	} else if r := b.replays[string(bad.ID)]; r != nil && r.link == l {
		b.replayed(r, frame.Message{})
	}
}

// fromServer takes one line of l's.
func (b *bridge) fromServer(l *link, line []byte) {
	b.passed += len(line)
	m, err := frame.Parse(line)
	var bad *frame.Error
	switch {
	case errors.As(err, &bad) && bad.Code == frame.CodeParse:
		b.lose(l, errors.New("the server sent something other than JSON"))
	case bad != nil:
		b.unusable(l, bad, "invalid_answer")
	case m.IsRequest():
		b.asked(l, m)
	case m.IsNotification():
		b.notified(l, m)
	default:
		b.answered(l, m)
	}
}

// asked takes a question of l's for the client.
func (b *bridge) asked(l *link, m frame.Message) {
	q := &question{link: l, id: string(m.ID), token: string(frame.Get(m.Params, "_meta", "progressToken"))}
	if b.questions[q.id] != nil {
		b.send(l, frame.Failure(m.ID, frame.CodeInvalidRequest, "id already in flight", nil))
		return
	}
	b.questions[q.id] = q
	l.asked++
	if b.eof {
		b.refuse(q, m.ID)
		return
	}
	b.out.push(m.Raw)
}

// notified takes a notification of l's.
func (b *bridge) notified(l *link, m frame.Message) {
	switch m.Name() {
	case methodProgress:
		// Of what is answered already, or of a replay: nobody knows the token.
		if c := b.tokens[string(frame.Get(m.Params, "progressToken"))]; c == nil || c.link != l {
			return
		}
	case methodCancelled:
		q := b.questions[string(frame.Get(m.Params, "requestId"))]
		if q == nil || q.link != l {
			return
		}
		b.forget(q)
	case methodListening:
		if id := frame.Get(m.Params, "_meta", metaSubscription); id != nil {
			c := b.calls[string(id)]
			if c == nil || c.link != l {
				return
			}
			c.sent = 0 // it has arrived
			if c.acked {
				return // the client was told so by the server before
			}
			c.acked = true
		}
	case methodToolsNew:
		b.mem.safe = nil // until the client lists them again
		fallthrough
	default:
		if b.owed < len(b.calls) { // there are listens
			if id := frame.Get(m.Params, "_meta", metaSubscription); id != nil {
				if c := b.calls[string(id)]; c == nil || c.link != l {
					return
				}
			}
		}
	}
	b.out.push(m.Raw)
}

// answered takes an answer of l's.
func (b *bridge) answered(l *link, m frame.Message) {
	c := b.calls[string(m.ID)]
	if c == nil || c.link != l {
		if r := b.replays[string(m.ID)]; r != nil && r.link == l {
			b.replayed(r, m)
		}
		return // else cancelled, or answered before
	}
	if c.listen && l.leaving && m.Result != nil {
		// The server closes what the next one opens again.
		b.release(c)
		return
	}
	if !l.leaving {
		b.moves = 0
	}
	b.trouble, b.failures = time.Time{}, 0
	refused := m.Error != nil || c.changes.key != "" && string(frame.Get(m.Result, "isError")) == "true"
	if refused && c.undo != nil {
		c.undo()
	}
	if !refused {
		switch c.method {
		case methodInitialize:
			b.mem.init = c.line
			b.mem.roots = frame.Get(c.line, "params", "capabilities", "roots") != nil
		case methodTools:
			b.mem.declared(m.Result, frame.Get(c.line, "params", "cursor") == nil)
		}
	}
	b.answer(c, m.Raw)
}
