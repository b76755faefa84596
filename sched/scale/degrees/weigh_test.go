package degrees_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"rota/sched/place/partition"
	"rota/sched/scale/degrees"
)

// TestWeighAgreesWithChoose: what is expected of degrees that run is comparable with a choice. One
// degree for all workers is a candidate if that leaves no GPU on which another worker fits: Choose
// fills the budget.
func TestWeighAgreesWithChoose(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := draw(t, 30, 16)
		lengths, doubt := partition.Trajectories{Lengths: in.lengths}, rapid.IntRange(0, 100).Draw(t, "doubt")
		var a degrees.Allocator
		want, err := a.Choose(lengths, in.options, in.budget, doubt)
		if err != nil || len(want.Options) == 0 {
			t.Skip("nothing to choose")
		}
		got, err := a.Weigh(lengths, in.options, want.Options, doubt)
		if err != nil || got.ExpectedNS != want.ExpectedNS || got.MakespanNS != want.MakespanNS || got.GPUs != want.GPUs {
			t.Fatalf("weighed as %+v, chosen as %+v: %v", got, want, err)
		}
		for option := range in.options {
			if uniform := make([]int, in.budget/in.gpus[option]); len(uniform) > 0 && in.budget%in.gpus[option] < slices.Min(in.gpus) {
				for i := range uniform {
					uniform[i] = option
				}
				if other, err := a.Weigh(lengths, in.options, uniform, doubt); err != nil || other.ExpectedNS < want.ExpectedNS {
					t.Fatalf("%+v is expected to end sooner than the choice %+v: %v", other, want, err)
				}
			}
		}
	})
}
