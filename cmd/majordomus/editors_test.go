//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestEditors has real editors call tools through the program while its server
// is killed between and during the calls. What an editor would ask a model for
// is answered here, so that none of them needs an account or a network. All
// that they call may run twice, so they must not notice anything: each call is
// answered with what it asked for, and no bridge is started again.
func TestEditors(t *testing.T) {
	t.Parallel() // it waits more than it works
	clients := editorFolder(t, "clients")
	editors := editorFolder(t, "editors")
	node, err := findNode(t, clients)
	need(t, "node 20 or newer", err)

	kinds := []realEditor{
		{"Claude Code", filepath.Join(clients, "node_modules/.bin/claude"), claudeCode},
		{"Codex", filepath.Join(editors, "node_modules/.bin/codex"), codex},
		{"Gemini CLI", filepath.Join(editors, "node_modules/.bin/gemini"), geminiCLI},
	}
	t.Run("each", func(t *testing.T) {
		for _, kind := range kinds {
			t.Run(kind.name, func(t *testing.T) {
				t.Parallel()
				kind.work(t, newEditorHouse(t, 1), node)
			})
		}
	})
	// One server for all of them, and each kills it under the others.
	t.Run("together", func(t *testing.T) {
		house := newEditorHouse(t, len(kinds))
		var all sync.WaitGroup // subtests would wait for processors
		for _, kind := range kinds {
			all.Go(func() { kind.work(t, house, node) })
		}
		all.Wait()
	})
}

// editorFolder is a folder of testdata where `npm ci` has been.
func editorFolder(t *testing.T, name string) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	_, err = os.Stat(filepath.Join(dir, "node_modules"))
	need(t, "what `npm ci` installs in testdata/"+name, err)
	return dir
}

// A realEditor is a program that asks a model what to do, and does it.
type realEditor struct {
	name, path string
	// setup writes what the editor wants to know, and returns its words and
	// environment. server is how it is to start us, model where its model is.
	setup func(home, root string, server editorServer, model string) (words, environ []string, err error)
}

// An editorServer is an entry in an editor's list of servers.
type editorServer struct {
	Command string   `json:"command"`
	Args    []string `json:"args"`
}

func claudeCode(home, _ string, server editorServer, model string) (words, environ []string, err error) {
	err = editorFile(filepath.Join(home, "mcp.json"), map[string]any{"mcpServers": map[string]any{"majordomus": server}})
	return []string{"-p", "call the tools", "--mcp-config", filepath.Join(home, "mcp.json"), "--allowedTools", "mcp__majordomus"},
		[]string{"ANTHROPIC_BASE_URL=" + model, "ANTHROPIC_API_KEY=placeholder", "DISABLE_AUTOUPDATER=1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1"}, err
}

func codex(home, root string, server editorServer, model string) (words, environ []string, err error) {
	err = editorFile(filepath.Join(home, ".codex", "config.toml"), fmt.Sprintf(`
model = "a-model"
model_provider = "here"
approval_policy = "never"
sandbox_mode = "danger-full-access"
[model_providers.here]
name = "here"
base_url = %q
wire_api = "responses"
[projects.%q]
trust_level = "trusted"
[mcp_servers.majordomus]
command = %q
args = [%q, %q, %q, %q]
`, model+"/v1", root, server.Command, server.Args[0], server.Args[1], server.Args[2], server.Args[3]))
	return []string{"exec", "--skip-git-repo-check", "call the tools"}, nil, err
}

func geminiCLI(home, _ string, server editorServer, model string) (words, environ []string, err error) {
	err = editorFile(filepath.Join(home, ".gemini", "settings.json"), map[string]any{
		"security":   map[string]any{"folderTrust": map[string]any{"enabled": false}, "auth": map[string]any{"selectedType": "gemini-api-key"}},
		"general":    map[string]any{"disableAutoUpdate": true},
		"privacy":    map[string]any{"usageStatisticsEnabled": false},
		"mcpServers": map[string]any{"majordomus": server},
	})
	return []string{"-p", "call the tools", "-m", "gemini-2.5-flash", "--approval-mode", "yolo"},
		[]string{"GEMINI_API_KEY=placeholder", "GOOGLE_GEMINI_BASE_URL=" + model}, err
}

func editorFile(path string, content any) error {
	text, ok := content.(string)
	if !ok {
		b, err := json.Marshal(content)
		if err != nil {
			return err
		}
		text = string(b)
	}
	return errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600))
}

