package sched

import (
	"rota/fsm/state"
	"rota/sched/place"
)

// backlog returns what an action waits for at a stage: with so many quotas as the stage
// holds. Nil if there is nothing to wait for. That of the queue it is in now is remembered
// for others; in that of a later stage it waits in addition.
func (s *Starts) backlog(stage, a *state.Action) *backlog {
	q := stage.Queue()
	if q.Kind == state.NodeCorelessQueue {
		return nil
	}
	if q == a.Queue() {
		b, found := s.backlogs[q.Key()]
		if !found {
			b = s.newBacklog(q)
			b.play()
			s.backlogs[q.Key()] = b
		}
		return b
	}
	if q.Kind != state.QuotaQueue && s.view.Rank(q, a.ID) == 0 && a.GPUs() == nil && couldStart(s.view, stage) != nil {
		return nil
	}
	b := s.newBacklog(q)
	b.waiters = append(b.waiters, s.waiter(b, stage, -1))
	b.play()
	return b
}

func (s *Starts) newBacklog(q state.Queue) *backlog {
	b := &backlog{settings: &s.view.Meta().Settings, now: s.now}
	switch q.Kind {
	case state.QuotaQueue:
		s.quotaBacklog(b, q)
	case state.NodeQueue:
		s.nodeBacklog(b, q)
	default:
		s.poolBacklog(b, q)
	}
	s.examined += len(b.servers) + len(b.holders) + len(b.waiters)
	return b
}

// nodeBacklog is for actions that are pinned to a node. Those that any node of the pool may
// run go to this one in its turn.
func (s *Starts) nodeBacklog(b *backlog, q state.Queue) {
	n := s.view.Node(state.NodeID(q.ID))
	s.serve(b, n)
	s.hold(b, 0, n, estimateHoldersMax)
	s.wait(b, q, 0, 1, estimateWaitersMax/2)
	if !n.Draining {
		s.wait(b, state.QueueOf(state.PoolQueue, n.Pool), 0, max(1, s.view.UsableNodes(n.Pool)), estimateWaitersMax/2)
	}
}

// poolBacklog is for actions that any node of a pool may run, or any with GPUs of a class.
// If there are many nodes, some are looked at, and as small a part of what waits.
func (s *Starts) poolBacklog(b *backlog, q state.Queue) {
	var nodes []*state.Node
	all := 0
	some := func(n *state.Node) bool {
		if all++; len(nodes) < estimateServersMax {
			nodes = append(nodes, n)
		}
		return all < estimateHoldersMax
	}
	switch q.Kind {
	case state.GPUQueue:
		s.view.NodesByFreeGPUs(q, some)
	case state.PoolCorelessQueue:
		b.strict = true
		s.view.NodesByFreeMemory(state.PoolID(q.ID), some)
		all = max(all, s.view.UsableNodes(state.PoolID(q.ID)))
	default:
		s.view.NodesByFreeCores(state.PoolID(q.ID), some)
		all = max(all, s.view.UsableNodes(state.PoolID(q.ID)))
	}
	for i, n := range nodes {
		s.serve(b, n)
		if q.Kind == state.GPUQueue {
			b.servers[i].whole = int64(n.GPUs.Count)
		}
		s.hold(b, i, n, estimateHoldersMax/len(nodes))
	}
	step := max(1, (all+len(nodes)-1)/max(1, len(nodes)))
	s.wait(b, q, -1, step, estimateWaitersMax/2)
	if q.Kind == state.PoolQueue {
		for i, n := range nodes {
			s.wait(b, state.QueueOf(state.NodeQueue, n.ID), i, 1, estimateWaitersMax/2/len(nodes))
		}
	}
}

// serve adds a node. What can be taken from actions that run is free: they have their
// least as long as others wait.
func (s *Starts) serve(b *backlog, n *state.Node) {
	b.servers = append(b.servers, server{
		node: n.ID, free: amounts{int64(n.Available()), n.FreeMemory, n.FreeBandwidth}, whole: int64(n.CoreCount()),
		gpus: n.GPUs.Free, count: n.GPUs.Count, reserved: n.ReservedFor,
	})
}

