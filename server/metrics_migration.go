package server

import (
	"github.com/prometheus/client_golang/prometheus"

	"rota/fsm/state"
)

// migrationMetrics are gauges of migrations, read from the state when asked for.
type migrationMetrics struct{ s *Server }

var migrationCount = prometheus.NewDesc("rota_migrations", "Migrations of KV caches that are queued, run, or have ended and are kept.", []string{"state"}, nil)

// Describe implements prometheus.Collector.
func (migrationMetrics) Describe(out chan<- *prometheus.Desc) { out <- migrationCount }

// Collect implements prometheus.Collector.
func (m migrationMetrics) Collect(out chan<- prometheus.Metric) {
	var n state.MigrationCounts
	m.s.machine.View(func(st *state.State) { n = st.MigrationCounts() })
	for _, c := range []struct {
		state string
		count int
	}{{"queued", n.Queued}, {"running", n.Running}, {"ended", n.Ended}} {
		out <- prometheus.MustNewConstMetric(migrationCount, prometheus.GaugeValue, float64(c.count), c.state)
	}
}
