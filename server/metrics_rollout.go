package server

import (
	"github.com/prometheus/client_golang/prometheus"

	"rota/fsm/state"
)

// rolloutMetrics are gauges of rollouts and samples, read from the state when asked for.
type rolloutMetrics struct{ s *Server }

var (
	rolloutCount    = prometheus.NewDesc("rota_rollouts", "Rollouts that have not ended, or have ended and are kept.", []string{"state"}, nil)
	sampleCount     = prometheus.NewDesc("rota_samples", "Samples in the buffer and in batches.", nil, nil)
	sampleBytes     = prometheus.NewDesc("rota_sample_bytes", "Bytes of the samples in the buffer and in batches.", nil, nil)
	policyVersion   = prometheus.NewDesc("rota_policy_version", "Current version of a policy.", []string{"policy"}, nil)
	policyStep      = prometheus.NewDesc("rota_policy_step", "Last step of training that was given a batch.", []string{"policy"}, nil)
	policySuspended = prometheus.NewDesc("rota_policy_suspended", "1 if the requests of the policy are held.", []string{"policy"}, nil)
	policyComplete  = prometheus.NewDesc("rota_policy_complete_groups", "Groups that wait for a step of training.", []string{"policy"}, nil)
	policyBuffered  = prometheus.NewDesc("rota_policy_buffered_samples", "Samples that no step was given.", []string{"policy"}, nil)
)

// policyMetricsMax bounds the policies that have metrics of their own: the first by name.
const policyMetricsMax = 256

// Describe implements prometheus.Collector.
func (rolloutMetrics) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{rolloutCount, sampleCount, sampleBytes, policyVersion, policyStep, policySuspended, policyComplete, policyBuffered} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (m rolloutMetrics) Collect(out chan<- prometheus.Metric) {
	var all []prometheus.Metric
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		all = append(all, prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...))
	}
	m.s.machine.View(func(st *state.State) {
		n, policies := st.RolloutTotals(), 0
		gauge(rolloutCount, float64(n.Live), "live")
		gauge(rolloutCount, float64(n.Ended), "ended")
		gauge(sampleCount, float64(n.Samples))
		gauge(sampleBytes, float64(n.SampleBytes))
		st.Policies("", func(p *state.Policy) bool {
			suspended := 0.0
			if p.Suspended {
				suspended = 1
			}
			gauge(policyVersion, float64(p.Version), p.Name)
			gauge(policyStep, float64(p.Step), p.Name)
			gauge(policySuspended, suspended, p.Name)
			gauge(policyComplete, float64(st.CompleteCount(p.Name)), p.Name)
			gauge(policyBuffered, float64(st.BufferedCount(p.Name)), p.Name)
			policies++
			return policies < policyMetricsMax
		})
	})
	for _, v := range all {
		out <- v
	}
}
