package plan

import "slices"

// CPUs are numbers of CPUs of the node, ascending.
type CPUs []int

// without returns the CPUs that are not among others.
func (c CPUs) without(others CPUs) (out CPUs) {
	for _, cpu := range c {
		if _, in := slices.BinarySearch(others, cpu); !in {
			out = append(out, cpu)
		}
	}
	return out
}

// plus returns the CPUs of either.
func (c CPUs) plus(others CPUs) CPUs {
	out := slices.Concat(c, others)
	slices.Sort(out)
	return slices.Compact(out)
}

// free reports whether no attempt may run on a CPU and have it to itself.
func (t *table) free(cpu int) bool { return t.held[cpu] == 0 }

// available reports whether all CPUs are free.
func (t *table) available(cpus CPUs) bool {
	return !slices.ContainsFunc(cpus, func(cpu int) bool { return !t.free(cpu) })
}

// hold notes that an attempt may run on these CPUs, beside those that it holds.
func (t *table) hold(a *attempt, cpus CPUs) {
	more := cpus.without(a.holds)
	for _, cpu := range more {
		t.held[cpu]++
	}
	a.holds = a.holds.plus(more)
}

// keep notes that an attempt runs on none but these of the CPUs that it holds.
func (t *table) keep(a *attempt, cpus CPUs) {
	for _, cpu := range a.holds.without(cpus) {
		if t.held[cpu]--; t.held[cpu] == 0 {
			delete(t.held, cpu)
		}
	}
	a.holds = a.holds.without(a.holds.without(cpus))
}

// resizeAgain is how long a change of CPUs waits that was not answered well.
const resizeAgain = 100 * millisecond

// resize has running attempts change to the CPUs that are wanted. A CPU goes to an attempt
// only when no other may run on it any more, so what shrinks comes first, and what grows
// when that is done. One change of an attempt is under way at a time.
func (p *Plan) resize(now int64) {
	if !p.table.askew || !p.ready(now) || !p.link.resizes {
		return
	}
	p.table.askew = false
	p.table.each(func(a *attempt) {
		if !a.phase.live() || a.kill != 0 || a.ice.pause != 0 || len(a.wants) == 0 || !a.unsure && slices.Equal(a.holds, a.wants) {
			return
		}
		p.table.askew = true
		switch {
		case a.phase == starting || a.resizing != nil:
		case now < a.resizeAt:
			p.callAt(a.resizeAt)
		default:
			p.change(a)
		}
	})
}

// change begins a change to the CPUs that an attempt is to keep, and those that it wants
// and that are free.
func (p *Plan) change(a *attempt) {
	more := a.wants.without(a.holds)
	next := a.wants.without(more)
	for _, cpu := range more {
		if p.table.free(cpu) {
			next = next.plus(CPUs{cpu})
		}
	}
	// The servers always leave an attempt the first CPU that it was started on, so it never
	// waits for all. If they did not, it would wait.
	if len(next) == 0 || !a.unsure && slices.Equal(next, a.holds) {
		return
	}
	p.table.hold(a, next)
	a.resizing = next
	p.add(Resize{p.link.connection, a.key, next})
}

// Resized tells that a change of CPUs was done, or that it is not known whether it was.
// connection is that of the step.
func (p *Plan) Resized(connection int, k Key, done bool, now int64) {
	a := p.table.byKey[k]
	if a == nil || connection != p.link.connection || a.resizing == nil {
		return
	}
	if a.unsure = !done; done {
		p.table.keep(a, a.resizing)
	} else {
		a.resizeAt = now + resizeAgain
	}
	a.resizing, p.table.askew = nil, true
}
