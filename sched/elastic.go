package sched

import (
	"slices"

	"rota/fsm/state"
	"rota/sched/place"
	"rota/sched/scale"
)

const (
	// sharesMax bounds among how many nodes a pass over a pool shares out what
	// waits.
	sharesMax = 64
	// offersMax bounds how often those that better wait on one node are offered to
	// the others.
	offersMax = 8
	// exploreAfter is how many attempts with the same width a class learns from
	// before another is tried.
	exploreAfter = 3
)

// plan is what a pass has decided together: who starts, where and how wide. It
// holds until the state is another than it was made for.
type plan struct {
	through uint64 // the last of those read that it is about; 0: there is no plan
	// greedy: no action is known to be elastic. Each gets what is free.
	greedy bool
	// follow: there may be nodes on which actions start without the plan.
	follow bool
	grants map[state.ActionID]grant // for look-up only
}

// grant is a place and a width.
type grant struct {
	node  state.NodeID
	width int
}

// follows reports whether the cores of an action follow its node's division, so that it
// starts as soon as there are the fewest that it can do with.
func follows(a *state.Action, n *state.Node) bool { return n.Resizes && a.Resizable() }

// choose returns where an action starts now, and how wide: nil if it does not,
// because it does not fit or better waits.
func (p *Pass) choose(a *state.Action) (*state.Node, int) {
	if a.Resizable() && p.view.Meta().Level >= LevelResizing { // below, the search counted once
		if n := p.nodeFor(a); n != nil && follows(a, n) {
			return n, int(a.CoresMin)
		}
	}
	if p.at > p.plan.through {
		if p.nodeFor(a) == nil {
			return nil, 0
		}
		p.makePlan(a)
	}
	if p.plan.greedy {
		n := p.nodeFor(a)
		if n == nil {
			return nil, 0
		}
		return n, p.widest(a, 0, max(n.Free.Len(), int(a.CoresMin)))
	}
	g, ok := p.plan.grants[a.ID]
	if !ok {
		if n := p.besideFollowers(a); n != nil {
			return n, int(a.CoresMin)
		}
		// Younger actions start only by the plan.
		p.over = len(p.plan.grants) == 0 && p.plan.through == newest && !p.plan.follow
		return nil, 0
	}
	delete(p.plan.grants, a.ID)
	n := p.view.Node(g.node)
	if place.Fits(n, a) && g.width <= n.Available() {
		return n, g.width
	}
	p.plan = plan{} // something else was done than decided
	return p.choose(a)
}

// besideFollowers returns the node on which an action starts with its least width though the
// plan leaves it out: one that resizes, so that younger actions start there without the plan
// and would pass it by. Those whose cores follow make room. Nil if there is none, or if the
// action may be deferred.
func (p *Pass) besideFollowers(a *state.Action) *state.Node {
	if !p.plan.follow || p.view.Meta().Level < LevelResizing {
		return nil
	}
	if n := p.nodeFor(a); n != nil && n.Resizes && !p.defers(a, n) {
		return n
	}
	return nil
}

// newest is not before any action that is read.
const newest = ^uint64(0)

// widest returns the width of an action of which it is unknown what more cores
// would bring: all that are free, if it can use them. One that more does not help
// gets its least degree.
func (p *Pass) widest(a *state.Action, has, free int) int {
	dops := DoPSetOf(a)
	if dops.Len() == 1 {
		return int(dops.Least())
	}
	if d := p.demands.of(a); !d.Rigid() {
		return max(has, int(dops.Least()))
	}
	return p.explore(a, dops, dops.AtMost(has+free), has+free)
}

// explore returns another width than an action would get if its class learns by
// that. A class that has seen one width only needs a second to know a curve: half
// of it. One that still gains at the end of its curve is tried beyond.
func (p *Pass) explore(a *state.Action, dops scale.DoPSet, width, free int) int {
	c := p.view.Class(a.Class)
	if c == nil || len(c.Seen) == 0 {
		return width
	}
	if profile := profileOf(a); profile != nil && CurveOf(profile) != nil {
		return width
	}
	last := c.Seen[len(c.Seen)-1]
	switch {
	case int(last.Units) != width:
	case len(c.Seen) > 1:
		return max(width, dops.AtMost(min(2*width, free)))
	case last.Attempts >= exploreAfter:
		if half := dops.AtMost(width / 2); half > 0 {
			return half
		}
	}
	return width
}

// makePlan decides about an action that could start, together with others that
// could.
func (p *Pass) makePlan(a *state.Action) {
	if through := p.nobodyElastic(a); through > 0 {
		p.plan = plan{through: through, greedy: true}
		return
	}
	m := p.newBatch(a)
	if !m.anyElastic() {
		p.plan = plan{through: m.last(), greedy: true}
		return
	}
	p.examined += len(m.candidates)
	p.plan = plan{through: newest, follow: m.anyResizes(), grants: make(map[state.ActionID]grant)}
	if m.cut {
		p.plan.through = m.last()
	}
	m.decide()
}

