package bridge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"majordomus/bridge/frame"
)

// A model is a world of servers that die, hang and leave at random, and keeps
// count of what they ran.
type model struct {
	mu    sync.Mutex
	r     *rand.Rand
	calm  bool // nobody dies any more
	ran   map[string]int
	wrong int // told to run what nobody asked about, or twice
	wg    sync.WaitGroup
}

// A forgetful connection takes what is written and may never deliver it, as a
// kernel does whose process dies.
type forgetful struct {
	net.Conn
	forgets atomic.Bool
}

func (f *forgetful) Write(p []byte) (int, error) {
	if f.forgets.Load() {
		return len(p), nil
	}
	return f.Conn.Write(p)
}

func (m *model) chance(percent int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !m.calm && m.r.IntN(100) < percent
}

func (m *model) upTo(d time.Duration) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return time.Duration(m.r.Int64N(int64(d)))
}

func (m *model) find(ctx context.Context, _ error) (Endpoint, error) {
	select {
	case <-time.After(m.upTo(300 * time.Millisecond)):
	case <-ctx.Done():
		return Endpoint{}, ctx.Err()
	}
	if m.chance(3) {
		return Endpoint{}, errors.New("nobody is there")
	}
	return Endpoint{Open: func(context.Context, string) (io.ReadWriteCloser, error) {
		switch {
		case m.chance(5):
			return nil, &Refusal{Status: 409, Code: "lease_lost"}
		case m.chance(3):
			return nil, errors.New("connection refused")
		}
		ours, theirs := net.Pipe()
		m.wg.Go(func() { m.serve(theirs) })
		return ours, nil
	}}, nil
}

// serve is one server's end of a link.
func (m *model) serve(conn net.Conn) {
	ctx, die := context.WithCancel(context.Background())
	defer die()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	defer conn.Close()
	kernel := &forgetful{Conn: conn}
	w := frame.NewWriter(kernel)
	r := frame.NewReader(conn, 0)
	m.mu.Lock()
	fingerprint := fmt.Sprintf("!registry %d", m.r.IntN(3))
	asks := m.r.IntN(2) == 0 // before it runs what may not run twice
	m.mu.Unlock()
	var runs sync.Map // by number: closed when the bridge says so
	if w.Write([]byte(fingerprint)) != nil {
		return
	}
	var running sync.WaitGroup
	defer running.Wait()
	defer die()
	for n := 0; ; {
		line, err := r.Next()
		if err != nil {
			return
		}
		switch {
		case m.chance(2):
			return // dies
		case m.chance(1): // hangs
			<-time.After(time.Hour)
			return
		case m.chance(1):
			if w.Write([]byte("!lost")) != nil {
				return
			}
		}
		if line[0] == '!' {
			if string(line) == "!ping" && w.Write(pong) != nil {
				return
			}
			if n, ok := bytes.CutPrefix(line, []byte("!run ")); ok {
				if run, ok := runs.LoadAndDelete(string(n)); ok {
					close(run.(chan struct{}))
				} else {
					m.mu.Lock()
					m.wrong++
					m.mu.Unlock()
				}
			}
			continue
		}
		f, err := frame.Parse(line)
		if err != nil || !f.IsRequest() {
			continue
		}
		n++
		number, id, name, method := n, string(f.ID), "", f.Name()
		name, _ = frame.Text(frame.Get(f.Params, "name"))
		work := func() {
			time.Sleep(m.upTo(50 * time.Millisecond)) // in a bubble, as all sleeps here: so faults meet every moment
			if m.chance(2) {
				die()
				return
			}
			if asks && m.chance(3) {
				kernel.forgets.Store(true) // and so the bridge hears no more
				defer die()
			}
			if asks && name == "rw" {
				run := make(chan struct{})
				runs.Store(strconv.Itoa(number), run)
				if w.Write(fmt.Appendf(nil, "!ready %d", number)) != nil {
					return
				}
				select {
				case <-run:
				case <-time.After(m.upTo(time.Second)): // it dies before it is told
					die()
					return
				case <-ctx.Done():
					return
				}
			} else if w.Write(fmt.Appendf(nil, "!accepted %d", number)) != nil || ctx.Err() != nil {
				return // what cannot be announced is not run
			}
			if m.chance(2) {
				die()
				return
			}
			m.mu.Lock()
			m.ran[name+" "+id]++
			m.mu.Unlock()
			if m.chance(20) {
				time.Sleep(m.upTo(5 * time.Second))
			}
			result := `{}`
			if method == methodTools {
				result = `{"tools":[{"name":"ro","annotations":{"readOnlyHint":true}},{"name":"rw"}]}`
			}
			if m.chance(20) {
				if w.Write(frame.Notification("notifications/message", nil)) != nil {
					return
				}
			}
			switch {
			case m.chance(2):
				die()
			case m.chance(2): // in the middle of its answer
				half := frame.Result([]byte(id), []byte(result))
				if _, err := conn.Write(half[:len(half)/2]); err == nil {
					die()
				}
			default:
				_ = w.Write(frame.Result([]byte(id), []byte(result))) // ignore error: the bridge has left
			}
		}
		if method == methodInitialize {
			work()
		} else {
			running.Go(work)
		}
	}
}

