// Empty does nothing: what it costs to start any program in Go.
package main

func main() {}
