package server

import (
	"net/http"
	"net/http/pprof"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"rota/api/intake"
	"rota/fsm/state"
)

// metrics are what a server tells Prometheus. Gauges are read from the state when
// asked for, so they cost nothing otherwise.
type metrics struct {
	registry *prometheus.Registry
	calls    *prometheus.HistogramVec
}

func newMetrics(s *Server) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		calls: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "rota_rpc_seconds", Help: "Duration of calls by procedure and Connect code (0: success).",
			Buckets: prometheus.ExponentialBuckets(0.0001, 4, 10),
		}, []string{"procedure", "code"}),
	}
	m.registry.MustRegister(m.calls, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	gauge := func(name, help string, read func(*state.State) float64) {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() (v float64) {
			s.machine.View(func(st *state.State) { v = read(st) })
			return v
		}))
	}
	gauge("rota_actions_queued", "Actions that wait.", func(st *state.State) float64 { return float64(st.Counts().Queued) })
	gauge("rota_actions_running", "Actions that hold cores.", func(st *state.State) float64 { return float64(st.Counts().Running) })
	gauge("rota_trajectories_open", "Trajectories that have not ended.", func(st *state.State) float64 { return float64(st.Counts().OpenTrajectories) })
	gauge("rota_nodes_up", "Nodes whose lease is kept.", func(st *state.State) float64 { return float64(st.Counts().NodesUp) })
	gauge("rota_queue_bytes", "Bytes of queued actions.", func(st *state.State) float64 { return float64(st.QueuedBytes()) })
	gauge("rota_request_ids", "Request IDs that are remembered.", func(st *state.State) float64 { return float64(st.RequestCount()) })
	gauge("rota_applied_index", "Newest applied log entry.", func(st *state.State) float64 { return float64(st.Meta().Applied) })
	gauge("rota_revision", "Newest event.", func(st *state.State) float64 { return float64(st.Meta().Revision) })
	m.registry.MustRegister(quotaMetrics{s}, gpuMetrics{s}, ledgerMetrics{s}, migrationMetrics{s}, workerMetrics{s}, rolloutMetrics{s})
	m.decoding("servers", s.peers)
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "rota_leader", Help: "1 if this server leads.",
	}, func() float64 {
		if s.replica.IsLeader() {
			return 1
		}
		return 0
	}), prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "rota_agent_streams", Help: "Agents that are connected to this server.",
	}, func() float64 { return float64(s.streams.Connected()) }))
	return m
}

// decoding shows what requests of a kind share while they are decoded.
func (m *metrics) decoding(from string, b *intake.Budget) {
	labels := prometheus.Labels{"from": from}
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "rota_decoding_bytes", Help: "Memory that requests which are being decoded may take.", ConstLabels: labels,
	}, func() float64 { return float64(b.Used()) }), prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "rota_decoding_refused_total", Help: "Requests refused because too many were being decoded.", ConstLabels: labels,
	}, func() float64 { return float64(b.Refused()) }), prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "rota_decoding_blamed_total", Help: "Large requests refused because too many of their sender had to be refused before.", ConstLabels: labels,
	}, func() float64 { return float64(b.Blamed()) }))
}

func (m *metrics) observe(procedure string, code connect.Code, took time.Duration) {
	label := "0"
	if code != 0 {
		label = code.String()
	}
	m.calls.WithLabelValues(procedure, label).Observe(took.Seconds())
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// profiles serves net/http/pprof.
func profiles() http.Handler {
	root := http.NewServeMux()
	root.HandleFunc("/debug/pprof/", pprof.Index)
	root.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	root.HandleFunc("/debug/pprof/profile", pprof.Profile)
	root.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	root.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return root
}
