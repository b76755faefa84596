package sched

import (
	"math"

	"rota/fsm/state"
	"rota/sched/ledger"
	"rota/sched/scale"
)

// Gaps: while no turn has a group, actions may have the GPUs of its members, if they are sure
// enough to end before the group needs them.

const (
	// gapPPM is the part of a class's attempts that end before an action of it is taken to.
	gapPPM = 950_000
	// gapAttemptsMin is how many attempts of a class must have come to their end, before the
	// class says how long an action of it takes at most.
	gapAttemptsMin = 20
)

// occupied reports whether actions run on members that a group does not lack.
func occupied(v *state.State, g *state.NodeGroup) bool {
	for i := range g.Members.List {
		m := &g.Members.List[i]
		if m.Lost != state.MemberThere {
			continue
		}
		n := v.NodeByName(m.Node)
		if set, _ := m.On(n.GPUs.Count); n.UsedBesides(set) != 0 {
			return true
		}
	}
	return false
}

// gap returns until when actions may have the members of a group that no turn has or wants
// now; 0: they may not. Within a reservation its job may come at any time. A deployment that
// is awake still has the memory of the GPUs.
func (p *turnPass) gap() int64 {
	if p.group.Awake != 0 {
		return 0
	}
	until := int64(math.MaxInt64)
	for _, r := range p.reserved {
		start, end := r.Start*p.slot, r.End*p.slot
		switch {
		case p.isDedicated(r) || start <= p.now && p.now < end:
			return 0
		case start > p.now:
			until = min(until, start)
		}
	}
	return until
}

// nextStart is when the next reservation begins, in log time; 0 if there is none.
func (p *turnPass) nextStart() (at int64) {
	for _, r := range p.reserved {
		if start := r.Start * p.slot; !p.isDedicated(r) && start > p.now && (at == 0 || start < at) {
			at = start
		}
	}
	return at
}

func (p *turnPass) isDedicated(r ledger.Reserved) bool {
	return p.view.Reservation(state.JobID(r.Job)).Dedicated
}

// atMost returns how long an action has some GPUs at most, in 95 of 100 cases, with its
// set-up; false if that is not known. What its client says and what its class has seen
// both count: the longer one. It is set up anew in the worst case.
func (d *demands) atMost(a *state.Action, units uint32) (int64, bool) {
	longest, known := int64(0), false
	if p := profileOf(a); p != nil && p.SingleNS > 0 {
		longest, known = d.duration(a, int32(units))
	}
	if work := d.workAtMost(a); work > 0 {
		dops, err := scale.Range(int32(units), int32(units))
		state.Assert(err == nil, "action %d: %v", a.ID, err)
		one, err := scale.Scaled(dops, curveFor(a), min(work, scale.DurationMax))
		state.Assert(err == nil, "the curve of action %d: %v", a.ID, err)
		ns, _ := one.Duration(int32(units))
		longest, known = max(longest, ns), true
	}
	return state.Saturated(longest, a.GPUs().SetUpNS), known
}

// workAtMost is how much work there is in 95 of 100 attempts of an action's class, at most; 0
// if that is not known.
func (d *demands) workAtMost(a *state.Action) int64 {
	if a.Class == 0 {
		return 0
	}
	c := d.view.Class(a.Class)
	if !WorkKnown(c) {
		return 0
	}
	return c.Lifetimes.Quantiles(gapPPM)[0]
}

// WorkKnown reports whether a class has seen enough to say how much work an action of it takes at
// most.
func WorkKnown(c *state.Class) bool {
	ended := uint64(0)
	for _, l := range c.Lifetimes {
		ended += l.Ended
	}
	return ended >= gapAttemptsMin*state.LifetimeUnit
}

// gapChunk is what a group has of the GPUs of a node, and until when actions may have it.
type gapChunk struct {
	set   state.GPUSet
	until int64
}

// gapsOn returns what belongs to groups of the GPUs of a node.
func gapsOn(v *state.State, n *state.Node) (gaps []gapChunk) {
	v.MembersOn(n, func(g *state.NodeGroup, m *state.Member, set state.GPUSet) {
		c := gapChunk{set: set, until: g.Members.GapUntil}
		if m.Lost != state.MemberThere {
			c.until = 0
		}
		gaps = append(gaps, c)
	})
	return gaps
}
