package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"majordomus/server/board"
)

// announcement is what a person sends to the board.
type announcement struct {
	As     string   `json:"as"`
	Intent string   `json:"intent"`
	Scope  []string `json:"scope"`
	Claim  string   `json:"claim,omitempty"`
}

// announced is what the server says to it.
type announced struct {
	board.Announced
	Complete bool     `json:"complete"` // the boards of all worktrees were looked at
	Reasons  []string `json:"reasons,omitempty"`
}

func (a *app) announceCommand() *cobra.Command {
	var claim string
	var done bool
	cmd := &cobra.Command{
		Use:   `announce "INTENT" PATH...`,
		Short: "Tell the editors here what you work on, and learn whom that meets",
		Long: `Tell the editors in this repository that you work on these files and folders,
and learn which of them you meet there. Paths are relative to the current
folder; *, ? and ** mean what they do in a shell, if the shell leaves them.

It stands until you withdraw it with --done, announce something else in its
place, or the server ends. --claim gives it a name of its own, so that you can
have several.`,
		Example: `  majordomus announce "moving the parser" src/parse docs/parse.md
  majordomus announce --done`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case done:
				return nil // the words of the announcement may stand there still
			case len(args) == 0 || strings.TrimSpace(args[0]) == "":
				return errors.New("say what you are about to do, and on which paths")
			case len(args) == 1:
				return errors.New("name the files and folders it is about; . is the current folder")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			said := announcement{As: person(), Scope: []string{}, Claim: claim}
			if !done {
				c, err := a.checkout()
				if err != nil {
					return err
				}
				said.Intent = args[0]
				if said.Scope, err = scope(c.Root, args[1:]); err != nil {
					return wrongWords(err)
				}
			}
			const nobody = "nobody is there to be told: no server runs in this checkout"
			p, r, err := a.served(cmd.Context())
			if err != nil {
				return unserved(err, nobody)
			}
			defer p.close()
			var got announced
			if err := call(cmd.Context(), r.url, r.key, http.MethodPost, "/api/v1/announce", said, &got); err != nil {
				if no := (*refusal)(nil); errors.As(err, &no) && no.code == "invalid_argument" {
					return wrongWords(errors.New(no.message))
				}
				return err
			}
			return a.report(got, func(w io.Writer) { writeAnnounced(w, got, p.Name) })
		},
	}
	cmd.Flags().StringVar(&claim, "claim", "", "the `name` of what is announced (default: default)")
	cmd.Flags().BoolVar(&done, "done", false, "withdraw it")
	return cmd
}

// person is who sits here.
func person() string {
	u, err := user.Current()
	if err != nil || u.Username == "" {
		return "someone"
	}
	return u.Username[strings.LastIndexByte(u.Username, '\\')+1:] // without a Windows domain
}

// scope returns paths, relative to the current folder, as absolute ones below
// root, which is free of links where the way that people came may not be. A link
// in the checkout is announced as what it is called there.
func scope(root string, args []string) ([]string, error) {
	at, err := os.Getwd()
	if err == nil {
		at, err = filepath.EvalSymlinks(at)
	}
	if err != nil {
		return nil, fmt.Errorf("finding the current folder: %w", err)
	}
	var list []string
	for _, arg := range args {
		if arg == "" {
			return nil, errors.New("a path is empty; . is the current folder")
		}
		abs := filepath.Clean(arg)
		if !filepath.IsAbs(abs) {
			abs = filepath.Join(at, arg)
		}
		abs = belowRoot(root, abs)
		if _, reason := board.Inside(root, abs, false); reason != "" {
			return nil, fmt.Errorf("%q %s (%s)", arg, reason, root)
		}
		list = append(list, abs)
	}
	return list, nil
}

// belowRoot spells an absolute path as one below root, if any folder above it is
// root, or else what is above it leads there through links.
func belowRoot(root, abs string) string {
	top, err := os.Stat(root)
	if err != nil {
		return abs // ignore error: who opened the checkout has looked
	}
	real := ""
	for dir := abs; ; dir = filepath.Dir(dir) {
		rel, err := filepath.Rel(dir, abs)
		if err != nil {
			return abs // ignore error: both are absolute, and one begins with the other
		}
		if info, err := os.Stat(dir); err == nil && os.SameFile(info, top) {
			return filepath.Join(root, rel)
		}
		if real == "" && dir != abs {
			if d, err := filepath.EvalSymlinks(dir); err == nil {
				real = filepath.Join(d, rel)
			}
		}
		if dir == filepath.Dir(dir) {
			return real
		}
	}
}

func writeAnnounced(w io.Writer, got announced, checkout string) {
	switch {
	case len(got.Scope) > 0:
		fmt.Fprintf(w, "announced as %s: %s%s\n", shown(got.Peer), claimOf(got.Claim, got.Intent), paths(got.Scope, 6))
		if len(got.Released) > 0 {
			fmt.Fprintln(w, "no longer announced:", paths(got.Released, 6))
		}
	case len(got.Released) > 0:
		fmt.Fprintln(w, "withdrawn:", paths(got.Released, 6))
	default:
		fmt.Fprintln(w, "nothing of that name was announced")
	}
	for _, m := range got.Overlaps {
		who := peerOf(m.Peer, m.Client, m.Checkout, m.Checkout != checkout)
		switch {
		case m.Kind == board.KindTouched:
			fmt.Fprintf(w, "%s touched %s\n", who, paths(m.Paths, 4))
		case !m.Attached:
			fmt.Fprintf(w, "%s has gone; it worked on %s\n", who, on(m.Paths, m.Intent))
		default:
			fmt.Fprintf(w, "%s works on %s\n", who, on(m.Paths, m.Intent))
		}
	}
	if len(got.Scope) > 0 {
		for _, why := range got.Reasons {
			fmt.Fprintln(w, "not read:", shown(why))
		}
	}
}
