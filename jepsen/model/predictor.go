package model

import (
	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// What a predictor service says of trajectories takes the place of what rota itself predicts, until
// their next turn.

const (
	predictionsMax    = 256
	serviceTokensMax  = 16_777_216
	serviceTurnsMax   = 65_536
	serviceFactorMost = 64
)

func (m *Model) predictGenerations(c *logv1.PredictGenerations, got *logv1.Result) error {
	if len(c.Predictions) > predictionsMax {
		return refused(got, "INVALID")
	}
	taken := uint32(0)
	for _, p := range c.Predictions {
		id := state.TrajectoryID(p.TrajectoryId)
		g := m.workers.generations[id]
		if g == nil || g.Ended || g.Service.Said || g.Trace.Turns != p.Turns {
			continue
		}
		most := max(p.TokensP50, p.TokensP90)
		g.Service = state.ServicePrediction{
			Said: true, P50: min(p.TokensP50, serviceTokensMax), P90: min(most, serviceTokensMax), Turns: min(p.TurnsLeft, serviceTurnsMax),
		}
		own := !m.workers.grown[id]
		if own {
			g.Service.Own = g.Predicted
		}
		m.workers.said[id] = saidLength{p.Tokens, own}
		m.workers.touched[id], m.workers.grown[id] = true, true
		taken++
	}
	return result(got, &logv1.Result{Count: taken})
}

// saidLength is what the service said in this entry. own: the model knew what rota itself predicted.
type saidLength struct {
	tokens uint64
	own    bool
}

// takePrediction takes over what rota itself predicts of a trajectory. What counts if the service has
// said something is not taken over.
func (m *Model) takePrediction(g, got *state.Generation) {
	g.Prefill, g.FirstPredicted = got.Prefill, got.FirstPredicted
	said, now := m.workers.said[g.Trajectory]
	switch {
	case !g.Service.Said:
		g.Predicted = got.Predicted
		return
	case !now:
		return // it was said before, and counts
	case !said.own:
		g.Service.Own = got.Service.Own
	}
	own := min(max(g.Service.Own, 1), serviceTokensMax)
	g.Predicted = max(min(said.tokens, serviceTokensMax, own*serviceFactorMost), own/serviceFactorMost)
	if g.Trace.Turns == 0 {
		g.FirstPredicted = g.Predicted
	}
}
