package model

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// Migrations: which are queued, which run and how they end. The model looks at all of them after
// each entry, whatever changed.

const (
	migrationsMax         = 4096
	migrationsKeptMax     = 4096
	selectorBytesMax      = 64 << 10
	selectorsBytesMax     = 32 << 20
	migrationMessageMax   = 512
	migrationReportsMax   = 256
	migrationTimeoutMax   = 24 * 60 * 60 * 1_000_000_000
	migrationQueueDefault = 10 * 60 * 1_000_000_000
	migrationRunDefault   = 5 * 60 * 1_000_000_000
)

// migrations is what the model knows of them.
type migrations struct {
	all  map[state.MigrationID]*state.Migration
	last state.MigrationID
	// touched are those that the entry changed; they may be forgotten since.
	touched []state.MigrationID
}

func (m *Model) migrationCommand(c *logv1.Command, got *logv1.Result) (known bool, err error) {
	switch v := c.Verb.(type) {
	case *logv1.Command_RequestMigration:
		return true, m.requestMigration(v.RequestMigration, got)
	case *logv1.Command_CancelMigration:
		return true, m.cancelMigration(v.CancelMigration, got)
	case *logv1.Command_ReportMigrations:
		return true, m.reportMigrations(v.ReportMigrations, got)
	}
	return false, nil
}

func (m *Model) requestMigration(c *logv1.RequestMigration, got *logv1.Result) error {
	if m.level < levelResizing {
		return refused(got, "LEVEL_NOT_ACTIVE")
	}
	if done, err := m.replayed(c.Request, m.namespaces[orDefault(c.Namespace)], state.VerbRequestMigration, 1, got); done {
		return err
	}
	ns := m.namespaces[orDefault(c.Namespace)]
	from, to := m.nodes[c.Source], m.nodes[c.Target]
	t := m.trajectories[state.TrajectoryID(c.TrajectoryId)]
	live, selectors := m.liveMigrations()
	selectors += len(c.Selector)
	var v verdict
	v.refuse(ns == 0, "NAMESPACE_NOT_FOUND")
	v.refuse(len(c.Selector) == 0 || len(c.Selector) > selectorBytesMax || c.Source == c.Target, "INVALID")
	v.refuse(min(c.QueueTimeoutNs, c.RunTimeoutNs) < 0 || max(c.QueueTimeoutNs, c.RunTimeoutNs) > migrationTimeoutMax, "INVALID")
	v.refuse(from == nil || to == nil, "NODE_NOT_FOUND")
	v.refuse(from != nil && from.CacheBytes == 0 || to != nil && to.CacheBytes == 0, "NO_CACHE")
	v.refuse(c.TrajectoryId != 0 && (t == nil || t.Namespace != ns), "TRAJECTORY_NOT_FOUND")
	v.refuse(c.TrajectoryId != 0 && t != nil && t.State >= state.TrajectoryClosing, "TRAJECTORY_ENDED")
	v.refuse(live >= migrationsMax || selectors > selectorsBytesMax, "TOO_MANY_MIGRATIONS")
	if ok, err := v.judge(got); !ok {
		return err
	}
	row := &state.Migration{
		Namespace: ns, Trajectory: state.TrajectoryID(c.TrajectoryId), Source: from.ID, Target: to.ID,
		State: state.MigrationQueued, Selector: c.Selector, Length: c.Length, RequestedAt: m.now,
		QueueTimeoutNS: c.QueueTimeoutNs, RunTimeoutNS: c.RunTimeoutNs,
	}
	m.queueMigration(row)
	m.remember(c.Request, ns, state.VerbRequestMigration, uint64(row.ID), 1)
	return result(got, &logv1.Result{FirstId: uint64(row.ID), Count: 1})
}

// queueMigration numbers a migration, which has the usual bounds if it has none.
func (m *Model) queueMigration(row *state.Migration) {
	m.migrations.last++
	row.ID = m.migrations.last
	if row.QueueTimeoutNS == 0 {
		row.QueueTimeoutNS = migrationQueueDefault
	}
	if row.RunTimeoutNS == 0 {
		row.RunTimeoutNS = migrationRunDefault
	}
	m.migrations.all[row.ID] = row
	m.touchMigration(row)
}

// liveMigrations are those that are queued or run, and the bytes of their selectors.
func (m *Model) liveMigrations() (live, selectors int) {
	for _, o := range m.migrations.all {
		if o.State <= state.MigrationRunning {
			live++
			selectors += len(o.Selector)
		}
	}
	return live, selectors
}

