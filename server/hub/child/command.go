package child

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// isFolder returns an error that goes on after a name of the folder.
func isFolder(dir string) error {
	switch info, err := os.Stat(dir); {
	case errors.Is(err, fs.ErrNotExist):
		return reason{dir + " does not exist", fs.ErrNotExist}
	case err != nil:
		return fmt.Errorf("%s cannot be used: %w", dir, err)
	case !info.IsDir():
		return reason{dir + " is no folder", fs.ErrInvalid}
	}
	return nil
}

// A reason is an error in words of its own.
type reason struct {
	text  string
	cause error
}

func (r reason) Error() string { return r.text }
func (r reason) Unwrap() error { return r.cause }

// find returns the file that a command means to the child: it goes by the
// child's PATH, and by its working directory. Parts of PATH that are not
// absolute are passed over: which program they mean depends on where one is.
func find(command, dir string, env []string) (string, error) {
	if strings.ContainsAny(command, separators) {
		path := command
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		// The directory may be relative to that of this process, and the path
		// is looked up after the change to it.
		path, err := filepath.Abs(path)
		if err != nil {
			return "", err
		}
		return program(path, env)
	}
	path, ok := value(env, "PATH")
	if !ok || path == "" {
		return "", reason{"not found: there is no PATH in its environment", fs.ErrNotExist}
	}
	var nearly error
	for _, dir := range filepath.SplitList(path) {
		if !filepath.IsAbs(dir) {
			continue
		}
		found, err := program(filepath.Join(dir, command), env)
		if err == nil {
			return found, nil
		}
		if !errors.Is(err, fs.ErrNotExist) && nearly == nil {
			nearly = err
		}
	}
	if nearly != nil {
		return "", nearly
	}
	return "", reason{"not found in PATH (" + path + ")", fs.ErrNotExist}
}

// value returns the last value that a name has in env, which is the one that
// counts.
func value(env []string, name string) (string, bool) {
	for i := len(env) - 1; i >= 0; i-- {
		if k, v, ok := strings.Cut(env[i], "="); ok && sameName(k, name) {
			return v, true
		}
	}
	return "", false
}

// isProgram is what program asks of a file, but for its mode.
func isProgram(path string) (fs.FileInfo, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, reason{path + " does not exist", fs.ErrNotExist}
	case err != nil:
		return nil, err
	case info.IsDir():
		return nil, reason{path + " is a folder", fs.ErrPermission}
	}
	return info, nil
}
