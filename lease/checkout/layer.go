package checkout

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Bounds of a layer: what is in it is listed to every client.
const (
	maxLayerFiles   = 1000
	maxLayerBytes   = 1 << 20 // of one file
	maxLayerEntries = 20_000  // looked at, whatever they are
	maxLayerDepth   = 32
)

// A Layer is what a checkout shares with every editor: the text files of its
// repo folder.
type Layer struct {
	Files   []LayerFile // by path
	Skipped []string    // "path: reason" of what is not served
}

// A LayerFile is one file of a layer.
type LayerFile struct {
	Path    string // relative to the repo folder, with slashes
	Size    int64
	ModTime time.Time
	MIME    string
}

// Digest changes when a file is added, removed or changed, as far as size and
// time tell.
func (l Layer) Digest() string {
	h := sha256.New()
	for _, f := range l.Files {
		fmt.Fprintf(h, "%d %s %d %d\n", len(f.Path), f.Path, f.Size, f.ModTime.UnixNano())
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// text remembers what reading a file said, as long as it stays as it is, so
// that watching a layer does not read it all again each time.
type text struct {
	size int64
	mod  time.Time
	ok   bool
}

// Layer walks the repo folder. In the layer is every regular file of valid
// UTF-8 of at most 1 MiB, at most 1,000 of them in the order of their paths.
// Links are followed to files inside the folder and nowhere else. The policy
// and servers files, what is local, and .git are not in it. No folder is an
// empty layer. It is safe for concurrent use.
func (c *Checkout) Layer() (Layer, error) {
	w, err := c.walker()
	if errors.Is(err, fs.ErrNotExist) {
		return Layer{}, nil
	}
	if err != nil {
		return Layer{}, fmt.Errorf("reading the layer: %w", err)
	}
	defer w.root.Close() // ignore error: only read
	c.layerMu.Lock()
	defer c.layerMu.Unlock()
	w.known, w.found = c.texts, map[string]text{}
	err = w.walk(".", 0)
	c.texts = w.found
	slices.SortFunc(w.layer.Files, func(a, b LayerFile) int { return cmp.Compare(a.Path, b.Path) })
	if err != nil && !errors.Is(err, errBound) {
		return w.layer, fmt.Errorf("reading the layer: %w", err)
	}
	return w.layer, nil
}

// ReadLayer returns a file of the layer by its path there. What is not in the
// layer, for whatever reason, is fs.ErrNotExist.
func (c *Checkout) ReadLayer(name string) ([]byte, error) {
	none := &fs.PathError{Op: "read", Path: name, Err: fs.ErrNotExist}
	if !fs.ValidPath(name) || name == "." || !utf8.ValidString(name) {
		return nil, none
	}
	w, err := c.walker()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, none
	}
	if err != nil {
		return nil, fmt.Errorf("reading the layer: %w", err)
	}
	defer w.root.Close() // ignore error: only read
	// Folders on the way are looked at as the walk looks at them: not through
	// links, and not into what is local.
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		info, err := w.root.Lstat(filepath.FromSlash(dir))
		if Momentary(err) {
			return nil, fmt.Errorf("reading the layer: %w", err)
		}
		if err != nil || !info.IsDir() || w.hidden(dir, info) {
			return nil, none
		}
	}
	info, reason, err := w.look(name)
	if reason != "" {
		return nil, none
	}
	var b []byte
	if err == nil {
		b, err = w.read(name, info)
	}
	switch {
	case Momentary(err):
		return nil, fmt.Errorf("reading the layer: %w", err)
	case err != nil:
		return nil, none
	}
	return b, nil
}

var errBound = errors.New("the layer is full")

// walker looks at files of one repo folder through one root, which no name and
// no link gets out of.
type walker struct {
	root   *os.Root
	dir    string // its path
	local  string
	barred []fs.FileInfo // files and folders that are never served
	known  map[string]text
	found  map[string]text
	seen   int
	layer  Layer
}

func (c *Checkout) walker() (*walker, error) {
	root, err := os.OpenRoot(c.RepoDir)
	if err != nil {
		return nil, err
	}
	w := &walker{root: root, dir: c.RepoDir, local: c.LocalDir}
	for _, path := range []string{c.PolicyFile, c.ServersFile, c.LocalDir} {
		// By what they are, not by name: a link, a second name or another
		// case must not serve what this name would not.
		if info, err := os.Stat(path); err == nil {
			w.barred = append(w.barred, info)
		}
	}
	return w, nil
}

