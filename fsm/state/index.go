package state

import (
	"cmp"
)

// indexes are derived from the tables: neither hashed nor in snapshots. The Put
// and Delete methods keep them.
type indexes struct {
	namespaceNames dict[string, NamespaceID]
	poolNames      dict[string, PoolID]
	nodeNames      dict[string, NodeID]
	gpuClassNames  dict[string, GPUClassID]
	quotaNames     dict[string, QuotaID]
	// quotaUsers counts the actions that have not ended by the quotas they name.
	quotaUsers dict[QuotaID, int]
	// freeCores, freeMemory and freeGPUs order the usable nodes of a pool for the
	// choice of one; shapes has the sizes of all of them.
	freeCores  set[coreRank]
	freeMemory set[memoryRank]
	freeGPUs   set[gpuRank]
	shapes     set[shape]
	// queue has the queued actions of every queue in FCFS order.
	queue    set[queued]
	queueLen dict[QueueKey, int]
	// queuedActions has all queued actions, those too that wait in no queue.
	queuedActions dict[ActionID, struct{}]
	// nsQueued counts the queued actions of a namespace.
	nsQueued dict[NamespaceID, int]
	// nsTrajectories counts the open trajectories of a namespace, and their memory.
	nsTrajectories dict[NamespaceID, Opened]
	// shares: namespaces share what they compete for, and the next four are kept. queueOf has the
	// queues by namespace too, heads the oldest of each namespace in each, waiting counts them by
	// what they compete for, held what their attempts hold.
	shares  bool
	queueOf set[queuedOf]
	heads   set[queueHead]
	waiting set[waitingOf]
	held    dict[NamespaceID, Held]
	// promised is what is promised to actions for which nodes are reserved; it is kept with those.
	promised dict[NamespaceID, Promised]
	// equipped is what actions need that have their quotas and wait for a node; it is kept with those.
	equipped set[equipped]
	// reserved has the nodes that are reserved for actions, by the namespaces of these.
	reserved set[reserved]
	// resumed has the attempts that wait to go on, by namespace, resumedCores the cores that they lack.
	resumed      set[resumed]
	resumedCores dict[NamespaceID, resumedCores]
	// Queued actions of a pool, those of them that wait for a quota, and those of the
	// trajectories of a node: whatever they wait for.
	poolQueued, poolForQuota dict[PoolID, int]
	nodeQueued               dict[NodeID, int]
	restoreNewest            int64 // log time of the newest part of a backup
	// pending has the trajectories that wait for a node.
	pending      set[pendingTrajectory]
	nodeAttempts set[nodeAttempt]
	hosted       set[hosted]
	// members has the kept actions of trajectories, live those that have not ended.
	members set[member]
	live    set[member]
	// requests has what the live actions of pending trajectories ask of a node, the most first.
	requests set[request]
	timers   set[timer]
	expiries set[expiry]
	// ended orders ended actions by when they did.
	ended set[ended]
	// usable counts the nodes of a pool that take work.
	usable dict[PoolID, int]
	// poolReferrers and nsReferrers count the rows that are of a pool, and of a
	// namespace.
	poolReferrers dict[PoolID, int]
	nsReferrers   dict[NamespaceID, int]
	// nsRequests counts the requests that are remembered of each namespace.
	nsRequests dict[NamespaceID, int]
	// nsClasses, nsPolicies and nsFileSnapshots count the classes and policies of each namespace, and
	// its snapshots of files that have not ended.
	nsClasses, nsPolicies, nsFileSnapshots dict[NamespaceID, int]
	// classNames has the classes by name, classLive how many actions of each have
	// not ended.
	classNames set[className]
	classLive  dict[ClassID, int]
	// groups counts the open trajectories that are spread, spreadLabels those of
	// them that have not ended by label, nsSpreadLabels by namespace and label, domains orders the
	// usable nodes by domain.
	groups         set[groupCount]
	spreadLabels   dict[string, int]
	nsSpreadLabels set[labelCount]
	domains        set[domainRank]
	// groupJobs has the jobs of each group and those that wait for one, jobTurns the
	// live turns of each job, waitingTurns those of each deployment that wait, and
	// heldTurns the turn of each job that holds a group.
	nodeGroupNames dict[string, GroupID]
	jobNames       set[jobName]
	groupJobs      set[groupJob]
	jobTurns       set[jobTurn]
	waitingTurns   set[waitingTurn]
	heldTurns      dict[JobID, TurnID]
	// hookActions has the groups whose hooks are queued or run, by the actions.
	hookActions dict[ActionID, GroupID]
	// memberNodes has the groups that have members on a node, by its name.
	memberNodes set[memberNode]

	// endpoints has the migrations that have not ended by each of their nodes,
	// trajectoryMigrations by their trajectories.
	endpoints            set[endpoint]
	trajectoryMigrations set[trajectoryMigration]
	endedMigrations      set[endedMigration]
	migrationCounts      MigrationCounts
	// nodeFileSnapshots has the snapshots of files that are on each node, endedFileSnapshots those of
	// which nothing is left, forks the open trajectories that began with one, by node.
	nodeFileSnapshots  set[nodeFileSnapshot]
	endedFileSnapshots dict[FileSnapshotID, struct{}]
	forks              set[fork]

	// policyWorkers has the workers of each policy, leavingWorkers those of them whose idle
	// trajectories go to others, workerDues those to which something happens by log time.
	policyWorkers, leavingWorkers set[policyWorker]
	workerDues                    set[workerDue]
	workerLoads                   dict[string, WorkerLoad]
	// policyGenerations counts the trajectories of each policy that have not ended.
	policyGenerations dict[string, int]
	// ownPredictions are the trajectories that go on and of which no predictor service has said
	// anything since their last turn.
	ownPredictions dict[TrajectoryID, struct{}]
	// workerGenerations has the trajectories of each worker, the other two those of each policy
	// that wait for one.
	workerGenerations  set[workerGeneration]
	waitingGenerations set[waitingGeneration]
	oldestGenerations  set[oldestGeneration]
	// lengthsLearned has the classes of lengths, the one that learned longest ago first.
	lengthsLearned set[learned]
	// policyRollouts has the rollouts of a policy that have not ended, completeGroups its groups
	// that wait for a step, begun counts members of a rollout by the version that they began
	// with. The others count by policy.
	policyRollouts                 set[policyRollout]
	endedRollouts                  set[endedRollout]
	completeGroups                 set[completeGroup]
	begun                          set[begun]
	policyComplete, policyBuffered dict[string, int]
	rolloutTotals                  RolloutTotals
	// rewardDues has the reward functions that are looked at again by log time, rewardReplicas
	// the replicas of each.
	rewardDues     set[rewardDue]
	rewardReplicas set[rewardReplica]

	// tokenHashes finds tokens by the hashes of their secrets, tokenDues has those that expire.
	tokenHashes dict[string, string]
	tokenDues   set[tokenDue]

	counts Counts
	// Bytes of the specs of queued actions, and of ended actions with results.
	queuedBytes, endedBytes uint64
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
		queue QueueKey
		id    ActionID
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
	// hosted is a trajectory that lives on a node.
	hosted struct {
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

// index is what is done alike with every index.
type index struct {
	name string
	make func(*indexes)
	// share says that a copy of the state has it too.
	share func(*indexes)
	same  func(x, y *indexes) bool
}

// ordered is an index that is a sorted set.
func ordered[T comparable](name string, of func(*indexes) *set[T], less func(a, b T) bool) index {
	return index{
		name:  name,
		make:  func(x *indexes) { *of(x) = newSet(less) },
		share: func(x *indexes) { of(x).shared = true },
		same:  func(x, y *indexes) bool { return sameItems(of(x), of(y)) },
	}
}

// mapped is an index that is a map.
func mapped[K cmp.Ordered, V comparable](name string, of func(*indexes) *dict[K, V]) index {
	return index{
		name:  name,
		make:  func(x *indexes) { *of(x) = newDict[K, V]() },
		share: func(x *indexes) { of(x).shared = true },
		same:  func(x, y *indexes) bool { return sameValues(of(x), of(y)) },
	}
}

// indexed lists all indexes.
var indexed = append([]index{
	mapped("namespaceNames", func(x *indexes) *dict[string, NamespaceID] { return &x.namespaceNames }),
	mapped("poolNames", func(x *indexes) *dict[string, PoolID] { return &x.poolNames }),
	mapped("nodeNames", func(x *indexes) *dict[string, NodeID] { return &x.nodeNames }),
	mapped("gpuClassNames", func(x *indexes) *dict[string, GPUClassID] { return &x.gpuClassNames }),
	mapped("quotaNames", func(x *indexes) *dict[string, QuotaID] { return &x.quotaNames }),
	mapped("quotaUsers", func(x *indexes) *dict[QuotaID, int] { return &x.quotaUsers }),
	ordered("freeCores", func(x *indexes) *set[coreRank] { return &x.freeCores }, coreRank.less),
	ordered("freeMemory", func(x *indexes) *set[memoryRank] { return &x.freeMemory }, memoryRank.less),
	ordered("freeGPUs", func(x *indexes) *set[gpuRank] { return &x.freeGPUs }, gpuRank.less),
	ordered("shapes", func(x *indexes) *set[shape] { return &x.shapes }, shape.less),
	ordered("queue", func(x *indexes) *set[queued] { return &x.queue }, queued.less),
	mapped("queueLen", func(x *indexes) *dict[QueueKey, int] { return &x.queueLen }),
	mapped("queuedActions", func(x *indexes) *dict[ActionID, struct{}] { return &x.queuedActions }),
	mapped("nsQueued", func(x *indexes) *dict[NamespaceID, int] { return &x.nsQueued }),
	mapped("nsTrajectories", func(x *indexes) *dict[NamespaceID, Opened] { return &x.nsTrajectories }),
	ordered("reserved", func(x *indexes) *set[reserved] { return &x.reserved }, reserved.less),
	ordered("resumed", func(x *indexes) *set[resumed] { return &x.resumed }, resumed.less),
	mapped("resumedCores", func(x *indexes) *dict[NamespaceID, resumedCores] { return &x.resumedCores }),
	mapped("poolQueued", func(x *indexes) *dict[PoolID, int] { return &x.poolQueued }),
	mapped("poolForQuota", func(x *indexes) *dict[PoolID, int] { return &x.poolForQuota }),
	mapped("nodeQueued", func(x *indexes) *dict[NodeID, int] { return &x.nodeQueued }),
	ordered("pending", func(x *indexes) *set[pendingTrajectory] { return &x.pending }, pendingTrajectory.less),
	ordered("nodeAttempts", func(x *indexes) *set[nodeAttempt] { return &x.nodeAttempts }, nodeAttempt.less),
	ordered("hosted", func(x *indexes) *set[hosted] { return &x.hosted }, hosted.less),
	ordered("members", func(x *indexes) *set[member] { return &x.members }, member.less),
	ordered("live", func(x *indexes) *set[member] { return &x.live }, member.less),
	ordered("requests", func(x *indexes) *set[request] { return &x.requests }, request.less),
	ordered("timers", func(x *indexes) *set[timer] { return &x.timers }, timer.less),
	ordered("expiries", func(x *indexes) *set[expiry] { return &x.expiries }, expiry.less),
	ordered("ended", func(x *indexes) *set[ended] { return &x.ended }, ended.less),
	mapped("usable", func(x *indexes) *dict[PoolID, int] { return &x.usable }),
	mapped("poolReferrers", func(x *indexes) *dict[PoolID, int] { return &x.poolReferrers }),
	mapped("nsReferrers", func(x *indexes) *dict[NamespaceID, int] { return &x.nsReferrers }),
	mapped("nsRequests", func(x *indexes) *dict[NamespaceID, int] { return &x.nsRequests }),
	mapped("nsClasses", func(x *indexes) *dict[NamespaceID, int] { return &x.nsClasses }),
	mapped("nsPolicies", func(x *indexes) *dict[NamespaceID, int] { return &x.nsPolicies }),
	mapped("nsFileSnapshots", func(x *indexes) *dict[NamespaceID, int] { return &x.nsFileSnapshots }),
	ordered("classNames", func(x *indexes) *set[className] { return &x.classNames }, className.less),
	mapped("classLive", func(x *indexes) *dict[ClassID, int] { return &x.classLive }),
	ordered("groups", func(x *indexes) *set[groupCount] { return &x.groups }, groupCount.less),
	mapped("spreadLabels", func(x *indexes) *dict[string, int] { return &x.spreadLabels }),
	ordered("nsSpreadLabels", func(x *indexes) *set[labelCount] { return &x.nsSpreadLabels }, labelCount.less),
	ordered("domains", func(x *indexes) *set[domainRank] { return &x.domains }, domainRank.less),
	mapped("nodeGroupNames", func(x *indexes) *dict[string, GroupID] { return &x.nodeGroupNames }),
	mapped("hookActions", func(x *indexes) *dict[ActionID, GroupID] { return &x.hookActions }),
	ordered("memberNodes", func(x *indexes) *set[memberNode] { return &x.memberNodes }, memberNode.less),
	ordered("endpoints", func(x *indexes) *set[endpoint] { return &x.endpoints }, endpoint.less),
	ordered("trajectoryMigrations", func(x *indexes) *set[trajectoryMigration] { return &x.trajectoryMigrations }, trajectoryMigration.less),
	ordered("endedMigrations", func(x *indexes) *set[endedMigration] { return &x.endedMigrations }, endedMigration.less),
	ordered("nodeFileSnapshots", func(x *indexes) *set[nodeFileSnapshot] { return &x.nodeFileSnapshots }, nodeFileSnapshot.less),
	mapped("endedFileSnapshots", func(x *indexes) *dict[FileSnapshotID, struct{}] { return &x.endedFileSnapshots }),
	ordered("forks", func(x *indexes) *set[fork] { return &x.forks }, fork.less),
	ordered("policyWorkers", func(x *indexes) *set[policyWorker] { return &x.policyWorkers }, policyWorker.less),
	ordered("leavingWorkers", func(x *indexes) *set[policyWorker] { return &x.leavingWorkers }, policyWorker.less),
	ordered("workerDues", func(x *indexes) *set[workerDue] { return &x.workerDues }, workerDue.less),
	mapped("policyGenerations", func(x *indexes) *dict[string, int] { return &x.policyGenerations }),
	mapped("ownPredictions", func(x *indexes) *dict[TrajectoryID, struct{}] { return &x.ownPredictions }),
	mapped("workerLoads", func(x *indexes) *dict[string, WorkerLoad] { return &x.workerLoads }),
	ordered("workerGenerations", func(x *indexes) *set[workerGeneration] { return &x.workerGenerations }, workerGeneration.less),
	ordered("waitingGenerations", func(x *indexes) *set[waitingGeneration] { return &x.waitingGenerations }, waitingGeneration.less),
	ordered("oldestGenerations", func(x *indexes) *set[oldestGeneration] { return &x.oldestGenerations }, oldestGeneration.less),
	ordered("lengthsLearned", func(x *indexes) *set[learned] { return &x.lengthsLearned }, learned.less),
	ordered("policyRollouts", func(x *indexes) *set[policyRollout] { return &x.policyRollouts }, policyRollout.less),
	ordered("endedRollouts", func(x *indexes) *set[endedRollout] { return &x.endedRollouts }, endedRollout.less),
	ordered("completeGroups", func(x *indexes) *set[completeGroup] { return &x.completeGroups }, completeGroup.less),
	ordered("begun", func(x *indexes) *set[begun] { return &x.begun }, begun.less),
	mapped("policyComplete", func(x *indexes) *dict[string, int] { return &x.policyComplete }),
	mapped("policyBuffered", func(x *indexes) *dict[string, int] { return &x.policyBuffered }),
	mapped("tokenHashes", func(x *indexes) *dict[string, string] { return &x.tokenHashes }),
	ordered("tokenDues", func(x *indexes) *set[tokenDue] { return &x.tokenDues }, tokenDue.less),
	ordered("rewardDues", func(x *indexes) *set[rewardDue] { return &x.rewardDues }, rewardDue.less),
	ordered("rewardReplicas", func(x *indexes) *set[rewardReplica] { return &x.rewardReplicas }, rewardReplica.less),
	ordered("jobNames", func(x *indexes) *set[jobName] { return &x.jobNames }, jobName.less),
	ordered("groupJobs", func(x *indexes) *set[groupJob] { return &x.groupJobs }, groupJob.less),
	ordered("jobTurns", func(x *indexes) *set[jobTurn] { return &x.jobTurns }, jobTurn.less),
	ordered("waitingTurns", func(x *indexes) *set[waitingTurn] { return &x.waitingTurns }, waitingTurn.less),
	mapped("heldTurns", func(x *indexes) *dict[JobID, TurnID] { return &x.heldTurns }),
}, shareIndexes...)

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
	if a.queue != b.queue {
		return a.queue < b.queue
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

func (a hosted) less(b hosted) bool {
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
