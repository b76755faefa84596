package fsm

import (
	"slices"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
	"rota/sched"
)

// A paused trajectory: what it runs is frozen by its node and holds no cores, what it has queued
// waits aside (docs/sandboxes.md, "Pause and resume").

// pauseTrajectory pauses a trajectory, or resumes it.
func (x *execution) pauseTrajectory(c *logv1.PauseTrajectory) *logv1.Result {
	t := x.s.Trajectory(state.TrajectoryID(c.Id))
	switch {
	case t == nil:
		return refuse(codeNotFound, "TRAJECTORY_NOT_FOUND", "trajectory %d does not exist, or ended too long ago to be kept", c.Id)
	case t.State >= state.TrajectoryClosing:
		return refuse(codeFailedPrecondition, "TRAJECTORY_ENDED", "trajectory %d has ended", c.Id)
	case t.Paused() != c.Resume: // it is so already
		return &logv1.Result{FirstId: c.Id}
	case c.Resume:
		x.resume(t)
	default:
		if r := x.mayFreeze(t); r != nil {
			return r
		}
		x.pause(t)
	}
	return &logv1.Result{FirstId: c.Id, Count: 1}
}

// mayFreeze refuses a pause that would keep what others need, or that the node cannot carry out.
func (x *execution) mayFreeze(t *state.Trajectory) (r *logv1.Result) {
	x.s.VisitLive(t.ID, func(a *state.Action) bool {
		switch n := x.s.Node(a.Node); {
		case a.State != state.ActionRunning || a.CancelReason != 0:
		case a.GPUs() != nil:
			r = refuse(codeFailedPrecondition, "PAUSE_HOLDS_GPUS", "action %d of trajectory %d holds GPUs, whose memory cannot be given to others: wait for its end, or cancel it", a.ID, t.ID)
		case !n.Resizes:
			r = refuse(codeFailedPrecondition, "NODE_CANNOT_FREEZE", "action %d of trajectory %d runs on node %s, which cannot freeze it: that takes cgroups with the cpuset controller; wait for its end, or cancel it", a.ID, t.ID, n.Name)
		}
		return r == nil
	})
	return r
}

// pause has the node of a trajectory freeze what runs, and puts aside what waits.
func (x *execution) pause(t *state.Trajectory) {
	u := *t
	u.Pauses++
	u.PausedAt = max(1, x.now())
	x.s.PutTrajectory(&u)
	for _, a := range x.s.LiveActions(t.ID) {
		x.budget--
		switch {
		case a.State == state.ActionQueued:
			if q := a.Queue(); q != (state.Queue{}) && !a.Aside {
				x.dirty.add(q)
			}
			x.setAside(a)
		case a.CancelReason == 0:
			at := *x.s.Attempt(a.Node, a.ID)
			if at.Ice < state.IceThawing {
				x.spares(&at, state.IceWanted)
			}
			x.thawsNoMore(&at)
			at.Pause = u.Pauses
			x.s.PutAttempt(&at)
			x.dirtyNodes.add(a.Node)
		}
	}
}

// timeIsOver closes a trajectory, or pauses it if that is what its client asked for and possible.
func (x *execution) timeIsOver(t *state.Trajectory) {
	if !t.PausesAtDeadline() || x.mayFreeze(t) != nil {
		x.beginClose(t, state.EndTrajectoryEnded)
		return
	}
	x.pause(t)
	u := *x.s.Trajectory(t.ID)
	u.Deadline = u.PausedAt + u.PauseNS // a paused one's time stands still
	x.s.PutTrajectory(&u)
}

// spares has an attempt frozen to a degree by which it has as many cores as before, but others to
// spare, and may get more or not. The caller stores it.
func (x *execution) spares(at *state.Attempt, ice state.Ice) {
	n := *x.s.Node(at.Node)
	n.Spare -= at.Spare()
	at.Ice = ice
	n.Spare += at.Spare()
	x.s.PutNode(&n)
	x.nodeFreed(&n)
	x.divides(&n, at.Cores)
	x.coresFreed(&n)
}

// resume has a trajectory go on. Its times stood still while it was paused.
func (x *execution) resume(t *state.Trajectory) {
	u := *t
	if u.Deadline != 0 {
		u.Deadline += max(0, x.now()-u.PausedAt)
	}
	u.IdleSince, u.PausedAt = x.idleSince(&u), 0
	x.s.PutTrajectory(&u)
	for _, a := range x.s.LiveActions(t.ID) {
		x.budget--
		if a.State == state.ActionQueued {
			b := *a
			b.Aside = false
			x.s.PutAction(&b)
			if q := b.Queue(); q != (state.Queue{}) {
				x.dirty.add(q)
			}
			continue
		}
		at := *x.s.Attempt(a.Node, a.ID)
		switch {
		case at.Ice == state.IceNone || at.Stop:
			continue
		case at.Ice == state.IceFrozen && at.Width > 0:
			at.Ice = state.IceLimited
			x.mayGoOn.add(t.Namespace)
		default:
			x.spares(&at, state.IceNone)
		}
		x.s.PutAttempt(&at)
		x.dirtyNodes.add(a.Node)
	}
}

// reportFrozen takes back the cores of attempts that are frozen. A report of an attempt that was
// given up, or of a pause that is over, is a no-op.
func (x *execution) reportFrozen(c *logv1.ReportFrozen) *logv1.Result {
	n := x.s.NodeByName(c.Node)
	if n == nil {
		return refuse(codeNotFound, "NODE_NOT_FOUND", "node %q is not registered; register it again", c.Node)
	}
	count := uint32(0)
	for _, r := range c.Attempts {
		x.budget--
		old := x.s.Attempt(n.ID, state.ActionID(r.ActionId))
		if old == nil || old.Number != r.Attempt || old.Incarnation != c.Incarnation || old.Ice != state.IceWanted || old.Pause != r.Pause {
			continue
		}
		at := *old
		at.Width = uint32(at.Cores.Len())
		if at.Least > 0 {
			at.Width = at.Least
		}
		if at.Shares {
			at.Width = 1
		}
		x.backToNode(&at)
		at.Ice = state.IceFrozen
		x.s.PutAttempt(&at)
		count++
	}
	return &logv1.Result{Count: count}
}

