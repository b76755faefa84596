package model

import (
	"fmt"
	"reflect"
	"slices"

	"rota/fsm/state"
)

// compareRollouts compares what the entry changed, and how much there is.
func (m *Model) compareRollouts() error {
	totals := state.RolloutTotals{Samples: len(m.rollouts.samples), SampleBytes: uint64(m.sampleBytes())}
	for _, r := range m.rollouts.all {
		if r.State == state.RolloutClosed {
			totals.Ended++
			totals.EndedPlaces += uint64(places(&r.Rollout))
		} else {
			totals.Live++
			totals.LivePlaces += uint64(places(&r.Rollout))
		}
	}
	if got := m.s.RolloutTotals(); got != totals || m.s.Meta().LastRollout != m.rollouts.last || m.s.PolicyCount() != len(m.rollouts.policies) {
		return fmt.Errorf("there are rollouts %+v up to ID %d and %d policies, must be %+v up to %d and %d",
			got, m.s.Meta().LastRollout, m.s.PolicyCount(), totals, m.rollouts.last, len(m.rollouts.policies))
	}
	for name := range m.rollouts.policiesTouched {
		if err := m.comparePolicy(name); err != nil {
			return err
		}
	}
	for id := range m.rollouts.touched {
		if err := m.compareRollout(id); err != nil {
			return err
		}
	}
	return nil
}

func (m *Model) comparePolicy(name string) error {
	got, want := m.s.Policy(name), m.rollouts.policies[name]
	if (got == nil) != (want == nil) || got != nil && *got != *want {
		return fmt.Errorf("policy %s is %+v, must be %+v", name, got, want)
	}
	if got, want := m.s.Batch(name), m.rollouts.batches[name]; !reflect.DeepEqual(got, want) {
		return fmt.Errorf("the batch of policy %s is %+v, must be %+v", name, got, want)
	}
	if got, want := m.s.CompleteCount(name), len(m.completeGroups(name)); got != want {
		return fmt.Errorf("policy %s has %d complete groups, must be %d", name, got, want)
	}
	return m.compareSamples(m.rollouts.batches[name])
}

// compareSamples compares those that a step was given.
func (m *Model) compareSamples(b *state.Batch) error {
	if b == nil {
		return nil
	}
	for _, id := range b.Samples {
		if got, want := m.s.Sample(id), m.rollouts.samples[id]; got == nil || want == nil || *got != *want {
			return fmt.Errorf("the sample of trajectory %d in the batch of step %d is %+v, must be %+v", id, b.Step, got, want)
		}
	}
	return nil
}

func (m *Model) compareRollout(id state.RolloutID) error {
	got, want := m.s.Rollout(id), m.rollouts.all[id]
	if got == nil || want == nil {
		if got != nil || want != nil {
			return fmt.Errorf("rollout %d is kept: %v, must be %v", id, got != nil, want != nil)
		}
		return nil
	}
	row := want.Rollout
	row.Counts = want.counts()
	if *got != row {
		return fmt.Errorf("rollout %d is %+v, must be %+v", id, *got, row)
	}
	rows := 0
	m.s.RolloutGroups(id, 0, func(*state.RolloutGroup) bool {
		rows++
		return true
	})
	if rows != len(want.groups) {
		return fmt.Errorf("rollout %d has %d groups with trajectories, must be %d", id, rows, len(want.groups))
	}
	for index, g := range want.groups {
		if err := m.compareGroup(m.s.RolloutGroup(state.KeyOfGroup(id, index)), g); err != nil {
			return fmt.Errorf("rollout %d: %w", id, err)
		}
	}
	return nil
}

func (m *Model) compareGroup(got, want *state.RolloutGroup) error {
	if got == nil || !slices.Equal(got.Members, want.Members) || got.Complete != want.Complete || got.Dropped != want.Dropped || got.Step != want.Step {
		return fmt.Errorf("group %d is %+v, must be %+v", want.Key.Index(), got, *want)
	}
	if want.Step != 0 { // its samples are in a batch, or forgotten
		return nil
	}
	for _, x := range want.Members {
		got, want := m.s.Sample(x.Trajectory), m.rollouts.samples[x.Trajectory]
		if (got == nil) != (want == nil) || got != nil && *got != *want {
			return fmt.Errorf("the sample of trajectory %d is %+v, must be %+v", x.Trajectory, got, want)
		}
	}
	return nil
}

// counts are the numbers of members by state, and of groups. A group that was forgotten counts
// as it did.
func (r *rollout) counts() state.RolloutCounts {
	by := r.over
	c := state.RolloutCounts{Opened: r.opened, Delivered: r.forgotten}
	for _, g := range r.groups {
		for _, x := range g.Members {
			by[x.State]++
		}
		switch {
		case g.Step != 0:
			c.Delivered++
		case g.Complete:
			c.Complete++
		}
	}
	c.Running, c.Sampled, c.Redundant, c.Stale, c.Failed =
		by[state.MemberRunning], by[state.MemberSampled], by[state.MemberRedundant], by[state.MemberStale], by[state.MemberFailed]
	return c
}
