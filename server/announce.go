package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"majordomus/server/board"
	"majordomus/server/session"
)

const codeArgument = "invalid_argument"

// handID is the short name of who announces by hand.
func handID(as string) string {
	sum := sha256.Sum256([]byte("hand " + as))
	return "p" + hex.EncodeToString(sum[:2])
}

// announcement is what came of one, beside what other worktrees say to it.
type announcement struct {
	board.Announced
	Complete bool     `json:"complete"` // the boards of all worktrees were looked at
	Reasons  []string `json:"reasons,omitempty"`
}

// announced records a claim and looks whom it meets, here first: of two in two
// worktrees who announce at once, at least one finds the other's recorded.
func (s *Server) announced(ctx context.Context, who board.Peer, hand bool, a board.Announcement) (announcement, error) {
	done, err := s.board.Announce(who, hand, a)
	x := announcement{Announced: done, Complete: true}
	if err != nil || len(done.Scope) == 0 {
		return x, err
	}
	session.Yield(ctx) // the others may take their time
	for _, o := range s.otherBoards(ctx) {
		x.Overlaps = append(x.Overlaps, board.Meetings(done.Scope, who.Key, o.views, s.fold)...)
		if o.State == "unread" {
			x.Complete = false
			x.Reasons = append(x.Reasons, strings.TrimPrefix(o.Checkout+": "+o.Reason, ": "))
		}
	}
	return x, nil
}

// diskCalm is how long links are followed before the client's next lines are
// read meanwhile: a disk that is gone must not make this server seem hung.
const diskCalm = 100 * time.Millisecond

// scope reads the paths of a claim. An absolute one may lead here through links.
func (s *Server) scope(ctx context.Context, paths []string) ([]string, error) {
	root := ""
	if c := s.cfg.Checkout; c != nil {
		root = c.Root
	}
	resolved, away := slices.Clone(paths), map[int]string{}
	for i, p := range paths {
		if _, reason := board.Inside(root, p, s.fold); reason == "" || root == "" {
			continue
		}
		if u, err := url.Parse(p); err == nil && u.Scheme == "file" && (u.Host == "" || u.Host == "localhost") {
			p = filepath.FromSlash(u.Path)
		}
		if filepath.IsAbs(p) {
			away[i] = p
		}
	}
	if len(away) > 0 {
		done := make(chan struct{})
		go func() { // waited for below
			defer close(done)
			for i, p := range away {
				resolved[i] = throughLinks(p)
			}
		}()
		select {
		case <-done:
		case <-time.After(diskCalm):
			session.Yield(ctx)
			<-done
		}
	}
	list, err := board.Scope(root, resolved, s.fold)
	var bad *board.ScopeError
	if errors.As(err, &bad) {
		bad.Path = brief(paths[bad.Index], 100)
	}
	return list, err
}

// throughLinks resolves as much of an absolute path as there is.
func throughLinks(p string) string {
	for at, rest := filepath.Clean(p), ""; ; at, rest = filepath.Dir(at), filepath.Join(filepath.Base(at), rest) {
		if real, err := filepath.EvalSymlinks(at); err == nil {
			return filepath.Join(real, rest)
		}
		if filepath.Dir(at) == at {
			return p
		}
	}
}

func (s *Server) callAnnounce(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	args, err := arguments(ctx, r, "intent", "scope", "claim")
	if err != nil {
		return nil, err
	}
	var a board.Announcement
	list, ok := args["scope"].([]any)
	if !ok {
		return nil, bad(ctx, "scope", "must be a list of paths; an empty one withdraws the claim")
	}
	var paths []string
	for i, p := range list {
		path, ok := p.(string)
		if !ok {
			return nil, bad(ctx, "scope", fmt.Sprintf("[%d] must be a string", i))
		}
		paths = append(paths, path)
	}
	if a.Intent, ok = args["intent"].(string); !ok && (args["intent"] != nil || len(paths) > 0) || len(paths) > 0 && strings.TrimSpace(a.Intent) == "" {
		return nil, bad(ctx, "intent", "must say in a sentence what you are going to do")
	}
	if a.Claim, ok = args["claim"].(string); !ok && args["claim"] != nil {
		return nil, bad(ctx, "claim", "must be a string")
	}
	caller, ok := session.CallerFrom(ctx)
	if !ok {
		return nil, errors.New("nobody is known to have called")
	}
	if a.Scope, err = s.scope(ctx, paths); err != nil {
		return nil, bad(ctx, "scope", strings.TrimPrefix(err.Error(), "scope"))
	}
	x, err := s.announced(ctx, onBoard(caller), false, a)
	var limit *board.LimitError
	if errors.As(err, &limit) {
		return nil, bad(ctx, limit.Argument, limit.Reason)
	}
	if err != nil {
		return nil, err
	}
	return structured(x)
}

// serveAnnounce is for people and hooks: a claim made by hand stands until it is
// withdrawn, or this server ends.
func (s *Server) serveAnnounce(w http.ResponseWriter, r *http.Request) {
	var asked struct {
		As     string   `json:"as"`
		Intent string   `json:"intent"`
		Scope  []string `json:"scope"`
		Claim  string   `json:"claim"`
	}
	if !s.decode(w, r, &asked) {
		return
	}
	wrong := func(why string) { refuse(w, http.StatusBadRequest, codeArgument, why) }
	switch {
	case strings.TrimSpace(asked.As) == "" || len(asked.As) > 100:
		wrong("as: must say who announces, in at most 100 bytes")
		return
	case len(asked.Scope) > 0 && strings.TrimSpace(asked.Intent) == "":
		wrong("intent: must say in a sentence what is going to be done")
		return
	}
	scope, err := s.scope(r.Context(), asked.Scope)
	if err != nil {
		wrong(err.Error())
		return
	}
	who := board.Peer{Key: "hand " + asked.As, ID: handID(asked.As), Client: asked.As, Front: "hand", Since: time.Now().UTC()}
	x, err := s.announced(r.Context(), who, true, board.Announcement{Claim: asked.Claim, Intent: asked.Intent, Scope: scope})
	if err != nil {
		wrong(err.Error())
		return
	}
	answer(w, http.StatusOK, x)
}
