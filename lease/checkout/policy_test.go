package checkout

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

func policyOf(t testing.TB, text string) (Policy, error) {
	t.Helper()
	return mustOpen(t, tree(t, map[string]string{".ai/repo/policy.yaml": text})).Policy()
}

func TestPolicy(t *testing.T) {
	d := DefaultPolicy()
	want := Policy{15 * time.Second, 3 * time.Second, 8 * time.Second, time.Second, 30 * time.Second, 900 * time.Second, 1800 * time.Second, 67108864, true, true}
	if d != want {
		t.Errorf("defaults %+v, want %+v", d, want)
	}
	if p, err := mustOpen(t, tree(t, nil)).Policy(); err != nil || p != d {
		t.Errorf("no file: %+v, %v", p, err)
	}
	for _, text := range []string{"", "# only words\n", "---\n", "server:\n", "server: {}\n", "others:\n  server: {nonsense: 1}\n", "guard: [1, 2]\n", "server: ~\n"} {
		if p, err := policyOf(t, text); err != nil || p != d {
			t.Errorf("%q: %+v, %v", text, p, err)
		}
	}
	p, err := policyOf(t, `
others: {unknown: keys, bind_grace_seconds: -1}
server:
  bind_grace_seconds: 1
  busy_grace_seconds: 2.5
  join_timeout_seconds: 3
  probe_timeout_seconds: 0.25
  read_deadline_seconds: 5
  idle_seconds: 6
  session_idle_seconds: 1e3
  max_message_bytes: 1_048_576
  observe_paths: false
  autostart: false
`)
	want = Policy{time.Second, 2500 * time.Millisecond, 3 * time.Second, 250 * time.Millisecond, 5 * time.Second, 6 * time.Second, 1000 * time.Second, 1 << 20, false, false}
	if err != nil || p != want {
		t.Errorf("%+v, %v", p, err)
	}
	if p, err := policyOf(t, "x: &s {idle_seconds: 7}\nserver: *s\n"); err != nil || p.Idle != 7*time.Second {
		t.Errorf("an alias: %v, %v", p.Idle, err)
	}
}

func TestPolicyIsReadOnce(t *testing.T) {
	c := mustOpen(t, tree(t, map[string]string{".ai/repo/policy.yaml": "server: {idle_seconds: oops}\n"}))
	if _, err := c.Policy(); err == nil {
		t.Fatal("oops is a number of seconds")
	}
	os.WriteFile(c.PolicyFile, []byte("server: {idle_seconds: 7}\n"), 0o600)
	for range 2 {
		if p, err := c.Policy(); err != nil || p.Idle != 7*time.Second {
			t.Fatal(p, err)
		}
		os.WriteFile(c.PolicyFile, []byte("server: {idle_seconds: oops}\n"), 0o600)
	}
}

func TestPolicyErrors(t *testing.T) {
	for _, tt := range []struct {
		text, key string
		line      int
		says      string
	}{
		{"server:\n  idle_secs: 3\n", "server.idle_secs", 2, "idle_seconds"},
		{"server:\n  idle_seconds: soon\n", "server.idle_seconds", 2, `"soon"`},
		{"server:\n  idle_seconds: '3'\n", "server.idle_seconds", 2, ""},
		{"server:\n  idle_seconds: 0\n", "server.idle_seconds", 2, ""},
		{"server:\n  idle_seconds: -3\n", "server.idle_seconds", 2, ""},
		{"server:\n  idle_seconds: .inf\n", "server.idle_seconds", 2, ""},
		{"server:\n  idle_seconds: .nan\n", "server.idle_seconds", 2, ""},
		{"server:\n  idle_seconds: 1e300\n", "server.idle_seconds", 2, ""},
		{"server:\n  idle_seconds:\n", "server.idle_seconds", 2, "nothing"},
		{"server:\n  idle_seconds: [1]\n", "server.idle_seconds", 2, "a list"},
		{"server:\n  idle_seconds: {a: 1}\n", "server.idle_seconds", 2, "a block"},
		{"server:\n  idle_seconds: 15m\n", "server.idle_seconds", 2, "15m"},
		{"server:\n  max_message_bytes: 1.5\n", "server.max_message_bytes", 2, ""},
		{"server:\n  max_message_bytes: 0\n", "server.max_message_bytes", 2, ""},
		{"server:\n  max_message_bytes: 99999999999999999999\n", "server.max_message_bytes", 2, ""},
		{"server:\n  autostart: 1\n", "server.autostart", 2, ""},
		{"server:\n  autostart: maybe\n", "server.autostart", 2, ""},
		{"server:\n  observe_paths: 0\n", "server.observe_paths", 2, ""},
		{"server:\n  idle_seconds: 1\n  idle_seconds: 2\n", "server.idle_seconds", 3, "twice"},
		{"server:\n  ? [a]\n  : 1\n", "server", 2, ""},
		{"a: 1\n\nserver: yes please\n", "server", 3, ""},
		{"server: [idle_seconds]\n", "server", 1, ""},
		{"- server\n", "", 1, ""},
		{"server:\n  idle_seconds: 3\n---\nserver:\n  idle_seconds: 4\n", "", 3, "second document"},
		{"server:\n\tidle_seconds: 3\n", "", 2, ""},
		{"server: {idle_seconds: 3\n", "", 2, ""},
		{"server:\n  idle_seconds: 3\n---\n{\n", "", 3, ""},
		{"server:\n  idle_seconds: " + strings.Repeat("a", 41) + "\n", "server.idle_seconds", 2, `"` + strings.Repeat("a", 40) + `…"`},
	} {
		p, err := policyOf(t, tt.text)
		var e *PolicyError
		if !errors.As(err, &e) {
			t.Errorf("%q: %+v, %v", tt.text, p, err)
			continue
		}
		if e.Key != tt.key || e.Line != tt.line && tt.key+tt.says != "" || !strings.HasSuffix(e.File, filepath.Join(".ai", "repo", "policy.yaml")) || !strings.Contains(e.Reason, tt.says) {
			t.Errorf("%q: %s:%d %q (%s); want %q line %d (…%s…)", tt.text, e.File, e.Line, e.Key, e.Reason, tt.key, tt.line, tt.says)
		}
		speaksPlainly(t, err)
		if p != DefaultPolicy() {
			t.Errorf("%q: half a policy beside an error", tt.text)
		}
	}
}

