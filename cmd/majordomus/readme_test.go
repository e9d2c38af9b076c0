package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestReadmeRuns looks whether the tests that README.md has people run are there,
// under the names and with the flags that it gives: go test is content with none.
func TestReadmeRuns(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	var tests []string
	flags := map[string]bool{"run": true, "bench": true, "timeout": true, "v": true, "cover": true}
	aTest := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	aFlag := regexp.MustCompile(`flag\.\w+\("([\w.]+)"`)
	err = filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && (e.Name() == "node_modules" || e.Name() == ".git"):
			return filepath.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		b, err := os.ReadFile(path)
		for _, m := range aTest.FindAllSubmatch(b, -1) {
			tests = append(tests, string(m[1]))
		}
		for _, m := range aFlag.FindAllSubmatch(b, -1) {
			flags[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	commands := regexp.MustCompile("`[^`]*(?:go test|-run) [^`]*`").FindAllString(string(readme), -1)
	if len(commands) < 8 {
		t.Errorf("README.md has only the commands %q", commands)
	}
	for _, command := range commands {
		for _, m := range regexp.MustCompile(`\s-run\s+(?:'([^']*)'|([^\s`+"`"+`]+))`).FindAllStringSubmatch(" "+strings.Trim(command, "`"), -1) {
			for part := range strings.SplitSeq(m[1]+m[2], "|") {
				if part == "^$" { // benchmarks alone
					continue
				}
				named := regexp.MustCompile(part).MatchString
				found := false
				for _, name := range tests {
					found = found || named(name)
				}
				if !found {
					t.Errorf("%s runs nothing for %s", command, part)
				}
			}
		}
		if !strings.Contains(command, "go test") {
			continue
		}
		for _, m := range regexp.MustCompile(`\s-([a-z][\w.]*)`).FindAllStringSubmatch(command, -1) {
			if !flags[m[1]] {
				t.Errorf("%s has the flag -%s, which no test knows", command, m[1])
			}
		}
	}
}
