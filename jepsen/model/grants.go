package model

import (
	"fmt"
	"math/big"

	"rota/fsm/state"
)

// Turns on groups: who may hold one, and who is the next (docs/scheduling.md).

// heads are those that could be next on a group: the oldest that waits of each
// deployment of each job that holds no other group.
func (g *nodeGroup) heads() (all []*turn) {
	for _, j := range g.jobs {
		holds, seen := false, map[state.DeploymentID]bool{}
		var heads []*turn
		for _, t := range j.turns {
			holds = holds || t.held() && t != g.turn
			if t.State == state.TurnWaiting && !seen[t.Deployment] {
				heads = append(heads, t)
			}
			seen[t.Deployment] = true
		}
		if !holds && j.Nodes <= g.left() {
			all = append(all, heads...)
		}
	}
	return all
}

// service is how long a turn is expected to hold a group.
func (g *nodeGroup) service(t *turn) int64 {
	if t.Deployment == g.Resident {
		return t.ExecNS
	}
	return t.ExecNS + t.SetUpNS
}

// isDue: what is reserved for its job now is for this turn.
func (m *Model) isDue(t *turn) bool {
	j, slot := t.job, m.settings.LedgerSlotNS
	if j.reservation == nil || j.reservation.Dedicated {
		return j.reservation != nil
	}
	var last *span
	for _, s := range j.spans(m.slot()) {
		if s.from*slot <= m.now {
			last = &s
		}
	}
	return last != nil && (j.YieldedAt <= last.from*slot || m.now+j.group.service(t) <= last.until*slot)
}

// fitsBefore: a turn is over before what is reserved for others begins.
func (m *Model) fitsBefore(t *turn) bool {
	slot := m.settings.LedgerSlotNS
	for _, o := range t.job.group.jobs {
		if o == t.job || o.reservation == nil {
			continue
		}
		for _, s := range o.spans(m.slot()) {
			if s.until*slot > m.now {
				if m.now+t.job.group.service(t) > s.from*slot {
					return false
				}
				break
			}
		}
	}
	return true
}

// next returns the turns one of which must be granted now: those that are due, or if
// none is those that fit.
func (m *Model) next(g *nodeGroup) (due bool, all []*turn) {
	var early []*turn
	for _, t := range g.heads() {
		if m.isDue(t) {
			all = append(all, t)
		} else if m.fitsBefore(t) {
			early = append(early, t)
		}
	}
	if len(all) > 0 {
		return true, all
	}
	return false, early
}

// goesBefore compares response ratios: waited/service of a is above that of b; if they
// are equal the resident deployment goes first, then who is older.
func (m *Model) goesBefore(g *nodeGroup, a, b *turn) bool {
	waited := func(t *turn) *big.Int { return big.NewInt(m.now - t.ArrivedAt) }
	service := func(t *turn) *big.Int { return big.NewInt(max(1, g.service(t))) }
	left := new(big.Int).Mul(waited(a), service(b))
	right := new(big.Int).Mul(waited(b), service(a))
	if c := left.Cmp(right); c != 0 {
		return c > 0
	}
	if x, y := a.Deployment == g.Resident, b.Deployment == g.Resident; x != y {
		return x
	}
	return a.ArrivedAt < b.ArrivedAt || a.ArrivedAt == b.ArrivedAt && a.ID < b.ID
}

// grantTurn judges that a turn was given its group.
func (m *Model) grantTurn(e state.Event) error {
	t := m.turns[state.TurnID(e.Subject)]
	if t != nil && t.held() {
		if m.reviewBusyNode(m.nodeGroup(t.Group)) { // its holder is told of members that are back
			return m.tellTurn(t)
		}
		return m.stopTurn(t)
	}
	if t == nil || t.State != state.TurnWaiting {
		return fmt.Errorf("turn %d was granted, which does not wait", e.Subject)
	}
	g := t.job.group
	switch {
	case g == nil:
		return fmt.Errorf("turn %d was granted, and its job %d does not run", t.ID, t.job.ID)
	case g.Halted != "":
		return fmt.Errorf("turn %d was granted, and group %s is halted", t.ID, g.Name)
	case g.ContextSwitch != nil:
		return fmt.Errorf("turn %d was granted on group %s, where hooks run for token %d", t.ID, g.Name, g.ContextSwitch.Token)
	case g.turn != nil:
		return fmt.Errorf("turn %d was granted on group %s, which turn %d holds", t.ID, g.Name, g.turn.ID)
	}
	m.reviewBusy(g)
	if err := m.learnSpares(g); err != nil {
		return err
	}
	if !m.unsure(g) {
		if err := m.isNext(g, t); err != nil {
			return err
		}
	}
	if err := m.takeMembers(g, t); err != nil {
		return err
	}
	m.lastToken++
	t.State, t.Group, t.GrantedAt, t.Token = state.TurnHeld, g.ID, m.now, m.lastToken
	t.SetUp = t.Deployment != g.Resident
	if t.SetUp {
		m.changeHands(g, t)
	}
	g.turn, g.Turn, g.Resident = t, t.ID, t.Deployment
	if t.LimitNS > 0 {
		m.due.push(deadline{at: m.now + t.LimitNS, id: uint64(t.ID), kind: stopTurn})
	}
	return m.tellTurn(t)
}

