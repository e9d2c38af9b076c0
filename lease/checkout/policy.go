package checkout

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"
)

// A PolicyError says what is wrong in a file of the checkout's .ai folder, in
// words for who wrote it.
type PolicyError struct {
	File   string
	Line   int    // from 1; 0 where no one line is to blame
	Key    string // as server.idle_seconds; "" where no one key is
	Reason string
}

func (e *PolicyError) Error() string {
	var b strings.Builder
	b.WriteString(e.File)
	if e.Line > 0 {
		fmt.Fprintf(&b, ":%d", e.Line)
	}
	if e.Key != "" {
		b.WriteString(": " + e.Key)
	}
	return b.String() + ": " + e.Reason
}

// Policy is what a checkout decides about its server: the block "server" of
// its policy file.
type Policy struct {
	BindGrace       time.Duration // how long a lease without an address may be before it counts as abandoned
	BusyGrace       time.Duration // how long a live owner that does not answer is waited for
	JoinTimeout     time.Duration // how long a process tries to acquire or join
	ProbeTimeout    time.Duration // how long one probe waits
	ReadDeadline    time.Duration // how long a connection may go without a request read in full
	Idle            time.Duration // how long a server outlives its last peer
	SessionIdle     time.Duration // when an HTTP session without request or stream is forgotten
	MaxMessageBytes int64         // the largest message on any leg
	ObservePaths    bool          // are paths that calls of hosted tools name shown to others
	Autostart       bool          // may a shell that enters the checkout bring its server up
}

// DefaultPolicy is the policy of a checkout that says nothing. Editors allow 3
// to 10 seconds for a first answer: the graces and the join timeout stay inside
// that.
func DefaultPolicy() Policy {
	return Policy{
		BindGrace:       15 * time.Second,
		BusyGrace:       3 * time.Second,
		JoinTimeout:     8 * time.Second,
		ProbeTimeout:    time.Second,
		ReadDeadline:    30 * time.Second,
		Idle:            15 * time.Minute,
		SessionIdle:     30 * time.Minute,
		MaxMessageBytes: 64 << 20,
		ObservePaths:    true,
		Autostart:       true,
	}
}

// Policy returns what the checkout's policy file says. Once it was read without
// an error it is the same ever after; after an error the next call looks again,
// because a process that outlives the mending is to see it. The block "server" is strict: an unknown key or
// a bad value is a *PolicyError, since a misspelt limit that silently does not
// hold is found when it is needed. All else in the file belongs to others. No
// file means the defaults.
func (c *Checkout) Policy() (Policy, error) {
	c.policyMu.Lock()
	defer c.policyMu.Unlock()
	if c.policy == nil {
		p, err := readPolicy(c.PolicyFile)
		if err != nil {
			return p, err
		}
		c.policy = &p
	}
	return *c.policy, nil
}

