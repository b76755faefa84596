package state

import "cmp"

// Identifiers of rows. Zero means none.
type (
	// NamespaceID numbers a namespace in the order of creation.
	NamespaceID uint32
	// PoolID numbers a pool in the order of creation.
	PoolID uint32
	// NodeID numbers a node in the order of its first registration.
	NodeID uint32
	// ActionID orders actions by submission, over all namespaces.
	ActionID uint64
	// TrajectoryID orders trajectories by opening, over all namespaces.
	TrajectoryID uint64
)

// ActionState has the values of rota.v1.ActionState.
type ActionState uint8

// The life of an action. Those from Succeeded on are final.
const (
	ActionQueued ActionState = 1 + iota
	ActionRunning
	ActionSucceeded
	ActionFailed
	ActionCanceled
	ActionLost
	ActionExpired
)

// Final reports whether the action has ended.
func (s ActionState) Final() bool { return s >= ActionSucceeded }

// TrajectoryState has the values of rota.v1.TrajectoryState.
type TrajectoryState uint8

// The life of a trajectory.
const (
	TrajectoryPending TrajectoryState = 1 + iota
	TrajectoryOpen
	TrajectoryClosing
	TrajectoryClosed
	TrajectoryLost
)

// Ended reports whether the trajectory holds nothing any more.
func (s TrajectoryState) Ended() bool { return s >= TrajectoryClosed }

// NodeState has the values of rota.v1.NodeState.
type NodeState uint8

// A node is up while its lease is kept.
const (
	NodeUp NodeState = 1 + iota
	NodeDown
)

// EndReason has the values of rota.v1.EndReason.
type EndReason uint8

// Why an action or an attempt ended.
const (
	EndExited EndReason = 1 + iota
	EndSignaled
	EndOutOfMemory
	EndTimeout
	EndStartFailed
	EndCanceled
	EndTrajectoryEnded
	EndNodeLost
	EndSupervisorLost
	EndQueueTimeout
	EndGangEnded
)

// Natural reports whether an attempt came to its end by itself, well or not.
func (r EndReason) Natural() bool {
	return r == EndExited || r == EndSignaled || r == EndOutOfMemory
}

// Namespace separates the actions and trajectories of one user from another's.
type Namespace struct {
	ID   NamespaceID
	Name string
}

// Pool is a set of nodes that are scheduled together.
type Pool struct {
	ID   PoolID
	Name string
	// Halted says why scheduling stopped; empty while it runs.
	Halted string
}

// Label is one key and value of a node.
type Label struct{ Key, Value string }

// Node is a machine with an agent.
type Node struct {
	ID   NodeID
	Name string
	Pool PoolID
	// Incarnation fences everything that was granted before the newest
	// registration from nothing. Drawn from one counter for all nodes.
	Incarnation uint64
	// JournalID tells two agents with the same name apart.
	JournalID string
	State     NodeState
	// Draining: it gets no new work, since an operator said so or its disk is low.
	Draining bool
	Address  string
	Runtime  string
	Labels   []Label   // sorted by key
	NUMA     []CoreSet // disjoint
	Free     CoreSet   // cores that no attempt holds
	// Memory in bytes: all of it, and what neither trajectories nor actions
	// without one have reserved.
	Memory, FreeMemory uint64
	RegisteredAt       int64
	// Running counts its live attempts, Trajectories those that live on it.
	Running, Trajectories uint32
	// ReservedFor is the starved action this node is reserved for.
	ReservedFor ActionID
	GPUs        GPUs
	// Bandwidth of its network in bits a second: all of it, and what no attempt
	// holds.
	Bandwidth, FreeBandwidth uint64
	// LowDisk: the node has less free disk space than it is to leave. Drained: an operator
	// drains it besides, which counts only then. See SetDrains.
	LowDisk, Drained bool
	// Resizes: its agent can change the cores of attempts that run. Spare is how many cores
	// its attempts hold beyond their least, and can be taken from them.
	Resizes bool
	Spare   uint32
	// DividedAt is when its cores were divided last, DivideAt when they are to be divided
	// again, if nothing happens before; 0: then only.
	DividedAt, DivideAt int64
	// Withheld are the GPUs that turns have as members of groups; they are not free.
	Withheld GPUSet
	// Sick are the GPUs that its agent found broken, by their numbers; it may have failed to
	// say that they are well again. Disabled are those that an operator took out of use, which
	// a new incarnation does not change. Trusted are sick ones that an operator brought back.
	Sick, Disabled []GPUFault
	Trusted        GPUSet
	// CacheBytes is the size of its cache for KV caches, in memory and on disk; 0: it has none.
	CacheBytes uint64
	// Alone: ReservedFor goes before older actions too, as those may be of other namespaces.
	Alone bool
	// Containers: trajectories with a container may live on it.
	Containers bool
	// Thawing counts the attempts on it that wait for cores to go on with after a pause. While
	// there are any, no core is free or to spare.
	Thawing uint32
	// ShareAfterNS is the age from which attempts on it may share cores when others wait for
	// cores; 0: each core has one user. Shared are the cores that Sharing attempts share, with
	// SharedAnchor among them as long as there are any. See sharedcores.go.
	ShareAfterNS int64
	Shared       CoreSet
	Sharing      uint32
	SharedAnchor uint32
}

