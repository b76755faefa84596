package fsm

import (
	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
	"rota/sched/transmit"
)

// Bounds of migrations, in nanoseconds but for the number of reports of one command.
const (
	migrationQueueDefault = 10 * 60 * 1_000_000_000
	migrationRunDefault   = 5 * 60 * 1_000_000_000
	migrationTimeoutMax   = 24 * 3600 * 1_000_000_000
	migrationReportsMax   = 256
)

// otherVerb carries out a command about migrations, restoring or shares of namespaces, or of the next feature level; nil if it is
// none of these.
func (x *execution) otherVerb(c *logv1.Command) *logv1.Result {
	switch v := c.Verb.(type) {
	case *logv1.Command_RequestMigration:
		return x.requestMigration(v.RequestMigration)
	case *logv1.Command_CancelMigration:
		return x.cancelMigration(v.CancelMigration)
	case *logv1.Command_ReportMigrations:
		return x.reportMigrations(v.ReportMigrations)
	case *logv1.Command_StageRestore:
		return x.stageRestore(v.StageRestore)
	case *logv1.Command_CommitRestore:
		return x.commitRestore(v.CommitRestore)
	case *logv1.Command_Refound:
		return x.recover(v.Refound)
	case *logv1.Command_UpdateNamespace:
		return x.updateNamespace(v.UpdateNamespace)
	case *logv1.Command_ExtendTrajectory:
		return x.extendTrajectory(v.ExtendTrajectory)
	case *logv1.Command_PauseTrajectory:
		return x.pauseTrajectory(v.PauseTrajectory)
	case *logv1.Command_ReportFrozen:
		return x.reportFrozen(v.ReportFrozen)
	}
	if r := x.rolloutVerb(c); r != nil {
		return r
	}
	if r := x.workerVerb(c); r != nil {
		return r
	}
	if r := x.accessVerb(c); r != nil {
		return r
	}
	if r := x.rewardVerb(c); r != nil {
		return r
	}
	if r := x.snapshotVerb(c); r != nil {
		return r
	}
	return x.nextVerb(c)
}

// requestMigration queues a migration.
func (x *execution) requestMigration(c *logv1.RequestMigration) *logv1.Result {
	if r := x.replay(c.Request, x.named(c.Namespace), state.VerbRequestMigration, 1); r != nil {
		return r
	}
	row, r := x.newMigration(c)
	if r != nil {
		return r
	}
	x.queueMigration(row)
	x.remember(c.Request, x.named(c.Namespace), state.VerbRequestMigration, uint64(row.ID), 1)
	return &logv1.Result{FirstId: uint64(row.ID), Count: 1}
}

// queueMigration numbers a migration and has it considered at the end of the entry.
func (x *execution) queueMigration(row *state.Migration) {
	m := *x.s.Meta()
	m.LastMigration++
	x.s.SetMeta(m)
	row.ID = m.LastMigration
	x.s.PutMigration(row)
	x.migrations.considered.add(row.ID)
}

// newMigration makes a row of a request, or says why it cannot be accepted.
func (x *execution) newMigration(c *logv1.RequestMigration) (*state.Migration, *logv1.Result) {
	ns, r := x.namespace(c.Namespace)
	if r != nil {
		return nil, r
	}
	row := &state.Migration{
		Namespace: ns.ID, Trajectory: state.TrajectoryID(c.TrajectoryId), State: state.MigrationQueued, Selector: c.Selector,
		Length: c.Length, QueueTimeoutNS: c.QueueTimeoutNs, RunTimeoutNS: c.RunTimeoutNs, RequestedAt: x.now(),
	}
	switch {
	case len(c.Selector) == 0 || len(c.Selector) > state.SelectorBytesMax:
		return nil, refuse(codeInvalidArgument, "INVALID", "the selector has %d bytes encoded; it must have 1 to %d", len(c.Selector), state.SelectorBytesMax)
	case c.QueueTimeoutNs < 0 || c.QueueTimeoutNs > migrationTimeoutMax || c.RunTimeoutNs < 0 || c.RunTimeoutNs > migrationTimeoutMax:
		return nil, refuse(codeInvalidArgument, "INVALID", "queue_timeout and run_timeout must not be negative nor longer than 24 hours")
	case c.Source == c.Target:
		return nil, refuse(codeInvalidArgument, "INVALID", "source and target are both node %q; name two nodes", c.Source)
	}
	if row.QueueTimeoutNS == 0 {
		row.QueueTimeoutNS = migrationQueueDefault
	}
	if row.RunTimeoutNS == 0 {
		row.RunTimeoutNS = migrationRunDefault
	}
	for _, end := range []struct {
		name string
		id   *state.NodeID
	}{{c.Source, &row.Source}, {c.Target, &row.Target}} {
		if *end.id, r = x.withCache(end.name); r != nil {
			return nil, r
		}
	}
	if r := x.mayMigrate(row); r != nil {
		return nil, r
	}
	return row, nil
}

