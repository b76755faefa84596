package sched

import (
	"fmt"
	"slices"

	"rota/fsm/state"
)

const (
	// How much of a backlog is looked at: servers, what they are busy with, and what waits.
	estimateServersMax = 16
	estimateHoldersMax = 320
	estimateWaitersMax = 192
	// estimateExaminedMax is after how much of it no further backlog is looked at for the
	// same question.
	estimateExaminedMax = 8 * (estimateHoldersMax + estimateWaitersMax)
	// Courses of events agree more than what really happens. Each draws its durations one by
	// one, so that sums of many differ little. But actions beside each other take similarly
	// long, and what arrives later passes some of them. That grows with the wait, so p90 has
	// this part more, in parts per million: what brought it to nine of ten in simulations
	// (docs/evaluation.md). The order of a quota is strict: nothing passes there.
	marginPPM, marginQuotaPPM = 250_000, 62_500
)

// StartEstimate says within which time from now an action starts in one of two cases and
// in most, in nanoseconds. P90NS is meant to hold in nine of ten; docs/evaluation.md says how
// often it did. If Unknown is not empty, it says why that is not known.
type StartEstimate struct {
	P50NS, P90NS int64
	Unknown      string
}

// Starts estimates when actions start. All that is looked at is remembered, so that many
// actions of one submission cost little more than one. See docs/scheduling.md, "When would
// it start?".
type Starts struct {
	lengths
	backlogs map[state.QueueKey]*backlog // for look-up only
	examined int
}

// NewStarts returns what estimates starts from a log time on, which may be later than that
// of the state. The state must not change meanwhile.
func NewStarts(v *state.State, now int64) *Starts {
	return &Starts{
		lengths:  lengths{demands: demands{view: v}, now: max(now, v.Meta().Now)},
		backlogs: make(map[state.QueueKey]*backlog),
	}
}

// EstimateStarts returns when each of some actions starts, from a log time on.
func EstimateStarts(v *state.State, actions []*state.Action, now int64) []StartEstimate {
	s, out := NewStarts(v, now), make([]StartEstimate, len(actions))
	for i, a := range actions {
		out[i] = s.Of(a)
	}
	return out
}

// queuesAsked bounds from how many queues EstimateRoom takes the first to start.
const queuesAsked = 16

// EstimateRoom returns how long it takes until some action has left its queue, in
// nanoseconds from a log time on; false if that is not known.
func EstimateRoom(v *state.State, now int64) (ns int64, known bool) {
	left := queuesAsked
	v.Queues(func(q state.Queue, _ int) bool {
		if _, aside := q.Beside(); aside {
			return true
		}
		v.Queued(q, 0, func(first state.ActionID) bool {
			e := NewStarts(v, now).Of(v.Action(first))
			if e.Unknown == "" && (!known || e.P50NS < ns) {
				ns, known = e.P50NS, true
			}
			return false
		})
		left--
		return left > 0
	})
	return ns, known
}

// Examined returns how many servers, attempts and actions were looked at.
func (s *Starts) Examined() int { return s.examined }

// Of returns when an action starts: at once if it has started.
func (s *Starts) Of(a *state.Action) StartEstimate {
	if a.State != state.ActionQueued {
		return StartEstimate{}
	}
	if why := s.hopeless(a); why != "" {
		return StartEstimate{Unknown: why}
	}
	starts, last, margin := times{}, (*backlog)(nil), uint64(0)
	for stage := *a; ; stage.QuotasHeld++ {
		if s.examined > estimateExaminedMax {
			return StartEstimate{Unknown: "too much waits for too many different things to look at all of it for one submission: ask for the action by itself"}
		}
		b := s.backlog(&stage, a)
		if b != nil {
			at := b.start(a.ID, unseen(b, a.ID))
			margin = max(margin, b.margin(a.ID))
			for k := range starts {
				starts[k] = max(starts[k], at[k])
			}
			if slices.Max(at[:]) >= never {
				last = b
			}
		}
		if _, waits := stage.Missing(); !waits {
			break
		}
	}
	slices.Sort(starts[:])
	if starts[drawOfP90] >= never {
		return StartEstimate{Unknown: because(last, a)}
	}
	p90 := uint64(starts[drawOfP90])
	return StartEstimate{P50NS: starts[draws/2], P90NS: int64(min(never-1, p90+state.MulDiv(p90, margin, million)))}
}

// margin is how much longer than in the courses of events an action may wait, in parts per
// million. Behind a single other the distribution of that one is all there is.
func (l *backlog) margin(id state.ActionID) uint64 {
	switch before, _ := l.find(id); {
	case len(l.holders)+before <= 1:
		return 0
	case l.quota != nil:
		return marginQuotaPPM
	}
	return marginPPM
}

// because says why a backlog is not known to come to an action.
func because(b *backlog, a *state.Action) string {
	switch unknown, of := b.unknown(a.ID); {
	case unknown == 0:
		return "nothing that runs gives back enough for it when it ends"
	case of == 1:
		return "it is not known how long the action takes that it waits for: give actions a class or a profile"
	default:
		return fmt.Sprintf("it is not known how long %d of %d actions take that run or wait before it: give actions a class or a profile", unknown, of)
	}
}

// unseen counts the older actions of a backlog that were not looked at.
func unseen(b *backlog, id state.ActionID) (n int) {
	for i := range b.parts {
		if p := &b.parts[i]; p.cut {
			n += max(0, p.ranks.Of(id)-p.seen*p.step) / p.step
		}
	}
	return n
}

// hopeless says why nothing is known of when an action starts, whatever runs and waits;
// empty if that is not so.
func (s *Starts) hopeless(a *state.Action) string {
	pool, node := s.view.Pool(a.Pool), (*state.Node)(nil)
	if a.Trajectory != 0 {
		node = s.view.Node(a.Node)
	}
	switch {
	case pool.Halted != "":
		return fmt.Sprintf("pool %q is halted until an operator resumes it", pool.Name)
	case a.Trajectory != 0 && node == nil:
		return fmt.Sprintf("its trajectory %d waits for a node, which it gets when others are closed", a.Trajectory)
	case ending(s.view, a):
		return fmt.Sprintf("its trajectory %d is being closed", a.Trajectory)
	case paused(s.view, a):
		return fmt.Sprintf("its trajectory %d is paused", a.Trajectory)
	case a.Gang != 0:
		return "it starts when all of its gang can"
	case a.Aside:
		return "nothing that is there could ever serve it"
	case node != nil && node.State != state.NodeUp:
		return fmt.Sprintf("node %s is down", node.Name)
	case node == nil && s.view.UsableNodes(a.Pool) == 0:
		return fmt.Sprintf("pool %q has no node that is up and not draining", pool.Name)
	}
	if a.Needs == nil {
		return ""
	}
	for _, use := range a.Needs.Quotas[a.QuotasHeld:] {
		switch q := s.view.Quota(use.Quota); {
		case q.Halted != "":
			return fmt.Sprintf("quota %s is halted until an operator resumes it", q.Name)
		case use.Units > q.Limit:
			return fmt.Sprintf("the limit of quota %s was lowered to %d, and it asks for %d", q.Name, q.Limit, use.Units)
		}
	}
	return ""
}
