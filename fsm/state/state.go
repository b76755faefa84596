package state

import "github.com/tidwall/btree"

// Numbers of the tables, part of every row's hash and of the snapshot format.
const (
	tableMeta byte = 1 + iota
	tableNamespaces
	tablePools
	tableNodes
	tableTrajectories
	tableActions
	tableAttempts
	tableRequests
	tableWork
	tableEvents
	tableParked
	tableClasses
)

// Those of quotas leave a number for classes.
const (
	tableQuotas byte = 13 + iota
	tableReturns
)

// Those of GPUs.
const (
	tableGPUClasses byte = 16 + iota
	tableResidency
)

// Those of the ledger.
const (
	tableNodeGroups byte = 18 + iota
	tableJobs
	tableSeats
	tableTurns
)

// State is everything that replicas agree on, with indexes over it. It has one
// writer; Copy gives readers and snapshots one that stays as it is.
type State struct {
	meta Meta

	namespaces   table[NamespaceID, Namespace, *Namespace]
	pools        table[PoolID, Pool, *Pool]
	nodes        table[NodeID, Node, *Node]
	trajectories table[TrajectoryID, Trajectory, *Trajectory]
	actions      table[ActionID, Action, *Action]
	attempts     table[ActionID, Attempt, *Attempt]
	requests     table[string, Request, *Request]
	work         table[Instance, work, *work]
	parked       table[Instance, work, *work]
	gpuClasses   table[GPUClassID, GPUClass, *GPUClass]
	residency    table[NodeID, Residency, *Residency]
	quotas       table[QuotaID, Quota, *Quota]
	returns      table[ReturnID, QuotaReturn, *QuotaReturn]
	events       eventRing
	classes      table[ClassID, Class, *Class]
	nodeGroups   table[GroupID, NodeGroup, *NodeGroup]
	jobs         table[JobID, Job, *Job]
	seats        table[JobID, Seat, *Seat]
	turns        table[TurnID, Turn, *Turn]

	index indexes
	enc   *codec
}

// New returns an empty state, as every replica starts with.
func New() *State {
	return &State{
		namespaces:   newTable[NamespaceID, Namespace](tableNamespaces),
		pools:        newTable[PoolID, Pool](tablePools),
		nodes:        newTable[NodeID, Node](tableNodes),
		trajectories: newTable[TrajectoryID, Trajectory](tableTrajectories),
		actions:      newTable[ActionID, Action](tableActions),
		attempts:     newTable[ActionID, Attempt](tableAttempts),
		requests:     newTable[string, Request](tableRequests),
		work:         newTable[Instance, work](tableWork),
		parked:       newTable[Instance, work](tableParked),
		gpuClasses:   newTable[GPUClassID, GPUClass](tableGPUClasses),
		residency:    newTable[NodeID, Residency](tableResidency),
		quotas:       newTable[QuotaID, Quota](tableQuotas),
		returns:      newTable[ReturnID, QuotaReturn](tableReturns),
		events:       newEventRing(1),
		classes:      newTable[ClassID, Class](tableClasses),
		nodeGroups:   newTable[GroupID, NodeGroup](tableNodeGroups),
		jobs:         newTable[JobID, Job](tableJobs),
		seats:        newTable[JobID, Seat](tableSeats),
		turns:        newTable[TurnID, Turn](tableTurns),
		index:        newIndexes(),
		enc:          new(codec),
	}
}

// Copy returns an independent state with the same content. It costs the same
// however large the state is.
func (s *State) Copy() *State {
	return &State{
		meta:         s.meta,
		namespaces:   s.namespaces.copy(),
		pools:        s.pools.copy(),
		nodes:        s.nodes.copy(),
		trajectories: s.trajectories.copy(),
		actions:      s.actions.copy(),
		attempts:     s.attempts.copy(),
		requests:     s.requests.copy(),
		work:         s.work.copy(),
		parked:       s.parked.copy(),
		gpuClasses:   s.gpuClasses.copy(),
		residency:    s.residency.copy(),
		quotas:       s.quotas.copy(),
		returns:      s.returns.copy(),
		events:       s.events,
		classes:      s.classes.copy(),
		nodeGroups:   s.nodeGroups.copy(),
		jobs:         s.jobs.copy(),
		seats:        s.seats.copy(),
		turns:        s.turns.copy(),
		index:        s.index.copy(),
		enc:          new(codec),
	}
}

