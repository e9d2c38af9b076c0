package main

import "context"

// loginPath is the PATH that editors have: on Windows all programs of a person
// have the same.
func (a *app) loginPath(context.Context) string { return a.getenv("PATH") }

const usualPath = ""
