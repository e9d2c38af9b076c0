//go:build unix

package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/mod/semver"

	"majordomus/lease"
)

// The papers of a release are what an archive holds beside the executable and
// the texts of this repository: manual pages and completions, made from the
// commands. They are made here, in a test, because here the commands can be
// walked and nothing of it can get into the executable, which every editor
// starts. cobra/doc would make them by way of Markdown, which our help is not
// (NAME_OF_THIS, <that>, examples that are indented by four), and by two more
// modules.
var (
	papersDir   = flag.String("papers", "", "write manual pages and completions into this `folder`")
	papersOf    = flag.String("release", "", "the `version` that they are of; CHANGELOG.md must tell of a release")
	papersSince = flag.String("released", "", "the `date` of it, year first")
)

// TestPapers makes the papers and looks at them. GoReleaser runs it with the
// flags above.
func TestPapers(t *testing.T) {
	t.Parallel()
	dir, version, date := t.TempDir(), "v0.0.0", "2006-01-02"
	if *papersDir != "" {
		dir = *papersDir
	}
	if *papersOf != "" {
		version = *papersOf
		told, err := releasesTold(filepath.Join("..", "..", "CHANGELOG.md"))
		if err != nil {
			t.Fatal(err)
		}
		switch lease.CompareVersions(version, version) {
		case lease.Unpublished: // a snapshot
		case lease.Same:
			if !slices.Contains(told, strings.TrimPrefix(version, "v")) {
				t.Fatalf("CHANGELOG.md does not tell of %s", version)
			}
		default:
			t.Fatalf("%q is no version of a release: an older server would never be told from a newer one", version)
		}
	}
	if *papersSince != "" {
		date, _, _ = strings.Cut(*papersSince, "T")
		if _, err := time.Parse(time.DateOnly, date); err != nil {
			t.Fatal(err)
		}
	}
	root := papersCommand()
	pages, err := writePapers(root, dir, version, date)
	if err != nil {
		t.Fatal(err)
	}

	for c, page := range pages {
		text := plainRoff(page)
		for _, sub := range c.Commands() {
			if hasPage(sub) && (pages[sub] == "" || !strings.Contains(text, sub.CommandPath()+" ")) {
				t.Errorf("%s: %s has no page, or is not in this one", c.CommandPath(), sub.Name())
			}
		}
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if in := strings.Contains(text, "--"+f.Name); in == f.Hidden {
				t.Errorf("%s: --%s, hidden %v, is in the page %v", c.CommandPath(), f.Name, f.Hidden, in)
			}
		})
		if !strings.Contains(text, version) || !strings.Contains(text, date) {
			t.Errorf("%s: the page does not say that it is of %s, of %s", c.CommandPath(), version, date)
		}
	}
	if len(pages) < 20 {
		t.Errorf("only %d pages", len(pages))
	}

	t.Run("what is written", func(t *testing.T) {
		man, err := filepath.Glob(filepath.Join(dir, "man", "*.1"))
		if err != nil || len(man) != len(pages) {
			t.Errorf("%d pages are in %d files: %v", len(pages), len(man), err)
		}
		c := accFresh(t)
		for shell, name := range completionFiles {
			want, log, err := c.run("completion", shell)
			if err != nil {
				t.Fatalf("%v: %s", err, log)
			}
			if got, err := os.ReadFile(filepath.Join(dir, "completions", name)); err != nil || string(got) != want {
				t.Errorf("the completion of %s is not what the program prints (%v)", shell, err)
			}
		}
	})
	t.Run("formatted", func(t *testing.T) {
		groff, err := exec.LookPath("groff")
		accNeed(t, err == nil, "groff is not installed")
		man, err := filepath.Glob(filepath.Join(dir, "man", "*.1"))
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(groff, append([]string{"-man", "-Tutf8", "-ww", "-rLL=78n"}, man...)...)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil || stderr.Len() > 0 {
			t.Errorf("groff: %v: %s", err, stderr.Bytes())
		}
		if !bytes.Contains(out, []byte("#!/bin/sh")) { // in the help of guard, the second of two lines that are indented
			t.Error("what the help shows as it is typed is not in the pages")
		}
	})
}

