package plan

import (
	"fmt"
	"math"

	"rota/fsm/state"
)

// StepTimes are what was measured of the last steps of a policy, in nanoseconds: from the batch of a
// step to the version that it made, and from there to the batch of the next step.
type StepTimes struct {
	Steps           uint64
	TrainNS, WaitNS int64
	// Synchronous: no trajectory may begin with an older version, so nothing is generated while
	// the trainer works.
	Synchronous bool
}

// Split is how many GPUs train and how many generate, and what a step takes.
type Split struct {
	Train, Rollout uint32
	StepNS         int64
}

// RatioAdvice is which part of all GPUs should train (RollArt §8).
type RatioAdvice struct {
	Now, Best Split
	// Idle is the part of a step in which the trainer waits now, in percent.
	Idle uint32
	// Reason says why, in sentences.
	Reason string
}

const (
	// ratioStepsMin is how many steps must have been measured.
	ratioStepsMin = 3
	// ratioWaitPercent is up to which part of a step the trainer is taken not to wait.
	ratioWaitPercent = 2
	// ratioGainPercent is what another split must gain at least.
	ratioGainPercent = 5
	// RatioGPUsMax bounds the GPUs of one kind.
	RatioGPUsMax = 1 << 20
)

// Ratio advises how the GPUs of a trainer and of its rollouts should be divided. Each part of a step
// is taken to be twice as fast with twice the GPUs. If rollouts overlap training, they take the whole step while the
// trainer waits for them; if it does not wait, how fast they are is not known.
func Ratio(t StepTimes, train, rollout uint32) (RatioAdvice, error) {
	if train == 0 || rollout == 0 || max(train, rollout) > RatioGPUsMax {
		return RatioAdvice{}, fmt.Errorf("there must be 1 to %d GPUs that train and that generate, not %d and %d", RatioGPUsMax, train, rollout)
	}
	step := t.TrainNS + t.WaitNS
	now := Split{train, rollout, step}
	a := RatioAdvice{Now: now, Best: now, Idle: uint32(state.MulDiv(uint64(t.WaitNS), 100, uint64(max(1, step))))}
	switch {
	case t.Steps < ratioStepsMin || step <= 0:
		return a, fmt.Errorf("%d steps were measured; %d are needed, each with a batch, a version and the batch after it", t.Steps, ratioStepsMin)
	case !t.Synchronous && a.Idle <= ratioWaitPercent:
		a.Reason = fmt.Sprintf("The trainer waits for %d %% of a step, so training decides how long a step takes. "+
			"How much faster the rollouts are is not known. Give the trainer more GPUs, a few at a time, until it begins to wait.", a.Idle)
		return a, nil
	}
	a.Best = bestSplit(t, train, rollout)
	gain := 100 - int64(state.MulDiv(uint64(a.Best.StepNS), 100, uint64(step)))
	if a.Best.Train == train || gain < ratioGainPercent {
		a.Best = now
		a.Reason = fmt.Sprintf("The trainer waits for %d %% of a step. No other division of the %d GPUs makes a step shorter by %d %% or more. Stay with %d that train and %d that generate.",
			a.Idle, train+rollout, ratioGainPercent, train, rollout)
		return a, nil
	}
	a.Reason = fmt.Sprintf("The trainer waits for %d %% of a step. With %d GPUs that train and %d that generate, a step would take %s instead of %s, which is %d %% less. "+
		"This assumes that each part is twice as fast with twice the GPUs.",
		a.Idle, a.Best.Train, a.Best.Rollout, tenths(a.Best.StepNS), tenths(step), gain)
	return a, nil
}

// stepNS is how long a step takes with so many GPUs.
func stepNS(t StepTimes, train, rollout, trains, generates uint32) int64 {
	training := int64(min(state.MulDiv(uint64(t.TrainNS), uint64(train), uint64(trains)), math.MaxInt64/2))
	alone := t.WaitNS
	if !t.Synchronous {
		alone += t.TrainNS
	}
	generating := int64(min(state.MulDiv(uint64(alone), uint64(rollout), uint64(generates)), math.MaxInt64/2))
	if t.Synchronous {
		return training + generating
	}
	return max(training, generating)
}

// bestSplit is the division with the shortest step, and of equal ones that with the fewest that
// train. Both parts are convex in the number that trains, so is their sum or maximum: the least is
// found by halving the range by its slope. Equal neighbours are only at the bottom, as times are
// much longer than a nanosecond for each GPU.
func bestSplit(t StepTimes, train, rollout uint32) Split {
	all := train + rollout
	least, most := uint32(1), all-1
	for least < most {
		half := least + (most-least)/2
		if stepNS(t, train, rollout, half, all-half) <= stepNS(t, train, rollout, half+1, all-half-1) {
			most = half
		} else {
			least = half + 1
		}
	}
	return Split{least, all - least, stepNS(t, train, rollout, least, all-least)}
}

// RatioOf advises about a policy: its rollouts have the GPUs of its workers.
func RatioOf(v *state.State, p *state.Policy, train uint32) (RatioAdvice, error) {
	rollout := uint64(0)
	v.WorkersOf(p.Name, func(w *state.Worker) bool { rollout += uint64(w.Degree); return true })
	t := StepTimes{Steps: p.Steps, TrainNS: p.TrainNS, WaitNS: p.WaitNS, Synchronous: true}
	v.RolloutsOf(p.Name, func(r *state.Rollout) bool {
		t.Synchronous = t.Synchronous && r.Staleness == 0
		return true
	})
	return Ratio(t, train, uint32(min(rollout, RatioGPUsMax+1)))
}
