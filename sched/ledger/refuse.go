package ledger

import "fmt"

// Reason is why a job was not placed, from what is wrong with a group to what is
// only wrong with what it has.
type Reason uint8

// Reasons, in the order in which a group is looked at: the later, the nearer it came.
const (
	NoGroups  Reason = iota
	Excluded         // the group was left out
	Narrow           // it has Have nodes, Limit are needed
	Promised         // it is kept for Job, which others have passed for long
	Occupied         // it has Have jobs, and one without is needed
	Dedicated        // it is Job's alone, whose cycle is not known
	Crowded          // it has Have jobs, at most Limit are allowed
	Waiting          // Job waits Have ppm of its time, at most Limit is allowed
	Period           // cycles do not fit its period: it would have to be Have to Limit slots
	Duty             // it would be held Have ppm of the time, at most Limit is allowed
	Window           // Limit slots are needed at once, and Have are free; or see Shift
	reasons
)

// Refusal says why no group takes a job, and what would have to change. It is about
// the group that came nearest.
type Refusal struct {
	Reason      Reason
	Group       GroupID
	Job         JobID
	Have, Limit int64
	// Shift is with which start shift it would fit, if the bound allowed it.
	Shift int64
	// Groups is how many groups were refused for each reason.
	Groups [reasons]int
}

// note keeps the refusal that came nearest.
func (r *Refusal) note(o Refusal) {
	groups := r.Groups
	groups[o.Reason]++
	if r.Group == 0 || o.Reason > r.Reason || o.Reason == r.Reason && o.far() < r.far() {
		*r = o
	}
	r.Groups = groups
}

// far compares refusals for the same reason.
func (r *Refusal) far() int64 {
	switch r.Reason {
	case Narrow, Window:
		return r.Limit - r.Have
	case Occupied, Crowded, Waiting, Duty:
		return r.Have
	}
	return 0
}

// Error is a sentence that says what to do.
func (r *Refusal) Error() string {
	switch r.Reason {
	case Excluded:
		return "none of the groups that may be used is left: allow others"
	case Narrow:
		return fmt.Sprintf("%d nodes are needed at once, and the widest group, %d, has %d: use fewer, or add a group", r.Limit, r.Group, r.Have)
	case Promised:
		return fmt.Sprintf("group %d takes nobody before job %d, which others have passed for long: wait for that, or add a group", r.Group, r.Job)
	case Occupied:
		return "no group is without jobs, and a job whose cycle is not known needs one for itself: add a group, or say what the cycle is"
	case Dedicated:
		return fmt.Sprintf("group %d is kept for job %d until its cycle is known: wait for that, or add a group", r.Group, r.Job)
	case Crowded:
		return fmt.Sprintf("group %d has %d jobs, and may have %d: add a group", r.Group, r.Have, r.Limit)
	case Waiting:
		return fmt.Sprintf("job %d of group %d waits %s of its time for its turns, and may wait %s: move it, or add a group", r.Job, r.Group, percent(r.Have), percent(r.Limit))
	case Period:
		return fmt.Sprintf("the cycle does not go with those on group %d: it would have to be %d to %d slots long; or allow more stretch", r.Group, r.Have, r.Limit)
	case Duty:
		return fmt.Sprintf("group %d would be held %s of the time, and may be held %s: shorten the segments, make the cycle longer, or add a group", r.Group, percent(r.Have), percent(r.Limit))
	case Window:
		return r.window()
	}
	return "there are no groups: add one"
}

func (r *Refusal) window() string {
	switch {
	case r.Shift > 0:
		return fmt.Sprintf("on group %d the job would have to start %d slots later, which is more than the largest shift: allow that, or be ready then", r.Group, r.Shift)
	case r.Have < r.Limit:
		return fmt.Sprintf("%d slots are needed at once, and group %d is never free for more than %d: split or shorten the longest segment, or add a group", r.Limit, r.Group, r.Have)
	}
	return fmt.Sprintf("the free windows of group %d do not lie as the segments do: move segments together, or add a group", r.Group)
}

// percent writes parts per million.
func percent(ppm int64) string {
	tenths := (ppm + 500) / 1000
	return fmt.Sprintf("%d.%d %%", tenths/10, tenths%10)
}

// wrongPeriod says which cycles would go with those of a group: a whole number of them
// in its period, or one in some of its periods.
func (s *search) wrongPeriod(g *group) Refusal {
	times, of := int64(1), (g.Period+s.Cycle.Period/2)/s.Cycle.Period
	of = min(max(1, of), s.config.CyclesMax)
	if s.Cycle.Period > g.Period {
		most := s.config.CyclesMax
		for i := range g.members {
			most = min(most, s.config.CyclesMax/cycles(g.Period, g.members[i].Cycle.Period))
		}
		times = min(max(1, (s.Cycle.Period+g.Period/2)/g.Period), most)
	}
	least := mulDivUp(times*g.Period, million, of*(million+s.config.StretchPPM))
	return Refusal{Reason: Period, Group: g.ID, Have: least, Limit: times * g.Period / of}
}

// noWindow says why no shift up to the limit fits.
func (s *search) noWindow(g *group, c *circle, limit int64) Refusal {
	r := Refusal{Reason: Window, Group: g.ID}
	for _, s := range s.Cycle.Segments {
		r.Limit = max(r.Limit, s.Length)
	}
	for i := range c.busy {
		r.Have = max(r.Have, c.gap(i))
	}
	if limit < c.period {
		if shift, _, ok := c.earliest(s.Cycle, 0, s.Ready, limit+1, c.period); ok {
			r.Shift = shift
		}
	}
	return r
}
