package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// What is added stands where a person would have put it, and nothing else of
// the file moves.
func TestMergePlaces(t *testing.T) {
	const editor = "{\"mcpServers\": {\n    \"b\": {\n        \"command\": \"x\", // why\n        \"args\": [\n            \"1\"\n        ]\n    },\n    \"c\": {\"url\": \"https://e.com\"}\n}}"
	for name, tt := range map[string]struct{ servers, want string }{
		"no file": {"", `{
  "mcpServers": {
    "b": {
      "command": "x", // why
      "args": [
        "1"
      ]
    },
    "c": {"url": "https://e.com"}
  }
}
`},
		"comments only": {"// ours", "// ours\n{\n  \"mcpServers\": {\n    \"b\": {\n      \"command\": \"x\", // why\n      \"args\": [\n        \"1\"\n      ]\n    },\n    \"c\": {\"url\": \"https://e.com\"}\n  }\n}\n"},
		"empty object":  {"{}", "{\n  \"mcpServers\": {\n    \"b\": {\n      \"command\": \"x\", // why\n      \"args\": [\n        \"1\"\n      ]\n    },\n    \"c\": {\"url\": \"https://e.com\"}\n  }\n}"},
		"other keys, tabs": {"{\n\t\"$schema\": \"s\" // the last\n}\n", `{
	"$schema": "s", // the last
	"mcpServers": {
		"b": {
			"command": "x", // why
			"args": [
				"1"
			]
		},
		"c": {"url": "https://e.com"}
	}
}
`},
		"null":  {"{\n \"mcpServers\": null\n}", "{\n \"mcpServers\": {\n  \"b\": {\n   \"command\": \"x\", // why\n   \"args\": [\n    \"1\"\n   ]\n  },\n  \"c\": {\"url\": \"https://e.com\"}\n }\n}"},
		"empty": {"{\n  \"mcpServers\": {}\n}\n", "{\n  \"mcpServers\": {\n    \"b\": {\n      \"command\": \"x\", // why\n      \"args\": [\n        \"1\"\n      ]\n    },\n    \"c\": {\"url\": \"https://e.com\"}\n  }\n}\n"},
		"comments after the last": {`{
    "mcpServers": {
        "a": {"command": "a"} // first
        /* the end */
    } // done
}`, `{
    "mcpServers": {
        "a": {"command": "a"}, // first
        /* the end */
        "b": {
            "command": "x", // why
            "args": [
                "1"
            ]
        },
        "c": {"url": "https://e.com"}
    } // done
}`},
		"trailing commas": {"{\n  \"mcpServers\": {\n    \"a\": {\"command\": \"a\"},\n  },\n}\n", "{\n  \"mcpServers\": {\n    \"a\": {\"command\": \"a\"},\n    \"b\": {\n      \"command\": \"x\", // why\n      \"args\": [\n        \"1\"\n      ]\n    },\n    \"c\": {\"url\": \"https://e.com\"},\n  },\n}\n"},
		"one line":        {`{"mcpServers": {"a": {"command": "a"}}, "z": 1}`, "{\"mcpServers\": {\"a\": {\"command\": \"a\"},\n  \"b\": {\n    \"command\": \"x\", // why\n    \"args\": [\n      \"1\"\n    ]\n  },\n  \"c\": {\"url\": \"https://e.com\"}\n}, \"z\": 1}"},
		"carriage returns": {"{\r\n  \"mcpServers\": {\r\n    \"a\": {\"command\": \"a\"}\r\n  }\r\n}\r\n",
			"{\r\n  \"mcpServers\": {\r\n    \"a\": {\"command\": \"a\"},\r\n    \"b\": {\r\n      \"command\": \"x\", // why\r\n      \"args\": [\r\n        \"1\"\r\n      ]\r\n    },\r\n    \"c\": {\"url\": \"https://e.com\"}\r\n  }\r\n}\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, eol := range []string{"\n", "\r\n"} {
				out, err := Merge([]byte(tt.servers), []byte(strings.ReplaceAll(editor, "\n", eol)), nil)
				if err != nil || string(out.Bytes) != tt.want || !slices.Equal(out.Taken, []string{"b", "c"}) || len(out.Skipped)+len(out.Present)+len(out.Env) > 0 {
					t.Errorf("%+v, %v\ngot  %q\nwant %q", out, err, out.Bytes, tt.want)
				}
			}
			again, err := Merge([]byte(tt.want), []byte(editor), nil)
			if err != nil || string(again.Bytes) != tt.want || !slices.Equal(again.Present, []string{"b", "c"}) || len(again.Taken)+len(again.Skipped) > 0 {
				t.Errorf("a second time: %+v, %v", again, err)
			}
		})
	}
}

