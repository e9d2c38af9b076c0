package main

import (
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
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Undo what install did",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.uninstallEditorCommand())
	cmd.AddCommand(a.uninstallShellCommand())
	cmd.AddCommand(a.uninstallHooksCommand())
	cmd.AddCommand(a.uninstallServiceCommand())
	return cmd
}
