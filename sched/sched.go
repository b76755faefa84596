package sched

import (
	"rota/fsm/state"
	"rota/sched/order"
	"rota/sched/place"
	"rota/sched/scale"
)

// Version is the newest version of the scheduler that this build knows. Which
// one decides is in state, and changes only by a committed barrier.
const Version = 1

// lookAhead is how many waiting actions a pass over one queue examines.
const lookAhead = 32

// Decision is one thing to do. Exactly one of its forms is set.
type Decision struct {
	// Start an action on a node with these cores.
	Start *state.Action
	Node  *state.Node
	Cores state.CoreSet
	// Bypassed are the older actions that did not fit and that Start passes by:
	// one of the queues that the pass goes through, and one pinned to Node.
	Bypassed [2]*state.Action

	// Hold keeps Node free for a starved action; with Node nil no node could be
	// found, and its patience starts anew.
	Hold *state.Action

	// Place gives a pending trajectory its Node.
	Place *state.Trajectory
}

// Pass goes once through the queue of an instance.
type Pass struct {
	view      *state.State
	instances []state.Instance
	node      state.NodeID // 0 in a pass over a pool
	pool      state.PoolID
	queue     []state.ActionID // the window, oldest first
	filled    bool
	blocked   state.ActionID // oldest action seen that does not fit
	examined  int
}

// NewPass returns a pass over an instance. Halted pools and nodes that are down
// have nothing to decide. The view may change between calls of Next, by what was
// decided.
func NewPass(view *state.State, i state.Instance) *Pass {
	p := &Pass{view: view}
	if id, ok := i.Node(); ok {
		n := view.Node(id)
		if n == nil || n.State != state.NodeUp {
			return p
		}
		p.node, p.pool = id, n.Pool
		p.instances = []state.Instance{i}
		if !n.Draining {
			p.instances = append(p.instances, state.PoolInstance(n.Pool))
		}
	} else {
		p.pool, _ = i.Pool()
		p.instances = []state.Instance{i}
	}
	if pool := view.Pool(p.pool); pool == nil || pool.Halted != "" {
		p.instances = nil
	}
	return p
}

// Examined returns how many actions the pass has looked at: its cost.
func (p *Pass) Examined() int { return p.examined }

// Next returns the next decision; false when the pass is over.
func (p *Pass) Next() (Decision, bool) {
	if len(p.instances) == 0 {
		return Decision{}, false
	}
	if p.node == 0 {
		if d, ok := p.nextPlacement(); ok {
			return d, true
		}
	}
	for {
		a := p.nextAction()
		if a == nil {
			return Decision{}, false
		}
		n := p.nodeFor(a)
		if n == nil {
			p.block(a)
			continue
		}
		if d, ok := p.startOrHold(a, n); ok {
			return d, true
		}
	}
}

// nextPlacement decides on the oldest pending trajectory. These are served
// strictly in order.
func (p *Pass) nextPlacement() (Decision, bool) {
	t := p.view.PendingTrajectory(p.pool, 0)
	if t == nil {
		return Decision{}, false
	}
	p.examined++
	n := place.ForTrajectory(p.view, p.pool, t.Memory)
	return Decision{Place: t, Node: n}, n != nil
}

// nextAction returns the next waiting action of the window, nil at its end or
// when nothing could start anyway.
func (p *Pass) nextAction() *state.Action {
	if !p.filled {
		p.filled = true
		p.queue = order.Oldest(p.view, p.instances, 0, lookAhead)
	}
	if len(p.queue) == 0 || !p.anyCore() {
		return nil
	}
	id := p.queue[0]
	p.queue = p.queue[1:]
	p.examined++
	if len(p.queue) == 0 && p.blocked == 0 { // all of it started: look further
		p.queue = order.Oldest(p.view, p.instances, id, lookAhead)
	}
	return p.view.Action(id)
}

func (p *Pass) anyCore() bool {
	if p.node != 0 {
		return p.view.Node(p.node).Free != state.CoreSet{}
	}
	any := false
	p.view.NodesByFreeCores(p.pool, func(n *state.Node) bool {
		any = n.Free != state.CoreSet{}
		return false
	})
	return any
}

// nodeFor returns the node on which the action can start now, nil if none.
func (p *Pass) nodeFor(a *state.Action) *state.Node {
	if p.node == 0 {
		return place.ForAction(p.view, a)
	}
	if n := p.view.Node(p.node); place.Fits(n, a) {
		return n
	}
	return nil
}

// block remembers the oldest action that does not fit. One that has a node kept
// for it elsewhere is served there and holds up nobody here.
func (p *Pass) block(a *state.Action) {
	if p.blocked == 0 && a.HeldOn == 0 {
		p.blocked = a.ID
	}
}

// startOrHold starts a on n unless that would bypass an older action once too
// often: then a node is kept for that one first.
func (p *Pass) startOrHold(a *state.Action, n *state.Node) (Decision, bool) {
	d := Decision{Start: a, Node: n}
	if p.blocked != 0 {
		head := p.view.Action(p.blocked)
		if !p.mayBypass(head) {
			return p.hold(head)
		}
		d.Bypassed[0] = head
	}
	// A pass over n has what is pinned to n in its own queue.
	if p.node == 0 {
		if head := p.pinnedBefore(a, n); head != nil {
			if n.HeldFor == 0 && !p.mayBypass(head) {
				return p.keep(n, head)
			}
			d.Bypassed[1] = head
		}
	}
	width := scale.Width(int(a.CoresMin), int(a.CoresMax), n.Free.Len())
	d.Cores = place.Cores(n.NUMA, n.Free, width)
	return d, true
}

func (p *Pass) mayBypass(a *state.Action) bool {
	return order.MayBypass(a, p.view.Meta().Now, &p.view.Meta().Settings)
}

// pinnedBefore returns the oldest action that waits for n alone, if it is older
// than a.
func (p *Pass) pinnedBefore(a *state.Action, n *state.Node) *state.Action {
	i := state.NodeInstance(n.ID)
	if p.view.QueueLen(i) == 0 {
		return nil
	}
	oldest := order.Oldest(p.view, []state.Instance{i}, 0, 1)
	if len(oldest) == 0 || oldest[0] > a.ID {
		return nil
	}
	return p.view.Action(oldest[0])
}

// hold serves an action whose patience has ended by keeping a node free for it:
// its own if it is pinned, else one that could hold it and that no older pinned
// one needs more.
func (p *Pass) hold(head *state.Action) (Decision, bool) {
	if head.Trajectory == 0 {
		n := place.ToHold(p.view, head)
		if n == nil {
			return p.keep(nil, head)
		}
		if older := p.pinnedBefore(head, n); older != nil && !p.mayBypass(older) {
			return p.keep(n, older)
		}
		return p.keep(n, head)
	}
	if n := p.view.Node(p.node); n.HeldFor == 0 {
		return p.keep(n, head)
	}
	p.queue = nil // kept for another: at least nothing younger starts in this pass
	return Decision{}, false
}

// keep has a node kept free, and the pass look at everything again.
func (p *Pass) keep(n *state.Node, head *state.Action) (Decision, bool) {
	p.queue, p.filled, p.blocked = nil, false, 0
	return Decision{Hold: head, Node: n}, true
}
