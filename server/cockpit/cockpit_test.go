package cockpit

import (
	"regexp"
	"strings"
	"testing"
)

// all is every file of the page by its name.
func all(t *testing.T) map[string]string {
	t.Helper()
	files := map[string]string{}
	for _, name := range []string{"", "/app.js", "/style.css", "/icon.svg"} {
		content, mediaType, ok := File(name)
		if !ok || content == "" || mediaType == "" {
			t.Fatalf("%q: %d bytes of %q, %v", name, len(content), mediaType, ok)
		}
		files[name] = content
	}
	return files
}

func TestFiles(t *testing.T) {
	for _, name := range []string{"/", "/page.html", "app.js", "/cockpit.go", "/../page.go"} {
		if _, _, ok := File(name); ok {
			t.Errorf("%q is served", name)
		}
	}
	// What the page asks for is there.
	for _, m := range regexp.MustCompile(`(?:src|href)="/cockpit([^"]*)"`).FindAllStringSubmatch(all(t)[""], -1) {
		if _, _, ok := File(m[1]); !ok {
			t.Errorf("the page asks for /cockpit%s", m[1])
		}
	}
}

func TestSize(t *testing.T) {
	const most = 60 << 10 // more than twice that must never be
	sum := 0
	for name, content := range all(t) {
		t.Logf("%-10s %6d bytes", name, len(content))
		sum += len(content)
	}
	if sum > most {
		t.Errorf("the page has %d bytes; at most %d are fine", sum, most)
	}
}

// The page asks its own server only, and would not be allowed to ask another.
func TestNoOutsideRequest(t *testing.T) {
	address := regexp.MustCompile(`(?i)\b[a-z][a-z0-9+.-]*://[^\s"'<>)]*|["'(]//[^\s"')]+`)
	for name, content := range all(t) {
		for _, found := range address.FindAllString(content, -1) {
			switch {
			case strings.HasPrefix(found, "http://www.w3.org/"): // the name of a kind of markup
			case found == "http://": // of addresses that it is told
			default:
				t.Errorf("%s has the address %s", name, found)
			}
		}
		for _, word := range []string{"@import", "url(", "EventSource", "XMLHttpRequest", "sendBeacon", "WebSocket", "importScripts"} {
			if strings.Contains(content, word) {
				t.Errorf("%s has %s", name, word)
			}
		}
	}
	script := all(t)["/app.js"]
	for _, m := range regexp.MustCompile(`fetch\(([^,)]*)`).FindAllStringSubmatch(script, -1) {
		if m[1] != "path" && !strings.HasPrefix(m[1], `"/`) {
			t.Errorf("it fetches %s", m[1])
		}
	}
}

// Nothing is inline, and nothing that was told becomes markup.
func TestPolicyHolds(t *testing.T) {
	for _, directive := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self'", "connect-src 'self'",
		"frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'", "require-trusted-types-for 'script'"} {
		if !strings.Contains(Policy+";", directive+";") {
			t.Errorf("the policy does not say %s", directive)
		}
	}
	if strings.Contains(Policy, "unsafe") || strings.Contains(Policy, "*") {
		t.Errorf("the policy allows too much: %s", Policy)
	}
	files := all(t)
	for what, pattern := range map[string]string{
		"an inline script":    `<script(?:\s[^>]*)?>\s*[^<\s]`,
		"an inline style":     `<style|\sstyle=`,
		"an inline handler":   `<[^>]*\son[a-z]+=`,
		"a javascript: link":  `(?i)javascript:`,
		"a form":              `<form|<iframe|<object|<embed|<base`,
		"a script not of us":  `<script[^>]*src="[^/]`,
		"something to insert": `innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|createContextualFragment|eval\(|new Function|setTimeout\("`,
	} {
		for _, name := range []string{"", "/app.js"} {
			if found := regexp.MustCompile(pattern).FindString(files[name]); found != "" {
				t.Errorf("%q has %s: %q", name, what, found)
			}
		}
	}
}

// What a screen reader needs is there before any script runs.
func TestStructure(t *testing.T) {
	page := all(t)[""]
	for _, must := range []string{`<html lang="en">`, `<meta name="viewport" content="width=device-width, initial-scale=1">`, "<main", "<header", "<nav", "<h1", `role="status"`, "<noscript>", `class="skip"`} {
		if !strings.Contains(page, must) {
			t.Errorf("the page has no %s", must)
		}
	}
	for _, tag := range regexp.MustCompile(`<th[ >][^>]*`).FindAllString(page, -1) {
		if !strings.Contains(tag, `scope="col"`) {
			t.Errorf("%s has no scope", tag)
		}
	}
	if n, m := strings.Count(page, "<table"), strings.Count(page, "<caption"); n != m {
		t.Errorf("%d tables have %d captions", n, m)
	}
	ids := map[string]bool{}
	for _, m := range regexp.MustCompile(`\sid="([^"]+)"`).FindAllStringSubmatch(page, -1) {
		if ids[m[1]] {
			t.Errorf("two have the id %s", m[1])
		}
		ids[m[1]] = true
	}
	for _, m := range regexp.MustCompile(`(?:aria-labelledby="|href="#)([^"]+)"`).FindAllStringSubmatch(page, -1) {
		for _, id := range strings.Fields(m[1]) {
			if !ids[id] {
				t.Errorf("nothing has the id %s", id)
			}
		}
	}
	for _, m := range regexp.MustCompile(`\$\("([^"]+)"\)`).FindAllStringSubmatch(all(t)["/app.js"], -1) {
		if !ids[m[1]] {
			t.Errorf("the script looks for the id %s", m[1])
		}
	}
}
