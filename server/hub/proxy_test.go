package hub

import (
	"net/http"
	"testing"
)

func TestProxies(t *testing.T) {
	env := []string{
		"HTTP_PROXY=http://u:p@plain:1", "https_proxy=safe:2",
		"no_proxy=one.example, .two.example,*.three.example,10.0.0.0/8,[2001:db8::1],192.0.2.7:81,four.example:443,,FIVE.example.",
	}
	for address, want := range map[string]string{
		"http://a.example/":           "http://u:p@plain:1",
		"https://a.example/":          "http://safe:2",
		"http://one.example/":         "",
		"http://x.one.example./":      "",
		"http://xone.example/":        "http://u:p@plain:1",
		"http://two.example/":         "",
		"http://x.two.example/":       "",
		"http://x.three.example/":     "",
		"http://10.1.2.3/":            "",
		"http://11.1.2.3/":            "http://u:p@plain:1",
		"http://[2001:db8::1]:9/":     "",
		"http://[2001:db8::2]:9/":     "http://u:p@plain:1",
		"http://192.0.2.7:81/":        "",
		"http://192.0.2.7/":           "http://u:p@plain:1",
		"https://four.example/":       "",
		"https://four.example:8443/":  "http://safe:2",
		"http://five.example/":        "",
		"http://localhost:3000/":      "",
		"http://app.localhost/":       "",
		"http://127.0.0.1:3000/":      "",
		"http://127.9.9.9/":           "",
		"https://[::1]:3000/":         "",
		"http://[::ffff:127.0.0.1]/":  "",
		"http://0.0.0.0:3000/":        "",
		"http://localhost.example/":   "http://u:p@plain:1",
		"http://127.0.0.1.example:1/": "http://u:p@plain:1",
	} {
		if got := proxyOf(t, env, address); got != want {
			t.Errorf("%s is reached by %q, want %q", address, got, want)
		}
	}
	if got := proxyOf(t, []string{"HTTP_PROXY=p:1", "NO_PROXY=*"}, "http://a.example/"); got != "" {
		t.Errorf("without any: %q", got)
	}
	if got := proxyOf(t, nil, "http://a.example/"); got != "" {
		t.Errorf("without an environment: %q", got)
	}
	if got := proxyOf(t, []string{"HTTP_PROXY=http://u:hush@:x:"}, "http://a.example/"); got != "the variable HTTP_PROXY is no address" {
		t.Errorf("a bad one: %q", got)
	}
}

func proxyOf(t *testing.T, env []string, address string) string {
	t.Helper()
	r, err := http.NewRequest("POST", address, nil)
	if err != nil {
		t.Fatal(err)
	}
	switch u, err := proxies(env)(r); {
	case err != nil:
		return err.Error()
	case u != nil:
		return u.String()
	}
	return ""
}
