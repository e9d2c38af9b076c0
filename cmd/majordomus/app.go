package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"majordomus/lease"
	"majordomus/lease/checkout"
	"majordomus/lease/launch"
	"majordomus/server"
	"majordomus/server/hub/config"
)

// The exit codes, for scripts and hooks.
const (
	exitDone    = 0  // also where somebody else had done it already
	exitFailed  = 1  // it was tried and failed
	exitWords   = 2  // the words make no sense
	exitNo      = 10 // the check ran, and the answer is no
	exitMissing = 12 // something needed is missing
)

// version is set by the linker for a release: -X main.version=v1.2.3.
var version string

func programVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

// An exitError carries an exit code of its own to main. Err may be nil: what
// there was to say has been said.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// wrongWords marks an error of the command line itself.
func wrongWords(err error) error {
	if err == nil {
		return nil
	}
	return &exitError{exitWords, err}
}

// sink is a stream that can be led elsewhere while it is written to.
type sink struct {
	mu sync.Mutex
	w  io.Writer
}

func (s *sink) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w.Write(p)
}

func (s *sink) to(w io.Writer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.w = w
}

// app is one run of the program: its streams, its environment and the flags
// that every command has.
type app struct {
	in      io.Reader
	out     io.Writer
	err     *sink
	environ []string
	getenv  func(string) string
	started lease.ExecutableIdentity
	only    *server.Hosting // what is hosted whatever the checkout says; for the benchmark

	root   string // --root
	format string // --format
}

// run executes the words and returns the exit code.
func (a *app) run(ctx context.Context, args []string) int {
	root := a.command()
	root.SetArgs(args)
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitDone
	}
	code := exitFailed
	var exit *exitError
	switch {
	case errors.As(err, &exit):
		if code = exit.code; exit.err == nil {
			return code
		}
	case strings.HasPrefix(err.Error(), "unknown command"), strings.HasPrefix(err.Error(), "required flag"):
		code = exitWords // cobra has no type for these
	case errors.Is(err, checkout.ErrNone):
		code = exitMissing
	}
	fmt.Fprintln(a.err, "majordomus:", plainly(err.Error()))
	if h := hint(err); h != "" {
		fmt.Fprintln(a.err, "hint:", h)
	}
	return code
}

// hint says what a person can do about err, or nothing.
func hint(err error) string {
	var policy *checkout.PolicyError
	var start *launch.StartError
	var exit *exitError
	var hinted *hintedError
	var servers *config.Error
	switch {
	case errors.As(err, &hinted):
		return hinted.hint
	case errors.As(err, &servers):
		return "mend that file; nothing of it is used until then"
	case errors.As(err, &policy):
		return "mend that line; README.md lists the keys and their defaults"
	case errors.Is(err, checkout.ErrNone):
		return "run it inside a git checkout or below a .ai/manifest.yaml, or name the folder with --root"
	case errors.As(err, &start):
		return "`majordomus logs` shows the whole log"
	case errors.Is(err, lease.ErrElsewhere):
		return "the server runs where this process cannot reach it (a container, a sandbox, another network namespace); stop it there, or work there"
	case errors.Is(err, fs.ErrPermission):
		return "the folder .ai/local in the checkout must be writable for you"
	case errors.As(err, &exit) && exit.code == exitWords:
		return "`majordomus help` lists the commands"
	}
	return ""
}

