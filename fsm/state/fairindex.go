package state

import (
	"cmp"
)

type (
	// queuedOf orders what waits in a queue by namespace, and then by age.
	queuedOf struct {
		queue     QueueKey
		namespace NamespaceID
		id        ActionID
	}
	// waitingOf counts the queued actions of a namespace by the resource that they compete for.
	waitingOf struct {
		namespace NamespaceID
		resource  QueueKey
		actions   int
	}
	// queueHead is the oldest action of a namespace in a queue.
	queueHead struct {
		namespace NamespaceID
		id        ActionID
		queue     QueueKey
	}
)

// reserved is a node that is reserved for an action of a namespace.
type reserved struct {
	namespace NamespaceID
	node      NodeID
	action    ActionID
}

func (a reserved) less(b reserved) bool {
	return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.node, b.node), cmp.Compare(a.action, b.action)) < 0
}

func (r *Action) reserved() reserved { return reserved{r.Namespace, r.ReservedOn, r.ID} }

// reserving is the action if it has a node reserved, else nil.
func (r *Action) reserving() *Action {
	if r == nil || r.ReservedOn == 0 {
		return nil
	}
	return r
}

// Reserving returns the actions of a namespace that have a node reserved, in the order of the nodes.
func (s *State) Reserving(ns NamespaceID) (ids []ActionID) {
	db(s).index.reserved.Ascend(reserved{namespace: ns}, func(k reserved) bool {
		if k.namespace == ns {
			ids = append(ids, k.action)
		}
		return k.namespace == ns
	})
	return ids
}

func (a queuedOf) less(b queuedOf) bool {
	if a.queue != b.queue {
		return a.queue < b.queue
	}
	if a.namespace != b.namespace {
		return a.namespace < b.namespace
	}
	return a.id < b.id
}

func (a queueHead) less(b queueHead) bool {
	return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.id, b.id)) < 0
}

func (a waitingOf) less(b waitingOf) bool {
	return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.resource, b.resource)) < 0
}

// shareIndexes are those by namespace. They are kept only while namespaces share: with a single
// namespace and no settings, every submission would pay for what no pass reads.
var shareIndexes = []index{
	ordered("queueOf", func(x *indexes) *set[queuedOf] { return &x.queueOf }, queuedOf.less),
	ordered("heads", func(x *indexes) *set[queueHead] { return &x.heads }, queueHead.less),
	ordered("waiting", func(x *indexes) *set[waitingOf] { return &x.waiting }, waitingOf.less),
	mapped("held", func(x *indexes) *dict[NamespaceID, Held] { return &x.held }),
	mapped("promised", func(x *indexes) *dict[NamespaceID, Promised] { return &x.promised }),
	ordered("equipped", func(x *indexes) *set[equipped] { return &x.equipped }, equipped.less),
}

// keepShares builds the indexes by namespace when namespaces begin to share, which takes a walk
// over all that is queued and runs, and drops them when namespaces no longer share.
func (s *State) keepShares() {
	x := &db(s).index
	shares := s.Shares() || s.AnySettings()
	if shares == x.shares {
		return
	}
	x.shares = shares
	for _, i := range shareIndexes {
		i.make(x)
	}
	if !shares {
		return
	}
	x.queue.Scan(func(k queued) bool {
		a := db(s).actions.get(k.id)
		s.indexShare(a, k.queue.Queue())
		s.countPromised(nil, a)
		return true
	})
	db(s).attempts.scan(0, func(r *Attempt) bool {
		s.countHeld(r, 1)
		return true
	})
}

// indexShare indexes an action by namespace that is in a queue.
func (s *State) indexShare(r *Action, q Queue) {
	if !db(s).index.shares {
		return
	}
	s.countWaiting(r, 1)
	old := s.head(q, r.Namespace)
	db(s).index.queueOf.Set(queuedOf{q.Key(), r.Namespace, r.ID})
	s.moveHead(q, r.Namespace, old)
}

func (s *State) unindexShare(r *Action, q Queue) {
	if !db(s).index.shares {
		return
	}
	s.countWaiting(r, -1)
	old := s.head(q, r.Namespace)
	db(s).index.queueOf.Delete(queuedOf{q.Key(), r.Namespace, r.ID})
	s.moveHead(q, r.Namespace, old)
}

// head is the oldest action of a namespace in a queue, 0 if there is none.
func (s *State) head(q Queue, ns NamespaceID) (first ActionID) {
	s.QueuedOf(q, ns, 0, func(id ActionID) bool {
		first = id
		return false
	})
	return first
}

// moveHead notes which action of a namespace is the oldest in a queue now. Those set aside wait for
// a node, not for the namespace.
func (s *State) moveHead(q Queue, ns NamespaceID, old ActionID) {
	x := &db(s).index
	id := s.head(q, ns)
	if _, aside := q.Beside(); aside || id == old {
		return
	}
	if old != 0 {
		x.heads.Delete(queueHead{namespace: ns, id: old})
	}
	if id != 0 {
		x.heads.Set(queueHead{ns, id, q.Key()})
	}
}

