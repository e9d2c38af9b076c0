// Package child runs one hosted server that speaks on its stdin and stdout, and
// ends it together with what it started.
//
// The process leads a session and a process group of its own (a job object on
// Windows), and what is ended is that group: after Stop, and after the process
// ended by itself, none of its members is left that this account may end. A
// process that left the group on purpose (setsid, CREATE_BREAKAWAY_FROM_JOB)
// meant to outlive it and is let live; it keeps nobody waiting, even if it
// holds the pipes open. When this process is killed, the kernel kills the
// direct child on Linux and everything on Windows; on Unix the rest of the
// group is what Sweep is for.
//
// What the child writes to stderr is read at any speed and never makes it wait:
// where the one who is to have it is slower, part of it is left out, and said
// to be. Stdout is read by nobody but the caller.
package child

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

const (
	grace  = 2 * time.Second        // to end after stdin was closed, and again after being asked to
	settle = 2 * time.Second        // for the kernel to end what was killed
	linger = 500 * time.Millisecond // to read what the dead left in the pipes
)

// A Spec says what is run.
type Spec struct {
	// Name is what people call it.
	Name string
	// Argv is the command and its arguments. A command without a separator is
	// looked for in the PATH of Env, not of this process; a relative one with a
	// separator starts at Dir.
	Argv []string
	// Dir is the working directory; empty: that of this process.
	Dir string
	// Env is the whole environment, and nothing is added to it but what the
	// system needs (SYSTEMROOT on Windows) and what Records says.
	Env []string
	// Stderr gets what the child writes to its stderr, from one goroutine, and
	// nothing more once Stop has returned, unless it blocks for longer than
	// Stop waits. If nil, the null device does.
	Stderr io.Writer
	// Records is a folder in which a file of the child's own says, as long as
	// its group lives, which one that is: for Sweep, after this process was
	// killed. It is made where it is missing, the folder that it lies in is not. Several servers may use it at a time. The child is marked then
	// by one variable more, MAJORDOMUS_GROUP. Empty: no record. Where one
	// cannot be written, the child runs without, and Stderr is told.
	Records string
}

// A Child is a running process with its group.
type Child struct {
	pid     int
	started time.Time
	group   *group
	in      *os.File
	out     *output
	errs    *drain    // nil if nobody wants it
	record  *recorder // nil if none is kept

	done chan struct{} // closed when the direct child has ended
	err  error         // how; before done is closed

	stop      chan struct{} // closed when it is to end
	stopOnce  sync.Once
	hurry     chan struct{} // closed when there is no time to be kind
	hurryOnce sync.Once
	stopped   chan struct{} // closed when all has ended
}

// Start runs a command. Its error says what to put right: a command that is
// missing or no program, a missing working directory.
func Start(spec Spec) (*Child, error) {
	if len(spec.Argv) == 0 || spec.Argv[0] == "" {
		return nil, errors.New("no command")
	}
	c, err := start(spec)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", spec.Argv[0], err)
	}
	return c, nil
}

func start(spec Spec) (_ *Child, err error) {
	if spec.Dir != "" {
		if err := isFolder(spec.Dir); err != nil {
			return nil, fmt.Errorf("its working directory %w", err)
		}
	}
	path, err := find(spec.Argv[0], spec.Dir, spec.Env)
	if err != nil {
		return nil, err
	}
	c := &Child{
		done: make(chan struct{}), stop: make(chan struct{}), hurry: make(chan struct{}), stopped: make(chan struct{}),
	}
	// Not nil: that would be the environment of this process.
	cmd := &exec.Cmd{Path: path, Args: spec.Argv, Dir: spec.Dir, Env: append([]string{}, spec.Env...)}
	c.record = newRecorder(spec)
	cmd.Env = append(cmd.Env, c.record.mark()...)

	// Pipes of our own: those of package exec are closed by its Wait, with what
	// is still in them, or keep Wait waiting for whoever else holds them.
	var ours, theirs []*os.File
	defer func() {
		closeAll(theirs)
		if err != nil {
			closeAll(ours)
		}
	}()
	pipe := func(childReads bool) (our, their *os.File, err error) {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, nil, fmt.Errorf("making a pipe: %w", err)
		}
		our, their = r, w
		if childReads {
			our, their = w, r
		}
		ours, theirs = append(ours, our), append(theirs, their)
		return our, their, nil
	}
	in, childIn, err := pipe(true)
	if err != nil {
		return nil, err
	}
	out, childOut, err := pipe(false)
	if err != nil {
		return nil, err
	}
	cmd.Stdin, cmd.Stdout = childIn, childOut
	var errs *os.File
	if spec.Stderr != nil {
		var childErr *os.File
		if errs, childErr, err = pipe(false); err != nil {
			return nil, err
		}
		cmd.Stderr = childErr
	}

	group, wait, err := startGroup(cmd)
	if err != nil {
		return nil, explain(err, path)
	}
	c.pid, c.started, c.group = cmd.Process.Pid, time.Now(), group
	c.in, c.out = in, &output{in: out}
	unrecorded := c.record.write(group)
	if errs != nil {
		c.errs = newDrain(errs, spec.Stderr)
		if unrecorded != nil {
			c.errs.note("it is not recorded, and what it starts will be left if this server is killed: %v", unrecorded)
		}
	}
	go func() { // ends with the direct child
		c.err = wait()
		close(c.done)
	}()
	go c.live() // ends with the group; Stop waits for it
	return c, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close() // ignore error: ours to drop
	}
}

