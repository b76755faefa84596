package model

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// Rollouts: which trajectories are members of which groups, which samples are in the buffer and
// which in a batch. The model counts what it has; it keeps no counters but of the members that
// may be forgotten.

const (
	policiesMax       = 4096
	policyNameMax     = 128
	rolloutsMax       = 1024
	rolloutGroupsMax  = 65536
	groupSamplesMax   = 1024
	rolloutPlacesMax  = 1 << 20
	rolloutsKeptMax   = 1024
	placesKeptMax     = 1 << 20
	groupEndedMax     = 64
	referenceBytesMax = 1024
	sampleOverhead    = 128
	sampleBytesMax    = 512 << 20
	batchSamplesMax   = 16384
	batchBytesMax     = 4 << 20
)

// rollouts is what the model knows of them.
type rollouts struct {
	policies map[string]*state.Policy
	all      map[state.RolloutID]*rollout
	samples  map[state.TrajectoryID]*state.Sample
	batches  map[string]*state.Batch
	last     state.RolloutID
	// touched are those that the entry changed; they may be forgotten since.
	touched map[state.RolloutID]bool
	// policiesTouched are policies whose row or batch the entry changed.
	policiesTouched map[string]bool
}

type rollout struct {
	state.Rollout
	groups map[uint32]*state.RolloutGroup
	// opened counts trajectories, over those of them that are not members any more, by state.
	opened uint32
	over   [state.MemberFailed + 1]uint32
	// forgotten counts groups that were given to a step and are not kept any more.
	forgotten uint32
	// review: its groups have yet to be looked at.
	review bool
}

func newRollouts() rollouts {
	return rollouts{
		policies: map[string]*state.Policy{}, all: map[state.RolloutID]*rollout{}, samples: map[state.TrajectoryID]*state.Sample{},
		batches: map[string]*state.Batch{}, touched: map[state.RolloutID]bool{}, policiesTouched: map[string]bool{},
	}
}

func (m *Model) beginRollouts() {
	clear(m.rollouts.touched)
	clear(m.rollouts.policiesTouched)
}

func (m *Model) rolloutCommand(c *logv1.Command, got *logv1.Result) (known bool, err error) {
	var do func() error
	switch v := c.Verb.(type) {
	case *logv1.Command_CreateRollout:
		do = func() error { return m.createRollout(v.CreateRollout, got) }
	case *logv1.Command_CloseRollout:
		do = func() error { return m.closeRollout(v.CloseRollout, got) }
	case *logv1.Command_PutSample:
		do = func() error { return m.putSample(v.PutSample, got) }
	case *logv1.Command_TakeBatch:
		do = func() error { return m.takeBatch(v.TakeBatch, got) }
	case *logv1.Command_PublishVersion:
		do = func() error { return m.publishVersion(v.PublishVersion, got) }
	case *logv1.Command_SuspendPolicy:
		do = func() error { return m.suspendPolicy(v.SuspendPolicy, got) }
	case *logv1.Command_DeletePolicy:
		do = func() error { return m.deletePolicy(v.DeletePolicy, got) }
	default:
		return false, nil
	}
	if m.level < levelResizing {
		return true, refused(got, "LEVEL_NOT_ACTIVE")
	}
	return true, do()
}

// named says why a policy cannot be named.
func (m *Model) named(v *verdict, policy string) {
	if m.rollouts.policies[policy] == nil {
		v.refuse(policy == "" || len(policy) > policyNameMax, "INVALID")
		v.refuse(len(m.rollouts.policies) >= policiesMax, "TOO_MANY_POLICIES")
	}
}

// ownerOf is the namespace that a policy belongs to; empty: to none.
func (m *Model) ownerOf(policy string) string {
	if p := m.rollouts.policies[policy]; p != nil {
		for name, id := range m.namespaces {
			if id == p.Namespace {
				return name
			}
		}
	}
	return ""
}

// claims says why a policy cannot become or be that of a namespace, for a caller with rights in one, or
// everywhere.
func (m *Model) claims(v *verdict, policy, namespace, owner string) {
	is := namespace
	if m.rollouts.policies[policy] != nil {
		is = m.ownerOf(policy)
	} else if ns := m.namespaces[namespace]; ns != 0 {
		own := 0
		for _, p := range m.rollouts.policies {
			own += oneIf(p.Namespace == ns)
		}
		v.refuse(m.takesTooMuch(policiesMax, len(m.rollouts.policies), own), "TOO_MANY_POLICIES")
	}
	v.refuse(owner != "" && is != owner, "POLICY_NOT_OWNED")
}