// withCache finds a node that has a cache for KV caches.
func (x *execution) withCache(name string) (state.NodeID, *logv1.Result) {
	n := x.s.NodeByName(name)
	switch {
	case n == nil:
		return 0, refuse(codeNotFound, "NODE_NOT_FOUND", "node %q is not registered; see: rota node list", name)
	case n.CacheBytes == 0:
		return 0, refuse(codeFailedPrecondition, "NO_CACHE", "node %q has no KV cache; start its agent with --kv-memory", name)
	}
	return n.ID, nil
}

// mayMigrate refuses what its trajectory does not allow, and one migration too many.
func (x *execution) mayMigrate(row *state.Migration) *logv1.Result {
	if t := x.s.Trajectory(row.Trajectory); row.Trajectory != 0 {
		switch {
		case t == nil || t.Namespace != row.Namespace:
			return refuse(codeNotFound, "TRAJECTORY_NOT_FOUND", "trajectory %d does not exist in this namespace", row.Trajectory)
		case t.State >= state.TrajectoryClosing:
			return refuse(codeFailedPrecondition, "TRAJECTORY_ENDED", "trajectory %d has ended; its KV cache is of no use any more", row.Trajectory)
		}
	}
	if n := x.s.MigrationCounts(); n.Queued+n.Running >= state.MigrationsMax || n.SelectorBytes+uint64(len(row.Selector)) > state.SelectorsBytesMax {
		return retryAfter(refuse(codeResourceExhausted, "TOO_MANY_MIGRATIONS",
			"%d migrations are queued or run, with %d bytes of selectors (limits: %d migrations, %d bytes); request more when some have ended",
			n.Queued+n.Running, n.SelectorBytes, state.MigrationsMax, state.SelectorsBytesMax), 1_000_000_000)
	}
	return nil
}

// cancelMigration ends a migration. One that has ended is left as it is.
func (x *execution) cancelMigration(c *logv1.CancelMigration) *logv1.Result {
	m := x.s.Migration(state.MigrationID(c.Id))
	switch {
	case m == nil:
		return refuse(codeNotFound, "MIGRATION_NOT_FOUND", "migration %d does not exist, or ended too long ago to be kept", c.Id)
	case m.State.Final():
		return &logv1.Result{}
	}
	x.endMigration(m, state.MigrationCanceled, state.MigrationCanceledByClient, "")
	return &logv1.Result{FirstId: c.Id, Count: 1}
}

// reportMigrations takes down how transfers to a node ended. What is reported of a migration
// that does not run there any more is a no-op.
func (x *execution) reportMigrations(c *logv1.ReportMigrations) *logv1.Result {
	if len(c.Reports) > migrationReportsMax {
		return refuse(codeInvalidArgument, "INVALID", "node %q reports %d migrations at once; at most %d are allowed", c.Node, len(c.Reports), migrationReportsMax)
	}
	for _, r := range c.Reports {
		if len(r.Message) > state.MigrationMessageBytesMax {
			return refuse(codeInvalidArgument, "INVALID", "the message of migration %d has %d bytes; at most %d are allowed", r.MigrationId, len(r.Message), state.MigrationMessageBytesMax)
		}
	}
	n := x.s.NodeByName(c.Node)
	if n == nil || n.Incarnation != c.Incarnation || n.State != state.NodeUp {
		return &logv1.Result{}
	}
	for _, r := range c.Reports {
		m := x.s.Migration(state.MigrationID(r.MigrationId))
		if m == nil || m.State != state.MigrationRunning || m.Target != n.ID || m.TargetIncarnation != c.Incarnation {
			continue
		}
		u := *m
		u.Progress = state.MigrationProgress{Values: r.Values, Total: r.TotalBytes, Moved: r.MovedBytes, Present: r.PresentBytes}
		if r.Done {
			x.endMigration(&u, state.MigrationDone, 0, "")
		} else {
			x.endMigration(&u, state.MigrationFailed, state.MigrationTransfer, r.Message)
		}
	}
	return &logv1.Result{Count: uint32(len(c.Reports))}
}

// migrationDue ends a migration that has waited or run for too long, or forgets one.
func (x *execution) migrationDue(m *state.Migration) {
	switch m.State {
	case state.MigrationQueued:
		x.endMigration(m, state.MigrationFailed, state.MigrationQueueTimeout, "")
	case state.MigrationRunning:
		x.endMigration(m, state.MigrationFailed, state.MigrationRunTimeout, "")
	default:
		x.s.DeleteMigration(m.ID)
	}
}

// endMigration gives a migration its final state. Its nodes are free then.
func (x *execution) endMigration(m *state.Migration, s state.MigrationState, why state.MigrationReason, message string) {
	u := *m
	u.State, u.Reason, u.Message, u.EndedAt, u.Selector = s, why, message, x.now(), nil
	x.s.PutMigration(&u)
	if m.State == state.MigrationRunning {
		for _, id := range []state.NodeID{m.Source, m.Target} {
			x.dirtyNodes.add(id)
			x.migrations.ends.add(id)
		}
	}
	if x.s.MigrationCounts().Ended > state.MigrationsKeptMax {
		x.s.DeleteMigration(x.s.OldestEndedMigration())
	}
}

