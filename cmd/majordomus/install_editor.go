package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"majordomus/install"
	editors "majordomus/install/editor"
	"majordomus/lease/checkout"
)

// serverName is what the entry is called in every editor.
const serverName = "majordomus"

// editorWords are the flags of install and uninstall editor.
type editorWords struct {
	all, user, dry, force, list bool
}

func (a *app) installEditorCommand() *cobra.Command {
	var w editorWords
	cmd := &cobra.Command{
		Use:   "editor [NAME]...",
		Short: "Have editors start majordomus",
		Long: `Put an entry that starts "majordomus mcp" into the configuration of editors:
` + wrapped(editorNames()) + `.

It goes into the editor's file in this checkout, which is shared through git
with all who work in it; with --user, and for editors that have none, into your
own. In a shared file the program is named without its folder, where editors
will find it like that.

All else in a file stays byte for byte. The file as it was is kept in the
account's folder, and "majordomus uninstall editor" undoes it to the byte. A
file that cannot be read for certain is left alone. An entry of the same name
that starts something else is replaced only when you say so, or with --force.

Without a name it shows which editors are here and asks. --all means them.`,
		ValidArgs: editorNames(), // completed; choose says which there are
		RunE: func(cmd *cobra.Command, names []string) error {
			return a.installEditors(cmd.Context(), names, w)
		},
	}
	w.flags(cmd, "all editors that are found here", "replace an entry of the name that starts something else")
	cmd.Flags().BoolVar(&w.list, "list", false, "only show which editors are found here")
	return cmd
}

func (a *app) uninstallEditorCommand() *cobra.Command {
	var w editorWords
	cmd := &cobra.Command{
		Use:   "editor [NAME]...",
		Short: "Take the entry out of editors' files",
		Long: `Undo what "majordomus install editor" did in this checkout, or with --user in
your own files. A file that nobody has edited since is as it was before, to the
byte; from another only the entry goes. A file or folder that was made for the
entry goes with it, unless something else is in it.

Without a name it shows what there is to undo and asks. --all means all of it.`,
		ValidArgs: editorNames(), // completed; choose says which there are
		RunE: func(cmd *cobra.Command, names []string) error {
			return a.uninstallEditors(cmd.Context(), names, w)
		},
	}
	w.flags(cmd, "all editors that have the entry", "take out an entry of the name that starts something else")
	return cmd
}

func (w *editorWords) flags(cmd *cobra.Command, all, force string) {
	cmd.Flags().BoolVar(&w.all, "all", false, all)
	cmd.Flags().BoolVar(&w.user, "user", false, "your own files instead of the checkout's")
	cmd.Flags().BoolVar(&w.dry, "dry-run", false, "only show what would be done")
	cmd.Flags().BoolVar(&w.force, "force", false, force)
}

func editorNames() []string {
	var names []string
	for _, e := range editors.Known() {
		names = append(names, e.Name)
	}
	return names
}

// wrapped is a list in lines as a help text has them.
func wrapped(list []string) string { return strings.Join(list, ", ") }

// An editorReport is what became of one editor.
type editorReport struct {
	Name  string   `json:"name"`
	Title string   `json:"title"`
	File  string   `json:"file,omitempty"`
	User  bool     `json:"user"`            // the file is the person's own, not the checkout's
	Found []string `json:"found,omitempty"` // what speaks for it being here
	// State is added, replaced, right (nothing to do), removed, absent, foreign
	// (another's entry, which stays) or failed; with dry_run what it would be.
	State  string `json:"state,omitempty"`
	New    bool   `json:"new,omitempty"`  // the file was made
	Gone   bool   `json:"gone,omitempty"` // the file has gone: it had been made for the entry
	Diff   string `json:"diff,omitempty"`
	Backup string `json:"backup,omitempty"` // of the file as it was
	Error  string `json:"error,omitempty"`

	next string // for people
	dry  bool
	asks bool // what is replaced may be another's
}

type editorsReport struct {
	Root     string         `json:"root,omitempty"`
	DryRun   bool           `json:"dry_run"`
	Command  string         `json:"command,omitempty"` // in the entries
	Editors  []editorReport `json:"editors"`
	Warnings []string       `json:"warnings"`
}

// editing is one run of install or uninstall editor.
type editing struct {
	*app
	editorWords
	machine editors.Machine
	ledger  *install.Ledger
	known   []install.Entry // what the ledger has
	paths   []string        // folders in which editors find programs
}

