package child

import (
	"errors"
	"fmt"
	"strings"
)

// batchLine returns the command line that has cmd.exe run a batch file, which
// is what npx, npm and most tools installed by them are on Windows. cmd.exe
// reads its line twice, the second time with the arguments put in for %*, and
// by rules unlike those of programs: what is quoted as for a program can end
// the quotes there and go on as a command of its own. So everything that is not
// known to be harmless is quoted, a quote is doubled, and a percent sign is
// followed by a substring of no length, so that it begins no name:
//
//	100%PATH% -> "100%%cd:~,%PATH%%cd:~,%"
//
// where the first of two is taken as itself and the rest as nothing. A line
// break cannot be passed at all.
func batchLine(shell, file string, args []string) (string, error) {
	if strings.ContainsAny(file, "\"%\r\n") {
		return "", fmt.Errorf("a batch file cannot be run by that name: %q", file)
	}
	var b strings.Builder
	// With extensions, which the substring needs; no !VARIABLES!; no AutoRun.
	fmt.Fprintf(&b, `"%s" /e:ON /v:OFF /d /s /c ""%s"`, shell, file)
	for _, arg := range args {
		if strings.ContainsAny(arg, "\x00\r\n") {
			return "", errors.New("a batch file cannot be given an argument with a line break")
		}
		b.WriteByte(' ')
		batchArgument(&b, arg)
	}
	b.WriteByte('"')
	return b.String(), nil
}

func batchArgument(b *strings.Builder, arg string) {
	harmless := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune(`#$*+-./:?@\_`, r) || r > 0x9f
	}
	// A backslash at the end must not reach a quote that the file puts there.
	quoted := arg == "" || strings.HasSuffix(arg, `\`) || strings.ContainsFunc(arg, func(r rune) bool { return !harmless(r) })
	if quoted {
		b.WriteByte('"')
	}
	backslashes := 0
	for _, r := range arg {
		switch r {
		case '\\':
			backslashes++
		case '"':
			b.WriteString(strings.Repeat(`\`, backslashes) + `"`)
			backslashes = 0
		case '%':
			b.WriteString(`%%cd:~,`)
			backslashes = 0
		default:
			backslashes = 0
		}
		b.WriteRune(r)
	}
	if quoted {
		b.WriteString(strings.Repeat(`\`, backslashes) + `"`)
	}
}
