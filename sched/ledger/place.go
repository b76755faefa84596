package ledger

import (
	"cmp"
	"fmt"
	"slices"
)

// Policy is how groups are ranked (§6.3).
type Policy uint8

// Spread takes the group that costs least, Pack the one that is held most, and
// Isolated shares none.
const (
	Spread Policy = iota
	Pack
	Isolated
)

// stretchSteps is in how many steps a period is stretched at most.
const stretchSteps = 16

// waitCycles is after how many cycles the time that a job waits says something.
const waitCycles = 8

// Request asks for a group for a job whose cycle is known (warm start).
type Request struct {
	Job   JobID
	Cycle Cycle
	// Ready is the slot from which on it could start.
	Ready  int64
	Policy Policy
	// Only is the group to look at, if not 0, and Not one to leave out.
	Only, Not GroupID
	// Settled leaves out groups without jobs.
	Settled bool
	// Promise is of a group that takes no other job, if there is one.
	Promise Promise
}

// Promise is of a group, to a job that others have passed for long enough. The group takes
// no other jobs, so the job gets it when those on it have ended, at the latest.
type Promise struct {
	Group GroupID // 0: none
	For   JobID
}

// Placement is the best fit of a job, and what it costs.
type Placement struct {
	Fit
	// Shift is the micro-shift: how long the first cycle waits.
	Shift int64
	// StretchPPM is by how much its cycles become longer.
	StretchPPM int64
	// Cost is equation 1 in ppm of a cycle, for all cycles of a horizon, and what
	// other jobs are stretched more than they were.
	Cost int64
	// InterferencePPM is how much of the period lies closer between the job and its
	// neighbours than operations vary.
	InterferencePPM int64
	Search          Search
}

// Search is how the shifts of all groups were dealt with. A scan would try each.
type Search struct {
	Shifts      int64 // as many as there are: ByBounds, ByIntervals and Tried
	ByBounds    int64 // of groups that cannot take the job, or cannot be better
	ByIntervals int64 // that meet the same interval as one that was tried
	Tried       int64
}

// rank orders placements, lower first.
type rank [6]int64

func (r rank) compare(o rank) int { return slices.Compare(r[:], o[:]) }

// search is one call of Place.
type search struct {
	*Ledger
	Request
	held    int64 // for how many slots of a cycle
	width   int64
	sum     Search
	best    Placement
	rank    rank
	found   bool
	nearest Refusal
	relief  int64       // what a group would cost less without any stretch
	periods []candidate // of a group
}

// candidate is a period that a group could have with the job.
type candidate struct {
	period int64
	cost   int64 // of the stretches
	cycles int64 // of all members in it: 1 each if all periods are alike
}

// Place finds the best group and the least shift for a job, or says what would have
// to change (a *Refusal). It changes nothing.
func (l *Ledger) Place(a Request) (Placement, error) {
	if err := a.Cycle.Validate(l.config.Slots); err != nil {
		return Placement{}, err
	}
	if a.Ready < l.head || a.Ready > l.end() {
		return Placement{}, fmt.Errorf("job %d is ready at slot %d, and the window is from %d to %d", a.Job, a.Ready, l.head, l.end())
	}
	s := search{Ledger: l, Request: a, held: a.Cycle.Held(), width: a.Cycle.Width()}
	// Groups without jobs first: what costs more than nothing need not be looked at.
	for _, empty := range []bool{true, false} {
		for _, g := range l.groups {
			if (len(g.members) == 0) == empty {
				s.look(g)
			}
		}
	}
	s.sum.ByIntervals = s.sum.Shifts - s.sum.ByBounds - s.sum.Tried
	s.best.Search = s.sum
	if !s.found {
		return s.best, &s.nearest
	}
	return s.best, nil
}

// limit returns the largest shift of a cycle.
func (s *search) limit(cycle int64) int64 { return cycle * s.config.ShiftPPM / million }

// look tries one group.
func (s *search) look(g *group) {
	tried := false
	if s.suited(g) && s.bound(g) {
		s.candidates(g)
		for _, c := range s.periods {
			if s.beaten(g, c) {
				break
			}
			s.try(g, c)
			tried = true
		}
	}
	if !tried {
		s.skip(s.Cycle.Period)
	}
}

// beaten reports whether a group that is to have this period cannot be the best.
func (s *search) beaten(g *group, c candidate) bool {
	return s.found && s.key(g, c, 0, 0).compare(s.rank) >= 0
}

// bound looks at what is better than any period of a group, where no job is
// stretched, and reports whether that could be the best.
func (s *search) bound(g *group) bool {
	s.relief = 0
	for i := range g.members {
		s.relief -= s.stretches(g.Period, g.members[i].Cycle.Period)
	}
	return !s.beaten(g, candidate{cost: s.relief, cycles: int64(len(g.members)) + 1})
}

