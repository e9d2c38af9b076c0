package server

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	mcpserver "github.com/mark3labs/mcp-go/server"

	"majordomus/server/session"
)

const (
	longestWait = 300 * time.Second

	// waitSign is how often a waiting call gives a sign of life to a client
	// that wants them: many give up on a call that is silent for a minute.
	waitSign = 5 * time.Second

	// waitCalm is how long after a change the clients are looked at: a call
	// is a change too, and there can be a hundred thousand a second.
	waitCalm = 20 * time.Millisecond

	// echoedNote is the longest note that is repeated in the structured
	// result, for clients that show their model nothing else.
	echoedNote = 64 << 10
)

func (s *Server) tools() []mcpserver.ServerTool {
	yes, no := true, false
	// None of these changes anything, and none looks beyond this machine.
	honest := mcp.ToolAnnotation{ReadOnlyHint: &yes, DestructiveHint: &no, IdempotentHint: &yes, OpenWorldHint: &no}
	tool := func(name, title, description, input, output string, handle mcpserver.ToolHandlerFunc) mcpserver.ServerTool {
		notes := honest
		notes.Title = title
		return mcpserver.ServerTool{
			Tool: mcp.Tool{
				Name: name, Title: title, Description: description, Annotations: notes,
				RawInputSchema: json.RawMessage(input), RawOutputSchema: json.RawMessage(output),
			},
			Handler: handle,
		}
	}
	announce := tool("majordomus_announce", "Say what you work on",
		"Records what you are about to do and the paths it concerns, so that the other peers of this repository see it, and answers with those whose paths meet yours. Call it before you change files, again when the paths change, and with an empty scope when you are done. It reserves nothing: when it names somebody, look at their intent, and work elsewhere or wait (majordomus_wait with until \"board\").",
		schemaAnnounceIn, schemaAnnounceOut, s.callAnnounce)
	announce.Tool.Annotations.ReadOnlyHint = &no // said twice it is said once
	return []mcpserver.ServerTool{
		tool("majordomus_server", "Which server this is",
			"Says which majordomus server answers here: its version, the checkout it serves (name, ids, root), its address, when it started, whether it holds the checkout's lease, and how many peers (editors and other clients) are attached. Call it when it matters which checkout or which server you are talking to, or to see whether others work here too.",
			schemaNothing, schemaState, s.callServer),
		tool("majordomus_health", "Health of this server",
			"Checks this server and says what is not as it should be, each finding with its remedy. Call it when a tool fails unexpectedly, when other peers seem to be missing, or when the server may be out of date.",
			schemaNothing, schemaHealth, s.callHealth),
		tool("majordomus_wait", "Wait",
			"Waits, then answers. Use it instead of asking again and again: wait for a number of seconds, or with until \"board\" for at most that long and less if another peer comes, goes or announces something. Nothing is changed by it, and cancelling it ends it at once.",
			schemaWaitIn, schemaWaitOut, s.callWait),
		tool("majordomus_peers", "Who works here, and on what",
			"Shows the board: every editor and client that works in this repository, in this checkout and in its other git worktrees, what each announced to work on, which paths each was seen to touch, and where two of them overlap. Call it before you begin something that others may be doing, and when files change that you did not change.",
			schemaPeersIn, schemaPeersOut, s.callPeers),
		announce,
		tool("majordomus_executions", "What ran here lately",
			"Lists the calls of tools on this server that run now and that have ended, of all peers: who called what, how long it took, and what came of it. Call it to see whether another peer is running something, or why a call of yours was slow or failed.",
			schemaExecutionsIn, schemaExecutionsOut, s.callExecutions),
	}
}

// atOnce is session.Config.AtOnce. An announcement is recorded before the
// client's next line is read: of two for one claim the last is to stand, and a
// bridge that tells the next server what was announced sends behind it what the
// client says. The other tools look at files, and a disk may take its time.
func atOnce(tool string) bool { return tool == "majordomus_wait" || tool == "majordomus_announce" }

const schemaNothing = `{"type":"object","properties":{},"additionalProperties":false}`

const schemaState = `{"type":"object","properties":{` +
	`"name":{"type":"string","description":"always majordomus"},` +
	`"version":{"type":"string"},` +
	`"repository":{"type":"string","description":"the checkout's name; empty outside any checkout"},` +
	`"repository_id":{"type":"string","description":"identifies this checkout's folder on this machine"},` +
	`"git_repository_id":{"type":"string","description":"the same for every work tree of one git repository; absent without git"},` +
	`"linked_worktree":{"type":"boolean","description":"made with git worktree add"},` +
	`"root":{"type":"string","description":"the checkout's folder"},` +
	`"url":{"type":"string","description":"absent when it serves without a port"},` +
	`"generation":{"type":"string","description":"differs for every server of the checkout"},` +
	`"started_at":{"type":"string","format":"date-time"},` +
	`"uptime_seconds":{"type":"integer","minimum":0},` +
	`"leaseholder":{"type":"boolean","description":"whether this is the server that newcomers to the checkout find"},` +
	`"draining":{"type":"boolean","description":"whether it is ending"},` +
	`"peers":{"type":"integer","minimum":0,"description":"clients attached, you among them"},` +
	`"in_flight":{"type":"integer","minimum":0,"description":"calls being answered, this one among them"},` +
	`"stale":{"type":["string","null"],"description":"why the code running is not the code on disk; null if it is"},` +
	`"alone":{"type":"string","description":"why you are served without the others; absent if you are not"},` +
	`"fingerprint":{"type":"string","description":"changes when what can be listed changes"}},` +
	`"required":["name","version","repository","repository_id","linked_worktree","generation","started_at","uptime_seconds","leaseholder","draining","peers","in_flight","stale","fingerprint"],` +
	`"additionalProperties":false}`

