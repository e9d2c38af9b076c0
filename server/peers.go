package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/mark3labs/mcp-go/mcp"

	"majordomus/bridge/frame"
	"majordomus/lease"
	"majordomus/lease/checkout"
	"majordomus/server/board"
	"majordomus/server/session"
)

// Peers is the board, of one checkout or of all of a repository's.
type Peers struct {
	You      string          `json:"you,omitempty"`   // the id of the peer that asks
	Yours    []string        `json:"yours,omitempty"` // see startedBy
	Peers    []board.View    `json:"peers"`
	Overlaps []board.Overlap `json:"overlaps"`
	LeftOut  int             `json:"overlaps_left_out,omitempty"`
	Boards   []BoardState    `json:"boards"`
	Complete bool            `json:"complete"`          // every board that there is was read
	Reasons  []string        `json:"reasons,omitempty"` // why worktrees are not among the boards
}

// BoardState is one checkout, and whether its board could be read.
type BoardState struct {
	Checkout   string `json:"checkout"`
	CheckoutID string `json:"checkout_id"`
	Root       string `json:"root"`
	Linked     bool   `json:"linked_worktree"`
	This       bool   `json:"this"`
	State      string `json:"state"` // served, none (no server runs) or unread
	URL        string `json:"url,omitempty"`
	Peers      int    `json:"peers"` // attached
	Reason     string `json:"reason,omitempty"`
}

const (
	ofThis       = "this"
	ofRepository = "repository"
)

// largestBoard bounds what is read of another server's board.
const largestBoard = 16 << 20

// present is told that there is news of a peer. It looks under a lock, so that
// whoever looks last writes last: of a coming and a going the two words may
// arrive in either order.
func (s *Server) present(p *session.Session) {
	s.presence.Lock()
	defer s.presence.Unlock()
	if p.Attached() {
		s.board.Attach(p.ID(), onBoard(p.Info()))
	} else {
		s.board.Detach(p.ID())
	}
}

func onBoard(i session.Info) board.Peer {
	return board.Peer{Key: i.Key, ID: i.ID, Client: i.Client, Version: i.Version, Era: i.Era, Front: i.Front, Since: i.Since.UTC()}
}

// boardCalm is how long after a change of the board it is told: what happens
// together is told together.
const boardCalm = 50 * time.Millisecond

// tellBoard tells whoever subscribed to the board of its changes.
func (s *Server) tellBoard(ctx context.Context) {
	for told := s.board.Revision(); s.board.Changed(ctx, told) == nil && pausing(ctx, boardCalm); {
		told = s.board.Revision()
		s.core.Updated(uriPeers)
	}
}

// told is a board, for programs and in words. Nobody changes it.
type told struct {
	peers Peers
	body  []byte
	text  string
}

func tell(p Peers) (*told, error) {
	body, err := encode(p)
	if err != nil {
		return nil, fmt.Errorf("encoding the board: %w", err)
	}
	return &told{p, body, p.words()}, nil
}

// own is this checkout's board. It is made once for every change; what was
// touched long ago ceases to be an overlap by itself.
func (s *Server) own() (*told, error) {
	k := &s.ownBoard
	k.Lock()
	defer k.Unlock()
	if k.told != nil && k.revision == s.board.Revision() && time.Since(k.made) < 10*time.Second {
		return k.told, nil
	}
	views, revision := s.board.Views()
	p := Peers{Peers: views, Complete: true, Boards: []BoardState{s.boardState(views)}}
	p.Overlaps, p.LeftOut = board.Overlaps(views, s.fold)
	t, err := tell(p)
	if err != nil {
		return nil, err
	}
	k.told, k.revision, k.made = t, revision, time.Now()
	return t, nil
}

// ownBoard is what own keeps.
type ownBoard struct {
	sync.Mutex
	revision uint64
	made     time.Time
	told     *told
}

func (s *Server) boardState(views []board.View) BoardState {
	b := BoardState{This: true, State: "served", URL: s.url, Peers: attachedOf(views)}
	if c := s.cfg.Checkout; c != nil {
		b.Checkout, b.CheckoutID, b.Root, b.Linked = c.Name, c.ID, c.Root, c.LinkedWorktree
	}
	return b
}

