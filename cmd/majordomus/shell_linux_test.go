package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"majordomus/install/shell"
	"majordomus/lease"
	"majordomus/server"
)

// The hooks are tried in real shells at a terminal of their own.

var hooked = []string{"bash", "zsh", "fish"}

// accShell is a shell that a person types into.
type accShell struct {
	c      *accCheckout
	kind   string
	tty    *os.File
	out    accBuffer
	report string
	asked  int
}

// startup is the startup file of a shell.
func (c *accCheckout) startup(kind string) string {
	return filepath.Join(c.home, map[string]string{"bash": ".bashrc", "zsh": ".zshrc", "fish": ".config/fish/config.fish"}[kind])
}

// loads is what a startup file has to have by hand.
func (c *accCheckout) loads(kind string) string {
	if kind == "fish" {
		return c.program + " hook fish | source\n"
	}
	return `eval "$(` + c.program + ` hook ` + kind + `)"` + "\n"
}

// entrable is a fresh checkout with a manifest, and a folder beside it that is
// in none.
func entrable(t *testing.T, kinds ...string) *accCheckout {
	t.Helper()
	for _, kind := range kinds {
		_, err := exec.LookPath(kind)
		accNeed(t, err == nil, kind+" is missing")
	}
	c := accFresh(t)
	c.writeFile(filepath.Join(c.root, ".ai/manifest.yaml"), "")
	c.writeFile(filepath.Join(c.root, "sub/deep/file"), "")
	c.writeFile(filepath.Join(c.outside(), "file"), "")
	return c
}

func (c *accCheckout) outside() string { return filepath.Join(filepath.Dir(c.root), "plain") }

// types starts a shell outside the checkout, whose startup file is rc and a word
// of the test's own.
func (c *accCheckout) types(kind, rc string, wrap ...string) *accShell {
	c.t.Helper()
	s := &accShell{c: c, kind: kind, report: filepath.Join(c.t.TempDir(), "report")}
	word := `report() { printf '%s|%s|%s|%s\n' "$?" "${MAJORDOMUS_ROOT-unset}" "${MAJORDOMUS_URL-unset}" "$1" >>'` + s.report + `'; printf 'reported %s\n' "$1"; }` + "\n"
	if kind == "fish" {
		word = `function report
	set -l was $status
	set -l root unset
	set -l url unset
	set -q MAJORDOMUS_ROOT; and set root "$MAJORDOMUS_ROOT"
	set -q MAJORDOMUS_URL; and set url "$MAJORDOMUS_URL"
	echo "$was|$root|$url|$argv[1]" >>'` + s.report + `'
	echo "reported $argv[1]"
end
set -g fish_greeting
function fish_prompt; printf "> "; end
`
	}
	c.writeFile(c.startup(kind), rc+word)
	// Where fish finds no such folder, it reads the manual pages of the machine
	// in the background for minutes.
	if err := os.MkdirAll(filepath.Join(c.home, ".local/share/fish/generated_completions"), 0o755); err != nil {
		c.t.Fatal(err)
	}
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		accNeed(c.t, false, "no terminal can be had: "+err.Error())
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	slave, err := os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		c.t.Fatal(err)
	}
	defer slave.Close()
	s.tty = master
	args := append(slices.Clone(wrap), kind, "-i")
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir, cmd.Env = c.outside(), append(c.environ(), "TERM=dumb")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	read := make(chan struct{})
	go func() { // ends with the shell, and is waited for below
		defer close(read)
		b := make([]byte, 4096)
		for {
			n, err := master.Read(b)
			s.out.Write(b[:n])
			if err != nil {
				return
			}
		}
	}()
	c.t.Cleanup(func() {
		// A shell that is traced is in a process group of its own, and one that
		// lives keeps the terminal, of which the reading would never end.
		for _, pid := range inSession(cmd.Process.Pid) {
			syscall.Kill(pid, syscall.SIGKILL) // ignore error: it may have ended
		}
		cmd.Wait() // ignore error: killed
		slave.Close()
		master.Close()
		<-read
		if c.t.Failed() {
			c.t.Logf("%s showed:\n%s", kind, s.shown())
		}
	})
	s.ask()
	return s
}

