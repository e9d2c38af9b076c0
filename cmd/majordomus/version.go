package main

import (
	"fmt"
	"io"
	"runtime"

	"github.com/spf13/cobra"
)

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			v := struct {
				Version string `json:"version"`
				Go      string `json:"go"`
				OS      string `json:"os"`
				Arch    string `json:"arch"`
			}{programVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH}
			return a.report(v, func(w io.Writer) {
				fmt.Fprintf(w, "majordomus %s (%s, %s/%s)\n", v.Version, v.Go, v.OS, v.Arch)
			})
		},
	}
}