// TestManual holds the form of a page, whatever our commands are at the time.
func TestManual(t *testing.T) {
	t.Parallel()
	root := &cobra.Command{Use: "keep", Short: "Keep a house"}
	root.PersistentFlags().String("root", "", "the `folder` of it")
	clean := &cobra.Command{
		Use:   `clean "WHY" ROOM...`,
		Short: "Clean rooms - all, or some; it's quick",
		Long: `Clean rooms, as the_one who lives there <wants> it. A line that is
as long as this one goes on here.
.TH is no order here, nor is
'this.

For a hook:

    #!/bin/sh
    if true; then

        exec keep clean 'a\b'
    fi

And ~/.keep^2 ` + "`is` a „file“.",
		Example: "  keep clean \"guests\" hall stairs\n  keep clean --done",
		Run:     func(*cobra.Command, []string) {},
	}
	clean.Flags().IntP("lines", "n", 20, "show so many `lines`")
	clean.Flags().Bool("done", false, "it is done -- at last")
	clean.Flags().String("how", "well", "how")
	clean.Flags().Bool("inside", false, "not for people")
	clean.Flags().MarkHidden("inside") // ignore error: the flag exists
	clean.AddCommand(&cobra.Command{Use: "up", Short: "Clean up", Run: func(*cobra.Command, []string) {}})
	root.AddCommand(clean)
	clean.InitDefaultHelpFlag()
	for _, c := range []*cobra.Command{root, clean} {
		path := filepath.Join("testdata", "papers", strings.ReplaceAll(c.CommandPath(), " ", "-")+".1")
		golden(t, path, manual(c, "v1.2.3", "2006-01-02"))
	}
}

// TestChangelog holds CHANGELOG.md to the form that the release looks for and
// that people know.
func TestChangelog(t *testing.T) {
	t.Parallel()
	told, err := releasesTold(filepath.Join("..", "..", "CHANGELOG.md"))
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range told {
		if i > 0 && semver.Compare("v"+told[i-1], "v"+v) <= 0 {
			t.Errorf("%s comes after %s, which is not newer", v, told[i-1])
		}
	}
}

var (
	toldVersion = regexp.MustCompile(`^## \[(.+)\] - (\d{4}-\d\d-\d\d)$`)
	toldKind    = regexp.MustCompile(`^### (Added|Changed|Deprecated|Removed|Fixed|Security)$`)
)

// releasesTold are the versions, without the v, that a changelog tells of.
func releasesTold(path string) ([]string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var told []string
	unreleased := false
	for i, line := range strings.Split(string(b), "\n") {
		m := toldVersion.FindStringSubmatch(line)
		switch {
		case line == "## [Unreleased]" && !unreleased && told == nil:
			unreleased = true
		case m != nil && unreleased && semver.IsValid("v"+m[1]):
			if _, err := time.Parse(time.DateOnly, m[2]); err != nil {
				return nil, fmt.Errorf("%s:%d: %w", path, i+1, err)
			}
			told = append(told, m[1])
		case strings.HasPrefix(line, "## "), strings.HasPrefix(line, "### ") && !toldKind.MatchString(line):
			return nil, fmt.Errorf("%s:%d: a heading of no known form: %s", path, i+1, line)
		}
	}
	if !unreleased {
		return nil, fmt.Errorf("%s: no heading ## [Unreleased] before all others", path)
	}
	return told, nil
}

// completionFiles are the names under which shells look for a completion.
var completionFiles = map[string]string{
	"bash": "majordomus.bash", "zsh": "_majordomus", "fish": "majordomus.fish", "powershell": "majordomus.ps1",
}

