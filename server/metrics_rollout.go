package server

import (
	"rota/fsm/state"
	"rota/internal/telemetry"
)

// rolloutMetrics are of rollouts, samples and policies.
var rolloutMetrics = part{
	[]*telemetry.Def{
		telemetry.Rollouts, telemetry.Samples, telemetry.SampleBytes, telemetry.PolicyVersion, telemetry.PolicyStep,
		telemetry.PolicySuspended, telemetry.PolicyComplete, telemetry.PolicyBuffered,
	},
	func(st *state.State, _ int64, emit emitter) {
		n, policies := st.RolloutTotals(), 0
		emit(telemetry.Rollouts.Value(float64(n.Live), "live"))
		emit(telemetry.Rollouts.Value(float64(n.Ended), "ended"))
		emit(telemetry.Samples.Value(float64(n.Samples)))
		emit(telemetry.SampleBytes.Value(float64(n.SampleBytes)))
		st.Policies("", func(p *state.Policy) bool {
			emit(telemetry.PolicyVersion.Value(float64(p.Version), p.Name))
			emit(telemetry.PolicyStep.Value(float64(p.Step), p.Name))
			emit(telemetry.PolicySuspended.Value(telemetry.One(p.Suspended), p.Name))
			emit(telemetry.PolicyComplete.Value(float64(st.CompleteCount(p.Name)), p.Name))
			emit(telemetry.PolicyBuffered.Value(float64(st.BufferedCount(p.Name)), p.Name))
			policies++
			return policies < telemetry.PoliciesMax
		})
	},
}