// claim gives a policy that belongs to no namespace to one; 0: to none.
func (m *Model) claim(policy string, ns state.NamespaceID) *state.Policy {
	p := m.policy(policy)
	if p.Namespace == 0 {
		p.Namespace = ns
	}
	return p
}

// policy returns a policy, which exists from the first that names it.
func (m *Model) policy(name string) *state.Policy {
	p := m.rollouts.policies[name]
	if p == nil {
		p = &state.Policy{Name: name}
		m.rollouts.policies[name] = p
	}
	m.rollouts.policiesTouched[name] = true
	return p
}

func places(r *state.Rollout) int { return int(r.Groups) * int(r.Samples+r.Redundant) }

func (m *Model) createRollout(c *logv1.CreateRollout, got *logv1.Result) error {
	if done, err := m.replayed(c.Request, m.namespaces[orDefault(c.Namespace)], state.VerbCreateRollout, 1, got); done {
		return err
	}
	r := &rollout{groups: map[uint32]*state.RolloutGroup{}, Rollout: state.Rollout{
		ID: m.rollouts.last + 1, Namespace: m.namespaces[orDefault(c.Namespace)], Name: c.Name, Policy: c.Policy, Groups: c.Groups,
		Samples: c.SamplesPerGroup, Redundant: c.Redundant, Staleness: c.Staleness, State: state.RolloutOpen, CreatedAt: m.now,
	}}
	live, taken, ownLive, ownTaken := 0, 0, 0, 0
	for _, o := range m.rollouts.all {
		if o.State != state.RolloutClosed {
			live++
			taken += places(&o.Rollout)
			if o.Namespace == r.Namespace {
				ownLive++
				ownTaken += places(&o.Rollout)
			}
		}
	}
	var v verdict
	v.refuse(r.Namespace == 0, "NAMESPACE_NOT_FOUND")
	v.refuse(len(c.Name) > nameBytesMax || c.Groups < 1 || c.Groups > rolloutGroupsMax, "INVALID")
	v.refuse(c.SamplesPerGroup < 1 || c.SamplesPerGroup > groupSamplesMax || c.Redundant > groupSamplesMax, "INVALID")
	v.refuse(places(&r.Rollout) > rolloutPlacesMax, "INVALID")
	v.refuse(live >= rolloutsMax || taken+places(&r.Rollout) > rolloutPlacesMax, "TOO_MANY_ROLLOUTS")
	more := places(&r.Rollout) - 1
	v.refuse(m.takesTooMuch(rolloutPlacesMax, more, more), "INVALID")
	v.refuse(m.takesTooMuch(rolloutsMax, live, ownLive) || m.takesTooMuch(rolloutPlacesMax, taken+more, ownTaken+more), "TOO_MANY_ROLLOUTS")
	m.named(&v, c.Policy)
	m.claims(&v, c.Policy, orDefault(c.Namespace), c.PolicyOwner)
	if ok, err := v.judge(got); !ok {
		return err
	}
	m.claim(c.Policy, r.Namespace)
	m.rollouts.last = r.ID
	m.rollouts.all[r.ID] = r
	m.rollouts.touched[r.ID] = true
	m.remember(c.Request, r.Namespace, state.VerbCreateRollout, uint64(r.ID), 1)
	return result(got, &logv1.Result{FirstId: uint64(r.ID), Count: 1})
}

func (m *Model) closeRollout(c *logv1.CloseRollout, got *logv1.Result) error {
	r := m.rollouts.all[state.RolloutID(c.Id)]
	switch {
	case r == nil:
		return refused(got, "ROLLOUT_NOT_FOUND")
	case r.State == state.RolloutClosed, r.State == state.RolloutClosing && r.Halted == "":
		return result(got, &logv1.Result{FirstId: c.Id})
	}
	r.State, r.Halted, r.review = state.RolloutClosing, "", true
	m.rollouts.touched[r.ID] = true
	return result(got, &logv1.Result{FirstId: c.Id, Count: 1})
}

// least is the oldest version that counts.
func (m *Model) least(r *rollout) uint64 {
	v := m.rollouts.policies[r.Policy].Version
	if v < uint64(r.Staleness) {
		return 0
	}
	return v - uint64(r.Staleness)
}

