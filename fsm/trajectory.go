package fsm

import (
	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// Bounds of a trajectory. That of its live actions bounds what it costs to place
// or to end one.
const (
	nameBytesMax      = 128
	trajectoryLiveMax = 4096
)

// openTrajectory creates a trajectory. It is placed by the scheduler, in this
// entry if a node has the memory.
func (x *execution) openTrajectory(c *logv1.OpenTrajectory) *logv1.Result {
	if r := x.replay(c.Request, state.VerbOpenTrajectory, 1); r != nil {
		return r
	}
	ns, r := x.namespace(c.Namespace)
	if r != nil {
		return r
	}
	p, r := x.pool(c.Pool)
	if r != nil {
		return r
	}
	if len(c.Name) > nameBytesMax || c.IdleTimeoutNs < 0 {
		return refuse(codeInvalidArgument, "INVALID", "name must be at most %d bytes and idle_timeout not negative", nameBytesMax)
	}
	if r := x.satisfiable(p, &state.Action{CoresMin: 1, Memory: c.MemoryBytes}); r != nil {
		return r
	}
	if r := x.mayBeSpread(c.SpreadGroup, c.SpreadLabel); r != nil {
		return r
	}
	if c.Objective > uint32(state.ObjectiveStep) {
		return refuse(codeInvalidArgument, "INVALID", "objective %d is none: 0 is the mean, 1 the step", c.Objective)
	}
	if len(c.Spec) > state.TrajectorySpecBytesMax {
		return refuse(codeInvalidArgument, "INVALID", "the specification of a trajectory has %d bytes, at most %d are allowed", len(c.Spec), state.TrajectorySpecBytesMax)
	}
	if n := x.s.Counts().OpenTrajectories; n >= int(x.settings().TrajectoriesMax) {
		return retryAfter(refuse(codeResourceExhausted, "TOO_MANY_TRAJECTORIES", "%d trajectories are open, which is the limit; close some", n), 1_000_000_000)
	}
	m := *x.s.Meta()
	m.LastTrajectory++
	x.s.SetMeta(m)
	t := &state.Trajectory{
		ID: m.LastTrajectory, Namespace: ns.ID, Pool: p.ID, Name: c.Name, State: state.TrajectoryPending,
		Memory: c.MemoryBytes, IdleTimeoutNS: c.IdleTimeoutNs, IdleSince: x.now(), OpenedAt: x.now(),
		Spread: state.Spread{Group: c.SpreadGroup, Label: c.SpreadLabel}, Objective: state.Objective(c.Objective),
		Spec: string(c.Spec),
	}
	x.putTrajectory(t)
	x.dirty.add(state.QueueOf(state.PoolQueue, p.ID))
	x.remember(c.Request, state.VerbOpenTrajectory, uint64(t.ID), 1)
	return &logv1.Result{FirstId: uint64(t.ID), Count: 1}
}

// mayBeSpread refuses half of what it takes to be spread, and more labels than the
// nodes are kept in order for.
func (x *execution) mayBeSpread(group, label string) *logv1.Result {
	if len(group) > nameBytesMax || len(label) > labelBytesMax || (group == "") != (label == "") {
		return refuse(codeInvalidArgument, "INVALID", "spread_group must be at most %d bytes and spread_label at most %d, and neither goes without the other", nameBytesMax, labelBytesMax)
	}
	already, labels := x.s.Spreads(label)
	if group != "" && !already && labels >= state.SpreadLabelsMax {
		return retryAfter(refuse(codeResourceExhausted, "TOO_MANY_SPREAD_LABELS",
			"open trajectories are spread over %d labels, which is the limit; use one of theirs, or leave spread_group empty", labels), 1_000_000_000)
	}
	return nil
}

// place gives a pending trajectory its node and moves its actions, if it has any
// already, into that node's queue.
func (x *execution) place(t *state.Trajectory, n *state.Node) {
	state.Assert(n.FreeMemory >= t.Memory, "memory of node %s given to trajectory %d is not free", n.Name, t.ID)
	m := *n
	m.FreeMemory -= t.Memory
	m.Trajectories++
	x.s.PutNode(&m)
	u := *t
	waitsNoMore(&u)
	u.State, u.Node = state.TrajectoryOpen, n.ID
	u.Spread.Domain = domainOn(n, t)
	x.putTrajectory(&u)
	for _, a := range x.s.LiveActions(t.ID) {
		x.budget--
		b := *a
		b.Node = n.ID
		x.s.PutAction(&b)
		x.dirty.add(b.Queue())
	}
	x.dirty.add(state.QueueOf(state.NodeQueue, n.ID))
}

// waitsNoMore clears what is known only of those that wait for a node.
func waitsNoMore(t *state.Trajectory) {
	t.RequestedCores, t.RequestedBandwidth, t.Aside = 0, 0, false
}

// domainOn returns the failure domain of a trajectory on a node.
func domainOn(n *state.Node, t *state.Trajectory) string {
	if t.Spread.Group == "" {
		return ""
	}
	return n.Label(t.Spread.Label)
}

// closeTrajectory begins the end of a trajectory. Closing one that is ending
// already changes nothing.
func (x *execution) closeTrajectory(c *logv1.CloseTrajectory) *logv1.Result {
	t := x.s.Trajectory(state.TrajectoryID(c.Id))
	if t == nil {
		return refuse(codeNotFound, "TRAJECTORY_NOT_FOUND", "trajectory %d does not exist, or ended too long ago to be kept", c.Id)
	}
	x.beginClose(t, state.EndTrajectoryEnded)
	return &logv1.Result{FirstId: c.Id, Count: 1}
}

// beginClose leaves the work of ending the actions to the work list, so that it
// is bounded however many there are.
func (x *execution) beginClose(t *state.Trajectory, reason state.EndReason) {
	if t.State >= state.TrajectoryClosing {
		return
	}
	u := *t
	waitsNoMore(&u)
	u.State, u.EndReason = state.TrajectoryClosing, reason
	x.putTrajectory(&u)
	x.dirty.add(state.QueueOf(state.TrajectoryTeardown, t.ID))
	x.gapChanged(t.ID)
	if t.State == state.TrajectoryPending {
		x.memoryFreed(t.Pool) // the next in line may need less
	}
}

// tearDownTrajectory cancels the live actions of a closing trajectory and, when
// there are none, gives its memory back. Running ones come back to it when they
// have ended. It reports whether the budget ended before the actions.
func (x *execution) tearDownTrajectory(id state.TrajectoryID) (more bool) {
	t := x.s.Trajectory(id)
	if t == nil || t.State != state.TrajectoryClosing {
		return false
	}
	var left []*state.Action
	x.s.VisitLive(id, func(a *state.Action) bool {
		if a.CancelReason == 0 { // else it is being stopped
			left = append(left, a)
		}
		return true
	})
	for _, a := range left {
		if x.budget <= 0 {
			return true
		}
		x.budget -= lossCost
		x.cancel(a, state.EndTrajectoryEnded)
	}
	if t = x.s.Trajectory(id); t.Live == 0 {
		x.closed(t)
	}
	return false
}

// closed ends a trajectory that has no live actions.
func (x *execution) closed(t *state.Trajectory) {
	if n := x.s.Node(t.Node); n != nil {
		m := *n
		m.FreeMemory += t.Memory
		m.Trajectories--
		x.s.PutNode(&m)
		x.memoryFreed(m.Pool)
		x.nodeFreed(&m) // actions without a trajectory may fit now
	}
	u := *t
	u.EndedAt = x.now()
	u.State = state.TrajectoryClosed
	if u.EndReason == state.EndNodeLost {
		u.State = state.TrajectoryLost
	}
	x.putTrajectory(&u)
}

// putTrajectory stores a trajectory whose state changed, with the event.
func (x *execution) putTrajectory(t *state.Trajectory) {
	x.s.AddEvent(state.Event{
		Kind: state.EventTrajectory, Subject: uint64(t.ID), State: uint8(t.State),
		Namespace: t.Namespace, Trajectory: t.ID, Node: t.Node, Reason: t.EndReason,
	})
	x.s.PutTrajectory(t)
}
