package ledger

import (
	"errors"
	"fmt"
	"slices"
)

// slideMax is the part of the window from which on it is cheaper to derive all of it
// than to fill the slots that enter one by one.
const slideMax = 16

// AddGroup adds a group without jobs.
func (l *Ledger) AddGroup(id GroupID, nodes int64) error {
	if err := l.insert(Group{ID: id, Nodes: nodes}); err != nil {
		return err
	}
	l.everySlot(nodes)
	return nil
}

// insert adds the row of a group.
func (l *Ledger) insert(row Group) error {
	i, ok := l.search(row.ID)
	switch {
	case ok:
		return fmt.Errorf("group %d is there already", row.ID)
	case row.ID == 0:
		return errors.New("group 0 is no group")
	case row.Nodes < 1 || row.Nodes > NodesMax-l.total:
		return fmt.Errorf("group %d has %d nodes, and may have 1 to %d", row.ID, row.Nodes, NodesMax-l.total)
	}
	row.Period = 0
	l.groups = slices.Insert(l.groups, i, &group{Group: row})
	l.total += row.Nodes
	return nil
}

// RemoveGroup takes away a group that has no jobs.
func (l *Ledger) RemoveGroup(id GroupID) error {
	i, ok := l.search(id)
	if !ok {
		return fmt.Errorf("group %d does not exist", id)
	}
	g := l.groups[i]
	if n := len(g.members); n > 0 {
		return fmt.Errorf("group %d has %d jobs: move them first", id, n)
	}
	l.groups = slices.Delete(l.groups, i, i+1)
	l.total -= g.Nodes
	l.everySlot(-g.Nodes)
	return nil
}

// everySlot adds free nodes to the whole window.
func (l *Ledger) everySlot(nodes int64) {
	if l.known() {
		l.ring.add(l.ring.head, l.ring.end(), int32(nodes))
	}
}

// Placement is where a job is to be, and from when.
type Placement struct {
	Job       JobID
	Group     GroupID
	Cycle     Cycle
	Dedicated bool
	Anchor    int64 // the slot at which its first cycle starts
	Period    int64 // what the period of the group is to be
}

// Reserve subtracts a job from all of the horizon, or says why it does not fit and
// changes nothing.
func (l *Ledger) Reserve(p Placement) error {
	g := l.find(p.Group)
	switch {
	case g == nil:
		return fmt.Errorf("group %d does not exist", p.Group)
	case l.jobs[p.Job] != nil:
		return fmt.Errorf("job %d is on group %d already", p.Job, l.jobs[p.Job].ID)
	case p.Dedicated && len(g.members) > 0:
		return fmt.Errorf("group %d has jobs, and is to be dedicated to job %d", g.ID, p.Job)
	case g.dedicated():
		return fmt.Errorf("group %d is dedicated to job %d", g.ID, g.members[0].Job)
	case len(g.members) >= l.config.MembersMax:
		return fmt.Errorf("group %d has %d jobs already", g.ID, len(g.members))
	}
	if p.Dedicated {
		p.Cycle, p.Period = dedicated(g.Nodes), 1
	}
	r := Resident{Job: p.Job, Group: p.Group, Cycle: p.Cycle, Dedicated: p.Dedicated, Anchor: p.Anchor, Began: p.Anchor}
	if err := l.suits(g, &r, p.Period); err != nil {
		return err
	}
	members := g.under(p.Period)
	if members == nil {
		return fmt.Errorf("a period of %d slots is too short for those on group %d", p.Period, g.ID)
	}
	i, _ := slices.BinarySearchFunc(members, r, byJob)
	members = slices.Insert(members, i, r)
	if err := l.stretched(g, p.Period, members); err != nil {
		return err
	}
	if !l.spare.layOut(p.Period, members) {
		return fmt.Errorf("job %d does not fit group %d from slot %d on", p.Job, g.ID, p.Anchor)
	}
	l.commit(g, p.Period, members)
	l.jobs[p.Job] = g
	return nil
}

// under returns a copy of the members as they are in another period, with room for
// one more; nil if a cycle is longer. The cycle that runs becomes the first.
func (g *group) under(period int64) []Resident {
	members := append(make([]Resident, 0, len(g.members)+1), g.members...)
	if period == g.Period {
		return members
	}
	for i := range members {
		if members[i].Cycle.Period > period {
			return nil
		}
		members[i].Index = 0
	}
	return members
}