func (m *Model) publishVersion(c *logv1.PublishVersion, got *logv1.Result) error {
	var v verdict
	v.refuse(c.Version == 0, "INVALID")
	m.named(&v, c.Policy)
	old := m.rollouts.policies[c.Policy]
	v.refuse(old != nil && c.Version < old.Version && c.Version > 0, "VERSION_OLD")
	m.claims(&v, c.Policy, c.Namespace, c.PolicyOwner)
	v.refuse(c.Namespace != "" && m.namespaces[c.Namespace] == 0, "NAMESPACE_NOT_FOUND")
	if ok, err := v.judge(got); !ok {
		return err
	}
	p := m.claim(c.Policy, m.namespaces[c.Namespace])
	if p.Version == c.Version {
		return result(got, &logv1.Result{Replayed: true})
	}
	p.Version, p.PublishedAt = c.Version, m.now
	closed := uint32(0)
	for _, r := range m.rollouts.all {
		if r.Policy != p.Name || r.State == state.RolloutClosed {
			continue
		}
		least := m.least(r)
		for _, g := range r.groups {
			for _, x := range g.Members {
				if x.Version >= least {
					continue
				}
				if x.State == state.MemberRunning {
					closed++
					r.review = true
				}
				r.review = r.review || x.State == state.MemberSampled && g.Step == 0 && !g.Dropped
			}
		}
		m.rollouts.touched[r.ID] = true
	}
	return result(got, &logv1.Result{Count: closed})
}

func (m *Model) suspendPolicy(c *logv1.SuspendPolicy, got *logv1.Result) error {
	p := m.rollouts.policies[c.Policy]
	switch {
	case p == nil:
		return refused(got, "POLICY_NOT_FOUND")
	case c.PolicyOwner != "" && m.ownerOf(c.Policy) != c.PolicyOwner:
		return refused(got, "POLICY_NOT_OWNED")
	case p.Suspended != c.Resume:
		return result(got, &logv1.Result{})
	}
	p.Suspended = !c.Resume
	m.rollouts.policiesTouched[p.Name] = true
	return result(got, &logv1.Result{Count: 1})
}

// has counts the members of a group that are in one of these states.
func has(g *state.RolloutGroup, states ...state.MemberState) (n uint32) {
	for _, x := range g.Members {
		if slices.Contains(states, x.State) {
			n++
		}
	}
	return n
}

// joins finds the group that a trajectory is opened for, and says why it may not join.
func (m *Model) joins(v *verdict, ns state.NamespaceID, c *logv1.RolloutMembership) (*rollout, uint32) {
	if c == nil {
		return nil, 0
	}
	r := m.rollouts.all[state.RolloutID(c.RolloutId)]
	if r == nil || r.Namespace != ns {
		v.refuse(true, "ROLLOUT_NOT_FOUND")
		return nil, 0
	}
	v.refuse(r.State != state.RolloutOpen, "ROLLOUT_CLOSED")
	v.refuse(c.Group >= r.Groups, "INVALID")
	if g := r.groups[c.Group]; g != nil && r.State == state.RolloutOpen {
		held, sampled := uint32(0), uint32(0)
		for _, x := range g.Members {
			if x.Version < m.least(r) && g.Step == 0 { // it counts no more
				continue
			}
			if x.State == state.MemberSampled {
				sampled++
			}
			if x.State == state.MemberSampled || x.State == state.MemberRunning {
				held++
			}
		}
		v.refuse(sampled == r.Samples, "GROUP_COMPLETE")
		v.refuse(sampled < r.Samples && held >= r.Samples+r.Redundant, "GROUP_FULL")
	}
	return r, c.Group
}

// joinRollout makes a trajectory that was just opened a member.
func (m *Model) joinRollout(r *rollout, index uint32, t *trajectory) error {
	if r == nil {
		return nil
	}
	g := r.groups[index]
	if g == nil {
		g = &state.RolloutGroup{Key: state.KeyOfGroup(r.ID, index)}
		r.groups[index] = g
	}
	if err := m.lookAtGroup(r, g); err != nil {
		return err
	}
	r.opened++
	g.Members = append(g.Members, state.GroupMembership{Trajectory: t.ID, Version: m.rollouts.policies[r.Policy].Version, State: state.MemberRunning})
	for over := int(has(g, state.MemberRedundant, state.MemberStale, state.MemberFailed)) - groupEndedMax; over > 0; over-- {
		i := slices.IndexFunc(g.Members, func(x state.GroupMembership) bool { return x.State > state.MemberSampled })
		r.over[g.Members[i].State]++
		g.Members = slices.Delete(g.Members, i, i+1)
	}
	m.rollouts.touched[r.ID] = true
	return nil
}

