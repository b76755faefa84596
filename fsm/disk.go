package fsm

import (
	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// reportDisk stops or allows new work on a node by what it says of its disk. What runs
// there runs on, and trajectories go on: they may be what makes room.
func (x *execution) reportDisk(c *logv1.ReportDisk) *logv1.Result {
	n := x.s.NodeByName(c.Name)
	if n == nil || n.Incarnation != c.Incarnation {
		return &logv1.Result{}
	}
	x.setDrains(n, n.OperatorDrains(), c.Low)
	return &logv1.Result{Count: 1}
}

// setDrains says for which reasons a node gets no new work.
func (x *execution) setDrains(n *state.Node, operator, lowDisk bool) {
	if a := x.s.Action(n.ReservedFor); a != nil && (operator || lowDisk) {
		x.unreserve(a)
		n = x.s.Node(n.ID)
	}
	m := *n
	if m.SetDrains(operator, lowDisk); m.Draining == n.Draining && m.LowDisk == n.LowDisk && m.Drained == n.Drained {
		return
	}
	x.putNode(&m)
	if m.Draining == n.Draining {
		return
	}
	x.reviewNode(m.Name, false)
	x.drainsChanged(x.s.Node(m.ID))
}

// drainsChanged has all actions looked at that may start on a node, which has begun or ceased
// to take new work.
func (x *execution) drainsChanged(n *state.Node) {
	x.usableChanged(n)
	x.nodeFreed(n)
	x.dirty.add(state.QueueOf(state.PoolQueue, n.Pool))
	x.wakeCoreless(n.Pool)
}
