package place

import "rota/fsm/state"

// choices is from how many nodes that would do one is chosen. It never decides
// whether one is found.
const choices = 64

// TrajectoriesPerNodeMax bounds what the loss of one node costs to settle.
const TrajectoriesPerNodeMax = 4096

// Nodes is what this package needs to see of the state.
type Nodes interface {
	NodesByFreeCores(state.PoolID, func(*state.Node) bool)
	NodesWith(pool state.PoolID, cores int, memory uint64, fn func(*state.Node) bool)
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
// the most available cores among those with enough memory that are not reserved for
// an older action. Nil if there is none now. What the search looked at is in steps.
func ForAction(v Nodes, a *state.Action) (hit *state.Node, steps int) {
	v.NodesWith(a.Pool, int(a.CoresMin), Reserves(a), func(n *state.Node) bool {
		steps++
		if Fits(n, a) {
			hit = n
		}
		return hit == nil
	})
	return hit, steps
}

// Fits reports whether the action could start on the node now, as far as cores,
// memory and bandwidth go.
func Fits(n *state.Node, a *state.Action) bool {
	if n.KeptFrom(a.ID) {
		return false
	}
	return n.Available() >= int(a.CoresMin) && n.FreeMemory >= Reserves(a) && n.FreeBandwidth >= a.Bandwidth()
}

// Holds reports whether a node of a shape could ever run the action.
func Holds(s *state.Shape, a *state.Action) bool {
	g := a.GPUs()
	gpus := g == nil || s.GPUs.Class == g.Class && s.Chunk >= g.Degrees[0] && s.GPUs.Memory >= g.Memory
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

// ToReserve returns the node to reserve for a starved action: of those that could run
// it when everything that runs there now has ended, and are not reserved for another, the
// one with the most free cores. Nil if there is none. What the search looked at is in
// steps.
func ToReserve(v Runs, a *state.Action) (hit *state.Node, steps int) {
	v.NodesByFreeCores(a.Pool, func(n *state.Node) bool {
		steps++
		if n.ReservedFor == 0 && CouldRun(v, n, a) {
			hit = n
		}
		return hit == nil
	})
	return hit, steps
}

// Runs is Nodes, and what runs on them.
type Runs interface {
	Nodes
	Attempts(state.NodeID, func(*state.Attempt) bool)
}

// CouldRun reports whether a node can run an action when everything that runs
// there now has ended. Trajectories keep their memory.
func CouldRun(v Runs, n *state.Node, a *state.Action) bool {
	shape := n.Shape()
	if !Holds(&shape, a) {
		return false
	}
	memory := n.FreeMemory
	if need := Reserves(a); memory < need {
		v.Attempts(n.ID, func(t *state.Attempt) bool {
			memory += t.Reserved
			return memory < need
		})
	}
	return memory >= Reserves(a)
}

// Servable reports whether a usable node of its pool could ever run an action. What
// was looked at is in steps.
func Servable(v Shapes, a *state.Action) (ok bool, steps int) {
	v.UsableShapes(a.Pool, func(s *state.Shape) bool {
		steps++
		ok = Holds(s, a)
		return !ok
	})
	return ok, steps
}

// Shapes is what nodes have in all.
type Shapes interface {
	UsableShapes(state.PoolID, func(*state.Shape) bool)
}

// Key returns the key of a quota with the most free units at a log time, if that is
// enough. All units of a call come from one key.
func Key(q *state.Quota, units uint32, now int64) (key uint32, ok bool) {
	most := uint32(0)
	for k := range q.Keys {
		if free := q.Free(k, units, now); free > most {
			key, most = k, free
		}
	}
	return key, most >= units
}

// Coreless returns the node for an action without cores and without a trajectory:
// of those with the most free memory the one that runs the fewest attempts. Nil if
// none has the memory.
func Coreless(v Nodes, a *state.Action) (hit *state.Node, steps int) {
	v.NodesByFreeMemory(a.Pool, func(n *state.Node) bool {
		if n.FreeMemory < a.Memory {
			return false
		}
		steps++
		if (a.Memory == 0 || Fits(n, a)) && (hit == nil || n.Running < hit.Running) {
			hit = n
		}
		return hit == nil || steps < choices && hit.Running > 0
	})
	return hit, steps
}
