package service

import (
	"fmt"
	"strings"
	"time"
)

const (
	// stopLimit is how long a service may take to end when it is stopped: it
	// answers what is in flight for as long as its policy is patient.
	stopLimit = 15 * time.Second

	// A server that cannot start takes up to the time to join for one try, so
	// that tries are counted over a longer time than five of these take.
	startLimit, startBurst = 2 * time.Minute, 5
)

// Unit is the unit file of a systemd user service. Its lines, and why:
//
//   - Conditions instead of failures: at each login of somebody who has moved his
//     checkout, or deleted the executable, nothing happens.
//   - Type=notify: a start returns when the server can be found, or is dead.
//   - Restart=on-failure, soon: an idle server that ended stays so, a killed one
//     comes back before an editor has noticed. What another start cannot mend,
//     wrong words and missing things, is not tried again.
//   - KillMode=mixed: the server ends what it hosts, in order; what is left after
//     the time to stop goes too.
//   - default.target is what an account's manager reaches at login.
func Unit(s Spec) (string, error) {
	if err := s.check(); err != nil {
		return "", err
	}
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("# Written by majordomus install service; majordomus uninstall service removes it.")
	line("[Unit]")
	line("Description=MCP server of the checkout %s (majordomus)", percent(s.Root))
	// The slash keeps a last blank or backslash from being the line's end.
	line("ConditionPathIsDirectory=%s/", percent(s.Root))
	if path := percent(s.Executable); strings.TrimRight(path, ` \`) == path {
		line("ConditionFileIsExecutable=%s", path)
	}
	line("StartLimitIntervalSec=%d", int(startLimit.Seconds()))
	line("StartLimitBurst=%d", startBurst)
	line("")
	line("[Service]")
	line("Type=notify")
	line("WorkingDirectory=%s/", percent(s.Root))
	for _, kv := range s.variables() {
		line("Environment=%s", quoted(kv))
	}
	line("ExecStart=%s", execStart(append([]string{s.Executable}, s.arguments()...)))
	line("Restart=on-failure")
	line("RestartSec=100ms")
	line("RestartPreventExitStatus=2 12")
	line("TimeoutStartSec=30")
	line("TimeoutStopSec=%d", int(stopLimit.Seconds()))
	line("KillMode=mixed")
	line("StandardInput=null")
	line("StandardOutput=journal")
	line("StandardError=journal")
	line("SyslogIdentifier=majordomus")
	line("")
	line("[Install]")
	line("WantedBy=default.target")
	return b.String(), nil
}

// percent keeps systemd from expanding specifiers.
func percent(s string) string { return strings.ReplaceAll(s, "%", "%%") }

// quoted is s as one word of a line.
func quoted(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "%", "%%").Replace(s) + `"`
}

// argument is s as one word of a command, where $ is expanded too.
func argument(s string) string { return strings.ReplaceAll(quoted(s), "$", "$$") }

// execStart is a command. systemd refuses an executable whose path has quotes or
// backslashes, and has no way to write $ there: then a shell, which can be given
// any word, becomes it.
func execStart(argv []string) string {
	var words []string
	if strings.ContainsAny(argv[0], `"'\$`) {
		argv = append([]string{"/bin/sh", "-c", `exec "$0" "$@"`}, argv...)
	}
	words = append(words, quoted(argv[0]))
	for _, a := range argv[1:] {
		words = append(words, argument(a))
	}
	return strings.Join(words, " ")
}
