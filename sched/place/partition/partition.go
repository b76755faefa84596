package partition

import "fmt"

// StatesMax is the most combinations of kinds of workers for which all orders of workers are
// taken: four kinds of ten workers each, or two of a hundred.
const StatesMax = 1 << 14

// WorkersMax is the most workers.
const WorkersMax = 1 << 14

// roundsMax is how often the part of the workers that does not decide the makespan is planned on
// its own.
const roundsMax = 8

// Group is a run of trajectories and its worker.
type Group struct {
	// Worker is an index of the workers.
	Worker int
	// Size is the number of trajectories; it may be 0.
	Size int
}

// Plan is a placement.
type Plan struct {
	// Groups has each worker once, in the order of what it gets: the longest trajectories are of
	// the first one.
	Groups []Group
	// Workers is the worker of each trajectory. It is what Groups say, unless Improved.
	Workers []int
	// MakespanNS is the longest time of a group.
	MakespanNS int64
	// Improved says that the local search found a placement that is not of runs. The sizes of
	// Groups are those of the placement even then.
	Improved bool
}

// Planner plans placements and keeps its memory from one to the next. Its zero value is ready.
type Planner struct {
	runs  Runs
	kinds []kind

	groups []group // that are decided
	search search
	path   []group // of the last makespan that was feasible

	statesMax int // 0: StatesMax; tests make it small
}

// kind is a class of equal workers.
type kind struct {
	Worker
	members []int // indexes of workers
	left    int   // of them, those without a group
}

// group is a run of trajectories, with the kind of its worker.
type group struct{ kind, size int }

// Plan divides trajectories among workers so that the last one ends early, as the package says.
// Of the placements that do this, it takes one that is good for the rest too: workers that the
// makespan does not depend on are planned again among themselves.
func (p *Planner) Plan(t Trajectories, workers []Worker) (Plan, error) {
	if err := p.begin(t, workers); err != nil {
		return Plan{}, err
	}
	makespan, exact := p.decide()
	plan := p.write(len(workers), makespan)
	if !exact {
		p.improve(&plan, workers)
	}
	return plan, nil
}

// begin checks and prepares the input.
func (p *Planner) begin(t Trajectories, workers []Worker) (err error) {
	if len(t.Lengths) > 0 && len(workers) == 0 {
		return fmt.Errorf("%d trajectories have no worker: register one", len(t.Lengths))
	}
	if err := check(workers); err != nil {
		return err
	}
	p.sortKinds(workers)
	p.runs, err = NewRuns(t)
	return err
}

func check(workers []Worker) error {
	if len(workers) > WorkersMax {
		return fmt.Errorf("%d workers are too many: at most %d are planned", len(workers), WorkersMax)
	}
	for i := range workers {
		if err := workers[i].Check(); err != nil {
			return fmt.Errorf("worker %d %w", i, err)
		}
	}
	return nil
}

// write turns the groups that were found into a plan.
func (p *Planner) write(workers int, makespan int64) Plan {
	plan := Plan{Groups: make([]Group, 0, workers), Workers: make([]int, 0, p.runs.count), MakespanNS: makespan}
	p.giveBack()
	take := func(k *kind, size int) {
		worker := k.members[len(k.members)-k.left]
		k.left--
		plan.Groups = append(plan.Groups, Group{Worker: worker, Size: size})
		for range size {
			plan.Workers = append(plan.Workers, worker)
		}
	}
	for _, g := range p.groups {
		take(&p.kinds[g.kind], g.size)
	}
	for i := range p.kinds {
		for p.kinds[i].left > 0 {
			take(&p.kinds[i], 0)
		}
	}
	return plan
}
