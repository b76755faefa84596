package plan

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

const second = 1_000_000_000

func TestRatio(t *testing.T) {
	for what, test := range map[string]struct {
		times          StepTimes
		train, rollout uint32
		want           Split
		says           string
	}{
		// RollArt §8: with 1 : 5 the trainer waits for most of an iteration.
		"rollouts are too slow":           {StepTimes{Steps: 9, TrainNS: 38 * second, WaitNS: 62 * second}, 32, 96, Split{15, 113, 84_955_752_212}, "waits for 62 % of a step"},
		"the trainer hardly waits":        {StepTimes{Steps: 9, TrainNS: 99 * second, WaitNS: second}, 32, 96, Split{32, 96, 100 * second}, "Give the trainer more GPUs"},
		"nothing is gained":               {StepTimes{Steps: 9, TrainNS: 95 * second, WaitNS: 5 * second}, 64, 64, Split{64, 64, 100 * second}, "Stay with 64"},
		"synchronous, as long as GPUs":    {StepTimes{Steps: 9, TrainNS: 50 * second, WaitNS: 50 * second, Synchronous: true}, 8, 8, Split{8, 8, 100 * second}, "Stay with 8"},
		"synchronous, rollouts take most": {StepTimes{Steps: 9, TrainNS: 10 * second, WaitNS: 90 * second, Synchronous: true}, 8, 8, Split{4, 12, 80 * second}, "20 % less"},
	} {
		a, err := Ratio(test.times, test.train, test.rollout)
		if err != nil || a.Best != test.want || !strings.Contains(a.Reason, test.says) {
			t.Errorf("%s: %+v, %v, want %+v and %q", what, a, err, test.want, test.says)
		}
	}
	for what, err := range map[string]error{
		"2 steps": second1(Ratio(StepTimes{Steps: 2, TrainNS: second}, 1, 1)), "1 to 1048576 GPUs": second1(Ratio(StepTimes{Steps: 9, TrainNS: second}, 0, 1)),
	} {
		if err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func second1(_ RatioAdvice, err error) error { return err }

// TestBestSplitIsTheBest: no other division has a shorter step.
func TestBestSplitIsTheBest(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		times := StepTimes{
			TrainNS: rapid.Int64Range(second, 10_000*second).Draw(r, "train"), WaitNS: rapid.Int64Range(0, 10_000*second).Draw(r, "wait"), Synchronous: rapid.Bool().Draw(r, "synchronous"),
		}
		train, rollout := rapid.Uint32Range(1, 200).Draw(r, "trains"), rapid.Uint32Range(1, 200).Draw(r, "generates")
		got := bestSplit(times, train, rollout)
		if got.Train+got.Rollout != train+rollout || got.Train == 0 || got.Rollout == 0 {
			t.Fatalf("%+v of %d and %d", got, train, rollout)
		}
		for n := uint32(1); n < train+rollout; n++ {
			if step := stepNS(times, train, rollout, n, train+rollout-n); step < got.StepNS {
				t.Fatalf("%+v of %d and %d, but with %d that train a step takes %d ns", got, train, rollout, n, step)
			}
		}
	})
}
