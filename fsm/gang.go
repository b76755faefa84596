package fsm

import (
	"fmt"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
	"rota/sched"
)

// A gang is some actions of one submission that start all in one entry or not at all, and of
// which none goes on when another did not succeed. Its first action waits for all.

// formGangs checks the gangs of a submission, whose members stand one after the other, and notes
// their sizes in the rows.
func (x *execution) formGangs(rows []state.Action, actions []*logv1.Action) *logv1.Result {
	for i := 0; i < len(actions); i++ {
		size := int(actions[i].GangSize)
		if size == 0 {
			if actions[i].GangSpread {
				return refuse(codeInvalidArgument, "INVALID", "action %d: gang_spread is for members of a gang; give gang_size too", i)
			}
			continue
		}
		if size > state.GangSizeMax || size > len(actions)-i {
			return refuse(codeInvalidArgument, "INVALID", "action %d: a gang has at most %d actions, all in one submission; it asks for %d, and %d follow", i, state.GangSizeMax, size, len(actions)-i)
		}
		for k := i; k < i+size; k++ {
			if r := joinGang(&rows[k], &rows[i], actions[k], actions[i]); r != nil {
				r.Refusal.Message = "action " + itoa(k) + ": " + r.Refusal.Message
				return r
			}
		}
		if r := x.gangSatisfiable(&rows[i]); r != nil {
			return r
		}
		if r := x.withinLimits(&rows[i]); r != nil {
			return r
		}
		i += size - 1
	}
	return nil
}

// joinGang notes in a row that it is of a gang, or says why it cannot be.
func joinGang(row, first *state.Action, a, of *logv1.Action) *logv1.Result {
	switch {
	case a.GangSize != of.GangSize || a.GangSpread != of.GangSpread:
		return refuse(codeInvalidArgument, "INVALID", "the actions of a gang stand one after the other, with the same gang_size of %d and gang_spread", of.GangSize)
	case row.Trajectory != 0 || row.Needs != nil && len(row.Needs.Quotas) > 0:
		return refuse(codeInvalidArgument, "INVALID", "an action of a gang cannot have a trajectory or quotas")
	case row.CoresMin != row.CoresMax || row.GPUs() != nil && len(row.GPUs().Degrees) != 1:
		return refuse(codeInvalidArgument, "INVALID", "an action of a gang asks for one number of cores and of GPUs; leave out max_cores and allowed_cores")
	case row.AttemptsMax != 1:
		return refuse(codeInvalidArgument, "INVALID", "a gang runs at most once; leave out the loss policy and max_attempts")
	case row.Pool != first.Pool || !sameDemand(row, first):
		return refuse(codeInvalidArgument, "INVALID", "the actions of a gang ask for the same pool, cores, memory, bandwidth and GPUs")
	}
	row.GangSize, row.GangSpread = a.GangSize, a.GangSpread
	return nil
}

// sameDemand reports whether two actions ask for the same of a node.
func sameDemand(a, b *state.Action) bool {
	if a.CoresMin != b.CoresMin || a.Memory != b.Memory || a.Bandwidth() != b.Bandwidth() || (a.GPUs() == nil) != (b.GPUs() == nil) {
		return false
	}
	g, h := a.GPUs(), b.GPUs()
	return g == nil || g.Class == h.Class && g.Degrees[0] == h.Degrees[0] && g.Memory == h.Memory
}

// gangSatisfiable refuses a gang that the nodes of its pool could never hold at once. A pool
// without nodes may still get them.
func (x *execution) gangSatisfiable(first *state.Action) *logv1.Result {
	members, known, _ := sched.GangHolds(x.s, first, false)
	if !known || members == int(first.GangSize) {
		return nil
	}
	how := ""
	if first.GangSpread {
		how = ", each on a node of its own"
	}
	return refuse(codeInvalidArgument, "UNSATISFIABLE", "the nodes of pool %q together could hold %d actions of the gang at once%s, and it has %d",
		x.s.Pool(first.Pool).Name, members, how, first.GangSize)
}

// numberGangs gives the rows of a submission, which have their IDs, the first actions of their
// gangs.
func numberGangs(rows []state.Action) {
	for i := 0; i < len(rows); i++ {
		for k := range int(rows[i].GangSize) {
			rows[i+k].Gang = rows[i].ID
		}
		i += max(1, int(rows[i].GangSize)) - 1
	}
}

