package server

import (
	"rota/fsm/state"
	"rota/sched"
	"rota/server/rpc"
)

// estimateStarts says when actions start, from a log time on.
func estimateStarts(st *state.State, actions []*state.Action, now int64) []rpc.StartEstimate {
	out := make([]rpc.StartEstimate, len(actions))
	for i, e := range sched.EstimateStarts(st, actions, now) {
		out[i] = rpc.StartEstimate(e)
	}
	return out
}
