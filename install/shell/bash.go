package shell

import _ "embed"

//go:embed hook.bash
var bashHook string

type bash struct{}

func (bash) Hook(exe string) string { return fill(bashHook, quote(exe)) }

func (bash) Export(s State) string { return posix(s) }

// Line is for a file that shells without a person read too.
func (bash) Line(exe string) string {
	return `case $- in *i*) [ ! -x ` + quote(exe) + ` ] || eval "$(` + quote(exe) + ` hook bash)" ;; esac`
}
