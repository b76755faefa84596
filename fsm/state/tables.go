package state

import "cmp"

// Numbers of the tables, part of every row's hash and of the snapshot format. A number
// is never used again. 0 ends a snapshot.
const (
	tableMeta           byte = 1
	tableNamespaces     byte = 2
	tablePools          byte = 3
	tableNodes          byte = 4
	tableTrajectories   byte = 5
	tableActions        byte = 6
	tableAttempts       byte = 7
	tableRequests       byte = 8
	tableWork           byte = 9
	tableEvents         byte = 10
	tableParked         byte = 11
	tableClasses        byte = 12
	tableQuotas         byte = 13
	tableReturns        byte = 14
	tableGPUClasses     byte = 16
	tableResidency      byte = 17
	tableNodeGroups     byte = 18
	tableJobs           byte = 19
	tableReservations   byte = 20
	tableTurns          byte = 21
	tableEngines        byte = 22
	tableNodeEngines    byte = 23
	tableMigrations     byte = 24
	tablePolicies       byte = 25
	tableWorkers        byte = 30
	tableGenerations    byte = 31
	tableLengths        byte = 32
	tableRollouts       byte = 26
	tableGroups         byte = 27
	tableSamples        byte = 28
	tableBatches        byte = 29
	tableAccessPolicies byte = 38
	tableAccessTokens   byte = 39
	tableAuthMethods    byte = 40
	tableUses           byte = 41
	tableSettings       byte = 42
	tableClocks         byte = 43
	tableRestoreParts   byte = 37
	tableRewards        byte = 34
	tableReplicas       byte = 35
	tableWorkerPools    byte = 36
	tableAffinities     byte = 45
	tableFileSnapshots  byte = 33
)

// tables lists the tables in the order in which snapshots have them, a table behind
// those that the indexes of its rows look into. Two tables are not among them: that of
// the cluster has one row, and that of events is a ring.
var tables = append([]tableDef{
	defineTable(tableNamespaces, func(d *containers) *table[NamespaceID, Namespace, *Namespace] { return &d.namespaces }, (*State).PutNamespace),
	defineTable(tablePools, func(d *containers) *table[PoolID, Pool, *Pool] { return &d.pools }, (*State).PutPool),
	defineTable(tableNodes, func(d *containers) *table[NodeID, Node, *Node] { return &d.nodes }, (*State).PutNode),
	defineTable(tableTrajectories, func(d *containers) *table[TrajectoryID, Trajectory, *Trajectory] { return &d.trajectories }, (*State).PutTrajectory),
	defineTable(tableActions, func(d *containers) *table[ActionID, Action, *Action] { return &d.actions }, (*State).PutAction),
	defineTable(tableAttempts, func(d *containers) *table[ActionID, Attempt, *Attempt] { return &d.attempts }, (*State).PutAttempt),
	defineTable(tableRequests, func(d *containers) *table[string, Request, *Request] { return &d.requests }, (*State).PutRequest),
	defineTable(tableWork, func(d *containers) *table[QueueKey, work, *work] { return &d.work }, func(s *State, w *work) { s.PutWorkAfter(w.Queue.Queue(), w.After) }),
	defineTable(tableParked, func(d *containers) *table[QueueKey, work, *work] { return &d.parked }, func(s *State, w *work) { s.Park(w.Queue.Queue()) }),
	defineTable(tableClasses, func(d *containers) *table[ClassID, Class, *Class] { return &d.classes }, (*State).PutClass),
	defineTable(tableGPUClasses, func(d *containers) *table[GPUClassID, GPUClass, *GPUClass] { return &d.gpuClasses }, (*State).PutGPUClass),
	defineTable(tableResidency, func(d *containers) *table[NodeID, Residency, *Residency] { return &d.residency }, (*State).PutResidency),
	defineTable(tableQuotas, func(d *containers) *table[QuotaID, Quota, *Quota] { return &d.quotas }, (*State).PutQuota),
	defineTable(tableReturns, func(d *containers) *table[ReturnID, QuotaReturn, *QuotaReturn] { return &d.returns }, (*State).PutReturn),
	defineTable(tableNodeGroups, func(d *containers) *table[GroupID, NodeGroup, *NodeGroup] { return &d.nodeGroups }, (*State).PutNodeGroup),
	defineTable(tableJobs, func(d *containers) *table[JobID, Job, *Job] { return &d.jobs }, (*State).PutJob),
	defineTable(tableReservations, func(d *containers) *table[JobID, Reservation, *Reservation] { return &d.reservations }, (*State).PutReservation),
	defineTable(tableTurns, func(d *containers) *table[TurnID, Turn, *Turn] { return &d.turns }, (*State).PutTurn),
	sinceLevel(LevelResizing, defineTable(tableEngines, func(d *containers) *table[string, Engine, *Engine] { return &d.engines }, (*State).PutEngine)),
	sinceLevel(LevelResizing, defineTable(tableNodeEngines, func(d *containers) *table[NodeID, NodeEngines, *NodeEngines] { return &d.nodeEngines }, (*State).PutNodeEngines)),
	sinceLevel(LevelResizing, defineTable(tableMigrations, func(d *containers) *table[MigrationID, Migration, *Migration] { return &d.migrations }, (*State).PutMigration)),
	sinceLevel(LevelResizing, defineTable(tablePolicies, func(d *containers) *table[string, Policy, *Policy] { return &d.policies }, (*State).PutPolicy)),
	sinceLevel(LevelResizing, defineTable(tableWorkers, func(d *containers) *table[string, Worker, *Worker] { return &d.workers }, (*State).PutWorker)),
	sinceLevel(LevelResizing, defineTable(tableGenerations, func(d *containers) *table[TrajectoryID, Generation, *Generation] { return &d.generations }, (*State).PutGeneration)),
	sinceLevel(LevelResizing, defineTable(tableLengths, func(d *containers) *table[string, LengthClass, *LengthClass] { return &d.lengths }, (*State).PutLengthClass)),
	sinceLevel(LevelResizing, defineTable(tableRollouts, func(d *containers) *table[RolloutID, Rollout, *Rollout] { return &d.rollouts }, (*State).PutRollout)),
	sinceLevel(LevelResizing, defineTable(tableGroups, func(d *containers) *table[GroupKey, RolloutGroup, *RolloutGroup] { return &d.rolloutGroups }, (*State).PutRolloutGroup)),
	sinceLevel(LevelResizing, defineTable(tableSamples, func(d *containers) *table[TrajectoryID, Sample, *Sample] { return &d.samples }, (*State).PutSample)),
	sinceLevel(LevelResizing, defineTable(tableBatches, func(d *containers) *table[string, Batch, *Batch] { return &d.batches }, (*State).PutBatch)),
	sinceLevel(LevelResizing, defineTable(tableUses, func(d *containers) *table[NamespaceID, NamespaceUse, *NamespaceUse] { return &d.uses }, (*State).PutUse)),
	sinceLevel(LevelResizing, defineTable(tableSettings, func(d *containers) *table[NamespaceID, NamespaceSettings, *NamespaceSettings] { return &d.settings }, (*State).PutSettings)),
	sinceLevel(LevelResizing, defineTable(tableClocks, func(d *containers) *table[QueueKey, FairClocks, *FairClocks] { return &d.clocks }, (*State).PutClocks)),
	sinceLevel(LevelResizing, defineTable(tableAccessPolicies, func(d *containers) *table[string, AccessPolicy, *AccessPolicy] { return &d.accessPolicies }, (*State).PutAccessPolicy)),
	sinceLevel(LevelResizing, defineTable(tableAccessTokens, func(d *containers) *table[string, AccessToken, *AccessToken] { return &d.accessTokens }, (*State).PutAccessToken)),
	sinceLevel(LevelResizing, defineTable(tableAuthMethods, func(d *containers) *table[string, AuthMethod, *AuthMethod] { return &d.authMethods }, (*State).PutAuthMethod)),
	sinceLevel(LevelResizing, defineTable(tableRestoreParts, func(d *containers) *table[uint32, RestorePart, *RestorePart] { return &d.restoreParts }, (*State).PutRestorePart)),
	sinceLevel(LevelResizing, defineTable(tableRewards, func(d *containers) *table[string, Reward, *Reward] { return &d.rewards }, (*State).PutReward)),
	sinceLevel(LevelResizing, defineTable(tableReplicas, func(d *containers) *table[ActionID, Replica, *Replica] { return &d.replicas }, (*State).PutReplica)),
	sinceLevel(LevelResizing, defineTable(tableAffinities, func(d *containers) *table[string, Affinity, *Affinity] { return &d.affinities }, (*State).PutAffinity)),
	sinceLevel(LevelResizing, defineTable(tableWorkerPools, func(d *containers) *table[string, WorkerPool, *WorkerPool] { return &d.workerPools }, (*State).PutWorkerPool)),
	sinceLevel(LevelResizing, defineTable(tableFileSnapshots, func(d *containers) *table[FileSnapshotID, FileSnapshot, *FileSnapshot] { return &d.fileSnapshots }, (*State).PutFileSnapshot)),
}, nextTables...)

