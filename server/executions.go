package server

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"majordomus/server/board"
)

// Executions are the calls of tools that run, and the last that ended, the
// newest first.
type Executions struct {
	Running []board.Execution `json:"running"`
	Ended   []board.Execution `json:"ended"`
}

const (
	someExecutions = 100
	mostExecutions = 1000
)

func (s *Server) executions(most int) Executions {
	running, ended := s.board.Executions(most)
	return Executions{running, ended}
}

func (s *Server) callExecutions(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	args, err := arguments(ctx, r, "limit")
	if err != nil {
		return nil, err
	}
	limit := 20.0
	if args["limit"] != nil {
		var ok bool
		if limit, ok = args["limit"].(float64); !ok || limit != float64(int(limit)) || limit < 1 || limit > mostExecutions {
			return nil, bad(ctx, "limit", fmt.Sprintf("must be a whole number from 1 to %d", mostExecutions))
		}
	}
	return structured(s.executions(int(limit)))
}

func (s *Server) serveExecutions(w http.ResponseWriter, r *http.Request) {
	limit := someExecutions
	if text := r.URL.Query().Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > mostExecutions {
			refuse(w, http.StatusBadRequest, codeArgument, fmt.Sprintf("limit must be a whole number from 1 to %d", mostExecutions))
			return
		}
		limit = n
	}
	answer(w, http.StatusOK, s.executions(limit))
}

const (
	// eventsCalm is how long events are gathered before a listener gets them:
	// there may be a hundred thousand a second.
	eventsCalm = 100 * time.Millisecond

	// eventsAlive is how often a silent stream gets a comment.
	eventsAlive = 15 * time.Second

	// eventsStall is how long one write to a listener may stand.
	eventsStall = 30 * time.Second
)

// serveEvents streams what happens, as Server-Sent Events, until the listener
// goes, or its key or token, or the server ends. Who reads slowly misses some,
// and is told how many.
func (s *Server) serveEvents(w http.ResponseWriter, r *http.Request) {
	r, done := s.lasts(r)
	defer done()
	after := s.board.Newest()
	from := r.URL.Query().Get("after")
	if id := r.Header.Get("Last-Event-ID"); id != "" {
		from = id // a connection that is made again knows better than its address
	}
	if from != "" {
		n, err := strconv.ParseUint(from, 10, 64)
		if err != nil {
			refuse(w, http.StatusBadRequest, codeArgument, "after must be the number of an event")
			return
		}
		after = min(n, after)
		if n > after {
			after = 0 // another server counted so far
		}
	}
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	rc := http.NewResponseController(w)
	write := func(event string, number uint64, v any) error {
		b, err := encode(v)
		if err != nil {
			return err
		}
		id := ""
		if number > 0 {
			id = fmt.Sprintf("id: %d\n", number)
		}
		_, err = fmt.Fprintf(w, "%sevent: %s\ndata: %s\n\n", id, event, b)
		return err
	}
	limit := func() { rc.SetWriteDeadline(time.Now().Add(eventsStall)) } // ignore error: not every writer has one
	limit()
	defer s.board.Listen()() // before hello, behind which nothing may be missed
	w.WriteHeader(http.StatusOK)
	if write("hello", 0, map[string]any{"generation": s.generation, "newest": s.board.Newest()}) != nil || rc.Flush() != nil {
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(s.closing, cancel)()
	for ctx.Err() == nil {
		waiting, done := context.WithTimeout(ctx, eventsAlive)
		events, missed, err := s.board.Events(waiting, after)
		done()
		limit()
		if err != nil {
			if ctx.Err() != nil {
				return
			}
			if _, err := w.Write([]byte(": alive\n\n")); err != nil || rc.Flush() != nil {
				return
			}
			continue
		}
		if missed > 0 && write("gap", 0, map[string]uint64{"missed": missed}) != nil {
			return
		}
		for _, e := range events {
			if write(e.Kind, e.Number, e) != nil {
				return
			}
			after = e.Number
		}
		if rc.Flush() != nil {
			return
		}
		pausing(ctx, eventsCalm)
	}
}
