package order

import (
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
	lines []fairLine
	ahead int // how many of a queue are read at once
}

// fairLine is what waits of one namespace.
type fairLine struct {
	namespace state.NamespaceID
	settings  *state.NamespaceSettings
	tag       int64  // its clock, if all that was read is granted
	meanUS    uint64 // what a unit is charged
	held      state.Held
	queues    []fairQueue
	closed    bool
}

// fairQueue is what waits of one namespace in one queue.
type fairQueue struct {
	key   state.Queue
	next  []state.ActionID // read ahead
	last  state.ActionID   // newest read
	ended bool
	unfit int // how many did not start
}

// NewFair begins to read queues of a resource, so many actions at a time. It returns nil if the
// order is that of the queue: one namespace waits, and has no limits.
func NewFair(view *state.State, resource state.Queue, queues []state.Queue, ahead int) *Fair {
	if !view.Shares() && !view.AnySettings() {
		return nil
	}
	f := &Fair{view: view, ahead: ahead}
	clocks := view.Clocks(resource)
	for i, q := range queues {
		view.QueueNamespaces(q, func(ns state.NamespaceID) bool {
			l := f.line(ns)
			if l == nil {
				k := clocks.Clock(ns)
				f.lines = append(f.lines, fairLine{namespace: ns, settings: view.SettingsOf(ns), tag: k.Lead, held: view.HeldBy(ns), queues: make([]fairQueue, len(queues))})
				l = &f.lines[len(f.lines)-1]
				l.meanUS = meanUSUnknown
				if clocks != nil {
					l.meanUS = heldUS(clocks, k)
				}
				for j := range l.queues {
					l.queues[j] = fairQueue{key: queues[j], ended: true}
				}
			}
			l.queues[i].ended = false
			return true
		})
	}
	if len(f.lines) == 0 || len(f.lines) == 1 && !f.lines[0].settings.Limits() {
		return nil
	}
	return f
}

func (f *Fair) line(ns state.NamespaceID) *fairLine {
	for i := range f.lines {
		if f.lines[i].namespace == ns {
			return &f.lines[i]
		}
	}
	return nil
}

// Next takes the action out that is served next, with the number of its queue; false if there is
// none left.
func (f *Fair) Next() (a *state.Action, queue int, ok bool) {
	for {
		var best *fairLine
		var first *fairQueue
		for i := range f.lines {
			l := &f.lines[i]
			if l.closed || best != nil && l.tag > best.tag {
				continue
			}
			q, n := l.oldest(f)
			if q == nil {
				l.closed = true
				continue
			}
			if best == nil || l.tag < best.tag || q.next[0] < first.next[0] {
				best, first, queue = l, q, n
			}
		}
		if best == nil {
			return nil, 0, false
		}
		a = f.view.Action(first.next[0])
		if best.take(a) {
			first.next = first.next[1:]
			return a, queue, true
		}
	}
}

// oldest returns the queue with the oldest action of a namespace, nil if there is none.
func (l *fairLine) oldest(f *Fair) (hit *fairQueue, n int) {
	for i := range l.queues {
		if q := &l.queues[i]; q.read(f, l.namespace) && (hit == nil || q.next[0] < hit.next[0]) {
			hit, n = q, i
		}
	}
	return hit, n
}

// read reads some actions ahead if none is left.
func (q *fairQueue) read(f *Fair, ns state.NamespaceID) bool {
	if len(q.next) == 0 && !q.ended {
		q.next = make([]state.ActionID, 0, f.ahead)
		f.view.QueuedOf(q.key, ns, q.last+1, func(id state.ActionID) bool {
			q.next = append(q.next, id)
			return len(q.next) < f.ahead
		})
		q.ended = len(q.next) < f.ahead
		if len(q.next) > 0 {
			q.last = q.next[len(q.next)-1]
		}
	}
	return len(q.next) > 0
}

// take counts an action as granted, if the limits of its namespace allow for it beside all that
// was read before. Else nothing more is read of the namespace.
func (l *fairLine) take(a *state.Action) bool {
	if Exceeds(l.settings, l.held, a) != NoLimit {
		l.closed = true
		return false
	}
	l.count(a, 1)
	units := uint64(a.CoresMin)
	if use, waits := a.Missing(); waits {
		units = uint64(use.Units)
	} else if g := a.GPUs(); g != nil {
		units = uint64(g.Degrees[0])
	}
	if units > 0 { // else it competes for nothing, and goes by age
		l.tag = min(leadMax, l.tag+max(1, int64(units*l.meanUS/uint64(l.settings.Weight))))
	}
	return true
}

// count counts an action to what its namespace holds, or takes it out again.
func (l *fairLine) count(a *state.Action, by int) {
	l.held.Running += by
	l.held.Cores += by * int(a.CoresMin)
	l.held.Memory += uint64(by) * place.Reserves(a)
	if _, waits := a.Missing(); !waits && a.GPUs() != nil {
		l.held.GPUs += by * int(a.GPUs().Degrees[0])
	}
}

// Unfit notes that an action that was read does not start, and takes nothing of the limits of its
// namespace. When that is so for too many of a namespace in one of the queues, no more of them are read.
func (f *Fair) Unfit(a *state.Action, queue, most int) {
	l := f.line(a.Namespace)
	l.count(a, -1)
	q := &l.queues[queue]
	if q.unfit++; q.unfit >= most {
		q.next, q.ended = nil, true
	}
}

// Close has no more read of a namespace.
func (f *Fair) Close(ns state.NamespaceID) { f.line(ns).closed = true }

// Closed reports whether nothing more is read of a namespace.
func (f *Fair) Closed(ns state.NamespaceID) bool { return f.line(ns).closed }

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

// Exceeds returns the limit that keeps an action of a namespace from starting with the least that
// it needs beside what the namespace holds.
func Exceeds(s *state.NamespaceSettings, held state.Held, a *state.Action) Limit {
	return exceeds(s, held, a, 1)
}

// GangExceeds is Exceeds for all members of a gang together.
func GangExceeds(s *state.NamespaceSettings, held state.Held, first *state.Action) Limit {
	return exceeds(s, held, first, int(first.GangSize))
}

// exceeds is Exceeds for so many actions alike.
func exceeds(s *state.NamespaceSettings, held state.Held, a *state.Action, n int) Limit {
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
