package sched

import (
	"fmt"
	"slices"

	"rota/fsm/state"
	"rota/sched/order"
	"rota/sched/place"
	"rota/sched/place/chunk"
	"rota/sched/place/gang"
)

// gangChoices is from how many nodes those of a gang are chosen, if they have enough room: those
// with the most available cores, or the most free GPUs. It never decides whether there is room.
const gangChoices = 64

// GangShare is a node and how many members of a gang it gets, in the order of their ranks.
type GangShare struct {
	Node    state.NodeID
	Members int
}

// gangSearch is the search for the nodes of a gang.
type gangSearch struct {
	v      *state.State
	first  *state.Action
	demand gang.Demand // of each member
	// footprint is what a member takes of the memory of each of its GPUs at least.
	footprint uint64
	steps     int // what was looked at
}

func newGangSearch(v *state.State, first *state.Action) *gangSearch {
	s := &gangSearch{v: v, first: first, demand: gang.Demand{Cores: int(first.CoresMin), Memory: first.Memory, Bandwidth: first.Bandwidth()}}
	if g := first.GPUs(); g != nil {
		s.demand.Chunk = int(g.Degrees[0])
		s.footprint = emptyGPUFleet(v, state.QueueOfGPUs(first.Pool, g.Class)).footprint(g.Memory)
	}
	return s
}

// room is how many members fit into what a node has, with some of its GPUs.
func (s *gangSearch) room(n *state.Node, o gang.Offer, gpus state.GPUSet) int {
	if g := s.first.GPUs(); g != nil && n.GPUs.Class == g.Class && s.footprint <= n.GPUs.Memory {
		o.Chunks = chunk.Set(gpus &^ s.v.GroupGPUs(n)).Chunks(levelOf(g.Degrees[0]))
	}
	return s.demand.Room(o, gangMost(s.first))
}

// gangMost is how many members one node may get.
func gangMost(first *state.Action) int {
	if first.GangSpread {
		return 1
	}
	return int(first.GangSize)
}

// keptFrom: the node is reserved for another that goes before the gang.
func (s *gangSearch) keptFrom(n *state.Node) bool {
	holder := s.v.Action(n.ReservedFor)
	return n.KeptFrom(s.first.ID) && (holder == nil || holder.Gang != s.first.ID)
}

// now is how many members could start on a node now. GPUs of groups are left out.
func (s *gangSearch) now(n *state.Node) (room int, more bool) {
	if s.first.GPUs() != nil && n.GPUs.Free == 0 || s.first.GPUs() == nil && n.Available() < int(s.first.CoresMin) {
		return 0, false // nor has a node that comes after it
	}
	if s.keptFrom(n) {
		return 0, true
	}
	return s.room(n, gang.Offer{Cores: n.Available(), Memory: n.FreeMemory, Bandwidth: n.FreeBandwidth}, n.GPUs.Free), true
}

// later is how many members could start on a node when everything that runs there now has ended.
// Trajectories keep their memory, groups their GPUs. Nodes that are reserved for older actions are
// left out.
func (s *gangSearch) later(n *state.Node) (room int, more bool) {
	if s.keptFrom(n) {
		return 0, true
	}
	o := gang.Offer{Cores: n.CoreCount(), Memory: n.FreeMemory, Bandwidth: n.Bandwidth}
	s.v.Attempts(n.ID, func(t *state.Attempt) bool {
		s.steps++
		o.Memory += t.Reserved
		return true
	})
	return s.room(n, o, n.InUse()), true
}

