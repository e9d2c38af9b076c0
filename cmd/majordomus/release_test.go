//go:build unix

package main

import (
	"bytes"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/template"

	"gopkg.in/yaml.v3"

	"majordomus/lease"
)

// releaseFile is an entry of an archive in GoReleaser's file.
type releaseFile struct {
	Src, Dst string
	Info     releaseInfo
}

type releaseInfo struct {
	Owner, Group, MTime string
	Mode                int
}

// releaseConfig is what of GoReleaser's file our promises hang on.
type releaseConfig struct {
	Dist   string
	Before struct{ Hooks []string }
	Builds []struct {
		Main, Binary                      string
		Env, GOOS, GOARCH, Flags, LDFlags []string
		GOAMD64, GOARM64                  []string
		ModTimestamp                      string `yaml:"mod_timestamp"`
	}
	Archives []struct {
		BuildsInfo releaseInfo `yaml:"builds_info"`
		Files      []releaseFile
	}
	Snapshot struct {
		VersionTemplate string `yaml:"version_template"`
	}
	Release struct{ Disable bool }
}

// TestReleaseConfig holds GoReleaser's file to what a release promises. That
// GoReleaser accepts the file is another question, which takes minutes to ask:
// .ci/release --archives does.
func TestReleaseConfig(t *testing.T) {
	t.Parallel()
	top := filepath.Join("..", "..")
	b, err := os.ReadFile(filepath.Join(top, ".goreleaser.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var cfg releaseConfig
	if err := yaml.Unmarshal(b, &cfg); err != nil {
		t.Fatal(err)
	}
	if !cfg.Release.Disable {
		t.Error("a release is sent somewhere")
	}
	if len(cfg.Builds) != 1 || len(cfg.Archives) != 1 {
		t.Fatalf("%d builds, %d archives", len(cfg.Builds), len(cfg.Archives))
	}

	build := cfg.Builds[0]
	var pairs []string
	for _, system := range build.GOOS {
		for _, arch := range build.GOARCH {
			pairs = append(pairs, system+"/"+arch)
		}
	}
	if !slices.Equal(pairs, platforms) {
		t.Errorf("built for %v, not for %v", pairs, platforms)
	}
	for _, want := range []struct {
		what string
		in   []string
		is   string
	}{
		{"env", build.Env, "CGO_ENABLED=0"},
		{"flags", build.Flags, "-trimpath"},
		{"flags", build.Flags, "-buildvcs=false"},
		{"goamd64", build.GOAMD64, "v1"},
		{"goarm64", build.GOARM64, "v8.0"},
		{"main", []string{build.Main}, "./cmd/majordomus"},
		{"mod_timestamp", []string{build.ModTimestamp}, "{{ .CommitTimestamp }}"},
	} {
		if !slices.Contains(want.in, want.is) {
			t.Errorf("%s is %v, without %s", want.what, want.in, want.is)
		}
	}
	if len(build.Env) == 0 || !slices.ContainsFunc(build.Env, func(s string) bool { return strings.HasPrefix(s, "GOFLAGS=") && s != "GOFLAGS=" }) {
		t.Error("GOFLAGS of whoever builds would count")
	}
	if !regexp.MustCompile(`(^| )-X main\.version=v\{\{ \.Version \}\}( |$)`).MatchString(strings.Join(build.LDFlags, " ")) {
		t.Errorf("the version is not set to the tag, with its v: %q", build.LDFlags)
	}

	// A snapshot must not pass for a release.
	snapshot, err := template.New("").Funcs(template.FuncMap{
		"replace": strings.ReplaceAll,
		"incpatch": func(v string) string { // of v1.2.3
			head, patch := v[:strings.LastIndex(v, ".")+1], v[strings.LastIndex(v, ".")+1:]
			n, err := strconv.Atoi(patch)
			if err != nil {
				t.Fatal(err)
			}
			return head + strconv.Itoa(n+1)
		},
	}).Parse(cfg.Snapshot.VersionTemplate)
	if err != nil {
		t.Fatal(err)
	}
	var version bytes.Buffer
	if err := snapshot.Execute(&version, map[string]string{
		"Version": "1.2.3", "CommitDate": "2006-01-02T15:04:05Z", "FullCommit": strings.Repeat("0123456789", 4),
	}); err != nil {
		t.Fatal(err)
	}
	if got := "v" + version.String(); got != "v1.2.4-0.20060102150405-012345678901" || lease.CompareVersions(got, "v1.2.3") != lease.Unpublished {
		t.Errorf("a snapshot is %s, %v", got, lease.CompareVersions(got, "v1.2.3"))
	}

	// Every flag of the hook is one of this package's tests.
	hook := strings.Join(cfg.Before.Hooks, "\n")
	for _, word := range []string{"papers", "release", "released"} {
		if flag.Lookup(word) == nil || !strings.Contains(hook, " -"+word+" ") {
			t.Errorf("the hook has no flag -%s of these tests: %s", word, hook)
		}
	}

	archive := cfg.Archives[0]
	if i := archive.BuildsInfo; i != (releaseInfo{"root", "root", "{{ .CommitDate }}", 0o755}) {
		t.Errorf("the executable's owner, group, time or mode: %+v", i)
	}
	papers := t.TempDir()
	if _, err := writePapers(papersCommand(), papers, "v1.2.3", "2006-01-02"); err != nil {
		t.Fatal(err)
	}
	packed := map[string]string{}
	for _, f := range archive.Files {
		if f.Info != (releaseInfo{"root", "root", "{{ .CommitDate }}", 0o644}) {
			t.Errorf("%s: owner, group, time or mode: %+v", f.Src, f.Info)
		}
		in := filepath.Join(top, f.Src)
		if rest, ok := strings.CutPrefix(f.Src, ".papers/"); ok {
			in = filepath.Join(papers, rest)
		}
		if found, err := filepath.Glob(in); err != nil || len(found) == 0 {
			t.Errorf("%s: there is no such file: %v", f.Src, err)
		}
		packed[f.Src] = f.Dst
	}
	if want := map[string]string{
		"LICENSE": "", "LICENSE-third-party": "", "README.md": "", "CHANGELOG.md": "",
		".papers/man/*.1": "man", ".papers/completions/*": "completions",
	}; !maps.Equal(packed, want) {
		t.Errorf("packed is %v, not %v", packed, want)
	}
	ignored, err := os.ReadFile(filepath.Join(top, ".gitignore"))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"/" + cfg.Dist + "/", "/.papers/"} {
		if !slices.Contains(strings.Split(string(ignored), "\n"), line) {
			t.Errorf(".gitignore lacks %s: the work tree of a release would be dirty", line)
		}
	}
}
