// Package launch finds the server of a checkout or brings one about.
//
// A launcher judges a lease and never takes one: it joins the server that the
// lease names, or starts a process that will stand for election, and joins
// whatever that election made. Where a service is installed for the checkout, the
// account's service manager starts that process. A started server is detached: it has a session,
// a process group and a parent of its own, null as its input, the log as its
// output and not one other inherited descriptor, so that neither the end of the
// editor that caused it nor a caller that waits for the end of a pipe ever
// notices it.
//
// What it does not promise: that the server found is still there when the
// caller dials it. The caller asks again with what it then met.
package launch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"majordomus/lease"
)

// LogName is the file in the state folder that a detached server's standard
// output and standard error go to.
const LogName = "server.log"

// JudgedStaleVar is the environment variable in which a launcher tells the
// server it starts the token of the lease it has already waited on.
const JudgedStaleVar = "MAJORDOMUS_LEASE_JUDGED_STALE"

// ErrNoServer is wrapped by every error of Find: this checkout's server cannot
// be had from here, and the caller serves its client alone and says why.
var ErrNoServer = errors.New("no shared server")

// A StartError says that a started server ended before it served.
type StartError struct {
	Path string // of the log
	Tail string // the last lines it wrote, or that a shell wrote that could not run it
	Err  error  // why it could not be started at all; nil when it ran and ended
}

func (e *StartError) Error() string {
	switch {
	case e.Err != nil && e.Tail != "":
		return "starting a server: " + e.Err.Error() + ": " + e.Tail
	case e.Err != nil:
		return "starting a server: " + e.Err.Error()
	case e.Tail == "":
		return "the server ended before it served, and logged nothing"
	default:
		return "the server ended before it served; its log ends: " + e.Tail
	}
}

func (e *StartError) Unwrap() error { return e.Err }

// Config says how a Launcher works. Folder, Root and Command are required.
type Config struct {
	Folder  *lease.Folder
	Root    string        // the working directory of a started server
	Join    time.Duration // how long Find may take; zero means 8 s
	Command []string      // the executable and the arguments that serve this checkout
	Environ []string      // the caller's environment; Environ picks what a server gets of it

	// Service has the service manager of this account start what is installed
	// for the checkout, and returns nil once published reports true. started
	// is false when nothing is installed. When it fails, a process is started
	// instead. Nil means that there is no such thing.
	Service func(ctx context.Context, published func() bool) (started bool, err error)

	// InProcess serves the checkout in this process and returns once its
	// lease is published, or what was elected instead. It is used where no
	// process can be started. Nil means never.
	InProcess func(ctx context.Context, h lease.History) (lease.Document, error)

	Log *slog.Logger // nil discards
}

// A Launcher finds servers for one process, and remembers what it has already
// done for them: after one start of its own it joins whatever live server
// answers, because two builds that each replace the other's server would never
// end doing so. It is not safe for concurrent use.
type Launcher struct {
	cfg     Config
	history lease.History
	refused bool // the service was tried in vain; said once
}

// New returns a launcher.
func New(cfg Config) *Launcher {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Join <= 0 {
		cfg.Join = 8 * time.Second
	}
	return &Launcher{cfg: cfg}
}

// A Found server is one that answered as the checkout's own a moment ago.
type Found struct {
	Document lease.Document
	Started  bool // this launcher brought it about
}

// Find joins the checkout's server or brings one about, within Config.Join.
// Every error wraps ErrNoServer; a *StartError among them carries the end of
// the failed server's log.
func (l *Launcher) Find(ctx context.Context) (Found, error) {
	ctx, cancel := context.WithTimeout(ctx, l.cfg.Join)
	defer cancel()
	found, err := l.find(ctx)
	if err != nil {
		if ctx.Err() == context.DeadlineExceeded {
			err = fmt.Errorf("nothing served this checkout within %v: %w", l.cfg.Join, err)
		}
		return Found{}, fmt.Errorf("%w: %w", ErrNoServer, err)
	}
	return found, nil
}

