package state

// MigrationID orders migrations by request, over all namespaces.
type MigrationID uint64

const (
	// MigrationsMax bounds the migrations that are queued or run.
	MigrationsMax = 4096
	// SelectorBytesMax bounds the encoded selector of a migration.
	SelectorBytesMax = 64 << 10
	// SelectorsBytesMax bounds the selectors of all migrations that are queued or run.
	SelectorsBytesMax = 32 << 20
	// MigrationsKeptMax bounds the migrations that have ended and are kept.
	MigrationsKeptMax = 4096
	// MigrationMessageBytesMax bounds what is said of the end of a migration.
	MigrationMessageBytesMax = 512
)

// MigrationState has the values of rota.v1.MigrationState.
type MigrationState uint8

// The life of a migration. Those from MigrationDone on are final.
const (
	MigrationQueued MigrationState = 1 + iota
	MigrationRunning
	MigrationDone
	MigrationFailed
	MigrationAbandoned
	MigrationCanceled
)

// Final reports whether the migration has ended.
func (s MigrationState) Final() bool { return s >= MigrationDone }

// MigrationReason has the values of rota.v1.MigrationReason.
type MigrationReason uint8

// Why a migration ended otherwise than done.
const (
	MigrationGapEnded MigrationReason = 1 + iota
	MigrationTrajectoryEnded
	MigrationQueueTimeout
	MigrationRunTimeout
	MigrationNodeLost
	MigrationCanceledByClient
	MigrationTransfer
	MigrationInternal
)

// Migration is a copy of KV caches from one node's cache to another's.
type Migration struct {
	ID         MigrationID
	Namespace  NamespaceID
	Trajectory TrajectoryID // 0: none
	Source     NodeID
	Target     NodeID
	State      MigrationState
	// Selector is an encoded rota.v1.MigrationSelector, opaque to the state machine; empty when
	// the migration has ended.
	Selector []byte
	// Length is how much the trajectory is predicted to do yet, in the client's unit.
	Length                          uint64
	QueueTimeoutNS, RunTimeoutNS    int64
	RequestedAt, StartedAt, EndedAt int64 // log times; 0: not yet
	// Incarnations of the nodes when it started.
	SourceIncarnation, TargetIncarnation uint64
	Reason                               MigrationReason
	Message                              string
	Progress                             MigrationProgress
}

// MigrationProgress is what a transfer did, in bytes but for Values.
type MigrationProgress struct{ Values, Total, Moved, Present uint64 }

// Before orders migrations: the longest first, the oldest of those.
func (r *Migration) Before(o *Migration) bool {
	if r.Length != o.Length {
		return r.Length > o.Length
	}
	return r.ID < o.ID
}

// On reports whether a node is one of its ends.
func (r *Migration) On(node NodeID) bool { return r.Source == node || r.Target == node }

func (r *Migration) code(c *codec) {
	number(c, &r.ID)
	number(c, &r.Namespace)
	number(c, &r.Trajectory)
	number(c, &r.Source)
	number(c, &r.Target)
	number(c, &r.State)
	c.bytes(&r.Selector)
	number(c, &r.Length)
	for _, at := range []*int64{&r.QueueTimeoutNS, &r.RunTimeoutNS, &r.RequestedAt, &r.StartedAt, &r.EndedAt} {
		signed(c, at)
	}
	number(c, &r.SourceIncarnation)
	number(c, &r.TargetIncarnation)
	number(c, &r.Reason)
	c.text(&r.Message)
	for _, n := range []*uint64{&r.Progress.Values, &r.Progress.Total, &r.Progress.Moved, &r.Progress.Present} {
		number(c, n)
	}
}

// MigrationCounts are totals over the cluster.
type MigrationCounts struct {
	Queued, Running, Ended int
	// SelectorBytes are those of the queued and the running ones.
	SelectorBytes uint64
}

type (
	// endpoint is a queued or running migration at one of its nodes: the running one first,
	// then the longest.
	endpoint struct {
		node    NodeID
		waiting bool
		length  uint64
		id      MigrationID
	}
	// trajectoryMigration is a queued or running migration of a trajectory.
	trajectoryMigration struct {
		trajectory TrajectoryID
		id         MigrationID
	}
	endedMigration struct {
		at int64
		id MigrationID
	}
)

func (a endpoint) less(b endpoint) bool {
	switch {
	case a.node != b.node:
		return a.node < b.node
	case a.waiting != b.waiting:
		return b.waiting
	case a.length != b.length:
		return a.length > b.length
	}
	return a.id < b.id
}

