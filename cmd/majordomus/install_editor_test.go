//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"majordomus/install"
	editors "majordomus/install/editor"
)

// onPath puts the program into a folder of the PATH that processes here have,
// and, if login is true, of the one that a person's shell has after login.
func (c *accCheckout) onPath(login bool) {
	c.t.Helper()
	bin := filepath.Join(filepath.Dir(c.root), "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		c.t.Fatal(err)
	}
	if err := os.Symlink(c.program, filepath.Join(bin, "majordomus")); err != nil && !errors.Is(err, fs.ErrExist) {
		c.t.Fatal(err)
	}
	c.extra = append(c.extra, "PATH="+bin+":"+os.Getenv("PATH"), "SHELL=")
	if login {
		shell := filepath.Join(filepath.Dir(c.root), "shell")
		text := "#!/bin/sh\n[ \"$1 $2 $3\" = '-l -i -c' ] || exit 1\necho \"welcome, PATH=/nowhere\"\nPATH=" + bin + ":/usr/bin:/bin exec /bin/sh -c \"$4\"\n"
		if err := accExecutable(shell, []byte(text)); err != nil {
			c.t.Fatal(err)
		}
		c.extra = append(c.extra, "SHELL="+shell)
	}
}

// files is every file below the checkout and the home, with its content, but
// for what a server writes.
func (c *accCheckout) files() map[string]string {
	c.t.Helper()
	all := map[string]string{}
	for _, dir := range []string{c.root, c.home} {
		err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if e.IsDir() {
				all[path] = "a folder"
				return nil
			}
			b, err := os.ReadFile(path)
			all[path] = string(b)
			return err
		})
		if err != nil {
			c.t.Fatal(err)
		}
	}
	return all
}

// recordedEditors checks how many of this checkout's and home's files the
// account remembers, and that each is there as it was before.
func (c *accCheckout) recordedEditors(want int) {
	c.t.Helper()
	dir := filepath.Join(filepath.Dir(c.program), "account", ".local/state/majordomus")
	if runtime.GOOS == "darwin" {
		dir = filepath.Join(filepath.Dir(c.program), "account", "Library/Application Support/majordomus")
	}
	list, err := install.OpenLedger(dir).List()
	if err != nil {
		c.t.Fatal(err)
	}
	n := 0
	for _, e := range list {
		if e.Kind == install.Editor && strings.HasPrefix(e.File, filepath.Dir(c.root)+"/") {
			n++
			if e.Undo == "" || strings.HasPrefix(e.File, c.root) != (e.Root == c.root) {
				c.t.Errorf("recorded is %+v", e)
			}
		}
	}
	if n != want {
		c.t.Errorf("%d files are recorded, want %d", n, want)
	}
	kept, err := filepath.Glob(filepath.Join(dir, "backups", "*"))
	if err != nil {
		c.t.Fatal(err)
	}
	texts := map[string]bool{}
	for _, path := range kept {
		b, err := os.ReadFile(path)
		info, statErr := os.Stat(path)
		if err != nil || statErr != nil || info.Mode().Perm() != 0o600 {
			c.t.Errorf("%v, %v, %v", info.Mode(), err, statErr)
		}
		texts[string(b)] = true
	}
	for _, e := range list {
		if was, ok := accEditorFiles[strings.TrimPrefix(e.File, filepath.Dir(c.root)+"/")]; ok && want > 0 && !strings.Contains(e.Undo, `"created":true`) && !texts[was] {
			c.t.Errorf("%s is not kept as it was", e.File)
		}
	}
}

func everyEditor() []string {
	var names []string
	for _, e := range editors.Known() {
		names = append(names, e.Name)
	}
	return names
}