func (a *app) editing(w editorWords, names []string) (*editing, error) {
	if w.all && len(names) > 0 {
		return nil, wrongWords(errors.New("name editors or say --all, not both"))
	}
	d := &editing{app: a, editorWords: w}
	var err error
	if d.ledger, err = installed(); err != nil {
		return nil, err
	}
	d.read()
	d.machine = editors.Machine{OS: runtime.GOOS, Home: a.home(), Getenv: a.getenv}
	if d.machine.Home == "" {
		return nil, errors.New("finding the editors' files: HOME is not set")
	}
	c, err := a.checkout()
	switch {
	case err == nil:
		d.machine.Root = c.Root
	case !errors.Is(err, checkout.ErrNone):
		return nil, err
	}
	return d, nil
}

// choose returns the editors of names.
func (d *editing) choose(names []string) ([]editors.Editor, error) {
	var list []editors.Editor
	for i, name := range names {
		e, err := editors.Find(name)
		if err != nil {
			return nil, wrongWords(err)
		}
		if !slices.Contains(names[:i], name) {
			list = append(list, e)
		}
	}
	return list, nil
}

// file is the editor's file that is meant, and the checkout it belongs to.
func (d *editing) file(e editors.Editor) (path, root string, err error) {
	if d.user || !e.HasProject() {
		return e.File(d.machine, true), "", nil
	}
	if d.machine.Root == "" {
		return "", "", &hintedError{checkout.ErrNone, "run it inside a checkout, or with --user for your own files"}
	}
	return e.File(d.machine, false), d.machine.Root, nil
}

func (d *editing) report(e editors.Editor, path, root string) editorReport {
	return editorReport{Name: e.Name, Title: e.Title, File: path, User: root == "", dry: d.dry}
}

// editorPaths are the folders in which editors find programs, wherever they are
// started from.
func (a *app) editorPaths(ctx context.Context) []string {
	return slices.Concat(filepath.SplitList(a.loginPath(ctx)), filepath.SplitList(usualPath))
}

// lookIn finds a program in folders.
func lookIn(folders []string, program string) string {
	if runtime.GOOS == "windows" {
		program += ".exe"
	}
	for _, dir := range folders {
		path := filepath.Join(dir, program)
		if info, err := os.Stat(path); filepath.IsAbs(dir) && err == nil && info.Mode().IsRegular() && (runtime.GOOS == "windows" || info.Mode().Perm()&0o111 != 0) {
			return path
		}
	}
	return ""
}

// server is what editors are to start, and what a person should know of that.
// shared says that others read the file, too.
func (d *editing) server(shared bool) (s editors.Server, warning string) {
	exe := d.executable()
	found := lookIn(d.paths, "majordomus")
	if sameFile(found, d.started.Path) {
		exe = found
	}
	s = editors.Server{Name: serverName, Command: exe, Args: []string{"mcp"}}
	switch {
	case !shared && sameFile(found, exe):
		s.Also = []string{"majordomus"}
	case !shared:
	case found == "":
		s.Also = []string{"majordomus"}
		warning = fmt.Sprintf("majordomus is not on the PATH that editors have, so a file that is shared through git names %s, which others do not have; put it into a folder of that PATH and run this again", exe)
	default:
		s.Command = "majordomus"
		if !sameFile(found, d.started.Path) {
			warning = fmt.Sprintf("on the PATH that editors have, majordomus is %s, another file than this one", found)
		}
	}
	return s, warning
}

