package sched

import (
	"slices"

	"rota/fsm/state"
	"rota/sched/order"
)

// share has the pass read what waits by namespace, if several compete or one has limits.
func (p *Pass) share() {
	p.fair, p.reread = nil, false
	if len(p.queues) == 0 || p.view.Meta().Level < LevelResizing || !p.view.Shares() && !p.view.AnySettings() {
		return
	}
	keys := make([]state.Queue, len(p.queues))
	for i := range p.queues {
		keys[i] = p.queues[i].key
	}
	p.fair = order.NewFair(p.view, state.QueueOf(state.PoolQueue, p.pool), keys, LookAhead)
	p.examined += p.fair.Namespaces()
}

// readFair is readAhead by namespace.
func (p *Pass) readFair() bool {
	a, line, ok := p.fair.Next()
	if ok {
		p.read++
		p.ahead = append(p.ahead, entry{a.ID, line, p.read})
	}
	return ok
}

// unfit notes that an action of a queue does not start. After too many of it, or of a namespace in
// it, no more are read.
func (p *Pass) unfit(a *state.Action, queue int) {
	if p.fair != nil {
		p.fair.Unfit(a, queue, LookAhead)
		return
	}
	p.queues[queue].unfit++
}

// limited reports whether an action waits for others of its namespace to end. Those behind it of
// the same namespace wait with it.
func (p *Pass) limited(a *state.Action) bool {
	if p.fair == nil {
		return false
	}
	if LimitOf(p.view, a) == order.NoLimit {
		return false
	}
	p.fair.Close(a.Namespace)
	return true
}

// drop notes that an action that was read does not start and waits for no room here.
func (p *Pass) drop(a *state.Action) {
	if p.fair != nil {
		p.fair.Drop(a)
	}
}

// LimitOf returns the limit of its namespace that keeps an action, with all of its gang, from
// starting.
func LimitOf(v *state.State, a *state.Action) order.Limit {
	if !v.AnySettings() {
		return order.NoLimit
	}
	return order.Exceeds(v.SettingsOf(a.Namespace), order.HeldFor(v, a), a)
}

// within returns the width of an action that starts, as far as the cores go that its namespace may
// have.
func (p *Pass) within(a *state.Action, width int) int {
	if p.fair == nil {
		return width
	}
	s := p.view.SettingsOf(a.Namespace)
	if s.CoresMax == 0 || width <= int(a.CoresMin) {
		return width
	}
	held := p.heldBeside(a)
	room := int(s.CoresMax) - held.Cores - held.Resuming - held.Limited - held.Promised.Cores
	return max(int(a.CoresMin), DoPSetOf(a).AtMost(min(width, room)))
}

// heldBeside returns what the namespace of an action holds and has promised to others.
func (p *Pass) heldBeside(a *state.Action) state.Held {
	held := p.view.HeldBy(a.Namespace)
	if a.ReservedOn != 0 {
		held.Promised = held.Promised.Plus(a, -1)
	}
	return held
}

// visitOlder visits the actions of a queue that are older than one, oldest first and LookAhead of them
// at most. It leaves out those that wait for a limit of their namespace, and those behind them: they
// are not bypassed, and must not hide others.
func (p *Pass) visitOlder(than *state.Action, q state.Queue, visit func(*state.Action) bool) {
	if p.view.QueueLen(q) == 0 {
		return
	}
	left := LookAhead
	next := func(id state.ActionID) bool {
		if id >= than.ID || left == 0 {
			return false
		}
		left--
		p.examined++
		return visit(p.view.Action(id))
	}
	if !p.view.AnySettings() {
		p.view.Queued(q, 0, next)
		return
	}
	for _, id := range p.unlimited(q, than.ID) {
		if !next(id) {
			return
		}
	}
}

// unlimited returns the oldest actions of each namespace in a queue up to one, as far as the limits of
// the namespaces go, by age.
func (p *Pass) unlimited(q state.Queue, before state.ActionID) (ids []state.ActionID) {
	p.view.QueueNamespaces(q, func(ns state.NamespaceID) bool {
		p.examined++
		settings, held, left := p.view.SettingsOf(ns), p.view.HeldBy(ns), LookAhead
		p.view.QueuedOf(q, ns, 0, func(id state.ActionID) bool {
			if id >= before || left == 0 || settings.Limits() && order.Exceeds(settings, held, p.view.Action(id)) != order.NoLimit {
				return false
			}
			left--
			ids = append(ids, id)
			return true
		})
		return true
	})
	slices.Sort(ids)
	return ids
}

