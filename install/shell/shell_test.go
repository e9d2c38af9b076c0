package shell

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files anew")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s is now\n%s\nand was\n%s", name, got, want)
	}
}

// nasty is a path that every kind of quoting has trouble with.
const nasty = "/a b/it's \"$HOME\" `x` \\ \\' ! ; #é\n*"

var (
	in = State{Root: nasty, Lease: nasty + "/server.json", Seen: "{\n  \"root\": \"it's\"\n}\n", Knows: true,
		Vars: []Var{{Name: "MAJORDOMUS_ROOT", Value: nasty}, {Name: "MAJORDOMUS_URL", Unset: true}}}
	out = State{Vars: []Var{{Name: "MAJORDOMUS_ROOT", Unset: true}}}
)

func TestTexts(t *testing.T) {
	if _, ok := Named("tcsh"); ok {
		t.Error("a shell that nobody knows is known")
	}
	for _, name := range append(Names(), "json") {
		sh, ok := Named(name)
		if !ok {
			t.Fatalf("%s is not known", name)
		}
		text := ""
		if h := sh.Hook("/opt/it's here/majordomus"); h != "" {
			text += "== hook\n" + h
		}
		if l := sh.Line("/opt/it's here/majordomus"); l != "" {
			text += "== line\n" + l + "\n"
		}
		fresh := in
		fresh.Fresh = true
		text += "== in a checkout\n" + sh.Export(in)
		if now := sh.Export(fresh); now != sh.Export(in) {
			text += "== that was served a moment ago\n" + now
		}
		text += "== and out of it\n" + sh.Export(out)
		golden(t, name+".txt", text)
	}
}

// What is quoted comes out of each shell as it went in.
func TestQuoting(t *testing.T) {
	for name, args := range map[string][]string{
		"bash": {"bash", "--norc", "-c"}, "zsh": {"zsh", "-f", "-c"}, "fish": {"fish", "--no-config", "-c"}, "direnv": {"bash", "--norc", "-c", "watch_file() { :; }\n"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := exec.LookPath(args[0]); err != nil {
				if os.Getenv("MAJORDOMUS_TEST_ALL") == "1" {
					t.Fatal(err)
				}
				t.Skip(err)
			}
			sh, _ := Named(name)
			code := strings.Join(args[3:], "")
			if len(args) == 3 {
				args = append(args, "")
			}
			args[3] = code + sh.Export(in) + "env -0\n"
			cmd := exec.Command(args[0], args[1:4]...)
			cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "LANG=C.UTF-8", "MAJORDOMUS_URL=x"}
			b, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, b)
			}
			vars := "\x00" + string(b)
			if !strings.Contains(vars, "\x00MAJORDOMUS_ROOT="+nasty+"\x00") || strings.Contains(vars, "MAJORDOMUS_URL") {
				t.Errorf("%q", b)
			}
		})
	}
}