func TestPolicyFileThatIsNone(t *testing.T) {
	c := mustOpen(t, tree(t, map[string]string{".ai/repo/policy.yaml/": ""}))
	if _, err := c.Policy(); err == nil {
		t.Error("a folder read as a policy")
	}
	c = mustOpen(t, tree(t, map[string]string{".ai/repo/policy.yaml": strings.Repeat("#", 2<<20)}))
	if _, err := c.Policy(); !errors.Is(err, errTooLong) {
		t.Errorf("2 MiB: %v", err)
	}
}

func FuzzPolicy(f *testing.F) {
	f.Add("server:\n  idle_seconds: 3\n")
	f.Add("server: &a [*a]\n")
	f.Add("a: &a {b: *a}\nserver: *a\n---\n")
	f.Add("server:\n  <<: {idle_seconds: 3}\n")
	f.Fuzz(func(t *testing.T, text string) {
		path := filepath.Join(t.TempDir(), "policy.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		p, err := readPolicy(path)
		var e *PolicyError
		if err != nil && !errors.As(err, &e) && !errors.Is(err, errTooLong) {
			t.Errorf("%v", err)
		}
		if p.BindGrace <= 0 || p.BusyGrace <= 0 || p.JoinTimeout <= 0 || p.ProbeTimeout <= 0 || p.Idle <= 0 || p.MaxMessageBytes <= 0 {
			t.Errorf("%+v", p)
		}
	})
}

func BenchmarkOpenNothing(b *testing.B) {
	root := tree(b, map[string]string{".git/HEAD": ""})
	for b.Loop() {
		c, err := Find(root, "")
		if err != nil {
			b.Fatal(err)
		}
		if _, err := c.Policy(); err != nil {
			b.Fatal(err)
		}
	}
}

// A policy file that begins decides nothing; each of its lines, and all of them,
// with the # taken away, is a default, and no key is missing.
func TestPolicyText(t *testing.T) {
	text := PolicyText()
	if p, err := policyOf(t, text); err != nil || p != DefaultPolicy() {
		t.Errorf("%+v, %v", p, err)
	}
	var keys []string
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "  # ") {
			continue
		}
		bare := strings.Replace(line, "# ", "", 1)
		if p, err := policyOf(t, "server:\n"+bare); err != nil || p != DefaultPolicy() {
			t.Errorf("%q: %+v, %v", bare, p, err)
		}
		key, value, _ := strings.Cut(strings.TrimSpace(bare), ":")
		keys = append(keys, key)
		// The value is the default only if another one makes a difference.
		value, _, _ = strings.Cut(value, "#")
		other := map[string]string{"true": "false"}[strings.TrimSpace(value)]
		if other == "" {
			other = "7"
		}
		if p, err := policyOf(t, "server:\n  "+key+": "+other+"\n"); err != nil || p == DefaultPolicy() {
			t.Errorf("%s: %s is the default too, or %v", key, other, err)
		}
	}
	if p, err := policyOf(t, strings.ReplaceAll(text, "\n  # ", "\n  ")); err != nil || p != DefaultPolicy() {
		t.Errorf("all of it: %+v, %v", p, err)
	}
	if n := reflect.TypeFor[Policy]().NumField(); len(keys) != n || len(policyKeys) != n {
		t.Errorf("%d keys of %d are shown: %q", len(keys), n, keys)
	}
	_, err := policyOf(t, "server: {nonsense: 1}\n")
	if err == nil || !strings.HasSuffix(err.Error(), "known are "+strings.Join(keys, ", ")) {
		t.Errorf("shown are %q, and known: %v", keys, err)
	}
}

// A manifest that begins says what counts without one.
func TestManifestText(t *testing.T) {
	with, without := mustOpen(t, tree(t, map[string]string{".ai/manifest.yaml": ManifestText()})), mustOpen(t, tree(t, nil))
	if !with.HasManifest {
		t.Error("it is no manifest")
	}
	for _, p := range [][2]string{{with.RepoDir, without.RepoDir}, {with.LocalDir, without.LocalDir}, {with.PolicyFile, without.PolicyFile}, {with.ServersFile, without.ServersFile}} {
		a, errA := filepath.Rel(with.Root, p[0])
		b, errB := filepath.Rel(without.Root, p[1])
		if a != b || errA != nil || errB != nil {
			t.Errorf("%s is not %s", a, b)
		}
	}
}
