// Package checkout knows a checkout: where its root is, by which names it is
// known, which work trees belong to its repository, and what its .ai folder
// declares.
//
// A checkout is a folder on disk that editors work in: the nearest folder, at
// or above where one stands, that has an .ai/manifest.yaml; else the top of a
// git work tree. Every spelling of that folder (through links, in other case
// where the file system ignores it, with a slash at the end) is one checkout
// with one ID. Git is never run; what is read of it is .git, commondir, the
// registered work trees, and two keys of its config.
//
// What is not promised: that anything found is still there later. A Checkout
// says what was on disk when it was opened; only Policy is read once and kept,
// because a process must not change its mind about its own timings. Submodules
// are checkouts of their own. Environment variables of git (GIT_DIR and the
// like) are not read.
package checkout

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// ErrNone says that no checkout is at or above a folder.
var ErrNone = errors.New("no checkout here")

const (
	aiDir        = ".ai"
	manifestName = "manifest.yaml"
)

// A Checkout is one checkout as it was found. Its paths are absolute and free
// of links up to the last element. It must not be copied.
type Checkout struct {
	Root string // the folder
	Name string // its last element, for people
	ID   string // 32 hex characters that tell it from every other folder of this machine

	// GitID is the same for every work tree of one git repository, and ""
	// where there is no git.
	GitID string
	// LinkedWorktree reports whether git made the work tree with "git
	// worktree add": its repository lies elsewhere.
	LinkedWorktree bool
	// HasManifest reports whether .ai/manifest.yaml exists.
	HasManifest bool

	RepoDir     string // what the checkout shares: .ai/repo
	LocalDir    string // what stays on this machine: .ai/local
	PolicyFile  string // .ai/repo/policy.yaml
	ServersFile string // .ai/repo/mcp.json

	git git

	policyMu sync.Mutex
	policy   *Policy // once it was read without an error

	layerMu sync.Mutex
	texts   map[string]text // what earlier walks found by reading files
}

// Find returns the checkout that dir is in. A manifest above a git work tree
// counts before that tree: who wrote it drew the border there. The folder home
// and the root of the file system count only with a manifest, since a git
// repository of one's dotfiles does not make every file of the account one
// project; home is "" where it is unknown. The error is ErrNone when there is
// none.
func Find(dir, home string) (*Checkout, error) {
	dir, err := resolve(dir)
	if err != nil {
		return nil, fmt.Errorf("finding the checkout of a folder: %w", err)
	}
	if home != "" {
		if h, err := resolve(home); err == nil {
			home = h
		}
	}
	top := ""
	for at := dir; ; at = filepath.Dir(at) {
		manifest, err := isFile(filepath.Join(at, aiDir, manifestName))
		if manifest {
			return open(at)
		}
		parent := filepath.Dir(at)
		if err == nil && top == "" && at != home && at != parent {
			var tree bool
			if _, tree, err = gitDir(at); tree {
				top = at
			}
		}
		// Going on upwards would find somebody else's checkout.
		if err != nil {
			return nil, fmt.Errorf("finding the checkout of a folder: %w", err)
		}
		if parent == at {
			break
		}
	}
	if top == "" {
		return nil, fmt.Errorf("%w: neither %s nor a folder above it has %s or is a git work tree",
			ErrNone, dir, filepath.Join(aiDir, manifestName))
	}
	return open(top)
}

// Open returns the checkout whose root is exactly this folder. It need have
// neither a manifest nor git.
func Open(root string) (*Checkout, error) {
	resolved, err := resolve(root)
	if err != nil {
		return nil, fmt.Errorf("opening a checkout: %w", err)
	}
	info, err := os.Stat(resolved)
	if err != nil {
		return nil, fmt.Errorf("opening a checkout: %w", err)
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("opening a checkout: %s is not a folder", resolved)
	}
	return open(resolved)
}

func open(root string) (*Checkout, error) {
	c := &Checkout{Root: root, Name: filepath.Base(root), ID: identity(root)}
	m, err := readManifest(root)
	if err != nil {
		return nil, err
	}
	c.HasManifest = m.exists
	if err := c.place(m); err != nil {
		return nil, err
	}
	if c.git, err = findGit(root); err != nil {
		return nil, fmt.Errorf("looking for the repository of a checkout: %w", err)
	}
	if c.git.common != "" {
		c.GitID = identity(c.git.common)
		c.LinkedWorktree = c.git.linked
	}
	return c, nil
}

// StateDir is the folder in which the processes that serve this checkout meet.
// It need not exist.
func (c *Checkout) StateDir() string { return filepath.Join(c.LocalDir, "state", "mcp") }

// identity names a resolved path.
func identity(path string) string {
	sum := sha256.Sum256([]byte(path))
	return hex.EncodeToString(sum[:16])
}

// resolve returns the one spelling of a folder that all others lead to.
func resolve(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	real, err := filepath.EvalSymlinks(abs)
	if err != nil {
		return "", err
	}
	return onDisk(real), nil
}

// within reports whether path is dir or below it; both are clean.
func within(dir, path string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}

func isFile(path string) (bool, error) {
	info, err := os.Stat(path)
	if err != nil {
		return false, untold(err)
	}
	return info.Mode().IsRegular(), nil
}

// untold returns err if it says nothing about what was looked for, neither that
// it is missing nor that it is not for us.
func untold(err error) error {
	if Momentary(err) {
		return err
	}
	return nil
}

// readSmall reads a regular file of at most limit bytes. Anything else that
// lies there is an error, and never waited for, as a named pipe would be.
func readSmall(path string, limit int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "read", Path: path, Err: errors.New("not a regular file")}
	}
	f, err := os.OpenFile(path, os.O_RDONLY|nonblock, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close() // ignore error: only read
	b, err := readAtMost(f, limit)
	if err != nil {
		return nil, &fs.PathError{Op: "read", Path: path, Err: err}
	}
	return b, nil
}