// Hash returns the hash of the whole state. It is a sum, kept up to date by
// every write, so asking costs nothing.
func (s *State) Hash() uint64 {
	return hashRow(new(codec), tableMeta, &s.meta) +
		s.namespaces.hash + s.pools.hash + s.nodes.hash + s.trajectories.hash +
		s.actions.hash + s.attempts.hash + s.requests.hash + s.work.hash + s.parked.hash + s.classes.hash +
		s.quotas.hash + s.returns.hash + s.gpuClasses.hash + s.residency.hash + s.events.hash +
		s.nodeGroups.hash + s.jobs.hash + s.seats.hash + s.turns.hash
}

// indexes are derived from the tables: neither hashed nor in snapshots. The Put
// and Delete methods keep them.
type indexes struct {
	namespaceNames *btree.Map[string, NamespaceID]
	poolNames      *btree.Map[string, PoolID]
	nodeNames      *btree.Map[string, NodeID]
	gpuClassNames  *btree.Map[string, GPUClassID]
	quotaNames     *btree.Map[string, QuotaID]
	// quotaUsers counts the actions that have not ended by the quotas they name.
	quotaUsers *btree.Map[QuotaID, int]
	// freeCores, freeMemory and freeGPUs order the usable nodes of a pool for the
	// choice of one; shapes has the sizes of all of them.
	freeCores  *btree.BTreeG[coreRank]
	freeMemory *btree.BTreeG[memoryRank]
	freeGPUs   *btree.BTreeG[gpuRank]
	shapes     *btree.BTreeG[shape]
	// queue has the queued actions of every instance in FCFS order.
	queue    *btree.BTreeG[queued]
	queueLen *btree.Map[Instance, int]
	nsQueued *btree.Map[NamespaceID, int]
	// Queued actions of a pool, those of them that wait for a quota, and those of the
	// trajectories of a node: whatever they wait for.
	poolQueued, poolForQuota *btree.Map[PoolID, int]
	nodeQueued               *btree.Map[NodeID, int]
	// pending has the trajectories that wait for a node.
	pending      *btree.BTreeG[pendingTrajectory]
	nodeAttempts *btree.BTreeG[nodeAttempt]
	residents    *btree.BTreeG[resident]
	// members has the kept actions of trajectories, live those that have not ended.
	members  *btree.BTreeG[member]
	live     *btree.BTreeG[member]
	timers   *btree.BTreeG[timer]
	expiries *btree.BTreeG[expiry]
	// ended orders ended actions by when they did.
	ended *btree.BTreeG[ended]
	// usable counts the nodes of a pool that take work.
	usable *btree.Map[PoolID, int]
	// poolReferrers and nsReferrers count the rows that are of a pool, and of a
	// namespace.
	poolReferrers *btree.Map[PoolID, int]
	nsReferrers   *btree.Map[NamespaceID, int]
	// classNames has the classes by name, classLive how many actions of each have
	// not ended.
	classNames *btree.BTreeG[className]
	classLive  *btree.Map[ClassID, int]
	// groups counts the open trajectories that are spread, spreadLabels those of
	// them that have not ended by label, domains orders the usable nodes by domain.
	groups       *btree.BTreeG[groupCount]
	spreadLabels *btree.Map[string, int]
	domains      *btree.BTreeG[domainRank]
	// groupJobs has the jobs of each group and those that wait for one, jobTurns the
	// live turns of each job, waitingTurns those of each deployment that wait, and
	// heldTurns the turn of each job that holds a group.
	nodeGroupNames *btree.Map[string, GroupID]
	jobNames       *btree.BTreeG[jobName]
	groupJobs      *btree.BTreeG[groupJob]
	jobTurns       *btree.BTreeG[jobTurn]
	waitingTurns   *btree.BTreeG[waitingTurn]
	heldTurns      *btree.Map[JobID, TurnID]
	// hookActions has the groups whose hooks are queued or run, by the actions.
	hookActions *btree.Map[ActionID, GroupID]

	counts Counts
	// Bytes of the specs of queued actions, and of ended actions with results.
	queuedBytes, endedBytes uint64
}

