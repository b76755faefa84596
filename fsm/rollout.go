package fsm

import (
	"slices"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// rolloutVerb carries out a command about policies, rollouts and samples; nil if it is about
// something else.
func (x *execution) rolloutVerb(c *logv1.Command) *logv1.Result {
	switch v := c.Verb.(type) {
	case *logv1.Command_CreateRollout:
		return x.createRollout(v.CreateRollout)
	case *logv1.Command_CloseRollout:
		return x.closeRollout(v.CloseRollout)
	case *logv1.Command_PutSample:
		return x.putSample(v.PutSample)
	case *logv1.Command_TakeBatch:
		return x.takeBatch(v.TakeBatch)
	case *logv1.Command_PublishVersion:
		return x.publishVersion(v.PublishVersion)
	case *logv1.Command_SuspendPolicy:
		return x.suspendPolicy(v.SuspendPolicy)
	case *logv1.Command_DeletePolicy:
		return x.deletePolicy(v.DeletePolicy)
	}
	return nil
}

// isRollouts reports whether a command is about policies, rollouts or samples. They came with
// one feature level.
func isRollouts(c *logv1.Command) bool {
	return c.GetCreateRollout() != nil || c.GetCloseRollout() != nil || c.GetPutSample() != nil || c.GetTakeBatch() != nil ||
		c.GetPublishVersion() != nil || c.GetSuspendPolicy() != nil || c.GetDeletePolicy() != nil || c.GetOpenTrajectory().GetRollout() != nil
}

// createRollout declares groups, for which trajectories are opened then.
func (x *execution) createRollout(c *logv1.CreateRollout) *logv1.Result {
	if r := x.replay(c.Request, x.named(c.Namespace), state.VerbCreateRollout, 1); r != nil {
		return r
	}
	ns, r := x.namespace(c.Namespace)
	if r != nil {
		return r
	}
	row := &state.Rollout{
		Namespace: ns.ID, Name: c.Name, Policy: c.Policy, Groups: c.Groups, Samples: c.SamplesPerGroup,
		Redundant: c.Redundant, Staleness: c.Staleness, State: state.RolloutOpen, CreatedAt: x.now(),
	}
	if r := x.mayCreate(row); r != nil {
		return r
	}
	if _, r := x.claim(c.Policy, ns, c.PolicyOwner); r != nil {
		return r
	}
	m := *x.s.Meta()
	m.LastRollout++
	x.s.SetMeta(m)
	row.ID = m.LastRollout
	x.s.PutRollout(row)
	x.remember(c.Request, ns, state.VerbCreateRollout, uint64(row.ID), 1)
	return &logv1.Result{FirstId: uint64(row.ID), Count: 1}
}

// mayCreate refuses a rollout that cannot be, and one too many.
func (x *execution) mayCreate(r *state.Rollout) *logv1.Result {
	switch {
	case len(r.Name) > nameBytesMax:
		return refuse(codeInvalidArgument, "INVALID", "the name of a rollout must be at most %d bytes", nameBytesMax)
	case r.Groups == 0 || r.Groups > state.RolloutGroupsMax:
		return refuse(codeInvalidArgument, "INVALID", "a rollout must have 1 to %d groups, not %d", state.RolloutGroupsMax, r.Groups)
	case r.Samples == 0 || r.Samples > state.GroupSamplesMax || r.Redundant > state.GroupSamplesMax:
		return refuse(codeInvalidArgument, "INVALID", "a group must have 1 to %d samples and at most %d redundant trajectories, not %d and %d",
			state.GroupSamplesMax, state.GroupSamplesMax, r.Samples, r.Redundant)
	case r.Places() > state.RolloutPlacesMax:
		return refuse(codeInvalidArgument, "INVALID", "the groups of the rollout have places for %d trajectories, at most %d are allowed; divide it into several", r.Places(), state.RolloutPlacesMax)
	case !x.mayHaveMore(state.RolloutPlacesMax, int(r.Places())-1, func() int { return int(r.Places()) - 1 }): // not even alone
		return refuse(codeInvalidArgument, "INVALID", "the groups of the rollout have places for %d trajectories; where there are several namespaces, at most half of all %d are allowed; divide it into several", r.Places(), state.RolloutPlacesMax)
	}
	if n := x.s.RolloutTotals(); n.Live >= state.RolloutsMax || n.LivePlaces+r.Places() > state.RolloutPlacesMax {
		return retryAfter(refuse(codeResourceExhausted, "TOO_MANY_ROLLOUTS",
			"%d rollouts have not ended, with places for %d trajectories (limits: %d and %d); close those that are no longer needed, or take their batches",
			n.Live, n.LivePlaces, state.RolloutsMax, state.RolloutPlacesMax), 1_000_000_000)
	}
	return x.leavesRollouts(r)
}

// leavesRollouts refuses a rollout with which its namespace would have more rollouts or places than are
// left for the others.
func (x *execution) leavesRollouts(r *state.Rollout) *logv1.Result {
	n, more := x.s.RolloutTotals(), int(r.Places())-1
	if x.mayHaveMore(state.RolloutsMax, n.Live, func() int { live, _ := x.s.LiveRollouts(r.Namespace); return live }) &&
		x.mayHaveMore(state.RolloutPlacesMax, int(n.LivePlaces)+more, func() int { _, places := x.s.LiveRollouts(r.Namespace); return places + more }) {
		return nil
	}
	live, places := x.s.LiveRollouts(r.Namespace)
	return retryAfter(refuse(codeResourceExhausted, "TOO_MANY_ROLLOUTS",
		"%d rollouts of namespace %q have not ended, with places for %d trajectories, and with this one it would have more than are left for other namespaces (%d and %d for all); close those that are no longer needed, take their batches, or divide the rollout",
		live, x.s.Namespace(r.Namespace).Name, places, state.RolloutsMax, state.RolloutPlacesMax), 1_000_000_000)
}

// closeRollout has the members closed that have made no sample, by the work list. Closing one
// that is closing already changes nothing, unless its review had failed: it is tried again.
func (x *execution) closeRollout(c *logv1.CloseRollout) *logv1.Result {
	r := x.s.Rollout(state.RolloutID(c.Id))
	switch {
	case r == nil:
		return refuse(codeNotFound, "ROLLOUT_NOT_FOUND", "rollout %d does not exist, or ended too long ago to be kept", c.Id)
	case r.State == state.RolloutClosed, r.State == state.RolloutClosing && r.Halted == "":
		return &logv1.Result{FirstId: c.Id}
	}
	u := *r
	u.State, u.Halted = state.RolloutClosing, ""
	x.s.PutRollout(&u)
	x.reviewLater(r.ID)
	return &logv1.Result{FirstId: c.Id, Count: 1}
}

// reviewLater has all groups of a rollout looked at, from the first on.
func (x *execution) reviewLater(id state.RolloutID) {
	q := state.QueueOf(state.RolloutReview, id)
	if x.s.WorkLeft(q) {
		x.s.PutWorkAfter(q, 0)
	}
	x.dirty.add(q)
}

// inReview reports whether there are groups of a rollout that have yet to be looked at, since it
// was closed or a version was published.
func (x *execution) inReview(id state.RolloutID) bool {
	q := state.QueueOf(state.RolloutReview, id)
	return x.dirty.has(q) || x.s.WorkLeft(q)
}

// reviewRollout closes members and drops samples that are too old, and drops what is left of a
// rollout that was closed. It reports whether the budget ended before the groups.
func (x *execution) reviewRollout(q state.Queue) (more bool) {
	id := state.RolloutID(q.ID)
	from := uint32(x.s.WorkAfter(q))
	for x.budget > 0 {
		r := x.s.Rollout(id)
		if r == nil || r.State == state.RolloutClosed {
			return false
		}
		var next *state.RolloutGroup
		x.s.RolloutGroups(id, from, func(g *state.RolloutGroup) bool {
			next = g
			return false
		})
		if next == nil {
			x.settleRollout(id)
			x.policiesChanged = true
			return false
		}
		e := x.editGroup(r, next.Key)
		e.review()
		e.store()
		x.budget--
		from = next.Key.Index() + 1
	}
	x.s.PutWorkAfter(q, uint64(from))
	return true
}

// settleRollout ends a rollout whose groups were each given to a step or dropped.
func (x *execution) settleRollout(id state.RolloutID) {
	r := x.s.Rollout(id)
	if r.State == state.RolloutOpen && r.Counts.Delivered < r.Groups || r.State == state.RolloutClosing && r.Counts.Complete > 0 || r.State == state.RolloutClosed {
		return
	}
	u := *r
	u.State, u.EndedAt = state.RolloutClosed, x.now()
	x.s.PutRollout(&u)
}

// forgetGroup forgets a group of a rollout that has ended, or the rollout if it has none left.
func (x *execution) forgetGroup(id state.RolloutID) {
	var key *state.GroupKey
	x.s.RolloutGroups(id, 0, func(g *state.RolloutGroup) bool {
		key = &g.Key
		return false
	})
	if key == nil {
		x.s.DeleteRollout(id)
		return
	}
	x.s.DeleteRolloutGroup(*key)
}

// placeInGroup finds the group that a trajectory is opened for; nil if it is for none.
func (x *execution) placeInGroup(ns state.NamespaceID, c *logv1.RolloutMembership) (*groupEdit, *logv1.Result) {
	if c == nil {
		return nil, nil
	}
	r := x.s.Rollout(state.RolloutID(c.RolloutId))
	switch {
	case r == nil || r.Namespace != ns:
		return nil, refuse(codeNotFound, "ROLLOUT_NOT_FOUND", "rollout %d does not exist in this namespace, or ended too long ago to be kept", c.RolloutId)
	case r.State != state.RolloutOpen:
		return nil, refuse(codeFailedPrecondition, "ROLLOUT_CLOSED", "rollout %d is closed and takes no further trajectories; create another one", c.RolloutId)
	case c.Group >= r.Groups:
		return nil, refuse(codeInvalidArgument, "INVALID", "rollout %d has groups 0 to %d, and %d is none of them", c.RolloutId, r.Groups-1, c.Group)
	}
	e := x.editGroup(r, state.KeyOfGroup(r.ID, c.Group))
	e.review()
	switch held := e.g.Held(); {
	case e.g.Complete:
		return nil, refuse(codeFailedPrecondition, "GROUP_COMPLETE", "group %d of rollout %d has its %d samples; open trajectories for other groups", c.Group, c.RolloutId, r.Samples)
	case held >= r.Samples+r.Redundant:
		return nil, refuse(codeFailedPrecondition, "GROUP_FULL", "group %d of rollout %d has %d trajectories that run or made a sample, which is the limit; a place is free again when one fails", c.Group, c.RolloutId, held)
	}
	return e, nil
}

// leaveRollout gives back the place of a trajectory that ends without a sample.
func (x *execution) leaveRollout(t *state.Trajectory) {
	if t.Rollout == 0 {
		return
	}
	g := x.s.RolloutGroup(t.GroupKey())
	if g == nil {
		return
	}
	if m := g.Member(t.ID); m == nil || m.State != state.MemberRunning {
		return
	}
	e := x.editGroup(x.s.Rollout(t.Rollout), g.Key)
	e.move(t.ID, state.MemberFailed)
	e.store()
}

// groupEdit is a change of a group and its rollout. Nothing is done before it is stored.
type groupEdit struct {
	x       *execution
	r       state.Rollout
	g       state.RolloutGroup
	current uint64 // version of the policy
	closing []state.TrajectoryID
	dropped []state.TrajectoryID // whose samples are dropped
	changed bool
}

// editGroup begins a change of a group.
func (x *execution) editGroup(r *state.Rollout, k state.GroupKey) *groupEdit {
	e := &groupEdit{x: x, r: *r, g: state.RolloutGroup{Key: k}, current: x.s.Policy(r.Policy).Version}
	if g := x.s.RolloutGroup(k); g != nil {
		e.g = *g
		e.g.Members = slices.Clone(g.Members)
	}
	return e
}

// move gives a member another state.
func (e *groupEdit) move(id state.TrajectoryID, to state.MemberState) {
	m := e.g.Member(id)
	*e.r.Counts.Of(m.State)--
	*e.r.Counts.Of(to)++
	m.State = to
	e.changed = true
}

// join adds a trajectory, which begins with the current version. Of those that made no sample
// only the last are remembered.
func (e *groupEdit) join(id state.TrajectoryID) {
	e.g.Members = append(e.g.Members, state.GroupMembership{Trajectory: id, Version: e.current, State: state.MemberRunning})
	e.r.Counts.Opened++
	e.r.Counts.Running++
	e.changed = true
	if over := len(e.g.Members) - int(e.g.Held()) - state.GroupEndedMax; over > 0 {
		e.g.Members = slices.DeleteFunc(e.g.Members, func(m state.GroupMembership) bool {
			forget := over > 0 && !m.State.Holds()
			if forget {
				over--
			}
			return forget
		})
	}
}

// review applies what has happened to the policy and the rollout since: what began too many
// versions ago counts no more, and of a closed rollout only complete groups stay.
func (e *groupEdit) review() {
	if !e.g.Buffered() {
		return
	}
	least, open := e.r.Least(e.current), e.r.State == state.RolloutOpen
	for i := range e.g.Members {
		m := &e.g.Members[i]
		switch running, old := m.State == state.MemberRunning, m.Version < least; {
		case running && old:
			e.close(m.Trajectory, state.MemberStale)
		case running && !open:
			e.close(m.Trajectory, state.MemberFailed)
		case old && m.State == state.MemberSampled:
			e.dropped = append(e.dropped, m.Trajectory)
			e.move(m.Trajectory, state.MemberStale)
		}
	}
	if e.g.Complete && e.g.Count(state.MemberSampled) < e.r.Samples {
		e.g.Complete = false
		e.r.Counts.Complete--
	}
	if open || e.g.Complete {
		return
	}
	e.g.Dropped, e.changed = true, true
	for _, m := range e.g.Members {
		if m.State == state.MemberSampled {
			e.dropped = append(e.dropped, m.Trajectory)
		}
	}
}

// close has a running member closed, for a reason.
func (e *groupEdit) close(id state.TrajectoryID, as state.MemberState) {
	e.move(id, as)
	e.closing = append(e.closing, id)
}

// sampled takes down that a running member made its sample. If its group is complete by that,
// the others that run are redundant.
func (e *groupEdit) sampled(id state.TrajectoryID) {
	e.move(id, state.MemberSampled)
	if e.g.Count(state.MemberSampled) < e.r.Samples {
		return
	}
	e.g.Complete = true
	e.r.Counts.Complete++
	e.x.policiesChanged = true
	for i := range e.g.Members {
		if m := &e.g.Members[i]; m.State == state.MemberRunning {
			e.close(m.Trajectory, state.MemberRedundant)
		}
	}
}

// closeCost is what it costs of an entry's budget to close a member of a group: what is known of lengths
// learns from it.
const closeCost = 8

// store makes the change, and begins to close what is to be closed.
func (e *groupEdit) store() {
	if !e.changed {
		return
	}
	e.x.s.PutRollout(&e.r)
	e.x.s.PutRolloutGroup(&e.g)
	for _, id := range e.dropped {
		e.x.s.DeleteSample(id)
	}
	for _, id := range e.closing {
		e.x.budget -= closeCost
		e.x.beginClose(e.x.s.Trajectory(id), state.EndTrajectoryEnded)
	}
}