// accEditorFiles are files as people have them: each is to come through.
var accEditorFiles = map[string]string{
	"work/.mcp.json":                         "{\n  \"mcpServers\": {\n    \"docs\": { \"type\": \"http\", \"url\": \"https://example.com/mcp\" }\n  }\n}\n",
	"work/.cursor/mcp.json":                  "{\"mcpServers\":{}}",
	"work/.vscode/mcp.json":                  "{\r\n\t// what VS Code starts\r\n\t\"servers\": {\r\n\t\t\"docs\": { \"type\": \"http\", \"url\": \"https://example.com/mcp\" }, // not ours\r\n\t},\r\n\t\"inputs\": [],\r\n}\r\n",
	"work/.codex/config.toml":                "# ours\nmodel = \"m\"\n\n[mcp_servers.docs]\ncommand = 'docs'\n# the end, without a line end",
	"work/.gemini/settings.json":             "{\n    \"theme\": \"dark\", // at night\n    \"mcpServers\": {\n        \"docs\": {\"command\": \"docs\"}\n    }\n}",
	"work/opencode.json":                     "{}\n",
	"work/opencode.jsonc":                    "{\n  \"$schema\": \"https://opencode.ai/config.json\",\n}\n",
	"home/.codeium/windsurf/mcp_config.json": "",
	"home/.config/zed/settings.json":         "// Zed settings\n{\n  \"vim_mode\": true,\n}\n",
	"home/.claude.json":                      "\ufeff{\n  \"numStartups\": 3,\n  \"projects\": {\n    \"/w\": {\n      \"mcpServers\": {}\n    }\n  }\n}",
	"home/.config/opencode/opencode.json":    "{\"mcp\": {\"docs\": {\"type\": \"local\", \"command\": [\"docs\"]}}, \"theme\": \"x\"}\n",
	"home/.gemini/settings.json":             "{\n\t\"mcpServers\": {\n\t}\n}\n",
	"home/.codex/config.toml":                "mcp_servers = { docs = { command = \"docs\" } } # in one line\n",
	"home/.config/Code/User/mcp.json":        "\n",
	"home/.junie/mcp/mcp.json":               "{ \"mcpServers\": { \"docs\": { \"command\": \"docs\" } } }\n",
	"home/.cursor/mcp.json":                  "{\n    \"mcpServers\": {\n        \"majordomus\": {\n            \"args\": [\"mcp\"],\n            \"command\": \"majordomus\",\n            \"env\": {\"MAJORDOMUS_LOG\": \"debug\"}\n        }\n    }\n}\n",
}

func (c *accCheckout) editorFiles() {
	for name, text := range accEditorFiles {
		path := filepath.Join(filepath.Dir(c.root), name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o640)); err != nil {
			c.t.Fatal(err)
		}
	}
}

// TestInstallEditor goes through it for all editors, in a checkout and for a
// person: shown first, done, done again, and undone to the byte.
func TestInstallEditor(t *testing.T) {
	t.Parallel()
	c := accOwn(t)
	c.onPath(true)
	c.editorFiles()
	before := c.files()
	for _, scope := range [][]string{nil, {"--user"}} {
		golden := "install/editor-project"
		if scope != nil {
			golden = "install/editor-user"
		}
		words := func(word string, more ...string) []string {
			return slices.Concat([]string{word, "editor"}, everyEditor(), scope, more)
		}
		c.says(golden+"-dry.txt", words("install", "--dry-run")...)
		if !maps.Equal(c.files(), before) {
			t.Fatal("--dry-run has written something")
		}
		c.says(golden+".txt", words("install")...)
		after := c.files()
		if maps.Equal(after, before) {
			t.Fatal("nothing was written")
		}
		c.recordedEditors(len(everyEditor()) - map[bool]int{true: 1}[scope != nil])
		c.says(golden+"-again.txt", words("install")...)
		c.says(golden+"-again-json.txt", words("install", "--format", "json")...)
		if !maps.Equal(c.files(), after) {
			t.Error("a second time is not like once")
		}
		c.says(golden+"-undo-dry.txt", words("uninstall", "--dry-run")...)
		if !maps.Equal(c.files(), after) {
			t.Fatal("--dry-run has written something")
		}
		c.says(golden+"-undo.txt", words("uninstall")...)
		left := c.files()
		if scope != nil {
			// That entry was there before, written by hand: it goes too.
			path := filepath.Join(c.home, ".cursor/mcp.json")
			if strings.Contains(left[path], "majordomus") {
				t.Errorf("the entry is still in\n%s", left[path])
			}
			left[path] = before[path]
		}
		for path, text := range before {
			if left[path] != text {
				t.Errorf("%s was\n%q\nand is\n%q", path, text, left[path])
			}
			delete(left, path)
		}
		if len(left) > 0 {
			t.Errorf("left behind: %v", slices.Sorted(maps.Keys(left)))
		}
		c.recordedEditors(0)
		c.says(golden+"-undo-again.txt", words("uninstall")...)
		c.editorFiles()
	}
}