// choose chooses among the usable nodes by their room, which ends the visit if it says so; nil if
// there is not room for all members.
func (s *gangSearch) choose(room func(*state.Node) (room int, more bool)) (shares []GangShare) {
	var nodes []gang.Node
	sum, members := 0, int(s.first.GangSize)
	visit := func(n *state.Node) bool {
		s.steps++
		r, more := room(n)
		if r > 0 {
			nodes, sum = append(nodes, gang.Node{ID: uint64(n.ID), Room: r}), sum+r
		}
		return more && (sum < members || len(nodes) < gangChoices)
	}
	if g := s.first.GPUs(); g != nil {
		s.v.NodesByFreeGPUs(state.QueueOfGPUs(s.first.Pool, g.Class), visit)
	} else {
		s.v.NodesByFreeCores(s.first.Pool, visit)
	}
	for _, n := range gang.Place(nodes, members) {
		shares = append(shares, GangShare{state.NodeID(n.ID), n.Room})
	}
	return shares
}

// placeGang returns where the members of a gang start now; nil if they cannot all start.
func (p *Pass) placeGang(first *state.Action) []GangShare {
	if p.gangMisses.covers(first) {
		return nil
	}
	s := newGangSearch(p.view, first)
	shares := s.choose(s.now)
	p.examined += s.steps
	if shares == nil {
		p.gangMisses.add(first)
	}
	return shares
}

// gangMisses are gangs for which a pass found no room: it only starts actions, so there is none later
// either, nor for gangs that ask for no less, unless nodes are reserved for them. A start that ends a
// reservation forgets them.
type gangMisses []*state.Action

func (m gangMisses) covers(first *state.Action) bool {
	return first.ReservedOn == 0 && slices.ContainsFunc(m, func(b *state.Action) bool {
		g, h := first.GPUs(), b.GPUs()
		return first.ID >= b.ID && first.GangSize >= b.GangSize && (first.GangSpread || !b.GangSpread) &&
			first.CoresMin >= b.CoresMin && first.Memory >= b.Memory && first.Bandwidth() >= b.Bandwidth() &&
			requestsNoLess(g, h) && (h == nil || g.Class == h.Class)
	})
}

func (m *gangMisses) add(first *state.Action) {
	if len(*m) < missesMax {
		*m = append(*m, first)
	}
}

// GangHolds returns how many members of a gang the nodes of its pool could hold if nothing else
// was on them, at most all; false in known if there are no nodes. Nodes that are down or draining
// count unless only usable ones are asked for.
func GangHolds(v *state.State, first *state.Action, usable bool) (members int, known bool, steps int) {
	v.CountedShapes(first.Pool, usable, func(s *state.Shape, nodes int) bool {
		known = true
		steps++
		if place.Holds(s, first) {
			o := gang.Offer{Cores: s.Cores, Memory: s.Memory, Bandwidth: s.Bandwidth}
			if g := first.GPUs(); g != nil {
				o.Chunks = int(s.GPUs.Count / g.Degrees[0])
			}
			members = min(int(first.GangSize), members+nodes*newGangSearch(v, first).demand.Room(o, gangMost(first)))
		}
		return members < int(first.GangSize)
	})
	return members, known, steps
}

// CouldStart reports whether an action for which a node is reserved, or its gang, could start there when
// all that runs there has ended. Trajectories keep their memory, groups their GPUs. What was looked at is in steps.
func CouldStart(v *state.State, a *state.Action) (ok bool, steps int) {
	if a.Gang == 0 {
		n := v.Node(a.ReservedOn)
		return place.CouldRun(v, n, a) && couldHave(v, n, a), int(n.Running)
	}
	first := v.Action(a.Gang)
	if first == nil { // the gang is ending
		return true, 1
	}
	s, room := newGangSearch(v, first), 0
	v.GangMembers(a.Gang, func(m *state.Action) bool {
		s.steps++
		if m.ReservedOn != 0 {
			has, _ := s.later(v.Node(m.ReservedOn))
			room += has
		}
		return room < int(first.GangSize)
	})
	return room >= int(first.GangSize), s.steps
}

// gangServable reports whether the usable nodes of its pool could ever run a gang.
func gangServable(v *state.State, first *state.Action) (ok bool, steps int) {
	members, _, steps := GangHolds(v, first, true)
	return members == int(first.GangSize), steps
}

