//go:build unix

package child

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
)

const separators = "/"

func sameName(a, b string) bool { return a == b }

// program returns the program at path.
func program(path string, _ []string) (string, error) {
	info, err := isProgram(path)
	if err != nil {
		return "", err
	}
	if info.Mode()&0o111 == 0 {
		return "", reason{path + " is not executable", fs.ErrPermission}
	}
	return path, nil
}

// explain says what the kernel means, which says "no such file" of a file that
// is there.
func explain(err error, path string) error {
	switch {
	case errors.Is(err, syscall.ENOENT):
		if interpreter := interpreterOf(path); interpreter != "" {
			return reason{fmt.Sprintf("its interpreter %s is missing", interpreter), fs.ErrNotExist}
		}
		return fmt.Errorf("it, or the loader it needs, is missing: %w", err)
	case errors.Is(err, syscall.ENOEXEC):
		return fmt.Errorf("%s is neither a program for this system nor a script that names its interpreter: %w", path, err)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("%s may not be executed: %w", path, err)
	}
	return err
}

// interpreterOf returns what the first line of a script names.
func interpreterOf(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close() // ignore error: only read
	line, err := bufio.NewReader(io.LimitReader(f, 512)).ReadString('\n')
	if rest, ok := strings.CutPrefix(line, "#!"); ok && (err == nil || err == io.EOF) {
		if words := strings.Fields(rest); len(words) > 0 {
			return words[0]
		}
	}
	return ""
}
