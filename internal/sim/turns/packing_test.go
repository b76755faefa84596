package turns

import (
	"testing"
)

// TestBaselinesByHand: 30B alone takes 64 + 8 GPUs for 284.8 s. Colocated it holds 64
// for 83.54 s and a set-up of 19 s, and for a rollout of 277.23 s on 8 GPUs, or on all.
func TestBaselinesByHand(t *testing.T) {
	b := NewBaseline(&Models[1], 19*second)
	if want := int64(72 * 284_800); b.SplitAsync != want {
		t.Errorf("split-async takes %d GPU ms, want %d", b.SplitAsync, want)
	}
	if want := int64(64 * (277_230 + 102_540)); b.ColocatedMost != want {
		t.Errorf("colocated takes at most %d GPU ms, want %d", b.ColocatedMost, want)
	}
	// 277,230 * 8 * 75.03 / 52.74 = 3,155,186 and 64 * 102,540.
	if want := int64(3_155_186 + 6_562_560); b.ColocatedLeast < want-10 || b.ColocatedLeast > want+10 {
		t.Errorf("colocated takes at least %d GPU ms, want %d", b.ColocatedLeast, want)
	}
	// The paper: 30B is dearer than split-async when it is colocated.
	if b.ColocatedMost <= b.SplitAsync || b.ColocatedLeast >= b.SplitAsync {
		t.Errorf("split-async is not between the bounds: %+v", b)
	}
}

// TestTheBoundsOfTwoJobs: without slowdown two jobs save half of a training group.
func TestTheBoundsOfTwoJobs(t *testing.T) {
	for i, want := range []int64{400_000, 444_444, 375_000} {
		x := Packed{Model: &Models[i], Admitted: 2, StepNS: Models[i].CycleNS, AloneNS: Models[i].CycleNS}
		if got := x.SavingPPM(); got < want-2 || got > want+2 || x.SlowdownPPM() != 0 {
			t.Errorf("two jobs of %s save %d ppm, want %d", x.Model.Name, got, want)
		}
		x.StepNS += x.StepNS / 10
		if got, want := x.SavingPPM(), million-(million-want)*11/10; got < want-2 || got > want+2 || x.SlowdownPPM() != 100_000 {
			t.Errorf("two jobs of %s that are slower by 10 %% save %d ppm, want %d", x.Model.Name, got, want)
		}
	}
}

// small are few steps.
func small() PackingParams {
	p := DefaultPacking()
	p.Steps, p.Warm = 20, 2
	return p
}

// TestAJobAloneTakesItsCycle: nobody is in its way, and without luck a step is exactly
// what Table 2 says.
func TestAJobAloneTakesItsCycle(t *testing.T) {
	p := small()
	p.JitterPPM = 0
	for i := range Models {
		for _, s := range []SetUp{{}, {SetUpMax, false}, {SetUpMax, true}} {
			x, err := Pack(&Models[i], s, 1, p)
			if err != nil {
				t.Fatal(err)
			}
			if x.StepNS != Models[i].CycleNS || x.Admitted != 1 {
				t.Errorf("%s alone, set-up %+v: %d ns, want %d", x.Model.Name, s, x.StepNS, Models[i].CycleNS)
			}
		}
	}
}

// TestTwoJobsShareAGroup: on the real state machine, for each model and with the longest
// set-up. A third of what is free is enough for one, so both get a place.
func TestTwoJobsShareAGroup(t *testing.T) {
	for i := range Models {
		for _, s := range []SetUp{{}, {SetUpMax, false}, {SetUpMax, true}} {
			x, err := Pack(&Models[i], s, 2, small())
			if err != nil {
				t.Fatal(err)
			}
			alone, err := Pack(&Models[i], SetUp{}, 1, small())
			if err != nil {
				t.Fatal(err)
			}
			x.AloneNS = alone.StepNS
			t.Logf("%s, set-up %+v: saves %d ppm, slower by %d ppm, %d ppm stalled", x.Model.Name, s, x.SavingPPM(), x.SlowdownPPM(), x.StalledPPM)
			if x.Admitted != 2 || x.SlowdownPPM() > 50_000 {
				t.Errorf("%s: %d jobs, slower by %d ppm", x.Model.Name, x.Admitted, x.SlowdownPPM())
			}
		}
	}
}

// TestMoreThanFitAreNotAdmitted: with serial set-ups of the longest kind, three of 30B
// would hold the group for longer than there is.
func TestMoreThanFitAreNotAdmitted(t *testing.T) {
	x, err := Pack(&Models[1], SetUp{SetUpMax, false}, 3, small())
	if err != nil {
		t.Fatal(err)
	}
	if x.Admitted != 2 {
		t.Errorf("%d jobs of %s on one group", x.Admitted, x.Model.Name)
	}
}