func (a *app) command() *cobra.Command {
	root := &cobra.Command{
		Use:   "majordomus",
		Short: "One MCP server per checkout, shared by every editor",
		Long: `Majordomus runs one MCP server per checkout and joins every editor to it.

An editor starts "majordomus mcp". That finds the checkout's server or starts
it, and carries the conversation; when the server dies, hangs or is replaced,
it goes on with the next one and the editor never notices.`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       programVersion(),
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate("majordomus {{.Version}}\n")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return wrongWords(err) })
	root.PersistentFlags().StringVar(&a.root, "root", "", "the checkout's root `folder` (default: found from the current folder; MAJORDOMUS_ROOT)")
	root.PersistentFlags().StringVar(&a.format, "format", "text", "how to report: `text or json`")
	root.PersistentPreRunE = func(*cobra.Command, []string) error {
		if a.format != "text" && a.format != "json" {
			return wrongWords(fmt.Errorf("--format %q: only text and json are known", a.format))
		}
		return nil
	}
	root.AddCommand(a.mcpCommand(), a.serveCommand(), a.statusCommand(), a.logsCommand(),
		a.peersCommand(), a.announceCommand(), a.executionsCommand(), a.guardCommand(), a.openCommand(), a.keyCommand(), a.trustCommand(), a.upstreamCommand(), a.envCommand(), a.hookCommand(), a.initCommand(), a.doctorCommand(), a.installCommand(), a.uninstallCommand(), a.demoCommand(), a.benchCommand(), a.benchPartCommand(), a.versionCommand())
	for _, c := range root.Commands() {
		strict(c)
	}
	return root
}

// strict makes wrong arguments of c and of all below it an error of the words.
func strict(c *cobra.Command) {
	if args := c.Args; args != nil {
		c.Args = func(cmd *cobra.Command, words []string) error { return wrongWords(args(cmd, words)) }
	}
	for _, sub := range c.Commands() {
		strict(sub)
	}
}

// logger writes to the program's standard error at the level of MAJORDOMUS_LOG.
func (a *app) logger() *slog.Logger {
	level := slog.LevelInfo
	if s := a.getenv("MAJORDOMUS_LOG"); s != "" {
		if err := level.UnmarshalText([]byte(s)); err != nil {
			level = slog.LevelInfo
		}
	}
	return slog.New(slog.NewTextHandler(a.err, &slog.HandlerOptions{Level: level}))
}

// checkout finds the checkout that the words or the current folder mean.
func (a *app) checkout() (*checkout.Checkout, error) {
	if root := a.namedRoot(); root != "" {
		return checkout.Open(root)
	}
	dir, err := os.Getwd()
	if err != nil {
		return nil, fmt.Errorf("finding the current folder: %w", err)
	}
	return checkout.Find(dir, a.home())
}

// namedRoot is the folder that --root or MAJORDOMUS_ROOT names, if one does. What
// a shell's hook has put there says where that shell was, and orders nothing: an
// editor that is started from it for another checkout must not join this one's
// server.
func (a *app) namedRoot() string {
	if a.root != "" {
		return a.root
	}
	root := a.getenv("MAJORDOMUS_ROOT")
	if root == a.getenv(enteredVar) {
		return ""
	}
	return root
}

func (a *app) home() string {
	home, err := os.UserHomeDir()
	if err != nil {
		return "" // ignore error: then no folder counts as home
	}
	return filepath.Clean(home)
}

func timings(p checkout.Policy) lease.Timings {
	return lease.Timings{BindGrace: p.BindGrace, BusyGrace: p.BusyGrace, JoinTimeout: p.JoinTimeout, ProbeTimeout: p.ProbeTimeout}
}

// place is a checkout with what its policy says and its lease folder.
type place struct {
	*checkout.Checkout
	policy checkout.Policy
	folder *lease.Folder
}

// open reads the policy of c and opens its state folder with opener, which is
// lease.Open or lease.OpenExisting.
func (a *app) open(c *checkout.Checkout, log *slog.Logger, opener func(lease.Config) (*lease.Folder, error)) (place, error) {
	policy, err := c.Policy()
	if err != nil {
		return place{}, err
	}
	return a.openWith(c, policy, log, opener)
}

func (a *app) openWith(c *checkout.Checkout, policy checkout.Policy, log *slog.Logger, opener func(lease.Config) (*lease.Folder, error)) (place, error) {
	folder, err := opener(lease.Config{Checkout: c, Timings: timings(policy), Self: a.started, Version: programVersion(), Log: log})
	if err != nil {
		return place{c, policy, nil}, err
	}
	return place{c, policy, folder}, nil
}

