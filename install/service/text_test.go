//go:build unix

package service

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

var (
	plain = Spec{
		ID: "0123456789abcdef0123456789abcdef", Root: "/home/alice/work", Executable: "/home/alice/bin/majordomus",
		Log:         "/home/alice/work/.ai/local/state/mcp/server.log",
		Environment: []string{"PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8"},
	}
	awkward = Spec{
		ID: "0123456789abcdef0123456789abcdef", Root: `/home/alice/50% $HOME ${X} "q" 'a' \n <ü> &;# `, Executable: `/opt/%h $PATH "x" 'y' \z <ö>/majordomus`,
		Log:         `/home/alice/50% <ü> &/server.log`,
		Environment: []string{`PATH=/a b:/c%d:/e"f\g$h`, "https_proxy=http://u:p%40@proxy:1/", "LANG=C.UTF-8", "TWO=a\nb", "BAD=\xff", "NO NAME=x", "nonsense", "1=2"},
	}
)

func TestUnit(t *testing.T) {
	for name, s := range map[string]Spec{"plain.service": plain, "awkward.service": awkward} {
		text, err := Unit(s)
		if err != nil {
			t.Fatal(err)
		}
		golden(t, name, text)
		// Lines that end with a blank or a backslash lose it, or the next line.
		for line := range strings.Lines(text) {
			if line = strings.TrimSuffix(line, "\n"); strings.TrimRight(line, ` \`) != line {
				t.Errorf("%q", line)
			}
		}
	}
}

func TestPlist(t *testing.T) {
	for name, s := range map[string]Spec{"plain.plist": plain, "awkward.plist": awkward} {
		text, err := Plist(s)
		if err != nil {
			t.Fatal(err)
		}
		golden(t, name, text)
		v, err := parsePlist(text)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		words := v["ProgramArguments"].([]any)
		if len(words) != 7 || words[2] != guard || words[3] != s.Executable || words[4] != s.Root {
			t.Errorf("%s: it runs %q", name, words)
		}
		keep := v["KeepAlive"].(map[string]any)
		if len(keep) != 1 || keep["SuccessfulExit"] != false {
			t.Errorf("%s: kept alive: %v", name, keep)
		}
		if v["Label"] != "majordomus-0123456789ab" || v["StandardErrorPath"] != s.Log {
			t.Errorf("%s: %v", name, v)
		}
		env := v["EnvironmentVariables"].(map[string]any)
		for _, kv := range s.variables() {
			if key, value, _ := strings.Cut(kv, "="); env[key] != value {
				t.Errorf("%s: %s is %q", name, key, env[key])
			}
		}
		if len(env) != len(s.variables()) {
			t.Errorf("%s: %v", name, env)
		}
	}
}

// parsePlist reads a property list as strictly as plutil does.
func parsePlist(text string) (map[string]any, error) {
	if !utf8.ValidString(text) {
		return nil, errors.New("not UTF-8")
	}
	d := xml.NewDecoder(strings.NewReader(text))
	var next func() (xml.Token, error) // of those that matter
	next = func() (xml.Token, error) {
		tok, err := d.Token()
		switch tok := tok.(type) {
		case xml.CharData:
			if strings.TrimSpace(string(tok)) == "" {
				return next()
			}
		case xml.Comment, xml.ProcInst, xml.Directive:
			return next()
		}
		return tok, err
	}
	var value func(xml.StartElement) (any, error)
	value = func(start xml.StartElement) (any, error) {
		switch start.Name.Local {
		case "string", "key", "integer":
			var s string
			err := d.DecodeElement(&s, &start)
			return s, err
		case "true", "false":
			return start.Name.Local == "true", d.Skip()
		case "array":
			list := []any{}
			for {
				tok, err := next()
				if err != nil {
					return nil, err
				}
				if _, ok := tok.(xml.EndElement); ok {
					return list, nil
				}
				v, err := value(tok.(xml.StartElement))
				if err != nil {
					return nil, err
				}
				list = append(list, v)
			}
		case "dict":
			dict := map[string]any{}
			for {
				tok, err := next()
				if err != nil {
					return nil, err
				}
				if _, ok := tok.(xml.EndElement); ok {
					return dict, nil
				}
				key, ok := tok.(xml.StartElement)
				if !ok || key.Name.Local != "key" {
					return nil, fmt.Errorf("%v is no key", tok)
				}
				name, err := value(key)
				if err != nil {
					return nil, err
				}
				if _, twice := dict[name.(string)]; twice {
					return nil, fmt.Errorf("%v twice", name)
				}
				tok, err = next()
				if err != nil {
					return nil, err
				}
				start, ok := tok.(xml.StartElement)
				if !ok {
					return nil, fmt.Errorf("%v has no value", name)
				}
				if dict[name.(string)], err = value(start); err != nil {
					return nil, err
				}
			}
		}
		return nil, fmt.Errorf("<%s> is no value", start.Name.Local)
	}
	tok, err := next()
	if err != nil {
		return nil, err
	}
	if top, ok := tok.(xml.StartElement); !ok || top.Name.Local != "plist" {
		return nil, fmt.Errorf("%v is no plist", tok)
	}
	if tok, err = next(); err != nil {
		return nil, err
	}
	v, err := value(tok.(xml.StartElement))
	if err != nil {
		return nil, err
	}
	if _, err = next(); err != nil { // </plist>
		return nil, err
	}
	if _, err = next(); err != io.EOF {
		return nil, fmt.Errorf("something follows the list: %v", err)
	}
	dict, ok := v.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%v is no dictionary", v)
	}
	return dict, nil
}

// What launchd runs for us becomes the server in the checkout, and ends well
// when there is nothing to run or nothing to serve.
func TestGuard(t *testing.T) {
	sh, err := os.Stat("/bin/sh")
	if err != nil || sh.IsDir() {
		t.Skip("there is no /bin/sh")
	}
	root := filepath.Join(t.TempDir(), `50% $HOME "q" 'a' ü`)
	exe := filepath.Join(root, "bin $x", "majordomus")
	if err := os.MkdirAll(filepath.Dir(exe), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(exe, []byte("#!/bin/sh\npwd; printf '%s\\n' \"$@\"; exit 7\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	run := func(exe, root string) (string, int) {
		t.Helper()
		out, err := command(t.Context(), []string{"PATH=/usr/bin:/bin"}, "/bin/sh", "-c", guard, exe, root, "serve", "--service")
		var failed *commandError
		if errors.As(err, &failed) {
			return out, failed.code
		}
		if err != nil {
			t.Fatal(err)
		}
		return out, 0
	}
	real, err := filepath.EvalSymlinks(root)
	if err != nil {
		t.Fatal(err)
	}
	if out, code := run(exe, root); code != 7 || out != root+"\nserve\n--service\n--root\n"+root+"\n" && out != real+"\nserve\n--service\n--root\n"+root+"\n" {
		t.Errorf("%d: %q", code, out)
	}
	if out, code := run(exe+"x", root); code != 0 || out != "" {
		t.Errorf("no executable: %d: %q", code, out)
	}
	if out, code := run(exe, root+"x"); code != 0 || out != "" {
		t.Errorf("no checkout: %d: %q", code, out)
	}
}

func TestSpecsThatCannotBe(t *testing.T) {
	for name, change := range map[string]func(*Spec){
		"no id":        func(s *Spec) { s.ID = "" },
		"another id":   func(s *Spec) { s.ID = "../../etc/passwd" },
		"not whole":    func(s *Spec) { s.Root = "work" },
		"a line":       func(s *Spec) { s.Root = "/home/a\nExecStart=/bin/false" },
		"not a text":   func(s *Spec) { s.Executable = "/home/\xff" },
		"no text":      func(s *Spec) { s.Executable = "/home/\x1b" },
		"no execution": func(s *Spec) { s.Executable = "" },
	} {
		s := plain
		change(&s)
		if text, err := Unit(s); err == nil {
			t.Errorf("%s: %s", name, text)
		}
		if text, err := Plist(s); err == nil {
			t.Errorf("%s: %s", name, text)
		}
	}
}

func TestVariables(t *testing.T) {
	got := awkward.variables()
	if want := awkward.Environment[:3]; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
