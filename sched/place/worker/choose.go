package worker

import (
	"math/bits"
	"slices"

	"rota/fsm/state"
)

// offer is the best worker of a kind of hardware.
type offer struct {
	at   int // its place in the view
	kind string
	rank int // which of the kinds that are wanted it is
	// work is the predicted time of all its work with the trajectory, and score that weighed by
	// its price.
	work, score int64
	// workers is how many of the kind take a trajectory, and next the least work of the others of
	// them; 0: there are no others.
	workers uint32
	next    int64
}

// fleet is what is known of all workers together that take a trajectory.
type fleet struct {
	// cheapest is the lowest price.
	cheapest uint64
	// batch is how many trajectories they have on average, with one more each. Own times are
	// compared at the same batch size, so that they say what hardware is like, and not how much each
	// has to do.
	batch uint32
}

// Choose returns the place of the worker in the view that a trajectory goes to, and what was
// compared; -1: there is none. The affinity is that of its task class, nil if nothing was said.
func (v View) Choose(g *state.Generation, a *state.Affinity) (at int, choice state.PlacementChoice) {
	wanted, by := wants(g, a)
	all := v.fleet()
	offers := v.offers(g, a, wanted, all)
	if len(offers) == 0 {
		return -1, choice
	}
	best := &offers[0]
	switch {
	case len(wanted) > 0:
		if best = preferred(offers, len(wanted), a); best.rank < len(wanted) {
			choice.Preferred, choice.By = uint8(best.rank+1), by
		}
	case len(offers) > 1:
		best, choice.By = v.suited(g, a, offers, all), state.HardwareMeasured
	}
	compared(offers, best, &choice)
	_, choice.PrefillPercent = own(v[best.at].Row, g, all.batch)
	return best.at, choice
}

// wants are the kinds of hardware that a trajectory prefers, the best first, and who says so.
func wants(g *state.Generation, a *state.Affinity) ([]string, state.HardwareChoice) {
	if len(g.Hardware) > 0 || a == nil {
		return g.Hardware, state.HardwareAsked
	}
	return a.Hardware, state.HardwareRuled
}

// Worse reports whether a trajectory prefers the hardware of one worker to that of another.
func Worse(g *state.Generation, a *state.Affinity, from, to *state.Worker) bool {
	wanted, _ := wants(g, a)
	return rank(wanted, to.Hardware) > rank(wanted, from.Hardware)
}

// rank is which of the kinds that are wanted a kind is; all others come behind them.
func rank(wanted []string, kind string) int {
	if i := slices.Index(wanted, kind); i >= 0 {
		return i
	}
	return len(wanted)
}

// fleet sums up the workers that take a trajectory.
func (v View) fleet() fleet {
	least, sum, workers := uint64(0), uint64(0), uint64(0)
	for i := range v {
		if !v[i].Takes() {
			continue
		}
		if p := Price(v[i].Row); least == 0 || p < least {
			least = p
		}
		sum, workers = sum+uint64(v[i].Load.Trajectories), workers+1
	}
	return fleet{max(1, least), uint32(sum/max(1, workers)) + 1}
}

// offers are the best workers of each kind of hardware, in the order of the view.
func (v View) offers(g *state.Generation, a *state.Affinity, wanted []string, all fleet) (out []offer) {
	kinds := map[string]int{} // for look-up only
	for i := range v {
		c := &v[i]
		if !c.Takes() {
			continue
		}
		work := c.with(g)
		o := offer{at: i, kind: c.Row.Hardware, work: work, score: priced(work, c.Row, a, all.cheapest), workers: 1}
		k, known := kinds[o.kind]
		if !known {
			o.rank, kinds[o.kind] = rank(wanted, o.kind), len(out)
			out = append(out, o)
			continue
		}
		best, other := &out[k], work
		if o.score < best.score || o.score == best.score && c.Load.Trajectories < v[best.at].Load.Trajectories {
			best.at, best.work, best.score, other = i, work, o.score, best.work
		}
		best.workers, best.next = best.workers+1, sooner(best.next, other)
	}
	return out
}