// nobodyElastic looks at no more actions than could start, and returns the last
// of them if none is elastic: that is cheap, and the case of those who know
// nothing.
func (p *Pass) nobodyElastic(a *state.Action) uint64 {
	if p.isElastic(a) {
		return 0
	}
	most, room := p.room()
	last := p.at
	for i := 0; room > 1 && (i < len(p.ahead) || p.readAhead()); i++ {
		b := p.view.Action(p.ahead[i].id)
		if int(b.CoresMin) <= most {
			if p.isElastic(b) {
				return 0
			}
			room--
		}
		last = p.ahead[i].read
	}
	return last
}

// isElastic reports whether an action is known to be faster with more cores.
func (p *Pass) isElastic(a *state.Action) bool {
	if a.CoresMax == a.CoresMin || a.Class == 0 && profileOf(a) == nil {
		return false
	}
	d := p.demands.of(a)
	return d.Elastic()
}

// room returns the most free cores of a node, and how many there are in all: at
// most as many as actions are looked at.
func (p *Pass) room() (most, all int) {
	if p.node != 0 {
		free := p.view.Node(p.node).Available()
		return free, min(free, LookAhead)
	}
	p.view.NodesByFreeCores(p.pool, func(n *state.Node) bool {
		free := n.Available()
		most, all = max(most, free), all+free
		return free > 0 && all < LookAhead
	})
	return most, min(all, LookAhead)
}

// batch is the actions that could start together, and the nodes on which they could.
type batch struct {
	*Pass
	nodes      []candidateNode
	candidates []candidate
	mean       int64 // known duration of the actions that wait
	cut        bool  // there may be more candidates
}

// candidateNode is a node with what the plan leaves of it.
type candidateNode struct {
	node      *state.Node
	free      int    // cores
	memory    uint64 // bytes
	bandwidth uint64 // bits/s
	wants     []int  // the candidates that are to start there, by their place in the batch
	usage     *usage // nil until it is looked at
}

// candidateNodeOf is a node of which the plan has given nothing yet.
func candidateNodeOf(n *state.Node) candidateNode {
	return candidateNode{node: n, free: n.Available(), memory: n.FreeMemory, bandwidth: n.FreeBandwidth}
}

// emptied is the node without the candidates that were to start there.
func (s *candidateNode) emptied() candidateNode {
	out := candidateNodeOf(s.node)
	out.usage = s.usage
	return out
}

// fits is place.Fits with what the plan leaves.
func (s *candidateNode) fits(a *state.Action) bool {
	return !s.node.KeptFrom(a.ID) && s.free >= int(a.CoresMin) && s.memory >= place.Reserves(a) && s.bandwidth >= a.Bandwidth()
}

// assign gives one of the candidates its least degree.
func (s *candidateNode) assign(i int, a *state.Action) {
	s.free -= int(a.CoresMin)
	s.memory -= place.Reserves(a)
	s.bandwidth -= a.Bandwidth()
	s.wants = append(s.wants, i)
}

// candidate is an action that could start, or waits behind those that could.
type candidate struct {
	action *state.Action
	read   uint64 // as which it was read
	demand scale.Demand
	own    bool // it waits for this node alone
	node   int  // where it is to start; -1: nowhere
	waits  bool // it could start, and better waits for more
	starts bool
}

// newBatch reads the actions that could start together with a, with their least
// degrees, and some of the actions behind them.
func (p *Pass) newBatch(a *state.Action) *batch {
	m := &batch{Pass: p}
	p.findNodes(m, a)
	m.mean = p.meanDuration(a)
	m.join(a, p.at, p.node != 0 && a.Trajectory != 0)
	unfit := make([]int, len(p.queues))
	behind := 0
	for i := 0; behind < LookAhead && (i < len(p.ahead) || p.readAhead()); i++ {
		if len(m.candidates)-behind == scale.CandidatesMax {
			m.cut = true
			break
		}
		e := p.ahead[i]
		b := p.view.Action(e.id)
		if unfit[e.line] >= LookAhead || ending(p.view, b) {
			continue
		}
		if m.join(b, e.read, p.node != 0 && e.line == 0) {
			continue
		}
		if len(m.nodes) >= sharesMax { // it may fit another node
			m.candidates = m.candidates[:len(m.candidates)-1]
			m.cut = true
			break
		}
		unfit[e.line]++
		behind++
	}
	m.cut = m.cut || p.fair != nil && p.fair.Full()
	return m
}

// findNodes finds the nodes to share out: those with most free cores, and in any case
// the one on which a could start.
func (p *Pass) findNodes(m *batch, a *state.Action) {
	if p.node != 0 {
		m.nodes = []candidateNode{candidateNodeOf(p.view.Node(p.node))}
		return
	}
	p.view.NodesByFreeCores(p.pool, func(n *state.Node) bool {
		if n.Available() > 0 {
			m.nodes = append(m.nodes, candidateNodeOf(n))
		}
		return n.Available() > 0 && len(m.nodes) < sharesMax
	})
	n := p.nodeFor(a)
	if n != nil && !slices.ContainsFunc(m.nodes, func(s candidateNode) bool { return s.node.ID == n.ID }) {
		m.nodes = append(m.nodes, candidateNodeOf(n))
	}
}

