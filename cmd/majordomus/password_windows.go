package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/windows"
)

// password asks for an account's on the terminal, without showing it, or takes
// the first line of what is piped in.
func password(account string) (string, error) {
	in := windows.Handle(os.Stdin.Fd())
	var mode uint32
	if windows.GetConsoleMode(in, &mode) == nil {
		fmt.Fprintf(os.Stderr, "password of %s, which Windows keeps for the service: ", account)
		if err := windows.SetConsoleMode(in, mode&^windows.ENABLE_ECHO_INPUT); err != nil {
			return "", err
		}
		defer fmt.Fprintln(os.Stderr)
		defer windows.SetConsoleMode(in, mode) // ignore error: it was so before
	}
	line, err := bufio.NewReader(os.Stdin).ReadString('\n')
	if line = strings.TrimRight(line, "\r\n"); line == "" {
		return "", errors.Join(errors.New("none was given"), err)
	}
	return line, nil
}
