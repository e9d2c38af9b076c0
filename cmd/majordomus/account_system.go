//go:build !unix || darwin

package main

import (
	"errors"
	"os/user"
)

// systemHome is the folder that the system has for this account.
func systemHome() (string, error) {
	u, err := user.Current()
	if err != nil {
		return "", err
	}
	if u.HomeDir == "" {
		return "", errors.New("the system knows no home of this account")
	}
	return u.HomeDir, nil
}
