package state

import (
	"cmp"
	"math"
)

// RolloutID orders rollouts by creation, over all namespaces.
type RolloutID uint64

const (
	// RolloutsMax bounds the rollouts that have not ended.
	RolloutsMax = 1024
	// RolloutGroupsMax bounds the groups of a rollout.
	RolloutGroupsMax = 1 << 16
	// GroupSamplesMax bounds the samples that complete a group, and the redundant
	// trajectories beyond them.
	GroupSamplesMax = 1024
	// RolloutPlacesMax bounds the places for trajectories in the groups of all rollouts that
	// have not ended.
	RolloutPlacesMax = 1 << 20
	// RolloutsKeptMax bounds the rollouts that have ended and are kept.
	RolloutsKeptMax = 1024
	// PlacesKeptMax bounds the places in their groups.
	PlacesKeptMax = 1 << 20
	// HaltedBytesMax bounds what is said of why a rollout is halted.
	HaltedBytesMax = 512
	// GroupEndedMax bounds the members of a group that made no sample and are remembered: the
	// last ones are.
	GroupEndedMax = 64
)

// RolloutState has the values of rota.v1.RolloutState.
type RolloutState uint8

// The life of a rollout: closing ones take no further trajectories, and have complete groups
// that no step was given yet.
const (
	RolloutOpen RolloutState = 1 + iota
	RolloutClosed
	RolloutClosing
)

// MemberState has the values of rota.v1.RolloutMemberState.
type MemberState uint8

// What became of a trajectory in its group.
const (
	MemberRunning MemberState = 1 + iota
	MemberSampled
	MemberRedundant
	MemberStale
	MemberFailed
)

// Holds reports whether the member has one of the places of its group.
func (m MemberState) Holds() bool { return m == MemberRunning || m == MemberSampled }

// Rollout is a set of prompt groups for which trajectories are opened.
type Rollout struct {
	ID        RolloutID
	Namespace NamespaceID
	Name      string
	Policy    string
	// Groups is how many groups it has, Samples how many samples complete one, Redundant how
	// many trajectories one may have beyond them.
	Groups, Samples, Redundant uint32
	// Staleness is how many versions before the current one a trajectory may have begun.
	Staleness          uint32
	State              RolloutState
	CreatedAt, EndedAt int64 // log times
	Counts             RolloutCounts
	// Halted says why its groups cannot be looked at; empty while they can.
	Halted string
}

// RolloutCounts are numbers of members, and of groups, of a rollout.
type RolloutCounts struct {
	Opened, Running, Sampled, Redundant, Stale, Failed uint32
	// Complete groups wait for a step, delivered ones were given to one.
	Complete, Delivered uint32
}

// Of returns the counter of the members that are in a state.
func (r *RolloutCounts) Of(s MemberState) *uint32 {
	return [...]*uint32{MemberRunning: &r.Running, MemberSampled: &r.Sampled, MemberRedundant: &r.Redundant, MemberStale: &r.Stale, MemberFailed: &r.Failed}[s]
}

// Places is how many trajectories its groups may have at a time.
func (r *Rollout) Places() uint64 { return uint64(r.Groups) * uint64(r.Samples+r.Redundant) }

// Dropped is how many of its groups no step will be given. Only complete groups stay when a
// rollout is closed.
func (r *Rollout) Dropped() uint32 {
	if r.State == RolloutOpen {
		return 0
	}
	return r.Groups - r.Counts.Complete - r.Counts.Delivered
}

// Least is the oldest version with which a trajectory may have begun, if another one is current.
func (r *Rollout) Least(current uint64) uint64 { return current - min(current, uint64(r.Staleness)) }

// GroupKey names a group: a rollout, and the number of the group in it. Keys are ordered by
// rollout, then by number.
type GroupKey uint64

// groupBits is how many bits of a GroupKey the number of the group has.
const groupBits = 16

// KeyOfGroup returns the key of a group.
func KeyOfGroup(id RolloutID, index uint32) GroupKey {
	return GroupKey(uint64(id)<<groupBits | uint64(index))
}

// Rollout returns the rollout of the group, Index its number in that.
func (k GroupKey) Rollout() RolloutID { return RolloutID(k >> groupBits) }