// Counts are totals over the cluster.
type Counts struct {
	Queued, Running, Ended, OpenTrajectories, NodesUp int
}

type (
	coreRank struct {
		pool   PoolID
		free   int
		memory uint64
		node   NodeID
	}
	memoryRank struct {
		pool PoolID
		free uint64
		// load is the number of trajectories per core in parts per million.
		load uint64
		node NodeID
	}
	// shape counts the nodes of a pool with the same size.
	shape struct {
		pool PoolID
		Shape
		nodes, usable int
	}
	queued struct {
		instance Instance
		id       ActionID
	}
	pendingTrajectory struct {
		pool  PoolID
		aside bool
		id    TrajectoryID
	}
	nodeAttempt struct {
		node   NodeID
		action ActionID
	}
	// resident is a trajectory that lives on a node.
	resident struct {
		node NodeID
		id   TrajectoryID
	}
	member struct {
		trajectory TrajectoryID
		action     ActionID
	}
	timer struct {
		due  int64
		kind TimerKind
		id   uint64
	}
	expiry struct {
		due int64
		id  string
	}
	ended struct {
		at int64
		id ActionID
	}
)

func newIndexes() indexes {
	return indexes{
		namespaceNames: btree.NewMap[string, NamespaceID](0),
		poolNames:      btree.NewMap[string, PoolID](0),
		nodeNames:      btree.NewMap[string, NodeID](0),
		gpuClassNames:  btree.NewMap[string, GPUClassID](0),
		quotaNames:     btree.NewMap[string, QuotaID](0),
		quotaUsers:     btree.NewMap[QuotaID, int](0),
		freeCores:      newSet(coreRank.less),
		freeMemory:     newSet(memoryRank.less),
		freeGPUs:       newSet(gpuRank.less),
		shapes:         newSet(shape.less),
		queue:          newSet(queued.less),
		queueLen:       btree.NewMap[Instance, int](0),
		nsQueued:       btree.NewMap[NamespaceID, int](0),
		poolQueued:     btree.NewMap[PoolID, int](0),
		poolForQuota:   btree.NewMap[PoolID, int](0),
		nodeQueued:     btree.NewMap[NodeID, int](0),
		pending:        newSet(pendingTrajectory.less),
		nodeAttempts:   newSet(nodeAttempt.less),
		residents:      newSet(resident.less),
		members:        newSet(member.less),
		live:           newSet(member.less),
		timers:         newSet(timer.less),
		expiries:       newSet(expiry.less),
		ended:          newSet(ended.less),
		usable:         btree.NewMap[PoolID, int](0),
		poolReferrers:  btree.NewMap[PoolID, int](0),
		nsReferrers:    btree.NewMap[NamespaceID, int](0),
		classNames:     newSet(className.less),
		classLive:      btree.NewMap[ClassID, int](0),
		groups:         newSet(groupCount.less),
		spreadLabels:   btree.NewMap[string, int](0),
		domains:        newSet(domainRank.less),
		nodeGroupNames: btree.NewMap[string, GroupID](0),
		hookActions:    btree.NewMap[ActionID, GroupID](0),
		jobNames:       newSet(jobName.less),
		groupJobs:      newSet(groupJob.less),
		jobTurns:       newSet(jobTurn.less),
		waitingTurns:   newSet(waitingTurn.less),
		heldTurns:      btree.NewMap[JobID, TurnID](0),
	}
}

