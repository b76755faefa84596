package plan

import (
	"cmp"
	"fmt"
	"slices"

	"rota/fsm/state"
	"rota/sched/place/partition"
	"rota/sched/predict"
	"rota/sched/scale/degrees"
)

// poolTrajectoriesMax is for how many trajectories degrees are planned at most: beyond that, a plan
// takes seconds of a leader.
const poolTrajectoriesMax = 1 << 15

// PoolAdvice is how the GPUs of a pool of workers should be divided.
type PoolAdvice struct {
	// Degrees are those of the workers, the highest first.
	Degrees []uint32
	// Trajectories is for how many it is: those that are open, and those that rollouts still need.
	Trajectories int
	// NowNS is when the last of them is expected to end with the degrees that the pool has, 0 if it
	// has no workers; PlannedNS is that with Degrees. Both weigh predictions with degrees.Doubt.
	NowNS, PlannedNS int64
	// CostNS is how long the workers that change do not generate.
	CostNS int64
	// Worthwhile: the steps within which a change must pay gain more than it costs.
	Worthwhile bool
	// Reason says all of that in a sentence.
	Reason string
}

// AdvisePool finds the degrees with which the trajectories of a pool's policy end soonest, as far as
// their lengths are known (Heddle §6), and says whether a change is worth its cost: each worker that
// changes generates nothing until its engine has started. A pool without workers changes anyway.
// Without trajectories it advises nothing.
func AdvisePool(v *state.State, p *state.WorkerPool) (PoolAdvice, error) {
	lengths, trajectories := expected(v, p.Policy)
	advice := PoolAdvice{Trajectories: trajectories}
	if len(lengths) == 0 {
		advice.Reason = fmt.Sprintf("policy %s has no open trajectory, and no open rollout needs one", p.Policy)
		return advice, nil
	}
	lengths = lengths[:min(len(lengths), poolTrajectoriesMax)] // the longest: they decide how long the rollout takes
	options, err := optionsOf(p)
	if err != nil {
		return advice, err
	}
	t := partition.Trajectories{Lengths: lengths}
	a := degrees.Allocator{WorkersMost: state.WorkerPoolWorkersMax}
	chosen, err := a.Choose(t, options, int(p.GPUs), degrees.Doubt)
	if err != nil {
		return advice, fmt.Errorf("choose degrees for worker pool %s: %w", p.Name, err)
	}
	for _, o := range chosen.Options {
		advice.Degrees = append(advice.Degrees, p.Options[o].Degree)
	}
	advice.PlannedNS = chosen.ExpectedNS
	now := p.Degrees()
	if len(now) == 0 {
		advice.Worthwhile, advice.Reason = true, "the pool has no workers"
		return advice, nil
	}
	of := make([]int, len(now))
	for i, degree := range now {
		of[i] = slices.IndexFunc(p.Options, func(o state.WorkerPoolOption) bool { return o.Degree == degree })
	}
	weighed, err := a.Weigh(t, options, of, degrees.Doubt)
	if err != nil {
		return advice, fmt.Errorf("weigh the degrees of worker pool %s: %w", p.Name, err)
	}
	advice.NowNS = weighed.ExpectedNS
	advice.judge(p, now)
	return advice, nil
}

// judge says whether a change from some degrees is worth what it costs.
func (a *PoolAdvice) judge(p *state.WorkerPool, now []uint32) {
	if slices.Equal(now, a.Degrees) {
		a.Reason = "the degrees are the best ones already"
		return
	}
	a.CostNS = p.SetUpNS
	gain := max(0, a.NowNS-a.PlannedNS)
	a.Worthwhile = gain > 0 && gain > a.CostNS/int64(p.PayBack)
	verdict := "not worth it"
	if a.Worthwhile {
		verdict = "worth it"
	}
	a.Reason = fmt.Sprintf("a step is expected to be %s shorter, and the change costs %s once, to be gained within %d steps: %s",
		tenths(gain), tenths(a.CostNS), p.PayBack, verdict)
}

// tenths formats nanoseconds.
func tenths(ns int64) string { return fmt.Sprintf("%d.%d s", ns/1_000_000_000, ns/100_000_000%10) }

// optionsOf are the degrees of a pool, as they are allocated.
func optionsOf(p *state.WorkerPool) (options []degrees.Option, err error) {
	for i := range p.Options {
		o := &p.Options[i]
		var points []partition.Point
		for _, at := range o.Profile {
			points = append(points, partition.Point{Batch: int(at.Batch), TokenNS: at.TokenNS})
		}
		slots := cmp.Or(o.Slots, state.WorkerSlotsMax)
		curve, err := partition.NewCurve(points, int(slots))
		if err != nil {
			return nil, fmt.Errorf("degree %d of worker pool %s: %w", o.Degree, p.Name, err)
		}
		options = append(options, degrees.Option{GPUs: int(o.Degree), Worker: partition.Worker{Curve: curve}})
	}
	return options, nil
}

// expected are the lengths of the trajectories of a policy that are to come and that have not ended,
// the longest first. What open trajectories generate yet is predicted. Of those that open rollouts
// still need, nothing is known but what others of the policy generated; if nothing was learned of
// these either, degrees.Spread.
func expected(v *state.State, policy string) (lengths []int64, trajectories int) {
	v.Generations(0, func(g *state.Generation) bool {
		if g.Policy == policy && !g.Ended {
			lengths = append(lengths, lengthOf(g.Predicted))
		}
		return true
	})
	missing := 0
	v.RolloutsOf(policy, func(r *state.Rollout) bool {
		if r.State == state.RolloutOpen {
			missing += max(0, int(r.Groups*r.Samples)-int(r.Counts.Sampled+r.Counts.Running))
		}
		return true
	})
	trajectories, missing = len(lengths)+missing, min(missing, poolTrajectoriesMax)
	if seen := seenLengths(v, policy); len(seen) > 0 {
		for k := range missing { // the same share of each
			lengths = append(lengths, seen[k*len(seen)/missing])
		}
	} else if missing > 0 {
		trace := predict.Begin(nil, 0, predict.Siblings{})
		lengths = append(lengths, degrees.Spread(missing, lengthOf(predict.Remaining(nil, &trace, predict.Siblings{}).Tokens))...)
	}
	slices.SortFunc(lengths, func(a, b int64) int { return cmp.Compare(b, a) })
	return lengths, trajectories
}

// seenLengths are what trajectories of a policy generated in all, as far as it is remembered: the
// examples of the first stage.
func seenLengths(v *state.State, policy string) (lengths []int64) {
	v.LengthClasses(func(c *state.LengthClass) bool {
		if c.Policy == policy && len(c.Stages) > 0 {
			for x := range slices.Chunk(c.Stages[0].Examples, state.LengthExampleBytes) {
				lengths = append(lengths, lengthOf(uint64(state.LifetimeLeast(uint32(x[state.LengthFeatures])))))
			}
		}
		return true
	})
	slices.SortFunc(lengths, func(a, b int64) int { return cmp.Compare(b, a) })
	return lengths
}

func lengthOf(tokens uint64) int64 { return int64(min(max(tokens, 1), partition.LengthMax)) }