// leave: a trajectory begins to end. If it still ran for its group, it has failed there.
func (m *Model) leave(t *trajectory) {
	r := m.rollouts.all[t.Rollout]
	if r == nil || r.groups[t.Group] == nil {
		return
	}
	if x := memberOf(r.groups[t.Group], t.ID); x != nil && x.State == state.MemberRunning {
		x.State = state.MemberFailed
		m.rollouts.touched[r.ID] = true
	}
}

func memberOf(g *state.RolloutGroup, id state.TrajectoryID) *state.GroupMembership {
	i := slices.IndexFunc(g.Members, func(x state.GroupMembership) bool { return x.Trajectory == id })
	if i < 0 {
		return nil
	}
	return &g.Members[i]
}

// lookAtGroup does what must become of a group, as its policy and its rollout are now.
func (m *Model) lookAtGroup(r *rollout, g *state.RolloutGroup) error {
	if g.Step != 0 || g.Dropped {
		return nil
	}
	var changes []change
	for i := range g.Members {
		x := &g.Members[i]
		old := x.Version < m.least(r)
		switch {
		case x.State == state.MemberRunning && (old || r.State != state.RolloutOpen):
			x.State = state.MemberFailed
			if old {
				x.State = state.MemberStale
			}
			changes = append(changes, change{m.beginClose(m.trajectories[x.Trajectory], state.EndTrajectoryEnded), nil})
		case x.State == state.MemberSampled && old:
			x.State = state.MemberStale
			delete(m.rollouts.samples, x.Trajectory)
		}
	}
	g.Complete = has(g, state.MemberSampled) == r.Samples
	if !g.Complete && r.State != state.RolloutOpen {
		g.Dropped = true
		for _, x := range g.Members {
			delete(m.rollouts.samples, x.Trajectory)
		}
	}
	m.rollouts.touched[r.ID] = true
	return m.expectAll(changes)
}

func (m *Model) putSample(c *logv1.PutSample, got *logv1.Result) error {
	t := m.trajectories[state.TrajectoryID(c.TrajectoryId)]
	var v verdict
	v.refuse(t == nil, "TRAJECTORY_NOT_FOUND")
	v.refuse(t != nil && t.Rollout == 0, "NO_ROLLOUT")
	v.refuse(len(c.Reference) > referenceBytesMax, "INVALID")
	var r *rollout
	if t != nil && t.Rollout != 0 {
		r = m.rollouts.all[t.Rollout]
		v.refuse(r == nil, "ROLLOUT_NOT_FOUND")
	}
	if ok, err := v.judge(got); !ok {
		return err
	}
	g := r.groups[t.Group]
	if g == nil || memberOf(g, t.ID) == nil {
		return result(got, &logv1.Result{FirstId: uint64(state.MemberFailed)})
	}
	x := memberOf(g, t.ID)
	bytes := m.sampleBytes() + sampleOverhead + len(c.Reference)
	if runs := x.State == state.MemberRunning && x.Version >= m.least(r) && r.State == state.RolloutOpen; runs && bytes > sampleBytesMax {
		return refused(got, "TOO_MANY_SAMPLES")
	}
	if err := m.lookAtGroup(r, g); err != nil {
		return err
	}
	switch {
	case x.State == state.MemberSampled:
		return result(got, &logv1.Result{FirstId: uint64(state.MemberSampled), Count: 1, Replayed: true})
	case x.State != state.MemberRunning:
		return result(got, &logv1.Result{FirstId: uint64(x.State)})
	}
	m.rollouts.samples[t.ID] = &state.Sample{Trajectory: t.ID, Group: g.Key, Version: x.Version, Reward: c.Reward, Tokens: c.Tokens, Reference: c.Reference}
	return m.sampled(r, g, x, t, c.KeepOpen, got)
}

