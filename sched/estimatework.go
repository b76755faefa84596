package sched

import (
	"slices"

	"rota/fsm/state"
)

const (
	// workParts is in how many equal parts of a distribution its quantiles are remembered.
	workParts = 40
	// workLast is the last quantile that is, in parts per million. Few attempts go on for
	// longer, and the longest of them may go on for much longer.
	workLast = 990_000
)

// workQuantiles are quantiles of the work in the attempts of a class: the least, those at
// each fortieth, and the one at workLast. Between two of them it is a straight line. After
// the last, the chance to go on for twice as long is one half (a Pareto distribution): what
// has run for very long is expected to go on for as long again.
type workQuantiles [workParts + 1]uint64

// workAsked are the quantiles after the least.
var workAsked = func() (ppm [workParts]uint64) {
	for i := range ppm {
		ppm[i] = uint64(i+1) * million / workParts
	}
	ppm[workParts-1] = workLast
	return ppm
}()

// quantilesOf returns the quantiles of a histogram, times this over all. Nil if not even a
// fortieth of the attempts was seen to end.
func quantilesOf(h state.Lifetimes, this, all uint64) *workQuantiles {
	if len(h) == 0 {
		return nil
	}
	var q workQuantiles
	q[0] = uint64(state.LifetimeLeast(h[0].Bucket))
	for i, ns := range h.Quantiles(workAsked[:]...) {
		q[i+1] = uint64(ns)
	}
	if q[1] == 0 {
		return nil
	}
	for i := range q {
		switch {
		case i > 0 && q[i] == 0: // the end of so many was not seen
			q[i] = state.MulDiv(q[i-1], million-ppmOf(i-1), million-ppmOf(i))
		default:
			q[i] = state.MulDiv(q[i], this, all)
		}
		q[i] = min(q[i], never)
	}
	return &q
}

// ppmOf is the part of all attempts that the i-th quantile is of.
func ppmOf(i int) uint64 {
	if i == 0 {
		return 0
	}
	return workAsked[i-1]
}

// at returns the work that a part of all attempts, below the whole, has at most.
func (q *workQuantiles) at(ppm uint64) uint64 {
	if ppm >= workLast {
		return state.MulDiv(q[workParts], million-workLast, million-ppm)
	}
	i := int(ppm * workParts / million)
	from, to := ppmOf(i), ppmOf(i+1)
	return q[i] + state.MulDiv(q[i+1]-min(q[i], q[i+1]), ppm-from, to-from)
}

// part returns which part of all attempts has at most that much work, if it is in the table.
func (q *workQuantiles) part(work uint64) uint64 {
	i, _ := slices.BinarySearch(q[:], work)
	switch {
	case i == 0:
		return 0
	case q[i] == q[i-1]:
		return ppmOf(i)
	}
	return ppmOf(i-1) + state.MulDiv(ppmOf(i)-ppmOf(i-1), work-q[i-1], q[i]-q[i-1])
}

// rest is what is left of work of which some is done, by the distribution of all that had
// more.
type rest struct {
	*workQuantiles
	done, from uint64
}

func (q *workQuantiles) after(done uint64) rest {
	return rest{q, done, q.part(min(done, q[workParts]))}
}

// at returns how much more work there is in a part of all at most, below the whole.
func (r rest) at(ppm uint64) uint64 {
	if r.done >= r.workQuantiles[workParts] {
		return state.MulDiv(r.done, ppm, million-ppm)
	}
	all := r.workQuantiles.at(min(million-1, r.from+(million-r.from)*ppm/million))
	return all - min(all, r.done)
}