// hold adds what runs on a node, so many attempts at most: then these hold also what the
// others do.
func (s *Starts) hold(b *backlog, server int, n *state.Node, most int) {
	first, units := len(b.holders), int64(0)
	s.view.Attempts(n.ID, func(t *state.Attempt) bool {
		if len(b.holders) == first+most {
			return false
		}
		h := holder{server: server, holds: amounts{int64(kept(t)), t.Reserved, t.Bandwidth}, gpus: t.Chunk.GPUs()}
		b.typical.add(t)
		h.ends = s.left(s.view.Action(t.Action), t, leastKey(t))
		b.holders = append(b.holders, h)
		units += h.holds.units
		return true
	})
	if rest := int64(n.CoreCount()-n.Available()) - units; rest > 0 && units > 0 && int(n.Running) > most {
		for i := first; i < len(b.holders); i++ {
			h := &b.holders[i].holds
			h.units += int64(state.MulDiv(uint64(rest), uint64(h.units), uint64(units)))
		}
	}
}

// kept is how many cores cannot be taken from an attempt.
func kept(t *state.Attempt) int { return t.Cores.Len() - int(t.Spare()) }

// leastKey is how much an attempt has of its key resource as long as others wait.
func leastKey(t *state.Attempt) int32 {
	if t.Chunk.Units > 0 {
		return int32(t.Chunk.Units)
	}
	return int32(max(1, kept(t)))
}

// wait adds every step-th action of a queue, so many at most.
func (s *Starts) wait(b *backlog, q state.Queue, server, step, most int) {
	p := part{ranks: s.view.Ranks(q), step: step}
	s.view.QueuedEvery(q, step, func(id state.ActionID) bool {
		if p.cut = p.seen == most; p.cut {
			return false
		}
		p.seen++
		if a := s.view.Action(id); !ending(s.view, a) {
			b.waiters = append(b.waiters, s.waiter(b, a, server))
		}
		return true
	})
	b.parts = append(b.parts, p)
}

// waiter is an action with its least degree, which it starts with while others wait.
func (s *Starts) waiter(b *backlog, a *state.Action, server int) waiter {
	w := waiter{
		id: a.ID, server: server, needs: amounts{int64(a.CoresMin), place.Reserves(a), a.Bandwidth()},
		blocked: bypasses{a.Bypassed, a.BlockedAt - s.now},
	}
	for i := range b.servers {
		if a.ReservedOn != 0 && b.servers[i].node == a.ReservedOn || a.Trajectory != 0 && b.servers[i].node == a.Node {
			w.server = i
		}
	}
	if g := a.GPUs(); g != nil {
		w.gpus = b.typical.degree(g)
		w.lasts = s.whole(a, int32(w.gpus)).plus(b.typical.setUp(g, s.view.SetUpNS(g)))
		return w
	}
	w.lasts = s.whole(a, int32(max(1, a.CoresMin)))
	return w
}

// typical is what attempts on GPUs have been given, as far as they run: the same is assumed
// of those that wait, as the plan that gives it goes by what is there.
type typical struct {
	attempts, gpus uint32
	setUps         uint32 // of how many the model was not resident
}

func (t *typical) add(a *state.Attempt) {
	if a.Chunk.Units == 0 {
		return
	}
	t.attempts++
	t.gpus += a.Chunk.Units
	if a.SetUpNS > 0 {
		t.setUps++
	}
}

// degree returns the most of the allowed degrees that is not above the mean.
func (t *typical) degree(g *state.GPUDemand) uint32 {
	n := g.Degrees[0]
	for _, d := range g.Degrees {
		if d*t.attempts <= t.gpus {
			n = d
		}
	}
	return n
}

// setUp returns what making the model resident takes, on average, if it takes so long where it is
// not.
func (t *typical) setUp(g *state.GPUDemand, ns int64) int64 {
	if g.Model == "" || t.attempts == 0 {
		return 0
	}
	return int64(state.MulDiv(uint64(ns), uint64(t.setUps), uint64(t.attempts)))
}
