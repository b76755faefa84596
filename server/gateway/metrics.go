package gateway

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metrics are what a gateway tells Prometheus.
type metrics struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	moves    *prometheus.CounterVec
	refused  *prometheus.CounterVec
	failures *prometheus.CounterVec
	tokens   prometheus.Counter
	lost     prometheus.Counter
	aborts   prometheus.Counter
}

func newMetrics(g *Gateway) *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: counter("rota_gateway_requests_total", "Requests that ended, by endpoint and status; 499: the client went away.", "endpoint", "status"),
		moves:    counter("rota_gateway_moves_total", "Requests that went on at a worker after one, by reason: retried, failed or suspended.", "reason"),
		refused:  counter("rota_gateway_refused_total", "Requests that the gateway answered with an error of its own, by code.", "code"),
		failures: counter("rota_gateway_worker_failures_total", "Failures of workers that were reported.", "worker"),
		tokens:   prometheus.NewCounter(prometheus.CounterOpts{Name: "rota_gateway_output_tokens_total", Help: "Tokens that workers generated for requests of this gateway."}),
		lost:     prometheus.NewCounter(prometheus.CounterOpts{Name: "rota_gateway_reports_lost_total", Help: "Reports of which it is not known whether they have counted, or that were refused."}),
		aborts:   prometheus.NewCounter(prometheus.CounterOpts{Name: "rota_gateway_aborts_total", Help: "Requests that were stopped in their engine."}),
	}
	gauge := func(name, help string, read func() float64) {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, read))
	}
	gauge("rota_gateway_requests", "Requests that run or wait.", func() float64 { return float64(g.requests.Load()) })
	gauge("rota_gateway_request_bytes", "Bytes of the bodies of these.", func() float64 { return float64(g.bytes.Load()) })
	gauge("rota_gateway_routes", "Trajectories with a route.", func() float64 { n, _, _ := g.table.counts(); return float64(n) })
	gauge("rota_gateway_workers", "Workers that are known.", func() float64 { _, n, _ := g.table.counts(); return float64(n) })
	gauge("rota_gateway_watch_live", "1 while a server sends routes; otherwise the last ones are used.", func() float64 {
		if g.live.Load() {
			return 1
		}
		return 0
	})
	m.registry.MustRegister(m.requests, m.moves, m.refused, m.failures, m.tokens, m.lost, m.aborts,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}
