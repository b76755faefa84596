package check

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"rota/fsm/state"
	"rota/jepsen/history"
)

// turns: by what their holders believed, each on a clock of its own but all on one
// machine, no node group has two holders at once, nor does a job hold two groups. On a
// group tokens grow, and turns of a deployment are held in the order in which they were
// asked for. Holdings are those that the log grants, their holders hear which members their
// groups lack, and every turn that was
// acknowledged has ended in the end, as yielded if its holder was told so. Then nothing
// is reserved any more. By the log, turns are late because of actions only by what these overran, and all
// of that is counted.
//
// A holder has it from when it heard of that until it last looked; so it need not be
// told that it was late, only not to be.
func turns(e *evidence, f *findings) {
	f.checked = len(e.Holdings)
	for _, kind := range []struct {
		what string
		of   func(history.Holding) string
	}{
		{"node group", func(h history.Holding) string { return h.Group }},
		{"job", func(h history.Holding) string { return jobOf(h.Deployment) }},
		{"deployment", func(h history.Holding) string { return h.Deployment }},
	} {
		held := make(map[string][]history.Holding)
		for _, h := range e.Holdings {
			held[kind.of(h)] = append(held[kind.of(h)], h)
		}
		for _, name := range slices.Sorted(maps.Keys(held)) {
			list := held[name]
			slices.SortStableFunc(list, func(a, b history.Holding) int { return cmp.Compare(a.Start, b.Start) })
			oneAtATime(kind.what+" "+name, list, f)
			tokensGrow(kind.what+" "+name, list, kind.what == "deployment", f)
		}
	}
	grantedTurns(e, f)
	endedTurns(e, f)
	toldOfLosses(e, f)
	nothingReserved(e, f)
	if t, _ := e.whole(f); t.late != "" {
		f.add(nil, "%s", t.late)
	}
}

func jobOf(deployment string) string {
	job, _, _ := strings.Cut(deployment, "/")
	return job
}

// oneAtATime finds holdings that overlap.
func oneAtATime(what string, list []history.Holding, f *findings) {
	holder := list[0] // who has it longest
	for _, h := range list[1:] {
		if h.Start < holder.End {
			f.add(describeHoldings(holder, h), "%s has two holders at %s", what, at(h.Start))
		}
		if h.End > holder.End {
			holder = h
		}
	}
}

// tokensGrow: tokens grow from one holding to the next, and so do turns of a deployment.
func tokensGrow(what string, list []history.Holding, numbered bool, f *findings) {
	for i := 1; i < len(list); i++ {
		a, b := list[i-1], list[i]
		switch {
		case b.Token <= a.Token:
			f.add(describeHoldings(a, b), "the token of %s does not grow at %s", what, at(b.Start))
		case numbered && b.Turn <= a.Turn:
			f.add(describeHoldings(a, b), "turns of %s are not held in the order in which they were asked for", what)
		}
	}
}

// turnGrant is how a turn stands by the log, and what it was granted, if anything.
type turnGrant struct {
	group, deployment string
	token             uint64
	state             string
	// gpus are those of the members that it was granted; lost members are not among them. It
	// has them until its end, also if their node is lost and comes back meanwhile.
	gpus []place
	// lacked are the nodes of which its group lacked members at any time while it was held.
	lacked map[string]bool
}

// grantedTurns: the log has a grant for each holding.
func grantedTurns(e *evidence, f *findings) {
	t, whole := e.whole(f)
	if !whole {
		return
	}
	for _, h := range e.Holdings {
		switch g := t.turns[h.Turn]; {
		case g.token == 0:
			f.add(describeHoldings(h), "turn %d was held and never granted", h.Turn)
		case g.token != h.Token || g.group != h.Group || g.deployment != h.Deployment:
			f.add(describeHoldings(h), "turn %d was granted to %s on %s with token %d", h.Turn, g.deployment, g.group, g.token)
		}
	}
}

