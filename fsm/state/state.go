package state

// State is everything that replicas agree on, with indexes over it. It has one
// writer; Copy gives readers and snapshots one that stays as it is.
type State struct {
	meta Meta
	// hidden is a *containers; see db. Its type is not here, or every package that
	// uses a State would compile the methods of all its generic types once more.
	hidden any
}

// containers are the tables of a state, and the indexes over them.
type containers struct {
	namespaces    table[NamespaceID, Namespace, *Namespace]
	pools         table[PoolID, Pool, *Pool]
	nodes         table[NodeID, Node, *Node]
	trajectories  table[TrajectoryID, Trajectory, *Trajectory]
	actions       table[ActionID, Action, *Action]
	attempts      table[ActionID, Attempt, *Attempt]
	requests      table[string, Request, *Request]
	work          table[QueueKey, work, *work]
	parked        table[QueueKey, work, *work]
	gpuClasses    table[GPUClassID, GPUClass, *GPUClass]
	residency     table[NodeID, Residency, *Residency]
	quotas        table[QuotaID, Quota, *Quota]
	returns       table[ReturnID, QuotaReturn, *QuotaReturn]
	events        eventRing
	classes       table[ClassID, Class, *Class]
	nodeGroups    table[GroupID, NodeGroup, *NodeGroup]
	jobs          table[JobID, Job, *Job]
	reservations  table[JobID, Reservation, *Reservation]
	turns         table[TurnID, Turn, *Turn]
	engines       table[string, Engine, *Engine]
	nodeEngines   table[NodeID, NodeEngines, *NodeEngines]
	migrations    table[MigrationID, Migration, *Migration]
	fileSnapshots table[FileSnapshotID, FileSnapshot, *FileSnapshot]
	policies      table[string, Policy, *Policy]
	workers       table[string, Worker, *Worker]
	generations   table[TrajectoryID, Generation, *Generation]
	lengths       table[string, LengthClass, *LengthClass]
	affinities    table[string, Affinity, *Affinity]
	rollouts      table[RolloutID, Rollout, *Rollout]
	samples       table[TrajectoryID, Sample, *Sample]
	batches       table[string, Batch, *Batch]
	workerPools   table[string, WorkerPool, *WorkerPool]
	rewards       table[string, Reward, *Reward]
	replicas      table[ActionID, Replica, *Replica]
	uses          table[NamespaceID, NamespaceUse, *NamespaceUse]
	settings      table[NamespaceID, NamespaceSettings, *NamespaceSettings]
	clocks        table[QueueKey, FairClocks, *FairClocks]

	accessPolicies table[string, AccessPolicy, *AccessPolicy]
	accessTokens   table[string, AccessToken, *AccessToken]
	authMethods    table[string, AuthMethod, *AuthMethod]

	rolloutGroups table[GroupKey, RolloutGroup, *RolloutGroup]
	restoreParts  table[uint32, RestorePart, *RestorePart]
	nextState     //nolint:unused // empty but in a build for the fault suite

	index indexes
	enc   *codec
}

// db returns the containers of a state. It is not inlined, so that no other package
// sees their types in the body of a method that is.
//
//go:noinline
func db(s *State) *containers { return s.hidden.(*containers) }

// New returns an empty state, as every replica starts with.
func New() *State {
	d := &containers{events: newEventRing(1), enc: new(codec)}
	for i := range tables {
		tables[i].make(d)
	}
	for _, x := range indexed {
		x.make(&d.index)
	}
	return &State{hidden: d}
}

// Copy returns an independent state with the same content. It costs the same
// however large the state is. Of all copies, only the newest may have further events, and
// copies of it; another needs Apart.
func (s *State) Copy() *State {
	mine := db(s)
	for i := range tables {
		tables[i].share(mine)
	}
	for i := range indexed {
		indexed[i].share(&mine.index)
	}
	d := *mine
	d.enc = new(codec)
	return &State{meta: s.meta, hidden: &d}
}

// Apart is Copy for a state that becomes another one than what it was copied from: further
// events of both are their own.
func (s *State) Apart() *State {
	c := s.Copy()
	db(c).events = db(c).events.apart()
	return c
}

// Hash returns the hash of the whole state. It is a sum, kept up to date by
// every write, so asking costs nothing.
func (s *State) Hash() uint64 {
	d := db(s)
	sum := hashRow(new(codec), tableMeta, &s.meta) + d.events.hash
	for i := range tables {
		sum += tables[i].hash(d)
	}
	return sum
}

// Counts are totals over the cluster.
type Counts struct {
	Queued, Running, Ended, OpenTrajectories, NodesUp int
}