// Stdin is written by whoever speaks to the child. Its Close is the polite way
// to say that there is nothing more to come.
func (c *Child) Stdin() io.WriteCloser { return c.in }

// Stdout ends when nobody holds its other end any more, or at most 500 ms after
// Stop, whoever does.
func (c *Child) Stdout() io.Reader { return c.out }

// PID is the direct child's, and the group's.
func (c *Child) PID() int { return c.pid }

// Started is when it was started.
func (c *Child) Started() time.Time { return c.started }

// Memory returns how many bytes of the machine's memory the group has in use;
// what its members share is counted for each. ok is false when it has ended, or
// the system does not tell.
func (c *Child) Memory() (rss int64, ok bool) {
	select {
	case <-c.stopped:
		return 0, false
	default:
		return c.group.memory()
	}
}

// Done is closed when the direct child has ended, whatever is left of its
// group. That is then ended as Stop would; Stop waits for it.
func (c *Child) Done() <-chan struct{} { return c.done }

// Err says how the direct child ended, in words: a server that exits with code
// 0 has ended too. It is nil until Done is closed.
func (c *Child) Err() error {
	select {
	case <-c.done:
		return c.err
	default:
		return nil
	}
}

// Stop ends the child and its group, and returns when they are gone: it closes
// stdin, after 2 s asks them to end, after 2 s more kills them. Once ctx ends
// it kills at once. It never takes longer than 8 s: what the kernel itself
// cannot end (stuck in a dead disk) or this account may not, is left alone.
// It may be called at any time, more than once and by several at a time.
func (c *Child) Stop(ctx context.Context) {
	c.stopOnce.Do(func() { close(c.stop) })
	select {
	case <-c.stopped:
	case <-ctx.Done():
		c.hurryOnce.Do(func() { close(c.hurry) })
		<-c.stopped
	}
}

// live sees the child to its end.
//
// The group is signalled by its number, which is the direct child's pid and may
// be given away once the child is waited for and the last member has gone. So
// it is watched from the moment the child ends until it is empty, and not
// touched again: a number would have to come round within one look at it. That
// is why the rest of a group is not left for a later Stop to end.
func (c *Child) live() {
	defer close(c.stopped)
	select {
	case <-c.stop:
	case <-c.done:
	}
	closeInput(c.in)
	if c.end() {
		c.record.remove()
	}
	c.group.close()
	c.out.finish()
	if c.errs != nil {
		c.errs.finish()
	}
}

// end ends the group, or reports that it could not.
func (c *Child) end() bool {
	if c.gone(grace, c.hurry) {
		return true
	}
	select {
	case <-c.hurry:
	default:
		if c.group.ask() && c.gone(grace, c.hurry) {
			return true
		}
	}
	c.group.kill()
	return c.gone(settle, nil)
}

// gone waits until the direct child and its group have ended, or reports that
// they have not.
func (c *Child) gone(within time.Duration, hurry <-chan struct{}) bool {
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-c.done:
	case <-timer.C:
		return false
	case <-hurry:
		select {
		case <-c.done:
			return c.group.empty()
		default:
			return false
		}
	}
	// The members are no children of this process: no event tells their end.
	for pause := time.Millisecond; !c.group.empty(); pause = min(2*pause, 50*time.Millisecond) {
		select {
		case <-time.After(pause):
		case <-timer.C:
			return false
		case <-hurry:
			return c.group.empty()
		}
	}
	return true
}
