package session_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"majordomus/bridge/frame"
	"majordomus/server/session"
)

// An id comes back in the very bytes it was asked with: no number, however
// large, passes a float, and nothing is escaped that was not.
func TestIDsComeBackAsWritten(t *testing.T) {
	ids := []string{
		`1`, `"1"`, `"abc"`, `""`, `0`, `-1`, `1.5`, `1e3`, `9007199254740993`, `18446744073709551615`, `"\u003c<é"`,
		`"` + strings.Repeat("<&>", 700) + `"`,
	}
	everywhere(t, func(t *testing.T, h *house, e end, era string) {
		for _, id := range ids {
			got := e.exchange(id, toolCall(era, id, "echo", `"s":"x"`, ""))
			if !strings.HasPrefix(got, `{"jsonrpc":"2.0","id":`+id+`,"result":{`) {
				t.Errorf("%s was answered %s", brief(id), brief(got))
			}
			got = e.exchange(id, toolCall(era, id, "nothing", "", ""))
			if !strings.HasPrefix(got, `{"jsonrpc":"2.0","id":`+id+`,"error":{`) {
				t.Errorf("%s was refused with %s", brief(id), brief(got))
			}
		}
	})
}

// 1 and "1" are two requests: taking one back leaves the other.
func TestNumbersAndStringsAreDifferentIDs(t *testing.T) {
	for _, era := range []string{shaken, stateless} {
		t.Run(era, func(t *testing.T) {
			h := settle(t, nil)
			l := h.link(t)
			l.greet(everything)
			for _, taken := range []string{`1`, `"1"`} {
				left := `"1"`
				if taken == left {
					left = `1`
				}
				l.say(toolCall(era, left, "block", `"s":"left"`, ""))
				h.hasBegun(t, "left")
				l.say(toolCall(era, taken, "block", `"s":"taken"`, ""))
				h.hasBegun(t, "taken")
				l.say(cancelled(taken))
				h.hasEnded(t, context.Canceled)
				h.release(t)
				h.hasEnded(t, nil)
				if s := l.answer(left); !strings.Contains(s, "freed left") {
					t.Error(s)
				}
				h.until(t, "both ids free", func() bool { _, n := h.core.Stats(); return n == 0 })
			}
		})
	}
	t.Run("http", func(t *testing.T) {
		h := settle(t, nil)
		w := h.web(t, shaken)
		var wg sync.WaitGroup
		for _, id := range []string{`1`, `"1"`} {
			wg.Go(func() {
				if s := w.exchange(id, toolCall(shaken, id, "block", `"s":"x"`, "")); !strings.Contains(s, "freed x") {
					t.Error(s)
				}
			})
		}
		h.hasBegun(t, "x")
		h.hasBegun(t, "x")
		h.release(t)
		h.release(t)
		wg.Wait()
	})
}

func TestDuplicateIDInFlightIsRefused(t *testing.T) {
	h := settle(t, nil)
	l := h.link(t)
	l.say(toolCall(stateless, `7`, "block", `"s":"first"`, ""))
	h.hasBegun(t, "first")
	l.say(toolCall(stateless, `7`, "echo", `"s":"second"`, ""))
	if s := l.answer(`7`); !strings.Contains(s, `"code":-32600`) {
		t.Fatal("the second of two equal ids was answered ", s)
	}
	h.release(t)
	if s := l.answer(`7`); !strings.Contains(s, "freed first") {
		t.Fatal("the first of two equal ids was answered ", s)
	}
}

// The reader puts a request in flight before it reads the next line, so a
// cancellation right behind a call is never lost, and its call not answered.
func TestCancelRightBehindItsCall(t *testing.T) {
	for _, era := range []string{shaken, stateless} {
		t.Run(era, func(t *testing.T) {
			h := settle(t, nil)
			l := h.link(t)
			l.greet(everything)
			for i := range 200 {
				id := fmt.Sprint(i)
				l.say(toolCall(era, id, "block", `"s":"b"`, "") + "\n" + cancelled(id))
			}
			l.exchange(`"last"`, toolCall(era, `"last"`, "echo", `"s":"x"`, ""))
			h.until(t, "nothing in flight", func() bool { _, n := h.core.Stats(); return n == 0 })
			l.exchange(`"later"`, toolCall(era, `"later"`, "echo", `"s":"x"`, ""))
			for _, s := range l.heard {
				if m, err := frame.Parse([]byte(s)); err == nil && m.IsResponse() {
					t.Error("a call taken back was answered: ", s)
				}
			}
		})
	}
}

