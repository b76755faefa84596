package sched

import "rota/fsm/state"

// Scheduler is one version of the scheduler: it begins a pass over an instance.
// The view may change between decisions, by what was decided.
type Scheduler func(view *state.State, i state.Instance) Decider

// Decider is a pass: it yields decisions until there is none left.
type Decider interface {
	// Next returns the next decision; false when the pass is over.
	Next() (Decision, bool)
	// Examined returns how many actions the pass has looked at: its cost.
	Examined() int
}

// versions has every version that this build knows, version 1 first. A version
// that was ever released is never changed and never taken out: logs and snapshots
// that it decided are replayed by it.
var versions = [...]Scheduler{
	newDecider,
}

func newDecider(view *state.State, i state.Instance) Decider {
	if id, ok := i.Quota(); ok {
		return newQuotaPass(view, id)
	}
	if _, _, ok := i.GPU(); ok {
		return newGPUPass(view, i)
	}
	_, pool := i.CorelessPool()
	if _, node := i.CorelessNode(); pool || node {
		return newCorelessPass(view, i)
	}
	return NewPass(view, i)
}

// Version is the newest version of the scheduler that this build knows. Which
// one decides is in state, and changes only by a committed barrier.
const Version = uint32(len(versions))

// Versions returns every version that this build knows, version 1 first.
func Versions() []Scheduler { return versions[:] }