// endedTurns: turns that were acknowledged have come to their end.
func endedTurns(e *evidence, f *findings) {
	if e.Healing.Settled == 0 {
		return // the run was broken off, and nobody looked
	}
	in := make(map[uint64]history.Turn, len(e.Turns))
	log, whole := e.whole(f)
	for _, t := range e.Turns {
		in[t.ID] = t
		if !turnOver(t.State) {
			f.add([]string{describeTurn(t)}, "turn %d never ended", t.ID)
		}
		if g := log.turns[t.ID]; whole && (g.state != t.State || g.token != t.Token) {
			f.add([]string{describeTurn(t)}, "turn %d is %s with token %d in the end, by the log it is %s with token %d", t.ID, t.State, t.Token, g.state, g.token)
		}
	}
	for _, op := range e.Ops {
		if op.Verb != history.Acquire || op.Outcome != history.OK {
			continue
		}
		for _, id := range op.IDs {
			if _, there := in[id]; !there && !e.turnMayBeDropped(id) {
				f.add(describeOps(op), "turn %d was acknowledged and is lost", id)
			}
		}
	}
	for _, h := range e.Holdings {
		if t, there := in[h.Turn]; there && h.Yielded && t.State != "YIELDED" {
			f.add([]string{describeHolding(h), describeTurn(t)}, "turn %d was yielded, as its holder was told, and is %s in the end", h.Turn, t.State)
		}
	}
}

// turnMayBeDropped is mayBeDropped for a turn.
func (e *evidence) turnMayBeDropped(id uint64) bool {
	if t := e.truth(); t.complete {
		return turnOver(t.turns[id].state) && t.last.Turn(state.TurnID(id)) == nil
	}
	return e.Duration > int64(retention)
}

func turnOver(state string) bool {
	return state == "YIELDED" || state == "LOST" || state == "CANCELED"
}

// nothingReserved: when all jobs are gone, so is what was reserved for them. That they
// are gone is for recovery to say.
func nothingReserved(e *evidence, f *findings) {
	t, whole := e.whole(f)
	if !whole || e.Healing.Settled == 0 || t.last.JobCount() > 0 {
		return
	}
	t.last.Reservations(func(r *state.Reservation) bool {
		f.add(nil, "group %d is reserved in the end for job %d, which is gone", r.Group, r.Job)
		return true
	})
	t.last.LiveTurns(func(turn *state.Turn) bool {
		f.add(nil, "turn %d is live in the end, and its job is gone", turn.ID)
		return true
	})
	t.last.NodeGroups(func(g *state.NodeGroup) bool {
		if g.Turn != 0 || g.Period != 0 || g.Halted != "" {
			f.add(nil, "node group %s is held in the end by turn %d, has a period of %d slots %s", g.Name, g.Turn, g.Period, g.Halted)
		}
		return true
	})
}

// learnTurn notes what the log does to a turn.
func (r *replayer) learnTurn(s *state.State, id state.TurnID) {
	t := s.Turn(id)
	if t == nil {
		return // dropped in the same entry
	}
	g := r.turns[uint64(id)]
	g.state, g.token = turnStateName(t.State), t.Token
	job, i := t.Deployment.Job()
	if j := s.Job(job); j != nil && i < len(j.Deployments) {
		g.deployment = fmt.Sprintf("%s/%s", j.Name, j.Deployments[i].Name)
	}
	if group := s.NodeGroup(t.Group); group != nil {
		if g.group = group.Name; group.Turn == t.ID && g.gpus == nil {
			g.gpus = gpusOfMembers(s, group)
		}
		if group.Turn == t.ID {
			g.learnLacks(group)
		}
	}
	r.turns[uint64(id)] = g
}

// gpusOfMembers are those that a group has for its turn.
func gpusOfMembers(s *state.State, group *state.NodeGroup) (gpus []place) {
	gpus = []place{}
	for i := range group.Members.List {
		m := &group.Members.List[i]
		n := s.NodeByName(m.Node)
		if !m.Withheld || n == nil {
			continue
		}
		set, _ := m.On(n.GPUs.Count)
		for _, gpu := range set.Slice() {
			gpus = append(gpus, place{m.Node, int(gpu)})
		}
	}
	return gpus
}

func describeHolding(h history.Holding) string {
	how := "ended otherwise"
	if h.Yielded {
		how = "yielded"
	}
	return fmt.Sprintf("%s to %s: client %d holds %s for %s: turn %d, token %d, %s", at(h.Start), at(h.End), h.Client, h.Group, h.Deployment, h.Turn, h.Token, how)
}

func describeHoldings(list ...history.Holding) (lines []string) {
	for _, h := range list {
		lines = append(lines, describeHolding(h))
	}
	return lines
}

func describeTurn(t history.Turn) string {
	return fmt.Sprintf("in the end: turn %d %s, token %d", t.ID, t.State, t.Token)
}