func (w *walker) walk(dir string, depth int) error {
	entries, err := w.list(dir)
	if err != nil {
		if dir == "." || Momentary(err) {
			return err
		}
		w.skip(dir, "cannot be listed")
		return nil
	}
	for _, e := range entries {
		name := path.Join(dir, e.Name())
		if w.seen++; w.seen > maxLayerEntries {
			w.skip(name, fmt.Sprintf("and what follows: more than %d entries", maxLayerEntries))
			return errBound
		}
		if !utf8.ValidString(name) {
			w.skip(strings.ToValidUTF8(name, "?"), "its name is not UTF-8")
			continue
		}
		if e.IsDir() {
			info, err := e.Info()
			if err != nil || w.hidden(name, info) {
				continue
			}
			if depth+1 >= maxLayerDepth {
				w.skip(name, fmt.Sprintf("more than %d folders deep", maxLayerDepth))
				continue
			}
			if err := w.walk(name, depth+1); err != nil {
				return err
			}
			continue
		}
		info, reason, err := w.look(name)
		if err == nil && reason == "" {
			var is bool
			if is, err = w.isText(name, info); !is {
				reason = "not UTF-8 text"
			}
		}
		if err != nil {
			return err
		}
		if reason == barred {
			continue // meant not to be served, so not worth a word
		}
		if reason != "" {
			w.skip(name, reason)
			continue
		}
		if len(w.layer.Files) == maxLayerFiles {
			w.skip(name, fmt.Sprintf("and what follows: more than %d files", maxLayerFiles))
			return errBound
		}
		w.layer.Files = append(w.layer.Files, LayerFile{name, info.Size(), info.ModTime(), mimeOf(name)})
	}
	return nil
}

// list returns the entries of a folder by name, and no more of them than one
// walk looks at.
func (w *walker) list(dir string) ([]fs.DirEntry, error) {
	f, err := w.root.Open(filepath.FromSlash(dir))
	if err != nil {
		return nil, err
	}
	defer f.Close() // ignore error: only read
	entries, err := f.ReadDir(maxLayerEntries + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return cmp.Compare(a.Name(), b.Name()) })
	return entries, nil
}

const barred = "not part of the layer"

// look says what lies at name, through a link if it is one, or why it is not
// served. An error says that this cannot be told now.
func (w *walker) look(name string) (info fs.FileInfo, reason string, err error) {
	native := filepath.FromSlash(name)
	info, err = w.root.Lstat(native)
	switch {
	case Momentary(err):
		return nil, "", err
	case err != nil:
		return nil, "cannot be looked at", nil
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		info, err = w.root.Stat(native)
		switch {
		case Momentary(err):
			return nil, "", err
		case err != nil:
			return nil, "a link that leaves the folder or leads nowhere", nil
		case info.IsDir():
			return nil, "a link to a folder", nil // its files are here under their own names
		case !w.shared(native):
			return nil, barred, nil
		}
	}
	switch {
	case !info.Mode().IsRegular():
		return nil, "not a regular file", nil
	case w.hidden(name, info):
		return nil, barred, nil
	case info.Size() > maxLayerBytes:
		return nil, fmt.Sprintf("larger than %d bytes", maxLayerBytes), nil
	}
	return info, "", nil
}

// shared reports whether the link at name leads neither into what is local nor
// into a repository's own files, where a repo folder holds those.
func (w *walker) shared(name string) bool {
	to, err := filepath.EvalSymlinks(filepath.Join(w.dir, name))
	if err != nil || within(w.local, to) {
		return false
	}
	rel, err := filepath.Rel(w.dir, to)
	return err == nil && !slices.ContainsFunc(splitPath(rel), func(part string) bool { return strings.EqualFold(part, ".git") })
}

// hidden reports whether what lies at name is never served.
func (w *walker) hidden(name string, info fs.FileInfo) bool {
	if strings.EqualFold(path.Base(name), ".git") {
		return true
	}
	for _, b := range w.barred {
		if os.SameFile(b, info) {
			return true
		}
	}
	return false
}

// isText reports whether the file is UTF-8, reading it only when it is not as
// it was at the last walk. What cannot be told now is not remembered.
func (w *walker) isText(name string, info fs.FileInfo) (bool, error) {
	t, ok := w.known[name]
	if !ok || t.size != info.Size() || !t.mod.Equal(info.ModTime()) {
		_, err := w.read(name, info)
		if Momentary(err) {
			return false, err
		}
		t = text{info.Size(), info.ModTime(), err == nil}
	}
	w.found[name] = t
	return t.ok, nil
}

// read reads the file that look found at name.
func (w *walker) read(name string, looked fs.FileInfo) ([]byte, error) {
	f, err := w.root.OpenFile(filepath.FromSlash(name), os.O_RDONLY|nonblock, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close() // ignore error: only read
	// Between the look and the open another file may have come.
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() || w.hidden(name, info) {
		return nil, fs.ErrNotExist
	}
	b, err := readAtMost(f, maxLayerBytes)
	if err != nil {
		return nil, err
	}
	if !utf8.Valid(b) {
		return nil, errors.New("not UTF-8")
	}
	return b, nil
}

func (w *walker) skip(name, reason string) {
	if len(w.layer.Skipped) < maxLayerFiles {
		w.layer.Skipped = append(w.layer.Skipped, name+": "+reason)
	}
}

// mimeOf goes by the ending, and by nothing of the machine: the same file has
// the same type wherever it is served.
func mimeOf(name string) string {
	switch strings.ToLower(path.Ext(name)) {
	case ".md", ".markdown", ".mdc":
		return "text/markdown"
	case ".json":
		return "application/json"
	case ".yaml", ".yml":
		return "application/yaml"
	case ".toml":
		return "application/toml"
	case ".xml":
		return "application/xml"
	case ".html", ".htm":
		return "text/html"
	case ".css":
		return "text/css"
	case ".csv":
		return "text/csv"
	case ".js", ".mjs", ".cjs":
		return "text/javascript"
	case ".svg":
		return "image/svg+xml"
	}
	return "text/plain"
}
