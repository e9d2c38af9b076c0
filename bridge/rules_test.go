package bridge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"golang.org/x/tools/txtar"
)

// begin is how most clients begin.
const begin = `
	1 joined
	c> {"jsonrpc":"2.0","id":0,"method":"initialize","params":{"capabilities":{"roots":{}}}}
	1< {"jsonrpc":"2.0","id":0,"method":"initialize","params":{"capabilities":{"roots":{}}}}
	1> !accepted 1
	1> {"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25"}}
	c< {"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25"}}
	c> {"jsonrpc":"2.0","method":"notifications/initialized"}
	1< {"jsonrpc":"2.0","method":"notifications/initialized"}
`

// again is how the second server is told of such a client.
const again = `
	2< {"jsonrpc":"2.0","id":$init,"method":"initialize","params":{"capabilities":{"roots":{}}}}
	2> !accepted 1
	2> {"jsonrpc":"2.0","id":$init,"result":{"protocolVersion":"2025-11-25"}}
	2< {"jsonrpc":"2.0","method":"notifications/initialized"}
`

// TestScripts plays the scripts in testdata/scripts. With -update it writes down
// what the bridge says to client and servers, in the place of what it should.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/scripts/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no scripts", err)
	}
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			for i, f := range archive.Files {
				t.Run(f.Name, func(t *testing.T) {
					if s := runScript(t, string(f.Data)); *update {
						archive.Files[i].Data = s.record
					}
				})
			}
			if *update && !t.Failed() {
				if err := os.WriteFile(file, txtar.Format(archive), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func TestNothingIsWaitedForWhenTheContextEnds(t *testing.T) {
	s := runScript(t, begin+`
		c> {"id":1,"method":"tools/call","params":{"name":"a"}}
		1< {"id":1,"method":"tools/call","params":{"name":"a"}}
	`)
	if s.endErr != context.Canceled {
		t.Error(s.endErr)
	}
}

// A search that ends because the context does is no reason to tell the client
// that there are no servers.
func TestASearchCutByTheContextAnswersNothing(t *testing.T) {
	for range 300 {
		ctx, cancel := context.WithCancel(t.Context())
		in, client := io.Pipe()
		var said bytes.Buffer // read when Run has returned
		ended := make(chan error, 1)
		go func() {
			ended <- Run(ctx, Config{In: in, Out: &said, Find: func(ctx context.Context, _ error) (Endpoint, error) {
				<-ctx.Done()
				return Endpoint{}, ctx.Err()
			}})
		}()
		for _, line := range []string{`{"jsonrpc":"2.0","id":1,"method":"ping"}`, ""} { // the first waits once the second is read
			if _, err := io.WriteString(client, line+"\n"); err != nil {
				t.Fatal(err)
			}
		}
		cancel()
		<-ended // ignore error: it is the context's
		in.Close()
		if said.Len() > 0 {
			t.Fatalf("the client was told %s", &said)
		}
	}
}

func TestTheLastCallIsNotWaitedForForEver(t *testing.T) {
	runScript(t, begin+`
		c> {"id":1,"method":"tools/call","params":{"name":"a"}}
		1< {"id":1,"method":"tools/call","params":{"name":"a"}}
		eof
		sleep 999ms
		goes on
		sleep 1ms
		1< !bye
		ended
	`, func(c *Config, _ *script) { c.DrainTimeout = time.Second; c.ProbeTimeout = time.Minute })
}

func TestServersThatFailAtOnce(t *testing.T) {
	n := 0
	runScript(t, `
		c> {"id":1,"method":"ping"}
		sleep 7999ms
		sleep 1ms
		c< {"jsonrpc":"2.0","id":1,"error":~"message":"opening the server in this process: broken","data":{"code":"server_unavailable"}
		sleep 1h
	`, func(c *Config, s *script) {
		c.Find = func(context.Context, error) (Endpoint, error) {
			n++
			return Endpoint{Open: func(context.Context, string) (io.ReadWriteCloser, error) { return nil, errors.New("broken") }}, nil
		}
	})
	if n < 8 || n > 20 {
		t.Errorf("searched %d times", n)
	}
}

// A bridge that was stopped, and wakes up when the time for an attempt is long
// over, tries again before it gives up.
func TestTimeThatWasNotItsOwn(t *testing.T) {
	runScript(t, begin+`
		c> {"id":1,"method":"ping"}
		1< {"id":1,"method":"ping"}
		slow 9s
		refuse 409 lease_lost
		1 dies
		sleep 9s
		sleep 9s
	`+again+`
		2< {"id":1,"method":"ping"}
		2> {"id":1,"result":{}}
		c< {"id":1,"result":{}}
	`)
}

// A server that would not run a call is none that died of it.
func TestRefusalsAreNoRuns(t *testing.T) {
	runScript(t, begin+`
		c> {"id":1,"method":"ping"}
		1< {"id":1,"method":"ping"}
		1> !refused 2
	`+again+`
		1< !bye
		2< {"id":1,"method":"ping"}
		2> !accepted 2
		2 dies
		3< {"jsonrpc":"2.0","id":$third,"method":"initialize","params":{"capabilities":{"roots":{}}}}
		3> {"jsonrpc":"2.0","id":$third,"result":{}}
		3< {"jsonrpc":"2.0","method":"notifications/initialized"}
		3< {"id":1,"method":"ping"}
		3> !accepted 2
		3 dies
		sleep 1s
		4< {"jsonrpc":"2.0","id":$fourth,"method":"initialize","params":{"capabilities":{"roots":{}}}}
		4> {"jsonrpc":"2.0","id":$fourth,"result":{}}
		4< {"jsonrpc":"2.0","method":"notifications/initialized"}
		4< {"id":1,"method":"ping"}
		4> !accepted 2
		4> {"id":1,"result":{}}
		c< {"id":1,"result":{}}
	`)
}

// A server that was left and has a call still may die when no other could be had,
// and nobody looks for one any more: for that call one is looked for.
func TestALeftServerDiesWhileNoneCanBeHad(t *testing.T) {
	runScript(t, begin+`
		c> {"id":1,"method":"ping"}
		1< {"id":1,"method":"ping"}
		1> !draining
		sleep 1s
		1< !ping
		1> !pong
		sleep 1s
		1< !ping
		1> !pong
		sleep 1s
		1< !ping
		1> !pong
	`+again+`
		find no room
		2 dies
		find ok
		1 dies
		3< {"jsonrpc":"2.0","id":$third,"method":"initialize","params":{"capabilities":{"roots":{}}}}
		3> {"jsonrpc":"2.0","id":$third,"result":{}}
		3< {"jsonrpc":"2.0","method":"notifications/initialized"}
		3< {"id":1,"method":"ping"}
		3> {"id":1,"result":{}}
		c< {"id":1,"result":{}}
	`)
}

// A server that lives until it is joined costs no spin either, and every
// search is told what ended the last link.
func TestServersThatDieAtOnce(t *testing.T) {
	s := runScript(t, `
		c> {"id":1,"method":"ping"}
		sleep 8s
		c< {"jsonrpc":"2.0","id":1,"error":~server_unavailable
		sleep 1h
	`, func(c *Config, s *script) {
		find := c.Find
		c.Find = func(ctx context.Context, why error) (Endpoint, error) {
			_, err := find(ctx, why)
			return Endpoint{Open: func(context.Context, string) (io.ReadWriteCloser, error) {
				ours, theirs := net.Pipe()
				theirs.Close()
				return ours, nil
			}}, err
		}
	})
	if n := len(s.finds); n < 8 || n > 20 || s.finds[0] != nil || s.finds[1] == nil {
		t.Errorf("searched %d times: %v", len(s.finds), s.finds)
	}
}

func TestWhyAServerIsLookedFor(t *testing.T) {
	s := runScript(t, begin+`
		c> {"id":1,"method":"ping"}
		1< {"id":1,"method":"ping"}
		sleep 1s
		1< !ping
		sleep 2s
	`+again+`
		2< {"id":1,"method":"ping"}
		2> {"id":1,"result":{}}
		c< {"id":1,"result":{}}
		2> !lost
		3< {"jsonrpc":"2.0","id":$c,"method":"initialize","params":{"capabilities":{"roots":{}}}}
		3> {"jsonrpc":"2.0","id":$c,"result":{}}
		3< {"jsonrpc":"2.0","method":"notifications/initialized"}
		2< !bye
		3 dies
		4< {"jsonrpc":"2.0","id":$d,"method":"initialize","params":{"capabilities":{"roots":{}}}}
	`)
	want := []error{nil, ErrHung, ErrLeft, io.EOF}
	if !slices.Equal(s.finds, want) {
		t.Errorf("why: %v, want %v", s.finds, want)
	}
}

// A server in this process calls the bridge what the last one did.
func TestItsNameAlone(t *testing.T) {
	s := runScript(t, begin+`
		1> !peer pabcd2
		1 dies
	`+again+`
		2 dies
		sleep 1s
		3< {"jsonrpc":"2.0","id":$third,"method":"initialize","params":{"capabilities":{"roots":{}}}}
	`)
	if want := []string{"", "pabcd2", "pabcd2"}; !slices.Equal(s.called, want) {
		t.Errorf("it was to be called %q, want %q", s.called, want)
	}
}

func TestRoots(t *testing.T) {
	var got [][]string
	runScript(t, `
		1 joined
		c> {"id":0,"method":"initialize","params":{"capabilities":{"roots":{}}}}
		1< {"id":0,"method":"initialize","params":{"capabilities":{"roots":{}}}}
		1> {"id":0,"result":{}}
		c< {"id":0,"result":{}}
		c> {"method":"notifications/initialized"}
		1< {"method":"notifications/initialized"}
		c< {"jsonrpc":"2.0","id":$roots,"method":"roots/list"}
		# The server's own question is another one.
		1> {"id":"q","method":"roots/list"}
		c< {"id":"q","method":"roots/list"}
		c> {"id":"q","result":{"roots":[]}}
		1< {"id":"q","result":{"roots":[]}}
		c> {"id":$roots,"result":{"roots":[{"uri":"file:///a"},{"uri":"https://b"},{"uri":"file:///c"}]}}
		c> {"method":"notifications/roots/list_changed"}
		1< {"method":"notifications/roots/list_changed"}
		c< {"jsonrpc":"2.0","id":$again,"method":"roots/list"}
		c> {"id":$again,"error":{"code":1,"message":"no"}}
		c> {"method":"notifications/roots/list_changed"}
		1< {"method":"notifications/roots/list_changed"}
		c< {"jsonrpc":"2.0","id":$old,"method":"roots/list"}
		c> {"method":"notifications/roots/list_changed"}
		1< {"method":"notifications/roots/list_changed"}
		c< {"jsonrpc":"2.0","id":$more,"method":"roots/list"}
		c> {"id":$old,"result":{"roots":[{"uri":"file:///old"}]}}
		c> {"id":$more,"result":{"roots":[{"uri":"file:///d"}]}}
		2< {"id":$b,"method":"initialize","params":{"capabilities":{"roots":{}}}}
		2> {"id":$b,"result":{}}
		2< {"method":"notifications/initialized"}
		1< !bye
		c> {"method":"notifications/roots/list_changed"}
		2< {"method":"notifications/roots/list_changed"}
	`, func(c *Config, _ *script) {
		c.Roots = func(_ context.Context, uris []string) bool {
			got = append(got, uris)
			return len(uris) == 1
		}
	})
	if want := [][]string{{"file:///a", "file:///c"}, {"file:///d"}}; !reflect.DeepEqual(got, want) {
		t.Errorf("roots: %v, want %v", got, want)
	}
}

// Roots may be told while a server is looked for: the one that is then found
// was looked for in the wrong place.
func TestRootsDuringASearch(t *testing.T) {
	runScript(t, `
		1 joined
		c> {"id":0,"method":"initialize","params":{"capabilities":{"roots":{}}}}
		1< {"id":0,"method":"initialize","params":{"capabilities":{"roots":{}}}}
		1> {"id":0,"result":{}}
		c< {"id":0,"result":{}}
		c> {"method":"notifications/initialized"}
		1< {"method":"notifications/initialized"}
		c< {"jsonrpc":"2.0","id":$roots,"method":"roots/list"}
		slow 1s
		1 dies
		c> {"id":$roots,"result":{"roots":[{"uri":"file:///a"}]}}
		sleep 1s
		2< {"id":$b,"method":"initialize","params":{"capabilities":{"roots":{}}}}
		2> {"id":$b,"result":{}}
		2< {"method":"notifications/initialized"}
		sleep 1s
		3< {"id":$c,"method":"initialize","params":{"capabilities":{"roots":{}}}}
	`, func(c *Config, _ *script) {
		c.Roots = func(context.Context, []string) bool { return true }
	})
}

func TestAClientWithoutRootsIsNotAsked(t *testing.T) {
	runScript(t, `
		1 joined
		c> {"id":0,"method":"initialize","params":{"capabilities":{}}}
		1< {"id":0,"method":"initialize","params":{"capabilities":{}}}
		1> {"id":0,"result":{}}
		c< {"id":0,"result":{}}
		c> {"method":"notifications/initialized"}
		1< {"method":"notifications/initialized"}
	`, func(c *Config, _ *script) {
		c.Roots = func(context.Context, []string) bool { return true }
	})
}

func TestALineThatIsTooLong(t *testing.T) {
	long := strings.Repeat("x", 1000)
	runScript(t, strings.ReplaceAll(`
		1 joined
		c> {"id":1,"method":"tools/call","params":"LONG"}
		c< {"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"message of more than 1000 bytes"}}
		c> {"params":"LONG","method":"tools/call","id":"2"}
		c< {"jsonrpc":"2.0","id":"2","error":{"code":-32600,"message":"message of more than 1000 bytes"}}
		1> {"id":"q","method":"sampling/createMessage"}
		c< {"id":"q","method":"sampling/createMessage"}
		c> {"result":"LONG","id":"q"}
		1< {"jsonrpc":"2.0","id":"q","error":{"code":-32603,"message":"the client's answer cannot be passed on: message of more than 1000 bytes"}}
		c> {"result":"LONG","id":"other"}
		c> {"id":3,"method":"ping"}
		1< {"id":3,"method":"ping"}
		1> {"id":3,"result":"LONG"}
		c< {"jsonrpc":"2.0","id":3,"error":~answer_too_large
		1> {"id":"q","method":"sampling/createMessage","params":"LONG"}
		1< {"jsonrpc":"2.0","id":"q","error":{"code":-32600,~
		1> {"method":"notifications/message","params":"LONG"}
		c> {"id":4,"method":"ping"}
		1< {"id":4,"method":"ping"}
		1> {"id":4,"result":{}}
		c< {"id":4,"result":{}}
	`, "LONG", long), func(c *Config, _ *script) { c.MaxMessage = 1000 })
}

// A client that does not read slows its server down; neither is taken for dead.
func TestASlowClientCostsNoLink(t *testing.T) {
	var text strings.Builder
	text.WriteString(begin + `
		c> {"id":1,"method":"tools/call","params":{"name":"a"}}
		1< {"id":1,"method":"tools/call","params":{"name":"a"}}
		1> !accepted 2
		deaf
		1> {"method":"notifications/message"}
		sleep 1s
		1< !pong
		sleep 1s
		1< !pong
		sleep 1s
		1< !pong
		c> {"method":"notifications/cancelled","params":{"requestId":1}}
		1< {"method":"notifications/cancelled","params":{"requestId":1}}
		hears
		c< {"method":"notifications/message"}
	`)
	runScript(t, text.String())
}

func TestAClientThatIsGone(t *testing.T) {
	s := runScript(t, `
		1 joined
		c> hello
		1< !bye
	`, func(c *Config, _ *script) { c.Out = closedWriter{} })
	if !errors.Is(s.endErr, io.ErrClosedPipe) {
		t.Error(s.endErr)
	}
}

// What was answered after the input had ended, and could not be written, is told,
// unless nobody is there who would miss it.
func TestAnAnswerThatIsLost(t *testing.T) {
	for fault, want := range map[error]error{syscall.ENOSPC: syscall.ENOSPC, syscall.EPIPE: nil, io.ErrClosedPipe: nil} {
		s := runScript(t, `
			1 joined
			c> {"jsonrpc":"2.0","id":1,"method":"tools/list"}
			1< {"jsonrpc":"2.0","id":1,"method":"tools/list"}
			eof
			1> {"jsonrpc":"2.0","id":1,"result":{}}
			1< !bye
		`, func(c *Config, _ *script) { c.Out = failingWriter{fault} })
		if !errors.Is(s.endErr, want) {
			t.Errorf("of %v it says %v", fault, s.endErr)
		}
	}
}

type failingWriter struct{ error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.error }

type closedWriter struct{}

func (closedWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestInputThatBreaks(t *testing.T) {
	broken := errors.New("broken")
	s := runScript(t, ``, func(c *Config, s *script) {
		c.In = iotest.ErrReader(broken)
		s.findErr = errors.New("nobody")
	})
	if !errors.Is(s.endErr, broken) {
		t.Error(s.endErr)
	}
}

// brittle is a stream that cannot be written to any more from some line on, but
// still be read.
type brittle struct {
	net.Conn
	writes int
}

func (b *brittle) Write(p []byte) (int, error) {
	if b.writes--; b.writes < 0 {
		return 0, io.ErrClosedPipe
	}
	return b.Conn.Write(p)
}

// What a server wrote before it died counts, although it was met by a write
// that failed first.
func TestTheLastWordsOfAServerCount(t *testing.T) {
	once := func(c *Config, s *script) {
		n := 0
		c.Find = func(ctx context.Context, why error) (Endpoint, error) {
			e, err := s.find(ctx, why)
			if n++; n > 1 {
				return e, err
			}
			return Endpoint{Open: func(ctx context.Context, _ string) (io.ReadWriteCloser, error) {
				conn, err := s.open(ctx, "")
				return &brittle{conn.(net.Conn), 2}, err
			}}, err
		}
	}
	const before = `
		1 joined
		c> {"id":1,"method":"tools/call","params":{"name":"a"}}
		1< {"id":1,"method":"tools/call","params":{"name":"a"}}
		c> {"id":2,"method":"tools/call","params":{"name":"b"}}
		1< {"id":2,"method":"tools/call","params":{"name":"b"}}
		c> {"method":"notifications/lost"}
		c> {"id":3,"method":"tools/call","params":{"name":"c"}}
	`
	runScript(t, before+`
		1> !accepted 1
		1> {"id":1,"result":{}}
		c< {"id":1,"result":{}}
		1> !accepted 2
		1 dies
		c< {"jsonrpc":"2.0","id":2,"error":~outcome_unknown
		2< {"id":3,"method":"tools/call","params":{"name":"c"}}
	`, once)
	// A stream that never ends is not waited for.
	runScript(t, before+`
		sleep 999ms
		sleep 1ms
		2< {"id":1,"method":"tools/call","params":{"name":"a"}}
		2< {"id":2,"method":"tools/call","params":{"name":"b"}}
		2< {"id":3,"method":"tools/call","params":{"name":"c"}}
	`, once)
}

// An acknowledged listen may outlive any number of servers.
func TestAListenOutlivesManyServers(t *testing.T) {
	const listen = `{"id":"l","method":"subscriptions/listen","params":{}}`
	const known = `{"method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"l"}}}`
	text := "c> " + listen + "\n1< " + listen + "\n1> " + known + "\nc< " + known + "\n"
	for n := range 2 * maxSends {
		text += fmt.Sprintf("sleep 9s\n%d dies\n%d< %s\n%d> %s\n", n+1, n+2, listen, n+2, known)
	}
	runScript(t, text)
}

// A server that asks to be left as soon as it is joined, and is found again, is
// not joined in a circle.
func TestServersThatAskToBeLeftAtOnce(t *testing.T) {
	searches := 0
	runScript(t, `sleep 1m`, func(c *Config, s *script) {
		c.Find = func(context.Context, error) (Endpoint, error) {
			searches++
			return Endpoint{Open: func(ctx context.Context, _ string) (io.ReadWriteCloser, error) {
				ours, theirs := net.Pipe()
				go func() { // ends with the link
					io.WriteString(theirs, "!lost\n")
					io.Copy(io.Discard, theirs)
				}()
				return ours, nil
			}}, nil
		}
	})
	if searches < 5 || searches > 20 {
		t.Errorf("%d searches in a minute", searches)
	}
}

// A link on which nothing has been heard for a while is looked at before it is
// used: if another server has taken the place, the client's next request is
// that one's, and reaches it once.
func TestLooksBehind(t *testing.T) {
	var moved atomic.Bool
	s := runScript(t, begin+`
		c> {"id":1,"method":"tools/list"}
		1< {"id":1,"method":"tools/list"}
		1> {"id":1,"result":{}}
		c< {"id":1,"result":{}}
		sleep 5s
		c> {"id":2,"method":"tools/list"}
	`+strings.TrimSpace(again)+`
		2< {"id":2,"method":"tools/list"}
		2> {"id":2,"result":{}}
		c< {"id":2,"result":{}}
	`, func(c *Config, s *script) {
		find := c.Find
		c.Find = func(ctx context.Context, why error) (Endpoint, error) {
			moved.Store(false)
			return find(ctx, why)
		}
		c.Moved = moved.Load
		time.AfterFunc(3*time.Second, func() { moved.Store(true) })
	})
	if len(s.finds) != 2 || !errors.Is(s.finds[1], ErrLeft) {
		t.Errorf("searched because of %v", s.finds)
	}
}

// A server that asks twice under one id is answered once by the client, and told
// so of the other.
func TestAsksTwice(t *testing.T) {
	runScript(t, begin+`
		1> {"jsonrpc":"2.0","id":"q","method":"roots/list"}
		c< {"jsonrpc":"2.0","id":"q","method":"roots/list"}
		1> {"jsonrpc":"2.0","id":"q","method":"roots/list"}
		1< {"jsonrpc":"2.0","id":"q","error":~already in flight
		c> {"jsonrpc":"2.0","id":"q","result":{"roots":[]}}
		1< {"jsonrpc":"2.0","id":"q","result":{"roots":[]}}
	`)
}

// When all is quiet after a burst, what it took is given back, and everything goes
// on as before.
func TestGivesBackWhatABurstTook(t *testing.T) {
	large := strings.Repeat("x", idleBytes)
	runScript(t, begin+`
		c> {"id":1,"method":"tools/list"}
		1< {"id":1,"method":"tools/list"}
		1> {"id":1,"result":{"a":"`+large+`"}}
		c< {"id":1,"result":{"a":"`+large+`"}}
		sleep 1h
		c> {"id":2,"method":"tools/list"}
		1< {"id":2,"method":"tools/list"}
		1> {"id":2,"result":{}}
		c< {"id":2,"result":{}}
		c> {"id":2,"method":"tools/list"}
		1< {"id":2,"method":"tools/list"}
		1> {"id":2,"result":{}}
		c< {"id":2,"result":{}}
	`)
}

// A call that stays in flight keeps nothing of what went before it.
func TestGivesBackWhileACallIsInFlight(t *testing.T) {
	large := strings.Repeat("x", idleBytes)
	gaveBack := 0
	runScript(t, begin+`
		c> {"id":1,"method":"tools/call","params":{"name":"long"}}
		1< {"id":1,"method":"tools/call","params":{"name":"long"}}
		1> !accepted 2
		c> {"id":2,"method":"tools/list"}
		1< {"id":2,"method":"tools/list"}
		1> {"id":2,"result":{"a":"`+large+`"}}
		c< {"id":2,"result":{"a":"`+large+`"}}
		sleep 1s
		1< !ping
		1> !pong
		sleep 1s
		1< !ping
		1> !pong
		sleep 1s
		1< !ping
		1> {"id":1,"result":{}}
		c< {"id":1,"result":{}}
	`, func(c *Config, _ *script) {
		check, passed := c.audit, 0
		c.audit = func(b *bridge) {
			check(b)
			if b.passed < passed && b.calls["1"] != nil {
				gaveBack++
			}
			passed = b.passed
		}
	})
	if gaveBack != 1 {
		t.Errorf("memory was given back %d times while the call was in flight", gaveBack)
	}
}

// What cannot be dialled is said, and not tried.
func TestOpenWithoutAKeyOrAnAddress(t *testing.T) {
	b := newBridge(Config{})
	broken := errors.New("broken")
	if _, err := b.open(Endpoint{URL: "http://127.0.0.1:1", Key: func() (string, error) { return "", broken }}); !errors.Is(err, broken) || !strings.Contains(err.Error(), "reading the checkout's key") {
		t.Errorf("without a key: %v", err)
	}
	for _, address := range []string{"ftp://127.0.0.1:1", "http://", "127.0.0.1:1", "http://%zz", ""} {
		if conn, _, err := dial(t.Context(), address, "", identity{}); err == nil {
			conn.Close()
			t.Errorf("%q was dialled", address)
		}
	}
}
