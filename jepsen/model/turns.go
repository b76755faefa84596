package model

import (
	"fmt"

	"rota/fsm/state"
)

// isItsTurn: first come, first served, with bounded bypass; among namespaces by their clocks.
func (m *Model) isItsTurn(a *action, n *node) error {
	if a.CoresMin == 0 && a.GPUs() == nil || a.missing() != nil {
		return m.corelessTurn(a, n)
	}
	if m.keptForIt(a) || m.sharing() && m.gangs.seen {
		return nil
	}
	ahead := 0
	for _, older := range m.queueOf(a).waiting {
		if older.ID >= a.ID {
			break
		}
		if m.sharing() && older.Namespace != a.Namespace {
			continue
		}
		if m.ending(older) || m.justJoined(older) || m.aside(older) {
			continue
		}
		if ahead++; ahead > window && !m.mayBeElastic(a.pool) {
			return fmt.Errorf("action %d was granted with more than %d older ones waiting", a.ID, window)
		}
		if older.CoresMin <= a.CoresMin && older.reserves() <= a.reserves() && older.Bandwidth() <= a.Bandwidth() && !m.mayBeElastic(a.pool) {
			return fmt.Errorf("action %d was granted on node %s before action %d, which is older and asks for no more", a.ID, n.Name, older.ID)
		}
	}
	if err := m.passGang(a, n); err != nil {
		return err
	}
	if m.sharing() {
		return m.isItsNamespacesTurn(a, n, func(o *action) bool {
			return o.CoresMin <= a.CoresMin && o.reserves() <= a.reserves() && o.Bandwidth() <= a.Bandwidth() && !m.mayBeElastic(a.pool)
		})
	}
	if oldest := m.oldestFor(n); oldest != nil && oldest.ID < a.ID {
		return m.pass(oldest, a, n)
	}
	return nil
}

// ending: it waits only to be canceled with its trajectory, or until that is resumed.
func (m *Model) ending(a *action) bool {
	t := m.trajectories[a.Trajectory]
	return t != nil && (t.State != state.TrajectoryOpen || t.Paused())
}

// oldestFor is the oldest action that waits for a node and is not deferred:
// for it alone, or for any node of its pool. Nil if there is none, or if it has
// only just come to wait.
func (m *Model) oldestFor(n *node) (oldest *action) {
	oldest = m.oldestOf(n.queue.waiting, n)
	if !n.Draining {
		if a := m.oldestOf(n.pool.queue.waiting, n); a != nil && (oldest == nil || a.ID < oldest.ID) {
			oldest = a
		}
	}
	return m.unlessNew(oldest)
}

// oldestOf is the first in a queue that a start on a node would bypass, of as many
// as are sure to be looked at.
func (m *Model) oldestOf(queue []*action, n *node) *action {
	left := window
	for _, a := range queue {
		if m.ending(a) || m.staysAside(a) {
			continue
		}
		if !m.defers(a, n) {
			return a
		}
		if left--; left == 0 {
			break
		}
	}
	return nil
}

// defers: it could start on the node, would be faster with more cores, and has not
// waited for long. Nobody bypasses it while it does.
func (m *Model) defers(a *action, n *node) bool {
	fits := int(a.CoresMin) <= n.available() && !a.wouldFollow(n) && a.reserves() <= n.FreeMemory && a.Bandwidth() <= n.FreeBandwidth
	holder := m.actions[n.ReservedFor] // which may have started meanwhile
	kept := holder != nil && holder != a && (holder.ID < a.ID || m.sharing()) && holder.State == state.ActionQueued
	return a.informed() && fits && !kept && m.now-a.SubmittedAt < deferMax
}

// pass counts the start of a younger action before the oldest one. When its
// patience has ended, that is allowed only if no node can be reserved for it.
func (m *Model) pass(oldest, a *action, n *node) error {
	if oldest.ReservedOn != 0 || m.takesTurns() {
		return nil // a node is reserved for it; nothing younger starts there
	}
	ended := oldest.passed > 0 && (oldest.passed >= m.settings.BypassMax || m.now-oldest.passedAt >= m.settings.BypassNSMax)
	if ended {
		// One that started by the end of the entry may have had a node reserved meanwhile.
		if row := m.s.Action(oldest.ID); row.State == state.ActionQueued && (row.ReservedOn == 0 || row.ReservedOn == n.ID) && !m.takenByGang(oldest) {
			if free := m.couldBeReserved(oldest); free != nil && !(free == n && a.passed > 0) { // else it was reserved for a until now
				return fmt.Errorf("action %d was granted on node %s and bypasses action %d, bypassed %d times since %d already (limits %d, %d ns), with node %s free to be reserved for it",
					a.ID, n.Name, oldest.ID, oldest.passed, oldest.passedAt, m.settings.BypassMax, m.settings.BypassNSMax, free.Name)
			}
		}
		oldest.passed = 0
	}
	if oldest.passed == 0 {
		oldest.passedAt = m.now
	}
	oldest.passed++
	oldest.judged = m.applied
	return nil
}

