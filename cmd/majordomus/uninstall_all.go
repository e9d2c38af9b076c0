package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"majordomus/install"
	editors "majordomus/install/editor"
	"majordomus/install/shell"
	"majordomus/lease"
	"majordomus/lease/checkout"
	"majordomus/server/hub/config"
)

// A trace is one thing that is undone.
type trace struct {
	What string `json:"what"` // editor, service, shell, hook, trust, server, folder or record
	Name string `json:"name"` // which one, as a file, a checkout or an address
	Did  string `json:"did"`  // what became of it, or would
}

// A leftover is one thing that stays.
type leftover struct {
	Name   string `json:"name"`
	Why    string `json:"why"`
	Remedy string `json:"remedy,omitempty"`
	Failed bool   `json:"failed,omitempty"` // it was to go
}

type tracesReport struct {
	Root   string     `json:"root,omitempty"`
	DryRun bool       `json:"dry_run"`
	Undone []trace    `json:"undone"`
	Left   []leftover `json:"left"`
}

// sweep is one run of uninstall --all.
type sweep struct {
	*app
	tracesReport
	purge   bool
	here    *checkout.Checkout // nil outside any
	ledger  *install.Ledger
	entries []install.Entry
}

func (a *app) uninstallAll(ctx context.Context, dry, purge bool) error {
	// All that the log would warn of is named in the report.
	quiet := *a
	quiet.getenv = func(name string) string {
		if name == "MAJORDOMUS_LOG" {
			return cmp.Or(a.getenv(name), "error")
		}
		return a.getenv(name)
	}
	s := &sweep{app: &quiet, purge: purge, tracesReport: tracesReport{DryRun: dry, Undone: []trace{}, Left: []leftover{}}}
	c, err := a.checkout()
	switch {
	case err == nil:
		s.here, s.Root = c, c.Root
	case purge:
		return err // whose folder is to go has to be certain
	case !errors.Is(err, checkout.ErrNone):
		s.failed("this checkout", err)
	}
	if s.ledger, err = installed(); err != nil {
		return err
	}
	if s.entries, err = s.ledger.List(); err != nil {
		s.failed("what cannot be read of the record", err)
	}
	s.editors(ctx)
	s.services(ctx)
	s.lines(ctx)
	s.trust()
	idle := s.server(ctx)
	s.local(idle)
	s.others()
	s.account()
	s.left(s.executable(), "the program itself", "")
	if err := a.report(s.tracesReport, s.print); err != nil {
		return err
	}
	if slices.ContainsFunc(s.Left, func(l leftover) bool { return l.Failed }) {
		return &hintedError{errors.New("not all of it could be undone"), "mend what is named above, and do it again"}
	}
	return nil
}

// did notes what was done, or would be.
func (s *sweep) did(what, name, done, would string) {
	if s.DryRun {
		done = would
	}
	s.Undone = append(s.Undone, trace{what, name, done})
}

func (s *sweep) left(name, why, remedy string) {
	s.Left = append(s.Left, leftover{Name: name, Why: why, Remedy: remedy})
}

// failed notes what was to go and stays.
func (s *sweep) failed(name string, err error) {
	s.Left = append(s.Left, leftover{name, err.Error(), hint(err), true})
}

// editors takes the entry out of every file that is recorded to have it, and out
// of those of this checkout and this person that have it unrecorded.
func (s *sweep) editors(ctx context.Context) {
	d := &editing{app: s.app, editorWords: editorWords{dry: s.DryRun}, ledger: s.ledger, known: s.entries}
	d.machine = editors.Machine{OS: runtime.GOOS, Home: s.home(), Root: s.Root, Getenv: s.getenv}
	type file struct {
		editors.Editor
		path, root string
	}
	var files []file
	for _, e := range s.entries {
		if e.Kind != install.Editor {
			continue
		}
		one, err := editors.Find(e.Name)
		if err != nil {
			s.failed(e.File, err)
			continue
		}
		files = append(files, file{one, e.File, e.Root})
	}
	for _, user := range []bool{false, true} {
		d.user = user
		for _, e := range editors.Known() {
			if !user && (!e.HasProject() || s.here == nil) || user && d.machine.Home == "" {
				continue
			}
			path, root, err := d.file(e)
			if err != nil || slices.ContainsFunc(files, func(f file) bool { return f.path == path }) {
				continue // ignore error: outside any checkout there is no such file
			}
			if c, err := e.Removal(path, root, serverName, "", false); err == nil && c.Writes() {
				files = append(files, file{e, path, root})
			}
		}
	}
	for _, f := range files {
		r, err := d.uninstall(ctx, f.Editor, f.path, f.root)
		switch {
		case err != nil && r.State == editors.Foreign:
			s.failed(f.path, &hintedError{errors.New("its entry " + serverName + " has come to start something else"),
				"majordomus uninstall editor " + f.Name + map[bool]string{true: " --user"}[f.root == ""] + " --force"})
		case err != nil:
			s.failed(f.path, err)
		case r.Gone:
			s.did("editor", f.path, "is gone: it was made for the entry", "would go: it was made for the entry")
		case r.State == editors.Removed:
			s.did("editor", f.path, "has no entry of ours any more", "would lose the entry")
		}
	}
}