// join adds an action and reports whether it could start.
func (m *batch) join(a *state.Action, read uint64, own bool) bool {
	m.candidates = append(m.candidates, candidate{action: a, read: read, demand: m.demands.of(a), own: own, node: -1})
	return m.assign(len(m.candidates)-1, 0)
}

// assign gives an action a node: of those from first on that it fits, the one with the
// most free cores, as in package place.
func (m *batch) assign(i, first int) bool {
	w := &m.candidates[i]
	w.node = -1
	for j := first; j < len(m.nodes); j++ {
		if s := &m.nodes[j]; s.fits(w.action) && (w.node < 0 || s.free > m.nodes[w.node].free) {
			w.node = j
		}
	}
	if w.node < 0 {
		return false
	}
	s := &m.nodes[w.node]
	if w.waits = m.waits(i, s); w.waits {
		w.node = -1
		return false
	}
	s.assign(i, w.action)
	return true
}

func (m *batch) last() uint64 { return m.candidates[len(m.candidates)-1].read }

func (m *batch) anyElastic() bool {
	for i := range m.candidates {
		if w := &m.candidates[i]; (w.node >= 0 || w.waits) && w.demand.Elastic() {
			return true
		}
	}
	return false
}

// decide goes from node to node, the one with the most free cores first. Those
// that better wait there are offered to the nodes after it.
func (m *batch) decide() {
	if m.elastic == nil {
		m.elastic = new(scale.Elastic)
	}
	offers := 0
	for j := range m.nodes {
		all := m.decideOn(j)
		if !all && j+1 < len(m.nodes) && offers < offersMax {
			m.offer(j + 1)
			offers++
		}
	}
}

// anyResizes reports whether a node may resize what runs there: of those that it shares
// out, if these are all.
func (m *batch) anyResizes() bool {
	return len(m.nodes) >= sharesMax && m.view.Meta().Level >= LevelResizing || slices.ContainsFunc(m.nodes, func(s candidateNode) bool { return s.node.Resizes })
}

// offer assigns the candidates that do not start yet again, to the nodes from first on.
func (m *batch) offer(first int) {
	for j := first; j < len(m.nodes); j++ {
		m.nodes[j] = m.nodes[j].emptied()
	}
	for i := range m.candidates {
		if !m.candidates[i].starts {
			m.assign(i, first)
		}
	}
}

// decideOn decides who starts on one node and how wide (§4.2, Algorithm 1). It
// reports whether all do that are to.
func (m *batch) decideOn(j int) (all bool) {
	s := &m.nodes[j]
	if len(s.wants) == 0 {
		return true
	}
	g := scale.Input{Candidates: len(s.wants)}
	least := 0
	for k, i := range s.wants {
		a := m.candidates[i].action
		least += int(a.CoresMin)
		p := m.price(i, s)
		g.Queue = append(g.Queue, p.Narrow(m.candidates[i].demand))
		if m.served(a, s.node) {
			g.Must = k + 1
		}
	}
	g.Free = max(s.node.Free.Len(), least) // beyond their least nothing is taken from others
	m.addBehind(&g, s)
	for _, end := range m.usageOf(s).ends {
		g.Running = append(g.Running, end.At)
	}
	widths := m.elastic.Decide(g)
	left := g.Free
	for _, w := range widths {
		left -= int(w)
	}
	for k, w := range widths {
		x := &m.candidates[s.wants[k]]
		width := m.widen(x, int(w), left)
		left -= width - int(w)
		x.starts = true
		m.plan.grants[x.action.ID] = grant{s.node.ID, width}
	}
	return len(widths) == len(s.wants)
}

// widen gives an action cores that no candidate is known to gain from: as without a
// plan if its gain is unknown, and to learn.
func (m *batch) widen(x *candidate, width, left int) int {
	if x.demand.Rigid() {
		return m.widest(x.action, width, left)
	}
	return m.explore(x.action, x.demand.DoPSet(), width, width+left)
}

// addBehind adds those that wait behind the candidates of a node. Those that any
// node of the pool may run are shared among its nodes.
func (m *batch) addBehind(g *scale.Input, s *candidateNode) {
	nodes := max(1, m.view.UsableNodes(m.pool))
	own, pooled := 0, 0
	for i := range m.candidates {
		switch w := &m.candidates[i]; {
		case w.own:
			own++
			if w.node < 0 {
				g.Queue = append(g.Queue, w.demand)
			}
		case !w.starts && w.node < 0 && pooled%nodes == 0:
			g.Queue = append(g.Queue, w.demand)
			fallthrough
		default:
			pooled++
		}
	}
	g.Behind = m.view.QueueLen(state.QueueOf(state.NodeQueue, s.node.ID)) - own
	if rest := m.view.QueueLen(state.QueueOf(state.PoolQueue, m.pool)) - pooled; rest > 0 && !s.node.Draining {
		g.Behind += rest / nodes
	}
}
