package server

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/VictoriaMetrics/metrics"
)

// callBounds are the seconds by which calls are told apart: from what is
// answered out of memory to what a person had to agree to.
var callBounds = []float64{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300}

// measures are what is counted as it happens; all else is read when it is asked
// for. They are this server's own: nothing is shared with another in the process.
type measures struct {
	counters   *metrics.Set
	histograms *metrics.Set
	calls      sync.Map // [2]string{tool, outcome}: *metrics.Counter
	durations  sync.Map // tool: *metrics.PrometheusHistogram
}

func newMeasures() *measures {
	return &measures{counters: metrics.NewSet(), histograms: metrics.NewSet()}
}

// called counts a call. The tool is one that there is: what clients make up
// would be kept for ever.
func (m *measures) called(tool, upstream, outcome string, took time.Duration) {
	key := [2]string{tool, outcome}
	c, ok := m.calls.Load(key)
	if !ok {
		c = m.counters.GetOrCreateCounter(fmt.Sprintf("majordomus_tool_calls_total{tool=%q,upstream=%q,outcome=%q}", tool, upstream, outcome))
		m.calls.Store(key, c)
	}
	c.(*metrics.Counter).Inc()
	h, ok := m.durations.Load(tool)
	if !ok {
		h = m.histograms.GetOrCreatePrometheusHistogramExt(fmt.Sprintf("majordomus_tool_call_duration_seconds{tool=%q,upstream=%q}", tool, upstream), callBounds)
		m.durations.Store(tool, h)
	}
	h.(*metrics.PrometheusHistogram).Update(took.Seconds())
}

// serveMetrics says in the text format of Prometheus how this server is doing.
func (s *Server) serveMetrics(w http.ResponseWriter, r *http.Request) {
	var b bytes.Buffer
	s.writeMetrics(&b)
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(b.Len()))
	w.Write(b.Bytes()) // ignore error: the client has gone
}

func (s *Server) writeMetrics(b *bytes.Buffer) {
	metric := func(name, kind, help string, values ...any) {
		fmt.Fprintf(b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
		for i := 0; i < len(values); i += 2 {
			fmt.Fprintf(b, "%s%s %v\n", name, values[i], values[i+1])
		}
	}
	one := func(yes bool) int {
		if yes {
			return 1
		}
		return 0
	}
	holds, err := s.holding()
	sessions, calls := s.core.Stats()
	views, _ := s.board.Views()
	claims, fronts := 0, map[string]int{"link": 0, "stdio": 0, "http": 0, "hand": 0}
	for _, v := range views {
		if v.Attached {
			fronts[v.Front]++
			claims += len(v.Claims)
		}
	}
	overlaps := 0
	if own, err := s.own(); err == nil {
		overlaps = len(own.peers.Overlaps) + own.peers.LeftOut
	}
	metric("majordomus_build_info", "gauge", "The version that runs.", fmt.Sprintf("{version=%q}", s.cfg.Version), 1)
	metric("majordomus_start_time_seconds", "gauge", "When this server began, in seconds since 1970.", "", fmt.Sprintf("%.3f", float64(s.started.UnixMilli())/1000))
	metric("majordomus_lease_held", "gauge", "Whether this server holds the lease of its checkout.", "", one(err == nil && holds))
	metric("majordomus_lease_lost", "gauge", "Whether it held it and another server took its place.", "", one(s.lost()))
	metric("majordomus_draining", "gauge", "Whether it is ending and lets nobody new in.", "", one(s.reason() != ""))
	metric("majordomus_sessions", "gauge", "Clients that are attached, mere probes among them.", "", sessions)
	metric("majordomus_sessions_kept", "gauge", "Sessions that count against the bound, of clients that may come back among them.", "", s.core.Sessions())
	metric("majordomus_peers", "gauge", "Peers that are attached, by how.",
		`{front="hand"}`, fronts["hand"], `{front="http"}`, fronts["http"], `{front="link"}`, fronts["link"], `{front="stdio"}`, fronts["stdio"])
	metric("majordomus_claims", "gauge", "Claims of attached peers.", "", claims)
	metric("majordomus_overlaps", "gauge", "Pairs of attached peers whose paths meet.", "", overlaps)
	metric("majordomus_calls_in_flight", "gauge", "Requests that are being answered.", "", calls)
	metric("majordomus_rejoins_total", "counter", "Links of bridges that had another one before: elections that followed a loss.", "", s.core.Rejoined())
	metric("majordomus_events_total", "counter", "Events on the board.", "", s.board.Newest())
	if s.hub != nil {
		var up, started, called, failed []any
		for _, u := range s.hub.Standing() {
			label := fmt.Sprintf("{upstream=%q}", u.Name)
			up = append(up, label, one(u.State == "ready"))
			started = append(started, label, u.Starts)
			called = append(called, label, u.Calls)
			failed = append(failed, label, u.Errors)
		}
		metric("majordomus_upstream_up", "gauge", "Whether a hosted server runs and has shaken hands.", up...)
		metric("majordomus_upstream_starts_total", "counter", "How often a hosted server was started.", started...)
		metric("majordomus_upstream_requests_total", "counter", "Requests that a hosted server was sent.", called...)
		metric("majordomus_upstream_errors_total", "counter", "Of those, the ones it did not answer.", failed...)
	}
	metric("majordomus_tool_calls_total", "counter", "Calls of tools, by what came of them.")
	s.measures.counters.WritePrometheus(b)
	metric("majordomus_tool_call_duration_seconds", "histogram", "How long calls of tools took here.")
	s.measures.histograms.WritePrometheus(b)
	metrics.WriteProcessMetrics(b)
}