// services stops and removes the services of every checkout.
func (s *sweep) services(ctx context.Context) {
	m, err := services(s.logger())
	if err != nil {
		s.failed("services", err)
		return
	}
	list, err := s.servicesToRemove(m, s.ledger, true)
	if err != nil {
		s.failed("services", err)
		return
	}
	for _, e := range list {
		name := cmp.Or(m.File(e.Name), e.Name)
		was, err := m.Installed(e.Name)
		if err == nil && !s.DryRun {
			was, err = m.Uninstall(ctx, e.Name)
		}
		if err == nil && !s.DryRun {
			err = s.ledger.Remove(e)
		}
		switch {
		case err != nil:
			s.failed(name, noManager(err))
		case was:
			s.did("service", name, "is stopped and gone", "would be stopped, and go")
		}
	}
}

// lines takes ours out of the startup files of shells and out of git's hooks.
func (s *sweep) lines(ctx context.Context) {
	var all []install.Entry
	for _, e := range s.entries {
		if e.Kind == install.Shell || e.Kind == install.Hooks {
			all = append(all, e)
		}
	}
	// What is there unrecorded has our marks.
	unrecorded := func(e install.Entry, err error) {
		if err == nil && !slices.ContainsFunc(all, func(o install.Entry) bool { return o.File == e.File }) {
			all = append(all, e)
		}
	}
	for _, name := range shell.Names() {
		l, err := s.shellLines(name)
		unrecorded(l.entry, err)
	}
	if _, err := exec.LookPath("git"); err == nil && s.here != nil {
		l, err := s.hookLines(ctx, false)
		unrecorded(l.entry, err)
	}
	for _, e := range all {
		p, err := linesOf(e).take(s.ledger, s.DryRun)
		what := map[bool]string{true: "hook", false: "shell"}[e.Kind == install.Hooks]
		switch {
		case err != nil:
			s.failed(e.File, broken(e.File, err))
		case p.Removed:
			s.did(what, e.File, "is gone: it was made for the lines", "would go: it was made for the lines")
		case p.Changed:
			s.did(what, e.File, "is as it was before the lines", "would be as it was before the lines")
		}
	}
}

// trust takes trust in this checkout back, and in those that are gone.
func (s *sweep) trust() {
	l, err := ledger()
	if err != nil {
		s.failed("trust", err)
		return
	}
	roots, err := l.Roots()
	if err != nil {
		s.failed("trust", err)
		return
	}
	for _, id := range slices.Sorted(maps.Keys(roots)) {
		root := roots[id]
		if here := s.here != nil && id == s.here.ID; !here && (root == "" || there(root)) {
			continue // others names them
		}
		if !s.DryRun {
			if _, err := l.Revoke(id); err != nil {
				s.failed("trust in "+root, err)
				continue
			}
		}
		s.did("trust", root, "is trusted no more", "would be trusted no more")
	}
}

// server stops this checkout's, and reports whether nobody uses its folder.
func (s *sweep) server(ctx context.Context) (idle bool) {
	if s.here == nil {
		return true
	}
	p, err := s.anyway(s.here, s.logger(), lease.OpenExisting)
	if errors.Is(err, fs.ErrNotExist) {
		return true
	}
	if err != nil {
		s.failed("the server of "+s.Root, err)
		return false
	}
	defer p.close()
	if s.DryRun {
		if at := look(ctx, p); at.State == "serving" {
			s.did("server", at.URL, "", "would be stopped")
			return at.Peers == nil || *at.Peers == 0
		}
		return true
	}
	r, err := s.stop(ctx, p, false, 10*time.Second)
	switch {
	case err != nil:
		s.failed("the server of "+s.Root, &hintedError{err, "`majordomus serve stop --force` cuts what it has in flight"})
		return false
	case r.Was:
		s.did("server", r.URL, "is stopped", "")
	}
	return r.Editor == 0
}

// local removes what is kept in the checkout, if that is wanted.
func (s *sweep) local(idle bool) {
	if s.here == nil {
		return
	}
	// What git has is for those to remove who share it.
	for _, path := range []string{filepath.Join(s.Root, ".ai", "manifest.yaml"), s.here.RepoDir} {
		if there(path) {
			s.left(path, "it belongs to the repository, which git shares", "")
		}
	}
	const attached, remedy = "editors are attached, and start the next server there when they need one", "close them, and do this again"
	switch {
	case !there(s.here.LocalDir):
		return
	case !idle && s.purge:
		s.Left = append(s.Left, leftover{s.here.LocalDir, attached, remedy, true})
		return
	case !idle:
		s.left(s.here.LocalDir, attached, remedy)
		return
	case !s.purge:
		s.left(s.here.LocalDir, "what is kept in this checkout: its key, its log, and whatever else you put there", "majordomus uninstall --all --purge")
		return
	}
	if !s.DryRun {
		if err := removeBelow(s.Root, s.here.LocalDir); err != nil {
			s.failed(s.here.LocalDir, err)
			return
		}
	}
	s.did("folder", s.here.LocalDir, "is gone", "would go")
}

