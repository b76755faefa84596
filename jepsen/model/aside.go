package model

import (
	"fmt"
	"slices"

	"rota/fsm/state"
)

// What no usable node could ever run, and what a quota with its limit could never be
// given to, waits aside and holds up nobody. No event says who does, so that is judged
// by the rows: nobody waits aside without cause, and none is forgotten there.

// aside: the action holds up nobody in its queue, or did not until this entry.
func (m *Model) aside(a *action) bool {
	row := m.s.Action(a.ID)
	return a.Aside || row != nil && row.Aside
}

// cameBack: it waited aside before this entry, and was called back at some moment of it.
// Who held up others before that is not told.
func (m *Model) cameBack(a *action) bool {
	row := m.s.Action(a.ID)
	return a.Aside && row != nil && !row.Aside
}

// staysAside: it waits aside when this entry is over.
func (m *Model) staysAside(a *action) bool { return m.aside(a) && !m.cameBack(a) }

// unlessNew returns nil for an action that has come to wait, or come back, only in this
// entry: who was the oldest before it came is not told.
func (m *Model) unlessNew(oldest *action) *action {
	if oldest != nil && (m.justJoined(oldest) || m.cameBack(oldest)) {
		return nil
	}
	return oldest
}

// inLine returns the first n of a queue that do not wait aside.
func (m *Model) inLine(q []*action, n int) (line []*action) {
	for _, a := range q {
		if len(line) == n {
			break
		}
		if !m.staysAside(a) {
			line = append(line, a)
		}
	}
	return line
}

// servable: a usable node could run the action when it is empty, or the quota that it
// waits for may be given to it.
func (m *Model) servable(a *action) bool {
	if t := m.trajectories[a.Trajectory]; t != nil && t.Paused() {
		return false
	}
	if u := a.missing(); u != nil {
		return !m.cannotTake(a) && !u.quota.halted
	}
	if a.Gang != 0 {
		return m.gangServable(a)
	}
	return slices.ContainsFunc(a.pool.nodes, func(n *node) bool { return n.usable() && n.couldHold(&a.Action) })
}

// couldLive: a usable node of its pool could hold a pending trajectory.
func (t *trajectory) couldLive() bool {
	return slices.ContainsFunc(t.pool.nodes, func(n *node) bool { return n.usable() && n.hosts(t) })
}

// hosts: the node is large enough for a trajectory and each of its actions.
func (n *node) hosts(t *trajectory) bool {
	cores, bandwidth := t.asks()
	return n.boxes(t.Container) && n.Memory >= t.Memory && n.Cores().Len() >= int(cores) && n.Bandwidth >= bandwidth
}

// asks is the most that one of its live actions asks for.
func (t *trajectory) asks() (cores uint32, bandwidth uint64) {
	for _, a := range t.live {
		cores, bandwidth = max(cores, a.CoresMin), max(bandwidth, a.Bandwidth())
	}
	return cores, bandwidth
}

// gaveBack: the action went aside, and its units of quotas went back to others. No event says so.
func (m *Model) gaveBack(a *action) bool {
	row, t := m.s.Action(a.ID), m.trajectories[a.Trajectory]
	return m.level >= levelResizing && a.State == state.ActionQueued && a.QuotasHeld > 0 &&
		row != nil && row.Aside && row.QuotasHeld == 0 && (t == nil || !t.Paused()) && !m.servable(a)
}

// learnUnitsBack takes over who gave units of quotas back to wait aside.
func (m *Model) learnUnitsBack() {
	for _, q := range m.quotaList {
		for _, c := range slices.Clone(q.calls) {
			if a := c.action; a != nil && m.gaveBack(a) {
				m.queueOf(a).remove(a)
				m.giveBack(a)
				a.joined = m.applied
				m.queueOf(a).add(a)
				m.touchAction(a)
				m.touchPool(a.pool)
			}
		}
	}
}

// compareAside judges who waits aside in a pool. Whoever is to be looked at by work that
// is left over may be there a while longer.
func (m *Model) compareAside(p *pool) error {
	queues := []*queue{&p.queue, &p.coreless, &p.gangs}
	for _, q := range p.gpuQueues {
		queues = append(queues, q)
	}
	for _, n := range p.nodes {
		queues = append(queues, &n.queue, &n.coreless)
	}
	for _, q := range m.quotaList {
		queues = append(queues, &q.queue)
	}
	for _, q := range queues {
		for _, a := range q.waiting {
			row := m.s.Action(a.ID)
			if m.cameBack(a) {
				a.passed, a.passedAt = row.Bypassed, row.BlockedAt
			}
			if a.Aside = row.Aside; !a.Aside {
				continue
			}
			a.passed = 0 // nobody passes it by
			if a.pool != p || !m.servable(a) || m.s.WorkLeft(row.Queue()) {
				continue
			}
			return fmt.Errorf("action %d waits aside, and could be served", a.ID)
		}
	}
	for _, t := range p.pending {
		if t.Aside = m.s.Trajectory(t.ID).Aside; t.Aside && t.couldLive() && !m.s.WorkLeft(state.QueueOf(state.TrajectoriesAside, p.id)) {
			return fmt.Errorf("trajectory %d waits aside, and a node could hold it", t.ID)
		}
	}
	return nil
}
