package late

import (
	"cmp"
	"slices"

	"rota/fsm/state"
)

// span is a time that is reserved for a job, in log time.
type span struct {
	job         state.JobID
	from, until int64
}

// reserved are the spans of a group from some cycles ago until some cycles ahead, by their starts.
// Dedicated says that a job has the group to itself, which has no spans.
func reserved(s *state.State, g *state.NodeGroup) (spans []span, dedicated bool) {
	slot := s.Meta().Settings.LedgerSlotNS
	now := s.Meta().Now / slot
	s.GroupJobs(g.ID, func(j *state.Job) bool {
		r := s.Reservation(j.ID)
		switch {
		case r == nil || r.Group != g.ID:
			return true
		case r.Dedicated:
			dedicated = true
			return true
		}
		// A group has one period, in which a job has a whole number of cycles.
		cycles := max(1, g.Period/r.Cycle.Period)
		zero := r.Anchor - g.Period*r.Index/cycles
		for k := max(r.Index, (now-zero)*cycles/g.Period-3); ; k++ {
			start := zero + g.Period*k/cycles
			for _, part := range r.Cycle.Segments {
				spans = append(spans, span{j.ID, (start + part.Offset) * slot, (start + part.Offset + part.Length) * slot})
			}
			if start > now+g.Period {
				return true
			}
		}
	})
	slices.SortFunc(spans, func(a, b span) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.job, b.job)) })
	return spans, dedicated
}

// next is when the next span begins; 0: there is none.
func next(spans []span, now int64) int64 {
	for _, x := range spans {
		if x.from > now {
			return x.from
		}
	}
	return 0
}

// due reports whether a turn waits whose reservation has begun and was not used: its job has not had the
// group since. Turns that are due because they would end within their reservation are left out, so what is
// found is certain.
func due(s *state.State, g *state.NodeGroup, spans []span) (is bool) {
	now := s.Meta().Now
	s.GroupJobs(g.ID, func(j *state.Job) bool {
		begun := int64(-1)
		for _, x := range spans {
			if x.job == j.ID && x.from <= now {
				begun = x.from
			}
		}
		if begun >= 0 && j.YieldedAt <= begun && j.Nodes <= g.Remaining() && s.HeldTurn(j.ID) == nil {
			is = is || waits(s, j.ID)
		}
		return !is
	})
	return is
}

// waits reports whether a job has a turn that waits.
func waits(s *state.State, job state.JobID) (is bool) {
	s.JobTurns(job, func(t *state.Turn) bool {
		is = is || t.State == state.TurnWaiting
		return !is
	})
	return is
}
