package fsm

import (
	logv1 "rota/api/gen/log/v1"
	predictorv1 "rota/api/gen/predictor/v1"
	"rota/fsm/state"
	"rota/sched/predict"
)

const (
	// PredictionsMax bounds the predictions of one command, and the trajectories that a predictor
	// service is asked about at once.
	PredictionsMax = 256
	// serviceFactorMax is how many times more or less than rota itself a service may predict. Beyond
	// that a service is taken to be wrong, and the bound counts.
	serviceFactorMax = 64
)

// predictGenerations takes what a predictor service said of trajectories. What it said of one that has
// had another turn meanwhile, or has ended, is left out.
func (x *execution) predictGenerations(c *logv1.PredictGenerations) *logv1.Result {
	if len(c.Predictions) > PredictionsMax {
		return refuse(codeInvalidArgument, "INVALID", "the lengths of %d trajectories are predicted at once; at most %d are allowed", len(c.Predictions), PredictionsMax)
	}
	taken := uint32(0)
	for _, p := range c.Predictions {
		old := x.s.Generation(state.TrajectoryID(p.TrajectoryId))
		if old == nil || old.Ended || old.Service.Said || old.Trace.Turns != p.Turns {
			continue
		}
		g := *old
		own := min(max(1, old.Predicted), state.ServiceTokensMax)
		p50 := min(p.TokensP50, state.ServiceTokensMax)
		g.Service = state.ServicePrediction{
			Said: true, Own: old.Predicted, P50: p50, P90: max(p50, min(p.TokensP90, state.ServiceTokensMax)), Turns: min(p.TurnsLeft, state.ServiceTurnsMax),
		}
		x.expectTokens(&g, min(max(p.Tokens, own/serviceFactorMax), own*serviceFactorMax, state.ServiceTokensMax))
		if g.Trace.Turns == 0 {
			g.FirstPredicted = g.Predicted
		}
		x.putGeneration(&g)
		taken++
	}
	return &logv1.Result{Count: taken}
}

// ForPredictor returns what a predictor service is told of a trajectory that generates.
func ForPredictor(s *state.State, g *state.Generation) *predictorv1.Trajectory {
	siblings := siblingsOf(s, g.Trajectory)
	own := predict.Remaining(s.LengthClass(g.Policy, g.TaskClass), &g.Trace, siblings)
	t, trace := s.Trajectory(g.Trajectory), &g.Trace
	return &predictorv1.Trajectory{
		Id: uint64(g.Trajectory), Policy: g.Policy, TaskClass: g.TaskClass, RolloutId: uint64(t.Rollout), Group: t.Group,
		PromptTokens: trace.PromptTokens, Turns: trace.Turns, OutputTokens: trace.OutputTokens, LastOutputTokens: trace.LastOutputTokens,
		ContextTokens: trace.ContextTokens, ToolResultTokens: trace.ToolResultTokens, ToolMs: uint32(min(trace.ToolNS/1_000_000, 1<<32-1)),
		Stopped: trace.Stopped, Siblings: siblings.Finished, SiblingsMeanTokens: siblings.MeanTokens,
		Own: &predictorv1.Prediction{
			Id: uint64(g.Trajectory), Tokens: own.Tokens, TokensP50: own.P50, TokensP90: own.P90, Turns: uint32(min(own.Turns, 1<<32-1)),
		},
	}
}
