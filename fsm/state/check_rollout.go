package state

import "fmt"

// checkRollouts: each has what one in its state has, and counts what its groups have.
func (s *State) checkRollouts() (err error) {
	s.Rollouts(0, func(r *Rollout) bool { err = s.checkRollout(r); return err == nil })
	if n := s.RolloutTotals(); err == nil && (n.Live > RolloutsMax || n.LivePlaces > RolloutPlacesMax || n.SampleBytes > SampleBytesMax) {
		err = fmt.Errorf("there are too many rollouts or samples: %+v", n)
	}
	return err
}

func (s *State) checkRollout(r *Rollout) error {
	k := &r.Counts
	switch {
	case r.ID == 0 || r.ID > s.meta.LastRollout || s.Namespace(r.Namespace) == nil || s.Policy(r.Policy) == nil:
		return fmt.Errorf("rollout %d of policy %q: the last is %d, or its namespace or policy does not exist", r.ID, r.Policy, s.meta.LastRollout)
	case r.State < RolloutOpen || r.State > RolloutClosing || r.State != RolloutClosed && r.EndedAt != 0 || r.CreatedAt > s.meta.Now || r.EndedAt > s.meta.Now:
		return fmt.Errorf("rollout %d in state %d began at %d and ended at %d", r.ID, r.State, r.CreatedAt, r.EndedAt)
	case r.Groups == 0 || r.Groups > RolloutGroupsMax || r.Samples == 0 || r.Samples > GroupSamplesMax || r.Redundant > GroupSamplesMax || len(r.Halted) > HaltedBytesMax:
		return fmt.Errorf("rollout %d has %d groups of %d samples and %d redundant trajectories", r.ID, r.Groups, r.Samples, r.Redundant)
	case k.Opened != k.Running+k.Sampled+k.Redundant+k.Stale+k.Failed || k.Complete+k.Delivered > r.Groups:
		return fmt.Errorf("rollout %d counts %+v", r.ID, *k)
	case r.State == RolloutClosed && k.Running+k.Complete > 0, r.State == RolloutOpen && k.Delivered == r.Groups:
		return fmt.Errorf("rollout %d in state %d counts %+v", r.ID, r.State, *k)
	}
	var rows RolloutCounts
	s.RolloutGroups(r.ID, 0, func(g *RolloutGroup) bool {
		for i := range g.Members {
			*rows.Of(g.Members[i].State)++
		}
		if g.waits() {
			rows.Complete++
		}
		if g.Step != 0 {
			rows.Delivered++
		}
		return true
	})
	forgotten := r.State == RolloutClosed // its groups are forgotten one by one
	if !forgotten && (rows.Running != k.Running || rows.Sampled != k.Sampled || rows.Complete != k.Complete || rows.Delivered != k.Delivered) ||
		rows.Redundant > k.Redundant || rows.Stale > k.Stale || rows.Failed > k.Failed {
		return fmt.Errorf("rollout %d counts %+v, and its groups have %+v", r.ID, *k, rows)
	}
	return nil
}

// checkRolloutGroups: the members are trajectories of the group, of which those that run are
// open; a complete one has its samples, and none that runs.
func (s *State) checkRolloutGroups() (err error) {
	db(s).rolloutGroups.scan(0, func(g *RolloutGroup) bool { err = s.checkGroup(g); return err == nil })
	return err
}

func (s *State) checkGroup(g *RolloutGroup) error {
	id, index := g.Key.Rollout(), g.Key.Index()
	r := s.Rollout(id)
	if r == nil || index >= r.Groups {
		return fmt.Errorf("group %d of rollout %d does not exist", index, id)
	}
	running, sampled := g.Count(MemberRunning), g.Count(MemberSampled)
	switch {
	case g.Complete && (sampled != r.Samples || running > 0 || g.Dropped), g.Step != 0 && !g.Complete:
		return fmt.Errorf("group %d of rollout %d has %d samples of %d and %d that run; complete %v, dropped %v, step %d", index, id, sampled, r.Samples, running, g.Complete, g.Dropped, g.Step)
	case !g.Complete && sampled >= r.Samples, g.Dropped && (running > 0 || r.State == RolloutOpen):
		return fmt.Errorf("group %d of rollout %d has %d samples of %d and is not complete, or was dropped and %d run", index, id, sampled, r.Samples, running)
	case running+sampled > r.Samples+r.Redundant || len(g.Members)-int(running+sampled) > GroupEndedMax+int(r.Samples+r.Redundant):
		return fmt.Errorf("group %d of rollout %d has %d members, of which %d run and %d made a sample", index, id, len(g.Members), running, sampled)
	}
	return s.checkMemberships(g, s.Policy(r.Policy).Version)
}

