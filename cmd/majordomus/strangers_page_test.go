//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// strangersScript is what a page of somebody else tries. It is given the
// server's address and its paths, and tells what it got. %s is both as JSON.
const strangersScript = `(async ([to, paths]) => {
	const got = [], tried = [];
	const within = (what, promise) => {
		tried.push(what);
		const late = new Promise((done) => setTimeout(() => done("nothing"), 5000));
		return Promise.race([promise, late]).then((x) => { if (x !== "nothing") got.push(what + ": " + x); }, () => {});
	};
	const seen = (what, element, attribute, url) => within(what, new Promise((done) => {
		const e = document.createElement(element);
		e.onload = () => done("loaded"); e.onerror = () => done("nothing");
		if (element === "link") e.rel = "stylesheet";
		e[attribute] = url;
		document.body.append(e);
	}));
	const read = (what, url, init) => within(what, fetch(url, init).then(async (r) => r.type === "opaque" ? "nothing" : r.status + " " + await r.text()));
	const all = [];
	for (const path of paths) {
		const url = to + path;
		for (const element of ["img", "script"]) all.push(seen(element + " " + path, element, "src", url));
		all.push(seen("link " + path, "link", "href", url));
		all.push(read("fetch " + path, url), read("fetch no-cors " + path, url, { mode: "no-cors" }));
		all.push(read("fetch with a key " + path, url, { headers: { Authorization: "Bearer x" } }));
		all.push(read("POST plain " + path, url, { method: "POST", mode: "no-cors", headers: { "Content-Type": "text/plain" }, body: '{"force":true}' }));
		all.push(read("POST JSON " + path, url, { method: "POST", headers: { "Content-Type": "application/json" }, body: "{}" }));
		all.push(within("beacon " + path, Promise.resolve(navigator.sendBeacon(url, '{"force":true}') && "nothing")));
		all.push(within("EventSource " + path, new Promise((done) => {
			const s = new EventSource(url);
			s.onopen = () => done("open"); s.onmessage = (m) => done(m.data); s.onerror = () => { s.close(); done("nothing"); };
		})));
		all.push(within("WebSocket " + path, new Promise((done) => {
			const s = new WebSocket(url.replace("http:", "ws:"));
			s.onopen = () => done("open"); s.onerror = () => done("nothing");
		})));
		all.push(within("frame " + path, new Promise((done) => {
			const f = document.createElement("iframe");
			f.onload = () => { try { done("loaded " + f.contentDocument.body.textContent); } catch { done("nothing"); } };
			f.src = url;
			document.body.append(f);
		}).then((x) => x === "loaded " ? "nothing" : x)));
		// A form, from a frame without an origin of its own: Origin is null.
		all.push(within("form " + path, new Promise((done) => {
			const f = document.createElement("iframe");
			f.sandbox = "allow-forms allow-scripts";
			f.srcdoc = '<form method="POST" enctype="text/plain" action="' + url + '"><input name=\'{"force":true,"a":"\' value=\'"}\'></form><script>document.forms[0].submit()<\/script>';
			let n = 0;
			f.onload = () => { if (++n == 2) done("nothing"); };
			document.body.append(f);
		})));
	}
	await Promise.all(all);
	return [tried.length, got];
})(%s)`

// TestStrangersPage has a page of another origin, in a real browser, try
// everything that pages can: nothing comes back to it, and nothing happens.
func TestStrangersPage(t *testing.T) {
	t.Parallel()
	b := newBrowser(t)
	c := accFresh(t)
	c.mustRun("serve", "ensure")
	doc := c.mustLease()
	e := c.named("worker")
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		io.WriteString(w, "<!DOCTYPE html><title>somebody else's</title><body>")
	}))
	defer page.Close()
	b.do("open", map[string]any{"url": page.URL})
	paths := []string{
		"/", "/?challenge=00000000000000000000000000000000", "/mcp", "/metrics", "/cockpit", "/cockpit/app.js", "/cockpit/style.css", "/cockpit/icon.svg",
		"/api/v1/health", "/api/v1/live", "/api/v1/ready", "/api/v1/server", "/api/v1/peers", "/api/v1/executions", "/api/v1/upstreams", "/api/v1/events",
		"/api/v1/stop", "/api/v1/key", "/api/v1/code", "/api/v1/page", "/api/v1/announce", "/api/v1/upstreams/restart",
	}
	try := func(to string) {
		t.Helper()
		with, err := json.Marshal([]any{to, paths})
		if err != nil {
			t.Fatal(err)
		}
		answer, _ := b.find(fmt.Sprintf(strangersScript, with)).([]any)
		if len(answer) != 2 {
			t.Fatalf("the page says %v", answer)
		}
		t.Logf("%v things tried at %s", answer[0], to)
		if got, _ := answer[1].([]any); len(got) > 0 {
			t.Errorf("the page at %s got %q", page.URL, got)
		}
	}
	try(*doc.URL)
	// By another name of this machine, as a page does that has its own name
	// lead here: what it asks for is then of its own origin.
	u, err := url.Parse(*doc.URL)
	if err != nil {
		t.Fatal(err)
	}
	rebound := "http://rebound.localhost:" + u.Port()
	b.do("go", map[string]any{"url": rebound + "/"})
	if shown := fmt.Sprint(b.find("document.body.innerText")); !strings.Contains(shown, "forbidden_host") {
		t.Errorf("by a name of its own a page is shown %q", shown)
	}
	for _, path := range paths {
		for _, method := range []string{"GET", "POST"} {
			answer := fmt.Sprint(b.find(fmt.Sprintf(`fetch(%q, {method: %q}).then((r) => r.text())`, path, method)))
			if !strings.Contains(answer, "forbidden_host") || strings.Contains(answer, doc.Token) {
				t.Errorf("%s %s by a name of its own: %s", method, path, answer)
			}
		}
	}
	// Nothing has happened.
	if s := e.mustServer(); s.URL != *doc.URL || !s.LeaseHolder || s.Peers != 1 {
		t.Errorf("served by %+v", s)
	}
	if now := c.mustLease(); now.Token != doc.Token {
		t.Error("the lease is another")
	}
	if said := c.mustRun("executions", "--format", "json"); strings.Contains(said, "majordomus_announce") {
		t.Errorf("somebody announced something: %s", said)
	}
	asked, _ := b.do("asked", nil).([]any)
	if !slices.Contains(asked, any(*doc.URL)) || !slices.ContainsFunc(asked, func(a any) bool { return regexp.MustCompile(`^http://rebound\.localhost:`).MatchString(fmt.Sprint(a)) }) {
		t.Errorf("the page asked %v, so that nothing is shown", asked)
	}
}
