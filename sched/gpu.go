package sched

import (
	"rota/fsm/state"
	"rota/sched/order"
	"rota/sched/place"
	"rota/sched/place/chunk"
)

const (
	// gpuBatch is how many waiting actions are planned together.
	gpuBatch = 128
	// gpuNodes is how many nodes a pass chooses from, those with most free GPUs first,
	// and further ones on which an action fits that fits none of these.
	gpuNodes = 512
)

// GPUs is what a start is given of its node's GPUs.
type GPUs struct {
	Chunk state.Chunk
	// Hit: its model is resident there. If not, those of Evict have to go, and
	// SetUpNS is what it costs to make it so.
	Hit     bool
	Evict   []state.Resident
	SetUpNS int64
	// Bytes is what it takes of the memory of each.
	Bytes uint64
}

// gpuPass goes once through the queue of a class of GPUs of a pool, oldest first.
// It decides as ARL-Tangram does in §5.3 and appendix B: how many GPUs each gets
// is planned for a batch of actions together (gpuplan.go), and then each chooses
// its chunk, of those of all nodes (gpuview.go).
type gpuPass struct {
	Pass
	queue    state.Queue
	nodes    *gpuFleet
	batch    []planned
	rest     chunk.Counts   // what those of the batch were promised that are still to come
	last     state.ActionID // newest read
	began    bool           // it has begun to read
	unfit    int
	evicting bool // the plan lets those that are left wait
	stale    []state.NodeID
	// explores: it tries degrees that a class knows little of; see gpuexplore.go.
	explores bool
	// spares: it evicts a model that the rest of the batch needs only if nothing else is left.
	spares bool
}

func newGPUPass(view *state.State, q state.Queue) *gpuPass {
	pool, class := q.GPUs()
	p := &gpuPass{Pass: Pass{view: view, pool: pool, demands: demands{view: view}}, queue: q}
	if row := view.Pool(pool); row == nil || row.Halted != "" || view.GPUClass(class) == nil {
		p.over = true
	}
	return p
}

// Next implements Decider.
func (p *gpuPass) Next() (Decision, bool) {
	if p.over {
		return Decision{}, false
	}
	p.refresh()
	for {
		a, units := p.nextPlanned()
		if a == nil {
			p.over = true
			return Decision{}, false
		}
		n, c, ok := p.choose(a, units)
		if !ok && p.reachOut(a) {
			n, c, ok = p.choose(a, units)
		}
		if !ok {
			if d, ok := p.doesNotFit(a); ok {
				return d, true
			}
			continue
		}
		return p.startOrReserve(a, n, c), true
	}
}

// refresh brings the nodes up to date with what was decided last.
func (p *gpuPass) refresh() {
	if p.nodes == nil {
		p.nodes = newGPUFleet(p.view, p.queue)
		p.examined += len(p.nodes.nodes)
	}
	for _, id := range p.stale {
		p.nodes.reload(p.view, id)
	}
	p.stale = p.stale[:0]
}

// nextPlanned returns the oldest waiting action that was not examined yet, with
// the GPUs that it is to get; nil when nothing more could start.
func (p *gpuPass) nextPlanned() (*state.Action, uint32) {
	for p.unfit < LookAhead && p.nodes.anyFree() {
		if len(p.batch) == 0 && !p.nextBatch() {
			break
		}
		next := p.batch[0]
		p.batch = p.batch[1:]
		p.examined++
		a := p.view.Action(next.action.ID)
		if next.units > 0 && next.promised {
			p.rest[levelOf(next.units)]--
		}
		if p.spares {
			p.nodes.await(a.GPUs().Model, -1)
		}
		p.evicting = p.evicting || next.units == 0
		most := p.most(a, max(next.units, a.GPUs().Degrees[0]))
		switch {
		case most == 0: // others of its namespace have to end first
		case a.ReservedOn != 0:
			return a, a.GPUs().Degrees[0]
		case !p.evicting:
			return a, min(most, next.units)
		}
	}
	return nil, 0
}

func (p *gpuPass) nextBatch() bool {
	if p.evicting {
		return false
	}
	ids := p.nextIDs(gpuBatch)
	if len(ids) == 0 {
		return false
	}
	p.batch, p.rest = p.plan(ids)
	if p.spares {
		p.awaitBatch()
	}
	return true
}

// awaitBatch notes which models the batch needs.
func (p *gpuPass) awaitBatch() {
	clear(p.nodes.awaited)
	for i := range p.batch {
		p.nodes.await(p.batch[i].action.GPUs().Model, 1)
	}
}