func (l *Launcher) find(ctx context.Context) (Found, error) {
	for started := 0; ; {
		verdict, err := l.cfg.Folder.Settle(ctx, l.history)
		if err != nil {
			return Found{}, err
		}
		switch verdict.Action {
		case lease.Join:
			return Found{verdict.File.Document, started > 0}, nil
		case lease.Free, lease.TakeOver:
		default:
			return Found{}, fmt.Errorf("%w: %s", lease.ErrElsewhere, verdict.Reason)
		}

		// One launcher starts, the others wait for what it brings about:
		// forty editors that open a checkout together start one process,
		// not forty that stand for election.
		unlock, err := l.turn(ctx, verdict)
		if err != nil {
			return Found{}, err
		}
		if unlock == nil {
			continue // the lease moved on while we waited
		}
		again := verdict
		if !l.still(verdict) {
			again, err = l.cfg.Folder.Settle(ctx, l.history)
		}
		if err == nil && (again.Action == lease.Free || again.Action == lease.TakeOver) {
			if started++; started > 2 {
				unlock()
				return Found{}, fmt.Errorf("started %d servers and none serves: %s", started-1, again.Reason)
			}
			l.cfg.Log.Info("starting a server", "because", again.Reason)
			if !l.service(ctx, again) {
				err = l.start(ctx, again)
			}
		}
		unlock()
		var failed *StartError
		if errors.As(err, &failed) && l.cfg.InProcess != nil && failed.Err != nil {
			l.cfg.Log.Warn("serving in this process", "because", err)
			h := l.history
			h.InProcess = true
			if again.Action == lease.TakeOver {
				h.JudgedStale = again.File.Document.Token
			}
			doc, err := l.cfg.InProcess(ctx, h)
			return Found{doc, err == nil}, err
		}
		if err != nil {
			return Found{}, err
		}
	}
}

// still reports whether a lease that was judged to be taken over is there
// unchanged. Then it is not judged anew before a server is started: a silent
// holder would be waited for a second time, and one grace is all that editors
// have patience for. The started server asks it once more itself.
func (l *Launcher) still(judged lease.Verdict) bool {
	was, now := judged.File, l.cfg.Folder.Read()
	return judged.Action == lease.TakeOver && was.State == lease.Present && now.State == lease.Present &&
		was.Document.Token == now.Document.Token && (was.Document.URL == nil) == (now.Document.URL == nil)
}

// turn waits until this process holds launch.lock, or until the lease is no
// longer what was judged: then another launcher has done what was to be done,
// and unlock is nil.
func (l *Launcher) turn(ctx context.Context, judged lease.Verdict) (unlock func(), err error) {
	pause := 2 * time.Millisecond
	for {
		unlock, ok, err := l.cfg.Folder.TryLockLaunch()
		if err != nil {
			return nil, fmt.Errorf("locking for a start: %w", err)
		}
		if ok {
			return unlock, nil
		}
		if now := l.cfg.Folder.Read(); now.State != judged.File.State || now.Document.Token != judged.File.Document.Token {
			return nil, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for another start: %w", ctx.Err())
		case <-time.After(pause):
		}
		pause = min(pause*2, 50*time.Millisecond)
	}
}

// service has the installed service started, and reports whether a server came
// of it. It is left alone where somebody lives who is to be taken over from: if
// that is the service it runs already, and any other server would have to be told
// by its environment that the wait is over, which the manager's alone is.
func (l *Launcher) service(ctx context.Context, v lease.Verdict) bool {
	if l.cfg.Service == nil {
		return false
	}
	if held, _ := l.cfg.Folder.AliveHeld(v.File.Document.Token); held && v.Action == lease.TakeOver {
		return false
	}
	// A process of our own must still have time to start.
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)/2)
		defer cancel()
	}
	started, err := l.cfg.Service(ctx, l.published(v))
	if started && err == nil {
		l.history.StartedOwn = true
		return true
	}
	if err != nil && !l.refused {
		l.refused = true
		l.cfg.Log.Warn("the installed service cannot be started; starting a process instead", "because", err)
	}
	return false
}

// published returns what reports whether another lease than the one judged names
// an address.
func (l *Launcher) published(v lease.Verdict) func() bool {
	return func() bool {
		f := l.cfg.Folder.Read()
		return f.State == lease.Present && f.Document.URL != nil && f.Document.Token != v.File.Document.Token
	}
}