const schemaHealth = `{"type":"object","properties":{` +
	`"status":{"type":"string","enum":["ok","warn","fail"],"description":"that of the worst check"},` +
	`"checks":{"type":"array","items":{"type":"object","properties":{` +
	`"id":{"type":"string"},` +
	`"status":{"type":"string","enum":["ok","warn","fail"]},` +
	`"findings":{"type":"array","items":{"type":"object","properties":{` +
	`"message":{"type":"string","description":"what is not as it should be"},` +
	`"remedy":{"type":"string","description":"what to do about it"}},` +
	`"required":["message","remedy"],"additionalProperties":false}}},` +
	`"required":["id","status","findings"],"additionalProperties":false}}},` +
	`"required":["status","checks"],"additionalProperties":false}`

const schemaWaitIn = `{"type":"object","properties":{` +
	`"seconds":{"type":"number","minimum":0,"maximum":300,"description":"how long to wait at most"},` +
	`"until":{"type":"string","enum":["time","board"],"default":"time","description":"time: wait the seconds out. board: answer earlier if another peer comes, goes or announces something"},` +
	`"note":{"type":"string","description":"comes back unchanged as the text of the answer: what you are waiting for, say"}},` +
	`"required":["seconds"],"additionalProperties":false}`

const schemaWaitOut = `{"type":"object","properties":{` +
	`"because":{"type":"string","enum":["time","board"],"description":"what ended the wait"},` +
	`"waited_seconds":{"type":"number","minimum":0},` +
	`"came":{"type":"array","items":{"$ref":"#/$defs/peer"},"description":"with until board: peers that were not attached at the start"},` +
	`"went":{"type":"array","items":{"$ref":"#/$defs/peer"},"description":"with until board: peers that are attached no more"},` +
	`"announced":{"type":"array","items":{"$ref":"#/$defs/peer"},"description":"with until board: peers whose claims are others than at the start"},` +
	`"note":{"type":"string","description":"the note, unless it is longer than 65536 bytes; the text of the answer has it in full"}},` +
	`"required":["because","waited_seconds","came","went","announced"],"additionalProperties":false,` +
	`"$defs":{"peer":{"type":"object","properties":{"id":{"type":"string"},"client":{"type":"string"}},"required":["id","client"],"additionalProperties":false}}}`

func (s *Server) callServer(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	if _, err := arguments(ctx, r); err != nil {
		return nil, err
	}
	return structured(s.state())
}

func (s *Server) callHealth(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	if _, err := arguments(ctx, r); err != nil {
		return nil, err
	}
	return structured(s.health())
}

// waited is the result of a wait.
type waited struct {
	Because string    `json:"because"`
	Seconds float64   `json:"waited_seconds"`
	Came    []visitor `json:"came"`
	Went    []visitor `json:"went"`
	Spoke   []visitor `json:"announced"`
	Note    *string   `json:"note,omitempty"`
}

type visitor struct {
	ID     string `json:"id"`
	Client string `json:"client"`

	claims string // all of them, to be compared
}

func (s *Server) callWait(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	args, err := arguments(ctx, r, "seconds", "until", "note")
	if err != nil {
		return nil, err
	}
	seconds, ok := args["seconds"].(float64)
	if most := longestWait.Seconds(); !ok || math.IsNaN(seconds) || seconds < 0 || seconds > most {
		return nil, bad(ctx, "seconds", fmt.Sprintf("must be a number from 0 to %v", most))
	}
	until, ok := args["until"].(string)
	if args["until"] == nil {
		until, ok = "time", true
	}
	if !ok || until != "time" && until != "board" {
		return nil, bad(ctx, "until", `must be "time" or "board"`)
	}
	note, noted := args["note"].(string)
	if !noted && args["note"] != nil {
		return nil, bad(ctx, "note", "must be a string")
	}

	began := time.Now()
	result := waited{Because: "time", Came: []visitor{}, Went: []visitor{}, Spoke: []visitor{}} // listed, so not null
	limit := time.Duration(seconds * float64(time.Second))
	if until == "board" {
		caller, _ := session.CallerFrom(ctx)
		if err := s.waitForOthers(ctx, limit, caller.Key, &result); err != nil {
			return nil, err
		}
	} else if err := wait(ctx, began, limit, nil); err != nil {
		return nil, err
	}
	result.Seconds = math.Round(time.Since(began).Seconds()*1000) / 1000
	text := fmt.Sprintf("waited %v s", result.Seconds)
	if result.Because == "board" {
		text += fmt.Sprintf("; peers came: %d, went: %d, announced something: %d", len(result.Came), len(result.Went), len(result.Spoke))
	}
	if noted {
		text = note
		if len(note) <= echoedNote {
			result.Note = &note
		}
	}
	return &mcp.CallToolResult{Content: []mcp.Content{mcp.NewTextContent(text)}, StructuredContent: result}, nil
}

