package plan_test

import (
	"strings"
	"testing"

	"rota/fsm/state"
	"rota/sched/plan"
)

// poolOf is a state with a pool of 8 GPUs and trajectories of its policy, by what they are predicted to
// generate.
func poolOf(predicted ...uint64) (*state.State, *state.WorkerPool) {
	s := state.New()
	s.SetMeta(state.Meta{ClusterID: "test", Level: state.LevelResizing})
	s.PutPolicy(&state.Policy{Name: "p"})
	for i, tokens := range predicted {
		s.PutTrajectory(&state.Trajectory{ID: state.TrajectoryID(1 + i), State: state.TrajectoryOpen})
		s.PutGeneration(&state.Generation{Trajectory: state.TrajectoryID(1 + i), Policy: "p", Predicted: tokens, Cause: state.PlacedOpened})
	}
	p := &state.WorkerPool{Name: "x", Policy: "p", GPUs: 8, PayBack: 1}
	for i, ms := range []int64{20, 12, 7, 4} {
		p.Options = append(p.Options, state.WorkerPoolOption{Degree: 1 << i, Slots: 64, Profile: []state.WorkerPoint{
			{Batch: 1, TokenNS: ms * 1_000_000}, {Batch: 64, TokenNS: 3 * ms * 1_000_000},
		}})
	}
	return s, p
}

// have gives the pool members with degrees.
func have(p *state.WorkerPool, degrees ...uint32) *state.WorkerPool {
	q := *p
	q.Members = nil
	for i, d := range degrees {
		q.Members = append(q.Members, state.WorkerPoolMember{Serial: uint64(1 + i), Degree: d})
	}
	return &q
}

func advise(t *testing.T, s *state.State, p *state.WorkerPool) plan.PoolAdvice {
	t.Helper()
	a, err := plan.AdvisePool(s, p)
	if err != nil {
		t.Fatal(err)
	}
	sum := uint32(0)
	for _, d := range a.Degrees {
		sum += d
	}
	if sum > p.GPUs || a.Reason == "" {
		t.Fatalf("advice %+v for %d GPUs", a, p.GPUs)
	}
	return a
}

// TestAdviceWeighsItsCost: a change is worth it if the steps within which it must pay gain more than
// starting engines costs.
func TestAdviceWeighsItsCost(t *testing.T) {
	s, p := poolOf(200_000)
	first := advise(t, s, p)
	if !first.Worthwhile || first.Trajectories != 1 || len(first.Degrees) != 1 || first.Degrees[0] != 8 || first.NowNS != 0 {
		t.Fatalf("one trajectory wants all GPUs: %+v", first)
	}
	if same := advise(t, s, have(p, 8)); same.Worthwhile || same.NowNS != same.PlannedNS || !strings.Contains(same.Reason, "already") {
		t.Errorf("the degrees are as advised: %+v", same)
	}
	small := have(p, 1, 1, 1, 1, 1, 1, 1, 1)
	a := advise(t, s, small)
	gain := a.NowNS - a.PlannedNS
	if !a.Worthwhile || gain <= 0 || a.CostNS != 0 {
		t.Fatalf("a change that costs nothing: %+v", a)
	}
	small.SetUpNS = gain
	if a := advise(t, s, small); a.Worthwhile || a.CostNS != gain {
		t.Errorf("a change that costs what it gains: %+v", a)
	}
	if small.PayBack = 2; !advise(t, s, small).Worthwhile {
		t.Errorf("a change that costs half of what it gains in 2 steps: %+v", advise(t, s, small))
	}
}

// TestAdviceKnowsWhatRolloutsNeed: trajectories that are not open yet count, with lengths as others of
// the policy had.
func TestAdviceKnowsWhatRolloutsNeed(t *testing.T) {
	s, p := poolOf()
	if a := advise(t, s, p); a.Trajectories != 0 || len(a.Degrees) != 0 || a.Worthwhile {
		t.Errorf("nothing is to come: %+v", a)
	}
	s.PutRollout(&state.Rollout{ID: 1, Policy: "p", Groups: 10, Samples: 4, State: state.RolloutOpen, Counts: state.RolloutCounts{Sampled: 3, Running: 2}})
	s.PutRollout(&state.Rollout{ID: 2, Policy: "p", Groups: 10, Samples: 4, State: state.RolloutClosing})
	s.PutRollout(&state.Rollout{ID: 3, Policy: "q", Groups: 10, Samples: 4, State: state.RolloutOpen})
	unknown := advise(t, s, p)
	if unknown.Trajectories != 35 {
		t.Errorf("35 are missing: %+v", unknown)
	}
	example := make([]byte, state.LengthExampleBytes)
	example[state.LengthFeatures] = byte(state.LifetimeBucket(1 << 16))
	s.PutLengthClass(&state.LengthClass{Policy: "p", Name: "c", Trajectories: 1, Stages: []state.LengthStage{{Seen: 1, Examples: example}}})
	if known := advise(t, s, p); known.Trajectories != 35 || known.PlannedNS <= unknown.PlannedNS {
		t.Errorf("others generated 65,536 tokens each: %+v, and %+v without knowing that", known, unknown)
	}
}

// TestAdviceForMoreThanIsPlanned: the longest count, and the pool gets workers.
func TestAdviceForMoreThanIsPlanned(t *testing.T) {
	s, p := poolOf(make([]uint64, 33_000)...)
	if a := advise(t, s, p); len(a.Degrees) == 0 || a.Trajectories != 33_000 {
		t.Errorf("advice for 33,000 trajectories: %+v", a)
	}
}

// TestAdviceUsesAllGPUs: where as many workers of the best degree as there are GPUs for are too many, the
// pool has fewer workers with more GPUs each, and none is idle.
func TestAdviceUsesAllGPUs(t *testing.T) {
	s, p := poolOf(make([]uint64, 2048)...)
	p.GPUs, p.Options = 2*state.WorkerPoolWorkersMax, p.Options[:2]
	for i := range p.Options {
		p.Options[i].Slots = 4 // 512 workers of degree 1 would have room for all at once
	}
	a, gpus := advise(t, s, p), uint32(0)
	for _, degree := range a.Degrees {
		gpus += degree
	}
	if gpus != p.GPUs || len(a.Degrees) > state.WorkerPoolWorkersMax {
		t.Errorf("%d workers have %d of %d GPUs", len(a.Degrees), gpus, p.GPUs)
	}
}