func TestCancelOverHTTP(t *testing.T) {
	h := settle(t, nil)
	w := h.web(t, shaken)
	got := make(chan string, 1)
	go func() {
		resp, err := w.client.Do(w.request(context.Background(), "POST", toolCall(shaken, `5`, "block", `"s":"x"`, "")))
		if err != nil {
			got <- err.Error()
			return
		}
		defer resp.Body.Close()
		s, _ := eventsOf(t, resp).next()
		got <- s
	}()
	h.hasBegun(t, "x")
	if resp := w.post(cancelled(`"5"`)); resp.StatusCode != 202 {
		t.Fatal(resp.Status)
	}
	if resp := w.post(cancelled(`5`)); resp.StatusCode != 202 {
		t.Fatal(resp.Status)
	}
	h.hasEnded(t, context.Canceled)
	if s := <-got; s != "" {
		t.Fatal("a call taken back was answered ", s)
	}
}

// A call that the end of its server cuts may have taken effect, and whoever is
// told so without a bridge is told it in the same words.
func TestCutOverHTTP(t *testing.T) {
	h := settle(t, nil)
	w := h.web(t, shaken)
	got := make(chan string, 1)
	go func() {
		resp, err := w.client.Do(w.request(context.Background(), "POST", toolCall(shaken, `"x\/5"`, "block", `"s":"x"`, "")))
		if err != nil {
			got <- err.Error()
			return
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body) // ignore error: it is cut
		got <- string(b)
	}()
	h.hasBegun(t, "x")
	h.core.Close()
	if s := <-got; !strings.Contains(s, `"id":"x\/5","error":`) || !strings.Contains(s, `"code":"outcome_unknown"`) {
		t.Error(s)
	}
}

func TestBlockedCallHoldsUpNothing(t *testing.T) {
	everywhere(t, func(t *testing.T, h *house, e end, era string) {
		var wg sync.WaitGroup
		defer wg.Wait()
		if l, ok := e.(*line); ok {
			l.say(toolCall(era, `"b"`, "block", `"s":"held"`, ""))
			defer func() { l.answer(`"b"`) }()
		} else {
			wg.Go(func() { e.exchange(`"b"`, toolCall(era, `"b"`, "block", `"s":"held"`, "")) })
		}
		h.hasBegun(t, "held")
		for i, method := range []string{"ping", "tools/list", "resources/list", "prompts/list"} {
			if method == "ping" && era == stateless {
				continue // that revision has none
			}
			id := fmt.Sprint(i + 1)
			if s := e.exchange(id, request(id, method, params(era, "", ""))); !strings.Contains(s, `"result":`) {
				t.Error(method, " was answered ", s)
			}
		}
		if l, ok := e.(*line); ok {
			l.say(toolCall(era, `"c"`, "block", `"s":"other"`, ""))
			h.hasBegun(t, "other")
			l.say(cancelled(`"c"`))
			h.hasEnded(t, context.Canceled)
		}
		h.release(t)
	})
}

