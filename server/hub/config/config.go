// Package config knows what a checkout wants hosted and whether a person agreed
// to it: the servers file, the environment kept beside it, and the account's
// ledger of trust.
//
// The servers file is the one that editors know, {"mcpServers": {name: entry}},
// with comments and trailing commas allowed. One bad entry is left out and
// named; it never takes the others with it. What a file says is not touched
// before a server starts: variables are put in by Expand, in one pass, so that
// a value never becomes syntax.
//
// A servers file comes with a clone and names commands, so nothing of it may
// run before the account's ledger has the digest of exactly those bytes. What
// trust does not cover: the programs themselves. Who trusts "node server.js"
// trusts what server.js will be after the next pull.
package config

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// maxFile is more than any file of servers or variables needs.
const maxFile = 1 << 20

// A File is a servers file as it was read.
type File struct {
	Path     string
	Digest   string    // hex SHA-256 of the bytes; "" when there is no file
	Servers  []Server  // by name; entries with "disabled": true or "enabled": false are not among them
	Problems []Problem // by line: why entries were left out
}

// A Server is one entry. It has a command or a URL.
type Server struct {
	Name string

	Command string
	Args    []string
	Env     map[string]string
	Cwd     string // as written: relative to the checkout; after Expand an absolute path

	URL     string // of Streamable HTTP
	Headers map[string]string

	Share   string        // ShareCheckout or ShareSession
	Tools   []string      // the only tools to be shown, by the server's own names; nil: all
	Timeout time.Duration // of one call; zero: the hub's default
	Idle    time.Duration // how long it lives unused; zero: the hub's default

	Line int // of its name in the file
}

// Whom one process of a server serves.
const (
	ShareCheckout = "checkout"
	ShareSession  = "session"
)

// A Problem is one thing wrong in a file.
type Problem struct {
	Line   int    `json:"line,omitempty"` // from 1; 0 where no one line is to blame
	Key    string `json:"key,omitempty"`  // as mcpServers.github.args; "" where no one key is
	Reason string `json:"reason"`         // never a value: it may be a secret
}

func (p Problem) String() string {
	var b strings.Builder
	if p.Line > 0 {
		fmt.Fprintf(&b, "line %d: ", p.Line)
	}
	if p.Key != "" {
		b.WriteString(p.Key + ": ")
	}
	return b.String() + p.Reason
}

// An Error is a Problem of a whole file: nothing of it can be used.
type Error struct {
	File string
	Problem
}

func (e *Error) Error() string {
	p := e.Problem
	file := e.File
	if p.Line > 0 {
		file += ":" + strconv.Itoa(p.Line)
		p.Line = 0
	}
	return file + ": " + p.String()
}

// Read reads a servers file. No file is an empty File; one that is not a JSON
// object is an *Error.
func Read(path string) (*File, error) {
	b, err := readSmall(path)
	if errors.Is(err, fs.ErrNotExist) {
		return &File{Path: path}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the servers file: %w", err)
	}
	return Parse(path, b)
}

// Parse is Read of bytes that were read already.
func Parse(path string, b []byte) (*File, error) {
	sum := sha256.Sum256(b)
	f := &File{Path: path, Digest: hex.EncodeToString(sum[:])}
	if len(b) > maxFile {
		return nil, &Error{path, Problem{Reason: fmt.Sprintf("is larger than %d bytes", maxFile)}}
	}
	t, err := parseTree(path, b)
	if err != nil {
		return nil, err
	}
	entries, err := t.servers(keyServers)
	if err != nil {
		return nil, err
	}
	if entries == nil {
		for _, key := range []string{keyVSCode, keyZed} {
			if m := t.root.member(key); m != nil && m.value.kind == '{' {
				f.Problems = append(f.Problems, Problem{t.line(m.name.start), key, "is an editor's own form and not read here: `majordomus upstream import` takes it over"})
			}
		}
		return f, nil
	}
	seen := map[string]int{}
	for _, m := range entries.members {
		seen[m.name.text]++
	}
	for _, m := range entries.members {
		name := m.name.text
		if n := seen[name]; n != 1 {
			if n > 0 {
				f.Problems = append(f.Problems, Problem{t.line(m.name.start), keyServers + "." + shownName(name), "is there twice: which one is meant?"})
			}
			seen[name] = 0
			continue
		}
		s, off, problems := t.server(keyServers, m)
		switch {
		case off:
		case len(problems) > 0:
			f.Problems = append(f.Problems, problems...)
		default:
			f.Servers = append(f.Servers, s)
		}
	}
	slices.SortFunc(f.Servers, func(a, b Server) int { return strings.Compare(a.Name, b.Name) })
	slices.SortStableFunc(f.Problems, func(a, b Problem) int { return cmp.Compare(a.Line, b.Line) })
	return f, nil
}