// sooner is the lesser of two times; 0: there is none.
func sooner(a, b int64) int64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// preferred is the offer of the first kind that is wanted, or of a later one if the work of the
// earlier ones is longer by more than the affinity lets it be. Kinds that are not wanted are as
// one, and come last.
func preferred(offers []offer, wanted int, a *state.Affinity) (best *offer) {
	for rank := range wanted + 1 {
		var of *offer
		for i := range offers {
			if o := &offers[i]; o.rank == rank && (of == nil || o.score < of.score) {
				of = o
			}
		}
		if of != nil && (best == nil || spills(a, best, of)) {
			best = of
		}
	}
	return best
}

// spills reports whether the work of an offer is longer than that of a later kind by more than the
// affinity lets it be.
func spills(a *state.Affinity, earlier, later *offer) bool {
	return a != nil && a.SpillPercent > 0 && clamp(state.MulDiv(uint64(later.score), 100+uint64(a.SpillPercent), 100)) < earlier.score
}

const (
	// workUnit is in what parts of the least work other work is counted, and workTimesMax up to how
	// many times it.
	workUnit     = 1 << 10
	workTimesMax = 1 << 10
)

// suited is the offer where the trajectory adds least to the sum of the cubes of the workers'
// loads: its own time there, times the square of the time of all work. So it goes where it is
// relatively fast, unless the workers there have much more to do. This is the greedy rule for
// unrelated machines in the L3 norm (Awerbuch, Azar et al., Load balancing in the Lp norm, 1995).
// With squares of loads, a worker of twice the speed would get four times the work.
func (v View) suited(g *state.Generation, a *state.Affinity, offers []offer, all fleet) *offer {
	least := offers[0].score
	for _, o := range offers[1:] {
		least = min(least, o.score)
	}
	product := func(o *offer) (hi, lo uint64) {
		row := v[o.at].Row
		time, _ := own(row, g, all.batch)
		more := min(state.MulDiv(uint64(o.score), workUnit, uint64(max(1, least))), workTimesMax*workUnit)
		return bits.Mul64(uint64(priced(time, row, a, all.cheapest)), more*more)
	}
	best := &offers[0]
	hi, lo := product(best)
	for i := range offers[1:] {
		o := &offers[1+i]
		if h, l := product(o); h < hi || h == hi && l < lo {
			best, hi, lo = o, h, l
		}
	}
	return best
}

// compared fills in among how many workers one was chosen, and the work of the next best: of those
// of the same choice of hardware, or of all if measured tokens decided.
func compared(offers []offer, best *offer, choice *state.PlacementChoice) {
	choice.WorkNS = best.work
	for i := range offers {
		o := &offers[i]
		if o.rank != best.rank {
			continue
		}
		choice.Candidates += o.workers
		choice.NextNS = sooner(choice.NextNS, o.next)
		if o != best {
			choice.NextNS = sooner(choice.NextNS, o.work)
		}
	}
}

// own is the time of a worker that a trajectory takes by itself, as a part of a batch of a size, in
// nanoseconds, and what percentage of that its prompts take.
func own(w *state.Worker, g *state.Generation, batch uint32) (ns int64, prefillPercent uint8) {
	decode := clamp(state.MulDiv(max(1, g.Predicted), uint64(TokenNS(w, batch)), uint64(batch)))
	prompts := PrefillNS(w, prefill(g))
	ns = max(1, state.Saturated(decode, prompts))
	return ns, uint8(state.MulDiv(uint64(prompts), 100, uint64(ns)))
}

// Price is what an hour of a worker costs.
func Price(w *state.Worker) uint64 {
	if w.Cost > 0 {
		return w.Cost
	}
	return uint64(w.Degree)
}

// priced weighs a time by the price of the worker, as far as the affinity says: with 100 percent, a
// worker at twice the price counts as if it took twice as long.
func priced(ns int64, w *state.Worker, a *state.Affinity, cheapest uint64) int64 {
	if a == nil || a.CostPercent == 0 {
		return ns
	}
	dearer := max(Price(w), cheapest) - cheapest
	more := state.MulDiv(uint64(ns), dearer, cheapest)
	return state.Saturated(ns, clamp(state.MulDiv(more, uint64(a.CostPercent), 100)))
}
