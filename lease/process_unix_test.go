//go:build unix

package lease

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"
)

// A server that hangs is replaced after the busy grace, and knows when it goes
// on.
func TestOwnerStopped(t *testing.T) {
	root := t.TempDir()
	first := candidates(t, root, 1, "brisk")
	first[0].say("go")
	_, old := settled(t, first)
	if err := first[0].cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	second := candidates(t, root, 2, "brisk")
	for _, p := range second {
		p.say("go")
	}
	if _, token := settled(t, second); token == old {
		t.Fatal("joined a stopped server")
	}
	if err := first[0].cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	first[0].say("own")
	if own := first[0].expect("own"); own != "false <nil>" {
		t.Error(own)
	}
}

func TestDescriptorsExhausted(t *testing.T) {
	p := start(t, t.TempDir(), "exhaust", "quick")
	if line := p.line(); line != "ok" {
		t.Fatal(line)
	}
}

// exhaust holds a lease through a time without descriptors.
func exhaust(f *Folder) int {
	e, err := f.Elect(context.Background(), Candidate{Listen: noListen})
	if err != nil {
		fmt.Println("electing:", err)
		return 1
	}
	t := e.Tenure
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 64, Max: 64}); err != nil {
		fmt.Println(err)
		return 1
	}
	var all []*os.File
	for {
		h, err := os.Open(os.DevNull)
		if err != nil {
			break
		}
		all = append(all, h)
	}
	file := f.Read()
	own, ownErr := t.IsOwn()
	held, exists := f.AliveHeld(t.Token())
	_, settleErr := f.Settle(context.Background(), History{})
	pubErr := t.Publish("http://127.0.0.1:1")
	for _, h := range all {
		h.Close()
	}
	after, afterErr := t.IsOwn()
	switch {
	case file.State != Unreadable || !errors.Is(file.Err, syscall.EMFILE):
		fmt.Println("read:", file.State, file.Err)
	case own || !errors.Is(ownErr, ErrUnreadable):
		fmt.Println("own:", own, ownErr)
	case !held || !exists:
		fmt.Println("a live holder looks dead")
	case !errors.Is(settleErr, ErrUnreadable):
		fmt.Println("settle:", settleErr)
	case pubErr == nil || errors.Is(pubErr, ErrLost):
		fmt.Println("publish:", pubErr)
	case t.Lost():
		fmt.Println("what cannot be read was lost")
	case !after || afterErr != nil:
		fmt.Println("afterwards:", after, afterErr)
	default:
		if err := t.Release(); err != nil {
			fmt.Println("release:", err)
			return 1
		}
		fmt.Println("ok")
		return 0
	}
	return 1
}