// NextHead returns the next queue in which actions of a namespace wait, ordered by the oldest of
// them, with that action: the first that is younger than a given one. Actions set aside do not count.
func (s *State) NextHead(ns NamespaceID, after ActionID) (id ActionID, q Queue, ok bool) {
	db(s).index.heads.Ascend(queueHead{namespace: ns, id: after + 1}, func(k queueHead) bool {
		if ok = k.namespace == ns; ok {
			id, q = k.id, k.queue.Queue()
		}
		return false
	})
	return id, q, ok
}

// Held is what the running actions of a namespace hold.
type Held struct {
	Running, Cores, GPUs int
	// Memory in bytes is that of its open trajectories, too.
	Memory uint64
	// Resuming are the cores that resumed actions lack and may have, Limited those of resumed
	// actions that wait for a limit. New actions get none of them.
	Resuming, Limited int
	// Promised is what queued actions need for which nodes are reserved: the others of the namespace
	// leave it to them, or a node could stay reserved for an action that may not start.
	Promised Promised
}

// Promised is what actions with a reservation need at least.
type Promised struct {
	Running, Cores, GPUs int
	Memory               uint64 // bytes
}

// Plus adds what an action needs, with all of its gang, or takes it out again.
func (p Promised) Plus(a *Action, by int) Promised {
	n := by * max(1, int(a.GangSize))
	p.Running += n
	p.Cores += n * int(a.CoresMin)
	if a.Trajectory == 0 {
		p.Memory += uint64(n) * a.Memory
	}
	if g := a.GPUs(); g != nil {
		p.GPUs += n * int(g.Degrees[0])
	}
	return p
}

// Sum is what two groups of actions need together.
func (p Promised) Sum(o Promised) Promised {
	return Promised{Running: p.Running + o.Running, Cores: p.Cores + o.Cores, GPUs: p.GPUs + o.GPUs, Memory: p.Memory + o.Memory}
}

// reserves: nodes are reserved for the action. The first of a gang stands for all.
func (r *Action) reserves() bool {
	return r.State == ActionQueued && r.ReservedOn != 0 && (r.Gang == 0 || r.Gang == r.ID)
}

// equipped: the action has all its units of quotas, and waits for a node that is not reserved for it.
func (r *Action) equipped() bool {
	return r.State == ActionQueued && !r.Aside && r.ReservedOn == 0 && r.QuotasHeld > 0 && r.missing() == 0
}

// countPromised counts an action in place of the row before; nil: there was none.
func (s *State) countPromised(old, r *Action) {
	if x := &db(s).index; x.shares {
		countIf(old, r, (*Action).reserves, x.countReserves)
		countIf(old, r, (*Action).equipped, x.countEquipped)
	}
}

// countIf counts an action in place of the row before, where a condition is met.
func countIf(old, r *Action, met func(*Action) bool, count func(a *Action, by int)) {
	switch was, is := old != nil && met(old), met(r); {
	case is && !was:
		count(r, 1)
	case was && !is:
		count(old, -1)
	}
}

func (x *indexes) countReserves(a *Action, by int) {
	p, _ := x.promised.Get(a.Namespace)
	if p = p.Plus(a, by); p == (Promised{}) {
		x.promised.Delete(a.Namespace)
	} else {
		x.promised.Set(a.Namespace, p)
	}
}

// equipped is what actions of a namespace and a pool need that have all their units of quotas, counted
// for each of these quotas.
type equipped struct {
	namespace NamespaceID
	quota     QuotaID
	pool      PoolID
	needs     Promised
}

func (a equipped) less(b equipped) bool {
	return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.quota, b.quota), cmp.Compare(a.pool, b.pool)) < 0
}

func (x *indexes) countEquipped(a *Action, by int) {
	for _, use := range a.Needs.Quotas {
		k := equipped{namespace: a.Namespace, quota: use.Quota, pool: a.Pool}
		old, _ := x.equipped.Get(k)
		if k.needs = old.needs.Plus(a, by); k.needs == (Promised{}) {
			x.equipped.Delete(k)
		} else {
			x.equipped.Set(k)
		}
	}
}

// HeldWithUnits is HeldBy, and what queued actions need at least that have units of a quota and wait for a
// node: no others of the namespace get units of the quota that these leave no room for. In a pool that is
// halted they wait for an operator, and do not count.
func (s *State) HeldWithUnits(id NamespaceID, quota QuotaID) Held {
	h := s.HeldBy(id)
	db(s).index.equipped.Ascend(equipped{namespace: id, quota: quota}, func(k equipped) bool {
		if k.namespace != id || k.quota != quota {
			return false
		}
		if s.Pool(k.pool).Halted == "" {
			h.Promised = h.Promised.Sum(k.needs)
		}
		return true
	})
	return h
}

