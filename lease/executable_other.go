//go:build !linux

package lease

func selfPath(path string) string { return path }