// TestInstallEditorFound: without a name it shows what is here, and asks.
func TestInstallEditorFound(t *testing.T) {
	t.Parallel()
	c := accOwn(t)
	c.onPath(false)
	c.extra = append(c.extra, "PATH="+filepath.Join(filepath.Dir(c.root), "bin"))
	c.says("install/editor-none.txt", "install", "editor")
	c.says("install/editor-none-all.txt", "install", "editor", "--all")
	c.says("install/editor-none-undo.txt", "uninstall", "editor", "--all")
	c.write(".vscode/settings.json", "{}", 0o644)
	c.write("../home/.codex/auth.json", "{}", 0o600)
	c.write("../bin/gemini", "#!/bin/sh\n", 0o755)
	before := c.files()
	c.says("install/editor-found.txt", "install", "editor")
	c.says("install/editor-found-json.txt", "install", "editor", "--format", "json")
	c.says("install/editor-list.txt", "install", "editor", "--list")
	c.says("install/editor-found-dry.txt", "install", "editor", "--dry-run")
	if !maps.Equal(c.files(), before) {
		t.Error("something was written")
	}
	c.says("install/editor-all.txt", "install", "editor", "--all")
	c.says("install/editor-present.txt", "uninstall", "editor")
	c.says("install/editor-present-json.txt", "uninstall", "editor", "--format", "json")
	c.says("install/editor-undo-all.txt", "uninstall", "editor", "--all")
	if !maps.Equal(c.files(), before) {
		t.Error("something is left")
	}
	c.says("install/editor-words.txt", "install", "editor", "--all", "claude")
	c.says("install/editor-unknown.txt", "install", "editor", "emacs")
	c.says("install/editor-list-words.txt", "install", "editor", "--list", "--all")
	c.says("install/editor-help.txt", "install", "editor", "--help")
	c.says("install/editor-undo-help.txt", "uninstall", "editor", "--help")

	// Outside any checkout there is only what is the person's own.
	outside := *c
	outside.root = c.home
	outside.says("install/editor-outside.txt", "install", "editor", "claude")
	outside.says("install/editor-outside-windsurf.txt", "install", "editor", "windsurf")
	outside.says("install/editor-outside-undo.txt", "uninstall", "editor", "--all", "--user", "--dry-run")
}

