package fsm

import (
	"slices"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
	"rota/sched"
	"rota/sched/ledger"
)

// What a search for a place costs of an entry's budget: to begin with, and for the
// groups that are looked at together.
const (
	placeCost   = workBudget / 8
	placeGroups = 64
)

// placeAgain has all jobs looked at that wait for a group, the oldest first, since room
// may have come free. A round that is under way goes on first: else those at its end
// would never be looked at where room comes free all the time.
func (x *execution) placeAgain() {
	m := *x.s.Meta()
	if x.s.WorkLeft(state.Queue{Kind: state.JobQueue}) {
		m.Placing.Again = true
	} else {
		m.PlaceCursor, m.Placing = 0, state.Placing{}
	}
	x.s.SetMeta(m)
	x.placeNew()
}

// placeNew has those jobs looked at that were not yet.
func (x *execution) placeNew() { x.dirty.add(state.Queue{Kind: state.JobQueue}) }

// placeJobs places queued jobs in the order in which they were submitted. One that
// finds no place is passed by. It reports whether the budget ended before the queue.
func (x *execution) placeJobs() (more bool) {
	for {
		m := *x.s.Meta()
		var j *state.Job
		x.s.QueuedJobs(m.PlaceCursor, func(next *state.Job) bool { j = next; return false })
		switch {
		case j == nil && m.Placing.Again:
			m.PlaceCursor, m.Placing = 0, state.Placing{}
		case j == nil:
			return false
		case x.budget <= 0:
			return true
		case m.Placing.Job != j.ID: // the search for another that waits no more is void
			m.Placing = state.Placing{Job: j.ID, Again: m.Placing.Again}
		}
		x.s.SetMeta(m)
		if j != nil {
			x.placeJob(j)
		}
	}
}

// placeJob looks at some more groups for a job. After the last, the job gets the best of
// them, or notes what it waits for.
func (x *execution) placeJob(j *state.Job) {
	m := *x.s.Meta()
	among, last := x.someGroups(m.Placing)
	search := sched.PlaceJob(x.s, j, among)
	x.budget -= placeCost + search.Steps
	if !last {
		m.Placing.Last, m.Placing.Best = among[len(among)-1], search.Best
		x.s.SetMeta(m)
		return
	}
	m.PlaceCursor, m.Placing = j.ID, state.Placing{Again: m.Placing.Again}
	x.s.SetMeta(m)
	k := *j
	if search.Err != nil {
		if k.Message = search.Err.Error(); k.Message != j.Message {
			x.s.PutJob(&k)
		}
		return
	}
	x.reserve(&k, &search)
	k.State, k.Message = state.JobRunning, ""
	if k.StartedAt == 0 {
		k.StartedAt = x.now()
	}
	x.putJob(&k)
	x.closeGap(k.Group) // its turns may wait already
	x.dirty.add(state.QueueOf(state.TurnQueue, k.Group))
}

// someGroups returns the best group so far and those to look at next, by ID, and whether
// they are the last.
func (x *execution) someGroups(p state.Placing) (among []state.GroupID, last bool) {
	if x.s.NodeGroup(p.Best) != nil {
		among = append(among, p.Best)
	}
	last = true
	x.s.NodeGroupsAfter(p.Last, func(g *state.NodeGroup) bool {
		if last = len(among) < placeGroups; last {
			among = append(among, g.ID)
		}
		return last
	})
	return among, last
}

// reserve reserves the placement of a job, unless the job has no reservations.
func (x *execution) reserve(j *state.Job, s *sched.Search) {
	if j.Backfill {
		j.Group = s.Best
		return
	}
	err := s.Ledger.Reserve(s.Placement.Fit)
	state.Assert(err == nil, "the placement of job %d cannot be reserved: %v", j.ID, err)
	setPlacement(j, &s.Placement)
	x.putReservations(s.Ledger, j.Group)
}

// setPlacement notes where a job is, and why.
func setPlacement(j *state.Job, p *ledger.Placement) {
	j.Group = state.GroupID(p.Group)
	j.Shift, j.StretchPPM, j.Cost, j.InterferencePPM = p.Shift, p.StretchPPM, p.Cost, p.InterferencePPM
}

