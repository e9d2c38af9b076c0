package checkout

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"gopkg.in/yaml.v3"
)

const manifestSchema = "ai-repository/v1"

// ManifestText is a manifest that says what counts without one.
func ManifestText() string {
	return `# Makes this folder a checkout that majordomus knows: one server for all editors
# in it, and shells that bring it up. Paths are relative to this file's folder.
schema: ` + manifestSchema + `
repo:
  path: repo # what is shared through git
local:
  path: local # what stays on this machine
sections:
  policy: repo/policy.yaml
  servers: repo/mcp.json
`
}

// manifest is what an .ai/manifest.yaml says of places. Its paths are relative
// to the .ai folder. Other keys belong to others and are left alone.
type manifest struct {
	exists bool
	path   string
	places map[string]string // by key; only those that are there
}

// readManifest reads the manifest of root, if there is one.
func readManifest(root string) (manifest, error) {
	m := manifest{path: filepath.Join(root, aiDir, manifestName)}
	b, err := readSmall(m.path, 1<<20)
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err != nil {
		return m, fmt.Errorf("reading the manifest: %w", err)
	}
	m.exists = true
	top, err := readYAML(m.path, b)
	if err != nil || top == nil {
		return m, err
	}
	if schema := member(top, "schema"); schema != nil && schema.Value != manifestSchema {
		return m, &PolicyError{m.path, schema.Line, "schema", fmt.Sprintf("%q is not known, only %s", schema.Value, manifestSchema)}
	}
	m.places = map[string]string{}
	for _, key := range [][2]string{{"repo", "path"}, {"local", "path"}, {"sections", "policy"}, {"sections", "servers"}} {
		name := key[0] + "." + key[1]
		section := member(top, key[0])
		if section == nil || isNull(section) {
			continue
		}
		if section.Kind != yaml.MappingNode {
			return m, &PolicyError{m.path, section.Line, key[0], "must be a block of keys"}
		}
		value := member(section, key[1])
		if value == nil || isNull(value) {
			continue
		}
		if value.Kind != yaml.ScalarNode || value.Tag != "!!str" || value.Value == "" {
			return m, &PolicyError{m.path, value.Line, name, "must be a path relative to the .ai folder"}
		}
		path := filepath.FromSlash(value.Value)
		if filepath.IsAbs(path) || filepath.VolumeName(path) != "" || !within(root, filepath.Join(root, aiDir, path)) {
			return m, &PolicyError{m.path, value.Line, name, fmt.Sprintf("%q leaves the checkout", value.Value)}
		}
		m.places[name] = path
	}
	return m, nil
}

// place fills in where things are. Links are followed on the way to folders,
// and may not lead out of the checkout: a cloned one must not choose where on
// the machine this program writes, or what it serves.
func (c *Checkout) place(m manifest) error {
	ai := filepath.Join(c.Root, aiDir)
	at := func(key, otherwise string) string {
		if p, ok := m.places[key]; ok {
			otherwise = p
		}
		return filepath.Join(ai, otherwise)
	}
	c.RepoDir = at("repo.path", "repo")
	c.LocalDir = at("local.path", "local")
	c.PolicyFile = at("sections.policy", filepath.Join("repo", "policy.yaml"))
	c.ServersFile = at("sections.servers", filepath.Join("repo", "mcp.json"))
	for _, p := range []struct {
		key string
		to  *string
		dir bool
	}{{"repo.path", &c.RepoDir, true}, {"local.path", &c.LocalDir, true}, {"sections.policy", &c.PolicyFile, false}, {"sections.servers", &c.ServersFile, false}} {
		dir, last := *p.to, ""
		if !p.dir {
			dir, last = filepath.Split(*p.to)
		}
		real, err := follow(c.Root, filepath.Clean(dir))
		if err != nil && m.exists {
			return &PolicyError{m.path, 0, p.key, err.Error()}
		}
		if err != nil {
			return fmt.Errorf("opening a checkout: %w", err)
		}
		*p.to = filepath.Join(real, last)
	}
	// What is local is ignored by git as a whole and never served, so nothing
	// that is shared may lie in it.
	if within(c.LocalDir, ai) || within(c.LocalDir, c.RepoDir) {
		return &PolicyError{m.path, 0, "local.path", "holds what the checkout shares"}
	}
	return nil
}

// follow resolves the links in path, which is below root, as far as it exists.
func follow(root, path string) (string, error) {
	rel, err := filepath.Rel(root, path)
	if err != nil {
		return "", err
	}
	at := root
	parts := splitPath(rel)
	for i, part := range parts {
		next := filepath.Join(at, part)
		info, err := os.Lstat(next)
		if err != nil {
			// Not there yet, or not to be looked into: whoever opens it
			// meets the reason.
			return filepath.Join(append([]string{at}, parts[i:]...)...), nil
		}
		if info.Mode()&fs.ModeSymlink != 0 {
			if next, err = resolve(next); err != nil {
				return "", fmt.Errorf("following a link: %w", err)
			}
			if !within(root, next) {
				return "", fmt.Errorf("%s is a link that leaves the checkout", filepath.Join(at, part))
			}
		}
		at = next
	}
	return at, nil
}
