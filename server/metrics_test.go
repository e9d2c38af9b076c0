package server

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"majordomus/server/hub/config"
)

// scrape reads the metrics, and checks that they are what a scraper takes: every
// sample of ours under its type, by the names that go with it.
func (p *place) scrape() map[string]float64 {
	p.t.Helper()
	r := p.ask("GET", "/metrics", "")
	if r.status != 200 || !strings.HasPrefix(r.header.Get("Content-Type"), "text/plain; version=0.0.4") {
		p.t.Fatalf("%d %v", r.status, r.header)
	}
	sample := regexp.MustCompile(`^([a-z_]+)(\{(?:[a-zA-Z_]+="(?:[^"\\]|\\.)*",? ?)*\})? (\S+)$`)
	values := map[string]float64{}
	kind, of := "", ""
	for line := range strings.Lines(r.body) {
		line = strings.TrimSuffix(line, "\n")
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			of, kind, _ = strings.Cut(rest, " ")
			if kind == "counter" != strings.HasSuffix(of, "_total") {
				p.t.Errorf("%s is a %s", of, kind)
			}
			continue
		}
		if strings.HasPrefix(line, "#") {
			continue
		}
		m := sample.FindStringSubmatch(line)
		if m == nil {
			p.t.Errorf("no sample: %q", line)
			continue
		}
		v, err := strconv.ParseFloat(m[3], 64)
		if err != nil {
			p.t.Errorf("%q: %v", line, err)
		}
		if strings.HasPrefix(m[1], "majordomus_") && m[1] != of && !(kind == "histogram" && strings.HasPrefix(m[1], of+"_")) {
			p.t.Errorf("%q stands under %s", line, of)
		}
		if _, twice := values[m[1]+m[2]]; twice {
			p.t.Errorf("%q is there twice", line)
		}
		values[m[1]+m[2]] = v
	}
	return values
}

func TestMetrics(t *testing.T) {
	p := settle(t, func(c *Config) {
		c.Hosting = hosting(config.Server{Name: "far", URL: far(t, "far", `{"name":"write","inputSchema":{"type":"object"}}`)})
	})
	one := p.peer("1111")
	eventually(t, "far is there", func() bool {
		one.say(`{"jsonrpc":"2.0","id":"tools","method":"tools/list"}`)
		return strings.Contains(one.hear(`"id":"tools"`), "far__write")
	})
	two := p.peer("2222")
	one.announce(`{"intent":"x","scope":["a"]}`)
	two.announce(`{"intent":"y","scope":["a/b"]}`)
	for i, c := range []string{`{"path":"x"}`, `{"path":"wrong"}`} {
		one.say(call(strconv.Itoa(i+1), "far__write", c))
		one.hear(`"id":` + strconv.Itoa(i+1) + `,`)
	}
	for i := range 3 { // whatever clients call, few are kept
		one.say(call(strconv.Itoa(10+i), fmt.Sprintf("made\\\"up\\n%d", i), `{}`))
		one.hear(`"id":` + strconv.Itoa(10+i) + `,`)
	}
	// A bridge that had another server before.
	conn, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "GET /mcp HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: majordomus-frames/1\r\nAuthorization: Bearer %s\r\nMajordomus-Bridge: %s\r\nMajordomus-Rejoins: 2\r\n\r\n",
		strings.TrimPrefix(p.url, "http://"), p.key, bridgeOf("3333"))
	three := newLine(t, conn, conn)
	three.hear("101 Switching Protocols")

	// A client over HTTP whose stream has broken: it has gone, and its session is
	// kept for when it comes back.
	gone, err := http.NewRequest("GET", p.url+"/mcp", nil)
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range map[string]string{"Authorization": "Bearer " + p.key, "Accept": "text/event-stream", "Mcp-Session-Id": p.session()} {
		gone.Header.Set(k, v)
	}
	stream, err := p.client.Do(gone)
	if err != nil || stream.StatusCode != 200 {
		t.Fatal(err, stream)
	}
	stream.Body.Close()

	var got map[string]float64
	eventually(t, "all is counted", func() bool {
		got = p.scrape()
		return got[`majordomus_tool_calls_total{tool="unknown",upstream="",outcome="failed"}`] == 3 && got["majordomus_sessions"] == 3
	})
	for name, want := range map[string]float64{
		`majordomus_build_info{version="v0.1.0"}`: 1, "majordomus_lease_held": 1, "majordomus_lease_lost": 0, "majordomus_draining": 0,
		"majordomus_sessions": 3, "majordomus_sessions_kept": 4, `majordomus_peers{front="link"}`: 2, `majordomus_peers{front="hand"}`: 0,
		"majordomus_claims": 2, "majordomus_overlaps": 1, "majordomus_rejoins_total": 1,
		`majordomus_tool_calls_total{tool="far__write",upstream="far",outcome="ok"}`:               1,
		`majordomus_tool_calls_total{tool="far__write",upstream="far",outcome="error"}`:            1,
		`majordomus_tool_calls_total{tool="majordomus_announce",upstream="",outcome="ok"}`:         2,
		`majordomus_tool_call_duration_seconds_count{tool="far__write",upstream="far"}`:            2,
		`majordomus_tool_call_duration_seconds_bucket{tool="far__write",upstream="far",le="+Inf"}`: 2,
		`majordomus_upstream_up{upstream="far"}`:                                                   1, `majordomus_upstream_starts_total{upstream="far"}`: 1,
		`majordomus_upstream_requests_total{upstream="far"}`: 2, `majordomus_upstream_errors_total{upstream="far"}`: 0,
	} {
		if v, ok := got[name]; !ok || v != want {
			t.Errorf("%s is %v (%t), want %v", name, v, ok, want)
		}
	}
	if got["process_resident_memory_bytes"] == 0 || got["go_goroutines"] == 0 {
		t.Error("nothing of the process")
	}
	p.lose()
	eventually(t, "the loss shows", func() bool {
		m := p.scrape()
		return m["majordomus_lease_held"] == 0 && m["majordomus_lease_lost"] == 1
	})

	req, _ := http.NewRequest("GET", p.url+"/metrics", nil)
	resp, err := p.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	if resp.StatusCode != 401 {
		t.Errorf("without the key: %s", resp.Status)
	}
}
