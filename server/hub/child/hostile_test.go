package child

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
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
	if strings.HasPrefix(mode, "family ") {
		return family(strings.Fields(mode)[1:], in)
	}
	return bePlatform(mode, in)
}

// forever is longer than any test.
func forever() {
	for {
		time.Sleep(time.Hour)
	}
}