// Progress names its call by the token as the client wrote it, goes where the
// call's answer goes, and comes before it, however much of it there is.
func TestProgressOfABurst(t *testing.T) {
	const burst = 5000
	for _, token := range []string{`"<&>"`, `18446744073709551615`, `1.50`} {
		everywhere(t, func(t *testing.T, h *house, e end, era string) {
			message := toolCall(era, `1`, "progress", fmt.Sprintf(`"n":%d`, burst), `"progressToken":`+token)
			var next func() string
			switch e := e.(type) {
			case *line:
				other := h.link(t)
				other.greet(everything)
				defer func() {
					other.exchange(`1`, toolCall(shaken, `1`, "echo", "", ""))
					for _, s := range other.heard {
						if strings.Contains(s, "progress") {
							t.Error("another client was told ", s)
						}
					}
				}()
				e.say(message)
				next = func() string {
					return e.want("a message", func(s string) bool { return s[0] == '{' })
				}
			case *web:
				next = eventsOf(t, e.post(message)).must
			}
			for i := range burst {
				want := fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d,"total":%d}}`, token, i+1, burst)
				if s := next(); s != want {
					t.Fatalf("%d: got %s\nwant %s", i, s, want)
				}
			}
			if s := next(); !answers(`1`)(s) || !strings.Contains(s, "done") {
				t.Fatal("after the progress came ", s)
			}
		})
	}
}

func TestNoTokenNoProgress(t *testing.T) {
	everywhere(t, func(t *testing.T, h *house, e end, era string) {
		if w, ok := e.(*web); ok {
			resp := w.post(toolCall(era, `1`, "progress", `"n":3`, ""))
			if got := resp.Header.Get("Content-Type"); got != "application/json" {
				t.Error("answered as ", got)
			}
			return
		}
		l := e.(*line)
		l.exchange(`1`, toolCall(era, `1`, "progress", `"n":3`, ""))
		for _, s := range l.heard {
			if strings.Contains(s, "progress") {
				t.Error(s)
			}
		}
	})
}

func TestPanicIsAnErrorAnswer(t *testing.T) {
	everywhere(t, func(t *testing.T, h *house, e end, era string) {
		if s := e.exchange(`1`, toolCall(era, `1`, "panic", "", "")); !strings.Contains(s, `"code":-32603`) || strings.Contains(s, "a fault") {
			t.Error("a panic was answered ", s)
		}
		if s := e.exchange(`2`, toolCall(era, `2`, "echo", `"s":"alive"`, "")); !strings.Contains(s, "alive") {
			t.Error("after a panic: ", s)
		}
	})
}

func TestHandlersChooseTheirCode(t *testing.T) {
	everywhere(t, func(t *testing.T, h *house, e end, era string) {
		want := `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"not <this>","data":{"why":1e2}}}`
		if s := e.exchange(`1`, toolCall(era, `1`, "fail", "", "")); s != want {
			t.Errorf("got %s\nwant %s", s, want)
		}
	})
}

// A resource that nobody has is named in the error's data, as written.
func TestResourcesThatAreNotThereAreNamed(t *testing.T) {
	everywhere(t, func(t *testing.T, h *house, e end, era string) {
		code := map[string]string{shaken: "-32002", stateless: "-32602"}[era]
		got := []byte(e.exchange(`1`, request(`1`, "resources/read", params(era, `"uri":"x://<é>\u003c"`, ""))))
		if c, d := frame.Get(got, "error", "code"), frame.Get(got, "error", "data"); string(c) != code || string(d) != `{"uri":"x://<é>\u003c"}` {
			t.Errorf("%s", got)
		}
	})
}

func TestHandlersKnowTheirCaller(t *testing.T) {
	everywhere(t, func(t *testing.T, h *house, e end, era string) {
		front := "http"
		if _, ok := e.(*line); ok {
			front = "link"
		}
		if s := e.exchange(`1`, toolCall(era, `1`, "who", "", "")); !strings.Contains(s, "true t 7 "+era+" "+front+" 1") {
			t.Error(s)
		}
	})
	if _, ok := session.CallerFrom(context.Background()); ok {
		t.Error("nobody's context has a caller")
	}
}

var questions = []struct{ what, method, result, said string }{
	{"elicitation", "elicitation/create", `{"action":"decline"}`, "decline"},
	{"sampling", "sampling/createMessage", `{"role":"assistant","content":{"type":"text","text":"hi"},"model":"m<1>"}`, "m<1>"},
	{"roots", "roots/list", `{"roots":[{"uri":"file:///a"}]}`, "file:///a"},
}

func TestQuestionsAreAnswered(t *testing.T) {
	for _, q := range questions {
		t.Run("link/"+q.what, func(t *testing.T) {
			h := settle(t, nil)
			l := h.link(t)
			l.greet(everything)
			l.say(toolCall(shaken, `1`, "ask", `"s":"`+q.what+`"`, ""))
			m, _ := frame.Parse([]byte(l.has(q.method)))
			// What others asked, or nobody, is dropped.
			l.say(`{"jsonrpc":"2.0","id":"mj-gen0-1","result":{"action":"accept","model":"no","roots":[{"uri":"no"}]}}`)
			l.say(`{"jsonrpc":"2.0","id":1,"result":{"action":"accept"}}`)
			l.say(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":` + q.result + `}`)
			if got := said(l.answer(`1`)); got != q.said {
				t.Errorf("the handler heard %q", got)
			}
			l.say(toolCall(shaken, `2`, "ask", `"s":"`+q.what+`"`, ""))
			m, _ = frame.Parse([]byte(l.has(q.method)))
			l.say(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"error":{"code":-1,"message":"no <thanks>"}}`)
			if s := l.answer(`2`); !strings.Contains(s, "no <thanks>") {
				t.Error(s)
			}
		})
		t.Run("http/"+q.what, func(t *testing.T) {
			h := settle(t, nil)
			w := h.web(t, shaken)
			e := eventsOf(t, w.post(toolCall(shaken, `1`, "ask", `"s":"`+q.what+`"`, "")))
			m, _ := frame.Parse([]byte(e.must()))
			if m.Name() != q.method {
				t.Fatal(string(m.Raw))
			}
			if resp := w.post(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":` + q.result + `}`); resp.StatusCode != 202 {
				t.Error(resp.Status)
			}
			if got := said(e.must()); got != q.said {
				t.Errorf("the handler heard %q", got)
			}
		})
	}
}

