package place

import "rota/fsm/state"

// nodesExamined bounds the search for a node that has both cores and memory.
const nodesExamined = 64

// TrajectoriesPerNodeMax bounds what the loss of one node costs to settle.
const TrajectoriesPerNodeMax = 4096

// Nodes is what this package needs to see of the state.
type Nodes interface {
	NodesByFreeCores(state.PoolID, func(*state.Node) bool)
	NodesByFreeMemory(state.PoolID, func(*state.Node) bool)
	Domains(pool state.PoolID, label string, fn func(*state.Node) bool)
	NodesOfDomain(pool state.PoolID, label, domain string, fn func(*state.Node) bool)
	InDomain(t *state.Trajectory, domain string) int
}

// Cores picks n of the free cores: from the NUMA node that they leave the least
// of if one has enough, else from as few NUMA nodes as possible, fullest first.
// It returns fewer than n only if fewer are free.
func Cores(numa []state.CoreSet, free state.CoreSet, n int) state.CoreSet {
	var picked state.CoreSet
	for n > 0 {
		best, bestLen := state.CoreSet{}, 0
		for _, cores := range numa {
			avail := cores.Intersect(free)
			if l := avail.Len(); l > 0 && better(l, bestLen, n) {
				best, bestLen = avail, l
			}
		}
		if bestLen == 0 {
			return picked
		}
		take := best.First(n)
		picked, free = picked.Union(take), free.Minus(take)
		n -= take.Len()
	}
	return picked
}

// better reports whether a NUMA node with a free cores is a better source for n
// than one with b: the smallest that suffices, else the largest.
func better(a, b, n int) bool {
	if a >= n {
		return b < n || a < b
	}
	return a > b
}

// ForAction returns the node for an action without a trajectory: the one with
// the most free cores among those with enough memory that are not kept free for
// an older action. Nil if there is none now.
func ForAction(v Nodes, a *state.Action) *state.Node {
	var hit *state.Node
	left := nodesExamined
	v.NodesByFreeCores(a.Pool, func(n *state.Node) bool {
		if n.Free.Len() < int(a.CoresMin) {
			return false
		}
		if Fits(n, a) {
			hit = n
		}
		left--
		return hit == nil && left > 0
	})
	return hit
}

// Fits reports whether the action could start on the node now, as far as cores,
// memory and bandwidth go.
func Fits(n *state.Node, a *state.Action) bool {
	if n.HeldFor != 0 && n.HeldFor < a.ID {
		return false
	}
	return n.Free.Len() >= int(a.CoresMin) && n.FreeMemory >= Reserves(a) && n.FreeBandwidth >= a.Bandwidth()
}

// Holds reports whether a node of a shape could ever run the action.
func Holds(s *state.Shape, a *state.Action) bool {
	g := a.GPUs()
	gpus := g == nil || s.GPUs.Class == g.Class && s.GPUs.Count >= g.Degrees[0] && s.GPUs.Memory >= g.Memory
	return gpus && s.Cores >= int(a.CoresMin) && s.Memory >= Reserves(a) && s.Bandwidth >= a.Bandwidth()
}

// Reserves returns the memory in bytes that an action takes from its node while
// it runs. One of a trajectory lives in what the trajectory has reserved.
func Reserves(a *state.Action) uint64 {
	if a.Trajectory != 0 {
		return 0
	}
	return a.Memory
}

// ToHold returns the node to keep free for a starved action: of those that could
// ever run it and are not kept for another, the one with the most free cores.
// Nil if the search finds none.
func ToHold(v Nodes, a *state.Action) *state.Node {
	var hit *state.Node
	left := nodesExamined
	v.NodesByFreeCores(a.Pool, func(n *state.Node) bool {
		if shape := n.Shape(); n.HeldFor == 0 && Holds(&shape, a) {
			hit = n
		}
		left--
		return hit == nil && left > 0
	})
	return hit
}

// Key returns the key of a quota with the most free units, if that is enough. All
// units of a call come from one key.
func Key(q *state.Quota, units uint32) (key uint32, ok bool) {
	most := uint32(0)
	for k, use := range q.Uses[:q.Keys] {
		if free := q.Limit - min(q.Limit, use.InUse()); free > most {
			key, most = uint32(k), free
		}
	}
	return key, most >= units
}

// Coreless returns the node for an action without cores and without a trajectory:
// of those with the most free memory the one that runs the fewest attempts. Nil if
// none has the memory.
func Coreless(v Nodes, a *state.Action) *state.Node {
	var hit *state.Node
	left := nodesExamined
	v.NodesByFreeMemory(a.Pool, func(n *state.Node) bool {
		if n.FreeMemory < a.Memory {
			return false
		}
		if (a.Memory == 0 || Fits(n, a)) && (hit == nil || n.Running < hit.Running) {
			hit = n
		}
		left--
		return left > 0 && (hit == nil || hit.Running > 0)
	})
	return hit
}
