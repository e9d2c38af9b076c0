// Package cockpit is the page a person looks at: a few files without any data,
// which show in a browser what the server they come from tells them.
//
// Promised: the page asks nobody but its own server, and puts whatever it is
// told there as text: names and intents come from other processes. What it
// shows of anything is bounded. When the server goes it says so, and goes on
// with the next one at the same address if that serves the same checkout.
//
// Not promised: that the page of one version understands the server of another.
// It shows what it knows of an answer, and says when it should be loaded anew.
package cockpit

import _ "embed"

// Policy is the Content-Security-Policy that all of the page must be served
// with. The page makes do with it: nothing in it is inline, and there is no way
// in which a text could become markup.
const Policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"frame-ancestors 'none'; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

var (
	//go:embed page.html
	page string
	//go:embed app.js
	script string
	//go:embed style.css
	style string
	//go:embed icon.svg
	icon string
)

// File returns the file of that name below the page, and its media type; "" is
// the page itself.
func File(name string) (content, mediaType string, ok bool) {
	switch name {
	case "":
		return page, "text/html; charset=utf-8", true
	case "/app.js":
		return script, "text/javascript; charset=utf-8", true
	case "/style.css":
		return style, "text/css; charset=utf-8", true
	case "/icon.svg":
		return icon, "image/svg+xml", true
	}
	return "", "", false
}
