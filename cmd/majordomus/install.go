package main

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"majordomus/install"
	"majordomus/server/hub/config"
)

// accountDir is where this account keeps what is none of a checkout's.
func accountDir() (string, error) {
	home := accountHome
	if home == "" {
		var err error
		if home, err = systemHome(); err != nil {
			return "", fmt.Errorf("finding the account's folder: %w", err)
		}
	}
	return filepath.Dir(config.TrustDir(home)), nil
}

// installed opens the record of what this account has installed.
func installed() (*install.Ledger, error) {
	dir, err := accountDir()
	if err != nil {
		return nil, err
	}
	return install.OpenLedger(dir), nil
}

func (a *app) installCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Make editors, shells, git or the service manager know majordomus",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.installEditorCommand())
	cmd.AddCommand(a.installShellCommand())
	cmd.AddCommand(a.installHooksCommand())
	cmd.AddCommand(a.installServiceCommand())
	return cmd
}

func (a *app) uninstallCommand() *cobra.Command {
	var all, dry, purge bool
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Undo what install did, or, with --all, remove every trace",
		Long: `Undo what "majordomus install" did: name what. With --all, undo everything that
was installed on this account, for whatever checkout, whether or not that is
still there: the entries in editors' files, services, lines in the startup files
of shells and in git's hooks. Trust in this checkout is taken back, and its
server stopped. --purge also removes what is kept: the checkout's folder
.ai/local, and files as they were before an entry was put into them.

It says what it leaves, and why: what belongs to git, what others have changed,
the folders of other checkouts. Doing it again does no harm.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case all:
				return a.uninstallAll(cmd.Context(), dry, purge)
			case dry || purge:
				return wrongWords(errors.New("--dry-run and --purge go with --all, or after the word for what is to be undone"))
			}
			return cmd.Help()
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "undo everything that was installed on this account")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only show what would be done")
	cmd.Flags().BoolVar(&purge, "purge", false, "remove what is kept in this checkout and for this account, too")
	cmd.AddCommand(a.uninstallEditorCommand())
	cmd.AddCommand(a.uninstallShellCommand())
	cmd.AddCommand(a.uninstallHooksCommand())
	cmd.AddCommand(a.uninstallServiceCommand())
	return cmd
}
