package fsm

import (
	"rota/fsm/state"
	"rota/sched"
	"rota/sched/place"
)

// schedule works through the dirty queues and then the work list, until the
// budget is spent. What is left stays on the work list.
func (x *execution) schedule() {
	cursor := x.s.Meta().WorkCursor
	for round := x.s.WorkCount(); round > 0; round-- {
		q, ok := x.s.Work(cursor)
		if !ok {
			if q, ok = x.s.Work(0); !ok {
				break
			}
		}
		x.dirty.add(q)
		cursor = q.Key() + 1
	}
	x.thaw()
	for x.budget > 0 {
		q, ok := x.dirty.pop()
		if !ok {
			q, ok = x.nextWithRoom()
		}
		if !ok {
			break
		}
		x.attend(q)
		x.thaw()
	}
	for len(x.divisions.items) > 0 {
		x.divide()
		x.thaw() // what gave up cores may have left room to others of its namespace
	}
	x.leaveRoom()
	for _, q := range x.dirty.items {
		x.s.PutWork(q)
		cursor = min(cursor, q.Key())
	}
	if m := *x.s.Meta(); m.WorkCursor != cursor {
		m.WorkCursor = cursor
		x.s.SetMeta(m)
	}
}

// attend does the work of one queue, as far as the budget goes. The queue of a halted
// pool is parked until an operator resumes the pool. The queue of a halted quota or node
// group, and that of jobs while placement is halted, are left alone.
func (x *execution) attend(q state.Queue) {
	b := x.subject(q)
	if p := x.s.Pool(b.pool); p != nil && p.Halted != "" {
		x.s.DeleteWork(q)
		x.s.Park(q)
		return
	}
	if x.halted(b) {
		x.s.DeleteWork(q) // it is looked at again when it is resumed
		return
	}
	x.enter(b)
	if x.work(q) {
		x.s.PutWork(q)
	} else if x.s.WorkLeft(q) {
		x.s.DeleteWork(q)
	}
}

// subject says what the work of a queue is about, so that a panic in it halts that.
// Quotas have no pool: actions of all pools wait for them.
func (x *execution) subject(q state.Queue) stage {
	b := stage{command: -1}
	switch q, _ = q.Beside(); q.Kind {
	case state.PoolQueue, state.PoolCorelessQueue, state.TrajectoriesAside, state.GangQueue:
		b.pool = state.PoolID(q.ID)
	case state.GangTeardown:
		b.pool = x.gangPool(state.ActionID(q.ID))
	case state.GPUQueue:
		b.pool, _ = q.GPUs()
	case state.NodeQueue, state.NodeCorelessQueue, state.NodeTeardown, state.NodeDivision:
		if n := x.s.Node(state.NodeID(q.ID)); n != nil {
			b.pool = n.Pool
		}
	case state.TrajectoryTeardown:
		if t := x.s.Trajectory(state.TrajectoryID(q.ID)); t != nil {
			b.pool = t.Pool
		}
	case state.QuotaQueue:
		b.quota = state.QuotaID(q.ID)
	case state.TurnQueue:
		b.group = state.GroupID(q.ID)
	case state.JobQueue:
		b.placement = true
	case state.RolloutReview:
		b.rollout = state.RolloutID(q.ID)
	}
	return b
}

// halted reports whether an operator has to resume what some work is about. Pools are
// another matter: their work is parked.
func (x *execution) halted(b stage) bool {
	q, g, r := x.s.Quota(b.quota), x.s.NodeGroup(b.group), x.s.Rollout(b.rollout)
	return r != nil && r.Halted != "" || q != nil && q.Halted != "" || g != nil && g.Halted != "" || b.placement && x.s.Meta().PlacementHalted != ""
}