// GangStart is what a member of a gang is given on a node, as things are before it starts: each
// member starts after the one before it. The gang was placed there.
func GangStart(v *state.State, a *state.Action, id state.NodeID) Decision {
	n := v.Node(id)
	d := Decision{Start: a, Node: n}
	p := &Pass{view: v, pool: a.Pool, demands: demands{view: v}}
	if g := a.GPUs(); g != nil {
		q := newGPUPass(v, state.QueueOfGPUs(a.Pool, g.Class))
		q.nodes = newGPUFleetOf(v, q.queue, n)
		_, gpus, ok := q.choose(a, g.Degrees[0])
		if !ok {
			panic(fmt.Sprintf("a gang was placed on node %s, where action %d finds no chunk", n.Name, a.ID))
		}
		d.GPUs = gpus
	}
	d.Cores, d.Resize = p.give(n, int(a.CoresMin))
	return d
}

// gangPass goes once through the gangs of a pool, oldest first. A younger gang may start before
// one that does not fit, within the bounds of every bypass.
type gangPass struct {
	Pass
	queue line
	began bool // it has begun to read
}

func newGangPass(view *state.State, q state.Queue) *gangPass {
	return &gangPass{Pass: Pass{view: view, pool: state.PoolID(q.ID), demands: demands{view: view}}, queue: line{key: q}}
}

// next takes the first action of the next gang out of the queue, nil if there is none left. Namespaces
// with limits are read one by one, so that gangs that wait for a limit hide none of another namespace.
func (p *gangPass) next() (first *state.Action) {
	if !p.began {
		p.began = true
		p.fair = order.NewFair(p.view, state.Queue{}, []state.Queue{p.queue.key}, LookAhead)
		p.examined += p.fair.Namespaces()
	}
	switch {
	case p.fair != nil:
		first, _, _ = p.fair.Next()
	case p.queue.more(p.view):
		first = p.view.Action(p.queue.next[0])
		p.queue.drop()
	}
	return first
}

// unfit notes that a gang does not fit.
func (p *gangPass) unfit(first *state.Action) {
	if p.fair != nil {
		p.fair.Unfit(first, 0, LookAhead)
	} else {
		p.queue.unfit++
	}
}

// Next implements Decider.
func (p *gangPass) Next() (Decision, bool) {
	if pool := p.view.Pool(p.pool); pool == nil || pool.Halted != "" {
		return Decision{}, false
	}
	for first := p.next(); first != nil; first = p.next() {
		p.examined++
		if p.view.QueuedGang(first) == nil { // it is about to be ended
			p.drop(first)
			continue
		}
		d, ok := p.startGang(first)
		if ok {
			switch {
			case d.Gang == nil: // nodes are reserved: all are looked at again
				p.queue, p.began, p.gangMisses = line{key: p.queue.key}, false, nil
			case first.ReservedOn != 0: // others may have its nodes
				p.gangMisses = nil
			}
			return d, true
		}
		if p.limited(first) {
			continue
		}
		if ok, steps := gangServable(p.view, first); !ok {
			p.examined += steps
			p.drop(first)
			return Decision{Aside: first}, true
		}
		p.unfit(first)
	}
	return Decision{}, false
}

// startGang starts a gang, unless that would bypass an older action or gang once too often: then a
// node is reserved for that one first. It returns false if the gang does not fit now, or is about to
// be ended.
func (p *Pass) startGang(first *state.Action) (Decision, bool) {
	if LimitOf(p.view, first) != order.NoLimit {
		return Decision{}, false
	}
	shares := p.placeGang(first)
	if shares == nil || p.view.QueuedGang(first) == nil {
		return Decision{}, false
	}
	d := Decision{Gang: first, Shares: shares}
	var older *state.Action
	p.gangsAhead(first, func(g *state.Action) bool {
		if g.ReservedOn == 0 && p.view.QueuedGang(g) != nil {
			older = g
		}
		return older == nil
	})
	switch {
	case older == nil:
	case p.mayBypass(older):
		d.Passed = append(d.Passed, older)
	default:
		return p.reserveGang(older), true
	}
	for _, s := range shares {
		n := p.view.Node(s.Node)
		for _, older := range [...]*state.Action{p.pinnedBefore(first, n), p.poolBefore(first, n, nil), p.corelessBefore(first, n), p.chunkBefore(first, n)} {
			switch {
			case older == nil || slices.ContainsFunc(d.Passed, func(b *state.Action) bool { return b.ID == older.ID }):
			case p.mayBypass(older):
				d.Passed = append(d.Passed, older)
			default:
				return p.reserveOlder(older, n), true
			}
		}
	}
	p.examined += len(shares) + int(first.GangSize)
	return d, true
}

