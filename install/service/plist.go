package service

import (
	"encoding/xml"
	"fmt"
	"strings"
)

// guard is what launchd runs: a shell that becomes the server, or ends well when
// the checkout or the executable is gone, because launchd starts again for ever
// what failed, and knows no conditions.
const guard = `cd "$1" 2>/dev/null && [ -x "$0" ] || exit 0; root=$1; shift; exec "$0" "$@" --root "$root"`

// Plist is the property list of a launchd agent. KeepAlive is its default
// otherwise, also for a server that ended because it was idle; with this
// dictionary only a failed one is started again, and, as the key implies, it is
// started at login. The time between two starts is left at ten seconds, which a
// server that had lived for longer is not kept waiting for.
func Plist(s Spec) (string, error) {
	if err := s.check(); err != nil {
		return "", err
	}
	var b strings.Builder
	esc := func(text string) string {
		var e strings.Builder
		xml.EscapeText(&e, []byte(text)) // a Builder takes everything
		return e.String()
	}
	line := func(depth int, format string, args ...any) {
		fmt.Fprintf(&b, strings.Repeat("\t", depth)+format+"\n", args...)
	}
	pair := func(depth int, key, value string) {
		line(depth, "<key>%s</key>", esc(key))
		line(depth, "<string>%s</string>", esc(value))
	}
	line(0, `<?xml version="1.0" encoding="UTF-8"?>`)
	line(0, `<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">`)
	line(0, `<!-- Written by majordomus install service; majordomus uninstall service removes it. -->`)
	line(0, `<plist version="1.0">`)
	line(0, `<dict>`)
	pair(1, "Label", s.name())
	line(1, "<key>ProgramArguments</key>")
	line(1, "<array>")
	for _, a := range []string{"/bin/sh", "-c", guard, s.Executable, s.Root, "serve", "--service"} {
		line(2, "<string>%s</string>", esc(a))
	}
	line(1, "</array>")
	if vars := s.variables(); len(vars) > 0 {
		line(1, "<key>EnvironmentVariables</key>")
		line(1, "<dict>")
		for _, kv := range vars {
			key, value, _ := strings.Cut(kv, "=")
			pair(2, key, value)
		}
		line(1, "</dict>")
	}
	line(1, "<key>KeepAlive</key>")
	line(1, "<dict>")
	line(2, "<key>SuccessfulExit</key>")
	line(2, "<false/>")
	line(1, "</dict>")
	line(1, "<key>RunAtLoad</key>")
	line(1, "<true/>")
	line(1, "<key>ExitTimeOut</key>")
	line(1, "<integer>%d</integer>", int(stopLimit.Seconds()))
	if s.Log != "" {
		pair(1, "StandardOutPath", s.Log)
		pair(1, "StandardErrorPath", s.Log)
	}
	line(0, `</dict>`)
	line(0, `</plist>`)
	return b.String(), nil
}
