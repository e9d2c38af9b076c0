package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"majordomus/install"
	"majordomus/install/shell"
	"majordomus/lease/checkout"
)

// placed is what became of lines of ours in a file of somebody else's.
type placed struct {
	Name    string `json:"name"`
	File    string `json:"file"`
	Changed bool   `json:"changed"`
	Made    bool   `json:"made,omitempty"`    // the file was not there
	Removed bool   `json:"removed,omitempty"` // it had been made for the lines
	Lines   string `json:"lines,omitempty"`
	Backup  string `json:"backup,omitempty"` // of the file as it was
	DryRun  bool   `json:"dry_run,omitempty"`
	next    string // for people
}

// lines are what is to be in a file.
type lines struct {
	entry  install.Entry
	place  shell.Place
	first  string // what a file that is made begins with
	text   string
	undo   string      // the word that takes them out
	mode   fs.FileMode // of a file that is made
	folder bool        // the file's folder may have been made for it
	next   string
}

func (a *app) installShellCommand() *cobra.Command {
	var dry bool
	cmd := &cobra.Command{
		Use:   "shell [bash|zsh|fish|direnv]...",
		Short: "Let a shell enter checkouts by itself",
		Long: `Put a line into the startup file of a shell that loads its hook: ~/.bashrc,
~/.zshrc (or in ZDOTDIR), ~/.config/fish/config.fish. With direnv, a line goes
into the .envrc of this checkout, for which direnv asks you once. Without a name
it is the shell that SHELL names.

The lines stand between marks; doing it again changes nothing, and
"majordomus uninstall shell" takes them out to the byte. The file as it was is
kept in the account's folder.`,
		Args:      cobra.OnlyValidArgs,
		ValidArgs: shell.Names(),
		RunE: func(_ *cobra.Command, names []string) error {
			if len(names) == 0 {
				own := filepath.Base(a.getenv("SHELL"))
				if !slices.Contains(shell.Names(), own) {
					return wrongWords(fmt.Errorf("which shell? SHELL names none of %s", strings.Join(shell.Names(), ", ")))
				}
				names = []string{own}
			}
			var all []lines
			for _, name := range names {
				l, err := a.shellLines(name)
				if err != nil {
					return err
				}
				all = append(all, l)
			}
			return a.putAll(all, dry)
		},
	}
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only show what would be done")
	return cmd
}

func (a *app) uninstallShellCommand() *cobra.Command {
	var dry bool
	cmd := &cobra.Command{
		Use:   "shell [bash|zsh|fish|direnv]...",
		Short: "Take the lines out of the startup files of shells",
		Long: `Take out what "majordomus install shell" put into the startup files of shells
and into the .envrc of this checkout; without a name, out of all of them. A file
that was made for the lines goes with them.`,
		Args:      cobra.OnlyValidArgs,
		ValidArgs: shell.Names(),
		RunE: func(_ *cobra.Command, names []string) error {
			every := len(names) == 0
			if every {
				names = shell.Names()
			}
			var all []lines
			for _, name := range names {
				l, err := a.shellLines(name)
				if every && errors.Is(err, checkout.ErrNone) {
					continue
				}
				if err != nil {
					return err
				}
				all = append(all, linesOf(l.entry))
			}
			return a.takeAll(all, every, dry)
		},
	}
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only show what would be done")
	return cmd
}

// shellLines are what goes into the startup file of a shell.
func (a *app) shellLines(name string) (lines, error) {
	sh, ok := shell.Named(name)
	if !ok {
		return lines{}, wrongWords(fmt.Errorf("no shell %q: only %s are known", name, strings.Join(shell.Names(), ", ")))
	}
	l := lines{entry: install.Entry{Kind: install.Shell, Name: name}, undo: "majordomus uninstall shell " + name, mode: 0o644}
	exe := a.executable()
	if name == "direnv" {
		c, err := a.checkout()
		if err != nil {
			return l, err
		}
		if found, err := exec.LookPath("majordomus"); err == nil && sameFile(found, exe) {
			exe = "majordomus" // the file is often shared
		}
		l.entry.File, l.entry.Root = filepath.Join(c.Root, ".envrc"), c.Root
		l.text, l.next = sh.Line(exe), "direnv allow "+word(c.Root)
		return l, nil
	}
	home := a.home()
	if home == "" {
		return l, errors.New("finding the startup file: HOME is not set")
	}
	l.text, l.next = sh.Line(exe), "open a new shell: it reads the line at its start"
	switch name {
	case "bash":
		l.entry.File = filepath.Join(home, ".bashrc")
		// Terminals of macOS start login shells, which read another file.
		if login := filepath.Join(home, ".bash_profile"); runtime.GOOS == "darwin" && (there(login) || !there(l.entry.File)) {
			l.entry.File = login
		}
	case "zsh":
		if dir := a.getenv("ZDOTDIR"); filepath.IsAbs(dir) {
			home = dir
		}
		l.entry.File = filepath.Join(home, ".zshrc")
	case "fish":
		dir := a.getenv("XDG_CONFIG_HOME")
		if !filepath.IsAbs(dir) {
			dir = filepath.Join(home, ".config")
		}
		l.entry.File = filepath.Join(dir, "fish", "config.fish")
	}
	return l, nil
}

