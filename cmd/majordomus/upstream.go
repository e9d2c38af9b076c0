package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"majordomus/lease"
	"majordomus/lease/checkout"
	"majordomus/server/hub/config"
)

func (a *app) upstreamCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "upstream",
		Short: "Look after the MCP servers that this checkout hosts",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.upstreamListCommand(), a.upstreamLogsCommand(), a.upstreamRestartCommand(), a.upstreamImportCommand())
	return cmd
}

func (a *app) upstreamImportCommand() *cobra.Command {
	var takeOut, yes bool
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Take MCP servers over from an editor's configuration",
		Long: `Add the MCP servers that an editor's configuration FILE starts (as .mcp.json,
.cursor/mcp.json, .vscode/mcp.json, .gemini/settings.json or .zed/settings.json)
to this checkout's servers file, .ai/repo/mcp.json, so that all editors share
them. What is in that file already stays as it is.

The servers file is meant to be shared, so values that look like a secret go
into .ai/local/env, which git ignores, and the entry reads them from there.

As long as the entries are in FILE too, the editor starts servers of its own.
--take-out removes from FILE what the servers file has, after asking; all else
in FILE stays byte for byte.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, words []string) error {
			if yes && !takeOut {
				return wrongWords(errors.New("--yes goes with --take-out; nothing else is asked"))
			}
			c, err := a.checkout()
			if err != nil {
				return err
			}
			return a.importServers(cmd.Context(), c, words[0], takeOut, yes)
		},
	}
	cmd.Flags().BoolVar(&takeOut, "take-out", false, "remove from FILE what the servers file has")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

// imported is what an import did, or is about to do.
type imported struct {
	Root     string           `json:"root"`
	File     string           `json:"file"` // the servers file
	From     string           `json:"from"`
	Taken    []string         `json:"taken"`
	Present  []string         `json:"present"` // were there already
	Skipped  []config.Skipped `json:"skipped"`
	Moved    []string         `json:"moved"` // variables added to the environment file
	TakenOut []string         `json:"taken_out"`
	Itself   bool             `json:"editor_starts_majordomus"`
	env      string           // the environment file
}

// maxEditorFile is far more than editors keep: some keep their history in it.
const maxEditorFile = 64 << 20

func (a *app) importServers(ctx context.Context, c *checkout.Checkout, from string, takeOut, yes bool) error {
	from, err := filepath.Abs(from)
	if err != nil {
		return fmt.Errorf("finding the editor's file: %w", err)
	}
	editor, err := readRegular(from)
	if err != nil {
		return fmt.Errorf("reading the editor's file: %w", err)
	}
	servers, err := readRegular(c.ServersFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("reading the servers file: %w", err)
	}
	if sameFile(from, c.ServersFile) {
		return wrongWords(errors.New("that is the servers file itself"))
	}
	env, err := config.ReadEnv(envFile(c))
	if err != nil {
		return err
	}
	m, err := config.Merge(servers, editor, env)
	if err != nil {
		return fmt.Errorf("importing %s: %w", from, err)
	}
	i := imported{Root: c.Root, File: c.ServersFile, From: from, Taken: append([]string{}, m.Taken...), Present: append([]string{}, m.Present...),
		Skipped: append([]config.Skipped{}, m.Skipped...), Moved: append([]string{}, slices.Sorted(maps.Keys(m.Env))...), TakenOut: []string{}, Itself: m.Itself, env: envFile(c)}
	both := slices.Concat(m.Taken, m.Present)
	if takeOut && len(both) > 0 {
		if a.format != "json" {
			i.print(a.out)
		} else if !yes {
			i.print(a.err)
		}
		question := fmt.Sprintf("take %s out of %s?", words(both), from)
		if !within(c.Root, from) {
			question = fmt.Sprintf("take %s out of %s, for all that use it?", words(both), from)
		}
		if !yes {
			if err := a.ask(ctx, question); err != nil {
				return err
			}
		}
		i.TakenOut = both
	}
	// First what is new, then the edit that takes away: whatever fails, no
	// entry and no secret is lost.
	if len(m.Env) > 0 {
		if err := a.keepEnv(c, m.Env); err != nil {
			return err
		}
	}
	if len(m.Taken) > 0 {
		if err := os.MkdirAll(filepath.Dir(c.ServersFile), 0o755); err != nil {
			return fmt.Errorf("making the folder of the servers file: %w", err)
		}
		if err := config.Rewrite(c.ServersFile, servers, m.Bytes); err != nil {
			return err
		}
	}
	if len(i.TakenOut) > 0 {
		left, err := config.TakeOut(editor, i.TakenOut)
		if err != nil {
			return fmt.Errorf("taking the entries out of %s: %w", from, err)
		}
		if err := config.Rewrite(from, editor, left); err != nil {
			return err
		}
	}
	return a.report(i, func(w io.Writer) {
		if len(i.TakenOut) == 0 {
			i.print(w)
		}
		i.next(w)
	})
}

// keepEnv adds variables to the checkout's environment file, in a folder that
// git ignores.
func (a *app) keepEnv(c *checkout.Checkout, env map[string]string) error {
	folder, err := lease.Open(lease.Config{Checkout: c, Self: a.started, Version: programVersion(), Log: a.logger()})
	if err != nil {
		return err
	}
	folder.Close() // ignore error: it was opened to be there
	return config.AppendEnv(envFile(c), env)
}

func (i imported) print(w io.Writer) {
	row := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%-10s %s\n", name, fmt.Sprintf(format, args...))
	}
	row("from", "%s", i.From)
	row("into", "%s", i.File)
	if len(i.Taken) > 0 {
		row("taken", "%s", words(i.Taken))
	}
	if len(i.Present) > 0 {
		row("there", "%s", words(i.Present))
	}
	for _, s := range i.Skipped {
		row("skipped", "%s: %s", word(s.Name), s.Reason)
	}
	for _, name := range i.Moved {
		row("secret", "%s, in %s", name, i.env)
	}
	if len(i.Taken)+len(i.Present)+len(i.Skipped) == 0 {
		row("taken", "nothing: it starts no server")
	}
}

// next says what is left to do.
func (i imported) next(w io.Writer) {
	row := func(format string, args ...any) {
		fmt.Fprintf(w, "%-10s %s\n", "next", fmt.Sprintf(format, args...))
	}
	if n := len(i.TakenOut); n > 0 {
		fmt.Fprintf(w, "%-10s %s\n", "taken out", words(i.TakenOut))
	}
	if len(i.Taken) > 0 {
		row("look whether %s tells a secret before you share it", i.File)
		row("majordomus trust: nothing of the changed file is started before")
	}
	both := slices.Concat(i.Taken, i.Present)
	if len(both) > 0 && len(i.TakenOut) == 0 {
		row("majordomus upstream import --take-out %s: until then %s would be started twice, here and by the editor", word(i.From), words(both))
	}
	if len(both) > 0 && !i.Itself {
		row(`tell the editor to start "majordomus mcp": it does not yet`)
	}
}

// readRegular reads a regular file of a size that an editor could have made.
func readRegular(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxEditorFile {
		return nil, fmt.Errorf("%s is not a regular file of at most %d bytes", path, maxEditorFile)
	}
	return os.ReadFile(path)
}

// within reports whether a file is below a resolved folder.
func within(dir, path string) bool {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}

func sameFile(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}