// work does the work of a queue, and reports whether there is more.
func (x *execution) work(q state.Queue) (more bool) {
	if _, room := q.Beside(); room {
		return x.lookAside(q)
	}
	switch q.Kind {
	case state.TrajectoryTeardown:
		return x.tearDownTrajectory(state.TrajectoryID(q.ID))
	case state.NodeTeardown:
		n := x.s.Node(state.NodeID(q.ID))
		return n != nil && n.State == state.NodeDown && !x.tearDownNode(n, "its node was lost")
	case state.GangTeardown:
		return x.tearDownGang(state.ActionID(q.ID))
	case state.TurnQueue:
		x.nextTurn(state.GroupID(q.ID))
		return false
	case state.NodeDivision:
		x.divideNode(state.NodeID(q.ID))
		return false
	case state.JobQueue:
		return x.placeJobs()
	case state.GenerationQueue:
		x.routes.all = true
		return false
	case state.RolloutReview:
		return x.reviewRollout(q)
	case state.NamespaceRoom:
		x.goOnWithRoom(q)
		return false
	case state.TrajectoriesAside:
		return x.recallTrajectories(state.PoolID(q.ID))
	}
	return x.pass(q)
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
func (x *execution) pass(q state.Queue) (more bool) {
	p := x.deciders.active(x.s)(x.s, q)
	for x.budget > 0 {
		before := p.Examined()
		d, ok := p.Next()
		x.budget -= 1 + p.Examined() - before // a decision costs as much again to carry out
		if !ok {
			x.sharesLate(q)
			return false
		}
		if d.Start != nil && d.Start.Queue() != q {
			x.movesUp(d.Start.Queue())
		}
		if d.Gang != nil && d.Gang.Queue() != q {
			x.movesUp(d.Gang.Queue())
		}
		x.carryOut(d)
	}
	return true
}

// movesUp has a queue looked at that an action is about to leave, if another one
// comes within the scheduler's reach by that: no pass has examined it yet. In
// queues without a reach, others may also have waited for its sake. Nobody waits for
// those who wait aside.
func (x *execution) movesUp(q state.Queue) {
	if _, room := q.Beside(); !room && q != (state.Queue{}) && x.s.QueueLen(q) > sched.Reach(q) {
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
	case d.Acquire != nil:
		x.acquire(d.Acquire, d.Key)
	case d.Reserve != nil:
		x.reserveNode(d.Reserve, d.Node)
	case d.ReserveGang != nil:
		x.reserveGang(d.ReserveGang, d.Shares)
	case d.Gang != nil:
		x.startGang(d)
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
// one. Without a node the action's patience starts again.
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
	m.ReservedFor, m.Alone = a.ID, x.s.Shares()
	x.s.PutNode(&m)
	if place.Fits(&m, &b) { // it waited by choice
		x.dirty.add(state.QueueOf(state.NodeQueue, n.ID))
	}
}

// unreserve gives up what is reserved for an action, and for the others of its gang, and
// returns its row as it is then.
func (x *execution) unreserve(a *state.Action) *state.Action {
	if a.Gang != 0 {
		return x.unreserveGang(a)
	}
	return x.unreserveOne(a)
}

// reviewReservation takes a node from an action that could not start any more with what is reserved for
// it, when all that runs there has ended: else the node would be kept for it for ever.
func (x *execution) reviewReservation(n *state.Node) {
	a := x.s.Action(n.ReservedFor)
	if a == nil {
		return
	}
	ok, steps := sched.CouldStart(x.s, a)
	if x.s.Meta().Level >= sched.LevelResizing {
		x.budget -= steps
	}
	if !ok {
		x.dirty.add(x.unreserve(a).Queue())
	}
}

func (x *execution) unreserveOne(a *state.Action) *state.Action {
	if a.ReservedOn == 0 {
		return a
	}
	n := *x.s.Node(a.ReservedOn)
	n.ReservedFor, n.Alone = 0, false
	x.s.PutNode(&n)
	x.nodeFreed(&n)
	x.wakeCoreless(n.Pool)
	b := *a
	b.ReservedOn, b.Bypassed, b.BlockedAt = 0, 0, 0
	x.s.PutAction(&b)
	x.leavesRoom(b.Namespace) // what it was to have counted towards the limit
	return &b
}