// checkMemberships: they are in order, began with a version that there was, and are where their
// trajectories say.
func (s *State) checkMemberships(g *RolloutGroup, current uint64) error {
	for i := range g.Members {
		m := &g.Members[i]
		t := s.Trajectory(m.Trajectory)
		switch {
		case m.State < MemberRunning || m.State > MemberFailed || m.Version > current || i > 0 && g.Members[i-1].Trajectory >= m.Trajectory:
			return fmt.Errorf("trajectory %d is in state %d in group %x with version %d of %d, or out of order", m.Trajectory, m.State, uint64(g.Key), m.Version, current)
		case t != nil && (t.Rollout == 0 || t.GroupKey() != g.Key):
			return fmt.Errorf("trajectory %d is a member of group %x, and says it is of group %d of rollout %d", m.Trajectory, uint64(g.Key), t.Group, t.Rollout)
		case m.State == MemberRunning && (t == nil || t.State >= TrajectoryClosing):
			return fmt.Errorf("trajectory %d runs in group %x, and has ended", m.Trajectory, uint64(g.Key))
		case m.State == MemberSampled && g.Buffered() && s.Sample(m.Trajectory) == nil:
			return fmt.Errorf("trajectory %d made a sample for group %x, which is not in the buffer", m.Trajectory, uint64(g.Key))
		}
	}
	return nil
}

// checkSamples: each is in the buffer or in a batch, and not in both.
func (s *State) checkSamples() (err error) {
	given := map[TrajectoryID]bool{} // for look-up only, never ranged over
	s.Batches(func(b *Batch) bool {
		for _, id := range b.Samples {
			given[id] = true
		}
		return true
	})
	s.Samples(func(r *Sample) bool {
		g := s.RolloutGroup(r.Group)
		buffered := false
		if g != nil && g.Buffered() {
			m := g.Member(r.Trajectory)
			buffered = m != nil && m.State == MemberSampled && m.Version == r.Version
		}
		if buffered == given[r.Trajectory] || len(r.Reference) > ReferenceBytesMax {
			err = fmt.Errorf("the sample of trajectory %d for group %x is in the buffer: %v, in a batch: %v", r.Trajectory, uint64(r.Group), buffered, given[r.Trajectory])
		}
		return err == nil
	})
	return err
}

// checkBatches: each is that of the last step of its policy, and has its samples.
func (s *State) checkBatches() (err error) {
	s.Batches(func(b *Batch) bool {
		p := s.Policy(b.Policy)
		switch {
		case p == nil || p.Step != b.Step || b.Step == 0 || b.TakenAt > s.meta.Now:
			err = fmt.Errorf("policy %q has a batch of step %d, and is at another", b.Policy, b.Step)
		case len(b.Groups) == 0 || len(b.Samples) < len(b.Groups) || len(b.Samples) > BatchSamplesMax:
			err = fmt.Errorf("the batch of policy %q has %d groups with %d samples", b.Policy, len(b.Groups), len(b.Samples))
		}
		for _, id := range b.Samples {
			if err == nil && s.Sample(id) == nil {
				err = fmt.Errorf("the batch of policy %q has no sample of trajectory %d", b.Policy, id)
			}
		}
		for _, k := range b.Groups {
			if g := s.RolloutGroup(k); err == nil && g != nil && g.Step != b.Step {
				err = fmt.Errorf("group %x is in the batch of step %d, and was given to step %d", uint64(k), b.Step, g.Step)
			}
		}
		return err == nil
	})
	s.Policies("", func(p *Policy) bool {
		if err == nil && (p.Step == 0) != (s.Batch(p.Name) == nil) {
			err = fmt.Errorf("policy %s is at step %d, its batch is there: %v", p.Name, p.Step, s.Batch(p.Name) != nil)
		}
		return err == nil
	})
	return err
}
