package sim

// Loop is virtual time: a heap of events. Times are nanoseconds since the
// beginning of the world.
type Loop struct {
	now    int64
	seq    uint64
	heap   []event
	halted bool
}

type event struct {
	at  int64
	seq uint64
	fn  func()
}

// before orders events by time, and equal ones by when they were scheduled.
func (e *event) before(f *event) bool {
	return e.at < f.at || e.at == f.at && e.seq < f.seq
}

// Now returns the virtual time.
func (l *Loop) Now() int64 { return l.now }

// At has fn called at a time; one that has passed means now.
func (l *Loop) At(at int64, fn func()) {
	l.seq++
	l.heap = append(l.heap, event{max(at, l.now), l.seq, fn})
	l.up(len(l.heap) - 1)
}

// After has fn called when d nanoseconds have passed.
func (l *Loop) After(d int64, fn func()) { l.At(l.now+d, fn) }

// Empty says that nothing is scheduled.
func (l *Loop) Empty() bool { return len(l.heap) == 0 }

// Halt ends Run after the current event.
func (l *Loop) Halt() { l.halted = true }

// Run lets time pass until end, or until Halt.
func (l *Loop) Run(end int64) {
	for !l.halted && len(l.heap) > 0 && l.heap[0].at <= end {
		e := l.pop()
		l.now = e.at
		e.fn()
	}
	if !l.halted {
		l.now = max(l.now, end)
	}
}

func (l *Loop) up(i int) {
	e := l.heap[i]
	for i > 0 {
		parent := (i - 1) / 2
		if !e.before(&l.heap[parent]) {
			break
		}
		l.heap[i] = l.heap[parent]
		i = parent
	}
	l.heap[i] = e
}

func (l *Loop) pop() event {
	first, last := l.heap[0], len(l.heap)-1
	e := l.heap[last]
	l.heap[last] = event{} // or it would keep alive what fn holds
	l.heap = l.heap[:last]
	if last > 0 {
		l.down(e)
	}
	return first
}

// down puts e where the first event was and lets it sink.
func (l *Loop) down(e event) {
	i, n := 0, len(l.heap)
	for {
		child := 2*i + 1
		if child >= n {
			break
		}
		if child+1 < n && l.heap[child+1].before(&l.heap[child]) {
			child++
		}
		if !l.heap[child].before(&e) {
			break
		}
		l.heap[i] = l.heap[child]
		i = child
	}
	l.heap[i] = e
}
