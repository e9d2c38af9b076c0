package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"runtime"
	"time"

	"github.com/spf13/cobra"
)

func (a *app) openCommand() *cobra.Command {
	var print bool
	cmd := &cobra.Command{
		Use:   "open",
		Short: "Open the page of this checkout's server in a browser",
		Long: `Open the page of this checkout's server in a browser: who works here and on
what, where two meet, what runs and how long it takes.

The address has a code that is worth one visit within a minute. Where there is
no browser, or with --print, it is printed.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			p, r, err := a.served(ctx)
			if err != nil {
				return err
			}
			defer p.close()
			var given struct{ Code string }
			if err := call(ctx, r.url, r.key, http.MethodPost, "/api/v1/code", nil, &given); err != nil {
				return err
			}
			page := r.url + "/cockpit"
			visit := page + "#code=" + given.Code
			if !print {
				err := a.browse(ctx, visit)
				if err == nil {
					return a.report(map[string]any{"url": page, "opened": true}, func(w io.Writer) { fmt.Fprintln(w, "opened", page) })
				}
				a.logger().Info("printing the address instead", "because", err)
			}
			return a.report(map[string]any{"url": visit, "opened": false}, func(w io.Writer) { fmt.Fprintln(w, visit) })
		},
	}
	cmd.Flags().BoolVar(&print, "print", false, "print the address instead of opening it")
	return cmd
}

// browsePatience is how long a program that opens addresses may take to fail.
// Some become the browser and stay.
const browsePatience = 3 * time.Second

// browse opens an address in the person's browser. It does not know whether a
// page is seen in the end.
func (a *app) browse(ctx context.Context, address string) error {
	words := []string{"xdg-open", address}
	switch runtime.GOOS {
	case "darwin":
		words[0] = "open"
	case "windows":
		words = []string{"rundll32", "url.dll,FileProtocolHandler", address}
	default:
		// Without a screen it would look for a browser in the terminal.
		if a.getenv("DISPLAY") == "" && a.getenv("WAYLAND_DISPLAY") == "" {
			return errors.New("there is no screen")
		}
	}
	cmd := exec.Command(words[0], words[1:]...) // not ended with ctx: it may be the browser
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }() // ends with the program, or with this one
	select {
	case err := <-ended:
		if err != nil {
			return fmt.Errorf("%s: %w", words[0], err)
		}
	case <-time.After(browsePatience):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}
