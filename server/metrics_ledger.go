package server

import (
	"github.com/prometheus/client_golang/prometheus"

	"rota/fsm/state"
)

// ledgerMetrics are gauges of jobs, turns and node groups, read from the state when
// asked for. How much of the time a group is held is the average of whether it is.
type ledgerMetrics struct{ s *Server }

var (
	ledgerJobs    = prometheus.NewDesc("rota_jobs", "Training jobs, by state.", []string{"state"}, nil)
	ledgerTurns   = prometheus.NewDesc("rota_turns", "Turns that are not over, by state.", []string{"state"}, nil)
	ledgerHeld    = prometheus.NewDesc("rota_node_group_held", "1 while a turn holds the group.", []string{"group"}, nil)
	ledgerHalted  = prometheus.NewDesc("rota_node_group_halted", "1 while nothing is granted because a decision failed.", []string{"group"}, nil)
	ledgerSeconds = prometheus.NewDesc("rota_job_held_seconds_total",
		"For how long a job has held node groups, in turns that are over.", []string{"namespace", "job"}, nil)
)

var (
	jobStates = map[state.JobState]string{
		state.JobQueued: "queued", state.JobRunning: "running", state.JobSuspended: "suspended", state.JobCompleted: "completed",
	}
	turnStates = map[state.TurnState]string{state.TurnWaiting: "waiting", state.TurnHeld: "held"}
)

// Describe implements prometheus.Collector.
func (ledgerMetrics) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{ledgerJobs, ledgerTurns, ledgerHeld, ledgerHalted, ledgerSeconds} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (m ledgerMetrics) Collect(out chan<- prometheus.Metric) {
	var all []prometheus.Metric
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		all = append(all, prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...))
	}
	m.s.machine.View(func(st *state.State) {
		jobs, turns := map[state.JobState]int{}, map[state.TurnState]int{}
		st.NodeGroups(func(g *state.NodeGroup) bool {
			gauge(ledgerHeld, one(g.Turn != 0), g.Name)
			gauge(ledgerHalted, one(g.Halted != ""), g.Name)
			return true
		})
		st.Jobs(0, func(j *state.Job) bool {
			jobs[j.State]++
			namespace := ""
			if n := st.Namespace(j.Namespace); n != nil {
				namespace = n.Name
			}
			all = append(all, prometheus.MustNewConstMetric(ledgerSeconds, prometheus.CounterValue,
				float64(j.HeldNS)/1e9, namespace, j.Name))
			return true
		})
		st.LiveTurns(func(t *state.Turn) bool {
			turns[t.State]++
			return true
		})
		for s, name := range jobStates {
			gauge(ledgerJobs, float64(jobs[s]), name)
		}
		for s, name := range turnStates {
			gauge(ledgerTurns, float64(turns[s]), name)
		}
	})
	for _, metric := range all {
		out <- metric
	}
}

func one(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
