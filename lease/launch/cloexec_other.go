//go:build unix && !linux

package launch

func closeOnExec(first uint) { closeOnExecEach("/dev/fd", first) }
