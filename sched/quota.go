package sched

import (
	"slices"

	"rota/fsm/state"
	"rota/sched/order"
	"rota/sched/place"
)

// readAhead is how many waiting actions are read at once where mostly the first
// decides.
const readAhead = 8

// quotaPass grants what is free of one quota, strictly in order, which is first come, first served
// unless namespaces share it:
// the first action that has to wait holds up all the others. Gone by are only those
// whose trajectory is ending. Set aside are those that nothing could be given to:
// their pool is halted, no usable node could hold them, or an operator has lowered a limit below what
// they ask for.
type quotaPass struct {
	view *state.State
	id   state.QuotaID
	turn turn
}

func newQuotaPass(view *state.State, id state.QuotaID) *quotaPass {
	return &quotaPass{view: view, id: id, turn: turn{queue: line{key: state.QueueOf(state.QuotaQueue, id)}}}
}

// Examined implements Decider.
func (p *quotaPass) Examined() int { return p.turn.queue.examined }

// Next implements Decider.
func (p *quotaPass) Next() (Decision, bool) {
	q := p.view.Quota(p.id)
	if q == nil || q.Halted != "" {
		return Decision{}, false
	}
	for {
		a := p.turn.first(p.view, p.turn.queue.key)
		if a == nil {
			return Decision{}, false
		}
		if ending(p.view, a) {
			p.turn.skip(a)
			continue
		}
		ok, steps := servable(p.view, a)
		p.turn.queue.examined += max(0, steps-1) // its row is counted already
		if !ok {
			p.turn.skip(a)
			return Decision{Aside: a}, true
		}
		use, _ := a.Missing()
		key, free := place.Key(q, use.Units, p.view.Meta().Now)
		if !free {
			return Decision{}, false
		}
		p.turn.drop()
		return Decision{Acquire: a, Key: key}, true
	}
}

// servable reports whether an action could ever be served as things are: each quota that it waits for
// has as many units, and a usable node of its pool could hold it. Below feature level 3, an action that
// waits for units is judged by the next quota alone. What was looked at is in steps.
func servable(v *state.State, a *state.Action) (ok bool, steps int) {
	next, waits := a.Missing()
	switch {
	case paused(v, a):
		return false, 1
	case waits && v.Pool(a.Pool).Halted != "":
		return false, 1
	case waits && v.Meta().Level < LevelResizing:
		return next.Units <= v.Quota(next.Quota).Limit, 1
	}
	if _, beyond := beyondLimit(v, a); beyond {
		return false, 1
	}
	switch {
	case waits && a.Trajectory != 0: // it has its node
		return true, 1
	case a.Gang != 0:
		return gangServable(v, a)
	}
	return place.Servable(v, a)
}

// beyondLimit returns the first quota that an action waits for whose limit is below what it asks for.
func beyondLimit(v *state.State, a *state.Action) (use state.QuotaUse, ok bool) {
	if a.Needs == nil {
		return use, false
	}
	waits := a.Needs.Quotas[a.QuotasHeld:]
	i := slices.IndexFunc(waits, func(u state.QuotaUse) bool { return u.Units > v.Quota(u.Quota).Limit })
	if i < 0 {
		return use, false
	}
	return waits[i], true
}

// Recalled returns the actions that waited aside, in the room of a queue behind an
// action, of the next n those that could be served now; last is the newest of the n, 0 if
// there are no more. What was looked at is in steps.
func Recalled(v *state.State, room state.Queue, after state.ActionID, n int) (back []*state.Action, last state.ActionID, steps int) {
	for _, id := range order.Oldest(v, room, after, n) {
		a := v.Action(id)
		ok, looked := servable(v, a)
		if steps += 1 + looked; ok {
			back = append(back, a)
		}
		last = id
	}
	return back, last, steps
}

// corelessPass starts actions that have no cores of their own. They take nothing
// but memory, and that only without a trajectory, so they wait for nobody but each
// other, strictly in order, and for those who wait longer for the same memory.
type corelessPass struct {
	Pass
	turn turn
}

func newCorelessPass(view *state.State, q state.Queue) *corelessPass {
	var pool state.PoolID
	if q.Kind == state.PoolCorelessQueue {
		pool = state.PoolID(q.ID)
	}
	return &corelessPass{Pass: Pass{view: view, pool: pool, demands: demands{view: view}}, turn: turn{queue: line{key: q}}}
}

// Examined implements Decider.
func (p *corelessPass) Examined() int { return p.turn.queue.examined + p.examined }

// Next implements Decider.
func (p *corelessPass) Next() (Decision, bool) {
	for {
		a := p.turn.first(p.view, state.Queue{})
		switch {
		case a == nil || p.view.Pool(a.Pool).Halted != "":
			return Decision{}, false
		case ending(p.view, a):
			p.turn.skip(a)
			continue
		}
		n := p.nodeFor(a)
		if n == nil {
			d, ok := p.aside(a)
			if ok {
				p.turn.skip(a)
			}
			return d, ok
		}
		d := Decision{Start: a, Node: n}
		if place.Reserves(a) > 0 {
			if d, first := p.gangFirst(&d); first {
				return d, true
			}
			if older := p.poolBefore(a, n, place.Reserves); !p.passes(&d, 0, older) {
				return p.reserve(older)
			}
		}
		p.turn.drop()
		return d, true
	}
}

func (p *corelessPass) nodeFor(a *state.Action) *state.Node {
	if a.Trajectory == 0 {
		n, steps := place.Coreless(p.view, a)
		p.examined += steps
		return n
	}
	if n := p.view.Node(a.Node); n.State == state.NodeUp {
		return n
	}
	return nil
}

// corelessBefore returns the action without cores that waits for memory and could
// do with that of n, if it is older than a, which takes some of it.
func (p *Pass) corelessBefore(a *state.Action, n *state.Node) *state.Action {
	if place.Reserves(a) == 0 {
		return nil
	}
	var first *state.Action
	p.visitOlder(a, state.QueueOf(state.PoolCorelessQueue, p.pool), func(b *state.Action) bool {
		first = b
		return false
	})
	if shape := n.Shape(); first == nil || first.ReservedOn != 0 || first.Memory == 0 || !place.Holds(&shape, first) {
		return nil
	}
	return first
}

// first returns the oldest action that was not dropped, nil if there is none.
func (q *line) first(v *state.State) *state.Action {
	if !q.read(v, readAhead) {
		return nil
	}
	q.examined++
	return v.Action(q.next[0])
}

func (q *line) drop() { q.next = q.next[1:] }