// An editorHouse is a checkout, the editors in it, and what dies there. A call
// that has met three servers which died is given up by design, so none is made
// to meet more than two.
type editorHouse struct {
	*accCheckout

	mu       sync.Mutex
	alone    bool                // there is one editor only
	starting int                 // editors that have not begun to call yet
	met      map[*editorTurn]int // how many have died since the turn began; only turns that are not over
	dead     map[string]bool     // servers that were killed, by their tokens
}

func newEditorHouse(t *testing.T, editors int) *editorHouse {
	t.Helper()
	return &editorHouse{accCheckout: accFresh(t), alone: editors == 1, starting: editors, met: map[*editorTurn]int{}, dead: map[string]bool{}}
}

// kill kills the server that serves, once none of the calls has met too many
// deaths and, where it is to be during a call, one has been in flight for a
// while: editors ask for other things, too, that are answered at once. The error
// is why it could not be before ctx ended.
func (h *editorHouse) kill(ctx context.Context, during bool) error {
	for looks := 0; ; {
		really := !during || looks == 5
		err := h.tryKill(ctx, during, really)
		switch {
		case err == nil && really:
			return nil
		case err == nil:
			looks++
		case ctx.Err() != nil:
			return err
		default:
			looks = 0
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// tryKill looks whether the server may be killed, and does it if it really is to.
func (h *editorHouse) tryKill(ctx context.Context, during, really bool) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.starting > 0 {
		return errors.New("editors are still starting")
	}
	for turn, deaths := range h.met {
		if deaths >= 2 {
			return fmt.Errorf("the call %q has met enough", turn.calls[0].note)
		}
	}
	d, err := h.lease()
	if err != nil {
		return err
	}
	if h.dead[d.Token] {
		return errors.New("the next server is not there yet")
	}
	key, err := os.ReadFile(filepath.Join(filepath.Dir(h.leasePath()), "key"))
	if err != nil {
		return err
	}
	var s accServed
	if err := call(ctx, *d.URL, strings.TrimSpace(string(key)), http.MethodGet, "/api/v1/server", nil, &s); err != nil {
		return err
	}
	if during && s.InFlight == 0 {
		return errors.New("no call is in flight")
	}
	if !really {
		return nil
	}
	if err := syscall.Kill(d.PID, syscall.SIGKILL); err != nil {
		return err
	}
	h.dead[d.Token] = true
	for turn := range h.met {
		h.met[turn]++
	}
	return nil
}

func (h *editorHouse) begun(turn *editorTurn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.met[turn] = 0
}

func (h *editorHouse) over(turn *editorTurn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.met, turn)
}

// work has the editor do what the model says, and looks at what came of it.
func (e realEditor) work(t *testing.T, house *editorHouse, node string) {
	home := t.TempDir()
	starts := filepath.Join(home, "starts")
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	m := &editorModel{t: t, name: e.name, ctx: ctx, house: house, starts: starts, turns: []*editorTurn{
		{calls: []editorCall{{0, "before anything happens"}}},
		{kill: 1, calls: []editorCall{{0, "after the server was killed"}}},
		{killDuring: 1, calls: []editorCall{{2, "while it is killed"}, {0, "beside that"}}},
		{killDuring: 2, calls: []editorCall{{2, "while it and the next are killed"}}},
		{kill: 1, calls: []editorCall{{0, "at the end"}}},
	}}
	m.started = sync.OnceFunc(func() {
		house.mu.Lock()
		defer house.mu.Unlock()
		house.starting--
	})
	model := httptest.NewServer(m)
	words, environ, err := e.setup(home, house.root, editorServer{"/bin/sh", []string{"-c", `echo started >>"$0"; exec "$1" mcp`, starts, house.program}}, model.URL)
	if err != nil {
		m.errorf("setting it up: %v", err)
	}

	cmd := exec.CommandContext(ctx, e.path, words...)
	cmd.Dir = house.root
	cmd.Env = append([]string{
		"PATH=" + filepath.Dir(node) + string(os.PathListSeparator) + os.Getenv("PATH"),
		"HOME=" + home, "TMPDIR=" + os.TempDir(), "LANG=C.UTF-8", "TERM=dumb",
	}, environ...)
	cmd.WaitDelay = 5 * time.Second // a bridge that outlives its editor holds the streams
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); err != nil || !strings.Contains(said.String(), editorFinal) {
		m.errorf("it ended with %v and said:\n%s", err, &said)
	}
	cancel()
	model.Close()
	m.leave()
	m.check()
}