func readPolicy(path string) (Policy, error) {
	p := DefaultPolicy()
	b, err := readSmall(path, 1<<20)
	if errors.Is(err, fs.ErrNotExist) {
		return p, nil
	}
	if err != nil {
		return p, fmt.Errorf("reading the policy: %w", err)
	}
	top, err := readYAML(path, b)
	if err != nil || top == nil {
		return p, err
	}
	block := member(top, "server")
	if block == nil || isNull(block) {
		return p, nil
	}
	fail := func(n *yaml.Node, key, reason string) (Policy, error) {
		return DefaultPolicy(), &PolicyError{path, n.Line, key, reason}
	}
	if block.Kind != yaml.MappingNode {
		return fail(block, "server", "must be a block of keys")
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(block.Content); i += 2 {
		key, value := block.Content[i], deref(block.Content[i+1])
		name := "server." + key.Value
		if key.Kind != yaml.ScalarNode {
			return fail(key, "server", "has a key that is not a word")
		}
		if seen[key.Value] {
			return fail(key, name, "is there twice")
		}
		seen[key.Value] = true
		reason := set(&p, key.Value, value)
		if reason == unknownKey {
			reason += "; known are " + policyKeyNames()
		}
		if reason != "" {
			return fail(value, name, reason)
		}
	}
	return p, nil
}

const unknownKey = "is not a key of this block"

// policyKeys are the keys of the block, in the order in which people are shown
// them, and what each decides.
var policyKeys = []struct{ name, decides string }{
	{"bind_grace_seconds", "how long a lease may be without an address"},
	{"busy_grace_seconds", "how long a silent server is waited for"},
	{"join_timeout_seconds", "how long to try before serving a client alone"},
	{"probe_timeout_seconds", "how long one look at a server may take"},
	{"read_deadline_seconds", "for a request to be read in full"},
	{"idle_seconds", "how long a server outlives its last editor"},
	{"session_idle_seconds", "when a silent HTTP session is forgotten"},
	{"max_message_bytes", "the largest message"},
	{"observe_paths", "show others which paths a client's calls name"},
	{"autostart", "may a shell that enters the checkout start it"},
}

func policyKeyNames() string {
	var names []string
	for _, k := range policyKeys {
		names = append(names, k.name)
	}
	return strings.Join(names, ", ")
}

// PolicyText is a policy file that decides nothing yet: every key with its
// default, in comments.
func PolicyText() string {
	p := DefaultPolicy()
	var b strings.Builder
	b.WriteString(`# What this checkout decides about its majordomus server, which reads it when it
# starts. Each key is shown with its default: take the # before it away to set
# another value. No file, or no line, means the default.
server:
`)
	for _, k := range policyKeys {
		fmt.Fprintf(&b, "  # %-28s # %s\n", k.name+": "+get(p, k.name), k.decides)
	}
	return b.String()
}

// durations are the keys of p that are a number of seconds.
func durations(p *Policy) map[string]*time.Duration {
	return map[string]*time.Duration{
		"bind_grace_seconds":    &p.BindGrace,
		"busy_grace_seconds":    &p.BusyGrace,
		"join_timeout_seconds":  &p.JoinTimeout,
		"probe_timeout_seconds": &p.ProbeTimeout,
		"read_deadline_seconds": &p.ReadDeadline,
		"idle_seconds":          &p.Idle,
		"session_idle_seconds":  &p.SessionIdle,
	}
}

// get is one key of p as a file has it.
func get(p Policy, key string) string {
	if d, ok := durations(&p)[key]; ok {
		return strconv.FormatFloat(d.Seconds(), 'f', -1, 64)
	}
	switch key {
	case "max_message_bytes":
		return strconv.FormatInt(p.MaxMessageBytes, 10)
	case "observe_paths":
		return strconv.FormatBool(p.ObservePaths)
	case "autostart":
		return strconv.FormatBool(p.Autostart)
	}
	return ""
}

// set sets one key of p and returns why it cannot, or "".
func set(p *Policy, key string, value *yaml.Node) string {
	if to, ok := durations(p)[key]; ok {
		const most = 10 * 365 * 24 * 3600
		var n float64
		if !isNumber(value) || value.Decode(&n) != nil {
			return "must be a number of seconds, not " + shown(value)
		}
		if !(n >= 0.001 && n <= most) { // also what is not a number
			return fmt.Sprintf("must be from 0.001 to %d seconds, not %s", most, shown(value))
		}
		*to = time.Duration(math.Round(n * float64(time.Second)))
		return ""
	}
	switch key {
	case "max_message_bytes":
		var n int64
		if value.Kind != yaml.ScalarNode || value.Tag != "!!int" || value.Decode(&n) != nil || n < 1 {
			return "must be a whole number of bytes above 0, not " + shown(value)
		}
		p.MaxMessageBytes = n
	case "observe_paths", "autostart":
		to := &p.Autostart
		if key == "observe_paths" {
			to = &p.ObservePaths
		}
		if value.Kind != yaml.ScalarNode || value.Tag != "!!bool" || value.Decode(to) != nil {
			return "must be true or false, not " + shown(value)
		}
	default:
		return unknownKey
	}
	return ""
}

// readYAML returns the top mapping of a file of one document, nil when it is
// empty. Everything that is wrong with it is a *PolicyError.
func readYAML(path string, b []byte) (*yaml.Node, error) {
	dec := yaml.NewDecoder(bytes.NewReader(b))
	var doc, more yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, badYAML(path, err)
	}
	if err := dec.Decode(&more); err == nil {
		return nil, &PolicyError{path, more.Line, "", "a second document begins here; only one is read"}
	} else if !errors.Is(err, io.EOF) {
		return nil, badYAML(path, err)
	}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) != 1 || isNull(doc.Content[0]) {
		return nil, nil
	}
	top := deref(doc.Content[0])
	if top.Kind != yaml.MappingNode {
		return nil, &PolicyError{path, top.Line, "", "must be a mapping of keys at the top"}
	}
	return top, nil
}

// badYAML takes the line out of the parser's message, "yaml: line 3: text".
func badYAML(path string, err error) error {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	line := 0
	if rest, ok := strings.CutPrefix(text, "line "); ok {
		if number, after, ok := strings.Cut(rest, ": "); ok {
			if n, err := strconv.Atoi(number); err == nil {
				line, text = n, after
			}
		}
	}
	return &PolicyError{path, line, "", "is not YAML: " + text}
}

// member is the value of a key in a mapping, the first if there are more, or
// nil.
func member(m *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(m.Content); i += 2 {
		if m.Content[i].Kind == yaml.ScalarNode && m.Content[i].Value == key {
			return deref(m.Content[i+1])
		}
	}
	return nil
}

// deref follows an alias; an alias of an alias cannot be written.
func deref(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode && n.Alias != nil {
		return n.Alias
	}
	return n
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

func isNumber(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && (n.Tag == "!!int" || n.Tag == "!!float")
}

// shown is a value as its file has it, cut where it is long.
func shown(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a block of keys"
	case yaml.SequenceNode:
		return "a list"
	}
	if isNull(n) {
		return "nothing"
	}
	s := n.Value
	if r := []rune(s); len(r) > 40 {
		s = string(r[:40]) + "…"
	}
	return strconv.Quote(s)
}

// splitPath returns the elements of a clean relative path.
func splitPath(rel string) []string {
	if rel == "." {
		return nil
	}
	return strings.Split(rel, string(filepath.Separator))
}