// Available returns how many cores the node can give to an attempt that starts: those that
// are free, and those that can be taken from what runs.
func (r *Node) Available() int { return r.Free.Len() + int(r.Spare) }

// KeptFrom reports whether the node is reserved for an action that goes before one.
func (r *Node) KeptFrom(id ActionID) bool {
	return r.ReservedFor != 0 && r.ReservedFor != id && (r.ReservedFor < id || r.Alone)
}

// OperatorDrains reports whether an operator gives the node no new work.
func (r *Node) OperatorDrains() bool {
	if r.LowDisk {
		return r.Drained
	}
	return r.Draining
}

// SetDrains says for which reasons the node gets no new work.
func (r *Node) SetDrains(operator, lowDisk bool) {
	r.Draining, r.LowDisk, r.Drained = operator || lowDisk, lowDisk, operator && lowDisk
}

// WaitsForMemory reports whether a trajectory waits for a node with the memory that it asks for. One that
// asks for none, as it has no environment, can do without a node.
func (r *Trajectory) WaitsForMemory() bool { return r.State == TrajectoryPending && r.Memory > 0 }

// NotIdle is the IdleSince of a trajectory that rota has wait: its idle timeout does not run.
const NotIdle = 1<<63 - 1

// Trajectory is a multi-turn session that keeps a node and memory.
type Trajectory struct {
	ID        TrajectoryID
	Namespace NamespaceID
	Pool      PoolID
	Node      NodeID // 0 while pending
	Name      string
	State     TrajectoryState
	// EndReason is why it is closing or has ended.
	EndReason EndReason
	Memory    uint64 // bytes
	// Live counts its queued and running actions.
	Live          uint32
	IdleTimeoutNS int64
	// IdleSince is the log time of its last sign of life; NotIdle while it waits for a node or a worker.
	IdleSince int64
	OpenedAt  int64
	EndedAt   int64
	Spread    Spread
	// While it is pending: the most cores and bits/s that one of its live actions asks
	// for. Its node has to have both.
	RequestedCores     uint32
	RequestedBandwidth uint64
	// Aside: it is pending, and no node that takes new work could ever hold it. It
	// holds up no others until there is such a node.
	Aside bool
	// Objective is what the cores of nodes are divided for, for its actions.
	Objective Objective
	// Spec is the encoded rota.v1.TrajectorySpec; empty: none. The state machine does not
	// read it. It is text so that rows can be compared.
	Spec string
	// Rollout and Group are its place in a rollout; 0: it has none.
	Rollout RolloutID
	Group   uint32
	// Labels are for finding it; the scheduler does not read them.
	Labels Labels
	// Deadline is the log time at which it closes, whatever it does, or is paused; 0: none.
	Deadline int64
	// Container: its node has to run containers.
	Container bool
	// Pauses counts how often it was paused. PausedAt is the log time at which it was paused last,
	// at least 1; 0: it is not.
	Pauses   uint32
	PausedAt int64
	// Snapshot is what its files began with, on the snapshot's node; 0: nothing.
	Snapshot FileSnapshotID
	// PauseNS is for how long it goes on until it is paused, each time, instead of closed, at its
	// deadline; 0: it closes then.
	PauseNS int64
}

// Paused reports whether what it runs is to be frozen, and what it has queued waits.
func (r *Trajectory) Paused() bool { return r.PausedAt != 0 }

