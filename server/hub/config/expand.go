package config

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// A MissingError names a variable that an entry needs and nobody has set.
type MissingError struct {
	Server, Key, Variable string
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("%s.%s.%s: the variable %s is not set", keyServers, shownName(e.Server), e.Key, shownName(e.Variable))
}

// Expand returns the entry as it is to be started: with ${VAR}, ${VAR:-x} (x
// where VAR is unset or empty) and ${env:VAR} replaced in command, args, env,
// cwd, url and headers, and editors' ${workspaceFolder}, which is root,
// ${workspaceFolderBasename}, ${userHome}, ${pathSeparator} and ${/} too. The
// entry's env is looked up in lookup, all else in that env first. The names of
// what an editor would ask or run a command for, as ${input:token}, are errors;
// a variable nobody has set is a *MissingError. Other text with a dollar, which
// a program's own shell may want, stays as it is. Cwd becomes absolute.
//
// Everything is replaced once: a value that looks like a variable stays.
func (s Server) Expand(lookup func(string) (string, bool), root, home string) (Server, error) {
	x := expander{server: s.Name, root: root, home: home, lookup: lookup}
	s = x.entry(s)
	if !filepath.IsAbs(s.Cwd) {
		s.Cwd = filepath.Join(root, s.Cwd)
	}
	if x.err != nil {
		return Server{}, x.err
	}
	if p := s.check(); p.Key != "" {
		return Server{}, x.fail(p.Key, p.Reason)
	}
	if s.HostsItself(0) {
		return Server{}, x.fail("command", "would host majordomus itself")
	}
	return s, nil
}

// Variables are the names that Expand would look up for the entry, but for
// what its own env sets, each once and in order.
func (s Server) Variables() []string {
	names, _ := s.variables() // ignore error: whoever starts the server meets it
	return names
}

// variables is Variables, and an error where one is of a form that Expand does
// not know.
func (s Server) variables() ([]string, error) {
	names := map[string]bool{}
	x := expander{server: s.Name, root: "x", home: "x", lookup: func(name string) (string, bool) {
		names[name] = true
		return "x", true
	}}
	x.entry(s)
	return slices.Sorted(maps.Keys(names)), x.err
}

// expander replaces variables and keeps the first error.
type expander struct {
	server, root, home string
	lookup             func(string) (string, bool)
	err                error
}

// entry is the entry with everything replaced; it shares nothing with it.
func (x *expander) entry(s Server) Server {
	env, lookup := x.table("env", s.Env), x.lookup
	s.Env = env
	x.lookup = func(name string) (string, bool) {
		if v, ok := env[name]; ok {
			return v, true
		}
		return lookup(name)
	}
	s.Headers = x.table("headers", s.Headers)
	s.Command = x.text("command", s.Command)
	s.Args = slices.Clone(s.Args)
	for i, arg := range s.Args {
		s.Args[i] = x.text("args", arg)
	}
	s.URL = x.text("url", s.URL)
	s.Cwd = x.text("cwd", s.Cwd)
	s.Tools = slices.Clone(s.Tools)
	return s
}

func (x *expander) fail(key, reason string) error {
	return fmt.Errorf("%s.%s.%s: %s", keyServers, shownName(x.server), key, reason)
}

func (x *expander) table(key string, from map[string]string) map[string]string {
	if from == nil {
		return nil
	}
	to := make(map[string]string, len(from))
	for _, name := range slices.Sorted(maps.Keys(from)) {
		to[name] = x.text(key+"."+shownName(name), from[name])
	}
	return to
}

func (x *expander) text(key, text string) string {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(text, "${")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		body, after, closed := strings.Cut(rest, "}")
		value, known, err := x.variable(key, body)
		switch {
		case !closed, err == nil && !known:
			b.WriteString("${")
			text = rest
			continue
		case err != nil:
			if x.err == nil {
				x.err = err
			}
		}
		b.WriteString(value)
		text = after
	}
}

// variable is what stands for ${body}; known is false where that is not ours.
func (x *expander) variable(key, body string) (value string, known bool, err error) {
	switch body {
	case "workspaceFolder":
		return x.root, true, nil
	case "workspaceFolderBasename":
		return filepath.Base(x.root), true, nil
	case "pathSeparator", "/":
		return string(filepath.Separator), true, nil
	case "userHome":
		if x.home == "" {
			return "", true, &MissingError{x.server, key, body}
		}
		return x.home, true, nil
	}
	rest, prefixed := strings.CutPrefix(body, "env:")
	name, otherwise, hasDefault := strings.Cut(rest, ":-")
	if prefixed && !isVariable(name) || !prefixed && !isWord(name) {
		if kind, _, ok := strings.Cut(body, ":"); ok && isWord(kind) {
			return "", true, x.fail(key, fmt.Sprintf("${%s:…} is an editor's own and not supported: use a variable", kind))
		}
		return "", false, nil
	}
	if strings.Contains(otherwise, "${") {
		return "", true, x.fail(key, "a variable inside the default of another is not supported")
	}
	if v, ok := x.lookup(name); ok && (v != "" || !hasDefault) {
		return v, true, nil
	}
	if hasDefault {
		return otherwise, true, nil
	}
	return "", true, &MissingError{x.server, key, name}
}

// isWord reports whether s is a name as shells have them.
func isWord(s string) bool {
	for i, r := range s {
		if r != '_' && !('a' <= r && r <= 'z') && !('A' <= r && r <= 'Z') && !(i > 0 && '0' <= r && r <= '9') {
			return false
		}
	}
	return s != ""
}
