package degrees

import (
	"fmt"
	"slices"
	"sort"

	"rota/sched/place/partition"
)

// Bounds of the input.
const (
	// BudgetMax is the most GPUs.
	BudgetMax = 1 << 16
	// OptionsMax is the most degrees.
	OptionsMax = 64
	// roundsMax is how often the GPUs that the makespan does not depend on are allocated again.
	roundsMax = 8
)

// Option is a degree that a worker can have, and what was measured with it.
type Option struct {
	// GPUs is the degree.
	GPUs   int
	Worker partition.Worker
}

// Worker is one that should run.
type Worker struct {
	// Option is an index of the options.
	Option int
	// Size is the number of trajectories that it is for.
	Size int
}

// Allocation is the degrees that workers should have.
type Allocation struct {
	// Workers are in the order of what they get: the longest trajectories are of the first one.
	Workers []Worker
	// MakespanNS is the longest time of a group.
	MakespanNS int64
	// GPUs are those of the workers. The makespan needs FewestGPUs of them; the others only make
	// groups end earlier that do not end last.
	GPUs, FewestGPUs int
}

// Allocator allocates degrees, and keeps its memory from one to the next. Its zero value is ready.
type Allocator struct {
	// WorkersMost is how many workers Choose may choose; 0: as many as can be planned for.
	WorkersMost int

	runs    partition.Runs
	options []Option
	budget  int   // that is left
	reached []int // by GPUs: how many trajectories are covered at most
	end     int   // the fewest GPUs that cover all
	path    []Worker
}

// Allocate finds workers for trajectories with a budget of GPUs so that the last trajectory ends
// early. GPUs that the makespan does not depend on are allocated again for the other trajectories.
func (a *Allocator) Allocate(t partition.Trajectories, options []Option, budget int) (Allocation, error) {
	if err := a.begin(t, options, budget); err != nil {
		return Allocation{}, err
	}
	var found Allocation
	from, feasible := 0, int64(partition.TimeMaxNS)
	for round := 1; from < a.runs.Len(); round++ {
		makespan := a.bisect(from, feasible)
		if round == 1 {
			found.MakespanNS, found.FewestGPUs = makespan, a.gpus(a.path)
		}
		n := len(a.path)
		if round < roundsMax {
			n = a.critical(from, makespan)
		}
		for _, w := range a.path[:n] {
			from += w.Size
		}
		found.Workers = append(found.Workers, a.path[:n]...)
		a.budget -= a.gpus(a.path[:n])
		feasible = makespan - 1
	}
	found.GPUs = a.gpus(found.Workers)
	return found, nil
}

// begin checks and prepares the input.
func (a *Allocator) begin(t partition.Trajectories, options []Option, budget int) (err error) {
	if len(options) == 0 || len(options) > OptionsMax {
		return fmt.Errorf("there are %d degrees to choose from: give 1 to %d", len(options), OptionsMax)
	}
	if budget > BudgetMax {
		return fmt.Errorf("a budget of %d GPUs is too large: give at most %d", budget, BudgetMax)
	}
	least := options[0].GPUs
	for i := range options {
		least = min(least, options[i].GPUs)
		if options[i].GPUs < 1 {
			return fmt.Errorf("a degree is %d: give 1 or more", options[i].GPUs)
		}
		if err := options[i].Worker.Check(); err != nil {
			return fmt.Errorf("degree %d %w", options[i].GPUs, err)
		}
	}
	if budget < least && len(t.Lengths) > 0 {
		return fmt.Errorf("a budget of %d GPUs is below the lowest degree: give at least %d", budget, least)
	}
	a.options, a.budget = options, budget
	a.reached = slices.Grow(a.reached[:0], max(budget, 0)+1)
	a.runs, err = partition.NewRuns(t)
	return err
}

func (a *Allocator) gpus(workers []Worker) (sum int) {
	for _, w := range workers {
		sum += a.options[w.Option].GPUs
	}
	return sum
}

// bisect returns the least makespan of the trajectories from one on with the budget that is left,
// and leaves its workers in path. One that is feasible is given.
func (a *Allocator) bisect(from int, feasible int64) int64 {
	first := int64(partition.TimeMaxNS)
	for i := range a.options {
		if a.options[i].GPUs <= a.budget {
			first = min(first, a.runs.TimeNS(&a.options[i].Worker, from, 1))
		}
	}
	covers := func(makespan int64) bool { return a.covers(from, a.budget, makespan) }
	return partition.Least(first, feasible, covers, a.trace, a.next)
}

// covers reports whether all trajectories from one on can end within a makespan.
func (a *Allocator) covers(from, budget int, makespan int64) bool {
	a.reached = append(a.reached[:0], from)
	for a.end = 0; a.reached[a.end] < a.runs.Len(); {
		if a.end++; a.end > budget {
			return false
		}
		furthest := a.reached[a.end-1] // with a GPU that nobody uses
		for i := range a.options {
			if before := a.end - a.options[i].GPUs; before >= 0 {
				furthest = max(furthest, a.reaches(i, before, makespan))
			}
		}
		a.reached = append(a.reached, furthest)
	}
	return true
}

// reaches is how far trajectories are covered by a worker behind those that some GPUs cover.
func (a *Allocator) reaches(option, before int, makespan int64) int {
	at := a.reached[before]
	return at + a.runs.Most(&a.options[option].Worker, at, makespan)
}

// trace writes the workers of a makespan that covers reported as feasible into path, and returns
// the makespan that they really have.
func (a *Allocator) trace(makespan int64) (really int64) {
	a.path = a.path[:0]
	for gpus := a.end; gpus > 0; {
		if a.reached[gpus] == a.reached[gpus-1] {
			gpus--
			continue
		}
		for i := range a.options {
			before := gpus - a.options[i].GPUs
			if before < 0 || a.reaches(i, before, makespan) != a.reached[gpus] {
				continue
			}
			at := a.reached[before]
			w := Worker{Option: i, Size: a.reached[gpus] - at}
			really = max(really, a.runs.TimeNS(&a.options[i].Worker, at, w.Size))
			a.path = append(a.path, w)
			gpus = before
			break
		}
	}
	slices.Reverse(a.path)
	return really
}

// next returns the least makespan above one that is not feasible with which a group could be
// larger.
func (a *Allocator) next(makespan int64) int64 {
	next := int64(partition.TimeMaxNS)
	for gpus := range a.reached {
		at := a.reached[gpus]
		for i := range a.options {
			if gpus+a.options[i].GPUs >= len(a.reached) {
				continue
			}
			w := &a.options[i].Worker
			next = min(next, a.runs.TimeNS(w, at, a.runs.Most(w, at, makespan)+1))
		}
	}
	return next
}

// critical returns after how many workers of the path the others can end earlier than it does.
func (a *Allocator) critical(from int, makespan int64) int {
	return 1 + sort.Search(len(a.path)-1, func(i int) bool {
		begin := from
		for _, w := range a.path[:i+1] {
			begin += w.Size
		}
		return a.covers(begin, a.budget-a.gpus(a.path[:i+1]), makespan-1)
	})
}
