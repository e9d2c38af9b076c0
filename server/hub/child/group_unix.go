//go:build unix

package child

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// A group is a process group whose number is the pid of the child that leads it.
type group struct {
	id     int
	start  string // of the leader; empty where the system does not tell
	killed bool
}

// startGroup starts cmd as the leader of a group. wait returns how it ended,
// and must be called.
//
// It is a session of its own too, without a terminal: a program that asks for a
// password there gets an error. With only a group of its own it would be
// stopped, for ever, by a server that runs in a terminal.
func startGroup(cmd *exec.Cmd) (g *group, wait func() error, err error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	endWithParent(cmd.SysProcAttr)
	started, ended := make(chan error), make(chan error, 1)
	go func() { // ends with the process
		// To the kernel the parent is the thread that forked, not the process:
		// when that thread ends, as the threads of Go may, the child is killed.
		// So one thread starts it and then waits for it; it would be blocked
		// in waiting anyway.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err == nil {
			// Before it is waited for: the number is its own until then.
			g = &group{id: cmd.Process.Pid}
			g.start, _ = startOf(g.id)
		}
		started <- err
		if err != nil {
			return
		}
		state, err := cmd.Process.Wait()
		if err == nil {
			err = inWords(state)
		}
		ended <- err
	}()
	if err := <-started; err != nil {
		return nil, nil, err
	}
	return g, func() error { return <-ended }, nil
}

// ask asks the group to end. One that is stopped would not hear it.
func (g *group) ask() bool {
	syscall.Kill(-g.id, syscall.SIGTERM) // ignore error: empty looks
	syscall.Kill(-g.id, syscall.SIGCONT)
	return true
}

// kill ends the group. No member escapes by forking: the kernel does not let a
// process with such a signal finish its fork.
func (g *group) kill() {
	g.killed = true
	syscall.Kill(-g.id, syscall.SIGKILL) // ignore error: empty looks
}

// empty reports whether none of the group lives. Of the dead that nobody has waited for, which is common where process 1 is no
// init, the kernel says that the group exists. And once the rest was killed,
// those are not waited for that may not be: they belong to somebody else.
func (g *group) empty() bool {
	members, known := membersOf(g.id)
	if !known {
		return syscall.Kill(-g.id, 0) != nil
	}
	for _, m := range members {
		if m.pid == g.id && m.start != g.start {
			return true // the number is somebody else's by now
		}
		if !g.killed || syscall.Kill(m.pid, 0) != syscall.EPERM {
			return false
		}
	}
	return true
}

func (g *group) close() {}

// inWords says how a process ended.
func inWords(state *os.ProcessState) error {
	status, ok := state.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() {
		return fmt.Errorf("exited with code %d", state.ExitCode())
	}
	name := unix.SignalName(status.Signal())
	if name == "" {
		name = fmt.Sprintf("signal %d", status.Signal())
	}
	dumped := ""
	if status.CoreDump() {
		dumped = ", core dumped"
	}
	return fmt.Errorf("killed by %s%s", name, dumped)
}

// closeInput closes the writing end of stdin, also under somebody who is
// blocked in writing.
func closeInput(f *os.File) { f.Close() } // ignore error: the caller may have closed it

// closeOutput closes the reading end of a pipe.
func closeOutput(f *os.File) { f.Close() } // ignore error: mostly the second time
