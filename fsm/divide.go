package fsm

import (
	"rota/fsm/state"
	"rota/sched"
)

// divides has the cores of a node divided again, now or as soon as that may be: some of them
// were taken or given back.
func (x *execution) divides(n *state.Node, cores state.CoreSet) {
	if n.Resizes && n.State == state.NodeUp && cores != (state.CoreSet{}) {
		x.divisions.add(n.ID)
	}
}

// divideDue has a node divided again for the sake of time.
func (x *execution) divideDue(n *state.Node) {
	m := *n
	m.DivideAt = 0
	x.s.PutNode(&m)
	x.divisions.add(m.ID)
}

// divide divides the nodes where something has changed. It comes after all starts, so that
// nothing is given to one attempt and taken back for another.
func (x *execution) divide() {
	for id, ok := x.divisions.pop(); ok; id, ok = x.divisions.pop() {
		if q := state.QueueOf(state.NodeDivision, id); x.budget > 0 {
			x.attend(q)
		} else {
			x.s.PutWork(q)
		}
	}
}

// divideNode divides the cores of a node, or says when it is to be done.
func (x *execution) divideNode(id state.NodeID) {
	n := x.s.Node(id)
	if n == nil || !n.Resizes || n.State != state.NodeUp || n.Thawing > 0 {
		return
	}
	if at := sched.DivideAt(n); n.DividedAt > 0 && x.now() < at {
		x.divideLater(n, at)
		return
	}
	d := sched.Divide(x.s, n)
	x.budget -= 1 + d.Examined + len(d.Share) + len(d.Resizes)
	x.shareCores(id, d.Share)
	for _, r := range d.Resizes {
		x.resize(id, r)
	}
	if len(d.Share) > 0 {
		x.nodeFreed(x.s.Node(id))
	}
	m := *x.s.Node(id)
	m.DivideAt = d.Again
	if len(d.Resizes) > 0 {
		m.DividedAt = x.now()
	}
	if m.DivideAt != n.DivideAt || m.DividedAt != n.DividedAt {
		x.s.PutNode(&m)
	}
}

// divideLater has a node divided at a log time at the latest.
func (x *execution) divideLater(n *state.Node, at int64) {
	if n.DivideAt == 0 || n.DivideAt > at {
		m := *n
		m.DivideAt = at
		x.s.PutNode(&m)
	}
}

// resize gives a running attempt of a node other cores, its anchor among them.
func (x *execution) resize(id state.NodeID, r sched.Resize) {
	n := *x.s.Node(id)
	if r.Attempt == nil {
		x.resizeShared(n, r.Cores)
		return
	}
	t := *r.Attempt
	free := n.Free.Union(t.Cores)
	state.Assert(t.Least > 0 && r.Cores.Minus(free) == state.CoreSet{} && r.Cores.Len() >= int(t.Least) && r.Cores.Has(int(t.Anchor)),
		"cores of node %s that action %d is to go on with are not free, or too few", n.Name, t.Action)
	n.Free = free.Minus(r.Cores)
	n.Spare -= t.Spare()
	t.CoreNS, t.ResizedAt = t.Used(x.now()), x.now()
	if r.Cores.Len() < t.Cores.Len() {
		x.mayHoldMore(x.s.Action(t.Action).Namespace)
	}
	t.Cores = r.Cores
	n.Spare += t.Spare()
	x.s.PutNode(&n)
	x.s.PutAttempt(&t)
	x.dirtyNodes.add(n.ID)
	x.effects = append(x.effects, Effect{Kind: EffectResized, Node: n.ID})
}
