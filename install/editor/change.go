package editor

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
)

// What a Change does.
const (
	Added    = "added"
	Replaced = "replaced" // another entry of the name
	Right    = "right"    // it is there already
	Removed  = "removed"
	Absent   = "absent"  // there is none to remove
	Foreign  = "foreign" // the entry of the name is another's, and stays
)

// A Change is what is to be done to an editor's file.
type Change struct {
	Editor string
	File   string
	State  string
	// Asks says that something is replaced which is not known to be ours: a
	// person has to want that.
	Asks    bool
	Line    int    // of the entry that is there, if one is
	Command string // of it, where it is right

	within   string
	target   string // what is written: File, or where it links to
	was, is  []byte
	existed  bool
	vanishes bool     // the file was made for the entry and goes with it
	folders  []string // made for the file, the outermost first
	record   record
}

// A record is what is remembered of a change, to undo it.
type record struct {
	After   string   `json:"after"`             // digest of the file as it was left
	Before  string   `json:"before,omitempty"`  // and as it was; "" where it was not
	Exact   bool     `json:"exact,omitempty"`   // Edits lead from Before to After
	Edits   []edit   `json:"edits,omitempty"`   //
	Created bool     `json:"created,omitempty"` // the file
	Folders []string `json:"folders,omitempty"` // that were made for it
	Keys    []string `json:"keys,omitempty"`    // that were made for the entry
	Was     string   `json:"was,omitempty"`     // the entry of somebody else that was there
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// file is what all kinds of files can do.
type file interface {
	// find returns the entry: what it means, how it is written, its line. The
	// text is empty where there is none.
	find(key, name string) (value any, text string, line int, err error)
	// add also returns the keys that it makes for the entry.
	add(key, name string, fields []field) ([]edit, []string, error)
	// replace puts fields, or text if that is not empty, into the entry's place.
	replace(key, name string, fields []field, text string) ([]edit, error)
	remove(key, name string, made []string) ([]edit, error)
	tree() (any, error)
	bare() bool // nothing is in it
}

func (e Editor) parse(path string, b []byte) (file, error) {
	if e.syntax == tomlConfig {
		return parseTOML(path, b)
	}
	return parseJSON(path, b, e.syntax)
}

// Plan says what it takes to have the server in a file. past is what Record
// said of the last change there, or "". within is a folder that the file must
// not lead out of; "" is anywhere.
func (e Editor) Plan(path, within string, s Server, past string) (*Change, error) {
	c, err := open(path, within, past)
	if err != nil {
		return nil, err
	}
	return c, e.plan(c, s)
}

func (e Editor) plan(c *Change, s Server) error {
	c.Editor = e.Name
	f, err := e.parse(c.File, c.was)
	if err != nil {
		return err
	}
	old := c.record
	value, text, line, err := f.find(e.key, s.Name)
	if err != nil {
		return err
	}
	c.Line = line
	there := text != ""
	if command := e.right(value, s); there && command != "" {
		c.State, c.Command, c.is = Right, command, c.was
		return nil
	}
	known := old.After != ""
	// What was written here and not touched since is as good as not written:
	// the new entry goes where the old one went.
	if known && old.Exact && digest(c.was) == old.After {
		base, err := revert(c.was, old.Edits)
		if err == nil && (digest(base) == old.Before || old.Created && len(base) == 0) {
			if f, err = e.parse(c.File, base); err != nil {
				return err
			}
			if _, text, _, err = f.find(e.key, s.Name); err != nil {
				return err
			}
			edits, keys, err := e.put(f, s, text != "")
			if err != nil {
				return err
			}
			c.is, c.State = apply(base, edits), Replaced
			c.record.Edits, c.record.Keys, c.record.After = edits, keys, digest(c.is)
			return e.verify(c.File, c.was, c.is, s)
		}
	}
	edits, keys, err := e.put(f, s, there)
	if err != nil {
		return err
	}
	c.is = apply(c.was, edits)
	r := record{After: digest(c.is), Created: !c.existed, Folders: c.folders, Keys: keys, Exact: true, Edits: edits}
	if c.existed {
		r.Before = digest(c.was)
	}
	c.State = Added
	if there {
		c.State, c.Asks = Replaced, !known || !Ours(value)
		if Ours(value) {
			// It is not put back: who takes the server out wants it gone.
			r.Exact, r.Edits, r.Before = false, nil, ""
		} else {
			r.Was = text
		}
		if known {
			r.Created, r.Folders, r.Keys, r.Was, r.Exact, r.Edits = old.Created, old.Folders, old.Keys, old.Was, false, nil
		}
	}
	c.record = r
	return e.verify(c.File, c.was, c.is, s)
}

func (e Editor) put(f file, s Server, there bool) ([]edit, []string, error) {
	if there {
		edits, err := f.replace(e.key, s.Name, e.entry(s), "")
		return edits, nil, err
	}
	return f.add(e.key, s.Name, e.entry(s))
}

// Removal says what it takes to have the entry out of a file again, and the
// file as it was. An entry of another's stays unless force is true.
func (e Editor) Removal(path, within, name, past string, force bool) (*Change, error) {
	c, err := open(path, within, past)
	if err != nil {
		return nil, err
	}
	return c, e.removal(c, name, force)
}

func (e Editor) removal(c *Change, name string, force bool) error {
	c.Editor, c.State, c.is = e.Name, Absent, c.was
	old := c.record
	c.folders = old.Folders
	if !c.existed {
		return nil
	}
	if old.Exact && digest(c.was) == old.After {
		b, err := revert(c.was, old.Edits)
		if err == nil && (old.Created || digest(b) == old.Before) {
			c.State, c.is, c.vanishes = Removed, b, old.Created
			return nil
		}
	}
	f, err := e.parse(c.File, c.was)
	if err != nil {
		return err
	}
	value, text, line, err := f.find(e.key, name)
	if err != nil || text == "" {
		return err
	}
	c.Line = line
	if !Ours(value) && !force {
		c.State = Foreign
		return nil
	}
	var edits []edit
	if old.Was != "" {
		edits, err = f.replace(e.key, name, nil, old.Was)
	} else {
		edits, err = f.remove(e.key, name, old.Keys)
	}
	if err != nil {
		return err
	}
	c.State, c.is = Removed, apply(c.was, edits)
	if err := e.verify(c.File, c.was, c.is, Server{Name: name}); err != nil {
		return err
	}
	if f, err = e.parse(c.File, c.is); err == nil {
		c.vanishes = old.Created && f.bare()
	}
	return nil
}

// open reads a file that may be there.
func open(path, within, past string) (*Change, error) {
	c := &Change{File: path, within: within}
	if past != "" {
		if err := json.Unmarshal([]byte(past), &c.record); err != nil {
			c.record = record{} // then it is as if nothing were known
		}
	}
	var err error
	if c.target, err = resolve(path, within); err != nil {
		return nil, err
	}
	if c.was, c.existed, err = read(path, c.target); err != nil {
		return nil, err
	}
	if !c.existed {
		for dir := filepath.Dir(c.target); !isThere(dir); dir = filepath.Dir(dir) {
			c.folders = append([]string{dir}, c.folders...)
		}
	}
	return c, nil
}

// Record is what to remember for Plan and Removal.
func (c *Change) Record() string {
	b, err := json.Marshal(c.record)
	if err != nil {
		panic(err) // strings and numbers
	}
	return string(b)
}

// Writes reports whether anything is to be done.
func (c *Change) Writes() bool { return c.State == Added || c.State == Replaced || c.State == Removed }

// New reports whether the file is not there yet.
func (c *Change) New() bool { return !c.existed }

// Vanishes reports whether the file goes.
func (c *Change) Vanishes() bool { return c.vanishes }

// WriteDiff shows what changes in the file.
func (c *Change) WriteDiff(w io.Writer) {
	is := string(c.is)
	if c.vanishes {
		is = ""
	}
	writeDiff(w, string(c.was), is)
}

// ErrChanged is what Commit returns when the file is not as it was when the
// change was planned: plan again.
var ErrChanged = errors.New("the file has been changed meanwhile")

// Keep is called with what a file was before it is changed.
type Keep func(path string, content []byte) (kept string, err error)

// Commit does it, and returns where the file is kept as it was; "" where there
// was nothing of anybody else in it.
func (c *Change) Commit(keep Keep) (kept string, err error) {
	if !c.Writes() {
		return "", nil
	}
	// What was made here and is as it was left is in nobody's way.
	if c.existed && !(c.vanishes && digest(c.was) == c.record.After) {
		if kept, err = keep(c.File, c.was); err != nil {
			return "", err
		}
	}
	// What was planned was planned for this file with this content.
	target, err := resolve(c.File, c.within)
	if err == nil {
		var now []byte
		var there bool
		now, there, err = read(c.File, target)
		if err == nil && (target != c.target || there != c.existed || !bytes.Equal(now, c.was)) {
			err = &Error{Path: c.File, Reason: "has been changed meanwhile, so nothing was written", Err: ErrChanged}
		}
	}
	if err != nil {
		return kept, err
	}
	if c.vanishes {
		if err := os.Remove(c.target); err != nil {
			return kept, fmt.Errorf("removing what was made for the entry: %w", err)
		}
		for _, dir := range slices.Backward(c.folders) {
			if os.Remove(dir) != nil {
				break // somebody has put something there
			}
		}
		return kept, nil
	}
	return kept, write(c.target, c.is, c.existed, c.within == "")
}

// resolve follows links to the file that is really meant.
func resolve(path, within string) (string, error) {
	target := path
	info, err := os.Lstat(path)
	switch {
	case err == nil && info.Mode()&os.ModeSymlink != 0:
		if target, err = filepath.EvalSymlinks(path); err != nil {
			return "", &Error{Path: path, Reason: "is a link to what is not there", Err: err}
		}
	case err == nil || isNotExist(err):
		// The nearest folder that is there may be a link.
		dir, rest := filepath.Dir(path), filepath.Base(path)
		for !isThere(dir) && filepath.Dir(dir) != dir {
			dir, rest = filepath.Dir(dir), filepath.Join(filepath.Base(dir), rest)
		}
		if dir, err = filepath.EvalSymlinks(dir); err != nil {
			return "", &Error{Path: path, Reason: "cannot be reached: " + err.Error(), Err: err}
		}
		target = filepath.Join(dir, rest)
	default:
		return "", &Error{Path: path, Reason: "cannot be looked at: " + err.Error(), Err: err}
	}
	if within != "" {
		root, err := filepath.EvalSymlinks(within)
		if err != nil {
			return "", fmt.Errorf("finding the checkout: %w", err)
		}
		if rel, err := filepath.Rel(root, target); err != nil || !filepath.IsLocal(rel) {
			return "", &Error{Path: path, Reason: "leads out of the checkout, to " + target}
		}
	}
	return target, nil
}

// maxFile is far more than editors keep: some keep their history in it.
const maxFile = 64 << 20

func read(path, target string) (b []byte, there bool, err error) {
	info, err := os.Lstat(target)
	switch {
	case isNotExist(err):
		return nil, false, nil
	case err != nil:
	case !info.Mode().IsRegular():
		return nil, false, &Error{Path: path, Reason: "is no regular file"}
	case info.Size() > maxFile:
		return nil, false, &Error{Path: path, Reason: fmt.Sprintf("has more than %d bytes", maxFile)}
	default:
		b, err = os.ReadFile(target)
	}
	if err != nil {
		return nil, false, &Error{Path: path, Reason: "cannot be read: " + err.Error(), Err: err}
	}
	return b, true, nil
}

// write puts a file in the place of another, or a new one where there is none.
// It is there as a whole or not at all, with the rights and owner of the other.
func write(target string, b []byte, existed, private bool) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("writing %s: %w", target, err)
		}
	}()
	file, folder := os.FileMode(0o666), os.FileMode(0o777)
	if private {
		file, folder = 0o600, 0o700
	}
	var info os.FileInfo
	if existed {
		if info, err = os.Lstat(target); err != nil {
			return err
		}
		if info.Mode().Perm()&0o222 == 0 {
			return errors.New("it is for reading only")
		}
		file = 0o600
	} else if err := os.MkdirAll(filepath.Dir(target), folder); err != nil {
		return err
	}
	f, err := os.OpenFile(target+"."+strings.ToLower(rand.Text()[:8]), os.O_WRONLY|os.O_CREATE|os.O_EXCL, file)
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // ignore error: it has its name by then
	if _, err = f.Write(b); err == nil && existed {
		if err = sameOwner(f, info); err == nil {
			err = f.Chmod(info.Mode().Perm())
		}
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), target)
}

