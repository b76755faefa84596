package partition

import (
	"fmt"
	"math/bits"
)

// TimeMaxNS is the longest time of a group.
const TimeMaxNS = LengthMax * TokenMaxNS

// Worker is what the placement knows of a worker.
type Worker struct {
	Curve Curve
	// ContextNS is added to the time for a token, for each 1,000 tokens of context of its group;
	// 0: the curve says it all. It is what reading KV caches costs.
	ContextNS int64
}

// Trajectories are what is placed, the longest first.
type Trajectories struct {
	// Lengths are predictions of the tokens still to generate, in falling order. 0 counts as 1.
	Lengths []int64
	// Contexts are the tokens in the context of each; nil: none counts.
	Contexts []int64
}

// Runs are times of runs of trajectories.
type Runs struct {
	lengths []int64
	count   int
	sums    []int64 // of contexts, up to each trajectory; nil: none counts
}

// NewRuns checks trajectories and sums up their contexts.
func NewRuns(t Trajectories) (Runs, error) {
	r := Runs{lengths: t.Lengths, count: len(t.Lengths)}
	switch {
	case r.count > CountMax:
		return Runs{}, fmt.Errorf("%d trajectories are too many: at most %d are planned", r.count, CountMax)
	case t.Contexts != nil && len(t.Contexts) != r.count:
		return Runs{}, fmt.Errorf("%d trajectories have %d contexts: give one each", r.count, len(t.Contexts))
	}
	for i, length := range t.Lengths {
		if length < 0 || i > 0 && length > t.Lengths[i-1] {
			return Runs{}, fmt.Errorf("trajectory %d has %d tokens: sort them, the longest first, none below 0", i, length)
		}
	}
	if t.Contexts == nil {
		return r, nil
	}
	r.sums = make([]int64, 1, r.count+1)
	for i, context := range t.Contexts {
		if context < 0 {
			return Runs{}, fmt.Errorf("trajectory %d has a context of %d tokens: give 0 or more", i, context)
		}
		r.sums = append(r.sums, r.sums[i]+min(context, LengthMax))
	}
	return r, nil
}

// Check returns an error that ends a sentence about a worker with what is wrong with it.
func (w *Worker) Check() error {
	if len(w.Curve.segments) == 0 {
		return fmt.Errorf("has no curve: make one of its profile")
	}
	if w.ContextNS < 0 || w.ContextNS > TokenMaxNS {
		return fmt.Errorf("has %d ns for 1,000 tokens of context: give 0 to %d", w.ContextNS, int64(TokenMaxNS))
	}
	return nil
}

// Len is the number of trajectories.
func (r *Runs) Len() int { return r.count }

// length of a trajectory, within bounds.
func (r *Runs) length(i int) int64 { return min(max(r.lengths[i], 1), LengthMax) }

// context of a trajectory; 0 if contexts do not count.
func (r *Runs) context(rank int) int64 {
	if r.sums == nil || rank == none {
		return 0
	}
	return r.sums[rank+1] - r.sums[rank]
}

// TimeNS is the time of a worker with the trajectories from one on; at most TimeMaxNS.
func (r *Runs) TimeNS(w *Worker, from, size int) int64 {
	if size == 0 {
		return 0
	}
	return r.length(from) * r.tokenNS(w, from, size)
}

// Most is the largest number of trajectories from one on that end on a worker within a time.
func (r *Runs) Most(w *Worker, from int, withinNS int64) int {
	left := r.count - from
	if left == 0 {
		return 0
	}
	budget := withinNS / r.length(from)
	size := min(left, w.Curve.Most(budget))
	if r.sums == nil || w.ContextNS == 0 || r.tokenNS(w, from, size) <= budget {
		return size
	}
	low, high := 0, size // a group of low fits, one of high does not
	for high-low > 1 {
		if middle := (low + high) / 2; r.tokenNS(w, from, middle) <= budget {
			low = middle
		} else {
			high = middle
		}
	}
	return low
}

// tokenNS is the time for a token in a run.
func (r *Runs) tokenNS(w *Worker, from, size int) int64 {
	ns := w.Curve.TokenNS(size)
	if r.sums == nil || w.ContextNS == 0 {
		return ns
	}
	return withContext(ns, w.ContextNS, r.sums[from+size]-r.sums[from])
}

// withContext adds to the time for a token what contexts cost.
func withContext(tokenNS, contextNS, contexts int64) int64 {
	hi, lo := bits.Mul64(uint64(contextNS), uint64(contexts))
	const unit, ceiling = 1000, TokenMaxNS * 1000
	if hi > 0 || lo >= ceiling {
		return TokenMaxNS
	}
	return min(TokenMaxNS, tokenNS+int64(lo/unit))
}

// Least returns the least feasible makespan by bisection. None below first is feasible, and the
// given feasible one is. covers tests a makespan; after it, really returns the makespan that the
// groups of a feasible one have, and next the least one above an infeasible one with which a group
// could be larger. So each test moves a bound to a makespan that groups can have.
func Least(first, feasible int64, covers func(int64) bool, really, next func(int64) int64) int64 {
	low, high := int64(0), first
	for !covers(high) {
		low = next(high) - 1
		high = max(low+1, min(2*high, feasible))
	}
	high = really(high)
	for high-low > 1 {
		if x := low + (high-low)/2; covers(x) {
			high = really(x)
		} else {
			low = next(x) - 1
		}
	}
	return high
}