func there(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// linesOf is what is needed to take out what was recorded as e, from wherever.
func linesOf(e install.Entry) lines {
	l := lines{entry: e, folder: e.Name == "fish"}
	if e.Kind == install.Hooks {
		l.first, l.folder = hookStart, true
	}
	return l
}

// putAll puts lines into files and reports that, below what was found done.
func (a *app) putAll(all []lines, dry bool, found ...placed) error {
	ledger, err := installed()
	if err != nil {
		return err
	}
	done := append([]placed{}, found...)
	for _, l := range all {
		p, err := l.put(ledger, dry)
		if err != nil {
			return broken(l.entry.File, err)
		}
		done = append(done, p)
	}
	return a.report(map[string]any{"installed": done}, func(w io.Writer) {
		for _, p := range done {
			p.print(w)
		}
	})
}

func (a *app) takeAll(all []lines, every, dry bool) error {
	ledger, err := installed()
	if err != nil {
		return err
	}
	done := []placed{}
	for _, l := range all {
		p, err := l.take(ledger, dry)
		if err != nil {
			return broken(l.entry.File, err)
		}
		if !every || p.Changed {
			done = append(done, p)
		}
	}
	return a.report(map[string]any{"uninstalled": done}, func(w io.Writer) {
		for _, p := range done {
			p.print(w)
		}
		if len(done) == 0 {
			fmt.Fprintln(w, "no lines are in any startup file")
		}
	})
}

// broken adds what a person can do about marks that are not whole.
func broken(file string, err error) error {
	if b := (*shell.BrokenError)(nil); errors.As(err, &b) {
		return &hintedError{fmt.Errorf("%s, %w: nothing was changed", file, err), "take the lines between the marks out by hand, and the marks, and do it again"}
	}
	return err
}

// put puts the lines into their file, and records that; dry only looks.
func (l lines) put(ledger *install.Ledger, dry bool) (placed, error) {
	p := placed{Name: l.entry.Name, File: l.entry.File, Lines: l.text, DryRun: dry, next: l.next}
	f, err := shell.Read(l.entry.File)
	if err != nil {
		return p, err
	}
	f.Made(l.mode)
	text, err := shell.Put(f.Text, l.place, l.first, l.text, l.undo)
	if err != nil {
		return p, err
	}
	p.Made, p.Changed = f.Text == nil, f.Text == nil || string(text) != string(f.Text)
	if dry {
		return p, nil
	}
	if p.Changed {
		if f.Text != nil {
			if p.Backup, err = ledger.Backup(f.Path, f.Text); err != nil {
				return p, err
			}
		}
		if err := f.Write(text); err != nil {
			return p, err
		}
	}
	return p, ledger.Add(l.entry)
}

// take takes the lines out of their file, and forgets them.
func (l lines) take(ledger *install.Ledger, dry bool) (placed, error) {
	p := placed{Name: l.entry.Name, File: l.entry.File, DryRun: dry}
	f, err := shell.Read(l.entry.File)
	if err != nil {
		return p, err
	}
	there, err := shell.Has(f.Text)
	if err != nil {
		return p, err
	}
	if there {
		text, err := shell.Take(f.Text, l.first)
		if err != nil {
			return p, err
		}
		p.Changed, p.Removed = true, text == nil
		if dry {
			return p, nil
		}
		if !p.Removed {
			if p.Backup, err = ledger.Backup(f.Path, f.Text); err != nil {
				return p, err
			}
		}
		if err := f.Write(text); err != nil {
			return p, err
		}
		if p.Removed && l.folder {
			os.Remove(filepath.Dir(f.Real)) // ignore error: something else is in it
		}
	}
	if dry {
		return p, nil
	}
	return p, ledger.Remove(l.entry)
}

func (p placed) print(w io.Writer) {
	row := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%-10s %s\n", name, fmt.Sprintf(format, args...))
	}
	would := func(did, would string) string {
		if p.DryRun {
			return would
		}
		return did
	}
	file := shown(p.File)
	switch {
	case !p.Changed && p.Lines != "":
		row(p.Name, "%s has the lines already", file)
		return
	case !p.Changed:
		row(p.Name, "%s has no lines of ours", file)
		return
	case p.Lines == "" && p.Removed:
		row(p.Name, "%s %s: it was made for the lines", file, would("is gone", "would go"))
		return
	case p.Lines == "":
		row(p.Name, "%s %s as it was before the lines", file, would("is", "would be"))
	case p.Made:
		row(p.Name, "%s %s", file, would("was made", "would be made"))
	default:
		row(p.Name, "%s %s", file, would("was changed", "would be changed"))
	}
	for line := range strings.Lines(p.Lines) {
		row("line", "%s", strings.TrimSuffix(line, "\n"))
	}
	if p.Backup != "" {
		row("backup", "%s", shown(p.Backup))
	}
	if p.next != "" && !p.DryRun {
		row("next", "%s", p.next)
	}
}
