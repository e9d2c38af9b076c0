package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"majordomus/lease"
	"majordomus/lease/checkout"
	"majordomus/server"
	"majordomus/server/board"
)

// How long a commit waits at most for a server that is there, and for git.
const (
	guardServer = 2 * time.Second
	guardGit    = 10 * time.Second
)

// guarded is what a commit meets.
type guarded struct {
	Asked    bool    `json:"asked"`            // a server was there and told
	Reason   string  `json:"reason,omitempty"` // why it could not be asked
	Meetings []warns `json:"meetings"`
}

// warns is a claim that a commit meets.
type warns struct {
	Peer     string   `json:"peer"`
	Client   string   `json:"client"`
	Checkout string   `json:"checkout"`
	Claim    string   `json:"claim"`
	Intent   string   `json:"intent"`
	Paths    []string `json:"paths"`  // of the claim
	Staged   []string `json:"staged"` // that meet them
	other    bool     // in another checkout than this one
}

func (a *app) guardCommand() *cobra.Command {
	var strict bool
	as := a.getenv("MAJORDOMUS_PEER")
	cmd := &cobra.Command{
		Use:   "guard",
		Short: "Say before a commit whose work it meets; for a git hook",
		Long: `Compare what is staged with what the editors in this repository announced, and
name each that the commit meets. Meant for .git/hooks/pre-commit:

    #!/bin/sh
    exec majordomus guard

An agent that commits through a shell of its editor does not meet itself; where
that cannot be seen, MAJORDOMUS_PEER says who commits.

It warns and lets the commit go on; --strict refuses it (exit code 10). Where no
server runs it says nothing. A majordomus that is unwell never keeps anybody
from a commit: then --strict says why nobody could be asked, and lets it pass.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			got, err := a.guard(cmd.Context(), as)
			if err != nil {
				got.Reason = err.Error()
				if strict {
					fmt.Fprintln(a.err, "majordomus: the commit was not compared with what others work on:", plainly(err.Error()))
				}
			}
			for _, m := range got.Meetings {
				fmt.Fprintln(a.err, "majordomus:", m)
			}
			if a.format == "json" {
				a.report(got, nil) // ignore error: it is no reason against a commit
			}
			if !strict || len(got.Meetings) == 0 {
				return nil
			}
			fmt.Fprintf(a.err, "majordomus: so the commit is refused; if one of them is you, say so with MAJORDOMUS_PEER=%s; git commit --no-verify commits all the same\n", shown(got.Meetings[0].Peer))
			return &exitError{code: exitNo}
		},
	}
	cmd.Flags().BoolVar(&strict, "strict", false, "refuse a commit that meets somebody's work")
	cmd.Flags().StringVar(&as, "as", as, "the `peer` that commits, which does not meet itself (MAJORDOMUS_PEER)")
	return cmd
}

func (w warns) String() string {
	more := ""
	if n := len(w.Staged) - 1; n > 0 {
		more = fmt.Sprintf(" (and %d more)", n)
	}
	return fmt.Sprintf("%s works on %s; you are about to commit %s%s", peerOf(w.Peer, w.Client, w.Checkout, w.other), on(w.Paths, w.Intent), path(w.Staged[0]), more)
}

// guard compares what is staged with what others announced. The error says why
// it could not; where there is nobody to be asked there is none.
func (a *app) guard(ctx context.Context, as string) (guarded, error) {
	got := guarded{Meetings: []warns{}}
	c, err := a.checkout()
	if errors.Is(err, checkout.ErrNone) {
		return got, nil
	}
	if err != nil {
		return got, err
	}
	p, err := a.anyway(c, slog.New(slog.DiscardHandler), lease.OpenExisting)
	if errors.Is(err, fs.ErrNotExist) {
		return got, nil
	}
	if err != nil {
		return got, err
	}
	defer p.close()
	var all server.Peers
	if err := repositoryBoard(ctx, p, &all); err != nil {
		if errors.Is(err, errUnserved) {
			err = nil
		}
		return got, err
	}
	got.Asked = true
	me := ""
	others := slices.DeleteFunc(all.Peers, func(v board.View) bool {
		if v.Front == "hand" && me == "" {
			me = person()
		}
		return !v.Attached || len(v.Claims) == 0 || as != "" && v.ID == as || as == "" && v.CheckoutID == c.ID && slices.Contains(all.Yours, v.ID) || v.Front == "hand" && v.Client == me
	})
	if len(others) == 0 {
		return got, nil // mostly: then git need not be asked
	}
	staged, err := a.staged(ctx, c)
	if err != nil {
		return got, err
	}
	got.Meetings = meetings(staged, others, c.ID)
	return got, nil
}

// repositoryBoard asks the server of p once for the board of the repository.
func repositoryBoard(ctx context.Context, p place, all *server.Peers) error {
	ctx, cancel := context.WithTimeout(ctx, guardServer)
	defer cancel()
	r, err := p.reach(ctx, p.folder.Probe)
	if err != nil {
		return err
	}
	return r.get(ctx, "/api/v1/peers?"+url.Values{"checkouts": {"repository"}, "started_by": ancestors()}.Encode(), all)
}

// meetings are the claims that meet what is staged.
func meetings(staged []string, others []board.View, here string) []warns {
	fold := runtime.GOOS == "darwin" || runtime.GOOS == "windows"
	list := []warns{}
	for _, v := range others {
		for _, c := range v.Claims {
			m := warns{Peer: v.ID, Client: v.Client, Checkout: v.Checkout, Claim: c.Name, Intent: c.Intent, other: v.CheckoutID != here}
			met := map[string]bool{}
			for _, claimed := range c.Scope {
				meets := false
				for _, s := range staged {
					if !apart(claimed, s, fold) && board.Meet(claimed, s, fold) {
						meets = true
						if !met[s] {
							met[s] = true
							m.Staged = append(m.Staged, s)
						}
					}
				}
				if meets {
					m.Paths = append(m.Paths, claimed)
				}
			}
			if m.Paths != nil {
				slices.Sort(m.Staged)
				list = append(list, m)
			}
		}
	}
	return list
}

// apart is a cheap no: a commit may have a hundred thousand paths.
func apart(claimed, staged string, fold bool) bool {
	if fold || claimed == "." || strings.ContainsAny(staged, "*?[{") {
		return false
	}
	if i := strings.IndexAny(claimed, "*?[{"); i >= 0 {
		claimed = claimed[:i]
	}
	return !strings.HasPrefix(staged, claimed) && !strings.HasPrefix(claimed, staged)
}

// staged are the paths that a commit would change, as they lie below the
// checkout's root. Git runs in the current folder and with the environment that
// it gave its hook: there GIT_DIR may be relative, and GIT_INDEX_FILE is
// another index where only some paths are committed.
func (a *app) staged(ctx context.Context, c *checkout.Checkout) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, guardGit)
	defer cancel()
	// The settings would have paths relative to the folder, or start programs.
	out, err := a.git(ctx, "-c", "diff.relative=false", "diff", "--cached", "--name-only", "-z", "--no-renames", "--no-ext-diff", "--ignore-submodules=dirty")
	if err != nil || len(out) == 0 {
		return nil, err
	}
	prefix, drop, err := a.place(ctx, c)
	if err != nil {
		return nil, err
	}
	var list []string
	for s := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		if s, ok := strings.CutPrefix(s, drop); ok {
			list = append(list, prefix+s)
		}
	}
	return list, nil
}

// place says how paths below the top of the work tree become paths below the
// checkout's root: what is put before them, and what is taken off. Mostly they
// are the same folder, and git need not be asked.
func (a *app) place(ctx context.Context, c *checkout.Checkout) (prefix, drop string, err error) {
	at, err := os.Getwd()
	if err != nil {
		return "", "", fmt.Errorf("finding the current folder: %w", err)
	}
	if at, err = filepath.EvalSymlinks(at); err != nil {
		return "", "", fmt.Errorf("finding the current folder: %w", err)
	}
	if at == c.Root && a.getenv("GIT_WORK_TREE") == "" {
		if _, err := os.Lstat(filepath.Join(at, ".git")); err == nil {
			return "", "", nil
		}
	}
	out, err := a.git(ctx, "rev-parse", "--show-toplevel")
	if err != nil {
		return "", "", err
	}
	top, err := filepath.EvalSymlinks(filepath.FromSlash(strings.TrimSuffix(string(out), "\n")))
	if err != nil {
		return "", "", fmt.Errorf("finding the work tree: %w", err)
	}
	switch rel, err := filepath.Rel(c.Root, top); {
	case err != nil:
		return "", "", fmt.Errorf("finding the work tree: %w", err)
	case rel == ".":
		return "", "", nil
	case within(c.Root, top):
		return filepath.ToSlash(rel) + "/", "", nil
	}
	rel, err := filepath.Rel(top, c.Root)
	if err != nil || !within(top, c.Root) {
		return "", "", fmt.Errorf("the work tree %s is not of the checkout %s", top, c.Root)
	}
	return "", filepath.ToSlash(rel) + "/", nil
}

func (a *app) git(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Env, cmd.WaitDelay = a.environ, time.Second
	var log bytes.Buffer
	cmd.Stderr = &log
	out, err := cmd.Output()
	if err != nil {
		line, _, _ := strings.Cut(strings.TrimSpace(log.String()), "\n")
		return nil, fmt.Errorf("git %s: %w: %s", args[len(args)-1], err, line)
	}
	return out, nil
}
