//go:build !unix

package config

const (
	nonblock = 0
	hasModes = false // folders of an account are closed to others by their lists
)
