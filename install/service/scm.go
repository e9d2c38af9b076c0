package service

import (
	"fmt"
	"strings"
)

// windowsService is what Windows is told of a service. Windows has none of an
// account: a service is the machine's, an administrator installs it, and it runs
// as whom it is told, with that account's password. As the machine itself, which
// is what it does when it is told nothing, it would run for everybody what one
// account can write.
type windowsService struct {
	Name        string
	Display     string
	Description string
	Account     string // DOMAIN\name
	Executable  string
	Arguments   []string
	Start       string // manual: an editor's launcher starts it, nothing else
	OnFailure   string
	Delay       string // before it is started again
	Reset       int    // seconds after which failures are forgotten
	Access      string // who may do what with it, in Windows' language for that
}

// access lets the system and administrators do everything, and the account start,
// stop and ask: whoever is no administrator can otherwise only look.
const access = "D:(A;;CCLCSWRPWPDTLOCRRC;;;SY)(A;;CCDCLCSWRPWPDTLOCRSDRCWDWO;;;BA)(A;;CCLCSWRPWPLOCRRC;;;%s)"

func forWindows(s Spec, account, sid string) windowsService {
	return windowsService{
		Name: s.name(), Display: "majordomus: " + s.Root,
		Description: "MCP server of the checkout " + s.Root,
		Account:     account, Executable: s.Executable, Arguments: s.arguments(),
		Start: "manual", OnFailure: "restart", Delay: "1s", Reset: 60,
		Access: fmt.Sprintf(access, sid),
	}
}

func (w windowsService) String() string {
	var b strings.Builder
	row := func(name, value string) { fmt.Fprintf(&b, "%-12s %s\n", name, value) }
	row("name", w.Name)
	row("display", w.Display)
	row("description", w.Description)
	row("account", w.Account)
	row("runs", fmt.Sprintf("%q", append([]string{w.Executable}, w.Arguments...)))
	row("start", w.Start)
	row("failure", fmt.Sprintf("%s after %s, forgotten after %d s", w.OnFailure, w.Delay, w.Reset))
	row("access", w.Access)
	return b.String()
}
