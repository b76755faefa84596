package sched

import (
	"rota/fsm/state"
	"rota/sched/ledger"
	"rota/sched/order"
)

// TurnDecision is what is to be done about a group. At most one of its forms is set.
type TurnDecision struct {
	// Grant is the turn that gets the group.
	Grant *state.Turn
	// Stop is the holder that is asked to yield.
	Stop *state.Turn
	// WakeAt is a log time at which the group is to be looked at again, since it may
	// be another's turn then; 0: nothing is to be waited for.
	WakeAt int64
	// Examined is how many turns were looked at.
	Examined int

	// Of a group with members: until when actions may have them, 0 if they may not; when the
	// next reservation begins; and whether a turn waits for nothing but actions to end.
	GapUntil, NextAt int64
	Waits            state.MemberWait
}

// NextTurn decides who has a group next (PlexRL §4.4, and §5.2 for what is reserved).
//
// Those whose time it is come first. A turn is due if its job has not held the group
// since its newest reservation began, however late it is, or if it ends within that
// reservation. Any other is early and gets the group only if it ends before the next
// reservation of another job: so it delays no job that comes in time. Jobs without a
// reservation are always early: they have what is left over (backfill). Among those
// who are due, and else among those who are early, the order is HRRS.
func NextTurn(v *state.State, g *state.NodeGroup) TurnDecision {
	p := turnPass{view: v, group: g, now: v.Meta().Now, slot: v.Meta().Settings.LedgerSlotNS}
	p.collect()
	holder := v.Turn(g.Turn)
	members := len(g.Members.List) > 0
	d := TurnDecision{Examined: len(p.heads)}
	switch {
	case len(p.heads) == 0 && (!members || holder != nil),
		holder == nil && g.ContextSwitch != nil, // hooks of a turn that is over still run
		holder != nil && (!holder.Preemptible || holder.Stop):
		return d
	}
	p.reserved = p.intervals()
	p.newest = p.begun()
	best := p.best(p.due, holder)
	waits := state.DueWaits
	if best == nil && holder == nil {
		best, waits = p.best(p.fits, nil), state.EarlyWaits
	}
	if members && holder == nil {
		d.NextAt = p.nextStart()
	}
	switch {
	case best == nil && holder != nil:
		d.WakeAt = p.outranks(holder)
	case best == nil:
		d.WakeAt = p.boundary()
		if members {
			d.GapUntil = p.gap()
		}
	case holder == nil && occupied(v, g):
		d.WakeAt, d.Waits = p.boundary(), waits
	case holder != nil:
		d.Stop = holder
	default:
		d.Grant = best
	}
	return d
}

// Foreseen returns the job that is to have a group next by what is reserved, if another
// has it now, and from when on in log time; nil if there is none.
func Foreseen(v *state.State, g *state.NodeGroup) (next *state.Job, at int64) {
	p := turnPass{view: v, group: g, now: v.Meta().Now, slot: v.Meta().Settings.LedgerSlotNS}
	resident, _ := g.Resident.Job()
	for _, r := range p.intervals() {
		if start := r.Start * p.slot; start > p.now && state.JobID(r.Job) != resident {
			return v.Job(state.JobID(r.Job)), start
		}
	}
	return nil, 0
}

// turnPass is one look at a group.
type turnPass struct {
	view  *state.State
	group *state.NodeGroup
	now   int64
	slot  int64 // ns
	// heads are the oldest waiting turns of each deployment that may have the group.
	heads []*state.Turn
	// reserved has what is reserved around now, for two periods, and newest the last of
	// it that has begun, by job; for look-up only.
	reserved []ledger.Reserved
	newest   map[state.JobID]ledger.Reserved
}

// collect finds the heads. A job holds one group at a time: one that was moved and
// still holds a turn elsewhere has to yield that first. Operations of a deployment run in
// order, so those behind the holder are no heads.
func (p *turnPass) collect() {
	p.view.GroupJobs(p.group.ID, func(j *state.Job) bool {
		held := p.view.HeldTurn(j.ID)
		if held != nil && held.ID != p.group.Turn || j.Nodes > p.group.Remaining() {
			return true
		}
		p.view.FirstTurns(j.ID, func(t *state.Turn) bool {
			if held == nil || held.Deployment != t.Deployment || held.ID > t.ID {
				p.heads = append(p.heads, t)
			}
			return true
		})
		return true
	})
}