// ClosesAt returns the log time at which it closes by itself, or is paused, if nothing happens
// before; 0: never.
func (r *Trajectory) ClosesAt() int64 {
	switch idle := Saturated(r.IdleSince, r.IdleTimeoutNS); {
	case r.State >= TrajectoryClosing || r.Paused():
		return 0
	case r.IdleTimeoutNS > 0 && r.IdleSince != NotIdle && r.Live == 0 && (r.Deadline == 0 || idle < r.Deadline):
		return idle
	}
	return r.Deadline
}

// PausesAtDeadline reports whether it is to be paused at its next time, and not closed.
func (r *Trajectory) PausesAtDeadline() bool { return r.PauseNS > 0 && r.ClosesAt() == r.Deadline }

// GroupKey returns the key of the group that it was opened for.
func (r *Trajectory) GroupKey() GroupKey { return KeyOfGroup(r.Rollout, r.Group) }

// TrajectorySpecBytesMax bounds the encoded specification of a trajectory.
const TrajectorySpecBytesMax = 4 << 10

// Objective is what a client wants to be short.
type Objective uint8

// Objectives.
const (
	ObjectiveMean Objective = iota // the mean time until an action completes
	ObjectiveStep                  // the time until the last trajectory of a step ends
)

// Action is one atomic use of resources.
type Action struct {
	ID         ActionID
	Namespace  NamespaceID
	Pool       PoolID
	Trajectory TrajectoryID
	State      ActionState
	CoresMin   uint32
	CoresMax   uint32
	Memory     uint64 // bytes, as asked for
	// AttemptsMax is 1 for an action that runs at most once.
	AttemptsMax uint32
	// Attempt is the number of the newest attempt. Node is where it was, or for an
	// action of a trajectory the trajectory's node, 0 while that is pending.
	Attempt uint32
	Node    NodeID
	// QueueDeadline is a log time; 0: none.
	QueueDeadline int64
	SubmittedAt   int64
	StartedAt     int64 // of the newest attempt
	EndedAt       int64
	// Bypassed counts the younger actions that started while this one, at the
	// head of its queue, did not fit; BlockedAt is when the first did.
	Bypassed  uint32
	BlockedAt int64
	// ReservedOn is the node that is reserved for it.
	ReservedOn NodeID
	// CancelReason is why the running attempt was told to stop; 0: it was not.
	CancelReason EndReason
	// Spec is an encoded rota.v1.ActionSpec, opaque to the state machine.
	Spec   []byte
	Result *Result // set with a final state
	// Revision of the newest event about the action.
	Revision uint64
	// Class is what it learns from and by; 0: nothing.
	Class ClassID
	// QuotasHeld is how many of the quotas that it needs it holds, from the first.
	QuotasHeld uint32
	Needs      *Needs // nil for most
	// QuotaKeys are the keys that the units it holds are of, from 0 on. They are
	// shared between versions of the row.
	QuotaKeys []uint32
	// Aside: it is queued, and waits in the room beside its queue (Queue.Aside).
	Aside bool
	// Fixed: it keeps the cores that it is started with.
	Fixed bool
	// SizeHint is how large it is, in a unit of its class; 0: unknown.
	SizeHint uint64
	// Used is what its last attempt said that it really used of quotas with a window, in the
	// order of QuotaID. From level 3 on.
	Used []QuotaUse
	// Gang is the first action of its gang; 0: it belongs to none. GangSpread: each member runs on
	// a node of its own. GangEndedBy is the member that did not succeed, for which this one was
	// ended.
	Gang        ActionID
	GangSize    uint32
	GangSpread  bool
	GangEndedBy ActionID
	// ChargedUS is what its namespace was charged for the units of each quota that it holds, in
	// unit-microseconds. From level 3 on; empty: nothing.
	ChargedUS []uint64
	// Labels are for finding it; the scheduler does not read them. Spec is without them.
	Labels Labels
}

// Resizable reports whether an action can do with other cores while it runs.
func (r *Action) Resizable() bool { return !r.Fixed && r.CoresMin < r.CoresMax && r.GPUs() == nil }

// Result is what the last attempt of an action left behind.
type Result struct {
	Reason     EndReason
	ExitCode   int32
	Signal     int32
	Message    string
	Stdout     []byte
	Stderr     []byte
	ExecNS     int64
	CPUNS      int64
	MemoryPeak uint64 // bytes
}