func (a *app) installEditors(ctx context.Context, names []string, w editorWords) error {
	d, err := a.editing(w, names)
	if err != nil {
		return err
	}
	if w.list && (w.all || w.dry || len(names) > 0) {
		return wrongWords(errors.New("--list only shows what is found; nothing else goes with it"))
	}
	if strings.Contains(filepath.ToSlash(a.started.Path), "/go-build") {
		return &exitError{exitMissing, &hintedError{fmt.Errorf("%s is a temporary file that editors will not find", a.started.Path), "build it to stay: go build -o ~/bin/majordomus ./cmd/majordomus"}}
	}
	d.paths = a.editorPaths(ctx)
	chosen, err := d.choose(names)
	if err != nil {
		return err
	}
	if len(names) == 0 {
		found := d.found()
		if w.list {
			return a.report(editorsReport{Root: d.machine.Root, Editors: found, Warnings: []string{}}, func(w io.Writer) { printFound(w, found) })
		}
		if len(found) == 0 {
			return &exitError{exitMissing, &hintedError{errors.New("no editor was found here"), "name one: " + wrapped(editorNames())}}
		}
		if !w.all && !w.dry {
			if err := d.offer(ctx, found); err != nil {
				return err
			}
		}
		for _, r := range found {
			names = append(names, r.Name)
		}
		if chosen, err = d.choose(names); err != nil {
			return err
		}
	}
	r := editorsReport{Root: d.machine.Root, DryRun: w.dry, Editors: []editorReport{}, Warnings: []string{}}
	var errs []error
	for _, e := range chosen {
		one, warning, err := d.install(ctx, e)
		if err != nil {
			one.State, one.Error = "failed", err.Error()
			errs = append(errs, err)
		} else if warning != "" && !slices.Contains(r.Warnings, warning) {
			r.Warnings = append(r.Warnings, warning)
		}
		r.Editors = append(r.Editors, one)
	}
	return d.finish(r, errs)
}

// offer shows what was found, and asks.
func (d *editing) offer(ctx context.Context, found []editorReport) error {
	if d.format != "json" {
		printFound(d.out, found)
	} else if err := d.app.report(editorsReport{Root: d.machine.Root, DryRun: true, Editors: found, Warnings: []string{}}, nil); err != nil {
		return err
	}
	if !isTerminal(d.in) || d.format == "json" {
		return &exitError{exitWords, &hintedError{errors.New("there is no terminal to ask on, so nothing was done"), "name the editors, or say --all"}}
	}
	return d.askOr(ctx, "have all of these start majordomus?", "name the editors, or say --all")
}

// found is the editors that are here.
func (d *editing) found() []editorReport {
	list := []editorReport{}
	look := slices.Concat(filepath.SplitList(d.getenv("PATH")), d.paths)
	for _, e := range editors.Known() {
		traces := e.Traces(d.machine, func(program string) string { return lookIn(look, program) })
		if len(traces) == 0 {
			continue
		}
		path, root, err := d.file(e)
		if err != nil {
			path, root = "", "" // outside any checkout: said when it is asked for
		}
		one := d.report(e, path, root)
		one.Found, one.User = traces, d.user || !e.HasProject()
		list = append(list, one)
	}
	return list
}

func printFound(w io.Writer, found []editorReport) {
	if len(found) == 0 {
		fmt.Fprintln(w, "no editor was found here")
	}
	for _, f := range found {
		list := make([]string, len(f.Found))
		for i, path := range f.Found {
			list[i] = shown(path)
		}
		fmt.Fprintf(w, "%-10s %s\n", f.Name, strings.Join(list, ", "))
	}
}

// tries is how often a change is planned when others change the file meanwhile,
// as editors that run do with their own.
const tries = 5

// install puts the entry into one editor's file.
func (d *editing) install(ctx context.Context, e editors.Editor) (r editorReport, warning string, err error) {
	path, root, err := d.file(e)
	if err != nil {
		return d.report(e, path, root), "", err
	}
	s, warning := d.server(root != "")
	for n := 1; ; n++ {
		r, alone, err := d.installOnce(ctx, e, path, root, s)
		if errors.Is(err, editors.ErrChanged) && n < tries {
			continue
		}
		if alone {
			warning = "majordomus is not on the PATH that editors have, so those may not find it which name it without its folder"
		}
		return r, warning, err
	}
}

// installOnce also reports whether the entry is right and names the program
// without a folder, though it is in none that editors look in.
func (d *editing) installOnce(ctx context.Context, e editors.Editor, path, root string, s editors.Server) (r editorReport, alone bool, err error) {
	r = d.report(e, path, root)
	unlock, err := d.alone(ctx)
	if err != nil {
		return r, false, err
	}
	defer unlock()
	entry, past := d.recorded(e.Name, path, root)
	c, err := e.Plan(path, root, s, past)
	if err != nil {
		return r, false, err
	}
	r.take(c)
	if r.next = e.ForUser; root != "" {
		r.next = e.InProject
	}
	if !c.Writes() {
		return r, c.Command == "majordomus" && lookIn(d.paths, c.Command) == "", nil
	}
	if c.Asks && !d.force && !d.dry {
		if err := d.replace(ctx, r, c.Line); err != nil {
			return r, false, err
		}
	}
	if d.dry {
		return r, false, nil
	}
	// Recorded first: an entry in a file that nothing is known of would stay.
	now := entry
	now.Undo = c.Record()
	if err := d.ledger.Add(now); err != nil {
		return r, false, err
	}
	if r.Backup, err = c.Commit(d.ledger.Backup); err != nil {
		back := d.ledger.Remove
		if past != "" {
			back = d.ledger.Add
		}
		err = errors.Join(err, back(entry))
	}
	return r, false, err
}

