package fsm

import (
	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// reviewRetryNS is when to try again while versions are compared, in nanoseconds.
const reviewRetryNS = 10_000_000

// putSample puts the sample of a trajectory into the buffer, unless its part in the rollout has
// ended already. The answer says what became of it then.
func (x *execution) putSample(c *logv1.PutSample) *logv1.Result {
	t := x.s.Trajectory(state.TrajectoryID(c.TrajectoryId))
	switch {
	case t == nil:
		return refuse(codeNotFound, "TRAJECTORY_NOT_FOUND", "trajectory %d does not exist, or ended too long ago to be kept", c.TrajectoryId)
	case t.Rollout == 0:
		return refuse(codeFailedPrecondition, "NO_ROLLOUT", "trajectory %d is of no rollout; open it with one", c.TrajectoryId)
	case len(c.Reference) > state.ReferenceBytesMax:
		return refuse(codeInvalidArgument, "INVALID", "the reference has %d bytes, at most %d are allowed; put the bytes elsewhere and refer to them", len(c.Reference), state.ReferenceBytesMax)
	}
	r := x.s.Rollout(t.Rollout)
	if r == nil {
		return refuse(codeNotFound, "ROLLOUT_NOT_FOUND", "rollout %d of trajectory %d ended too long ago to be kept", t.Rollout, c.TrajectoryId)
	}
	e := x.editGroup(r, t.GroupKey())
	e.review()
	m := e.g.Member(t.ID)
	if m == nil { // it ended long ago, and others after it
		return &logv1.Result{FirstId: uint64(state.MemberFailed)}
	}
	if m.State != state.MemberRunning {
		e.store()
		return answerSample(m.State)
	}
	sample := &state.Sample{Trajectory: t.ID, Group: e.g.Key, Version: m.Version, Reward: c.Reward, Tokens: c.Tokens, Reference: c.Reference}
	if n := x.s.RolloutTotals(); n.SampleBytes+sample.Bytes() > state.SampleBytesMax {
		return retryAfter(refuse(codeResourceExhausted, "TOO_MANY_SAMPLES",
			"%d samples with %d bytes are kept (limit: %d bytes); take batches, or close rollouts whose samples are no longer needed",
			n.Samples, n.SampleBytes, state.SampleBytesMax), 1_000_000_000)
	}
	x.s.PutSample(sample)
	e.sampled(t.ID)
	if !c.KeepOpen {
		e.closing = append(e.closing, t.ID)
	}
	e.store()
	return &logv1.Result{FirstId: uint64(state.MemberSampled), Count: 1}
}

// answerSample says what became of a trajectory whose part in its rollout has ended.
func answerSample(s state.MemberState) *logv1.Result {
	if s == state.MemberSampled {
		return &logv1.Result{FirstId: uint64(s), Count: 1, Replayed: true}
	}
	return &logv1.Result{FirstId: uint64(s)}
}

// takeBatch gives complete groups to a step. The last step gets the same again; the one after it
// ends its batch.
func (x *execution) takeBatch(c *logv1.TakeBatch) *logv1.Result {
	p, r := x.ownPolicy(c.Policy, c.PolicyOwner)
	if r != nil {
		return r
	}
	switch last := x.s.Batch(p.Name); {
	case c.Step == 0 || c.Groups == 0:
		return refuse(codeInvalidArgument, "INVALID", "step and groups must be 1 or more, not %d and %d", c.Step, c.Groups)
	case last == nil: // the first may have any number
	case c.Step == last.Step:
		return &logv1.Result{FirstId: c.Step, Count: uint32(len(last.Groups)), Replayed: true}
	case c.Step != last.Step+1:
		return refuse(codeFailedPrecondition, "STEP_WRONG", "the last step of policy %q that was given a batch is %d: ask for that again, or for step %d", p.Name, last.Step, last.Step+1)
	}
	if r := x.mayTake(p); r != nil {
		return r
	}
	batch, r := x.nextBatch(p, c)
	if r != nil {
		return r
	}
	x.deliver(p, batch)
	return &logv1.Result{FirstId: c.Step, Count: c.Groups}
}

// mayTake refuses batches while versions are compared: a group that is complete may turn out to
// have samples that are too old.
func (x *execution) mayTake(p *state.Policy) (refusal *logv1.Result) {
	x.s.RolloutsOf(p.Name, func(r *state.Rollout) bool {
		switch {
		case r.Halted != "":
			refusal = refuse(codeFailedPrecondition, "ROLLOUT_HALTED", "the groups of rollout %d could not be looked at: %s; please report this, and close the rollout", r.ID, r.Halted)
		case x.inReview(r.ID):
			refusal = retryAfter(refuse(codeUnavailable, "REVIEW_PENDING", "the samples of rollout %d are being compared with the new version; try again", r.ID), reviewRetryNS)
		}
		return refusal == nil
	})
	return refusal
}

// nextBatch collects the oldest complete groups, or says what is missing.
func (x *execution) nextBatch(p *state.Policy, c *logv1.TakeBatch) (*state.Batch, *logv1.Result) {
	if r := GroupsMissing(x.s, p.Name, c.Step, c.Groups); r != nil {
		return nil, r
	}
	b, bytes := &state.Batch{Policy: p.Name, Step: c.Step, TakenAt: x.now()}, uint64(0)
	x.s.CompleteGroups(p.Name, func(g *state.RolloutGroup) bool {
		b.Groups = append(b.Groups, g.Key)
		for i := range g.Members {
			if m := &g.Members[i]; m.State == state.MemberSampled {
				b.Samples = append(b.Samples, m.Trajectory)
				bytes += x.s.Sample(m.Trajectory).Bytes()
			}
		}
		return len(b.Groups) < int(c.Groups) && len(b.Samples) <= state.BatchSamplesMax && bytes <= state.BatchBytesMax
	})
	if len(b.Samples) > state.BatchSamplesMax || bytes > state.BatchBytesMax {
		return nil, refuse(codeInvalidArgument, "BATCH_TOO_LARGE", "the first %d groups have %d samples with %d bytes (limits: %d and %d); ask for fewer groups, or use shorter references",
			len(b.Groups), len(b.Samples), bytes, state.BatchSamplesMax, state.BatchBytesMax)
	}
	return b, nil
}

// deliver gives a batch to its step, and forgets the samples of the step before.
func (x *execution) deliver(p *state.Policy, b *state.Batch) {
	if last := x.s.Batch(p.Name); last != nil {
		for _, id := range last.Samples {
			x.s.DeleteSample(id)
		}
		p = p.Measured(last.TakenAt, x.now())
	}
	for i, k := range b.Groups {
		e := x.editGroup(x.s.Rollout(k.Rollout()), k)
		e.g.Step, e.changed = b.Step, true
		e.r.Counts.Complete--
		e.r.Counts.Delivered++
		e.store()
		if i+1 == len(b.Groups) || b.Groups[i+1].Rollout() != k.Rollout() {
			x.settleRollout(k.Rollout())
		}
	}
	x.s.PutBatch(b)
	u := *p
	u.Step = b.Step
	x.s.PutPolicy(&u)
	x.policiesChanged = true
}

// GroupsMissing refuses the batch of a step as long as too few groups of its policy are complete;
// nil for a step that has its batch, or may have one.
func GroupsMissing(s *state.State, policy string, step uint64, groups uint32) *logv1.Result {
	have := s.CompleteCount(policy)
	if last := s.Batch(policy); last != nil && step != last.Step+1 || have >= int(groups) || s.Policy(policy) == nil {
		return nil
	}
	return refuse(codeFailedPrecondition, "GROUPS_MISSING", "step %d of policy %q asks for %d groups, and only %d are complete; wait for more, or ask for fewer", step, policy, groups, have)
}
