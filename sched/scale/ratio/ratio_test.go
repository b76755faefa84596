package ratio_test

import (
	"strings"
	"testing"

	"rota/sched/scale/ratio"
)

const second = 1_000_000_000

// at makes a stage of pairs of GPUs and seconds.
func at(unit int, pairs ...int64) ratio.Stage {
	s := ratio.Stage{Unit: unit}
	for i := 0; i < len(pairs); i += 2 {
		s.Measured = append(s.Measured, ratio.Measurement{GPUs: int(pairs[i]), StepNS: pairs[i+1] * second})
	}
	return s
}

func TestAdvise(t *testing.T) {
	for _, c := range []struct {
		what              string
		training, rollout ratio.Stage
		gpus              int
		overlap           bool
		want              ratio.Advice
	}{
		{
			"RollArt's trainer that waits 62 % of the time", at(0, 48, 38), at(0, 48, 100), 96, true,
			// 38 x 48 GPU-seconds of training and 100 x 48 of rollouts.
			ratio.Advice{TrainingGPUs: 27, RolloutGPUs: 69, TrainingNS: 67_555_555_555, RolloutNS: 69_565_217_391, StepNS: 69_565_217_391},
		},
		{
			"a balanced one stays", at(0, 8, 60), at(0, 40, 60), 48, true,
			ratio.Advice{TrainingGPUs: 8, RolloutGPUs: 40, TrainingNS: 60 * second, RolloutNS: 60 * second, StepNS: 60 * second},
		},
		{
			"one after the other, GPUs help as the root of work", at(0, 8, 10), at(0, 8, 40), 24, false,
			ratio.Advice{TrainingGPUs: 8, RolloutGPUs: 16, TrainingNS: 10 * second, RolloutNS: 20 * second, StepNS: 30 * second},
		},
		{
			"in units", at(8, 16, 50), at(4, 16, 50), 36, true,
			ratio.Advice{TrainingGPUs: 16, RolloutGPUs: 20, TrainingNS: 50 * second, RolloutNS: 40 * second, StepNS: 50 * second},
		},
		{
			"a rollout bound by its longest trajectory", at(0, 16, 80), at(0, 16, 90, 32, 85), 48, true,
			// 80 s of the rollout do not scale.
			ratio.Advice{TrainingGPUs: 16, RolloutGPUs: 32, TrainingNS: 80 * second, RolloutNS: 85 * second, StepNS: 85 * second},
		},
		{
			"more GPUs made it slower", at(0, 16, 80), at(0, 8, 90, 16, 100), 32, true,
			ratio.Advice{TrainingGPUs: 13, RolloutGPUs: 19, TrainingNS: 98_461_538_461, RolloutNS: 100 * second, StepNS: 100 * second},
		},
		{
			"faster than in proportion counts as in proportion", at(0, 2, 40), at(0, 2, 90, 4, 10), 4, true,
			ratio.Advice{TrainingGPUs: 1, RolloutGPUs: 3, TrainingNS: 80 * second, RolloutNS: 60 * second, StepNS: 80 * second},
		},
		{
			"the largest of all", at(0, 1<<16, 172_800), at(0, 1<<16, 172_800), 1 << 16, true,
			ratio.Advice{TrainingGPUs: 1 << 15, RolloutGPUs: 1 << 15, TrainingNS: 345_600 * second, RolloutNS: 345_600 * second, StepNS: 345_600 * second},
		},
		{
			"far from what was measured", at(0, 32, 1), at(0, 32, 100), 64, true,
			ratio.Advice{TrainingGPUs: 1, RolloutGPUs: 63, TrainingNS: 32 * second, RolloutNS: 50_793_650_793, StepNS: 50_793_650_793, Extrapolated: true},
		},
	} {
		if got, err := ratio.Advise(c.training, c.rollout, c.gpus, c.overlap); err != nil || got != c.want {
			t.Errorf("%s: %+v, want %+v: %v", c.what, got, c.want, err)
		}
	}
}

func TestAdviseRefuses(t *testing.T) {
	good := at(0, 8, 10)
	for want, c := range map[string]struct {
		training, rollout ratio.Stage
		gpus              int
	}{
		"training: no step":    {ratio.Stage{}, good, 8},
		"rollouts: no step":    {good, ratio.Stage{}, 8},
		"with 0 GPUs":          {at(0, 0, 1), good, 8},
		"a step of 0 ns":       {at(0, 1, 0), good, 8},
		"give at least 12":     {at(8, 8, 10), at(4, 8, 10), 11},
		"too many":             {good, good, 1 << 20},
		"give at least 2":      {good, good, -5},
		"a unit of 1048576":    {at(1<<20, 1, 1), good, 8},
		"rollouts: a step of ": {good, at(0, 8, 200_000), 8},
	} {
		if _, err := ratio.Advise(c.training, c.rollout, c.gpus, true); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}
