package hub

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"majordomus/bridge/frame"
)

// The kinds of what a server offers: the member of a list's result, the method
// that lists it, and the capability that says so.
var kinds = [...]struct{ member, method, capability, key string }{
	{"tools", "tools/list", "tools", "name"},
	{"prompts", "prompts/list", "prompts", "name"},
	{"resources", "resources/list", "resources", "uri"},
	{"resourceTemplates", "resources/templates/list", "resources", "uriTemplate"},
}

// catalogue is what a hosted server offers, each entry as the server wrote it,
// by the index of its kind.
type catalogue [len(kinds)][]entry

type entry struct {
	key   string // its name, URI or template
	raw   []byte
	unfit string // why it is not listed; "" is no reason
}

func (c *catalogue) add(kind int, raw []byte) {
	if key, ok := frame.Text(frame.Get(raw, kinds[kind].key)); ok {
		c[kind] = append(c[kind], entry{key, raw, unfit(kind, raw)})
	}
}

// mostPages bounds what a server that never comes to an end can cost.
const mostPages = 1000

// fetch reads the whole catalogue.
func fetch(ctx context.Context, c hosted, capabilities []byte) (catalogue, error) {
	var all catalogue
	for i := range kinds {
		list, err := fetchKind(ctx, c, capabilities, i)
		if err != nil {
			return all, err
		}
		all[i] = list
	}
	return all, nil
}

// fetchKind reads the pages of one list to the end. What a server claims to have
// and cannot list is none; a cursor that does not advance ends it.
func fetchKind(ctx context.Context, c hosted, capabilities []byte, kind int) ([]entry, error) {
	k := kinds[kind]
	if frame.Get(capabilities, k.capability) == nil {
		return nil, nil
	}
	var found catalogue
	seen := map[string]bool{}
	params := []byte("{}")
	for range mostPages {
		m, err := c.call(ctx, k.method, params, nil)
		if err != nil {
			return nil, fmt.Errorf("listing %s: %w", k.member, err)
		}
		if m.Error != nil {
			if string(frame.Get(m.Error, "code")) == fmt.Sprint(frame.CodeMethodNotFound) {
				return nil, nil // many have resources and no templates
			}
			return nil, fmt.Errorf("listing %s: the hosted server answered %s", k.member, brief(m.Error))
		}
		err = frame.Elements(frame.Get(m.Result, k.member), func(raw []byte) bool {
			found.add(kind, raw)
			return true
		})
		if err != nil {
			return nil, fmt.Errorf("listing %s: the hosted server answered with something else than a list", k.member)
		}
		cursor := frame.Get(m.Result, "nextCursor")
		if text, ok := frame.Text(cursor); !ok || text == "" {
			return found[kind], nil
		}
		if seen[string(cursor)] {
			return found[kind], nil
		}
		seen[string(cursor)] = true
		params = append(append([]byte(`{"cursor":`), cursor...), '}')
	}
	return found[kind], nil
}

func (c catalogue) equal(other catalogue, kind int) bool {
	if len(c[kind]) != len(other[kind]) {
		return false
	}
	for i, e := range c[kind] {
		if !bytes.Equal(e.raw, other[kind][i].raw) {
			return false
		}
	}
	return true
}

// encode is the catalogue as it is kept.
func (c catalogue) encode() []byte {
	object := []byte("{}")
	for i, k := range kinds {
		var raws [][]byte
		for _, e := range c[i] {
			raws = append(raws, e.raw)
		}
		object = frame.AppendTo(object, k.member, raws)
	}
	return object
}

func decode(b []byte) (catalogue, error) {
	var c catalogue
	for i, k := range kinds {
		list := frame.Get(b, k.member)
		if list == nil {
			continue
		}
		err := frame.Elements(list, func(raw []byte) bool {
			c.add(i, raw)
			return true
		})
		if err != nil {
			return catalogue{}, fmt.Errorf("the kept catalogue is damaged: %w", err)
		}
	}
	return c, nil
}

// store keeps catalogues in a folder, so that lists can be answered before any
// hosted server is up.
type store struct{ dir string }

func (s store) path(server, key string) string {
	return filepath.Join(s.dir, fmt.Sprintf("%s-%.16s.json", publicName(server, ""), key))
}

// temporary is what a catalogue is called while it is written.
const temporary = ".new-*"

// sweep removes what servers left that were killed while they wrote. Nobody
// writes for long.
func (s store) sweep() {
	left, err := filepath.Glob(filepath.Join(s.dir, temporary))
	if err != nil {
		return // ignore error: the folder's name is no pattern
	}
	for _, path := range left {
		if info, err := os.Lstat(path); err == nil && time.Since(info.ModTime()) > time.Minute {
			os.Remove(path) // ignore error: tried again the next time
		}
	}
}

// load returns what was kept under the key, or false.
func (s store) load(server, key string) (catalogue, bool) {
	b, err := os.ReadFile(s.path(server, key))
	if err != nil {
		return catalogue{}, false
	}
	c, err := decode(b)
	return c, err == nil
}

// save replaces what was kept, and removes what was kept of the server under
// other keys.
func (s store) save(server, key string, c catalogue) error {
	if s.dir == "" {
		return nil
	}
	// No more than the folder itself: a checkout that was moved away is not to be
	// made again.
	if err := os.Mkdir(s.dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("keeping the catalogue of %s: %w", server, err)
	}
	s.sweep()
	f, err := os.CreateTemp(s.dir, temporary)
	if err != nil {
		return fmt.Errorf("keeping the catalogue of %s: %w", server, err)
	}
	_, err = f.Write(c.encode())
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), s.path(server, key))
	}
	if err != nil {
		os.Remove(f.Name()) // ignore error: at worst an unused file stays
		return fmt.Errorf("keeping the catalogue of %s: %w", server, err)
	}
	old, err := filepath.Glob(filepath.Join(s.dir, publicName(server, "")+"-*.json"))
	if err != nil {
		return nil // ignore error: a pattern of a name that is plain
	}
	for _, path := range old {
		if path != s.path(server, key) {
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("forgetting an old catalogue of %s: %w", server, err)
			}
		}
	}
	return nil
}

// brief is some text of somebody else's on one short line.
func brief(b []byte) string {
	b = bytes.ToValidUTF8(bytes.Join(bytes.Fields(b), []byte(" ")), []byte("?"))
	if len(b) > 200 {
		b = append(append([]byte(nil), b[:197]...), "…"...)
	}
	return string(bytes.ToValidUTF8(b, nil))
}
