package shell

import _ "embed"

//go:embed hook.zsh
var zshHook string

type zsh struct{}

func (zsh) Hook(exe string) string { return fill(zshHook, quote(exe)) }

func (zsh) Export(s State) string { return posix(s) }

func (zsh) Line(exe string) string {
	return `case $- in *i*) [ ! -x ` + quote(exe) + ` ] || eval "$(` + quote(exe) + ` hook zsh)" ;; esac`
}
