package gateway

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"rota/internal/telemetry"
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
	unread   prometheus.Counter

	rewardCalls, rewardRetries *prometheus.CounterVec
}

func newMetrics(g *Gateway) *metrics {
	m := &metrics{
		registry: telemetry.NewRegistry(g.cfg.Version),
		requests: telemetry.GatewayRequestsEnded.Counters(),
		moves:    telemetry.GatewayMoves.Counters(),
		refused:  telemetry.GatewayRefused.Counters(),
		failures: telemetry.GatewayWorkerFailures.Counters(),
		tokens:   telemetry.GatewayTokens.Counter(),
		lost:     telemetry.GatewayReportsLost.Counter(),
		aborts:   telemetry.GatewayAborts.Counter(),
		unread:   telemetry.UnreadAnswers.Counter(),

		rewardCalls: telemetry.GatewayRewardCalls.Counters(), rewardRetries: telemetry.GatewayRewardRetries.Counters(),
	}
	m.registry.MustRegister(m.requests, m.moves, m.refused, m.failures, m.tokens, m.lost, m.aborts, m.unread, m.rewardCalls, m.rewardRetries,
		telemetry.Source([]*telemetry.Def{
			telemetry.GatewayRequests, telemetry.GatewayRequestBytes, telemetry.GatewayRoutes,
			telemetry.GatewayWorkers, telemetry.GatewayWatchLive,
		}, func(emit func(prometheus.Metric)) {
			routes, workers, _ := g.table.counts()
			emit(telemetry.GatewayRequests.Value(float64(g.requests.Load())))
			emit(telemetry.GatewayRequestBytes.Value(float64(g.bytes.Load())))
			emit(telemetry.GatewayRoutes.Value(float64(routes)))
			emit(telemetry.GatewayWorkers.Value(float64(workers)))
			emit(telemetry.GatewayWatchLive.Value(telemetry.One(g.live.Load())))
		}), telemetry.Source([]*telemetry.Def{
			telemetry.GatewayRewardRunning, telemetry.GatewayRewardWaiting, telemetry.GatewayRewardReplicas,
		}, g.rewards.measure))
	return m
}

func (m *metrics) handler() http.Handler { return telemetry.MetricsHandler(m.registry) }

// forgetReward drops the series of a function that was removed, so that names do not pile up.
func (m *metrics) forgetReward(name string) {
	m.rewardCalls.DeletePartialMatch(prometheus.Labels{"reward": name})
	m.rewardRetries.DeleteLabelValues(name)
}

// measure emits what reward functions have to do now. The names are those of registered
// functions, which are bounded.
func (t *rewards) measure(emit func(prometheus.Metric)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, r := range t.all {
		ready := 0
		for _, p := range r.replicas {
			if p.ready {
				ready++
			}
		}
		emit(telemetry.GatewayRewardRunning.Value(float64(r.running), name))
		emit(telemetry.GatewayRewardWaiting.Value(float64(len(r.queue)), name))
		emit(telemetry.GatewayRewardReplicas.Value(float64(ready), name))
	}
}
