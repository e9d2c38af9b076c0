package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

func mustParse(t testing.TB, text string) *File {
	t.Helper()
	f, err := Parse("mcp.json", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestParse(t *testing.T) {
	f := mustParse(t, "\ufeff"+`// what this checkout shares
{
  "$schema": "https://example.com/mcp.json", // for the editor
  "inputs": [1, {"a": null},],
  "mcpServers": {
    "web": {"type": "streamable-http", "url": "https://example.com/mcp?x=${Y}", "headers": {"Authorization": "Bearer ${TOKEN}",},},
    /* files */ "files": {
      "command": "npx", "args": ["-y", "server \u00e4", ""],
      "env": {"A": "1", "B": ""}, "cwd": "sub/dir",
      "alwaysAllow": ["read"], "timeout": 60, "gallery": {"x": [[]]}, "oauth": false, "disabled": false, "enabled": true,
      "majordomus": {"share": "session", "tools": ["read", "write"], "timeout_seconds": 2.5, "idle_seconds": 60}
    },
    "plain": {"command": "x", "cwd": null, "env": null, "type": "stdio"},
    "none": {"command": "x", "majordomus": {"tools": []}},
    "off": {"command": "x", "disabled": true, "nonsense": 1},
    "off too": {"enabled": false, "type": 7},
  },
}
`)
	want := []Server{
		{Name: "files", Command: "npx", Args: []string{"-y", "server ä", ""}, Env: map[string]string{"A": "1", "B": ""}, Cwd: "sub/dir",
			Share: "session", Tools: []string{"read", "write"}, Timeout: 2500 * time.Millisecond, Idle: time.Minute, Line: 7},
		{Name: "none", Command: "x", Share: "checkout", Tools: []string{}, Line: 14},
		{Name: "plain", Command: "x", Share: "checkout", Line: 13},
		{Name: "web", URL: "https://example.com/mcp?x=${Y}", Headers: map[string]string{"Authorization": "Bearer ${TOKEN}"}, Share: "checkout", Line: 6},
	}
	if !reflect.DeepEqual(f.Servers, want) {
		t.Errorf("servers %+v\nwant    %+v", f.Servers, want)
	}
	if len(f.Problems) > 0 {
		t.Errorf("problems: %v", f.Problems)
	}
	if f.Path != "mcp.json" || len(f.Digest) != 64 {
		t.Errorf("path %q, digest %q", f.Path, f.Digest)
	}
}

func TestParseNothing(t *testing.T) {
	for _, text := range []string{"", "\ufeff", " \n", "// nothing yet", "/* */", "{}", "{\"mcpServers\": {}}", "{\"mcpServers\": null}", "{\"others\": {\"a\": 1}}"} {
		if f := mustParse(t, text); len(f.Servers)+len(f.Problems) > 0 || f.Digest == "" {
			t.Errorf("%q: %+v", text, f)
		}
	}
}

// One bad entry is named by line and key; the good one beside it stays.
func TestProblems(t *testing.T) {
	for _, tt := range []struct {
		entry, key, says string
	}{
		{`"x": 1`, "x", "must be an object, not a number"},
		{`"x": null`, "x", "must be an object, not null"},
		{`"x": ["npx"]`, "x", "not a list"},
		{`"": {"command": "a"}`, `""`, "must have characters"},
		{`"a\nb": {"command": "a"}`, `"a\nb"`, "control"},
		{`"x": {}`, "x", "neither"},
		{`"x": {"Command": "a"}`, "x", "neither"},
		{`"x": {"serverUrl": "https://e.com"}`, "x", `"serverUrl" is an editor's own word`},
		{`"x": {"command": "a", "url": "https://e.com"}`, "x", "both"},
		{`"x": {"command": ""}`, "x.command", "is empty"},
		{`"x": {"command": "  "}`, "x.command", "is empty"},
		{`"x": {"command": ["npx", "a"]}`, "x.command", "must be a string, not a list"},
		{`"x": {"command": "a\u0000"}`, "x.command", "NUL"},
		{`"x": {"command": "a", "args": "b"}`, "x.args", "must be a list of strings, not a string"},
		{`"x": {"command": "a", "args": ["b", 7]}`, "x.args", "one is a number"},
		{`"x": {"command": "a", "args": ["\u0000"]}`, "x.args", "NUL"},
		{`"x": {"command": "a", "env": []}`, "x.env", "not a list"},
		{`"x": {"command": "a", "env": {"A": true}}`, "x.env.A", "must be a string, not true or false"},
		{`"x": {"command": "a", "env": {"A=B": ""}}`, "x.env.A=B", "name of a variable"},
		{`"x": {"command": "a", "env": {"": ""}}`, `x.env.""`, "name of a variable"},
		{`"x": {"command": "a", "env": {"A": "", "A": "1"}}`, "x.env.A", "twice"},
		{`"x": {"command": "a", "env": {"A": "\u0000"}}`, "x.env", "NUL"},
		{`"x": {"command": "a", "cwd": 1}`, "x.cwd", "must be a string"},
		{`"x": {"command": "a", "command": "b"}`, "x.command", "twice"},
		{`"x": {"url": "example.com"}`, "x.url", "http://"},
		{`"x": {"url": "unix:///tmp/s"}`, "x.url", "http://"},
		{`"x": {"url": "http:///mcp"}`, "x.url", "http://"},
		{`"x": {"url": "http://[1/mcp"}`, "x.url", "http://"},
		{`"x": {"url": "https://e.com", "headers": {"A B": ""}}`, "x.headers.A B", "name of a header"},
		{`"x": {"url": "https://e.com", "headers": {"A": "1\r\nB: 2"}}`, "x.headers", "control"},
		{`"x": {"url": "https://e.com", "headers": {"A": 1}}`, "x.headers.A", "must be a string"},
		{`"x": {"url": "https://e.com", "type": "sse"}`, "x.type", "not supported yet"},
		{`"x": {"url": "https://e.com", "type": "stdio"}`, "x.type", `no "command"`},
		{`"x": {"command": "a", "type": "http"}`, "x.type", `no "url"`},
		{`"x": {"command": "a", "type": "ws"}`, "x.type", `must be "stdio"`},
		{`"x": {"command": "a", "type": 1}`, "x.type", "must be a string"},
		{`"x": {"url": "https://e.com", "oauth": {"clientId": "a"}}`, "x.oauth", "OAuth is not supported yet"},
		{`"x": {"url": "https://e.com", "auth": true}`, "x.auth", "OAuth is not supported yet"},
		{`"x": {"command": "a", "envFile": ".env"}`, "x.envFile", "not supported"},
		{`"x": {"command": "a", "disabled": "no"}`, "x.disabled", "true or false"},
		{`"x": {"command": "a", "enabled": 0}`, "x.enabled", "true or false"},
		{`"x": {"command": "a", "majordomus": true}`, "x.majordomus", "must be an object"},
		{`"x": {"command": "a", "majordomus": {"shares": "session"}}`, "x.majordomus.shares", "known are share,"},
		{`"x": {"command": "a", "majordomus": {"share": "all"}}`, "x.majordomus.share", `"checkout" or "session"`},
		{`"x": {"command": "a", "majordomus": {"share": 1}}`, "x.majordomus.share", `"checkout" or "session"`},
		{`"x": {"command": "a", "majordomus": {"share": "session", "share": "session"}}`, "x.majordomus.share", "twice"},
		{`"x": {"command": "a", "majordomus": {"tools": "read"}}`, "x.majordomus.tools", "list of strings"},
		{`"x": {"command": "a", "majordomus": {"timeout_seconds": "5"}}`, "x.majordomus.timeout_seconds", "number of seconds, not a string"},
		{`"x": {"command": "a", "majordomus": {"timeout_seconds": 0}}`, "x.majordomus.timeout_seconds", "from 0.001"},
		{`"x": {"command": "a", "majordomus": {"idle_seconds": 1e999}}`, "x.majordomus.idle_seconds", "from 0.001"},
		{`"x": {"command": "/usr/bin/majordomus", "args": ["mcp"]}`, "x", "itself"},
	} {
		f := mustParse(t, "{\"mcpServers\": {\n\n"+tt.entry+",\n\"good\": {\"command\": \"c\"}}}")
		if len(f.Servers) != 1 || f.Servers[0].Name != "good" {
			t.Errorf("%s: servers %+v", tt.entry, f.Servers)
		}
		if len(f.Problems) != 1 {
			t.Errorf("%s: problems %v", tt.entry, f.Problems)
			continue
		}
		if p := f.Problems[0]; p.Line != 3 || p.Key != "mcpServers."+tt.key || !strings.Contains(p.Reason, tt.says) {
			t.Errorf("%s: %v", tt.entry, p)
		}
	}
}

func TestProblemsTogether(t *testing.T) {
	f := mustParse(t, `{"mcpServers": {
"a": {"command": "x"},
"b": {"args": 1,
      "env": 2},
"a": {"command": "y"},
"c": {"command": "z"}}}`)
	var said []string
	for _, p := range f.Problems {
		said = append(said, p.String())
	}
	want := []string{
		`line 2: mcpServers.a: is there twice: which one is meant?`,
		`line 3: mcpServers.b.args: must be a list of strings, not a number`,
		`line 3: mcpServers.b: has neither "command" nor "url"`,
		`line 4: mcpServers.b.env: must be an object of strings, not a number`,
	}
	if !reflect.DeepEqual(said, want) {
		t.Errorf("%s", strings.Join(said, "\n"))
	}
	if len(f.Servers) != 1 || f.Servers[0].Name != "c" {
		t.Errorf("%+v", f.Servers)
	}
	for key, text := range map[string]string{
		"servers":         `{"inputs": [], "servers": {"a": {"type": "stdio", "command": "x"}}}`,
		"context_servers": `{"context_servers": {"a": {"command": "x"}}}`,
	} {
		f := mustParse(t, text)
		if len(f.Servers) != 0 || len(f.Problems) != 1 || f.Problems[0].Key != key || !strings.Contains(f.Problems[0].Reason, "import") {
			t.Errorf("%s: %+v", key, f)
		}
	}
}

// Nothing of these can be used. What the file says is never told: the bytes
// may be a secret.
func TestWholeFileErrors(t *testing.T) {
	for _, tt := range []struct {
		text string
		line int
		says string
	}{
		{"[]", 1, "must be a JSON object, not a list"},
		{"\n\n\"s3cret\"", 3, "not a string"},
		{"{\n\"a\": s3cret}", 2, "a value is expected"},
		{"{\n\"a\": \"s3cret\n\"}", 2, "does not end"},
		{"{\"a\": \"\\s3cret\"}", 1, "bad escape"},
		{"{\"a\": 01}", 1, "a value is expected"},
		{"{\"a\": 1,,}", 1, "a member's name"},
		{"{,}", 1, "a member's name"},
		{"{a: 1}", 1, "a member's name"},
		{"{\"a\" 1}", 1, "a colon"},
		{"{\"a\": 1 \"b\": 2}", 1, "a comma"},
		{"{\"a\": [1 2]}", 1, "a comma"},
		{"{\"a\":\n}", 2, "a value"},
		{"{\"a\": [}", 1, "a value"},
		{"{\"a\": 1]", 1, "a comma"},
		{"{\"a\": 1", 1, "ends too early"},
		{"{", 1, "ends too early"},
		{"{\"a", 1, "does not end"},
		{"{\"a\"", 1, "ends too early"},
		{"{\"a\":", 1, "ends too early"},
		{"{} {}", 1, "something follows"},
		{"{} /* ", 1, "a comment does not end"},
		{"\xff\xfe{\x00}\x00", 0, "not UTF-8"},
		{"{\"mcpServers\": []}", 1, "must be an object of servers"},
		{"{\"mcpServers\": {},\n\"mcpServers\": {}}", 2, "twice"},
		{"{\"a\": " + strings.Repeat("[", 500_000), 1, "too deep"},
		{strings.Repeat("/", 1<<20) + "\n{}", 0, "larger"},
	} {
		f, err := Parse("some/mcp.json", []byte(tt.text))
		var e *Error
		if !errors.As(err, &e) || f != nil {
			t.Errorf("%.40q: %v, %v", tt.text, f, err)
			continue
		}
		if e.File != "some/mcp.json" || e.Line != tt.line || !strings.Contains(e.Reason, tt.says) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%.40q: line %d: %v", tt.text, e.Line, err)
		}
	}
	err := error(&Error{"mcp.json", Problem{3, "mcpServers", "is odd"}})
	if got := err.Error(); got != "mcp.json:3: mcpServers: is odd" {
		t.Error(got)
	}
}

// A megabyte of bad entries takes no longer than one of good ones.
func TestManyProblems(t *testing.T) {
	f := mustParse(t, `{"mcpServers": {`+strings.Repeat("\"a\":1,\n", 20_000)+strings.Repeat("\"b\":1,", 20_000)+"}}")
	if len(f.Problems) != 2 || f.Problems[1].Line != 20_001 {
		t.Errorf("%d problems", len(f.Problems))
	}
	var b strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&b, "\"%d\":1,\n", i)
	}
	if f = mustParse(t, `{"mcpServers": {`+b.String()+"}}"); len(f.Problems) != 20_000 || f.Problems[19_999].Line != 20_000 {
		t.Errorf("%d problems", len(f.Problems))
	}
}

