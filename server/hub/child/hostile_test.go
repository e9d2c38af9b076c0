package child

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// be is a process of a test: it behaves as the mode says.
func be(mode string) int {
	in := bufio.NewReader(os.Stdin)
	switch mode {
	case "echo": // a good one
		io.Copy(os.Stdout, in)
		return 0
	case "banner": // says something before it is asked, and not in JSON
		fmt.Println("Welcome! Listening on stdio.")
		io.Copy(os.Stdout, in)
		return 0
	case "three":
		fmt.Fprintln(os.Stderr, "no token given")
		return 3
	case "arguments":
		for _, a := range os.Args[1:] {
			fmt.Printf("%q\n", a)
		}
		return 0
	case "environment":
		dir, err := os.Getwd()
		fmt.Printf("%s %v\n", dir, err)
		for _, kv := range os.Environ() {
			fmt.Println(kv)
		}
		return 0
	case "mute": // closes stdout and goes on
		os.Stdout.Close()
		in.ReadString('\n')
		return 5
	case "flood":
		n, err := strconv.Atoi(os.Getenv("CHILD_TEST_BYTES"))
		if err != nil {
			return 1
		}
		line := append(bytes.Repeat([]byte("x"), 1023), '\n')
		for ; n > 0; n -= len(line) {
			os.Stderr.Write(line)
		}
		fmt.Println("flooded")
		in.ReadString('\n')
		return 0
	case "full": // never reads
		fmt.Println("ready")
		forever()
	case "deaf": // minds nothing but the kernel
		ignoreAsking()
		hold()
		n, _ := strconv.Atoi(os.Getenv("CHILD_TEST_EATS")) // ignore error: nothing
		eaten := bytes.Repeat([]byte("x"), n)
		fmt.Println("ready", os.Getpid())
		defer runtime.KeepAlive(eaten)
		forever()
	}
	if mode == "server" {
		return server()
	}
	if strings.HasPrefix(mode, "family ") {
		return family(strings.Fields(mode)[1:], in)
	}
	return bePlatform(mode, in)
}

// forever is longer than any test, and no longer: who should have ended this
// process may have been killed.
func forever() {
	time.Sleep(3 * time.Minute)
	os.Exit(1)
}

// family starts relatives and prints their pids when they are ready:
//
//	in   in the group, ends with nothing but a kill
//	out  has left the group, ends with nothing but a kill
//	cat  in the group, ends when its stdin does, which is the child's
//
// Then it ends at once ("leave"), or when its stdin ends.
func family(relatives []string, in *bufio.Reader) int {
	self, err := os.Executable()
	if err != nil {
		return 1
	}
	for _, r := range relatives {
		if r == "leave" {
			return 0
		}
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), modeVar+"=deaf")
		if r == "cat" {
			cmd.Env, cmd.Stdin = append(os.Environ(), modeVar+"=echo"), os.Stdin
		}
		// It holds both pipes; its own stdout says when it is ready.
		cmd.Stderr = os.Stderr
		holdToo(cmd)
		ready, err := cmd.StdoutPipe()
		if err != nil {
			return 1
		}
		if r == "cat" {
			cmd.Stdout = os.Stdout
		}
		if r == "out" {
			outside(cmd)
		}
		if err := cmd.Start(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		if r != "cat" {
			if _, err := bufio.NewReader(ready).ReadString('\n'); err != nil {
				return 1
			}
		}
		fmt.Println(r, cmd.Process.Pid)
	}
	io.Copy(io.Discard, in)
	return 0
}

// server is this package's user, until it is killed.
func server() int {
	c, err := Start(Spec{
		Name: "hosted", Argv: os.Args[:1], Env: append(os.Environ(), modeVar+"="+os.Getenv("CHILD_TEST_HOSTS")),
		Stderr: os.Stderr, Records: os.Getenv("CHILD_TEST_RECORDS"),
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	out := bufio.NewReader(c.Stdout())
	for {
		line, err := out.ReadString('\n')
		if err != nil {
			break
		}
		fmt.Print(line)
	}
	c.Stop(context.Background())
	return 0
}
