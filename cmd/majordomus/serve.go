package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"majordomus/install/service"
	"majordomus/lease"
	"majordomus/lease/launch"
	"majordomus/server"
)

type serveOptions struct {
	idle     int
	host     string
	port     int
	noAuth   bool
	detached bool
	service  bool
}

func (a *app) serveCommand() *cobra.Command {
	var o serveOptions
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve this checkout in the foreground, or look after its server",
		Long: `Serve this checkout until the server has been idle for long enough, is
stopped, or another one has taken its place. Editors need not be told of it:
"majordomus mcp" starts one when none runs. Where one runs already, this says
so and exits 0.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.port < 0 || o.port > 65535 {
				return wrongWords(fmt.Errorf("--port takes a number from 1 to 65535, not %d", o.port))
			}
			if cmd.Flags().Changed("idle") && o.idle <= 0 {
				o.idle = -1
			}
			if o.service {
				c, err := a.checkout()
				if err != nil {
					return err
				}
				return service.Serve(cmd.Context(), service.Name(c.ID), func(ctx context.Context) error { return a.serve(ctx, o) })
			}
			return a.serve(cmd.Context(), o)
		},
	}
	cmd.Flags().IntVar(&o.idle, "idle", 0, "end after `seconds` without an editor; 0 never (default: the policy's idle_seconds)")
	cmd.Flags().StringVar(&o.host, "host", "", "listen on this `address` too far from loopback to be safe; think twice")
	cmd.Flags().IntVar(&o.port, "port", 0, "listen on this `port` and no other")
	cmd.Flags().BoolVar(&o.noAuth, "no-auth", false, "ask nobody for the key; for tests")
	cmd.Flags().BoolVar(&o.detached, "detached", false, "started by a launcher: descriptor 3 says when it serves")
	cmd.Flags().BoolVar(&o.service, "service", false, "started by a service manager, which is told when it serves")
	cmd.Flags().MarkHidden("detached") // ignore error: the flag exists
	cmd.Flags().MarkHidden("service")  // ignore error: as above
	cmd.AddCommand(a.ensureCommand(), a.serveStatusCommand(), a.stopCommand())
	return cmd
}

func (a *app) serve(ctx context.Context, o serveOptions) error {
	log := a.logger()
	ready := func() {}
	if o.detached {
		ready = readySignal()
	}
	if o.service {
		ready = a.managerReady(log)
	}
	p, err := a.here(log, lease.Open)
	if err != nil {
		return err
	}
	defer p.folder.Close() // ignore error: the process ends
	if o.detached || o.service {
		a.logTo(p.folder, log)
	}
	s, doc, err := a.stand(ctx, p, o, lease.History{JudgedStale: a.getenv(launch.JudgedStaleVar)}, ready, log)
	if err != nil {
		return err
	}
	if s == nil {
		ready() // that there is a server is what was wanted
		return a.report(map[string]any{"url": doc.URL, "started": false}, func(w io.Writer) {
			fmt.Fprintf(w, "already served at %s\n", address(doc))
		})
	}
	return s.Run(ctx)
}

// logTo has what is logged from now on rotated. A launcher's file, which is what
// standard error is until then, grows for as long as the server lives.
func (a *app) logTo(f *lease.Folder, log *slog.Logger) {
	l, err := f.Log(launch.LogName)
	if err != nil {
		log.Warn("the log will not be rotated", "err", err)
		return
	}
	if a.getenv("JOURNAL_STREAM") != "" {
		// systemd's journal is read by those who know it, the file by `logs`.
		a.err.to(io.MultiWriter(l, os.Stderr))
		return
	}
	a.err.to(l)
}

// managerReady returns what tells the service manager that this server can be
// found. Only systemd wants to know, on a socket that it names.
func (a *app) managerReady(log *slog.Logger) func() {
	return sync.OnceFunc(func() {
		socket := a.getenv("NOTIFY_SOCKET")
		if socket == "" {
			return
		}
		conn, err := net.Dial("unixgram", socket)
		if err == nil {
			_, err = conn.Write([]byte("READY=1"))
			conn.Close() // ignore error: it is sent or is not
		}
		if err != nil {
			log.Warn("telling the service manager that this serves", "err", err)
		}
	})
}

// stand stands for election and returns the server to run, or nil and the
// lease of the one that serves instead. ready is called once it serves.
func (a *app) stand(ctx context.Context, p place, o serveOptions, h lease.History, ready func(), log *slog.Logger) (*server.Server, lease.Document, error) {
	var bound net.Listener
	listen := func(prefer string) (string, error) {
		if bound == nil {
			l, err := server.Listen(prefer, o.host, o.port)
			if err != nil {
				return "", err
			}
			bound = l
		}
		return "http://" + net.JoinHostPort("127.0.0.1", fmt.Sprint(bound.Addr().(*net.TCPAddr).Port)), nil
	}
	drop := func() {
		if bound != nil {
			bound.Close() // ignore error: nobody was served on it
		}
	}
	el, err := p.folder.Elect(ctx, lease.Candidate{History: h, Listen: listen, NoAuth: o.noAuth})
	if err != nil {
		drop()
		return nil, lease.Document{}, err
	}
	if el.Role == lease.Peer {
		drop()
		return nil, el.Peer, nil
	}
	fail := func(err error) (*server.Server, lease.Document, error) {
		drop()
		return nil, lease.Document{}, errors.Join(err, el.Tenure.Release())
	}
	if bound == nil {
		return fail(errors.New("elected without an address to serve on"))
	}
	var hosts []string
	if o.host != "" {
		hosts = append(hosts, o.host)
	}
	s, err := server.New(server.Config{
		Checkout: p.Checkout, Policy: p.policy, Folder: p.folder, Tenure: el.Tenure, Listener: bound,
		Hosts: hosts, NoAuth: o.noAuth, Hosting: a.hosts(p.Checkout), Idle: time.Duration(o.idle) * time.Second,
		Version: programVersion(), Executable: a.started, Log: log,
		OnReady: func() {
			ready()
			a.noteServed(p.Checkout, log) // nobody is waiting any more
		},
	})
	if err != nil {
		return fail(err)
	}
	return s, lease.Document{}, nil
}

func address(d lease.Document) string {
	if d.URL == nil {
		return "(not listening yet)"
	}
	return *d.URL
}

func (a *app) ensureCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "ensure",
		Short: "See to it that this checkout is served, and print the address",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log := a.logger()
			p, err := a.here(log, lease.Open)
			if err != nil {
				return err
			}
			defer p.folder.Close() // ignore error: only read
			found, err := a.launcher(p, log, nil).Find(cmd.Context())
			if err != nil {
				return err
			}
			return a.report(map[string]any{"url": found.Document.URL, "started": found.Started}, func(w io.Writer) {
				fmt.Fprintln(w, address(found.Document))
			})
		},
	}
}

func (a *app) stopCommand() *cobra.Command {
	var all, force bool
	wait := 10
	cmd := &cobra.Command{
		Use:   "stop",
		Short: "Stop this checkout's server",
		Long: `Stop this checkout's server once the calls in flight are answered. Editors that
are attached start the next one at once: close them first if that is not meant.

--all stops those of every worktree of this repository, and of all other
checkouts that are served on this account, from wherever it is said.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if wait < 0 {
				return wrongWords(errors.New("--wait takes a number of seconds from 0"))
			}
			places, err := a.places(all)
			if err != nil {
				return err
			}
			var errs []error
			results := []stopped{}
			for _, p := range places {
				r, err := a.stop(cmd.Context(), p, force, time.Duration(wait)*time.Second)
				if err != nil {
					errs = append(errs, fmt.Errorf("stopping the server of %s: %w", p.Root, err))
				} else {
					results = append(results, r)
				}
				p.close()
			}
			err = a.report(results, func(w io.Writer) {
				if len(places) == 0 {
					fmt.Fprintln(w, noneServed)
				}
				for _, r := range results {
					fmt.Fprintln(w, r)
				}
			})
			return errors.Join(append(errs, err)...)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "every server of this account")
	cmd.Flags().BoolVar(&force, "force", false, "cut what is in flight")
	cmd.Flags().IntVar(&wait, "wait", wait, "how many `seconds` to wait for its end")
	return cmd
}