// sampled: a member has made its sample. The last that its group needs ends the others.
func (m *Model) sampled(r *rollout, g *state.RolloutGroup, x *state.GroupMembership, t *trajectory, keepOpen bool, got *logv1.Result) error {
	x.State = state.MemberSampled
	m.rollouts.touched[r.ID] = true
	var changes []change
	if g.Complete = has(g, state.MemberSampled) == r.Samples; g.Complete {
		for i := range g.Members {
			if o := &g.Members[i]; o.State == state.MemberRunning {
				o.State = state.MemberRedundant
				changes = append(changes, change{m.beginClose(m.trajectories[o.Trajectory], state.EndTrajectoryEnded), nil})
			}
		}
	}
	if !keepOpen {
		changes = append(changes, change{m.beginClose(t, state.EndTrajectoryEnded), nil})
	}
	if err := m.expectAll(changes); err != nil {
		return err
	}
	return result(got, &logv1.Result{FirstId: uint64(state.MemberSampled), Count: 1})
}

func (m *Model) sampleBytes() (bytes int) {
	for _, x := range m.rollouts.samples {
		bytes += sampleOverhead + len(x.Reference)
	}
	return bytes
}

// completeGroups are the groups of a policy that wait for a step, the oldest first.
func (m *Model) completeGroups(policy string) (keys []state.GroupKey) {
	for _, r := range m.rollouts.all {
		for _, g := range r.groups {
			if r.Policy == policy && g.Complete && g.Step == 0 {
				keys = append(keys, g.Key)
			}
		}
	}
	slices.Sort(keys)
	return keys
}

func (m *Model) takeBatch(c *logv1.TakeBatch, got *logv1.Result) error {
	if m.rollouts.policies[c.Policy] == nil {
		return refused(got, "POLICY_NOT_FOUND")
	}
	if c.PolicyOwner != "" && m.ownerOf(c.Policy) != c.PolicyOwner {
		return refused(got, "POLICY_NOT_OWNED")
	}
	last := m.rollouts.batches[c.Policy]
	switch {
	case c.Step == 0 || c.Groups == 0:
		return refused(got, "INVALID")
	case last != nil && last.Step == c.Step:
		return result(got, &logv1.Result{FirstId: c.Step, Count: uint32(len(last.Groups)), Replayed: true})
	case last != nil && last.Step+1 != c.Step:
		return refused(got, "STEP_WRONG")
	}
	halted, review := false, false
	for _, r := range m.rollouts.all {
		if r.Policy == c.Policy && r.State != state.RolloutClosed {
			halted, review = halted || r.Halted != "", review || r.review && r.Halted == ""
		}
	}
	if halted || review {
		var v verdict
		v.refuse(halted, "ROLLOUT_HALTED")
		v.refuse(review, "REVIEW_PENDING")
		_, err := v.judge(got)
		return err
	}
	b := &state.Batch{Policy: c.Policy, Step: c.Step, TakenAt: m.now}
	keys := m.completeGroups(c.Policy)
	if len(keys) < int(c.Groups) {
		return refused(got, "GROUPS_MISSING")
	}
	b.Groups = keys[:c.Groups]
	bytes := 0
	for _, k := range b.Groups {
		for _, x := range m.rollouts.all[k.Rollout()].groups[k.Index()].Members {
			if x.State == state.MemberSampled {
				b.Samples = append(b.Samples, x.Trajectory)
				bytes += sampleOverhead + len(m.rollouts.samples[x.Trajectory].Reference)
			}
		}
	}
	if len(b.Samples) > batchSamplesMax || bytes > batchBytesMax {
		return refused(got, "BATCH_TOO_LARGE")
	}
	m.deliver(last, b)
	return result(got, &logv1.Result{FirstId: c.Step, Count: c.Groups})
}

// deliver gives a batch to its step and forgets the one before.
func (m *Model) deliver(last, b *state.Batch) {
	if last != nil {
		for _, id := range last.Samples {
			delete(m.rollouts.samples, id)
		}
	}
	for _, k := range b.Groups {
		r := m.rollouts.all[k.Rollout()]
		r.groups[k.Index()].Step = b.Step
		m.rollouts.touched[r.ID] = true
	}
	for _, k := range b.Groups {
		m.settleRollout(m.rollouts.all[k.Rollout()])
	}
	m.rollouts.batches[b.Policy] = b
	p := m.policy(b.Policy)
	p.Step = b.Step
	if last == nil || p.PublishedAt == 0 || p.PublishedAt < last.TakenAt {
		return
	}
	p.Steps++
	memory := int64(min(p.Steps, 16))
	p.TrainNS += (p.PublishedAt - last.TakenAt - p.TrainNS) / memory
	p.WaitNS += (m.now - p.PublishedAt - p.WaitNS) / memory
}