// stretched says whose cycle a period would lengthen too much.
func (l *Ledger) stretched(g *group, period int64, members []Resident) error {
	for i := range members {
		if by := stretch(period, members[i].Cycle.Period); by > l.config.StretchPPM {
			return fmt.Errorf("a period of %d slots on group %d would stretch job %d by %d ppm, at most %d are allowed", period, g.ID, members[i].Job, by, l.config.StretchPPM)
		}
	}
	return nil
}

// Release gives back all that is reserved for a job.
func (l *Ledger) Release(job JobID) error {
	g := l.jobs[job]
	if g == nil {
		return fmt.Errorf("job %d has no reservation", job)
	}
	i := g.index(job)
	members := slices.Delete(slices.Clone(g.members), i, i+1)
	period := g.Period
	if len(members) == 0 {
		period = 0
	}
	delete(l.jobs, job)
	l.spare.layOut(period, members)
	l.commit(g, period, members)
	return nil
}

// Share says what the cycle of a job is that had its group for itself, and from
// when it repeats. From then on others may come.
func (l *Ledger) Share(job JobID, cycle Cycle, anchor int64) error {
	g := l.jobs[job]
	if g == nil || !g.dedicated() {
		return fmt.Errorf("job %d has no group for itself", job)
	}
	r := Resident{Job: job, Group: g.ID, Cycle: cycle, Anchor: anchor, Began: anchor}
	if err := l.suits(g, &r, cycle.Period); err != nil {
		return err
	}
	members := []Resident{r}
	l.spare.layOut(cycle.Period, members)
	l.commit(g, cycle.Period, members)
	return nil
}

// commit replaces the members of a group, which have been laid out as spare, and
// brings the ring up to date: only where rows differ.
func (l *Ledger) commit(g *group, period int64, members []Resident) {
	old := g.members
	for i, k := 0, 0; i < len(old) || k < len(members); {
		switch {
		case k == len(members) || i < len(old) && old[i].Job < members[k].Job:
			l.project(&old[i], g.Period, 1)
			i++
		case i == len(old) || old[i].Job > members[k].Job:
			l.project(&members[k], period, -1)
			k++
		default:
			l.replace(&old[i], g.Period, &members[k], period)
			i++
			k++
		}
	}
	g.Period, g.members = period, members
	g.circle, l.spare = l.spare, g.circle
}

// replace brings the ring up to date for a row that may have changed.
func (l *Ledger) replace(old *Resident, period int64, now *Resident, next int64) {
	same := period == next && old.Cycle.Period == now.Cycle.Period && old.Dedicated == now.Dedicated
	if same && mod(old.base(period)-now.base(period), period) == 0 {
		// Only the anchor went on: what was before it is free.
		l.span(old, period, l.ring.head, now.Anchor, 1)
		l.span(now, period, l.ring.head, old.Anchor, -1)
		return
	}
	l.project(old, period, 1)
	l.project(now, next, -1)
}

// project adds or subtracts all that is reserved for a job.
func (l *Ledger) project(r *Resident, period int64, sign int32) {
	l.span(r, period, l.ring.head, l.ring.end(), sign)
}

// span does so from one slot until another.
func (l *Ledger) span(r *Resident, period, from, to int64, sign int32) {
	if !l.known() {
		return
	}
	r.each(period, from, min(to, l.ring.end()), func(start, end, nodes int64) {
		l.ring.add(start, end, sign*int32(nodes))
	})
}

// Slide moves the start of the window to a slot. Those that enter at its end are
// filled with what the residents' cycles need of them.
func (l *Ledger) Slide(head int64) {
	switch {
	case !l.known():
		l.ring.head = head
	case head-l.ring.head > l.ring.n/slideMax:
		l.ring.head = head
		l.derive()
	default:
		for l.ring.head < head {
			t := l.ring.end()
			l.ring.head++
			l.ring.set(int(t%l.ring.n), l.freeAt(t))
		}
	}
}

// freeAt computes how many nodes are free at a slot.
func (l *Ledger) freeAt(t int64) int32 {
	free := int32(l.total)
	for _, g := range l.groups {
		if i, _, ok := g.circle.at(t); ok && g.members[i.member].Anchor <= t {
			free -= i.nodes
		}
	}
	return free
}