// wait waits for d from began, or until ctx ends or there is news.
func wait(ctx context.Context, began time.Time, d time.Duration, news <-chan struct{}) error {
	left := d - time.Since(began)
	if left <= 0 {
		return nil
	}
	session.Yield(ctx)
	over := time.NewTimer(left)
	defer over.Stop()
	sign := time.NewTicker(waitSign)
	defer sign.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-over.C:
			return nil
		case <-news:
			return nil
		case <-sign.C:
			// ignore error: a client that has gone ends ctx
			session.Progress(ctx, time.Since(began).Seconds(), d.Seconds(), "waiting")
		}
	}
}

// waitForOthers waits for d, or for less if there are other peers then, or they
// say something else, than at the start.
func (s *Server) waitForOthers(ctx context.Context, d time.Duration, caller string, result *waited) error {
	began := time.Now()
	before, revision := s.others(caller)
	for {
		news := make(chan struct{})
		listening, stop := context.WithCancel(ctx)
		var wg sync.WaitGroup
		wg.Go(func() {
			if s.board.Changed(listening, revision) == nil && pausing(listening, waitCalm) {
				close(news)
			}
		})
		err := wait(ctx, began, d, news)
		stop()
		wg.Wait()
		if err != nil {
			return err
		}
		var now map[string]visitor
		now, revision = s.others(caller)
		result.Came, result.Went, result.Spoke = differences(before, now)
		if len(result.Came)+len(result.Went)+len(result.Spoke) > 0 {
			result.Because = "board"
			return nil
		}
		if time.Since(began) >= d {
			return nil
		}
	}
}

// others are the peers on the board, but for one.
func (s *Server) others(caller string) (map[string]visitor, uint64) {
	views, revision := s.board.Views()
	all := map[string]visitor{}
	for _, v := range views {
		if v.Attached && v.Key != caller {
			var claims strings.Builder
			for _, c := range v.Claims {
				fmt.Fprintf(&claims, "%q %q %q\n", c.Name, c.Intent, c.Scope)
			}
			all[v.Key] = visitor{v.ID, v.Client, claims.String()}
		}
	}
	return all, revision
}

// differences are never nil: they are listed.
func differences(before, now map[string]visitor) (came, went, spoke []visitor) {
	came, went, spoke = []visitor{}, []visitor{}, []visitor{}
	for _, key := range slices.Sorted(maps.Keys(now)) {
		if was, ok := before[key]; !ok {
			came = append(came, now[key])
		} else if was.claims != now[key].claims {
			spoke = append(spoke, now[key])
		}
	}
	for _, key := range slices.Sorted(maps.Keys(before)) {
		if _, ok := now[key]; !ok {
			went = append(went, before[key])
		}
	}
	return came, went, spoke
}

// arguments are those of a call, of which only known ones may be there.
func arguments(ctx context.Context, r mcp.CallToolRequest, known ...string) (map[string]any, error) {
	if r.Params.Arguments == nil {
		return nil, nil
	}
	args, ok := r.Params.Arguments.(map[string]any)
	if !ok {
		return nil, bad(ctx, "arguments", "must be an object")
	}
	for _, key := range slices.Sorted(maps.Keys(args)) {
		if !slices.Contains(known, key) {
			takes := "takes none"
			if len(known) > 0 {
				takes = "takes " + strings.Join(known, ", ")
			}
			return nil, bad(ctx, brief(key, 60), "is not an argument of "+brief(r.Params.Name, 60)+", which "+takes)
		}
	}
	return args, nil
}

// bad says which argument is wrong, and how.
func bad(ctx context.Context, argument, reason string) error {
	data, err := encode(map[string]string{"argument": argument})
	if err != nil {
		data = nil
	}
	return session.Fail(ctx, mcp.INVALID_PARAMS, argument+": "+reason, data)
}

// structured is v as structured content, and as text for clients that know
// nothing of that.
func structured(v any) (*mcp.CallToolResult, error) {
	b, err := encode(v)
	if err != nil {
		return nil, fmt.Errorf("encoding the result: %w", err)
	}
	return &mcp.CallToolResult{Content: []mcp.Content{mcp.NewTextContent(string(b))}, StructuredContent: json.RawMessage(b)}, nil
}
