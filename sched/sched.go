package sched

import (
	"rota/fsm/state"
	"rota/sched/order"
	"rota/sched/place"
	"rota/sched/scale"
)

// LookAhead is how many waiting actions that do not fit a pass examines in each
// queue before it gives up. So code that takes an action out of a queue that is
// longer has to have it looked at again: another has come within reach.
const LookAhead = 32

// Reach is how many actions of a queue a pass over it is sure to look at. Of those
// that are served strictly in order that is none, so that the next is looked at
// when the first leaves it.
func Reach(q state.Queue) int {
	if q.Kind == state.PoolQueue || q.Kind == state.NodeQueue {
		return LookAhead
	}
	return 0
}

// Decision is one thing to do. Exactly one of its forms is set.
type Decision struct {
	// Start an action on a node with these cores.
	Start *state.Action
	Node  *state.Node
	Cores state.CoreSet
	GPUs  *GPUs // nil: none
	// Resize are the attempts that give up cores for it, first.
	Resize []Resize
	// Bypassed are the older actions that do not start and that Start passes by:
	// one of the queues that the pass goes through, one pinned to Node, for a start
	// on GPUs one of the pool, one without cores that waits for memory, and a gang.
	Bypassed [5]*state.Action

	// Gang is the first action of a gang that starts, all of it: on the nodes of Shares. It passes
	// by the actions of Passed, which are older.
	Gang   *state.Action
	Shares []GangShare
	Passed []*state.Action

	// ReserveGang reserves the nodes of Shares for a starved gang; without any, its patience starts
	// again.
	ReserveGang *state.Action

	// Reserve reserves Node for a starved action; with Node nil no node could be
	// found, and its patience starts again.
	Reserve *state.Action

	// Place gives a pending trajectory its Node; with Node nil it is set aside, because
	// no usable node could ever hold it.
	Place *state.Trajectory

	// Aside takes an action out of its queue, because nothing in office could ever
	// serve it, until that changes.
	Aside *state.Action

	// Acquire gives an action the quota that it waits for, from this key.
	Acquire *state.Action
	Key     uint32
}

// Pass goes once through the queues of a node and of its pool, or through that of a pool
// alone.
type Pass struct {
	view       *state.State
	node       state.NodeID // 0 in a pass over a pool
	pool       state.PoolID
	queues     []line
	fair       *order.Fair      // what waits, by namespace; nil: oldest first
	ahead      []entry          // read ahead, in the order in which they are served
	read       uint64           // how many were read
	reread     bool             // it begins to read, by the clocks of namespaces as they are then
	at         uint64           // which of them the pass looks at
	over       bool             // nothing more can start
	passed     []state.ActionID // those seen that do not start, first the one that goes before all
	examined   int
	misses     misses
	plan       plan
	demands    demands
	elastic    *scale.Elastic // nil until it is needed
	gangMisses gangMisses
}

// entry is an action on the way, with the number of its queue, and as which it was read.
type entry struct {
	id   state.ActionID
	line int
	read uint64
}

// line is one queue on the way through it, oldest first.
type line struct {
	key      state.Queue
	next     []state.ActionID // read ahead
	last     state.ActionID   // newest read
	unfit    int              // how many did not start
	ended    bool
	examined int // of those read one by one
}

// NewPass returns a pass over the queue of a node or of a pool. Halted pools and nodes that are down
// have nothing to decide. The view may change between calls of Next, by what was
// decided.
func NewPass(view *state.State, q state.Queue) *Pass {
	p := &Pass{view: view, demands: demands{view: view}}
	p.queues = []line{{key: q}}
	if q.Kind == state.NodeQueue {
		n := view.Node(state.NodeID(q.ID))
		if n == nil || n.State != state.NodeUp {
			p.queues = nil
			return p
		}
		p.node, p.pool = n.ID, n.Pool
		if !n.Draining {
			p.queues = append(p.queues, line{key: state.QueueOf(state.PoolQueue, n.Pool)})
		}
	} else {
		p.pool = state.PoolID(q.ID)
	}
	if pool := view.Pool(p.pool); pool == nil || pool.Halted != "" {
		p.queues = nil
	}
	p.reread = true
	return p
}

// Examined implements Decider.
func (p *Pass) Examined() int { return p.examined }

// Next implements Decider.
func (p *Pass) Next() (Decision, bool) {
	if len(p.queues) == 0 {
		return Decision{}, false
	}
	if p.reread {
		p.share()
	}
	if p.node == 0 {
		if d, ok := p.nextPlacement(); ok {
			return d, true
		}
	}
	for {
		a, queue := p.nextAction()
		if a == nil {
			return Decision{}, false
		}
		if ending(p.view, a) {
			p.drop(a)
			continue
		}
		if p.limited(a) {
			continue
		}
		n, width := p.choose(a)
		if n == nil {
			if d, ok := p.aside(a); ok {
				p.drop(a)
				return d, true
			}
			p.unfit(a, queue)
			p.block(a)
			continue
		}
		if d, ok := p.startOrReserve(a, n, width); ok {
			return d, true
		}
	}
}