// backToNode gives the cores of an attempt that is frozen back to its node. The caller stores the
// attempt.
func (x *execution) backToNode(at *state.Attempt) {
	n := *x.s.Node(at.Node)
	n.Free = n.Free.Union(at.Cores)
	n.Spare -= at.Spare()
	if at.Ice == state.IceThawing {
		n.Thawing--
	}
	shared := x.sharesNoMore(&n, at)
	x.s.PutNode(&n)
	x.mayHoldMore(x.s.Action(at.Action).Namespace)
	x.dirtyNodes.add(n.ID)
	x.nodeFreed(&n)
	x.divides(&n, at.Cores.Union(shared))
	x.coresFreed(&n)
	at.CoreNS, at.ResizedAt = at.Used(x.now()), x.now()
	at.Cores, at.Shares = state.CoreSet{}, false
}

// held reports whether new work of a trajectory waits until it is resumed.
func (x *execution) held(id state.TrajectoryID) bool {
	t := x.s.Trajectory(id)
	return t != nil && t.Paused()
}

// coresFreed notes that cores of a node are free that resumed attempts may wait for.
func (x *execution) coresFreed(n *state.Node) {
	if n.Thawing > 0 {
		x.thaws.add(n.ID)
	}
}

// thawsNoMore has an attempt stay frozen that was to go on. The caller stores it.
func (x *execution) thawsNoMore(at *state.Attempt) {
	switch at.Ice {
	case state.IceThawing:
		x.backToNode(at)
	case state.IceLimited:
		x.mayHoldMore(x.s.Action(at.Action).Namespace) // others come before it no more
	default:
		return
	}
	at.Ice = state.IceFrozen
}

// letGoOn has resumed attempts collect cores as far as the limit of their namespace goes, the oldest
// first. Those behind one that has to wait wait with it, and so do queued actions: else they could
// keep it from its cores for ever.
func (x *execution) letGoOn(ns state.NamespaceID) {
	for a := x.s.FirstLimited(ns); a != nil; a = x.s.FirstLimited(ns) {
		if x.budget <= 0 {
			x.mayGoOn.add(ns) // the others go on in a later entry
			return
		}
		x.budget--
		t, n := *x.s.Attempt(a.Node, a.ID), *x.s.Node(a.Node)
		if !sched.MayThaw(x.s, a, &t) {
			return
		}
		t.Ice = state.IceThawing
		n.Thawing++
		x.s.PutNode(&n)
		x.s.PutAttempt(&t)
		x.thaws.add(n.ID)
	}
}

// thaw gives free cores to attempts that were resumed and wait for theirs, before anything else
// gets them, as they become free: first who has some already, then the oldest action. So as long as
// one waits, no core of its node is free or to spare, and each gets its turn.
func (x *execution) thaw() {
	for {
		for x.budget > 0 {
			ns, ok := x.mayGoOn.pop()
			if !ok {
				break
			}
			x.letGoOn(ns)
			x.keepToLimit(ns)
		}
		id, ok := x.thaws.pop()
		if !ok {
			return
		}
		if n := x.s.Node(id); n != nil && n.State == state.NodeUp && n.Thawing > 0 && x.s.Pool(n.Pool).Halted == "" {
			x.enter(stage{command: -1, pool: n.Pool})
			x.thawOn(n)
		}
	}
}

func (x *execution) thawOn(n *state.Node) {
	var waiting []*state.Attempt
	x.s.Attempts(n.ID, func(t *state.Attempt) bool {
		x.budget--
		if t.Ice == state.IceThawing {
			waiting = append(waiting, t)
		}
		return true
	})
	// Only one at a time has a part of what it lacks, or two could wait for each other.
	slices.SortStableFunc(waiting, func(a, b *state.Attempt) int { return min(1, b.Cores.Len()) - min(1, a.Cores.Len()) })
	for _, t := range waiting {
		take := sched.Thaw(x.s, x.s.Node(n.ID), t)
		x.budget -= take.Examined
		for _, r := range take.Resizes {
			x.resize(n.ID, r)
		}
		if take.Cores == (state.CoreSet{}) {
			return // it comes before the others
		}
		x.takeBack(t, take.Cores)
	}
}

// takeBack gives cores to an attempt that waits to go on. It goes on when it has enough.
func (x *execution) takeBack(old *state.Attempt, cores state.CoreSet) {
	t, n := *old, *x.s.Node(old.Node)
	state.Assert(cores.Minus(n.Free) == state.CoreSet{}, "cores of node %s that action %d is to go on with are not free", n.Name, t.Action)
	n.Free = n.Free.Minus(cores)
	t.CoreNS, t.ResizedAt = t.Used(x.now()), x.now()
	t.Cores = t.Cores.Union(cores)
	if t.Cores.Len() >= int(t.Width) {
		t.Ice, t.Width = state.IceNone, 0
		if t.Least > 0 {
			t.Anchor = t.Cores.First(1).Slice()[0]
		}
		n.Thawing--
		n.Spare += t.Spare()
	}
	x.s.PutNode(&n)
	x.s.PutAttempt(&t)
	x.dirtyNodes.add(n.ID)
	x.divides(&n, cores)
}
