// Command everything is a server that offers some of everything the protocol
// has, in the manner of the reference server of that name, for clients to be
// checked against. How it is reached is its first word:
//
//	everything http          over HTTP, until its input ends; it prints its address
//	everything stdio         over the standard streams, alone
//	everything bridge URL    over the standard streams, by a bridge to the one at URL
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strings"

	"majordomus/bridge"
	"majordomus/server/session"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("everything: ")
	words := append(os.Args[1:], "")
	var err error
	switch words[0] {
	case "http":
		err = overHTTP()
	case "stdio":
		err = newCore().ServeStream(context.Background(), stdio{os.Stdin, os.Stdout}, session.Peer{Plain: true})
	case "bridge":
		err = bridge.Run(context.Background(), bridge.Config{
			In: os.Stdin, Out: os.Stdout, ID: rand.Text(),
			Find: func(context.Context, error) (bridge.Endpoint, error) {
				return bridge.Endpoint{URL: strings.TrimSuffix(words[1], "/mcp")}, nil
			},
		})
	default:
		err = errors.New("the first word is http, stdio or bridge")
	}
	if err != nil {
		log.Fatal(err)
	}
}

func overHTTP() error {
	core := newCore()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Printf("http://%s/mcp\n", ln.Addr())
	go func() {
		io.Copy(io.Discard, os.Stdin) // ignore error: it is an end as well
		os.Exit(0)                    // not outliving who started it
	}()
	srv := &http.Server{Handler: gate(core), ConnContext: core.ConnContext, ConnState: core.ConnState}
	return srv.Serve(ln)
}

// gate stands for the server's: no page that a browser shows is let in.
func gate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Origin") != "" {
			http.Error(w, "forbidden", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// stdio is the standard streams as one.
type stdio struct {
	io.Reader
	io.Writer
}

func (s stdio) Close() error { return os.Stdout.Close() }
