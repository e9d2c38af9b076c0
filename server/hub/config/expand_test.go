package config

import (
	"errors"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func lookupIn(m map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) { v, ok := m[name]; return v, ok }
}

func TestExpand(t *testing.T) {
	root, home := filepath.FromSlash("/work/tree"), filepath.FromSlash("/home/me")
	lookup := lookupIn(map[string]string{"A": "a", "EMPTY": "", "NESTED": "${A} $A", "X(86)": "odd", "userHome": "never"})
	for _, tt := range []struct {
		text, want string
	}{
		{"", ""}, {"plain", "plain"}, {"${A}", "a"}, {"<${A}${A}>", "<aa>"}, {"${env:A}", "a"},
		{"${EMPTY}", ""}, {"${EMPTY:-x}", "x"}, {"${NONE:-x y:-z}", "x y:-z"}, {"${NONE:-}", ""}, {"${A:-x}", "a"}, {"${env:NONE:-x}", "x"},
		{"${env:X(86)}", "odd"}, {"${NESTED}", "${A} $A"},
		{"${workspaceFolder}/x", root + "/x"}, {"${workspaceFolderBasename}", "tree"}, {"${userHome}", home}, {"a${/}b${pathSeparator}", "a" + string(filepath.Separator) + "b" + string(filepath.Separator)},
		// What a shell is to see, and what only looks like ours.
		{"$A", "$A"}, {"${", "${"}, {"${A", "${A"}, {"}${A}{", "}a{"}, {"${}", "${}"}, {"${#A}", "${#A}"}, {"${A%x}", "${A%x}"}, {"${1}", "${1}"}, {"$${A}", "$a"}, {"${x y ${A}}", "${x y a}"}, {"{env:A}", "{env:A}"},
		{"ü${A}ü", "üaü"},
	} {
		s, err := Server{Name: "s", Command: "c" + tt.text, Args: []string{tt.text}, Env: map[string]string{"E": tt.text}}.Expand(lookup, root, home)
		if err != nil || s.Args[0] != tt.want || s.Command != "c"+tt.want || s.Env["E"] != tt.want {
			t.Errorf("%q: %q, %v", tt.text, s.Args, err)
		}
		s, err = Server{Name: "s", URL: "http://e/${A}", Headers: map[string]string{"H": tt.text}}.Expand(lookup, root, home)
		if err != nil || s.URL != "http://e/a" || s.Headers["H"] != tt.want {
			t.Errorf("%q: %q, %v", tt.text, s.Headers, err)
		}
	}
	for cwd, want := range map[string]string{"": root, "sub/x": root + "/sub/x", "../up": "/work/up", "${userHome}": home, "${workspaceFolder}/y": root + "/y", "${NONE:-}": root} {
		if s, err := (Server{Command: "c", Cwd: cwd}).Expand(lookup, root, home); err != nil || filepath.ToSlash(s.Cwd) != filepath.ToSlash(want) {
			t.Errorf("cwd %q: %q, %v", cwd, s.Cwd, err)
		}
	}
}

// The entry's env lies on top of what is looked up, and its own values are
// looked up below it.
func TestExpandLayers(t *testing.T) {
	lookup := lookupIn(map[string]string{"TOKEN": "low", "B": "b"})
	s := Server{Name: "s", Command: "c", Args: []string{"${TOKEN}", "${B}", "${C}"}, Env: map[string]string{"TOKEN": "high+${TOKEN}", "C": "${B}"}}
	kept := Server{Name: "s", Command: "c", Args: slices.Clone(s.Args), Env: maps.Clone(s.Env)}
	x, err := s.Expand(lookup, "/r", "/h")
	if err != nil || !slices.Equal(x.Args, []string{"high+low", "b", "b"}) || !maps.Equal(x.Env, map[string]string{"TOKEN": "high+low", "C": "b"}) {
		t.Errorf("%+v, %v", x, err)
	}
	if !reflect.DeepEqual(s, kept) {
		t.Errorf("the entry itself was changed: %+v", s)
	}
	if got := s.Variables(); !slices.Equal(got, []string{"B", "TOKEN"}) {
		t.Errorf("variables %q", got)
	}
	web := Server{URL: "https://e/${P:-x}", Headers: map[string]string{"A": "Bearer ${env:T} ${userHome}"}}
	if got := web.Variables(); !slices.Equal(got, []string{"P", "T"}) {
		t.Errorf("variables %q", got)
	}
}

func TestExpandErrors(t *testing.T) {
	lookup := lookupIn(map[string]string{"NUL": "a\x00", "LINES": "a\r\nb: c", "WORD": "no address", "SELF": "majordomus", "EMPTY": ""})
	for _, tt := range []struct {
		s        Server
		missing  string
		key, has string
	}{
		{Server{Command: "${A}"}, "A", "command", ""},
		{Server{Command: "c", Args: []string{"x", "${A:-1}${env:B}"}}, "B", "args", ""},
		{Server{Command: "c", Env: map[string]string{"K": "${K}"}}, "K", "env.K", ""},
		{Server{Command: "c", Cwd: "${A}"}, "A", "cwd", ""},
		{Server{URL: "http://${A}"}, "A", "url", ""},
		{Server{URL: "http://e", Headers: map[string]string{"H": "${A}"}}, "A", "headers.H", ""},
		{Server{Command: "c", Args: []string{"${userHome}"}}, "userHome", "args", ""},
		{Server{Command: "c", Args: []string{"${input:token}"}}, "", "args", "${input:…}"},
		{Server{Command: "c", Args: []string{"${cmd: rm -r s3cret}"}}, "", "args", "${cmd:…}"},
		{Server{Command: "c", Args: []string{"${workspaceFolder:other}"}}, "", "args", "not supported"},
		{Server{Command: "c", Args: []string{"${A:-${B}}"}}, "", "args", "default"},
		{Server{Command: "c", Args: []string{"${NUL}"}}, "", "args", "NUL"},
		{Server{Command: "${EMPTY}"}, "", "command", "empty"},
		{Server{URL: "${WORD}"}, "", "url", "http://"},
		{Server{URL: "http://e", Headers: map[string]string{"H": "${LINES}"}}, "", "headers", "control"},
		{Server{Command: "${SELF}", Args: []string{"mcp"}}, "", "command", "itself"},
	} {
		tt.s.Name = "s"
		x, err := tt.s.Expand(lookup, "/r", "")
		var missing *MissingError
		if err == nil || !reflect.DeepEqual(x, Server{}) || !strings.Contains(err.Error(), "mcpServers.s."+tt.key+": ") || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%+v: %v", tt.s, err)
		}
		if errors.As(err, &missing) != (tt.missing != "") || missing != nil && *missing != (MissingError{"s", tt.key, tt.missing}) {
			t.Errorf("%+v: %v", tt.s, err)
		}
		if tt.has != "" && !strings.Contains(err.Error(), tt.has) {
			t.Errorf("%+v: %v", tt.s, err)
		}
	}
}