// Each editor's words, and what they become.
func TestMergeWords(t *testing.T) {
	for name, tt := range map[string]struct {
		editor string
		want   Server // with Name x
		skip   string // why it is not taken
	}{
		"Claude Code":      {editor: `{"mcpServers": {"x": {"type": "stdio", "command": "c", "args": ["a"], "env": {"A": "${B:-1}"}, "alwaysLoad": true}}}`, want: Server{Command: "c", Args: []string{"a"}, Env: map[string]string{"A": "${B:-1}"}}},
		"Cursor":           {editor: `{"mcpServers": {"x": {"command": "c", "args": ["${workspaceFolder}"], "env": {"A": "${env:B}"}}}}`, want: Server{Command: "c", Args: []string{"${workspaceFolder}"}, Env: map[string]string{"A": "${env:B}"}}},
		"VS Code":          {editor: `{"inputs": [], "servers": {"x": {"type": "stdio", "command": "c", "dev": {"watch": "*"}}}}`, want: Server{Command: "c"}},
		"VS Code, HTTP":    {editor: `{"servers": {"x": {"type": "http", "url": "https://e.com/mcp"}}}`, want: Server{URL: "https://e.com/mcp"}},
		"VS Code, asks":    {editor: `{"servers": {"x": {"type": "stdio", "command": "c", "env": {"A": "${input:key}"}}}}`, skip: "env.A: ${input:…}"},
		"VS Code, envFile": {editor: `{"servers": {"x": {"type": "stdio", "command": "c", "envFile": ".env"}}}`, skip: "envFile: is not supported"},
		"VS Code, socket":  {editor: `{"servers": {"x": {"type": "http", "url": "unix:///tmp/s.sock#/mcp"}}}`, skip: "url: must be an address"},
		"Zed":              {editor: `{"theme": "x", "context_servers": {"x": {"source": "custom", "command": "c", "args": ["a"], "enabled": true}}}`, want: Server{Command: "c", Args: []string{"a"}}},
		"Zed, older":       {editor: `{"context_servers": {"x": {"source": "custom", "command": {"path": "c", "args": ["a",], "env": {"A": "1",}}, "settings": {}}}}`, want: Server{Command: "c", Args: []string{"a"}, Env: map[string]string{"A": "1"}}},
		"Zed, extension":   {editor: `{"context_servers": {"x": {"source": "extension", "settings": {"a": 1}}}}`, skip: "extension"},
		"Gemini":           {editor: `{"mcpServers": {"x": {"httpUrl": "https://e.com/mcp", "headers": {"A": "1"}, "timeout": 600000, "trust": true}}}`, want: Server{URL: "https://e.com/mcp", Headers: map[string]string{"A": "1"}}},
		"Gemini, both":     {editor: `{"mcpServers": {"x": {"url": "https://e.com/sse", "httpUrl": "https://e.com/mcp"}}}`, want: Server{URL: "https://e.com/mcp"}},
		"Gemini, tools":    {editor: `{"mcpServers": {"x": {"command": "c", "cwd": "sub", "includeTools": ["a", "b"]}}}`, want: Server{Command: "c", Cwd: "sub", Tools: []string{"a", "b"}}},
		"Gemini, excluded": {editor: `{"mcpServers": {"x": {"command": "c", "excludeTools": ["a"]}}}`, skip: "excludeTools: cannot be kept"},
		"Windsurf":         {editor: `{"mcpServers": {"x": {"serverUrl": "https://e.com/mcp"}}}`, want: Server{URL: "https://e.com/mcp"}},
		"Windsurf, off":    {editor: `{"mcpServers": {"x": {"command": "c", "disabled": true}}}`, skip: "switched off"},
		"Windsurf, both":   {editor: `{"mcpServers": {"x": {"serverUrl": "https://e.com/mcp", "disabled": true}}}`, skip: "switched off"},
		"Copilot":          {editor: `{"mcpServers": {"x": {"type": "stdio", "command": "c", "tools": ["*"]}}}`, want: Server{Command: "c"}},
		"Cline":            {editor: `{"mcpServers": {"x": {"type": "streamableHttp", "url": "https://e.com", "alwaysAllow": []}}}`, want: Server{URL: "https://e.com"}},
		"Amp":              {editor: `{"amp.mcpServers": {"x": {"command": "c"}}}`, want: Server{Command: "c"}},
		"ours already":     {editor: `{"mcpServers": {"x": {"command": "c", "majordomus": {"share": "session", "tools": ["t"]}, "includeTools": ["u"]}}}`, want: Server{Command: "c", Share: "session", Tools: []string{"t"}}},
		"sse":              {editor: `{"mcpServers": {"x": {"type": "sse", "url": "https://e.com"}}}`, skip: "not supported yet"},
		"oauth":            {editor: `{"mcpServers": {"x": {"serverUrl": "https://e.com", "oauth": {"clientId": "c"}}}}`, skip: "oauth: OAuth is not supported yet"},
		"not an object":    {editor: `{"mcpServers": {"x": "c"}}`, skip: "must be an object"},
		"nothing":          {editor: `{"mcpServers": {"x": {}}}`, skip: "neither"},
		"ourselves":        {editor: `{"mcpServers": {"x": {"command": "majordomus", "args": ["mcp"]}}}`, skip: itself},
		"twice":            {editor: `{"mcpServers": {"x": {"command": "c"}, "x": {"command": "d"}}}`, skip: "twice"},
		"a key twice":      {editor: `{"mcpServers": {"x": {"serverUrl": "http://a", "serverUrl": "http://b"}}}`, skip: "serverUrl: is there twice"},
	} {
		out, err := Merge(nil, []byte(tt.editor), nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if tt.skip != "" {
			if len(out.Taken) > 0 || len(out.Bytes) > 0 || len(out.Skipped) != 1 || out.Skipped[0].Name != "x" || !strings.Contains(out.Skipped[0].Reason, tt.skip) || out.Itself != (tt.skip == itself) {
				t.Errorf("%s: %+v", name, out)
			}
			continue
		}
		tt.want.Name = "x"
		if tt.want.Share == "" {
			tt.want.Share = ShareCheckout
		}
		f := mustParse(t, string(out.Bytes))
		if len(f.Servers) != 1 || !f.Servers[0].Equal(tt.want) || len(f.Problems) > 0 || !slices.Equal(out.Taken, []string{"x"}) {
			t.Errorf("%s: %+v\n%s", name, f, out.Bytes)
		}
	}
}

func TestMergePresent(t *testing.T) {
	servers := `{"mcpServers": {"same": {"command": "c", "args": []}, "other": {"command": "c"}, "off": {"command": "c", "disabled": true}, "bad": {"command": 1}}}`
	editor := `{"servers": {"same": {"type": "stdio", "command": "c"}, "other": {"command": "d"}, "off": {"command": "c"}, "bad": {"command": "c"}, "new": {"command": "c"}}}`
	out, err := Merge([]byte(servers), []byte(editor), nil)
	if err != nil || !slices.Equal(out.Present, []string{"same"}) || !slices.Equal(out.Taken, []string{"new"}) || len(out.Skipped) != 3 {
		t.Errorf("%+v, %v", out, err)
	}
	for _, s := range out.Skipped {
		if s.Reason != "is there already and says something else" {
			t.Errorf("%+v", s)
		}
	}
	for _, tt := range []struct{ servers, editor, says string }{
		{"[]", editor, "the servers file:1: must be"},
		{`{"mcpServers": 1}`, editor, "the servers file:1: mcpServers: must be"},
		{servers, "[mcp_servers.x]\ncommand = \"c\"\n", "the editor's file:1: is not JSON"},
		{servers, "{}", "the editor's file: has no servers"},
		{servers, "", "the editor's file: has no servers"},
		{servers, `{"mcpServers": []}`, "the editor's file:1: mcpServers: must be"},
		{servers, `{"mcpServers": {"x": {"command": "` + strings.Repeat("c", maxFile) + `"}}}`, "the servers file: would be larger"},
	} {
		_, err := Merge([]byte(tt.servers), []byte(tt.editor), nil)
		var e *Error
		if !errors.As(err, &e) || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v", tt.says, err)
		}
	}
}

