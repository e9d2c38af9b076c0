//go:build unix

package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const smallCall = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"majordomus_wait","arguments":{"seconds":0,"note":"a"}}}`

// straight is a client of /mcp on one kept connection, written to spend as
// little as there can be.
type straight struct {
	conn net.Conn
	r    *bufio.Reader
	head string
}

func newStraight(b *testing.B, url, key string) *straight {
	b.Helper()
	host := strings.TrimPrefix(url, "http://")
	conn, err := net.Dial("tcp", host)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { conn.Close() })
	s := &straight{conn: conn, r: bufio.NewReaderSize(conn, 64<<10)}
	s.head = "POST /mcp HTTP/1.1\r\nHost: " + host + "\r\nAuthorization: Bearer " + key + "\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
	resp := s.ask(b, strings.TrimSpace(hello))
	s.head += "Mcp-Session-Id: " + resp.Header.Get("Mcp-Session-Id") + "\r\nMcp-Protocol-Version: 2025-11-25\r\n"
	return s
}

func (s *straight) ask(b *testing.B, message string) *http.Response {
	if _, err := fmt.Fprintf(s.conn, "%sContent-Length: %d\r\n\r\n%s", s.head, len(message), message); err != nil {
		b.Fatal(err)
	}
	resp, err := http.ReadResponse(s.r, nil)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode/100 != 2 {
		b.Fatalf("%s %v", resp.Status, err)
	}
	return resp
}

func credentials(b *testing.B, majordomus, dir string) (url, key string) {
	b.Helper()
	return run(b, majordomus, "serve", "ensure", "--root", dir), run(b, majordomus, "key", "--root", dir)
}

// BenchmarkBridge compares a call through the bridge with the same call straight
// to /mcp on a kept connection: one at a time, and sixteen in flight.
func BenchmarkBridge(b *testing.B) {
	majordomus := buildFor(b, ".")
	dir := benchCheckout(b, majordomus)
	url, key := credentials(b, majordomus, dir)
	ours := talk(b, dir, majordomus, "mcp")
	defer ours.end()
	ours.ask(b, hello)
	b.Run("one", func(b *testing.B) {
		direct := newStraight(b, url, key)
		through := func() float64 {
			began := time.Now()
			ours.ask(b, smallCall+"\n")
			return float64(time.Since(began))
		}
		past := func() float64 {
			began := time.Now()
			direct.ask(b, smallCall)
			return float64(time.Since(began))
		}
		for range 200 { // both warm
			through()
			past()
		}
		var x, y []float64
		for b.Loop() {
			x = append(x, through())
			y = append(y, past())
		}
		b.ReportMetric(median(x)/median(y), "x-straight")
	})
	b.Run("sixteen", func(b *testing.B) {
		const width, each = 16, 50
		var direct []*straight
		for range width {
			direct = append(direct, newStraight(b, url, key))
		}
		// through keeps sixteen calls in flight on the one stream.
		through := func() {
			line := []byte(smallCall)
			say := func(id int) {
				if _, err := ours.in.Write(append(bytes.Replace(line, []byte(`"id":7`), strconv.AppendInt([]byte(`"id":`), int64(id), 10), 1), '\n')); err != nil {
					b.Fatal(err)
				}
			}
			for id := range width {
				say(id)
			}
			for next := width; next < width*each+width; next++ {
				if _, err := ours.out.ReadSlice('\n'); err != nil {
					b.Fatal(err)
				}
				if next < width*each {
					say(next)
				}
			}
		}
		past := func() {
			var wg sync.WaitGroup
			for _, d := range direct {
				wg.Go(func() {
					for range each {
						d.ask(b, smallCall)
					}
				})
			}
			wg.Wait()
		}
		through()
		past()
		var ratios []float64
		for b.Loop() {
			began := time.Now()
			past()
			floor := time.Since(began)
			began = time.Now()
			through()
			ratios = append(ratios, float64(floor)/float64(time.Since(began)))
		}
		b.ReportMetric(median(ratios), "x-straight-throughput")
	})
}

// BenchmarkLarge reports what an answer of 16 MiB costs in times of the byte
// mover, and the most memory that bridge and server had in times of the answer.
// It is one that a server passes on: what is made of JSON by mcp-go costs what
// that takes.
func BenchmarkLarge(b *testing.B) {
	const size = 16 << 20
	giver, mover := buildFor(b, "./testdata/bench/giver"), buildFor(b, "./testdata/bench/mover")
	pair := func(program string) (server, client *talker) {
		server = talk(b, b.TempDir(), program, "serve", fmt.Sprint(size))
		addr, err := server.out.ReadString('\n')
		if err != nil {
			b.Fatal(err)
		}
		return server, talk(b, b.TempDir(), program, "join", strings.TrimSpace(addr))
	}
	server, ours := pair(giver)
	floorServer, floor := pair(mover)
	for _, t := range []*talker{ours, floor, server, floorServer} {
		defer t.end()
	}
	time1 := func(t *talker) float64 {
		began := time.Now()
		if _, err := io.WriteString(t.in, smallCall+"\n"); err != nil {
			b.Fatal(err)
		}
		n := 0
		for {
			part, err := t.out.ReadSlice('\n')
			if n += len(part); err == nil {
				break
			} else if err != bufio.ErrBufferFull {
				b.Fatal(err)
			}
		}
		if n < size {
			b.Fatalf("%d bytes came", n)
		}
		return float64(time.Since(began))
	}
	time1(ours)
	time1(floor)
	var ratios []float64
	for b.Loop() {
		z := time1(floor)
		ratios = append(ratios, time1(ours)/z)
	}
	b.ReportMetric(median(ratios), "x-byte-mover")
	if runtime.GOOS == "linux" {
		b.ReportMetric(peak(b, ours.cmd.Process.Pid)/size, "x-message-peak-bridge")
		// The answer itself is kept by the giver and counts once.
		b.ReportMetric(peak(b, server.cmd.Process.Pid)/size-1, "x-message-peak-server")
	}
}

// peak is the most resident memory that a process had, in bytes.
func peak(b *testing.B, pid int) float64 {
	b.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "VmHWM:" {
			kb, err := strconv.ParseFloat(f[1], 64)
			if err != nil {
				b.Fatal(err)
			}
			return kb * 1024
		}
	}
	b.Fatal("no VmHWM")
	return 0
}

// BenchmarkRecovery reports how long a client waits for the answer to a call
// that it makes right after its server was killed: the slowest in twenty, in
// cold starts.
func BenchmarkRecovery(b *testing.B) {
	majordomus := buildFor(b, ".")
	dir, cold := benchCheckout(b, majordomus), benchCheckout(b, majordomus)
	ours := talk(b, dir, majordomus, "mcp")
	defer ours.end()
	ours.ask(b, hello)
	var starts, recoveries []float64
	for b.Loop() {
		began := time.Now()
		t := talk(b, cold, majordomus, "mcp")
		t.ask(b, hello)
		starts = append(starts, float64(time.Since(began)))
		t.end()
		stopServer(b, majordomus, cold)

		if err := syscall.Kill(serverPID(b, dir), syscall.SIGKILL); err != nil {
			b.Fatal(err)
		}
		began = time.Now()
		if a := ours.ask(b, smallCall+"\n"); !bytes.Contains(a, []byte(`"result"`)) {
			b.Fatalf("after a kill: %s", a)
		}
		recoveries = append(recoveries, float64(time.Since(began)))
	}
	slices.Sort(recoveries)
	b.ReportMetric(recoveries[len(recoveries)*95/100]/median(starts), "x-cold-start-p95")
	b.ReportMetric(median(recoveries)/median(starts), "x-cold-start-p50")
}
