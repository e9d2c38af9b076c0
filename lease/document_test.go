package lease

import (
	"bytes"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestDocumentReadsBack(t *testing.T) {
	f := newTestFolder(t, newCheckout(t), patient)
	tenure := take(t, f)
	for range 2 { // while binding, and once published
		want, ok := tenure.Document()
		if !ok {
			t.Fatal("no document")
		}
		got := f.Read()
		if got.State != Present || !reflect.DeepEqual(got.Document, want) {
			t.Fatalf("read %v %+v, want %+v", got.State, got.Document, want)
		}
		if err := tenure.Publish("http://127.0.0.1:1234"); err != nil {
			t.Fatal(err)
		}
	}
	if url := f.Read().Document.URL; url == nil || *url != "http://127.0.0.1:1234" {
		t.Fatalf("url %v", url)
	}
}

// The form is an agreement with other makers and other releases.
func TestDocumentForm(t *testing.T) {
	d := Document{
		Schema: Schema, PID: 7, Token: "0123456789abcdef0123456789abcdef", Root: "/r<&>",
		StartedAt:  time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC),
		Executable: ExecutableIdentity{"/bin/mj", 1, 2, 3}, Version: "v1.0.0", Auth: "key",
	}
	got, err := d.encode()
	if err != nil {
		t.Fatal(err)
	}
	want := `{
  "schema": "majordomus-mcp-lease/v1",
  "pid": 7,
  "token": "0123456789abcdef0123456789abcdef",
  "root": "/r<&>",
  "url": null,
  "started_at": "2026-01-02T03:04:05.000000006Z",
  "executable": {
    "path": "/bin/mj",
    "mtime": 1,
    "mtime_ns": 2,
    "size": 3
  },
  "version": "v1.0.0",
  "auth": "key"
}
`
	if string(got) != want {
		t.Errorf("encoded\n%s\nwant\n%s", got, want)
	}
}

const goodToken = "0123456789abcdef0123456789abcdef"

