package ledger

import (
	"fmt"
	"slices"
)

// Finished is what became of the next cycle of a job that has finished one.
type Finished struct {
	// Start is the slot at which the next cycle starts.
	Start int64
	// Late is by how much the job was ready later than was reserved; less than 0 if
	// it was early.
	Late int64
	// Waits is for how long it waits for its turn, although it is ready.
	Waits int64
	// Pushed are those who make room, by job.
	Pushed []Push
}

// Push is a job whose reservation starts later, by a number of slots.
type Push struct {
	Job JobID
	By  int64
}

// Finish anchors a job again that has finished a cycle: it is ready for the next at
// a slot, which is what really happened and not what was reserved. Its reservation
// moves there if it fits. If not:
//
//   - Early, it moves as far as the one before it lets it, by whole periods first, and waits
//     for the rest.
//   - Late by a little, it goes where it is, and those behind it are pushed by what
//     the gaps between them do not take up. No job is pushed by more than the late one is late,
//     and the order stays, so this always fits: at worst all are pushed alike.
//   - Later than that, others make room only if all of them together wait for less than
//     it would have to. Else it waits for the next turn that fits. At worst that is its
//     old one, a period later.
//
// So a reservation is never refused and never overlaps another.
func (l *Ledger) Finish(job JobID, ready int64) (Finished, error) {
	g := l.jobs[job]
	if g == nil {
		return Finished{}, fmt.Errorf("job %d has no reservation", job)
	}
	if ready < 0 || ready > l.end() {
		return Finished{}, fmt.Errorf("job %d is ready at slot %d, and the window is from %d to %d", job, ready, l.head, l.end())
	}
	i := g.index(job)
	if g.dedicated() {
		return Finished{Start: ready}, nil
	}
	members := slices.Clone(g.members)
	m := &members[i]
	planned := m.starts(g.Period, 1)
	m.Anchor, m.Index = planned, (m.Index+1)%cycles(g.Period, m.Cycle.Period)
	f := Finished{Start: planned, Late: ready - planned}
	if f.Late != 0 {
		f.Start, f.Pushed = l.move(g, members, i, ready)
		m.Anchor = f.Start
		for _, p := range f.Pushed {
			members[g.index(p.Job)].Anchor += p.By
		}
	}
	f.Waits = max(0, f.Start-ready)
	m.Waited += f.Waits
	l.spare.layOut(g.Period, members)
	l.commit(g, g.Period, members)
	return f, nil
}

// move returns where member i starts its next cycle, which was planned where its
// anchor is, and who makes room.
func (l *Ledger) move(g *group, members []Reservation, i int, ready int64) (int64, []Push) {
	m := members[i]
	late := ready - m.Anchor
	var others circle
	others.layOut(g.Period, slices.Delete(slices.Clone(members), i, i+1))
	switch {
	case others.wait(m.Cycle, m.Index, ready) == 0:
		return ready, nil
	case late < 0:
		early := -late % g.Period // a whole period earlier it is where it was
		return ready + early - min(early, g.circle.ahead(int32(i))), nil
	}
	// A period later it is where it was, so a shift of less than one always fits.
	shift, _, _ := others.earliest(m.Cycle, m.Index, ready, 0, g.Period)
	pushed := g.push(i, late)
	little := late <= mulDivUp(g.Period/cycles(g.Period, m.Cycle.Period), l.config.PushPPM, million)
	if (little || together(pushed) < shift) && l.reaches(g, pushed) {
		return ready, pushed
	}
	return ready + shift, nil
}

// reaches reports whether those who are pushed still start within what rows may have.
func (l *Ledger) reaches(g *group, pushed []Push) bool {
	for _, p := range pushed {
		if g.members[g.index(p.Job)].Anchor+p.By > l.anchorMax() {
			return false
		}
	}
	return true
}

// together is for how long all wait who are pushed.
func together(pushed []Push) (slots int64) {
	for _, p := range pushed {
		slots += p.By
	}
	return slots
}

// ahead returns how much earlier a member could be for those before it.
func (c *circle) ahead(member int32) int64 {
	free := c.period
	for i := range c.busy {
		next := c.busy[(i+1)%len(c.busy)]
		if next.member == member && c.busy[i].member != member {
			free = min(free, c.gap(i))
		}
	}
	return free
}

// push returns by how much those behind member i have to go on if it does so by so
// many slots.
func (g *group) push(i int, slots int64) (pushed []Push) {
	by := make([]int64, len(g.members))
	by[i] = slots
	c := &g.circle
	for again := true; again; {
		again = false
		for k := range c.busy {
			a, b := c.busy[k].member, c.busy[(k+1)%len(c.busy)].member
			if need := by[a] - c.gap(k); a != b && need > by[b] {
				by[b] = need
				again = true
			}
		}
	}
	for k, slots := range by {
		if k != i && slots > 0 {
			pushed = append(pushed, Push{g.members[k].Job, slots})
		}
	}
	return pushed
}
