package model

import (
	"errors"
	"fmt"
	"math/bits"
)

// ErrProfile means that a profile cannot be used.
var ErrProfile = errors.New("simulated engine: the profile is not valid")

// Bounds of what a profile may say. They keep sums of picoseconds within 63 bits.
const (
	stepMaxPS    = 100_000_000_000_000 // 100 s
	prefillMaxPS = 10_000_000_000      // 10 ms for each token
	kvMaxPS      = 1_000_000           // 1 us for each token
	tokensMax    = 100_000_000
	// spanMax bounds the steps that are computed at once, and chunkMax the tokens of prompts in a
	// step.
	spanMax, chunkMax = 1 << 15, 1 << 15
	pointsMax         = 32
)

// Point is how long a step with a batch of requests takes, without what depends on contexts.
type Point struct {
	Batch  int64
	StepPS int64
}

// Profile says how long an engine takes. Times are in picoseconds where the name ends in PS, and
// in nanoseconds where it ends in NS.
type Profile struct {
	// Name is what --profile takes. Model, Hardware and Degree say what it is about: Degree GPUs
	// share the model.
	Name, Model, Hardware string
	Degree                int
	// Batch is in increasing order of batch sizes, with one point at least. Between two points
	// it is a line. Below the first one it is constant, and beyond the last one the line through
	// the last two goes on.
	Batch []Point
	// KVReadPS is added to a step for each token in the KV cache of a decoding request.
	KVReadPS int64
	// PrefillTokenPS is for a token of a prompt that is in no cache; PrefillPairPS for each pair
	// of such a token and one before it.
	PrefillTokenPS, PrefillPairPS int64
	// KVTokens is how many tokens the KV cache holds, and KVBytes how large one is.
	KVTokens, KVBytes int64
	// TransferNS is what a transfer of a prefix to another engine takes however short it is;
	// TransferBytesPerSecond is its bandwidth.
	TransferNS, TransferBytesPerSecond int64
	// SleepNS and WakeNS are to give the memory of the weights back, and to take it again with
	// the weights from host memory. UpdateNS is to get the weights of another version.
	SleepNS, WakeNS, UpdateNS int64
	// Source says where the figures are from, and which of them are estimates.
	Source string
}

// Validate says what is wrong with a profile.
func (p *Profile) Validate() error {
	if len(p.Batch) == 0 || len(p.Batch) > pointsMax {
		return fmt.Errorf("%w: %d points of batch times, want 1 to %d", ErrProfile, len(p.Batch), pointsMax)
	}
	for i, at := range p.Batch {
		switch {
		case at.Batch < 1 || at.Batch > tokensMax || at.StepPS < 1 || at.StepPS > stepMaxPS:
			return fmt.Errorf("%w: a batch of %d takes %d ps; want at least 1, and at most 100 s", ErrProfile, at.Batch, at.StepPS)
		case i > 0 && (at.Batch <= p.Batch[i-1].Batch || at.StepPS < p.Batch[i-1].StepPS):
			return fmt.Errorf("%w: batch times must be in increasing order, and larger batches no faster", ErrProfile)
		}
	}
	for _, c := range []struct {
		name       string
		value, max int64
	}{
		{"KVReadPS", p.KVReadPS, kvMaxPS},
		{"PrefillTokenPS", p.PrefillTokenPS, prefillMaxPS},
		{"PrefillPairPS", p.PrefillPairPS, kvMaxPS},
		{"KVTokens", p.KVTokens, tokensMax},
		{"KVBytes", p.KVBytes, 1 << 30},
		{"TransferNS", p.TransferNS, maxNS},
		{"TransferBytesPerSecond", p.TransferBytesPerSecond, 1 << 50},
		{"SleepNS", p.SleepNS, maxNS},
		{"WakeNS", p.WakeNS, maxNS},
		{"UpdateNS", p.UpdateNS, maxNS},
	} {
		if c.value < 0 || c.value > c.max {
			return fmt.Errorf("%w: %s is %d, want 0 to %d", ErrProfile, c.name, c.value, c.max)
		}
	}
	if p.KVTokens < 2 {
		return fmt.Errorf("%w: the KV cache has %d tokens, want at least 2", ErrProfile, p.KVTokens)
	}
	return nil
}

// StepPS is how long a step with a batch takes, without what depends on contexts, rounded down to
// picoseconds.
func (p *Profile) StepPS(batch int64) int64 {
	at := p.Batch
	if batch <= at[0].Batch || len(at) == 1 {
		return at[0].StepPS
	}
	i := 1
	for i < len(at)-1 && at[i].Batch < batch {
		i++
	}
	a, b := at[i-1], at[i]
	return a.StepPS + (b.StepPS-a.StepPS)/(b.Batch-a.Batch)*(batch-a.Batch) +
		(b.StepPS-a.StepPS)%(b.Batch-a.Batch)*(batch-a.Batch)/(b.Batch-a.Batch)
}

// PrefillNS is how long it takes to compute tokens of a prompt that follow others, in one step and
// without what else is in the step.
func (p *Profile) PrefillNS(tokens, after int64) int64 {
	return p.prefillPS(tokens, after) / psPerNS
}

func (p *Profile) prefillPS(tokens, after int64) int64 {
	return tokens*p.PrefillTokenPS + (tokens*after+tokens*(tokens-1)/2)*p.PrefillPairPS
}

// TransferTimeNS is how long a prefix of so many tokens takes to another engine.
func (p *Profile) TransferTimeNS(tokens int64) int64 {
	if p.TransferBytesPerSecond == 0 {
		return p.TransferNS
	}
	hi, lo := bits.Mul64(uint64(tokens*p.KVBytes), 1_000_000_000)
	ns, _ := bits.Div64(hi, lo, uint64(p.TransferBytesPerSecond))
	return p.TransferNS + int64(ns)
}