func TestRead(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "mcp.json")
	f, err := Read(path)
	if err != nil || f.Path != path || f.Digest != "" || len(f.Servers) > 0 {
		t.Errorf("no file: %+v, %v", f, err)
	}
	if err := os.WriteFile(path, []byte(`{"mcpServers": {"a": {"command": "x"}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err = Read(path)
	// printf '{"mcpServers": {"a": {"command": "x"}}}' | sha256sum
	if err != nil || len(f.Servers) != 1 || f.Digest != "16e8f819dfdc10b70756355ca0c3d646257efab5404e8d529bbb7fb956f0017b" {
		t.Errorf("%+v, %v", f, err)
	}
	if _, err := Read(dir); err == nil {
		t.Error("a folder was read")
	}
	if err := os.WriteFile(path, make([]byte, maxFile+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path); err == nil || !strings.Contains(err.Error(), "larger") {
		t.Error(err)
	}
}

func TestEqual(t *testing.T) {
	base := func() Server {
		return Server{Name: "n", Command: "c", Args: []string{"a"}, Env: map[string]string{"A": "1"}, Cwd: "d", URL: "u",
			Headers: map[string]string{"H": "1"}, Share: "session", Tools: []string{"t"}, Timeout: 1, Idle: 2, Line: 3}
	}
	// Every field counts but Line; one that is added must be thought of here.
	changes := map[string]func(*Server){
		"Name": func(s *Server) { s.Name = "" }, "Command": func(s *Server) { s.Command = "" }, "Args": func(s *Server) { s.Args = []string{"b"} },
		"Env": func(s *Server) { s.Env["A"] = "2" }, "Cwd": func(s *Server) { s.Cwd = "" }, "URL": func(s *Server) { s.URL = "" },
		"Headers": func(s *Server) { s.Headers["H"] = "2" }, "Share": func(s *Server) { s.Share = "" }, "Tools": func(s *Server) { s.Tools = []string{} },
		"Timeout": func(s *Server) { s.Timeout = 0 }, "Idle": func(s *Server) { s.Idle = 0 }, "Line": func(s *Server) { s.Line = 0 },
	}
	for i := range reflect.TypeFor[Server]().NumField() {
		name := reflect.TypeFor[Server]().Field(i).Name
		s := base()
		if changes[name] == nil {
			t.Errorf("%s is not thought of", name)
			continue
		}
		changes[name](&s)
		if got := s.Equal(base()); got != (name == "Line") {
			t.Errorf("with another %s, Equal is %v", name, got)
		}
		inKey := name == "Command" || name == "Args" || name == "Cwd" || name == "URL"
		if (s.Key() != base().Key()) != inKey {
			t.Errorf("with another %s: key %s and %s", name, s.Key(), base().Key())
		}
	}
	all, none := base(), base()
	all.Tools, none.Tools = nil, []string{}
	if all.Equal(none) {
		t.Error("all tools and none are equal")
	}
	more := base()
	more.Env["B"] = ""
	if more.Key() == base().Key() {
		t.Error("the names of the environment are not in the key")
	}
}

func TestHostsItself(t *testing.T) {
	for _, tt := range []struct {
		words string
		want  bool
	}{
		{"majordomus mcp", true},
		{"/opt/bin/majordomus mcp", true},
		{`C:\Tools\Majordomus.EXE mcp`, true},
		{"majordomus --root /x mcp", true},
		{"npx -y majordomus@latest mcp", true},
		{"env A=1 /usr/bin/majordomus mcp", true},
		{"go run ./cmd/majordomus mcp", true},
		{"sh -c 'exec majordomus mcp'", true},
		{"majordomus status", false},
		{"not-majordomus mcp", false},
		{"mcp majordomus", false},
		{"npx server /home/me/majordomus --mcp", false},
		{"node mcp", false},
	} {
		words := strings.Fields(tt.words)
		s := Server{Command: words[0], Args: words[1:]}
		if words[0] == "sh" {
			s.Args = []string{"-c", strings.Trim(strings.Join(words[2:], " "), "'")}
		}
		if got := s.HostsItself(8741); got != tt.want {
			t.Errorf("%s: %v", tt.words, got)
		}
	}
	for url, want := range map[string]bool{
		"http://127.0.0.1:8741/mcp": true, "http://localhost:8741/mcp/": true, "http://[::1]:8741/mcp": true, "http://0.0.0.0:8741/mcp": true,
		"http://LOCALHOST.:8741/mcp": true, "http://[::ffff:127.0.0.1]:8741/mcp": true, "http://127.0.0.2:8741/": true,
		"http://127.0.0.1:8742/mcp": false, "http://127.0.0.1/mcp": false, "http://example.com:8741/mcp": false, "http://10.0.0.1:8741/mcp": false,
	} {
		if got := (Server{URL: url}).HostsItself(8741); got != want {
			t.Errorf("%s: %v", url, got)
		}
		if (Server{URL: url}).HostsItself(0) {
			t.Errorf("%s without a port", url)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"", "{}", "[1]", "// x", `{"mcpServers": {"a": {"command": "x", "args": ["y"], "env": {"A": "${B}"}, "majordomus": {"tools": [], "idle_seconds": 1}}}}`,
		`{"mcpServers": {"a": {"url": "http://x", "headers": {"H": "v"}, "type": "http"}, /* c */ "b": null,},}`,
		`{"a": "\ud800 é", "b": [-1.5e3, true, false, null,],}`, "\ufeff{\r\n}\r\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		file, err := Parse("f", b)
		var e *Error
		if err != nil && !errors.As(err, &e) {
			t.Fatalf("not an *Error: %v", err)
		}
		if json.Valid(b) && err != nil && e.Key == "" && !strings.Contains(e.Reason, "UTF-8") && !strings.Contains(e.Reason, "object") && !strings.Contains(e.Reason, "deep") {
			t.Fatalf("valid JSON was refused: %v", err)
		}
		if err != nil {
			return
		}
		again, err := Parse("f", b)
		if err != nil || !reflect.DeepEqual(file, again) {
			t.Fatal("read differently a second time")
		}
		for i, s := range file.Servers {
			if (s.Command == "") == (s.URL == "") || s.Name == "" || s.Line < 1 || !s.Equal(again.Servers[i]) || s.HostsItself(0) {
				t.Fatalf("%+v", s)
			}
		}
		for _, p := range file.Problems {
			if p.Line < 1 || p.Line > 1+strings.Count(string(b), "\n") || p.Key == "" || p.Reason == "" {
				t.Fatalf("%+v", p)
			}
		}
	})
}
