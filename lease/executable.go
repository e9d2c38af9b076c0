package lease

import (
	"fmt"
	"io/fs"
	"os"
	"time"
)

// An ExecutableIdentity says which file a process was started from, closely
// enough to tell it from the next build at the same path.
type ExecutableIdentity struct {
	Path    string `json:"path"`
	MTime   int64  `json:"mtime"`    // seconds since 1970
	MTimeNS int64  `json:"mtime_ns"` // nanoseconds within that second
	Size    int64  `json:"size"`     // bytes
}

// StartedAs identifies the file this process runs. It must be called first
// thing: later the path may lead to another build, and a renamed file to
// another path. What cannot be told stays zero, and counts as never replaced.
func StartedAs() ExecutableIdentity {
	path, err := os.Executable()
	if err != nil {
		return ExecutableIdentity{}
	}
	id := ExecutableIdentity{Path: path}
	info, err := os.Stat(selfPath(path))
	if err != nil {
		return id
	}
	return id.of(info)
}

func (e ExecutableIdentity) of(info os.FileInfo) ExecutableIdentity {
	t := info.ModTime()
	e.MTime, e.MTimeNS, e.Size = t.Unix(), int64(t.Nanosecond()), info.Size()
	return e
}

// Replaced reports whether what lies at the path now is another file, and says
// so in words that name no path. A missing file is not a replaced one: what is
// built to run once is gone before it has run.
func (e ExecutableIdentity) Replaced() (reason string, replaced bool) { return e.replaced(os.Stat) }

func (e ExecutableIdentity) replaced(stat func(string) (fs.FileInfo, error)) (reason string, replaced bool) {
	if e.Path == "" || e == (ExecutableIdentity{Path: e.Path}) {
		return "", false
	}
	info, err := stat(e.Path)
	if err != nil || !info.Mode().IsRegular() {
		return "", false
	}
	now := e.of(info)
	if now == e {
		return "", false
	}
	at := func(e ExecutableIdentity) string {
		return time.Unix(e.MTime, e.MTimeNS).UTC().Format(time.RFC3339)
	}
	return fmt.Sprintf("its executable was replaced: it runs a file of %d bytes from %s, now there is one of %d bytes from %s",
		e.Size, at(e), now.Size, at(now)), true
}

// ServingReplacedCode is what a server says of itself in its index as "stale":
// whether the code on disk is no longer the code that runs.
func ServingReplacedCode(started ExecutableIdentity) (reason string, replaced bool) {
	return started.Replaced()
}