// alone keeps other processes of ours from doing the same meanwhile, and reads
// what they have recorded. Who only looks keeps nobody.
func (d *editing) alone(ctx context.Context) (unlock func(), err error) {
	if d.dry {
		return func() {}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if unlock, err = d.ledger.Lock(ctx); err != nil {
		return nil, err
	}
	d.read()
	return unlock, nil
}

// read reads what is recorded. What cannot be read counts as unknown.
func (d *editing) read() {
	var err error
	if d.known, err = d.ledger.List(); err != nil {
		d.logger().Warn("going on without a part of what is recorded", "because", err)
	}
}

// replace asks whether another entry of the name may go.
func (d *editing) replace(ctx context.Context, r editorReport, line int) error {
	there := fmt.Errorf("%s:%d: key %s starts something else, and stays", r.File, line, serverName)
	const hint = "--force replaces it; what was there comes back with majordomus uninstall editor"
	if !isTerminal(d.in) {
		return &exitError{exitWords, &hintedError{there, hint}}
	}
	fmt.Fprintf(d.err, "%-10s %s:%d has another entry %s\n%s", r.Name, shown(r.File), line, serverName, r.Diff)
	return d.askOr(ctx, "replace it?", hint)
}

// recorded is the ledger's entry for an editor's file, and what it says.
func (d *editing) recorded(name, path, root string) (install.Entry, string) {
	for _, e := range d.known {
		if e.Kind == install.Editor && e.Name == name && e.File == path && e.Root == root {
			return e, e.Undo
		}
	}
	return install.Entry{Kind: install.Editor, Name: name, File: path, Root: root}, ""
}

// others are the files of an editor that are recorded, and there, and that it
// would not read now: a variable has led it elsewhere, or another file has come before them.
func (d *editing) others(e editors.Editor, path, root string) []string {
	var list []string
	for _, known := range d.known {
		if known.Kind == install.Editor && known.Name == e.Name && known.Root == root && known.File != path && there(known.File) {
			list = append(list, known.File)
		}
	}
	return list
}

// take notes what a change does.
func (r *editorReport) take(c *editors.Change) {
	var b bytes.Buffer
	c.WriteDiff(&b)
	r.State, r.Diff, r.New, r.Gone = c.State, b.String(), c.Writes() && c.New(), c.Vanishes()
	r.asks = c.Asks
}

func (a *app) uninstallEditors(ctx context.Context, names []string, w editorWords) error {
	d, err := a.editing(w, names)
	if err != nil {
		return err
	}
	chosen, err := d.choose(names)
	if err != nil {
		return err
	}
	if len(names) == 0 {
		found, err := d.present()
		if err != nil {
			return err
		}
		if len(found) > 0 && !w.all && !w.dry {
			if a.format != "json" {
				for _, r := range found {
					fmt.Fprintf(a.out, "%-10s %s\n", r.Name, shown(r.File))
				}
			} else if err := a.report(editorsReport{Root: d.machine.Root, DryRun: true, Editors: found, Warnings: []string{}}, nil); err != nil {
				return err
			}
			const hint = "name the editors, or say --all"
			if !isTerminal(a.in) || a.format == "json" {
				return &exitError{exitWords, &hintedError{errors.New("there is no terminal to ask on, so nothing was done"), hint}}
			}
			if err := a.askOr(ctx, "take majordomus out of all of these?", hint); err != nil {
				return err
			}
		}
		for _, r := range found {
			names = append(names, r.Name)
		}
		if chosen, err = d.choose(names); err != nil {
			return err
		}
	}
	r := editorsReport{Root: d.machine.Root, DryRun: w.dry, Editors: []editorReport{}, Warnings: []string{}}
	var errs []error
	for _, e := range chosen {
		path, root, err := d.file(e)
		if err != nil {
			one := d.report(e, path, root)
			one.State, one.Error = "failed", err.Error()
			r.Editors, errs = append(r.Editors, one), append(errs, err)
			continue
		}
		for _, path := range append([]string{path}, d.others(e, path, root)...) {
			one, err := d.uninstall(ctx, e, path, root)
			if err != nil {
				one.State, one.Error = "failed", err.Error()
				errs = append(errs, err)
			}
			r.Editors = append(r.Editors, one)
		}
	}
	return d.finish(r, errs)
}

// present is the editors that have the entry, or are recorded to.
func (d *editing) present() ([]editorReport, error) {
	list := []editorReport{}
	for _, e := range editors.Known() {
		path, root, err := d.file(e)
		if err != nil {
			return nil, err
		}
		_, past := d.recorded(e.Name, path, root)
		c, err := e.Removal(path, root, serverName, past, d.force)
		one := d.report(e, path, root)
		switch {
		case err == nil && c.Writes():
			one.take(c)
		case past == "" && len(d.others(e, path, root)) == 0:
			continue // whatever is wrong with that file, nothing of ours is known to be in it
		}
		list = append(list, one)
	}
	return list, nil
}

// uninstall takes the entry out of one editor's file, and forgets it.
func (d *editing) uninstall(ctx context.Context, e editors.Editor, path, root string) (r editorReport, err error) {
	for n := 1; ; n++ {
		r, err = d.uninstallOnce(ctx, e, path, root)
		if !errors.Is(err, editors.ErrChanged) || n == tries {
			return r, err
		}
	}
}

func (d *editing) uninstallOnce(ctx context.Context, e editors.Editor, path, root string) (editorReport, error) {
	r := d.report(e, path, root)
	unlock, err := d.alone(ctx)
	if err != nil {
		return r, err
	}
	defer unlock()
	entry, past := d.recorded(e.Name, path, root)
	if root != "" && !there(root) {
		r.State = editors.Absent // the checkout has gone, and the file with it
	} else {
		c, err := e.Removal(path, root, serverName, past, d.force)
		if err != nil {
			return r, err
		}
		r.take(c)
		if c.State == editors.Foreign {
			return r, &hintedError{fmt.Errorf("%s:%d: key %s starts something else, and stays", path, c.Line, serverName), "--force takes it out"}
		}
		if d.dry {
			return r, nil
		}
		if r.Backup, err = c.Commit(d.ledger.Backup); err != nil {
			return r, err
		}
	}
	if d.dry {
		return r, nil
	}
	return r, d.ledger.Remove(entry)
}

// finish reports, and returns what went wrong.
func (d *editing) finish(r editorsReport, errs []error) error {
	err := d.app.report(r, func(w io.Writer) {
		for _, e := range r.Editors {
			e.print(w)
		}
		for _, text := range r.Warnings {
			fmt.Fprintf(w, "%-10s %s\n", "warning", text)
		}
		if len(r.Editors) == 0 {
			fmt.Fprintln(w, "no editor has the entry")
		}
	})
	return errors.Join(append(errs, err)...)
}

func (r editorReport) print(w io.Writer) {
	row := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%-10s %s\n", name, fmt.Sprintf(format, args...))
	}
	would := func(did, would string) string {
		if r.dry {
			return would
		}
		return did
	}
	file := shown(r.File)
	switch r.State {
	case editors.Added:
		row(r.Name, "%s %s", file, would("was ", "would be ")+map[bool]string{true: "made", false: "changed"}[r.New])
	case editors.Replaced:
		why := "the program is elsewhere than before"
		if r.asks {
			why = "it has another entry of the name"
		}
		row(r.Name, "%s %s: %s", file, would("was changed", "would be changed"), why)
	case editors.Right:
		row(r.Name, "%s is right already", file)
	case editors.Removed:
		if r.Gone {
			row(r.Name, "%s %s: it was made for the entry", file, would("is gone", "would go"))
		} else {
			row(r.Name, "%s %s", file, would("was changed", "would be changed"))
		}
	case editors.Absent:
		row(r.Name, "%s has no entry of ours", file)
	default:
		return // the error says it
	}
	for line := range strings.Lines(r.Diff) {
		fmt.Fprintf(w, "%-10s %s", "", line)
	}
	if r.Backup != "" {
		row("backup", "%s", shown(r.Backup))
	}
	if r.next != "" && !r.dry && (r.State == editors.Added || r.State == editors.Replaced) {
		row("next", "%s", r.next)
	}
}
