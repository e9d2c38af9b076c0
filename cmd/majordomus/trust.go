package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"majordomus/lease/checkout"
	"majordomus/server/hub/config"
)

// accountHome is set by the linker for tests: -X main.accountHome=DIR. Nothing
// that a process is started with can set it, since what a clone brings along
// must not choose where trust is looked for.
var accountHome string

// ledger opens the account's record of what it trusts.
func ledger() (*config.Ledger, error) {
	home := accountHome
	if home == "" {
		var err error
		if home, err = systemHome(); err != nil {
			return nil, fmt.Errorf("finding the account's folder: %w", err)
		}
	}
	return config.OpenLedger(config.TrustDir(home)), nil
}

// A hintedError brings its own hint.
type hintedError struct {
	err  error
	hint string
}

func (e *hintedError) Error() string { return e.err.Error() }
func (e *hintedError) Unwrap() error { return e.err }

// envFile is where a checkout keeps what its hosted servers need and git must
// not see.
func envFile(c *checkout.Checkout) string { return filepath.Join(c.LocalDir, "env") }

func (a *app) trustCommand() *cobra.Command {
	var yes, show, revoke bool
	cmd := &cobra.Command{
		Use:   "trust",
		Short: "Let this checkout's servers file run what it names",
		Long: `Show what the checkout's servers file (.ai/repo/mcp.json) would run, ask, and
record the answer for this account. Until then none of it is started, because a
file that comes with a clone must not run commands. Any change of the file
takes the trust away until somebody has looked again. PATH is recorded too:
hosted servers are looked for where you would find them here.

What is trusted is the file, not the programs: a script of the checkout that it
names may change and runs as it is then.

--show only shows, and exits with 10 when the file is not trusted. --revoke
takes the trust back: a running server ends what it hosts.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if yes && show || yes && revoke || show && revoke {
				return wrongWords(errors.New("only one of --yes, --show and --revoke makes sense"))
			}
			c, err := a.checkout()
			if err != nil {
				return err
			}
			l, err := ledger()
			if err != nil {
				return err
			}
			switch {
			case revoke:
				return a.revokeTrust(c, l)
			case show:
				return a.showTrust(c, l)
			}
			return a.trust(cmd.Context(), c, l, yes)
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	cmd.Flags().BoolVar(&show, "show", false, "show what would run, and whether it is trusted")
	cmd.Flags().BoolVar(&revoke, "revoke", false, "take the trust back")
	return cmd
}

// hosting is what a checkout's servers file would run, and whether it may.
type hosting struct {
	Root string `json:"root"`
	File string `json:"file"`
	// State is none (nothing to trust), untrusted, changed or trusted.
	State       string           `json:"state"`
	Reason      string           `json:"reason,omitempty"` // why what is recorded is not believed
	Digest      string           `json:"digest,omitempty"`
	TrustedAt   *time.Time       `json:"trusted_at,omitempty"`
	OtherPath   bool             `json:"other_path,omitempty"` // trusted with another PATH than the present one
	Servers     []hosted         `json:"servers"`
	Problems    []config.Problem `json:"problems"`
	Environment []string         `json:"environment"` // names in the environment file
}

// hosted is one server as a person is to see it: no value of a variable or
// header.
type hosted struct {
	Name      string   `json:"name"`
	Command   []string `json:"command,omitempty"`
	Cwd       string   `json:"cwd,omitempty"`
	Env       []string `json:"env,omitempty"`
	URL       string   `json:"url,omitempty"`
	Headers   []string `json:"headers,omitempty"`
	Variables []string `json:"variables,omitempty"` // looked up when it starts
	Share     string   `json:"share"`
	Tools     []string `json:"tools,omitempty"`
}

// hosting reads the servers file and what is recorded of it.
func (a *app) hosting(c *checkout.Checkout, l *config.Ledger) (hosting, error) {
	f, err := config.Read(c.ServersFile)
	if err != nil {
		return hosting{}, err
	}
	h := hosting{Root: c.Root, File: c.ServersFile, State: "none", Digest: f.Digest,
		Servers: []hosted{}, Problems: append([]config.Problem{}, f.Problems...), Environment: []string{}}
	for _, s := range f.Servers {
		one := hosted{Name: s.Name, Cwd: s.Cwd, Env: slices.Sorted(maps.Keys(s.Env)), URL: s.URL, Headers: slices.Sorted(maps.Keys(s.Headers)),
			Variables: s.Variables(), Share: s.Share, Tools: s.Tools}
		if s.Command != "" {
			one.Command = append([]string{s.Command}, s.Args...)
		}
		h.Servers = append(h.Servers, one)
	}
	if env, err := config.ReadEnv(envFile(c)); err != nil {
		h.Problems = append(h.Problems, config.Problem{Reason: err.Error()})
	} else {
		h.Environment = append(h.Environment, slices.Sorted(maps.Keys(env))...)
	}
	if len(h.Servers) == 0 {
		return h, nil
	}
	h.State = "untrusted"
	t, ok, err := l.Lookup(c.ID)
	switch {
	case err != nil:
		h.Reason = err.Error()
	case !ok:
	case t.Digest != f.Digest:
		h.State, h.TrustedAt = "changed", &t.At
	default:
		h.State, h.TrustedAt, h.OtherPath = "trusted", &t.At, t.Path != a.getenv("PATH")
	}
	return h, nil
}

func (a *app) showTrust(c *checkout.Checkout, l *config.Ledger) error {
	h, err := a.hosting(c, l)
	if err != nil {
		return err
	}
	if err := a.report(h, h.print); err != nil {
		return err
	}
	if h.State == "untrusted" || h.State == "changed" {
		return &exitError{code: exitNo}
	}
	return nil
}

func (a *app) revokeTrust(c *checkout.Checkout, l *config.Ledger) error {
	was, err := l.Revoke(c.ID)
	if err != nil {
		return err
	}
	return a.report(map[string]bool{"revoked": was}, func(w io.Writer) {
		if !was {
			fmt.Fprintln(w, "nothing was trusted in this checkout")
			return
		}
		fmt.Fprintln(w, "revoked: nothing that this checkout's servers file names is started")
	})
}

// trust shows, asks and records. What was shown is what is recorded: the file
// is not read again.
func (a *app) trust(ctx context.Context, c *checkout.Checkout, l *config.Ledger, yes bool) error {
	h, err := a.hosting(c, l)
	if err != nil {
		return err
	}
	if h.State == "none" || h.State == "trusted" && !h.OtherPath {
		return a.report(h, h.print)
	}
	if a.format == "json" && !yes {
		h.print(a.err)
	} else if a.format != "json" {
		h.print(a.out)
	}
	if !yes {
		if err := a.ask(ctx, "run these from now on?"); err != nil {
			return err
		}
	}
	now := time.Now().UTC()
	if err := l.Record(c.ID, config.Trust{Digest: h.Digest, Path: a.getenv("PATH"), Root: c.Root, At: now}); err != nil {
		return &hintedError{err, "trust is kept in a folder of the account that only the account can write"}
	}
	h.State, h.Reason, h.TrustedAt, h.OtherPath = "trusted", "", &now, false
	return a.report(h, func(w io.Writer) { fmt.Fprintln(w, "\ntrusted until the file changes") })
}

// ask asks on the terminal and returns nil for yes. Without a terminal nobody
// can answer, and --yes has to be said.
func (a *app) ask(ctx context.Context, question string) error {
	return a.askOr(ctx, question, "--yes does it without a question")
}

// askOr is ask where another hint says how to do without a question.
func (a *app) askOr(ctx context.Context, question, otherwise string) error {
	silent := &exitError{exitWords, &hintedError{errors.New("there is no terminal to ask on, so nothing was done"), otherwise}}
	if !isTerminal(a.in) {
		return silent
	}
	fmt.Fprintf(a.err, "\n%s [y/N] ", question)
	type line struct {
		text string
		err  error
	}
	answered := make(chan line, 1)
	// A read of a terminal cannot be ended: this goroutine lasts until the line
	// or the program's end.
	go func() {
		text, err := bufio.NewReader(a.in).ReadString('\n')
		answered <- line{text, err}
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(a.err)
		return &exitError{exitFailed, errors.New("interrupted: nothing was done")}
	case got := <-answered:
		switch strings.ToLower(strings.TrimSpace(got.text)) {
		case "y", "yes":
			return nil
		}
		if got.err != nil {
			fmt.Fprintln(a.err)
			return silent
		}
		return &exitError{exitNo, errors.New("the answer is no: nothing was done")}
	}
}

// isTerminal reports whether a person can answer at r.
func isTerminal(r io.Reader) bool {
	f, ok := r.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, null)
}

func (h hosting) print(w io.Writer) {
	row := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%-10s %s\n", name, fmt.Sprintf(format, args...))
	}
	row("checkout", "%s", h.Root)
	row("file", "%s", h.File)
	switch {
	case h.State == "none" && h.Digest == "":
		row("trust", "nothing to trust: there is no such file")
	case h.State == "none":
		row("trust", "nothing to trust: it names no server that can run")
	case h.State == "changed":
		row("trust", "none: the file has changed since %s", h.TrustedAt.Local().Format(time.DateTime))
	case h.OtherPath:
		row("trust", "since %s, with another PATH than here", h.TrustedAt.Local().Format(time.DateTime))
	case h.State == "trusted":
		row("trust", "since %s", h.TrustedAt.Local().Format(time.DateTime))
	default:
		row("trust", "none: nothing of it is started")
	}
	if h.Reason != "" {
		row("because", "%s", h.Reason)
	}
	if len(h.Servers) > 0 && len(h.Environment) > 0 {
		row("variables", "%s are in the checkout's environment file", words(h.Environment))
	}
	for _, s := range h.Servers {
		fmt.Fprintf(w, "\n%s\n", word(s.Name))
		row := func(name string, list []string) {
			if len(list) > 0 {
				fmt.Fprintf(w, "  %-8s %s\n", name, words(list))
			}
		}
		row("runs", s.Command)
		if s.URL != "" {
			row("asks", []string{s.URL})
		}
		if s.Cwd != "" {
			row("in", []string{s.Cwd})
		}
		row("sets", s.Env)
		row("sends", s.Headers)
		row("reads", s.Variables)
		row("tools", s.Tools)
		if s.Share == config.ShareSession {
			fmt.Fprintln(w, "  for      each session a process of its own")
		}
	}
	if len(h.Problems) > 0 {
		fmt.Fprintln(w, "\nproblems")
	}
	for _, p := range h.Problems {
		fmt.Fprintf(w, "  %s\n", p)
	}
}

// words shows what a file has so that nothing of it can hide: as a shell would
// want it, and with every character that a terminal does not show spelled out.
func words(list []string) string {
	shown := make([]string, len(list))
	for i, s := range list {
		shown[i] = word(s)
	}
	return strings.Join(shown, " ")
}

func word(s string) string {
	if !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	plain := s != ""
	for _, r := range s {
		if r < 0x80 && !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("@%+=:,./_-", r) {
			plain = false
		}
	}
	if plain {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
