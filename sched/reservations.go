package sched

import (
	"rota/fsm/state"
	"rota/sched/ledger"
)

// What the state keeps of the ledger are rows: groups, and the reservations of jobs. The
// ledger that they are of is made when a decision needs it, and of one group where
// that is enough, so that it can neither go astray nor has to be in snapshots.

// ledgerConfig returns the configuration that the settings stand for.
func ledgerConfig(s *state.Settings) ledger.Config {
	c := ledger.Default()
	c.Slots, c.StretchPPM, c.DutyPPM = s.LedgerSlots, s.LedgerStretchPPM, s.LedgerDutyPPM
	return c
}

// CheckLedger says what is wrong with the settings of the ledger.
func CheckLedger(s *state.Settings) error { return ledgerConfig(s).Validate() }

// Slot returns the slot that a log time is in.
func Slot(v *state.State, ns int64) int64 { return ns / v.Meta().Settings.LedgerSlotNS }

// Ledger returns the ledger of all groups, with a window that starts now.
func Ledger(v *state.State) *ledger.Ledger {
	groups, reservations := ledgerRows(v)
	return build(v, groups, reservations)
}

// ledgerRows returns all rows that the ledger is made of.
func ledgerRows(v *state.State) (groups []ledger.Group, reservations []ledger.Reservation) {
	v.NodeGroups(func(g *state.NodeGroup) bool {
		groups = append(groups, groupRow(g))
		return true
	})
	v.Reservations(func(r *state.Reservation) bool {
		reservations = append(reservations, ledgerReservation(r))
		return true
	})
	return groups, reservations
}

// GroupLedger returns the ledger of one group.
func GroupLedger(v *state.State, g *state.NodeGroup) *ledger.Ledger {
	return GroupsLedger(v, []state.GroupID{g.ID})
}

// GroupsLedger returns the ledger of some groups. Those that do not exist are left out.
func GroupsLedger(v *state.State, ids []state.GroupID) *ledger.Ledger {
	var groups []ledger.Group
	var reservations []ledger.Reservation
	for _, id := range ids {
		g := v.NodeGroup(id)
		if g == nil {
			continue
		}
		groups = append(groups, groupRow(g))
		v.GroupJobs(id, func(j *state.Job) bool {
			if reservation := v.Reservation(j.ID); reservation != nil {
				reservations = append(reservations, ledgerReservation(reservation))
			}
			return true
		})
	}
	return build(v, groups, reservations)
}

func build(v *state.State, groups []ledger.Group, reservations []ledger.Reservation) *ledger.Ledger {
	l, err := tryBuild(v, groups, reservations)
	state.Assert(err == nil, "the rows of the ledger do not go together: %v", err)
	return l
}

func tryBuild(v *state.State, groups []ledger.Group, reservations []ledger.Reservation) (*ledger.Ledger, error) {
	m := v.Meta()
	return ledger.Build(ledgerConfig(&m.Settings), Slot(v, m.Now), groups, reservations)
}

// ReservedIntervals visits what is reserved of a group from one slot until another, in the
// order of time.
func ReservedIntervals(v *state.State, id state.GroupID, from, to int64, fn func(job state.JobID, start, end, nodes int64)) {
	g := v.NodeGroup(id)
	if g == nil {
		return
	}
	for _, r := range GroupLedger(v, g).Reserved(ledger.GroupID(id), from, to) {
		fn(state.JobID(r.Job), r.Start, r.End, r.Nodes)
	}
}

func groupRow(g *state.NodeGroup) ledger.Group {
	return ledger.Group{ID: ledger.GroupID(g.ID), Nodes: g.Nodes, Period: g.Period}
}

func ledgerReservation(r *state.Reservation) ledger.Reservation {
	return ledger.Reservation{
		Job: ledger.JobID(r.Job), Group: ledger.GroupID(r.Group), Cycle: LedgerCycle(r.Cycle), Dedicated: r.Dedicated,
		Anchor: r.Anchor, Index: r.Index, Began: r.Began, Waited: r.Waited,
	}
}

// Reservation returns a reservation of the ledger as the state has it.
func Reservation(r *ledger.Reservation) *state.Reservation {
	return &state.Reservation{
		Job: state.JobID(r.Job), Group: state.GroupID(r.Group), Cycle: Cycle(r.Cycle), Dedicated: r.Dedicated,
		Anchor: r.Anchor, Index: r.Index, Began: r.Began, Waited: r.Waited,
	}
}

// LedgerCycle returns a cycle of the state as the ledger has it.
func LedgerCycle(c state.Cycle) ledger.Cycle {
	out := ledger.Cycle{Period: c.Period, Segments: make([]ledger.Segment, len(c.Segments))}
	for i, s := range c.Segments {
		out.Segments[i] = ledger.Segment(s)
	}
	return out
}

// Cycle returns a cycle of the ledger as the state has it.
func Cycle(c ledger.Cycle) state.Cycle {
	out := state.Cycle{Period: c.Period, Segments: make([]state.Segment, len(c.Segments))}
	for i, s := range c.Segments {
		out.Segments[i] = state.Segment(s)
	}
	return out
}