// learnPatience takes over that the count of an action began anew while others
// were the oldest: when its own patience had ended and no node could be reserved. One that
// is aside is bypassed by nobody.
func (m *Model) learnPatience(q *queue) {
	left := window
	for _, a := range q.waiting {
		aside := m.staysAside(a)
		if !aside {
			left--
		}
		if left < 0 {
			break
		}
		if a.passed == 0 {
			continue
		}
		row := m.s.Action(a.ID)
		judged := a.judged == m.applied
		anew := row.Bypassed == 0 || row.BlockedAt > a.passedAt || judged && row.Bypassed < a.passed
		if anew && (aside || !judged || m.couldBeReserved(a) == nil) {
			a.passed, a.passedAt = row.Bypassed, row.BlockedAt
		}
	}
}

// learnPasses takes over how often those without cores were bypassed, which is not
// judged.
func (m *Model) learnPasses(q *queue) {
	for _, a := range m.inLine(q.waiting, window) {
		row := m.s.Action(a.ID)
		a.passed, a.passedAt = row.Bypassed, row.BlockedAt
	}
}

// couldBeReserved returns a node that should have been reserved for an action and was
// not: one that could ever hold it and was reserved for nobody all the while.
func (m *Model) couldBeReserved(a *action) *node {
	if a.Gang != 0 {
		return m.gangCouldReserve(a)
	}
	for _, n := range a.pool.nodes {
		mine := a.Trajectory == 0 && n.usable() || a.Trajectory != 0 && n.ID == a.Node
		if mine && n.couldHold(&a.Action) && n.couldServe(a) && m.couldHave(a, n) && n.ReservedFor == 0 && !n.served && m.reservedFor(n) == 0 {
			return n
		}
	}
	return nil
}

// couldServe: it is not memory of trajectories that an action waits for. A node is not
// reserved for that.
func (n *node) couldServe(a *action) bool {
	free := n.FreeMemory
	for _, r := range n.running {
		free += r.reserved
	}
	return free >= a.reserves()
}

// nobodyForgotten: after an entry that left no work over, nothing waits that
// should have been started or placed.
func (m *Model) nobodyForgotten(p *pool) error {
	if p.halted {
		return nil
	}
	if t := m.firstPending(p); t != nil {
		for _, n := range p.nodes {
			if n.usable() && n.FreeMemory >= t.Memory && len(n.hosted) < hostedMax && n.hosts(t) {
				return fmt.Errorf("trajectory %d waits for %d bytes, node %s has %d free", t.ID, t.Memory, n.Name, n.FreeMemory)
			}
		}
	}
	if err := m.noGPUsForgotten(p); err != nil {
		return err
	}
	if g := m.gangForgotten(p); g != nil {
		return fmt.Errorf("gang %d waits, and there is room for all of its actions", g.ID)
	}
	if a := m.corelessForgotten(p); a != nil {
		return fmt.Errorf("action %d has no cores and waits for %d bytes, which a node has", a.ID, a.reserves())
	}
	for _, n := range p.nodes {
		if n.State != state.NodeUp || n.available() == 0 {
			continue
		}
		if a := m.forgottenOn(n); a != nil {
			return fmt.Errorf("action %d waits for %d cores and %d bytes, node %s has %d and %d free and is reserved for nobody else",
				a.ID, a.CoresMin, a.reserves(), n.Name, n.available(), n.FreeMemory)
		}
	}
	return nil
}

// firstPending is the oldest trajectory that waits for a node and not aside.
func (m *Model) firstPending(p *pool) *trajectory {
	for _, t := range p.pending {
		if !m.s.Trajectory(t.ID).Aside {
			return t
		}
	}
	return nil
}

// forgottenOn returns an action that should have started on a node: among the
// oldest of its queue, and nothing keeps it from there.
func (m *Model) forgottenOn(n *node) *action {
	free := uint32(n.available())
	queues := [][]*action{n.queue.waiting, nil}
	if !n.Draining {
		queues[1] = n.pool.queue.waiting
	}
	for _, q := range queues {
		for _, a := range m.inLine(q, window) {
			kept := n.ReservedFor == 0 || n.ReservedFor == a.ID
			if !m.limited(a.Namespace) && !m.ending(a) && a.CoresMin <= free && a.reserves() <= n.FreeMemory && a.Bandwidth() <= n.FreeBandwidth && kept && !m.choosesToWait(a, n) {
				return a
			}
		}
	}
	return nil
}