func TestParse(t *testing.T) {
	lease := func(rest string) string {
		return `{"schema":"` + Schema + `","token":"` + goodToken + `"` + rest + `}`
	}
	for _, tt := range []struct {
		name, in string
		want     State
		reason   string // part of
	}{
		{"nothing", "", Empty, ""},
		{"only what must be", lease(""), Present, ""},
		{"unknown members", lease(`,"future":{"a":[1]}`), Present, ""},
		{"null address", lease(`,"url":null`), Present, ""},
		{"no address", lease(`,"url":""`), Present, ""},
		{"white space", " \n" + lease("") + "\n\n", Present, ""},
		{"half", lease("")[:40], Corrupt, "not JSON"},
		{"NULs", strings.Repeat("\x00", 4096), Corrupt, "4096 NUL bytes"},
		{"two", lease("") + lease(""), Corrupt, "not JSON"},
		{"null", "null", Corrupt, "schema"},
		{"a list", "[]", Corrupt, "not a JSON object"},
		{"a string", `"x"`, Corrupt, "not a JSON object"},
		{"empty object", "{}", Corrupt, "schema"},
		{"another schema", `{"schema":"majordomus-mcp-lease/v2","token":"` + goodToken + `"}`, Corrupt, "v2"},
		{"token in upper case", `{"schema":"` + Schema + `","token":"` + strings.ToUpper(goodToken) + `"}`, Corrupt, "token"},
		{"token too short", `{"schema":"` + Schema + `","token":"` + goodToken[1:] + `"}`, Corrupt, "token"},
		{"token a path", `{"schema":"` + Schema + `","token":"../../../../etc/passwd"}`, Corrupt, "token"},
		{"token a path of 32", `{"schema":"` + Schema + `","token":"../../../../../../../etc/passwd00"}`, Corrupt, "token"},
		{"pid a string", lease(`,"pid":"x"`), Corrupt, `"pid" is a string`},
		{"nested type", lease(`,"executable":{"size":"x"}`), Corrupt, `"executable.size" is a string`},
		{"url a number", lease(`,"url":8741`), Corrupt, `"url" is a number`},
		{"no time", lease(`,"started_at":"yesterday"`), Corrupt, "started_at"},
		{"a time beyond years", lease(`,"started_at":"9999-12-31T23:59:59-23:00"`), Corrupt, "started_at"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := parse([]byte(tt.in))
			if got.State != tt.want || !strings.Contains(got.Reason, tt.reason) {
				t.Errorf("%v (%s), want %v (%s)", got.State, got.Reason, tt.want, tt.reason)
			}
			if got.Document.URL != nil {
				t.Errorf("it has the address %q", *got.Document.URL)
			}
			if strings.Contains(got.Reason, "Go ") || strings.Contains(got.Reason, "lease.") {
				t.Errorf("the reason speaks of code: %s", got.Reason)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	d := Document{Schema: Schema, Token: goodToken, URL: ptr("http://127.0.0.1:8741"), Root: "/r", StartedAt: time.Unix(1, 2).UTC()}
	good, err := d.encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[:len(good)/2])
	f.Add([]byte("{}"))
	f.Add(make([]byte, 64))
	f.Add([]byte(`{"schema":"majordomus-mcp-lease/v1","token":"../../etc/passwd"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		got := parse(b)
		switch got.State {
		case Empty:
			if len(b) != 0 {
				t.Fatal("bytes taken for none")
			}
		case Corrupt:
			if got.Reason == "" {
				t.Fatal("corrupt without a reason")
			}
		case Present:
			if !isToken(got.Document.Token) || strings.Trim(got.Document.Token, "0123456789abcdef") != "" {
				t.Fatalf("token %q", got.Document.Token)
			}
			again, err := got.Document.encode()
			if err != nil {
				t.Fatalf("what was read cannot be written: %v", err)
			}
			back := parse(again)
			if back.State != Present || !reflect.DeepEqual(back.Document, got.Document) {
				t.Fatalf("%+v reads back as %+v", got.Document, back.Document)
			}
		default:
			t.Fatalf("parsed to %v", got.State)
		}
	})
}

// garbage is what can lie at the lease's path besides a lease.
func garbage() map[string]func(t *testing.T, path string) {
	write := func(b []byte) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	g := map[string]func(*testing.T, string){
		"empty":          write(nil),
		"half JSON":      write([]byte(`{"schema":"majordomus-mcp-lease/v1","pid":4`)),
		"NULs":           write(make([]byte, 512)),
		"another schema": write([]byte(`{"schema":"other/v9","token":"` + goodToken + `"}`)),
		"token a path":   write([]byte(`{"schema":"majordomus-mcp-lease/v1","token":"../../../victim"}`)),
		"binary":         write(bytes.Repeat([]byte{0xff, 0xfe}, 300)),
		"foreign address": write([]byte(`{"schema":"majordomus-mcp-lease/v1","token":"` + goodToken +
			`","url":"http://192.0.2.1:80"}`)),
		"no address at all": write([]byte(`{"schema":"majordomus-mcp-lease/v1","token":"` + goodToken + `","url":"nonsense"}`)),
		"100 MB": func(t *testing.T, path string) {
			write(nil)(t, path)
			if err := os.Truncate(path, 100<<20); err != nil {
				t.Fatal(err)
			}
		},
		"a folder": func(t *testing.T, path string) {
			if err := os.MkdirAll(path+"/with/things", 0o700); err != nil {
				t.Fatal(err)
			}
		},
		"an empty folder": func(t *testing.T, path string) {
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
		},
		"dangling link": func(t *testing.T, path string) {
			if err := os.Symlink("nowhere", path); err != nil {
				t.Skip(err)
			}
		},
		"link to a lease elsewhere": func(t *testing.T, path string) {
			elsewhere := t.TempDir() + "/server.json"
			write([]byte(`{"schema":"majordomus-mcp-lease/v1","token":"`+goodToken+`"}`))(t, elsewhere)
			if err := os.Symlink(elsewhere, path); err != nil {
				t.Skip(err)
			}
		},
	}
	for name, plant := range moreGarbage {
		g[name] = plant
	}
	return g
}

func TestElectGetsPastEverything(t *testing.T) {
	for name, plant := range garbage() {
		t.Run(name, func(t *testing.T) {
			f := newTestFolder(t, newCheckout(t), quick)
			plant(t, f.LeasePath())
			before := f.Read()
			if before.State != Empty && before.State != Corrupt && before.State != Present {
				t.Fatalf("read as %v", before.State)
			}
			if before.State != Present && before.Reason == "" {
				t.Error("no reason")
			}
			e, err := f.Elect(t.Context(), Candidate{Listen: noListen})
			if err != nil {
				t.Fatal(err)
			}
			defer e.Tenure.Release()
			if e.Role != Server {
				t.Fatalf("role %v: %s", e.Role, e.Reason)
			}
			if before.Reason != "" && !strings.Contains(e.Reason, before.Reason) {
				t.Errorf("reason %q does not name what was found: %q", e.Reason, before.Reason)
			}
			if got := f.Read(); got.State != Present || got.Document.Token != e.Tenure.Token() {
				t.Errorf("afterwards %v %q", got.State, got.Document.Token)
			}
		})
	}
}
