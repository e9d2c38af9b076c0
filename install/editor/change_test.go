package editor

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// golden compares what a person sees with a file.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := errors.Join(os.MkdirAll("testdata", 0o755), os.WriteFile(path, []byte(got), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
	}
}

func nobody(string) string { return "" }

// TestFiles shows where each editor's files are, on each system.
func TestFiles(t *testing.T) {
	if filepath.Separator != '/' {
		t.Skip("the paths are written as on Unix")
	}
	var b strings.Builder
	for _, system := range []string{"linux", "darwin", "windows"} {
		m := Machine{OS: system, Home: "/home/a", Root: "/w", Getenv: nobody}
		fmt.Fprintf(&b, "%s\n", system)
		for _, e := range Known() {
			fmt.Fprintf(&b, "  %-9s %-26s %s\n", e.Name, e.File(m, false), e.File(m, true))
		}
	}
	fmt.Fprintln(&b, "linux, with variables")
	m := Machine{OS: "linux", Home: "/home/a", Getenv: func(name string) string { return "/var/" + strings.ToLower(name) }}
	for _, e := range Known() {
		fmt.Fprintf(&b, "  %-9s %-26s %s\n", e.Name, e.File(m, false), e.File(m, true))
	}
	golden(t, "files.txt", b.String())

	relative := Machine{OS: "linux", Home: "/home/a", Getenv: func(string) string { return "relative" }}
	for _, e := range Known() {
		if f := e.File(relative, true); !strings.HasPrefix(f, "/home/a/") {
			t.Errorf("%s: %s, where a relative folder is no folder", e.Name, f)
		}
	}
}

func TestFind(t *testing.T) {
	if _, err := Find("emacs"); err == nil || !strings.Contains(err.Error(), "claude, cursor, vscode, codex, gemini, zed, opencode, windsurf, junie") {
		t.Errorf("%v", err)
	}
}

// TestEntries shows what each editor gets: in an empty folder, and beside other
// servers.
func TestEntries(t *testing.T) {
	beside := map[string]string{
		"claude":   "{\n    \"mcpServers\": {\n        \"other\": {\"command\": \"x\"}\n    }\n}\n",
		"cursor":   "{\"mcpServers\":{\"other\":{\"command\":\"x\"}}}",
		"vscode":   "{\n\t// mine\n\t\"inputs\": [],\n\t\"servers\": {\n\t\t\"other\": { \"command\": \"x\" }, // the other\n\t},\n}\n",
		"codex":    "model = \"m\" # mine\n\n[mcp_servers.other]\ncommand = \"x\"\n",
		"gemini":   "{\n  \"theme\": \"dark\" // mine\n}\n",
		"zed":      "// Zed settings\n{\n  \"vim_mode\": true,\n  \"context_servers\": {},\n}\n",
		"opencode": "{\n  \"$schema\": \"https://opencode.ai/config.json\",\n  \"mcp\": {\n    // none\n  }\n}\n",
		"windsurf": "{ \"mcpServers\": { \"other\": { \"command\": \"x\" } } }\n",
		"junie":    "\n",
	}
	var b strings.Builder
	for _, e := range Known() {
		for _, was := range []string{"", beside[e.Name]} {
			c, err := planned(e, []byte(was), record{}, ours)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&b, "%s\n", e.Name)
			c.WriteDiff(&b)
			fmt.Fprintln(&b)
		}
	}
	golden(t, "entries.txt", b.String())
}