// reserveOlder reserves a node for an action that a gang would bypass once too often: n if it is
// pinned to that.
func (p *Pass) reserveOlder(older *state.Action, n *state.Node) Decision {
	d := Decision{Reserve: older, Node: n}
	switch {
	case older.Trajectory != 0:
	case older.GPUs() != nil:
		q := newGPUPass(p.view, state.QueueOfGPUs(older.Pool, older.GPUs().Class))
		d.Node = q.toReserveGPUs(older)
		p.examined += q.examined
	default:
		d.Node = p.toReserve(older)
	}
	return d
}

// chunkBefore returns the oldest action that waits for GPUs of a node and could do with it, if it is
// older than a gang that takes some of them.
func (p *Pass) chunkBefore(a *state.Action, n *state.Node) (first *state.Action) {
	i := n.GPUQueue()
	if a.GPUs() == nil || i == (state.Queue{}) {
		return nil
	}
	p.visitOlder(a, i, func(b *state.Action) bool {
		if b.ReservedOn == 0 && couldDo(n, b) {
			first = b
		}
		return first == nil
	})
	return first
}

// gangsAhead visits the gangs that wait in the pool of an action and are older, oldest first, unless
// their namespaces hold too much for them.
func (p *Pass) gangsAhead(a *state.Action, visit func(*state.Action) bool) {
	p.visitOlder(a, state.QueueOf(state.GangQueue, a.Pool), visit)
}

// couldDo reports whether a node could ever run an action.
func couldDo(n *state.Node, a *state.Action) bool {
	shape := n.Shape()
	return place.Holds(&shape, a)
}

// gangFirst sees to the gangs that could do with the node of a start. It returns a decision that
// comes before the start: an older gang starts instead if it can, or nodes are reserved for it if it
// may not be bypassed any more. Else the oldest for which no nodes are reserved is noted in the start.
func (p *Pass) gangFirst(start *Decision) (d Decision, first bool) {
	p.gangsAhead(start.Start, func(g *state.Action) bool {
		if !couldDo(start.Node, g) {
			return true
		}
		if d, first = p.startGang(g); first {
			return false
		}
		if g.ReservedOn != 0 || p.view.QueuedGang(g) == nil { // it has nodes, or is about to be ended
			return true
		}
		if !p.passes(start, 4, g) {
			d, first = p.reserveGang(g), true
		}
		return false
	})
	return d, first
}

// reserveGang reserves nodes for a gang that may not be bypassed any more, on which it could start
// when everything that runs there now has ended. Those that are reserved for younger actions are
// taken from them. If there are not enough, none is reserved, and its patience starts again.
func (p *Pass) reserveGang(first *state.Action) Decision {
	s := newGangSearch(p.view, first)
	shares := s.choose(s.later)
	p.examined += s.steps
	return Decision{ReserveGang: first, Shares: shares}
}

// again has the pass look at everything again, after a decision that changes what others get.
func (p *Pass) again(d Decision) (Decision, bool) {
	p.passed, p.ahead, p.plan, p.misses = nil, nil, plan{}, nil
	for i := range p.queues {
		p.queues[i] = line{key: p.queues[i].key}
	}
	p.reread = true
	return d, true
}
