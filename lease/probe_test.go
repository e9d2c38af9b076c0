package lease

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestProbe(t *testing.T) {
	f := newTestFolder(t, newCheckout(t), Timings{ProbeTimeout: 150 * time.Millisecond})
	key, err := f.Key()
	if err != nil {
		t.Fatal(err)
	}
	const token = goodToken
	no, yes := false, true
	hang := make(chan struct{})
	defer close(hang)
	say := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			io.WriteString(w, body)
		}
	}
	other := newFake(t)
	other.set(as(f, token, nil))
	for _, tt := range []struct {
		name   string
		auth   string
		answer http.HandlerFunc
		want   Outcome
	}{
		{"ours", "key", as(f, token, nil), Ours},
		{"ours, too old to say that it holds", "key", as(f, token, func(x *Index) { x.LeaseHolder = nil }), Ours},
		{"ours, of another maker without a key", "", as(f, token, func(x *Index) { x.Proof = "" }), Ours},
		{"no proof where the lease says key", "key", as(f, token, func(x *Index) { x.Proof = "" }), Stranger},
		{"proof of another token", "key", as(f, strings.Repeat("0", 32), nil), Stranger},
		{"proof by another key", "key", func(w http.ResponseWriter, r *http.Request) {
			as(f, token, func(x *Index) { x.Proof = Proof(key+"x", r.URL.Query().Get("challenge"), token) })(w, r)
		}, Stranger},
		{"proof of another nonce", "key", as(f, token, func(x *Index) { x.Proof = Proof(key, goodToken, token) }), Stranger},
		{"an auth nobody knows", "magic", as(f, token, nil), Stranger},
		{"not the holder", "key", as(f, token, func(x *Index) { x.LeaseHolder = &no }), NotHolder},
		{"not the holder, without proof", "key", as(f, token, func(x *Index) { x.LeaseHolder, x.Proof = &no, "" }), Stranger},
		{"not the holder, of another maker", "", as(f, token, func(x *Index) { x.LeaseHolder, x.Proof = &no, "" }), NotHolder},
		{"another name", "key", as(f, token, func(x *Index) { x.Name = "minordomus" }), Stranger},
		{"another checkout", "key", as(f, token, func(x *Index) { x.RepositoryID, x.LeaseHolder = "0", &yes }), Stranger},
		{"not JSON", "key", say(200, "<html>"), Stranger},
		{"nothing", "key", say(200, ""), Stranger},
		{"404", "key", say(404, `{}`), Stranger},
		{"503", "key", say(503, `{}`), Silent},
		{"a redirect to a server of ours", "key", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other.url+r.URL.RequestURI(), http.StatusFound)
		}, Stranger},
		{"too much", "key", func(w http.ResponseWriter, r *http.Request) {
			w.Write([]byte(strings.Repeat(" ", 64<<10)))
			as(f, token, nil)(w, r)
		}, Stranger},
		{"hangs", "key", func(http.ResponseWriter, *http.Request) { <-hang }, Silent},
		{"hangs within the body", "key", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "500")
			io.WriteString(w, `{"name":"majordomus"`)
			w.(http.Flusher).Flush()
			<-hang
		}, Silent},
		{"hangs up", "key", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, Refused},
	} {
		t.Run(tt.name, func(t *testing.T) {
			srv := newFake(t)
			srv.set(tt.answer)
			got := f.Probe(t.Context(), Document{URL: &srv.url, Token: token, Auth: tt.auth})
			if got.Outcome != tt.want {
				t.Errorf("%v (%v), want %v", got.Outcome, got.Err, tt.want)
			}
			if (got.Err == nil) != (tt.want == Ours) {
				t.Errorf("error %v with %v", got.Err, got.Outcome)
			}
		})
	}
	if other.times() != 0 {
		t.Error("a redirect was followed")
	}
}

func TestProbeWhereNobodyIs(t *testing.T) {
	f := newTestFolder(t, newCheckout(t), Timings{ProbeTimeout: 100 * time.Millisecond})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free := "http://" + ln.Addr().String()
	ln.Close()
	for _, tt := range []struct {
		url  *string
		want Outcome
	}{
		{&free, Refused},
		{nil, Stranger},
		{ptr(""), Stranger},
		{ptr("http://192.0.2.1:80"), Stranger}, // a lease must not make us call the network
		{ptr("http://example.com:80"), Stranger},
		{ptr("http://127.0.0.1"), Stranger},
		{ptr("https://127.0.0.1:1"), Stranger},
		{ptr("http://user@127.0.0.1:1"), Stranger},
		{ptr("http://127.0.0.1:1/path"), Stranger},
		{ptr("http://127.0.0.1:1?x=y"), Stranger},
		{ptr("://"), Stranger},
		{ptr("http://127.0.0.1:1\r\nX: y"), Stranger},
		{ptr("http://127.0.0.1:99999"), Unreachable},
	} {
		got := f.Probe(t.Context(), Document{URL: tt.url})
		if got.Outcome != tt.want || got.Err == nil {
			t.Errorf("%v: %v (%v), want %v", tt.url, got.Outcome, got.Err, tt.want)
		}
	}
}

