package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"majordomus/install/shell"
)

func (a *app) hookCommand() *cobra.Command {
	hooked := []string{"bash", "zsh", "fish"}
	return &cobra.Command{
		Use:   "hook bash|zsh|fish",
		Short: "Print what a shell evaluates to enter checkouts by itself",
		Long: `Print the hook of a shell, for its startup file; "majordomus install shell" puts
the line there that loads it. By hand:

    eval "$(majordomus hook bash)"      in ~/.bashrc
    eval "$(majordomus hook zsh)"       in ~/.zshrc
    majordomus hook fish | source       in ~/.config/fish/config.fish

Before each prompt the hook looks, in the shell itself, whether the folder is
in another checkout than before, or the checkout's server is another. Only then
it runs "majordomus env enter" or "majordomus env export".`,
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		ValidArgs: hooked,
		RunE: func(_ *cobra.Command, words []string) error {
			sh, ok := shell.Named(words[0])
			if !ok {
				return wrongWords(fmt.Errorf("no hook for %q: only %s are known", words[0], strings.Join(hooked, ", ")))
			}
			_, err := fmt.Fprint(a.out, sh.Hook(a.executable()))
			return err
		},
	}
}

// executable is the program as others are to start it: by the name that the PATH
// has for it, which stays the same when the next release is installed, where
// that leads to this one.
func (a *app) executable() string {
	if path, err := exec.LookPath("majordomus"); err == nil && filepath.IsAbs(path) && sameFile(path, a.started.Path) {
		return path
	}
	return a.started.Path
}
