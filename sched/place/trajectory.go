package place

import "rota/fsm/state"

// domainsExamined bounds the search for the domain with the fewest of a group. Of
// more domains, others are found only with the nodes that have the most memory.
const domainsExamined = 64

// ForTrajectory returns the node for a trajectory, nil if none has the memory: the
// one with the most free memory, and among equals with the fewest trajectories per
// core. If it is spread, first come the domains with the fewest of its group. The
// work that the search took is in steps.
func ForTrajectory(v Nodes, t *state.Trajectory) (n *state.Node, steps int) {
	if t.Spread.Group == "" {
		return roomiest(t, func(fn func(*state.Node) bool) { v.NodesByFreeMemory(t.Pool, fn) }), 1
	}
	s := search{v: v, t: t}
	s.domains()
	if s.steps > domainsExamined {
		s.nodes()
	}
	return s.best, s.steps
}

// roomiest returns the first node that takes the trajectory, of those that come
// with the most free memory first.
func roomiest(t *state.Trajectory, nodes func(func(*state.Node) bool)) (hit *state.Node) {
	left := nodesExamined
	nodes(func(n *state.Node) bool {
		if n.FreeMemory < t.Memory {
			return false
		}
		if n.Trajectories < TrajectoriesPerNodeMax {
			hit = n
		}
		left--
		return hit == nil && left > 0
	})
	return hit
}

// search is for the node of a trajectory that is spread.
type search struct {
	v     Nodes
	t     *state.Trajectory
	best  *state.Node
	group int // how many of the group live in the domain of best
	steps int
}

// domains offers the node with the most free memory of each domain.
func (s *search) domains() {
	label := s.t.Spread.Label
	s.v.Domains(s.t.Pool, label, func(n *state.Node) bool {
		if s.steps++; s.steps > domainsExamined {
			return false
		}
		if n.Trajectories >= TrajectoriesPerNodeMax {
			n = roomiest(s.t, func(fn func(*state.Node) bool) { s.v.NodesOfDomain(s.t.Pool, label, n.Label(label), fn) })
		}
		s.offer(n)
		return true
	})
}

// nodes offers those with the most free memory, whatever their domain.
func (s *search) nodes() {
	left := nodesExamined
	s.v.NodesByFreeMemory(s.t.Pool, func(n *state.Node) bool {
		s.offer(n)
		s.steps++
		left--
		return left > 0 && n.FreeMemory >= s.t.Memory
	})
}

// offer takes a node if it is better. It may be nil, or one that takes nothing.
func (s *search) offer(n *state.Node) {
	if n == nil || n.FreeMemory < s.t.Memory || n.Trajectories >= TrajectoriesPerNodeMax {
		return
	}
	group := s.v.InDomain(s.t, n.Label(s.t.Spread.Label))
	if s.best == nil || group < s.group || group == s.group && n.Roomier(s.best) {
		s.best, s.group = n, group
	}
}
