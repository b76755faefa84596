package model

import (
	"fmt"
	"slices"

	"rota/fsm/state"
)

// Reservations: which group a job is on, and when the group is its. The state machine
// chooses; here is only what must be so whatever it chooses, slot by slot.

// beginLedger forgets what happened in the entry before.
func (m *Model) beginLedger() {
	for _, g := range m.groups {
		for _, j := range g.jobs {
			j.settle()
		}
		g.moved = false
	}
	m.touchedJobs, m.touchedTurns = m.touchedJobs[:0], m.touchedTurns[:0]
}

func (j *job) settle() {
	j.was, j.finished, j.profiled, j.placed, j.ran = nil, false, false, false, nil
}

func (m *Model) slot() int64 { return m.now / m.settings.LedgerSlotNS }

// learnReservations takes over the reservations of groups on which commands have moved them.
func (m *Model) learnReservations() {
	for _, g := range m.groups {
		if g.moved {
			m.learnReservationsOf(g)
		}
	}
}

// learnReservationsOf takes over where the members of a group are; finish judges it.
func (m *Model) learnReservationsOf(g *nodeGroup) {
	if row := m.s.NodeGroup(g.ID); row != nil {
		g.Period = row.Period
	}
	for _, j := range g.jobs {
		row := m.s.Reservation(j.ID)
		if row == nil || row.Group != g.ID {
			continue
		}
		if j.was == nil {
			j.was = j.reservation
		}
		if j.profiled && j.reservation.Dedicated && !row.Dedicated {
			j.Cycle = row.Cycle
			m.touchJob(j)
		}
		j.reservation = row
	}
}

// keepProfile takes over what a job has learned of itself that leaves its group in the same
// entry, and judges it: there is no reservation left to see it by.
func (m *Model) keepProfile(j *job) error {
	row := m.s.Job(j.ID)
	if !j.profiled || !j.reservation.Dedicated || row == nil || len(row.Cycle.Segments) == 0 {
		return nil
	}
	j.Cycle = row.Cycle
	return m.covers(j)
}

// unsure: a job that is placed later in this entry has its reservation already, so what was
// reserved at this moment is not known.
func (m *Model) unsure(g *nodeGroup) (is bool) {
	m.s.Reservations(func(r *state.Reservation) bool {
		j := m.jobByID[r.Job]
		is = r.Group == g.ID && (j == nil || j.group != g)
		return !is
	})
	return is
}

// placeJob judges that a job was given a group, and takes over which and when.
func (m *Model) placeJob(e state.Event) error {
	j := m.jobByID[state.JobID(e.Subject)]
	if j == nil || j.State != state.JobQueued || m.halted {
		return fmt.Errorf("job %d was placed, which is not queued, or no jobs are placed", e.Subject)
	}
	row := m.s.Job(j.ID)
	if row == nil || row.State != state.JobRunning {
		return fmt.Errorf("job %d was placed, and its row is %+v", j.ID, row)
	}
	g := m.nodeGroup(row.Group)
	if g == nil || g.Nodes < j.width() {
		return fmt.Errorf("job %d, which needs %d nodes, was placed on group %d", j.ID, j.width(), row.Group)
	}
	if err := m.chosenWell(j, g); err != nil {
		return err
	}
	j.State, j.Message = state.JobRunning, ""
	if j.StartedAt == 0 {
		j.StartedAt = m.now
	}
	m.joinGroup(j, g)
	m.learnReservationsOf(g)
	if j.reservation != nil && j.reservation.Anchor*m.settings.LedgerSlotNS < m.now {
		return fmt.Errorf("job %d was placed at %d to start at slot %d, which began before", j.ID, m.now, j.reservation.Anchor)
	}
	return m.tellJob(j)
}

// width is how many nodes a job needs at once: those of its widest segment.
func (j *job) width() (nodes int64) {
	if j.Cycle.Period == 0 {
		return j.Nodes
	}
	for _, s := range j.Cycle.Segments {
		nodes = max(nodes, s.Nodes)
	}
	return nodes
}