// sharesCores reports whether an action competes with other namespaces for the cores of its pool.
func (p *Pass) sharesCores(a *state.Action) bool {
	return p.view.Shares() && a.GPUs() == nil && a.CoresMin > 0
}

// pinnedByShare is pinnedBefore where namespaces compete: of those that wait for n alone, the one
// that is served next, if it goes before a.
func (p *Pass) pinnedByShare(a *state.Action, n *state.Node, q state.Queue) (first *state.Action) {
	cores := state.QueueOf(state.PoolQueue, p.pool)
	p.view.QueueNamespaces(q, func(ns state.NamespaceID) bool {
		p.view.QueuedOf(q, ns, 0, func(id state.ActionID) bool {
			p.examined++
			b := p.view.Action(id)
			if ending(p.view, b) || p.defers(b, n) {
				return true
			}
			if LimitOf(p.view, b) == order.NoLimit && order.Before(p.view, cores, b, a) && (first == nil || order.Before(p.view, cores, b, first)) {
				first = b
			}
			return false
		})
		return true
	})
	return first
}

// nextIDs returns the next actions of a queue of GPUs, in the order in which they are served.
func (p *gpuPass) nextIDs(n int) (ids []state.ActionID) {
	if !p.began {
		p.began = true
		if p.view.Meta().Level >= LevelResizing {
			p.fair = order.NewFair(p.view, p.queue, []state.Queue{p.queue}, readAhead)
			p.examined += p.fair.Namespaces()
		}
	}
	if p.fair == nil {
		ids = order.Oldest(p.view, p.queue, p.last, n)
		if len(ids) > 0 {
			p.last = ids[len(ids)-1]
		}
		return ids
	}
	for len(ids) < n {
		a, _, ok := p.fair.Next()
		if !ok {
			break
		}
		ids = append(ids, a.ID)
	}
	return ids
}

// most returns how many GPUs an action may have of those that it is to get, by the limits of its
// namespace: none if it has to wait for others of it to end.
func (p *gpuPass) most(a *state.Action, units uint32) uint32 {
	if p.fair == nil {
		return units
	}
	if p.limited(a) {
		return 0
	}
	if s := p.view.SettingsOf(a.Namespace); s.GPUsMax > 0 {
		held := p.heldBeside(a)
		units = min(units, s.GPUsMax-uint32(held.GPUs+held.Promised.GPUs))
	}
	return units
}

// turn reads a queue of which mostly the first action decides.
type turn struct {
	queue line
	began bool          // it has begun to read
	fair  *order.Fair   // what waits, by namespace; nil: oldest first
	next  *state.Action // read of it, and not dropped yet
}

// first returns the action that is served next, nil if there is none. It stays until it is
// dropped. Who competes for something without clocks is served by age.
func (t *turn) first(v *state.State, resource state.Queue) *state.Action {
	if !t.began {
		t.began = true
		if v.Meta().Level >= LevelResizing {
			t.fair = order.NewFair(v, resource, []state.Queue{t.queue.key}, readAhead)
			t.queue.examined += t.fair.Namespaces()
		}
	}
	if t.fair == nil {
		return t.queue.first(v)
	}
	if t.next == nil {
		t.next, _, _ = t.fair.Next()
	}
	if t.next != nil {
		t.queue.examined++
	}
	return t.next
}

// skip goes on to the one behind an action that does not start.
func (t *turn) skip(a *state.Action) {
	if t.fair != nil {
		t.fair.Drop(a)
	}
	t.drop()
}

// drop goes on to the one behind it.
func (t *turn) drop() {
	if t.fair == nil {
		t.queue.drop()
		return
	}
	t.next = nil
}

// keepLimits has those keep what they have of namespaces that would hold more cores than they may.
func (d *division) keepLimits() {
	if !d.view.AnySettings() {
		return
	}
	more := map[state.NamespaceID]int{} // for look-up only
	for i := range d.shares {
		more[d.shares[i].action.Namespace] += d.shares[i].to - d.shares[i].has
	}
	for i := range d.shares {
		s := &d.shares[i]
		ns := s.action.Namespace
		limits, held := d.view.SettingsOf(ns), d.view.HeldBy(ns)
		if limits.CoresMax > 0 && held.Cores+held.Resuming+held.Limited+held.Promised.Cores+more[ns] > int(limits.CoresMax) {
			d.limited = d.limited || s.to > s.has
			s.to = min(s.to, s.has)
		}
	}
}
