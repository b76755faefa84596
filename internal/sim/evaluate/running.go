package evaluate

import (
	"rota/fsm/state"
	"rota/internal/sim"
)

// running is an attempt that an agent carries out. What it has left is scaled when it gets
// other cores.
type running struct {
	m *machine
	c *call
	// onCores: its units are cores of the node.
	node    state.NodeID
	onCores bool
	// units are those that it has, wanted what it was told to have last.
	units  sim.Width
	wanted sim.Width
	then   func(ok bool)
	// left is how long it would compute from since on, with units; 0: it has not begun, and sets
	// up from since on.
	left, since int64
	// stalled is how long it does not get on before that: resizes cost as much.
	stalled int64
	// resized counts the changes, so that the end that was foreseen before is known.
	resized int
	done    bool
}

// compute begins to compute.
func (r *running) compute() {
	r.left = max(1, r.units.Duration(r.c.Duration))
	r.use(r.units.Own())
	r.goOn()
}

func (r *running) use(more int64) {
	if r.onCores {
		r.m.use(r.node, more)
	}
}

func (r *running) goOn() {
	resized := r.resized
	r.since = r.m.w.loop.Now()
	r.m.w.loop.After(r.stalled+r.left, func() {
		if resized == r.resized {
			r.account()
			r.use(-r.units.Own())
			r.done = true
			r.then(true)
		}
	})
}

// hold adds what it has held since that was added last, and returns for how long that was.
func (r *running) hold() int64 {
	held := max(0, r.m.w.loop.Now()-r.since)
	r.c.busy += r.units.Held(held)
	r.since += held
	return held
}

// account adds what it has used since it was accounted for last.
func (r *running) account() {
	used := r.hold()
	stalled := min(used, r.stalled)
	r.stalled -= stalled
	r.left -= used - stalled
}

// resize gives it other cores, with which it takes longer or less for what it has left. It
// holds them from now on, and does not get on for what a resize costs.
func (r *running) resize(units sim.Width) {
	switch {
	case r.done:
		return
	case r.left == 0:
		r.hold()
		r.units = units
		return
	}
	r.account()
	r.use(units.Own() - r.units.Own())
	r.left = max(1, sim.Rescaled(r.left, r.units.Duration(r.c.Duration), units.Duration(r.c.Duration)))
	r.units = units
	r.stalled += r.m.w.in.Latency.Resize
	r.resized++
	r.c.resizes++
	r.goOn()
}

// resize has agents give attempts the cores that they are to have by now. Each gets there
// as a grant does, and what shrinks does so before anything grows.
func (m *machine) resize() {
	nodes := m.dirty
	m.dirty = nil
	m.fsm.View(func(s *state.State) {
		for _, grow := range []bool{false, true} {
			for _, id := range nodes {
				m.share(s.Node(id), grow)
				s.Attempts(id, func(t *state.Attempt) bool {
					r, units := m.running[t.Action], sim.WidthOf(s.Node(id), t)
					if r != nil && r.onCores && r.wanted != units && r.wanted.Own() < units.Own() == grow {
						r.wanted = units
						m.w.loop.After(m.w.in.Latency.Dispatch, func() { r.resize(units) })
					}
					return true
				})
			}
		}
	})
}

// share has an agent share other cores of its node.
func (m *machine) share(n *state.Node, grow bool) {
	c, cores := m.cores[n.ID], int64(n.Shared.Len())
	if c == nil || c.shared == cores || c.shared < cores != grow {
		return
	}
	more := cores - c.shared
	c.shared = cores
	m.w.loop.After(m.w.in.Latency.Dispatch, func() { m.use(n.ID, more) })
}
