package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"majordomus/install/shell"
	"majordomus/lease"
	"majordomus/lease/checkout"
	"majordomus/lease/launch"
	"majordomus/server"
)

// The variables of a shell in a checkout. What was there before is kept beside
// them, in the environment: a shell that is started from this one must be able
// to leave too.
const (
	rootVar    = "MAJORDOMUS_ROOT"
	urlVar     = "MAJORDOMUS_URL"
	enteredVar = "MAJORDOMUS_ENTERED" // the root that entering has put into rootVar
	wasRootVar = "MAJORDOMUS_WAS_ROOT"
	wasURLVar  = "MAJORDOMUS_WAS_URL"
)

// autostartVar keeps shells of this account from bringing servers up.
const autostartVar = "MAJORDOMUS_AUTOSTART"

func (a *app) envCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "env",
		Short: "Show what this checkout is: its ids, branch, server, hosted servers and peers",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := a.snapshot(cmd.Context())
			if err != nil {
				return err
			}
			return a.report(s, s.print)
		},
	}
	entry := func(use, short, long string, start bool) *cobra.Command {
		var name string
		sub := &cobra.Command{
			Use: use, Short: short, Long: long, Args: cobra.NoArgs,
			RunE: func(*cobra.Command, []string) error {
				sh, ok := shell.Named(name)
				if !ok {
					return wrongWords(fmt.Errorf("--shell %q: only %s and json are known", name, strings.Join(shell.Names(), ", ")))
				}
				a.entry(sh, name, start)
				return nil
			},
		}
		sub.Flags().StringVar(&name, "shell", "", "whose language to speak: `bash, zsh, fish, direnv or json`")
		sub.MarkFlagRequired("shell") // ignore error: the flag exists
		return sub
	}
	cmd.AddCommand(
		entry("enter", "Print what a shell evaluates on entering a checkout, and bring its server up", `Print the code that gives a shell the environment of the checkout that the
current folder is in: MAJORDOMUS_ROOT, and MAJORDOMUS_URL where a server is up.
Where none is, one is brought up in the background, if the checkout has a
manifest, unless its policy says "autostart: false" or MAJORDOMUS_AUTOSTART is
off. This waits for nothing, and always exits 0.`, true),
		entry("export", "The same, and start nothing", `Print the code that gives a shell the environment of the checkout that the
current folder is in, as "majordomus env enter" does, and start nothing.`, false))
	return cmd
}

// entry prints what sh is to evaluate, and says in at most one line what is news.
// Whatever goes wrong is no reason to keep anybody from his prompt.
func (a *app) entry(sh shell.Shell, name string, start bool) {
	state, news := a.entered(name, start)
	fmt.Fprint(a.out, sh.Export(state)) // ignore error: who does not read it does not want it
	if news != "" && isTerminal(a.errTerminal()) {
		fmt.Fprintln(a.err, "majordomus:", shown(news))
	}
}

// errTerminal is where lines for people go.
func (a *app) errTerminal() io.Reader {
	r, _ := a.err.w.(io.Reader)
	return r
}

// entered is the environment of where the shell is, and what is news about it.
func (a *app) entered(name string, start bool) (shell.State, string) {
	// The folder says where the shell is, whatever the environment says.
	c, err := a.entering()
	if err != nil {
		news := ""
		if !errors.Is(err, checkout.ErrNone) {
			news = err.Error()
		}
		return a.left(name), news
	}
	state := shell.State{Root: c.Root, Lease: filepath.Join(c.StateDir(), "server.json"), Knows: true}
	url, up, news := "", false, ""
	folder, err := lease.OpenExisting(lease.Config{Checkout: c, Self: a.started, Version: programVersion()})
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		news = c.Name + ": " + err.Error()
	default:
		defer folder.Close() // ignore error: only read
		f := folder.Read()
		url, up = serving(folder, f)
		state.Lease = folder.LeasePath()
		state.Seen, state.Knows = kept(f)
		if info, err := os.Stat(state.Lease); err == nil {
			age := time.Since(info.ModTime()) // below zero by another machine's clock
			state.Fresh = age.Abs() < 2*time.Second
		}
	}
	before := a.getenv(urlVar)
	again := a.getenv(enteredVar) == c.Root
	switch {
	case news != "":
	case url != "" && (!again || url != before):
		news = c.Name + " is served at " + url
	case url == "" && !up && again && before != "":
		news = c.Name + " is served no more"
	}
	if start && !up {
		switch err := a.bringUp(c, name, folder); {
		case errors.Is(err, errNotStarted):
		case err != nil:
			news = c.Name + ": " + err.Error()
		case !again:
			news = c.Name + ": its server is starting"
		}
	}
	state.Vars = a.inside(name, c.Root, url)
	return state, news
}

