package fsm

import (
	"slices"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
	"rota/sched"
)

// LevelStreams is the feature level from which on every server hands standard input and terminals
// of actions on to agents. The log does not tell: they are in the description of an action.
const LevelStreams = sched.LevelResizing

// levelUnsaid is the level of a cluster whose bootstrap names none.
const levelUnsaid state.Level = 2

// raiseLevel is the barrier after which there may be the verbs, fields and rows of a
// feature level, and its scheduler decides. The leader proposes it only when all servers
// know the level; a replica that does not know it all the same stops.
func (x *execution) raiseLevel(c *logv1.RaiseLevel) *logv1.Result {
	m, level := *x.s.Meta(), state.Level(c.Level)
	if level <= m.Level {
		return refuse(codeFailedPrecondition, "LEVEL_ACTIVE", "feature level %d is active; it can only grow", m.Level)
	}
	x.deciders.mustKnow(level, c.Release)
	m.Level, m.Release = level, c.Release
	x.s.SetMeta(m)
	return &logv1.Result{Count: 1}
}

// since returns the feature level that a command came with: its verb, or the newest of
// the fields that it sets.
func since(c *logv1.Command) state.Level {
	switch {
	case isNext(c):
		return state.LevelMax
	case slices.ContainsFunc(c.GetSubmitActions().GetActions(), sinceResizing),
		slices.ContainsFunc(c.GetReportAttempts().GetReports(), reportsResizing),
		c.GetCreateQuota().GetAdaptive(), c.GetUpdateQuota() != nil && c.GetUpdateQuota().Adaptive != nil,
		c.GetOpenTrajectory().GetTimeoutNs() != 0, c.GetExtendTrajectory() != nil, c.GetPauseTrajectory() != nil, c.GetReportFrozen() != nil,
		c.GetOpenTrajectory().GetObjective() > 0, len(c.GetOpenTrajectory().GetSpec()) > 0, len(c.GetOpenTrajectory().GetLabels()) > 0,
		c.GetReportGpus() != nil, c.GetDrainNode().GetGpus() != 0,
		c.GetRegisterEngine() != nil, c.GetRemoveEngine() != nil, c.GetReportEngines() != nil,
		c.GetRequestMigration() != nil, c.GetCancelMigration() != nil, c.GetReportMigrations() != nil,
		c.GetRegisterWorker() != nil, c.GetUpdateWorker() != nil, c.GetRemoveWorker() != nil, c.GetReportGenerations() != nil,
		c.GetSuspendTrajectory() != nil, c.GetMoveGenerations() != nil, c.GetPredictGenerations() != nil, c.GetChangeWorkerPool() != nil, c.GetSetAffinity() != nil, c.GetOpenTrajectory().GetGeneration() != nil,
		c.GetOpenTrajectory().GetContainer(), c.GetOpenTrajectory().GetPauseAtTimeout(),
		isRollouts(c), isSnapshots(c), isAccess(c), c.Token != "", c.GetStageRestore() != nil, c.GetCommitRestore() != nil, c.GetRefound() != nil,
		c.GetUpdateNamespace() != nil, len(c.GetSubmitJob().GetLabels()) > 0, slices.ContainsFunc(c.GetSubmitJob().GetHooks(), hooksResizing),
		c.GetRegisterReward() != nil, c.GetRemoveReward() != nil, c.GetReportRewards() != nil,
		c.GetSetGroupMembers() != nil, len(c.GetCreateNodeGroup().GetMembers()) > 0, c.GetCreateNodeGroup().GetSelector() != nil:
		return sched.LevelResizing
	}
	return state.LevelMin
}

// sinceResizing: the action has a field of that feature level.
func sinceResizing(a *logv1.Action) bool {
	return a.Fixed || a.SizeHint > 0 || a.GangSize > 0 || a.GangSpread || len(a.Labels) > 0
}

// hooksResizing: an action of the hooks has such a field.
func hooksResizing(h *logv1.DeploymentHooks) bool {
	return slices.ContainsFunc([]*logv1.Action{h.Sleep, h.Wake, h.Prefetch}, func(a *logv1.Action) bool { return a != nil && sinceResizing(a) })
}

// reportsResizing: the report has a field of that feature level.
func reportsResizing(r *logv1.AttemptReport) bool { return r.Throttled || len(r.Usage) > 0 }

// Suit leaves out of reports what the active level does not know: an agent may be newer than
// the level, and what else it reports must not wait for an operator.
func Suit(c *logv1.ReportAttempts, active state.Level) {
	if active >= sched.LevelResizing {
		return
	}
	for _, r := range c.GetReports() {
		r.Throttled, r.RetryNs, r.Usage = false, 0, nil
	}
}

// Premature refuses a command of a feature level that is not active yet; nil if it may be
// proposed. Servers ask before they propose: a server that does not know the command
// would have to stop.
func Premature(c *logv1.Command, active func() state.Level) *logv1.Result {
	needs := since(c)
	if needs == state.LevelMin || needs <= active() {
		return nil
	}
	return NotActive(needs, active())
}

// NotActive refuses what needs a feature level that is not active.
func NotActive(needs, active state.Level) *logv1.Result {
	return refuse(codeFailedPrecondition, "LEVEL_NOT_ACTIVE",
		"this needs feature level %d, and level %d is active: upgrade every server, then run: rota operator upgrade activate", needs, active)
}
