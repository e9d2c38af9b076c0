package shell

import "strings"

// direnv is the bash in which direnv evaluates an .envrc. It has a hook of its
// own, and puts back itself what was there before.
type direnv struct{}

func (direnv) Hook(string) string { return "" }

func (direnv) Export(s State) string {
	var b strings.Builder
	for _, v := range s.Vars {
		if v.Unset {
			b.WriteString("unset " + v.Name + "\n")
		} else {
			b.WriteString("export " + v.Name + "=" + quote(v.Value) + "\n")
		}
	}
	if s.Lease == "" {
		return b.String()
	}
	lease := quote(s.Lease)
	b.WriteString("watch_file " + lease + "\n")
	// It watches from here on, and by the second: what the lease came to say since
	// it was read, or comes to say within this second, it would never notice. A
	// file that is gone by the next prompt has it look again.
	again := "{ __majordomus_again=$(mktemp) && watch_file \"$__majordomus_again\" && rm -f \"$__majordomus_again\"; unset __majordomus_again; }\n"
	switch {
	case s.Fresh:
		b.WriteString(again)
	case s.Knows:
		b.WriteString(`[ "$([ ! -f ` + lease + " ] || cat " + lease + ` 2>/dev/null)" = ` + quote(strings.TrimRight(s.Seen, "\n")) + " ] || " + again)
	}
	return b.String()
}

// Line is for a file that is often shared: elsewhere than here the program may
// be missing.
func (direnv) Line(exe string) string {
	has := "has majordomus"
	if strings.ContainsAny(exe, `/\\`) {
		exe = quote(exe)
		has = "[ -x " + exe + " ]"
	}
	return "! " + has + ` || eval "$(` + exe + ` env enter --shell direnv)"`
}