// TestInstallEditorRefused: what is not done is said with file and line, the
// rest is done.
func TestInstallEditorRefused(t *testing.T) {
	t.Parallel()
	c := accOwn(t)
	c.onPath(true)
	c.write(".mcp.json", "{\n  // ours\n  \"mcpServers\": {}\n}\n", 0o644)
	c.write(".cursor/mcp.json", "{\n  \"mcpServers\": {\n}\n", 0o644)
	c.write(".vscode/mcp.json", "{\n  \"servers\": {\n    \"majordomus\": {\"command\": \"butler\"}\n  }\n}\n", 0o644)
	c.write(".zed/settings.json", "{\n  \"context_servers\": []\n}\n", 0o644)
	c.write("../elsewhere.json", "{}\n", 0o644)
	if err := os.Symlink("../elsewhere.json", filepath.Join(c.root, "opencode.json")); err != nil {
		t.Fatal(err)
	}
	before := c.files()
	names := []string{"claude", "cursor", "vscode", "zed", "opencode"}
	c.says("install/editor-refused.txt", append([]string{"install", "editor"}, names...)...)
	c.says("install/editor-refused-json.txt", append([]string{"install", "editor", "--format", "json"}, names...)...)
	c.says("install/editor-refused-undo.txt", append([]string{"uninstall", "editor"}, names...)...)
	c.says("install/editor-refused-undo-all.txt", "uninstall", "editor", "--all")
	if !maps.Equal(c.files(), before) {
		t.Error("something was written")
	}
	c.says("install/editor-some.txt", "install", "editor", "claude", "junie")
	c.says("install/editor-force-dry.txt", "install", "editor", "vscode", "--dry-run")
	c.says("install/editor-force.txt", "install", "editor", "vscode", "--force")
	c.says("install/editor-force-undo.txt", "uninstall", "editor", "vscode", "junie")
	if !maps.Equal(c.files(), before) {
		t.Error("what was replaced did not come back")
	}
	c.says("install/editor-force-foreign.txt", "uninstall", "editor", "vscode", "--force")
}

// TestInstallEditorMoved: when the program is elsewhere, the entry follows
// without a question, and undoing it still leads back to the beginning.
func TestInstallEditorMoved(t *testing.T) {
	t.Parallel()
	c := accOwn(t)
	c.onPath(false)
	c.write("../home/.cursor/mcp.json", "{\"mcpServers\": {\"docs\": 1}}", 0o600)
	before := c.files()
	if _, log, err := c.run("install", "editor", "--user", "cursor"); err != nil {
		t.Fatal(err, log)
	}
	first := c.files()[filepath.Join(c.home, ".cursor/mcp.json")]
	c.extra = append(c.extra, "PATH="+os.Getenv("PATH"))
	c.says("install/editor-moved.txt", "install", "editor", "--user", "cursor")
	if second := c.files()[filepath.Join(c.home, ".cursor/mcp.json")]; second == first || !strings.Contains(second, c.program) {
		t.Errorf("%s", second)
	}
	if _, log, err := c.run("uninstall", "editor", "--user", "cursor"); err != nil {
		t.Fatal(err, log)
	}
	if !maps.Equal(c.files(), before) {
		t.Errorf("%v", c.files())
	}
}

// TestInstallEditorElsewhere: a file that the editor reads no longer, since
// another has come before it, is not forgotten.
func TestInstallEditorElsewhere(t *testing.T) {
	t.Parallel()
	c := accOwn(t)
	c.onPath(true)
	if _, log, err := c.run("install", "editor", "opencode"); err != nil {
		t.Fatal(err, log)
	}
	c.write("opencode.jsonc", "{}", 0o644)
	if _, log, err := c.run("install", "editor", "opencode"); err != nil {
		t.Fatal(err, log)
	}
	c.says("install/editor-elsewhere.txt", "uninstall", "editor", "--all")
	files := c.files()
	if _, ok := files[filepath.Join(c.root, "opencode.json")]; ok || files[filepath.Join(c.root, "opencode.jsonc")] != "{}" {
		t.Errorf("%v", files)
	}
	c.recordedEditors(0)
}

// TestInstallEditorAtOnce: several people's windows do it at once.
func TestInstallEditorAtOnce(t *testing.T) {
	t.Parallel()
	c := accOwn(t)
	c.onPath(true)
	before := c.files()
	for range 5 {
		var all []*exec.Cmd
		for range 8 {
			cmd := c.command("install", "editor", "cursor", "codex")
			var said bytes.Buffer
			cmd.Stdout, cmd.Stderr = &said, &said
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			all = append(all, cmd)
		}
		for _, cmd := range all {
			if err := cmd.Wait(); err != nil {
				t.Errorf("%v: %s", err, cmd.Stdout)
			}
		}
		c.recordedEditors(2)
		if _, log, err := c.run("uninstall", "editor", "--all"); err != nil {
			t.Fatal(err, log)
		}
		c.recordedEditors(0)
		if after := c.files(); !maps.Equal(after, before) {
			t.Fatalf("left behind: %v", after)
		}
	}
}

