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

// users are the attempts that may run on a CPU: those that have it to themselves, or are to leave it, and
// those that share it.
type users struct{ own, share int }

// use counts an attempt more, or one less, as a user of CPUs.
func (t *table) use(a *attempt, cpus CPUs, more int) {
	for _, cpu := range cpus {
		u := t.held[cpu]
		if a.shares {
			u.share += more
		} else {
			u.own += more
		}
		if u == (users{}) {
			delete(t.held, cpu)
		} else {
			t.held[cpu] = u
		}
	}
}

// share notes whether an attempt shares CPUs with others.
func (t *table) share(a *attempt, shares bool) {
	if a.shares != shares {
		t.use(a, a.holds, -1)
		a.shares = shares
		t.use(a, a.holds, 1)
	}
}

// free reports whether an attempt may begin to run on a CPU: nobody does, or only those that share it
// with this one.
func (t *table) free(a *attempt, cpu int) bool {
	u := t.held[cpu]
	return u.own == 0 && (a.shares || u.share == 0)
}

// available reports whether all CPUs that an attempt is to have are free.
func (t *table) available(a *attempt) bool {
	return !slices.ContainsFunc(a.wants, func(cpu int) bool { return !t.free(a, cpu) })
}

// hold notes that an attempt may run on these CPUs, beside those that it holds.
func (t *table) hold(a *attempt, cpus CPUs) {
	more := cpus.without(a.holds)
	t.use(a, more, 1)
	a.holds = a.holds.plus(more)
}

// keep notes that an attempt runs on none but these of the CPUs that it holds.
func (t *table) keep(a *attempt, cpus CPUs) {
	less := a.holds.without(cpus)
	t.use(a, less, -1)
	a.holds = a.holds.without(less)
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
		if p.table.free(a, cpu) {
			next = next.plus(CPUs{cpu})
		}
	}
	// The servers always leave an attempt the first CPU that it was started on, so it never
	// waits for all. One that begins to share waits at most for those that leave the shared CPUs.
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
