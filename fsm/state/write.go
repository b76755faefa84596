package state

import (
	"cmp"

	"fmt"
)

// Corruption is what a write panics with when it would break an invariant: the
// state can no longer be trusted, so the replica has to stop.
type Corruption struct{ Reason string }

func (c *Corruption) Error() string { return "replicated state is corrupt: " + c.Reason }

// Assert panics with a Corruption unless ok. Assertions run in production.
func Assert(ok bool, format string, args ...any) {
	if !ok {
		panic(&Corruption{fmt.Sprintf(format, args...)})
	}
}

// TimerKind says what happens when a timer is due.
type TimerKind uint8

// Kinds of timers. Request IDs and ended actions have indexes of their own.
const (
	// TimerQueue ends a queued action at its deadline.
	TimerQueue TimerKind = 1 + iota
	// TimerIdle closes an idle trajectory, or one whose deadline has come.
	TimerIdle
	// TimerDropTrajectory ends the retention of an ended trajectory.
	TimerDropTrajectory
	// TimerQuota gives units of a window back to their quota.
	TimerQuota
	// TimerGroup looks at the turns that wait for a group.
	TimerGroup
	// TimerTurn asks a holder to stop, or ends the retention of a turn.
	TimerTurn
	// TimerDropJob ends the retention of a completed job.
	TimerDropJob
	// TimerDivide has the cores of a node divided again.
	TimerDivide
	// TimerPause ends a pause of a quota.
	TimerPause
	// TimerMigration bounds the wait, the transfer and the retention of a migration.
	TimerMigration
	// TimerRollout ends the retention of a rollout.
	TimerRollout
)

// SetMeta replaces the row of the whole cluster.
func (s *State) SetMeta(m Meta) {
	raised := m.Level != s.meta.Level
	if s.meta = m; raised {
		s.keepShares()
	}
}

// PutNamespace stores a namespace.
func (s *State) PutNamespace(r *Namespace) {
	db(s).namespaces.put(db(s).enc, r.ID, r)
	db(s).index.namespaceNames.Set(r.Name, r.ID)
	s.keepShares()
}

// PutPool stores a pool.
func (s *State) PutPool(r *Pool) {
	db(s).pools.put(db(s).enc, r.ID, r)
	db(s).index.poolNames.Set(r.Name, r.ID)
}

// PutNode stores a node.
func (s *State) PutNode(r *Node) {
	old := db(s).nodes.put(db(s).enc, r.ID, r)
	if old == nil { // a node keeps its name
		db(s).index.nodeNames.Set(r.Name, r.ID)
	} else {
		s.refer(0, old.Pool, -1)
	}
	s.refer(0, r.Pool, 1)
	s.reindexNode(old, r)
}

// DeleteNode forgets a node.
func (s *State) DeleteNode(id NodeID) {
	if old := db(s).nodes.delete(id); old != nil {
		db(s).index.nodeNames.Delete(old.Name)
		s.refer(0, old.Pool, -1)
		s.reindexNode(old, nil)
	}
}

func (s *State) reindexNode(old, r *Node) {
	x := &db(s).index
	if old != nil && old.State == NodeUp {
		x.counts.NodesUp--
	}
	if r != nil && r.State == NodeUp {
		x.counts.NodesUp++
	}
	var was, is *Node
	if old != nil && old.Usable() {
		was = old
	}
	if r != nil && r.Usable() {
		is = r
	}
	if was == nil || is == nil || was.Pool != is.Pool {
		s.countUsable(was, -1)
		s.countUsable(is, 1)
	}
	move(&x.freeCores, was, is, (*Node).coreRank)
	move(&x.freeMemory, was, is, (*Node).memoryRank)
	move(&x.freeGPUs, was.withGPUs(), is.withGPUs(), (*Node).gpuRank)
	move(&db(s).index.timers, old.divided(), r.divided(), (*Node).divideTimer)
	s.reindexDomains(was, is)
	if old == nil || r == nil || (was == nil) != (is == nil) || !old.alike(r) {
		s.countShape(old, -1)
		s.countShape(r, 1)
	}
}

// divided is the node if it is to be divided at some time, else nil.
func (r *Node) divided() *Node {
	if r == nil || r.DivideAt == 0 {
		return nil
	}
	return r
}

func (r *Node) divideTimer() timer { return timer{r.DivideAt, TimerDivide, uint64(r.ID)} }

// alike reports whether two versions of a node bring the same to the same pool.
func (r *Node) alike(o *Node) bool { return r.Pool == o.Pool && r.Shape() == o.Shape() }

func (s *State) countUsable(r *Node, by int) {
	if r == nil {
		return
	}
	if n, _ := db(s).index.usable.Get(r.Pool); n+by == 0 {
		db(s).index.usable.Delete(r.Pool)
	} else {
		db(s).index.usable.Set(r.Pool, n+by)
	}
}

// move takes the key of one row out of an index and puts that of another in;
// nil has no key. Equal keys cost nothing.
func move[R any, K comparable](tree *set[K], was, is *R, key func(*R) K) {
	var from, to K
	if was != nil {
		from = key(was)
	}
	if is != nil {
		to = key(is)
	}
	if was != nil && is != nil && from == to {
		return
	}
	if was != nil {
		tree.Delete(from)
	}
	if is != nil {
		tree.Set(to)
	}
}

