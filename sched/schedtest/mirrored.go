package schedtest

import (
	"rota/fsm/state"
	"rota/sched"
	"rota/sched/place"
)

// Deciders returns what a build has whose newest feature level is newest: the schedulers
// of package sched, and for levels after those in turn one that is mirrored and one that
// is not.
func Deciders(newest state.Level) []sched.Scheduler {
	known := sched.Deciders()
	for level := state.LevelMax + 1; level <= newest; level++ {
		if (level-state.LevelMax)%2 == 1 {
			known = append(known, Mirrored)
		} else {
			known = append(known, known[0])
		}
	}
	return known[:newest-state.LevelMin+1]
}

// Mirrored is the scheduler of state.LevelMin seen in a mirror: where several nodes have the same number
// of free cores it takes the last, and of the free cores of a NUMA node the last.
func Mirrored(view *state.State, q state.Queue) sched.Decider {
	ofNode := q.Kind == state.NodeQueue
	return &mirrored{sched.Deciders()[0](view, q), view, ofNode}
}

type mirrored struct {
	sched.Decider
	view   *state.State
	ofNode bool // a pass over one node: there is no choice of another
}

// Next implements sched.Decider.
func (m *mirrored) Next() (sched.Decision, bool) {
	d, ok := m.Decider.Next()
	if d.Start == nil || d.Start.CoresMin == 0 || d.Node.Resizes {
		return d, ok
	}
	if !m.ofNode && d.GPUs == nil && d.Node.ReservedFor == 0 && d.Bypassed == [5]*state.Action{} {
		d.Node = m.lastLike(d.Node, d.Start)
	}
	d.Cores = lastCores(d.Node, d.Cores.Len())
	return d, ok
}

// lastLike returns the last of the nodes with as many free cores as n, and no less of
// the rest, that could take the action as well, and that no action waits for or has reserved:
// who is deferred on n does so there, too. Where a gang or an action without cores waits, it is a
// node with as much in all as n, so that they are bypassed on neither.
func (m *mirrored) lastLike(n *state.Node, a *state.Action) *state.Node {
	last, free, shape := n, n.Free.Len(), n.Shape()
	waiting := m.view.QueueLen(state.QueueOf(state.GangQueue, n.Pool)) + m.view.QueueLen(state.QueueOf(state.PoolCorelessQueue, n.Pool))
	m.view.NodesByFreeCores(n.Pool, func(o *state.Node) bool {
		like := o.Free.Len() == free && o.FreeMemory >= n.FreeMemory && o.FreeBandwidth >= n.FreeBandwidth && (waiting == 0 || o.Shape() == shape)
		if like && o.ReservedFor == 0 && place.Fits(o, a) && m.view.QueueLen(state.QueueOf(state.NodeQueue, o.ID)) == 0 {
			last = o
		}
		return o.Free.Len() >= free
	})
	return last
}

// lastCores picks from the NUMA nodes that it picks from, as many cores of
// each.
func lastCores(n *state.Node, width int) (cores state.CoreSet) {
	picked := place.Cores(n.NUMA, n.Free, width)
	for _, numa := range n.NUMA {
		free := numa.Intersect(n.Free)
		rest := free.Len() - numa.Intersect(picked).Len()
		cores = cores.Union(free.Minus(free.First(rest)))
	}
	return cores
}