// papersCommand is the whole of our commands, as the program has them.
func papersCommand() *cobra.Command {
	a := &app{out: io.Discard, err: &sink{w: io.Discard}, getenv: func(string) string { return "" }}
	root := a.command()
	root.InitDefaultCompletionCmd()
	return root
}

func hasPage(c *cobra.Command) bool { return c.IsAvailableCommand() && c.Name() != "help" }

// writePapers writes all papers into dir, and returns the pages.
func writePapers(root *cobra.Command, dir, version, date string) (map[*cobra.Command]string, error) {
	pages := map[*cobra.Command]string{}
	var add func(*cobra.Command)
	add = func(c *cobra.Command) {
		c.InitDefaultHelpFlag()
		pages[c] = manual(c, version, date)
		for _, sub := range c.Commands() {
			if hasPage(sub) {
				add(sub)
			}
		}
	}
	add(root)
	files := map[string]string{}
	for c, page := range pages {
		files[filepath.Join("man", strings.ReplaceAll(c.CommandPath(), " ", "-")+".1")] = page
	}
	for shell, name := range completionFiles {
		var b bytes.Buffer
		var err error
		switch shell {
		case "bash":
			err = root.GenBashCompletionV2(&b, true)
		case "zsh":
			err = root.GenZshCompletion(&b)
		case "fish":
			err = root.GenFishCompletion(&b, true)
		case "powershell":
			err = root.GenPowerShellCompletionWithDesc(&b)
		}
		if err != nil {
			return nil, fmt.Errorf("making the completion of %s: %w", shell, err)
		}
		files[filepath.Join("completions", name)] = b.String()
	}
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return nil, err
		}
	}
	return pages, nil
}

// manual is the page of c, in the macros of man(7).
func manual(c *cobra.Command, version, date string) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	name := strings.ReplaceAll(c.CommandPath(), " ", "-")
	// The last word stands between two names of the page, which may be long.
	line(`.TH "%s" 1 "%s" "%s" "%s"`, roff(strings.ToUpper(name)), roff(date), roff(version), roff(c.Root().Name()))
	line(".SH NAME\n%s \\- %s", roff(name), roff(lowerFirst(c.Short)))
	line(".SH SYNOPSIS\n.B %s", roff(c.UseLine()))
	if hasPages(c) && c.Runnable() {
		line(".br\n.B %s", roff(c.CommandPath()+" COMMAND"))
	}
	text := c.Long
	if text == "" {
		text = c.Short + "."
	}
	line(".SH DESCRIPTION")
	roffText(&b, text)
	if hasPages(c) {
		line(".SH COMMANDS")
		for _, sub := range c.Commands() {
			if hasPage(sub) {
				line(".TP\n.BR %s (1)\n%s.", roff(strings.ReplaceAll(sub.CommandPath(), " ", "-")), roff(sub.Short))
			}
		}
	}
	flags := func(heading string, set *pflag.FlagSet) {
		if !set.HasAvailableFlags() {
			return
		}
		line(".SH %s", heading)
		set.VisitAll(func(f *pflag.Flag) {
			if f.Hidden {
				return
			}
			word, usage := pflag.UnquoteUsage(f)
			term := `\fB` + roff("--"+f.Name) + `\fR`
			if f.Shorthand != "" {
				term = `\fB` + roff("-"+f.Shorthand) + `\fR, ` + term
			}
			if word != "" {
				term += ` \fI` + roff(word) + `\fR`
			}
			if !slices.Contains([]string{"", "0", "false", "[]"}, f.DefValue) {
				usage += " (default " + f.DefValue + ")"
			}
			line(".TP\n%s\n%s", term, roff(usage))
		})
	}
	flags("OPTIONS", c.NonInheritedFlags())
	flags("OPTIONS OF ALL COMMANDS", c.InheritedFlags())
	if c.Example != "" {
		line(".SH EXAMPLES")
		roffText(&b, c.Example)
	}
	if c.HasParent() {
		line(".SH SEE ALSO\n.BR %s (1)", roff(strings.ReplaceAll(c.Parent().CommandPath(), " ", "-")))
		return b.String()
	}
	line(".SH EXIT STATUS")
	for _, exit := range []struct {
		code int
		what string
	}{
		{exitDone, "It is done, by this process or by another before it."},
		{exitFailed, "It was tried and failed."},
		{exitWords, "The words make no sense."},
		{exitNo, "The check ran, and the answer is no."},
		{exitMissing, "Something that is needed is missing."},
	} {
		line(".TP\n%d\n%s", exit.code, roff(exit.what))
	}
	line(".SH ENVIRONMENT")
	for _, variable := range [][2]string{
		{"MAJORDOMUS_ROOT", "The root of the checkout, where --root does not say."},
		{"MAJORDOMUS_LOG", "The level of the log: debug, info, warn or error."},
		{"MAJORDOMUS_AUTOSTART", "With off, a shell that enters a checkout brings no server up."},
	} {
		line(".TP\n.B %s\n%s", roff(variable[0]), roff(variable[1]))
	}
	return b.String()
}

