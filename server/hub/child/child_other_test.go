//go:build unix && !linux

package child

import "testing"

func thread() int { return 0 }

func threadEnds(*testing.T, int) {}

func badInit() int { return 2 }
