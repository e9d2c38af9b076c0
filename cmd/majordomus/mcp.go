package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/url"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"majordomus/bridge"
	"majordomus/lease"
	"majordomus/lease/checkout"
	"majordomus/lease/launch"
	"majordomus/server"
)

func (a *app) mcpCommand() *cobra.Command {
	var standalone bool
	cmd := &cobra.Command{
		Use:   "mcp",
		Short: "Join an editor to this checkout's server over standard input and output",
		Long: `Join the editor on standard input and output to this checkout's server. This is
the command to put into an editor's list of MCP servers. It finds the server or
starts it, and never ends because a server did.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if standalone {
				return a.standalone(cmd.Context())
			}
			return a.mcp(cmd.Context())
		},
	}
	cmd.Flags().BoolVar(&standalone, "standalone", false, "serve this editor alone, in this process; no lease, no port")
	return cmd
}

// standalone serves the client on the standard streams itself.
func (a *app) standalone(ctx context.Context) error {
	log := a.logger()
	p, err := a.here(log, lease.OpenExisting)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, checkout.ErrNone) {
		return err
	}
	if p.Checkout == nil {
		p.policy = checkout.DefaultPolicy()
	}
	defer p.close()
	s, err := server.New(server.Config{
		Checkout: p.Checkout, Policy: p.policy, Idle: -1, Version: programVersion(), Executable: a.started,
		Hosting: a.hosts(p.Checkout), Alone: "it was started with --standalone", Log: log,
	})
	if err != nil {
		return err
	}
	runCtx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- s.Run(runCtx) }() // waited for below
	ended := make(chan error, 1)
	go func() {
		err := s.ServeStream(ctx, newStdio(ctx, a.in, a.out), "", "")
		cancel()
		ended <- errors.Join(err, <-done)
	}()
	return patiently(ctx, ended)
}

// patiently waits for what ended tells. After a signal, which is how editors
// end us and which they follow with a kill 95 ms later, it waits no longer than
// they do: a lease is given up first, and the rest ends with the process.
func patiently(ctx context.Context, ended <-chan error) error {
	select {
	case err := <-ended:
		if ctx.Err() == nil {
			return err
		}
	case <-ctx.Done():
		select {
		case <-ended:
		case <-time.After(50 * time.Millisecond):
		}
	}
	return &exitError{code: exitDone}
}

// stdio is the standard streams as one that can be closed. A read of standard
// input and a write to standard output cannot be interrupted where these are
// pipes or terminals, so each is done by a goroutine that is left behind when
// the process ends: a client that goes away while its side of the input stays
// open, or that stops to read, would keep the process for ever.
type stdio struct {
	ctx   context.Context // ended by a signal
	in    *io.PipeReader
	out   *io.PipeWriter
	flush chan struct{} // closed when what was written has been, or failed
	once  sync.Once
}

func newStdio(ctx context.Context, in io.Reader, out io.Writer) *stdio {
	fromIn, toUs := io.Pipe()
	fromUs, toOut := io.Pipe()
	s := &stdio{ctx: ctx, in: fromIn, out: toOut, flush: make(chan struct{})}
	go func() {
		_, err := io.Copy(toUs, in)
		toUs.CloseWithError(err) // nil is io.EOF
	}()
	go func() {
		defer close(s.flush)
		if _, err := io.Copy(out, fromUs); err != nil {
			err = fmt.Errorf("writing to the client: %w", err)
			fromUs.CloseWithError(err)
			fromIn.CloseWithError(err) // nobody is there to be answered
		}
	}()
	return s
}

func (s *stdio) Read(b []byte) (int, error)  { return s.in.Read(b) }
func (s *stdio) Write(b []byte) (int, error) { return s.out.Write(b) }

// Close ends both directions, and waits for a client that is slow to read the
// last answers, though not for ever and not after a signal.
func (s *stdio) Close() error {
	s.once.Do(func() {
		s.in.Close()  // never fails
		s.out.Close() // never fails
		select {
		case <-s.flush:
		case <-s.ctx.Done():
		case <-time.After(30 * time.Second):
		}
	})
	return nil
}

// mcp runs the bridge for the editor on the standard streams.
func (a *app) mcp(ctx context.Context) error {
	log := a.logger()
	f := &finder{app: a, id: newID(), log: log, inner: newInner()}
	f.hinted()
	// The first search starts before the editor's first line is read, and is
	// waited for even when there never is one: `majordomus mcp </dev/null`
	// leaves the checkout served.
	first := make(chan struct{})
	var endpoint bridge.Endpoint
	var firstErr error
	go func() { // waited for below
		defer close(first)
		endpoint, firstErr = f.find(ctx, nil)
	}()
	taken := false
	policy := f.policy()
	err := bridge.Run(ctx, bridge.Config{
		In: a.in, Out: a.out, ID: f.id, Starter: starter(),
		Find: func(ctx context.Context, why error) (bridge.Endpoint, error) {
			if !taken {
				taken = true
				select {
				case <-first:
					return endpoint, firstErr
				case <-ctx.Done():
					return bridge.Endpoint{}, ctx.Err()
				}
			}
			return f.find(ctx, why)
		},
		Roots:      f.roots(),
		Moved:      f.moved,
		MaxMessage: policy.MaxMessageBytes, ProbeTimeout: policy.ProbeTimeout,
		BusyGrace: policy.BusyGrace, JoinTimeout: policy.JoinTimeout,
		Log: log,
	})
	<-first
	ended := make(chan error, 1)
	go func() { // waited for below
		f.close()
		ended <- err
	}()
	return patiently(ctx, ended)
}

// finder finds the server for one editor, again and again.
type finder struct {
	app   *app
	id    string // the bridge's
	log   *slog.Logger
	inner *inner

	mu       sync.Mutex // a search and an answer to roots/list may meet
	checkout *checkout.Checkout
	outside  error // why there is no checkout
	place    place // opened; folder nil until it could be
	launcher *launch.Launcher
	said     string // the address last printed
	token    string // of the lease last joined
	apart    func() // ends the server that serves this client alone; nil when none does
	trying   bool   // to bring the client back from there
}

// hinted settles which checkout this editor means, from the words, the current
// folder, and what editors put into the environment, in this order.
func (f *finder) hinted() {
	c, err := f.app.checkout()
	if errors.Is(err, checkout.ErrNone) && f.app.namedRoot() == "" {
		hints := append([]string{f.app.getenv("CLAUDE_PROJECT_DIR")}, filepath.SplitList(f.app.getenv("WORKSPACE_FOLDER_PATHS"))...)
		for _, dir := range hints {
			if dir == "" {
				continue
			}
			if hinted, e := checkout.Find(dir, f.app.home()); e == nil {
				c, err = hinted, nil
				break
			}
		}
	}
	f.checkout, f.outside = c, err
}

// policy is what the checkout says, or the defaults; an error in the file is
// told by find, which refuses to serve.
func (f *finder) policy() checkout.Policy {
	if f.checkout != nil {
		if p, err := f.checkout.Policy(); err == nil {
			return p
		}
	}
	return checkout.DefaultPolicy()
}

// find is bridge.Config.Find: the shared server, or one for this client alone.
// Only what makes serving senseless is an error: a policy that cannot be read.
func (f *finder) find(ctx context.Context, why error) (bridge.Endpoint, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if why != nil {
		f.log.Info("looking for the next server", "because", why)
	}
	if f.checkout == nil {
		return f.alone(f.outside)
	}
	e, err := f.shared(ctx)
	var policy *checkout.PolicyError
	switch {
	case err == nil:
		f.together()
		return e, nil
	case ctx.Err() != nil:
		return e, ctx.Err()
	case errors.As(err, &policy):
		return e, err
	}
	return f.alone(err)
}

// shared finds the checkout's server or brings one about.
func (f *finder) shared(ctx context.Context) (bridge.Endpoint, error) {
	if f.place.folder == nil {
		p, err := f.app.open(f.checkout, f.log, lease.Open)
		f.place = p
		if err != nil {
			return bridge.Endpoint{}, err
		}
		f.launcher = f.app.launcher(p, f.log, f.inner.elect(f.app, p, f.log))
	}
	found, err := f.launcher.Find(ctx)
	if err != nil {
		return bridge.Endpoint{}, err
	}
	if found.Document.URL == nil {
		return bridge.Endpoint{}, errors.New("the server that was found has no address")
	}
	f.say(*found.Document.URL)
	f.token = found.Document.Token
	e := bridge.Endpoint{URL: *found.Document.URL}
	if found.Document.Auth == "key" { // others are sent none
		e.Key = f.place.folder.ReadKey
	}
	return e, nil
}

// moved is bridge.Config.Moved: it looks at the lease and waits for nothing.
func (f *finder) moved() bool {
	if !f.mu.TryLock() {
		return false // somebody is searching
	}
	defer f.mu.Unlock()
	if f.place.folder == nil || f.token == "" || f.apart != nil {
		return false
	}
	file := f.place.folder.Read()
	return file.State == lease.Present && file.Document.URL != nil && file.Document.Token != f.token
}

func (f *finder) say(url string) {
	if f.said != url {
		f.said = url
		fmt.Fprintln(f.app.err, "listening on", url)
	}
}

func (f *finder) alone(why error) (bridge.Endpoint, error) {
	text := why.Error()
	if h := hint(why); h != "" {
		text += "; " + h
	}
	f.log.Warn("serving this client alone", "because", text)
	p := f.place
	if p.Checkout == nil {
		p.Checkout, p.policy = f.checkout, f.policy()
	}
	open, end, err := f.inner.alone(f.app, p, text, f.id, f.log)
	if err != nil {
		return bridge.Endpoint{}, err
	}
	f.together() // a client that is served alone once more
	f.apart = end
	if f.checkout != nil && !f.trying {
		f.trying = true
		f.inner.wg.Go(func() { f.comeBack(p.policy.JoinTimeout) })
	}
	return bridge.Endpoint{Open: open}, nil
}

// together ends the server that serves this client alone, if one does: its link
// is told, and the next search is for the shared one.
func (f *finder) together() {
	if f.apart != nil {
		f.apart()
		f.apart = nil
	}
}

// comeBack brings a client that is served alone back to the others once what
// kept it apart is gone. An editor would have to be restarted for that, and
// nobody would think of it. A try takes as long as any search, so tries are few.
func (f *finder) comeBack(join time.Duration) {
	for pause := 4 * join; ; pause = min(2*pause, 10*time.Minute) {
		select {
		case <-f.inner.ctx.Done():
			return
		case <-time.After(pause):
		}
		f.mu.Lock()
		if f.apart != nil {
			if _, err := f.shared(f.inner.ctx); err == nil {
				f.log.Info("no longer serving this client alone")
				f.together()
			} else {
				f.log.Debug("still serving this client alone", "because", err)
			}
		}
		f.trying = f.apart != nil
		over := !f.trying
		f.mu.Unlock()
		if over {
			return
		}
	}
}

// roots is asked with the client's roots where nothing else told the checkout.
func (f *finder) roots() func(context.Context, []string) bool {
	if f.checkout != nil || f.app.namedRoot() != "" {
		return nil
	}
	return func(_ context.Context, uris []string) bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.checkout != nil {
			return false
		}
		for _, uri := range uris {
			dir, ok := filePath(uri)
			if !ok {
				continue
			}
			if c, err := checkout.Find(dir, f.app.home()); err == nil {
				f.checkout, f.place = c, place{}
				return true
			}
		}
		return false
	}
}

// filePath is the path of a file: URI.
func filePath(uri string) (string, bool) {
	u, err := url.Parse(uri)
	if err != nil || u.Scheme != "file" || u.Path == "" || u.Host != "" && u.Host != "localhost" {
		return "", false
	}
	p := u.Path
	if runtime.GOOS == "windows" && len(p) > 2 && p[0] == '/' && p[2] == ':' {
		p = p[1:]
	}
	return filepath.FromSlash(p), true
}

func (f *finder) close() {
	f.inner.close()
	f.place.close()
}

func (p place) close() {
	if p.folder != nil {
		p.folder.Close() // ignore error: the process is done with it
	}
}

// newID is a random UUID (RFC 9562, version 4).
func newID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
