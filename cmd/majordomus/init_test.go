//go:build unix

package main

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"majordomus/lease/checkout"
)

var beginnings = []string{".ai/manifest.yaml", ".ai/repo/mcp.json", ".ai/repo/policy.yaml"}

// made are the files of the checkout's .ai folder, by their names.
func (c *accCheckout) made(root string) []string {
	c.t.Helper()
	var list []string
	for path, text := range c.files() {
		if rel, err := filepath.Rel(root, path); err == nil && strings.HasPrefix(rel, ".ai/") && text != "a folder" {
			list = append(list, rel)
		}
	}
	slices.Sort(list)
	return list
}

// TestInit begins a checkout: the files are as they are shown here, a second time
// changes nothing, and what was there stays.
func TestInit(t *testing.T) {
	t.Parallel()
	c := accFresh(t)
	c.onPath(true)
	c.extra = append(c.extra, "PATH=/nowhere")
	c.says("init/fresh.txt", "init")
	if got := c.made(c.root); !slices.Equal(got, beginnings) {
		t.Fatalf("made were %q", got)
	}
	for _, name := range beginnings {
		golden := filepath.Join("testdata/init", filepath.Base(name))
		b, err := os.ReadFile(filepath.Join(c.root, name))
		if err != nil {
			t.Fatal(err)
		}
		if *update {
			if err := os.WriteFile(golden, b, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		c.fileIs(golden, string(b))
	}
	co, err := checkout.Open(c.root)
	if err != nil {
		t.Fatal(err)
	}
	if p, err := co.Policy(); err != nil || p != checkout.DefaultPolicy() {
		t.Errorf("the policy is %+v, %v", p, err)
	}
	if out := c.must("trust", "--show"); !strings.Contains(out, "it names no server") {
		t.Error(out)
	}
	after := c.files()
	c.says("init/again.txt", "init")
	c.says("init/again-json.txt", "init", "--format", "json")
	if !maps.Equal(c.files(), after) {
		t.Error("a second time is not like once")
	}
	c.says("init/help.txt", "init", "--help")

	// One file is missing, and the others have been worked on.
	c.writeFile(filepath.Join(c.root, ".ai/repo/policy.yaml"), "server: {idle_seconds: 7}\n")
	if err := os.Remove(filepath.Join(c.root, ".ai/repo/mcp.json")); err != nil {
		t.Fatal(err)
	}
	c.says("init/some.txt", "init")
	c.fileIs(filepath.Join(c.root, ".ai/repo/policy.yaml"), "server: {idle_seconds: 7}\n")
	c.fileIs(filepath.Join(c.root, ".ai/repo/mcp.json"), after[filepath.Join(c.root, ".ai/repo/mcp.json")])
}

// TestInitPlaces has it begin where people mean, and nowhere else.
func TestInitPlaces(t *testing.T) {
	t.Parallel()
	c := accFresh(t)
	c.onPath(true)
	c.extra = append(c.extra, "PATH=/nowhere")
	outside := filepath.Join(filepath.Dir(c.root), "outside")
	sub := filepath.Join(c.root, "sub")
	for _, dir := range []string{outside, sub} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	in := func(dir, golden string, words ...string) {
		t.Helper()
		other := *c
		other.root = dir
		out, code := other.speaks(words...)
		c.installGolden("../init/"+golden, strings.ReplaceAll(out, outside, "OUTSIDE")+map[bool]string{true: "-- refused --\n"}[code != 0])
		if want := map[bool]int{true: exitMissing}[golden == "outside.txt"]; strings.HasPrefix(golden, "outside") && code != want {
			t.Errorf("%s: exit code %d, want %d", golden, code, want)
		}
	}
	before := c.files()
	in(outside, "outside.txt", "init")
	in(c.home, "home.txt", "init", "--here")
	in(c.home, "home-yes.txt", "init", "--yes")
	in(outside, "home-root.txt", "init", "--root", c.home)
	in(outside, "slash.txt", "init", "--root", "/")
	in(outside, "words.txt", "init", "--root", c.root, "--here")
	if !maps.Equal(c.files(), before) || there(filepath.Join(outside, ".ai")) {
		t.Fatal("something was written all the same")
	}
	in(outside, "outside-here.txt", "init", "--here")
	in(outside, "outside-again.txt", "init") // it is a checkout now
	if !there(filepath.Join(outside, ".ai/manifest.yaml")) {
		t.Error("nothing was made")
	}
	in(sub, "below.txt", "init")
	if got := c.made(c.root); !slices.Equal(got, beginnings) {
		t.Errorf("made were %q", got)
	}
	in(sub, "below-here.txt", "init", "--here")
	if !there(filepath.Join(sub, ".ai/manifest.yaml")) {
		t.Error("nothing was made")
	}
}

// A clone cannot have it write elsewhere, nor where its manifest does not say.
func TestInitClones(t *testing.T) {
	t.Parallel()
	c := accFresh(t)
	c.onPath(true)
	outside := filepath.Join(filepath.Dir(c.root), "outside")
	if err := os.Mkdir(outside, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(c.root, ".ai")); err != nil {
		t.Fatal(err)
	}
	if out, code := c.speaks("init"); code == 0 {
		t.Errorf("said %s", out)
	}
	if list, err := os.ReadDir(outside); err != nil || len(list) > 0 {
		t.Errorf("outside has %v, %v", list, err)
	}
	if err := os.Remove(filepath.Join(c.root, ".ai")); err != nil {
		t.Fatal(err)
	}
	c.writeFile(filepath.Join(c.root, ".ai/manifest.yaml"), "sections: {policy: shared/our.yaml}\n")
	c.must("init")
	want := []string{".ai/manifest.yaml", ".ai/repo/mcp.json", ".ai/shared/our.yaml"}
	if got := c.made(c.root); !slices.Equal(got, want) {
		t.Errorf("made were %q", got)
	}
	c.fileIs(filepath.Join(c.root, ".ai/manifest.yaml"), "sections: {policy: shared/our.yaml}\n")
}

// TestInitEditors offers what is found, once.
func TestInitEditors(t *testing.T) {
	t.Parallel()
	c := accOwn(t)
	c.onPath(true)
	c.extra = append(c.extra, "PATH=/nowhere")
	for _, name := range []string{".vscode/mcp.json", ".junie/mcp/mcp.json"} {
		c.writeFile(filepath.Join(c.root, name), "{}\n")
	}
	before := c.files()
	c.says("init/editors.txt", "init") // there is no terminal to ask on
	for path, text := range before {
		if c.files()[path] != text {
			t.Errorf("%s was changed unasked", path)
		}
	}
	var r initReport
	if err := json.Unmarshal([]byte(c.must("init", "--format", "json")), &r); err != nil || !slices.Equal(r.Editors, []string{"vscode", "junie"}) {
		t.Errorf("%+v, %v", r, err)
	}
	c.must("install", "editor", "junie")
	c.says("init/editors-some.txt", "init")
	c.says("init/editors-yes.txt", "init", "--yes")
	c.says("init/editors-done.txt", "init")
	c.must("uninstall", "editor", "--all")
}

// The README shows the keys of the policy as init writes them.
func TestReadmePolicy(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	squeezed := func(s string) string { return strings.Join(strings.Fields(s), " ") }
	var lines []string
	for line := range strings.Lines(checkout.PolicyText()) {
		if rest, ok := strings.CutPrefix(line, "  # "); ok {
			lines = append(lines, rest)
		}
	}
	if want := "server: " + squeezed(strings.Join(lines, " ")) + " A checkout is"; !strings.Contains(squeezed(string(b)), want) {
		t.Errorf("README.md has not\n%s", want)
	}
}
