package fsm

import (
	"rota/fsm/state"
	"rota/sched"
	"rota/sched/place"
)

// schedule works through the dirty instances and then the work list, until the
// budget is spent. What is left stays on the work list.
func (x *execution) schedule() {
	cursor := x.s.Meta().WorkCursor
	for round := x.s.WorkCount(); round > 0; round-- {
		i, ok := x.s.Work(cursor)
		if !ok {
			if i, ok = x.s.Work(0); !ok {
				break
			}
		}
		x.dirty.add(i)
		cursor = i + 1
	}
	for x.budget > 0 {
		i, ok := x.dirty.pop()
		if !ok {
			break
		}
		x.attend(i)
	}
	for _, i := range x.dirty.items {
		x.s.PutWork(i)
		cursor = min(cursor, i)
	}
	if m := *x.s.Meta(); m.WorkCursor != cursor {
		m.WorkCursor = cursor
		x.s.SetMeta(m)
	}
}

// attend does what one instance has to do, as far as the budget goes. An
// instance of a halted pool is parked until an operator resumes the pool; that of a
// halted quota is left alone.
func (x *execution) attend(i state.Instance) {
	pool := x.poolOf(i)
	if p := x.s.Pool(pool); p != nil && p.Halted != "" {
		x.s.DeleteWork(i)
		x.s.Park(i)
		return
	}
	if x.halted(i) {
		x.s.DeleteWork(i) // it is looked at again when it is resumed
		return
	}
	x.enter(stage{command: -1, pool: pool, quota: quotaOf(i), group: groupOf(i), placement: i.Placement()})
	if x.work(i) {
		x.s.PutWork(i)
	} else if x.s.WorkLeft(i) {
		x.s.DeleteWork(i)
	}
}

// halted reports whether an operator has to resume what an instance is about. Pools
// are another matter: what they have to do is parked.
func (x *execution) halted(i state.Instance) bool {
	q, g := x.s.Quota(quotaOf(i)), x.s.NodeGroup(groupOf(i))
	return q != nil && q.Halted != "" || g != nil && g.Halted != "" || i.Placement() && x.s.Meta().PlacementHalted != ""
}

// work does what an instance has to do, and reports whether there is more.
func (x *execution) work(i state.Instance) (more bool) {
	if id, ok := i.EndingTrajectory(); ok {
		return x.tearDownTrajectory(id)
	}
	if id, ok := i.EndingNode(); ok {
		n := x.s.Node(id)
		return n != nil && n.State == state.NodeDown && !x.tearDownNode(n, "its node was lost")
	}
	if id, ok := i.NodeGroup(); ok {
		x.nextTurn(id)
		return false
	}
	if i.Placement() {
		return x.placeJobs()
	}
	if pool, ok := i.AsideTrajectories(); ok {
		return x.recallTrajectories(pool)
	}
	if _, room := i.BesideQueue(); room {
		return x.lookAside(i)
	}
	return x.pass(i)
}

func quotaOf(i state.Instance) state.QuotaID {
	i, _ = i.BesideQueue()
	if id, ok := i.Quota(); ok {
		return id
	}
	return 0
}

func groupOf(i state.Instance) state.GroupID {
	if id, ok := i.NodeGroup(); ok {
		return id
	}
	return 0
}

// poolOf returns the pool of an instance. Quotas have none: actions of all pools
// wait for them.
func (x *execution) poolOf(i state.Instance) state.PoolID {
	i, _ = i.BesideQueue()
	if id, ok := i.AsideTrajectories(); ok {
		return id
	}
	if id, ok := i.Pool(); ok {
		return id
	}
	if id, _, ok := i.GPU(); ok {
		return id
	}
	if id, ok := i.CorelessPool(); ok {
		return id
	}
	node, ok := i.Node()
	if coreless, also := i.CorelessNode(); also {
		node, ok = coreless, true
	}
	if ending, also := i.EndingNode(); also {
		node, ok = ending, true
	}
	if n := x.s.Node(node); ok && n != nil {
		return n.Pool
	}
	if id, ok := i.EndingTrajectory(); ok {
		if t := x.s.Trajectory(id); t != nil {
			return t.Pool
		}
	}
	return 0
}