// TestRefused shows what is not edited, and why.
func TestRefused(t *testing.T) {
	cases := []struct{ editor, file string }{
		{"claude", "{\n  // mine\n  \"mcpServers\": {}\n}\n"},
		{"claude", "{\n  \"mcpServers\": {\n    \"a\": {\"args\": [1,]}\n  }\n}\n"},
		{"claude", "{\n  \"mcpServers\": {\n    \"a\": 1,\n  }\n}\n"},
		{"claude", "{\n  \"mcpServers\": {\n    \"a\": 1 /* x */\n  }\n}\n"},
		{"gemini", "{\n  // may be\n  \"mcpServers\": {\"a\": 1},\n}\n"},
		{"gemini", bom + "{}\n"},
		{"cursor", "/* \" */" + strings.Repeat("[\n", maxDepth+1)},
		{"cursor", "{\n  \"mcpServers\": {\n    \"a\": }\n}\n"},
		{"cursor", "{\n  \"mcpServers\": {"},
		{"cursor", "{\n  \"mcpServers\": {} /* \n\n"},
		{"cursor", "\n[]\n"},
		{"cursor", "\nnull"},
		{"cursor", "{}\n{}"},
		{"cursor", "{\n  \"mcpServers\": []\n}"},
		{"vscode", "{\n  \"servers\": \"x\"\n}"},
		{"zed", "{\n  \"context_servers\": null\n}"},
		{"opencode", "{\n  \"mcp\": 1\n}"},
		{"opencode", "{\n  \"mcp\": true\n}"},
		{"cursor", "{\n  \"a\": 1,\n  \"b\": 2,\n  \"a\": 3\n}"},
		{"cursor", "{\n  \"mcpServers\": {},\n  \"mcp\\u0053ervers\": {}\n}"},
		{"cursor", "{\n  \"mcpServers\": {\n    \"majordomus\": {},\n    \"majordomus\": {}\n  }\n}"},
		{"cursor", "{\n  \"mcpServers\": {\n    \"majordomus\": {\n    \"command\": \"a\",\n \"command\": \"b\"}\n  }\n}"},
		{"cursor", strings.Repeat("[\n", maxDepth+1)},
		{"codex", "a = 1\nb = \n"},
		{"codex", "a = 1\na = 2\n"},
		{"codex", "a = 1\n[mcp_servers.a]\n[mcp_servers.a]\n"},
		{"codex", "a = 1\nmcp_servers = 1\n"},
		{"codex", "a = 1\n\n[[mcp_servers]]\n"},
		{"codex", "mcp_servers.majordomus.command = \"x\"\nmcp_servers.majordomus.args = []\n"},
		{"codex", "a = \"\xff\"\n"},
	}
	var b strings.Builder
	for _, c := range cases {
		e, err := Find(c.editor)
		if err != nil {
			t.Fatal(err)
		}
		_, err = planned(e, []byte(c.file), record{}, ours)
		if err == nil {
			t.Errorf("%s: edited\n%s", c.editor, c.file)
			continue
		}
		var where *Error
		if !errors.As(err, &where) || where.Line == 0 || where.Path != "FILE" {
			t.Errorf("%s: %v does not say where it is, in\n%s", c.editor, err, c.file)
		}
		file := c.file
		if len(file) > 100 {
			file = file[:10] + "...\n"
		}
		fmt.Fprintf(&b, "%s\n%s\n  %v\n\n", c.editor, strings.TrimRight(strings.ToValidUTF8(file, "?"), "\n"), err)
	}
	golden(t, "refused.txt", b.String())
}

