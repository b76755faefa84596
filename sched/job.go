package sched

import (
	"cmp"
	"errors"
	"fmt"

	"rota/fsm/state"
	"rota/sched/ledger"
)

// Search is what came of looking for a group for a job.
type Search struct {
	// Best is the group that suits the job best or, if Err is set, that came nearest;
	// 0 if there is none.
	Best state.GroupID
	// Placement is where and when, and Ledger what it can be reserved in. Jobs without a
	// reservation have neither.
	Placement ledger.Placement
	Ledger    *ledger.Ledger
	// Err says what would have to change for one of the groups to take the job.
	Err error
	// Steps is how many groups and jobs were looked at.
	Steps int
}

// PlaceJob finds the best of some groups for a queued job, and when it is to start: by
// its cycle if that is known (warm start), else a group of its own (cold start, PlexRL
// §5.2). The best of all groups is also the best of those that were best of some.
func PlaceJob(v *state.State, j *state.Job, among []state.GroupID) Search {
	if j.Backfill {
		return placeBackfill(v, j, among)
	}
	m := v.Meta()
	ready := ledger.Cover(m.Settings.LedgerSlotNS, m.Now)
	s := Search{Ledger: GroupsLedger(v, among)}
	if j.Cycle.Period == 0 {
		s.Placement.Fit, s.Err = s.Ledger.PlaceCold(ledger.JobID(j.ID), j.Nodes, ready)
	} else {
		promise, steps := Promised(v, j.ID)
		s.Steps = steps
		s.Placement, s.Err = s.Ledger.Place(ledger.Request{
			Job: ledger.JobID(j.ID), Cycle: LedgerCycle(j.Cycle), Ready: ready, Policy: Policy(v), Promise: promise,
		})
	}
	_, reservations := s.Ledger.Rows()
	s.Steps += len(among) + len(reservations)
	s.Best = state.GroupID(s.Placement.Group)
	if refusal := (*ledger.Refusal)(nil); errors.As(s.Err, &refusal) {
		s.Best = state.GroupID(refusal.Group)
	}
	return s
}

// keptMax bounds how many queued jobs are looked at for one that was passed too long.
const keptMax = 16

// Promised returns the group that a job has to leave to one that was submitted before it, and
// that others have passed for a horizon of the ledger. A job for which there is no room
// does not hold up those behind it, so these could take whatever comes free for ever:
// small jobs, for instance, so that no group ever has room for a large one. A single
// group is kept at a time, for the oldest: the one that is held least. Its jobs leave it
// sooner or later, and no others come. All other groups are as free as before. Steps is
// how many groups and jobs were looked at.
func Promised(v *state.State, than state.JobID) (promise ledger.Promise, steps int) {
	m, left := v.Meta(), keptMax
	v.QueuedJobs(0, func(j *state.Job) bool {
		if left--; left < 0 || j.ID >= than {
			return false
		}
		if j.Backfill || (m.Now-j.SubmittedAt)/m.Settings.LedgerSlotNS < m.Settings.LedgerSlots {
			return true
		}
		group, n := leastHeld(v, width(j))
		promise = ledger.Promise{Group: ledger.GroupID(group), For: ledger.JobID(j.ID)}
		steps += n
		return group == 0
	})
	return promise, steps
}

// leastHeld returns the group, of those with enough nodes, that is held for the
// least part of its period; 0 if none has, or if no job has reserved it: a job that
// needs no more than that is not kept waiting.
func leastHeld(v *state.State, nodes int64) (id state.GroupID, steps int) {
	least := int64(0)
	v.NodeGroups(func(g *state.NodeGroup) bool {
		steps++
		if g.Nodes < nodes {
			return true
		}
		use := useOf(v, g)
		if steps += use.jobs; use.reservations == 0 {
			id = 0
			return false
		}
		if id == 0 || use.held < least {
			id, least = g.ID, use.held
		}
		return true
	})
	return id, steps
}

// width returns how many nodes a job needs at once.
func width(j *state.Job) int64 {
	if j.Cycle.Period == 0 {
		return j.Nodes
	}
	return LedgerCycle(j.Cycle).Width()
}

var policies = [...]ledger.Policy{
	state.PolicySpread: ledger.Spread, state.PolicyPack: ledger.Pack, state.PolicyIsolated: ledger.Isolated,
}