const editorFinal = "all that was to be done is done"

// An editorCall is one of majordomus_wait, which answers with its note.
type editorCall struct {
	seconds float64
	note    string
}

// An editorTurn is the calls that a model wants at once.
type editorTurn struct {
	calls      []editorCall
	kill       int // how many servers are killed before it
	killDuring int // and how many while the calls run

	once sync.Once     // begins it: an editor may ask twice
	end  func()        // ends the killing, before the editor's next turn
	done chan struct{} // closed when it has ended
}

// An editorModel answers as models do, with one turn after the other. Which one
// it is the editor says: it sends all that was said so far, and with it the
// notes of the calls it has made.
type editorModel struct {
	t       *testing.T
	name    string          // of the editor
	ctx     context.Context // ends with the editor
	house   *editorHouse
	turns   []*editorTurn
	starts  string // a file with a line for each start of a bridge
	started func() // tells the house

	mu      sync.Mutex
	bridges int            // started before the second turn
	answers []editorAnswer // that the last request brought
	reached int            // turns that were begun
}

// An editorHeard is what a model reads in a request.
type editorHeard struct {
	tools   []string       // offered
	answers []editorAnswer // to all calls so far
	stream  bool
}

type editorAnswer struct {
	text   string
	failed bool // as the editor says it
}

func (m *editorModel) errorf(format string, a ...any) {
	m.t.Helper()
	m.t.Errorf("%s: %s", m.name, fmt.Sprintf(format, a...))
}

func (m *editorModel) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the editor has gone
	}
	var d dialect
	switch path := r.URL.Path; {
	case strings.HasSuffix(path, "/messages"):
		d = anthropic{}
	case strings.HasSuffix(path, "/responses"):
		d = openAI{}
	case strings.HasSuffix(path, "enerateContent"):
		d = google{}
	default:
		http.Error(w, `{"error":{"type":"not_found_error","message":"this is a small model"}}`, http.StatusNotFound)
		return
	}
	heard, err := d.hear(body)
	if err != nil {
		m.errorf("the editor asked %s what cannot be read: %v", r.URL, err)
	}
	heard.stream = heard.stream || strings.HasSuffix(r.URL.Path, "streamGenerateContent")
	if len(heard.tools) == 0 { // a title for the talk, or the like
		d.say(w, heard, "ok", nil)
		return
	}
	m.mu.Lock()
	m.answers = heard.answers
	m.mu.Unlock()
	for i, turn := range m.turns {
		if bytes.Contains(body, []byte(turn.calls[0].note)) {
			continue
		}
		turn.once.Do(func() { m.begin(i) })
		d.say(w, heard, "", turn.calls)
		return
	}
	m.finish(len(m.turns) - 1)
	d.say(w, heard, editorFinal, nil)
}

// begin begins a turn: it kills what is to be killed before it, and sees to
// what is to be killed while it lasts.
func (m *editorModel) begin(i int) {
	if i == 0 {
		m.started()
	} else {
		m.finish(i - 1)
	}
	m.mu.Lock()
	m.reached = i + 1
	if i == 1 {
		m.bridges = m.count()
	}
	m.mu.Unlock()
	turn := m.turns[i]
	for range turn.kill {
		if err := m.house.kill(m.ctx, false); err != nil {
			m.errorf("%v", err)
		}
	}
	m.house.begun(turn)
	var ctx context.Context
	ctx, turn.end = context.WithCancel(m.ctx)
	turn.done = make(chan struct{})
	go func() { // waited for in finish
		defer close(turn.done)
		for range turn.killDuring {
			// Where there are others the turn may be over before it is this one's.
			if err := m.house.kill(ctx, true); err != nil && m.house.alone {
				m.errorf("%q was answered before its server was killed: %v", turn.calls[0].note, err)
			}
		}
	}()
}

// finish is called when the answers to a turn's calls are there.
func (m *editorModel) finish(i int) {
	m.turns[i].end()
	<-m.turns[i].done
	m.house.over(m.turns[i])
}

// leave ends what an editor has left that was not done.
func (m *editorModel) leave() {
	m.started()
	if m.reached > 0 && m.turns[m.reached-1].done != nil {
		m.finish(m.reached - 1)
	}
}

