package fsm

import "rota/fsm/state"

// Decision names what an entry is about to do, so that a test can make it panic.
type Decision struct {
	// Command is the number of a command of the entry, -1 if it is none.
	Command int
	// Pool is the pool whose queues are scheduled, 0 if none is.
	Pool state.PoolID
	// Quota is the quota that is granted from, 0 if none is.
	Quota state.QuotaID
	// Group is the node group that is granted, 0 if none is.
	Group state.GroupID
	// Migration is the migration that is started or ended by the rules of transfers, 0 if none is.
	Migration state.MigrationID
	// Policy is the policy whose trajectories are given workers, empty if none is.
	Policy string
	// Placement: queued jobs are placed.
	Placement bool
	// Timers: what is due by log time is done.
	Timers bool
}

// PlantPanics has fn called before every decision of the entries that follow.
// Should fn panic, it is as if the decision had. For tests only: it has to panic
// at the same decisions on every replica, or they diverge.
func (m *Machine) PlantPanics(fn func(Decision)) {
	m.fail = func(s stage) {
		fn(Decision{Command: s.command, Pool: s.pool, Quota: s.quota, Group: s.group, Migration: s.migration, Policy: s.policy, Placement: s.placement, Timers: s.timers})
	}
}
