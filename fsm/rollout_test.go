package fsm

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
	"rota/sched"
)

// ledgerOfSamples is a plain account of what trainers were given: what happened to each
// trajectory, from the results alone.
type ledgerOfSamples struct {
	version   uint64
	began     map[uint64]uint64 // version by trajectory
	accepted  map[uint64]bool
	delivered map[uint64]uint64 // step by trajectory
	groups    map[state.GroupKey]uint64
	batch     []state.TrajectoryID
	step      uint64
}

// TestSamplesAreDeliveredExactlyOnce: whatever trainers, agent loops and nodes do, each step has
// accepted samples of allowed versions, whole groups, and none that another step had; and asked
// again it has the same.
func TestSamplesAreDeliveredExactlyOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := func(label string, most int) int { return rapid.IntRange(0, most).Draw(t, label) }
		s := newStory(t)
		staleness, samples := n("staleness", 2), 1+n("samples", 2)
		do := func(line string) *logv1.Result { return s.apply(t, parseCommand(t, line)...)[0] }
		do("register node=n1 numa=4 memory=1000")
		do(fmt.Sprintf("rollout groups=3 samples=%d redundant=%d staleness=%d", samples, n("redundant", 2), staleness))
		o := &ledgerOfSamples{began: map[uint64]uint64{}, accepted: map[uint64]bool{}, delivered: map[uint64]uint64{}, groups: map[state.GroupKey]uint64{}}
		trajectory := func() int { return 1 + n("trajectory", len(o.began)) }
		for range 10 + n("commands", 50) {
			s.now += int64(n("pause", 3))
			switch n("verb", 9) {
			case 0, 1, 2, 3:
				if got := do(fmt.Sprintf("open rollout=1/%d", n("group", 2))); got.Refusal == nil {
					o.began[got.FirstId] = o.version
				}
			case 4, 5, 6:
				id := trajectory()
				got := do(fmt.Sprintf("sample traj=%d keep=%s", id, []string{"", "yes"}[n("keep", 1)]))
				o.put(t, uint64(id), uint64(staleness), got)
			case 7:
				if got := do(fmt.Sprintf("publish version=%d", o.version+1)); got.Refusal != nil {
					t.Fatal(got)
				}
				o.version++
			case 8:
				do(fmt.Sprintf("close id=%d", trajectory()))
			case 9:
				step := o.step + uint64(n("again", 1))
				o.take(t, step, uint64(staleness), samples, do(fmt.Sprintf("batch step=%d groups=%d", step, 1+n("groups", 1))), s)
			}
		}
	})
}

// put: a sample is accepted once and for all, and never one that is too old.
func (o *ledgerOfSamples) put(r *rapid.T, id, staleness uint64, got *logv1.Result) {
	if got.Refusal != nil || got.Count == 0 {
		return
	}
	if o.delivered[id] == 0 && o.began[id]+staleness < o.version {
		r.Fatalf("the sample of trajectory %d, of version %d, is accepted at version %d", id, o.began[id], o.version)
	}
	o.accepted[id] = true
}

func (o *ledgerOfSamples) take(r *rapid.T, step, staleness uint64, samples int, got *logv1.Result, s *story) {
	if got.Refusal != nil {
		return
	}
	b := s.state.Batch("p")
	if b.Step != step || got.Replayed != (step == o.step && o.step > 0) {
		r.Fatalf("step %d has the batch of step %d, replayed %v", step, b.Step, got.Replayed)
	}
	if got.Replayed {
		if !slices.Equal(b.Samples, o.batch) {
			r.Fatalf("step %d has %v, and had %v", step, b.Samples, o.batch)
		}
		return
	}
	o.step, o.batch = step, b.Samples
	if len(b.Samples) != samples*len(b.Groups) {
		r.Fatalf("%d groups of %d have %d samples", len(b.Groups), samples, len(b.Samples))
	}
	for _, k := range b.Groups {
		if o.groups[k] != 0 {
			r.Fatalf("group %d was given to steps %d and %d", k.Index(), o.groups[k], step)
		}
		o.groups[k] = step
	}
	for _, id := range b.Samples {
		switch t := uint64(id); {
		case !o.accepted[t] || o.delivered[t] != 0:
			r.Fatalf("trajectory %d was accepted: %v, and is given to step %d after step %d", t, o.accepted[t], step, o.delivered[t])
		case o.began[t]+staleness < o.version:
			r.Fatalf("trajectory %d of version %d is given to step %d at version %d", t, o.began[t], step, o.version)
		case s.state.Sample(id) == nil || s.state.Sample(id).Version != o.began[t]:
			r.Fatalf("the sample of trajectory %d is %+v", t, s.state.Sample(id))
		default:
			o.delivered[t] = step
		}
	}
}

