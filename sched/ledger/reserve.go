package ledger

import (
	"fmt"
	"slices"
)

// Fit is a group and a start at which the cycle of a job fits.
type Fit struct {
	Job       JobID
	Group     GroupID
	Cycle     Cycle
	Dedicated bool
	Anchor    int64 // the slot at which its first cycle starts
	Period    int64 // what the period of the group is to be
}

// Reserve subtracts a job from all of the horizon, or says why it does not fit and
// changes nothing.
func (l *Ledger) Reserve(p Fit) error {
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
	r := Reservation{Job: p.Job, Group: p.Group, Cycle: p.Cycle, Dedicated: p.Dedicated, Anchor: p.Anchor, Began: p.Anchor}
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
func (g *group) under(period int64) []Reservation {
	members := append(make([]Reservation, 0, len(g.members)+1), g.members...)
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
func (l *Ledger) stretched(g *group, period int64, members []Reservation) error {
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
	r := Reservation{Job: job, Group: g.ID, Cycle: cycle, Anchor: anchor, Began: anchor}
	if err := l.suits(g, &r, cycle.Period); err != nil {
		return err
	}
	members := []Reservation{r}
	l.spare.layOut(cycle.Period, members)
	l.commit(g, cycle.Period, members)
	return nil
}

// commit replaces the members of a group, which have been laid out as spare.
func (l *Ledger) commit(g *group, period int64, members []Reservation) {
	g.Period, g.members = period, members
	g.circle, l.spare = l.spare, g.circle
}
