package hub

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"majordomus/bridge/frame"
	"majordomus/server/session"
)

// A client of the era without sessions cannot be asked. What a hosted server
// asks during its call becomes the call's result, "input_required"; the client
// sends the call again with the answers in it, and the one that still waits in
// the hosted server goes on.

// inputLimit is how long a client has to come back with its answers: a person
// may be asked.
const inputLimit = 15 * time.Minute

// A run is a call in a hosted server that may outlast the request that began it.
type run struct {
	use    *use
	in     *instance
	cancel context.CancelCauseFunc
	asks   chan *question
	done   chan struct{} // closed when answer and err are there
	answer frame.Message
	err    error

	open *question // what the next request is to answer; of whoever took the run out of Hub.waiting
}

// A question is what the hosted server asked.
type question struct {
	m      frame.Message
	answer chan []byte // a result, raw
}

// waitingRuns are the runs whose clients were told to come back, by the token
// that they bring.
type waitingRuns struct {
	mu   sync.Mutex
	runs map[string]*run
}

// inputKey names the only question of an answer.
const inputKey = "question"

var errNoInput = errors.New("the client did not come back with its answer")

// follow waits until the run has an answer or a question for r's client.
func (h *Hub) follow(r session.Request, x *run) (frame.Message, error) {
	// The request's end is the call's, as long as it is the request that waits.
	stop := context.AfterFunc(r.Context(), func() { x.cancel(context.Cause(r.Context())) })
	defer stop()
	select {
	case <-x.done:
		return x.answer, x.err
	case q := <-x.asks:
		token := "hub-" + rand.Text()
		x.open = q
		h.waiting.mu.Lock()
		h.waiting.runs[token] = x
		h.waiting.mu.Unlock()
		x.in.park(x.use)
		time.AfterFunc(inputLimit, func() { // at the latest it finds nothing there
			if x := h.takeRun(token); x != nil {
				x.cancel(errNoInput)
			}
		})
		return frame.Message{Result: fmt.Appendf(nil, `{"resultType":"input_required","inputRequests":{%q:{"method":%s,"params":%s}},"requestState":%q}`,
			inputKey, q.m.Method, orEmpty(q.m.Params), token)}, nil
	}
}

func orEmpty(params []byte) []byte {
	if params == nil {
		return []byte("{}")
	}
	return params
}

func (h *Hub) takeRun(token string) *run {
	h.waiting.mu.Lock()
	defer h.waiting.mu.Unlock()
	x := h.waiting.runs[token]
	delete(h.waiting.runs, token)
	return x
}

// park lets others go on while a person is asked.
func (in *instance) park(u *use) {
	in.mu.Lock()
	defer in.mu.Unlock()
	u.parked = true
	in.ringLocked()
}

// unpark has a call go on as r, when its turn has come: it may ask once more.
func (in *instance) unpark(r session.Request, u *use) error {
	for {
		in.mu.Lock()
		if !in.alone || in.mayJoinLocked(r) {
			u.r, u.parked = r, false // what the hosted server tells from now on goes to r
			in.mu.Unlock()
			return nil
		}
		if err := in.awaitUnlock(r.Context()); err != nil {
			return err
		}
	}
}

// resume hands the answers that r brings to the run that waits for them. False
// means that r brings none for a run of ours.
func (h *Hub) resume(r session.Request) (m frame.Message, resumed bool, err error) {
	token, ok := frame.Text(frame.Get(r.Message().Params, "requestState"))
	if !ok {
		return frame.Message{}, false, nil
	}
	x := h.takeRun(token)
	if x == nil {
		return frame.Message{}, false, nil
	}
	answer := frame.Get(r.Message().Params, "inputResponses", inputKey)
	if answer == nil {
		x.cancel(errNoInput)
		return frame.Message{}, true, errors.New("this request lacks the answer that was asked for: inputResponses." + inputKey)
	}
	if err := x.in.unpark(r, x.use); err != nil {
		x.cancel(err)
		return frame.Message{}, true, err
	}
	x.open.answer <- answer // one slot, one answer
	x.open = nil
	m, err = h.follow(r, x)
	return m, true, err
}

// askStateless has a question become the result of the call that it came up in.
func (in *instance) askStateless(u *use, m frame.Message) ([]byte, error) {
	x := u.run
	q := &question{m: m, answer: make(chan []byte, 1)}
	select {
	case x.asks <- q:
	case <-x.done:
		return nil, errors.New("the call has ended")
	}
	select {
	case answer := <-q.answer:
		return answer, nil
	case <-x.done:
		return nil, errNoInput
	}
}