func (a trajectoryMigration) less(b trajectoryMigration) bool {
	if a.trajectory != b.trajectory {
		return a.trajectory < b.trajectory
	}
	return a.id < b.id
}

func (a endedMigration) less(b endedMigration) bool {
	if a.at != b.at {
		return a.at < b.at
	}
	return a.id < b.id
}

// PutMigration stores a migration.
func (s *State) PutMigration(r *Migration) {
	old := db(s).migrations.put(db(s).enc, r.ID, r)
	if old == nil {
		s.refer(r.Namespace, 0, 1)
	} else {
		s.indexMigration(old, false)
	}
	s.indexMigration(r, true)
	s.setTimer(s.migrationTimer(old), s.migrationTimer(r))
}

// DeleteMigration forgets a migration.
func (s *State) DeleteMigration(id MigrationID) {
	if old := db(s).migrations.delete(id); old != nil {
		s.refer(old.Namespace, 0, -1)
		s.indexMigration(old, false)
		s.setTimer(s.migrationTimer(old), timer{})
	}
}

func (s *State) indexMigration(r *Migration, in bool) {
	x, by := &db(s).index, 1
	if !in {
		by = -1
	}
	counts := &x.migrationCounts
	if r.State.Final() {
		counts.Ended += by
		include(&x.endedMigrations, endedMigration{r.EndedAt, r.ID}, in)
		return
	}
	if waiting := r.State == MigrationQueued; waiting {
		counts.Queued += by
	} else {
		counts.Running += by
	}
	counts.SelectorBytes += uint64(by) * uint64(len(r.Selector))
	for _, node := range []NodeID{r.Source, r.Target} {
		include(&x.endpoints, endpoint{node, r.State == MigrationQueued, r.Length, r.ID}, in)
	}
	if r.Trajectory != 0 {
		include(&x.trajectoryMigrations, trajectoryMigration{r.Trajectory, r.ID}, in)
	}
}

// migrationTimer bounds the wait and the transfer of a migration, and ends its retention.
func (s *State) migrationTimer(r *Migration) timer {
	switch {
	case r == nil:
		return timer{}
	case r.State == MigrationQueued:
		return timer{r.RequestedAt + r.QueueTimeoutNS, TimerMigration, uint64(r.ID)}
	case r.State == MigrationRunning:
		return timer{r.StartedAt + r.RunTimeoutNS, TimerMigration, uint64(r.ID)}
	}
	return timer{r.EndedAt + s.meta.Settings.RetentionNS, TimerMigration, uint64(r.ID)}
}

// Migration returns a migration, nil if there is none.
func (s *State) Migration(id MigrationID) *Migration { return db(s).migrations.get(id) }

// Migrations visits the migrations with IDs greater than after.
func (s *State) Migrations(after MigrationID, fn func(*Migration) bool) {
	db(s).migrations.scan(after+1, fn)
}

// MigrationCounts returns totals over the cluster.
func (s *State) MigrationCounts() MigrationCounts { return db(s).index.migrationCounts }

// MigrationsAt visits the migrations of a node that have not ended: the one that runs, if one
// does, and then those that are queued, longest first.
func (s *State) MigrationsAt(node NodeID, fn func(*Migration) bool) {
	db(s).index.endpoints.Ascend(endpoint{node: node, length: 1<<64 - 1}, func(e endpoint) bool {
		return e.node == node && fn(db(s).migrations.get(e.id))
	})
}

// RunningMigration returns the migration that runs with a node as one of its ends, nil if none
// does.
func (s *State) RunningMigration(node NodeID) (running *Migration) {
	s.MigrationsAt(node, func(m *Migration) bool {
		if m.State == MigrationRunning {
			running = m
		}
		return false
	})
	return running
}

// MigrationsOf visits the migrations of a trajectory that have not ended, oldest first.
func (s *State) MigrationsOf(id TrajectoryID, fn func(*Migration) bool) {
	db(s).index.trajectoryMigrations.Ascend(trajectoryMigration{id, 0}, func(t trajectoryMigration) bool {
		return t.trajectory == id && fn(db(s).migrations.get(t.id))
	})
}

// OldestEndedMigration returns the kept migration that ended first; 0: none is kept.
func (s *State) OldestEndedMigration() MigrationID {
	e, _ := db(s).index.endedMigrations.Min()
	return e.id
}
