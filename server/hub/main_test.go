package hub_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	mcpserver "github.com/mark3labs/mcp-go/server"
	"go.uber.org/goleak"

	"majordomus/bridge/frame"
	"majordomus/server/hub"
	"majordomus/server/hub/config"
	"majordomus/server/session"
)

// patience is how long a test waits for what is certain to come.
const patience = 20 * time.Second

// TestMain makes the test binary a hosted server where HOSTED says which.
func TestMain(m *testing.M) {
	if kind := os.Getenv("HOSTED"); kind != "" {
		hosted(kind)
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// hosted is a server in raw lines, so that it can say what no library would.
func hosted(kind string) {
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	var mu sync.Mutex
	say := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Printf(format+"\n", args...)
	}
	switch kind {
	case "dead":
		fmt.Fprintln(os.Stderr, "cannot find my configuration")
		os.Exit(3)
	case "mute":
		io.Copy(io.Discard, in)
		return
	case "flood":
		flood()
	case "deaf":
		signal.Ignore(syscall.SIGTERM)
	case "banner":
		say("Welcome to banner 1.0!")
		say(`{"half": `)
		say("")
	}
	answers := map[string]chan string{}
	capabilities := `{"tools":{"listChanged":true},"prompts":{},"resources":{"subscribe":true},"logging":{}}`
	extra, created := "", ""
	for {
		line, err := in.ReadString('\n')
		if err != nil && kind == "deaf" {
			time.Sleep(3 * time.Minute) // longer than any test
		}
		if err != nil {
			return
		}
		m, bad := frame.Parse([]byte(strings.TrimSpace(line)))
		if bad != nil {
			continue
		}
		if kind == "log" {
			fmt.Fprintln(os.Stderr, "got", strings.TrimSpace(line), "by", os.Getpid())
		}
		id := string(m.ID)
		if m.IsResponse() {
			mu.Lock()
			ch := answers[id]
			mu.Unlock()
			if ch != nil {
				ch <- string(m.Raw)
			}
			continue
		}
		ask := func(method, params string) string {
			ch := make(chan string, 1)
			mu.Lock()
			q := fmt.Sprintf(`"q%d"`, len(answers))
			answers[q] = ch
			mu.Unlock()
			say(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":%s}`, q, method, params)
			return <-ch
		}
		result := func(text string) { say(`{"jsonrpc":"2.0","id":%s,"result":%s}`, id, text) }
		content := func(text string) {
			b, _ := json.Marshal(text)
			result(`{"content":[{"type":"text","text":` + string(b) + `}]}`)
		}
		switch m.Name() {
		case "initialize":
			if kind == "refuses" {
				say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32099,"message":"not today"}}`, id)
				continue
			}
			for kind == "held" { // until it is let go
				if _, err := os.Stat("go"); err == nil {
					break
				}
				time.Sleep(10 * time.Millisecond)
			}
			result(`{"protocolVersion":"2025-06-18","capabilities":` + capabilities + `,"serverInfo":{"name":"` + kind + `","version":"1"}}`)
		case "ping":
			result("{}")
		case "tools/list":
			if kind == "nolist" {
				result(`{"tools":{}}`)
				continue
			}
			if kind == "clash" { // one tool is called as another one is shown
				result(`{"tools":[{"name":"` + clashing + `","inputSchema":{"type":"object"}},{"name":"do.it now","inputSchema":{"type":"object"}}]}`)
				continue
			}
			if string(frame.Get(m.Params, "cursor")) == "" {
				result(`{"tools":[{"name":"echo","inputSchema":{"type":"object","$defs":{"a":{"x-odd":1e2}},"anyOf":[{},true]},"icons":[{"src":"a"}],"_meta":{"k":0.10}}],"nextCursor":"2"}`)
			} else {
				result(`{"tools":[{"name":"do.it now","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}},` +
					`{"name":"odd","inputSchema":{"type":["object","null"]}},{"name":"task","inputSchema":{"type":"object"},"execution":{"taskSupport":"required"}}` + extra + `],"nextCursor":"2"}`)
			}
		case "prompts/list":
			if kind == "unlisted" {
				say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32099,"message":"the shelf is empty"}}`, id)
				continue
			}
			result(`{"prompts":[{"name":"hello"}]}`)
		case "resources/list":
			mu.Lock()
			more := created
			mu.Unlock()
			result(`{"resources":[{"uri":"test://` + kind + `/one","name":"one"}` + more + `]}`)
		case "resources/templates/list":
			result(`{"resourceTemplates":[{"uriTemplate":"test://` + kind + `/by/{id}","name":"by id"}]}`)
		case "resources/read":
			result(`{"contents":[{"uri":` + string(frame.Get(m.Params, "uri")) + `,"text":"read by ` + kind + `"}]}`)
		case "resources/subscribe":
			if kind == "shy" {
				say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32099,"message":"do not look"}}`, id)
				continue
			}
			result("{}")
			say(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":%s}}`, frame.Get(m.Params, "uri"))
		case "completion/complete":
			if ref := frame.Get(m.Params, "ref"); kind == "good" {
				result(`{"completion":{"values":[` + string(frame.Quote(string(ref))) + `]}}`)
			} else {
				say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such method"}}`, id)
			}
		case "prompts/get":
			result(`{"messages":[{"role":"user","content":{"type":"text","text":` + string(frame.Get(m.Params, "name")) + `}}]}`)
		case "tools/call":
			go func() {
				args := frame.Get(m.Params, "arguments")
				switch text, _ := frame.Text(frame.Get(args, "do")); text {
				case "pid":
					content(fmt.Sprint(os.Getpid()))
				case "params":
					result(`{"content":[],"structuredContent":` + string(m.Params) + `,"odd": 1e2}`)
				case "die":
					os.Exit(4)
				case "wait":
					n, _ := frame.Text(frame.Get(args, "for"))
					d, _ := time.ParseDuration(n)
					time.Sleep(d)
					content("waited")
				case "hold":
					for { // until it is let go
						if _, err := os.Stat("let"); err == nil {
							break
						}
						time.Sleep(10 * time.Millisecond)
					}
					content("held")
				case "env":
					content(strings.Join(os.Environ(), "\n"))
				case "cwd":
					dir, _ := os.Getwd()
					content(dir)
				case "progress":
					token := frame.Get(m.Params, "_meta", "progressToken")
					var lines []string
					for i := range 100_000 {
						lines = append(lines, fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d,"odd":1e2}}`, token, i))
						if len(lines) == 1000 {
							say("%s", strings.Join(lines, "\n"))
							lines = nil
						}
					}
					content("done")
				case "elicit":
					content(ask("elicitation/create", `{"message":"well?","requestedSchema":{"type":"object","properties":{}}}`))
				case "flood":
					flood()
					content("flooded")
				case "asks":
					method, _ := frame.Text(frame.Get(args, "method"))
					content(ask(method, `{}`))
				case "roots":
					content(ask("roots/list", `{}`))
				case "log":
					level := frame.Get(args, "level")
					if level == nil {
						level = []byte(`"error"`)
					}
					say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":%s,"data":"something"}}`, level)
					content("logged")
				case "more":
					mu.Lock()
					extra = `,{"name":"another","inputSchema":{"type":"object"}}`
					mu.Unlock()
					say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
					content("there is more")
				case "create":
					uri := "test://created/" + string(frame.Get(args, "n"))
					mu.Lock()
					created += `,{"uri":"` + uri + `","name":"created"}`
					mu.Unlock()
					say(`{"jsonrpc":"2.0","method":"notifications/resources/list_changed"}`)
					content(uri)
				case "big":
					content(strings.Repeat("x", 30<<20))
				case "update":
					say(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":%s}}`, frame.Get(args, "uri"))
					content("updated")
				case "fail":
					say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32050,"message":"no <thing>","data":{"n":1e2}}}`, id)
				default:
					content(string(args))
				}
			}()
		default:
			if m.IsRequest() {
				say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such method"}}`, id)
			}
		}
	}
}

