// Package editor puts one MCP server into the configuration files of editors,
// and takes it out again.
//
// Promised: the edit is the smallest that does it, so comments, order, unknown
// keys, indentation, line ends and all else of a file stay byte for byte; what
// was done is undone to the byte as long as nobody else has edited the file, and
// by taking out only the entry when somebody has; a file that cannot be read
// for certain is left alone. The result is parsed again before it is written,
// and must differ in the entry alone. Not promised: that an editor reads the
// file, or that its next version still does.
package editor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// A Server is what an editor is to start.
type Server struct {
	Name    string // in the editor's file
	Command string
	Args    []string
	// Also are spellings of Command that are as good, where they are there
	// already.
	Also []string
}

// A Machine is where editors are looked for: what the packages here must not
// ask the process for.
type Machine struct {
	OS     string // as runtime.GOOS
	Home   string // as editors see it
	Root   string // the checkout's; "" outside any
	Getenv func(string) string
}

// An Editor is a program that starts MCP servers named in a file of its own.
type Editor struct {
	Name  string // as people type it
	Title string // as its maker writes it
	// InProject and ForUser are what a person has to know after an entry was
	// written there; "" is nothing.
	InProject, ForUser string

	key     string // under which the servers are
	syntax  syntax
	project []string // in the checkout; the first that is there is read, the last is made
	user    func(Machine) []string
	entry   func(Server) []field

	programs []string // that are the editor, on PATH
	traces   func(Machine) []string
}

// syntax is what an editor reads its file as.
type syntax int

const (
	jsonLenient  syntax = iota // comments and trailing commas
	jsonComments               // comments, but no trailing commas
	jsonStrict                 // neither
	tomlConfig                 //
)

// A field is a key of an entry. The value is a string, a bool or strings.
type field struct {
	key   string
	value any
}

// standard is the entry that most editors want.
func standard(s Server) []field {
	return []field{{"command", s.Command}, {"args", s.Args}}
}

// Known returns the editors, by the order in which they are shown.
func Known() []Editor {
	home := func(parts ...string) func(Machine) []string {
		return func(m Machine) []string { return []string{filepath.Join(append([]string{m.Home}, parts...)...)} }
	}
	return []Editor{
		{
			Name: "claude", Title: "Claude Code", key: "mcpServers", syntax: jsonStrict, entry: standard,
			project: []string{".mcp.json"},
			user: func(m Machine) []string {
				return []string{filepath.Join(m.or("CLAUDE_CONFIG_DIR", m.Home), ".claude.json")}
			},
			InProject: "Claude Code asks once whether it may start the servers of a project",
			programs:  []string{"claude"},
			traces:    func(m Machine) []string { return []string{m.or("CLAUDE_CONFIG_DIR", filepath.Join(m.Home, ".claude"))} },
		},
		{
			Name: "cursor", Title: "Cursor", key: "mcpServers", syntax: jsonLenient, entry: standard,
			project:   []string{".cursor/mcp.json"},
			user:      home(".cursor", "mcp.json"),
			InProject: "Cursor asks in its settings, under MCP, whether a new server is to be on",
			programs:  []string{"cursor", "cursor-agent"},
			traces: func(m Machine) []string {
				return append(m.apps("Cursor.app"), filepath.Join(m.Home, ".cursor"))
			},
		},
		{
			Name: "vscode", Title: "VS Code", key: "servers", syntax: jsonLenient,
			entry: func(s Server) []field {
				return append([]field{{"type", "stdio"}}, standard(s)...)
			},
			project:   []string{".vscode/mcp.json"},
			user:      func(m Machine) []string { return []string{filepath.Join(m.config("Code"), "User", "mcp.json")} },
			InProject: "VS Code asks once whether it trusts the server",
			ForUser:   "VS Code asks once whether it trusts the server; profiles other than the default have a file of their own",
			programs:  []string{"code"},
			traces: func(m Machine) []string {
				return append(m.apps("Visual Studio Code.app"), m.config("Code"))
			},
		},
		{
			Name: "codex", Title: "Codex", key: "mcp_servers", syntax: tomlConfig, entry: standard,
			project: []string{".codex/config.toml"},
			user: func(m Machine) []string {
				return []string{filepath.Join(m.or("CODEX_HOME", filepath.Join(m.Home, ".codex")), "config.toml")}
			},
			InProject: "Codex reads this file only in projects that it was told to trust",
			programs:  []string{"codex"},
			traces:    func(m Machine) []string { return []string{m.or("CODEX_HOME", filepath.Join(m.Home, ".codex"))} },
		},
		{
			Name: "gemini", Title: "Gemini CLI", key: "mcpServers", syntax: jsonComments, entry: standard,
			project: []string{".gemini/settings.json"},
			user: func(m Machine) []string {
				return []string{filepath.Join(m.or("GEMINI_CLI_HOME", m.Home), ".gemini", "settings.json")}
			},
			InProject: "Gemini CLI starts it only in folders that it was told to trust",
			programs:  []string{"gemini"},
			traces:    func(m Machine) []string { return []string{filepath.Join(m.or("GEMINI_CLI_HOME", m.Home), ".gemini")} },
		},
		{
			Name: "zed", Title: "Zed", key: "context_servers", syntax: jsonLenient,
			entry: func(s Server) []field {
				return append([]field{{"source", "custom"}}, standard(s)...)
			},
			project:   []string{".zed/settings.json"},
			user:      func(m Machine) []string { return []string{filepath.Join(m.zed(), "settings.json")} },
			InProject: "Zed starts the servers of a project once the folder is trusted",
			programs:  []string{"zed", "zeditor"},
			traces: func(m Machine) []string {
				return append(m.apps("Zed.app"), m.zed())
			},
		},
		{
			Name: "opencode", Title: "opencode", key: "mcp", syntax: jsonLenient,
			entry: func(s Server) []field {
				return []field{{"type", "local"}, {"command", append([]string{s.Command}, s.Args...)}, {"enabled", true}}
			},
			// The first takes precedence where both are there.
			project: []string{"opencode.jsonc", "opencode.json"},
			user: func(m Machine) []string {
				return []string{filepath.Join(m.xdg("opencode"), "opencode.jsonc"), filepath.Join(m.xdg("opencode"), "opencode.json")}
			},
			programs: []string{"opencode"},
			traces:   func(m Machine) []string { return []string{m.xdg("opencode")} },
		},
		{
			Name: "windsurf", Title: "Windsurf", key: "mcpServers", syntax: jsonLenient, entry: standard,
			user:     home(".codeium", "windsurf", "mcp_config.json"),
			ForUser:  "Windsurf has one file for all projects, and reads it anew when told to refresh",
			programs: []string{"windsurf"},
			traces: func(m Machine) []string {
				return append(m.apps("Windsurf.app"), filepath.Join(m.Home, ".codeium", "windsurf"))
			},
		},
		{
			Name: "junie", Title: "Junie", key: "mcpServers", syntax: jsonLenient, entry: standard,
			project:  []string{".junie/mcp/mcp.json"},
			user:     home(".junie", "mcp", "mcp.json"),
			programs: []string{"junie"},
			traces:   func(m Machine) []string { return []string{filepath.Join(m.Home, ".junie")} },
		},
	}
}

