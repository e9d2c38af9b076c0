//go:build !unix

package lease

import "testing"

var moreGarbage map[string]func(*testing.T, string)
