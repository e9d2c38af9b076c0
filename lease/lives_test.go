package lease

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// In this world a look costs nothing and waiting is what takes time, so the
// durations only have to be in the order that real ones are in.
var worldly = Timings{ProbeTimeout: 8 * time.Millisecond, BusyGrace: 16 * time.Millisecond, BindGrace: 40 * time.Millisecond, JoinTimeout: 80 * time.Millisecond}

// elect stands for election. Whoever does not become the server has an outcome.
func (p *player) elect(h History) *Tenure {
	p.tenure, p.known.gone = nil, false
	f, err := Open(p.config())
	if err != nil {
		p.known.outcome = "alone: " + reason(err)
		return nil
	}
	defer f.Close()
	return p.stand(f, h)
}

func (p *player) stand(f *Folder, h History) *Tenure {
	p.known.asked, p.known.takes, p.known.answers = false, 0, false
	began := time.Now()
	e, err := f.Elect(context.Background(), Candidate{History: h, Listen: func(string) (string, error) {
		p.known.listens = true // the kernel takes connections from here on
		return p.address(), nil
	}})
	p.known.took = uint16(time.Since(began)/time.Millisecond) + 1
	switch {
	case err != nil:
		p.known.listens, p.known.outcome = false, "alone: "+reason(err)
	case e.Role == Peer:
		p.known.listens, p.known.outcome = false, "joined"
		p.known.joined = letterOf(strings.TrimPrefix(*e.Peer.URL, "http://127.0.0.1:")[0])
	default:
		p.tenure, p.known.answers = e.Tenure, true
	}
	p.forget(p.known.outcome)
	return p.tenure
}

// publish says where the process is to be reached.
func (p *player) publish(t *Tenure) bool {
	p.known.listens = true
	began := time.Now()
	err := t.Publish(p.address())
	for err != nil && !errors.Is(err, ErrLost) && time.Since(began) < worldly.JoinTimeout { // what is in the way may pass
		p.sleep(context.Background(), 5*time.Millisecond) // ignore error: there is none
		err = t.Publish(p.address())
	}
	if err == nil {
		return true
	}
	p.known.listens, p.known.outcome = false, "lost before it served"
	if !errors.Is(err, ErrLost) {
		p.known.outcome = "alone: " + reason(err)
	}
	return false
}

func (p *player) ownNow(t *Tenure) {
	own, _ := t.IsOwn() // ignore error: then it admits nobody
	p.known.claims = own
}

// leave gives the lease up.
func (p *player) leave(t *Tenure) {
	t.Release() // ignore error: the next one gets past it
	p.known.listens, p.known.gone, p.tenure = false, true, nil
}

// serves is the life of a server: it stands for election, publishes, looks
// whether it may admit somebody, and gives the lease up.
func serves(v string) *part {
	return &part{name: "serves " + v, life: func(p *player) {
		p.known.ver = version(v)
		t := p.elect(History{})
		if t == nil {
			return
		}
		if p.publish(t) {
			p.known.outcome = "served"
			p.ownNow(t) // somebody knocks
			p.ownNow(t)
		}
		p.known.ending = true
		p.forget(p.known.outcome)
		p.mark()
		p.leave(t)
	}}
}

// stays is a server that never ends.
func stays(v string) *part {
	return &part{name: "stays " + v, life: func(p *player) {
		p.known.ver = version(v)
		if t := p.elect(History{}); t != nil {
			p.stay(t)
		}
	}}
}

// asks only looks for a server, and takes the lease of none.
func asks(v string) *part {
	return &part{name: "asks " + v, life: func(p *player) {
		p.known.ver = version(v)
		p.judges(func(_ *Folder, verdict Verdict) { p.known.outcome = verdict.Action.String() })
		p.forget(p.known.outcome)
	}}
}

// makes is a server of another maker, which knows server.lock and no .alive file.
func makes(v string) *part {
	return &part{name: "makes " + v, maker: true, life: func(p *player) {
		p.known.ver, p.known.tok, p.tokens, p.writes = version(v), 1, 1, 0
		root, temp := playedFiles{p, 1}, tempName(token(0, 1))
		err := writeFile(root, temp, p.bytes(ident{aDocument, 0, 1, 1}, content{url: true, ver: p.known.ver}))
		l := playedDisk{p}.lock(lockName, 0)
		for ok := false; err == nil && !ok; {
			if ok, err = l.TryLock(); !ok {
				p.sleep(context.Background(), time.Millisecond) // ignore error: there is none
			}
		}
		p.known.outcome = "came too late"
		if err == nil && read(root).State == Absent {
			p.known.listens, p.known.answers, p.known.maker = true, true, true
			if err = root.Rename(temp, documentName); err == nil {
				p.known.outcome = "serves"
			}
		} else {
			root.Remove(temp) // ignore error: nobody else does
		}
		l.Unlock() // ignore error: there is none
		if err != nil {
			p.known.outcome = "alone: " + err.Error()
		}
		p.forget(p.known.outcome)
	}}
}

