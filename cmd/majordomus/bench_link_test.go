//go:build unix

package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// dialLink opens a link and shakes hands on it, as a bridge does.
func dialLink(b *testing.B, url, key string, n int) io.Closer {
	b.Helper()
	host := strings.TrimPrefix(url, "http://")
	conn, err := net.Dial("tcp", host)
	if err != nil {
		b.Fatal(err)
	}
	fmt.Fprintf(conn, "GET /mcp HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: majordomus-frames/1\r\nAuthorization: Bearer %s\r\nMajordomus-Bridge: %08x-0000-4000-8000-000000000000\r\n\r\n", host, key, n)
	r := bufio.NewReaderSize(conn, 512)
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		b.Fatal(err)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		b.Fatalf("a link was refused: %s", resp.Status)
	}
	io.WriteString(conn, hello)
	for { // control lines come first
		line, err := r.ReadString('\n')
		if err != nil {
			b.Fatal(err)
		}
		if line[0] == '{' {
			return conn
		}
	}
}
