package order

import (
	"cmp"
	"container/heap"
	"slices"

	"rota/fsm/state"
	"rota/sched/place"
)

// Shares is what this package needs to see of the state to share a resource among namespaces.
type Shares interface {
	Waits(state.NamespaceID, state.Queue) bool
	SettingsOf(state.NamespaceID) *state.NamespaceSettings
}

// Fair reads what waits in some queues for one resource, such as the queue of a node and that of
// its pool, in the order in which it is served: next is always the oldest of the namespace whose
// clock is the furthest behind, as if all before it had been granted. So it is first come, first
// served within a namespace, and by weight between them.
type Fair struct {
	view  *state.State
	lines []fairLine // by namespace
	turns turns
	ahead int // how many of a queue are read at once
}

// fairLine is what waits of one namespace.
type fairLine struct {
	namespace state.NamespaceID
	settings  *state.NamespaceSettings
	tag       int64  // its clock, if all that was read is granted
	meanUS    uint64 // what a unit is charged; 0: it competes for nothing
	held      state.Held
	queues    []fairQueue
	// next is its oldest action that was not read, in the queue with the number from.
	next state.ActionID
	from int
	at   int // its place among the turns; -1: none
	// full: the next action exceeds a limit beside what was read and is counted as granted. It is
	// read when one of those turns out not to start.
	full   bool
	closed bool // nothing more is read
}

// fairQueue is what waits of one namespace in one queue.
type fairQueue struct {
	key   state.Queue
	next  []state.ActionID // read ahead
	last  state.ActionID   // newest read
	ended bool
	unfit int // how many did not start
}

// turns is a heap of the namespaces of which more may be read: first the one whose clock is the
// furthest behind, of equals the one with the oldest action.
type turns []*fairLine

func (t turns) Len() int { return len(t) }
func (t turns) Less(i, j int) bool {
	return t[i].tag < t[j].tag || t[i].tag == t[j].tag && t[i].next < t[j].next
}
func (t turns) Swap(i, j int) { t[i], t[j] = t[j], t[i]; t[i].at, t[j].at = i, j }
func (t *turns) Push(l any)   { l.(*fairLine).at = len(*t); *t = append(*t, l.(*fairLine)) }
func (t *turns) Pop() any {
	last := len(*t) - 1
	l := (*t)[last]
	l.at, *t = -1, (*t)[:last]
	return l
}

// NewFair begins to read queues of a resource, so many actions at a time. It returns nil if the
// order is that of the queue: one namespace waits, and has no limits. The zero Queue as the resource
// is none: what waits is read by age, as far as limits go.
func NewFair(view *state.State, resource state.Queue, queues []state.Queue, ahead int) *Fair {
	if !view.Shares() && !view.AnySettings() {
		return nil
	}
	f := &Fair{view: view, ahead: ahead}
	for i, q := range queues {
		view.QueueNamespaces(q, func(ns state.NamespaceID) bool {
			at, known := f.find(ns)
			if !known {
				f.lines = slices.Insert(f.lines, at, f.newLine(resource, queues, ns))
			}
			f.lines[at].queues[i].ended = false
			return true
		})
	}
	if len(f.lines) == 0 || len(f.lines) == 1 && !f.lines[0].settings.Limits() {
		return nil
	}
	f.turns = make(turns, 0, len(f.lines))
	for i := range f.lines {
		f.lines[i].at = -1
		f.settle(&f.lines[i])
	}
	return f
}

// newLine is what waits of a namespace in queues of which none is read yet.
func (f *Fair) newLine(resource state.Queue, queues []state.Queue, ns state.NamespaceID) fairLine {
	clocks := f.view.Clocks(resource)
	k := clocks.Clock(ns)
	l := fairLine{namespace: ns, settings: f.view.SettingsOf(ns), tag: k.Lead, queues: make([]fairQueue, len(queues))}
	if l.held = f.view.HeldBy(ns); resource.Kind == state.QuotaQueue {
		l.held = f.view.HeldWithUnits(ns, state.QuotaID(resource.ID))
	}
	if clocks != nil {
		l.meanUS = heldUS(clocks, k)
	} else if resource != (state.Queue{}) {
		l.meanUS = meanUSUnknown
	}
	for j := range l.queues {
		l.queues[j] = fairQueue{key: queues[j], ended: true}
	}
	return l
}

// HeldFor returns what its namespace holds beside an action that is to start, or is to get units of a
// quota: then those that have units of it and wait for a node count too.
func HeldFor(view *state.State, a *state.Action) state.Held {
	if use, waits := a.Missing(); waits {
		return view.HeldWithUnits(a.Namespace, use.Quota)
	}
	return view.HeldBy(a.Namespace)
}

func (f *Fair) find(ns state.NamespaceID) (i int, known bool) {
	return slices.BinarySearchFunc(f.lines, ns, func(l fairLine, ns state.NamespaceID) int { return cmp.Compare(l.namespace, ns) })
}

func (f *Fair) line(ns state.NamespaceID) *fairLine {
	i, _ := f.find(ns)
	return &f.lines[i]
}

// Namespaces is how many namespaces take turns: what it costs to begin.
func (f *Fair) Namespaces() int {
	if f == nil {
		return 0
	}
	return len(f.lines)
}

// settle gives a namespace its place among the turns, by what is next of it.
func (f *Fair) settle(l *fairLine) {
	l.next = 0
	for i := range l.queues {
		if q := &l.queues[i]; q.read(f, l.namespace) && (l.next == 0 || q.next[0] < l.next) {
			l.next, l.from = q.next[0], i
		}
	}
	switch among := l.next != 0 && !l.full && !l.closed; {
	case l.at < 0 && among:
		heap.Push(&f.turns, l)
	case l.at >= 0 && among:
		heap.Fix(&f.turns, l.at)
	case l.at >= 0:
		heap.Remove(&f.turns, l.at)
	}
}

