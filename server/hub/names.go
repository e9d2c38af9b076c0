package hub

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	"majordomus/server/hub/config"
)

// maxName is how long a public name may be: clients allow 64 characters and put
// "mcp__majordomus__" before it.
const maxName = 64 - len("mcp__majordomus__")

// publicName is the name under which clients see what a hosted server calls
// name: the server's and its own, in the characters that every client takes. Of
// a long one the beginning is left, and what tells it from others.
func publicName(server, name string) string {
	full := server + "__" + name
	plain := strings.Map(plainRune, full)
	if plain == full && len(full) <= maxName {
		return full
	}
	return hashed(plain, full)
}

// hashed is plain, cut, with a mark of full behind it.
func hashed(plain, full string) string {
	sum := sha256.Sum256([]byte(full))
	return fmt.Sprintf("%s_%x", plain[:min(len(plain), maxName-9)], sum[:4])
}

func plainRune(r rune) rune {
	switch {
	case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '_', r == '-':
		return r
	}
	return '_'
}

// KeptTools are the names of a server's tools by what was kept of it, and the
// public name of each that is another than it would be if it were not too long.
// Keep is Config.Keep; false is nothing kept.
func KeptTools(keep string, s config.Server) (names []string, cut map[string]string, ok bool) {
	c, ok := store{keep}.load(s.Name, s.Key())
	if !ok {
		return nil, nil, false
	}
	cut = map[string]string{}
	for _, e := range c[0] {
		if s.Tools != nil && !slices.Contains(s.Tools, e.key) {
			continue
		}
		names = append(names, e.key)
		if len(s.Name)+len("__")+len(e.key) > maxName {
			cut[e.key] = publicName(s.Name, e.key)
		}
	}
	return names, cut, true
}
