package server

import (
	"github.com/prometheus/client_golang/prometheus"

	"rota/fsm/state"
)

// workerMetrics are gauges of workers and what they do, read from the state when asked for.
type workerMetrics struct{ s *Server }

var (
	workerCount        = prometheus.NewDesc("rota_workers", "Workers that generate for rollouts.", []string{"policy", "state"}, nil)
	workerTrajectories = prometheus.NewDesc("rota_worker_trajectories", "Trajectories that a worker generates for.", []string{"worker"}, nil)
	workerPredicted    = prometheus.NewDesc("rota_worker_predicted_tokens", "Tokens that the trajectories of a worker are predicted to generate yet.", []string{"worker"}, nil)
	workerTokens       = prometheus.NewDesc("rota_worker_output_tokens_total", "Tokens that a worker generated since it was registered.", []string{"worker"}, nil)
	generationsWaiting = prometheus.NewDesc("rota_generations_waiting", "Trajectories that wait for a worker.", nil, nil)
	routeWatchers      = prometheus.NewDesc("rota_route_watchers", "Gateways that watch routes at this server.", nil, nil)

	workerStateNames = []string{"", "up", "stale", "down", "draining"}
)

// Describe implements prometheus.Collector.
func (workerMetrics) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{workerCount, workerTrajectories, workerPredicted, workerTokens, generationsWaiting, routeWatchers} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (m workerMetrics) Collect(out chan<- prometheus.Metric) {
	type kind struct {
		policy string
		state  state.WorkerState
	}
	st, counts := m.s.machine.Fork(), map[kind]int{}
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	st.Workers("", func(w *state.Worker) bool {
		counts[kind{w.Policy, st.WorkerState(w)}]++
		load := st.WorkerLoad(w.Name)
		gauge(workerTrajectories, float64(load.Trajectories), w.Name)
		gauge(workerPredicted, float64(load.Predicted), w.Name)
		out <- prometheus.MustNewConstMetric(workerTokens, prometheus.CounterValue, float64(w.OutputTokens), w.Name)
		return true
	})
	for k, n := range counts {
		gauge(workerCount, float64(n), k.policy, workerStateNames[k.state])
	}
	gauge(generationsWaiting, float64(st.WaitingGenerations()))
	gauge(routeWatchers, float64(m.s.routes.Watching()))
}
