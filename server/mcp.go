package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	mcpserver "github.com/mark3labs/mcp-go/server"

	"majordomus/server/board"
	"majordomus/server/session"
)

// newMCP is what answers for what is ours: tools, resources, and what a client
// is told when it comes.
func (s *Server) newMCP() *mcpserver.MCPServer {
	hooks := &mcpserver.Hooks{}
	hooks.AddAfterInitialize(func(ctx context.Context, _ any, _ *mcp.InitializeRequest, result *mcp.InitializeResult) {
		result.Instructions = s.instructions(ctx)
	})
	hooks.AddAfterDiscover(func(ctx context.Context, _ any, _ *mcp.DiscoverRequest, result *mcp.DiscoverResult) {
		result.Instructions = s.instructions(ctx)
	})
	hooks.AddBeforeListResources(func(context.Context, any, *mcp.ListResourcesRequest) { s.follow() })
	m := mcpserver.NewMCPServer(name, s.cfg.Version,
		mcpserver.WithTitle("Majordomus"),
		mcpserver.WithDescription("One MCP server per checkout, shared by every editor in it."),
		// All of them, and now: mcp-go fixes capabilities when it is made,
		// and registers those it finds missing while requests read them.
		mcpserver.WithToolCapabilities(true),
		mcpserver.WithResourceCapabilities(true, true),
		mcpserver.WithPromptCapabilities(true),
		mcpserver.WithLogging(),
		mcpserver.WithCompletions(),
		mcpserver.WithHooks(hooks),
	)
	m.AddTools(s.tools()...)
	m.AddResource(mcp.Resource{
		URI: uriServer, Name: "server", Title: "This server", MIMEType: "application/json",
		Description: "Which server this is, which checkout it serves, and how it stands.",
	}, s.readServer)
	m.AddResource(mcp.Resource{
		URI: uriPeers, Name: "peers", Title: "Who works here", MIMEType: "application/json",
		Description: "The board: who is attached, what each works on, and where two of them meet, in every worktree of the repository. Subscribe to it to hear of changes in this one.",
	}, s.readPeers)
	if s.cfg.Checkout != nil {
		m.AddResourceTemplate(mcp.NewResourceTemplate(uriLayer+"{+path}", "layer",
			mcp.WithTemplateTitle("A file of the layer"),
			mcp.WithTemplateDescription("A file that this checkout shares with everybody who works in it, by its path in the shared folder.")),
			func(ctx context.Context, r mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
				return s.registry.read(ctx, r)
			})
	}
	return m
}

func (s *Server) readServer(context.Context, mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
	b, err := encode(s.state())
	if err != nil {
		return nil, fmt.Errorf("encoding the state: %w", err)
	}
	return []mcp.ResourceContents{mcp.TextResourceContents{URI: uriServer, MIMEType: "application/json", Text: string(b)}}, nil
}

// read reads a file of the layer as it is at this moment.
func (r *registry) read(ctx context.Context, request mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
	uri := request.Params.URI
	path, ok := layerPath(uri)
	if !ok {
		return nil, notFound(ctx, uri)
	}
	b, err := r.checkout.ReadLayer(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, notFound(ctx, uri)
	}
	if err != nil {
		r.log.Warn("reading a file of the layer", "path", path, "err", err)
		return nil, errors.New("the file cannot be read: " + plain(err))
	}
	return []mcp.ResourceContents{mcp.TextResourceContents{URI: uri, MIMEType: r.mime(path), Text: string(b)}}, nil
}

// notFound is the answer about a resource that is not there, as the revision
// of the request has it.
func notFound(ctx context.Context, uri string) error {
	code := mcp.RESOURCE_NOT_FOUND
	if mcp.IsModernProtocol(mcpserver.RequestProtocolVersion(ctx)) {
		code = mcp.INVALID_PARAMS
	}
	data, err := encode(map[string]string{"uri": uri})
	if err != nil {
		data = nil
	}
	return session.Fail(ctx, code, "there is no resource "+brief(uri, 200), data)
}

