package checkout

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// git is what is known of the repository a checkout lies in; zero without one.
type git struct {
	top    string // of the work tree
	common string // what all work trees of the repository share, resolved
	linked bool
}

// gitDir returns the git directory that dir/.git is or points to; ok is false
// where dir is not the top of a git work tree. It need not exist: the .git file
// of a work tree whose repository was moved away still marks the top of one. An
// error says that it could not be told.
func gitDir(dir string) (path string, ok bool, err error) {
	dot := filepath.Join(dir, ".git")
	info, err := os.Stat(dot)
	if err != nil {
		return "", false, untold(err)
	}
	if info.IsDir() {
		return dot, true, nil
	}
	b, err := readSmall(dot, 64<<10)
	if err != nil {
		return "", false, untold(err)
	}
	to, ok := strings.CutPrefix(string(b), "gitdir:")
	if to = strings.TrimSpace(to); !ok || to == "" {
		return "", false, nil
	}
	return under(dir, to), true, nil
}

func isWorkTree(dir string) bool {
	_, ok, _ := gitDir(dir) // ignore error: then nobody can work there either
	return ok
}

// findGit looks for the repository of the work tree that root is in.
func findGit(root string) (git, error) {
	for at := root; ; at = filepath.Dir(at) {
		dir, ok, err := gitDir(at)
		if err != nil {
			return git{}, err
		}
		if ok {
			common, linked := dir, false
			b, err := readSmall(filepath.Join(dir, "commondir"), 64<<10)
			if err == nil {
				common, linked = under(dir, strings.TrimSpace(string(b))), true
			}
			if err = untold(err); err != nil {
				return git{}, err
			}
			resolved, err := resolve(common)
			if err != nil {
				return git{}, untold(err) // the repository is gone: nothing is shared with anybody
			}
			return git{top: at, common: resolved, linked: linked}, nil
		}
		if filepath.Dir(at) == at {
			return git{}, nil
		}
	}
}

// Head is what is checked out in the work tree: the name of a branch, or, where
// there is none, the commit. Both are "" without git, and where git keeps it in
// another form than a file.
func (c *Checkout) Head() (branch, commit string) {
	dir, ok, err := gitDir(c.git.top)
	if c.git.top == "" || err != nil || !ok {
		return "", "" // ignore error: nothing is said of it then
	}
	b, err := readSmall(filepath.Join(dir, "HEAD"), 64<<10)
	if err != nil {
		return "", "" // ignore error: as above
	}
	head := strings.TrimSpace(string(b))
	if ref, ok := strings.CutPrefix(head, "ref:"); ok {
		ref = strings.TrimSpace(ref)
		if name, ok := strings.CutPrefix(ref, "refs/heads/"); ok && name != ".invalid" { // which reftable writes
			return name, ""
		}
		return "", ""
	}
	return "", head
}

// Worktrees returns the checkouts in every work tree of this one's repository:
// the main one first, then the linked ones by path, this one always among them.
// In a checkout that lies below the top of its work tree, it is the folder at
// the same place of each. Those that cannot be opened are left out, and the
// error joins why; the others are returned beside it.
func (c *Checkout) Worktrees() ([]*Checkout, error) {
	if c.git.common == "" {
		return []*Checkout{c}, nil
	}
	tops, err := c.git.worktrees()
	errs := []error{err}
	below, err := filepath.Rel(c.git.top, c.Root)
	if err != nil {
		return []*Checkout{c}, fmt.Errorf("listing the work trees of %s: %w", c.git.common, err)
	}
	var list []*Checkout
	for i, top := range tops {
		w, err := Open(filepath.Join(top, below))
		switch {
		case err != nil && below != "." && errors.Is(err, fs.ErrNotExist) && isWorkTree(top):
			// This branch has no such folder: nobody works there.
		case err != nil:
			errs = append(errs, fmt.Errorf("looking at a work tree of %s: %w", c.git.common, err))
		case w.ID == c.ID: // added below
		case w.GitID != c.GitID:
			// Something else has taken the folder's place since git
			// registered it; the main one is only guessed.
			if i > 0 {
				errs = append(errs, fmt.Errorf("looking at a work tree of %s: %s belongs to another repository", c.git.common, w.Root))
			}
		case !slices.ContainsFunc(list, func(o *Checkout) bool { return o.ID == w.ID }):
			list = append(list, w)
		}
	}
	list = append(list, c)
	main := mainWorktree(c.git.common)
	slices.SortFunc(list, func(a, b *Checkout) int {
		if am, bm := within(main, a.Root) && !a.LinkedWorktree, within(main, b.Root) && !b.LinkedWorktree; am != bm {
			if am {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.Root, b.Root)
	})
	return list, errors.Join(errs...)
}

// worktrees returns the tops of the work trees, the main one first if the
// repository has one.
func (g git) worktrees() ([]string, error) {
	var tops []string
	if main := mainWorktree(g.common); main != "" {
		tops = append(tops, main)
	} else {
		tops = append(tops, g.top)
	}
	registered := filepath.Join(g.common, "worktrees")
	entries, err := os.ReadDir(registered)
	if errors.Is(err, fs.ErrNotExist) {
		return tops, nil
	}
	if err != nil {
		return tops, fmt.Errorf("listing the work trees of %s: %w", g.common, err)
	}
	var errs []error
	for _, e := range entries {
		dir := filepath.Join(registered, e.Name())
		b, err := readSmall(filepath.Join(dir, "gitdir"), 64<<10)
		if err != nil {
			errs = append(errs, fmt.Errorf("reading a registered work tree: %w", err))
			continue
		}
		dot := strings.TrimSpace(string(b)) // <top>/.git, relative to dir with worktree.useRelativePaths
		if dot == "" {
			errs = append(errs, fmt.Errorf("reading a registered work tree: %s names none", filepath.Join(dir, "gitdir")))
			continue
		}
		tops = append(tops, filepath.Dir(under(dir, dot)))
	}
	return tops, errors.Join(errs...)
}

// mainWorktree returns the work tree that a repository was made with, or "" for
// a bare one. Of git's config two keys of one section count.
func mainWorktree(common string) string {
	main := ""
	if filepath.Base(common) == ".git" {
		main = filepath.Dir(common)
	}
	for _, name := range []string{"config", "config.worktree"} { // the second where extensions.worktreeConfig is set
		b, err := readSmall(filepath.Join(common, name), 1<<20)
		if err != nil {
			continue
		}
		core := false
		for line := range strings.Lines(string(b)) {
			line = strings.TrimSpace(line)
			if strings.HasPrefix(line, "[") {
				core = strings.EqualFold(strings.TrimSpace(strings.Trim(line, "[]")), "core")
				continue
			}
			key, value, _ := strings.Cut(line, "=")
			value = strings.Trim(strings.TrimSpace(value), `"`)
			if !core {
				continue
			}
			switch strings.ToLower(strings.TrimSpace(key)) {
			case "bare":
				if v := strings.ToLower(value); v == "true" || v == "yes" || v == "on" || v == "1" {
					return ""
				}
			case "worktree":
				if value != "" {
					main = under(common, value)
				}
			}
		}
	}
	return main
}

// under is path, or path below dir when it is relative.
func under(dir, path string) string {
	path = filepath.FromSlash(path)
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(dir, path)
}

var errTooLong = errors.New("too long")

// readAtMost reads r to its end; more than limit bytes is an error.
func readAtMost(r io.Reader, limit int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = fmt.Errorf("%w: more than %d bytes", errTooLong, limit)
	}
	return b, err
}
