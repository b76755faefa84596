package predict

import (
	"rota/fsm/state"
)

const (
	// unit is a bucket in positions: they are in 1/256 buckets.
	unit = 256
	// few is how many examples a stage must have to predict by itself.
	few = 8
	// many is how many it must have for a plane through them to count.
	many = 2 * few
	// unknownTokens and unknownTurns are what is predicted while nothing was learned.
	unknownTokens, unknownTurns = 2048, 8
	// spread is how far the 90th percentile lies above that: 2 octaves.
	spread = 8 * unit
	// errorUnknown is the error of a prediction before one was seen: of an octave.
	errorUnknown = (4 * unit) * (4 * unit)
	// memory is how many examples a stage represents: all up to so many, and of more those that
	// came last count most. It is well beyond one step of a training run, because trajectories end
	// in the order of their lengths: the last ones of a step are its longest.
	memory = 4096
	// errorMemory is how many errors a mean is made of.
	errorMemory = 1024
)

// Quantiles are what a trajectory is predicted to generate yet.
type Quantiles struct {
	// Tokens is the geometric mean: what to order by.
	Tokens uint64
	// P50 and P90 are tokens that are not exceeded in so many percent of the cases; P50 is at
	// most P90.
	P50, P90 uint64
	// Turns is the geometric mean.
	Turns uint64
}

// Remaining predicts what a trajectory generates yet, given that it goes on at all. A class that
// is nil has learned nothing.
func Remaining(c *state.LengthClass, t *state.LengthTrace, s Siblings) Quantiles {
	f := features(t)
	e := expect(c, t, &f)
	if s.Finished > 0 {
		e.shift(e.combined(s.Finished, s.position(t.OutputTokens)) - e.tokens.mean)
	}
	return Quantiles{Tokens: value(e.tokens.mean), P50: value(e.tokens.p50), P90: value(e.tokens.p90), Turns: value(e.turns)}
}

// bucket returns the logarithm of a number of tokens or milliseconds, in quarters of an octave.
func bucket(n uint64) uint8 { return uint8(state.LifetimeBucket(int64(min(n, 1<<62)))) }

// position returns where in its bucket a number is: whole numbers lie in the middle of the
// interval up to the next.
func position(n uint64) int {
	b := uint32(bucket(n))
	least, next := uint64(state.LifetimeLeast(b)), uint64(state.LifetimeLeast(b+1))
	return int(b)*unit + int((unit*(n-least)+unit/2)/(next-least))
}

// value returns the number at a position, 0 if that is negative.
func value(p int) uint64 {
	p = max(0, p)
	b := uint32(p / unit)
	least, next := uint64(state.LifetimeLeast(b)), uint64(state.LifetimeLeast(b+1))
	return least + (next-least)*uint64(p%unit)/unit
}

// position returns where a trajectory that has generated so much gets by its siblings: to their
// mean, or, if it is about there or beyond, by a quarter of it further.
func (s Siblings) position(output uint64) int {
	mean := min(s.MeanTokens, state.LengthTokensMax)
	return position(max(mean-min(mean, output), mean/4))
}