// No secret of an editor's own file gets into the one that is shared; started,
// the server is given the same as before.
func TestMergeSecrets(t *testing.T) {
	for _, tt := range []struct {
		entry string // s3cret stands for one
		want  string // the entry written
		env   map[string]string
	}{
		{`{"command": "c", "env": {"GIT_HUB_TOKEN": "s3cret", "MODE": "plain", "DEBUG_TOKENS": "true", "API_KEY": "", "PASSWORD": "${PW}"}}`,
			`{"command": "c", "env": {"GIT_HUB_TOKEN": "${GIT_HUB_TOKEN}", "MODE": "plain", "DEBUG_TOKENS": "true", "API_KEY": "", "PASSWORD": "${PW}"}}`, map[string]string{"GIT_HUB_TOKEN": "s3cret"}},
		{`{"command": "c", "env": {"apiKey": "s3cret'\" $x", "AWS_ACCESS_KEY_ID": "s3cret"}}`,
			`{"command": "c", "env": {"apiKey": "${GIT_HUB_APIKEY}", "AWS_ACCESS_KEY_ID": "${GIT_HUB_AWS_ACCESS_KEY_ID}"}}`, map[string]string{"GIT_HUB_APIKEY": "s3cret'\" $x", "GIT_HUB_AWS_ACCESS_KEY_ID": "s3cret"}},
		{`{"command": "c", "env": {"URL": "postgres://me:s3cret@db/x?y=1"}}`, `{"command": "c", "env": {"URL": "postgres://me:${GIT_HUB_SECRET}@db/x?y=1"}}`, map[string]string{"GIT_HUB_SECRET": "s3cret"}},
		{`{"url": "https://e.com/mcp?team=x&api_key=s3cret", "headers": {"Authorization": "Bearer s3cret", "X-Team": "x", "X-Auth-Token": "Bearer ${T}"}}`,
			`{"url": "https://e.com/mcp?team=x&api_key=${GIT_HUB_API_KEY}", "headers": {"Authorization": "${GIT_HUB_AUTHORIZATION}", "X-Team": "x", "X-Auth-Token": "Bearer ${T}"}}`,
			map[string]string{"GIT_HUB_API_KEY": "s3cret", "GIT_HUB_AUTHORIZATION": "Bearer s3cret"}},
		{`{"command": "c", "args": ["--api-key", "s3cret", "--token=s3cret", "--auth", "--keyring", "x", "-e", "GH_TOKEN=s3cret", "author=me"]}`,
			`{"command": "c", "args": ["--api-key", "${GIT_HUB_API_KEY}", "--token=${GIT_HUB_TOKEN}", "--auth", "--keyring", "x", "-e", "GH_TOKEN=${GIT_HUB_GH_TOKEN}", "author=me"]}`,
			map[string]string{"GIT_HUB_API_KEY": "s3cret", "GIT_HUB_TOKEN": "s3cret", "GIT_HUB_GH_TOKEN": "s3cret"}},
		{`{"command": "npx", "args": ["mcp-remote", "https://e.com/sse", "--header", "Authorization: Bearer s3cret"]}`,
			`{"command": "npx", "args": ["mcp-remote", "https://e.com/sse", "--header", "Authorization: Bearer ${GIT_HUB_AUTHORIZATION}"]}`, map[string]string{"GIT_HUB_AUTHORIZATION": "s3cret"}},
		{`{"command": "c", "args": ["ghp_s3crets3crets3cret0123"]}`, `{"command": "c", "args": ["${GIT_HUB_SECRET}"]}`, map[string]string{"GIT_HUB_SECRET": "ghp_s3crets3crets3cret0123"}},
		// The name is taken by another value, and by the same.
		{`{"command": "c", "env": {"TAKEN_TOKEN": "s3cret", "SAME_TOKEN": "s3cret"}}`, `{"command": "c", "env": {"TAKEN_TOKEN": "${GIT_HUB_TAKEN_TOKEN_2}", "SAME_TOKEN": "${GIT_HUB_SAME_TOKEN}"}}`, map[string]string{"GIT_HUB_TAKEN_TOKEN_2": "s3cret"}},
	} {
		env := map[string]string{"GIT_HUB_TAKEN_TOKEN": "older", "GIT_HUB_SAME_TOKEN": "s3cret", "PW": "pw", "T": "t"}
		editor := `{"mcpServers": {"git-hub": ` + tt.entry + `}}`
		out, err := Merge(nil, []byte(editor), env)
		if err != nil || strings.Contains(string(out.Bytes), "s3cret") || !strings.Contains(string(out.Bytes), tt.want) || !maps.Equal(out.Env, tt.env) {
			t.Errorf("%s, %v\ngot  %s\nwant %s\nadds %q", tt.entry, err, out.Bytes, tt.want, out.Env)
			continue
		}
		maps.Copy(env, out.Env)
		got, err := mustParse(t, string(out.Bytes)).Servers[0].Expand(lookupIn(env), "/r", "/h")
		if err != nil {
			t.Error(err)
		}
		want, err := mustParse(t, editor).Servers[0].Expand(lookupIn(env), "/r", "/h")
		if err != nil || !got.Equal(want) {
			t.Errorf("it would be started with\n%+v\nand not\n%+v, %v", got, want, err)
		}
		again, err := Merge(out.Bytes, []byte(editor), env)
		if err != nil || len(again.Env)+len(again.Taken)+len(again.Skipped) > 0 || len(again.Present) != 1 {
			t.Errorf("a second time: %+v, %v", again, err)
		}
		// Somebody else has the shared file and not its values.
		clone, err := Merge(out.Bytes, []byte(editor), map[string]string{"GIT_HUB_TAKEN_TOKEN": "older", "GIT_HUB_SAME_TOKEN": "s3cret"})
		if err != nil || !maps.Equal(clone.Env, tt.env) || len(clone.Present) != 1 {
			t.Errorf("elsewhere: %+v, %v", clone, err)
		}
	}
}