// inSession are the processes whose terminal somebody's session has.
func inSession(leader int) (pids []int) {
	entries, _ := os.ReadDir("/proc") // ignore error: then there are none
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, _ := os.ReadFile("/proc/" + e.Name() + "/stat") // ignore error: it has ended
		_, rest, _ := strings.Cut(string(stat), ") ")         // the name may have blanks
		if f := strings.Fields(rest); len(f) > 3 && f[3] == strconv.Itoa(leader) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// said is what a shell reports of itself.
type said struct{ status, root, url string }

// types types a line.
func (s *accShell) types(line string) {
	s.c.t.Helper()
	if _, err := s.tty.WriteString(line + "\n"); err != nil {
		s.c.t.Fatal(err)
	}
}

// ask types a line and then has the shell report: the hook has looked before
// each.
func (s *accShell) ask(lines ...string) said {
	s.c.t.Helper()
	s.asked++
	mark := "|" + strconv.Itoa(s.asked)
	for _, line := range append(lines, "report "+strconv.Itoa(s.asked)) {
		s.types(line)
	}
	var got said
	err := accUntil(20*time.Second, func() error {
		b, err := os.ReadFile(s.report)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(b)) {
			if line, ok := strings.CutSuffix(strings.TrimSuffix(line, "\n"), mark); ok {
				f := strings.Split(line, "|")
				got = said{f[0], f[1], f[2]}
				// What was shown before has been read by then, too.
				if at := fmt.Sprintf("reported %d", s.asked); !slices.Contains(strings.Split(s.shown(), "\n"), at) {
					return errors.New("the terminal does not show that " + at)
				}
				return nil
			}
		}
		return fmt.Errorf("the shell does not answer %q", lines)
	})
	if err != nil {
		s.c.t.Fatal(err)
	}
	return got
}

var escapes = regexp.MustCompile(`\x1b(\[[0-9;?>=]*[a-zA-Z]|\][^\x07\x1b]*(\x07|\x1b\\)|[>=()][A-Z0-9]?)`)

// shown is what the terminal has shown.
func (s *accShell) shown() string {
	return strings.ReplaceAll(escapes.ReplaceAllString(s.out.String(), ""), "\r", "")
}

// news are the lines that it has shown of the checkout. Their beginning may be on
// the line of a prompt.
func (s *accShell) news() []string {
	var list []string
	for line := range strings.Lines(s.shown()) {
		if _, text, ok := strings.Cut(strings.TrimSpace(line), "majordomus: work"); ok {
			list = append(list, text)
		}
	}
	return list
}

// tells waits until the terminal has shown this news, after so many others, and
// no other.
func (s *accShell) tells(after int, want ...string) {
	s.c.t.Helper()
	err := accUntil(5*time.Second, func() error {
		if news := s.news()[after:]; !slices.Equal(news, want) {
			return fmt.Errorf("news: %q, want %q", news, want)
		}
		return nil
	})
	if err != nil {
		s.c.t.Error(err)
	}
}

func (s *accShell) want(what string, want said, lines ...string) {
	s.c.t.Helper()
	if got := s.ask(lines...); got != want {
		s.c.t.Errorf("%s: %+v, want %+v", what, got, want)
	}
}

// served waits until the checkout has a server, and returns its address.
func (c *accCheckout) served() string {
	c.t.Helper()
	accPoll(c.t, 20*time.Second, "a server", func() error {
		_, err := c.lease()
		return err
	})
	return *c.mustLease().URL
}

func (c *accCheckout) stop() {
	c.t.Helper()
	if _, log, err := c.run("serve", "stop", "--force"); err != nil {
		c.t.Fatal(err, log)
	}
}

