package state

import "cmp"

// actionOverhead is what a row costs beside its spec and result, in bytes.
const actionOverhead = 256

// needsOverhead is what each part of its needs costs.
const needsOverhead = 64

// Queue returns the queue an action waits in by its own row, or the room beside it: none
// while its trajectory has no node, then those of its quotas one after the other.
func (r *Action) Queue() Queue {
	if r.Aside {
		return r.queue().Aside()
	}
	return r.queue()
}

func (r *Action) queue() Queue {
	pinned, quota := r.Trajectory != 0, r.missing()
	switch {
	case r.Gang != 0 && r.ID != r.Gang: // its first member waits for all
		return Queue{}
	case r.Gang != 0:
		return QueueOf(GangQueue, r.Pool)
	case pinned && r.Node == 0:
		return Queue{}
	case quota != 0:
		return QueueOf(QuotaQueue, quota)
	case r.Needs.gpus() != nil:
		return QueueOfGPUs(r.Pool, r.Needs.GPUs.Class)
	case r.CoresMin == 0 && pinned:
		return QueueOf(NodeCorelessQueue, r.Node)
	case r.CoresMin == 0:
		return QueueOf(PoolCorelessQueue, r.Pool)
	case pinned:
		return QueueOf(NodeQueue, r.Node)
	}
	return QueueOf(PoolQueue, r.Pool)
}

func (r *Action) size() uint64 {
	n := actionOverhead + len(r.Spec) + len(r.Labels) + r.Needs.size()
	if r.Result != nil {
		n += len(r.Result.Stdout) + len(r.Result.Stderr) + len(r.Result.Message)
	}
	return uint64(n)
}

func (r *Needs) size() int {
	if r == nil {
		return 0
	}
	n := needsOverhead + 4*len(r.Cores) + 8*len(r.Quotas)
	if r.Profile != nil {
		n += needsOverhead + 16*len(r.Profile.Points)
	}
	if r.GPUs != nil {
		n += needsOverhead + len(r.GPUs.Model)
	}
	return n
}

// Cores returns all cores of the node, free or not.
func (r *Node) Cores() CoreSet {
	var all CoreSet
	for _, n := range r.NUMA {
		all = all.Union(n)
	}
	return all
}

// CoreCount returns how many cores the node has, free or not: its NUMA nodes share none.
func (r *Node) CoreCount() (n int) {
	for i := range r.NUMA {
		n += r.NUMA[i].Len()
	}
	return n
}

// Shape is what a node has in all. Many nodes of a pool have the same.
type Shape struct {
	Cores             int
	Memory, Bandwidth uint64
	GPUs              GPUs // Free is empty
	// Chunk is how many GPUs the largest chunk has of those that are not out of use.
	Chunk uint32
	// Containers: trajectories with a container may live there.
	Containers bool
}

// Shape returns what the node has in all.
func (r *Node) Shape() Shape {
	g := r.GPUs
	g.Free = 0
	return Shape{r.CoreCount(), r.Memory, r.Bandwidth, g, r.largestChunk(), r.Containers}
}

func (s *Shape) before(o *Shape) bool {
	return cmp.Or(cmp.Compare(o.Cores, s.Cores), cmp.Compare(o.Memory, s.Memory), cmp.Compare(o.Bandwidth, s.Bandwidth),
		cmp.Compare(s.GPUs.Class, o.GPUs.Class), cmp.Compare(o.GPUs.Count, s.GPUs.Count), cmp.Compare(o.GPUs.Memory, s.GPUs.Memory), cmp.Compare(o.Chunk, s.Chunk),
		compareFlags(o.Containers, s.Containers)) < 0
}