// Policy returns how groups are ranked.
func Policy(v *state.State) ledger.Policy { return policies[v.Meta().Settings.LedgerPolicy] }

// KnownPolicy reports whether there is such a policy.
func KnownPolicy(p state.PlacementPolicy) bool {
	return p >= state.PolicySpread && int(p) < len(policies)
}

var errNoRoom = errors.New("no group is wide enough: add one")

// placeBackfill finds a group for a job that takes what others leave: the one that is
// reserved for the least of its time, then with the fewest such jobs, then the oldest.
func placeBackfill(v *state.State, j *state.Job, among []state.GroupID) (s Search) {
	var least groupUse
	for _, id := range among {
		g := v.NodeGroup(id)
		if s.Steps++; g.Nodes < j.Nodes {
			continue
		}
		use := useOf(v, g)
		s.Steps += use.jobs
		if s.Best == 0 || cmp.Or(cmp.Compare(use.held, least.held), cmp.Compare(use.backfill(), least.backfill()), cmp.Compare(id, s.Best)) < 0 {
			s.Best, least = id, use
		}
	}
	if s.Best == 0 {
		s.Err = errNoRoom
	}
	return s
}

// groupUse is what a group has to do.
type groupUse struct {
	held         int64 // for how much of its period it is reserved, in ppm
	jobs         int   // that are on it
	reservations int   // of them, that have a reservation
}

func (u groupUse) backfill() int { return u.jobs - u.reservations }

func useOf(v *state.State, g *state.NodeGroup) (u groupUse) {
	slots := int64(0)
	v.GroupJobs(g.ID, func(j *state.Job) bool {
		u.jobs++
		if reservation := v.Reservation(j.ID); reservation != nil {
			u.reservations++
			for _, s := range reservation.Cycle.Segments {
				slots += s.Length * (g.Period / reservation.Cycle.Period)
			}
		}
		return true
	})
	u.held = slots * 1_000_000 / max(1, g.Period)
	return u
}

// CycleOf turns a declared cycle into slots, rounded outwards, and says what is wrong
// with it. Segments that share a slot then become one, with the nodes of the wider.
func CycleOf(v *state.State, periodNS int64, segments []ledger.Turn) (state.Cycle, error) {
	s := &v.Meta().Settings
	slot, end := s.LedgerSlotNS, int64(0)
	var c ledger.Cycle
	for i, t := range segments {
		if t.Start < end || t.End <= t.Start {
			return state.Cycle{}, fmt.Errorf("segment %d is from %d to %d ns, and the one before ends at %d ns: segments ascend, do not overlap, and have a length", i, t.Start, t.End, end)
		}
		end = t.End
		from, to := t.Start/slot, ledger.Cover(slot, t.End)
		if n := len(c.Segments); n > 0 && from < c.Segments[n-1].End() {
			before := &c.Segments[n-1]
			before.Length, before.Nodes = to-before.Offset, max(before.Nodes, t.Nodes)
			continue
		}
		c.Segments = append(c.Segments, ledger.Segment{Offset: from, Length: to - from, Nodes: t.Nodes})
	}
	if periodNS < max(1, end) {
		return state.Cycle{}, fmt.Errorf("the period is %d ns: it must be at least 1, and not end before the last segment does (%d ns)", periodNS, end)
	}
	c.Period = ledger.Cover(slot, periodNS)
	return Cycle(c), c.Validate(s.LedgerSlots)
}

// ProfileOf makes a cycle of the turns that a job has just had, the next cycle being
// ready now. A turn whose deployment was still resident from the cycle before will
// have to be set up once the group is shared: its lead goes before it, and what
// follows is that much later.
func ProfileOf(v *state.State, j *state.Job) (state.Cycle, error) {
	turns, late := make([]ledger.Turn, len(j.Ran)), int64(0)
	for i, r := range j.Ran {
		start := r.Start + late
		late += r.LeadNS
		turns[i] = ledger.Turn{Start: start, End: r.End + late, Nodes: j.Nodes}
	}
	m := v.Meta()
	c, err := ledger.Profile(m.Settings.LedgerSlotNS, turns, m.Now+late)
	if err == nil {
		err = c.Validate(m.Settings.LedgerSlots)
	}
	return Cycle(c), err
}