// Attempt is one live execution: it exists from the grant until its end is
// known.
type Attempt struct {
	Node        NodeID
	Action      ActionID
	Number      uint32
	Incarnation uint64 // of the node, at the grant
	Cores       CoreSet
	// Reserved is what it took from the node's free memory; Limit what its
	// processes may use. Bytes; a Limit of 0 means none.
	Reserved, Limit uint64
	Stop            bool
	StartedAt       int64
	// Chunk is the GPUs that it holds. SetUpNS is what it is charged for making its
	// model resident there, 0 if it was.
	Chunk   Chunk
	SetUpNS int64
	// Bandwidth that it holds of the node's, in bits a second.
	Bandwidth uint64
	// Least is how many cores it keeps in any case, if others may be taken from it or given
	// to it while it runs; 0: it keeps those that it has. Anchor is the core that it always
	// keeps, so that an agent that missed some changes has one to begin the next with.
	Least, Anchor uint32
	// CoreNS is what it had of cores before ResizedAt, in core nanoseconds, if it was resized.
	CoreNS    uint64
	ResizedAt int64 // 0: never
	// ChargedUS is what its namespace was charged for it when it began, in unit-microseconds; 0:
	// nothing.
	ChargedUS uint64
	// Ice is how far it is frozen, for the pause of its trajectory with the number Pause; that of
	// the last one if it runs, 0 if it was never paused. Width is how many cores it gave back when
	// it was frozen, and has to have again before it goes on.
	Ice   Ice
	Pause uint32
	Width uint32
	// Shares: it has no cores to itself, and runs on those that its node has shared.
	Shares bool
}

// Ice is how far an attempt is frozen.
type Ice uint8

// Degrees of it.
const (
	// IceNone: it runs.
	IceNone Ice = iota
	// IceWanted: its node is told to freeze it.
	IceWanted
	// IceFrozen: its node has frozen it. It holds no cores.
	IceFrozen
	// IceThawing: it is frozen and to go on. It collects cores as they become free.
	IceThawing
	// IceLimited: it is frozen and to go on, and its namespace may not have its cores yet. It
	// collects none.
	IceLimited

	iceMax = IceLimited
)

// Spare returns how many of its cores can be taken from it. From one that is being frozen none are: it
// gives all of them back soon, and a change would only put that off.
func (r *Attempt) Spare() uint32 {
	if r.Least == 0 || r.Ice != IceNone || r.Shares {
		return 0
	}
	return uint32(r.Cores.Len()) - r.Least
}

// Used returns what it has had of cores until a log time, in core nanoseconds. What it shares counts as
// the least that it has of that: SharersPerCore of them have one core.
func (r *Attempt) Used(now int64) uint64 {
	since := uint64(max(0, now-max(r.StartedAt, r.ResizedAt)))
	if r.Shares {
		return r.CoreNS + since/SharersPerCore
	}
	return r.CoreNS + uint64(r.Cores.Len())*since
}

// Verb says which kind of request an ID was used for.
type Verb uint8

// Verbs that are remembered by request ID.
const (
	VerbSubmit Verb = 1 + iota
	VerbOpenTrajectory
	VerbSubmitJob
	VerbAcquireTurn
	VerbRequestMigration
	VerbCreateRollout
	// VerbReportGenerations makes nothing: its first ID and its count are 1.
	VerbReportGenerations
	// VerbReportRewards is as that.
	VerbReportRewards
	VerbCreateSnapshot
)

// Request is the memory of an accepted request, kept until it expires.
type Request struct {
	ID      string
	Expires int64 // log time
	Verb    Verb
	// Digest is a hash of what was asked for.
	Digest  uint64
	FirstID uint64
	Count   uint32
	// Namespace is that of what was asked for; 0: it is of none, or the request was remembered below
	// LevelResizing.
	Namespace NamespaceID
}

// EventKind says what an event is about.
type EventKind uint8

// Kinds of events.
const (
	EventAction EventKind = 1 + iota
	EventTrajectory
	EventNode
	EventJob
	EventTurn
)

// Event is one state change, numbered without gaps over the whole cluster.
type Event struct {
	Revision   uint64
	Time       int64
	Subject    uint64 // ActionID, TrajectoryID or NodeID
	Trajectory TrajectoryID
	Namespace  NamespaceID
	Node       NodeID
	Attempt    uint32
	ExitCode   int32
	Kind       EventKind
	State      uint8 // ActionState, TrajectoryState or NodeState
	Reason     EndReason
}