// Index returns the number of the group in its rollout.
func (k GroupKey) Index() uint32 { return uint32(k & (1<<groupBits - 1)) }

// RolloutGroup is one prompt of a rollout. One that never had a trajectory has no row.
type RolloutGroup struct {
	Key     GroupKey
	Members []GroupMembership // in the order of trajectories
	// Complete: it has its samples. Dropped: its rollout was closed before.
	Complete, Dropped bool
	// Step is what it was given to; 0: nothing.
	Step uint64
}

// GroupMembership is a trajectory of a group.
type GroupMembership struct {
	Trajectory TrajectoryID
	// Version was current when it was opened.
	Version uint64
	State   MemberState
}

// Buffered reports whether its samples are in the buffer: no step was given them, and they
// were not dropped.
func (r *RolloutGroup) Buffered() bool { return r.Step == 0 && !r.Dropped }

// Count returns how many members are in a state.
func (r *RolloutGroup) Count(s MemberState) (n uint32) {
	for i := range r.Members {
		if r.Members[i].State == s {
			n++
		}
	}
	return n
}

// Held returns how many members have one of its places.
func (r *RolloutGroup) Held() (n uint32) { return r.Count(MemberRunning) + r.Count(MemberSampled) }

// Member returns a member, nil if the trajectory is none or not remembered.
func (r *RolloutGroup) Member(id TrajectoryID) *GroupMembership {
	for i := range r.Members {
		if r.Members[i].Trajectory == id {
			return &r.Members[i]
		}
	}
	return nil
}

func (r *Rollout) code(c *codec) {
	number(c, &r.ID)
	number(c, &r.Namespace)
	c.text(&r.Name)
	c.text(&r.Policy)
	for _, n := range []*uint32{&r.Groups, &r.Samples, &r.Redundant, &r.Staleness} {
		number(c, n)
	}
	number(c, &r.State)
	signed(c, &r.CreatedAt)
	signed(c, &r.EndedAt)
	k := &r.Counts
	for _, n := range []*uint32{&k.Opened, &k.Running, &k.Sampled, &k.Redundant, &k.Stale, &k.Failed, &k.Complete, &k.Delivered} {
		number(c, n)
	}
	c.text(&r.Halted)
}

func (r *RolloutGroup) code(c *codec) {
	number(c, &r.Key)
	list(c, &r.Members, func(c *codec, m *GroupMembership) {
		number(c, &m.Trajectory)
		number(c, &m.Version)
		number(c, &m.State)
	})
	c.flag(&r.Complete)
	c.flag(&r.Dropped)
	number(c, &r.Step)
}

type (
	// policyRollout is a rollout of a policy that has not ended.
	policyRollout struct {
		policy string
		id     RolloutID
	}
	endedRollout struct {
		at int64
		id RolloutID
	}
	// completeGroup is a group of a policy that waits for a step.
	completeGroup struct {
		policy string
		key    GroupKey
	}
	// begun counts the members of a rollout that began with a version: those that run, and
	// those with a sample in the buffer.
	begun struct {
		rollout           RolloutID
		version           uint64
		running, buffered uint32
	}
)

func (a policyRollout) less(b policyRollout) bool {
	return cmp.Or(cmp.Compare(a.policy, b.policy), cmp.Compare(a.id, b.id)) < 0
}

func (a endedRollout) less(b endedRollout) bool {
	return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.id, b.id)) < 0
}

func (a completeGroup) less(b completeGroup) bool {
	return cmp.Or(cmp.Compare(a.policy, b.policy), cmp.Compare(a.key, b.key)) < 0
}

func (a begun) less(b begun) bool {
	return cmp.Or(cmp.Compare(a.rollout, b.rollout), cmp.Compare(a.version, b.version)) < 0
}

// RolloutTotals are totals over the cluster.
type RolloutTotals struct {
	// Live rollouts have not ended. Places are in the groups of each kind.
	Live, Ended             int
	LivePlaces, EndedPlaces uint64
	Samples                 int
	// SampleBytes are those of all samples, in the buffer or in a batch.
	SampleBytes uint64
}