// pendingMigrations are what the end of an entry has to look at.
type pendingMigrations struct {
	// ends are nodes that came, went, changed or are free again, gaps trajectories that have
	// begun or ceased to wait for actions, and considered migrations that may start.
	ends       orderedSet[state.NodeID]
	gaps       orderedSet[state.TrajectoryID]
	considered orderedSet[state.MigrationID]
}

// endChanged has the migrations of a node looked at, which came, went or changed.
func (x *execution) endChanged(id state.NodeID) {
	if n := x.s.MigrationCounts(); n.Queued+n.Running > 0 {
		x.migrations.ends.add(id)
	}
}

// gapChanged has the migrations of a trajectory looked at, which begins or ceases to wait for
// actions.
func (x *execution) gapChanged(id state.TrajectoryID) {
	if n := x.s.MigrationCounts(); n.Queued+n.Running > 0 {
		x.migrations.gaps.add(id)
	}
}

// transmit ends the migrations that may not go on, and then starts those that may run. It is
// the last that an entry decides, so what begins and ends within one entry does not count. Only
// the migrations of nodes and trajectories that changed are looked at: the others wait for
// what they waited for before.
func (x *execution) transmit() {
	for _, f := range x.faults.migrations {
		if m := x.s.Migration(f.migration); m != nil && !m.State.Final() {
			x.endMigration(m, state.MigrationFailed, state.MigrationInternal, f.reason)
		}
	}
	for _, id := range x.migrations.gaps.items {
		x.reviewGap(id)
	}
	for i := 0; i < len(x.migrations.ends.items); i++ { // grows, by what ends
		x.reviewEnd(x.migrations.ends.items[i])
	}
	var queued []*state.Migration
	for _, id := range x.migrations.considered.items {
		if m := x.s.Migration(id); m != nil && m.State == state.MigrationQueued {
			queued = append(queued, m)
		}
	}
	for _, m := range transmit.Order(queued) {
		x.enter(stage{command: -1, migration: m.ID})
		x.budget--
		if transmit.WaitsFor(x.s, m).Obstacle == transmit.None {
			x.startMigration(m)
		}
	}
}

// reviewGap ends the migrations of a trajectory that has ended or waits for no action, and has
// the others considered.
func (x *execution) reviewGap(id state.TrajectoryID) {
	t := x.s.Trajectory(id)
	ended := t == nil || t.State >= state.TrajectoryClosing
	var of []*state.Migration
	x.s.MigrationsOf(id, func(m *state.Migration) bool {
		of = append(of, m)
		return true
	})
	for _, m := range of {
		x.enter(stage{command: -1, migration: m.ID})
		switch running := m.State == state.MigrationRunning; {
		case ended && running:
			x.endMigration(m, state.MigrationAbandoned, state.MigrationTrajectoryEnded, "")
		case ended:
			x.endMigration(m, state.MigrationFailed, state.MigrationTrajectoryEnded, "")
		case running && !transmit.Gap(x.s, id):
			x.endMigration(m, state.MigrationAbandoned, state.MigrationGapEnded, "")
		case !running:
			x.migrations.considered.add(m.ID)
		}
	}
}

// reviewEnd ends the migration that runs at a node which is not what it was, and has those
// that wait for the node considered if it is free.
func (x *execution) reviewEnd(id state.NodeID) {
	n := x.s.Node(id)
	var lost []*state.Migration
	x.s.MigrationsAt(id, func(m *state.Migration) bool {
		switch {
		case n == nil || m.State == state.MigrationRunning && !runsAt(m, n):
			lost = append(lost, m)
		case m.State == state.MigrationRunning:
			return false
		default:
			x.migrations.considered.add(m.ID)
		}
		return true
	})
	for _, m := range lost {
		x.enter(stage{command: -1, migration: m.ID})
		x.endMigration(m, state.MigrationFailed, state.MigrationNodeLost, "")
	}
}

// runsAt reports whether a node is what it was when a running migration of it started.
func runsAt(m *state.Migration, n *state.Node) bool {
	since := m.SourceIncarnation
	if n.ID == m.Target {
		since = m.TargetIncarnation
	}
	return n.State == state.NodeUp && n.Incarnation == since
}

// startMigration begins a transfer and tells both nodes.
func (x *execution) startMigration(m *state.Migration) {
	u := *m
	u.State, u.StartedAt = state.MigrationRunning, x.now()
	u.SourceIncarnation, u.TargetIncarnation = x.s.Node(m.Source).Incarnation, x.s.Node(m.Target).Incarnation
	x.s.PutMigration(&u)
	x.dirtyNodes.add(m.Source)
	x.dirtyNodes.add(m.Target)
}

// MigrationWaits returns what a migration waits for, by the rule that starts it; the zero Wait
// if it does not wait.
func MigrationWaits(s *state.State, m *state.Migration) transmit.Wait {
	if m.State != state.MigrationQueued {
		return transmit.Wait{}
	}
	return transmit.WaitsFor(s, m)
}