// doesNotFit remembers the oldest action that does not fit. If it waits for
// nothing but cores, memory or bandwidth beside free GPUs, their node is reserved for
// it at once: idle GPUs cost most.
func (p *gpuPass) doesNotFit(a *state.Action) (Decision, bool) {
	p.drop(a)
	if d, ok := p.aside(a); ok {
		return d, true
	}
	first := p.unfit == 0
	p.unfit++
	if a.ReservedOn != 0 {
		return Decision{}, false
	}
	p.block(a)
	if !first {
		return Decision{}, false
	}
	n := p.nodes.shortOfOthers(p.view, a)
	if n == nil {
		return Decision{}, false
	}
	return p.reserveFor(n, a), true
}

// startOrReserve starts a on n unless that would bypass an older action once too
// often: then a node is reserved for that one first.
func (p *gpuPass) startOrReserve(a *state.Action, n *state.Node, g *GPUs) Decision {
	d := Decision{Start: a, Node: n, GPUs: g}
	if d, first := p.gangFirst(&d); first {
		p.nodes = nil
		return p.begin(d)
	}
	if head := p.head(); !p.passes(&d, 0, head) {
		return p.reserveFor(p.toReserveGPUs(head), head)
	}
	if a.CoresMin > 0 || place.Reserves(a) > 0 || a.Bandwidth() > 0 {
		if pinned := p.pinnedBefore(a, n); !p.passes(&d, 1, pinned) {
			return p.reserveFor(n, pinned)
		}
		if other := p.poolBefore(a, n, nil); !p.passes(&d, 2, other) {
			return p.reserveFor(p.toReserve(other), other)
		}
		if other := p.corelessBefore(a, n); !p.passes(&d, 3, other) {
			return p.reserveFor(p.toReserve(other), other)
		}
	}
	p.stale = append(p.stale, n.ID, a.ReservedOn)
	d.Cores, d.Resize = p.give(n, int(a.CoresMin))
	if p.frees(a) {
		p.gangMisses = nil // it was kept from gangs, too
		return p.begin(d)
	}
	return d
}

// head returns the first action seen that does not start though its namespace may have more, nil if
// there is none.
func (p *gpuPass) head() *state.Action {
	for _, id := range p.passed {
		if a := p.view.Action(id); LimitOf(p.view, a) == order.NoLimit {
			return a
		}
	}
	return nil
}

// toReserveGPUs returns the node to reserve for a starved action: of those that could ever
// run it and are not reserved for another, the one with the most free GPUs; nil if
// there is none.
func (p *gpuPass) toReserveGPUs(a *state.Action) (hit *state.Node) {
	p.view.NodesByFreeGPUs(p.queue, func(n *state.Node) bool {
		p.examined++
		if n.ReservedFor == 0 && place.CouldRun(p.view, n, a) && couldHave(p.view, n, a) {
			hit = n
		}
		return hit == nil
	})
	return hit
}

// couldHave reports whether a node has a chunk for an action that belongs to no group. A node
// is reserved for no other.
func couldHave(v *state.State, n *state.Node, a *state.Action) bool {
	if !v.AnyMembers() || a.GPUs() == nil {
		return true // place.CouldRun has seen to that
	}
	own := n.InUse() &^ v.GroupGPUs(n)
	_, has := chunk.Set(own).Allocate(levelOf(a.GPUs().Degrees[0]))
	return has
}

// reachOut takes one more node into the choice, if an action fits on one that is not
// in it. It reports whether there is one.
func (p *gpuPass) reachOut(a *state.Action) bool {
	if !p.nodes.cut || p.misses.covers(a) {
		return false
	}
	var hit *state.Node
	level := levelOf(a.GPUs().Degrees[0])
	p.view.NodesByFreeGPUs(p.queue, func(n *state.Node) bool {
		p.examined++
		_, has := chunk.Set(n.GPUs.Free &^ p.view.GroupGPUs(n)).Allocate(level)
		if has && n.GPUs.Memory >= a.GPUs().Memory && place.Fits(n, a) && !p.nodes.knows(n.ID) {
			hit = n
		}
		return hit == nil && n.GPUs.Free != 0
	})
	if hit == nil {
		p.misses.add(a)
		return false
	}
	p.nodes.insert(p.view, hit)
	return true
}

// reserveFor has a node reserved for an action, unless an older one that is pinned
// to the node needs it more, and the pass begin again.
func (p *gpuPass) reserveFor(n *state.Node, a *state.Action) Decision {
	if n != nil {
		if older := p.pinnedBefore(a, n); older != nil && !p.mayBypass(older) {
			a = older
		}
		p.stale = append(p.stale, n.ID)
	}
	return p.begin(Decision{Reserve: a, Node: n})
}

// begin has the pass start over after a decision that changes what the others get.
func (p *gpuPass) begin(d Decision) Decision {
	p.passed, p.last, p.unfit, p.evicting, p.batch, p.misses, p.began = nil, 0, 0, false, nil, nil, false
	return d
}

func levelOf(units uint32) chunk.Level {
	l, _ := chunk.LevelFor(int(units))
	return l
}
