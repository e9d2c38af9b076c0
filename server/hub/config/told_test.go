package config

import (
	"errors"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// Of several secrets in one text each is hidden, wherever it stands, once, and
// what is not secret stays.
func TestSeveralSecretsInOneText(t *testing.T) {
	const key = "sk-0123456789abcdef0123"
	for _, tt := range []struct {
		text, want string
		values     []string
	}{
		{"https://me:hush@host/mcp?v=1&token=abc", "https://me:${S_SECRET}@host/mcp?v=1&token=${S_TOKEN}", []string{"abc", "hush"}},
		{"Authorization: Bearer " + key, "Authorization: Bearer ${S_AUTHORIZATION}", []string{key}},
		{key + " --api-key=b --api-key=c", "${S_SECRET} --api-key=${S_API_KEY} --api-key=${S_API_KEY_2}", []string{key, "b", "c"}},
		{"api_key=" + key + "&again=" + key, "api_key=${S_API_KEY}&again=${S_SECRET}", []string{key, key}},
		{"token: a token=b", "token: ${S_TOKEN} token=${S_TOKEN_2}", []string{"a", "b"}},
		{"a=b c=d", "a=b c=d", nil},
	} {
		h := newHider(nil)
		got := h.inside("s", tt.text)
		if got != tt.want || !slices.Equal(slices.Sorted(maps.Values(h.added)), slices.Sorted(slices.Values(tt.values))) {
			t.Errorf("%q became %q with %v", tt.text, got, h.added)
		}
	}
}

// An argument is named by the option before it, and not by one that has a value
// of its own.
func TestSecretArguments(t *testing.T) {
	one, err := parseTree("", []byte(`{"s":{"command":"x","args":["--token","hush","--token=a","plain","-e","A=1"]}}`))
	if err != nil {
		t.Fatal(err)
	}
	h := newHider(nil)
	if s, _ := h.entry(one); !slices.Equal(s.Args, []string{"--token", "${S_TOKEN}", "--token=${S_TOKEN_2}", "plain", "-e", "A=1"}) {
		t.Errorf("%q, %v", s.Args, h.added)
	}
}

// Whoever removes all of an account's trust is told of which checkouts it is,
// also where a record is damaged.
func TestLedgerRoots(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "trust")
	l := OpenLedger(dir)
	if roots, err := l.Roots(); err != nil || len(roots) != 0 {
		t.Errorf("before anything: %v, %v", roots, err)
	}
	other := strings.Repeat("f", 32)
	if err := l.Record(testID, Trust{testDigest, "/bin", "/work", time.Now()}); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{other + ".json": "{", "README": "", "short.json": "{}"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if roots, err := l.Roots(); err != nil || !maps.Equal(roots, map[string]string{testID: "/work", other: ""}) {
		t.Errorf("%v, %v", roots, err)
	}
	if roots, err := OpenLedger(filepath.Join(dir, "README")).Roots(); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("where there is no folder: %v, %v", roots, err)
	}
}

// The ledger is where the account is, never in a place that a clone could bring.
func TestTrustDir(t *testing.T) {
	home := t.TempDir()
	want := map[string]string{
		"windows": filepath.Join(home, "AppData", "Local", "majordomus", "trust"),
		"darwin":  filepath.Join(home, "Library", "Application Support", "majordomus", "trust"),
	}[runtime.GOOS]
	if want == "" {
		want = filepath.Join(home, ".local", "state", "majordomus", "trust")
	}
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	if got := TrustDir(home); got != want {
		t.Errorf("it is in %s, not %s", got, want)
	}
}

// The port of an address is known also where it is not spelt.
func TestPorts(t *testing.T) {
	for address, want := range map[string]string{"https://h/mcp": "443", "http://h/mcp": "80", "https://h:80/": "80", "http://[::1]:8741": "8741"} {
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		if got := portOf(u); got != want {
			t.Errorf("%s: %s, not %s", address, got, want)
		}
	}
}

// What is compared of two entries is what they say, not how it is laid out.
func TestStandard(t *testing.T) {
	const text = `{"a":{},"b":[],"c":{"d":[1,{"e":[]}]}}`
	one, err := parseTree("", []byte(strings.NewReplacer("{", "{ ", "[", "[\n", ",", " , ", ":", " :\t").Replace(text)))
	if err != nil {
		t.Fatal(err)
	}
	if got := standard(one.b, &one.root); got != text {
		t.Errorf("%s", got)
	}
}
