// Package shell makes shells know majordomus: the hook that each evaluates at
// its start, the code that changes its environment, and the lines in its startup
// file that load the hook.
//
// Promised of a hook: it looks before every prompt with builtins of the shell
// alone, and starts the program only when the folder belongs to another checkout
// than before, or the lease file says something else; the exit status that the
// prompt shows stays as it is; a program that is missing is silence. Promised of
// a startup file: taking the lines out gives the bytes that were there before
// they were put in. Not promised: that a hook sees a server that was killed, which
// leaves its lease as it was.
package shell

import (
	"slices"
	"strings"
)

// A Shell is one that can be entered into a checkout.
type Shell interface {
	// Hook is what the shell evaluates at its start, so that it enters and
	// leaves checkouts by itself; "" where it knows no such thing.
	Hook(exe string) string
	// Export is what it evaluates to have the environment in s.
	Export(s State) string
	// Line is what its startup file has to have to load the hook; "" where
	// it has no such file.
	Line(exe string) string
}

// State is an environment to be had.
type State struct {
	Vars  []Var  // in the order they are written
	Lease string // the file whose change is to be noticed; "" outside any checkout
	// Seen is what the lease said when Vars were made of it, where Knows. A
	// hook compares: had it read the file itself afterwards, a change in
	// between would never be noticed.
	Seen  string
	Knows bool
	// Fresh says that the lease was written so lately that what it says next
	// may have the same time, to the second.
	Fresh bool
	// Root is the checkout, as a hook compares it with where it is.
	Root string
}

// A Var is a variable of the environment, set or taken away.
type Var struct {
	Name, Value string
	Unset       bool
}

// Names are the shells that are known, but for json.
var names = []string{"bash", "zsh", "fish", "direnv"}

// Names returns the shells that have a startup file.
func Names() []string { return slices.Clone(names) }

// Named returns a shell by its name: one of Names, or json, which is for
// programs.
func Named(name string) (Shell, bool) {
	switch name {
	case "bash":
		return bash{}, true
	case "zsh":
		return zsh{}, true
	case "fish":
		return fish{}, true
	case "direnv":
		return direnv{}, true
	case "json":
		return object{}, true
	}
	return nil, false
}

// fill puts a quoted path into a hook's text. Comments and blank lines are for
// who reads the source, not for every shell that starts.
func fill(text, exe string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if s := strings.TrimSpace(line); s != "" && s[0] != '#' {
			b.WriteString(strings.ReplaceAll(line, "@EXE@", exe))
		}
	}
	return b.String()
}

// quote is s as one word of a POSIX shell.
func quote(s string) string {
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// posix is what bash and zsh have in common.
func posix(s State) string {
	var b strings.Builder
	for _, v := range s.Vars {
		if v.Unset {
			b.WriteString("unset " + v.Name + "\n")
		} else {
			b.WriteString("export " + v.Name + "=" + quote(v.Value) + "\n")
		}
	}
	if s.Root == "" {
		return b.String() + "unset __majordomus_root __majordomus_lease __majordomus_seen __majordomus_url\n"
	}
	b.WriteString("__majordomus_root=" + quote(s.Root) + "\n__majordomus_lease=" + quote(s.Lease) + "\n")
	if s.Knows {
		b.WriteString("__majordomus_seen=" + quote(s.Seen) + "\n")
	}
	return b.String()
}
