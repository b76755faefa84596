package fsm

import (
	"rota/fsm/state"
	"rota/sched"
	"rota/sched/place"
)

// The transitions of actions and attempts. Every verb and every timer that moves
// an action goes through these, so that cores, memory, counters and events stay
// in step.

// grant starts an attempt of a queued action on cores, and GPUs if it needs some,
// of a node.
func (x *execution) grant(d sched.Decision) {
	for _, r := range d.Resize {
		x.resize(d.Node.ID, r)
	}
	a, cores := x.unreserve(d.Start), d.Cores
	n := x.s.Node(d.Node.ID)
	state.Assert(cores.Minus(n.Free) == state.CoreSet{} && cores.Len() >= int(a.CoresMin) && (a.CoresMin > 0 || cores == state.CoreSet{}),
		"cores of node %s granted to action %d are not free", n.Name, a.ID)
	reserved := place.Reserves(a)
	state.Assert(reserved <= n.FreeMemory, "memory of node %s granted to action %d is not free", n.Name, a.ID)
	state.Assert(a.Bandwidth() <= n.FreeBandwidth, "bandwidth of node %s granted to action %d is not free", n.Name, a.ID)
	state.Assert((d.GPUs != nil) == (a.GPUs() != nil), "action %d is granted GPUs: %v", a.ID, d.GPUs != nil)

	m := *n
	m.Free = n.Free.Minus(cores)
	m.FreeMemory -= reserved
	m.FreeBandwidth -= a.Bandwidth()
	m.Running++
	t := &state.Attempt{
		Node: n.ID, Action: a.ID, Number: a.Attempt + 1, Incarnation: n.Incarnation,
		Cores: cores, Reserved: reserved, Limit: x.memoryLimit(a), StartedAt: x.now(), Bandwidth: a.Bandwidth(),
	}
	if n.Follows(a) {
		t.Least, t.Anchor = a.CoresMin, cores.First(1).Slice()[0]
		m.Spare += t.Spare()
	}
	if g := d.GPUs; g != nil {
		x.takeGPUs(&m, a, g)
		t.Chunk, t.SetUpNS = g.Chunk, g.SetUpNS
	}
	t.ChargedUS = x.chargeAttempt(a, t.Chunk.Units)
	x.s.PutNode(&m)

	b := *a
	b.State = state.ActionRunning
	b.Attempt++
	b.Node = n.ID
	b.StartedAt = x.now()
	x.putAction(&b)
	x.s.PutAttempt(t)
	x.dirtyNodes.add(n.ID)
	x.replicaStarted(b.ID)
	x.divides(&m, cores)
}

// memoryLimit is what the processes of an action may use: what it asked for,
// else what its trajectory has.
func (x *execution) memoryLimit(a *state.Action) uint64 {
	if a.Memory == 0 && a.Trajectory != 0 {
		return x.s.Trajectory(a.Trajectory).Memory
	}
	return a.Memory
}

// release takes back what an attempt holds.
func (x *execution) release(t *state.Attempt) {
	n := *x.s.Node(t.Node)
	state.Assert(n.Free.Intersect(t.Cores) == state.CoreSet{}, "cores of action %d on node %s are free already", t.Action, n.Name)
	n.Free = n.Free.Union(t.Cores)
	n.Spare -= t.Spare()
	n.FreeMemory += t.Reserved
	n.FreeBandwidth += t.Bandwidth
	n.Running--
	if t.Ice == state.IceThawing {
		n.Thawing--
	}
	shared := x.sharesNoMore(&n, t)
	x.releaseGPUs(&n, t)
	x.s.PutNode(&n)
	x.countAttempt(t)
	x.settleAttempt(t)
	x.s.DeleteAttempt(t.Action)
	x.dirtyNodes.add(n.ID)
	x.nodeFreed(&n)
	x.divides(&n, t.Cores.Union(shared))
	x.membersFreed(&n, t.Chunk)
	x.coresFreed(&n)
	if t.Reserved > 0 {
		x.memoryFreed(n.Pool)
	}
}

