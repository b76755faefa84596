package model

import (
	"math"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

func badTimeout(ns int64) bool { return ns < 0 || ns > 1<<62 }

// in is the log time after a timeout that is not 0.
func (m *Model) in(ns int64) int64 {
	if ns != 0 {
		ns += m.now
	}
	return ns
}

func (m *Model) extend(c *logv1.ExtendTrajectory, got *logv1.Result) error {
	t := m.trajectories[state.TrajectoryID(c.Id)]
	switch {
	case m.level < levelResizing:
		return refused(got, "LEVEL_NOT_ACTIVE")
	case badTimeout(c.TimeoutNs):
		return refused(got, "INVALID")
	case t == nil:
		return refused(got, "TRAJECTORY_NOT_FOUND")
	case t.State >= state.TrajectoryClosing:
		return refused(got, "TRAJECTORY_ENDED")
	}
	at := m.in(c.TimeoutNs)
	if t.Paused() && at != 0 { // its time stands still
		at -= max(0, m.now-t.PausedAt)
	}
	never, earlier := t.Deadline == 0, at != 0 && at < t.Deadline
	if c.OnlyLater && (never || earlier) {
		return result(got, &logv1.Result{FirstId: c.Id})
	}
	t.Deadline = at
	m.watchDeadline(t)
	m.touchTrajectory(t)
	return result(got, &logv1.Result{FirstId: c.Id, Count: 1})
}

func (m *Model) watchDeadline(t *trajectory) {
	if t.Deadline != 0 {
		m.due.push(deadline{at: t.Deadline, id: uint64(t.ID), kind: closeIdle})
	}
}

// idleUntil is when its idle time ends: never, if that is beyond all times.
func (t *trajectory) idleUntil() int64 {
	if t.IdleTimeoutNS > math.MaxInt64-t.IdleSince {
		return math.MaxInt64
	}
	return t.IdleSince + t.IdleTimeoutNS
}

// closesAt is the earlier of its deadline and the end of its idle time; 0: neither.
func (t *trajectory) closesAt() int64 {
	if t.Paused() {
		return 0
	}
	at := t.Deadline
	if t.IdleTimeoutNS > 0 && len(t.live) == 0 {
		if idle := t.idleUntil(); at == 0 || idle < at {
			at = idle
		}
	}
	return at
}