func (s *State) countShape(r *Node, by int) {
	if r == nil {
		return
	}
	k := shape{pool: r.Pool, Shape: r.Shape()}
	if old, ok := db(s).index.shapes.Get(k); ok {
		k.nodes, k.usable = old.nodes, old.usable
	}
	if r.Usable() {
		k.usable += by
	}
	if k.nodes += by; k.nodes == 0 {
		db(s).index.shapes.Delete(k)
	} else {
		db(s).index.shapes.Set(k)
	}
}

// PutTrajectory stores a trajectory.
func (s *State) PutTrajectory(r *Trajectory) {
	old := db(s).trajectories.put(db(s).enc, r.ID, r)
	if old != nil {
		s.unindexTrajectory(old)
	} else {
		s.refer(r.Namespace, r.Pool, 1)
	}
	s.reindexSpread(old, r)
	if r.State == TrajectoryPending {
		db(s).index.pending.Set(pendingTrajectory{r.Pool, r.Aside, r.ID})
	}
	s.indexFork(r, true)
	if !r.State.Ended() {
		db(s).index.counts.OpenTrajectories++
		s.countOpened(r, 1)
		if r.Node != 0 {
			db(s).index.hosted.Set(hosted{r.Node, r.ID})
		}
	}
	if t, ok := s.trajectoryTimer(r); ok {
		db(s).index.timers.Set(t)
	}
}

// DeleteTrajectory forgets a trajectory.
func (s *State) DeleteTrajectory(id TrajectoryID) {
	if old := db(s).trajectories.delete(id); old != nil {
		s.refer(old.Namespace, old.Pool, -1)
		s.unindexTrajectory(old)
		s.reindexSpread(old, nil)
	}
}

func (s *State) unindexTrajectory(r *Trajectory) {
	if r.State == TrajectoryPending {
		db(s).index.pending.Delete(pendingTrajectory{r.Pool, r.Aside, r.ID})
	}
	s.indexFork(r, false)
	if !r.State.Ended() {
		db(s).index.counts.OpenTrajectories--
		s.countOpened(r, -1)
		if r.Node != 0 {
			db(s).index.hosted.Delete(hosted{r.Node, r.ID})
		}
	}
	if t, ok := s.trajectoryTimer(r); ok {
		db(s).index.timers.Delete(t)
	}
}

func (s *State) trajectoryTimer(r *Trajectory) (timer, bool) {
	if r.State.Ended() {
		return timer{r.EndedAt + s.meta.Settings.RetentionNS, TimerDropTrajectory, uint64(r.ID)}, true
	}
	at := r.ClosesAt()
	return timer{at, TimerIdle, uint64(r.ID)}, at != 0
}

// PutAction stores an action.
func (s *State) PutAction(r *Action) {
	old := db(s).actions.put(db(s).enc, r.ID, r)
	s.countPromised(old, r)
	move(&db(s).index.reserved, old.reserving(), r.reserving(), (*Action).reserved)
	if old != nil {
		if s.sameIndexes(old, r) {
			return
		}
		s.unindexAction(old)
	} else {
		s.refer(r.Namespace, r.Pool, 1)
	}
	s.indexAction(r)
}

// sameIndexes reports whether a write changes nothing that indexes are made of.
func (s *State) sameIndexes(a, b *Action) bool {
	return a.State == b.State && a.Queue() == b.Queue() && !a.State.Final()
}

// DeleteAction forgets an ended action.
func (s *State) DeleteAction(id ActionID) {
	if old := db(s).actions.delete(id); old != nil {
		move(&db(s).index.reserved, old.reserving(), nil, (*Action).reserved)
		s.refer(old.Namespace, old.Pool, -1)
		s.unindexAction(old)
	}
}

func (s *State) indexAction(r *Action) {
	x := &db(s).index
	s.countUsers(r, 1)
	if !r.State.Final() {
		s.countLive(r.Class, 1)
	}
	if r.Trajectory != 0 {
		x.members.Set(member{r.Trajectory, r.ID})
		if !r.State.Final() {
			x.live.Set(member{r.Trajectory, r.ID})
		}
		r.eachRequest(x.requests.Set)
	}
	switch {
	case r.State == ActionQueued:
		s.countQueued(r, 1)
		x.queuedBytes += r.size()
		x.queuedActions.Set(r.ID, struct{}{})
		if q := r.Queue(); q != (Queue{}) {
			x.queue.Set(queued{q.Key(), r.ID})
			s.indexShare(r, q)
		}
		if r.QueueDeadline != 0 {
			x.timers.Set(timer{r.QueueDeadline, TimerQueue, uint64(r.ID)})
		}
	case r.State == ActionRunning:
		x.counts.Running++
	case r.State.Final():
		x.counts.Ended++
		x.endedBytes += r.size()
		x.ended.Set(ended{r.EndedAt, r.ID})
	}
}

