//go:build unix

package launch

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
)

// ReadyFD is the descriptor on which a detached server holds the writing end
// of a pipe. It writes a byte as soon as it runs, and closes the pipe once its
// lease is published. Its starter reads the end of the pipe then, or when the
// process ends, whichever comes first: one event for both, although a
// re-parented process cannot be waited for. Without a byte before the end, no
// process of ours ever ran: the shell between could not run it.
const ReadyFD = 3

// reparent starts its arguments in the background and ends at once, so that
// the server's parent is no longer a process of the editor's tree: editors end
// their servers by walking that tree, and a session of its own is not enough
// to be missed there. A shell does it in a fraction of the time of a second
// start of this executable.
const reparent = `"$0" "$@" &`

type child struct {
	settled chan struct{} // closed when it is ready or dead
	began   bool          // it ran; read after settled
	pipe    *os.File
}

// forget gives up what waits for the child; the child lives on.
func (c *child) forget() {
	c.pipe.Close() // ends the read below
	<-c.settled
}

func detach(p process) (*child, error) {
	// Go starts children with every descriptor that this process itself
	// inherited without close-on-exec. A shell's $(...) or a pipe's reader
	// waits until the last copy is closed, which would be when the server
	// ends: 481 seconds in one report.
	closeOnExec(ReadyFD)
	ready, theirs, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("making a pipe: %w", err)
	}
	cmd := exec.Command("/bin/sh", append([]string{"-c", reparent}, p.argv...)...)
	cmd.Dir, cmd.Env = p.dir, p.env
	cmd.Stdout, cmd.Stderr = p.out, p.out // stdin: the null device
	cmd.ExtraFiles = []*os.File{theirs}   // descriptor 3
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Run()
	theirs.Close() // ignore error: ours to drop
	if err != nil {
		ready.Close() // ignore error: nothing was read
		return nil, fmt.Errorf("running %s detached: %w", p.argv[0], err)
	}
	c := &child{settled: make(chan struct{}), pipe: ready}
	go func() { // owned by the caller, which waits for it in forget
		defer close(c.settled)
		n, _ := io.Copy(io.Discard, ready) // ignore error: its end is the message
		c.began = n > 0
	}()
	return c, nil
}

// background needs no shell in between: who calls it ends, and the command has
// another parent then.
func background(argv []string, dir string, env []string) error {
	closeOnExec(3)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = dir, env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	return cmd.Process.Release()
}

func keptHere(string) bool { return false }