func (m *Model) cancelMigration(c *logv1.CancelMigration, got *logv1.Result) error {
	row := m.migrations.all[state.MigrationID(c.Id)]
	switch {
	case m.level < levelResizing:
		return refused(got, "LEVEL_NOT_ACTIVE")
	case row == nil:
		return refused(got, "MIGRATION_NOT_FOUND")
	case row.State > state.MigrationRunning:
		return result(got, &logv1.Result{})
	}
	m.endMigration(row, state.MigrationCanceled, state.MigrationCanceledByClient)
	return result(got, &logv1.Result{FirstId: c.Id, Count: 1})
}

// reportMigrations counts only from the target, in the incarnation that the transfer began in.
func (m *Model) reportMigrations(c *logv1.ReportMigrations, got *logv1.Result) error {
	var v verdict
	v.refuse(len(c.Reports) > migrationReportsMax, "INVALID")
	for _, r := range c.Reports {
		v.refuse(len(r.Message) > migrationMessageMax, "INVALID")
	}
	n := m.nodes[c.Node]
	if m.level < levelResizing {
		return refused(got, "LEVEL_NOT_ACTIVE")
	}
	if ok, err := v.judge(got); !ok {
		return err
	}
	if n == nil || n.State != state.NodeUp || n.Incarnation != c.Incarnation {
		return result(got, &logv1.Result{})
	}
	for _, r := range c.Reports {
		row := m.migrations.all[state.MigrationID(r.MigrationId)]
		if row == nil || row.State != state.MigrationRunning || row.Target != n.ID || row.TargetIncarnation != c.Incarnation {
			continue
		}
		row.Progress = state.MigrationProgress{Values: r.Values, Total: r.TotalBytes, Moved: r.MovedBytes, Present: r.PresentBytes}
		if r.Done {
			m.endMigration(row, state.MigrationDone, 0)
			continue
		}
		row.Message = r.Message
		m.endMigration(row, state.MigrationFailed, state.MigrationTransfer)
	}
	return result(got, &logv1.Result{Count: uint32(len(c.Reports))})
}

func (m *Model) touchMigration(row *state.Migration) {
	m.migrations.touched = append(m.migrations.touched, row.ID)
	m.due.push(deadline{at: m.dueAt(row), id: uint64(row.ID), kind: migrationDue})
}

// dueAt is when something happens to a migration by log time.
func (m *Model) dueAt(row *state.Migration) int64 {
	switch row.State {
	case state.MigrationQueued:
		return row.RequestedAt + row.QueueTimeoutNS
	case state.MigrationRunning:
		return row.StartedAt + row.RunTimeoutNS
	}
	return row.EndedAt + m.settings.RetentionNS
}

// fireMigration ends or forgets a migration. If not everything that is due was done, the state
// says whether this was.
func (m *Model) fireMigration(d deadline, left bool) (fired bool) {
	row := m.migrations.all[state.MigrationID(d.id)]
	if left {
		now := m.s.Migration(row.ID)
		if now != nil && (row.State > state.MigrationRunning || now.Reason != state.MigrationQueueTimeout && now.Reason != state.MigrationRunTimeout) {
			return false
		}
	}
	switch row.State {
	case state.MigrationQueued:
		m.endMigration(row, state.MigrationFailed, state.MigrationQueueTimeout)
	case state.MigrationRunning:
		m.endMigration(row, state.MigrationFailed, state.MigrationRunTimeout)
	default:
		m.touchMigration(row)
		delete(m.migrations.all, row.ID)
	}
	return true
}

// endMigration ends one, and forgets the one that ended first if too many are kept.
func (m *Model) endMigration(row *state.Migration, s state.MigrationState, why state.MigrationReason) {
	row.State, row.Reason, row.EndedAt, row.Selector = s, why, m.now, nil
	m.touchMigration(row)
	var first *state.Migration
	kept := 0
	for _, o := range m.migrations.all {
		if o.State <= state.MigrationRunning {
			continue
		}
		kept++
		if first == nil || o.EndedAt < first.EndedAt || o.EndedAt == first.EndedAt && o.ID < first.ID {
			first = o
		}
	}
	if kept > migrationsKeptMax {
		m.touchMigration(first)
		delete(m.migrations.all, first.ID)
	}
}