func attachedOf(views []board.View) int {
	n := 0
	for _, v := range views {
		if v.Attached {
			n++
		}
	}
	return n
}

// peers is the board of this checkout, or of the repository.
func (s *Server) peers(ctx context.Context, of string) (*told, error) {
	own, err := s.own()
	if err != nil || of == ofThis {
		return own, err
	}
	others := s.otherBoards(ctx)
	if len(others) == 0 {
		return own, nil
	}
	all := Peers{Peers: slices.Clone(own.peers.Peers), Boards: slices.Clone(own.peers.Boards), Complete: true}
	for _, o := range others {
		all.add(o)
	}
	all.Overlaps, all.LeftOut = board.Overlaps(all.Peers, s.fold)
	return tell(all)
}

// words are the board for a model, which reads fewer of them than of JSON.
func (p Peers) words() string {
	var b strings.Builder
	several := len(p.Boards) > 1
	where := func(checkout string) string {
		if !several {
			return ""
		}
		return " in " + brief(checkout, 100)
	}
	fmt.Fprintf(&b, "%d peers\n", len(p.Peers))
	for _, v := range p.Peers {
		fmt.Fprintf(&b, "%s (%s)%s", v.ID, brief(cmp.Or(v.Client, "unnamed"), 60), where(v.Checkout))
		if !v.Attached {
			b.WriteString(", departed")
		}
		b.WriteString("\n")
		for _, c := range v.Claims {
			fmt.Fprintf(&b, "  works on %s: %q\n", strings.Join(c.Scope, ", "), brief(c.Intent, 400))
		}
		if n := len(v.Touched); n > 0 {
			b.WriteString("  was seen at")
			for i, t := range v.Touched[:min(n, 8)] {
				if i > 0 {
					b.WriteString(",")
				}
				b.WriteString(" " + t.Path)
			}
			if n > 8 {
				fmt.Fprintf(&b, " and %d more", n-8)
			}
			b.WriteString("\n")
		}
	}
	for _, o := range p.Overlaps {
		x, y := o.Between[0], o.Between[1]
		fmt.Fprintf(&b, "overlap (%s): %s%s and %s%s at", o.Kind, x.Peer, where(x.Checkout), y.Peer, where(y.Checkout))
		for i, pair := range o.Paths {
			if i > 0 {
				b.WriteString(",")
			}
			if b.WriteString(" " + pair[0]); pair[0] != pair[1] {
				b.WriteString(" / " + pair[1])
			}
		}
		b.WriteString("\n")
	}
	if p.LeftOut > 0 {
		fmt.Fprintf(&b, "and %d more overlaps\n", p.LeftOut)
	}
	for _, o := range p.Boards {
		if o.State == "unread" {
			fmt.Fprintf(&b, "not complete: the board of %s could not be read: %s\n", brief(o.Checkout, 100), brief(o.Reason, 400))
		}
	}
	for _, r := range p.Reasons {
		fmt.Fprintf(&b, "not complete: %s\n", brief(r, 400))
	}
	return b.String()
}

func (p *Peers) add(o otherBoard) {
	if o.CheckoutID == "" {
		p.Reasons = append(p.Reasons, o.Reason)
	} else {
		p.Boards = append(p.Boards, o.BoardState)
	}
	p.Peers = append(p.Peers, o.views...)
	p.Complete = p.Complete && o.State != "unread"
}

// otherBoard is what another checkout of the repository has on its board.
type otherBoard struct {
	BoardState
	views []board.View
}

