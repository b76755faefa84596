package degrees

import (
	"cmp"
	"fmt"
	"slices"

	"rota/sched/place/partition"
)

// Bounds of Choose.
const (
	// climbsMax is how often two workers become one, or one becomes several.
	climbsMax = 32
	// climbWorkMax bounds the trials by what each costs: its trajectories times its workers.
	climbWorkMax = 1 << 24
)

// Choice is the degrees that workers should have if their batches shrink.
type Choice struct {
	// Options is the option of each worker, the highest degree first.
	Options []int
	// MakespanNS is when the last worker has drained under Planner.Drain, if lengths are as predicted.
	MakespanNS int64
	// ExpectedNS is by which degrees were chosen: MakespanNS, and the mean time of placements without
	// knowledge of lengths, weighed by the doubt.
	ExpectedNS int64
	// GPUs are those of the workers.
	GPUs int
}

// Choose finds degrees with which trajectories end early if the batch of a worker shrinks as they
// end (partition.Planner.Drain). Its candidates are the degrees of Allocate, and each degree for all
// workers, as many as the budget has; a bounded search merges and splits workers of the best one.
// By ExpectedNS, the choice is never worse than a candidate. It need not be the optimum. Where Allocate has
// more workers than WorkersMost, those with the highest degrees are a candidate.
//
// doubt is from 0 to 100: the percentage by which times count that hold if lengths are not known when
// trajectories are placed. 0 trusts predictions.
func (a *Allocator) Choose(t partition.Trajectories, options []Option, budget, doubt int) (Choice, error) {
	if doubt < 0 || doubt > 100 {
		return Choice{}, fmt.Errorf("a doubt of %d percent: give 0 to 100", doubt)
	}
	exact, err := a.Allocate(t, options, budget)
	if err != nil || len(t.Lengths) == 0 {
		return Choice{}, err
	}
	s := chooser{a: a, t: t, doubt: int64(doubt)}
	best, err := s.best(a.candidates(exact, budget))
	if err != nil {
		return Choice{}, err
	}
	return s.best([][]int{best.Options, s.climb(best.Options)})
}

// Weigh says when trajectories are expected to end with workers of given degrees, each an index of
// the options, the highest degree first. What it expects compares with what Choose does.
func (a *Allocator) Weigh(t partition.Trajectories, options []Option, of []int, doubt int) (Choice, error) {
	gpus := 0
	for _, o := range of {
		if o < 0 || o >= len(options) {
			return Choice{}, fmt.Errorf("a worker has degree %d of %d: give an index of the degrees", o, len(options))
		}
		gpus += options[o].GPUs
	}
	if doubt < 0 || doubt > 100 || len(of) == 0 {
		return Choice{}, fmt.Errorf("a doubt of %d percent and %d workers: give 0 to 100, and one worker at least", doubt, len(of))
	}
	if err := a.begin(t, options, gpus); err != nil || len(t.Lengths) == 0 {
		return Choice{}, err
	}
	s := chooser{a: a, t: t, doubt: int64(doubt)}
	return s.best([][]int{of})
}

// candidates are the degrees of an allocation, and each degree for all workers.
func (a *Allocator) candidates(exact Allocation, budget int) [][]int {
	of := make([]int, 0, len(exact.Workers))
	for _, w := range exact.Workers {
		of = append(of, w.Option)
	}
	a.sort(of)
	out := [][]int{a.filled(of[:min(len(of), a.most())], budget)}
	for i := range a.options {
		if n := budget / a.options[i].GPUs; n > 0 {
			out = append(out, a.filled(slices.Repeat([]int{i}, min(n, a.most())), budget))
		}
	}
	return out
}

// most is how many workers there may be.
func (a *Allocator) most() int {
	return min(cmp.Or(a.WorkersMost, partition.WorkersMax), partition.WorkersMax)
}

// filled adds workers of the highest degree that fits until no GPU is left for one, and sorts.
func (a *Allocator) filled(of []int, budget int) []int {
	left := budget
	for _, o := range of {
		left -= a.options[o].GPUs
	}
	for len(of) < a.most() {
		fits := -1
		for i := range a.options {
			if gpus := a.options[i].GPUs; gpus <= left && (fits < 0 || gpus > a.options[fits].GPUs) {
				fits = i
			}
		}
		if fits < 0 {
			break
		}
		of = append(of, fits)
		left -= a.options[fits].GPUs
	}
	a.sort(of)
	return of
}