// skip counts the shifts of a cycle that need not be looked at.
func (s *search) skip(cycle int64) {
	shifts := s.limit(cycle) + 1
	s.sum.Shifts += shifts
	s.sum.ByBounds += shifts
}

// suited reports whether a group may take the job at all.
func (s *search) suited(g *group) bool {
	switch {
	case g.Nodes < s.width:
		s.nearest.note(Refusal{Reason: Narrow, Group: g.ID, Have: g.Nodes, Limit: s.width})
	case s.Only != 0 && g.ID != s.Only || g.ID == s.Not:
		s.nearest.note(Refusal{Reason: Excluded, Group: g.ID})
	case s.Settled && len(g.members) == 0 || s.Policy == Isolated && len(g.members) > 0:
		s.nearest.note(Refusal{Reason: Excluded, Group: g.ID})
	case g.ID == s.Promise.Group:
		s.nearest.note(Refusal{Reason: Promised, Group: g.ID, Job: s.Promise.For})
	case g.dedicated():
		s.nearest.note(Refusal{Reason: Dedicated, Group: g.ID, Job: g.members[0].Job})
	case len(g.members) >= s.config.MembersMax:
		s.nearest.note(Refusal{Reason: Crowded, Group: g.ID, Have: int64(len(g.members)), Limit: int64(s.config.MembersMax)})
	default:
		return s.patient(g)
	}
	return false
}

// patient reports whether those on a group wait no longer than they should (§7.2).
func (s *search) patient(g *group) bool {
	for i := range g.members {
		r := &g.members[i]
		since := max(s.head-r.Began, waitCycles*r.Cycle.Period)
		if by := mulDivUp(r.Waited, million, since); by > s.config.WaitPPM {
			s.nearest.note(Refusal{Reason: Waiting, Group: g.ID, Job: r.Job, Have: by, Limit: s.config.WaitPPM})
			return false
		}
	}
	return true
}

// candidates finds the periods that stretch no job too much, the cheapest first. The
// cost is least where some member is not stretched; longer periods have more room.
func (s *search) candidates(g *group) {
	s.periods = s.periods[:0]
	if len(g.members) == 0 {
		s.candidate(g, s.Cycle.Period)
		return
	}
	s.candidate(g, g.Period)
	s.multiples(g, s.Cycle.Period)
	for i := range g.members {
		p := g.members[i].Cycle.Period
		known := p == s.Cycle.Period
		for k := range i {
			known = known || g.members[k].Cycle.Period == p
		}
		if !known {
			s.multiples(g, p)
		}
	}
	slices.SortFunc(s.periods, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.cost, b.cost), cmp.Compare(a.period, b.period))
	})
	s.periods = slices.Compact(s.periods)
	if len(s.periods) == 0 && !s.found {
		s.nearest.note(s.wrongPeriod(g))
	}
}

// multiples tries whole numbers of a cycle as periods, and what they may be
// stretched to: slot by slot for short ones, in steps for long ones.
func (s *search) multiples(g *group, period int64) {
	for k := int64(1); k <= s.config.CyclesMax && k*period <= s.config.Slots; k++ {
		most := min(k*period+k*period*s.config.StretchPPM/million, s.config.Slots)
		if s.hopeless(g, k*period, most) {
			continue
		}
		step := max(1, (most-k*period+stretchSteps-1)/stretchSteps)
		for p := k * period; p <= most; p += step {
			s.candidate(g, p)
		}
	}
}

// hopeless reports whether no period from one to another admits all members.
func (s *search) hopeless(g *group, least, most int64) bool {
	if s.excludes(s.Cycle.Period, least, most) {
		return true
	}
	for i := range g.members {
		if s.excludes(g.members[i].Cycle.Period, least, most) {
			return true
		}
	}
	return false
}

// excludes reports whether a whole number of cycles would have to be stretched too
// much for each period from one to another.
func (s *search) excludes(cycle, least, most int64) bool {
	n := most / cycle
	return n < 1 || least > n*cycle+n*cycle*s.config.StretchPPM/million
}

// candidate takes a period if it stretches no job too much. Not one of which half or
// a third would do: the members would be where they are in that.
func (s *search) candidate(g *group, period int64) {
	c, common := candidate{period: period, cost: s.relief}, int64(0)
	for i := range g.members {
		p := g.members[i].Cycle.Period
		if !s.admits(&c, p) {
			return
		}
		common = gcd(common, cycles(period, p))
	}
	if s.admits(&c, s.Cycle.Period) && gcd(common, cycles(period, s.Cycle.Period)) == 1 && !s.beaten(g, c) {
		s.periods = append(s.periods, c)
	}
}

func gcd(a, b int64) int64 {
	for b > 0 {
		a, b = b, a%b
	}
	return a
}

