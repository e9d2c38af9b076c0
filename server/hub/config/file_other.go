//go:build !unix

package config

import "io/fs"

const (
	nonblock = 0
	hasModes = false // folders of an account are closed to others by their lists
)

func ownFile(fs.FileInfo) bool { return true }