// tableDef is what is done alike with every table.
type tableDef struct {
	id byte
	// since is the feature level that the table came with.
	since Level
	// make gives a state an empty table, share says that a copy of the state has it too.
	make, share func(*containers)
	hash        func(*containers) uint64
	rows        func(*containers) int
	save        func(*containers, *saver)
	// load decodes a row and stores it, indexes included.
	load func(*State, []byte) error
	// copyTo stores all rows in another state, indexes included.
	copyTo func(from, to *State)
	// row returns an empty row.
	row func() coder
}

func defineTable[K cmp.Ordered, R any, P rowOf[R]](id byte, of func(*containers) *table[K, R, P], put func(*State, P)) tableDef {
	return tableDef{
		id:    id,
		since: LevelMin,
		make:  func(d *containers) { *of(d) = newTable[K, R, P](id) },
		share: func(d *containers) { of(d).rows.shared = true },
		hash:  func(d *containers) uint64 { return of(d).hash },
		rows:  func(d *containers) int { return of(d).rows.Len() },
		save:  func(d *containers, out *saver) { saveTable(out, of(d)) },
		load:  func(s *State, b []byte) error { return decodeInto(b, P(new(R)), func(r *R) { put(s, r) }) },
		copyTo: func(from, to *State) {
			of(db(from)).rows.Scan(func(_ K, c cell[R]) bool {
				put(to, c.row)
				return true
			})
		},
		row: func() coder { return P(new(R)) },
	}
}

// sinceLevel says with which feature level a table came.
func sinceLevel(l Level, t tableDef) tableDef {
	t.since = l
	return t
}

// tableOf finds a table by its number.
func tableOf(id byte) *tableDef {
	for i := range tables {
		if tables[i].id == id {
			return &tables[i]
		}
	}
	return nil
}
