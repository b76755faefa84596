package partition

import (
	"cmp"
	"slices"
)

// Bounds of the local search.
const (
	// triesMax is the most changes that are tried.
	triesMax = 1 << 14
	// endsMax is how many of the longest and how many of the shortest trajectories of a group
	// are tried.
	endsMax = 8
)

// none stands for no trajectory.
const none = -1

// load is the trajectories of a worker in the local search; they need not be a run.
type load struct {
	of      *Worker
	worker  int
	members []int // ranks, the longest trajectory first
	context int64
	timeNS  int64
	drain   *drain // nil: it lasts as long as its longest trajectory in the full batch
}

// improve moves or swaps trajectories of the group that ends last, as long as that group and the
// other one both end earlier then. So the makespan never grows, and each change lowers it or the
// number of groups that have it.
func (p *Planner) improve(plan *Plan, workers []Worker) {
	if p.runs.count == 0 {
		return
	}
	loads := p.loads(plan, workers)
	p.descend(loads)
	if loads[latest(loads)].timeNS < plan.MakespanNS {
		p.rewrite(plan, loads)
	}
}

// descend makes changes as long as one is found.
func (p *Planner) descend(loads []load) {
	for tries := triesMax; tries > 0; {
		if last := latest(loads); !p.relieve(loads, last, &tries) {
			break
		}
	}
}

// rewrite turns loads into a plan.
func (p *Planner) rewrite(plan *Plan, loads []load) {
	plan.MakespanNS, plan.Improved = loads[latest(loads)].timeNS, true
	slices.SortStableFunc(loads, func(a, b load) int { return cmp.Compare(a.first(p), b.first(p)) })
	for i, h := range loads {
		plan.Groups[i] = Group{Worker: h.worker, Size: len(h.members)}
		for _, rank := range h.members {
			plan.Workers[rank] = h.worker
		}
	}
}

// first is the rank of the longest trajectory; beyond all ranks if there is none.
func (h load) first(p *Planner) int {
	if len(h.members) == 0 {
		return p.runs.count
	}
	return h.members[0]
}

// latest is the load that ends last.
func latest(loads []load) (last int) {
	for i := range loads {
		if loads[i].timeNS > loads[last].timeNS {
			last = i
		}
	}
	return last
}

// loads are the groups of a plan.
func (p *Planner) loads(plan *Plan, workers []Worker) []load {
	loads := make([]load, len(plan.Groups))
	rank := 0
	for i, g := range plan.Groups {
		loads[i] = load{of: &workers[g.Worker], worker: g.Worker}
		for range g.Size {
			p.put(&loads[i], none, rank)
			rank++
		}
		loads[i].timeNS = p.timeOf(&loads[i], none, none)
	}
	return loads
}

// timeOf is the time of a load without one of its members and with another trajectory.
func (p *Planner) timeOf(h *load, without, with int) int64 {
	if h.drain != nil {
		return p.drainedNS(h, without, with)
	}
	size, first := len(h.members), none
	for _, rank := range h.members[:min(2, size)] {
		if rank != without {
			first = rank
			break
		}
	}
	if without != none {
		size--
	}
	if with != none {
		size++
		if first == none || with < first {
			first = with
		}
	}
	if size == 0 {
		return 0
	}
	tokenNS := h.of.Curve.TokenNS(size)
	if h.of.ContextNS > 0 {
		tokenNS = withContext(tokenNS, h.of.ContextNS, h.context-p.runs.context(without)+p.runs.context(with))
	}
	return p.runs.length(first) * tokenNS
}

// relieve makes the first change that it finds after which the load that ends last and another
// one both end before that.
func (p *Planner) relieve(loads []load, last int, tries *int) bool {
	from := &loads[last]
	for i := range ends(from) {
		rank := from.members[i]
		for other := range loads {
			to := &loads[other]
			if other == last || to.timeNS >= from.timeNS {
				continue
			}
			if p.exchange(from, to, rank, none, tries) {
				return true
			}
			for j := range ends(to) {
				if p.exchange(from, to, rank, to.members[j], tries) {
					return true
				}
			}
		}
	}
	return false
}

// ends visits the positions of the longest and the shortest trajectories of a load.
func ends(h *load) func(yield func(int) bool) {
	return func(yield func(int) bool) {
		n := len(h.members)
		for i := 0; i < n; i++ {
			if i == endsMax {
				i = max(i, n-endsMax)
			}
			if !yield(i) {
				return
			}
		}
	}
}

// exchange gives one trajectory of a load to another, for one of it or none, if both then end
// before the first one does now.
func (p *Planner) exchange(from, to *load, given, taken int, tries *int) bool {
	if *tries == 0 {
		return false
	}
	*tries--
	fromNS, toNS := p.timeOf(from, given, taken), p.timeOf(to, taken, given)
	if max(fromNS, toNS) >= from.timeNS {
		return false
	}
	p.put(from, given, taken)
	p.put(to, taken, given)
	from.timeNS, to.timeNS = fromNS, toNS
	return true
}

// put takes one trajectory out of a load and puts another one in.
func (p *Planner) put(h *load, without, with int) {
	h.context += p.runs.context(with) - p.runs.context(without)
	if i, ok := slices.BinarySearch(h.members, without); ok {
		h.members = slices.Delete(h.members, i, i+1)
	}
	if with != none {
		i, _ := slices.BinarySearch(h.members, with)
		h.members = slices.Insert(h.members, i, with)
	}
	if h.drain != nil {
		p.sumUp(h)
	}
}