// chosenWell judges what is simple about the choice of a group: a job whose cycle is
// not known has it alone, and those that are backfill go where least is reserved.
func (m *Model) chosenWell(j *job, g *nodeGroup) error {
	switch {
	case j.Backfill:
		for _, o := range m.groups {
			if o.Nodes >= j.Nodes && o.before(g) {
				return fmt.Errorf("backfill job %d was placed on group %s, group %s has less reserved", j.ID, g.Name, o.Name)
			}
		}
	case j.Cycle.Period == 0:
		for _, o := range m.groups {
			if o.reservations() == 0 && o.Nodes >= j.Nodes && o.Nodes < g.Nodes {
				return fmt.Errorf("job %d of %d nodes was given group %s of %d nodes for itself, group %s has %d and is empty", j.ID, j.Nodes, g.Name, g.Nodes, o.Name, o.Nodes)
			}
		}
		if g.reservations() > 0 {
			return fmt.Errorf("job %d, whose cycle is not known, was placed on group %s, which has jobs", j.ID, g.Name)
		}
	case m.settings.LedgerPolicy == state.PolicyIsolated && g.reservations() > 0:
		return fmt.Errorf("job %d was placed on group %s, which has jobs", j.ID, g.Name)
	}
	return nil
}

// reservations counts the jobs on a group that have something reserved.
func (g *nodeGroup) reservations() (n int) {
	for _, j := range g.jobs {
		if j.reservation != nil {
			n++
		}
	}
	return n
}

// reserved is for how many slots of how many a group is reserved.
func (g *nodeGroup) reserved() (slots, of int64) {
	for _, j := range g.jobs {
		if j.reservation != nil {
			for _, s := range j.reservation.Cycle.Segments {
				slots += s.Length * (g.Period / j.reservation.Cycle.Period)
			}
		}
	}
	return slots, max(1, g.Period)
}

// before reports whether a group is surely better than another for backfill.
func (g *nodeGroup) before(o *nodeGroup) bool {
	slots, of := g.reserved()
	others, ofOthers := o.reserved()
	a, b := slots*million/of, others*million/ofOthers
	if a != b {
		return a+1 < b // one may be rounded up
	}
	count := func(g *nodeGroup) (n int) {
		for _, j := range g.jobs {
			if j.Backfill {
				n++
			}
		}
		return n
	}
	if a, b := count(g), count(o); a != b {
		return slots*ofOthers == others*of && a < b
	}
	return slots*ofOthers == others*of && g.ID < o.ID
}

// span is slots that are reserved, from one until another.
type span struct{ from, until int64 }

// spans are what is reserved for a reservation around a slot: the one before it and at least
// one behind, in order.
func (j *job) spans(around int64) (all []span) {
	reservation, period := j.reservation, j.group.Period
	n := max(1, period/reservation.Cycle.Period)
	base := reservation.Anchor - period*reservation.Index/n
	k := max(reservation.Index, (around-base)*n/period-2)
	for last := k + 5; k < last; k++ {
		start := base + period*k/n
		for _, s := range reservation.Cycle.Segments {
			from, until := start+s.Offset, start+s.Offset+s.Length
			all = append(all, span{from, until})
		}
	}
	return all
}

// judgeReservations: after the entry, no slot of a group is reserved twice, all widths fit,
// and what moved is where something moved it.
func (m *Model) judgeReservations(g *nodeGroup) error {
	taken := make([]state.JobID, g.Period)
	for _, j := range g.jobs {
		row := m.s.Reservation(j.ID)
		if row == nil {
			if j.Backfill {
				continue
			}
			return fmt.Errorf("job %d runs on group %s and has no reservation", j.ID, g.Name)
		}
		if j.Backfill || j.reservation == nil || !sameReservation(row, j.reservation) {
			return fmt.Errorf("job %d has reservation %+v, must have %+v", j.ID, row, j.reservation)
		}
		if err := m.judgeReservation(g, j, taken); err != nil {
			return err
		}
	}
	if row := m.s.NodeGroup(g.ID); row.Period != g.Period {
		return fmt.Errorf("group %s has a period of %d slots, must be %d", g.Name, row.Period, g.Period)
	}
	return nil
}

func sameReservation(a, b *state.Reservation) bool {
	return a.Job == b.Job && a.Group == b.Group && a.Dedicated == b.Dedicated && a.Anchor == b.Anchor && a.Index == b.Index &&
		a.Began == b.Began && a.Waited == b.Waited && sameCycle(&a.Cycle, &b.Cycle)
}

