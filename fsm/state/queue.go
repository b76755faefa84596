package state

// Queue is the key of something with work of its own to do: a queue of actions, turns or
// jobs that wait for one resource, or something that is torn down. Actions without cores
// of their own have queues of their own, so that they never wait behind actions that need
// cores. The zero Queue is none.
type Queue struct {
	Kind QueueKind
	// ID is the number of what the kind names; of GPUs it is the pool and the class.
	ID uint64
}

// QueueKind says what a queue is for. The numbers are in snapshots.
type QueueKind uint8

// Kinds of queues.
const (
	// PoolQueue has actions that any node of a pool may run.
	PoolQueue QueueKind = iota
	// NodeQueue has actions that are pinned to a node.
	NodeQueue
	// TrajectoryTeardown is the end of the actions of a closing trajectory.
	TrajectoryTeardown
	// QuotaQueue has actions that wait for a quota.
	QuotaQueue
	// GPUQueue has actions that wait for GPUs of a class of a pool.
	GPUQueue
	// PoolCorelessQueue has actions without cores that any node of a pool may run.
	PoolCorelessQueue
	// NodeCorelessQueue has actions without cores that are pinned to a node.
	NodeCorelessQueue
	// TurnQueue has turns that wait for a node group.
	TurnQueue
	// JobQueue has jobs that wait for a node group: there is one.
	JobQueue
	// TrajectoriesAside has the pending trajectories of a pool that no node in office
	// could ever hold.
	TrajectoriesAside
	// NodeTeardown is the end of what a lost node ran.
	NodeTeardown
	// NodeDivision is a node whose cores are to be divided again among what runs there.
	NodeDivision
	// GenerationQueue has the trajectories that wait for a worker: there is one.
	GenerationQueue
	// RolloutReview is a rollout whose groups are to be looked at: it was closed, or a version
	// was published.
	RolloutReview
	// GangQueue has the first actions of the gangs of a pool.
	GangQueue
	// GangTeardown is the end of a gang, by its first action: one of its members did not succeed.
	GangTeardown

	// NamespaceRoom is a namespace with limits that may hold more than before: actions of it may start,
	// and resumed ones go on.
	NamespaceRoom

	queueKinds // how many there are
)

// asideBit marks the kind of the room beside a queue.
const asideBit QueueKind = 1 << 7

// gpuClassBits is how many bits of a GPUQueue's ID the class has.
const gpuClassBits = 24

// QueueKey is a queue as one number, by which queues are stored and ordered: the kind is
// in the top byte, the ID below.
type QueueKey uint64

const queueKindShift = 56

// Key returns the key of the queue.
func (q Queue) Key() QueueKey { return QueueKey(q.Kind)<<queueKindShift | QueueKey(q.ID) }

// Queue returns the queue of a key.
func (k QueueKey) Queue() Queue {
	return Queue{QueueKind(k >> queueKindShift), uint64(k) & (1<<queueKindShift - 1)}
}

// QueueOf returns the queue of a kind for what has an ID. Not for GPUQueue.
func QueueOf[ID ~uint64 | ~uint32 | ~int](kind QueueKind, id ID) Queue {
	return Queue{kind, uint64(id)}
}

// QueueOfGPUs returns the queue of actions that wait for GPUs of a class of a pool.
func QueueOfGPUs(pool PoolID, class GPUClassID) Queue {
	return Queue{GPUQueue, uint64(pool)<<gpuClassBits | uint64(class)}
}

// GPUs returns the pool and the class of a GPUQueue.
func (q Queue) GPUs() (PoolID, GPUClassID) {
	return PoolID(q.ID >> gpuClassBits), GPUClassID(q.ID & (1<<gpuClassBits - 1))
}

// Aside is the room beside a queue. Actions that nothing in office could ever serve wait
// there, so that they hold up no others. They go back when that changes.
func (q Queue) Aside() Queue { return Queue{q.Kind | asideBit, q.ID} }

// Beside returns the queue that this is the room of, and whether it is a room. Else it
// returns the queue itself.
func (q Queue) Beside() (Queue, bool) { return Queue{q.Kind &^ asideBit, q.ID}, q.Kind&asideBit != 0 }

// known reports whether the queue is of a kind that exists.
func (q Queue) known() bool {
	q, _ = q.Beside()
	return q.Kind < queueKinds && (q.Kind != JobQueue && q.Kind != GenerationQueue || q.ID == 0)
}
