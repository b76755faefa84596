package partition

import (
	"cmp"
	"slices"
	"sort"
)

// search is what is kept of the last test of a makespan. Its states are how many workers of each
// kind are used, or, if the order of workers is given, how many of them are.
type search struct {
	order   []int // kinds of workers; nil: in any order
	strides []int // of the states in any order, by kind
	reached []int // by state: how many trajectories are covered at most
	end     int   // the first state that covers all
	steps   []step
}

// step is the use of one more worker.
type step struct{ kind, before int }

// sortKinds finds the classes of equal workers, the fastest first.
func (p *Planner) sortKinds(workers []Worker) {
	p.kinds = p.kinds[:0]
	for i, w := range workers {
		k := slices.IndexFunc(p.kinds, func(k kind) bool {
			return k.ContextNS == w.ContextNS && slices.Equal(k.Curve.segments, w.Curve.segments)
		})
		if k < 0 {
			k = len(p.kinds)
			p.kinds = append(p.kinds, kind{Worker: w})
		}
		p.kinds[k].members = append(p.kinds[k].members, i)
	}
	slices.SortStableFunc(p.kinds, func(a, b kind) int {
		return cmp.Compare(a.Curve.TokenNS(1), b.Curve.TokenNS(1))
	})
}

// giveBack leaves all workers without a group.
func (p *Planner) giveBack() {
	for i := range p.kinds {
		p.kinds[i].left = len(p.kinds[i].members)
	}
}

// decide finds the groups of all trajectories. It is exact if no order of workers is left out and
// times depend on the sizes of groups only.
func (p *Planner) decide() (makespan int64, exact bool) {
	p.giveBack()
	if len(p.kinds) > 1 && p.combinations() <= cmp.Or(p.statesMax, StatesMax) {
		return p.rounds(nil), p.runs.sums == nil
	}
	fastest := []int{}
	for i, k := range p.kinds {
		fastest = append(fastest, slices.Repeat([]int{i}, len(k.members))...)
	}
	makespan = p.rounds(fastest)
	if len(p.kinds) < 2 {
		return makespan, p.runs.sums == nil
	}
	groups := slices.Clone(p.groups)
	slices.Reverse(fastest)
	p.giveBack()
	if other := p.rounds(fastest); other < makespan {
		return other, false
	}
	p.groups = groups
	return makespan, false
}

// combinations is the number of states in any order.
func (p *Planner) combinations() int {
	states := 1
	for _, k := range p.kinds {
		states = min(states*(k.left+1), CountMax)
	}
	return states
}

// rounds plans all trajectories, and then again those behind the groups that the makespan depends
// on, with the workers that are left.
func (p *Planner) rounds(order []int) (makespan int64) {
	p.groups = p.groups[:0]
	from, feasible := 0, int64(TimeMaxNS)
	for round := 1; from < p.runs.count; round++ {
		p.begins(order)
		x := p.bisect(from, feasible)
		makespan = max(makespan, x)
		n := len(p.path)
		if round < roundsMax {
			n = p.critical(order, from, x)
		}
		for _, g := range p.path[:n] {
			p.groups = append(p.groups, g)
			p.kinds[g.kind].left--
			from += g.size
		}
		order = after(order, n)
		feasible = x - 1
	}
	return makespan
}

// bisect returns the least makespan of the trajectories from one on, and leaves its groups in
// path. One that is feasible is given.
func (p *Planner) bisect(from int, feasible int64) int64 {
	covers := func(makespan int64) bool { return p.covers(from, makespan) }
	return Least(p.least(from), feasible, covers, p.trace, p.next)
}

// least is a makespan below which none is feasible: the first trajectory alone on a worker.
func (p *Planner) least(from int) int64 {
	x := int64(TimeMaxNS)
	for i := range p.kinds {
		if k := &p.kinds[i]; k.left > 0 {
			x = min(x, p.runs.TimeNS(&k.Worker, from, 1))
		}
	}
	return x
}

// critical returns after how many groups of the path the others can end earlier than it does.
func (p *Planner) critical(order []int, from int, makespan int64) int {
	return 1 + sort.Search(len(p.path)-1, func(i int) bool {
		begin := from
		for _, g := range p.path[:i+1] {
			begin += g.size
			p.kinds[g.kind].left--
		}
		p.begins(after(order, i+1))
		earlier := p.covers(begin, makespan-1)
		for _, g := range p.path[:i+1] {
			p.kinds[g.kind].left++
		}
		return earlier
	})
}

// after is what is left of an order once some of its workers have a group.
func after(order []int, used int) []int {
	if order == nil {
		return nil
	}
	return order[used:]
}

// begins prepares tests with the workers that are left, in an order that is given or any.
func (p *Planner) begins(order []int) {
	s := &p.search
	s.order, s.strides = order, s.strides[:0]
	states := len(order) + 1
	if order == nil {
		states = 1
		for _, k := range p.kinds {
			s.strides = append(s.strides, states)
			states *= k.left + 1
		}
	}
	s.reached = slices.Grow(s.reached[:0], states)[:states]
}

// into returns the uses of workers that lead to a state.
func (p *Planner) into(state int) []step {
	s := &p.search
	s.steps = s.steps[:0]
	if s.order != nil {
		s.steps = append(s.steps, step{kind: s.order[state-1], before: state - 1})
		return s.steps
	}
	for i, stride := range s.strides {
		if state/stride%(p.kinds[i].left+1) > 0 {
			s.steps = append(s.steps, step{kind: i, before: state - stride})
		}
	}
	return s.steps
}

// covers reports whether all trajectories from one on can end within a makespan.
func (p *Planner) covers(from int, makespan int64) bool {
	s := &p.search
	s.reached[0] = from
	for s.end = 0; s.reached[s.end] < p.runs.count; {
		if s.end++; s.end == len(s.reached) {
			return false
		}
		furthest := from
		for _, step := range p.into(s.end) {
			furthest = max(furthest, p.reaches(step, makespan))
		}
		s.reached[s.end] = furthest
	}
	return true
}

// trace writes the groups of a makespan that covers reported as feasible into path, and returns
// the makespan that they really have.
func (p *Planner) trace(makespan int64) (really int64) {
	p.path = p.path[:0]
	for state := p.search.end; state > 0; {
		steps := p.into(state)
		last := len(steps) - 1 // with the slowest worker
		for last > 0 && p.reaches(steps[last], makespan) != p.search.reached[state] {
			last--
		}
		s := steps[last]
		at, k := p.search.reached[s.before], &p.kinds[s.kind]
		size := p.search.reached[state] - at
		really = max(really, p.runs.TimeNS(&k.Worker, at, size))
		if size > 0 || p.search.order != nil {
			p.path = append(p.path, group{kind: s.kind, size: size})
		}
		state = s.before
	}
	slices.Reverse(p.path)
	return really
}

// reaches is how far trajectories are covered after a step.
func (p *Planner) reaches(s step, makespan int64) int {
	at := p.search.reached[s.before]
	return at + p.runs.Most(&p.kinds[s.kind].Worker, at, makespan)
}

// next returns the least makespan above one that is not feasible with which a group could be
// larger. Those in between are not feasible either.
func (p *Planner) next(makespan int64) int64 {
	next := int64(TimeMaxNS)
	for state := 1; state < len(p.search.reached); state++ {
		for _, s := range p.into(state) {
			at, k := p.search.reached[s.before], &p.kinds[s.kind]
			if size := p.runs.Most(&k.Worker, at, makespan) + 1; at+size <= p.runs.count {
				next = min(next, p.runs.TimeNS(&k.Worker, at, size))
			}
		}
	}
	return next
}