// clashing is the name under which the other tool of "clash" is shown, by the
// rule for names that not every client takes.
var clashing = fmt.Sprintf("do_it_now_%x", sha256.Sum256([]byte("clash__do.it now")))[:len("do_it_now_")+8]

// flood writes 16 MiB to the standard error.
func flood() {
	line := append(bytes.Repeat([]byte("x"), 1023), '\n')
	for range 16 << 10 {
		os.Stderr.Write(line)
	}
}

// a house is a Core with a Hub below it.
type house struct {
	t    *testing.T
	hub  *hub.Hub
	core *session.Core
	dir  string

	mu      sync.Mutex
	file    *config.File
	err     error
	changes []string
}

// settle hosts a server of each kind named; "name=kind" gives it another name.
func settle(t *testing.T, kinds ...string) *house {
	h := &house{t: t, dir: t.TempDir()}
	h.host(kinds...)
	h.open()
	return h
}

func (h *house) host(kinds ...string) {
	f := &config.File{Digest: strings.Join(kinds, ",") + "#"}
	for _, k := range kinds {
		name, kind, named := strings.Cut(k, "=")
		if !named {
			kind = name
		}
		kind, share, _ := strings.Cut(kind, "/")
		if !named {
			name = kind
		}
		f.Servers = append(f.Servers, config.Server{Name: name, Command: os.Args[0], Env: map[string]string{"HOSTED": kind}, Share: share})
	}
	h.mu.Lock()
	h.file = f
	h.mu.Unlock()
}

