package child

import (
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/windows"
)

// throughShell has a batch file run by cmd.exe. The system would do that by
// itself, with the arguments quoted as for a program.
func throughShell(cmd *exec.Cmd) error {
	if e := filepath.Ext(cmd.Path); !strings.EqualFold(e, ".bat") && !strings.EqualFold(e, ".cmd") {
		return nil
	}
	system, err := windows.GetSystemDirectory()
	if err != nil {
		return err
	}
	shell := filepath.Join(system, "cmd.exe")
	line, err := batchLine(shell, cmd.Path, cmd.Args[1:])
	if err != nil {
		return err
	}
	cmd.Path, cmd.SysProcAttr.CmdLine = shell, line
	return nil
}
