package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"majordomus/install"
	editors "majordomus/install/editor"
	"majordomus/install/service"
	"majordomus/install/shell"
	"majordomus/lease"
	"majordomus/lease/checkout"
	"majordomus/server/hub"
	"majordomus/server/hub/config"
)

func (a *app) doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Check what majordomus needs here, and say what to do about what is wrong",
		Long: `Check what majordomus needs in this checkout and on this account: one line for
each check, and below it what to do where something is wrong. It only looks, and
starts nothing; whether locks work is tried with a file of its own that it
removes.

"warn" is something that works less well than it should, "FAIL" something that
does not work. The exit code is 10 when there is either, else 0. What is optional
and not there is well.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d := a.diagnose(cmd.Context())
			if err := a.report(map[string]any{"checks": d.checks}, d.print); err != nil {
				return err
			}
			if d.wrong() > 0 {
				return &exitError{code: exitNo}
			}
			return nil
		},
	}
}

// How a check can end.
const (
	well = "ok"
	warn = "warn"
	bad  = "fail"
)

// A check is what was found of one thing, and what to do about it.
type check struct {
	ID      string `json:"id"`
	Status  string `json:"status"` // ok, warn or fail
	Message string `json:"message"`
	Remedy  string `json:"remedy,omitempty"`
}

func ok(format string, args ...any) check {
	return check{Status: well, Message: fmt.Sprintf(format, args...)}
}

func warning(remedy, format string, args ...any) check {
	return check{Status: warn, Message: fmt.Sprintf(format, args...), Remedy: remedy}
}

func failing(remedy, format string, args ...any) check {
	return check{Status: bad, Message: fmt.Sprintf(format, args...), Remedy: remedy}
}

// worst is one check of several: the first of the worst, or all that is well.
func worst(list ...check) check {
	rank := []string{well, warn, bad}
	slices.SortStableFunc(list, func(a, b check) int {
		return slices.Index(rank, b.Status) - slices.Index(rank, a.Status)
	})
	one := list[0]
	for _, c := range list[1:] {
		if c.Status == one.Status {
			one.Message += "; " + c.Message
			one.Remedy = cmp.Or(one.Remedy, c.Remedy)
		}
	}
	return one
}

// diagnosis is one run of doctor.
type diagnosis struct {
	*app
	checks []check

	here    *checkout.Checkout // nil outside any
	place   place
	at      standing
	found   lease.File       // the lease as it is
	outcome lease.ProbeReply // of who answers at its address, where it has one
	paths   []string         // folders in which editors find programs
	ledger  *install.Ledger
	entries []install.Entry
}

func (d *diagnosis) add(id string, c check) {
	c.ID = id
	d.checks = append(d.checks, c)
}

func (d *diagnosis) wrong() int {
	n := 0
	for _, c := range d.checks {
		if c.Status != well {
			n++
		}
	}
	return n
}

func (a *app) diagnose(ctx context.Context) *diagnosis {
	// What the log would warn of is in the checks.
	quiet := *a
	quiet.getenv = func(name string) string {
		if name == "MAJORDOMUS_LOG" {
			return cmp.Or(a.getenv(name), "error")
		}
		return a.getenv(name)
	}
	d := &diagnosis{app: &quiet, checks: []check{}, paths: a.editorPaths(ctx)}
	d.add("executable", d.program())
	d.add("checkout", d.root())
	d.add("account", d.account())
	if d.here != nil {
		d.add("policy", d.policyFile())
		folder := d.folder() // before a server that is asked makes itself a new key
		d.open(ctx)
		defer d.place.close()
		d.add("lease", d.standing())
		d.add("versions", versions(d.at, d.found, programVersion(), d.started.Path))
		d.add("folder", folder)
		locks, made := d.locks()
		d.add("locks", locks)
		d.add("clock", clocks(time.Now(), made, d.at.StartedAt))
	}
	d.add("port", d.port(net.Listen))
	d.add("service", d.service(ctx))
	d.editors()
	d.add("shell", d.shell())
	if d.here != nil {
		d.add("hooks", d.hooks(ctx))
		d.hosted()
	}
	d.add("checkouts", d.others(ctx))
	return d
}

// program is whether editors and shells find this executable.
func (d *diagnosis) program() check {
	path := d.started.Path
	found := lookIn(d.paths, "majordomus")
	own, _ := exec.LookPath("majordomus") // ignore error: then it is ""
	const one = "keep one of the two, or make one a link to the other"
	switch {
	case strings.Contains(filepath.ToSlash(path), "/go-build"):
		return warning("build it to stay: go build -o ~/bin/majordomus ./cmd/majordomus", "%s is a temporary file that nobody will find", shown(path))
	case found == "":
		return warning("put it, or a link to it, into a folder of that PATH", "%s is not on the PATH that editors have, which is that of your shell after login", shown(path))
	case !sameFile(found, path):
		return warning(one, "editors find %s, which is another file than this one, %s", shown(found), shown(path))
	case own != "" && !sameFile(own, path):
		return warning(one, "this shell finds %s, which is another file than this one, %s", shown(own), shown(path))
	}
	return ok("%s, version %s, is what editors find", shown(found), programVersion())
}

// root finds the checkout.
func (d *diagnosis) root() check {
	c, err := d.checkout()
	switch {
	case errors.Is(err, checkout.ErrNone):
		return warning("go into one; `majordomus init --here` makes one of this folder", "the current folder is in none")
	case err != nil:
		return failing(cmp.Or(hint(err), "mend that"), "%v", err)
	}
	d.here = c
	kind := "without git"
	if branch, commit := c.Head(); branch != "" {
		kind = "on branch " + branch
	} else if commit != "" {
		kind = "at " + commit[:min(12, len(commit))]
	}
	if !c.HasManifest {
		kind += ", without a manifest: shells bring no server up in it"
	}
	return ok("%s, %s", shown(c.Root), shown(kind))
}

// account is whether what the account keeps can be read, and believed.
func (d *diagnosis) account() check {
	dir, err := accountDir()
	if err != nil {
		return failing("", "%v", err)
	}
	d.ledger = install.OpenLedger(dir)
	if d.entries, err = d.ledger.List(); err != nil {
		return warning("look at that file, and remove it", "%v", err)
	}
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return ok("nothing is installed, and nothing trusted")
	case err != nil:
		return failing("", "%v", err)
	case !info.IsDir():
		return failing("move it away", "%s is no folder, so nothing can be trusted or recorded", shown(dir))
	case runtime.GOOS != "windows" && info.Mode().Perm()&0o022 != 0:
		return warning("chmod go-w "+word(dir), "others can write %s, in which is what you trust", shown(dir))
	}
	return ok("%s: %s", shown(dir), plural(len(d.entries), "thing is installed", "things are installed"))
}

// policyFile is whether the checkout's policy can be read.
func (d *diagnosis) policyFile() check {
	if _, err := d.here.Policy(); err != nil {
		return failing(cmp.Or(hint(err), "mend that file"), "%v", err)
	}
	if !there(d.here.PolicyFile) {
		return ok("none: the defaults hold")
	}
	return ok("%s", shown(d.here.PolicyFile))
}

// open looks at the lease, and asks who answers at its address.
func (d *diagnosis) open(ctx context.Context) {
	d.at = standing{Root: d.here.Root, State: "none"}
	p, err := d.anyway(d.here, d.logger(), lease.OpenExisting)
	if d.place = p; err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			d.at.State, d.at.Reason = "unreadable", err.Error()
		}
		d.place.folder = nil
		return
	}
	d.at = look(ctx, p)
	if d.found = p.folder.Read(); d.found.State == lease.Present && d.found.Document.URL != nil {
		d.outcome = p.folder.Probe(ctx, d.found.Document)
	}
}

// standing is how the checkout's server stands.
func (d *diagnosis) standing() check {
	s := d.at
	because := ""
	if s.Reason != "" {
		because = ": " + s.Reason
	}
	switch s.State {
	case "serving":
		n := "editors unknown"
		if s.Peers != nil {
			n = count(*s.Peers, "editor")
		}
		return ok("served at %s, process %d, %s", s.URL, s.PID, n)
	case "none":
		return ok("no server runs; the next editor starts one")
	case "starting":
		return ok("a server is starting, process %d", s.PID)
	case "silent":
		return failing("majordomus serve stop --force; or wait: the next editor replaces it", "the server at %s does not answer, process %d%s", s.URL, s.PID, because)
	case "elsewhere":
		return failing("stop it where it runs (a container, a sandbox), or work there", "the server at %s lives and cannot be reached from here%s", s.URL, because)
	case "unreadable":
		return failing("make .ai/local/state/mcp readable and writable for you", "the lease cannot be read%s", because)
	}
	return warning("majordomus serve ensure; `majordomus logs` says how the last one ended", "the last server has gone and has left its lease%s", because)
}

// versions is whether the server is of the same program as this one.
func versions(s standing, f lease.File, mine, path string) check {
	if s.State != "serving" {
		return ok("no server to compare with; this is %s", mine)
	}
	const restart = "majordomus serve stop; the next editor starts this one"
	switch {
	case s.Stale != "":
		return warning(restart, "the server runs code that is no longer there: %s", s.Stale)
	case lease.CompareVersions(s.Version, mine) == lease.ServerNewer:
		return warning("install the newer one everywhere", "the server is %s, and this is %s", s.Version, mine)
	case s.Version != mine:
		return warning(restart, "the server is %s, and this is %s", s.Version, mine)
	case f.Document.Executable.Path != "" && !sameFile(f.Document.Executable.Path, path):
		return warning("keep one of the two, then majordomus serve stop", "the server was started from %s, and this is %s", shown(f.Document.Executable.Path), shown(path))
	}
	return ok("server and client are %s", mine)
}

// folder is whether the state folder is the account's alone, and hidden from git.
func (d *diagnosis) folder() check {
	dir := d.here.StateDir()
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return ok("%s is not made yet", shown(dir))
	case err != nil:
		return failing("mend or remove "+word(d.here.LocalDir), "%v", err)
	case !info.IsDir():
		return failing("remove it", "%s is no folder", shown(dir))
	}
	found := []check{}
	if runtime.GOOS != "windows" {
		if mode := info.Mode().Perm(); mode&0o077 != 0 {
			found = append(found, warning("chmod 700 "+word(dir), "others get into %s (mode %04o)", shown(dir), mode))
		}
		key := filepath.Join(dir, "key")
		if info, err := os.Stat(key); err == nil && info.Mode().Perm()&0o077 != 0 {
			found = append(found, failing("majordomus key --rotate", "others can read the key of this checkout (mode %04o), so it is not believed", info.Mode().Perm()))
		}
	}
	ignore := filepath.Join(d.here.LocalDir, ".gitignore")
	if b, err := os.ReadFile(ignore); err != nil || !slices.Contains(strings.Fields(string(b)), "*") {
		found = append(found, warning("echo '*' >"+word(ignore), "git sees %s, where the key is", shown(d.here.LocalDir)))
	}
	if len(found) == 0 {
		return ok("%s is yours alone", shown(dir))
	}
	return worst(found...)
}

// locks tries them where they are needed, and returns when the file was made that
// this took.
func (d *diagnosis) locks() (check, time.Time) {
	dir := d.here.StateDir()
	for !there(dir) && dir != d.here.Root {
		dir = filepath.Dir(dir) // as near as there is something
	}
	made, err := lease.TryLocks(dir)
	switch {
	case errors.Is(err, lease.ErrNoLocks):
		return failing("have the checkout on a file system with locks (a local one; NFS with its lock service)", "%v", err), made
	case err != nil:
		return failing("make it a folder that you can write; until then each editor is served alone", "%s cannot be written: %v", shown(dir), err), time.Time{}
	}
	return ok("they work in %s", shown(dir)), made
}

// clocks is whether this machine's agrees with that of the files, and with itself.
func clocks(now, made time.Time, started *time.Time) check {
	const most = 3 * time.Second
	const remedy = "set the clocks: of this machine, and of the one that keeps its files"
	if ahead := made.Sub(now).Round(time.Second); !made.IsZero() && ahead.Abs() > most {
		return warning(remedy, "a new file is stamped %v %s", ahead.Abs(), map[bool]string{true: "ahead", false: "behind"}[ahead > 0])
	}
	if started != nil && started.Sub(now) > most {
		return warning(remedy, "the server says that it was started %v from now: the clock was set back since", started.Sub(now).Round(time.Second))
	}
	return ok("it agrees with the files'")
}

// port is whether the server has an address of its own, or the next can have one.
func (d *diagnosis) port(listen func(network, address string) (net.Listener, error)) check {
	switch {
	case d.at.State == "serving":
		return ok("%s is this checkout's server", d.at.URL)
	case d.outcome.Outcome == lease.Stranger && d.at.URL != "":
		return warning("nothing, if you know it: the next server takes another port", "at %s, where the last server was, another program answers", d.at.URL)
	}
	const usual = "127.0.0.1:8741"
	l, err := listen("tcp", usual)
	if err != nil {
		if l, err = listen("tcp", "127.0.0.1:0"); err != nil {
			return failing("let this account listen on 127.0.0.1: a sandbox or the firewall forbids it", "no server can listen here: %v", err)
		}
		l.Close() // ignore error: it was only a try
		return ok("%s is taken, perhaps by another checkout's server; the next takes another port", usual)
	}
	l.Close() // ignore error: as above
	return ok("%s is free for the next server", usual)
}

// service is how the checkout's stands, and whether others have lost theirs.
func (d *diagnosis) service(ctx context.Context) check {
	found := []check{}
	for _, e := range d.entries {
		if e.Kind == install.Service && !there(e.Root) {
			found = append(found, warning("majordomus uninstall service --root "+word(e.Root), "the service of %s is left, a folder that is gone", shown(e.Root)))
		}
	}
	var s *service.Status
	if d.here != nil {
		s = d.serviceStatus(ctx, d.here)
	}
	because := ""
	if s != nil && s.Reason != "" {
		because = ": " + s.Reason
	}
	switch {
	case s == nil && len(found) == 0:
		return ok("none is installed; editors start the server")
	case s == nil:
	case s.State == "failed":
		found = append(found, failing("majordomus logs; then majordomus install service", "%s has failed%s", s.Name, because))
	case s.State == "unknown":
		found = append(found, warning("log in as the account itself; or majordomus uninstall service", "%s is installed and cannot be asked%s", s.Name, because))
	default:
		found = append(found, ok("%s is %s", s.Name, s.State))
	}
	return worst(found...)
}

// editors is, for each that has an entry, whether that starts this executable.
func (d *diagnosis) editors() {
	m := editors.Machine{OS: runtime.GOOS, Home: d.home(), Getenv: d.getenv}
	if d.here != nil {
		m.Root = d.here.Root
	}
	any := false
	for _, e := range editors.Known() {
		var found []check
		for _, user := range []bool{false, true} {
			path := ""
			if user && m.Home != "" || !user && m.Root != "" && e.HasProject() {
				path = e.File(m, user)
			}
			if path == "" || !there(path) {
				continue
			}
			if c, has := d.entry(e, path, user); has {
				found = append(found, c)
			}
		}
		if len(found) > 0 {
			any = true
			d.add("editor:"+e.Name, worst(found...))
		}
	}
	if !any {
		d.add("editors", ok("no editor's file here starts majordomus; `majordomus install editor` changes that"))
	}
}

// entry is what the entry in one editor's file starts, if there is one.
func (d *diagnosis) entry(e editors.Editor, path string, user bool) (c check, has bool) {
	again := "majordomus install editor " + e.Name + map[bool]string{true: " --user"}[user]
	words, line, err := e.Starts(path, serverName)
	if err != nil {
		b, _ := os.ReadFile(path) // ignore error: then nothing says that it is ours
		return failing("mend that line; then "+again, "%v", err), bytes.Contains(b, []byte(serverName))
	}
	if len(words) == 0 {
		return check{}, false
	}
	at := fmt.Sprintf("%s:%d", shown(path), line)
	if !slices.Contains(words[1:], "mcp") {
		return warning(again+" --force", "%s: the entry %s starts something else", at, serverName), true
	}
	found := words[0]
	if !filepath.IsAbs(found) {
		found = lookIn(d.paths, words[0])
	}
	switch info, err := os.Stat(found); {
	case found == "" || err != nil:
		return failing(again, "%s: %s is not found by editors", at, shown(words[0])), true
	case info.IsDir() || runtime.GOOS != "windows" && info.Mode().Perm()&0o111 == 0:
		return failing(again, "%s: %s is no program", at, shown(words[0])), true
	case !sameFile(found, d.started.Path):
		return warning(again, "%s: %s is another file than this one, %s", at, shown(found), shown(d.started.Path)), true
	}
	return ok("%s starts this", at), true
}

// shell is whether the startup files' lines are right, and loaded where they are.
func (d *diagnosis) shell() check {
	var found []check
	own := filepath.Base(d.getenv("SHELL"))
	_, entered := d.lookup(enteredVar)
	for _, name := range shell.Names() {
		l, err := d.shellLines(name)
		if err != nil {
			continue // ignore error: there is no such file here
		}
		again := "majordomus install shell " + name
		f, err := shell.Read(l.entry.File)
		if err != nil {
			found = append(found, warning("mend that", "%v", err))
			continue
		}
		has, err := shell.Has(f.Text)
		if err != nil {
			found = append(found, failing(cmp.Or(hint(broken("", err)), "mend that"), "%s: %v", shown(l.entry.File), err))
			continue
		}
		if !has {
			continue
		}
		now, err := shell.Put(f.Text, l.place, l.first, l.text, l.undo)
		switch {
		case err != nil || !bytes.Equal(now, f.Text):
			found = append(found, warning(again, "the lines in %s load the hook of another program or version than this", shown(l.entry.File)))
		case name == own && !entered && d.here != nil && isTerminal(d.in):
			found = append(found, warning("open a new shell", "the hook is in %s, and this shell has not loaded it", shown(l.entry.File)))
		case name == own && entered:
			found = append(found, ok("the hook in %s is loaded", shown(l.entry.File)))
		default:
			found = append(found, ok("the hook is in %s", shown(l.entry.File)))
		}
	}
	if len(found) == 0 {
		return ok("no hook is installed")
	}
	return worst(found...)
}

// hooks is whether git's pre-commit hook is as it was installed.
func (d *diagnosis) hooks(ctx context.Context) check {
	l, err := d.hookLines(ctx, false)
	if err != nil {
		return ok("none is installed")
	}
	recorded := slices.ContainsFunc(d.entries, func(e install.Entry) bool {
		return e.Kind == install.Hooks && e.File == l.entry.File
	})
	f, err := shell.Read(l.entry.File)
	if err != nil {
		return warning("mend that", "%v", err)
	}
	has, err := shell.Has(f.Text)
	switch {
	case err != nil:
		return failing(cmp.Or(hint(broken("", err)), "mend that"), "%s: %v", shown(l.entry.File), err)
	case !has && recorded:
		return warning("majordomus install hooks; or majordomus uninstall hooks", "it was installed, and is gone from %s", shown(l.entry.File))
	case !has:
		return ok("none is installed")
	case runtime.GOOS != "windows" && f.Mode().Perm()&0o111 == 0:
		return warning("chmod +x "+word(l.entry.File), "%s is not executable, so git does not run it", shown(l.entry.File))
	}
	strict, err := d.hookLines(ctx, true)
	if err != nil {
		return ok("none is installed")
	}
	for _, text := range []string{l.text, strict.text} {
		if now, err := shell.Put(f.Text, l.place, l.first, text, l.undo); err == nil && bytes.Equal(now, f.Text) {
			return ok("%s asks the guard", shown(l.entry.File))
		}
	}
	return warning("majordomus install hooks", "the lines in %s are of another program or version than this", shown(l.entry.File))
}

// hosted is whether what the servers file names may run, can be found, and fits
// into what clients allow for names.
func (d *diagnosis) hosted() {
	f, err := config.Read(d.here.ServersFile)
	if err != nil {
		d.add("servers", failing("mend that file; nothing of it is used until then", "%v", err))
		return
	}
	if len(f.Problems) > 0 {
		var found []check
		for _, p := range f.Problems {
			found = append(found, warning("mend that line", "%s: %s", shown(d.here.ServersFile), p))
		}
		d.add("servers", worst(found...))
	} else {
		d.add("servers", ok("%s", count(len(f.Servers), "server")))
	}
	d.add("trust", d.trust())
	for _, s := range f.Servers {
		d.add("upstream:"+s.Name, d.upstream(s))
	}
	d.add("names", d.names(f.Servers))
}

func (d *diagnosis) trust() check {
	l, err := ledger()
	if err != nil {
		return failing("", "%v", err)
	}
	h, err := d.hosting(d.here, l)
	switch {
	case err != nil:
		return failing("mend that file", "%v", err)
	case h.State == "none":
		return ok("nothing has to be trusted")
	case h.State == "trusted" && h.OtherPath:
		return ok("trusted, with another PATH than here")
	case h.State == "trusted":
		return ok("trusted")
	case h.State == "changed":
		return warning("majordomus trust", "the servers file has changed since you trusted it: nothing of it is started")
	case h.Reason != "":
		return warning("majordomus trust", "%s", h.Reason)
	}
	return warning("majordomus trust", "the servers file is not trusted: nothing of it is started")
}

// upstream is whether a hosted server can be found, where servers are looked for.
func (d *diagnosis) upstream(s config.Server) check {
	if u, err := url.Parse(d.at.URL); err == nil && u.Port() != "" {
		if port, err := strconv.Atoi(u.Port()); err == nil && s.HostsItself(port) {
			return warning("take it out of the servers file", "it is this checkout's own server, which does not host itself")
		}
	}
	real, environ, err := d.resolve(d.here, s)
	if missing := (*config.MissingError)(nil); errors.As(err, &missing) {
		return failing("set it in "+filepath.Join(d.here.LocalDir, "env"), "%v", err)
	}
	if err != nil {
		return failing("mend that", "%v", err)
	}
	if real.Command == "" {
		return ok("%s", shown(real.URL))
	}
	var path string
	for _, kv := range environ {
		if v, is := strings.CutPrefix(kv, "PATH="); is {
			path = v
		}
	}
	found := real.Command
	switch {
	case filepath.IsAbs(found):
	case strings.ContainsAny(found, `/\`):
		found = filepath.Join(cmp.Or(real.Cwd, d.here.Root), found)
	default:
		found = lookIn(filepath.SplitList(path), found)
		if found == "" && runtime.GOOS == "windows" {
			return ok("%s (on Windows it may be a script)", shown(real.Command))
		}
	}
	if info, err := os.Stat(found); found == "" || err != nil {
		return failing("install it; or, where PATH finds it, majordomus trust", "%s is not found on the PATH with which the file was trusted", shown(real.Command))
	} else if info.IsDir() || runtime.GOOS != "windows" && info.Mode().Perm()&0o111 == 0 {
		return failing("chmod +x "+word(found), "%s is no program", shown(found))
	}
	if real.Cwd != "" {
		if info, err := os.Stat(real.Cwd); err != nil || !info.IsDir() {
			return failing("make that folder, or mend cwd", "its folder %s is not there", shown(real.Cwd))
		}
	}
	return ok("%s", shown(found))
}

// The lengths that clients allow: of a tool's name behind "mcp__majordomus__", and
// with the server's name before it, which is what Cursor counts.
const (
	mostName   = 64 - len("mcp__"+serverName+"__")
	mostCursor = 60 - len(serverName)
)

// names is whether any tool's name is too long for clients.
func (d *diagnosis) names(list []config.Server) check {
	n, longest := 0, ""
	var found []check
	for _, s := range list {
		tools, cut, _ := hub.KeptTools(filepath.Join(d.here.StateDir(), "catalogue"), s)
		n += len(tools)
		most := min(mostName, mostCursor)
		for _, t := range tools {
			name := s.Name + "__" + t
			if public := cut[t]; public != "" {
				name = public
				if len(found) == 0 || len(cut) == 1 {
					found = append(found, warning("give the server a shorter name in the servers file", "%s is too long for clients (%d characters of %d), and is called %s; so it is with %d of %d of %s",
						shown(s.Name+"__"+t), len(s.Name+"__"+t), most, public, len(cut), len(tools), shown(s.Name)))
				}
			}
			if len(name) > len(longest) {
				longest = name
			}
			if len(name) > most {
				found = append(found, failing("give the server a shorter name in the servers file", "%s has %d characters, and clients take %d", shown(name), len(name), most))
			}
		}
	}
	switch {
	case len(found) > 0:
		return worst(found...)
	case n == 0:
		return ok("no tools of hosted servers are known yet")
	}
	return ok("%s; the longest name, %s, has %d characters of %d", count(n, "tool"), shown(longest), len(longest), min(mostName, mostCursor))
}

// others is how the servers of other checkouts stand.
func (d *diagnosis) others(ctx context.Context) check {
	var seen []*checkout.Checkout
	if d.here != nil {
		seen = []*checkout.Checkout{d.here}
	}
	list := d.known(seen)
	if d.here != nil {
		trees, err := d.here.Worktrees()
		if err != nil {
			return warning("git worktree prune", "%v", err)
		}
		for _, c := range trees {
			same := func(o *checkout.Checkout) bool { return o.ID == c.ID }
			if c.ID != d.here.ID && !slices.ContainsFunc(list, same) {
				list = append(list, c)
			}
		}
	}
	serving := 0
	var found []check
	for _, c := range list {
		if _, kept := lease.Kept(c); !kept {
			continue
		}
		p, err := d.anyway(c, d.logger(), lease.OpenExisting)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			found = append(found, warning("majordomus doctor --root "+word(c.Root), "%s: %v", shown(c.Root), err))
			continue
		}
		s := glance(ctx, p)
		p.close()
		switch s.State {
		case "serving", "starting", "none":
			serving++
		default:
			found = append(found, warning("majordomus doctor --root "+word(c.Root), "%s: its server is %s", shown(c.Root), s.State))
		}
	}
	if len(found) > 0 {
		return worst(found...)
	}
	return ok("%s served", plural(serving, "other is", "others are"))
}

// plural is a number and what it is of.
func plural(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}

func (d *diagnosis) print(w io.Writer) {
	width := 0
	for _, c := range d.checks {
		width = max(width, len(c.ID))
	}
	for _, c := range d.checks {
		status := c.Status
		if status == bad {
			status = "FAIL"
		}
		fmt.Fprintf(w, "%-4s  %-*s  %s\n", status, width, c.ID, c.Message)
		if c.Remedy != "" {
			fmt.Fprintf(w, "%-4s  %-*s  -> %s\n", "", width, "", c.Remedy)
		}
	}
	if n := d.wrong(); n > 0 {
		fmt.Fprintf(w, "\nsomething is to be done about %d of %d\n", n, len(d.checks))
	} else {
		fmt.Fprintf(w, "\nall %d are well\n", len(d.checks))
	}
}