// memoryFreed looks at the trajectories and the actions without cores that wait
// for memory.
func (x *execution) memoryFreed(pool state.PoolID) {
	x.wakeCoreless(pool)
	if x.s.PendingTrajectory(pool, 0) != nil {
		x.dirty.add(state.QueueOf(state.PoolQueue, pool))
	}
}

// stop tells the node to end a running attempt.
func (x *execution) stop(a *state.Action, reason state.EndReason) {
	b := *a
	b.CancelReason = reason
	x.s.PutAction(&b)
	t := *x.s.Attempt(a.Node, a.ID)
	x.thawsNoMore(&t) // it needs no cores to end
	t.Stop = true
	x.s.PutAttempt(&t)
	x.dirtyNodes.add(a.Node)
}

// end gives an action its final state. Its attempt, if it had one, must have
// been released.
func (x *execution) end(a *state.Action, s state.ActionState, r *state.Result) {
	b := *x.unreserve(a)
	if b.State == state.ActionQueued {
		x.movesUp(b.Queue())
		x.mayHoldMore(b.Namespace)
		if a.Bypassed > 0 { // it may have held up one that a node is reserved for
			x.dirty.add(b.Queue())
		}
	}
	x.giveBack(&b)
	b.State, b.Result, b.EndedAt = s, r, x.now()
	x.putAction(&b)
	x.countEnded(&b)
	x.hookEnded(&b)
	x.replicaEnded(&b)
	x.gangMemberEnded(&b)
	if b.Trajectory == 0 {
		return
	}
	t := *x.s.Trajectory(b.Trajectory)
	if t.Live--; t.Live == 0 {
		t.IdleSince = x.idleSince(&t)
		x.gapChanged(t.ID)
	}
	x.s.PutTrajectory(&t)
	if t.Live == 0 && t.State == state.TrajectoryClosing {
		x.dirty.add(state.QueueOf(state.TrajectoryTeardown, t.ID))
	}
	if t.State == state.TrajectoryPending {
		x.requestsLess(&t)
	}
}

// requestsLess corrects what a pending trajectory asks for when one of its actions has
// ended, and looks at it again if it was set aside for that.
func (x *execution) requestsLess(t *state.Trajectory) {
	cores, bandwidth := x.s.Requested(t.ID)
	if cores == t.RequestedCores && bandwidth == t.RequestedBandwidth {
		return
	}
	less := *t
	waitsNoMore(&less)
	less.RequestedCores, less.RequestedBandwidth = cores, bandwidth
	x.s.PutTrajectory(&less)
	x.dirty.add(state.QueueOf(state.PoolQueue, t.Pool))
}

// lost settles an action whose attempt was lost: another attempt if its policy
// and its trajectory allow, else the end.
func (x *execution) lost(a *state.Action, r *state.Result) {
	ending := a.Trajectory != 0 && x.s.Trajectory(a.Trajectory).State != state.TrajectoryOpen
	switch {
	case a.CancelReason != 0:
		r.Reason = a.CancelReason
		x.end(a, state.ActionCanceled, r)
	case a.Attempt < a.AttemptsMax && !ending:
		b := *a
		x.giveBack(&b)
		b.State, b.Bypassed, b.BlockedAt = state.ActionQueued, 0, 0
		b.Aside = x.held(b.Trajectory)
		if b.QueueDeadline != 0 { // the time that it ran was not spent in the queue
			b.QueueDeadline += x.now() - b.StartedAt
		}
		x.putAction(&b)
		x.dirty.add(b.Queue())
	default:
		x.end(a, state.ActionLost, r)
	}
}

// putAction stores an action whose state changed, with the event that says so.
func (x *execution) putAction(a *state.Action) {
	e := state.Event{
		Kind: state.EventAction, Subject: uint64(a.ID), State: uint8(a.State), Namespace: a.Namespace,
		Trajectory: a.Trajectory, Node: a.Node, Attempt: a.Attempt,
	}
	if a.Result != nil {
		e.Reason, e.ExitCode = a.Result.Reason, a.Result.ExitCode
	}
	a.Revision = x.s.AddEvent(e)
	x.s.PutAction(a)
}
