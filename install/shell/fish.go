package shell

import (
	_ "embed"
	"strings"
)

//go:embed hook.fish
var fishHook string

type fish struct{}

func (fish) Hook(exe string) string { return fill(fishHook, fishQuote(exe)) }

func (fish) Export(s State) string {
	var b strings.Builder
	for _, v := range s.Vars {
		if v.Unset {
			b.WriteString("set -e " + v.Name + "\n")
		} else {
			b.WriteString("set -gx " + v.Name + " " + fishQuote(v.Value) + "\n")
		}
	}
	if s.Root == "" {
		return b.String() + "set -e __majordomus_root\nset -e __majordomus_lease\nset -e __majordomus_seen\nset -e __majordomus_url\n"
	}
	b.WriteString("set -g __majordomus_root " + fishQuote(s.Root) + "\nset -g __majordomus_lease " + fishQuote(s.Lease) + "\n")
	if s.Knows {
		b.WriteString("set -g __majordomus_seen " + fishQuote(s.Seen) + "\n")
	}
	return b.String()
}

func (fish) Line(exe string) string {
	return "status is-interactive; and test -x " + fishQuote(exe) + "; and " + fishQuote(exe) + " hook fish | source"
}

// fishQuote is s as one word of fish.
func fishQuote(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(s) + "'"
}