type stopped struct {
	Root   string `json:"root"`
	URL    string `json:"url,omitempty"`
	Was    bool   `json:"was_running"`
	Editor int    `json:"peers"`
}

func (s stopped) String() string {
	switch {
	case !s.Was:
		return s.Root + ": no server was running"
	case s.Editor > 0:
		return fmt.Sprintf("%s: stopped %s; %d attached, which start the next server when they need one", s.Root, s.URL, s.Editor)
	}
	return s.Root + ": stopped " + s.URL
}

// stop asks the server of p to end and waits until it has let go of its word
// that it lives.
func (a *app) stop(ctx context.Context, p place, force bool, wait time.Duration) (stopped, error) {
	r := stopped{Root: p.Root}
	if p.folder == nil {
		return r, nil
	}
	f := p.folder.Read()
	switch f.State {
	case lease.Absent, lease.Empty, lease.Corrupt:
		return r, nil
	case lease.Unreadable:
		return r, fmt.Errorf("reading %s: %w", p.folder.LeasePath(), f.Err)
	}
	held, _ := p.folder.AliveHeld(f.Document.Token)
	if f.Document.URL == nil {
		if !held {
			return r, nil
		}
		return r, errors.New("it is still starting; try again in a moment")
	}
	reply := p.folder.ProbePatiently(ctx, f.Document)
	switch {
	case reply.Outcome == lease.Ours:
	case !held:
		return r, nil
	default:
		return r, &hintedError{
			fmt.Errorf("the server at %s does not answer as this checkout's: %v", address(f.Document), reply.Outcome),
			fmt.Sprintf("if it hangs, end process %d; editors start the next server by themselves", f.Document.PID),
		}
	}
	key, err := p.folder.ReadKey()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return r, err
	}
	r.Was, r.URL = true, address(f.Document)
	if n, err := peers(ctx, r.URL, key); err == nil {
		r.Editor = n
	}
	if err := call(ctx, r.URL, key, http.MethodPost, "/api/v1/stop", map[string]bool{"force": force}, nil); err != nil {
		return r, err
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	// The lease is given up first. It has ended when nobody answers at its
	// address any more, or another one does.
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		if held, _ := p.folder.AliveHeld(f.Document.Token); !held {
			switch p.folder.Probe(ctx, f.Document).Outcome {
			case lease.Refused, lease.Stranger:
				return r, nil
			}
		}
		select {
		case <-ctx.Done():
			return r, fmt.Errorf("it has not ended within %v: process %d goes on until what it has in flight is answered; with --force that is cut", wait, f.Document.PID)
		case <-time.After(pause):
		}
	}
}