// Settings are the limits that decisions depend on. Durations in nanoseconds.
type Settings struct {
	LeaseNS, LeaseMarginNS int64
	QueueActionsMax        uint32
	QueueBytesMax          uint64
	TrajectoriesMax        uint32
	RetentionNS            int64
	RetentionBytesMax      uint64
	EventsMax              uint32
	BypassMax              uint32
	BypassNSMax            int64
	RequestsMax            uint32
	// Of the ledger: the length of a slot, how many the horizon has, by how much
	// cycles may be stretched, for how much of its period a group may be held.
	LedgerSlotNS, LedgerSlots, LedgerStretchPPM, LedgerDutyPPM int64
	LedgerPolicy                                               PlacementPolicy
}

// Meta is the one row that is not in a table.
type Meta struct {
	ClusterID string
	Settings  Settings
	// Level is the active feature level, Release the name of the release that raised it
	// to that.
	Level   Level
	Release string
	// Now is log time in nanoseconds: it never goes back.
	Now int64
	// Revision is the number of the newest event.
	Revision        uint64
	LastAction      ActionID
	LastTrajectory  TrajectoryID
	LastIncarnation uint64
	LastNamespace   NamespaceID
	LastPool        PoolID
	LastNode        NodeID
	// WorkCursor is where the next round over the work list begins.
	WorkCursor QueueKey
	// Applied is the Raft index of the newest applied entry.
	Applied   uint64
	LastQuota QuotaID
	LastClass ClassID
	LastGroup GroupID
	LastJob   JobID
	LastTurn  TurnID
	// LastToken is the newest token of a turn.
	LastToken uint64
	// PlaceCursor is the queued job after which placing goes on.
	PlaceCursor JobID
	// PlacementHalted says why no jobs are placed; empty while they are.
	PlacementHalted string
	// Wall translates log times for people.
	Wall WallMarks
	// Placing is how far the search for a group has come.
	Placing Placing
	// LastGeneration is the newest generation of an engine's declaration.
	LastGeneration uint64
	LastMigration  MigrationID
	LastRollout    RolloutID
	// LastFileSnapshot is the newest snapshot of files.
	LastFileSnapshot FileSnapshotID
	// AccessEnabled: callers with tokens and JWTs are let in. AccessBootstraps is how often a
	// first token was created.
	AccessEnabled    bool
	AccessBootstraps uint64
	// Origin is where the state came from.
	Origin Origin
	nextMeta
}

// Placing is the search of the groups for a queued job, which takes several entries if
// there are many.
type Placing struct {
	Job JobID // 0: none is under way
	// Last is the group after which it goes on, Best the one that suits the job best, or
	// else came nearest, of those before.
	Last, Best GroupID
	// Again says that room has come free since the round of all queued jobs began, so
	// that there is to be another one.
	Again bool
}

// WithDefaults puts the defaults where a setting is zero.
func (r Settings) WithDefaults() Settings {
	const second, minute = 1_000_000_000, 60_000_000_000
	return Settings{
		LeaseNS:           cmp.Or(r.LeaseNS, 10*second),
		LeaseMarginNS:     cmp.Or(r.LeaseMarginNS, 2*second),
		QueueActionsMax:   cmp.Or(r.QueueActionsMax, 2_000_000),
		QueueBytesMax:     cmp.Or(r.QueueBytesMax, 1<<30),
		TrajectoriesMax:   cmp.Or(r.TrajectoriesMax, 200_000),
		RetentionNS:       cmp.Or(r.RetentionNS, 60*minute),
		RetentionBytesMax: cmp.Or(r.RetentionBytesMax, 256<<20),
		EventsMax:         cmp.Or(r.EventsMax, 1<<16),
		BypassMax:         cmp.Or(r.BypassMax, 64),
		BypassNSMax:       cmp.Or(r.BypassNSMax, 10*second),
		RequestsMax:       cmp.Or(r.RequestsMax, 2_000_000),
		LedgerSlotNS:      cmp.Or(r.LedgerSlotNS, second),
		LedgerSlots:       cmp.Or(r.LedgerSlots, 28_800),
		LedgerStretchPPM:  cmp.Or(r.LedgerStretchPPM, 50_000),
		LedgerDutyPPM:     cmp.Or(r.LedgerDutyPPM, 900_000),
		LedgerPolicy:      cmp.Or(r.LedgerPolicy, PolicySpread),
	}
}
