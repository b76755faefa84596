package partition

import (
	"fmt"
	"math/bits"
	"slices"
)

// contextMaxNS is the longest time that the context of one trajectory counts for, 36 minutes: the
// sum over CountMax trajectories and the time of the curve is within 63 bits then.
const contextMaxNS = 1 << 41

// drain is what a load needs if it is taken to last until its batch has drained. Its batch shrinks
// as the shorter trajectories end, so with lengths L(1) >= L(2) >= ... it lasts the sum of
//
//	(L(i) - L(i+1)) x TokenNS(i) = L(i) x (TokenNS(i) - TokenNS(i-1)),
//
// and of L(i) x ContextNS x context(i). Entry i of each slice is a sum over the first i members:
// with the place that they have, with the one before it, and with the one after it. So a change of
// one or two members takes no time that depends on their number.
type drain struct {
	stay, before, after []int64
	contextNS           int64
}

// rise is what the trajectory at a place, from 1, adds to the time for a token.
func (c *Curve) rise(place int) int64 {
	if place == 1 {
		return c.TokenNS(1)
	}
	return c.TokenNS(place) - c.TokenNS(place-1)
}

// contextNS is what the context of a trajectory adds to the time of a worker.
func (p *Planner) contextNS(w *Worker, rank int) int64 {
	if p.runs.sums == nil || w.ContextNS == 0 || rank == none {
		return 0
	}
	const unit = 1000
	hi, lo := bits.Mul64(uint64(w.ContextNS), uint64(p.runs.context(rank)))
	if hi > 0 || lo >= contextMaxNS*unit {
		return contextMaxNS
	}
	hi, lo = bits.Mul64(lo/unit, uint64(p.runs.length(rank)))
	if hi > 0 || lo > contextMaxNS {
		return contextMaxNS
	}
	return int64(lo)
}

// sumUp computes the sums of a load again.
func (p *Planner) sumUp(h *load) {
	d := h.drain
	d.stay, d.before, d.after = append(d.stay[:0], 0), append(d.before[:0], 0), append(d.after[:0], 0)
	d.contextNS = 0
	stay, before, after, left := int64(0), int64(0), int64(0), int64(0)
	here := h.of.Curve.rise(1)
	for i, rank := range h.members {
		length, next := p.runs.length(rank), h.of.Curve.rise(i+2)
		stay, before, after = stay+length*here, before+length*left, after+length*next
		d.stay, d.before, d.after = append(d.stay, stay), append(d.before, before), append(d.after, after)
		d.contextNS += p.contextNS(h.of, rank)
		left, here = here, next
	}
	h.timeNS = d.stay[len(h.members)] + d.contextNS
}

// drainedNS is the time of a load without one of its members and with another trajectory.
func (p *Planner) drainedNS(h *load, without, with int) int64 {
	d, n := h.drain, len(h.members)
	ns := d.contextNS - p.contextNS(h.of, without) + p.contextNS(h.of, with)
	out := n // members behind it get a place less, those from in on one more
	if without != none {
		out, _ = slices.BinarySearch(h.members, without)
	}
	if with == none {
		if without == none {
			return ns + d.stay[n]
		}
		return ns + d.stay[out] + d.before[n] - d.before[out+1]
	}
	in, _ := slices.BinarySearch(h.members, with)
	length := p.runs.length(with)
	switch {
	case without == none:
		return ns + d.stay[in] + length*h.of.Curve.rise(in+1) + d.after[n] - d.after[in]
	case out < in:
		return ns + d.stay[out] + d.before[in] - d.before[out+1] + length*h.of.Curve.rise(in) + d.stay[n] - d.stay[in]
	default:
		return ns + d.stay[in] + length*h.of.Curve.rise(in+1) + d.after[out] - d.after[in] + d.stay[n] - d.stay[out+1]
	}
}

// drains are loads of all workers that are taken to drain, with what a placement gives them: the
// worker of each trajectory. nil gives them nothing.
func (p *Planner) drains(of []int, workers []Worker) []load {
	loads := make([]load, len(workers))
	for i := range loads {
		loads[i] = load{of: &workers[i], worker: i, drain: &drain{}}
	}
	for rank, worker := range of {
		loads[worker].members = append(loads[worker].members, rank)
	}
	for i := range loads {
		p.sumUp(&loads[i])
	}
	return loads
}

// DrainNS is when the last trajectory ends if each worker generates for the trajectories that a
// placement gives it, and its batch shrinks as they end. of is the worker of each trajectory.
func (p *Planner) DrainNS(t Trajectories, workers []Worker, of []int) (int64, error) {
	if err := p.begin(t, workers); err != nil {
		return 0, err
	}
	if len(of) != len(t.Lengths) {
		return 0, fmt.Errorf("%d of %d trajectories have a worker: give one each", len(of), len(t.Lengths))
	}
	for rank, worker := range of {
		if worker < 0 || worker >= len(workers) {
			return 0, fmt.Errorf("trajectory %d has worker %d of %d", rank, worker, len(workers))
		}
	}
	if len(of) == 0 {
		return 0, nil
	}
	loads := p.drains(of, workers)
	return loads[latest(loads)].timeNS, nil
}

// Drain places trajectories so that the last one ends early if batches shrink as they end. It has
// two candidates, the partition of Plan and Greedy's placement. The one that drains earlier is
// improved by a bounded local search. So the placement is never worse than either, and it need not
// be the optimum. MakespanNS of the plan is when the last worker has drained.
func (p *Planner) Drain(t Trajectories, workers []Worker) (Plan, error) {
	plan, err := p.Plan(t, workers)
	if err != nil || len(t.Lengths) == 0 {
		return plan, err
	}
	loads, greedy := p.drains(plan.Workers, workers), p.drains(p.greedy(workers), workers)
	if greedy[latest(greedy)].timeNS <= loads[latest(loads)].timeNS {
		loads = greedy
	}
	p.descend(loads)
	p.rewrite(&plan, loads)
	return plan, nil
}

// Greedy gives each trajectory, the longest first, to the worker that has drained first with it, and
// returns when the last one has. Trajectories of equal length go to equal workers in turn.
func (p *Planner) Greedy(t Trajectories, workers []Worker) (of []int, makespanNS int64, err error) {
	if err := p.begin(t, workers); err != nil || len(t.Lengths) == 0 {
		return nil, 0, err
	}
	of = p.greedy(workers)
	loads := p.drains(of, workers)
	return of, loads[latest(loads)].timeNS, nil
}

func (p *Planner) greedy(workers []Worker) []int {
	type end struct {
		timeNS, rise int64
		size         int
	}
	ends, of := make([]end, len(workers)), make([]int, p.runs.count)
	for i := range ends {
		ends[i].rise = workers[i].Curve.rise(1)
	}
	for rank := range of {
		length, least := p.runs.length(rank), int64(0)
		for i := range ends {
			ns := ends[i].timeNS + length*ends[i].rise + p.contextNS(&workers[i], rank)
			if i == 0 || ns < least {
				of[rank], least = i, ns
			}
		}
		e := &ends[of[rank]]
		e.timeNS = least
		e.size++
		e.rise = workers[of[rank]].Curve.rise(e.size + 1)
	}
	return of
}