// TestReadmeEditors: what the README has people paste is what is installed.
func TestReadmeEditors(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	c := accFresh(t)
	c.onPath(true)
	for _, e := range editors.Known() {
		m := editors.Machine{OS: "linux", Home: "~", Root: c.root, Getenv: func(string) string { return "" }}
		section := regexp.MustCompile(`(?s)\n### ` + regexp.QuoteMeta(e.Title) + `\n(.*?)\n##`).FindSubmatch(append(b, "\n##"...))
		if section == nil {
			t.Errorf("README.md has no section %s", e.Title)
			continue
		}
		text := string(section[1])
		var snippet strings.Builder
		for line := range strings.Lines(text) {
			if code, ok := strings.CutPrefix(line, "    "); ok {
				snippet.WriteString(code)
			}
		}
		project, user := strings.TrimPrefix(e.File(m, false), c.root+"/"), e.File(m, true)
		for _, name := range []string{project, user} {
			if name != "" && !strings.Contains(text, "`"+name+"`") {
				t.Errorf("%s: the README does not name %s", e.Title, name)
			}
		}
		words := []string{"install", "editor", e.Name}
		if _, log, err := c.run(words...); err != nil {
			t.Fatal(err, log)
		}
		path, want := filepath.Join(c.root, project), snippet.String()
		if project == "" {
			path = filepath.Join(c.home, strings.TrimPrefix(user, "~/"))
			want = strings.ReplaceAll(want, `"majordomus"`, `"`+filepath.Dir(c.root)+`/bin/majordomus"`)
			want = strings.Replace(want, `"`+filepath.Dir(c.root)+`/bin/majordomus":`, `"majordomus":`, 1)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%s: the README says\n%s\nand this was installed (%v):\n%s", e.Title, want, err, got)
		}
	}
}

