package child

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/windows"
)

func moreReasons(func(name, text string, mode os.FileMode) string) []reasonCase { return nil }

func zombies(*testing.T) int { return 0 }

func open(t *testing.T) int {
	t.Helper()
	var n uint32
	r, _, err := windows.NewLazySystemDLL("kernel32.dll").NewProc("GetProcessHandleCount").Call(
		uintptr(windows.CurrentProcess()), uintptr(unsafe.Pointer(&n)))
	if r == 0 {
		t.Fatal(err)
	}
	return int(n)
}

// a process is one that a test may ask about after its end.
type process struct {
	t      *testing.T
	handle windows.Handle
}

func known(t *testing.T, pid int) process {
	t.Helper()
	h, err := windows.OpenProcess(windows.SYNCHRONIZE|windows.PROCESS_TERMINATE, false, uint32(pid))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		windows.TerminateProcess(h, 1)
		windows.CloseHandle(h)
	})
	return process{t, h}
}

func (p process) endsWithin(milliseconds uint32) bool {
	p.t.Helper()
	state, err := windows.WaitForSingleObject(p.handle, milliseconds)
	if err != nil {
		p.t.Fatal(err)
	}
	return state == windows.WAIT_OBJECT_0
}

// A member goes with the group, whether the leader goes by itself or is
// stopped; one that broke away stays.
func TestTheJobGoes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		mode string
		stop bool
	}{{"family in out", true}, {"family in out leave", false}} {
		t.Run(c.mode, func(t *testing.T) {
			t.Parallel()
			s := spec(c.mode)
			var stderr pot
			s.Stderr = &stderr
			h := host(t, s)
			member, stranger := known(t, h.number()), known(t, h.number())
			if c.stop {
				h.Stop(t.Context())
			} else {
				wait(t, h.stopped, "the end of the group")
			}
			if !member.endsWithin(0) {
				t.Error("a member of the group is left")
			}
			if got := h.ended(); got != "exited with code 0" {
				t.Errorf("it %s", got)
			}
			if stranger.endsWithin(0) {
				t.Errorf("the one that left the group was ended too; stderr: %s", stderr.String())
			}
		})
	}
}

func TestMemory(t *testing.T) {
	t.Parallel()
	const eaten = 64 << 20
	h := host(t, spec("family in", fmt.Sprint("CHILD_TEST_EATS=", eaten)))
	h.number()
	if rss, ok := h.Memory(); !ok || rss < eaten {
		t.Errorf("%d bytes, %v", rss, ok)
	}
	stopNow(h.Child)
	if rss, ok := h.Memory(); ok {
		t.Errorf("after its end: %d bytes", rss)
	}
}

// The kernel ends all of them with the server.
func TestDiesWithTheServer(t *testing.T) {
	t.Parallel()
	s := spec("server", "CHILD_TEST_HOSTS=family in")
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
	member := known(t, h.number())
	cmd.Process.Kill()
	cmd.Wait() // ignore error: killed
	if !member.endsWithin(uint32(patience.Milliseconds())) {
		t.Error("a member of the group is left")
	}
}

// npx and its like are batch files that hand their arguments on.
func TestRunsABatchFile(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "with space")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	s := spec("arguments")
	text := "@echo off\r\n\"" + s.Argv[0] + "\" %*\r\n"
	if err := os.WriteFile(filepath.Join(dir, "npx.cmd"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	want := []string{"-y", "@scope/server@1.2", "two words", "a&calc", `say "hi"`, `C:\dir\`, ""}
	// Wine's cmd.exe reads percent signs in a way of its own.
	if windows.NewLazySystemDLL("ntdll.dll").NewProc("wine_get_version").Find() != nil {
		want = append(want, "50%", "%PATH%")
	}
	s.Argv = append([]string{"npx"}, want...)
	s.Env = append(s.Env, "Path="+dir)
	h := host(t, s)
	got := strings.Split(strings.TrimSpace(strings.ReplaceAll(h.rest(), "\r", "")), "\n")
	for i, w := range want {
		if i >= len(got) || got[i] != fmt.Sprintf("%q", w) {
			t.Errorf("argument %d of %s, want %q", i, got, w)
		}
	}
}
