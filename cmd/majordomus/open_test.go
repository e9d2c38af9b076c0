//go:build unix

package main

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func TestOpen(t *testing.T) {
	t.Parallel()
	c := accFresh(t)
	out, log, err := c.run("open")
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != exitNo || out != "" || !strings.Contains(log, "no server runs in this checkout") {
		t.Errorf("without a server: %v: %q %q", err, out, log)
	}
	c.mustRun("serve", "ensure")
	page := *c.mustLease().URL + "/cockpit"

	// What is printed is worth one visit.
	_, code, _ := strings.Cut(c.visit(), "#code=")
	var statuses []int
	for range 2 {
		resp, err := accHTTP.Post(strings.TrimSuffix(page, "/cockpit")+"/api/v1/page", "application/json", strings.NewReader(`{"code":"`+code+`"}`))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		statuses = append(statuses, resp.StatusCode)
	}
	if statuses[0] != http.StatusOK || statuses[1] != http.StatusUnauthorized {
		t.Errorf("a code twice: %v", statuses)
	}

	// Without a screen there is nothing to open it with.
	if runtime.GOOS != "darwin" {
		if out := c.mustRun("open"); !strings.HasPrefix(out, page+"#code=") {
			t.Errorf("without a screen: %q", out)
		}
	}

	// Where there is one, its own program opens it.
	note := filepath.Join(c.home, "note")
	for _, name := range []string{"xdg-open", "open"} {
		c.write("../home/bin/"+name, "#!/bin/sh\necho \"$1\" >'"+note+"'\nexit \"${FAIL:-0}\"\n", 0o755)
	}
	c.extra = []string{"DISPLAY=:7", "PATH=" + filepath.Join(c.home, "bin") + ":" + os.Getenv("PATH")}
	if out := c.mustRun("open"); out != "opened "+page+"\n" {
		t.Errorf("open: %q", out)
	}
	if b, err := os.ReadFile(note); err != nil || !strings.HasPrefix(string(b), page+"#code=") {
		t.Errorf("opened was %q, %v", b, err)
	}
	var told struct {
		URL    string
		Opened bool
	}
	if err := json.Unmarshal([]byte(c.mustRun("open", "--format", "json")), &told); err != nil || told.URL != page || !told.Opened {
		t.Errorf("as JSON: %+v, %v", told, err)
	}
	c.extra = append(c.extra, "FAIL=3")
	if err := json.Unmarshal([]byte(c.mustRun("open", "--format", "json")), &told); err != nil || !strings.HasPrefix(told.URL, page+"#code=") || told.Opened {
		t.Errorf("as JSON, where nothing opens it: %+v, %v", told, err)
	}
	c.extra = append(c.extra, "PATH="+c.home)
	if out := c.mustRun("open"); !strings.HasPrefix(out, page+"#code=") {
		t.Errorf("without a program that opens it: %q", out)
	}
}
