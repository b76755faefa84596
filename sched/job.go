package sched

import (
	"cmp"
	"errors"
	"fmt"

	"rota/fsm/state"
	"rota/sched/ledger"
)

// PlaceJob finds the group and the start of a queued job: by its cycle if that is
// known (warm start), else a group of its own (cold start, PlexRL §5.2). The error
// says what would have to change.
func PlaceJob(v *state.State, l *ledger.Ledger, j *state.Job) (ledger.Found, error) {
	m := v.Meta()
	ready := ledger.Cover(m.Settings.LedgerSlotNS, m.Now)
	if j.Cycle.Period == 0 {
		p, err := l.PlaceCold(ledger.JobID(j.ID), j.Nodes, ready)
		return ledger.Found{Placement: p}, err
	}
	return l.Place(ledger.Ask{
		Job: ledger.JobID(j.ID), Cycle: LedgerCycle(j.Cycle), Ready: ready, Policy: Policy(v), Kept: Kept(v, l, j.ID),
	})
}

// keptMax bounds how many queued jobs are looked at for one that was passed too long.
const keptMax = 16

// Kept returns the group that a job has to leave to one that was submitted before it, and
// that others have passed for a horizon of the ledger. A job for which there is no room
// does not hold up those behind it, so these could take whatever comes free for ever:
// small jobs, for instance, so that no group ever has room for a large one. A single
// group is kept at a time, for the oldest: the one that is held least. Its jobs leave it
// sooner or later, and no others come. All other groups are as free as before.
func Kept(v *state.State, l *ledger.Ledger, than state.JobID) (kept ledger.Kept) {
	m, left := v.Meta(), keptMax
	v.QueuedJobs(0, func(j *state.Job) bool {
		if left--; left < 0 || j.ID >= than {
			return false
		}
		if j.Backfill || (m.Now-j.SubmittedAt)/m.Settings.LedgerSlotNS < m.Settings.LedgerSlots {
			return true
		}
		kept = ledger.Kept{Group: l.LeastHeld(width(j)), For: ledger.JobID(j.ID)}
		return kept.Group == 0
	})
	return kept
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

// PlaceBackfill finds a group for a job that takes what others leave: the one that is
// reserved for the least of its time, then with the fewest such jobs.
func PlaceBackfill(v *state.State, j *state.Job) (best state.GroupID, err error) {
	var least [2]int64
	v.NodeGroups(func(g *state.NodeGroup) bool {
		if g.Nodes < j.Nodes {
			return true
		}
		load := groupLoad(v, g)
		if best == 0 || cmp.Or(cmp.Compare(load[0], least[0]), cmp.Compare(load[1], least[1])) < 0 {
			best, least = g.ID, load
		}
		return true
	})
	if best == 0 {
		return 0, errNoRoom
	}
	return best, nil
}

// groupLoad returns for how much of its period a group is reserved, in ppm, and how
// many jobs without a reservation are on it.
func groupLoad(v *state.State, g *state.NodeGroup) (load [2]int64) {
	slots := int64(0)
	v.GroupJobs(g.ID, func(j *state.Job) bool {
		seat := v.Seat(j.ID)
		if seat == nil {
			load[1]++
			return true
		}
		for _, s := range seat.Cycle.Segments {
			slots += s.Length * (g.Period / seat.Cycle.Period)
		}
		return true
	})
	load[0] = slots * 1_000_000 / max(1, g.Period)
	return load
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
