package place

import "rota/fsm/state"

// Narrowed returns the n cores that an attempt keeps of those that it has. It keeps its
// anchor, and as much as it can of the anchor's NUMA node, so that its memory stays near.
func Narrowed(numa []state.CoreSet, has state.CoreSet, anchor, n int) state.CoreSet {
	kept := state.CoreRange(anchor, 1)
	for _, near := range []bool{true, false} {
		for _, cores := range numa {
			if lacks := n - kept.Len(); lacks > 0 && cores.Has(anchor) == near {
				kept = kept.Union(cores.Intersect(has).Minus(kept).First(lacks))
			}
		}
	}
	return kept
}

// Widened returns the cores of an attempt with up to n more, of those that are free: from
// the anchor's NUMA node first, then as for a start.
func Widened(numa []state.CoreSet, has, free state.CoreSet, anchor, n int) state.CoreSet {
	more := state.CoreSet{}
	for _, cores := range numa {
		if cores.Has(anchor) {
			more = cores.Intersect(free).First(n)
		}
	}
	if lacks := n - more.Len(); lacks > 0 {
		more = more.Union(Cores(numa, free.Minus(more), lacks))
	}
	return has.Union(more)
}