// TestEveryRequestIsAnsweredOnce is the promise, held against servers that die
// whenever they like.
func TestEveryRequestIsAnsweredOnce(t *testing.T) {
	seeds := 500
	if testing.Short() {
		seeds = 20
	}
	unknown, unavailable, done := 0, 0, 0
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			m := &model{r: rand.New(rand.NewPCG(uint64(seed), 7)), ran: map[string]int{}}
			inR, inW := io.Pipe()
			outR, outW := io.Pipe()
			answers := map[string][]frame.Message{}
			var mu sync.Mutex
			var wg sync.WaitGroup
			wg.Go(func() {
				r := frame.NewReader(outR, 0)
				for {
					line, err := r.Next()
					if err != nil {
						return
					}
					f, err := frame.Parse(append([]byte(nil), line...))
					if err != nil {
						t.Errorf("the client got %q", line)
					}
					if f.IsResponse() {
						mu.Lock()
						answers[string(f.ID)] = append(answers[string(f.ID)], f)
						mu.Unlock()
					}
				}
			})
			var runErr error
			wg.Go(func() {
				runErr = Run(context.Background(), Config{In: inR, Out: outW, ID: "b", Find: m.find, audit: audit(t)})
				outW.Close()
			})
			say := func(line string) { io.WriteString(inW, line+"\n") }
			say(`{"id":"init","method":"initialize","params":{"capabilities":{}}}`)
			say(`{"method":"notifications/initialized"}`)
			cancelled := map[string]bool{}
			method := map[string]string{"init": "init"}
			total := 120
			for i := range total {
				id := fmt.Sprint(i)
				kind := []string{"rw", "rw", "ro", "list", "read", "announce"}[m.upTo(6)]
				method[id] = kind
				switch kind {
				case "list":
					say(`{"id":` + id + `,"method":"tools/list"}`)
				case "read":
					say(`{"id":` + id + `,"method":"resources/read","params":{"name":"read"}}`)
				case "announce":
					say(`{"id":` + id + `,"method":"tools/call","params":{"name":"majordomus_announce","arguments":{"scope":["` + id + `"],"claim":"` + fmt.Sprint(i%3) + `"}}}`)
				default:
					say(`{"id":` + id + `,"method":"tools/call","params":{"name":"` + kind + `"}}`)
				}
				if m.chance(60) {
					time.Sleep(m.upTo(60 * time.Millisecond))
				}
				if m.chance(1) {
					time.Sleep(10 * time.Second)
				}
				if m.chance(5) {
					say(`{"method":"notifications/cancelled","params":{"requestId":` + id + `}}`)
					cancelled[id] = true
				}
			}
			m.mu.Lock()
			m.calm = true
			m.mu.Unlock()
			inW.Close()
			wg.Wait()
			if runErr != nil {
				t.Errorf("seed %d: Run: %v", seed, runErr)
			}
			m.wg.Wait()
			for i := range total {
				id := fmt.Sprint(i)
				n := len(answers[id])
				if n > 1 || n == 0 && !cancelled[id] {
					t.Errorf("seed %d: %s (%s) was answered %d times", seed, id, method[id], n)
				}
				ran := m.ran["rw "+id]
				if ran > 1 {
					t.Errorf("seed %d: %s ran %d times", seed, id, ran)
				}
				if n != 1 || method[id] != "rw" {
					continue
				}
				var data struct{ Code string }
				switch f := answers[id][0]; {
				case f.Result != nil:
					done++
					if ran != 1 {
						t.Errorf("seed %d: %s has a result and ran %d times", seed, id, ran)
					}
				case json.Unmarshal(frame.Get(f.Error, "data"), &data) != nil:
					t.Errorf("seed %d: %s: %s", seed, id, f.Error)
				case data.Code == "outcome_unknown":
					unknown++
				case data.Code == "server_unavailable":
					unavailable++
					if ran != 0 {
						t.Errorf("seed %d: %s ran, and is said not to have", seed, id)
					}
				default:
					t.Errorf("seed %d: %s: %s", seed, id, f.Error)
				}
			}
			if m.wrong > 0 {
				t.Errorf("seed %d: %d words to run were wrong", seed, m.wrong)
			}
			if len(answers["\"init\""]) != 1 {
				t.Errorf("seed %d: initialize was answered %d times", seed, len(answers["\"init\""]))
			}
		})
		if t.Failed() {
			return
		}
	}
	t.Logf("%d results, %d unknown, %d unavailable", done, unknown, unavailable)
	if done == 0 || unknown == 0 || unavailable == 0 {
		t.Error("this tries too little")
	}
}
