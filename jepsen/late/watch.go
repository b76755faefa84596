package late

import (
	"fmt"
	"slices"

	"rota/fsm/state"
)

// Watch follows the groups of a log.
type Watch struct {
	// Gaps counts the actions that started on members of a group between its turns, Overruns those that
	// still ran when a reservation began, and LateNS for how long turns certainly waited for actions after
	// their reservation had begun.
	Gaps, Overruns int
	LateNS         int64

	groups map[state.GroupID]*group
}

// attempt is an attempt of an action.
type attempt struct {
	action state.ActionID
	number uint32
}

// group is what is known of a group after an entry.
type group struct {
	members []state.Member
	now     int64
	spans   []span
	// running are the attempts on members, settled says that the group had nothing left to be looked at
	// for, free that neither a turn nor hooks had it, nor was it halted.
	running       map[attempt]bool
	settled, free bool
	// dedicated: a job has the group to itself.
	dedicated bool
	overruns  uint64
	// late says that a turn certainly waits for actions after its reservation has begun, waits that any
	// turn waits for them. The group counted so much when it came into view, and least and most is what
	// turns waited since.
	late, waits          bool
	counted, least, most int64
}

// New returns a watch that has seen nothing.
func New() *Watch { return &Watch{groups: map[state.GroupID]*group{}} }

// Step looks at the state after the next entry. It fails with what breaks the promise.
func (w *Watch) Step(s *state.State) (err error) {
	s.NodeGroups(func(g *state.NodeGroup) bool {
		if len(g.Members.List) == 0 {
			delete(w.groups, g.ID)
			return true
		}
		err = w.look(s, g)
		return err == nil
	})
	return err
}

func (w *Watch) look(s *state.State, g *state.NodeGroup) error {
	now := s.Meta().Now
	spans, dedicated := reserved(s, g)
	starts := attempts(s, g)
	was := w.groups[g.ID]
	is := &group{
		members: g.Members.List, now: now, spans: spans, running: map[attempt]bool{}, overruns: g.Members.Overruns,
		settled: !s.HasWork(), free: !g.Taken() && g.Halted == "", dedicated: dedicated, counted: counted(g, now),
	}
	for a := range starts {
		is.running[a] = true
	}
	w.groups[g.ID] = is
	is.waits = len(starts) > 0 && !g.Taken() && anyWaits(s, g)
	is.late = is.waits && is.settled && is.free && !dedicated && due(s, g, spans)
	if was == nil || now < was.now || is.counted < was.counted || !slices.EqualFunc(was.members, is.members, sameMember) {
		return nil // it has come into view
	}
	if err := w.judgeOverruns(g, was, is); err != nil {
		return err
	}
	if err := w.judgeLate(g, was, is); err != nil {
		return err
	}
	return w.judgeStarts(s, g, was, is, starts)
}

func sameMember(a, b state.Member) bool { return a.Same(b) }

func anyWaits(s *state.State, g *state.NodeGroup) (is bool) {
	s.GroupJobs(g.ID, func(j *state.Job) bool {
		is = waits(s, j.ID)
		return !is
	})
	return is
}

// counted is how late a group says that turns were, with the wait that has not ended.
func counted(g *state.NodeGroup, now int64) int64 {
	if g.Members.Waits == state.DueWaits {
		return g.Members.LateNS + now - g.Members.WaitsSince
	}
	return g.Members.LateNS
}

// attempts are those on members that the group does not lack, with their rows.
func attempts(s *state.State, g *state.NodeGroup) map[attempt]*state.Attempt {
	all := map[attempt]*state.Attempt{}
	for i := range g.Members.List {
		m := &g.Members.List[i]
		n := s.NodeByName(m.Node)
		if m.Lost != state.MemberThere || n == nil {
			continue
		}
		set, _ := m.On(n.GPUs.Count)
		s.Attempts(n.ID, func(t *state.Attempt) bool {
			if t.Chunk.GPUs()&set != 0 {
				all[attempt{t.Action, t.Number}] = t
			}
			return true
		})
	}
	return all
}

