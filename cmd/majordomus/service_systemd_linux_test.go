package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// sdRig is a machine of its own: a real systemd as process 1 of a container,
// with its user manager for alice, an account that stays logged in. Its root is
// a folder with a few lines of /etc and this system's /usr, which it cannot
// write to; its network is its own.
type sdRig struct {
	t      *testing.T
	root   string // on this side
	leader string // process 1 as seen from here
}

const sdUID = 4711

// sdPaths are two whose characters mean something to systemd or to a shell.
const (
	sdWork = "/home/alice/wei%n rd $HOME ${PATH} \"q\" 'a' \\x41 ü;# \\"
	sdBin  = "/opt/b%h in $PATH \"x\" 'ö' \\n/majordomus"
)

// sdBoot boots one, as root on a system that has what it takes.
func sdBoot(t *testing.T) *sdRig {
	t.Helper()
	accNeed(t, os.Geteuid() == 0, "containers want root")
	for _, path := range []string{"/usr/bin/systemd-nspawn", "/usr/lib/systemd/systemd", "/usr/bin/dbus-daemon", "/usr/lib/os-release", "/usr/bin/nsenter", "/usr/bin/setpriv"} {
		_, err := os.Stat(path)
		accNeed(t, err == nil, fmt.Sprintf("no systemd to boot: %v", err))
	}
	if link, err := os.Readlink("/lib"); err != nil || link != "usr/lib" {
		accNeed(t, false, "/lib is not in /usr")
	}
	pam, _ := filepath.Glob("/usr/lib/*/security/pam_systemd.so") // ignore error: the pattern is right
	accNeed(t, len(pam) > 0, "pam_systemd is missing: the container could not log anybody in")

	r := &sdRig{t: t, root: filepath.Join(t.TempDir(), "root")}
	for _, dir := range []string{"usr", "proc", "sys", "dev", "run", "tmp", "var/lib/systemd/linger", "var/log", "var/tmp", "root", "etc/systemd/system", "etc/pam.d", "home/alice", "opt"} {
		r.must(os.MkdirAll(filepath.Join(r.root, dir), 0o755))
	}
	r.must(os.Chmod(filepath.Join(r.root, "tmp"), 0o1777))
	for _, link := range []string{"bin", "sbin", "lib", "lib32", "lib64"} {
		if _, err := os.Lstat("/" + link); err == nil {
			r.must(os.Symlink("usr/"+link, filepath.Join(r.root, link)))
		}
	}
	for _, path := range []string{"/etc/ld.so.cache", "/usr/lib/os-release"} {
		b, err := os.ReadFile(path)
		r.must(err)
		r.must(os.WriteFile(filepath.Join(r.root, "etc", filepath.Base(path)), b, 0o644))
	}
	pamd := "auth sufficient pam_permit.so\naccount sufficient pam_permit.so\nsession required pam_permit.so\nsession optional pam_systemd.so\n"
	for path, text := range map[string]string{
		"etc/passwd":                     fmt.Sprintf("root:x:0:0::/root:/bin/sh\nmessagebus:x:101:101::/nonexistent:/bin/false\nalice:x:%d:%[1]d::/home/alice:/bin/sh\n", sdUID),
		"etc/group":                      fmt.Sprintf("root:x:0:\nmessagebus:x:101:\nalice:x:%d:\n", sdUID),
		"etc/nsswitch.conf":              "passwd: files\ngroup: files\nshadow: files\nhosts: files\n",
		"etc/shadow":                     "root:*:19000::::::\nalice:*:19000::::::\n",
		"etc/pam.d/other":                pamd,
		"etc/pam.d/systemd-user":         pamd,
		"var/lib/systemd/linger/alice":   "",
		"etc/systemd/system/rig.target":  "[Unit]\nRequires=basic.target\nWants=dbus.socket systemd-logind.service\nAfter=basic.target\nAllowIsolate=yes\n",
		"etc/systemd/journald.conf":      "[Journal]\nStorage=volatile\n",
		"etc/systemd/system.conf":        "[Manager]\nDefaultTimeoutStopSec=5s\n",
		"etc/systemd/logind.conf":        "[Login]\nReserveVT=0\n",
		"home/alice/.profile":            "",
		"etc/systemd/system/placeholder": "",
	} {
		r.must(os.WriteFile(filepath.Join(r.root, path), []byte(text), 0o644))
	}
	// What this system has installed beside systemd is to be no part of it.
	for _, kind := range []string{"system-generators", "user-environment-generators", "system-environment-generators"} {
		found, err := filepath.Glob("/usr/lib/systemd/" + kind + "/*")
		r.must(err)
		r.must(os.MkdirAll(filepath.Join(r.root, "etc/systemd", kind), 0o755))
		for _, path := range found {
			if !strings.HasPrefix(filepath.Base(path), "systemd-") {
				r.must(os.Symlink("/dev/null", filepath.Join(r.root, "etc/systemd", kind, filepath.Base(path))))
			}
		}
	}
	r.must(os.Symlink("rig.target", filepath.Join(r.root, "etc/systemd/system/default.target")))
	r.must(os.Chown(filepath.Join(r.root, "home/alice"), sdUID, sdUID))

	var said accBuffer
	// A test that is killed, or has run out of time, takes the machine with it:
	// then the pipe ends that only it can write to.
	mine, theirs, err := os.Pipe()
	r.must(err)
	cmd := exec.Command("/bin/sh", "-c", `{ read -r end <&3; kill -KILL $$; } 2>/dev/null & exec "$0" "$@" 3<&-`, "systemd-nspawn", "--quiet", "--directory="+r.root, "--bind-ro=/usr", "--private-network", "--register=no", "--keep-unit", "--boot", "--console=pipe")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1"}
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.ExtraFiles = []*os.File{mine}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	r.must(cmd.Start())
	mine.Close() // ignore error: the shell has it
	ended := make(chan struct{})
	go func() { defer close(ended); cmd.Wait() }() // ignore error: it is killed
	t.Cleanup(func() {
		defer theirs.Close() // ignore error: the end is the message
		if r.leader != "" {
			r.try("root", "systemctl", "--no-block", "poweroff") // ignore error: then it is killed
			select {
			case <-ended:
				return
			case <-time.After(10 * time.Second):
			}
		}
		theirs.Close() // ignore error: as above
		<-ended
	})
	err = accUntil(30*time.Second, func() error {
		select {
		case <-ended:
			return errors.New("it has ended")
		default:
		}
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", cmd.Process.Pid))
		if err != nil {
			return err
		}
		for _, pid := range strings.Fields(string(b)) {
			if name, err := os.ReadFile("/proc/" + pid + "/comm"); err == nil && string(name) == "systemd\n" {
				r.leader = pid
			}
		}
		if r.leader == "" {
			return errors.New("it has no systemd yet")
		}
		if out, err := r.systemctl("is-system-running"); err != nil {
			return fmt.Errorf("alice's manager: %w: %s", err, out)
		}
		return nil
	})
	if err != nil {
		out, _ := r.try("root", "journalctl", "--no-pager", "-n", "60") // ignore error: shown or not
		accNeed(t, false, fmt.Sprintf("no systemd can be booted here: %v: %s\n%s", err, said.String(), out))
	}
	t.Cleanup(func() {
		if t.Failed() {
			out, _ := r.try("root", "journalctl", "--no-pager", "-n", "80", "_UID="+strconv.Itoa(sdUID)) // ignore error: shown or not
			t.Logf("the journal ends:\n%s", out)
		}
	})
	return r
}

