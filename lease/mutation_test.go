package lease

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A mutation is a rule of the election, each of which there is a counterexample
// for, the code broken so that it does not hold, and what is to notice that: a
// scene of the explorer, or the builds of TestNoPingPong.
type mutation struct {
	rule, file   string
	change       []string // old and new, in turns
	scene, fault string
}

var mutations = []mutation{
	{"a taker looks at the lease again under the lock", "elect.go", []string{"if !now.same(judged) {", "if false {"},
		"two", "replaced a lease that it had not judged"},
	{"every change is made under the lock", "lock.go", []string{"first, err := f.lock(root, lockName, until)", "first, err := locker(nil), error(nil)\n\tif true {\n\t\treturn func() {}, nil\n\t}"},
		"two", "replaced a lease that it had not judged"},
	{"what is removed is one's own", "tenure.go", []string{"\tif !own {\n\t\treturn nil\n\t}\n\tif err := t.root.Remove", "\t_ = own\n\tif err := t.root.Remove"},
		"an older release that ends and a newer one", "removed a lease that is not its own"},
	{"what is rewritten is one's own", "tenure.go", []string{"\tcase !own:\n\t\tt.lose()\n\t\treturn ErrLost\n\t}\n\tt.mu.Lock()", "\t}\n\t_ = own\n\tt.mu.Lock()"},
		"a stop", "replaced a lease"},
	{"the content counts, not the token alone", "document.go", []string{"return bytes.Equal(f.raw, g.raw) &&", "if f.State == Present {\n\t\treturn f.Document.Token == g.Document.Token\n\t}\n\treturn bytes.Equal(f.raw, g.raw) &&"},
		"a stop", "replaced a lease that it had not judged"},
	{"a loss is never unmade", "tenure.go", []string{"\tif !t.Held() {\n\t\treturn false, nil\n\t}\n\town, err := t.look()", "\tt.mu.Lock()\n\tt.lostAt = time.Time{}\n\tt.mu.Unlock()\n\town, err := t.look()"},
		"an older release that ends and a newer one", "had lost the lease and has it again"},
	{"a holder reads whose the lease is", "tenure.go", []string{"return file.State == Present && file.Document.Token == t.token, nil", "return file.State == Present, nil"},
		"an older release that ends and a newer one", "removed a lease that is not its own"},
	{"the folder is locked too", "lock.go", []string{"if !folderLocks {", "if folderLocks {"},
		"an rm", "replaced a lease that it had not judged"},
	{"a lease whose folder is gone is lost", "tenure.go", []string{"errors.Is(err, fs.ErrNotExist) || err == nil && !sameFile(at, t.info)", "false && err == nil && !sameFile(at, t.info)"},
		"an rm", "and nobody was stopped"},

	{".alive is locked before a lease names it", "elect.go", []string{"\treturn t, nil\n}\n\n// prepare", "\tt.alive.Unlock()\n\treturn t, nil\n}\n\n// prepare", "\tt.f.clean(t.root, t.token)\n\treturn true", "\tt.f.clean(t.root, t.token)\n\tt.alive.TryLock()\n\treturn true"},
		"two", "has the lease, and looks dead"},
	{"an owner looks whether it locked what is there", "lock.go", []string{"if ok && isAt(root, name, l) {\n\t\t\treturn token", "if ok {\n\t\t\treturn token"},
		"two", "a temporary file is left behind"},
	{"a cleaner locks what it removes", "lock.go", []string{"if ok, err := l.TryLock(); err != nil || !ok {\n\t\tl.Unlock() // ignore error: closes it", "if _, err := l.TryLock(); err != nil {\n\t\tl.Unlock() // ignore error: closes it"},
		"two", "removed a file of a process that lives"},
	{"a dead process's files are removed", "lock.go", []string{"\t\tremoveLocked(root, name, l)\n\t\treturn\n\t}\n\tl.Unlock() // ignore error: of no use\n}", "\t\tl.Unlock()\n\t\treturn\n\t}\n\tl.Unlock()\n}"},
		"a kill", "is left behind"},
	{".alive is removed last", "lock.go", []string{"root.Remove(tempName(token)) // ignore error: mostly there is none\n\t\tremoveLocked(root, name, l)", "root.Remove(name)\n\t\troot.Remove(tempName(token))\n\t\tl.Unlock()"},
		"two kills", "a temporary file is left behind"},
	{"who asks locks .alive with others", "lock.go", []string{"ok, err := l.TryRLock()", "ok, err := l.TryLock()"},
		"three and a kill", "takes a dead process for alive"},

	{"the lock is waited for as long as a probe may take", "lock.go", []string{"until := time.Now().Add(f.cfg.Timings.ProbeTimeout)", "until := time.Now().Add(2 * f.cfg.Timings.JoinTimeout)"},
		"a stop", "ms to be told who serves"},
	{"what is slow is written before the lock is taken", "tenure.go", []string{"\tunlock, err := t.f.change(t.root)\n\tif err != nil {\n\t\treturn t.orLost(err)\n\t}\n\tdefer unlock()\n", "\tdefer unlock()\n", "\ttemp := tempName(t.token)\n", "\tunlock, err := t.f.change(t.root)\n\tif err != nil {\n\t\treturn err\n\t}\n\ttemp := tempName(t.token)\n"},
		"two", "writes while it has server.lock"},
	{"a started server asks once more", "judge.go", []string{"\tif !s.Asked {\n", "\tif waitedFor {\n\t\treturn Verdict{Action: TakeOver, Reason: \"it was waited for\"}\n\t}\n\tif !s.Asked {\n"},
		"a stop and a launcher", "replaced a server that answers"},
	{"a binding lease ages by the waiter's clock", "judge.go", []string{"case waitedFor, s.Unchanged >= t.BindGrace:", "case waitedFor, s.FileAge >= t.BindGrace:"},
		"slow to bind, and files of another clock", "replaced a server on its way"},
	{"who binds shows that it makes progress", "tenure.go", []string{"if err := t.rewrite(func(d *Document) bool { return d.URL == nil }); err != nil {", "if err := error(nil); err != nil {"},
		"slow to bind", "lost before it served, and nothing befell it"},
	{"a silent server is waited for", "judge.go", []string{"if waitedFor || max(s.Silent, s.Shut) >= t.BusyGrace {", "if true {"},
		"a slow answer", "replaced a server that did not answer one question"},
	{"one's own stop is no silence of a server", "settle.go", []string{"w.silent += min(now.Sub(w.heard), w.pause+within)", "w.silent += now.Sub(w.heard)"},
		"a slow answer and a stop", "replaced a server that did not answer one question"},
	{"a lease is no older than it was seen to be", "settle.go", []string{"w.looked, w.since = true, time.Now()", "w.looked, w.since = true, now"},
		"slow to bind and a stop", "replaced a server on its way"},

	{"who has no .alive file is not dead for that", "judge.go", []string{"dead := s.Exists && !s.Alive", "dead := !s.Alive"},
		"a server of another maker", "replaced a server that did not answer one question"},

	{"a server is replaced by one that listens", "elect.go", []string{"\t\tif v.Superseded {", "\t\tif false {"},
		"an older release that ends and a newer one", "and does not listen"},
	{"only an older release is replaced", "judge.go", []string{"CompareVersions(version, s.Version) == ServerOlder", "CompareVersions(version, s.Version) != Same"},
		"two releases that return", "replaced a server that answers"},
	{"a holder that cannot be reached is left alone", "judge.go", []string{"\t\tif s.Shut >= t.ProbeTimeout {\n\t\t\treturn Verdict{Action: Elsewhere", "\t\tif s.Shut >= t.ProbeTimeout {\n\t\t\treturn Verdict{Action: TakeOver"},
		"two networks", "replaced a server that it cannot reach"},
	{"who cannot reach a holder asks again for a while", "judge.go", []string{"if s.Shut >= t.ProbeTimeout {", "if true {"},
		"a refusal", "and nobody was stopped"},
	{"what cannot be read is no loss", "tenure.go", []string{"return false, fmt.Errorf(\"%w: %w\", ErrUnreadable, file.Err)", "return false, nil"},
		"no descriptor", "lost a lease that is its own"},
	{"what cannot be read is read again", "judge.go", []string{"if s.Unchanged >= t.BusyGrace {\n\t\t\treturn Verdict{Action: Elsewhere, Reason: fmt.Sprintf(\"the lease cannot be read", "if true {\n\t\t\treturn Verdict{Action: Elsewhere, Reason: fmt.Sprintf(\"the lease cannot be read"},
		"no descriptor", "and nobody was stopped"},
	{"what cannot be read under the lock is not replaced", "elect.go", []string{"\tif now.State == Unreadable {\n\t\treturn false, nil // judged again, and waited for\n\t}\n\tif !now.same(judged) {", "\tif now.State != Unreadable && !now.same(judged) {"},
		"no descriptor", "replaced a lease that it had not judged"},

	{"who has started a server joins what there is", "judge.go", []string{"s.History.StartedOwn || ", ""}, "", endless},
	{"who would serve in itself and was replaced supersedes nobody", "judge.go", []string{"s.History.InProcess && s.SelfReplaced", "false"}, "", endless},
	{"the same, as played", "judge.go", []string{"s.History.InProcess && s.SelfReplaced", "false"},
		"a new executable, and who serves in itself", "replaced again and again"},
	{"a holder elsewhere is not replaced for ever", "judge.go", []string{"\t\tif s.Shut >= t.ProbeTimeout {\n\t\t\treturn Verdict{Action: Elsewhere", "\t\tif s.Shut >= t.ProbeTimeout {\n\t\t\treturn Verdict{Action: TakeOver"}, "", endless},
	{"whose own file was replaced claims nothing by its version", "judge.go", []string{"if !s.SelfReplaced && CompareVersions", "if CompareVersions"}, "", "a server is started for nothing"},
	{"that its code was replaced is a server's own word", "judge.go", []string{"if index.Stale != nil && s.Self.Path != \"\" && s.Self.Path == doc.Executable.Path {\n", "if s.Self.Path != \"\" && s.Self.Path == doc.Executable.Path && s.Self != doc.Executable {\n\t\tindex.Stale = new(string)\n"}, "", "a server is started for nothing"},
	{"a missing file is not a replaced one", "executable.go", []string{"if err != nil || !info.Mode().IsRegular() {\n\t\treturn \"\", false", "if err != nil || !info.Mode().IsRegular() {\n\t\treturn \"it is gone\", true"}, "TestExecutableIdentity", "want false"},
}