// TestWaitersAreToldOfPolicies: when a group becomes complete, a batch is taken, or a policy
// changes, and not of every sample.
func TestWaitersAreToldOfPolicies(t *testing.T) {
	s := newStory(t)
	for _, step := range []struct {
		line string
		told bool
	}{
		{"register node=n1 numa=4", false},
		{"rollout groups=2 samples=2", false},
		{"open rollout=1/0", false},
		{"open rollout=1/0", false},
		{"sample traj=1", false},
		{"sample traj=2", true},
		{"batch step=1", true},
		{"batch step=1", false},
		{"publish version=1", true},
		{"publish version=1", false},
		{"suspend-policy", true},
		{"suspend-policy", false},
		{"close-rollout id=1", true},
	} {
		s.index++
		next, _, effects := apply(s.state.Copy, s.index, &logv1.Entry{TimeNs: s.now, Commands: parseCommand(t, step.line)}, sched.Deciders(), nil)
		s.state = next
		if told := slices.ContainsFunc(effects, func(e Effect) bool { return e.Kind == EffectPolicies }); told != step.told {
			t.Errorf("%s: told is %v, want %v", step.line, told, step.told)
		}
	}
}

// quick applies commands without the checks of a story, for those that are many.
func (s *story) quick(t rapid.TB, lines ...string) (results []*logv1.Result) {
	t.Helper()
	var commands []*logv1.Command
	for _, line := range lines {
		commands = append(commands, parseCommand(t, line)...)
	}
	s.index++
	s.state, results, _ = apply(s.state.Copy, s.index, &logv1.Entry{TimeNs: s.now, Commands: commands}, sched.Deciders(), nil)
	return results
}

// TestAVersionIsReviewedInBoundedWork: a version that closes more trajectories than one entry may
// takes several; until then no batch is taken, and no stale sample is accepted.
func TestAVersionIsReviewedInBoundedWork(t *testing.T) {
	const groups = 3000
	s := newStory(t)
	s.quick(t, fmt.Sprintf("rollout groups=%d samples=1 redundant=1", groups))
	for from := 0; from < groups; from += 500 {
		lines := make([]string, 0, 1000)
		for g := from; g < from+500; g++ {
			lines = append(lines, fmt.Sprintf("open rollout=1/%d", g), fmt.Sprintf("open rollout=1/%d", g))
		}
		s.quick(t, lines...)
	}
	s.quick(t, "sample traj=1")
	if r := s.quick(t, "publish version=1")[0]; r.Count != 2*(groups-1) {
		t.Errorf("%d trajectories are closed, must be %d", r.Count, 2*(groups-1))
	}
	entries := 1
	for ; s.state.WorkLeft(state.QueueOf(state.RolloutReview, state.RolloutID(1))); entries++ {
		if due, ok := nextDue(s.state); !ok || due > s.state.Meta().Now {
			t.Fatal("no entry is due, and groups are left")
		}
		results := s.quick(t, "batch step=1", fmt.Sprintf("sample traj=%d", 2*groups-1))
		if results[0].Refusal.GetReason() != "REVIEW_PENDING" && s.state.CompleteCount("p") > 0 || results[1].Count != 0 {
			t.Fatalf("entry %d: %v", entries, results)
		}
		if err := s.state.Check(); err != nil {
			t.Fatal(err)
		}
	}
	if k := s.state.Rollout(1).Counts; entries < 2 || k.Running != 0 || k.Stale != 2*groups-1 || k.Complete != 0 {
		t.Errorf("after %d entries the rollout counts %+v", entries, k)
	}
}

