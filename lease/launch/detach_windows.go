package launch

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/windows"
)

type child struct {
	settled chan struct{} // closed when it is ready or dead
	began   bool          // it ran
	quit    chan struct{}
}

// forget gives up what waits for the child; the child lives on.
func (c *child) forget() {
	close(c.quit)
	<-c.settled
}

// detach starts p without a console, in a process group of its own and outside
// the editor's job object where that job allows it. Windows has no re-parenting:
// a tool that ends a tree by recorded parents can still find it. Only the three
// standard handles are inherited; Go names them to the kernel one by one.
func detach(p process) (*child, error) {
	cmd, err := apart(p)
	if err != nil {
		return nil, fmt.Errorf("running %s detached: %w", p.argv[0], err)
	}
	c := &child{settled: make(chan struct{}), began: true, quit: make(chan struct{})}
	go func() { // owned by the caller, which waits for it in forget
		defer close(c.settled)
		defer cmd.Process.Release() // ignore error: the handle goes with us
		for !p.published() {
			// A wait of no length asks whether it has ended.
			if h, err := windows.OpenProcess(windows.SYNCHRONIZE, false, uint32(cmd.Process.Pid)); err != nil {
				return
			} else {
				state, err := windows.WaitForSingleObject(h, 20)
				windows.CloseHandle(h) // ignore error: ours
				if err != nil || state == windows.WAIT_OBJECT_0 {
					return
				}
			}
			select {
			case <-c.quit:
				return
			default:
			}
		}
	}()
	return c, nil
}

// apart starts p, and forgets nothing of it.
func apart(p process) (*exec.Cmd, error) {
	start := func(flags uint32) (*exec.Cmd, error) {
		cmd := exec.Command(p.argv[0], p.argv[1:]...)
		cmd.Dir, cmd.Env = p.dir, p.env
		if p.out != nil {
			cmd.Stdout, cmd.Stderr = p.out, p.out
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{HideWindow: true, CreationFlags: flags}
		return cmd, cmd.Start()
	}
	const flags = windows.DETACHED_PROCESS | windows.CREATE_NEW_PROCESS_GROUP
	cmd, err := start(flags | windows.CREATE_BREAKAWAY_FROM_JOB)
	if err != nil { // the job forbids to break away
		cmd, err = start(flags)
	}
	return cmd, err
}

func background(argv []string, dir string, env []string) error {
	cmd, err := apart(process{argv: argv, dir: dir, env: env})
	if err != nil {
		return err
	}
	return cmd.Process.Release()
}

func keptHere(name string) bool {
	return slices.ContainsFunc([]string{
		"SystemRoot", "SystemDrive", "windir", "USERPROFILE", "USERNAME", "APPDATA", "LOCALAPPDATA", "ProgramData",
		"ProgramFiles", "ProgramFiles(x86)", "PATHEXT", "ComSpec", "TEMP", "TMP", "Path", "HOMEDRIVE", "HOMEPATH",
	}, func(k string) bool { return strings.EqualFold(k, name) })
}