// TestEditorsRead has real editors read what was installed, and start it.
func TestEditorsRead(t *testing.T) {
	t.Parallel() // it waits more than it works
	clients := editorFolder(t, "clients")
	folder := editorFolder(t, "editors")
	node, err := findNode(t, clients)
	need(t, "node 20 or newer", err)
	claude := filepath.Join(clients, "node_modules/.bin/claude")
	codex := filepath.Join(folder, "node_modules/.bin/codex")
	gemini := filepath.Join(folder, "node_modules/.bin/gemini")
	opencode := filepath.Join(folder, "node_modules/opencode-linux-x64-baseline/bin/opencode")

	for _, user := range []bool{false, true} {
		t.Run(map[bool]string{false: "project", true: "user"}[user], func(t *testing.T) {
			c := accFresh(t)
			c.onPath(true)
			bin := filepath.Join(filepath.Dir(c.root), "bin")
			// What a person has said yes to once: that the project is trusted.
			c.write("../home/.claude/settings.json", `{"enableAllProjectMcpServers": true}`, 0o600)
			c.write("../home/.gemini/settings.json", "{\n  // mine\n  \"security\": {\"folderTrust\": {\"enabled\": false}},\n  \"general\": {\"disableAutoUpdate\": true}\n}\n", 0o600)
			c.write("../home/.codex/config.toml", fmt.Sprintf("# mine\n[projects.%q]\ntrust_level = \"trusted\"\n", c.root), 0o600)
			words := []string{"install", "editor", "claude", "codex", "gemini", "opencode"}
			command := "majordomus"
			if user {
				words = append(words, "--user")
				command = filepath.Join(bin, "majordomus")
			}
			if _, log, err := c.run(words...); err != nil {
				t.Fatal(err, log)
			}
			run := func(name string, args ...string) string {
				t.Helper()
				cmd := exec.Command(name, args...)
				cmd.Dir = c.root
				cmd.Env = []string{"PATH=" + strings.Join([]string{bin, filepath.Dir(node), os.Getenv("PATH")}, ":"), "HOME=" + c.home, "TMPDIR=" + os.TempDir(),
					"LANG=C.UTF-8", "TERM=dumb", "DISABLE_AUTOUPDATER=1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
					"OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_MODELS_FETCH=1"}
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Errorf("%s %s: %v\n%s", filepath.Base(name), strings.Join(args, " "), err, out)
				}
				return string(out)
			}
			is := func(what, out, pattern string) {
				t.Helper()
				if !regexp.MustCompile(pattern).MatchString(out) {
					t.Errorf("%s says\n%s\nand not %s", what, out, pattern)
				}
			}
			is("claude mcp list", run(claude, "mcp", "list"), `(?m)^majordomus: `+regexp.QuoteMeta(command)+` mcp - ✔ Connected`)
			is("claude mcp get", run(claude, "mcp", "get", "majordomus"), `(?s)Connected.*Command: `+regexp.QuoteMeta(command)+`.*Args: mcp`)
			is("gemini mcp list", run(gemini, "mcp", "list"), regexp.QuoteMeta("majordomus: "+command+" mcp (stdio) - Connected"))
			// It is a program for one kind of machine.
			if _, err := os.Stat(opencode); err == nil || os.Getenv("MAJORDOMUS_TEST_ALL") == "1" {
				is("opencode mcp list", run(opencode, "mcp", "list"), `✓ majordomus .*connected`)
			}
			is("codex mcp list", run(codex, "mcp", "list"), `(?m)^majordomus +`+regexp.QuoteMeta(command)+` +mcp .*enabled`)
			is("codex mcp get", run(codex, "mcp", "get", "majordomus"), `(?s)enabled: true.*command: `+regexp.QuoteMeta(command)+`\n *args: mcp\n`)
			// Codex starts nothing for these words, so it is given work.
			c.codexCalls(codex, run)
			if d, err := c.lease(); err != nil {
				t.Errorf("no server came up: %v", err)
			} else if len(c.pids()) == 0 {
				t.Errorf("the server %d is gone", d.PID)
			}
			words[0] = "uninstall"
			if _, log, err := c.run(words...); err != nil {
				t.Fatal(err, log)
			}
			if out := run(codex, "mcp", "list"); strings.Contains(out, "majordomus") {
				t.Errorf("codex still has it:\n%s", out)
			}
			if out := run(claude, "mcp", "list"); strings.Contains(out, "majordomus: ") {
				t.Errorf("claude still has it:\n%s", out)
			}
		})
	}
}