// A kernel that connects for a stopped process, and a line that is no HTTP.
func TestProbeRaw(t *testing.T) {
	f := newTestFolder(t, newCheckout(t), Timings{ProbeTimeout: 100 * time.Millisecond})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + ln.Addr().String()
	if got := f.Probe(t.Context(), Document{URL: &url}); got.Outcome != Silent {
		t.Errorf("never accepted: %v (%v)", got.Outcome, got.Err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := f.Probe(ctx, Document{URL: &url}); got.Outcome == Ours || got.Err == nil {
		t.Errorf("cancelled: %v", got.Outcome)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			conn.Read(make([]byte, 4096))
			fmt.Fprint(conn, "SSH-2.0-OpenSSH_9.9\r\n")
			conn.Close()
		}
	})
	got := f.Probe(t.Context(), Document{URL: &url})
	for got.Outcome == Silent { // the first connection was the one never accepted
		got = f.Probe(t.Context(), Document{URL: &url})
	}
	if got.Outcome != Stranger {
		t.Errorf("not HTTP: %v (%v)", got.Outcome, got.Err)
	}
	ln.Close()
	wg.Wait()
}

func TestProbeIgnoresProxies(t *testing.T) {
	proxy := newFake(t)
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"} {
		t.Setenv(name, proxy.url)
	}
	f := newTestFolder(t, newCheckout(t), patient)
	srv := newFake(t)
	srv.set(as(f, goodToken, nil))
	if got := f.Probe(t.Context(), Document{URL: &srv.url, Token: goodToken}); got.Outcome != Ours {
		t.Errorf("%v (%v)", got.Outcome, got.Err)
	}
	if proxy.times() != 0 {
		t.Error("a proxy was asked")
	}
}

func TestProbePatiently(t *testing.T) {
	f := newTestFolder(t, newCheckout(t), Timings{ProbeTimeout: 5 * time.Second, BusyGrace: time.Minute})
	srv := newFake(t)
	srv.set(func(w http.ResponseWriter, r *http.Request) {
		if srv.times() < 4 {
			w.WriteHeader(503)
			return
		}
		as(f, goodToken, nil)(w, r)
	})
	doc := Document{URL: &srv.url, Token: goodToken}
	if got := f.ProbePatiently(t.Context(), doc); got.Outcome != Ours {
		t.Errorf("%v (%v)", got.Outcome, got.Err)
	}
	f = newTestFolder(t, f.cfg.Checkout, Timings{ProbeTimeout: 5 * time.Second, BusyGrace: 120 * time.Millisecond})
	srv.set(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) })
	if got := f.ProbePatiently(t.Context(), doc); got.Outcome != Silent {
		t.Errorf("%v (%v)", got.Outcome, got.Err)
	}
}

// What probes read is what servers write: the form is an agreement.
func TestIndexForm(t *testing.T) {
	yes := true
	x := Index{
		Name: "majordomus", Version: "v0.1.0", Repository: "r", RepositoryID: "a", GitRepositoryID: "b", LeaseHolder: &yes,
		StartedAt: time.Unix(1, 0).UTC(), Counts: Counts{4, 2, 0, 7}, Fingerprint: "f", Surfaces: []Surface{{"mcp", "/mcp"}}, Proof: "p",
	}
	b, err := json.Marshal(x)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"name":"majordomus","version":"v0.1.0","repository":"r","repository_id":"a","git_repository_id":"b","linked_worktree":false,` +
		`"leaseholder":true,"started_at":"1970-01-01T00:00:01Z","stale":null,"counts":{"tools":4,"resources":2,"prompts":0,"layer":7},"fingerprint":"f",` +
		`"surfaces":[{"id":"mcp","path":"/mcp"}],"proof":"p"}`
	if string(b) != want {
		t.Errorf("%s\nwant\n%s", b, want)
	}
	var back Index
	if err := json.Unmarshal(b, &back); err != nil || !reflect.DeepEqual(back, x) {
		t.Errorf("reads back as %+v (%v)", back, err)
	}
}
