package sched

import (
	"rota/fsm/state"
	"rota/sched/place"
)

// misses are demands for which a pass found no node. While it only starts actions and
// keeps nodes free, what did not fit does not fit later either, nor does anything that
// asks for as much: so a search over all nodes is not made twice.
type misses []*state.Action

// missesMax bounds how many are remembered: those of one pass hardly differ more.
const missesMax = LookAhead

// covers reports whether an action asks for no less than one that was missed.
func (m misses) covers(a *state.Action) bool {
	for _, b := range m {
		if a.CoresMin >= b.CoresMin && place.Reserves(a) >= place.Reserves(b) && a.Bandwidth() >= b.Bandwidth() &&
			a.ID > b.ID && requestsNoLess(a.GPUs(), b.GPUs()) {
			return true
		}
	}
	return false
}

// requestsNoLess compares two demands for GPUs of one class; nil asks for none.
func requestsNoLess(a, b *state.GPUDemand) bool {
	return b == nil || a != nil && a.Degrees[0] >= b.Degrees[0] && a.Memory >= b.Memory
}

func (m *misses) add(a *state.Action) {
	if len(*m) < missesMax {
		*m = append(*m, a)
	}
}
