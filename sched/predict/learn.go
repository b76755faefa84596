package predict

import (
	"slices"

	"rota/fsm/state"
)

// Learn returns the class with one more trajectory, which has ended, at a log time in nanoseconds.
//
// A trajectory that was cut off, because others ended it, generated less than it would have. So
// it teaches only where it had already generated more than was predicted.
//
// What a class knows after a step must not depend on the order in which its trajectories ended,
// as the longest end last. So a stage is a sample of all examples that it represents, and not the
// last ones.
func Learn(c *state.LengthClass, t *state.LengthTrace, cut bool, now int64) *state.LengthClass {
	out := *c
	out.LearnedAt = max(c.LearnedAt, now)
	out.Trajectories++
	out.Stages = slices.Clone(c.Stages)
	learned := false
	for i := range t.Marks {
		m := &t.Marks[i]
		tokens, turns := t.OutputTokens-m.OutputTokens, t.Turns-m.Turns
		if turns == 0 || cut && position(tokens) <= int(m.Guess) {
			continue
		}
		for len(out.Stages) <= int(m.Stage) {
			out.Stages = append(out.Stages, state.LengthStage{})
		}
		add(&out.Stages[m.Stage], m, tokens, uint64(turns))
		learned = true
	}
	if !learned {
		return c
	}
	count(&out, t)
	return &out
}

// add takes an example into a stage.
func add(g *state.LengthStage, m *state.LengthMark, tokens, turns uint64) {
	var x [state.LengthExampleBytes]byte
	copy(x[:], m.Features[:])
	x[state.LengthFeatures], x[state.LengthFeatures+1] = bucket(tokens), bucket(turns)
	was := position(tokens)
	if m.Siblings > 0 {
		n := uint64(m.Siblings)
		g.SiblingError = mean(g.SiblingError, g.SiblingsSeen, square(was, m.SiblingGuess)*n/(n+1))
		g.SiblingsSeen++
	}
	g.Error = mean(g.Error, g.Seen, square(was, m.Guess))
	g.NearError = mean(g.NearError, g.Seen, square(was, m.Near))
	g.PlaneError = mean(g.PlaneError, g.Seen, square(was, m.Plane))
	at := place(g.Seen) * state.LengthExampleBytes
	g.Seen++
	if at >= state.LengthExamplesMax*state.LengthExampleBytes {
		return
	}
	g.Examples = slices.Clone(g.Examples)
	if at == len(g.Examples) {
		g.Examples = append(g.Examples, x[:]...)
	} else {
		old := (*[state.LengthExampleBytes]byte)(g.Examples[at:])
		sum(&g.Plane, old, false)
		*old = x
	}
	sum(&g.Plane, &x, true)
	fit(&g.Plane, len(g.Examples)/state.LengthExampleBytes)
}

// place returns where in a stage an example goes before which it has seen so many; it is not taken
// if that is LengthExamplesMax or more. Each of all examples seen is in the sample with the same
// chance (Vitter's algorithm R). Beyond memory, each new one has the chance that the last one of
// memory examples has, and an old one's falls by a factor of e with every memory examples.
//
// What is drawn depends on the count alone, so all replicas draw the same.
func place(seen uint64) int {
	if seen < state.LengthExamplesMax {
		return int(seen)
	}
	return int(mixed(seen) % min(seen+1, memory))
}

// mixed returns a number whose bits all depend on all bits of n (SplitMix64's finalizer).
func mixed(n uint64) uint64 {
	n += 0x9e37_79b9_7f4a_7c15
	n = (n ^ n>>30) * 0xbf58_476d_1ce4_e5b9
	n = (n ^ n>>27) * 0x94d0_49bb_1331_11eb
	return n ^ n>>31
}

// mean is a mean with one more value in it: of all at first, and later each new one counts for
// one of errorMemory.
func mean(old, seen, value uint64) uint64 {
	n := int64(min(seen+1, errorMemory))
	return uint64(int64(old) + (int64(value)-int64(old))/n)
}

// square is the squared difference of positions.
func square(was int, guess uint32) uint64 {
	d := int64(was) - int64(guess)
	return uint64(d * d)
}
