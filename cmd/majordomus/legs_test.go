//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestLegs has the official TypeScript clients of both generations find the
// same whichever way they reach a server: over standard streams through a
// bridge, over standard streams with the server alone in the process, and over
// HTTP without either. The server is testdata/everything, which offers some of
// everything; the checks are in testdata/clients.
func TestLegs(t *testing.T) {
	t.Parallel() // it waits more than it works
	clients, err := filepath.Abs(filepath.Join("testdata", "clients"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = os.Stat(filepath.Join(clients, "node_modules"))
	need(t, "what `npm ci` installs in testdata/clients", err)
	node, err := findNode(t, clients)
	need(t, "node 20 or newer", err)

	server := filepath.Join(t.TempDir(), "everything")
	if out, err := exec.Command("go", "build", "-o", server, "./testdata/everything").CombinedOutput(); err != nil {
		t.Fatalf("building the server: %v\n%s", err, out)
	}
	legs := []string{"bridge", "alone", "http"}
	for script, least := range map[string]int{"checks1.mjs": 41, "checks2.mjs": 13} {
		t.Run(script, func(t *testing.T) {
			script := []string{node, filepath.Join(clients, script)}
			words := [][]string{
				append(slices.Clone(script), "stdio", server, "bridge", serveEverything(t, server)),
				append(slices.Clone(script), "stdio", server, "stdio"),
				append(slices.Clone(script), "http", serveEverything(t, server)),
			}
			made := make([][]string, len(legs))
			var all sync.WaitGroup // mostly they wait, and subtests would wait for processors
			for i := range legs {
				all.Go(func() { made[i] = makeChecks(t, words[i]) })
			}
			all.Wait()
			for i, names := range made {
				if len(names) < least {
					t.Errorf("%s: %d checks were made, not even %d", legs[i], len(names), least)
				}
				if !slices.Equal(names, made[0]) {
					t.Errorf("other checks are made on the leg %s than on %s:\n%q\n%q", legs[i], legs[0], names, made[0])
				}
			}
		})
	}
}

// serveEverything starts the server over HTTP and returns its address.
func serveEverything(t *testing.T, server string) string {
	t.Helper()
	cmd := exec.Command(server, "http")
	var log bytes.Buffer
	cmd.Stderr = &log
	in, errIn := cmd.StdinPipe()
	out, errOut := cmd.StdoutPipe()
	if err := errors.Join(errIn, errOut, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close() // it ends with its input
		if err := cmd.Wait(); err != nil {
			t.Errorf("the server ended with %v:\n%s", err, &log)
		}
	})
	url, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("reading the server's address: %v", err)
	}
	return strings.TrimSpace(url)
}

// makeChecks runs a script that prints a line of JSON for each check it makes,
// and returns their names.
func makeChecks(t *testing.T, words []string) []string {
	t.Helper()
	var who []string // without the folders
	for _, w := range words[1:] {
		who = append(who, filepath.Base(w))
	}
	script := strings.Join(who, " ")
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "TMPDIR=" + os.TempDir(), "LANG=C.UTF-8"}
	cmd.WaitDelay = 5 * time.Second // what outlives the script would hold its streams
	var log bytes.Buffer
	cmd.Stderr = &log
	out, err := cmd.Output()
	var names []string
	for line := range bytes.Lines(out) {
		var check struct {
			Name, Why string
			OK        *bool
		}
		if err := json.Unmarshal(line, &check); err != nil || check.OK == nil {
			t.Errorf("%s: this is no check: %q (%v)", script, line, err)
			continue
		}
		names = append(names, check.Name)
		if !*check.OK {
			t.Errorf("%s: %s: %s", script, check.Name, check.Why)
		}
	}
	if err != nil {
		t.Errorf("%s: the checks ended with %v\n%s", script, err, &log)
	}
	return names
}