// nextPlacement decides on the oldest pending trajectory. These are served
// strictly in order, but for those that no usable node could ever hold.
func (p *Pass) nextPlacement() (Decision, bool) {
	t := p.view.PendingTrajectory(p.pool, 0)
	if t == nil {
		return Decision{}, false
	}
	n, steps := place.ForTrajectory(p.view, t)
	p.examined += steps
	if n != nil {
		return Decision{Place: t, Node: n}, true
	}
	ok, steps := CouldLive(p.view, t)
	p.examined += steps
	return Decision{Place: t}, !ok
}

// CouldLive reports whether a usable node could ever hold a trajectory, with all its
// actions. What was looked at is in steps.
func CouldLive(v *state.State, t *state.Trajectory) (ok bool, steps int) {
	return place.Livable(v, t)
}

// nextAction returns the oldest waiting action that was not examined yet, with the
// number of its queue; nil when none is left or nothing could start anyway.
func (p *Pass) nextAction() (*state.Action, int) {
	if p.over || !p.anyCore() {
		return nil, 0
	}
	for len(p.ahead) > 0 || p.readAhead() {
		e := p.ahead[0]
		p.ahead = p.ahead[1:]
		if p.fair != nil || p.queues[e.line].unfit < LookAhead {
			p.examined++
			p.at = e.read
			return p.view.Action(e.id), e.line
		}
	}
	return nil, 0
}

// readAhead takes the action out of the queues that is served next; false if there is none
// left.
func (p *Pass) readAhead() bool {
	if p.fair != nil {
		return p.readFair()
	}
	oldest := -1
	for i := range p.queues {
		q := &p.queues[i]
		if q.more(p.view) && (oldest < 0 || q.next[0] < p.queues[oldest].next[0]) {
			oldest = i
		}
	}
	if oldest < 0 {
		return false
	}
	q := &p.queues[oldest]
	p.read++
	p.ahead = append(p.ahead, entry{q.next[0], oldest, p.read})
	q.next = q.next[1:]
	return true
}

// ending reports whether an action waits only to be canceled with its
// trajectory.
func ending(v *state.State, a *state.Action) bool {
	return a.Trajectory != 0 && v.Trajectory(a.Trajectory).State != state.TrajectoryOpen
}

// more reports whether there is another action to examine.
func (q *line) more(v order.Queue) bool {
	return q.unfit < LookAhead && q.read(v, LookAhead)
}

// read reads some actions ahead if none is left.
func (q *line) read(v order.Queue, ahead int) bool {
	if len(q.next) == 0 && !q.ended {
		q.next = order.Oldest(v, q.key, q.last, ahead)
		q.ended = len(q.next) < ahead
		if len(q.next) > 0 {
			q.last = q.next[len(q.next)-1]
		}
	}
	return len(q.next) > 0
}

func (p *Pass) anyCore() bool {
	if p.node != 0 {
		return p.view.Node(p.node).Available() > 0
	}
	any := false
	p.view.NodesByFreeCores(p.pool, func(n *state.Node) bool {
		any = n.Available() > 0
		return false
	})
	return any
}

// nodeFor returns the node on which the action can start now, nil if none.
func (p *Pass) nodeFor(a *state.Action) *state.Node {
	if p.node != 0 {
		if n := p.view.Node(p.node); place.Fits(n, a) {
			return n
		}
		return nil
	}
	if p.misses.covers(a) {
		return nil
	}
	n, steps := place.ForAction(p.view, a)
	p.examined += steps
	if n == nil {
		p.misses.add(a)
	}
	return n
}

// aside decides that an action waits aside, if it may run on any node of its pool and
// no usable one could ever run it. What cannot be served must not hold up others.
func (p *Pass) aside(a *state.Action) (Decision, bool) {
	if a.Trajectory != 0 || a.ReservedOn != 0 {
		return Decision{}, false
	}
	ok, steps := place.Servable(p.view, a)
	p.examined += steps
	return Decision{Aside: a}, !ok
}

// block remembers an action that does not start. One that has a node reserved for it
// elsewhere is served there and holds up no others here.
func (p *Pass) block(a *state.Action) {
	if a.ReservedOn == 0 {
		p.passed = append(p.passed, a.ID)
	}
}

// headFor returns the oldest action that does not start and would be bypassed by a
// start on n, nil if none would.
func (p *Pass) headFor(n *state.Node) *state.Action {
	for _, id := range p.passed {
		if a := p.view.Action(id); !p.defers(a, n) && LimitOf(p.view, a) == order.NoLimit {
			return a
		}
	}
	return nil
}

// defers reports whether an action could start on n and is deferred, which it may be
// for a while: no action bypasses it.
func (p *Pass) defers(a *state.Action, n *state.Node) bool {
	return p.mayDefer(a) && a.CoresMax > a.CoresMin && !follows(a, n) && p.demands.informed(a) && place.Fits(n, a)
}