func TestShellEntry(t *testing.T) {
	t.Parallel()
	for _, kind := range hooked {
		t.Run(kind, func(t *testing.T) {
			c := entrable(t, kind)
			s := c.types(kind, c.loads(kind))
			nowhere := said{"0", "unset", "unset"}
			s.want("outside", nowhere)
			s.want("outside still", nowhere, "cd /")
			got := s.ask("cd " + c.root)
			if got.status != "0" || got.root != c.root {
				t.Errorf("entered: %+v", got)
			}
			url := c.served()
			inside := said{"0", c.root, url}
			s.want("served", inside, "true")
			s.want("below", inside, "cd sub/deep")
			s.tells(0, ": its server is starting", " is served at "+url)
			s.want("left", nowhere, "cd "+c.outside())
			s.want("entered below", inside, "cd "+c.root+"/sub")
			s.want("a status after a change", said{"7", c.root, url}, "cd /", "cd "+c.root+"; sh -c 'exit 7'")
			s.want("a status on leaving", said{"7", "unset", "unset"}, "cd /; sh -c 'exit 7'")
			s.want("a status without a change", said{"7", "unset", "unset"}, "sh -c 'exit 7'")

			// By another name.
			if err := os.Symlink(filepath.Join(c.root, "sub"), filepath.Join(c.outside(), "link")); err != nil {
				t.Fatal(err)
			}
			s.want("entered by a link", inside, "cd "+c.outside()+"/link/deep")

			// What was there before comes back, and what is set inside stays.
			set := "export %s='%s'"
			if kind == "fish" {
				set = "set -gx %s '%s'"
			}
			s.want("left", nowhere, "cd /")
			s.want("set", said{"0", "/mine's", ""}, `export MAJORDOMUS_ROOT="/mine's"`, fmt.Sprintf(set, "MAJORDOMUS_URL", ""))
			s.want("entered", inside, "cd "+c.root)
			s.want("put back", said{"0", "/mine's", ""}, "cd /")
			s.want("entered", inside, "cd "+c.root)
			s.want("a shell in it", inside, kind+" -i")
			s.want("put back there", said{"0", "/mine's", ""}, "cd /")
			s.want("a shell outside", said{"0", "/mine's", ""}, kind+" -i")
			s.want("and back", inside, "exit", "exit")
			s.want("of his own", said{"0", "/other", ""}, fmt.Sprintf(set, "MAJORDOMUS_ROOT", "/other"), "cd /")

			// Another one's environment is not taken for an order.
			s.types("cd " + c.root)
			s.want("entered", inside)
			s.want("not joined from elsewhere", said{"12", c.root, url}, "sh -c 'cd "+c.outside()+" && exec "+c.program+" status'")

			// A stopped server is news, and stays stopped.
			before := len(s.news())
			c.stop()
			s.want("stopped", said{"0", c.root, "unset"}, "true")
			s.want("stopped", said{"0", c.root, "unset"}, "cd sub")
			s.tells(before, " is served no more")
			// What the hook itself started ends by itself; a server would not.
			accPoll(t, 10*time.Second, "nothing is started again", func() error {
				if pids := c.pids(); len(pids) > 0 {
					return fmt.Errorf("%v", pids)
				}
				return nil
			})
			// The next that an editor starts is.
			if _, log, err := c.run("serve", "ensure"); err != nil {
				t.Fatal(log)
			}
			s.want("served by another", said{"0", c.root, *c.mustLease().URL}, "true")

			// A server that was killed left its lease.
			d := c.mustLease()
			syscall.Kill(d.PID, syscall.SIGKILL)
			s.want("left", said{"0", "/other", ""}, "cd /")
			accPoll(t, 10*time.Second, "its end", func() error {
				if len(c.pids()) > 0 {
					return errors.New("it lives")
				}
				return nil
			})
			s.types("cd " + c.root)
			accPoll(t, 20*time.Second, "the next one", func() error {
				if n, err := c.lease(); err != nil || n.Token == d.Token {
					return fmt.Errorf("%v, %v", n, err)
				}
				return nil
			})
			s.want("served again", said{"0", c.root, *c.mustLease().URL}, "true")

			// From one checkout into another, and one that is made on the spot.
			other := filepath.Join(c.outside(), "other")
			c.writeFile(filepath.Join(other, ".git/HEAD"), "ref: refs/heads/main\n")
			s.want("another", said{"0", other, "unset"}, "cd "+other)
			here := filepath.Join(c.outside(), "here")
			s.want("outside", said{"0", "/other", ""}, "cd "+c.outside(), "mkdir here", "cd here")
			s.want("made on the spot", said{"0", here, "unset"}, "mkdir .git")
			s.want("and gone", said{"0", "/other", ""}, "rmdir .git")
			s.want("a folder that is gone", said{"0", "/other", ""}, "rmdir ../here")
			if !strings.Contains(s.shown(), "report") || strings.Contains(s.shown(), "__majordomus") {
				t.Error("the terminal shows what it should not, or nothing")
			}
		})
	}
}

// Fifty times in and out in two shells at once, and all of that is one server.
func TestShellsAtOnce(t *testing.T) {
	t.Parallel()
	c := entrable(t, hooked...)
	shells := []*accShell{c.types("bash", c.loads("bash")), c.types("zsh", c.loads("zsh")), c.types("fish", c.loads("fish"))}
	for _, s := range shells {
		s.types("cd " + c.root)
	}
	for range 50 {
		for _, s := range shells {
			s.types("cd " + c.outside())
			s.types("cd " + c.root)
		}
	}
	for _, s := range shells {
		s.ask()
	}
	url := c.served()
	for _, s := range shells {
		s.want(s.kind, said{"0", c.root, url}, "true")
		for range 10 {
			s.want(s.kind, said{"0", "unset", "unset"}, "cd "+c.outside())
			s.want(s.kind, said{"0", c.root, url}, "cd "+c.root)
		}
	}
	log, err := os.ReadFile(filepath.Join(filepath.Dir(c.leasePath()), "server.log"))
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(log, []byte("took the lease")); n != 1 {
		t.Errorf("%d servers took the lease:\n%s", n, log)
	}
}

