//go:build unix

package child

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestJudgeRecord(t *testing.T) {
	t.Parallel()
	r := record{Boot: "b", Namespace: "n", Server: identity{10, "1"}, Leader: identity{20, "2"}}
	markedAre := func(pids ...int) func(int, string) bool {
		return func(pid int, _ string) bool { return slices.Contains(pids, pid) }
	}
	leader, other, child, stranger := member{pid: 20, start: "2"}, member{pid: 20, start: "9"}, member{pid: 21, start: "3"}, member{pid: 22, start: "3"}
	for _, c := range []struct {
		name string
		s    sight
		want verdict
	}{
		{"another boot", sight{boot: "c", namespace: "n", known: true, members: []member{leader}, marked: markedAre(20)}, drop},
		{"another boot and namespace", sight{boot: "c", namespace: "m", known: true, marked: markedAre()}, drop},
		{"another namespace", sight{boot: "b", namespace: "m", known: true, members: []member{leader}, marked: markedAre(20)}, keep},
		{"a living server", sight{boot: "b", namespace: "n", server: true, known: true, members: []member{leader}, marked: markedAre(20)}, keep},
		{"a living server, its child gone", sight{boot: "b", namespace: "n", server: true, known: true, marked: markedAre()}, keep},
		{"blind", sight{boot: "b", namespace: "n", marked: markedAre()}, keep},
		{"gone", sight{boot: "b", namespace: "n", known: true, marked: markedAre()}, drop},
		{"the leader lives", sight{boot: "b", namespace: "n", known: true, members: []member{child, leader}, marked: markedAre()}, end},
		{"a child lives", sight{boot: "b", namespace: "n", known: true, members: []member{stranger, child}, marked: markedAre(21)}, end},
		{"strangers", sight{boot: "b", namespace: "n", known: true, members: []member{stranger}, marked: markedAre(21)}, drop},
		{"a new leader", sight{boot: "b", namespace: "n", known: true, members: []member{other, stranger}, marked: markedAre()}, drop},
		{"a new leader, and a mark", sight{boot: "b", namespace: "n", known: true, members: []member{child, other}, marked: markedAre(21)}, drop},
	} {
		if got, why := r.judge(c.s); got != c.want {
			t.Errorf("%s: %s (%s), want %s", c.name, got, why, c.want)
		}
	}
}

