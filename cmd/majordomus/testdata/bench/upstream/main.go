// Upstream is a small MCP server on its standard streams that does what a test
// or a benchmark of hosted servers needs, and costs little.
//
//	upstream [-note FILE] [-slow FILE] [-until FILE] [-family]
//
// Its tools answer with their arguments. The tool "read" says that it only
// reads, "write" says nothing of the kind.
package main

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"majordomus/bridge/frame"
)

var (
	note   = flag.String("note", "", "a `file` that gets a line for each process: what it is, and its number")
	slow   = flag.String("slow", "", "a `file` that, where it is there, says how long the answer to initialize takes")
	until  = flag.String("until", "", "a `file` that calls with a progress token wait for; they tell of progress when it is there, and answer")
	family = flag.Bool("family", false, "start a process in the same group; neither ends by itself")
	child  = flag.Bool("child", false, "be that process")
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
	if *note == "" {
		return
	}
	f, err := os.OpenFile(*note, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	if _, err := fmt.Fprintf(f, "%s %d\n", what, os.Getpid()); err != nil {
		panic(err)
	}
	f.Close()
}

const tools = `{"tools":[` +
	`{"name":"read","description":"answers with its arguments","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}},` +
	`{"name":"write","description":"answers with its arguments","inputSchema":{"type":"object"}}]}`

func serve() {
	in := bufio.NewReaderSize(os.Stdin, 64<<10)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		m, err := frame.Parse(bytes.TrimSpace(line))
		if err != nil || !m.IsRequest() {
			continue
		}
		var result []byte
		switch m.Name() {
		case "initialize":
			pause()
			result = []byte(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"upstream","version":"1"}}`)
		case "tools/list":
			result = []byte(tools)
		case "tools/call":
			arguments := frame.Get(m.Params, "arguments")
			result = append(append([]byte(`{"content":[{"type":"text","text":`), frame.Quote(string(arguments))...), `}]}`...)
			if token := frame.Get(m.Params, "_meta", "progressToken"); *until != "" && token != nil {
				lines := fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1}}`+"\n%s\n", token, frame.Result(m.ID, result))
				go late(lines) // ends with the process
				continue
			}
		default:
			result = []byte("{}")
		}
		if _, err := os.Stdout.Write(append(frame.Result(m.ID, result), '\n')); err != nil {
			return
		}
	}
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