// The prompt is there while the server cannot even begin to start.
func TestShellDoesNotWait(t *testing.T) {
	t.Parallel()
	for _, kind := range hooked {
		t.Run(kind, func(t *testing.T) {
			c := entrable(t, kind)
			if _, log, err := c.run("serve", "ensure"); err != nil {
				t.Fatal(log) // so that there is a folder
			}
			c.stop()
			unlock, ok, err := c.folder().TryLockLaunch()
			if err != nil || !ok {
				t.Fatal(ok, err)
			}
			s := c.types(kind, c.loads(kind))
			began := time.Now()
			s.want("entered", said{"0", c.root, "unset"}, "cd "+c.root)
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("the prompt came after %v", took)
			}
			if _, err := os.Stat(c.leasePath()); err == nil {
				t.Error("served behind the lock")
			}
			unlock()
			s.want("served", said{"0", c.root, c.served()}, "true")
		})
	}
}

// At a prompt where nothing has changed no process is started, nor is one outside
// any checkout.
func TestShellStartsNothing(t *testing.T) {
	t.Parallel()
	_, err := exec.LookPath("strace")
	accNeed(t, err == nil, "strace is missing")
	if err := exec.Command("strace", "-o", "/dev/null", "true").Run(); err != nil {
		accNeed(t, false, "processes cannot be traced here")
	}
	for _, kind := range hooked {
		t.Run(kind, func(t *testing.T) {
			c := entrable(t, kind)
			if _, log, err := c.run("serve", "ensure"); err != nil {
				t.Fatal(log)
			}
			trace := filepath.Join(t.TempDir(), "trace")
			s := c.types(kind, c.loads(kind), "strace", "-f", "-qq", "-o", trace, "-e", "trace=openat,execve,execveat,fork,vfork,clone,clone3")
			marks := filepath.Join(t.TempDir(), "mark-")
			phases := []struct {
				name  string
				lines []string
			}{
				{"outside", []string{"cd /", "true", "cd /tmp", "cd " + c.outside(), "cd /usr", ""}},
				{"entering", []string{"cd " + c.root}},
				{"inside", []string{"true", "cd sub", "cd deep", "true", "cd ../..", "", "true"}},
				{"leaving", []string{"cd /", "true", "cd /usr/lib"}},
				{"entering", []string{"cd " + c.root + "/sub"}},
				{"end", nil},
			}
			for i, p := range phases {
				s.ask(append([]string{"true >" + marks + strconv.Itoa(i)}, p.lines...)...)
			}
			if got := s.ask(); got.root != c.root || got.url != c.served() {
				t.Errorf("%+v", got)
			}
			b, err := os.ReadFile(trace)
			if err != nil {
				t.Fatal(err)
			}
			for i, p := range phases[:len(phases)-1] {
				_, rest, ok := strings.Cut(string(b), marks+strconv.Itoa(i))
				during, _, ends := strings.Cut(rest, marks+strconv.Itoa(i+1))
				if !ok || !ends {
					t.Fatalf("%s is not in the trace", p.name)
				}
				runs, starts := 0, ""
				for line := range strings.Lines(during) {
					call, _, _ := strings.Cut(line, "(")
					f := strings.Fields(call)
					if len(f) < 2 || f[1] == "openat" || strings.Contains(line, "CLONE_THREAD") || !slices.Contains([]string{"execve", "execveat", "fork", "vfork", "clone", "clone3"}, f[1]) {
						continue
					}
					starts += line
					if strings.Contains(line, c.program) {
						runs++
					}
				}
				if want := p.name == "entering"; want && runs != 1 || !want && starts != "" {
					t.Errorf("%s, this was started:\n%s", p.name, starts)
				}
			}
		})
	}
}