// settleRollout ends a rollout of which nothing is left to be done.
func (m *Model) settleRollout(r *rollout) {
	delivered, waiting := uint32(0), false
	for _, g := range r.groups {
		if g.Step != 0 {
			delivered++
		}
		waiting = waiting || g.Complete && g.Step == 0
	}
	if r.State == state.RolloutOpen && delivered == r.Groups || r.State == state.RolloutClosing && !waiting {
		r.State, r.EndedAt = state.RolloutClosed, m.now
		m.due.push(deadline{at: m.now + m.settings.RetentionNS, id: uint64(r.ID), kind: dropRollout})
	}
}

// reviewed judges a trajectory that was closed by the scheduler: only a member is that counts no
// more, because of a version or the end of its rollout.
func (m *Model) reviewed(e state.Event) error {
	t := m.trajectories[state.TrajectoryID(e.Subject)]
	if t == nil || m.rollouts.all[t.Rollout] == nil || m.rollouts.all[t.Rollout].groups[t.Group] == nil || !m.rollouts.all[t.Rollout].review {
		return fmt.Errorf("trajectory %d was closed, and nothing causes that", e.Subject)
	}
	r := m.rollouts.all[t.Rollout]
	before := m.revision
	if err := m.lookAtGroup(r, r.groups[t.Group]); err != nil {
		return err
	}
	if m.revision == before {
		return fmt.Errorf("trajectory %d was closed, and group %d of rollout %d needs that not", e.Subject, t.Group, r.ID)
	}
	return nil
}

// endReviews does what was left to be done in groups without trajectories to close. The work list
// says how far the entry came.
func (m *Model) endReviews() error {
	for _, id := range slices.Sorted(maps.Keys(m.rollouts.all)) {
		r := m.rollouts.all[id]
		if row := m.s.Rollout(id); row != nil && (row.Halted != "") != (r.Halted != "") {
			return fmt.Errorf("rollout %d is halted: %q, must be %q", id, row.Halted, r.Halted)
		}
		if !r.review || r.Halted != "" {
			continue
		}
		q := state.QueueOf(state.RolloutReview, id)
		done := !m.s.WorkLeft(q)
		for _, index := range slices.Sorted(maps.Keys(r.groups)) {
			if !done && uint64(index) >= m.s.WorkAfter(q) {
				break
			}
			before := m.revision
			if err := m.lookAtGroup(r, r.groups[index]); err != nil {
				return err
			}
			if m.revision != before {
				return fmt.Errorf("group %d of rollout %d was passed over", index, id)
			}
		}
		if m.rollouts.touched[id] = true; done {
			r.review = false
			m.settleRollout(r)
		}
	}
	return nil
}

// fireRollout forgets a rollout that ended long ago, group by group. If not everything that is due
// was done, the state says how much was.
func (m *Model) fireRollout(r *rollout, left bool) (gone bool) {
	m.rollouts.touched[r.ID] = true
	for _, index := range slices.Sorted(maps.Keys(r.groups)) {
		if left && m.s.RolloutGroup(state.KeyOfGroup(r.ID, index)) != nil {
			return false
		}
		for _, x := range r.groups[index].Members {
			r.over[x.State]++
		}
		if r.groups[index].Step != 0 {
			r.forgotten++
		}
		delete(r.groups, index)
		m.budget--
	}
	if left && m.s.Rollout(r.ID) != nil {
		return false
	}
	delete(m.rollouts.all, r.ID)
	return true
}

// dropRollouts forgets the rollouts that ended first, if too many are kept.
func (m *Model) dropRollouts(left bool) {
	var ended []*rollout
	kept := 0
	for _, r := range m.rollouts.all {
		if r.State == state.RolloutClosed {
			ended = append(ended, r)
			kept += places(&r.Rollout)
		}
	}
	slices.SortFunc(ended, func(a, b *rollout) int {
		return cmp.Or(cmp.Compare(a.EndedAt, b.EndedAt), cmp.Compare(a.ID, b.ID))
	})
	for n := len(ended); n > rolloutsKeptMax || kept > placesKeptMax; n-- {
		r := ended[len(ended)-n]
		if !m.fireRollout(r, left) {
			return
		}
		kept -= places(&r.Rollout)
		m.budget--
	}
}