// Next takes the action out that is served next, with the number of its queue; false if there is
// none left.
func (f *Fair) Next() (a *state.Action, queue int, ok bool) {
	for len(f.turns) > 0 {
		l := f.turns[0]
		a, queue = f.view.Action(l.next), l.from
		ok = l.take(a)
		if ok {
			l.queues[queue].next = l.queues[queue].next[1:]
		}
		if f.settle(l); ok {
			return a, queue, true
		}
	}
	return nil, 0, false
}

// read reads some actions ahead if none is left: few at first, as most namespaces get few turns.
func (q *fairQueue) read(f *Fair, ns state.NamespaceID) bool {
	if len(q.next) == 0 && !q.ended {
		ahead := f.ahead
		if q.last == 0 {
			ahead = min(ahead, 4)
		}
		q.next = make([]state.ActionID, 0, ahead)
		f.view.QueuedOf(q.key, ns, q.last+1, func(id state.ActionID) bool {
			q.next = append(q.next, id)
			return len(q.next) < ahead
		})
		q.ended = len(q.next) < ahead
		if len(q.next) > 0 {
			q.last = q.next[len(q.next)-1]
		}
	}
	return len(q.next) > 0
}

// take counts an action as granted, if the limits of its namespace allow for it beside all that
// was read before and may start. Else nothing more is read of the namespace for now.
func (l *fairLine) take(a *state.Action) bool {
	if l.full = Exceeds(l.settings, l.held, a) != NoLimit; l.full {
		return false
	}
	l.count(a, 1)
	units := uint64(a.CoresMin)
	if use, waits := a.Missing(); waits {
		units = uint64(use.Units)
	} else if g := a.GPUs(); g != nil {
		units = uint64(g.Degrees[0])
	}
	if units > 0 && l.meanUS > 0 { // else it competes for nothing, and goes by age
		l.tag = min(leadMax, l.tag+max(1, int64(Charge(units, l.meanUS)/uint64(l.settings.Weight))))
	}
	return true
}

// count counts an action to what its namespace holds, or takes it out again.
func (l *fairLine) count(a *state.Action, by int) {
	if a.ReservedOn != 0 {
		return // it is counted as promised
	}
	n := by * max(1, int(a.GangSize))
	l.held.Running += n
	l.held.Cores += n * int(a.CoresMin)
	l.held.Memory += uint64(n) * place.Reserves(a)
	if a.GPUs() != nil {
		l.held.GPUs += n * int(a.GPUs().Degrees[0])
	}
}

// Unfit notes that an action that was read does not start, and takes nothing of the limits of its
// namespace. When that is so for too many of a namespace in one of the queues, no more of them are read.
func (f *Fair) Unfit(a *state.Action, queue, most int) {
	l := f.line(a.Namespace)
	q := &l.queues[queue]
	if q.unfit++; q.unfit >= most {
		q.next, q.ended = nil, true
	}
	f.Drop(a)
}

// Drop notes that an action that was read takes nothing of the limits of its namespace.
func (f *Fair) Drop(a *state.Action) {
	l := f.line(a.Namespace)
	l.count(a, -1)
	l.full = false
	f.settle(l)
}

// Full reports whether an action was left unread only because those of its namespace that were read
// may take what its limits leave.
func (f *Fair) Full() bool {
	return slices.ContainsFunc(f.lines, func(l fairLine) bool { return l.full && !l.closed })
}

// Close has no more read of a namespace.
func (f *Fair) Close(ns state.NamespaceID) {
	l := f.line(ns)
	l.closed = true
	f.settle(l)
}

// Before reports whether a goes before b, which waits for the same resource: it is older, or of
// another namespace whose clock is further behind.
func Before(view *state.State, resource state.Queue, a, b *state.Action) bool {
	if a.Namespace == b.Namespace || !view.Shares() {
		return a.ID < b.ID
	}
	clocks := view.Clocks(resource)
	x, y := clocks.Clock(a.Namespace).Lead, clocks.Clock(b.Namespace).Lead
	return x < y || x == y && a.ID < b.ID
}

// Limit is a limit of a namespace.
type Limit uint8

// Limits.
const (
	NoLimit Limit = iota
	RunningLimit
	CoresLimit
	GPUsLimit
	MemoryLimit
)

// Exceeds returns the limit that keeps an action of a namespace, with all of its gang, from starting
// with the least that it needs beside what the namespace holds, and what it has promised to others.
func Exceeds(s *state.NamespaceSettings, held state.Held, a *state.Action) Limit {
	n := max(1, int(a.GangSize))
	if a.ReservedOn != 0 {
		held.Promised = held.Promised.Plus(a, -1) // to itself
	}
	held.Running += held.Promised.Running
	held.Cores += held.Promised.Cores
	held.GPUs += held.Promised.GPUs
	held.Memory += held.Promised.Memory
	switch {
	case s.RunningMax > 0 && held.Running+n > int(s.RunningMax):
		return RunningLimit
	case s.CoresMax > 0 && a.CoresMin > 0 && held.Cores+held.Resuming+held.Limited+n*int(a.CoresMin) > int(s.CoresMax):
		return CoresLimit
	case s.GPUsMax > 0 && a.GPUs() != nil && held.GPUs+n*int(a.GPUs().Degrees[0]) > int(s.GPUsMax):
		return GPUsLimit
	case s.MemoryMax > 0 && place.Reserves(a) > 0 && (held.Memory > s.MemoryMax || place.Reserves(a) > (s.MemoryMax-held.Memory)/uint64(n)):
		return MemoryLimit
	}
	return NoLimit
}
