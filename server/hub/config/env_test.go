package config

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReadEnv(t *testing.T) {
	path := filepath.Join(t.TempDir(), "env")
	if env, err := ReadEnv(path); err != nil || env == nil || len(env) > 0 {
		t.Errorf("no file: %v, %v", env, err)
	}
	text := byteOrderMark + `# secrets
A=plain value
  B = never
`
	if _, err := parseEnv(path, []byte(text)); err == nil {
		t.Error("a space before = was taken")
	}
	text = byteOrderMark + "# secrets\r\nA=plain value \r\n\r\n  export B='q # \\n \"x\"'  # why\nC=\"a\\nb \\\"q\\\" \\$X \\\\ \\t\"\n" +
		"D=\nE=a#b # c\nF=#b\nG=a=b\nH= lead\nI=it's\nJ=' '\nA=again\nK=$A ${A}\nL=   # nothing\nM=\"ü\"#\nlast_1=1"
	want := map[string]string{"A": "again", "B": `q # \n "x"`, "C": "a\nb \"q\" $X \\ \\t", "D": "", "E": "a#b", "F": "#b", "G": "a=b", "H": "lead",
		"I": "it's", "J": " ", "K": "$A ${A}", "L": "", "M": "ü", "last_1": "1"}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if env, err := ReadEnv(path); err != nil || !maps.Equal(env, want) {
		t.Errorf("%q, %v", env, err)
	}
	for mode, ok := range map[os.FileMode]bool{0o600: true, 0o400: true, 0o700: true, 0o640: false, 0o604: false, 0o620: false, 0o644: false} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		_, err := ReadEnv(path)
		var e *Error
		if hasModes && (err == nil) != ok || err != nil && (!errors.As(err, &e) || !strings.Contains(err.Error(), "others can read it")) {
			t.Errorf("mode %04o: %v", mode, err)
		}
	}
}

func TestReadEnvErrors(t *testing.T) {
	for _, tt := range []struct {
		text string
		line int
		key  string
		says string
	}{
		{"\ns3cret\n", 2, "", "KEY=value"},
		{"s3cret name=1\n", 1, "", "the name before ="},
		{"A=1\n=s3cret\n", 2, "", "the name before ="},
		{"1A=s3cret\n", 1, "", "the name before ="},
		{"A='s3cret\n'\n", 1, "A", "does not end"},
		{"A=\"s3cret\\\"\n", 1, "A", "does not end"},
		{"A='s3cret' more\n", 1, "A", "something follows"},
		{"A=\xff\n", 0, "", "not text"},
		{"A=\x00\n", 0, "", "not text"},
	} {
		env, err := parseEnv("the/env", []byte(tt.text))
		var e *Error
		if env != nil || !errors.As(err, &e) || e.File != "the/env" || e.Line != tt.line || e.Key != tt.key || !strings.Contains(e.Reason, tt.says) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: %v, %v", tt.text, env, err)
		}
	}
}