func (m *Model) isNext(g *nodeGroup, t *turn) error {
	due, all := m.next(g)
	may := false
	for _, o := range all {
		may = may || o == t
	}
	if !may {
		return fmt.Errorf("turn %d of job %d was granted on group %s, which is not due and does not fit, or not the first of its deployment; %d others could be, due: %v; %s",
			t.ID, t.job.ID, g.Name, len(all), due, m.explain(g))
	}
	for _, o := range all {
		if o != t && m.goesBefore(g, o, t) {
			return fmt.Errorf("turn %d was granted on group %s before turn %d, whose response ratio is higher, due: %v; %s", t.ID, g.Name, o.ID, due, m.explain(g))
		}
	}
	return nil
}

// explain says what is known of a group, for whoever reads of a disagreement.
func (m *Model) explain(g *nodeGroup) string {
	text := fmt.Sprintf("at %d, slot %d of %d ns, period %d, resident %d", m.now, m.slot(), m.settings.LedgerSlotNS, g.Period, g.Resident)
	for _, j := range g.jobs {
		text += fmt.Sprintf("; job %d yielded at %d, reservation %+v", j.ID, j.YieldedAt, j.reservation)
		for _, t := range j.turns {
			text += fmt.Sprintf(", turn %d state %d of deployment %d arrived at %d, needs %d+%d", t.ID, t.State, t.Deployment, t.ArrivedAt, t.ExecNS, t.SetUpNS)
		}
	}
	return text
}

// nobodyWaitsInVain: a group that is free has nobody who should hold it, and will be
// looked at again when that changes.
func (m *Model) nobodyWaitsInVain(g *nodeGroup) error {
	if m.waitsForActions(g) {
		return nil
	}
	if g.turn != nil || g.ContextSwitch != nil || g.Halted != "" || m.s.HasWork() || m.timersLeft() {
		return nil
	}
	if due, all := m.next(g); len(all) > 0 {
		return fmt.Errorf("turn %d waits, and group %s is free, due: %v; %s", all[0].ID, g.Name, due, m.explain(g))
	}
	if len(g.heads()) == 0 {
		return nil
	}
	wake, boundary := m.s.NodeGroup(g.ID).WakeAt, m.boundary(g)
	if wake <= m.now && (wake != 0 || boundary != 0) || boundary != 0 && wake > boundary {
		return fmt.Errorf("group %s is looked at again at %d, what is reserved changes at %d; %s", g.Name, wake, boundary, m.explain(g))
	}
	return nil
}

// boundary is the next time at which what is reserved of a group changes, 0 if it
// does not. Nobody gets more than he has when a group is dedicated.
func (m *Model) boundary(g *nodeGroup) (at int64) {
	slot := m.settings.LedgerSlotNS
	for _, j := range g.jobs {
		if j.reservation == nil || j.reservation.Dedicated {
			continue
		}
		for _, s := range j.spans(m.slot()) {
			for _, edge := range []int64{s.from * slot, s.until * slot} {
				if edge > m.now && (at == 0 || edge < at) {
					at = edge
				}
			}
		}
	}
	return at
}

// stopTurn: who holds a group is asked to stop for one that is due and goes before it.
func (m *Model) stopTurn(t *turn) error {
	g := m.nodeGroup(t.Group)
	if !t.Preemptible || t.Stop {
		return fmt.Errorf("turn %d was asked to stop, and is not preemptible, or was asked before", t.ID)
	}
	t.Stop = true
	if m.unsure(g) {
		return m.tellTurn(t)
	}
	for _, o := range g.heads() {
		if m.isDue(o) && (m.outranks(g, o, t, t.ExecNS) || m.outranks(g, o, t, t.ExecNS+t.SetUpNS)) {
			return m.tellTurn(t)
		}
	}
	return fmt.Errorf("turn %d of group %s was asked to stop, and nobody is due who goes before it; %s", t.ID, g.Name, m.explain(g))
}

// outranks: the response ratio of one that waits is above that of one that runs and
// was to take so long.
func (m *Model) outranks(g *nodeGroup, o, t *turn, exec int64) bool {
	left := max(1, exec-(m.now-t.GrantedAt))
	a := new(big.Int).Mul(big.NewInt(m.now-o.ArrivedAt), big.NewInt(left))
	b := new(big.Int).Mul(big.NewInt(m.now-t.ArrivedAt), big.NewInt(max(1, g.service(o))))
	return a.Cmp(b) > 0
}