func (r *sdRig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// command is one that runs inside, in a folder, with what an editor has for an
// environment.
func (r *sdRig) command(user, dir string, argv ...string) *exec.Cmd {
	id := "0"
	if user == "alice" {
		id = strconv.Itoa(sdUID)
	}
	words := []string{"nsenter", "--target", r.leader, "--all", "setpriv", "--reuid", id, "--regid", id, "--clear-groups",
		"env", "-i", "HOME=/home/" + user, "PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8", "USER=" + user,
		"sh", "-c", `cd "$0" && exec "$@"`, dir}
	cmd := exec.Command(words[0], append(words[1:], argv...)...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	return cmd
}

func (r *sdRig) try(user string, argv ...string) (string, error) {
	cmd := r.command(user, "/", argv...)
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	return string(bytes.TrimSpace(out)), err
}

func (r *sdRig) do(user string, argv ...string) string {
	r.t.Helper()
	out, err := r.try(user, argv...)
	if err != nil {
		r.t.Fatalf("%q: %v: %s", argv, err, out)
	}
	return out
}

// systemctl is that of alice's manager.
func (r *sdRig) systemctl(args ...string) (string, error) {
	return r.session(append([]string{"systemctl", "--user", "--no-pager"}, args...)...)
}

// session runs a command as in a session of alice's.
func (r *sdRig) session(argv ...string) (string, error) {
	return r.try("alice", append([]string{"env", fmt.Sprintf("XDG_RUNTIME_DIR=/run/user/%d", sdUID)}, argv...)...)
}

// login ends alice's manager and everything of it, and starts it anew, as when
// the machine starts again.
func (r *sdRig) login() {
	r.t.Helper()
	r.do("root", "systemctl", "restart", fmt.Sprintf("user@%d.service", sdUID))
}

// sdService is a checkout inside, with a program and the service of both.
type sdService struct {
	*accCheckout // on this side
	r            *sdRig
	work, bin    string // inside
}

// checkout makes one, with the program at bin.
func (r *sdRig) checkout(work, bin string, policy string) *sdService {
	r.t.Helper()
	s := &sdService{r: r, work: work, bin: bin}
	s.accCheckout = &accCheckout{t: r.t, root: filepath.Join(r.root, work), program: filepath.Join(r.root, bin)}
	r.must(os.MkdirAll(filepath.Join(s.root, ".ai/repo"), 0o755))
	r.must(os.WriteFile(filepath.Join(s.root, ".ai/manifest.yaml"), nil, 0o644))
	if policy != "" {
		s.policy(policy)
	}
	r.must(filepath.WalkDir(s.root, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Chown(path, sdUID, sdUID))
	}))
	if _, err := os.Stat(s.program); err != nil {
		r.must(os.MkdirAll(filepath.Dir(s.program), 0o755))
		s.build("v0.0.1")
	}
	return s
}