// TestEditorsRefuse: what is refused on an editor's behalf, it does refuse, and
// what is not, it reads.
func TestEditorsRefuse(t *testing.T) {
	t.Parallel()
	clients := editorFolder(t, "clients")
	folder := editorFolder(t, "editors")
	node, err := findNode(t, clients)
	need(t, "node 20 or newer", err)
	const comment, comma = "{\n  // mine\n  KEY: {\n    \"a\": ENTRY\n  }\n}\n", "{\n  KEY: {\n    \"a\": ENTRY,\n  },\n}\n"
	const mark, crlf, twice = "\ufeff{KEY: {\"a\": ENTRY}}", "{\r\n  KEY: {\r\n    \"a\": ENTRY\r\n  }\r\n}", "{KEY: {\"a\": {}, \"a\": ENTRY}}"
	for _, e := range []struct {
		name, program, key, entry string
		refuses                   []string
		reads                     []string
	}{
		{"claude", filepath.Join(clients, "node_modules/.bin/claude"), `"mcpServers"`, `{"command": "false"}`, []string{comment, comma}, []string{mark, crlf}},
		{"gemini", filepath.Join(folder, "node_modules/.bin/gemini"), `"mcpServers"`, `{"command": "false"}`, []string{comma, mark}, []string{comment, crlf}},
		{"opencode", filepath.Join(folder, "node_modules/opencode-linux-x64-baseline/bin/opencode"), `"mcp"`, `{"type": "local", "command": ["false"]}`, nil, []string{comment, comma, mark, crlf}},
	} {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			_, err := os.Stat(e.program)
			need(t, e.name, err)
			c := accFresh(t)
			c.onPath(true)
			c.write("../home/.claude/settings.json", `{"enableAllProjectMcpServers": true}`, 0o600)
			editor, err := editors.Find(e.name)
			if err != nil {
				t.Fatal(err)
			}
			m := editors.Machine{OS: runtime.GOOS, Home: c.home, Root: c.root, Getenv: func(string) string { return "" }}
			edited := func() (log string, ok bool) {
				_, log, err := c.run("install", "editor", e.name, "--dry-run")
				return log, err == nil
			}
			fill := func(text string) string {
				text = strings.ReplaceAll(strings.ReplaceAll(text, "KEY", e.key), "ENTRY", e.entry)
				c.write(strings.TrimPrefix(editor.File(m, false), c.root), text, 0o644)
				return text
			}
			fill(twice) // which of them counts is the editor's own
			if _, ok := edited(); ok {
				t.Error("a file with a key twice was edited")
			}
			for _, text := range slices.Concat(e.refuses, e.reads) {
				wanted := slices.Contains(e.reads, text)
				text = fill(text)
				cmd := exec.Command(e.program, "mcp", "list")
				cmd.Dir = c.root
				cmd.Env = []string{"PATH=" + filepath.Dir(node) + ":" + os.Getenv("PATH"), "HOME=" + c.home, "TMPDIR=" + os.TempDir(), "LANG=C.UTF-8", "TERM=dumb",
					"DISABLE_AUTOUPDATER=1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_MODELS_FETCH=1", "GEMINI_CLI_TRUST_WORKSPACE=true"}
				out, _ := cmd.CombinedOutput() // ignore error: the words say it
				reads := regexp.MustCompile(`\ba\b:? .*(false|failed)`).Match(out)
				log, does := edited()
				if reads != wanted || does != wanted {
					t.Errorf("the editor reads it: %v; it is edited: %v (%s), in\n%s\nThe editor says\n%s", reads, does, log, text, out)
				}
			}
		})
	}
}

// codexCalls has Codex call one of our tools, for a model that is answered here.
func (c *accCheckout) codexCalls(codex string, run func(name string, args ...string) string) {
	t := c.t
	t.Helper()
	answered := make(chan string, 10)
	model := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var d openAI
		if !strings.HasSuffix(r.URL.Path, "/responses") {
			http.NotFound(w, r)
			return
		}
		var body json.RawMessage
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			return // the editor has gone
		}
		heard, err := d.hear(body)
		switch {
		case err != nil:
			t.Error(err)
		case len(heard.answers) == 0:
			d.say(w, heard, "", []editorCall{{0, "called by Codex"}})
		default:
			select {
			case answered <- heard.answers[0].text:
			default: // it asks on
			}
			d.say(w, heard, editorFinal, nil)
		}
	}))
	defer model.Close()
	run(codex, "exec", "--skip-git-repo-check", "-c", `model="a-model"`, "-c", `model_provider="here"`, "-c", `approval_policy="never"`, "-c", `sandbox_mode="danger-full-access"`,
		"-c", fmt.Sprintf(`model_providers.here={name="here", base_url=%q, wire_api="responses"}`, model.URL+"/v1"), "call the tools")
	select {
	case text := <-answered:
		if !strings.Contains(text, "called by Codex") {
			t.Errorf("Codex was answered %s", text)
		}
	default:
		t.Error("Codex called nothing")
	}
}