func sameCycle(a, b *state.Cycle) bool {
	return a.Period == b.Period && slices.Equal(a.Segments, b.Segments)
}

// judgeReservation lays a reservation out over the slots of one period of its group.
func (m *Model) judgeReservation(g *nodeGroup, j *job, taken []state.JobID) error {
	reservation := j.reservation
	n := g.Period / max(1, reservation.Cycle.Period)
	switch {
	case reservation.Group != g.ID || n < 1 || reservation.Index < 0 || reservation.Index >= n:
		return fmt.Errorf("job %d of group %s has reservation %+v in a period of %d", j.ID, g.Name, reservation, g.Period)
	case reservation.Dedicated && g.reservations() > 1:
		return fmt.Errorf("group %s is dedicated to job %d and has others", g.Name, j.ID)
	case reservation.Dedicated:
		return nil // nobody else is there
	case !sameCycle(&reservation.Cycle, &j.Cycle):
		return fmt.Errorf("job %d has cycle %+v and reserved is %+v", j.ID, j.Cycle, reservation.Cycle)
	case (g.Period-n*reservation.Cycle.Period)*million > n*reservation.Cycle.Period*m.settings.LedgerStretchPPM:
		return fmt.Errorf("job %d has cycles of %d slots in a period of %d, which stretches them by more than %d ppm", j.ID, reservation.Cycle.Period, g.Period, m.settings.LedgerStretchPPM)
	}
	base := reservation.Anchor - g.Period*reservation.Index/n
	for k := range n {
		for _, s := range reservation.Cycle.Segments {
			if s.Nodes > g.Nodes {
				return fmt.Errorf("job %d needs %d nodes and is on group %s with %d", j.ID, s.Nodes, g.Name, g.Nodes)
			}
			for t := range s.Length {
				at := (base + g.Period*k/n + s.Offset + t) % g.Period
				if at < 0 { // its first cycle of the period was before slot 0
					at += g.Period
				}
				if taken[at] != 0 {
					return fmt.Errorf("group %s is over-committed: slot %d of its period is reserved for jobs %d and %d", g.Name, at, taken[at], j.ID)
				}
				taken[at] = j.ID
			}
		}
	}
	return m.judgeMove(g, j)
}

// judgeMove: a reservation is where it was unless something has moved it, and nobody is
// pushed to an earlier time.
func (m *Model) judgeMove(g *nodeGroup, j *job) error {
	was, is := j.was, j.reservation
	switch {
	case was == nil || was == is || j.placed:
		if j.placed && is.Anchor < m.slot() {
			return fmt.Errorf("job %d was placed at slot %d to start at slot %d", j.ID, m.slot(), is.Anchor)
		}
		return nil
	case was.Dedicated:
		if !j.profiled || is.Anchor != m.slot() {
			return fmt.Errorf("job %d had its group for itself and shares it since slot %d, which nothing caused at slot %d", j.ID, is.Anchor, m.slot())
		}
		return m.covers(j)
	case j.finished && is.Anchor < m.slot():
		return fmt.Errorf("job %d has finished a cycle at slot %d, and its next one starts at %d", j.ID, m.slot(), is.Anchor)
	case !j.finished && is.Anchor < was.Anchor:
		return fmt.Errorf("job %d of group %s was to start at slot %d, and starts at %d", j.ID, g.Name, was.Anchor, is.Anchor)
	}
	return nil
}

// covers: the cycle of a job that has shown what it needs has all that it held in
// it.
func (m *Model) covers(j *job) error {
	slot, first := m.settings.LedgerSlotNS, j.ran[0].Start
	if j.Cycle.Period*slot < m.now-first {
		return fmt.Errorf("job %d took %d ns for a cycle, %d slots are reserved", j.ID, m.now-first, j.Cycle.Period)
	}
	held, reserved := int64(0), int64(0)
	for _, r := range j.ran {
		held += r.End - r.Start
	}
	for _, s := range j.Cycle.Segments {
		reserved += s.Length * slot
	}
	if reserved < held {
		return fmt.Errorf("job %d held its group for %d ns of a cycle, %d ns are reserved", j.ID, held, reserved)
	}
	return nil
}