// otherBoards reads the boards of the repository's other worktrees, side by side and
// each within twice the time of a probe. Each server is asked for its own only:
// one that asked on would ask in circles. A worktree without a lease costs one
// look at its folder, and so does one whose lease a killed server left behind,
// but for the first time.
func (s *Server) otherBoards(ctx context.Context) []otherBoard {
	c := s.cfg.Checkout
	if c == nil || c.GitID == "" || s.cfg.Alone != "" {
		return nil
	}
	trees, err := s.worktrees.list(c)
	list := make([]otherBoard, 0, len(trees))
	var wg sync.WaitGroup
	ctx, cancel := context.WithTimeout(ctx, 2*s.cfg.Policy.ProbeTimeout)
	defer cancel()
	for _, w := range trees {
		if w.ID == c.ID {
			continue
		}
		list = append(list, otherBoard{BoardState: BoardState{Checkout: w.Name, CheckoutID: w.ID, Root: w.Root, Linked: w.LinkedWorktree, State: "none"}})
		o := &list[len(list)-1] // stays where it is: there is room for all
		info, kept := lease.Kept(w)
		if !kept || s.worktrees.isDead(w, info) {
			continue
		}
		wg.Go(func() {
			if s.readOther(ctx, w, o) {
				s.worktrees.died(w, info)
			}
		})
	}
	wg.Wait()
	if err != nil {
		list = append(list, otherBoard{BoardState: BoardState{State: "unread", Reason: err.Error()}})
	}
	return list
}

// readOther fills in what is on the board of w. It reports whether the lease is
// that of a server that has ended, and will never be another's.
func (s *Server) readOther(ctx context.Context, w *checkout.Checkout, o *otherBoard) (dead bool) {
	unread := func(why error) { o.State, o.Reason = "unread", why.Error() }
	f, err := lease.OpenExisting(lease.Config{Checkout: w, Timings: lease.Timings{ProbeTimeout: s.cfg.Policy.ProbeTimeout}, Self: s.cfg.Executable, Version: s.cfg.Version})
	if err != nil {
		unread(err)
		return false
	}
	defer f.Close() // ignore error: only read
	file := f.Read()
	switch {
	case file.State == lease.Unreadable:
		unread(file.Err)
		return false
	case file.State != lease.Present || file.Document.URL == nil:
		return false // nobody serves there yet, or any more
	}
	o.URL = *file.Document.URL
	switch reply := f.Probe(ctx, file.Document); reply.Outcome {
	case lease.Ours:
	case lease.NotHolder:
		return false
	default:
		held, exists := f.AliveHeld(file.Document.Token)
		if !held {
			o.URL = "" // what a killed server left behind
			return exists
		}
		unread(fmt.Errorf("its server does not answer: %w", reply.Err))
		return false
	}
	key, err := f.ReadKey()
	if err != nil {
		unread(err)
		return false
	}
	var theirs Peers
	if err := fetch(ctx, o.URL+"/api/v1/peers?checkouts="+ofThis, key, &theirs); err != nil {
		if ctx.Err() != nil { // it stopped between the two questions
			err = errors.New("its server does not answer: it took too long to tell")
		} else {
			err = fmt.Errorf("reading its board: %w", err)
		}
		unread(err)
		return false
	}
	o.State, o.views, o.Peers = "served", theirs.Peers, attachedOf(theirs.Peers)
	for i := range o.views {
		o.views[i].Checkout, o.views[i].CheckoutID = w.Name, w.ID // as it is called here
	}
	return false
}

func fetch(ctx context.Context, url, key string, v any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+key)
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // without proxies
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close() // ignore error: read to its end or given up
	b, err := io.ReadAll(io.LimitReader(resp.Body, largestBoard))
	switch {
	case err != nil:
		return err
	case resp.StatusCode == http.StatusNotFound:
		return errors.New("it is of a version without a board")
	case resp.StatusCode != http.StatusOK:
		return errors.New("it answered " + resp.Status)
	}
	return json.Unmarshal(b, v)
}

// worktrees keeps the list of them for a moment: a hundred take as long to list
// as ten servers to ask. Of each it knows the lease that it found dead.
type worktrees struct {
	mu   sync.Mutex
	at   time.Time
	all  []*checkout.Checkout
	fail error
	dead map[string]fs.FileInfo // by checkout
}

const worktreesKept = 5 * time.Second

func (w *worktrees) list(c *checkout.Checkout) ([]*checkout.Checkout, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.all == nil || time.Since(w.at) > worktreesKept {
		w.all, w.fail = c.Worktrees()
		w.at = time.Now()
		maps.DeleteFunc(w.dead, func(id string, _ fs.FileInfo) bool {
			return !slices.ContainsFunc(w.all, func(c *checkout.Checkout) bool { return c.ID == id })
		})
	}
	return w.all, w.fail
}

