package server

import (
	"github.com/prometheus/client_golang/prometheus"

	"rota/fsm/state"
)

// quotaMetrics are gauges for each quota, read from the state when asked for.
type quotaMetrics struct{ s *Server }

var (
	quotaLimit   = quotaDesc("rota_quota_limit", "Units that there are, of all keys.")
	quotaHeld    = quotaDesc("rota_quota_held_units", "Units that actions hold.")
	quotaWindow  = quotaDesc("rota_quota_window_units", "Units of ended calls whose window has not passed.")
	quotaWaiting = quotaDesc("rota_quota_waiting_actions", "Actions that wait for the quota.")

	quotaEffective = quotaDesc("rota_quota_effective_limit", "Units of all keys that may be in use now: fewer than rota_quota_limit after refused calls.")
	quotaPaused    = quotaDesc("rota_quota_paused", "1 while the provider has asked to wait with all keys, else 0.")
	quotaThrottled = quotaDesc("rota_quota_throttled_attempts_total", "Attempts that the provider refused calls of.")

	quotaOverdrawn = quotaDesc("rota_quota_overdrawn_units", "Units in use beyond the limit: calls used more than they expected to, or the limit was lowered.")
	quotaSettled   = quotaDesc("rota_quota_settled_attempts_total", "Attempts that said what they really used.")
	quotaUsed      = quotaDesc("rota_quota_settled_units_total", "Units that those attempts really used.")
)

func quotaDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, []string{"quota"}, nil)
}

// Describe implements prometheus.Collector.
func (quotaMetrics) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{quotaLimit, quotaHeld, quotaWindow, quotaWaiting, quotaEffective, quotaPaused, quotaThrottled, quotaOverdrawn, quotaSettled, quotaUsed} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (m quotaMetrics) Collect(out chan<- prometheus.Metric) {
	var all []prometheus.Metric
	now := m.s.logTime()
	m.s.machine.View(func(st *state.State) {
		st.Quotas(func(q *state.Quota) bool {
			gauge := func(d *prometheus.Desc, v uint64) {
				all = append(all, prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), q.Name))
			}
			held, windowed, limit := q.Total()
			gauge(quotaLimit, limit)
			gauge(quotaHeld, held)
			gauge(quotaWindow, windowed)
			gauge(quotaWaiting, uint64(st.Waiting(state.QueueOf(state.QuotaQueue, q.ID))))
			gauge(quotaEffective, q.AllEffective())
			paused := uint64(0)
			if q.PausedForAll() > now {
				paused = 1
			}
			gauge(quotaPaused, paused)
			gauge(quotaOverdrawn, q.Overdrawn())
			counter := func(d *prometheus.Desc, v uint64) {
				all = append(all, prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), q.Name))
			}
			counter(quotaThrottled, q.Throttled)
			counter(quotaSettled, q.Settled)
			counter(quotaUsed, q.SettledUnits)
			return true
		})
	})
	for _, metric := range all {
		out <- metric
	}
}
