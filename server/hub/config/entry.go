package config

import (
	"encoding/json"
	"fmt"
	"math"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// The keys under which files keep their servers.
const (
	keyServers = "mcpServers"
	keyVSCode  = "servers"
	keyZed     = "context_servers"
	keyOwn     = "majordomus" // of an entry: what is ours
)

// servers is the object under the key at the top, nil where there is none.
func (t *tree) servers(key string) (*node, error) {
	var found *node
	for i := range t.root.members {
		m := &t.root.members[i]
		if m.name.text != key {
			continue
		}
		fail := func(reason string) (*node, error) {
			return nil, &Error{t.path, Problem{t.line(m.name.start), key, reason}}
		}
		switch {
		case found != nil:
			return fail("is there twice")
		case m.value.kind != '{' && m.value.kind != 'n':
			return fail("must be an object of servers by name, not " + m.value.what())
		}
		found = &m.value
	}
	if found == nil || found.kind == 'n' {
		return nil, nil
	}
	return found, nil
}

// entry reads one entry: its values, and what is wrong with them.
type entry struct {
	t        *tree
	name     string // the key that leads to it
	problems []Problem
}

func (e *entry) bad(n *node, key, reason string) {
	if key != "" {
		key = "." + key
	}
	e.problems = append(e.problems, Problem{e.t.line(n.start), e.name + key, reason})
}

// server reads an entry. Off is one that is switched off. With problems the
// Server is not to be used.
func (t *tree) server(under string, m member) (s Server, off bool, problems []Problem) {
	e := &entry{t: t, name: under + "." + shownName(m.name.text)}
	s = Server{Name: m.name.text, Share: ShareCheckout, Line: t.line(m.name.start)}
	if s.Name == "" || strings.ContainsFunc(s.Name, unicode.IsControl) {
		e.bad(&m.name, "", "a server's name must have characters, and no control characters")
	}
	if m.value.kind != '{' {
		e.bad(&m.value, "", "must be an object, not "+m.value.what())
		return s, false, e.problems
	}
	var kind string
	at := map[string]*node{} // the keys that are not null
	for i := range m.value.members {
		key, v := m.value.members[i].name.text, &m.value.members[i].value
		if at[key] != nil {
			e.bad(v, shownName(key), "is there twice")
		}
		if v.kind != 'n' {
			at[key] = v
		}
	}
	for _, r := range []struct {
		key  string
		read func(*node, string)
	}{
		{"type", func(n *node, key string) { kind = e.text(n, key) }},
		{"command", func(n *node, key string) { s.Command = e.text(n, key) }},
		{"args", func(n *node, key string) { s.Args = e.texts(n, key) }},
		{"env", func(n *node, key string) { s.Env = e.table(n, key, isVariable, "a name of a variable") }},
		{"cwd", func(n *node, key string) { s.Cwd = e.text(n, key) }},
		{"url", func(n *node, key string) { s.URL = e.text(n, key) }},
		{"headers", func(n *node, key string) { s.Headers = e.table(n, key, isHeader, "a name of a header") }},
		{"disabled", func(n *node, key string) { off = e.flag(n, key) || off }},
		{"enabled", func(n *node, key string) { off = !e.flag(n, key) && n.kind == 'f' || off }},
		{keyOwn, func(n *node, key string) { e.own(n, key, &s) }},

		// To go on without these would start the server as somebody who lacks
		// what it was given.
		{"oauth", e.notYet("OAuth is not supported yet")},
		{"auth", e.notYet("OAuth is not supported yet")},
		{"headersHelper", e.notYet("a command that makes headers is not supported yet")},
		{"envFile", e.notYet("is not supported: put the variables into the environment file of the checkout's local folder")},
	} {
		if n := at[r.key]; n != nil {
			r.read(n, r.key)
		}
	}
	e.shape(&s, &m, at, kind)
	if len(e.problems) == 0 {
		if reason := s.check(); reason.Key != "" {
			e.bad(at[reason.Key], reason.Key, reason.Reason)
		} else if s.HostsItself(0) {
			e.bad(&m.name, "", "would host majordomus itself")
		}
	}
	return s, off, e.problems
}

// shape sees to it that the entry is of one kind, and of one that we have.
func (e *entry) shape(s *Server, m *member, at map[string]*node, kind string) {
	command, address := at["command"], at["url"]
	switch {
	case command != nil && address != nil:
		e.bad(&m.name, "", `has both "command" and "url"`)
	case command == nil && address == nil:
		reason := `has neither "command" nor "url"`
		for _, key := range []string{"serverUrl", "httpUrl"} {
			if at[key] != nil {
				reason += fmt.Sprintf(`; %q is an editor's own word for "url"`, key)
			}
		}
		e.bad(&m.name, "", reason)
	}
	switch n := at["type"]; {
	case n == nil || n.kind != '"':
	case kind == "sse":
		e.bad(n, "type", `"sse", the older transport, is not supported yet; many servers have Streamable HTTP ("http") beside it`)
	case kind == "stdio":
		if address != nil && command == nil {
			e.bad(n, "type", `is "stdio", but the entry has no "command"`)
		}
	case kind == "http", kind == "streamable-http", kind == "streamableHttp":
		if command != nil && address == nil {
			e.bad(n, "type", `is of HTTP, but the entry has no "url"`)
		}
	default:
		e.bad(n, "type", `must be "stdio", "http" or "streamable-http"`)
	}
}

// check says what is wrong with the values as they are, variables left out:
// before Expand and after it. Its zero value is nothing.
func (s *Server) check() Problem {
	for _, v := range []struct{ key, value string }{{"command", s.Command}, {"cwd", s.Cwd}} {
		if strings.ContainsRune(v.value, 0) {
			return Problem{0, v.key, "holds a NUL byte"}
		}
	}
	for _, v := range s.Args {
		if strings.ContainsRune(v, 0) {
			return Problem{0, "args", "holds a NUL byte"}
		}
	}
	for _, v := range s.Env {
		if strings.ContainsRune(v, 0) {
			return Problem{0, "env", "holds a NUL byte"}
		}
	}
	for _, v := range s.Headers {
		if strings.ContainsFunc(v, func(r rune) bool { return r != '\t' && unicode.IsControl(r) }) {
			return Problem{0, "headers", "a value holds control characters"}
		}
	}
	if s.URL == "" {
		if strings.TrimSpace(s.Command) == "" {
			return Problem{0, "command", "is empty"}
		}
		return Problem{}
	}
	if strings.Contains(s.URL, "${") {
		return Problem{}
	}
	// The error of url.Parse would tell the whole address.
	if u, err := url.Parse(s.URL); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return Problem{0, "url", "must be an address that begins with http:// or https://"}
	}
	return Problem{}
}