func (s *State) unindexAction(r *Action) {
	x := &db(s).index
	s.countUsers(r, -1)
	if !r.State.Final() {
		s.countLive(r.Class, -1)
	}
	if r.Trajectory != 0 {
		x.members.Delete(member{r.Trajectory, r.ID})
		x.live.Delete(member{r.Trajectory, r.ID})
		r.eachRequest(x.requests.Delete)
	}
	switch {
	case r.State == ActionQueued:
		s.countQueued(r, -1)
		x.queuedBytes -= r.size()
		x.queuedActions.Delete(r.ID)
		if q := r.Queue(); q != (Queue{}) {
			x.queue.Delete(queued{q.Key(), r.ID})
			s.unindexShare(r, q)
		}
		if r.QueueDeadline != 0 {
			x.timers.Delete(timer{r.QueueDeadline, TimerQueue, uint64(r.ID)})
		}
	case r.State == ActionRunning:
		x.counts.Running--
	case r.State.Final():
		x.counts.Ended--
		x.endedBytes -= r.size()
		x.ended.Delete(ended{r.EndedAt, r.ID})
	}
}

func (s *State) countQueued(r *Action, by int) {
	x := &db(s).index
	x.counts.Queued += by
	count(&x.nsQueued, r.Namespace, by)
	count(&x.poolQueued, r.Pool, by)
	if r.Trajectory != 0 && r.Node != 0 {
		count(&x.nodeQueued, r.Node, by)
	}
	q := r.Queue()
	if q != (Queue{}) {
		count(&x.queueLen, q.Key(), by)
	}
	if beside, _ := q.Beside(); beside.Kind == QuotaQueue {
		count(&x.poolForQuota, r.Pool, by)
	}
}

// count adds to a counter, which is kept only while it is not zero: nodes, quotas
// and namespaces come and go.
func count[K cmp.Ordered](m *dict[K, int], k K, by int) {
	n, _ := m.Get(k)
	if n += by; n == 0 {
		m.Delete(k)
	} else {
		m.Set(k, n)
	}
}

// PutAttempt stores a live attempt.
func (s *State) PutAttempt(r *Attempt) {
	old := db(s).attempts.put(db(s).enc, r.Action, r)
	s.recountHeld(old, r)
	s.indexResumed(old, r)
	if old == nil || old.Node != r.Node {
		Assert(old == nil, "action %d has a live attempt on node %d already", r.Action, r.Node)
		db(s).index.nodeAttempts.Set(nodeAttempt{r.Node, r.Action})
	}
}

// DeleteAttempt removes an attempt whose end is known.
func (s *State) DeleteAttempt(id ActionID) {
	if old := db(s).attempts.delete(id); old != nil {
		s.countHeld(old, -1)
		s.indexResumed(old, nil)
		db(s).index.nodeAttempts.Delete(nodeAttempt{old.Node, id})
	}
}

// PutRequest remembers a request.
func (s *State) PutRequest(r *Request) {
	old := db(s).requests.put(db(s).enc, r.ID, r)
	if old != nil {
		db(s).index.expiries.Delete(expiry{old.Expires, old.ID})
	}
	db(s).index.expiries.Set(expiry{r.Expires, r.ID})
	s.countRequest(old, -1)
	s.countRequest(r, 1)
}

// DeleteRequest forgets a request.
func (s *State) DeleteRequest(id string) {
	if old := db(s).requests.delete(id); old != nil {
		db(s).index.expiries.Delete(expiry{old.Expires, old.ID})
		s.countRequest(old, -1)
	}
}

func (s *State) countRequest(r *Request, by int) {
	if r != nil {
		tally(&db(s).index.nsRequests, r.Namespace, by)
	}
}

// PutWork puts a queue on the work list that later entries continue. One that is there
// stays as it is.
func (s *State) PutWork(q Queue) {
	if !s.WorkLeft(q) {
		s.PutWorkAfter(q, 0)
	}
}

// PutWorkAfter puts a queue on the work list, to go on behind an ID.
func (s *State) PutWorkAfter(q Queue, after uint64) {
	db(s).work.put(db(s).enc, q.Key(), &work{q.Key(), after})
}

// WorkAfter returns the ID behind which the work of a queue goes on.
func (s *State) WorkAfter(q Queue) uint64 {
	if w := db(s).work.get(q.Key()); w != nil {
		return w.After
	}
	return 0
}

// DeleteWork takes a queue off the work list.
func (s *State) DeleteWork(q Queue) { db(s).work.delete(q.Key()) }

// Park sets a queue aside whose pool is halted.
func (s *State) Park(q Queue) { db(s).parked.put(db(s).enc, q.Key(), &work{Queue: q.Key()}) }

// Unpark puts all parked queues back on the work list.
func (s *State) Unpark() {
	for _, k := range db(s).parked.rows.Keys() {
		db(s).parked.delete(k)
		s.PutWork(k.Queue())
	}
}

// AddEvent numbers an event and appends it to the ring.
func (s *State) AddEvent(e Event) uint64 {
	s.meta.Revision++
	e.Revision, e.Time = s.meta.Revision, s.meta.Now
	db(s).events.push(db(s).enc, e, s.meta.Settings.EventsMax)
	return e.Revision
}
