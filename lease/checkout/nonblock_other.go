//go:build !unix

package checkout

const nonblock = 0