// anyway is open for words that look and mend: a policy that cannot be read keeps
// nobody from ending a server or reading its log.
func (a *app) anyway(c *checkout.Checkout, log *slog.Logger, opener func(lease.Config) (*lease.Folder, error)) (place, error) {
	p, err := a.open(c, log, opener)
	var policy *checkout.PolicyError
	if !errors.As(err, &policy) {
		return p, err
	}
	log.Warn("going on without the checkout's policy", "because", err)
	return a.openWith(c, checkout.DefaultPolicy(), log, opener)
}

// existing opens the state folder that a server of the checkout has left, for
// words that look at it; none is what they say where there is no such folder.
func (a *app) existing(none string) (place, error) {
	c, err := a.checkout()
	if err != nil {
		return place{}, err
	}
	p, err := a.anyway(c, a.logger(), lease.OpenExisting)
	if errors.Is(err, fs.ErrNotExist) {
		return place{}, &exitError{exitNo, errors.New(none)}
	}
	return p, err
}

// here is open for the checkout that the words mean.
func (a *app) here(log *slog.Logger, opener func(lease.Config) (*lease.Folder, error)) (place, error) {
	c, err := a.checkout()
	if err != nil {
		return place{}, err
	}
	return a.open(c, log, opener)
}

// launcher finds or starts the server of p.
func (a *app) launcher(p place, log *slog.Logger, inProcess func(context.Context, lease.History) (lease.Document, error)) *launch.Launcher {
	return launch.New(launch.Config{
		Folder: p.folder, Root: p.Root, Join: p.policy.JoinTimeout,
		Command:   []string{a.started.Path, "serve", "--detached", "--root", p.Root},
		Environ:   a.environ,
		Service:   a.startService(p.Checkout, log),
		InProcess: inProcess,
		Log:       log,
	})
}

// heedful keeps the first error of a Writer, to which it writes plainly.
type heedful struct {
	w   io.Writer
	err error
}

func (h *heedful) Write(p []byte) (int, error) {
	_, err := io.WriteString(h.w, plainly(string(p)))
	if h.err == nil {
		h.err = err
	}
	return len(p), err
}

// plainly is text of several lines in which nothing commands a terminal or turns
// a line around: the name of a folder may have anything.
func plainly(text string) string {
	acts := func(r rune) bool {
		return r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == utf8.RuneError)
	}
	if strings.IndexFunc(text, acts) < 0 {
		return text
	}
	var b strings.Builder
	for text != "" {
		r, n := utf8.DecodeRuneInString(text)
		if quoted := strconv.Quote(text[:n]); acts(r) {
			b.WriteString(quoted[1 : len(quoted)-1])
		} else {
			b.WriteString(text[:n])
		}
		text = text[n:]
	}
	return b.String()
}

// report prints v as JSON, or calls text.
func (a *app) report(v any, text func(io.Writer)) error {
	if a.format != "json" {
		// A full disk behind a pipe or file is not success.
		w := &heedful{w: a.out}
		text(w)
		if w.err != nil {
			return fmt.Errorf("writing the output: %w", w.err)
		}
		return nil
	}
	b, err := encodeJSON(v, "  ")
	if err != nil {
		return err
	}
	if _, err := a.out.Write(b); err != nil {
		return fmt.Errorf("writing the output: %w", err)
	}
	return nil
}

// encodeJSON is v as a document and the end of its line. JSON leaves letters as
// they are that a terminal takes for commands, or that turn a line around; what
// others chose to be called may have them. Here they are escapes.
func encodeJSON(v any, indent string) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", indent)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("encoding the output: %w", err)
	}
	unseen := func(r rune) bool { return r >= 0x7f && !unicode.IsPrint(r) }
	if bytes.IndexFunc(b.Bytes(), unseen) < 0 {
		return b.Bytes(), nil
	}
	var plain []byte
	for _, r := range b.String() { // beyond ASCII there are letters in strings only
		switch {
		case !unseen(r):
			plain = utf8.AppendRune(plain, r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			plain = fmt.Appendf(plain, `\u%04x\u%04x`, high, low)
		default:
			plain = fmt.Appendf(plain, `\u%04x`, r)
		}
	}
	return plain, nil
}
