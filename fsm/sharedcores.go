package fsm

import (
	"rota/fsm/state"
	"rota/sched"
)

// shareCores has attempts of a node give up their cores and share those that the node has for that. What
// those are is said next.
func (x *execution) shareCores(id state.NodeID, attempts []*state.Attempt) {
	for _, old := range attempts {
		n, t := *x.s.Node(id), *old
		n.Free = n.Free.Union(t.Cores)
		n.Spare -= t.Spare()
		n.SetShared(n.Shared, n.Sharing+1)
		t.CoreNS, t.ResizedAt = t.Used(x.now()), x.now()
		t.Cores, t.Shares, t.Anchor = state.CoreSet{}, true, 0
		x.s.PutNode(&n)
		x.s.PutAttempt(&t)
		x.mayHoldMore(x.s.Action(t.Action).Namespace)
	}
}

// resizeShared changes the cores that attempts of a node share.
func (x *execution) resizeShared(n state.Node, cores state.CoreSet) {
	state.Assert(cores.Minus(n.Free.Union(n.Shared)) == state.CoreSet{} && cores.Len() >= state.SharedLeast(n.Sharing) &&
		(n.Shared == state.CoreSet{} || cores.Has(int(n.SharedAnchor))), "cores of node %s that are to be shared are not free, or too few", n.Name)
	n.SetShared(cores, n.Sharing)
	x.s.PutNode(&n)
	x.dirtyNodes.add(n.ID)
	x.effects = append(x.effects, Effect{Kind: EffectResized, Node: n.ID})
}

// sharesNoMore has an attempt share cores no more. The caller stores both, and looks after who waits
// for cores: these may be free or to spare now.
func (x *execution) sharesNoMore(n *state.Node, t *state.Attempt) (freed state.CoreSet) {
	if !t.Shares {
		return state.CoreSet{}
	}
	freed = n.Shared
	n.SharesLess()
	x.effects = append(x.effects, Effect{Kind: EffectResized, Node: n.ID})
	return freed
}

// sharesLate has a node divided again when the first in its queue waits for cores: those that have run for
// long may share some then.
func (x *execution) sharesLate(q state.Queue) {
	if q.Kind != state.NodeQueue {
		return
	}
	n := x.s.Node(state.NodeID(q.ID))
	if n == nil || n.ShareAfterNS == 0 {
		return
	}
	x.s.Queued(q, 0, func(first state.ActionID) bool {
		if int(x.s.Action(first).CoresMin) > n.Available() {
			x.divisions.add(n.ID)
		}
		return false
	})
}

// learnShared has a class learn of an attempt that shared cores: that it takes at least as much work as it
// certainly had of cores. How fast it was says nothing.
func (x *execution) learnShared(a *state.Action, t *state.Attempt) {
	if used := int64(t.Used(x.now())); used > 0 {
		x.s.PutClass(x.s.Class(a.Class).Lived(sched.Work(a, 1, used), false))
	}
}
