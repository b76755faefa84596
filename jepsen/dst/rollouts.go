package dst

import (
	"fmt"
	"slices"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
	"rota/internal/sim"
)

// How often clients roll out, and how often trainers of policies do something.
const (
	rolloutsPerHour  = 30
	trainingsPerHour = 600
	policies         = 2
)

// rollouts are what agent loops and trainers of policies do.
func (p *Plan) rollouts(c config) {
	d := sim.Draws(c.seed).Of(luckPlan, 9)
	for range max(1, p.Length*rolloutsPerHour/hour) {
		p.add(Event{At: d.N(p.Length), Kind: RollOut, On: int(d.N(clients)), Luck: d.Uint64()})
	}
	for range max(1, p.Length*trainingsPerHour/hour) {
		p.add(Event{At: d.N(p.Length), Kind: TrainPolicy, On: int(d.N(clients)), Luck: d.Uint64()})
	}
}

// rollOut creates a rollout, opens trajectories for its groups, and puts their samples. Some
// trajectories are closed, or left to their idle timeouts.
func (c *client) rollOut(e Event) {
	d := sim.Draws(e.Luck).Of(3, 0)
	v := &logv1.CreateRollout{
		Request: c.request(&d, e), Policy: policyName(d.N(policies)), Groups: uint32(d.Between(1, 4)), SamplesPerGroup: uint32(d.Between(1, 3)),
		Redundant: uint32(d.N(3)), Staleness: uint32(d.N(4)),
	}
	again := v.Request == nil // created twice, if an answer is lost
	first := uint64(0)
	c.do(&logv1.Command{Verb: &logv1.Command_CreateRollout{CreateRollout: v}}, triesMax, func(r *logv1.Result) {
		if r.Refusal != nil || first != 0 && !again {
			return
		}
		first = r.FirstId
		for group := range v.Groups {
			for range v.SamplesPerGroup + v.Redundant + uint32(d.N(2)) {
				luck := d.Uint64()
				c.w.loop.After(d.Skewed(0, 60*second), func() { c.openMember(r.FirstId, group, v.Policy, luck) })
			}
		}
		if d.Chance(400_000) {
			c.w.loop.After(d.Between(30, 180)*second, func() {
				c.do(&logv1.Command{Verb: &logv1.Command_CloseRollout{CloseRollout: &logv1.CloseRollout{Id: r.FirstId}}}, triesMax, ignore)
			})
		}
	})
}

func policyName(n int64) string { return fmt.Sprintf("policy-%d", n) }

// openMember opens a trajectory for a group, which is closed after a while in any case.
func (c *client) openMember(rollout uint64, group uint32, policy string, luck uint64) {
	d := sim.Draws(luck).Of(4, 0)
	v := &logv1.OpenTrajectory{
		Name: "member", MemoryBytes: uint64(d.Between(0, 4)) << 20, IdleTimeoutNs: d.Between(20, 120) * second,
		Pool: c.w.config.pool(&d), Rollout: &logv1.RolloutMembership{RolloutId: rollout, Group: group},
	}
	v.Generation = generation(&d, policy)
	c.do(&logv1.Command{Verb: &logv1.Command_OpenTrajectory{OpenTrajectory: v}}, 1, func(r *logv1.Result) {
		if r.Refusal != nil {
			return
		}
		if d.Chance(150_000) { // some have actions
			c.trajectories = recent(c.trajectories, r.FirstId)
		}
		switch n := d.N(100); {
		case n < 80:
			c.w.loop.After(d.Skewed(0, 90*second), func() { c.putSample(r.FirstId, &d) })
		case n < 90:
			c.w.loop.After(d.Skewed(0, 60*second), func() { c.close(r.FirstId, triesMax) })
		}
	})
}

func (c *client) putSample(id uint64, d *sim.Draw) {
	v := &logv1.PutSample{TrajectoryId: id, Reward: d.Uint64(), Tokens: uint64(d.N(10_000)), Reference: fmt.Sprintf("made-up://%d", id), KeepOpen: d.Chance(100_000)}
	c.do(&logv1.Command{Verb: &logv1.Command_PutSample{PutSample: v}}, triesMax, ignore)
}

// trainPolicy publishes a version, or takes the batch of a step: mostly the next one, some the last
// one again, a few that cannot be.
func (c *client) trainPolicy(e Event) {
	d := sim.Draws(e.Luck).Of(5, 0)
	policy := policyName(d.N(policies))
	version, step := uint64(0), uint64(0)
	c.w.view(func(s *state.State) {
		if p := s.Policy(policy); p != nil {
			version, step = p.Version, p.Step
		}
	})
	switch n := d.N(100); {
	case n < 20:
		c.do(&logv1.Command{Verb: &logv1.Command_PublishVersion{PublishVersion: &logv1.PublishVersion{Policy: policy, Version: version + uint64(d.N(3))}}}, triesMax, ignore)
	case n < 25:
		c.do(&logv1.Command{Verb: &logv1.Command_SuspendPolicy{SuspendPolicy: &logv1.SuspendPolicy{Policy: policy, Resume: d.Chance(500_000)}}}, triesMax, ignore)
	default:
		v := &logv1.TakeBatch{Policy: policy, Step: step + 1, Groups: uint32(d.Between(1, 2))}
		if d.Chance(250_000) {
			v.Step = step + uint64(d.N(4))
		}
		c.do(&logv1.Command{Verb: &logv1.Command_TakeBatch{TakeBatch: v}}, triesMax, func(r *logv1.Result) {
			if r.Refusal == nil {
				c.w.view(func(s *state.State) { c.w.witness.given(s, policy, v.Step) })
			}
		})
	}
}

// given: a trainer has the batch of a step, unless the next step has ended it meanwhile. It must be
// the same each time, and no sample may be that of two steps.
func (w *witness) given(s *state.State, policy string, step uint64) {
	b := s.Batch(policy)
	if b == nil || b.Step != step {
		return
	}
	key := policyStep{policy, step}
	if known, again := w.batches[key]; again {
		if !slices.Equal(known, b.Samples) {
			w.fail("step %d of %s was given the samples %v and then %v", step, policy, known, b.Samples)
		}
		return
	}
	w.batches[key] = slices.Clone(b.Samples)
	for _, id := range b.Samples {
		if other, twice := w.sampled[id]; twice {
			w.fail("the sample of trajectory %d was given to step %d of %s and to step %d of %s", id, other.step, other.policy, step, policy)
		}
		w.sampled[id] = key
	}
}

// policyStep is a step of the training of a policy.
type policyStep struct {
	policy string
	step   uint64
}