// inner runs servers inside this process, for a client whose checkout has no
// server it could reach, and waits for them.
type inner struct {
	ctx    context.Context // the lifetime of what runs inside; ended by close
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

func newInner() *inner {
	in := new(inner)
	in.ctx, in.cancel = context.WithCancel(context.Background())
	return in
}

func (in *inner) close() {
	in.cancel()
	in.wg.Wait()
}

// elect serves p in this process, for launch.Config.InProcess.
func (in *inner) elect(a *app, p place, log *slog.Logger) func(context.Context, lease.History) (lease.Document, error) {
	return func(ctx context.Context, h lease.History) (lease.Document, error) {
		ready := make(chan struct{})
		s, doc, err := a.stand(ctx, p, serveOptions{}, h, func() { close(ready) }, log)
		if err != nil || s == nil {
			return doc, err
		}
		ended := make(chan error, 1)
		in.wg.Go(func() { ended <- s.Run(in.ctx) })
		select {
		case <-ready:
			return p.folder.Read().Document, nil
		case err := <-ended:
			return doc, fmt.Errorf("serving in this process: %w", err)
		case <-ctx.Done():
			return doc, ctx.Err()
		}
	}
}

// alone serves one client, behind the bridge of that id, without lease or port,
// and says why. end has the
// server answer what is in flight and send its client elsewhere.
func (in *inner) alone(a *app, p place, why, bridge string, log *slog.Logger) (open func(context.Context, string) (io.ReadWriteCloser, error), end func(), err error) {
	s, err := server.New(server.Config{
		Checkout: p.Checkout, Policy: p.policy, Folder: p.folder, Idle: -1, Hosting: a.hosts(p.Checkout),
		Version: programVersion(), Executable: a.started, Alone: why, Log: log,
	})
	if err != nil {
		return nil, nil, err
	}
	ctx, end := context.WithCancel(in.ctx)
	in.wg.Go(func() {
		defer end()
		if err := s.Run(ctx); err != nil {
			log.Error("serving one client alone", "err", err)
		}
	})
	return func(_ context.Context, called string) (io.ReadWriteCloser, error) {
		ours, theirs := net.Pipe()
		in.wg.Go(func() { s.ServeStream(in.ctx, theirs, bridge, called) }) // ignore error: the bridge sees the end of its side
		return ours, nil
	}, end, nil
}
