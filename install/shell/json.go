package shell

import (
	"bytes"
	"encoding/json"
)

// object is for programs that set the environment of others: variables by name,
// null where one is to be taken away.
type object struct{}

func (object) Hook(string) string { return "" }

func (object) Line(string) string { return "" }

func (object) Export(s State) string {
	vars := map[string]*string{}
	for _, v := range s.Vars {
		vars[v.Name] = nil
		if !v.Unset {
			vars[v.Name] = &v.Value
		}
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	enc.Encode(vars) // ignore error: strings can be encoded
	return b.String()
}