// Shells that no person types into say and start nothing.
func TestShellScripts(t *testing.T) {
	t.Parallel()
	for _, kind := range hooked {
		t.Run(kind, func(t *testing.T) {
			c := entrable(t, kind)
			c.writeFile(c.startup(kind), c.loads(kind))
			for _, args := range [][]string{
				{kind, "-c", "true"},
				{kind, "-c", "cd sub; cd ..; . " + c.startup(kind) + "; cd sub"},
				{kind, "-l", "-c", ". " + c.startup(kind)},
			} {
				cmd := exec.Command(args[0], args[1:]...)
				// As a shell of a remote command, which reads its startup file.
				cmd.Dir, cmd.Env = c.root, append(c.environ(), "SSH_CLIENT=127.0.0.1 1 22", "SHLVL=0", "BASH_ENV="+c.startup("bash"))
				if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
					t.Errorf("%q: %v: %s", args, err, out)
				}
			}
			if _, err := os.Stat(filepath.Join(c.root, ".ai/local")); err == nil {
				t.Error("a server was brought up")
			}
		})
	}
}

// The hook gets on with whatever else wants to be run before a prompt of bash.
func TestShellPromptCommand(t *testing.T) {
	t.Parallel()
	preexec, err := filepath.Abs("testdata/shell/bash-preexec.sh")
	if err != nil {
		t.Fatal(err)
	}
	const theirs = `theirs() { local was=$?; looked=$was; return $was; }` + "\n"
	for name, rc := range map[string][2]string{
		"none":                  {"looked=7\n", ""},
		"string":                {theirs + "PROMPT_COMMAND=theirs\n", ""},
		"string with an end":    {theirs + "PROMPT_COMMAND='theirs; '\n", ""},
		"string with a comment": {theirs + "PROMPT_COMMAND='theirs # their own'\n", ""},
		"string with a line":    {theirs + "PROMPT_COMMAND=$'theirs\\n'\n", ""},
		"string afterwards":     {"", theirs + `PROMPT_COMMAND="$PROMPT_COMMAND;theirs"` + "\n"},
		"array":                 {theirs + "PROMPT_COMMAND=(: theirs)\n", ""},
		"array afterwards":      {"", theirs + "PROMPT_COMMAND+=(theirs)\n"},
		"preexec":               {theirs + ". '" + preexec + "'\nprecmd_functions+=(theirs)\n", ""},
		"preexec afterwards":    {theirs, ". '" + preexec + "'\nprecmd_functions+=(theirs)\n"},
		"unset variables":       {"looked=7\nset -u\n", ""},
		"posix":                 {"looked=7\nset -o posix\n", ""},
		"traps":                 {"looked=7\nset -E\ntrap 'echo TRAPPED' ERR\n", ""},
		"options":               {"looked=7\nshopt -s nullglob extglob nocasematch failglob\nIFS=/\nset -f\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := entrable(t, "bash")
			c.extra = append(c.extra, "MAJORDOMUS_AUTOSTART=off")
			s := c.types("bash", rc[0]+c.loads("bash")+c.loads("bash")+rc[1]+c.loads("bash"))
			s.want("entered", said{"0", c.root, "unset"}, "cd "+c.root)
			if strings.Contains(s.shown(), "TRAPPED") {
				t.Error("the hook runs into a trap")
			}
			s.want("their status", said{"0", "unset", "unset"}, "cd /; sh -c 'exit 7'", `[ "$looked" = 7 ]`)
			count := `[[ $(declare -p PROMPT_COMMAND precmd_functions 2>/dev/null) =~ __majordomus_hook.*__majordomus_hook ]]`
			s.want("once", said{"1", "unset", "unset"}, count)
		})
	}
	t.Run("zsh", func(t *testing.T) {
		c := entrable(t, "zsh")
		c.extra = append(c.extra, "MAJORDOMUS_AUTOSTART=off")
		rc := "setopt no_unset sh_word_split ksh_arrays err_return warn_create_global\ntheirs() { looked=$?; }\nprecmd_functions=(theirs)\n"
		s := c.types("zsh", rc+c.loads("zsh")+c.loads("zsh"))
		s.want("entered", said{"0", c.root, "unset"}, "cd "+c.root)
		s.want("their status", said{"0", "unset", "unset"}, "cd /; sh -c 'exit 7'", `[ "$looked" = 7 ]`)
		s.want("once", said{"0", "unset", "unset"}, `[ "${#precmd_functions[@]}" = 2 ]`)
	})
}