// build puts a build of a version where the program is, as builds do.
func (s *sdService) build(version string) {
	s.t.Helper()
	path, err := sdBuild(version)
	s.r.must(err)
	b, err := os.ReadFile(path)
	s.r.must(err)
	s.r.must(accExecutable(s.program+".new", b))
	s.r.must(os.Rename(s.program+".new", s.program))
}

var sdBuilds sync.Mutex // tests side by side want the same

// sdBuild is the program as people have it: it finds its account by itself.
func sdBuild(version string) (string, error) {
	if _, err := accProgram(); err != nil {
		return "", err
	}
	sdBuilds.Lock()
	defer sdBuilds.Unlock()
	path := filepath.Join(accTemp.dir, "plain-"+version)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	return path, accBuildTo(path, "-ldflags", "-X main.version="+version)
}

// words runs the program as alice in the checkout.
func (s *sdService) words(args ...string) (string, int) {
	s.t.Helper()
	cmd := s.r.command("alice", s.work, append([]string{s.bin}, args...)...)
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		s.t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

func (s *sdService) install() {
	s.t.Helper()
	if out, code := s.words("install", "service"); code != 0 || !strings.Contains(out, "installed ") {
		s.t.Fatalf("install: %d: %s", code, out)
	}
}

// says compares what a command writes with a golden file.
func (s *sdService) says(name string, args ...string) {
	s.t.Helper()
	out, code := s.words(args...)
	got := fmt.Sprintf("$ majordomus %s\n%sexit code %d\n", strings.Join(args, " "), out, code)
	got = regexp.MustCompile(`process( +)\d+`).ReplaceAllString(got, "process${1}N")
	got = regexp.MustCompile(`since [-0-9 :]+`).ReplaceAllString(got, "since TIME")
	goldenService(s.t, name, got)
}

// editor opens one in the checkout.
func (s *sdService) editor() *accEditor {
	s.t.Helper()
	e := s.editorOf(s.r.command("alice", s.work, s.bin, "mcp"))
	e.mustOpen()
	return e
}

// close ends an editor and waits for its end.
func (s *sdService) close(e *accEditor) {
	s.t.Helper()
	e.in.Close() // ignore error: the end is the message
	select {
	case <-e.ended:
	case <-time.After(20 * time.Second):
		s.t.Fatal("an editor's process does not end")
	}
}

// unit is the name of the only service that is installed.
func (s *sdService) unit() string {
	s.t.Helper()
	found, err := filepath.Glob(filepath.Join(s.r.root, "home/alice/.config/systemd/user/majordomus-*.service"))
	if err != nil || len(found) != 1 {
		s.t.Fatalf("installed: %v, %v", found, err)
	}
	return filepath.Base(found[0])
}

// show is a property of the unit.
func (s *sdService) show(property string) string {
	s.t.Helper()
	out, err := s.r.systemctl("show", "--value", "--property="+property, s.unit())
	if err != nil {
		s.t.Fatalf("%v: %s", err, out)
	}
	return out
}

// served waits until the lease is that of a server other than the one given,
// and returns it.
func (s *sdService) served(other string, within time.Duration) (token string, pid int) {
	s.t.Helper()
	accPoll(s.t, within, "another server", func() error {
		d, err := s.lease()
		if err == nil && d.Token == other {
			err = errors.New("it is the same")
		}
		token, pid = d.Token, d.PID
		return err
	})
	return token, pid
}

// servedByService is served by the process that systemd says is the service's.
func (s *sdService) servedByService(other string, within time.Duration) (token string, pid int) {
	s.t.Helper()
	token, pid = s.served(other, within)
	if main := s.show("MainPID"); main != strconv.Itoa(pid) {
		s.t.Fatalf("process %d serves, the service is %s (%s, %s)", pid, main, s.show("ActiveState"), s.show("Result"))
	}
	return token, pid
}

// rests waits until the service has ended, well and for good.
func (s *sdService) rests(within time.Duration) {
	s.t.Helper()
	accPoll(s.t, within, "the service ends", func() error {
		// A unit that is to be started again is "activating", never this.
		if state := s.show("ActiveState") + " " + s.show("SubState") + " " + s.show("Result"); state != "inactive dead success" {
			return errors.New(state)
		}
		return nil
	})
}

// clean fails the test unless nothing of any service is left.
func (r *sdRig) clean() {
	r.t.Helper()
	filepath.WalkDir(filepath.Join(r.root, "home/alice"), func(path string, e fs.DirEntry, err error) error { // ignore error: told below
		if err != nil || e.Name() == ".ai" || strings.HasSuffix(path, "/majordomus/served") { // which checkouts there were is no service's
			return filepath.SkipDir
		}
		if rel, _ := filepath.Rel(r.root, path); strings.HasPrefix(rel, "home/alice/.config") || strings.HasPrefix(rel, "home/alice/.local") && !e.IsDir() {
			r.t.Errorf("%s is left", rel)
		}
		return nil
	})
	for _, args := range [][]string{{"list-units", "--all", "--no-legend", "majordomus*"}, {"list-unit-files", "--no-legend", "majordomus*"}, {"list-units", "--failed", "--no-legend"}} {
		out, err := r.systemctl(args...) // its code for an empty list varies
		for line := range strings.Lines(out) {
			// systemd forgets the name of what it was asked about when it finds
			// the time, at the latest when it is told to look anew.
			if !strings.Contains(line, " not-found inactive dead ") {
				r.t.Errorf("%v: %v: %q", args, err, line)
			}
		}
	}
}

// TestServiceUnderSystemd takes a service through its life under a real systemd.
func TestServiceUnderSystemd(t *testing.T) {
	t.Parallel() // it waits more than it works
	r := sdBoot(t)

	t.Run("life", func(t *testing.T) {
		r := r.in(t)
		s := r.checkout(sdWork, sdBin, "  idle_seconds: 1\n")
		s.says("dry", "install", "service", "--dry-run")
		r.clean()
		s.says("install", "install", "service")
		file := filepath.Join(r.root, "home/alice/.config/systemd/user", s.unit())
		before, err := os.Stat(file)
		r.must(err)
		s.says("again", "install", "service")
		if after, err := os.Stat(file); err != nil || !os.SameFile(before, after) {
			t.Errorf("the second time wrote it anew: %v", err)
		}
		if out, err := r.session("systemd-analyze", "--user", "verify", "/home/alice/.config/systemd/user/"+s.unit()); err != nil || strings.Contains(out, s.unit()) {
			t.Errorf("systemd finds fault: %v: %s", err, out)
		}
		if got := s.show("Description"); got != "MCP server of the checkout "+sdWork+" (majordomus)" {
			t.Errorf("it is described as %q", got)
		}
		s.says("status-stopped", "status")

		e := s.editor()
		token, pid := s.servedByService("", 5*time.Second)
		if got := s.show("UnitFileState") + s.show("NRestarts"); got != "enabled0" {
			t.Errorf("%s", got)
		}
		out, _ := s.words("status", "--format", "json")
		var status standing
		if err := json.Unmarshal([]byte(out), &status); err != nil || status.Service == nil || status.Service.State != "running" || status.Service.PID != pid {
			t.Errorf("status: %v: %s", err, out)
		}
		s.says("status-running", "status")
		env := strings.ReplaceAll(r.do("root", "cat", fmt.Sprintf("/proc/%d/environ", pid)), "\x00", "\n")
		if !strings.Contains(env, "PATH=/usr/local/bin:/usr/bin:/bin\n") {
			t.Errorf("its environment: %s", env)
		}
		if log := r.do("root", "journalctl", "--no-pager", "_PID="+strconv.Itoa(pid)); !strings.Contains(log, "listening") {
			t.Errorf("the journal: %s", log)
		}
		if log, _ := s.words("logs"); !strings.Contains(log, "listening") {
			t.Errorf("the log: %s", log)
		}
		second := s.editor()

		r.do("root", "kill", "-9", strconv.Itoa(pid))
		if _, err := e.server(); err != nil {
			t.Errorf("a call after the kill: %v", err)
		}
		token, _ = s.servedByService(token, 3*time.Second)
		if got := s.show("NRestarts"); got != "1" {
			t.Errorf("started again %s times", got)
		}
		if _, err := second.server(); err != nil {
			t.Errorf("the other editor: %v", err)
		}

		s.close(e)
		s.close(second)
		s.rests(20 * time.Second)
		if got := s.show("NRestarts"); got != "1" {
			t.Errorf("an idle end was followed by a start: %s", got)
		}

		s.close(s.editor())
		token, _ = s.served(token, 5*time.Second)
		s.rests(20 * time.Second)

		r.login()
		token, pid = s.servedByService(token, 10*time.Second)

		s.says("uninstall", "uninstall", "service")
		if out, err := r.try("root", "kill", "-0", strconv.Itoa(pid)); err == nil {
			t.Errorf("its process is left: %s", out)
		}
		r.clean()
		s.says("uninstall-again", "uninstall", "service")
		e = s.editor()
		s.served(token, 5*time.Second)
		s.close(e)
	})
}

// TestServiceAmongOthers has a service meet what it meets on people's machines,
// under a real systemd.
func TestServiceAmongOthers(t *testing.T) {
	t.Parallel() // it waits more than it works
	machine := sdBoot(t)
	const quick = "  idle_seconds: 1\n  busy_grace_seconds: 1\n  join_timeout_seconds: 4\n"
	const fallback = "the installed service cannot be started; starting a process instead"
	ends := func(s *sdService) {
		s.t.Helper()
		accPoll(s.t, 20*time.Second, "the last server ends", func() error {
			if _, err := os.Stat(s.leasePath()); !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("there is a lease, or: %v", err)
			}
			return nil
		})
	}
	uninstall := func(s *sdService, args ...string) {
		s.t.Helper()
		if out, code := s.words(append([]string{"uninstall", "service"}, args...)...); code != 0 || !strings.Contains(out, "removed ") {
			s.t.Errorf("uninstall: %d: %s", code, out)
		}
		s.r.clean()
	}

	t.Run("many want it at once", func(t *testing.T) {
		s := machine.in(t).checkout("/home/alice/many", "/opt/a/majordomus", quick)
		s.install()
		editors := make([]*accEditor, 8)
		for i := range editors {
			editors[i] = s.editorOf(s.r.command("alice", s.work, s.bin, "mcp"))
		}
		for _, e := range editors {
			e.mustOpen()
			if strings.Contains(e.log.String(), fallback) {
				t.Errorf("%s", e.log.String())
			}
		}
		s.servedByService("", time.Second)
		served := editors[0].mustServer()
		for _, e := range editors {
			if is, err := e.server(); err != nil || is.Alone != "" || is.Generation != served.Generation {
				t.Errorf("%+v, %v", is, err)
			}
			s.close(e)
		}
		if got := s.show("NRestarts"); got != "0" {
			t.Errorf("started again %s times", got)
		}
		s.rests(20 * time.Second)
		uninstall(s)
	})

	t.Run("another server was first", func(t *testing.T) {
		s := machine.in(t).checkout("/home/alice/first", "/opt/a/majordomus", quick)
		e := s.editor()
		token, _ := s.served("", 5*time.Second)
		s.install()
		if out, err := s.r.systemctl("start", s.unit()); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		s.rests(10 * time.Second)
		if now, _ := s.served("", time.Second); now != token {
			t.Error("the service took the lease")
		}
		s.close(e)
		ends(s)
		uninstall(s)
	})

	t.Run("the executable is gone", func(t *testing.T) {
		s := machine.in(t).checkout("/home/alice/gone", "/opt/b/majordomus", quick)
		s.install()
		s.r.must(os.Rename(s.program, s.program+"2"))
		s.bin += "2"
		e := s.editor()
		if _, pid := s.served("", 5*time.Second); s.show("MainPID") != "0" || pid == 0 {
			t.Errorf("the service runs")
		}
		if n := strings.Count(e.log.String(), fallback); n != 1 {
			t.Errorf("told %d times: %s", n, e.log.String())
		}
		s.says("status-gone", "status")
		s.r.login()
		if got := s.show("ActiveState"); got != "inactive" {
			t.Errorf("at the next login it is %s", got)
		}
		s.close(e)
		ends(s)
		uninstall(s)
	})

	t.Run("the executable is replaced", func(t *testing.T) {
		s := machine.in(t).checkout("/home/alice/replaced", "/opt/c %h ö;/majordomus", quick)
		s.install()
		e := s.editor()
		token, pid := s.servedByService("", 5*time.Second)
		s.build("v0.0.2")
		second := s.editor()
		now, _ := s.served(token, 10*time.Second)
		if log := second.log.String(); strings.Contains(log, fallback) {
			t.Errorf("the service was tried although it runs: %s", log)
		}
		accPoll(t, 20*time.Second, "the old server ends", func() error {
			if _, err := s.r.try("root", "kill", "-0", strconv.Itoa(pid)); err == nil {
				return errors.New("it runs")
			}
			return nil
		})
		s.rests(5 * time.Second)
		if _, err := e.server(); err != nil {
			t.Errorf("the first editor: %v", err)
		}
		s.close(e)
		s.close(second)
		ends(s)
		e = s.editor()
		s.servedByService(now, 5*time.Second)
		if d := s.mustLease(); d.Version != "v0.0.2" {
			t.Errorf("the service runs %s", d.Version)
		}
		s.close(e)
		if out, code := s.words("serve", "stop"); code != 0 {
			t.Errorf("stop: %d: %s", code, out)
		}
		s.rests(10 * time.Second) // it is not started again
		uninstall(s)
	})

	t.Run("the service hangs", func(t *testing.T) {
		s := machine.in(t).checkout("/home/alice/hangs", "/opt/d/majordomus", quick)
		s.install()
		s.close(s.editor())
		token, pid := s.servedByService("", 5*time.Second)
		s.r.do("root", "kill", "-STOP", strconv.Itoa(pid))
		e := s.editor()
		s.served(token, 10*time.Second)
		s.r.do("root", "kill", "-CONT", strconv.Itoa(pid))
		s.rests(20 * time.Second)
		s.close(e)
		ends(s)
		uninstall(s)
	})

	t.Run("it cannot be enabled", func(t *testing.T) {
		s := machine.in(t).checkout("/home/alice/unable", "/opt/e/majordomus", quick)
		units := filepath.Join(s.r.root, "home/alice/.config/systemd/user")
		s.r.do("alice", "mkdir", "-p", "/home/alice/.config/systemd/user")
		s.r.do("alice", "touch", "/home/alice/.config/systemd/user/default.target.wants")
		out, code := s.words("install", "service")
		if code != 1 || !strings.Contains(out, "enabling the service: systemctl --user") {
			t.Errorf("install: %d: %s", code, out)
		}
		if left, err := filepath.Glob(filepath.Join(units, "*majordomus*")); err != nil || len(left) > 0 {
			t.Errorf("%v are left, %v", left, err)
		}
		s.r.do("alice", "rm", "-rf", "/home/alice/.config")
		s.r.clean()
	})

	t.Run("the checkout is gone", func(t *testing.T) {
		s := machine.in(t).checkout("/home/alice/deleted", "/opt/f/majordomus", "  idle_seconds: 900\n")
		s.install()
		s.close(s.editor())
		_, pid := s.servedByService("", 5*time.Second)
		s.r.must(os.RemoveAll(s.root))
		where := s.work
		s.work = "/"
		uninstall(s, "--root", where)
		if out, err := s.r.try("root", "kill", "-0", strconv.Itoa(pid)); err == nil {
			t.Errorf("its process is left: %s", out)
		}
		if out, code := s.words("uninstall", "service", "--root", where); code != 0 || out != "no service was installed\n" {
			t.Errorf("again: %d: %s", code, out)
		}
	})

	t.Run("the checkout is moved", func(t *testing.T) {
		s := machine.in(t).checkout("/home/alice/before", "/opt/g/majordomus", quick)
		s.install()
		s.r.must(os.Rename(s.root, s.root+"hand"))
		s.work, s.root = s.work+"hand", s.root+"hand"
		s.r.login()
		if got := s.show("ActiveState"); got != "inactive" {
			t.Errorf("at the next login it is %s", got)
		}
		s.says("moved", "install", "service")
		e := s.editor()
		s.close(e)
		ends(s)
		uninstall(s, "--all")
	})

	t.Run("it failed too often", func(t *testing.T) {
		s := machine.in(t).checkout("/home/alice/often", "/opt/h/majordomus", quick)
		s.install()
		path := filepath.Join(s.root, ".ai/repo/policy.yaml")
		good, err := os.ReadFile(path)
		s.r.must(err)
		s.r.must(os.WriteFile(path, []byte("server:\n  nonsense: 1\n"), 0o644))
		s.r.login()
		accPoll(t, 20*time.Second, "systemd gives up", func() error {
			if got := s.show("ActiveState") + " " + s.show("NRestarts"); got != "failed 5" {
				return errors.New(got)
			}
			return nil
		})
		if out, _ := s.words("status"); !strings.Contains(out, "failed: it ended with 1\n") {
			t.Errorf("status: %s", out)
		}
		s.r.must(os.WriteFile(path, good, 0o644))
		e := s.editor()
		s.servedByService("", 5*time.Second)
		s.close(e)
		uninstall(s)
	})

	t.Run("the manager hangs", func(t *testing.T) {
		s := machine.in(t).checkout("/home/alice/stopped", "/opt/i/majordomus", quick)
		s.install()
		manager := s.r.do("root", "systemctl", "show", "--value", "--property=MainPID", fmt.Sprintf("user@%d.service", sdUID))
		s.r.do("root", "kill", "-STOP", manager)
		begun := time.Now()
		e := s.editor()
		token, _ := s.served("", time.Second)
		if took := time.Since(begun); took > 4*time.Second {
			t.Errorf("served after %v", took)
		}
		s.r.do("root", "kill", "-CONT", manager)
		if n := strings.Count(e.log.String(), fallback); n != 1 {
			t.Errorf("told %d times: %s", n, e.log.String())
		}
		s.rests(10 * time.Second)
		if now, _ := s.served("", time.Second); now != token {
			t.Error("the service took the lease when the manager went on")
		}
		s.close(e)
		ends(s)
		uninstall(s)
	})

	t.Run("there is no manager", func(t *testing.T) {
		s := machine.in(t).checkout("/home/alice/none", "/opt/j/majordomus", quick)
		s.install()
		s.r.do("root", "systemctl", "stop", fmt.Sprintf("user@%d.service", sdUID))
		e := s.editor()
		s.served("", time.Second)
		if n := strings.Count(e.log.String(), fallback); n != 1 {
			t.Errorf("told %d times: %s", n, e.log.String())
		}
		if out, _ := s.words("status"); !strings.Contains(out, ", unknown: there is no service manager for this account") {
			t.Errorf("status: %s", out)
		}
		s.close(e)
		ends(s)
		other := s.r.checkout("/home/alice/other", "/opt/j/majordomus", quick)
		out, code := other.words("install", "service")
		if code != 12 || !strings.Contains(out, "hint: nothing was installed") {
			t.Errorf("install: %d: %s", code, out)
		}
		if left, err := filepath.Glob(filepath.Join(s.r.root, "home/alice/.config/systemd/user/*.service")); err != nil || len(left) != 1 {
			t.Errorf("installed: %v, %v", left, err)
		}
		if out, code := s.words("uninstall", "service"); code != 0 {
			t.Errorf("uninstall: %d: %s", code, out)
		}
		s.r.do("root", "systemctl", "start", fmt.Sprintf("user@%d.service", sdUID))
		s.r.clean()
	})
}

// in is the same machine for a test of its own.
func (r *sdRig) in(t *testing.T) *sdRig {
	t.Helper()
	other := *r
	other.t = t
	return &other
}