// died notes that the lease in that file is of a server that has ended. The
// file was looked at before it was read: if another has taken its place since,
// that one is not meant.
func (w *worktrees) died(c *checkout.Checkout, lease fs.FileInfo) {
	if lease == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dead == nil {
		w.dead = map[string]fs.FileInfo{}
	}
	w.dead[c.ID] = lease
}

func (w *worktrees) isDead(c *checkout.Checkout, lease fs.FileInfo) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	dead := w.dead[c.ID]
	return dead != nil && lease != nil && os.SameFile(dead, lease) && dead.Size() == lease.Size() && dead.ModTime().Equal(lease.ModTime())
}

// caseBlind reports whether the file system of root takes upper and lower case
// for the same.
func caseBlind(root string) bool {
	swapped := strings.Map(func(r rune) rune {
		if unicode.IsUpper(r) {
			return unicode.ToLower(r)
		}
		return unicode.ToUpper(r)
	}, filepath.Base(root))
	if swapped == filepath.Base(root) {
		return runtime.GOOS == "windows" || runtime.GOOS == "darwin"
	}
	here, err := os.Stat(root)
	if err != nil {
		return false
	}
	there, err := os.Stat(filepath.Join(filepath.Dir(root), swapped))
	return err == nil && os.SameFile(here, there)
}

func (s *Server) callPeers(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	args, err := arguments(ctx, r, "checkouts")
	if err != nil {
		return nil, err
	}
	of, ok := args["checkouts"].(string)
	if args["checkouts"] == nil {
		of, ok = ofRepository, true
	}
	if !ok || of != ofThis && of != ofRepository {
		return nil, bad(ctx, "checkouts", `must be "this" or "repository"`)
	}
	x, err := s.peers(ctx, of)
	if err != nil {
		return nil, err
	}
	body, text := x.body, x.text
	if caller, ok := session.CallerFrom(ctx); ok {
		body = slices.Concat([]byte(`{"you":`), frame.Quote(caller.ID), []byte(","), body[1:])
		text = "you are " + caller.ID + "\n" + text
	}
	session.Structured(ctx, body)
	return mcp.NewToolResultText(text), nil
}

func (s *Server) servePeers(w http.ResponseWriter, r *http.Request) {
	of := r.URL.Query().Get("checkouts")
	switch of {
	case "":
		of = ofRepository
	case ofThis, ofRepository:
	default:
		refuse(w, http.StatusBadRequest, codeArgument, `checkouts must be "this" or "repository"`)
		return
	}
	x, err := s.peers(r.Context(), of)
	if err != nil {
		refuse(w, http.StatusInternalServerError, "internal", err.Error())
		return
	}
	body := x.body
	if yours := s.startedBy(r.URL.Query()["started_by"]); len(yours) > 0 {
		list, err := json.Marshal(yours)
		if err != nil {
			refuse(w, http.StatusInternalServerError, "internal", err.Error())
			return
		}
		body = slices.Concat([]byte(`{"yours":`), list, []byte(","), body[1:])
	}
	answerRaw(w, http.StatusOK, body)
}

// startedBy are the peers whose bridge was started by one of these processes:
// an agent's editor has started both its bridge and, through a shell and git,
// whoever asks. One process is one editor. Where editors of two names have come
// from it, such as from a terminal's own program, it says nothing.
func (s *Server) startedBy(processes []string) []string {
	if len(processes) == 0 {
		return nil
	}
	var ids []string
	name := ""
	for _, p := range s.core.Peers() {
		if p.Starter == "" || !slices.Contains(processes, p.Starter) {
			continue
		}
		if name != "" && p.Client != name {
			return nil
		}
		ids, name = append(ids, p.ID), p.Client
	}
	return ids
}

func (s *Server) readPeers(ctx context.Context, _ mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
	x, err := s.peers(ctx, ofRepository)
	if err != nil {
		return nil, err
	}
	return []mcp.ResourceContents{mcp.TextResourceContents{URI: uriPeers, MIMEType: "application/json", Text: string(x.body)}}, nil
}