func (x indexes) copy() indexes {
	x.namespaceNames = x.namespaceNames.Copy()
	x.poolNames = x.poolNames.Copy()
	x.nodeNames = x.nodeNames.Copy()
	x.gpuClassNames = x.gpuClassNames.Copy()
	x.quotaNames = x.quotaNames.Copy()
	x.quotaUsers = x.quotaUsers.Copy()
	x.freeCores = x.freeCores.Copy()
	x.freeMemory = x.freeMemory.Copy()
	x.freeGPUs = x.freeGPUs.Copy()
	x.shapes = x.shapes.Copy()
	x.queue = x.queue.Copy()
	x.queueLen = x.queueLen.Copy()
	x.nsQueued = x.nsQueued.Copy()
	x.poolQueued, x.poolForQuota, x.nodeQueued = x.poolQueued.Copy(), x.poolForQuota.Copy(), x.nodeQueued.Copy()
	x.pending = x.pending.Copy()
	x.nodeAttempts = x.nodeAttempts.Copy()
	x.residents = x.residents.Copy()
	x.members = x.members.Copy()
	x.live = x.live.Copy()
	x.timers = x.timers.Copy()
	x.expiries = x.expiries.Copy()
	x.ended = x.ended.Copy()
	x.usable = x.usable.Copy()
	x.poolReferrers, x.nsReferrers = x.poolReferrers.Copy(), x.nsReferrers.Copy()
	x.classNames = x.classNames.Copy()
	x.classLive = x.classLive.Copy()
	x.groups = x.groups.Copy()
	x.spreadLabels = x.spreadLabels.Copy()
	x.domains = x.domains.Copy()
	x.nodeGroupNames, x.hookActions = x.nodeGroupNames.Copy(), x.hookActions.Copy()
	x.jobNames, x.groupJobs, x.jobTurns = x.jobNames.Copy(), x.groupJobs.Copy(), x.jobTurns.Copy()
	x.waitingTurns, x.heldTurns = x.waitingTurns.Copy(), x.heldTurns.Copy()
	return x
}

func newSet[T any](less func(a, b T) bool) *btree.BTreeG[T] {
	return btree.NewBTreeGOptions(less, btree.Options{NoLocks: true})
}

func (a coreRank) less(b coreRank) bool {
	if a.pool != b.pool {
		return a.pool < b.pool
	}
	if a.free != b.free {
		return a.free > b.free
	}
	if a.memory != b.memory {
		return a.memory > b.memory
	}
	return a.node < b.node
}

func (a memoryRank) less(b memoryRank) bool {
	if a.pool != b.pool {
		return a.pool < b.pool
	}
	if a.free != b.free {
		return a.free > b.free
	}
	if a.load != b.load {
		return a.load < b.load
	}
	return a.node < b.node
}

func (a shape) less(b shape) bool {
	if a.pool != b.pool {
		return a.pool < b.pool
	}
	return a.before(&b.Shape)
}

func (a queued) less(b queued) bool {
	if a.instance != b.instance {
		return a.instance < b.instance
	}
	return a.id < b.id
}

func (a pendingTrajectory) less(b pendingTrajectory) bool {
	if a.pool != b.pool {
		return a.pool < b.pool
	}
	if a.aside != b.aside {
		return b.aside
	}
	return a.id < b.id
}

func (a nodeAttempt) less(b nodeAttempt) bool {
	if a.node != b.node {
		return a.node < b.node
	}
	return a.action < b.action
}

func (a resident) less(b resident) bool {
	if a.node != b.node {
		return a.node < b.node
	}
	return a.id < b.id
}

func (a member) less(b member) bool {
	if a.trajectory != b.trajectory {
		return a.trajectory < b.trajectory
	}
	return a.action < b.action
}

func (a timer) less(b timer) bool {
	if a.due != b.due {
		return a.due < b.due
	}
	if a.kind != b.kind {
		return a.kind < b.kind
	}
	return a.id < b.id
}

func (a expiry) less(b expiry) bool {
	if a.due != b.due {
		return a.due < b.due
	}
	return a.id < b.id
}

func (a ended) less(b ended) bool {
	if a.at != b.at {
		return a.at < b.at
	}
	return a.id < b.id
}