// count is how often a bridge was started.
func (m *editorModel) count() int {
	b, err := os.ReadFile(m.starts)
	if err != nil {
		m.errorf("%v", err)
	}
	return bytes.Count(b, []byte("\n"))
}

// check looks at what came of it all.
func (m *editorModel) check() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.reached < len(m.turns) {
		m.errorf("the editor went no further than turn %d of %d", m.reached, len(m.turns))
	}
	calls := 0
	for _, turn := range m.turns {
		for _, c := range turn.calls {
			calls++
			if !slices.ContainsFunc(m.answers, func(a editorAnswer) bool { return !a.failed && strings.Contains(a.text, c.note) }) {
				m.errorf("the call %q was not answered as it should", c.note)
			}
		}
	}
	if len(m.answers) != calls {
		m.errorf("%d calls had %d answers", calls, len(m.answers))
	}
	if n := m.count(); n != m.bridges {
		m.errorf("%d bridges were started in the course, after %d at first", n-m.bridges, m.bridges)
	}
	if m.t.Failed() {
		for _, a := range m.answers {
			m.t.Logf("%s was answered (failed: %v): %s", m.name, a.failed, a.text)
		}
	}
}

// A dialect is how one maker's models are spoken to.
type dialect interface {
	// hear reads a request.
	hear(body []byte) (editorHeard, error)
	// say answers it: with text, or with calls of majordomus_wait.
	say(w http.ResponseWriter, heard editorHeard, text string, calls []editorCall)
}

// tool is the name under which an editor offers majordomus_wait.
func (h editorHeard) tool(otherwise string) string {
	for _, name := range h.tools {
		if strings.HasSuffix(name, "majordomus_wait") {
			return name
		}
	}
	return otherwise
}

type object = map[string]any

func (c editorCall) arguments() object { return object{"seconds": c.seconds, "note": c.note} }

// id is the same each time the call is asked for, and no other's.
func (c editorCall) id(prefix string) string {
	return prefix + strings.ReplaceAll(c.note, " ", "_")
}

func sayJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(v) // ignore error: the editor has gone
}

// sayEvents writes events, each under its member "type" where it has one.
func sayEvents(w http.ResponseWriter, events ...object) {
	w.Header().Set("Content-Type", "text/event-stream")
	for _, e := range events {
		b, err := json.Marshal(e)
		if err != nil {
			panic(err)
		}
		if name, ok := e["type"]; ok {
			fmt.Fprintf(w, "event: %s\n", name) // ignore error: the editor has gone
		}
		fmt.Fprintf(w, "data: %s\n\n", b) // ignore error: as above
	}
}

// anthropic is the Messages API.
type anthropic struct{}

func (anthropic) hear(body []byte) (h editorHeard, err error) {
	var asked struct {
		Stream   bool
		Tools    []struct{ Name string }
		Messages []struct{ Content json.RawMessage }
	}
	err = json.Unmarshal(body, &asked)
	h.stream = asked.Stream
	for _, t := range asked.Tools {
		h.tools = append(h.tools, t.Name)
	}
	for _, m := range asked.Messages {
		var parts []struct {
			Type    string
			Content json.RawMessage
			IsError bool `json:"is_error"`
		}
		if json.Unmarshal(m.Content, &parts) != nil {
			continue // plain text
		}
		for _, p := range parts {
			if p.Type == "tool_result" {
				h.answers = append(h.answers, editorAnswer{string(p.Content), p.IsError})
			}
		}
	}
	return h, err
}

