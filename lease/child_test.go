package lease

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"majordomus/lease/checkout"
)

// child is a process of a test: it does what the mode says and speaks in lines.
func child(mode string) int {
	in := bufio.NewScanner(os.Stdin)
	c, err := checkout.Open(os.Getenv("LEASE_TEST_ROOT"))
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	timings := map[string]Timings{
		"patient": patient, "quick": quick,
		// Where a healthy server must be told from a stopped one on a busy machine.
		"brisk": {BusyGrace: 1500 * time.Millisecond, JoinTimeout: time.Minute, ProbeTimeout: 500 * time.Millisecond},
	}[os.Getenv("LEASE_TEST_TIMINGS")]
	f, err := Open(Config{Checkout: c, Timings: timings, Self: StartedAs(), Version: "v1.0.0"})
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	defer f.Close()
	switch mode {
	case "candidate", "binder":
		return candidate(f, in, mode == "candidate")
	case "churn":
		return churn(f, in)
	case "exhaust":
		return exhaust(f)
	}
	return 2
}

// candidate stands for election at the first line it reads and serves if it is
// elected. It answers "own" to every further line that asks so.
func candidate(f *Folder, in *bufio.Scanner, publish bool) int {
	fmt.Println("ready")
	in.Scan()
	var ln net.Listener
	e, err := f.Elect(context.Background(), Candidate{Listen: func(string) (string, error) {
		var err error
		if ln == nil {
			ln, err = net.Listen("tcp", "127.0.0.1:0")
		}
		if err != nil {
			return "", err
		}
		return "http://" + ln.Addr().String(), nil
	}})
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	if e.Role == Peer {
		fmt.Println("peer", e.Peer.Token)
		return 0
	}
	t := e.Tenure
	if _, err := f.Key(); err != nil {
		fmt.Println("error", err)
		return 1
	}
	go http.Serve(ln, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		own, err := t.IsOwn()
		if err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		as(f, t.Token(), func(x *Index) { x.LeaseHolder = &own })(w, r)
	}))
	if publish {
		if err := t.Publish("http://" + ln.Addr().String()); err != nil {
			fmt.Println("error", err)
			return 1
		}
	}
	fmt.Println("server", t.Token())
	for in.Scan() {
		own, err := t.IsOwn()
		fmt.Println("own", own, err)
	}
	if err := t.Release(); err != nil {
		fmt.Println("error", err)
		return 1
	}
	return 0
}

// churn takes the lease whenever there is none, and never otherwise, until its
// input ends. So a lease that it loses was overwritten or removed by somebody
// who had judged something else.
func churn(f *Folder, in *bufio.Scanner) int {
	end := make(chan struct{})
	go func() {
		for in.Scan() {
		}
		close(end)
	}()
	took, lost := 0, 0
	for {
		select {
		case <-end:
			fmt.Println("took", took, "lost", lost)
			return 0
		default:
		}
		judged := f.Read()
		if judged.State != Absent {
			continue
		}
		t, err := f.begin(Candidate{}, nil)
		if err != nil {
			fmt.Println("error", err)
			return 1
		}
		ok, err := t.take(judged)
		if err != nil {
			fmt.Println("error", err)
			return 1
		}
		if !ok {
			t.abandon()
			continue
		}
		took++
		for until := time.Now().Add(200 * time.Microsecond); time.Now().Before(until); {
			if own, err := t.IsOwn(); !own || err != nil {
				lost++
				break
			}
		}
		if err := t.Release(); err != nil {
			fmt.Println("error", err)
			return 1
		}
	}
}

// words splits a line of a child.
func words(line string) (verb, rest string) {
	verb, rest, _ = strings.Cut(line, " ")
	return verb, rest
}