// removeBelow removes a folder below root, and one above it that is empty then.
// No link leads it out of root.
func removeBelow(root, dir string) error {
	rel, err := filepath.Rel(root, dir)
	if err != nil || !filepath.IsLocal(rel) || rel == "." {
		return fmt.Errorf("removing %s: it is not below %s", dir, root)
	}
	r, err := os.OpenRoot(root)
	if err != nil {
		return fmt.Errorf("removing %s: %w", dir, err)
	}
	defer r.Close() // ignore error: only a handle on a folder
	if err := r.RemoveAll(rel); err != nil {
		return fmt.Errorf("removing %s: %w", dir, err)
	}
	if above := filepath.Dir(rel); above != "." {
		r.Remove(above) // ignore error: something is in it
	}
	return nil
}

// others names what other checkouts have.
func (s *sweep) others() {
	var seen []*checkout.Checkout
	if s.here != nil {
		seen = []*checkout.Checkout{s.here}
	}
	list := s.known(seen)
	if s.here != nil {
		trees, _ := s.here.Worktrees() // ignore error: those that there are
		for _, c := range trees {
			same := func(o *checkout.Checkout) bool { return o.ID == c.ID }
			if c.ID != s.here.ID && !slices.ContainsFunc(list, same) {
				list = append(list, c)
			}
		}
	}
	roots := map[string]string{}
	if l, err := ledger(); err == nil {
		roots, _ = l.Roots() // ignore error: trust says it
	}
	for _, c := range list {
		var has []string
		if there(c.LocalDir) {
			has = append(has, "its own folder "+c.LocalDir)
		}
		if _, trusted := roots[c.ID]; trusted {
			has = append(has, "your trust")
		}
		if _, kept := lease.Kept(c); kept {
			has = append(has, "perhaps a server")
		}
		if len(has) > 0 {
			s.left(c.Root, "another checkout, which has "+strings.Join(has, " and "), "majordomus uninstall --all --purge --root "+word(c.Root))
		}
	}
}

// account removes what the account keeps and nobody needs any more.
func (s *sweep) account() {
	dir := s.ledger.Dir()
	backups := filepath.Join(dir, "backups")
	if there(backups) {
		switch failed := slices.ContainsFunc(s.Left, func(l leftover) bool { return l.Failed }); {
		case !s.purge:
			s.left(backups, "files as they were before an entry or lines were put into them, or taken out", "majordomus uninstall --all --purge")
		case failed:
			s.left(backups, "not all of it is undone", "")
		default:
			var err error
			if !s.DryRun {
				err = os.RemoveAll(backups)
			}
			if err != nil {
				s.failed(backups, err)
			} else {
				s.did("folder", backups, "is gone", "would go")
			}
		}
	}
	if s.DryRun {
		return
	}
	s.forgetServed()
	if r, err := register(); err == nil && s.here != nil {
		if err := r.Remove(s.here.ID); err != nil {
			s.failed("the record of "+s.Root, err)
		}
	}
	for _, name := range []string{"trust", "installed", "served"} {
		os.Remove(filepath.Join(dir, name)) // ignore error: something is in it
	}
	if !there(filepath.Join(dir, "installed")) {
		os.Remove(filepath.Join(dir, "installed.lock")) // ignore error: it is named below
	}
	// The folders above may have been made for this one.
	home := filepath.Dir(dir)
	for home != filepath.Dir(home) && filepath.Dir(config.TrustDir(home)) != dir {
		home = filepath.Dir(home)
	}
	for at := dir; at != home && at != filepath.Dir(at); at = filepath.Dir(at) {
		if os.Remove(at) != nil { // ignore error: something is in it
			break
		}
	}
	rest, err := os.ReadDir(dir)
	if err != nil {
		return // ignore error: it is gone, or nothing of it can be told
	}
	for _, e := range rest {
		if path := filepath.Join(dir, e.Name()); path != backups {
			s.left(path, "it holds what is named above, or is not ours", "")
		}
	}
}

func (t tracesReport) print(w io.Writer) {
	row := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%-10s %s\n", name, fmt.Sprintf(format, args...))
	}
	if t.Root != "" {
		row("checkout", "%s", shown(t.Root))
	}
	for _, u := range t.Undone {
		row(u.What, "%s %s", shown(u.Name), u.Did)
	}
	if len(t.Undone) == 0 {
		row("undone", "nothing was installed")
	}
	for _, l := range t.Left {
		name := "left"
		if l.Failed {
			name = "FAILED"
		}
		row(name, "%s: %s", shown(l.Name), l.Why)
		if l.Remedy != "" {
			row("", "%s", l.Remedy)
		}
	}
}