// Without its program the hook is silent, and still leaves.
func TestShellWithoutProgram(t *testing.T) {
	t.Parallel()
	for _, kind := range hooked {
		t.Run(kind, func(t *testing.T) {
			c := entrable(t, kind)
			c.extra = append(c.extra, "MAJORDOMUS_AUTOSTART=off")
			b, err := os.ReadFile(c.program)
			if err != nil {
				t.Fatal(err)
			}
			program := filepath.Join(t.TempDir(), "majordomus")
			if err := accExecutable(program, b); err != nil {
				t.Fatal(err)
			}
			c = c.with(program)
			if _, log, err := c.run("install", "shell", kind); err != nil {
				t.Fatal(log)
			}
			rc, err := os.ReadFile(c.startup(kind))
			if err != nil {
				t.Fatal(err)
			}
			s := c.types(kind, string(rc))
			s.want("entered", said{"0", c.root, "unset"}, "cd "+c.root)
			if err := os.Remove(program); err != nil {
				t.Fatal(err)
			}
			s.want("left", said{"0", "unset", "unset"}, "cd /")
			s.want("not entered", said{"0", "unset", "unset"}, "cd "+c.root)
			s = c.types(kind, string(rc))
			s.want("never entered", said{"0", "unset", "unset"}, "cd "+c.root)
			if shown := s.shown(); strings.Contains(shown, "found") || strings.Contains(shown, program) {
				t.Errorf("it shows %q", shown)
			}
		})
	}
}

func TestAutostart(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(*accCheckout){
		"policy":      func(c *accCheckout) { c.policy("  autostart: false\n") },
		"account":     func(c *accCheckout) { c.extra = append(c.extra, "MAJORDOMUS_AUTOSTART=off") },
		"no manifest": func(c *accCheckout) { os.Remove(filepath.Join(c.root, ".ai/manifest.yaml")) },
		"bad policy":  func(c *accCheckout) { c.policy("  autostart: maybe\n") },
		"only export": nil,
	} {
		t.Run(name, func(t *testing.T) {
			c := entrable(t)
			word := "export"
			if prepare != nil {
				prepare(c)
				word = "enter"
			}
			for _, sh := range append(shell.Names(), "json") {
				out, log, err := c.run("env", word, "--shell", sh)
				if err != nil || log != "" || !strings.Contains(out, c.root) {
					t.Errorf("%s: %v: %s%s", sh, err, out, log)
				}
			}
			if pids := c.pids(); len(pids) > 0 {
				t.Errorf("started: %v", pids)
			}
		})
	}
	// Nothing keeps anybody from his prompt, and nothing is said to a program.
	t.Run("whatever is wrong", func(t *testing.T) {
		c := entrable(t)
		c.extra = append(c.extra, "MAJORDOMUS_ENTERED="+c.root, "MAJORDOMUS_ROOT="+c.root, "MAJORDOMUS_URL=http://x", "MAJORDOMUS_WAS_URL=")
		left := func(what, dir string) {
			t.Helper()
			for _, word := range []string{"enter", "export"} {
				cmd := c.command("env", word, "--shell", "bash")
				cmd.Dir = dir
				out, err := cmd.CombinedOutput()
				want := "unset MAJORDOMUS_ROOT\nexport MAJORDOMUS_URL=''\nunset MAJORDOMUS_ENTERED\nunset MAJORDOMUS_WAS_ROOT\nunset MAJORDOMUS_WAS_URL\n" +
					"unset __majordomus_root __majordomus_lease __majordomus_seen __majordomus_url\n"
				if err != nil || string(out) != want {
					t.Errorf("%s: %s: %v: %s", what, word, err, out)
				}
			}
		}
		left("outside", c.outside())
		c.writeFile(filepath.Join(c.root, ".ai/manifest.yaml"), "schema: another\n")
		left("a manifest that cannot be read", c.root)
		c.writeFile(filepath.Join(c.root, ".ai/manifest.yaml"), "")
		c.writeFile(c.leasePath(), "\x00\x1b[2Jnonsense")
		if out, log, err := c.run("env", "export", "--shell", "bash"); err != nil || log != "" || strings.Contains(out, "nonsense") || strings.Contains(out, "seen") {
			t.Errorf("%v: %q%s", err, out, log)
		}
		if out, log, err := c.run("env", "enter", "--shell", "bash"); err != nil || log != "" || !strings.Contains(out, c.root) {
			t.Errorf("%v: %q%s", err, out, log)
		}
		c.served()
	})
	t.Run("untrusted", func(t *testing.T) {
		c := entrable(t)
		ran := filepath.Join(t.TempDir(), "ran")
		c.writeFile(filepath.Join(c.root, ".ai/repo/mcp.json"), `{"mcpServers":{"x":{"command":"/bin/touch","args":["`+ran+`"]}}}`)
		if out, log, err := c.run("env", "enter", "--shell", "json"); err != nil || log != "" {
			t.Errorf("%v: %s%s", err, out, log)
		}
		c.served()
		out, log, err := c.run("upstream", "list", "--format", "json")
		var all server.Upstreams
		if err != nil || json.Unmarshal([]byte(out), &all) != nil || !all.Untrusted || len(all.Upstreams) != 0 {
			t.Errorf("%v: %s%s", err, out, log)
		}
		if _, err := os.Stat(ran); err == nil {
			t.Error("it ran")
		}
	})
}

