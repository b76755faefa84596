package telemetry

import (
	"net/http"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// BuildInfo is what every process says of its build.
var BuildInfo = define(Any, Gauge, "rota_build_info", "1; the labels say which build runs.", "version", "go_version")

// UnreadAnswers counts what package httpx ends.
var UnreadAnswers = define(Any, Counter, "rota_unread_answers_total", "Answers, streams among them, that were ended because their clients did not read on.")

// NewRegistry returns a registry with what every process tells: its build, and the metrics
// of Go and of the process.
func NewRegistry(version string) *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		Source([]*Def{BuildInfo}, func(emit func(prometheus.Metric)) {
			emit(BuildInfo.Value(1, version, runtime.Version()))
		}))
	return r
}

// MetricsHandler serves a registry to Prometheus.
func MetricsHandler(r *prometheus.Registry) http.Handler {
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{EnableOpenMetrics: true})
}

// One is 1 for yes and 0 for no.
func One(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
