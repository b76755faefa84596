package worker

import (
	"math"
	"slices"

	"rota/fsm/state"
)

const (
	// priorityHalf is of how many predicted tokens the priority is half the highest.
	priorityHalf = 16384
	// priorityStep is how finely priorities differ: a smaller change of a prediction changes
	// no route.
	priorityStep = 5_000
)

// Priority of a trajectory that is predicted to generate so many tokens yet: from 0 to
// state.GenerationPriorityMax, growing with them.
func Priority(predicted uint64) uint32 {
	predicted = min(predicted, math.MaxUint64-priorityHalf)
	p := state.MulDiv(predicted, state.GenerationPriorityMax, predicted+priorityHalf)
	return uint32(p - p%priorityStep)
}

// TokenNS is how long each request of a batch waits for its next token, in nanoseconds. Between
// two points of the profile it is a line, before the first it is that of the first, and beyond
// the last the line through the last two goes on, but never down.
func TokenNS(w *state.Worker, batch uint32) int64 {
	points := w.Profile
	at, _ := slices.BinarySearchFunc(points, batch, func(p state.WorkerPoint, b uint32) int { return int(int64(p.Batch) - int64(b)) })
	switch {
	case at == 0 || len(points) == 1:
		return points[0].TokenNS
	case at == len(points):
		at--
	}
	a, b := points[at-1], points[at]
	return max(line(a, b, batch), floor(a, b, batch))
}

// line is the line through two points at a batch size.
func line(a, b state.WorkerPoint, batch uint32) int64 {
	over, width := uint64(batch-a.Batch), uint64(b.Batch-a.Batch)
	if b.TokenNS >= a.TokenNS {
		return state.Saturated(a.TokenNS, clamp(state.MulDiv(uint64(b.TokenNS-a.TokenNS), over, width)))
	}
	return a.TokenNS - clamp(state.MulDiv(uint64(a.TokenNS-b.TokenNS), over, width))
}

// floor is the least that a line may come to: that of its second point where it is beyond that.
func floor(a, b state.WorkerPoint, batch uint32) int64 {
	if batch > b.Batch {
		return b.TokenNS
	}
	return min(a.TokenNS, b.TokenNS)
}

func clamp(n uint64) int64 { return int64(min(n, math.MaxInt64)) }

// WorkNS is how long the requests of all trajectories of a worker with so much to do take
// together, as predicted, in nanoseconds: all wait for each token of the batch, and for each prompt.
func WorkNS(w *state.Worker, l state.WorkerLoad) int64 {
	n := max(1, l.Trajectories)
	decode := clamp(state.MulDiv(l.Predicted, uint64(TokenNS(w, n)), 1))
	return state.Saturated(decode, clamp(state.MulDiv(uint64(PrefillNS(w, l.Prefill)), uint64(n), 1)))
}

// PrefillNS is how long a worker computes a prefix that is in none of its caches, in nanoseconds.
func PrefillNS(w *state.Worker, tokens uint64) int64 {
	return clamp(state.MulDiv(tokens, uint64(w.Prefill1kNS), 1000))
}

// Candidate is a worker with what it has to do.
type Candidate struct {
	Row   *state.Worker
	State state.WorkerState
	Load  state.WorkerLoad
}

// Free is how many more trajectories the worker may have.
func (c *Candidate) Free() uint32 {
	return c.Row.SlotsOrMax() - min(c.Row.SlotsOrMax(), c.Load.Trajectories)
}

// Takes reports whether the worker may be given a trajectory.
func (c *Candidate) Takes() bool { return c.State == state.WorkerUp && c.Free() > 0 }

// with is the predicted time of the worker's work if a trajectory is added.
func (c *Candidate) with(g *state.Generation) int64 {
	l := c.Load
	l.Trajectories++
	l.Predicted += max(1, g.Predicted)
	l.Prefill += prefill(g)
	return WorkNS(c.Row, l)
}

// prefill is how many tokens of its prompts a trajectory has computed at a worker without its KV
// cache.
func prefill(g *state.Generation) uint64 {
	if g.Trace.Turns == 0 {
		return g.Prefill
	}
	return g.Prefill + g.PrefixTokens()
}

// View has the workers of a policy, in the order of their names.
type View []Candidate

// Of returns the workers of a policy.
func Of(s *state.State, policy string) (v View) {
	s.WorkersOf(policy, func(w *state.Worker) bool {
		v = append(v, Candidate{w, s.WorkerState(w), s.WorkerLoad(w.Name)})
		return true
	})
	return v
}

// Add notes that a trajectory was given to a worker of the view.
func (v View) Add(at int, g *state.Generation) {
	l := &v[at].Load
	l.Trajectories++
	l.Predicted += g.Predicted
	l.Prefill += g.Prefill
	if g.Generating {
		l.Generating++
	}
}
