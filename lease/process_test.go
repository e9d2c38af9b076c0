package lease

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"majordomus/lease/checkout"
)

// proc is a process of a test.
type proc struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// start runs a child of the given mode; it is killed when the test ends.
func start(t *testing.T, root, mode, timings string) *proc {
	t.Helper()
	me, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(me)
	cmd.Env = append(os.Environ(), childVar+"="+mode, "LEASE_TEST_ROOT="+root, "LEASE_TEST_TIMINGS="+timings)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &proc{t, cmd, in, bufio.NewReader(out)}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return p
}

func (p *proc) say(line string) {
	p.t.Helper()
	if _, err := fmt.Fprintln(p.in, line); err != nil {
		p.t.Fatal(err)
	}
}

func (p *proc) line() string {
	p.t.Helper()
	line, err := p.out.ReadString('\n')
	if err != nil {
		p.t.Fatalf("reading from a child: %v", err)
	}
	return strings.TrimSpace(line)
}

func (p *proc) expect(verb string) string {
	p.t.Helper()
	got, rest := words(p.line())
	if got != verb {
		p.t.Fatalf("a child says %s %s, want %s", got, rest, verb)
	}
	return rest
}

// candidates starts n that wait for a word to stand for election.
func candidates(t *testing.T, root string, n int, timings string) []*proc {
	t.Helper()
	ps := make([]*proc, n)
	for i := range ps {
		ps[i] = start(t, root, "candidate", timings)
	}
	for _, p := range ps {
		p.expect("ready")
	}
	return ps
}

// settled reads how each election ended and returns the one server.
func settled(t *testing.T, ps []*proc) (server *proc, token string) {
	t.Helper()
	var peers []string
	for _, p := range ps {
		switch verb, rest := words(p.line()); verb {
		case "server":
			if server != nil {
				t.Fatal("two servers")
			}
			server, token = p, rest
		case "peer":
			peers = append(peers, rest)
		default:
			t.Fatalf("%s %s", verb, rest)
		}
	}
	if server == nil {
		t.Fatal("no server")
	}
	for _, peer := range peers {
		if peer != token {
			t.Errorf("a peer of %s, the server is %s", peer, token)
		}
	}
	return server, token
}

func TestManyElectAtOnce(t *testing.T) {
	for range 3 {
		root := t.TempDir()
		ps := candidates(t, root, 8, "patient")
		for _, p := range ps {
			p.say("go")
		}
		server, _ := settled(t, ps)
		server.say("own")
		if own := server.expect("own"); own != "true <nil>" {
			t.Error(own)
		}
		server.in.Close()
		if err := server.cmd.Wait(); err != nil {
			t.Error(err)
		}
		c := newTestFolderAt(t, root)
		onlyLeft(t, c, "server.lock", "key")
	}
}

func newTestFolderAt(t *testing.T, root string) *Folder {
	t.Helper()
	c, err := checkout.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	return newTestFolder(t, c, patient)
}

// The owner is killed before it serves while others wait for it: the kernel
// tells them, and one of them takes its place.
func TestOwnerKilledWhileOthersWait(t *testing.T) {
	root := t.TempDir()
	owner := start(t, root, "binder", "patient")
	owner.expect("ready")
	owner.say("go")
	owner.expect("server")
	ps := candidates(t, root, 4, "patient")
	for _, p := range ps {
		p.say("go")
	}
	owner.cmd.Process.Kill()
	owner.cmd.Wait()
	settled(t, ps)
}

// A server killed after it has served.
func TestServerKilled(t *testing.T) {
	root := t.TempDir()
	first := candidates(t, root, 1, "patient")
	first[0].say("go")
	_, old := settled(t, first)
	first[0].cmd.Process.Kill()
	first[0].cmd.Wait()
	ps := candidates(t, root, 3, "patient")
	for _, p := range ps {
		p.say("go")
	}
	if _, token := settled(t, ps); token == old {
		t.Error("the dead one was elected")
	}
	f := newTestFolderAt(t, root)
	if exists(t, filepath.Join(f.path, aliveName(old))) {
		t.Error("the dead one's .alive is still there")
	}
}

func TestLeaseDeleted(t *testing.T) {
	root := t.TempDir()
	first := candidates(t, root, 1, "patient")
	first[0].say("go")
	settled(t, first)
	f := newTestFolderAt(t, root)
	os.Remove(f.LeasePath())
	second := candidates(t, root, 1, "patient")
	second[0].say("go")
	second[0].expect("server")
	first[0].say("own")
	if own := first[0].expect("own"); own != "false <nil>" {
		t.Error(own)
	}
	second[0].say("own")
	if own := second[0].expect("own"); own != "true <nil>" {
		t.Error(own)
	}
	first[0].in.Close() // the way out of one who has lost
	first[0].cmd.Wait()
	second[0].say("own")
	if own := second[0].expect("own"); own != "true <nil>" {
		t.Error(own)
	}
}