func hasPages(c *cobra.Command) bool { return slices.ContainsFunc(c.Commands(), hasPage) }

func lowerFirst(s string) string {
	if s == "" {
		return s
	}
	return strings.ToLower(s[:1]) + s[1:]
}

// roffText writes paragraphs. Lines that are indented are an example: they stay
// lines.
func roffText(b *strings.Builder, text string) {
	isIndented := func(line string) bool { return strings.HasPrefix(line, " ") || strings.HasPrefix(line, "\t") }
	lines := strings.Split(strings.Trim(text, "\n"), "\n")
	for len(lines) > 0 {
		n := 1
		switch {
		case lines[0] == "":
		case isIndented(lines[0]):
			for n < len(lines) && (isIndented(lines[n]) || lines[n] == "" && n+1 < len(lines) && isIndented(lines[n+1])) {
				n++
			}
			margin := lines[0][:len(lines[0])-len(strings.TrimLeft(lines[0], " \t"))]
			b.WriteString(".PP\n.RS 4\n.nf\n")
			for _, line := range lines[:n] {
				b.WriteString(roff(strings.TrimPrefix(line, margin)) + "\n")
			}
			b.WriteString(".fi\n.RE\n")
		default:
			for n < len(lines) && lines[n] != "" && !isIndented(lines[n]) {
				n++
			}
			b.WriteString(".PP\n")
			for _, line := range lines[:n] {
				b.WriteString(roff(line) + "\n")
			}
		}
		lines = lines[n:]
	}
}

// roff is s as text that gives no order, and in which what is to be typed can be
// copied from the page.
func roff(s string) string {
	var b strings.Builder
	if strings.HasPrefix(s, ".") {
		b.WriteString(`\&`)
	}
	for _, r := range s {
		switch {
		case r == '\\':
			b.WriteString(`\e`)
		case r == '-':
			b.WriteString(`\-`)
		case r == '\'':
			b.WriteString(`\(aq`)
		case r == '"':
			b.WriteString(`\(dq`)
		case r == '`':
			b.WriteString(`\(ga`)
		case r == '^':
			b.WriteString(`\(ha`)
		case r == '~':
			b.WriteString(`\(ti`)
		case r > '~':
			fmt.Fprintf(&b, `\[u%04X]`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// plainRoff is about what a reader sees of a page.
func plainRoff(page string) string {
	page = strings.NewReplacer(`\-`, "-", `\fB`, "", `\fI`, "", `\fR`, "", `\(dq`, `"`, `\(aq`, "'").Replace(page)
	// The title of another page is the words of its command, joined.
	return regexp.MustCompile(`(?m)^\.BR (\S+) \(1\)$`).ReplaceAllStringFunc(page, func(s string) string {
		return strings.ReplaceAll(strings.TrimPrefix(s, ".BR "), "-", " ")
	})
}
