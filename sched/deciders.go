package sched

import "rota/fsm/state"

// Scheduler is the scheduler of a feature level: it begins a pass over a queue.
// The view may change between decisions, by what was decided.
type Scheduler func(view *state.State, q state.Queue) Decider

// Decider is a pass: it yields decisions until there is none left.
type Decider interface {
	// Next returns the next decision; false when the pass is over.
	Next() (Decision, bool)
	// Examined returns how many actions the pass has looked at: its cost.
	Examined() int
}

// change is a scheduler that decides from a feature level on.
type change struct {
	since  state.Level
	decide Scheduler
}

// levelExploring is the feature level from which degrees of GPUs are explored, and models
// that the batch needs are spared.
const levelExploring state.Level = 3

// LevelResizing is the feature level from which running actions are resized.
const LevelResizing = state.LevelResizing

// changes has the schedulers of all feature levels that this build knows, oldest first.
// A scheduler that a release had is not changed while its level is known: logs and
// snapshots of that level are replayed by it.
var changes = [...]change{
	{state.LevelMin, newDecider},
	{levelExploring, exploring},
}

// Deciders returns the scheduler of each feature level that this build knows, that of
// state.LevelMin first.
func Deciders() (d []Scheduler) {
	for level := state.LevelMin; level <= state.LevelMax; level++ {
		var active Scheduler
		for _, c := range changes {
			if c.since <= level {
				active = c.decide
			}
		}
		d = append(d, active)
	}
	return d
}

func newDecider(view *state.State, q state.Queue) Decider {
	switch q.Kind {
	case state.QuotaQueue:
		return newQuotaPass(view, state.QuotaID(q.ID))
	case state.GPUQueue:
		return newGPUPass(view, q)
	case state.PoolCorelessQueue, state.NodeCorelessQueue:
		return newCorelessPass(view, q)
	case state.GangQueue:
		return newGangPass(view, q)
	}
	return NewPass(view, q)
}

// exploring is newDecider, and tries degrees of GPUs that a class knows little of. It spares
// the models that the batch needs.
func exploring(view *state.State, q state.Queue) Decider {
	d := newDecider(view, q)
	if p, ok := d.(*gpuPass); ok {
		p.explores, p.spares = true, true
	}
	return d
}