// said is the text of a tool's result.
func said(answer string) string {
	var first []byte
	content := frame.Get([]byte(answer), "result", "content")
	if i := strings.IndexByte(string(content), '{'); i >= 0 {
		first = content[i : strings.LastIndexByte(string(content), '}')+1]
	}
	s, _ := frame.Text(frame.Get(first, "text"))
	return s
}

func TestQuestionsNobodyAnswersAreRefused(t *testing.T) {
	for _, q := range questions {
		h := settle(t, nil)
		l := h.link(t)
		l.greet(`{}`)
		s := l.exchange(`1`, toolCall(shaken, `1`, "ask", `"s":"`+q.what+`"`, ""))
		if !strings.Contains(s, `"error":`) || !strings.Contains(s, q.what) {
			t.Errorf("%s: %s", q.what, s)
		}
		for _, s := range l.heard {
			if strings.Contains(s, q.method) {
				t.Error("the client was asked: ", s)
			}
		}
	}
}

func TestQuestionsEndWithTheirCall(t *testing.T) {
	for _, q := range questions {
		h := settle(t, nil)
		l := h.link(t)
		l.greet(everything)
		l.say(toolCall(shaken, `1`, "ask", `"s":"`+q.what+`"`, ""))
		m, _ := frame.Parse([]byte(l.has(q.method)))
		l.say(cancelled(`1`))
		s := l.has("notifications/cancelled")
		if got := frame.Get([]byte(s), "params", "requestId"); string(got) != string(m.ID) {
			t.Errorf("%s: asked as %s, taken back as %s", q.what, m.ID, got)
		}
		// An answer that crosses it on the way harms nobody.
		l.say(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":` + q.result + `}`)
		l.exchange(`2`, toolCall(shaken, `2`, "echo", "", ""))
	}
}

// A stateless request brings its own capabilities: those of another request of
// the same client say nothing about it, nor does it change what a handshake on
// the same link agreed on.
func TestStatelessRequestChangesNoSession(t *testing.T) {
	h := settle(t, nil)
	l := h.link(t)
	l.greet(everything)
	l.exchange(`1`, toolCall(stateless, `1`, "echo", "", ""))
	if s := l.exchange(`2`, toolCall(shaken, `2`, "who", "", "")); !strings.Contains(s, "t 7 "+shaken) {
		t.Error("after a stateless request the session is ", s)
	}
	l.say(toolCall(shaken, `3`, "ask", `"s":"elicitation"`, ""))
	s := l.want("a question or an answer", func(s string) bool { return strings.Contains(s, "elicitation/create") || answers(`3`)(s) })
	if answers(`3`)(s) {
		t.Error("after a stateless request the client is not asked: ", s)
	}
	l.say(cancelled(`3`))
}
