package lease

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"
)

// Schema is what every lease document of this form says of itself.
const Schema = "majordomus-mcp-lease/v1"

const (
	documentName = "server.json"

	// A lease is a few hundred bytes; what is larger than this is not one,
	// and is not read to find out.
	maxDocument = 64 << 10
)

// A Document is a lease as it stands in its file. Unknown members of a file are
// ignored and missing ones are zero.
type Document struct {
	Schema     string             `json:"schema"`
	PID        int                `json:"pid"`   // for people; never signalled, never judged by
	Token      string             `json:"token"` // 32 lower-case hex characters, new for every holder
	Root       string             `json:"root"`
	URL        *string            `json:"url"` // "http://127.0.0.1:PORT"; nil while the holder is not bound
	StartedAt  time.Time          `json:"started_at"`
	Executable ExecutableIdentity `json:"executable"`
	Version    string             `json:"version"`
	Auth       string             `json:"auth,omitempty"` // "key" when the server wants the checkout's key
}

// address is the URL of a bound holder, or "".
func (d Document) address() string {
	if d.URL == nil {
		return ""
	}
	return *d.URL
}

func (d Document) encode() ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(d); err != nil {
		return nil, fmt.Errorf("encoding the lease: %w", err)
	}
	return b.Bytes(), nil
}

// State is what reading a lease came to.
type State int

const (
	Absent     State = iota // nothing is there
	Empty                   // a file of no bytes
	Corrupt                 // something that is no lease; File.Reason says what
	Unreadable              // it could not be told, for a reason that says nothing of the file; File.Err says which
	Present                 // File.Document is the lease
)

func (s State) String() string {
	switch s {
	case Absent:
		return "absent"
	case Empty:
		return "empty"
	case Corrupt:
		return "corrupt"
	case Unreadable:
		return "unreadable"
	case Present:
		return "present"
	}
	return fmt.Sprintf("State(%d)", int(s))
}

// A File is what lay at the lease's path at one moment.
type File struct {
	State    State
	Document Document // if Present
	Reason   string   // if Empty or Corrupt: what is there, for people
	Err      error    // if Unreadable

	raw  []byte
	info fs.FileInfo // nil if Absent or Unreadable
}

// Content is what the file said, for who wants to notice that it says something
// else.
func (f File) Content() []byte { return bytes.Clone(f.raw) }

// same reports whether two reads found one and the same file. The content alone
// would not do: a holder that is slow to bind rewrites the same bytes to say
// that it lives, and what is empty or corrupt has no token to tell it by. The
// file alone would not do either: its number may be given out again.
func (f File) same(g File) bool {
	if f.State != g.State {
		return false
	}
	switch f.State {
	case Absent:
		return true
	case Unreadable:
		return false // nothing is known of either
	}
	return bytes.Equal(f.raw, g.raw) && sameFile(f.info, g.info) &&
		f.info.ModTime().Equal(g.info.ModTime()) && f.info.Size() == g.info.Size()
}

// read reads the lease in root. It never fails, never blocks on what lies
// there, and follows no link: holders only ever put a regular file in place.
func read(root files) File {
	f := readOnce(root)
	if f.State == Absent {
		// Where a rename over an existing file is two steps, a reader can
		// fall between them.
		f = readAgain(root, f)
	}
	return f
}

func readOnce(root files) File {
	info, err := root.Lstat(documentName)
	if errors.Is(err, fs.ErrNotExist) {
		return File{State: Absent}
	}
	if err != nil {
		return File{State: Unreadable, Err: err}
	}
	corrupt := func(reason string) File { return File{State: Corrupt, Reason: reason, info: info} }
	switch mode := info.Mode(); {
	case mode.IsDir():
		return corrupt("a folder")
	case mode&fs.ModeSymlink != 0:
		return corrupt("a symbolic link")
	case !mode.IsRegular():
		return corrupt("not a regular file")
	case root.foreign(info): // and may well be one that cannot be opened
		return corrupt("a file of another account")
	case info.Size() > maxDocument:
		return corrupt(fmt.Sprintf("%d bytes, more than a lease can have", info.Size()))
	}
	h, err := root.OpenFile(documentName, os.O_RDONLY|nonblock, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return File{State: Absent}
	}
	if err != nil {
		return File{State: Unreadable, Err: err}
	}
	defer h.Close() // ignore error: only read
	// Not what was looked at, if it was replaced in between.
	if info, err = h.Stat(); err != nil {
		return File{State: Unreadable, Err: err}
	}
	if !info.Mode().IsRegular() {
		return corrupt("not a regular file")
	}
	if root.foreign(info) {
		return corrupt("a file of another account")
	}
	b, err := io.ReadAll(io.LimitReader(h, maxDocument+1))
	if err != nil {
		return File{State: Unreadable, Err: err}
	}
	if len(b) > maxDocument {
		return corrupt("more bytes than a lease can have")
	}
	f := parse(b)
	f.raw, f.info = b, info
	return f
}

// parse reads the bytes of a lease file.
func parse(b []byte) File {
	corrupt := func(format string, a ...any) File {
		return File{State: Corrupt, Reason: fmt.Sprintf(format, a...)}
	}
	if len(b) == 0 {
		return File{State: Empty, Reason: "an empty file"}
	}
	var d Document
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch err := json.Unmarshal(b, &d); {
	case errors.As(err, &kind) && kind.Field != "":
		return corrupt("its %q is a %s", kind.Field, kind.Value)
	case errors.As(err, &kind):
		return corrupt("not a JSON object")
	case errors.As(err, &syntax) && strings.Trim(string(b), "\x00") == "":
		return corrupt("%d NUL bytes", len(b))
	case errors.As(err, &syntax):
		return corrupt("not JSON from byte %d on", syntax.Offset)
	case err != nil:
		return corrupt(`its "started_at" is not a time`) // the only member that reads itself
	}
	if d.Schema != Schema {
		return corrupt("its schema is %.60q, not %s", d.Schema, Schema)
	}
	if !isToken(d.Token) {
		return corrupt("its token is not 32 lower-case hex characters")
	}
	if d.URL != nil && *d.URL == "" {
		d.URL = nil
	}
	d.StartedAt = d.StartedAt.UTC()
	if y := d.StartedAt.Year(); y < 0 || y > 9999 {
		return corrupt(`its "started_at" is not a time`)
	}
	return File{State: Present, Document: d}
}

// isToken reports whether s may be a token. A token becomes part of file names,
// so this is also what keeps a planted lease from naming other files.
func isToken(s string) bool {
	if len(s) != 32 {
		return false
	}
	for _, c := range []byte(s) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