// TestRolloutsAreBounded: in number, in places, and in the bytes of samples and of batches; and
// of those that have ended the newest are kept.
func TestRolloutsAreBounded(t *testing.T) {
	s := newStory(t)
	refused := func(line, reason string) {
		t.Helper()
		if r := s.quick(t, line)[0]; r.Refusal.GetReason() != reason {
			t.Errorf("%s: %v, want %s", line, r, reason)
		}
	}
	s.quick(t, fmt.Sprintf("rollout groups=%d samples=8", state.RolloutGroupsMax))
	s.quick(t, fmt.Sprintf("rollout groups=%d samples=8", state.RolloutGroupsMax))
	refused("rollout", "TOO_MANY_ROLLOUTS")
	s.quick(t, "close-rollout id=1", "close-rollout id=2")
	for range state.RolloutsMax {
		s.quick(t, "rollout")
	}
	refused("rollout", "TOO_MANY_ROLLOUTS")
	for id := 3; id < 3+state.RolloutsMax; id++ {
		s.quick(t, fmt.Sprintf("close-rollout id=%d", id))
	}
	s.quick(t, "tick")
	if n := s.state.RolloutTotals(); n.Ended != state.RolloutsKeptMax || s.state.Rollout(1) != nil || s.state.Rollout(3) == nil {
		t.Errorf("kept are %+v; the first: %v", n, s.state.Rollout(1))
	}
	// A batch of more bytes than one may have.
	const samples = 64
	long := strings.Repeat("x", state.ReferenceBytesMax)
	s.quick(t, fmt.Sprintf("rollout groups=%d samples=%d", samples, samples))
	id := int(s.state.Meta().LastRollout)
	for g := range samples {
		var lines []string
		for i := range samples {
			lines = append(lines, fmt.Sprintf("open rollout=%d/%d", id, g), fmt.Sprintf("sample traj=%d ref=%s", g*samples+i+1, long))
		}
		s.quick(t, lines...)
	}
	refused(fmt.Sprintf("batch step=1 groups=%d", samples), "BATCH_TOO_LARGE")
	if r := s.quick(t, "batch step=1 groups=56")[0]; r.Refusal != nil {
		t.Error(r.Refusal)
	}
	if err := s.state.Check(); err != nil {
		t.Fatal(err)
	}
}

// TestTheLastMembersAreRemembered: a group whose trajectories fail again and again does not grow
// for ever.
func TestTheLastMembersAreRemembered(t *testing.T) {
	s := newStory(t)
	s.apply(t, parseCommand(t, "rollout")...)
	for id := 1; id <= 3*state.GroupEndedMax; id++ {
		s.apply(t, parseCommand(t, "open rollout=1/0")...)
		s.apply(t, parseCommand(t, fmt.Sprintf("close id=%d", id))...)
	}
	g := s.state.RolloutGroup(state.KeyOfGroup(1, 0))
	if len(g.Members) != state.GroupEndedMax+1 || s.state.Rollout(1).Counts.Failed != 3*state.GroupEndedMax {
		t.Errorf("%d members are remembered, of %+v", len(g.Members), s.state.Rollout(1).Counts)
	}
	if r := s.apply(t, parseCommand(t, "sample traj=1")...)[0]; r.FirstId != uint64(state.MemberFailed) || r.Count != 0 {
		t.Errorf("the first one puts a sample: %v", r)
	}
}

// TestRolloutsNeedTheirLevel: before it is active, all of it is refused.
func TestRolloutsNeedTheirLevel(t *testing.T) {
	b := newBuild(state.LevelMax)
	b.Apply(entryLog(t, 1, 1, bootstrapBy(state.LevelMin)))
	for i, line := range []string{"rollout", "close-rollout id=1", "open rollout=1/0", "sample traj=1", "batch step=1", "publish version=1", "suspend-policy"} {
		index := uint64(i) + 2
		for _, r := range b.Apply(entryLog(t, index, int64(index), parseCommand(t, line)...)).([]*logv1.Result) {
			if r.GetRefusal().GetReason() != "LEVEL_NOT_ACTIVE" {
				t.Errorf("%s: %v", line, r)
			}
		}
	}
}

// TestRolloutsLeavePlacesToOtherNamespaces: none has more places for trajectories than are left for the
// others, and a cluster with one namespace may use all.
func TestRolloutsLeavePlacesToOtherNamespaces(t *testing.T) {
	const half = state.RolloutPlacesMax / 2 / state.RolloutGroupsMax
	s := newStory(t)
	reason := func(ns string, samples uint32) string {
		c := &logv1.CreateRollout{Namespace: ns, Policy: "p-" + ns, Groups: state.RolloutGroupsMax, SamplesPerGroup: samples}
		return s.apply(t, &logv1.Command{Verb: &logv1.Command_CreateRollout{CreateRollout: c}})[0].GetRefusal().GetReason()
	}
	s.lines(t, "namespace name=b")
	for i, test := range []struct {
		namespace string
		samples   uint32
		want      string
	}{
		{"default", half + 1, "INVALID"}, {"default", half, ""}, {"default", 1, "TOO_MANY_ROLLOUTS"},
		{"b", half, "TOO_MANY_ROLLOUTS"}, {"b", half / 2, ""},
	} {
		if got := reason(test.namespace, test.samples); got != test.want {
			t.Errorf("rollout %d, of namespace %s: %q, want %q", i, test.namespace, got, test.want)
		}
	}
	s = newStory(t)
	if got := reason("default", 2*half); got != "" {
		t.Errorf("the only namespace may not use all: %s", got)
	}
}
