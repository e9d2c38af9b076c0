//go:build !windows

package service

import "context"

// Serve runs a server that a service manager has started: ctx ends when that
// wants it to. Elsewhere than on Windows a service is a process like others.
func Serve(ctx context.Context, _ string, serve func(context.Context) error) error { return serve(ctx) }