func (p *Pass) mayDefer(a *state.Action) bool {
	return p.view.Meta().Now-a.SubmittedAt < deferNSMax
}

// startOrReserve starts a on n with width cores, unless that would bypass an older
// action once too often: then a node is reserved for that one first.
func (p *Pass) startOrReserve(a *state.Action, n *state.Node, width int) (Decision, bool) {
	d := Decision{Start: a, Node: n}
	if d, first := p.gangFirst(&d); first {
		return p.again(d)
	}
	if head := p.headFor(n); !p.passes(&d, 0, head) {
		return p.reserve(head)
	}
	// A pass over n has what is pinned to n in its own queue.
	if p.node == 0 {
		if head := p.pinnedBefore(a, n); !p.passes(&d, 1, head) {
			return p.reserveNode(n, head)
		}
	}
	if head := p.corelessBefore(a, n); !p.passes(&d, 3, head) {
		return p.reserve(head)
	}
	d.Cores, d.Resize = p.give(n, p.within(a, width))
	if p.frees(a) {
		p.gangMisses = nil // it was kept from gangs, too
		return p.again(d)
	}
	return d, true
}

// frees reports whether the start of an action ends a reservation that kept a node from older ones
// too. They are looked at again then, before what is younger.
func (p *Pass) frees(a *state.Action) bool {
	n := p.view.Node(a.ReservedOn)
	return n != nil && n.Alone
}

// passes notes in a start the older action that it passes by, if there is one, as the
// i-th of Bypassed. It reports false if that one may not be passed by any more: then
// it is served first.
func (p *Pass) passes(start *Decision, i int, older *state.Action) bool {
	if older != nil && !p.mayBypass(older) {
		return false
	}
	start.Bypassed[i] = older
	return true
}

func (p *Pass) mayBypass(a *state.Action) bool {
	return order.MayBypass(a, p.view.Meta().Now, &p.view.Meta().Settings)
}

// pinnedBefore returns the oldest action that waits for n alone, if it is older
// than a.
func (p *Pass) pinnedBefore(a *state.Action, n *state.Node) *state.Action {
	i := state.QueueOf(state.NodeQueue, n.ID)
	if p.view.QueueLen(i) == 0 {
		return nil
	}
	if p.sharesCores(a) {
		return p.pinnedByShare(a, n, i)
	}
	if p.view.AnySettings() {
		return p.unlimitedPinned(a, n, i)
	}
	for last := state.ActionID(0); ; p.examined++ {
		oldest := order.Oldest(p.view, i, last, 1)
		if len(oldest) == 0 || oldest[0] > a.ID {
			return nil
		}
		last = oldest[0]
		if b := p.view.Action(last); !ending(p.view, b) && !p.defers(b, n) {
			return b
		}
	}
}

// unlimitedPinned is pinnedBefore where namespaces have limits.
func (p *Pass) unlimitedPinned(a *state.Action, n *state.Node, q state.Queue) (first *state.Action) {
	p.visitOlder(a, q, func(b *state.Action) bool {
		if !ending(p.view, b) && !p.defers(b, n) {
			first = b
		}
		return first == nil
	})
	return first
}

// poolBefore returns the oldest action without GPUs that any node of the pool may
// run and that could do with n, if it is older than a. With demand, it is one that
// needs some of that.
func (p *Pass) poolBefore(a *state.Action, n *state.Node, demand func(*state.Action) uint64) (first *state.Action) {
	shape := n.Shape()
	p.visitOlder(a, state.QueueOf(state.PoolQueue, p.pool), func(b *state.Action) bool {
		if b.ReservedOn == 0 && place.Holds(&shape, b) && (demand == nil || demand(b) > 0) && !p.defers(b, n) {
			first = b
		}
		return first == nil
	})
	return first
}

// reserve serves an action whose patience has ended by reserving a node for it:
// its own if it is pinned, else one that could hold it and that no older pinned
// one needs more.
func (p *Pass) reserve(head *state.Action) (Decision, bool) {
	if head.Trajectory == 0 {
		n := p.toReserve(head)
		if n == nil {
			return p.reserveNode(nil, head)
		}
		if older := p.pinnedBefore(head, n); older != nil && !p.mayBypass(older) {
			return p.reserveNode(n, older)
		}
		return p.reserveNode(n, head)
	}
	if n := p.view.Node(p.node); n.ReservedFor == 0 || n.ReservedFor > head.ID {
		return p.reserveNode(n, head)
	}
	p.over = true // reserved for an older one: at least nothing younger starts in this pass
	return Decision{}, false
}

func (p *Pass) toReserve(a *state.Action) *state.Node {
	n, steps := place.ToReserve(p.view, a)
	p.examined += steps
	return n
}

// reserveNode has a node reserved, and the pass look at everything again.
func (p *Pass) reserveNode(n *state.Node, head *state.Action) (Decision, bool) {
	return p.again(Decision{Reserve: head, Node: n})
}