func TestFolderDeleted(t *testing.T) {
	root := t.TempDir()
	first := candidates(t, root, 1, "patient")
	first[0].say("go")
	settled(t, first)
	if err := os.RemoveAll(filepath.Join(root, ".ai")); err != nil {
		t.Fatal(err)
	}
	second := candidates(t, root, 3, "patient")
	for _, p := range second {
		p.say("go")
	}
	server, _ := settled(t, second)
	first[0].say("own")
	if own := first[0].expect("own"); own != "false <nil>" {
		t.Error(own)
	}
	first[0].in.Close()
	first[0].cmd.Wait()
	server.say("own")
	if own := server.expect("own"); own != "true <nil>" {
		t.Error(own)
	}
}

// A lock file that is deleted while somebody has it excludes nobody. Nobody's
// lease may be overwritten or removed all the same.
func TestLockFileDeletedWhileWritersRun(t *testing.T) {
	if !folderLocks {
		t.Skip("an open lock file cannot be deleted here")
	}
	c := newCheckout(t)
	f := newTestFolder(t, c, patient)
	var ps []*proc
	for range 3 {
		ps = append(ps, start(t, c.Root, "churn", "patient"))
	}
	deleted := 0
	// For a while, and with pauses in which it comes back.
	for until := time.Now().Add(2 * time.Second); time.Now().Before(until); time.Sleep(time.Millisecond) {
		if os.Remove(filepath.Join(f.path, lockName)) == nil {
			deleted++
		}
	}
	total := 0
	for _, p := range ps {
		p.in.Close()
		var took, lost int
		if _, err := fmt.Sscanf(p.line(), "took %d lost %d", &took, &lost); err != nil {
			t.Fatal(err)
		}
		if lost > 0 {
			t.Errorf("%d of %d leases were taken from their holder", lost, took)
		}
		total += took
	}
	t.Logf("%d leases, the lock file deleted %d times", total, deleted)
	if total == 0 || deleted == 0 {
		t.Error("nothing was tried")
	}
}

// At no moment do two tenures both find the lease to be theirs. One cannot ask
// both at once, so the fault to look for is: the first, the second, and the
// first again.
func TestNoTwoTenuresBothHold(t *testing.T) {
	c := newCheckout(t)
	var mu sync.Mutex
	var held []*Tenure
	var wg sync.WaitGroup
	end := make(chan struct{})
	running := func() bool {
		select {
		case <-end:
			return false
		default:
			return true
		}
	}
	for range 3 {
		f := newTestFolder(t, c, patient)
		wg.Go(func() { // takes over whatever is there, again and again
			for running() {
				b, err := f.begin(Candidate{}, nil)
				if err != nil {
					t.Error(err)
					return
				}
				ok, err := b.take(f.Read())
				if err != nil {
					t.Error(err)
				}
				if !ok {
					b.abandon()
					continue
				}
				mu.Lock()
				held = append(held, b)
				if len(held) > 6 {
					old := held[0]
					held = held[1:]
					mu.Unlock()
					if err := old.Release(); err != nil {
						t.Error(err)
					}
					continue
				}
				mu.Unlock()
			}
		})
	}
	wg.Go(func() {
		f := newTestFolder(t, c, patient)
		for running() {
			switch rand.IntN(3) {
			case 0:
				os.Remove(f.LeasePath())
			case 1:
				os.WriteFile(f.LeasePath(), []byte("{"), 0o600)
			case 2:
				os.Remove(filepath.Join(f.path, lockName))
			}
			time.Sleep(time.Duration(rand.IntN(2000)) * time.Microsecond) // at any moment of what the others do
		}
	})
	asked, owned := 0, 0
	for until := time.Now().Add(2 * time.Second); time.Now().Before(until); {
		mu.Lock()
		var ts []*Tenure
		for _, p := range held {
			if p.Held() {
				ts = append(ts, p)
			}
		}
		mu.Unlock()
		for _, p := range ts {
			for _, q := range ts {
				if p == q {
					continue
				}
				a, _ := p.IsOwn()
				b, _ := q.IsOwn()
				c, _ := p.IsOwn()
				asked++
				if a {
					owned++
				}
				if a && b && c {
					t.Error("two tenures both hold")
				}
			}
		}
	}
	close(end)
	wg.Wait()
	for _, p := range held {
		p.Release()
	}
	t.Logf("asked %d times, %d of them an owner", asked, owned)
	if owned == 0 {
		t.Error("nobody was ever asked who held it")
	}
}
