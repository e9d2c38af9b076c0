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
	if s.Lease != "" {
		b.WriteString("watch_file " + quote(s.Lease) + "\n")
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