// or is the folder that a variable names, or another.
func (m Machine) or(variable, otherwise string) string {
	if dir := m.Getenv(variable); filepath.IsAbs(dir) {
		return filepath.Clean(dir)
	}
	return otherwise
}

// xdg is a program's folder where the XDG rules are followed, which some
// programs do on every system.
func (m Machine) xdg(name string) string {
	return filepath.Join(m.or("XDG_CONFIG_HOME", filepath.Join(m.Home, ".config")), name)
}

// config is a program's folder where the system's rules are followed.
func (m Machine) config(name string) string {
	switch m.OS {
	case "darwin":
		return filepath.Join(m.Home, "Library", "Application Support", name)
	case "windows":
		return filepath.Join(m.or("APPDATA", filepath.Join(m.Home, "AppData", "Roaming")), name)
	}
	return m.xdg(name)
}

// zed is Zed's folder: on macOS not where the system has such things.
func (m Machine) zed() string {
	switch m.OS {
	case "darwin":
		return filepath.Join(m.Home, ".config", "zed")
	case "windows":
		return m.config("Zed")
	}
	return m.xdg("zed")
}

func (m Machine) apps(name string) []string {
	if m.OS != "darwin" {
		return nil
	}
	return []string{filepath.Join("/Applications", name), filepath.Join(m.Home, "Applications", name)}
}

// Find returns the editor of a name.
func Find(name string) (Editor, error) {
	known := Known()
	if i := slices.IndexFunc(known, func(e Editor) bool { return e.Name == name }); i >= 0 {
		return known[i], nil
	}
	names := make([]string, len(known))
	for i, e := range known {
		names[i] = e.Name
	}
	return Editor{}, fmt.Errorf("no editor %q is known, only %s", name, strings.Join(names, ", "))
}

// HasProject reports whether the editor reads a file in the checkout.
func (e Editor) HasProject() bool { return len(e.project) > 0 }

// File is the editor's file in the checkout, or the user's: the one that it
// reads, or would if it were there. "" is none.
func (e Editor) File(m Machine, user bool) string {
	var files []string
	switch {
	case user:
		files = e.user(m)
	case m.Root == "" || !e.HasProject():
		return ""
	default:
		for _, f := range e.project {
			files = append(files, filepath.Join(m.Root, filepath.FromSlash(f)))
		}
	}
	for _, f := range files {
		if isThere(f) {
			return f
		}
	}
	return files[len(files)-1]
}

// Traces returns what speaks for the editor being used here: programs, which
// look finds by their names, files and folders.
func (e Editor) Traces(m Machine, look func(program string) string) []string {
	var all, there []string
	for _, p := range e.programs {
		if path := look(p); path != "" {
			there = append(there, path)
		}
	}
	if m.Root != "" {
		for _, f := range e.project {
			all = append(all, filepath.Join(m.Root, filepath.FromSlash(f)))
			if dir, _, ok := strings.Cut(f, "/"); ok {
				all = append(all, filepath.Join(m.Root, dir))
			}
		}
	}
	all = append(all, e.user(m)...)
	all = append(all, e.traces(m)...)
	for _, path := range all {
		within := func(other string) bool { return strings.HasPrefix(other, path+string(filepath.Separator)) }
		if isThere(path) && !slices.Contains(there, path) && !slices.ContainsFunc(there, within) {
			there = append(there, path)
		}
	}
	return there
}

func isThere(path string) bool {
	_, err := os.Lstat(path)
	return err == nil || !isNotExist(err)
}

// isNotExist also knows a file where a folder ought to be.
func isNotExist(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// An Error says what keeps a file from being edited, and where.
type Error struct {
	Path   string
	Line   int    // 0 is the whole file
	Key    string // "" is none
	Reason string
	Err    error // what it came from, if that is an error
}

func (e *Error) Error() string {
	s := e.Path
	if e.Line > 0 {
		s += fmt.Sprintf(":%d", e.Line)
	}
	if e.Key != "" {
		s += ": key " + e.Key
	}
	return s + ": " + e.Reason
}

func (e *Error) Unwrap() error { return e.Err }
