package config

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Merged is what Merge makes of two files.
type Merged struct {
	Bytes   []byte            // the servers file afterwards; what was there is as it was
	Taken   []string          // the entries that were added
	Present []string          // those that were there already and say the same
	Skipped []Skipped         // those that cannot be taken
	Itself  bool              // the editor starts majordomus already
	Env     map[string]string // what the entries need in the environment file beyond what is there
}

// Skipped is an entry that was left where it is.
type Skipped struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// editorKeys are where editors keep their servers; the first that a file has
// counts.
var editorKeys = []string{keyServers, keyVSCode, keyZed, "amp.mcpServers"}

// Merge adds to a servers file what an editor's file hosts. Entries are taken as
// they are written, comments and unknown keys with them; an editor's own words
// (httpUrl, serverUrl, Zed's command in parts, lists of tools) become ours.
//
// A servers file is shared and an editor's often is not: what looks like a
// secret becomes a variable, and its value is in Env, for the environment file
// whose variables env are. It can only look at names and well-known shapes.
func Merge(servers, editor []byte, env map[string]string) (Merged, error) {
	into, err := parseTree("the servers file", servers)
	if err != nil {
		return Merged{}, err
	}
	have, err := into.servers(keyServers)
	if err != nil {
		return Merged{}, err
	}
	from, entries, err := editorServers(editor)
	if err != nil {
		return Merged{}, err
	}
	present := map[string]*member{}
	if have != nil {
		for i := range have.members {
			present[have.members[i].name.text] = &have.members[i]
		}
	}
	count := map[string]int{}
	for _, m := range entries.members {
		count[m.name.text]++
	}
	out := Merged{}
	hide := newHider(env)
	var items []item
	for _, m := range entries.members {
		name := m.name.text
		skip := func(reason string) { out.Skipped = append(out.Skipped, Skipped{name, reason}) }
		if count[name] > 1 {
			if count[name] < 1<<30 {
				skip("is there twice: which one is meant?")
			}
			count[name] = 1 << 30
			continue
		}
		one, plain, reason := from.takeOver(m)
		if reason == itself {
			out.Itself = true
		}
		if reason != "" {
			skip(reason)
			continue
		}
		try := hide.clone()
		s, hidden := try.entry(one)
		if there := present[name]; there != nil {
			was, off, problems := into.server(keyServers, *there)
			switch {
			case off || len(problems) > 0 || !was.Equal(s) && !was.Equal(plain):
				skip("is there already and says something else")
			default:
				out.Present = append(out.Present, name)
				hide = try // who has not got the values yet needs them
			}
			continue
		}
		hide = try
		items = append(items, item{string(from.b[m.name.start:m.name.end]), hidden})
		out.Taken = append(out.Taken, name)
	}
	out.Env = hide.added
	if out.Bytes = into.add(have, items); len(out.Bytes) > maxFile {
		return Merged{}, &Error{into.path, Problem{Reason: fmt.Sprintf("would be larger than %d bytes", maxFile)}}
	}
	return out, nil
}

