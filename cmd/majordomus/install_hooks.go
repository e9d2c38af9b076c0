package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"majordomus/install"
	"majordomus/install/shell"
)

func (a *app) installHooksCommand() *cobra.Command {
	var dry, strict bool
	cmd := &cobra.Command{
		Use:   "hooks",
		Short: "Have git ask before a commit whose work it meets",
		Long: `Put "majordomus guard" into the pre-commit hook of this repository, where git
looks for it (core.hooksPath counts), for all of its worktrees. A hook that is
there already is kept and goes on below the lines, if it is a shell script; any
other is left alone, and you are told what to put into it.

Where majordomus is missing the hook does nothing. With --strict a commit that
meets somebody's work is refused.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := a.hookLines(cmd.Context(), strict)
			if err != nil {
				return err
			}
			if by, err := l.byHand(); err != nil {
				return err
			} else if by {
				return a.putAll(nil, dry, placed{Name: l.entry.Name, File: l.entry.File, Lines: l.text})
			}
			if err := l.fits(); err != nil {
				return err
			}
			return a.putAll([]lines{l}, dry)
		},
	}
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only show what would be done")
	cmd.Flags().BoolVar(&strict, "strict", false, "have the hook refuse a commit that meets somebody's work")
	return cmd
}

func (a *app) uninstallHooksCommand() *cobra.Command {
	var dry bool
	cmd := &cobra.Command{
		Use:   "hooks",
		Short: "Take the lines out of the repository's pre-commit hook",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := a.hookLines(cmd.Context(), false)
			if err != nil {
				return err
			}
			return a.takeAll([]lines{linesOf(l.entry)}, false, dry)
		},
	}
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only show what would be done")
	return cmd
}

const hookStart = "#!/bin/sh\n"

// hookLines are what goes into the pre-commit hook of the repository.
func (a *app) hookLines(ctx context.Context, strict bool) (lines, error) {
	l := lines{entry: install.Entry{Kind: install.Hooks, Name: "pre-commit"}, undo: "majordomus uninstall hooks",
		place: shell.BelowFirst, first: hookStart, mode: 0o755}
	c, err := a.checkout()
	if err != nil {
		return l, err
	}
	if _, err := exec.LookPath("git"); err != nil {
		return l, &exitError{exitMissing, fmt.Errorf("finding the hooks: %w", err)}
	}
	dir, of, err := a.hooksDir(ctx, c.Root)
	if err != nil {
		return l, err
	}
	l.entry.File, l.entry.Root = filepath.Join(dir, "pre-commit"), of
	if of == resolved(c.Root) {
		l.next = "the hook is in the work tree: whoever has its branch has it too once it is committed"
	}
	// A desktop's git has a short PATH, so the whole path comes first; a hook
	// that is shared finds the program on the PATH of whoever has it. What is
	// wrong with the program is no reason against a commit: only the code that
	// says no is.
	guard := `"$majordomus" guard || :`
	if strict {
		guard = `"$majordomus" guard --strict || [ "$?" -ne 10 ] || exit 10`
	}
	l.text = "for majordomus in " + posixWord(filepath.ToSlash(a.executable())) + ` majordomus; do
	command -v "$majordomus" >/dev/null 2>&1 || continue
	` + guard + `
	break
done`
	return l, nil
}

func posixWord(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// hooksDir is the folder in which git looks for the hooks of the work tree that
// root is in, and whose it is: the work tree's, or the .git's that all work trees
// share.
func (a *app) hooksDir(ctx context.Context, root string) (dir, of string, err error) {
	ask := func(dir string, args ...string) (string, error) {
		cmd := exec.CommandContext(ctx, "git", append([]string{"rev-parse"}, args...)...)
		cmd.Dir, cmd.Env = dir, a.environ
		out, err := cmd.Output()
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			err = errors.New(strings.TrimSpace(string(exit.Stderr)))
		}
		if err != nil {
			return "", fmt.Errorf("finding the hooks: %w", err)
		}
		path := filepath.FromSlash(strings.TrimSuffix(string(out), "\n"))
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		return path, nil
	}
	top, err := ask(root, "--show-toplevel")
	if err != nil {
		return "", "", err
	}
	// Hooks run at the top, and a relative core.hooksPath begins there.
	if dir, err = ask(top, "--git-path", "hooks"); err != nil {
		return "", "", err
	}
	common, err := ask(top, "--git-common-dir")
	if err != nil {
		return "", "", err
	}
	for _, of := range []string{resolved(common), resolved(top)} {
		if strings.HasPrefix(resolved(dir), of+string(filepath.Separator)) {
			return dir, of, nil
		}
	}
	return "", "", &hintedError{fmt.Errorf("git looks for hooks in %s (core.hooksPath), which is not this repository's alone: nothing was changed", dir),
		"put `majordomus guard` into the pre-commit there if every repository shall have it: it says nothing where no server runs"}
}

// resolved is a path without links, as far as it is there.
func resolved(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	if parent := filepath.Dir(path); parent != path {
		return filepath.Join(resolved(parent), filepath.Base(path))
	}
	return path
}

var (
	guards   = regexp.MustCompile(`(?m)^[^#\n]*\bmajordomus\b[^#\n]*\bguard\b`)
	forShell = regexp.MustCompile(`^#! ?/(usr/)?bin/(env )?(sh|bash|dash|ksh|zsh)( -[a-z]+)*\n`)
)

// byHand reports whether the hook asks the guard by lines that are not ours.
func (l lines) byHand() (bool, error) {
	f, err := shell.Read(l.entry.File)
	if err != nil {
		return false, err
	}
	there, err := shell.Has(f.Text)
	if err != nil {
		return false, broken(l.entry.File, err)
	}
	return !there && guards.Match(f.Text), nil
}

// fits says why lines cannot be put into a hook that is somebody else's.
func (l lines) fits() error {
	info, err := os.Lstat(l.entry.File)
	if err != nil {
		return nil // ignore error: it is not there, or whoever reads it meets the reason
	}
	f, err := shell.Read(l.entry.File)
	if err != nil {
		return err
	}
	why := ""
	switch there, _ := shell.Has(f.Text); {
	case there:
	case info.Mode()&os.ModeSymlink != 0:
		why = "a link to " + f.Real
	case f.Mode().Perm()&0o111 == 0 && filepath.Separator == '/':
		why = "not executable, so git does not run it"
	case !utf8.Valid(f.Text) || strings.ContainsAny(string(f.Text), "\r\x00"):
		why = "not plain text"
	case !forShell.Match(f.Text):
		why = "not a shell script"
	}
	if why == "" {
		return nil
	}
	return &hintedError{fmt.Errorf("%s is somebody else's and %s: nothing was changed", l.entry.File, why),
		"have it run this where a shell would:\n" + l.text}
}