// direnv gets one line, sees the lease change, and is not kept waiting by the
// server, although it has its children inherit a descriptor of its own.
func TestDirenv(t *testing.T) {
	t.Parallel()
	c := entrable(t, "direnv", "bash")
	if out, log, err := c.run("install", "shell", "direnv"); err != nil {
		t.Fatal(out, log)
	}
	if b, err := os.ReadFile(filepath.Join(c.root, ".envrc")); err != nil || bytes.Count(b, []byte("\n")) != 4 {
		t.Errorf("%s, %v", b, err)
	}
	direnv := func(args ...string) string {
		t.Helper()
		cmd := exec.Command("direnv", args...)
		cmd.Dir, cmd.Env = c.root, c.environ()
		var log bytes.Buffer
		cmd.Stderr, cmd.WaitDelay = &log, time.Minute
		began := time.Now()
		out, err := cmd.Output() // to the end of the stream, as a shell's $() would
		if err != nil {
			t.Fatalf("direnv %q: %v: %s", args, err, &log)
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("direnv %q took %v", args, took)
		}
		if strings.Contains(log.String(), "majordomus") {
			t.Errorf("direnv %q: said without a terminal: %s", args, &log)
		}
		return string(out)
	}
	direnv("allow", ".")
	env := func() map[string]*string {
		t.Helper()
		var vars map[string]*string
		if err := json.Unmarshal([]byte(direnv("export", "json")), &vars); err != nil {
			t.Fatal(err)
		}
		return vars
	}
	if v := env()["MAJORDOMUS_ROOT"]; v == nil || *v != c.root {
		t.Errorf("entered: %v", v)
	}
	url := c.served()
	vars := env()
	if v := vars["MAJORDOMUS_URL"]; v == nil || *v != url {
		t.Errorf("served: %v", v)
	}
	if v := vars["DIRENV_WATCHES"]; v == nil {
		t.Error("nothing is watched")
	}
	if out := direnv("exec", ".", "sh", "-c", "echo $MAJORDOMUS_URL"); out != url+"\n" {
		t.Errorf("exec: %q", out)
	}
}