func (anthropic) say(w http.ResponseWriter, h editorHeard, text string, calls []editorCall) {
	content, reason := []object{{"type": "text", "text": text}}, "end_turn"
	if len(calls) > 0 {
		content, reason = nil, "tool_use"
		for _, c := range calls {
			content = append(content, object{"type": "tool_use", "id": c.id("toolu_"), "name": h.tool("mcp__majordomus__majordomus_wait"), "input": c.arguments()})
		}
	}
	message := object{
		"id": "msg_1", "type": "message", "role": "assistant", "model": "a-model", "content": content, "stop_reason": reason, "stop_sequence": nil,
		"usage": object{"input_tokens": 1, "output_tokens": 1},
	}
	if !h.stream {
		sayJSON(w, message)
		return
	}
	message["content"], message["stop_reason"] = []object{}, nil
	events := []object{{"type": "message_start", "message": message}}
	for i, part := range content {
		begin, delta := object{"type": "text", "text": ""}, object{"type": "text_delta", "text": part["text"]}
		if part["type"] == "tool_use" {
			input, err := json.Marshal(part["input"])
			if err != nil {
				panic(err)
			}
			begin, delta = object{"type": "tool_use", "id": part["id"], "name": part["name"], "input": object{}}, object{"type": "input_json_delta", "partial_json": string(input)}
		}
		events = append(events, object{"type": "content_block_start", "index": i, "content_block": begin},
			object{"type": "content_block_delta", "index": i, "delta": delta}, object{"type": "content_block_stop", "index": i})
	}
	sayEvents(w, append(events, object{"type": "message_delta", "delta": object{"stop_reason": reason, "stop_sequence": nil}, "usage": object{"output_tokens": 1}},
		object{"type": "message_stop"})...)
}

// openAI is the Responses API.
type openAI struct{}

func (openAI) hear(body []byte) (h editorHeard, err error) {
	var asked struct {
		Tools []struct {
			Type, Name string
			Tools      []struct{ Name string }
		}
		Input []struct {
			Type   string
			Output json.RawMessage
		}
	}
	err = json.Unmarshal(body, &asked)
	for _, t := range asked.Tools {
		if t.Type != "namespace" {
			h.tools = append(h.tools, t.Name)
		}
		for _, inner := range t.Tools {
			h.tools = append(h.tools, t.Name+"/"+inner.Name)
		}
	}
	for _, i := range asked.Input {
		if strings.HasSuffix(i.Type, "call_output") {
			h.answers = append(h.answers, editorAnswer{text: string(i.Output)})
		}
	}
	return h, err
}

func (openAI) say(w http.ResponseWriter, h editorHeard, text string, calls []editorCall) {
	output := []object{{"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": []object{{"type": "output_text", "text": text, "annotations": []any{}}}}}
	if len(calls) > 0 {
		output = nil
		space, name, in := strings.Cut(h.tool("majordomus_wait"), "/")
		for _, c := range calls {
			arguments, err := json.Marshal(c.arguments())
			if err != nil {
				panic(err)
			}
			item := object{"type": "function_call", "id": c.id("fc_"), "call_id": c.id("call_"), "name": space, "arguments": string(arguments), "status": "completed"}
			if in {
				item["namespace"], item["name"] = space, name
			}
			output = append(output, item)
		}
	}
	response := object{"id": "resp_1", "object": "response", "created_at": 1, "status": "completed", "model": "a-model", "output": output,
		"usage": object{"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}}
	events := []object{{"type": "response.created", "response": object{"id": "resp_1", "object": "response", "status": "in_progress", "output": []any{}}}}
	for i, item := range output {
		events = append(events, object{"type": "response.output_item.added", "output_index": i, "item": item}, object{"type": "response.output_item.done", "output_index": i, "item": item})
	}
	sayEvents(w, append(events, object{"type": "response.completed", "response": response})...)
}

// google is the API of Gemini.
type google struct{}

func (google) hear(body []byte) (h editorHeard, err error) {
	var asked struct {
		Tools []struct {
			FunctionDeclarations []struct{ Name string }
		}
		Contents []struct {
			Parts []struct {
				FunctionResponse struct{ Response map[string]json.RawMessage }
			}
		}
	}
	err = json.Unmarshal(body, &asked)
	for _, t := range asked.Tools {
		for _, f := range t.FunctionDeclarations {
			h.tools = append(h.tools, f.Name)
		}
	}
	for _, c := range asked.Contents {
		for _, p := range c.Parts {
			if r := p.FunctionResponse.Response; r != nil {
				h.answers = append(h.answers, editorAnswer{string(r["output"]) + string(r["error"]), r["error"] != nil})
			}
		}
	}
	return h, err
}

func (google) say(w http.ResponseWriter, h editorHeard, text string, calls []editorCall) {
	parts := []object{{"text": text}}
	if len(calls) > 0 {
		parts = nil
		for _, c := range calls {
			parts = append(parts, object{"functionCall": object{"name": h.tool("majordomus_wait"), "args": c.arguments()}})
		}
	}
	answer := object{"candidates": []object{{"content": object{"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}},
		"usageMetadata": object{"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}}
	if h.stream {
		sayEvents(w, answer)
	} else {
		sayJSON(w, answer)
	}
}
