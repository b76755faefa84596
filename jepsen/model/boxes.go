package model

import (
	"slices"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// boxes: the node runs containers if they are asked for.
func (n *node) boxes(container bool) bool { return n.Containers || !container }

// asksForContainer judges a trajectory with a container: a node of its pool can hold it, if the pool
// has any.
func (m *Model) asksForContainer(v *verdict, c *logv1.OpenTrajectory) {
	p := m.pools[orDefault(c.Pool)]
	if p == nil || len(p.nodes) == 0 {
		return
	}
	whole := state.Action{CoresMin: 1, Memory: c.MemoryBytes}
	v.refuse(!slices.ContainsFunc(p.nodes, func(n *node) bool { return n.boxes(c.Container) && n.couldHold(&whole) }), "UNSATISFIABLE")
}