// Beside the hook of the shell, whichever of the two is loaded first, and without
// it, direnv enters and leaves, and neither takes what the other has set for what
// was there before.
func TestDirenvAtATerminal(t *testing.T) {
	t.Parallel()
	for _, kind := range hooked {
		direnv := `eval "$(direnv hook ` + kind + `)"` + "\n"
		if kind == "fish" {
			direnv = "direnv hook fish | source\n"
		}
		for name, with := range map[string]struct {
			rc   func(ours string) string
			line bool // ours in the .envrc
		}{
			"direnv alone":               {func(string) string { return direnv }, true},
			"after the hook":             {func(ours string) string { return ours + direnv }, true},
			"before the hook":            {func(ours string) string { return direnv + ours }, true},
			"after, for something else":  {func(ours string) string { return ours + direnv }, false},
			"before, for something else": {func(ours string) string { return direnv + ours }, false},
		} {
			if !with.line && kind != "fish" {
				continue // there the order is made, whatever it is for
			}
			t.Run(kind+" "+name, func(t *testing.T) {
				t.Parallel()
				c := entrable(t, "direnv", kind)
				// What happens between direnv's look and that of the hook.
				between := filepath.Join(t.TempDir(), "between")
				c.writeFile(filepath.Join(c.root, ".envrc"), fmt.Sprintf("export THEIRS=of-direnv\nwatch_file '%[1]s'\n[ ! -e '%[1]s' ] || sh '%[1]s' </dev/null >/dev/null 2>&1\n", between))
				if with.line {
					c.must("install", "shell", "direnv")
				}
				allow := exec.Command("direnv", "allow", ".")
				allow.Dir, allow.Env = c.root, c.environ()
				if out, err := allow.CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
				if _, log, err := c.run("serve", "ensure"); err != nil {
					t.Fatal(log)
				}
				s := c.types(kind, with.rc(c.loads(kind)))
				theirs := func(want string) string { return `test "$THEIRS" = "` + want + `"` }
				nowhere := said{"0", "unset", "unset"}
				s.want("outside", nowhere)
				for range 2 {
					inside := said{"0", c.root, c.served()}
					s.want("entered", inside, "cd "+c.root, theirs("of-direnv"))
					s.want("below", inside, "cd sub/deep", theirs("of-direnv"))
					s.want("a status", said{"7", c.root, inside.url}, "sh -c 'exit 7'")
					c.writeFile(between, "exec "+c.program+" serve stop --force\n")
					s.want("stopped", said{"0", c.root, "unset"}, "true")
					if err := os.Remove(between); err != nil {
						t.Fatal(err)
					}
					if _, log, err := c.run("serve", "ensure"); err != nil {
						t.Fatal(log)
					}
					inside.url = *c.mustLease().URL
					s.want("served by another", inside, "true")
					s.want("left", nowhere, "cd "+c.outside(), theirs(""))
					s.want("a status outside", said{"7", "unset", "unset"}, "sh -c 'exit 7'")
				}
				set := "export %s='%s'"
				if kind == "fish" {
					set = "set -gx %s '%s'"
				}
				s.want("set", said{"0", "/mine's", ""}, `export MAJORDOMUS_ROOT="/mine's"`, fmt.Sprintf(set, "MAJORDOMUS_URL", ""))
				inside := said{"0", c.root, c.served()}
				s.want("entered", inside, "cd "+c.root+"/sub")
				s.want("a shell in it", inside, kind+" -i")
				s.want("put back there", said{"0", "/mine's", ""}, "cd /")
				s.want("and back", inside, "exit")
				s.want("put back", said{"0", "/mine's", ""}, "cd /", theirs(""))
				if shown := s.shown(); strings.Contains(shown, "__majordomus") || strings.Contains(shown, "rror") {
					t.Error("the terminal shows what it should not")
				}

				// As an editor's terminal does it, begun in the checkout.
				s = c.types(kind, with.rc(c.loads(kind)), "env", "-C", c.root)
				s.want("begun inside", inside, theirs("of-direnv"))
				c.stop()
				s.want("stopped", said{"0", c.root, "unset"}, "true")
				if _, log, err := c.run("serve", "ensure"); err != nil {
					t.Fatal(log)
				}
				inside.url = *c.mustLease().URL
				s.want("served by another", inside, "true")
				s.want("left", nowhere, "cd "+c.outside(), theirs(""))
			})
		}
	}
}

// direnv looks again where the lease changed while it looked, and where it could
// not tell from the file's time that it changed.
func TestDirenvMissesNothing(t *testing.T) {
	t.Parallel()
	c := entrable(t, "direnv", "bash")
	between := filepath.Join(t.TempDir(), "between")
	c.writeFile(filepath.Join(c.root, ".envrc"), fmt.Sprintf(`watch_file() {
	if [ -e '%[1]s' ]; then
		sh '%[1]s' </dev/null >/dev/null 2>&1
		rm '%[1]s'
	fi
	eval "$("$direnv" watch bash "$@")"
}
`, between))
	c.must("install", "shell", "direnv")
	allow := exec.Command("direnv", "allow", ".")
	allow.Dir, allow.Env = c.root, c.environ()
	if out, err := allow.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	ensure := func() lease.Document {
		t.Helper()
		if _, log, err := c.run("serve", "ensure"); err != nil {
			t.Fatal(log)
		}
		return c.mustLease()
	}
	dated := func(at time.Time) {
		t.Helper()
		if err := os.Chtimes(c.leasePath(), at, at); err != nil {
			t.Fatal(err)
		}
	}
	was := ensure()
	dated(time.Now().Add(-time.Minute))
	c.writeFile(between, c.program+" serve stop --force && "+c.program+" serve ensure")
	s := c.types("bash", `eval "$(direnv hook bash)"`+"\n")
	s.ask("cd " + c.root)
	now := c.mustLease()
	if now.Token == was.Token {
		t.Fatal("the same server serves")
	}
	s.want("another since it looked", said{"0", c.root, *now.URL}, "true")

	// Another one at the same time.
	s.ask("cd " + c.outside())
	at := time.Now()
	dated(at)
	s.want("entered", said{"0", c.root, *now.URL}, "cd "+c.root)
	c.stop()
	next := ensure()
	dated(at)
	s.want("another at the same time", said{"0", c.root, *next.URL}, "true")
	// In the end it is at rest.
	dated(at.Add(-time.Minute))
	s.ask("true")
	before := strings.Count(s.shown(), "direnv: loading")
	s.ask("true", "true")
	if n := strings.Count(s.shown(), "direnv: loading"); n != before {
		t.Errorf("it was loaded %d times more", n-before)
	}
}
