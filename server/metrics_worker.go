package server

import (
	"rota/fsm/state"
	"rota/internal/telemetry"
)

var workerStateNames = []string{"", "up", "stale", "down", "draining"}

// workerMetrics are of workers and of what they do.
var workerMetrics = part{
	[]*telemetry.Def{
		telemetry.Workers, telemetry.WorkerTrajectories, telemetry.WorkerPredicted, telemetry.WorkerTokens,
		telemetry.GenerationsWaiting,
	},
	func(st *state.State, _ int64, emit emitter) {
		type kind struct {
			policy string
			state  state.WorkerState
		}
		counts, workers := map[kind]int{}, 0
		st.Workers("", func(w *state.Worker) bool {
			counts[kind{w.Policy, st.WorkerState(w)}]++
			if workers++; workers > telemetry.WorkersMax {
				return true
			}
			load := st.WorkerLoad(w.Name)
			emit(telemetry.WorkerTrajectories.Value(float64(load.Trajectories), w.Name))
			emit(telemetry.WorkerPredicted.Value(float64(load.Predicted), w.Name))
			emit(telemetry.WorkerTokens.Value(float64(w.OutputTokens), w.Name))
			return true
		})
		for k, n := range counts {
			emit(telemetry.Workers.Value(float64(n), k.policy, workerStateNames[k.state]))
		}
		emit(telemetry.GenerationsWaiting.Value(float64(st.WaitingGenerations())))
	},
}
