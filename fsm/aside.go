package fsm

import (
	"rota/fsm/state"
	"rota/sched"
)

// What nothing in office could ever serve waits aside: actions in the room beside their
// queue, pending trajectories behind all others. They keep their age, so they come back
// to where they were, as soon as a node or a limit that could serve them appears.

// recallBatch is how many in a room are looked at together.
const recallBatch = 64

// setAside has an action wait in the room beside its queue. Its units of quotas go back at once, since
// others wait for them, and it acquires them again when it is recalled. An action of a paused trajectory
// keeps its units. It is so from feature level 3 on.
func (x *execution) setAside(a *state.Action) {
	b := *x.unreserve(a)
	if x.s.Meta().Level >= state.LevelResizing && !x.held(b.Trajectory) {
		x.giveBack(&b)
	}
	b.Aside, b.Bypassed, b.BlockedAt = true, 0, 0
	x.s.PutAction(&b)
	x.mayHoldMore(b.Namespace)
}

func (x *execution) setTrajectoryAside(t *state.Trajectory) {
	u := *t
	u.Aside = true
	x.s.PutTrajectory(&u)
}

// usableChanged looks after those who wait in the pool of a node which has begun or
// ceased to take new work. They are called back if there is a new shape of nodes, and
// have to go aside if there was no other.
func (x *execution) usableChanged(n *state.Node) {
	x.gangsRecalled(n)
	alike := x.s.UsableAlike(n)
	if n.Usable() && alike == 1 {
		x.recall(state.QueueOf(state.TrajectoriesAside, n.Pool))
		for _, q := range x.queuesOf(n) {
			x.recall(q.Aside())
		}
		x.recallUnits()
	}
	if !n.Usable() && alike == 0 {
		for _, q := range x.queuesOf(n) {
			x.dirty.add(q)
		}
	}
}

// judgeQuotas has those looked at who are first in line for units of quotas: no node may be able to
// serve them any more. It is so from feature level 3 on.
func (x *execution) judgeQuotas() {
	if x.s.Meta().Level >= state.LevelResizing {
		x.wakeQuotas()
	}
}

// containersChanged looks after the trajectories that wait in the pool of a node which has begun or
// ceased to run containers.
func (x *execution) containersChanged(n *state.Node) {
	x.usableChanged(n)
	x.dirty.add(state.QueueOf(state.PoolQueue, n.Pool)) // the first in line may have to go aside, or may go there
}

// gangsRecalled has the gangs looked at of the pool of a node which has begun or ceased to take new
// work: each node counts for them.
func (x *execution) gangsRecalled(n *state.Node) {
	if n.Usable() {
		x.recall(state.QueueOf(state.GangQueue, n.Pool).Aside())
	} else {
		x.wakeGangs(n.Pool)
	}
}

// queuesOf returns the queues of actions that a node serves and that are not its own.
func (x *execution) queuesOf(n *state.Node) []state.Queue {
	queues := []state.Queue{state.QueueOf(state.PoolQueue, n.Pool), state.QueueOf(state.PoolCorelessQueue, n.Pool)}
	if q := n.GPUQueue(); q != (state.Queue{}) {
		queues = append(queues, q)
	}
	return queues
}

// recallQuotas has all actions looked at that wait beside the queue of a quota.
func (x *execution) recallQuotas() {
	x.s.Quotas(func(q *state.Quota) bool {
		x.recall(state.QueueOf(state.QuotaQueue, q.ID).Aside())
		return true
	})
}

// recallUnits has actions looked at that gave back their units of quotas because no node, or another
// quota, could serve them.
func (x *execution) recallUnits() {
	if x.s.Meta().Level >= state.LevelResizing {
		x.recallQuotas()
	}
}

// recall has all of a room looked at, from the oldest on.
func (x *execution) recall(room state.Queue) {
	trajectories := room.Kind == state.TrajectoriesAside
	if trajectories && x.s.AsideTrajectory(state.PoolID(room.ID), 0) == nil || !trajectories && x.s.QueueLen(room) == 0 {
		return
	}
	x.s.PutWorkAfter(room, 0)
	x.dirty.addFirst(room) // they are older than most who wait in line
}

// lookAside calls back those in a room who could be served now. It reports whether the
// budget ended before the room.
func (x *execution) lookAside(room state.Queue) (more bool) {
	after := x.s.WorkAfter(room)
	defer func() {
		if more {
			x.s.PutWorkAfter(room, after)
		}
	}()
	for x.budget > 0 {
		back, last, steps := sched.Recalled(x.s, room, state.ActionID(after), recallBatch)
		x.budget -= max(1, steps)
		for _, a := range back {
			b := *a
			b.Aside = false
			x.s.PutAction(&b)
			x.dirty.add(b.Queue())
		}
		if last == 0 {
			return false
		}
		after = uint64(last)
	}
	return true
}

// recallTrajectories calls back those trajectories of a pool that a usable node could
// hold now.
func (x *execution) recallTrajectories(pool state.PoolID) (more bool) {
	room := state.QueueOf(state.TrajectoriesAside, pool)
	after := x.s.WorkAfter(room)
	for x.budget > 0 {
		t := x.s.AsideTrajectory(pool, state.TrajectoryID(after)+1)
		if t == nil {
			return false
		}
		ok, steps := sched.CouldLive(x.s, t)
		if x.budget -= 1 + steps; ok {
			x.callBack(t)
		}
		after = uint64(t.ID)
	}
	x.s.PutWorkAfter(room, after)
	return true
}

// callBack lets a trajectory wait among the others again.
func (x *execution) callBack(t *state.Trajectory) {
	u := *t
	u.Aside = false
	x.s.PutTrajectory(&u)
	x.dirty.add(state.QueueOf(state.PoolQueue, t.Pool))
}
