package sched

import (
	"slices"

	"rota/fsm/state"
	"rota/sched/scale"
)

// What exploration costs is bounded by two constants.
const (
	// exploreIdle: an action is given more GPUs than planned where that is at most this
	// part of what the plan leaves free, as nobody could use them now.
	exploreIdle = 4
	// exploreOneIn: of a class one in so many actions is given more than planned even if
	// that is all that is free.
	exploreOneIn = 8
	// exploreEnough is how many attempts with a degree are enough to know it.
	exploreEnough = 16
)

// explore gives some of the candidates more GPUs than planned, out of what the plan
// leaves, to learn what more GPUs bring to their class. Without that, a class of which
// nothing is known would run with its least degree for ever.
func (p *gpuPass) explore(batch []planned, candidates []int) {
	left := gpuView{fleet: p.nodes, open: true}.Free()
	for _, i := range candidates {
		if units := batch[i].units; units > 0 {
			left, _, _ = left.Take(levelOf(units))
		}
	}
	for _, i := range candidates {
		b := &batch[i]
		room := uint32(left.Units()) / exploreIdle
		if explorer(b.action) {
			room = uint32(left.Units())
		}
		more := p.unexplored(b.action, room)
		if b.units == 0 || more <= b.units {
			continue
		}
		if after, _, ok := left.Take(levelOf(more)); ok {
			left, b.units = after, more
		}
	}
}

// explorer reports whether an action is one of those that explore: by its ID, mixed, as
// actions of one class may come in a fixed order with others.
func explorer(a *state.Action) bool {
	return uint64(a.ID)*0x9e3779b97f4a7c15>>32%exploreOneIn == 0
}

// unexplored returns the largest degree up to some units of which the class of an action
// has not seen enough; 0 if there is none, or if the client says what more GPUs bring.
func (p *gpuPass) unexplored(a *state.Action, most uint32) uint32 {
	if a.Class == 0 || len(a.GPUs().Degrees) == 1 {
		return 0
	}
	if profile := profileOf(a); profile != nil && CurveOf(profile) != nil {
		return 0
	}
	for _, k := range slices.Backward(a.GPUs().Degrees) {
		if k <= most && attemptsWith(p.demands.seen(a), k) < exploreEnough {
			return k
		}
	}
	return 0
}

// attemptsWith returns how many attempts with a number of units were seen.
func attemptsWith(seen []scale.Seen, units uint32) int64 {
	for _, s := range seen {
		if s.Units == int32(units) {
			return s.Attempts
		}
	}
	return 0
}
