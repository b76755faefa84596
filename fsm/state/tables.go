package state

import "cmp"

// Numbers of the tables, part of every row's hash and of the snapshot format. A number
// is never used again. 0 ends a snapshot.
const (
	tableMeta         byte = 1
	tableNamespaces   byte = 2
	tablePools        byte = 3
	tableNodes        byte = 4
	tableTrajectories byte = 5
	tableActions      byte = 6
	tableAttempts     byte = 7
	tableRequests     byte = 8
	tableWork         byte = 9
	tableEvents       byte = 10
	tableParked       byte = 11
	tableClasses      byte = 12
	tableQuotas       byte = 13
	tableReturns      byte = 14
	tableGPUClasses   byte = 16
	tableResidency    byte = 17
	tableNodeGroups   byte = 18
	tableJobs         byte = 19
	tableReservations byte = 20
	tableTurns        byte = 21
)

// tables lists the tables in the order in which snapshots have them, a table behind
// those that the indexes of its rows look into. Two tables are not among them: that of
// the cluster has one row, and that of events is a ring.
var tables = append([]tableDef{
	defineTable(tableNamespaces, func(s *State) *table[NamespaceID, Namespace, *Namespace] { return &s.namespaces }, (*State).PutNamespace),
	defineTable(tablePools, func(s *State) *table[PoolID, Pool, *Pool] { return &s.pools }, (*State).PutPool),
	defineTable(tableNodes, func(s *State) *table[NodeID, Node, *Node] { return &s.nodes }, (*State).PutNode),
	defineTable(tableTrajectories, func(s *State) *table[TrajectoryID, Trajectory, *Trajectory] { return &s.trajectories }, (*State).PutTrajectory),
	defineTable(tableActions, func(s *State) *table[ActionID, Action, *Action] { return &s.actions }, (*State).PutAction),
	defineTable(tableAttempts, func(s *State) *table[ActionID, Attempt, *Attempt] { return &s.attempts }, (*State).PutAttempt),
	defineTable(tableRequests, func(s *State) *table[string, Request, *Request] { return &s.requests }, (*State).PutRequest),
	defineTable(tableWork, func(s *State) *table[Instance, work, *work] { return &s.work }, func(s *State, w *work) { s.PutWorkAfter(w.Instance, w.After) }),
	defineTable(tableParked, func(s *State) *table[Instance, work, *work] { return &s.parked }, func(s *State, w *work) { s.Park(w.Instance) }),
	defineTable(tableClasses, func(s *State) *table[ClassID, Class, *Class] { return &s.classes }, (*State).PutClass),
	defineTable(tableGPUClasses, func(s *State) *table[GPUClassID, GPUClass, *GPUClass] { return &s.gpuClasses }, (*State).PutGPUClass),
	defineTable(tableResidency, func(s *State) *table[NodeID, Residency, *Residency] { return &s.residency }, (*State).PutResidency),
	defineTable(tableQuotas, func(s *State) *table[QuotaID, Quota, *Quota] { return &s.quotas }, (*State).PutQuota),
	defineTable(tableReturns, func(s *State) *table[ReturnID, QuotaReturn, *QuotaReturn] { return &s.returns }, (*State).PutReturn),
	defineTable(tableNodeGroups, func(s *State) *table[GroupID, NodeGroup, *NodeGroup] { return &s.nodeGroups }, (*State).PutNodeGroup),
	defineTable(tableJobs, func(s *State) *table[JobID, Job, *Job] { return &s.jobs }, (*State).PutJob),
	defineTable(tableReservations, func(s *State) *table[JobID, Reservation, *Reservation] { return &s.reservations }, (*State).PutReservation),
	defineTable(tableTurns, func(s *State) *table[TurnID, Turn, *Turn] { return &s.turns }, (*State).PutTurn),
}, nextTables...)

// tableDef is what is done alike with every table.
type tableDef struct {
	id byte
	// since is the feature level that the table came with.
	since Level
	// make gives a state an empty table, fork gives a copied state one of its own.
	make, fork func(*State)
	hash       func(*State) uint64
	save       func(*State, *saver)
	// load decodes a row and stores it, indexes included.
	load func(*State, []byte) error
	// copyTo stores all rows in another state, indexes included.
	copyTo func(from, to *State)
	// row returns an empty row.
	row func() coder
}

func defineTable[K cmp.Ordered, R any, P rowOf[R]](id byte, of func(*State) *table[K, R, P], put func(*State, P)) tableDef {
	return tableDef{
		id:    id,
		since: LevelMin,
		make:  func(s *State) { *of(s) = newTable[K, R, P](id) },
		fork:  func(s *State) { t := of(s); t.rows = t.rows.Copy() },
		hash:  func(s *State) uint64 { return of(s).hash },
		save:  func(s *State, out *saver) { saveTable(out, of(s)) },
		load:  func(s *State, b []byte) error { return decodeInto(b, P(new(R)), func(r *R) { put(s, r) }) },
		copyTo: func(from, to *State) {
			of(from).rows.Scan(func(_ K, c cell[R]) bool {
				put(to, c.row)
				return true
			})
		},
		row: func() coder { return P(new(R)) },
	}
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