// admits adds a member to a candidate, unless it would be stretched too much.
func (s *search) admits(c *candidate, period int64) bool {
	n := cycles(c.period, period)
	if n < 1 || n > s.config.CyclesMax {
		return false
	}
	by := stretch(c.period, period)
	c.cost += s.config.EndWeight * by * (s.config.Slots / period)
	c.cycles += n
	return by <= s.config.StretchPPM
}

// stretches is the completion delay of all cycles in a horizon that a group's period
// makes. A shift delays but the first of them.
func (s *search) stretches(group, period int64) int64 {
	return s.config.EndWeight * stretch(group, period) * (s.config.Slots / period)
}

// try looks for the least shift in a group that is to have this period.
func (s *search) try(g *group, c candidate) {
	n := cycles(c.period, s.Cycle.Period)
	held := n * s.held
	for i := range g.members {
		held += cycles(c.period, g.members[i].Cycle.Period) * g.members[i].Cycle.Held()
	}
	if by := ppm(held, c.period); by > s.config.DutyPPM && len(g.members) > 0 {
		s.nearest.note(Refusal{Reason: Duty, Group: g.ID, Have: by, Limit: s.config.DutyPPM})
		s.skip(c.period / n)
		return
	}
	circle := &g.circle
	if c.period != g.Period {
		circle = &s.spare
		if !circle.layOut(c.period, g.under(c.period)) {
			s.nearest.note(Refusal{Reason: Window, Group: g.ID})
			s.skip(c.period / n)
			return
		}
	}
	limit := s.limit(c.period / n)
	shift, tried, ok := circle.earliest(s.Cycle, 0, s.Ready, 0, limit)
	s.sum.Shifts += limit + 1
	s.sum.Tried += tried
	if !ok {
		s.nearest.note(s.noWindow(g, circle, limit))
		return
	}
	interference := circle.interference(s.Cycle, s.Ready+shift, mulDivUp(c.period/n, s.config.MarginPPM, million))
	if r := s.key(g, c, shift, interference); !s.found || r.compare(s.rank) < 0 {
		s.found, s.rank = true, r
		s.best = Placement{
			Fit:             Fit{Job: s.Job, Group: g.ID, Cycle: s.Cycle, Anchor: s.Ready + shift, Period: c.period},
			Shift:           shift,
			StretchPPM:      stretch(c.period, s.Cycle.Period),
			Cost:            s.cost(c, shift),
			InterferencePPM: interference,
		}
	}
}

// cost is equation 1 for all cycles of a horizon: their ends are put off by what they
// are stretched, and the first start and its end by the shift. The stretch of others
// counts too.
func (s *search) cost(c candidate, shift int64) int64 {
	return c.cost + (s.config.EndWeight+s.config.StartWeight)*ppm(shift, s.Cycle.Period)
}

// key ranks a placement. Without shift and interference nothing ranks lower.
func (s *search) key(g *group, c candidate, shift, interference int64) rank {
	cost, wide, id := s.cost(c, shift), g.Nodes-s.width, int64(g.ID)
	held := int64(0)
	if g.Period > 0 {
		held = g.circle.held() * million / g.Period
	}
	switch s.Policy {
	case Pack:
		return rank{-held, cost, interference, wide, c.cycles, id}
	case Isolated:
		return rank{wide, cost, id}
	}
	return rank{cost, interference, wide, c.cycles, held, id}
}

// interference returns how much closer than a margin a job that fits would be to its
// neighbours, in ppm of the period: where they come close, each delays the other as
// soon as an operation takes longer.
func (c *circle) interference(cycle Cycle, t, margin int64) int64 {
	if len(c.busy) == 0 {
		return 0
	}
	n, sum := cycles(c.period, cycle.Period), int64(0)
	for k := range n {
		start := t + begins(c.period, k, n)
		for _, s := range cycle.Segments {
			x := mod(start+s.Offset, c.period)
			before, behind := c.neighbours(x)
			sum += max(0, margin-(x-before.end)) + max(0, margin-(behind.start-x-s.Length))
		}
	}
	return ppm(sum, c.period)
}

// PlaceCold finds a group for a job whose cycle is not known: one without jobs, the
// narrowest that suffices (cold start).
func (l *Ledger) PlaceCold(job JobID, nodes, ready int64) (Fit, error) {
	var best *group
	var nearest Refusal
	for _, g := range l.groups {
		switch {
		case g.Nodes < nodes:
			nearest.note(Refusal{Reason: Narrow, Group: g.ID, Have: g.Nodes, Limit: nodes})
		case len(g.members) > 0:
			nearest.note(Refusal{Reason: Occupied, Group: g.ID, Have: int64(len(g.members))})
		case best == nil || g.Nodes < best.Nodes:
			best = g
		}
	}
	if best == nil {
		return Fit{}, &nearest
	}
	return Fit{Job: job, Group: best.ID, Dedicated: true, Anchor: ready, Period: 1}, nil
}