func TestTakeOut(t *testing.T) {
	for _, tt := range []struct{ editor, names, want string }{
		{"{\n  \"mcpServers\": {\n    \"a\": {\n      \"command\": \"x\"\n    },\n    \"b\": {}\n  },\n  \"z\": 1\n}\n", "a", "{\n  \"mcpServers\": {\n    \"b\": {}\n  },\n  \"z\": 1\n}\n"},
		{"{\n  \"mcpServers\": {\n    \"a\": {},\n    \"b\": {}\n  }\n}\n", "b", "{\n  \"mcpServers\": {\n    \"a\": {}\n  }\n}\n"},
		{"{\n  \"mcpServers\": {\n    \"a\": {},\n    \"b\": {}\n  }\n}\n", "a b", "{\n  \"mcpServers\": {\n  }\n}\n"},
		{"{\r\n  \"servers\": {\r\n    \"a\": {},\r\n    \"b\": {}\r\n  }\r\n}\r\n", "b", "{\r\n  \"servers\": {\r\n    \"a\": {}\r\n  }\r\n}\r\n"},
		{"{\n\"context_servers\": {\n\"a\": {},\n\"b\": {},\n},\n}", "b", "{\n\"context_servers\": {\n\"a\": {},\n},\n}"},
		{`{"mcpServers": {"a": 1, "b": 2, "c": 3}}`, "a", `{"mcpServers": {"b": 2, "c": 3}}`},
		{`{"mcpServers": {"a": 1, "b": 2, "c": 3}}`, "b", `{"mcpServers": {"a": 1, "c": 3}}`},
		{`{"mcpServers": {"a": 1, "b": 2, "c": 3}}`, "c", `{"mcpServers": {"a": 1, "b": 2}}`},
		{`{"mcpServers": {"a": 1, "b": 2, "c": 3}}`, "b c", `{"mcpServers": {"a": 1}}`},
		{`{"mcpServers": { "a": 1, "b": 2, "c": 3 }}`, "a b c", `{"mcpServers": { }}`},
		{`{"mcpServers": {"a": 1}}`, "x", `{"mcpServers": {"a": 1}}`},
		{`{"mcpServers": {"a": 1}, "servers": {"a": 2}}`, "a", `{"mcpServers": {}, "servers": {"a": 2}}`},
		// Comments stay: they may be about anything.
		{"{\n  \"mcpServers\": {\n    // one\n    \"a\": {}, // two\n    /* three */ \"b\": {} // four\n    // five\n  }\n}", "b", "{\n  \"mcpServers\": {\n    // one\n    \"a\": {} // two\n    /* three */ // four\n    // five\n  }\n}"},
		{"{\n  \"mcpServers\": {\n    // one\n    \"a\": {}, // two\n    \"b\": {}\n  }\n}", "a", "{\n  \"mcpServers\": {\n    // one\n    // two\n    \"b\": {}\n  }\n}"},
		{"\ufeff{\"mcpServers\":{\"a\":{}}}", "a", "\ufeff{\"mcpServers\":{}}"},
	} {
		got, err := TakeOut([]byte(tt.editor), strings.Fields(tt.names))
		if err != nil || string(got) != tt.want {
			t.Errorf("%q without %s: %v\ngot  %q\nwant %q", tt.editor, tt.names, err, got, tt.want)
		}
	}
	if _, err := TakeOut([]byte("{"), nil); err == nil {
		t.Error("took something out of half a file")
	}
}