// startGang starts all members of a gang, each after the one before it.
func (x *execution) startGang(d sched.Decision) {
	for _, a := range d.Passed {
		x.countBypass(a)
	}
	first := x.unreserveGang(d.Gang)
	members := x.s.QueuedGang(first)
	state.Assert(members != nil, "gang %d is started, and not all of its actions wait", first.ID)
	x.budget -= len(members)
	for _, s := range d.Shares {
		for _, a := range members[:s.Members] {
			x.grant(sched.GangStart(x.s, a, s.Node))
		}
		members = members[s.Members:]
	}
	state.Assert(len(members) == 0, "gang %d is started without %d of its actions", first.ID, len(members))
}

// reserveGang reserves nodes for a starved gang, each in the name of one of its members, even if
// they were reserved for younger ones. Without nodes its patience starts again.
func (x *execution) reserveGang(first *state.Action, shares []sched.GangShare) {
	if shares == nil {
		b := *first
		b.Bypassed, b.BlockedAt = 0, 0
		x.s.PutAction(&b)
		return
	}
	for i, s := range shares {
		x.reserveNode(x.s.Action(first.ID+state.ActionID(i)), x.s.Node(s.Node))
	}
	x.wakeGangs(first.Pool)
}

// unreserveGang gives up what is reserved for a gang, and returns the row of one of its members
// as it is then. The first member has a node reserved if any has.
func (x *execution) unreserveGang(a *state.Action) *state.Action {
	first := x.s.Action(a.Gang)
	if first == nil || first.ReservedOn == 0 {
		return a
	}
	for _, m := range x.gangMembers(a.Gang) {
		x.unreserveOne(m)
	}
	b := *x.s.Action(first.ID)
	b.Bypassed, b.BlockedAt = 0, 0
	x.s.PutAction(&b)
	return x.s.Action(a.ID)
}

func (x *execution) gangMembers(first state.ActionID) (members []*state.Action) {
	x.s.GangMembers(first, func(a *state.Action) bool {
		members = append(members, a)
		return true
	})
	return members
}

// gangMemberEnded has the others of a gang ended if a member did not succeed.
func (x *execution) gangMemberEnded(a *state.Action) {
	if a.Gang != 0 && a.State != state.ActionSucceeded && a.GangEndedBy == 0 {
		x.dirty.add(state.QueueOf(state.GangTeardown, a.Gang))
	}
}

// tearDownGang ends the other members of a gang of which one did not succeed, as far as the budget
// goes. It reports whether there are more.
func (x *execution) tearDownGang(first state.ActionID) (more bool) {
	members := x.gangMembers(first)
	x.budget -= 1 + len(members)/lossCost
	var cause *state.Action
	for _, a := range members {
		if a.State.Final() && a.State != state.ActionSucceeded && a.GangEndedBy == 0 && (cause == nil || a.Revision < cause.Revision) {
			cause = a
		}
	}
	if cause == nil { // it has been forgotten, as the pool was halted for so long
		return false
	}
	for _, a := range members {
		if a.State.Final() || a.CancelReason != 0 {
			continue
		}
		if x.budget < lossCost {
			return true
		}
		x.budget -= lossCost
		x.endWithGang(a, cause)
	}
	return false
}

// endWithGang ends a member because of another one: as that if it waited for too long.
func (x *execution) endWithGang(a, cause *state.Action) {
	b := *x.s.Action(a.ID) // as the end of the member before it left it
	b.GangEndedBy = cause.ID
	x.s.PutAction(&b)
	switch {
	case a.State == state.ActionRunning:
		x.stop(&b, state.EndGangEnded)
	case cause.Result.Reason == state.EndQueueTimeout:
		x.end(&b, state.ActionExpired, &state.Result{Reason: state.EndQueueTimeout})
	default:
		x.end(&b, state.ActionCanceled, &state.Result{Reason: state.EndGangEnded, Message: gangEndedText(&b)})
	}
}

// gangEndedText says for people which member an action was ended for.
func gangEndedText(a *state.Action) string {
	return fmt.Sprintf("action %d of its gang did not succeed", a.GangEndedBy)
}

// wakeGangs has the gangs looked at that wait for nodes of a pool.
func (x *execution) wakeGangs(pool state.PoolID) {
	if q := state.QueueOf(state.GangQueue, pool); x.s.QueueLen(q) > 0 {
		x.dirty.add(q)
	}
}

// gangPool returns the pool of a gang, 0 if none of its members is kept.
func (x *execution) gangPool(first state.ActionID) (pool state.PoolID) {
	x.s.GangMembers(first, func(a *state.Action) bool {
		pool = a.Pool
		return false
	})
	return pool
}
