package sched

import (
	"rota/fsm/state"
	"rota/sched/place"
)

// passedMax is how many waiting actions that cannot be given a quota, whatever is
// free, a pass goes by.
const passedMax = 1024

// readAhead is how many waiting actions are read at once where mostly the first
// decides.
const readAhead = 8

// quotaPass grants what is free of one quota, strictly first come, first served:
// the first action that has to wait holds up all the others. Gone by are only
// those that nothing could be given to: their trajectory is ending, their pool is
// halted, or an operator has lowered the limit below what they ask for.
type quotaPass struct {
	view   *state.State
	id     state.QuotaID
	queue  line
	passed int
}

func newQuotaPass(view *state.State, id state.QuotaID) *quotaPass {
	return &quotaPass{view: view, id: id, queue: line{instance: state.QuotaInstance(id)}}
}

// Examined implements Decider.
func (p *quotaPass) Examined() int { return p.queue.examined }

// Next implements Decider.
func (p *quotaPass) Next() (Decision, bool) {
	q := p.view.Quota(p.id)
	if q == nil || q.Halted != "" {
		return Decision{}, false
	}
	for p.passed < passedMax {
		a := p.queue.first(p.view)
		if a == nil {
			break
		}
		use, _ := a.Missing()
		if use.Units > q.Limit || ending(p.view, a) || p.view.Pool(a.Pool).Halted != "" {
			p.queue.drop()
			p.passed++
			continue
		}
		key, free := place.Key(q, use.Units)
		if !free {
			break
		}
		p.queue.drop()
		return Decision{Take: a, Key: key}, true
	}
	return Decision{}, false
}

// corelessPass starts actions that have no cores of their own. They take nothing
// but memory, and that only without a trajectory, so they wait for nobody but each
// other, strictly in order.
type corelessPass struct {
	view  *state.State
	queue line
}

// Examined implements Decider.
func (p *corelessPass) Examined() int { return p.queue.examined }

// Next implements Decider.
func (p *corelessPass) Next() (Decision, bool) {
	for {
		a := p.queue.first(p.view)
		switch {
		case a == nil || p.view.Pool(a.Pool).Halted != "":
			return Decision{}, false
		case ending(p.view, a):
			p.queue.drop()
			continue
		}
		n := p.nodeFor(a)
		if n == nil {
			return Decision{}, false
		}
		p.queue.drop()
		return Decision{Start: a, Node: n}, true
	}
}

func (p *corelessPass) nodeFor(a *state.Action) *state.Node {
	if a.Trajectory == 0 {
		return place.Coreless(p.view, a)
	}
	if n := p.view.Node(a.Node); n.State == state.NodeUp {
		return n
	}
	return nil
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