// intervals returns what is reserved from a period ago on, at least until each job
// has had its next: one that was placed just now may begin more than a period later.
func (p *turnPass) intervals() []ledger.Reserved {
	at, period := p.now/p.slot, p.group.Period
	last := at
	p.view.GroupJobs(p.group.ID, func(j *state.Job) bool {
		if reservation := p.view.Reservation(j.ID); reservation != nil {
			last = max(last, reservation.Anchor)
		}
		return true
	})
	return GroupLedger(p.view, p.group).Reserved(ledger.GroupID(p.group.ID), at-period, last+period+1)
}

// begun returns the newest reservation of each job that has begun.
func (p *turnPass) begun() map[state.JobID]ledger.Reserved {
	newest := make(map[state.JobID]ledger.Reserved)
	for _, r := range p.reserved {
		if r.Start*p.slot <= p.now {
			newest[state.JobID(r.Job)] = r
		}
	}
	return newest
}

// service is how long a turn would have the group.
func (p *turnPass) service(t *state.Turn) int64 {
	if t.Deployment == p.group.Resident {
		return t.ExecNS
	}
	return state.Saturated(t.ExecNS, t.SetUpNS)
}

// due reports whether it is a turn's time.
func (p *turnPass) due(t *state.Turn) bool {
	id, _ := t.Deployment.Job()
	reservation := p.view.Reservation(id)
	if reservation == nil || reservation.Dedicated {
		return reservation != nil
	}
	r, begun := p.newest[id]
	return begun && (p.view.Job(id).YieldedAt <= r.Start*p.slot || state.Saturated(p.now, p.service(t)) <= r.End*p.slot)
}

// fits reports whether a turn ends before others need the group.
func (p *turnPass) fits(t *state.Turn) bool {
	id, _ := t.Deployment.Job()
	end := state.Saturated(p.now, p.service(t))
	for _, r := range p.reserved {
		if state.JobID(r.Job) != id && r.End*p.slot > p.now {
			return end <= r.Start*p.slot
		}
	}
	return true
}

// best returns which of those that qualify is next, nil if none is, or if the holder
// is to go on.
func (p *turnPass) best(qualifies func(*state.Turn) bool, holder *state.Turn) *state.Turn {
	g := order.Input{Now: p.now, Resident: uint64(p.group.Resident)}
	var turns []*state.Turn
	for _, t := range p.heads {
		if qualifies(t) {
			turns = append(turns, t)
			g.Waiting = append(g.Waiting, orderTurn(t))
		}
	}
	if holder != nil {
		running := orderTurn(holder)
		running.Exec = max(0, p.left(holder))
		g.Running, g.Preemptible = &running, true
	}
	if i := new(order.HRRS).Next(&g); i >= 0 {
		return turns[i]
	}
	return nil
}

// outranks returns when a due turn may come before a holder that can be asked to stop, only because
// it has waited for longer, or what is reserved changes; 0: not before something happens. It is
// looked at again after as long as it has waited already, so seldom. It is so from feature level 3 on.
func (p *turnPass) outranks(holder *state.Turn) int64 {
	at := p.boundary()
	if p.view.Meta().Level < LevelResizing {
		return at
	}
	for _, t := range p.heads {
		if t.Deployment == holder.Deployment || !p.due(t) {
			continue
		}
		if look := p.now + max(p.slot, p.now-t.ArrivedAt); at == 0 || look < at {
			at = look
		}
	}
	return at
}

// left is how much longer a holder is expected to have the group.
func (p *turnPass) left(t *state.Turn) int64 {
	all := t.ExecNS
	if t.SetUp {
		all = state.Saturated(all, t.SetUpNS)
	}
	return all - (p.now - t.GrantedAt)
}

func orderTurn(t *state.Turn) order.Turn {
	return order.Turn{ID: uint64(t.ID), Deployment: uint64(t.Deployment), Arrival: t.ArrivedAt, Exec: t.ExecNS, SetUp: t.SetUpNS}
}

// boundary is the next time at which a reservation begins or ends; 0 if there is none.
// In a group that is dedicated to a job that never changes anything.
func (p *turnPass) boundary() (at int64) {
	for _, r := range p.reserved {
		if s := p.view.Reservation(state.JobID(r.Job)); s.Dedicated {
			return 0
		}
		for _, slot := range []int64{r.Start, r.End} {
			if ns := slot * p.slot; ns > p.now && (at == 0 || ns < at) {
				at = ns
			}
		}
	}
	return at
}