// entering finds the checkout of the current folder, or the one that --root
// names.
func (a *app) entering() (*checkout.Checkout, error) {
	named := *a
	named.getenv = func(string) string { return "" }
	return named.checkout()
}

// serving is the address that f says, if its holder lives, and whether there is
// no need for another server. Nobody is asked over the network: a server that
// hangs is found by who needs it.
func serving(folder *lease.Folder, f lease.File) (url string, up bool) {
	if f.State != lease.Present {
		return "", f.State == lease.Unreadable // who could not read it could not replace it
	}
	held, exists := folder.AliveHeld(f.Document.Token)
	if !held && !exists && f.Document.URL != nil {
		// Of a maker without such files. Its word is its answer, which does
		// not take long on this machine.
		ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		defer cancel()
		held = folder.Probe(ctx, f.Document).Outcome == lease.Ours
	}
	if !held || f.Document.URL == nil {
		return "", held
	}
	return *f.Document.URL, true
}

// kept is what a lease says, and whether a shell can hold that as it is.
func kept(f lease.File) (string, bool) {
	b := f.Content()
	plain := func(r rune) bool { return r != '\n' && r != '\t' && unicode.IsControl(r) }
	if f.State == lease.Absent {
		return "", true
	}
	if f.State != lease.Present || !utf8.Valid(b) || strings.ContainsFunc(string(b), plain) {
		return "", false
	}
	return string(b), true
}

// errNotStarted says that there is a reason not to bring a server up.
var errNotStarted = errors.New("not to be started")

// bringUp starts in the background what finds or starts the server of c.
func (a *app) bringUp(c *checkout.Checkout, name string, folder *lease.Folder) error {
	switch strings.ToLower(a.getenv(autostartVar)) {
	case "off", "no", "false", "0":
		return errNotStarted
	}
	if !c.HasManifest {
		return errNotStarted
	}
	policy, err := c.Policy()
	if err != nil {
		return err
	}
	if !policy.Autostart || name == "direnv" && folder != nil && lately(folder) {
		return errNotStarted
	}
	return launch.Background([]string{a.started.Path, "serve", "ensure", "--root", c.Root}, c.Root, a.environ)
}

// lately reports whether the lease was given up moments ago. Unlike the hooks,
// direnv does not tell whether it enters a folder or has seen the lease change,
// and a server that somebody has stopped is not to be back with his next prompt.
func lately(folder *lease.Folder) bool {
	if folder.Read().State != lease.Absent {
		return false
	}
	age, err := folder.Age()
	return err == nil && age < 5*time.Second
}

// inside are the variables in a checkout.
func (a *app) inside(name, root, url string) []shell.Var {
	var vars []shell.Var
	if reverts(name) {
		vars = append(vars, shell.Var{Name: rootVar, Value: root}, shell.Var{Name: enteredVar, Value: root})
	} else {
		if _, in := a.lookup(enteredVar); !in {
			for _, v := range [][2]string{{rootVar, wasRootVar}, {urlVar, wasURLVar}} {
				if was, ok := a.lookup(v[0]); ok {
					vars = append(vars, shell.Var{Name: v[1], Value: was})
				}
			}
		}
		vars = append(vars, shell.Var{Name: rootVar, Value: root}, shell.Var{Name: enteredVar, Value: root})
	}
	return append(vars, shell.Var{Name: urlVar, Value: url, Unset: url == ""})
}

// left is the environment outside any checkout: as it was before one was
// entered.
func (a *app) left(name string) shell.State {
	entered, in := a.lookup(enteredVar)
	if !in || reverts(name) {
		return shell.State{}
	}
	var vars []shell.Var
	back := func(name, kept string) {
		was, ok := a.lookup(kept)
		vars = append(vars, shell.Var{Name: name, Value: was, Unset: !ok})
	}
	if a.getenv(rootVar) == entered { // else somebody has set it since
		back(rootVar, wasRootVar)
	}
	back(urlVar, wasURLVar)
	for _, name := range []string{enteredVar, wasRootVar, wasURLVar} {
		vars = append(vars, shell.Var{Name: name, Unset: true})
	}
	return shell.State{Vars: vars}
}

// reverts reports whether who evaluates it puts back itself what was before.
func reverts(name string) bool { return name == "direnv" || name == "json" }

// lookup is getenv for who must tell an empty variable from none.
func (a *app) lookup(name string) (string, bool) {
	value, ok := "", false
	for _, kv := range a.environ {
		if v, is := strings.CutPrefix(kv, name+"="); is {
			value, ok = v, true
		}
	}
	return value, ok
}