// compareFlags: what is not set comes first.
func compareFlags(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// Usable reports whether the node takes new trajectories and actions without
// one.
func (r *Node) Usable() bool { return r.State == NodeUp && !r.Draining }

func (r *Node) coreRank() coreRank { return coreRank{r.Pool, r.Available(), r.FreeMemory, r.ID} }

func (r *Node) memoryRank() memoryRank {
	cores := uint64(max(1, r.CoreCount()))
	return memoryRank{r.Pool, r.FreeMemory, MulDiv(uint64(r.Trajectories), 1_000_000, cores), r.ID}
}

// Meta returns the row of the whole cluster; the caller must not change it.
func (s *State) Meta() *Meta { return &s.meta }

// Namespace returns a namespace, nil if there is none.
func (s *State) Namespace(id NamespaceID) *Namespace { return db(s).namespaces.get(id) }

// NamespaceByName returns a namespace, nil if there is none.
func (s *State) NamespaceByName(name string) *Namespace {
	id, _ := db(s).index.namespaceNames.Get(name)
	return db(s).namespaces.get(id)
}

// Namespaces visits all namespaces in the order of creation.
func (s *State) Namespaces(fn func(*Namespace) bool) { db(s).namespaces.scan(0, fn) }

// Pool returns a pool, nil if there is none.
func (s *State) Pool(id PoolID) *Pool { return db(s).pools.get(id) }

// PoolByName returns a pool, nil if there is none.
func (s *State) PoolByName(name string) *Pool {
	id, _ := db(s).index.poolNames.Get(name)
	return db(s).pools.get(id)
}

// Pools visits all pools in the order of creation.
func (s *State) Pools(fn func(*Pool) bool) { db(s).pools.scan(0, fn) }

// Node returns a node, nil if there is none.
func (s *State) Node(id NodeID) *Node { return db(s).nodes.get(id) }

// NodeByName returns a node, nil if there is none.
func (s *State) NodeByName(name string) *Node {
	id, _ := db(s).index.nodeNames.Get(name)
	return db(s).nodes.get(id)
}

// Nodes visits the nodes with IDs greater than after.
func (s *State) Nodes(after NodeID, fn func(*Node) bool) { db(s).nodes.scan(after+1, fn) }

// Trajectory returns a trajectory, nil if there is none.
func (s *State) Trajectory(id TrajectoryID) *Trajectory { return db(s).trajectories.get(id) }

// Trajectories visits the trajectories with IDs greater than after.
func (s *State) Trajectories(after TrajectoryID, fn func(*Trajectory) bool) {
	db(s).trajectories.scan(after+1, fn)
}

// TrajectoriesDown visits the trajectories with IDs less than before, the greatest first.
func (s *State) TrajectoriesDown(before TrajectoryID, fn func(*Trajectory) bool) {
	db(s).trajectories.scanDown(before-1, fn)
}

// Action returns an action, nil if there is none.
func (s *State) Action(id ActionID) *Action { return db(s).actions.get(id) }

// Actions visits the actions with IDs greater than after.
func (s *State) Actions(after ActionID, fn func(*Action) bool) { db(s).actions.scan(after+1, fn) }

// ActionsDown visits the actions with IDs less than before, the greatest first.
func (s *State) ActionsDown(before ActionID, fn func(*Action) bool) {
	db(s).actions.scanDown(before-1, fn)
}

// QueuedActions visits the queued actions with IDs greater than after.
func (s *State) QueuedActions(after ActionID, fn func(*Action) bool) {
	db(s).index.queuedActions.Ascend(after+1, func(id ActionID, _ struct{}) bool { return fn(db(s).actions.get(id)) })
}

// QueuedActionsDown visits the queued actions with IDs less than before, the greatest first.
func (s *State) QueuedActionsDown(before ActionID, fn func(*Action) bool) {
	db(s).index.queuedActions.Descend(before-1, func(id ActionID, _ struct{}) bool { return fn(db(s).actions.get(id)) })
}

// NodeActions visits the actions that run on a node, with IDs greater than after.
func (s *State) NodeActions(node NodeID, after ActionID, fn func(*Action) bool) {
	db(s).index.nodeAttempts.Ascend(nodeAttempt{node, after + 1}, func(k nodeAttempt) bool {
		return k.node == node && fn(db(s).actions.get(k.action))
	})
}

// NodeActionsDown visits the actions that run on a node, with IDs less than before, the greatest
// first.
func (s *State) NodeActionsDown(node NodeID, before ActionID, fn func(*Action) bool) {
	db(s).index.nodeAttempts.Descend(nodeAttempt{node, before - 1}, func(k nodeAttempt) bool {
		return k.node == node && fn(db(s).actions.get(k.action))
	})
}

// TrajectoryActionsDown visits the kept actions of a trajectory with IDs less than before, the
// greatest first.
func (s *State) TrajectoryActionsDown(id TrajectoryID, before ActionID, fn func(*Action) bool) {
	db(s).index.members.Descend(member{id, before - 1}, func(m member) bool {
		return m.trajectory == id && fn(db(s).actions.get(m.action))
	})
}

// NodeTrajectories visits the trajectories that live on a node.
func (s *State) NodeTrajectories(node NodeID, fn func(*Trajectory) bool) {
	db(s).index.hosted.Ascend(hosted{node, 0}, func(k hosted) bool {
		return k.node == node && fn(db(s).trajectories.get(k.id))
	})
}

// TrajectoryActions visits the kept actions of a trajectory with IDs greater
// than after.
func (s *State) TrajectoryActions(id TrajectoryID, after ActionID, fn func(*Action) bool) {
	db(s).index.members.Ascend(member{id, after + 1}, func(m member) bool {
		return m.trajectory == id && fn(db(s).actions.get(m.action))
	})
}

// LiveActions returns the actions of a trajectory that have not ended.
func (s *State) LiveActions(id TrajectoryID) (out []*Action) {
	s.VisitLive(id, func(a *Action) bool {
		out = append(out, a)
		return true
	})
	return out
}

// VisitLive visits the actions of a trajectory that have not ended.
func (s *State) VisitLive(id TrajectoryID, fn func(*Action) bool) {
	db(s).index.live.Ascend(member{id, 0}, func(m member) bool {
		return m.trajectory == id && fn(db(s).actions.get(m.action))
	})
}

// Attempt returns the live attempt of an action on a node, nil if there is none.
func (s *State) Attempt(node NodeID, id ActionID) *Attempt {
	if a := db(s).attempts.get(id); a != nil && a.Node == node {
		return a
	}
	return nil
}

// Attempts visits the live attempts of a node in the order of their actions.
func (s *State) Attempts(node NodeID, fn func(*Attempt) bool) {
	db(s).index.nodeAttempts.Ascend(nodeAttempt{node, 0}, func(k nodeAttempt) bool {
		return k.node == node && fn(db(s).attempts.get(k.action))
	})
}

// Request returns what is remembered of a request ID, nil if nothing is.
func (s *State) Request(id string) *Request { return db(s).requests.get(id) }

// RequestCount returns how many request IDs are remembered.
func (s *State) RequestCount() int { return db(s).requests.rows.Len() }

// RequestsOf returns how many request IDs of a namespace are remembered.
func (s *State) RequestsOf(ns NamespaceID) int {
	n, _ := db(s).index.nsRequests.Get(ns)
	return n
}

// QueueLen returns how many actions wait in a queue.
func (s *State) QueueLen(q Queue) int {
	n, _ := db(s).index.queueLen.Get(q.Key())
	return n
}

// Waiting returns how many actions wait in a queue or beside it.
func (s *State) Waiting(q Queue) int { return s.QueueLen(q) + s.QueueLen(q.Aside()) }

// PoolQueued returns how many actions of a pool are queued, whatever they wait for,
// and how many of them wait for a quota and for GPUs.
func (s *State) PoolQueued(id PoolID) (all, forQuotas, forGPUs int) {
	all, _ = db(s).index.poolQueued.Get(id)
	forQuotas, _ = db(s).index.poolForQuota.Get(id)
	s.GPUClasses(func(c *GPUClass) bool {
		forGPUs += s.Waiting(QueueOfGPUs(id, c.ID))
		return true
	})
	return all, forQuotas, forGPUs
}

// NodeQueued returns how many actions of the trajectories of a node are queued,
// whatever they wait for.
func (s *State) NodeQueued(id NodeID) int {
	n, _ := db(s).index.nodeQueued.Get(id)
	return n
}

// Counts returns totals over the cluster.
func (s *State) Counts() Counts { return db(s).index.counts }

// QueuedBytes and EndedBytes return what queued and ended actions hold.
func (s *State) QueuedBytes() uint64 { return db(s).index.queuedBytes }

// EndedBytes returns how many bytes ended actions hold.
func (s *State) EndedBytes() uint64 { return db(s).index.endedBytes }

// FirstRevision returns the revision of the oldest event that is kept.
func (s *State) FirstRevision() uint64 { return db(s).events.first }

// Event returns the event with a revision, if it is kept.
func (s *State) Event(rev uint64) (Event, bool) {
	if rev < db(s).events.first || rev >= db(s).events.next {
		return Event{}, false
	}
	return *db(s).events.at(rev), true
}

// WorkLeft reports whether a queue is on the work list.
func (s *State) WorkLeft(q Queue) bool { return db(s).work.get(q.Key()) != nil }

// Work returns the first queue on the work list at or after a key.
func (s *State) Work(from QueueKey) (q Queue, ok bool) {
	db(s).work.scan(from, func(w *work) bool {
		q, ok = w.Queue.Queue(), true
		return false
	})
	return q, ok
}

// WorkCount returns how many queues are on the work list.
func (s *State) WorkCount() int { return db(s).work.rows.Len() }

// HasWork reports whether scheduling was left over for a later entry.
func (s *State) HasWork() bool { return db(s).work.rows.Len() > 0 }

// Timer returns the earliest timer.
func (s *State) Timer() (due int64, kind TimerKind, id uint64, ok bool) {
	t, ok := db(s).index.timers.Min()
	return t.due, t.kind, t.id, ok
}

// Expiry returns the request that is forgotten next.
func (s *State) Expiry() (due int64, id string, ok bool) {
	e, ok := db(s).index.expiries.Min()
	return e.due, e.id, ok
}

// OldestEnded returns the kept action that ended first, and when it did.
func (s *State) OldestEnded() (at int64, id ActionID, ok bool) {
	e, ok := db(s).index.ended.Min()
	return e.at, e.id, ok
}

// Queued visits the actions in a queue from one on, oldest first, whatever their
// namespaces.
func (s *State) Queued(q Queue, from ActionID, fn func(ActionID) bool) {
	db(s).index.queue.Ascend(queued{q.Key(), from}, func(k queued) bool { return k.queue == q.Key() && fn(k.id) })
}

// PendingTrajectory returns the first trajectory that waits for a node of the
// pool, with an ID of at least from. Those that were set aside are not among them.
func (s *State) PendingTrajectory(pool PoolID, from TrajectoryID) *Trajectory {
	return s.pendingFrom(pendingTrajectory{pool, false, from})
}

// AsideTrajectory returns the first trajectory of a pool that was set aside, with an
// ID of at least from.
func (s *State) AsideTrajectory(pool PoolID, from TrajectoryID) *Trajectory {
	return s.pendingFrom(pendingTrajectory{pool, true, from})
}

func (s *State) pendingFrom(from pendingTrajectory) *Trajectory {
	var hit pendingTrajectory
	db(s).index.pending.Ascend(from, func(p pendingTrajectory) bool {
		hit = p
		return false
	})
	if hit.pool != from.pool || hit.aside != from.aside {
		return nil
	}
	return db(s).trajectories.get(hit.id)
}

// UsableNodes returns how many nodes of a pool take new work.
func (s *State) UsableNodes(pool PoolID) int {
	n, _ := db(s).index.usable.Get(pool)
	return n
}

// NodesByFreeCores visits the usable nodes of a pool, most available cores first; among
// equals the one with the most free memory.
func (s *State) NodesByFreeCores(pool PoolID, fn func(*Node) bool) {
	db(s).index.freeCores.Ascend(coreRank{pool: pool, free: CoresPerNodeMax + 1}, func(k coreRank) bool {
		return k.pool == pool && fn(db(s).nodes.get(k.node))
	})
}

// NodesWith visits, in the order of NodesByFreeCores, the nodes with that many available
// cores and bytes of free memory. It takes a search for each number of cores,
// however many nodes lack the memory.
func (s *State) NodesWith(pool PoolID, cores int, memory uint64, fn func(*Node) bool) {
	at, more := coreRank{pool: pool, free: CoresPerNodeMax + 1}, true
	for more {
		more = false
		db(s).index.freeCores.Ascend(at, func(k coreRank) bool {
			if k.pool != pool || k.free < cores {
				return false
			}
			if k.memory < memory { // so have the others with as many cores
				at, more = coreRank{pool: pool, free: k.free - 1, memory: 1<<64 - 1}, true
				return false
			}
			return fn(db(s).nodes.get(k.node))
		})
	}
}

// NodesByFreeMemory visits the usable nodes of a pool, most free memory first;
// among equals the one with the fewest trajectories per core.
func (s *State) NodesByFreeMemory(pool PoolID, fn func(*Node) bool) {
	db(s).index.freeMemory.Ascend(memoryRank{pool: pool, free: 1<<64 - 1}, func(k memoryRank) bool {
		return k.pool == pool && fn(db(s).nodes.get(k.node))
	})
}

// Shapes visits the distinct sizes of a pool's nodes, up or not, most cores
// first.
func (s *State) Shapes(pool PoolID, fn func(*Shape) bool) {
	s.shapes(pool, func(k *shape) bool { return fn(&k.Shape) })
}

// UsableShapes visits those that a usable node has.
func (s *State) UsableShapes(pool PoolID, fn func(*Shape) bool) {
	s.shapes(pool, func(k *shape) bool { return k.usable == 0 || fn(&k.Shape) })
}

// CountedShapes visits the distinct sizes of a pool's nodes with how many nodes have it, or how
// many usable ones.
func (s *State) CountedShapes(pool PoolID, usable bool, fn func(shape *Shape, nodes int) bool) {
	s.shapes(pool, func(k *shape) bool {
		if usable {
			return k.usable == 0 || fn(&k.Shape, k.usable)
		}
		return fn(&k.Shape, k.nodes)
	})
}

// UsableAlike returns how many usable nodes of its pool have the shape of a node.
func (s *State) UsableAlike(n *Node) int {
	k, _ := db(s).index.shapes.Get(shape{pool: n.Pool, Shape: n.Shape()})
	return k.usable
}

func (s *State) shapes(pool PoolID, fn func(*shape) bool) {
	db(s).index.shapes.Ascend(shape{pool: pool, Shape: Shape{Cores: CoresPerNodeMax + 1}}, func(k shape) bool {
		return k.pool == pool && fn(&k)
	})
}