func TestHasMark(t *testing.T) {
	t.Parallel()
	const token = "0123456789abcdef0123456789abcdef"
	for text, want := range map[string]bool{
		"":                                 false,
		"A=1\x00" + markName + "=" + token: false, // cut off
		markName + "=" + token + "\x00":    true,
		"A=1\x00" + markName + "=" + token + "\x00B=2\x00": true,
		"X" + markName + "=" + token + "\x00":              false,
		markName + "=" + token + "0\x00":                   false,
		markName + "=00\x00":                               false,
	} {
		if got := hasMark([]byte(text), token); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// a logbook is a log that a test reads.
func logbook() (*slog.Logger, *pot) {
	var p pot
	return slog.New(slog.NewTextHandler(&p, &slog.HandlerOptions{Level: slog.LevelDebug})), &p
}

func sweep(t *testing.T, folder string) (ended []string, log string) {
	t.Helper()
	l, p := logbook()
	done := make(chan struct{})
	go func() {
		defer close(done)
		ended = Sweep(folder, l)
	}()
	wait(t, done, "the end of the sweep")
	return ended, p.String()
}

func files(t *testing.T, folder string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func onlyRecord(t *testing.T, folder string) record {
	t.Helper()
	names := files(t, folder)
	if len(names) != 1 {
		t.Fatalf("in the folder: %q", names)
	}
	b, err := os.ReadFile(filepath.Join(folder, names[0]))
	if err != nil {
		t.Fatal(err)
	}
	r, err := parseRecord(b)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func plant(t *testing.T, folder string, r record) (name string) {
	t.Helper()
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	name = filepath.Join(folder, r.Token+recordSuffix)
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestKeepsARecordWhileItLives(t *testing.T) {
	t.Parallel()
	s := spec("family in")
	s.Records = filepath.Join(t.TempDir(), "not-there-yet")
	h := host(t, s)
	member := h.number()
	r := onlyRecord(t, s.Records)
	if r.Name != s.Name || r.Leader.PID != h.PID() || r.Server.PID != os.Getpid() {
		t.Errorf("recorded %+v", r)
	}
	if info, err := os.Stat(filepath.Join(s.Records, r.Token+recordSuffix)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if !marked(member, r.Token) {
		t.Error("what the child starts has no mark")
	}
	if ended, log := sweep(t, s.Records); len(ended) > 0 || !alive(t, member) {
		t.Errorf("ended what is hosted: %q\n%s", ended, log)
	}
	onlyRecord(t, s.Records)
	h.Stdin().Close()
	wait(t, h.Done(), "the end")
	if alive(t, member) {
		onlyRecord(t, s.Records) // its leader has gone, it has not
	}
	h.Stop(t.Context())
	if got := files(t, s.Records); len(got) > 0 {
		t.Errorf("left: %q", got)
	}
}

func TestRunsWithoutARecord(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, gone := filepath.Join(dir, "file"), filepath.Join(dir, "gone")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, records := range []string{file, filepath.Join(gone, "hosted")} {
		s := spec("echo")
		s.Records = records
		var stderr pot
		s.Stderr = &stderr
		h := host(t, s)
		h.say("still")
		if got := h.line(); got != "still" {
			t.Errorf("got %q", got)
		}
		h.Stop(t.Context())
		if got := stderr.String(); !strings.Contains(got, "it is not recorded") || !strings.Contains(got, records) {
			t.Errorf("stderr: %q", got)
		}
	}
	if _, err := os.Stat(gone); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a folder that was gone is there again: %v", err)
	}
}

// killedServer is a server that was killed; what its child has started, pid,
// lives on.
func killedServer(t *testing.T, mode, folder string) (pid int) {
	t.Helper()
	held := newFifo(t)
	s := spec("server", "CHILD_TEST_HOSTS="+mode, "CHILD_TEST_RECORDS="+folder, heldVar+"="+held.path)
	cmd := exec.Command(s.Argv[0])
	cmd.Env, cmd.Stderr = s.Env, os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	h := &hosted{t: t, out: bufio.NewReader(out)}
	pid = h.number()
	endLater(t, pid)
	cmd.Process.Kill()
	cmd.Wait() // ignore error: killed
	return pid
}

// leaderDies waits until the kernel has ended a direct child, of which no event
// tells another process.
func leaderDies(t *testing.T, leader identity) {
	t.Helper()
	if runtime.GOOS != "linux" {
		return
	}
	for until := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		if start, dead := startOf(leader.PID); start != leader.Start || dead {
			return
		}
		if time.Now().After(until) {
			t.Fatal("the kernel did not end the direct child")
		}
	}
}

func TestSweepsWhatAKilledServerLeft(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	member := killedServer(t, "kind father", folder)
	leaderDies(t, onlyRecord(t, folder).Leader)
	if !alive(t, member) {
		t.Fatal("the kernel ended more than the child")
	}
	ended, log := sweep(t, folder)
	if !slices.Equal(ended, []string{"hosted"}) {
		t.Errorf("ended %q\n%s", ended, log)
	}
	if alive(t, member) {
		t.Errorf("it lives\n%s", log)
	}
	if got := files(t, folder); len(got) > 0 {
		t.Errorf("left: %q", got)
	}
}

// The same group, with one thing that does not fit: it must live.
func TestSweepEndsNothingElse(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	member := killedServer(t, "kind father", folder)
	right := onlyRecord(t, folder)
	leaderDies(t, right.Leader)
	if err := os.Remove(filepath.Join(folder, right.Token+recordSuffix)); err != nil {
		t.Fatal(err)
	}
	self, _ := startOf(os.Getpid())
	for _, c := range []struct {
		name   string
		change func(*record)
		left   bool // the record
	}{
		{"no mark of it", func(r *record) { r.Token, r.Leader.Start = newToken(), "1" }, false},
		{"before the last boot", func(r *record) { r.Boot = "another" }, false},
		{"another namespace", func(r *record) { r.Namespace = "pid:[1]" }, true},
		{"a living server", func(r *record) { r.Server = identity{os.Getpid(), self} }, true},
		{"a number that nobody has", func(r *record) { r.Leader.PID = 1 << 29 }, false},
		{"all processes", func(r *record) { r.Leader.PID = 1 }, false},
		{"one's own group", func(r *record) { r.Leader.PID = 0 }, false},
		{"minus one's own group", func(r *record) { r.Leader.PID = -right.Leader.PID }, false},
		{"a path", func(r *record) { r.Schema = "../x" }, false},
	} {
		r := right
		c.change(&r)
		name := plant(t, folder, r)
		ended, log := sweep(t, folder)
		if len(ended) > 0 || !alive(t, member) {
			t.Fatalf("%s: ended %q\n%s", c.name, ended, log)
		}
		if _, err := os.Lstat(name); (err == nil) != c.left {
			t.Errorf("%s: the record: %v\n%s", c.name, err, log)
		}
		os.Remove(name)
	}
	plant(t, folder, right)
	if ended, log := sweep(t, folder); len(ended) != 1 || alive(t, member) {
		t.Errorf("and the right one: ended %q\n%s", ended, log)
	}
}

// A sweep beside first starts: what was just started lives, also where an older
// record has the number of its group.
func TestSweepBesideStarts(t *testing.T) {
	t.Parallel()
	folder, aside := t.TempDir(), t.TempDir()
	stop, swept := make(chan struct{}), make(chan struct{})
	log, said := logbook()
	go func() { // ends before the test does
		defer close(swept)
		for {
			if ended := Sweep(folder, log); len(ended) > 0 {
				t.Errorf("ended %q", ended)
			}
			select {
			case swept <- struct{}{}:
			case <-stop:
				return
			default:
			}
		}
	}()
	defer func() {
		close(stop)
		for range swept {
		}
	}()
	again := func() { // all of one sweep, begun after now
		<-swept
		<-swept
	}
	for range 10 {
		s := spec("echo")
		s.Records = folder
		h := host(t, s)
		again()
		old := record{Schema: recordSchema, Name: "old", Token: newToken(), Server: identity{os.Getpid(), "1"}, Leader: identity{h.PID(), "1"}}
		old.Boot, old.Namespace = system()
		planted := filepath.Join(folder, old.Token+recordSuffix)
		if err := os.Rename(plant(t, aside, old), planted); err != nil { // never half of it
			t.Fatal(err)
		}
		again()
		if _, err := os.Lstat(planted); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the older record was not looked at: %v\n%s", err, said)
		}
		h.say("still")
		if got := h.line(); got != "still" {
			t.Fatalf("it said %q\n%s", got, said)
		}
		onlyRecord(t, folder)
		stopNow(h.Child)
	}
	if strings.Contains(said.String(), "WARN") {
		t.Errorf("it said %s", said)
	}
}

// Where the kernel does not end the direct child, its time proves it.
func TestSweepsALeader(t *testing.T) {
	t.Parallel()
	h := host(t, spec("kind"))
	h.line()
	r := record{Schema: recordSchema, Name: "left", Token: newToken(), Server: identity{os.Getpid(), "1"}, Leader: identity{h.PID(), h.group.start}}
	r.Boot, r.Namespace = system()
	folder := t.TempDir()
	plant(t, folder, r)
	if ended, log := sweep(t, folder); len(ended) != 1 {
		t.Errorf("ended %q\n%s", ended, log)
	}
	if got := h.ended(); got != "exited with code 7" {
		t.Errorf("it %s, and was to be asked", got)
	}
}

// Whatever lies there is got past, and what is not a record stays.
func TestSweepsAmongRubbish(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	at := func(name string) string { return filepath.Join(folder, name) }
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(at(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	record := func() string { return newToken() + recordSuffix }
	write(record(), "")
	write(record(), `{"schema":"majordomus-hosted-group/v1","lead`)
	write(record(), strings.Repeat("\x00", 4096))
	write(record(), `[]`)
	write(record(), `{"schema":"majordomus-hosted-group/v1"}`)
	write(record(), `{"schema":"majordomus-hosted-group/v1","leader":"x"}`)
	big := record()
	write(big, "{")
	if err := os.Truncate(at(big), 1<<30); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if b, err := read(root, big); len(b) > 64<<10 || err != nil {
		t.Errorf("%d bytes read of a record, %v", len(b), err)
	}
	if err := syscall.Mkfifo(at(record()), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/zero", at(record())); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(at(record()), 0o700); err != nil {
		t.Fatal(err)
	}
	old := newToken() + tempSuffix
	write(old, "")
	if err := os.Chtimes(at(old), time.Time{}, time.Now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	stay := []string{newToken() + tempSuffix, "README", "x.json", ".json", "old.tmp"}
	for _, name := range stay {
		write(name, "")
	}
	if err := os.Chtimes(at("old.tmp"), time.Time{}, time.Now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	ended, log := sweep(t, folder)
	slices.Sort(stay)
	if got := files(t, folder); len(ended) > 0 || !slices.Equal(got, stay) {
		t.Errorf("ended %q, left %q, want %q\n%s", ended, got, stay, log)
	}
	if ended, log := sweep(t, at("nowhere")); len(ended) > 0 || log != "" {
		t.Errorf("without a folder: %q, %s", ended, log)
	}
}

func FuzzRecord(f *testing.F) {
	b, err := json.Marshal(record{recordSchema, "a", newToken(), "b", "n", identity{10, "1"}, identity{20, "2"}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add(bytes.ReplaceAll(b, []byte("20"), []byte("-20")))
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := parseRecord(b); err == nil && (r.Leader.PID <= 1 || !isToken(r.Token)) {
			t.Errorf("%+v", r)
		}
	})
}

func TestSweepTakesSeveralAtATime(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	var members []int
	for range 3 {
		members = append(members, killedServer(t, "kind father", folder))
	}
	ended, log := sweep(t, folder)
	if len(ended) != 3 {
		t.Errorf("ended %q\n%s", ended, log)
	}
	for _, m := range members {
		if alive(t, m) {
			t.Errorf("%d lives\n%s", m, log)
		}
	}
}
