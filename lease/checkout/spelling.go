package checkout

import (
	"os"
	"path/filepath"
	"strings"
	"unicode"
)

// onDisk returns path, which is free of links, in the spelling that the folders
// above it list. Where the file system tells upper from lower case that is path
// itself, which one look per element finds out: the name in swapped case is
// not there.
func onDisk(path string) string {
	return spelled(path, disk{
		same: func(a, b string) bool {
			ia, err := os.Lstat(a)
			if err != nil {
				return false
			}
			ib, err := os.Lstat(b)
			return err == nil && os.SameFile(ia, ib)
		},
		names: func(dir string) []string {
			f, err := os.Open(dir)
			if err != nil {
				return nil // not readable: the spelling asked for must do
			}
			defer f.Close() // ignore error: only read
			names, err := f.Readdirnames(-1)
			if err != nil {
				return nil
			}
			return names
		},
	})
}

// disk is what spelled asks of a file system.
type disk struct {
	same  func(a, b string) bool // both exist and are one file
	names func(dir string) []string
}

func spelled(path string, d disk) string {
	dir, base := filepath.Split(path)
	dir = filepath.Clean(dir)
	if base == "" {
		return path
	}
	dir = spelled(dir, d)
	here := filepath.Join(dir, base)
	swapped := strings.Map(swapCase, base)
	if swapped == base || !d.same(here, filepath.Join(dir, swapped)) {
		return here
	}
	// Case says nothing here. Two names of one folder cannot both be listed,
	// but a name that differs in its Unicode form can be found by neither
	// comparison of strings, so files are compared where names do not match.
	var other string
	for _, name := range d.names(dir) {
		if name == base {
			return here
		}
		if strings.EqualFold(name, base) {
			other = name
		}
	}
	if other != "" && d.same(here, filepath.Join(dir, other)) {
		return filepath.Join(dir, other)
	}
	for _, name := range d.names(dir) {
		if d.same(here, filepath.Join(dir, name)) {
			return filepath.Join(dir, name)
		}
	}
	return here
}

func swapCase(r rune) rune {
	if unicode.IsUpper(r) {
		return unicode.ToLower(r)
	}
	return unicode.ToUpper(r)
}