// PutRollout stores a rollout.
func (s *State) PutRollout(r *Rollout) {
	old := db(s).rollouts.put(db(s).enc, r.ID, r)
	if old == nil {
		s.refer(r.Namespace, 0, 1)
	} else if old.State == r.State {
		return // its indexes are the same
	} else {
		s.indexRollout(old, false)
	}
	s.indexRollout(r, true)
	s.setTimer(s.rolloutTimer(old), s.rolloutTimer(r))
}

// DeleteRollout forgets a rollout that has ended, and has no groups any more.
func (s *State) DeleteRollout(id RolloutID) {
	if old := db(s).rollouts.delete(id); old != nil {
		s.refer(old.Namespace, 0, -1)
		s.indexRollout(old, false)
		s.setTimer(s.rolloutTimer(old), timer{})
	}
}

func (s *State) indexRollout(r *Rollout, in bool) {
	x, by := &db(s).index, 1
	if !in {
		by = -1
	}
	n := &x.rolloutTotals
	if r.State == RolloutClosed {
		n.Ended += by
		n.EndedPlaces += uint64(by) * r.Places()
		include(&x.endedRollouts, endedRollout{r.EndedAt, r.ID}, in)
		return
	}
	n.Live += by
	n.LivePlaces += uint64(by) * r.Places()
	include(&x.policyRollouts, policyRollout{r.Policy, r.ID}, in)
}

// rolloutTimer ends the retention of a rollout.
func (s *State) rolloutTimer(r *Rollout) timer {
	if r == nil || r.State != RolloutClosed {
		return timer{}
	}
	return timer{r.EndedAt + s.meta.Settings.RetentionNS, TimerRollout, uint64(r.ID)}
}

// Rollout returns a rollout, nil if there is none.
func (s *State) Rollout(id RolloutID) *Rollout { return db(s).rollouts.get(id) }

// Rollouts visits the rollouts with IDs greater than after.
func (s *State) Rollouts(after RolloutID, fn func(*Rollout) bool) {
	db(s).rollouts.scan(after+1, fn)
}

// RolloutsOf visits the rollouts of a policy that have not ended, oldest first.
func (s *State) RolloutsOf(policy string, fn func(*Rollout) bool) {
	db(s).index.policyRollouts.Ascend(policyRollout{policy, 0}, func(k policyRollout) bool {
		return k.policy == policy && fn(db(s).rollouts.get(k.id))
	})
}

// LastRollout returns the newest rollout of a policy that has not ended; 0: there is none.
func (s *State) LastRollout(policy string) (id RolloutID) {
	db(s).index.policyRollouts.Descend(policyRollout{policy, math.MaxUint64}, func(k policyRollout) bool {
		if k.policy == policy {
			id = k.id
		}
		return false
	})
	return id
}

// RolloutTotals returns totals over the cluster.
func (s *State) RolloutTotals() RolloutTotals { return db(s).index.rolloutTotals }

// LiveRollouts counts the rollouts of a namespace that have not ended, and the places in their groups.
func (s *State) LiveRollouts(ns NamespaceID) (live, places int) {
	s.Rollouts(0, func(r *Rollout) bool {
		if r.Namespace == ns && r.State != RolloutClosed {
			live, places = live+1, places+int(r.Places())
		}
		return true
	})
	return live, places
}

// ExcessRollout returns the kept rollout that ended first, if more are kept than may be; else 0.
func (s *State) ExcessRollout() RolloutID {
	if n := s.RolloutTotals(); n.Ended <= RolloutsKeptMax && n.EndedPlaces <= PlacesKeptMax {
		return 0
	}
	e, _ := db(s).index.endedRollouts.Min()
	return e.id
}

// PutRolloutGroup stores a group of a rollout that exists.
func (s *State) PutRolloutGroup(r *RolloutGroup) {
	old := db(s).rolloutGroups.put(db(s).enc, r.Key, r)
	s.reindexGroup(old, r)
}

// DeleteRolloutGroup forgets a group.
func (s *State) DeleteRolloutGroup(k GroupKey) {
	if old := db(s).rolloutGroups.delete(k); old != nil {
		s.reindexGroup(old, nil)
	}
}