// snapshot is what a checkout is at a moment.
type snapshot struct {
	Root      string        `json:"root"`
	Name      string        `json:"name"`
	ID        string        `json:"repository_id"`
	GitID     string        `json:"git_repository_id,omitempty"`
	Linked    bool          `json:"linked_worktree"`
	Manifest  bool          `json:"manifest"`
	Branch    string        `json:"branch,omitempty"`
	Commit    string        `json:"commit,omitempty"` // where no branch is checked out
	Server    standing      `json:"server"`
	Upstreams []hostedState `json:"upstreams"`
	Peers     []present     `json:"peers"`
	Problems  []string      `json:"problems"` // why some of it is not known
}

type hostedState struct {
	Name  string `json:"name"`
	State string `json:"state"`
	Tools int    `json:"tools"`
}

type present struct {
	ID     string   `json:"id"`
	Client string   `json:"client"`
	Scope  []string `json:"scope"` // of all it announced
}

// snapshot looks at the checkout and asks its server, which it does not start.
func (a *app) snapshot(ctx context.Context) (snapshot, error) {
	c, err := a.checkout()
	if err != nil {
		return snapshot{}, err
	}
	s := snapshot{Root: c.Root, Name: c.Name, ID: c.ID, GitID: c.GitID, Linked: c.LinkedWorktree, Manifest: c.HasManifest,
		Upstreams: []hostedState{}, Peers: []present{}, Problems: []string{}}
	s.Branch, s.Commit = c.Head()
	p, err := a.open(c, slog.New(slog.DiscardHandler), lease.OpenExisting)
	if policy := (*checkout.PolicyError)(nil); errors.As(err, &policy) {
		s.Problems = append(s.Problems, err.Error())
		p, err = a.openWith(c, checkout.DefaultPolicy(), slog.New(slog.DiscardHandler), lease.OpenExisting)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return snapshot{}, err
	}
	defer p.close()
	if s.Server = glance(ctx, p); s.Server.State != "serving" {
		return s, nil
	}
	key, err := p.folder.ReadKey()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.Problems = append(s.Problems, err.Error())
		return s, nil
	}
	r := reached{url: s.Server.URL, key: key}
	var hosted server.Upstreams
	var board server.Peers
	errs := make([]error, 2)
	var both sync.WaitGroup
	both.Go(func() { errs[0] = r.get(ctx, "/api/v1/upstreams", &hosted) })
	both.Go(func() { errs[1] = r.get(ctx, "/api/v1/peers?checkouts=this", &board) })
	both.Wait()
	for _, err := range errs {
		if err != nil {
			s.Problems = append(s.Problems, err.Error())
		}
	}
	for _, u := range hosted.Upstreams {
		s.Upstreams = append(s.Upstreams, hostedState{u.Name, string(u.State), u.Tools})
	}
	if hosted.Reason != "" {
		s.Problems = append(s.Problems, "nothing is hosted: "+hosted.Reason)
	}
	for _, v := range board.Peers {
		if !v.Attached {
			continue
		}
		one := present{ID: v.ID, Client: v.Client, Scope: []string{}}
		for _, c := range v.Claims {
			one.Scope = append(one.Scope, c.Scope...)
		}
		s.Peers = append(s.Peers, one)
	}
	if errs[1] == nil {
		n := len(s.Peers)
		s.Server.Peers = &n
	}
	return s, nil
}

func (s snapshot) print(w io.Writer) {
	row := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%-10s %s\n", name, fmt.Sprintf(format, args...))
	}
	row("checkout", "%s", shown(s.Root))
	row("id", "%s", s.ID)
	if s.GitID != "" {
		linked := ""
		if s.Linked {
			linked = ", a linked worktree"
		}
		row("repository", "%s%s", s.GitID, linked)
	}
	switch {
	case s.Branch != "":
		row("branch", "%s", shown(s.Branch))
	case s.Commit != "":
		row("branch", "none, at %.12s", shown(s.Commit))
	}
	switch {
	case s.Server.State == "serving":
		row("server", "%s", s.Server.URL)
	case s.Server.Reason != "":
		row("server", "%s: %s", s.Server.State, s.Server.Reason)
	default:
		row("server", "%s", s.Server.State)
	}
	for _, u := range s.Upstreams {
		row("hosts", "%s (%s, %s)", shown(u.Name), u.State, count(u.Tools, "tool"))
	}
	for _, p := range s.Peers {
		work := ""
		if len(p.Scope) > 0 {
			work = " works on " + paths(p.Scope, 6)
		}
		row("peer", "%s (%s)%s", p.ID, shown(p.Client), work)
	}
	for _, why := range s.Problems {
		row("problem", "%s", shown(why))
	}
}
