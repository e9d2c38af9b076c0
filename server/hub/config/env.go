package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"unicode/utf8"
)

// ReadEnv reads a file of variables: lines KEY=value, comments and blank lines.
// A value may be in single quotes, where all characters are themselves, or in
// double quotes, where \n, \" , \\ and \$ are one character each; without quotes
// it goes to the end of the line or to a # after a space. Nothing is replaced
// in it. The last line of a name counts. No file is no variables.
//
// The file holds secrets: one that others can read, or that belongs to another
// account, is an *Error where the system tells, and no error tells a value.
//
// Trust does not cover it, though what it says stands for variables of the
// servers file, and its PATH before the trusted one: it is the account's own, and
// git neither sees it nor checks out a file that others cannot read, unless the
// umask is 077. So majordomus trust shows which variables it has.
func ReadEnv(path string) (map[string]string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|nonblock, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return map[string]string{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the environment file: %w", err)
	}
	defer f.Close() // ignore error: only read
	b, info, err := readRegular(f)
	if err != nil {
		return nil, fmt.Errorf("reading the environment file: %w", &fs.PathError{Op: "read", Path: path, Err: err})
	}
	if mode := info.Mode().Perm(); hasModes && mode&0o077 != 0 {
		return nil, &Error{path, Problem{Reason: fmt.Sprintf("others can read it (mode %04o), and it is for secrets: chmod 600", mode)}}
	}
	if hasModes && !ownFile(info) {
		return nil, &Error{path, Problem{Reason: "it belongs to another account, so it is not believed"}}
	}
	return parseEnv(path, b)
}

func parseEnv(path string, b []byte) (map[string]string, error) {
	fail := func(line int, key, reason string) (map[string]string, error) {
		return nil, &Error{path, Problem{line, key, reason}}
	}
	if !utf8.Valid(b) || strings.ContainsRune(string(b), 0) {
		return fail(0, "", "is not text in UTF-8")
	}
	env := map[string]string{}
	line := 0
	for text := range strings.Lines(strings.TrimPrefix(string(b), byteOrderMark)) {
		line++
		text = strings.TrimSpace(text)
		if text == "" || text[0] == '#' {
			continue
		}
		key, value, ok := strings.Cut(text, "=")
		if words := strings.Fields(key); len(words) == 2 && words[0] == "export" {
			key = words[1]
		}
		if !ok {
			return fail(line, "", "must be KEY=value") // the whole line may be a secret
		}
		if !isWord(key) {
			return fail(line, "", "the name before = must be of letters, digits and _, without a space")
		}
		v, reason := envValue(value)
		if reason != "" {
			return fail(line, key, reason)
		}
		env[key] = v
	}
	return env, nil
}

// envValue reads what stands after the =, without the space at its end.
func envValue(text string) (value, reason string) {
	trimmed := strings.TrimSpace(text)
	if trimmed == "" || trimmed[0] != '\'' && trimmed[0] != '"' {
		for i := 1; i < len(text); i++ {
			if text[i] == '#' && (text[i-1] == ' ' || text[i-1] == '\t') {
				text = text[:i]
			}
		}
		return strings.TrimSpace(text), ""
	}
	text = trimmed
	quote := text[0]
	var b strings.Builder
	for i := 1; i < len(text); i++ {
		switch c := text[i]; {
		case c == quote:
			if rest := strings.TrimSpace(text[i+1:]); rest != "" && rest[0] != '#' {
				return "", "something follows the closing quote"
			}
			return b.String(), ""
		case c == '\\' && quote == '"' && i+1 < len(text) && strings.IndexByte(`n"\$`, text[i+1]) >= 0:
			if i++; text[i] == 'n' {
				b.WriteByte('\n')
			} else {
				b.WriteByte(text[i])
			}
		default:
			b.WriteByte(c)
		}
	}
	return "", "the quote does not end on its line"
}