func TestRewrite(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	if err := Rewrite(path, []byte("old"), []byte("new")); err == nil {
		t.Error("a file that has gone was written")
	}
	if err := Rewrite(path, nil, []byte("one")); err != nil {
		t.Fatal(err)
	}
	if err := Rewrite(path, nil, []byte("two")); err == nil || !strings.Contains(err.Error(), "changed in the meantime") {
		t.Errorf("over a file that was not there: %v", err)
	}
	if err := Rewrite(path, []byte("zero"), []byte("two")); err == nil || !strings.Contains(err.Error(), "changed in the meantime") {
		t.Errorf("over another: %v", err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(path, link); err != nil {
		t.Skip(err)
	}
	if err := os.Chmod(path, 0o664); err != nil {
		t.Fatal(err)
	}
	if err := Rewrite(link, []byte("one"), []byte("two")); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	info, e := os.Lstat(link)
	if err != nil || string(b) != "two" || e != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("through a link: %q, %v, %v", b, err, e)
	}
	if info, err := os.Stat(path); hasModes && (err != nil || info.Mode().Perm() != 0o664) {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if names, _ := filepath.Glob(filepath.Join(dir, "*")); len(names) != 2 {
		t.Errorf("files: %q", names)
	}
}

func TestAppendEnv(t *testing.T) {
	path := filepath.Join(t.TempDir(), "env")
	first := map[string]string{"A": "plain", "B": "it's \"$x\" \\n\n#", "C": "", "D": " # ' "}
	if err := AppendEnv(path, first); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); hasModes && (err != nil || info.Mode().Perm() != 0o600) {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if got, err := ReadEnv(path); err != nil || !maps.Equal(got, first) {
		t.Errorf("%q, %v", got, err)
	}
	if err := os.WriteFile(path, []byte("# mine\nX=1 # no newline"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := AppendEnv(path, map[string]string{"A": "a"}); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "# mine\nX=1 # no newline\nA='a'\n" {
		t.Errorf("%q, %v", b, err)
	}
	for _, env := range []map[string]string{{"A": "a\x00"}, {"A B": "x"}, {"A": "\xff"}} {
		if err := AppendEnv(path, env); err == nil {
			t.Errorf("%q was written", env)
		}
	}
	if !hasModes {
		return
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := AppendEnv(path, map[string]string{"S": "s3cret"}); err == nil || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("a secret was put where others can read it: %v", err)
	}
}

func FuzzMerge(f *testing.F) {
	for _, seed := range [][2]string{
		{"", `{"mcpServers": {"a": {"command": "x"}}}`},
		{"{}", `{"servers": {"a": {"url": "https://e.com?token=abc"}, "b": 1}}`},
		{"// c\n{\n\t\"mcpServers\": {\n\t\t\"a\": {\"command\": \"x\"}, // d\n\t},\n}\n", "{\r\n  \"context_servers\": {\r\n    \"a\": {\"command\": {\"path\": \"x\"}},\r\n    \"b\": {\"command\": \"y\", \"env\": {\"KEY\": \"v\"}} // e\r\n  }\r\n}"},
		{`{"mcpServers": null, "x": [1]}`, `{"mcpServers": {"a": {"command": "x", "args": ["--token", "y"]}, "c": {"httpUrl": "http://h/"}, "d": {"command": "z", "tools": ["t"]}}}`},
		{`{"mcpServers": {"a": {"command": "x"}}}`, "\ufeff{\"mcpServers\": {\n\"a\": {\"command\": \"x\"}, \"b\": {\"command\": \"majordomus\", \"args\": [\"mcp\"]},\n\n\"c\":{\"command\":\"c\"},}}"},
	} {
		f.Add([]byte(seed[0]), []byte(seed[1]))
	}
	f.Fuzz(func(t *testing.T, servers, editor []byte) {
		out, err := Merge(servers, editor, nil)
		if err != nil {
			var e *Error
			if !errors.As(err, &e) {
				t.Fatalf("not an *Error: %v", err)
			}
			return
		}
		before, err := Parse("before", servers)
		if err != nil {
			return // too large
		}
		after, err := Parse("after", out.Bytes)
		if err != nil {
			t.Fatalf("%v\n%s", err, out.Bytes)
		}
		// What was there is there, and what was taken beside it.
		had := map[string]Server{}
		for _, s := range before.Servers {
			had[s.Name] = s
		}
		var added []string
		for _, s := range after.Servers {
			if was, ok := had[s.Name]; !ok {
				added = append(added, s.Name)
			} else if !s.Equal(was) {
				t.Fatalf("%q has changed:\n%s", s.Name, out.Bytes)
			}
			delete(had, s.Name)
		}
		if len(had) > 0 || !sameNames(added, out.Taken) {
			t.Fatalf("lost %v, added %q, said %q\n%s", had, added, out.Taken, out.Bytes)
		}
		if !bytes.Contains(servers, []byte("null")) && !isSubsequence(servers, out.Bytes) {
			t.Fatalf("not all of it is there:\n%s\n%s", servers, out.Bytes)
		}
		if json.Valid(servers) && json.Valid(editor) && !json.Valid(out.Bytes) {
			t.Fatalf("no longer JSON: %s", out.Bytes)
		}
		// Everything that was taken is known the next time.
		again, err := Merge(out.Bytes, editor, out.Env)
		if err != nil || len(again.Taken) > 0 || !bytes.Equal(again.Bytes, out.Bytes) || len(again.Env) > 0 || !sameNames(again.Present, append(slices.Clone(out.Taken), out.Present...)) {
			t.Fatalf("a second time: %+v, %v\n%s", again, err, out.Bytes)
		}
		// Out of the editor's file go those and nothing else.
		left, err := TakeOut(editor, again.Present)
		if err != nil || !isSubsequence(left, editor) {
			t.Fatalf("%v: %s", err, left)
		}
		if json.Valid(editor) && !json.Valid(left) {
			t.Fatalf("no longer JSON: %s", left)
		}
		if got, want := others(t, left, nil), others(t, editor, again.Present); !reflect.DeepEqual(got, want) {
			t.Fatalf("left\n%q\nwant\n%q", got, want)
		}
		if same, err := TakeOut(editor, nil); err != nil || !bytes.Equal(same, editor) {
			t.Fatalf("nothing was taken out: %v, %s", err, same)
		}
	})
}

func sameNames(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// others are the members of an editor's file and of its servers, without some.
func others(t *testing.T, editor []byte, without []string) (list []string) {
	tree, servers, err := editorServers(editor)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range tree.root.members {
		if &m.value != servers && m.value.start != servers.start {
			list = append(list, string(tree.b[m.name.start:m.value.end]))
		}
	}
	for _, m := range servers.members {
		if !slices.Contains(without, m.name.text) {
			list = append(list, string(tree.b[m.name.start:m.value.end]))
		}
	}
	return list
}

// isSubsequence reports whether the text of a, without space, is in b in order.
func isSubsequence(a, b []byte) bool {
	i := 0
	text := bytes.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return -1
		}
		return r
	}, a)
	for _, c := range b {
		if i < len(text) && text[i] == c {
			i++
		}
	}
	return i == len(text)
}
