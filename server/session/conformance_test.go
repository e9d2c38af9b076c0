package session_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestConformance runs the protocol's own conformance suite against the fronts,
// with the fixtures it asks for in testdata/conformance; `npm ci` there
// installs the suite. What may fail is listed in that folder by scenario, with
// the reason. Anything else that fails is an error, and so is a scenario that
// is listed and passes.
//
// The suite judges by its exit code what a revision requires. What it also runs
// and leaves out of that, newer scenarios and extensions, is judged here by the
// same rule, from the results it writes.
func TestConformance(t *testing.T) {
	folder, err := filepath.Abs(filepath.Join("testdata", "conformance"))
	if err != nil {
		t.Fatal(err)
	}
	modules := filepath.Join(folder, "node_modules")
	node := filepath.Join(modules, ".bin", "node") // the pinned one: the suite crashes on Node 20
	if out, err := exec.Command(node, "--version").CombinedOutput(); err != nil {
		why := fmt.Sprintf("what `npm ci` installs in testdata/conformance is missing: %v %s", err, out)
		if os.Getenv("MAJORDOMUS_TEST_ALL") == "1" {
			t.Fatal("MAJORDOMUS_TEST_ALL=1, but " + why)
		}
		t.Skip(why)
	}
	url := startFixture(t, folder)
	for _, revision := range []string{shaken, stateless} {
		t.Run(revision, func(t *testing.T) {
			home := t.TempDir()
			list := filepath.Join(folder, "expected-failures-"+revision+".yml")
			results := filepath.Join(home, "results")
			ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
			defer cancel()
			suite := exec.CommandContext(ctx, node, filepath.Join(modules, "@modelcontextprotocol", "conformance", "dist", "index.js"),
				"server", "--url", url, "--requirements", revision, "--expected-failures", list, "--output-dir", results, "--timeout", "10000")
			suite.Dir = home
			suite.Env = []string{"HOME=" + home, "TMPDIR=" + home, "PATH=" + filepath.Dir(node) + string(os.PathListSeparator) + os.Getenv("PATH")}
			suite.WaitDelay = 5 * time.Second
			if out, err := suite.CombinedOutput(); err != nil {
				t.Errorf("the suite: %v\n%s", err, out)
			}
			failed, expected := readResults(t, results), readExpected(t, list)
			for scenario, why := range failed {
				switch {
				case why != "" && !slices.Contains(expected, scenario):
					t.Errorf("%s fails:\n%s", scenario, why)
				case why == "" && slices.Contains(expected, scenario):
					t.Errorf("%s passes, and is listed in %s", scenario, filepath.Base(list))
				}
			}
			for _, scenario := range expected {
				if _, ran := failed[scenario]; !ran {
					t.Errorf("%s is listed in %s, and did not run", scenario, filepath.Base(list))
				}
			}
		})
	}
}

// startFixture returns the address of the server under test. It ends with the
// test, and with the test's process however that ends.
func startFixture(t *testing.T, folder string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "fixture.exe")
	build := []string{"build", "-o", program}
	if info, ok := debug.ReadBuildInfo(); ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		build = append(build, "-race")
	}
	if out, err := exec.Command("go", append(build, folder)...).CombinedOutput(); err != nil {
		t.Fatalf("building the fixture: %v\n%s", err, out)
	}
	fixture := exec.Command(program)
	var errs bytes.Buffer
	fixture.Stderr = &errs
	in, err := fixture.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := fixture.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := fixture.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close() // ignore error: it may have ended
		late := time.AfterFunc(patience, func() { fixture.Process.Kill() })
		defer late.Stop()
		if err := fixture.Wait(); err != nil {
			t.Errorf("the fixture: %v\n%s", err, errs.String())
		}
	})
	url, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the fixture's address: %v", err)
	}
	return strings.TrimSpace(url)
}

// resultFolder is how the suite names what it writes about a scenario.
var resultFolder = regexp.MustCompile(`^server-(.+)-\d{4}-\d\d-\d\dT[\d-]+Z$`)

// readResults returns all scenarios that ran, with the checks that failed. A
// warning is one of them, as it is where the suite reads a list itself.
func readResults(t *testing.T, results string) map[string]string {
	t.Helper()
	folders, err := os.ReadDir(results)
	if err != nil {
		t.Fatalf("the suite's results: %v", err)
	}
	failed := map[string]string{}
	for _, folder := range folders {
		name := resultFolder.FindStringSubmatch(folder.Name())
		if name == nil {
			t.Fatalf("the suite names its results otherwise now: %s", folder.Name())
		}
		var checks []struct{ ID, Status, ErrorMessage string }
		b, err := os.ReadFile(filepath.Join(results, folder.Name(), "checks.json"))
		if err == nil {
			err = json.Unmarshal(b, &checks)
		}
		if err != nil {
			failed[name[1]] = err.Error()
			continue
		}
		var why []string
		for _, check := range checks {
			if check.Status == "FAILURE" || check.Status == "WARNING" {
				why = append(why, fmt.Sprintf("\t%s %s: %s", check.Status, check.ID, check.ErrorMessage))
			}
		}
		failed[name[1]] = strings.Join(why, "\n")
	}
	return failed
}

// expectedLine is one entry of a list, in the suite's own format.
var expectedLine = regexp.MustCompile(`^  - ([a-z0-9-]+) # \S+`)

func readExpected(t *testing.T, list string) []string {
	t.Helper()
	b, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	var scenarios []string
	for line := range strings.Lines(string(b)) {
		if strings.HasPrefix(line, "#") || strings.HasPrefix(line, "server:") {
			continue
		}
		entry := expectedLine.FindStringSubmatch(line)
		if entry == nil {
			t.Fatalf("%s: not a scenario with a reason: %s", filepath.Base(list), line)
		}
		scenarios = append(scenarios, entry[1])
	}
	return scenarios
}