// stay publishes, and serves for ever.
func (p *player) stay(t *Tenure) bool {
	if !p.publish(t) {
		p.known.ending = true
		p.leave(t)
		return false
	}
	p.known.outcome = "serves"
	p.forget(p.known.outcome)
	return true
}

// returns is stays with an editor: when its server has lost the lease, it looks
// for one again, from what lies at its path, if that is said; inside says that
// it serves in itself, and so stays what it was.
func returns(v string, exe int, inside bool) *part {
	name := "returns " + v
	if exe != 0 {
		name += fmt.Sprintf("from %d", exe)
	}
	if inside {
		name += ", in itself"
	}
	return &part{name: name, exe: exe, life: func(p *player) {
		p.known.ver = version(v)
		for i := range 4 {
			if exe != 0 && (i == 0 || !inside) { // what lies there now is started
				a := p.do(request{op: opStart})
				p.known.exe, p.known.ver = a.says.exe, a.says.ver
			}
			t := p.elect(History{InProcess: inside})
			if t == nil {
				return
			}
			if !p.stay(t) {
				if p.known.outcome == "lost before it served" {
					p.known.ending, p.known.outcome = false, ""
					continue
				}
				return
			}
			p.do(request{op: opLoss})
			p.ownNow(t)
			p.known.ending, p.known.outcome = true, ""
			p.forget("lost")
			p.leave(t)
			p.known.ending = false
		}
		p.known.outcome = "replaced again and again"
	}}
}

// binds is a server that takes long to listen, and keeps its lease alive.
func binds(v string) *part {
	return &part{name: "binds " + v, binds: true, life: func(p *player) {
		p.known.ver = version(v)
		t := p.elect(History{})
		if t == nil {
			return
		}
		for range 4 {
			p.sleep(context.Background(), worldly.BindGrace/3) // ignore error: there is none
			if err := t.KeepAlive(); errors.Is(err, ErrLost) {
				p.known.outcome = "lost before it served"
				p.known.ending = true
				p.leave(t)
				return
			}
		}
		p.stay(t)
	}}
}

// launches judges as a launcher does, and starts a server that it hands on what
// it has waited for.
func launches(v string) *part {
	return &part{name: "launches " + v, life: func(p *player) {
		p.known.ver = version(v)
		p.judges(func(f *Folder, verdict Verdict) {
			switch verdict.Action {
			case Join:
				p.known.outcome = "joined"
				p.known.joined = letterOf(strings.TrimPrefix(verdict.File.Document.address(), "http://127.0.0.1:")[0])
				p.forget(p.known.outcome)
				return
			case Elsewhere:
				p.known.outcome = "alone: " + ErrElsewhere.Error()
				return
			}
			var h History
			if verdict.Action == TakeOver {
				h.JudgedStale = verdict.File.Document.Token
			}
			p.mark() // it is started
			if t := p.stand(f, h); t != nil {
				p.stay(t)
			}
		})
	}}
}

// judges settles as one does who takes no lease, and goes on with the verdict; it
// is alone where there is none.
func (p *player) judges(then func(*Folder, Verdict)) {
	f, err := Open(p.config())
	if err != nil {
		p.known.outcome = "alone: " + reason(err)
		return
	}
	defer f.Close()
	ctx, cancel := context.WithTimeout(context.Background(), worldly.JoinTimeout)
	verdict, err := f.Settle(ctx, History{})
	cancel()
	if err != nil {
		p.known.outcome = "alone: " + reason(err)
		return
	}
	then(f, verdict)
}

// in has a part be played in a network of its own.
func (p *part) in(network uint8) *part { q := *p; q.network = network; return &q }

// dated has the files that a part sees be as old as the clock of another machine
// says.
func (p *part) dated(skew time.Duration) *part {
	q := *p
	q.skew = skew
	q.name += ", dated"
	return &q
}

func reason(err error) string {
	for _, e := range []error{ErrElsewhere, ErrUnreadable, ErrLockBusy, ErrLost, context.DeadlineExceeded} {
		if errors.Is(err, e) {
			return e.Error()
		}
	}
	return err.Error()
}