// sort puts the highest degrees first.
func (a *Allocator) sort(of []int) {
	slices.SortFunc(of, func(x, y int) int {
		return cmp.Or(cmp.Compare(a.options[y].GPUs, a.options[x].GPUs), cmp.Compare(x, y))
	})
}

// chooser evaluates degrees for trajectories.
type chooser struct {
	a       *Allocator
	t       partition.Trajectories
	doubt   int64 // percent
	planner partition.Planner
	workers []partition.Worker
}

func (s *chooser) these(of []int) []partition.Worker {
	s.workers = s.workers[:0]
	for _, o := range of {
		s.workers = append(s.workers, s.a.options[o].Worker)
	}
	return s.workers
}

// best is the best of some degrees, the first one of equals.
func (s *chooser) best(candidates [][]int) (best Choice, err error) {
	for i, of := range candidates {
		plan, err := s.planner.Drain(s.t, s.these(of))
		if err != nil {
			return Choice{}, err
		}
		c := Choice{Options: of, MakespanNS: plan.MakespanNS}
		if c.ExpectedNS, err = s.expected(of, plan.MakespanNS); err != nil {
			return Choice{}, err
		}
		for _, o := range of {
			c.GPUs += s.a.options[o].GPUs
		}
		if i == 0 || c.ExpectedNS < best.ExpectedNS {
			best = c
		}
	}
	return best, nil
}

// expected weighs the time with known lengths and that without.
func (s *chooser) expected(of []int, knownNS int64) (int64, error) {
	if s.doubt == 0 {
		return knownNS, nil
	}
	blindNS, err := s.blind(of)
	return knownNS/100*(100-s.doubt) + blindNS/100*s.doubt, err
}

// climb changes degrees as long as this promises more with the greedy placement.
func (s *chooser) climb(of []int) []int {
	work := climbWorkMax
	best := s.greedy(of, &work)
	for range climbsMax {
		from := of
		for _, c := range s.neighbours(from) {
			if ns := s.greedy(c, &work); ns < best {
				best, of = ns, c
			}
		}
		if slices.Equal(of, from) || work <= 0 {
			break
		}
	}
	return of
}

// greedy is the makespan of the greedy placement; the longest of all once the work is done.
func (s *chooser) greedy(of []int, work *int) int64 {
	*work -= 2 * len(of) * len(s.t.Lengths)
	if *work < 0 {
		return partition.TimeMaxNS
	}
	_, ns, err := s.planner.Greedy(s.t, s.these(of))
	if err == nil {
		ns, err = s.expected(of, ns)
	}
	if err != nil {
		return partition.TimeMaxNS
	}
	return ns
}

// neighbours are what degrees become if one worker is split into several of a lower degree, or
// several are merged into one of a higher degree, where this leaves no GPU over.
func (s *chooser) neighbours(of []int) (out [][]int) {
	for low := range s.a.options {
		for high := range s.a.options {
			gpus, most := s.a.options[low].GPUs, s.a.options[high].GPUs
			if gpus >= most || most%gpus != 0 {
				continue
			}
			n := most / gpus
			if c, ok := s.exchanged(of, high, 1, low, n); ok {
				out = append(out, c)
			}
			if c, ok := s.exchanged(of, low, n, high, 1); ok {
				out = append(out, c)
			}
		}
	}
	return out
}

// exchanged takes workers of one option for workers of another.
func (s *chooser) exchanged(of []int, option, fewer, other, more int) ([]int, bool) {
	c := make([]int, 0, len(of)+more)
	for _, o := range of {
		if o == option && fewer > 0 {
			fewer--
			continue
		}
		c = append(c, o)
	}
	if fewer > 0 || len(c)+more > s.a.most() {
		return nil, false
	}
	c = append(c, slices.Repeat([]int{other}, more)...)
	s.a.sort(c)
	return c, true
}
