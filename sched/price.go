package sched

import (
	"cmp"
	"slices"

	"rota/fsm/state"
	"rota/sched/scale"
)

// deferNSMax is how long after its submission an action may be deferred though it could
// start. Actions that start meanwhile do not count as bypassing it.
const deferNSMax = 60_000_000_000

// usage is the attempts that use the cores of a node, and the actions that wait for them.
type usage struct {
	ends    []scale.End // of what runs, sorted
	elastic int         // how many of those could have been narrower
	waiting int         // how many wait, with the node's share of its pool's
	work    int64       // of them all, in core nanoseconds
}

// usageOf finds out about the usage of a node, once.
func (m *batch) usageOf(s *candidateNode) *usage {
	if s.usage != nil {
		return s.usage
	}
	u := &usage{waiting: m.view.QueueLen(state.QueueOf(state.NodeQueue, s.node.ID))}
	if !s.node.Draining {
		u.waiting += m.view.QueueLen(state.QueueOf(state.PoolQueue, m.pool)) / max(1, m.view.UsableNodes(m.pool))
	}
	u.work = int64(min(u.waiting, workMax)) * min(m.mean, workNSMax)
	m.view.Attempts(s.node.ID, func(t *state.Attempt) bool {
		units := t.Cores.Len()
		if units == 0 {
			return true
		}
		a, left := m.view.Action(t.Action), m.left(t)
		u.ends = append(u.ends, scale.End{At: left, Units: int32(units)})
		u.work += int64(units) * min(left, workNSMax)
		if a.CoresMin < uint32(units) {
			u.elastic++
		}
		return true
	})
	slices.SortFunc(u.ends, func(a, b scale.End) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Units, b.Units))
	})
	s.usage = u
	return u
}

// Sums of work do not overflow: it is of no more actions than that, and no longer.
const (
	workMax   = 1 << 20
	workNSMax = 1 << 42
)

// left is how long an attempt will go on. An action without a known duration counts as
// average. An overdue action is assumed to need as long again.
func (m *batch) left(t *state.Attempt) int64 {
	ns, known := m.demands.duration(m.view.Action(t.Action), int32(KeyUnits(t)))
	if !known {
		ns = m.mean
	}
	left := ns - (m.view.Meta().Now - t.StartedAt)
	return max(left, -left)
}

// meanDuration is that of an action and of those behind it, with the least
// degrees, as far as it is known.
func (p *Pass) meanDuration(a *state.Action) int64 {
	sum, known := int64(0), int64(0)
	for i := 0; ; i++ {
		d := p.demands.of(a)
		if ns, ok := d.DurationAt(0); ok {
			sum += ns
			known++
		}
		if i == LookAhead || i == len(p.ahead) && !p.readAhead() {
			return sum / max(1, known)
		}
		a = p.view.Action(p.ahead[i].id)
	}
}

// price is what cores of a node cost the others when one of those who wait has
// them: those behind it, and those to come.
func (m *batch) price(i int, s *candidateNode) scale.Price {
	u, cores := m.usageOf(s), s.node.Cores().Len()
	behind := max(0, u.waiting-1-i/len(m.nodes))
	p := scale.PriceAmong(cores, behind, u.elastic, u.work)
	p.Alone = m.served(m.candidates[i].action, s.node)
	return p
}

// waits reports whether an action that fits a node had better wait there for more
// cores. For ends, that is: where nothing runs no action waits.
func (m *batch) waits(i int, s *candidateNode) bool {
	w := &m.candidates[i]
	if !w.demand.Elastic() {
		return false
	}
	p := m.price(i, s)
	return p.Waits(&w.demand, s.free, m.usageOf(s).ends)
}

// served reports whether it is an action's turn on a node, by patience: nobody who
// is younger starts there before it does.
func (p *Pass) served(a *state.Action, n *state.Node) bool {
	return a.ReservedOn == n.ID || !p.mayBypass(a)
}
