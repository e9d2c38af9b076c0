package lease

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestMutations breaks one rule of the election after the other, each of which
// there is a counterexample for, and wants the explorer to find that.
func TestMutations(t *testing.T) {
	if !*deep {
		t.Skip("takes minutes; -deep runs it")
	}
	const endless = "servers replace each other for ever"
	for _, m := range []struct {
		rule, file, old, new, scene, fault string
	}{
		{"a taker looks at the lease again under the lock", "elect.go", "if !now.same(judged) {", "if false {", "two", "replaced a lease that it had not judged"},
		{"every change is made under the lock", "lock.go", "first, err := f.lock(root, lockName, until)",
			"first, err := locker(nil), error(nil)\n\tif true {\n\t\treturn func() {}, nil\n\t}", "two", "replaced a lease that it had not judged"},
		{"what is removed is one's own", "tenure.go", "\tif !own {\n\t\treturn nil\n\t}\n\tif err := t.root.Remove", "\t_ = own\n\tif err := t.root.Remove", "an older release that ends and a newer one", "removed a lease that is not its own"},
		{"what is rewritten is one's own", "tenure.go", "\tcase !own:\n\t\tt.lose()\n\t\treturn ErrLost\n\t}\n\tt.mu.Lock()", "\t}\n\t_ = own\n\tt.mu.Lock()", "a stop", "replaced a lease"},
		{"the content counts, not the token alone", "document.go", "return bytes.Equal(f.raw, g.raw) &&", "if f.State == Present {\n\t\treturn f.Document.Token == g.Document.Token\n\t}\n\treturn bytes.Equal(f.raw, g.raw) &&", "a stop", "replaced a lease that it had not judged"},
		{"a loss is never unmade", "tenure.go", "\tif !t.Held() {\n\t\treturn false, nil\n\t}\n\town, err := t.look()", "\tt.mu.Lock()\n\tt.lostAt = time.Time{}\n\tt.mu.Unlock()\n\town, err := t.look()", "an older release that ends and a newer one", "had lost the lease and has it again"},
		{"a dead process's files are removed", "lock.go", "\t\tremoveLocked(root, name, l)\n\t\treturn\n\t}\n\tl.Unlock() // ignore error: of no use\n}", "\t\tl.Unlock()\n\t\treturn\n\t}\n\tl.Unlock()\n}", "a kill", "is left behind"},
		{"the folder is locked too", "lock.go", "if !folderLocks {", "if folderLocks {", "an rm", "replaced a lease that it had not judged"},
		{"who has started a server joins what there is", "judge.go", "s.History.StartedOwn || ", "", "", endless},
		{"who would serve in itself and was replaced supersedes nobody", "judge.go", "s.History.InProcess && s.SelfReplaced", "false", "", endless},
		{"a holder that cannot be reached is left alone", "judge.go", "\t\tif s.Shut >= t.ProbeTimeout {\n\t\t\treturn Verdict{Action: Elsewhere", "\t\tif s.Shut >= t.ProbeTimeout {\n\t\t\treturn Verdict{Action: TakeOver", "", endless},
	} {
		t.Run(m.rule, func(t *testing.T) {
			t.Parallel()
			path, err := filepath.Abs(m.file)
			if err != nil {
				t.Fatal(err)
			}
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(string(b), m.old); n != 1 {
				t.Fatalf("%s has %q %d times", m.file, m.old, n)
			}
			dir := t.TempDir()
			mutant := filepath.Join(dir, m.file)
			if err := os.WriteFile(mutant, []byte(strings.Replace(string(b), m.old, m.new, 1)), 0o644); err != nil {
				t.Fatal(err)
			}
			overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{path: mutant}})
			if err != nil {
				t.Fatal(err)
			}
			list := filepath.Join(dir, "overlay.json")
			if err := os.WriteFile(list, overlay, 0o644); err != nil {
				t.Fatal(err)
			}
			run := "^TestNoPingPong$"
			if m.scene != "" {
				run = "^TestExplore$/^" + strings.ReplaceAll(m.scene, " ", "_") + "$"
			}
			out, err := exec.Command("go", "test", "-overlay", list, "-timeout", "30m", "-run", run, ".", "-deep").CombinedOutput()
			if err == nil || !strings.Contains(string(out), m.fault) {
				t.Errorf("not noticed: %v\n%.3000s", err, out)
			}
		})
	}
}