func (h *house) open() {
	cfg := hub.Config{
		Root: h.dir, Version: "1",
		Entries: func() (*config.File, error) { h.mu.Lock(); defer h.mu.Unlock(); return h.file, h.err },
		Resolve: func(s config.Server) (config.Server, []string, error) {
			env := []string{"PATH=" + os.Getenv("PATH")}
			for k, v := range s.Env {
				env = append(env, k+"="+v)
			}
			s.Cwd = h.dir
			return s, env, nil
		},
		OpenLog: func(name string) (io.WriteCloser, error) {
			return os.OpenFile(filepath.Join(h.dir, name), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		},
		LogTail: func(name string) string {
			b, _ := os.ReadFile(filepath.Join(h.dir, name)) // ignore error: nothing was said
			return strings.TrimSpace(string(b))
		},
		Keep: filepath.Join(h.dir, "catalogue"), Records: filepath.Join(h.dir, "hosted"),
		Changed: func(kind string) {
			h.mu.Lock()
			h.changes = append(h.changes, kind)
			h.mu.Unlock()
			h.core.ListChanged(kind)
		},
		Updated: func(session, uri string) { h.core.UpdatedFor(session, uri) },
	}
	h.hub = hub.New(cfg)
	m := mcpserver.NewMCPServer("house", "1", mcpserver.WithToolCapabilities(true), mcpserver.WithPromptCapabilities(true), mcpserver.WithResourceCapabilities(true, true), mcpserver.WithLogging(), mcpserver.WithCompletions())
	h.core = session.New(session.Config{MCP: m, Generation: "g", Hosted: h.hub})
	h.hub.Look()
	h.t.Cleanup(h.close)
}

func (h *house) close() {
	h.core.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	h.hub.Close(ctx)
}

// client is one client on a link.
type client struct {
	t     *testing.T
	conn  net.Conn
	r     *frame.Reader
	next  int
	notes []string
	early map[string]frame.Message // answers that came while another was waited for
}

const caps = `{"elicitation":{},"sampling":{},"roots":{}}`

func (h *house) client() *client {
	a, b := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		h.core.ServeStream(context.Background(), b, session.Peer{Plain: true}) // ignore error: the client closes it
	}()
	c := &client{t: h.t, conn: a, r: frame.NewReader(a, 0), early: map[string]frame.Message{}}
	h.t.Cleanup(func() { a.Close(); <-done })
	c.ask("initialize", `{"protocolVersion":"2025-11-25","capabilities":`+caps+`,"clientInfo":{"name":"c","version":"1"}}`)
	c.say(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return c
}

const statelessMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}}`

// stateless is a client that shakes no hands.
func (h *house) stateless() *client {
	a, b := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		h.core.ServeStream(context.Background(), b, session.Peer{Plain: true}) // ignore error: the client closes it
	}()
	c := &client{t: h.t, conn: a, r: frame.NewReader(a, 0), early: map[string]frame.Message{}}
	h.t.Cleanup(func() { a.Close(); <-done })
	return c
}

func textAt(value []byte, path ...string) string {
	s, _ := frame.Text(frame.Get(value, path...))
	return s
}

func (c *client) say(line string) {
	c.t.Helper()
	c.conn.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(c.conn, line+"\n"); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) hear() frame.Message {
	c.t.Helper()
	c.conn.SetDeadline(time.Now().Add(patience))
	line, err := c.r.Next()
	if err != nil {
		c.t.Fatal("hearing: ", err)
	}
	m, err := frame.Parse(append([]byte(nil), line...))
	if err != nil {
		c.t.Fatal(err)
	}
	return m
}

// send sends a request and returns its raw id.
func (c *client) send(method, params string) string {
	c.t.Helper()
	c.next++
	id := fmt.Sprintf(`"id<%d>"`, c.next)
	c.say(`{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":` + params + `}`)
	return id
}

// answer waits for the answer to id. Notifications are noted.
func (c *client) answer(id string) frame.Message {
	c.t.Helper()
	if m, ok := c.early[id]; ok {
		return m
	}
	for {
		m := c.hear()
		switch {
		case m.IsResponse() && string(m.ID) == id:
			return m
		case m.IsResponse():
			c.early[string(m.ID)] = m
		default:
			c.notes = append(c.notes, string(m.Raw))
		}
	}
}

func (c *client) ask(method, params string) frame.Message {
	c.t.Helper()
	return c.answer(c.send(method, params))
}

func (c *client) call(tool, args string) frame.Message {
	c.t.Helper()
	return c.ask("tools/call", `{"name":"`+tool+`","arguments":{`+args+`}}`)
}

// text is the text of a result, or the error.
func text(m frame.Message) string {
	if m.Error != nil {
		return "error " + string(m.Error)
	}
	var first string
	frame.Elements(frame.Get(m.Result, "content"), func(raw []byte) bool {
		first, _ = frame.Text(frame.Get(raw, "text"))
		return false
	})
	return first
}

func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !so(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}
