// Upstream is a small MCP server on its standard streams that does what a test
// or a benchmark of hosted servers needs, and costs little.
//
//	upstream [-note FILE] [-slow FILE] [-until FILE] [-effects FILE] [-family] [-call hang|die] [-banner]
//
// Its tools answer with their arguments. The tool "read" says that it only
// reads, "write" says nothing of the kind.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"majordomus/bridge/frame"
	"majordomus/cmd/majordomus/bench"
)

var (
	note    = flag.String("note", "", "a `file` that gets a line for each process: what it is, and its number")
	slow    = flag.String("slow", "", "a `file` that, where it is there, says how long the answer to initialize takes")
	until   = flag.String("until", "", "a `file` that calls with a progress token wait for; they tell of progress when it is there, and answer")
	effects = flag.String("effects", "", "a `file` that gets a line for each call of write: the number in its argument n. Calls take the milliseconds that their arguments say, before and after that")
	family  = flag.Bool("family", false, "start a process in the same group; neither ends by itself")
	call    = flag.String("call", "", "what a call does instead of being answered: `hang or die`")
	banner  = flag.Bool("banner", false, "begin with lines that are no messages")
	large   = flag.Int("large", 0, "how many `bytes` of text a call is answered with; 0: as its tool does")
	child   = flag.Bool("child", false, "be that process")
)

// longest is how long a process lives that nobody ends: tests are over then.
const longest = 3 * time.Minute

func main() {
	flag.Parse()
	if *child {
		write("child")
		time.Sleep(longest)
		return
	}
	write("server")
	if *family {
		cmd := exec.Command(os.Args[0], "-child", "-note", *note)
		if err := cmd.Start(); err != nil {
			panic(err)
		}
	}
	serve()
	if *family {
		time.Sleep(longest) // deaf to the end of its input, as many are
	}
}

func write(what string) {
	if *note != "" {
		appendTo(*note, fmt.Sprintf("%s %d\n", what, os.Getpid()))
	}
}

// appendTo writes a line in one piece.
func appendTo(path, line string) {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	if _, err := f.WriteString(line); err != nil {
		panic(err)
	}
	f.Close()
}

func serve() {
	if *banner {
		fmt.Print("Welcome!\n\n\x1b[31mred\n{\n")
	}
	bench.Upstream{In: os.Stdin, Out: os.Stdout, Starting: pause, Called: func(m frame.Message, result []byte) bool {
		switch *call {
		case "hang":
			time.Sleep(longest)
		case "die":
			fmt.Fprintln(os.Stderr, "no more")
			os.Exit(4)
		}
		if *large > 0 {
			text := `{"content":[{"type":"text","text":"` + strings.Repeat("a", *large) + `"}]}`
			os.Stdout.Write(append(frame.Result(m.ID, []byte(text)), '\n')) // ignore error: the other side has gone
			return true
		}
		if *effects != "" {
			go effect(m, append(frame.Result(m.ID, result), '\n')) // ends with the process
			return true
		}
		token := frame.Get(m.Params, "_meta", "progressToken")
		if *until == "" || token == nil {
			return false
		}
		go late(fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1}}`+"\n%s\n", token, frame.Result(m.ID, result))) // ends with the process
		return true
	}}.Serve()
}

// effect is a call that leaves a trace, which outlives whoever left it. It is
// deaf to cancellation: what runs is not called back.
func effect(m frame.Message, answer []byte) {
	argument := func(name string) string { return string(frame.Get(m.Params, "arguments", name)) }
	pause := func(name string) {
		if ms, err := strconv.Atoi(argument(name)); err == nil {
			time.Sleep(time.Duration(ms) * time.Millisecond)
		}
	}
	pause("before")
	if name, _ := frame.Text(frame.Get(m.Params, "name")); name == "write" {
		appendTo(*effects, argument("n")+"\n")
	}
	pause("after")
	os.Stdout.Write(answer) // ignore error: the other side has gone
}

// late writes lines once the file is there. One write, so that no other comes
// between.
func late(lines []byte) {
	for {
		if _, err := os.Stat(*until); err == nil {
			os.Stdout.Write(lines) // ignore error: the other side has gone
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func pause() {
	if *slow == "" {
		return
	}
	b, err := os.ReadFile(*slow)
	if err != nil {
		return // it is not slow yet
	}
	d, err := time.ParseDuration(strings.TrimSpace(string(b)))
	if err != nil {
		panic(err)
	}
	time.Sleep(d)
}
