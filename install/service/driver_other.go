//go:build !linux && !darwin && !windows

package service

import (
	"context"
	"fmt"
	"runtime"
)

// none is the manager of a system that has none we know.
type none struct{}

func newDriver(Config) driver { return none{} }

func (none) missing() error {
	return fmt.Errorf("%w: none is known for %s", ErrNoManager, runtime.GOOS)
}

func (none) file(string) string                                 { return "" }
func (d none) text(Spec) (string, error)                        { return "", d.missing() }
func (d none) available(context.Context) error                  { return d.missing() }
func (none) installed(string) (bool, error)                     { return false, nil }
func (none) names() ([]string, error)                           { return nil, nil }
func (d none) install(context.Context, Spec) (bool, error)      { return false, d.missing() }
func (none) uninstall(context.Context, string) error            { return nil }
func (d none) start(context.Context, string, func() bool) error { return d.missing() }
func (d none) status(context.Context, string) Status {
	return Status{State: "unknown", Reason: d.missing().Error()}
}
