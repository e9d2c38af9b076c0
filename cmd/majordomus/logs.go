package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"

	"majordomus/lease/launch"
)

func (a *app) logsCommand() *cobra.Command {
	var follow bool
	lines := 200
	cmd := &cobra.Command{
		Use:   "logs",
		Short: "Show the log of this checkout's server",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := a.existing("no server has run in this checkout")
			if err != nil {
				return err
			}
			defer p.close()
			return a.logs(cmd.Context(), p.folder.LogPath(launch.LogName), lines, follow)
		},
	}
	logFlags(cmd, &lines, &follow)
	return cmd
}

func logFlags(cmd *cobra.Command, lines *int, follow *bool) {
	cmd.Flags().BoolVarP(follow, "follow", "f", false, "go on with what is written from now on")
	cmd.Flags().IntVarP(lines, "lines", "n", *lines, "how many of the last `lines`; 0 all")
}

// logs copies the last lines of the file at path, then, when asked, what is
// added to it, also when it is rotated, until ctx ends.
func (a *app) logs(ctx context.Context, path string, lines int, follow bool) error {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && !follow {
		return &exitError{exitNo, errors.New("no server has logged anything in this checkout")}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("reading the log: %w", err)
	}
	if _, err := a.out.Write(last(b, lines)); err != nil || !follow {
		return err
	}
	at := int64(len(b))
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(200 * time.Millisecond):
		}
		f, err := os.Open(path)
		if err != nil {
			continue // between two files
		}
		if info, err := f.Stat(); err == nil && info.Size() < at {
			at = 0 // a new file
		}
		n, err := io.Copy(a.out, io.NewSectionReader(f, at, 1<<62-at))
		f.Close() // ignore error: only read
		if at += n; err != nil {
			return err
		}
	}
}

// last returns the last n lines of b; all when n is 0.
func last(b []byte, n int) []byte {
	if n <= 0 {
		return b
	}
	end := len(b)
	for at := len(bytes.TrimSuffix(b, []byte("\n"))); ; n-- {
		i := bytes.LastIndexByte(b[:at], '\n')
		if n == 1 || i < 0 {
			return b[i+1 : end]
		}
		at = i
	}
}
