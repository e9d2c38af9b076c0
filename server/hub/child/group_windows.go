package child

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"
)

// A group is a job object. The kernel ends what is in it when the last handle
// is closed, which is when this process ends, however it does.
type group struct{ job windows.Handle }

// startGroup starts cmd in a job of its own. wait returns how it ended, and
// must be called.
func startGroup(cmd *exec.Cmd) (g *group, wait func() error, err error) {
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return nil, nil, fmt.Errorf("making a job object: %w", err)
	}
	defer func() {
		if err != nil {
			windows.CloseHandle(job) // ignore error: ours
		}
	}()
	var limits windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION
	// Who wants to outlive the child must be able to say so, as with setsid
	// elsewhere: a hosted server may start a server of another checkout.
	limits.BasicLimitInformation.LimitFlags = windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE | windows.JOB_OBJECT_LIMIT_BREAKAWAY_OK
	if _, err := windows.SetInformationJobObject(job, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&limits)), uint32(unsafe.Sizeof(limits))); err != nil {
		return nil, nil, fmt.Errorf("setting up a job object: %w", err)
	}
	// Suspended until it is in the job: what it started before would not be.
	// And without a window: a detached server has no console to share, and the
	// system would open one for each child.
	cmd.SysProcAttr = &syscall.SysProcAttr{HideWindow: true, CreationFlags: windows.CREATE_SUSPENDED | windows.CREATE_NO_WINDOW}
	if err := throughShell(cmd); err != nil {
		return nil, nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	joined := errors.New("no handle")
	err = cmd.Process.WithHandle(func(handle uintptr) {
		joined = windows.AssignProcessToJobObject(job, windows.Handle(handle))
	})
	if err == nil {
		err = joined
	}
	if err == nil {
		err = resume(uint32(cmd.Process.Pid))
	}
	if err != nil {
		cmd.Process.Kill() // ignore error: it has not run a line of its own
		cmd.Process.Wait()
		return nil, nil, fmt.Errorf("putting it into a job object: %w", err)
	}
	return &group{job: job}, func() error {
		state, err := cmd.Process.Wait()
		if err != nil {
			return err
		}
		return inWords(state)
	}, nil
}

// resume starts the threads of a process that was created suspended. It has one;
// the handle that CreateProcess gave for it is closed by package syscall.
func resume(pid uint32) error {
	snapshot, err := windows.CreateToolhelp32Snapshot(windows.TH32CS_SNAPTHREAD, 0)
	if err != nil {
		return err
	}
	defer windows.CloseHandle(snapshot) // ignore error: ours
	entry := windows.ThreadEntry32{Size: uint32(unsafe.Sizeof(windows.ThreadEntry32{}))}
	found := false
	for err = windows.Thread32First(snapshot, &entry); err == nil; err = windows.Thread32Next(snapshot, &entry) {
		if entry.OwnerProcessID != pid {
			continue
		}
		thread, err := windows.OpenThread(windows.THREAD_SUSPEND_RESUME, false, entry.ThreadID)
		if err != nil {
			return err
		}
		_, err = windows.ResumeThread(thread)
		windows.CloseHandle(thread) // ignore error: ours
		if err != nil {
			return err
		}
		found = true
	}
	if !errors.Is(err, windows.ERROR_NO_MORE_FILES) {
		return err
	}
	if !found {
		return errors.New("its thread cannot be found")
	}
	return nil
}

// ask does nothing: a process without a console or a window cannot be asked.
// The end of its stdin was the question.
func (g *group) ask() bool { return false }

func (g *group) kill() {
	windows.TerminateJobObject(g.job, 1) // ignore error: empty looks
}

// accounting is JOBOBJECT_BASIC_ACCOUNTING_INFORMATION.
type accounting struct {
	_         [4]int64 // times
	_         uint32   // page faults
	_         uint32   // processes so far
	processes uint32   // in it now
	_         uint32   // terminated
}

// empty reports whether none of the group lives.
func (g *group) empty() bool {
	var a accounting
	err := windows.QueryInformationJobObject(g.job, windows.JobObjectBasicAccountingInformation,
		uintptr(unsafe.Pointer(&a)), uint32(unsafe.Sizeof(a)), nil)
	return err == nil && a.processes == 0
}

func (g *group) close() {
	windows.CloseHandle(g.job) // ignore error: ours
}

// inWords says how a process ended. Large codes are those of the system, and
// known by their hexadecimal names.
func inWords(state *os.ProcessState) error {
	if code := uint32(state.ExitCode()); code >= 1<<31 {
		return fmt.Errorf("exited with code %#X", code)
	}
	return fmt.Errorf("exited with code %d", state.ExitCode())
}

// closeInput closes the writing end of stdin. Under somebody who is blocked in
// writing, that waits until he is not, at the latest when the child is dead:
// writing to a pipe without overlapped I/O can be cancelled only once it has
// begun.
func closeInput(f *os.File) {
	go f.Close() // ignore error: the caller may have closed it
}

// closeOutput closes the reading end of a pipe; as with closeInput, that may
// wait.
func closeOutput(f *os.File) {
	go f.Close() // ignore error: mostly the second time
}