// giveReservationBack returns what is reserved for a job.
func (x *execution) giveReservationBack(j *state.Job) {
	if x.s.Reservation(j.ID) == nil {
		return
	}
	l := sched.GroupLedger(x.s, x.s.NodeGroup(j.Group))
	err := l.Release(ledger.JobID(j.ID))
	state.Assert(err == nil, "the reservation of job %d cannot be given back: %v", j.ID, err)
	x.s.DeleteReservation(j.ID)
	x.putReservations(l, j.Group)
	x.placeAgain()
}

// putReservations stores a group's rows as the ledger has them now, where they differ.
func (x *execution) putReservations(l *ledger.Ledger, id state.GroupID) {
	x.closeGap(id)
	group, members := l.Members(ledger.GroupID(id))
	if g := *x.s.NodeGroup(id); g.Period != group.Period {
		g.Period = group.Period
		x.s.PutNodeGroup(&g)
	}
	for i := range members {
		reservation := sched.Reservation(&members[i])
		if old := x.s.Reservation(reservation.Job); old == nil || !sameReservation(old, reservation) {
			x.s.PutReservation(reservation)
		}
	}
}

func sameReservation(a, b *state.Reservation) bool {
	return a.Group == b.Group && a.Dedicated == b.Dedicated && a.Anchor == b.Anchor && a.Index == b.Index &&
		a.Began == b.Began && a.Waited == b.Waited && a.Cycle.Period == b.Cycle.Period &&
		slices.Equal(a.Cycle.Segments, b.Cycle.Segments)
}

// finishCycle anchors a job again that is ready for its next cycle now. One whose
// cycle was not known has shown it: from then on others may share its group.
func (x *execution) finishCycle(j *state.Job) {
	j.Cycles++
	reservation := x.s.Reservation(j.ID)
	if reservation == nil {
		return
	}
	l := sched.GroupLedger(x.s, x.s.NodeGroup(reservation.Group))
	now := sched.Slot(x.s, x.now())
	if !reservation.Dedicated {
		_, err := l.Finish(ledger.JobID(j.ID), now)
		state.Assert(err == nil, "job %d cannot finish its cycle: %v", j.ID, err)
	} else if !x.share(l, j, now) {
		return
	}
	x.putReservations(l, reservation.Group)
	x.dirty.add(state.QueueOf(state.TurnQueue, reservation.Group))
}

// share makes the profile of a job that had its group for itself, if its cycle went as
// it should.
func (x *execution) share(l *ledger.Ledger, j *state.Job, now int64) bool {
	if !j.Clean || len(j.Ran) == 0 {
		return false
	}
	cycle, err := sched.ProfileOf(x.s, j)
	if err == nil {
		err = l.Share(ledger.JobID(j.ID), sched.LedgerCycle(cycle), now)
	}
	if err != nil {
		j.Message = "its cycle cannot be reserved, so it keeps its group: " + err.Error()
		return false
	}
	j.Cycle, j.Message = cycle, ""
	x.placeAgain()
	return true
}

// moveJob takes a job to another group, if what the move was planned upon is still so.
func (x *execution) moveJob(c *logv1.MoveJob) *logv1.Result {
	j := x.s.Job(state.JobID(c.JobId))
	switch {
	case j == nil:
		return refuse(codeNotFound, "JOB_NOT_FOUND", "job %d does not exist", c.JobId)
	case c.Transfer < 0 || c.Was < 0 || c.Period < 1:
		return refuse(codeInvalidArgument, "INVALID", "a move has a period, and nothing negative")
	case x.s.Reservation(j.ID) == nil || x.s.HeldTurn(j.ID) != nil:
		return refuse(codeFailedPrecondition, "MOVE_REFUSED", "job %q has no reservation, or holds its group", j.Name)
	}
	l := sched.GroupsLedger(x.s, []state.GroupID{state.GroupID(c.From), state.GroupID(c.To)})
	placement, err := l.Apply(ledger.Move{
		Job: ledger.JobID(c.JobId), From: ledger.GroupID(c.From), To: ledger.GroupID(c.To),
		Was: c.Was, Period: c.Period, CostMax: c.CostMax, Transfer: c.Transfer,
	})
	if err != nil {
		return refuse(codeFailedPrecondition, "MOVE_REFUSED", "%v", err)
	}
	k := *j
	setPlacement(&k, &placement)
	x.putJob(&k)
	for _, g := range []state.GroupID{j.Group, k.Group} {
		x.putReservations(l, g)
		x.dirty.add(state.QueueOf(state.TurnQueue, g))
	}
	x.placeAgain()
	return &logv1.Result{Count: 1}
}
