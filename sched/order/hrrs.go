package order

import (
	"cmp"
	"math"
	"math/bits"
)

// Turn is an operation of a training deployment that needs a group of nodes for
// itself. Times are nanoseconds of log time.
type Turn struct {
	ID         uint64
	Deployment uint64
	Arrival    int64
	// Exec is how long it is expected to take; for a turn that runs, what is left.
	Exec int64
	// SetUp is what it takes to get the state of the deployment onto the group, and
	// that of another away (T_load and T_offload). It is not needed behind a turn of
	// the same deployment.
	SetUp int64
}

// Input is what one decision of HRRS is about: a group of nodes, and the turns that need it.
type Input struct {
	Now int64
	// Resident is the deployment whose state is on the group; 0 if none is.
	Resident uint64
	// Running is the turn that has the group, if there is one. Its deployment is the
	// resident.
	Running *Turn
	// Preemptible says that it may be stopped and gone on with later. Others keep the
	// group until they yield it.
	Preemptible bool
	// Waiting are the others. Those of one deployment are in the order in which they
	// have to run.
	Waiting []Turn
}

// HRRS is Highest Response Ratio with Setup (PlexRL §4.4, Algorithm 1). It is reused,
// so that it allocates nothing, and keeps nothing from one decision to the next.
type HRRS struct {
	heads []int           // of Waiting, the first of each deployment
	known map[uint64]bool // deployments that have a head; for look-up only
}

// Next returns which of those that wait gets the group now, or -1 if none does. If it
// is one and another has the group, that is to be stopped.
func (h *HRRS) Next(g *Input) int {
	if g.Running != nil && !g.Preemptible {
		return -1
	}
	h.line(g.Waiting)
	best := h.best(g)
	if best < 0 || g.Running != nil && g.compare(g.Running, &g.Waiting[best]) < 0 {
		return -1
	}
	return best
}

// later adds a duration to a time; what is too late for 64 bits is as late as can be.
func later(at, by int64) int64 {
	if by = max(by, 0); at > math.MaxInt64-by {
		return math.MaxInt64
	}
	return at + by
}

// line finds the first turn of each deployment.
func (h *HRRS) line(waiting []Turn) {
	h.heads = h.heads[:0]
	if h.known == nil {
		h.known = make(map[uint64]bool)
	}
	clear(h.known)
	for i := range waiting {
		if d := waiting[i].Deployment; !h.known[d] {
			h.known[d] = true
			h.heads = append(h.heads, i)
		}
	}
}

// best returns the head with the highest ratio, or -1. Turns of the deployment that
// runs come after the one that runs.
func (h *HRRS) best(g *Input) int {
	best := -1
	for _, i := range h.heads {
		t := &g.Waiting[i]
		if g.Running != nil && t.Deployment == g.Running.Deployment {
			continue
		}
		if best < 0 || g.compare(t, &g.Waiting[best]) < 0 {
			best = i
		}
	}
	return best
}

func (g *Input) resident() uint64 {
	if g.Running != nil {
		return g.Running.Deployment
	}
	return g.Resident
}

// service is the effective service time (equation 3), at least 1.
func (g *Input) service(t *Turn) int64 {
	s := max(t.Exec, 0)
	if t.Deployment != g.resident() {
		s = later(s, t.SetUp)
	}
	return max(s, 1)
}

// wait is how long a turn has waited.
func (g *Input) wait(t *Turn) int64 {
	if t.Arrival >= g.Now {
		return 0
	}
	return g.Now - t.Arrival
}

// compare is less than 0 if a goes before b: its response ratio (equation 4) is
// higher, or it is the same and a runs, is of the resident, is older.
func (g *Input) compare(a, b *Turn) int {
	// W/S of a is above that of b if W of a times S of b is.
	aHi, aLo := bits.Mul64(uint64(g.wait(a)), uint64(g.service(b)))
	bHi, bLo := bits.Mul64(uint64(g.wait(b)), uint64(g.service(a)))
	return cmp.Or(
		cmp.Compare(bHi, aHi), cmp.Compare(bLo, aLo),
		first(a == g.Running, b == g.Running),
		first(a.Deployment == g.resident(), b.Deployment == g.resident()),
		cmp.Compare(a.Arrival, b.Arrival), cmp.Compare(a.ID, b.ID),
	)
}

func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}
