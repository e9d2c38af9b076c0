package config

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// hider puts variables in the place of what looks like a secret.
type hider struct {
	env   map[string]string // what the environment file has
	added map[string]string // what must be added to it
}

func newHider(env map[string]string) *hider { return &hider{env, map[string]string{}} }

func (h *hider) clone() *hider { return &hider{h.env, maps.Clone(h.added)} }

// secrets are compiled when they are first asked for: every editor's process
// starts with this package in it, and next to none of them imports anything.
var secrets = sync.OnceValue(func() (p struct {
	name  *regexp.Regexp
	spans []*regexp.Regexp
}) {
	p.name = regexp.MustCompile(`(?i)token|secret|passw|passphrase|pwd|credential|(api|access|private|signing)[-_]?key|bearer|cookie|auth($|[-_]|or[iz]+ation)|(^|[-_])(key|pat|pass|dsn)$`)
	// The last group is the secret, the one before it, where there is one, its
	// name.
	for _, span := range []string{
		`([A-Za-z0-9_-]+)=([^&\s"';,]+)`,                            // --api-key=…, ?token=…, -e TOKEN=…
		`([A-Za-z0-9_-]+): ?(?:(?:Bearer|Basic|Token) )?([^\s"']+)`, // --header "Authorization: Bearer …"
		`://[^/\s:@]*:([^/\s@]+)@`,                                  // a password in an address
		// What providers give their keys to be known by, and signed tokens.
		`\b((?:sk|pk|rk)[-_][A-Za-z0-9_-]{16,})`,
		`\b((?:gh[opusr]_|github_pat_|glpat-|xox[abeprs]-|hf_|npm_|AKIA|ASIA|AIza)[\w-]{12,})`,
		`\b((?:ntn_|secret_|lin_api_|figd_|dop_v1_|pypi-|sbp_|shpat_|SG\.|key-)[A-Za-z0-9_.-]{16,})`,
		`\b(eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*)`,
	} {
		p.spans = append(p.spans, regexp.MustCompile(span))
	}
	return p
})

// entry hides what the one entry of a tree tells, and returns it and its text.
func (h *hider) entry(one *tree) (Server, string) {
	m := one.root.members[0]
	server := m.name.text
	var edits []edit
	put := func(n *node, text string) {
		if text != n.text {
			edits = append(edits, edit{n.start, n.end, quoteJSON(text)})
		}
	}
	for i := range m.value.members {
		key, v := m.value.members[i].name.text, &m.value.members[i].value
		switch key {
		case "env", "headers":
			for j := range v.members {
				name, value := v.members[j].name.text, &v.members[j].value
				put(value, h.named(server, name, value.text))
			}
		case "args":
			for j := range v.elements {
				arg := &v.elements[j]
				name := ""
				if j > 0 && strings.HasPrefix(v.elements[j-1].text, "-") && !strings.HasPrefix(arg.text, "-") {
					if name = strings.TrimLeft(v.elements[j-1].text, "-"); strings.Contains(name, "=") {
						name = ""
					}
				}
				put(arg, h.named(server, name, arg.text))
			}
		case "command", "url", "cwd":
			put(v, h.inside(server, v.text))
		}
	}
	b := one.apply(edits)
	again, err := parseTree("", b)
	if err != nil {
		panic(err) // strings took the place of strings
	}
	m = again.root.members[0]
	s, _, _ := again.server(keyServers, m) // ignore problems: it had none before
	return s, string(again.b[m.value.start:m.value.end])
}

// named hides a text that has a name, as a whole where the name says so.
func (h *hider) named(server, name, text string) string {
	switch strings.ToLower(text) {
	case "", "0", "1", "true", "false", "yes", "no":
		return text
	}
	if secrets().name.MatchString(name) && !strings.Contains(text, "${") {
		return "${" + h.variable(server, name, text) + "}"
	}
	return h.inside(server, text)
}

// inside hides what looks like a secret within a text.
func (h *hider) inside(server, text string) string {
	if strings.Contains(text, "${") {
		return text // whoever wrote that knows how to
	}
	t := &tree{b: []byte(text)}
	var edits []edit
	for _, re := range secrets().spans {
		for _, at := range re.FindAllStringSubmatchIndex(text, -1) {
			start, end := at[len(at)-2], at[len(at)-1]
			name := "SECRET"
			if len(at) == 6 {
				if name = strings.TrimLeft(text[at[2]:at[3]], "-"); !secrets().name.MatchString(name) {
					continue
				}
			}
			if slices.ContainsFunc(edits, func(e edit) bool { return start < e.end && e.start < end }) {
				continue
			}
			edits = append(edits, edit{start, end, name})
		}
	}
	slices.SortFunc(edits, func(a, b edit) int { return cmp.Compare(a.start, b.start) })
	for i, e := range edits {
		edits[i].text = "${" + h.variable(server, e.text, text[e.start:e.end]) + "}"
	}
	return string(t.apply(edits))
}

// variable is the name under which a value is in the environment file, or will
// be: the name of its server and its own, so that two servers' API_KEY are two.
func (h *hider) variable(server, name, value string) string {
	prefix := asVariable(server) + "_"
	base := asVariable(name)
	if !strings.HasPrefix(base, prefix) {
		base = prefix + base
	}
	if '0' <= base[0] && base[0] <= '9' {
		base = "_" + base
	}
	for i := 1; ; i++ {
		candidate := base
		if i > 1 {
			candidate += "_" + strconv.Itoa(i)
		}
		for _, known := range []map[string]string{h.env, h.added} {
			if v, ok := known[candidate]; ok && v == value {
				return candidate
			}
		}
		_, there := h.env[candidate]
		_, added := h.added[candidate]
		if !there && !added {
			h.added[candidate] = value
			return candidate
		}
	}
}

// asVariable is a text as a variable may be named.
func asVariable(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z':
			return r - 'a' + 'A'
		case 'A' <= r && r <= 'Z', '0' <= r && r <= '9':
			return r
		}
		return '_'
	}, text)
}

func quoteJSON(text string) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(text); err != nil {
		panic(err) // a string can be encoded
	}
	return strings.TrimSuffix(b.String(), "\n")
}
