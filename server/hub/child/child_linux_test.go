package child

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func thread() int { return syscall.Gettid() }

// threadEnds waits for the end of a thread, of which no event tells.
func threadEnds(t *testing.T, id int) {
	t.Helper()
	for until := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		if _, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", id)); err != nil {
			return
		}
		if time.Now().After(until) {
			t.Fatal("the thread did not end")
		}
	}
}

// A dead member that nobody waits for, which is the rule where process 1 is
// none that does, keeps neither Stop nor the record.
func TestZombiesAreNoMembers(t *testing.T) {
	t.Parallel()
	s := spec("bad init")
	cmd := exec.Command(s.Argv[0])
	cmd.Env, cmd.Stderr = s.Env, os.Stderr
	out, err := cmd.Output()
	if got := string(out); err != nil || got != "zombie true, killed false, empty true\n" {
		t.Errorf("%s, %v", got, err)
	}
}

// badInit is the parent of all whose parents die, and never waits for them.
func badInit() int {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		fmt.Println(err)
		return 1
	}
	c, err := Start(spec("family cat leave"))
	if err != nil {
		fmt.Println(err)
		return 1
	}
	<-c.stopped
	fmt.Printf("zombie %v, killed %v, empty %v\n", syscall.Kill(-c.PID(), 0) == nil, c.group.killed, c.group.empty())
	return 0
}

func BenchmarkMembers(b *testing.B) {
	for b.Loop() {
		membersOf(1)
	}
}
