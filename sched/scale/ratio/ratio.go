package ratio

import (
	"fmt"
	"math"

	"rota/fsm/state"
)

const (
	// GPUsMax is the most GPUs.
	GPUsMax = 1 << 16
	// timeMaxNS is the longest step, two days.
	timeMaxNS = 2 * 86_400 * 1_000_000_000
	// extrapolation is how many times fewer or more GPUs than measured are no extrapolation.
	extrapolation = 2
)

// Measurement is the mean time of a stage's step with a number of GPUs.
type Measurement struct {
	GPUs   int
	StepNS int64
}

// Stage is training or rollouts.
type Stage struct {
	// Measured are at least one number of GPUs. The fewest and the most count.
	Measured []Measurement
	// Unit is what its GPUs are a multiple of, such as its model-parallel degree; 0 counts as 1.
	Unit int
}

// Advice is a division of GPUs.
type Advice struct {
	TrainingGPUs, RolloutGPUs int
	// TrainingNS and RolloutNS are what the stages are expected to take.
	TrainingNS, RolloutNS int64
	// StepNS is the longer one of them if they overlap, and otherwise their sum.
	StepNS int64
	// Extrapolated says that a stage gets less than half or more than twice of what was measured.
	Extrapolated bool
}

// line is a + b/g, in nanoseconds.
type line struct {
	fixed, scaled uint64
	fewest, most  int // GPUs that were measured
}

// Advise divides GPUs so that a step takes the least time. Training and rollouts overlap if
// training is asynchronous. Of equal divisions it takes the one with the fewest GPUs for training.
func Advise(training, rollout Stage, gpus int, overlap bool) (Advice, error) {
	if gpus > GPUsMax {
		return Advice{}, fmt.Errorf("%d GPUs are too many: give at most %d", gpus, GPUsMax)
	}
	t, err := training.fit()
	if err != nil {
		return Advice{}, fmt.Errorf("training: %w", err)
	}
	r, err := rollout.fit()
	if err != nil {
		return Advice{}, fmt.Errorf("rollouts: %w", err)
	}
	best := Advice{StepNS: math.MaxInt64}
	unit, other := max(training.Unit, 1), max(rollout.Unit, 1)
	for n := unit; n+other <= gpus; n += unit {
		a := Advice{TrainingGPUs: n, RolloutGPUs: (gpus - n) / other * other}
		a.TrainingNS, a.RolloutNS = t.at(a.TrainingGPUs), r.at(a.RolloutGPUs)
		if a.StepNS = a.TrainingNS + a.RolloutNS; overlap {
			a.StepNS = max(a.TrainingNS, a.RolloutNS)
		}
		if a.StepNS < best.StepNS {
			a.Extrapolated = t.beyond(a.TrainingGPUs) || r.beyond(a.RolloutGPUs)
			best = a
		}
	}
	if best.TrainingGPUs == 0 {
		return Advice{}, fmt.Errorf("%d GPUs are too few for training in units of %d and rollouts in units of %d: give at least %d", gpus, unit, other, unit+other)
	}
	return best, nil
}

// fit finds the line of a stage through its measurements with the fewest and the most GPUs.
func (s Stage) fit() (line, error) {
	if len(s.Measured) == 0 {
		return line{}, fmt.Errorf("no step was measured: give its time with one number of GPUs or more")
	}
	if s.Unit > GPUsMax {
		return line{}, fmt.Errorf("a unit of %d GPUs is too large: give at most %d", s.Unit, GPUsMax)
	}
	few, many := s.Measured[0], s.Measured[0]
	for _, m := range s.Measured {
		if m.GPUs < 1 || m.GPUs > GPUsMax || m.StepNS < 1 || m.StepNS > timeMaxNS {
			return line{}, fmt.Errorf("a step of %d ns with %d GPUs: give 1 to %d ns and 1 to %d GPUs", m.StepNS, m.GPUs, int64(timeMaxNS), GPUsMax)
		}
		if m.GPUs < few.GPUs {
			few = m
		}
		if m.GPUs > many.GPUs {
			many = m
		}
	}
	l := line{fewest: few.GPUs, most: many.GPUs}
	slow, fast := uint64(few.StepNS), uint64(many.StepNS)
	switch g, h := uint64(few.GPUs), uint64(many.GPUs); {
	case g == h:
		l.scaled = slow * g
	case slow <= fast: // more GPUs do not help
		l.fixed = fast
	default:
		// (slow-fast) = b/g - b/h. The part that scales is at most all of it.
		l.scaled = min(state.MulDiv(slow-fast, g*h, h-g), slow*g)
		l.fixed = slow - l.scaled/g
	}
	return l, nil
}

// at is the time with a number of GPUs; two of them add up to no more than 63 bits.
func (l line) at(gpus int) int64 {
	return int64(min(l.fixed+l.scaled/uint64(gpus), math.MaxInt64/2))
}

// beyond reports whether a number of GPUs is far from what was measured.
func (l line) beyond(gpus int) bool {
	return gpus*extrapolation < l.fewest || gpus > l.most*extrapolation
}