func (e *entry) notYet(reason string) func(*node, string) {
	return func(n *node, key string) {
		if n.kind != 'f' { // "oauth": false says that there is none
			e.bad(n, key, reason)
		}
	}
}

func (e *entry) text(n *node, key string) string {
	if n.kind != '"' {
		e.bad(n, key, "must be a string, not "+n.what())
	} else if n.text == "" && key != "cwd" {
		e.bad(n, key, "is empty")
	}
	return n.text
}

func (e *entry) flag(n *node, key string) bool {
	if n.kind != 't' && n.kind != 'f' {
		e.bad(n, key, "must be true or false, not "+n.what())
	}
	return n.kind == 't'
}

func (e *entry) texts(n *node, key string) []string {
	if n.kind != '[' {
		e.bad(n, key, "must be a list of strings, not "+n.what())
		return nil
	}
	list := make([]string, 0, len(n.elements))
	for i := range n.elements {
		if v := &n.elements[i]; v.kind != '"' {
			e.bad(v, key, "must be a list of strings; one is "+v.what())
		} else {
			list = append(list, v.text)
		}
	}
	return list
}

func (e *entry) table(n *node, key string, is func(string) bool, name string) map[string]string {
	if n.kind != '{' {
		e.bad(n, key, "must be an object of strings, not "+n.what())
		return nil
	}
	table := make(map[string]string, len(n.members))
	for i := range n.members {
		m := &n.members[i]
		k := key + "." + shownName(m.name.text)
		if _, twice := table[m.name.text]; twice {
			e.bad(&m.name, k, "is there twice")
		}
		if !is(m.name.text) {
			e.bad(&m.name, k, "is not "+name)
		}
		if m.value.kind != '"' {
			e.bad(&m.value, k, "must be a string, not "+m.value.what())
		}
		table[m.name.text] = m.value.text
	}
	return table
}

// own reads the block that is ours. It is strict: nobody else's keys belong
// there, and a misspelt limit that silently does not hold is found too late.
func (e *entry) own(n *node, key string, s *Server) {
	if n.kind != '{' {
		e.bad(n, key, "must be an object, not "+n.what())
		return
	}
	seen := map[string]bool{}
	for i := range n.members {
		m := &n.members[i]
		k := key + "." + shownName(m.name.text)
		if seen[m.name.text] {
			e.bad(&m.name, k, "is there twice")
		}
		seen[m.name.text] = true
		switch m.name.text {
		case "share":
			if s.Share = m.value.text; s.Share != ShareCheckout && s.Share != ShareSession {
				e.bad(&m.value, k, fmt.Sprintf("must be %q or %q", ShareCheckout, ShareSession))
			}
		case "tools":
			s.Tools = e.texts(&m.value, k)
		case "timeout_seconds":
			s.Timeout = e.seconds(&m.value, k)
		case "idle_seconds":
			s.Idle = e.seconds(&m.value, k)
		default:
			e.bad(&m.name, k, "is not a key of this block; known are share, tools, timeout_seconds, idle_seconds")
		}
	}
}

// seconds takes what the policy's seconds may be.
func (e *entry) seconds(n *node, key string) time.Duration {
	const most = 10 * 365 * 24 * 3600
	var v float64
	switch {
	case n.kind != '0':
		e.bad(n, key, "must be a number of seconds, not "+n.what())
	case json.Unmarshal(e.t.b[n.start:n.end], &v) != nil || !(v >= 0.001 && v <= most):
		e.bad(n, key, fmt.Sprintf("must be from 0.001 to %d seconds", most))
	}
	return time.Duration(math.Round(v * float64(time.Second)))
}

func isVariable(name string) bool { return name != "" && !strings.ContainsAny(name, "=\x00") }

// isHeader reports whether the name is a token of HTTP.
func isHeader(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
	})
}

// shownName is a name of the file as a message may have it: what is not plain
// text is quoted.
func shownName(name string) string {
	if name == "" || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) || r == '"' }) {
		return strconv.Quote(name)
	}
	return name
}
