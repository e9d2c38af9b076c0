//go:build unix

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// Where the account has no service manager, nothing is installed and nothing is
// left behind, and the exit code and the hint say so.
func TestServiceWithoutManager(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat(fmt.Sprintf("/run/user/%d/systemd/private", os.Getuid())); err == nil {
		t.Skip("this account has a service manager; what happens without one is tried in a container too")
	}
	c := accAlone(t)
	before := everyPath(t, filepath.Dir(c.program))
	stdout, stderr, err := c.run("install", "service")
	if code := exits(t, err); code != 12 || stdout != "" {
		t.Errorf("%d: %s", code, stdout)
	}
	if runtime.GOOS == "linux" {
		goldenService(t, "none", strings.ReplaceAll(stderr, fmt.Sprintf("/user/%d/", os.Getuid()), "/user/UID/"))
	}
	if _, err := os.Stat(filepath.Join(c.root, ".ai")); err == nil {
		t.Error("the checkout is no longer as it was")
	}
	if after := everyPath(t, filepath.Dir(c.program)); !slices.Equal(before, after) {
		t.Errorf("there was %q, there is %q", before, after)
	}
	if stdout, stderr, err := c.run("uninstall", "service"); err != nil || stdout != "no service was installed\n" || stderr != "" {
		t.Errorf("%v: %s%s", err, stdout, stderr)
	}
	if stdout, stderr, err := c.run("uninstall", "service", "--all", "--format", "json"); err != nil || stdout != "[]\n" || stderr != "" {
		t.Errorf("%v: %s%s", err, stdout, stderr)
	}
	if stdout, _, err := c.run("install", "service", "--dry-run"); err != nil || !strings.Contains(stdout, c.root) {
		t.Errorf("%v: %s", err, stdout)
	}
	if after := everyPath(t, filepath.Dir(c.program)); !slices.Equal(before, after) {
		t.Errorf("there was %q, there is %q", before, after)
	}
}

// everyPath is every path below dir.
func everyPath(t *testing.T, dir string) []string {
	t.Helper()
	var paths []string
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		paths = append(paths, path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// goldenService compares a text with its golden file.
func goldenService(t *testing.T, name, got string) {
	t.Helper()
	golden(t, filepath.Join("testdata", "install", "service-"+name+".txt"), got)
}

func TestServiceHelp(t *testing.T) {
	t.Parallel()
	c := accFresh(t)
	for _, word := range []string{"install", "uninstall"} {
		out, log, err := c.run(word, "service", "--help")
		if err != nil || log != "" {
			t.Errorf("%v: %s", err, log)
		}
		goldenService(t, "help-"+word, out)
	}
}

func TestServiceEnviron(t *testing.T) {
	t.Parallel()
	got := serviceEnviron([]string{
		"HOME=/h", "USER=a", "PATH=/bin", "LC_ALL=C", "XDG_STATE_HOME=/s", "XDG_SESSION_ID=3", "XDG_RUNTIME_DIR=/run/user/1", "https_proxy=http://p",
		"SSH_AUTH_SOCK=/tmp/a", "TMPDIR=/tmp/nix-shell", "MAJORDOMUS_LOG=debug", "MAJORDOMUS_ROOT=/w", "CLAUDE_CODE_SESSION_ID=1", "OPENAI_API_KEY=secret",
	})
	if want := []string{"PATH=/bin", "LC_ALL=C", "XDG_STATE_HOME=/s", "https_proxy=http://p", "MAJORDOMUS_LOG=debug"}; !slices.Equal(got, want) {
		t.Errorf("a service gets %q, not %q", got, want)
	}
}

// What was gone to by links when it was installed is found again when it is gone.
func TestResolved(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "real"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("real", filepath.Join(dir, "link")); err != nil {
		t.Skip("links cannot be made here: " + err.Error())
	}
	for path, want := range map[string]string{"link/gone/more": "real/gone/more", "real/gone": "real/gone", "link": "real"} {
		if got := resolved(filepath.Join(dir, path)); got != filepath.Join(dir, want) {
			t.Errorf("%s: %s", path, got)
		}
	}
}
