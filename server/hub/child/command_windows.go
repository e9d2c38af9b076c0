package child

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"golang.org/x/sys/windows"
)

const separators = `/\:`

func sameName(a, b string) bool { return strings.EqualFold(a, b) }

// program returns the program at path, which may lack its extension.
func program(path string, env []string) (string, error) {
	known, ok := value(env, "PATHEXT")
	if !ok || known == "" {
		known = ".COM;.EXE;.BAT;.CMD"
	}
	extensions := strings.Split(known, ";")
	own := filepath.Ext(path)
	for _, e := range extensions {
		if e != "" && strings.EqualFold(e, own) {
			if _, err := isProgram(path); err == nil || !errors.Is(err, fs.ErrNotExist) {
				return path, err
			}
		}
	}
	for _, e := range extensions {
		if e == "" {
			continue
		}
		if _, err := isProgram(path + e); err == nil || !errors.Is(err, fs.ErrNotExist) {
			return path + e, err
		}
	}
	if _, err := isProgram(path); err != nil {
		return "", err
	}
	return "", reason{fmt.Sprintf("%s is not executable: its extension is none of %s", path, known), fs.ErrPermission}
}

func explain(err error, path string) error {
	if errors.Is(err, windows.ERROR_BAD_EXE_FORMAT) {
		return fmt.Errorf("%s is no program for this system: %w", path, err)
	}
	return err
}