// start runs a server and returns when it has published its lease or ended,
// whichever comes first. That it ended is no error when the lease says that
// another one serves: it lost an election that it stood for.
func (l *Launcher) start(ctx context.Context, v lease.Verdict) error {
	out, err := l.cfg.Folder.OpenLog(LogName)
	if err != nil {
		return fmt.Errorf("opening the server's log: %w", err)
	}
	defer out.Close()
	from, err := out.Seek(0, io.SeekEnd)
	if err != nil {
		from = 0 // ignore error: the tail then shows earlier lines too
	}
	env := Environ(l.cfg.Environ)
	if v.Action == lease.TakeOver && v.File.Document.Token != "" {
		env = append(env, JudgedStaleVar+"="+v.File.Document.Token)
	}
	l.history.StartedOwn = true
	child, err := detach(process{argv: l.cfg.Command, dir: l.cfg.Root, env: env, out: out, published: l.published(v)})
	failed := func(err error) *StartError {
		path := l.cfg.Folder.LogPath(LogName)
		return &StartError{Path: path, Tail: lease.Tail(path, from), Err: err}
	}
	if err != nil {
		return failed(err)
	}
	defer child.forget()
	select {
	case <-child.settled:
	case <-ctx.Done():
		return fmt.Errorf("waiting for the started server: %w", ctx.Err())
	}
	// It may have ended because another one was quicker: then that one serves,
	// or is about to and holds its word that it lives.
	f := l.cfg.Folder.Read()
	if held, _ := l.cfg.Folder.AliveHeld(f.Document.Token); f.State == lease.Present && f.Document.Token != v.File.Document.Token && held {
		return nil
	}
	// Or because the one that was silent a moment ago answers again.
	if f.State == lease.Present && f.Document.URL != nil && l.cfg.Folder.Probe(ctx, f.Document).Outcome == lease.Ours {
		return nil
	}
	if !child.began {
		return failed(fmt.Errorf("%s does not run", l.cfg.Command[0]))
	}
	ended := failed(nil)
	if ended.Tail == "" {
		// A full disk keeps the server from saying that the disk is full.
		if _, err := out.WriteString("a server ended before it served, and logged nothing\n"); err != nil {
			ended.Tail = fmt.Sprintf("(nothing: %v)", err)
		}
	}
	return ended
}

// kept are the variables a server gets of the environment it was started from.
// It outlives the editor that started it and serves the others too, so nothing
// of one editor's session may reach it; what is here describes the account.
var kept = []string{
	"HOME", "USER", "LOGNAME", "SHELL", "PATH", "LANG", "TZ", "TMPDIR", "SSH_AUTH_SOCK",
	"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "no_proxy", "all_proxy",
}

// dropped are variables of ours that say something about one process only, or
// about where the shell was that it was started from.
var dropped = []string{JudgedStaleVar, "MAJORDOMUS_ROOT", "MAJORDOMUS_URL", "MAJORDOMUS_ENTERED", "MAJORDOMUS_WAS_ROOT", "MAJORDOMUS_WAS_URL"}

// Environ returns what a started server gets of environ, in its order.
func Environ(environ []string) []string {
	var out []string
	for _, kv := range environ {
		name, _, ok := strings.Cut(kv, "=")
		if !ok || slices.Contains(dropped, name) {
			continue
		}
		if slices.Contains(kept, name) || strings.HasPrefix(name, "LC_") || strings.HasPrefix(name, "XDG_") ||
			strings.HasPrefix(name, "MAJORDOMUS_") || keptHere(name) {
			out = append(out, kv)
		}
	}
	return out
}

// Background runs a command detached and returns at once: nobody learns what
// became of it. It is for who must not wait, as a prompt must not; the command
// does the waiting. Its output goes nowhere.
func Background(argv []string, dir string, environ []string) error {
	if err := background(argv, dir, Environ(environ)); err != nil {
		return fmt.Errorf("running %s in the background: %w", argv[0], err)
	}
	return nil
}

// process is a command to run detached.
type process struct {
	argv []string
	dir  string
	env  []string
	out  *os.File // standard output and standard error

	// published reports whether a lease other than the one judged names an
	// address: asked where no pipe can tell.
	published func() bool
}