// instructions is what a client is told about where it is, in its own words
// for each. What others chose, a folder's name or an error's text, is quoted
// and cut: it ends up in front of a model, which is made to read no more than
// 2 KB of all this.
func (s *Server) instructions(ctx context.Context) string {
	var b strings.Builder
	fmt.Fprintf(&b, "This is majordomus %s", brief(s.cfg.Version, 60))
	if c := s.cfg.Checkout; c != nil {
		fmt.Fprintf(&b, ", the MCP server of the checkout %q", brief(c.Name, 100))
		if c.LinkedWorktree {
			b.WriteString(" (a linked git worktree)")
		}
		if s.cfg.Alone == "" {
			b.WriteString(", shared by every editor that works in it")
		}
	}
	b.WriteString(".")
	caller, known := session.CallerFrom(ctx)
	if known {
		fmt.Fprintf(&b, " You are peer %s.", caller.ID)
	}
	if s.cfg.Alone == "" {
		s.nameOthers(&b, caller.Key)
	}
	b.WriteString("\n\nBefore you change files, call majordomus_announce with what you are going to do and the paths: it tells you who else works there. " +
		"majordomus_peers shows everybody, majordomus_wait waits for others, majordomus_executions shows what ran, majordomus_health what seems wrong, " +
		"and majordomus_server which server and checkout this is.")
	if s.cfg.Checkout != nil {
		b.WriteString(" Resources under " + uriLayer + " are files that this checkout shares with everybody who works in it; read those that bear on your task.")
	}
	if s.cfg.Alone != "" {
		fmt.Fprintf(&b, "\n\nThis client is served alone, without the other editors of the checkout, because: %s", brief(s.pathless(s.cfg.Alone), 600))
	}
	return b.String()
}

// mostNamed and longestNamed bound what a newcomer is told of the others: the
// rest is for majordomus_peers.
const (
	mostNamed    = 6
	longestNamed = 900
)

// nameOthers says who else is there, and what each works on.
func (s *Server) nameOthers(b *strings.Builder, caller string) {
	views, _ := s.board.Views()
	// Those who announced something first: that is what is to be known.
	var first, then []*board.View
	n := 0
	for i := range views {
		v := &views[i]
		if !v.Attached || v.Key == caller {
			continue
		}
		n++
		switch {
		case len(v.Claims) > 0 && len(first) <= mostNamed:
			first = append(first, v)
		case len(v.Claims) == 0 && len(then) <= mostNamed:
			then = append(then, v)
		}
	}
	others := append(first, then...)
	switch n {
	case 0:
		b.WriteString(" No other peer is attached at the moment.")
		return
	case 1:
		b.WriteString(" 1 other peer is attached at the moment:")
	default:
		fmt.Fprintf(b, " %d other peers are attached at the moment:", n)
	}
	begin := b.Len()
	for i, v := range others {
		if i == mostNamed || b.Len()-begin > longestNamed {
			fmt.Fprintf(b, "\n- and %d more", n-i)
			break
		}
		fmt.Fprintf(b, "\n- %s (%s)", v.ID, brief(cmp.Or(v.Client, "unnamed"), 40))
		for j, c := range v.Claims {
			if j == 2 {
				fmt.Fprintf(b, ", and %d more claims", len(v.Claims)-j)
				break
			}
			paths := c.Scope[:min(len(c.Scope), 4)]
			fmt.Fprintf(b, " works on %s", brief(strings.Join(paths, ", "), 120))
			if len(c.Scope) > len(paths) {
				fmt.Fprintf(b, " and %d more", len(c.Scope)-len(paths))
			}
			fmt.Fprintf(b, ": %q", brief(c.Intent, 120))
		}
	}
}

// state is what can be said of a server to who is let in.
type state struct {
	Name            string    `json:"name"`
	Version         string    `json:"version"`
	Repository      string    `json:"repository"`
	RepositoryID    string    `json:"repository_id"`
	GitRepositoryID string    `json:"git_repository_id,omitempty"`
	LinkedWorktree  bool      `json:"linked_worktree"`
	Root            string    `json:"root,omitempty"`
	URL             string    `json:"url,omitempty"`
	Generation      string    `json:"generation"`
	StartedAt       time.Time `json:"started_at"`
	UptimeSeconds   int64     `json:"uptime_seconds"`
	LeaseHolder     bool      `json:"leaseholder"`
	Draining        bool      `json:"draining"`
	Peers           int       `json:"peers"`
	InFlight        int       `json:"in_flight"`
	Stale           *string   `json:"stale"`
	Alone           string    `json:"alone,omitempty"`
	Fingerprint     string    `json:"fingerprint"`
}

func (s *Server) state() state {
	peers, calls := s.core.Stats()
	holds, _ := s.holding() // ignore error: health says it; what cannot be told is not claimed
	x := s.index()
	st := state{
		Name: x.Name, Version: x.Version, Repository: x.Repository, RepositoryID: x.RepositoryID,
		GitRepositoryID: x.GitRepositoryID, LinkedWorktree: x.LinkedWorktree, URL: s.url, Generation: s.generation,
		StartedAt: x.StartedAt, UptimeSeconds: int64(max(0, time.Since(x.StartedAt)) / time.Second),
		LeaseHolder: holds, Draining: s.reason() != "", Peers: peers, InFlight: calls,
		Stale: x.Stale, Alone: s.pathless(s.cfg.Alone), Fingerprint: x.Fingerprint,
	}
	if c := s.cfg.Checkout; c != nil {
		st.Root = c.Root
	}
	return st
}
