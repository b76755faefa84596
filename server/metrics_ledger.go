package server

import (
	rotav1 "rota/api/gen/rota/v1"
	"rota/fsm/state"
	"rota/internal/telemetry"
)

// ledgerMetrics are of jobs, turns and node groups. How much of the time a group is held is
// the average of whether it is.
var ledgerMetrics = part{
	[]*telemetry.Def{
		telemetry.Jobs, telemetry.Turns, telemetry.GroupsInTotal, telemetry.GroupHeld, telemetry.GroupHalted,
		telemetry.JobHeld, telemetry.LedgerHalted,
	},
	func(st *state.State, _ int64, emit emitter) {
		emit(telemetry.LedgerHalted.Value(telemetry.One(st.Meta().PlacementHalted != "")))
		emit(telemetry.GroupsInTotal.Value(float64(st.NodeGroupCount())))
		groups := 0
		st.NodeGroups(func(g *state.NodeGroup) bool {
			emit(telemetry.GroupHeld.Value(telemetry.One(g.Turn != 0), g.Name))
			emit(telemetry.GroupHalted.Value(telemetry.One(g.Halted != ""), g.Name))
			groups++
			return groups < telemetry.GroupsMax
		})
		jobs := map[state.JobState]int{}
		named := 0
		st.Jobs(0, func(j *state.Job) bool {
			jobs[j.State]++
			if named++; named > telemetry.JobsMax {
				return true
			}
			namespace := ""
			if n := st.Namespace(j.Namespace); n != nil {
				namespace = n.Name
			}
			emit(telemetry.JobHeld.Value(float64(j.HeldNS)/1e9, namespace, j.Name))
			return true
		})
		for s := state.JobQueued; s <= state.JobCompleted; s++ {
			emit(telemetry.Jobs.Value(float64(jobs[s]), word(rotav1.JobState(s), "JOB_STATE_")))
		}
		turns := map[state.TurnState]int{}
		st.LiveTurns(func(t *state.Turn) bool {
			turns[t.State]++
			return true
		})
		for _, s := range []state.TurnState{state.TurnWaiting, state.TurnHeld} {
			emit(telemetry.Turns.Value(float64(turns[s]), word(rotav1.TurnState(s), "TURN_STATE_")))
		}
	},
}
