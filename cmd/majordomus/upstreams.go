package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"majordomus/server"
	"majordomus/server/hub"
	"majordomus/server/hub/config"
)

func (a *app) upstreamListCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "Show the hosted servers of this checkout's server, and what sharing them saves",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var all server.Upstreams
			if err := a.askServer(cmd.Context(), http.MethodGet, "/api/v1/upstreams", nil, &all); err != nil {
				return err
			}
			return a.report(all, func(w io.Writer) { writeUpstreams(w, all) })
		},
	}
}

// askServer asks the server that serves this checkout now, and starts none.
func (a *app) askServer(ctx context.Context, method, path string, body, result any) error {
	p, r, err := a.served(ctx)
	if err != nil {
		return err
	}
	defer p.close()
	return call(ctx, r.url, r.key, method, path, body, result)
}

func writeUpstreams(w io.Writer, all server.Upstreams) {
	if all.Reason != "" {
		fmt.Fprintln(w, "nothing is hosted:", all.Reason)
		if all.Untrusted {
			fmt.Fprintln(w, "majordomus trust shows what it would run, and lets it")
		}
	}
	for _, p := range all.Problems {
		fmt.Fprintln(w, "left out:", p)
	}
	if len(all.Upstreams) == 0 {
		if all.Reason == "" {
			fmt.Fprintln(w, "this checkout hosts no servers; majordomus upstream import takes them over from an editor's file")
		}
		return
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "NAME\tSTATE\tSHARE\tPID\tMEMORY\tTOOLS\tCALLS\tERRORS")
	for _, u := range all.Upstreams {
		pids, memory := []string{}, int64(0)
		for _, p := range u.Processes {
			pids = append(pids, fmt.Sprint(p.PID))
			memory += p.Memory
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%d\t%d\t%d\n", u.Name, u.State, u.Share, orDash(strings.Join(pids, ",")), size(memory), u.Tools, u.Calls, u.Errors)
	}
	t.Flush() // ignore error: report keeps it
	for _, u := range all.Upstreams {
		if u.LastError != "" {
			fmt.Fprintf(w, "%s: the last error: %s\n", u.Name, u.LastError)
		}
		if u.Waiting != "" {
			fmt.Fprintf(w, "%s: %s\n", u.Name, u.Waiting)
		}
		for _, l := range u.LeftOut {
			fmt.Fprintf(w, "%s: left out is %s\n", u.Name, l)
		}
	}
	if s := saved(all.Upstreams); s != "" {
		fmt.Fprintln(w, s)
	}
}

// saved says what sharing saves: each editor would have a process of each
// server that runs.
func saved(list []hub.State) string {
	servers, processes, would, memory := 0, 0, 0, int64(0)
	editors := 0
	for _, u := range list {
		if u.Share != config.ShareCheckout || len(u.Processes) == 0 {
			continue
		}
		servers++
		editors = max(editors, u.Clients)
		processes += len(u.Processes)
		would += u.Clients
		for _, p := range u.Processes {
			memory += p.Memory * int64(u.Clients-1)
		}
	}
	if would <= processes {
		return ""
	}
	text := fmt.Sprintf("%s %s %s: %s instead of %d", count(servers, "server"), map[bool]string{true: "serves", false: "serve"}[servers == 1],
		count(editors, "editor"), count(processes, "process"), would)
	if memory > 0 {
		text += fmt.Sprintf(", about %s saved", size(memory))
	}
	return text
}

func count(n int, what string) string {
	switch {
	case n == 1:
		return "1 " + what
	case strings.HasSuffix(what, "s"):
		return fmt.Sprintf("%d %ses", n, what)
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func size(bytes int64) string {
	switch {
	case bytes <= 0:
		return "-"
	case bytes < 1<<30:
		return fmt.Sprintf("%d MB", (bytes+1<<19)>>20)
	}
	return fmt.Sprintf("%.1f GB", float64(bytes)/(1<<30))
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func (a *app) upstreamLogsCommand() *cobra.Command {
	var follow bool
	lines := 200
	cmd := &cobra.Command{
		Use:   "logs NAME",
		Short: "Show what a hosted server wrote to its standard error",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := a.existing("no server has run in this checkout")
			if err != nil {
				return err
			}
			defer p.close()
			file, err := config.Read(p.ServersFile)
			if err != nil {
				return err
			}
			known := slices.ContainsFunc(file.Servers, func(s config.Server) bool { return s.Name == args[0] })
			if !known {
				names := make([]string, 0, len(file.Servers))
				for _, s := range file.Servers {
					names = append(names, s.Name)
				}
				return fmt.Errorf("no server %q is in %s; there are: %s", args[0], p.ServersFile, orDash(strings.Join(names, ", ")))
			}
			return a.logs(cmd.Context(), p.folder.LogPath(hub.LogName(args[0])), lines, follow)
		},
	}
	logFlags(cmd, &lines, &follow)
	return cmd
}

func (a *app) upstreamRestartCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "restart NAME",
		Short: "End a hosted server's processes and start it again",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			began := time.Now()
			if err := a.askServer(cmd.Context(), http.MethodPost, "/api/v1/upstreams/restart", map[string]string{"name": args[0]}, nil); err != nil {
				return err
			}
			return a.report(map[string]any{"name": args[0], "restarted": true}, func(w io.Writer) {
				fmt.Fprintf(w, "%s: ended after %v, and being started\n", args[0], time.Since(began).Round(time.Millisecond))
			})
		},
	}
}
