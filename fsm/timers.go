package fsm

import "rota/fsm/state"

// fireTimers does what is due by log time, as far as the budget goes. What is
// left is still due, so that the next tick goes on with it.
func (x *execution) fireTimers() {
	if x.faults.timers != "" {
		return
	}
	x.enter(stage{command: -1, timers: true})
	x.expireRestore()
	for x.budget > 0 && x.fireOne() {
		x.budget--
	}
}

func (x *execution) fireOne() bool {
	now, keep := x.now(), x.settings().RetentionNS
	if due, id, ok := x.s.Expiry(); ok && due <= now {
		x.s.DeleteRequest(id)
		return true
	}
	if at, id, ok := x.s.OldestEnded(); ok && (at+keep <= now || x.s.EndedBytes() > x.settings().RetentionBytesMax) {
		x.s.DeleteAction(id)
		return true
	}
	if id := x.s.ExcessRollout(); id != 0 {
		x.forgetGroup(id)
		return true
	}
	if due, accessor, ok := x.s.TokenDue(); ok && due <= now {
		x.s.DeleteAccessToken(accessor)
		return true
	}
	due, kind, id, ok := x.s.Timer()
	if !ok || due > now {
		return x.workerDue()
	}
	switch kind {
	case state.TimerQueue:
		a := x.s.Action(state.ActionID(id))
		x.end(a, state.ActionExpired, &state.Result{Reason: state.EndQueueTimeout})
	case state.TimerIdle:
		x.timeIsOver(x.s.Trajectory(state.TrajectoryID(id)))
	case state.TimerDropTrajectory:
		x.s.DeleteTrajectory(state.TrajectoryID(id))
		x.s.DeleteGeneration(state.TrajectoryID(id))
	case state.TimerQuota:
		x.windowEnds(state.ReturnID(id))
	case state.TimerGroup:
		x.groupDue(x.s.NodeGroup(state.GroupID(id)))
	case state.TimerTurn:
		x.turnDue(x.s.Turn(state.TurnID(id)))
	case state.TimerDropJob:
		x.forgetJob(x.s.Job(state.JobID(id)))
	case state.TimerDivide:
		x.divideDue(x.s.Node(state.NodeID(id)))
	case state.TimerMigration:
		x.migrationDue(x.s.Migration(state.MigrationID(id)))
	case state.TimerRollout:
		x.forgetGroup(state.RolloutID(id))
	case state.TimerPause:
		x.pauseEnds(x.s.Quota(state.QuotaID(id)))
	}
	return true
}

// nextDue returns the log time at which an entry has to be applied even if
// nothing is proposed: never earlier than now.
func nextDue(s *state.State) (ns int64, ok bool) {
	m := s.Meta()
	if s.HasWork() || s.EndedBytes() > m.Settings.RetentionBytesMax || s.ExcessRollout() != 0 {
		return m.Now, true
	}
	earliest := func(due int64) {
		if !ok || due < ns {
			ns, ok = due, true
		}
	}
	if due, _, found := s.Expiry(); found {
		earliest(due)
	}
	if at, _, found := s.OldestEnded(); found {
		earliest(at + m.Settings.RetentionNS)
	}
	if due, _, _, found := s.Timer(); found {
		earliest(due)
	}
	if due, _, found := s.WorkerDue(); found {
		earliest(due)
	}
	if due, _, found := s.TokenDue(); found {
		earliest(due)
	}
	if due, found := s.RestoreDue(); found {
		earliest(due)
	}
	if due, _, found := s.RewardDue(); found {
		earliest(due)
	}
	return max(ns, m.Now), ok
}