const endless = "servers replace each other for ever"

// TestMutations breaks one rule of the election after the other, and wants that
// to be noticed.
func TestMutations(t *testing.T) {
	if !*deep {
		t.Skip("compiles the package some forty times; -deep runs it")
	}
	for _, m := range mutations {
		t.Run(m.rule, func(t *testing.T) {
			path, err := filepath.Abs(m.file)
			if err != nil {
				t.Fatal(err)
			}
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			code := string(b)
			for i := 0; i < len(m.change); i += 2 {
				if n := strings.Count(code, m.change[i]); n != 1 {
					t.Fatalf("%s has %q %d times", m.file, m.change[i], n)
				}
				code = strings.Replace(code, m.change[i], m.change[i+1], 1)
			}
			dir := t.TempDir()
			mutant := filepath.Join(dir, m.file)
			if err := os.WriteFile(mutant, []byte(code), 0o644); err != nil {
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
			if strings.HasPrefix(m.scene, "Test") {
				run = "^" + m.scene + "$"
			} else if m.scene != "" {
				run = "^TestExplore$/^" + strings.ReplaceAll(m.scene, " ", "_") + "$"
			}
			out, err := exec.Command("go", "test", "-overlay", list, "-timeout", "30m", "-vet", "off", "-run", run, ".", "-deep").CombinedOutput()
			if err == nil || !strings.Contains(string(out), m.fault) {
				t.Errorf("not noticed: %v\n%.3000s", err, out)
			}
		})
	}
}