// countWaiting counts a queued action.
func (s *State) countWaiting(r *Action, by int) {
	k := waitingOf{namespace: r.Namespace, resource: r.Resource().Key()}
	if r.Resource() == (Queue{}) {
		return
	}
	old, _ := db(s).index.waiting.Get(k)
	if k.actions = old.actions + by; k.actions == 0 {
		db(s).index.waiting.Delete(k)
	} else {
		db(s).index.waiting.Set(k)
	}
}

// Waits reports whether actions of a namespace wait for a resource that it shares.
func (s *State) Waits(id NamespaceID, resource Queue) bool {
	_, waits := db(s).index.waiting.Get(waitingOf{namespace: id, resource: resource.Key()})
	return waits
}

// NamespaceQueued returns how many actions of a namespace are queued.
func (s *State) NamespaceQueued(id NamespaceID) int {
	n, _ := db(s).index.nsQueued.Get(id)
	return n
}

// Opened is what the open trajectories of a namespace are and reserve: bytes, and those of the ones
// that have a node.
type Opened struct {
	Trajectories   int
	Memory, Placed uint64
}

// Opened returns what the open trajectories of a namespace are and reserve.
func (s *State) Opened(id NamespaceID) Opened {
	o, _ := db(s).index.nsTrajectories.Get(id)
	return o
}

// countOpened counts an open trajectory.
func (s *State) countOpened(r *Trajectory, by int) {
	o := s.Opened(r.Namespace)
	o.Trajectories += by
	o.Memory += uint64(by) * r.Memory
	if r.Node != 0 {
		o.Placed += uint64(by) * r.Memory
	}
	if o == (Opened{}) {
		db(s).index.nsTrajectories.Delete(r.Namespace)
	} else {
		db(s).index.nsTrajectories.Set(r.Namespace, o)
	}
}

// QueueNamespaces visits the namespaces of which actions wait in a queue that they share. It takes a
// search for each.
func (s *State) QueueNamespaces(q Queue, fn func(NamespaceID) bool) {
	for from := (queuedOf{queue: q.Key()}); ; {
		var hit queuedOf
		db(s).index.queueOf.Ascend(from, func(k queuedOf) bool {
			hit = k
			return false
		})
		if hit.id == 0 || hit.queue != q.Key() || !fn(hit.namespace) {
			return
		}
		from.namespace = hit.namespace + 1
	}
}

// QueuedOf visits the actions of a namespace in a queue from one on, oldest first.
func (s *State) QueuedOf(q Queue, id NamespaceID, from ActionID, fn func(ActionID) bool) {
	db(s).index.queueOf.Ascend(queuedOf{q.Key(), id, from}, func(k queuedOf) bool {
		return k.queue == q.Key() && k.namespace == id && fn(k.id)
	})
}

// HeldBy returns what the running actions of a namespace hold. It takes a walk over the nodes while
// there is only one namespace. Below the feature level of shares, it is not known of several.
func (s *State) HeldBy(id NamespaceID) (h Held) {
	switch {
	case db(s).index.shares:
		h, _ = db(s).index.held.Get(id)
		h.Memory += s.Opened(id).Memory
		h.Promised, _ = db(s).index.promised.Get(id)
		s.addResumed(&h, id)
		return h
	case s.NamespaceCount() > 1:
		return Held{}
	}
	s.addResumed(&h, id)
	h.Running = s.Counts().Running
	h.Memory = s.Opened(id).Memory - s.Opened(id).Placed
	s.Nodes(0, func(n *Node) bool {
		h.Cores += n.Cores().Minus(n.Free).Len()
		h.Memory += n.Memory - n.FreeMemory
		if n.GPUs != (GPUs{}) && n.Running > 0 {
			s.Attempts(n.ID, func(r *Attempt) bool {
				h.GPUs += int(r.Chunk.Units)
				return true
			})
		}
		return true
	})
	return h
}

// countHeld counts what an attempt holds.
func (s *State) countHeld(r *Attempt, by int) {
	if !db(s).index.shares {
		return
	}
	a := db(s).actions.get(r.Action)
	if a == nil {
		return // only rows that are made up have no action
	}
	h, _ := db(s).index.held.Get(a.Namespace)
	h.Running += by
	h.Cores += by * r.Cores.Len()
	h.GPUs += by * int(r.Chunk.Units)
	h.Memory += uint64(by) * r.Reserved
	if h == (Held{}) {
		db(s).index.held.Delete(a.Namespace)
	} else {
		db(s).index.held.Set(a.Namespace, h)
	}
}

// recountHeld counts an attempt in place of the row before; nil: there was none.
func (s *State) recountHeld(old, r *Attempt) {
	if old != nil && old.Cores == r.Cores && old.Chunk == r.Chunk {
		return
	}
	if old != nil {
		s.countHeld(old, -1)
	}
	s.countHeld(r, 1)
}
