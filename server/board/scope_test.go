package board

import (
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestScope(t *testing.T) {
	const fold, windows = 1, 2
	tests := []struct {
		how  int
		root string
		raw  string // paths, separated by spaces
		want string // or the beginning of the reason, after a "!"
	}{
		{0, "/w", "apps", "apps"},
		{0, "/w", "./apps/ apps/x", "apps"},
		{0, "/w", "apps/x app", "apps/x app"},
		{0, "/w", "apps/x apps", "apps"},
		{0, "/w", "a//b/./c a/b/c", "a/b/c"},
		{0, "/w", ". a", "."},
		{0, "/w", "./", "."},
		{0, "/w", "a/../b", "b"},
		{0, "/w", "..", "!lies outside"},
		{0, "/w", "a/../../w/b", "!lies outside"},
		{0, "/w", "...", "..."},
		{0, "/w", "~/x", "!begins in a home"},
		{0, "/w", "./~", "!begins in a home"},
		{0, "/w", "~x", "~x"},

		// absolute
		{0, "/w", "/w", "."},
		{0, "/w", "/w/", "."},
		{0, "/w/", "/w/a/", "a"},
		{0, "/w", "/w/a/../b", "b"},
		{0, "/w", "/w/../x", "!lies outside"},
		{0, "/w", "/wx/a", "!lies outside"},
		{0, "/w", "/", "!lies outside"},
		{0, "/w/x", "/w", "!lies outside"},
		{0, "/", "/etc/hosts", "etc/hosts"},
		{0, "/", "/", "."},
		{0, "/", "etc", "etc"},
		{0, "", "/etc/hosts", "!lies outside"},
		{0, "", "etc", "etc"},
		{0, "/w", "/W/a", "!lies outside"},
		{fold, "/w", "/W/a", "a"},
		{fold, "/Straſe", "/STRASE/a", "a"},
		{fold, "/k", "/\u212a/a", "a"}, // three bytes in place of one
		{fold, "/w", "/W", "."},

		// URIs
		{0, "/w", "file:///w/a%20b/c", "a b/c"},
		{0, "/w", "FILE://localhost/w/a", "a"},
		{0, "/w", "file:///w/app/%5Bid%5D/page.tsx#L10", "app/[id]/page.tsx"},
		{0, "/w", "file:///w/100%", "!is not a URI"},
		{0, "/w", "file:///w/a%00b", "!has control"},
		{0, "/w", "file:///w/%2e%2e/x", "!lies outside"},
		{0, "/w", "file:///x/a", "!lies outside"},
		{0, "/w", "file://host/w/a", "!is a URI of another"},
		{0, "/w", "file://", "!is empty"},
		{0, "/w", "https://w/a", "!is a URI, and"},
		{0, "/w", "vscode-remote://w/a", "!is a URI, and"},
		{0, "/w", "100%25", "100%25"},

		// patterns
		{0, "/w", "*.go **/*.go", "**/*.go"},
		{0, "/w", "src/** src/x", "src"},
		{0, "/w", "**", "."},
		{0, "/w", "**/* a", "."},
		{0, "/w", "src/**/* src/**/**", "src"},
		{0, "/w", "src/**/**/a", "src/**/a"},
		{0, "/w", "src/**.go", "src/**/*.go"},
		{0, "/w", "src/a**b/c", "src/a*/**/c"},
		{0, "/w", "src/*/x src/a/x src/a/y", "src/*/x src/a/y"},
		{0, "/w", "src/* src/*.go src/x/y", "src/*"},
		{0, "/w", "src/**/x src/a/b/x/c src/x", "src/**/x"},
		{0, "/w", "app/[id]/page.tsx app/[id]", "app/[id]"},
		{0, "/w", "*.{ts,tsx}", "*.ts *.tsx"},
		{0, "/w", "{a,b/c}/{x,y}", "a/x a/y b/c/x b/c/y"},
		{0, "/w", "{a,{b,c}}d", "ad bd cd"},
		{0, "/w", "{a,../b}", "!lies outside"},
		{0, "/w", "a/{,b}", "a"},
		{0, "/w", "{a,}", "!is empty"},
		{0, "/w", "app/{id}/x", "app/{id}/x"},
		{0, "/w", "{a,b", "{a,b"},
		{0, "/w", "**/../x", `!has ".." after`},
		{0, "/w", "{x/../a}", `!has ".." after`},
		{0, "/w", "{a,b/x**{/c}", "!has braces"},
		{0, "/w", strings.Repeat("{a,b}", 7), "!stands for more"},
		{0, "/w", strings.Repeat("{a,b}", 2000), "!is too long"},
		{0, "/w", "[!a] b c", "[!a] b c"}, // as a name it holds neither
		{fold, "/w", "SRC/*.GO src/x.go", "SRC/*.GO"},
		{fold, "/w", "Apps apps/X", "Apps"},
		{fold, "/w", "apps APPS", "apps"},
		{0, "/w", "apps APPS", "apps APPS"},

		{0, "/w", strings.Repeat("x", mostPath), strings.Repeat("x", mostPath)},
		{0, "/w", strings.Repeat("x", mostPath+1), "!is too long"},
		{0, "/w", "a\x1bb", "!has control"},
		{0, "/w", "a\u009bb", "!has control"},
		{0, "/w", "a\x7f", "!has control"},

		// Windows
		{0, "/w", `a\b`, `a\b`},
		{windows | fold, `C:\w`, `a\b`, "a/b"},
		{windows | fold, `C:\w`, `c:\W\a\B`, "a/B"},
		{windows, `C:\w`, `c:\w\a`, "a"}, // drives have no case
		{windows, `C:\w`, `c:\W\a`, "!lies outside"},
		{windows | fold, `C:\w`, `C:/w`, "."},
		{windows | fold, `C:\`, `C:\x`, "x"},
		{windows | fold, `C:\w`, `D:\w\a`, "!lies outside"},
		{windows | fold, `C:\w`, `C:a`, "!is relative to a drive"},
		{windows | fold, `C:\w`, `C:`, "!is relative to a drive"},
		{windows | fold, `C:\w`, `\w\a`, "!lies outside"},
		{windows | fold, `C:\w`, `a\..\..\b`, "!lies outside"},
		{windows | fold, `C:\w`, `x\..\D:\y`, "!lies outside"},
		{windows | fold, `C:\w`, `C:\w\..`, "!lies outside"},
		{windows | fold, `C:\w`, "file:///c%3A/w/a%20b", "a b"},
		{windows | fold, `C:\w`, `src\**\*.go`, "src/**/*.go"},
		{windows | fold, `\\host\share\w`, `\\HOST\share\w\a`, "a"},
		{windows | fold, `\\host\share\w`, "file://host/share/w/a", "a"},
	}
	for _, tt := range tests {
		split := func(s string) []string {
			if strings.Contains(s, "a b") || strings.HasPrefix(s, "!") { // a name with a space in it
				return []string{s}
			}
			return strings.Fields(s)
		}
		got, err := readScope(tt.root, split(tt.raw), tt.how&fold != 0, tt.how&windows != 0)
		if reason, ok := strings.CutPrefix(tt.want, "!"); ok {
			bad, ok := err.(*ScopeError)
			if !ok || !strings.HasPrefix(bad.Reason, reason) {
				t.Errorf("%s of %q: %q, %v; want a refusal that begins with %q", tt.root, tt.raw, got, err, reason)
			}
			continue
		}
		if err != nil || !slices.Equal(got, split(tt.want)) {
			t.Errorf("%s of %q: %q, %v; want %q", tt.root, tt.raw, got, err, tt.want)
		}
		again, err := readScope(tt.root, got, tt.how&fold != 0, tt.how&windows != 0)
		if err != nil || !slices.Equal(again, got) {
			t.Errorf("%q read again is %q, %v", got, again, err)
		}
	}
	for _, raw := range []string{"", " ", "./ ", "\t"} {
		if got, err := Scope("/w", []string{"a", raw}, false); err == nil || err.(*ScopeError).Index != 1 {
			t.Errorf("%q: %q, %v; want the second refused", raw, got, err)
		}
	}
	if got, err := Scope("/w", nil, false); got != nil || err != nil {
		t.Errorf("no scope: %q, %v", got, err)
	}
}

func TestScopeErrorIsShort(t *testing.T) {
	_, err := Scope("/w", []string{strings.Repeat("ä", 4000)}, false)
	if err == nil || len(err.Error()) > 200 || !utf8.ValidString(err.Error()) {
		t.Errorf("the error is %v", err)
	}
}

func TestMeet(t *testing.T) {
	tests := []struct {
		a, b string
		want bool
	}{
		{"apps", "apps/x", true},
		{"app", "apps/x", false},
		{"apps", "app", false},
		{".", "a/b", true},
		{".", "*", true},
		{"a/b", "a/c", false},
		{"a/b/c", "a/b/c", true},
		{"Apps", "apps", false},
		{"*.go", "x.go", true},
		{"*.go", "x.ts", false},
		{"*.go", "x.go/y", true},
		{"*.go", "src/x.go", false},
		{"*.go", "src", false},
		{"**/*.go", "src", true}, // there could be one in it
		{"**/*.go", "src/deep/x.go", true},
		{"**/*.go", "src/deep/x.ts", true}, // x.ts may be a folder
		{"src/**/x", "src/x", true},
		{"src/**/x", "lib/x", false},
		{"src/*/x", "src/a/x", true},
		{"src/*/x", "src/a/y", false},
		{"src/*/x", "src/a", true},
		{"src/*/x", "src/*/y", false},
		{"src/*/x", "*/a/*", true},
		{"*.go", "*.ts", false},
		{"*_test.go", "board*", true},
		{"*_test.go", "*.go", true},
		{"a*", "b*", false},
		{"a*c", "*b*", true},
		{"a?c", "abc", true},
		{"a?c", "ac", false},
		{"a?", "?", false},
		{"?", "ä", true},
		{"[ab]x", "bx", true},
		{"[ab]x", "cx", false},
		{"[!ab]x", "cx", true},
		{"[^ab]x", "ax", false},
		{"[a-c]", "b", true},
		{"[]a]", "]", true},
		{"[]a]", "a", true},
		{"[a-]", "-", true},
		{"[[:alpha:]_]x", "qx", true},
		{"[[:alpha:]_]x", "qy", false},
		{"[a", "[a", true},
		{"[a", "a", false},
		{`\*[a]`, "*a", true},
		{`\*[a]`, "xa", false},
		{"app/[id]/page.tsx", "app/[id]/page.tsx", true},
		{"app/[id]/page.tsx", "app/about/page.tsx", false},
		{"app/[id]/page.tsx", "app/*/page.tsx", true},
		{"app/[id]/page.tsx", "app/*d]/page.tsx", true}, // by its name
		{"app/[id]/page.tsx", "app/[[]*/page.tsx", true},
		{"app/[...slug]", "app/[...slug]/x", true},
		{"app/{id}", "app/{id}/x", true},
		{"**/a/**/b", "x/a/y/b", true},
		{"**/a/**/b", "**/c", true},
	}
	for _, tt := range tests {
		for _, fold := range []bool{false, true} {
			a := tt.a
			if tt.want && fold && !strings.Contains(a, "[:") {
				a = strings.ToUpper(a)
			}
			if !tt.want && fold && tt.a == "Apps" {
				continue
			}
			if got := Meet(a, tt.b, fold); got != tt.want {
				t.Errorf("Meet(%q, %q, %v) = %v", a, tt.b, fold, got)
			}
			if got := Meet(tt.b, a, fold); got != tt.want {
				t.Errorf("Meet(%q, %q, %v) = %v", tt.b, a, fold, got)
			}
		}
	}
}

func TestCovers(t *testing.T) {
	tests := []struct {
		outer, inner string
		want         bool
	}{
		{".", "a", true},
		{"a", ".", false},
		{"a", "a/b", true},
		{"a/b", "a", false},
		{"a", "ab", false},
		{"*", "a/b", true},
		{"*", "*.go", true},
		{"*.go", "*", false},
		{"*.go", "x.go", true},
		{"*.go", "*_test.go", false}, // it does, but that is not told
		{"*", "**/a", false},
		{"**/a", "a", true},
		{"**/a", "x/y/a/z", true},
		{"**/a", "x/y", false},
		{"**/a", "**/a/b", true},
		{"a/**/b", "a/**/b", true},
		{"a/**/b", "a/x/**/b", true},
		{"a/x/**/b", "a/**/b", false},
		{"[ab]", "a", true},
		{"[!a]", "b", false}, // it may be a name
		{"[ab]", "[ab]/c", true},
	}
	for _, tt := range tests {
		if got := covers(route(tt.outer, false), route(tt.inner, false)); got != tt.want {
			t.Errorf("covers(%q, %q) = %v", tt.outer, tt.inner, got)
		}
	}
}

// maker makes paths and patterns of few letters, so that they often meet.
type maker struct{ *rand.Rand }

func (r maker) name() string {
	b := make([]byte, 1+r.IntN(3))
	for i := range b {
		b[i] = "abAB["[r.IntN(5)]
		if b[i] == '[' && r.IntN(4) > 0 {
			b[i] = 'a'
		}
	}
	return string(b)
}

// path makes what exists.
func (r maker) path() []string {
	list := make([]string, 1+r.IntN(4))
	for i := range list {
		list[i] = r.name()
	}
	return list
}

// pattern makes one that names the path, or a folder above it.
func (r maker) pattern(of []string, fold bool) string {
	of = of[:1+r.IntN(len(of))]
	var list []string
	for i := 0; i < len(of); i++ {
		switch r.IntN(6) {
		case 0:
			list = append(list, "**")
			i += r.IntN(len(of) - i)
			if r.IntN(2) == 0 {
				i-- // it stands for none
				list = append(list, "*")
				i++
			}
		case 1, 2:
			list = append(list, r.glob(of[i], fold))
		default:
			list = append(list, r.spelled(of[i], fold))
		}
	}
	return path.Join(list...)
}

func (r maker) spelled(s string, fold bool) string {
	if fold && r.IntN(2) == 0 {
		return strings.ToUpper(s)
	}
	return s
}

// glob makes one that stands for the name.
func (r maker) glob(name string, fold bool) string {
	var b strings.Builder
	for i := 0; i < len(name); i++ {
		c := r.spelled(name[i:i+1], fold)
		switch r.IntN(6) {
		case 0:
			b.WriteByte('?')
		case 1:
			b.WriteByte('*')
			i += r.IntN(len(name) - i)
		case 2:
			b.WriteString("[xy" + c + "]")
		case 3:
			b.WriteString("[!xy]")
		default:
			if c == "[" {
				c = `\[`
			}
			b.WriteString(c)
		}
		if r.IntN(4) == 0 {
			b.WriteByte('*')
		}
	}
	if strings.Contains(b.String(), `\`) && !isPattern(strings.ReplaceAll(b.String(), `\[`, "")) {
		return name // without a pattern in it, a backslash is a letter
	}
	return b.String()
}

// TestNoOverlapIsMissed: of two that both name a path, Meet is true; also after
// Scope has read them, together with others.
func TestNoOverlapIsMissed(t *testing.T) {
	r := maker{rand.New(rand.NewPCG(1, 2))}
	met, inside := 0, 0
	for range 40_000 {
		fold := r.IntN(2) == 0
		exists := r.path()
		at := path.Join(exists...)
		a, b := r.pattern(exists, fold), r.pattern(exists, fold)
		if !Meet(a, b, fold) || !Meet(b, a, fold) {
			t.Fatalf("Meet(%q, %q, %v) misses %q", a, b, fold, at)
		}
		raw := []string{a}
		for range r.IntN(3) * 8 {
			raw = append(raw, r.pattern(r.path(), fold))
		}
		r.Shuffle(len(raw), func(i, j int) { raw[i], raw[j] = raw[j], raw[i] })
		scope, err := Scope("/w", raw, fold)
		if err != nil {
			t.Fatal(err)
		}
		f := newFinder(scope, fold)
		if !f.meets(b) || !f.meets(at) || !f.holds(at) {
			t.Fatalf("the scope %q misses %q or %q (fold %v) of %q", scope, b, at, fold, a)
		}
		other := r.pattern(r.path(), fold)
		got := Meet(a, other, fold)
		if got != Meet(other, a, fold) {
			t.Fatalf("Meet(%q, %q, %v) is not symmetric", a, other, fold)
		}
		if got {
			met++
		}
		if covers(route(other, fold), route(a, fold)) {
			inside++
			if !got || !Meet(other, b, fold) || !newFinder([]string{other}, fold).holds(at) {
				t.Fatalf("%q covers %q, but misses %q or %q (fold %v)", other, a, b, at, fold)
			}
		}
	}
	if met < 2000 || met > 38_000 || inside < 200 {
		t.Errorf("%d met and %d covered: this tests nothing", met, inside)
	}
}

func FuzzScope(f *testing.F) {
	for _, s := range []string{"a/b", "../x", "file:///w/%41", "{a,b}/**", `C:\w\x`, "app/[id]", "[[:a:]", "a**{b,c}/../d", "~/x", "./https://x", "\xff/K", " //**"} {
		f.Add(s, "a/*", false, false)
		f.Add(s, "**/x", true, true)
	}
	f.Fuzz(func(t *testing.T, a, b string, fold, windows bool) {
		root := "/w"
		if windows {
			root = `C:\w`
		}
		scope, err := readScope(root, []string{a, b}, fold, windows)
		if err != nil {
			_ = err.Error()
			return
		}
		for _, p := range scope {
			if p == "" || p != path.Clean(p) || path.IsAbs(p) || p == ".." || strings.HasPrefix(p, "../") || len(p) > mostPath {
				t.Fatalf("%q and %q give %q", a, b, p)
			}
			if !Meet(p, p, fold) || !covers(route(p, fold), route(p, fold)) {
				t.Fatalf("%q does not meet, or cover, itself", p)
			}
		}
		again, err := readScope(root, scope, fold, windows)
		if err != nil || !slices.Equal(again, scope) {
			t.Fatalf("%q read again is %q, %v", scope, again, err)
		}
		if x, y := scope[0], scope[len(scope)-1]; Meet(x, y, fold) != Meet(y, x, fold) {
			t.Fatalf("Meet(%q, %q) is not symmetric", x, y)
		}
	})
}