// deciders are the schedulers of the feature levels that a machine knows, that of
// state.LevelMin first.
type deciders []sched.Scheduler

// newest is the newest level that is known.
func (k deciders) newest() state.Level { return state.LevelMin + state.Level(len(k)) - 1 }

// mustKnow stops the replica if a level is not known: what follows cannot be applied
// here.
func (k deciders) mustKnow(level state.Level, release string) {
	if err := state.CheckLevel(level, release, k.newest()); err != nil {
		panic(err)
	}
}

// active returns the scheduler of the active level, whatever newer ones are known.
func (k deciders) active(s *state.State) sched.Scheduler {
	return k[s.Meta().Level-state.LevelMin]
}

// pass runs the active scheduler over one queue and carries out what it decides. It
// reports whether the budget ended before the pass did.
func (x *execution) pass(i state.Instance) (more bool) {
	p := x.deciders.active(x.s)(x.s, i)
	for x.budget > 0 {
		before := p.Examined()
		d, ok := p.Next()
		x.budget -= 1 + p.Examined() - before // a decision costs as much again to carry out
		if !ok {
			return false
		}
		if d.Start != nil && d.Start.Queue() != i {
			x.movesUp(d.Start.Queue())
		}
		x.carryOut(d)
	}
	return true
}

// movesUp has a queue looked at that an action is about to leave, if another one
// comes within the scheduler's reach by that: no pass has examined it yet. In
// queues without a reach, others may also have waited for its sake. Nobody waits for
// those who wait aside.
func (x *execution) movesUp(q state.Instance) {
	if _, room := q.BesideQueue(); !room && q != 0 && x.s.QueueLen(q) > sched.Reach(q) {
		x.dirty.add(q)
	}
}

func (x *execution) carryOut(d sched.Decision) {
	switch {
	case d.Place != nil && d.Node == nil:
		x.setTrajectoryAside(d.Place)
	case d.Place != nil:
		x.place(d.Place, d.Node)
	case d.Aside != nil:
		x.setAside(d.Aside)
	case d.Take != nil:
		x.take(d.Take, d.Key)
	case d.Reserve != nil:
		x.reserveNode(d.Reserve, d.Node)
	case d.Start != nil:
		for _, a := range d.Bypassed {
			if a != nil {
				x.countBypass(a)
			}
		}
		x.grant(d)
	}
}

func (x *execution) countBypass(a *state.Action) {
	b := *a
	if b.Bypassed == 0 {
		b.BlockedAt = x.now()
	}
	b.Bypassed++
	x.s.PutAction(&b)
}

// reserveNode reserves a node for a starved action, even if it was reserved for a younger
// one. Without a node the action's patience starts anew.
func (x *execution) reserveNode(a *state.Action, n *state.Node) {
	b := *a
	if n == nil {
		b.Bypassed, b.BlockedAt = 0, 0
		x.s.PutAction(&b)
		return
	}
	if younger := x.s.Action(n.ReservedFor); younger != nil {
		x.dirty.add(x.unreserve(younger).Queue())
	}
	b.ReservedOn = n.ID
	x.s.PutAction(&b)
	m := *x.s.Node(n.ID)
	m.ReservedFor = a.ID
	x.s.PutNode(&m)
	if place.Fits(&m, &b) { // it waited by choice
		x.dirty.add(state.NodeInstance(n.ID))
	}
}

// unreserve gives up what is reserved for an action, and returns its row as it is
// then.
func (x *execution) unreserve(a *state.Action) *state.Action {
	if a.ReservedOn == 0 {
		return a
	}
	n := *x.s.Node(a.ReservedOn)
	n.ReservedFor = 0
	x.s.PutNode(&n)
	x.nodeFreed(&n)
	x.wakeCoreless(n.Pool)
	b := *a
	b.ReservedOn, b.Bypassed, b.BlockedAt = 0, 0, 0
	x.s.PutAction(&b)
	return &b
}