// judgeOverruns: actions that still run when a reservation begins are counted.
func (w *Watch) judgeOverruns(g *state.NodeGroup, was, is *group) error {
	grown := is.overruns - was.overruns
	start := next(was.spans, was.now)
	if start == 0 || start > is.now {
		if grown > 0 && was.settled {
			return fmt.Errorf("group %s counts %d more overruns, and none of its reservations has begun from %d to %d", g.Name, grown, was.now, is.now)
		}
		return nil
	}
	w.Overruns += int(grown)
	if !was.settled || !was.free || g.WakeAt != 0 && g.WakeAt <= is.now {
		return nil
	}
	still := 0
	for a := range was.running {
		if is.running[a] {
			still++
		}
	}
	if uint64(still) > grown {
		return fmt.Errorf("a reservation of group %s begins at %d, and %d actions still run on its members: it counts %d more overruns", g.Name, start, still, grown)
	}
	return nil
}

// judgeLate: what turns wait for actions after their reservation has begun is counted, and nothing else is.
func (w *Watch) judgeLate(g *state.NodeGroup, was, is *group) error {
	is.counted, is.least, is.most = was.counted, was.least, was.most
	if was.late {
		is.least += is.now - was.now
		w.LateNS += is.now - was.now
	}
	if was.waits {
		is.most += is.now - was.now
	}
	if got := counted(g, is.now) - is.counted; is.settled && (got < is.least || got > is.most) {
		return fmt.Errorf("group %s counts %d ns for which turns were late because of actions, must be %d to %d", g.Name, got, is.least, is.most)
	}
	return nil
}

// judgeStarts: an action that starts on members ends before the next reservation, by what its client says
// of its duration. What moved in the same entry may have moved after the start.
func (w *Watch) judgeStarts(s *state.State, g *state.NodeGroup, was, is *group, starts map[attempt]*state.Attempt) error {
	moved := !slices.Equal(was.spans, is.spans) && changed(was.spans, is.spans, is.now)
	for a, t := range starts {
		if was.running[a] || t.StartedAt != is.now {
			continue
		}
		w.Gaps++
		least := is.now + atLeast(s.Action(a.action), t.Chunk.Units)
		for _, x := range is.spans {
			if !moved && x.until > is.now && x.from < least {
				return fmt.Errorf("action %d starts on members of group %s at %d and ends at %d at the earliest, and they are reserved for job %d from %d until %d",
					a.action, g.Name, is.now, least, x.job, x.from, x.until)
			}
		}
		if was.dedicated && is.dedicated && !moved {
			return fmt.Errorf("action %d starts on members of group %s, which a job has to itself", a.action, g.Name)
		}
	}
	return nil
}

// changed reports whether what is reserved from now on differs: by when, or by a job that had nothing.
func changed(was, is []span, now int64) bool {
	last, had := int64(0), map[state.JobID]bool{}
	for _, x := range was {
		last, had[x.job] = max(last, x.from), true
	}
	if slices.ContainsFunc(is, func(x span) bool { return x.until > now && !had[x.job] }) {
		return true
	}
	ahead := func(spans []span) (some []span) {
		for _, x := range spans {
			if x.until > now && x.from <= last {
				some = append(some, x)
			}
		}
		return some
	}
	return !slices.Equal(ahead(was), ahead(is))
}

// atLeast is how long an action certainly takes by what its client says: its set-up, and its duration where
// that is given by Amdahl's law. A hundredth less, as the state machine counts in integers.
func atLeast(a *state.Action, units uint32) int64 {
	ns := a.GPUs().SetUpNS
	if p := a.Needs.Profile; p != nil && p.Serial {
		serial := float64(p.SerialPPM) / 1e6
		ns += int64(0.99 * float64(p.SingleNS) * (serial + (1-serial)/float64(units)))
	}
	return ns
}