// TakeOut is an editor's file without the entries of these names. Every other
// byte is as it was, but for a comma that would have nothing to separate.
func TakeOut(editor []byte, names []string) ([]byte, error) {
	t, entries, err := editorServers(editor)
	if err != nil {
		return nil, err
	}
	var edits []edit
	var kept *member
	last := -1 // the last member that stays
	for i := range entries.members {
		if !slices.Contains(names, entries.members[i].name.text) {
			kept, last = &entries.members[i], i
		}
	}
	for i := range entries.members {
		m := &entries.members[i]
		if !slices.Contains(names, m.name.text) {
			continue
		}
		start, end := m.name.start, m.value.end
		if m.comma >= 0 {
			end = m.comma + 1
		}
		lead, trail := start, end
		for lead > 0 && isBlank(t.b[lead-1]) {
			lead--
		}
		for trail < len(t.b) && isBlank(t.b[trail]) {
			trail++
		}
		rest := t.b[trail:]
		switch {
		case lead > 0 && t.b[lead-1] == '\n' && bytes.HasPrefix(rest, []byte("\r\n")):
			start, end = lead, trail+2
		case lead > 0 && t.b[lead-1] == '\n' && bytes.HasPrefix(rest, []byte("\n")):
			start, end = lead, trail+1
		case i > last:
			start = lead
		default:
			end = trail
		}
		edits = append(edits, edit{start, end, ""})
	}
	// Strict readers want no comma after the last member.
	if n := len(entries.members); kept != nil && last < n-1 && entries.members[n-1].comma < 0 {
		edits = append(edits, edit{kept.comma, kept.comma + 1, ""})
	}
	return t.apply(edits), nil
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' }

// editorServers finds where an editor's file keeps its servers.
func editorServers(b []byte) (*tree, *node, error) {
	t, err := parseTree("the editor's file", b)
	if err != nil {
		return nil, nil, err
	}
	for _, key := range editorKeys {
		n, err := t.servers(key)
		if n != nil || err != nil {
			return t, n, err
		}
	}
	return nil, nil, &Error{t.path, Problem{Reason: "has no servers: none of " + strings.Join(editorKeys, ", ") + " is there"}}
}

// itself is the reason for not taking the entry that every editor keeps.
const itself = "is majordomus itself, which the editor starts"

// takeOver reads an editor's entry and gives it our words. The tree has one
// member, the entry as it is to be written; reason is why it cannot be.
func (t *tree) takeOver(m member) (one *tree, s Server, reason string) {
	text := t.reindented(m)
	if m.value.kind == '{' {
		var err error
		if text, err = t.translated(m, text); err != nil {
			return nil, s, err.Error()
		}
	}
	one, err := parseTree("", []byte("{"+string(t.b[m.name.start:m.name.end])+": "+text+"}"))
	if err != nil {
		return nil, s, err.Error() // translated wrote something odd
	}
	s, off, problems := one.server(keyServers, one.root.members[0])
	switch {
	case s.HostsItself(0):
		return nil, s, itself
	case off:
		return nil, s, "is switched off there"
	case len(problems) > 0:
		p := problems[0]
		p.Line = 0
		p.Key = strings.TrimPrefix(strings.TrimPrefix(p.Key, keyServers+"."+shownName(s.Name)), ".")
		return nil, s, p.String()
	}
	// What the editor would ask for or run is not there without it.
	if _, err := s.variables(); err != nil {
		return nil, s, strings.TrimPrefix(err.Error(), keyServers+"."+shownName(s.Name)+".")
	}
	return one, s, ""
}

// translated is the text of an entry in our words; as it is where those are
// used already.
func (t *tree) translated(m member, asItIs string) (string, error) {
	raw := func(n *node) json.RawMessage { return json.RawMessage(standard(t.b, n)) }
	at := func(key string) *node {
		if found := m.value.member(key); found != nil && found.value.kind != 'n' {
			return &found.value
		}
		return nil
	}
	// In this order they are written.
	to := struct {
		Type    json.RawMessage `json:"type,omitempty"`
		Command json.RawMessage `json:"command,omitempty"`
		Args    json.RawMessage `json:"args,omitempty"`
		Env     json.RawMessage `json:"env,omitempty"`
		Cwd     json.RawMessage `json:"cwd,omitempty"`
		URL     json.RawMessage `json:"url,omitempty"`
		Headers json.RawMessage `json:"headers,omitempty"`
		Own     json.RawMessage `json:"majordomus,omitempty"`
		// These only speak against the entry.
		Disabled      json.RawMessage `json:"disabled,omitempty"`
		Enabled       json.RawMessage `json:"enabled,omitempty"`
		OAuth         json.RawMessage `json:"oauth,omitempty"`
		Auth          json.RawMessage `json:"auth,omitempty"`
		HeadersHelper json.RawMessage `json:"headersHelper,omitempty"`
		EnvFile       json.RawMessage `json:"envFile,omitempty"`
	}{}
	changed := false
	seen := map[string]bool{}
	for _, one := range m.value.members {
		if seen[one.name.text] {
			return "", fmt.Errorf("%s: is there twice", shownName(one.name.text))
		}
		seen[one.name.text] = true
	}
	for key, field := range map[string]*json.RawMessage{
		"type": &to.Type, "command": &to.Command, "args": &to.Args, "env": &to.Env, "cwd": &to.Cwd, "url": &to.URL, "headers": &to.Headers,
		keyOwn: &to.Own, "disabled": &to.Disabled, "enabled": &to.Enabled, "oauth": &to.OAuth, "auth": &to.Auth,
		"headersHelper": &to.HeadersHelper, "envFile": &to.EnvFile,
	} {
		if n := at(key); n != nil {
			*field = raw(n)
		}
	}
	if n := at("command"); n != nil && n.kind == '{' { // Zed, before 2025
		to.Command = nil
		for key, field := range map[string]*json.RawMessage{"path": &to.Command, "args": &to.Args, "env": &to.Env} {
			if part := n.member(key); part != nil && part.value.kind != 'n' {
				*field = raw(&part.value)
			}
		}
		changed = true
	}
	for _, key := range []string{"serverUrl", "httpUrl"} { // Windsurf; Gemini, whose "url" is the older transport
		if n := at(key); n != nil {
			to.URL, changed = raw(n), true
		}
	}
	if at("command") == nil && to.URL == nil && at("settings") != nil {
		return "", errors.New("belongs to an extension of the editor")
	}
	for _, key := range []string{"excludeTools", "disabledTools", "disabled_tools"} {
		if n := at(key); n != nil && len(n.elements) > 0 {
			return "", fmt.Errorf("%s: cannot be kept: name the tools that are allowed, in %q", key, keyOwn+".tools")
		}
	}
	for _, key := range []string{"tools", "includeTools", "enabledTools", "enabled_tools"} {
		n := at(key)
		if n == nil || n.kind != '[' || slices.ContainsFunc(n.elements, func(e node) bool { return e.text == "*" }) {
			continue
		}
		if at(keyOwn) == nil {
			own, err := json.Marshal(map[string]json.RawMessage{"tools": raw(n)})
			if err != nil {
				return "", err
			}
			to.Own, changed = own, true
		}
	}
	if !changed {
		return asItIs, nil
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "\t")
	if err := enc.Encode(to); err != nil {
		return "", err
	}
	return strings.TrimSpace(b.String()), nil
}

// standard is a value as JSON without comments and trailing commas.
func standard(b []byte, n *node) string {
	var out strings.Builder
	switch n.kind {
	case '{':
		for i := range n.members {
			m := &n.members[i]
			out.WriteString(between(i, "{", ","))
			out.WriteString(string(b[m.name.start:m.name.end]) + ":" + standard(b, &m.value))
		}
		if len(n.members) == 0 {
			out.WriteString("{")
		}
		out.WriteString("}")
	case '[':
		for i := range n.elements {
			out.WriteString(between(i, "[", ","))
			out.WriteString(standard(b, &n.elements[i]))
		}
		if len(n.elements) == 0 {
			out.WriteString("[")
		}
		out.WriteString("]")
	default:
		out.Write(b[n.start:n.end])
	}
	return out.String()
}

func between(i int, first, others string) string {
	if i == 0 {
		return first
	}
	return others
}

// An item is a member to be added: its name as JSON, and its value with lines
// that are indented by tabs, from none.
type item struct{ name, value string }

// reindented is a member's value as an item has it.
func (t *tree) reindented(m member) string {
	lines := strings.Split(string(t.b[m.value.start:m.value.end]), "\n")
	base := t.indent(m.name.start)
	unit := ""
	for i := range lines {
		lines[i] = strings.TrimSuffix(lines[i], "\r")
		if i == 0 {
			continue
		}
		text := strings.TrimLeft(lines[i], " \t")
		lead, ok := strings.CutPrefix(lines[i][:len(lines[i])-len(text)], base)
		if !ok {
			lead = ""
		}
		if unit == "" {
			unit = lead
		}
		depth := 0
		for unit != "" && strings.HasPrefix(lead, unit) {
			depth, lead = depth+1, lead[len(unit):]
		}
		lines[i] = strings.Repeat("\t", depth) + text
	}
	return strings.Join(lines, "\n")
}

// indent is the white space that the line of an offset begins with.
func (t *tree) indent(at int) string {
	line := t.b[bytes.LastIndexByte(t.b[:at], '\n')+1:]
	line = bytes.TrimPrefix(line, []byte(byteOrderMark))
	return string(line[:len(line)-len(bytes.TrimLeft(line, " \t"))])
}

// onItsLine reports whether nothing but white space is before at on its line.
func (t *tree) onItsLine(at int) bool {
	line := t.b[bytes.LastIndexByte(t.b[:at], '\n')+1 : at]
	return len(bytes.TrimLeft(line, " \t")) == 0
}

// add is the file with members added to the object of servers, which is made
// where it is nil.
func (t *tree) add(servers *node, items []item) []byte {
	if len(items) == 0 {
		return t.b
	}
	eol := "\n"
	if bytes.Contains(t.b, []byte("\r\n")) {
		eol = "\r\n"
	}
	unit := "  "
	if ms := t.root.members; len(ms) > 0 && t.onItsLine(ms[0].name.start) {
		if lead := t.indent(ms[0].name.start); lead != "" {
			unit = lead
		}
	}
	object := func() string { // of the items, indented from none
		var b strings.Builder
		for i, it := range items {
			b.WriteString(between(i, "{\n\t", ",\n\t") + it.name + ": " + strings.ReplaceAll(it.value, "\n", "\n\t"))
		}
		return b.String() + "\n}"
	}
	lay := func(text, indent string) string { // from tabs and \n to the file's own
		lines := strings.Split(text, "\n")
		for i, line := range lines {
			rest := strings.TrimLeft(line, "\t")
			if lines[i] = strings.Repeat(unit, len(line)-len(rest)) + rest; i > 0 && rest != "" {
				lines[i] = indent + lines[i]
			}
		}
		return strings.Join(lines, eol)
	}
	switch m := t.root.member(keyServers); {
	case t.root.kind == 0: // nothing but comments
		before := string(t.b)
		if rest := strings.TrimPrefix(before, byteOrderMark); rest != "" && !strings.HasSuffix(rest, "\n") {
			before += eol
		}
		return []byte(before + lay("{\n\t\""+keyServers+"\": "+strings.ReplaceAll(object(), "\n", "\n\t")+"\n}\n", ""))
	case m == nil:
		return t.apply(t.addTo(&t.root, eol, unit, []item{{`"` + keyServers + `"`, object()}}, lay))
	case servers == nil: // null
		return t.apply([]edit{{m.value.start, m.value.end, lay(object(), t.indent(m.name.start))}})
	}
	return t.apply(t.addTo(servers, eol, unit, items, lay))
}

// addTo adds members after the last of an object, each on a line of its own.
func (t *tree) addTo(n *node, eol, unit string, items []item, lay func(text, indent string) string) (edits []edit) {
	closing := t.indent(n.start)
	indent := closing + unit
	at, comma := n.start+1, ""
	if len(n.members) > 0 {
		if first := n.members[0].name.start; t.onItsLine(first) {
			indent = t.indent(first)
		}
		last := n.members[len(n.members)-1]
		if at, comma = last.comma+1, ","; last.comma < 0 {
			at, comma = last.value.end, ""
			edits = append(edits, edit{at, at, ","})
		}
	}
	// Behind the comments that follow, and before the bracket's own line.
	end := n.end - 1
	space := at + len(bytes.TrimRight(t.b[at:end], " \t\r\n"))
	var b strings.Builder
	for i, it := range items {
		b.WriteString(between(i, "", ",") + eol + indent + it.name + ": " + lay(it.value, indent))
	}
	b.WriteString(comma)
	if !bytes.Contains(t.b[space:end], []byte("\n")) {
		b.WriteString(eol + closing)
		return append(edits, edit{space, end, b.String()})
	}
	return append(edits, edit{space, space, b.String()})
}

// An edit puts text in the place of some bytes.
type edit struct {
	start, end int
	text       string
}

func (t *tree) apply(edits []edit) []byte {
	slices.SortStableFunc(edits, func(a, b edit) int { return cmp.Compare(a.start, b.start) })
	var out []byte
	at := 0
	for _, e := range edits {
		out = append(append(out, t.b[at:e.start]...), e.text...)
		at = e.end
	}
	return append(out, t.b[at:]...)
}

// Rewrite puts a file in the place of another in one step, through links and
// with the mode it has, 0644 where it is new. Old is what the file was when the
// new bytes were made from it, nil for none: one that has changed since, as an
// editor's own configuration may, is left alone.
func Rewrite(path string, old, b []byte) error {
	return rewrite(path, old, b, 0o644)
}

func rewrite(path string, old, b []byte, mode fs.FileMode) error {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	now, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && old == nil:
	case err != nil:
		return fmt.Errorf("writing a file: %w", err)
	case old == nil || !bytes.Equal(now, old):
		return fmt.Errorf("writing %s: it has changed in the meantime", path)
	default:
		info, err := os.Stat(path)
		if err != nil {
			return fmt.Errorf("writing a file: %w", err)
		}
		mode = info.Mode().Perm()
	}
	root, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	defer root.Close() // ignore error: nothing is written through it
	if err := replaceFile(root, filepath.Base(path), b, mode, now != nil); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

// AppendEnv adds variables to an environment file, which is made for its owner
// alone where there is none. What is there stays as it is.
func AppendEnv(path string, env map[string]string) error {
	if _, err := ReadEnv(path); err != nil {
		return err
	}
	old, err := readSmall(path)
	if errors.Is(err, fs.ErrNotExist) {
		old, err = nil, nil
	}
	if err != nil {
		return fmt.Errorf("reading the environment file: %w", err)
	}
	b := bytes.Clone(old)
	if len(b) > 0 && b[len(b)-1] != '\n' {
		b = append(b, '\n')
	}
	for _, name := range slices.Sorted(maps.Keys(env)) {
		b = append(b, name+"="+quoteEnv(env[name])+"\n"...)
	}
	again, err := parseEnv(path, b)
	if err != nil {
		return err
	}
	for name, value := range env {
		if again[name] != value {
			return &Error{path, Problem{Key: name, Reason: "has a value that cannot be written into this file"}}
		}
	}
	return rewrite(path, old, b, 0o600)
}

func quoteEnv(value string) string {
	if !strings.ContainsAny(value, "'\n") {
		return "'" + value + "'"
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, `$`, `\$`, "\n", `\n`).Replace(value) + `"`
}