// Starts returns the words that the entry in a file starts, and its line; none is
// no error.
func (e Editor) Starts(path, name string) (words []string, line int, err error) {
	c, err := open(path, "", "")
	if err != nil {
		return nil, 0, err
	}
	f, err := e.parse(path, c.was)
	if err != nil {
		return nil, 0, err
	}
	value, _, line, err := f.find(e.key, name)
	return wordsOf(value), line, err
}

// Ours reports whether an entry starts this program as an editor does, by
// whatever path.
func Ours(entry any) bool {
	words := wordsOf(entry)
	if len(words) < 2 || words[1] != "mcp" {
		return false
	}
	name := words[0][strings.LastIndexAny(words[0], `/\`)+1:]
	return strings.TrimSuffix(strings.ToLower(name), ".exe") == "majordomus"
}

// wordsOf is what an entry starts, in whichever shape.
func wordsOf(entry any) []string {
	m, _ := entry.(map[string]any)
	all, ok := m["command"].([]any)
	if !ok {
		args, _ := m["args"].([]any)
		all = append([]any{m["command"]}, args...)
	}
	var words []string
	for _, word := range all {
		s, ok := word.(string)
		if !ok {
			return nil
		}
		words = append(words, s)
	}
	return words
}

// right returns the command of an entry that does what one of ours would, or
// "". What else a person has put into it is his.
func (e Editor) right(entry any, s Server) string {
	m, ok := entry.(map[string]any)
	if !ok || m["disabled"] == true || m["enabled"] == false {
		return ""
	}
	for _, command := range append([]string{s.Command}, s.Also...) {
		all := true
		for _, f := range e.entry(Server{Name: s.Name, Command: command, Args: s.Args}) {
			is, there := m[f.key]
			all = all && (same(is, meaning(f.value)) || !there && f.value == true)
		}
		if all {
			return command
		}
	}
	return ""
}

// meaning is a field's value as a parser returns it.
func meaning(v any) any {
	list, ok := v.([]string)
	if !ok {
		return v
	}
	all := make([]any, len(list))
	for i, s := range list {
		all[i] = s
	}
	return all
}

// same compares what files mean.
func same(a, b any) bool {
	switch x := a.(type) {
	case map[string]any:
		y, ok := b.(map[string]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for k, v := range x {
			if w, ok := y[k]; !ok || !same(v, w) {
				return false
			}
		}
		return true
	case []any:
		y, ok := b.([]any)
		return ok && slices.EqualFunc(x, y, same)
	case float64:
		y, ok := b.(float64)
		return ok && (x == y || math.IsNaN(x) && math.IsNaN(y))
	}
	return reflect.DeepEqual(a, b)
}

// verify makes sure of what the edits have made: all but the entry means what
// it meant, and the entry is what it shall be. A server without a command is
// one that was taken out, or put back.
func (e Editor) verify(path string, was, is []byte, s Server) error {
	wrong := func(why string, err error) error {
		return &Error{Path: path, Reason: "cannot be edited without changing what else is in it (" + why + "); it was left alone", Err: err}
	}
	f, err := e.parse(path, is)
	if err != nil {
		return wrong(err.Error(), err)
	}
	if s.Command != "" {
		value, _, _, err := f.find(e.key, s.Name)
		if err != nil || e.right(value, s) == "" {
			return wrong("the entry is not as it should be", err)
		}
	}
	rest := func(b []byte) any {
		f, err := e.parse(path, b)
		if err != nil {
			return err
		}
		tree, err := f.tree()
		if err != nil {
			return err
		}
		root, _ := tree.(map[string]any)
		servers, _ := root[e.key].(map[string]any)
		delete(servers, s.Name)
		if len(servers) == 0 {
			delete(root, e.key) // it may have been made, or have gone
		}
		return root
	}
	if !same(rest(was), rest(is)) {
		return wrong("something else would change", nil)
	}
	return nil
}