// Equal reports whether the entries say the same; where they stand does not
// count.
func (s Server) Equal(o Server) bool {
	return s.Name == o.Name && s.Command == o.Command && slices.Equal(s.Args, o.Args) && maps.Equal(s.Env, o.Env) && s.Cwd == o.Cwd &&
		s.URL == o.URL && maps.Equal(s.Headers, o.Headers) && s.Share == o.Share &&
		(s.Tools == nil) == (o.Tools == nil) && slices.Equal(s.Tools, o.Tools) && s.Timeout == o.Timeout && s.Idle == o.Idle
}

// Key names what the server is, in hex: what was kept of a server with the
// same Key may be shown until it says otherwise. Values of its environment and
// its headers are not in it, because those change with every new token.
func (s Server) Key() string {
	args := s.Args
	if args == nil {
		args = []string{}
	}
	b, err := json.Marshal([]any{s.Command, args, s.Cwd, slices.Sorted(maps.Keys(s.Env)), s.URL})
	if err != nil {
		panic(err) // strings can be marshalled
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// HostsItself reports whether the entry starts majordomus as a server, or
// leads to the given port of this machine, on which this server listens; 0 is
// no port. It looks at the words alone and so misses what a script hides.
func (s Server) HostsItself(port int) bool {
	if s.URL != "" {
		u, err := url.Parse(s.URL)
		return err == nil && port > 0 && portOf(u) == strconv.Itoa(port) && isLoopback(u.Hostname())
	}
	if isMajordomus(s.Command) && slices.Contains(s.Args, "mcp") {
		return true
	}
	// Through npx, env, go run or a shell.
	words := strings.FieldsFunc(strings.Join(s.Args, " "), func(r rune) bool { return unicode.IsSpace(r) || r == '"' || r == '\'' })
	for i, w := range words {
		if w == "mcp" && i > 0 && isMajordomus(words[i-1]) {
			return true
		}
	}
	return false
}

func isMajordomus(word string) bool {
	base := word[strings.LastIndexAny(word, `/\`)+1:]
	base, _, _ = strings.Cut(base, "@") // a package's version
	const exe = ".exe"
	if n := len(base) - len(exe); n > 0 && strings.EqualFold(base[n:], exe) {
		base = base[:n]
	}
	return strings.EqualFold(base, "majordomus")
}

func portOf(u *url.URL) string {
	switch p := u.Port(); {
	case p != "":
		return p
	case u.Scheme == "https":
		return "443"
	}
	return "80"
}

func isLoopback(host string) bool {
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && (a.Unmap().IsLoopback() || a.Unmap().IsUnspecified())
}

// readSmall reads a regular file of at most maxFile bytes. Anything else that
// lies there is an error, and never waited for, as a named pipe would be.
func readSmall(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|nonblock, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close() // ignore error: only read
	b, _, err := readRegular(f)
	if err != nil {
		return nil, &fs.PathError{Op: "read", Path: path, Err: err}
	}
	return b, nil
}

func readRegular(f *os.File) ([]byte, fs.FileInfo, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, info, errors.New("not a regular file")
	}
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(b) > maxFile {
		err = fmt.Errorf("larger than %d bytes", maxFile)
	}
	return b, info, err
}