// TestDeep: brackets that open nothing are none, and a stack is never full.
func TestDeep(t *testing.T) {
	many := strings.Repeat("[", maxDepth+1)
	for _, text := range []string{`"` + many + `"`, `"\"` + many + `"`, "//" + many + "\n1", "/*" + many + "*/1", "{}" + strings.Repeat("[]", maxDepth+1)} {
		if at := tooDeep([]byte(text)); at >= 0 {
			t.Errorf("%.20q is too deep at %d", text, at)
		}
	}
	for _, text := range []string{many, `"a"` + many, "//\"\n" + many, "/*\"*/" + many, "/*/" + "*/" + many, `"\\"` + many} {
		if at := tooDeep([]byte(text)); at != len(text)-1 {
			t.Errorf("%.20q is too deep at %d", text, at)
		}
	}
	for _, text := range []string{"/", "//", "/*", `"`, `"\`} {
		tooDeep([]byte(text)) // it is no file, but it is read
	}
}

// TestRight: an entry that does the same stays as it is.
func TestRight(t *testing.T) {
	s := ours
	s.Also = []string{"majordomus"}
	for _, c := range []struct {
		editor, file string
		right        bool
	}{
		{"claude", `{"mcpServers": {"majordomus": {"args": ["mcp"], "command": "majordomus"}}}`, true},
		{"claude", `{"mcpServers": {"majordomus": {"command": "/opt/majordomus/bin/majordomus", "args": ["mcp"], "env": {"A": "b"}, "timeout": 3}}}`, true},
		{"cursor", `{"mcpServers": {"majordomus": {"command": "majordomus", "args": ["mcp"], "disabled": true}}}`, false},
		{"cursor", `{"mcpServers": {"majordomus": {"command": "majordomus", "args": ["mcp", "--standalone"]}}}`, false},
		{"cursor", `{"mcpServers": {"majordomus": {"command": "/elsewhere/majordomus", "args": ["mcp"]}}}`, false},
		{"cursor", `{"mcpServers": {"majordomus": "x"}}`, false},
		{"opencode", `{"mcp": {"majordomus": {"type": "local", "command": ["majordomus", "mcp"]}}}`, true},
		{"opencode", `{"mcp": {"majordomus": {"type": "local", "command": ["majordomus", "mcp"], "enabled": false}}}`, false},
		{"codex", "[mcp_servers.majordomus]\nargs = ['mcp']\ncommand = 'majordomus'\nstartup_timeout_sec = 3\n", true},
		{"codex", "mcp_servers.majordomus = {command = 'majordomus', args = ['mcp']}\n", true},
		{"codex", "mcp_servers.majordomus = {command = 'majordomus', args = []}\n", false},
	} {
		e, _ := Find(c.editor)
		got, err := planned(e, []byte(c.file), record{}, s)
		if err != nil || (got.State == Right) != c.right {
			t.Errorf("%s: %v, %v for %s", c.editor, got.State, err, c.file)
		}
		if c.right && (string(got.is) != c.file || got.Writes()) {
			t.Errorf("%s: changed to %s", c.editor, got.is)
		}
	}
}

// TestReplaced: another's entry of the name is replaced for who wants it, and
// comes back; one of ours does not.
func TestReplaced(t *testing.T) {
	for _, c := range []struct{ editor, file, left string }{
		{"claude", "{\n  \"mcpServers\": {\n    \"majordomus\": {\"command\": \"butler\"},\n    \"b\": 1\n  }\n}\n", ""},
		{"claude", `{"mcpServers":{"majordomus":{"command":"butler","args":["mcp"]}}}`, ""},
		{"claude", `{"mcpServers": {"majordomus": null}}`, ""},
		{"vscode", "{\n  \"servers\": {\n    // who\n    \"majordomus\": {\n      \"command\": \"butler\", // what\n    }, // why\n  }\n}\n", ""},
		{"codex", "a = 1\n\n[mcp_servers.majordomus] # who\ncommand = \"butler\" # what\n\n[mcp_servers.majordomus.env]\nA = \"b\"\n# next\n[x]\n", ""},
		{"codex", "mcp_servers = {a.command = 'x', majordomus = {command = 'butler'}, z = {}} # c", ""},
		{"codex", "[mcp_servers]\nmajordomus = {command = 'butler'} # who\n", ""},
		{"codex", "[mcp_servers.majordomus]\ncommand = \"butler\"\n[x]\na = 1\n[mcp_servers.majordomus.env]\nA = \"b\"\n", ""},

		{"claude", "{\n  \"mcpServers\": {\n    \"majordomus\": {\"command\": \"/old/majordomus\", \"args\": [\"mcp\"]},\n    \"b\": 1\n  }\n}\n", "{\n  \"mcpServers\": {\n    \"b\": 1\n  }\n}\n"},
		{"codex", "a = 1\n\n[mcp_servers.majordomus]\ncommand = 'C:\\old\\majordomus.EXE'\nargs = ['mcp']\n\n[x]\n", "a = 1\n\n[x]\n"},
	} {
		e, _ := Find(c.editor)
		add, err := planned(e, []byte(c.file), record{}, ours)
		if err != nil || add.State != Replaced || !add.Asks || add.Line == 0 {
			t.Errorf("%s: %+v, %v", c.file, add, err)
			continue
		}
		if again, err := planned(e, add.is, add.record, ours); err != nil || again.State != Right {
			t.Errorf("%s: again is %v, %v", c.file, again.State, err)
		}
		want := c.left
		if want == "" {
			want = c.file
		}
		back, err := taken(e, add.is, add.record)
		if err != nil || back.State != Removed || string(back.is) != want {
			t.Errorf("%s\nbecame\n%s\nand then (%v)\n%s", c.file, add.is, err, back.is)
		}
		// The same when something else was edited since, where that can be.
		edited := append([]byte{}, add.is...)
		if i := strings.Index(string(edited), "b\": 1"); i > 0 {
			edited[i+4] = '2'
			want = strings.Replace(want, "b\": 1", "b\": 2", 1)
			back, err := taken(e, edited, add.record)
			if err != nil || back.State != Removed || string(back.is) != want {
				t.Errorf("%s\nbecame\n%s\nwas edited, and then (%v)\n%s", c.file, add.is, err, back.is)
			}
		}
	}
}

// TestForeign: who has put another's server under the name keeps it.
func TestForeign(t *testing.T) {
	e, _ := Find("claude")
	file := []byte(`{"mcpServers": {"majordomus": {"command": "butler"}}}`)
	c, err := taken(e, file, record{})
	if err != nil || c.State != Foreign || c.Writes() || c.Line != 1 {
		t.Errorf("%+v, %v", c, err)
	}
	c = &Change{File: "FILE", was: file, existed: true}
	if err := e.removal(c, "majordomus", true); err != nil || string(c.is) != `{"mcpServers": {}}` {
		t.Errorf("%s, %v", c.is, err)
	}
}

// A cupboard is a folder with an editor's file in it.
type cupboard struct {
	*testing.T
	e    Editor
	m    Machine
	kept [][]byte
}

func newCupboard(t *testing.T, name string) *cupboard {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	e, err := Find(name)
	if err != nil {
		t.Fatal(err)
	}
	c := &cupboard{T: t, e: e, m: Machine{OS: "linux", Home: filepath.Join(dir, "home"), Root: filepath.Join(dir, "root"), Getenv: nobody}}
	for _, d := range []string{c.m.Home, c.m.Root} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func (c *cupboard) put(path, text string, mode os.FileMode) {
	c.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), mode), os.Chmod(path, mode)); err != nil {
		c.Fatal(err)
	}
}

func (c *cupboard) keep(_ string, b []byte) (string, error) {
	c.kept = append(c.kept, b)
	return "kept", nil
}

// all is every path below the folders.
func (c *cupboard) all() []string {
	var list []string
	err := filepath.WalkDir(filepath.Dir(c.m.Home), func(path string, _ os.DirEntry, err error) error {
		list = append(list, strings.TrimPrefix(path, filepath.Dir(c.m.Home)))
		return err
	})
	if err != nil {
		c.Fatal(err)
	}
	return list
}

func (c *cupboard) within(user bool) string {
	if user {
		return ""
	}
	return c.m.Root
}

func TestMadeAndGone(t *testing.T) {
	for _, e := range Known() {
		for _, user := range []bool{false, true} {
			if !user && !e.HasProject() {
				continue
			}
			t.Run(fmt.Sprint(e.Name, user), func(t *testing.T) {
				c := newCupboard(t, e.Name)
				before := c.all()
				path := e.File(c.m, user)
				add, err := e.Plan(path, c.within(user), ours, "")
				if err != nil || !add.New() {
					t.Fatalf("%+v, %v", add, err)
				}
				if kept, err := add.Commit(c.keep); err != nil || kept != "" {
					t.Fatal(kept, err)
				}
				mode := os.FileMode(0o600)
				if !user {
					mode = 0o644 // as the umask has it, which is taken to be usual here
				}
				if info, err := os.Stat(path); err != nil || os.PathSeparator == '/' && info.Mode().Perm()&mode != info.Mode().Perm() {
					t.Errorf("%v, %v", info.Mode(), err)
				}
				if _, err := e.parse(path, add.is); err != nil {
					t.Error(err)
				}
				if again, err := e.Plan(path, c.within(user), ours, add.Record()); err != nil || again.State != Right {
					t.Errorf("%+v, %v", again, err)
				}
				back, err := e.Removal(path, c.within(user), ours.Name, add.Record(), false)
				if err != nil || !back.Vanishes() {
					t.Fatalf("%+v, %v", back, err)
				}
				if kept, err := back.Commit(c.keep); err != nil || kept != "" {
					t.Fatal(kept, err)
				}
				if left := c.all(); !slices.Equal(left, before) {
					t.Errorf("%v is left of %v", left, before)
				}
				if gone, err := e.Removal(path, c.within(user), ours.Name, add.Record(), false); err != nil || gone.State != Absent {
					t.Errorf("%+v, %v", gone, err)
				}
			})
		}
	}
}

// TestNotAlone: a file that was made and has something else in it since stays,
// and so does a folder.
func TestNotAlone(t *testing.T) {
	c := newCupboard(t, "cursor")
	path := c.e.File(c.m, false)
	add, err := c.e.Plan(path, c.m.Root, ours, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := add.Commit(c.keep); err != nil {
		t.Fatal(err)
	}
	c.put(path, strings.Replace(string(add.is), "{\n", "{\n  \"mine\": 1,\n", 1), 0o644)
	back, err := c.e.Removal(path, c.m.Root, ours.Name, add.Record(), false)
	if err != nil || back.Vanishes() {
		t.Fatalf("%+v, %v", back, err)
	}
	if _, err := back.Commit(c.keep); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "{\n  \"mine\": 1\n}\n" {
		t.Errorf("%q, %v", b, err)
	}
	// Nothing but what was made, in other words.
	c.put(path, `{"mcpServers":{"majordomus":{"command":"majordomus","args":["mcp"]}}}`, 0o644)
	c.put(filepath.Join(filepath.Dir(path), "rules"), "mine", 0o644)
	back, err = c.e.Removal(path, c.m.Root, ours.Name, add.Record(), false)
	if err != nil || !back.Vanishes() {
		t.Fatalf("%+v, %v", back, err)
	}
	if _, err := back.Commit(c.keep); err != nil {
		t.Fatal(err)
	}
	if left := c.all(); !slices.Contains(left, "/root/.cursor/rules") || slices.Contains(left, "/root/.cursor/mcp.json") {
		t.Errorf("%v", left)
	}
}

// TestLinks: the file that a link means is edited, unless it leads out of the
// checkout.
func TestLinks(t *testing.T) {
	c := newCupboard(t, "cursor")
	dotfiles := filepath.Join(filepath.Dir(c.m.Home), "dotfiles", "cursor.json")
	c.put(dotfiles, "{}\n", 0o640)
	user := c.e.File(c.m, true)
	link := func(from, to string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(from), 0o755), os.Symlink(to, from)); err != nil {
			t.Skip(err)
		}
	}
	link(user, "../../dotfiles/cursor.json")
	add, err := c.e.Plan(user, "", ours, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := add.Commit(c.keep); err != nil {
		t.Fatal(err)
	}
	info, err := os.Lstat(user)
	if err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is %v, %v", info.Mode(), err)
	}
	if info, err = os.Lstat(dotfiles); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("the file is %v, %v", info.Mode(), err)
	}
	if b, _ := os.ReadFile(dotfiles); string(b) != string(add.is) || string(c.kept[0]) != "{}\n" {
		t.Errorf("%s, kept %s", b, c.kept)
	}

	project := c.e.File(c.m, false)
	refused := func(what string) {
		t.Helper()
		if _, err := c.e.Plan(project, c.m.Root, ours, ""); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%v, want %s", err, what)
		}
		if _, err := c.e.Removal(project, c.m.Root, ours.Name, "", false); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%v, want %s", err, what)
		}
	}
	link(project, dotfiles)
	refused("leads out of the checkout, to " + dotfiles)
	os.Remove(project)
	link(project, "nowhere")
	refused("link to what is not there")
	os.RemoveAll(filepath.Dir(project))
	link(filepath.Dir(project), filepath.Dir(dotfiles))
	refused("leads out of the checkout")
	os.Remove(filepath.Dir(project))
	c.put(filepath.Join(c.m.Root, "shared", "mcp.json"), "{}", 0o644)
	link(filepath.Dir(project), "shared")
	if _, err := c.e.Plan(project, c.m.Root, ours, ""); err != nil {
		t.Error(err)
	}
	os.RemoveAll(filepath.Join(c.m.Root, "shared"))
	os.Remove(filepath.Dir(project))
	if err := os.MkdirAll(project, 0o755); err != nil {
		t.Fatal(err)
	}
	refused("no regular file")
}

// TestMeanwhile: what somebody has written since the plan was made is not lost.
func TestMeanwhile(t *testing.T) {
	c := newCupboard(t, "claude")
	path := c.e.File(c.m, true)
	for _, was := range []string{"", "{}"} {
		if was != "" {
			c.put(path, was, 0o600)
		}
		add, err := c.e.Plan(path, "", ours, "")
		if err != nil {
			t.Fatal(err)
		}
		c.put(path, `{"mine": 1}`, 0o600)
		if _, err := add.Commit(c.keep); !errors.Is(err, ErrChanged) {
			t.Errorf("%v", err)
		}
		if b, _ := os.ReadFile(path); string(b) != `{"mine": 1}` {
			t.Errorf("%s", b)
		}
	}
	c.put(path, `{}`, 0o400)
	add, err := c.e.Plan(path, "", ours, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := add.Commit(c.keep); err == nil || !strings.Contains(err.Error(), "for reading only") {
		t.Errorf("%v", err)
	}
	if _, err := add.Commit(func(string, []byte) (string, error) { return "", errors.New("the disk is full") }); err == nil {
		t.Error("written without a copy")
	}
	if left, _ := filepath.Glob(filepath.Join(c.m.Home, ".*")); len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
}

// TestStarts: what is in a file can be asked for.
func TestStarts(t *testing.T) {
	for _, e := range Known() {
		c := newCupboard(t, e.Name)
		path := e.File(c.m, true)
		if words, line, err := e.Starts(path, ours.Name); words != nil || line != 0 || err != nil {
			t.Errorf("%s: %v in line %d, %v, without a file", e.Name, words, line, err)
		}
		add, err := e.Plan(path, "", ours, "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := add.Commit(c.keep); err != nil {
			t.Fatal(err)
		}
		words, line, err := e.Starts(path, ours.Name)
		if !slices.Equal(words, []string{ours.Command, "mcp"}) || line == 0 || err != nil {
			t.Errorf("%s: %v in line %d, %v", e.Name, words, line, err)
		}
	}
}

// TestTraces: an editor is there when it was used, or its program is found.
func TestTraces(t *testing.T) {
	c := newCupboard(t, "cursor")
	look := func(p string) string {
		if p == "cursor" {
			return "/bin/cursor"
		}
		return ""
	}
	for _, e := range Known() {
		if got := e.Traces(c.m, func(string) string { return "" }); got != nil {
			t.Errorf("%s: %v in an empty home", e.Name, got)
		}
	}
	project, user := c.e.File(c.m, false), c.e.File(c.m, true)
	c.put(project, "{}", 0o644)
	c.put(user, "{}", 0o644)
	if got := c.e.Traces(c.m, look); !slices.Equal(got, []string{"/bin/cursor", project, user}) {
		t.Errorf("%v", got)
	}
	os.Remove(project)
	if got := c.e.Traces(c.m, look); !slices.Equal(got, []string{"/bin/cursor", filepath.Dir(project), user}) {
		t.Errorf("%v", got)
	}
}

// TestShadow: of two files that opencode reads, the one that counts.
func TestShadow(t *testing.T) {
	c := newCupboard(t, "opencode")
	for _, user := range []bool{false, true} {
		path := c.e.File(c.m, user)
		if !strings.HasSuffix(path, "opencode.json") {
			t.Error(path)
		}
		c.put(path, "{}", 0o644)
		c.put(path+"c", "{}", 0o644)
		if path := c.e.File(c.m, user); !strings.HasSuffix(path, "opencode.jsonc") {
			t.Error(path)
		}
	}
}

// TestOddCommands: every path can be written, and comes back as it is.
func TestOddCommands(t *testing.T) {
	for _, command := range []string{`C:\Program Files\majordomus.exe`, "/home/a b/it's \"x\"/majordomus", "/übung/\u2028/💡/<&>/majordomus", "/tab\t/del\x7f/majordomus"} {
		for _, e := range Known() {
			for _, was := range []string{"", "{\"a\": 1}", "mcp_servers = {}\n"} {
				if (e.syntax == tomlConfig) != (was == "" || was[0] == 'm') && was != "" {
					continue
				}
				s := ours
				s.Command = command
				c, err := planned(e, []byte(was), record{}, s)
				if err != nil {
					t.Errorf("%s: %v", e.Name, err)
					continue
				}
				f, err := e.parse("FILE", c.is)
				if err != nil {
					t.Fatal(err)
				}
				value, _, _, err := f.find(e.key, s.Name)
				if words := wordsOf(value); err != nil || !slices.Equal(words, []string{command, "mcp"}) || !Ours(value) {
					t.Errorf("%s: %q came back as %q, %v", e.Name, command, words, err)
				}
			}
		}
	}
}

// TestShown: nothing that is in a file acts on a terminal.
func TestShown(t *testing.T) {
	var b strings.Builder
	writeDiff(&b, "\x1b[2Ja\u202e\n"+strings.Repeat("x", 1000)+"\n", "\x1b[2Ja\u202e\n\tb\u00a0\n"+strings.Repeat("x", 1000)+"\n")
	if got, want := b.String(), "  \\u001b[2Ja\\u202e\n+     b\\u00a0\n  "+strings.Repeat("x", 2*maxShown)+"…\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	b.Reset()
	writeDiff(&b, strings.Repeat("ü", 100)+"a"+strings.Repeat("ü", 100), strings.Repeat("ü", 100)+"b"+strings.Repeat("ü", 100))
	if got, want := b.String(), "- …üüüüüüüüüüaüüüüüüüüüü…\n+ …üüüüüüüüüübüüüüüüüüüü…\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestMadeAndEdited: a TOML file that was made goes, too, when only blanks are
// left of it.
func TestMadeAndEdited(t *testing.T) {
	c := newCupboard(t, "codex")
	before := c.all()
	path := c.e.File(c.m, true)
	add, err := c.e.Plan(path, "", ours, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := add.Commit(c.keep); err != nil {
		t.Fatal(err)
	}
	c.put(path, "\n"+string(add.is)+"startup_timeout_sec = 20\n", 0o600)
	back, err := c.e.Removal(path, "", ours.Name, add.Record(), false)
	if err != nil || !back.Vanishes() {
		t.Fatalf("%+v, %v", back, err)
	}
	if kept, err := back.Commit(c.keep); err != nil || kept == "" {
		t.Fatal(kept, err)
	}
	if left := c.all(); !slices.Equal(left, before) {
		t.Errorf("%v is left of %v", left, before)
	}
}

// TestRecord: what cannot be read of a record is as if nothing were known.
func TestRecord(t *testing.T) {
	c := newCupboard(t, "claude")
	path := c.e.File(c.m, true)
	c.put(path, `{"mcpServers": {"majordomus": {"command": "majordomus", "args": ["mcp"]}, "a": 1}}`, 0o600)
	for _, past := range []string{"", "{", `{"after": "x", "exact": true, "edits": [{"at": -1}]}`, fmt.Sprintf(`{"after": %q, "exact": true, "edits": [{"at": 5000, "new": "x"}]}`, digest([]byte(`{"mcpServers": {"majordomus": {"command": "majordomus", "args": ["mcp"]}, "a": 1}}`)))} {
		back, err := c.e.Removal(path, "", ours.Name, past, false)
		if err != nil || string(back.is) != `{"mcpServers": {"a": 1}}` {
			t.Errorf("%s: %+v, %v", past, back, err)
		}
	}
}