// transmit does what must have become of all migrations at the end of an entry: those that may
// not go on have ended, and of the others the longest run that do not get in each other's way.
func (m *Model) transmit() {
	var queued []*state.Migration
	busy := map[state.NodeID]bool{}
	for _, id := range slices.Sorted(maps.Keys(m.migrations.all)) {
		row := m.migrations.all[id]
		if row.State > state.MigrationRunning {
			continue
		}
		if m.migrationPlanted(id) {
			row.Message = PlantedMessage
			m.endMigration(row, state.MigrationFailed, state.MigrationInternal)
			continue
		}
		if now := m.s.Migration(id); now != nil && now.Reason == state.MigrationInternal {
			m.touchMigration(row) // it must not have failed so
		}
		m.endUnfit(row)
		switch row.State {
		case state.MigrationQueued:
			queued = append(queued, row)
		case state.MigrationRunning:
			busy[row.Source], busy[row.Target] = true, true
		}
	}
	for len(queued) > 0 {
		longest := 0
		for i, row := range queued {
			if row.Length > queued[longest].Length {
				longest = i
			}
		}
		row := queued[longest]
		queued = slices.Delete(queued, longest, longest+1)
		if from, to := m.nodeByID[row.Source], m.nodeByID[row.Target]; !busy[row.Source] && !busy[row.Target] && m.mayTransmit(row, from, to) {
			busy[row.Source], busy[row.Target] = true, true
			row.State, row.StartedAt = state.MigrationRunning, m.now
			row.SourceIncarnation, row.TargetIncarnation = from.Incarnation, to.Incarnation
			m.touchMigration(row)
		}
	}
}

// endUnfit ends a migration whose trajectory or nodes are not what they must be.
func (m *Model) endUnfit(row *state.Migration) {
	running := row.State == state.MigrationRunning
	t := m.trajectories[row.Trajectory]
	from, to := m.nodeByID[row.Source], m.nodeByID[row.Target]
	switch {
	case row.Trajectory != 0 && (t == nil || t.State >= state.TrajectoryClosing) && running:
		m.endMigration(row, state.MigrationAbandoned, state.MigrationTrajectoryEnded)
	case row.Trajectory != 0 && (t == nil || t.State >= state.TrajectoryClosing):
		m.endMigration(row, state.MigrationFailed, state.MigrationTrajectoryEnded)
	case row.Trajectory != 0 && running && len(t.live) == 0:
		m.endMigration(row, state.MigrationAbandoned, state.MigrationGapEnded)
	case from == nil || to == nil,
		running && (from.State != state.NodeUp || from.Incarnation != row.SourceIncarnation),
		running && (to.State != state.NodeUp || to.Incarnation != row.TargetIncarnation):
		m.endMigration(row, state.MigrationFailed, state.MigrationNodeLost)
	}
}

// mayTransmit: its nodes are there and have caches, and its trajectory waits for an action.
func (m *Model) mayTransmit(row *state.Migration, from, to *node) bool {
	return from.State == state.NodeUp && to.usable() && from.CacheBytes > 0 && to.CacheBytes > 0 &&
		(row.Trajectory == 0 || len(m.trajectories[row.Trajectory].live) > 0)
}

// compareMigrations compares those that the entry changed, and how many there are.
func (m *Model) compareMigrations() error {
	var want state.MigrationCounts
	for _, row := range m.migrations.all {
		switch row.State {
		case state.MigrationQueued:
			want.Queued++
		case state.MigrationRunning:
			want.Running++
		default:
			want.Ended++
		}
		want.SelectorBytes += uint64(len(row.Selector))
	}
	if got := m.s.MigrationCounts(); got != want || m.s.Meta().LastMigration != m.migrations.last {
		return fmt.Errorf("there are migrations %+v up to ID %d, must be %+v up to %d", got, m.s.Meta().LastMigration, want, m.migrations.last)
	}
	for _, id := range m.migrations.touched {
		got, want := m.s.Migration(id), m.migrations.all[id]
		if (got == nil) != (want == nil) {
			return fmt.Errorf("migration %d is kept: %v, must be %v", id, got != nil, want != nil)
		}
		if got == nil {
			continue
		}
		x, y := *got, *want
		x.Selector, y.Selector = nil, nil
		if !sameMigration(&x, &y) || !bytes.Equal(got.Selector, want.Selector) {
			return fmt.Errorf("migration %d is %+v with a selector of %d bytes, must be %+v with %d", id, x, len(got.Selector), y, len(want.Selector))
		}
	}
	return nil
}

func sameMigration(x, y *state.Migration) bool {
	return x.ID == y.ID && x.Namespace == y.Namespace && x.Trajectory == y.Trajectory && x.Source == y.Source && x.Target == y.Target &&
		x.State == y.State && x.Length == y.Length && x.QueueTimeoutNS == y.QueueTimeoutNS && x.RunTimeoutNS == y.RunTimeoutNS &&
		x.RequestedAt == y.RequestedAt && x.StartedAt == y.StartedAt && x.EndedAt == y.EndedAt &&
		x.SourceIncarnation == y.SourceIncarnation && x.TargetIncarnation == y.TargetIncarnation &&
		x.Reason == y.Reason && x.Message == y.Message && x.Progress == y.Progress
}
