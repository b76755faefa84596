package place

import "rota/fsm/state"

// domainsExamined bounds the search for the domain with the fewest of a group. Of
// more domains, others are found only with the nodes that have the most memory.
const domainsExamined = 64

// Whole is a pending trajectory with its actions as one demand: the memory that it
// reserves and, together on one node, the most that any of its actions asks for.
func Whole(t *state.Trajectory) *state.Action {
	whole := &state.Action{Pool: t.Pool, CoresMin: max(1, t.RequestedCores), Memory: t.Memory}
	if t.RequestedBandwidth > 0 {
		whole.Needs = &state.Needs{Bandwidth: t.RequestedBandwidth}
	}
	return whole
}

// Lives reports whether a node of a shape could ever hold the trajectory with all its actions.
func Lives(s *state.Shape, t *state.Trajectory) bool {
	return Holds(s, Whole(t)) && (s.Containers || !t.Container)
}

// Livable reports whether a usable node of its pool could ever hold a trajectory with all its
// actions. What was looked at is in steps.
func Livable(v Shapes, t *state.Trajectory) (ok bool, steps int) {
	v.UsableShapes(t.Pool, func(s *state.Shape) bool {
		steps++
		ok = Lives(s, t)
		return !ok
	})
	return ok, steps
}

// ForTrajectory returns the node for a trajectory, nil if none takes it: of those on
// which all its actions can run and that have the memory the one with the most free
// memory, and among equals with the fewest trajectories per core. If it is spread,
// first come the domains with the fewest of its group. The work that the search took
// is in steps.
func ForTrajectory(v Nodes, t *state.Trajectory) (n *state.Node, steps int) {
	s := search{v: v, t: t, whole: Whole(t)}
	if t.Spread.Group != "" {
		s.domains()
		if s.best != nil {
			return s.best, s.steps
		}
	}
	s.best = s.roomiest(func(fn func(*state.Node) bool) { v.NodesByFreeMemory(t.Pool, fn) })
	return s.best, s.steps
}

// roomiest returns the first node that takes the trajectory, of those that come
// with the most free memory first.
func (s *search) roomiest(nodes func(func(*state.Node) bool)) (hit *state.Node) {
	nodes(func(n *state.Node) bool {
		s.steps++
		if s.takes(n) {
			hit = n
		}
		return hit == nil && n.FreeMemory >= s.t.Memory
	})
	return hit
}

// takes reports whether the trajectory may live on a node.
func (s *search) takes(n *state.Node) bool {
	if n.FreeMemory < s.t.Memory || n.Trajectories >= TrajectoriesPerNodeMax {
		return false
	}
	if s.t.Container && !n.Containers {
		return false
	}
	if s.whole.CoresMin <= 1 && s.whole.Needs == nil {
		return true
	}
	shape := n.Shape()
	return Holds(&shape, s.whole)
}

// search is for the node of a trajectory.
type search struct {
	v     Nodes
	t     *state.Trajectory
	whole *state.Action
	best  *state.Node
	group int // how many of the group live in the domain of best
	steps int
}

// domains chooses among the roomiest nodes of the domains. Of more than are examined,
// others take part only with the nodes that have the most memory.
func (s *search) domains() {
	label, examined := s.t.Spread.Label, 0
	s.v.Domains(s.t.Pool, label, func(n *state.Node) bool {
		if examined++; examined > domainsExamined {
			return false
		}
		if !s.takes(n) {
			n = s.roomiest(func(fn func(*state.Node) bool) { s.v.NodesOfDomain(s.t.Pool, label, n.Label(label), fn) })
		}
		s.steps++
		s.offer(n)
		return true
	})
	if examined > domainsExamined {
		s.nodes()
	}
}

// nodes offers those with the most free memory, whatever their domain.
func (s *search) nodes() {
	left := choices
	s.v.NodesByFreeMemory(s.t.Pool, func(n *state.Node) bool {
		if s.takes(n) {
			s.offer(n)
		}
		s.steps++
		left--
		return left > 0 && n.FreeMemory >= s.t.Memory
	})
}

// offer takes a node if it is better. It may be nil.
func (s *search) offer(n *state.Node) {
	if n == nil {
		return
	}
	group := s.v.InDomain(s.t, n.Label(s.t.Spread.Label))
	if s.best == nil || group < s.group || group == s.group && n.Roomier(s.best) {
		s.best, s.group = n, group
	}
}