// reindexGroup takes what a group was out of the indexes and puts in what it is.
func (s *State) reindexGroup(was, is *RolloutGroup) {
	var changes []begun
	for _, side := range []struct {
		row *RolloutGroup
		by  uint32
	}{{was, ^uint32(0)}, {is, 1}} {
		if side.row == nil {
			continue
		}
		for i := range side.row.Members {
			changes = tallyBegun(changes, side.row, &side.row.Members[i], side.by)
		}
	}
	for i := range changes {
		s.countBegun(&changes[i])
	}
	if a, b := was != nil && was.waits(), is != nil && is.waits(); a != b {
		key := cmp.Or(is, was).Key
		policy, by := s.Rollout(key.Rollout()).Policy, 1
		if !b {
			by = -1
		}
		include(&db(s).index.completeGroups, completeGroup{policy, key}, b)
		count(&db(s).index.policyComplete, policy, by)
	}
}

// waits reports whether the group waits for a step.
func (r *RolloutGroup) waits() bool { return r.Complete && r.Step == 0 }

// tallyBegun adds a member to the changes of the counts by versions. Groups have members of few
// versions.
func tallyBegun(changes []begun, g *RolloutGroup, m *GroupMembership, by uint32) []begun {
	running, buffered := m.State == MemberRunning, m.State == MemberSampled && g.Buffered()
	if !running && !buffered {
		return changes
	}
	i := 0
	for i < len(changes) && changes[i].version != m.Version {
		i++
	}
	if i == len(changes) {
		changes = append(changes, begun{rollout: g.Key.Rollout(), version: m.Version})
	}
	if running {
		changes[i].running += by
	} else {
		changes[i].buffered += by
	}
	return changes
}

// countBegun applies changes, which may be negative modulo 2^32.
func (s *State) countBegun(c *begun) {
	if c.running == 0 && c.buffered == 0 {
		return
	}
	x := &db(s).index
	k := *c
	if old, ok := x.begun.Get(k); ok {
		k.running, k.buffered = k.running+old.running, k.buffered+old.buffered
	}
	if k.running == 0 && k.buffered == 0 {
		x.begun.Delete(k)
	} else {
		x.begun.Set(k)
	}
	count(&x.policyBuffered, s.Rollout(k.rollout).Policy, int(int32(c.buffered)))
}

// RolloutGroup returns a group, nil if it has never had a trajectory.
func (s *State) RolloutGroup(k GroupKey) *RolloutGroup { return db(s).rolloutGroups.get(k) }

// RolloutGroups visits the groups of a rollout that have had a trajectory, from a number on.
func (s *State) RolloutGroups(id RolloutID, from uint32, fn func(*RolloutGroup) bool) {
	if from >= RolloutGroupsMax { // its key would be one of another group
		return
	}
	db(s).rolloutGroups.scan(KeyOfGroup(id, from), func(g *RolloutGroup) bool {
		return g.Key.Rollout() == id && fn(g)
	})
}

// CompleteGroups visits the groups of a policy that wait for a step: those of the oldest rollout
// first, in the order of their numbers.
func (s *State) CompleteGroups(policy string, fn func(*RolloutGroup) bool) {
	db(s).index.completeGroups.Ascend(completeGroup{policy, 0}, func(k completeGroup) bool {
		return k.policy == policy && fn(db(s).rolloutGroups.get(k.key))
	})
}

// CompleteCount returns how many groups of a policy wait for a step.
func (s *State) CompleteCount(policy string) int {
	n, _ := db(s).index.policyComplete.Get(policy)
	return n
}

// BufferedCount returns how many samples of a policy are in the buffer.
func (s *State) BufferedCount(policy string) int {
	n, _ := db(s).index.policyBuffered.Get(policy)
	return n
}

// BegunBefore counts the members of a rollout that began with a version less than least: those
// that run, and those with a sample in the buffer.
func (s *State) BegunBefore(id RolloutID, least uint64) (running, buffered uint32) {
	db(s).index.begun.Ascend(begun{rollout: id}, func(k begun) bool {
		if k.rollout != id || k.version >= least {
			return false
		}
		running, buffered = running+k.running, buffered+k.buffered
		return true
	})
	return running, buffered
}
