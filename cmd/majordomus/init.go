package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	editors "majordomus/install/editor"
	"majordomus/lease/checkout"
)

func (a *app) initCommand() *cobra.Command {
	var here, yes bool
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Write the files with which a checkout begins",
		Long: `Write what a checkout of majordomus begins with, and never over anything:
.ai/manifest.yaml, which marks its root; .ai/repo/policy.yaml, with every key and
its default in comments; .ai/repo/mcp.json, the list of the MCP servers that its
editors share, with none in it. They are meant to be committed. Then it asks
whether the editors that are found here shall start majordomus.

It is the checkout that the current folder is in. Outside any it asks whether the
current folder shall be one; --here says that it shall, also below the top of a
git work tree. Doing it again changes nothing.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.init(cmd.Context(), here, yes) },
	}
	cmd.Flags().BoolVar(&here, "here", false, "make the current folder a checkout, whatever is above it")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask: a folder outside any checkout becomes one, editors start it")
	return cmd
}

// A begun is one file with which a checkout begins.
type begun struct {
	File  string `json:"file"`
	State string `json:"state"` // made, or there (and left as it is)
}

// An initReport is what init did.
type initReport struct {
	Root    string   `json:"root"`
	Files   []begun  `json:"files"`
	Editors []string `json:"editors"` // that are found here and do not start majordomus yet
	next    string
}

func (a *app) init(ctx context.Context, here, yes bool) error {
	root, err := a.beginning(ctx, here, yes)
	if err != nil {
		return err
	}
	r := initReport{Root: root, Editors: []string{}}
	if r.Files, err = begin(root); err != nil {
		return err
	}
	named := *a
	named.root = root
	found, err := named.unserved(ctx)
	if err != nil {
		a.logger().Warn("the editors here are not known", "because", err)
	}
	for _, e := range found {
		r.Editors = append(r.Editors, e.Name)
	}
	in := ""
	if dir, err := os.Getwd(); err != nil || resolved(dir) != root {
		in = " --root " + word(root)
	}
	all := "majordomus install editor " + strings.Join(r.Editors, " ") + in
	asks := len(found) > 0 && !yes && a.format != "json" && isTerminal(a.in)
	switch {
	case len(found) > 0 && !yes && !asks:
		r.next = all
	case len(found) == 0 && slices.ContainsFunc(r.Files, func(f begun) bool { return f.State == "made" }):
		r.next = "commit these; the next editor that starts majordomus here brings the server up"
	}
	if err := a.report(r, r.print); err != nil || len(found) == 0 || !asks && !yes {
		return err
	}
	if asks {
		fmt.Fprintln(a.out)
		printFound(a.out, found)
		if err := a.askOr(ctx, "have all of these start majordomus?", all); err != nil {
			var exit *exitError
			if errors.As(err, &exit) && exit.code == exitNo {
				fmt.Fprintf(a.out, "\nlater: %s\n", all)
				return nil // what was asked for is done
			}
			return err
		}
	}
	if a.format == "json" {
		named.out = io.Discard // one document is enough
	}
	return named.installEditors(ctx, r.Editors, editorWords{})
}

// beginning is the root of the checkout that begins.
func (a *app) beginning(ctx context.Context, here, yes bool) (string, error) {
	dir := a.namedRoot()
	if here || dir == "" {
		var err error
		if dir, err = os.Getwd(); err != nil {
			return "", fmt.Errorf("finding the current folder: %w", err)
		}
	}
	if here && a.root != "" {
		return "", wrongWords(errors.New("--here and --root name two folders; say one of them"))
	}
	if !here && a.namedRoot() == "" {
		c, err := checkout.Find(dir, a.home())
		if err == nil {
			return c.Root, nil
		}
		if !errors.Is(err, checkout.ErrNone) {
			return "", err
		}
		if err := a.mayBe(dir); err != nil {
			return "", err
		}
		if !yes {
			const hint = "--here makes the current folder one; `git init` makes it a git checkout first"
			if a.format == "json" || !isTerminal(a.in) {
				return "", &exitError{exitMissing, &hintedError{err, hint}}
			}
			if err := a.askOr(ctx, fmt.Sprintf("%s is in no git work tree. Make it a checkout all the same?", shown(dir)), hint); err != nil {
				return "", err
			}
		}
	} else if err := a.mayBe(dir); err != nil {
		return "", err
	}
	c, err := checkout.Open(dir)
	if err != nil {
		return "", err
	}
	return c.Root, nil
}

// mayBe says why a folder cannot be a checkout: one that holds everything else
// would have one server for all of it.
func (a *app) mayBe(dir string) error {
	dir = resolved(cmp.Or(dir, "."))
	abs, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("finding the folder: %w", err)
	}
	what := ""
	switch {
	case filepath.Dir(abs) == abs:
		what = "the root of the file system"
	case sameFile(abs, a.home()):
		what = "your home folder"
	default:
		if home, err := systemHome(); err == nil && sameFile(abs, home) {
			what = "your home folder"
		}
	}
	if what == "" {
		return nil
	}
	return &hintedError{fmt.Errorf("%s is %s, which is no checkout: nothing was written", shown(abs), what), "go into the folder of a project"}
}

// begin writes what is not there yet of the files with which a checkout begins.
func begin(root string) (list []begun, err error) {
	// The folder is opened once: no link in a clone leads what is written out of it.
	dir, err := os.OpenRoot(root)
	if err != nil {
		return nil, fmt.Errorf("beginning a checkout: %w", err)
	}
	defer dir.Close() // ignore error: only a handle on a folder
	put := func(path, text string) error {
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return fmt.Errorf("beginning a checkout: %w", err)
		}
		state, err := beginWith(dir, rel, text)
		if err != nil {
			return fmt.Errorf("beginning a checkout: %w", err)
		}
		list = append(list, begun{path, state})
		return nil
	}
	if err := put(filepath.Join(root, ".ai", "manifest.yaml"), checkout.ManifestText()); err != nil {
		return nil, err
	}
	// A manifest that was there says where the others are.
	c, err := checkout.Open(root)
	if err != nil {
		return nil, err
	}
	if err := put(c.PolicyFile, checkout.PolicyText()); err != nil {
		return nil, err
	}
	if err := put(c.ServersFile, "{\"mcpServers\": {}}\n"); err != nil {
		return nil, err
	}
	return list, nil
}

// beginWith writes a file that is not there.
func beginWith(dir *os.Root, name, text string) (state string, err error) {
	info, err := dir.Lstat(name)
	switch {
	case err == nil && info.IsDir():
		return "", fmt.Errorf("%s is a folder", filepath.Join(dir.Name(), name))
	case err == nil:
		return "there", nil
	case !errors.Is(err, fs.ErrNotExist):
		return "", err
	}
	if err := dir.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return "", err
	}
	f, err := dir.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return "there", nil
	}
	if err != nil {
		return "", err
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Close()); err != nil {
		return "", errors.Join(err, dir.Remove(name)) // half of it would be there for ever
	}
	return "made", nil
}

// unserved are the editors that are found here and do not start majordomus yet.
func (a *app) unserved(ctx context.Context) ([]editorReport, error) {
	d, err := a.editing(editorWords{}, nil)
	if err != nil {
		return nil, err
	}
	d.paths = d.editorPaths(ctx)
	var list []editorReport
	for _, one := range d.found() {
		e, err := editors.Find(one.Name)
		if err != nil {
			return nil, err
		}
		if words, _, err := e.Starts(one.File, serverName); err == nil && len(words) > 0 {
			continue
		}
		list = append(list, one)
	}
	return list, nil
}

func (r initReport) print(w io.Writer) {
	row := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%-10s %s\n", name, fmt.Sprintf(format, args...))
	}
	row("checkout", "%s", shown(r.Root))
	for _, f := range r.Files {
		rel, err := filepath.Rel(r.Root, f.File)
		if err != nil {
			rel = f.File
		}
		state := f.State
		if state == "there" {
			state = "there already"
		}
		row("file", "%s: %s", shown(filepath.ToSlash(rel)), state)
	}
	if len(r.Editors) > 0 && r.next != "" {
		row("found", "%s", strings.Join(r.Editors, ", "))
	}
	if r.next != "" {
		row("next", "%s", r.next)
	}
}
