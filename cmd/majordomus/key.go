package main

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/spf13/cobra"

	"majordomus/lease"
)

func (a *app) keyCommand() *cobra.Command {
	var rotate bool
	cmd := &cobra.Command{
		Use:   "key",
		Short: "Print the key that clients of this checkout's server present",
		Long: `Print the bearer key that clients present to this checkout's server when they
talk to it over HTTP (Authorization: Bearer KEY). It is made once and is the
same for every server of the checkout. --rotate makes a new one and tells the
running server; bridges read the new key by themselves, other clients must be
given it.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.checkout()
			if err != nil {
				return err
			}
			p, err := a.anyway(c, a.logger(), lease.Open)
			if err != nil {
				return err
			}
			defer p.folder.Close() // ignore error: only read
			key, err := p.folder.Key()
			if err != nil {
				return err
			}
			if rotate {
				if key, err = a.rotateKey(cmd.Context(), p); err != nil {
					return err
				}
			}
			return a.report(map[string]string{"key": key}, func(w io.Writer) { fmt.Fprintln(w, key) })
		},
	}
	cmd.Flags().BoolVar(&rotate, "rotate", false, "make a new key and tell the running server")
	return cmd
}

// rotateKey writes a new key and has the running server read it. A server that
// cannot be told takes the old key until somebody comes with the new one, so
// that is an error although the new key is written.
func (a *app) rotateKey(ctx context.Context, p place) (string, error) {
	key, err := p.folder.RotateKey()
	if err != nil {
		return "", err
	}
	f := p.folder.Read()
	if f.State != lease.Present || f.Document.URL == nil || p.folder.Probe(ctx, f.Document).Outcome == lease.Refused {
		return key, nil
	}
	if err := call(ctx, *f.Document.URL, key, http.MethodPost, "/api/v1/key", nil, nil); err != nil {
		return "", fmt.Errorf("the new key is written, but the running server was not told: %w", err)
	}
	return key, nil
}
