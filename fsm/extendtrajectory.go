package fsm

import (
	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// trajectoryTimeoutMax bounds how far ahead the end of a trajectory is set, so that log time can
// be added to it: 146 years.
const trajectoryTimeoutMax = int64(1) << 62

// extendTrajectory sets when a trajectory closes by itself.
func (x *execution) extendTrajectory(c *logv1.ExtendTrajectory) *logv1.Result {
	if r := checkTrajectoryTimeout(c.TimeoutNs); r != nil {
		return r
	}
	old := x.s.Trajectory(state.TrajectoryID(c.Id))
	switch {
	case old == nil:
		return refuse(codeNotFound, "TRAJECTORY_NOT_FOUND", "trajectory %d does not exist, or ended too long ago to be kept", c.Id)
	case old.State >= state.TrajectoryClosing:
		return refuse(codeFailedPrecondition, "TRAJECTORY_ENDED", "trajectory %d has ended", c.Id)
	}
	deadline := x.deadlineIn(c.TimeoutNs)
	if old.Paused() && deadline != 0 { // its time stands still
		deadline -= max(0, x.now()-old.PausedAt)
	}
	if c.OnlyLater && (old.Deadline == 0 || deadline != 0 && deadline < old.Deadline) {
		return &logv1.Result{FirstId: c.Id}
	}
	t := *old
	t.Deadline = deadline
	x.s.PutTrajectory(&t)
	return &logv1.Result{FirstId: c.Id, Count: 1}
}

func checkTrajectoryTimeout(ns int64) *logv1.Result {
	if ns < 0 || ns > trajectoryTimeoutMax {
		return refuse(codeInvalidArgument, "INVALID", "the timeout of a trajectory must not be negative, and at most %d ns", trajectoryTimeoutMax)
	}
	return nil
}

// checkTrajectoryEnd refuses wrong times after which a trajectory is to close or be paused.
func checkTrajectoryEnd(c *logv1.OpenTrajectory) *logv1.Result {
	if c.PauseAtTimeout && c.TimeoutNs == 0 {
		return refuse(codeInvalidArgument, "INVALID", "pause_at_timeout requires a timeout")
	}
	return checkTrajectoryTimeout(c.TimeoutNs)
}

// pauseAfter returns how long a trajectory goes on until it is paused; 0: it is not.
func pauseAfter(c *logv1.OpenTrajectory) int64 {
	if c.PauseAtTimeout {
		return c.TimeoutNs
	}
	return 0
}

// deadlineIn returns the log time after a timeout; 0 without one.
func (x *execution) deadlineIn(timeoutNS int64) int64 {
	if timeoutNS == 0 {
		return 0
	}
	return x.now() + timeoutNS
}
