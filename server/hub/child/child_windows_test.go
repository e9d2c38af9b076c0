package child

import (
	"os"
	"testing"
)

func moreReasons(func(name, text string, mode os.FileMode) string) []reasonCase { return nil }

func zombies(*testing.T) int { return 0 }

func open(*testing.T) int { return 0 }
